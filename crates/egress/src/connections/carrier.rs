//! The right to send one request on a connection, and the result of the request.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, HOST},
    uri::InvalidUriParts,
};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use weir_config::Scheme;
use weir_http::Fields;
use weir_interfaces::own_call;
use weir_upstream::h1;

use super::{
    super::{
        body::Blame,
        failure,
        fault::{Fault, Kind},
        headers,
        host::Host,
        message::{OriginRequest, map, of_map},
        record::Connection,
        upload::Upload,
    },
    Connections, Hold, Shared,
    lease::{Driven, Lease},
};

/// The right to send one request on a connection.
///
/// If it is dropped before anything was sent, the connection is given back. If it is dropped before an answer came, the
/// connection is closed. Later an HTTP/1.1 connection belongs to the body of its answer, and is given back when that was
/// read. For HTTP/2 it is a share of a connection, which is given back when the carrier is dropped.
pub(crate) struct Carrier {
    pub(super) home: Arc<Connections>,
    /// `None` only while it is being taken apart.
    pub(super) hold: Option<Hold>,
    pub(super) connection: Connection,
    /// The connection existed before and was not made for this call.
    pub(super) kept: bool,
    pub(super) sent: bool,
}

impl Carrier {
    /// The data of the connection for the log; `made` is set if it was made for this call.
    pub(crate) fn connection(&self) -> Connection {
        self.connection
    }

    /// Whether the connection existed before this call.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }

    /// Sends a request, and waits for the head of its answer.
    ///
    /// # Errors
    /// What went wrong.
    pub(crate) async fn send(
        &mut self,
        outgoing: Outgoing<'_>,
    ) -> Result<OriginAnswer, Unanswered> {
        self.sent = true;
        match &self.hold {
            Some(Hold::Own(_)) => self.send_http1(outgoing).await,
            Some(Hold::Share(share)) => Box::pin(self.send_http2(share, outgoing)).await,
            None => Err(given_back()),
        }
    }

    /// As [`send`](Self::send), on a shared connection.
    async fn send_http2(
        &self,
        share: &Arc<Shared>,
        outgoing: Outgoing<'_>,
    ) -> Result<OriginAnswer, Unanswered> {
        let origin = &self.home.route.origin;
        let request = outgoing.into_http2().map_err(|error| Unanswered {
            fault: Fault::unsent(Kind::BadRequest, format!("{origin}: {error}")),
            not_begun: false,
        })?;
        match share.sender.clone().try_send_request(request).await {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                Ok(OriginAnswer {
                    status: parts.status,
                    fields: headers::toward_caller(
                        || of_map(&parts.headers),
                        !body.is_end_stream(),
                    ),
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

    /// As [`send`](Self::send), on a connection of its own.
    async fn send_http1(&mut self, outgoing: Outgoing<'_>) -> Result<OriginAnswer, Unanswered> {
        let Some(Hold::Own(own)) = &mut self.hold else {
            return Err(given_back());
        };
        let OriginRequest {
            method,
            path,
            fields,
            says_length,
        } = outgoing.request;
        let with_ticket = outgoing.ticket.map(|ticket| {
            let mut fields = fields.copy(64);
            fields.push_read(own_call::HEADER.as_str(), ticket.as_bytes());
            fields
        });
        let lines = with_ticket.as_ref().unwrap_or(fields).lines();
        let length = outgoing.upload.size_hint().exact();
        let begun = own
            .client
            .begin(method, path.as_str(), lines, length, *says_length);
        let mut body = Some(outgoing.upload);
        let answered = match begun {
            Ok(()) => own.client.exchange(&mut body).await,
            Err(error) => Err(error),
        };
        match (answered, self.hold.take()) {
            (Ok(()), Some(Hold::Own(own))) => {
                let lease = Lease::new(self.home.clone(), own);
                let (status, fields) = match lease.head() {
                    // The parser takes nothing but three digits, the first of which is not 0.
                    Some(head) => (
                        StatusCode::from_u16(head.status()).unwrap_or(StatusCode::BAD_GATEWAY),
                        headers::toward_caller(|| head.fields().iter(), !lease.is_read()),
                    ),
                    None => return Err(given_back()),
                };
                let source = match body.filter(|_| lease.is_sending()) {
                    // The answer came first, and both sides go on.
                    Some(body) => Source::Driven(Driven::begin(lease, body)),
                    None => Source::Own(lease),
                };
                Ok(OriginAnswer {
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

/// A request for one try.
pub(crate) struct Outgoing<'r> {
    pub(crate) request: &'r OriginRequest,
    pub(crate) upload: Upload,
    pub(crate) host: &'r Host,
    /// The value of [`own_call::HEADER`].
    pub(crate) ticket: Option<HeaderValue>,
}

impl Outgoing<'_> {
    /// With an absolute URI, and what HTTP/2 has instead of fields left out (RFC 9113 §8.2.2, §8.3.1).
    fn into_http2(self) -> Result<Request<Upload>, InvalidUriParts> {
        let mut headers = map(self.request.fields.iter());
        headers.remove(HOST);
        headers.remove(CONNECTION);
        for (name, _) in &self.host.set_headers {
            // Then it is not stored in the header tables.
            if let Some(value) = headers.get_mut(name) {
                value.set_sensitive(true);
            }
        }
        if let Some(ticket) = self.ticket {
            headers.insert(own_call::HEADER, ticket);
        }
        let method = &self.request.method;
        if let Some(length) = self.upload.size_hint().exact() {
            // For methods that usually have a body, a length must be sent also if the body is empty (RFC 9110 §8.6).
            let usual = [Method::POST, Method::PUT, Method::PATCH].contains(method);
            if length > 0 || usual || self.request.says_length {
                headers.insert(CONTENT_LENGTH, length.into());
            }
        }
        let mut request = Request::new(self.upload);
        *request.method_mut() = method.clone();
        *request.uri_mut() = self.host.uri(&self.request.path)?;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// An answer whose head is here. Its fields are those for the caller.
pub(crate) struct OriginAnswer {
    pub(crate) status: StatusCode,
    pub(crate) fields: Fields,
    pub(crate) body: Received,
}

fn given_back() -> Unanswered {
    Unanswered {
        fault: Fault::unsent(Kind::Internal, "a connection that was given back"),
        not_begun: false,
    }
}

impl Drop for Carrier {
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
pub(crate) struct Unanswered {
    pub(crate) fault: Fault,
    /// The origin has not begun to process it, and has done nothing wrong: it can be repeated at once, whatever its
    /// method.
    pub(crate) not_begun: bool,
}

/// The body of an answer.
pub(crate) struct Received {
    source: Source,
    /// It broke off: this is reported next.
    broken: Option<Interrupted>,
}

pub(super) enum Source {
    /// Over HTTP/1.1, whose connection it reads itself.
    Own(Lease),
    /// Over HTTP/1.1, while the body of the request is still being sent.
    Driven(Driven),
    /// Over HTTP/2.
    Shared(Incoming),
}

/// Why the body of an answer ended too early.
#[derive(Debug)]
pub(crate) enum Interrupted {
    Http1(h1::Error),
    Http2(hyper::Error),
}

impl Blame for Interrupted {
    fn kind(&self) -> Kind {
        match self {
            Interrupted::Http1(error) => failure::of_answer(error),
            Interrupted::Http2(error) => failure::of_body(error),
        }
    }
}

impl Received {
    fn new(source: Source) -> Received {
        let broken = None;
        Received { source, broken }
    }

    /// The body, if all of it is here in one piece.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        match &mut self.source {
            Source::Own(lease) => lease.take_whole(),
            Source::Driven(_) | Source::Shared(_) => None,
        }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        let Received { source, broken } = self.get_mut();
        if let Some(error) = broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let frame = match source {
            Source::Own(lease) => lease.poll_frame(cx).map_err(Interrupted::Http1),
            Source::Driven(driven) => driven.poll_frame(cx).map_err(Interrupted::Http1),
            Source::Shared(body) => Pin::new(body).poll_frame(cx).map_err(Interrupted::Http2),
        };
        match frame {
            // hyper drops what it has not written when the body breaks off. What came before goes to the caller first.
            Poll::Ready(Some(Err(error))) => {
                *broken = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            frame => frame,
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(lease) => lease.is_read(),
            Source::Driven(driven) => driven.is_read(),
            Source::Shared(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let left = match &self.source {
            Source::Own(lease) => lease.left(),
            Source::Driven(driven) => driven.left(),
            Source::Shared(body) => return body.size_hint(),
        };
        left.map_or(SizeHint::default(), SizeHint::with_exact)
    }
}
