//! A stream: one request and its answer.

use std::{
    rc::Rc,
    task::{Context, Poll},
};

use http::StatusCode;
use quinn_proto::{Connection, StreamId};

use super::{
    frames::{NO_ERROR, REQUEST_CANCELLED, Wrong},
    head,
    receive::{Failed, Got, Receiving},
    send::{Flushed, Out, Sending, reset},
};
use crate::{
    Answer, ConnState, Fields, Priority, Receipt, RequestState, Steps,
    multiplex::{
        answer,
        head::AnswerHead,
        slots::{Multiplexed, Turn},
    },
};

/// A request that comes, that the exchange is processing, or that is being answered.
pub(super) struct Stream<R> {
    pub(super) id: StreamId,
    /// When its first byte came ([`weir_observe::clock::now`]).
    pub(super) since: u64,
    pub(super) request: Rc<RequestState>,
    pub(super) receiving: Receiving,
    out: Out,
    pub(super) is_head: bool,
    /// The client waits for 100 before it sends the body.
    pub(super) awaits_consent: bool,
    /// Bytes of interim answers that were sent.
    interim: usize,
    pub(super) priority: Priority,
    pub(super) stage: Stage<R>,
}

pub(super) enum Stage<R> {
    /// The head has not arrived completely.
    New,
    Steps(Steps<R>),
    Sending(Sending<R>),
    /// A head that was refused, and nothing more.
    Refused,
}

/// What a stream does after it was polled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Polled {
    /// The stream waits.
    Waits,
    /// The stream has something to send.
    Sends,
    /// All of its answer is with QUIC.
    Over,
    /// The stream is closed: the client has reset it.
    Reset,
    /// The stream is closed, and the client is told this code.
    Closed(u64),
    /// The head has come.
    Head(Vec<u8>),
    /// The head, which begins with these bytes, is larger than allowed.
    TooLarge(Vec<u8>),
    /// The connection must end.
    Wrong(Wrong),
}

impl<R: Receipt> Stream<R> {
    pub(super) fn new(id: StreamId, since: u64) -> Stream<R> {
        Stream {
            id,
            since,
            request: RequestState::new(),
            receiving: Receiving::new(),
            out: Out::default(),
            is_head: false,
            awaits_consent: false,
            interim: 0,
            priority: Priority::default(),
            stage: Stage::New,
        }
    }

    /// Lets the stream do what it can without sending. `is_last` is set if the connection is to take no more requests.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        quic: &mut Connection,
        most: u64,
        is_last: &mut bool,
    ) -> Polled {
        if self.is_reset(quic) {
            return Polled::Reset;
        }
        loop {
            let polled = match &mut self.stage {
                Stage::New => {
                    return match self.receiving.poll(quic, self.id, most) {
                        Ok(Got::Head(head)) => Polled::Head(head),
                        Ok(_) => Polled::Waits,
                        Err(failed) => failed.into(),
                    };
                }
                Stage::Refused => return self.flush_refused(quic),
                Stage::Sending(sending) if sending.is_over() => return Polled::Over,
                Stage::Sending(sending) => match sending.has_something(cx, &self.out) {
                    true => return Polled::Sends,
                    false => None,
                },
                Stage::Steps(steps) => match steps.as_mut().poll(cx) {
                    Poll::Ready(answer) => Some(answer),
                    Poll::Pending => None,
                },
            };
            self.send_interim(quic);
            if let Some(answer) = polled {
                if !self.answer(answer, quic, is_last) {
                    return Polled::Closed(super::frames::INTERNAL);
                }
                continue;
            }
            if !self.request.is_body_wanted() {
                return Polled::Waits;
            }
            match self.poll_body(quic, most) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(failed)) => return failed.into(),
                Poll::Pending => return Polled::Waits,
            }
        }
    }

    /// Whether the client wants no answer, or has reset a request that is not whole.
    fn is_reset(&mut self, quic: &mut Connection) -> bool {
        let is_over = matches!(&self.stage, Stage::Sending(sending) if sending.is_over());
        if !is_over && !matches!(quic.send_stream(self.id).stopped(), Ok(None)) {
            return true;
        }
        let is_reset = self.receiving.is_reset(quic, self.id);
        is_reset && matches!(self.stage, Stage::New | Stage::Steps(_))
    }

    /// Sends a frame of the answer, if QUIC takes it.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        quic: &mut Connection,
        state: &ConnState,
    ) -> Turn {
        match &mut self.stage {
            Stage::Sending(sending) => sending.send(cx, (quic, self.id), &mut self.out, state),
            _ => Turn::Waits,
        }
    }

    /// Whether its client has taken nothing for too long.
    pub(super) fn is_stuck(&self, now: u64) -> bool {
        matches!(&self.stage, Stage::Sending(sending) if now >= sending.stuck_by())
    }

    /// The end of the request. `is_sent`: the client has all of the answer. What is still open is reset.
    pub(super) fn finish(mut self, quic: &mut Connection, is_sent: bool) -> Rc<RequestState> {
        let is_over = self.is_over();
        if !is_over && !matches!(self.stage, Stage::Refused) {
            reset(quic, self.id, REQUEST_CANCELLED);
        }
        self.receiving.stop(quic, self.id, NO_ERROR);
        self.close(is_sent)
    }

    /// The same when the connection has ended.
    pub(super) fn close(self, is_sent: bool) -> Rc<RequestState> {
        if let Stage::Sending(sending) = self.stage
            && sending.is_over()
            && is_sent
        {
            sending.sent();
        }
        self.request
    }

    /// Begins to send the answer. `is_last` is set if the connection is to take no more requests. False: it cannot be sent.
    pub(super) fn answer(
        &mut self,
        answer: Answer<R>,
        quic: &mut Connection,
        is_last: &mut bool,
    ) -> bool {
        let Some(start) = answer::start(answer, self.is_head, &mut self.priority) else {
            return false;
        };
        *is_last |= start.is_last;
        if !start.reads_request {
            // Nobody reads the rest of the request's body any more.
            self.receiving.stop(quic, self.id, NO_ERROR);
        }
        self.set_priority(quic);
        self.out.push(head::encode(&start.head));
        start.head.give_back();
        self.stage = Stage::Sending(Sending::new(start.body));
        true
    }

    /// Answers a head that was refused, and ends the stream.
    pub(super) fn refuse(&mut self, status: StatusCode, quic: &mut Connection) -> Polled {
        self.receiving.stop(quic, self.id, NO_ERROR);
        let head = AnswerHead::new(status, Fields::default(), Some(0));
        self.out.push(head::encode(&head));
        self.stage = Stage::Refused;
        self.flush_refused(quic)
    }

    fn flush_refused(&mut self, quic: &mut Connection) -> Polled {
        match self.out.flush(quic, self.id) {
            Flushed::All => {
                let _ = quic.send_stream(self.id).finish();
                Polled::Closed(NO_ERROR)
            }
            Flushed::Blocked(_) => Polled::Waits,
            Flushed::Closed => Polled::Closed(NO_ERROR),
        }
    }

    /// Tells QUIC in which order it sends its bytes. [`super::streams`] decides which bytes it gets, and when.
    pub(super) fn set_priority(&self, quic: &mut Connection) {
        let priority = i32::from(7 - self.priority.urgency);
        let _ = quic.send_stream(self.id).set_priority(priority);
    }

    /// Sends the interim answers that the steps have made.
    fn send_interim(&mut self, quic: &mut Connection) {
        if let Stage::Steps(_) = self.stage {
            for head in answer::interim(&self.request, &mut self.interim) {
                self.out.push(head::encode(&head));
            }
            // Bytes that QUIC does not take now are sent with the answer.
            self.out.flush(quic, self.id);
        }
    }

    /// Gives the steps what has come of the body, and the client as much room again. `Ready`: they have something to do.
    fn poll_body(&mut self, quic: &mut Connection, most: u64) -> Poll<Result<(), Failed>> {
        let mut moved = 0;
        while moved < MOST_AT_ONCE {
            match self.receiving.poll(quic, self.id, most) {
                Ok(Got::Data(bytes)) => {
                    moved += bytes.len();
                    if !bytes.is_empty() {
                        self.request.push_body(&bytes);
                    }
                }
                Ok(Got::End) => {
                    self.request.end_body();
                    return Poll::Ready(Ok(()));
                }
                Ok(Got::Waits | Got::Head(_)) => break,
                Err(Failed::TooLarge(_)) => {
                    return Poll::Ready(Err(Failed::Stream(super::frames::EXCESSIVE_LOAD)));
                }
                Err(failed) => return Poll::Ready(Err(failed)),
            }
        }
        if moved > 0 {
            return Poll::Ready(Ok(()));
        }
        if std::mem::take(&mut self.awaits_consent)
            && let Stage::Steps(_) = self.stage
        {
            let head = AnswerHead::new(StatusCode::CONTINUE, Fields::default(), None);
            self.out.push(head::encode(&head));
            self.out.flush(quic, self.id);
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

impl From<Failed> for Polled {
    fn from(failed: Failed) -> Polled {
        match failed {
            Failed::Reset => Polled::Reset,
            Failed::Stream(code) => Polled::Closed(code),
            Failed::Connection(wrong) => Polled::Wrong(wrong),
            Failed::TooLarge(begin) => Polled::TooLarge(begin),
        }
    }
}

/// Bytes of a body that the steps get at once.
const MOST_AT_ONCE: usize = 256 * 1024;
