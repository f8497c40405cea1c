//! How an answer begins on a stream: its final head, and interim ones before it.

use http::StatusCode;
use weir_http1::Name;

use super::{body::Outgoing, head::AnswerHead};
use crate::{Answer, Body, Priority, Receipt, RequestState, request::MAX_INTERIM};

/// The begin of an answer.
pub(crate) struct Start<R> {
    pub(crate) head: AnswerHead,
    /// The head is all that is sent.
    pub(crate) is_bodyless: bool,
    pub(crate) body: Outgoing<R>,
    /// The answer may still read the body of the request.
    pub(crate) reads_request: bool,
    /// The connection is to take no more requests.
    pub(crate) is_last: bool,
}

/// Begins an answer. `is_head`: to a HEAD request. `priority` becomes what the answer says. `None`: streams cannot carry it.
pub(crate) fn start<R: Receipt>(
    answer: Answer<R>,
    is_head: bool,
    priority: &mut Priority,
) -> Option<Start<R>> {
    let is_without = is_head || answer.is_bodyless();
    let length = answer.length(is_without);
    let Answer {
        status,
        headers,
        body,
        keep,
        receipt,
        ..
    } = answer;
    let reads_request = match &body {
        Body::Tunnel(_) => return None,
        body => matches!(body, Body::Stream(_)),
    };
    if let Some(field) = headers.get(Name::Priority) {
        priority.update(field);
    }
    let said = match status {
        StatusCode::NO_CONTENT => None,
        StatusCode::NOT_MODIFIED => headers.length(),
        _ => length,
    };
    let is_bodyless = is_without || length == Some(0);
    let (body, length) = match is_bodyless {
        true => (Body::Empty, Some(0)),
        false => (body, length),
    };
    // A script's `Connection: close` is about its own stream only. The same is true after a request whose body was not
    // read.
    let is_last = !keep && !headers.has(Name::Connection);
    Some(Start {
        head: AnswerHead::new(status, headers, said),
        is_bodyless,
        reads_request,
        is_last,
        body: Outgoing::new(body, length, receipt),
    })
}

/// The heads of the interim answers that the steps have made. 100 is not among them: the carrier sends it when the body is read.
/// `sent`: bytes of all that there were.
pub(crate) fn interim(
    request: &RequestState,
    sent: &mut usize,
) -> impl Iterator<Item = AnswerHead> {
    request.take_interim().into_iter().filter_map(|interim| {
        *sent += interim.fields.lines().len();
        let is_sent = interim.status != StatusCode::CONTINUE && *sent <= MAX_INTERIM;
        is_sent.then(|| AnswerHead::new(interim.status, interim.fields, None))
    })
}
