//! The answer: status, headers, and a body that is in memory, in files, or comes from a worker.
//!
//! hyper writes the head and asks the body for chunks. A part of a file is a chunk without its bytes: the chunk's
//! memory is [`PLACEHOLDER`]. The connection (`client_io`) recognizes that address and sends the file itself with
//! sendfile(2). So a file of any size needs no memory and no copy.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http::{HeaderMap, StatusCode};
use http_body::{Frame, SizeHint};

use super::{
    client_io::Conn, open_file::OpenFile, read_ahead::ReadAhead, record::Record,
    stream::WorkerStream,
};

/// An answer before it is sent.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

/// Where the bytes of an answer come from.
#[derive(Debug)]
pub(crate) enum Body {
    /// No bytes.
    Empty,
    /// The whole body in memory.
    Bytes(Bytes),
    /// Memory and parts of files, in order; the length is known.
    Parts(VecDeque<Part>),
    /// A worker's response that is read ahead of the client.
    ReadAhead(ReadAhead),
    /// A worker's response that is passed on as it arrives.
    Stream(Box<WorkerStream>),
}

/// A part of an answer.
#[derive(Debug)]
pub(crate) enum Part {
    /// From memory.
    Bytes(Bytes),
    /// From a file that stays open until it is sent.
    File {
        file: Arc<OpenFile>,
        offset: u64,
        len: u64,
    },
}

/// The body ended too early; hyper then cuts the connection.
#[derive(Debug)]
pub(crate) struct Truncated;

/// The body that hyper gets: a [`Body`] that tells its connection what it hands to hyper.
#[derive(Debug)]
pub(crate) struct Outgoing {
    body: Body,
    /// Bytes still to send, if the answer has a known length.
    remaining: Option<u64>,
    conn: Arc<Conn>,
    record: Option<Box<Record>>,
}

/// A piece of a body that is passed to hyper.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// Bytes to be written.
    Bytes(Bytes),
    /// This many bytes of the first file in the connection's queue.
    File { remaining: usize },
}

/// The memory that stands for the bytes of a file. It is never written to a socket.
pub(crate) static PLACEHOLDER: [u8; 4096] = [0; 4096];

impl Body {
    /// The length, if it is known before the first byte is sent.
    pub(crate) fn len(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Bytes(bytes) => Some(bytes.len() as u64),
            Body::Parts(parts) => Some(parts.iter().map(Part::len).sum()),
            Body::ReadAhead(_) | Body::Stream(_) => None,
        }
    }
}

impl Part {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File { len, .. } => *len,
        }
    }

    /// Takes the next chunk from the front. Files go in slices, so that sent bytes can be counted.
    fn take(&mut self, conn: &Conn) -> Chunk {
        match self {
            Part::Bytes(bytes) => Chunk::Bytes(std::mem::take(bytes)),
            Part::File { file, offset, len } => {
                let now = (*len).min(FILE_SLICE);
                conn.queue_file(file.clone(), *offset, now as usize);
                *offset += now;
                *len -= now;
                Chunk::File {
                    remaining: now as usize,
                }
            }
        }
    }
}

impl Outgoing {
    /// A body for `conn`. `content_length` is the length from the answer's head, if the body itself does not know it.
    /// A body that ends earlier is an error; bytes beyond it are dropped.
    pub(crate) fn new(
        body: Body,
        content_length: Option<u64>,
        conn: Arc<Conn>,
        record: Box<Record>,
    ) -> Outgoing {
        let remaining = body.len().or(content_length);
        Outgoing {
            body,
            remaining,
            conn,
            record: Some(record),
        }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Truncated>>> {
        match &mut self.body {
            Body::Empty => Poll::Ready(None),
            Body::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                self.body = Body::Empty;
                Poll::Ready((!bytes.is_empty()).then_some(Ok(Chunk::Bytes(bytes))))
            }
            Body::Parts(parts) => {
                while parts.front().is_some_and(|part| part.len() == 0) {
                    parts.pop_front();
                }
                Poll::Ready(parts.front_mut().map(|part| Ok(part.take(&self.conn))))
            }
            Body::ReadAhead(reader) => reader
                .poll_part(cx)
                .map(|part| part.map(|part| part.map(|mut part| part.take(&self.conn)))),
            Body::Stream(stream) => stream
                .poll_bytes(cx)
                .map(|bytes| bytes.map(|bytes| bytes.map(Chunk::Bytes))),
        }
    }

    fn fail(&mut self) -> Truncated {
        if let Some(record) = &mut self.record {
            record.truncated();
        }
        self.body = Body::Empty;
        Truncated
    }
}

impl http_body::Body for Outgoing {
    type Data = Chunk;
    type Error = Truncated;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, Truncated>>> {
        let this = &mut *self;
        let mut chunk = match std::task::ready!(this.poll_chunk(cx)) {
            Some(Ok(chunk)) => chunk,
            Some(Err(Truncated)) => return Poll::Ready(Some(Err(this.fail()))),
            None if this.remaining.is_some_and(|left| left > 0) => {
                return Poll::Ready(Some(Err(this.fail())));
            }
            None => {
                this.remaining = Some(0);
                return Poll::Ready(None);
            }
        };
        if let Some(left) = &mut this.remaining {
            if chunk.remaining() as u64 > *left {
                // More than Content-Length announced: no byte beyond it is sent (RFC 9112 §6.3).
                chunk.truncate(*left as usize, &this.conn);
            }
            *left -= chunk.remaining() as u64;
            if *left == 0 {
                this.body = Body::Empty;
            }
        }
        if let Some(record) = &mut this.record {
            record.bytes_out += chunk.remaining() as u64;
        }
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        match (&self.body, self.remaining) {
            (Body::Empty, _) => true,
            (_, Some(left)) => left == 0,
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.remaining {
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            let complete = match self.remaining {
                Some(left) => left == 0 || record.bodyless(),
                None => record.bodyless(),
            };
            self.conn.answered(record, complete);
        }
    }
}

impl Chunk {
    fn truncate(&mut self, len: usize, conn: &Conn) {
        match self {
            Chunk::Bytes(bytes) => bytes.truncate(len),
            Chunk::File { remaining } => {
                conn.shorten_last_file(*remaining - len);
                *remaining = len;
            }
        }
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        match self {
            Chunk::Bytes(bytes) => bytes.len(),
            Chunk::File { remaining } => *remaining,
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Chunk::Bytes(bytes) => bytes,
            Chunk::File { remaining } => &PLACEHOLDER[..(*remaining).min(PLACEHOLDER.len())],
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Chunk::Bytes(bytes) => bytes.advance(count),
            Chunk::File { remaining } => *remaining -= count,
        }
    }
}

impl std::fmt::Display for Truncated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the response was cut off")
    }
}

impl std::error::Error for Truncated {}

/// The longest piece of a file that hyper gets at once. It is below hyper's limit for its write buffer, and long
/// enough for sendfile(2) to fill the socket's buffer with few calls.
pub(crate) const FILE_SLICE: u64 = 1 << 20;
