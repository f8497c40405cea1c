//! HTTP/3 as aioquic sees it, a client that shares no code with weir: `tests/tls/aioquic` has what it asks and expects.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weir_test::authority::Authority;
use weir_test::http3::Http3Client;
use weir_test::process::wait;
use weir_test::{Gate, LIMIT, Responder, Weir, wait_until};

use crate::Tls;
use crate::conformance::python;

/// Python with a program of `tests/tls/aioquic`, for `main.test` of this weir.
pub(crate) fn aioquic(program: &str, weir: &Weir, authority: &Authority) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls/aioquic");
    let mut command = Command::new(python("python"));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("WEIR_TEST_LIMIT", LIMIT.as_secs().to_string())
        .arg(folder.join(program))
        .args([&weir.address().to_string(), "main.test"])
        .arg(authority.file());
    command
}

/// A weir with HTTP/3 whose site has the files and scripts that the checks ask for. `/wait.php` waits for the gate.
pub(crate) fn site(workers: usize, listen: &str) -> (Responder, Weir, Authority, Gate) {
    let gate = Gate::default();
    let shut = gate.clone();
    let mut responder = None;
    let (weir, authority) = Tls::new()
        .with(|setup| {
            let one = Responder::unix(setup.folder(), move |request, answer| {
                let param = |name| request.param(name);
                match param("SCRIPT_NAME") {
                    "/back.php" => answer.page(request.stdin.clone()),
                    "/hint.php" => {
                        let hint =
                            "Status: 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n";
                        answer.stdout(hint);
                        answer.page("a page")
                    }
                    "/fields.php" => {
                        // What came, under other names.
                        let fields = request.params.iter().filter_map(|(name, value)| {
                            let name = name.strip_prefix("HTTP_")?.replace('_', "-");
                            let name = name.to_ascii_lowercase();
                            Some(format!("X-Of-{name}: {value}\r\n"))
                        });
                        answer.stdout(fields.collect::<String>());
                        answer.page("fields")
                    }
                    "/wait.php" => {
                        shut.pass();
                        answer.page("done")
                    }
                    _ => answer.page(format!(
                        "{} {} length={} body={} host={} cookie={}",
                        param("REQUEST_METHOD"),
                        param("SERVER_PROTOCOL"),
                        param("CONTENT_LENGTH"),
                        request.stdin.len(),
                        param("HTTP_HOST"),
                        param("HTTP_COOKIE"),
                    )),
                };
            });
            let pool = one.pool(workers);
            responder = Some(one);
            let scripts = ["echo", "back", "hint", "wait", "run", "fields"];
            let setup = scripts
                .iter()
                .fold(setup, |setup, name| setup.file(&format!("{name}.php"), ""));
            setup
                .file("text.txt", "a text\n")
                .file("ten.bin", vec![b'x'; 10_000_000])
                .file("large.bin", vec![b'x'; 50_000_000])
                .pool(&pool)
                .listen(&format!("http3 = true\n{listen}"))
                .admin()
        })
        .start();
    (responder.expect("a responder"), weir, authority, gate)
}

/// Runs all checks of a group.
#[track_caller]
fn check(group: &str, weir: &Weir, authority: &Authority) {
    let output = aioquic("checks.py", weir, authority).arg(group).output();
    let output = output.expect("Python; setup/python.sh target installs it");
    let said = String::from_utf8_lossy(&output.stdout);
    eprintln!("{said}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    assert!(said.contains(" 0 failed"), "{said}");
}

/// A client that waits for the test between its steps.
struct Driven {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Driven {
    fn start(check: &str, weir: &Weir, authority: &Authority) -> Driven {
        let mut child = aioquic("driven.py", weir, authority)
            .arg(check)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python; setup/python.sh target installs it");
        let to = child.stdin.take().expect("a pipe");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        Driven { child, to, from }
    }

    /// Waits until the client says this.
    #[track_caller]
    fn expect(&mut self, word: &str) {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("what it says");
        assert_eq!(line.trim_end(), word);
    }

    /// Lets the client go on.
    fn go_on(&mut self) {
        self.to.write_all(b"\n").expect("a client that listens");
    }

    #[track_caller]
    fn expect_end(mut self) {
        self.expect("fine");
        let status = wait(&mut self.child, LIMIT).expect("its end");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn aioquic_gets_right_answers() {
    let (_responder, weir, authority, _) = site(4, "");
    check("requests", &weir, &authority);
    assert_eq!(weir.logged("/hint.php")["protocol"], "HTTP/3.0");
}

#[test]
fn what_is_unknown_is_ignored() {
    let (_responder, weir, authority, _) = site(4, "");
    check("unknown", &weir, &authority);
}

#[test]
fn what_is_forbidden_ends_the_connection_and_runs_no_script() {
    let (_responder, weir, authority, _) = site(4, "");
    check("forbidden", &weir, &authority);
}

#[test]
fn malformed_requests_are_refused_and_run_no_script() {
    let (responder, weir, authority, _) = site(4, "");
    check("malformed", &weir, &authority);
    assert_eq!(responder.uris(), [""; 0]);
}

#[test]
fn the_transport_is_as_it_must_be() {
    let (responder, weir, authority, _) = site(4, "");
    check("transport", &weir, &authority);
    let early = responder.uris();
    let early = early.iter().filter(|uri| uri.ends_with("?early")).count();
    assert!(early <= 1, "{early} times");
}

#[test]
fn addresses_are_validated_while_many_handshakes_are_half_done() {
    let (_responder, weir, authority, _) = site(4, "");
    check("retry", &weir, &authority);
}

#[test]
fn a_reset_takes_a_request_out_of_the_queue() {
    let (responder, weir, authority, gate) = site(1, "");
    let mut client = Driven::start("a_reset_leaves_the_queue", &weir, &authority);
    client.expect("the first runs");
    wait_until("the first runs", || weir.busy_and_waiting() == (1, 0));
    client.go_on();
    client.expect("two wait");
    wait_until("two wait", || weir.busy_and_waiting() == (1, 2));
    client.go_on();
    client.expect("one waits");
    wait_until("one waits", || weir.busy_and_waiting() == (1, 1));
    let line = weir.logged("/wait.php?second");
    assert_eq!(line["reason"], "client_left");
    gate.open();
    client.go_on();
    client.expect("it is ended with requests");
    client.go_on();
    client.expect("it is ended");
    wait_until("none waits", || weir.busy_and_waiting() == (0, 0));
    client.go_on();
    client.expect_end();
    let uris = responder.uris();
    assert!(!uris.iter().any(|uri| uri.ends_with("second")), "{uris:?}");
}

#[test]
fn a_head_that_does_not_come_is_answered_408() {
    let (responder, weir, authority, _) = site(4, "header_timeout = \"1s\"");
    check("late", &weir, &authority);
    assert_eq!(responder.uris(), [""; 0]);
}

#[test]
fn a_stop_finishes_what_runs_and_lets_nobody_in() {
    for signal in [Signal::TERM, Signal::QUIT] {
        let (_responder, mut weir, authority, gate) = site(4, "");
        let mut client = Driven::start("a_stop_finishes_what_runs", &weir, &authority);
        client.expect("a request runs");
        wait_until("it runs", || weir.busy_and_waiting().0 == 1);
        weir.signal(signal);
        client.go_on();
        client.expect("GOAWAY has come");
        let refused = Http3Client::new(&authority).connect(weir.address(), "main.test");
        let refused = refused.err().expect("no connection");
        assert!(refused.contains("refused to accept"), "{refused}");
        gate.open();
        client.go_on();
        client.expect_end();
        assert!(weir.wait_for_end().success());
    }
}

#[test]
fn a_stop_ends_at_its_deadline_and_says_so_to_clients() {
    let (_responder, mut weir, authority, gate) = site(4, "");
    let mut client = Driven::start("a_stop_has_a_deadline", &weir, &authority);
    client.expect("a request runs");
    wait_until("it runs", || weir.busy_and_waiting().0 == 1);
    let began = Instant::now();
    weir.signal(Signal::QUIT);
    client.go_on();
    client.expect_end();
    // The `shutdown_timeout` of the tests' weirs is 10 s.
    assert!(began.elapsed() >= Duration::from_secs(9), "too early");
    gate.open();
    weir.wait_for_end();
    assert_eq!(weir.logged("/wait.php?runs")["reason"], "stopped");
}

#[test]
fn a_reload_says_goaway_and_finishes_what_runs() {
    let (_responder, weir, authority, _) = site(4, "");
    let mut client = Driven::start("a_reload_says_goaway", &weir, &authority);
    client.expect("requests run");
    let gateway = weir.gateway();
    weir.signal(Signal::HUP);
    weir.wait_for_error(&["reloaded: the new configuration serves"]);
    client.go_on();
    client.expect_end();
    wait_until("the old gateway ends", || !gateway.runs());
}
