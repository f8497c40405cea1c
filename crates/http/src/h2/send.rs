//! The body of an answer: its parts become DATA frames when it is the stream's turn.

use std::task::{Context, Poll};

use weir_observe::clock::{self, NEVER};

use super::{
    frames::{CANCEL, HEAD, INTERNAL_ERROR},
    output::RECORD,
    protocol::Protocol,
};
use crate::{
    ConnState, Receipt,
    multiplex::{body::Outgoing, slots::Turn},
};

/// An answer whose head was sent.
pub(super) struct Sending<R> {
    body: Outgoing<R>,
    /// The end of the answer was sent.
    is_over: bool,
    /// When the client is given up that allows no more bytes.
    stuck_by: u64,
}

impl<R: Receipt> Sending<R> {
    /// `is_over`: the head was all.
    pub(super) fn new(body: Outgoing<R>, is_over: bool) -> Sending<R> {
        Sending {
            body,
            is_over,
            stuck_by: NEVER,
        }
    }

    /// Whether all of the answer was sent, to the kernel or to what waits for it.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// When the stream is given up if the client does not allow more bytes before.
    pub(super) fn stuck_by(&self) -> u64 {
        self.stuck_by
    }

    /// Whether there is something to send. Takes the next part of the body if there is none.
    pub(super) fn has_something(&mut self, cx: &mut Context<'_>) -> bool {
        !self.is_over && self.body.poll_ready(cx).is_ready()
    }

    /// Sends one frame, if the client allows it.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        (protocol, id): (&mut Protocol, u32),
        state: &ConnState,
    ) -> Turn {
        if protocol.is_reset(id) {
            return Turn::Closed;
        }
        if !self.has_something(cx) {
            return Turn::Waits;
        }
        let wanted = self.body.available().min(QUANTUM as u64) as usize;
        if wanted == 0 {
            return self.finish(protocol, id);
        }
        let allowed = protocol.room(id);
        if allowed == 0 {
            if self.stuck_by == NEVER {
                self.stuck_by = clock::deadline(state.timeouts.send);
            }
            return Turn::Waits;
        }
        self.stuck_by = NEVER;
        let Poll::Ready(data) = self.body.poll_data(cx, allowed.min(wanted)) else {
            return Turn::Waits;
        };
        if data.is_empty() {
            return self.finish(protocol, id);
        }
        self.is_over = self.body.is_whole();
        protocol.send_data(id, data, self.is_over);
        Turn::Sent
    }

    /// Resets the stream if its client has allowed nothing for too long. Returns whether it did.
    pub(super) fn gives_up(&mut self, protocol: &mut Protocol, id: u32, now: u64) -> bool {
        let is_stuck = now >= self.stuck_by;
        if is_stuck {
            protocol.reset(id, CANCEL);
        }
        is_stuck
    }

    /// The client has not held it up.
    pub(super) fn is_not_stuck(&mut self) {
        self.stuck_by = NEVER;
    }

    /// The kernel has all of the answer.
    pub(super) fn sent(self) {
        self.body.sent();
    }

    /// Shows the end of the body.
    fn finish(&mut self, protocol: &mut Protocol, id: u32) -> Turn {
        match self.body.end() {
            Some(Some(fields)) => protocol.send_trailers(id, &fields),
            Some(None) => protocol.send_data(id, Default::default(), true),
            None => {
                protocol.reset(id, INTERNAL_ERROR);
                return Turn::Closed;
            }
        }
        self.is_over = true;
        Turn::Sent
    }
}

/// Bytes that a stream sends before others have their turn: with its head, the frame is a whole record of TLS, and every
/// client takes it.
const QUANTUM: usize = RECORD - HEAD;
