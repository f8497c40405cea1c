//! A request at a FastCGI worker: writes it, and reads the response.
//!
//! A program is free when it sends END_REQUEST. weir's own PHP reports this separately: its script may continue after
//! the response is complete ([`finishing`]).

pub(crate) mod cgi;
mod finishing;
pub(crate) mod params;
pub(crate) mod path_info;

use std::{
    cell::RefCell,
    io,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::io::ReadBuf;
use weir_fcgi::client::{self, Event, ResponseDecoder};
use weir_http::RequestState;
use weir_net::FilePart;
use weir_observe::{
    error_log::{self, Format, WorkerStderr, tell},
    pool_log::Cost,
};
use weir_pool::Finish;

use super::{
    run::{Failure, Progress, RequestSummary, StderrCopy, Work, connection::WorkerConn, recycle},
    spool::Spooled,
};
use crate::{
    clock::{self, NEVER},
    dispatch::Lease,
};

/// A request that a FastCGI worker has.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) work: Work,
    conn: WorkerConn,
    decoder: ResponseDecoder,
    pub(super) request: Outbound,
    stderr: WorkerStderr,
    /// There was standard error.
    has_stderr: bool,
    /// How many pieces of the request the kernel has accepted.
    sent: u64,
    pub(super) copied_stderr: Option<StderrCopy>,
    /// When the script is due for the slow log, when it is given up because its client has left, and when to check
    /// again whether it may be.
    slow_at: u64,
    pub(super) abandon_at: u64,
    pub(super) cancel_at: u64,
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
pub(super) struct Outbound {
    /// The request's FastCGI id.
    id: u16,
    buffer: Vec<u8>,
    written: usize,
    /// The part of the body that is in a temporary file.
    file: Option<Box<FilePart>>,
    /// The client has left. This is reported after the body.
    aborts: bool,
}

thread_local! {
    /// Buffer for bytes from workers. What is needed of them is copied at once.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; 64 * 1024].into_boxed_slice());
}

impl Conversation {
    /// Begins a request. `params` are the encoded BEGIN_REQUEST and PARAMS records with `conn`'s next id.
    pub(super) fn start(
        (lease, mut conn): (Lease, WorkerConn),
        client: &Rc<RequestState>,
        by: (u64, RequestSummary),
        mut params: Vec<u8>,
        body: Option<&Spooled>,
    ) -> Conversation {
        let number = conn.next_id();
        let file = body.and_then(|body| {
            client::stdin(&mut params, number, body.memory());
            body.file_part().map(Box::new)
        });
        if file.is_none() {
            client::stdin_end(&mut params, number);
        }
        let written = conn.begin_request();
        let mut decoder = ResponseDecoder::new(number);
        let (mut slow_at, mut after_end) = (NEVER, AfterEnd::None);
        if let Some(php) = lease.pool.settings.php() {
            decoder = decoder.allow_extensions();
            slow_at = clock::deadline(php.slowlog_timeout);
            after_end = AfterEnd::Expected;
        }
        Conversation {
            work: Work::new(lease, client, by),
            conn,
            decoder,
            request: Outbound {
                id: number,
                buffer: params,
                written,
                file,
                aborts: false,
            },
            stderr: WorkerStderr::new(),
            has_stderr: false,
            sent: 0,
            copied_stderr: None,
            slow_at,
            abandon_at: NEVER,
            cancel_at: NEVER,
            after_end,
        }
    }

    pub(super) fn poll(
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
            let other = self.cancel_at.min(self.slow_at).min(self.abandon_at);
            if let Some(failure) = std::task::ready!(self.work.poll_time(cx, other)) {
                return Poll::Ready(failure);
            }
            let now = clock::now();
            if now >= self.cancel_at {
                match self.work.lease.pool.may_cancel() {
                    Ok(()) => return Poll::Ready(Failure::Cancelled),
                    Err(next) => self.cancel_at = next,
                }
                continue;
            }
            if now < self.slow_at {
                return Poll::Ready(Failure::Silent {
                    limit: self.work.lease.pool.settings.read_timeout,
                    goes_on: false,
                });
            }
            self.slow_at = NEVER;
            self.work.lease.trace(self.work.id);
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
                        self.work.watch.moved();
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
            self.work.watch.moved();
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
                            self.work.about(),
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
        stderr.push(bytes, &self.work.about());
        self.stderr = stderr;
    }

    fn closed(&self, error: Option<io::Error>) -> Failure {
        let reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
        Failure::Closed {
            process: self.work.lease.process,
            // The kernel reports this for a unix socket that was closed before all of it was read (unix(7)). A worker
            // reads a request that was sent in one piece with one read, or not at all.
            unread: self.sent == 1
                && self.work.lease.is_php()
                && self.request.written <= ONE_PIECE
                && error.as_ref().is_some_and(reset),
            unstarted: self.work.lease.is_php()
                && (self.request.file.is_some()
                    || self.request.written < self.request.buffer.len()),
            error,
            sent: self.sent > 0,
        }
    }

    /// Passes the rest of standard error on.
    fn end_stderr(&mut self) {
        if !self.has_stderr {
            return;
        }
        let mut stderr = std::mem::take(&mut self.stderr);
        stderr.finish(&self.work.about());
    }

    /// The request has ended: the worker takes the next one, on this connection if it can be used again.
    pub(super) fn finish(mut self: Box<Self>) {
        self.end_stderr();
        self.work.lease.ended(Finish::Answered, None);
        if self.after_end == AfterEnd::Running {
            return self.run_on();
        }
        let unwritten = self.request.buffer.len() - self.request.written;
        recycle(std::mem::take(&mut self.work.asked.target));
        recycle(std::mem::take(&mut self.request.buffer));
        let whole = self.request.file.is_none() && unwritten == 0;
        match self.after_end {
            AfterEnd::None | AfterEnd::Expected | AfterEnd::Running => {}
            AfterEnd::Ready(cost) if whole => {
                return self.work.lease.release(Some(self.conn), cost);
            }
            AfterEnd::Ready(_) | AfterEnd::Stray => return self.work.lease.kill(),
            AfterEnd::Gone => return self.work.lease.release(None, Cost::default()),
        }
        let settings = &self.work.lease.pool.settings;
        let spent = settings.max_reqs > 0 && self.conn.requests >= settings.max_reqs;
        let dirty = self.conn.requests == u64::MAX;
        let conn = (settings.keep_conn && whole && !spent && !dirty).then_some(self.conn);
        self.work.lease.release(conn, Cost::default());
    }

    pub(super) fn give_up(mut self: Box<Self>, failure: &Failure, answered: bool) {
        self.end_stderr();
        match failure {
            // A server may close kept connections at any time.
            Failure::Closed { .. } if self.conn.requests > 1 && !answered => {}
            Failure::Closed { .. } | Failure::Protocol(_) | Failure::NotHttp(_) => {
                self.work.lease.ended(Finish::Failed, Some(failure));
            }
            Failure::Silent { .. } => self.work.lease.ended(Finish::TimedOut, Some(failure)),
            Failure::Terminated | Failure::Late | Failure::Cancelled | Failure::Spool(_) => {}
        }
        match failure {
            Failure::Closed { .. } => return self.work.lease.release(None, Cost::default()),
            Failure::Terminated => self.work.lease.terminate(self.work.id),
            Failure::Cancelled => return self.cancel(),
            Failure::Protocol(_)
            | Failure::NotHttp(_)
            | Failure::Silent { .. }
            | Failure::Late
            | Failure::Spool(_) => {}
        }
        self.work.lease.kill();
    }
}

impl Conversation {
    /// Stops a script whose answer cannot be used.
    pub(super) fn cancel(self: Box<Self>) {
        tell!(
            debug,
            self.work.about(),
            "the script is cancelled and its worker replaced, because the client has left"
        );
        self.work.lease.kill();
    }
}

impl Outbound {
    /// Reports after the whole request that its client has left.
    pub(super) fn abort(&mut self) {
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

/// A request of at most this many bytes that is sent with one write is read by weir's own PHP with one read: it is
/// one piece in the kernel, and smaller than the worker's buffer.
const ONE_PIECE: usize = 32 * 1024;

/// How much of a body in a file is written to the worker at once, bytes.
const UPLOAD_PIECE: usize = 128 * 1024;
