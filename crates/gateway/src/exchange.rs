//! One request and its answer: the steps, in order.
//!
//! ```text
//! check_head ─► route ─► action | file | script ─► respond
//!                 ▲                    │
//!                 └── local redirect ◄─┘   any step may refuse; `refuse` turns that into an answer
//! ```
//! [`begin`] takes the first steps at once. Most requests for files end there. A step that must wait needs a future.

mod checks;
mod guards;
mod https;
mod redirects;
mod refused_head;
mod scripts;
mod target_name;
mod targets;
mod without_site;

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    rc::Rc,
};

use http::{Method, StatusCode};
use weir_config::Settings;
use weir_http::{Answer, Begun, Fields, Head, Reply, Request, RequestBody};
use weir_http1::{Name, check_field};
use weir_interfaces::own_call;
use weir_observe::{clock, error_log::tell};

use super::{
    Gateway,
    auth::Unverified,
    compression,
    conn::{Client, Conn},
    dispatch::{AskedBy, PoolHandle},
    fastcgi_front, files, forwarded, paced,
    record::Record,
    refusal::Refusal,
    route::{RouteMatch, Rules, Script, Target},
    script::{self, Outcome, Resume, ScriptRequest, about},
    spool::BodyLimits,
    status, tls, trace,
};

pub(crate) use refused_head::refused_head;

use self::{
    checks::{check_head, check_target},
    redirects::{follow_file_redirect, keep_said, no_path, redirect_within},
    target_name::Named,
    targets::{answer_target, rendered},
};

/// An answer, and the length of its body if only the head has it.
type Answered = (Reply, Option<u64>);

/// What `route` has found.
enum Routed {
    /// The answer.
    Reply(Reply),
    /// A script, which is in the record.
    Script,
    /// Not known yet: the lookup has to wait for a disk.
    Waits,
    /// Not known yet: a password has to be verified.
    Password(Box<Unverified>),
}

/// What remains to be done for a request that [`begin`] did not answer.
enum First {
    Script(Resume),
    Waits,
    Password(Box<Unverified>),
    /// The answer is there, but the steps are not: a body has to be read, or an error page. Boxed, because it is rare.
    Done(Box<Result<Reply, Refusal>>),
}

/// Begins to answer a request. If nothing has to wait, this answers it.
pub(crate) fn begin(
    gateway: &'static Gateway,
    conn: &Rc<Conn>,
    request: Request,
) -> Begun<Box<Record>> {
    if request.params.is_some() {
        return fastcgi_front::begin(gateway, conn, request);
    }
    let Request {
        mut head,
        body,
        started,
        state,
        ..
    } = request;
    let word = own_call::HEADER;
    let word = word.as_str().as_bytes();
    let said = head.fields.get_other(word);
    let named = said.and_then(own_call::worker_of);
    if said.is_some() {
        head.fields.remove(word);
    }
    let mut record = Record::new(gateway, conn, (head, started));
    record.named = named.unwrap_or(0);
    forwarded::apply(&mut record);
    if record.endpoints.client != conn.endpoints.client {
        state.set_client(record.endpoints.client);
    }
    trace::step!(
        record.id,
        record.head_whole,
        "head",
        "{} {}",
        record.head.method,
        record.head
    );
    let mut rules = None;
    let routed = check_head(&record).and_then(|()| route(gateway, &mut record, conn, &mut rules));
    let first = match routed {
        Ok(Routed::Script) => match scripts::begin(record, (conn, &state), &body, rules) {
            Ok(steps) => return Begun::Steps(Box::pin(steps)),
            Err((its_record, its_rules)) => {
                (record, rules) = (its_record, its_rules);
                First::Script(Resume::Begin)
            }
        },
        Ok(Routed::Waits) => First::Waits,
        Ok(Routed::Password(unverified)) => First::Password(unverified),
        Ok(Routed::Reply(reply)) if body.is_none() => {
            return respond(record, conn, (reply, None), rules);
        }
        Err(refusal) if body.is_none() && !has_error_page(rules, &refusal) => {
            note_refusal(&mut record, &refusal);
            let reply = refusal.reply();
            return respond(record, conn, (reply, None), rules);
        }
        Ok(Routed::Reply(reply)) => First::Done(Box::new(Ok(reply))),
        Err(refusal) => First::Done(Box::new(Err(refusal))),
    };
    let client = Client {
        conn: conn.clone(),
        request: state,
    };
    Begun::Steps(Box::pin(answer(record, client, body, rules, first)))
}

async fn answer(
    mut record: Box<Record>,
    client: Client,
    body: RequestBody,
    mut rules: Option<&'static Rules>,
    first: First,
) -> Answer<Box<Record>> {
    let gateway = record.gateway;
    let mut body = Some(body);
    // Rare cases are boxed, because this value is moved with every request.
    let mut answered = match steps(&mut record, &client, &mut body, &mut rules, first).await {
        Ok(answered) => answered,
        Err(refusal) => {
            let refused = refuse(gateway, &mut record, refusal, rules);
            (Box::pin(refused).await, None)
        }
    };
    keep_said(&mut record, &mut answered.0, false);
    if let Some(body) = body
        && !body.is_none()
        && !Box::pin(script::discard_body(&mut record, &client, body)).await
    {
        // The value is a constant.
        let _ = answered.0.headers.insert(Name::Connection, b"close");
    }
    match respond(record, &client.conn, answered, rules) {
        Begun::Answered(answer) => answer,
        Begun::Steps(steps) => steps.await,
    }
}

/// The steps up to an answer, after the first ones. `body` is taken when it is needed; `in_force` is set to the rules that
/// apply to the request.
async fn steps(
    record: &mut Record,
    client: &Client,
    body: &mut Option<RequestBody>,
    in_force: &mut Option<&'static Rules>,
    first: First,
) -> Result<Answered, Refusal> {
    let gateway = record.gateway;
    let mut resume = Resume::Begin;
    let mut routed = match first {
        First::Script(where_to) => {
            resume = where_to;
            Routed::Script
        }
        First::Waits => Routed::Waits,
        First::Password(unverified) => Routed::Password(unverified),
        First::Done(done) => return done.map(|reply| (reply, None)),
    };
    for redirects in 0..=MAX_LOCAL_REDIRECTS {
        if redirects > 0 {
            routed = route(gateway, record, &client.conn, in_force)?;
        }
        while let Routed::Password(unverified) = routed {
            Box::pin(unverified.verify()).await?;
            record.rare_mut().sign_in(*unverified);
            routed = route(gateway, record, &client.conn, in_force)?;
        }
        if let Routed::Waits = routed {
            routed = Box::pin(route_waiting(gateway, record, &client.conn)).await?;
        }
        if let Routed::Reply(reply) = routed {
            return Ok((reply, None));
        }
        let Some(rules) = *in_force else {
            break;
        };
        let resume = std::mem::replace(&mut resume, Resume::Begin);
        match run_script(record, client, rules, body.take(), resume).await? {
            Outcome::Reply(mut reply, length) => {
                keep_said(record, &mut reply, true);
                return Ok((reply, length));
            }
            Outcome::LocalRedirect(location) => redirect_within(record, &location)?,
            Outcome::FileRedirect(redirect, status, headers) => {
                let followed = follow_file_redirect(record, rules, &redirect, status, headers);
                if let Some(reply) = Box::pin(followed).await? {
                    return Ok((reply, None));
                }
            }
        }
    }
    Err(Refusal::upstream(
        StatusCode::BAD_GATEWAY,
        "bad_response",
        "http_protocol_error",
        format!("more than {MAX_LOCAL_REDIRECTS} local redirects"),
    ))
}

/// Finds the answer for host and path, or the script that has to give it. The script is stored in the record.
fn route(
    gateway: &Gateway,
    record: &mut Record,
    conn: &Conn,
    in_force: &mut Option<&'static Rules>,
) -> Result<Routed, Refusal> {
    if let Some(answer) = without_site::answer(gateway, record) {
        return answer.map(Routed::Reply);
    }
    if !record.endpoints.is_host_forwarded
        && let Some(authority) = record.head.authority().map(str::to_owned)
    {
        check_target(&record.head, &authority)?;
        // RFC 9112 §3.2.2: the host in the target counts, and the script must see that host.
        record.head.fields.set(b"host", authority.as_bytes());
    }
    let found = find(gateway, &record.head, record.asked().is_some(), conn)?;
    if !tls::is_for_site(gateway, conn.listener, &record.endpoints, found.site.index) {
        return Err(Refusal::client(
            StatusCode::MISDIRECTED_REQUEST,
            "misdirected",
            "the request is for another site than the TLS connection, whose certificate or client certificate is another",
        ));
    }
    let rules = in_force.insert(found.rules);
    record.site = Some(found.site.index);
    record.host.clear();
    record.host.extend_from_slice(&found.host);
    record.path.clear();
    record.path.extend_from_slice(&found.path);
    record.silent = !rules.settings.access_log;
    // Before a password is asked for, which must not be sent without TLS.
    if let Some(answer) = https::redirect(found.site, record) {
        return answer.map(Routed::Reply);
    }
    if found.has_guards() {
        let outcome = guards::check(record, &found);
        if let Some(unverified) = outcome.note(&mut record.rare)? {
            return Ok(Routed::Password(unverified));
        }
    }
    if found.route.is_none_or(|route| route.action.is_none())
        && let Some(pool) = rules.settings.pool
        && let Some(pool) = gateway.pools.get(pool.0)
        && let Some(page) = status::page(
            pool,
            &found.path,
            record.head.query().unwrap_or_default(),
            || AskedBy::Request(script::facts(record, 0).request()),
        )
    {
        let reply = page.reply();
        record.answer_for_pool(pool, &conn.endpoints);
        return Ok(Routed::Reply(reply));
    }
    let head = &record.head;
    let target = (gateway.router).resolve_now(&found, &head.method, query(head), record.head_whole);
    let Some(target) = target else {
        return Ok(Routed::Waits);
    };
    trace_target(record, &found.site.name, &target);
    if let Some(guard) = found.guard_of(&target, &record.head.method)
        && let Some(unverified) = guards::check_target(record, guard).note(&mut record.rare)?
    {
        return Ok(Routed::Password(unverified));
    }
    match target {
        Target::Script(script) => {
            record.script = Some(script);
            Ok(Routed::Script)
        }
        target => {
            let (reply, file) = answer_target(record, target, &rules.settings, None)?;
            record.file = file;
            Ok(Routed::Reply(reply))
        }
    }
}

/// As [`route`], which could not find it without waiting.
async fn route_waiting(
    gateway: &Gateway,
    record: &mut Record,
    conn: &Conn,
) -> Result<Routed, Refusal> {
    let head = &record.head;
    let found = find(gateway, head, record.asked().is_some(), conn)?;
    let settings = &found.rules.settings;
    let target = (gateway.router)
        .resolve(&found, &head.method, query(head), record.head_whole)
        .await;
    trace_target(record, &found.site.name, &target);
    if let Some(guard) = found.guard_of(&target, &record.head.method)
        && let Some(unverified) = guards::check_target(record, guard).note(&mut record.rare)?
    {
        unverified.verify().await?;
        record.rare.get_or_insert_default().sign_in(*unverified);
    }
    match target {
        Target::Script(script) => {
            record.script = Some(script);
            Ok(Routed::Script)
        }
        target => {
            let (reply, file) = answer_target(record, target, settings, None)?;
            record.file = file;
            Ok(Routed::Reply(reply))
        }
    }
}

/// Site and route of a request. `is_asked`: a script has named its path.
fn find<'r>(
    gateway: &'r Gateway,
    head: &'r Head,
    is_asked: bool,
    conn: &Conn,
) -> Result<RouteMatch<'r>, Refusal> {
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

fn trace_target(record: &Record, site: &str, target: &Target<'_>) {
    trace::step!(
        record.id,
        record.head_whole,
        "route",
        "site={site} {}",
        Named(target)
    );
}

/// Runs the script of the request, or continues with it.
async fn run_script(
    record: &mut Record,
    client: &Client,
    rules: &Rules,
    body: Option<RequestBody>,
    resume: Resume,
) -> Result<Outcome, Refusal> {
    let settings = &rules.settings;
    let mut spooled = None;
    if let Resume::Begin = resume {
        rules.policy.apply(record);
        if let Some(body) = body {
            let limits = BodyLimits {
                max: settings.max_body,
                memory: settings.body_memory,
            };
            spooled = script::take_body(record, client, limits, body).await?;
        }
    }
    let pool = settings
        .pool
        .and_then(|pool| record.gateway.pools.get(pool.0))
        .ok_or_else(|| {
            let script = record.script.as_deref().map(Script::filename);
            let script = script.unwrap_or(Path::new(""));
            Refusal::client(
                StatusCode::FORBIDDEN,
                "forbidden",
                format!("{}: the site has no pool", script.display()),
            )
        })?;
    if let Resume::Begin = resume {
        record.pool = Some(pool);
        if let Some(script) = &record.script
            && !script.path_info.is_empty()
        {
            let translated = match path_translated_now(script, pool) {
                Some(known) => known,
                None => Box::pin(path_translated(script)).await,
            };
            record.rare_mut().path_translated = translated;
        }
        set_request_headers(record, settings);
    }
    let request = ScriptRequest {
        client,
        pool,
        settings,
        body: spooled.as_ref(),
    };
    script::run(record, request, resume).await
}

/// What the site adds to the head that scripts see.
fn set_request_headers(record: &mut Record, settings: &Settings) {
    if settings.compress {
        compression::set_request_headers(record, settings);
    }
    for (name, value) in &settings.set_request_headers {
        let value = rendered(value, record);
        if check_field(name.as_bytes(), &value).is_ok() {
            record.head.fields.set(name.as_bytes(), &value);
        }
    }
}

/// The path-info as a file name (RFC 3875 §4.1.6). With `cgi.fix_pathinfo=0` PHP runs that file instead of the
/// script, unless `cgi.discard_path=1`. So it is left out if the command line of the workers has that setting, and if
/// such a file exists.
///
/// This is what the kernel knows without waiting for a disk; `None`: nothing.
fn path_translated_now(script: &Script, pool: &PoolHandle) -> Option<Option<Vec<u8>>> {
    if pool.misreads_path_translated() {
        return Some(None);
    }
    let path = translated(script);
    let is_there = weir_sys::file::is_there_cached(&path)?;
    Some((!is_there).then(|| path.into_os_string().into_vec()))
}

/// The same, by a thread that waits.
async fn path_translated(script: &Script) -> Option<Vec<u8>> {
    let path = translated(script);
    let looked = tokio::task::spawn_blocking(move || (!path.exists()).then_some(path));
    let free = looked.await.ok().flatten()?;
    Some(free.into_os_string().into_vec())
}

fn translated(script: &Script) -> PathBuf {
    let path = [&script.document_root[..], &script.path_info].concat();
    PathBuf::from(OsString::from_vec(path))
}

/// Notes a refusal in the record, the trace and the error log.
pub(super) fn note_refusal(record: &mut Record, refusal: &Refusal) {
    record.reason = Some(refusal.reason);
    let status = refusal.status;
    trace::step!(
        record.id,
        record.head_whole,
        "refuse",
        "{} {}",
        status.as_u16(),
        refusal.reason
    );
    if status.is_server_error() {
        record.failed(status.as_u16(), Some(refusal.reason), &refusal.message);
    }
    if refusal.message.is_empty() {
        return;
    }
    if status.is_server_error() {
        tell!(
            error,
            about(record),
            "{} {}: {}",
            status.as_u16(),
            refusal.reason,
            refusal.message
        );
    } else {
        tell!(
            notice,
            about(record),
            "{} {}: {}",
            status.as_u16(),
            refusal.reason,
            refusal.message
        );
    }
}

/// Whether the site has a page of its own for a refusal, which has to be read.
fn has_error_page(rules: Option<&Rules>, refusal: &Refusal) -> bool {
    rules.is_some_and(|rules| rules.has_error_page(refusal.status))
}

/// Turns a refusal into an answer: logs it, and uses the site's own error page if it has one.
async fn refuse(
    gateway: &Gateway,
    record: &mut Record,
    refusal: Refusal,
    rules: Option<&'static Rules>,
) -> Reply {
    note_refusal(record, &refusal);
    let status = refusal.status;
    let mut reply = refusal.reply();
    if let Some(rules) = rules
        && let Some(page) = gateway.router.error_page(rules, status, clock::now()).await
    {
        let page = files::serve(&page, &Method::GET, &weir_http1::Fields::default());
        if let Some(content_type) = page.headers.get(Name::ContentType) {
            // It was valid there.
            let _ = reply.headers.insert(Name::ContentType, content_type);
        }
        reply.body = page.body;
    }
    reply
}

/// Adds the last headers to an answer, and compresses it. The steps are for compression that takes long.
fn respond(
    mut record: Box<Record>,
    conn: &Conn,
    mut answered: Answered,
    rules: Option<&Rules>,
) -> Begun<Box<Record>> {
    let reply = &mut answered.0;
    // A client that has left gets no answer, whatever is made here; the log shows that.
    record.status = (record.reason != Some("client_left")).then_some(reply.status);
    if let Some(rules) = rules {
        https::add_hsts(reply, rules, &record);
        for name in &rules.settings.remove_headers {
            if !names_parts(reply, name) {
                reply.headers.remove(name.as_str());
            }
        }
        for (name, value) in &rules.settings.set_headers {
            if names_parts(reply, name) {
                continue;
            }
            // A value that is not valid for this request is left out.
            let _ = reply
                .headers
                .insert(name.as_str(), &rendered(value, &record));
        }
    }
    https::add_alt_svc(reply, conn, &record);
    if let Some(rate) = record.rate_fields() {
        rate.add_to(&mut reply.headers);
    }
    if !reply.headers.has(Name::Server) {
        (reply.headers).append_line(Name::Server, b"Server: weir\r\n");
    }
    let keep = keeps_connection(record.gateway, conn) && !closes(&reply.headers);
    let settings = rules.map(|rules| &rules.settings);
    let waiting = settings
        .filter(|settings| settings.compress)
        .and_then(|settings| compression::begin(&mut record, &mut answered, settings));
    let of_settings = || settings.and_then(|settings| settings.bandwidth);
    let bandwidth = record.bandwidth().unwrap_or_else(of_settings);
    match waiting {
        None => {
            paced::limit(&mut answered, bandwidth);
            Begun::Answered(hand_over(record, answered.0, answered.1, keep))
        }
        Some(waiting) => Begun::Steps(Box::pin(async move {
            waiting.done(&mut record, &mut answered).await;
            paced::limit(&mut answered, bandwidth);
            hand_over(record, answered.0, answered.1, keep)
        })),
    }
}

/// Whether this field says how the parts of several ranges are separated (RFC 9110 §15.3.7.2): without it nobody can read
/// the body.
fn names_parts(reply: &Reply, name: &str) -> bool {
    const PARTS: &[u8] = b"multipart/byteranges";
    reply.status == StatusCode::PARTIAL_CONTENT
        && Name::of(name.as_bytes()) == Some(Name::ContentType)
        && (reply.headers.get(Name::ContentType))
            .and_then(|value| value.get(..PARTS.len()))
            .is_some_and(|value| value.eq_ignore_ascii_case(PARTS))
}

/// The answer as the carrier gets it.
pub(super) fn hand_over(
    record: Box<Record>,
    reply: Reply,
    length: Option<u64>,
    keep: bool,
) -> Answer<Box<Record>> {
    trace::step!(
        record.id,
        record.head_whole,
        "response",
        "{}",
        reply.status.as_u16()
    );
    Answer {
        status: reply.status,
        headers: reply.headers,
        body: reply.body,
        length,
        keep,
        receipt: record,
    }
}

/// Whether the connection may have another request after this one.
pub(super) fn keeps_connection(gateway: &Gateway, conn: &Conn) -> bool {
    let listener = &gateway.config.listeners[usize::from(conn.listener)];
    let most = listener.max_requests_per_connection;
    let goes_on = || gateway.drain.has_started() && gateway.next.takes(listener);
    (most == 0 || conn.requests() < most) && (!gateway.keeps_no_connections() || goes_on())
}

/// Whether the headers of an answer want the connection to be closed.
fn closes(headers: &Fields) -> bool {
    let is_close = |word: &[u8]| word.trim_ascii().eq_ignore_ascii_case(b"close");
    let mut values = headers.all(&Name::Connection);
    values.any(|value| value.split(|byte| *byte == b',').any(is_close))
}

/// Maximum number of local redirects for one request; nginx has the same limit.
const MAX_LOCAL_REDIRECTS: usize = 10;
