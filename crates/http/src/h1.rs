//! The carrier of HTTP/1: one task and one state machine for each connection.
//!
//! ```text
//!             head whole             answer                 kernel has all of it
//!  Reading ─────────────► Steps ───────────────► Sending ────────────────────────► Reading
//!     │ └── answered at once ──────────────────────┘ │ cut                             │
//!     │                     │ the client has left    │                                 │
//!     └─────────────────────┴────────────────────────┴──► Closing ◄────────────────────┘
//! ```
//! - `Reading`: between two requests, or within a head. An idle connection has its socket and this struct, but no
//!   buffer: all connections of a reactor read into the same buffer, and only bytes that cannot be used yet are copied.
//! - `Steps`: the exchange works for a request that it could not answer at once. The carrier gives it the body when it
//!   asks for it, and watches the client while a script runs. Bytes that the client sends meanwhile are kept.
//! - `Sending`: the answer. Usually the kernel takes all of it at once; then there is no such state. A source that
//!   still reads the request's body gets it here, too.
//! - `Closing`: the client may still be sending. Another protocol gets the connection from the same place: a tunnel (CONNECT) or HTTP/2.
//!
//! The parser is [`weir_http1`]; its documentation says what is refused.

mod close;
mod head;
mod io;
mod send;
pub(crate) mod target;

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use http::StatusCode;
pub use weir_http1::Limits;
use weir_http1::server::ResponseTo;
use weir_net::Socket;
use weir_observe::clock;

use self::{
    close::{Ending, close},
    io::{Io, Left},
    send::{Completion, Cut, Sending},
};
use super::{
    Answer, Begun, RequestState, Steps, Tunnel, Tunnelled,
    closing::Closing,
    turn::{Budget, Next, TimedOut, Waiting},
};

/// What the carrier needs of the gateway for one connection.
pub trait Front: crate::Front {
    /// Lines of fields, each with its end, in the answer to such a head.
    fn refusal_fields(&self, _status: StatusCode) -> &'static str {
        ""
    }

    /// The client speaks TLS, which the listener does not take.
    fn met_tls(&self) {}

    /// Whether a client may choose HTTP/2 by beginning with its preface.
    fn takes_http2(&self) -> bool {
        false
    }

    /// Serves the connection by HTTP/2. `ahead`: the bytes that were read, which begin with its preface. Called only if
    /// [`Self::takes_http2`], before the first request.
    fn serve_http2(&mut self, _socket: Socket, _ahead: Vec<u8>) -> Tunnelled {
        Box::pin(std::future::ready(()))
    }
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
    Steps(Working<R>),
    Sending(Box<Sending<R>>),
    Closing(Closing),
    /// Another protocol has the connection.
    Passed(Tunnelled),
}

/// A request that the exchange is processing.
struct Working<R> {
    steps: Steps<R>,
    state: Rc<RequestState>,
    request: ResponseTo,
    /// The client waits for 100 before it sends the body.
    awaits_consent: bool,
}

impl<X: Front> Connection<X> {
    /// Serves `socket`.
    pub fn new(front: X, socket: Socket, limits: Limits) -> Self {
        let may_be_http2 = front.takes_http2() && front.state().requests() == 0;
        Connection {
            front,
            io: Io::new(socket, limits, may_be_http2),
            stage: Stage::Reading,
            waiting: Waiting::default(),
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.front.state().remember_waker(cx.waker());
        let mut budget = Budget::new();
        if let Stage::Reading = self.stage {
            // Nearly always, the client's bytes have woken the connection.
            self.io.read_first();
        }
        loop {
            let next = match &mut self.stage {
                Stage::Reading => ready!(self.poll_reading(cx, &mut budget)),
                Stage::Steps(_) => ready!(self.poll_steps(cx, &mut budget)),
                Stage::Sending(sending) => {
                    let sent = sending.poll(cx, &mut self.io, self.front.state());
                    if sent.is_pending() {
                        self.front.state().wake_at(sending.request().wakes_at());
                    }
                    let sent = match (sent, sending.wanted()) {
                        (Poll::Ready(sent), _) => sent,
                        (Poll::Pending, None) => return Poll::Pending,
                        (Poll::Pending, Some(body)) => {
                            match ready!(self.io.poll_body(cx, body, &mut budget)) {
                                Ok(()) => continue,
                                Err(Left) => Err(Cut::Left),
                            }
                        }
                    };
                    match (sent, std::mem::replace(&mut self.stage, Stage::Reading)) {
                        (Ok(()), Stage::Sending(sending)) => self.after_sending(sending.completion),
                        (Err(cut), _) => Next::End(cut.ending()),
                        (Ok(()), _) => Next::Part,
                    }
                }
                Stage::Closing(closing) => {
                    return closing.poll(cx, self.front.state(), self.front.is_draining());
                }
                Stage::Passed(other) => return other.as_mut().poll(cx),
            };
            if let Next::End(ending) = next {
                // Dropping the stage tells the request's steps that the client has left.
                self.stage = Stage::Reading;
                match self.end(ending) {
                    Some(last) => self.stage = last,
                    None => return Poll::Ready(()),
                }
            }
        }
    }

    /// Reads a head and begins its request.
    fn poll_reading(&mut self, cx: &mut Context<'_>, budget: &mut Budget) -> Poll<Next<Ending>> {
        let now = clock::now();
        if let Some(timed_out) = self.waiting.timed_out(&self.front, now) {
            return Poll::Ready(Next::End(match timed_out {
                TimedOut::Idle => Ending::Clean,
                TimedOut::Head => Ending::HeadTimeout(TOO_SLOW),
                TimedOut::Draining => Ending::HeadTimeout(TOO_LATE),
            }));
        }
        if !budget.may_begin(cx) {
            return Poll::Pending;
        }
        let state = self.front.state();
        let whole = match self.io.poll_head(cx, state) {
            Poll::Pending => {
                let take = || self.io.take_socket();
                return match self.waiting.ends(&mut self.front, now, take) {
                    true => Poll::Ready(Next::End(Ending::Clean)),
                    false => Poll::Pending,
                };
            }
            Poll::Ready(Ok(whole)) => whole,
            Poll::Ready(Err(ending)) => return Poll::Ready(Next::End(ending)),
        };
        budget.begun();
        let mut request = whole.request;
        request.started = state.begin_request();
        let state = request.state.clone();
        match self.front.begin(request) {
            Begun::Answered(answer) => self.send(cx, answer, whole.response_to, state),
            Begun::Steps(steps) => {
                self.stage = Stage::Steps(Working {
                    steps,
                    state,
                    request: whole.response_to,
                    awaits_consent: whole.awaits_consent,
                });
                Poll::Ready(Next::Part)
            }
        }
    }

    /// Runs the exchange, and gives it what it needs from the connection.
    fn poll_steps(&mut self, cx: &mut Context<'_>, budget: &mut Budget) -> Poll<Next<Ending>> {
        let Stage::Steps(steps) = &mut self.stage else {
            return Poll::Ready(Next::Part);
        };
        let (io, state, request) = (&mut self.io, self.front.state(), &*steps.state);
        let mut is_watched = request.is_client_looked_at_first();
        // Checked first, so that a request whose client has left is not started.
        if is_watched && io.client_left(cx) {
            return Poll::Ready(Next::End(Ending::Clean));
        }
        let answer = loop {
            let polled = steps.steps.as_mut().poll(cx);
            for interim in request.take_interim() {
                io.put_interim(&interim, steps.request);
            }
            if let Poll::Ready(answer) = polled {
                break answer;
            }
            state.wake_at(request.wakes_at());
            let is_wanted = request.is_body_wanted();
            if is_wanted && std::mem::take(&mut steps.awaits_consent) {
                io.consent();
            }
            let flushed = io.poll_flush(cx);
            io.note_write(flushed.is_pending(), state);
            match flushed {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Next::End(Ending::Clean)),
                Poll::Pending if state.send_overdue(clock::now()) => {
                    return Poll::Ready(Next::End(Ending::Abort));
                }
                Poll::Pending => {}
            }
            if is_wanted {
                match io.poll_body(cx, request, budget) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(Left)) => return Poll::Ready(Next::End(Ending::Clean)),
                    Poll::Pending => {}
                }
            }
            if !std::mem::replace(&mut is_watched, true)
                && request.is_client_watched()
                && io.client_left(cx)
            {
                return Poll::Ready(Next::End(Ending::Clean));
            }
            return Poll::Pending;
        };
        let (request, state) = (steps.request, steps.state.clone());
        // The memory is freed before the answer is sent, because sending may take long.
        self.stage = Stage::Reading;
        self.send(cx, answer, request, state)
    }

    /// Begins to send an answer; nearly always that is also the end of it.
    fn send(
        &mut self,
        cx: &mut Context<'_>,
        answer: Answer<X::Receipt>,
        request: ResponseTo,
        state: Rc<RequestState>,
    ) -> Poll<Next<Ending>> {
        let keep = answer.keep
            && self.io.is_request_whole()
            && !self.io.is_last()
            && !self.front.is_draining();
        let mut sending = Sending::new(answer, (request, state), keep, self.io.out());
        let sent = sending.poll(cx, &mut self.io, self.front.state());
        if sent.is_pending() {
            let wakes_at = sending.request().wakes_at();
            self.front.state().wake_at(wakes_at);
        }
        match sent {
            Poll::Pending if sending.wanted().is_some() => {
                self.stage = Stage::Sending(Box::new(sending));
                Poll::Ready(Next::Part)
            }
            Poll::Pending => {
                self.stage = Stage::Sending(Box::new(sending));
                Poll::Pending
            }
            // Only this part is passed on, because `sending` is large.
            Poll::Ready(Ok(())) => Poll::Ready(self.after_sending(sending.completion)),
            Poll::Ready(Err(cut)) => Poll::Ready(Next::End(cut.ending())),
        }
    }

    /// All of an answer was sent.
    fn after_sending(&mut self, mut completion: Completion<X::Receipt>) -> Next<Ending> {
        if let Some(tunnel) = completion.tunnel.take() {
            // No request has a deadline any more, and a tunnel has buffers of its own.
            self.front.state().wake_at(clock::NEVER);
            self.io.give_back();
            completion.end();
            return Next::End(Ending::Tunnel(tunnel, self.io.take_rest()));
        }
        let (keep, is_body_left) = (completion.keep, completion.request.is_body_left());
        let may_follow = completion.may_follow;
        self.front.state().set_idle();
        completion.end();
        self.io.give_back();
        if keep {
            self.io.next_request();
            return Next::Part;
        }
        // Unread bytes of the client, from before or from now on, would turn the close into a reset, and the answer
        // might be lost.
        Next::End(match may_follow || is_body_left || self.io.has_unread() {
            true => Ending::Linger,
            false => Ending::Clean,
        })
    }

    /// Ends the connection. `None`: it has ended.
    fn end(&mut self, ending: Ending) -> Option<Stage<X::Receipt>> {
        let socket = self.io.take_socket()?;
        Some(match ending {
            Ending::Http2 => {
                let ahead = self.io.take_rest();
                Stage::Passed(self.front.serve_http2(socket, ahead))
            }
            Ending::Tunnel(Tunnel(carry), ahead) => Stage::Passed(carry(socket, ahead)),
            ending => Stage::Closing(close(ending, socket, &self.front)?),
        })
    }
}

impl<X: Front> Future for Connection<X> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        clock::frozen(|| this.turn(cx))
    }
}

const TOO_SLOW: &str = "the request head took longer than header_timeout";
const TOO_LATE: &str =
    "weir is stopping, and the rest of the request head did not arrive within a second";
