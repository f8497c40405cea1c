//! CONNECT: passes on bytes that weir does not parse.
//!
//! Such a call cannot share a connection with others, and neither its path nor its headers can be checked: this is
//! logged once per origin.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional},
    net::TcpStream,
};

use weir_net::Socket;

/// What a tunnel has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Bytes from the caller to the origin.
    pub(crate) up: u64,
    /// Bytes from the origin to the caller.
    pub(crate) down: u64,
    /// It was ended because both sides were silent for too long.
    pub(crate) silent: bool,
}

/// Carries bytes in both directions until both sides have ended, one of them breaks, or both are silent for `idle`.
/// The silence may last up to twice as long, because the timer is not reset with each byte. `ahead`: the first bytes
/// of the caller.
pub(crate) async fn carry(
    caller: Socket,
    ahead: Vec<u8>,
    mut origin: TcpStream,
    idle: Duration,
) -> Carried {
    let (up, down) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let carried = |silent| Carried {
        up: up.load(Relaxed),
        down: down.load(Relaxed),
        silent,
    };
    let both = async {
        origin.write_all(&ahead).await?;
        up.fetch_add(ahead.len() as u64, Relaxed);
        let mut caller = Counted(caller, up.clone());
        let mut origin = Counted(origin, down.clone());
        copy_bidirectional(&mut caller, &mut origin).await
    };
    let mut both = std::pin::pin!(both);
    let mut seen = None;
    loop {
        if tokio::time::timeout(idle, both.as_mut()).await.is_ok() {
            return carried(false);
        }
        let now = Some((up.load(Relaxed), down.load(Relaxed)));
        if now == seen {
            return carried(true);
        }
        seen = now;
    }
}

/// Counts the bytes that are read from a stream.
struct Counted<S>(S, Arc<AtomicU64>);

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.0).poll_read(cx, buffer);
        self.1
            .fetch_add((buffer.filled().len() - before) as u64, Relaxed);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
