//! A stream: one request and its answer.

use std::{
    rc::Rc,
    task::{Context, Poll},
};

use http::StatusCode;

use super::{
    frames::INTERNAL_ERROR,
    protocol::{Came, Protocol},
    send::Sending,
};
use crate::{
    Answer, ConnState, Fields, Priority, Receipt, RequestState, Steps,
    multiplex::{
        answer,
        head::AnswerHead,
        slots::{Multiplexed, Turn},
    },
};

/// A request that the exchange is processing or that is being answered.
pub(super) struct Stream<R> {
    pub(super) id: u32,
    pub(super) request: Rc<RequestState>,
    pub(super) is_head: bool,
    /// The steps may still ask for more of the body.
    pub(super) has_body: bool,
    /// The client waits for 100 before it sends the body.
    pub(super) awaits_consent: bool,
    /// Bytes of interim answers that were sent.
    pub(super) interim: usize,
    pub(super) priority: Priority,
    pub(super) stage: Stage<R>,
}

pub(super) enum Stage<R> {
    /// The exchange has not got it.
    New,
    Steps(Steps<R>),
    Sending(Sending<R>),
}

/// What a stream does after it was polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polled {
    /// The stream waits.
    Waits,
    /// The stream has something to send.
    Sends,
    /// All of its answer was sent.
    Over,
    /// The stream is closed.
    Closed,
}

impl<R: Receipt> Stream<R> {
    /// Lets the stream do what it can without sending. `is_last` is set if the connection is to take no more requests.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        protocol: &mut Protocol,
        is_last: &mut bool,
    ) -> Polled {
        if protocol.is_reset(self.id) {
            return Polled::Closed;
        }
        loop {
            let polled = match &mut self.stage {
                Stage::Sending(sending) if sending.is_over() => return Polled::Over,
                Stage::Sending(sending) => match sending.has_something(cx) {
                    true => return Polled::Sends,
                    false => None,
                },
                Stage::New => None,
                Stage::Steps(steps) => match steps.as_mut().poll(cx) {
                    Poll::Ready(answer) => Some(answer),
                    Poll::Pending => None,
                },
            };
            self.send_interim(protocol);
            if let Some(answer) = polled {
                if !self.answer(answer, protocol, is_last) {
                    return Polled::Closed;
                }
                continue;
            }
            if !self.request.is_body_wanted() || !self.take_body(protocol) {
                return Polled::Waits;
            }
        }
    }

    /// Sends a frame of the answer, if the client allows it.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        protocol: &mut Protocol,
        state: &ConnState,
    ) -> Turn {
        match &mut self.stage {
            Stage::Sending(sending) => sending.send(cx, (protocol, self.id), state),
            _ => Turn::Waits,
        }
    }

    /// Resets the stream if its client has allowed nothing for too long. Returns whether it did.
    pub(super) fn gives_up(&mut self, protocol: &mut Protocol, now: u64) -> bool {
        match &mut self.stage {
            Stage::Sending(sending) => sending.gives_up(protocol, self.id, now),
            _ => false,
        }
    }

    /// The end of the request. `is_sent`: the kernel has all of the answer.
    pub(super) fn finish(self, is_sent: bool) -> Rc<RequestState> {
        if let Stage::Sending(sending) = self.stage
            && is_sent
        {
            sending.sent();
        }
        self.request
    }

    /// Begins to send the answer. `is_last` is set if the connection is to take no more requests. False: the stream is closed.
    pub(super) fn answer(
        &mut self,
        answer: Answer<R>,
        protocol: &mut Protocol,
        is_last: &mut bool,
    ) -> bool {
        let Some(start) = answer::start(answer, self.is_head, &mut self.priority) else {
            protocol.reset(self.id, INTERNAL_ERROR);
            return false;
        };
        *is_last |= start.is_last;
        if !start.reads_request && self.has_body {
            // Nobody reads the rest of the request's body any more.
            self.has_body = false;
            protocol.ignore_body(self.id);
        }
        protocol.send_head(self.id, &start.head, start.is_bodyless);
        start.head.give_back();
        self.stage = Stage::Sending(Sending::new(start.body, start.is_bodyless));
        true
    }

    /// Sends the interim answers that the steps have made.
    fn send_interim(&mut self, protocol: &mut Protocol) {
        if let Stage::Steps(_) = self.stage {
            for head in answer::interim(&self.request, &mut self.interim) {
                protocol.send_head(self.id, &head, false);
            }
        }
    }

    /// Gives the steps the received part of the body, and enlarges the client's window by it. Returns whether they have something to do.
    fn take_body(&mut self, protocol: &mut Protocol) -> bool {
        if !self.has_body {
            return false;
        }
        match protocol.take_body(self.id) {
            Came::Data(bytes) => {
                self.request.give_body(bytes);
                true
            }
            Came::End => {
                self.request.end_body();
                self.has_body = false;
                true
            }
            Came::Nothing => {
                if std::mem::take(&mut self.awaits_consent)
                    && let Stage::Steps(_) = self.stage
                {
                    let head = AnswerHead::new(StatusCode::CONTINUE, Fields::default(), None);
                    protocol.send_head(self.id, &head, false);
                }
                false
            }
        }
    }
}

impl<R: Receipt> Multiplexed for Stream<R> {
    fn order(&self) -> (u64, Priority) {
        (self.id.into(), self.priority)
    }

    fn wakes_at(&self) -> u64 {
        let wakes_at = self.request.wakes_at();
        match &self.stage {
            Stage::Sending(sending) => wakes_at.min(sending.stuck_by()),
            _ => wakes_at,
        }
    }

    fn is_over(&self) -> bool {
        matches!(&self.stage, Stage::Sending(sending) if sending.is_over())
    }
}
