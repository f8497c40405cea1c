//! The steps of a call.
//!
//! [`call`] is the list of steps; each step is a function of that name. An error at any step is a [`Fault`], and
//! [`refuse`] turns it into an answer. However a call ends (answered, refused, cut, left by its caller), its
//! [`RunningCall`] writes its log line.

use std::{
    future::poll_fn,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant, SystemTime},
};

use http::{Method, StatusCode, Version};
use weir_http::{self as carrier, Fields, Head, RequestState, Tunnel};
use weir_http1::Name;
use weir_interfaces::self_call::Ticket;
use weir_observe::clock;
use weir_pool::{Failure, Sent};
use weir_upstream::HostCounters;

use super::{
    Egress,
    body::{BodyTimeouts, Guarded, ResponseBody},
    cache::{Answered as Revalidated, Cache, CacheRequest, Lookup},
    callers::{ActiveCall, Peer},
    compress::{self, Wish},
    connections::{Answered, PooledConnection, Unanswered},
    fault::{Fault, Kind},
    headers,
    host::Host,
    limiter::Permit,
    message::{self, OriginRequest, Reply},
    origin::{Connection, Protocol},
    outgoing::Outgoing,
    rules::Rules,
    running_call::RunningCall,
    serve::{in_time, until},
    target::{self, Form, Target},
    tunnel,
    upload::{Progress, Pump, Upload},
};

/// Answers one call.
pub(crate) async fn call(
    egress: Arc<Egress>,
    peer: Arc<Peer>,
    request: carrier::Request,
) -> carrier::Answer<()> {
    let state = request.state.clone();
    let calling = Arc::new(peer.calls());
    let mut running = RunningCall::begin(&egress, &calling, &request.head.method);
    let takes_trailers = weir_upstream::hop::takes_trailers(&request.head.fields);
    let answered = {
        let mut steps = pin!(steps(&egress, &calling, &state, request, &mut running));
        let mut over = pin!(calling.over(|at| until(&state, at)));
        poll_fn(|cx| {
            // A time that `until` planned in one poll does not apply to the next.
            state.wake_at(clock::NEVER);
            if let Poll::Ready(answered) = steps.as_mut().poll(cx) {
                return Poll::Ready(answered);
            }
            over.as_mut().poll(cx).map(|()| {
                let what = "the time limit of the request that made this call is over";
                Err(Fault::sent(Kind::Deadline, what))
            })
        })
        .await
    };
    let (reply, pump) = match answered {
        Ok((reply, pump)) => (running.answer(reply), pump),
        Err(fault) => (refuse(&fault, running), None),
    };
    let keep = !reply.body.is_tunnel();
    let (body, length) = reply.body.carried(takes_trailers);
    let body = match (body, pump) {
        (carrier::Body::Stream(answer), Some(pump)) => pump.beside(answer),
        (body, _) => body,
    };
    carrier::Answer {
        status: reply.status,
        headers: reply.fields,
        body,
        length,
        keep,
        receipt: (),
    }
}

/// Parses the target of the call.
///
/// # Errors
/// [`Kind::BadRequest`]
fn target_of(head: &Head, rules: &Rules) -> Result<Target, Fault> {
    if head.version == Version::HTTP_11 && !head.fields.has(Name::Host) {
        let what = "call refused: it has no Host header; send one";
        return Err(Fault::unsent(Kind::BadRequest, what));
    }
    let (method, fields) = (&head.method, &head.fields);
    // Nothing is corrected here. A fragment is not sent (RFC 9110 §7.1).
    let received = str::from_utf8(head.received());
    match received {
        Ok(path) if head.authority().is_none() && path.starts_with('/') => {
            let end = memchr::memchr(b'#', path.as_bytes()).unwrap_or(path.len());
            target::by_path(method, &path[..end], fields, rules)
        }
        _ => match head.uri() {
            Some(uri) => target::target(method, &uri, fields, rules),
            None => {
                let what = "call refused: its path or query has bytes that are not allowed in a URL; percent-encode them";
                Err(Fault::unsent(Kind::BadRequest, what))
            }
        },
    }
}

async fn steps(
    egress: &Arc<Egress>,
    calling: &ActiveCall,
    state: &Rc<RequestState>,
    request: carrier::Request,
    running: &mut RunningCall,
) -> Result<(Reply, Option<Pump>), Fault> {
    let carrier::Request { head, body, .. } = request;
    let target = target_of(&head, &egress.rules);
    if let Some(token) = egress.token.as_ref().filter(|_| calling.needs_token()) {
        headers::authorized(&head.fields, token)?;
    }
    let target = target?;
    running.is_for(&target);
    let host = match egress.hosts.recent(&target, &head.method) {
        Some(host) => host,
        None => {
            // Boxed, because it is rare and its future is large. The same applies to others here.
            let asking = Box::pin(ask_rules(egress, calling, &target, &head.method));
            match asking.await {
                Ok(host) => host,
                Err(fault) => {
                    running.refused(target);
                    return Err(fault);
                }
            }
        }
    };
    running.asks(&host);
    host.begin();
    let limits = Limits::new(&host, calling, state);
    if target.form == Form::Tunnel {
        let tunnel = Box::pin(tunnelled(egress, &host, &limits, running)).await?;
        let reply = Reply {
            status: StatusCode::OK,
            fields: Fields::default(),
            body: ResponseBody::tunnel(tunnel),
        };
        return Ok((reply, None));
    }
    let (upload, mut pump) = match body.is_none() {
        true => {
            state.watch_client();
            (Upload::Whole(None), None)
        }
        false => {
            // A caller that sent `Expect: 100-continue` gets a refusal at once, before it sends its
            // body.
            host.admits()?;
            Box::pin(Upload::begin(body, host.settings.read_timeout, state)).await?
        }
    };
    running.upload(&upload);
    let mut found = None;
    if let Some(cache) = egress.cache.as_ref().filter(|_| host.settings.cache) {
        let call = (&target, &*head);
        found = Some(Box::pin(look(cache, &host, call, &limits, &upload)).await?);
    }
    let wish =
        (host.settings.compress).then(|| Wish::of(&head.method, &message::of_caller(&head.fields)));
    let reply = match found {
        Some(Lookup::Hit(response, how)) => {
            running.record.cache = how;
            (*response).into()
        }
        Some(Lookup::Failed(fault)) => return Err(fault),
        found => {
            let request = prepare(calling, &host, head, target);
            let exchange = Exchange {
                host: &host,
                limits: &limits,
                request,
            };
            match (found, &mut pump) {
                (None, None) => exchange.ask(upload, running).await?,
                (found, None) => Box::pin(exchange.fetch(found, upload, running)).await?,
                (found, Some(pump)) => {
                    let fetching = exchange.fetch(found, upload, running);
                    pump.during(Box::pin(fetching)).await?
                }
            }
        }
    };
    let reply = match wish {
        Some(wish) => compress::to_caller(wish, reply.into_response()).into(),
        None => reply,
    };
    Ok((reply, pump))
}

/// The state of the origin, if the rules allow the call.
///
/// # Errors
/// They do not.
async fn ask_rules(
    egress: &Egress,
    calling: &ActiveCall,
    target: &Target,
    method: &Method,
) -> Result<Arc<Host>, Fault> {
    if egress.rules.asks_who(target) {
        calling.identify().await;
    }
    let who = calling.who();
    egress.rules.judge(target, method, &who)?;
    let entitled = egress.rules.is_entitled(&target.origin, &who);
    let host = egress.hosts.of(&target.origin, entitled)?;
    egress.hosts.note_recent(&host);
    Ok(host)
}

/// The time limits of a call. The limit of the caller's own request may be removed during the call; until the answer
/// begins, [`ActiveCall::over`] enforces it from outside.
struct Limits<'a> {
    /// [`clock::now`].
    deadline: u64,
    /// The client for the queue: clients take turns if calls wait.
    client: u64,
    calling: &'a ActiveCall,
    /// State of the caller's request: its steps are polled when a time limit is reached.
    state: &'a RequestState,
}

impl Limits<'_> {
    fn new<'a>(host: &Host, calling: &'a ActiveCall, state: &'a RequestState) -> Limits<'a> {
        Limits {
            deadline: clock::deadline(host.settings.timeout),
            client: calling.client(),
            calling,
            state,
        }
    }

    /// The limits for the body of an answer that begins now.
    fn pace(&self, host: &Host) -> BodyTimeouts {
        let callers = self.calling.deadline();
        let (deadline, overdue) = match callers < self.deadline {
            true => (callers, Kind::Deadline),
            false => (self.deadline, Kind::ResponseTimeout),
        };
        BodyTimeouts {
            read_timeout: host.settings.read_timeout,
            deadline,
            overdue,
        }
    }

    /// Whether there is time for another attempt after a pause.
    fn allows(&self, pause: Duration) -> bool {
        clock::precise().saturating_add(pause.as_micros() as u64) < self.deadline
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

/// Looks into the cache.
async fn look(
    cache: &Arc<Cache>,
    host: &Host,
    (target, head): (&Target, &Head),
    limits: &Limits<'_>,
    upload: &Upload,
) -> Result<Lookup, Fault> {
    let asked = CacheRequest {
        target,
        method: &head.method,
        headers: &message::of_caller(&head.fields),
        has_body: upload.length() != Some(0),
        set: &host.set_headers,
        stale_if_error: host.settings.stale_if_error,
    };
    cache.see_clock(SystemTime::now(), Instant::now());
    let found = match cache.look(&asked, SystemTime::now()) {
        Lookup::Follow(following) => following.wait(limits.deadline, SystemTime::now).await,
        found => Some(found),
    };
    found.ok_or_else(|| {
        Fault::unsent(
            Kind::ResponseTimeout,
            format!(
                "{}: waited too long for the answer to an equal call",
                host.origin
            ),
        )
    })
}

/// The request for the origin: the caller's request without hop-by-hop headers.
fn prepare(
    calling: &ActiveCall,
    host: &Host,
    mut head: Box<Head>,
    target: Target,
) -> OriginRequest {
    let outbound = host.outbound(calling.address().map(|address| address.ip()));
    let request = OriginRequest {
        fields: headers::to_origin(&head.fields, &outbound),
        says_length: head.fields.has(Name::ContentLength),
        method: std::mem::take(&mut head.method),
        path: target.path,
    };
    head.give_back();
    request
}

/// A request, and its origin.
struct Exchange<'a> {
    host: &'a Arc<Host>,
    limits: &'a Limits<'a>,
    request: OriginRequest,
}

impl Exchange<'_> {
    /// Sends the call to the origin if the cache has no answer, and gives the answer to the cache.
    async fn fetch(
        mut self,
        found: Option<Lookup>,
        upload: Upload,
        running: &mut RunningCall,
    ) -> Result<Reply, Fault> {
        let Some(Lookup::Ask(mut asking)) = found else {
            return self.ask(upload, running).await;
        };
        // Only requests without a body revalidate stored answers.
        let unconditional = asking.may_come_again().then(|| self.request.fields.copy(0));
        self.request.change(|headers| asking.prepare(headers));
        let mut answered = self.ask(upload, running).await;
        let mut again = unconditional;
        loop {
            let (response, how) = match answered {
                Ok(reply) => {
                    let outcome = asking.outcome(reply.into_response(), SystemTime::now());
                    match (outcome, again.take()) {
                        (Revalidated::Done(response, how), _) => (response, how),
                        (Revalidated::Again(next), Some(fields)) => {
                            asking = next;
                            self.request.fields = fields;
                            self.request.change(|headers| asking.prepare(headers));
                            answered = self.ask(Upload::Whole(None), running).await;
                            continue;
                        }
                        (Revalidated::Again(_), None) => {
                            let what = format!(
                                "{}: 304 in answer to a request without conditions",
                                self.host.origin
                            );
                            return Err(Fault::sent(Kind::BadResponse, what));
                        }
                    }
                }
                Err(fault) => {
                    let instead = asking.failed(fault.clone(), SystemTime::now())?;
                    // The caller has a stale answer, but the fault must still be logged.
                    running.complain(&fault);
                    instead
                }
            };
            running.record.cache = how;
            return Ok(response.into());
        }
    }

    /// Sends the call to the origin, and retries if that is allowed. The breaker counts the call,
    /// not each attempt: if a retry succeeds, the call has not failed.
    async fn ask(&self, upload: Upload, running: &mut RunningCall) -> Result<Reply, Fault> {
        let (host, limits) = (self.host, self.limits);
        host.admits()?;
        let permit = host.limiter.acquire(limits.client, limits.deadline).await?;
        running.record.waited = permit.waited();
        // Checked again after the wait: if the breaker opens meanwhile, waiting calls fail.
        let trial = host.ask()?;
        host.calls();
        let replay = upload.replay();
        let idempotent = self.request.method.is_idempotent();
        let mut upload = upload;
        let (mut attempts, mut not_begun) = (0, 0);
        let mut fresh = false;
        loop {
            let failed = match self.attempt(upload, fresh, running).await {
                Ok((answer, pooled)) => {
                    trial.answered();
                    return Ok(relay(host, limits, answer, pooled, permit));
                }
                Err(failed) => failed,
            };
            let fault = failed.fault;
            let mut again = None;
            let mut pause = Duration::ZERO;
            if failed.not_begun && not_begun < MOST_NOT_BEGUN {
                // This costs neither a retry nor budget: the origin has not started to process it.
                pause = pause_before_again(not_begun);
                not_begun += 1;
                again = limits.allows(pause).then(|| replay.next()).flatten();
            }
            if again.is_none() {
                attempts += 1;
                let failure = Failure {
                    idempotent,
                    sent: fault.sent,
                    answered: false,
                    attempts,
                    max_attempts: host.settings.retries + 1,
                };
                pause = pause_before(attempts, fault.kind, failed.kept);
                let may_again =
                    limits.allows(pause) && may_help(fault.kind) && host.may_retry(&failure);
                again = may_again.then(|| replay.next()).flatten();
            }
            upload = match again {
                Some(again) => again,
                // A closed kept connection says nothing about the origin.
                None if failed.kept && fault.kind == Kind::Terminated => return Err(fault),
                None => {
                    trial.failed(fault.kind);
                    return Err(fault);
                }
            };
            running.record.retries += 1;
            fresh |= failed.kept;
            if !pause.is_zero() {
                Box::pin(tokio::time::sleep(pause)).await;
            }
        }
    }
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

impl Exchange<'_> {
    /// One attempt: takes a connection, sends the request, reads the head of the answer. `fresh`: idle connections are
    /// not used.
    async fn attempt(
        &self,
        upload: Upload,
        fresh: bool,
        running: &mut RunningCall,
    ) -> Result<(Answered<Outgoing<'_>>, PooledConnection<Upload>), Failed> {
        let (host, limits) = (self.host, self.limits);
        let taken = match host.connections.ready(fresh) {
            Some(pooled) => Ok(pooled),
            None => {
                let taking = Box::pin(host.connections.take(fresh));
                let taken = in_time(limits.state, taking, limits.deadline).await;
                taken.unwrap_or_else(|| Err(limits.over(host, Sent::Nothing)))
            }
        };
        let mut pooled = taken.map_err(|fault| Failed {
            fault,
            not_begun: false,
            kept: false,
        })?;
        running.record.connection = Some(pooled.connection());
        // A site of this weir must know that a worker of this weir waits for the answer.
        let address = pooled.connection().address;
        let ticket = limits.calling.self_call(&host.origin.host, address).await;
        let progress = upload.progress();
        let ticket = ticket.as_ref().and_then(Ticket::value);
        let outgoing = Outgoing::new(&self.request, upload, host, ticket);
        let began = clock::now();
        let sent = {
            let mut sending = pin!(pooled.send(outgoing));
            loop {
                let due = due(host, progress.as_deref(), began);
                let due_or_over = due.min(limits.deadline);
                match in_time(limits.state, sending.as_mut(), due_or_over).await {
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
            Ok(answer) => {
                running.record.first_byte = Some(clock::now().saturating_sub(began));
                Ok((answer, pooled))
            }
            Err(Unanswered { fault, not_begun }) => Err(Failed {
                fault,
                not_begun,
                // An HTTP/2 connection on which the origin refused this request says nothing about other kept
                // connections.
                kept: pooled.is_kept()
                    && !(not_begun && pooled.connection().protocol == Protocol::Http2),
            }),
        }
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
    host: &Host,
    limits: &Limits<'_>,
    answer: Answered<Outgoing<'_>>,
    pooled: PooledConnection<Upload>,
    permit: Permit,
) -> Reply {
    let Answered {
        status,
        fields,
        mut body,
    } = answer;
    let body = match body.take_whole() {
        // Connection and place are free again.
        Some(bytes) => ResponseBody::bytes(bytes),
        // Both are held until the last byte has arrived.
        None => ResponseBody::origin(Guarded::new(body, (pooled, permit), limits.pace(host))),
    };
    Reply {
        status,
        fields,
        body,
    }
}

/// CONNECT: uses a new connection; the tunnelled bytes are not inspected.
async fn tunnelled(
    egress: &Arc<Egress>,
    host: &Arc<Host>,
    limits: &Limits<'_>,
    running: &mut RunningCall,
) -> Result<Tunnel, Fault> {
    host.admits()?;
    let permit = host.limiter.acquire(limits.client, limits.deadline).await?;
    running.record.waited = permit.waited();
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
    running.record.connection = Some(connection);
    let idle = host.settings.read_timeout;
    // The log line is written when the tunnel ends.
    let running = running.take();
    Ok(Tunnel(Box::new(move |caller, ahead| {
        Box::pin(async move {
            let ended = tunnel::carry(caller, ahead, stream, idle).await;
            drop(permit);
            running.tunnel_ended(&ended.carried);
            ended.close().await;
        })
    })))
}

/// weir's own error answer; it says which side caused the error.
fn refuse(fault: &Fault, mut running: Box<RunningCall>) -> Reply {
    let kind = fault.kind;
    let status = kind.status();
    running.record.fault = Some(kind);
    running.complain(fault);
    let text = format!("weir: {} ({})\n", kind.reason(), status.as_u16());
    let mut fields = Fields::default();
    fields.push_read(Name::ContentType, b"text/plain; charset=utf-8");
    headers::proxy_status(&mut fields, kind);
    if let Some(seconds) = fault.retry_after {
        fields.push_read(Name::RetryAfter, seconds.to_string().as_bytes());
    }
    if kind == Kind::NoToken {
        fields.push_read(Name::ProxyAuthenticate, headers::CHALLENGE.as_bytes());
    }
    running.answer(Reply {
        status,
        fields,
        body: ResponseBody::bytes(text),
    })
}

/// How often a call is repeated that the origin has not begun. After two closed connections weir knows how many calls
/// a connection takes, so a higher number is only needed for origins that refuse everything.
const MOST_NOT_BEGUN: u32 = 40;

/// How many of these attempts are made without a pause.
const AT_ONCE: u32 = 6;

/// Pause before the first retry at an origin that does not respond; each further pause is four times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
