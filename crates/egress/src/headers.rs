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
//! The carriers do the framing: they have checked `Content-Length` and `Transfer-Encoding` of the
//! message that was received, and write their own.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use weir_config::Forwarded;
use weir_http1::Name;
use weir_interfaces::secret::random;

use super::fault::Kind;
use weir_http::Fields;
use weir_upstream::hop::{add_named, is_of_hop, takes_trailers};

mod token;

pub(crate) use token::{CHALLENGE, authorized};

/// The headers that are set in calls to one origin, and the address of the caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outbound<'a> {
    /// Authority of the origin: `Origin::authority`.
    pub(crate) authority: &'a str,
    /// `set_headers` with the secrets inserted and marked as sensitive.
    pub(crate) set: &'a [(HeaderName, HeaderValue)],
    pub(crate) forwarded: Forwarded,
    pub(crate) traceparent: bool,
    /// `None` for a unix socket.
    pub(crate) caller: Option<IpAddr>,
}

impl Outbound<'_> {
    /// Whether weir sets this field, or a field that an application may confuse with it ([`is_alike`]).
    fn sets(&self, name: &[u8]) -> bool {
        let mut set = self.set.iter();
        set.any(|(own, _)| is_alike(name, own.as_str().as_bytes()))
    }
}

/// Makes the headers of a call from those of its caller. Those about the body are left out, as are those about the
/// connection but `TE` (RFC 9110 §10.1.4).
pub(crate) fn to_origin(caller: &weir_http1::ParsedFields, outbound: &Outbound<'_>) -> Fields {
    let begins_trace = outbound.traceparent && caller.named(TRACEPARENT).next().is_none();
    let list = match outbound.forwarded {
        Forwarded::Off => None,
        Forwarded::XForwardedFor => Some(Name::XForwardedFor),
        Forwarded::Rfc7239 => Some(Name::Forwarded),
    };
    let mut named = Vec::new();
    for value in caller.all(Name::Connection) {
        add_named(Some(Name::Connection), value, &mut named);
    }
    let mut forwarded = Vec::new();
    let mut fields = Fields::with_capacity(caller.as_bytes().len() + ROOM);
    fields.push_read(Name::Host, outbound.authority.as_bytes());
    for (known, name, value) in caller.iter() {
        if is_of_hop(known, name, &named) {
            continue;
        }
        match known {
            Some(Name::Expect | Name::Host | Name::ContentLength) => {}
            Some(known) if list == Some(known) => {
                if !value.is_empty() {
                    forwarded.extend_from_slice(value);
                    forwarded.extend_from_slice(b", ");
                }
            }
            // A state without its parent has no meaning (W3C Trace Context §3.3.1).
            None if begins_trace && name.eq_ignore_ascii_case(TRACESTATE) => {}
            _ if outbound.sets(name) => {}
            _ if list == Some(Name::XForwardedFor) && is_alike(name, X_FORWARDED_FOR) => {}
            known => fields.push_read((known, name), value),
        }
    }
    if takes_trailers(caller) && !outbound.sets(b"te") {
        fields.push_read(Name::Te, b"trailers");
        fields.push_read(Name::Connection, b"te");
    }
    if let Some(name) = list
        && !outbound.sets(name.as_str().as_bytes())
    {
        // In a single line, because many programs read only the first one.
        forwarded.extend_from_slice(forwarded_for(outbound).as_bytes());
        fields.push_read(name, &forwarded);
    }
    if begins_trace && !outbound.sets(TRACEPARENT) {
        fields.push_read("traceparent", trace_parent().as_bytes());
    }
    for (name, value) in outbound.set {
        if *name != http::header::HOST {
            fields.push_read(name.as_str(), value.as_bytes());
        }
    }
    fields
}

/// Makes the headers of a caller's answer from those of an origin. `origin` returns them, each with
/// its well-known name. `has_body`: a body follows, and the carrier sets its length. Otherwise the
/// length is that of the body in the answer to GET.
pub(crate) fn to_caller<'f, I>(origin: impl Fn() -> I, has_body: bool) -> Fields
where
    I: Iterator<Item = (Option<Name>, &'f [u8], &'f [u8])>,
{
    let (mut is_chunked, mut length, mut named) = (false, ROOM, Vec::new());
    for (known, name, value) in origin() {
        is_chunked |= known == Some(Name::TransferEncoding);
        add_named(known, value, &mut named);
        length += name.len() + value.len() + 4;
    }
    let mut fields = Fields::with_capacity(length);
    for (known, name, value) in origin() {
        let is_left_out = match known {
            // RFC 9112 §6.3: the coding overrides the length.
            Some(Name::ContentLength) => has_body || is_chunked,
            // The header announces another address of the origin. Callers would believe that it is another address of
            // weir.
            Some(Name::AltSvc) => true,
            None => name.eq_ignore_ascii_case(b"proxy-authentication-info"),
            Some(_) => false,
        };
        if !is_left_out && !is_of_hop(known, name, &named) {
            fields.push_read((known, name), value);
        }
    }
    fields
}

/// Adds weir's report of a failed call (RFC 9209 §2). It is appended: proxies nearer to the origin come first.
pub(crate) fn proxy_status(fields: &mut Fields, kind: Kind) {
    let member = format!(
        "weir; error={}; details=\"{}\"",
        kind.error_type(),
        kind.reason()
    );
    fields.push_read(Name::ProxyStatus, member.as_bytes());
}

/// Removes the caller's version of a header that weir sets, in any spelling of its name
/// ([`is_alike`]): an application might use its value instead of weir's.
pub(crate) fn remove_all_of(headers: &mut HeaderMap, name: &HeaderName) {
    let wanted = name.as_str().as_bytes();
    let alike = headers
        .keys()
        .filter(|other| is_alike(other.as_str().as_bytes(), wanted));
    for name in alike.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
}

/// Whether two names are equal, or become the same variable in CGI and similar interfaces (`HTTP_X_API_KEY`): PHP
/// replaces `.` and some other characters by `_`, Apache every character that is not a letter or digit.
fn is_alike(one: &[u8], other: &[u8]) -> bool {
    let of_variable = |byte: &u8| match byte.is_ascii_alphanumeric() {
        true => byte.to_ascii_lowercase(),
        false => b'_',
    };
    one.len() == other.len()
        && one
            .iter()
            .map(of_variable)
            .eq(other.iter().map(of_variable))
}

/// The member of the list for the caller: as nginx writes it, or by RFC 7239 §4 and §6.
fn forwarded_for(outbound: &Outbound<'_>) -> String {
    let caller = outbound.caller.map(|ip| ip.to_canonical());
    match (outbound.forwarded, caller) {
        (Forwarded::Rfc7239, None) => "for=unknown".to_owned(),
        (Forwarded::Rfc7239, Some(IpAddr::V4(ip))) => format!("for={ip}"),
        (Forwarded::Rfc7239, Some(IpAddr::V6(ip))) => format!("for=\"[{ip}]\""),
        (_, None) => "unknown".to_owned(),
        (_, Some(ip)) => ip.to_string(),
    }
}

/// W3C Trace Context §3.2: version 00, new ids, and sampled, because the configuration asks for tracing.
fn trace_parent() -> String {
    // Ids must not be zero.
    let trace = u128::from(random()) << 64 | u128::from(random() | 1);
    format!("00-{trace:032x}-{:016x}-01", random() | 1)
}

const TRACEPARENT: &[u8] = b"traceparent";
const TRACESTATE: &[u8] = b"tracestate";
const X_FORWARDED_FOR: &[u8] = b"x-forwarded-for";

/// Room for the headers that weir and the carriers add, bytes.
const ROOM: usize = 256;

#[cfg(test)]
mod tests;
