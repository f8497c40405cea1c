//! A load above the capacity of a pool that lasts: which clients weir serves, which it refuses at once, and whether
//! operators can still look at the pool.
//!
//! `overload` tests the queue's rules one by one. Here they work together, under a load that does not end.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use weir_test::weir::program;
use weir_test::{Client, Gate, Responder, Setup, Weir, wait_until};

/// Sends a request for `run.php` from 127.0.0.`last` without waiting for its answer.
fn ask_from(weir: &Weir, last: u8, query: &str) -> Client {
    let source = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
    let mut client = Client::connect_from(source, weir.address());
    client.send(format!("GET /run.php?{query} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

/// A pool of four workers that wait at the gate, with this many requests from 127.0.0.2 in its queue.
fn crowded(many: usize, queue: &str) -> (Weir, Responder, Gate, Vec<Client>) {
    let setup = Setup::new().file("run.php", "");
    let (responder, gate) = Responder::gated(setup.folder(), |request, answer| {
        answer.page(request.param("REQUEST_URI"));
    });
    let pool = format!("{}{queue}", responder.pool(AT_WORK));
    let weir = setup.server("threads = 1").admin().pool(&pool).start();
    let crowd: Vec<Client> = weir.after(many as u64, || {
        let asked = (0..many).map(|number| ask_from(&weir, 2, &format!("crowd{number}")));
        asked.collect()
    });
    wait_until("four are at work", || responder.uris().len() == AT_WORK);
    (weir, responder, gate, crowd)
}

/// Sends one request each from ten other clients.
fn ten(weir: &Weir) -> Vec<Client> {
    weir.after(10, || {
        let others = (11..21).map(|last| ask_from(weir, last, &format!("other{last}")));
        others.collect()
    })
}

#[test]
fn one_client_with_very_many_requests_does_not_stand_before_ten_with_one_each() {
    let (weir, responder, gate, _crowd) = crowded(300, "");
    expect_ten_soon(&weir, &responder, &gate);
}

/// Ten others come. Alone they would have needed ten turns. The turns go one after the other: so the responder sees them in weir's order.
fn expect_ten_soon(weir: &Weir, responder: &Responder, gate: &Gate) {
    let mut others = ten(weir);
    for turn in 1..=TURNS {
        gate.admit(1);
        wait_until("the next is at work", || {
            responder.uris().len() == AT_WORK + turn
        });
    }
    let uris = responder.uris();
    let came = uris.iter().filter(|uri| uri.contains("other")).count();
    assert_eq!(came, 10, "{uris:?}");
    gate.open();
    for other in &mut others {
        other.response().expect(200);
    }
}

#[test]
fn a_queue_that_one_client_has_filled_has_room_for_ten_others() {
    let (weir, responder, gate, _crowd) =
        crowded(120, "queue.max_queue = 100\nqueue.timeout = \"60s\"\n");
    expect_ten_soon(&weir, &responder, &gate);
}

#[test]
fn under_lasting_overload_those_who_still_wait_are_served_and_the_rest_is_told_at_once() {
    let (outcome, said) = overload();
    assert!(outcome.is_well(), "{outcome:?}: {said}");
}

/// What came of an overload. How much a machine can do in that time does not matter.
#[derive(Debug)]
struct Outcome {
    /// Scripts that were run, and how many clients got their answer in time.
    run: u64,
    good: u64,
    /// Clients that were refused, and that left in vain.
    refused: u64,
    failed: u64,
    /// When half of those who were refused knew it, seconds.
    told_after: f64,
}

impl Outcome {
    fn is_well(&self) -> bool {
        // First come, first served would reach a quarter. The simulator asks for 95 %.
        2 * self.good > self.run
            && self.refused > self.failed
            && self.told_after < PATIENCE.as_secs_f64() / 2.0
    }
}

/// Three times the capacity of a pool, from clients that wait for [`PATIENCE`]. The pool's capacity is so small that a slow
/// machine can bear the load. There are a few tries, since a busy machine may stand still for that long.
fn overload() -> (Outcome, String) {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        std::thread::sleep(SERVICE);
        answer.page(request.param("REQUEST_URI"));
    });
    let pool = responder.pool(WORKERS);
    let weir = setup.pool(&pool).start();
    let mut last = None;
    for _ in 0..3 {
        let before = responder.uris().len();
        let (mut outcome, said) = overload_once(&weir);
        outcome.run = (responder.uris().len() - before) as u64;
        // No request has to wait when the overload is over.
        wait_until("nothing is left of it", || {
            weir.get("/run.php").status == 200
        });
        let is_well = outcome.is_well();
        last = Some((outcome, said));
        if is_well {
            break;
        }
    }
    last.expect("a try")
}

fn overload_once(weir: &Weir) -> (Outcome, String) {
    let url = format!("http://{}/run.php", weir.address());
    let rate = (3.0 * WORKERS as f64 / SERVICE.as_secs_f64()).to_string();
    let (patience, time) = (format!("{}s", PATIENCE.as_secs()), "8s");
    let bench = Command::new(program())
        .args(["bench", &url, "--json", "--timeout", &patience])
        .args(["-r", &rate, "-t", time])
        .output()
        .expect("weir bench");
    let said = String::from_utf8_lossy(&bench.stdout).into_owned();
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| {
        panic!("{error}: {said}{}", String::from_utf8_lossy(&bench.stderr))
    });
    let count = |key: &str| report[key].as_u64().expect(key);
    let outcome = Outcome {
        run: 0,
        good: count("transactions"),
        refused: count("refused"),
        failed: count("failed"),
        told_after: report["refused_time"]["p50"].as_f64().unwrap_or(f64::MAX),
    };
    (outcome, said)
}

/// How many workers a crowd has.
const AT_WORK: usize = 4;

/// In so many turns ten others have theirs.
const TURNS: usize = 30;

const WORKERS: usize = 2;
const SERVICE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(2);
