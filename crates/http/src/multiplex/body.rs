//! The body of an answer, in pieces for frames.

use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::{Body, BodyEnd, BodyParts, Fields, Part, Receipt};

/// The rest of a body. Its receipt counts the bytes that are taken.
pub(crate) struct Outgoing<R> {
    parts: BodyParts,
    /// The part that was taken and not sent yet.
    part: Option<Part>,
    receipt: R,
}

impl<R: Receipt> Outgoing<R> {
    /// `length`: of the body, if it is known.
    pub(crate) fn new(body: Body, length: Option<u64>, receipt: R) -> Self {
        Outgoing {
            parts: BodyParts::new(body, length),
            part: None,
            receipt,
        }
    }

    /// Waits until there is something to send: bytes, or the end. Files are not read yet, so that clients who allow no bytes occupy
    /// no memory.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.part.is_none() {
            self.part = ready!(self.parts.poll_next(cx));
        }
        Poll::Ready(())
    }

    /// How many bytes there are now; 0 at the end. For a file these are more than [`Self::poll_data`] may give.
    pub(crate) fn available(&self) -> u64 {
        self.part.as_ref().map_or(0, Part::len)
    }

    /// Takes the next bytes, `most` at most; none at the end. A file may give less: from the disk it comes in parts.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Bytes> {
        let data = match &mut self.part {
            Some(Part::Bytes(bytes)) => bytes.split_to(most.min(bytes.len())),
            // If it cannot be read, or has become shorter, the body ends there.
            Some(Part::File(file)) => ready!(file.poll_read(cx, most)).unwrap_or_else(|_| {
                self.parts.cut();
                Bytes::new()
            }),
            Some(Part::Trailers(_)) | None => Bytes::new(),
        };
        if data.is_empty() || self.available() == 0 {
            self.part = None;
        }
        self.receipt.count(data.len() as u64);
        Poll::Ready(data)
    }

    /// Whether all bytes of a body of known length were taken.
    pub(crate) fn is_whole(&self) -> bool {
        self.part.is_none() && self.parts.is_all_taken()
    }

    /// The end of the body, with the fields behind it. `None`: it was truncated.
    pub(crate) fn end(&mut self) -> Option<Option<Fields>> {
        if self.is_whole() || self.parts.end() == Some(BodyEnd::Whole) {
            return Some(self.parts.take_trailers());
        }
        self.receipt.truncated();
        None
    }

    /// The kernel, or the client, has all of the answer.
    pub(crate) fn sent(self) {
        self.receipt.sent();
    }
}
