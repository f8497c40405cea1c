//! The commands: output, exit codes, starts that cannot work, signals and the end.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use weir_test::php::cgi_pool;
use weir_test::weir::{expect_gone, program};
use weir_test::{Client, Responder, Setup, free_address, goes_on_as_root, process, wait_until};

fn weir(arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    command
        .args(arguments)
        .env("NO_COLOR", "1")
        .stdin(std::process::Stdio::null());
    command.output().expect("weir")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `weir check` of a file with this text: exit code, stdout, stderr.
fn check(toml: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let setup = Setup::new();
    let file = setup.folder().join("weir.toml");
    fs::write(
        &file,
        toml.replace("ROOT", &setup.root().display().to_string()),
    )
    .expect("write");
    let mut arguments = vec!["check", "-c", file.to_str().expect("a path")];
    arguments.extend(more);
    let output = weir(&arguments);
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

const RIGHT: &str = "[listen.web]\naddress = \"127.0.0.1:8080\"\n[site.main]\nroot = \"ROOT\"\n";

#[test]
fn help_is_short_and_long() {
    let short = weir(&["-h"]);
    let long = weir(&["--help"]);
    assert_eq!(
        (short.status.code(), long.status.code()),
        (Some(0), Some(0))
    );
    let (short, long) = (text(&short.stdout), text(&long.stdout));
    assert!(
        short.contains("serve") && short.contains("check"),
        "{short}"
    );
    assert!(long.len() >= short.len());
    let serve = text(&weir(&["serve", "--help"]).stdout);
    for flag in ["--config", "--listen", "--workers", "--trace"] {
        assert!(serve.contains(flag), "{flag} is missing: {serve}");
    }
}

#[test]
fn the_version_is_the_packages() {
    let output = weir(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    let mut lines = said.lines();
    // Release builds also show a commit.
    let first = lines.next().expect("a line");
    let (name, commit) = first
        .split_at_checked(5 + env!("CARGO_PKG_VERSION").len())
        .expect("a version");
    assert_eq!(name, format!("weir {}", env!("CARGO_PKG_VERSION")));
    assert!(
        commit.is_empty() || (commit.starts_with(" (") && commit.ends_with(')')),
        "{said}"
    );
    // The whole version of PHP, and its path.
    let php = lines.next().expect("PHP");
    let (version, place) = php.split_once(" (").expect("a place");
    let numbers = version
        .strip_prefix("PHP ")
        .expect("PHP")
        .split('.')
        .count();
    let place_is_known =
        place.contains("/php-fpm") && place.contains(" with ") && place.contains("weir-php-API");
    assert!(numbers >= 3 && place_is_known, "{said}");
    assert_eq!(text(&weir(&["-V"]).stdout), said);
}

#[test]
fn what_is_installed_is_stripped() {
    let folder = tempfile::tempdir().expect("a folder");
    let built = folder.path().join("target/release");
    std::fs::create_dir_all(&built).expect("a folder");
    std::fs::copy(program(), built.join("weir")).expect("a copy");
    let output = std::process::Command::new("make")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .arg("install")
        .arg(format!(
            "CARGO_TARGET_DIR={}",
            folder.path().join("target").display()
        ))
        .arg(format!("DESTDIR={}", folder.path().display()))
        .arg("PREFIX=/usr")
        .output()
        .expect("make");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let installed = folder.path().join("usr/bin/weir");
    let size = |path: &std::path::Path| std::fs::metadata(path).expect("a file").len();
    assert!(size(&installed) < size(&built.join("weir")));
    for file in [
        "man/man1/weir.1",
        "man/man5/weir.toml.5",
        "bash-completion/completions/weir",
        "zsh/site-functions/_weir",
        "fish/vendor_completions.d/weir.fish",
    ] {
        assert!(
            size(&folder.path().join("usr/share").join(file)) > 0,
            "{file}"
        );
    }
    let said = std::process::Command::new(&installed)
        .arg("-V")
        .output()
        .expect("weir");
    assert!(
        text(&said.stdout).starts_with("weir "),
        "{}",
        text(&said.stdout)
    );
}

#[test]
fn a_wrong_command_line_is_64() {
    for arguments in [
        &["swerve"][..],
        &["serve", "--no-such-flag"],
        &["check", "-c"],
        &["serve", "-c", "a", "-c", "b"],
        &["serve", "--workers", "many"],
        &["serve", "-l", "127.0.0.1:1", "-l", "127.0.0.1:1"],
    ] {
        let output = weir(arguments);
        assert_eq!(
            output.status.code(),
            Some(64),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{arguments:?}"
        );
    }
}

#[test]
fn check_says_ok() {
    let (code, stdout, stderr) = check(RIGHT, &[]);
    assert_eq!((code, stdout.trim()), (Some(0), "ok"), "{stderr}");
}

#[test]
fn check_prints_what_is_in_force_and_that_is_right_too() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let right = RIGHT.replace("ROOT", &folder.path().display().to_string());
    let (code, stdout, stderr) = check(&right, &["--print"]);
    assert_eq!(code, Some(0), "{stderr}");
    for key in ["header_timeout", "max_body", "index", "backlog", "charset"] {
        assert!(stdout.contains(key), "{key} is missing: {stdout}");
    }
    let (code, again, stderr) = check(&stdout, &["--print"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(again, stdout);
}

#[test]
fn check_says_everything_that_is_wrong_at_once() {
    let toml = "[server]\nthreads = \"many\"\n\n[listen.web]\nadress = \"127.0.0.1:8080\"\n\n[site.main]\nroot = \"ROOT\"\nscript = '('\npool = \"nobody\"\n";
    let (code, stdout, stderr) = check(toml, &[]);
    assert_eq!(code, Some(78));
    assert!(!stdout.contains("ok"));
    let said = format!("{stdout}{stderr}");
    for words in [
        &["weir.toml:2:", "threads = \"many\""][..],
        &["weir.toml:5:", "adress", "address"],
        &["weir.toml:9:"],
        &["weir.toml:10:", "nobody"],
    ] {
        for word in words {
            assert!(said.contains(word), "{word} is missing:\n{said}");
        }
    }
    assert!(!said.contains('\x1b'), "colour without a terminal");
}

#[test]
fn calls_are_checked_with_their_secrets() {
    let egress = "[egress]\nallow = [\"api.example.com\"]\n[egress.host.api]\nhosts = [\"api.example.com\"]\n";
    let env = "set_headers = { Authorization = \"Bearer ${env:PATH}\" }\n";
    let (code, printed, stderr) = check(&format!("{RIGHT}{egress}{env}"), &["--print"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(printed.contains("\"Bearer ${env:PATH}\""), "{printed}");
    assert!(!printed.contains("/bin"), "{printed}");
    let file = "set_headers = { Authorization = \"Bearer ${file:/nowhere/token}\" }\n";
    let (code, _, stderr) = check(&format!("{RIGHT}{egress}{file}"), &[]);
    assert_eq!(code, Some(78));
    assert!(stderr.contains("weir.toml:9:"), "{stderr}");
    assert!(stderr.contains("/nowhere/token"), "{stderr}");
}

#[test]
fn what_is_planned_and_does_not_work_yet_says_so() {
    let toml =
        format!("{RIGHT}[listen.tls]\naddress = \"127.0.0.1:8443\"\nfastcgi_cache = \"x\"\n");
    let (code, _, stderr) = check(&toml, &[]);
    assert_eq!(code, Some(78));
    assert!(stderr.contains("not built yet"), "{stderr}");
    assert!(stderr.contains("weir.toml:7:"), "{stderr}");
}

#[test]
fn a_configuration_that_is_not_there_is_78() {
    for command in ["check", "serve"] {
        let output = weir(&[command, "-c", "/nowhere/weir.toml"]);
        assert_eq!(output.status.code(), Some(78));
        assert!(text(&output.stderr).contains("/nowhere/weir.toml"));
    }
}

/// A start that fails: checks the exit code, that there is one message with these words, and that nothing still runs.
#[track_caller]
fn expect_vain_start(setup: Setup, codes: &[i32], words: &[&str]) {
    let began = Instant::now();
    let (status, said) = setup.start_in_vain();
    assert!(
        codes.contains(&status.code().unwrap_or(-1)),
        "{status}: {said}"
    );
    for word in words {
        assert!(said.contains(word), "{word:?} is missing: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_port_that_is_taken() {
    let setup = Setup::new().file("index.php", "").pool(&cgi_pool(2));
    let address = setup.address();
    let _taken = TcpListener::bind(address).expect("bind");
    expect_vain_start(setup, &[70, 78], &[&address.to_string(), "already used"]);
}

#[test]
fn a_unix_socket_that_another_listens_on() {
    let elsewhere = tempfile::TempDir::new().expect("a folder");
    let setup = Setup::new();
    let path = elsewhere.path().join("taken.sock");
    let taken = std::os::unix::net::UnixListener::bind(&path).expect("bind");
    let more = format!("[listen.local]\naddress = \"unix:{}\"\n", path.display());
    expect_vain_start(setup.more(&more), &[70, 78], &["taken.sock"]);
    // The other weir still listens.
    assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
    drop(taken);
    // A socket on which nothing listens any more does not prevent the start.
    let setup = Setup::new();
    let path = setup.folder().join("left.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
    let more = format!("[listen.local]\naddress = \"unix:{}\"\n", path.display());
    let weir = setup.file("text.txt", "a text").more(&more).start();
    weir.get("/text.txt").expect(200);
}

/// As with `weir serve FOLDER 2>&1 | head -1`: nothing reads the messages of the start any more.
#[test]
fn it_serves_though_nobody_reads_what_it_says() {
    let setup = Setup::new().file("text.txt", "here");
    let root = setup.root();
    let mut child = Command::new(program())
        .args(["serve", root.to_str().expect("a path")])
        .args(["--listen", &setup.address().to_string()])
        .args(["--admin", "off"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir");
    drop(child.stderr.take());
    wait_until("it takes connections", || {
        TcpStream::connect(setup.address()).is_ok()
    });
    Client::connect(setup.address())
        .send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n")
        .response()
        .expect(200);
    process::signal(child.id(), Signal::TERM);
    let status = process::wait(&mut child, Duration::from_secs(60)).expect("its end");
    assert!(status.success(), "{status}");
}

#[test]
fn a_user_that_is_unknown() {
    let setup = Setup::new().server("user = \"no-such-user\"");
    expect_vain_start(setup, &[70, 78], &["no-such-user"]);
}

#[test]
fn a_root_that_is_missing() {
    let setup = Setup::new();
    let missing = setup.folder().join("no-such-root");
    let setup = setup.site(&format!("root = \"{}\"", missing.display()));
    expect_vain_start(setup, &[78], &["no-such-root"]);
}

#[test]
fn a_folder_that_is_missing() {
    let output = weir(&[
        "serve",
        "/no/such/folder",
        "--listen",
        &free_address().to_string(),
    ]);
    assert!(
        matches!(output.status.code(), Some(64 | 78)),
        "{:?}",
        output.status
    );
    assert!(text(&output.stderr).contains("/no/such/folder"));
}

#[test]
fn a_program_that_is_missing() {
    let setup = Setup::new().file("index.php", "");
    let pool = format!(
        "runtime = \"command\"\ncommand = [\"/no/such/program\"]\n{}",
        weir_test::php::identity()
    );
    expect_vain_start(setup.pool(&pool), &[70, 78], &["/no/such/program"]);
}

#[test]
fn an_address_that_is_not_ours() {
    let setup = Setup::new().more("[listen.other]\naddress = \"192.0.2.1:8080\"\n");
    expect_vain_start(setup, &[70, 78], &["192.0.2.1:8080"]);
}

#[test]
fn a_log_that_cannot_be_opened() {
    let setup = Setup::new().log("access = \"/no/such/folder/access.log\"");
    expect_vain_start(setup, &[70, 78], &["/no/such/folder/access.log"]);
}

#[test]
fn a_log_or_a_spool_that_cannot_be_written_has_its_place() {
    let wrong = |lines: &str| RIGHT.to_owned() + lines;
    for (toml, words) in [
        (
            wrong("[log]\naccess = \"/no/such/folder/access.log\"\n"),
            &["weir.toml:6:", "/no/such/folder"][..],
        ),
        (
            wrong("[log]\nerror = \"ROOT\"\n"),
            &["weir.toml:6:", "is a folder"],
        ),
        // No user may create files there, not even root.
        (
            wrong("[server]\nspool_dir = \"/proc/1\"\n"),
            &["weir.toml:6:", "cannot create files in /proc/1"],
        ),
    ] {
        let (code, _, said) = check(&toml, &[]);
        assert_eq!(code, Some(78), "{said}");
        for word in words {
            assert!(said.contains(word), "{word:?} is missing: {said}");
        }
    }
    let setup = Setup::new().server("spool_dir = \"/proc/1\"");
    expect_vain_start(setup, &[78], &["weir.toml:", "spool_dir", "/proc/1"]);
}

#[test]
fn a_socket_of_the_command_line_is_relative_to_the_current_folder() {
    let setup = Setup::new().file("text.txt", "a text");
    let folder = setup.folder().to_owned();
    let here = format!("--chdir={}", folder.display());
    let setup = setup.under(&["env", &here]);
    let weir = setup.start_folder(&["--listen", "unix:here.sock"]);
    weir.get("/text.txt").expect(200);
    assert!(folder.join("here.sock").exists());
    assert!(!weir.root().join("here.sock").exists());
}

#[test]
fn a_start_says_where_it_listens() {
    let weir = Setup::new().file("text.txt", "a text").start();
    weir.wait_for_error(&[
        "listens on",
        &weir.address().to_string(),
        "main",
        "listen=web",
    ]);
}

#[test]
fn the_gateway_is_never_root() {
    // With `# user =` the harness writes no user: as root, weir chooses one.
    let weir = Setup::new()
        .file("text.txt", "a text")
        .server("# user = none")
        .start();
    weir.get("/text.txt").expect(200);
    let status =
        fs::read_to_string(format!("/proc/{}/status", weir.gateway().pid)).expect("the gateway");
    let line = status
        .lines()
        .find(|line| line.starts_with("Uid:"))
        .expect("Uid");
    assert!(!line.split_whitespace().any(|id| id == "0"), "{line}");
}

#[test]
fn sigterm_lets_what_runs_finish() {
    for which in [Signal::TERM, Signal::QUIT] {
        let setup = Setup::new().file("run.php", "").file("text.txt", "a text");
        let (responder, gate) = Responder::gated(setup.folder(), |_, answer| {
            answer.page("finished");
        });
        let pool = responder.pool(1);
        let mut weir = setup.pool(&pool).start();
        let mut idle = weir.client();
        idle.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        idle.response().expect(200);
        let mut running = weir.client();
        running.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("it is at work", || responder.running() == 1);
        let processes = weir.processes();
        weir.signal(which);
        // weir does not wait for idle connections, and takes no new ones.
        idle.expect_closed();
        wait_until("nobody listens any more", || {
            std::net::TcpStream::connect(weir.address()).is_err()
        });
        gate.open();
        assert_eq!(running.response().expect(200).text(), "finished");
        assert_eq!(weir.wait_for_end().code(), Some(0));
        expect_gone(&processes);
    }
}

#[test]
fn sigterm_finishes_what_runs_also_where_the_manager_has_not_heard_of_its_gateway() {
    let setup = Setup::new().file("run.php", "");
    let (responder, gate) = Responder::gated(setup.folder(), |_, answer| {
        answer.page("finished");
    });
    let pool = responder.pool(1);
    let mut weir = setup.pool(&pool).start();
    let mut running = weir.client();
    running.send("GET /run.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    // weir is stopped just after the gateway has started: the manager reads that the gateway is ready only after the
    // signal.
    weir.gateway();
    weir.signal(Signal::STOP);
    wait_until("it is at work", || {
        let works = responder.running() == 1;
        if !works {
            weir.signal(Signal::CONT);
            weir.signal(Signal::STOP);
        }
        works
    });
    weir.signal(Signal::TERM);
    weir.signal(Signal::CONT);
    weir.wait_for_error(&["stopping"]);
    wait_until("nobody listens any more", || {
        std::net::TcpStream::connect(weir.address()).is_err()
    });
    gate.open();
    assert_eq!(running.response().expect(200).text(), "finished");
    assert_eq!(weir.wait_for_end().code(), Some(0));
}

#[test]
fn the_wait_at_sigterm_has_its_limit() {
    let setup = Setup::new()
        .file("run.php", "")
        .server("shutdown_timeout = \"700ms\"");
    let responder = Responder::unix(setup.folder(), |_, answer| {
        answer.wait_for_close();
    });
    let pool = responder.pool(1);
    let mut weir = setup.pool(&pool).start();
    let mut running = weir.client();
    running.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it is at work", || responder.running() == 1);
    let processes = weir.processes();
    let began = Instant::now();
    weir.signal(Signal::TERM);
    weir.wait_for_end();
    assert!(
        began.elapsed() >= Duration::from_millis(600),
        "{:?}",
        began.elapsed()
    );
    expect_gone(&processes);
}

#[test]
fn sigint_stops_at_once() {
    let setup = Setup::new()
        .server("shutdown_timeout = \"2m\"")
        .file("slow.php", "<?php sleep(120);")
        .file("fine.php", "fine");
    let mut weir = setup.pool(&cgi_pool(2)).start();
    weir.get("/fine.php").expect(200);
    let mut running = weir.client();
    running.send("GET /slow.php HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(running.quiet_for(Duration::from_millis(200)));
    let processes = weir.processes();
    weir.signal(Signal::INT);
    weir.wait_for_end();
    expect_gone(&processes);
}

#[test]
fn a_manager_that_is_killed_leaves_nobody() {
    let setup = Setup::new().file("fine.php", "fine");
    let mut weir = setup.pool(&cgi_pool(2)).start();
    weir.get("/fine.php").expect(200);
    let processes = weir.processes();
    assert!(processes.len() >= 3, "{processes:?}");
    weir.signal(Signal::KILL);
    weir.wait_for_end();
    expect_gone(&processes);
}

#[test]
fn the_pid_file_is_written_and_taken_away() {
    let setup = Setup::new().file("text.txt", "a text");
    let file = setup.folder().join("weir.pid");
    let mut weir = setup
        .server(&format!("pid_file = \"{}\"", file.display()))
        .start();
    weir.get("/text.txt").expect(200);
    assert_eq!(weir.read("weir.pid").trim(), weir.pid().to_string());
    weir.stop();
    assert!(!file.exists());
}

#[test]
fn the_gateway_may_live_in_a_chroot() {
    if !goes_on_as_root() {
        return;
    }
    let setup = Setup::new()
        .file("text.txt", "a text")
        .file("pid.php", "<?php echo getmypid();");
    let folder = setup.folder().display().to_string();
    let weir = setup
        .server(&format!("chroot = \"{folder}\""))
        .pool(&cgi_pool(1))
        .start();
    assert_eq!(weir.get("/text.txt").expect(200).text(), "a text");
    weir.get("/pid.php").expect(200);
    let body = vec![b'x'; 500_000];
    weir.request("POST", "/pid.php", &[], &body).expect(200);
    let root = fs::read_link(format!("/proc/{}/root", weir.gateway().pid)).expect("a root");
    assert_eq!(root.display().to_string(), folder);
}
