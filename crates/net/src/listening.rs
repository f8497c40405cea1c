//! Listening sockets, TCP and unix, used as one type, and the loop that accepts from them.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
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

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        match self {
            Listening::Tcp(listener) => (listener.poll_accept(cx))
                .map_ok(|(stream, peer)| (Socket::Tcp(stream), Some(peer))),
            Listening::Unix(listener) => {
                (listener.poll_accept(cx)).map_ok(|(stream, _)| (Socket::Unix(stream), None))
            }
        }
    }
}

/// An accepted connection: its socket, and over TCP the address of its peer.
pub type Accepted = (Socket, Option<SocketAddr>);

/// Accepts connections from some listening sockets, in turns. Errors are logged and tried again.
#[derive(Debug, Default)]
pub struct Acceptor {
    /// With their names in log lines.
    sockets: Vec<(String, Listening)>,
    /// The socket that is asked first.
    first: usize,
}

/// Listening sockets of all acceptors.
static ACCEPTING: AtomicUsize = AtomicUsize::new(0);

/// How many listening sockets this process accepts from.
pub fn accepting() -> usize {
    ACCEPTING.load(Relaxed)
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        ACCEPTING.fetch_sub(self.sockets.len(), Relaxed);
    }
}

impl Acceptor {
    /// Accepts from one socket.
    ///
    /// # Errors
    ///
    /// As [`Listening::new`].
    pub fn new(name: String, fd: OwnedFd, is_tcp: bool) -> io::Result<Acceptor> {
        let mut acceptor = Acceptor::default();
        acceptor.add(name, Listening::new(fd, is_tcp)?);
        Ok(acceptor)
    }

    /// Adds a listening socket, whose `name` is for log lines. Sockets are numbered in this order.
    pub fn add(&mut self, name: String, socket: Listening) {
        self.sockets.push((name, socket));
        ACCEPTING.fetch_add(1, Relaxed);
    }

    /// Waits for a connection on any of the sockets. Also returns the number of its socket. Nothing is lost if the future
    /// is dropped.
    pub async fn accept(&mut self) -> (usize, Accepted) {
        loop {
            match poll_fn(|cx| self.poll_accept(cx)).await {
                (number, Ok(accepted)) => return (number, accepted),
                (number, Err(error)) => self.after(number, error).await,
            }
        }
    }

    /// The next connection that is in the kernel's queues now. Closing the sockets would reset it.
    pub async fn accept_queued(&mut self) -> Option<(usize, Accepted)> {
        // The queues count as empty after two empty results with a yield in between: tokio also reports "nothing" to a
        // task that has used up its budget.
        let mut is_empty = false;
        loop {
            let accepting = poll_fn(|cx| self.poll_accept(cx));
            match tokio::time::timeout(Duration::ZERO, accepting).await {
                Ok((number, Ok(accepted))) => return Some((number, accepted)),
                Ok((number, Err(error))) => {
                    is_empty = false;
                    self.after(number, error).await;
                }
                Err(_) if std::mem::replace(&mut is_empty, true) => return None,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<(usize, io::Result<Accepted>)> {
        let count = self.sockets.len();
        for number in (self.first..count).chain(0..self.first) {
            if let Poll::Ready(accepted) = self.sockets[number].1.poll_accept(cx) {
                self.first = (number + 1) % count;
                return Poll::Ready((number, accepted));
            }
        }
        Poll::Pending
    }

    /// Logs an error, and waits for a while, unless the error is that of one connection.
    async fn after(&self, number: usize, error: io::Error) {
        if !is_of_one_connection(&error) {
            let name = &self.sockets[number].0;
            log::error!(
                "cannot accept connections on {name}: {error}; trying again in {ACCEPT_PAUSE:?}"
            );
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Errors that accept(2) reports for the accepted connection, not for the listener (accept(2), "Error handling").
fn is_of_one_connection(error: &io::Error) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_take_turns_and_nothing_in_their_queues_is_lost() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut acceptor, mut clients) = (Acceptor::default(), Vec::new());
            for _ in 0..2 {
                let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let address = socket.local_addr().unwrap();
                for _ in 0..3 {
                    clients.push(std::net::TcpStream::connect(address).unwrap());
                }
                let socket = Listening::new(socket.into(), true).unwrap();
                acceptor.add(address.to_string(), socket);
            }
            let (first, (_, peer)) = acceptor.accept().await;
            assert!(peer.is_some());
            let (second, _) = acceptor.accept().await;
            assert_ne!(first, second);
            for _ in 2..clients.len() {
                assert!(acceptor.accept_queued().await.is_some());
            }
            assert!(acceptor.accept_queued().await.is_none());
        });
    }
}
