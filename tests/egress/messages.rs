//! Messages that need care because of their framing or their headers: two lengths, `Expect: 100-continue`. Answers that
//! begin before their request is whole.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use weir_test::free_address;
use weir_test::oddity::Oddity;
use weir_test::sidecar::Outward;

/// A caller that waits for `100 Continue` gets it when the origin wants its body, and no earlier.
#[test]
fn a_caller_is_told_to_go_on_only_where_the_origin_will_be_called() {
    let origin = Oddity::plain(|talk| talk.answer_all("fine"));
    let gone = free_address();
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .plain_name("gone.test", gone)
        .usual("max_fails = 1\nretries = 0")
        .start();
    let head = |host: &str, port: u16| {
        format!(
            "POST /{host}:{port}/x HTTP/1.1\r\nHost: weir\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    let mut caller = sidecar.client();
    caller.send(head("api.test", origin.address().port()));
    assert_eq!(caller.head().expect("an interim answer").status, 100);
    caller.send("body");
    assert_eq!(caller.response().expect(200).text(), "fine");
    let asked = origin.asked();
    assert!(
        asked[0].ends_with("body") && !asked[0].to_lowercase().contains("expect"),
        "{asked:?}"
    );
    sidecar
        .get(&format!("/gone.test:{}/", gone.port()))
        .expect(502);
    for host in [
        format!("gone.test:{}", gone.port()),
        "other.test:80".to_owned(),
    ] {
        let (name, port) = host.split_once(':').expect("a port");
        let mut caller = sidecar.client();
        caller.send(head(name, port.parse().expect("a port")));
        let answer = caller.response();
        assert!([503, 403].contains(&answer.status), "{answer:?}");
        assert!(answer.interim.is_empty(), "{answer:?}");
    }
}

/// The bytes after a message with two lengths are not another message. Of a request it is refused (RFC 9112 §6.1).
#[test]
fn a_message_with_two_lengths_ends_its_connection() {
    let origin = Oddity::plain(|talk| {
        while talk.request().is_some() {
            talk.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n");
        }
    });
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .start();
    let path = format!("/api.test:{}", origin.address().port());
    for number in 1..=2 {
        let answer = sidecar.get(&format!("{path}/{number}")).expect(200);
        assert!(answer.whole && answer.text() == "fine", "{answer:?}");
        assert_eq!(origin.connections(), number, "its connection is not kept");
    }
    for lengths in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
    ] {
        let mut caller = sidecar.client();
        caller.send(format!(
            "POST {path}/first HTTP/1.1\r\nHost: weir\r\n{lengths}\r\n\r\n0\r\n\r\n\
             GET {path}/hidden HTTP/1.1\r\nHost: weir\r\n\r\n"
        ));
        let answer = caller.response().expect(400);
        assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
        caller.expect_closed();
    }
    assert_eq!(origin.asked().len(), 2, "neither was asked");
}

/// A caller that is refused while it sends its body can continue to send until it has read the answer: weir does not
/// reset its connection.
#[test]
fn a_refusal_reaches_a_caller_that_still_sends_its_body() {
    let sidecar = Outward::new().allow("\"api.test\"").start();
    for framing in ["Content-Length: 4000000", "Transfer-Encoding: chunked"] {
        let mut caller = sidecar.client();
        caller.send(format!(
            "POST /other.test/x HTTP/1.1\r\nHost: weir\r\n{framing}\r\n\r\n"
        ));
        // More than weir reads with the head, and more than any buffer of the refusal.
        caller.send(format!("F4240\r\n{}", "x".repeat(1_000_000)));
        let mut seen = [0; 1];
        let peeked = caller.stream().peek(&mut seen);
        assert_eq!(peeked.expect("an answer"), 1);
        // The answer is here, so a reset after it would be here too.
        for _ in 0..20 {
            assert!(caller.try_send("x".repeat(10_000)), "{framing}: reset");
        }
        let answer = caller.response().expect(403);
        assert!(answer.text().contains("not_allowed"), "{framing}");
        caller.expect_closed();
    }
}

/// Reads from a stream until what came has this in it.
fn until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut came = Vec::new();
    let mut piece = [0; 65536];
    loop {
        let text = String::from_utf8_lossy(&came);
        if text.contains(wanted) {
            return text.into_owned();
        }
        match stream.read(&mut piece).expect("it is open") {
            0 => panic!("it was closed before {wanted:?}: {text}"),
            count => came.extend_from_slice(&piece[..count]),
        }
    }
}

/// An origin may answer while it reads: neither direction waits for the other. The connection is used again.
#[test]
fn an_answer_may_begin_before_its_request_is_whole_and_both_go_on() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let origin = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        until(&mut stream, "begin");
        let begun = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nbegun, ";
        stream.write_all(begun.as_bytes()).expect("it is open");
        until(&mut stream, "last");
        stream.write_all(b"ended").expect("it is open");
        until(&mut stream, "GET /again");
        let again = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nagain";
        stream.write_all(again.as_bytes()).expect("it is open");
    });
    let sidecar = Outward::new().plain_name("api.test", address).start();
    let mut caller = sidecar.client();
    let path = format!("/api.test:{}", address.port());
    // More than weir reads before it asks the origin.
    let (first, second) = ("x".repeat(100_000), "x".repeat(1_000_000));
    let length = "begin".len() + first.len() + second.len() + "last".len();
    caller.send(format!(
        "POST {path}/ HTTP/1.1\r\nHost: weir\r\nContent-Length: {length}\r\n\r\nbegin{first}"
    ));
    let mut stream = caller.stream().try_clone().expect("a descriptor");
    let answer = until(&mut stream, "begun, ");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    caller.send(second);
    caller.send("last");
    until(&mut stream, "ended");
    let again = sidecar.get(&format!("{path}/again")).expect(200);
    assert_eq!(again.text(), "again");
    origin.join().expect("no panic");
}

/// An origin that refuses a body closes the connection without reading it. Its answer reaches the caller.
#[test]
fn an_origin_s_refusal_of_a_long_body_is_passed_on() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let origin = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        until(&mut stream, "begin");
        let refused = "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 8\r\n\r\ntoo long";
        stream.write_all(refused.as_bytes()).expect("it is open");
        stream.shutdown(Shutdown::Write).expect("it is open");
        // Until weir closes its side.
        let mut rest = [0; 65536];
        while stream.read(&mut rest).is_ok_and(|count| count > 0) {}
    });
    let sidecar = Outward::new().plain_name("api.test", address).start();
    let mut caller = sidecar.client();
    caller.send(format!(
        "POST /api.test:{}/ HTTP/1.1\r\nHost: weir\r\nContent-Length: 10000000\r\n\r\nbegin{}",
        address.port(),
        "x".repeat(100_000)
    ));
    let answer = caller.response().expect(413);
    assert_eq!(answer.text(), "too long");
    drop(caller);
    drop(sidecar);
    origin.join().expect("no panic");
}

/// Trailers go to a caller that says that it takes them, and only to it.
#[test]
fn trailers_reach_a_caller_that_takes_them() {
    let origin = Oddity::plain(|talk| {
        while talk.request().is_some() {
            talk.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\nX-Sum: 42\r\nContent-Length: 1\r\n\r\n");
        }
    });
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .start();
    for (te, end) in [
        (
            "TE: trailers\r\nConnection: te\r\n",
            "0\r\nx-sum: 42\r\n\r\n",
        ),
        ("", "0\r\n\r\n"),
    ] {
        let caller = sidecar.client();
        let mut stream = caller.stream().try_clone().expect("a descriptor");
        let asked = format!(
            "GET /api.test:{}/ HTTP/1.1\r\nHost: weir\r\n{te}\r\n",
            origin.address().port()
        );
        stream.write_all(asked.as_bytes()).expect("it is open");
        let mut came = String::new();
        while !(came.contains("\r\n0\r\n") && came.ends_with("\r\n\r\n")) {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("it is open");
            came.push(char::from(byte[0]).to_ascii_lowercase());
        }
        let end = format!("fine\r\n{end}");
        assert!(came.ends_with(&end), "{te}: {came}");
    }
}

/// Whom a request of HTTP/1.1 without Host is for is not clear (RFC 9112 §3.2).
#[test]
fn a_request_without_a_host_header_is_refused() {
    let origin = Oddity::plain(|talk| talk.answer_all("fine"));
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .start();
    let path = format!("/api.test:{}/", origin.address().port());
    let mut caller = sidecar.client();
    caller.send(format!("GET {path} HTTP/1.1\r\n\r\n"));
    let answer = caller.response().expect(400);
    assert!(answer.text().contains("bad_request"), "{answer:?}");
    assert_eq!(origin.connections(), 0);
    let mut old = sidecar.client();
    old.send(format!("GET {path} HTTP/1.0\r\n\r\n"));
    assert_eq!(old.response().expect(200).text(), "fine");
}
