//! Settings of a site about TLS: redirects to https, HSTS, and `Alt-Svc`, which announces HTTP/3.

use http::StatusCode;
use weir_http::Reply;

use crate::{
    answers::refusal::Refusal,
    connections::client::Conn,
    record::Record,
    route::{Rules, Site},
};

use super::targets::act;

/// The answer to a request without TLS for a site that wants TLS; `None`: it is to be served.
#[inline]
pub(super) fn redirect(site: &Site, record: &Record) -> Option<Result<Reply, Refusal>> {
    let action = site.https_redirect.as_ref()?;
    if record.endpoints.scheme() == "https" {
        return None;
    }
    if record.host.is_empty() {
        return Some(Err(Refusal::client(
            StatusCode::BAD_REQUEST,
            "bad_host",
            "the request names no host, so it cannot be redirected to https",
        )));
    }
    Some(act(record, action))
}

/// Adds `Strict-Transport-Security` over TLS (RFC 6797 §7.2).
#[inline]
pub(super) fn add_hsts(reply: &mut Reply, rules: &Rules, record: &Record) {
    if let Some(hsts) = &rules.hsts
        && record.endpoints.scheme() == "https"
    {
        // The value is a valid one.
        let _ = (reply.headers).insert("Strict-Transport-Security", hsts.as_bytes());
    }
}

/// Tells clients that the listener takes HTTP/3 (RFC 7838): those that came over TLS and TCP.
#[inline]
pub(super) fn add_alt_svc(reply: &mut Reply, conn: &Conn, record: &Record) {
    let listener = record
        .gateway
        .config
        .listeners
        .get(usize::from(conn.listener));
    if listener.is_some_and(|listener| listener.http3)
        && conn.endpoints.tls.as_ref().is_some_and(|info| !info.http3)
        && !(reply.headers.iter()).any(|(name, _)| name.eq_ignore_ascii_case(b"alt-svc"))
    {
        let port = conn.endpoints.server_port;
        let value = format!("h3=\":{port}\"; ma={ALT_SVC_AGE}");
        // The value is a valid one.
        let _ = (reply.headers).insert("Alt-Svc", value.as_bytes());
    }
}

/// For how long clients may remember that, seconds.
const ALT_SVC_AGE: u32 = 86_400;
