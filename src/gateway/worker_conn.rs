//! A connection to a worker, on whichever reactor needs it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use weir_config::Address;

/// A connection to a worker.
#[derive(Debug)]
pub(crate) struct WorkerConn {
    stream: Stream,
    /// The reactor that watches it; it can be watched by one only.
    home: u16,
    /// Requests that it has carried.
    pub(crate) requests: u64,
}

#[derive(Debug)]
enum Stream {
    /// Not watched by any reactor yet.
    Raw(std::os::unix::net::UnixStream),
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl WorkerConn {
    /// Connects to a server. Without a time limit of its own.
    ///
    /// # Errors
    ///
    /// What connect(2) says; `WouldBlock` where a unix socket's accept queue is full.
    pub(crate) async fn connect(address: &Address, home: u16) -> io::Result<WorkerConn> {
        let stream = match address {
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path).await?),
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        };
        Ok(WorkerConn {
            stream,
            home,
            requests: 0,
        })
    }

    /// A connection that the manager has made.
    pub(crate) fn from_fd(fd: OwnedFd) -> WorkerConn {
        WorkerConn {
            stream: Stream::Raw(fd.into()),
            home: 0,
            requests: 0,
        }
    }

    /// Has the connection watched by the calling reactor, which is `home`.
    ///
    /// # Errors
    ///
    /// Where the reactor cannot watch it (epoll_ctl(2)); the connection is closed then.
    pub(crate) fn at_home(self, home: u16) -> io::Result<WorkerConn> {
        let stream = match self.stream {
            Stream::Raw(raw) => {
                raw.set_nonblocking(true)?;
                Stream::Unix(UnixStream::from_std(raw)?)
            }
            stream if self.home == home => stream,
            Stream::Unix(unix) => Stream::Unix(UnixStream::from_std(unix.into_std()?)?),
            Stream::Tcp(tcp) => Stream::Tcp(TcpStream::from_std(tcp.into_std()?)?),
        };
        Ok(WorkerConn {
            stream,
            home,
            ..self
        })
    }

    /// Whether the worker has closed an idle connection, or said something that nobody asked for. Costs a system call.
    pub(crate) fn is_stale(&self) -> bool {
        weir_sys::socket::peer_closed(self.as_fd())
    }
}

impl AsFd for WorkerConn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Raw(raw) => raw.as_fd(),
            Stream::Unix(unix) => unix.as_fd(),
            Stream::Tcp(tcp) => tcp.as_fd(),
        }
    }
}

impl WorkerConn {
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Raw(_) => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            Stream::Unix(unix) => Pin::new(unix).poll_read(cx, buf),
            Stream::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
        }
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Raw(_) => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            Stream::Unix(unix) => Pin::new(unix).poll_write(cx, bytes),
            Stream::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
        }
    }
}
