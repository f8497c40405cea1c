//! Listening sockets, TCP and unix, used as one type.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    task::{Context, Poll},
    time::Duration,
};

use socket2::SockRef;
use tokio::net::{TcpListener, UnixListener};

use super::Socket;

/// A listening socket that one task accepts from.
#[derive(Debug)]
pub enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listening {
    /// Lets this reactor watch a listening socket.
    ///
    /// # Errors
    ///
    /// If an option cannot be set (fcntl(2), setsockopt(2)), or the reactor cannot watch it (epoll_ctl(2)).
    pub fn new(fd: OwnedFd, is_tcp: bool) -> io::Result<Listening> {
        Ok(match is_tcp {
            true => {
                let listener = std::net::TcpListener::from(fd);
                listener.set_nonblocking(true)?;
                // Accepted connections inherit this. Answers are written whole, so Nagle's algorithm would only delay
                // them.
                SockRef::from(&listener).set_tcp_nodelay(true)?;
                Listening::Tcp(TcpListener::from_std(listener)?)
            }
            false => {
                let listener = std::os::unix::net::UnixListener::from(fd);
                listener.set_nonblocking(true)?;
                Listening::Unix(UnixListener::from_std(listener)?)
            }
        })
    }

    /// Waits for a connection: its socket, and over TCP the address of its peer.
    ///
    /// # Errors
    ///
    /// As accept(2); see [`is_of_one_connection`].
    pub async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`accept`](Self::accept). Only the task that polled last is woken.
    pub fn poll_accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Socket, Option<SocketAddr>)>> {
        match self {
            Listening::Tcp(listener) => (listener.poll_accept(cx))
                .map_ok(|(stream, peer)| (Socket::Tcp(stream), Some(peer))),
            Listening::Unix(listener) => {
                (listener.poll_accept(cx)).map_ok(|(stream, _)| (Socket::Unix(stream), None))
            }
        }
    }
}

/// Errors that accept(2) reports for the accepted connection, not for the listener (accept(2), "Error handling").
pub fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::Interrupted
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
    )
}

/// Pause after accept(2) failed for lack of descriptors or memory: other connections must end first.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
