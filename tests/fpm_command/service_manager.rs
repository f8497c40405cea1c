//! The messages of both programs to systemd (sd_notify(3)), and its watchdog.

use std::{
    os::unix::net::UnixDatagram,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    starts::configuration,
    support::{Place, Running, get, say, wait_until},
    transcript::Subject,
};

/// Replaces numbers that depend on time: `0.97req/sec`, and numbers of processes that are still changing.
fn without_rate(message: &str) -> String {
    match message.rsplit_once("Traffic: ") {
        Some((before, rate)) => {
            let number = rate.strip_suffix("req/sec").expect("a rate");
            let (_, decimals) = number.split_once('.').expect("decimals");
            assert_eq!(decimals.len(), 2, "{message}");
            format!("{before}Traffic: Nreq/sec")
        }
        None => message.to_owned(),
    }
}

/// Starts one of the two programs. Returns its first message, and the first one that mentions three requests.
fn heard(weir: bool, global: &str, environment: &[(&str, &str)]) -> [String; 2] {
    let place = Place::new();
    place.write("php-fpm.conf", configuration(global, ""));
    let script = place.write("a.php", "<?php echo 'served';");
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let path = place.path("notify");
    let environment = [environment, &[("NOTIFY_SOCKET", path.to_str().unwrap())]].concat();
    let program = Subject::program(weir, &place);
    let running = Running::start_in(&program, &place, &[], &environment);
    for _ in 0..3 {
        get(&place.path("fpm.sock"), &script, "/a.php");
    }
    let mut messages = Vec::new();
    loop {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).unwrap();
        let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let message = message.replace(&running.pid.to_string(), "PID");
        let is_it = message.contains("active: 0, idle: 2, Requests: 3");
        messages.push(without_rate(&message));
        if is_it {
            return [messages[0].clone(), messages.pop().unwrap()];
        }
    }
}

#[test]
fn systemd_hears_what_workers_do_in_php_fpm_s_words() {
    for (global, environment) in [
        ("systemd_interval = 1", &[][..]),
        ("", &[("WATCHDOG_USEC", "2400000")]),
    ] {
        let [fpm, weir] = [false, true].map(|weir| heard(weir, global, environment));
        assert_eq!(weir, fpm, "{global}");
        let watchdog = weir[1].contains("WATCHDOG=1\n");
        assert_eq!(watchdog, !environment.is_empty(), "{weir:?}");
    }
}

#[test]
fn the_watchdog_s_period_is_told_as_php_fpm_tells_it() {
    let place = Place::new();
    for (global, micros) in [
        ("", "0"),
        ("", "2000000"),
        ("", "3000000"),
        ("systemd_interval = 5", "3000000"),
        ("systemd_interval = 0", "24690000"),
        ("", "246900000"),
        ("", "2469000000"),
        ("", "20000000"),
    ] {
        let file = place.write("php-fpm.conf", configuration(global, ""));
        let file = file.to_str().unwrap();
        let [fpm, weir] = [false, true].map(|weir| {
            let program = Subject::program(weir, &place);
            let variable = format!("WATCHDOG_USEC={micros}");
            let program = program.to_str().unwrap();
            say(
                "/usr/bin/env".as_ref(),
                &[&variable, program, "-tt", "-y", file],
            )
        });
        assert_eq!(weir, fpm, "{global} {micros}");
    }
}

/// The numbers of processes on the status page when the service manager has heard that the program is ready: at the start
/// and after a reload. `expected`: children of PHP-FPM are in the numbers when they wait for their first request. One of the
/// pool's own processes answers if `process.max` leaves none for `pm.status_listen`.
fn processes_at_ready(weir: bool, global: &str, pool: &str, expected: u64) -> [u64; 2] {
    let place = Place::new();
    let pool = format!("{pool}\npm.status_path = /status\npm.status_listen = @/status.sock");
    let file = place.write("php-fpm.conf", configuration(global, &pool));
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut child = Command::new(Subject::program(weir, &place))
        .args(["-F", "-y", file.to_str().unwrap()])
        .env("NOTIFY_SOCKET", place.path("notify"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ready = || {
        let mut buffer = [0; 1024];
        loop {
            let length = socket.recv(&mut buffer).unwrap();
            if buffer[..length].starts_with(b"READY=1") {
                return;
            }
        }
    };
    let total = || {
        let at = if global.is_empty() {
            "status.sock"
        } else {
            "fpm.sock"
        };
        let page = get(&place.path(at), "/status".as_ref(), "/status?json");
        let (_, body) = page.out.split_once("\r\n\r\n").expect("a page");
        let page: serde_json::Value = serde_json::from_str(body).expect("JSON");
        page["total processes"].as_u64().expect("a number")
    };
    let counted = || {
        if !weir {
            wait_until("the children wait for requests", || total() == expected);
        }
        total()
    };
    ready();
    let first = counted();
    kill_process(Pid::from_child(&child), Signal::USR2).unwrap();
    ready();
    let second = counted();
    kill_process(Pid::from_child(&child), Signal::QUIT).unwrap();
    assert!(child.wait().unwrap().success());
    let log = place.read("error.log");
    assert!(!log.contains("still missing"), "{log}");
    [first, second]
}

#[test]
fn the_processes_of_the_start_are_there_when_it_is_ready() {
    for (global, pool, expected) in [
        ("", "pm.max_children = 20", 20),
        (
            "",
            "pm = dynamic\npm.max_children = 30\npm.start_servers = 15\npm.min_spare_servers = 10\n\
             pm.max_spare_servers = 20",
            15,
        ),
        ("", "pm = ondemand", 0),
        // weir does not wait for workers that cannot be started.
        ("process.max = 3", "pm.max_children = 20", 3),
    ] {
        let [fpm, weir] =
            [false, true].map(|weir| processes_at_ready(weir, global, pool, expected));
        assert_eq!(weir, fpm, "{global} {pool}");
    }
}

/// The message with the figures says READY=1, too. During a reload the watchdog still wants to hear.
#[test]
fn nothing_says_that_it_is_ready_before_it_is() {
    let place = Place::new();
    place.write(
        "slow.php",
        "<?php usleep(1500000); while (!file_exists('@/gate')) { usleep(5000); clearstatcache(); }",
    );
    let gate = place.write("gate", "");
    let preload = "php_admin_value[opcache.preload] = @/slow.php";
    let file = place.write(
        "php-fpm.conf",
        configuration("systemd_interval = 1", preload),
    );
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut child = Command::new(place.weir())
        .args(["-F", "-y", file.to_str().unwrap()])
        .env("NOTIFY_SOCKET", place.path("notify"))
        .env("WATCHDOG_USEC", "200000")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // What is said up to this.
    let until = |text: &str| {
        let mut heard = Vec::new();
        loop {
            let mut buffer = [0; 1024];
            let length = socket.recv(&mut buffer).unwrap();
            let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
            heard.push(message);
            if heard.last().is_some_and(|message| message.contains(text)) {
                return heard;
            }
        }
    };
    let ready = "STATUS=Ready to handle connections";
    assert_eq!(until(ready).len(), 1);
    std::fs::remove_file(&gate).unwrap();
    kill_process(Pid::from_child(&child), Signal::USR2).unwrap();
    until("RELOADING=1");
    // The new PHP is not loaded before the watchdog was told once. On a busy machine that takes a while.
    let mut during = until("WATCHDOG=1");
    place.write("gate", "");
    during.extend(until(ready));
    during.pop();
    kill_process(Pid::from_child(&child), Signal::QUIT).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(
        during.iter().all(|message| message == "WATCHDOG=1"),
        "{during:?}"
    );
}
