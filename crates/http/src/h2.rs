//! The carrier of HTTP/2 (RFC 9113): one task for each connection, and a state machine for each of its streams.
//!
//! ```text
//!                 head                  answer              its end waits          kernel has all of it
//! connection: ──────────► Stage::Steps ────────► Sending ───────────────► is over ────────────────────► closed
//!                              └──── reset by the client, or the connection ends ───────────────────────────┘
//! ```
//! In each turn of its task the connection reads, begins the requests that came, polls the streams that were woken
//! ([`crate::multiplex`]), and sends the bodies of answers: one frame at a time, most urgent first ([`crate::Priority`]), and
//! only while the kernel takes them. So no more than a few frames wait, and a stream whose client does not read holds
//! neither memory nor other streams. The body of a request is read when its steps ask for it; only then the client may send more.
//!
//! HTTP/2 itself, without I/O: [`protocol`], [`incoming`], [`hpack`] and [`frames`]. Connections stay on their reactor, because their
//! compression state cannot move.

mod channel;
#[cfg(any(test, feature = "checks"))]
pub mod checks;
mod frames;
mod hpack;
mod incoming;
mod io;
mod output;
mod protocol;
mod send;
mod stream;
mod streams;
#[cfg(test)]
mod tests;

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use weir_http1::Name;
use weir_net::{LAST_WRITE, Socket, linger};
use weir_observe::clock::{self, NEVER};

pub(crate) use self::frames::PREFACE;
use self::{
    frames::{ENHANCE_YOUR_CALM, NO_ERROR},
    io::Io,
    output::Output,
    protocol::{Arrived, Protocol, Wrong},
    stream::{Polled, Stage, Stream},
    streams::Streams,
};
use crate::{
    Begun, Fields, Front, Phase, Priority, Request, RequestBody, RequestState,
    closing::Closing,
    conn::{FIRST_REQUEST, after},
    multiplex::{
        Limits, Memory,
        head::{AnswerHead, Refused, Whole},
        limits::{Kind, TOO_MANY_RESETS},
        memory::{ALWAYS, Share},
        slots::Turn,
    },
};

/// A connection: a future that ends with it.
pub struct Connection<X: Front> {
    front: X,
    protocol: Protocol,
    io: Io,
    /// Memory of the connection: heads, and bodies that were not read.
    memory: Share,
    streams: Streams<X::Receipt>,
    closing: Option<Closing>,
    /// When the client was told that the connection takes no more requests; 0: not yet.
    leaving_since: u64,
    /// When the client had last sent something before the last PING.
    pinged_after: u64,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The client has closed it.
    Closed,
    /// The client is told this.
    GoAway(u32),
    /// The client does not read.
    Abort,
}

impl<X: Front> Connection<X> {
    /// Serves `socket`. `ahead`: bytes that were read from it. The client has chosen HTTP/2: by ALPN, or by its preface.
    /// `memory`: of all connections.
    pub fn new(
        front: X,
        socket: Socket,
        ahead: Vec<u8>,
        limits: Limits,
        memory: &'static Memory,
    ) -> Self {
        Connection {
            protocol: Protocol::new(limits, ahead, clock::now()),
            io: Io::new(socket),
            front,
            memory: Share::of(memory),
            streams: Streams::new(),
            closing: None,
            leaving_since: 0,
            pinged_after: NEVER,
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.front.state().remember_waker(cx.waker());
        if let Some(closing) = &mut self.closing {
            return closing.poll(cx, self.front.state(), self.front.is_draining());
        }
        self.io.begin_turn(self.may_read());
        self.protocol.begin_turn(self.memory.is_full());
        self.streams.slots.begin_turn(cx.waker());
        let ending = self.rounds().or_else(|| self.send());
        let is_blocked = self.protocol.out.is_blocked();
        self.io.note_write(is_blocked, self.front.state());
        if let Some(ending) = ending {
            return self.end(cx, ending);
        }
        let memory = self.protocol.memory();
        self.memory.set(if memory > UNCOUNTED { memory } else { 0 });
        // Otherwise the steps that read bodies wake the connection.
        let has_more = self.io.is_used_up() || self.protocol.is_stopped();
        if has_more && self.may_read() {
            another_turn(cx);
        }
        self.plan();
        if self.front.state().phase() == Phase::Resting {
            self.io.shrink();
            self.protocol.shrink();
            self.streams.shrink();
        }
        if self.streams.slots.end_turn() {
            another_turn(cx);
        }
        Poll::Pending
    }

    /// Whether the connection takes what the client sends: not if the memory of all connections is full, and it holds more than a little of
    /// bodies. Its own steps read these.
    fn may_read(&self) -> bool {
        let bodies = self.protocol.held as u64;
        (bodies <= ALWAYS || !self.memory.is_full()) && self.protocol.out.waiting() <= MOST_WAITING
    }

    /// Works until there is nothing to do. Returns how the connection ends, if it does.
    fn rounds(&mut self) -> Option<Ending> {
        let now = clock::now();
        if let Some(ending) = self.overdue(now) {
            return Some(ending);
        }
        for _ in 0..TURN_ROUNDS {
            if let Some(ending) = self.send_if_enough(false) {
                return Some(ending);
            }
            if let Some(ending) = self.read(now) {
                return Some(ending);
            }
            for (id, priority) in std::mem::take(&mut self.protocol.priorities) {
                self.streams.set_priority(id, priority);
            }
            while let Some(arrived) = self.protocol.next_request() {
                self.begin(arrived, now);
            }
            for slot in self.protocol.woken.drain(..) {
                self.streams.slots.wake(slot);
            }
            if std::mem::take(&mut self.protocol.has_opened) {
                self.streams.all_send(&self.protocol);
            }
            let mut has_news = self.poll_ready(now);
            match self.send_bodies() {
                Ok(has_sent) => has_news |= has_sent,
                Err(ending) => return Some(ending),
            }
            if let Some(kind) = self.protocol.exceeded
                && let Some(ending) = self.exceeded(kind, now)
            {
                return Some(ending);
            }
            if !has_news {
                return None;
            }
        }
        self.streams.slots.wake_connection();
        None
    }

    /// Processes the received bytes.
    fn read(&mut self, now: u64) -> Option<Ending> {
        let waker = self.streams.slots.connection_waker();
        let cx = &mut Context::from_waker(&waker);
        let mut took = match self.may_read() {
            true => self.protocol.go_on(),
            false => return None,
        };
        while took.is_ok() && !self.protocol.is_stopped() && !self.io.is_used_up() {
            let protocol = &mut self.protocol;
            let read = self.io.poll_read(cx, |bytes| match bytes {
                [] => None,
                bytes => Some(protocol.receive(bytes, now)),
            });
            match read {
                Poll::Pending => break,
                Poll::Ready(Ok(Some(now_took))) => took = now_took,
                Poll::Ready(_) => return Some(Ending::Closed),
            }
        }
        match took {
            Ok(()) => None,
            Err(Wrong { code, limit }) => {
                if let Some(limit) = limit {
                    self.front.limit_exceeded(limit);
                }
                Some(Ending::GoAway(code))
            }
        }
    }

    /// The client did something too often. If it has reset too many requests, those that run are still answered.
    fn exceeded(&mut self, kind: Kind, now: u64) -> Option<Ending> {
        if !self.protocol.has_said_last() || self.leaving_since == 0 {
            self.front.limit_exceeded(kind.option());
        }
        if kind != Kind::Reset {
            return Some(Ending::GoAway(ENHANCE_YOUR_CALM));
        }
        self.protocol.calm();
        self.leaving_since = now;
        self.streams.slots.wake_connection();
        None
    }

    /// Gives the kernel what waits: all, or only if it is worth a record.
    fn send_if_enough(&mut self, is_all: bool) -> Option<Ending> {
        let out = &mut self.protocol.out;
        if out.is_empty() || !(is_all || out.is_enough() || out.is_blocked()) {
            return None;
        }
        let waker = self.streams.slots.sending_waker();
        match self.io.poll_send(&mut Context::from_waker(&waker), out) {
            Poll::Pending => None,
            Poll::Ready(Err(_)) => Some(Ending::Closed),
            Poll::Ready(Ok(())) => {
                let over = self.streams.take_over();
                over.iter().for_each(|slot| self.finish(*slot, true));
                self.streams.give_back_over(over);
                None
            }
        }
    }

    fn send(&mut self) -> Option<Ending> {
        self.send_if_enough(true)
    }

    /// A request has come.
    fn begin(&mut self, Arrived { id, head }: Arrived, now: u64) {
        let is_reset = self.protocol.is_reset(id);
        let mut client = 0;
        if (is_reset || !self.protocol.clients.is_empty())
            && let Ok((head, _)) = &head
        {
            client = self.front.client_of(head);
        }
        // If the client has already reset the stream, its request is not begun.
        if is_reset {
            self.protocol.count_reset(client);
            return self.protocol.remove(id);
        }
        let state = self.front.state();
        state.received();
        let started = match state.phase() {
            Phase::Head => state.begin_request(),
            _ => {
                state.begin_request();
                now
            }
        };
        match head {
            Ok(_) if self.protocol.clients.is_refused(client, now) => {
                self.refuse(id, &TOO_MANY_RESETS);
            }
            Ok(whole) => self.begin_whole(id, whole, started, now),
            Err(refused) => self.refuse(id, &refused),
        }
    }

    /// Answers a head that does not become a request.
    fn refuse(&mut self, id: u32, refused: &Refused) {
        self.front
            .refused(refused.status, refused.reason, refused.why);
        let head = AnswerHead::new(refused.status, Fields::default(), Some(0));
        self.protocol.send_head(id, &head, true);
        self.protocol.remove(id);
        if self.streams.slots.is_empty() {
            self.front.state().set_idle();
        }
    }

    fn begin_whole(&mut self, id: u32, (head, length): Whole, started: u64, now: u64) {
        let request = RequestState::new();
        let has_body = !self.protocol.is_request_over(id);
        let body = match has_body {
            true => RequestBody::new(&request, length),
            false => RequestBody::none(),
        };
        let mut priority = self.streams.slots.take_priority(id.into());
        if priority.is_none()
            && let Some(field) = head.fields.get(Name::Priority)
        {
            priority = Some(Priority::of(field));
        }
        let expect = head.fields.get(Name::Expect).unwrap_or_default();
        let slot = self.streams.slots.add(Stream {
            id,
            is_head: head.method == http::Method::HEAD,
            has_body,
            awaits_consent: has_body && expect.eq_ignore_ascii_case(b"100-continue"),
            interim: 0,
            priority: priority.unwrap_or_default(),
            request: request.clone(),
            stage: Stage::New,
        });
        self.protocol.attach(id, slot);
        let begun = self.front.begin(Request {
            head,
            params: None,
            body,
            started,
            state: request.clone(),
        });
        self.protocol.set_client(id, request.client());
        drop(request);
        let mut is_last = false;
        let is_open = match (begun, self.streams.slots.get(slot)) {
            (Begun::Steps(steps), Some(stream)) => {
                stream.stage = Stage::Steps(steps);
                true
            }
            (Begun::Answered(answer), Some(stream)) => {
                stream.answer(answer, &mut self.protocol, &mut is_last)
            }
            (_, None) => false,
        };
        match is_open {
            true => self.streams.slots.wake(slot),
            false => self.finish(slot, false),
        }
        if is_last {
            self.leave(now);
        }
    }

    /// Polls the streams that were woken. Returns whether there may be something to send.
    fn poll_ready(&mut self, now: u64) -> bool {
        let ready = self.streams.slots.take_ready(now);
        let has_news = !ready.is_empty();
        for slot in &ready {
            let (slot, mut is_last) = (*slot, false);
            match (self.streams).poll(slot, now, &mut self.protocol, &mut is_last) {
                Polled::Waits => {}
                Polled::Sends => self.streams.slots.sends(slot),
                Polled::Over => self.streams.is_over(slot),
                Polled::Closed => self.finish(slot, false),
            }
            if is_last {
                self.leave(now);
            }
        }
        self.streams.slots.give_back(ready);
        has_news
    }

    /// Sends bodies of answers, until the kernel takes no more. Returns whether it has sent any.
    fn send_bodies(&mut self) -> Result<bool, Ending> {
        let mut has_news = false;
        for _ in 0..FRAMES_AT_ONCE {
            if let Some(ending) = self.send_if_enough(false) {
                return Err(ending);
            }
            if self.protocol.out.is_blocked() {
                break;
            }
            let next = (self.streams).send_next(&mut self.protocol, self.front.state());
            let Some((slot, turn)) = next else {
                break;
            };
            has_news = true;
            if turn == Turn::Closed {
                self.finish(slot, false);
            }
        }
        Ok(has_news)
    }

    /// Frees a stream. `is_sent`: the kernel has its answer.
    fn finish(&mut self, slot: u32, is_sent: bool) {
        let Some(stream) = self.streams.remove(slot) else {
            return;
        };
        self.protocol.remove(stream.id);
        if self.streams.slots.is_empty() {
            self.front.state().set_idle();
        }
        let request = stream.finish(is_sent);
        request.give_back();
    }

    /// Tells the client that the connection takes no more requests (GOAWAY), in two steps (RFC 9113 §6.8): requests
    /// that are on their way are still served.
    fn leave(&mut self, now: u64) {
        if self.leaving_since == 0 {
            self.protocol.say_leave();
            self.leaving_since = now;
            self.streams.slots.wake_connection();
        }
    }

    /// Whether requests that come now are not served: the client was told, and had time to stop.
    fn is_closed_to_new(&mut self, now: u64) -> bool {
        let is_late =
            self.leaving_since > 0 && now.saturating_sub(self.leaving_since) >= FIRST_REQUEST;
        if is_late && !self.protocol.has_said_last() {
            self.protocol.say_last(NO_ERROR);
        }
        self.protocol.has_said_last()
    }

    /// Whether one of the connection's times is over.
    fn overdue(&mut self, now: u64) -> Option<Ending> {
        if self.protocol.out.is_blocked() && self.front.state().send_overdue(now) {
            return Some(Ending::Abort);
        }
        if !self.may_read() {
            // weir does not read from the connection now, so the client's silence says nothing.
            return None;
        }
        if now >= self.head_deadline() {
            self.front.limit_exceeded("header_timeout");
            return Some(Ending::GoAway(ENHANCE_YOUR_CALM));
        }
        let is_draining = self.front.is_draining();
        let is_closed = self.is_closed_to_new(now);
        let state = self.front.state();
        if self.streams.slots.is_empty() {
            let is_done = is_closed
                || (now >= state.idle_deadline() && self.head_deadline() == NEVER)
                || (self.leaving_since == 0 && state.is_over(is_draining, now));
            if is_done {
                return Some(Ending::GoAway(self.protocol.goodbye()));
            }
        } else if now >= self.ping_deadline() {
            let received = self.protocol.received_at;
            if std::mem::replace(&mut self.pinged_after, received) == received {
                return Some(Ending::Abort);
            }
            self.protocol.ping();
        }
        if is_draining {
            self.leave(now);
        }
        None
    }

    /// Plans when the task is woken at the latest.
    fn plan(&self) {
        let mut next = self.head_deadline();
        next = next.min(match self.streams.slots.is_empty() {
            true => self.front.state().idle_deadline(),
            false => self.ping_deadline().min(self.streams.slots.wakes_at()),
        });
        if self.leaving_since > 0 && self.streams.slots.is_empty() {
            next = next.min(self.leaving_since + FIRST_REQUEST);
        }
        self.front.state().wake_at(next);
    }

    fn head_deadline(&self) -> u64 {
        let since = self.protocol.incomplete_since();
        after(since, self.front.state().timeouts.header)
    }

    /// When the client is asked whether it is there, or given up.
    fn ping_deadline(&self) -> u64 {
        let received = self.protocol.received_at;
        let times = 1 + u32::from(self.pinged_after == received);
        after(received, self.protocol.limits.ping * times)
    }

    fn end(&mut self, cx: &mut Context<'_>, ending: Ending) -> Poll<()> {
        // Tells the steps of all requests that the client has left.
        for stream in self.streams.clear() {
            stream.finish(false).give_back();
        }
        self.memory.set(0);
        self.front.state().wake_at(NEVER);
        let Ending::GoAway(code) = ending else {
            self.io.close(ending == Ending::Abort);
            return Poll::Ready(());
        };
        self.protocol.say_last(code);
        let Some(socket) = self.io.take_socket() else {
            return Poll::Ready(());
        };
        let out = std::mem::take(&mut self.protocol.out);
        let state = self.front.state();
        let closing = self.closing.insert(Closing::new(state, close(socket, out)));
        closing.poll(cx, state, self.front.is_draining())
    }
}

/// Sends the remaining frames, GOAWAY last, and closes the socket so that the client can read all of them.
async fn close(mut socket: Socket, mut out: Output) {
    let sent = std::future::poll_fn(|cx| out.send(cx, &mut socket));
    let _ = tokio::time::timeout(LAST_WRITE, sent).await;
    linger(socket).await;
}

impl<X: Front> Future for Connection<X> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        clock::frozen(|| this.turn(cx))
    }
}

/// The task gets another turn once all others have had theirs, and the reactor has looked at its sockets: a task that only
/// wakes itself may have many turns before a reactor that has something to do looks at them.
fn another_turn(cx: &mut Context<'_>) {
    // `yield_now` asks for the next turn when it is polled for the first time.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

/// How often a turn reads and writes.
const TURN_ROUNDS: usize = 16;

/// Frames with parts of answers that a round sends.
const FRAMES_AT_ONCE: usize = 8;

/// A client that does not read, and for which so many bytes wait, is not read either.
const MOST_WAITING: usize = 256 * 1024;

/// Less memory than this is not counted, so that reactors need not agree about each request.
const UNCOUNTED: u64 = 16 * 1024;
