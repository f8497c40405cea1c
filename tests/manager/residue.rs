//! Many reloads and deaths must leave nothing in the manager.

use std::fs;

use weir_test::process::resident;

use crate::support::*;

#[test]
fn fifty_reloads_leave_no_descriptor_process_or_memory_behind() {
    let site = Site::new().workers(1).unix_listener().log_files();
    let weir = Weir::start(&site);
    let reload = || {
        signal(weir.process.id(), Signal::HUP);
        weir.log_line("reloaded: the new configuration serves");
        settled(&weir, 2);
    };
    // The first reloads fill what the manager keeps: the allocator's pages, the log's buffers.
    (0..10).for_each(|_| reload());
    weir.get_until("/pid.php", |answer| answer.contains("pid="));
    let (files, memory) = (descriptors(&weir), resident(weir.process.id()));
    (0..40).for_each(|_| reload());
    weir.get_until("/pid.php", |answer| answer.contains("pid="));
    wait_until("no descriptor is left", || descriptors(&weir) <= files);
    let grown = resident(weir.process.id()).saturating_sub(memory);
    assert!(grown < 1 << 20, "{grown} bytes more in 40 reloads");
    assert!(weir.get("/a.txt").contains("hello"));
    weir.stop();
}

#[test]
fn fifty_deaths_of_workers_leave_no_descriptor_or_process_behind() {
    let workers = 25;
    let weir = Weir::start(&Site::new().workers(workers));
    settled(&weir, workers + 1);
    // A worker takes four descriptors, and one more until it has accepted its connection.
    wait_until("most are ready", || descriptors(&weir) < 5 * workers);
    let files = descriptors(&weir);
    for _ in 0..2 {
        let gateway = weir.gateway();
        let before = weir.children();
        // Kill all at once: only the first of their signals is certain to arrive.
        before
            .iter()
            .filter(|pid| **pid != gateway)
            .for_each(|pid| signal(*pid, Signal::KILL));
        for _ in 0..workers {
            weir.log_line("worker died: SIGKILL");
        }
        wait_until("all are replaced", || {
            let now = weir.children();
            now.len() == workers + 1 && now.iter().filter(|pid| before.contains(pid)).count() == 1
        });
    }
    settled(&weir, workers + 1);
    wait_until("the connections are handed over", || {
        descriptors(&weir) <= files
    });
    weir.get_until("/pid.php", |answer| answer.contains("pid="));
    weir.stop();
}

#[test]
fn what_a_worker_has_started_does_not_outlive_it_for_nothing() {
    // A shell that waits for a PHP. The PHP has the shell's socket too.
    let site = Site::new()
        .workers(1)
        .command(&["/bin/sh", "-c", "php-cgi; true"]);
    let weir = Weir::start(&site);
    let php = pid_in(&weir.get_until("/pid.php", |answer| answer.contains("pid=")));
    let gateway = weir.gateway();
    let children = weir.children();
    let shell = children.iter().find(|pid| **pid != gateway).unwrap();
    assert_ne!(*shell, php);
    signal(*shell, Signal::KILL);
    wait_until("its PHP has ended", || !is_alive(php));
    let answer = weir.get_until("/pid.php", |answer| answer.contains("pid="));
    assert_ne!(pid_in(&answer), php);
    weir.stop();
}

/// Waits until the manager has this many running children.
fn settled(weir: &Weir, processes: usize) {
    wait_until("only what serves is left", || {
        let children = weir.children();
        children.len() == processes && children.iter().all(|pid| is_alive(*pid))
    });
}

fn descriptors(weir: &Weir) -> usize {
    let folder = format!("/proc/{}/fd", weir.process.id());
    fs::read_dir(folder).unwrap().count()
}
