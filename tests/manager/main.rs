//! The manager: what it starts, keeps alive, replaces and leaves behind. The tests use the real binary, with php-cgi as
//! workers.

mod busy;
mod chroot;
mod guard;
mod old;
mod ordinary_user;
mod php;
mod residue;
mod stuck;
mod support;

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::PathBuf,
    process::{Command, Stdio},
    sync::mpsc::channel,
    time::{Duration, Instant},
};

use support::*;

#[test]
fn the_gateway_is_preferred_to_the_workers_that_it_feeds() {
    let nice = |pid: u32| -> i32 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        // proc_pid_stat(5): the value is the 19th field. The name, which may contain blanks, is the second.
        let after_name = stat.rsplit(") ").next().unwrap();
        after_name.split(' ').nth(16).unwrap().parse().unwrap()
    };
    let own = nice(std::process::id());
    let weir = Weir::start(&Site::new());
    // If the tests' user may not raise a priority, or a container lacks that right, the gateway has the usual priority.
    assert!([own, own - 5].contains(&nice(weir.gateway())));
    weir.stop();
    if !goes_on_as_root() {
        return;
    }
    let site = Site::new();
    let text = site
        .text()
        .replace("[server]", "[server]\nprocess_priority = 3");
    let weir = Weir::start_with(&site, &text);
    // The same if the tests themselves run with a lower priority: a container may lack the right to raise it.
    assert!([3, 3.max(own)].contains(&nice(weir.gateway())));
    weir.stop();
}

#[test]
fn a_gateway_killed_is_replaced_and_queued_connections_are_answered() {
    let weir = Weir::start(&Site::new());
    let first = weir.gateway();
    // The stopped gateway cannot accept: the connection waits in the kernel's queue, and the gateway dies.
    signal(first, Signal::STOP);
    wait_until("all of its threads are stopped", || {
        let threads = fs::read_dir(format!("/proc/{first}/task")).unwrap();
        let mut states = threads
            .flatten()
            .map(|thread| fs::read_to_string(thread.path().join("stat")));
        states.all(|state| state.is_ok_and(|state| state.contains(") T ")))
    });
    let mut queued = weir.connect();
    queued
        .write_all(b"GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    signal(first, Signal::KILL);
    let mut answer = String::new();
    queued.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.ends_with("hello\n"), "{answer}");
    assert_ne!(weir.gateway(), first);
    assert!(weir.log_line("the gateway died: SIGKILL").contains("error"));
    weir.get_until("/pid.php", |answer| answer.contains("pid="));
    weir.stop();
}

#[test]
fn a_worker_killed_is_replaced() {
    let weir = Weir::start(&Site::new().workers(1));
    let first = pid_in(&weir.get_until("/pid.php", |answer| answer.contains("pid=")));
    signal(first, Signal::KILL);
    let line = weir.log_line("worker died: SIGKILL");
    assert!(
        line.contains(&format!("worker={first}")) && line.contains("pool=php"),
        "{line}"
    );
    let answer = weir.get_until("/pid.php", |answer| answer.contains("pid="));
    assert_ne!(pid_in(&answer), first);
    weir.stop();
}

#[test]
fn what_workers_print_is_in_the_error_log_with_pool_and_pid() {
    let script = "echo one >&2; echo two; exec php-cgi";
    let weir = Weir::start(&Site::new().workers(1).command(&["/bin/sh", "-c", script]));
    let line = weir.log_line("said: one");
    assert!(
        line.contains("pool=php") && line.contains("worker="),
        "{line}"
    );
    weir.log_line("said: two");
    weir.stop();
}

#[test]
fn a_program_that_ends_at_once_makes_its_pool_one_without_workers() {
    let weir = Weir::start(&Site::new().workers(1).command(&["/bin/sh", "-c", "exit 3"]));
    weir.log_line("worker died: exit code 3");
    weir.log_line("the pool has no worker");
    weir.log_line("worker died: exit code 3");
    let answer = weir.get_until("/pid.php", |answer| answer.starts_with("HTTP/1.1 503 "));
    assert!(answer.to_lowercase().contains("retry-after:"), "{answer}");
    assert!(
        weir.get("/a.txt").contains("hello"),
        "files are served all the same"
    );
    weir.stop();
}

#[test]
fn killing_the_manager_leaves_nothing_behind() {
    let mut weir = Weir::start(&Site::new());
    weir.get_until("/pid.php", |answer| answer.contains("pid="));
    // One worker answers before the other has been started.
    let mut children = Vec::new();
    wait_until("a gateway and two workers", || {
        children = weir.children();
        children.len() >= 3
    });
    let listening = inodes_of_listeners(weir.port);
    assert!(!listening.is_empty());
    weir.process.kill().unwrap();
    weir.process.wait().unwrap();
    wait_until("all children are gone", || {
        children.iter().all(|pid| !is_alive(*pid))
    });
    // Another test may be given this port by now, but not this socket.
    let left = inodes_of_listeners(weir.port);
    assert!(
        !left.iter().any(|inode| listening.contains(inode)),
        "{left:?}"
    );
}

#[test]
fn sigterm_finishes_what_runs_and_removes_socket_and_pid_file() {
    let site = Site::new().unix_listener();
    let mut weir = Weir::start(&site);
    let (socket, pid_file) = (site.path("weir.sock"), site.path("weir.pid"));
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    let written = fs::read_to_string(&pid_file).unwrap();
    assert_eq!(written.trim(), weir.process.id().to_string());
    let mut over_unix = UnixStream::connect(&socket).unwrap();
    over_unix.write_all(b"GET /a.txt HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    over_unix.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("hello"), "{answer}");

    let mut slow = weir.connect();
    slow.write_all(b"GET /slow.php HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    wait_until("the slow script runs", || {
        site.path("site/started").exists()
    });
    signal(weir.process.id(), Signal::TERM);
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("slow done"), "{answer}");
    assert!(weir.wait().success());
    assert!(!socket.exists() && !pid_file.exists());
}

#[test]
fn while_it_finishes_new_connections_are_refused_and_not_left_hanging() {
    let site = Site::new();
    let mut weir = Weir::start(&site);
    let mut slow = weir.connect();
    slow.write_all(b"GET /slow.php HTTP/1.0\r\n\r\n").unwrap();
    wait_until("the slow script runs", || {
        site.path("site/started").exists()
    });
    signal(weir.process.id(), Signal::TERM);
    wait_until("connections are refused", || {
        TcpStream::connect(("127.0.0.1", weir.port)).is_err()
    });
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("slow done"), "{answer}");
    assert!(weir.wait().success());
}

#[test]
fn shutdown_timeout_ends_what_does_not_finish() {
    let site = Site::new();
    let text = site
        .text()
        .replace("[server]", "[server]\nshutdown_timeout = \"300ms\"");
    let mut weir = Weir::start_with(&site, &text);
    let mut slow = weir.connect();
    slow.write_all(b"GET /endless.php HTTP/1.0\r\n\r\n")
        .unwrap();
    wait_until("the endless script runs", || {
        site.path("site/started").exists()
    });
    signal(weir.process.id(), Signal::TERM);
    weir.log_line("shutdown_timeout is over");
    assert!(weir.wait().success());
}

#[test]
fn sigint_ends_at_once() {
    let site = Site::new();
    let mut weir = Weir::start(&site);
    let mut slow = weir.connect();
    slow.write_all(b"GET /endless.php HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    wait_until("the endless script runs", || {
        site.path("site/started").exists()
    });
    let children = weir.children();
    let start = Instant::now();
    signal(weir.process.id(), Signal::INT);
    assert!(weir.wait().success());
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "it took {:?}",
        start.elapsed()
    );
    assert!(children.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn a_reload_changes_the_configuration_without_losing_a_connection() {
    let site = Site::new();
    let weir = Weir::start(&site);
    weir.get_until("/pid.php", |answer| answer.contains("pid="));
    let before = weir.gateway();
    // One client was accepted before the reload. Another sends requests all the time during it.
    let mut kept = weir.connect();
    let port = weir.port;
    let (stop, stopped) = channel::<()>();
    let hammer = std::thread::spawn(move || {
        let mut answered = 0;
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let answer = get(port, "/a.txt");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
            answered += 1;
        }
        answered
    });
    fs::write(site.path("other/a.txt"), "reloaded\n").unwrap();
    site.write_config(&site.text().replace("/site\"", "/other\""));
    signal(weir.process.id(), Signal::HUP);
    weir.log_line("reloaded");
    weir.get_until("/a.txt", |answer| answer.contains("reloaded"));
    drop(stop);
    assert!(hammer.join().unwrap() > 0);
    kept.write_all(b"GET /a.txt HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = kept.read_to_string(&mut answer);
    wait_until("the old gateway is gone", || !is_alive(before));
    weir.stop();
}

#[test]
fn a_reload_of_a_wrong_configuration_says_why_and_changes_nothing() {
    let site = Site::new();
    let weir = Weir::start(&site);
    let before = weir.gateway();
    let right = site.text();
    for (wrong, said) in [
        (right.replace("root =", "rot ="), "rot"),
        (right.replace("/site\"", "/nowhere\""), "/nowhere"),
        (right.replace(&user(), "no-such-user"), "no-such-user"),
    ] {
        site.write_config(&wrong);
        signal(weir.process.id(), Signal::HUP);
        weir.log_line("nothing was changed");
        weir.log_line(said);
        assert!(weir.get("/a.txt").contains("hello"));
    }
    assert_eq!(weir.gateway(), before);
    weir.stop();
}

#[test]
fn a_reload_keeps_a_listener_and_drops_another() {
    let site = Site::new().unix_listener();
    let weir = Weir::start(&site);
    let socket = site.path("weir.sock");
    let inode = fs::metadata(&socket).unwrap().ino();
    site.write_config(&format!("# changed\n{}", site.text()));
    signal(weir.process.id(), Signal::USR2);
    weir.log_line("reloaded");
    assert_eq!(
        fs::metadata(&socket).unwrap().ino(),
        inode,
        "the socket is the same"
    );
    let without = site.clone().no_unix_listener();
    site.write_config(&without.text());
    signal(weir.process.id(), Signal::HUP);
    weir.log_line("reloaded");
    wait_until("the socket is removed", || !socket.exists());
    assert!(weir.get("/a.txt").contains("hello"));
    weir.stop();
}

#[test]
fn a_reload_with_more_or_fewer_threads_keeps_the_port_and_every_connection() {
    let site = Site::new();
    let weir = Weir::start(&site);
    for threads in [3, 1, 2] {
        let key = format!("[server]\nthreads = {threads}");
        site.write_config(&site.text().replace("[server]", &key));
        signal(weir.process.id(), Signal::HUP);
        weir.log_line("reloaded");
        for _ in 0..50 {
            assert!(weir.get("/a.txt").contains("hello"), "{threads} threads");
        }
    }
    weir.stop();
}

#[test]
fn sigusr1_reopens_the_logs() {
    let site = Site::new().log_files();
    let weir = Weir::start(&site);
    weir.get("/a.txt");
    let (log, moved) = (site.path("access.log"), site.path("access.log.1"));
    wait_until("the request is logged", || {
        fs::read_to_string(&log).unwrap().contains("/a.txt")
    });
    fs::rename(&log, &moved).unwrap();
    signal(weir.process.id(), Signal::USR1);
    wait_until("the log is there again", || log.exists());
    wait_until("a request is in the new log", || {
        weir.get("/b.txt");
        fs::read_to_string(&log).unwrap().contains("/b.txt")
    });
    assert!(!fs::read_to_string(&moved).unwrap().is_empty());
    weir.stop();
}

#[test]
fn a_port_that_is_taken_is_said_with_who_has_it() {
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (status, said) = run(&site, &site.text_with_port(port));
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(
        said.contains(&format!("127.0.0.1:{port}: the port is already used by")),
        "{said}"
    );
    assert!(
        said.contains(&format!("process {}", std::process::id())),
        "{said}"
    );
}

#[test]
fn two_instances_do_not_share_a_port() {
    let site = Site::new();
    let weir = Weir::start(&site);
    let (status, said) = run(&site, &site.text_with_port(weir.port));
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(said.contains("already used by weir"), "{said}");
    assert!(weir.get("/a.txt").contains("hello"));
    weir.stop();
}

#[test]
fn a_unix_socket_in_use_or_a_file_in_its_place_is_left_alone() {
    let site = Site::new().unix_listener();
    let socket = site.path("weir.sock");
    fs::write(&socket, "precious").unwrap();
    let (status, said) = run(&site, &site.text());
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(said.contains("not a socket exists there"), "{said}");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
    fs::remove_file(&socket).unwrap();
    let live = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (status, said) = run(&site, &site.text());
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(said.contains("listening there"), "{said}");
    drop(live);
    // Nothing listens there any more: weir replaces the socket.
    Weir::start(&site).stop();
}

#[test]
fn a_start_that_cannot_work_says_why_and_leaves_nothing_running() {
    let site = Site::new();
    let right = site.text();
    let in_no_folder = format!(
        "error = \"{}/none/error.log\"",
        site.folder.path().display()
    );
    for (wrong, said) in [
        (right.replace(&user(), "no-such-user"), "no-such-user"),
        (
            right.replace("[server]", "[server]\ngroup = \"no-such-group\""),
            "no-such-group",
        ),
        (right.replace(&user(), "root"), "root"),
        (right.replace("/site\"", "/nowhere\""), "/nowhere"),
        (
            right.replace("\"php-cgi\"", "\"/no/such/program\""),
            "/no/such/program",
        ),
        (
            right.replace("\"php-cgi\"", "\"no-such-program\""),
            "no-such-program",
        ),
        (
            right.replace("error = \"stderr\"", &in_no_folder),
            "none/error.log",
        ),
        (
            right.replace("127.0.0.1:0", "192.0.2.1:80"),
            "does not have this address",
        ),
    ] {
        let (status, output) = run(&site, &wrong);
        assert_eq!(status.code(), Some(78), "{wrong}\n{output}");
        assert!(output.contains(said), "{said} is not in: {output}");
    }
}

#[test]
fn the_gateway_has_no_descriptor_that_it_was_not_given() {
    let site = Site::new();
    let weir = Weir::start(&site);
    weir.get_until("/pid.php", |answer| answer.contains("pid="));
    let opened = |pid: u32| -> Vec<PathBuf> {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .collect()
    };
    let config = site.path("weir.toml");
    assert!(!opened(weir.gateway()).contains(&config));
    let workers = weir
        .children()
        .into_iter()
        .filter(|pid| *pid != weir.gateway());
    for worker in workers {
        // Its listening socket, its output twice, and the connection.
        let files = opened(worker);
        let sockets = files
            .iter()
            .filter(|f| f.to_string_lossy().starts_with("socket:"))
            .count();
        assert!(sockets <= 2, "{files:?}");
    }
    weir.stop();
}

#[test]
fn a_worker_that_hangs_at_its_end_is_killed_in_the_end() {
    let script = "trap '' TERM; php-cgi & wait; while true; do sleep 1; done";
    let weir = Weir::start(&Site::new().workers(1).command(&["/bin/sh", "-c", script]));
    weir.get("/a.txt");
    weir.stop();
}

#[test]
fn a_root_that_the_gateway_cannot_enter_is_told_at_the_start() {
    let site = Site::new();
    fs::set_permissions(site.path("site"), PermissionsExt::from_mode(0o000)).unwrap();
    let weir = Weir::start(&site);
    let line = weir.log_line("cannot open");
    assert!(line.contains("/site"), "{line}");
    weir.stop();
    // So that its owner can remove the folder.
    fs::set_permissions(site.path("site"), PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn the_gateways_role_without_a_manager_says_what_is_missing() {
    let output = Command::new(program())
        .arg("--role=gateway")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(70));
    assert!(String::from_utf8_lossy(&output.stderr).contains("weir: gateway: "));
}
