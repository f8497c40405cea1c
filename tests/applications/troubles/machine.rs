//! Resources that the machine refuses: processor time, disk space, processes. What weir tells operators about this.

use std::os::unix::{fs::MetadataExt, process::CommandExt};
use std::path::Path;

use super::*;
use weir_test::process::wait;
use weir_test::{LIMIT, goes_on_as_root};

/// The value of a metric whose line begins with this.
fn metric(weir: &Weir, begin: &str) -> Option<f64> {
    let (status, page) = weir.admin_get("/metrics");
    assert_eq!(status, 200, "{page}");
    let line = page.lines().find(|line| line.starts_with(begin))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// A thread of a process, by its name.
fn thread(pid: u32, name: &str) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let is_it = |path: &Path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    let task = tasks.flatten().find(|task| is_it(&task.path()));
    let task = task.unwrap_or_else(|| panic!("no thread {name}"));
    task.file_name().into_string().expect("a number")
}

#[test]
fn a_reactor_that_stands_still_is_told_and_makes_it_not_ready() {
    // Only a user that may trace any process can stop one thread of it.
    if !goes_on_as_root() {
        return;
    }
    let lines = "threads = 2\ngateway_timeout = \"0\"\n";
    let weir = Setup::new().admin().server(lines).start();
    assert_eq!(weir.admin_get("/readyz").0, 200);
    let mut strace = Command::new("strace")
        .args([
            "-q",
            "-o",
            "/dev/null",
            "-e",
            "trace=epoll_wait,epoll_pwait",
        ])
        .args(["-e", "inject=epoll_wait,epoll_pwait:delay_enter=600000000"])
        .args(["-p", &thread(weir.gateway().pid, "reactor 1")])
        .spawn()
        .expect("strace");
    let said = wait_for_trouble(&weir, &["reactor 1 of the gateway has been stuck for"]);
    assert!(said.contains(&weir.gateway().pid.to_string()), "{said}");
    wait_until("it is not ready", || {
        let (status, said) = weir.admin_get("/readyz");
        status == 503 && said.contains("reactor 1 has not moved for")
    });
    let status = weir.status();
    let silent = status["silent"]["reactors"].as_array().expect("a list");
    assert_eq!(silent.len(), 1, "{silent:?}");
    signal(strace.id(), Signal::INT);
    wait(&mut strace, LIMIT).expect("it lets go of the thread");
    wait_until("it is ready again", || weir.admin_get("/readyz").0 == 200);
    wait_until("nothing is told any more", || {
        weir.status()["silent"]["reactors"] == serde_json::json!([])
    });
}

#[test]
fn a_full_spool_is_told_with_what_helps_and_counted() {
    let setup = Setup::new()
        .file("run.php", "")
        .admin()
        .server("max_spool = \"1M\"\n");
    let (responder, gate) = Responder::gated(setup.folder(), |_, answer| {
        answer.page("a page");
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    let post = |length: usize| {
        let mut client = weir.client();
        let body = vec![b'x'; length];
        client.send(weir_test::weir::request("POST", "/run.php", &[], &body));
        client
    };
    let mut held = post(1_030_000);
    let said = wait_for_trouble(&weir, &["temporary files of bodies use"]);
    assert!(
        said.contains("max_spool") && said.contains("1024 KiB"),
        "{said}"
    );
    // There is no space for another body.
    post(900_000)
        .response()
        .expect(503)
        .expect_reason("spool_f");
    wait_for_trouble(&weir, &["503 spool_f", "spool_dir"]);
    assert!(metric(&weir, "weir_spool_bytes ").is_some_and(|bytes| bytes > 900_000.0));
    gate.open();
    held.response().expect(200);
    wait_until("the room is there again", || {
        metric(&weir, "weir_spool_bytes ") == Some(0.0)
    });
    let full = |trouble: &Value| trouble["what"].to_string().contains("temporary files");
    assert!(!troubles(&weir).iter().any(full));
}

#[test]
fn workers_that_cannot_be_forked_are_told_and_are_there_once_they_can() {
    // A user for this test alone, who has no other process.
    if !goes_on_as_root() {
        return;
    }
    let user = 61_000 + std::process::id() % 4_000;
    let setup = Setup::new().admin().file("a.php", "<?php echo 'a';").file(
        "gate.php",
        "<?php while (!file_exists(__DIR__ . '/gate')) { usleep(5000); clearstatcache(); } echo 'done';",
    );
    let weir = setup
        .pool(&format!(
            "runtime = \"php\"\nuser = \"{user}\"\ngroup = \"nogroup\"\npm = \"ondemand\"\nmax_children = 2\n\
             process_idle_timeout = \"100ms\"\nmaster_idle_timeout = \"0\"\n"
        ))
        .start();
    weir.get("/a.php").expect(200);
    wait_until("only the master is left", || weir.workers().len() == 1);
    let group = fs::metadata(format!("/proc/{}", weir.workers()[0].pid))
        .expect("it")
        .gid();
    let masters = weir.workers();
    assert_eq!(masters.len(), 1, "{masters:?}");
    let processes = |most: &str| {
        let pid = masters[0].pid.to_string();
        let limit = format!("--nproc={most}");
        // Run as that user, who may do this whatever root may do here.
        let status = Command::new("prlimit")
            .args(["--pid", &pid, &limit])
            .uid(user)
            .gid(group)
            .status();
        assert!(status.expect("prlimit").success());
    };
    // The master, and a worker without a second thread.
    processes("2:");
    let mut clients: Vec<Client> = (0..2).map(|_| begin(&weir, "/gate.php")).collect();
    wait_for_trouble(&weir, &["could not be started", "pool app"]);
    weir.wait_for_error(&["pool=app", "Resource temporarily unavailable"]);
    processes("1000:");
    wait_until("both run", || {
        weir.status()["pools"][0]["workers"]["busy"] == 2
    });
    fs::write(weir.root().join("gate"), "").expect("the gate");
    for client in &mut clients {
        client.response().expect(200);
    }
}

#[test]
fn lines_that_the_managers_log_has_lost_are_counted_and_told() {
    let setup = Setup::new().admin();
    let pipe = setup.folder().join("log/pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    weir_test::weir::mode(&pipe, 0o666);
    // The pipe stays open, and nothing reads it until there is nothing more to lose.
    let reader = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .expect("the pipe");
    let text = format!(
        "<?php $line = str_repeat('x', 1000) . \"\\n\"; $out = fopen('php://stderr', 'w');\n\
         for ($i = 0; $i < {LINES}; $i++) fwrite($out, $line); echo 'said';"
    );
    let weir = setup
        .file("loud.php", text)
        .log(&format!("error = \"{}\"", pipe.display()))
        .pool(&format!(
            "runtime = \"php\"\npm = \"static\"\nmax_children = 1\n{}",
            php::identity()
        ))
        .start();
    wait_until("it has started", || {
        ask(&weir, &["status"]).status.success()
    });
    // More than the pipe and the manager's buffer hold.
    weir.get("/loud.php").expect(200);
    let lost = || {
        metric(
            &weir,
            "weir_log_lines_lost_total{log=\"error log of the manager\"}",
        )
    };
    wait_until("lines are lost", || lost().is_some_and(|lost| lost > 0.0));
    let said = wait_for_trouble(&weir, &["error log of the manager", "lost so far"]);
    assert!(
        said.contains("reader of the pipe") || said.contains("faster"),
        "{said}"
    );
    let logs = weir.status()["logs"].as_array().cloned().expect("a list");
    let of_manager = logs
        .iter()
        .find(|log| log["name"] == "error log of the manager");
    assert!(
        of_manager.is_some_and(|log| log["lost"].as_u64() > Some(0)),
        "{logs:?}"
    );
    // Reads to the end, so that weir can finish.
    std::thread::spawn(move || std::io::copy(&mut { reader }, &mut std::io::sink()));
    wait_until("the last lines are out", || {
        let logs = weir.status()["logs"].clone();
        logs.as_array()
            .expect("a list")
            .iter()
            .all(|log| log["waiting"] == 0)
    });
}

/// Lines of a thousand bytes each: 20 MB.
const LINES: usize = 20_000;
