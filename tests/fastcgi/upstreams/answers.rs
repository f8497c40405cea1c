//! What a client gets of a server's answer.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use weir_test::{Setup, wait_until};

use super::{Server, pool, start};

#[test]
fn each_framing_of_a_body_arrives_whole() {
    let server = Server::start(|request, stream| {
        let path = request.line.split(' ').nth(1).unwrap_or_default();
        let (answer, goes_on) = match path {
            "/length" => ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true),
            "/chunks" => (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nT: x\r\n\r\n",
                true,
            ),
            "/close" => ("HTTP/1.1 200 OK\r\n\r\nhello", false),
            "/old" => ("HTTP/1.0 200 OK\r\n\r\nhello", false),
            "/empty" => ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true),
            "/none" => ("HTTP/1.1 204 No Content\r\n\r\n", true),
            "/same" => ("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n", true),
            "/head" => ("HTTP/1.1 200 OK\r\nContent-Length: 7000\r\n\r\n", true),
            "/teapot" => (
                "HTTP/1.1 418 Short and stout\r\nContent-Length: 3\r\n\r\ntea",
                true,
            ),
            _ => ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", true),
        };
        stream.write_all(answer.as_bytes()).is_ok() && goes_on
    });
    let weir = start(&[&server], "");
    // All over one connection of the client.
    let mut client = weir.client();
    let mut get = |method: &str, path: &str| {
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.response_to(method)
    };
    for path in ["/length", "/chunks", "/close", "/old"] {
        let answer = get("GET", path).expect(200);
        assert_eq!(
            (answer.text().as_str(), answer.whole),
            ("hello", true),
            "{path}"
        );
    }
    assert_eq!(get("GET", "/empty").expect(200).body, b"");
    assert!(
        get("GET", "/none")
            .expect(204)
            .all("content-length")
            .is_empty()
    );
    assert_eq!(
        get("GET", "/same").expect(304).header("etag"),
        Some("\"a\"")
    );
    assert_eq!(
        get("HEAD", "/head").expect(200).header("content-length"),
        Some("7000")
    );
    assert_eq!(get("GET", "/teapot").expect(418).text(), "tea");
    assert_eq!(get("GET", "/length").expect(200).text(), "hello");
}

#[test]
fn fields_are_passed_on_except_those_of_the_connection() {
    let server = Server::of(
        "HTTP/1.1 200 OK\r\nServer: secret/1\r\nX-Powered-By: test\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\
         Connection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\nX-Hop: 1\r\nProxy-Authenticate: Basic\r\n\
         Alt-Svc: h3=\":443\"\r\nStatus: 500\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nLocation: /x\r\n\
         Content-Length: 2\r\n\r\nok",
    );
    let weir = start(&[&server], "");
    let answer = weir.get("/").expect(200);
    assert_eq!(answer.text(), "ok");
    assert_eq!(answer.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(answer.all("server"), ["weir"]);
    assert_eq!(answer.all("date"), ["Thu, 01 Jan 2026 00:00:00 GMT"]);
    assert_eq!(answer.header("location"), Some("/x"));
    assert_eq!(answer.header("status"), Some("500"));
    assert_eq!(answer.header("x-powered-by"), Some("test"));
    for name in ["x-hop", "keep-alive", "proxy-authenticate", "alt-svc"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
}

#[test]
fn early_hints_come_before_the_answer() {
    let server = Server::of(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let weir = start(&[&server], "");
    let answer = weir.get("/").expect(200);
    let early: Vec<u16> = answer.interim.iter().map(|head| head.status).collect();
    assert_eq!(early, [103]);
    let link = ("link".to_owned(), "</a.css>; rel=preload".to_owned());
    assert!(answer.interim[0].headers.contains(&link));
}

/// A client that reads slowly does not hold the connection: a limit of one request at once, and the next one is served.
#[test]
fn a_long_answer_is_read_ahead_and_arrives_as_it_was() {
    const SIZE: usize = 20_000_000;
    let body = |index: usize| (index / 7) as u8;
    let server = Server::start(move |request, stream| {
        if !request.line.starts_with("GET /long") {
            return stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .is_ok();
        }
        let bytes: Vec<u8> = (0..SIZE).map(body).collect();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&bytes).is_ok()
    });
    let weir = start(&[&server], "queue.maxconn = 1");
    let mut slow = weir.client();
    slow.send("GET /long HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(weir.get("/short").expect(200).text(), "ok");
    let answer = slow.response().expect(200);
    assert!(answer.whole);
    assert!(answer.body == (0..SIZE).map(body).collect::<Vec<u8>>());
}

#[test]
fn events_are_passed_on_at_once() {
    let goes_on = Arc::new(AtomicBool::new(false));
    let waits = goes_on.clone();
    let server = Server::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("a head");
        stream.write_all(b"9\r\ndata: 1\n\n\r\n").expect("an event");
        while !waits.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        stream.write_all(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n").is_ok()
    });
    let weir = start(&[&server], "");
    let mut client = weir.client();
    client.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head().expect("a head");
    assert_eq!(head.status, 200);
    // The second event is not sent before the first one is here.
    assert_eq!(client.chunk().expect("an event"), b"data: 1\n\n");
    goes_on.store(true, Ordering::SeqCst);
    assert_eq!(client.chunk().expect("an event"), b"data: 2\n\n");
    assert!(client.chunk().is_none(), "the end");
}

/// Many clients may have an event stream for hours: it takes no place of the pool, and may be silent.
#[test]
fn an_event_stream_takes_no_place_of_the_pool() {
    let server = Server::start(|request, stream| {
        if request.line.starts_with("GET /events") {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
            stream.write_all(head.as_bytes()).expect("a head");
            thread::park();
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .is_ok()
    });
    let weir = start(&[&server], "queue.maxconn = 1\nread_timeout = \"200ms\"");
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = weir.client();
        client.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().expect("a head").status, 200);
        assert_eq!(client.chunk().expect("an event"), b"data: 1\n\n");
        clients.push(client);
    }
    assert_eq!(weir.get("/other").expect(200).text(), "ok");
    // Longer than `read_timeout`.
    assert!(clients[0].quiet_for(Duration::from_millis(600)));
}

/// A client that leaves an endless stream ends it at the server, too.
#[test]
fn a_stream_ends_when_its_client_leaves() {
    let ended = Arc::new(AtomicBool::new(false));
    let note = ended.clone();
    let server = Server::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("a head");
        while stream.write_all(b"data: x\n\n").is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
        note.store(true, Ordering::SeqCst);
        false
    });
    let weir = start(&[&server], "");
    let mut client = weir.client();
    client.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().expect("a head").status, 200);
    drop(client);
    wait_until("the server's connection is closed", || {
        ended.load(Ordering::SeqCst)
    });
}

#[test]
fn a_server_can_name_a_file_that_weir_sends() {
    let server = Server::of(
        "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /protected/a.txt\r\nContent-Type: text/x-own\r\nContent-Length: 0\r\n\r\n",
    );
    let setup = Setup::new().file("../private/a.txt", "a file");
    let folder = setup.path("private").display().to_string();
    let setup = setup.site(&format!(
        "accel_redirect = {{ \"/protected/\" = \"{folder}\" }}"
    ));
    let weir = setup.pool(&pool(&[&server], "")).start();
    let answer = weir.get("/download").expect(200);
    assert_eq!(answer.text(), "a file");
    assert!(
        answer
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("text/x-own"))
    );
}
