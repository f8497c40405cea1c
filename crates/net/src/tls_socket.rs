//! A socket with TLS: moves the bytes of a [`Session`], and gives files to it.
//!
//! A write is done when the kernel has the encrypted bytes. Until then the caller tries again with the same bytes, as
//! with any other socket, so that everything that counts bytes or waits for the client works as without TLS. A reactor
//! reads all sockets into the same buffer.

use std::{
    cell::RefCell,
    io::{self, IoSlice, Write},
    os::fd::BorrowedFd,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_tls::{Broken, Session};

use super::Socket;

/// A socket with TLS.
#[derive(Debug)]
pub struct TlsSocket {
    inner: Socket,
    session: Box<Session>,
}

thread_local! {
    /// Bytes that were read from a socket and not processed yet.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into());
    /// The part of a file that is to be encrypted.
    static PLAIN: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIECE].into());
}

impl TlsSocket {
    /// `inner` has no TLS.
    pub(crate) fn new(inner: Socket, session: Box<Session>) -> TlsSocket {
        TlsSocket { inner, session }
    }

    pub(crate) fn inner(&self) -> &Socket {
        &self.inner
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn shrink(&mut self) {
        self.session.shrink();
    }

    pub(crate) fn into_parts(self) -> (Socket, Box<Session>) {
        (self.inner, self.session)
    }

    /// Tells the client of a handshake that waits for a certificate that there is none, if the kernel takes the alert
    /// at once.
    pub(crate) fn refuse(&mut self, cx: &mut Context<'_>) {
        self.session.refuse();
        let _ = self.poll_send(cx);
    }

    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.info().is_none() {
            if self.session.is_paused() {
                let gone_on = self.session.resume(cx.waker());
                // The bytes that have come meanwhile.
                let gone_on = gone_on.and_then(|gone_on| match gone_on {
                    true => self.session.receive(&[], &mut []).map(|_| true),
                    false => Ok(false),
                });
                match gone_on {
                    // The handshake may pause again, and wait for something else.
                    Ok(true) => {
                        let _ = self.poll_send(cx)?;
                        continue;
                    }
                    // weir notices a client that leaves.
                    Ok(false) => {}
                    Err(broken) => return Poll::Ready(Err(self.broken(cx, broken))),
                }
            }
            match ready!(self.poll_receive(cx, &mut []))? {
                Received::Some(_) => {}
                Received::End => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            }
        }
        // The rest of the handshake, such as tickets, is sent with the first answer if the socket is full.
        let _ = self.poll_send(cx)?;
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.session.is_plain() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let space = buf.initialize_unfilled();
        let count = match self.session.receive(&[], space) {
            Ok(count) => count,
            Err(broken) => return Poll::Ready(Err(self.broken(cx, broken))),
        };
        if count > 0 || self.session.has_ended() {
            buf.advance(count);
            return Poll::Ready(Ok(()));
        }
        loop {
            match ready!(self.poll_receive(cx, space))? {
                Received::Some(0) => {}
                Received::Some(count) => {
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Received::End => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Reads once from the socket, and puts plain bytes into `space`.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<Received>> {
        let received = SCRATCH.with_borrow_mut(|scratch| {
            let mut read = ReadBuf::new(scratch);
            match Pin::new(&mut self.inner).poll_read(cx, &mut read) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) if read.filled().is_empty() => Poll::Ready(Ok(None)),
                Poll::Ready(Ok(())) => {
                    Poll::Ready(Ok(Some(self.session.receive(read.filled(), space))))
                }
            }
        });
        let received = match received {
            Poll::Pending => {
                // The handshake may have bytes to send. Its waker is the same.
                let _ = self.poll_send(cx)?;
                return Poll::Pending;
            }
            Poll::Ready(received) => received?,
        };
        Poll::Ready(match received {
            None => Ok(Received::End),
            Some(Err(broken)) => Err(self.broken(cx, broken)),
            Some(Ok(count)) => {
                let _ = self.poll_send(cx)?;
                match (count, self.session.has_ended()) {
                    (0, true) => Ok(Received::End),
                    (count, _) => Ok(Received::Some(count)),
                }
            }
        })
    }

    /// Sends the alert, if the kernel takes it at once.
    fn broken(&mut self, cx: &mut Context<'_>, broken: Broken) -> io::Error {
        let _ = self.poll_send(cx);
        io::Error::other(Failed(broken))
    }

    /// Sends what is encrypted.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_to_send() {
            match self.session.send(&mut Raw(&mut self.inner)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.inner.poll_write_ready(cx))?;
                    // Only this call tells whether the socket is full.
                    match self.session.send(&mut Watched(&mut self.inner)) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        sent => drop(sent?),
                    }
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.session.is_plain() {
            return Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        }
        loop {
            if self.session.has_unsent() || self.session.write(slices)? > 0 {
                ready!(self.poll_send(cx))?;
                return Poll::Ready(Ok(self.session.take_sent()));
            }
            if !self.session.wants_to_send() {
                return Poll::Ready(Ok(0));
            }
            // There is no space until some bytes are sent.
            ready!(self.poll_send(cx))?;
        }
    }

    /// Encrypts bytes and sends them with those that follow.
    pub(crate) fn poll_write_more(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.session.is_plain() || self.session.has_unsent() || self.session.wants_to_send() {
            return self.poll_write(cx, slices);
        }
        self.session.write(slices)?;
        Poll::Ready(Ok(self.session.take_sent()))
    }

    /// Sends what `read` puts into a buffer. Without it, if it is not ready, the same bytes are still to be sent.
    pub(crate) fn poll_write_from(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.session.has_unsent() {
            return self.poll_write(cx, &[]);
        }
        PLAIN.with_borrow_mut(|plain| {
            let most = most.min(plain.len());
            let count = read(&mut plain[..most])?;
            match count {
                0 => Poll::Ready(Ok(0)),
                count => self.poll_write(cx, &[IoSlice::new(&plain[..count])]),
            }
        })
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.end();
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Tells the client of a connection without a reactor that the connection ends, if the kernel takes the alert at once.
pub fn say_end(socket: BorrowedFd<'_>, session: &mut Session) {
    session.end();
    let _ = session.send(&mut Unwatched(socket));
}

/// Writes to a socket that no reactor watches.
struct Unwatched<'a>(BorrowedFd<'a>);

impl Write for Unwatched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        weir_sys::socket::send(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The result of one read.
enum Received {
    /// So many plain bytes; perhaps none yet.
    Some(usize),
    /// The client sends nothing more.
    End,
}

/// [`Broken`] as an error.
#[derive(Debug)]
pub struct Failed(pub Broken);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failed {}

/// Writes to a socket without asking the reactor first.
struct Raw<'a>(&'a mut Socket);

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send_now(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send_now(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to a socket that the reactor calls writable. If the kernel takes nothing, the reactor learns it.
struct Watched<'a>(&'a mut Socket);

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &*self.0 {
            Socket::Tcp(tcp) => tcp.try_write_vectored(slices),
            Socket::Unix(unix) => unix.try_write_vectored(slices),
            Socket::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The most that is read at once: a whole record of TLS, and a little of the next.
const READ: usize = 17 * 1024;

/// The most of a file that is encrypted at once: four whole records.
const PIECE: usize = 64 * 1024;
