//! A client's socket: TCP or unix, used as one stream type.

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

/// A client's socket.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(tcp) => tcp.poll_write_ready(cx),
            Socket::Unix(unix) => unix.poll_write_ready(cx),
        }
    }

    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(tcp) => tcp.poll_read_ready(cx),
            Socket::Unix(unix) => unix.poll_read_ready(cx),
        }
    }

    pub(crate) fn try_write_io<T>(
        &self,
        write: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Socket::Tcp(tcp) => tcp.try_io(Interest::WRITABLE, || write(tcp.as_fd())),
            Socket::Unix(unix) => unix.try_io(Interest::WRITABLE, || write(unix.as_fd())),
        }
    }

    /// Sends bytes that more bytes follow at once: the kernel puts both into the same packet.
    ///
    /// # Errors
    ///
    /// As sendmsg(2).
    pub fn poll_send_more(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
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

    /// The socket, which this reactor no longer watches.
    ///
    /// # Errors
    ///
    /// If the reactor cannot stop watching it (epoll_ctl(2)).
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        Ok(match self {
            Socket::Tcp(tcp) => tcp.into_std()?.into(),
            Socket::Unix(unix) => unix.into_std()?.into(),
        })
    }
}

fn is_to_be_tried_again(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(tcp) => tcp.as_fd(),
            Socket::Unix(unix) => unix.as_fd(),
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
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // Nearly always the kernel takes bytes at once: then there is no need to ask whether it does.
        match weir_sys::socket::send(self.as_fd(), bytes) {
            Err(error) if is_to_be_tried_again(&error) => {}
            sent => return Poll::Ready(sent),
        }
        match &mut *self {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Socket::Unix(unix) => Pin::new(unix).poll_write(cx, bytes),
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
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Socket::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
        }
    }
}
