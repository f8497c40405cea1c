//! Processes that load PHP for several pools, and masters, are killed at random: no request is lost that can be run again. With
//! `WEIR_CONFORMANCE` in the environment (`make conformance`) this takes a minute.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use weir_test::{Chance, php, process::Process, scaled, wait_for, wait_until, weir::request};

use super::{
    masters, setup,
    shared_load::{ask, extension, load, pools, signal},
};

/// Processes are killed this often.
const EVERY: Duration = Duration::from_millis(100);

#[test]
fn killing_at_random_loses_no_request_that_can_be_run_again() {
    let kills = scaled(20, 600);
    let names = [("a", ""), ("b", ""), ("c", ""), ("d", "")];
    let weir = pools(&names).start();
    for (host, _) in names {
        ask(&weir, host, "/pid.php");
    }
    let done = AtomicBool::new(false);
    let mut chance = Chance(u64::from(std::process::id()));
    let (mut of_templates, mut of_masters) = (0, 0);
    let began = Instant::now();
    let answers = thread::scope(|scope| {
        let clients = names.map(|(host, _)| {
            let (weir, done) = (&weir, &done);
            scope.spawn(move || {
                let mut statuses = Vec::new();
                while !done.load(Relaxed) {
                    let answer = weir.request("GET", "/pid.php", &[("Host", host)], b"");
                    statuses.push(answer.status);
                }
                statuses
            })
        });
        for round in 1..=kills {
            let is_template = chance.below(3) == 0;
            let title = match is_template {
                true => "weir-php: template",
                false => "weir-php: pool ",
            };
            let mut victims = weir.children();
            victims.retain(|pid| command(*pid).starts_with(title));
            if !victims.is_empty() {
                let victim = victims[chance.below(victims.len())];
                let pid = Pid::from_raw(victim.cast_signed()).expect("a process id");
                // It may have ended by itself.
                let is_killed = kill_process(pid, Signal::KILL).is_ok();
                of_templates += usize::from(is_killed && is_template);
                of_masters += usize::from(is_killed && !is_template);
            }
            thread::sleep((EVERY * round).saturating_sub(began.elapsed()));
        }
        done.store(true, Relaxed);
        clients.map(|client| client.join().expect("a client"))
    });
    let all: Vec<u16> = answers.concat();
    let lost: Vec<&u16> = all.iter().filter(|status| **status != 200).collect();
    println!(
        "{} requests in {:.0} s; killed: {of_templates} templates, {of_masters} masters; lost: {}",
        all.len(),
        began.elapsed().as_secs_f64(),
        lost.len()
    );
    assert!(all.len() > 40 && of_masters > 0 && of_templates > 0);
    // A request whose worker was killed is given to one other worker: two may be killed by chance.
    let log = weir.stderr();
    let refused = log.lines().filter(|line| line.contains(" 502 worker_died"));
    let again = |line: &&str| {
        let request = line.split(' ').find(|word| word.starts_with("request="));
        let given = |other: &str| {
            other.contains("given to another worker")
                && other.split(' ').any(|word| Some(word) == request)
        };
        log.lines().any(given)
    };
    assert_eq!(
        lost.len(),
        refused.filter(again).count(),
        "{lost:?} of {}",
        all.len()
    );
    for (host, _) in names {
        ask(&weir, host, "/pid.php");
    }
}

/// The title of a process, also while it loads PHP.
fn command(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

/// An extension that starts only when a file is gone.
const WAITS: &str = r#"
#include <unistd.h>
#include "php.h"
static PHP_MINIT_FUNCTION(waits)
{
    while (access("GATE", F_OK) == 0) {
        usleep(5000);
    }
    return SUCCESS;
}
zend_module_entry waits_module_entry = {STANDARD_MODULE_HEADER, "waits", NULL, PHP_MINIT(waits), NULL, NULL, NULL, NULL, "1",
    STANDARD_MODULE_PROPERTIES};
ZEND_GET_MODULE(waits)
"#;

#[test]
fn requests_wait_for_the_next_master_if_one_is_killed_while_it_loads_php() {
    let setup = setup("").admin();
    let gate = setup.folder().join("gate");
    let source = WAITS.replace("GATE", &gate.display().to_string());
    let (_folder, object) = extension("waits", &source);
    let lines = format!("php_define = {{ extension = \"{}\" }}\n", object.display());
    let weir = setup.pool(&php::own(1, &lines)).start();
    super::pid(&weir);
    // Its name comes with PHP.
    let next = |known: &[Process]| {
        wait_for("the next master", || {
            let all = weir.processes().into_iter();
            all.filter(Process::runs).find(|one| !known.contains(one))
        })
    };
    let known = weir.processes();
    fs::write(&gate, "").unwrap();
    signal(&masters(&weir)[0], Signal::KILL);
    let loads = next(&known);
    let mut client = weir.client();
    client.send(request("GET", "/pid.php", &[], b""));
    wait_until("the request waits", || weir.busy_and_waiting().1 == 1);
    signal(&loads, Signal::KILL);
    next(&[known, vec![loads]].concat());
    fs::remove_file(&gate).unwrap();
    client.response_to("GET").expect(200);
}

#[test]
fn pools_load_php_for_themselves_if_the_process_is_killed_that_they_wait_for() {
    let folder = tempfile::tempdir().unwrap();
    weir_test::weir::mode(folder.path(), 0o755);
    let gate = folder.path().join("gate");
    fs::write(&gate, "").unwrap();
    let source = WAITS.replace("GATE", &gate.display().to_string());
    let (_folder, object) = extension("waits", &source);
    let lines = format!("php_define = {{ extension = \"{}\" }}\n", object.display());
    let names = [("a", lines.as_str()), ("b", lines.as_str())];
    let weir = pools(&names).start();
    let template = wait_for("the process that loads PHP", || {
        let mut all = weir.children().into_iter();
        all.find(|pid| command(*pid).starts_with("weir-php: template"))
    });
    let pid = Pid::from_raw(template.cast_signed()).expect("a process id");
    kill_process(pid, Signal::KILL).expect("a signal");
    weir.wait_for_error(&["the process that loads PHP for all pools was killed"]);
    fs::remove_file(&gate).unwrap();
    for (host, _) in names {
        ask(&weir, host, "/pid.php");
    }
    // A master that did not wait yet is forked from the next template.
    let is_alone = |(host, _): &&(&str, &str)| {
        let why = load(&weir, host)["own"].clone();
        why.as_str()
            .is_some_and(|why| why.contains("ended before it forked"))
    };
    let (alone, _) = names
        .iter()
        .find(is_alone)
        .expect("a pool that loads PHP for itself");
    let output = weir.command(&["pool", alone, "restart"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(load(&weir, alone)["template"].is_u64());
}
