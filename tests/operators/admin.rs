//! The admin interface: `weir status`, `weir reload`, `weir stop`, `weir pool NAME restart`.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Output};

use rustix::process::Signal;

use weir_test::process::signal;
use weir_test::{GROUP, Setup, USER, Weir, is_root, wait_until};

/// A weir with one PHP worker of its own and an admin interface in its folder.
fn setup() -> Setup {
    let setup = Setup::new()
        .file("pid.php", "<?php echo getmypid();")
        .pool(&format!(
            "runtime = \"php\"\npm = \"static\"\nmax_children = 1\n{}",
            identity()
        ));
    setup.admin()
}

fn identity() -> String {
    match is_root() {
        true => format!("user = \"{USER}\"\ngroup = \"{GROUP}\""),
        false => String::new(),
    }
}

fn socket(weir: &Weir) -> PathBuf {
    weir.folder().join("admin.sock")
}

/// `weir ARGUMENTS --admin …`
fn ask(weir: &Weir, arguments: &[&str]) -> Output {
    weir.command(arguments).output().expect("weir")
}

#[track_caller]
fn fine(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// All its visitors are one client. A visitor who sends such a header now and then is none.
#[test]
fn a_proxy_that_is_not_trusted_is_a_problem() {
    let weir = setup().start();
    let local = weir.client().stream().local_addr();
    let address = local.expect("an address").ip().to_string();
    let ask_as = |from: u32| {
        let client = format!("192.0.2.{from}");
        weir.request("GET", "/pid.php", &[("X-Forwarded-For", &client)], b"")
            .expect(200);
    };
    assert!(weir.status()["untrusted_proxy"].is_null());
    wait_until("it is known", || {
        (1..=12).for_each(ask_as);
        weir.status()["untrusted_proxy"]["address"] == address.as_str()
    });
    let text = fine(&ask(&weir, &["status"]));
    let advice = format!("trusted = [\"{address}\"]");
    assert!(
        text.contains("X-Forwarded-For") && text.contains(&advice),
        "{text}"
    );
}

#[test]
fn the_status_is_for_people_and_for_programs() {
    let weir = setup().start();
    let pid = weir.get("/pid.php").expect(200).text();
    let text = fine(&ask(&weir, &["status"]));
    assert!(text.contains("pool app: php, up, generation 1"), "{text}");
    assert!(text.contains("0 busy, 1 idle"), "{text}");
    assert!(text.contains(&pid), "{text}");
    assert!(text.contains("GET /pid.php"), "{text}");

    let json = fine(&ask(&weir, &["status", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(status["state"], "serving");
    assert_eq!(status["manager_pid"], weir.pid());
    assert_eq!(status["pools"][0]["requests"]["taken"], 1);
    assert_eq!(status["pools"][0]["processes"][0]["pid"].to_string(), pid);
    assert_eq!(status["listeners"][0]["serves"][0], "main");
}

#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    let weir = setup().start();
    weir.get("/pid.php").expect(200);
    weir.get("/nothing").expect(404);
    let counted = "weir_site_requests_total{site=\"main\",code=\"4xx\"} 1";
    wait_until("both are counted", || {
        weir.admin_get("/metrics").1.contains(counted)
    });
    let (status, text) = weir.admin_get("/metrics");
    assert_eq!(status, 200);
    for line in [
        "weir_pool_finished_total{pool=\"app\"} 1",
        "weir_pool_queue_duration_seconds_count{pool=\"app\"} 1",
        "weir_pool_service_duration_seconds_count{pool=\"app\"} 1",
        "weir_queue_seconds_total{pool=\"app\"} 0",
        "weir_site_request_duration_seconds_count{site=\"main\"} 2",
        "weir_connections_accepted_total{listener=",
        "weir_ready 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    weir.expect_sound_metrics(&text);
}

#[test]
fn nobody_but_its_owner_may_come_in() {
    let weir = setup().start();
    // The socket is created without rights for anybody, and then gets its owner.
    let mode = || fs::metadata(socket(&weir)).map(|metadata| metadata.permissions().mode() & 0o777);
    wait_until("its owner may use it", || {
        mode().is_ok_and(|mode| mode != 0)
    });
    assert_eq!(mode().expect("a socket"), 0o600);
    let metadata = fs::metadata(socket(&weir)).expect("a socket");
    assert!(metadata.file_type().is_socket());
    assert_eq!(
        metadata.uid(),
        fs::metadata(weir.folder()).expect("a folder").uid()
    );
}

#[test]
fn a_reload_is_answered_when_the_new_configuration_serves() {
    let weir = setup().start();
    let file = weir.folder().join("weir.toml");
    let text = fs::read_to_string(&file).expect("weir.toml");
    let route = "[[site.main.route]]\npath = \"/new\"\nreply = { status = 200, body = \"new\" }\n";
    fs::write(&file, format!("{text}\n{route}")).expect("weir.toml");
    let said = fine(&ask(&weir, &["reload"]));
    assert!(said.contains("the new configuration serves"), "{said}");
    assert_eq!(weir.get("/new").expect(200).text(), "new");
}

#[test]
fn a_wrong_configuration_changes_nothing_and_says_why() {
    let weir = setup().start();
    let file = weir.folder().join("weir.toml");
    let text = fs::read_to_string(&file).expect("weir.toml");
    fs::write(&file, text.replace("max_children = 1", "max_chidren = 1")).expect("weir.toml");
    let output = ask(&weir, &["reload"]);
    assert_eq!(output.status.code(), Some(78));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("did you mean `max_children`?"), "{said}");
    weir.get("/pid.php").expect(200);
}

/// Such a command needs the address of the admin interface and nothing else, and reads no more.
#[test]
fn commands_with_the_file_work_while_another_table_has_an_error() {
    let weir = setup().start();
    let file = weir.folder().join("weir.toml");
    let text = fs::read_to_string(&file).expect("weir.toml");
    let ask = |words: &[&str]| {
        let mut command = Command::new(weir_test::weir::program());
        command.args(words).arg("-c").arg(&file).output().unwrap()
    };
    fs::write(&file, text.replace("max_children = 1", "max_chidren = 1")).expect("weir.toml");
    assert!(fine(&ask(&["status"])).contains("app"));
    // The running weir says what is wrong.
    let output = ask(&["reload"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(78) && said.contains("did you mean `max_children`?"),
        "{said}"
    );
    // Its own table is checked.
    let wrong = text.replace("[server]", "[server]\nadmim = \"off\"");
    fs::write(&file, wrong).expect("weir.toml");
    let output = ask(&["status"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(78) && said.contains("did you mean `admin`?"),
        "{said}"
    );
}

#[test]
fn a_pool_is_restarted_and_no_other_answer_is_lost() {
    let weir = setup().start();
    let before = weir.get("/pid.php").expect(200).text();
    let said = fine(&ask(&weir, &["pool", "app", "restart"]));
    assert!(!said.is_empty());
    wait_until("a new worker answers", || {
        weir.get("/pid.php").expect(200).text() != before
    });
    let text = fine(&ask(&weir, &["status"]));
    assert!(text.contains("generation 2"), "{text}");

    let output = ask(&weir, &["pool", "nothing", "restart"]);
    assert_eq!(output.status.code(), Some(70));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nothing"), "{said}");
}

#[test]
fn it_stops_when_it_is_told_to() {
    for arguments in [&["stop"][..], &["stop", "--now"]] {
        let mut weir = setup().start();
        fine(&ask(&weir, arguments));
        assert!(weir.wait_for_end().success());
        assert!(!socket(&weir).exists());
        let output = ask(&weir, &["status"]);
        assert_eq!(output.status.code(), Some(69));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("no weir is running at"), "{said}");
    }
}

#[test]
fn who_loses_patience_with_a_stop_asks_again() {
    let mut weir = setup()
        .file("endless.php", "<?php ignore_user_abort(true); sleep(600);")
        .start();
    let mut client = weir.client();
    client.send("GET /endless.php HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the script runs", || {
        fine(&ask(&weir, &["status"])).contains("1 busy")
    });
    fine(&ask(&weir, &["stop"]));
    wait_until("it takes nothing new", || {
        fine(&ask(&weir, &["status"])).contains("draining")
    });
    for asked in ["stop", "reload"] {
        let output = ask(&weir, &[asked]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success());
        assert!(said.contains("weir is stopping"), "{said}");
    }
    fine(&ask(&weir, &["stop", "--now"]));
    assert!(weir.wait_for_end().success());
    assert!(!socket(&weir).exists());
}

#[test]
fn a_weir_that_hangs_is_not_waited_for() {
    // The manager must not replace the gateway meanwhile.
    let weir = setup().server("gateway_timeout = \"10m\"").start();
    // The manager must have heard that the gateway is ready: it gives up a gateway that is not ready in time.
    weir.wait_for_error(&["serves"]);
    let gateway = weir.gateway();
    signal(gateway.pid, Signal::STOP);
    for asked in [&["status"][..], &["pool", "app", "restart"]] {
        let output = ask(&weir, asked);
        assert_eq!(output.status.code(), Some(70), "{asked:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains("weir is running, but has not answered for"),
            "{said}"
        );
        let pid = gateway.pid;
        assert!(
            said.contains(&format!("its gateway (process {pid}) is stopped"))
                && said.contains(&format!("kill -CONT {pid}")),
            "{said}"
        );
    }
    // A reload still works: another gateway answers.
    fine(&ask(&weir, &["reload"]));
    fine(&ask(&weir, &["status"]));
    signal(gateway.pid, Signal::CONT);
}

#[test]
fn two_weirs_have_two_admin_sockets() {
    let weir = setup().start();
    let taken = format!("admin = \"unix:{}\"", socket(&weir).display());
    let (status, said) = Setup::new().server(&taken).start_in_vain();
    assert_eq!(status.code(), Some(78));
    assert!(said.contains("server.admin"), "{said}");
    assert!(
        said.contains("another program is listening there"),
        "{said}"
    );
    fine(&ask(&weir, &["status"]));
}

#[test]
fn it_outlives_the_gateway() {
    let weir = setup().start();
    // A gateway that dies before it is ready is not started again.
    weir.wait_for_error(&["serves"]);
    let gateway = weir.gateway();
    weir_test::process::signal(gateway.pid, rustix::process::Signal::KILL);
    wait_until("another gateway answers", || {
        let json = ask(&weir, &["status", "--json"]);
        let status: Option<serde_json::Value> = serde_json::from_slice(&json.stdout).ok();
        status.is_some_and(|status| status["gateway_pid"] != gateway.pid)
    });
}
