//! Where a client's messages begin and end, and what their first lines may contain. Where nginx sets the standard, the
//! tests compare with nginx.

use std::io::Write;
use std::time::Duration;

use weir_test::front::WebServer;
use weir_test::{Client, Responder, Response, Setup, Weir, wait_until};

/// A text file, and a script that prints the parameters it got.
fn telling(more: impl Fn(Setup) -> Setup) -> (Weir, Responder) {
    let setup = Setup::new().file("text.txt", "a text").file("run.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(format!(
            "{}|{}|{}|{}",
            request.param("REQUEST_METHOD"),
            request.param("REQUEST_URI"),
            request.param("QUERY_STRING"),
            request.param("PATH_AS_READ"),
        ))
    });
    let pool = responder.pool(2);
    let setup = setup.site("params = { PATH_AS_READ = \"${path}\" }");
    (more(setup).pool(&pool).start(), responder)
}

fn ask(address: std::net::SocketAddr, head: &[u8]) -> Response {
    let mut client = Client::connect(address);
    client.send(head);
    client.response()
}

const CHUNKED: &str =
    "POST /run.php?chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn lines_of_chunks_without_end_are_refused_and_delay_nobody() {
    let (weir, responder) = telling(|setup| setup.server("threads = 1"));
    for (first, again) in [
        ("", "0"),
        ("5", " "),
        ("5", "\t"),
        ("5;", "x"),
        ("5;a=\"", "\\\""),
        ("0\r\nX: ", "y"),
        ("0\r\n", "X: y\r\n"),
        ("", "0000000000000001\r\nx\r\n00000"),
    ] {
        let mut hostile = weir.client();
        hostile.send(CHUNKED).send(first);
        let mut stream = hostile.stream().try_clone().expect("a socket");
        let piece = again.repeat(4000);
        let pump = std::thread::spawn(move || {
            let mut sent = 0;
            while sent < 32 << 20 && stream.write_all(piece.as_bytes()).is_ok() {
                sent += piece.len();
            }
            sent
        });
        for _ in 0..10 {
            assert_eq!(weir.get("/text.txt").expect(200).text(), "a text");
        }
        let sent = pump.join().expect("a sender");
        assert!(sent < 32 << 20, "{sent} bytes of {again:?} were taken");
    }
    assert_eq!(responder.uris(), [""; 0]);
    weir.wait_for_error(&["400 bad_body"]);
}

#[test]
fn bare_line_feeds_in_chunks_and_trailers_are_400() {
    let (weir, responder) = telling(|setup| setup);
    for body in [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\r\n",
        "5\r\nhello\r\n0\r\n\n",
        "5;a=b\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: y\n\r\n",
        "5\r\nhello\r\n0\r\nX: y\n\n",
        "5\r\nhello\r\n0\r\nX: y\r\n\n",
        "5\r\nhello\r\n0\r\nX: y\rZ: z\r\n\r\n",
    ] {
        let mut client = weir.client();
        client.send(format!("{CHUNKED}{body}"));
        assert_eq!(client.response().status, 400, "{body:?}");
        client.expect_closed();
    }
    assert_eq!(responder.uris(), [""; 0]);
    // Correct messages.
    let mut client = weir.client();
    client.send(format!(
        "{CHUNKED}5 ;a=b\r\nhello\r\n000;c\r\nX: y\r\nZ:\r\n\r\nGET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n"
    ));
    client.response().expect(200);
    assert_eq!(client.response().expect(200).text(), "a text");
}

#[test]
fn a_length_and_an_encoding_are_400_whatever_follows() {
    let (weir, responder) = telling(|setup| setup);
    for (length, end) in [("4", "\r\n"), ("0", "\r\n"), ("5", "\n"), ("40", "\n")] {
        // The longer ones have lines that end with a line feed alone, which is refused anyway.
        for order in [true, false] {
            let (length, coding) = (
                format!("Content-Length: {length}{end}"),
                format!("Transfer-Encoding: chunked{end}"),
            );
            let fields = match order {
                true => [length, coding].concat(),
                false => [coding, length].concat(),
            };
            let mut client = weir.client();
            client.send(format!(
                "POST /run.php HTTP/1.1{end}Host: a{end}{fields}{end}0\r\n\r\nGET /run.php HTTP/1.1\r\nHost: a\r\n\r\n"
            ));
            assert_eq!(client.response().status, 400, "{fields:?}");
            client.expect_closed();
        }
    }
    assert_eq!(responder.uris(), [""; 0]);
    weir.wait_for_error(&["400 bad_head: Content-Length and Transfer-Encoding"]);
}

/// Bytes that may or may not be allowed in a target.
fn odd_bytes() -> impl Iterator<Item = Vec<u8>> {
    let one = (1..=255u8).filter(|byte| {
        !byte.is_ascii_alphanumeric() && !matches!(byte, b'\n' | b'/' | b'?' | b'%')
    });
    let several: [&[u8]; 9] = [
        "ä€𝄞".as_bytes(),
        b"\xc3\x28",
        b"\"><",
        b"a b",
        b"%22%ff\xff",
        b"#x?y#z",
        b"\xed\xa0\x80",
        b"{}|\\^`",
        b"=&\"=&",
    ];
    one.map(|byte| vec![byte])
        .chain(several.map(<[u8]>::to_vec))
}

#[test]
fn targets_are_taken_and_told_as_nginx_does() {
    let (weir, _responder) = telling(|setup| setup.site("fallback = \"/run.php\""));
    let nginx = WebServer::nginx(
        weir.folder(),
        "location / { default_type text/plain; return 200 \"$request_method|$request_uri|$args|$uri\"; }",
        "",
    );
    for odd in odd_bytes() {
        for (before, after) in [
            (&b"/a"[..], &b"b"[..]),
            (b"/a?x=", b"y"),
            (b"http://a/a", b"b"),
            (b"http://a?x=", b"y"),
        ] {
            let head = [
                b"GET ",
                before,
                &odd,
                after,
                b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            ]
            .concat();
            let shown = String::from_utf8_lossy(&head).into_owned();
            let theirs = ask(nginx.address(), &head);
            let ours = ask(weir.address(), &head);
            assert_eq!(ours.status, theirs.status, "{shown}");
            if theirs.status != 200 {
                continue;
            }
            let (ours, theirs) = (ours.text(), theirs.text());
            assert_eq!(ours, theirs, "{shown}");
        }
    }
    // The log contains the target as it was received.
    ask(
        weir.address(),
        b"GET /text.txt?\"#\xff HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    )
    .expect(200);
    weir.wait_for_line("log/access.log", &["/text.txt?\\\"#"]);
}

#[test]
fn hosts_that_name_nobody_are_400_as_in_nginx() {
    let (weir, responder) = telling(|setup| setup);
    let nginx = WebServer::nginx(weir.folder(), "location / { return 200 \"ok\"; }", "");
    for host in [
        "", " ", ":80", ":", ".", "..", ".:80", "a..b", "a..", "..a", "a..b:80",
    ] {
        for head in [
            format!("GET /run.php HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
            format!("GET /run.php HTTP/1.0\r\nHost: {host}\r\n\r\n"),
            format!("GET http://{host}/run.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        ] {
            assert_eq!(ask(weir.address(), head.as_bytes()).status, 400, "{head}");
            assert_eq!(ask(nginx.address(), head.as_bytes()).status, 400, "{head}");
        }
    }
    assert_eq!(responder.uris(), [""; 0]);
    for host in ["a", "a.", "A.B:80", "[::1]", "[::1]:80", "127.0.0.1", "a_b"] {
        let head = format!("GET /run.php HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        ask(weir.address(), head.as_bytes()).expect(200);
    }
    // A client that does not know `Host`.
    ask(weir.address(), b"GET /run.php HTTP/1.0\r\n\r\n").expect(200);
}

#[test]
fn methods_in_another_case_or_that_nobody_knows_walk_around_no_rule() {
    let (weir, responder) = telling(|setup| {
        setup.more(
            "[[site.main.route]]\npath = \"/run.php\"\nmethods = [\"POST\", \"DELETE\", \"BREW\"]\ndeny = true\n",
        )
    });
    let status = |method: &str| {
        let head = format!("{method} /run.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        ask(weir.address(), head.as_bytes()).status
    };
    for method in ["POST", "DELETE", "BREW"] {
        assert_eq!(status(method), 403, "{method}");
    }
    for method in [
        "post", "Post", "dELETE", "get", "brew", "G!T", "1", "P0ST", "POST.", "POST~",
    ] {
        assert_eq!(status(method), 400, "{method}");
    }
    for method in ["FOO", "POSTX", "X-POST", "GET_", "PURGE"] {
        assert_eq!(status(method), 501, "{method}");
    }
    assert_eq!(responder.uris(), [""; 0]);
    for method in ["GET", "PUT", "PROPFIND", "VERSION-CONTROL"] {
        assert_eq!(status(method), 200, "{method}");
    }

    // Without such a rule there is nothing to bypass.
    let (weir, _responder) = telling(|setup| setup);
    let head = b"PURGE /run.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(
        ask(weir.address(), head)
            .expect(200)
            .text()
            .starts_with("PURGE|")
    );
}

#[test]
fn an_interim_answer_of_a_pipelined_request_waits_for_the_answer_before_it() {
    let setup = Setup::new().file("run.php", "");
    // Sizes around the capacity of the kernel's buffers: for one of them the remaining piece fits into weir's own buffer.
    let sizes: Vec<usize> = (8..=16).map(|half| half << 19).collect();
    let setup = sizes.iter().fold(setup, |setup, size| {
        setup.file(&format!("{size}.bin"), vec![b'x'; *size])
    });
    let responder = Responder::unix(setup.folder(), |request, answer| {
        let query = request.param("QUERY_STRING");
        if query == "hinted" {
            answer.stdout("Status: 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n");
        }
        match query.parse() {
            Ok(size) => answer.page(vec![b'x'; size]),
            Err(_) => answer.page("a page"),
        }
    });
    let pool = responder.pool(16);
    let weir = setup.pool(&pool).start();
    let mut clients: Vec<(usize, Client)> = Vec::new();
    for (index, &size) in sizes.iter().enumerate() {
        let mut client = weir.client();
        let first = match index % 4 {
            0 | 1 => format!("GET /{size}.bin HTTP/1.1\r\nHost: a\r\n\r\n"),
            2 => format!("POST /run.php?{size} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"),
            _ => format!(
                "POST /run.php?{size} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
            ),
        };
        client.send(format!(
            "{first}GET /run.php?hinted HTTP/1.1\r\nHost: a\r\n\r\n\
             GET /run.php?last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        ));
        clients.push((size, client));
    }
    // Reads nothing until weir could have sent a hint that did not wait for its file. If all hints wait, as they must,
    // the test ends when its time is over.
    std::thread::sleep(Duration::from_millis(700));
    for (size, client) in &mut clients {
        let file = client.response().expect(200);
        assert!(file.interim.is_empty() && file.whole, "{size}");
        assert!(
            file.body == vec![b'x'; *size],
            "something else is between the bytes of {size}"
        );
        for (uri, interim) in [("/run.php?hinted", 1), ("/run.php?last", 0)] {
            let page = client.response().expect(200);
            assert_eq!(
                (page.interim.len(), page.text().as_str()),
                (interim, "a page"),
                "{uri}"
            );
        }
        client.expect_closed();
    }
    let hinted = |uris: Vec<String>| uris.iter().filter(|uri| uri.contains("hinted")).count();
    assert_eq!(hinted(responder.uris()), sizes.len());
}

#[test]
fn requests_in_any_pieces_are_answered_in_order() {
    let (weir, responder) = telling(|setup| setup);
    let mut requests = Vec::new();
    let mut expected = Vec::new();
    for number in 0..12 {
        let uri = format!("/run.php?{number}");
        requests.extend_from_slice(
            match number % 4 {
                0 => format!("GET {uri} HTTP/1.1\r\nHost: a\r\n\r\n"),
                1 => format!("POST {uri} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"),
                2 => format!(
                    "\r\nPOST {uri} HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked \r\n\r\n3;x\r\nhel\r\n2\r\nlo\r\n0\r\nX: y\r\n\r\n"
                ),
                _ => format!("GET {uri} HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "l".repeat(9000)),
            }
            .as_bytes(),
        );
        let method = if matches!(number % 4, 1 | 2) {
            "POST"
        } else {
            "GET"
        };
        expected.push(format!("{method}|{uri}|{number}|/run.php"));
    }
    for piece in [1, 7, 100, 4096, 5000, requests.len()] {
        let before = responder.uris().len();
        let mut client = weir.client();
        let mut sender = client.stream().try_clone().expect("a socket");
        let all = requests.clone();
        let sending = std::thread::spawn(move || {
            for piece in all.chunks(piece) {
                sender.write_all(piece).expect("send");
            }
        });
        for expected in &expected {
            assert_eq!(
                client.response().expect(200).text(),
                *expected,
                "pieces of {piece}"
            );
        }
        sending.join().expect("a sender");
        wait_until("all are counted", || {
            responder.uris().len() == before + expected.len()
        });
    }
}

#[test]
fn the_rest_of_a_head_that_has_begun_is_waited_for_at_a_stop() {
    let (mut weir, _responder) = telling(|setup| setup);
    let mut client = weir.client();
    client.send("GET /run.php?first HTTP/1.1\r\nHost: a\r\n\r\nGET /text.txt HTTP/1.1\r\n");
    client.response().expect(200);
    weir.signal(rustix::process::Signal::TERM);
    wait_until("weir is stopping", || {
        weir.stderr().contains("stop") || Client::connect(weir.address()).is_done()
    });
    client.send("Host: a\r\n\r\n");
    assert_eq!(client.response().expect(200).text(), "a text");
    client.expect_closed();
    weir.wait_for_end();
}
