//! A stream: one request and its answer.

use std::{
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{Reason, RecvStream, server::SendResponse};
use http::StatusCode;

use super::send::Sending;
use crate::{
    Answer, ConnState, Fields, Priority, Receipt, RequestState, Steps,
    multiplex::{
        answer, head,
        slots::{Multiplexed, Turn},
    },
};

/// A request that the exchange is processing or that is being answered.
pub(super) struct Stream<R> {
    pub(super) id: u32,
    pub(super) request: Rc<RequestState>,
    pub(super) respond: SendResponse<Bytes>,
    /// The body of the request, until it is whole.
    pub(super) body: Option<RecvStream>,
    pub(super) is_head: bool,
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
    /// It waits.
    Waits,
    /// It has something to send.
    Sends,
    /// All of its answer is with `h2`.
    Over,
    /// It is closed.
    Closed,
}

impl<R: Receipt> Stream<R> {
    /// Lets the stream do what it can without sending. `is_last` is set if the connection is to take no more requests.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, is_last: &mut bool) -> Polled {
        if self.is_reset(cx) {
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
            self.send_interim();
            if let Some(answer) = polled {
                if !self.answer(answer, is_last) {
                    return Polled::Closed;
                }
                continue;
            }
            if !self.request.is_body_wanted() {
                return Polled::Waits;
            }
            match self.poll_body(cx) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Polled::Closed,
                Poll::Pending => return Polled::Waits,
            }
        }
    }

    /// Sends a frame of the answer, if the client allows it.
    pub(super) fn send(&mut self, cx: &mut Context<'_>, state: &ConnState) -> Turn {
        match &mut self.stage {
            Stage::Sending(sending) => sending.send(cx, state),
            _ => Turn::Waits,
        }
    }

    /// Resets the stream if its client has allowed nothing for too long. Returns whether it did.
    pub(super) fn gives_up(&mut self, now: u64) -> bool {
        match &mut self.stage {
            Stage::Sending(sending) => sending.gives_up(now),
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

    /// How much of the body has come and was not read, bytes.
    pub(super) fn unread(&mut self) -> usize {
        let body = self.body.as_mut();
        body.map_or(0, |body| body.flow_control().used_capacity())
    }

    /// Whether a side has reset the stream.
    pub(super) fn is_reset(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.stage {
            Stage::Sending(sending) => sending.stream.poll_reset(cx).is_ready(),
            _ => self.respond.poll_reset(cx).is_ready(),
        }
    }

    /// Begins to send the answer. `is_last` is set if the connection is to take no more requests. False: the stream is closed.
    pub(super) fn answer(&mut self, answer: Answer<R>, is_last: &mut bool) -> bool {
        let Some(start) = answer::start(answer, self.is_head, &mut self.priority) else {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
            return false;
        };
        *is_last |= start.is_last;
        if !start.reads_request {
            // Nobody reads the rest of the request's body any more.
            self.body = None;
        }
        let is_over = start.is_bodyless;
        let Ok(stream) = self.respond.send_response(start.head, is_over) else {
            return false;
        };
        self.stage = Stage::Sending(Sending::new(stream, start.body, is_over));
        true
    }

    /// Sends the interim answers that the steps have made.
    fn send_interim(&mut self) {
        if let Stage::Steps(_) = self.stage {
            for head in answer::interim(&self.request, &mut self.interim) {
                let _ = self.respond.send_informational(head);
            }
        }
    }

    /// Gives the steps what has come of the body, and the client as much room again. `Ready`: they have something to do;
    /// false: the stream is closed.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(body) = &mut self.body else {
            return Poll::Pending;
        };
        let mut has_moved = false;
        loop {
            match body.poll_data(cx) {
                Poll::Ready(Some(Ok(bytes))) => {
                    // Cannot fail: these bytes were received.
                    let _ = body.flow_control().release_capacity(bytes.len());
                    if !bytes.is_empty() {
                        self.request.push_body(&bytes);
                        has_moved = true;
                    }
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
                Poll::Ready(None) => {
                    self.request.end_body();
                    self.body = None;
                    return Poll::Ready(true);
                }
                Poll::Pending if has_moved => return Poll::Ready(true),
                Poll::Pending => break,
            }
        }
        if std::mem::take(&mut self.awaits_consent)
            && let Stage::Steps(_) = self.stage
            && let Ok(head) = head::interim(StatusCode::CONTINUE, &Fields::default())
        {
            let _ = self.respond.send_informational(head);
        }
        Poll::Pending
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
