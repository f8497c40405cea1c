//! The connection of a web server: reads its records and writes ours.
//!
//! Reading continues while weir waits for a worker and while it writes an answer, so that an aborted request is
//! noticed. Between two requests only the bytes of a request that has begun are kept.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    io,
    os::fd::AsFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use weir_config::PoolId;
use weir_fcgi::{
    ProtocolError, ProtocolStatus, Role,
    nv::Pairs,
    record::{FCGI_MAX_CONNS, FCGI_MAX_REQS, FCGI_MPXS_CONNS},
    server::{self, Event, Limits, RequestDecoder},
};
use weir_http::Phase;
use weir_net::{Socket, linger};
use weir_observe::clock;

use super::super::{
    Gateway,
    conn::Conn,
    fastcgi::{self, recycle},
    spool::{Spooled, Spooler},
};

/// The connection.
pub(super) struct Wire {
    socket: Socket,
    gateway: Arc<Gateway>,
    conn: Arc<Conn>,
    pool: PoolId,
    decoder: RequestDecoder,
    begun: Option<Begun>,
    /// Records to write; the first `written` bytes are already written.
    out: Vec<u8>,
    written: usize,
    /// The connection is closed when everything is written.
    last: bool,
    /// When this connection first saw the drain.
    drain_seen: Option<u64>,
}

/// The current request.
struct Begun {
    id: u16,
    keep_conn: bool,
    params: Option<Pairs>,
    body: Spooler,
    /// How much of the body is still missing.
    length: Length,
    whole: bool,
    aborted: bool,
}

/// The length of the body according to the parameters. PHP reads no further, and does not wait for anything after
/// that. It does not wait for the record that ends the stream either; HAProxy does not send that record after an
/// empty body without a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    /// This many bytes are missing.
    Announced(u64),
    /// The length is not given. `begun`: a part of the body has arrived.
    Unknown { begun: bool },
}

impl Length {
    fn of(params: &Pairs) -> Length {
        match params.get(b"CONTENT_LENGTH") {
            Some(text) if !text.is_empty() => Length::Announced(number(text)),
            _ => match params.get(b"REQUEST_METHOD") {
                Some(b"GET" | b"HEAD") => Length::Announced(0),
                _ => Length::Unknown { begun: false },
            },
        }
    }
}

/// Parsed as PHP does it: digits up to the first other character; no digits mean 0.
fn number(text: &[u8]) -> u64 {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u64, digit| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    })
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The kernel has all answers, or nobody waits for one.
    Clean,
    /// The kernel has the answer, but the web server may still be sending data that is not needed.
    Linger,
    /// The web server has closed, or the connection must be given up. Sent data may be lost.
    Lost,
}

/// Why the current request cannot be completed.
#[derive(Debug)]
pub(super) enum Interrupt {
    /// The web server has aborted it (FCGI_ABORT_REQUEST).
    Aborted,
    /// The connection cannot be used any more.
    Lost(Ending),
}

/// Why there is no body.
#[derive(Debug)]
pub(super) enum NoBody {
    Interrupted(Interrupt),
    /// Nothing arrived for `body_timeout`.
    TimedOut,
    /// The request's deadline has passed.
    Late,
    /// The body could not be stored.
    Spool(io::Error),
}

thread_local! {
    /// Buffer for bytes from web servers. What is needed of them is copied at once.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; 64 * 1024].into_boxed_slice());
}

impl Wire {
    pub(super) fn new(
        socket: Socket,
        gateway: &Arc<Gateway>,
        conn: Arc<Conn>,
        pool: PoolId,
    ) -> Wire {
        Wire {
            socket,
            gateway: gateway.clone(),
            conn,
            pool,
            decoder: RequestDecoder::new(Limits::default()),
            begun: None,
            out: Vec::new(),
            written: 0,
            last: false,
            drain_seen: None,
        }
    }

    pub(super) fn conn(&self) -> &Arc<Conn> {
        &self.conn
    }

    /// The FastCGI id of the current request; 0 if there is none.
    pub(super) fn id(&self) -> u16 {
        self.begun.as_ref().map_or(0, |begun| begun.id)
    }

    /// The buffer for records. They are written by [`Self::flush`] or during [`Self::during`].
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// The parameters of the current request.
    pub(super) fn take_params(&mut self) -> Pairs {
        if self.out.capacity() == 0 {
            self.out = fastcgi::buffer();
        }
        let params = self.begun.as_mut().and_then(|begun| begun.params.take());
        params.unwrap_or_default()
    }

    /// Waits for the parameters of the next request.
    pub(super) async fn head(&mut self) -> Result<(), Ending> {
        poll_fn(|cx| self.poll_head(cx)).await
    }

    /// Waits for the whole body of the current request, until `latest` ([`clock::now`]).
    pub(super) async fn body(&mut self, latest: u64) -> Result<Spooled, NoBody> {
        let interrupted = |ending| NoBody::Interrupted(Interrupt::Lost(ending));
        loop {
            let Some(begun) = &mut self.begun else {
                return Err(interrupted(Ending::Lost));
            };
            if begun.aborted {
                return Err(NoBody::Interrupted(Interrupt::Aborted));
            }
            if begun.body.is_due() {
                begun.body.settle().await.map_err(NoBody::Spool)?;
            }
            if begun.whole {
                let empty = Spooler::new(0, 0, &self.gateway.spool_space);
                let body = std::mem::replace(&mut begun.body, empty);
                return body.finish().await.map_err(NoBody::Spool);
            }
            let may_be_empty = begun.length == Length::Unknown { begun: false };
            let mut silence = clock::deadline(self.conn.timeouts.body);
            if may_be_empty {
                silence = silence.min(clock::now() + UNANNOUNCED);
            }
            poll_fn(|cx| {
                let read = self.poll(cx).map_err(interrupted);
                let now = clock::now();
                if now >= latest {
                    return Poll::Ready(Err(NoBody::Late));
                }
                if read.is_pending() {
                    if now < silence {
                        self.conn.wake_at(silence.min(latest));
                    } else if !may_be_empty {
                        return Poll::Ready(Err(NoBody::TimedOut));
                    } else {
                        if let Some(begun) = &mut self.begun {
                            begun.whole = true;
                        }
                        return Poll::Ready(Ok(()));
                    }
                }
                read
            })
            .await?;
            self.conn.wake_at(clock::NEVER);
        }
    }

    /// Runs `work`, and writes and reads meanwhile.
    pub(super) async fn during<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, Interrupt> {
        let mut work = std::pin::pin!(work);
        poll_fn(|cx| {
            loop {
                match self.poll(cx) {
                    Poll::Ready(Ok(())) if self.is_aborted() => {
                        return Poll::Ready(Err(Interrupt::Aborted));
                    }
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(ending)) => {
                        return Poll::Ready(Err(Interrupt::Lost(ending)));
                    }
                    Poll::Pending => break,
                }
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Waits until the kernel has everything that was put into the buffer.
    pub(super) async fn flush(&mut self) -> Result<(), Interrupt> {
        poll_fn(|cx| {
            loop {
                if self.poll_write(cx)?.is_ready() {
                    return Poll::Ready(Ok(()));
                }
                ready!(self.poll(cx))?;
                if self.is_aborted() {
                    return Poll::Ready(Err(Interrupt::Aborted));
                }
            }
        })
        .await
    }

    /// Ends the current request and waits until its end was sent. `close`: the connection ends as well.
    ///
    /// # Errors
    ///
    /// How the connection ends.
    pub(super) async fn end_request(&mut self, close: bool) -> Result<(), Ending> {
        let Some(begun) = self.begun.take() else {
            return Err(Ending::Lost);
        };
        let listener = &self.gateway.config.listeners[usize::from(self.conn.listener)];
        let most = listener.max_requests_per_connection;
        let is_enough = most > 0 && self.conn.requests() >= most;
        let is_last = is_enough || self.last || self.gateway.keeps_no_connections();
        if is_last && begun.keep_conn {
            // Holds packets back until the end: otherwise a web server that has read the answer could send its next
            // request into the closing connection. Unix sockets have no packets to hold.
            let _ = weir_sys::socket::hold_until_end(self.socket.as_fd());
        }
        server::end_request(&mut self.out, begun.id, 0, ProtocolStatus::RequestComplete);
        self.decoder.end_request();
        match self.flush().await {
            Ok(()) => {}
            Err(Interrupt::Lost(ending)) => return Err(ending),
            Err(Interrupt::Aborted) => return Err(Ending::Lost),
        }
        if close || !begun.whole {
            return Err(Ending::Linger);
        }
        if !begun.keep_conn || is_last {
            return Err(Ending::Clean);
        }
        self.rest();
        Ok(())
    }

    /// Closes the connection.
    pub(super) async fn close(mut self, ending: Ending) {
        match ending {
            Ending::Clean => {
                let _ = self.socket.shutdown().await;
            }
            Ending::Linger => linger(self.socket).await,
            Ending::Lost => {}
        }
    }

    fn is_aborted(&self) -> bool {
        self.begun.as_ref().is_some_and(|begun| begun.aborted)
    }

    /// The connection waits for its next request.
    fn rest(&mut self) {
        self.conn.rest();
        // It has no buffers to drop later, so the sweeper need not wake it for that.
        self.conn.park();
        recycle(std::mem::take(&mut self.out));
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ending>> {
        loop {
            if let Some(begun) = &self.begun {
                if begun.params.is_some() {
                    return Poll::Ready(Ok(()));
                }
                if begun.aborted {
                    let (id, keep_conn) = (begun.id, begun.keep_conn);
                    self.refuse(id, ProtocolStatus::RequestComplete, keep_conn);
                }
            }
            let written = self.poll_write(cx)?.is_ready();
            if self.last && written {
                return Poll::Ready(Err(Ending::Clean));
            }
            let now = clock::now();
            if self.conn.overdue(now) {
                if self.conn.phase() == Phase::Head {
                    self.complain(
                        "header_timeout is over and the parameters of a request have not arrived",
                    );
                }
                return Poll::Ready(Err(Ending::Clean));
            }
            if self.gateway.drain.has_started() && self.may_go(now) {
                return Poll::Ready(Err(Ending::Clean));
            }
            ready!(self.poll(cx))?;
        }
    }

    /// Whether a connection that waits for a request is closed while the gateway drains. It stays open for a while if
    /// a request may be on its way: the first one, or another one soon after an answer.
    fn may_go(&mut self, now: u64) -> bool {
        let seen = *self.drain_seen.get_or_insert(now);
        let since = match self.conn.phase() {
            Phase::Head => Some(seen),
            _ => self.conn.fresh_since().or(self.conn.rests_since()),
        };
        since.is_none_or(|since| now.saturating_sub(since) >= FIRST_REQUEST)
    }

    /// Writes what is ready and reads once; ready when something was read.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ending>> {
        self.conn.remember_waker(cx.waker());
        let _ = self.poll_write(cx)?;
        if self.conn.send_overdue(clock::now()) {
            return Poll::Ready(Err(Ending::Lost));
        }
        // While a web server does not read our answers, no new requests are read.
        if self.out.len() - self.written > MAX_UNREAD {
            return Poll::Pending;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            match ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer)) {
                Ok(()) if buffer.filled().is_empty() => return Poll::Ready(Err(Ending::Lost)),
                Ok(()) => {}
                Err(_) => return Poll::Ready(Err(Ending::Lost)),
            }
            self.conn.received();
            let taken = self.take(buffer.filled()).map_err(|error| {
                self.complain(&error.to_string());
                Ending::Lost
            });
            if self.begun.is_none() && self.decoder.at_record_boundary() {
                // A question about weir itself (management record), not a request.
                self.conn.rest();
                self.conn.park();
            }
            Poll::Ready(taken)
        })
    }

    /// Ready when everything is written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Ending> {
        while self.written < self.out.len() {
            let bytes = &self.out[self.written..];
            let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
            self.conn.note_write(written.is_pending(), &self.socket);
            match written {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Ok(count)) if count > 0 => self.written += count,
                Poll::Ready(_) => return Err(Ending::Lost),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(Poll::Ready(()))
    }

    fn take(&mut self, mut input: &[u8]) -> Result<(), ProtocolError> {
        while let Some(event) = self.decoder.next(&mut input)? {
            match event {
                Event::Begin {
                    id,
                    role: Role::Responder,
                    keep_conn,
                } => {
                    let body = Spooler::new(0, BODY_MEMORY, &self.gateway.spool_space);
                    self.begun = Some(Begun {
                        id,
                        keep_conn,
                        params: None,
                        body,
                        length: Length::Unknown { begun: false },
                        whole: false,
                        aborted: false,
                    });
                }
                Event::Begin { id, keep_conn, .. } | Event::UnknownRole { id, keep_conn, .. } => {
                    self.refuse(id, ProtocolStatus::UnknownRole, keep_conn);
                }
                Event::Multiplexed { id } => {
                    server::end_request(&mut self.out, id, 0, ProtocolStatus::CantMultiplex);
                }
                Event::GetValues(names) => self.tell_values(&names),
                Event::UnknownType(kind) => server::unknown_type(&mut self.out, kind),
                event => {
                    if let Some(begun) = &mut self.begun {
                        begun.take(event);
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a request that was not started.
    fn refuse(&mut self, id: u16, status: ProtocolStatus, keep_conn: bool) {
        server::end_request(&mut self.out, id, 0, status);
        if self.decoder.active() == Some(id) {
            self.decoder.end_request();
            self.begun = None;
        }
        self.last |= !keep_conn;
    }

    /// Answers FCGI_GET_VALUES (FastCGI 1.0 §4.1): the maximum of connections, the maximum of requests (running and
    /// queued), and that a connection carries one request at a time.
    fn tell_values(&mut self, names: &Pairs) {
        let connections = self.gateway.config.server.max_connections.to_string();
        let pool = self.gateway.pools.get(self.pool.0);
        let requests = pool.map_or(0, |pool| {
            let queue = &pool.settings.queue;
            queue.maxconn.saturating_add(queue.max_queue)
        });
        let requests = requests.to_string();
        let known = [
            (FCGI_MAX_CONNS, connections.as_bytes()),
            (FCGI_MAX_REQS, requests.as_bytes()),
            (FCGI_MPXS_CONNS, b"0"),
        ];
        let asked = |(name, _): &(&[u8], &[u8])| names.iter().any(|(asked, _)| asked == *name);
        let values: Vec<_> = known.into_iter().filter(asked).collect();
        server::get_values_result(&mut self.out, &values);
    }

    fn complain(&self, why: &str) {
        let listener = &self.gateway.config.listeners[usize::from(self.conn.listener)];
        log::warn!(
            "closed a connection from {} to listen.{}: {why}",
            self.conn.endpoints.remote_addr,
            listener.name
        );
    }
}

impl Begun {
    /// Handles an event that belongs to this request.
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Params(params) => {
                self.length = Length::of(&params);
                self.whole = self.length == Length::Announced(0);
                self.params = Some(params);
            }
            Event::Stdin(bytes) => self.push(bytes),
            Event::StdinEnd => self.whole = true,
            Event::Abort => self.aborted = true,
            _ => {}
        }
    }

    /// Stores a part of the body.
    fn push(&mut self, bytes: &[u8]) {
        if self.whole {
            // Beyond the announced length: PHP would not read it either.
            return;
        }
        let Length::Announced(missing) = self.length else {
            self.length = Length::Unknown { begun: true };
            self.body.push(bytes);
            return;
        };
        let wanted = usize::try_from(missing).unwrap_or(usize::MAX);
        let wanted = &bytes[..bytes.len().min(wanted)];
        self.body.push(wanted);
        let missing = missing - wanted.len() as u64;
        self.length = Length::Announced(missing);
        self.whole = missing == 0;
    }
}

impl From<Ending> for Interrupt {
    fn from(ending: Ending) -> Self {
        Interrupt::Lost(ending)
    }
}

/// Bodies are kept in memory up to this many bytes, the default of a site's `body_memory`; the rest goes to a
/// temporary file.
const BODY_MEMORY: usize = 64 * 1024;

/// If this many bytes of answers wait for the web server, nothing more is read from it.
const MAX_UNREAD: usize = 512 * 1024;

/// How long weir waits for the first byte of a body without a known length, µs. PHP-FPM would not wait at all. A web
/// server that streams a body has sent some of it by then.
const UNANNOUNCED: u64 = 1_000_000;

/// How long a drain waits for the first request on a new connection, for another request after an answer, and for the
/// rest of the parameters, µs.
const FIRST_REQUEST: u64 = 1_000_000;
