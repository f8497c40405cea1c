//! A WebSocket between a client and a server: passes on what both send, until both have ended.
//!
//! A tunnel that is silent holds two sockets and no buffer: bytes are read into memory that all tunnels of a thread share, and
//! only what the other side does not take at once is kept. It has no time limit, because a WebSocket may be silent for hours: the
//! kernel looks each minute whether a silent client or server is still there. A reload leaves it alone; when the time of its
//! gateway is over ([`Gateway`]'s `cut`), both sides are told (1012).

use std::{
    cell::RefCell,
    io,
    os::fd::AsFd,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};
use weir_http::Tunnel;
use weir_net::Socket;

use super::websocket::{Frames, TO_CLIENT, TO_SERVER};
use crate::{Gateway, scripts::run::connection::WorkerConn};

/// The tunnel of a client that has asked for it to `server`. `ahead`: what the server has sent already.
pub(in crate::scripts) fn between(
    gateway: &'static Gateway,
    server: WorkerConn,
    ahead: Vec<u8>,
) -> Tunnel {
    Tunnel(Box::new(move |client, from_client| {
        watch_peer(&client);
        watch_peer(&server);
        Box::pin(Carrying {
            gateway,
            client,
            server,
            up: Way::of(from_client),
            down: Way::of(ahead),
            last: None,
        })
    }))
}

/// The kernel ends a connection whose other side is gone.
pub(super) fn watch_peer(socket: &impl AsFd) {
    let often = TcpKeepalive::new()
        .with_time(LOOK)
        .with_interval(LOOK / 4)
        .with_retries(4);
    // A unix socket has no such option, and needs none.
    let _ = SockRef::from(socket).set_tcp_keepalive(&often);
}

/// Two connections that have become one.
struct Carrying {
    gateway: &'static Gateway,
    client: Socket,
    server: WorkerConn,
    /// From the client to the server.
    up: Way,
    down: Way,
    /// One side has ended: for how long the other one may still send.
    last: Option<Pin<Box<Sleep>>>,
}

/// One direction.
#[derive(Debug, Default)]
struct Way {
    /// Bytes that were read, from `at` on not passed on yet.
    waiting: Vec<u8>,
    at: usize,
    frames: Frames,
    /// Written bytes may be held back by TLS.
    is_unflushed: bool,
    /// The sender has ended.
    has_ended: bool,
    /// The receiver was told so, or takes nothing more.
    is_over: bool,
}

thread_local! {
    /// All tunnels of a thread read into this buffer.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIECE].into_boxed_slice());
}

impl Future for Carrying {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let up = this.up.poll(cx, &mut this.client, &mut this.server);
        let down = this.down.poll(cx, &mut this.server, &mut this.client);
        match (up, down) {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => return Poll::Ready(()),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(()),
            (Poll::Pending, Poll::Pending) => return Poll::Pending,
            _ => {}
        }
        let last = (this.last).get_or_insert_with(|| Box::pin(tokio::time::sleep(LAST_WORDS)));
        last.as_mut().poll(cx)
    }
}

impl Drop for Carrying {
    fn drop(&mut self) {
        if !self.gateway.cut.has_started() {
            return;
        }
        // The thread ends: what the kernel does not take now is not sent.
        let mut cx = Context::from_waker(Waker::noop());
        self.down.say(&mut cx, &mut self.client, TO_CLIENT);
        self.up.say(&mut cx, &mut self.server, TO_SERVER);
    }
}

impl Way {
    /// With bytes that were read before.
    fn of(ahead: Vec<u8>) -> Way {
        let mut way = Way {
            waiting: ahead,
            ..Way::default()
        };
        way.frames.take(&way.waiting);
        way
    }

    /// Passes on what comes. Ready when the sender has ended, and the receiver has all.
    ///
    /// # Errors
    ///
    /// One of the connections broke.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        for _ in 0..TURN {
            ready!(self.poll_write(cx, to))?;
            if self.is_over {
                return Poll::Ready(Ok(()));
            }
            if self.has_ended {
                ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                self.is_over = true;
                continue;
            }
            ready!(self.poll_read(cx, from, to))?;
        }
        // Others go first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads a piece, and writes what the receiver takes at once.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(from).poll_read(cx, &mut buffer))?;
            let mut bytes = buffer.filled();
            self.has_ended = bytes.is_empty();
            self.frames.take(bytes);
            while !bytes.is_empty() {
                match Pin::new(&mut *to).poll_write(cx, bytes) {
                    Poll::Ready(written) => bytes = &bytes[written?..],
                    Poll::Pending => {
                        self.waiting.extend_from_slice(bytes);
                        break;
                    }
                }
                self.is_unflushed = true;
            }
            Poll::Ready(Ok(()))
        })
    }

    /// Writes what waits.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        while self.at < self.waiting.len() {
            let written = Pin::new(&mut *to).poll_write(cx, &self.waiting[self.at..]);
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.at += written,
            }
            self.is_unflushed = true;
        }
        (self.waiting, self.at) = (Vec::new(), 0);
        if self.is_unflushed {
            ready!(Pin::new(&mut *to).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends a frame to the receiver, if no other one is on its way.
    fn say(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
        frame: &'static [u8],
    ) {
        if self.frames.is_between() && !self.is_over && self.waiting.is_empty() {
            self.waiting.extend_from_slice(frame);
            let _ = self.poll_write(cx, to);
        }
    }
}

/// How much is read at once, bytes.
const PIECE: usize = 16 * 1024;

/// After so many pieces others go first.
const TURN: usize = 8;

/// When one side has ended, the other one may send for so long.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How often the kernel looks whether the other side of a silent connection is there.
const LOOK: Duration = Duration::from_secs(60);
