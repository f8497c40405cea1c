//! `weir doctor`: verdicts, exit codes and JSON for real configurations, run by the tests' user and by nobody, with and
//! without a running weir.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use weir_test::cgroup::Group;
use weir_test::weir::program;
use weir_test::{GROUP, Setup, USER, free_address, goes_on_as_root, is_root};

fn doctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    command
        .arg("doctor")
        .args(arguments)
        .env("COLUMNS", "120")
        .stdin(Stdio::null());
    command.output().expect("weir doctor")
}

fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{said}"))
}

/// The checks of a subject, each as `verdict: what; fix`.
fn checks(report: &Value, subject: &str) -> Vec<String> {
    let checks = report["checks"].as_array().expect("checks");
    let of_subject = checks.iter().filter(|check| check["subject"] == subject);
    let line = |check: &Value| {
        format!(
            "{}: {}; {}",
            check["verdict"].as_str().expect("a verdict"),
            check["what"].as_str().expect("what"),
            check["fix"].as_str().unwrap_or("-")
        )
    };
    of_subject.map(line).collect()
}

#[track_caller]
fn finds(report: &Value, subject: &str, verdict: &str, words: &[&str]) {
    let checks = checks(report, subject);
    let found = checks.iter().any(|check| {
        check.starts_with(&format!("{verdict}: ")) && words.iter().all(|word| check.contains(word))
    });
    assert!(
        found,
        "{subject} has no {verdict} with {words:?}: {checks:#?}"
    );
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("mkdir");
    fs::write(path, text).expect("write");
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// Lines of a pool of weir's own PHP.
fn php() -> String {
    match is_root() {
        true => format!("runtime = \"php\"\nuser = \"{USER}\"\ngroup = \"{GROUP}\""),
        false => "runtime = \"php\"".to_owned(),
    }
}

fn well() -> Setup {
    Setup::new()
        .file("index.php", "<?php echo 1;")
        .pool(&format!("{}\npm = \"static\"\nmax_children = 1", php()))
        .site("fallback = \"/index.php\"")
}

#[test]
fn what_is_well_is_0_and_sums_up() {
    let setup = well();
    let file = setup.write_config(&setup.toml());
    let output = doctor(&["-c", &file]);
    let page = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{page}");
    let last = page.lines().last().expect("a summary");
    assert!(last.starts_with("0 would break, "), "{page}");
    assert!(page.contains("Sites: roots and scripts"), "{page}");
    let script = setup.root().canonicalize().expect("a root");
    let tried = format!("SCRIPT_FILENAME={}/index.php", script.display());
    assert!(page.replace("\n         ", " ").contains(&tried), "{page}");
    assert!(!page.contains('\x1b'), "colour without a terminal: {page}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn the_json_has_its_shape() {
    let setup = well();
    let file = setup.write_config(&setup.toml());
    let report = report(&doctor(&["-c", &file, "--json"]));
    for key in [
        "version",
        "configuration",
        "stance",
        "verdict",
        "count",
        "checks",
        "unseen",
    ] {
        assert!(!report[key].is_null(), "{key}: {report:#}");
    }
    let counts = report["count"].as_object().expect("counts");
    let names: Vec<&str> = counts.keys().map(String::as_str).collect();
    assert_eq!(names, ["break", "note", "ok", "unseen", "warn"]);
    for check in report["checks"].as_array().expect("checks") {
        let verdict = check["verdict"].as_str().expect("a verdict");
        assert!(
            ["ok", "note", "warn", "break"].contains(&verdict),
            "{check}"
        );
        assert!(
            check["what"].is_string() && check["subject"].is_string(),
            "{check}"
        );
        assert_eq!(check["why"].is_null(), verdict == "ok", "{check}");
        let count = check.as_object().expect("an object").len();
        assert_eq!(count, 5, "{check}");
    }
}

#[test]
fn what_breaks_is_1_with_cause_and_mend() {
    let setup = Setup::new().file("public/index.php", "<?php echo 1;");
    let folder = &setup.folder().to_owned();
    write(&folder.join("root/public/.env"), "SECRET=1");
    let root = setup.root();
    let taken = std::net::TcpListener::bind(free_address()).expect("a listener");
    let address = taken.local_addr().expect("an address").to_string();
    let setup = setup
        .pool(&format!(
            "{}\npm = \"static\"\nmax_children = 2\nrequest_terminate_timeout = \"60s\"\n\
             php_admin_value = {{ open_basedir = \"/var/empty\", max_execution_time = \"90\" }}",
            php()
        ))
        .site(&format!(
            "root = \"{}/public\"\nfallback = \"/front.php\"\nhide_files = []\nerror_pages = {{ 503 = \"503.html\" }}",
            root.display()
        ))
        .more(&format!(
            "[listen.other]\naddress = \"{}\"\n[listen.fcgi]\nprotocol = \"fastcgi\"\npool = \"app\"\n\
             address = \"unix:{}/no/such/weir.sock\"\n[pool.farm]\nruntime = \"servers\"\n\
             servers = [\"unix:{}/fpm.sock\"]\nqueue = {{ maxconn = 4, timeout = \"1s\" }}\n\
             [site.farm]\nhosts = [\"farm\"]\nroot = \"{}/public\"\npool = \"farm\"\n",
            address,
            folder.display(),
            folder.display(),
            root.display()
        ));
    let file = setup.write_config(&setup.toml());
    let output = doctor(&["-c", &file, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = report(&output);
    assert_eq!(report["verdict"], "break");
    let us = std::process::id().to_string();
    finds(&report, "start", "break", &[&address, &us]);
    finds(
        &report,
        "sockets",
        "break",
        &["[listen.fcgi]", "does not exist", "install -d"],
    );
    finds(&report, "servers", "break", &["fpm.sock does not exist"]);
    finds(
        &report,
        "sites",
        "break",
        &["fallback = \"/front.php\"", "is not a file"],
    );
    finds(
        &report,
        "sites",
        "break",
        &["is not within open_basedir", "/var/empty:/"],
    );
    finds(&report, "sites", "warn", &["503.html"]);
    finds(
        &report,
        "timeouts",
        "warn",
        &["shutdown_timeout", "shutdown_timeout = \"60s\""],
    );
    finds(
        &report,
        "timeouts",
        "note",
        &["max_execution_time = \"59\""],
    );
    finds(&report, "timeouts", "warn", &["connect_timeout"]);
    finds(&report, "security", "warn", &[".env"]);
}

#[test]
fn a_folder_that_stops_the_gateway_or_the_workers_is_named() {
    let setup = Setup::new().file("shut/public/index.php", "<?php echo 1;");
    let shut = setup.root().join("shut");
    let setup = setup
        .pool(&php())
        .site(&format!("root = \"{}/public\"", shut.display()));
    let file = setup.write_config(&setup.toml());
    mode(&shut, 0o700);
    // The tests' user owns it, so only another user meets an obstacle.
    if is_root() {
        let report = report(&doctor(&["-c", &file, "--json"]));
        let barred = format!("{} (drwx------", shut.display());
        let mend = format!("chmod o+x {}", shut.display());
        finds(
            &report,
            "sites",
            "break",
            &["the gateway's user", &barred, &mend],
        );
        finds(
            &report,
            "sites",
            "break",
            &["SCRIPT_FILENAME=", &barred, &mend],
        );
    }
    mode(&shut, 0o755);
    let report = report(&doctor(&["-c", &file, "--json"]));
    finds(
        &report,
        "sites",
        "ok",
        &["the gateway's user", "can enter it"],
    );
    finds(&report, "sites", "ok", &["SCRIPT_FILENAME="]);
}

#[test]
fn an_ordinary_user_is_told_what_it_cannot_see() {
    if !is_root() {
        // The tests' user is an ordinary user, and can see everything of its own.
        let setup = well();
        let file = setup.write_config(&setup.toml());
        let report = report(&doctor(&["-c", &file, "--json"]));
        finds(&report, "sites", "ok", &["[site.main]", "can enter it"]);
    }
    if !goes_on_as_root() {
        return;
    }
    let setup = Setup::new().file("index.php", "<?php echo 1;");
    let secret = setup.folder().join("secret");
    write(&secret.join("public/index.php"), "<?php echo 1;");
    mode(&secret, 0o700);
    // For its own user's folders it says the same as for root. Of other users' folders it says that it cannot see them.
    let setup = setup.pool(&php()).more(&format!(
        "[site.secret]\nhosts = [\"secret\"]\nroot = \"{}/public\"\npool = \"app\"\n",
        secret.display()
    ));
    let file = setup.write_config(&setup.toml());
    // The binary may be in a folder that only root may enter.
    let binary = setup.folder().join("weir");
    fs::copy(program(), &binary).expect("a copy");
    let mut command = Command::new(&binary);
    command.args(["doctor", "-c", &file, "--json"]);
    let output = command
        .uid(65_534)
        .gid(65_534)
        .output()
        .expect("weir doctor");
    let report = report(&output);
    let unseen = report["unseen"].as_array().expect("a list");
    let told = unseen.iter().any(|unseen| {
        unseen["what"]
            .as_str()
            .is_some_and(|what| what.contains("[site.secret]"))
            && unseen["how"]
                .as_str()
                .is_some_and(|how| how.contains("as root"))
    });
    assert!(told, "{report:#}");
    finds(&report, "sites", "ok", &["[site.main]", "can enter it"]);
}

#[test]
fn a_weir_that_runs_is_asked_for_its_figures() {
    let setup = well();
    let weir = setup.admin().start();
    weir.get("/").expect(200);
    let file = weir.folder().join("weir.toml").display().to_string();
    let output = doctor(&["-c", &file, "--json"]);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    let stance = report["stance"].to_string();
    assert!(
        stance.contains(&format!("weir is running (process {})", weir.pid())),
        "{stance}"
    );
    finds(
        &report,
        "start",
        "ok",
        &["[listen.web]", "used by the running weir"],
    );
    finds(
        &report,
        "memory",
        "ok",
        &["[pool.app] 1 × ", "(measured; 1 of them run)"],
    );
}

/// The same site with `[egress]`, which has these lines.
fn calling(lines: &str) -> Setup {
    let listen = format!("listen = [\"{}\"]", free_address());
    well().more(&format!(
        "[egress]\n{listen}\nallow = [\"localhost\"]\n{lines}"
    ))
}

#[test]
fn the_socket_by_which_workers_call_is_looked_at() {
    let setup = calling("");
    let folder = setup.folder().join("egress");
    let line = |folder: &Path| format!("socket = \"unix:{}/own.sock\"", folder.display());
    let named = setup.more(&line(&folder));
    let file = named.write_config(&named.toml());
    let find = |verdict: &str, words: &[&str]| {
        let output = doctor(&["-c", &file, "--json"]);
        finds(&report(&output), "egress", verdict, words);
        output.status.code()
    };
    let install = format!("install -d {}", folder.display());
    assert_eq!(
        find("break", &["own.sock", "egress does not exist", &install]),
        Some(1)
    );
    fs::create_dir(&folder).expect("mkdir");
    mode(&folder, 0o755);
    find("ok", &["own.sock", "can create it"]);
    assert_eq!(
        find("ok", &["own.sock", "[pool.app]", "can connect"]),
        Some(0)
    );
    // Only the workers' user meets this obstacle.
    if is_root() {
        mode(&folder, 0o700);
        let barred = format!("{} (drwx------", folder.display());
        let words = ["own.sock", "[pool.app]", "cannot reach it", &barred];
        find("warn", &words);
        mode(&folder, 0o755);
    }
    let socket = folder.join("own.sock");
    fs::write(&socket, "").expect("a file");
    assert_eq!(find("break", &["own.sock", "not a socket", "rm "]), Some(1));
    fs::remove_file(&socket).expect("rm");
    let other = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let us = format!("process {} is listening", std::process::id());
    assert_eq!(find("break", &["own.sock", &us]), Some(1));
    drop(other);
    // A socket that a weir has left behind, or uses, is no problem.
    find("ok", &["own.sock", "can create it"]);
    fs::remove_file(&socket).expect("rm");
    let weir = named.admin().start();
    find("ok", &["own.sock", "can create it"]);
    drop(weir);
}

/// weir does without the usual socket where it cannot make it.
#[test]
fn a_usual_socket_for_calls_with_too_long_a_path_is_told() {
    let setup = calling("");
    // Root's is in /run.
    let folder = setup.folder().join("long").join("x".repeat(90));
    fs::create_dir_all(&folder).expect("mkdir");
    mode(&folder, 0o777);
    let file = setup.write_config(&setup.toml());
    let text = fs::read_to_string(&file).expect("it");
    let text: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("user =") && !line.starts_with("group ="))
        .collect();
    fs::write(&file, text.join("\n")).expect("write");
    // The binary may be in a folder that only root may enter.
    let copy = setup.folder().join("weir");
    fs::copy(program(), &copy).expect("a copy");
    let mut command = Command::new(&copy);
    command
        .args(["doctor", "-c", &file, "--json"])
        .env("XDG_RUNTIME_DIR", &folder);
    if is_root() {
        command.uid(65_534).gid(65_534);
    }
    let report = report(&command.output().expect("weir doctor"));
    let long = "a socket's path can have at most 107 bytes";
    finds(&report, "egress", "warn", &["[egress] socket (unix:", long]);
}

#[test]
fn php_s_own_complaints_are_passed_on() {
    let setup = Setup::new().file("index.php", "<?php echo 1;");
    let ini = setup.folder().join("php.ini");
    write(&ini, "memory_limit = (\n");
    let setup = setup.pool(&format!("{}\nphp_ini = \"{}\"", php(), ini.display()));
    let file = setup.write_config(&setup.toml());
    let found = report(&doctor(&["-c", &file, "--json"]));
    finds(&found, "workers", "warn", &["syntax error", "php.ini"]);
}

#[test]
fn a_php_fpm_configuration_is_looked_at_as_weir_fpm_would_run_it() {
    let setup = Setup::new();
    let folder = setup.folder().display().to_string();
    let conf = setup.folder().join("php-fpm.conf");
    let user = match is_root() {
        true => format!("user = {USER}\ngroup = {GROUP}\n"),
        false => String::new(),
    };
    write(
        &conf,
        &format!(
            "[global]\nerror_log = {folder}/log/new.log\n[www]\n{user}listen = {folder}/no/fpm.sock\npm = static\n\
             pm.max_children = 2\n"
        ),
    );
    let output = doctor(&["--fpm", &conf.display().to_string(), "--json"]);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    finds(
        &report,
        "sockets",
        "break",
        &["[listen.www]", "/no does not exist"],
    );
    // The doctor only reads: PHP-FPM's own test would create its log.
    assert!(!setup.folder().join("log/new.log").exists());
    write(&conf, "[www\n");
    assert_eq!(
        doctor(&["--fpm", &conf.display().to_string()])
            .status
            .code(),
        Some(78)
    );
}

/// The users that exist on no machine, and the other parts of the output in docs/doctor.md.
#[test]
fn the_example_of_mistakes_can_be_read_and_breaks() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/mistakes.toml");
    let output = doctor(&["-c", example, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = report(&output);
    finds(&report, "start", "break", &["user ", "does not exist"]);
    finds(
        &report,
        "timeouts",
        "warn",
        &["request_slowlog_timeout = \"30s\""],
    );
}

#[test]
fn wrong_configurations_and_command_lines_have_their_codes() {
    let setup = Setup::new();
    let file = setup.folder().join("weir.toml");
    write(&file, "[listen.web]\nadress = \":80\"\n");
    let output = doctor(&["-c", &file.display().to_string()]);
    assert_eq!(output.status.code(), Some(78));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("adress") && said.contains("address"),
        "{said}"
    );
    assert!(output.stdout.is_empty());
    assert_eq!(
        doctor(&["-c", "/no/such/weir.toml"]).status.code(),
        Some(78)
    );
    for wrong in [
        &["--what"][..],
        &["-c", "a", "--fpm", "b"],
        &["--admin", "127.0.0.1:1"],
    ] {
        assert_eq!(doctor(wrong).status.code(), Some(64), "{wrong:?}");
    }
}

/// A shell, a service and a container have groups of their own.
#[test]
fn the_limits_and_kills_of_weirs_own_control_group_count_and_not_those_of_doctors() {
    if !goes_on_as_root() {
        return;
    }
    let (of_weir, of_doctor) = (Group::new(400 << 20), Group::new(900 << 20));
    let run = |group: &Group, words: &[&str]| {
        let mut command = Command::new("env");
        command.args(group.enter()).args(words);
        command.output().expect("a command")
    };
    let setup = well();
    let file = setup.write_config(&setup.toml());
    let doctor = [program(), "doctor", "-c", &file, "--json"];
    // Without a running weir, the limit that doctor has itself is the best known one.
    let alone = report(&run(&of_doctor, &doctor));
    finds(&alone, "memory", "ok", &[" of 900 MiB"]);

    let weir = well()
        .admin()
        .under(&of_weir.enter().each_ref().map(String::as_str))
        .start();
    let doctor = [
        doctor[0],
        "doctor",
        "-c",
        &weir.path("weir.toml").display().to_string(),
        "--json",
    ];
    let before = report(&run(&of_doctor, &doctor));
    assert!(!before.to_string().contains("has killed"), "{before:#}");
    finds(&before, "memory", "ok", &[" of 400 MiB", "measured"]);

    // The kernel kills a process beside weir's own, so the status counts none.
    for group in [&of_weir, &of_doctor, &of_doctor] {
        let eat = "echo 1000 >/proc/self/oom_score_adj; exec php -d memory_limit=-1 -r '$a = []; for (;;) $a[] = str_repeat(\"x\", 1 << 20);'";
        let eater = run(group, &["/bin/sh", "-c", eat]);
        assert!(!eater.status.success(), "{eater:?}");
    }
    assert_eq!(weir.status()["oom_kills"], 0);
    let after = report(&run(&of_doctor, &doctor));
    finds(
        &after,
        "memory",
        "warn",
        &[
            "has killed 1 process in weir's control group",
            "(it has 400 MiB)",
        ],
    );
    assert!(!after.to_string().contains("900 MiB"), "{after:#}");
    drop(weir);
}
