//! The body of an answer, for any protocol: the parts that it is made of.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::StatusCode;
use weir_net::{OpenFile, Socket};

use super::Fields;

/// An answer before it is sent.
#[derive(Debug, Default)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: Fields,
    pub body: Body,
}

/// Where the bytes of an answer come from.
#[derive(Debug, Default)]
pub enum Body {
    /// No bytes.
    #[default]
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
pub type Tunnelled = Pin<Box<dyn Future<Output = ()>>>;

/// A part of an answer.
#[derive(Debug)]
pub enum Part {
    /// From memory.
    Bytes(Bytes),
    /// From a file that stays open until it is sent.
    File {
        file: Rc<OpenFile>,
        offset: u64,
        len: u64,
    },
    /// Fields after the body, as its last part. They are sent if the length was not known in advance.
    Trailers(Fields),
}

/// The source of a body that is made while it is sent.
pub trait Stream: fmt::Debug {
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

    /// Its first `most` bytes, and the rest if there is one.
    pub fn split(self, most: u64) -> (Part, Option<Part>) {
        if self.len() <= most {
            return (self, None);
        }
        match self {
            Part::Bytes(mut bytes) => {
                let rest = bytes.split_off(usize::try_from(most).unwrap_or(usize::MAX));
                (Part::Bytes(bytes), Some(Part::Bytes(rest)))
            }
            Part::File { file, offset, len } => {
                let rest = Part::File {
                    file: file.clone(),
                    offset: offset + most,
                    len: len - most,
                };
                let len = most;
                (Part::File { file, offset, len }, Some(rest))
            }
            Part::Trailers(_) => (self, None),
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
