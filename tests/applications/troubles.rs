//! What weir tells operators about problems: readiness, `weir status`, its exit codes, the page.

mod machine;
mod many;
mod work;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::Value;

use weir_test::browser::Browser;
use weir_test::oddity::Oddity;
use weir_test::process::signal;
use weir_test::weir::program;
use weir_test::{Client, Responder, Setup, Weir, free_address, php, wait_for, wait_until};

/// A pool of weir's own PHP.
fn own_php(workers: usize, server: &str, pool: &str) -> Setup {
    let setup = Setup::new().admin().server(server);
    setup.pool(&format!(
        "runtime = \"php\"\npm = \"static\"\nmax_children = {workers}\n{pool}{}",
        php::identity()
    ))
}

fn ask(weir: &Weir, arguments: &[&str]) -> Output {
    weir.command(arguments).output().expect("weir")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The status as people read it, on one line.
fn text(weir: &Weir) -> String {
    let said = stdout(&ask(weir, &["status"]));
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn troubles(weir: &Weir) -> Vec<Value> {
    weir.status()["troubles"]
        .as_array()
        .cloned()
        .expect("a list")
}

/// Waits until a trouble contains all these parts. Returns what it says is wrong and what helps.
#[track_caller]
fn wait_for_trouble(weir: &Weir, parts: &[&str]) -> String {
    wait_for(&format!("a trouble with {parts:?}"), || {
        let all = troubles(weir);
        let said = |trouble: &Value| {
            let text = |key: &str| trouble[key].as_str().expect("a text").to_owned();
            format!("{} | {}", text("what"), text("help"))
        };
        let has_all = |said: &String| parts.iter().all(|part| said.contains(part));
        all.iter().map(said).find(has_all)
    })
}

/// Sends a request without waiting for its answer.
fn begin(weir: &Weir, path: &str) -> Client {
    let mut client = weir.client();
    client.send(weir_test::weir::request("GET", path, &[], b""));
    client
}

#[test]
fn workers_that_are_all_stuck_are_told_with_their_script_and_make_it_not_ready() {
    let weir = own_php(2, "ready_stalled = \"1s\"\n", "")
        .file(
            "stuck.php",
            "<?php while (!file_exists(__DIR__ . '/gate')) { usleep(5000); clearstatcache(); }",
        )
        .start();
    assert_eq!(weir.admin_get("/readyz").0, 200);
    let stuck: Vec<Client> = (0..3).map(|_| begin(&weir, "/stuck.php")).collect();
    wait_until("it is not ready", || weir.admin_get("/readyz").0 == 503);
    let (_, why) = weir.admin_get("/readyz");
    assert!(
        why.contains("pool app") && why.contains("ready_stalled is 1 s"),
        "{why}"
    );
    let said = wait_for_trouble(
        &weir,
        &[
            "all 2 workers have been busy with the same requests for",
            "2 run ",
            "/stuck.php; the oldest has run for",
            "(GET /stuck.php, process",
            "1 waits, the first for",
            "set request_terminate_timeout",
        ],
    );
    assert!(!said.contains("raise max_children"), "{said}");
    let shown = text(&weir);
    assert!(
        shown.contains("NOT READY: all workers of pool app have been busy"),
        "{shown}"
    );
    assert!(shown.contains("running 2 now, the oldest for"), "{shown}");

    // The problem is over as soon as one of the requests ends.
    fs::write(weir.root().join("gate"), "").expect("a file");
    wait_until("it is ready", || weir.admin_get("/readyz").0 == 200);
    wait_until("nothing is wrong", || troubles(&weir).is_empty());
    drop(stuck);
}

#[test]
fn servers_that_stand_still_are_not_helped_by_more_workers() {
    let setup = Setup::new()
        .file("run.php", "")
        .admin()
        .server("ready_stalled = \"1s\"\n");
    let (responder, gate) = Responder::gated(setup.folder(), |_, answer| {
        answer.page("done");
    });
    let weir = setup.pool(&responder.pool(2)).start();
    let stuck: Vec<Client> = (0..3).map(|_| begin(&weir, "/run.php?secret=1")).collect();
    let said = wait_for_trouble(
        &weir,
        &[
            "the servers have been busy with the same 2 requests for",
            "the oldest has run for",
            "GET /run.php)",
            "slow log",
        ],
    );
    assert!(!said.contains("max_children"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    assert_eq!(weir.admin_get("/readyz").0, 503);
    gate.open();
    wait_until("nothing is wrong", || troubles(&weir).is_empty());
    drop(stuck);
}

#[test]
fn workers_that_crash_are_told_with_the_request_that_met_it() {
    let weir = own_php(2, "", "retries = 0\n")
        .file("crash.php", "<?php posix_kill(getmypid(), 11); sleep(60);")
        .start();
    for _ in 0..2 {
        weir.get("/crash.php").expect(502);
    }
    let said = wait_for_trouble(
        &weir,
        &["crashed in the last minute", "GET /crash.php", "SIGSEGV"],
    );
    assert!(said.starts_with("pool app: "), "{said}");
    let shown = text(&weir);
    assert!(!shown.contains("a moment ago"), "{shown}");
}

#[test]
fn answers_of_500_are_a_trouble_while_they_last() {
    let weir = own_php(1, "", "")
        .file("bad.php", "<?php http_response_code(500);")
        .start();
    assert_eq!(troubles(&weir), Vec::<Value>::new());
    for _ in 0..4 {
        weir.get("/bad.php?secret=1").expect(500);
    }
    let said = wait_for_trouble(
        &weir,
        &["only with errors in the last minute: 4 of 4 requests with 500"],
    );
    assert!(
        said.contains("the last was GET /bad.php (request"),
        "{said}"
    );
    let pool = &weir.status()["pools"][0];
    assert_eq!(pool["failures"][0]["total"], 4);
    // Everything counted in the last minute is also counted since the start.
    assert_eq!(pool["last_minute"]["times"]["total"]["count"], 4);
    assert_eq!(pool["times"]["total"]["count"], 4);
}

#[test]
fn a_name_that_does_not_resolve_is_told() {
    let nobody = free_address();
    let weir = Setup::new()
        .file("run.php", "")
        .admin()
        .server(&format!("resolver = [\"{nobody}\"]"))
        .pool(
            "runtime = \"servers\"\nservers = [\"no-such-host.invalid:9000\"]\nqueue.maxconn = 2\n",
        )
        .start();
    wait_for_trouble(
        &weir,
        &[
            "the name no-such-host.invalid has not resolved for",
            "resolver",
        ],
    );
}

#[test]
fn a_full_disk_under_the_access_log_is_told_and_its_lost_lines_counted() {
    let setup = Setup::new().file("text.txt", "a text").admin().server("");
    let weir = setup.log("access = \"/dev/full\"").start();
    weir.get("/text.txt").expect(200);
    let said = wait_for_trouble(
        &weir,
        &["/dev/full cannot be written: No space left on device"],
    );
    assert!(said.contains("free some disk space"), "{said}");
    let (_, metrics) = weir.admin_get("/metrics");
    assert!(
        metrics.contains("weir_log_lines_lost_total{log=\"access log /dev/full\"} 0"),
        "{metrics}"
    );
}

#[test]
fn a_manager_that_is_stopped_is_told_with_what_to_do() {
    let weir = own_php(1, "", "").start();
    text(&weir);
    signal(weir.pid(), Signal::STOP);
    let pid = weir.pid();
    let said = wait_for_trouble(
        &weir,
        &[
            &format!("the manager (process {pid}) has not answered for"),
            &format!("kill -CONT {pid}"),
        ],
    );
    signal(weir.pid(), Signal::CONT);
    assert!(
        said.contains("no workers are started or replaced"),
        "{said}"
    );
    wait_until("it answers again", || troubles(&weir).is_empty());
}

#[test]
fn one_pool_is_shown_where_one_is_asked_for() {
    let weir = own_php(1, "", "")
        .more(&format!(
            "[pool.other]\nruntime = \"php\"\npm = \"static\"\nmax_children = 1\n{}",
            php::identity()
        ))
        .start();
    let shown = stdout(&ask(&weir, &["status", "--pool", "other"]));
    assert!(shown.contains("\npool other: php"), "{shown}");
    assert!(
        !shown.contains("pool app") && !shown.contains("listens on"),
        "{shown}"
    );
    let output = ask(&weir, &["status", "--json", "--pool", "app"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(status["pools"].as_array().map(Vec::len), Some(1));
    assert_eq!(status["pools"][0]["name"], "app");

    let output = ask(&weir, &["status", "--pool", "none"]);
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("no pool \"none\"") && said.contains("app, other"),
        "{said}"
    );
}

#[test]
fn that_no_weir_runs_has_one_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let nobody = format!("--admin=unix:{}/admin.sock", folder.path().display());
    for command in [
        &["status"][..],
        &["status", "--json"],
        &["reload"],
        &["stop"],
        &["drain"],
        &["pool", "app", "restart"],
        &["watch", "--once"],
    ] {
        let output = Command::new(program())
            .args(command)
            .arg(&nobody)
            .output()
            .expect("weir");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(69), "{command:?}: {said}");
        assert!(said.contains("no weir is running at"), "{said}");
    }
}

#[test]
fn a_trouble_over_the_whole_screen_is_in_the_first_lines_of_a_watched_status() {
    let weir = own_php(1, "", "")
        .file("bad.php", "<?php http_response_code(500);")
        .start();
    for _ in 0..4 {
        weir.get("/bad.php").expect(500);
    }
    wait_for_trouble(&weir, &["only with errors"]);
    // A terminal of 60 columns and 12 rows.
    let command = format!(
        "stty cols 60 rows 12; exec {} status --watch {}",
        program(),
        weir.admin_option()
    );
    let output = weir.folder().join("screen");
    let mut child = Command::new("script")
        .args(["--quiet", "--flush", "--command", &command])
        .arg(&output)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("script");
    let frame = weir_test::wait_for("a second frame", || {
        let shown = fs::read_to_string(&output).unwrap_or_default();
        let mut frames = shown.split("\u{1b}[H\u{1b}[2J");
        frames
            .nth(1)
            .filter(|_| frames.next().is_some())
            .map(str::to_owned)
    });
    let _ = child.kill();
    let _ = child.wait();
    let lines: Vec<&str> = frame.lines().collect();
    assert!(lines.len() < 12, "{frame}");
    for line in &lines {
        assert!(line.trim_end_matches('\r').chars().count() <= 60, "{line}");
    }
    assert!(
        frame.contains("! pool app: scripts answered only with errors"),
        "{frame}"
    );
    assert!(frame.contains("more lines: weir status"), "{frame}");
}

#[test]
fn the_page_keeps_focus_selection_and_what_is_unfolded_while_it_updates() {
    let address = free_address();
    let weir = own_php(2, &format!("admin_tcp = \"{address}\"\n"), "")
        .file("pid.php", "<?php echo getmypid();")
        .start();
    weir.get("/pid.php").expect(200);
    let mut browser = Browser::open(weir.folder(), &format!("http://{address}/"));
    browser.wait_until("document.documentElement.dataset.drawn === 'yes'");
    browser.run(
        "window.summary = document.querySelector('details summary'); summary.parentNode.open = true; summary.focus(); \
         window.head = document.querySelector('#pools h2'); \
         document.getSelection().selectAllChildren(head); \
         window.was = document.getElementById('facts').textContent; \
         window.selected = document.getSelection().toString(); selected",
    );
    // The display has been drawn again when the time since the start has changed.
    weir.get("/pid.php").expect(200);
    browser.wait_until("document.getElementById('facts').textContent !== was");
    browser.run("was = document.getElementById('facts').textContent");
    browser.wait_until("document.getElementById('facts').textContent !== was");
    assert_eq!(browser.run("document.activeElement === summary"), true);
    assert_eq!(
        browser.run("summary.isConnected && summary.parentNode.open"),
        true
    );
    assert_eq!(browser.run("head.isConnected"), true);
    assert_eq!(
        browser.run("document.getSelection().toString() === selected && selected.includes('app')"),
        true
    );
}

#[test]
fn the_page_is_not_green_while_something_is_wrong() {
    let address = free_address();
    let weir = own_php(1, &format!("admin_tcp = \"{address}\"\n"), "")
        .file("bad.php", "<?php http_response_code(500);")
        .start();
    let mut browser = Browser::open(weir.folder(), &format!("http://{address}/"));
    browser.wait_until("document.getElementById('state').textContent === 'serving, ready'");
    assert_eq!(
        browser.run("document.getElementById('state').className"),
        ""
    );
    for _ in 0..4 {
        weir.get("/bad.php").expect(500);
    }
    browser
        .wait_until("document.getElementById('state').textContent === 'serving, ready, 1 problem'");
    assert_eq!(
        browser.run("document.getElementById('state').className"),
        "warn"
    );
    assert_eq!(browser.run("document.title"), "1 problem – weir");
}

#[test]
fn metrics_are_compressed_and_have_no_histograms_of_sites_without_a_pool() {
    let start = |server: &str| {
        let setup = own_php(1, server, "").file("pid.php", "<?php echo getmypid();");
        let files = setup.folder().join("files");
        fs::create_dir_all(&files).expect("a folder");
        let more = format!(
            "[site.files]\nhosts = [\"files.example\"]\nroot = \"{}\"\n",
            files.display()
        );
        setup.more(&more).start()
    };
    let weir = start("");
    weir.get("/pid.php").expect(200);
    let (_, text) = weir.admin_get("/metrics");
    for line in [
        "weir_site_request_duration_seconds_count{site=\"main\"}",
        "weir_site_requests_total{site=\"files\",code=\"2xx\"} 0",
        "weir_process_open_fds{process=\"gateway\"} ",
        "weir_process_open_fds{process=\"manager\"} ",
        "weir_process_max_fds{process=\"gateway\"} ",
        "weir_busy_seconds_total{pool=\"app\"} ",
        "weir_pool_capacity_requests{pool=\"app\"} 1",
        "weir_pool_busy_ratio{pool=\"app\"} ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(
        !text.contains("duration_seconds_count{site=\"files\"}"),
        "{text}"
    );
    assert!(
        !text.contains("duration_seconds_count{site=\"-\"}"),
        "{text}"
    );
    let help = text.lines().filter(|line| line.starts_with("# HELP"));
    for line in help {
        assert!(!line.contains('`') && !line.contains("**"), "{line}");
    }
    let fds = |process: &str| -> u64 {
        let name = format!("weir_process_open_fds{{process=\"{process}\"}} ");
        let value = text
            .split(&name)
            .nth(1)
            .and_then(|rest| rest.lines().next());
        value.expect("a value").parse().expect("a number")
    };
    assert!(fds("gateway") > 5 && fds("manager") > 5);

    let head = weir.folder().join("head");
    let output = Command::new("curl")
        .args([
            "--silent",
            "--max-time",
            "30",
            "--compressed",
            "--unix-socket",
        ])
        .arg(weir.folder().join("admin.sock"))
        .arg("--dump-header")
        .arg(&head)
        .arg("http://weir/metrics")
        .output()
        .expect("curl");
    let head = fs::read_to_string(head)
        .expect("a head")
        .to_ascii_lowercase();
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let length = head
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    let length: usize = length.expect("a length").trim().parse().expect("a number");
    assert!(
        length * 3 < output.stdout.len(),
        "{length} of {}",
        output.stdout.len()
    );
    assert!(stdout(&output).contains("weir_ready 1"));

    let weir = start("site_histograms = false\n");
    // A pool that nobody has used has no histogram.
    weir.get("/pid.php").expect(200);
    let (_, text) = weir.admin_get("/metrics");
    assert!(
        !text.contains("weir_site_request_duration_seconds"),
        "{text}"
    );
    assert!(
        text.contains("weir_pool_queue_duration_seconds_count{pool=\"app\"}"),
        "{text}"
    );
}

#[test]
fn busy_workers_are_counted_while_they_are_busy() {
    let weir = own_php(2, "", "")
        .file(
            "stuck.php",
            "<?php while (!file_exists(__DIR__ . '/gate')) { usleep(5000); clearstatcache(); }",
        )
        .start();
    let busy = || -> f64 {
        let (_, text) = weir.admin_get("/metrics");
        let value = text.split("weir_busy_seconds_total{pool=\"app\"} ").nth(1);
        let value = value.and_then(|rest| rest.lines().next()).expect("a value");
        value.parse().expect("a number")
    };
    let stuck = begin(&weir, "/stuck.php");
    // The number grows although the request has not ended.
    wait_until("half a second is counted", || busy() > 0.5);
    wait_until("half of the pool is in use", || {
        weir.status()["pools"][0]["load"]["ratio"].as_f64() > Some(0.05)
    });
    fs::write(weir.root().join("gate"), "").expect("a file");
    drop(stuck);
}

#[test]
fn errors_of_requests_name_url_and_client_in_the_error_log() {
    let weir = own_php(1, "", "retries = 0\nrequest_terminate_timeout = \"1s\"\n")
        .file("crash.php", "<?php posix_kill(getmypid(), 11); sleep(60);")
        .file("slow.php", "<?php sleep(60);")
        .file(
            "warns.php",
            "<?php error_log('a message of its own'); echo $nothing;",
        )
        .start();
    weir.get("/crash.php?a=1").expect(502);
    weir.wait_for_error(&[
        "502 worker_died",
        "client=127.",
        "method=GET",
        "url=\"/crash.php?a=1\"",
    ]);
    weir.get("/slow.php?b=2").expect(504);
    weir.wait_for_error(&["504 terminated", "client=127.", "url=\"/slow.php?b=2\""]);
    weir.get("/warns.php?c=3").expect(200);
    weir.wait_for_error(&[
        "a message of its own",
        "client=127.",
        "url=\"/warns.php?c=3\"",
    ]);
}
