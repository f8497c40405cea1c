//! A connection of HTTP/2 on which a proxy in front sends the requests of many clients: what one of them does, the others do not notice.

use std::net::SocketAddr;
use std::thread;

use weir_test::front::WebServer;
use weir_test::http2::{
    CANCEL, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, Http2,
    PROTOCOL_ERROR, RST_STREAM, block, frame, usual,
};
use weir_test::{Client, Gate, Responder, Setup, Weir, wait_until};

/// A site whose scripts wait for a gate, except those that are asked for with `?now`, and print who the client is.
fn site(server: &str, listen: &str) -> (Responder, Weir, Gate) {
    let setup = Setup::new()
        .file("run.php", "")
        .file("text.txt", "a text\n")
        .admin()
        .server(server)
        .listen(&format!("http2 = \"clear\"\n{listen}"));
    let gate = Gate::default();
    let shut = gate.clone();
    let responder = Responder::unix(setup.folder(), move |request, answer| {
        if request.param("QUERY_STRING") != "now" {
            shut.pass();
        }
        answer.page(format!(
            "{} {}",
            request.param("REMOTE_ADDR"),
            request.stdin.len()
        ));
    });
    let pool = responder.pool(16);
    (responder, setup.pool(&pool).start(), gate)
}

/// HAProxy, which sends everything over as few connections as possible.
fn haproxy(weir: &Weir) -> WebServer {
    let sections = format!(
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
         frontend clients\n  bind ADDRESS\n  option accept-invalid-http-request\n  default_backend weir\n\
         backend weir\n  http-reuse always\n  option forwardfor\n  server weir {} proto h2 pool-max-conn 1\n",
        weir.address()
    );
    WebServer::haproxy(weir.folder(), &sections)
}

/// Sends a request, and returns the status of its answer and the body.
fn ask(address: SocketAddr, request: &[u8]) -> (u16, String) {
    let mut client = Client::connect(address);
    client.send(request);
    let answer = client.response();
    (answer.status, answer.text())
}

#[test]
fn what_one_client_of_haproxy_sends_ends_no_request_of_others() {
    let (_responder, weir, gate) = site("trusted = [\"127.0.0.1\"]", "");
    let haproxy = haproxy(&weir);
    let address = haproxy.address();
    thread::scope(|scope| {
        let others: Vec<_> = (0..6)
            .map(|_| scope.spawn(move || ask(address, b"GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n")))
            .collect();
        wait_until("six run", || weir.busy_and_waiting() == (6, 0));
        let connections = weir.status()["connections"]["now"].clone();
        let mut refused = 0;
        for bad in [
            &b"GET /text.txt HTTP/1.1\r\nHost: a\r\nX-A: a\x01b\r\n\r\n"[..],
            b"GET /text.txt HTTP/1.1\r\nHost: a\r\nX-A: a\x7fb\r\n\r\n",
            b"GET /text\xff.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /text\x02.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /text\"<>.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /text.txt HTTP/1.1\r\nHost: a\r\nX-A: \x1b[0m\r\n\r\n",
            b"GET /text.txt HTTP/1.1\r\nHost: a\r\nX-A: a\0b\r\n\r\n",
            b"GET /text.txt HTTP/1.1\r\nHost: a b\r\n\r\n",
        ] {
            let (status, _) = ask(address, bad);
            assert!(status >= 400, "{status}: {}", bad.escape_ascii());
            refused += u32::from(status == 502);
        }
        // HAProxy passes some of these requests on, and answers 502 when weir resets their streams.
        assert!(refused >= 2, "{refused}");
        let (status, _) = ask(address, b"GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(status, 200);
        assert_eq!(weir.status()["connections"]["now"], connections);
        gate.open();
        for other in others {
            let (status, text) = other.join().expect("a client");
            assert_eq!((status, &text[..]), (200, "127.0.0.1 0"));
        }
    });
}

/// A field without compression.
fn raw(name: &[u8], value: &[u8]) -> Vec<u8> {
    let (name_length, value_length) = (name.len() as u8, value.len() as u8);
    [&[0, name_length][..], name, &[value_length], value].concat()
}

#[test]
fn a_malformed_request_among_others_is_reset_alone() {
    let (_responder, weir, gate) = site("", "");
    let mut client = Http2::connect(weir.address(), &[]);
    client.head(1, &usual("POST", "/run.php"), false);
    client.get(3, "/run.php", &[]);
    wait_until("they run", || weir.busy_and_waiting().0 >= 1);
    let get = |path: &[u8]| {
        let usual = block(&[(":method", "GET"), (":scheme", "http"), (":authority", "a")]);
        [usual, raw(b":path", path)].concat()
    };
    let with = |name: &[u8], value: &[u8]| [get(b"/text.txt"), raw(name, value)].concat();
    let heads = [
        with(b"x", b"a\x01b"),
        with(b"x", b"a\0b"),
        with(b"x", b"a\nb"),
        with(b"x", b"a\rb"),
        with(b"x", b"\x7f"),
        with(b"x", b" a"),
        with(b"x", b"a "),
        with(b"x", b"a\t"),
        with(b"X-Upper", b"a"),
        with(b"x y", b"a"),
        with(b"\xff", b"a"),
        with(b"", b"a"),
        with(b"x\0", b"a"),
        with(b"x:", b"a"),
        with(b":x", b"a"),
        with(b":path", b"/"),
        get(b"/\xff"),
        get(b"/\0"),
        get(b"/a\nb"),
        get(b"/a b"),
        get(b"a"),
        get(b""),
        block(&[(":scheme", "http"), (":authority", "a"), (":path", "/")]),
        [get(b"/"), raw(b":authority", b"b")].concat(),
    ];
    let mut stream = 5;
    for head in &heads {
        client.frame(HEADERS, END_HEADERS | END_STREAM, stream, head);
        assert_eq!(
            client.answer(stream).reset,
            Some(PROTOCOL_ERROR),
            "{head:?}"
        );
        stream += 2;
    }
    // Fields behind a body.
    for field in [
        raw(b":method", b"GET"),
        raw(b"x", b"a\x01"),
        raw(b"x", b" "),
        raw(b"X", b"a"),
        raw(b"connection", b"close"),
    ] {
        let parts = [
            frame(
                HEADERS,
                END_HEADERS,
                stream,
                &block(&usual("POST", "/run.php?now")),
            ),
            frame(DATA, 0, stream, b"abc"),
            frame(HEADERS, END_HEADERS | END_STREAM, stream, &field),
        ];
        client.raw(&parts.concat());
        assert_eq!(
            client.answer(stream).reset,
            Some(PROTOCOL_ERROR),
            "{field:?}"
        );
        stream += 2;
    }
    // The table that heads refer to is still the same on both sides.
    let kept = [&[0x40, 1][..], b"x", &[1], b"y"].concat();
    let head = [get(b"/text.txt"), kept, raw(b"Bad", b"")].concat();
    client.frame(HEADERS, END_HEADERS | END_STREAM, stream, &head);
    assert_eq!(client.answer(stream).reset, Some(PROTOCOL_ERROR));
    let head = [get(b"/text.txt"), vec![0xbe]].concat();
    client.frame(HEADERS, END_HEADERS | END_STREAM, stream + 2, &head);
    assert_eq!(client.answer(stream + 2).body, b"a text\n");
    gate.open();
    assert_eq!(client.answer(3).body, b"127.0.0.1 0");
    client.frame(DATA, END_STREAM, 1, b"abc");
    assert_eq!(client.answer(1).body, b"127.0.0.1 3");
}

#[test]
fn a_preface_that_is_none_is_answered() {
    let (_responder, weir, _gate) = site("", "");
    // Bytes that only HTTP/2 begins with.
    for begin in [
        &b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX",
    ] {
        let mut client = Http2::connect_with(weir.address(), begin);
        assert_eq!(client.went_away(), Some(PROTOCOL_ERROR));
    }
    // Others are those of HTTP/1.
    for begin in [
        &b"PRI * HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"PRI / HTTP/2.0\r\n\r\n",
        b"INVALID\r\n\r\n",
    ] {
        let (status, _) = ask(weir.address(), begin);
        assert!((400..=505).contains(&status), "{status}");
    }
    let mut client = Http2::connect(weir.address(), &[]);
    client.get(1, "/text.txt", &[]);
    assert_eq!(client.answer(1).body, b"a text\n");
    client.raw(&frame(GOAWAY, 0, 0, &[0; 8]));
    client.get(3, "/text.txt", &[]);
    assert_eq!(client.answer(3).body, b"a text\n");
}

/// Sends a GET for a visitor of a proxy.
fn get_for(client: &mut Http2, stream: u32, visitor: &str, path: &str) {
    client.get(stream, path, &[("x-forwarded-for", visitor)]);
}

#[test]
fn a_visitor_of_a_proxy_who_resets_too_much_is_refused_alone() {
    let (responder, weir, gate) = site("trusted = [\"127.0.0.1\"]", "http2_max_resets = 20");
    let mut client = Http2::connect(weir.address(), &[]);
    get_for(&mut client, 1, "192.0.2.1", "/run.php");
    get_for(&mut client, 3, "192.0.2.2", "/run.php");
    wait_until("they run", || weir.busy_and_waiting() == (2, 0));
    // Some are reset before they begin, others when they run.
    let mut stream = 5;
    for number in 0..60 {
        get_for(&mut client, stream, "192.0.2.9", "/run.php?aborted");
        if number < 2 {
            wait_until("it runs", || weir.busy_and_waiting().0 >= 3 + number);
        }
        client.frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
        stream += 2;
    }
    get_for(&mut client, stream, "192.0.2.9", "/text.txt?refused");
    assert_eq!(client.answer(stream).statuses, [0], "429");
    weir.wait_for_line("log/access.log", &["too_many_resets", "429"]);
    // Other clients may begin requests, and running requests go on.
    get_for(&mut client, stream + 2, "192.0.2.1", "/text.txt");
    assert_eq!(client.answer(stream + 2).body, b"a text\n");
    gate.open();
    get_for(&mut client, stream + 4, "192.0.2.3", "/run.php?now");
    let mut bodies = Vec::new();
    while bodies.len() < 3 {
        let frame = client.expect(DATA);
        bodies.extend((!frame.payload.is_empty()).then_some(frame.payload));
    }
    bodies.sort();
    assert_eq!(bodies, [b"192.0.2.1 0", b"192.0.2.2 0", b"192.0.2.3 0"]);
    let aborted = responder
        .uris()
        .into_iter()
        .filter(|uri| uri.ends_with("aborted"));
    assert!(aborted.count() <= 20, "a refused request was begun");
}

#[test]
fn what_runs_is_answered_when_a_connection_has_reset_too_much() {
    // A proxy that is not trusted, or a client itself: nobody tells which client sent a request.
    let (_responder, weir, gate) = site("", "http2_max_resets = 20");
    let mut client = Http2::connect(weir.address(), &[]);
    client.head(1, &usual("POST", "/run.php"), false);
    get_for(&mut client, 3, "192.0.2.2", "/run.php");
    wait_until("one runs", || weir.busy_and_waiting().0 >= 1);
    let mut stream = 5;
    for _ in 0..30 {
        get_for(&mut client, stream, "192.0.2.9", "/text.txt?aborted");
        client.frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
        stream += 2;
    }
    let end = client.expect(GOAWAY);
    assert_eq!(end.error(), Some(ENHANCE_YOUR_CALM));
    weir.wait_for_error(&["http2_max_resets"]);
    // Streams that come now are not served. GOAWAY says so: its last stream is an earlier one.
    client.get(stream, "/text.txt?late", &[]);
    let last = u32::from_be_bytes(end.payload[..4].try_into().expect("four bytes"));
    assert!((45..stream).contains(&last), "{last}");
    gate.open();
    assert_eq!(client.answer(3).body, b"127.0.0.1 0");
    client.frame(DATA, END_STREAM, 1, b"abc");
    assert_eq!(client.answer(1).body, b"127.0.0.1 3");
    while client.receive().is_some() {}
    assert!(!weir.read("log/access.log").contains("late"));
}
