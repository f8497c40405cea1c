//! Which headers are passed on, removed and set.
//!
//! Headers are passed unchanged in both directions, except for hop-by-hop headers (RFC 9110 §7.6.1), which are about
//! one connection only. weir sets its own headers after everything was removed, so a caller cannot remove them with
//! `Connection`.
//!
//! weir sends no `Via`, like nginx and HAProxy, although RFC 9110 §7.6.3 requires it of proxies. An nginx origin
//! treats a client with `Via` as a proxy that cannot handle gzip (`gzip_proxied`), so every answer would be larger
//! than without weir.
//!
//! The carriers do the framing: they have read and checked `Content-Length` and `Transfer-Encoding` before, and write
//! them anew.

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
use weir_http::Fields;

mod token;

pub(crate) use token::{CHALLENGE, authorized};

/// What is set in the calls to one origin, and the address of the caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outbound<'a> {
    /// Of the origin: `Origin::authority`.
    pub(crate) authority: &'a HeaderValue,
    /// `set_headers` with the secrets inserted and marked as sensitive.
    pub(crate) set: &'a [(HeaderName, HeaderValue)],
    pub(crate) forwarded: Forwarded,
    pub(crate) traceparent: bool,
    /// `None` for a unix socket.
    pub(crate) caller: Option<IpAddr>,
}

/// Turns the headers of a caller into those of a call.
///
/// # Errors
/// [`Kind::BadRequest`] if the body has two lengths.
pub(crate) fn toward_origin(headers: &mut HeaderMap, outbound: &Outbound<'_>) -> Result<(), Fault> {
    // The carrier refuses such a request. If it ever did not, an origin must not get both (RFC 9112 §6.1), because weir
    // cannot know which of them the origin uses.
    if headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH) {
        return Err(Fault::unsent(
            Kind::BadRequest,
            "call refused: it has both Content-Length and Transfer-Encoding",
        ));
    }
    let takes_trailers = takes_trailers(headers);
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
        // A state without its parent has no meaning (W3C Trace Context §3.3.1).
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

/// Whether a caller takes trailers (RFC 9110 §10.1.4).
pub(crate) fn takes_trailers(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(TE).iter();
    values.any(|value| lists(value, "trailers"))
}

/// The headers of a request.
///
/// # Errors
/// [`Kind::BadRequest`] if a name or a value cannot be passed on.
pub(crate) fn of_request(fields: &weir_http1::Fields) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (_, name, value) in fields.iter() {
        let refused = |_| {
            Fault::unsent(
                Kind::BadRequest,
                "call refused: it has a header that is not allowed",
            )
        };
        let name = HeaderName::from_bytes(name).map_err(|_| refused(()))?;
        let value = HeaderValue::from_bytes(value).map_err(|_| refused(()))?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Headers as the carrier sends them.
pub(crate) fn lines(headers: &HeaderMap) -> Fields {
    let length = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    // And the lines that the carrier adds.
    let mut fields = Fields::with_capacity(headers.iter().map(length).sum::<usize>() + 64);
    for (name, value) in headers {
        // Both types allow the same bytes.
        let _ = fields.append(name.as_str(), value.as_bytes());
    }
    fields
}

/// Adapts the headers of a call to the protocol of its connection, when that is known.
pub(crate) fn for_protocol(headers: &mut HeaderMap, protocol: Protocol) {
    match protocol {
        // TE is about the connection (RFC 9110 §10.1.4).
        Protocol::Http1 if headers.contains_key(TE) => {
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
        Protocol::Http1 | Protocol::Tunnel => {}
        // `:authority` replaces it (RFC 9113 §8.3.1).
        Protocol::Http2 => {
            headers.remove(HOST);
        }
    }
}

/// Turns the headers of an origin into those of the caller's answer.
pub(crate) fn toward_caller(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        // RFC 9112 §6.3: it overrides the length, which must not be passed on.
        headers.remove(CONTENT_LENGTH);
    }
    remove_hop_by_hop(headers);
    headers.remove(PROXY_AUTHENTICATION_INFO);
    // It names another way to the origin, but callers would take it for another way to weir.
    headers.remove(ALT_SVC);
}

/// Keeps only the trailers that may be passed on: not those about a hop, the length of the body, credentials or
/// routing (RFC 9110 §6.5.1).
pub(crate) fn trailers(trailers: &mut HeaderMap) {
    remove_hop_by_hop(trailers);
    for name in &NO_TRAILERS {
        trailers.remove(name);
    }
}

/// Adds weir's report of a failed call (RFC 9209 §2). It is appended: proxies nearer to the origin come first.
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

/// Removes headers about one connection: those of RFC 9110 §7.6.1, those for proxies, and those that `Connection`
/// names. `Connection` cannot remove headers that belong to the message: a request whose `Connection` names `Host` is
/// an attack.
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

/// Removes the caller's version of a header that weir sets, in any spelling of its name.
pub(crate) fn remove_all_of(headers: &mut HeaderMap, name: &HeaderName) {
    headers.remove(name);
    remove_twins(headers, name);
}

/// Removes headers whose names an application may confuse with this one ([`is_twin`]), because it might use their
/// value in place of weir's.
fn remove_twins(headers: &mut HeaderMap, name: &HeaderName) {
    let twins = headers.keys().filter(|&other| is_twin(other, name));
    let twins: Vec<HeaderName> = twins.cloned().collect();
    for twin in twins {
        headers.remove(twin);
    }
}

/// Whether two different names become the same variable in CGI and similar interfaces (`HTTP_X_API_KEY`): PHP
/// replaces `.` and some other characters by `_`, Apache every character that is not a letter or digit.
fn is_twin(one: &HeaderName, other: &HeaderName) -> bool {
    let alike = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => byte,
        false => b'_',
    };
    let (own, others) = (one.as_str().bytes(), other.as_str().bytes());
    one != other && own.map(alike).eq(others.map(alike))
}

/// Adds a member to a list in a single line, because many programs read only the first line.
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

/// Whether a list has this token, with any parameters.
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

/// W3C Trace Context §3.2: version 00, new ids, and sampled, because the configuration asks for tracing.
fn trace_parent() -> HeaderValue {
    // Ids must not be zero.
    let trace = u128::from(random()) << 64 | u128::from(random() | 1);
    let text = format!("00-{trace:032x}-{:016x}-01", random() | 1);
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// An unpredictable number: a hash of a counter with a secret random key.
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

/// Always hop-by-hop. `Trailer` is not: it announces trailers, which are passed on.
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

/// Never hop-by-hop, even if `Connection` names it.
static END_TO_END: [HeaderName; 3] = [CONTENT_LENGTH, HOST, VIA];

/// Fields that are not allowed in trailers.
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
