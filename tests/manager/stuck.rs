//! Things that stop: gateways, managers, pipes, machines without memory. None of them delays what can continue.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::*;

/// A configuration with a limit for silent gateways, and a window.
fn watched(site: &Site, limit: &str) -> String {
    let window = site.path("admin.sock");
    site.text().replace(
        "admin = \"off\"",
        &format!(
            "admin = \"unix:{}\"\ngateway_timeout = \"{limit}\"",
            window.display()
        ),
    )
}

/// Stops a process with all of its threads.
fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    wait_until("all of its threads are stopped", || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let mut states = threads
            .flatten()
            .map(|thread| fs::read_to_string(thread.path().join("stat")));
        states.all(|state| state.is_ok_and(|state| state.contains(") T ")))
    });
}

fn ask(site: &Site, what: &[&str]) -> (bool, String) {
    let window = format!("unix:{}", site.path("admin.sock").display());
    let output = Command::new(program())
        .args(what)
        .args(["--admin", &window])
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn a_gateway_that_is_stopped_is_noticed_and_replaced() {
    let site = Site::new();
    // Longer than a busy machine makes a process wait.
    let weir = Weir::start_with(&site, &watched(&site, "4s"));
    let first = weir.gateway();
    // weir does not take a waiting gateway or a working one for dead, within a time longer than its limit.
    weir.get_until("/slow.php", |answer| answer.contains("slow done"));
    std::thread::sleep(Duration::from_millis(4_500));
    assert_eq!(weir.gateway(), first);
    stop(first);
    let mut queued = weir.connect();
    queued
        .write_all(b"GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let line = weir.log_line("has given no sign of life for");
    assert!(
        line.contains("error") && line.contains("gateway_timeout"),
        "{line}"
    );
    let mut answer = String::new();
    queued.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("hello\n"), "{answer}");
    assert_ne!(weir.gateway(), first);
    wait_until("it is counted", || {
        let (_, status) = ask(&site, &["status", "--json"]);
        status.contains("\"gateway_hangs\": 1") || status.contains("\"gateway_hangs\":1")
    });
    weir.stop();
}

#[test]
fn a_reload_reaches_the_manager_past_a_gateway_that_hangs() {
    let site = Site::new();
    let weir = Weir::start_with(&site, &watched(&site, "0"));
    let first = weir.gateway();
    stop(first);
    let text = watched(&site, "2s").replace("/site\"", "/other\"");
    fs::write(site.path("other/b.txt"), "other\n").unwrap();
    site.write_config(&text);
    let (done, said) = ask(&site, &["reload"]);
    assert!(
        done && said.contains("the new configuration serves"),
        "{said}"
    );
    assert!(weir.get("/b.txt").contains("other"));
    // A wrong configuration is reported as wrong.
    let second = weir
        .children()
        .into_iter()
        .find(|pid| *pid != first && is_gateway(*pid));
    stop(second.unwrap());
    site.write_config("[server]\nno_such_key = 1\n");
    let (done, said) = ask(&site, &["reload"]);
    assert!(!done && said.contains("no_such_key"), "{said}");
    signal(first, Signal::CONT);
    drop(weir);
}

fn is_gateway(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "weir-gateway\n")
}

#[test]
fn a_manager_that_stands_still_is_told_by_readyz_and_stops_no_files() {
    let site = Site::new();
    let weir = Weir::start_with(&site, &watched(&site, "4s"));
    let window = site.path("admin.sock");
    let ready = || {
        let mut stream = std::os::unix::net::UnixStream::connect(&window).unwrap();
        stream
            .write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ready().starts_with("HTTP/1.1 200 "));
    stop(weir.process.id());
    wait_until("it is not ready", || {
        ready().contains("the manager has given no sign of life")
    });
    assert!(weir.get("/a.txt").contains("hello"));
    signal(weir.process.id(), Signal::CONT);
    // The manager itself was stopped, so it must not blame the gateway for being silent meanwhile.
    let gateway = weir.gateway();
    wait_until("it is ready again", || ready().starts_with("HTTP/1.1 200 "));
    assert_eq!(weir.gateway(), gateway);
    weir.stop();
}

#[test]
fn a_pipe_as_error_log_that_nobody_reads_stops_neither_workers_nor_the_end() {
    let site = Site::new();
    // More than any pipe holds, line by line.
    fs::write(
        site.path("site/loud.php"),
        "<?php $f = fopen('php://stderr', 'w'); \
         for ($i = 0; $i < 4000; $i++) fwrite($f, str_repeat('x', 99) . \"\\n\"); echo 'loud done';",
    )
    .unwrap();
    let (mut weir, stderr) = Weir::unheard(&mut command(&site, &site.text()), &site);
    weir.get_until("/loud.php", |answer| answer.contains("loud done"));
    let worker = pid_in(&weir.get_until("/pid.php", |answer| answer.contains("pid=")));
    signal(worker, Signal::KILL);
    weir.get_until("/pid.php", |answer| {
        answer.contains("pid=") && pid_in(answer) != worker
    });
    signal(weir.process.id(), Signal::HUP);
    weir.get_until("/pid.php", |answer| answer.contains("pid="));
    signal(weir.process.id(), Signal::TERM);
    assert!(weir.wait().success());
    drop(stderr);
}

#[test]
fn a_pipe_as_output_log_that_nobody_reads_stops_no_worker() {
    let site = Site::new();
    let pipe = site.path("output.fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    fs::write(
        site.path("site/loud.php"),
        "<?php $f = fopen('php://stderr', 'w'); \
         for ($i = 0; $i < 4000; $i++) fwrite($f, str_repeat('x', 99) . \"\\n\"); echo 'loud done';",
    )
    .unwrap();
    let text = site.text().replace(
        "[pool.php]",
        &format!("[pool.php]\noutput_log = \"{}\"", pipe.display()),
    );
    let weir = Weir::start_with(&site, &text);
    let worker = pid_in(&weir.get_until("/pid.php", |answer| answer.contains("pid=")));
    weir.get_until("/loud.php", |answer| answer.contains("loud done"));
    signal(worker, Signal::KILL);
    weir.get_until("/pid.php", |answer| {
        answer.contains("pid=") && pid_in(answer) != worker
    });
    // A reader that begins now gets the lines that weir kept.
    let mut reader = fs::File::open(&pipe).unwrap();
    let mut line = [0; 30];
    reader.read_exact(&mut line).unwrap();
    weir.stop();
}

#[test]
fn a_pipe_without_a_reader_as_log_is_said_and_holds_up_no_start() {
    let site = Site::new();
    let (access, error) = (site.path("access.fifo"), site.path("error.fifo"));
    for pipe in [&access, &error] {
        assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    let text = site.text().replace(
        "access = \"off\"",
        &format!("access = \"{}\"", access.display()),
    );
    let weir = Weir::start_with(&site, &text);
    weir.log_line("log.access: no program reads the pipe");
    assert!(weir.get("/a.txt").contains("hello"));
    let mut reader = fs::File::open(&access).unwrap();
    let mut bytes = [0; 32];
    reader.read_exact(&mut bytes).unwrap();
    weir.stop();
    let text = site.text().replace(
        "error = \"stderr\"",
        &format!("error = \"{}\"", error.display()),
    );
    let (mut weir, _stderr) = Weir::unheard(&mut command(&site, &text), &site);
    weir.get_until("/pid.php", |answer| answer.contains("pid="));
    signal(weir.process.id(), Signal::TERM);
    assert!(weir.wait().success());
}

#[test]
fn the_watchdog_of_systemd_hears_nothing_of_a_gateway_that_hangs() {
    let site = Site::new();
    let path = site.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let mut command = command(&site, &watched(&site, "0"));
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "4000000");
    let weir = Weir::of(command, &site);
    let fed = |limit: Duration| {
        let until = Instant::now() + limit;
        let mut buffer = [0; 256];
        while Instant::now() < until {
            if let Ok(n) = socket.recv(&mut buffer)
                && buffer[..n].starts_with(b"WATCHDOG=1")
            {
                return true;
            }
        }
        false
    };
    assert!(fed(Duration::from_secs(30)) && fed(Duration::from_secs(30)));
    let gateway = weir.gateway();
    stop(gateway);
    wait_until("the watchdog hears nothing", || {
        !fed(Duration::from_millis(4_500))
    });
    signal(gateway, Signal::CONT);
    assert!(fed(Duration::from_secs(30)), "it lives again");
    weir.stop();
}

#[test]
fn a_drain_accepts_what_waits_also_after_it_was_out_of_descriptors() {
    let site = Site::new().workers(1);
    // An answer that needs no descriptor.
    let route = "[[site.test.route]]\npath = \"/pong\"\nreply = { body = \"pong\\n\" }\n";
    site.write_config(&(site.text() + route));
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", "ulimit -n 100; exec \"$0\" serve -c \"$1\""])
        .arg(program())
        .arg(site.path("weir.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut weir = Weir::of(command, &site);
    let gateway = weir.gateway();
    stop(gateway);
    // More connections than there are descriptors, and more than weir accepts in one turn.
    let mut clients: Vec<_> = (0..300).map(|_| weir.connect()).collect();
    for client in &mut clients {
        client
            .write_all(b"GET /pong HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
    }
    signal(weir.process.id(), Signal::TERM);
    weir.log_line("stopping: running requests may finish");
    signal(gateway, Signal::CONT);
    for client in &mut clients {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("pong\n"), "{answer}");
    }
    assert!(weir.wait().success());
}

/// The folder of a new control group with this limit of memory.
fn group(limit: u64) -> std::path::PathBuf {
    let name = format!("weir-test-{}", std::process::id());
    for (root, file) in [
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ] {
        let folder = Path::new(root).join(&name);
        if fs::create_dir(&folder).is_ok() {
            if fs::write(folder.join(file), limit.to_string()).is_ok() {
                return folder;
            }
            let _ = fs::remove_dir(&folder);
        }
    }
    panic!(
        "this test needs a control group of its own: root must be able to create folders in /sys/fs/cgroup"
    );
}

#[test]
fn workers_that_the_kernel_ends_for_want_of_memory_are_errors_and_counted() {
    let site = Site::new().workers(2);
    // The kernel kills only the test's processes if they have their own control group, so the test needs the right to
    // create one.
    if !goes_on_as_root() {
        return;
    }
    let folder = group(400 << 20);
    fs::write(
        site.path("site/eat.php"),
        "<?php $a = []; for (;;) $a[] = str_repeat(random_bytes(16), 65536);",
    )
    .unwrap();
    let text = watched(&site, "20s").replace("[pool.php]", "[pool.php]\nretries = 0");
    let text = text.replace("\"php-cgi\"", "\"php-cgi\", \"-d\", \"memory_limit=-1\"");
    site.write_config(&text);
    let mut command = Command::new("/bin/sh");
    command
        .args([
            "-c",
            "echo $$ > \"$0/cgroup.procs\" && exec \"$1\" serve -c \"$2\"",
        ])
        .arg(&folder)
        .arg(program())
        .arg(site.path("weir.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let weir = Weir::of(command, &site);
    let answer = weir.get("/eat.php");
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
    let line = weir.log_line("because memory ran out");
    assert!(
        line.contains("error") && line.contains("pool=php"),
        "{line}"
    );
    assert!(weir.log_line("worker died: SIGKILL").contains("error"));
    wait_until("it is counted", || {
        let (_, status) = ask(&site, &["status"]);
        status.contains("processes of weir because memory ran out")
    });
    // A worker that was killed by hand does not count as one of them.
    let worker = pid_in(&weir.get_until("/pid.php", |answer| answer.contains("pid=")));
    signal(worker, Signal::KILL);
    weir.log_line("worker died: SIGKILL");
    let (_, status) = ask(&site, &["status", "--json"]);
    let status: String = status.split_whitespace().collect();
    assert!(status.contains("\"oom_kills\":1,"), "{status}");
    weir.stop();
    wait_until("the group is empty", || fs::remove_dir(&folder).is_ok());
}
