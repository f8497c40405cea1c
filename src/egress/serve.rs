//! A caller's connection.

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
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    sync::OwnedSemaphorePermit,
    time::Sleep,
};
use weir_sys::socket;

use crate::clock;

use super::{
    Egress,
    body::Answer,
    call,
    callers::Peer,
    reading::{Gauge, Reading},
};

/// Serves a caller that came over TCP.
pub(crate) async fn serve_tcp(
    egress: Arc<Egress>,
    stream: TcpStream,
    address: SocketAddr,
    place: OwnedSemaphorePermit,
) {
    // It is gone already where that is not known any more.
    let Ok(own) = stream.local_addr() else { return };
    let peer = egress.callers.over_tcp(own, address);
    serve(egress, stream, peer, place).await;
}

/// Serves a caller that came over a unix socket.
pub(crate) async fn serve_unix(
    egress: Arc<Egress>,
    stream: UnixStream,
    place: OwnedSemaphorePermit,
) {
    let peer = egress.callers.over_unix(&stream);
    serve(egress, stream, peer, place).await;
}

async fn serve<S>(egress: Arc<Egress>, stream: S, peer: Arc<Peer>, place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static,
{
    let seat = Seat::new(&egress, place);
    let stream = Stream::new(stream, seat.clone());
    // When the last answer began, or the connection; or that a request is at work.
    let rests_since = AtomicU64::new(clock::now());
    let service = service_fn(|request: Request<Incoming>| {
        // A head was read.
        seat.gauge.progress();
        rests_since.store(AT_WORK, Relaxed);
        // It may have had a Content-Length too, which hyper takes away: whoever sent it may see the end elsewhere, so that
        // what follows is not taken for a request (RFC 9112 §6.1).
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
        // Who has just connected, or just been answered without a word of closing, may have sent its next request already:
        // that is answered. A connection that has rested for longer is closed, which its caller has to expect at any time.
        let rests_since = rests_since.load(Relaxed);
        let grace = match rests_since {
            AT_WORK => 0,
            since => (since + NEXT_REQUEST).saturating_sub(clock::now()),
        };
        tokio::select! {
            // A request that is there is begun before the connection is told to end.
            biased;
            // What goes wrong is the caller's matter, or was said in the call's line.
            _ = poll_fn(|cx| clock::frozen(|| connection.as_mut().poll(cx))) => return,
            () = egress.drain.started(), if !draining => draining = true,
            () = tokio::time::sleep(Duration::from_micros(grace)), if draining && !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// A caller's connection, for all that belongs to it: also the tunnel that it may become.
pub(crate) struct Seat {
    egress: Arc<Egress>,
    /// An answer is not whole. Its caller must not take it for whole, which one that speaks HTTP/1.0 would, if the
    /// connection just ended: it is reset.
    cut: AtomicBool,
    /// What is read and comes to nothing.
    pub(crate) gauge: Gauge,
    /// One of `max_connections`.
    _place: OwnedSemaphorePermit,
}

impl Seat {
    fn new(egress: &Arc<Egress>, place: OwnedSemaphorePermit) -> Arc<Seat> {
        egress.figures.caller_came();
        Arc::new(Seat {
            egress: egress.clone(),
            cut: AtomicBool::new(false),
            gauge: Gauge::new(MAX_HEAD),
            _place: place,
        })
    }

    /// The connection is to be reset when it ends.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.egress.figures.caller_left();
    }
}

/// A caller's stream: it breaks where its caller takes nothing for [`SEND_TIMEOUT`], for an answer that is not taken holds
/// a connection to its origin.
struct Stream<S: AsFd> {
    inner: S,
    seat: Arc<Seat>,
    reading: Reading,
    /// Runs while the caller takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: AsFd> Stream<S> {
    fn new(inner: S, seat: Arc<Seat>) -> Stream<S> {
        Stream {
            inner,
            reading: Reading::new(seat.gauge.clone()),
            seat,
            stalled: None,
        }
    }

    /// What a write came to, or that it takes too long.
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

impl<S: AsyncRead + AsFd + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let inner = Pin::new(&mut this.inner);
        this.reading
            .poll(cx, buffer, |cx, buffer| inner.poll_read(cx, buffer))
    }
}

impl<S: AsyncWrite + AsFd + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.in_time(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, pieces);
        self.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: AsFd> Drop for Stream<S> {
    fn drop(&mut self) {
        if self.seat.cut.load(Relaxed) {
            // Where it cannot be reset, its caller sees its end.
            let _ = socket::reset_on_close(self.inner.as_fd());
        }
    }
}

/// A caller's connection is closed when no request came for that long, or its head does not come to its end.
const IDLE: Duration = Duration::from_secs(75);

/// How long a drain waits for the first request of a connection that was just made, and for the next one of a connection
/// that has just had one, µs.
const NEXT_REQUEST: u64 = 1_000_000;

/// In the place of the time since which a connection rests.
const AT_WORK: u64 = u64::MAX;

/// A caller that takes nothing of its answer for that long is cut off.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest head of a request, bytes.
const MAX_HEAD: usize = 64 << 10;
