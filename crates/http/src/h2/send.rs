//! The body of an answer: its parts become DATA frames when it is the stream's turn.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::{Reason, SendStream};
use weir_observe::clock::{self, NEVER};

use crate::{
    ConnState, Receipt,
    multiplex::{body::Outgoing, head, slots::Turn},
};

/// An answer whose head `h2` has.
pub(super) struct Sending<R> {
    pub(super) stream: SendStream<Bytes>,
    body: Outgoing<R>,
    /// `h2` has the end of the stream.
    is_over: bool,
    /// When the client is given up that allows no more bytes.
    stuck_by: u64,
}

impl<R: Receipt> Sending<R> {
    /// `stream`: the head was sent on it. `is_over`: the head was all.
    pub(super) fn new(stream: SendStream<Bytes>, body: Outgoing<R>, is_over: bool) -> Sending<R> {
        Sending {
            stream,
            body,
            is_over,
            stuck_by: NEVER,
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

    /// Whether there is something to send. Takes the next part of the body if there is none.
    pub(super) fn has_something(&mut self, cx: &mut Context<'_>) -> bool {
        !self.is_over && self.body.poll_ready(cx).is_ready()
    }

    /// Sends one frame, if the client allows it.
    pub(super) fn send(&mut self, cx: &mut Context<'_>, state: &ConnState) -> Turn {
        if !self.has_something(cx) {
            return Turn::Waits;
        }
        let wanted = self.body.available().min(QUANTUM as u64) as usize;
        if wanted == 0 {
            return self.finish();
        }
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
        let Poll::Ready(data) = self.body.poll_data(cx, allowed.min(wanted)) else {
            // Other streams may have what was allowed.
            self.stream.reserve_capacity(0);
            return Turn::Waits;
        };
        if data.is_empty() {
            return self.finish();
        }
        let is_last = self.body.is_whole();
        match self.stream.send_data(data, is_last) {
            Ok(()) => {
                self.is_over = is_last;
                Turn::Sent
            }
            Err(_) => Turn::Closed,
        }
    }

    /// Resets the stream if its client has allowed nothing for too long. Returns whether it did.
    pub(super) fn gives_up(&mut self, now: u64) -> bool {
        let is_stuck = now >= self.stuck_by;
        if is_stuck {
            self.stream.send_reset(Reason::CANCEL);
        }
        is_stuck
    }

    /// The kernel has all of the answer.
    pub(super) fn sent(self) {
        self.body.sent();
    }

    /// Shows the end of the body.
    fn finish(&mut self) -> Turn {
        let ended = match self.body.end() {
            Some(Some(fields)) => self.stream.send_trailers(head::trailers(&fields)),
            Some(None) => self.stream.send_data(Bytes::new(), true),
            None => {
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
}

/// Bytes that a stream sends before others have their turn: with its head, the frame is a whole record of TLS, and every
/// client takes it.
const QUANTUM: usize = 16 * 1024 - 9;
