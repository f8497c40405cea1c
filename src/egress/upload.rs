//! The body of a call on its way to the origin.
//!
//! A short body is read before the origin is asked for a connection: a slow caller holds none, and the call can be
//! tried again. A long one is passed on as it comes, once.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::fault::{Fault, Kind};
use crate::clock;

/// A body toward the origin.
#[derive(Debug)]
pub(crate) enum Upload {
    /// All of it; none where it is empty.
    Whole(Option<Bytes>),
    /// Its beginning, and what is still to come.
    Streamed {
        begun: Option<Bytes>,
        rest: Incoming,
        progress: Arc<Progress>,
    },
}

/// How far a streamed body has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// When something was passed on last ([`clock::now`]).
    at: AtomicU64,
    bytes: AtomicU64,
    whole: AtomicBool,
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

    /// Bytes passed on.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl Upload {
    /// Reads the beginning of a body, `limit` µs for each piece of it.
    ///
    /// # Errors
    /// Where the caller is too slow, or breaks off.
    pub(crate) async fn begin(
        mut body: Incoming,
        limit: std::time::Duration,
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
                    // Trailers are not passed on.
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    read.extend_from_slice(&data);
                    if read.len() > REPLAYABLE {
                        let progress = Arc::new(Progress::default());
                        return Ok(Upload::Streamed {
                            begun: Some(read.freeze()),
                            rest: body,
                            progress,
                        });
                    }
                }
                Some(Err(error)) => return Err(broken(&error)),
            }
        }
        Ok(Upload::Whole((!read.is_empty()).then(|| read.freeze())))
    }

    /// Another one for another try; none where it can be sent only once.
    pub(crate) fn again(&self) -> Option<Upload> {
        match self {
            Upload::Whole(bytes) => Some(Upload::Whole(bytes.clone())),
            Upload::Streamed { .. } => None,
        }
    }

    /// How far it comes, where it is streamed.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        match self {
            Upload::Whole(_) => None,
            Upload::Streamed { progress, .. } => Some(progress.clone()),
        }
    }

    /// Its length where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Upload::Whole(bytes) => Some(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Upload::Streamed { .. } => None,
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Upload::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Upload::Streamed {
                begun,
                rest,
                progress,
            } => {
                if let Some(bytes) = begun.take() {
                    progress.passed(bytes.len());
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                let polled = Pin::new(&mut *rest).poll_frame(cx);
                match &polled {
                    Poll::Ready(Some(Ok(frame))) => {
                        progress.passed(frame.data_ref().map_or(0, Bytes::len));
                        // hyper does not ask for the end of a body whose length it knows.
                        if rest.is_end_stream() {
                            progress.whole.store(true, Relaxed);
                        }
                    }
                    Poll::Ready(None) => progress.whole.store(true, Relaxed),
                    Poll::Ready(Some(Err(_))) | Poll::Pending => {}
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Upload::Whole(bytes) => bytes.is_none(),
            Upload::Streamed { begun, rest, .. } => begun.is_none() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Upload::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Upload::Streamed { begun, rest, .. } => {
                let begun = begun.as_ref().map_or(0, |bytes| bytes.len() as u64);
                let mut hint = SizeHint::new();
                let rest = rest.size_hint();
                hint.set_lower(begun + rest.lower());
                if let Some(upper) = rest.upper() {
                    hint.set_upper(begun + upper);
                }
                hint
            }
        }
    }
}

impl Progress {
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
