//! Origins that fail: what weir tells the caller, what it tries again, and what it does not.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use h2::Reason;
use serde_json::Value;

use weir_test::h2::{H2, Turn};
use weir_test::oddity::{Oddity, Talk};
use weir_test::origin::Origin;
use weir_test::sidecar::{Outward, Sidecar};
use weir_test::weir::request;
use weir_test::{Client, Gate, Response, Setup, free_address, wait_for, wait_until};

/// An origin `http://api.test` that a function controls, and a sidecar with these lines for it.
pub(super) fn oddity(
    lines: &str,
    script: impl Fn(&mut Talk) + Send + Sync + 'static,
) -> (Oddity, Sidecar) {
    let origin = Oddity::plain(script);
    let outward = Outward::new().plain_name("api.test", origin.address());
    let sidecar = outward.usual(lines).start();
    (origin, sidecar)
}

/// A URL in the proxy form.
pub(super) fn url(origin: &Oddity, path: &str) -> String {
    format!("http://api.test:{}{path}", origin.address().port())
}

/// The status, and the error that `Proxy-Status` gives (RFC 9209).
#[track_caller]
pub(super) fn refused(answer: &Response, status: u16, error: &str, reason: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    let said = answer.header("proxy-status").expect("Proxy-Status");
    let expected = format!("weir; error={error}; details=\"{reason}\"");
    assert_eq!(said, expected);
    assert!(answer.whole);
}

/// Waits for this many log lines of calls with this path, and returns them.
#[track_caller]
pub(super) fn logged(sidecar: &Sidecar, path: &str, count: usize) -> Vec<Value> {
    wait_for(&format!("{count} lines of {path}"), || {
        let text = sidecar.weir.read("log/access.log");
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let calls: Vec<Value> = whole
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
            .filter(|call| call["log"] == "egress" && call["path"] == path)
            .collect();
        (calls.len() >= count).then_some(calls)
    })
}

/// The line of the only call with this path.
#[track_caller]
pub(super) fn line(sidecar: &Sidecar, path: &str) -> Value {
    let mut lines = logged(sidecar, path, 1);
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

/// Begins a call over a new connection without waiting for the answer.
fn begin(weir: SocketAddr, method: &str, target: &str) -> Client {
    let mut client = Client::connect(weir);
    // In the proxy form `Host` has to be the target's own.
    let authority = target.split('/').nth(2).unwrap_or("localhost");
    let host = [("Host", authority)];
    client.send(request(method, target, &host, b"body"));
    client
}

fn call(sidecar: &Sidecar, method: &str, target: &str) -> Response {
    begin(sidecar.address, method, target).response_to(method)
}

pub(super) fn get(sidecar: &Sidecar, target: &str) -> Response {
    call(sidecar, "GET", target)
}

pub(super) fn calls(sidecar: &Sidecar, target: &str, count: usize) -> Vec<Client> {
    let calls = (0..count).map(|_| begin(sidecar.address, "GET", target));
    calls.collect()
}

#[test]
fn an_origin_that_never_answers_is_a_504_and_is_not_asked_again() {
    let (origin, sidecar) = oddity("first_byte_timeout = \"300ms\"", |talk| {
        talk.request();
        talk.hold();
    });
    for (asked, method) in [(1, "GET"), (2, "POST")] {
        let path = format!("/{method}");
        let began = Instant::now();
        let answer = call(&sidecar, method, &url(&origin, &path));
        assert!(began.elapsed() >= Duration::from_millis(300));
        refused(&answer, 504, "http_response_timeout", "first_byte_timeout");
        assert_eq!(origin.asked().len(), asked);
        let line = line(&sidecar, &path);
        assert_eq!(line["reason"], "first_byte_timeout", "{line}");
        assert_eq!(line["retries"], 0, "{line}");
    }
    wait_until("its connections are closed", || origin.open() == 0);
    let said = sidecar.weir.wait_for_error(&["api.test"]);
    assert!(said.contains("no answer within 300 ms"), "{said}");
}

#[test]
fn only_what_is_idempotent_is_sent_again_after_a_reset() {
    let (origin, sidecar) = oddity("max_fails = 0", |talk| {
        let asked = talk.request().unwrap_or_default();
        match asked.contains(" /reset") {
            true if talk.number % 2 == 1 => talk.reset(),
            _ => {
                talk.answer("fine");
            }
        }
    });
    // Each method's first connection has an odd number, and is reset.
    for (method, again) in [
        ("GET", true),
        ("PUT", true),
        ("DELETE", true),
        ("POST", false),
        ("PATCH", false),
    ] {
        if origin.connections() % 2 == 1 {
            get(&sidecar, &url(&origin, "/"));
        }
        // No call must use a connection that is just being closed.
        wait_until("none is kept", || origin.open() == 0);
        let before = origin.asked().len();
        let path = format!("/reset/{method}");
        let answer = call(&sidecar, method, &url(&origin, &path));
        let line = line(&sidecar, &path);
        let asked = &origin.asked()[before..];
        match again {
            true => {
                assert_eq!(
                    (answer.status, answer.text().as_str()),
                    (200, "fine"),
                    "{method}"
                );
                assert_eq!(line["retries"], 1, "{line}");
                assert!(asked.len() == 2 && asked[0] == asked[1], "{asked:?}");
                assert!(asked[1].ends_with("\r\n\r\nbody"), "{asked:?}");
            }
            false => {
                refused(&answer, 502, "connection_terminated", "terminated");
                assert_eq!(line["retries"], 0, "{line}");
                assert_eq!(asked.len(), 1, "{asked:?}");
            }
        }
    }
}

#[test]
fn half_an_answer_is_never_passed_off_as_whole() {
    const HALVES: [(&str, &str); 3] = [
        ("/length", "Content-Length: 10\r\n\r\nhalf "),
        (
            "/chunked",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhalf \r\n",
        ),
        ("/chunk", "Transfer-Encoding: chunked\r\n\r\nff\r\nhalf "),
    ];
    for reset in [false, true] {
        // A reset can discard what weir has not read.
        let (passed_on, is_passed_on) = mpsc::channel();
        let is_passed_on = Mutex::new(is_passed_on);
        let (origin, sidecar) = oddity("max_fails = 0", move |talk| {
            if let Some(asked) = talk.request() {
                let half = HALVES.iter().find(|(path, _)| asked.contains(path));
                let (_, half) = half.expect("one of them");
                talk.send(format!("HTTP/1.1 200 OK\r\n{half}"));
                if reset {
                    let is_passed_on = is_passed_on.lock().expect("no panic");
                    is_passed_on.recv().expect("the caller tells");
                    talk.reset();
                }
            }
        });
        for (path, _) in HALVES {
            let mut client = begin(sidecar.address, "GET", &url(&origin, path));
            if reset {
                wait_until("the half is passed on", || {
                    let mut begun = [0; 4096];
                    let count = client.stream().peek(&mut begun).expect("an answer");
                    begun[..count].windows(5).any(|bytes| bytes == b"half ")
                });
                passed_on.send(()).expect("the origin waits");
            }
            let answer = client.response();
            assert_eq!(answer.status, 200);
            assert!(!answer.whole, "{path}: {answer:?}");
            assert_eq!(answer.text(), "half ", "{path}");
            client.expect_closed();
            let line = line(&sidecar, path);
            assert_eq!(line["reason"], "terminated", "{line}");
            assert_eq!(line["retries"], 0, "part of it was passed on: {line}");
        }
        assert_eq!(origin.asked().len(), HALVES.len());
    }
}

#[test]
fn an_answer_that_ends_with_its_connection_is_whole_only_if_tls_says_goodbye() {
    let outward = Outward::new();
    let identity = outward.authority.server(&["DNS:api.test"]);
    let origin = Oddity::tls(&identity, &["http/1.1"], |talk| {
        let asked = talk.request().unwrap_or_default();
        talk.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nperhaps all");
        if asked.contains(" /cut ") {
            talk.cut();
        }
    });
    let sidecar = outward.name("api.test", origin.address()).start();
    let target = |path| format!("/api.test:{}{path}", origin.address().port());
    let answer = get(&sidecar, &target("/whole"));
    assert!(answer.whole && answer.text() == "perhaps all", "{answer:?}");
    assert_eq!(line(&sidecar, "/whole")["reason"], Value::Null);
    let answer = get(&sidecar, &target("/cut"));
    assert!(
        !answer.whole && answer.text() == "perhaps all",
        "{answer:?}"
    );
    assert_eq!(line(&sidecar, "/cut")["reason"], "terminated");
}

#[test]
fn an_endless_head_is_a_502_and_is_read_to_its_limit_only() {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let (origin, sidecar) = oddity("max_response_head = \"16K\"", |talk| {
        let asked = talk.request().unwrap_or_default();
        let piece = match asked.contains(" /fields ") {
            true => "X-More: and more\r\n",
            false => "and more ",
        };
        talk.send("HTTP/1.1 200 OK\r\nX-First: ");
        SENT.store(talk.endless(piece), Ordering::SeqCst);
    });
    for path in ["/fields", "/field"] {
        let answer = call(&sidecar, "GET", &url(&origin, path));
        let error = "http_response_header_section_size";
        refused(&answer, 502, error, "head_too_large");
        wait_until("weir has closed it", || origin.open() == 0);
        // As much as the kernel takes on both sides, and no more.
        let sent = SENT.load(Ordering::SeqCst);
        assert!(sent < 32 << 20, "{sent} bytes");
        assert_eq!(line(&sidecar, path)["retries"], 0);
    }
    assert_eq!(origin.asked().len(), 2, "a second answer would be as long");
}

/// As many as over HTTP/1.1: the cache and the compressor need a map of them, which takes a limited number.
#[test]
fn too_many_fields_over_http2_are_a_502() {
    let outward = Outward::new();
    let identity = outward.authority.server(&["DNS:api.test"]);
    let origin = H2::start(&identity, 100, |asked| {
        let count = asked.request.uri().path().trim_start_matches('/');
        Turn::Fields(count.parse().expect("a number"))
    });
    let sidecar = outward
        .name("api.test", origin.address())
        .usual("max_response_head = \"4M\"\ncompress = true\ncache = true")
        .start();
    let target = |count| format!("/api.test:{}/{count}", origin.address().port());
    for (count, is_taken) in [(90, true), (101, false), (24_570, false), (90, true)] {
        let answer = get(&sidecar, &target(count));
        match is_taken {
            true => assert_eq!(answer.status, 200, "{answer:?}"),
            false => {
                let error = "http_response_header_section_size";
                refused(&answer, 502, error, "head_too_large");
            }
        }
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn what_is_no_http_is_a_502() {
    const ANSWERS: [(&str, &str); 6] = [
        ("/ssh", "SSH-2.0-OpenSSH_9.2p1\r\n"),
        ("/status", "HTTP/1.1 fine\r\n\r\n"),
        ("/field", "HTTP/1.1 200 OK\r\nno field\r\n\r\n"),
        ("/length", "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"),
        (
            "/lengths",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        ),
        ("/binary", "\0\x01\x02\x03\r\n\r\n"),
    ];
    let (origin, sidecar) = oddity("max_fails = 0", |talk| {
        let asked = talk.request().unwrap_or_default();
        let answer = ANSWERS
            .iter()
            .find(|(path, _)| asked.contains(&format!(" {path} ")));
        talk.send(answer.expect("one of them").1);
    });
    for (path, _) in ANSWERS {
        let answer = get(&sidecar, &url(&origin, path));
        refused(&answer, 502, "http_protocol_error", "bad_response");
        let line = line(&sidecar, path);
        assert_eq!(line["reason"], "bad_response", "{line}");
    }
    assert_eq!(origin.asked().len(), ANSWERS.len(), "none is asked again");
}

#[test]
fn an_answer_whose_framing_breaks_is_cut() {
    let (origin, sidecar) = oddity("", |talk| {
        talk.request();
        talk.send(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\nno size\r\n\r\n",
        );
    });
    let answer = get(&sidecar, &url(&origin, "/"));
    assert!(answer.status == 200 && !answer.whole, "{answer:?}");
    assert_eq!(line(&sidecar, "/")["reason"], "bad_response");
}

#[test]
fn an_origin_that_stands_still_within_its_answer_is_cut() {
    let lines = "read_timeout = \"300ms\"\ntimeout = \"1s\"";
    let (origin, sidecar) = oddity(lines, |talk| {
        let asked = talk.request().unwrap_or_default();
        talk.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nbegin ");
        match asked.contains(" /still ") {
            true => talk.hold(),
            // The body arrives, but would take far too long.
            false => talk.drip([b'x'; 100_000], Duration::from_millis(20)),
        }
    });
    for (path, least) in [("/still", 300), ("/drip", 1_000)] {
        let began = Instant::now();
        let answer = get(&sidecar, &url(&origin, path));
        assert!(began.elapsed() >= Duration::from_millis(least), "{path}");
        assert!(answer.status == 200 && !answer.whole, "{path}: {answer:?}");
        assert!(answer.text().starts_with("begin "));
        assert_eq!(line(&sidecar, path)["reason"], "response_timeout");
        wait_until("the origin's connection is closed", || origin.open() == 0);
    }
}

#[test]
fn a_refused_connection_is_a_502_that_says_so() {
    let address = free_address();
    let outward = Outward::new().plain_name("api.test", address);
    let sidecar = outward.usual("max_fails = 0").start();
    let target = format!("http://api.test:{}/a", address.port());
    for method in ["GET", "POST"] {
        let answer = call(&sidecar, method, &target);
        refused(&answer, 502, "connection_refused", "refused");
    }
    let said = sidecar.weir.wait_for_error(&["api.test", "refuse"]);
    assert!(said.contains(&address.to_string()), "{said}");
    // The origin cannot have seen anything of the request, whatever the method.
    for call in logged(&sidecar, "/a", 2) {
        assert_eq!(call["retries"], 2, "{call}");
    }
}

#[test]
fn a_handshake_that_breaks_off_is_tried_again_whatever_the_method() {
    // An origin without TLS where TLS is expected.
    let origin = Oddity::plain(|talk| talk.cut());
    let sidecar = Outward::new().name("api.test", origin.address()).start();
    let target = |path| format!("/api.test:{}{path}", origin.address().port());
    for (path, method, connections) in [("/get", "GET", 3), ("/post", "POST", 6)] {
        let answer = call(&sidecar, method, &target(path));
        refused(&answer, 502, "connection_terminated", "terminated");
        assert_eq!(line(&sidecar, path)["retries"], 2);
        assert_eq!(origin.connections(), connections);
    }
    sidecar
        .weir
        .wait_for_error(&["api.test", "does not use TLS", "http://"]);
}

#[test]
fn an_origin_that_restarts_fails_no_idempotent_call() {
    let setup = Setup::new();
    let outward = Outward::new();
    let identity = outward.authority.server(&["DNS:api.test"]);
    let address = free_address();
    let listen = Origin::listen_tls(&identity, false);
    let mut origin = Origin::start(setup.folder(), address, &listen, "");
    // This many tries last for seconds, in case the machine is busy.
    let lines = "retries = 6\nretry_budget = 100";
    let sidecar = outward.name("api.test", address).usual(lines).start();
    let target = format!("/api.test:{}/echo", address.port());
    let (done, weir) = (AtomicBool::new(false), sidecar.address);
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let answer = begin(weir, "GET", &target).response();
                    assert_eq!(answer.status, 200, "{answer:?}");
                    answered.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
        let _done = Done(&done);
        for _ in 0..3 {
            let before = answered.load(Ordering::SeqCst);
            wait_until("calls are answered", || {
                answered.load(Ordering::SeqCst) >= before + 40
            });
            origin.stop();
            origin.go();
        }
        let before = answered.load(Ordering::SeqCst);
        wait_until("calls are answered", || {
            answered.load(Ordering::SeqCst) >= before + 40
        });
    });
}

/// Sets the flag when its scope ends, in whatever way.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn kept_connections_that_turn_out_dead_cost_no_idempotent_call() {
    // The origin answers the first request of each connection, and resets it on the second. Nothing shows this before.
    let gate = Gate::default();
    let script = gate.clone();
    let (origin, sidecar) = oddity("max_fails = 3", move |talk| {
        if talk.request().is_some() {
            script.pass();
            talk.answer("fine");
        }
        if talk.request().is_some() {
            talk.reset();
        }
    });
    // More connections than a call has tries.
    let mut callers = calls(&sidecar, &url(&origin, "/first"), 6);
    wait_until("each has its connection", || origin.asked().len() == 6);
    gate.open();
    for caller in &mut callers {
        assert_eq!(caller.response().status, 200);
    }
    wait_until("all are kept", || logged(&sidecar, "/first", 6).len() == 6);
    let answer = get(&sidecar, &url(&origin, "/get"));
    assert_eq!((answer.status, answer.text().as_str()), (200, "fine"));
}

#[test]
fn a_post_is_sent_again_only_if_the_origin_cannot_have_seen_it() {
    // A connection answers one request. Then it is closed, either at once or when the next request arrives.
    let (origin, sidecar) = oddity("", |talk| {
        let asked = talk.request().unwrap_or_default();
        talk.answer("fine");
        if asked.contains(" /late") {
            talk.request();
        }
    });
    let post = |path: &str| call(&sidecar, "POST", &url(&origin, path));
    assert_eq!(post("/early").status, 200);
    wait_until("weir has closed its side too", || origin.open() == 0);
    assert_eq!(post("/late").status, 200);
    assert_eq!(origin.asked().len(), 2, "each once");
    // The connection was kept, and closed after the origin had read the next request.
    let answer = post("/seen");
    refused(&answer, 502, "connection_terminated", "terminated");
    assert_eq!(line(&sidecar, "/seen")["connection"], "kept");
    let seen = |path: &str| {
        let asked = origin.asked();
        asked.iter().filter(|asked| asked.contains(path)).count()
    };
    assert_eq!(seen(" /seen "), 1);
    // weir sends an idempotent request again.
    assert_eq!(post("/late").status, 200);
    let answer = get(&sidecar, &url(&origin, "/get"));
    assert_eq!(answer.status, 200);
    assert_eq!(seen(" /get "), 2);
}

#[test]
fn over_http_2_a_post_that_the_origin_has_refused_is_sent_again() {
    let outward = Outward::new();
    let identity = outward.authority.server(&["DNS:api.test"]);
    let origin = H2::start(&identity, 10, |asked| {
        let first = asked.number == 1 && asked.connection == 1;
        match asked.request.uri().path() {
            "/refused" if first => Turn::Reset(Reason::REFUSED_STREAM),
            "/cancelled" => Turn::Reset(Reason::CANCEL),
            "/cut" => Turn::Cut,
            "/half" => Turn::Half,
            _ => Turn::Answer(200, "fine".to_owned()),
        }
    });
    let sidecar = outward.name("api.test", origin.address()).start();
    let ask = |method: &str, path: &str| {
        let target = format!("/api.test:{}{path}", origin.address().port());
        call(&sidecar, method, &target)
    };
    let answer = ask("POST", "/refused");
    assert_eq!((answer.status, answer.text().as_str()), (200, "fine"));
    assert_eq!(line(&sidecar, "/refused")["retries"], 1);
    for path in ["/cancelled", "/cut"] {
        refused(
            &ask("POST", path),
            502,
            "connection_terminated",
            "terminated",
        );
        assert_eq!(line(&sidecar, path)["retries"], 0);
    }
    let answer = ask("GET", "/half");
    assert!(answer.status == 200 && !answer.whole, "{answer:?}");
    assert_eq!(line(&sidecar, "/half")["reason"], "terminated");
}

#[test]
fn tries_again_are_no_more_than_the_budget_allows() {
    for (budget, most) in [(10, 10 + 10), (0, 0)] {
        let lines = format!("max_fails = 0\nretries = 3\nretry_budget = {budget}");
        let (origin, sidecar) = oddity(&lines, |talk| {
            talk.request();
            talk.reset();
        });
        let began = Instant::now();
        for _ in 0..100 {
            assert_eq!(get(&sidecar, &url(&origin, "/")).status, 502);
        }
        let asked = origin.asked().len();
        // One retry is added every ten seconds.
        let by_time = began.elapsed().as_secs() as usize / 10 + 1;
        assert!(asked >= 100 + most, "they are used: {asked}");
        assert!(asked <= 100 + most + by_time, "{asked}");
    }
}

/// nginx ends an HTTP/2 connection after `keepalive_requests` calls (GOAWAY), even if other calls are on their way over
/// it.
#[test]
fn posts_survive_an_origin_that_ends_its_connections_after_some_calls() {
    const CALLERS: usize = 40;
    const EACH: usize = 50;
    let setup = Setup::new();
    let outward = Outward::new();
    let identity = outward.authority.server(&["DNS:api.test"]);
    let origin = Origin::start(
        setup.folder(),
        free_address(),
        &Origin::listen_tls(&identity, true),
        "keepalive_requests 20;",
    );
    let sidecar = outward
        .name("api.test", origin.address())
        // Neither limit applies to requests that the origin has not begun.
        .usual("retries = 0\nretry_budget = 0")
        .start_in(setup);
    let (port, address) = (origin.address().port(), sidecar.address);
    let failed: Vec<String> = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    let calls = (0..EACH).map(|number| {
                        let path = format!("/api.test:{port}/echo/{caller}/{number}");
                        // Some bodies are longer than the part that weir reads first.
                        let body = match number % 10 {
                            0 => vec![b'x'; 100_000],
                            _ => b"order".to_vec(),
                        };
                        let length = body.len();
                        client.send(format!(
                            "POST {path} HTTP/1.1\r\nHost: weir\r\nContent-Length: {length}\r\n\r\n"
                        ));
                        client.send(body);
                        (client.response(), path)
                    });
                    let failed = calls.filter(|(answer, _)| answer.status != 200);
                    let failed: Vec<_> = failed
                        .map(|(answer, path)| format!("{path}: {answer:?}"))
                        .collect();
                    failed
                })
            })
            .collect();
        let failed = callers
            .into_iter()
            .map(|caller| caller.join().expect("no panic"));
        failed.flatten().collect()
    });
    assert!(
        failed.is_empty(),
        "{} are lost: {:?}",
        failed.len(),
        failed.first()
    );
    let calls = origin.wait_for_calls(CALLERS * EACH);
    let mut lines: Vec<&str> = calls.iter().map(|call| call.line.as_str()).collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(
        (calls.len(), lines.len()),
        (CALLERS * EACH, CALLERS * EACH),
        "none is doubled"
    );
    // weir has learned how many calls a connection takes: it makes few more connections than necessary.
    assert!(origin.connections() < (CALLERS * EACH / 20 * 2) as u64);
}

/// weir does not ask an origin without end if it refuses every request.
#[test]
fn an_origin_that_refuses_every_stream_is_given_up() {
    let outward = Outward::new();
    let identity = outward.authority.server(&["DNS:api.test"]);
    let origin = H2::start(&identity, 10, |_| Turn::Reset(Reason::REFUSED_STREAM));
    let sidecar = outward
        .name("api.test", origin.address())
        .usual("retries = 0")
        .start();
    let answer = sidecar.call(
        "POST",
        &format!("/api.test:{}/x", origin.address().port()),
        &[],
        b"body",
    );
    refused(&answer, 502, "connection_terminated", "terminated");
    let asked = origin.asked().len();
    assert!((2..100).contains(&asked), "{asked}");
    assert_eq!(
        origin.connections(),
        1,
        "it is about the stream, not about the connection"
    );
}

/// A busy origin over HTTP/1.1: weir makes as many connections as there are calls at once, and no more.
#[test]
fn connections_in_use_are_kept_beyond_keepalive() {
    const CALLERS: usize = 50;
    let origin = Oddity::plain(|talk| talk.answer_all("fine"));
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .usual("keepalive = 2\nmaxconn = 60")
        .start();
    let path = format!("/api.test:{}/echo", origin.address().port());
    let address = sidecar.address;
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                for _ in 0..20 {
                    client.send(request("GET", &path, &[("Connection", "keep-alive")], b""));
                    client.response().expect(200);
                }
            });
        }
    });
    let made = origin.connections();
    assert!(made <= 60, "{made} connections for {CALLERS} calls at once");
}

/// The origin reads nothing: weir must blame the origin, not the caller, for the delay.
#[test]
fn an_origin_that_takes_nothing_of_a_body_is_to_blame_and_not_its_caller() {
    let over = Gate::default();
    let is_over = over.clone();
    let (origin, sidecar) = oddity("read_timeout = \"500ms\"\nretries = 0", move |talk| {
        // The origin does not read until the test is over.
        is_over.pass();
        talk.reset();
    });
    let mut caller = sidecar.client();
    let port = origin.address().port();
    caller.send(format!(
        "POST /api.test:{port}/x HTTP/1.1\r\nHost: weir\r\nContent-Length: 100000000\r\n\r\n"
    ));
    let mut stream = caller.stream().try_clone().expect("a descriptor");
    let sending = thread::spawn(move || {
        use std::io::Write;
        while stream.write_all(&[b'x'; 65536]).is_ok() {}
    });
    let answer = caller.response();
    refused(&answer, 504, "http_response_timeout", "response_timeout");
    over.open();
    drop(sidecar);
    sending.join().expect("it ends");
}

/// weir forgets a host to make room for others, but not during a call whose caller is still sending.
#[test]
fn a_host_that_is_called_slowly_is_not_forgotten_and_not_stormed() {
    let slow = Oddity::plain(|talk| talk.answer_all("slow"));
    let others: Vec<Oddity> = (0..3)
        .map(|_| Oddity::plain(|talk| talk.answer_all("other")))
        .collect();
    let mut outward = Outward::new()
        .plain_name("slow.test", slow.address())
        .lines("max_hosts = 1");
    for (number, other) in others.iter().enumerate() {
        outward = outward.plain_name(&format!("other{number}.test"), other.address());
    }
    let sidecar = outward.start();
    let mut caller = sidecar.client();
    let port = slow.address().port();
    caller.send(format!(
        "POST /slow.test:{port}/x HTTP/1.1\r\nHost: weir\r\nContent-Length: 10\r\n\r\nfirst"
    ));
    for (number, other) in others.iter().enumerate() {
        let path = format!("/other{number}.test:{}/", other.address().port());
        assert_eq!(sidecar.get(&path).expect(200).text(), "other");
    }
    caller.send("after");
    assert_eq!(caller.response().expect(200).text(), "slow");
    assert_eq!(slow.connections(), 1);
}
