//! Requests of one session, which wait for its lock: in the queue, and not in workers.

use super::{count, fixed, scratch, wait_for_workers};
use crate::support::{Setup, Weir, wait_until, weir};

/// Opens the session, and waits for the file `gate`.
const SESSION: &str = "<?php
    session_start();
    touch($_GET['came'] . '.' . getmypid() . '.' . hrtime(true));
    while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }
    echo session_id();
";

fn site(workers: usize, queue: &str) -> Setup {
    fixed(workers, queue).file("session.php", SESSION)
}

/// Asks with this session, without waiting for the answer.
fn ask(weir: &Weir, session: &str, prefix: &str) -> crate::support::Client {
    let path = format!(
        "/session.php?gate={}&came={}",
        scratch(weir, &format!("gate-{prefix}")).display(),
        scratch(weir, &format!("came-{prefix}")).display()
    );
    let cookie = format!("a=b; PHPSESSID={session}");
    let mut client = weir.client().patient(crate::support::LIMIT);
    let headers = [("Cookie", cookie.as_str())];
    client.send(weir::request("GET", &path, &headers, b""));
    client
}

#[test]
fn ten_requests_of_one_session_hold_one_worker_and_the_others_are_served() {
    let lines = "queue.serialize_by = \"cookie:PHPSESSID\"\nqueue.timeout = \"60s\"\n";
    let weir = site(3, lines).start();
    wait_for_workers(&weir, 3);
    let mut mine: Vec<_> = (0..10).map(|_| ask(&weir, "one", "mine")).collect();
    wait_until("the first of them runs", || count(&weir, "came-mine") == 1);
    // Another visitor, and one without a session, have workers.
    let mut other = ask(&weir, "two", "other");
    wait_until("the other one runs", || count(&weir, "came-other") == 1);
    for _ in 0..20 {
        weir.get("/pid.php").expect(200);
    }
    assert_eq!(count(&weir, "came-mine"), 1);
    for gate in ["gate-other", "gate-mine"] {
        std::fs::write(scratch(&weir, gate), "").expect("the gate");
    }
    assert_eq!(other.response().expect(200).text(), "two");
    for client in &mut mine {
        assert_eq!(client.response().expect(200).text(), "one");
    }
    assert_eq!(count(&weir, "came-mine"), 10);
}

#[test]
fn a_route_may_say_otherwise_and_who_leaves_or_waits_too_long_holds_up_nobody() {
    let lines = "queue.timeout = \"2s\"\nqueue.serialize_queue = 2\n";
    let setup = site(4, lines)
        .file("free.php", SESSION)
        .site("serialize_by = \"cookie:PHPSESSID\"\n")
        .more("[[site.main.route]]\npath = \"/free.php\"\nserialize_by = \"off\"\n");
    let weir = setup.start();
    wait_for_workers(&weir, 4);
    let mut first = ask(&weir, "one", "first");
    wait_until("the first runs", || count(&weir, "came-first") == 1);
    // Two may wait, and one of them leaves.
    let leaves = ask(&weir, "one", "leaves");
    let mut waits = ask(&weir, "one", "waits");
    wait_until("no more may wait", || {
        let refused = ask(&weir, "one", "refused").response().status;
        refused == 503
    });
    drop(leaves);
    waits.response().expect(503).expect_reason("queue_timeout");
    weir.wait_for_error(&["another request of its key", "serialize_by"]);
    std::fs::write(scratch(&weir, "gate-first"), "").expect("the gate");
    first.response().expect(200);
    std::fs::write(scratch(&weir, "gate-last"), "").expect("the gate");
    ask(&weir, "one", "last").response().expect(200);
    assert_eq!(count(&weir, "came-leaves") + count(&weir, "came-waits"), 0);
    // The session's lock is PHP's own matter on that route: without it both would run.
    let path = |name: &str| {
        let file = |kind: &str| {
            scratch(&weir, &format!("{kind}-{name}"))
                .display()
                .to_string()
        };
        format!("/free.php?gate={}&came={}", file("gate"), file("came"))
    };
    std::fs::write(scratch(&weir, "gate-free"), "").expect("the gate");
    weir.request("GET", &path("free"), &[("Cookie", "PHPSESSID=one")], b"")
        .expect(200);
}
