//! The life of one client connection: hyper while there is something to do, next to nothing while there is not.
//!
//! A connection that stays idle longer than [`PARK_AFTER`] is parked: hyper's buffers and state are dropped and only
//! the socket is watched. The next byte brings hyper back. So ten thousand open browsers cost little memory. A request that
//! waits in the queue has only its own state and the socket ([`waiting`]): its answer brings hyper back.

mod waiting;

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    os::fd::AsFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1::{Builder, Parts};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_config::Listener;

use self::waiting::{Answer, Service, Work};
use super::{
    Gateway,
    client_io::{ClientIo, Conn, Phase, Socket},
    exchange,
    framing::Refused,
};
use crate::clock;

/// What a listener allows its connections, as hyper is told it.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    builder: Builder,
}

/// How a turn of hyper on a connection ended.
enum Turn {
    /// The connection is over; the socket may still have to be closed with care.
    Over(Ending),
    /// Nothing to do for a while.
    Park,
    /// Its request waits for a worker, and will for a while.
    Wait,
    /// It is idle, and others need its place.
    GiveUp,
}

/// How a connection ends.
enum Ending {
    /// All answers are with the kernel.
    Clean,
    /// An answer is with the kernel while the client may still be sending what nobody wants.
    Linger,
    /// Part of a head came, and the rest not in time: which limit it was.
    HeadTimeout(&'static str),
    /// The client speaks HTTP/2 without having asked (RFC 9113 §3.3), which hyper does not answer.
    Http2,
    /// What came is no head, or two things at once: hyper was not given it.
    Refused(Refused),
    /// What was promised cannot be sent: the client must not take it for whole.
    Abort,
}

/// Serves `socket` until it ends; `_seat` is dropped then.
pub(crate) async fn serve<S>(
    gateway: Arc<Gateway>,
    mut socket: Socket,
    conn: Arc<Conn>,
    limits: Limits,
    _seat: S,
) {
    let begin = |request| exchange::exchange(&gateway, &conn, request);
    let mut work = Work::new();
    let mut unread = Bytes::new();
    let ending = loop {
        let turn;
        let io = ClientIo::new(socket, conn.clone(), unread);
        (turn, socket, unread) = drive(&gateway, io, &conn, &limits, &work, &begin).await;
        match turn {
            Turn::Over(ending) => break ending,
            // Its next request may have come since hyper last looked.
            Turn::GiveUp if unread.is_empty() && !weir_sys::socket::has_bytes(socket.as_fd()) => {
                break Ending::Clean;
            }
            Turn::Park if unread.is_empty() => {
                // Empty, it still holds hyper's read buffer.
                unread = Bytes::new();
                work = Work::new();
                if !parked(&gateway, &conn, &socket).await {
                    break Ending::Clean;
                }
            }
            // The beginning of the next head came with the last request: it is waited for as a head.
            Turn::Park | Turn::GiveUp => conn.received(),
            Turn::Wait => {
                // Not as a piece of hyper's read buffer.
                let ahead = Bytes::copy_from_slice(&std::mem::take(&mut unread));
                let next;
                (socket, next) = waiting::wait(&conn, socket, ahead, &work).await;
                match next {
                    Some(next) => unread = next,
                    None => break Ending::Clean,
                }
            }
        }
    };
    if matches!(ending, Ending::Linger) && is_tls(&unread) {
        let listener = &gateway.config.listeners[usize::from(conn.listener)].name;
        let from = &conn.ends.remote_addr;
        log::info!(
            "a client speaks TLS (https://) to [listen.{listener}], which speaks HTTP in the clear (http://), from {from}"
        );
    }
    // Whoever worked for a client that has left notices it now.
    drop(work);
    conn.ended();
    // In a box: a connection that is open for hours need not carry what its end takes.
    Box::pin(close(ending, socket, &gateway, &conn)).await;
}

impl Limits {
    pub(crate) fn new(listener: &Listener) -> Limits {
        let mut builder = Builder::new();
        builder
            .max_header_size(listener.max_head)
            .max_buf_size(listener.max_head.max(WRITE_BUFFER));
        if listener.max_headers != HYPERS_MAX_HEADERS {
            // Any other number costs hyper an allocation per request.
            builder.max_headers(listener.max_headers);
        }
        Limits { builder }
    }
}

/// Lets hyper work on `io`; hands the socket back with the bytes that were read and not used. What `begin` makes of a
/// request is in `work`.
async fn drive<B, F>(
    gateway: &Gateway,
    io: ClientIo,
    conn: &Conn,
    limits: &Limits,
    work: &Arc<Work<F>>,
    begin: &B,
) -> (Turn, Socket, Bytes)
where
    B: Fn(Request<Incoming>) -> F,
    F: Future<Output = Result<Answer, Infallible>>,
{
    let service = Service {
        work: work.clone(),
        begin,
    };
    let mut hyper = Box::new(limits.builder.serve_connection(TokioIo::new(io), service));
    let (mut draining, mut drain_seen) = (false, None);
    let mut poll_turn = |cx: &mut Context<'_>| {
        conn.remember_waker(cx.waker());
        let now = clock::now();
        if conn.overdue(now) {
            match conn.phase() {
                Phase::Idle | Phase::Parked => return Poll::Ready(Turn::Over(Ending::Clean)),
                Phase::Head => return Poll::Ready(Turn::Over(Ending::HeadTimeout(TOO_SLOW))),
                // Whoever waits for something else than the client looks at its own deadline when it is polled, and who
                // writes, whether anything has left meanwhile.
                Phase::Busy => {}
            }
        }
        if gateway.drain.has_started()
            && now - *drain_seen.get_or_insert(now) >= FIRST_REQUEST
            && conn.phase() == Phase::Head
        {
            return Poll::Ready(Turn::Over(Ending::HeadTimeout(TOO_LATE)));
        }
        if !draining && gateway.drain.has_started() && !work.has_answer() {
            match conn.fresh_since().or(conn.idle_since()) {
                // Its first request is on its way, or the client only keeps it ready. Or the next one is: who has just
                // been answered without a word of closing may have sent it already. That one's answer has the word.
                Some(since) if now.saturating_sub(since) < FIRST_REQUEST => {}
                // A part of the next head is here, and hyper has not been given it.
                _ if conn.phase() == Phase::Head => {}
                _ => {
                    draining = true;
                    Pin::new(&mut *hyper).graceful_shutdown();
                }
            }
        }
        if let Some(since) = conn.idle_since()
            && now.saturating_sub(since) > PARK_AFTER
        {
            return Poll::Ready(Turn::Park);
        }
        let turned = Pin::new(&mut *hyper).poll(cx);
        if turned.is_pending() && conn.is_given_up() {
            return Poll::Ready(Turn::GiveUp);
        }
        if turned.is_pending() && conn.phase() == Phase::Busy && conn.send_overdue(now) {
            return Poll::Ready(Turn::Over(Ending::Abort));
        }
        if turned.is_pending() && conn.waits_for_long(now) {
            if work.can_wait() {
                return Poll::Ready(Turn::Wait);
            }
            conn.wake_at(clock::NEVER);
        }
        turned.map(|result| Turn::Over(ending(result, gateway, conn)))
    };
    let turn = poll_fn(|cx| clock::frozen(|| poll_turn(cx))).await;
    let Parts { io, read_buf, .. } = hyper.into_parts();
    let (socket, ahead) = io.into_inner().into_parts();
    let unread = match ahead.is_empty() {
        true => read_buf,
        false => [read_buf, ahead].concat().into(),
    };
    (turn, socket, unread)
}

/// A client's first record of TLS (RFC 8446 §5.1): a handshake, version 3.x.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [22, 3, ..])
}

/// What a finished turn of hyper means for the socket.
fn ending(result: hyper::Result<()>, gateway: &Gateway, conn: &Conn) -> Ending {
    if let Some(refused) = conn.take_refused() {
        return Ending::Refused(refused);
    }
    match result {
        Ok(()) if conn.body_is_unread() => Ending::Linger,
        Ok(()) => Ending::Clean,
        Err(error) if error.is_parse() => {
            if error.is_parse_version_h2() {
                return Ending::Http2;
            }
            let (status, reason) = match error.is_parse_too_large() {
                true => (
                    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                    "head_too_large",
                ),
                false => (StatusCode::BAD_REQUEST, "bad_head"),
            };
            exchange::refused_head(gateway, conn, status, reason, &error.to_string());
            Ending::Linger
        }
        Err(error) if error.is_user() => Ending::Abort,
        // The client has left; whoever worked for it has noticed by being dropped.
        Err(_) => Ending::Clean,
    }
}

/// Waits for the next byte of a connection that has put everything down. Answers whether it came.
async fn parked(gateway: &Gateway, conn: &Conn, socket: &Socket) -> bool {
    conn.park();
    let mut readable = std::pin::pin!(socket.readable());
    poll_fn(|cx| {
        if let Poll::Ready(ready) = readable.as_mut().poll(cx) {
            return Poll::Ready(ready.is_ok());
        }
        if conn.is_given_up() {
            return Poll::Ready(weir_sys::socket::has_bytes(socket.as_fd()));
        }
        match gateway.drain.has_started() || conn.overdue(clock::now()) {
            true => Poll::Ready(false),
            false => Poll::Pending,
        }
    })
    .await
}

async fn close(ending: Ending, mut socket: Socket, gateway: &Gateway, conn: &Conn) {
    match ending {
        Ending::Clean => {
            let _ = socket.shutdown().await;
        }
        Ending::Linger => linger(socket).await,
        Ending::HeadTimeout(limit) => {
            exchange::refused_head(
                gateway,
                conn,
                StatusCode::REQUEST_TIMEOUT,
                "header_timeout",
                limit,
            );
            let _ = tokio::time::timeout(LINGER, socket.write_all(REQUEST_TIMEOUT)).await;
            linger(socket).await;
        }
        Ending::Http2 => {
            exchange::refused_head(
                gateway,
                conn,
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "http_version",
                "HTTP/2 is not spoken here",
            );
            let _ = tokio::time::timeout(LINGER, socket.write_all(NO_HTTP2)).await;
            linger(socket).await;
        }
        Ending::Refused(Refused {
            status,
            reason,
            why,
        }) => {
            exchange::refused_head(gateway, conn, status, reason, why);
            let head =
                format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            let _ = tokio::time::timeout(LINGER, socket.write_all(head.as_bytes())).await;
            linger(socket).await;
        }
        Ending::Abort => {
            // Where the option cannot be set the connection is closed plainly; a length or chunks still tell.
            let _ = weir_sys::socket::reset_on_close(socket.as_fd());
        }
    }
}

/// Closes so that the client reads the answer: a socket closed with unread bytes in it is reset, and the reset
/// overtakes the answer (RFC 9112 §9.6).
pub(super) async fn linger(mut socket: Socket) {
    if socket.shutdown().await.is_err() {
        return;
    }
    let drain = async {
        let mut sink = [0; 4096];
        let mut left = LINGER_BYTES;
        while left > 0 {
            match socket.read(&mut sink).await {
                Ok(0) | Err(_) => return,
                Ok(count) => left = left.saturating_sub(count),
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, drain).await;
}

/// Idle for so long (µs), a connection puts down hyper and its buffers.
pub(crate) const PARK_AFTER: u64 = 1_000_000;

/// How long a drain waits for the first request of a connection that was just made, for the next one of a connection
/// that has just had one, and for the rest of a head, µs.
const FIRST_REQUEST: u64 = 1_000_000;

const TOO_SLOW: &str = "the head took longer than header_timeout";
const TOO_LATE: &str = "weir stops, and the rest of the head did not come within a second";

/// hyper's own limit on header fields, for which it needs no allocation.
const HYPERS_MAX_HEADERS: usize = 100;

/// hyper's default for what it buffers of an answer before it flushes.
const WRITE_BUFFER: usize = 408 * 1024;

/// How long a closed connection is still read, so that its last answer arrives.
const LINGER: Duration = Duration::from_secs(2);

/// How much of it is read at most.
const LINGER_BYTES: usize = 16 << 20;

const REQUEST_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

const NO_HTTP2: &[u8] =
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
