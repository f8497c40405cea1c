//! Clients that leave while their script runs: what happens to the script, to its worker, and to other requests.

use std::fs;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use weir_test::fcgi::{ABORT_REQUEST, record};
use weir_test::front::{Behind, request};
use weir_test::php::{self, Fpm, cgi_pool};
use weir_test::{Client, Responder, Setup, Weir, wait_until};

/// Writes that it has started, begins to answer if asked to, and waits at the gate. Then it writes that it is done.
const WAIT: &str = "<?php
    ignore_user_abort((bool)($_GET['ignore'] ?? 0));
    header('Content-Type: ' . ($_GET['type'] ?? 'text/plain'));
    if ($_GET['answers'] ?? 0) { echo str_repeat('begun ', 2000), \"\\r\\n\"; flush(); }
    file_put_contents($_GET['came'], getmypid());
    while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }
    file_put_contents($_GET['done'], getmypid());
    echo 'done';
";

/// Prints without end until it is stopped.
const ENDLESS: &str = "<?php
    set_time_limit(0);
    ignore_user_abort(true);
    header('Content-Type: text/event-stream');
    file_put_contents($_GET['came'], getmypid());
    while (true) { echo \"data: x\\r\\n\\r\\n\"; flush(); usleep(5000); }
";

fn scripts() -> Setup {
    Setup::new()
        .file("wait.php", WAIT)
        .file("endless.php", ENDLESS)
        .file("pid.php", "<?php echo getmypid();")
}

fn setup(pool: &str, site: &str) -> Setup {
    scripts().pool(pool).site(site)
}

fn pid(weir: &Weir) -> String {
    weir.get("/pid.php").expect(200).text()
}

/// The URL of a script that waits. `name` distinguishes it from others.
fn target(weir: &Weir, name: &str, query: &str) -> String {
    let path = |what: &str| {
        weir.scratch(&format!("{what}-{name}"))
            .display()
            .to_string()
    };
    format!(
        "/wait.php?came={}&gate={}&done={}{query}",
        path("came"),
        path("gate"),
        path("done")
    )
}

/// A client whose script runs.
#[track_caller]
fn ask(weir: &Weir, name: &str, query: &str) -> Client {
    let mut client = weir.client();
    let target = target(weir, name, query);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    weir.written(&format!("came-{name}"));
    client
}

fn open(weir: &Weir, name: &str) {
    fs::write(weir.scratch(&format!("gate-{name}")), "").expect("the gate");
}

fn is_done(weir: &Weir, name: &str) -> bool {
    weir.scratch(&format!("done-{name}")).exists()
}

/// The log line of a client that left while its script ran and had not yet answered.
#[track_caller]
fn expect_left(weir: &Weir, target: &str) {
    let line = weir.logged(target);
    assert_eq!(
        (line["status"].as_u64(), line["reason"].as_str()),
        (Some(499), Some("client_left"))
    );
    assert!(line["worker"].is_string(), "its script ran: {line}");
    assert!(line["time_first_byte"].is_null(), "{line}");
}

#[test]
fn a_script_is_finished_whose_client_has_left() {
    for pool in [php::own(1, ""), cgi_pool(1)] {
        let weir = setup(&pool, "").start();
        let worker = pid(&weir);
        drop(ask(&weir, "a", ""));
        expect_left(&weir, &target(&weir, "a", ""));
        assert!(!is_done(&weir, "a"));
        open(&weir, "a");
        assert_eq!(weir.written("done-a"), worker);
        assert_eq!(pid(&weir), worker, "it is free again");
    }
}

#[test]
fn a_script_of_php_fpm_is_finished_whose_client_has_left() {
    let setup = scripts();
    let fpm = Fpm::unix(setup.folder(), 1);
    let weir = setup.pool(&fpm.pool(1)).start();
    drop(ask(&weir, "a", ""));
    expect_left(&weir, &target(&weir, "a", ""));
    // The place of the request is not free before that.
    let mut next = weir.client();
    next.send("GET /pid.php HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(next.quiet_for(Duration::from_millis(200)));
    open(&weir, "a");
    let worker = weir.written("done-a");
    assert_eq!(next.response().expect(200).text(), worker);
}

#[test]
fn a_cancelled_script_ends_and_its_worker_is_replaced() {
    for pool in [php::own(1, ""), cgi_pool(1)] {
        let weir = setup(&pool, "on_client_left = \"cancel\"").start();
        for (name, query) in [("silent", ""), ("answers", "&answers=1&ignore=1")] {
            let worker = pid(&weir);
            let mut client = ask(&weir, name, query);
            if !query.is_empty() {
                assert_eq!(client.head().expect("the answer begins").status, 200);
            }
            drop(client);
            let line = weir.logged(&target(&weir, name, query));
            assert_eq!(line["reason"], "client_left");
            // The script would end only at the gate.
            assert_ne!(pid(&weir), worker, "another worker");
            open(&weir, name);
            pid(&weir);
            assert!(!is_done(&weir, name), "{name} is not done");
        }
        assert!(!weir.stderr().contains("worker died"), "{}", weir.stderr());
    }
}

#[test]
fn cancelled_scripts_are_counted_and_are_no_crashes() {
    let setup = setup(&php::own(1, ""), "on_client_left = \"cancel\"");
    let weir = setup.admin().start();
    for number in 1..=5 {
        drop(ask(&weir, &number.to_string(), ""));
        pid(&weir);
        let status = weir.status();
        let pool = &status["pools"][0];
        assert_eq!(pool["requests"]["cancelled"], number);
        assert_eq!(pool["requests"]["left_running"], number);
        assert_eq!(pool["workers"]["crashed"], 0);
    }
    assert!(!weir.stderr().contains("worker died"), "{}", weir.stderr());
    // There is no pause before the next worker.
    assert!(!weir.stderr().contains("workers die"), "{}", weir.stderr());
}

#[test]
fn a_cancelled_request_at_a_server_loses_its_connection() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        match request.param("QUERY_STRING") {
            "left" => assert!(answer.wait_for_close(), "the connection is closed"),
            _ => answer.page("next"),
        }
    });
    let weir = setup
        .pool(&responder.pool(1))
        .site("on_client_left = \"cancel\"")
        .start();
    let mut client = weir.client();
    client.send("GET /run.php?left HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it is at work", || responder.running() == 1);
    drop(client);
    expect_left(&weir, "/run.php?left");
    weir.get("/run.php?next").expect(200);
    wait_until("it has noticed", || responder.connections_now() == 0);
}

#[test]
fn a_script_that_answers_is_finished_and_one_that_does_not_is_cancelled() {
    for pool in [php::own(1, ""), cgi_pool(1)] {
        let weir = setup(&pool, "on_client_left = \"finish_if_answering\"").start();
        let worker = pid(&weir);
        let mut client = ask(&weir, "answers", "&answers=1&ignore=1");
        assert_eq!(client.head().expect("the answer begins").status, 200);
        drop(client);
        open(&weir, "answers");
        assert_eq!(weir.written("done-answers"), worker);
        assert_eq!(pid(&weir), worker);

        drop(ask(&weir, "silent", ""));
        assert_ne!(pid(&weir), worker);
        open(&weir, "silent");
        pid(&weir);
        assert!(!is_done(&weir, "silent"));
    }
}

#[test]
fn a_route_says_otherwise_than_its_site() {
    let weir = setup(&php::own(1, ""), "on_client_left = \"cancel\"")
        .more("[[site.main.route]]\npath = \"/wait.php\"\non_client_left = \"finish\"\n")
        .start();
    let worker = pid(&weir);
    drop(ask(&weir, "a", ""));
    expect_left(&weir, &target(&weir, "a", ""));
    open(&weir, "a");
    assert_eq!(weir.written("done-a"), worker);
    assert_eq!(pid(&weir), worker);
}

#[test]
fn a_stream_that_never_ends_is_cancelled_with_its_client() {
    let weir = setup(&php::own(1, ""), "on_client_left = \"cancel\"").start();
    let worker = pid(&weir);
    let mut client = weir.client();
    client.send(format!(
        "GET /endless.php?came={} HTTP/1.1\r\nHost: a\r\n\r\n",
        weir.scratch("came").display()
    ));
    assert_eq!(client.head().expect("the answer begins").status, 200);
    assert_eq!(weir.written("came"), worker);
    drop(client);
    assert_ne!(pid(&weir), worker);
}

#[test]
fn who_closes_the_sending_side_has_left() {
    let weir = setup(&php::own(1, ""), "").start();
    let worker = pid(&weir);
    let client = ask(&weir, "a", "");
    client.stream().shutdown(Shutdown::Write).expect("shutdown");
    expect_left(&weir, &target(&weir, "a", ""));
    open(&weir, "a");
    assert_eq!(weir.written("done-a"), worker);
}

#[test]
fn a_client_that_leaves_while_its_request_waits_again_is_not_run_again() {
    let setup = Setup::new().file("run.php", "");
    let (responder, gate) = Responder::gated(setup.folder(), |request, answer| {
        // The first worker closes the connection instead of answering.
        if request.param("QUERY_STRING") != "dies" {
            answer.page("ran");
        }
    });
    let weir = setup
        .server("threads = 1")
        .pool(&format!("{}retries = 1\n", responder.pool(1)))
        .start();
    let mut dies = weir.client();
    dies.send("GET /run.php?dies HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it is at work", || responder.running() == 1);
    let mut next = weir.client();
    next.send("GET /run.php?next HTTP/1.1\r\nHost: a\r\n\r\n");
    weir.get("/none.txt").expect(404);
    gate.admit(1);
    // The other request has its worker now, and waits for the next.
    weir.wait_for_error(&["given to another worker"]);
    drop(dies);
    let line = weir.logged("/run.php?dies");
    assert_eq!(
        (&line["status"], &line["retries"]),
        (&499.into(), &1.into())
    );
    gate.open();
    next.response().expect(200);
    weir.get("/run.php?last").expect(200);
    assert_eq!(
        responder.uris(),
        ["/run.php?dies", "/run.php?next", "/run.php?last"]
    );
}

#[test]
fn what_is_sent_behind_a_request_hides_no_end() {
    for ends in [Shutdown::Write, Shutdown::Both] {
        let weir = setup(&php::own(1, ""), "on_client_left = \"cancel\"").start();
        let worker = pid(&weir);
        let mut client = weir.client();
        let (first, second) = (target(&weir, "a", ""), target(&weir, "b", ""));
        client.send(format!(
            "GET {first} HTTP/1.1\r\nHost: a\r\n\r\nGET {second} HTTP/1.1\r\nHost: a\r\n\r\nGET /"
        ));
        weir.written("came-a");
        // A part of the request comes in another piece.
        client.send("pid.php HTTP/1.1\r\n");
        client.stream().shutdown(ends).expect("shutdown");
        expect_left(&weir, &first);
        assert_ne!(pid(&weir), worker);
        assert!(!weir.scratch("came-b").exists(), "the next never starts");
        drop(client);
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_while_the_client_stays() {
    let weir = setup(&php::own(1, ""), "").start();
    let mut client = weir.client();
    let first = target(&weir, "a", "");
    let many: String = (0..400)
        .map(|number| format!("GET /pid.php?{number} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .collect();
    client.send(format!("GET {first} HTTP/1.1\r\nHost: a\r\n\r\n{many}"));
    let worker = weir.written("came-a");
    open(&weir, "a");
    assert_eq!(client.response().expect(200).text(), "done");
    for _ in 0..400 {
        assert_eq!(client.response().expect(200).text(), worker);
    }
}

#[test]
fn a_web_server_in_front_cancels_too() {
    let behind = Behind::start(scripts(), &php::own(1, ""), "on_client_left = \"cancel\"");
    let weir = &behind.weir;
    for aborts in [true, false] {
        let worker = pid(weir);
        let name = format!("aborts-{aborts}");
        let target = target(weir, &name, "");
        let mut front = behind.front();
        front.send(request(1, true, &behind.params(&target), b""));
        weir.written(&format!("came-{name}"));
        if aborts {
            front.send(record(ABORT_REQUEST, 1, b""));
            let answered = front.answer(1);
            assert_eq!((answered.ended, answered.stdout.len()), (Some(0), 0));
        } else {
            drop(front);
        }
        expect_left(weir, &target);
        assert_ne!(pid(weir), worker);
        open(weir, &name);
        pid(weir);
        assert!(!is_done(weir, &name));
    }
}

#[test]
fn clients_that_ask_and_leave_cost_no_more_workers_than_may_be_started() {
    const RATE: u64 = 8;
    let weir = setup(
        &php::own(1, &format!("max_spawn_rate = {RATE}\n")),
        "on_client_left = \"cancel\"",
    )
    .file("slow.php", "<?php usleep(20000); echo getmypid();")
    .start();
    pid(&weir);
    let began = Instant::now();
    for number in 0..300 {
        let mut client = weir.client();
        client.send(format!(
            "GET /slow.php?{number} HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        // Some leave while they wait, some while their script runs.
        if number % 3 == 0 {
            client.quiet_for(Duration::from_millis(5));
        }
        drop(client);
        if number % 50 == 0 {
            pid(&weir);
        }
    }
    pid(&weir);
    let seconds = began.elapsed().as_secs() + 1;
    let replaced = weir.stderr().matches("worker ended: SIGKILL").count() as u64;
    let most = RATE / 2 * (seconds + 1);
    assert!(replaced <= most, "{replaced} of {most} in {seconds} s");
    assert!(replaced > 0, "some were cancelled");
    assert!(!weir.stderr().contains("worker died"), "{}", weir.stderr());
}
