//! The body of a call on its way to the origin.
//!
//! A short body is read before a connection to the origin is requested. So a slow caller holds no connection, and the
//! call can be retried. A long body is passed on as it arrives. Its first part is kept until more than that is passed
//! on, so that a try that fails before can be repeated.

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
use weir_observe::clock;

use super::{
    fault::{Fault, Kind},
    reading::Gauge,
};

/// The body for the origin.
#[derive(Debug)]
pub(crate) enum Upload {
    /// The whole body; `None` if it is empty.
    Whole(Option<Bytes>),
    /// The beginning of the body; the rest has not arrived yet.
    Streamed(Streamed),
}

/// A streamed body, as one try uses it.
#[derive(Debug)]
pub(crate) struct Streamed {
    source: Arc<Source>,
    /// The number of the try; earlier tries get no more data.
    turn: u32,
    /// Bytes that were read before and are not passed on yet.
    begun: Option<Bytes>,
}

/// The body for another try.
pub(crate) enum Replay {
    Whole(Option<Bytes>),
    Streamed(Arc<Source>),
}

/// The source of a streamed body.
#[derive(Debug)]
pub(crate) struct Source {
    state: Mutex<SourceState>,
    progress: Arc<Progress>,
}

#[derive(Debug)]
struct SourceState {
    /// The first part; kept until more is passed on.
    begun: Bytes,
    rest: Incoming,
    /// The number of the latest try.
    turn: u32,
    /// Some of the rest was passed on, so no further try is possible.
    is_spent: bool,
}

/// The progress of a streamed body.
#[derive(Debug)]
pub(crate) struct Progress {
    /// When data was last passed on ([`clock::now`]).
    at: AtomicU64,
    bytes: AtomicU64,
    whole: AtomicBool,
    /// The next piece was requested, but the caller has not sent it.
    starved: AtomicBool,
    /// Of the caller's connection.
    gauge: Gauge,
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

    /// Whether the caller is the one that is waited for, not the origin.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved.load(Relaxed)
    }

    /// Number of bytes passed on.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl Upload {
    /// Reads the beginning of a body; `limit` is the time limit for each piece. `gauge`: of the caller's connection.
    ///
    /// # Errors
    /// If the caller is too slow or breaks off.
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
                        "no data of the request's body arrived for {} s",
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

    /// The body for another try.
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

    /// The length, if it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Upload::Whole(bytes) => Some(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Upload::Streamed(_) => None,
        }
    }
}

impl Replay {
    /// The body from its beginning, for another try; `None` if more was passed on than is kept. The earlier try gets
    /// no more data.
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
                // hyper does not ask for the end of a body with a known length.
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

/// Why a body ends too early.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The caller did not send it completely.
    Caller(hyper::Error),
    /// Another try has taken the body over.
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
        format!("the request's body ended too early: {error}"),
    )
}

/// A body of up to this many bytes is read first and can be sent again.
const REPLAYABLE: usize = 64 << 10;
