//! Fields of a message that are about one connection, which a proxy does not pass on (RFC 9110 §7.6.1).

use http::{HeaderMap, HeaderName};
use weir_http1::{Name, ParsedFields};

use crate::connections::of_map;

/// Adds the names in a field, if that is `Connection`.
pub fn add_named<'f>(known: Option<Name>, value: &'f [u8], named: &mut Vec<&'f [u8]>) {
    // Usual values such as `close` are not names of other fields.
    let is_usual = |name: &[u8]| {
        name.eq_ignore_ascii_case(b"keep-alive") || name.eq_ignore_ascii_case(b"close")
    };
    if known == Some(Name::Connection) && !is_usual(value) {
        let names = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        named.extend(names.filter(|name| !is_usual(name)));
    }
}

/// Whether a field is about one connection: those of RFC 9110 §7.6.1, those for proxies, and those that `Connection`
/// names. `Connection` cannot name fields that belong to the message: a request whose `Connection` names `Host` is an
/// attack. `Trailer` is not one: it announces trailers, which are passed on.
pub fn is_of_hop(known: Option<Name>, name: &[u8], named: &[&[u8]]) -> bool {
    match known {
        Some(Name::ContentLength | Name::Host | Name::Via) => false,
        Some(known) if known.is_hop_by_hop() && known != Name::Trailer => true,
        None if name.eq_ignore_ascii_case(b"http2-settings") => true,
        _ => named.iter().any(|one| one.eq_ignore_ascii_case(name)),
    }
}

/// Whether the sender of a request accepts trailers (RFC 9110 §10.1.4).
pub fn takes_trailers(request: &ParsedFields) -> bool {
    request.all(Name::Te).any(|value| lists(value, b"trailers"))
}

/// Keeps only the trailers that may be passed on: not those about a hop, the length of the body, credentials or
/// routing (RFC 9110 §6.5.1).
pub fn trailers(trailers: &mut HeaderMap) {
    let mut named = Vec::new();
    for (known, _, value) in of_map(trailers) {
        add_named(known, value, &mut named);
    }
    let removed = of_map(trailers).filter(|(known, name, _)| {
        known.is_some_and(|known| NO_TRAILERS.contains(&known))
            || name.eq_ignore_ascii_case(b"max-forwards")
            || is_of_hop(*known, name, &named)
    });
    let removed = removed.filter_map(|(_, name, _)| HeaderName::from_bytes(name).ok());
    for name in removed.collect::<Vec<_>>() {
        trailers.remove(name);
    }
}

/// Whether a list has this token, with any parameters.
fn lists(value: &[u8], token: &[u8]) -> bool {
    let mut members = value.split(|&byte| byte == b',');
    members.any(|member| {
        let name = member
            .split(|&byte| byte == b';')
            .next()
            .unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(token)
    })
}

/// Fields that are not allowed in trailers.
const NO_TRAILERS: [Name; 17] = [
    Name::Authorization,
    Name::CacheControl,
    Name::ContentEncoding,
    Name::ContentLength,
    Name::ContentRange,
    Name::ContentType,
    Name::Cookie,
    Name::Expect,
    Name::Forwarded,
    Name::Host,
    Name::Location,
    Name::Range,
    Name::SetCookie,
    Name::Trailer,
    Name::Via,
    Name::Vary,
    Name::XForwardedFor,
];
