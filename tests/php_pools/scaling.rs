//! How many workers there are, seen through the processes.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::{Gated, count, masters, pid, setup, wait_for_workers, workers};
use weir_test::process::signal;
use weir_test::{Client, LIMIT, wait_until, weir};

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
        // None of these requests ends before all have a worker. The simulator computes how soon that is.
        let gated = Gated::start(&weir, "all", 20);
        wait_until("all have one", || count(&weir, "came-all") == 20);
        assert_eq!(gated.open(), [200; 20]);
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

/// Programs of others that use every processor.
struct Neighbours(Vec<Child>);

impl Neighbours {
    fn start() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = |_| {
            let mut shell = Command::new("nice");
            shell.args(["-n", "5", "sh", "-c", "while :; do :; done"]);
            shell.spawn().expect("nice")
        };
        Neighbours((0..=cores).map(spin).collect())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // nice becomes the shell.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends this request without waiting for its answer.
fn ask(weir: &weir_test::Weir, path: &str) -> Client {
    let mut client = weir.client().patient(LIMIT * 2);
    client.send(weir::request("GET", path, &[], b""));
    client
}

/// A dependency takes seconds instead of 30 ms, while other programs use all processors. Afterwards it is quick again.
#[test]
fn each_request_that_waits_for_a_slow_dependency_gets_a_worker_beside_busy_neighbours() {
    const SLOW: usize = 40;
    const CROWD: usize = 300;
    let weir = setup(&format!(
        "pm = \"auto\"\nmax_children = {SLOW}\nqueue.timeout = \"60s\"\n"
    ))
    // Waits for a lock, which takes no processor time.
    .file(
        "slow.php",
        "<?php touch($_GET['came'] . '.' . getmypid()); flock(fopen($_GET['gate'], 'r'), LOCK_SH);",
    )
    .file("crowd.php", "<?php usleep(30000);")
    .more("[[site.main.route]]\npath = \"/crowd.php\"\ntimeout = \"10s\"\n")
    .start();
    let _neighbours = Neighbours::start();
    let gate = weir.scratch("gate");
    fs::write(&gate, "").expect("the gate");
    let shut = fs::File::open(&gate).expect("the gate");
    flock(&shut, FlockOperation::LockExclusive).expect("flock");
    for _ in 0..10 {
        weir.get("/sleep.php?ms=30").expect(200);
    }
    let path = format!(
        "/slow.php?gate={}&came={}",
        gate.display(),
        weir.scratch("came").display()
    );
    // Twenty requests a second come, and none ends. So the rate of finished requests tells nothing about the useful
    // number of workers.
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        slow.push(ask(&weir, &path));
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_until("each has a worker", || count(&weir, "came.") == SLOW);
    // All take at least two seconds.
    std::thread::sleep(Duration::from_secs(2));
    flock(&shut, FlockOperation::Unlock).expect("flock");
    for client in &mut slow {
        client.response().expect(200);
    }
    // After a rest, the earlier durations do not count any more. If requests still took two seconds each, forty workers
    // could not serve this crowd in time.
    std::thread::sleep(Duration::from_millis(2_500));
    let mut crowd: Vec<Client> = (0..CROWD).map(|_| ask(&weir, "/crowd.php")).collect();
    for client in &mut crowd {
        client.response().expect(200);
    }
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
    let command = weir_test::php::cgi_pool(6);
    let weir = weir_test::Setup::new()
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
        .file("dies.php", "<?php posix_kill(getmypid(), 9);")
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
fn ask_on(weir: &weir_test::Weir, stop: &AtomicBool) -> BTreeSet<u32> {
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
        weir_test::weir::write(&new.join(name), &text);
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
