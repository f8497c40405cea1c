//! A client's socket: TCP or unix, perhaps with TLS, used as one stream type.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};
use weir_tls::Session;

use super::tls_socket::TlsSocket;

/// A client's socket.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// One of them with TLS.
    Tls(Box<TlsSocket>),
}

impl Socket {
    /// Puts TLS around it.
    #[must_use]
    pub fn with_tls(self, session: Box<Session>) -> Socket {
        Socket::Tls(Box::new(TlsSocket::new(self, session)))
    }

    /// Without TLS, if it has it: what comes is read as it came.
    #[must_use]
    pub fn without_tls(self) -> Socket {
        match self {
            Socket::Tls(tls) => tls.into_parts().0,
            socket => socket,
        }
    }

    /// Whether it is a unix socket.
    pub fn is_unix(&self) -> bool {
        match self {
            Socket::Tcp(_) => false,
            Socket::Unix(_) => true,
            Socket::Tls(tls) => tls.inner().is_unix(),
        }
    }

    /// Gives up the space of its buffers: nothing comes for a while.
    pub fn shrink(&mut self) {
        if let Socket::Tls(tls) = self {
            tls.shrink();
        }
    }

    /// Its TLS; `None`: it has none.
    pub fn tls(&self) -> Option<&Session> {
        match self {
            Socket::Tls(tls) => Some(tls.session()),
            _ => None,
        }
    }

    /// Ends a handshake that waits for a certificate: the client is told that there is none.
    pub fn refuse_handshake(&mut self, cx: &mut Context<'_>) {
        if let Socket::Tls(tls) = self {
            tls.refuse(cx);
        }
    }

    /// Waits until the handshake of TLS is over.
    ///
    /// # Errors
    /// If it fails. [`weir_tls::Broken`] is inside of the error, unless the socket itself is broken.
    pub fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tls(tls) => tls.poll_handshake(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(tcp) => tcp.poll_write_ready(cx),
            Socket::Unix(unix) => unix.poll_write_ready(cx),
            Socket::Tls(tls) => tls.inner().poll_write_ready(cx),
        }
    }

    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(tcp) => tcp.poll_read_ready(cx),
            Socket::Unix(unix) => unix.poll_read_ready(cx),
            Socket::Tls(tls) => tls.inner().poll_read_ready(cx),
        }
    }

    /// Whether input may have arrived since everything was read, as far as the reactor knows without a system call.
    pub fn may_read(&self) -> bool {
        match self {
            Socket::Tcp(tcp) => tcp.try_io(Interest::READABLE, || Ok(())).is_ok(),
            Socket::Unix(unix) => unix.try_io(Interest::READABLE, || Ok(())).is_ok(),
            // It may keep some itself.
            Socket::Tls(_) => true,
        }
    }

    /// Gives bytes that have come to `take`, and removes as many of them as that returns from the stream. Returns how many
    /// there were: 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// As recv(2).
    pub fn poll_take(
        &self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        let mut bytes = [0; LOOK];
        loop {
            ready!(self.poll_read_ready(cx))?;
            let fd = self.as_fd();
            let look = || weir_sys::socket::look(fd, &mut bytes);
            let seen = match self {
                Socket::Tcp(tcp) => tcp.try_io(Interest::READABLE, look),
                Socket::Unix(unix) => unix.try_io(Interest::READABLE, look),
                // Its bytes are not those of the socket.
                Socket::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
            };
            let seen = match seen {
                Err(error) if is_to_be_tried_again(&error) => continue,
                seen => seen?,
            };
            let mut taken = take(&bytes[..seen]).min(seen);
            while taken > 0 {
                taken -= weir_sys::socket::read(fd, &mut bytes[..taken])?;
            }
            return Poll::Ready(Ok(seen));
        }
    }

    pub(crate) fn try_write_io<T>(
        &self,
        write: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Socket::Tcp(tcp) => tcp.try_io(Interest::WRITABLE, || write(tcp.as_fd())),
            Socket::Unix(unix) => unix.try_io(Interest::WRITABLE, || write(unix.as_fd())),
            // Its bytes are not those of the socket.
            Socket::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Gives bytes to the kernel, as many as it takes now. Not for a socket with TLS.
    pub(crate) fn send_now(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (&*self, slices) {
            (_, [one]) => weir_sys::socket::send(self.as_fd(), one),
            (Socket::Tcp(tcp), _) => tcp.try_write_vectored(slices),
            (Socket::Unix(unix), _) => unix.try_write_vectored(slices),
            (Socket::Tls(_), _) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sends bytes that more bytes follow at once: the kernel puts both into the same packet.
    ///
    /// # Errors
    ///
    /// As sendmsg(2).
    pub fn poll_send_more(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Socket::Tls(tls) = self {
            return tls.poll_write_more(cx, slices);
        }
        loop {
            ready!(self.poll_write_ready(cx))?;
            let sent = self.try_write_io(|socket| weir_sys::socket::send_more(socket, slices));
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Lets this reactor watch a connected, non-blocking socket.
    ///
    /// # Errors
    ///
    /// If the reactor cannot watch it (epoll_ctl(2)).
    pub fn watch(fd: OwnedFd, is_tcp: bool) -> io::Result<Socket> {
        Ok(match is_tcp {
            true => Socket::Tcp(TcpStream::from_std(fd.into())?),
            false => Socket::Unix(UnixStream::from_std(fd.into())?),
        })
    }

    /// The socket, which this reactor no longer watches, and its TLS, without space for buffers.
    ///
    /// # Errors
    ///
    /// If the reactor cannot stop watching it (epoll_ctl(2)).
    pub fn into_fd(self) -> io::Result<(OwnedFd, Option<Box<Session>>)> {
        Ok(match self {
            Socket::Tcp(tcp) => (tcp.into_std()?.into(), None),
            Socket::Unix(unix) => (unix.into_std()?.into(), None),
            Socket::Tls(tls) => {
                let (socket, mut session) = tls.into_parts();
                session.shrink();
                (socket.into_fd()?.0, Some(session))
            }
        })
    }

    /// The address of the peer; `None`: it has none.
    ///
    /// # Errors
    ///
    /// If the peer has left (getpeername(2)).
    pub fn peer_addr(&self) -> io::Result<Option<std::net::SocketAddr>> {
        match self {
            Socket::Tcp(tcp) => tcp.peer_addr().map(Some),
            Socket::Unix(_) => Ok(None),
            Socket::Tls(tls) => tls.inner().peer_addr(),
        }
    }

    /// The address that the peer connected to; `None`: it has none.
    pub fn local_addr(&self) -> Option<std::net::SocketAddr> {
        match self {
            Socket::Tcp(tcp) => tcp.local_addr().ok(),
            Socket::Unix(_) => None,
            Socket::Tls(tls) => tls.inner().local_addr(),
        }
    }
}

/// How many bytes [`Socket::poll_take`] gives at once.
const LOOK: usize = 512;

fn is_to_be_tried_again(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(tcp) => tcp.as_fd(),
            Socket::Unix(unix) => unix.as_fd(),
            Socket::Tls(tls) => tls.inner().as_fd(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Socket::Unix(unix) => Pin::new(unix).poll_read(cx, buf),
            Socket::Tls(tls) => tls.poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Socket::Tls(tls) = &mut *self {
            return tls.poll_write(cx, &[IoSlice::new(bytes)]);
        }
        // Nearly always the kernel takes bytes at once, so weir does not ask first.
        match weir_sys::socket::send(self.as_fd(), bytes) {
            Err(error) if is_to_be_tried_again(&error) => {}
            sent => return Poll::Ready(sent),
        }
        match &mut *self {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Socket::Unix(unix) => Pin::new(unix).poll_write(cx, bytes),
            Socket::Tls(tls) => tls.poll_write(cx, &[IoSlice::new(bytes)]),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Socket::Unix(unix) => Pin::new(unix).poll_write_vectored(cx, slices),
            Socket::Tls(tls) => tls.poll_write(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tls(tls) => tls.poll_send(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Socket::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
            Socket::Tls(tls) => tls.poll_shutdown(cx),
        }
    }
}
