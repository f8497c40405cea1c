//! The bytes of both logs: removes what differs in every run.

use std::{fs, path::PathBuf, process::Command, time::Instant};

use crate::{
    starts::configuration,
    support::{Answer, LIMIT, PHP_FPM, Place, Running, get},
};

/// One of the two programs with one worker, and how much of its log was read.
pub struct Subject {
    pub place: Place,
    pub running: Running,
    seen: usize,
    asked: usize,
}

/// Writes a line to the log. When it is there, everything before it is there, too.
const DONE: &str = "<?php error_log('done-' . $_GET['n']);";

impl Subject {
    pub fn start(weir: bool, global: &str, pool: &str, scripts: &[(&str, &str)]) -> Self {
        pass_change_of_pid_width();
        let place = Self::place(weir, global, pool, scripts);
        let running = Running::start(&Self::program(weir, &place), &place, &[]);
        Self::of(place, running)
    }

    pub fn place(weir: bool, global: &str, pool: &str, scripts: &[(&str, &str)]) -> Place {
        let _ = weir;
        let place = Place::new();
        let pool = format!("pm.max_children = 1\ncatch_workers_output = yes\n{pool}");
        place.write("php-fpm.conf", configuration(global, &pool));
        for (name, text) in scripts.iter().chain(&[("done.php", DONE)]) {
            place.write(name, text);
        }
        place
    }

    pub fn program(weir: bool, place: &Place) -> PathBuf {
        if weir { place.weir() } else { PHP_FPM.clone() }
    }

    pub fn of(place: Place, running: Running) -> Self {
        let seen = running.raw_log().len();
        Self {
            place,
            running,
            seen,
            asked: 0,
        }
    }

    pub fn ask(&self, uri: &str) -> Answer {
        let path = uri.split('?').next().unwrap();
        get(
            &self.place.path("fpm.sock"),
            &self.place.path(&path[1..]),
            uri,
        )
    }

    /// Returns the new part of the log, when all messages until now are in it.
    pub fn news(&mut self) -> Vec<u8> {
        self.asked += 1;
        let done = format!("done-{}", self.asked);
        self.ask(&format!("/done.php?n={}", self.asked));
        let until = Instant::now() + LIMIT;
        loop {
            let log = self.running.raw_log();
            // The line is complete, and so is everything before it.
            let place = log[self.seen..]
                .windows(done.len())
                .position(|bytes| bytes == done.as_bytes())
                .map(|at| self.seen + at)
                .filter(|at| log[*at..].contains(&b'\n'));
            if let Some(at) = place {
                let end = at + log[at..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
                let news = log[self.seen..end].to_vec();
                self.seen = end;
                return self.plain(&news);
            }
            let log = String::from_utf8_lossy(&log).into_owned();
            assert!(Instant::now() < until, "{done} is not in the log:\n{log}");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// The log without times, process ids and the folder.
    pub fn plain(&self, log: &[u8]) -> Vec<u8> {
        let folder = self.place.path("").to_str().unwrap().to_owned();
        let log = replace(log, folder.as_bytes(), b"@/");
        let mut out = Vec::new();
        for line in log.split_inclusive(|byte| *byte == b'\n') {
            let time = line.starts_with(b"[") && line.get(3) == Some(&b'-');
            match line.iter().position(|byte| *byte == b']') {
                Some(end) if time => {
                    out.extend(b"[T");
                    out.extend(&line[end..]);
                }
                _ => out.extend(line),
            }
        }
        let mut plain = out;
        for before in ["child ", "pid ", "after ", "fd="] {
            plain = without_numbers(&plain, before.as_bytes());
        }
        plain
    }
}

/// Long lines of the log are cut by length, and the process id counts. So the ids of both programs must have the same
/// number of digits: if the next ids get one digit more, they are used up here.
fn pass_change_of_pid_width() {
    /// More processes than all tests together start between the first program of a pair and the last worker of the
    /// second.
    const MARGIN: u32 = 2_000;
    let last = || -> u32 {
        let load = fs::read_to_string("/proc/loadavg").unwrap();
        load.split_whitespace()
            .last()
            .unwrap()
            .parse::<u32>()
            .unwrap()
            .max(1)
    };
    let digits = last().ilog10() + 1;
    while last().ilog10() + 1 == digits && 10u32.pow(digits) - last() < MARGIN {
        Command::new("true").status().unwrap();
    }
}

/// `child 4711` → `child N`
pub fn without_numbers(text: &[u8], before: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(before) {
            out.extend(before);
            at += before.len();
            let number = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
            let digits = text[at..].iter().take_while(number).count();
            if digits > 0 {
                out.push(b'N');
            }
            at += digits;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

pub fn replace(text: &[u8], what: &[u8], by: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(what) {
            out.extend(by);
            at += what.len();
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

/// Fails if the two differ, and shows the first difference.
#[track_caller]
pub fn assert_same(weir: &[u8], fpm: &[u8], what: &str) {
    if weir == fpm {
        return;
    }
    let same = weir.iter().zip(fpm).take_while(|(a, b)| a == b).count();
    let around = |text: &[u8]| {
        let from = same.saturating_sub(120);
        let to = (same + 200).min(text.len());
        text[from.min(to)..to].escape_ascii().to_string()
    };
    panic!(
        "{what}: the same up to byte {same} (weir: {}, php-fpm: {})\nweir:    {}\nphp-fpm: {}",
        weir.len(),
        fpm.len(),
        around(weir),
        around(fpm)
    );
}
