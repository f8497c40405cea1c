//! Scripts that crash their workers: other requests do not suffer, and weir refuses these scripts for a while.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{fixed, pool_status, wait_for_workers};
use weir_test::php::Fpm;
use weir_test::{Setup, Weir, wait_until};

/// Recursion through a function of PHP's own runs out of the C stack: SIGSEGV, in PHP 8.2 and before.
const CRASH: &str = "<?php function f() { array_map('f', [1]); } f();";

/// The number of clients that ask for the crashing script. It is large enough to keep the rate although each client
/// waits for its answer.
const CRASHERS: u64 = 10;

fn with_admin(setup: Setup) -> Setup {
    setup.admin()
}

/// Requests `path` every `pause` for `time`. Returns how many answers were 200 and came soon, and how many there were
/// in total.
fn ask(weir: &Weir, path: &str, pause: Duration, time: Duration) -> (usize, usize) {
    let (began, mut good, mut all) = (Instant::now(), 0, 0);
    while began.elapsed() < time {
        let asked = Instant::now();
        let answered = weir.get(path).status == 200;
        good += usize::from(answered && asked.elapsed() < SOON);
        all += 1;
        let next = pause * u32::try_from(all).expect("few");
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
    (good, all)
}

/// The share of good requests, in per mille, that are answered soon while others crash workers at this rate.
fn good_beside(weir: &Weir, crashes_a_second: u64) -> usize {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..CRASHERS {
            scope.spawn(|| {
                let pause = Duration::from_micros(CRASHERS * 1_000_000 / crashes_a_second);
                while !stop.load(Relaxed) {
                    // Sends one request and waits for the rest of the pause.
                    ask(weir, "/crash.php", pause, pause);
                }
            });
        }
        let ask_good = || ask(weir, "/good.php", Duration::from_millis(50), TIME);
        let askers: Vec<_> = (0..6).map(|_| scope.spawn(ask_good)).collect();
        let counts = askers
            .into_iter()
            .map(|asker| asker.join().expect("answers"));
        let (good, all) = counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        stop.store(true, Relaxed);
        assert!(all > 0);
        good * 1_000 / all
    })
}

/// The duration of one measurement.
const TIME: Duration = Duration::from_millis(1_500);

/// A request that waits longer than this counts as not served.
const SOON: Duration = Duration::from_millis(1_000);

fn poisoned(setup: Setup) -> Setup {
    setup
        .file("crash.php", CRASH)
        .file("good.php", "<?php usleep(5000); echo 'good';")
}

#[test]
fn a_script_that_crashes_costs_the_others_no_more_than_with_php_fpm() {
    let setup = poisoned(Setup::new());
    let fpm = Fpm::unix(setup.folder(), 8);
    let pool = format!("{}retries = 0\nmax_fails = 0\n", fpm.pool(8));
    let behind = setup.pool(&pool).start();
    // One pool with its defaults, and one that refuses nothing.
    for (lines, rates) in [("", &[20, 50][..]), ("crash_limit = 0\n", &[50])] {
        let weir = poisoned(fixed(8, lines)).start();
        wait_for_workers(&weir, 8);
        for crashes in rates {
            // Measures the two in turns: if the machine is busy with something else, both suffer, and an answer may
            // sometimes be late.
            let mut seen = Vec::new();
            let is_as_good = (0..8).any(|_| {
                let theirs = good_beside(&behind, *crashes);
                let ours = good_beside(&weir, *crashes);
                seen.push((ours, theirs));
                ours * 100 >= theirs * 99
            });
            assert!(
                is_as_good,
                "{crashes} crashes a second, {lines:?}: {seen:?}"
            );
        }
        wait_for_workers(&weir, 8);
    }
}

#[test]
fn what_crashes_again_and_again_is_refused_by_its_path_named_and_tried_again() {
    let lines = "crash_limit = 4\ncrash_pause = \"2s\"\nretries = 3\n";
    let setup = with_admin(fixed(2, lines).site("fallback = \"/index.php\"\n"))
        .file(
            "index.php",
            "<?php if (str_starts_with($_SERVER['REQUEST_URI'], '/bad') && !file_exists(__DIR__ . '/mended')) { \
             posix_kill(getmypid(), 11); sleep(60); } echo 'page';",
        );
    let weir = setup.start();
    for _ in 0..4 {
        weir.get("/bad?x=1")
            .expect(502)
            .expect_reason("worker_died");
    }
    // A client may still wait for the last answer.
    wait_until("it is refused", || weir.get("/bad?x=2").status == 503);
    let refused = weir.get("/bad?x=3").expect(503).expect_reason("crashing");
    let after: u64 = refused
        .header("retry-after")
        .and_then(|text| text.parse().ok())
        .unwrap();
    assert!((1..=2).contains(&after), "{after}");
    assert_eq!(
        weir.get("/good").expect(200).text(),
        "page",
        "the same script"
    );
    weir.wait_for_error(&[
        "\"/bad\"",
        "index.php",
        "SIGSEGV",
        "crash_limit",
        "crash_pause",
    ]);
    let pool = pool_status(&weir);
    assert_eq!(pool["crashing"][0]["path"], "\"/bad\"", "{pool}");
    assert!(pool["requests"]["refused_by"]["crashing"].as_u64() > Some(0));
    // After each pause one request is tried, and crashes a worker. Once the script is repaired, it is served again.
    let crashes = |pool: &Value| pool["crashing"][0]["crashes"].as_u64().unwrap_or(0);
    wait_until("one is tried", || {
        weir.get("/bad");
        crashes(&pool_status(&weir)) > crashes(&pool)
    });
    std::fs::write(weir.root().join("mended"), "").expect("write");
    wait_until("it is served again", || weir.get("/bad").status == 200);
    weir.wait_for_error(&["answers again"]);
    assert_eq!(pool_status(&weir)["crashing"], serde_json::json!([]));
}

#[test]
fn a_request_that_has_ended_its_worker_is_not_given_to_a_second_one() {
    let weir = with_admin(fixed(4, "retries = 3\n").file("crash.php", CRASH)).start();
    wait_for_workers(&weir, 4);
    weir.get("/crash.php")
        .expect(502)
        .expect_reason("worker_died");
    assert_eq!(weir.logged("/crash.php")["retries"], 0);
    wait_until("its end is known", || {
        pool_status(&weir)["workers"]["crashed"] == 1
    });
    wait_for_workers(&weir, 4);
    assert_eq!(pool_status(&weir)["workers"]["crashed"], 1);
}
