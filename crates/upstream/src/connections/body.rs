//! The body of an origin's answer.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{
    RequestBody,
    lease::{Driven, Lease},
};
use crate::{failure, fault::Kind, h1};

/// The body of an answer.
pub struct Received<B: RequestBody> {
    source: Source<B>,
    /// The body ended early: this is reported next.
    broken: Option<Interrupted>,
}

pub(super) enum Source<B: RequestBody> {
    /// Over HTTP/1.1, whose connection it reads itself.
    Own(Lease<B>),
    /// Over HTTP/1.1, while the body of the request is still being sent.
    Driven(Driven),
    /// Over HTTP/2.
    Shared(Incoming),
}

/// Why the body of an answer ended too early.
#[derive(Debug)]
pub enum Interrupted {
    Http1(h1::Error),
    Http2(hyper::Error),
}

impl Interrupted {
    /// Whose fault it is.
    pub fn kind(&self) -> Kind {
        match self {
            Interrupted::Http1(error) => failure::of_answer(error),
            Interrupted::Http2(error) => failure::of_body(error),
        }
    }
}

impl<B: RequestBody> Received<B> {
    pub(super) fn new(source: Source<B>) -> Received<B> {
        let broken = None;
        Received { source, broken }
    }

    /// The body, if all of it is here in one piece.
    pub fn take_whole(&mut self) -> Option<Bytes> {
        match &mut self.source {
            Source::Own(lease) => lease.take_whole(),
            Source::Driven(_) | Source::Shared(_) => None,
        }
    }
}

impl<B: RequestBody> Body for Received<B> {
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
            // If the body ends early, hyper drops what it has not written. So the caller gets the
            // earlier data first.
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
