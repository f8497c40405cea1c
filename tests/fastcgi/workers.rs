//! Workers that die, answer nonsense, or do not answer: the client gets its status, the log the cause, and the
//! next request works.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use weir_test::fcgi::{Answer, END_REQUEST, Request, STDERR, STDOUT, record};
use weir_test::process::{resident, signal};
use weir_test::{Gate, Responder, Setup, Weir, php, wait_until};

/// A worker that does `wrong` for `/wrong.php` and answers all other requests correctly.
fn with(
    wrong: impl Fn(&Request, &mut Answer) + Send + Sync + 'static,
    pool: &str,
) -> (Weir, Responder) {
    let setup = Setup::new().file("wrong.php", "").file("right.php", "");
    let responder = Responder::unix(setup.folder(), move |request, answer| {
        if request.param("SCRIPT_NAME") == "/wrong.php" {
            wrong(request, answer);
        } else {
            answer.page("right");
        }
    });
    let pool = format!("{}{pool}", responder.pool(1));
    (setup.pool(&pool).start(), responder)
}

/// The next requests work, also on the connections that were used for the wrong answer.
#[track_caller]
fn expect_recovered(weir: &Weir) {
    for _ in 0..3 {
        assert_eq!(weir.get("/right.php").expect(200).text(), "right");
    }
}

/// The wrong answer gives a 502 with this reason, also in the log, and the next request works.
#[track_caller]
fn expect_502(wrong: impl Fn(&Request, &mut Answer) + Send + Sync + 'static, reason: &str) {
    let (weir, _responder) = with(wrong, "");
    expect_recovered(&weir);
    weir.request("POST", "/wrong.php", &[], b"body")
        .expect(502)
        .expect_reason(reason);
    let line = weir.logged("/wrong.php");
    assert_eq!(line["status"], 502);
    assert!(
        line["reason"].as_str().expect("a reason").contains(reason),
        "{line}"
    );
    weir.wait_for_error(&["app", reason]);
    expect_recovered(&weir);
}

#[test]
fn a_worker_that_dies_before_its_answer_is_502() {
    expect_502(|_, _| {}, "worker_died");
}

#[test]
fn a_worker_that_dies_within_its_header_is_502() {
    expect_502(
        |_, answer| answer.stdout("Content-Type: text/plain\r\nX-Half: "),
        "worker_died",
    );
}

#[test]
fn a_worker_that_dies_within_a_record_is_502() {
    expect_502(
        |_, answer| answer.raw(&record(STDOUT, 1, b"Content-Type: text/plain\r\n\r\n")[..20]),
        "worker_died",
    );
}

#[test]
fn a_worker_that_dies_within_the_header_of_a_record_is_502() {
    expect_502(|_, answer| answer.raw([1, STDOUT, 0]), "worker_died");
}

#[test]
fn a_worker_that_dies_within_its_body_cuts_the_connection() {
    let (weir, _responder) = with(
        |_, answer| {
            answer.stdout("Content-Type: text/plain\r\n\r\n");
            answer.stdout("x".repeat(300_000));
        },
        "",
    );
    let response = weir.get("/wrong.php");
    assert!(
        response.status == 502 || !response.whole,
        "passed off as whole: {:?}",
        response.headers
    );
    let line = weir.logged("/wrong.php");
    let reason = line["reason"].as_str().expect("a reason");
    assert!(matches!(reason, "worker_died" | "truncated"), "{line}");
    expect_recovered(&weir);
}

#[test]
fn a_worker_that_dies_after_its_body_and_before_its_end_cuts_the_connection() {
    let (weir, _responder) = with(
        |_, answer| {
            answer.stdout("Content-Type: text/plain\r\n\r\nall of it, but who knows");
            answer.record(STDOUT, b"");
        },
        "",
    );
    let response = weir.get("/wrong.php");
    assert!(
        response.status == 502 || !response.whole,
        "passed off as whole: {:?}",
        response.headers
    );
    expect_recovered(&weir);
}

#[test]
fn a_worker_that_dies_after_its_answer_harms_nobody() {
    let (weir, responder) = with(
        |_, answer| {
            answer.page("done");
            answer.hang_up();
        },
        "",
    );
    for _ in 0..5 {
        assert_eq!(weir.get("/wrong.php").expect(200).text(), "done");
        expect_recovered(&weir);
    }
    assert!(responder.connections() >= 5);
}

#[test]
fn a_body_longer_than_its_length_leaves_the_connection_in_order() {
    let (weir, _responder) = with(
        |_, answer| {
            answer.stdout(
                "Content-Type: text/plain\r\nContent-Length: 5\r\n\r\nshortHTTP/1.1 200 OK\r\n\r\n",
            );
            answer.end();
        },
        "",
    );
    let mut client = weir.client();
    client.send("GET /wrong.php HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response();
    if response.status == 200 {
        assert_eq!(response.text(), "short");
    } else {
        assert_eq!(response.status, 502);
    }
    // weir must not take the rest as a second answer: the next answer is the right one, or the connection is closed.
    if client.try_send("GET /right.php HTTP/1.1\r\nHost: a\r\n\r\n")
        && let Some(head) = client.head()
    {
        assert!(
            head.headers.iter().any(|(name, _)| name == "content-type"),
            "{head:?}"
        );
    }
    expect_recovered(&weir);
}

#[test]
fn garbage_is_502() {
    expect_502(
        |_, answer| answer.raw("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        "bad_response",
    );
}

#[test]
fn a_record_of_another_version_is_502() {
    expect_502(
        |_, answer| answer.raw([2, STDOUT, 0, 1, 0, 0, 0, 0]),
        "bad_response",
    );
}

#[test]
fn a_record_of_an_unknown_type_is_502_or_left_out() {
    let (weir, _responder) = with(
        |_, answer| {
            answer.record(99, b"what is this");
            answer.page("right all the same");
        },
        "",
    );
    let response = weir.get("/wrong.php");
    assert!(matches!(response.status, 200 | 502), "{response:?}");
    expect_recovered(&weir);
}

#[test]
fn records_of_another_request_are_502() {
    expect_502(
        |request, answer| {
            answer.raw(record(
                STDOUT,
                request.id + 1,
                b"Content-Type: text/plain\r\n\r\nnot yours",
            ));
            answer.raw(record(END_REQUEST, request.id + 1, &[0; 8]));
            answer.wait_for_close();
        },
        "bad_response",
    );
}

#[test]
fn an_answer_without_a_header_is_502() {
    expect_502(
        |_, answer| {
            answer.stdout("just text, no header");
            answer.end();
        },
        "bad_response",
    );
}

#[test]
fn an_empty_answer_is_502() {
    expect_502(|_, answer| answer.end(), "bad_response");
}

#[test]
fn a_status_out_of_range_is_502() {
    for status in [
        "Status: 99 Low",
        "Status: 1000 High",
        "Status: OK",
        "Status: 20",
        "Status: -1",
    ] {
        let (weir, _responder) = with(
            move |_, answer| {
                answer.stdout(format!("{status}\r\nContent-Type: text/plain\r\n\r\nbody"));
                answer.end();
            },
            "",
        );
        let response = weir.get("/wrong.php");
        assert_eq!(response.status, 502, "{status}");
        expect_recovered(&weir);
    }
}

#[test]
fn an_endless_header_is_502() {
    expect_502(
        |_, answer| {
            for number in 0.. {
                answer.stdout(format!("X-Endless-{number}: {}\r\n", "x".repeat(1000)));
                if answer.gone() {
                    return;
                }
            }
        },
        "bad_response",
    );
}

#[test]
fn a_large_header_is_passed() {
    let (weir, _responder) = with(
        |_, answer| {
            answer.stdout(format!(
                "Content-Type: text/plain\r\nX-Large: {}\r\n\r\nbody",
                "x".repeat(60_000)
            ));
            answer.end();
        },
        "",
    );
    let response = weir.get("/wrong.php").expect(200);
    assert_eq!(response.header("x-large").map(str::len), Some(60_000));
    assert_eq!(response.text(), "body");
}

#[test]
fn a_larger_header_is_passed_where_that_is_said() {
    let (weir, _responder) = with(
        |_, answer| {
            answer.stdout(format!(
                "Content-Type: text/plain\r\nX-Large: {}\r\n\r\nbody",
                "x".repeat(200_000)
            ));
            answer.end();
        },
        "max_response_head = \"256K\"\n",
    );
    assert_eq!(
        weir.get("/wrong.php")
            .expect(200)
            .header("x-large")
            .map(str::len),
        Some(200_000)
    );
}

#[test]
fn output_after_the_end_is_of_nobody() {
    let (weir, _responder) = with(
        |request, answer| {
            answer.page("mine");
            answer.raw(record(
                STDOUT,
                request.id,
                b"Content-Type: text/plain\r\n\r\nof nobody",
            ));
            answer.raw(record(END_REQUEST, request.id, &[0; 8]));
        },
        "",
    );
    for _ in 0..10 {
        assert_eq!(weir.get("/wrong.php").expect(200).text(), "mine");
        expect_recovered(&weir);
    }
}

#[test]
fn output_of_the_last_request_never_reaches_the_next_client() {
    // Output that comes late, while the connection waits for its next request.
    let (gate, late) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let (answered, sent) = (gate.clone(), late.clone());
    let (weir, _responder) = with(
        move |request, answer| {
            answer.page("mine");
            answered.pass();
            answer.raw(record(
                STDOUT,
                request.id,
                b"Content-Type: text/plain\r\n\r\nof nobody",
            ));
            answer.raw(record(END_REQUEST, request.id, &[0; 8]));
            sent.fetch_add(1, Ordering::SeqCst);
        },
        "keep_conn = true\n",
    );
    for times in 1..=5 {
        assert_eq!(weir.get("/wrong.php").expect(200).text(), "mine");
        gate.admit(1);
        wait_until("the late output was sent", || {
            late.load(Ordering::SeqCst) == times
        });
        // The request is idempotent and has no answer yet, so weir may run it again. It must not get the output that
        // belongs to no request.
        let response = weir.get("/right.php");
        assert!(
            !response.text().contains("of nobody"),
            "{}",
            response.text()
        );
        expect_recovered(&weir);
    }
}

#[test]
fn an_end_that_says_overloaded_is_no_success() {
    // FastCGI 1.0 §5.5: protocolStatus FCGI_OVERLOADED. The worker ran nothing.
    let (weir, _responder) = with(
        |_, answer| {
            answer.record(END_REQUEST, &[0, 0, 0, 0, 2, 0, 0, 0]);
            answer.hang_up();
        },
        "",
    );
    let response = weir.request("POST", "/wrong.php", &[], b"");
    assert!(matches!(response.status, 502 | 503), "{response:?}");
    expect_recovered(&weir);
}

#[test]
fn stderr_goes_to_the_error_log_and_breaks_nothing() {
    let (weir, _responder) = with(
        |_, answer| {
            answer.stderr("before the header");
            answer.stdout("Content-Type: text/plain\r\nX-A");
            answer.stderr("within the header\n");
            answer.stdout(": b\r\n\r\nbo");
            answer.stderr("within the body\nin two lines\n");
            answer.stdout("dy");
            answer.record(STDERR, b"");
            answer.end();
        },
        "",
    );
    let response = weir.get("/wrong.php").expect(200);
    assert_eq!(
        (response.text().as_str(), response.header("x-a")),
        ("body", Some("b"))
    );
    for said in [
        "before the header",
        "within the header",
        "within the body",
        "in two lines",
    ] {
        weir.wait_for_error(&["app", said]);
    }
    expect_recovered(&weir);
}

#[test]
fn stderr_cannot_write_lines_of_its_own() {
    let (weir, _responder) = with(
        |_, answer| {
            answer.stderr("first\x1b[31m red\n\u{0}2024-01-01 forged line\n");
            answer.page("ok");
        },
        "",
    );
    weir.get("/wrong.php").expect(200);
    let line = weir.wait_for_error(&["forged line"]);
    assert!(!line.starts_with("2024-01-01"), "{line}");
    assert!(!weir.stderr().contains('\x1b') && !weir.stderr().contains('\0'));
}

#[test]
fn endless_stderr_takes_no_memory() {
    let (weir, _responder) = with(
        |_, answer| {
            for _ in 0..1000 {
                answer.stderr("e".repeat(60_000));
            }
            answer.page("ok");
        },
        "",
    );
    weir.get("/wrong.php").expect(200);
    let taken = resident(weir.gateway().pid);
    assert!(taken < 40 << 20, "the gateway holds {} MB", taken >> 20);
    expect_recovered(&weir);
}

#[test]
fn a_script_past_its_limit_is_504_and_its_worker_given_up() {
    let (weir, responder) = with(
        |_, answer| {
            answer.wait_for_close();
        },
        "request_terminate_timeout = \"2s\"\n",
    );
    let began = Instant::now();
    weir.get("/wrong.php")
        .expect(504)
        .expect_reason("terminated");
    assert!(
        began.elapsed() >= Duration::from_millis(1_900),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(weir.logged("/wrong.php")["reason"], "terminated");
    wait_until("the worker is let go", || responder.running() == 0);
    expect_recovered(&weir);
}

#[test]
fn a_worker_that_falls_silent_is_504() {
    let (weir, _responder) = with(
        |_, answer| {
            answer.stdout("Content-Type: text/plain\r\n");
            answer.wait_for_close();
        },
        "read_timeout = \"2s\"\n",
    );
    weir.get("/wrong.php").expect(504);
    expect_recovered(&weir);
}

#[test]
fn a_worker_that_trickles_is_not_silent() {
    let (weir, _responder) = with(
        |_, answer| {
            answer.stdout("Content-Type: text/plain\r\n\r\n");
            // The whole answer takes longer than the limit, but no pause does.
            for _ in 0..40 {
                std::thread::sleep(Duration::from_millis(80));
                answer.stdout("x");
            }
            answer.end();
        },
        "read_timeout = \"3s\"\n",
    );
    assert_eq!(weir.get("/wrong.php").expect(200).text(), "x".repeat(40));
}

#[test]
fn a_kept_connection_that_was_closed_is_not_the_clients_trouble() {
    // The worker closes between two requests, as PHP-FPM does after pm.max_requests.
    let setup = Setup::new().file("run.php", "");
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let responder = Responder::unix(setup.folder(), move |_, answer| {
        counted.fetch_add(1, Ordering::SeqCst);
        answer.page("ok");
        answer.hang_up();
    });
    let pool = responder.pool(2);
    let weir = setup.pool(&pool).start();
    for _ in 0..50 {
        // This also holds for a POST: the connection was closed before weir sent it, so no worker can have seen it.
        weir.request("POST", "/run.php", &[], b"x").expect(200);
        wait_until("the worker has hung up", || {
            responder.connections_now() == 0
        });
    }
    assert_eq!(runs.load(Ordering::SeqCst), 50);
}

#[test]
fn a_post_is_not_sent_into_a_connection_that_is_being_closed() {
    // Like PHP-FPM after pm.max_requests: it answers, then closes the connection although it was to be kept. It reads
    // what arrives meanwhile.
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| {
        answer.page("ok");
        // The pause is about as long as the client needs to send its next request. So some requests come before the
        // end, some after it.
        std::thread::sleep(Duration::from_millis(2));
        answer.hang_up();
    });
    let pool = format!("{}keep_conn = true\n", responder.pool(1));
    let weir = setup.pool(&pool).start();
    let mut client = weir.client();
    for _ in 0..100 {
        client.send("POST /run.php HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
        client.response().expect(200);
    }
    assert_eq!(responder.uris().len(), 100);
}

#[test]
fn a_php_that_ends_after_so_many_requests_is_not_the_clients_trouble() {
    let setup = Setup::new().file("pid.php", "<?php echo getmypid();");
    let pool = format!(
        "{}env = {{ PHP_FCGI_MAX_REQUESTS = \"7\" }}\n",
        php::cgi_pool(1)
    );
    let weir = setup.pool(&pool).start();
    // It depends on timing whether weir sees the close before it writes the next request. weir then gives a GET to the
    // next worker.
    let mut pids: Vec<String> = (0..60)
        .map(|_| weir.get("/pid.php").expect(200).text())
        .collect();
    pids.dedup();
    assert!(pids.len() >= 5, "{pids:?}");
}

#[test]
fn a_post_whose_worker_died_is_never_run_again() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, _| {});
    let pool = responder.pool(2);
    let weir = setup.pool(&pool).start();
    weir.request("POST", "/run.php", &[], b"x").expect(502);
    assert_eq!(responder.uris().len(), 1);
}

#[test]
fn retries_have_an_end() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, _| {});
    let pool = responder.pool(2);
    let weir = setup.pool(&pool).start();
    weir.get("/run.php")
        .expect(502)
        .expect_reason("worker_died");
    assert_eq!(responder.uris().len(), 4, "three other workers by default");
}

#[test]
fn retries_are_as_many_as_the_pool_says() {
    for retries in [0, 3] {
        let setup = Setup::new().file("run.php", "");
        let responder = Responder::unix(setup.folder(), |_, _| {});
        let pool = format!("{}retries = {retries}\n", responder.pool(2));
        let weir = setup.pool(&pool).start();
        weir.get("/run.php").expect(502);
        assert_eq!(responder.uris().len(), 1 + retries);
        assert_eq!(weir.logged("/run.php")["retries"], retries);
    }
}

#[test]
fn a_request_that_kills_its_worker_kills_no_second_one() {
    let setup = Setup::new()
        .file("die.php", "<?php posix_kill(getmypid(), 9); sleep(10);")
        .file("fine.php", "fine");
    let pool = format!("{}retries = 3\n", php::cgi_pool(4));
    let weir = setup.pool(&pool).start();
    let pids = || -> Vec<u32> { weir.workers().iter().map(|worker| worker.pid).collect() };
    wait_until("four workers", || pids().len() == 4);
    let before = pids();
    weir.get("/die.php")
        .expect(502)
        .expect_reason("worker_died");
    let left = || before.iter().filter(|pid| pids().contains(pid)).count();
    assert_eq!(weir.logged("/die.php")["retries"], 0);
    wait_until("the one that died was replaced", || {
        pids().len() == 4 && left() < 4
    });
    weir.get("/fine.php").expect(200);
    assert_eq!(left(), 3, "{before:?} {:?}", pids());
}

#[test]
fn a_command_that_is_killed_is_replaced_and_its_signal_logged() {
    let setup = Setup::new()
        .file("die.php", "<?php posix_kill(getmypid(), 9); sleep(10);")
        .file("pid.php", "<?php echo getmypid();");
    let weir = setup.pool(&php::cgi_pool(2)).start();
    let before = weir.get("/pid.php").expect(200).text();
    assert!(
        weir.workers()
            .iter()
            .any(|worker| worker.pid.to_string() == before)
    );
    weir.request("POST", "/die.php", &[], b"")
        .expect(502)
        .expect_reason("worker_died");
    weir.wait_for_error(&["worker_died", "SIGKILL", "app"]);
    for _ in 0..5 {
        weir.get("/pid.php").expect(200);
    }
    wait_until("two workers are there again", || weir.workers().len() == 2);
}

#[test]
fn a_command_that_is_idle_when_killed_is_replaced() {
    let setup = Setup::new().file("pid.php", "<?php echo getmypid();");
    let weir = setup.pool(&php::cgi_pool(1)).start();
    for _ in 0..3 {
        let pid: u32 = weir
            .get("/pid.php")
            .expect(200)
            .text()
            .parse()
            .expect("a pid");
        signal(pid, Signal::KILL);
        wait_until("another worker answers", || {
            let response = weir.get("/pid.php");
            response.status == 200 && response.text() != pid.to_string()
        });
    }
}

#[test]
fn a_command_past_its_limit_is_killed_and_replaced() {
    let setup = Setup::new()
        .file(
            "slow.php",
            "<?php set_time_limit(0); while (true) { usleep(1000); }",
        )
        .file("pid.php", "<?php echo getmypid();");
    let pool = format!("{}request_terminate_timeout = \"2s\"\n", php::cgi_pool(1));
    let weir = setup.pool(&pool).start();
    let pid = weir.get("/pid.php").expect(200).text();
    weir.get("/slow.php")
        .expect(504)
        .expect_reason("terminated");
    let next = weir.get("/pid.php").expect(200).text();
    assert_ne!(pid, next, "the worker still runs the script");
}

#[test]
fn a_command_that_cannot_stay_up_is_not_started_in_a_loop() {
    let setup = Setup::new().file("run.php", "").file("text.txt", "a text");
    let count = setup.folder().join("starts");
    let pool = format!(
        "runtime = \"command\"\ncommand = [\"/bin/sh\", \"-c\", \"echo x >> {}; exit 3\"]\nmax_children = 1\n{}",
        count.display(),
        php::identity()
    );
    std::fs::write(&count, "").expect("write");
    weir_test::weir::mode(&count, 0o666);
    let weir = setup.pool(&pool).start();
    let response = weir.get("/run.php");
    assert!(matches!(response.status, 502 | 503), "{response:?}");
    weir.wait_for_error(&["3"]);
    // The number of starts in this time is what counts.
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        weir.get("/text.txt").expect(200);
        std::thread::sleep(Duration::from_millis(50));
    }
    let starts = std::fs::read_to_string(&count)
        .expect("starts")
        .lines()
        .count();
    assert!((1..40).contains(&starts), "{starts} starts in two seconds");
    assert!(
        weir.get("/run.php")
            .expect(503)
            .header("retry-after")
            .is_some()
    );
}

#[test]
fn a_gateway_that_dies_is_replaced_and_the_sockets_stay() {
    let setup = Setup::new()
        .file("text.txt", "a text")
        .file("pid.php", "<?php echo getmypid();");
    let weir = setup.pool(&php::cgi_pool(1)).start();
    weir.get("/text.txt").expect(200);
    for _ in 0..2 {
        let gateway = weir.gateway();
        signal(gateway.pid, Signal::KILL);
        // No connection is refused meanwhile: connections wait in the kernel's queue.
        let mut client = weir.client();
        client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        wait_until("the old gateway is gone", || !gateway.runs());
        let mut client = weir.client();
        client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.response().expect(200);
        weir.get("/pid.php").expect(200);
    }
    weir.wait_for_error(&["gateway"]);
}
