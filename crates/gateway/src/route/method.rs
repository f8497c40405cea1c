//! The registered HTTP methods.

use http::Method;

/// Whether the method is in IANA's registry (RFC 9110 §16.1.1).
pub(super) fn is_registered(method: &Method) -> bool {
    const OTHERS: [&str; 31] = [
        "ACL",
        "BASELINE-CONTROL",
        "BIND",
        "CHECKIN",
        "CHECKOUT",
        "COPY",
        "LABEL",
        "LINK",
        "LOCK",
        "MERGE",
        "MKACTIVITY",
        "MKCALENDAR",
        "MKCOL",
        "MKREDIRECTREF",
        "MKWORKSPACE",
        "MOVE",
        "ORDERPATCH",
        "PRI",
        "PROPFIND",
        "PROPPATCH",
        "REBIND",
        "REPORT",
        "SEARCH",
        "UNBIND",
        "UNCHECKOUT",
        "UNLINK",
        "UNLOCK",
        "UPDATE",
        "UPDATEREDIRECTREF",
        "VERSION-CONTROL",
        "QUERY",
    ];
    match *method {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::DELETE
        | Method::OPTIONS
        | Method::PATCH
        | Method::CONNECT
        | Method::TRACE => true,
        _ => OTHERS.contains(&method.as_str()),
    }
}
