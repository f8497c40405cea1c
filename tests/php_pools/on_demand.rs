//! Pools that load PHP at their first request and end it when nobody asks any more.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::process::Signal;
use weir_test::process::signal;
use weir_test::{Setup, Weir, php, wait_until};

use super::{masters, pid, pool_status, setup, workers};

/// Pools named `p0`, `p1`, … with these lines, each with a site of its name.
pub(super) fn pools(setup: Setup, count: usize, lines: &str) -> Setup {
    pools_named(setup, "p", count, lines)
}

/// The same with another beginning of their names.
pub(super) fn pools_named(setup: Setup, name: &str, count: usize, lines: &str) -> Setup {
    let root = setup.root();
    (0..count).fold(setup, |setup, number| {
        setup.more(&format!(
            "[pool.{name}{number}]\nruntime = \"php\"\n{}{lines}\n\
             [site.{name}{number}]\nhosts = [\"{name}{number}\"]\nroot = \"{}\"\npool = \"{name}{number}\"\n",
            php::identity(),
            root.display()
        ))
    })
}

/// Asks the site with this name; the status.
pub(super) fn ask(weir: &Weir, host: &str) -> u16 {
    weir.request("GET", "/pid.php", &[("Host", host)], b"")
        .status
}

fn none_runs(weir: &Weir) {
    wait_until("no process of PHP is left", || {
        masters(weir).is_empty() && workers(weir).is_empty()
    });
}

const QUICK: &str =
    "pm = \"ondemand\"\nprocess_idle_timeout = \"200ms\"\nmaster_idle_timeout = \"200ms\"\n";

#[test]
fn php_is_loaded_at_the_first_request_and_ended_when_nobody_asks() {
    let weir = setup(QUICK).admin().start();
    assert!(masters(&weir).is_empty() && workers(&weir).is_empty());
    let first = pid(&weir);
    none_runs(&weir);
    // The same happens again at each later request.
    let second = pid(&weir);
    assert_ne!(first, second);
    none_runs(&weir);
    weir.wait_for_error(&["app", "PHP ends until the next request"]);
    assert_eq!(pool_status(&weir)["workers"]["started"], 2);
}

#[test]
fn a_master_stays_for_ever_if_the_time_is_zero() {
    let lines =
        "pm = \"ondemand\"\nprocess_idle_timeout = \"100ms\"\nmaster_idle_timeout = \"0\"\n";
    let weir = setup(lines).start();
    pid(&weir);
    wait_until("no worker is left", || workers(&weir).is_empty());
    let master = masters(&weir);
    assert_eq!(master.len(), 1);
    pid(&weir);
    wait_until("no worker is left", || workers(&weir).is_empty());
    assert_eq!(masters(&weir), master);
}

#[test]
fn only_pools_that_are_asked_have_processes() {
    let weir = pools(
        setup("pm = \"static\"\nmax_children = 1\n"),
        50,
        "pm = \"ondemand\"\n",
    )
    .start();
    pid(&weir);
    for host in ["p7", "p31"] {
        assert_eq!(ask(&weir, host), 200);
    }
    assert_eq!(masters(&weir).len(), 3);
}

#[test]
fn pools_that_are_asked_load_php_before_those_that_only_start() {
    let first = setup(QUICK).server("php_starts = 1");
    let weir = pools(
        first,
        30,
        "pm = \"static\"\nmax_children = 1\nphp_load = \"own\"\n",
    )
    .start();
    // The pool is the first in the configuration, but the last one to be started if it gets no request.
    pid(&weir);
    let loaded = masters(&weir).len();
    assert!(loaded < 31, "all were loaded before it");
    for number in [0, 29] {
        assert_eq!(ask(&weir, &format!("p{number}")), 200);
    }
    wait_until("all are loaded, one after another", || {
        (0..30).all(|number| ask(&weir, &format!("p{number}")) == 200)
    });
}

#[test]
fn many_pools_that_are_asked_at_once_all_answer() {
    let first = setup("pm = \"ondemand\"\n").server("php_starts = 2");
    let weir = pools(first, 24, "pm = \"ondemand\"\nmax_children = 1\n").start();
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..24)
            .map(|number| (&weir, format!("p{number}")))
            .map(|(weir, host)| scope.spawn(move || ask(weir, &host)))
            .collect();
        for asked in asking {
            assert_eq!(asked.join().unwrap(), 200);
        }
    });
}

/// Others are asked all the time, and all of them are before it in the configuration.
#[test]
fn the_last_pool_of_the_configuration_has_its_turn_like_any_other() {
    const POOLS: usize = 60;
    let first = setup("pm = \"ondemand\"\n").server("php_starts = 1");
    let weir = pools(first, POOLS, "pm = \"ondemand\"\nmax_children = 1\n").start();
    let next = AtomicUsize::new(0);
    let walk = || {
        loop {
            match next.fetch_add(1, Relaxed) {
                number if number < POOLS - 1 => {
                    assert_eq!(ask(&weir, &format!("p{number}")), 200, "{number}");
                }
                _ => return,
            }
        }
    };
    std::thread::scope(|scope| {
        let walking: Vec<_> = (0..3).map(|_| scope.spawn(walk)).collect();
        wait_until("others are asked", || next.load(Relaxed) >= 6);
        assert_eq!(ask(&weir, &format!("p{}", POOLS - 1)), 200);
        let asked = next.load(Relaxed);
        assert!(asked < POOLS / 2, "{asked} others went before it");
        for walk in walking {
            walk.join().expect("none is refused");
        }
    });
}

#[test]
fn php_that_cannot_be_loaded_is_said_at_the_first_request_and_tried_again() {
    let ini = "php_define = { \"opcache.preload\" = \"PRELOAD\", \"opcache.preload_user\" = \"www-data\" }\n";
    let setup = setup("");
    let preload = setup.root().join("preload.php");
    let weir = setup
        .pool(&format!(
            "{QUICK}{}",
            ini.replace("PRELOAD", preload.to_str().unwrap())
        ))
        .start();
    let answer = weir.get("/pid.php");
    assert_eq!(answer.status, 503, "{answer:?}");
    weir.wait_for_error(&["app", "PHP cannot be started", "preload"]);
    fs::write(&preload, "<?php").unwrap();
    weir_test::weir::mode(&preload, 0o644);
    weir.get_until("/pid.php", |answer| answer.status == 200);
    none_runs(&weir);
}

#[test]
fn a_master_that_dies_is_started_again_by_the_next_request() {
    let weir = setup("pm = \"ondemand\"\nprocess_idle_timeout = \"100ms\"\n").start();
    pid(&weir);
    wait_until("no worker is left", || workers(&weir).is_empty());
    signal(masters(&weir)[0].pid, Signal::KILL);
    weir.wait_for_error(&["app", "the pool's PHP master died"]);
    none_runs(&weir);
    pid(&weir);
    // Also while it works.
    let master = masters(&weir).remove(0);
    signal(master.pid, Signal::KILL);
    weir.get_until("/pid.php", |answer| answer.status == 200);
}

#[test]
fn reloads_and_restarts_start_nothing_that_nobody_uses() {
    let site = pools(
        setup("pm = \"ondemand\"\n").admin(),
        5,
        "pm = \"ondemand\"\n",
    );
    let weir = site.start();
    assert_eq!(ask(&weir, "p3"), 200);
    let before = masters(&weir);
    assert_eq!(before.len(), 1);
    weir.signal(Signal::HUP);
    weir.wait_for_error(&["reloaded: the new configuration serves"]);
    assert_eq!(
        masters(&weir),
        before,
        "the master was kept, and no other one started"
    );
    let restart = weir.command(&["pool", "p1", "restart"]).output().unwrap();
    let said = String::from_utf8_lossy(&restart.stdout);
    assert!(
        restart.status.success() && said.contains("no process to restart"),
        "{restart:?}"
    );
    assert_eq!(masters(&weir), before);
    assert_eq!(ask(&weir, "p1"), 200);
    assert_eq!(masters(&weir).len(), 2);
}

#[test]
fn a_pool_with_auto_has_no_process_while_nobody_asks_if_it_says_so() {
    let quick = QUICK.replace("ondemand", "auto") + "start_servers = 2\nmax_children = 4\n";
    let weir = setup(&quick).admin().start();
    assert!(masters(&weir).is_empty() && workers(&weir).is_empty());
    pid(&weir);
    none_runs(&weir);
    pid(&weir);
    // While there are requests, there are at least `start_servers` workers.
    wait_until("two workers are there", || {
        pid(&weir);
        workers(&weir).len() >= 2
    });
    none_runs(&weir);
    weir.wait_for_error(&["app", "PHP ends until the next request"]);
}

#[test]
fn a_pool_with_auto_stays_loaded_if_nothing_is_said() {
    let weir = setup("pm = \"auto\"\nprocess_idle_timeout = \"100ms\"\n").start();
    pid(&weir);
    let before = masters(&weir);
    assert_eq!(before.len(), 1);
    wait_until("one worker is left", || workers(&weir).len() == 1);
    assert_eq!(masters(&weir), before);
}

#[test]
fn the_metrics_of_pools_that_nobody_uses_are_few_and_one_pool_can_be_asked_for() {
    let weir = pools(
        setup("pm = \"ondemand\"\n").admin(),
        100,
        "pm = \"ondemand\"\n",
    )
    .start();
    assert_eq!(ask(&weir, "p7"), 200);
    let metrics = |path: &str| {
        let (status, text) = weir.admin_get(path);
        assert_eq!(status, 200, "{text}");
        weir.expect_sound_metrics(&text);
        text
    };
    let all = metrics("/metrics");
    assert!(all.contains("weir_pool_requests_total{pool=\"p8\"} 0"));
    assert!(all.contains("weir_pool_queue_duration_seconds_count{pool=\"p7\"} 1"));
    assert!(!all.contains("_seconds_count{pool=\"p8\"}"));
    assert!(!all.contains("weir_site_received_bytes_total{site=\"p8\"}"));
    // The limit is a megabyte for a thousand pools.
    assert!(all.len() < 100 * 1_000, "{} bytes", all.len());
    let one = metrics("/metrics?pool=p8");
    assert!(one.contains("_seconds_count{pool=\"p8\"} 0") && !one.contains("p7"));
    for path in ["/metrics?pool=none", "/status?pool=none"] {
        let (status, text) = weir.admin_get(path);
        assert!(
            status == 404 && text.contains("app, p0, p1") && text.contains("and 51 more"),
            "{text}"
        );
    }
    let told = weir.command(&["status", "p7"]).output().unwrap();
    let text = String::from_utf8_lossy(&told.stdout);
    assert!(text.contains("p7") && !text.contains("p8"), "{text}");
    let unknown = weir.command(&["status", "none"]).output().unwrap();
    let text = String::from_utf8_lossy(&unknown.stderr);
    assert!(
        unknown.status.code() == Some(64) && text.contains("there is no pool"),
        "{unknown:?}"
    );
}

/// Each series costs memory in Prometheus, so the number that a used pool adds must not grow unnoticed.
#[test]
fn a_hundred_used_pools_have_few_series() {
    let lines = "pm = \"ondemand\"\n";
    let count = |server: &str| {
        let setup = setup(lines).admin().server(server);
        let weir = pools(setup, 100, lines).start();
        for number in 0..100 {
            assert_eq!(ask(&weir, &format!("p{number}")), 200);
        }
        let (status, text) = weir.admin_get("/metrics");
        assert_eq!(status, 200, "{text}");
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        println!("{series} series");
        series
    };
    assert!(count("") <= 8_204);
    assert!(count("pool_histograms = false\nsite_histograms = false\n") < 6_000);
}
