//! The messages of both programs to systemd (sd_notify(3)), and its watchdog.

use std::{os::unix::net::UnixDatagram, time::Duration};

use crate::{
    starts::configuration,
    support::{Place, Running, get, say},
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
