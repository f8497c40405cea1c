//! One request at one worker: writes it, reads the response, and knows what is left of it whatever happens.
//!
//! A [`Run`] owns the worker's lease and connection from the first byte sent to END_REQUEST. If it is dropped before
//! (its client has left) the script is not stopped: a task of its own reads the rest and throws it away, so that the
//! worker is free again only when it really is. What is written and what is read are independent, since a script may
//! answer before it has read its whole body.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    io,
    os::fd::AsFd,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{io::ReadBuf, task::JoinHandle, time::Sleep};
use weir_fcgi::client::{self, Event, ResponseDecoder};

use crate::error_log::{About, WorkerStderr, tell};

use super::{
    client_io::Conn,
    clock::{self, NEVER},
    dispatch::{Lease, PoolHandle},
    spool::{SpoolFile, Spooled, off_the_reactor},
    worker_conn::WorkerConn,
};

/// A request at a worker.
#[derive(Debug)]
pub(crate) struct Run {
    /// None once the request has ended and the worker was given back.
    live: Option<Box<Live>>,
    /// When the worker's first byte came ([`clock::now`]).
    pub(crate) first_byte: Option<u64>,
    /// What to do with the worker if the request is left before its end.
    on_drop: OnDrop,
}

/// What becomes of a script whose response nobody wants any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDrop {
    /// It runs to its end; its output is read and thrown away, up to [`MAX_UNWANTED`].
    Finish,
    /// Its connection is closed, which stops PHP at its next output; a process of weir's own is replaced.
    Abort,
}

/// Whose response it is: its pool and the request's number; none where it had ended before.
#[derive(Debug, Default)]
pub(crate) struct Owner(Option<(Arc<PoolHandle>, u64)>);

/// What a worker has written to its standard error, for who passes it on. Past [`MAX_COPIED_STDERR`] bytes that nobody
/// has taken, more is left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct StderrCopy(Arc<Mutex<Vec<u8>>>);

/// How far a read got.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There may be more.
    More,
    /// The response is whole and the worker has been given back.
    End,
}

/// Why a request has no whole response.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The worker closed the connection, or the kernel did.
    Closed {
        process: Option<u32>,
        error: Option<io::Error>,
        sent: bool,
    },
    /// What came is not FastCGI, or the worker refused the request.
    Protocol(String),
    /// The worker was silent for `read_timeout`.
    Silent,
    /// The script ran past `request_terminate_timeout`.
    Terminated,
    /// A part of the request's body cannot be read back from the spool.
    Spool(io::Error),
}

#[derive(Debug)]
struct Live {
    lease: Lease,
    conn: WorkerConn,
    decoder: ResponseDecoder,
    request: Outbound,
    watch: Watch,
    /// Lines of standard error go to the log with it.
    id: u64,
    stderr: WorkerStderr,
    copied_stderr: Option<StderrCopy>,
    /// Some byte of the request was accepted by the kernel.
    sent: bool,
    terminate_at: u64,
}

/// What is still to be written.
#[derive(Debug)]
struct Outbound {
    /// The request's FastCGI id.
    id: u16,
    buffer: Vec<u8>,
    written: usize,
    file: Option<Upload>,
}

/// The part of a body that lies in a temporary file.
#[derive(Debug)]
struct Upload {
    file: Arc<SpoolFile>,
    read: u64,
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

/// A deadline in a task that has a client connection, which is woken with all others, or in one that has none.
#[derive(Debug)]
struct Watch {
    silence: Duration,
    deadline: u64,
    conn: Option<Arc<Conn>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

thread_local! {
    /// Bytes from workers pass through here; what is wanted of them is copied out at once.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; 64 * 1024].into_boxed_slice());
}

impl Run {
    /// Begins a request: `params` are the encoded BEGIN_REQUEST and PARAMS records, with `conn`'s next id.
    pub(crate) fn start(
        lease: Lease,
        mut conn: WorkerConn,
        client: &Arc<Conn>,
        id: u64,
        mut params: Vec<u8>,
        body: &Spooled,
    ) -> Run {
        let number = conn.next_id();
        client::stdin(&mut params, number, body.memory());
        let file = body.file().map(|file| Upload {
            file: file.clone(),
            read: 0,
            reading: None,
        });
        if file.is_none() {
            client::stdin_end(&mut params, number);
        }
        let written = conn.begin_request();
        let settings = &lease.pool().settings;
        let live = Live {
            decoder: ResponseDecoder::new(number),
            request: Outbound {
                id: number,
                buffer: params,
                written,
                file,
            },
            watch: Watch::new(settings.read_timeout, client.clone()),
            id,
            stderr: WorkerStderr::new(),
            copied_stderr: None,
            sent: false,
            terminate_at: clock::deadline(settings.request_terminate_timeout),
            lease,
            conn,
        };
        Run {
            live: Some(Box::new(live)),
            first_byte: None,
            on_drop: OnDrop::Finish,
        }
    }

    /// Writes what can be written, and appends what the script printed to `output`.
    ///
    /// # Errors
    ///
    /// See [`Failure`]; the worker has been given back, or given up where it is not fit for another request.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<Progress, Failure>> {
        let Some(live) = &mut self.live else {
            return Poll::Ready(Ok(Progress::End));
        };
        let result = match live.poll(cx, output, &mut self.first_byte) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(result) => result,
        };
        match &result {
            Ok(Progress::More) => {}
            Ok(Progress::End) => {
                if let Some(live) = self.live.take() {
                    live.finish();
                }
            }
            Err(failure) => {
                if let Some(live) = self.live.take() {
                    live.give_up(failure);
                }
            }
        }
        Poll::Ready(result)
    }

    /// As [`Self::poll`].
    ///
    /// # Errors
    ///
    /// As [`Self::poll`].
    pub(crate) async fn read(&mut self, output: &mut Vec<u8>) -> Result<Progress, Failure> {
        poll_fn(|cx| self.poll(cx, output)).await
    }

    /// From now on, what the worker writes to its standard error is kept, beside its lines in the log.
    pub(crate) fn copy_stderr(&mut self) -> StderrCopy {
        let copy = StderrCopy::default();
        if let Some(live) = &mut self.live {
            live.copied_stderr = Some(copy.clone());
        }
        copy
    }

    /// When the script is past `request_terminate_timeout` ([`clock::now`]); never where it has ended.
    pub(crate) fn terminate_at(&self) -> u64 {
        self.live.as_ref().map_or(NEVER, |live| live.terminate_at)
    }

    /// What becomes of the script if the client leaves.
    pub(crate) fn on_drop(&mut self, on_drop: OnDrop) {
        self.on_drop = on_drop;
    }

    /// From now on this runs in a task without the client's connection.
    pub(crate) fn detach(&mut self) {
        if let Some(live) = &mut self.live {
            live.watch.conn = None;
        }
    }

    /// What the log's lines about it name, also after its end.
    pub(crate) fn owner(&self) -> Owner {
        Owner(
            self.live
                .as_ref()
                .map(|live| (live.lease.pool().clone(), live.id)),
        )
    }
}

impl StderrCopy {
    /// What has come since it was taken last.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_COPIED_STDERR - kept.len();
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl Owner {
    /// For the error log.
    pub(crate) fn about(&self) -> About<'_> {
        About {
            pool: self.0.as_ref().map(|(pool, _)| pool.settings.name.as_str()),
            request: self.0.as_ref().map(|(_, id)| *id),
            ..About::default()
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let Some(live) = self.live.take() else {
            return;
        };
        match self.on_drop {
            OnDrop::Abort => live.lease.kill(),
            OnDrop::Finish => {
                let mut rest = Run {
                    live: Some(live),
                    first_byte: self.first_byte,
                    on_drop: OnDrop::Abort,
                };
                rest.detach();
                // Outside of a runtime the gateway itself is going, and its workers with it.
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move {
                        let (mut unwanted, mut thrown) = (Vec::new(), 0);
                        while let Ok(Progress::More) = rest.read(&mut unwanted).await
                            && thrown <= MAX_UNWANTED
                        {
                            thrown += unwanted.len() as u64;
                            unwanted.clear();
                        }
                    });
                }
            }
        }
    }
}

impl Live {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
        first_byte: &mut Option<u64>,
    ) -> Poll<Result<Progress, Failure>> {
        let write_error = match self.poll_write(cx) {
            Poll::Ready(Err(failure)) => Some(failure),
            _ => None,
        };
        // A worker that refuses the rest of a body may have answered already: what it said comes first.
        let read = self.poll_read(cx, output, first_byte);
        match (read, write_error) {
            (Poll::Ready(result), _) => Poll::Ready(result),
            (Poll::Pending, Some(failure)) => Poll::Ready(Err(failure)),
            (Poll::Pending, None) => {
                let terminate_at = self.terminate_at;
                if self.watch.poll(cx, terminate_at).is_pending() {
                    return Poll::Pending;
                }
                Poll::Ready(Err(if clock::now() >= terminate_at {
                    Failure::Terminated
                } else {
                    Failure::Silent
                }))
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            while self.request.written < self.request.buffer.len() {
                let written = self
                    .conn
                    .poll_write(cx, &self.request.buffer[self.request.written..]);
                match std::task::ready!(written) {
                    Ok(count) => {
                        self.request.written += count;
                        self.sent = true;
                        self.watch.moved();
                    }
                    Err(error) => return Poll::Ready(Err(self.closed(Some(error)))),
                }
            }
            match std::task::ready!(self.request.poll_fill(cx)) {
                Ok(true) => {}
                Ok(false) => {
                    self.conn.written();
                    return Poll::Ready(Ok(()));
                }
                Err(error) => return Poll::Ready(Err(Failure::Spool(error))),
            }
        }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
        first_byte: &mut Option<u64>,
    ) -> Poll<Result<Progress, Failure>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            match std::task::ready!(self.conn.poll_read(cx, &mut buffer)) {
                Ok(()) if buffer.filled().is_empty() => return Poll::Ready(Err(self.closed(None))),
                Ok(()) => {}
                Err(error) => return Poll::Ready(Err(self.closed(Some(error)))),
            }
            first_byte.get_or_insert_with(clock::now);
            self.watch.moved();
            Poll::Ready(self.decode(buffer.filled(), output))
        })
    }

    fn decode(&mut self, mut input: &[u8], output: &mut Vec<u8>) -> Result<Progress, Failure> {
        loop {
            match self.decoder.next(&mut input) {
                Ok(Some(Event::Stdout(bytes))) => output.extend_from_slice(bytes),
                Ok(Some(Event::Stderr(bytes))) => {
                    if let Some(copy) = &self.copied_stderr {
                        copy.put(bytes);
                    }
                    let mut stderr = std::mem::take(&mut self.stderr);
                    stderr.push(bytes, &self.about());
                    self.stderr = stderr;
                }
                Ok(Some(Event::End {
                    protocol_status, ..
                })) => {
                    if protocol_status != weir_fcgi::ProtocolStatus::RequestComplete {
                        return Err(Failure::Protocol(format!(
                            "the worker refused the request: {protocol_status:?}"
                        )));
                    }
                    if !input.is_empty() {
                        tell!(
                            warning,
                            self.about(),
                            "{} bytes after END_REQUEST were thrown away",
                            input.len()
                        );
                        self.conn.requests = u64::MAX;
                    }
                    return Ok(Progress::End);
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Progress::More),
                Err(error) => return Err(Failure::Protocol(error.to_string())),
            }
        }
    }

    fn closed(&self, error: Option<io::Error>) -> Failure {
        Failure::Closed {
            process: self.lease.process(),
            error,
            sent: self.sent,
        }
    }

    /// What the log's lines are about.
    fn about(&self) -> About<'_> {
        About {
            pool: Some(&self.lease.pool().settings.name),
            request: Some(self.id),
            ..About::default()
        }
    }

    /// Passes on what is left of standard error.
    fn end_stderr(&mut self) {
        let mut stderr = std::mem::take(&mut self.stderr);
        stderr.finish(&self.about());
    }

    /// The request has ended: the worker takes the next one, on this connection if it is fit for it.
    fn finish(mut self: Box<Self>) {
        self.end_stderr();
        let unwritten = self.request.buffer.len() - self.request.written;
        recycle(std::mem::take(&mut self.request.buffer));
        let settings = &self.lease.pool().settings;
        let whole = self.request.file.is_none() && unwritten == 0;
        let spent = settings.max_reqs > 0 && self.conn.requests >= settings.max_reqs;
        let dirty = self.conn.requests == u64::MAX;
        let conn = (settings.keep_conn && whole && !spent && !dirty).then_some(self.conn);
        self.lease.release(conn);
    }

    fn give_up(mut self: Box<Self>, failure: &Failure) {
        self.end_stderr();
        match failure {
            Failure::Closed { .. } => self.lease.release(None),
            Failure::Protocol(_) | Failure::Silent | Failure::Terminated | Failure::Spool(_) => {
                self.lease.kill()
            }
        }
    }
}

impl Outbound {
    /// Fills the buffer with the next piece of the body; false where there is none.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Some(upload) = &mut self.file else {
            return Poll::Ready(Ok(false));
        };
        let piece = std::task::ready!(upload.poll_read(cx))?;
        self.buffer.clear();
        self.written = 0;
        client::stdin(&mut self.buffer, self.id, &piece);
        if piece.is_empty() {
            client::stdin_end(&mut self.buffer, self.id);
            self.file = None;
        }
        Poll::Ready(Ok(true))
    }
}

impl Upload {
    /// The next piece, empty at the end; from the page cache at once, else from another thread.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let left = self.file.len() - self.read;
        if left == 0 {
            return Poll::Ready(Ok(Vec::new()));
        }
        let length = left.min(UPLOAD_PIECE) as usize;
        if self.reading.is_none() {
            let mut piece = vec![0; length];
            if let Some(count) =
                weir_sys::file::read_cached(self.file.fd().as_fd(), &mut piece, self.read)?
            {
                piece.truncate(count);
                return Poll::Ready(self.take(piece));
            }
            let (file, offset) = (self.file.clone(), self.read);
            self.reading = Some(tokio::spawn(off_the_reactor(move || {
                let count = weir_sys::file::read_at(file.fd().as_fd(), &mut piece, offset)?;
                piece.truncate(count);
                Ok(piece)
            })));
        }
        let Some(reading) = &mut self.reading else {
            return Poll::Pending;
        };
        let piece = std::task::ready!(Pin::new(reading).poll(cx))
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        self.reading = None;
        Poll::Ready(self.take(piece?))
    }

    fn take(&mut self, piece: Vec<u8>) -> io::Result<Vec<u8>> {
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read += piece.len() as u64;
        Ok(piece)
    }
}

impl Watch {
    fn new(silence: Duration, conn: Arc<Conn>) -> Watch {
        Watch {
            silence,
            deadline: clock::deadline(silence),
            conn: Some(conn),
            sleep: None,
        }
    }

    /// Bytes went or came: the silence begins anew.
    fn moved(&mut self) {
        self.deadline = clock::deadline(self.silence);
    }

    /// Ready when the silence has lasted too long, or `other` has come.
    fn poll(&mut self, cx: &mut Context<'_>, other: u64) -> Poll<()> {
        let deadline = self.deadline.min(other);
        let now = clock::now();
        if now >= deadline {
            return Poll::Ready(());
        }
        if let Some(conn) = &self.conn {
            conn.wake_at(deadline);
            return Poll::Pending;
        }
        if deadline == NEVER {
            return Poll::Pending;
        }
        let until = tokio::time::Instant::now() + Duration::from_micros(deadline - now);
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(until),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(until))),
        }
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer for a request's parameters, with the capacity of an earlier one.
pub(crate) fn buffer() -> Vec<u8> {
    BUFFERS
        .with_borrow_mut(|buffers| buffers.pop())
        .unwrap_or_default()
}

fn recycle(mut buffer: Vec<u8>) {
    if buffer.capacity() <= KEPT_CAPACITY {
        buffer.clear();
        BUFFERS.with_borrow_mut(|buffers| {
            if buffers.len() < KEPT_BUFFERS {
                buffers.push(buffer);
            }
        });
    }
}

/// How much of a worker's standard error is kept for who passes it on, bytes.
const MAX_COPIED_STDERR: usize = 64 * 1024;

const KEPT_BUFFERS: usize = 64;
const KEPT_CAPACITY: usize = 16 * 1024;

/// How much output is thrown away before a script is taken for one that never ends, bytes.
const MAX_UNWANTED: u64 = 256 << 20;

/// How much of a body in a file is handed to the worker at once, bytes.
const UPLOAD_PIECE: u64 = 128 * 1024;

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Closed { error: None, .. } => {
                f.write_str("the worker closed its connection before the end of the response")
            }
            Failure::Closed {
                error: Some(error), ..
            } => write!(f, "the connection to the worker failed: {error}"),
            Failure::Protocol(error) => write!(f, "the worker does not speak FastCGI: {error}"),
            Failure::Silent => f.write_str("the worker was silent for read_timeout"),
            Failure::Terminated => f.write_str("the script ran past request_terminate_timeout"),
            Failure::Spool(error) => write!(f, "the request's body cannot be read back: {error}"),
        }
    }
}
