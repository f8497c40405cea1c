//! The body of an answer, for any protocol: the parts that it is made of, and how they end.
//!
//! ```text
//! Body ─► BodyParts: a part, a part … its end ─► carrier: frames and writes them
//! ```

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::StatusCode;
use weir_net::{FilePart, Socket};

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
    /// For a 2xx answer to CONNECT, and for 101: the bytes after the head are not HTTP.
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
    File(FilePart),
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

/// A body that is being sent. It gives no byte beyond the announced length (RFC 9112 §6.3), and is truncated if it ends earlier.
#[derive(Debug)]
pub struct BodyParts {
    /// Freed at its end.
    body: Body,
    /// Bytes that are still to be taken from it, if the answer has a known length.
    left: Option<u64>,
    end: Option<BodyEnd>,
    /// Behind the body.
    trailers: Option<Fields>,
}

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    Whole,
    Truncated,
}

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

impl BodyParts {
    /// `length`: of the body, if it is known.
    pub fn new(body: Body, length: Option<u64>) -> BodyParts {
        BodyParts {
            body,
            left: length,
            end: None,
            trailers: None,
        }
    }

    /// The parts of an answer without a body.
    pub(crate) fn none() -> BodyParts {
        BodyParts {
            end: Some(BodyEnd::Whole),
            ..BodyParts::new(Body::Empty, Some(0))
        }
    }

    /// The next part, which is not empty, and not trailers; `None` at the end of the body ([`Self::end`]).
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        while self.end.is_none() {
            if self.left == Some(0) {
                self.end_as(BodyEnd::Whole);
                break;
            }
            match ready!(self.body.poll_part(cx)) {
                Some(Ok(Part::Trailers(fields))) if self.left.is_none() => {
                    self.trailers = Some(fields);
                    self.end_as(BodyEnd::Whole);
                }
                None if self.left.is_none() => self.end_as(BodyEnd::Whole),
                None | Some(Err(Truncated) | Ok(Part::Trailers(_))) => self.cut(),
                Some(Ok(mut part)) => {
                    if let Some(left) = &mut self.left {
                        part.truncate(*left);
                        *left -= part.len();
                    }
                    if part.len() > 0 {
                        return Poll::Ready(Some(part));
                    }
                }
            }
        }
        Poll::Ready(None)
    }

    /// How it has ended; `None`: it has not, as far as [`Self::poll_next`] knows.
    pub fn end(&self) -> Option<BodyEnd> {
        self.end
    }

    /// Whether all bytes of a body of known length were taken.
    pub fn is_all_taken(&self) -> bool {
        self.left == Some(0) && self.end != Some(BodyEnd::Truncated)
    }

    /// The fields behind the body.
    pub fn take_trailers(&mut self) -> Option<Fields> {
        self.trailers.take()
    }

    /// Reports that a part that was taken cannot be sent completely.
    pub fn cut(&mut self) {
        self.end_as(BodyEnd::Truncated);
    }

    fn end_as(&mut self, end: BodyEnd) {
        self.body = Body::Empty;
        self.end = Some(end);
    }
}

impl Part {
    pub fn len(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File(file) => file.len(),
            Part::Trailers(_) => 0,
        }
    }

    /// Its first `most` bytes, and the rest if there is one.
    pub fn split(mut self, most: u64) -> (Part, Option<Part>) {
        if self.len() <= most {
            return (self, None);
        }
        let rest = match &mut self {
            Part::Bytes(bytes) => Some(Part::Bytes(bytes.split_off(size(most)))),
            Part::File(file) => Some(Part::File(file.split_off(most))),
            Part::Trailers(_) => None,
        };
        (self, rest)
    }

    /// Drops the bytes after the first `most`.
    fn truncate(&mut self, most: u64) {
        match self {
            Part::Bytes(bytes) => bytes.truncate(size(most)),
            Part::File(file) => file.truncate(most),
            Part::Trailers(_) => {}
        }
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[derive(Debug)]
    struct Made(VecDeque<Result<Part, Truncated>>);

    impl Stream for Made {
        fn poll_part(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    fn bytes(text: &'static str) -> Result<Part, Truncated> {
        Ok(Part::Bytes(text.into()))
    }

    fn trailers() -> Result<Part, Truncated> {
        let mut fields = Fields::default();
        fields.append("x", b"y").unwrap();
        Ok(Part::Trailers(fields))
    }

    /// The bytes that are sent of a body made of `parts`, how it ends, and whether there are trailers.
    fn sent<const N: usize>(
        parts: [Result<Part, Truncated>; N],
        length: Option<u64>,
    ) -> (String, Option<BodyEnd>, bool) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut parts = BodyParts::new(Body::Stream(Box::new(Made(parts.into()))), length);
        let mut all = Vec::new();
        while let Poll::Ready(Some(part)) = parts.poll_next(&mut cx) {
            assert_eq!(parts.end(), None);
            match part {
                Part::Bytes(bytes) if !bytes.is_empty() => all.extend_from_slice(&bytes),
                other => panic!("{other:?}"),
            }
        }
        let has_trailers = parts.take_trailers().is_some();
        (String::from_utf8(all).unwrap(), parts.end(), has_trailers)
    }

    #[test]
    fn a_body_of_unknown_length_ends_with_its_last_part_or_its_trailers() {
        let whole = Some(BodyEnd::Whole);
        let parts = [bytes("a"), bytes(""), bytes("bc")];
        assert_eq!(sent(parts, None), ("abc".to_owned(), whole, false));
        let parts = [bytes("a"), trailers(), bytes("b")];
        assert_eq!(sent(parts, None), ("a".to_owned(), whole, true));
    }

    #[test]
    fn no_byte_is_sent_beyond_the_announced_length() {
        let whole = Some(BodyEnd::Whole);
        let parts = [bytes("ab"), bytes("cd"), Err(Truncated)];
        assert_eq!(sent(parts, Some(3)), ("abc".to_owned(), whole, false));
        assert_eq!(sent([bytes("a")], Some(0)), (String::new(), whole, false));
    }

    #[test]
    fn a_body_that_is_too_short_is_truncated() {
        let truncated = Some(BodyEnd::Truncated);
        let expected = ("ab".to_owned(), truncated, false);
        assert_eq!(sent([bytes("ab"), Err(Truncated)], None), expected);
        assert_eq!(sent([bytes("ab")], Some(3)), expected);
        assert_eq!(sent([bytes("ab"), trailers()], Some(3)), expected);
    }
}
