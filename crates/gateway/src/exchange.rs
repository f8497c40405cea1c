//! One request and its answer: a state machine, which the carrier of the connection polls.
//!
//! ```text
//! begin ─► Route ──────────────────────────────────────► file, reply, page ───────┐
//!          ▲ │ ╰─► Password, Lookup ─► Route, with what was found                 │
//!          │ │ script                                                             │
//!          │ Body ─► Upload      the body is stored before anybody works for it   │
//!          │ │ ╰──► PathInfo                                                      │
//!          │ Upstream ─────────────────────────────────► answer without a worker ─┤
//!          │ ├─► Page, Follow  for the disk, for an equal request (cache)         │
//!          │ Ask ◄──────────────┐                                                 │
//!          │ ├─► Turn           │ after others with the same key (`serialize_by`) │
//!          │ ├─► Queue          │ for a worker                                    │
//!          │ ├─► Connect        │                                                 │
//!          │ Worker ─► Failed ──┘ nobody has seen it, or nothing can have changed │
//!          │ │           ╰───────────────────────────────► refuse ─► ErrorPage ───┤
//!          │ │ head                                                               │
//!          │ answer ─────────────────────────────────────► body: whole, read      │
//!          │ │ ╰─► File          X-Accel-Redirect           ahead or passed on ───┤
//!          ╰─┴───── local redirect                                                ▼
//!                                                   deliver: Discard, Compress ─► Answer
//! ```
//! Any step may refuse the request. A step that must wait is a variant of [`Step`] with what it waits for, so a waiting
//! request holds no more than that: thousands may wait. Only the disk, passwords and ended processes need futures.
//!
//! A request of a web server in front ([`fastcgi_front`]) begins at `Body`: it names its script itself.

mod cached;
mod checks;
pub(crate) mod fastcgi_front;
mod guards;
mod headers;
mod https;
mod redirects;
mod refuse;
mod refused_head;
mod target_name;
mod targets;
mod without_site;

use std::{
    mem,
    os::unix::ffi::OsStringExt,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use http::StatusCode;
use weir_http::{Answer, Begun, Head, Reply, Request, RequestBody};
use weir_http1::Name;
use weir_interfaces::self_call;
use weir_pool::ShedReason;

use crate::{
    Gateway,
    access::{basic_auth::Unverified, forwarded, guard::Guard},
    admin::fpm_status,
    answers::{bandwidth, compression, refusal::Refusal},
    connections::{
        client::{Client, Conn},
        tls_settings,
    },
    dispatch::{Admitted, AskedBy, ConnectError, Lease, PoolHandle},
    record::Record,
    route::{RouteMatch, Rules, Target},
    scripts::{
        self, AtWorker, Discard, HeadError, Queued, Response, Retry, Serialized, SessionTurn,
        Upload, policy,
        run::{OnDrop, connection::WorkerConn},
        spool::{BodyLimits, Spooled},
    },
    trace,
};

pub(crate) use self::{
    headers::keeps_connection, refuse::note_refusal, refused_head::refused_head,
};

use self::{
    cached::Follow,
    checks::{check_head, check_target},
    headers::{closes, set_headers, set_request_headers},
    redirects::{FileRedirect, keep_said, no_path},
    target_name::Named,
    targets::answer_target,
};

/// A request on its way.
struct Exchange {
    /// Freed before the record, which logs how the script ended.
    step: Step,
    record: Box<Record>,
    /// The rules of its site or route, once they are known. A request of a web server in front has none.
    rules: Option<&'static Rules>,
    client: Client,
    body: Content,
}

/// Where a request is: what [`Exchange::run`] does next, or what it waits for.
enum Step {
    Route,
    Password(BoxFuture<Result<Box<Unverified>, Refusal>>),
    Lookup(BoxFuture<Target<'static>>),
    Body,
    Upload(Upload),
    PathInfo(BoxFuture<Option<Vec<u8>>>),
    Upstream,
    Page(BoxFuture<()>),
    Follow(Follow),
    Ask,
    Turn(Serialized),
    Queue(Queued),
    Connect(BoxFuture<(Lease, Option<Result<WorkerConn, ConnectError>>)>),
    Worker(AtWorker),
    Failed(BoxFuture<Result<Retry, Refusal>>),
    File(BoxFuture<Result<FileRedirect, Refusal>>),
    ErrorPage(BoxFuture<Reply>),
    Discard(Box<(Discard, Answered)>),
    Compress(Box<(compression::Waiting, Answered)>),
}

/// What follows a step.
enum Next {
    Step(Step),
    /// The answer is complete.
    Done(Answered),
}

/// The body of a request.
enum Content {
    Unread(RequestBody),
    /// The body was read. `None`: there is no body.
    Whole(Option<Box<Spooled>>),
}

/// An answer, and the length of its body if only the head has it.
type Answered = (Reply, Option<u64>);

/// Waits for something outside the reactor.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Begins to answer a request. If nothing has to wait, this answers it.
pub(crate) fn begin(
    gateway: &'static Gateway,
    conn: &Rc<Conn>,
    request: Request,
) -> Begun<Box<Record>> {
    let Request {
        head,
        params,
        body,
        started,
        state,
    } = request;
    let is_of_web_server = params.is_some();
    let record = match params {
        Some(params) => fastcgi_front::record(gateway, conn, (head, started), params),
        None => record(gateway, conn, (head, started)),
    };
    if record.endpoints.client != conn.endpoints.client && !is_of_web_server {
        state.set_client(record.endpoints.client);
    }
    let mut exchange = Exchange {
        step: Step::Body,
        record,
        rules: None,
        client: Client {
            conn: conn.clone(),
            request: state,
        },
        body: Content::Unread(body),
    };
    if !is_of_web_server {
        let next = check_head(&exchange.record).and_then(|()| exchange.route());
        match exchange.or_refuse(next) {
            Next::Step(step) => exchange.step = step,
            Next::Done(answered) => return Begun::Answered(exchange.hand_over(answered)),
        }
    }
    Begun::Steps(Box::pin(Running(Some(exchange))))
}

/// The record of a request over HTTP.
fn record(
    gateway: &'static Gateway,
    conn: &Conn,
    (mut head, started): (Box<Head>, u64),
) -> Box<Record> {
    let word = self_call::HEADER;
    let word = word.as_str().as_bytes();
    let said = head.fields.get_other(word);
    let named = said.and_then(self_call::worker_of);
    if said.is_some() {
        head.fields.remove(word);
    }
    let mut record = Record::new(gateway, conn, (head, started));
    record.named = named.unwrap_or(0);
    forwarded::apply(&mut record);
    trace::step!(
        record.id,
        record.head_whole,
        "head",
        "{} {}",
        record.head.method,
        record.head
    );
    record
}

/// The steps of a request that waits, for its carrier. `None` at the end.
struct Running(Option<Exchange>);

impl Future for Running {
    type Output = Answer<Box<Record>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(exchange) = &mut this.0 else {
            return Poll::Pending;
        };
        let answered = ready!(exchange.run(cx));
        match this.0.take() {
            Some(exchange) => Poll::Ready(exchange.hand_over(answered)),
            None => Poll::Pending,
        }
    }
}

impl Exchange {
    /// Takes one step after the other, until one has to wait or there is an answer.
    fn run(&mut self, cx: &mut Context<'_>) -> Poll<Answered> {
        loop {
            let next = match &mut self.step {
                Step::Route => self.route(),
                Step::Password(verifying) => {
                    let verified = ready!(verifying.as_mut().poll(cx));
                    self.verified(verified)
                }
                Step::Lookup(looking) => {
                    let target = ready!(looking.as_mut().poll(cx));
                    self.looked_up(target)
                }
                Step::Body => self.body(),
                Step::Upload(upload) => {
                    let body = ready!(upload.poll(cx, &mut self.record, &self.client));
                    self.uploaded(body)
                }
                Step::PathInfo(looking) => {
                    let path = ready!(looking.as_mut().poll(cx));
                    Ok(self.translated(path))
                }
                Step::Upstream => self.upstream(),
                Step::Page(reading) => {
                    ready!(reading.as_mut().poll(cx));
                    self.read_back()
                }
                Step::Follow(follow) => {
                    let landing = ready!(follow.poll(cx, &mut self.record, &self.client));
                    self.landed(landing)
                }
                Step::Ask => self.ask(),
                Step::Turn(serialized) => {
                    let turn = ready!(serialized.poll(cx, &mut self.record));
                    turn.and_then(|turn| self.admit(turn))
                }
                Step::Queue(queued) => {
                    let lease = ready!(queued.poll(cx, &mut self.record));
                    self.lent(lease)
                }
                Step::Connect(connecting) => {
                    let (lease, connected) = ready!(connecting.as_mut().poll(cx));
                    self.connected(lease, connected)
                }
                Step::Worker(worker) => {
                    let response = ready!(worker.poll(cx, &mut self.record, &self.client));
                    self.answer(cx, response)
                }
                Step::Failed(examining) => {
                    let retry = ready!(examining.as_mut().poll(cx));
                    self.again(retry)
                }
                Step::File(looking) => {
                    let redirect = ready!(looking.as_mut().poll(cx));
                    self.send_file(redirect)
                }
                Step::ErrorPage(reading) => {
                    let reply = ready!(reading.as_mut().poll(cx));
                    Ok(self.deliver((reply, None)))
                }
                Step::Discard(discarding) => {
                    let (discard, answered) = &mut **discarding;
                    let is_gone = ready!(discard.poll(cx, &mut self.record, &self.client));
                    let answered = mem::take(answered);
                    Ok(self.discarded(is_gone, answered))
                }
                Step::Compress(compressing) => {
                    let (compression, answered) = &mut **compressing;
                    ready!(compression.poll(cx, &mut self.record, answered));
                    let answered = mem::take(answered);
                    Ok(self.compressed(answered))
                }
            };
            match self.or_refuse(next) {
                Next::Step(step) => self.step = step,
                Next::Done(answered) => return Poll::Ready(answered),
            }
        }
    }

    /// `Route`: finds what host and path mean: a script, or an answer of the site.
    fn route(&mut self) -> Result<Next, Refusal> {
        let (record, conn) = (&mut *self.record, &*self.client.conn);
        let gateway = record.gateway;
        if let Some(reply) = without_site::answer(gateway, record) {
            return reply.map(|reply| self.deliver((reply, None)));
        }
        if !record.endpoints.is_host_forwarded
            && let Some(authority) = record.head.authority().map(str::to_owned)
        {
            check_target(&record.head, &authority)?;
            // RFC 9112 §3.2.2: the host in the target counts, and the script must see that host.
            record.head.fields.set(b"host", authority.as_bytes());
        }
        let found = find(gateway, &record.head, record.asked().is_some(), conn)?;
        if !tls_settings::is_for_site(gateway, conn.listener, &record.endpoints, found.site.index) {
            return Err(Refusal::client(
                StatusCode::MISDIRECTED_REQUEST,
                "misdirected",
                "the request is for another site than the TLS connection, whose certificate or client certificate is another",
            ));
        }
        let rules = *self.rules.insert(found.rules);
        record.site = Some(found.site.index);
        record.host.clear();
        record.host.extend_from_slice(&found.host);
        record.path.clear();
        record.path.extend_from_slice(&found.path);
        record.silent = !rules.settings.access_log;
        // This comes before the password is requested: passwords must not be sent without TLS.
        if let Some(reply) = https::redirect(found.site, record) {
            return reply.map(|reply| self.deliver((reply, None)));
        }
        if found.has_guards() {
            let outcome = guards::check(record, &found);
            if let Some(unverified) = outcome.note(&mut record.rare)? {
                return Ok(verify(unverified));
            }
        }
        if found.route.is_none_or(|route| route.action.is_none())
            && let Some(pool) = rules.settings.pool
            && let Some(pool) = gateway.pools.get(pool.0)
            && let Some(page) = fpm_status::page(
                pool,
                &found.path,
                record.head.query().unwrap_or_default(),
                || AskedBy::Request(scripts::facts(record, 0).request()),
            )
        {
            let reply = page.reply();
            record.answer_for_pool(pool, &conn.endpoints);
            return Ok(self.deliver((reply, None)));
        }
        let (head, now) = (&record.head, record.head_whole);
        match (gateway.router).resolve_now(&found, &head.method, query(head), now) {
            Some(target) => {
                let guard = found.guard_of(&target, &head.method);
                self.resolved(rules, target, guard)
            }
            None => {
                let router = &gateway.router;
                let looking = router.resolve_on_thread(&found, &head.method, query(head), now);
                Ok(Next::Step(Step::Lookup(Box::pin(looking))))
            }
        }
    }

    /// `Password`: the user's is right, or the request is refused.
    fn verified(&mut self, verified: Result<Box<Unverified>, Refusal>) -> Result<Next, Refusal> {
        self.record.rare_mut().sign_in(*verified?);
        Ok(Next::Step(Step::Route))
    }

    /// `Lookup`: a thread has found the target.
    fn looked_up(&mut self, target: Target<'static>) -> Result<Next, Refusal> {
        let (record, conn) = (&*self.record, &*self.client.conn);
        let head = &record.head;
        let found = find(record.gateway, head, record.asked().is_some(), conn)?;
        let target = found.finish(target, &head.method);
        let (rules, guard) = (found.rules, found.guard_of(&target, &head.method));
        self.resolved(rules, target, guard)
    }

    /// The target of the path is known. `guard`: of the file or script that a folder's URL leads to.
    fn resolved(
        &mut self,
        rules: &Rules,
        target: Target<'static>,
        guard: Option<&'static Guard>,
    ) -> Result<Next, Refusal> {
        let record = &mut *self.record;
        trace::step!(
            record.id,
            record.head_whole,
            "route",
            "site={} {}",
            record.site_name().unwrap_or_default(),
            Named(&target)
        );
        if let Some(guard) = guard
            && let Some(unverified) = guards::check_target(record, guard).note(&mut record.rare)?
        {
            return Ok(verify(unverified));
        }
        match target {
            Target::Script(script) => record.script = Some(script),
            Target::Pool { target } => record.goes_to_servers(target),
            target => {
                let (reply, file) = answer_target(record, target, &rules.settings, None)?;
                record.file = file;
                return Ok(self.deliver((reply, None)));
            }
        }
        Ok(Next::Step(Step::Body))
    }

    /// `Body`: reads the body, and stores it.
    fn body(&mut self) -> Result<Next, Refusal> {
        let limits = match self.rules {
            Some(rules) => {
                rules.policy.apply(&mut self.record);
                BodyLimits {
                    max: rules.settings.max_body,
                    memory: rules.settings.body_memory,
                }
            }
            None => fastcgi_front::BODY,
        };
        match mem::replace(&mut self.body, Content::Whole(None)) {
            Content::Unread(body) if !body.is_none() => {
                let upload = Upload::new(&self.record, &self.client, limits, body);
                Ok(Next::Step(Step::Upload(upload)))
            }
            Content::Unread(_) if self.record.head.fields.has(Name::ContentLength) => {
                self.body = Content::Whole(Some(Box::default()));
                self.prepare()
            }
            // The second script of a request gets no body.
            Content::Unread(_) | Content::Whole(_) => self.prepare(),
        }
    }

    /// `Upload`: the body is whole.
    fn uploaded(&mut self, body: Result<Spooled, Refusal>) -> Result<Next, Refusal> {
        self.body = Content::Whole(Some(Box::new(body?)));
        self.prepare()
    }

    /// Finds out what the script's path-info is as a file name.
    fn prepare(&mut self) -> Result<Next, Refusal> {
        let record = &mut *self.record;
        if let Some(rules) = self.rules {
            let pool = rules.settings.pool;
            let pool = pool.and_then(|pool| record.gateway.pools.get(pool.0));
            record.pool = Some(*pool.ok_or_else(|| scripts::no_pool(record))?);
        }
        let script = record.script.as_ref().filter(|_| self.rules.is_some());
        if let (Some(script), Some(pool)) = (script, record.pool)
            && !script.path_info.is_empty()
        {
            let path = scripts::path_translated(script);
            let is_there = match pool.misreads_path_translated() {
                true => Some(true),
                false => weir_sys::file::is_there_cached(&path),
            };
            let Some(is_there) = is_there else {
                return Ok(Next::Step(Step::PathInfo(Box::pin(scripts::unless_there(
                    path,
                )))));
            };
            let free = (!is_there).then(|| path.into_os_string().into_vec());
            record.rare_mut().path_translated = free;
        }
        Ok(Next::Step(Step::Upstream))
    }

    /// `PathInfo`: a thread has looked.
    fn translated(&mut self, path: Option<Vec<u8>>) -> Next {
        self.record.rare_mut().path_translated = path;
        Next::Step(Step::Upstream)
    }

    /// `Upstream`: all that an answer depends on is known. An answer that needs no worker ends the way here: one from the cache, or a
    /// page about the pool. The others are made by the pool; an upstream that is none would have steps of its own, which meet
    /// those of the pool in `answer`.
    fn upstream(&mut self) -> Result<Next, Refusal> {
        let pool = self.pool()?;
        match self.rules {
            Some(rules) => set_request_headers(&mut self.record, &rules.settings),
            None => {
                let conn = &self.client.conn;
                if let Some(page) = fastcgi_front::page(&mut self.record, conn, pool)? {
                    return Ok(self.deliver((page, None)));
                }
            }
        }
        self.record.asks_script();
        match self.rules.and_then(|rules| rules.cache.as_ref()) {
            Some(cached) => self.look(cached),
            None => self.make(),
        }
    }

    /// `Ask`: the request wants a worker of its pool.
    fn ask(&mut self) -> Result<Next, Refusal> {
        let pool = self.pool()?;
        // This includes the time in which the request waits for its turn.
        self.client.watch_client();
        scripts::trace_queue(&self.record, pool);
        match policy::serial(&self.record, pool) {
            (0, learner) => self.admit((None, learner)),
            (key, learner) => {
                let serialized = Serialized::new(&self.record, &self.client, pool, (key, learner));
                Ok(Next::Step(Step::Turn(serialized)))
            }
        }
    }

    /// `Turn`: no other request with the same key runs.
    fn admit(&mut self, (turn, learner): SessionTurn) -> Result<Next, Refusal> {
        let pool = self.pool()?;
        match scripts::admit(&mut self.record, &self.client, pool) {
            Admitted::Lent(mut lease) => {
                (lease.turn, lease.learner) = (turn, learner);
                self.lent(Ok(lease))
            }
            Admitted::Waits(place) => {
                let queued = Queued::new(&self.record, &self.client, place, (turn, learner));
                Ok(Next::Step(Step::Queue(queued)))
            }
            Admitted::Shed(reason) => self.lent(Err(reason)),
        }
    }

    /// `Queue`: the request has the right to a worker, or gets none.
    fn lent(&mut self, lease: Result<Lease, ShedReason>) -> Result<Next, Refusal> {
        let pool = self.pool()?;
        let mut lease = lease.map_err(|reason| scripts::no_worker(&self.record, pool, reason))?;
        lease.site = self.record.site;
        let home = self.client.conn.home;
        Ok(
            match lease.reach(home, &scripts::choice(&self.record, pool)) {
                Some(worker) => self.send(lease, worker),
                None => {
                    let connecting = scripts::connect(&self.record, pool, lease, home);
                    Next::Step(Step::Connect(Box::pin(connecting)))
                }
            },
        )
    }

    /// `Connect`: there is a connection to the worker, or none.
    fn connected(
        &mut self,
        lease: Lease,
        connected: Option<Result<WorkerConn, ConnectError>>,
    ) -> Result<Next, Refusal> {
        match scripts::connected(&mut self.record, &lease, connected)? {
            Some(worker) => Ok(self.send(lease, worker)),
            None => Ok(Next::Step(Step::Ask)),
        }
    }

    /// Gives the request to the worker.
    fn send(&mut self, lease: Lease, worker: WorkerConn) -> Next {
        let body = match &self.body {
            Content::Whole(body) => body.as_deref(),
            Content::Unread(_) => None,
        };
        let of = (&self.client, self.rules, body);
        let worker = AtWorker::send(&mut self.record, of, (lease, worker));
        Next::Step(Step::Worker(worker))
    }

    /// `Worker`: it has begun its answer, or it gives none.
    fn answer(
        &mut self,
        cx: &mut Context<'_>,
        response: Result<Response, HeadError>,
    ) -> Result<Next, Refusal> {
        let pool = self.pool()?;
        let mut response = match response {
            Ok(response) => response,
            Err(HeadError::Bad(refusal)) => return Err(refusal),
            Err(HeadError::Failed(failure)) => {
                let examining = scripts::examine(&self.record, pool, failure);
                return Ok(Next::Step(Step::Failed(examining)));
            }
        };
        let settings = self.rules.map(|rules| &rules.settings);
        let read = match response.read_ahead(cx, &self.record, settings) {
            Ok(read) => read,
            // Nothing was sent yet: the client can still get an error.
            Err(failure) => {
                let failed = async move { Err(scripts::worker_failed(pool, failure).await) };
                return Ok(Next::Step(Step::Failed(Box::pin(failed))));
            }
        };
        let Some(rules) = self.rules else {
            let reply = fastcgi_front::reply(&mut self.record, response, read);
            return Ok(self.deliver((reply, None)));
        };
        if let Some(next) = self.cached(&mut response, read.as_ref()) {
            return next;
        }
        if let Some(bandwidth) = response.head.bandwidth {
            self.record.rare_mut().bandwidth = Some(bandwidth);
        }
        if read.is_none() && response.head.answers_otherwise() {
            // The rest of the script's output is not needed; the script runs to its end in a separate task.
            response.run.on_drop(OnDrop::Finish);
            return match response.head.local_redirect().map(<[u8]>::to_vec) {
                Some(location) => self.redirect(&location),
                None => {
                    let redirect = FileRedirect::new(&mut self.record, response.head);
                    let looking = redirect.look(self.record.gateway, rules);
                    Ok(Next::Step(Step::File(Box::pin(looking))))
                }
            };
        }
        let (mut reply, length) = response.reply(&self.record, &rules.settings, read);
        keep_said(&mut self.record, &mut reply, true);
        Ok(self.deliver((reply, length)))
    }

    /// `Failed`: another worker gets the request, or the client an error.
    fn again(&mut self, retry: Result<Retry, Refusal>) -> Result<Next, Refusal> {
        scripts::note_retry(&mut self.record, &retry?);
        Ok(Next::Step(Step::Ask))
    }

    /// Delivers an answer. An unread body of the request is discarded before.
    fn deliver(&mut self, mut answered: Answered) -> Next {
        if self.record.params.is_some() {
            self.record.status = Some(answered.0.status);
            return Next::Done(answered);
        }
        keep_said(&mut self.record, &mut answered.0, false);
        match mem::replace(&mut self.body, Content::Whole(None)) {
            Content::Unread(body) if !body.is_none() => {
                let discard = Discard::new(&self.record, body);
                Next::Step(Step::Discard(Box::new((discard, answered))))
            }
            Content::Unread(_) | Content::Whole(_) => self.respond(answered),
        }
    }

    /// `Discard`: the body is gone, or the connection has to end.
    fn discarded(&mut self, is_gone: bool, mut answered: Answered) -> Next {
        if !is_gone {
            // The value is a constant.
            let _ = answered.0.headers.insert(Name::Connection, b"close");
        }
        self.respond(answered)
    }

    /// Adds the last headers to an answer, and compresses it.
    fn respond(&mut self, mut answered: Answered) -> Next {
        let record = &mut *self.record;
        let reply = &mut answered.0;
        // A client that has left gets no answer, even if one is made here. The log shows that the client has left.
        record.status = (record.reason != Some("client_left")).then_some(reply.status);
        if let Some(rules) = self.rules {
            set_headers(reply, record, rules);
        }
        https::add_alt_svc(reply, &self.client.conn, record);
        if let Some(rate) = record.rate_fields() {
            rate.add_to(&mut reply.headers);
        }
        if !reply.headers.has(Name::Server) {
            (reply.headers).append_line(Name::Server, b"Server: weir\r\n");
        }
        let settings = self.rules.map(|rules| &rules.settings);
        match settings
            .filter(|settings| settings.compress)
            .and_then(|settings| compression::begin(record, &mut answered, settings))
        {
            None => self.compressed(answered),
            Some(compression) => Next::Step(Step::Compress(Box::new((compression, answered)))),
        }
    }

    /// `Compress`: the answer is complete.
    fn compressed(&mut self, mut answered: Answered) -> Next {
        let of_settings = || self.rules.and_then(|rules| rules.settings.bandwidth);
        let bandwidth = self.record.bandwidth().unwrap_or_else(of_settings);
        bandwidth::limit(&mut answered, bandwidth);
        Next::Done(answered)
    }

    /// The answer as the carrier gets it.
    fn hand_over(self, (reply, length): Answered) -> Answer<Box<Record>> {
        let record = self.record;
        trace::step!(
            record.id,
            record.head_whole,
            "response",
            "{}",
            reply.status.as_u16()
        );
        let keep = match record.params {
            Some(_) => !record.ends_connection,
            None => keeps_connection(record.gateway, &self.client.conn) && !closes(&reply.headers),
        };
        Answer {
            status: reply.status,
            headers: reply.headers,
            body: reply.body,
            length,
            keep,
            receipt: record,
        }
    }

    /// The pool that runs the script.
    fn pool(&self) -> Result<&'static PoolHandle, Refusal> {
        self.record
            .pool
            .ok_or_else(|| scripts::no_pool(&self.record))
    }
}

/// A password has to be verified; then the request is routed again.
fn verify(unverified: Box<Unverified>) -> Next {
    let verifying = async move { unverified.verify().await.map(|()| unverified) };
    Next::Step(Step::Password(Box::pin(verifying)))
}

/// Site and route of a request. `is_asked`: a script has named its path.
fn find<'h>(
    gateway: &'static Gateway,
    head: &'h Head,
    is_asked: bool,
    conn: &Conn,
) -> Result<RouteMatch<'static, 'h>, Refusal> {
    let named = head.fields.get(Name::Host);
    let found = (gateway.router).find(conn.listener, named, &head.method, head.path());
    found.map_err(|refusal| {
        let path = String::from_utf8_lossy(head.path());
        match refusal.status() {
            // The client did nothing wrong.
            StatusCode::BAD_REQUEST if is_asked => no_path(&path),
            status => Refusal::client(status, refusal.reason(), refusal.message(&path)),
        }
    })
}

/// The query of a request. Targets in the spelling of a URI are UTF-8.
fn query(head: &Head) -> Option<&str> {
    head.query()
        .map(|query| std::str::from_utf8(query).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request that waits for a worker has one of these.
    #[test]
    fn a_request_that_waits_holds_little() {
        let size = size_of::<Running>();
        assert!(size <= 160, "{size}");
    }
}
