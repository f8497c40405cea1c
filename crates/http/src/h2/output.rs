//! What `h2` has written and the socket has not got yet.
//!
//! `h2` writes the head of a frame and its payload at once, each frame by itself. For many small answers a record of TLS and a
//! system call for each would cost more than the answers. So what is small is put together until it fills a record, or until the
//! turn of the connection ends. What fills a record by itself goes past.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::AsyncWrite;
use weir_net::Socket;

use crate::buffers;

/// Bytes for the socket: no more than a record. An empty one holds no memory.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// How many of them the socket has.
    sent: usize,
    is_blocked: bool,
}

impl Output {
    /// Whether the kernel takes no more now.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Whether the kernel has everything.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.is_blocked
    }

    /// Takes bytes, and returns how many. They are sent when there are enough of them, or by [`Output::send`].
    pub(super) fn write(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_blocked {
            ready!(self.send(cx, socket))?;
        }
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        if self.bytes.is_empty() && all >= RECORD {
            let written = Pin::new(socket).poll_write_vectored(cx, slices);
            self.is_blocked = written.is_pending();
            return written;
        }
        if self.bytes.capacity() == 0 {
            self.bytes = buffers::output();
        }
        let count = all.min(RECORD - self.bytes.len());
        let mut left = count;
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            self.bytes.extend_from_slice(part);
            left -= part.len();
        }
        if self.bytes.len() == RECORD {
            // If the kernel does not take them now, they are taken all the same.
            let _ = self.send(cx, socket)?;
        }
        Poll::Ready(Ok(count))
    }

    /// Gives everything to the kernel.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
    ) -> Poll<io::Result<()>> {
        let sent = self.try_send(cx, socket);
        self.is_blocked = sent.is_pending();
        if let Poll::Ready(Ok(())) = sent {
            self.sent = 0;
            buffers::give_back(std::mem::take(&mut self.bytes));
        }
        sent
    }

    fn try_send(&mut self, cx: &mut Context<'_>, socket: &mut Socket) -> Poll<io::Result<()>> {
        while self.sent < self.bytes.len() {
            let rest = &self.bytes[self.sent..];
            match ready!(Pin::new(&mut *socket).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.sent += count,
            }
        }
        Pin::new(socket).poll_flush(cx)
    }
}

/// The most plain bytes of a record of TLS (RFC 8446 §5.1).
const RECORD: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{ErrorKind, Read},
        os::unix::net::UnixStream,
        task::Waker,
    };
    use tokio::runtime::{Builder, LocalOptions};

    /// A socket, and its other end.
    fn pair() -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        (Socket::watch(ours.into(), false).unwrap(), theirs)
    }

    /// What has come.
    fn received(theirs: &mut UnixStream) -> Vec<u8> {
        let mut all = Vec::new();
        let end = theirs.read_to_end(&mut all).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::WouldBlock);
        all
    }

    fn on_a_reactor(act: impl AsyncFnOnce()) {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_all().build_local(LocalOptions::default());
        runtime.unwrap().block_on(act());
    }

    #[test]
    fn small_writes_are_sent_together() {
        on_a_reactor(async || {
            let (mut socket, mut theirs) = pair();
            socket_is_ready(&socket).await;
            let mut output = Output::default();
            let cx = &mut Context::from_waker(Waker::noop());
            let mut write = |output: &mut Output, bytes: &[u8]| {
                let slices = [&b"head"[..], bytes].map(IoSlice::new);
                match output.write(cx, &mut socket, &slices) {
                    Poll::Ready(Ok(count)) => count,
                    other => panic!("{other:?}"),
                }
            };
            for _ in 0..10 {
                assert_eq!(write(&mut output, &[1; 1000]), 1004);
            }
            assert!(received(&mut theirs).is_empty());
            assert!(!output.is_empty());
            // So much that a record is whole.
            assert_eq!(write(&mut output, &[2; 10_000]), RECORD - 10_040);
            assert_eq!(received(&mut theirs).len(), RECORD);
            assert!(output.is_empty());
            // A whole record waits for nothing.
            assert_eq!(write(&mut output, &[3; RECORD]), RECORD + 4);
            assert_eq!(received(&mut theirs).len(), RECORD + 4);
            assert_eq!(write(&mut output, b"a little"), 12);
            assert!(output.send(cx, &mut socket).is_ready());
            assert_eq!(received(&mut theirs), b"heada little");
            assert!(output.is_empty());
            assert_eq!(output.bytes.capacity(), 0);
        });
    }

    #[test]
    fn a_client_that_does_not_read_gets_everything_later() {
        on_a_reactor(async || {
            let (mut socket, mut theirs) = pair();
            let mut output = Output::default();
            let (mut sent, mut got) = (Vec::new(), Vec::new());
            let mut number = 0_u32;
            let mut stops = 0;
            while stops < 50 {
                // Of all sizes: those that are put together, and those that go past.
                number = number.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
                let size = number as usize % (2 * RECORD);
                let bytes: Vec<u8> = (0..size).map(|at| (at as u32 ^ number) as u8).collect();
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (head, tail) = rest.split_at(rest.len().min(9));
                    let slices = [head, tail].map(IoSlice::new);
                    let cx = &mut Context::from_waker(Waker::noop());
                    match output.write(cx, &mut socket, &slices) {
                        Poll::Ready(count) => rest = &rest[count.unwrap()..],
                        Poll::Pending => {
                            assert!(output.is_blocked());
                            stops += 1;
                            got.extend(received(&mut theirs));
                            // The reactor learns that there is space.
                            socket_is_ready(&socket).await;
                        }
                    }
                }
                sent.extend(bytes);
            }
            while !output.is_empty() {
                got.extend(received(&mut theirs));
                let send = std::future::poll_fn(|cx| output.send(cx, &mut socket));
                send.await.unwrap();
            }
            got.extend(received(&mut theirs));
            assert!(got == sent, "{} and {} bytes", got.len(), sent.len());
        });
    }

    async fn socket_is_ready(socket: &Socket) {
        let ready = std::future::poll_fn(|cx| socket.poll_write_ready(cx));
        ready.await.unwrap();
    }

    #[test]
    fn what_a_broken_socket_says_is_told() {
        on_a_reactor(async || {
            let (mut socket, theirs) = pair();
            drop(theirs);
            let mut output = Output::default();
            let cx = &mut Context::from_waker(Waker::noop());
            let slices = [IoSlice::new(b"a")];
            assert!(output.write(cx, &mut socket, &slices).is_ready());
            let sent = output.send(cx, &mut socket);
            let Poll::Ready(Err(error)) = sent else {
                panic!("{sent:?}");
            };
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        });
    }
}
