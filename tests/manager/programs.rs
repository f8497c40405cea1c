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
    let state = format!("state_dir = \"{}\"", site.path("state").display());
    fs::create_dir(site.path("state")).unwrap();
    site.server(&state)
        .log("access = \"off\"\nlevel = \"debug\"\nerror = \"stderr\"")
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
    let home = home_of(&web_user_or_us());
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
    wait_until("its memory is measured", || {
        let memory = weir.status()["programs"][0]["memory"].as_u64();
        memory.is_some_and(|bytes| (10_000..1 << 30).contains(&bytes))
    });
}

/// The home of a user, as the machine knows it.
fn home_of(user: &str) -> String {
    let output = Command::new("getent")
        .args(["passwd", user])
        .output()
        .unwrap();
    let entry = String::from_utf8(output.stdout).unwrap();
    entry.split(':').nth(5).unwrap().to_owned()
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

#[test]
fn after_an_upgrade_a_slot_is_used_again_when_the_old_weir_has_ended_its_process() {
    let mut weir =
        weir_test::versions::installed(site(&["php", "worker.php"], "instances = 2")).start();
    let first = noted(&weir, "begin", 2);
    fs::write(weir.root().join("job"), "").unwrap();
    weir_test::versions::replace(&weir.path("bin"), weir_test::versions::NEXT);
    let output = weir.command(&["upgrade"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    noted(&weir, "told", 2);
    assert_eq!(weir.status()["programs"][0]["of_earlier_weir"], 2);
    assert!(first.iter().all(|pid| is_alive(*pid)));
    assert_eq!(noted(&weir, "begin", 2).len(), 2, "the old ones still work");
    fs::remove_file(weir.root().join("job")).unwrap();
    let begun = noted(&weir, "begin", 4);
    assert_eq!(noted(&weir, "end", 2).len(), 2);
    assert!(first.iter().all(|pid| !is_alive(*pid)));
    // The processes of the old weir are not children of the new one, and a stop ends all.
    weir.stop();
    assert!(begun.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn a_stop_after_an_upgrade_ends_what_the_old_weir_still_runs() {
    let keys = "schedule = \"0 0 1 1 *\"\n[program.always]\ncommand = [\"sh\", \"-c\", \"trap '' TERM; echo deaf; while :; do sleep 1; done\"]\nstop_timeout = \"3s\"";
    let mut weir = weir_test::versions::installed(site(&["true"], keys)).start();
    weir.log_line("said: deaf");
    weir_test::versions::replace(&weir.path("bin"), weir_test::versions::NEXT);
    let output = weir.command(&["upgrade"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    weir.stop();
    assert!(weir.stderr().contains("still runs (stop_timeout): killed"));
}

#[test]
fn a_stop_at_once_does_not_wait_for_jobs() {
    let mut weir = site(&["php", "worker.php"], "stop_timeout = \"10m\"").start();
    let pid = noted(&weir, "begin", 1)[0];
    fs::write(weir.root().join("job"), "").unwrap();
    weir.signal(Signal::INT);
    assert!(weir.wait_for_end().success());
    assert!(!is_alive(pid));
}

#[test]
fn a_removed_program_ends_and_a_new_one_begins_with_the_reload() {
    let weir = site(&["php", "worker.php"], "").start();
    let first = noted(&weir, "begin", 1)[0];
    let toml = weir
        .read("weir.toml")
        .replace("[program.queue]", "[program.other]");
    fs::write(weir.path("weir.toml"), toml).unwrap();
    reload(&weir);
    noted(&weir, "begin", 2);
    wait_until("the end of the first one", || !is_alive(first));
    let status = weir.status();
    let names: Vec<&str> = status["programs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["other"]);
}

#[test]
fn a_program_with_the_gateways_user_cannot_reach_the_gateway() {
    if !goes_on_as_root() {
        return;
    }
    let user = web_user();
    let weir = site(&["sleep", "600"], "")
        .server(&format!("user = \"{user}\""))
        .start();
    let status = fs::read_to_string(format!("/proc/{}/status", weir.gateway().pid)).unwrap();
    let uid = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .unwrap();
    let own = id(&user).to_string();
    assert!(
        uid.split_whitespace().take(3).all(|one| one != own),
        "{uid}"
    );
}
