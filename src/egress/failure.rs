//! What hyper says of a connection that failed → a [`Fault`].

use std::{error::Error, io};

use tokio_rustls::rustls;
use weir_pool::Sent;

use super::{
    fault::{Fault, Kind},
    target::Origin,
    tls,
};

/// HTTP could not be begun over a new connection.
pub(crate) fn of_handshake(origin: &Origin, error: &hyper::Error) -> Fault {
    tls::fault(origin, error)
        .unwrap_or_else(|| Fault::unsent(kind(error), format!("{origin}: {}", chain(error))))
}

/// A request had no answer. `unsent`: hyper has handed it back, so that nothing of it was written; over HTTP/2 the origin
/// may also say that it has not looked at it (RFC 9113 §8.7).
pub(crate) fn of_call(origin: &Origin, error: &hyper::Error, unsent: bool) -> Fault {
    let sent = match unsent || refused(error) {
        true => Sent::Nothing,
        false => Sent::Maybe,
    };
    // That it wants a client's certificate is told after the handshake.
    if let Some(fault) = tls::fault(origin, error) {
        return Fault { sent, ..fault };
    }
    let what = match kind(error) {
        Kind::HeadTooLarge => "the head of its answer is longer than max_response_head",
        Kind::BadResponse => "its answer is no HTTP",
        Kind::BadBody => "the request's body broke off",
        _ => "the connection ended before the head of an answer",
    };
    Fault {
        kind: kind(error),
        message: format!("{origin}: {what}: {}", chain(error)),
        sent,
        retry_after: None,
    }
}

/// Over HTTP/2: it is about this call, and the connection can carry others (RST_STREAM).
pub(crate) fn is_of_stream(error: &hyper::Error) -> bool {
    source::<h2::Error>(error).is_some_and(h2::Error::is_reset)
}

/// An answer broke off, or went on as HTTP does not.
pub(crate) fn of_body(error: &hyper::Error) -> Kind {
    let malformed = source::<io::Error>(error).is_some_and(|error| {
        // What hyper's decoder says of chunks; rustls says the same of bytes that were changed on their way.
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
    if error.is_parse_too_large() {
        return Kind::HeadTooLarge;
    }
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

/// The origin has said that it has not begun with the request: REFUSED_STREAM, or GOAWAY with an earlier last stream.
fn refused(error: &hyper::Error) -> bool {
    source::<h2::Error>(error).is_some_and(|h2| {
        h2.is_remote()
            && (h2.reason() == Some(h2::Reason::REFUSED_STREAM)
                || (h2.is_go_away() && h2.reason() == Some(h2::Reason::NO_ERROR)))
    })
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

/// An error with what caused it.
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
