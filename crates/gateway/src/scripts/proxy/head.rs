//! The head of a request as a server gets it, and that of its answer.
//!
//! The server learns what the client has asked for, in the client's own spelling: the target as received, unless the site
//! changes it, and all fields except those about one connection (RFC 9110 §7.6.1) and those that weir sets: `Host`, the
//! body's length, and who the client is. As with FastCGI, names that an application may mistake for others are left out.

use std::net::IpAddr;

use http::{Method, StatusCode, Version};
use weir_config::{Forwarded, HttpServers, Settings};
use weir_http1::{Name, ResponseHead};
use weir_upstream::hop::{add_named, is_of_hop};

use crate::{
    record::Record,
    scripts::{fastcgi::params::is_passed, run},
};

/// The target of the request line.
pub(crate) fn target(record: &Record) -> &[u8] {
    let changed = record.rare.as_ref();
    match changed.and_then(|rare| rare.target.as_deref()) {
        Some(target) => target,
        None => record.uri(),
    }
}

/// Whether the client wants WebSocket (RFC 6455 §4.1). Upgrades to other protocols are not passed on: in HTTP/2 without TLS, a
/// client could hide requests from weir.
pub(crate) fn is_websocket(record: &Record) -> bool {
    let (head, fields) = (&record.head, &record.head.fields);
    head.method == Method::GET
        && head.version == Version::HTTP_11
        && fields.has_token(Name::Connection, "upgrade")
        && (fields.get(Name::Upgrade)).is_some_and(|name| name.eq_ignore_ascii_case(WEBSOCKET))
}

/// The fields of a request, each with the end of its line, without those about its body. `is_websocket`: it is to be upgraded.
pub(crate) fn lines(
    record: &Record,
    settings: &Settings,
    http: &HttpServers,
    is_websocket: bool,
) -> Vec<u8> {
    let fields = &record.head.fields;
    let mut lines = run::buffer();
    let asked = fields.get(Name::Host);
    let host = match (&http.host, asked) {
        (Some(host), _) => host.as_bytes(),
        (None, Some(asked)) => asked,
        (None, None) => record.endpoints.server_addr().as_bytes(),
    };
    put(&mut lines, b"Host", &[host]);
    let mut named = Vec::new();
    for value in fields.all(Name::Connection) {
        add_named(Some(Name::Connection), value, &mut named);
    }
    // A client cannot remove what the site sets.
    named.retain(|name| {
        let mut set = settings.set_request_headers.iter();
        !set.any(|(own, _)| own.as_bytes().eq_ignore_ascii_case(name))
    });
    let mut cookies = Vec::new();
    for (known, name, value) in fields.iter() {
        match known {
            Some(Name::Host | Name::ContentLength | Name::Expect | Name::Trailer | Name::Proxy) => {
            }
            Some(known) if is_replaced(known, http.forwarded) => {}
            known if is_of_hop(known, name, &named) => {}
            known if !is_passed(record, settings, (known, name)) => {}
            // In HTTP/2 each may come in a field of its own (RFC 9113 §8.2.3).
            Some(Name::Cookie) => cookies.push(value),
            _ => put(&mut lines, name, &[value]),
        }
    }
    if !cookies.is_empty() {
        put(&mut lines, b"Cookie", &[&cookies.join(&b"; "[..])]);
    }
    put_client(record, http.forwarded, &mut lines);
    if is_websocket {
        put(&mut lines, b"Connection", &[b"Upgrade"]);
        put(&mut lines, b"Upgrade", &[WEBSOCKET]);
    }
    lines
}

/// Whether weir writes a field in place of what came.
fn is_replaced(name: Name, forwarded: Forwarded) -> bool {
    match forwarded {
        Forwarded::Off => false,
        Forwarded::XForwardedFor => matches!(
            name,
            Name::XForwardedFor | Name::XForwardedProto | Name::XForwardedHost
        ),
        Forwarded::Rfc7239 => name == Name::Forwarded,
    }
}

/// Says who the client is, at the end of what trusted proxies in front have said.
fn put_client(record: &Record, forwarded: Forwarded, lines: &mut Vec<u8>) {
    let fields = &record.head.fields;
    let scheme = record.endpoints.scheme().as_bytes();
    let host = fields.get(Name::Host).unwrap_or_default();
    match forwarded {
        Forwarded::Off => {}
        Forwarded::XForwardedFor => {
            let chain = chain(record, Name::XForwardedFor, |address| match address {
                "unix:" => "unknown".to_owned(),
                address => address.to_owned(),
            });
            put(lines, b"X-Forwarded-For", &[&chain]);
            put(lines, b"X-Forwarded-Proto", &[scheme]);
            if !host.is_empty() {
                put(lines, b"X-Forwarded-Host", &[host]);
            }
        }
        Forwarded::Rfc7239 => {
            let mut chain = chain(record, Name::Forwarded, node);
            chain.extend_from_slice(b";proto=");
            chain.extend_from_slice(scheme);
            if !host.is_empty() && !host.contains(&b'"') && !host.contains(&b'\\') {
                chain.extend_from_slice(&[b";host=\"", host, b"\""].concat());
            }
            put(lines, b"Forwarded", &[&chain]);
        }
    }
}

/// What came in fields of this name, and the ends of this hop behind it.
fn chain(record: &Record, name: Name, written: impl Fn(&str) -> String) -> Vec<u8> {
    let endpoints = &record.endpoints;
    let came: Vec<&[u8]> = record.head.fields.all(name).collect();
    let mut chain = came.join(&b", "[..]);
    let (client, peer) = (endpoints.remote_addr(), endpoints.peer_addr());
    // A proxy in front has named the client in another way.
    let own = [
        Some(client).filter(|_| chain.is_empty() && client != peer),
        Some(peer),
    ];
    for address in own.into_iter().flatten() {
        if !chain.is_empty() {
            chain.extend_from_slice(b", ");
        }
        chain.extend_from_slice(written(address).as_bytes());
    }
    chain
}

/// An address as RFC 7239 §6 writes it.
fn node(address: &str) -> String {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => format!("for={ip}"),
        Ok(IpAddr::V6(ip)) => format!("for=\"[{ip}]\""),
        Err(_) => "for=unknown".to_owned(),
    }
}

/// Appends a field whose name and parts of the value are valid.
fn put(lines: &mut Vec<u8>, name: &[u8], value: &[&[u8]]) {
    lines.extend_from_slice(name);
    lines.extend_from_slice(b": ");
    value.iter().for_each(|part| lines.extend_from_slice(part));
    lines.extend_from_slice(b"\r\n");
}

const WEBSOCKET: &[u8] = b"websocket";

/// The status of an answer.
pub(super) fn status(head: &ResponseHead) -> StatusCode {
    // A parsed head has 100 to 999.
    StatusCode::from_u16(head.status()).unwrap_or(StatusCode::BAD_GATEWAY)
}
