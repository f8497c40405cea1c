//! The right to send one request on a connection, and the result of the request.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, uri::InvalidUriParts};
use http_body::Body;
use weir_config::Scheme;
use weir_http1::{Limits, Name};

use super::{
    Connections, Hold, Shared,
    body::{Received, Source},
    lease::{Driven, Lease},
};
use crate::{
    failure,
    fault::{Fault, Kind},
    h1,
    origin::Connection,
};

/// The body of a request.
pub trait RequestBody: Body<Data = Bytes, Error: Into<h1::Cause>> + Send + Unpin + 'static {}

impl<B: Body<Data = Bytes, Error: Into<h1::Cause>> + Send + Unpin + 'static> RequestBody for B {}

/// A request for one attempt, and the part of its answer's head that is kept.
pub trait Outgoing: Sized {
    type Body: RequestBody;
    /// The fields of an answer, as the user needs them.
    type Fields;

    /// The head, for HTTP/1.1.
    fn head(&self) -> h1::Request<'_>;

    /// The body, for HTTP/1.1.
    fn into_body(self) -> Self::Body;

    /// The whole request, for HTTP/2: with an absolute URI, and without the fields that HTTP/2
    /// replaces.
    ///
    /// # Errors
    /// The URI cannot be made.
    fn into_http2(self) -> Result<Request<Self::Body>, InvalidUriParts>;

    /// Takes over the fields of an answer, each with its well-known name. `has_body`: a body follows.
    fn fields<'f, I>(answer: impl Fn() -> I, has_body: bool) -> Self::Fields
    where
        I: Iterator<Item = (Option<Name>, &'f [u8], &'f [u8])>;
}

/// An answer whose head has arrived.
pub struct Answered<O: Outgoing> {
    pub status: StatusCode,
    pub fields: O::Fields,
    pub body: Received<O::Body>,
}

/// The right to send one request on a connection.
///
/// If it is dropped before anything was sent, the connection is given back. If it is dropped after
/// that and before an answer, the connection is closed. With the answer, an HTTP/1.1 connection
/// moves to the answer's body, and is returned when that was read. For HTTP/2 it is a share of a
/// connection, which is returned when the pooled is dropped.
pub struct PooledConnection<B: RequestBody> {
    pub(super) home: Arc<Connections<B>>,
    /// `None` only while it is being taken apart.
    pub(super) hold: Option<Hold<B>>,
    pub(super) connection: Connection,
    /// The connection existed before and was not made for this call.
    pub(super) kept: bool,
    pub(super) sent: bool,
}

impl<B: RequestBody> PooledConnection<B> {
    /// The data of the connection for the log; `made` is set if it was made for this call.
    pub fn connection(&self) -> Connection {
        self.connection
    }

    /// Whether the connection existed before this call.
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// Sends a request, and waits for the head of its answer.
    ///
    /// # Errors
    /// What went wrong.
    pub async fn send<O: Outgoing<Body = B>>(
        &mut self,
        outgoing: O,
    ) -> Result<Answered<O>, Unanswered> {
        self.sent = true;
        match &self.hold {
            Some(Hold::Own(_)) => self.send_http1(outgoing).await,
            Some(Hold::Share(share)) => Box::pin(self.send_http2(share, outgoing)).await,
            None => Err(given_back()),
        }
    }

    /// As [`send`](Self::send), on a shared connection.
    async fn send_http2<O: Outgoing<Body = B>>(
        &self,
        share: &Arc<Shared<B>>,
        outgoing: O,
    ) -> Result<Answered<O>, Unanswered> {
        let origin = &self.home.route.origin;
        let request = outgoing.into_http2().map_err(|error| Unanswered {
            fault: Fault::unsent(Kind::BadRequest, format!("{origin}: {error}")),
            not_begun: false,
        })?;
        match share.sender.clone().try_send_request(request).await {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                let most = Limits::default().fields as usize;
                if parts.headers.len() > most {
                    return Err(Unanswered {
                        fault: failure::of_fields(origin, most),
                        not_begun: false,
                    });
                }
                Ok(Answered {
                    status: parts.status,
                    fields: O::fields(|| of_map(&parts.headers), !body.is_end_stream()),
                    body: Received::new(Source::Shared(body)),
                })
            }
            Err(mut error) => {
                let handed_back = error.take_message().is_some();
                let error = error.error();
                let not_begun = failure::is_not_begun(error, handed_back);
                let fault = failure::of_call(origin, error, handed_back || not_begun);
                if !failure::is_of_stream(error) {
                    if not_begun {
                        share.refused.fetch_add(1, Relaxed);
                    }
                    // The connection takes no new calls: the origin has said so, or it is broken.
                    self.home.put_aside(share);
                }
                // If a new connection ends at once, the origin has a problem. If a kept one ends, only that
                // connection is closed.
                let not_begun = not_begun || (handed_back && self.kept);
                Err(Unanswered { fault, not_begun })
            }
        }
    }

    /// As [`send`](Self::send), over HTTP/1.1.
    async fn send_http1<O: Outgoing<Body = B>>(
        &mut self,
        outgoing: O,
    ) -> Result<Answered<O>, Unanswered> {
        let Some(Hold::Own(own)) = &mut self.hold else {
            return Err(given_back());
        };
        let begun = own.client.begin(&outgoing.head());
        let mut body = Some(outgoing.into_body());
        let answered = match begun {
            Ok(()) => own.client.exchange(&mut body).await,
            Err(error) => Err(error),
        };
        match (answered, self.hold.take()) {
            (Ok(()), Some(Hold::Own(own))) => {
                let lease = Lease::new(self.home.clone(), own);
                let (status, fields) = match lease.head() {
                    // The parser accepts only three digits, the first of which is not 0.
                    Some(head) => (
                        StatusCode::from_u16(head.status()).unwrap_or(StatusCode::BAD_GATEWAY),
                        O::fields(|| head.fields().iter(), !lease.is_read()),
                    ),
                    None => return Err(given_back()),
                };
                let source = match body.filter(|_| lease.is_sending()) {
                    // The answer came before the end of the request, and both continue.
                    Some(body) => Source::Driven(Driven::begin(lease, body)),
                    None => Source::Own(lease),
                };
                Ok(Answered {
                    status,
                    fields,
                    body: Received::new(source),
                })
            }
            (Err(error), hold) => {
                self.hold = hold;
                let origin = &self.home.route.origin;
                // TLS may have sent a part.
                let is_plain = origin.scheme == Scheme::Http;
                let unsent = is_plain && matches!(error, h1::Error::Unsent(_));
                Err(Unanswered {
                    fault: failure::of_exchange(origin, &error, unsent),
                    // If a new connection ends at once, the origin has a problem. If a kept one ends, only that
                    // connection is closed.
                    not_begun: unsent && self.kept,
                })
            }
            (Ok(()), _) => Err(given_back()),
        }
    }
}

fn given_back() -> Unanswered {
    Unanswered {
        fault: Fault::unsent(Kind::Internal, "a connection that was given back"),
        not_begun: false,
    }
}

impl<B: RequestBody> Drop for PooledConnection<B> {
    fn drop(&mut self) {
        match self.hold.take() {
            Some(Hold::Own(own)) if !self.sent => self.home.given_back(own),
            Some(Hold::Own(own)) => {
                drop(own);
                self.home.lost();
            }
            Some(Hold::Share(share)) => self.home.returned(&share),
            None => {}
        }
    }
}

/// A request without an answer.
pub struct Unanswered {
    pub fault: Fault,
    /// The origin has not begun to process the request, and has made no mistake. The request can be repeated at once,
    /// with any method.
    pub not_begun: bool,
}

/// The fields of a map, each with its well-known name.
pub fn of_map(headers: &HeaderMap) -> impl Iterator<Item = (Option<Name>, &[u8], &[u8])> {
    headers.iter().map(|(name, value)| {
        let name = name.as_str().as_bytes();
        (Name::of(name), name, value.as_bytes())
    })
}
