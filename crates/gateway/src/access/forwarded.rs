//! The client of a request, if a trusted proxy names it in fields: `X-Forwarded-For`, `-Proto` and `-Host`, or
//! `Forwarded`.
//!
//! These fields are removed from requests of all other clients, so that no script believes them. A request without
//! these fields costs nothing here.

use std::{net::IpAddr, rc::Rc};

use weir_config::ForwardedFields;
use weir_http1::{Name, ParsedFields};
use weir_semantics::forwarded::{self, Client, XForwarded};

use crate::{
    Gateway,
    record::{Endpoints, Record},
    scripts::policy,
};

/// Whether a peer may say who its clients are. `None`: a peer on a unix socket.
pub(crate) fn is_trusted(gateway: &Gateway, peer: Option<IpAddr>) -> bool {
    let trusted = &gateway.config.server.trusted;
    trusted.iter().any(|of| of.includes(peer))
}

/// Stores the values of trusted proxies in the record: addresses, scheme and host. Removes untrusted fields.
pub(crate) fn apply(record: &mut Record) {
    let fields = &record.head.fields;
    if fields.has_any(&FIELDS) {
        take(record);
    } else {
        record.gateway.untrusted.plain(record.endpoints.client);
    }
}

/// The client that a trusted proxy names in the fields of a request that came over a connection with the addresses `own`; 0: none.
pub(crate) fn client_of(gateway: &Gateway, own: &Endpoints, fields: &ParsedFields) -> u64 {
    if !fields.has_any(&FIELDS) || !is_trusted(gateway, own.remote_addr().parse().ok()) {
        return 0;
    }
    let client = said(gateway, fields, is_rfc7239(gateway, fields));
    client.address.map_or(0, policy::client_of)
}

fn take(record: &mut Record) {
    let gateway = record.gateway;
    let server = &gateway.config.server;
    let fields = &mut record.head.fields;
    let peer = record.endpoints.remote_addr().parse().ok();
    if !is_trusted(gateway, peer) {
        let endpoints = &record.endpoints;
        let untrusted = &gateway.untrusted;
        if fields.has(Name::XForwardedFor) || fields.has(Name::Forwarded) {
            untrusted.told(endpoints.client, endpoints.remote_addr());
        } else {
            untrusted.plain(endpoints.client);
        }
        if !server.passes_untrusted {
            remove(fields, &FIELDS);
        }
        return;
    }
    let is_rfc7239 = is_rfc7239(gateway, fields);
    let client = said(gateway, fields, is_rfc7239);
    match is_rfc7239 {
        true => remove(fields, &X_FORWARDED),
        false => remove(fields, &[Name::Forwarded]),
    }
    if let Some(host) = &client.host {
        fields.set(b"host", host);
    }
    if client != Client::default() {
        record.endpoints = Rc::new(endpoints(&record.endpoints, &client));
    }
}

/// Whether `Forwarded` counts, and not `X-Forwarded-*`.
fn is_rfc7239(gateway: &Gateway, fields: &ParsedFields) -> bool {
    match gateway.config.server.forwarded_by {
        ForwardedFields::Any => !fields.has(Name::XForwardedFor) && fields.has(Name::Forwarded),
        ForwardedFields::XForwarded => false,
        ForwardedFields::Rfc7239 => true,
    }
}

/// What the fields say.
fn said(gateway: &Gateway, fields: &ParsedFields, is_rfc7239: bool) -> Client {
    let is_trusted = |address| is_trusted(gateway, Some(address));
    if is_rfc7239 {
        let values: Vec<&[u8]> = fields.all(Name::Forwarded).collect();
        return forwarded::client(&values, is_trusted);
    }
    let values = XForwarded {
        addresses: fields.all(Name::XForwardedFor).collect(),
        protos: fields.all(Name::XForwardedProto).collect(),
        hosts: fields.all(Name::XForwardedHost).collect(),
    };
    values.client(is_trusted)
}

fn remove(fields: &mut ParsedFields, names: &[Name]) {
    for name in names
        .iter()
        .filter(|name| fields.has(**name))
        .copied()
        .collect::<Vec<_>>()
    {
        fields.remove(name.as_str().as_bytes());
    }
}

/// The addresses of a request that came over a connection with the addresses `own`.
fn endpoints(own: &Endpoints, client: &Client) -> Endpoints {
    let is_https = client.is_https.unwrap_or(own.is_https);
    let port = client.host.as_deref().and_then(port_of);
    let usual = match client.is_https {
        Some(true) => 443,
        Some(false) => 80,
        None => own.server_port,
    };
    let server = (own.server_addr(), port.unwrap_or(usual));
    let mut endpoints = match client.address {
        Some(address) => Endpoints::of(
            (&address.to_string(), client.port.unwrap_or(0)),
            server,
            policy::client_of(address),
        ),
        None => Endpoints::of((own.remote_addr(), own.remote_port), server, own.client),
    };
    endpoints.is_https = is_https;
    endpoints.is_host_forwarded = client.host.is_some();
    // Whether TLS is used depends on the connection, even if a proxy names the client.
    endpoints.tls.clone_from(&own.tls);
    endpoints.behind(own.peer_addr())
}

/// The port of a valid host.
fn port_of(host: &[u8]) -> Option<u16> {
    let colon = host.iter().rposition(|byte| *byte == b':')?;
    std::str::from_utf8(&host[colon + 1..]).ok()?.parse().ok()
}

const X_FORWARDED: [Name; 3] = [
    Name::XForwardedFor,
    Name::XForwardedProto,
    Name::XForwardedHost,
];

/// The fields by which a proxy says who the client is.
const FIELDS: [Name; 4] = [
    Name::XForwardedFor,
    Name::XForwardedProto,
    Name::XForwardedHost,
    Name::Forwarded,
];
