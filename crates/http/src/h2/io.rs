//! The socket of a connection.

use std::{
    io,
    os::fd::AsFd,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_net::Socket;

use super::output::Output;
use crate::{ConnState, buffers};

/// The socket, and how much it still reads in this turn.
#[derive(Debug)]
pub(super) struct Io {
    /// `None` once it was taken.
    socket: Option<Socket>,
    /// Bytes that may still be read in this turn.
    budget: usize,
}

impl Io {
    pub(super) fn new(socket: Socket) -> Io {
        Io {
            socket: Some(socket),
            budget: TURN_BYTES,
        }
    }

    /// Begins a turn. False: it reads nothing.
    pub(super) fn begin_turn(&mut self, may_read: bool) {
        self.budget = if may_read { TURN_BYTES } else { 0 };
    }

    /// Whether this turn has read so much that others are to have theirs.
    pub(super) fn is_used_up(&self) -> bool {
        self.budget == 0
    }

    /// Reads, and gives the bytes to `take`; none at the end.
    pub(super) fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Poll<io::Result<T>> {
        let Some(socket) = &mut self.socket else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        buffers::with_input(|input| {
            let most = input.len().min(self.budget);
            let mut buf = ReadBuf::new(&mut input[..most]);
            ready!(Pin::new(socket).poll_read(cx, &mut buf))?;
            self.budget -= buf.filled().len();
            Poll::Ready(Ok(take(buf.filled())))
        })
    }

    /// Gives the kernel what waits. `Pending`: it does not take everything now.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Output,
    ) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Some(_) if out.is_empty() => Poll::Ready(Ok(())),
            Some(socket) => out.send(cx, socket),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Notes in the connection's state whether a write waits for the client.
    pub(super) fn note_write(&self, is_blocked: bool, state: &ConnState) {
        if let Some(socket) = &self.socket {
            state.note_write(is_blocked, socket);
        }
    }

    /// Closes the socket, perhaps with a reset.
    pub(super) fn close(&mut self, is_reset: bool) {
        if let Some(mut socket) = self.socket.take() {
            if is_reset {
                // If the option cannot be set, the connection is closed normally.
                let _ = weir_sys::socket::reset_on_close(socket.as_fd());
            }
            // Shutting down a socket never waits.
            let _ = Pin::new(&mut socket).poll_shutdown(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Gives up the space of buffers: the client sends nothing for a while.
    pub(super) fn shrink(&mut self) {
        if let Some(socket) = &mut self.socket {
            socket.shrink();
        }
    }

    pub(super) fn take_socket(&mut self) -> Option<Socket> {
        self.socket.take()
    }
}

/// Bytes that a connection may read in one turn.
pub(super) const TURN_BYTES: usize = 256 * 1024;
