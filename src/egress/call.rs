//! A call, step by step.
//!
//! [`call`] is the list; each step is a function of that name. What goes wrong at any of them is a [`Fault`], and one
//! place ([`refuse`]) makes an answer of it. However a call ends (answered, refused, cut, left by its caller), its
//! [`Course`] writes its line.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response,
    header::{CONTENT_LENGTH, CONTENT_TYPE, PROXY_AUTHENTICATE, RETRY_AFTER, TRANSFER_ENCODING},
    request::Parts,
};
use hyper::body::{Body, Incoming};
use weir_pool::{Failure, Sent};

use super::{
    Egress,
    body::{Answer, Guarded, Pace},
    cache::{Answered, Asked, Look},
    callers::{Calling, Peer},
    compress::{self, Wish},
    connections::{Carrier, Received, Unanswered},
    course::Course,
    fault::{Fault, Kind},
    headers,
    host::Host,
    limiter::Permit,
    record::{Connection, Protocol},
    serve::Seat,
    target::{self, Form, Target},
    tunnel,
    upload::{Progress, Upload},
};
use crate::clock;

/// Answers one call.
pub(crate) async fn call(
    egress: Arc<Egress>,
    peer: Arc<Peer>,
    seat: Arc<Seat>,
    request: Request<Incoming>,
) -> Response<Answer> {
    let calling = Arc::new(peer.calls());
    let mut course = Course::begin(&egress, &calling, &seat, &request);
    let answered = tokio::select! {
        answered = steps(&egress, &calling, &seat, request, &mut course) => answered,
        () = calling.over() => Err(Fault::sent(
            Kind::Deadline,
            "the time of the request that it belongs to is over",
        )),
    };
    match answered {
        Ok(response) => course.answer(response),
        Err(fault) => refuse(&fault, course),
    }
}

async fn steps(
    egress: &Arc<Egress>,
    calling: &Calling,
    seat: &Seat,
    request: Request<Incoming>,
    course: &mut Course,
) -> Result<Response<Answer>, Fault> {
    if let Some(token) = egress
        .token
        .as_ref()
        .filter(|_| calling.address().is_some())
    {
        headers::authorized(request.headers(), token)?;
    }
    let target = target::target(
        request.method(),
        request.uri(),
        request.headers(),
        &egress.rules,
    )?;
    course.is_for(&target);
    if egress.rules.asks_who(&target) {
        calling.identify().await;
    }
    let who = calling.who();
    let judged = egress.rules.judge(&target, request.method(), &who);
    let entitled = egress.rules.is_entitled(&target.origin, &who);
    let host = match judged.and_then(|()| egress.hosts.of(&target.origin, entitled)) {
        Ok(host) => host,
        Err(fault) => {
            course.refused(target);
            return Err(fault);
        }
    };
    course.asks(&host);
    host.begin();
    let limits = Limits::new(&host, calling);
    if target.form == Form::Tunnel {
        seat.gauge.lift();
        return tunnelled(egress, &host, &limits, request, course).await;
    }
    let (mut parts, body) = request.into_parts();
    if !body.is_end_stream() {
        // A caller that waits for `100 Continue`, which it gets when its body is read, is told at once where it is of no use.
        host.admits()?;
    }
    let upload = Upload::begin(body, host.settings.read_timeout, &seat.gauge).await?;
    course.upload(&upload);
    let wish = (host.settings.compress).then(|| Wish::of(&parts.method, &parts.headers));
    let found = look(egress, &host, &target, &limits, &parts, &upload).await?;
    let response = match found {
        Some(Look::Hit(response, how)) => {
            course.record.cache = how;
            *response
        }
        Some(Look::Failed(fault)) => return Err(fault),
        found => {
            prepare(calling, &host, &target, &mut parts, &upload)?;
            fetch(&host, &limits, found, parts, upload, course).await?
        }
    };
    Ok(match wish {
        Some(wish) => compress::toward_caller(wish, response),
        None => response,
    })
}

/// How long a call may take. That of its caller's request, which may be lifted while the call lasts, ends it from outside
/// until its answer begins ([`Calling::over`]).
struct Limits<'a> {
    /// [`clock::now`].
    deadline: u64,
    /// Who calls: callers take turns where calls wait.
    client: u64,
    calling: &'a Calling,
}

impl Limits<'_> {
    fn new<'a>(host: &Host, calling: &'a Calling) -> Limits<'a> {
        Limits {
            deadline: clock::deadline(host.settings.timeout),
            client: calling.client(),
            calling,
        }
    }

    /// For the body of an answer that begins now.
    fn pace(&self, host: &Host) -> Pace {
        let callers = self.calling.deadline();
        let (deadline, overdue) = match callers < self.deadline {
            true => (callers, Kind::Deadline),
            false => (self.deadline, Kind::ResponseTimeout),
        };
        Pace {
            read_timeout: host.settings.read_timeout,
            deadline,
            overdue,
        }
    }

    /// The time is over.
    fn over(&self, host: &Host, sent: Sent) -> Fault {
        let what = format!(
            "{}: no answer within the call's time (timeout)",
            host.origin
        );
        Fault {
            sent,
            ..Fault::unsent(Kind::ResponseTimeout, what)
        }
    }
}

/// What the cache has for the call; none: answers of that host are not kept.
async fn look(
    egress: &Egress,
    host: &Host,
    target: &Target,
    limits: &Limits<'_>,
    parts: &Parts,
    upload: &Upload,
) -> Result<Option<Look>, Fault> {
    let Some(cache) = egress.cache.as_ref().filter(|_| host.settings.cache) else {
        return Ok(None);
    };
    let asked = Asked {
        target,
        method: &parts.method,
        headers: &parts.headers,
        has_body: upload.length() != Some(0),
        set: host.outbound(None).set,
        stale_if_error: host.settings.stale_if_error,
    };
    let found = match cache.look(&asked, SystemTime::now()) {
        Look::Follow(following) => following.wait(limits.deadline, SystemTime::now).await,
        found => Some(found),
    };
    let late = || {
        Fault::unsent(
            Kind::ResponseTimeout,
            format!("{}: an equal call is not answered yet", host.origin),
        )
    };
    found.ok_or_else(late).map(Some)
}

/// Asks the origin what the cache does not have, and tells the cache.
async fn fetch(
    host: &Arc<Host>,
    limits: &Limits<'_>,
    found: Option<Look>,
    mut parts: Parts,
    upload: Upload,
    course: &mut Course,
) -> Result<Response<Answer>, Fault> {
    let Some(Look::Ask(mut asking)) = found else {
        return ask(host, limits, parts, upload, course).await;
    };
    // Only a question that has no body asks about what is kept.
    let mut again = asking.may_come_again().then(|| copy(&parts));
    asking.prepare(&mut parts.headers);
    let mut answered = ask(host, limits, parts, upload, course).await;
    loop {
        let (response, how) = match answered {
            Ok(response) => match (asking.outcome(response, SystemTime::now()), again.take()) {
                (Answered::Done(response, how), _) => (response, how),
                (Answered::Again(next), Some(mut parts)) => {
                    asking = next;
                    asking.prepare(&mut parts.headers);
                    answered = ask(host, limits, parts, Upload::Whole(None), course).await;
                    continue;
                }
                (Answered::Again(_), None) => {
                    let what = format!("{}: 304 to a question without conditions", host.origin);
                    return Err(Fault::sent(Kind::BadResponse, what));
                }
            },
            Err(fault) => {
                let instead = asking.failed(fault.clone(), SystemTime::now())?;
                // The caller has its answer, and somebody should know all the same.
                course.complain(&fault);
                instead
            }
        };
        course.record.cache = how;
        return Ok(response);
    }
}

fn copy(parts: &Parts) -> Parts {
    let mut copy = Request::new(()).into_parts().0;
    copy.method = parts.method.clone();
    copy.uri = parts.uri.clone();
    copy.headers = parts.headers.clone();
    copy
}

/// What is sent to the origin: the request as its caller wrote it, without what belongs to this hop.
fn prepare(
    calling: &Calling,
    host: &Host,
    target: &Target,
    parts: &mut Parts,
    upload: &Upload,
) -> Result<(), Fault> {
    let outbound = host.outbound(calling.address().map(|address| address.ip()));
    headers::toward_origin(&mut parts.headers, &outbound)?;
    if let Some(length) = upload.length() {
        // A body that came in chunks and is here whole has a length now.
        // None may be without one where a method usually has a body (RFC 9110 §8.6).
        let usual = [Method::POST, Method::PUT, Method::PATCH].contains(&parts.method);
        if length > 0 || usual || parts.headers.contains_key(CONTENT_LENGTH) {
            parts.headers.insert(CONTENT_LENGTH, length.into());
        }
    }
    parts.uri = host
        .uri(&target.path)
        .map_err(|error| Fault::unsent(Kind::BadRequest, format!("{}: {error}", host.origin)))?;
    parts.version = http::Version::HTTP_11;
    parts.extensions.clear();
    Ok(())
}

/// Asks the origin, again where that is allowed. Its breaker hears of the call, not of each try: what a second try mends is
/// no failure.
async fn ask(
    host: &Arc<Host>,
    limits: &Limits<'_>,
    parts: Parts,
    upload: Upload,
    course: &mut Course,
) -> Result<Response<Answer>, Fault> {
    host.admits()?;
    let permit = host.limiter.acquire(limits.client, limits.deadline).await?;
    course.record.waited = permit.waited();
    // After the wait: those who wait when the breaker opens do not call any more.
    let trial = host.ask()?;
    host.calls();
    let idempotent = parts.method.is_idempotent();
    let replay = upload.replay();
    let mut upload = upload;
    let (mut attempts, mut not_begun) = (0, 0);
    let mut fresh = false;
    loop {
        // Made anew for each try: what is sent depends on what its connection speaks.
        let request = request(&parts, upload);
        let failed = match attempt(host, limits, request, fresh, course).await {
            Ok((response, carrier)) => {
                trial.answered();
                return Ok(relay(host, limits, response, carrier, permit));
            }
            Err(failed) => failed,
        };
        let fault = failed.fault;
        if failed.not_begun && not_begun < MOST_NOT_BEGUN {
            // It costs neither a retry nor the budget: the origin has done nothing for it yet.
            let pause = pause_before_again(not_begun);
            not_begun += 1;
            let until = clock::precise().saturating_add(pause.as_micros() as u64);
            if until < limits.deadline
                && let Some(again) = replay.next()
            {
                upload = again;
                course.record.retries += 1;
                fresh |= failed.kept;
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                continue;
            }
        }
        attempts += 1;
        let failure = Failure {
            idempotent,
            sent: fault.sent,
            answered: false,
            attempts,
            max_attempts: host.settings.retries + 1,
        };
        let pause = pause_before(attempts, fault.kind, failed.kept);
        let in_time = clock::precise().saturating_add(pause.as_micros() as u64) < limits.deadline;
        let may_again = in_time && may_help(fault.kind) && host.may_retry(&failure);
        upload = match may_again.then(|| replay.next()).flatten() {
            Some(again) => again,
            // That a kept connection was closed says nothing of the origin.
            _ if failed.kept && fault.kind == Kind::Terminated => return Err(fault),
            _ => {
                trial.failed(fault.kind);
                return Err(fault);
            }
        };
        course.record.retries += 1;
        fresh |= failed.kept;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

fn request(parts: &Parts, upload: Upload) -> Request<Upload> {
    let mut request = Request::new(upload);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = parts.uri.clone();
    *request.headers_mut() = parts.headers.clone();
    request
}

/// Before a request is sent again that the origin has not begun: at once at first, for another connection takes it.
fn pause_before_again(times: u32) -> Duration {
    match times.checked_sub(AT_ONCE) {
        None => Duration::ZERO,
        Some(more) => Duration::from_millis(1 << more.min(6)),
    }
}

/// Whether another try may end better: what is wrong with a certificate, a name or a request stays so, and what took too
/// long takes as long again.
fn may_help(kind: Kind) -> bool {
    matches!(kind, Kind::Terminated | Kind::Refused | Kind::Unreachable)
}

/// Who is not there, or about to go, may be about to come back, as a web server that is restarted. A kept connection that
/// ended says nothing of that.
fn pause_before(attempts: u32, kind: Kind, kept: bool) -> Duration {
    match (kind, kept) {
        (Kind::Refused | Kind::Unreachable, _) | (Kind::Terminated, false) => {
            FIRST_PAUSE * 4u32.saturating_pow(attempts - 1).min(16)
        }
        _ => Duration::ZERO,
    }
}

/// A try that came to nothing.
struct Failed {
    fault: Fault,
    /// The origin cannot have begun with it, and is not to be blamed ([`Unanswered`]).
    not_begun: bool,
    /// The connection had been there before.
    kept: bool,
}

/// One try: a connection, the request, the head of its answer. `fresh`: no connection that was idle.
async fn attempt(
    host: &Arc<Host>,
    limits: &Limits<'_>,
    request: Request<Upload>,
    fresh: bool,
    course: &mut Course,
) -> Result<(Response<Received>, Carrier), Failed> {
    let taken = match host.connections.ready(fresh) {
        Some(carrier) => Ok(carrier),
        None => {
            let taken = clock::in_time(host.connections.take(fresh), limits.deadline).await;
            taken.unwrap_or_else(|| Err(limits.over(host, Sent::Nothing)))
        }
    };
    let mut carrier = match taken {
        Ok(carrier) => carrier,
        Err(fault) => {
            return Err(Failed {
                fault,
                not_begun: false,
                kept: false,
            });
        }
    };
    course.record.connection = Some(carrier.connection());
    let progress = request.body().progress();
    let began = clock::now();
    let sent = {
        let mut sending = std::pin::pin!(carrier.send(request));
        loop {
            let due = due(host, progress.as_deref(), began);
            match clock::in_time(sending.as_mut(), due.min(limits.deadline)).await {
                Some(sent) => break sent,
                None if clock::precise() >= limits.deadline => {
                    break Err(Unanswered {
                        fault: limits.over(host, Sent::Maybe),
                        not_begun: false,
                    });
                }
                // The body has come further.
                None if self::due(host, progress.as_deref(), began) > due => {}
                None => {
                    break Err(Unanswered {
                        fault: late(host, progress.as_deref()),
                        not_begun: false,
                    });
                }
            }
        }
    };
    match sent {
        Ok(response) => {
            course.record.first_byte = Some(clock::now().saturating_sub(began));
            Ok((response, carrier))
        }
        Err(Unanswered { fault, not_begun }) => Err(Failed {
            fault,
            not_begun,
            // One over HTTP/2 that the origin has refused says nothing of the others that are kept.
            kept: carrier.is_kept()
                && !(not_begun && carrier.connection().protocol == Protocol::Http2),
        }),
    }
}

/// When an answer is late. While its body is still on its way, each piece of that has its time.
fn due(host: &Host, progress: Option<&Progress>, began: u64) -> u64 {
    let limit = match progress.is_none_or(Progress::is_whole) {
        true => host.settings.first_byte_timeout,
        false => host.settings.read_timeout,
    };
    let moved = progress.map_or(0, Progress::at).max(began);
    moved.saturating_add(limit.as_micros() as u64)
}

/// What it is then.
fn late(host: &Host, progress: Option<&Progress>) -> Fault {
    let origin = &host.origin;
    match progress.is_none_or(Progress::is_whole) {
        true => {
            let limit = host.settings.first_byte_timeout.as_millis();
            let what = format!("{origin}: no answer within {limit} ms (first_byte_timeout)");
            Fault::sent(Kind::FirstByteTimeout, what)
        }
        false => {
            let limit = host.settings.read_timeout.as_millis();
            match progress.is_some_and(Progress::is_starved) {
                true => {
                    let what = format!(
                        "{origin}: the caller has sent nothing of its body for {limit} ms (read_timeout)"
                    );
                    Fault::sent(Kind::SlowCaller, what)
                }
                false => {
                    let what = format!(
                        "{origin}: it has taken nothing of the request's body for {limit} ms (read_timeout)"
                    );
                    Fault::sent(Kind::ResponseTimeout, what)
                }
            }
        }
    }
}

/// The origin's answer, for the caller.
fn relay(
    host: &Arc<Host>,
    limits: &Limits<'_>,
    response: Response<Received>,
    carrier: Carrier,
    permit: Permit,
) -> Response<Answer> {
    let (mut parts, body) = response.into_parts();
    // Where an answer has two lengths, the origin may see its end elsewhere (RFC 9112 §6.3).
    let two_lengths =
        parts.headers.contains_key(TRANSFER_ENCODING) && parts.headers.contains_key(CONTENT_LENGTH);
    headers::toward_caller(&mut parts.headers);
    parts.version = http::Version::HTTP_11;
    parts.extensions.clear();
    let pace = limits.pace(host);
    let held = Held {
        carrier: Some(carrier),
        keep: !two_lengths,
        _permit: permit,
    };
    let answer = Answer::origin(Guarded::new(body, held, pace));
    Response::from_parts(parts, answer)
}

/// What an answer holds until its last byte is there.
struct Held {
    carrier: Option<Carrier>,
    /// The connection can take another call.
    keep: bool,
    _permit: Permit,
}

impl Drop for Held {
    /// hyper closes the connection by itself where the answer was not read to its end.
    fn drop(&mut self) {
        // Dropped, it closes its connection.
        if let Some(carrier) = self.carrier.take().filter(|_| self.keep) {
            carrier.done();
        }
    }
}

/// CONNECT: a connection of its own, and what is said over it is not looked at.
async fn tunnelled(
    egress: &Arc<Egress>,
    host: &Arc<Host>,
    limits: &Limits<'_>,
    mut request: Request<Incoming>,
    course: &mut Course,
) -> Result<Response<Answer>, Fault> {
    host.admits()?;
    let permit = host.limiter.acquire(limits.client, limits.deadline).await?;
    course.record.waited = permit.waited();
    let trial = host.ask()?;
    let route = host.connections.route();
    let dialled = egress.dialer.dial_plain(route, limits.deadline).await;
    let (stream, connection) = match dialled {
        Ok(dialled) => dialled,
        Err(fault) => {
            trial.failed(fault.kind);
            return Err(fault);
        }
    };
    trial.answered();
    host.note_tunnel();
    let connection = Connection {
        protocol: Protocol::Tunnel,
        ..connection
    };
    host.figures.connection_opened(&connection, true);
    course.record.connection = Some(connection);
    let upgrade = hyper::upgrade::on(&mut request);
    let idle = host.settings.read_timeout;
    // Its line is written when it ends.
    let course = course.take();
    tokio::spawn(async move {
        let carried = tunnel::carry(upgrade, stream, idle).await;
        drop(permit);
        course.tunnel_ended(&carried);
    });
    Ok(Response::new(Answer::empty()))
}

/// An answer of weir's own, that says whose fault it is.
fn refuse(fault: &Fault, mut course: Box<Course>) -> Response<Answer> {
    let kind = fault.kind;
    let status = kind.status();
    course.record.fault = Some(kind);
    course.complain(fault);
    let text = format!("weir: {} ({})\n", kind.reason(), status.as_u16());
    let mut response = Response::new(Answer::bytes(Bytes::from(text)));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers::proxy_status(fields, kind);
    if let Some(seconds) = fault.retry_after {
        fields.insert(RETRY_AFTER, seconds.into());
    }
    if kind == Kind::NoToken {
        fields.insert(
            PROXY_AUTHENTICATE,
            HeaderValue::from_static(headers::CHALLENGE),
        );
    }
    course.answer(response)
}

/// So often a call is sent again that the origin has not begun. Two connections that end teach how many calls the next ones
/// take, so that more are for origins that refuse whatever they are asked.
const MOST_NOT_BEGUN: u32 = 40;

/// So many of these tries are made without a pause.
const AT_ONCE: u32 = 6;

/// Before the first try again at an origin that is not there; four times as long before the next.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
