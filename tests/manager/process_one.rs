//! weir as process 1 of a container: a namespace of processes of its own (pid_namespaces(7)).

use super::*;

/// Runs weir as process 1. The test's child is unshare(1), which ends with it.
fn contained(site: Setup) -> Setup {
    site.under(&["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
}

/// weir's process, as this namespace knows it.
fn process_one(weir: &Weir) -> u32 {
    let children = weir.children();
    assert_eq!(children.len(), 1, "{children:?}");
    children[0]
}

fn children_of(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains(") Z ")
}

fn site() -> Setup {
    cgi_site()
        .admin()
        // The process that it leaves behind becomes a child of process 1, and ends when the file is there.
        .file(
            "orphan.php",
            "<?php exec('sh -c \"(while [ ! -e ' . __DIR__ . '/end ]; do sleep 0.05; done) > /dev/null 2>&1 & echo\"'); echo 'left';",
        )
}

#[test]
fn process_one_waits_for_processes_of_others_and_ends_when_it_is_asked_to() {
    if !goes_on_as_root() {
        return;
    }
    let mut weir = contained(site()).start();
    let one = process_one(&weir);
    assert_eq!(weir.get("/orphan.php").expect(200).text(), "left");
    let is_orphan = |pid: &u32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.contains("/end ]")
    };
    let mut orphans = Vec::new();
    wait_until("the orphan is a child of process 1", || {
        orphans = children_of(one);
        orphans.retain(is_orphan);
        !orphans.is_empty()
    });
    fs::write(weir.path("root/end"), "").unwrap();
    wait_until("it was waited for", || {
        !orphans.iter().any(|pid| is_alive(*pid))
    });
    wait_until("no zombies", || {
        !children_of(one).into_iter().any(is_zombie)
    });
    assert_eq!(weir.get("/a.txt").expect(200).text(), "hello\n");
    // The kernel gives process 1 only signals that it handles.
    let mut slow = weir.client();
    slow.send("GET /slow.php HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    wait_until("the slow script runs", || {
        weir.path("root/started").exists()
    });
    signal(one, Signal::TERM);
    assert_eq!(slow.response().expect(200).text(), "slow done");
    assert_eq!(weir.wait_for_end().code(), Some(0));
    assert!(!is_alive(one));
}

#[test]
fn process_one_stays_over_an_upgrade_and_passes_signals_on() {
    if !goes_on_as_root() {
        return;
    }
    let mut weir = contained(site()).start();
    let one = process_one(&weir);
    let manager = || weir.status()["manager_pid"].as_u64();
    assert_eq!(manager(), Some(1));
    for _ in 0..2 {
        let before = manager();
        let output = weir.command(&["upgrade"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_ne!(manager(), before);
    }
    assert!(is_alive(one));
    assert_eq!(weir.get("/a.txt").expect(200).text(), "hello\n");
    wait_until("no zombies", || {
        !children_of(one).into_iter().any(is_zombie)
    });
    signal(one, Signal::HUP);
    weir.log_line("reloaded: the new configuration serves");
    signal(one, Signal::TERM);
    assert_eq!(weir.wait_for_end().code(), Some(0));
    assert!(!is_alive(one));
}
