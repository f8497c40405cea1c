//! The body of a call on its way to the origin.
//!
//! A short body is read before the origin is asked for a connection: a slow caller holds none, and the call can be
//! tried again. A long one is passed on as it comes; what was read of it first is kept until more is passed on, so that a
//! try that came to nothing before that can be followed by another.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::{
    fault::{Fault, Kind},
    reading::Gauge,
};
use crate::clock;

/// A body toward the origin.
#[derive(Debug)]
pub(crate) enum Upload {
    /// All of it; none where it is empty.
    Whole(Option<Bytes>),
    /// Its beginning, and what is still to come.
    Streamed(Streamed),
}

/// One try's hold of a streamed body.
#[derive(Debug)]
pub(crate) struct Streamed {
    source: Arc<Source>,
    /// Which try; an earlier one gets nothing any more.
    turn: u32,
    /// What was read before, and is not passed on yet.
    begun: Option<Bytes>,
}

/// What another try is made of.
pub(crate) enum Replay {
    Whole(Option<Bytes>),
    Streamed(Arc<Source>),
}

/// Where a streamed body comes from.
#[derive(Debug)]
pub(crate) struct Source {
    state: Mutex<SourceState>,
    progress: Arc<Progress>,
}

#[derive(Debug)]
struct SourceState {
    /// What was read first; kept until more is passed on.
    begun: Bytes,
    rest: Incoming,
    /// The latest try.
    turn: u32,
    /// Something of the rest was passed on: there is no second try.
    is_spent: bool,
}

/// How far a streamed body has come.
#[derive(Debug)]
pub(crate) struct Progress {
    /// When something was passed on last ([`clock::now`]).
    at: AtomicU64,
    bytes: AtomicU64,
    whole: AtomicBool,
    /// The next piece was asked for, and the caller has not sent it.
    starved: AtomicBool,
    /// Of the caller's connection.
    gauge: Gauge,
}

impl Progress {
    /// When something was passed on last; 0: nothing yet.
    pub(crate) fn at(&self) -> u64 {
        self.at.load(Relaxed)
    }

    /// All of it was passed on.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.load(Relaxed)
    }

    /// It is the caller who is waited for, and not the origin.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved.load(Relaxed)
    }

    /// Bytes passed on.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl Upload {
    /// Reads the beginning of a body, `limit` for each piece of it. `gauge`: of the caller's connection.
    ///
    /// # Errors
    /// Where the caller is too slow, or breaks off.
    pub(crate) async fn begin(
        mut body: Incoming,
        limit: Duration,
        gauge: &Gauge,
    ) -> Result<Upload, Fault> {
        let mut read = BytesMut::new();
        while !body.is_end_stream() {
            let Some(frame) = clock::in_time(body.frame(), clock::deadline(limit)).await else {
                return Err(Fault::unsent(
                    Kind::SlowCaller,
                    format!(
                        "nothing of the request's body came for {} s",
                        limit.as_secs()
                    ),
                ));
            };
            match frame {
                None => break,
                Some(Ok(frame)) => {
                    gauge.progress();
                    // Trailers are not passed on.
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    read.extend_from_slice(&data);
                    if read.len() > REPLAYABLE {
                        let begun = read.freeze();
                        let source = Arc::new(Source {
                            state: Mutex::new(SourceState {
                                begun: begun.clone(),
                                rest: body,
                                turn: 0,
                                is_spent: false,
                            }),
                            progress: Arc::new(Progress::new(gauge)),
                        });
                        return Ok(Upload::Streamed(Streamed {
                            source,
                            turn: 0,
                            begun: Some(begun),
                        }));
                    }
                }
                Some(Err(error)) => return Err(broken(&error)),
            }
        }
        Ok(Upload::Whole((!read.is_empty()).then(|| read.freeze())))
    }

    /// For another try.
    pub(crate) fn replay(&self) -> Replay {
        match self {
            Upload::Whole(bytes) => Replay::Whole(bytes.clone()),
            Upload::Streamed(streamed) => Replay::Streamed(streamed.source.clone()),
        }
    }

    /// How far it comes, where it is streamed.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        match self {
            Upload::Whole(_) => None,
            Upload::Streamed(streamed) => Some(streamed.source.progress.clone()),
        }
    }

    /// Its length where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Upload::Whole(bytes) => Some(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Upload::Streamed(_) => None,
        }
    }
}

impl Replay {
    /// The body from its beginning, for another try; none: more of it was passed on than is kept. The try before gets
    /// nothing of it any more.
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
                }))
            }
        }
    }
}

impl Source {
    fn state(&self) -> MutexGuard<'_, SourceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            Upload::Streamed(streamed) => {
                streamed.begun.is_none() && streamed.source.state().rest.is_end_stream()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Upload::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Upload::Streamed(streamed) => {
                let begun = streamed.begun.as_ref();
                let begun = begun.map_or(0, |bytes| bytes.len() as u64);
                let mut hint = SizeHint::new();
                let rest = streamed.source.state().rest.size_hint();
                hint.set_lower(begun + rest.lower());
                if let Some(upper) = rest.upper() {
                    hint.set_upper(begun + upper);
                }
                hint
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
        if let Some(bytes) = self.begun.take() {
            progress.passed(bytes.len());
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let polled = Pin::new(&mut state.rest).poll_frame(cx);
        progress.starved.store(polled.is_pending(), Relaxed);
        match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => {
                progress.passed(frame.data_ref().map_or(0, Bytes::len));
                progress.gauge.progress();
                (state.is_spent, state.begun) = (true, Bytes::new());
                // hyper does not ask for the end of a body whose length it knows.
                if state.rest.is_end_stream() {
                    progress.whole.store(true, Relaxed);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                progress.whole.store(true, Relaxed);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(Broken::Caller(error)))),
        }
    }
}

/// Why a body ends before its end.
#[derive(Debug)]
pub(crate) enum Broken {
    /// It did not come from its caller.
    Caller(hyper::Error),
    /// Another try has taken it over.
    Superseded,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Caller(error) => error.fmt(f),
            Broken::Superseded => f.write_str("it is sent over another connection"),
        }
    }
}

impl std::error::Error for Broken {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Broken::Caller(error) => error.source(),
            Broken::Superseded => None,
        }
    }
}

impl Progress {
    fn new(gauge: &Gauge) -> Progress {
        Progress {
            at: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            whole: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            gauge: gauge.clone(),
        }
    }

    fn passed(&self, bytes: usize) {
        self.at.store(clock::precise(), Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

fn broken(error: &hyper::Error) -> Fault {
    Fault::unsent(
        Kind::BadBody,
        format!("the request's body broke off: {error}"),
    )
}

/// A body up to this length is read first, and can be sent again, bytes.
const REPLAYABLE: usize = 64 << 10;
