//! Why a request has no complete response, and the texts for the log.
//!
//! | event | the client gets | the worker |
//! |---|---|---|
//! | END_REQUEST | the answer | is released (weir's PHP: at READY). A connection is kept if `keep_conn` is set, the whole request was written, and nothing followed the end |
//! | the connection closes before its first byte | 502 if the request ended a worker of weir's own; otherwise another worker, if `weir_pool::may_retry` allows it, or 502 | a new process; a program that still runs gets a new connection |
//! | the connection closes within the answer | 502 before the head was sent, otherwise its connection is cut | the same |
//! | bytes that are not FastCGI, or not HTTP; `request_terminate_timeout` | 502; 504 | is killed and replaced (php, command), or its connection is closed (servers) |
//! | silence for `read_timeout` | 504 | its script runs to its end (php, command); the connection is closed (servers) |
//! | no head of an answer by the request's `timeout` | 504 | is killed, within the budget of `dispatch::cancels` |
//!
//! The kernel tells whether a dead worker had read its request: a unix socket is reset if its peer closed it with
//! unread bytes. A request of up to 32 KB is one write and one read, so after a reset its script cannot have begun.
//! Such a request runs again whatever its method, and does not count for `retries`.

use std::{io, time::Duration};

/// Why a request has no complete response.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The worker closed the connection, or the kernel did.
    Closed {
        process: Option<u32>,
        error: Option<io::Error>,
        sent: bool,
        /// The request was sent, and the worker ended without reading it.
        unread: bool,
        /// Not all of the request was sent to weir's own PHP, which then runs no script.
        unstarted: bool,
    },
    /// The bytes are not FastCGI, or the worker refused the request.
    Protocol(String),
    /// The bytes are not HTTP, or more than weir takes.
    NotHttp(String),
    /// The worker was silent for `read_timeout`. `goes_on`: its script continues, and only
    /// `request_terminate_timeout` ends it.
    Silent { limit: Duration, goes_on: bool },
    /// The script ran longer than `request_terminate_timeout`.
    Terminated,
    /// The request's own deadline has passed without an answer.
    Late,
    /// The client has left, and the worker was stopped because of that.
    Cancelled,
    /// A part of the request's body cannot be read from the spool.
    Spool(io::Error),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Closed { error: None, .. } => {
                f.write_str("the worker closed its connection before the end of the response")
            }
            Failure::Closed {
                error: Some(error), ..
            } => write!(f, "the connection to the worker failed: {error}"),
            Failure::Protocol(error) => write!(f, "the worker does not speak FastCGI: {error}"),
            Failure::NotHttp(error) => write!(f, "the server's answer is not valid HTTP: {error}"),
            Failure::Silent { limit, goes_on } => {
                let seconds = limit.as_secs_f64();
                write!(
                    f,
                    "the worker has sent nothing for {seconds} s (read_timeout)"
                )?;
                match goes_on {
                    true => f.write_str(
                        "; its script keeps running, set request_terminate_timeout to end it",
                    ),
                    false => Ok(()),
                }
            }
            Failure::Terminated => {
                f.write_str("the script ran longer than request_terminate_timeout")
            }
            Failure::Late => {
                f.write_str("the request's `timeout` ended before its script answered")
            }
            Failure::Cancelled => f.write_str("the client left, and the script was cancelled"),
            Failure::Spool(error) => write!(f, "the request's body cannot be read back: {error}"),
        }
    }
}
