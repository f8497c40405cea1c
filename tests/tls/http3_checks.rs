//! HTTP/3 as aioquic sees it, a client that shares no code with weir: `tests/tls/aioquic` has what it asks and expects.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::Signal;
use weir_test::authority::Authority;
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
            let scripts = ["echo", "back", "hint", "wait", "run"];
            let setup = scripts
                .iter()
                .fold(setup, |setup, name| setup.file(&format!("{name}.php"), ""));
            setup
                .file("text.txt", "a text\n")
                .file("ten.bin", vec![b'x'; 10_000_000])
                .file("large.bin", vec![b'x'; 50_000_000])
                .pool(&pool)
                .listen(&format!("http3 = true\n{listen}"))
                .window()
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

fn queue(weir: &Weir) -> (u64, u64) {
    let pool = &weir.status()["pools"][0];
    let count = |value: &serde_json::Value| value.as_u64().unwrap_or(u64::MAX);
    (
        count(&pool["workers"]["busy"]),
        count(&pool["queue"]["waiting"]),
    )
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
    wait_until("the first runs", || queue(&weir) == (1, 0));
    client.go_on();
    client.expect("two wait");
    wait_until("two wait", || queue(&weir) == (1, 2));
    client.go_on();
    client.expect("one waits");
    wait_until("one waits", || queue(&weir) == (1, 1));
    let line = weir.logged("/wait.php?second");
    assert_eq!(line["reason"], "client_left");
    gate.open();
    client.go_on();
    client.expect("it is ended with requests");
    client.go_on();
    client.expect("it is ended");
    wait_until("none waits", || queue(&weir) == (0, 0));
    client.go_on();
    client.expect_end();
    let uris = responder.uris();
    assert!(!uris.iter().any(|uri| uri.ends_with("second")), "{uris:?}");
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
