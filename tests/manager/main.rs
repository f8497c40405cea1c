//! The manager: what it starts, keeps alive, replaces and leaves behind. The tests use the real binary, with php-cgi as
//! workers.

mod busy;
mod chroot;
mod failed_reload;
mod guard;
mod leaving;
mod listen_fds;
mod old;
mod ordinary_user;
mod php_processes;
mod process_one;
mod programs;
mod ready;
mod residue;
mod service_manager;
mod stuck;
mod support;
mod upgrade;
mod upgrade_races;
mod versions;

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{fs::MetadataExt, net::UnixStream},
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
    let weir = cgi_site().start();
    // If the tests' user may not raise a priority, or a container lacks that right, the gateway has the usual priority.
    assert!([own, own - 5].contains(&nice(weir.gateway().pid)));
    drop(weir);
    if !goes_on_as_root() {
        return;
    }
    let weir = cgi_site().server("process_priority = 3").start();
    // The same if the tests themselves run with a lower priority: a container may lack the right to raise it.
    assert!([3, 3.max(own)].contains(&nice(weir.gateway().pid)));
}

#[test]
fn a_gateway_killed_is_replaced_and_queued_connections_are_answered() {
    let weir = cgi_site().start();
    let first = weir.gateway().pid;
    // The stopped gateway cannot accept: the connection waits in the kernel's queue, and the gateway dies.
    stop(first);
    let mut queued = weir.client();
    queued.send("GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    signal(first, Signal::KILL);
    assert_eq!(queued.response().expect(200).text(), "hello\n");
    assert_ne!(weir.gateway().pid, first);
    assert!(weir.log_line("the gateway died: SIGKILL").contains("error"));
    pid(&weir);
}

#[test]
fn a_worker_killed_is_replaced() {
    let weir = cgi_site().pool("max_children = 1").start();
    let first = pid(&weir);
    signal(first, Signal::KILL);
    let line = weir.log_line("worker died: SIGKILL");
    assert!(
        line.contains(&format!("worker={first}")) && line.contains("pool=app"),
        "{line}"
    );
    assert_ne!(pid(&weir), first);
}

#[test]
fn what_workers_print_is_in_the_error_log_with_pool_and_pid() {
    let script = "echo one >&2; echo two; exec php-cgi";
    let weir = shell_site(script).start();
    let line = weir.log_line("said: one");
    assert!(
        line.contains("pool=app") && line.contains("worker="),
        "{line}"
    );
    weir.log_line("said: two");
}

#[test]
fn a_program_that_ends_at_once_makes_its_pool_one_without_workers() {
    let weir = shell_site("exit 3").start();
    weir.log_line("worker died: exit code 3");
    weir.log_line("the pool has no worker");
    weir.log_line("worker died: exit code 3");
    let answer = weir.get_until("/pid.php", |answer| answer.status == 503);
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    assert!(
        weir.get("/a.txt").text().contains("hello"),
        "files are served all the same"
    );
}

#[test]
fn killing_the_manager_leaves_nothing_behind() {
    let mut weir = cgi_site().start();
    pid(&weir);
    // One worker answers before the other has been started.
    let mut children = Vec::new();
    wait_until("a gateway and two workers", || {
        children = weir.children();
        children.len() >= 3
    });
    let listening = inodes_of_listeners(weir.address());
    assert!(!listening.is_empty());
    weir.kill();
    assert!(children.iter().all(|pid| !is_alive(*pid)));
    // Another test may be given this port by now, but not this socket. The kernel closes it when the last of them has ended.
    wait_until("the socket is closed", || {
        let left = inodes_of_listeners(weir.address());
        !left.iter().any(|inode| listening.contains(inode))
    });
}

/// SIGTERM comes while the slow script runs; the script finishes.
fn stop_while_a_script_runs(site: &Setup, weir: &Weir) {
    let mut slow = weir.client();
    slow.send("GET /slow.php HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    wait_until("the slow script runs", || {
        site.path("root/started").exists()
    });
    weir.signal(Signal::TERM);
    assert_eq!(slow.response().expect(200).text(), "slow done");
}

#[test]
fn sigterm_finishes_what_runs_and_removes_socket_and_pid_file() {
    let site = with_unix_listener(cgi_site());
    let mut weir = site.start();
    let (socket, pid_file) = (site.path("weir.sock"), site.path("weir.pid"));
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    let written = fs::read_to_string(&pid_file).unwrap();
    assert_eq!(written.trim(), weir.pid().to_string());
    let mut over_unix = UnixStream::connect(&socket).unwrap();
    over_unix.write_all(b"GET /a.txt HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    over_unix.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("hello"), "{answer}");

    stop_while_a_script_runs(&site, &weir);
    assert!(weir.wait_for_end().success());
    assert!(!socket.exists() && !pid_file.exists());
}

#[test]
fn while_it_finishes_new_connections_are_refused_and_not_left_hanging() {
    let site = cgi_site();
    let mut weir = site.start();
    let mut slow = weir.client();
    slow.send("GET /slow.php HTTP/1.0\r\n\r\n");
    wait_until("the slow script runs", || {
        site.path("root/started").exists()
    });
    weir.signal(Signal::TERM);
    wait_until("connections are refused", || {
        TcpStream::connect(weir.address()).is_err()
    });
    assert_eq!(slow.response().expect(200).text(), "slow done");
    assert!(weir.wait_for_end().success());
}

#[test]
fn shutdown_timeout_ends_what_does_not_finish() {
    let site = cgi_site().server("shutdown_timeout = \"300ms\"");
    let mut weir = site.start();
    let mut slow = weir.client();
    slow.send("GET /endless.php HTTP/1.0\r\n\r\n");
    wait_until("the endless script runs", || {
        site.path("root/started").exists()
    });
    weir.signal(Signal::TERM);
    weir.log_line("shutdown_timeout is over");
    assert!(weir.wait_for_end().success());
}

#[test]
fn sigint_ends_at_once() {
    let site = cgi_site();
    let mut weir = site.start();
    let mut slow = weir.client();
    slow.send("GET /endless.php HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_until("the endless script runs", || {
        site.path("root/started").exists()
    });
    let children = weir.children();
    let start = Instant::now();
    weir.signal(Signal::INT);
    assert!(weir.wait_for_end().success());
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "it took {:?}",
        start.elapsed()
    );
    assert!(children.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn a_reload_changes_the_configuration_without_losing_a_connection() {
    let site = cgi_site();
    let weir = site.start();
    pid(&weir);
    let before = weir.gateway().pid;
    // One client was accepted before the reload. Another sends requests all the time during it.
    let mut kept = weir.client();
    let address = weir.address();
    let (stop, stopped) = channel::<()>();
    let hammer = std::thread::spawn(move || {
        let mut answered = 0;
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            get(address, "/a.txt").expect(200);
            answered += 1;
        }
        answered
    });
    fs::write(site.path("other/a.txt"), "reloaded\n").unwrap();
    let other = format!("root = \"{}\"", site.path("other").display());
    site.site(&other).write_toml();
    weir.signal(Signal::HUP);
    weir.log_line("reloaded");
    weir.get_until("/a.txt", |answer| answer.text() == "reloaded\n");
    drop(stop);
    assert!(hammer.join().unwrap() > 0);
    // The old gateway has closed the connection, or answers.
    if kept.try_send("GET /a.txt HTTP/1.0\r\n\r\n") {
        let _ = kept.rest();
    }
    wait_until("the old gateway is gone", || !is_alive(before));
}

#[test]
fn a_reload_of_a_wrong_configuration_says_why_and_changes_nothing() {
    let site = cgi_site();
    let weir = site.start();
    let before = weir.gateway().pid;
    let right = site.toml();
    for (wrong, said) in [
        (right.replace("root =", "rot ="), "rot"),
        (right.replace("/root\"", "/nowhere\""), "/nowhere"),
        (
            site.clone().server("user = \"no-such-user\"").toml(),
            "no-such-user",
        ),
    ] {
        site.write_config(&wrong);
        weir.signal(Signal::HUP);
        weir.log_line("nothing was changed");
        weir.log_line(said);
        assert!(weir.get("/a.txt").text().contains("hello"));
    }
    assert_eq!(weir.gateway().pid, before);
}

#[test]
fn a_reload_keeps_a_listener_and_drops_another() {
    let without = cgi_site();
    let site = with_unix_listener(without.clone());
    let weir = site.start();
    let socket = site.path("weir.sock");
    let inode = fs::metadata(&socket).unwrap().ino();
    site.write_config(&format!("# changed\n{}", site.toml()));
    weir.signal(Signal::USR2);
    weir.log_line("reloaded");
    assert_eq!(
        fs::metadata(&socket).unwrap().ino(),
        inode,
        "the socket is the same"
    );
    without.write_toml();
    weir.signal(Signal::HUP);
    weir.log_line("reloaded");
    wait_until("the socket is removed", || !socket.exists());
    assert!(weir.get("/a.txt").text().contains("hello"));
}

#[test]
fn a_reload_with_more_or_fewer_threads_keeps_the_port_and_every_connection() {
    let site = cgi_site();
    let weir = site.start();
    for threads in [3, 1, 2] {
        let line = format!("threads = {threads}");
        site.clone().server(&line).write_toml();
        weir.signal(Signal::HUP);
        weir.log_line("reloaded");
        for _ in 0..50 {
            assert!(
                weir.get("/a.txt").text().contains("hello"),
                "{threads} threads"
            );
        }
    }
}

#[test]
fn sigusr1_reopens_the_logs() {
    let site = cgi_site().log("");
    let weir = site.start();
    weir.get("/a.txt");
    let (log, moved) = (site.path("log/access.log"), site.path("log/access.log.1"));
    wait_until("the request is logged", || {
        fs::read_to_string(&log).unwrap().contains("/a.txt")
    });
    fs::rename(&log, &moved).unwrap();
    weir.signal(Signal::USR1);
    wait_until("the log is there again", || log.exists());
    wait_until("a request is in the new log", || {
        weir.get("/b.txt");
        fs::read_to_string(&log).unwrap().contains("/b.txt")
    });
    assert!(!fs::read_to_string(&moved).unwrap().is_empty());
}

#[test]
fn a_port_that_is_taken_is_said_with_who_has_it() {
    let site = cgi_site();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let text = site.toml().replace(&site.address().to_string(), &taken);
    let (status, said) = site.start_toml_in_vain(&text);
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(
        said.contains(&format!("{taken}: the port is already used by")),
        "{said}"
    );
    assert!(
        said.contains(&format!("process {}", std::process::id())),
        "{said}"
    );
}

#[test]
fn two_instances_do_not_share_a_port() {
    let site = cgi_site();
    let weir = site.start();
    let (status, said) = site.start_in_vain();
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(said.contains("already used by weir"), "{said}");
    assert!(weir.get("/a.txt").text().contains("hello"));
}

#[test]
fn a_unix_socket_in_use_or_a_file_in_its_place_is_left_alone() {
    let site = with_unix_listener(cgi_site());
    let socket = site.path("weir.sock");
    fs::write(&socket, "precious").unwrap();
    let (status, said) = site.start_in_vain();
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(said.contains("not a socket exists there"), "{said}");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
    fs::remove_file(&socket).unwrap();
    let live = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (status, said) = site.start_in_vain();
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(said.contains("listening there"), "{said}");
    drop(live);
    // Nothing listens there any more: weir replaces the socket.
    site.start().stop();
}

#[test]
fn a_start_that_cannot_work_says_why_and_leaves_nothing_running() {
    let site = cgi_site();
    let with = |lines: &str| site.clone().server(lines).toml();
    let command = |program: &str| site.clone().pool(&pool_command(&[program])).toml();
    let folder = site.folder().display();
    let in_no_folder = format!("error = \"{folder}/none/error.log\"");
    let right = site.toml();
    for (wrong, said) in [
        (with("user = \"no-such-user\""), "no-such-user"),
        (with("group = \"no-such-group\""), "no-such-group"),
        (with("user = \"root\""), "root"),
        (right.replace("/root\"", "/nowhere\""), "/nowhere"),
        (command("/no/such/program"), "/no/such/program"),
        (command("no-such-program"), "no-such-program"),
        (
            right.replace("error = \"stderr\"", &in_no_folder),
            "none/error.log",
        ),
        (
            right.replace(&site.address().to_string(), "192.0.2.1:80"),
            "does not have this address",
        ),
    ] {
        let (status, output) = site.start_toml_in_vain(&wrong);
        assert_eq!(status.code(), Some(78), "{wrong}\n{output}");
        assert!(output.contains(said), "{said} is not in: {output}");
    }
}

#[test]
fn the_gateway_has_no_descriptor_that_it_was_not_given() {
    let site = cgi_site();
    let weir = site.start();
    pid(&weir);
    let opened = |pid: u32| -> Vec<PathBuf> {
        let files = fs::read_dir(format!("/proc/{pid}/fd"));
        files
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok())
            .collect()
    };
    let config = site.path("weir.toml");
    assert!(!opened(weir.gateway().pid).contains(&config));
    let workers = weir
        .children()
        .into_iter()
        .filter(|pid| *pid != weir.gateway().pid);
    for worker in workers {
        // The worker has its listening socket, two outputs, and the connection. Before it executes its program, it has
        // the manager's descriptors.
        wait_until("a worker has two sockets at most", || {
            let files = opened(worker).into_iter();
            let sockets = files.filter(|file| file.to_string_lossy().starts_with("socket:"));
            sockets.count() <= 2
        });
    }
}

#[test]
fn a_worker_that_hangs_at_its_end_is_killed_in_the_end() {
    let script = "trap '' TERM; php-cgi & wait; while true; do sleep 1; done";
    let weir = shell_site(script).start();
    weir.get("/a.txt");
}

#[test]
fn a_root_that_the_gateway_cannot_enter_is_told_at_the_start() {
    let site = cgi_site();
    mode(&site.root(), 0o000);
    let weir = site.start();
    let line = weir.log_line("cannot open");
    assert!(line.contains("/root"), "{line}");
    drop(weir);
    // This lets its owner remove the folder.
    mode(&site.root(), 0o700);
}

/// A site with one worker, which this script starts.
fn shell_site(script: &str) -> Setup {
    let command = pool_command(&["/bin/sh", "-c", script]);
    cgi_site().pool("max_children = 1").pool(&command)
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
