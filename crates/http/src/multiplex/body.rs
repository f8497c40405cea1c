//! The body of an answer, in pieces for frames.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use weir_net::FilePart;

use crate::{Body, Fields, Part, Receipt};

/// The rest of a body. Its receipt counts the bytes that are taken.
pub(crate) struct Outgoing<R> {
    body: Body,
    /// Bytes that are still to be taken from it, if the answer has a known length.
    left: Option<u64>,
    /// The next bytes.
    data: Bytes,
    file: Option<FilePart>,
    /// The body gives no more parts.
    end: Option<End>,
    trailers: Option<Fields>,
    receipt: R,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Truncated,
}

impl<R: Receipt> Outgoing<R> {
    /// `length`: of the body, if it is known. `is_bodyless`: nothing of it is sent.
    pub(crate) fn new(body: Body, length: Option<u64>, is_bodyless: bool, receipt: R) -> Self {
        Outgoing {
            body: match is_bodyless {
                true => Body::Empty,
                false => body,
            },
            left: length,
            data: Bytes::new(),
            file: None,
            end: is_bodyless.then_some(End::Whole),
            trailers: None,
            receipt,
        }
    }

    /// Waits until there is something to send: bytes, or the end. Files are not read yet, so that clients who allow no bytes occupy
    /// no memory.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.data.is_empty() && self.file.is_none() && self.end.is_none() {
            ready!(self.poll_part(cx));
        }
        Poll::Ready(())
    }

    /// How many bytes there are now; 0 at the end. For a file these are more than [`Self::poll_data`] may give.
    pub(crate) fn available(&self) -> u64 {
        match &self.file {
            Some(file) if self.data.is_empty() => file.len(),
            _ => self.data.len() as u64,
        }
    }

    /// Takes the next bytes, `most` at most; none at the end.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Bytes> {
        if self.data.is_empty() {
            ready!(self.poll_file(cx, most));
        }
        // A file may have given less: from the disk it comes in parts, and it may have become shorter.
        let data = self.data.split_to(most.min(self.data.len()));
        if !data.is_empty() {
            self.receipt.count(data.len() as u64);
        }
        Poll::Ready(data)
    }

    /// Whether all bytes of a body of known length were taken.
    pub(crate) fn is_whole(&self) -> bool {
        let is_taken = self.data.is_empty() && self.file.is_none();
        self.left == Some(0) && is_taken && self.end != Some(End::Truncated)
    }

    /// The end of the body, with the fields behind it. `None`: it was truncated.
    pub(crate) fn end(&mut self) -> Option<Option<Fields>> {
        if self.is_whole() || self.end == Some(End::Whole) {
            return Some(self.trailers.take());
        }
        self.receipt.truncated();
        None
    }

    /// The kernel, or the client, has all of the answer.
    pub(crate) fn sent(self) {
        self.receipt.sent();
    }

    /// Reads from the file. If that fails, the body ends there.
    fn poll_file(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<()> {
        let Some(file) = &mut self.file else {
            return Poll::Ready(());
        };
        match ready!(file.poll_read(cx, most)) {
            Ok(bytes) => {
                self.data = bytes;
                if file.len() == 0 {
                    self.file = None;
                }
            }
            Err(_) => {
                self.file = None;
                self.end = Some(End::Truncated);
            }
        }
        Poll::Ready(())
    }

    /// Takes the next part of the body, or finds its end.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.left == Some(0) {
            self.end = Some(End::Whole);
            return Poll::Ready(());
        }
        let mut part = match ready!(self.body.poll_part(cx)) {
            Some(Ok(Part::Trailers(fields))) if self.left.is_none() => {
                self.trailers = Some(fields);
                self.end = Some(End::Whole);
                return Poll::Ready(());
            }
            Some(Ok(part)) => part,
            None if self.left.is_none() => {
                self.end = Some(End::Whole);
                return Poll::Ready(());
            }
            _ => {
                self.end = Some(End::Truncated);
                return Poll::Ready(());
            }
        };
        if let Some(left) = &mut self.left {
            // No byte beyond the announced length is sent.
            part.truncate(*left);
            *left -= part.len();
        }
        match part {
            Part::Bytes(bytes) => self.data = bytes,
            Part::File { len: 0, .. } => {}
            Part::File { file, offset, len } => self.file = Some(FilePart::new(file, offset, len)),
            Part::Trailers(_) => {}
        }
        Poll::Ready(())
    }
}
