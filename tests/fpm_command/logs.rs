//! The bytes of the error log: the messages of PHP, and what scripts and their children write.

use std::{fs, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};
use weir_test::Chance;

use crate::{
    support::{Running, children, wait_until},
    transcript::{Subject, assert_same},
};

/// Settings that change the format of the log: global ones, and ones of the pool.
const WAYS: &[(&str, &str)] = &[
    ("", ""),
    ("log_limit = 512", ""),
    ("log_limit = 2000", "decorate_workers_output = no"),
    ("log_buffering = no", ""),
    (
        "log_buffering = no\nlog_limit = 777",
        "decorate_workers_output = no",
    ),
    ("log_level = error", ""),
    ("log_level = warning\nlog_limit = 8192", ""),
];

const SPEAKS: &[(&str, &str)] = &[
    (
        "logs.php",
        "<?php error_log('hello'); error_log(\"a\\nb\\r\\nc\\0d\\x1b[1m \u{fc}\\xff\"); error_log(''); error_log(\"\\n\");
         ini_set('error_log', 'php://stderr'); error_log('as a stream'); ini_restore('error_log');
         error_log('type 4', 4); echo $nothing; trigger_error('mine', E_USER_DEPRECATED);",
    ),
    (
        "throws.php",
        "<?php function f($x) { throw new Exception(\"boo\\nhoo\"); } f(str_repeat('y', 100));",
    ),
    ("fatal.php", "<?php require '/nowhere/at/all.php';"),
    ("memory.php", "<?php ini_set('memory_limit', '4M'); $a = str_repeat('x', 1 << 24);"),
    ("syntax.php", "<?php this is none"),
    (
        "late.php",
        "<?php fastcgi_finish_request(); error_log('after the answer');
         register_shutdown_function(function () { error_log('at the end'); throw new Error('late'); });
         class D { function __destruct() { error_log('destroyed'); fwrite(fopen('php://stderr', 'w'), 'open end'); } }
         $GLOBALS['d'] = new D;",
    ),
    (
        "joined.php",
        "<?php $e = fopen('php://stderr', 'w'); fwrite($e, 'one '); error_log('message'); fwrite($e, 'two ');",
    ),
    (
        "child.php",
        "<?php system('echo whole >&2; printf open >&2'); fwrite(fopen('php://stderr', 'w'), ' end');",
    ),
    ("long.php", "<?php error_log(str_repeat('0123456789', (int) $_GET['tens']) . $_GET['rest']);"),
    ("none.txt", "is no script"),
];

#[test]
fn what_php_says_is_in_the_log_as_php_fpm_writes_it() {
    for (global, pool) in WAYS {
        let mut both = [false, true].map(|weir| Subject::start(weir, global, pool, SPEAKS));
        let mut uris: Vec<String> = SPEAKS.iter().map(|(name, _)| format!("/{name}")).collect();
        uris.push("/missing.php".into());
        // Lengths around the limits.
        for tens in [48, 75, 98, 99, 100, 101, 197, 330] {
            for rest in ["", "abcdefg"] {
                uris.push(format!("/long.php?tens={tens}&rest={rest}"));
            }
        }
        for uri in uris {
            let [fpm, weir] = both.each_mut().map(|subject| {
                let told = subject.ask(&uri).err;
                (subject.plain(told.as_bytes()), subject.news())
            });
            let what = format!("{global:?}, {pool:?}, {uri}");
            assert_same(&weir.1, &fpm.1, &what);
            assert_same(&weir.0, &fpm.0, &format!("{what}, to the web server"));
        }
    }
}

const PIECES: &[&str] = &[
    "a",
    "bc",
    "def ",
    "\u{e4}",
    "\u{20ac}",
    "\u{1f600}",
    "\\",
    "\"",
    "\r",
    "\t",
    "\u{1b}[0m",
    "\u{202e}",
    "0123456789",
];

/// A write of this many bytes or slightly more.
fn text(chance: &mut Chance, length: usize, newlines: usize) -> Vec<u8> {
    let mut text = Vec::new();
    while text.len() < length {
        match chance.below(40) {
            0 if newlines > 0 => text.push(b'\n'),
            1 => text.push(0),
            2 => text.push(0xff),
            _ => text.extend(PIECES[chance.below(PIECES.len())].as_bytes()),
        }
    }
    // If a write ends like this, PHP-FPM may take a half of its mark for a whole one.
    while text.last() == Some(&0) {
        text.pop();
    }
    text
}

/// Writes to standard output or standard error, in pieces, as the query says.
const WRITES: &str = "<?php
    $to = fopen('php://' . $_GET['to'], 'w');
    foreach (explode(' ', file_get_contents(__DIR__ . '/writes')) as $write) fwrite($to, base64_decode($write));";

#[test]
fn what_scripts_write_is_cut_and_joined_as_php_fpm_does() {
    for (way, (global, pool)) in WAYS.iter().enumerate() {
        let mut both =
            [false, true].map(|weir| Subject::start(weir, global, pool, &[("w.php", WRITES)]));
        for round in 0..25 {
            let mut chance = Chance(round * 7919 + way as u64);
            let count = 1 + chance.below(4);
            let longest = [40, 600, 1100, 3300][chance.below(4)];
            let newlines = chance.below(2);
            let writes: Vec<String> = (0..count)
                .map(|_| {
                    let length = 1 + chance.below(longest);
                    let mut text = text(&mut chance, length, newlines);
                    if chance.below(3) == 0 {
                        text.push(b'\n');
                    }
                    base64(&text)
                })
                .collect();
            let to = ["stderr", "stderr", "stdout"][chance.below(3)];
            compare(
                &mut both,
                &writes.join(" "),
                to,
                &format!("{global:?}, {pool:?}, {round}"),
            );
        }
    }
}

/// Every length around the size that PHP-FPM reads at once, and around its limit.
#[test]
fn writes_of_all_lengths_around_the_limits_are_as_php_fpm_s() {
    for (global, pool) in [
        ("", ""),
        ("log_buffering = no", ""),
        ("", "decorate_workers_output = no"),
    ] {
        let mut both =
            [false, true].map(|weir| Subject::start(weir, global, pool, &[("w.php", WRITES)]));
        let around = |length: usize| length - 6..length + 3;
        let lengths = (1..4).chain(around(512)).chain((920..980).step_by(3));
        for length in lengths.chain(1010..1040).chain(around(2046)).chain([3300]) {
            let mut text = vec![b'x'; length];
            for end in ["", "\n"] {
                text.truncate(length);
                text.extend(end.as_bytes());
                compare(
                    &mut both,
                    &base64(&text),
                    "stderr",
                    &format!("{global:?}, {length} {end:?}"),
                );
            }
        }
    }
}

/// Tries once more if they differ: PHP-FPM's own bytes may depend on when it reads, and lengths on those of process
/// ids.
#[track_caller]
fn compare(both: &mut [Subject; 2], writes: &str, to: &str, what: &str) {
    for attempt in 0..4 {
        let [fpm, weir] = both.each_mut().map(|subject| {
            subject.place.write("writes", writes);
            subject.ask(&format!("/w.php?to={to}"));
            subject.news()
        });
        if weir == fpm {
            return;
        }
        if attempt == 3 {
            assert_same(&weir, &fpm, &format!("{what}, {to}: {writes}"));
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let mut three = [0; 3];
        three[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at > chunk.len() { '=' } else { digit as char });
        }
    }
    out
}

/// The last output of a worker that ends: PHP-FPM reads it together with the end of the pipe.
#[test]
fn the_last_words_of_a_worker_are_told_as_php_fpm_tells_them() {
    let scripts = [(
        "dies.php",
        "<?php $e = fopen('php://stderr', 'w'); fwrite($e, $_GET['says']); posix_kill(getmypid(), 9); sleep(5);",
    )];
    for (global, says) in [
        ("", "bye".to_owned()),
        ("log_buffering = no", "bye".to_owned()),
        ("", "a whole line%0A".to_owned()),
        ("", "x".repeat(935)),
        ("log_buffering = no", "x".repeat(935)),
        ("log_level = error", "bye".to_owned()),
    ] {
        let [fpm, weir] = [false, true].map(|weir| {
            let mut subject = Subject::start(weir, global, "pm.status_path = /status", &scripts);
            let worker = worker(subject.running.pid, weir);
            if weir {
                // The gateway must have the worker before the test stops the manager. weir's page needs no worker,
                // PHP-FPM's does.
                wait_until("the gateway has the worker", || {
                    subject
                        .ask("/status?json")
                        .out
                        .contains("\"total processes\":1")
                });
            }
            subject.running.signal(Signal::STOP);
            if weir {
                // The gateway waits until the worker is replaced.
                let place = subject.place.path("");
                let uri = format!("/dies.php?says={says}");
                let _ = std::thread::spawn(move || {
                    crate::support::get(&place.join("fpm.sock"), &place.join("dies.php"), &uri)
                });
            } else {
                subject.ask(&format!("/dies.php?says={says}"));
            }
            // All of its threads must have ended: a thread that is still ending keeps the pipe open.
            let threads =
                || fs::read_dir(format!("/proc/{worker}/task")).map_or(0, Iterator::count);
            wait_until("the worker is dead", || {
                !crate::support::is_alive(worker) && threads() <= 1
            });
            subject.running.signal(Signal::CONT);
            let news = subject.news();
            let lines = news.split_inclusive(|byte| *byte == b'\n');
            // weir's own messages about the request differ from PHP-FPM's.
            let lines =
                lines.filter(|line| !line.windows(15).any(|part| part == b"502 worker_died"));
            lines.collect::<Vec<_>>().concat()
        });
        assert_same(&weir, &fpm, &format!("{global:?}, {says:?}"));
    }
}

/// The process id of the pool's only worker.
fn worker(master: u32, weir: bool) -> u32 {
    let mut found = None;
    wait_until("there is a worker", || {
        let mut all = children(master);
        if weir {
            all = all.iter().flat_map(|(child, _)| children(*child)).collect();
        }
        found = all
            .iter()
            .find(|(_, line)| line == "php-fpm: pool www")
            .map(|(pid, _)| *pid);
        found.is_some()
    });
    found.unwrap()
}

/// Output after the end of the request: from a process that the script has started.
#[test]
fn what_children_of_a_script_write_later_is_told() {
    let scripts = [(
        "starts.php",
        "<?php proc_open('read x < ' . __DIR__ . '/go; echo from the child >&2; echo > ' . __DIR__ . '/went', [], $pipes);",
    )];
    let [fpm, weir] = [false, true].map(|weir| {
        let mut subject = Subject::start(weir, "", "", &scripts);
        let (go, went) = (subject.place.path("go"), subject.place.path("went"));
        for fifo in [&go, &went] {
            let made = std::process::Command::new("mkfifo")
                .args(["-m", "666"])
                .arg(fifo)
                .status();
            assert!(made.unwrap().success());
        }
        subject.ask("/starts.php");
        fs::write(go, "go\n").unwrap();
        fs::read(went).unwrap();
        subject.news()
    });
    assert_same(&weir, &fpm, "a child");
    assert!(String::from_utf8_lossy(&weir).contains("\"from the child\""));
}

/// The container images' configuration: the log is standard error, by its name in /proc.
#[test]
fn a_log_that_is_standard_error_has_what_php_says() {
    for (log, arguments) in [
        ("/proc/self/fd/2", &[][..]),
        ("/dev/stderr", &[]),
        ("@/other.log", &["-O"]),
    ] {
        let [fpm, weir] = [false, true].map(|weir| {
            let place = Subject::place(weir, &format!("error_log = {log}"), "", SPEAKS);
            let stderr = fs::File::options()
                .append(true)
                .create(true)
                .open(place.path("stderr"))
                .unwrap();
            let program = Subject::program(weir, &place);
            let running =
                Running::start_with(&program, &place, arguments, Stdio::from(stderr), "stderr");
            let mut subject = Subject::of(place, running);
            subject.ask("/logs.php");
            subject.ask("/throws.php");
            subject.news()
        });
        assert_same(&weir, &fpm, log);
        let text = String::from_utf8_lossy(&weir).into_owned();
        assert!(
            text.contains("said into stderr: \"NOTICE: PHP message: hello\"\n"),
            "{text}"
        );
    }
}

/// Start, reload, reopened logs and end.
#[test]
fn a_reload_is_told_with_its_command_and_its_sockets() {
    let other = "access.log = @/access.log\n[other]\nuser = $USER\nlisten = 127.0.0.1:0\npm = static\n\
                 pm.max_children = 1";
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let any = std::net::TcpListener::bind("[::]:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let other = other.replace("$USER", &crate::support::web_user());
    let other = other.replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    let third = other.split_once("[other]").unwrap().1;
    let third = third.replace(&format!("127.0.0.1:{port}"), &any.to_string());
    let pools = format!("{other}\n[third]{third}");
    let [fpm, weir] = [false, true].map(|weir| {
        let subject = Subject::start(weir, "", &pools, &[]);
        subject.running.signal(Signal::USR2);
        subject
            .running
            .wait_for_logs("ready to handle connections", 2);
        subject
            .running
            .wait_for_logs("systemd monitor interval set to 10000ms", 2);
        let log = subject.running.raw_log();
        let program = Subject::program(weir, &subject.place);
        let log = String::from_utf8(subject.plain(&log)).unwrap();
        let program = program.to_str().unwrap();
        let folder = subject.place.path("").to_str().unwrap().to_owned();
        log.replace(&program.replace(&folder, "@/"), "PROGRAM")
    });
    assert_same(weir.as_bytes(), fpm.as_bytes(), "a reload");
    assert!(
        weir.contains(
            "reloading: execvp(\"PROGRAM\", {\"PROGRAM\", \"-F\", \"-y\", \"@/php-fpm.conf\"})"
        ),
        "{weir}"
    );
    assert_eq!(
        weir.matches("using inherited socket fd=N").count(),
        3,
        "{weir}"
    );
}

/// A process that stops the worker of a test by its number.
#[test]
fn a_worker_that_ends_while_it_writes_loses_no_line_before() {
    let scripts = [(
        "writes.php",
        "<?php $e = fopen('php://stderr', 'w'); foreach (range(1, 40) as $n) fwrite($e, \"line $n\\n\");
         echo getmypid(); ob_end_flush(); flush(); fastcgi_finish_request(); sleep(20);",
    )];
    let [fpm, weir] = [false, true].map(|weir| {
        let mut subject = Subject::start(weir, "", "", &scripts);
        let answer = subject.ask("/writes.php").out;
        let pid: i32 = answer
            .rsplit("\r\n")
            .next()
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        subject.news()
    });
    assert_same(&weir, &fpm, "forty lines");
}
