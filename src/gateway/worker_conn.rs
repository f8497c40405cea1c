//! A connection to a worker, on whichever reactor needs it.

use std::{
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use weir_config::Address;

use super::clock;

/// A connection to a worker.
#[derive(Debug)]
pub(crate) struct WorkerConn {
    stream: Stream,
    /// The reactor that watches it; it can be watched by one only.
    home: u16,
    /// Requests that it has carried.
    pub(crate) requests: u64,
    /// When it was last given a request, or made.
    used: u64,
    /// The first byte of the next request is there already.
    primed: bool,
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
            used: clock::now(),
            primed: false,
        })
    }

    /// A connection that the manager has made.
    ///
    /// It may lie idle for long, and PHP closes one on which nothing comes for 5 s after it was accepted. So the
    /// first byte of a request, which is the same for all (FastCGI 1.0 §3.3), is sent ahead; the rest follows when
    /// there is a request.
    pub(crate) fn from_fd(fd: OwnedFd) -> WorkerConn {
        let raw = std::os::unix::net::UnixStream::from(fd);
        let _ = raw.set_nonblocking(true);
        let primed = (&raw)
            .write(&[weir_fcgi::VERSION])
            .is_ok_and(|count| count == 1);
        WorkerConn {
            stream: Stream::Raw(raw),
            home: 0,
            requests: 0,
            used: clock::now(),
            primed,
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

    /// Takes note of a request that begins. Answers how many of its bytes have been sent before.
    pub(crate) fn begin_request(&mut self) -> usize {
        self.requests += 1;
        self.used = clock::now();
        usize::from(std::mem::take(&mut self.primed))
    }

    /// Whether it was idle for so long that the worker may have closed it unnoticed.
    pub(crate) fn has_rested(&self) -> bool {
        clock::now().saturating_sub(self.used) > REST
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

/// Idle for less, a connection is taken to be open without asking, µs.
const REST: u64 = 1_000_000;
