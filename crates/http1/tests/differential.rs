//! Gives the same bytes to hyper's server and to this crate. Both accept them and read the same, or both refuse them,
//! or a row of [`DIFFERENCES`] gives the reason for the difference.

#[allow(dead_code, unreachable_pub, reason = "shared with other tests")]
mod checks;

use std::sync::{Arc, Mutex};

use checks::requests;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, Response, body::Bytes, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use proptest::{collection::vec, prelude::*};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_http1::{Error, Limits};

/// A request in a form that both sides produce: method, target, values of the compared fields, body.
type Told = (Vec<u8>, Vec<u8>, Vec<Vec<u8>>, Vec<u8>);

/// How hyper reads the bytes: the complete requests that it gave to its service, and whether it reached the end.
fn hyper(wire: &[u8]) -> (Vec<Told>, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let heard = heard.clone();
            async move {
                let (head, body) = request.into_parts();
                let fields = head.headers.get_all("x-y").iter();
                let fields = fields.map(|value| value.as_bytes().to_vec()).collect();
                let all = (
                    head.method.as_str().as_bytes().to_vec(),
                    head.uri.to_string().into_bytes(),
                    fields,
                    body.collect().await?.to_bytes().to_vec(),
                );
                heard
                    .lock()
                    .unwrap_or_else(|error| panic!("{error}"))
                    .push(all);
                Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new()))
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .pipeline_flush(true)
            .serve_connection(TokioIo::new(server), service);
        let write = async {
            client.write_all(wire).await.ok();
            client.shutdown().await.ok();
            let mut answers = Vec::new();
            client.read_to_end(&mut answers).await.ok();
        };
        let (served, ()) = tokio::join!(connection, write);
        let told = std::mem::take(&mut *told.lock().unwrap_or_else(|error| panic!("{error}")));
        (told, served.is_ok())
    })
}

/// How this crate reads the bytes.
fn weir(wire: &[u8]) -> (Vec<Told>, Option<Error>) {
    let (messages, error) = requests(wire, &[], Limits::default());
    let mut told = Vec::new();
    for message in messages.into_iter().filter(|message| message.is_whole) {
        let fields = message.head[3..].chunks(2);
        let fields = fields.filter(|pair| pair[0].eq_ignore_ascii_case(b"x-y"));
        told.push((
            message.head[0].clone(),
            message.head[1].clone(),
            fields.map(|pair| pair[1].clone()).collect(),
            message.body,
        ));
    }
    (told, error)
}

/// What this crate refuses and hyper accepts.
const DIFFERENCES: &[(Error, &str)] = &[
    (
        Error::BareLf,
        "a server in front may not take a bare line feed for the end of a line",
    ),
    (
        Error::HostMissing,
        "RFC 9112 §3.2 wants 400; hyper leaves it to its user",
    ),
    (
        Error::HostRepeated,
        "RFC 9112 §3.2 wants 400; hyper leaves it to its user",
    ),
    (
        Error::Target,
        "hyper takes `*` and an authority with every method",
    ),
    (
        Error::LengthRepeated,
        "RFC 9112 §6.3 lets a recipient refuse equal ones; nginx does",
    ),
    (
        Error::LengthAndCoding,
        "RFC 9112 §6.1 lets a server refuse both; hyper ignores the length",
    ),
    (Error::CodingRepeated, "hyper takes several as one list"),
];

/// What hyper refuses and this crate accepts, recognized by a part of the bytes.
const TAKEN: &[(&str, &str)] = &[(
    " HTTP/1.2\r\n",
    "RFC 9110 §2.5: a higher minor version is taken as the highest known",
)];

/// Compares both, and returns the differences.
fn compare(wire: &[u8]) -> Result<(), String> {
    let (by_hyper, goes_on) = hyper(wire);
    let (by_weir, error) = weir(wire);
    let text = String::from_utf8_lossy(wire);
    let common = by_hyper.len().min(by_weir.len());
    for (one, other) in by_hyper.iter().zip(&by_weir) {
        // hyper adds the slash that an absolute target may omit.
        let (mut one, other) = (one.clone(), other.clone());
        if one.1.ends_with(b"/") && other.1.len() + 1 == one.1.len() {
            one.1.pop();
        }
        if one.1.len() != other.1.len() && text.contains("://") {
            one.1.clone_from(&other.1);
        }
        if one != other {
            return Err(format!("{text:?}\nhyper {one:?}\nweir {other:?}"));
        }
    }
    let explained = match error {
        Some(error) if by_hyper.len() > common || goes_on => {
            DIFFERENCES.iter().any(|(known, _)| *known == error)
        }
        _ if by_weir.len() > common => TAKEN.iter().any(|(piece, _)| text.contains(piece)),
        None => by_hyper.len() == common,
        Some(_) => true,
    };
    match explained {
        true => Ok(()),
        false => Err(format!(
            "{text:?}\nhyper read {} (to the end: {goes_on}), weir read {}, {error:?}",
            by_hyper.len(),
            by_weir.len()
        )),
    }
}

#[test]
fn what_is_plain_is_read_alike() {
    for wire in [
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "\r\n\r\nGET /a?b=c HTTP/1.1\r\nHost: h\r\nX-Y: 1\r\nx-y:2\r\nX-Y: \t3 \t\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: CHUNKED\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nT: r\r\n\r\n\
         GET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /3 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET http://h/x HTTP/1.1\r\nHost: h\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX : y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX-Y: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX-Y: a\0\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\ng\r\n",
    ] {
        compare(wire.as_bytes()).unwrap_or_else(|differs| panic!("{differs}"));
        assert_eq!(
            hyper(wire.as_bytes()).0.len(),
            weir(wire.as_bytes()).0.len(),
            "{wire:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_generated_is_read_alike_or_a_row_says_why(
        parts in vec(prop::sample::select(PARTS), 0..8),
        first in prop::sample::select(FIRST),
        body in prop::sample::select(BODIES),
        has_host in prop::bool::weighted(0.9),
    ) {
        let fields = parts.concat();
        let host = if has_host { "Host: h\r\n" } else { "" };
        let wire = format!("{first}{host}{fields}\r\n{body}");
        if let Err(differs) = compare(wire.as_bytes()) {
            prop_assert!(false, "{}", differs);
        }
    }
}

const FIRST: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "POST /a HTTP/1.1\r\n",
    "GET /a?b=%20c HTTP/1.0\r\n",
    "GET /\" HTTP/1.1\r\n",
    "GET / HTTP/1.2\r\n",
    "GET * HTTP/1.1\r\n",
    "GET  / HTTP/1.1\r\n",
    "GET / HTTP/1.1\n",
    "g-t / HTTP/1.1\r\n",
    "GET /\u{e9} HTTP/1.1\r\n",
    "POST http://h/x HTTP/1.1\r\n",
    "GET /a b HTTP/1.1\r\n",
];

const PARTS: &[&str] = &[
    "X-Y: 1\r\n",
    "x-y:2\r\n",
    "X-Y:\r\n",
    "X-Y: \u{fc}\t!\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "content-length: 05\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: x\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Host: i\r\n",
    "X-Y : 1\r\n",
    " folded\r\n",
    "X-Y: a\n",
    "X-Y\r\n",
    "X-Y: \x01\r\n",
];

const BODIES: &[&str] = &[
    "",
    "hello",
    "5\r\nhello\r\n0\r\n\r\n",
    "05 \r\nhello\r\n0\r\nT: r\r\n\r\n",
    "5\nhello\n0\n\n",
    "5\r\nhello!\r\n",
    "fffffffffffffffff\r\n",
    "0\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
    "helloGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
    "0\r\nT : r\r\n\r\n",
    "-1\r\n",
];
