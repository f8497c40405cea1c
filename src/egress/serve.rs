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
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    time::Sleep,
};
use weir_sys::socket;

use crate::clock;

use super::{Egress, body::Answer, call, callers::Peer};

/// Serves a caller that came over TCP.
pub(crate) async fn serve_tcp(egress: Arc<Egress>, stream: TcpStream, address: SocketAddr) {
    // It is gone already where that is not known any more.
    let Ok(own) = stream.local_addr() else { return };
    let peer = egress.callers.over_tcp(own, address);
    serve(egress, stream, peer).await;
}

/// Serves a caller that came over a unix socket.
pub(crate) async fn serve_unix(egress: Arc<Egress>, stream: UnixStream) {
    let peer = egress.callers.over_unix(&stream);
    serve(egress, stream, peer).await;
}

async fn serve<S>(egress: Arc<Egress>, stream: S, peer: Arc<Peer>)
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static,
{
    let cut = Cut::default();
    let stream = Stream::new(stream, cut.clone());
    egress.figures.caller_came();
    let _leaves = Leaves(egress.clone());
    let service = service_fn(|request: Request<Incoming>| {
        let (egress, peer, cut) = (egress.clone(), peer.clone(), cut.clone());
        async move { Ok::<Response<Answer>, Infallible>(call::call(egress, peer, cut, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(MAX_HEAD)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut draining = false;
    loop {
        tokio::select! {
            // What goes wrong is the caller's matter, or was said in the call's line.
            _ = poll_fn(|cx| clock::frozen(|| connection.as_mut().poll(cx))) => return,
            () = egress.drain.started(), if !draining => {
                draining = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// An answer over a connection is not whole. Its caller must not take it for whole, which one that speaks HTTP/1.0 would, if
/// the connection just ended: it is reset.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cut(Arc<AtomicBool>);

impl Cut {
    /// The connection is to be reset.
    pub(crate) fn mark(&self) {
        self.0.store(true, Relaxed);
    }
}

/// A caller's stream: it breaks where its caller takes nothing for [`SEND_TIMEOUT`], for an answer that is not taken holds
/// a connection to its origin.
struct Stream<S: AsFd> {
    inner: S,
    cut: Cut,
    /// Runs while the caller takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: AsFd> Stream<S> {
    fn new(inner: S, cut: Cut) -> Stream<S> {
        Stream {
            inner,
            cut,
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
            self.cut.mark();
            Err(io::ErrorKind::TimedOut.into())
        })
    }
}

impl<S: AsyncRead + AsFd + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
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
        if self.cut.0.load(Relaxed) {
            // Where it cannot be reset, its caller sees its end.
            let _ = socket::reset_on_close(self.inner.as_fd());
        }
    }
}

/// A caller's connection, counted until it ends.
struct Leaves(Arc<Egress>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.figures.caller_left();
    }
}

/// A caller's connection is closed when no request came for that long, or its head does not come to its end.
const IDLE: Duration = Duration::from_secs(75);

/// A caller that takes nothing of its answer for that long is cut off.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest head of a request, bytes.
const MAX_HEAD: usize = 64 << 10;
