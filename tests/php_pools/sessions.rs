//! Requests of one session wait for its lock in the queue, not in workers. One client gets no more than its share of
//! the workers while others wait.

use std::time::Duration;

use super::{count, fixed, setup, wait_for_workers};
use weir_test::{Client, LIMIT, Setup, Weir, php, wait_until, weir};

/// Opens the session, and waits for the file `gate`. The sessions of other tests are in other folders.
const SESSION: &str = "<?php
    session_save_path(__DIR__ . '/../spool');
    session_start();
    touch($_GET['came'] . '.' . getmypid() . '.' . hrtime(true));
    while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }
    echo session_id();
";

fn site(workers: usize, queue: &str) -> Setup {
    fixed(workers, queue).file("session.php", SESSION)
}

/// Sends a request with this session, without waiting for the answer.
fn ask(weir: &Weir, session: &str, prefix: &str) -> Client {
    ask_for(weir, "session.php", &format!("PHPSESSID={session}"), prefix)
}

/// The same, for this script and with this cookie.
fn ask_for(weir: &Weir, script: &str, cookie: &str, prefix: &str) -> Client {
    let path = format!(
        "/{script}?gate={}&came={}",
        weir.scratch(&format!("gate-{prefix}")).display(),
        weir.scratch(&format!("came-{prefix}")).display()
    );
    let cookie = format!("a=b; {cookie}");
    let mut client = weir.client().patient(LIMIT);
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
    // Another visitor and a visitor without a session get workers.
    let mut other = ask(&weir, "two", "other");
    wait_until("the other one runs", || count(&weir, "came-other") == 1);
    for _ in 0..20 {
        weir.get("/pid.php").expect(200);
    }
    assert_eq!(count(&weir, "came-mine"), 1);
    for gate in ["gate-other", "gate-mine"] {
        std::fs::write(weir.scratch(gate), "").expect("the gate");
    }
    assert_eq!(other.response().expect(200).text(), "two");
    for client in &mut mine {
        assert_eq!(client.response().expect(200).text(), "one");
    }
    assert_eq!(count(&weir, "came-mine"), 10);
}

/// The same as above, but the configuration names neither the cookie nor the scripts.
#[test]
fn weir_finds_out_which_scripts_hold_a_session_and_lets_only_their_requests_take_turns() {
    const EARLY: &str = "<?php session_save_path(__DIR__ . '/../spool');
        session_start(); session_write_close();
        touch($_GET['came'] . '.' . getmypid());
        while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }";
    let lines = "queue.serialize_by = \"auto\"\nqueue.timeout = \"60s\"\n\
                 php_value = { \"session.name\" = \"SHOPSID\" }\n";
    let weir = site(3, lines).file("early.php", EARLY).start();
    wait_for_workers(&weir, 3);
    let open = |name: &str| {
        std::fs::write(weir.scratch(&format!("gate-{name}")), "").expect("the gate");
    };
    // The first round: one request of each script, which takes some time.
    for script in ["session.php", "early.php", "gate.php"] {
        let prefix = format!("first-{script}");
        let mut client = ask_for(&weir, script, "SHOPSID=zero", &prefix);
        wait_until("it runs", || count(&weir, &format!("came-{prefix}")) == 1);
        // weir compares how long a script ran with how long it held the session.
        std::thread::sleep(Duration::from_millis(500));
        open(&prefix);
        client.response().expect(200);
    }
    weir.wait_for_error(&["session.php", "SHOPSID", "serialize_by = \"auto\""]);
    // These two do not hold the session, so two requests of one session run at once.
    for script in ["early.php", "gate.php"] {
        let both = [0, 1].map(|_| ask_for(&weir, script, "SHOPSID=one", script));
        wait_until("both run", || count(&weir, &format!("came-{script}")) == 2);
        open(script);
        for mut client in both {
            client.response().expect(200);
        }
    }
    let ask = |session: &str, prefix: &str| {
        ask_for(&weir, "session.php", &format!("SHOPSID={session}"), prefix)
    };
    let mut mine: Vec<_> = (0..10).map(|_| ask("one", "mine")).collect();
    wait_until("the first of them runs", || count(&weir, "came-mine") == 1);
    let mut other = ask("two", "other");
    wait_until("the other one runs", || count(&weir, "came-other") == 1);
    for _ in 0..20 {
        weir.get("/pid.php").expect(200);
    }
    assert_eq!(count(&weir, "came-mine"), 1);
    open("other");
    open("mine");
    assert_eq!(other.response().expect(200).text(), "two");
    for client in &mut mine {
        assert_eq!(client.response().expect(200).text(), "one");
    }
    for script in ["early.php", "gate.php"] {
        let holds = format!("{script}\" holds");
        assert!(!weir.stderr().contains(&holds), "{script}");
    }
}

/// The caller has closed its session, so PHP would not let the call wait. But the caller keeps its turn until it ends.
#[test]
fn a_call_to_the_own_site_takes_no_turn_that_weir_has_found_out_about() {
    const CALLED: &str = "<?php session_save_path(__DIR__ . '/../spool');
        session_start(); usleep(200000); echo 'called';";
    let setup = Setup::new();
    let caller = format!(
        "<?php session_save_path(__DIR__ . '/../spool');
        session_start(); usleep(1000000); session_write_close();
        echo file_get_contents('http://{}/called.php', false, stream_context_create(
            ['http' => ['header' => 'Cookie: PHPSESSID=one', 'timeout' => 60]]));",
        setup.address()
    );
    let lines = "queue.serialize_by = \"auto\"\nqueue.timeout = \"60s\"\npm = \"static\"\nmax_children = 2\n";
    let weir = setup
        .file("caller.php", caller)
        .file("called.php", CALLED)
        .pool(&format!("runtime = \"php\"\n{}{lines}", php::identity()))
        .start();
    for round in 0..3 {
        let headers = [("Cookie", "PHPSESSID=one")];
        let mut client = weir.client().patient(LIMIT);
        client.send(weir::request("GET", "/caller.php", &headers, b""));
        assert_eq!(client.response().expect(200).text(), "called", "{round}");
        if round == 0 {
            weir.wait_for_error(&["caller.php", "holds the lock of its session"]);
            weir.wait_for_error(&["called.php", "holds the lock of its session"]);
        }
    }
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
    weir.wait_for_error(&["another request with the same key", "serialize_by"]);
    std::fs::write(weir.scratch("gate-first"), "").expect("the gate");
    first.response().expect(200);
    std::fs::write(weir.scratch("gate-last"), "").expect("the gate");
    ask(&weir, "one", "last").response().expect(200);
    assert_eq!(count(&weir, "came-leaves") + count(&weir, "came-waits"), 0);
    // On that route weir leaves the session's lock to PHP. Without the lock both requests would run.
    let path = |name: &str| {
        let file = |kind: &str| {
            weir.scratch(&format!("{kind}-{name}"))
                .display()
                .to_string()
        };
        format!("/free.php?gate={}&came={}", file("gate"), file("came"))
    };
    std::fs::write(weir.scratch("gate-free"), "").expect("the gate");
    weir.request("GET", &path("free"), &[("Cookie", "PHPSESSID=one")], b"")
        .expect(200);
}

#[test]
fn a_client_that_leaves_is_noticed_while_its_request_waits_for_its_turn() {
    let lines = "queue.timeout = \"300s\"\nqueue.serialize_by = \"cookie:PHPSESSID\"\n";
    let weir = site(2, lines).file("later.php", SESSION).start();
    wait_for_workers(&weir, 2);
    let mut first = ask(&weir, "one", "first");
    wait_until("the first runs", || count(&weir, "came-first") == 1);
    let later = ask_for(&weir, "later.php", "PHPSESSID=one", "later");
    drop(later);
    // Long before the queue's timeout, and while the first still runs.
    let line = weir.wait_for_line("log/access.log", &["/later.php", "client_left"]);
    assert!(line.contains("499"), "{line}");
    std::fs::write(weir.scratch("gate-first"), "").expect("the gate");
    first.response().expect(200);
    assert_eq!(count(&weir, "came-later"), 0);
}

/// One visitor has all four workers with four requests. Four more of its requests wait, and three of another visitor.
/// Then two of the first four end. Returns how many requests of the first and of the second visitor have begun by then. The visitors
/// differ in this header, which begins with `value`.
fn after_two_have_ended(site: &str, (header, value): (&str, &str), lines: &str) -> (usize, usize) {
    let lines = format!("queue.timeout = \"120s\"\n{lines}");
    let setup = fixed(4, &lines).site(site);
    let weir = setup.admin().start();
    wait_for_workers(&weir, 4);
    let ask = |visitor: &str, name: &str| {
        let path = format!(
            "/gate.php?gate={}&came={}",
            weir.scratch(&format!("gate-{name}")).display(),
            weir.scratch(&format!("came-{name}")).display()
        );
        let mut client = weir.client().patient(LIMIT);
        let value = format!("{value}{visitor}");
        let headers = [(header, &*value)];
        client.send(weir::request("GET", &path, &headers, b""));
        client
    };
    let waiting = |expected: usize| {
        wait_until(&format!("{expected} wait"), || {
            weir.status()["pools"][0]["queue"]["waiting"] == expected
        });
    };
    let mut clients = Vec::new();
    for number in 0..4 {
        clients.push(ask("one", &format!("one{number}")));
        wait_until("it runs", || count(&weir, "came-one") == number + 1);
    }
    for (visitor, from, until, there) in [("one", 4, 8, 0), ("other", 0, 3, 4)] {
        for number in from..until {
            clients.push(ask(visitor, &format!("{visitor}{number}")));
            waiting(there + number + 1 - from);
        }
    }
    let open = |name: &str| std::fs::write(weir.scratch(&format!("gate-{name}")), "").unwrap();
    for (name, begun) in [("one0", 5), ("one1", 6)] {
        open(name);
        wait_until("the next one begins", || count(&weir, "came-") == begun);
    }
    let begun = (count(&weir, "came-one"), count(&weir, "came-other"));
    (0..8).for_each(|number| open(&format!("one{number}")));
    (0..3).for_each(|number| open(&format!("other{number}")));
    for client in &mut clients {
        client.response().expect(200);
    }
    begun
}

#[test]
fn one_client_has_no_more_than_half_of_the_workers_while_others_wait() {
    let by_header = |lines| {
        let site = "fair_by = \"header:X-Visitor\"\n";
        after_two_have_ended(site, ("X-Visitor", ""), lines)
    };
    assert_eq!(by_header(""), (4, 2));
    // Without that limit the visitors take turns.
    assert_eq!(by_header("queue.client_share = 100\n"), (5, 1));
}

/// All visitors have one address, for example that of a proxy.
#[test]
fn one_session_has_no_more_than_half_of_the_workers_while_others_of_its_address_wait() {
    let by_cookie = |site, value| after_two_have_ended(site, ("Cookie", value), "");
    assert_eq!(by_cookie("", "PHPSESSID="), (4, 2));
    // A cookie of any name tells sessions apart, and other cookies than PHP's do not.
    assert_eq!(by_cookie("", "laravel_session="), (4, 2));
    assert_eq!(by_cookie("", "PHPSESSID=same; other="), (6, 0));
    assert_eq!(by_cookie("fair_by = \"off\"\n", "PHPSESSID="), (6, 0));
}

/// A crowd of one session, whose requests wait for its lock, comes through a proxy that is not in `trusted`, and so do 17 others.
/// None of these is refused or waits for all of the crowd, which takes 20 s.
#[test]
fn a_crowd_of_one_session_costs_no_other_visitor_of_its_proxy_an_answer() {
    const OPEN: &str = "<?php session_save_path(__DIR__ . '/../spool'); session_start();";
    let came = "touch(__DIR__ . '/../spool/came.' . hrtime(true)); usleep(100000);";
    let weir = setup("pm = \"dynamic\"\nmax_children = 4\n")
        .file("crowd.php", format!("{OPEN} {came}"))
        .file("visit.php", format!("{OPEN} echo 'visit';"))
        .start();
    let send = |path: &str, session: &str, from: u8| {
        let (cookie, from) = (format!("PHPSESSID={session}"), format!("192.0.2.{from}"));
        let headers = [("Cookie", &*cookie), ("X-Forwarded-For", &*from)];
        let mut client = weir.client().patient(LIMIT);
        client.send(weir::request("GET", path, &headers, b""));
        client
    };
    // Enough of them for an estimate of waits.
    for _ in 0..40 {
        send("/visit.php", "before", 1).response().expect(200);
    }
    let crowd: Vec<_> = (0..200).map(|_| send("/crowd.php", "crowd", 2)).collect();
    wait_until("the crowd runs", || count(&weir, "came") > 0);
    let visits = (0..17).map(|number| send("/visit.php", &format!("visitor{number}"), 3 + number));
    for visit in &mut visits.collect::<Vec<_>>() {
        assert_eq!(visit.response().expect(200).text(), "visit");
    }
    assert!(count(&weir, "came") < 150);
    drop(crowd);
}
