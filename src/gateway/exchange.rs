//! One request and its answer: the steps, in order.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{self, HOST},
};
use hyper::body::Incoming;
use weir_config::{Action, Settings};

use super::{
    Gateway,
    body::{Body, Outgoing, Reply},
    client_io::Conn,
    files,
    params::{SOFTWARE, Script},
    record::Record,
    refusal::Refusal,
    route::{Found, Rules, Target},
    script::{self, Answer, Instead, about},
    template, trace,
};
use crate::error_log::tell;

/// Answers a request.
pub(crate) async fn exchange(
    gateway: Arc<Gateway>,
    conn: Arc<Conn>,
    request: Request<Incoming>,
) -> Response<Outgoing> {
    let (parts, body) = request.into_parts();
    let mut record = Record::new(gateway, &conn, parts);
    trace::step!(record.id, record.traced_from, "head", "{} {}", record.parts.method, record.parts.uri);
    let (reply, length) = steps(&mut record, &conn, body).await;
    respond(record, conn, reply, length)
}
