//! Requests that are answered without a site: for the server as a whole, and the challenges of authorities.

use bytes::Bytes;
use http::{Method, StatusCode};
use weir_http::{Body, Fields, Reply};
use weir_http1::Name;

use crate::{Gateway, answers::refusal::Refusal, record::Record};

use super::{
    checks::METHODS,
    targets::{bare, unsaid},
};

/// The answer to such a request; `None`: it is for a site.
#[inline]
pub(super) fn answer(gateway: &Gateway, record: &Record) -> Option<Result<Reply, Refusal>> {
    if record.head.path() == b"*" {
        return Some(no_path_asked(record));
    }
    let text = gateway.tls.as_ref()?.challenges.text(record.head.path())?;
    let mut headers = Fields::with_capacity(64);
    // The value is a valid one.
    let _ = headers.append(Name::ContentType, b"application/octet-stream");
    Some(Ok(Reply {
        status: StatusCode::OK,
        headers,
        body: Body::Bytes(Bytes::copy_from_slice(text.as_bytes())),
    }))
}

/// A target without a path: `OPTIONS *` asks for the abilities of the server in general (RFC 9110 §9.3.7); no other
/// method has that target.
fn no_path_asked(record: &Record) -> Result<Reply, Refusal> {
    if record.head.method != Method::OPTIONS {
        return Err(Refusal::client(
            StatusCode::BAD_REQUEST,
            "bad_path",
            "the target * is only for OPTIONS",
        ));
    }
    let methods = METHODS;
    bare(StatusCode::NO_CONTENT, Name::Allow, methods.as_bytes()).map_err(unsaid)
}
