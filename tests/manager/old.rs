//! Replaced configurations: they finish what they began, weir shows them and what keeps them alive, and they end in
//! time.

use std::{fs, process::Command, thread};

use crate::support::*;

fn text(site: &Site, server: &str) -> String {
    let window = site.path("admin.sock");
    site.text().replace(
        "admin = \"off\"",
        &format!("admin = \"unix:{}\"\n{server}", window.display()),
    )
}

fn status(site: &Site) -> String {
    let window = format!("unix:{}", site.path("admin.sock").display());
    let output = Command::new(program())
        .args(["status", "--admin", &window])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How many gateways have the listening socket.
fn accepting(weir: &Weir) -> usize {
    let port = format!(":{:04X}", weir.port);
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let inodes: Vec<String> = table
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let listens = fields.get(1)?.ends_with(&port) && *fields.get(3)? == "0A";
            listens.then(|| format!("socket:[{}]", fields[9]))
        })
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
    let site = Site::new().workers(2);
    fs::write(site.path("site/held.php"), HELD).unwrap();
    let weir = Weir::start_with(
        &site,
        &text(&site, "shutdown_timeout = \"60s\"\nmax_old_generations = 2"),
    );
    let port = weir.port;
    let reload = || signal(weir.process.id(), Signal::HUP);
    let mut held = Vec::new();
    for n in 0..3 {
        held.push(thread::spawn(move || {
            get(port, &format!("/held.php?n={n}"))
        }));
        let started = site.path(&format!("site/started-{n}"));
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
    let mut shown = String::new();
    wait_until("it is shown what holds them", || {
        shown = status(&site);
        shown.matches("has been finishing for").count() == 2
            && shown
                .matches("GET /held.php (pool php) has run for")
                .count()
                >= 2
    });
    assert!(shown.contains("reload one is waiting"), "{shown}");
    assert!(shown.contains("1 requests at workers"), "{shown}");
    assert!(held.iter().all(|held| !held.is_finished()));
    fs::write(site.path("site/go"), "").unwrap();
    for held in held {
        let answer = held.join().unwrap();
        assert!(answer.ends_with("held done"), "{answer}");
    }
    weir.log_line("reloaded: the new configuration serves");
    wait_until("the old ones have ended", || {
        !status(&site).contains("has been finishing for")
    });
    weir.stop();
}

#[test]
fn what_the_end_of_shutdown_timeout_cuts_has_its_line_in_the_access_log() {
    let site = Site::new().workers(2).log_files();
    fs::write(site.path("site/held.php"), HELD).unwrap();
    let mut weir = Weir::start_with(&site, &text(&site, "shutdown_timeout = \"1s\""));
    let port = weir.port;
    let begin = |n: u32| {
        let held = thread::spawn(move || {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            let request = format!("GET /held.php?n={n} HTTP/1.1\r\nHost: x\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
        });
        let started = site.path(&format!("site/started-{n}"));
        wait_until("the script has begun", || started.exists());
        held
    };
    let log = || fs::read_to_string(site.path("access.log")).unwrap_or_default();
    let by_reload = begin(1);
    signal(weir.process.id(), Signal::HUP);
    weir.log_line("reloaded: the new configuration serves");
    let line = weir.log_line("remaining requests are cut off");
    assert!(
        line.contains("GET /held.php (pool php) has run for"),
        "{line}"
    );
    by_reload.join().unwrap();
    wait_until("the reload's has its line", || {
        log().contains("/held.php?n=1")
    });
    let by_stop = begin(2);
    signal(weir.process.id(), Signal::TERM);
    assert!(weir.wait().success());
    by_stop.join().unwrap();
    let log = log();
    for n in [1, 2] {
        let line = log
            .lines()
            .find(|line| line.contains(&format!("/held.php?n={n} ")));
        let line = line.unwrap_or_else(|| panic!("{log}"));
        assert!(line.contains(" 503 ") || line.contains(" 502 "), "{line}");
    }
}
