//! Frames that wait to be written to the socket.
//!
//! For many small answers a record of TLS and a system call for each would cost more than the answers. So small frames
//! are collected until they fill a record, or until the turn of the connection ends. A frame that fills a record by
//! itself is not copied.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;
use weir_net::Socket;

use super::frames::{DATA, END_STREAM, FrameHead, HEAD};
use crate::buffers;

/// Bytes for the socket. An empty one holds no memory.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// How many of them the socket has.
    sent: usize,
    /// The bytes after them.
    tail: Bytes,
    /// The bytes after all that, in a separate write.
    behind: Vec<u8>,
    is_blocked: bool,
}

impl Output {
    /// Whether the kernel takes no more now.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Whether the kernel has everything.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting() == 0 && !self.is_blocked
    }

    /// Whether so much waits that it is worth a record.
    pub(super) fn is_enough(&self) -> bool {
        self.waiting() >= RECORD
    }

    /// How many bytes wait.
    pub(super) fn waiting(&self) -> usize {
        self.bytes.len() - self.sent + self.tail.len() + self.behind.len()
    }

    /// To put frames behind everything that waits, in a write of their own. A RST_STREAM that follows an answer belongs there: curl up to
    /// 7.88 drops an answer that it reads together with it.
    pub(super) fn behind(&mut self) -> &mut Vec<u8> {
        &mut self.behind
    }

    /// To put frames behind what waits.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = buffers::output();
        }
        if !self.tail.is_empty() {
            self.bytes.extend_from_slice(&self.tail);
            self.tail = Bytes::new();
        }
        &mut self.bytes
    }

    /// Adds a frame with a part of a body.
    pub(super) fn put_data(&mut self, stream: u32, data: Bytes, is_last: bool) {
        let head = FrameHead {
            length: data.len(),
            kind: DATA,
            flags: if is_last { END_STREAM } else { 0 },
            stream,
        };
        let bytes = self.bytes();
        bytes.extend_from_slice(&head.bytes());
        match data.len() + HEAD >= RECORD {
            true => self.tail = data,
            false => bytes.extend_from_slice(&data),
        }
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
        while self.waiting() > 0 {
            if self.sent == self.bytes.len() && self.tail.is_empty() {
                self.sent = 0;
                self.bytes.clear();
                self.bytes.append(&mut self.behind);
                self.behind = Vec::new();
            }
            let rest = &self.bytes[self.sent..];
            let socket = Pin::new(&mut *socket);
            let written = match self.tail.is_empty() {
                true => socket.poll_write(cx, rest),
                false => {
                    let slices = [IoSlice::new(rest), IoSlice::new(&self.tail)];
                    socket.poll_write_vectored(cx, &slices)
                }
            };
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => {
                    let of_bytes = count.min(rest.len());
                    self.sent += of_bytes;
                    self.tail.advance(count - of_bytes);
                }
            }
        }
        Pin::new(socket).poll_flush(cx)
    }
}

/// The most plain bytes of a record of TLS (RFC 8446 §5.1).
pub(super) const RECORD: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{ErrorKind, Read},
        os::unix::net::{UnixDatagram, UnixStream},
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

    /// The bytes that have arrived.
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
    fn small_frames_wait_and_a_whole_record_is_not_copied() {
        on_a_reactor(async || {
            let (mut socket, mut theirs) = pair();
            socket_is_ready(&socket).await;
            let mut output = Output::default();
            let cx = &mut Context::from_waker(Waker::noop());
            for _ in 0..10 {
                output.put_data(1, Bytes::from(vec![1; 1000]), false);
            }
            assert!(received(&mut theirs).is_empty());
            assert!(!output.is_empty() && !output.is_enough());
            output.put_data(3, Bytes::from(vec![2; 10_000]), true);
            assert!(output.is_enough());
            let whole = Bytes::from(vec![3; RECORD - HEAD]);
            output.put_data(5, whole.clone(), false);
            assert_eq!(output.tail.as_ptr(), whole.as_ptr());
            assert_eq!(output.waiting(), 10 * 1009 + 10_009 + RECORD);
            assert!(output.send(cx, &mut socket).is_ready());
            let got = received(&mut theirs);
            assert_eq!(got.len(), 10 * 1009 + 10_009 + RECORD);
            assert!(got.ends_with(&whole));
            let third = FrameHead::of(&got[10 * 1009..]).unwrap();
            assert_eq!((third.length, third.stream), (10_000, 3));
            assert!(third.has(END_STREAM));
            assert!(output.is_empty());
            assert_eq!(output.bytes.capacity(), 0);
        });
    }

    #[test]
    fn what_goes_behind_has_a_write_of_its_own() {
        on_a_reactor(async || {
            // Datagrams, because they keep writes apart.
            let (ours, theirs) = UnixDatagram::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let mut socket = Socket::watch(ours.into(), false).unwrap();
            socket_is_ready(&socket).await;
            let mut output = Output::default();
            let cx = &mut Context::from_waker(Waker::noop());
            output.put_data(1, Bytes::from_static(b"answer"), true);
            output.behind().extend_from_slice(b"reset");
            output.bytes().extend_from_slice(b"another");
            assert!(!output.is_empty());
            assert!(output.send(cx, &mut socket).is_ready());
            assert!(output.is_empty());
            let mut packet = [0; 64];
            let first = theirs.recv(&mut packet).unwrap();
            assert!(packet[..first].ends_with(b"answeranother"));
            let second = theirs.recv(&mut packet).unwrap();
            assert_eq!(&packet[..second], b"reset");
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
                // Pieces of all sizes: small ones that are put together, large ones that are not copied, and pieces
                // after a large one.
                number = number.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
                let size = number as usize % (2 * RECORD);
                let bytes: Vec<u8> = (0..size).map(|at| (at as u32 ^ number) as u8).collect();
                output.put_data(number >> 1, bytes.clone().into(), false);
                let head = FrameHead {
                    length: size,
                    kind: DATA,
                    flags: 0,
                    stream: number >> 1,
                };
                sent.extend_from_slice(&head.bytes());
                sent.extend(bytes);
                let cx = &mut Context::from_waker(Waker::noop());
                if output.is_enough() && output.send(cx, &mut socket).is_pending() {
                    assert!(output.is_blocked());
                    stops += 1;
                    got.extend(received(&mut theirs));
                    // The reactor learns that there is space.
                    socket_is_ready(&socket).await;
                }
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
            output.bytes().push(b'a');
            let sent = output.send(cx, &mut socket);
            let Poll::Ready(Err(error)) = sent else {
                panic!("{sent:?}");
            };
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        });
    }
}
