//! The carrier of FastCGI: a web server in front uses weir as it would use PHP-FPM.
//!
//! ```text
//!            all parameters             answer                 kernel has END_REQUEST
//!  Reading ─────────────────► Steps ───────────────► Sending ─────────────────────────► Reading
//!     │                         └─ FCGI_ABORT_REQUEST ──┴──► Sending: END_REQUEST alone ──┘  │
//!     └────────── the web server has left, or the answer was cut ───────────► Closing ◄──────┘
//! ```
//! A connection carries one request at a time, and is read all the time, so that an aborted request is noticed: only the
//! body of a request is not read before the steps ask for it. Questions about the application and requests that
//! cannot be taken are answered meanwhile. Idle connections have no buffer.
//!
//! A [`Request`](crate::Request) has the parameters, which reach a script unchanged. An answer is sent as a script would
//! send it (RFC 3875 §6). Interim answers are dropped, since CGI has none.
//!
//! The format is [`weir_fcgi`]'s; its documentation says what is refused.

mod io;
mod request;
mod send;

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::StatusCode;
use weir_net::{Socket, close, linger};
use weir_observe::clock;

use self::{
    io::Io,
    send::{Cut, Sending},
};
use super::{
    Begun, Receipt, Request, Steps,
    closing::Closing,
    turn::{Budget, Next, TimedOut, Waiting},
};

/// What the carrier needs of the gateway for one connection.
pub trait Front: crate::Front {
    /// What the application can take at once, for FCGI_GET_VALUES (FastCGI 1.0 §4.1).
    fn capacity(&self) -> Capacity;

    /// Whether the application may be called as a filter (FastCGI 1.0 §6.4). Like PHP it does not look at the file that the
    /// web server sends: FCGI_DATA is read and dropped.
    fn plays_filters(&self) -> bool {
        false
    }
}

/// What an application can take at once.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    pub connections: usize,
    /// Running and waiting ones.
    pub requests: usize,
}

/// A connection: a future that ends with it.
pub struct Connection<X: Front> {
    front: X,
    io: Io,
    stage: Stage<X::Receipt>,
    waiting: Waiting,
}

enum Stage<R> {
    Reading,
    Steps(Steps<R>),
    Sending(Box<Sending<R>>),
    Closing(Closing),
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The kernel has all answers, or nobody waits for one.
    Clean,
    /// The kernel has the answer, but the web server may still be sending data that is not needed.
    Linger,
    /// The web server has closed, or the connection must be given up. Sent data may be lost.
    Lost,
}

impl<X: Front> Connection<X> {
    /// Serves `socket`.
    pub fn new(front: X, socket: Socket) -> Self {
        Connection {
            front,
            io: Io::new(socket),
            stage: Stage::Reading,
            waiting: Waiting::default(),
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.front.state().remember_waker(cx.waker());
        let mut budget = Budget::new();
        loop {
            let next = match &mut self.stage {
                Stage::Reading if !budget.may_begin(cx) => return Poll::Pending,
                Stage::Reading => {
                    budget.begun();
                    ready!(self.poll_reading(cx))
                }
                Stage::Steps(_) => ready!(self.poll_steps(cx)),
                Stage::Sending(_) => ready!(self.poll_sending(cx)),
                Stage::Closing(closing) => {
                    return closing.poll(cx, self.front.state(), self.front.is_draining());
                }
            };
            if let Next::End(ending) = next {
                // Dropping the stage tells the request's steps that the web server has left.
                self.stage = Stage::Reading;
                match self.end(ending) {
                    Some(closing) => self.stage = Stage::Closing(closing),
                    None => return Poll::Ready(()),
                }
            }
        }
    }

    /// Reads the parameters of a request and begins it.
    fn poll_reading(&mut self, cx: &mut Context<'_>) -> Poll<Next<Ending>> {
        loop {
            if let Some(request) = self.io.take_request() {
                self.begin(request);
                return Poll::Ready(Next::Part);
            }
            let state = self.front.state();
            self.io.refuse_aborted();
            match self.io.poll_flush(cx, state) {
                Poll::Ready(Ok(())) if self.io.is_last() => {
                    return Poll::Ready(Next::End(Ending::Clean));
                }
                Poll::Ready(Err(ending)) => return Poll::Ready(Next::End(ending)),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
            let now = clock::now();
            if let Some(timed_out) = self.waiting.timed_out(&self.front, now) {
                if let TimedOut::Head = timed_out {
                    (self.front).refused(StatusCode::REQUEST_TIMEOUT, "header_timeout", TOO_SLOW);
                }
                return Poll::Ready(Next::End(Ending::Clean));
            }
            match self.io.poll_read(cx, &self.front) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(ending)) => return Poll::Ready(Next::End(ending)),
                Poll::Pending => {
                    let take = || match self.io.is_idle() {
                        true => self.io.take_socket(),
                        false => None,
                    };
                    return match self.waiting.ends(&mut self.front, now, take) {
                        true => Poll::Ready(Next::End(Ending::Clean)),
                        false => Poll::Pending,
                    };
                }
            }
        }
    }

    fn begin(&mut self, mut request: Request) {
        request.started = self.front.state().begin_request();
        self.stage = match self.front.begin(request) {
            Begun::Answered(answer) => Stage::Sending(Box::new(Sending::new(answer))),
            Begun::Steps(steps) => Stage::Steps(steps),
        };
    }

    /// Lets the exchange work, and gives it the body when it asks for that.
    fn poll_steps(&mut self, cx: &mut Context<'_>) -> Poll<Next<Ending>> {
        if self.io.is_aborted() {
            return Poll::Ready(self.abort());
        }
        let Stage::Steps(steps) = &mut self.stage else {
            return Poll::Ready(Next::Part);
        };
        let state = self.front.state();
        let mut has_news = true;
        let answer = loop {
            // Checked first, so that a request whose web server has left is not started.
            while self.io.is_read_on() {
                match self.io.poll_flush(cx, state) {
                    Poll::Ready(Err(ending)) => return Poll::Ready(Next::End(ending)),
                    Poll::Ready(Ok(())) | Poll::Pending => {}
                }
                match self.io.poll_read(cx, &self.front) {
                    Poll::Ready(Ok(())) if self.io.is_aborted() => {
                        return Poll::Ready(self.abort());
                    }
                    Poll::Ready(Ok(())) => has_news = true,
                    Poll::Ready(Err(ending)) => return Poll::Ready(Next::End(ending)),
                    Poll::Pending => break,
                }
            }
            if !has_news && !self.io.has_no_body(state) {
                return Poll::Pending;
            }
            let polled = steps.as_mut().poll(cx);
            if let Some(request) = self.io.request_state() {
                // CGI has no interim answers.
                drop(request.take_interim());
                state.wake_at(request.wakes_at());
            }
            if let Poll::Ready(answer) = polled {
                break answer;
            }
            if self.io.is_request_whole() {
                return Poll::Pending;
            }
            has_news = false;
        };
        self.io.discard_body();
        self.stage = Stage::Sending(Box::new(Sending::new(answer)));
        Poll::Ready(Next::Part)
    }

    fn poll_sending(&mut self, cx: &mut Context<'_>) -> Poll<Next<Ending>> {
        let Stage::Sending(sending) = &mut self.stage else {
            return Poll::Ready(Next::Part);
        };
        let sent = match sending.poll(cx, &mut self.io, self.front.state()) {
            Poll::Ready(sent) => sent,
            // The end of the request was sent. Bytes that arrive now belong to no request.
            Poll::Pending if sending.is_ended() => return Poll::Pending,
            Poll::Pending => loop {
                if let Some(request) = self.io.request_state() {
                    self.front.state().wake_at(request.wakes_at());
                }
                match ready!(self.io.poll_read(cx, &self.front)) {
                    Ok(()) if self.io.is_aborted() => match sending.is_within_record() {
                        true => return Poll::Ready(Next::End(Ending::Lost)),
                        false => return Poll::Ready(self.abort()),
                    },
                    Ok(()) => {}
                    Err(ending) => return Poll::Ready(Next::End(ending)),
                }
            },
        };
        Poll::Ready(match std::mem::replace(&mut self.stage, Stage::Reading) {
            Stage::Sending(sending) => self.after_sending(*sending, sent),
            _ => Next::Part,
        })
    }

    /// The web server has aborted its request: its steps are dropped, and the request is ended.
    fn abort(&mut self) -> Next<Ending> {
        self.stage = Stage::Sending(Box::new(Sending::none()));
        Next::Part
    }

    fn after_sending(
        &mut self,
        sending: Sending<X::Receipt>,
        sent: Result<(), Cut>,
    ) -> Next<Ending> {
        let keep = sending.keep;
        let is_cut = match sent {
            Ok(()) => false,
            // The missing END_REQUEST shows that the answer is not complete.
            Err(Cut::Truncated) => true,
            Err(Cut::Ended(ending)) => return Next::End(ending),
        };
        let state = self.front.state();
        let is_body_left = (self.io.request_state()).is_some_and(|request| request.is_body_left());
        let is_unread = !self.io.is_request_whole() || is_body_left;
        if keep && !is_cut && !is_unread {
            state.set_idle();
        }
        if let Some(receipt) = sending.receipt {
            receipt.sent();
        }
        if is_cut {
            return Next::End(Ending::Clean);
        }
        // Apache gives up a whole answer if it can no longer send the record that ends its body.
        let sends_more = is_unread || !keep && !self.io.is_input_ended();
        self.io.next_request();
        match (sends_more, keep) {
            (true, _) => Next::End(Ending::Linger),
            (false, false) => Next::End(Ending::Clean),
            (false, true) => Next::Part,
        }
    }

    /// Ends the connection. `None`: it has ended.
    fn end(&mut self, ending: Ending) -> Option<Closing> {
        let socket = self.io.take_socket()?;
        let state = self.front.state();
        match ending {
            Ending::Clean => Some(Closing::new(state, close(socket)?)),
            Ending::Linger => Some(Closing::new(state, linger(socket))),
            Ending::Lost => None,
        }
    }
}

impl<X: Front> Future for Connection<X> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        clock::frozen(|| this.turn(cx))
    }
}

const TOO_SLOW: &str = "header_timeout is over and the parameters of a request have not arrived";

#[cfg(test)]
mod tests;
