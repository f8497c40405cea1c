//! A worker has failed: whether another one gets the request, and the error that the client gets otherwise.

use http::StatusCode;
use weir_observe::error_log::tell;
use weir_pool::{Retry as Verdict, Sent, may_retry};
use weir_sys::process::Exit;

use super::about;
use crate::{
    answers::refusal::Refusal,
    dispatch::PoolHandle,
    exchange::BoxFuture,
    record::Record,
    scripts::{run::Failure, spool::BodyError},
    trace,
};

/// A request that is to be given to another worker.
pub(crate) struct Retry {
    why: String,
    /// The request is not the cause: a worker of weir's own PHP ended before it read it.
    is_blameless: bool,
}

/// Finds out whether another worker gets a request whose worker has failed before the head of its answer.
///
/// The future's error is the answer if none gets it.
pub(crate) fn examine(
    record: &Record,
    pool: &'static PoolHandle,
    failure: Failure,
) -> BoxFuture<Result<Retry, Refusal>> {
    // What weir has sent, and what a script can have seen of it.
    let (sent, seen) = match &failure {
        Failure::Closed { sent: false, .. } | Failure::Closed { unread: true, .. } => {
            (Sent::Nothing, Sent::Nothing)
        }
        Failure::Closed {
            unstarted: true, ..
        } => (Sent::Maybe, Sent::Nothing),
        _ => (Sent::Maybe, Sent::Maybe),
    };
    let is_closed = matches!(failure, Failure::Closed { .. });
    let retry = (is_closed && record.first_byte.is_none())
        .then(|| may_run_again(record, pool, seen, failure.to_string()))
        .flatten();
    Box::pin(async move {
        match retry {
            Some(retry) if !cost_a_worker(pool, &failure, sent).await => Ok(retry),
            _ => Err(worker_failed(pool, failure).await),
        }
    })
}

/// How a request whose worker failed is run again; `None`: it is not.
pub(super) fn may_run_again(
    record: &Record,
    pool: &PoolHandle,
    sent: Sent,
    why: String,
) -> Option<Retry> {
    let is_blameless = sent == Sent::Nothing && pool.settings.php().is_some();
    let earlier = record.earlier();
    let (attempts, most) = match is_blameless {
        true => (record.unread - earlier.unread, MAX_UNREAD),
        false => {
            let earlier = earlier.retries - earlier.unread;
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
        idempotent: record.head.method.is_idempotent(),
        sent,
        answered: false,
        attempts: attempts + 1,
        max_attempts: most + 1,
    });
    (verdict != Verdict::GiveUp).then_some(Retry { why, is_blameless })
}

/// Counts a retry, and logs it.
pub(crate) fn note_retry(record: &mut Record, retry: &Retry) {
    let why = &retry.why;
    record.retries += 1;
    record.unread += u32::from(retry.is_blameless);
    trace::step!(record.id, record.head_whole, "retry", "{why}");
    tell!(notice, about(record), "given to another worker: {why}");
}

/// Whether a request has ended its worker, as far as that can be known: it was sent, the connection is closed, and
/// the process is gone. Such a request is not given to another worker, which it would end as well. If
/// somebody else killed the worker, the request is not the cause. Nor is it if a worker of weir's own PHP was asked to end
/// before it had all of the request (`unstarted`). A program that ended with code 0 and did not read the
/// whole request had reached its end when the request came. For a worker of a server, nothing is known.
async fn cost_a_worker(pool: &PoolHandle, failure: &Failure, sent: Sent) -> bool {
    let &Failure::Closed {
        process,
        unstarted,
        ref error,
        ..
    } = failure
    else {
        return true;
    };
    if sent == Sent::Nothing || !pool.has_workers() {
        return false;
    }
    if pool.settings.php().is_some() {
        // weir kills what is left of a worker that has closed its stream.
        let closed = [Exit::Code(0), Exit::Signal(weir_sys::signal::KILL)];
        let ended =
            unstarted && (pool.exit(process).await).is_some_and(|end| closed.contains(&end));
        return !ended && !pool.was_killed(process).await;
    }
    match pool.exit(process).await {
        Some(Exit::Code(0)) => error.is_none(),
        Some(_) => true,
        None => false,
    }
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
        Failure::Protocol(_) | Failure::NotHttp(_) => {
            bad_gateway("bad_response", "http_protocol_error", message)
        }
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

/// The answer to a request whose body could not be read; `max_body` is the limit that applies.
pub(super) fn refuse_body(error: BodyError, max_body: u64) -> Refusal {
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

/// Maximum number of workers that a request is given to, if they end before they read it.
const MAX_UNREAD: u32 = 16;

/// After how many seconds a client may try again when the spool was full.
const SPOOL_RETRY: u64 = 10;
