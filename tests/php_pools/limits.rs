//! Limits on a worker's life, and on a script's time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{fixed, pid, wait_for_workers, workers};
use weir_test::{Weir, wait_until};

#[test]
fn a_worker_is_replaced_after_as_many_requests_as_it_may_serve() {
    let weir = fixed(1, "max_requests = 3\n").start();
    let mut served: BTreeMap<u32, usize> = BTreeMap::new();
    for _ in 0..15 {
        *served.entry(pid(&weir)).or_default() += 1;
    }
    assert_eq!(
        served.values().copied().collect::<Vec<_>>(),
        [3; 5],
        "{served:?}"
    );
}

/// Each thread sends its requests over its own connection. Returns the pids that answered.
fn load(weir: &Weir, threads: usize, requests: usize) -> Vec<u32> {
    std::thread::scope(|scope| {
        let one = || {
            let mut client = weir.client();
            let ask = |_| {
                client.send("GET /pid.php HTTP/1.1\r\nHost: a\r\n\r\n");
                let text = client.response().expect(200).text();
                text.parse::<u32>().expect("a process id")
            };
            (0..requests).map(ask).collect::<Vec<_>>()
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let results = handles.into_iter().map(|handle| handle.join());
        results.flat_map(|result| result.expect("no 5xx")).collect()
    })
}

#[test]
fn replacing_workers_costs_no_request() {
    let weir = fixed(3, "max_requests = 7\n").start();
    let mut served: BTreeMap<u32, usize> = BTreeMap::new();
    for pid in load(&weir, 6, 70) {
        *served.entry(pid).or_default() += 1;
    }
    assert!(served.values().all(|count| *count <= 7), "{served:?}");
    assert!(served.len() >= 60, "{served:?}");
    wait_for_workers(&weir, 3);
}

#[test]
fn a_worker_that_grew_too_large_is_replaced_after_its_request() {
    let weir = fixed(
        1,
        "max_memory = \"100M\"\nphp_value = { memory_limit = \"1G\" }\n",
    )
    .file(
        "large.php",
        "<?php $x = str_repeat('x', 1 << 20 + (int)$_GET['mb']); \
             $x = str_repeat('x', (int)$_GET['mb'] << 20); echo getmypid();",
    )
    .start();
    let first = pid(&weir);
    let small = weir.get("/large.php?mb=4").expect(200).text();
    assert_eq!(small, first.to_string());
    assert_eq!(pid(&weir), first);
    let large = weir.get("/large.php?mb=200").expect(200).text();
    assert_eq!(large, first.to_string());
    assert_ne!(pid(&weir), first);
}

#[test]
fn scripts_that_take_too_long_are_ended_whatever_they_do() {
    let stuck = [
        ("sleeps.php", "<?php sleep(60);"),
        ("loops.php", "<?php while (true);"),
        (
            "waits.php",
            "<?php posix_mkfifo($_GET['fifo'], 0600); fopen($_GET['fifo'], 'r');",
        ),
        (
            "prints.php",
            "<?php while (true) { echo str_repeat('x', 100); usleep(1000); }",
        ),
        (
            "ignores.php",
            "<?php set_time_limit(0); ignore_user_abort(true); register_shutdown_function(function() { sleep(60); });",
        ),
    ];
    let setup = fixed(1, "request_terminate_timeout = \"500ms\"\n");
    let setup = stuck
        .iter()
        .fold(setup, |setup, (name, text)| setup.file(name, text));
    let weir = setup.start();
    for (name, _) in stuck {
        let before = pid(&weir);
        let fifo = weir.scratch(name);
        let began = Instant::now();
        let answer = weir.get(&format!("/{name}?fifo={}", fifo.display()));
        if name != "prints.php" {
            answer.expect(504).expect_reason("terminated");
        }
        assert!(began.elapsed() >= Duration::from_millis(500));
        assert_ne!(pid(&weir), before, "{name}");
        weir.wait_for_error(&[name, "request_terminate_timeout"]);
    }
}

#[test]
fn a_slow_script_is_traced_once_and_goes_on() {
    let weir = fixed(1, "request_slowlog_timeout = \"300ms\"\n")
        .file("slow.php", "<?php echo fpm_get_status()['slow-requests'];")
        .start();
    let before = pid(&weir);
    let slow = weir.get("/sleep.php?ms=1200").expect(200).text();
    assert_eq!(slow, before.to_string());
    weir.wait_for_error(&["slow: GET /sleep.php?ms=1200"]);
    assert_eq!(weir.stderr().matches("slow: GET").count(), 1);
    assert_eq!(weir.get("/slow.php").expect(200).text(), "1");
    assert_eq!(pid(&weir), before);
}

#[test]
fn a_script_that_a_gateway_gave_up_is_not_run_into_the_next_request() {
    let weir = fixed(2, "read_timeout = \"400ms\"\n").start();
    for _ in 0..3 {
        weir.get("/sleep.php?ms=2000")
            .expect(504)
            .expect_reason("terminated");
        pid(&weir);
    }
    wait_until("both are there", || workers(&weir).len() == 2);
}
