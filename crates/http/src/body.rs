//! Bodies in both directions, for any protocol: those of requests, and the parts that answers are made of.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::StatusCode;
use weir_net::{OpenFile, Socket};

use super::Fields;

/// An answer before it is sent.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: Fields,
    pub body: Body,
}

/// Where the bytes of an answer come from.
#[derive(Debug)]
pub enum Body {
    /// No bytes.
    Empty,
    /// The whole body in memory.
    Bytes(Bytes),
    /// Memory and parts of files, in order; the length is known.
    Parts(VecDeque<Part>),
    /// Made while it is sent.
    Stream(Box<dyn Stream>),
    /// For a 2xx answer to CONNECT: the bytes after the head are not HTTP.
    Tunnel(Tunnel),
}

/// Takes the client's stream once the head of the answer is sent, and the bytes that were read after the request. The
/// connection lasts as long as the future that it returns.
pub struct Tunnel(pub Box<dyn FnOnce(Socket, Vec<u8>) -> Tunnelled + Send>);

/// Runs a tunnel until it ends.
pub type Tunnelled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A part of an answer.
#[derive(Debug)]
pub enum Part {
    /// From memory.
    Bytes(Bytes),
    /// From a file that stays open until it is sent.
    File {
        file: Arc<OpenFile>,
        offset: u64,
        len: u64,
    },
    /// Fields after the body, as its last part. They are sent if the length was not known in advance.
    Trailers(Fields),
}

/// The source of a body that is made while it is sent.
pub trait Stream: fmt::Debug + Send {
    /// The next part; `None` at the end.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>>;
}

/// The body ended too early; the carrier then shows the client that it is not complete.
#[derive(Debug)]
pub struct Truncated;

impl Body {
    /// The length, if it is known before the first byte is sent.
    pub fn len(&self) -> Option<u64> {
        match self {
            Body::Empty | Body::Tunnel(_) => Some(0),
            Body::Bytes(bytes) => Some(bytes.len() as u64),
            Body::Parts(parts) => Some(parts.iter().map(Part::len).sum()),
            Body::Stream(_) => None,
        }
    }

    /// The next part, which is not empty; `None` at the end.
    pub fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        match self {
            Body::Empty | Body::Tunnel(_) => Poll::Ready(None),
            Body::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Body::Empty;
                Poll::Ready((!bytes.is_empty()).then_some(Ok(Part::Bytes(bytes))))
            }
            Body::Parts(parts) => loop {
                match parts.pop_front() {
                    Some(part) if part.len() == 0 => {}
                    part => return Poll::Ready(part.map(Ok)),
                }
            },
            Body::Stream(stream) => stream.poll_part(cx),
        }
    }
}

impl Part {
    pub fn len(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File { len, .. } => *len,
            Part::Trailers(_) => 0,
        }
    }

    /// Drops the bytes after the first `most`.
    pub fn truncate(&mut self, most: u64) {
        match self {
            Part::Bytes(bytes) => bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX)),
            Part::File { len, .. } => *len = (*len).min(most),
            Part::Trailers(_) => {}
        }
    }
}

/// The body of a request, for the steps that read it.
#[derive(Debug)]
pub struct RequestBody {
    /// `None`: there is no body.
    inlet: Option<Arc<Inlet>>,
    length: Option<u64>,
}

/// Between the carrier, which reads a body from its wire, and the steps, which take it. Both run in the task of the
/// connection: the carrier polls the steps again after it has put something here.
#[derive(Debug, Default)]
pub struct Inlet(Mutex<Incoming>);

#[derive(Debug, Default)]
struct Incoming {
    data: Vec<u8>,
    state: State,
    /// The steps wait for more.
    is_wanted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Open,
    Whole,
    Malformed,
}

/// The framing of a request body is wrong.
#[derive(Debug)]
pub struct Malformed;

impl RequestBody {
    /// Of a request without a body.
    pub fn none() -> RequestBody {
        RequestBody {
            inlet: None,
            length: Some(0),
        }
    }

    /// A body that comes through `inlet`. `length`: if it is known.
    pub fn new(inlet: Arc<Inlet>, length: Option<u64>) -> RequestBody {
        RequestBody {
            inlet: Some(inlet),
            length,
        }
    }

    /// Whether the request has no body.
    pub fn is_none(&self) -> bool {
        self.inlet.is_none()
    }

    /// Its length, if the request states it.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next bytes; `None` at the end. Only for the connection's task.
    pub fn poll_data(&mut self) -> Poll<Result<Option<Vec<u8>>, Malformed>> {
        let Some(inlet) = &self.inlet else {
            return Poll::Ready(Ok(None));
        };
        let mut incoming = inlet.lock();
        if !incoming.data.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut incoming.data))));
        }
        match incoming.state {
            State::Open => {
                incoming.is_wanted = true;
                Poll::Pending
            }
            State::Whole => Poll::Ready(Ok(None)),
            State::Malformed => Poll::Ready(Err(Malformed)),
        }
    }
}

impl Inlet {
    /// Whether the steps wait for more of the body.
    pub(crate) fn is_wanted(&self) -> bool {
        self.lock().is_wanted
    }

    /// Bytes have come.
    pub fn push(&self, bytes: &[u8]) {
        let mut incoming = self.lock();
        incoming.data.extend_from_slice(bytes);
        incoming.is_wanted = false;
    }

    /// The body is whole.
    pub fn end(&self) {
        self.settle(State::Whole);
    }

    /// The received bytes are not a valid body.
    pub fn fail(&self) {
        self.settle(State::Malformed);
    }

    fn settle(&self, state: State) {
        let mut incoming = self.lock();
        incoming.state = state;
        incoming.is_wanted = false;
    }

    fn lock(&self) -> MutexGuard<'_, Incoming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tunnel")
    }
}

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the response was cut off")
    }
}

impl std::error::Error for Truncated {}
