//! `protocol = "fastcgi"`: what a web server in front may request, and web servers that make mistakes, are slow or have
//! left.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use weir_test::fcgi::{ABORT_REQUEST, BEGIN_REQUEST, GET_VALUES, PARAMS, STDIN, record};
use weir_test::front::{Behind, Front, Params, head, request};
use weir_test::tcp::{is_read, socket};
use weir_test::{Gate, LIMIT, Responder, Setup, wait_until};

/// A pool of `maxconn` whose worker waits at the gate and then prints the request's URI.
fn gated(maxconn: usize, pool: &str, lines: &str) -> (Behind, Responder, Gate) {
    let setup = Setup::new().file("run.php", "").file("text.txt", "a text");
    let (responder, gate) = Responder::gated(setup.folder(), |request, answer| {
        answer.page(request.param("REQUEST_URI"));
    });
    let pool = format!("{}{pool}", responder.pool(maxconn));
    let setup = setup.server("threads = 1");
    (Behind::start(setup, &pool, lines), responder, gate)
}

#[test]
fn a_kept_connection_serves_many_requests_and_another_is_closed() {
    let (behind, responder, gate) = gated(1, "", "max_requests_per_connection = 50");
    gate.open();
    let mut kept = behind.front();
    for number in 0..50 {
        let target = format!("/run.php?{number}");
        let (_, body) = kept.ask(&behind.params(&target), b"").text();
        assert_eq!(body, target);
    }
    kept.expect_closed();
    let mut once = behind.front();
    once.send(request(7, false, &behind.params("/run.php?once"), b""));
    assert_eq!(once.answer(7).text().1, "/run.php?once");
    once.expect_closed();
    assert_eq!(responder.most_running(), 1);
}

/// Bytes that nobody reads turn the end of a connection into a reset, which may destroy what is on its way.
#[test]
fn a_request_after_the_last_answer_resets_nothing() {
    let setup = Setup::new();
    let answer = vec![b'x'; 200 << 10];
    let responder = Responder::unix(setup.folder(), move |_, page| page.page(&answer));
    let behind = Behind::start(setup, &responder.pool(1), "");
    let mut front = behind.front();
    let asked = request(1, false, &behind.params("/run.php"), b"");
    front.send(&asked);
    let (local, remote) = front.ends();
    wait_until("weir has closed its end", || {
        socket(remote, local).is_some_and(|(state, _)| state == "04")
    });
    for _ in 0..2 {
        front.try_send(&asked);
        wait_until("weir has read it", || is_read(remote, local));
    }
    let answered = front.answer(1);
    assert!(answered.stdout.len() > 200 << 10);
    assert_eq!(answered.ended, Some(0));
}

#[test]
fn the_answer_goes_back_as_the_worker_wrote_it() {
    let setup = Setup::new();
    let responder = Responder::unix(setup.folder(), |request, answer| {
        assert_eq!(request.param("ODD_NAME"), "kept as it came");
        assert_eq!(request.param("HTTP_PROXY"), "also");
        assert!(!request.params.contains_key("CONTENT_LENGTH"));
        answer.stderr("a warning\n");
        answer.stdout(
            "Status: 418 Leer\r\nX-ODD-Case: 1\r\nX-Accel-Redirect: /there\r\nLocation: /x\r\n\r\n",
        );
        answer.stderr("and another");
        answer.stdout("body");
        answer.end();
    });
    let behind = Behind::start(setup, &responder.pool(1), "");
    let params = behind
        .params("/run.php")
        .with("ODD_NAME", "kept as it came")
        .with("HTTP_PROXY", "also");
    let answered = behind.front().ask(&params, b"");
    assert_eq!(
        String::from_utf8_lossy(&answered.stdout),
        "Status: 418 Leer\r\nX-ODD-Case: 1\r\nX-Accel-Redirect: /there\r\nLocation: /x\r\n\r\nbody"
    );
    assert_eq!(answered.stderr, b"a warning\nand another");
    assert_eq!(behind.weir.logged("/run.php")["status"], 418);
    behind
        .weir
        .wait_for_error(&["worker stderr: a warning", "pool=app"]);
}

#[test]
fn a_parameter_that_php_would_take_for_another_header_is_not_passed() {
    let setup = Setup::new();
    let responder = Responder::unix(setup.folder(), |request, answer| {
        let told = request
            .params
            .keys()
            .filter(|name| name.starts_with("HTTP_X"));
        let mut told: Vec<String> = told.cloned().collect();
        told.sort();
        answer.page(told.join(" "));
    });
    let behind = Behind::start(setup, &responder.pool(1), "");
    let params = behind
        .params("/run.php")
        .with("HTTP_X_REAL_IP", "10.0.0.1")
        .with("HTTP_X.REAL.IP", "6.6.6.6")
        .with("HTTP_X REAL IP", "6.6.6.6")
        .with("HTTP_X[REAL[IP", "6.6.6.6");
    let (_, told) = behind.front().ask(&params, b"").text();
    assert_eq!(told, "HTTP_X_REAL_IP");
}

#[test]
fn a_body_without_a_length_gets_one() {
    let setup = Setup::new();
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(format!(
            "{} {}",
            request.param("CONTENT_LENGTH"),
            request.stdin.len()
        ));
    });
    let behind = Behind::start(setup, &responder.pool(1), "");
    let post = behind.params("/a.php").with("REQUEST_METHOD", "POST");
    for params in [post.clone(), post.with("CONTENT_LENGTH", "")] {
        assert_eq!(
            behind.front().ask(&params, &[b'x'; 200_000]).text().1,
            "200000 200000"
        );
    }
}

/// HAProxy sends no record that ends the body after an empty body that came in chunks. PHP-FPM reads no further than
/// CONTENT_LENGTH says.
#[test]
fn a_request_whose_body_is_there_waits_for_no_record_that_ends_it() {
    let setup = Setup::new();
    let responder = Responder::unix(setup.folder(), |request, answer| {
        let body = String::from_utf8_lossy(&request.stdin);
        answer.page(format!("{} {body}", request.param("REQUEST_METHOD")));
    });
    let behind = Behind::start(setup, &responder.pool(1), "");
    let mut kept = behind.front();
    let post = |length: &str| {
        let params = behind.params("/a.php").with("REQUEST_METHOD", "POST");
        match length {
            "none" => params,
            length => params.with("CONTENT_LENGTH", length),
        }
    };
    for (params, stdin, expected) in [
        (post("0"), "", "POST "),
        (post("none"), "", "POST "),
        (post(""), "", "POST "),
        (post("no number"), "", "POST "),
        (post("4"), "four", "POST four"),
        (post("4"), "four and more", "POST four"),
        (post("04 or so"), "four", "POST four"),
        (behind.params("/a.php"), "", "GET "),
        (
            behind.params("/a.php").with("REQUEST_METHOD", "HEAD"),
            "",
            "HEAD",
        ),
        (
            behind.params("/a.php").with("CONTENT_LENGTH", "1"),
            "x",
            "GET x",
        ),
    ] {
        let mut bytes = head(1, true, &params);
        if !stdin.is_empty() {
            bytes.extend(record(STDIN, 1, stdin.as_bytes()));
        }
        kept.send(bytes);
        let answered = kept.answer(1);
        let text = answered.text().1;
        assert_eq!(text.trim_end(), expected.trim_end(), "{params:?}, {stdin}");
    }
    // The end of the body comes late, and belongs to no request.
    kept.send(record(STDIN, 1, b"late"));
    kept.send(record(STDIN, 1, b""));
    let answered = kept.ask(&post("4"), b"next");
    assert_eq!(answered.text().1, "POST next");
}

#[test]
fn questions_about_the_application_are_answered() {
    let (behind, _responder, gate) = gated(3, "queue.max_queue = 4\n", "");
    gate.open();
    let mut front = behind.front();
    let names = ["FCGI_MAX_REQS", "FCGI_MPXS_CONNS", "FCGI_OTHER"];
    let asked: Vec<u8> = names
        .iter()
        .flat_map(|name| [&[name.len() as u8, 0], name.as_bytes()].concat())
        .collect();
    front.send(record(GET_VALUES, 0, &asked));
    let values = front.values();
    let expected = [("FCGI_MAX_REQS", "7"), ("FCGI_MPXS_CONNS", "0")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(values, expected);
    // FCGI_UNKNOWN_TYPE (FastCGI 1.0 §4.2)
    front.send(record(200, 0, b"x"));
    let (kind, id, content) = front.record().expect("an answer");
    assert_eq!((kind, id, content[0]), (11, 0, 200));
    // The connection continues to work.
    assert_eq!(
        front.ask(&behind.params("/run.php"), b"").text().1,
        "/run.php"
    );
}

#[test]
fn what_weir_does_not_play_is_refused_in_the_protocols_words() {
    let (behind, responder, gate) = gated(1, "", "");
    let mut front = behind.front();
    // A filter, and a role that does not exist: FCGI_UNKNOWN_ROLE.
    for role in [3, 9] {
        front.send(record(BEGIN_REQUEST, 3, &[0, role, 1, 0, 0, 0, 0, 0]));
        assert_eq!(front.answer(3).ended, Some(3));
    }
    // A second request on the same connection gets FCGI_CANT_MPX_CONN. The first continues.
    front.send(request(1, true, &behind.params("/run.php?first"), b""));
    wait_until("the first is at work", || responder.running() == 1);
    front.send(request(2, true, &behind.params("/run.php?second"), b""));
    assert_eq!(front.answer(2).ended, Some(1));
    gate.open();
    assert_eq!(front.answer(1).text().1, "/run.php?first");
    assert_eq!(responder.uris(), ["/run.php?first"]);
    // An unknown role ends the connection if it is not to be kept.
    front.send(record(BEGIN_REQUEST, 4, &[0, 3, 0, 0, 0, 0, 0, 0]));
    assert_eq!(front.answer(4).ended, Some(3));
    front.expect_closed();
}

#[test]
fn a_request_that_is_given_up_while_it_waits_never_starts() {
    let (behind, responder, gate) = gated(1, "", "");
    let mut running = behind.front();
    running.send(request(1, true, &behind.params("/run.php?running"), b""));
    wait_until("one is at work", || responder.running() == 1);
    let mut aborts = behind.front();
    aborts.send(request(1, true, &behind.params("/run.php?aborted"), b""));
    let mut leaves = behind.front();
    leaves.send(request(1, true, &behind.params("/run.php?left"), b""));
    let mut halves = behind.front();
    halves.send(request(1, true, &behind.params("/run.php?half"), b""));
    // There is one reactor. It has handled them before it answers this.
    behind.weir.get("/text.txt").expect(200);
    aborts.send(record(ABORT_REQUEST, 1, b""));
    let answered = aborts.answer(1);
    assert_eq!((answered.ended, answered.stdout.len()), (Some(0), 0));
    drop(leaves);
    halves.shut();
    for uri in ["/run.php?aborted", "/run.php?left", "/run.php?half"] {
        let line = behind.weir.logged(uri);
        assert_eq!(
            (&line["status"], &line["reason"]),
            (&499.into(), &"client_left".into())
        );
        assert!(line["worker"].is_null(), "{line}");
    }
    gate.open();
    assert_eq!(running.answer(1).text().1, "/run.php?running");
    // The connection on which a request was aborted serves another one.
    let next = aborts.ask(&behind.params("/run.php?next"), b"");
    assert_eq!(next.text().1, "/run.php?next");
    assert_eq!(responder.uris(), ["/run.php?running", "/run.php?next"]);
}

#[test]
fn a_script_whose_web_server_leaves_runs_to_its_end() {
    let (behind, responder, gate) = gated(1, "", "");
    let mut front = behind.front();
    front.send(request(1, true, &behind.params("/run.php?left"), b""));
    wait_until("it is at work", || responder.running() == 1);
    drop(front);
    assert_eq!(behind.weir.logged("/run.php?left")["reason"], "client_left");
    let mut aborts = behind.front();
    aborts.send(request(1, true, &behind.params("/run.php?aborted"), b""));
    gate.admit(1);
    wait_until("the next is at work", || responder.uris().len() == 2);
    aborts.send(record(ABORT_REQUEST, 1, b""));
    assert_eq!(aborts.answer(1).ended, Some(0));
    gate.open();
    let next = aborts.ask(&behind.params("/run.php?next"), b"");
    assert_eq!(next.text().1, "/run.php?next");
}

#[test]
fn idle_kept_connections_hold_no_worker() {
    let (behind, responder, gate) = gated(1, "", "");
    gate.open();
    let mut idle: Vec<Front> = (0..30).map(|_| behind.front()).collect();
    for front in &mut idle {
        front.ask(&behind.params("/run.php"), b"").text();
    }
    let other = behind.weir.get("/run.php?http").expect(200);
    assert_eq!(other.text(), "/run.php?http");
    assert!(
        responder.most_connections() <= 1,
        "{}",
        responder.most_connections()
    );
    for front in &mut idle {
        front.ask(&behind.params("/run.php"), b"").text();
    }
}

#[test]
fn no_worker_is_taken_before_the_body_is_there() {
    let (behind, responder, gate) = gated(1, "", "body_timeout = \"1s\"");
    gate.open();
    let params = Params::post(&behind.weir.root(), "/run.php?slow", 10);
    let mut slow = behind.front();
    slow.send(head(1, true, &params))
        .send(record(STDIN, 1, b"half"));
    behind
        .front()
        .ask(&behind.params("/run.php?fast"), b"")
        .text();
    assert_eq!(responder.uris(), ["/run.php?fast"]);
    // Nothing more arrives: weir answers 408 and closes the connection.
    let answered = slow.answer(1);
    assert!(
        answered.text().0.starts_with("Status: 408 Request Timeout"),
        "{answered:?}"
    );
    slow.expect_closed();
    assert_eq!(
        behind.weir.logged("/run.php?slow")["reason"],
        "body_timeout"
    );
    assert_eq!(responder.uris(), ["/run.php?fast"]);
}

#[test]
fn a_body_for_which_there_is_no_room_is_refused() {
    let setup = Setup::new().server("max_spool = \"1M\"");
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("served"));
    let pool = responder.pool(1);
    let setup = setup.site("max_body = \"1M\"");
    let behind = Behind::start(setup, &pool, "");
    let params = Params::post(&behind.weir.root(), "/run.php", 3_000_000);
    let mut front = behind.front();
    front.send(head(1, true, &params));
    for _ in 0..50 {
        if !front.try_send(record(STDIN, 1, &[b'x'; 60_000])) {
            break;
        }
    }
    let answered = front.answer(1);
    assert!(
        answered.text().0.starts_with("Status: 503 "),
        "{answered:?}"
    );
    assert_eq!(behind.weir.logged("/run.php")["reason"], "spool_failed");
    // weir frees the disk space that the body took.
    let body = vec![b'x'; 500_000];
    let params = Params::post(&behind.weir.root(), "/run.php?small", body.len());
    assert_eq!(behind.front().ask(&params, &body).text().1, "served");
}

#[test]
fn saturation_is_a_response_that_a_web_server_passes_on() {
    let (behind, responder, gate) = gated(
        1,
        "queue.max_queue = 1\nqueue.timeout = \"700ms\"\n",
        "proxy_status = true",
    );
    let ask = |name: &str| {
        let mut front = behind.front();
        let target = format!("/run.php?{name}");
        front.send(request(1, false, &behind.params(&target), b""));
        front
    };
    let mut running = ask("running");
    wait_until("one is at work", || responder.running() == 1);
    let mut waits = ask("waits");
    behind.weir.get("/text.txt").expect(200);
    let (head, body) = ask("shed").answer(1).text();
    assert!(
        head.starts_with("Status: 503 Service Unavailable\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\nRetry-After: "), "{head}");
    assert!(
        head.contains("Proxy-Status: weir; error=connection_limit_reached; details=\"queue_full\""),
        "{head}"
    );
    assert_eq!(body, "503 Service Unavailable\n");
    let (head, _) = waits.answer(1).text();
    assert!(head.contains("details=\"queue_timeout\""), "{head}");
    assert_eq!(behind.weir.logged("/run.php?shed")["reason"], "queue_full");
    gate.open();
    running.answer(1).text();
}

#[test]
fn a_web_server_that_reads_slowly_holds_no_worker() {
    let setup = Setup::new();
    let large = b"0123456789abcdef".repeat(500_000);
    let body = large.clone();
    let responder = Responder::unix(setup.folder(), move |request, answer| {
        match request.param("QUERY_STRING") {
            "large" => answer.page(&body),
            _ => answer.page("small"),
        }
    });
    let behind = Behind::start(setup, &responder.pool(1), "");
    let mut slow = behind.front();
    slow.send(request(1, true, &behind.params("/run.php?large"), b""));
    // The one worker serves others although the client has not read a byte of the 8 MB.
    assert_eq!(
        behind
            .front()
            .ask(&behind.params("/run.php?small"), b"")
            .text()
            .1,
        "small"
    );
    let answered = slow.answer(1);
    assert_eq!(answered.ended, Some(0));
    assert!(answered.stdout.ends_with(&large));
    assert_eq!(
        behind.weir.logged("/run.php?large")["bytes_out"],
        large.len()
    );
    assert_eq!(
        slow.ask(&behind.params("/run.php?small"), b"").text().1,
        "small"
    );
}

#[test]
fn a_web_server_that_never_reads_is_left() {
    let setup = Setup::new();
    let responder = Responder::unix(setup.folder(), |_, answer| {
        answer.page(vec![b'x'; 40_000_000])
    });
    let pool = format!("{}read_timeout = \"60s\"\n", responder.pool(1));
    let behind = Behind::start(setup, &pool, "send_timeout = \"1s\"");
    let mut front = behind.front();
    front.send(request(1, true, &behind.params("/run.php"), b""));
    let line = behind.weir.logged("/run.php");
    assert_eq!(line["reason"], "client_left");
}

#[test]
fn events_arrive_as_they_are_sent() {
    let setup = Setup::new();
    let gate = Gate::default();
    let shut = gate.clone();
    let responder = Responder::unix(setup.folder(), move |_, answer| {
        answer.stdout("Content-Type: text/event-stream\r\n\r\ndata: 1\n\n");
        shut.pass();
        answer.stdout("data: 2\n\n");
        answer.end();
    });
    let behind = Behind::start(setup, &responder.pool(1), "");
    let mut front = behind.front();
    front.send(request(1, true, &behind.params("/run.php"), b""));
    let mut seen = Vec::new();
    while !seen.ends_with(b"data: 1\n\n") {
        seen.extend(front.record().expect("a record").2);
    }
    gate.open();
    assert_eq!(front.answer(1).stdout, b"data: 2\n\n");
}

#[test]
fn what_is_no_fastcgi_is_closed() {
    let (behind, responder, gate) = gated(1, "", "header_timeout = \"1s\"\n");
    gate.open();
    let long = vec![b'x'; 70_000];
    let long = String::from_utf8(long).expect("text");
    let mut many = behind.params("/run.php");
    for number in 0..8 {
        many = many.with(&format!("HTTP_X_{number}"), &long[..60_000]);
    }
    let cases: [(&str, Vec<u8>); 7] = [
        ("HTTP", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        (
            "noise",
            (0..4000_u32).map(|n| ((n * 7919) >> 3) as u8 | 2).collect(),
        ),
        ("a body before the parameters", {
            let mut bytes = record(BEGIN_REQUEST, 1, &[0, 1, 1, 0, 0, 0, 0, 0]);
            bytes.extend(record(STDIN, 1, b"x"));
            bytes
        }),
        ("the same number twice", {
            let begin = record(BEGIN_REQUEST, 1, &[0, 1, 1, 0, 0, 0, 0, 0]);
            [begin.clone(), begin].concat()
        }),
        ("half a pair", {
            let mut bytes = record(BEGIN_REQUEST, 1, &[0, 1, 1, 0, 0, 0, 0, 0]);
            bytes.extend(record(PARAMS, 1, &[10, 10, b'a']));
            bytes.extend(record(PARAMS, 1, b""));
            bytes
        }),
        ("too many parameters", head(1, true, &many)),
        (
            "half a head",
            head(1, true, &behind.params("/run.php"))[..40].to_vec(),
        ),
    ];
    for (what, bytes) in cases {
        let began = Instant::now();
        let mut front = behind.front();
        front.try_send(&bytes);
        while front.record().is_some() {}
        assert!(began.elapsed() < LIMIT, "{what}");
    }
    behind.weir.wait_for_error(&[
        "closed a connection from 127.0.0.1 to listen.front",
        "header_timeout",
    ]);
    // weir refuses a parameter that does not fit into a record of its PHP, and does not pass it on.
    let params = behind.params("/run.php?long").with("HTTP_COOKIE", &long);
    let (head, _) = behind.front().ask(&params, b"").text();
    assert!(head.starts_with("Status: 431 "), "{head}");
    assert_eq!(responder.uris(), [] as [&str; 0]);
    // None of this has done any harm.
    behind.front().ask(&behind.params("/run.php"), b"").text();
}

#[test]
fn a_client_that_asks_for_ever_is_left() {
    let (behind, _responder, gate) = gated(1, "", "send_timeout = \"1s\"\n");
    gate.open();
    let mut front = behind.front();
    let questions = record(GET_VALUES, 0, b"\x0e\x00FCGI_MAX_CONNS").repeat(1000);
    // The web server reads no answers, so weir stops reading its requests sooner or later.
    let began = Instant::now();
    while front.try_send(&questions) {
        assert!(began.elapsed() < LIMIT, "it is still listened to");
    }
    behind.front().ask(&behind.params("/run.php"), b"").text();
}

#[test]
fn only_allowed_clients_may_connect() {
    let lines = "allowed_clients = [\"127.0.0.9\", \"::1\"]";
    for (log, said) in [
        (
            "weir",
            "connection from 127.0.0.1 closed: it is not in allowed_clients of [listen.front]",
        ),
        (
            "fpm",
            "Connection disallowed: IP address '127.0.0.1' has been dropped.",
        ),
    ] {
        let setup = Setup::new().log(&format!("format = \"json\"\nerror_format = \"{log}\""));
        let responder = Responder::unix(setup.folder(), |_, answer| answer.page("served"));
        let behind = Behind::start(setup, &responder.pool(1), lines);
        let mut front = behind.front();
        front.try_send(request(1, true, &behind.params("/run.php"), b""));
        assert_eq!(front.record(), None);
        behind.weir.wait_for_error(&[said]);
        // The unix socket has the configured permissions.
        let socket = behind.socket();
        let mut front = Front::unix(Path::new(&socket));
        front.ask(&behind.params("/run.php"), b"").text();
    }
}

#[test]
fn a_kept_connection_goes_on_when_weir_reloads() {
    let (behind, _responder, gate) = gated(2, "", "");
    gate.open();
    let done = AtomicBool::new(false);
    let answers = [AtomicUsize::new(0), AtomicUsize::new(0)];
    // Like a web server: it uses one connection all the time.
    let ask = |number: usize| {
        let mut kept = behind.front();
        while !done.load(Relaxed) {
            kept.ask(&behind.params("/run.php"), b"").text();
            answers[number].fetch_add(1, Relaxed);
            assert!(kept.quiet_for(Duration::from_millis(1)), "it was closed");
        }
    };
    std::thread::scope(|scope| {
        let ask = &ask;
        let asking = [0, 1].map(|number| scope.spawn(move || ask(number)));
        let _done = Done(&done);
        for round in 1..=5 {
            behind.weir.signal(Signal::HUP);
            wait_until("reloaded", || {
                behind.weir.stderr().matches("reloaded: ").count() == round
            });
            let before = answers.each_ref().map(|number| number.load(Relaxed));
            wait_until("each has had answers of the next gateway", || {
                let now = answers.each_ref().map(|number| number.load(Relaxed));
                (now.iter().zip(before)).all(|(now, before)| *now > before + 3)
                    || asking.iter().any(|asking| asking.is_finished())
            });
        }
        done.store(true, Relaxed);
        for asked in asking {
            asked.join().expect("all are answered");
        }
    });
}

/// Sets the flag when its scope ends, in whatever way.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_stop_finishes_what_runs_and_closes_what_is_idle() {
    let (mut behind, responder, gate) = gated(1, "", "");
    let mut idle = behind.front();
    gate.admit(1);
    idle.ask(&behind.params("/run.php?idle"), b"").text();
    let mut running = behind.front();
    running.send(request(1, true, &behind.params("/run.php?running"), b""));
    wait_until("it is at work", || responder.running() == 1);
    behind.weir.signal(Signal::TERM);
    idle.expect_closed();
    assert!(running.quiet_for(Duration::from_millis(50)));
    gate.open();
    assert_eq!(running.answer(1).text().1, "/run.php?running");
    running.expect_closed();
    assert_eq!(behind.weir.wait_for_end().code(), Some(0));
}

#[test]
fn scripts_of_other_extensions_do_not_run() {
    let (behind, responder, gate) = gated(1, "limit_extensions = [\".php\"]\n", "");
    gate.open();
    let (head, _) = behind
        .front()
        .ask(&behind.params("/picture.jpg"), b"")
        .text();
    assert!(head.starts_with("Status: 403 Forbidden\r\n"), "{head}");
    let apache = behind.params("/run.php").with(
        "SCRIPT_FILENAME",
        "proxy:fcgi://127.0.0.1:9000//srv/run.php",
    );
    behind.front().ask(&apache, b"").text();
    assert_eq!(responder.uris(), ["/run.php"]);
    behind
        .weir
        .wait_for_error(&["picture.jpg", "limit_extensions"]);
}

#[test]
fn a_socket_has_its_access_control_list() {
    if !weir_test::goes_on_as_root() {
        return;
    }
    let setup = Setup::new();
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("served"));
    let socket = setup.folder().join("acl.sock");
    let lines = format!(
        "[listen.acl]\nprotocol = \"fastcgi\"\naddress = \"unix:{}\"\nmode = \"0600\"\npool = \"app\"\n\
         acl_users = [\"daemon\"]\n",
        socket.display()
    );
    let weir = setup.pool(&responder.pool(1)).more(&lines).start();
    wait_until("the socket is there", || socket.exists());
    weir.wait_for_error(&["FastCGI for pool app", "listen=acl"]);
    let ask_as = |user: &str| {
        Command::new("/usr/bin/setpriv")
            .args([
                "--reuid",
                user,
                "--clear-groups",
                "/usr/bin/cgi-fcgi",
                "-bind",
                "-connect",
            ])
            .arg(&socket)
            .env_clear()
            .env("REQUEST_METHOD", "GET")
            .env("SCRIPT_FILENAME", "/x.php")
            .output()
            .expect("setpriv and cgi-fcgi")
    };
    let allowed = ask_as("daemon");
    assert!(
        String::from_utf8_lossy(&allowed.stdout).ends_with("served"),
        "{allowed:?}"
    );
    let other = ask_as("games");
    assert!(
        !String::from_utf8_lossy(&other.stdout).contains("served"),
        "{other:?}"
    );
    drop(weir);
}

/// Sends records in any order, valid and invalid, cut anywhere. Afterwards weir still serves the next web server.
#[test]
fn no_sequence_of_records_does_any_harm() {
    let (behind, _responder, gate) =
        gated(2, "", "header_timeout = \"1s\"\nbody_timeout = \"1s\"\n");
    gate.open();
    let params = behind.params("/run.php").encoded();
    let piece = |number: u64| -> Vec<u8> {
        let id = 1 + (number >> 8) as u16 % 3;
        match number % 12 {
            0..3 => {
                let begin = [0, 1, (number >> 16) as u8 & 1, 0, 0, 0, 0, 0];
                [
                    record(BEGIN_REQUEST, id, &begin),
                    record(PARAMS, id, &params),
                ]
                .concat()
            }
            3 => record(
                BEGIN_REQUEST,
                id,
                &[0, (number >> 16) as u8, 1, 0, 0, 0, 0, 0],
            ),
            // Each parameter has a different name: the test's worker accepts no name twice.
            4..6 => record(PARAMS, id, format!("\x14\x01{number:020}x").as_bytes()),
            6 => record(PARAMS, id, b""),
            7 => record(STDIN, id, b"x"),
            8 => record(STDIN, id, b""),
            9 => record(ABORT_REQUEST, id, b""),
            10 => record(GET_VALUES, 0, b"\x0f\x00FCGI_MPXS_CONNS"),
            _ => record((number >> 16) as u8, id, &number.to_be_bytes()),
        }
    };
    // xorshift64, so that each run is the same.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..300 {
        let mut front = behind.front();
        let mut bytes: Vec<u8> = (0..random() % 20).flat_map(|_| piece(random())).collect();
        if random() % 4 == 0 {
            bytes.truncate((random() % 60) as usize);
        }
        front.try_send(&bytes);
        // Some clients leave at once, and some wait for the answer.
        if random() % 3 == 0 {
            front.shut();
            while front.record().is_some() {}
        }
    }
    let target = "/run.php?after";
    let (_, body) = behind.front().ask(&behind.params(target), b"").text();
    assert_eq!(body, target);
    assert_eq!(
        behind.weir.get("/run.php?http").expect(200).text(),
        "/run.php?http"
    );
    assert!(
        !behind.weir.stderr().contains("panicked"),
        "{}",
        behind.weir.stderr()
    );
}
