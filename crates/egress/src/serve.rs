//! Serves a caller's connection.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::AsFd,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{
    HeaderValue, Request, Response,
    header::{CONNECTION, TRANSFER_ENCODING},
};
use hyper::{
    body::{Body, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpStream, UnixStream},
    sync::OwnedSemaphorePermit,
    time::Sleep,
};
use weir_observe::clock;
use weir_sys::socket;

use super::{
    Egress,
    body::Answer,
    call,
    callers::Peer,
    reading::{Gauge, Reading},
};

/// Serves a caller over TCP.
pub(crate) async fn serve_tcp(
    egress: Arc<Egress>,
    stream: TcpStream,
    address: SocketAddr,
    place: OwnedSemaphorePermit,
) {
    // If the address is not known any more, the connection is already closed.
    let Ok(own) = stream.local_addr() else { return };
    let peer = egress.callers.over_tcp(own, address);
    serve(egress, stream, peer, place).await;
}

/// Serves a caller over a unix socket.
pub(crate) async fn serve_unix(
    egress: Arc<Egress>,
    stream: UnixStream,
    peer: Arc<Peer>,
    place: OwnedSemaphorePermit,
) {
    serve(egress, stream, peer, place).await;
}

async fn serve<S>(egress: Arc<Egress>, stream: S, peer: Arc<Peer>, place: OwnedSemaphorePermit)
where
    S: Io,
{
    let seat = Seat::new(&egress, place);
    let stream = Stream::new(stream, seat.clone());
    // When the last answer began or the connection was made, or a mark that a call is running.
    let rests_since = AtomicU64::new(clock::now());
    let service = service_fn(|request: Request<Incoming>| {
        // A head was read.
        seat.gauge.progress();
        seat.may_send(!request.body().is_end_stream());
        rests_since.store(AT_WORK, Relaxed);
        // The request may also have had a Content-Length, which hyper removes. Its sender may see the end elsewhere,
        // so what follows is not used as a request (RFC 9112 §6.1).
        let is_chunked = request.headers().contains_key(TRANSFER_ENCODING);
        let (egress, peer, seat) = (egress.clone(), peer.clone(), seat.clone());
        let rests_since = &rests_since;
        async move {
            let mut answer = call::call(egress.clone(), peer, seat, request).await;
            if is_chunked || egress.drain.has_started() {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            rests_since.store(clock::now(), Relaxed);
            Ok::<Response<Answer>, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(MAX_HEAD)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let (mut draining, mut told) = (false, false);
    loop {
        // A caller that has just connected, or whose last answer did not announce the close, may have sent its next
        // request already; that one is answered. A connection that was idle for longer is closed, which its caller
        // must expect at any time.
        let rests_since = rests_since.load(Relaxed);
        let grace = match rests_since {
            AT_WORK => 0,
            since => (since + NEXT_REQUEST).saturating_sub(clock::now()),
        };
        tokio::select! {
            // A request that has arrived is started before the connection is told to end.
            biased;
            // Errors concern only the caller, or are already in the call's log line.
            ended = poll_fn(|cx| clock::frozen(|| connection.as_mut().poll(cx))) => {
                if ended.is_err() {
                    // A head that hyper has answered with a refusal may not have been all that comes.
                    seat.may_send(true);
                }
                return;
            }
            () = egress.drain.started(), if !draining => draining = true,
            () = tokio::time::sleep(Duration::from_micros(grace)), if draining && !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The state of a caller's connection, also if it becomes a tunnel.
pub(crate) struct Seat {
    egress: Arc<Egress>,
    /// An answer is incomplete. An HTTP/1.0 caller would take it for complete if the connection just ended, so the
    /// connection is reset.
    cut: AtomicBool,
    /// The caller may still send when the connection is closed: the rest of a body that nobody reads.
    may_send: AtomicBool,
    /// Measures bytes without content.
    pub(crate) gauge: Gauge,
    /// Counts for `max_connections`.
    _place: OwnedSemaphorePermit,
}

impl Seat {
    fn new(egress: &Arc<Egress>, place: OwnedSemaphorePermit) -> Arc<Seat> {
        egress.figures.caller_came();
        Arc::new(Seat {
            egress: egress.clone(),
            cut: AtomicBool::new(false),
            may_send: AtomicBool::new(false),
            gauge: Gauge::new(MAX_HEAD),
            _place: place,
        })
    }

    fn may_send(&self, may: bool) {
        self.may_send.store(may, Relaxed);
    }

    /// Resets the connection when it ends.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.egress.figures.caller_left();
    }
}

/// A caller's stream. It fails if the caller takes nothing for [`SEND_TIMEOUT`], because an answer that is not read
/// holds a connection to its origin. If the caller may still send when it is dropped, it is closed slowly ([`linger`]).
struct Stream<S: Io> {
    /// `None` only while it is dropped.
    inner: Option<S>,
    seat: Arc<Seat>,
    reading: Reading,
    /// The caller has closed its side.
    is_at_end: bool,
    /// Runs while the caller takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// The socket of a caller's connection.
trait Io: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static> Io for S {}

impl<S: Io> Stream<S> {
    fn new(inner: S, seat: Arc<Seat>) -> Stream<S> {
        Stream {
            inner: Some(inner),
            reading: Reading::new(seat.gauge.clone()),
            seat,
            is_at_end: false,
            stalled: None,
        }
    }

    fn inner(&mut self) -> io::Result<Pin<&mut S>> {
        let inner = self.inner.as_mut().map(Pin::new);
        inner.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// The result of a write, or a timeout.
    fn in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = || Box::pin(tokio::time::sleep(SEND_TIMEOUT));
        let stalled = self.stalled.get_or_insert_with(stalled);
        stalled.as_mut().poll(cx).map(|()| {
            self.seat.cut();
            Err(io::ErrorKind::TimedOut.into())
        })
    }
}

impl<S: Io> AsyncRead for Stream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(inner) = this.inner.as_mut().map(Pin::new) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let before = buffer.filled().len();
        let read = this
            .reading
            .poll(cx, buffer, |cx, buffer| inner.poll_read(cx, buffer));
        if matches!(read, Poll::Ready(Ok(()))) && buffer.filled().len() == before {
            this.is_at_end = true;
        }
        read
    }
}

impl<S: Io> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.inner()?.poll_write(cx, bytes);
        self.in_time(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.inner()?.poll_write_vectored(cx, pieces);
        self.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.as_ref().is_some_and(S::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_shutdown(cx)
    }
}

impl<S: Io> Drop for Stream<S> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else {
            return;
        };
        if self.seat.cut.load(Relaxed) {
            // If it cannot be reset, the caller sees a normal close.
            let _ = socket::reset_on_close(inner.as_fd());
        } else if self.seat.may_send.load(Relaxed)
            && !self.is_at_end
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(linger(inner, self.seat.clone()));
        }
    }
}

/// Closes so that the caller can read the answer: the kernel resets a socket that is closed with unread bytes, and the
/// reset can overtake the answer (RFC 9112 §9.6). The seat is kept until then, because the connection still counts.
async fn linger(mut stream: impl Io, seat: Arc<Seat>) {
    let drain = async {
        stream.shutdown().await?;
        let mut sink = [0; 4096];
        let mut left = LINGER_BYTES;
        while left > 0 {
            match stream.read(&mut sink).await? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        io::Result::Ok(())
    };
    // However it ends, the connection does.
    let _ = tokio::time::timeout(LINGER, drain).await;
    drop(seat);
}

/// How long a connection whose caller may still send is read after its last answer, and how much at most, bytes.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: usize = 16 << 20;

/// A caller's connection is closed if no request comes for this long, or if a head is not completed in this time.
const IDLE: Duration = Duration::from_secs(75);

/// How long a drain waits for the first request on a new connection, and for the next request after an answer, µs.
const NEXT_REQUEST: u64 = 1_000_000;

/// The mark for a running call, used in place of a time.
const AT_WORK: u64 = u64::MAX;

/// A caller that takes nothing of its answer for this long is cut.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of a request head, bytes.
const MAX_HEAD: usize = 64 << 10;
