//! Scripts that call their own site through weir, while no worker is left for the call.

use std::time::Duration;

use super::{fixed, wait_for_workers, workers};
use crate::support::{LIMIT, Setup, Weir, wait_until, weir};

/// Calls `$_GET['path']` of its own site over `$_GET['at']`, and prints what that says; `depth` calls one within the other.
const CALLS: &str = "<?php
    $depth = (int)($_GET['depth'] ?? 1);
    if (isset($_GET['came'])) {
        touch($_GET['came'] . '.' . getmypid());
        while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }
    }
    $at = $_GET['at'];
    $path = $depth > 1 ? '/calls.php?depth=' . ($depth - 1) . '&at=' . urlencode($at) : '/pid.php';
    $socket = stream_socket_client($at, $no, $text, 60);
    fwrite($socket, \"GET $path HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n\");
    stream_set_timeout($socket, 60);
    $answer = stream_get_contents($socket);
    echo strtok($answer, \"\\r\"), ' ', strpos($answer, 'self_call') ? 'self_call' : '';
";

fn site(workers: usize, lines: &str) -> Setup {
    let lines = format!("queue.timeout = \"50s\"\n{lines}");
    let setup = fixed(workers, &lines).file("calls.php", CALLS);
    let admin = format!("admin = \"unix:{}/admin.sock\"", setup.folder().display());
    setup.server(&admin)
}

/// So many callers at once, all of whom have a worker before the first calls; what their calls were answered.
fn call_at_once(weir: &Weir, at: &str, callers: usize, depth: usize) -> Vec<String> {
    let file = |name: &str| super::scratch(weir, name).display().to_string();
    let _ = std::fs::remove_file(file("gate"));
    let path = format!(
        "/calls.php?at={at}&depth={depth}&gate={}&came={}{depth}",
        file("gate"),
        file("came")
    );
    let thread = |_| {
        let (path, mut client) = (path.clone(), weir.client().patient(LIMIT * 2));
        std::thread::spawn(move || {
            client.send(weir::request("GET", &path, &[], b""));
            client.response().expect(200).text()
        })
    };
    let threads: Vec<_> = (0..callers).map(thread).collect();
    wait_until("all have a worker", || {
        super::count(weir, &format!("came{depth}.")) == callers
    });
    std::fs::write(file("gate"), "").expect("the gate");
    let answers = threads.into_iter();
    answers
        .map(|thread| thread.join().expect("an answer"))
        .collect()
}

#[test]
fn callers_of_their_own_site_that_hold_all_workers_are_served_by_one_beside_them() {
    let setup = site(4, "self_call_workers = 1\n").listen("");
    let socket = setup.folder().join("own.sock");
    let more = format!(
        "[listen.own]\naddress = \"unix:{}\"\nmode = \"0666\"\n",
        socket.display()
    );
    let weir = setup.more(&more).start();
    wait_for_workers(&weir, 4);
    for at in [
        format!("tcp://{}", weir.address()),
        format!("unix://{}", socket.display()),
    ] {
        // A call that waits for its time is 503.
        let answers = call_at_once(&weir, &at, 4, 1);
        assert!(
            answers
                .iter()
                .all(|answer| answer.starts_with("HTTP/1.1 200")),
            "{at}: {answers:?}"
        );
        for old in std::fs::read_dir(weir.folder().join("spool"))
            .expect("the spool")
            .flatten()
        {
            let _ = std::fs::remove_file(old.path());
        }
    }
    // The one beside them goes when it is not needed.
    wait_for_workers(&weir, 4);
}

#[test]
fn a_call_within_a_call_that_found_a_worker_at_once_is_served_too() {
    let weir = site(2, "self_call_workers = 1\n").start();
    wait_for_workers(&weir, 2);
    let at = format!("tcp://{}", weir.address());
    // The first call takes the second worker without waiting, and calls once more.
    let answers = call_at_once(&weir, &at, 1, 2);
    assert!(answers[0].starts_with("HTTP/1.1 200"), "{answers:?}");
}

#[test]
fn a_call_that_no_worker_can_ever_serve_is_refused_at_once_and_the_reason_told() {
    for (beyond, depth) in [(0, 1), (1, 3), (0, 3)] {
        let weir = site(2, &format!("self_call_workers = {beyond}\n")).start();
        wait_for_workers(&weir, 2);
        let began = std::time::Instant::now();
        let at = format!("tcp://{}", weir.address());
        call_at_once(&weir, &at, 2, depth);
        assert!(
            began.elapsed() < Duration::from_secs(45),
            "{beyond} {depth}"
        );
        weir.wait_for_error(&["self_call", "self_call_workers", "every worker"]);
        wait_for_workers(&weir, 2);
        assert_eq!(workers(&weir).len(), 2);
    }
}

#[test]
fn calls_of_workers_go_before_what_others_ask() {
    let weir = site(2, "").start();
    wait_for_workers(&weir, 2);
    let at = format!("tcp://{}", weir.address());
    // One caller, one worker that takes its time, and many who wait.
    let file = |name: &str| super::scratch(&weir, name).display().to_string();
    let long = super::Gated::start(&weir, "long", 1);
    wait_until("it runs", || super::count(&weir, "came-long") == 1);
    let caller = {
        let path = format!(
            "/calls.php?at={at}&gate={}&came={}",
            file("go"),
            file("caller")
        );
        let mut client = weir.client().patient(LIMIT);
        std::thread::spawn(move || {
            client.send(weir::request("GET", &path, &[], b""));
            client.response().expect(200).text()
        })
    };
    wait_until("it runs", || super::count(&weir, "caller.") == 1);
    let others = super::Gated::start(&weir, "others", 6);
    let waiting = || super::status(&weir)["queue"]["waiting"].as_u64();
    wait_until("the others wait", || waiting() == Some(6));
    std::fs::write(file("go"), "").expect("the gate");
    wait_until("the call waits", || waiting() == Some(7));
    // The others would hold both workers until their gate opens.
    assert_eq!(long.open(), [200]);
    let said = caller.join().expect("an answer");
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert_eq!(others.open(), [200; 6]);
}
