//! The answers to requests for scripts that fail, by cause.

use http::StatusCode;
use weir_sys::process::Exit;

use crate::{dispatch::PoolHandle, fastcgi::Failure, refusal::Refusal, spool::BodyError};

/// The answer to a request whose body could not be read; `max_body` is the limit that applies.
pub(crate) fn refuse_body(error: BodyError, max_body: u64) -> Refusal {
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

pub(super) fn no_worker(pool: &PoolHandle, message: String) -> Refusal {
    Refusal::upstream(
        StatusCode::SERVICE_UNAVAILABLE,
        "no_worker",
        "destination_unavailable",
        message,
    )
    .retry_after(pool.retry_after())
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
        Failure::Protocol(_) => bad_gateway("bad_response", "http_protocol_error", message),
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

/// After how many seconds a client may try again when the spool was full.
const SPOOL_RETRY: u64 = 10;
