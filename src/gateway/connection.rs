//! The life of a client connection: hyper runs only while there is something to do.
//!
//! A connection that is idle for longer than [`PARK_AFTER`] is parked: hyper's buffers and state are dropped, and
//! only the socket is watched. The next byte starts hyper again. So ten thousand open browsers need little memory. A
//! request that waits in the queue keeps only its own state and the socket ([`waiting`]); hyper is started again for
//! its answer.

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

/// The limits of a listener's connections, as configured in hyper.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    builder: Builder,
}

/// How a run of hyper on a connection ended.
enum Turn {
    /// The connection ends; the socket may have to be closed carefully.
    Over(Ending),
    /// Nothing to do for a while.
    Park,
    /// Its request waits for a worker and will wait for some time.
    Wait,
    /// It is idle, and others need its place.
    GiveUp,
}

/// How a connection ends.
enum Ending {
    /// The kernel has all answers.
    Clean,
    /// The kernel has the answer, but the client may still be sending a body that nobody reads.
    Linger,
    /// Part of a head arrived, but the rest did not arrive in time. Names the limit.
    HeadTimeout(&'static str),
    /// The client speaks HTTP/2 without negotiation (RFC 9113 §3.3), which hyper does not answer.
    Http2,
    /// The bytes are not a valid head, or are ambiguous: hyper did not get them.
    Refused(Refused),
    /// The announced answer cannot be sent completely: the client must not take it for complete.
    Abort,
}

/// Serves `socket` until the connection ends; `_seat` is dropped then.
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
                // Even if it is empty, it still holds hyper's read buffer.
                unread = Bytes::new();
                work = Work::new();
                if !parked(&gateway, &conn, &socket).await {
                    break Ending::Clean;
                }
            }
            // The beginning of the next head arrived with the last request: the timeout for heads applies.
            Turn::Park | Turn::GiveUp => conn.received(),
            Turn::Wait => {
                // A copy, because a slice would keep hyper's read buffer.
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
            "a client sent TLS (https://) to [listen.{listener}], which takes plain HTTP (http://), from {from}"
        );
    }
    // Dropping it tells the steps that work for this client that it has left.
    drop(work);
    conn.ended();
    // Boxed: a connection that stays open for hours should not reserve the memory that closing needs.
    Box::pin(close(ending, socket, &gateway, &conn)).await;
}

impl Limits {
    pub(crate) fn new(listener: &Listener) -> Limits {
        let mut builder = Builder::new();
        builder
            .max_header_size(listener.max_head)
            .max_buf_size(listener.max_head.max(WRITE_BUFFER));
        if listener.max_headers != HYPERS_MAX_HEADERS {
            // With any other number hyper allocates for each request.
            builder.max_headers(listener.max_headers);
        }
        Limits { builder }
    }
}

/// Lets hyper run on `io`. Returns the socket and the bytes that were read but not used. `work` holds the request
/// that `begin` has made.
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
                // A step that waits for something other than the client checks its own deadline when it is polled.
                // Writes check whether any bytes have left meanwhile.
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
                // The first request may be on its way, or the client only opened the connection in advance. Or the
                // next request is: a client whose last answer did not say "close" may have sent it already. The
                // answer to that one says "close".
                Some(since) if now.saturating_sub(since) < FIRST_REQUEST => {}
                // A part of the next head is here, but hyper does not have it yet.
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

/// The first TLS record of a client (RFC 8446 §5.1): a handshake, version 3.x.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [22, 3, ..])
}

/// What the end of a hyper run means for the socket.
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
        // The client has left; everything that worked for it was dropped.
        Err(_) => Ending::Clean,
    }
}

/// Waits for the next byte on a parked connection. Returns whether it arrived.
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
                "HTTP/2 is not supported here",
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
            // If the option cannot be set, the connection is closed normally; the missing length or last chunk still
            // shows the error.
            let _ = weir_sys::socket::reset_on_close(socket.as_fd());
        }
    }
}

/// Closes the connection so that the client can read the answer. Closing a socket with unread bytes sends a reset,
/// which may discard the answer (RFC 9112 §9.6).
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

/// After being idle for this long (µs), a connection drops hyper and its buffers.
pub(crate) const PARK_AFTER: u64 = 1_000_000;

/// How long a drain waits for the first request on a new connection, for the next request after an answer, and for
/// the rest of a head, µs.
const FIRST_REQUEST: u64 = 1_000_000;

const TOO_SLOW: &str = "the request head took longer than header_timeout";
const TOO_LATE: &str =
    "weir is stopping, and the rest of the request head did not arrive within a second";

/// hyper's own limit of header fields, for which it does not allocate.
const HYPERS_MAX_HEADERS: usize = 100;

/// hyper's default size of the write buffer.
const WRITE_BUFFER: usize = 408 * 1024;

/// How long a closed connection is still read, so that the client receives the last answer.
const LINGER: Duration = Duration::from_secs(2);

/// How many bytes are read then, at most.
const LINGER_BYTES: usize = 16 << 20;

const REQUEST_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

const NO_HTTP2: &[u8] =
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
