//! A connection to a worker, which can move between reactors.
//!
//! The reactor watches the socket only for reading. A unix socket notifies its writer each time that the reader has
//! taken something. If it was also watched for writing, as the runtime's own sockets are, the gateway would wake up
//! once more for every request. The socket is watched for writing only while a write does not fit.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_config::Address;
use weir_observe::clock;
use weir_sys::{socket, watch::Watched};

/// A connection to a worker.
#[derive(Debug)]
pub(crate) struct WorkerConn {
    socket: Socket,
    /// A second descriptor of the socket, which is watched while a write waits for room.
    room: Option<Box<Watched>>,
    /// The reactor that watches it; only one reactor can.
    home: u16,
    /// How many requests it has carried.
    pub(crate) requests: u64,
    /// When it was last given a request, or made.
    used: u64,
    /// The first byte of the next request was already sent.
    primed: bool,
}

#[derive(Debug)]
enum Socket {
    /// Not watched by a reactor yet.
    Loose(OwnedFd),
    ForReading(Watched),
}

impl WorkerConn {
    /// Connects to a server. Has no time limit of its own.
    ///
    /// # Errors
    ///
    /// The error of connect(2); `WouldBlock` if the accept queue of a unix socket is full.
    pub(crate) async fn connect(address: &Address) -> io::Result<WorkerConn> {
        let socket = match address {
            Address::Unix(path) => {
                use socket2::{Domain, SockAddr, Socket, Type};
                let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
                socket.connect(&SockAddr::unix(path)?)?;
                socket.into()
            }
            Address::Tcp(address) => {
                let stream = tokio::net::TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                stream.into_std()?.into()
            }
        };
        Ok(WorkerConn::new(socket, false))
    }

    /// The gateway's end of the stream that a worker has for its whole life.
    pub(crate) fn of_worker(fd: OwnedFd) -> WorkerConn {
        let stream = UnixStream::from(fd);
        let _ = stream.set_nonblocking(true);
        WorkerConn::new(stream.into(), false)
    }

    /// A connection to a program that the manager has made.
    ///
    /// It may be idle for long, and PHP closes an accepted connection if no byte arrives for 5 s. So the first byte
    /// of a request, which is always the same (FastCGI 1.0 §3.3), is sent in advance; the rest follows with the
    /// request.
    pub(crate) fn to_program(fd: OwnedFd) -> WorkerConn {
        let mut conn = WorkerConn::of_worker(fd);
        conn.primed = socket::send(conn.as_fd(), &[weir_fcgi::VERSION]).is_ok();
        conn
    }

    fn new(socket: OwnedFd, primed: bool) -> WorkerConn {
        WorkerConn {
            socket: Socket::Loose(socket),
            room: None,
            home: 0,
            requests: 0,
            used: clock::now(),
            primed,
        }
    }

    /// Registers the connection with the calling reactor, which is `home`.
    ///
    /// # Errors
    ///
    /// If the reactor cannot watch it (epoll_ctl(2)); the connection is closed then.
    #[inline]
    pub(crate) fn at_home(self, home: u16) -> io::Result<WorkerConn> {
        match self.socket {
            Socket::ForReading(_) if self.home == home => Ok(self),
            _ => self.moved(home),
        }
    }

    #[cold]
    fn moved(self, home: u16) -> io::Result<WorkerConn> {
        let socket = match self.socket {
            Socket::ForReading(elsewhere) => elsewhere.into_fd(),
            Socket::Loose(socket) => socket,
        };
        Ok(WorkerConn {
            socket: Socket::ForReading(Watched::for_reading(socket)?),
            room: None,
            home,
            ..self
        })
    }

    /// The FastCGI id of the next request. It differs from the last one, although a connection carries one request at
    /// a time: so late records of an old request are never taken for the answer to the new one.
    pub(crate) fn next_id(&self) -> u16 {
        1 + (self.requests % IDS) as u16
    }

    /// Notes the beginning of a request. Returns how many of its bytes were sent in advance.
    pub(crate) fn begin_request(&mut self) -> usize {
        self.requests += 1;
        self.used = clock::now();
        usize::from(std::mem::take(&mut self.primed))
    }

    /// Whether it was idle for so long that the worker may have closed it unnoticed.
    pub(crate) fn has_rested(&self) -> bool {
        clock::now().saturating_sub(self.used) > REST
    }

    /// Whether an idle connection is not worth keeping: it was idle for longer than this, or the server has closed it.
    pub(crate) fn is_worn(&self, longest: Duration) -> bool {
        let idle = clock::now().saturating_sub(self.used);
        idle > longest.as_micros() as u64 || (self.has_rested() && self.is_stale())
    }

    /// Whether the worker has closed an idle connection or sent unexpected data. Needs a system call.
    pub(crate) fn is_stale(&self) -> bool {
        socket::peer_closed(self.as_fd())
    }

    /// Whether an idle worker has sent data or closed the connection, as far as the reactor knows. Costs nothing if
    /// it has not.
    pub(crate) fn has_spoken(&self) -> bool {
        match &self.socket {
            Socket::Loose(_) => false,
            Socket::ForReading(socket) => socket.may_receive() && self.is_stale(),
        }
    }

    /// Reads the available bytes; an empty result at the end of the stream.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Socket::ForReading(socket) = &self.socket else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let received = socket.poll_receive(cx, buf.initialize_unfilled());
        received.map_ok(|count| buf.advance(count))
    }

    /// Writes as much as fits.
    ///
    /// # Errors
    ///
    /// As send(2).
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.room.is_none() {
            match socket::send(self.as_fd(), bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
            let second = self.as_fd().try_clone_to_owned()?;
            self.room = Some(Box::new(Watched::for_writing(second)?));
        }
        match &self.room {
            Some(room) => room.poll_send(cx, bytes),
            None => Poll::Pending,
        }
    }

    /// The whole request is written.
    pub(crate) fn written(&mut self) {
        self.room = None;
    }
}

/// For HTTP: bytes go in both directions, and a connection is closed by its drop.
impl AsyncRead for WorkerConn {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        WorkerConn::poll_read(self.get_mut(), cx, buffer)
    }
}

impl AsyncWrite for WorkerConn {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        WorkerConn::poll_write(self.get_mut(), cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().written();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket::end_writing(self.as_fd()))
    }
}

impl AsFd for WorkerConn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Loose(socket) => socket.as_fd(),
            Socket::ForReading(socket) => socket.as_fd(),
        }
    }
}

/// Number of ids that are used on a connection: they fit into one byte, in case a worker reads only that.
const IDS: u64 = 255;

/// A connection that was idle for less than this is assumed to be open, µs.
const REST: u64 = 1_000_000;
