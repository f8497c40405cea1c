//! A call, step by step.
//!
//! [`call`] is the list of steps; each step is a function of that name. An error at any step is a [`Fault`], and
//! [`refuse`] turns it into an answer. However a call ends (answered, refused, cut, left by its caller), its
//! [`Course`] writes its log line.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, PROXY_AUTHENTICATE, RETRY_AFTER},
    request::Parts,
    uri::PathAndQuery,
};
use weir_http::{self as carrier, Body, ConnState, Fields, Head, RequestBody, Tunnel};
use weir_interfaces::own_call::{self, Ticket};
use weir_observe::clock;
use weir_pool::{Failure, Sent};

use super::{
    Egress,
    body::{Answer, Guarded, Pace},
    cache::{Answered as Revalidated, Asked, Look},
    callers::{Calling, Peer},
    compress::{self, Wish},
    connections::{Carrier, Received, Unanswered},
    course::Course,
    fault::{Fault, Kind},
    headers,
    host::Host,
    limiter::Permit,
    record::{Connection, Protocol},
    serve::Unrecorded,
    target::{self, Form, Target},
    tunnel,
    upload::{Progress, Pump, Upload},
};
/// Answers one call. `state`: of the caller's connection.
pub(crate) async fn call(
    egress: Arc<Egress>,
    peer: Arc<Peer>,
    state: Arc<ConnState>,
    request: carrier::Request,
) -> carrier::Answer<Unrecorded> {
    let calling = Arc::new(peer.calls());
    let carrier::Request { head, body } = request;
    let mut course = Course::begin(&egress, &calling, &head.method);
    let takes_trailers = head.fields.has_token(weir_http1::Name::Te, "trailers");
    let answered = match of_head(head) {
        Ok(parts) => tokio::select! {
            answered = steps(&egress, &calling, &state, (parts, body), &mut course) => answered,
            () = calling.over() => Err(Fault::sent(
                Kind::Deadline,
                "the time limit of the request that made this call is over",
            )),
        },
        Err(fault) => Err(fault),
    };
    let response = match answered {
        Ok(Answered::Response(response, pump)) => {
            course.answer(response.map(|answer| answer.with_pump(pump)))
        }
        Ok(Answered::Tunnel(tunnel)) => {
            return carrier::Answer {
                status: StatusCode::OK,
                headers: Fields::default(),
                body: Body::Tunnel(tunnel),
                length: None,
                keep: false,
                receipt: Unrecorded,
            };
        }
        Err(fault) => refuse(&fault, course),
    };
    let (parts, answer) = response.into_parts();
    let (body, length) = answer.carried(takes_trailers);
    carrier::Answer {
        status: parts.status,
        headers: headers::lines(&parts.headers),
        body,
        length,
        keep: true,
        receipt: Unrecorded,
    }
}

/// What a call leads to.
enum Answered {
    /// With what still reads the body of the request.
    Response(Box<Response<Answer>>, Option<Pump>),
    Tunnel(Tunnel),
}

/// The head of a request, in the types of the steps.
fn of_head(head: Head) -> Result<Parts, Fault> {
    let mut parts = Request::new(()).into_parts().0;
    parts.headers = headers::of_request(&head.fields)?;
    if head.version == Version::HTTP_11 && !parts.headers.contains_key(HOST) {
        let what = "call refused: it has no Host header; send one";
        return Err(Fault::unsent(Kind::BadRequest, what));
    }
    (parts.method, parts.uri) = (head.method, head.uri);
    if let Some(received) = head.received {
        // Nothing is corrected here. A fragment is not sent (RFC 9110 §7.1).
        let refused = |_| {
            Fault::unsent(
                Kind::BadRequest,
                "call refused: its path or query has bytes that are not allowed in a URL; percent-encode them",
            )
        };
        let path = PathAndQuery::try_from(&*received).map_err(|_| refused(()))?;
        let mut uri = parts.uri.into_parts();
        uri.path_and_query = Some(path);
        parts.uri = Uri::from_parts(uri).map_err(|_| refused(()))?;
    }
    Ok(parts)
}

async fn steps(
    egress: &Arc<Egress>,
    calling: &Calling,
    state: &Arc<ConnState>,
    (mut parts, body): (Parts, RequestBody),
    course: &mut Course,
) -> Result<Answered, Fault> {
    if let Some(token) = egress.token.as_ref().filter(|_| calling.needs_token()) {
        headers::authorized(&parts.headers, token)?;
    }
    let target = target::target(&parts.method, &parts.uri, &parts.headers, &egress.rules)?;
    course.is_for(&target);
    if egress.rules.asks_who(&target) {
        calling.identify().await;
    }
    let who = calling.who();
    let judged = egress.rules.judge(&target, &parts.method, &who);
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
        let tunnel = tunnelled(egress, &host, &limits, course).await?;
        return Ok(Answered::Tunnel(tunnel));
    }
    if !body.is_none() {
        // A caller that sent `Expect: 100-continue` learns a refusal at once, before it sends its body.
        host.admits()?;
    }
    let (upload, mut pump) = Upload::begin(body, host.settings.read_timeout, state).await?;
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
            let fetching = fetch(&host, &limits, found, parts, upload, course);
            match &mut pump {
                Some(pump) => pump.during(Box::pin(fetching)).await?,
                None => fetching.await?,
            }
        }
    };
    let response = match wish {
        Some(wish) => compress::toward_caller(wish, response),
        None => response,
    };
    Ok(Answered::Response(Box::new(response), pump))
}

/// The time limits of a call. The limit of the caller's own request may be removed during the call; until the answer
/// begins, [`Calling::over`] enforces it from outside.
struct Limits<'a> {
    /// [`clock::now`].
    deadline: u64,
    /// The client for the queue: clients take turns if calls wait.
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

    /// The limits for the body of an answer that begins now.
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

    /// The time limit was reached.
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

/// Looks into the cache; `None` if answers of that host are not cached.
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
            format!(
                "{}: waited too long for the answer to an equal call",
                host.origin
            ),
        )
    };
    found.ok_or_else(late).map(Some)
}

/// Asks the origin if the cache has no answer, and gives the answer to the cache.
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
    // Only requests without a body revalidate stored answers.
    let mut again = asking.may_come_again().then(|| copy(&parts));
    asking.prepare(&mut parts.headers);
    let mut answered = ask(host, limits, parts, upload, course).await;
    loop {
        let (response, how) = match answered {
            Ok(response) => match (asking.outcome(response, SystemTime::now()), again.take()) {
                (Revalidated::Done(response, how), _) => (response, how),
                (Revalidated::Again(next), Some(mut parts)) => {
                    asking = next;
                    asking.prepare(&mut parts.headers);
                    answered = ask(host, limits, parts, Upload::Whole(None), course).await;
                    continue;
                }
                (Revalidated::Again(_), None) => {
                    let what = format!("{}: 304 to a question without conditions", host.origin);
                    return Err(Fault::sent(Kind::BadResponse, what));
                }
            },
            Err(fault) => {
                let instead = asking.failed(fault.clone(), SystemTime::now())?;
                // The caller has a stale answer, but the fault must still be logged.
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

/// The request for the origin: the caller's request without hop-by-hop headers.
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
        // A chunked body that has arrived completely has a known length now. For methods that usually have a body, a
        // length must be sent also if the body is empty (RFC 9110 §8.6).
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

/// Asks the origin, and retries if that is allowed. The breaker counts the call, not each try: if a retry succeeds,
/// the call has not failed.
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
    // Checked again after the wait: if the breaker opens meanwhile, waiting calls fail.
    let trial = host.ask()?;
    host.calls();
    let idempotent = parts.method.is_idempotent();
    let replay = upload.replay();
    let mut upload = upload;
    let (mut attempts, mut not_begun) = (0, 0);
    let mut fresh = false;
    loop {
        // Made again for each try, because the request depends on the protocol of its connection.
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
            // This costs neither a retry nor budget: the origin has not started to process it.
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
            // A closed kept connection says nothing about the origin.
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

/// Pause before a request is repeated that the origin has not begun. The first times there is none, because another
/// connection is used.
fn pause_before_again(times: u32) -> Duration {
    match times.checked_sub(AT_ONCE) {
        None => Duration::ZERO,
        Some(more) => Duration::from_millis(1 << more.min(6)),
    }
}

/// Whether a retry may succeed. Errors of certificates, names or requests stay the same, and after a timeout a retry
/// would take just as long.
fn may_help(kind: Kind) -> bool {
    matches!(kind, Kind::Terminated | Kind::Refused | Kind::Unreachable)
}

/// An origin that refuses or closes connections may be restarting. A kept connection that was closed says nothing
/// about that.
fn pause_before(attempts: u32, kind: Kind, kept: bool) -> Duration {
    match (kind, kept) {
        (Kind::Refused | Kind::Unreachable, _) | (Kind::Terminated, false) => {
            FIRST_PAUSE * 4u32.saturating_pow(attempts - 1).min(16)
        }
        _ => Duration::ZERO,
    }
}

/// A failed try.
struct Failed {
    fault: Fault,
    /// The origin has not begun to process it, and has done nothing wrong ([`Unanswered`]).
    not_begun: bool,
    /// The connection was used before.
    kept: bool,
}

/// One try: takes a connection, sends the request, reads the head of the answer. `fresh`: idle connections are not
/// used.
async fn attempt(
    host: &Arc<Host>,
    limits: &Limits<'_>,
    mut request: Request<Upload>,
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
    // A site of this weir has to know that one of its own workers waits for the answer.
    let address = carrier.connection().address;
    let ticket = limits.calling.own_call(&host.origin.host, address).await;
    if let Some(value) = ticket.as_ref().and_then(Ticket::value) {
        request.headers_mut().insert(own_call::HEADER, value);
    }
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
                // The body has made progress meanwhile.
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
            // An HTTP/2 connection on which the origin refused this request says nothing about other kept
            // connections.
            kept: carrier.is_kept()
                && !(not_begun && carrier.connection().protocol == Protocol::Http2),
        }),
    }
}

/// When the answer is late. While the request's body is being sent, the limit applies to each piece.
fn due(host: &Host, progress: Option<&Progress>, began: u64) -> u64 {
    let limit = match progress.is_none_or(Progress::is_whole) {
        true => host.settings.first_byte_timeout,
        false => host.settings.read_timeout,
    };
    let moved = progress.map_or(0, Progress::at).max(began);
    moved.saturating_add(limit.as_micros() as u64)
}

/// The fault if it is late.
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
                        "{origin}: the caller sent no body data for {limit} ms (read_timeout)"
                    );
                    Fault::sent(Kind::SlowCaller, what)
                }
                false => {
                    let what = format!(
                        "{origin}: the host accepted no body data for {limit} ms (read_timeout)"
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
    headers::toward_caller(&mut parts.headers);
    parts.version = http::Version::HTTP_11;
    parts.extensions.clear();
    let pace = limits.pace(host);
    // Both are held until the last byte has arrived.
    let answer = Answer::origin(Guarded::new(body, (carrier, permit), pace));
    Response::from_parts(parts, answer)
}

/// CONNECT: uses a new connection; the tunnelled bytes are not inspected.
async fn tunnelled(
    egress: &Arc<Egress>,
    host: &Arc<Host>,
    limits: &Limits<'_>,
    course: &mut Course,
) -> Result<Tunnel, Fault> {
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
    let idle = host.settings.read_timeout;
    // The log line is written when the tunnel ends.
    let course = course.take();
    Ok(Tunnel(Box::new(move |caller, ahead| {
        Box::pin(async move {
            let carried = tunnel::carry(caller, ahead, stream, idle).await;
            drop(permit);
            course.tunnel_ended(&carried);
        })
    })))
}

/// weir's own error answer, which tells whose fault it is.
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

/// How often a call is repeated that the origin has not begun. After two closed connections weir knows how many calls
/// a connection takes, so a higher number is only needed for origins that refuse everything.
const MOST_NOT_BEGUN: u32 = 40;

/// How many of these tries are made without a pause.
const AT_ONCE: u32 = 6;

/// Pause before the first retry at an origin that does not respond; each further pause is four times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
