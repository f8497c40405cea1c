//! Everything that is known about one request, from its head to its log line.
//!
//! The record travels with the request: the steps fill it in, the body counts the bytes, and the connection writes
//! the log line when the last byte is sent. If it is dropped before, the log says that the client has left.

mod endpoints;
pub(crate) mod pool_log;
mod rare;
mod user;

use std::{
    num::NonZeroU64,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{Method, StatusCode, Version};
use weir_config::{OnClientLeft, Variable};
use weir_fcgi::nv::Pairs;
use weir_http::{Head, Receipt, Target};
use weir_http1::Name;
use weir_net::Spare;
use weir_observe::{
    error_log,
    log_text::{self, Worker},
    pool_log::PoolLogEntry,
};
use weir_pool::Micros;
use weir_semantics::coding::Accepted;

use self::rare::Earlier;
pub(crate) use self::{endpoints::Endpoints, rare::RareValues, user::SignedIn};
use crate::{
    Gateway,
    access::rates::RateFields,
    access_log::Entry,
    answers::{cache::StoredPage, compression::Compressed},
    cache_use::CacheUse,
    clock::{self, NEVER},
    connections::{client::Conn, tls_settings},
    dispatch::{PoolHandle, Wait},
    failures::{Cause, Failed},
    files::FileEntry,
    record::pool_log::Noted,
    route::Script,
    scripts::{
        policy::RequestPolicy,
        run::{self, RequestSummary, StderrCopy},
    },
    tally::FinishedRequest,
    template::Variables,
    trace,
};

/// What is known about a request.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) gateway: &'static Gateway,
    /// Its number in this process.
    pub(crate) id: u64,
    /// Its head as received, with the changes of `set_request_headers`.
    pub(crate) head: Box<Head>,
    pub(crate) endpoints: Rc<Endpoints>,
    /// When its first byte arrived, and when its head was complete ([`clock::now`]).
    pub(crate) started: u64,
    pub(crate) head_whole: u64,
    /// The requested host: lower case, without port; empty if there is none.
    pub(crate) host: Vec<u8>,
    /// Index into the configuration's sites.
    pub(crate) site: Option<usize>,
    /// The decoded and normalised path.
    pub(crate) path: Vec<u8>,
    pub(crate) script: Option<Rc<Script>>,
    /// The file that the answer has, if it may be compressed.
    pub(crate) file: Option<Rc<FileEntry>>,
    /// The parameters from a web server in front; `None` for a request over HTTP.
    pub(crate) params: Option<Box<Pairs>>,
    /// The script's standard error, for that web server.
    pub(crate) stderr: Option<StderrCopy>,
    /// What few requests have.
    pub(crate) rare: Option<Box<RareValues>>,
    /// Its policy values, if it is for a script.
    pub(crate) policy: RequestPolicy,
    pub(crate) pool: Option<&'static PoolHandle>,
    pub(crate) worker: Option<OwnedWorker>,
    pub(crate) wait: Option<Wait>,
    /// When the request was given to its last worker, and when that worker answered.
    pub(crate) dispatched: u64,
    pub(crate) first_byte: Option<u64>,
    /// Servers that got this request.
    pub(crate) tried: Vec<weir_pool::ServerId>,
    pub(crate) retries: u32,
    /// How many of these retries happened because a worker ended before it read the request.
    pub(crate) unread: u32,
    pub(crate) bytes_in: u64,
    /// When the last byte of its body was read; `None`: it has none, or did not send it all.
    pub(crate) body_whole: Option<u64>,
    pub(crate) bytes_out: u64,
    /// `None` until there is an answer.
    pub(crate) status: Option<StatusCode>,
    /// Why the answer is an error: the word in the access log.
    pub(crate) reason: Option<&'static str>,
    /// Values for the pool's own log, if the request belongs there.
    pub(crate) noted: Option<Box<Noted>>,
    /// The worker that the request names as its sender ([`weir_interfaces::self_call`]); 0: none.
    pub(crate) named: u32,
    /// What the cache had for the request, if its site has one.
    pub(crate) cache: Option<CacheUse>,
    /// The request gets no line in the access log.
    pub(crate) silent: bool,
    /// The connection to the web server in front ends with this request.
    pub(crate) ends_connection: bool,
    /// Whether its log lines were written.
    logged: bool,
}

thread_local! {
    /// Records that are not in use, with their buffers.
    static SPARE: Spare<Box<Record>> = const { Spare::new(64) };
}

/// The worker, kept after it was given back.
#[derive(Debug, Clone)]
pub(crate) enum OwnedWorker {
    Pid(u32),
    Server(&'static str),
}

impl Record {
    /// The record of a request whose head is complete.
    pub(crate) fn new(
        gateway: &'static Gateway,
        conn: &Conn,
        (head, started): (Box<Head>, u64),
    ) -> Box<Record> {
        let mut record = match SPARE.with(Spare::take) {
            Some(mut spare) => {
                std::mem::replace(&mut spare.head, head).give_back();
                spare.endpoints.clone_from(&conn.endpoints);
                spare
            }
            None => Box::new(Record::empty(gateway, conn.endpoints.clone(), head)),
        };
        record.id = gateway.next_request();
        record.started = started;
        record.head_whole = clock::now();
        record.logged = false;
        record
    }

    /// No client has sent the request: it renews a page of the cache, and is neither logged nor counted.
    pub(crate) fn unlogged(mut self: Box<Record>) -> Box<Record> {
        self.logged = true;
        self
    }

    /// A record of no request.
    fn empty(gateway: &'static Gateway, endpoints: Rc<Endpoints>, head: Box<Head>) -> Record {
        Record {
            id: 0,
            gateway,
            head,
            endpoints,
            started: 0,
            head_whole: 0,
            host: Vec::new(),
            site: None,
            path: Vec::new(),
            script: None,
            file: None,
            params: None,
            stderr: None,
            rare: None,
            policy: RequestPolicy::default(),
            pool: None,
            worker: None,
            wait: None,
            dispatched: 0,
            first_byte: None,
            tried: Vec::new(),
            retries: 0,
            unread: 0,
            bytes_in: 0,
            body_whole: None,
            bytes_out: 0,
            status: None,
            reason: None,
            noted: None,
            named: 0,
            cache: None,
            silent: false,
            ends_connection: false,
            logged: true,
        }
    }

    /// Forgets the request, so that a later request of this reactor can use the record. Its line was written.
    fn give_back(mut self: Box<Record>) {
        // All fields are named, so that none is forgotten.
        let Record {
            gateway: _,
            id: _,
            head: _,
            endpoints: _,
            started: _,
            head_whole: _,
            host,
            site,
            path,
            script,
            file,
            params,
            stderr,
            rare,
            policy,
            pool,
            worker,
            wait,
            dispatched,
            first_byte,
            tried,
            retries,
            unread,
            bytes_in,
            body_whole,
            bytes_out,
            status,
            reason,
            noted,
            named,
            cache,
            silent,
            ends_connection,
            logged,
        } = &mut *self;
        for text in [host, path] {
            text.clear();
            text.shrink_to(SPARE_TEXT);
        }
        tried.clear();
        (*site, *script, *file, *params, *rare) = (None, None, None, None, None);
        (*stderr, *pool, *worker, *wait) = (None, None, None, None);
        (*first_byte, *status, *reason, *noted) = (None, None, None, None);
        (*body_whole, *cache) = (None, None);
        *policy = RequestPolicy::default();
        (*dispatched, *bytes_in, *bytes_out) = (0, 0, 0);
        (*retries, *unread, *named) = (0, 0, 0);
        (*silent, *ends_connection, *logged) = (false, false, true);
        SPARE.with(|spare| spare.keep(self));
    }

    /// The request needs a script. If another script has redirected it here, it is a new request to this script's
    /// pool: it waits its turn, and does not count as a retry.
    pub(crate) fn asks_script(&mut self) {
        if let Some(wait) = self.wait.take() {
            let (retries, unread) = (self.retries, self.unread);
            let earlier = &mut self.rare_mut().earlier;
            earlier.waited += wait.waited.unwrap_or(0);
            (earlier.retries, earlier.unread) = (retries, unread);
            self.tried.clear();
        }
    }

    /// The values that few requests have, to be changed.
    pub(crate) fn rare_mut(&mut self) -> &mut RareValues {
        self.rare.get_or_insert_default()
    }

    /// The client's method and target, if a script has replaced them.
    pub(crate) fn asked(&self) -> Option<&(Method, Target)> {
        self.rare.as_ref()?.asked.as_ref()
    }

    /// The codings that the client accepts, if the worker was told something else.
    pub(crate) fn accepted(&self) -> Option<Accepted> {
        self.rare.as_ref()?.accepted
    }

    /// The speed of the answer that a script has set; `Some(None)`: no limit.
    pub(crate) fn bandwidth(&self) -> Option<Option<NonZeroU64>> {
        self.rare.as_ref()?.bandwidth
    }

    /// How the answer was compressed, if it was.
    fn compressed(&self) -> Option<&Compressed> {
        self.rare.as_ref()?.compressed.as_ref()
    }

    /// The stored page that the client gets.
    pub(crate) fn page(&self) -> Option<&Arc<StoredPage>> {
        self.rare.as_ref()?.page.as_ref()
    }

    /// `PATH_TRANSLATED`, if the worker is to get it.
    pub(crate) fn path_translated(&self) -> Option<&[u8]> {
        self.rare.as_ref()?.path_translated.as_deref()
    }

    /// What the client is told of its `rate`.
    pub(crate) fn rate_fields(&self) -> Option<&RateFields> {
        self.rare.as_ref()?.rate.as_deref()
    }

    /// Totals of earlier scripts that redirected the request.
    pub(crate) fn earlier(&self) -> Earlier {
        self.rare
            .as_ref()
            .map(|rare| rare.earlier)
            .unwrap_or_default()
    }

    /// How long it has waited for workers, µs; `None` if it is not for a script. `now`: [`clock::now`].
    fn waited(&self, now: u64) -> Option<u64> {
        let last = self.wait.map(|wait| {
            let until_now = now.saturating_sub(wait.admitted);
            wait.waited.unwrap_or(until_now)
        });
        let earlier = Some(self.earlier().waited).filter(|waited| *waited > 0);
        match (earlier, last) {
            (None, None) => None,
            _ => Some(earlier.unwrap_or(0) + last.unwrap_or(0)),
        }
    }

    /// The client's method.
    pub(crate) fn method(&self) -> &Method {
        self.asked().map_or(&self.head.method, |(method, _)| method)
    }

    /// The client and what it requested, to be kept after the request's end.
    pub(crate) fn summary(&self) -> RequestSummary {
        let mut target = run::buffer();
        target.extend_from_slice(self.client_target());
        RequestSummary {
            endpoints: self.endpoints.clone(),
            method: self.method().clone(),
            target,
        }
    }

    /// The client and what it requested, as log lines name it.
    pub(crate) fn named(&self) -> error_log::RequestLine<'_> {
        error_log::RequestLine {
            client: self.endpoints.remote_addr(),
            method: self.method().as_str(),
            // That spelling is UTF-8.
            url: std::str::from_utf8(self.client_target()).unwrap_or_default(),
        }
    }

    /// Path and query as the client sent them, in the spelling of a URI.
    fn client_target(&self) -> &[u8] {
        match self.asked() {
            Some((_, target)) => self.head.spelled(target),
            None => self.head.path_and_query(),
        }
    }

    /// Path and query as received; after a local redirect, as the script wrote them.
    pub(crate) fn uri(&self) -> &[u8] {
        self.head.received()
    }

    /// The query of that, without the question mark.
    pub(crate) fn query(&self) -> Option<&[u8]> {
        self.head.received_query()
    }

    /// Path and query as the client sent them.
    pub(crate) fn asked_uri(&self) -> &[u8] {
        match self.asked() {
            Some((_, target)) => self.head.received_of(target),
            None => self.head.received(),
        }
    }

    /// Servers that speak HTTP get the request. `target`: if it is not the client's.
    pub(crate) fn goes_to_servers(&mut self, target: Option<Vec<u8>>) {
        self.script = None;
        if target.is_some() || self.rare.is_some() {
            self.rare_mut().target = target;
        }
    }

    /// The site's NAME.
    pub(crate) fn site_name(&self) -> Option<&str> {
        self.site
            .and_then(|site| self.gateway.config.sites.get(site))
            .map(|site| site.name.as_str())
    }

    /// The gateway answers with a page of `pool`; `peer` is the connected client or web server.
    pub(crate) fn answer_for_pool(&mut self, pool: &'static PoolHandle, peer: &Endpoints) {
        self.pool = Some(pool);
        if let Some(Some(_)) = self.gateway.pool_logs.get(usize::from(pool.id)) {
            self.noted = Some(Box::new(Noted {
                peer: peer.remote_addr().to_owned(),
                own: true,
                ..Noted::default()
            }));
        }
    }

    /// The connection is closed: the client has left, or weir ends and has cut it.
    fn has_left(&mut self) {
        if !self.gateway.cut.has_started() {
            self.reason.get_or_insert("client_left");
        } else if self.reason.is_none() {
            self.reason = Some("stopped");
            self.status.get_or_insert(StatusCode::SERVICE_UNAVAILABLE);
        }
    }

    /// A header of the request; for a request from a web server, its `HTTP_` parameter.
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        let Some(params) = &self.params else {
            return self.head.field(name);
        };
        let same = |param: &[u8]| {
            let upper = name.bytes().map(|byte| match byte {
                b'-' => b'_',
                byte => byte.to_ascii_uppercase(),
            });
            param
                .strip_prefix(b"HTTP_")
                .is_some_and(|rest| rest.iter().copied().eq(upper))
        };
        let found = params.iter().filter(|(param, _)| same(param)).last();
        found.map(|(_, value)| value)
    }

    /// The same, for a well-known name.
    pub(crate) fn known_header(&self, name: Name) -> Option<&[u8]> {
        match self.params {
            Some(_) => self.header(name.as_str()),
            None => self.head.fields.get(name),
        }
    }

    fn put_of_script(&self, out: &mut Vec<u8>, part: impl FnOnce(&Script) -> &[u8]) {
        if let Some(script) = &self.script {
            out.extend_from_slice(part(script));
        }
    }

    fn log(&mut self) {
        if std::mem::replace(&mut self.logged, true) {
            return;
        }
        let now = clock::precise();
        let left = self.reason == Some("client_left");
        trace::step!(
            self.id,
            self.head_whole,
            if left { "left" } else { "sent" },
            "{} bytes{}",
            self.bytes_out,
            match self.policy.on_client_left {
                _ if !left || self.status.is_some() || self.worker.is_none() => "",
                OnClientLeft::Finish => "; its script continues",
                OnClientLeft::Cancel | OnClientLeft::FinishIfAnswering =>
                    "; its script is cancelled",
            }
        );
        if left && self.status.is_none() {
            self.tell_patience(now);
        }
        self.log_for_pool(now);
        self.count(now, left);
        let log = &self.gateway.access_log;
        if self.silent || log.is_off() {
            return;
        }
        let remote_user = self.remote_user();
        let compressed = self.compressed();
        log.write(&Entry {
            time: SystemTime::now(),
            request_id: self.id,
            remote_addr: self.endpoints.remote_addr(),
            peer_addr: self.endpoints.peer_addr(),
            remote_user: remote_user.as_deref(),
            method: self.method().as_str(),
            uri: self.asked_uri(),
            protocol: protocol(self.head.version),
            host: &self.host,
            status: self.status.map_or(CLIENT_LEFT, |status| status.as_u16()),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            compression: compressed.map(|compressed| compressed.coding.name()),
            bytes_uncompressed: compressed.map(Compressed::original),
            cache: self.cache,
            tls: tls_settings::logged(&self.endpoints),
            referer: self.known_header(Name::Referer),
            user_agent: self.known_header(Name::UserAgent),
            site: self.site_name(),
            pool: self.pool.as_ref().map(|pool| pool.settings.name.as_str()),
            worker: self.worker.as_ref().map(|worker| match worker {
                OwnedWorker::Pid(pid) => Worker::Pid(*pid),
                OwnedWorker::Server(name) => Worker::Server(name),
            }),
            time_head: self.head_whole - self.started,
            time_body: self.body_whole.map(|at| at.saturating_sub(self.head_whole)),
            time_queue: self.waited(now),
            time_first_byte: self.first_byte.map(|at| at.saturating_sub(self.dispatched)),
            time_total: now - self.started,
            queue: self.wait.map(|wait| wait.queue as u64),
            retries: self.retries,
            priority: self.pool.as_ref().map(|_| self.policy.priority),
            time_limit: (self.policy.deadline != NEVER)
                .then(|| self.policy.deadline.saturating_sub(self.started)),
            reason: self.reason,
            request: &*self,
        });
    }

    /// The client left before there was an answer. If its script was running, this tells the pool how long clients
    /// wait. The pool knows by itself about clients that leave its queue.
    fn tell_patience(&self, now: u64) {
        if let (Some(pool), Some(wait)) = (&self.pool, &self.wait)
            && wait.waited.is_some()
        {
            pool.client_left(Micros(now.saturating_sub(wait.admitted)));
        }
    }

    /// Counts the request for the admin interface. `now`: [`clock::now`]; `left`: the client did not get the
    /// complete answer.
    fn count(&self, now: u64, left: bool) {
        let waited = self.waited(now);
        let pool = self.pool.as_ref().map(|pool| pool.id);
        // Refusals of weir itself were counted with their cause before.
        if let Some(status) = self.status
            && (self.reason == Some("truncated")
                || (self.reason.is_none() && status.is_server_error()))
        {
            self.failed(status.as_u16(), self.reason, "");
        }
        if let Some(compressed) = self.compressed() {
            let is_whole = !matches!(self.reason, Some("client_left" | "stopped" | "truncated"));
            let counts = &self.gateway.compression_counts;
            counts.add(compressed, self.bytes_out, is_whole);
        }
        self.gateway.tally.ended(&FinishedRequest {
            site: self.site,
            pool: pool.zip(waited),
            status: self.status.map_or(CLIENT_LEFT, |status| status.as_u16()),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            total: now.saturating_sub(self.started),
            left_running: left && self.wait.is_some_and(|wait| wait.waited.is_some()),
            cache: self.cache,
        });
    }

    /// Counts an answer with a status of 500 or above for the admin interface. It comes from a script, or from weir
    /// itself for a `reason`; `message` is what the error log says then.
    pub(super) fn failed(&self, status: u16, reason: Option<&'static str>, message: &str) {
        let cause = Cause {
            pool: self.pool.as_ref().map(|pool| pool.id),
            status,
            reason,
        };
        let failed = Failed {
            id: self.id,
            method: self.method().as_str(),
            uri: self.asked_uri(),
            message,
        };
        self.gateway.failures.note(cause, &failed);
    }

    /// The query for the pool's own log.
    pub(super) fn log_query(&self) -> &[u8] {
        match &self.params {
            Some(params) => params.get(b"QUERY_STRING").unwrap_or_default(),
            None => self.query().unwrap_or_default(),
        }
    }

    /// The length of the body for the pool's own log, bytes.
    pub(super) fn declared_length(&self) -> u64 {
        match &self.params {
            Some(params) => declared(params.get(b"CONTENT_LENGTH").unwrap_or_default()),
            None => self.bytes_in,
        }
    }

    /// Writes the line in the pool's own log, if the pool has one and the request belongs there. `now`:
    /// [`clock::now`].
    fn log_for_pool(&self, now: u64) {
        let (Some(noted), Some(pool)) = (&self.noted, &self.pool) else {
            return;
        };
        let Some(Some(log)) = self.gateway.pool_logs.get(usize::from(pool.id)) else {
            return;
        };
        let ended = noted.ended.get().map_or(now, |ended| ended.at);
        let begun = if noted.own {
            self.started
        } else {
            self.dispatched
        };
        let script = self.script.as_ref();
        let written = SystemTime::now();
        let header = |name: &str| noted.headers.as_ref()?.get(name);
        log.write(&PoolLogEntry {
            cost: noted.ended.get().map(|ended| ended.cost),
            params: noted.params.as_ref().or(self.params.as_deref()),
            header: &header,
            peer: &noted.peer,
            note: noted.note.as_ref(),
            begun: written - Duration::from_micros(now.saturating_sub(self.started)),
            written,
            duration: ended.saturating_sub(begun),
            pool: &pool.settings.name,
            pid: match &self.worker {
                _ if noted.own => Some(std::process::id()),
                Some(OwnedWorker::Pid(pid)) => Some(*pid),
                _ => None,
            },
            method: self.method().as_str().as_bytes(),
            path: script.map_or(&self.path, |script| &script.script_name),
            query: self.log_query(),
            script: match &noted.note {
                Some(note) => note.get(b"e:SCRIPT_FILENAME").unwrap_or_default(),
                None => (script.filter(|_| !noted.own)).map_or(b"", |script| &script.filename),
            },
            content_length: self.declared_length(),
            status: self.status.map_or(CLIENT_LEFT, |status| status.as_u16()),
            authorization: self.header("authorization").unwrap_or_default(),
        });
    }
}

/// CONTENT_LENGTH as PHP reads it: the digits up to the first other character.
fn declared(length: &[u8]) -> u64 {
    let digits = length.trim_ascii_start();
    let digits = digits.strip_prefix(b"+").unwrap_or(digits);
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u64, digit| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    })
}

impl Receipt for Box<Record> {
    fn count(&mut self, bytes: u64) {
        self.bytes_out += bytes;
    }

    fn stderr(&mut self) -> Option<Vec<u8>> {
        self.stderr.as_ref().map(StderrCopy::take)
    }

    fn truncated(&mut self) {
        self.reason.get_or_insert("truncated");
    }

    fn sent(mut self) {
        self.log();
        self.give_back();
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.logged {
            self.has_left();
            self.log();
        }
    }
}

impl Variables for Record {
    fn put(&self, variable: &Variable, out: &mut Vec<u8>) {
        match variable {
            Variable::Method => out.extend_from_slice(self.head.method.as_str().as_bytes()),
            Variable::Scheme => out.extend_from_slice(self.endpoints.scheme().as_bytes()),
            Variable::Tls(part) => {
                if let Some(value) = tls_settings::variable(*part, &self.endpoints) {
                    out.extend_from_slice(value.as_bytes());
                }
            }
            Variable::Host => out.extend_from_slice(&self.host),
            Variable::Uri => out.extend_from_slice(self.uri()),
            Variable::Path => out.extend_from_slice(&self.path),
            Variable::Query => out.extend_from_slice(self.query().unwrap_or_default()),
            Variable::Args => {
                if let Some(query) = self.query() {
                    out.push(b'?');
                    out.extend_from_slice(query);
                }
            }
            Variable::Protocol => out.extend_from_slice(protocol(self.head.version).as_bytes()),
            Variable::RemoteAddr => out.extend_from_slice(self.endpoints.remote_addr().as_bytes()),
            Variable::PeerAddr => out.extend_from_slice(self.endpoints.peer_addr().as_bytes()),
            Variable::RemotePort => log_text::put_number(self.endpoints.remote_port.into(), out),
            Variable::ServerAddr => out.extend_from_slice(self.endpoints.server_addr().as_bytes()),
            Variable::ServerPort => log_text::put_number(self.endpoints.server_port.into(), out),
            Variable::Site => out.extend_from_slice(self.site_name().unwrap_or("").as_bytes()),
            Variable::Pool => {
                if let Some(pool) = &self.pool {
                    out.extend_from_slice(pool.settings.name.as_bytes());
                }
            }
            Variable::DocumentRoot => self.put_of_script(out, |script| &script.document_root),
            Variable::ScriptName => self.put_of_script(out, |script| &script.script_name),
            Variable::PathInfo => self.put_of_script(out, |script| &script.path_info),
            Variable::Header(name) => {
                if let Some(value) = self.header(name) {
                    out.extend_from_slice(value);
                }
            }
            Variable::RequestId => log_text::put_number(self.id, out),
            // The log takes the other values from its entry.
            _ => {}
        }
    }
}

/// `HTTP/1.1`
pub(crate) fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// Status in the log if the client left before there was an answer (nginx's number).
const CLIENT_LEFT: u16 = 499;

/// How much room for host and path a record that is not in use keeps, bytes.
const SPARE_TEXT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request that waits for a worker holds one of each. The limits are sizes in which the allocator gives memory.
    #[test]
    fn what_is_kept_of_each_waiting_request_is_small() {
        for (what, size, most) in [
            ("record", size_of::<Record>(), 448),
            ("head", size_of::<Head>(), 224),
            ("addresses", size_of::<Endpoints>(), 48),
            (
                "connection",
                size_of::<crate::connections::serve::Http1>(),
                256,
            ),
            // And its two counts.
            ("state of the connection", size_of::<Conn>() + 16, 128),
        ] {
            assert!(size <= most, "{what}: {size} bytes, more than {most}");
        }
    }
}
