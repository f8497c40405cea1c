//! The right to send one request on a connection, and the result of the request.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::{
    super::{
        failure,
        fault::{Fault, Kind},
        headers,
        reading::Gauge,
        record::Connection,
        upload::Upload,
    },
    Connections, Hold,
};
use crate::clock;

/// The right to send one request on a connection.
///
/// If it is dropped before anything was sent, the connection is given back. If it is dropped later, the connection is
/// closed, unless [`Carrier::done`] was called. For HTTP/2 it is a share of a connection.
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

    /// Sends a request, and waits for the head of its answer. `request` has an absolute URI; for HTTP/1.1 only its
    /// path is sent.
    ///
    /// # Errors
    /// What went wrong.
    pub(crate) async fn send(
        &mut self,
        mut request: Request<Upload>,
    ) -> Result<Response<Received>, Unanswered> {
        self.sent = true;
        headers::for_protocol(request.headers_mut(), self.connection.protocol);
        let sent = match &mut self.hold {
            Some(Hold::Own(own)) => {
                to_origin_form(&mut request);
                own.sender.try_send_request(request).await
            }
            Some(Hold::Share(share)) => {
                *request.version_mut() = http::Version::HTTP_2;
                share.sender.clone().try_send_request(request).await
            }
            None => {
                return Err(Unanswered {
                    fault: Fault::unsent(Kind::Internal, "a connection that was given back"),
                    not_begun: false,
                });
            }
        };
        match sent {
            Ok(response) => {
                let gauge = match &self.hold {
                    Some(Hold::Own(own)) => Some(own.gauge.clone()),
                    _ => None,
                };
                if let Some(gauge) = &gauge {
                    gauge.progress();
                }
                Ok(response.map(|body| Received { body, gauge }))
            }
            Err(mut error) => {
                let handed_back = error.take_message().is_some();
                let error = error.error();
                let protocol = self.connection.protocol;
                let not_begun = failure::is_not_begun(error, handed_back, protocol);
                let origin = &self.home.route.origin;
                let fault = failure::of_call(origin, error, handed_back || not_begun);
                if let Some(Hold::Share(share)) = &self.hold
                    && !failure::is_of_stream(error)
                {
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

    /// The answer was read to its end: the connection can take the next call.
    pub(crate) fn done(mut self) {
        match self.hold.take() {
            Some(Hold::Own(mut own)) => {
                own.used = clock::now();
                let home = self.home.clone();
                // hyper's task may not have seen the end yet that the reader of the answer has seen.
                match own.sender.is_ready() {
                    true => home.given_back(own),
                    false => drop(tokio::spawn(async move {
                        match own.sender.ready().await {
                            Ok(()) => home.given_back(own),
                            Err(_) => home.lost(),
                        }
                    })),
                }
            }
            Some(Hold::Share(share)) => self.home.returned(&share),
            None => {}
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        match self.hold.take() {
            Some(Hold::Own(own)) if !self.sent && own.sender.is_ready() => {
                self.home.given_back(own)
            }
            // Dropping the sender closes the connection.
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

/// The body of an answer. Each piece counts as progress of its connection.
pub(crate) struct Received {
    body: Incoming,
    /// `None` for HTTP/2.
    gauge: Option<Gauge>,
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Received { body, gauge } = self.get_mut();
        let polled = Pin::new(body).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(_))), Some(gauge)) = (&polled, gauge) {
            gauge.progress();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// `https://host/path` → `/path`, the form for an origin in HTTP/1.1 (RFC 9112 §3.2.1).
fn to_origin_form(request: &mut Request<Upload>) {
    let path = mem::take(request.uri_mut()).into_parts().path_and_query;
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = path;
    // A path alone is a valid URI.
    *request.uri_mut() = http::Uri::from_parts(parts).unwrap_or_default();
}
