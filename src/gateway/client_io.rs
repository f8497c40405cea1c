//! One client connection as hyper sees it: a stream that can also send files, knows what it is waiting for, and can
//! be told to stop.
//!
//! [`ClientIo`] is owned by hyper. [`Conn`] is what the rest of the gateway holds of the same connection: its phase
//! and deadlines (two atomics that the reactor's sweeper compares, so that no request pays for a timer), the queue
//! of file pieces that hyper's placeholders stand for, interim responses, and the record that becomes a log line
//! when the last byte has gone.

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::Future,
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
    task::JoinHandle,
};

use super::{
    body::PLACEHOLDER,
    clock::{self, NEVER},
    record::{Ends, Record},
};

/// A client's socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Between two requests, or before the first byte of the first.
    Idle = 0,
    /// A part of a head has come.
    Head = 1,
    /// A request is being worked on or answered.
    Busy = 2,
    /// Idle for so long that only the socket is left.
    Parked = 3,
}

/// The limits of a connection, from its listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) header: Duration,
    pub(crate) body: Duration,
    pub(crate) idle: Duration,
    pub(crate) send: Duration,
}

/// A connection as the gateway's steps share it.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Index into the configuration's listeners.
    pub(crate) listener: u16,
    /// The reactor it lives on.
    pub(crate) home: u16,
    pub(crate) ends: Arc<Ends>,
    pub(crate) timeouts: Timeouts,
    phase: AtomicU8,
    /// When the first byte of the request at hand came.
    head_started: AtomicU64,
    /// When the wait of this phase ends; the sweeper wakes the connection then.
    deadline: AtomicU64,
    /// When a write that makes no progress is given up.
    send_deadline: AtomicU64,
    /// Requests answered so far.
    requests: AtomicU64,
    /// A script is waited for, or answers: the client's end is looked for also behind what else it has sent.
    at_script: AtomicBool,
    /// The request waits in a pool's queue.
    queued: AtomicBool,
    /// Nothing is left of it but the request itself and the socket.
    hyper_is_down: AtomicBool,
    /// The rest of a request body was refused: the socket is closed with care (see `connection::linger`).
    body_unread: AtomicBool,
    waker: OnceLock<Waker>,
    /// Something is in `outbox`.
    posted: AtomicBool,
    outbox: Mutex<Outbox>,
}

/// What waits to be sent, or to be said once it is sent.
#[derive(Debug, Default)]
struct Outbox {
    files: VecDeque<FilePiece>,
    interim: Vec<u8>,
    /// The last answer, which hyper has whole and the kernel has not.
    record: Option<Box<Record>>,
    /// Those before it, where a client pipelines and reads slowly.
    #[expect(
        clippy::vec_box,
        reason = "they come in boxes, and are given on in them"
    )]
    earlier: Vec<Box<Record>>,
    /// Requests that were begun when that answer was whole.
    begun: u64,
}

#[derive(Debug, Clone)]
struct FilePiece {
    file: Arc<OwnedFd>,
    offset: u64,
    len: usize,
}

/// The stream that hyper reads and writes.
#[derive(Debug)]
pub(crate) struct ClientIo {
    socket: Socket,
    conn: Arc<Conn>,
    /// Bytes read before hyper asked for them.
    prefix: Bytes,
    /// hyper waits for the client's next byte, and so hears of its end.
    awaited: bool,
    /// Reading the next piece of a file from the disk, away from the reactor.
    populating: Option<JoinHandle<()>>,
    /// Bytes of the piece at hand that have been looked for in the page cache, or read into it.
    in_memory: usize,
}

impl Conn {
    pub(crate) fn new(
        listener: u16,
        home: u16,
        peer: Option<SocketAddr>,
        local: Option<SocketAddr>,
        timeouts: Timeouts,
    ) -> Conn {
        Conn {
            listener,
            home,
            ends: Arc::new(Ends::new(peer, local)),
            timeouts,
            phase: AtomicU8::new(Phase::Idle as u8),
            head_started: AtomicU64::new(clock::now()),
            deadline: AtomicU64::new(clock::deadline(timeouts.header)),
            send_deadline: AtomicU64::new(NEVER),
            requests: AtomicU64::new(0),
            at_script: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            hyper_is_down: AtomicBool::new(false),
            body_unread: AtomicBool::new(false),
            waker: OnceLock::new(),
            posted: AtomicBool::new(false),
            outbox: Mutex::default(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Busy,
            _ => Phase::Parked,
        }
    }

    /// Everything but the socket is put down until the next byte.
    pub(crate) fn park(&self) {
        self.phase.store(Phase::Parked as u8, Relaxed);
    }

    /// A whole head is there: the request begins. Answers when its first byte came.
    pub(crate) fn begin_request(&self) -> u64 {
        let started = self.head_started.load(Relaxed);
        self.requests.fetch_add(1, Relaxed);
        self.phase.store(Phase::Busy as u8, Relaxed);
        self.at_script.store(false, Relaxed);
        self.queued.store(false, Relaxed);
        self.deadline.store(NEVER, Relaxed);
        started
    }

    /// Requests begun on this connection.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Wake the connection's task at `deadline` ([`clock::now`]'s time); whoever waits then looks at its own clock.
    pub(crate) fn wake_at(&self, deadline: u64) {
        self.deadline.store(deadline, Relaxed);
    }

    /// The waker of the connection's task, which is the same for its whole life.
    pub(crate) fn remember_waker(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Wakes the connection's task.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Whether a deadline has passed.
    pub(crate) fn overdue(&self, now: u64) -> bool {
        now >= self.deadline.load(Relaxed) || self.send_overdue(now)
    }

    /// Whether the client has not taken a byte for too long.
    pub(crate) fn send_overdue(&self, now: u64) -> bool {
        now >= self.send_deadline.load(Relaxed)
    }

    /// Since when the connection is idle; none while it is not, or before its first request.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        (self.phase() == Phase::Idle && self.requests() > 0)
            .then(|| self.head_started.load(Relaxed))
    }

    /// Whether it has no request.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase(), Phase::Idle | Phase::Parked)
    }

    /// As [`Self::idle_since`], for a connection that is parked at once.
    pub(crate) fn rests_since(&self) -> Option<u64> {
        (matches!(self.phase(), Phase::Idle | Phase::Parked) && self.requests() > 0)
            .then(|| self.head_started.load(Relaxed))
    }

    /// Since when a connection that has not made its first request exists; none for all others.
    pub(crate) fn fresh_since(&self) -> Option<u64> {
        (self.requests() == 0).then(|| self.head_started.load(Relaxed))
    }

    /// The request's body is here, and a script is to answer it.
    pub(crate) fn awaits_script(&self) {
        self.at_script.store(true, Relaxed);
    }

    /// The request waits in a pool's queue from now on. The connection is asked to put hyper down if it does for long.
    pub(crate) fn enters_queue(&self) {
        if !self.hyper_is_down() {
            self.queued.store(true, Relaxed);
            self.wake_at(clock::now() + PUT_DOWN_AFTER);
        }
    }

    /// It does not any more.
    pub(crate) fn leaves_queue(&self) {
        if self.queued.swap(false, Relaxed) {
            self.wake_at(NEVER);
        }
    }

    /// Whether the request has waited for so long that hyper is better put down, and hyper has nothing to send.
    pub(crate) fn waits_for_long(&self, now: u64) -> bool {
        self.queued.load(Relaxed)
            && now >= self.deadline.load(Relaxed)
            && self.phase() == Phase::Busy
            && self.send_deadline.load(Relaxed) == NEVER
            && self.outbox().is_empty()
    }

    /// Whether the sweeper has just found that a request waits for long.
    pub(crate) fn is_to_wait(&self, now: u64) -> bool {
        self.queued.load(Relaxed) && now >= self.deadline.load(Relaxed)
    }

    /// Nothing but the request itself and the socket is left (true), or hyper is back (false).
    pub(crate) fn put_down_hyper(&self, is_down: bool) {
        self.hyper_is_down.store(is_down, Relaxed);
        self.leaves_queue();
    }

    /// Whether a request that waits has been left with nothing but itself and the socket.
    pub(crate) fn hyper_is_down(&self) -> bool {
        self.hyper_is_down.load(Relaxed)
    }

    /// The client still sends a body that nobody reads.
    pub(crate) fn leave_body_unread(&self) {
        self.body_unread.store(true, Relaxed);
    }

    pub(crate) fn body_is_unread(&self) -> bool {
        self.body_unread.load(Relaxed)
    }

    /// Puts a piece of a file behind what is queued; a placeholder of the same length goes through hyper.
    pub(crate) fn queue_file(&self, file: Arc<OwnedFd>, offset: u64, len: usize) {
        self.outbox()
            .files
            .push_back(FilePiece { file, offset, len });
    }

    /// Takes `cut` bytes off the piece queued last.
    pub(crate) fn shorten_last_file(&self, cut: usize) {
        if let Some(piece) = self.outbox().files.back_mut() {
            piece.len -= cut;
        }
    }

    /// Sends an interim response (1xx, RFC 9110 §15.2) before the final one; drops it where too many wait already, as
    /// any of them may be (§15).
    pub(crate) fn send_interim(&self, head: &[u8]) {
        let mut outbox = self.outbox();
        if outbox.interim.len() + head.len() > MAX_INTERIM {
            return;
        }
        outbox.interim.extend_from_slice(head);
        drop(outbox);
        self.posted.store(true, Relaxed);
        self.wake();
    }

    /// The answer has been handed to hyper as far as it will be. `complete`: all of it.
    pub(crate) fn answered(&self, record: Box<Record>, complete: bool) {
        if complete {
            let mut outbox = self.outbox();
            outbox.begun = self.requests();
            if let Some(before) = outbox.record.replace(record) {
                outbox.earlier.push(before);
            }
            drop(outbox);
            self.posted.store(true, Relaxed);
        } else {
            record.cut_short();
        }
    }

    /// The connection ends: an answer that was not flushed has not arrived.
    pub(crate) fn ended(&self) {
        let records = self.outbox().take_records();
        for record in records {
            record.cut_short();
        }
    }

    fn flushed(&self) {
        if !self.posted.load(Relaxed) {
            return;
        }
        self.posted.store(false, Relaxed);
        let mut outbox = self.outbox();
        if outbox.record.is_none() {
            return;
        }
        let (begun, records) = (outbox.begun, outbox.take_records());
        drop(outbox);
        // Else the next one was there before the client had read this answer, and is at work.
        if begun == self.requests() {
            self.rest();
        }
        for record in records {
            record.sent();
        }
    }

    /// Between two requests: the last answer is with the kernel.
    pub(crate) fn rest(&self) {
        self.phase.store(Phase::Idle as u8, Relaxed);
        self.head_started.store(clock::now(), Relaxed);
        self.deadline
            .store(clock::deadline(self.timeouts.idle), Relaxed);
    }

    /// Takes note of whether a write `waits` for the client; for how long, `send_timeout` limits.
    pub(crate) fn note_write(&self, waits: bool) {
        let waited = self.send_deadline.load(Relaxed) != NEVER;
        match (waits, waited) {
            (true, false) => self
                .send_deadline
                .store(clock::deadline(self.timeouts.send), Relaxed),
            (false, true) => self.send_deadline.store(NEVER, Relaxed),
            _ => {}
        }
    }

    /// A byte of the next head is there.
    pub(crate) fn received(&self) {
        if matches!(self.phase(), Phase::Idle | Phase::Parked) {
            self.phase.store(Phase::Head as u8, Relaxed);
            self.head_started.store(clock::now(), Relaxed);
            self.deadline
                .store(clock::deadline(self.timeouts.header), Relaxed);
        }
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.interim.is_empty() && self.record.is_none()
    }

    /// The answers that wait to be with the kernel, in their order.
    fn take_records(&mut self) -> impl Iterator<Item = Box<Record>> + use<> {
        let earlier = std::mem::take(&mut self.earlier);
        earlier.into_iter().chain(self.record.take())
    }
}

impl ClientIo {
    pub(crate) fn new(socket: Socket, conn: Arc<Conn>, prefix: Bytes) -> ClientIo {
        ClientIo {
            socket,
            conn,
            prefix,
            awaited: false,
            populating: None,
            in_memory: 0,
        }
    }

    /// The socket, and what was read and hyper has not taken.
    pub(crate) fn into_parts(self) -> (Socket, Bytes) {
        (self.socket, self.prefix)
    }

    /// Reads on where hyper does not, because it has a part of the next request already, so that it is known when a client
    /// leaves whose request is at work. What comes is kept for hyper; past [`MAX_AHEAD`] nothing is read.
    ///
    /// # Errors
    ///
    /// The client has left: it has closed its side of the connection, or is gone.
    fn look_ahead(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.prefix.len() < MAX_AHEAD {
            let mut piece = [0; 2048];
            let mut buffer = ReadBuf::new(&mut piece);
            match Pin::new(&mut self.socket).poll_read(cx, &mut buffer)? {
                Poll::Pending => break,
                Poll::Ready(()) if buffer.filled().is_empty() => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Poll::Ready(()) => {
                    self.prefix = [&self.prefix, buffer.filled()].concat().into();
                }
            }
        }
        Ok(())
    }

    /// Writes interim responses; they go out before anything that hyper still holds, which at that time is nothing.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.conn.posted.load(Relaxed) {
            return Poll::Ready(Ok(()));
        }
        loop {
            let interim = std::mem::take(&mut self.conn.outbox().interim);
            if interim.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let written = Pin::new(&mut self.socket).poll_write(cx, &interim);
            let done = match &written {
                Poll::Ready(Ok(count)) => *count,
                _ => 0,
            };
            if done < interim.len() {
                let mut outbox = self.conn.outbox();
                outbox.interim.splice(..0, interim[done..].iter().copied());
            }
            ready!(written)?;
        }
    }

    /// Sends from the file at the head of the queue.
    fn poll_send_file(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let piece = self.conn.outbox().files.front().cloned();
        let Some(piece) = piece else {
            return Poll::Ready(Err(io::Error::other("no file is queued")));
        };
        loop {
            if let Some(populating) = &mut self.populating {
                let _ = ready!(Pin::new(populating).poll(cx));
                self.populating = None;
                self.in_memory = piece.len;
            } else if self.in_memory == 0
                && !weir_sys::file::is_cached(piece.file.as_fd(), piece.offset, piece.len as u64)
            {
                // sendfile(2) would wait for the disk, and with it every connection of this reactor.
                let piece = piece.clone();
                self.populating = Some(tokio::task::spawn_blocking(move || {
                    // What cannot be read shows when it is sent.
                    let _ = weir_sys::file::populate(
                        piece.file.as_fd(),
                        piece.offset,
                        piece.len as u64,
                    );
                }));
                continue;
            }
            self.in_memory = piece.len;
            ready!(self.socket.poll_write_ready(cx))?;
            let mut offset = piece.offset;
            let sent = self.socket.try_write_io(|socket| {
                weir_sys::file::send_file(socket, piece.file.as_fd(), &mut offset, piece.len)
            });
            match sent {
                Ok(0) => {
                    // The file has become shorter than when its length was promised.
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(sent) => {
                    let mut outbox = self.conn.outbox();
                    if let Some(front) = outbox.files.front_mut() {
                        front.offset += sent as u64;
                        front.len -= sent;
                        self.in_memory = front.len;
                        if front.len == 0 {
                            outbox.files.pop_front();
                        }
                    }
                    return Poll::Ready(Ok(sent));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends memory that is followed by a file.
    fn poll_send_more(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_write_ready(cx))?;
            let sent = self
                .socket
                .try_write_io(|socket| weir_sys::socket::send_more(socket, slices));
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.prefix.is_empty() {
            let count = self.prefix.len().min(buf.remaining());
            buf.put_slice(&self.prefix.split_to(count));
            self.conn.received();
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        self.awaited = read.is_pending();
        if buf.filled().len() > before {
            self.conn.received();
        }
        read
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_interim(cx))?;
        let memory = slices
            .iter()
            .position(|slice| is_placeholder(slice))
            .unwrap_or(slices.len());
        let written = match &slices[..memory] {
            [] if !slices.is_empty() => this.poll_send_file(cx),
            // A file follows: its first bytes go out in the same packet.
            before if memory < slices.len() => this.poll_send_more(cx, before),
            [one] => Pin::new(&mut this.socket).poll_write(cx, one),
            // A small answer is copied together: send(2) of one piece costs the kernel less than writev(2) of two.
            several if several.iter().map(|slice| slice.len()).sum::<usize>() <= JOINED => JOIN
                .with_borrow_mut(|joined| {
                    joined.clear();
                    several
                        .iter()
                        .for_each(|slice| joined.extend_from_slice(slice));
                    Pin::new(&mut this.socket).poll_write(cx, joined)
                }),
            several => Pin::new(&mut this.socket).poll_write_vectored(cx, several),
        };
        this.conn.note_write(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_interim(cx))?;
        self.conn.flushed();
        // hyper flushes in each of its turns, after it has read.
        let is_awaited = std::mem::take(&mut self.awaited);
        if !is_awaited && self.conn.phase() == Phase::Busy && self.conn.at_script.load(Relaxed) {
            self.look_ahead(cx)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Nothing: how the socket is closed is decided once hyper is done with it (see `connection`).
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Socket {
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(tcp) => tcp.poll_write_ready(cx),
            Socket::Unix(unix) => unix.poll_write_ready(cx),
        }
    }

    fn try_write_io<T>(
        &self,
        write: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Socket::Tcp(tcp) => tcp.try_io(Interest::WRITABLE, || write(tcp.as_fd())),
            Socket::Unix(unix) => unix.try_io(Interest::WRITABLE, || write(unix.as_fd())),
        }
    }

    /// Waits until there is something to read, or the client has closed.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(tcp) => tcp.readable().await,
            Socket::Unix(unix) => unix.readable().await,
        }
    }
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

thread_local! {
    static JOIN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// After so long in a pool's queue (µs), a request's connection puts down hyper and its buffers.
const PUT_DOWN_AFTER: u64 = 100_000;

/// Interim responses that wait for a client that does not read, bytes.
const MAX_INTERIM: usize = 128 * 1024;

/// How much of the requests behind the one at work is read, bytes. Of a client that sends more, nobody hears that it has
/// left before that one is answered, or its time is over.
const MAX_AHEAD: usize = 16 * 1024;

/// Answers of up to so many bytes are copied into one piece.
const JOINED: usize = 4096;

/// hyper may have consumed a part of a placeholder's length, never of its address: `Chunk::chunk` always begins at
/// the array's first byte.
fn is_placeholder(slice: &IoSlice<'_>) -> bool {
    std::ptr::eq(slice.as_ptr(), PLACEHOLDER.as_ptr()) && !slice.is_empty()
}
