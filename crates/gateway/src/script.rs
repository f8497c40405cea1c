//! Runs a script for a request: spools the body, waits for a worker, sends the request, reads the answer.
//!
//! ```text
//! spool body ─► admit ─► wait ─► connect ─► write, read the head ─► body: whole, read ahead, or passed on
//!                 ▲                              │
//!                 └──── again, if nobody can have seen it, or nothing can have changed ◄── worker died
//! ```
//! Most requests need only an [`Attempt`]: they have no body, get a worker, and the worker answers.

mod admission;
mod attempt;
mod refusals;

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::{Method, StatusCode};
use weir_config::Settings;
use weir_http::{Body, Fields, Part, Reply, RequestBody, Stream, Truncated};
use weir_http1::Name;
use weir_observe::{
    error_log::{About, tell},
    scoreboard::Facts,
};
use weir_pool::{Retry, Sent, ShedReason, may_retry};
use weir_sys::process::Exit;

pub(crate) use self::{attempt::Job, refusals::worker_failed};
use self::{
    attempt::{Attempt, Ended, NoHead, choice},
    refusals::{no_worker, refuse_body},
};
use super::{
    cgi::Head,
    clock::{self, NEVER},
    conn::Client,
    dispatch::{Lease, PoolHandle},
    fastcgi::{Failure, OnDrop, Progress, Run, StderrCopy},
    params, policy,
    read_ahead::{ReadAhead, Room},
    record::Record,
    refusal::Refusal,
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
    client: &Client,
    limits: BodyLimits,
    body: RequestBody,
) -> Result<Option<Spooled>, Refusal> {
    if body.is_none() {
        let announced = record.head.fields.has(Name::ContentLength);
        return Ok(announced.then(Spooled::default));
    }
    let length = body.length();
    let mut reading = Box::pin(spool::spool(
        body,
        client,
        limits,
        record.policy.deadline,
        &record.gateway.spool_space,
    ));
    let at_once = poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await;
    let spooled = match at_once {
        Poll::Ready(spooled) => spooled,
        Poll::Pending => {
            let _noted = record.gateway.uploads.begin(record, length);
            reading.await
        }
    };
    let spooled = spooled.map_err(|error| {
        client.leave_body();
        refuse_body(error, limits.max)
    })?;
    record.bytes_in = spooled.len();
    record.body_whole = Some(clock::precise());
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
pub(crate) async fn discard_body(
    record: &mut Record,
    client: &Client,
    mut body: RequestBody,
) -> bool {
    let awaits_consent = record.head.fields.has(Name::Expect);
    let too_long = body.length().is_some_and(|length| length > MAX_DISCARDED);
    let all = async {
        while let Ok(data) = spool::next_data(&mut body, client, NEVER).await {
            let Some(data) = data else {
                record.body_whole = Some(clock::precise());
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
        client.leave_body();
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

/// A request for a script without a body, on its usual way. Thousands may wait, so this is not a future, which would
/// reserve memory for every case: other cases are left to [`run`].
pub(crate) struct Usual {
    pool: &'static PoolHandle,
    attempt: Attempt,
}

/// Where [`run`] continues after [`Usual`].
pub(crate) enum Resume {
    /// At the beginning. The policy and the site's headers are not in the record yet.
    Begin,
    /// At the beginning, but both are in the record.
    Prepared,
    /// After an attempt.
    Ended(Box<Ended>),
    /// The worker failed after its head.
    Failed(Failure),
    Done(Box<Result<Outcome, Refusal>>),
}

impl Usual {
    /// Asks the record's pool for a worker.
    ///
    /// # Errors
    ///
    /// How the request continues instead.
    pub(crate) fn new(record: &mut Record, client: &Client) -> Result<Usual, Resume> {
        let Some(pool) = record.pool else {
            return Err(Resume::Prepared);
        };
        record.asks_script();
        refuse_what_crashes(record, pool)
            .map_err(|refusal| Resume::Done(Box::new(Err(refusal))))?;
        let (key, learner) = policy::serial(record, pool);
        if key != 0 {
            return Err(Resume::Prepared);
        }
        admission::trace_queue(record, pool);
        let attempt = Attempt::new(record, client, pool, (None, learner));
        Ok(Usual { pool, attempt })
    }

    /// The answer, with the length of its body if only the head has it; or how the request continues instead.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        record: &mut Record,
        client: &Client,
        settings: &Settings,
    ) -> Poll<Result<(Reply, Option<u64>), Resume>> {
        let put_params = |record: &Record, id, out: &mut Vec<u8>| {
            params::put(record, settings, id, None, out);
        };
        let job = Job {
            client,
            pool: self.pool,
            body: None,
            put_params,
        };
        let mut started = match ready!(self.attempt.poll(cx, record, &job)) {
            Ended::Started(started) => started,
            ended => return Poll::Ready(Err(Resume::Ended(Box::new(ended)))),
        };
        Poll::Ready(match started.read_ahead(cx, record, settings) {
            Err(failure) => Err(Resume::Failed(failure)),
            Ok(progress) => match finish(record, settings, started, progress) {
                Ok(Outcome::Reply(reply, length)) => Ok((reply, length)),
                done => Err(Resume::Done(Box::new(done))),
            },
        })
    }
}

/// What a script is run with.
pub(crate) struct ScriptRequest<'r> {
    pub(crate) client: &'r Client,
    pub(crate) pool: &'static PoolHandle,
    pub(crate) settings: &'r Settings,
    pub(crate) body: Option<&'r Spooled>,
}

/// Runs a script at a worker of the request's pool.
///
/// # Errors
///
/// The answer if no worker gave a usable one.
pub(crate) async fn run(
    record: &mut Record,
    request: ScriptRequest<'_>,
    resume: Resume,
) -> Result<Outcome, Refusal> {
    let ScriptRequest {
        client,
        pool,
        settings,
        body,
    } = request;
    let length = body.map(Spooled::len);
    let put_params = |record: &Record, id, out: &mut Vec<u8>| {
        params::put(record, settings, id, length, out);
    };
    let ended = match resume {
        Resume::Done(done) => return *done,
        Resume::Failed(failure) => return Err(Box::pin(worker_failed(pool, failure)).await),
        Resume::Ended(ended) => Some(*ended),
        Resume::Begin | Resume::Prepared => {
            record.asks_script();
            None
        }
    };
    let job = Job {
        client,
        pool,
        body,
        put_params,
    };
    let failure = {
        let mut started = begin(record, &job, ended).await?;
        let read = poll_fn(|cx| Poll::Ready(started.read_ahead(cx, record, settings))).await;
        match read {
            Ok(progress) => return finish(record, settings, started, progress),
            Err(failure) => failure,
        }
    };
    // The head was read, but nothing was sent yet: the client can still get an error.
    Err(Box::pin(worker_failed(pool, failure)).await)
}

/// Gets a worker to start its answer. `ended`: how an attempt ended that was made before.
///
/// # Errors
///
/// The answer if no worker gave a usable one.
pub(crate) async fn begin<P: Fn(&Record, u16, &mut Vec<u8>)>(
    record: &mut Record,
    job: &Job<'_, P>,
    mut ended: Option<Ended>,
) -> Result<Started, Refusal> {
    let (client, pool) = (job.client, job.pool);
    if ended.is_none() {
        refuse_what_crashes(record, pool)?;
    }
    loop {
        let last = match ended.take() {
            Some(ended) => ended,
            None => {
                let mut attempt = admission::admit(record, client, pool).await?;
                poll_fn(|cx| attempt.poll(cx, record, job)).await
            }
        };
        match last {
            Ended::Started(started) => return Ok(started),
            Ended::NoWorker(reason) => return Err(admission::refusal(record, pool, reason)),
            Ended::NoConnection(mut lease) => {
                let connected = Box::pin(connect(record, client, pool, &mut lease)).await?;
                if let Some(worker) = connected {
                    let mut attempt = Attempt::at_worker(record, job, lease, worker);
                    ended = Some(poll_fn(|cx| attempt.poll(cx, record, job)).await);
                }
            }
            Ended::NoHead(asked, why) => {
                record.tried.extend(asked.server);
                Box::pin(has_no_head(record, pool, asked.run, why)).await?;
            }
        }
    }
}

/// Makes a connection to a worker. `None`: another worker is to be asked.
///
/// # Errors
///
/// The answer if no worker can be reached.
async fn connect(
    record: &mut Record,
    client: &Client,
    pool: &'static PoolHandle,
    lease: &mut Lease,
) -> Result<Option<WorkerConn>, Refusal> {
    let connecting = lease.connect(client.conn.home, choice(record, pool));
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

/// The worker gave no head. Nothing: another worker is to be asked.
///
/// # Errors
///
/// The answer if the request is not given to another worker.
async fn has_no_head(
    record: &mut Record,
    pool: &'static PoolHandle,
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
    if let Failure::Closed {
        process,
        error,
        unstarted,
        ..
    } = &failure
        && record.first_byte.is_none()
        && !cost_a_worker(pool, (*process, *unstarted), error.as_ref(), sent).await
    {
        let sent = if *unstarted { Sent::Nothing } else { sent };
        if again(record, pool, sent, &failure.to_string()) {
            return Ok(());
        }
    }
    Err(worker_failed(pool, failure).await)
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
            .or(record.user())
            .unwrap_or_default(),
        content_length,
    }
}

/// Refuses requests for scripts that crash their workers again and again.
fn refuse_what_crashes(record: &Record, pool: &'static PoolHandle) -> Result<(), Refusal> {
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
/// somebody else killed the worker, the request is not the cause. Nor is it if a worker of weir's own PHP was asked to end
/// before it had all of the request (`unstarted`). A program that ended with code 0 and did not read the
/// whole request had reached its end when the request came. For a worker of a server, nothing is known.
async fn cost_a_worker(
    pool: &PoolHandle,
    (process, unstarted): (Option<u32>, bool),
    error: Option<&std::io::Error>,
    sent: Sent,
) -> bool {
    if sent == Sent::Nothing || !pool.has_workers() {
        return false;
    }
    if pool.settings.php().is_some() {
        // weir kills what is left of a worker that has closed its stream.
        let closed = [Exit::Code(0), Exit::Signal(weir_sys::signal::KILL)];
        let ended =
            unstarted && (pool.exit(process).await).is_some_and(|end| closed.contains(&end));
        return !ended && !pool.was_killed(process).await;
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
        true => (record.unread - record.earlier().unread, MAX_UNREAD),
        false => {
            let earlier = record.earlier().retries - record.earlier().unread;
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

impl Started {
    /// Whether the rest of the response is read as fast as it comes, whatever the client does.
    fn is_read_ahead(&self, record: &Record, settings: &Settings) -> bool {
        settings.buffering
            && !self.head.streams()
            && !self.head.answers_otherwise()
            && !is_bodyless(record, self.head.status)
    }

    /// Reads what is available at once, up to about `response_memory`. `None`: the response is not read ahead.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    fn read_ahead(
        &mut self,
        cx: &mut Context<'_>,
        record: &Record,
        settings: &Settings,
    ) -> Result<Option<Progress>, Failure> {
        match self.is_read_ahead(record, settings) {
            true => self.read_now(cx, settings.response_memory).map(Some),
            false => Ok(None),
        }
    }

    /// Reads as long as data is available at once, up to about `limit` bytes of the body.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(crate) fn read_now(
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
    record: &mut Record,
    settings: &Settings,
    started: Started,
    read: Option<Progress>,
) -> Result<Outcome, Refusal> {
    let Started {
        mut run,
        mut head,
        mut output,
        body_at,
        ..
    } = started;
    if let Some(bandwidth) = head.bandwidth {
        record.rare_mut().bandwidth = Some(bandwidth);
    }
    if read.is_none() && head.answers_otherwise() {
        // The rest of the script's output is not needed; the script runs to its end in a separate task.
        run.on_drop(OnDrop::Finish);
        if let Some(location) = head.local_redirect() {
            return Ok(Outcome::LocalRedirect(location.to_vec()));
        }
        let elsewhere = head.elsewhere.take().unwrap_or_default();
        let redirect = match elsewhere.accel_redirect {
            Some(url) => FileRedirect::Url(url),
            None => FileRedirect::Path(elsewhere.sendfile.unwrap_or_default()),
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
    if read.is_none() && is_bodyless(record, status) {
        run.on_drop(OnDrop::Finish);
        return Ok(Outcome::Reply(reply(Body::Empty), None));
    }
    if read == Some(Progress::End) {
        let mut bytes = Bytes::from(output);
        // In front of the body is the head. The memory of both is freed together.
        bytes.advance(body_at);
        if let Some(length) = length
            && bytes.len() as u64 != length
        {
            wrong_length(record, bytes.len(), length);
            if (bytes.len() as u64) < length {
                let body = Body::Stream(Box::new(TooShort(Some(bytes))));
                return Ok(Outcome::Reply(reply(body), Some(length)));
            }
            bytes.truncate(length as usize);
        }
        return Ok(Outcome::Reply(reply(Body::Bytes(bytes)), length));
    }
    output.drain(..body_at);
    let body = match read {
        None => Body::Stream(Box::new(WorkerStream::new(run, output))),
        Some(_) => {
            let room = Room {
                memory: settings.response_memory,
                file: settings.max_response_file,
                space: &record.gateway.spool_space,
            };
            Body::Stream(Box::new(ReadAhead::start(run, output, room)))
        }
    };
    Ok(Outcome::Reply(reply(body), length))
}

/// The body has another length than the script has announced. A longer one is cut. A shorter one is sent, and then the
/// connection is cut, as nginx does it: the client knows that something is missing.
#[cold]
fn wrong_length(record: &Record, printed: usize, announced: u64) {
    if let Some(pool) = record.pool {
        let what =
            format!("the script announced Content-Length {announced} but printed {printed} bytes");
        odd(record, pool, &what);
    }
}

/// Logs what is odd about an answer that is sent nevertheless, unless the pool had many of them.
#[cold]
fn odd(record: &Record, pool: &PoolHandle, what: &dyn std::fmt::Display) {
    match pool.say_odd() {
        None => {}
        Some(0) => tell!(warning, about(record), "{what}"),
        Some(others) => tell!(
            warning,
            about(record),
            "{what}; {others} other answers were odd"
        ),
    }
}

/// All that there is of a body that is shorter than announced.
#[derive(Debug)]
struct TooShort(Option<Bytes>);

impl Stream for TooShort {
    fn poll_part(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        let part = self.0.take().filter(|bytes| !bytes.is_empty());
        Poll::Ready(Some(part.map(Part::Bytes).ok_or(Truncated)))
    }
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

/// Maximum number of workers that a request is given to, if they end before they read it.
const MAX_UNREAD: u32 = 16;

/// How many bytes of a body are discarded to keep the connection open.
const MAX_DISCARDED: u64 = 64 * 1024;

/// How long weir waits for such a body. The answer waits meanwhile.
const DISCARD_TIME: Duration = Duration::from_millis(500);
