//! Work that still runs when a gateway dies or weir stops: others do not wait for it, and it does not end too early.

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::support::*;

/// Runs for `seconds`, whether its client stays or leaves.
fn long(seconds: u32) -> String {
    format!(
        "<?php ignore_user_abort(true); file_put_contents(__DIR__ . '/started', getmypid()); \
         for ($end = microtime(true) + {seconds}; microtime(true) < $end;) usleep(50000); \
         touch(__DIR__ . '/finished');"
    )
}

/// Long enough that two requests at once reach two workers.
const HELD: &str = "<?php usleep(200000); echo 'pid=', getmypid(), ' ';";

#[test]
fn a_worker_with_a_script_of_a_dead_gateway_is_given_no_request_until_it_is_free() {
    let site = cgi_site()
        .file("long.php", long(4))
        .file("held.php", HELD)
        .pool("env = { PHP_FCGI_MAX_REQUESTS = \"0\" }");
    let weir = site.start();
    let busy = start_script(&weir, &site, "/long.php");
    signal(weir.gateway().pid, Signal::KILL);
    weir.log_line("accepts connections again");
    for _ in 0..2 {
        assert!(pids_of_two(&weir).iter().all(|pid| *pid != busy));
    }
    assert!(!site.path("root/finished").exists(), "it ran meanwhile");
    wait_until("the worker that was busy has a request again", || {
        pids_of_two(&weir).contains(&busy)
    });
    assert!(site.path("root/finished").exists());
}

#[test]
fn a_worker_that_never_comes_back_from_a_dead_gateways_script_is_replaced() {
    let script = "<?php ignore_user_abort(true); file_put_contents(__DIR__ . '/started', getmypid()); while (true) sleep(1);";
    let site = cgi_site()
        .file("endless.php", script)
        .pool("max_children = 1\nrequest_terminate_timeout = \"4s\"");
    let weir = site.start();
    let stuck = start_script(&weir, &site, "/endless.php");
    signal(weir.gateway().pid, Signal::KILL);
    let line = weir.log_line("has accepted no connection for ");
    assert!(line.contains(&format!("worker={stuck}")), "{line}");
    assert_ne!(pid(&weir), stuck);
}

#[test]
fn a_php_that_ends_after_so_many_requests_loses_none_when_the_gateway_was_replaced() {
    let pool = "max_children = 1\nenv = { PHP_FCGI_MAX_REQUESTS = \"5\" }";
    let weir = cgi_site().pool(pool).start();
    let first = pid(&weir);
    for _ in 0..2 {
        weir.get("/pid.php");
    }
    signal(weir.gateway().pid, Signal::KILL);
    weir.log_line("accepts connections again");
    // A lost POST is not sent again.
    let pids: Vec<u32> = (0..12)
        .map(|_| pid_in(&weir.request("POST", "/pid.php", &[], b"x")))
        .collect();
    assert!(
        pids[1..].iter().all(|pid| *pid != first),
        "{first} {pids:?}"
    );
}

#[test]
fn a_graceful_stop_waits_for_a_script_whose_client_has_left() {
    // Longer than the time that workers get to end when there is nothing left to do.
    let site = cgi_site().file("long.php", long(7));
    let mut weir = site.start();
    start_script(&weir, &site, "/long.php");
    weir.signal(Signal::TERM);
    assert!(weir.wait_for_end().success());
    assert!(site.path("root/finished").exists());
}

#[test]
fn a_graceful_stop_waits_for_half_a_head_no_longer_than_a_second() {
    let site = cgi_site();
    let mut weir = site.start();
    let mut half = weir.client();
    half.send("GET /a.txt HTTP/1.1\r\nHo");
    // weir accepts this after the first request, so it has received the first one too.
    weir.get("/a.txt");
    let start = Instant::now();
    weir.signal(Signal::TERM);
    half.response().expect(408);
    drop(half);
    assert!(weir.wait_for_end().success());
    let took = start.elapsed();
    // It would last for `shutdown_timeout`, which is 30 s.
    assert!(took < Duration::from_secs(25), "{took:?}");
}

/// Starts a script whose client leaves at once. Returns the process that runs it.
fn start_script(weir: &Weir, site: &Setup, path: &str) -> u32 {
    let mut client = weir.client();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    let mut pid = None;
    wait_until("the script runs", || {
        let written = fs::read_to_string(site.path("root/started"));
        pid = written.ok().and_then(|pid| pid.parse().ok());
        pid.is_some()
    });
    pid.unwrap()
}

/// The processes that answer two requests made at the same time.
fn pids_of_two(weir: &Weir) -> [u32; 2] {
    let address = weir.address();
    let ask = move || pid_in(&get(address, "/held.php"));
    [std::thread::spawn(ask), std::thread::spawn(ask)].map(|thread| thread.join().unwrap())
}
