//! How many workers there are, seen through the processes.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::{Gated, count, elapsed, masters, pid, setup, wait_for_workers, workers};
use crate::support::process::signal;
use crate::support::{wait_for, wait_until};

#[test]
fn static_pools_have_all_their_workers_from_the_start() {
    let weir = setup("pm = \"static\"\nmax_children = 5\n").start();
    wait_for_workers(&weir, 5);
    let gated = Gated::start(&weir, "all", 7);
    wait_until("five have one", || count(&weir, "came-all") == 5);
    assert_eq!(workers(&weir).len(), 5);
    assert_eq!(gated.open(), [200; 7]);
}

#[test]
fn dynamic_pools_grow_with_their_work_and_shrink_without() {
    let weir = setup(
        "pm = \"dynamic\"\nmax_children = 8\nstart_servers = 2\nmin_spare_servers = 1\nmax_spare_servers = 3\n",
    )
    .start();
    wait_for_workers(&weir, 2);
    let gated = Gated::start(&weir, "some", 4);
    wait_until("four have one, one is spare", || {
        count(&weir, "came-some") == 4 && workers(&weir).len() == 5
    });
    assert_eq!(gated.open(), [200; 4]);
    let gated = Gated::start(&weir, "many", 12);
    wait_until("all that may be have one", || {
        count(&weir, "came-many") == 8
    });
    assert_eq!(workers(&weir).len(), 8);
    weir.wait_for_error(&["app", "max_children"]);
    assert_eq!(gated.open(), [200; 12]);
    wait_for_workers(&weir, 3);
    pid(&weir);
}

#[test]
fn pools_on_demand_have_workers_while_they_have_work() {
    let weir =
        setup("pm = \"ondemand\"\nmax_children = 3\nprocess_idle_timeout = \"1s\"\n").start();
    wait_for("the master", || masters(&weir).pop());
    assert_eq!(workers(&weir).len(), 0);
    pid(&weir);
    // On a busy machine the worker may have been idle for long enough by now.
    assert!(workers(&weir).len() <= 1);
    let gated = Gated::start(&weir, "all", 6);
    wait_until("three have one", || count(&weir, "came-all") == 3);
    assert_eq!(workers(&weir).len(), 3);
    assert_eq!(gated.open(), [200; 6]);
    wait_for_workers(&weir, 0);
    pid(&weir);
}

#[test]
fn a_burst_finds_twenty_workers_where_there_were_two() {
    for pm in [
        "pm = \"dynamic\"\nstart_servers = 2\nmin_spare_servers = 1\nmax_spare_servers = 3\n",
        "pm = \"ondemand\"\n",
    ] {
        let weir = setup(&format!("{pm}max_children = 20\nqueue.timeout = \"60s\"\n")).start();
        pid(&weir);
        let began = Instant::now();
        let gated = Gated::start(&weir, "all", 20);
        wait_until("all have one", || count(&weir, "came-all") == 20);
        let took = elapsed(began);
        assert_eq!(gated.open(), [200; 20]);
        assert!(took < 2_000, "{pm}{took} ms");
    }
}

#[test]
fn pools_that_choose_for_themselves_start_from_what_fits_the_memory() {
    // weir assumes this until it has measured the memory of a worker.
    let lines =
        "pm = \"auto\"\nmax_children = 12\nworker_memory = \"900000G\"\nqueue.timeout = \"60s\"\n";
    let weir = setup(lines).start();
    wait_for_workers(&weir, 1);
    let gated = Gated::start(&weir, "all", 6);
    weir.wait_for_error(&["memory is only enough for 1 workers"]);
    assert_eq!(workers(&weir).len(), 1);
    // The existing worker needs far less. weir sees this after the worker has lived for a while.
    wait_until("there are more", || workers(&weir).len() > 1);
    assert_eq!(gated.open(), [200; 6]);
}

#[test]
fn pools_that_choose_for_themselves_grow_as_long_as_it_helps() {
    let weir =
        setup("pm = \"auto\"\nmax_children = 12\nstart_servers = 2\nqueue.timeout = \"60s\"\n")
            .start();
    wait_for_workers(&weir, 2);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ask = || {
            while !stop.load(Relaxed) {
                weir.get("/sleep.php?ms=40").expect(200);
            }
        };
        let asking: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        wait_for_workers(&weir, 12);
        stop.store(true, Relaxed);
        for asked in asking {
            asked.join().expect("all are answered");
        }
    });
}

#[test]
fn a_master_that_dies_takes_its_workers_along_and_all_is_started_again() {
    let weir = setup("pm = \"static\"\nmax_children = 2\n").start();
    let before = pid(&weir);
    let master = masters(&weir).pop().expect("a master");
    signal(master.pid, rustix::process::Signal::KILL);
    wait_until("another worker answers", || {
        let answer = weir.get("/pid.php");
        answer.status == 200 && answer.text() != before.to_string()
    });
    wait_for_workers(&weir, 2);
}

#[test]
fn a_pool_of_a_command_scales_as_well() {
    let command = crate::support::php::cgi_pool(6);
    let weir = crate::support::Setup::new()
        .file(
            "gate.php",
            "<?php echo getmypid(); touch($_GET['came'] . '.' . getmypid());\n\
             while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }",
        )
        .pool(&format!(
            "{command}pm = \"ondemand\"\nprocess_idle_timeout = \"1s\"\n"
        ))
        .start();
    assert_eq!(weir.workers().len(), 0);
    let gated = Gated::start(&weir, "some", 4);
    wait_until("four have one", || count(&weir, "came-some") == 4);
    assert_eq!(weir.workers().len(), 4);
    assert_eq!(gated.open(), [200; 4]);
    wait_until("none is left", || weir.workers().is_empty());
}

#[test]
fn a_pool_whose_workers_die_at_once_is_not_tried_in_a_hurry() {
    let weir = setup("pm = \"static\"\nmax_children = 4\nqueue.timeout = \"1s\"\n")
        .file("dies.php", "<?php posix_kill(getmypid(), SIGKILL);")
        .start();
    wait_for_workers(&weir, 4);
    let mut died = 0;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        let status = weir.get("/dies.php").status;
        assert!(matches!(status, 502 | 503), "{status}");
        died += 1;
    }
    assert!(died > 0);
    wait_until("it serves again", || weir.get("/pid.php").status == 200);
}

/// Sends requests without a pause until `stop` is set. Returns the processes that answered.
fn ask_on(weir: &crate::support::Weir, stop: &AtomicBool) -> BTreeSet<u32> {
    let mut client = weir.client();
    let mut pids = BTreeSet::new();
    while !stop.load(Relaxed) {
        client.send("GET /pid.php HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = client.response().expect(200);
        pids.insert(answer.text().parse().expect("a process id"));
        if answer.header("connection") == Some("close") {
            client = weir.client();
        }
    }
    pids
}

#[test]
fn a_pool_is_started_anew_beside_its_old_workers() {
    let setup = setup("pm = \"static\"\nmax_children = 3\nwatch_root = true\n");
    let folder = setup.folder().to_owned();
    let (old, new) = (folder.join("root"), folder.join("next"));
    for name in ["pid.php", "gate.php"] {
        let text = fs::read(old.join(name)).expect("a script");
        crate::support::weir::write(&new.join(name), &text);
    }
    let link = folder.join("current");
    symlink(&old, &link).expect("symlink");
    let weir = setup
        .site(&format!("root = \"{}\"", link.display()))
        .start();
    wait_for_workers(&weir, 3);
    let before: BTreeSet<u32> = workers(&weir).iter().map(|worker| worker.pid).collect();
    // One worker stays busy for longer than all of this takes.
    let gated = Gated::start(&weir, "long", 1);
    wait_until("it has one", || count(&weir, "came-long") == 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| ask_on(&weir, &stop)))
            .collect();
        let next = folder.join("following");
        symlink(&new, &next).expect("symlink");
        fs::rename(&next, &link).expect("rename");
        wait_until("all but the busy one are others", || {
            let now = workers(&weir);
            let left = now.iter().filter(|worker| before.contains(&worker.pid));
            left.count() == 1 && now.len() == 3
        });
        stop.store(true, Relaxed);
        for asked in asking {
            assert!(!asked.join().expect("all are answered").is_empty());
        }
    });
    assert_eq!(gated.open(), [200]);
    wait_until("the last one is replaced", || {
        let now = workers(&weir);
        now.len() == 3 && !now.iter().any(|worker| before.contains(&worker.pid))
    });
}

#[test]
fn a_gateway_that_dies_leaves_no_worker_behind_and_the_next_one_has_its_own() {
    let weir = setup("pm = \"static\"\nmax_children = 3\n").start();
    wait_for_workers(&weir, 3);
    let before: BTreeSet<u32> = workers(&weir).iter().map(|worker| worker.pid).collect();
    signal(weir.gateway().pid, rustix::process::Signal::KILL);
    wait_until("others are there", || {
        let now = workers(&weir);
        now.len() == 3 && !now.iter().any(|worker| before.contains(&worker.pid))
    });
    wait_until("they answer", || {
        TcpStream::connect(weir.address()).is_ok() && weir.get("/pid.php").status == 200
    });
}

#[test]
fn a_reload_loses_no_request() {
    let weir = setup("pm = \"dynamic\"\nmax_children = 4\n").start();
    pid(&weir);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ask = || {
            let mut pids = BTreeSet::new();
            while !stop.load(Relaxed) {
                pids.insert(pid(&weir));
            }
            pids
        };
        // Uses one connection until an answer says that it will be closed.
        let ask_on = || {
            let mut pids = BTreeSet::new();
            while !stop.load(Relaxed) {
                let mut client = weir.client();
                while !stop.load(Relaxed) {
                    client.send("GET /pid.php HTTP/1.1\r\nHost: a\r\n\r\n");
                    let answer = client.response().expect(200);
                    pids.insert(answer.text().parse().expect("a pid"));
                    if answer.header("connection") == Some("close") {
                        break;
                    }
                }
            }
            pids
        };
        let mut asking: Vec<_> = (0..2).map(|_| scope.spawn(ask)).collect();
        asking.extend((0..2).map(|_| scope.spawn(ask_on)));
        for round in 1..=5 {
            weir.signal(rustix::process::Signal::HUP);
            wait_until("reloaded", || {
                weir.stderr().matches("reloaded: ").count() == round
            });
        }
        stop.store(true, Relaxed);
        for asked in asking {
            assert!(asked.join().expect("all are answered").len() > 1);
        }
    });
}
