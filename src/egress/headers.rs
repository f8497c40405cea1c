//! Which headers are passed on, removed and set.
//!
//! A caller's headers go to the origin as they are, and an origin's to the caller, but for those of the hop (RFC 9110
//! §7.6.1), which speak of one connection and end with it. What weir sets is set after everything else was removed: no
//! `Connection` of a caller can name it away.
//!
//! There is no `Via`, as with nginx and HAProxy, though RFC 9110 §7.6.3 wants one of a proxy: an nginx at the other end takes
//! who says it for a proxy that cannot have gzip (`gzip_proxied`), and every answer would be larger than without weir.
//!
//! Framing is hyper's: what is in `Content-Length` and `Transfer-Encoding` was read and checked by it before, and it
//! writes `Transfer-Encoding` anew.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ALT_SVC, CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
    },
};
use weir_config::Forwarded;

use super::{
    fault::{Fault, Kind},
    record::Protocol,
};

mod token;

pub(crate) use token::{CHALLENGE, authorized};

/// What is set in calls to one origin, and by whom one is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outbound<'a> {
    /// Of the origin: `Origin::authority`.
    pub(crate) authority: &'a HeaderValue,
    /// `set_headers`, with the secrets in their places and marked as sensitive.
    pub(crate) set: &'a [(HeaderName, HeaderValue)],
    pub(crate) forwarded: Forwarded,
    pub(crate) traceparent: bool,
    /// None over a unix socket.
    pub(crate) caller: Option<IpAddr>,
}

/// Makes of a caller's headers those of a call.
///
/// # Errors
/// [`Kind::BadRequest`] where the body has two lengths.
pub(crate) fn toward_origin(headers: &mut HeaderMap, outbound: &Outbound<'_>) -> Result<(), Fault> {
    // hyper drops the length of what is chunked. Should it ever not, the two must not reach an origin together
    // (RFC 9112 §6.1): which of them it believes cannot be known.
    if headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH) {
        return Err(Fault::unsent(
            Kind::BadRequest,
            "a call is refused: it has both Content-Length and Transfer-Encoding",
        ));
    }
    let takes_trailers = headers
        .get_all(TE)
        .iter()
        .any(|value| lists(value, "trailers"));
    remove_hop_by_hop(headers);
    headers.remove(EXPECT);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    match outbound.forwarded {
        Forwarded::Off => {}
        Forwarded::XForwardedFor => {
            let caller = outbound
                .caller
                .map_or("unknown".to_owned(), |ip| ip.to_canonical().to_string());
            append(headers, X_FORWARDED_FOR, &caller);
            remove_twins(headers, &X_FORWARDED_FOR);
        }
        Forwarded::Rfc7239 => append(headers, FORWARDED, &forwarded_for(outbound.caller)),
    }
    if outbound.traceparent && !headers.contains_key(TRACEPARENT) {
        // A state without its parent says nothing (W3C Trace Context §3.3.1).
        headers.remove(TRACESTATE);
        headers.insert(TRACEPARENT, trace_parent());
    }
    for (name, value) in outbound.set {
        headers.insert(name.clone(), value.clone());
        remove_twins(headers, name);
    }
    headers.insert(HOST, outbound.authority.clone());
    Ok(())
}

/// Fits a call's headers to what is spoken on its connection, when that is known.
pub(crate) fn for_protocol(headers: &mut HeaderMap, protocol: Protocol) {
    match protocol {
        // TE speaks of the connection (RFC 9110 §10.1.4).
        Protocol::Http1 if headers.contains_key(TE) => {
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
        Protocol::Http1 | Protocol::Tunnel => {}
        // `:authority` says it (RFC 9113 §8.3.1).
        Protocol::Http2 => {
            headers.remove(HOST);
        }
    }
}

/// Makes of an origin's headers those of an answer.
pub(crate) fn toward_caller(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        // RFC 9112 §6.3: it overrides the length, which must not be passed on.
        headers.remove(CONTENT_LENGTH);
    }
    remove_hop_by_hop(headers);
    headers.remove(PROXY_AUTHENTICATION_INFO);
    // It names another way to the origin, and would be taken for another way to weir.
    headers.remove(ALT_SVC);
}

/// Makes of the trailers of a body those that may be passed on: none that speak of a hop, of the body's length, of
/// who asks or of where the message goes (RFC 9110 §6.5.1).
pub(crate) fn trailers(trailers: &mut HeaderMap) {
    remove_hop_by_hop(trailers);
    for name in &NO_TRAILERS {
        trailers.remove(name);
    }
}

/// What weir says of a call that failed (RFC 9209 §2). It is appended: whoever is nearer to the origin stands first.
pub(crate) fn proxy_status(headers: &mut HeaderMap, kind: Kind) {
    let member = format!(
        "weir; error={}; details=\"{}\"",
        kind.error_type(),
        kind.reason()
    );
    if let Ok(member) = HeaderValue::try_from(member) {
        headers.append(PROXY_STATUS, member);
    }
}

/// Removes what speaks of one connection: what RFC 9110 §7.6.1 lists, what it has of proxies and its user, and what
/// `Connection` names. That cannot name what belongs to the message itself: a request whose `Connection` says `Host`
/// means harm.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let mut named = Vec::new();
    for value in headers.get_all(CONNECTION) {
        for name in value.as_bytes().split(|&byte| byte == b',') {
            if let Ok(name) = HeaderName::from_bytes(name.trim_ascii()) {
                named.push(name);
            }
        }
    }
    for name in named.iter().chain(&HOP_BY_HOP) {
        if !END_TO_END.contains(name) {
            headers.remove(name);
        }
    }
}

/// Removes what a caller says in the place of a header that weir sets, however it writes its name.
pub(crate) fn remove_all_of(headers: &mut HeaderMap, name: &HeaderName) {
    headers.remove(name);
    remove_twins(headers, name);
}

/// Removes headers whose names an application may take for this one ([`is_twin`]): it could take the other for what weir
/// has set.
fn remove_twins(headers: &mut HeaderMap, name: &HeaderName) {
    let twins = headers.keys().filter(|&other| is_twin(other, name));
    let twins: Vec<HeaderName> = twins.cloned().collect();
    for twin in twins {
        headers.remove(twin);
    }
}

/// Whether two different names become one variable behind CGI and its kin (`HTTP_X_API_KEY`): PHP makes `_` of `.` and some
/// others, Apache of whatever is neither letter nor digit.
fn is_twin(one: &HeaderName, other: &HeaderName) -> bool {
    let alike = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => byte,
        false => b'_',
    };
    let (own, others) = (one.as_str().bytes(), other.as_str().bytes());
    one != other && own.map(alike).eq(others.map(alike))
}

/// Adds a member to a list, in one line: many read the first line only.
fn append(headers: &mut HeaderMap, name: HeaderName, member: &str) {
    let mut list = Vec::new();
    for value in headers.get_all(&name) {
        if !value.is_empty() {
            list.extend_from_slice(value.as_bytes());
            list.extend_from_slice(b", ");
        }
    }
    list.extend_from_slice(member.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&list) {
        headers.insert(name, value);
    }
}

/// RFC 7239 §4 and §6
fn forwarded_for(caller: Option<IpAddr>) -> String {
    match caller.map(|ip| ip.to_canonical()) {
        None => "for=unknown".to_owned(),
        Some(IpAddr::V4(ip)) => format!("for={ip}"),
        Some(IpAddr::V6(ip)) => format!("for=\"[{ip}]\""),
    }
}

/// Whether a list has this token, whatever its parameters.
fn lists(value: &HeaderValue, token: &str) -> bool {
    let mut members = value.as_bytes().split(|&byte| byte == b',');
    members.any(|member| {
        let name = member
            .split(|&byte| byte == b';')
            .next()
            .unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(token.as_bytes())
    })
}

/// W3C Trace Context §3.2: version 00, new ids, sampled, since a configuration that asks for it wants to see it.
fn trace_parent() -> HeaderValue {
    // No id may be zero.
    let trace = u128::from(random()) << 64 | u128::from(random() | 1);
    let text = format!("00-{trace:032x}-{:016x}-01", random() | 1);
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// A number that nobody can guess: a keyed hash of a counter, the key from the system's source of randomness.
fn random() -> u64 {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let key = KEY.get_or_init(RandomState::new);
    key.hash_one(COUNT.fetch_add(1, Ordering::Relaxed))
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Always of the hop. `Trailer` is not: it tells what comes after the body, and trailers are passed on.
static HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// Never of the hop, whatever `Connection` says.
static END_TO_END: [HeaderName; 3] = [CONTENT_LENGTH, HOST, VIA];

/// What no trailer may say.
static NO_TRAILERS: [HeaderName; 18] = [
    http::header::AUTHORIZATION,
    http::header::CACHE_CONTROL,
    http::header::CONTENT_ENCODING,
    CONTENT_LENGTH,
    http::header::CONTENT_RANGE,
    http::header::CONTENT_TYPE,
    http::header::COOKIE,
    EXPECT,
    FORWARDED,
    HOST,
    http::header::LOCATION,
    http::header::MAX_FORWARDS,
    http::header::RANGE,
    http::header::SET_COOKIE,
    http::header::TRAILER,
    VIA,
    http::header::VARY,
    X_FORWARDED_FOR,
];

#[cfg(test)]
mod tests;
