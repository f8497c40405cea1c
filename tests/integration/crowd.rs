//! A load above the capacity of a pool that lasts: which clients weir serves, which it refuses at once, and whether
//! operators can still look at the pool.
//!
//! `overload` tests the queue's rules one by one. Here they work together, under a load that does not end.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Client, Gate, LIMIT, Responder, Setup, Weir, wait_until};

/// Sends a request for `run.php` from 127.0.0.`last` without waiting for its answer.
fn ask_from(weir: &Weir, last: u8, query: &str) -> Client {
    let source = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
    let mut client = Client::connect_from(source, weir.address());
    client.send(format!("GET /run.php?{query} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

/// A pool of four workers that wait at the gate, with this many requests from 127.0.0.2 in its queue.
fn crowded(many: usize, queue: &str) -> (Weir, Responder, Gate, Vec<Client>) {
    let setup = Setup::new().file("run.php", "").file("text.txt", "a text");
    let gate = Gate::default();
    let shut = gate.clone();
    let responder = Responder::unix(setup.folder(), move |request, answer| {
        shut.pass();
        answer.page(request.param("REQUEST_URI"));
    });
    let pool = format!("{}{queue}", responder.pool(4));
    let weir = setup.server("threads = 1").pool(&pool).start();
    let crowd = (0..many).map(|number| ask_from(&weir, 2, &format!("crowd{number}")));
    let crowd: Vec<Client> = crowd.collect();
    wait_until("four are at work", || responder.running() == 4);
    // There is one reactor. It has handled everything that came earlier before it answers this.
    weir.get("/text.txt").expect(200);
    (weir, responder, gate, crowd)
}

/// Sends one request each from ten other clients.
fn ten(weir: &Weir) -> Vec<Client> {
    let others = (11..21).map(|last| ask_from(weir, last, &format!("other{last}")));
    let others = others.collect();
    weir.get("/text.txt").expect(200);
    others
}

/// How many requests were started before the last of the ten, without the four that ran at first.
fn turns_until_all_ten(responder: &Responder) -> usize {
    let uris = responder.uris();
    let last = uris.iter().rposition(|uri| uri.contains("other"));
    assert_eq!(uris.iter().filter(|uri| uri.contains("other")).count(), 10);
    last.expect("one of the ten") + 1 - 4
}

#[test]
fn one_client_with_very_many_requests_does_not_stand_before_ten_with_one_each() {
    let (weir, responder, gate, _crowd) = crowded(300, "");
    let mut others = ten(&weir);
    gate.open();
    for other in &mut others {
        other.response().expect(200);
    }
    // Alone they would have needed ten turns.
    let turns = turns_until_all_ten(&responder);
    assert!(turns <= 30, "{turns} turns: {:?}", responder.uris());
}

#[test]
fn a_queue_that_one_client_has_filled_has_room_for_ten_others() {
    let (weir, responder, gate, _crowd) =
        crowded(120, "queue.max_queue = 100\nqueue.timeout = \"60s\"\n");
    let mut others = ten(&weir);
    gate.open();
    for other in &mut others {
        other.response().expect(200);
    }
    let turns = turns_until_all_ten(&responder);
    assert!(turns <= 30, "{turns} turns: {:?}", responder.uris());
}

#[test]
fn under_lasting_overload_those_who_still_wait_are_served_and_the_rest_is_told_at_once() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        std::thread::sleep(SERVICE);
        answer.page(request.param("REQUEST_URI"));
    });
    let pool = responder.pool(4);
    let weir = setup.pool(&pool).start();
    let url = format!("http://{}/run.php", weir.address());
    // Three times the capacity of the pool, from clients that wait for a second.
    let capacity = 4.0 / SERVICE.as_secs_f64();
    let rate = (3.0 * capacity).to_string();
    let seconds = 10;
    let time = format!("{seconds}s");
    let overload = || {
        let words = [
            "bench",
            &url,
            "--json",
            "--timeout",
            "1s",
            "-r",
            &rate,
            "-t",
            &time,
        ];
        let bench = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(words)
            .output()
            .expect("weir bench");
        let said = String::from_utf8_lossy(&bench.stdout).into_owned();
        let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| {
            panic!("{error}: {said}{}", String::from_utf8_lossy(&bench.stderr))
        });
        let count = |key: &str| report[key].as_u64().expect(key);
        // A queue that serves in order of arrival answers no client in time after the first second, which is a tenth of
        // the capacity. This queue reaches three quarters on an idle machine.
        let good = count("transactions") as f64 / (capacity * f64::from(seconds));
        let median = report["refused_time"]["p50"].as_f64();
        let is_well = good > 0.4
            && count("refused") > count("failed")
            && median.is_some_and(|median| median < 0.5);
        is_well
            .then_some(())
            .ok_or(format!("{good:.2} of what it can do: {said}"))
    };
    // A busy machine may be late, so there are several tries.
    let mut tries = (0..4).map(|_| overload());
    let last = tries.by_ref().find(Result::is_ok).unwrap_or_else(overload);
    assert!(last.is_ok(), "{last:?}");
    // No request has to wait when the overload is over.
    let begun = Instant::now();
    wait_until("nothing is left of it", || {
        weir.get("/run.php").status == 200
    });
    assert!(begun.elapsed() < LIMIT / 2, "{:?}", begun.elapsed());
}

const SERVICE: Duration = Duration::from_millis(50);
