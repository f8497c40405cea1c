//! HTTP/1.1 and 1.0 as clients use it: connections, framing, limits and times.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use weir_test::tcp::{ends, is_read, socket};
use weir_test::weir::request;
use weir_test::{Client, LIMIT, Responder, Setup, Weir, wait_until};

/// A site with a text, and a pool whose worker prints what it got.
fn site() -> (Responder, Setup) {
    let setup = Setup::new()
        .file("text.txt", "a text\n")
        .file("echo.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(format!(
            "{} {}",
            request.param("REQUEST_METHOD"),
            request.stdin.len()
        ))
    });
    let pool = responder.pool(4);
    (responder, setup.pool(&pool))
}

#[test]
fn a_connection_serves_one_request_after_another() {
    let (_responder, setup) = site();
    let weir = setup.start();
    let mut client = weir.client();
    for _ in 0..20 {
        client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().expect(200).text(), "a text\n");
        client.send("GET /echo.php HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().expect(200).text(), "GET 0");
        client.send("POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(client.response().expect(200).text(), "POST 3");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (_responder, setup) = site();
    let weir = setup.file("second.txt", "second").start();
    let mut client = weir.client();
    client.send(
        "GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n\
         POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345\
         HEAD /second.txt HTTP/1.1\r\nHost: a\r\n\r\n\
         POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n\
         GET /second.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(client.response().expect(200).text(), "a text\n");
    assert_eq!(client.response().expect(200).text(), "POST 5");
    assert_eq!(
        client
            .response_to("HEAD")
            .expect(200)
            .header("content-length"),
        Some("6")
    );
    assert_eq!(client.response().expect(200).text(), "POST 2");
    assert_eq!(client.response().expect(200).text(), "second");
    client.expect_closed();
}

#[test]
fn the_beginning_of_a_head_behind_a_request_is_kept() {
    let (_responder, setup) = site();
    let weir = setup.listen("header_timeout = \"6s\"").start();
    let begin = |weir: &Weir| {
        let mut client = weir.client();
        client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /echo");
        assert_eq!(client.response().expect(200).text(), "a text\n");
        // Longer than weir keeps a connection ready that sends nothing.
        assert!(client.quiet_for(Duration::from_millis(1_600)));
        client
    };
    let mut client = begin(&weir);
    client.send(".php HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().expect(200).text(), "GET 0");
    // This is an incomplete head, not an idle connection.
    begin(&weir).response().expect(408);
}

#[test]
fn a_small_body_that_nobody_wants_leaves_the_connection_in_order() {
    let (_responder, setup) = site();
    let weir = setup.start();
    let mut client = weir.client();
    for head in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        for path in ["/text.txt", "/nowhere"] {
            client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n"));
            let body = match head.starts_with("Content") {
                true => "GET /",
                false => "5\r\nGET /\r\n0\r\n\r\n",
            };
            client.send(body);
            let response = client.response();
            assert!(matches!(response.status, 404 | 405), "{response:?}");
            client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response().expect(200).text(), "a text\n");
        }
    }
}

#[test]
fn a_large_body_that_nobody_wants_does_not_drown_the_answer() {
    let (_responder, setup) = site();
    let weir = setup.start();
    for path in ["/text.txt", "/nowhere"] {
        let mut client = weir.client();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n"
        ));
        // Closing a connection with these bytes unread would reset it, and the client would lose the answer (RFC 9112
        // §9.6).
        client.send(vec![b'x'; 4_000_000]);
        let response = client.response();
        assert!(matches!(response.status, 404 | 405), "{response:?}");
        assert_eq!(response.header("connection"), Some("close"));
        client.expect_closed();
    }
}

#[test]
fn the_target_of_the_server_itself_is_for_options_only() {
    let (_responder, setup) = site();
    let weir = setup.start();
    weir.request("GET", "*", &[], b"").expect(400);
    weir.request("OPTIONS", "*", &[], b"").expect(204);
}

#[test]
fn a_client_that_closes_its_side_still_gets_what_needs_no_script() {
    const SIZE: usize = 32 << 20;
    let weir = Setup::new()
        .file("text.txt", "a text")
        .file("large.bin", vec![b'x'; SIZE])
        .start();
    let mut client = weir.client();
    client.send(
        "GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    client
        .stream()
        .shutdown(std::net::Shutdown::Write)
        .expect("shutdown");
    assert_eq!(client.response().expect(200).text(), "a text");
    assert_eq!(client.response().expect(200).body.len(), SIZE);
    client.expect_closed();
    assert_eq!(weir.logged("/large.bin")["bytes_out"], SIZE);
}

#[test]
fn a_request_without_a_host_is_in_the_log_with_what_it_asks_for() {
    let weir = Setup::new().file("text.txt", "a text").start();
    for (query, hosts) in [("none", ""), ("two", "Host: a\r\nHost: b\r\n")] {
        let mut client = weir.client();
        client.send(format!(
            "GET /text.txt?{query} HTTP/1.1\r\n{hosts}\r\nGET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        let response = client.response().expect(400);
        assert_eq!(response.header("connection"), Some("close"));
        client.expect_closed();
        let line = weir.logged(&format!("/text.txt?{query}"));
        assert_eq!(
            (&line["status"], &line["reason"]),
            (&400.into(), &"bad_host".into())
        );
    }
}

#[test]
fn connection_close_is_honoured_and_announced() {
    let weir = Setup::new().file("text.txt", "a text").start();
    let mut client = weir.client();
    client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let response = client.response().expect(200);
    assert_eq!(response.header("connection"), Some("close"));
    client.expect_closed();
}

#[test]
fn http_1_0_closes_unless_it_asks_to_stay() {
    let weir = Setup::new().file("text.txt", "a text").start();
    let mut client = weir.client();
    client.send("GET /text.txt HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().expect(200).text(), "a text");
    client.expect_closed();

    let mut client = weir.client();
    for _ in 0..3 {
        client.send("GET /text.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let response = client.response().expect(200);
        assert_eq!(
            response
                .header("connection")
                .map(str::to_lowercase)
                .as_deref(),
            Some("keep-alive")
        );
    }
}

#[test]
fn http_1_0_never_gets_chunks() {
    let (_responder, setup) = site();
    let weir = setup.start();
    let mut client = weir.client();
    client.send("GET /echo.php HTTP/1.0\r\nHost: a\r\n\r\n");
    let response = client.response().expect(200);
    assert_eq!(response.header("transfer-encoding"), None);
    assert_eq!(response.text(), "GET 0");
    client.expect_closed();
}

#[test]
fn head_has_the_fields_of_get_and_no_body() {
    let setup = Setup::new().file("text.txt", "a text").file("page.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        assert_eq!(request.param("REQUEST_METHOD"), "HEAD");
        // Some programs send a body here although they must not.
        answer.stdout("Content-Type: text/x\r\nContent-Length: 4\r\n\r\nbody");
        answer.end();
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    let mut client = weir.client();
    client.send("HEAD /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response_to("HEAD").expect(200);
    assert_eq!(response.header("content-length"), Some("6"));
    client.send("HEAD /page.php HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response_to("HEAD").expect(200);
    assert_eq!(response.header("content-type"), Some("text/x"));
    // If weir sent a body, this answer would not parse.
    client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().expect(200).text(), "a text");
    client.expect_closed();
}

#[test]
fn a_script_without_a_length_is_answered_in_chunks() {
    let (_responder, setup) = site();
    let weir = setup.start();
    let response = weir.get("/echo.php").expect(200);
    assert!(
        response.header("transfer-encoding") == Some("chunked")
            || response.header("content-length") == Some("5")
    );
    assert_eq!(response.text(), "GET 0");
}

#[test]
fn a_chunked_request_reaches_a_script_with_its_length() {
    let setup = Setup::new().file("echo.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        let told = request.param("CONTENT_LENGTH").to_owned();
        assert_eq!(request.param("HTTP_TRANSFER_ENCODING"), "");
        answer.page(format!(
            "{told} {}",
            String::from_utf8_lossy(&request.stdin)
        ));
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    let mut client = weir.client();
    client.send(
        "POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-After\r\n\r\n\
         5;extension=1\r\nhello\r\n",
    );
    client.send("00006\r\n world\r\n");
    client.send("0\r\nX-After: 1\r\n\r\n");
    assert_eq!(client.response().expect(200).text(), "11 hello world");
}

#[test]
fn expect_100_continue_is_answered_before_the_body_is_sent() {
    let (responder, setup) = site();
    let weir = setup.start();
    let mut client = weir.client();
    client.send(
        "POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(client.head().expect("an interim answer").status, 100);
    assert_eq!(
        responder.running(),
        0,
        "no worker is held for a body that is not there yet"
    );
    client.send("abc");
    assert_eq!(client.response().expect(200).text(), "POST 3");
}

#[test]
fn a_body_that_would_be_refused_is_not_asked_for() {
    let (_responder, setup) = site();
    let weir = setup.site("max_body = \"1K\"").start();
    let mut client = weir.client();
    client.send("POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: 4096\r\nExpect: 100-continue\r\n\r\n");
    let response = client.response();
    assert!(response.interim.is_empty(), "{response:?}");
    response.expect(413);
}

#[test]
fn options_of_the_server_itself_is_answered() {
    let (responder, setup) = site();
    let weir = setup.start();
    let response = weir.request("OPTIONS", "*", &[], b"");
    assert!(matches!(response.status, 200 | 204), "{response:?}");
    assert!(response.body.is_empty());
    assert!(responder.uris().is_empty());
}

#[test]
fn a_method_that_a_file_does_not_know_is_405_with_those_it_does() {
    let weir = Setup::new().file("text.txt", "a text").start();
    for method in ["POST", "DELETE", "BREW"] {
        let response = weir.request(method, "/text.txt", &[], b"").expect(405);
        let allow = response.header("allow").expect("Allow");
        assert!(allow.contains("GET") && allow.contains("HEAD"), "{allow}");
    }
}

#[test]
fn any_method_reaches_a_script() {
    let (_responder, setup) = site();
    let weir = setup.start();
    for method in [
        "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND",
    ] {
        let response = weir.request(method, "/echo.php", &[], b"").expect(200);
        assert_eq!(response.text(), format!("{method} 0"));
    }
}

#[test]
fn a_target_in_absolute_form_is_served() {
    let weir = Setup::new().file("text.txt", "a text").start();
    assert_eq!(
        weir.get("http://elsewhere.example/text.txt")
            .expect(200)
            .text(),
        "a text"
    );
}

#[test]
fn a_head_that_is_too_large_is_431_and_a_target_414() {
    let weir = Setup::new()
        .file("text.txt", "a text")
        .listen("max_head = \"8K\"")
        .start();
    let large = "x".repeat(9000);
    let heads = [
        (
            431,
            format!("GET /text.txt HTTP/1.1\r\nHost: a\r\nX-Large: {large}\r\n\r\n"),
        ),
        (
            431,
            format!(
                "GET /text.txt?{} HTTP/1.1\r\nHost: a\r\nX-Large: {}\r\n\r\n",
                &large[..5000],
                &large[..5000]
            ),
        ),
        (
            431,
            format!(
                "GET /text.txt HTTP/1.1\r\nHost: a\r\n{}\r\n",
                "X-Many: 0123456789\r\n".repeat(450)
            ),
        ),
        // Whole, and without an end.
        (
            414,
            format!("GET /text.txt?{large} HTTP/1.1\r\nHost: a\r\n\r\n"),
        ),
        (414, format!("GET /text.txt?{large}")),
    ];
    for (status, head) in heads {
        let mut client = weir.client();
        client.try_send(&head);
        assert_eq!(client.response().status, status);
        // The body that was sent is not a second request.
        client.expect_closed();
    }
    weir.wait_for_line("log/access.log", &["head_too_large"]);
    weir.wait_for_line("log/access.log", &["target_too_long"]);
    // One that fits is served.
    let fits = "x".repeat(7000);
    weir.request("GET", "/text.txt", &[("X-Large", &fits)], b"")
        .expect(200);
}

#[test]
fn too_many_fields_are_431() {
    let weir = Setup::new()
        .file("text.txt", "a text")
        .listen("max_headers = 20")
        .start();
    let many = |count: usize| {
        let fields = "X: 1\r\n".repeat(count);
        format!("GET /text.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n")
    };
    let mut client = weir.client();
    client.send(many(50));
    client.response().expect(431);
    let mut client = weir.client();
    client.send(many(10));
    client.response().expect(200);
}

#[test]
fn a_body_that_is_too_large_is_413() {
    let (responder, setup) = site();
    let weir = setup.site("max_body = \"100K\"").start();
    // weir refuses at once, without reading the body.
    let mut client = weir.client();
    client.send("POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: 102401\r\n\r\n");
    client.response().expect(413);
    // weir notices this while it reads the body.
    let mut client = weir.client();
    client.send("POST /echo.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("{:x}\r\n{}\r\n", 10_000, "x".repeat(10_000));
    for _ in 0..11 {
        client.try_send(&chunk);
    }
    client.response().expect(413);
    assert!(responder.uris().is_empty(), "no worker has seen them");
    // A body of exactly the limit fits.
    let body = vec![b'x'; 102_400];
    assert_eq!(
        weir.request("POST", "/echo.php", &[], &body)
            .expect(200)
            .text(),
        "POST 102400"
    );
}

#[test]
fn a_head_that_comes_too_slowly_is_408() {
    let weir = Setup::new()
        .file("text.txt", "a text")
        .listen("header_timeout = \"500ms\"")
        .start();
    let mut client = weir.client();
    client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n");
    let began = Instant::now();
    // Sending a field from time to time does not help: the limit is for the whole head, not for a line.
    while began.elapsed() < LIMIT && client.quiet_for(Duration::from_millis(100)) {
        client.try_send("X-Drop: 1\r\n");
    }
    assert!(began.elapsed() < LIMIT, "the head was waited for");
    assert_eq!(client.response().status, 408);
    let line = weir.wait_for_line("log/access.log", &["header_timeout"]);
    assert!(line.contains("408"), "{line}");
}

#[test]
fn http_2_without_asking_is_answered() {
    let weir = Setup::new().file("text.txt", "a text").start();
    let mut client = weir.client();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(client.response().status, 505);
    client.expect_closed();
    weir.wait_for_line("log/access.log", &["http_version"]);
}

#[test]
fn a_body_that_comes_too_slowly_is_408() {
    let (responder, setup) = site();
    let weir = setup.listen("body_timeout = \"500ms\"").start();
    let mut client = weir.client();
    client.send("POST /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    client.response().expect(408);
    client.expect_closed();
    assert!(responder.uris().is_empty(), "no worker has seen it");
    assert_eq!(weir.logged("/echo.php")["status"], 408);
}

#[test]
fn a_kept_connection_that_is_idle_is_closed_in_time() {
    let weir = Setup::new()
        .file("text.txt", "a text")
        .listen("idle_timeout = \"400ms\"")
        .start();
    let mut client = weir.client();
    // The server measures its own time from its answer, which the client may read late.
    let began = Instant::now();
    client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    client.response().expect(200);
    client.expect_closed();
    assert!(
        began.elapsed() >= Duration::from_millis(300),
        "closed after {:?}",
        began.elapsed()
    );
}

#[test]
fn a_client_that_does_not_read_is_cut_off_in_time() {
    let weir = Setup::new().listen("send_timeout = \"500ms\"").start();
    let large = std::fs::File::create(weir.root().join("large.bin")).expect("a file");
    large.set_len(512 << 20).expect("a sparse file");
    let mut client = weir.client();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    // weir writes the line when the exchange is over.
    weir.logged("/large.bin");
    assert!(!client.response().whole);
}

#[test]
fn a_connection_serves_as_many_requests_as_it_may() {
    let weir = Setup::new()
        .file("text.txt", "a text")
        .listen("max_requests_per_connection = 3")
        .start();
    let mut client = weir.client();
    for number in 1..=3 {
        client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.response().expect(200);
        assert_eq!(response.header("connection") == Some("close"), number == 3);
    }
    client.expect_closed();
}

/// Bytes that nobody reads turn the end of a connection into a reset, which may destroy what is on its way.
#[test]
fn a_request_behind_the_last_one_resets_nothing() {
    let setup = Setup::new()
        .file("large.bin", vec![b'x'; 8 << 20])
        .listen("max_requests_per_connection = 1");
    let weir = setup.start();
    for last in ["", "Connection: close\r\n"] {
        let mut client = TcpStream::connect(weir.address()).expect("a connection");
        client.set_read_timeout(Some(LIMIT)).expect("a limit");
        let request = format!("GET /large.bin HTTP/1.1\r\nHost: a\r\n{last}\r\n");
        client.write_all(request.as_bytes()).expect("a request");
        client.read_exact(&mut [0]).expect("an answer");
        // While weir sends, it reads nothing. The kernel keeps this request.
        client.write_all(request.as_bytes()).expect("another one");
        let mut rest = Vec::new();
        let read = client.read_to_end(&mut rest);
        assert!(
            read.is_ok() && rest.len() >= 8 << 20,
            "{read:?} {}",
            rest.len()
        );
    }
}

/// The same after weir has closed its end, while the answer is on its way to a client that reads slowly.
#[test]
fn a_request_after_the_last_answer_resets_nothing() {
    let setup = Setup::new().file("large.bin", vec![b'x'; 256 << 10]);
    let weir = setup.start();
    let request = "GET /large.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut client = weir.client();
    client.send(request);
    let (local, remote) = ends(client.stream());
    wait_until("weir has closed its end", || {
        socket(remote, local).is_some_and(|(state, _)| state == "04")
    });
    for _ in 0..2 {
        client.try_send(request);
        wait_until("weir has read it", || is_read(remote, local));
    }
    let (received, whole) = client.rest();
    assert!(
        whole && received.len() > 256 << 10,
        "{whole} {}",
        received.len()
    );
}

#[test]
fn more_connections_of_one_address_are_closed_at_once() {
    let weir = Setup::new()
        .file("text.txt", "a text")
        .server("max_connections_per_address = 2")
        .start();
    let from = |last: u8| {
        let source = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        let mut client = Client::connect_from(source, weir.address());
        client.try_send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    let mut kept: Vec<Client> = (0..2).map(|_| from(2)).collect();
    for client in &mut kept {
        client.response().expect(200);
    }
    from(2).expect_closed();
    from(3).response().expect(200);
    // A place is free again after its connection has ended.
    kept.pop();
    wait_until("a place is free again", || {
        from(2).head().is_some_and(|head| head.status == 200)
    });
}

#[test]
fn idle_connections_hold_no_worker() {
    let (responder, setup) = site();
    let weir: Weir = setup.start();
    let mut idle: Vec<Client> = (0..50).map(|_| weir.client()).collect();
    for client in &mut idle {
        client.send("GET /echo.php HTTP/1.1\r\nHost: a\r\n\r\n");
        client.response().expect(200);
    }
    assert!(
        responder.most_connections() <= 4,
        "{} connections",
        responder.most_connections()
    );
    let mut client = weir.client();
    client.send(request("GET", "/echo.php", &[], b""));
    client.response().expect(200);
}
