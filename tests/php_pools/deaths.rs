//! Workers that die, and workers that write bytes to their stream that they must not write.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{fixed, pid, wait_for_workers, workers, written};
use weir_test::process::signal;
use weir_test::{Weir, wait_until};

/// The pool works, with all its workers.
#[track_caller]
fn expect_recovered(weir: &Weir, count: usize) {
    for _ in 0..3 {
        pid(weir);
    }
    wait_for_workers(weir, count);
}

#[test]
fn a_script_that_kills_its_worker_is_502_and_says_how() {
    let weir = fixed(2, "retries = 1\n")
        .file(
            "crash.php",
            "<?php posix_kill(getmypid(), (int)$_GET['signal']); sleep(60);",
        )
        .start();
    for (number, name) in [(11, "SIGSEGV"), (9, "SIGKILL"), (6, "SIGABRT")] {
        weir.request("POST", &format!("/crash.php?signal={number}"), &[], b"")
            .expect(502)
            .expect_reason("worker_died");
        weir.wait_for_error(&["worker_died", name]);
        expect_recovered(&weir, 2);
    }
}

#[test]
fn a_script_that_exhausts_its_memory_ends_without_its_worker() {
    let weir = fixed(1, "php_admin_value = { memory_limit = \"16M\" }\n")
        .file("fat.php", "<?php $x = str_repeat('x', 1 << 30);")
        .start();
    let before = pid(&weir);
    weir.get("/fat.php").expect(500);
    assert_eq!(pid(&weir), before);
}

#[test]
fn idle_workers_that_die_cost_no_request() {
    let weir = fixed(2, "").start();
    for round in 0..10 {
        wait_for_workers(&weir, 2);
        for worker in workers(&weir) {
            signal(worker.pid, Signal::KILL);
        }
        let method = if round % 2 == 0 { "GET" } else { "POST" };
        weir.request(method, "/pid.php", &[], b"").expect(200);
    }
}

/// Writes `what` to the stream between its worker and the gateway.
const WRITES: &str = "<?php
    header('X-Pid: ' . getmypid());
    echo str_repeat('x', (int)($_GET['first'] ?? 0));
    if (isset($_GET['early'])) fastcgi_finish_request();
    $c = FFI::cdef('long write(int, const char *, unsigned long);');
    $what = base64_decode($_GET['what']);
    foreach (scandir('/proc/self/fd') as $fd) {
        if (str_starts_with((string)@readlink(\"/proc/self/fd/$fd\"), 'socket:')) {
            $c->write((int)$fd, $what, strlen($what));
        }
    }
    if (isset($_GET['done'])) file_put_contents($_GET['done'], 'done');
";

#[test]
fn a_worker_whose_stream_is_written_to_is_replaced() {
    let garbage: [&[u8]; 6] = [
        b"HTTP/1.1 200 OK\r\n\r\n",
        // STDOUT of another request, an invalid READY, unknown types, a record of another version.
        &[1, 6, 0, 99, 0, 1, 0, 0, b'x'],
        &[1, 64, 0, 0, 0, 24, 0, 0, 0],
        &[1, 66, 0, 0, 0, 0, 0, 0],
        &[1, 11, 0, 0, 0, 8, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0],
        &[7; 64],
    ];
    let weir = fixed(1, "php_define = { \"ffi.enable\" = \"1\" }\nretries = 0\n")
        .file("writes.php", WRITES)
        .start();
    for what in garbage {
        let what = base64(what);
        let before = pid(&weir);
        weir.get(&format!("/writes.php?what={what}"));
        let early = weir.get(&format!("/writes.php?early&first=5&what={what}"));
        assert_eq!(early.expect(200).text(), "xxxxx");
        expect_recovered(&weir, 1);
        assert_ne!(pid(&weir), before, "{what}");
    }
}

/// Base64 (RFC 4648) for a query. The standard library has no function for it.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0_u8; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..4 {
            if place <= chunk.len() {
                text.push(ALPHABET[(bits >> (18 - 6 * place) & 63) as usize] as char);
            } else {
                text.push('=');
            }
        }
    }
    weir_test::http::encode(&text)
}

#[test]
fn a_worker_that_closes_its_stream_is_replaced() {
    let weir = fixed(1, "php_define = { \"ffi.enable\" = \"1\" }\nretries = 0\n")
        .file(
            "closes.php",
            "<?php
            $c = FFI::cdef('int shutdown(int, int); int close(int);');
            if (isset($_GET['early'])) { echo 'early'; fastcgi_finish_request(); }
            foreach (scandir('/proc/self/fd') as $fd) {
                if (str_starts_with((string)@readlink(\"/proc/self/fd/$fd\"), 'socket:')) {
                    isset($_GET['shut']) ? $c->shutdown((int)$fd, 2) : $c->close((int)$fd);
                }
            }",
        )
        .start();
    for query in ["shut", "close"] {
        let before = pid(&weir);
        weir.get(&format!("/closes.php?{query}"))
            .expect(502)
            .expect_reason("worker_died");
        expect_recovered(&weir, 1);
        let early = weir.get(&format!("/closes.php?early&{query}")).expect(200);
        assert_eq!(early.text(), "early");
        expect_recovered(&weir, 1);
        assert_ne!(pid(&weir), before);
    }
}

#[test]
fn children_of_a_worker_do_not_hold_its_request() {
    let weir = fixed(1, "php_define = { \"ffi.enable\" = \"1\" }\nretries = 0\n")
        .file(
            "child.php",
            "<?php
            file_put_contents($_GET['child'], (string)proc_get_status(proc_open(['sleep', '600'], [], $pipes))['pid']);
            if (isset($_GET['die'])) posix_kill(getmypid(), 9);
            echo getmypid();",
        )
        .file(
            "fork.php",
            "<?php
            $c = FFI::cdef('int fork(void); unsigned sleep(unsigned);');
            $child = $c->fork();
            if ($child == 0) { while (true) $c->sleep(600); }
            file_put_contents($_GET['child'], (string)$child);
            if (isset($_GET['die'])) posix_kill(getmypid(), 9);
            echo getmypid();",
        )
        .start();
    for script in ["child.php", "fork.php"] {
        let file = weir.scratch(script);
        let end_child = || {
            let child: u32 = written(&file).parse().expect("a process id");
            signal(child, Signal::KILL);
            fs::remove_file(&file).expect("the file");
        };
        let path = format!("/{script}?child={}", file.display());
        let before = pid(&weir);
        assert_eq!(weir.get(&path).expect(200).text(), before.to_string());
        assert_eq!(pid(&weir), before);
        end_child();
        // weir notices the worker's end even if a child of the worker keeps the stream open.
        let began = Instant::now();
        weir.get(&format!("{path}&die"))
            .expect(502)
            .expect_reason("worker_died");
        assert!(began.elapsed() < Duration::from_secs(20));
        end_child();
        expect_recovered(&weir, 1);
    }
}

#[test]
fn what_is_said_between_two_requests_harms_neither() {
    let weir = fixed(1, "php_define = { \"ffi.enable\" = \"1\" }\nretries = 0\n")
        .file(
            "later.php",
            "<?php
            $c = FFI::cdef('int fork(void); int dup(int); int close(int); long write(int, const char *, unsigned long); \
                            int access(const char *, int); int usleep(unsigned); void _exit(int);');
            $sockets = [];
            foreach (scandir('/proc/self/fd') as $fd) {
                if (str_starts_with((string)@readlink(\"/proc/self/fd/$fd\"), 'socket:')) $sockets[] = $c->dup((int)$fd);
            }
            if ($c->fork() == 0) {
                for ($i = 0; $i < 6000 && $c->access($_GET['gate'], 0); $i++) $c->usleep(5000);
                foreach ($sockets as $socket) $c->write($socket, 'garbage!', 8);
                touch($_GET['done']);
                $c->_exit(0);
            }
            foreach ($sockets as $socket) $c->close($socket);
            echo getmypid();",
        )
        .start();
    let (gate, done) = (weir.scratch("gate"), weir.scratch("done"));
    let path = format!("/later.php?gate={}&done={}", gate.display(), done.display());
    let worker = weir.get(&path).expect(200).text();
    assert_eq!(pid(&weir).to_string(), worker);
    fs::write(&gate, "").expect("the gate");
    wait_until("it was said", || done.exists());
    assert_ne!(pid(&weir).to_string(), worker);
    expect_recovered(&weir, 1);
}

/// Kills a worker again and again until `stop` is set. Returns how many it killed.
fn murder(weir: &Weir, stop: &AtomicBool, pause: Duration) -> usize {
    let mut killed = 0;
    while !stop.load(Relaxed) {
        let workers = workers(weir);
        if !workers.is_empty() {
            signal(workers[killed * 7 % workers.len()].pid, Signal::KILL);
            killed += 1;
        }
        std::thread::sleep(pause);
    }
    killed
}

/// Kills the worker of each of the next `times` runs of `waits.php`, from outside. Returns the status of the answer, and
/// how often the script has run.
fn killed_from_outside(weir: &Weir, method: &str, times: usize) -> (u16, usize) {
    let file = weir.scratch(&format!("{method}-{times}"));
    let runs = || fs::read_to_string(&file).unwrap_or_default();
    let path = format!("/waits.php?file={}&times={times}", file.display());
    let status = std::thread::scope(|scope| {
        let asked = scope.spawn(|| weir.request(method, &path, &[], b"").status);
        for run in 1..=times {
            let killed = || runs().lines().count() >= run || asked.is_finished();
            wait_until("the script runs", killed);
            if let Some(worker) = runs().lines().nth(run - 1) {
                signal(worker.parse().expect("a process id"), Signal::KILL);
            }
        }
        asked.join().expect("an answer")
    });
    (status, runs().lines().count())
}

#[test]
fn a_get_whose_worker_somebody_kills_is_run_by_one_other_worker() {
    let weir = fixed(3, "")
        .file(
            "waits.php",
            "<?php
            file_put_contents($_GET['file'], getmypid() . \"\\n\", FILE_APPEND);
            if (count(file($_GET['file'])) <= $_GET['times']) sleep(60);
            echo 'done';",
        )
        .start();
    wait_for_workers(&weir, 3);
    assert_eq!(killed_from_outside(&weir, "GET", 1), (200, 2));
    expect_recovered(&weir, 3);
    // A script may kill its own worker like this.
    assert_eq!(killed_from_outside(&weir, "GET", 2), (502, 2));
    expect_recovered(&weir, 3);
    assert_eq!(killed_from_outside(&weir, "POST", 1), (502, 1));
    expect_recovered(&weir, 3);
}

#[test]
fn a_long_request_whose_worker_is_asked_to_end_as_it_comes_is_run_once_and_whole() {
    let weir = fixed(1, "")
        .admin()
        .file(
            "size.php",
            "<?php file_put_contents($_GET['file'], \"run\\n\", FILE_APPEND); echo strlen(file_get_contents('php://input'));",
        )
        .start();
    let body = vec![b'x'; 600_000];
    for (at, method) in ["POST", "PUT", "POST", "PUT", "POST", "PUT"]
        .iter()
        .enumerate()
    {
        wait_for_workers(&weir, 1);
        let worker = workers(&weir)[0].pid;
        let file = weir.scratch(&format!("runs-{at}"));
        signal(worker, Signal::STOP);
        let path = format!("/size.php?file={}", file.display());
        let text = std::thread::scope(|scope| {
            let asked = scope.spawn(|| weir.request(method, &path, &[], &body).expect(200).text());
            let at_work = || super::pool_status(&weir)["workers"]["busy"] == 1;
            wait_until("it is sent", at_work);
            signal(worker, Signal::QUIT);
            signal(worker, Signal::CONT);
            asked.join().expect("an answer")
        });
        assert_eq!(text, "600000", "{at}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "run\n", "{at}");
    }
}

#[test]
fn workers_that_are_killed_at_random_lose_no_other_request_and_run_none_twice() {
    let weir = fixed(4, "")
        .file("get.php", "<?php usleep(2000); echo 'got';")
        .file(
            "post.php",
            "<?php file_put_contents($_GET['file'], $_POST['id'] . \"\\n\", FILE_APPEND | LOCK_EX); usleep(2000); echo 'done';",
        )
        .start();
    wait_for_workers(&weir, 4);
    let file = weir.scratch("posts");
    let post = format!("/post.php?file={}", file.display());
    let stop = AtomicBool::new(false);
    let mut answers: BTreeMap<usize, u16> = BTreeMap::new();
    let killed = std::thread::scope(|scope| {
        let killer = scope.spawn(|| murder(&weir, &stop, Duration::from_millis(50)));
        let getter = |_| {
            let (weir, stop) = (&weir, &stop);
            scope.spawn(move || {
                let mut count = 0;
                let mut lost = 0;
                while !stop.load(Relaxed) {
                    let answer = weir.get("/get.php");
                    match answer.status {
                        200 => assert_eq!(answer.text(), "got"),
                        // Two workers were killed during this request.
                        502 => lost += 1,
                        other => panic!("{other}"),
                    }
                    count += 1;
                }
                (count, lost)
            })
        };
        let getters: Vec<_> = (0..3).map(getter).collect();
        let poster = |first: usize| {
            let (weir, post) = (&weir, &post);
            scope.spawn(move || {
                let ask = |number: usize| {
                    let id = number * 10 + first;
                    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
                    let body = format!("id={id}&fill={}", "x".repeat(number % 3 * 5_000));
                    let answer = weir.request("POST", post, &headers, body.as_bytes());
                    (id, answer.status)
                };
                (0..400).map(ask).collect::<Vec<_>>()
            })
        };
        let posters: Vec<_> = (0..2).map(poster).collect();
        for poster in posters {
            answers.extend(poster.join().expect("posts are answered"));
        }
        stop.store(true, Relaxed);
        let mut lost = 0;
        for getter in getters {
            let (count, lost_here) = getter.join().expect("all are answered");
            assert!(count > 0);
            lost += lost_here;
        }
        let killed = killer.join().expect("the killer");
        // Each GET is tried on a second worker, which is rarely killed as well.
        assert!(lost * 2 <= killed, "{lost} of {killed}");
        killed
    });
    assert!(killed > 2, "{killed}");
    let mut ran: BTreeMap<usize, usize> = BTreeMap::new();
    for line in fs::read_to_string(&file).expect("posts").lines() {
        *ran.entry(line.parse().expect("an id")).or_default() += 1;
    }
    let mut not_begun = 0;
    for (id, status) in &answers {
        let times = ran.get(id).copied().unwrap_or(0);
        match status {
            200 => assert_eq!(times, 1, "{id}"),
            // If a worker was killed after it read the request and before the script's first line ran, the script may
            // have begun as far as weir knows. So weir does not run it again.
            502 => {
                assert!(times <= 1, "{id} ran {times} times");
                not_begun += usize::from(times == 0);
            }
            other => panic!("{id}: {other}"),
        }
    }
    assert!(not_begun * 4 <= killed, "{not_begun} of {killed}");
    wait_until("all workers are there", || workers(&weir).len() == 4);
}
