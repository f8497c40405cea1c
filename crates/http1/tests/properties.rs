//! Properties that hold for every message and every sequence of bytes.

#[allow(dead_code, unreachable_pub, reason = "shared with other tests")]
mod checks;

use checks::{Message, requests, responses};
use proptest::{collection::vec, prelude::*};
use weir_http1::{Limits, Method, RequestHead, client, server};

/// Small limits, so that generated messages reach them.
const LIMITS: Limits = Limits {
    head: 300,
    fields: 6,
    chunk_extensions: 12,
};

/// Good and bad parts of messages. A sequence of them is often almost a message.
const PARTS: &[&str] = &[
    "GET ",
    "POST ",
    "HEAD ",
    "CONNECT ",
    "OPTIONS ",
    "/",
    "/a?b",
    "*",
    "http://h/x",
    "h:1",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    " HTTP/2.0\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 100 C\r\n",
    "HTTP/1.1 204 N\r\n",
    "HTTP/1.0 304 N\r\n",
    "Host: h\r\n",
    "Host:h\n",
    "Content-Length: 5\r\n",
    "content-length:0\r\n",
    "Content-Length: 5, 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "X-Y: z\r\n",
    "X : y\r\n",
    " folded\r\n",
    "\r\n",
    "\n",
    "\r",
    "\0",
    ":",
    " ",
    "\t",
    "hello",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "0\r\nT: r\r\n\r\n",
    "5;ext=1\r\nhello\r\n",
    "a\r\n",
    "00000000000000000000",
    "\u{16}\u{3}",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

fn wire() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        20 => prop::sample::select(PARTS).prop_map(|part| part.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..20),
    ];
    vec(part, 0..30).prop_map(|parts| parts.concat())
}

/// Method, fields, body, whether its length is told.
type Request = (String, Vec<(String, String)>, Option<Vec<u8>>, bool);

fn whole_request() -> impl Strategy<Value = Request> {
    let method = prop::sample::select(&["GET", "POST", "PUT", "PURGE", "get"][..]);
    let field = ("X-[A-Za-z0-9_.!-]{1,9}", "([!-~]([ -~\t]{0,20}[!-~])?)?");
    (
        method,
        vec(field, 0..5),
        prop::option::of(vec(any::<u8>(), 0..300)),
        any::<bool>(),
    )
        .prop_map(|(method, fields, body, chunked)| (method.to_owned(), fields, body, chunked))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 500 } else { 5000 }))]

    #[test]
    fn requests_are_the_same_however_they_are_cut(wire in wire(), cuts in vec(1..40_usize, 1..6)) {
        let (whole, error) = requests(&wire, &[], LIMITS);
        let (cut, cut_error) = requests(&wire, &cuts, LIMITS);
        // If a message has two errors, the parser reports the one that it sees first.
        prop_assert_eq!(error.is_some(), cut_error.is_some(), "{:?} {:?}", error, cut_error);
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn responses_are_the_same_however_they_are_cut(
        wire in wire(),
        cuts in vec(1..40_usize, 1..6),
        methods in vec(prop::sample::select(&[Method::Get, Method::Head, Method::Connect][..]), 1..4),
    ) {
        let (whole, error) = responses(&wire, &[], &methods, LIMITS);
        let (cut, cut_error) = responses(&wire, &cuts, &methods, LIMITS);
        prop_assert_eq!(error.is_some(), cut_error.is_some(), "{:?} {:?}", error, cut_error);
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn a_request_is_read_as_it_was_written(
        all in vec(whole_request(), 1..4),
        cuts in vec(1..200_usize, 1..6),
    ) {
        let (mut wire, mut expected) = (Vec::new(), Vec::new());
        for (method, fields, body, chunked) in all {
            let length = match (&body, chunked) {
                (None, _) => Some(0),
                (Some(_), true) => None,
                (Some(body), false) => Some(body.len() as u64),
            };
            let mut head = client::request(&mut wire, &method, b"/x?y").unwrap();
            head.field("Host", b"h").unwrap();
            for (name, value) in &fields {
                head.field(name, value.as_bytes()).unwrap();
            }
            let mut encoder = head.finish(client::framing(&method, length));
            let body = body.unwrap_or_default();
            for piece in body.chunks(100) {
                encoder.data(&mut wire, piece).unwrap();
            }
            encoder.end(&mut wire).unwrap();
            expected.push((method, fields, body));
        }
        let (messages, error) = requests(&wire, &cuts, Limits::default());
        prop_assert_eq!(error, None);
        prop_assert_eq!(messages.len(), expected.len());
        for (message, (method, fields, body)) in messages.iter().zip(&expected) {
            prop_assert!(message.is_whole && message.is_persistent);
            prop_assert_eq!(&message.head[0], method.as_bytes());
            prop_assert_eq!(&message.body, body);
            for (name, value) in fields {
                let pair = [name.as_bytes().to_vec(), value.as_bytes().to_vec()];
                prop_assert!(message.head[3..].chunks(2).any(|found| found == pair));
            }
        }
    }

    #[test]
    fn a_response_is_read_as_it_was_written(
        is_old: bool,
        is_head: bool,
        status in prop::sample::select(&[200_u16, 204, 206, 304, 404, 503][..]),
        knows_length: bool,
        body in vec(any::<u8>(), 0..300),
        cuts in vec(1..100_usize, 1..4),
    ) {
        let (method, version) = (if is_head { "HEAD" } else { "GET" }, if is_old { "1.0" } else { "1.1" });
        let text = format!("{method} / HTTP/{version}\r\nHost: h\r\nConnection: keep-alive\r\n\r\n");
        let mut request = RequestHead::default();
        server::Decoder::new(LIMITS).next(&mut text.as_bytes(), &mut request).unwrap();
        let mut wire = Vec::new();
        let length = knows_length.then_some(body.len() as u64);
        let mut head = server::response(&mut wire, status);
        head.field("X-Y", b"z").unwrap();
        let mut encoder = head.finish(server::framing(&request, status, length, true));
        if encoder.wants_data() {
            for piece in body.chunks(77) {
                encoder.data(&mut wire, piece).unwrap();
            }
        }
        encoder.end(&mut wire).unwrap();
        let (messages, error) = responses(&wire, &cuts, &[request.method()], Limits::default());
        prop_assert_eq!(error, None);
        let is_empty = is_head || matches!(status, 204 | 304);
        let Message { body: read, is_whole, .. } = &messages[0];
        prop_assert!(*is_whole && messages.len() == 1);
        prop_assert_eq!(&read[..], if is_empty { &[][..] } else { &body });
    }
}
