//! An HTTP/1.1 connection while an answer is read from it.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::h1;
use bytes::Bytes;
use http_body::Frame;
use tokio::{
    sync::mpsc::{self, OwnedPermit, error::SendError},
    task::AbortHandle,
};
use weir_http1::ResponseHead;
use weir_observe::clock;

use super::{Connections, Kept, RequestBody};

/// A connection whose answer is being read. When it is dropped, the connection is given back if the answer was read to its
/// end, and closed otherwise.
pub struct Lease<B: RequestBody> {
    home: Arc<Connections<B>>,
    /// `None` only while it is being dropped.
    own: Option<Box<Kept>>,
}

impl<B: RequestBody> Lease<B> {
    pub(super) fn new(home: Arc<Connections<B>>, own: Box<Kept>) -> Lease<B> {
        let own = Some(own);
        Lease { home, own }
    }

    /// Whether a part of the request is still to be sent.
    pub(super) fn is_sending(&self) -> bool {
        let own = self.own.as_ref();
        own.is_some_and(|own| own.client.is_sending())
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h1::Error>>> {
        match &mut self.own {
            Some(own) => own.client.poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    /// The head of the answer.
    pub(super) fn head(&self) -> Option<&ResponseHead> {
        self.own.as_ref().map(|own| own.client.head())
    }

    /// The body, if it has arrived completely and is one piece.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        self.own.as_mut()?.client.take_whole()
    }

    /// Whether all of the answer was read.
    pub(super) fn is_read(&self) -> bool {
        self.own.as_ref().is_none_or(|own| own.client.is_read())
    }

    /// How many bytes of the body are left, if it has a length.
    pub(super) fn left(&self) -> Option<u64> {
        match &self.own {
            Some(own) => own.client.left(),
            None => Some(0),
        }
    }
}

impl<B: RequestBody> Drop for Lease<B> {
    fn drop(&mut self) {
        let Some(mut own) = self.own.take() else {
            return;
        };
        match own.client.is_reusable() {
            true => {
                own.used = clock::now();
                self.home.given_back(own);
            }
            false => {
                drop(own);
                self.home.lost();
            }
        }
    }
}

/// An answer that began before all of its request was sent. A task reads the answer and sends the rest at the same time, so
/// that an origin that reads and answers at once, and a caller that sends before it reads, do not wait for each other.
pub struct Driven {
    frames: mpsc::Receiver<Piece>,
    /// How many bytes are left, if the body has a length.
    left: Option<u64>,
    is_over: bool,
    task: AbortHandle,
}

/// `None`: the end.
type Piece = Option<Result<Frame<Bytes>, h1::Error>>;

impl Driven {
    /// Continues to send `body`.
    pub(super) fn begin<B: RequestBody>(lease: Lease<B>, body: B) -> Driven {
        let (give, frames) = mpsc::channel(1);
        let (left, is_over) = (lease.left(), lease.is_read());
        let task = tokio::spawn(drive(lease, body, give)).abort_handle();
        Driven {
            frames,
            left,
            is_over,
            task,
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h1::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        // The task has failed if it ends before the body's end.
        let piece = ready!(self.frames.poll_recv(cx)).unwrap_or(Some(Err(h1::Error::Closed)));
        match &piece {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.left = self.left.map(|left| left.saturating_sub(bytes));
                self.is_over = self.left == Some(0) || frame.is_trailers();
            }
            Some(Err(_)) => {}
            None => self.is_over = true,
        }
        Poll::Ready(piece)
    }

    pub(super) fn is_read(&self) -> bool {
        self.is_over
    }

    pub(super) fn left(&self) -> Option<u64> {
        self.left
    }
}

impl Drop for Driven {
    /// If the answer was read, the task continues to send the request.
    fn drop(&mut self) {
        if !self.is_over {
            self.task.abort();
        }
    }
}

type Room = Pin<Box<dyn Future<Output = Result<OwnedPermit<Piece>, SendError<()>>> + Send>>;

/// Reads an answer for a [`Driven`], and sends the rest of the request.
async fn drive<B: RequestBody>(mut lease: Lease<B>, body: B, give: mpsc::Sender<Piece>) {
    let limit = lease.home.settings().timeout;
    let Some(own) = &mut lease.own else {
        return;
    };
    let mut body = Some(body);
    let mut room: Room = Box::pin(give.reserve_owned());
    let mut permit = None;
    let is_read = poll_fn(|cx| {
        if own.client.is_sending()
            && let Poll::Ready(Err(error)) = own.client.poll_send(cx, &mut body)
        {
            // The caller has stopped reading.
            if let Some(permit) = permit.take() {
                let permit: OwnedPermit<Piece> = permit;
                permit.send(Some(Err(error)));
            }
            return Poll::Ready(false);
        }
        loop {
            let free = match permit.take() {
                Some(free) => free,
                None => match ready!(room.as_mut().poll(cx)) {
                    Ok(free) => free,
                    // Nobody reads the answer.
                    Err(_) => return Poll::Ready(false),
                },
            };
            let Poll::Ready(piece) = own.client.poll_frame(cx) else {
                permit = Some(free);
                return Poll::Pending;
            };
            let is_last = !matches!(piece, Some(Ok(_)));
            let is_whole = piece.is_none();
            let give = free.send(piece);
            if is_last {
                return Poll::Ready(is_whole);
            }
            room = Box::pin(give.reserve_owned());
        }
    })
    .await;
    if is_read && own.client.is_sending() {
        let rest = poll_fn(|cx| own.client.poll_send(cx, &mut body));
        // The connection is closed if this fails.
        let _ = clock::in_time(rest, clock::deadline(limit)).await;
    }
}
