//! Things that stop: gateways, managers, pipes, machines without memory. None of them delays what can continue.

use std::{
    fs,
    io::Read,
    os::unix::net::UnixDatagram,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use weir_test::cgroup::Group;

use crate::support::*;

/// A site with a limit for silent gateways, and an admin interface.
fn watched(limit: &str) -> Setup {
    cgi_site()
        .admin()
        .server(&format!("gateway_timeout = \"{limit}\""))
}

fn ask(weir: &Weir, what: &[&str]) -> (bool, String) {
    let output = weir.command(what).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn a_gateway_that_is_stopped_is_noticed_and_replaced() {
    // Longer than a busy machine makes a process wait.
    let weir = watched("4s").start();
    let first = weir.gateway().pid;
    // A gateway that waits or works is not replaced, even after more than the limit.
    weir.get_until("/slow.php", |answer| answer.text() == "slow done");
    std::thread::sleep(Duration::from_millis(4_500));
    assert_eq!(weir.gateway().pid, first);
    stop(first);
    let mut queued = weir.client();
    queued.send("GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let line = weir.log_line("has given no sign of life for");
    assert!(
        line.contains("error") && line.contains("gateway_timeout"),
        "{line}"
    );
    assert_eq!(queued.response().expect(200).text(), "hello\n");
    assert_ne!(weir.gateway().pid, first);
    wait_until("it is counted", || {
        let (_, status) = ask(&weir, &["status", "--json"]);
        status.contains("\"gateway_hangs\": 1") || status.contains("\"gateway_hangs\":1")
    });
}

#[test]
fn a_reload_reaches_the_manager_past_a_gateway_that_hangs() {
    let site = watched("0");
    let mut weir = site.start();
    let first = weir.gateway().pid;
    stop(first);
    fs::write(site.path("other/b.txt"), "other\n").unwrap();
    let other = format!("root = \"{}\"", site.path("other").display());
    let changed = site.clone().server("gateway_timeout = \"2s\"");
    changed.site(&other).write_toml();
    let (done, said) = ask(&weir, &["reload"]);
    assert!(
        done && said.contains("the new configuration serves"),
        "{said}"
    );
    assert!(weir.get("/b.txt").text().contains("other"));
    // A wrong configuration is reported as wrong.
    let second = weir
        .children()
        .into_iter()
        .find(|pid| *pid != first && is_gateway(*pid));
    stop(second.unwrap());
    site.write_config("[server]\nno_such_key = 1\n");
    let (done, said) = ask(&weir, &["reload"]);
    assert!(!done && said.contains("no_such_key"), "{said}");
    signal(first, Signal::CONT);
    weir.kill();
}

fn is_gateway(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "weir-gateway\n")
}

#[test]
fn a_manager_that_stands_still_is_told_by_readyz_and_stops_no_files() {
    let weir = watched("4s").start();
    let ready = || weir.admin_get("/readyz");
    assert_eq!(ready().0, 200);
    stop(weir.pid());
    wait_until("it is not ready", || {
        ready().1.contains("the manager has given no sign of life")
    });
    assert!(weir.get("/a.txt").text().contains("hello"));
    weir.signal(Signal::CONT);
    // The manager itself was stopped, so it must not blame the gateway for being silent meanwhile.
    let gateway = weir.gateway().pid;
    wait_until("it is ready again", || ready().0 == 200);
    assert_eq!(weir.gateway().pid, gateway);
}

/// Writes more to stderr than any pipe holds, line by line.
const LOUD: &str = "<?php $f = fopen('php://stderr', 'w'); \
    for ($i = 0; $i < 4000; $i++) fwrite($f, str_repeat('x', 99) . \"\\n\"); echo 'loud done';";

#[test]
fn a_pipe_as_error_log_that_nobody_reads_stops_neither_workers_nor_the_end() {
    let mut weir = cgi_site().file("loud.php", LOUD).stderr_unread().start();
    weir.get_until("/loud.php", |answer| answer.text() == "loud done");
    let worker = pid(&weir);
    signal(worker, Signal::KILL);
    wait_until("another worker answers", || pid(&weir) != worker);
    weir.signal(Signal::HUP);
    pid(&weir);
    weir.signal(Signal::TERM);
    assert!(weir.wait_for_end().success());
}

#[test]
fn a_pipe_as_output_log_that_nobody_reads_stops_no_worker() {
    let site = cgi_site();
    let pipe = site.path("output.fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let output_log = format!("output_log = \"{}\"", pipe.display());
    let weir = site.file("loud.php", LOUD).pool(&output_log).start();
    let worker = pid(&weir);
    weir.get_until("/loud.php", |answer| answer.text() == "loud done");
    signal(worker, Signal::KILL);
    wait_until("another worker answers", || pid(&weir) != worker);
    // A reader that begins now gets the lines that weir kept.
    let mut reader = fs::File::open(&pipe).unwrap();
    let mut line = [0; 30];
    reader.read_exact(&mut line).unwrap();
}

#[test]
fn a_pipe_without_a_reader_as_log_is_said_and_holds_up_no_start() {
    let site = cgi_site();
    let (access, error) = (site.path("access.fifo"), site.path("error.fifo"));
    for pipe in [&access, &error] {
        assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    let log = |key: &str, pipe: &Path| format!("{key} = \"{}\"", pipe.display());
    let weir = site.clone().log(&log("access", &access)).start();
    weir.log_line("log.access: no program reads the pipe");
    assert!(weir.get("/a.txt").text().contains("hello"));
    let mut reader = fs::File::open(&access).unwrap();
    let mut bytes = [0; 32];
    reader.read_exact(&mut bytes).unwrap();
    drop(weir);
    let mut weir = site.log(&log("error", &error)).stderr_unread().start();
    pid(&weir);
    weir.signal(Signal::TERM);
    assert!(weir.wait_for_end().success());
}

#[test]
fn the_watchdog_of_systemd_hears_nothing_of_a_gateway_that_hangs() {
    let site = watched("0");
    let path = site.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let notify = format!("NOTIFY_SOCKET={}", path.display());
    let weir = site
        .under(&["env", &notify, "WATCHDOG_USEC=4000000"])
        .start();
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
    let gateway = weir.gateway().pid;
    stop(gateway);
    wait_until("the watchdog hears nothing", || {
        !fed(Duration::from_millis(4_500))
    });
    signal(gateway, Signal::CONT);
    assert!(fed(Duration::from_secs(30)), "it lives again");
}

/// With an answer that needs no descriptor, at /pong.
fn with_few_descriptors() -> Weir {
    let route = "[[site.main.route]]\npath = \"/pong\"\nreply = { body = \"pong\\n\" }\n";
    cgi_site()
        // Else weir takes so few that they have descriptors, and closes silent ones for new ones.
        .server("max_connections = 1000")
        .pool("max_children = 1")
        .more(route)
        .under(&["/bin/sh", "-c", "ulimit -n 100; exec \"$0\" \"$@\""])
        .start()
}

#[test]
fn a_drain_accepts_what_waits_also_after_it_was_out_of_descriptors() {
    let mut weir = with_few_descriptors();
    let gateway = weir.gateway().pid;
    stop(gateway);
    // More connections than there are descriptors, and more than weir accepts in one turn.
    let mut clients: Vec<_> = (0..300).map(|_| weir.client()).collect();
    for client in &mut clients {
        client.send("GET /pong HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    }
    weir.signal(Signal::TERM);
    weir.log_line("stopping: running requests may finish");
    signal(gateway, Signal::CONT);
    for client in &mut clients {
        assert_eq!(client.response().expect(200).text(), "pong\n");
    }
    assert!(weir.wait_for_end().success());
}

#[test]
fn a_gateway_that_is_out_of_descriptors_serves_on_when_the_logs_are_reopened() {
    let mut weir = with_few_descriptors();
    let gateway = weir.gateway().pid;
    stop(gateway);
    let mut clients: Vec<_> = (0..120).map(|_| weir.client()).collect();
    for client in &mut clients {
        client.send("GET /pong HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    }
    weir.signal(Signal::TERM);
    weir.log_line("stopping: running requests may finish");
    signal(gateway, Signal::CONT);
    // Not "cannot accept connections": the warning about the limit at the start has these words.
    weir.log_line("cannot accept connections on listen.web");
    // The gateway gets open files, for which it has no descriptors.
    weir.signal(Signal::USR1);
    weir.log_line("a message of the manager waits");
    for client in &mut clients {
        client.send("\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response().expect(200).text(), "pong\n");
    }
    assert!(weir.wait_for_end().success());
}

#[test]
fn workers_that_the_kernel_ends_for_want_of_memory_are_errors_and_counted() {
    // The kernel kills only the test's processes if they have their own control group, so the test needs the right to
    // create one.
    if !goes_on_as_root() {
        return;
    }
    let group = Group::new(400 << 20);
    let script = "<?php $a = []; for (;;) $a[] = str_repeat(random_bytes(16), 65536);";
    let command = pool_command(&["php-cgi", "-d", "memory_limit=-1"]);
    let weir = watched("20s")
        .file("eat.php", script)
        .pool(&format!("retries = 0\n{command}"))
        .under(&group.enter().each_ref().map(String::as_str))
        .start();
    let answer = weir.get("/eat.php");
    assert!((500..510).contains(&answer.status), "{answer:?}");
    let line = weir.log_line("because memory ran out");
    assert!(
        line.contains("error") && line.contains("pool=app"),
        "{line}"
    );
    assert!(weir.log_line("worker died: SIGKILL").contains("error"));
    wait_until("it is counted", || {
        let (_, status) = ask(&weir, &["status"]);
        status.contains("processes of weir because memory ran out")
    });
    // A worker that was killed by hand does not count as killed for lack of memory.
    let worker = pid(&weir);
    signal(worker, Signal::KILL);
    weir.log_line("worker died: SIGKILL");
    let (_, status) = ask(&weir, &["status", "--json"]);
    let status: String = status.split_whitespace().collect();
    assert!(status.contains("\"oom_kills\":1,"), "{status}");
    drop(weir);
    drop(group);
}
