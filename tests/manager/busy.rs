//! Work that still runs when a gateway dies or weir stops: others do not wait for it, and it does not end too early.

use std::{
    fs,
    io::{Read, Write},
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
    let site = Site::new();
    fs::write(site.path("site/long.php"), long(4)).unwrap();
    fs::write(site.path("site/held.php"), HELD).unwrap();
    let text = site.text() + "[pool.php.env]\nPHP_FCGI_MAX_REQUESTS = \"0\"\n";
    let weir = Weir::start_with(&site, &text);
    let busy = start_script(&weir, &site, "/long.php");
    signal(weir.gateway(), Signal::KILL);
    weir.log_line("accepts connections again");
    for _ in 0..2 {
        assert!(pids_of_two(&weir).iter().all(|pid| *pid != busy));
    }
    assert!(!site.path("site/finished").exists(), "it ran meanwhile");
    wait_until("the worker that was busy has a request again", || {
        pids_of_two(&weir).contains(&busy)
    });
    assert!(site.path("site/finished").exists());
    weir.stop();
}

#[test]
fn a_worker_that_never_comes_back_from_a_dead_gateways_script_is_replaced() {
    let site = Site::new().workers(1);
    let pool = "[pool.php]\nrequest_terminate_timeout = \"4s\"";
    let weir = Weir::start_with(&site, &site.text().replace("[pool.php]", pool));
    fs::write(
        site.path("site/endless.php"),
        "<?php ignore_user_abort(true); file_put_contents(__DIR__ . '/started', getmypid()); while (true) sleep(1);",
    )
    .unwrap();
    let stuck = start_script(&weir, &site, "/endless.php");
    signal(weir.gateway(), Signal::KILL);
    let line = weir.log_line("has accepted no connection for ");
    assert!(line.contains(&format!("worker={stuck}")), "{line}");
    let answer = weir.get_until("/pid.php", |answer| answer.contains("pid="));
    assert_ne!(pid_in(&answer), stuck);
    weir.stop();
}

#[test]
fn a_php_that_ends_after_so_many_requests_loses_none_when_the_gateway_was_replaced() {
    let site = Site::new().workers(1);
    let text = site.text() + "[pool.php.env]\nPHP_FCGI_MAX_REQUESTS = \"5\"\n";
    let weir = Weir::start_with(&site, &text);
    let first = pid_in(&weir.get_until("/pid.php", |answer| answer.contains("pid=")));
    for _ in 0..2 {
        weir.get("/pid.php");
    }
    signal(weir.gateway(), Signal::KILL);
    weir.log_line("accepts connections again");
    // A lost POST is not sent again.
    let pids: Vec<u32> = (0..12)
        .map(|_| pid_in(&request(weir.port, "POST", "/pid.php", b"x")))
        .collect();
    assert!(
        pids[1..].iter().all(|pid| *pid != first),
        "{first} {pids:?}"
    );
    weir.stop();
}

#[test]
fn a_graceful_stop_waits_for_a_script_whose_client_has_left() {
    let site = Site::new();
    // Longer than the time that workers get to end when there is nothing left to do.
    fs::write(site.path("site/long.php"), long(7)).unwrap();
    let mut weir = Weir::start(&site);
    start_script(&weir, &site, "/long.php");
    signal(weir.process.id(), Signal::TERM);
    assert!(weir.wait().success());
    assert!(site.path("site/finished").exists());
}

#[test]
fn a_graceful_stop_waits_for_half_a_head_no_longer_than_a_second() {
    let site = Site::new();
    let mut weir = Weir::start(&site);
    let mut half = weir.connect();
    half.write_all(b"GET /a.txt HTTP/1.1\r\nHo").unwrap();
    // weir accepts this after the first request, so it has received the first one too.
    weir.get("/a.txt");
    let start = Instant::now();
    signal(weir.process.id(), Signal::TERM);
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    drop(half);
    assert!(weir.wait().success());
    let took = start.elapsed();
    // It would last for `shutdown_timeout`, which is 30 s.
    assert!(took < Duration::from_secs(25), "{took:?}");
}

/// Starts a script whose client leaves at once. Returns the process that runs it.
fn start_script(weir: &Weir, site: &Site, path: &str) -> u32 {
    let mut client = weir.connect();
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    let mut pid = None;
    wait_until("the script runs", || {
        let written = fs::read_to_string(site.path("site/started"));
        pid = written.ok().and_then(|pid| pid.parse().ok());
        pid.is_some()
    });
    pid.unwrap()
}

/// The processes that answer two requests made at the same time.
fn pids_of_two(weir: &Weir) -> [u32; 2] {
    let port = weir.port;
    let ask = move || pid_in(&get(port, "/held.php"));
    [std::thread::spawn(ask), std::thread::spawn(ask)].map(|thread| thread.join().unwrap())
}
