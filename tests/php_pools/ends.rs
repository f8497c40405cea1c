//! Where a request ends: scripts that answer early, clients that leave.

use std::fs;
use std::time::{Duration, Instant};

use super::{fixed, pid, workers, written};
use weir_test::{Setup, wait_until, weir};

/// Answers, then waits for the file `gate`, and writes to `done` how that ended.
const EARLY: &str = "<?php
    register_shutdown_function(fn() => file_put_contents($_GET['done'], getmypid() . ' ' . connection_status()));
    echo 'early';
    fastcgi_finish_request();
    echo 'to nobody';
    while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }
";

fn early(workers: usize, lines: &str) -> Setup {
    fixed(workers, lines).file("early.php", EARLY)
}

fn query(weir: &weir_test::Weir) -> String {
    format!(
        "gate={}&done={}",
        weir.scratch("gate").display(),
        weir.scratch("done").display()
    )
}

#[test]
fn one_worker_that_runs_on_after_its_answer_delays_only_who_needs_it() {
    let weir = early(1, "").start();
    let answer = weir.get(&format!("/early.php?{}", query(&weir)));
    assert_eq!(answer.expect(200).text(), "early");
    // The one worker is not free. The next request waits in weir's queue, not at the worker.
    let next = std::thread::spawn({
        let mut client = weir.client();
        move || {
            client.send(weir::request("GET", "/pid.php", &[], b""));
            client.response_to("GET").text()
        }
    });
    assert!(!weir.scratch("done").exists());
    // No figure shows that the request waits. But a worker that could take it would have answered in this time.
    std::thread::sleep(Duration::from_millis(200));
    assert!(!next.is_finished());
    fs::write(weir.scratch("gate"), "").expect("the gate");
    let worker = next.join().expect("a thread of ours");
    assert_eq!(weir.written("done"), format!("{worker} 0"));
}

/// What a script says after its answer, and words of it.
const LATE: &[(&str, &str, &str)] = &[
    ("log", "error_log('said late');", "said late"),
    (
        "warning",
        "echo $undefined;",
        "Undefined variable $undefined",
    ),
    (
        "notice",
        "trigger_error('mine', E_USER_NOTICE);",
        "PHP Notice:  mine",
    ),
    (
        "long",
        "error_log(str_repeat('0123456789', 700) . 'end');",
        "6789end",
    ),
    (
        "fatal",
        "require '/nowhere.php';",
        "Failed opening required '/nowhere.php'",
    ),
    (
        "throws",
        "throw new Exception('nobody catches');",
        "Uncaught Exception: nobody catches",
    ),
    (
        "shutdown",
        "register_shutdown_function(fn() => error_log('in shutdown'));",
        "in shutdown",
    ),
    (
        "stderr",
        "file_put_contents('php://stderr', \"to stderr\\n\");",
        "to stderr",
    ),
];

#[test]
fn what_a_script_says_after_its_answer_is_in_the_error_log() {
    let mut setup = fixed(1, "php_admin_flag = { log_errors = true }\n");
    for (name, code, _) in LATE {
        let text = format!("<?php echo 'early'; fastcgi_finish_request(); {code}");
        setup = setup.file(&format!("{name}.php"), &text);
    }
    let weir = setup.start();
    let worker = pid(&weir);
    for (name, _, words) in LATE {
        let url = format!("/{name}.php?a=b");
        assert_eq!(weir.get(&url).expect(200).text(), "early", "{name}");
        // PHP's stream with this name belongs to the process: nobody knows which request wrote its bytes.
        let place = match *name {
            "stderr" => format!("worker={worker}"),
            _ => format!("url=\"{url}\""),
        };
        weir.wait_for_error(&[words, "pool=app", &place]);
    }
    assert_eq!(pid(&weir), worker);
    // The answer is there at once, though the script runs on.
    let weir = early(1, "").file(
        "on.php",
        "<?php fastcgi_finish_request(); error_log('still running'); while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }",
    );
    let weir = weir.start();
    weir.get(&format!("/on.php?{}", query(&weir))).expect(200);
    weir.wait_for_error(&["still running", "url=\"/on.php?gate="]);
    fs::write(weir.scratch("gate"), "").expect("the gate");
    pid(&weir);
}

#[test]
fn another_worker_takes_the_next_request_while_one_runs_on() {
    let weir = early(2, "").start();
    super::wait_for_workers(&weir, 2);
    for _ in 0..3 {
        pid(&weir);
    }
    let answer = weir.get(&format!("/early.php?{}", query(&weir)));
    assert_eq!(answer.expect(200).text(), "early");
    let others: Vec<u32> = (0..5).map(|_| pid(&weir)).collect();
    assert!(!weir.scratch("done").exists());
    fs::write(weir.scratch("gate"), "").expect("the gate");
    let done = weir.written("done");
    let first: u32 = done
        .split(' ')
        .next()
        .and_then(|pid| pid.parse().ok())
        .unwrap();
    assert!(!others.contains(&first), "{first} {others:?}");
    // weir uses the worker again.
    let gated = super::Gated::start(&weir, "both", 2);
    wait_until("both have one", || super::count(&weir, "came-both") == 2);
    assert_eq!(gated.open(), [200, 200]);
}

#[test]
fn silence_after_an_early_answer_is_nobodys_business() {
    let weir = early(
        1,
        "read_timeout = \"300ms\"\nrequest_terminate_timeout = \"400ms\"\n",
    )
    .start();
    weir.get(&format!("/early.php?{}", query(&weir)))
        .expect(200);
    // Longer than both limits.
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(!weir.scratch("done").exists());
    fs::write(weir.scratch("gate"), "").expect("the gate");
    weir.written("done");
    assert!(!weir.stderr().contains("terminate"), "{}", weir.stderr());
}

/// Prints nothing while it waits for the file `gate`, even if its client leaves.
const SILENT: &str = "<?php
    ignore_user_abort(true); set_time_limit(0);
    touch($_GET['came']);
    while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }
    echo 'for nobody';
    file_put_contents($_GET['done'], (string)getmypid());
";

#[test]
fn a_script_that_says_nothing_for_read_timeout_is_not_killed() {
    let own = fixed(1, "read_timeout = \"400ms\"\n");
    let cgi = Setup::new()
        .file("pid.php", "<?php echo getmypid();")
        .pool(&format!(
            "{}read_timeout = \"400ms\"\n",
            weir_test::php::cgi_pool(1)
        ));
    for setup in [own, cgi] {
        let weir = setup.file("silent.php", SILENT).start();
        let worker = pid(&weir).to_string();
        for (number, leaves) in [(1, false), (2, true)] {
            let file = |name: &str| weir.scratch(&format!("{name}{number}"));
            let path = format!(
                "/silent.php?gate={}&done={}&came={}",
                file("gate").display(),
                file("done").display(),
                file("came").display()
            );
            let mut client = weir.client();
            client.send(weir::request("GET", &path, &[], b""));
            wait_until("it runs", || file("came").exists());
            if leaves {
                drop(client);
            } else {
                client.response().expect(504).expect_reason("terminated");
                weir.wait_for_error(&["0.4 s", "read_timeout", "request_terminate_timeout"]);
            }
            // Twice as long as a script may be silent while a client waits.
            std::thread::sleep(Duration::from_millis(900));
            fs::write(file("gate"), "").expect("the gate");
            assert_eq!(written(&file("done")), worker);
            assert_eq!(pid(&weir).to_string(), worker, "it is used again");
        }
    }
}

#[test]
fn a_silent_script_is_ended_where_a_limit_of_its_own_or_the_route_says_so() {
    for (pool, site) in [
        ("request_terminate_timeout = \"1s\"\n", ""),
        ("", "timeout = \"1s\"\n"),
        ("", "on_client_left = \"cancel\"\n"),
    ] {
        let lines = format!("read_timeout = \"400ms\"\n{pool}");
        let weir = fixed(1, &lines)
            .site(site)
            .file("silent.php", SILENT)
            .start();
        let worker = pid(&weir);
        let path = format!(
            "/silent.php?gate=/none&done=/none&came={}",
            weir.scratch("came").display()
        );
        weir.get(&path).expect(504);
        assert_ne!(pid(&weir), worker, "{pool}{site}");
    }
}

#[test]
fn a_script_that_runs_on_is_ended_where_the_limit_tracks_it() {
    let weir = early(
        1,
        "request_terminate_timeout = \"400ms\"\nrequest_terminate_timeout_track_finished = true\n",
    )
    .start();
    let before = pid(&weir);
    let began = Instant::now();
    let answer = weir.get(&format!("/early.php?{}", query(&weir)));
    assert_eq!(answer.expect(200).text(), "early");
    weir.wait_for_error(&["/early.php", "request_terminate_timeout"]);
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert_ne!(pid(&weir), before);
    assert!(!weir.scratch("done").exists());
}

#[test]
fn a_worker_that_dies_while_it_runs_on_is_replaced() {
    let weir = early(1, "").start();
    let before = pid(&weir);
    weir.get(&format!("/early.php?{}", query(&weir)))
        .expect(200);
    weir_test::process::signal(before, rustix::process::Signal::KILL);
    assert_ne!(pid(&weir), before);
}

/// Prints until it notices that nobody reads, or until `gate` exists.
const ENDLESS: &str = "<?php
    ignore_user_abort((bool)$_GET['ignore']);
    register_shutdown_function(fn() => file_put_contents($_GET['done'], getmypid() . ' ' . connection_aborted()));
    header('Content-Type: ' . $_GET['type']);
    header('X-Accel-Buffering: ' . $_GET['buffering']);
    for ($i = 0; !file_exists($_GET['gate']); $i++) {
        echo str_repeat(\"line $i\\n\", 100);
        flush();
        usleep(5000);
        clearstatcache();
    }
";

#[test]
fn a_script_learns_that_its_client_has_left() {
    for (kind, buffering) in [("text/plain", "yes"), ("text/event-stream", "no")] {
        for ignore in [0, 1] {
            let weir = fixed(1, "").file("endless.php", ENDLESS).start();
            let worker = pid(&weir);
            let mut client = weir.client();
            let path = format!(
                "/endless.php?ignore={ignore}&type={kind}&buffering={buffering}&{}",
                query(&weir)
            );
            client.send(weir::request("GET", &path, &[], b""));
            let head = client.head().expect("the answer begins");
            assert_eq!(head.status, 200);
            client.line().expect("a first line");
            drop(client);
            let done = weir.scratch("done");
            if ignore == 1 {
                // The script has time for sixty lines. Each of them could end the script.
                std::thread::sleep(Duration::from_millis(300));
                assert!(!done.exists(), "{kind}: it goes on");
                fs::write(weir.scratch("gate"), "").expect("the gate");
            }
            assert_eq!(written(&done), format!("{worker} 1"), "{kind} {ignore}");
            assert_eq!(pid(&weir), worker, "{kind}: it is the same worker");
        }
    }
}

#[test]
fn a_large_answer_ends_like_a_small_one() {
    let weir = fixed(1, "")
        .file(
            "large.php",
            "<?php for ($i = 0; $i < (int)$_GET['kb']; $i++) echo str_repeat('x', 1024); \
             if (isset($_GET['flush'])) flush();",
        )
        .start();
    let worker = pid(&weir);
    let mut client = weir.client();
    for kb in [0, 1, 63, 64, 65, 127, 128, 129, 1_000, 20_000] {
        for flush in ["", "&flush"] {
            let path = format!("/large.php?kb={kb}{flush}");
            client.send(weir::request(
                "GET",
                &path,
                &[("Connection", "keep-alive")],
                b"",
            ));
            let answer = client.response_to("GET").expect(200);
            assert_eq!(answer.body.len(), kb * 1024, "{path}");
        }
    }
    assert_eq!(pid(&weir), worker);
    assert_eq!(workers(&weir).len(), 1);
}
