//! A server that says what the test wants, in pieces; the same bytes for hyper's client, which must read the same, or a
//! row of [`DIFFERENCES`] says why not.

use std::{convert::Infallible, time::Duration};

use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use proptest::{collection::vec, prelude::*};
use tokio::{
    io::{AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
};

use super::*;

type NoBody = http_body_util::Empty<Bytes>;

/// An answer as both clients tell it: status, fields, body, trailers. `Err`: not whole.
type Told = (u16, Vec<(String, Vec<u8>)>, Result<Vec<u8>, ()>, usize);

fn run<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    runtime.block_on(limited).expect("it ends")
}

const LIMITS: Limits = Limits {
    head: 4096,
    fields: 20,
    chunk_extensions: 64,
};

fn client(stream: DuplexStream) -> Connection<DuplexStream> {
    Connection::new(stream, LIMITS)
}

/// Reads a request's head, says these pieces, and closes the connection.
async fn serve(mut stream: DuplexStream, pieces: Vec<Vec<u8>>) {
    heard(&mut stream).await;
    for piece in pieces {
        if stream.write_all(&piece).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    let _ = stream.shutdown().await;
}

/// Reads up to the end of a head.
async fn heard(stream: &mut DuplexStream) -> Vec<u8> {
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => heard.push(byte),
            Err(_) => break,
        }
    }
    heard
}

fn fields(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let fields = headers.iter();
    fields
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect()
}

fn request<'r>(
    method: &'r Method,
    target: &'r str,
    lines: &'r [u8],
    length: Option<u64>,
    says_empty: bool,
) -> Request<'r> {
    Request {
        method,
        target: target.as_bytes(),
        lines,
        length,
        says_empty,
    }
}

/// A request without a body.
async fn ask(client: &mut Connection<DuplexStream>, method: &Method) -> Result<(), Error> {
    client.begin(&request(method, "/", b"", Some(0), false))?;
    client.exchange(&mut None::<NoBody>).await
}

async fn frame(client: &mut Connection<DuplexStream>) -> Option<Result<Frame<Bytes>, Error>> {
    poll_fn(|cx| client.poll_frame(cx)).await
}

/// The body, and the number of trailers.
async fn read(client: &mut Connection<DuplexStream>) -> (Result<Vec<u8>, Error>, usize) {
    let (mut body, mut trailers) = (Vec::new(), 0);
    while let Some(frame) = frame(client).await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => body.extend_from_slice(&data),
            Ok(Err(frame)) => trailers = frame.into_trailers().map_or(0, |fields| fields.len()),
            Err(error) => return (Err(error), trailers),
        }
    }
    (Ok(body), trailers)
}

fn ours(pieces: Vec<Vec<u8>>, method: &Method) -> Result<Told, Error> {
    run(async {
        let (here, there) = duplex(1 << 16);
        let server = tokio::spawn(serve(there, pieces));
        let mut client = client(here);
        let answer = ask(&mut client, method).await;
        let told = match answer {
            Ok(()) => {
                let status = client.head().status();
                let head = headers(client.head().fields()).expect("fields");
                let (body, trailers) = read(&mut client).await;
                let body = body.map_err(drop);
                Ok((status, fields(&head), body, trailers))
            }
            Err(error) => Err(error),
        };
        drop(client);
        server.await.expect("no panic");
        told
    })
}

fn hypers(pieces: Vec<Vec<u8>>, method: &Method) -> Result<Told, hyper::Error> {
    run(async {
        let (here, there) = duplex(1 << 16);
        let server = tokio::spawn(serve(there, pieces));
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_header_size(4096)
            .handshake(TokioIo::new(here))
            .await?;
        let connection = tokio::spawn(connection);
        let mut request = http::Request::new(NoBody::new());
        *request.method_mut() = method.clone();
        let told = match sender.send_request(request).await {
            Ok(answer) => {
                let (head, mut body) = answer.into_parts();
                let (mut bytes, mut trailers, mut whole) = (Vec::new(), 0, true);
                while let Some(frame) = body.frame().await {
                    match frame.map(Frame::into_data) {
                        Ok(Ok(data)) => bytes.extend_from_slice(&data),
                        Ok(Err(frame)) => {
                            trailers = frame.into_trailers().map_or(0, |fields| fields.len());
                        }
                        Err(_) => {
                            whole = false;
                            break;
                        }
                    }
                }
                let body = whole.then_some(bytes).ok_or(());
                Ok((head.status.as_u16(), fields(&head.headers), body, trailers))
            }
            Err(error) => Err(error),
        };
        drop(sender);
        let _ = connection.await;
        server.await.expect("no panic");
        told
    })
}

/// Cuts bytes into pieces of these sizes, again and again.
fn cut(wire: &[u8], sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut sizes = sizes.iter().copied().cycle();
    let (mut rest, mut pieces) = (wire, Vec::new());
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(usize::MAX).clamp(1, rest.len());
        let (piece, more) = rest.split_at(size);
        pieces.push(piece.to_vec());
        rest = more;
    }
    pieces
}

/// Inputs that hyper reads differently: a part of the bytes, or the error of this client; and the reason.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "a line ends with a line feed and no carriage return",
        "two readers may see different messages",
    ),
    ("5\n", "as above, between chunks"),
    (
        "the Transfer-Encoding is not chunked",
        "hyper reads to the end of the connection; what it reads would be passed on as something that it is not",
    ),
    (
        "there is more than one Transfer-Encoding",
        "hyper takes two codings for one list",
    ),
    (
        "there is more than one Content-Length",
        "hyper does not look where there can be no body",
    ),
    ("the Content-Length is not a number", "as above"),
    ("an HTTP/1.0 message has a Transfer-Encoding", "as above"),
    (
        "HTTP/1.2 ",
        "RFC 9110 §2.5: a higher minor version is taken as 1.1",
    ),
    (
        "it switches protocols (101) without being asked",
        "hyper leaves it to its user",
    ),
];

fn compare(wire: &str, sizes: &[usize], method: &Method) -> Result<(), String> {
    let pieces = cut(wire.as_bytes(), sizes);
    let one = ours(pieces.clone(), method).map_err(|error| error.to_string());
    let whole = ours(vec![wire.as_bytes().to_vec()], method).map_err(|error| error.to_string());
    if one != whole {
        return Err(format!(
            "{wire:?} cut by {sizes:?}\n{one:?}\nin one piece\n{whole:?}"
        ));
    }
    let other = hypers(pieces, method).map_err(|error| error.to_string());
    let alike = match (&one, &other) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), Err(_)) => true,
        _ => false,
    };
    let error = one.as_ref().err().map_or("", String::as_str);
    let explained = || {
        let mut rows = DIFFERENCES.iter();
        rows.any(|(piece, _)| wire.contains(piece) || error.contains(piece))
    };
    match alike || explained() {
        true => Ok(()),
        false => Err(format!("{wire:?}\nweir {one:?}\nhyper {other:?}")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_generated_is_read_as_hyper_reads_it_or_a_row_says_why(
        interim in prop::sample::select(INTERIM),
        first in prop::sample::select(FIRST),
        parts in vec(prop::sample::select(PARTS), 0..5),
        body in prop::sample::select(BODIES),
        sizes in vec(1_usize..40, 1..4),
        is_head in prop::bool::weighted(0.1),
    ) {
        let fields = parts.concat();
        let wire = format!("{interim}{first}{fields}\r\n{body}");
        let method = if is_head { Method::HEAD } else { Method::GET };
        if let Err(differs) = compare(&wire, &sizes, &method) {
            prop_assert!(false, "{}", differs);
        }
    }

    /// Nothing panics, and how the bytes are cut makes no difference.
    #[test]
    fn garbage_is_read_alike_however_it_is_cut(
        begin in prop::sample::select(FIRST),
        garbage in vec(prop::sample::select(&b"\0\r\n :HTP/1.09a5;\x16\xff"[..]), 0..60),
        is_begun in any::<bool>(),
        sizes in vec(1_usize..9, 1..4),
    ) {
        let mut wire = if is_begun { begin.as_bytes().to_vec() } else { Vec::new() };
        wire.extend_from_slice(&garbage);
        let one = ours(cut(&wire, &sizes), &Method::GET).map_err(drop);
        let whole = ours(vec![wire.clone()], &Method::GET).map_err(drop);
        prop_assert_eq!(one, whole, "{:?}", wire);
    }
}

const INTERIM: &[&str] = &[
    "",
    "",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n",
];

const FIRST: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 304 Not Modified\r\n",
    "HTTP/1.1 404 Nicht gefunden \u{fc}\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n",
    "HTTP/1.2 200 OK\r\n",
    "HTTP/2 200 OK\r\n",
    "HTTP/1.1 20 OK\r\n",
    "HTTP/1.1 200 OK\n",
    "ICY 200 OK\r\n",
];

const PARTS: &[&str] = &[
    "X-Y: 1\r\n",
    "x-y:2\r\n",
    "X-Y:\r\n",
    "X-Y: \u{fc}\t!\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: x\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "X-Y : 1\r\n",
    "X-Y: a\n",
    "X-Y\r\n",
    "X-Y: \x01\r\n",
];

const BODIES: &[&str] = &[
    "",
    "hell",
    "hello",
    "hello, world",
    "5\r\nhello\r\n0\r\n\r\n",
    "1\r\nh\r\n1\r\ne\r\n03;x\r\nllo\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n",
    "5\r\nhello\r\n",
    "5\r\nhello\r\n0\r\nX-Sum: ",
    "5\nhello\n0\n\n",
    "5\r\nhello!\r\n",
    "fffffffffffffffff\r\n",
];

#[test]
fn an_answer_whose_end_is_clear_leaves_the_connection_open() {
    for (answer, body, is_kept) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", true),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", true),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n",
            "ok",
            true,
        ),
        (
            "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "ok",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
            "ok",
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "ok",
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok",
            "ok",
            true,
        ),
        // Bytes that no request asked for.
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n",
            "ok",
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "ok",
            false,
        ),
    ] {
        run(async {
            let (here, mut there) = duplex(1 << 16);
            let mut client = client(here);
            for _ in 0..3 {
                there
                    .write_all(answer.as_bytes())
                    .await
                    .expect("it is open");
                ask(&mut client, &Method::GET).await.expect(answer);
                assert_eq!(read(&mut client).await.0.expect(answer), body.as_bytes());
                assert_eq!(client.is_reusable(), is_kept, "{answer:?}");
                if !is_kept {
                    break;
                }
            }
        });
    }
}

#[test]
fn an_answer_that_is_not_read_to_its_end_ends_its_connection() {
    run(async {
        let (here, mut there) = duplex(1 << 16);
        let mut client = client(here);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha";
        there.write_all(answer).await.expect("it is open");
        ask(&mut client, &Method::GET).await.expect("a head");
        assert_eq!(client.left(), Some(4));
        assert!(!client.is_reusable());
        assert!(frame(&mut client).await.is_some_and(|frame| frame.is_ok()));
        assert_eq!(client.left(), Some(2));
        assert!(!client.is_reusable() && !client.is_read());
        there.write_all(b"lf").await.expect("it is open");
        assert!(frame(&mut client).await.is_some_and(|frame| frame.is_ok()));
        assert!(
            client.is_read(),
            "the last piece is known to be the last one"
        );
        assert!(client.is_reusable());
    });
}

#[test]
fn an_idle_connection_is_open_while_its_server_is_silent() {
    let is_open = |client: &mut Connection<_>| {
        let mut context = Context::from_waker(std::task::Waker::noop());
        client.is_open(&mut context)
    };
    run(async {
        let (here, there) = duplex(1 << 16);
        let mut closed = client(here);
        assert!(closed.is_reusable() && is_open(&mut closed));
        drop(there);
        assert!(!is_open(&mut closed));

        let (here, mut there) = duplex(1 << 16);
        let mut told = client(here);
        assert!(is_open(&mut told));
        let unasked = b"HTTP/1.1 408 Request Timeout\r\n\r\n";
        there.write_all(unasked).await.expect("it is open");
        assert!(!is_open(&mut told));
    });
}

#[test]
fn a_request_is_sent_once_and_it_is_known_whether_the_server_may_have_seen_it() {
    run(async {
        // Closed before.
        let (here, there) = duplex(1 << 16);
        let mut gone = client(here);
        drop(there);
        let error = ask(&mut gone, &Method::GET).await.expect_err("no server");
        assert!(matches!(error, Error::Unsent(_)), "{error:?}");
        assert!(!gone.is_reusable());

        // Closed after it was read.
        let (here, mut there) = duplex(1 << 16);
        let server = tokio::spawn(async move { heard(&mut there).await });
        let mut left = client(here);
        let error = ask(&mut left, &Method::GET).await.expect_err("no answer");
        assert!(matches!(error, Error::Closed), "{error:?}");
        assert_eq!(server.await.expect("no panic"), b"GET / HTTP/1.1\r\n\r\n");
    });
    // The connection is closed within the head of the answer.
    let told = ours(vec![b"HTTP/1.1 200 OK\r\nX-Y".to_vec()], &Method::GET);
    assert!(matches!(told, Err(Error::Answer(Malformed::Truncated))));
}

/// Sends the same bytes again and again until the other end is closed; returns the number of bytes.
async fn endless(mut stream: DuplexStream, begin: &str, again: &str) -> usize {
    heard(&mut stream).await;
    let mut sent = 0;
    let mut next = begin;
    while stream.write_all(next.as_bytes()).await.is_ok() {
        sent += next.len();
        next = again;
    }
    sent
}

#[test]
fn what_has_no_end_is_read_up_to_a_limit() {
    for (begin, again, most) in [
        ("HTTP/1.1 200 OK\r\n", "X-More: and more\r\n", 8192),
        ("HTTP/1.1 200 OK\r\nX-More: ", "and more ", 8192),
        ("", "HTTP/1.1 103 Early Hints\r\n\r\n", 2 * LEAST_INTERIM),
        ("HTTP/1.1 ", "2", 8192),
        ("", "\r\n", 8192),
    ] {
        run(async {
            let (here, there) = duplex(1024);
            let server = tokio::spawn(endless(there, begin, again));
            let mut client = client(here);
            let error = ask(&mut client, &Method::GET).await;
            error.expect_err("no answer");
            drop(client);
            let sent = server.await.expect("no panic");
            assert!(sent < most, "{again:?}: {sent}");
        });
    }
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (begin, again) in [
        ("", "0"),
        ("5", " "),
        ("5;", "x"),
        ("0\r\n", "X-More: and more\r\n"),
    ] {
        run(async {
            let (here, there) = duplex(1024);
            let begin = format!("{chunked}{begin}");
            let server = tokio::spawn(async move { endless(there, &begin, again).await });
            let mut client = client(here);
            ask(&mut client, &Method::GET).await.expect("a head");
            read(&mut client).await.0.expect_err("no end");
            drop(client);
            let sent = server.await.expect("no panic");
            assert!(sent < 8192, "{again:?}: {sent}");
        });
    }
}

/// A server that never stops sending leaves time for others on the same thread.
#[test]
fn a_long_answer_lets_other_tasks_run() {
    /// Always ready.
    struct Zeros;
    impl AsyncRead for Zeros {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let room = buffer.remaining().min(8192);
            buffer.put_slice(&[b'x'; 8192][..room]);
            Poll::Ready(Ok(()))
        }
    }
    impl AsyncWrite for Zeros {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
    run(async {
        let mut client = Connection::new(Zeros, LIMITS);
        let ran = std::rc::Rc::new(std::cell::Cell::new(0));
        let mut most = 0;
        poll_fn(|cx| {
            // As when reading a body without an end, but nothing is made of the bytes.
            let mut bytes = 0;
            while let Poll::Ready(read) = client.poll_read(cx) {
                bytes += read.expect("bytes");
                client.input.clear();
            }
            most = most.max(bytes);
            ran.set(ran.get() + 1);
            match ran.get() < 10 {
                true => Poll::Pending,
                false => Poll::Ready(()),
            }
        })
        .await;
        assert!((TURN..2 * TURN).contains(&most), "{most}");
    });
}

/// A request's body that the test feeds.
struct Fed(mpsc::UnboundedReceiver<Bytes>);

fn fed() -> (mpsc::UnboundedSender<Bytes>, Fed) {
    let (feed, fed) = mpsc::unbounded_channel();
    (feed, Fed(fed))
}

impl Body for Fed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = ready!(self.0.poll_recv(cx));
        Poll::Ready(next.map(|data| Ok(Frame::data(data))))
    }
}

#[test]
fn an_answer_that_comes_before_the_body_is_whole_is_read() {
    run(async {
        let (here, mut there) = duplex(1 << 16);
        let mut client = client(here);
        let (feed, body) = fed();
        let mut body = Some(body);
        feed.send(Bytes::from_static(b"begin")).expect("a body");
        client
            .begin(&request(&Method::POST, "/", b"", Some(9), false))
            .expect("a request");
        let refused = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno";
        there.write_all(refused).await.expect("it is open");
        client.exchange(&mut body).await.expect("an answer");
        assert_eq!(client.head().status(), 413);
        assert!(client.is_sending() && body.is_some());
        assert_eq!(read(&mut client).await.0.expect("all of it"), b"no");
        assert!(!client.is_reusable(), "the request is not whole");
        // The rest can be sent nevertheless.
        feed.send(Bytes::from_static(b"more")).expect("a body");
        poll_fn(|cx| client.poll_send(cx, &mut body))
            .await
            .expect("it is open");
        assert!(!client.is_sending() && body.is_none() && client.is_reusable());
        assert_eq!(
            heard(&mut there).await,
            b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"
        );
        let mut sent = [0; 9];
        there.read_exact(&mut sent).await.expect("the body");
        assert_eq!(&sent, b"beginmore");
    });
}

/// The server answers and closes the connection, although the body was not sent: it is longer than what the kernel takes.
#[test]
fn an_answer_is_read_although_the_rest_of_the_body_cannot_be_sent() {
    run(async {
        let (here, mut there) = duplex(4096);
        let mut client = client(here);
        let server = tokio::spawn(async move {
            heard(&mut there).await;
            let refused = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno";
            there.write_all(refused).await.expect("it is open");
        });
        let mut body = Some(Full::new(Bytes::from(vec![b'x'; 1 << 20])));
        client
            .begin(&request(&Method::POST, "/", b"", Some(1 << 20), false))
            .expect("a request");
        client.exchange(&mut body).await.expect("an answer");
        assert_eq!(client.head().status(), 413);
        assert_eq!(read(&mut client).await.0.expect("all of it"), b"no");
        assert!(!client.is_reusable());
        server.await.expect("no panic");
    });
}

#[test]
fn bodies_are_framed_as_their_length_is_known_or_not() {
    let post = "POST /x?y HTTP/1.1\r\nhost: h\r\n";
    for (method, told, length, pieces, wire) in [
        (
            Method::POST,
            false,
            Some(4),
            &["ab", "cd"][..],
            format!("{post}Content-Length: 4\r\n\r\nabcd"),
        ),
        (
            Method::POST,
            true,
            None,
            &["ab", "cd"],
            format!("{post}Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"),
        ),
        (
            Method::POST,
            false,
            Some(0),
            &[],
            format!("{post}Content-Length: 0\r\n\r\n"),
        ),
        (
            Method::GET,
            false,
            Some(0),
            &[],
            "GET /x?y HTTP/1.1\r\nhost: h\r\n\r\n".into(),
        ),
        (
            Method::DELETE,
            true,
            Some(0),
            &[],
            "DELETE /x?y HTTP/1.1\r\nhost: h\r\nContent-Length: 0\r\n\r\n".into(),
        ),
    ] {
        run(async {
            let (here, mut there) = duplex(1 << 16);
            let mut client = client(here);
            let (feed, body) = fed();
            for piece in pieces {
                feed.send(Bytes::from_static(piece.as_bytes()))
                    .expect("a body");
            }
            drop(feed);
            let mut body = Some(body);
            client
                .begin(&request(&method, "/x?y", b"host: h\r\n", length, told))
                .expect("a request");
            poll_fn(|cx| client.poll_send(cx, &mut body))
                .await
                .expect("all of it");
            drop(client);
            let mut sent = String::new();
            there.read_to_string(&mut sent).await.expect("text");
            assert_eq!(sent, wire);
        });
    }
}

#[test]
fn a_body_that_is_shorter_or_longer_than_its_length_is_an_error() {
    for length in [3, 9] {
        run(async {
            let (here, there) = duplex(1 << 16);
            let mut client = client(here);
            let (feed, body) = fed();
            feed.send(Bytes::from_static(b"four")).expect("a body");
            drop(feed);
            client
                .begin(&request(&Method::POST, "/", b"", Some(length), false))
                .expect("a request");
            let error = client.exchange(&mut Some(body)).await;
            assert!(matches!(error, Err(Error::Body(_))), "{error:?}");
            assert!(!client.is_reusable());
            drop(there);
        });
    }
}
