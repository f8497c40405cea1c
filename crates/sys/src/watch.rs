//! Sockets that a tokio reactor watches for one direction only.
//!
//! tokio always watches its own sockets for both directions. A unix stream socket notifies the writer each time the
//! reader has read something. So a socket that is watched for writing causes one more wakeup for every message.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    task::{Context, Poll, ready},
};

use rustix::net::{self, RecvFlags};
use tokio::io::{Interest, unix::AsyncFd};

use crate::socket::send;

/// A connected socket. The reactor in which it was created watches it.
#[derive(Debug)]
pub struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Watches `socket`, which must be non-blocking, for input.
    ///
    /// # Errors
    /// As epoll_ctl(2). Panics outside of a tokio runtime with I/O.
    pub fn for_reading(socket: OwnedFd) -> io::Result<Self> {
        Self::new(socket, Interest::READABLE)
    }

    /// Watches `socket`, which must be non-blocking, for room to write.
    ///
    /// # Errors
    /// As [`for_reading`](Self::for_reading).
    pub fn for_writing(socket: OwnedFd) -> io::Result<Self> {
        Self::new(socket, Interest::WRITABLE)
    }

    fn new(socket: OwnedFd, interest: Interest) -> io::Result<Self> {
        // SAFETY: an `OwnedFd` names the same open descriptor for its whole life, and nobody can put another one in
        // its place: `AsyncFd` is private here and given out by value only, which ends the watch first.
        let watched = unsafe { AsyncFd::register_with_interest(socket, interest) };
        Ok(Self(watched.map_err(io::Error::from)?))
    }

    /// Stops watching.
    pub fn into_fd(self) -> OwnedFd {
        self.0.into_inner()
    }

    /// Reads the available bytes into `space`. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// As recv(2).
    pub fn poll_receive(&self, cx: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let receive = |socket: &AsyncFd<OwnedFd>| {
                let (count, _) = net::recv(socket.get_ref(), &mut *space, RecvFlags::DONTWAIT)?;
                Ok(count)
            };
            let Ok(received) = guard.try_io(receive) else {
                continue;
            };
            if matches!(received, Ok(count) if count > 0 && count < space.len()) {
                // Everything was read: the kernel will report the next byte (epoll(7), edge-triggered).
                guard.clear_ready();
            }
            return Poll::Ready(received);
        }
    }

    /// Whether input may have arrived since everything was read, as far as the reactor knows without a system call.
    pub fn may_receive(&self) -> bool {
        self.0.try_io(Interest::READABLE, |_| Ok(())).is_ok()
    }

    /// Writes as much of `bytes` as fits. Waits if there is no room.
    ///
    /// # Errors
    /// As [`send`].
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(sent) = guard.try_io(|socket| send(socket.get_ref().as_fd(), bytes)) {
                return Poll::Ready(sent);
            }
        }
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::poll_fn, os::unix::net::UnixStream};

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        runtime.unwrap().block_on(future)
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        other.set_nonblocking(true).unwrap();
        (one.into(), other.into())
    }

    #[test]
    fn what_is_sent_is_received_and_then_the_end() {
        run(async {
            let (here, there) = pair();
            let here = Watched::for_reading(here).unwrap();
            let mut space = [0; 16];
            for text in [&b"one"[..], b"two"] {
                assert_eq!(send(there.as_fd(), text).unwrap(), 3);
                let count = poll_fn(|cx| here.poll_receive(cx, &mut space))
                    .await
                    .unwrap();
                assert_eq!(&space[..count], text);
            }
            assert!(!here.may_receive());
            drop(there);
            tokio::task::yield_now().await;
            assert!(here.may_receive());
            assert_eq!(
                poll_fn(|cx| here.poll_receive(cx, &mut space))
                    .await
                    .unwrap(),
                0
            );
        });
    }

    #[test]
    fn a_full_socket_is_waited_for() {
        run(async {
            let (here, there) = pair();
            let bytes = vec![7; 1 << 16];
            let mut sent = 0;
            let full = loop {
                match send(here.as_fd(), &bytes) {
                    Ok(count) => sent += count,
                    Err(error) => break error,
                }
            };
            assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
            let here = Watched::for_writing(here).unwrap();
            let there = Watched::for_reading(there).unwrap();
            let mut space = vec![0; 1 << 20];
            let mut received = 0;
            while received < sent {
                received += poll_fn(|cx| there.poll_receive(cx, &mut space))
                    .await
                    .unwrap();
            }
            assert!(poll_fn(|cx| here.poll_send(cx, &bytes)).await.unwrap() > 0);
        });
    }
}
