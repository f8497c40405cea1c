//! The effect of signals on both programs.

use std::{
    fs,
    io::Write,
    os::unix::net::UnixStream,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use rustix::process::Signal;
use weir_test::{
    front::{self, Params},
    versions,
};

use crate::{
    starts::configuration,
    support::{
        LIMIT, PHP_FPM, Place, Running, answer, children, command_line, get, is_alive, wait_until,
        web_user,
    },
};

/// Starts one of the two programs, with a slow script.
fn start(place: &Place, weir: bool, global: &str, pool: &str) -> Running {
    place.write("php-fpm.conf", configuration(global, pool));
    place.write(
        "slow.php",
        "<?php touch(__DIR__ . '/tmp/started'); usleep(1500000); echo 'finished';",
    );
    place.write("who.php", "<?php echo getmypid(), ' ', getenv('WHO');");
    let tmp = place.path("tmp");
    if fs::create_dir(&tmp).is_ok() {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&tmp, PermissionsExt::from_mode(0o777)).unwrap();
    }
    let program = if weir { place.weir() } else { PHP_FPM.clone() };
    Running::start(&program, place, &[])
}

/// Returns the output of the script.
fn ask(place: &Place, script: &str) -> String {
    let answer = get(
        &place.path("fpm.sock"),
        &place.path(script),
        &format!("/{script}"),
    );
    let body = answer
        .out
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    body.unwrap_or_default()
}

/// Starts the slow script; the thread returns its answer.
fn begin_slow(place: &Place) -> thread::JoinHandle<String> {
    let (socket, script) = (place.path("fpm.sock"), place.path("slow.php"));
    let slow = thread::spawn(move || get(&socket, &script, "/slow.php").out);
    wait_until("the script runs", || {
        let ended = slow.is_finished();
        let started = place.path("tmp/started").exists();
        assert!(
            started || !ended,
            "no script ran:\n{}",
            place.read("error.log")
        );
        started
    });
    slow
}

#[test]
fn quit_finishes_what_runs() {
    for weir in [false, true] {
        let place = Place::new();
        let mut running = start(&place, weir, "process_control_timeout = 20s", "");
        let slow = begin_slow(&place);
        running.signal(Signal::QUIT);
        let status = running.end().unwrap();
        assert_eq!(status.code(), Some(0));
        assert!(slow.join().unwrap().ends_with("finished"), "weir: {weir}");
        let log = running.log();
        assert!(log.contains("NOTICE: Finishing ...\n"), "{log}");
        assert!(log.ends_with("NOTICE: exiting, bye-bye!"), "{log}");
    }
}

#[test]
fn term_and_int_end_at_once() {
    for weir in [false, true] {
        for signal in [Signal::TERM, Signal::INT] {
            let place = Place::new();
            let mut running = start(&place, weir, "process_control_timeout = 20s", "");
            let slow = begin_slow(&place);
            running.signal(signal);
            let status = running.end().unwrap();
            assert_eq!(status.code(), Some(0));
            assert!(!slow.join().unwrap().contains("finished"), "weir: {weir}");
            let log = running.log();
            assert!(log.contains("NOTICE: Terminating ...\n"), "{log}");
            assert!(log.ends_with("NOTICE: exiting, bye-bye!"), "{log}");
        }
    }
}

/// The process and all its descendants.
fn tree(pid: u32) -> Vec<u32> {
    let below = children(pid);
    let below = below.into_iter().flat_map(|(child, _)| tree(child));
    std::iter::once(pid).chain(below).collect()
}

fn signal_all(pid: u32, signal: Signal) {
    for pid in tree(pid) {
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// systemd sends KillSignal= to all processes of a service, unless KillMode= says otherwise.
#[test]
fn quit_for_all_processes_finishes_what_runs() {
    for weir in [false, true] {
        let place = Place::new();
        let mut running = start(&place, weir, "process_control_timeout = 20s", "");
        let slow = begin_slow(&place);
        // Twice, like an impatient operator.
        signal_all(running.pid, Signal::QUIT);
        signal_all(running.pid, Signal::QUIT);
        let status = running.end().unwrap();
        assert_eq!(status.code(), Some(0));
        assert!(slow.join().unwrap().ends_with("finished"), "weir: {weir}");
        let log = running.log();
        assert!(log.ends_with("NOTICE: exiting, bye-bye!"), "{log}");
        assert!(!log.contains("exited on signal"), "{log}");
    }
}

#[test]
fn term_for_all_processes_ends_at_once() {
    for weir in [false, true] {
        let place = Place::new();
        let mut running = start(&place, weir, "process_control_timeout = 20s", "");
        let slow = begin_slow(&place);
        signal_all(running.pid, Signal::TERM);
        let status = running.end().unwrap();
        assert_eq!(status.code(), Some(0));
        assert!(!slow.join().unwrap().contains("finished"), "weir: {weir}");
        let log = running.log();
        assert!(log.ends_with("NOTICE: exiting, bye-bye!"), "{log}");
    }
}

/// These signals kill PHP-FPM's children.
#[test]
fn usr1_and_usr2_for_all_processes_lose_no_request() {
    let place = Place::new();
    let mut running = start(&place, true, "process_control_timeout = 20s", "");
    let slow = begin_slow(&place);
    signal_all(running.pid, Signal::USR1);
    running.wait_for_log("NOTICE: error log file re-opened");
    signal_all(running.pid, Signal::USR2);
    running.wait_for_logs("ready to handle connections", 2);
    assert!(slow.join().unwrap().ends_with("finished"));
    assert_ne!(ask(&place, "who.php"), "");
    signal_all(running.pid, Signal::QUIT);
    assert_eq!(running.end().unwrap().code(), Some(0));
    let log = running.log();
    assert!(!log.contains("exited on signal"), "{log}");
}

/// As hosting providers use it: a pool for each customer, and a php.ini for all of them.
#[test]
fn usr2_applies_a_changed_php_ini_to_dozens_of_pools_and_loses_no_request() {
    const POOLS: usize = 36;
    let place = Place::new();
    let pools: String = (0..POOLS)
        .map(|number| {
            let pm = match number % 6 {
                0 => "static",
                _ => "ondemand",
            };
            format!(
                "[p{number}]\nuser = {}\nlisten = @/p{number}.sock\nlisten.mode = 0666\npm = {pm}\n\
                 pm.max_children = 1\n",
                web_user()
            )
        })
        .collect();
    place.write(
        "php-fpm.conf",
        format!("[global]\nerror_log = @/error.log\npid = @/fpm.pid\n{pools}"),
    );
    place.write("precision.php", "<?php echo ini_get('precision');");
    let ini = place.write("php.ini", "precision = 5\n");
    let mut running = Running::start(&place.weir(), &place, &["-c", ini.to_str().unwrap()]);
    let precision = |number: usize| {
        let socket = place.path(&format!("p{number}.sock"));
        let answer = get(&socket, &place.path("precision.php"), "/precision.php");
        let body = answer.out.split_once("\r\n\r\n");
        body.map(|(_, body)| body.to_owned()).unwrap_or_default()
    };
    for number in 0..POOLS {
        assert_eq!(precision(number), "5", "p{number}");
    }
    place.write("php.ini", "precision = 7\n");
    let over = AtomicBool::new(false);
    let answers = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut answers = Vec::new();
            while !over.load(Relaxed) {
                answers.extend((0..POOLS).map(precision));
            }
            answers
        });
        running.signal(Signal::USR2);
        running.wait_for_logs("ready to handle connections", 2);
        over.store(true, Relaxed);
        asking.join().unwrap()
    });
    for answer in answers {
        assert!(["5", "7"].contains(&answer.as_str()), "{answer:?}");
    }
    for number in 0..POOLS {
        wait_until("the new value", || precision(number) == "7");
    }
    running.signal(Signal::QUIT);
    assert_eq!(running.end().unwrap().code(), Some(0));
}

/// Like PHP-FPM's child: the worker is replaced when its request is answered.
#[test]
fn quit_for_a_worker_finishes_its_request() {
    for weir in [false, true] {
        let place = Place::new();
        let running = start(&place, weir, "", "pm.max_children = 1");
        place.write(
            "slow.php",
            "<?php touch(__DIR__ . '/tmp/started'); for ($i = 0; $i < 15; $i++) usleep(100000);
             echo getmypid(), ' finished';",
        );
        let slow = begin_slow(&place);
        let worker: u32 = {
            let all = tree(running.pid);
            // The youngest process: in weir, the one without children below the pool's master.
            let worker = |pid: &&u32| {
                command_line(**pid) == "php-fpm: pool www" && children(**pid).is_empty()
            };
            **all
                .iter()
                .filter(worker)
                .collect::<Vec<_>>()
                .last()
                .unwrap()
        };
        let pid = rustix::process::Pid::from_raw(worker as i32).unwrap();
        rustix::process::kill_process(pid, Signal::QUIT).unwrap();
        let answer = slow.join().unwrap();
        assert!(answer.ends_with(&format!("{worker} finished")), "{answer}");
        wait_until("it is replaced", || {
            let now = ask(&place, "who.php");
            !now.is_empty() && !now.starts_with(&worker.to_string())
        });
        assert!(!is_alive(worker));
    }
}

#[test]
fn usr1_opens_the_logs_again() {
    for weir in [false, true] {
        let place = Place::new();
        let running = start(&place, weir, "", "access.log = @/access.log");
        assert_ne!(ask(&place, "who.php"), "");
        wait_until("the request is in the log", || {
            place.read("access.log").contains("/who.php")
        });
        for log in ["error.log", "access.log"] {
            fs::rename(place.path(log), place.path(&format!("{log}.1"))).unwrap();
        }
        running.signal(Signal::USR1);
        running.wait_for_log("NOTICE: access log file re-opened");
        let log = running.log();
        assert!(log.contains("NOTICE: error log file re-opened"), "{log}");
        wait_until("a request is in the new log", || {
            assert_ne!(ask(&place, "who.php"), "");
            place.read("access.log").contains("/who.php")
        });
    }
}

#[test]
fn usr2_takes_the_configuration_again_and_starts_php_anew() {
    for weir in [false, true] {
        let place = Place::new();
        let running = start(&place, weir, "", "env[WHO] = before");
        let first = ask(&place, "who.php");
        assert!(first.ends_with(" before"), "{first}");
        place.write("php-fpm.conf", configuration("", "env[WHO] = after"));
        running.signal(Signal::USR2);
        running.wait_for_logs("ready to handle connections", 2);
        let log = running.log();
        assert!(log.contains("NOTICE: Reloading in progress ...\n"), "{log}");
        assert_eq!(place.read("fpm.pid").trim(), running.pid.to_string());
        wait_until("the new configuration holds", || {
            ask(&place, "who.php").ends_with(" after")
        });
        // This happens without a change, too: people reload to empty OPcache.
        let before = ask(&place, "who.php");
        running.signal(Signal::USR2);
        running.wait_for_logs("ready to handle connections", 3);
        wait_until("workers are others", || {
            let now = ask(&place, "who.php");
            !now.is_empty() && now != before
        });
    }
}

/// PHP-FPM ends; weir continues with the configuration that it has.
#[test]
fn a_wrong_configuration_changes_nothing() {
    let place = Place::new();
    let running = start(&place, true, "", "env[WHO] = before");
    place.write(
        "php-fpm.conf",
        configuration("", "env[WHO] = after\nquux = 1"),
    );
    running.signal(Signal::USR2);
    running.wait_for_log("nothing was changed");
    let log = running.log();
    assert!(log.contains("unknown entry 'quux'"), "{log}");
    assert!(ask(&place, "who.php").ends_with(" before"));
}

#[test]
fn usr2_starts_the_program_that_was_installed_meanwhile_and_loses_no_request() {
    let place = Place::new();
    let bin = place.path("bin");
    fs::create_dir(&bin).unwrap();
    versions::replace(&bin, versions::OWN);
    fs::remove_file(place.weir()).unwrap();
    std::os::unix::fs::symlink(bin.join("weir"), place.weir()).unwrap();
    let pid_file = place.path("fpm.pid");
    let mut running = start(&place, true, "process_control_timeout = 20s", "");
    let first = running.pid;
    let before = children(first);
    let slow = begin_slow(&place);
    versions::replace(&bin, versions::NEXT);
    running.signal(Signal::USR2);
    let mut second = String::new();
    wait_until("another process is in the pid file", || {
        second = fs::read_to_string(&pid_file).unwrap_or_default();
        assert!(!second.is_empty(), "never an empty file");
        second != first.to_string()
    });
    assert!(!ask(&place, "who.php").is_empty());
    assert!(slow.join().unwrap().ends_with("finished"));
    wait_until("the old workers have ended", || {
        before.iter().all(|(pid, _)| !is_alive(*pid))
    });
    let log = running.log();
    assert!(
        log.contains(&format!(
            "weir {} serves (process {second})",
            versions::NEXT
        )),
        "{log}"
    );
    // The process that was started passes the signal on.
    running.signal(Signal::QUIT);
    assert_eq!(running.end().unwrap().code(), Some(0));
    assert!(!is_alive(second.parse().unwrap()));
    assert!(!pid_file.exists() && !place.path("fpm.sock").exists());
}

/// Asks for `/who.php` until `stop`, over a new connection each time or over one that is kept. Notes the answers, each with the
/// time when it was there.
fn ask_again(place: &Place, keep: bool, stop: &AtomicBool, seen: &Mutex<Vec<(Instant, String)>>) {
    let script = place.path("who.php");
    let params = Params::of(&[
        ("SCRIPT_FILENAME", script.to_str().unwrap()),
        ("SCRIPT_NAME", "/who.php"),
        ("REQUEST_METHOD", "GET"),
    ]);
    let request = front::request(1, keep, &params, b"");
    let connect = || {
        let stream = UnixStream::connect(place.path("fpm.sock")).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    };
    let mut stream = connect();
    while !stop.load(Relaxed) {
        let sent = stream.write_all(&request).is_ok();
        let out = if sent {
            answer(&stream).out
        } else {
            String::new()
        };
        if !keep || out.is_empty() {
            stream = connect();
        }
        // A kept connection may be closed at any time.
        if let Some((_, who)) = out.split_once("\r\n\r\n") {
            seen.lock().unwrap().push((Instant::now(), who.to_owned()));
        }
    }
}

/// Who reads that a reload is done may move the old log away, and remove what the old configuration needed.
#[test]
fn nothing_of_the_old_configuration_is_seen_after_a_reload() {
    for weir in [false, true] {
        let place = Place::new();
        let global = "process_control_timeout = 30s";
        let pool = |who: &str| {
            format!(
                "pm.max_children = 8\nenv[WHO] = {who}\naccess.log = @/{who}.log\naccess.format = \"%s\""
            )
        };
        let running = start(&place, weir, global, &pool("old"));
        place.write(
            "who.php",
            "<?php usleep(random_int(0, 300000)); echo getenv('WHO');",
        );
        let (stop, seen) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        let answers = |who: &str| {
            let seen = seen.lock().unwrap();
            seen.iter().filter(|(_, by)| by == who).count()
        };
        let (ready, old_log) = thread::scope(|scope| {
            for keep in [false, false, false, true, true] {
                let (place, stop, seen) = (&place, &stop, &seen);
                scope.spawn(move || ask_again(place, keep, stop, seen));
            }
            wait_until("some are answered", || answers("old") >= 10);
            place.write("php-fpm.conf", configuration(global, &pool("new")));
            running.signal(Signal::USR2);
            running.wait_for_logs("ready to handle connections", 2);
            let (ready, old_log) = (Instant::now(), place.read("old.log"));
            let before = answers("new");
            wait_until("more are answered", || answers("new") >= before + 20);
            stop.store(true, Relaxed);
            (ready, old_log)
        });
        let seen = seen.into_inner().unwrap();
        let late = seen.iter().filter(|(at, by)| *at > ready && by != "new");
        assert_eq!(late.count(), 0, "weir: {weir}");
        assert_eq!(place.read("old.log"), old_log, "weir: {weir}");
        assert!(!place.read("new.log").is_empty());
    }
}

/// PHP-FPM would wait for up to `process_control_timeout`.
#[test]
fn a_script_that_runs_for_long_does_not_keep_a_reload_from_being_done() {
    let place = Place::new();
    let running = start(&place, true, "process_control_timeout = 60s", "");
    place.write(
        "slow.php",
        "<?php touch(__DIR__ . '/tmp/started'); while (!file_exists(__DIR__ . '/go')) { usleep(5000); clearstatcache(); }
         echo 'finished';",
    );
    let slow = begin_slow(&place);
    running.signal(Signal::USR2);
    running.wait_for_logs("ready to handle connections", 2);
    assert!(!slow.is_finished());
    place.write("go", "");
    assert!(slow.join().unwrap().ends_with("finished"));
}

/// Otherwise the process that started a daemon would never hear that it serves.
#[test]
fn a_reload_during_the_start_comes_after_it() {
    let place = Place::new();
    place.write("slow.php", "<?php usleep(1000000);");
    let preload = "php_admin_value[opcache.preload] = @/slow.php";
    let file = place.write("php-fpm.conf", configuration("", preload));
    let mut starter = std::process::Command::new(place.weir())
        .args(["-D", "-y", file.to_str().unwrap()])
        .spawn()
        .unwrap();
    let pid = || place.read("fpm.pid").trim().parse().ok();
    wait_until("the pid file is there", || pid().is_some());
    let running = Running::daemon(&place, pid().unwrap());
    running.signal(Signal::USR2);
    assert!(starter.wait().unwrap().success());
    running.wait_for_logs("ready to handle connections", 2);
    let log = running.log();
    let at = |text: &str| log.find(text).expect("the line");
    assert!(at("ready to handle") < at("Reloading"), "{log}");
}
