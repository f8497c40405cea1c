//! One client connection as hyper sees it: a stream that can also send files, knows what it waits for, and can be
//! told to stop.
//!
//! hyper owns [`ClientIo`]. The rest of the gateway uses [`Conn`] for the same connection. It has the phase and
//! deadlines (two atomics that the reactor's sweeper compares, so that no request needs its own timer), the queue of
//! file parts for hyper's placeholders, interim responses, and the record that becomes a log line when the last byte
//! is sent.

mod send;
mod socket;

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::SocketAddr,
    ops::Range,
    os::fd::AsFd,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::JoinHandle,
};

pub(crate) use self::socket::Socket;
use super::{
    body::PLACEHOLDER,
    clock::{self, NEVER},
    framing::{self, Framing, Refused, Verdict},
    open_file::OpenFile,
    own_calls::Source,
    record::{Ends, Record},
};

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Between two requests, or before the first byte of the first.
    Idle = 0,
    /// A part of a head has arrived.
    Head = 1,
    /// A request is being processed or answered.
    Busy = 2,
    /// Idle for so long that everything but the socket was dropped.
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

/// A client connection, shared by the steps of a request.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Index into the configuration's listeners.
    pub(crate) listener: u16,
    /// The reactor it lives on.
    pub(crate) home: u16,
    pub(crate) ends: Arc<Ends>,
    /// Whether the client may be a worker.
    pub(crate) source: Source,
    /// The listener's timeouts, shared by all of its connections.
    pub(crate) timeouts: Arc<Timeouts>,
    /// Maximum size of a request head, bytes.
    max_head: usize,
    phase: AtomicU8,
    /// When the first byte of the current request arrived.
    head_started: AtomicU64,
    /// When the wait of this phase ends. The sweeper then wakes the connection.
    deadline: AtomicU64,
    /// When a write without progress is given up.
    send_deadline: AtomicU64,
    /// Bytes that were not yet received by the client when `send_deadline` was last extended.
    unsent: AtomicU64,
    /// The connection is idle and is to be closed to make room for others.
    is_unwanted: AtomicBool,
    /// Requests answered so far.
    requests: AtomicU64,
    /// A script runs for this connection. The client's close is then noticed even behind other bytes that it sent.
    at_script: AtomicBool,
    /// The request waits in a pool's queue.
    queued: AtomicBool,
    /// Everything but the request and the socket was dropped.
    hyper_is_down: AtomicBool,
    /// The rest of a request body was not read, so the socket must be closed carefully (see `connection::linger`).
    body_unread: AtomicBool,
    waker: OnceLock<Waker>,
    /// `outbox` is not empty.
    posted: AtomicBool,
    outbox: Mutex<Outbox>,
    /// `inbox` is not empty.
    has_target: AtomicBool,
    /// In a box: as a rule there is nothing.
    inbox: Mutex<Option<Box<Inbox>>>,
}

/// Input that hyper did not get.
#[derive(Debug, Default)]
struct Inbox {
    /// Path and query of the current request as received, if hyper got a different spelling.
    target: Option<Box<[u8]>>,
    /// Why the last received bytes are not a valid message.
    refused: Option<Refused>,
}

/// What waits to be sent, and the record to log once the answer is sent.
#[derive(Debug, Default)]
struct Outbox {
    files: VecDeque<FilePiece>,
    interim: Vec<u8>,
    /// The record of an answer that hyper has completely, but the kernel does not have yet.
    record: Option<Box<Record>>,
}

#[derive(Debug, Clone)]
struct FilePiece {
    file: Arc<OpenFile>,
    offset: u64,
    len: usize,
}

/// The stream that hyper reads and writes.
#[derive(Debug)]
pub(crate) struct ClientIo {
    socket: Socket,
    conn: Arc<Conn>,
    framing: Framing,
    /// Bytes that were read, but that hyper has not taken.
    ahead: BytesMut,
    /// How many of those bytes hyper may take.
    ready: usize,
    /// The client closed its side after the bytes in `ahead`.
    at_end: bool,
    /// hyper waits for the client's next byte, so a close is noticed as well.
    awaited: bool,
    /// hyper wrote only a part of its data: no interim response may follow now.
    is_within: bool,
    /// A task that reads the next part of a file from disk, outside the reactor.
    populating: Option<JoinHandle<()>>,
    /// How many bytes of the current file part are known to be in the page cache.
    in_memory: usize,
}

impl Conn {
    pub(crate) fn new(
        listener: u16,
        home: u16,
        (peer, local): (Option<SocketAddr>, Option<SocketAddr>),
        pid: Option<u32>,
        timeouts: Arc<Timeouts>,
        max_head: usize,
    ) -> Conn {
        let header_deadline = clock::deadline(timeouts.header);
        Conn {
            listener,
            home,
            ends: Arc::new(Ends::new(peer, local)),
            source: Source::new(peer, local, pid),
            timeouts,
            max_head,
            phase: AtomicU8::new(Phase::Idle as u8),
            head_started: AtomicU64::new(clock::now()),
            deadline: AtomicU64::new(header_deadline),
            send_deadline: AtomicU64::new(NEVER),
            unsent: AtomicU64::new(0),
            is_unwanted: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            at_script: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            hyper_is_down: AtomicBool::new(false),
            body_unread: AtomicBool::new(false),
            waker: OnceLock::new(),
            posted: AtomicBool::new(false),
            outbox: Mutex::default(),
            has_target: AtomicBool::new(false),
            inbox: Mutex::default(),
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

    /// Only the socket is kept until the next byte arrives.
    pub(crate) fn park(&self) {
        self.phase.store(Phase::Parked as u8, Relaxed);
    }

    /// A whole head has arrived, so a request begins. Returns when its first byte arrived.
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

    /// Sets when the connection's task is woken ([`clock::now`]'s time). Each waiting step then checks its own
    /// deadline.
    pub(crate) fn wake_at(&self, deadline: u64) {
        self.deadline.store(deadline, Relaxed);
    }

    /// Stores the waker of the connection's task. It stays the same as long as the connection lives.
    pub(crate) fn remember_waker(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Wakes the connection's task.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Whether a deadline of the connection has passed.
    pub(crate) fn overdue(&self, now: u64) -> bool {
        now >= self.deadline.load(Relaxed) || self.send_overdue(now)
    }

    /// Whether the client has received nothing for too long.
    pub(crate) fn send_overdue(&self, now: u64) -> bool {
        now >= self.send_deadline.load(Relaxed)
    }

    /// When the connection became idle; `None` if it is not idle, or has had no request yet.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        (self.phase() == Phase::Idle && self.requests() > 0)
            .then(|| self.head_started.load(Relaxed))
    }

    /// Whether the connection has no request.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase(), Phase::Idle | Phase::Parked)
    }

    /// Like [`Self::idle_since`], but also for a parked connection.
    pub(crate) fn rests_since(&self) -> Option<u64> {
        (matches!(self.phase(), Phase::Idle | Phase::Parked) && self.requests() > 0)
            .then(|| self.head_started.load(Relaxed))
    }

    /// When a connection that has had no request yet was opened; `None` for all others.
    pub(crate) fn fresh_since(&self) -> Option<u64> {
        (self.requests() == 0).then(|| self.head_started.load(Relaxed))
    }

    /// The body of the request is complete, and a script is going to answer it.
    pub(crate) fn awaits_script(&self) {
        self.at_script.store(true, Relaxed);
    }

    /// From now on the request waits in a pool's queue. If it waits for long, the connection drops hyper.
    pub(crate) fn enters_queue(&self) {
        if !self.hyper_is_down() {
            self.queued.store(true, Relaxed);
            self.wake_at(clock::now() + PUT_DOWN_AFTER);
        }
    }

    /// The request no longer waits in a queue.
    pub(crate) fn leaves_queue(&self) {
        if self.queued.swap(false, Relaxed) {
            self.wake_at(NEVER);
        }
    }

    /// Whether the request has waited long enough to drop hyper, and hyper has nothing to send.
    pub(crate) fn waits_for_long(&self, now: u64) -> bool {
        self.queued.load(Relaxed)
            && now >= self.deadline.load(Relaxed)
            && self.phase() == Phase::Busy
            && self.send_deadline.load(Relaxed) == NEVER
            && self.outbox().is_empty()
    }

    /// Whether the sweeper has just found that a request has been waiting for long.
    pub(crate) fn is_to_wait(&self, now: u64) -> bool {
        self.queued.load(Relaxed) && now >= self.deadline.load(Relaxed)
    }

    /// Notes whether hyper was dropped (true) or is back (false).
    pub(crate) fn put_down_hyper(&self, is_down: bool) {
        self.hyper_is_down.store(is_down, Relaxed);
        self.leaves_queue();
    }

    /// Whether hyper was dropped while the request waits.
    pub(crate) fn hyper_is_down(&self) -> bool {
        self.hyper_is_down.load(Relaxed)
    }

    /// The client is still sending a body that is not read.
    pub(crate) fn leave_body_unread(&self) {
        self.body_unread.store(true, Relaxed);
    }

    pub(crate) fn body_is_unread(&self) -> bool {
        self.body_unread.load(Relaxed)
    }

    /// Adds a part of a file to the queue. A placeholder of the same length goes through hyper.
    pub(crate) fn queue_file(&self, file: Arc<OpenFile>, offset: u64, len: usize) {
        self.outbox()
            .files
            .push_back(FilePiece { file, offset, len });
    }

    /// Removes `cut` bytes from the end of the last part in the queue.
    pub(crate) fn shorten_last_file(&self, cut: usize) {
        if let Some(piece) = self.outbox().files.back_mut() {
            piece.len -= cut;
        }
    }

    /// Sends an interim response (1xx, RFC 9110 §15.2) before the final one. If too many are waiting, it is dropped,
    /// which §15 allows.
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

    /// The answer was handed to hyper. `complete`: all of it, else hyper will get no more.
    pub(crate) fn answered(&self, record: Box<Record>, complete: bool) {
        if complete {
            // The record before it is finished: hyper gets no new request before that.
            self.outbox().record = Some(record);
            self.posted.store(true, Relaxed);
        } else {
            record.cut_short();
        }
    }

    /// The connection ends. An answer that was not flushed did not arrive.
    pub(crate) fn ended(&self) {
        let record = self.outbox().record.take();
        if let Some(record) = record {
            record.cut_short();
        }
    }

    /// hyper has nothing left to write. Returns whether this completed an answer.
    fn flushed(&self) -> bool {
        if !self.posted.load(Relaxed) {
            return false;
        }
        self.posted.store(false, Relaxed);
        let record = self.outbox().record.take();
        let Some(record) = record else {
            return false;
        };
        self.rest();
        record.sent();
        true
    }

    /// Path and query of the current request as received, if its URI has another spelling.
    pub(crate) fn take_target(&self) -> Option<Box<[u8]>> {
        if !self.has_target.load(Relaxed) {
            return None;
        }
        self.has_target.store(false, Relaxed);
        self.inbox().as_mut()?.target.take()
    }

    /// Why the connection must end, if the received bytes are not a valid message.
    pub(crate) fn take_refused(&self) -> Option<Refused> {
        self.inbox().as_mut()?.refused.take()
    }

    /// Between two requests: the kernel has the whole last answer.
    pub(crate) fn rest(&self) {
        self.phase.store(Phase::Idle as u8, Relaxed);
        self.head_started.store(clock::now(), Relaxed);
        self.deadline
            .store(clock::deadline(self.timeouts.idle), Relaxed);
    }

    /// Notes whether a write to `socket` waits for the client. `send_timeout` limits that wait. A client that reads
    /// slowly but steadily is not cut: a large send buffer of the kernel may stay full for much longer than the
    /// timeout.
    pub(crate) fn note_write(&self, waits: bool, socket: &Socket) {
        let deadline = self.send_deadline.load(Relaxed);
        let unsent = || weir_sys::socket::unsent(socket.as_fd());
        match (waits, deadline != NEVER) {
            (true, false) => self.wait_for_client(unsent().unwrap_or(0)),
            (true, true) if clock::now() >= deadline => {
                if let Ok(left) = unsent()
                    && left < self.unsent.load(Relaxed)
                {
                    self.wait_for_client(left);
                }
            }
            (false, true) => self.send_deadline.store(NEVER, Relaxed),
            _ => {}
        }
    }

    fn wait_for_client(&self, unsent: u64) {
        self.unsent.store(unsent, Relaxed);
        self.send_deadline
            .store(clock::deadline(self.timeouts.send), Relaxed);
    }

    /// Closes the connection if it is still idle when its task runs.
    pub(crate) fn give_up_if_idle(&self) {
        self.is_unwanted.store(true, Relaxed);
        self.wake();
    }

    /// Whether the connection is idle and is to be closed for others.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_unwanted.load(Relaxed) && self.is_idle()
    }

    /// Since when the connection has had no request, if it may be closed for others. A client that has just connected
    /// may not: it is about to send a request.
    pub(crate) fn spare_since(&self, now: u64) -> Option<u64> {
        let since = self.head_started.load(Relaxed);
        let is_new = self.requests() == 0 && now.saturating_sub(since) < NEW;
        (self.is_idle() && !is_new && !self.is_unwanted.load(Relaxed)).then_some(since)
    }

    /// The first byte of the next head has arrived.
    pub(crate) fn received(&self) {
        if matches!(self.phase(), Phase::Idle | Phase::Parked) {
            self.phase.store(Phase::Head as u8, Relaxed);
            self.is_unwanted.store(false, Relaxed);
            self.head_started.store(clock::now(), Relaxed);
            self.deadline
                .store(clock::deadline(self.timeouts.header), Relaxed);
        }
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inbox(&self) -> MutexGuard<'_, Option<Box<Inbox>>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.interim.is_empty() && self.record.is_none()
    }
}

impl ClientIo {
    /// `ahead`: bytes that were already read from the socket, starting at the beginning of a message.
    pub(crate) fn new(socket: Socket, conn: Arc<Conn>, ahead: Bytes) -> ClientIo {
        ClientIo {
            socket,
            framing: Framing::new(conn.max_head),
            conn,
            ahead: ahead.into(),
            ready: 0,
            at_end: false,
            awaited: false,
            is_within: false,
            populating: None,
            in_memory: 0,
        }
    }

    /// The socket, and the bytes that were read but not taken by hyper.
    pub(crate) fn into_parts(self) -> (Socket, Bytes) {
        (self.socket, self.ahead.freeze())
    }

    /// Keeps reading while a request is processed, so that a client that leaves is noticed. The bytes are kept for
    /// later. Beyond [`MAX_AHEAD`] nothing is read. Ready: the client closed its side of the connection.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.ahead.len() < MAX_AHEAD && !self.at_end {
            if ready!(self.poll_fill(cx))? == 0 {
                self.at_end = true;
            }
        }
        match self.at_end {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Reads more bytes to the end of `ahead`; 0: the client closed its side.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // As a rule nothing is there to be read: clearing it beforehand would cost more than the rest.
        let mut piece = [MaybeUninit::uninit(); 4096];
        let mut buffer = ReadBuf::uninit(&mut piece);
        let read = Pin::new(&mut self.socket).poll_read(cx, &mut buffer);
        self.awaited = read.is_pending();
        ready!(read)?;
        self.ahead.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Checks the bytes that were read ahead. False: more bytes are needed.
    ///
    /// # Errors
    ///
    /// The bytes are not a valid message.
    fn look_at_ahead(&mut self) -> io::Result<bool> {
        match self.framing.look(&self.ahead) {
            Verdict::Pass(count) => self.ready = count,
            Verdict::More => return Ok(false),
            Verdict::Encode(at) => self.encode(at),
            Verdict::Refuse(refused) => return Err(self.refuse(refused)),
            Verdict::Bad(why) => return Err(io::Error::new(io::ErrorKind::InvalidData, why)),
        }
        Ok(true)
    }

    /// Replaces the received target with a spelling that hyper accepts. The request gets the original.
    fn encode(&mut self, at: Range<usize>) {
        let target = &self.ahead[at.clone()];
        let original = &target[framing::path(target)];
        self.conn.inbox().get_or_insert_default().target = Some(original.into());
        self.conn.has_target.store(true, Relaxed);
        let parts = [
            &self.ahead[..at.start],
            &framing::encoded(target),
            &self.ahead[at.end..],
        ];
        self.ahead = BytesMut::from(&parts.concat()[..]);
    }

    /// Lets the connection answer this head; hyper does not see it.
    fn refuse(&self, refused: Refused) -> io::Error {
        self.conn.inbox().get_or_insert_default().refused = Some(refused);
        io::Error::new(io::ErrorKind::InvalidData, refused.why)
    }

    /// Writes interim responses. They go out before hyper's data, of which there is none at this time.
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
}

impl AsyncRead for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.ready > 0 {
                let count = this.ready.min(buf.remaining());
                buf.put_slice(&this.ahead[..count]);
                this.ahead.advance(count);
                this.ready -= count;
                return Poll::Ready(Ok(()));
            }
            if this.framing.is_done() {
                let left = this.poll_ahead(cx)?;
                // Requests that arrived before the close are answered, except if a script is working for the client
                // that left.
                let is_heard = this.ahead.is_empty() || this.conn.at_script.load(Relaxed);
                return match left.is_ready() && is_heard {
                    true => Poll::Ready(Ok(())),
                    false => Poll::Pending,
                };
            }
            if !this.ahead.is_empty() {
                this.conn.received();
                if this.look_at_ahead()? {
                    continue;
                }
                if this.at_end || ready!(this.poll_fill(cx))? == 0 {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            if this.at_end {
                return Poll::Ready(Ok(()));
            }
            // Usually this is a whole message or a part of one, which goes to hyper without a copy.
            let before = buf.filled().len();
            let read = Pin::new(&mut this.socket).poll_read(cx, buf);
            this.awaited = read.is_pending();
            ready!(read)?;
            let came = &buf.filled()[before..];
            if came.is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.conn.received();
            let verdict = this.framing.look(came);
            let passed = match verdict {
                Verdict::Pass(count) => count,
                _ => 0,
            };
            this.ahead.extend_from_slice(&came[passed..]);
            buf.set_filled(before + passed);
            match verdict {
                Verdict::Pass(0) | Verdict::More => {}
                Verdict::Pass(_) => return Poll::Ready(Ok(())),
                Verdict::Encode(at) => this.encode(at),
                Verdict::Refuse(refused) => return Poll::Ready(Err(this.refuse(refused))),
                Verdict::Bad(why) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                }
            }
        }
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
        if !this.is_within {
            let interim = this.poll_interim(cx);
            if interim.is_pending() {
                this.conn.note_write(true, &this.socket);
            }
            ready!(interim)?;
        }
        let memory = slices
            .iter()
            .position(|slice| is_placeholder(slice))
            .unwrap_or(slices.len());
        let written = match &slices[..memory] {
            [] if !slices.is_empty() => this.poll_send_file(cx),
            // A file follows: its first bytes are sent in the same packet.
            before if memory < slices.len() => this.poll_send_more(cx, before),
            [one] => Pin::new(&mut this.socket).poll_write(cx, one),
            // A small answer is copied into one piece: send(2) of one piece costs the kernel less than writev(2) of
            // two.
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
        this.conn.note_write(written.is_pending(), &this.socket);
        if let Poll::Ready(Ok(count)) = written {
            this.is_within = count < slices.iter().map(|slice| slice.len()).sum();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let interim = self.poll_interim(cx);
        self.conn.note_write(interim.is_pending(), &self.socket);
        ready!(interim)?;
        if self.conn.flushed() {
            self.framing.answered();
            if !self.ahead.is_empty() || self.at_end {
                // The next request has arrived, and hyper was told that there is nothing to read.
                self.conn.received();
                cx.waker().wake_by_ref();
            }
        }
        // hyper flushes in each of its turns, after it has read.
        let is_awaited = std::mem::take(&mut self.awaited);
        if is_awaited || self.conn.phase() != Phase::Busy || !self.conn.at_script.load(Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let is_at_end = self.poll_ahead(cx)?.is_ready();
        // This read counts for this turn only. The next turn may flush without a read before it, and must not miss what
        // has woken it.
        self.awaited = false;
        match is_at_end {
            true => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            false => Poll::Ready(Ok(())),
        }
    }

    /// Does nothing: `connection` decides how the socket is closed when hyper has ended.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

thread_local! {
    static JOIN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection without a byte is not closed for others for this long, µs: the default of `header_timeout`.
const NEW: u64 = 10_000_000;

/// After this time in a pool's queue (µs), the connection drops hyper and its buffers.
const PUT_DOWN_AFTER: u64 = 100_000;

/// How many bytes of interim responses may wait for a client that does not read.
const MAX_INTERIM: usize = 128 * 1024;

/// How many bytes of pipelined requests are read while a request is processed. If a client has sent more, its close
/// is noticed only after that request is answered or has timed out.
const MAX_AHEAD: usize = 16 * 1024;

/// Answers of up to this many bytes are copied into one piece.
const JOINED: usize = 4096;

/// hyper may have consumed a part of a placeholder's length, but never of its address: `Chunk::chunk` always starts
/// at the first byte of the array.
fn is_placeholder(slice: &IoSlice<'_>) -> bool {
    std::ptr::eq(slice.as_ptr(), PLACEHOLDER.as_ptr()) && !slice.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each open connection has one of these. Data that is rare, or the same for all connections, belongs elsewhere.
    #[test]
    fn what_is_kept_of_each_connection_is_small() {
        assert!(size_of::<Conn>() <= 288, "{}", size_of::<Conn>());
        assert!(size_of::<Source>() <= 40, "{}", size_of::<Source>());
        assert!(size_of::<Framing>() <= 128, "{}", size_of::<Framing>());
    }
}
