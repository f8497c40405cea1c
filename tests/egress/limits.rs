//! How limits protect an origin and other callers: breakers, places, queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::trouble::{calls, get, line, logged, oddity, refused, url};
use weir_test::oddity::Oddity;
use weir_test::origin::Origin;
use weir_test::sidecar::{Outward, Sidecar};
use weir_test::{Client, Gate, Setup, free_address, wait_for, wait_until};

#[test]
fn a_breaker_opens_after_failures_in_a_row_and_one_call_tries() {
    let broken = Arc::new(AtomicBool::new(true));
    let gate = Gate::default();
    let (script, is_broken) = (gate.clone(), broken.clone());
    let lines = "max_fails = 3\nfail_timeout = \"20s\"\nretries = 0";
    let (origin, sidecar) = oddity(lines, move |talk| {
        while talk.request().is_some() {
            if is_broken.load(Ordering::SeqCst) {
                return talk.reset();
            }
            script.pass();
            talk.answer("fine");
        }
    });
    let ask = |path: &str| get(&sidecar, &url(&origin, path));
    let began = Instant::now();
    for _ in 0..3 {
        refused(&ask("/fails"), 502, "connection_terminated", "terminated");
    }
    let answer = ask("/open");
    refused(&answer, 503, "destination_unavailable", "breaker_open");
    assert!(matches!(answer.header("retry-after"), Some("1" | "2")));
    assert_eq!(origin.asked().len(), 3, "it is left alone");
    sidecar
        .weir
        .wait_for_error(&["api.test", "3 calls in a row failed"]);
    broken.store(false, Ordering::SeqCst);
    // The first pause is a tenth of fail_timeout. Then weir lets one call through, and no other until that one ends.
    let mut probe = goes(&sidecar, &origin, "/probe");
    assert!(began.elapsed() >= Duration::from_secs(2));
    let before = origin.asked().len();
    for _ in 0..5 {
        let answer = ask("/meanwhile");
        refused(&answer, 503, "destination_unavailable", "breaker_open");
    }
    assert_eq!(origin.asked().len(), before);
    gate.open();
    assert_eq!(probe.response().status, 200);
    sidecar.weir.wait_for_error(&["api.test", "answers again"]);
    for _ in 0..3 {
        assert_eq!(ask("/closed").status, 200);
    }
}

#[test]
fn a_breaker_that_is_open_answers_at_once_where_calls_hang() {
    // There is only one place, and the probing call has it.
    let lines = "max_fails = 1\nfail_timeout = \"20s\"\nretries = 0\nmaxconn = 1";
    let (origin, sidecar) = oddity(lines, |talk| {
        let asked = talk.request().unwrap_or_default();
        match asked.contains(" /fails ") {
            true => talk.reset(),
            false => talk.hold(),
        }
    });
    let ask = |path: &str| get(&sidecar, &url(&origin, path));
    refused(&ask("/fails"), 502, "connection_terminated", "terminated");
    let probe = goes(&sidecar, &origin, "/hangs");
    // The call does not wait for queue_timeout.
    let answer = ask("/meanwhile");
    refused(&answer, 503, "destination_unavailable", "breaker_open");
    // The caller leaves. Another call may then try.
    drop(probe);
    goes(&sidecar, &origin, "/next");
}

/// Sends calls until one gets to the origin, and returns that one.
fn goes(sidecar: &Sidecar, origin: &Oddity, path: &str) -> Client {
    let mut number = 0;
    wait_for("one call goes", || {
        number += 1;
        let path = format!("{path}/{number}");
        let mut client = calls(sidecar, &url(origin, &path), 1).remove(0);
        let refused = !client.quiet_for(Duration::from_millis(100));
        let has_gone = || origin.asked().iter().any(|asked| asked.contains(&path));
        (!refused && has_gone()).then_some(client)
    })
}

#[test]
fn who_waits_when_a_breaker_opens_is_not_sent() {
    let gate = Gate::default();
    let script = gate.clone();
    let lines = "max_fails = 1\nfail_timeout = \"5m\"\nretries = 0\nmaxconn = 1";
    let (origin, sidecar) = oddity(lines, move |talk| {
        talk.request();
        script.pass();
        talk.reset();
    });
    let mut first = calls(&sidecar, &url(&origin, "/first"), 1).remove(0);
    wait_until("it is at work", || origin.asked().len() == 1);
    let mut waiting = calls(&sidecar, &url(&origin, "/waits"), 5);
    assert!(waiting[4].quiet_for(Duration::from_millis(100)));
    gate.open();
    assert_eq!(first.response().status, 502);
    for caller in &mut waiting {
        let answer = caller.response();
        refused(&answer, 503, "destination_unavailable", "breaker_open");
    }
    assert_eq!(origin.asked().len(), 1);
}

#[test]
fn so_many_calls_as_maxconn_go_at_once_the_next_wait_and_more_are_refused() {
    let gate = Gate::default();
    let script = gate.clone();
    let at_once = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let counted = at_once.clone();
    let (origin, sidecar) = oddity("maxconn = 2\nmax_queue = 2", move |talk| {
        while talk.request().is_some() {
            let now = counted.0.fetch_add(1, Ordering::SeqCst) + 1;
            counted.1.fetch_max(now, Ordering::SeqCst);
            script.pass();
            counted.0.fetch_sub(1, Ordering::SeqCst);
            talk.answer("fine");
        }
    });
    let mut first = calls(&sidecar, &url(&origin, "/first"), 2);
    wait_until("two are at work", || origin.asked().len() == 2);
    let mut leaves = calls(&sidecar, &url(&origin, "/leaves"), 1).remove(0);
    let mut stays = calls(&sidecar, &url(&origin, "/stays"), 1).remove(0);
    // The queue is full when a call is refused.
    let began = Instant::now();
    let answer = wait_for("the queue is full", || {
        let mut one = calls(&sidecar, &url(&origin, "/more"), 1).remove(0);
        let waits = one.quiet_for(Duration::from_millis(100));
        (!waits).then(|| one.response())
    });
    refused(&answer, 503, "connection_limit_reached", "queue_full");
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "before queue_timeout"
    );
    let seconds = answer.header("retry-after").expect("Retry-After");
    assert!((1..=60).contains(&seconds.parse::<u64>().expect("seconds")));
    assert!(
        leaves.quiet_for(Duration::from_millis(1)) && stays.quiet_for(Duration::from_millis(1))
    );
    assert_eq!(origin.asked().len(), 2);
    drop(leaves);
    wait_until("who left is logged", || {
        logged(&sidecar, "/leaves", 1)[0]["caller_left"] == true
    });
    gate.open();
    for caller in &mut first {
        assert_eq!(caller.response().status, 200);
    }
    assert_eq!(stays.response().status, 200);
    let waited = line(&sidecar, "/stays")["time_wait"]
        .as_f64()
        .expect("a time");
    assert!(waited > 0.0);
    let asked = origin.asked();
    assert!(
        !asked.iter().any(|asked| asked.contains("/leaves")),
        "{asked:?}"
    );
    assert_eq!(at_once.1.load(Ordering::SeqCst), 2);
}

#[test]
fn who_waits_for_too_long_gets_503() {
    let lines = "maxconn = 1\nqueue_timeout = \"300ms\"";
    let (origin, sidecar) = oddity(lines, |talk| {
        talk.request();
        talk.hold();
    });
    let _hangs = calls(&sidecar, &url(&origin, "/hangs"), 1);
    wait_until("it is at work", || origin.asked().len() == 1);
    let began = Instant::now();
    let answer = get(&sidecar, &url(&origin, "/waits"));
    assert!(began.elapsed() >= Duration::from_millis(300));
    refused(&answer, 503, "connection_limit_reached", "queue_timeout");
    assert!(answer.header("retry-after").is_some());
    sidecar
        .weir
        .wait_for_error(&["api.test", "it waited for queue_timeout", "maxconn is 1"]);
    assert_eq!(origin.asked().len(), 1);
}

#[test]
fn an_origin_that_hangs_delays_no_other() {
    let setup = Setup::new();
    let good = Origin::plain(setup.folder());
    let silent = Oddity::plain(|talk| {
        talk.request();
        talk.hold();
    });
    // The kernel accepts connections for it until its queue is full. After that nothing accepts them.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
    let full_address = free_address();
    full.bind(&full_address.into()).expect("bind");
    full.listen(0).expect("listen");
    let nameless = free_address();
    let outward = Outward::new()
        .plain_name("good.test", good.address())
        .plain_name("silent.test", silent.address())
        .plain_name("full.test", full_address)
        .plain_name("nameless.test", nameless);
    outward
        .dns()
        .says("nameless.test", weir_test::dns::Says::Silence);
    let sidecar = outward
        .lines("threads = 1")
        .usual("maxconn = 40\nmax_queue = 20\nfirst_byte_timeout = \"1m\"")
        .start();
    let target = |name: &str, port: u16| format!("http://{name}:{port}/");
    let good_url = target("good.test", good.address().port());
    // The time within which 95 of 100 calls end, while calls to others run.
    let measure = |others: &[String]| {
        let mut times: Vec<Duration> = (0..200)
            .map(|_| {
                // These callers leave when the call is answered.
                let others = others.iter().flat_map(|other| calls(&sidecar, other, 1));
                let _others: Vec<Client> = others.collect();
                let began = Instant::now();
                assert_eq!(get(&sidecar, &good_url).status, 200);
                began.elapsed()
            })
            .collect();
        times.sort();
        times[190]
    };
    let alone = measure(&[]);
    let hang = [
        target("silent.test", silent.address().port()),
        target("full.test", full_address.port()),
        target("nameless.test", nameless.port()),
    ];
    let mut hanging: Vec<Client> = hang
        .iter()
        .flat_map(|target| calls(&sidecar, target, 60))
        .collect();
    wait_until("they hang", || silent.asked().len() == 40);
    let beside = measure(&hang);
    assert!(
        beside < alone * 3 + Duration::from_millis(50),
        "{alone:?} alone, {beside:?} beside"
    );
    assert!(
        hanging[0].quiet_for(Duration::from_millis(1)),
        "it hangs still"
    );
}
