//! One request at one worker: writes the request, reads the response, and handles the rest of the response when the
//! request ends early.
//!
//! A [`Run`] owns the worker's lease and connection from the first sent byte to END_REQUEST. If it is dropped
//! earlier, because the client left, the script is not stopped: a separate task reads and discards the rest. So the
//! worker counts as free only when it really is. Writing and reading are independent, because a script may answer
//! before it has read its whole body.
//!
//! A program is free when it sends END_REQUEST. weir's own PHP reports this separately: its script may continue after
//! the response is complete ([`finishing`]).

pub(crate) mod cgi;
pub(crate) mod connection;
mod failure;
mod finishing;
mod leaving;
mod owner;

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tokio::{io::ReadBuf, time::Sleep};
use weir_fcgi::client::{self, Event, ResponseDecoder};
use weir_http::RequestState;
use weir_net::{FilePart, Spare};
use weir_pool::Finish;

pub(crate) use self::failure::Failure;
use weir_observe::{
    error_log::{self, About, Format, WorkerStderr, tell},
    pool_log::Cost,
};

use super::{fastcgi::connection::WorkerConn, spool::Spooled};
use crate::{
    clock::{self, NEVER},
    dispatch::Lease,
};

pub(crate) use self::owner::{Owner, RequestSummary};

/// A request at a worker. The default is one that has ended.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// `None` when the request has ended and the worker was given back.
    live: Option<Box<Live>>,
    /// When the worker's first byte arrived ([`clock::now`]).
    pub(crate) first_byte: Option<u64>,
    /// What happens to the script if this is dropped before the request's end.
    on_drop: OnDrop,
}

/// What happens to a script whose response is not needed any more.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDrop {
    /// The script runs to its end; its output is discarded. weir's own PHP is told that the client has left. This
    /// ends the script at its next output, unless `ignore_user_abort` is set. Other workers may write up to
    /// [`MAX_UNWANTED`].
    #[default]
    Finish,
    /// The script is to end: weir's own PHP is told, and has `read_timeout` for it. For other workers the connection
    /// is closed, which stops PHP at its next output. If weir runs the process, it is replaced.
    Abort,
    /// The script ends now: if weir runs its process, it is replaced as soon as the pool may stop another one
    /// ([`PoolHandle::may_cancel`]). Until then the script may end by itself. For other workers the connection is
    /// closed.
    Cancel,
    /// The process is replaced.
    Kill,
}

/// What a worker has written to its standard error, for a receiver that passes it on. When [`MAX_COPIED_STDERR`]
/// bytes wait to be taken, further bytes are dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct StderrCopy(Rc<RefCell<Vec<u8>>>);

impl StderrCopy {
    /// What a worker would have written.
    pub(crate) fn of(text: &[u8]) -> Self {
        Self(Rc::new(RefCell::new(text.to_vec())))
    }
}

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There may be more to read.
    More,
    /// The response is complete and the worker was given back.
    End,
}

#[derive(Debug)]
struct Live {
    lease: Lease,
    conn: WorkerConn,
    decoder: ResponseDecoder,
    request: Outbound,
    watch: Watch,
    /// Lines of standard error have this number in the log.
    id: u64,
    asked: RequestSummary,
    stderr: WorkerStderr,
    /// There was standard error.
    has_stderr: bool,
    /// How many pieces of the request the kernel has accepted.
    sent: u64,
    copied_stderr: Option<StderrCopy>,
    terminate_at: u64,
    /// After this time nobody needs the answer.
    late_at: u64,
    /// When the script is due for the slow log, when it is given up because its client has left, and when to check
    /// again whether it may be.
    slow_at: u64,
    abandon_at: u64,
    cancel_at: u64,
    /// State of the protocol between weir and its own PHP.
    after_end: AfterEnd,
}

/// How far weir's own PHP is with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterEnd {
    /// The worker is a program, which is free after END_REQUEST.
    None,
    /// The response is not complete yet.
    Expected,
    /// The response is complete, but READY has not arrived.
    Running,
    /// READY has arrived.
    Ready(Cost),
    /// Something other than READY has arrived.
    Stray,
    /// The worker has closed its stream.
    Gone,
}

/// What must still be written.
#[derive(Debug)]
struct Outbound {
    /// The request's FastCGI id.
    id: u16,
    buffer: Vec<u8>,
    written: usize,
    /// The part of the body that is in a temporary file.
    file: Option<Box<FilePart>>,
    /// The client has left. This is reported after the body.
    aborts: bool,
}

/// A deadline. In the steps of a request, its carrier looks at it; other tasks use their own timer.
#[derive(Debug)]
struct Watch {
    /// How long nothing may be written or read, µs; [`NEVER`]: for any time.
    silence: u64,
    deadline: u64,
    request: Option<Rc<RequestState>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

thread_local! {
    /// Buffer for bytes from workers. What is needed of them is copied at once.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; 64 * 1024].into_boxed_slice());
}

impl Run {
    /// Begins a request. `params` are the encoded BEGIN_REQUEST and PARAMS records with `conn`'s next id.
    pub(crate) fn start(
        (lease, mut conn): (Lease, WorkerConn),
        client: &Rc<RequestState>,
        (id, asked): (u64, RequestSummary),
        mut params: Vec<u8>,
        body: Option<&Spooled>,
    ) -> Run {
        let number = conn.next_id();
        let file = body.and_then(|body| {
            client::stdin(&mut params, number, body.memory());
            let file = body.file()?;
            let part = FilePart::new(file.file().clone(), 0, file.len());
            Some(Box::new(part))
        });
        if file.is_none() {
            client::stdin_end(&mut params, number);
        }
        let written = conn.begin_request();
        let settings = &lease.pool.settings;
        let mut decoder = ResponseDecoder::new(number);
        let (mut slow_at, mut after_end) = (NEVER, AfterEnd::None);
        if let Some(php) = settings.php() {
            decoder = decoder.allow_extensions();
            slow_at = clock::deadline(php.slowlog_timeout);
            after_end = AfterEnd::Expected;
        }
        let live = Live {
            decoder,
            request: Outbound {
                id: number,
                buffer: params,
                written,
                file,
                aborts: false,
            },
            watch: Watch::new(settings.read_timeout, client.clone()),
            id,
            asked,
            stderr: WorkerStderr::new(),
            has_stderr: false,
            sent: 0,
            copied_stderr: None,
            terminate_at: clock::deadline(settings.request_terminate_timeout),
            late_at: NEVER,
            slow_at,
            abandon_at: NEVER,
            cancel_at: NEVER,
            after_end,
            lease,
            conn,
        };
        Run {
            live: Some(Box::new(live)),
            first_byte: None,
            on_drop: OnDrop::Finish,
        }
    }

    /// Writes what can be written, and appends the script's output to `output`.
    ///
    /// # Errors
    ///
    /// See [`Failure`]. The worker was given back, or given up if its connection cannot be used again.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<Progress, Failure>> {
        let Some(live) = &mut self.live else {
            return Poll::Ready(Ok(Progress::End));
        };
        let mut result = match live.poll(cx, output, &mut self.first_byte) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(result) => result,
        };
        if let Err(Failure::Silent { goes_on, .. }) = &mut result {
            let stops = matches!(self.on_drop, OnDrop::Cancel | OnDrop::Kill);
            *goes_on = live.lease.pool.has_workers() && !stops;
        }
        match &result {
            Ok(Progress::More) => {}
            Ok(Progress::End) => {
                if let Some(live) = self.live.take() {
                    live.finish();
                }
            }
            // The client does not wait any more, but the script may be doing useful work. With PHP-FPM behind a web
            // server the script would continue, too. The route's setting for clients that have left applies here as
            // well.
            Err(Failure::Silent { goes_on: true, .. }) => {
                if self.on_drop == OnDrop::Abort {
                    self.on_drop = OnDrop::Finish;
                }
                let deadline = self.live.as_ref().map_or(NEVER, |live| live.late_at);
                self.leave(deadline);
            }
            // The script's answer is not needed any more, but the script is not stuck.
            Err(Failure::Late) => {
                self.on_drop = OnDrop::Cancel;
                self.leave(NEVER);
            }
            Err(failure) => {
                if let Some(live) = self.live.take() {
                    live.give_up(failure, self.first_byte.is_some());
                }
            }
        }
        Poll::Ready(result)
    }

    /// Like [`Self::poll`].
    ///
    /// # Errors
    ///
    /// Like [`Self::poll`].
    pub(crate) async fn read(&mut self, output: &mut Vec<u8>) -> Result<Progress, Failure> {
        poll_fn(|cx| self.poll(cx, output)).await
    }

    /// From now on the worker's standard error is also copied, besides its lines in the log.
    pub(crate) fn copy_stderr(&mut self) -> StderrCopy {
        let copy = StderrCopy::default();
        if let Some(live) = &mut self.live {
            live.copied_stderr = Some(copy.clone());
        }
        copy
    }

    /// When the script reaches `request_terminate_timeout` ([`clock::now`]); never if it has ended.
    pub(crate) fn terminate_at(&self) -> u64 {
        self.live.as_ref().map_or(NEVER, |live| live.terminate_at)
    }

    /// Sets until when ([`clock::now`]) more of the response is needed.
    pub(crate) fn ends_at(&mut self, deadline: u64) {
        if let Some(live) = &mut self.live {
            live.late_at = deadline;
            live.lease.ends_at(live.id, deadline);
        }
    }

    /// The response is a stream: if the client leaves, its script is ended.
    pub(crate) fn streams(&mut self) {
        if self.on_drop != OnDrop::Cancel {
            self.on_drop = OnDrop::Abort;
        }
    }

    /// The answer is invalid, which is the server's fault. False: its request had already ended as an answered one.
    pub(crate) fn blame(&mut self, cause: &str) -> bool {
        match &mut self.live {
            Some(live) => {
                live.lease.ended(Finish::Failed, Some(&cause));
                true
            }
            None => false,
        }
    }

    /// Sets what happens to the script if the client leaves.
    pub(crate) fn on_drop(&mut self, on_drop: OnDrop) {
        self.on_drop = on_drop;
    }

    /// From now on this runs in a task without the client's connection.
    pub(crate) fn detach(&mut self) {
        if let Some(live) = &mut self.live {
            live.watch.detach();
        }
    }

    /// How log lines name this request, also after its end.
    pub(crate) fn owner(&self) -> Owner {
        Owner(
            self.live
                .as_ref()
                .map(|live| (live.lease.pool, live.id, live.asked.clone())),
        )
    }
}

impl StderrCopy {
    /// The bytes that arrived since the last call.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.take()
    }

    fn put(&self, bytes: &[u8]) {
        let mut kept = self.0.borrow_mut();
        let room = MAX_COPIED_STDERR - kept.len();
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.leave(NEVER);
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
        // A worker that does not read the rest of a body may have answered already: its answer is read first.
        let read = self.poll_read(cx, output, first_byte);
        match (read, write_error) {
            (Poll::Ready(Ok(Progress::End)), _) => {
                self.look_for_ready(cx, output, first_byte);
                Poll::Ready(Ok(Progress::End))
            }
            (Poll::Ready(result), _) => Poll::Ready(result),
            (Poll::Pending, Some(failure)) => Poll::Ready(Err(failure)),
            (Poll::Pending, None) => self.poll_time(cx).map(Err),
        }
    }

    /// Ready when the script's time is over.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        loop {
            let ours = self.terminate_at.min(self.late_at).min(self.cancel_at);
            let other = ours.min(self.slow_at).min(self.abandon_at);
            std::task::ready!(self.watch.poll(cx, other));
            let now = clock::now();
            if now >= self.terminate_at {
                return Poll::Ready(Failure::Terminated);
            }
            if now >= self.late_at {
                return Poll::Ready(Failure::Late);
            }
            if now >= self.cancel_at {
                match self.lease.pool.may_cancel() {
                    Ok(()) => return Poll::Ready(Failure::Cancelled),
                    Err(next) => self.cancel_at = next,
                }
                continue;
            }
            if now < self.slow_at {
                return Poll::Ready(Failure::Silent {
                    limit: self.lease.pool.settings.read_timeout,
                    goes_on: false,
                });
            }
            self.slow_at = NEVER;
            self.lease.trace(self.id);
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
                        self.sent += 1;
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
        while !input.is_empty() {
            match self.decoder.next(&mut input) {
                // Exactly as large as the bytes, which often are the whole response.
                Ok(Some(Event::Stdout(bytes))) if output.capacity() == 0 => {
                    *output = bytes.to_vec()
                }
                Ok(Some(Event::Stdout(bytes))) => output.extend_from_slice(bytes),
                Ok(Some(Event::Stderr(bytes))) => {
                    if let Some(copy) = &self.copied_stderr {
                        copy.put(bytes);
                    }
                    self.take_stderr(bytes);
                }
                Ok(Some(Event::End {
                    protocol_status, ..
                })) => {
                    if protocol_status != weir_fcgi::ProtocolStatus::RequestComplete {
                        return Err(Failure::Protocol(format!(
                            "the worker refused the request: {protocol_status:?}"
                        )));
                    }
                    if self.after_end == AfterEnd::Expected {
                        self.after_end = AfterEnd::Running;
                        continue;
                    }
                    if !input.is_empty() {
                        tell!(
                            warning,
                            self.about(),
                            "{} bytes after END_REQUEST were discarded",
                            input.len()
                        );
                        self.conn.requests = u64::MAX;
                    }
                    return Ok(Progress::End);
                }
                Ok(Some(Event::Extension(record))) => self.take_extension(&record)?,
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) if self.decoder.is_ended() => {
                    self.stray(&error);
                    return Ok(Progress::End);
                }
                Err(error) => return Err(Failure::Protocol(error.to_string())),
            }
        }
        Ok(match self.after_end {
            AfterEnd::None | AfterEnd::Expected => Progress::More,
            _ => Progress::End,
        })
    }

    /// Passes standard error on to the log. In the style of PHP-FPM, messages to the web server are not there.
    fn take_stderr(&mut self, bytes: &[u8]) {
        if self.copied_stderr.is_some() && error_log::format() != Format::Weir {
            return;
        }
        self.has_stderr = true;
        let mut stderr = std::mem::take(&mut self.stderr);
        stderr.push(bytes, &self.about());
        self.stderr = stderr;
    }

    fn closed(&self, error: Option<io::Error>) -> Failure {
        let reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
        Failure::Closed {
            process: self.lease.process,
            // The kernel reports this for a unix socket that was closed before all of it was read (unix(7)). A worker
            // reads a request that was sent in one piece with one read, or not at all.
            unread: self.sent == 1
                && self.lease.is_php()
                && self.request.written <= ONE_PIECE
                && error.as_ref().is_some_and(reset),
            unstarted: self.lease.is_php()
                && (self.request.file.is_some()
                    || self.request.written < self.request.buffer.len()),
            error,
            sent: self.sent > 0,
        }
    }

    /// The subject of log lines.
    fn about(&self) -> About<'_> {
        About {
            pool: Some(&self.lease.pool.settings.name),
            request: Some(self.id),
            asked: Some(self.asked.named()),
            ..About::default()
        }
    }

    /// Passes the rest of standard error on.
    fn end_stderr(&mut self) {
        if !self.has_stderr {
            return;
        }
        let mut stderr = std::mem::take(&mut self.stderr);
        stderr.finish(&self.about());
    }

    /// The request has ended: the worker takes the next one, on this connection if it can be used again.
    fn finish(mut self: Box<Self>) {
        self.end_stderr();
        self.lease.ended(Finish::Answered, None);
        if self.after_end == AfterEnd::Running {
            return self.run_on();
        }
        let unwritten = self.request.buffer.len() - self.request.written;
        recycle(std::mem::take(&mut self.asked.target));
        recycle(std::mem::take(&mut self.request.buffer));
        let whole = self.request.file.is_none() && unwritten == 0;
        match self.after_end {
            AfterEnd::None | AfterEnd::Expected | AfterEnd::Running => {}
            AfterEnd::Ready(cost) if whole => return self.lease.release(Some(self.conn), cost),
            AfterEnd::Ready(_) | AfterEnd::Stray => return self.lease.kill(),
            AfterEnd::Gone => return self.lease.release(None, Cost::default()),
        }
        let settings = &self.lease.pool.settings;
        let spent = settings.max_reqs > 0 && self.conn.requests >= settings.max_reqs;
        let dirty = self.conn.requests == u64::MAX;
        let conn = (settings.keep_conn && whole && !spent && !dirty).then_some(self.conn);
        self.lease.release(conn, Cost::default());
    }

    fn give_up(mut self: Box<Self>, failure: &Failure, answered: bool) {
        self.end_stderr();
        match failure {
            // A server may close kept connections at any time.
            Failure::Closed { .. } if self.conn.requests > 1 && !answered => {}
            Failure::Closed { .. } | Failure::Protocol(_) => {
                self.lease.ended(Finish::Failed, Some(failure));
            }
            Failure::Silent { .. } => self.lease.ended(Finish::TimedOut, Some(failure)),
            Failure::Terminated | Failure::Late | Failure::Cancelled | Failure::Spool(_) => {}
        }
        match failure {
            Failure::Closed { .. } => return self.lease.release(None, Cost::default()),
            Failure::Terminated => self.lease.terminate(self.id),
            Failure::Cancelled => return self.cancel(),
            Failure::Protocol(_) | Failure::Silent { .. } | Failure::Late | Failure::Spool(_) => {}
        }
        self.lease.kill();
    }
}

impl Outbound {
    /// Reports after the whole request that its client has left.
    fn abort(&mut self) {
        match self.file {
            Some(_) => self.aborts = true,
            None => client::abort_request(&mut self.buffer, self.id),
        }
    }

    /// Fills the buffer with the next piece of the body; false if there is none.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Some(file) = &mut self.file else {
            return Poll::Ready(Ok(false));
        };
        let piece = match file.len() {
            0 => Bytes::new(),
            _ => std::task::ready!(file.poll_read(cx, UPLOAD_PIECE))?,
        };
        self.buffer.clear();
        self.written = 0;
        client::stdin(&mut self.buffer, self.id, &piece);
        if piece.is_empty() {
            client::stdin_end(&mut self.buffer, self.id);
            self.file = None;
            if self.aborts {
                client::abort_request(&mut self.buffer, self.id);
            }
        }
        Poll::Ready(Ok(true))
    }
}

impl Watch {
    fn new(silence: Duration, request: Rc<RequestState>) -> Watch {
        let silence = match silence.is_zero() {
            true => NEVER,
            false => silence.as_micros() as u64,
        };
        Watch {
            silence,
            deadline: clock::now().saturating_add(silence),
            request: Some(request),
            sleep: None,
        }
    }

    /// From now on this runs in a task of its own.
    fn detach(&mut self) {
        if let Some(request) = self.request.take() {
            request.wake_at(NEVER);
        }
    }

    /// Bytes were written or read: the timeout for silence starts again.
    fn moved(&mut self) {
        self.deadline = clock::now().saturating_add(self.silence);
    }

    /// Ready when the silence has lasted too long, or at `other`.
    fn poll(&mut self, cx: &mut Context<'_>, other: u64) -> Poll<()> {
        let deadline = self.deadline.min(other);
        let now = clock::now();
        if now >= deadline {
            return Poll::Ready(());
        }
        if let Some(request) = &self.request {
            request.wake_at(deadline);
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
    static BUFFERS: Spare<Vec<u8>> = const { Spare::new(64) };
}

/// An empty buffer for texts of a request, with the capacity of an earlier one.
pub(crate) fn buffer() -> Vec<u8> {
    BUFFERS.with(Spare::take).unwrap_or_default()
}

/// Puts a buffer back for [`buffer`], unless it is large.
pub(crate) fn recycle(mut buffer: Vec<u8>) {
    if buffer.capacity() <= KEPT_CAPACITY {
        buffer.clear();
        BUFFERS.with(|buffers| buffers.keep(buffer));
    }
}

/// A request of at most this many bytes that is sent with one write is read by weir's own PHP with one read: it is
/// one piece in the kernel, and smaller than the worker's buffer.
const ONE_PIECE: usize = 32 * 1024;

/// How much of a worker's standard error is kept for a receiver, bytes.
const MAX_COPIED_STDERR: usize = 64 * 1024;

const KEPT_CAPACITY: usize = 16 * 1024;

/// How much of a body in a file is written to the worker at once, bytes.
const UPLOAD_PIECE: usize = 128 * 1024;
