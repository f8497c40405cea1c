//! Runs a script for a request: spools the body, waits for a worker, sends the request, reads the answer.
//!
//! ```text
//! spool body ─► admit ─► wait ─► connect ─► write, read the head ─► body: whole, read ahead, or passed on
//!                 ▲                              │
//!                 └──── again, if nobody can have seen it, or nothing can have changed ◄── worker died
//! ```

mod admission;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
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

use self::admission::admit;
use super::{
    cgi::{self, Head},
    clock::{self, NEVER},
    conn::Conn,
    dispatch::{Lease, PoolHandle, Toward},
    fastcgi::{self, Failure, OnDrop, Progress, Run, StderrCopy},
    params,
    pool_log::{Line, Noted},
    read_ahead::{ReadAhead, Room},
    record::Record,
    refusal::Refusal,
    scoreboard::Facts,
    spool::{self, BodyError, Spooled},
    stream::WorkerStream,
    trace,
};

/// The meaning of a script's answer.
pub(crate) enum Outcome {
    /// This is the answer.
    Reply(Reply, Option<u64>),
    /// Answer as if this URL was requested (RFC 3875 §6.2.2).
    LocalRedirect(Vec<u8>),
    /// Answer with a file instead, and keep some of the headers.
    Instead(Instead, StatusCode, Fields),
}

/// Which file a script wants to send.
pub(crate) enum Instead {
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
    settings: &Settings,
    body: RequestBody,
) -> Result<Option<Spooled>, Refusal> {
    if body.is_none() {
        let announced = record.head.fields.has(Name::ContentLength);
        return Ok(announced.then(Spooled::default));
    }
    let spooled = Box::pin(spool::spool(
        body,
        conn,
        settings.max_body,
        settings.body_memory,
        record.worth.deadline,
        &record.gateway.spool_space,
    ))
    .await
    .map_err(|error| {
        conn.leave_body_unread();
        refuse_body(error, settings.max_body)
    })?;
    record.bytes_in = spooled.len();
    trace::step!(
        record.id,
        record.traced_from,
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
    conn.awaits_script();
    record.asks_script();
    refuse_what_crashes(record, pool)?;
    loop {
        let lease = admit(record, conn, pool).await?;
        // Boxed: a request that waits for a worker should not reserve the memory for later steps.
        let answer = Box::pin(async {
            match attempt(record, conn, pool, body, &put_params, lease).await? {
                Some(started) => finish(record, settings, started).await.map(Some),
                None => Ok(None),
            }
        });
        if let Some(answer) = answer.await? {
            return Ok(answer);
        }
    }
}

/// Gets a worker of `pool` to start its answer; `put_params` appends the PARAMS records of the request with the given
/// id.
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
    conn.awaits_script();
    refuse_what_crashes(record, pool)?;
    loop {
        let lease = admit(record, conn, pool).await?;
        let begun = Box::pin(attempt(record, conn, pool, body, &put_params, lease));
        if let Some(started) = begun.await? {
            return Ok(started);
        }
    }
}

/// Tries the request at the lent worker. `None`: another worker is to be asked.
async fn attempt(
    record: &mut Record,
    conn: &Arc<Conn>,
    pool: &Arc<PoolHandle>,
    body: Option<&Spooled>,
    put_params: &impl Fn(&Record, u16, &mut Vec<u8>),
    mut lease: Lease,
) -> Result<Option<Started>, Refusal> {
    let empty = Spooled::default();
    let spooled = body.unwrap_or(&empty);
    let idempotent = record.head.method.is_idempotent();
    lease.serve(record.site);
    let toward = Toward {
        key: pool.hash_key(record),
        tried: &record.tried,
        certain: !idempotent || record.retries > 0,
    };
    let connecting = lease.connect(conn.home, toward);
    let Some(connected) = clock::in_time(connecting, record.worth.deadline).await else {
        drop(lease);
        let message = "the request's `timeout` ended before a server accepted a connection";
        let after = pool.retry_after();
        return Err(Refusal::shed(ShedReason::QueueTimeout, after, message));
    };
    record.worker = lease.worker();
    let server = lease.server();
    record.tried.extend(server);
    let worker = match connected {
        Ok(worker) => worker,
        Err(error) => {
            let message = format!("cannot connect to {}: {}", error.address, error.error);
            drop(lease);
            // Servers were already tried for as long as `connect_timeout` allows.
            if pool.has_workers() && again(record, pool, idempotent, Sent::Nothing, &message) {
                return Ok(None);
            }
            return Err(no_worker(pool, message));
        }
    };
    trace::step!(
        record.id,
        record.traced_from,
        "dispatch",
        "worker={} waited={}us",
        WorkerText(record),
        record.wait.and_then(|wait| wait.waited).unwrap_or(0)
    );
    let (id, mut request) = (worker.next_id(), fastcgi::buffer());
    client::begin_request(&mut request, id, Role::Responder, pool.settings.keep_conn);
    put_params(record, id, &mut request);
    record.dispatched = clock::now();
    record.first_byte = None;
    lease.begin(&facts(record, body.map_or(0, Spooled::len)));
    if conn.source.may_be_worker() {
        lease.asked_by(conn);
    }
    note(record, conn, pool, &mut lease, &request);
    let mut run = Run::start(
        lease,
        worker,
        conn,
        (record.id, record.asked_for()),
        request,
        spooled,
    );
    run.ends_at(record.worth.deadline);
    run.on_drop(match record.worth.on_client_left {
        OnClientLeft::Finish => OnDrop::Finish,
        OnClientLeft::Cancel | OnClientLeft::FinishIfAnswering => OnDrop::Cancel,
    });
    let stderr = record.params.is_some().then(|| run.copy_stderr());
    let mut output = Vec::new();
    let head = read_head(&mut run, &mut output, record, conn, pool).await;
    record.first_byte = run.first_byte;
    match head {
        Ok((head, body_at)) => {
            run.ends_at(NEVER);
            if record.worth.on_client_left == OnClientLeft::FinishIfAnswering {
                run.on_drop(OnDrop::Finish);
            }
            if let Some(noted) = &mut record.noted
                && let Some(Some(log)) = record.gateway.pool_logs.get(usize::from(pool.id))
                && log.wants_headers()
            {
                noted.headers = Some(head.headers.clone());
            }
            Ok(Some(Started {
                run,
                head,
                output,
                body_at,
                stderr,
            }))
        }
        Err(NoHead::Failed(failure)) => {
            let sent = match &failure {
                Failure::Closed { sent: false, .. } | Failure::Closed { unread: true, .. } => {
                    Sent::Nothing
                }
                _ => Sent::Maybe,
            };
            let answered = record.first_byte.is_some();
            if let Failure::Closed { process, error, .. } = &failure
                && !answered
                && !Box::pin(cost_a_worker(pool, *process, error.as_ref(), sent)).await
                && again(record, pool, idempotent, sent, &failure.to_string())
            {
                return Ok(None);
            }
            Err(Box::pin(worker_failed(pool, failure)).await)
        }
        Err(NoHead::Bad(message)) => {
            if let Some(server) = server.filter(|_| !run.blame(&message)) {
                pool.blame(server, &message);
            }
            Err(Refusal::upstream(
                StatusCode::BAD_GATEWAY,
                "bad_response",
                "http_protocol_error",
                message,
            ))
        }
    }
}

/// Notes what the pool's own log needs of a request that a worker gets.
fn note(record: &mut Record, conn: &Conn, pool: &PoolHandle, lease: &mut Lease, request: &[u8]) {
    let Some(Some(log)) = record.gateway.pool_logs.get(usize::from(pool.id)) else {
        return;
    };
    if log.is_from_worker() {
        record.noted = None;
        return lease.note_line(Line::new(record, conn));
    }
    let params = log.wants_params().then(|| params_of(request));
    let noted = Noted {
        params: params.flatten(),
        peer: conn.ends.remote_addr.clone(),
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
        authorization: record.header("authorization").unwrap_or_default(),
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
fn again(record: &mut Record, pool: &PoolHandle, idempotent: bool, sent: Sent, why: &str) -> bool {
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
        idempotent,
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
    trace::step!(record.id, record.traced_from, "retry", "{why}");
    tell!(notice, about(record), "given to another worker: {why}");
    true
}

enum NoHead {
    Failed(Failure),
    Bad(String),
}

/// Reads until the response's head is complete, and passes interim responses on. Returns the head, and where the body
/// begins in `output`.
async fn read_head(
    run: &mut Run,
    output: &mut Vec<u8>,
    record: &Record,
    conn: &Conn,
    pool: &PoolHandle,
) -> Result<(Head, usize), NoHead> {
    let mut scanned = 0;
    let mut ended = false;
    loop {
        let end = cgi::end_of_head(output, &mut scanned);
        let limit = pool.settings.max_response_head;
        if end.unwrap_or(output.len()) > limit {
            run.on_drop(OnDrop::Abort);
            return Err(NoHead::Bad(format!(
                "the response's head is longer than max_response_head ({limit} bytes)"
            )));
        }
        let Some(end) = end else {
            if ended {
                return Err(NoHead::Bad(match output.len() {
                    0 => "the response is empty".into(),
                    len => {
                        format!("the response ended in the middle of its head, after {len} bytes")
                    }
                }));
            }
            ended = run.read(output).await.map_err(NoHead::Failed)? == Progress::End;
            continue;
        };
        let head = cgi::parse(&output[..end])
            .map_err(|error| NoHead::Bad(format!("the response's head is wrong: {error}")))?;
        if head.status.is_informational() {
            pass_interim(&head, record, conn);
            output.drain(..end);
            scanned = 0;
            continue;
        }
        trace::step!(
            record.id,
            record.traced_from,
            "first byte",
            "status={}",
            head.status.as_u16()
        );
        return Ok((head, end));
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

/// After the head: decides what the answer is, and how its body gets to the client.
async fn finish(
    record: &Record,
    settings: &Settings,
    started: Started,
) -> Result<Outcome, Refusal> {
    let Started {
        mut run,
        mut head,
        mut output,
        body_at,
        ..
    } = started;
    output.drain(..body_at);
    // The rest of the script's output is not needed; the script runs to its end in a separate task.
    if let Some(location) = head.local_redirect() {
        run.on_drop(OnDrop::Finish);
        return Ok(Outcome::LocalRedirect(location.to_vec()));
    }
    let instead = match (head.accel_redirect.take(), head.sendfile.take()) {
        (Some(url), _) => Some(Instead::Url(url)),
        (None, Some(path)) => Some(Instead::Path(path)),
        (None, None) => None,
    };
    if let Some(instead) = instead {
        run.on_drop(OnDrop::Finish);
        return Ok(Outcome::Instead(instead, head.status, head.headers));
    }
    let length = head.content_length;
    let bodyless = record.head.method == Method::HEAD
        || matches!(
            head.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
    let streams = !settings.buffering
        || head.buffering == Some(false)
        || (head.buffering.is_none() && head.is_event_stream());
    let Head {
        status, headers, ..
    } = head;
    let reply = |body| Reply {
        status,
        headers,
        body,
    };
    if bodyless {
        run.on_drop(OnDrop::Finish);
        return Ok(Outcome::Reply(reply(Body::Empty), None));
    }
    if streams {
        return Ok(Outcome::Reply(
            reply(Body::Stream(Box::new(WorkerStream::new(run, output)))),
            length,
        ));
    }
    let progress = read_what_is_there(&mut run, &mut output, settings.response_memory).await;
    let body = match progress {
        Ok(Progress::End) => Body::Bytes(Bytes::from(output)),
        Ok(Progress::More) => {
            let room = Room {
                memory: settings.response_memory,
                file: settings.max_response_file,
                space: record.gateway.spool_space.clone(),
            };
            Body::Stream(Box::new(ReadAhead::start(run, output, room)))
        }
        // The head was read, but nothing was sent yet: the client can still get an error.
        Err(failure) => {
            let pool = record.pool.as_ref();
            return Err(match pool {
                Some(pool) => Box::pin(worker_failed(pool, failure)).await,
                None => Refusal::upstream(
                    StatusCode::BAD_GATEWAY,
                    "worker_died",
                    "connection_terminated",
                    failure.to_string(),
                ),
            });
        }
    };
    match (&body, length) {
        (Body::Bytes(bytes), Some(length)) if bytes.len() as u64 != length => {
            tell!(
                warning,
                about(record),
                "the script announced Content-Length {length} but printed {} bytes",
                bytes.len()
            );
            if (bytes.len() as u64) < length {
                // Nothing was sent yet: the client gets an error instead of a cut connection.
                let message = format!(
                    "the script announced Content-Length {length} but printed {} bytes",
                    bytes.len()
                );
                return Err(Refusal::upstream(
                    StatusCode::BAD_GATEWAY,
                    "bad_response",
                    "http_response_incomplete",
                    message,
                ));
            }
            let body = Body::Bytes(bytes.slice(..length as usize));
            Ok(Outcome::Reply(reply(body), Some(length)))
        }
        _ => Ok(Outcome::Reply(reply(body), length)),
    }
}

/// Reads as long as data is available at once, up to about `limit` bytes in total.
///
/// # Errors
///
/// See [`Failure`].
pub(crate) async fn read_what_is_there(
    run: &mut Run,
    output: &mut Vec<u8>,
    limit: usize,
) -> Result<Progress, Failure> {
    std::future::poll_fn(|cx| {
        loop {
            match run.poll(cx, output) {
                std::task::Poll::Ready(Ok(Progress::More)) if output.len() < limit => {}
                std::task::Poll::Pending => return std::task::Poll::Ready(Ok(Progress::More)),
                ready => return ready,
            }
        }
    })
    .await
}

/// The answer to a request whose body could not be read; `max_body` is the limit that applies.
pub(crate) fn refuse_body(error: BodyError, max_body: u64) -> Refusal {
    match error {
        BodyError::TooLarge => Refusal::client(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("the request's body is larger than max_body ({max_body} bytes)"),
        )
        .closing(),
        BodyError::TimedOut => Refusal::client(
            StatusCode::REQUEST_TIMEOUT,
            "body_timeout",
            "no data of the body arrived within body_timeout",
        )
        .closing(),
        BodyError::Late => Refusal::client(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            "the request's `timeout` ended before its whole body had arrived",
        )
        .closing(),
        BodyError::Malformed => Refusal::client(
            StatusCode::BAD_REQUEST,
            "bad_body",
            "the body's chunks are malformed",
        )
        .closing(),
        BodyError::Spool(error) => Refusal::upstream(
            StatusCode::SERVICE_UNAVAILABLE,
            "spool_failed",
            "proxy_internal_error",
            format!("cannot write the request's body to a temporary file: {error}; check spool_dir and max_spool"),
        )
        .retry_after(SPOOL_RETRY)
        .closing(),
    }
}

fn no_worker(pool: &PoolHandle, message: String) -> Refusal {
    Refusal::upstream(
        StatusCode::SERVICE_UNAVAILABLE,
        "no_worker",
        "destination_unavailable",
        message,
    )
    .retry_after(pool.retry_after())
}

/// The answer if a worker failed before any of its answer was sent.
pub(crate) async fn worker_failed(pool: &PoolHandle, failure: Failure) -> Refusal {
    let bad_gateway =
        |reason, error, message| Refusal::upstream(StatusCode::BAD_GATEWAY, reason, error, message);
    let message = failure.to_string();
    match failure {
        Failure::Closed { process, .. } => {
            let how = match pool.exit(process).await {
                Some(Exit::Code(code)) => {
                    format!("{message}; its process ended with exit code {code}")
                }
                Some(Exit::Signal(signal)) => {
                    format!(
                        "{message}; its process was killed by {}",
                        weir_sys::signal::name(signal)
                    )
                }
                None => message,
            };
            bad_gateway("worker_died", "connection_terminated", how)
        }
        Failure::Protocol(_) => bad_gateway("bad_response", "http_protocol_error", message),
        Failure::Silent { .. } | Failure::Terminated | Failure::Late | Failure::Cancelled => {
            Refusal::upstream(
                StatusCode::GATEWAY_TIMEOUT,
                "terminated",
                "http_response_timeout",
                message,
            )
        }
        Failure::Spool(_) => bad_gateway("spool_failed", "proxy_internal_error", message),
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

/// After how many seconds a client may try again when the spool was full.
const SPOOL_RETRY: u64 = 10;
