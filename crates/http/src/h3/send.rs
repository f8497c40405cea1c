//! The answer on a stream: its head, and its body in frames when it is the stream's turn.

use std::{
    collections::VecDeque,
    task::{Context, Poll},
};

use bytes::Bytes;
use quinn_proto::{Connection, StreamId, VarInt, WriteError};
use weir_observe::clock::{self, NEVER};

use super::{
    frames::{DATA, INTERNAL, put_head},
    head,
};
use crate::{
    ConnState, Receipt,
    multiplex::{body::Outgoing, slots::Turn},
};

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
    body: Outgoing<R>,
    /// QUIC has the end of the stream.
    is_over: bool,
    /// When the client is given up that takes no more bytes.
    stuck_by: u64,
}

impl<R: Receipt> Sending<R> {
    pub(super) fn new(body: Outgoing<R>) -> Sending<R> {
        Sending {
            body,
            is_over: false,
            stuck_by: NEVER,
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
        !self.is_over && (!out.is_empty() || self.body.poll_ready(cx).is_ready())
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
        let Poll::Ready(data) = self.body.poll_data(cx, QUANTUM) else {
            return Turn::Waits;
        };
        if data.is_empty() {
            return self.finish(quic, id, out);
        }
        let mut frame = Vec::with_capacity(8);
        put_head(&mut frame, DATA, data.len());
        out.push(frame);
        out.push(data);
        if let Some(turn) = self.flush((&mut *quic, id), out, state) {
            return turn;
        }
        match self.body.is_whole() {
            // The end goes with the last bytes.
            true => self.finish(quic, id, out),
            false => Turn::Sent,
        }
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

    /// The client has all of the answer.
    pub(super) fn sent(self) {
        self.body.sent();
    }

    /// Shows the end of the body.
    fn finish(&mut self, quic: &mut Connection, id: StreamId, out: &mut Out) -> Turn {
        match self.body.end() {
            Some(Some(fields)) => {
                out.push(head::trailers(&fields));
                // The end follows in the next turn.
                Turn::Sent
            }
            Some(None) => {
                self.is_over = quic.send_stream(id).finish().is_ok();
                match self.is_over {
                    true => Turn::Sent,
                    false => Turn::Closed,
                }
            }
            None => {
                reset(quic, id, INTERNAL);
                Turn::Closed
            }
        }
    }
}

/// Tells the client that no more of the answer comes.
pub(super) fn reset(quic: &mut Connection, id: StreamId, code: u64) {
    let code = VarInt::from_u64(code).unwrap_or_default();
    // This fails if the stream has ended meanwhile.
    let _ = quic.send_stream(id).reset(code);
}

/// Bytes that a stream sends before others have their turn.
const QUANTUM: usize = 16 * 1024;
