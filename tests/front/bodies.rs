//! Bodies in both directions: spooled, read ahead, streamed, redirected, and which of them occupy a worker.

use std::time::Duration;

use weir_test::weir::write;
use weir_test::{Gate, Responder, Response, Setup, Weir, wait_until};

/// A site whose `run.php` returns this answer: headers and a body.
fn answering(setup: Setup, answer: impl Into<String>) -> (Weir, Responder) {
    let text = answer.into();
    let responder = Responder::unix(setup.folder(), move |_, answer| {
        answer.stdout(&text);
        answer.end();
    });
    let pool = responder.pool(2);
    (setup.file("run.php", "").pool(&pool).start(), responder)
}

fn ask(weir: &Weir) -> Response {
    weir.get("/run.php")
}

#[test]
fn a_slow_upload_holds_no_worker() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(request.stdin.len().to_string())
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    let mut slow: Vec<_> = (0..10)
        .map(|_| {
            let mut client = weir.client();
            client.send("POST /run.php HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n");
            client.send(vec![b'x'; 200_000]);
            client
        })
        .collect();
    for _ in 0..10 {
        weir.get("/run.php").expect(200);
    }
    assert_eq!(responder.uris().len(), 10);
    for client in &mut slow {
        client.send(vec![b'x'; 100_000]);
        assert_eq!(client.response().expect(200).text(), "300000");
    }
}

#[test]
fn an_upload_that_breaks_off_never_starts_its_script() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(request.stdin.len().to_string())
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    for head in ["Content-Length: 1000", "Transfer-Encoding: chunked"] {
        let mut client = weir.client();
        client.send(format!(
            "POST /run.php?broken HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n10\r\n"
        ));
        client.send("x".repeat(16));
        drop(client);
    }
    let logged = weir.logged("/run.php?broken");
    assert_eq!(
        (&logged["status"], &logged["reason"]),
        (&499.into(), &"client_left".into())
    );
    weir.get("/run.php?next").expect(200);
    assert_eq!(responder.uris(), ["/run.php?next"]);
}

#[test]
fn a_slow_reader_holds_no_worker() {
    const SIZE: usize = 24 << 20;
    let setup = Setup::new()
        .file("run.php", "")
        .site("response_memory = \"64K\"\nmax_response_file = \"64M\"");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        let size = if request.param("QUERY_STRING") == "large" {
            SIZE
        } else {
            10
        };
        answer.page(vec![b'x'; size]);
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    let mut slow = weir.client();
    slow.send("GET /run.php?large HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the worker is asked", || responder.uris().len() == 1);
    // The client has read nothing of the large answer, and its worker is free again.
    for _ in 0..5 {
        weir.get("/run.php").expect(200);
    }
    assert_eq!(slow.response().expect(200).body.len(), SIZE);
}

#[test]
fn what_is_read_ahead_is_bounded() {
    const SIZE: usize = 64 << 20;
    let setup = Setup::new()
        .file("run.php", "")
        .site("response_memory = \"64K\"\nmax_response_file = \"1M\"");
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page(vec![b'x'; SIZE]));
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    let mut slow = weir.client();
    slow.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the worker is asked", || responder.uris().len() == 1);
    // Without the limit, weir would read the whole body in this time.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(responder.running(), 1, "the whole answer was taken");
    assert_eq!(slow.response().expect(200).body.len(), SIZE);
}

#[test]
fn a_client_that_reads_nothing_holds_a_worker_no_longer_than_its_limit() {
    let setup = Setup::new()
        .file("run.php", "")
        .site("response_memory = \"64K\"\nmax_response_file = 0");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(match request.param("QUERY_STRING") {
            "large" => vec![b'x'; 64 << 20],
            _ => b"small".to_vec(),
        });
    });
    let pool = format!("{}request_terminate_timeout = \"3s\"\n", responder.pool(1));
    let weir = setup.pool(&pool).start();
    let mut slow = weir.client();
    slow.send("GET /run.php?large HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the worker is asked", || responder.uris().len() == 1);
    // The request waits in the queue until weir gives up the worker.
    assert_eq!(weir.get("/run.php").expect(200).text(), "small");
    weir.wait_for_error(&["waited for the client until request_terminate_timeout"]);
    let (received, _) = slow.rest();
    assert!(received.len() < 64 << 20 && !received.ends_with(b"0\r\n\r\n"));
    assert_eq!(weir.logged("/run.php?large")["reason"], "truncated");
}

#[test]
fn a_stream_passes_as_it_comes() {
    let heads = [
        ("Content-Type: text/event-stream", ""),
        ("Content-Type: text/plain\r\nX-Accel-Buffering: no", ""),
        ("Content-Type: text/plain", "buffering = false"),
    ];
    for (head, lines) in heads {
        let setup = Setup::new().file("run.php", "").site(lines);
        let gate = Gate::default();
        let shut = gate.clone();
        let responder = Responder::unix(setup.folder(), move |_, answer| {
            answer.stdout(format!("{head}\r\n\r\n"));
            for number in 1..=3 {
                answer.stdout(format!("data: {number}\n\n"));
                shut.pass();
            }
            answer.end();
        });
        let pool = responder.pool(1);
        let weir = setup.pool(&pool).start();
        let mut client = weir.client();
        client.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = client.head().expect("a head before the script ends");
        assert!(
            !answer
                .headers
                .iter()
                .any(|(name, _)| name == "x-accel-buffering"),
            "{answer:?}"
        );
        for number in 1..=3 {
            let mut event = String::new();
            while !event.ends_with("\n\n") {
                event
                    .push_str(&String::from_utf8(client.chunk().expect("an event")).expect("text"));
            }
            assert_eq!(event, format!("data: {number}\n\n"), "{head} {lines}");
            gate.admit(1);
        }
        assert_eq!(client.chunk(), None);
    }
}

#[test]
fn a_client_that_leaves_a_stream_ends_it() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| {
        answer.stdout("Content-Type: text/event-stream\r\n\r\n");
        while !answer.gone() {
            answer.stdout("data: tick\n\n");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    let mut client = weir.client();
    client.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head().expect("a head");
    client.chunk().expect("an event");
    drop(client);
    assert_eq!(weir.logged("/run.php")["reason"], "client_left");
    wait_until("the worker is let go", || responder.running() == 0);
}

#[test]
fn a_script_that_prints_for_ever_is_stopped_some_time_after_its_client_has_left() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| {
        answer.stdout("Content-Type: text/plain\r\n\r\n");
        let much = vec![b'x'; 65_000];
        while !answer.gone() {
            answer.stdout(&much);
        }
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    let mut client = weir.client();
    client.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head().expect("an answer");
    drop(client);
    wait_until("the script is stopped", || responder.running() == 0);
}

#[test]
fn a_local_redirect_is_answered_by_the_other_script() {
    // RFC 3875 §6.2.2
    let setup = Setup::new()
        .file("run.php", "")
        .file("other.php", "")
        .file("text.txt", "a text");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        match request.param("QUERY_STRING") {
            "script" => {
                answer.stdout("Location: /other.php/info?x=y\r\n\r\n");
                answer.end();
            }
            "file" => {
                answer.stdout("Location: /text.txt\r\n\r\n");
                answer.end();
            }
            "loop" => {
                answer.stdout("Location: /run.php?loop\r\n\r\n");
                answer.end();
            }
            "away" => {
                answer.stdout("Location: //elsewhere.example/\r\n\r\n");
                answer.end();
            }
            query => answer.page(format!(
                "{} {} {query} {} {}",
                request.param("SCRIPT_NAME"),
                request.param("PATH_INFO"),
                request.param("REQUEST_METHOD"),
                request.stdin.len()
            )),
        }
    });
    let pool = responder.pool(2);
    let weir = setup.pool(&pool).start();
    let response = weir
        .request("POST", "/run.php?script", &[], b"body")
        .expect(200);
    assert_eq!(response.text(), "/other.php /info x=y GET 0");
    assert_eq!(weir.get("/run.php?file").expect(200).text(), "a text");
    let response = weir.get("/run.php?loop");
    assert!((500..600).contains(&response.status), "{response:?}");
    assert!(
        responder.uris().len() < 40,
        "{} times",
        responder.uris().len()
    );
    // The target is no local path, so the client follows the redirect itself.
    let response = weir.get("/run.php?away");
    assert_eq!(
        (response.status, response.header("location")),
        (302, Some("//elsewhere.example/"))
    );
}

#[test]
fn a_script_that_names_no_path_is_502() {
    for field in ["Location: /a/../../b", "Location: /a%00b"] {
        let (weir, _responder) = answering(Setup::new(), format!("{field}\r\n\r\n"));
        let response = ask(&weir);
        assert_eq!(response.status, 502, "{field}: {response:?}");
        weir.wait_for_error(&["bad_response", "not a path"]);
    }
}

#[test]
fn an_absolute_location_without_a_status_is_302() {
    let (weir, _responder) =
        answering(Setup::new(), "Location: https://elsewhere.example/\r\n\r\n");
    assert_eq!(
        ask(&weir).expect(302).header("location"),
        Some("https://elsewhere.example/")
    );
}

#[test]
fn a_location_with_a_status_is_the_clients() {
    let (weir, _responder) = answering(
        Setup::new(),
        "Status: 303 See Other\r\nLocation: /next\r\n\r\n",
    );
    assert!(
        ask(&weir)
            .expect(303)
            .header("location")
            .expect("Location")
            .ends_with("/next")
    );
    let (weir, _responder) = answering(
        Setup::new(),
        "Status: 201 Created\r\nLocation: /new\r\nContent-Type: text/plain\r\n\r\nnew",
    );
    assert_eq!(ask(&weir).expect(201).text(), "new");
}

#[test]
fn early_hints_come_before_the_answer() {
    let setup = Setup::new().file("run.php", "");
    let (responder, gate) = Responder::hinting(setup.folder());
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    let mut client = weir.client();
    client.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
    let hints = client.head().expect("hints");
    assert_eq!(hints.status, 103);
    assert!(
        hints
            .headers
            .contains(&("link".to_owned(), "</style.css>; rel=preload".to_owned())),
        "{hints:?}"
    );
    gate.open();
    let response = client.response().expect(200);
    assert_eq!(response.text(), "the page");
    assert!(response.interim.is_empty());
    // An HTTP/1.0 client does not know interim answers (RFC 9110 §15.2).
    let mut client = weir.client();
    client.send("GET /run.php HTTP/1.0\r\n\r\n");
    assert!(client.response().expect(200).interim.is_empty());
}

/// A file outside the root, and a site that serves it by X-Accel-Redirect and X-Sendfile.
fn protected() -> Setup {
    let setup = Setup::new().file("open.txt", "open");
    let folder = setup.folder().display().to_string();
    write(&setup.folder().join("protected/file.txt"), b"0123456789");
    write(&setup.folder().join("secret.txt"), b"secret");
    setup.site(&format!(
        "accel_redirect = {{ \"/protected/\" = \"{folder}/protected\" }}\nsendfile_dirs = [\"{folder}/protected\"]"
    ))
}

#[test]
fn a_script_may_hand_out_a_file() {
    for kind in [
        "X-Accel-Redirect: /protected/file.txt",
        "X-Sendfile: FOLDER/protected/file.txt",
    ] {
        let setup = protected();
        let field = kind.replace("FOLDER", &setup.folder().display().to_string());
        let answer = format!(
            "{field}\r\nContent-Type: text/x-own\r\nX-Own: 1\r\nContent-Length: 3\r\n\r\nnot"
        );
        let (weir, responder) = answering(setup, answer);
        let response = ask(&weir).expect(200);
        assert_eq!(response.text(), "0123456789", "{kind}");
        assert_eq!(response.header("content-type"), Some("text/x-own"));
        assert_eq!(response.header("x-own"), Some("1"));
        assert_eq!(
            (
                response.header("x-sendfile"),
                response.header("x-accel-redirect")
            ),
            (None, None)
        );
        // The answer is a file now, and weir treats it like any file.
        let part = weir
            .request("GET", "/run.php", &[("Range", "bytes=2-4")], b"")
            .expect(206);
        assert_eq!(part.text(), "234");
        wait_until("the workers are free", || responder.running() == 0);
        assert_eq!(
            weir.get("/protected/file.txt").status,
            404,
            "only through a script"
        );
    }
}

#[test]
fn a_file_handed_out_after_a_post_is_sent_whatever_the_client_has() {
    for kind in [
        "X-Accel-Redirect: /protected/file.txt",
        "X-Sendfile: FOLDER/protected/file.txt",
        "Location: /open.txt",
    ] {
        let setup = protected();
        let field = kind.replace("FOLDER", &setup.folder().display().to_string());
        let (weir, _responder) = answering(setup, format!("{field}\r\n\r\n"));
        let etag = weir.get("/run.php").expect(200);
        let etag = etag.header("etag").expect("a tag").to_owned();
        let fields = [
            ("If-None-Match", etag.as_str()),
            ("If-None-Match", "*"),
            ("If-Match", "\"another\""),
            ("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT"),
            ("If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:01 GMT"),
            ("Range", "bytes=1-2"),
        ];
        for field in fields {
            // The script has already done its work.
            let done = weir.request("POST", "/run.php", &[field], b"x").expect(200);
            assert!(
                done.whole && done.body.len() >= 4,
                "{kind} {field:?}: {done:?}"
            );
        }
        weir.request("GET", "/run.php", &fields[..1], b"")
            .expect(304);
        let head = weir.request("HEAD", "/run.php", &[], b"").expect(200);
        assert!(head.header("content-length").is_some(), "{kind}: {head:?}");
    }
}

#[test]
fn a_script_may_hand_out_no_other_file() {
    let fields = [
        "X-Accel-Redirect: /protected/../secret.txt",
        "X-Accel-Redirect: /protected/%2e%2e/secret.txt",
        "X-Accel-Redirect: FOLDER/secret.txt",
        "X-Accel-Redirect: /protected/link.txt",
        "X-Sendfile: FOLDER/secret.txt",
        "X-Sendfile: FOLDER/protected/../secret.txt",
        "X-Sendfile: FOLDER/protectedness.txt",
        "X-Sendfile: ../secret.txt",
        "X-Sendfile: FOLDER/protected/link.txt",
    ];
    for field in fields {
        let setup = protected();
        write(&setup.folder().join("protectedness.txt"), b"secret");
        std::os::unix::fs::symlink("../secret.txt", setup.folder().join("protected/link.txt"))
            .expect("symlink");
        let field = field.replace("FOLDER", &setup.folder().display().to_string());
        let (weir, _responder) = answering(
            setup,
            format!("{field}\r\nContent-Type: text/plain\r\n\r\n"),
        );
        let response = ask(&weir);
        assert!(response.status >= 400, "{field}: {response:?}");
        assert!(!response.text().contains("secret"), "{field}");
        assert_eq!(
            (
                response.header("x-sendfile"),
                response.header("x-accel-redirect")
            ),
            (None, None)
        );
    }
}

#[test]
fn fields_of_the_connection_are_not_the_scripts() {
    let answer = "Content-Type: text/plain\r\nConnection: close\r\nKeep-Alive: timeout=99\r\nTransfer-Encoding: chunked\r\nUpgrade: x\r\n\r\nbody";
    let (weir, _responder) = answering(Setup::new(), answer);
    let mut client = weir.client();
    for _ in 0..2 {
        client.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.response().expect(200);
        assert_eq!(response.text(), "body");
        assert_eq!(
            (
                response.header("keep-alive"),
                response.header("upgrade"),
                response.header("connection")
            ),
            (None, None, None)
        );
    }
}

#[test]
fn a_header_with_bare_newlines_is_understood() {
    let (weir, _responder) = answering(
        Setup::new(),
        "Status: 404 Not Found\nContent-Type: text/plain\n\nbody\r\n\r\nmore",
    );
    assert_eq!(ask(&weir).expect(404).text(), "body\r\n\r\nmore");
}

#[test]
fn an_answer_in_single_bytes_is_understood() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| {
        for byte in
            b"Status: 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nbody"
        {
            answer.stdout([*byte]);
        }
        answer.end();
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    assert_eq!(ask(&weir).expect(201).text(), "body");
}
