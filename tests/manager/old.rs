//! Replaced configurations: they finish what they began, weir shows them and what keeps them alive, and they end in
//! time.

use std::{fs, thread};

use crate::support::*;

fn shown(weir: &Weir) -> String {
    let output = weir.command(&["status"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How many gateways have the listening socket.
fn accepting(weir: &Weir) -> usize {
    let inodes: Vec<String> = inodes_of_listeners(weir.address())
        .iter()
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let has_it = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let files = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut links = files.into_iter().flatten().flatten();
        name == "weir-gateway\n"
            && links.any(|file| {
                fs::read_link(file.path())
                    .is_ok_and(|link| inodes.iter().any(|i| link.as_os_str() == i.as_str()))
            })
    };
    weir.children().iter().filter(|pid| has_it(pid)).count()
}

/// A script that runs until a file exists.
const HELD: &str = "<?php touch(__DIR__ . '/started-' . $_GET['n']); \
    while (!file_exists(__DIR__ . '/go')) usleep(20000); echo 'held done';";

#[test]
fn more_reloads_cut_nothing_that_an_older_configuration_still_does() {
    let site = cgi_site()
        .file("held.php", HELD)
        .admin()
        .server("shutdown_timeout = \"60s\"\nmax_old_generations = 2");
    let weir = site.start();
    let address = weir.address();
    let reload = || weir.signal(Signal::HUP);
    let mut held = Vec::new();
    for n in 0..3 {
        held.push(thread::spawn(move || {
            get(address, &format!("/held.php?n={n}"))
        }));
        let started = site.path(&format!("root/started-{n}"));
        wait_until("the script has begun", || started.exists());
        reload();
        if n < 2 {
            weir.log_line("reloaded: the new configuration serves");
            wait_until("only the new gateway accepts", || accepting(&weir) == 1);
        }
    }
    // The third reload waits, and so do the later ones: they become one reload.
    let line = weir.log_line("the reload waits: 2 older configurations");
    assert!(line.contains("max_old_generations = 2"), "{line}");
    weir.log_line("has been finishing for");
    (0..5).for_each(|_| reload());
    let mut text = String::new();
    wait_until("it is shown what holds them", || {
        text = shown(&weir);
        text.matches("has been finishing for").count() == 2
            && text.matches("GET /held.php (pool app) has run for").count() >= 2
    });
    assert!(text.contains("reload one is waiting"), "{text}");
    assert!(text.contains("1 requests at workers"), "{text}");
    assert!(held.iter().all(|held| !held.is_finished()));
    fs::write(site.path("root/go"), "").unwrap();
    for held in held {
        assert_eq!(held.join().unwrap().text(), "held done");
    }
    weir.log_line("reloaded: the new configuration serves");
    wait_until("the old ones have ended", || {
        !shown(&weir).contains("has been finishing for")
    });
}

#[test]
fn what_the_end_of_shutdown_timeout_cuts_has_its_line_in_the_access_log() {
    let site = cgi_site()
        .file("held.php", HELD)
        .admin()
        .log("")
        .server("shutdown_timeout = \"1s\"");
    let mut weir = site.start();
    let address = weir.address();
    let begin = |n: u32| {
        let held = thread::spawn(move || {
            let mut client = Client::connect(address);
            client.send(format!("GET /held.php?n={n} HTTP/1.1\r\nHost: x\r\n\r\n"));
            client.rest();
        });
        let started = site.path(&format!("root/started-{n}"));
        wait_until("the script has begun", || started.exists());
        held
    };
    let by_reload = begin(1);
    weir.signal(Signal::HUP);
    weir.log_line("reloaded: the new configuration serves");
    let line = weir.log_line("remaining requests are cut off");
    assert!(
        line.contains("GET /held.php (pool app) has run for"),
        "{line}"
    );
    by_reload.join().unwrap();
    weir.wait_for_line("log/access.log", &["/held.php?n=1"]);
    let by_stop = begin(2);
    weir.signal(Signal::TERM);
    assert!(weir.wait_for_end().success());
    by_stop.join().unwrap();
    let log = weir.read("log/access.log");
    for n in [1, 2] {
        let line = log
            .lines()
            .find(|line| line.contains(&format!("/held.php?n={n} ")));
        let line = line.unwrap_or_else(|| panic!("{log}"));
        assert!(line.contains(" 503 ") || line.contains(" 502 "), "{line}");
    }
}
