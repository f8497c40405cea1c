//! Many reloads and deaths must leave nothing in the manager.

use std::fs;

use weir_test::process::resident;

use crate::support::*;

#[test]
fn fifty_reloads_leave_no_descriptor_process_or_memory_behind() {
    let site = with_unix_listener(cgi_site())
        .pool("max_children = 1")
        .log("");
    let weir = site.start();
    let reload = || {
        weir.signal(Signal::HUP);
        weir.log_line("reloaded: the new configuration serves");
        settled(&weir, 2);
    };
    // The first reloads fill what the manager keeps: the allocator's pages, the log's buffers.
    (0..10).for_each(|_| reload());
    pid(&weir);
    let (files, memory) = (descriptors(&weir), resident(weir.pid()));
    (0..40).for_each(|_| reload());
    pid(&weir);
    wait_until("no descriptor is left", || descriptors(&weir) <= files);
    wait_until("40 reloads leave no memory behind", || {
        resident(weir.pid()) < memory + (1 << 20)
    });
    assert!(weir.get("/a.txt").text().contains("hello"));
}

#[test]
fn fifty_deaths_of_workers_leave_no_descriptor_or_process_behind() {
    let workers = 25;
    let weir = cgi_site()
        .pool(&format!("max_children = {workers}"))
        .start();
    settled(&weir, workers + 1);
    // A worker takes four descriptors, and one more until it has accepted its connection.
    wait_until("most are ready", || descriptors(&weir) < 5 * workers);
    let files = descriptors(&weir);
    for _ in 0..2 {
        let gateway = weir.gateway().pid;
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
    pid(&weir);
}

#[test]
fn what_a_worker_has_started_does_not_outlive_it_for_nothing() {
    // A shell that waits for a PHP. The PHP has the shell's socket too.
    let site = cgi_site().pool("max_children = 1").pool(&pool_command(&[
        "/bin/sh",
        "-c",
        "php-cgi; true",
    ]));
    let weir = site.start();
    let php = pid(&weir);
    let gateway = weir.gateway().pid;
    let children = weir.children();
    let shell = children.iter().find(|pid| **pid != gateway).unwrap();
    assert_ne!(*shell, php);
    signal(*shell, Signal::KILL);
    wait_until("its PHP has ended", || !is_alive(php));
    assert_ne!(pid(&weir), php);
}

/// Waits until the manager has this many running children.
fn settled(weir: &Weir, processes: usize) {
    wait_until("only what serves is left", || {
        let children = weir.children();
        children.len() == processes && children.iter().all(|pid| is_alive(*pid))
    });
}

fn descriptors(weir: &Weir) -> usize {
    let folder = format!("/proc/{}/fd", weir.pid());
    fs::read_dir(folder).unwrap().count()
}
