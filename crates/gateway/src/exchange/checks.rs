//! Checks of every request, over each protocol: its host, its method, repeated headers.

use http::{HeaderValue, Method, StatusCode, Version};
use weir_http::Head;
use weir_http1::Name;
use weir_semantics::authority::host_name;

use crate::{answers::refusal::Refusal, record::Record};

/// The checks of RFC 9112 §3.2 for every request, and refusal of invalid methods and of those that are not for a
/// reverse proxy.
pub(super) fn check_head(record: &Record) -> Result<(), Refusal> {
    let head = &record.head;
    let mut hosts = head.fields.all(Name::Host);
    let bad = |message| {
        Err(Refusal::client(
            StatusCode::BAD_REQUEST,
            "bad_host",
            message,
        ))
    };
    match (hosts.next(), hosts.next()) {
        (None, _) if head.version == Version::HTTP_11 => {
            return bad("an HTTP/1.1 request without Host");
        }
        (None, _) if head.version == Version::HTTP_3 => {
            return bad("an HTTP/3 request without :authority and Host");
        }
        (None, _) if head.version == Version::HTTP_2 => {
            return bad("an HTTP/2 request without :authority and Host");
        }
        (Some(_), Some(_)) => return bad("a request with several Host headers"),
        _ => {}
    }
    if head.fields.has_any(&SINGLE)
        && let Some(name) = SINGLE
            .iter()
            .find(|name| head.fields.all(**name).nth(1).is_some())
    {
        return Err(Refusal::client(
            StatusCode::BAD_REQUEST,
            "repeated_header",
            format!("a request with several {} headers", name.as_str()),
        ));
    }
    if !is_method(&head.method) {
        // A script may convert the method to capitals, after all method rules were applied.
        return Err(Refusal::client(
            StatusCode::BAD_REQUEST,
            "bad_method",
            "a method with characters other than capital letters, dashes and underscores",
        ));
    }
    if matches!(head.method, Method::CONNECT | Method::TRACE) {
        return Err(Refusal::client(
            StatusCode::METHOD_NOT_ALLOWED,
            "method",
            "CONNECT and TRACE are not supported",
        )
        .allow(METHODS));
    }
    Ok(())
}

/// What nginx accepts as a method. Registered methods (RFC 9110 §16.1.1) consist of capitals and dashes.
fn is_method(method: &Method) -> bool {
    let is_of_it = |byte: u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
    // Most are one of these.
    matches!(*method, Method::GET | Method::HEAD | Method::POST)
        || method.as_str().bytes().all(is_of_it)
}

/// A target that names its host: in it, as in nginx, a name has letters, digits, dots and dashes. A `Host` beside it that is
/// none is refused, although it does not count (RFC 9112 §3.2).
pub(super) fn check_target(head: &Head, authority: &str) -> Result<(), Refusal> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    let named = head.fields.get(Name::Host);
    let is_host = named.is_none_or(|named| host_name(named).is_ok());
    match is_host && authority.bytes().all(is_plain) {
        true => Ok(()),
        false => Err(Refusal::client(
            StatusCode::BAD_REQUEST,
            "bad_host",
            "a target or Host that is no host",
        )),
    }
}

/// Methods that scripts accept.
pub(super) const METHODS: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// Headers that a request may have once, as in nginx: of two, one program takes the first and another the last.
const SINGLE: [Name; 8] = [
    Name::Authorization,
    Name::ContentRange,
    Name::Expect,
    Name::IfMatch,
    Name::IfModifiedSince,
    Name::IfNoneMatch,
    Name::IfRange,
    Name::IfUnmodifiedSince,
];
