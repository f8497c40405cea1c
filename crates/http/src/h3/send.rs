//! The answer on a stream: its head, and its body in frames when it is the stream's turn.

use std::{
    collections::VecDeque,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use quinn_proto::{Connection, StreamId, VarInt, WriteError};
use weir_observe::clock::{self, NEVER};

use super::{
    frames::{DATA, INTERNAL, put_head},
    head,
};
use crate::{Body, ConnState, Fields, Part, Receipt, h2::file::FileRead};

/// Bytes that QUIC has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Out(VecDeque<Bytes>);

/// How much QUIC took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushed {
    All,
    /// Not all of it; whether any.
    Blocked(bool),
    /// The client does not want it.
    Closed,
}

impl Out {
    pub(super) fn push(&mut self, bytes: impl Into<Bytes>) {
        self.0.push_back(bytes.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives QUIC what it takes.
    pub(super) fn flush(&mut self, quic: &mut Connection, id: StreamId) -> Flushed {
        let mut has_moved = false;
        while !self.0.is_empty() {
            match quic.send_stream(id).write_chunks(self.0.make_contiguous()) {
                Ok(written) => {
                    has_moved = true;
                    self.0.drain(..written.chunks);
                }
                Err(WriteError::Blocked) => return Flushed::Blocked(has_moved),
                Err(_) => return Flushed::Closed,
            }
        }
        self.0 = VecDeque::new();
        Flushed::All
    }
}

/// An answer whose head is in [`Out`].
pub(super) struct Sending<R> {
    body: Body,
    /// Bytes of the body that are still to be taken from it, if the answer has a known length.
    left: Option<u64>,
    /// The next bytes.
    data: Bytes,
    file: Option<FileRead>,
    /// The body gives no more parts.
    end: Option<End>,
    /// QUIC has the end of the stream.
    is_over: bool,
    trailers: Option<Fields>,
    /// When the client is given up that takes no more bytes.
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
    /// `is_over`: the head is all.
    pub(super) fn new((body, left): (Body, Option<u64>), is_over: bool, receipt: R) -> Sending<R> {
        Sending {
            body: match is_over {
                true => Body::Empty,
                false => body,
            },
            left,
            data: Bytes::new(),
            file: None,
            end: is_over.then_some(End::Whole),
            is_over: false,
            trailers: None,
            stuck_by: NEVER,
            receipt,
        }
    }

    /// Whether QUIC has all of the answer.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// When the stream is given up if the client does not take more bytes before.
    pub(super) fn stuck_by(&self) -> u64 {
        self.stuck_by
    }

    /// Whether there is something to send. Takes the next part of the body if there is none.
    pub(super) fn has_something(&mut self, cx: &mut Context<'_>, out: &Out) -> bool {
        if self.is_over {
            return false;
        }
        while out.is_empty() && self.data.is_empty() && self.file.is_none() && self.end.is_none() {
            if self.poll_part(cx).is_pending() {
                return false;
            }
        }
        true
    }

    /// Whether the client took nothing for too long.
    pub(super) fn is_stuck(&self, now: u64) -> bool {
        now >= self.stuck_by
    }

    /// Sends one frame, if QUIC takes it.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        (quic, id): (&mut Connection, StreamId),
        out: &mut Out,
        state: &ConnState,
    ) -> Turn {
        if let Some(turn) = self.flush((&mut *quic, id), out, state) {
            return turn;
        }
        if !self.has_something(cx, out) {
            return Turn::Waits;
        }
        if self.data.is_empty() && self.poll_file(cx).is_pending() {
            return Turn::Waits;
        }
        if self.data.is_empty() {
            return self.finish(quic, id, out);
        }
        let data = self.data.split_to(self.data.len().min(QUANTUM));
        self.receipt.count(data.len() as u64);
        let mut frame = Vec::with_capacity(8);
        put_head(&mut frame, DATA, data.len());
        out.push(frame);
        out.push(data);
        if let Some(turn) = self.flush((&mut *quic, id), out, state) {
            return turn;
        }
        // The end goes with the last bytes.
        if self.data.is_empty() && self.file.is_none() && self.left == Some(0) {
            self.end = Some(End::Whole);
            return self.finish(quic, id, out);
        }
        Turn::Sent
    }

    /// `None`: QUIC has all that was to be sent.
    fn flush(
        &mut self,
        (quic, id): (&mut Connection, StreamId),
        out: &mut Out,
        state: &ConnState,
    ) -> Option<Turn> {
        match out.flush(quic, id) {
            Flushed::All => {
                self.stuck_by = NEVER;
                None
            }
            Flushed::Blocked(has_moved) => {
                if has_moved || self.stuck_by == NEVER {
                    self.stuck_by = clock::deadline(state.timeouts.send);
                }
                Some(Turn::Waits)
            }
            Flushed::Closed => Some(Turn::Closed),
        }
    }

    /// Shows the end of the body.
    fn finish(&mut self, quic: &mut Connection, id: StreamId, out: &mut Out) -> Turn {
        match (self.end, self.trailers.take()) {
            (Some(End::Whole), Some(fields)) => {
                out.push(head::trailers(&fields));
                // The end follows in the next turn.
                Turn::Sent
            }
            (Some(End::Whole), None) => {
                self.is_over = quic.send_stream(id).finish().is_ok();
                match self.is_over {
                    true => Turn::Sent,
                    false => Turn::Closed,
                }
            }
            _ => {
                self.receipt.truncated();
                reset(quic, id, INTERNAL);
                Turn::Closed
            }
        }
    }

    /// Reads from the file. If that fails, the body ends there.
    fn poll_file(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(file) = &mut self.file else {
            return Poll::Ready(());
        };
        match ready!(file.poll_read(cx, QUANTUM)) {
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

/// Tells the client that no more of the answer comes.
pub(super) fn reset(quic: &mut Connection, id: StreamId, code: u64) {
    let code = VarInt::from_u64(code).unwrap_or_default();
    // Fails if it has ended meanwhile.
    let _ = quic.send_stream(id).reset(code);
}

/// Bytes that a stream sends before others have their turn.
const QUANTUM: usize = 16 * 1024;
