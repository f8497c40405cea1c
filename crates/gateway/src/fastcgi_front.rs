//! Requests of a web server in front: nginx, HAProxy or Apache talks to a pool of weir as it would to PHP-FPM.
//!
//! ```text
//! parameters ─► record ─► body, spooled ─► the pool's own page, or script::begin: queue, worker ─► head, body
//! ```
//! The carrier is [`weir_http::fastcgi`]. Such a request has the same steps as one over HTTP, but without routing:
//! the parameters contain the script and reach the worker unchanged, and the worker's answer is passed on unchanged.
//! This module handles what PHP-FPM itself would: its pages, and which scripts may run. weir trusts a web server's
//! input as little as a browser's.

mod request;

use std::{
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http::{Method, StatusCode};
use weir_config::{ErrorFormat, FastCgi, Protocol, Runtime};
use weir_fcgi::client::Params;
use weir_http::{
    Answer, Begun, Body, Fields, Part, Reply, Request, RequestBody, Stream, Truncated,
    fastcgi::Capacity,
};
use weir_observe::{pool_log::note_of_page, seldom::Seldom};

use super::{
    Gateway,
    conn::{Client, Conn},
    dispatch::{AskedBy, PoolHandle},
    exchange::{hand_over, keeps_connection, note_refusal},
    fastcgi::{Progress, StderrCopy},
    read_ahead::{ReadAhead, Room},
    record::Record,
    refusal::Refusal,
    script::{self, Job, Started},
    spool::BodyLimits,
    status,
    stream::WorkerStream,
    trace,
};

/// Begins to answer a request with these parameters.
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
    let mut record = request::record(gateway, conn, (head, started), params.unwrap_or_default());
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
    let client = Client {
        conn: conn.clone(),
        request: state,
    };
    Begun::Steps(Box::pin(answer(record, client, body)))
}

/// How much `conn` can accept at once.
pub(crate) fn capacity(gateway: &Gateway, conn: &Conn) -> Capacity {
    let pool = settings(gateway, conn).and_then(|front| gateway.pools.get(front.pool.0));
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
    let pool = settings(gateway, conn).and_then(|front| gateway.pools.get(front.pool.0));
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

/// The settings of the listener, if its protocol is FastCGI.
fn settings<'g>(gateway: &'g Gateway, conn: &Conn) -> Option<&'g FastCgi> {
    match &gateway.config.listeners[usize::from(conn.listener)].protocol {
        Protocol::FastCgi(front) => Some(front),
        Protocol::Http | Protocol::AgentCheck(_) => None,
    }
}

async fn answer(mut record: Box<Record>, client: Client, body: RequestBody) -> Answer<Box<Record>> {
    let gateway = record.gateway;
    let front = settings(gateway, &client.conn);
    let mut keep = keeps_connection(gateway, &client.conn);
    let reply = match steps(gateway, &client, front, &mut record, body).await {
        Ok(reply) => reply,
        Err(refusal) => {
            note_refusal(&mut record, &refusal);
            keep &= !refusal.close;
            let answers_failures = front.is_some_and(|front| front.answers_failures);
            match refusal.is_worker_failure() && !answers_failures {
                true => Reply {
                    status: refusal.status,
                    headers: Fields::default(),
                    body: Body::Stream(Box::new(NoAnswer)),
                },
                false => {
                    let mut reply =
                        refusal.script_reply(front.is_some_and(|front| front.proxy_status));
                    if record.head.method == Method::HEAD {
                        reply.body = Body::Empty;
                    }
                    reply
                }
            }
        }
    };
    record.status = Some(reply.status);
    hand_over(record, reply, None, keep)
}

/// The steps up to an answer.
async fn steps(
    gateway: &Gateway,
    client: &Client,
    front: Option<&FastCgi>,
    record: &mut Record,
    body: RequestBody,
) -> Result<Reply, Refusal> {
    let not_found = |why| Refusal::client(StatusCode::NOT_FOUND, "not_found", why);
    let pool = front.and_then(|front| gateway.pools.get(front.pool.0));
    let (Some(front), Some(pool)) = (front, pool) else {
        return Err(not_found(""));
    };
    record.pool = Some(pool);
    let body = script::take_body(record, client, BODY, body).await?;
    if let Some(page) = own_page(record, &client.conn, pool, front.status_only) {
        return Ok(page);
    }
    if front.status_only {
        let refusal =
            not_found("only the pool's status and ping pages are answered there (status_only)");
        if gateway.config.log.error_format != ErrorFormat::Fpm {
            return Err(refusal);
        }
        note_refusal(record, &refusal);
        return Ok(no_script(record));
    }
    check(record, pool)?;
    let length = record.bytes_in;
    let put_params = |record: &Record, id, out: &mut Vec<u8>| {
        let mut params = Params::new(out, id);
        request::put(record, length, &mut params);
        params.finish();
    };
    let job = Job {
        client,
        pool,
        body: body.as_ref(),
        put_params,
    };
    let started = script::begin(record, &job, None).await?;
    reply(record, pool, started).await
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
        false => AskedBy::Request(script::facts(record, record.bytes_in).request()),
    };
    let page = status::page(pool, get(b"SCRIPT_NAME"), get(b"QUERY_STRING"), asked_by)?;
    let head_only = record.head.method == Method::HEAD;
    if only_pages {
        // As in PHP-FPM, where another pool answers there.
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

/// A worker's answer, unchanged.
async fn reply(
    record: &mut Record,
    pool: &PoolHandle,
    mut started: Started,
) -> Result<Reply, Refusal> {
    let streams = started.head.streams();
    let read = match streams {
        true => Ok(Progress::More),
        false => poll_fn(|cx| Poll::Ready(started.read_now(cx, RESPONSE_MEMORY))).await,
    };
    let Started {
        run,
        head,
        mut output,
        body_at,
        stderr,
    } = started;
    let headers = Fields::of_script(&output[..body_at]);
    let body = match read {
        Ok(Progress::End) => {
            let mut body = Bytes::from(output);
            body.advance(body_at);
            Body::Bytes(body)
        }
        Ok(Progress::More) => {
            output.drain(..body_at);
            match streams {
                true => Body::Stream(Box::new(WorkerStream::new(run, output))),
                false => {
                    let room = Room {
                        memory: RESPONSE_MEMORY,
                        file: MAX_RESPONSE_FILE,
                        space: &record.gateway.spool_space,
                    };
                    Body::Stream(Box::new(ReadAhead::start(run, output, room)))
                }
            }
        }
        // Nothing was sent yet, so the client can still get an error.
        Err(failure) => return Err(Box::pin(script::worker_failed(pool, failure)).await),
    };
    record.stderr = stderr;
    Ok(Reply {
        status: head.status,
        headers,
        body,
    })
}

/// Neither output nor END_REQUEST is sent, as if a child of PHP-FPM had died: the web server sends its own error.
#[derive(Debug)]
struct NoAnswer;

impl Stream for NoAnswer {
    fn poll_part(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        Poll::Ready(Some(Err(Truncated)))
    }
}

/// Bodies are kept in memory as far as by default in a site (`body_memory`). The web server limits their size.
const BODY: BodyLimits = BodyLimits {
    max: u64::MAX,
    memory: 64 * 1024,
};

/// How much of a response is kept in memory for a slow web server, bytes: the default of a site's `response_memory`.
const RESPONSE_MEMORY: usize = 256 * 1024;

/// How much of it is kept in a temporary file, bytes: the default of a site's `max_response_file`.
const MAX_RESPONSE_FILE: u64 = 1 << 30;
