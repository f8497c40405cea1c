//! Programs beside the pools: what is started with which rights, and how processes are replaced and ended.

mod failures;
mod schedule;

use std::{fs, path::Path};

use super::*;

/// Does jobs until it is told to end, and finishes the present one. It notes begin and end with its process.
const WORKER: &str = "<?php
    $say = fn ($what) => file_put_contents(__DIR__ . '/notes', \"$what \" . getmypid() . \"\\n\", FILE_APPEND | LOCK_EX);
    pcntl_async_signals(true);
    $ends = false;
    pcntl_signal(SIGTERM, function () use (&$ends, $say) { $say('told'); $ends = true; });
    $say('begin');
    while (!$ends || file_exists(__DIR__ . '/job')) usleep(10000);
    $say('end');";

/// A site with a program `queue`. `keys` are the other lines of its table.
fn site(command: &[&str], keys: &str) -> Setup {
    let site = site_without_pool().admin().file("worker.php", WORKER);
    fs::write(site.root().join("notes"), "").unwrap();
    mode(&site.root().join("notes"), 0o666);
    let root = site.root();
    let root = root.display();
    let line = match is_root() {
        true => format!("user = \"{}\"\n", web_user()),
        false => String::new(),
    };
    site.log("access = \"off\"\nlevel = \"debug\"\nerror = \"stderr\"")
        .more(&format!(
            "[program.queue]\ncommand = {command:?}\nchdir = \"{root}\"\n{line}{keys}\n"
        ))
}

/// What the workers have noted: each word with its process.
fn notes(root: &Path) -> Vec<(String, u32)> {
    let text = fs::read_to_string(root.join("notes")).unwrap();
    let note = |line: &str| {
        let (what, pid) = line.split_once(' ').unwrap();
        (what.to_owned(), pid.parse().unwrap())
    };
    text.lines().map(note).collect()
}

/// Waits for so many notes of this word; returns their processes.
fn noted(weir: &Weir, what: &str, count: usize) -> Vec<u32> {
    let mut found = Vec::new();
    wait_until(&format!("{count} times {what}"), || {
        let notes = notes(&weir.root()).into_iter();
        found = notes
            .filter(|(word, _)| word == what)
            .map(|(_, pid)| pid)
            .collect();
        found.len() >= count
    });
    found
}

fn reload(weir: &Weir) {
    let output = weir.command(&["reload"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_program_has_its_user_folder_and_environment_and_what_it_prints_is_logged() {
    let script =
        "id -u; pwd; echo $HOME:$SHOP:$WEIR_TEST_SECRET:; ulimit -n; echo oops >&2; exec sleep 60";
    let keys = "env = { SHOP = \"x y\" }\nrlimit_files = 77";
    let weir = site(&["sh", "-c", script], keys).start();
    let root = weir.root().canonicalize().unwrap();
    let home = match is_root() {
        true => "/var/www".to_owned(),
        false => std::env::var("HOME").unwrap(),
    };
    for line in [
        format!("said: {}", id(&web_user_or_us())),
        format!("said: {}", root.display()),
        format!("said: {home}:x y::"),
        "said: 77".to_owned(),
    ] {
        let found = weir.log_line(&line);
        assert!(
            found.contains("notice") && found.contains("program=queue pid="),
            "{found}"
        );
    }
    assert!(weir.log_line("said: oops").contains("warning"));
}

fn web_user_or_us() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    match is_root() {
        true => web_user().to_owned(),
        false => String::from_utf8(output.stdout).unwrap().trim().to_owned(),
    }
}

#[test]
fn instances_always_run_and_are_replaced_one_for_one_at_a_reload() {
    let weir = site(&["php", "worker.php"], "instances = 2").start();
    let first = noted(&weir, "begin", 2);
    signal(first[0], Signal::KILL);
    weir.log_line("program failed: SIGKILL");
    let begun = noted(&weir, "begin", 3);
    // One of them is in the middle of a job.
    fs::write(weir.root().join("job"), "").unwrap();
    reload(&weir);
    noted(&weir, "told", 2);
    assert!(is_alive(begun[1]) && is_alive(begun[2]));
    assert_eq!(noted(&weir, "begin", 3).len(), 3, "the old ones still work");
    fs::remove_file(weir.root().join("job")).unwrap();
    let begun = noted(&weir, "begin", 5);
    noted(&weir, "end", 2);
    let mut running: Vec<&u32> = begun.iter().filter(|pid| is_alive(**pid)).collect();
    running.dedup();
    assert_eq!(running.len(), 2);
}

#[test]
fn a_stop_lets_a_job_finish_and_kills_what_does_not_end() {
    let mut weir = site(&["php", "worker.php"], "").start();
    noted(&weir, "begin", 1);
    fs::write(weir.root().join("job"), "").unwrap();
    weir.signal(Signal::TERM);
    noted(&weir, "told", 1);
    // The gateway has nothing to do, and weir waits for the program all the same.
    wait_until("the gateway has ended", || weir.children().len() == 1);
    fs::remove_file(weir.root().join("job")).unwrap();
    assert!(weir.wait_for_end().success());
    assert_eq!(noted(&weir, "end", 1).len(), 1);

    let script = "trap '' TERM; echo deaf; while :; do sleep 1; done";
    let weir = site(&["sh", "-c", script], "stop_timeout = \"300ms\"").start();
    weir.log_line("said: deaf");
    drop(weir);
}
