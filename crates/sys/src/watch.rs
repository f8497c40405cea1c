//! Sockets that a tokio reactor watches for one direction only.
//!
//! tokio's own sockets are always watched for both. A unix stream socket tells its writer each time that its reader
//! has taken something, so that a socket which is watched for writing wakes its owner once more for every message.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    task::{Context, Poll, Waker, ready},
};

use rustix::net::{self, RecvFlags, SendFlags};
use tokio::io::{Interest, unix::AsyncFd};

/// A connected socket, watched by the reactor in which it was made.
#[derive(Debug)]
pub struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Watches `socket`, which must be non-blocking, for something to read.
    ///
    /// # Errors
    /// As epoll_ctl(2). Outside of a tokio runtime with I/O it panics.
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

    /// Ends the watch.
    pub fn into_fd(self) -> OwnedFd {
        self.0.into_inner()
    }

    /// Reads what there is into `space`; 0 at the end of the stream.
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
                // All that there was: the next byte is told by the kernel (epoll(7), edge-triggered).
                guard.clear_ready();
            }
            return Poll::Ready(received);
        }
    }

    /// Whether something may have come since all was read: what the reactor knows without asking the kernel. Whoever
    /// waits for something to read is forgotten.
    pub fn may_receive(&self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        self.0.poll_read_ready(&mut nobody).is_ready()
    }

    /// Writes as much of `bytes` as there is room for, waiting for room where there is none.
    ///
    /// # Errors
    /// As [`send_now`].
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(sent) = guard.try_io(|socket| send_now(socket.get_ref().as_fd(), bytes)) {
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

/// Writes as much of `bytes` to a connected socket as there is room for now.
///
/// # Errors
/// As send(2), without its signal; `WouldBlock` where there is no room.
pub fn send_now(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(net::send(
        socket,
        bytes,
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    )?)
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
                assert_eq!(send_now(there.as_fd(), text).unwrap(), 3);
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
                match send_now(here.as_fd(), &bytes) {
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
