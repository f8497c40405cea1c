//! FastCGI from a web server in front: nginx, HAProxy or Apache talks to a pool of weir as it would to PHP-FPM.
//!
//! ```text
//! records ─► request: params → record ─► body, spooled ─► script::begin: queue, worker ─► head
//!    ▲                                                                                   │
//!    └────── kept, or closed ◄── END_REQUEST ◄── STDERR ◄── STDOUT: read ahead ◄─────────┘
//! ```
//!
//! A request is handled like one over HTTP, but without routing: the parameters reach the worker unchanged, and the
//! answer goes back as the worker wrote it. An idle connection is a socket and a small struct; it holds no worker.
//! Input from a web server is trusted no more than input from a browser.

mod request;
mod wire;

use std::{future::poll_fn, io, os::fd::AsFd, sync::Arc, task::Poll};

use http::{Method, StatusCode};
use weir_config::{FastCgi, Runtime};
use weir_fcgi::{client::Params, server};
use weir_http::{Part, Receipt, Stream, Truncated};
use weir_net::{OpenFile, Socket};
use weir_observe::clock;

use self::wire::{Ending, Interrupt, Wire};
use super::{
    Gateway,
    conn::Conn,
    dispatch::{AskedBy, PoolHandle},
    exchange::note_refusal,
    fastcgi::{Progress, StderrCopy},
    pool_log,
    read_ahead::{ReadAhead, Room},
    record::Record,
    refusal::Refusal,
    script::{self, Started},
    spool::{BodyError, Spooled, off_the_reactor},
    status,
    stream::WorkerStream,
    trace,
};

/// Serves `socket` until the connection ends.
pub(crate) async fn serve(gateway: Arc<Gateway>, socket: Socket, conn: Arc<Conn>, front: &FastCgi) {
    let mut serving = Box::pin(async {
        let mut wire = Wire::new(socket, &gateway, conn.clone(), front.pool);
        let ending = loop {
            if let Err(ending) = wire.head().await {
                break ending;
            }
            // Boxed, so that an idle connection does not reserve the memory that a request needs.
            if let Err(ending) = Box::pin(exchange(&gateway, &mut wire, front)).await {
                break ending;
            }
        };
        // Boxed, because it has its own buffer.
        Box::pin(wire.close(ending)).await;
    });
    poll_fn(|cx| clock::frozen(|| serving.as_mut().poll(cx))).await;
}

/// Why there is no answer from a worker.
enum Stop {
    Refused(Refusal),
    Interrupted(Interrupt),
}

/// An answer: the part that has arrived, and the source of the rest.
struct Answer {
    /// The head and the beginning of the body.
    output: Vec<u8>,
    body_at: usize,
    status: StatusCode,
    rest: Rest,
    stderr: Option<StderrCopy>,
    /// The connection ends after this answer: further input from the web server is not read.
    close: bool,
}

/// The rest of a worker's response.
enum Rest {
    None,
    ReadAhead(ReadAhead),
    Stream(Box<WorkerStream>),
}

/// Answers the request whose parameters have arrived.
async fn exchange(gateway: &Arc<Gateway>, wire: &mut Wire, front: &FastCgi) -> Result<(), Ending> {
    let conn = wire.conn().clone();
    let mut record = request::record(gateway, &conn, wire.take_params());
    record.pool = gateway.pools.get(front.pool.0).cloned();
    trace::step!(
        record.id,
        record.head_whole,
        "head",
        "{} {} over FastCGI",
        record.head.method,
        record.head
    );
    let answer = match steps(wire, &conn, front.status_only, &mut record).await {
        Ok(answer) => answer,
        Err(Stop::Refused(refusal)) if refusal.is_worker_failure() && !front.answers_failures => {
            note_refusal(&mut record, &refusal);
            record.status = Some(refusal.status);
            record.sent();
            // Neither output nor END_REQUEST is sent, as when a child of PHP-FPM has died.
            return Err(Ending::Clean);
        }
        Err(Stop::Refused(refusal)) => {
            note_refusal(&mut record, &refusal);
            Answer::refusal(&refusal, &record.head.method, front.proxy_status)
        }
        Err(Stop::Interrupted(interrupt)) => {
            record.cut_short();
            return match interrupt {
                Interrupt::Aborted => wire.end_request(false).await,
                Interrupt::Lost(ending) => Err(ending),
            };
        }
    };
    record.status = Some(answer.status);
    let close = answer.close;
    trace::step!(
        record.id,
        record.head_whole,
        "response",
        "{}",
        answer.status.as_u16()
    );
    match send(wire, answer, &mut record).await {
        Ok(()) => {
            let ended = wire.end_request(close).await;
            match &ended {
                Ok(()) | Err(Ending::Clean | Ending::Linger) => record.sent(),
                Err(_) => record.cut_short(),
            }
            ended
        }
        Err(Cut::Truncated) => {
            record.truncated();
            // The part that arrived is passed on. The missing END_REQUEST shows that it is incomplete.
            let flushed = wire.flush().await;
            record.sent();
            match flushed {
                Err(Interrupt::Lost(ending)) => Err(ending),
                Ok(()) | Err(Interrupt::Aborted) => Err(Ending::Clean),
            }
        }
        Err(Cut::Interrupted(interrupt)) => {
            record.cut_short();
            match interrupt {
                Interrupt::Aborted => wire.end_request(false).await,
                Interrupt::Lost(ending) => Err(ending),
            }
        }
    }
}

/// The steps up to an answer.
async fn steps(
    wire: &mut Wire,
    conn: &Arc<Conn>,
    only_pages: bool,
    record: &mut Record,
) -> Result<Answer, Stop> {
    let Some(pool) = record.pool.clone() else {
        return Err(Stop::Refused(Refusal::client(
            StatusCode::NOT_FOUND,
            "not_found",
            "",
        )));
    };
    let listener = usize::from(conn.listener);
    let gateway = record.gateway.clone();
    if let Some(policy) = gateway.listener_policies.get(listener) {
        policy.apply(record);
    }
    let body = take_body(wire, record).await?;
    if let Some(answer) = own_page(record, conn, &pool, only_pages) {
        return Ok(answer);
    }
    if only_pages {
        return Err(Stop::Refused(Refusal::client(
            StatusCode::NOT_FOUND,
            "not_found",
            "only the pool's status and ping pages are answered there (status_only)",
        )));
    }
    check(record, &pool).map_err(Stop::Refused)?;
    let length = body.len();
    let put_params = |record: &Record, id, out: &mut Vec<u8>| {
        let mut params = Params::new(out, id);
        request::put(record, length, &mut params);
        params.finish();
    };
    let begun = wire
        .during(script::begin(record, conn, &pool, Some(&body), put_params))
        .await
        .map_err(Stop::Interrupted)?;
    let started = begun.map_err(Stop::Refused)?;
    wire.during(answer(record, &pool, started))
        .await
        .map_err(Stop::Interrupted)?
        .map_err(Stop::Refused)
}

/// The pool's status or ping page, if the request is for one.
fn own_page(
    record: &mut Record,
    conn: &Conn,
    pool: &Arc<PoolHandle>,
    only_pages: bool,
) -> Option<Answer> {
    let params = record.params.as_ref()?;
    let get = |name: &[u8]| params.get(name).unwrap_or_default();
    let asked_by = || match only_pages {
        true => AskedBy::Elsewhere,
        false => AskedBy::Request(script::facts(record, record.bytes_in).request()),
    };
    let page = status::page(pool, get(b"SCRIPT_NAME"), get(b"QUERY_STRING"), asked_by)?;
    let head_only = record.head.method == Method::HEAD;
    let (output, body_at) = page.cgi(head_only);
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
            .and_then(|params| pool_log::of_page(pool, params, &head));
    }
    Some(Answer {
        output,
        body_at,
        status: StatusCode::OK,
        rest: Rest::None,
        stderr: None,
        close: false,
    })
}

/// Reads the request's body to its end.
async fn take_body(wire: &mut Wire, record: &mut Record) -> Result<Spooled, Stop> {
    let refused = |error| Stop::Refused(script::refuse_body(error, u64::MAX));
    let spooled = match wire.body(record.policy.deadline).await {
        Ok(spooled) => spooled,
        Err(wire::NoBody::Interrupted(interrupt)) => return Err(Stop::Interrupted(interrupt)),
        Err(wire::NoBody::TimedOut) => return Err(refused(BodyError::TimedOut)),
        Err(wire::NoBody::Late) => return Err(refused(BodyError::Late)),
        Err(wire::NoBody::Spool(error)) => return Err(refused(BodyError::Spool(error))),
    };
    record.bytes_in = spooled.len();
    if spooled.len() > 0 {
        trace::step!(
            record.id,
            record.head_whole,
            "spool",
            "{} bytes",
            spooled.len()
        );
    }
    Ok(spooled)
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

/// A worker's response from its head on.
async fn answer(
    record: &Record,
    pool: &PoolHandle,
    mut started: Started,
) -> Result<Answer, Refusal> {
    let streams = started.head.streams();
    let read = match streams {
        true => Ok(Progress::More),
        false => poll_fn(|cx| Poll::Ready(started.read_ahead(cx, RESPONSE_MEMORY))).await,
    };
    let Started {
        run,
        head,
        output,
        body_at,
        stderr,
    } = started;
    let rest = match read {
        Ok(Progress::End) => Rest::None,
        Ok(Progress::More) if streams => Rest::Stream(Box::new(WorkerStream::new(run, Vec::new()))),
        Ok(Progress::More) => {
            let room = Room {
                memory: RESPONSE_MEMORY,
                file: MAX_RESPONSE_FILE,
                space: record.gateway.spool_space.clone(),
            };
            Rest::ReadAhead(ReadAhead::start(run, Vec::new(), room))
        }
        // Nothing was sent yet, so the client can still get an error.
        Err(failure) => return Err(Box::pin(script::worker_failed(pool, failure)).await),
    };
    Ok(Answer {
        output,
        body_at,
        status: head.status,
        rest,
        stderr,
        close: false,
    })
}

impl Answer {
    /// An answer of the gateway itself; for HEAD without its body.
    fn refusal(refusal: &Refusal, method: &Method, proxy_status: bool) -> Answer {
        let (mut output, body_at) = refusal.cgi(proxy_status);
        if *method == Method::HEAD {
            output.truncate(body_at);
        }
        Answer {
            output,
            body_at,
            status: refusal.status,
            rest: Rest::None,
            stderr: None,
            close: refusal.close,
        }
    }
}

/// Why an answer was not completed.
enum Cut {
    /// The worker failed during its response.
    Truncated,
    Interrupted(Interrupt),
}

impl From<Interrupt> for Cut {
    fn from(interrupt: Interrupt) -> Self {
        Cut::Interrupted(interrupt)
    }
}

/// Sends an answer without its END_REQUEST. The worker's standard error follows after the head, because nginx counts
/// earlier bytes against its buffer for the head.
async fn send(wire: &mut Wire, answer: Answer, record: &mut Record) -> Result<(), Cut> {
    let id = wire.id();
    let Answer {
        output,
        body_at,
        mut rest,
        stderr,
        ..
    } = answer;
    server::stdout(wire.out(), id, &output);
    record.bytes_out += (output.len() - body_at) as u64;
    drop(output);
    let put_stderr = |wire: &mut Wire| {
        if let Some(stderr) = &stderr {
            server::stderr(wire.out(), id, &stderr.take());
        }
    };
    put_stderr(wire);
    loop {
        let part = match &mut rest {
            Rest::None => None,
            Rest::ReadAhead(reader) => wire.during(poll_fn(|cx| reader.poll_part(cx))).await?,
            Rest::Stream(stream) => wire.during(poll_fn(|cx| stream.poll_part(cx))).await?,
        };
        put_stderr(wire);
        match part {
            None => break,
            Some(Err(Truncated)) => return Err(Cut::Truncated),
            Some(Ok(Part::Bytes(bytes))) => {
                server::stdout(wire.out(), id, &bytes);
                record.bytes_out += bytes.len() as u64;
                wire.flush().await?;
            }
            // FastCGI has none.
            Some(Ok(Part::Trailers(_))) => {}
            Some(Ok(Part::File { file, offset, len })) => {
                let (mut at, end) = (offset, offset + len);
                while at < end {
                    let piece = wire.during(read_piece(&file, at, end - at)).await?;
                    let piece = piece.map_err(|error| unreadable(record, &error))?;
                    at += piece.len() as u64;
                    server::stdout(wire.out(), id, &piece);
                    record.bytes_out += piece.len() as u64;
                    wire.flush().await?;
                }
            }
        }
    }
    Ok(())
}

/// Reads a part of a spooled response; at once if it is in the page cache.
async fn read_piece(file: &Arc<OpenFile>, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; len.min(PIECE) as usize];
    let count = match weir_sys::file::read_cached(file.as_fd(), &mut piece, offset)? {
        Some(count) => count,
        None => {
            let file = file.clone();
            let read;
            (piece, read) = off_the_reactor(move || {
                let count = weir_sys::file::read_at(file.as_fd(), &mut piece, offset)?;
                Ok((piece, count))
            })
            .await?;
            read
        }
    };
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    piece.truncate(count);
    Ok(piece)
}

fn unreadable(record: &Record, error: &io::Error) -> Cut {
    weir_observe::error_log::tell!(
        error,
        script::about(record),
        "a response was cut: it cannot be read back from spool_dir: {error}"
    );
    Cut::Truncated
}

/// How much of a response is kept in memory for a slow web server, bytes: the default of a site's `response_memory`.
const RESPONSE_MEMORY: usize = 256 * 1024;

/// How much of it is kept in a temporary file, bytes: the default of a site's `max_response_file`.
const MAX_RESPONSE_FILE: u64 = 1 << 30;

/// How much is read from that file at once, bytes: two full records.
const PIECE: u64 = 2 * weir_fcgi::MAX_CONTENT as u64;
