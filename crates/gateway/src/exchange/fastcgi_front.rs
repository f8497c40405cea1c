//! Requests of a web server in front: nginx, HAProxy or Apache talks to a pool of weir as it would to PHP-FPM.
//!
//! The carrier is [`weir_http::fastcgi`]. Such a request has the steps of one over HTTP ([`crate::exchange`]), but without routing:
//! the parameters contain the script and reach the worker unchanged, and the worker's answer is passed on unchanged.
//! This module handles what PHP-FPM itself would: its pages, and which scripts may run. weir trusts a web server's
//! input as little as a browser's.

mod request;

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, StatusCode};
use weir_config::{ErrorFormat, FastCgi, Protocol, Runtime};
use weir_fcgi::{client::Params, nv::Pairs};
use weir_http::{Body, Fields, Head, Part, Reply, Stream, Truncated, fastcgi::Capacity};
use weir_observe::{pool_log::note_of_page, seldom::Seldom};

use super::{keeps_connection, note_refusal};
use crate::{
    Gateway,
    admin::fpm_status,
    answers::refusal::Refusal,
    connections::client::Conn,
    dispatch::{AskedBy, PoolHandle},
    record::Record,
    scripts::{
        self, Response,
        run::{Progress, StderrCopy},
        spool::BodyLimits,
    },
    trace,
};

/// The record of a request with these parameters.
pub(crate) fn record(
    gateway: &'static Gateway,
    conn: &Conn,
    head: (Box<Head>, u64),
    params: Box<Pairs>,
) -> Box<Record> {
    let mut record = request::record(gateway, conn, head, params);
    trace::step!(
        record.id,
        record.head_whole,
        "head",
        "{} {} over FastCGI",
        record.head.method,
        record.head
    );
    if let Some(policy) = gateway.listener_policies.get(usize::from(conn.listener)) {
        policy.apply(&mut record);
    }
    record.pool = pool(gateway, conn);
    record.ends_connection = !keeps_connection(gateway, conn);
    record
}

/// How much `conn` can accept at once.
pub(crate) fn capacity(gateway: &Gateway, conn: &Conn) -> Capacity {
    let pool = pool(gateway, conn);
    Capacity {
        connections: gateway.config.server.max_connections,
        requests: pool.map_or(0, |pool| {
            let queue = &pool.settings.queue;
            queue.maxconn.saturating_add(queue.max_queue)
        }),
    }
}

/// Whether the pool of `conn` may be called as a filter: PHP takes that for the request of a responder. Another program
/// could wait for a file that weir does not pass on.
pub(crate) fn plays_filters(gateway: &Gateway, conn: &Conn) -> bool {
    let pool = pool(gateway, conn);
    pool.is_some_and(|pool| pool.settings.php().is_some())
}

/// Logs why the carrier has closed a connection.
pub(crate) fn refused(gateway: &Gateway, conn: &Conn, why: &str) {
    static SAID: Seldom = Seldom::of_connections();
    let Some(more) = SAID.line() else {
        return;
    };
    log::warn!(
        "closed a connection from {} to listen.{}: {why}{more}",
        conn.endpoints.remote_addr(),
        gateway.config.listeners[usize::from(conn.listener)].name
    );
}

/// The pool of the listener.
fn pool(gateway: &Gateway, conn: &Conn) -> Option<&'static PoolHandle> {
    let front = settings(gateway, conn)?;
    gateway.pools.get(front.pool.0).copied()
}

/// The settings of the listener, if its protocol is FastCGI.
fn settings<'g>(gateway: &'g Gateway, conn: &Conn) -> Option<&'g FastCgi> {
    match &gateway.config.listeners[usize::from(conn.listener)].protocol {
        Protocol::FastCgi(front) => Some(front),
        Protocol::Http | Protocol::AgentCheck(_) => None,
    }
}

/// The answer to such a request that needs no worker: a page of the pool, or PHP-FPM's for a listener that has only those.
///
/// # Errors
///
/// The request must not reach a worker.
pub(crate) fn page(
    record: &mut Record,
    conn: &Conn,
    pool: &'static PoolHandle,
) -> Result<Option<Reply>, Refusal> {
    let only_pages = settings(record.gateway, conn).is_some_and(|front| front.status_only);
    if let Some(page) = own_page(record, conn, pool, only_pages) {
        return Ok(Some(page));
    }
    if !only_pages {
        return check(record, pool).map(|()| None);
    }
    let refusal = Refusal::client(
        StatusCode::NOT_FOUND,
        "not_found",
        "only the pool's status and ping pages are answered there (status_only)",
    );
    if record.gateway.config.log.error_format != ErrorFormat::Fpm {
        return Err(refusal);
    }
    note_refusal(record, &refusal);
    Ok(Some(no_script(record)))
}

/// The answer to a refused request.
pub(crate) fn refuse(record: &mut Record, conn: &Conn, refusal: &Refusal) -> Reply {
    let front = settings(record.gateway, conn);
    record.ends_connection |= refusal.close;
    if refusal.is_worker_failure() && !front.is_some_and(|front| front.answers_failures) {
        return Reply {
            status: refusal.status,
            headers: Fields::default(),
            body: Body::Stream(Box::new(NoAnswer)),
        };
    }
    let mut reply = refusal.script_reply(front.is_some_and(|front| front.proxy_status));
    if record.head.method == Method::HEAD {
        reply.body = Body::Empty;
    }
    reply
}

/// Appends the PARAMS records of the request `id`.
pub(crate) fn put_params(record: &Record, id: u16, out: &mut Vec<u8>) {
    let mut params = Params::new(out, id);
    request::put(record, record.bytes_in, &mut params);
    params.finish();
}

/// The pool's status or ping page, if the request is for one.
fn own_page(
    record: &mut Record,
    conn: &Conn,
    pool: &'static PoolHandle,
    only_pages: bool,
) -> Option<Reply> {
    let params = record.params.as_ref()?;
    let get = |name: &[u8]| params.get(name).unwrap_or_default();
    let asked_by = || match only_pages {
        true => AskedBy::Elsewhere,
        false => AskedBy::Request(scripts::facts(record, record.bytes_in).request()),
    };
    let page = fpm_status::page(pool, get(b"SCRIPT_NAME"), get(b"QUERY_STRING"), asked_by)?;
    let head_only = record.head.method == Method::HEAD;
    if only_pages {
        // In PHP-FPM another pool answers at that address.
        record.pool = Some(pool);
        return Some(page.script_reply(head_only));
    }
    record.answer_for_pool(pool, &conn.endpoints);
    if let (Some(noted), Some(Some(log))) = (
        &mut record.noted,
        record.gateway.pool_logs.get(usize::from(pool.id)),
    ) && log.is_from_worker()
    {
        let head = page.head_in_log(head_only);
        noted.note = record
            .params
            .as_ref()
            .and_then(|params| note_of_page(pool.settings, params, &head));
    }
    Some(page.script_reply(head_only))
}

/// PHP-FPM's answer for a script that does not exist.
fn no_script(record: &mut Record) -> Reply {
    record.stderr = Some(StderrCopy::of(b"Primary script unknown"));
    let head = b"Status: 404 Not Found\r\nContent-type: text/html; charset=UTF-8\r\n\r\n";
    Reply {
        status: StatusCode::NOT_FOUND,
        headers: Fields::of_script(head),
        body: match record.head.method == Method::HEAD {
            true => Body::Empty,
            false => Body::Bytes(Bytes::from_static(b"File not found.\n")),
        },
    }
}

/// Refuses requests that must not reach a worker.
fn check(record: &Record, pool: &PoolHandle) -> Result<(), Refusal> {
    let Some(params) = &record.params else {
        return Ok(());
    };
    if !request::fits_records(params) {
        // PHP reads each record separately, and closes the connection if a pair spans two records.
        return Err(Refusal::client(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "head_too_large",
            "a parameter is longer than a FastCGI record",
        ));
    }
    // weir's own PHP checks this itself, when it knows which part of the path is the script.
    let allowed = &pool.settings.limit_extensions;
    let script = request::script_filename(params);
    let looks = !matches!(pool.settings.runtime, Runtime::Php(_)) && !allowed.is_empty();
    if looks && !allowed.iter().any(|end| script.ends_with(end.as_bytes())) {
        return Err(Refusal::client(
            StatusCode::FORBIDDEN,
            "forbidden",
            format!(
                "{}: not allowed by the pool's limit_extensions",
                String::from_utf8_lossy(script)
            ),
        ));
    }
    Ok(())
}

/// A worker's answer, unchanged. `read`: what [`Response::read_ahead`] has found.
pub(crate) fn reply(record: &mut Record, mut response: Response, read: Option<Progress>) -> Reply {
    record.stderr = response.stderr.take();
    Reply {
        status: response.head.status,
        headers: Fields::of_script(&response.output[..response.body_at]),
        body: response.body(record, read, (RESPONSE_MEMORY, MAX_RESPONSE_FILE)),
    }
}

/// Neither output nor END_REQUEST is sent, as if a child of PHP-FPM had died: the web server sends its own error.
#[derive(Debug)]
struct NoAnswer;

impl Stream for NoAnswer {
    fn poll_part(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        Poll::Ready(Some(Err(Truncated)))
    }
}

/// Bodies are kept in memory up to the default of sites (`body_memory`). The web server limits their size.
pub(crate) const BODY: BodyLimits = BodyLimits {
    max: u64::MAX,
    memory: 64 * 1024,
};

/// How much of a response is kept in memory for a slow web server, bytes: the default of a site's `response_memory`.
pub(crate) const RESPONSE_MEMORY: usize = 256 * 1024;

/// How much of it is kept in a temporary file, bytes: the default of a site's `max_response_file`.
const MAX_RESPONSE_FILE: u64 = 1 << 30;
