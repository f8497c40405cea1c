//! Reads an answer into the cache and passes it on at the same time.
//!
//! A separate task reads as fast as the origin sends. So a caller that reads slowly, or leaves while others wait for
//! the same answer, blocks neither the origin's connection nor the others. The bytes count towards the limit of the
//! cache. If the answer becomes too long for that, the task gives the rest back to the caller's side, which reads it
//! at its own pace.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::{
    super::{
        body::{BodyError, Source},
        fault::Kind,
    },
    Cache,
    flight::{Failure, Journey, Leader, Stage},
    question::Question,
    stored::Stored,
};

/// An answer that is stored when its body is complete.
pub(super) struct Keeping {
    pub(super) cache: Arc<Cache>,
    pub(super) question: Arc<Question>,
    pub(super) stored: Stored,
    pub(super) journey: Journey,
    /// Other calls may wait for it.
    pub(super) leader: Option<Leader>,
    pub(super) room: Reservation,
}

/// Reserved room in the cache. Dropping it frees the room.
pub(super) struct Reservation {
    cache: Arc<Cache>,
    bytes: u64,
}

/// The caller's side.
pub(crate) struct Filling {
    fill: Arc<Fill>,
    /// Index of the next piece.
    next: usize,
    /// The rest that the task gave back.
    rest: Option<Source>,
    length: Option<u64>,
}

#[derive(Default)]
struct Fill {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pieces: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    end: Option<End>,
    /// Wakers of the caller's side and of the task.
    reader: Option<Waker>,
    pump: Option<Waker>,
    reader_left: bool,
}

enum End {
    Whole,
    Cut(Kind),
    /// The caller's side reads the rest, and nothing is stored.
    Rest(Option<Source>),
}

impl Reservation {
    /// `None` if there is not enough room.
    pub(super) fn new(cache: &Arc<Cache>, bytes: u64) -> Option<Reservation> {
        let reserved = cache.store().reserve(bytes);
        reserved.then(|| Reservation {
            cache: cache.clone(),
            bytes,
        })
    }

    /// Enlarges it if necessary.
    fn hold(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let held = more == 0 || self.cache.store().reserve(more);
        if held {
            self.bytes += more;
        }
        held
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.cache.store().give_back(self.bytes);
    }
}

/// Starts reading. Returns the caller's side, or `None` if the caller does not read the body and it is only stored.
pub(super) fn begin(source: Source, keeping: Keeping, is_read: bool) -> Option<Filling> {
    let length = source.size_hint().exact();
    let fill = Arc::new(Fill::default());
    let pump = Pump {
        fill: fill.clone(),
        source,
        base: keeping.stored.cost(),
        keeping: Some(keeping),
        taken: 0,
    };
    if pump.source.is_end_stream() {
        // Nobody reads what is empty, as that of a 204 or a redirect, so the task would see only that the caller has left.
        pump.keep();
    } else {
        tokio::spawn(pump.run());
    }
    is_read.then(|| Filling {
        fill,
        next: 0,
        rest: None,
        length,
    })
}

/// The reading task.
struct Pump {
    fill: Arc<Fill>,
    source: Source,
    /// `None` when it has ended.
    keeping: Option<Keeping>,
    /// Size of everything but the body, and the size of the part of the body that has arrived.
    base: u64,
    taken: u64,
}

impl Pump {
    async fn run(mut self) {
        loop {
            let frame = poll_fn(|cx| match self.is_unwanted(cx) {
                true => Poll::Ready(None),
                false => self.source.poll_frame(cx).map(Some),
            });
            match frame.await {
                None => return self.end(End::Cut(Kind::Terminated), Stage::Apart),
                Some(Some(Ok(frame))) => {
                    if !self.take(frame) {
                        let rest = std::mem::replace(&mut self.source, Source::Empty);
                        return self.end(End::Rest(Some(rest)), Stage::Apart);
                    }
                    if self.source.is_end_stream() {
                        return self.keep();
                    }
                }
                Some(Some(Err(error))) => {
                    let failure = Failure::Cut(error.0);
                    return self.end(End::Cut(error.0), Stage::Failed(failure));
                }
                Some(None) => return self.keep(),
            }
        }
    }

    /// Whether the caller has left and no other call waits.
    fn is_unwanted(&self, cx: &Context<'_>) -> bool {
        let mut state = self.fill.state();
        let leader = self
            .keeping
            .as_ref()
            .and_then(|keeping| keeping.leader.as_ref());
        if state.reader_left && !leader.is_some_and(Leader::is_followed) {
            return true;
        }
        if !state
            .pump
            .as_ref()
            .is_some_and(|own| own.will_wake(cx.waker()))
        {
            state.pump = Some(cx.waker().clone());
        }
        false
    }

    /// Stores one more piece. False: it is more than may be stored, and the caller's side continues from here.
    fn take(&mut self, frame: Frame<Bytes>) -> bool {
        let fits = match frame.into_data() {
            Ok(data) => self.take_data(data),
            Err(frame) => {
                // Trailers are passed to this caller, but not stored (RFC 9111 §3.1).
                self.fill.state().trailers = frame.into_trailers().ok();
                true
            }
        };
        if fits {
            self.fill.wake_reader();
        }
        fits
    }

    fn take_data(&mut self, data: Bytes) -> bool {
        self.taken += data.len() as u64;
        let pieces = {
            let mut state = self.fill.state();
            state.pieces.push(data);
            state.pieces.len() as u64 * PIECE
        };
        let taken = self.taken;
        let bytes = self.base + taken + pieces;
        // The room belongs to the cache, which has its own lock. The two locks are never held together.
        self.keeping.as_mut().is_some_and(|keeping| {
            taken <= keeping.cache.max_object
                && pieces <= taken / 2 + CRUMBS
                && keeping.room.hold(bytes)
        })
    }

    /// The body is complete.
    fn keep(mut self) {
        let Some(keeping) = self.keeping.take() else {
            return;
        };
        // Copied to the exact size: the pieces are parts of larger buffers.
        let mut body = Vec::with_capacity(self.taken as usize);
        let mut state = self.fill.state();
        for piece in &state.pieces {
            body.extend_from_slice(piece);
        }
        let body = Bytes::from(body);
        let mut at = 0;
        for piece in &mut state.pieces {
            let len = piece.len();
            *piece = body.slice(at..at + len);
            at += len;
        }
        drop(state);
        let stored = Arc::new(keeping.stored.with_body(body));
        drop(keeping.room);
        let kept = keeping
            .cache
            .store()
            .keep(&keeping.question, stored, keeping.journey.since());
        if let Some(leader) = keeping.leader {
            leader.ends(if kept { Stage::Kept } else { Stage::Apart });
        }
        self.fill.end(End::Whole);
    }

    fn end(mut self, end: End, stage: Stage) {
        if let Some(leader) = self.keeping.take().and_then(|keeping| keeping.leader) {
            leader.ends(stage);
        }
        self.fill.end(end);
    }
}

/// For the case that the task ends because its thread ends.
impl Drop for Pump {
    fn drop(&mut self) {
        if self.keeping.take().is_some() {
            self.fill.end(End::Cut(Kind::Terminated));
        }
    }
}

impl Fill {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, end: End) {
        self.state().end = Some(end);
        self.wake_reader();
    }

    /// Wakes the caller's side if it waits, without holding the lock.
    fn wake_reader(&self) {
        let reader = self.state().reader.take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Filling {
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.rest.is_none() {
            let next = ready!(self.poll_filled(cx));
            let Some(rest) = next else {
                return Poll::Ready(None);
            };
            match rest {
                Ok(Next::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(Next::Rest(rest)) => self.rest = Some(rest),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        match &mut self.rest {
            Some(rest) => rest.poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn poll_filled(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Next, BodyError>>> {
        let mut state = self.fill.state();
        let is_kept = !matches!(state.end, Some(End::Rest(_)));
        if let Some(piece) = state.pieces.get_mut(self.next) {
            self.next += 1;
            let piece = match is_kept {
                true => piece.clone(),
                false => std::mem::take(piece),
            };
            return Poll::Ready(Some(Ok(Next::Frame(Frame::data(piece)))));
        }
        if let Some(End::Whole) = state.end
            && let Some(trailers) = state.trailers.take()
        {
            let frame = Frame::trailers(trailers);
            return Poll::Ready(Some(Ok(Next::Frame(frame))));
        }
        match &mut state.end {
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(End::Whole) => Poll::Ready(None),
            Some(End::Cut(kind)) => Poll::Ready(Some(Err(BodyError(*kind)))),
            Some(End::Rest(rest)) => Poll::Ready(rest.take().map(|rest| Ok(Next::Rest(rest)))),
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        if let Some(rest) = &self.rest {
            return rest.is_end_stream();
        }
        let state = self.fill.state();
        let is_whole = matches!(state.end, Some(End::Whole)) && state.trailers.is_none();
        is_whole && self.next == state.pieces.len()
    }

    /// Size of the whole body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.length
            .map_or(SizeHint::default(), SizeHint::with_exact)
    }
}

enum Next {
    Frame(Frame<Bytes>),
    Rest(Source),
}

impl Drop for Filling {
    fn drop(&mut self) {
        let mut state = self.fill.state();
        state.reader_left = true;
        if let Some(pump) = state.pump.take() {
            pump.wake();
        }
    }
}

/// Approximate memory of a piece besides its bytes.
const PIECE: u64 = 64;

/// How much memory small pieces may waste, bytes: an origin that sends single bytes must not displace the whole
/// cache.
const CRUMBS: u64 = 64 << 10;
