//! What happens to masters and workers: deaths, limits, output.

use std::{fs, time::Duration};

use super::*;

#[test]
fn a_pool_has_one_master_that_forks_workers_and_none_of_them_is_root() {
    let site = php_site("max_children = 2");
    let weir = site.start();
    let answer = weir.get("/who.php");
    let master = number(&answer, "master");
    assert!(weir.children().contains(&master), "{answer:?}");
    assert!(offspring(master).contains(&number(&answer, "pid")));
    if is_root() {
        assert_ne!(number(&answer, "uid"), 0);
        let status = fs::read_to_string(format!("/proc/{master}/status")).unwrap();
        assert!(!status.contains("Uid:\t0"), "{status}");
        assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");
    }
}

#[test]
fn nothing_is_left_after_the_manager_is_killed() {
    let site = php_site("pm = \"static\"\nmax_children = 3");
    let mut weir = site.start();
    weir.get("/who.php");
    let mut all = Vec::new();
    wait_until("gateway, master and workers are there", || {
        all = offspring(weir.pid());
        all.len() == 5
    });
    weir.kill();
    assert!(all.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn a_worker_that_crashes_is_told_of_and_another_takes_its_place() {
    let site = php_site("pm = \"static\"\nmax_children = 1\nretries = 0");
    let site = site.file(
        "crash.php",
        "<?php posix_kill(posix_getpid(), 11); sleep(30);",
    );
    let weir = site.start();
    let before = weir.get("/who.php");
    let answer = weir.get("/crash.php");
    assert!(answer.status == 502, "{answer:?}");
    let line = weir.log_line("worker died: SIGSEGV");
    let worker = format!("worker={}", number(&before, "pid"));
    assert!(
        line.contains(&worker) && line.contains("pool=app"),
        "{line}"
    );
    let after = who(&weir);
    assert_ne!(number(&after, "pid"), number(&before, "pid"));
    assert_eq!(number(&after, "master"), number(&before, "master"));
}

#[test]
fn too_many_crashes_start_the_pool_anew() {
    let site = php_site("pm = \"static\"\nmax_children = 1\nretries = 0");
    let site = site.file(
        "crash.php",
        "<?php posix_kill(posix_getpid(), 11); sleep(30);",
    );
    let limit = "emergency_restart_threshold = 2\nemergency_restart_interval = \"60s\"";
    let weir = site.server(limit).start();
    let before = weir.get("/who.php");
    for _ in 0..2 {
        weir.get_until("/hello.php", |answer| answer.text() == "hello");
        weir.get("/crash.php");
    }
    weir.log_line("2 workers crashed within 60 s");
    weir.get_until("/who.php", |answer| {
        answer.text().contains("master=") && number(answer, "master") != number(&before, "master")
    });
}

#[test]
fn all_pools_together_have_no_more_workers_than_process_max() {
    let site = php_site("pm = \"static\"\nmax_children = 2");
    let more = format!(
        "[pool.second]\nruntime = \"php\"\npm = \"static\"\nmax_children = 2\n\
         [site.second]\nhosts = [\"second\"]\nroot = \"{}\"\npool = \"second\"",
        site.root().display()
    );
    let weir = site.server("process_max = 3").more(&more).start();
    weir.log_line("process_max");
    // What the two masters have forked. Other processes of weir come and go.
    let workers = || weir.children().into_iter().flat_map(offspring).count();
    wait_until("as many as may be", || workers() == 3);
    assert_eq!(weir.get("/hello.php").text(), "hello");
    assert_eq!(workers(), 3);
}

#[test]
fn a_master_that_a_script_has_stopped_goes_on_when_it_is_needed() {
    let site = php_site(
        "pm = \"ondemand\"\nmax_children = 2\nprocess_idle_timeout = \"100ms\"\n\
         request_terminate_timeout = \"1s\"",
    );
    let script = |name: &str, text: &str| fs::write(site.root().join(name), text).unwrap();
    let stop = "<?php posix_kill(posix_getppid(), 19);";
    script("stop.php", &format!("{stop} echo 'stopped';"));
    script("hang.php", &format!("{stop} while (true);"));
    let weir = site.start();
    let master = number(&weir.get("/who.php"), "master");
    // The next request needs a worker that the stopped master must fork.
    assert!(weir.get("/stop.php").text().ends_with("stopped"));
    wait_until("no worker is left", || offspring(master).is_empty());
    assert_eq!(number(&weir.get("/who.php"), "master"), master);
    // Only the stopped master could kill this script.
    let answer = weir.get("/hang.php");
    assert!(answer.status == 504, "{answer:?}");
    wait_until("its worker is gone", || offspring(master).is_empty());
    assert_eq!(number(&weir.get("/who.php"), "master"), master);
}

#[test]
fn scripts_that_exhaust_memory_or_time_or_leave_children_behind_cost_only_their_worker() {
    let site = php_site(
        "pm = \"static\"\nmax_children = 2\nrequest_terminate_timeout = \"1s\"\n\
         php_admin_value = { memory_limit = \"16M\" }",
    );
    let script = |name: &str, text: &str| fs::write(site.root().join(name), text).unwrap();
    script(
        "memory.php",
        "<?php $a = []; while (true) $a[] = str_repeat('x', 100000);",
    );
    script("loop.php", "<?php while (true);");
    script(
        "child.php",
        "<?php echo shell_exec('sleep 60 >/dev/null 2>&1 & echo pid=$!'), ' ';",
    );
    let mut weir = site.start();
    let answer = weir.get("/memory.php");
    assert!(answer.status == 500, "{answer:?}");
    let answer = weir.get("/loop.php");
    assert!(answer.status == 504, "{answer:?}");
    let answer = weir.get("/child.php");
    let child = number(&answer, "pid");
    for _ in 0..20 {
        assert_eq!(weir.get("/hello.php").text(), "hello");
    }
    weir.signal(Signal::TERM);
    assert!(weir.wait_for_end().success());
    if is_alive(child) {
        signal(child, Signal::KILL);
    }
}

#[test]
fn a_master_that_dies_takes_its_workers_along_and_is_started_again() {
    let site = php_site("pm = \"static\"\nmax_children = 2");
    let weir = site.start();
    let before = weir.get("/who.php");
    let master = number(&before, "master");
    wait_until("both workers are there", || offspring(master).len() == 2);
    let workers = offspring(master);
    signal(master, Signal::KILL);
    weir.log_line("the pool's PHP master died, and its workers with it: SIGKILL");
    wait_until("its workers are gone", || {
        workers.iter().all(|pid| !is_alive(*pid))
    });
    let after = who(&weir);
    assert_ne!(number(&after, "master"), master);
}

#[test]
fn php_that_cannot_be_loaded_makes_a_pool_without_workers_and_says_why() {
    let site = php_site(
        "php_define = { \"opcache.preload\" = \"/no/such/preload.php\", \"opcache.preload_user\" = \"www-data\" }",
    );
    let weir = site.start();
    let line = weir.log_line("PHP cannot be started: ");
    assert!(
        line.contains("preload") && line.contains("pool=app"),
        "{line}"
    );
    let answer = weir.get_until("/hello.php", |answer| answer.status == 503);
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    assert!(
        weir.get("/a.txt").text().contains("hello"),
        "files are served all the same"
    );
}

#[test]
fn a_dead_gateways_workers_end_and_the_master_stays() {
    let site = php_site("pm = \"static\"\nmax_children = 2");
    let weir = site.start();
    let before = weir.get("/who.php");
    let master = number(&before, "master");
    wait_until("both workers are there", || offspring(master).len() == 2);
    let workers = offspring(master);
    signal(weir.gateway().pid, Signal::KILL);
    weir.log_line("accepts connections again");
    wait_until("its workers are gone", || {
        workers.iter().all(|pid| !is_alive(*pid))
    });
    let after = who(&weir);
    assert_eq!(number(&after, "master"), master);
    assert!(!workers.contains(&number(&after, "pid")));
}

#[test]
fn a_script_of_a_dead_gateway_has_as_long_as_scripts_have_and_no_longer() {
    let site = php_site("max_children = 1\nrequest_terminate_timeout = \"1s\"");
    let site = site.file(
        "stuck.php",
        "<?php ignore_user_abort(true); file_put_contents(__DIR__ . '/started', getmypid()); \
         while (true) sleep(1);",
    );
    let weir = site.start();
    let mut client = weir.client();
    client.send("GET /stuck.php HTTP/1.0\r\n\r\n");
    let started = || fs::read_to_string(site.path("root/started")).unwrap_or_default();
    wait_until("the script runs", || !started().is_empty());
    let stuck: u32 = started().parse().unwrap();
    signal(weir.gateway().pid, Signal::KILL);
    weir.log_line("the worker was told to end, but still runs");
    wait_until("the worker is gone", || !is_alive(stuck));
    let answer = who(&weir);
    assert_ne!(number(&answer, "pid"), stuck);
}

#[test]
fn what_workers_print_is_written_whole_to_the_output_log_and_goes_on_after_a_rotation() {
    let site = php_site("");
    let log = site.path("output.log");
    let site = site.pool(&format!(
        "pm = \"static\"\nmax_children = 2\noutput_log = \"{}\"\ndecorate_output = false",
        log.display()
    ));
    let site = site.file("print.php", "<?php $n = (int)$_GET['n']; $e = fopen('php://stderr', 'w'); fwrite($e, str_repeat('x', $n) . \"\\n\"); \
         for ($i = 0; $i < 100; $i++) fwrite($e, \"line $i of $n\\n\"); echo 'done';");
    let weir = site.start();
    let long = 1_000_000;
    for n in [10, long] {
        assert_eq!(weir.get(&format!("/print.php?n={n}")).text(), "done");
    }
    let read = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("all is written", || {
        read().contains(&format!("line 99 of {long}"))
    });
    let text = read();
    for n in [10, long] {
        assert!(
            text.lines()
                .any(|line| line.len() == n && line.bytes().all(|b| b == b'x'))
        );
        for i in 0..100 {
            let line = format!("line {i} of {n}");
            assert_eq!(text.lines().filter(|l| **l == line).count(), 1, "{line}");
        }
    }
    fs::rename(&log, site.path("output.log.1")).unwrap();
    weir.signal(Signal::USR1);
    wait_until("the log is there again", || log.exists());
    weir.get("/print.php?n=7");
    wait_until("the new one is written", || read().contains("line 99 of 7"));
}

#[test]
fn what_workers_print_is_in_the_error_log_with_pool_and_process() {
    let site = php_site("max_children = 1");
    let site = site.file("print.php", "<?php file_put_contents('php://stderr', \"to the error log\\n\"); echo 'pid=', getmypid(), ' ';");
    let weir = site.start();
    let answer = weir.get("/print.php");
    let line = weir.log_line("said: to the error log");
    let worker = format!("worker={}", number(&answer, "pid"));
    assert!(
        line.contains(&worker) && line.contains("pool=app"),
        "{line}"
    );
}

#[test]
fn a_script_that_is_slow_is_in_the_slow_log_with_its_stack() {
    let site = php_site("");
    let log = site.path("slow.log");
    let site = site.pool(&format!(
        "max_children = 1\nrequest_slowlog_timeout = \"500ms\"\nslowlog = \"{}\"",
        log.display()
    ));
    let slow = "<?php\nfunction inner() { sleep(2); }\ninner();\necho 'pid=', getmypid(), ' ';";
    let site = site.file("stack.php", slow);
    let weir = site.start();
    let answer = weir.get("/stack.php");
    let pid = number(&answer, "pid");
    let read = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("the entry is there", || read().contains("inner()"));
    let text = read();
    assert!(
        text.contains(&format!("]  [pool app] pid {pid}\n")),
        "{text}"
    );
    let script = site.path("root/stack.php");
    assert!(
        text.contains(&format!("script_filename = {}\n", script.display())),
        "{text}"
    );
    assert!(
        text.contains(&format!("inner() {}:3\n", script.display())),
        "{text}"
    );
}

#[test]
fn what_does_not_end_when_weir_stops_is_killed() {
    let site = php_site("max_children = 1");
    let site = site.file(
        "stubborn.php",
        "<?php ignore_user_abort(true); touch(__DIR__ . '/started'); while (true) sleep(1);",
    );
    let mut weir = site.clone().server("shutdown_timeout = \"300ms\"").start();
    let mut client = weir.client();
    client.send("GET /stubborn.php HTTP/1.0\r\n\r\n");
    wait_until("the script runs", || site.path("root/started").exists());
    let all = offspring(weir.pid());
    let began = std::time::Instant::now();
    weir.signal(Signal::TERM);
    assert!(weir.wait_for_end().success());
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert!(all.iter().all(|pid| !is_alive(*pid)));
}
