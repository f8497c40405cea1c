//! The body of an answer: its parts become DATA frames when it is the stream's turn.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use weir_observe::clock::{self, NEVER};

use super::{file::FileRead, head};
use crate::{Body, ConnState, Fields, Part, Receipt};

/// An answer whose head `h2` has.
pub(super) struct Sending<R> {
    pub(super) stream: SendStream<Bytes>,
    body: Body,
    /// Bytes of the body that are still to be taken from it, if the answer has a known length.
    left: Option<u64>,
    /// The next bytes.
    data: Bytes,
    file: Option<FileRead>,
    /// The body gives no more parts.
    end: Option<End>,
    /// `h2` has the end of the stream.
    is_over: bool,
    trailers: Option<Fields>,
    /// When the client is given up that allows no more bytes.
    stuck_by: u64,
    pub(super) receipt: R,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Truncated,
}

/// What a stream did in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has sent something, and may have more.
    Sent,
    /// It has nothing to send, or may not send.
    Waits,
    /// The stream is closed: it was reset by a side.
    Closed,
}

impl<R: Receipt> Sending<R> {
    /// `stream`: the head was sent on it. `is_over`: the head was all.
    pub(super) fn new(
        stream: SendStream<Bytes>,
        (body, left): (Body, Option<u64>),
        is_over: bool,
        receipt: R,
    ) -> Sending<R> {
        Sending {
            stream,
            body: match is_over {
                true => Body::Empty,
                false => body,
            },
            left,
            data: Bytes::new(),
            file: None,
            end: is_over.then_some(End::Whole),
            is_over,
            trailers: None,
            stuck_by: NEVER,
            receipt,
        }
    }

    /// Whether `h2` has all of the answer.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// When the stream is given up if the client does not allow more bytes before.
    pub(super) fn stuck_by(&self) -> u64 {
        self.stuck_by
    }

    /// Whether there is something to send. Takes the next part of the body if there is none. Files are read when the client
    /// allows bytes, so that those who allow none occupy no memory.
    pub(super) fn has_something(&mut self, cx: &mut Context<'_>) -> bool {
        if self.is_over {
            return false;
        }
        while self.data.is_empty() && self.file.is_none() && self.end.is_none() {
            if self.poll_part(cx).is_pending() {
                return false;
            }
        }
        true
    }

    /// Whether the client allowed nothing for too long.
    pub(super) fn is_stuck(&self, now: u64) -> bool {
        now >= self.stuck_by
    }

    /// Sends one frame, if the client allows it.
    pub(super) fn send(&mut self, cx: &mut Context<'_>, state: &ConnState) -> Turn {
        if !self.has_something(cx) {
            return Turn::Waits;
        }
        let length = match &self.file {
            Some(file) if self.data.is_empty() => file.len().min(QUANTUM as u64) as usize,
            _ => self.data.len(),
        };
        if length == 0 {
            return self.finish();
        }
        let wanted = length.min(QUANTUM);
        self.stream.reserve_capacity(wanted);
        let mut allowed = self.stream.capacity();
        while allowed == 0 {
            match self.stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(now))) => allowed = now,
                Poll::Ready(_) => return Turn::Closed,
                Poll::Pending => {
                    if self.stuck_by == NEVER {
                        self.stuck_by = clock::deadline(state.timeouts.send);
                    }
                    return Turn::Waits;
                }
            }
        }
        self.stuck_by = NEVER;
        if self.data.is_empty() && self.poll_file(cx, allowed.min(wanted)).is_pending() {
            // Other streams may have what was allowed.
            self.stream.reserve_capacity(0);
            return Turn::Waits;
        }
        if self.data.is_empty() {
            return self.finish();
        }
        // A file may have given less: from the disk it comes in parts, and it may have become shorter.
        let length = allowed.min(wanted).min(self.data.len());
        let data = self.data.split_to(length);
        self.receipt.count(data.len() as u64);
        if self.data.is_empty() && self.file.is_none() && self.left == Some(0) {
            self.end = Some(End::Whole);
        }
        let is_last =
            self.data.is_empty() && self.end == Some(End::Whole) && self.trailers.is_none();
        match self.stream.send_data(data, is_last) {
            Ok(()) => {
                self.is_over = is_last;
                Turn::Sent
            }
            Err(_) => Turn::Closed,
        }
    }

    /// The client allows nothing more.
    pub(super) fn give_up(&mut self) {
        self.stream.send_reset(Reason::CANCEL);
    }

    /// Shows the end of the body.
    fn finish(&mut self) -> Turn {
        let ended = match (self.end, self.trailers.take()) {
            (Some(End::Whole), Some(fields)) => self.stream.send_trailers(head::trailers(&fields)),
            (Some(End::Whole), None) => self.stream.send_data(Bytes::new(), true),
            _ => {
                self.receipt.truncated();
                self.stream.send_reset(Reason::INTERNAL_ERROR);
                return Turn::Closed;
            }
        };
        self.is_over = ended.is_ok();
        match ended {
            Ok(()) => Turn::Sent,
            Err(_) => Turn::Closed,
        }
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
            Part::File { file, offset, len } => self.file = Some(FileRead::new(file, offset, len)),
            Part::Trailers(_) => {}
        }
        Poll::Ready(())
    }
}

/// Bytes that a stream sends before others have their turn: with its head, the frame is a whole record of TLS, and every
/// client takes it.
const QUANTUM: usize = 16 * 1024 - 9;
