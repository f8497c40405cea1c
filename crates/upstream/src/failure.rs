//! Translates the error of a connection into a [`Fault`]: of HTTP/1.1 those of [`h1`], of HTTP/2 hyper's.

use std::{error::Error, io};

use crate::h1;
use tokio_rustls::rustls;
use weir_http1::Error as Malformed;
use weir_pool::Sent;

use super::{
    fault::{Fault, Kind},
    origin::Origin,
    origin_tls,
};

/// HTTP could not be started on a new connection.
pub fn of_handshake(origin: &Origin, error: &hyper::Error) -> Fault {
    origin_tls::fault(origin, error)
        .unwrap_or_else(|| Fault::unsent(kind(error), format!("{origin}: {}", chain(error))))
}

/// A request over HTTP/1.1 had no answer. `unsent`: nothing was written.
pub fn of_exchange(origin: &Origin, error: &h1::Error, unsent: bool) -> Fault {
    let kind = match error {
        h1::Error::Request => Kind::BadRequest,
        h1::Error::Body(_) => Kind::BadBody,
        h1::Error::Answer(
            Malformed::HeadTooLarge | Malformed::TargetTooLong | Malformed::TooManyFields,
        ) => Kind::HeadTooLarge,
        error => of_answer(error),
    };
    unanswered(origin, error, kind, unsent)
}

/// An answer over HTTP/1.1 ended early, or is not valid HTTP.
pub fn of_answer(error: &h1::Error) -> Kind {
    match error {
        h1::Error::Answer(Malformed::Truncated) => Kind::Terminated,
        h1::Error::Answer(_) | h1::Error::Endless | h1::Error::Switched => Kind::BadResponse,
        _ => Kind::Terminated,
    }
}

/// An answer over HTTP/2 has more fields than `most`, which one over HTTP/1.1 may have, too.
pub fn of_fields(origin: &Origin, most: usize) -> Fault {
    let what = format!("{origin}: the head of its answer has more than {most} fields");
    Fault::sent(Kind::HeadTooLarge, what)
}

/// A request over HTTP/2 had no answer. `unsent`: the origin cannot have seen it ([`is_not_begun`]), or nothing was
/// written.
pub fn of_call(origin: &Origin, error: &hyper::Error, unsent: bool) -> Fault {
    let kind = match unsent {
        // hyper reports a request whose connection is gone like an invalid request.
        true => Kind::Terminated,
        false => kind(error),
    };
    unanswered(origin, error, kind, unsent)
}

fn unanswered(origin: &Origin, error: &(dyn Error + 'static), kind: Kind, unsent: bool) -> Fault {
    let sent = match unsent {
        true => Sent::Nothing,
        false => Sent::Maybe,
    };
    // In TLS 1.3 an origin demands a client certificate only after the handshake.
    if let Some(fault) = origin_tls::fault(origin, error) {
        return Fault { sent, ..fault };
    }
    let what = match kind {
        Kind::HeadTooLarge => "the head of its answer is longer than max_response_head",
        Kind::BadResponse => "its answer is not HTTP",
        Kind::BadBody => "the request's body ended too early",
        Kind::BadRequest => "the request cannot be sent",
        _ => "the connection was closed before an answer",
    };
    Fault {
        kind,
        message: format!("{origin}: {what}: {}", chain(error)),
        sent,
        retry_after: None,
    }
}

/// Whether the origin has provably not begun to process a request, by the rules of HTTP/2 (RFC 9113 §6.8, §8.7).
/// Either it said so (REFUSED_STREAM, or GOAWAY with an earlier last stream, for any reason), or the request was
/// never sent: hyper has `handed_back` the request, or it was still waiting for a stream when the connection was
/// given up.
pub fn is_not_begun(error: &hyper::Error, handed_back: bool) -> bool {
    let is_refused = source::<h2::Error>(error).is_some_and(|h2| {
        h2.is_remote() && (h2.is_go_away() || h2.reason() == Some(h2::Reason::REFUSED_STREAM))
    });
    // hyper drops the request with its task. Only this text tells so.
    let is_dropped = || error.is_user() && error.to_string().contains(DROPPED);
    handed_back || is_refused || is_dropped()
}

/// For HTTP/2: the error is about this call only, and the connection can carry others (RST_STREAM).
pub fn is_of_stream(error: &hyper::Error) -> bool {
    source::<h2::Error>(error).is_some_and(h2::Error::is_reset)
}

/// An answer over HTTP/2 ended early, or is not valid HTTP.
pub fn of_body(error: &hyper::Error) -> Kind {
    let malformed = source::<io::Error>(error).is_some_and(|error| {
        // rustls reports one of these kinds if bytes were changed in transit.
        let invalid = [io::ErrorKind::InvalidInput, io::ErrorKind::InvalidData];
        let inner = error.get_ref();
        invalid.contains(&error.kind()) && !inner.is_some_and(|inner| inner.is::<rustls::Error>())
    });
    match malformed || kind(error) == Kind::BadResponse {
        true => Kind::BadResponse,
        false => Kind::Terminated,
    }
}

fn kind(error: &hyper::Error) -> Kind {
    if error.is_parse() {
        return Kind::BadResponse;
    }
    // The body came from the caller.
    if error.is_user() {
        return Kind::BadBody;
    }
    match source::<h2::Error>(error) {
        Some(h2) if h2.reason() == Some(h2::Reason::PROTOCOL_ERROR) => Kind::BadResponse,
        _ => Kind::Terminated,
    }
}

fn source<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// An error with its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text.push_str(": ");
        text.push_str(&error.to_string());
        next = error.source();
    }
    text
}

/// hyper's text for a request that it dropped before sending it.
const DROPPED: &str = "dispatch task is gone";
