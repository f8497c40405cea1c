//! The carrier of HTTP/2 (RFC 9113): one task for each connection, and a state machine for each of its streams. The `h2` crate
//! has the protocol.
//!
//! ```text
//!                 head                  answer              `h2` has its end        kernel has all of it
//! connection: ──────────► Stage::Steps ────────► Sending ─────────────────► is over ────────────────────► closed
//!                              └──── reset by the client, or the connection ends ────────────────────────────┘
//! ```
//! In each turn of its task the connection reads and writes (`h2`), begins the requests that came, polls the streams that were
//! woken ([`crate::multiplex`]), and gives the bodies of answers to `h2`: one frame at a time, most urgent first ([`crate::Priority`]), and
//! only while the kernel takes them. So `h2` never has more than a few frames, and a stream whose client does not read holds
//! neither memory nor other streams. The body of a request is read when its steps ask for it; only then the client may send more.
//!
//! `h2` refuses what RFC 9113 calls malformed, and limits some of what attackers do; [`wire`] counts the rest. Connections stay
//! on their reactor, because their compression state cannot move.

mod output;
mod send;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
mod wire;

use std::{
    future::Future,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use h2::{
    Ping, PingPong, Reason, RecvStream,
    server::{self, Handshake, SendResponse},
};
use http::Version;
use tokio::io::AsyncWrite;
use weir_http1::Name;
use weir_net::{LINGER, Socket, linger};
use weir_observe::clock::{self, NEVER};

pub(crate) use self::wire::PREFACE;
use self::{
    stream::{Polled, Stage, Stream},
    streams::Streams,
    wire::{Shared, Wire},
};
use crate::{
    Begun, Front, Phase, Priority, Request, RequestBody, RequestState,
    conn::{FIRST_REQUEST, after},
    multiplex::{Limits, Memory, head, memory::Share, slots::Turn},
};

/// A connection: a future that ends with it.
pub struct Connection<X: Front> {
    front: X,
    limits: Limits,
    /// What the connection holds of bodies that were not read.
    unread: Share,
    shared: Rc<Shared>,
    streams: Streams<X::Receipt>,
    state: State,
    /// When the client was told that the connection takes no more requests; 0: not yet.
    leaving_since: u64,
    ping: Option<PingPong>,
    /// When the client had last sent something before the last PING.
    pinged_after: u64,
}

enum State {
    /// Until the client's preface has come.
    Handshake(Handshake<Wire, Bytes>),
    Open(server::Connection<Wire, Bytes>),
    Closing(Pin<Box<dyn Future<Output = ()>>>),
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The client has closed it, or `h2` has.
    Closed,
    /// `h2` has told the client what was wrong.
    Refused,
    /// The client is told this.
    GoAway(Reason),
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
        let shared = Rc::new(Shared::new(socket, ahead, &limits));
        // A client that keeps to this never has a head refused because of its size.
        let list = u64::from(limits.head) + u64::from(limits.fields) * FIELD;
        let handshake = server::Builder::new()
            .max_concurrent_streams(limits.streams)
            .initial_window_size(limits.stream_window)
            .initial_connection_window_size(limits.window.max(limits.stream_window))
            .max_header_list_size(u32::try_from(list).unwrap_or(u32::MAX))
            // These are counted per time: `limits`.
            .max_local_error_reset_streams(None)
            .max_pending_accept_reset_streams(limits.streams.max(limits.resets) as usize)
            .handshake(Wire(shared.clone()));
        Connection {
            front,
            limits,
            unread: Share::of(memory),
            streams: Streams::new(),
            shared,
            state: State::Handshake(handshake),
            leaving_since: 0,
            ping: None,
            pinged_after: NEVER,
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.front.state().remember_waker(cx.waker());
        if let State::Closing(closing) = &mut self.state {
            return closing.as_mut().poll(cx);
        }
        let may_read = self.unread.may_grow();
        self.shared.begin_turn(may_read);
        self.streams.slots.begin_turn(cx.waker());
        let ending = self.rounds().or_else(|| self.send());
        self.shared.note_write(self.front.state());
        if let Some(ending) = ending {
            return self.end(cx, ending);
        }
        if self.shared.has_data() || self.unread.is_some() {
            self.unread.set(self.streams.unread());
        }
        // Otherwise the steps that read bodies wake the connection.
        if self.shared.is_used_up() && self.unread.may_grow() {
            another_turn(cx);
        }
        self.plan();
        if self.front.state().phase() == Phase::Resting {
            self.shared.rest();
            self.streams.rest();
        }
        if self.streams.slots.end_turn() {
            another_turn(cx);
        }
        Poll::Pending
    }

    /// Works until there is nothing to do. Returns how the connection ends, if it does.
    fn rounds(&mut self) -> Option<Ending> {
        let now = clock::now();
        if let Some(ending) = self.overdue(now) {
            return Some(ending);
        }
        for _ in 0..TURN_ROUNDS {
            if let Some(ending) = self.read_and_write(now) {
                return Some(ending);
            }
            if let Some(kind) = self.shared.exceeded() {
                self.front.limit_exceeded(kind.option());
                return Some(Ending::GoAway(Reason::ENHANCE_YOUR_CALM));
            }
            for update in self.shared.take_updates() {
                self.update_priority(&update);
            }
            let mut has_news = self.poll_ready(now);
            has_news |= self.send_bodies();
            if !has_news {
                return None;
            }
        }
        self.streams.slots.wake_wire();
        None
    }

    /// Lets `h2` read and write, and begins the requests that have come.
    fn read_and_write(&mut self, now: u64) -> Option<Ending> {
        let waker = self.streams.slots.wire_waker();
        let cx = &mut Context::from_waker(&waker);
        if let State::Handshake(handshake) = &mut self.state {
            match Pin::new(handshake).poll(cx) {
                Poll::Pending => return None,
                Poll::Ready(Err(_)) => return Some(Ending::Closed),
                Poll::Ready(Ok(mut open)) => {
                    self.ping = open.ping_pong();
                    self.state = State::Open(open);
                }
            }
        }
        loop {
            let State::Open(open) = &mut self.state else {
                return None;
            };
            match open.poll_accept(cx) {
                Poll::Pending => break,
                Poll::Ready(None) => return Some(self.closed(None)),
                Poll::Ready(Some(Err(error))) => return Some(self.closed(Some(error))),
                Poll::Ready(Some(Ok((request, respond)))) => self.begin(request, respond, now),
            }
        }
        if let Some(ping) = &mut self.ping {
            let _ = ping.poll_pong(cx);
        }
        if !self.shared.is_blocked() {
            self.streams.all_is_written();
        }
        None
    }

    /// Gives the kernel what the turn has made. Returns how the connection ends, if it does.
    fn send(&mut self) -> Option<Ending> {
        let waker = self.streams.slots.sending_waker();
        match self.shared.poll_send(&mut Context::from_waker(&waker)) {
            Poll::Pending => {}
            Poll::Ready(Err(_)) => return Some(Ending::Closed),
            Poll::Ready(Ok(())) => {
                let written = self.streams.take_written();
                written.iter().for_each(|slot| self.finish(*slot, true));
                self.streams.give_back_written(written);
            }
        }
        None
    }

    /// How the connection ends that `h2` has closed.
    fn closed(&self, error: Option<h2::Error>) -> Ending {
        let Some(error) = error.filter(|error| error.is_library() && error.is_go_away()) else {
            return Ending::Closed;
        };
        // What is counted here may be too much in the same bytes.
        match self.shared.exceeded() {
            Some(kind) => self.front.limit_exceeded(kind.option()),
            None if error.reason() == Some(Reason::ENHANCE_YOUR_CALM) => {
                self.front.limit_exceeded(exceeded(&self.shared.goodbye()));
            }
            None => {}
        }
        Ending::Refused
    }

    /// Begins a request.
    fn begin(
        &mut self,
        request: http::Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        now: u64,
    ) {
        let state = self.front.state();
        if self.is_closed_to_new(now) {
            // The client may send it again over another connection (RFC 9113 §8.7).
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        state.received();
        let started = match state.phase() {
            Phase::Head => state.begin_request(),
            _ => {
                state.begin_request();
                now
            }
        };
        let (parts, body) = request.into_parts();
        let id = respond.stream_id().as_u32();
        let head = match head::request(parts, Version::HTTP_2, &self.limits) {
            Ok(head) => head,
            Err(refused) => {
                self.front
                    .refused(refused.status, refused.reason, refused.why);
                if let Ok(head) = head::response(refused.status, &Default::default(), Some(0)) {
                    let _ = respond.send_response(head, true);
                }
                return self.rest_if_idle();
            }
        };
        let request = RequestState::new();
        let has_body = !body.is_end_stream();
        let length = head.fields.get(Name::ContentLength);
        let length = length.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let request_body = match has_body {
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
        let stream = Stream {
            id,
            respond,
            body: has_body.then_some(body),
            is_head: head.method == http::Method::HEAD,
            awaits_consent: has_body && expect.eq_ignore_ascii_case(b"100-continue"),
            interim: 0,
            priority: priority.unwrap_or_default(),
            request: request.clone(),
            stage: Stage::New,
        };
        let slot = self.streams.slots.add(stream);
        // Its client may have reset it already: then it is not begun.
        if self.streams.is_reset(slot) {
            return self.finish(slot, false);
        }
        let begun = self.front.begin(Request {
            head,
            params: None,
            body: request_body,
            started,
            state: request,
        });
        let mut is_last = false;
        let is_open = match (begun, self.streams.slots.get(slot)) {
            (Begun::Steps(steps), Some(stream)) => {
                stream.stage = Stage::Steps(steps);
                true
            }
            (Begun::Answered(answer), Some(stream)) => stream.answer(answer, &mut is_last),
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

    /// Polls the streams that were woken. Returns whether `h2` may have something to write.
    fn poll_ready(&mut self, now: u64) -> bool {
        let ready = self.streams.slots.take_ready(now);
        let has_news = !ready.is_empty();
        for slot in &ready {
            let (slot, mut is_last) = (*slot, false);
            match self.streams.poll(slot, now, &mut is_last) {
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

    /// Gives bodies of answers to `h2`, until that has enough for the kernel. Returns whether it has got anything.
    fn send_bodies(&mut self) -> bool {
        let mut has_news = false;
        let mut run = (0, 0);
        for _ in 0..FRAMES_AT_ONCE {
            if self.shared.is_blocked() {
                break;
            }
            let Some((slot, turn)) = self.streams.send_next(self.front.state(), run) else {
                break;
            };
            has_news = true;
            run = match run {
                (before, frames) if before == slot => (slot, frames + 1),
                _ => (slot, 1),
            };
            if turn == Turn::Closed {
                self.finish(slot, false);
            }
        }
        has_news
    }

    /// Frees a stream. `is_sent`: the kernel has its answer.
    fn finish(&mut self, slot: u32, is_sent: bool) {
        let Some(stream) = self.streams.remove(slot) else {
            return;
        };
        if self.streams.slots.is_empty() {
            self.front.state().rest();
        }
        let request = stream.finish(is_sent);
        request.give_back();
    }

    fn rest_if_idle(&self) {
        if self.streams.slots.is_empty() {
            self.front.state().rest();
        }
    }

    /// A PRIORITY_UPDATE has come: the number of a stream, and its new priority.
    fn update_priority(&mut self, payload: &[u8]) {
        if let Some((id, field)) = payload.split_first_chunk() {
            let id = u32::from_be_bytes(*id) & !(1 << 31);
            self.streams.set_priority(id, Priority::of(field));
        }
    }

    /// Tells the client that the connection takes no more requests (GOAWAY), in two steps (RFC 9113 §6.8): those that are on
    /// their way are still served.
    fn leave(&mut self, now: u64) {
        if self.leaving_since == 0
            && let State::Open(open) = &mut self.state
        {
            open.graceful_shutdown();
            self.leaving_since = now;
            self.streams.slots.wake_wire();
        }
    }

    /// Whether requests that come now are refused: the client was told long ago.
    fn is_closed_to_new(&self, now: u64) -> bool {
        self.leaving_since > 0 && now.saturating_sub(self.leaving_since) >= FIRST_REQUEST
    }

    /// Whether one of the connection's times is over.
    fn overdue(&mut self, now: u64) -> Option<Ending> {
        let state = self.front.state();
        if self.shared.is_blocked() && state.send_overdue(now) {
            return Some(Ending::Abort);
        }
        if !self.unread.may_grow() {
            // It is not read, so the client's silence says nothing.
            return None;
        }
        if now >= self.head_deadline() {
            self.front.limit_exceeded("header_timeout");
            return Some(Ending::GoAway(Reason::ENHANCE_YOUR_CALM));
        }
        let is_draining = self.front.is_draining();
        if self.streams.slots.is_empty() {
            let is_done = self.is_closed_to_new(now)
                || (now >= self.front.state().idle_deadline() && self.head_deadline() == NEVER)
                || (self.leaving_since == 0 && state.is_over(is_draining, now));
            if is_done {
                return Some(Ending::GoAway(Reason::NO_ERROR));
            }
        } else if now >= self.ping_deadline() {
            let received = self.shared.received_at();
            if std::mem::replace(&mut self.pinged_after, received) == received {
                return Some(Ending::Abort);
            }
            if let Some(ping) = &mut self.ping {
                // Fails only if the answer to an earlier one is missing.
                let _ = ping.send_ping(Ping::opaque());
            }
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
        let since = self.shared.incomplete_since();
        after(since, self.front.state().timeouts.header)
    }

    /// When the client is asked whether it is there, or given up.
    fn ping_deadline(&self) -> u64 {
        let received = self.shared.received_at();
        let times = 1 + u32::from(self.pinged_after == received);
        after(received, self.limits.ping * times)
    }

    fn end(&mut self, cx: &mut Context<'_>, ending: Ending) -> Poll<()> {
        // Tells the steps of all requests that the client has left.
        for stream in self.streams.clear() {
            stream.finish(false).give_back();
        }
        self.unread.set(0);
        self.front.state().wake_at(NEVER);
        let shared = self.shared.clone();
        let closed = State::Closing(Box::pin(std::future::ready(())));
        let open = match std::mem::replace(&mut self.state, closed) {
            State::Open(open) => Some(open),
            _ => None,
        };
        let reason = match ending {
            Ending::GoAway(reason) => Some(reason),
            Ending::Refused => None,
            Ending::Abort | Ending::Closed => {
                if ending == Ending::Abort {
                    shared.reset_on_close();
                }
                drop(open);
                if let Some(mut socket) = shared.take_socket() {
                    // Shutting down a socket never waits.
                    let _ = Pin::new(&mut socket)
                        .poll_shutdown(&mut Context::from_waker(Waker::noop()));
                }
                return Poll::Ready(());
            }
        };
        self.state = State::Closing(Box::pin(close(open, reason, shared)));
        match &mut self.state {
            State::Closing(closing) => closing.as_mut().poll(cx),
            _ => Poll::Ready(()),
        }
    }
}

/// Sends what is left, GOAWAY last, and closes the socket so that the client can read that.
async fn close(
    mut open: Option<server::Connection<Wire, Bytes>>,
    reason: Option<Reason>,
    shared: Rc<Shared>,
) {
    if let Some(open) = &mut open
        && let Some(reason) = reason
    {
        open.abrupt_shutdown(reason);
        let closed = std::future::poll_fn(|cx| open.poll_closed(cx).map(drop));
        let _ = tokio::time::timeout(LINGER, closed).await;
    }
    drop(open);
    if let Some(socket) = shared.take_socket() {
        linger(socket).await;
    }
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
    // It says so when it is polled for the first time.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

/// The option that limits what `h2` has refused by itself. `goodbye`: its last words to the client.
fn exceeded(goodbye: &[u8]) -> &'static str {
    let known = [
        ("too_many_resets", "http2_max_resets"),
        ("too_many_internal_resets", "http2_max_resets"),
        ("too_many_data_frames", "http2_max_small_frames"),
        (
            "too_many_continuations",
            "max_head (in CONTINUATION frames)",
        ),
        ("header_list_way_too_large", "max_head, max_headers"),
    ];
    let found = known
        .iter()
        .find(|(words, _)| goodbye.ends_with(words.as_bytes()));
    found.map_or("the limits of frames", |(_, option)| option)
}

/// How often a turn reads and writes.
const TURN_ROUNDS: usize = 16;

/// Frames with parts of answers that `h2` gets before it writes them.
const FRAMES_AT_ONCE: usize = 8;

/// What a field counts in the size of a list besides its name and value (RFC 9113 §6.5.2), bytes.
const FIELD: u64 = 32;
