//! Runs a script for a request: spools the body, waits for a worker, sends the request, reads the answer.
//!
//! ```text
//! spool body ─► admit ─► wait ─► connect ─► write, read the head ─► body: whole, read ahead, or passed on
//!                 ▲                              │
//!                 └──── again, if nobody can have seen it, or nothing can have changed ◄── worker died
//! ```

mod admission;
mod refusals;

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::{Method, StatusCode};
use weir_config::{OnClientLeft, Settings};
use weir_fcgi::{
    Role, client,
    nv::Pairs,
    server::{self, RequestDecoder},
};
use weir_http::{Body, Fields, Reply, RequestBody};
use weir_http1::Name;
use weir_observe::error_log::{About, tell};
use weir_pool::{Retry, Sent, ShedReason, may_retry};
use weir_sys::process::Exit;

pub(crate) use self::refusals::worker_failed;
use self::{
    admission::admit,
    refusals::{no_worker, refuse_body},
};
use super::{
    cgi::{self, Head},
    clock::{self, NEVER},
    conn::Conn,
    dispatch::{Lease, PoolHandle, ServerChoice},
    fastcgi::{self, Failure, OnDrop, Progress, Run, StderrCopy},
    params,
    pool_log::{Line, Noted},
    read_ahead::{ReadAhead, Room},
    record::Record,
    refusal::Refusal,
    scoreboard::Facts,
    spool::{self, BodyLimits, Spooled},
    stream::WorkerStream,
    trace,
    worker_conn::WorkerConn,
};

/// The meaning of a script's answer.
pub(crate) enum Outcome {
    /// This is the answer.
    Reply(Reply, Option<u64>),
    /// Answer as if this URL was requested (RFC 3875 §6.2.2).
    LocalRedirect(Vec<u8>),
    /// Answer with a file redirect, and keep some of the headers.
    FileRedirect(FileRedirect, StatusCode, Fields),
}

/// Which file a script wants to send.
pub(crate) enum FileRedirect {
    /// `X-Accel-Redirect`: a URL path below one of `accel_redirect`.
    Url(Vec<u8>),
    /// `X-Sendfile`: a path below one of `sendfile_dirs`.
    Path(Vec<u8>),
}

/// Reads the whole request body.
///
/// # Errors
///
/// The answer if the body is too large, too slow, or invalid.
pub(crate) async fn take_body(
    record: &mut Record,
    conn: &Conn,
    limits: BodyLimits,
    body: RequestBody,
) -> Result<Option<Spooled>, Refusal> {
    if body.is_none() {
        let announced = record.head.fields.has(Name::ContentLength);
        return Ok(announced.then(Spooled::default));
    }
    let spooled = Box::pin(spool::spool(
        body,
        conn,
        limits,
        record.policy.deadline,
        &record.gateway.spool_space,
    ))
    .await
    .map_err(|error| {
        conn.leave_body_unread();
        refuse_body(error, limits.max)
    })?;
    record.bytes_in = spooled.len();
    trace::step!(
        record.id,
        record.head_whole,
        "spool",
        "{} bytes",
        spooled.len()
    );
    Ok(Some(spooled))
}

/// Reads and discards a body, so that the connection can serve the next request. False: there is too much of it, or
/// it does not arrive, so the connection must be closed.
pub(crate) async fn discard_body(record: &mut Record, conn: &Conn, mut body: RequestBody) -> bool {
    let awaits_consent = record.head.fields.has(Name::Expect);
    let too_long = body.length().is_some_and(|length| length > MAX_DISCARDED);
    let all = async {
        while let Ok(data) = spool::next_data(&mut body, conn, NEVER).await {
            let Some(data) = data else {
                return true;
            };
            record.bytes_in += data.len() as u64;
            if record.bytes_in > MAX_DISCARDED {
                break;
            }
        }
        false
    };
    let gone = !awaits_consent
        && !too_long
        && tokio::time::timeout(DISCARD_TIME, all)
            .await
            .unwrap_or(false);
    if !gone {
        conn.leave_body_unread();
    }
    gone
}

/// A request whose worker has started to answer.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) run: Run,
    pub(crate) head: Head,
    /// The part that has arrived: the head as the worker wrote it, and the beginning of the body.
    pub(crate) output: Vec<u8>,
    /// Where the body begins in `output`.
    pub(crate) body_at: usize,
    /// The worker's standard error, if a web server in front is to get it.
    pub(crate) stderr: Option<StderrCopy>,
}

/// Runs a script at a worker of `pool`.
///
/// # Errors
///
/// The answer if no worker gave a usable one.
pub(crate) async fn run(
    record: &mut Record,
    conn: &Arc<Conn>,
    settings: &Settings,
    pool: &Arc<PoolHandle>,
    body: Option<&Spooled>,
) -> Result<Outcome, Refusal> {
    let length = body.map(Spooled::len);
    let put_params = |record: &Record, id, out: &mut Vec<u8>| {
        params::put(record, settings, id, length, out);
    };
    record.asks_script();
    let failure = {
        let mut started = begin(record, conn, pool, body, put_params).await?;
        let limit = settings.response_memory;
        let read = match started.is_read_ahead(record, settings) {
            true => poll_fn(|cx| Poll::Ready(started.read_ahead(cx, limit))).await,
            false => Ok(Progress::More),
        };
        match read {
            Ok(progress) => return finish(record, settings, started, progress),
            Err(failure) => failure,
        }
    };
    // The head was read, but nothing was sent yet: the client can still get an error.
    Err(Box::pin(worker_failed(pool, failure)).await)
}

/// Gets a worker of `pool` to start its answer; `put_params` appends the PARAMS records of the request with the given
/// id.
///
/// The usual way has two points at which it waits: for a worker, and for the worker's bytes. All others are boxed, so
/// that a request that waits has no memory for them.
///
/// # Errors
///
/// The answer if no worker gave a usable one.
pub(crate) async fn begin(
    record: &mut Record,
    conn: &Arc<Conn>,
    pool: &Arc<PoolHandle>,
    body: Option<&Spooled>,
    put_params: impl Fn(&Record, u16, &mut Vec<u8>),
) -> Result<Started, Refusal> {
    conn.watch_client();
    refuse_what_crashes(record, pool)?;
    loop {
        let mut lease = admit(record, conn, pool).await?;
        lease.serve(record.site);
        let reached = lease.reach(conn.home, &choice(record, pool));
        let worker = match reached {
            Some(worker) => worker,
            None => match Box::pin(connect(record, conn, pool, &mut lease)).await? {
                Some(worker) => worker,
                None => continue,
            },
        };
        record.worker = lease.worker();
        let server = lease.server();
        // A block of its own: a request that waits has no memory for what ends with it.
        let (run, no_head) = {
            let mut run = send(record, conn, (lease, worker), body, &put_params);
            let stderr = record.params.is_some().then(|| run.copy_stderr());
            let mut reading = Reading::default();
            let head = poll_fn(|cx| reading.poll_head(cx, &mut run, (record, conn, pool))).await;
            record.first_byte = run.first_byte;
            match head {
                Ok(head) => {
                    answers(record, pool, &mut run, &head);
                    return Ok(Started {
                        run,
                        head,
                        output: reading.output,
                        body_at: reading.scanned,
                        stderr,
                    });
                }
                Err(no_head) => (run, no_head),
            }
        };
        record.tried.extend(server);
        Box::pin(has_no_head(record, pool, run, no_head)).await?;
    }
}

/// Which servers may get the request.
fn choice<'r>(record: &'r Record, pool: &PoolHandle) -> ServerChoice<'r> {
    ServerChoice {
        key: pool.hash_key(record),
        tried: &record.tried,
        certain: record.retries > 0 || !record.head.method.is_idempotent(),
    }
}

/// Makes a connection to a worker. `None`: another worker is to be asked.
///
/// # Errors
///
/// The answer if no worker can be reached.
async fn connect(
    record: &mut Record,
    conn: &Arc<Conn>,
    pool: &Arc<PoolHandle>,
    lease: &mut Lease,
) -> Result<Option<WorkerConn>, Refusal> {
    let connecting = lease.connect(conn.home, choice(record, pool));
    let Some(connected) = clock::in_time(connecting, record.policy.deadline).await else {
        let message = "the request's `timeout` ended before a server accepted a connection";
        let after = pool.retry_after();
        return Err(Refusal::shed(ShedReason::QueueTimeout, after, message));
    };
    let error = match connected {
        Ok(worker) => return Ok(Some(worker)),
        Err(error) => error,
    };
    record.worker = lease.worker();
    record.tried.extend(lease.server());
    let message = format!("cannot connect to {}: {}", error.address, error.error);
    // Servers were already tried for as long as `connect_timeout` allows.
    if pool.has_workers() && again(record, pool, Sent::Nothing, &message) {
        return Ok(None);
    }
    Err(no_worker(pool, message))
}

/// Gives the request to the lent worker.
fn send(
    record: &mut Record,
    conn: &Arc<Conn>,
    (mut lease, worker): (Lease, WorkerConn),
    body: Option<&Spooled>,
    put_params: &impl Fn(&Record, u16, &mut Vec<u8>),
) -> Run {
    trace::step!(
        record.id,
        record.head_whole,
        "dispatch",
        "worker={} waited={}us",
        WorkerText(record),
        record.wait.and_then(|wait| wait.waited).unwrap_or(0)
    );
    let (id, mut request) = (worker.next_id(), fastcgi::buffer());
    let keeps = lease.pool().settings.keep_conn;
    client::begin_request(&mut request, id, Role::Responder, keeps);
    put_params(record, id, &mut request);
    record.dispatched = clock::now();
    record.first_byte = None;
    lease.begin(&facts(record, body.map_or(0, Spooled::len)));
    if conn.source.may_be_worker() {
        lease.asked_by(conn);
    }
    note(record, conn, &mut lease, &request);
    let by = (record.id, record.summary());
    let mut run = Run::start((lease, worker), conn, by, request, body);
    run.ends_at(record.policy.deadline);
    run.on_drop(match record.policy.on_client_left {
        OnClientLeft::Finish => OnDrop::Finish,
        OnClientLeft::Cancel | OnClientLeft::FinishIfAnswering => OnDrop::Cancel,
    });
    run
}

/// The worker has begun its answer.
fn answers(record: &mut Record, pool: &PoolHandle, run: &mut Run, head: &Head) {
    run.ends_at(NEVER);
    if record.policy.on_client_left == OnClientLeft::FinishIfAnswering {
        run.on_drop(OnDrop::Finish);
    }
    if let Some(noted) = &mut record.noted
        && let Some(Some(log)) = record.gateway.pool_logs.get(usize::from(pool.id))
        && log.wants_headers()
    {
        noted.headers = Some(head.headers.clone());
    }
}

/// The worker gave no head. Nothing: another worker is to be asked.
///
/// # Errors
///
/// The answer if the request is not given to another worker.
async fn has_no_head(
    record: &mut Record,
    pool: &Arc<PoolHandle>,
    mut run: Run,
    why: NoHead,
) -> Result<(), Refusal> {
    let failure = match why {
        NoHead::Failed(failure) => failure,
        NoHead::Bad(message) => {
            let server = record.tried.last().filter(|_| !pool.has_workers());
            if let Some(server) = server.filter(|_| !run.blame(&message)) {
                pool.blame(*server, &message);
            }
            return Err(Refusal::upstream(
                StatusCode::BAD_GATEWAY,
                "bad_response",
                "http_protocol_error",
                message,
            ));
        }
    };
    let sent = match &failure {
        Failure::Closed { sent: false, .. } | Failure::Closed { unread: true, .. } => Sent::Nothing,
        _ => Sent::Maybe,
    };
    if let Failure::Closed { process, error, .. } = &failure
        && record.first_byte.is_none()
        && !cost_a_worker(pool, *process, error.as_ref(), sent).await
        && again(record, pool, sent, &failure.to_string())
    {
        return Ok(());
    }
    Err(worker_failed(pool, failure).await)
}

/// Notes what the pool's own log needs of a request that a worker gets.
fn note(record: &mut Record, conn: &Conn, lease: &mut Lease, request: &[u8]) {
    let Some(Some(log)) = record.gateway.pool_logs.get(usize::from(lease.pool().id)) else {
        return;
    };
    if log.is_from_worker() {
        record.noted = None;
        return lease.note_line(Line::new(record, conn));
    }
    let params = log.wants_params().then(|| params_of(request));
    let noted = Noted {
        params: params.flatten(),
        peer: conn.endpoints.remote_addr.clone(),
        ..Noted::default()
    };
    lease.note_end(noted.ended.clone());
    record.noted = Some(Box::new(noted));
}

/// The parameters of an encoded request.
fn params_of(mut request: &[u8]) -> Option<Pairs> {
    let mut decoder = RequestDecoder::new(server::Limits::default());
    while let Ok(Some(event)) = decoder.next(&mut request) {
        if let server::Event::Params(params) = event {
            return Some(params);
        }
    }
    None
}

/// The values of a request for the status page.
pub(super) fn facts(record: &Record, content_length: u64) -> Facts<'_> {
    Facts {
        method: record.head.method.as_str().as_bytes(),
        uri: record.uri(),
        script: record
            .script
            .as_ref()
            .map_or(b"", |script| &script.filename),
        authorization: record.known_header(Name::Authorization).unwrap_or_default(),
        user: (record.params.as_ref())
            .and_then(|params| params.get(b"REMOTE_USER"))
            .unwrap_or_default(),
        content_length,
    }
}

/// Refuses requests for scripts that crash their workers again and again.
fn refuse_what_crashes(record: &Record, pool: &Arc<PoolHandle>) -> Result<(), Refusal> {
    let script = record
        .script
        .as_ref()
        .map_or(&b""[..], |script| &script.filename);
    let uri = record.uri();
    pool.may_run(script, uri).map_err(|crashing| {
        let message = match pool.say_refusal() {
            None => String::new(),
            Some(_) => format!(
                "{} has crashed {} workers: refused, tried again in {} s (crash_limit, crash_pause)",
                crashing.path, crashing.crashes, crashing.seconds
            ),
        };
        Refusal::upstream(
            StatusCode::SERVICE_UNAVAILABLE,
            "crashing",
            "destination_unavailable",
            message,
        )
        .retry_after(crashing.seconds.max(1))
    })
}

/// Whether a request has ended its worker, as far as that can be known: it was sent, the connection is closed, and
/// the process is gone. Such a request is not given to another worker, which it would end as well. If
/// somebody else killed the worker, the request is not the cause. A program that ended with code 0 and did not read the
/// whole request had reached its end when the request came. For a worker of a server, nothing is known.
async fn cost_a_worker(
    pool: &PoolHandle,
    process: Option<u32>,
    error: Option<&std::io::Error>,
    sent: Sent,
) -> bool {
    if sent == Sent::Nothing || !pool.has_workers() {
        return false;
    }
    if pool.settings.php().is_some() {
        return !pool.was_killed(process).await;
    }
    match pool.exit(process).await {
        Some(Exit::Code(0)) => error.is_none(),
        Some(_) => true,
        None => false,
    }
}

/// Whether a request whose worker failed is run again; this is logged.
fn again(record: &mut Record, pool: &PoolHandle, sent: Sent, why: &str) -> bool {
    // If a worker of weir's own PHP ended before it read the request, the request is not the cause.
    let blameless = sent == Sent::Nothing && pool.settings.php().is_some();
    let (attempts, most) = match blameless {
        true => (record.unread - record.earlier.unread, MAX_UNREAD),
        false => {
            let earlier = record.earlier.retries - record.earlier.unread;
            let retries = record.retries - record.unread - earlier;
            // A script can kill itself, which looks like a kill by somebody else: no more than two workers for it.
            let most = match pool.settings.php() {
                Some(_) => pool.settings.retries.min(1),
                None => pool.settings.retries,
            };
            (retries, most)
        }
    };
    let verdict = may_retry(&weir_pool::Failure {
        idempotent: record.head.method.is_idempotent(),
        sent,
        answered: false,
        attempts: attempts + 1,
        max_attempts: most + 1,
    });
    if verdict == Retry::GiveUp {
        return false;
    }
    record.retries += 1;
    record.unread += u32::from(blameless);
    trace::step!(record.id, record.head_whole, "retry", "{why}");
    tell!(notice, about(record), "given to another worker: {why}");
    true
}

/// Why there is no head.
enum NoHead {
    Failed(Failure),
    Bad(String),
}

/// The beginning of a response.
#[derive(Default)]
struct Reading {
    /// What has arrived and is not an interim response.
    output: Vec<u8>,
    /// How many bytes of it were searched for the end of the head; at the end, where the body begins.
    scanned: usize,
    /// The response has ended.
    ended: bool,
}

impl Reading {
    /// Reads until the response's head is complete, and passes interim responses on. [`Self::scanned`] is then where the body
    /// begins.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        run: &mut Run,
        (record, conn, pool): (&Record, &Conn, &PoolHandle),
    ) -> Poll<Result<Head, NoHead>> {
        loop {
            let end = cgi::end_of_head(&self.output, &mut self.scanned);
            let limit = pool.settings.max_response_head;
            if end.unwrap_or(self.output.len()) > limit {
                run.on_drop(OnDrop::Abort);
                return Poll::Ready(Err(NoHead::Bad(format!(
                    "the response's head is longer than max_response_head ({limit} bytes)"
                ))));
            }
            let Some(end) = end else {
                if self.ended {
                    return Poll::Ready(Err(NoHead::Bad(cut_off(self.output.len()))));
                }
                let read = ready!(run.poll(cx, &mut self.output)).map_err(NoHead::Failed)?;
                self.ended = read == Progress::End;
                continue;
            };
            let head = cgi::parse(&self.output[..end])
                .map_err(|error| NoHead::Bad(format!("the response's head is wrong: {error}")))?;
            if head.status.is_informational() {
                pass_interim(&head, record, conn);
                self.output.drain(..end);
                self.scanned = 0;
                continue;
            }
            trace::step!(
                record.id,
                record.head_whole,
                "first byte",
                "status={}",
                head.status.as_u16()
            );
            self.scanned = end;
            return Poll::Ready(Ok(head));
        }
    }
}

/// What is wrong with a response that has ended after so many bytes of its head.
#[cold]
fn cut_off(bytes: usize) -> String {
    match bytes {
        0 => "the response is empty".into(),
        bytes => format!("the response ended in the middle of its head, after {bytes} bytes"),
    }
}

/// Sends a 1xx head to clients that understand it (RFC 9110 §15.2). 100 is sent only by the gateway. A CGI response
/// has no interim responses (RFC 3875 §6.2), so a web server in front gets none.
fn pass_interim(head: &Head, record: &Record, conn: &Conn) {
    let passes = record.params.is_none() && record.head.version != http::Version::HTTP_10;
    if !passes || head.status == StatusCode::CONTINUE {
        return;
    }
    let mut text = format!(
        "HTTP/1.1 {} {}\r\n",
        head.status.as_u16(),
        head.status.canonical_reason().unwrap_or("")
    )
    .into_bytes();
    text.extend_from_slice(head.headers.lines());
    text.extend_from_slice(b"\r\n");
    conn.send_interim(&text);
}

impl Started {
    /// Whether the rest of the response is read as fast as it comes, whatever the client does.
    fn is_read_ahead(&self, record: &Record, settings: &Settings) -> bool {
        settings.buffering
            && !self.head.streams()
            && !self.head.answers_otherwise()
            && !is_bodyless(record, self.head.status)
    }

    /// Reads as long as data is available at once, up to about `limit` bytes of the body.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(crate) fn read_ahead(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
    ) -> Result<Progress, Failure> {
        loop {
            match self.run.poll(cx, &mut self.output) {
                Poll::Ready(Ok(Progress::More)) if self.output.len() - self.body_at < limit => {}
                Poll::Pending => return Ok(Progress::More),
                Poll::Ready(read) => return read,
            }
        }
    }
}

/// Whether an answer with this status has no body.
fn is_bodyless(record: &Record, status: StatusCode) -> bool {
    record.head.method == Method::HEAD
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// After the head: decides what the answer is, and how its body gets to the client. `read`: what
/// [`Started::read_ahead`] has found.
fn finish(
    record: &Record,
    settings: &Settings,
    started: Started,
    read: Progress,
) -> Result<Outcome, Refusal> {
    let is_read_ahead = started.is_read_ahead(record, settings);
    let Started {
        mut run,
        mut head,
        mut output,
        body_at,
        ..
    } = started;
    if head.answers_otherwise() {
        // The rest of the script's output is not needed; the script runs to its end in a separate task.
        run.on_drop(OnDrop::Finish);
        if let Some(location) = head.local_redirect() {
            return Ok(Outcome::LocalRedirect(location.to_vec()));
        }
        let redirect = match (head.accel_redirect.take(), head.sendfile.take()) {
            (Some(url), _) => FileRedirect::Url(url),
            (None, path) => FileRedirect::Path(path.unwrap_or_default()),
        };
        return Ok(Outcome::FileRedirect(redirect, head.status, head.headers));
    }
    let Head {
        status,
        headers,
        content_length: length,
        ..
    } = head;
    let reply = |body| Reply {
        status,
        headers,
        body,
    };
    if is_bodyless(record, status) {
        run.on_drop(OnDrop::Finish);
        return Ok(Outcome::Reply(reply(Body::Empty), None));
    }
    if is_read_ahead && read == Progress::End {
        let mut bytes = Bytes::from(output);
        // In front of the body is the head. The memory of both is freed together.
        bytes.advance(body_at);
        if let Some(length) = length
            && bytes.len() as u64 != length
        {
            wrong_length(record, bytes.len(), length)?;
            bytes.truncate(length as usize);
        }
        return Ok(Outcome::Reply(reply(Body::Bytes(bytes)), length));
    }
    output.drain(..body_at);
    let body = match is_read_ahead {
        false => Body::Stream(Box::new(WorkerStream::new(run, output))),
        true => {
            let room = Room {
                memory: settings.response_memory,
                file: settings.max_response_file,
                space: record.gateway.spool_space.clone(),
            };
            Body::Stream(Box::new(ReadAhead::start(run, output, room)))
        }
    };
    Ok(Outcome::Reply(reply(body), length))
}

/// The body has another length than the script has announced.
///
/// # Errors
///
/// The answer if the body is too short. Nothing was sent yet: the client gets an error instead of a cut connection.
#[cold]
fn wrong_length(record: &Record, printed: usize, announced: u64) -> Result<(), Refusal> {
    let message =
        format!("the script announced Content-Length {announced} but printed {printed} bytes");
    tell!(warning, about(record), "{message}");
    if (printed as u64) < announced {
        return Err(Refusal::upstream(
            StatusCode::BAD_GATEWAY,
            "bad_response",
            "http_response_incomplete",
            message,
        ));
    }
    Ok(())
}

/// The subject of a request's log lines.
pub(crate) fn about(record: &Record) -> About<'_> {
    About {
        site: record.site_name(),
        pool: record.pool.as_ref().map(|pool| pool.settings.name.as_str()),
        request: Some(record.id),
        worker: None,
        asked: Some(record.named()),
    }
}

struct WorkerText<'r>(&'r Record);

impl std::fmt::Display for WorkerText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0.worker {
            Some(super::record::OwnedWorker::Pid(pid)) => pid.fmt(f),
            Some(super::record::OwnedWorker::Server(name)) => f.write_str(name),
            None => f.write_str("-"),
        }
    }
}

/// How many workers that end before they read it a request is given to, at most.
const MAX_UNREAD: u32 = 16;

/// How many bytes of a body are discarded to keep the connection open.
const MAX_DISCARDED: u64 = 64 * 1024;

/// How long weir waits for such a body. The answer waits meanwhile.
const DISCARD_TIME: Duration = Duration::from_millis(500);
