//! Headers that a site changes, in requests for scripts and in answers, and what they say about the connection.

use http::StatusCode;
use weir_config::Settings;
use weir_http::{Fields, Reply};
use weir_http1::{Name, check_field};

use super::{https, targets::rendered};
use crate::{
    Gateway, answers::compression, connections::client::Conn, record::Record, route::Rules,
};

/// What the site adds to the head that scripts see.
pub(super) fn set_request_headers(record: &mut Record, settings: &Settings) {
    if settings.compress {
        compression::set_request_headers(record, settings);
    }
    for (name, value) in &settings.set_request_headers {
        let value = rendered(value, record);
        if check_field(name.as_bytes(), &value).is_ok() {
            record.head.fields.set(name.as_bytes(), &value);
        }
    }
}

/// Changes the headers of an answer as the site wants.
pub(super) fn set_headers(reply: &mut Reply, record: &Record, rules: &Rules) {
    https::add_hsts(reply, rules, record);
    for name in &rules.settings.remove_headers {
        if !names_parts(reply, name) {
            reply.headers.remove(name.as_str());
        }
    }
    for (name, value) in &rules.settings.set_headers {
        if names_parts(reply, name) {
            continue;
        }
        // A value that is not valid for this request is left out.
        let value = rendered(value, record);
        let _ = reply.headers.insert(name.as_str(), &value);
    }
}

/// Whether this field says how the parts of several ranges are separated (RFC 9110 §15.3.7.2): without it nobody can read
/// the body.
fn names_parts(reply: &Reply, name: &str) -> bool {
    const PARTS: &[u8] = b"multipart/byteranges";
    reply.status == StatusCode::PARTIAL_CONTENT
        && Name::of(name.as_bytes()) == Some(Name::ContentType)
        && (reply.headers.get(Name::ContentType))
            .and_then(|value| value.get(..PARTS.len()))
            .is_some_and(|value| value.eq_ignore_ascii_case(PARTS))
}

/// Whether the connection may have another request after this one.
pub(crate) fn keeps_connection(gateway: &Gateway, conn: &Conn) -> bool {
    let listener = &gateway.config.listeners[usize::from(conn.listener)];
    let most = listener.max_requests_per_connection;
    let goes_on = || gateway.drain.has_started() && gateway.next.takes(listener);
    (most == 0 || conn.requests() < most) && (!gateway.keeps_no_connections() || goes_on())
}

/// Whether the headers of an answer want the connection to be closed.
pub(super) fn closes(headers: &Fields) -> bool {
    let is_close = |word: &[u8]| word.trim_ascii().eq_ignore_ascii_case(b"close");
    let mut values = headers.all(&Name::Connection);
    values.any(|value| value.split(|byte| *byte == b',').any(is_close))
}
