//! The body of a call, as it is sent to the origin.
//!
//! A short body is read before a connection to the origin is requested. So a slow caller does not
//! occupy a connection, and the call can be retried. A long body is passed on as it arrives. Its
//! first part is kept until more than that was passed on, so that an attempt that fails earlier can
//! be repeated.

use std::{
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use weir_observe::clock;

use super::fault::{Fault, Kind};
use weir_http::{self as carrier, Part, RequestBody, RequestState, Stream, Truncated};

/// The body for the origin.
#[derive(Debug)]
pub(crate) enum Upload {
    /// The whole body; `None` if it is empty.
    Whole(Option<Bytes>),
    /// The beginning of the body; the rest has not arrived yet.
    Streamed(Streamed),
}

/// A streamed body for one attempt.
#[derive(Debug)]
pub(crate) struct Streamed {
    source: Arc<Source>,
    /// The number of the attempt; earlier attempts get no more data.
    turn: u32,
    /// Bytes that were read before and are not passed on yet.
    begun: Option<Bytes>,
    /// How many bytes are left to be passed on, if the length is known.
    left: Option<u64>,
}

/// The body for a retry.
pub(crate) enum Replay {
    Whole(Option<Bytes>),
    Streamed(Arc<Source>),
}

/// The source of a streamed body. A [`Pump`] fills it.
#[derive(Debug)]
pub(crate) struct Source {
    state: Mutex<SourceState>,
    length: Option<u64>,
    progress: Arc<Progress>,
}

#[derive(Debug)]
struct SourceState {
    /// The first part; kept until more is passed on.
    begun: Bytes,
    /// The next piece of the rest.
    next: Option<Bytes>,
    /// How the body ended, after `next`.
    end: Option<End>,
    /// Wakers of the task that waits for a piece, and of the one that waits for room.
    reader: Option<Waker>,
    pump: Option<Waker>,
    /// The number of the latest attempt.
    turn: u32,
    /// Some of the rest was passed on, so no further attempt is possible.
    is_spent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Broken,
}

/// The progress of a streamed body.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// When data was last passed on ([`clock::now`]).
    at: AtomicU64,
    bytes: AtomicU64,
    whole: AtomicBool,
    /// The next piece was requested, but the caller has not sent it.
    starved: AtomicBool,
}

impl Progress {
    /// When data was last passed on; 0: nothing yet.
    pub(crate) fn at(&self) -> u64 {
        self.at.load(Relaxed)
    }

    /// Whether all of it was passed on.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.load(Relaxed)
    }

    /// Whether the upload waits for the caller, not for the origin.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved.load(Relaxed)
    }

    /// Number of bytes passed on.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    fn passed(&self, bytes: usize) {
        self.at.store(clock::precise(), Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

impl Upload {
    /// Reads the beginning of a body; `limit` is the time limit for each piece. A pump is returned if there is more: it
    /// has to be polled as long as the call lasts.
    ///
    /// # Errors
    /// If the caller is too slow or stops sending.
    pub(crate) async fn begin(
        mut body: RequestBody,
        limit: Duration,
        caller: &Rc<RequestState>,
    ) -> Result<(Upload, Option<Pump>), Fault> {
        if body.is_none() {
            caller.watch_client();
            return Ok((Upload::Whole(None), None));
        }
        let mut read = Vec::new();
        loop {
            let piece = poll_fn(|_| body.poll_data());
            let Some(piece) = clock::in_time(piece, clock::deadline(limit)).await else {
                return Err(Fault::unsent(
                    Kind::SlowCaller,
                    format!(
                        "no data of the request's body arrived for {} s",
                        limit.as_secs()
                    ),
                ));
            };
            match piece {
                Ok(None) => break,
                Ok(Some(data)) if read.is_empty() => read = data,
                Ok(Some(data)) => read.extend_from_slice(&data),
                Err(_) => {
                    let what = "the request's body is malformed or ended too early";
                    return Err(Fault::unsent(Kind::BadBody, what));
                }
            }
            if read.len() > REPLAYABLE {
                let begun = Bytes::from(read);
                let length = body.length();
                let source = Arc::new(Source {
                    state: Mutex::new(SourceState {
                        begun: begun.clone(),
                        next: None,
                        end: None,
                        reader: None,
                        pump: None,
                        turn: 0,
                        is_spent: false,
                    }),
                    length,
                    progress: Arc::default(),
                });
                let pump = Pump {
                    source: source.clone(),
                    body,
                    caller: caller.clone(),
                };
                let streamed = Streamed {
                    source,
                    turn: 0,
                    begun: Some(begun),
                    left: length,
                };
                return Ok((Upload::Streamed(streamed), Some(pump)));
            }
        }
        caller.watch_client();
        let whole = (!read.is_empty()).then(|| Bytes::from(read));
        Ok((Upload::Whole(whole), None))
    }

    /// The body for a retry.
    pub(crate) fn replay(&self) -> Replay {
        match self {
            Upload::Whole(bytes) => Replay::Whole(bytes.clone()),
            Upload::Streamed(streamed) => Replay::Streamed(streamed.source.clone()),
        }
    }

    /// The progress, if the body is streamed.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        match self {
            Upload::Whole(_) => None,
            Upload::Streamed(streamed) => Some(streamed.source.progress.clone()),
        }
    }

    /// The length, if the whole body is here.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Upload::Whole(bytes) => Some(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Upload::Streamed(_) => None,
        }
    }
}

impl Replay {
    /// The body from its beginning, for another attempt; `None` if more was passed on than is kept.
    /// The earlier attempt gets no more data.
    pub(crate) fn next(&self) -> Option<Upload> {
        match self {
            Replay::Whole(bytes) => Some(Upload::Whole(bytes.clone())),
            Replay::Streamed(source) => {
                let mut state = source.state();
                if state.is_spent {
                    return None;
                }
                state.turn += 1;
                source.progress.bytes.store(0, Relaxed);
                Some(Upload::Streamed(Streamed {
                    source: source.clone(),
                    turn: state.turn,
                    begun: Some(state.begun.clone()),
                    left: source.length,
                }))
            }
        }
    }
}

impl Source {
    fn state(&self) -> MutexGuard<'_, SourceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the next piece or the end, and wakes who waits for it.
    fn put(&self, change: impl FnOnce(&mut SourceState)) {
        let reader = {
            let mut state = self.state();
            change(&mut state);
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// Reads the rest of a streamed body from the caller's connection, in the task of that connection,
/// one piece ahead of the sender. If it is dropped before the end, the body is incomplete.
#[derive(Debug)]
pub(crate) struct Pump {
    source: Arc<Source>,
    body: RequestBody,
    caller: Rc<RequestState>,
}

impl Pump {
    /// Reads the available bytes for which there is room.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        loop {
            {
                let mut state = self.source.state();
                if state.end.is_some() {
                    return;
                }
                if state.next.is_some() {
                    state.pump = Some(cx.waker().clone());
                    return;
                }
            }
            match self.body.poll_data() {
                Poll::Pending => return,
                Poll::Ready(Ok(Some(data))) => {
                    self.source.put(|state| state.next = Some(data.into()));
                }
                Poll::Ready(ended) => {
                    // From now on only the end of the caller's connection is expected.
                    self.caller.watch_client();
                    self.source.put(|state| {
                        state.end = Some(match ended {
                            Ok(_) => End::Whole,
                            Err(_) => End::Broken,
                        });
                    });
                }
            }
        }
    }

    /// Runs the pump while `answer` is sent.
    pub(crate) fn beside(self, answer: Box<dyn Stream>) -> carrier::Body {
        carrier::Body::Stream(Box::new(Pumped { answer, pump: self }))
    }

    /// Waits for `work`, and runs the pump meanwhile.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.poll(cx);
            work.as_mut().poll(cx)
        })
        .await
    }
}

/// An answer that is sent while its caller still sends the body of the call.
#[derive(Debug)]
struct Pumped {
    answer: Box<dyn Stream>,
    pump: Pump,
}

impl Stream for Pumped {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        self.pump.poll(cx);
        self.answer.poll_part(cx)
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.source.put(|state| {
            state.end.get_or_insert(End::Broken);
        });
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Upload::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Upload::Streamed(streamed) => streamed.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Upload::Whole(bytes) => bytes.is_none(),
            Upload::Streamed(streamed) => streamed.left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Upload::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Upload::Streamed(streamed) => {
                let left = streamed.left;
                left.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}

impl Streamed {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let progress = &self.source.progress;
        let mut state = self.source.state();
        if state.turn != self.turn {
            return Poll::Ready(Some(Err(Broken::Superseded)));
        }
        let (piece, pump) = match self.begun.take() {
            Some(begun) => (begun, None),
            None => {
                progress.starved.store(state.next.is_none(), Relaxed);
                match (state.next.take(), state.end) {
                    (Some(piece), _) => {
                        (state.is_spent, state.begun) = (true, Bytes::new());
                        (piece, state.pump.take())
                    }
                    (None, Some(End::Whole)) => {
                        progress.whole.store(true, Relaxed);
                        return Poll::Ready(None);
                    }
                    (None, Some(End::Broken)) => {
                        return Poll::Ready(Some(Err(Broken::Caller)));
                    }
                    (None, None) => {
                        state.reader = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                }
            }
        };
        drop(state);
        progress.passed(piece.len());
        self.left = self
            .left
            .map(|left| left.saturating_sub(piece.len() as u64));
        // The end of a body with a known length is not polled.
        if self.left == Some(0) {
            progress.whole.store(true, Relaxed);
        }
        if let Some(pump) = pump {
            pump.wake();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

/// Why a body ends too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The caller did not send it completely.
    Caller,
    /// Another attempt has taken the body over.
    Superseded,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::Caller => "the caller did not send it completely",
            Broken::Superseded => "it is sent over another connection",
        })
    }
}

impl std::error::Error for Broken {}

/// A body of up to this many bytes is read first and can be sent again.
const REPLAYABLE: usize = 64 << 10;
