//! The carrier of HTTP/3 (RFC 9114): one task for each connection of QUIC, and a state machine for each of its streams.
//!
//! ```text
//!        Connected        head          answer             QUIC has its end          the client has all of it
//! Handshake ───► stream: ─────► Steps ────────► Sending ────────────────────► is over ───────────────────────► closed
//!                                 └──── reset by the client, or the connection ends ───────────────────────────────┘
//! ```
//! In each turn of its task the connection receives and sends (`weir_net::quic`), begins the requests that came, polls the streams that
//! were woken, and gives the bodies of answers to QUIC: one frame at a time, most urgent first ([`crate::Priority`]), and only a little
//! more than the congestion window takes. So a stream whose client does not read holds neither memory nor other streams. The body of a
//! request is read when its steps ask for it; only then the client may send more.
//!
//! HTTP/3 itself, without I/O: [`frames`], [`control`], [`qpack`], [`receive`] and [`head`]. Heads are compressed without a dynamic table.

#[cfg(any(test, feature = "checks"))]
pub mod checks;
mod control;
mod frames;
mod handshake;
mod head;
mod qpack;
mod receive;
mod send;
mod stream;
mod streams;
mod tables;

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use http::Method;
use quinn_proto::{ConnectionError, Dir, Event, StreamEvent, StreamId, VarInt};
use weir_http1::Name;
use weir_net::quic;
use weir_observe::clock::{self, NEVER};

use self::{
    control::{Controls, MAX_FIELD_SECTION_SIZE, OneWay},
    frames::{
        GENERAL_PROTOCOL_ERROR, GOAWAY, MESSAGE_ERROR, NO_ERROR, REQUEST_REJECTED, SETTINGS, Wrong,
        put_head, put_varint,
    },
    qpack::FIELD,
    send::{Out, reset},
    stream::{Polled, Stage, Stream},
    streams::Streams,
};
pub use self::{frames::EXCESSIVE_LOAD, handshake::Handshake};
use crate::{
    Begun, Front, Phase, Priority, Request, RequestBody, buffers,
    conn::{FIRST_REQUEST, after},
    multiplex::{
        Limits, Memory,
        head::{Refused, Unfit},
        limits::{Clients, Counter, Kind, TOO_MANY_RESETS},
        memory::Share,
        slots::Turn,
    },
};

/// A connection: a future that ends with it.
pub struct Connection<X: Front> {
    front: X,
    limits: Limits,
    quic: quic::Connection,
    streams: Streams<X::Receipt>,
    controls: Controls,
    one_ways: Vec<(StreamId, OneWay)>,
    /// weir's own stream with settings.
    control: Option<StreamId>,
    control_out: Out,
    counter: Counter,
    exceeded: Option<Kind>,
    /// The client has reset too much, and was told so.
    is_calmed: bool,
    /// The resets of clients of a proxy.
    clients: Clients,
    /// A proxy has named the client of a request.
    is_of_proxy: bool,
    /// Small frames of QUIC that have come.
    small_frames: u64,
    /// The stream that the client opens next.
    next: u64,
    /// When the client was told that the connection takes no more requests; 0: not yet.
    leaving_since: u64,
    /// From which stream on requests are refused.
    refused_from: u64,
    /// When something last came, and when the client was last asked whether it is there.
    heard_at: u64,
    pinged_at: u64,
    /// How many bytes of unread bodies the client may send in addition to what each client may send.
    unread: Share,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The connection has ended; whether the client has closed it without an error.
    Closed(bool),
    /// The client is told this.
    Told(Wrong),
}

impl<X: Front> Connection<X> {
    /// Serves `quic`, whose handshake is over. `memory`: of all connections.
    pub fn new(front: X, quic: quic::Connection, limits: Limits, memory: &'static Memory) -> Self {
        let now = clock::now();
        Connection {
            front,
            quic,
            streams: Streams::new(),
            controls: Controls::default(),
            one_ways: Vec::new(),
            control: None,
            control_out: Out::default(),
            counter: Counter::new(&limits, now),
            exceeded: None,
            is_calmed: false,
            clients: Clients::default(),
            is_of_proxy: false,
            small_frames: 0,
            next: 0,
            leaving_since: 0,
            refused_from: u64::MAX,
            heard_at: now,
            pinged_at: now,
            unread: Share::of(memory),
            limits,
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.front.state().remember_waker(cx.waker());
        self.streams.slots.begin_turn(cx.waker());
        if let Some(ending) = self.rounds() {
            self.end(ending);
            return Poll::Ready(());
        }
        self.set_window();
        self.plan();
        if self.front.state().phase() == Phase::Resting {
            self.streams.shrink();
            self.quic.shrink();
        }
        if self.streams.slots.end_turn() {
            // The task gets its next turn after all other tasks, and after the reactor has looked at its sockets.
            // `yield_now` asks for that when it is polled first.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
        }
        Poll::Pending
    }

    /// Works until there is nothing to do. Returns how the connection ends, if it does.
    fn rounds(&mut self) -> Option<Ending> {
        let now = clock::now();
        if self.control.is_none()
            && let Err(wrong) = self.greet()
        {
            return Some(Ending::Told(wrong));
        }
        let mut requests = TURN_REQUESTS;
        for _ in 0..TURN_ROUNDS {
            if let Some(ending) = self.overdue(now) {
                return Some(ending);
            }
            let waker = self.streams.slots.connection_waker();
            let is_long = self.quic.drive(&mut Context::from_waker(&waker));
            if self.quic.take_heard() {
                self.heard_at = now;
                buffers::count_read();
                self.count_frames();
            }
            let events = self.events(now, &mut requests);
            let ready = events.and_then(|()| self.poll_ready(now));
            let mut has_news = match ready {
                Ok(has_news) => has_news,
                Err(ending) => return Some(ending),
            };
            if let Some(kind) = self.exceeded.take() {
                self.front.limit_exceeded(kind.option());
                if kind == Kind::Reset {
                    self.calm(now);
                    continue;
                }
                return Some(Ending::Told(TOO_MUCH));
            }
            has_news |= self.send_bodies();
            if let Some(control) = self.control {
                self.control_out.flush(self.quic.proto(), control);
            }
            if !has_news && !is_long {
                // Sends the bytes that were written since the last drive.
                let waker = self.streams.slots.connection_waker();
                if self.quic.drive(&mut Context::from_waker(&waker)) {
                    break;
                }
                if !self.quic.has_events() {
                    // Others have their turn before more requests begin. Only now, because the drive forgets what woke it before.
                    if requests == 0 {
                        self.streams.slots.wake_connection();
                    }
                    return None;
                }
            }
            if is_long {
                break;
            }
        }
        self.streams.slots.wake_connection();
        None
    }

    /// Lets a client with bodies send more of them before they are read, if there is memory for that. All others may send as much
    /// as QUIC allowed at first. It stays so until the connection ends, because what was allowed cannot be taken back.
    fn set_window(&mut self) {
        let window = u64::from(self.limits.window.max(self.limits.stream_window));
        if !self.unread.is_some() && self.unread.has_room(window) && self.streams.has_bodies() {
            self.unread.set(window);
            let allowed = VarInt::from_u64(window).unwrap_or_default();
            self.quic.proto().set_receive_window(allowed);
            self.streams.slots.wake_connection();
        }
    }

    /// Opens weir's own stream, and says the settings.
    fn greet(&mut self) -> Result<(), Wrong> {
        let control = self.quic.proto().streams().open(Dir::Uni).ok_or(Wrong {
            code: GENERAL_PROTOCOL_ERROR,
            why: "the client allows no stream for settings",
        })?;
        let mut settings = Vec::new();
        put_varint(&mut settings, MAX_FIELD_SECTION_SIZE);
        put_varint(&mut settings, self.most());
        let mut bytes = vec![CONTROL];
        put_head(&mut bytes, SETTINGS, settings.len());
        bytes.extend_from_slice(&settings);
        self.control_out.push(bytes);
        let _ = self
            .quic
            .proto()
            .send_stream(control)
            .set_priority(FIRST_OF_ALL);
        self.control = Some(control);
        Ok(())
    }

    /// How large a head may be. A client that keeps to this never has a head refused because of its size.
    fn most(&self) -> u64 {
        u64::from(self.limits.head) + u64::from(self.limits.fields) * FIELD
    }

    /// Handles the events of QUIC.
    fn events(&mut self, now: u64, requests: &mut u32) -> Result<(), Ending> {
        while let Some(event) = self.quic.next_event() {
            match event {
                Event::ConnectionLost { reason } => {
                    return Err(Ending::Closed(is_peaceful(&reason)));
                }
                Event::Stream(StreamEvent::Readable { id } | StreamEvent::Writable { id })
                    if id.dir() == Dir::Bi =>
                {
                    self.streams.wake_id(id)
                }
                Event::Stream(StreamEvent::Readable { id }) => self.read_one_way(id)?,
                Event::Stream(StreamEvent::Stopped { id, .. }) => self.streams.wake_id(id),
                Event::Stream(StreamEvent::Finished { id }) => {
                    if let Some(slot) = self.streams.slot_of(id) {
                        self.finish(slot, true);
                    }
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    while let Some(id) = self.quic.proto().streams().accept(Dir::Uni) {
                        self.one_ways.push((id, OneWay::new()));
                        self.read_one_way(id)?;
                    }
                }
                _ => {}
            }
        }
        while *requests > 0 {
            let Some(id) = self.quic.proto().streams().accept(Dir::Bi) else {
                return Ok(());
            };
            *requests -= 1;
            self.open(id, now);
        }
        Ok(())
    }

    /// The client has opened a stream.
    fn open(&mut self, id: StreamId, now: u64) {
        self.next = self.next.max(u64::from(id) + REQUEST_STEP);
        if u64::from(id) >= self.refused_from {
            let proto = self.quic.proto();
            // The client may send it again over another connection (RFC 9114 §5.2).
            reset(proto, id, REQUEST_REJECTED);
            let code = VarInt::from_u64(REQUEST_REJECTED).unwrap_or_default();
            let _ = proto.recv_stream(id).stop(code);
            return self.count(Kind::Small);
        }
        self.front.state().received();
        self.streams.add(Stream::new(id, now));
    }

    /// Reads a stream of one direction.
    fn read_one_way(&mut self, id: StreamId) -> Result<(), Ending> {
        let Some(at) = self.one_ways.iter().position(|(other, _)| *other == id) else {
            return Ok(());
        };
        let mut events = Vec::new();
        loop {
            let (proto, stream) = (self.quic.proto(), &mut self.one_ways[at].1);
            match receive::read(proto, id) {
                Ok(Some(bytes)) => stream
                    .read(bytes, &mut self.controls, &mut events)
                    .map_err(Ending::Told)?,
                Err(quinn_proto::ReadError::Blocked) => break,
                Ok(None) | Err(quinn_proto::ReadError::Reset(_)) => {
                    stream.end().map_err(Ending::Told)?;
                    self.one_ways.swap_remove(at);
                    break;
                }
            }
            for event in events.drain(..) {
                match event {
                    control::Event::Priority(id, priority) => {
                        // The priority of a stream that may come much later is not remembered.
                        self.streams.set_priority(id, priority, self.quic.proto());
                    }
                    control::Event::Small => self.count(Kind::Small),
                    control::Event::Stop => {
                        let code = VarInt::from_u64(frames::STREAM_CREATION_ERROR);
                        let proto = self.quic.proto();
                        let _ = proto.recv_stream(id).stop(code.unwrap_or_default());
                        self.one_ways.swap_remove(at);
                        self.count(Kind::Small);
                        return Ok(());
                    }
                }
            }
        }
        for event in events {
            if let control::Event::Small = event {
                self.count(Kind::Small);
            }
        }
        Ok(())
    }

    /// Counts frames of QUIC that cost weir work and the client nearly nothing.
    fn count_frames(&mut self) {
        let frames = self.quic.proto().stats().frame_rx;
        let all = frames.ping
            + frames.path_challenge
            + frames.new_connection_id
            + frames.retire_connection_id;
        for _ in std::mem::replace(&mut self.small_frames, all)..all {
            if self.exceeded.is_some() {
                return;
            }
            self.count(Kind::Small);
        }
    }

    /// The client has reset too many requests: no more are served, but those that run are.
    fn calm(&mut self, now: u64) {
        (self.is_calmed, self.leaving_since) = (true, now);
        self.refused_from = self.next.min(self.refused_from);
        self.say_goaway(self.refused_from);
    }

    fn count(&mut self, kind: Kind) {
        let kind = match kind {
            // While requests run, the client may still reset them.
            Kind::Reset if self.is_calmed => Kind::Small,
            kind => kind,
        };
        if !self.counter.count(kind, clock::now()) {
            self.exceeded.get_or_insert(kind);
        }
    }

    /// Counts the reset of a stream: for its client, if a proxy has said who that is, otherwise for the connection.
    fn count_reset(&mut self, slot: u32, now: u64) {
        let Some(stream) = self.streams.slots.get(slot) else {
            return;
        };
        let client = stream.request.client();
        if self.is_of_proxy && matches!(stream.stage, Stage::New) {
            // QUIC drops a head that came with the reset, so the client of the request is not known. It counts as a small frame.
            // Otherwise one client would end the connection for the others.
            if !self.counter.count(Kind::Small, now) {
                self.count(Kind::Reset);
            }
        } else if client == 0 || !self.clients.count(client, self.limits.resets, now) {
            self.count(Kind::Reset);
        }
    }

    /// Polls the streams that were woken. Returns whether QUIC may have something to send.
    fn poll_ready(&mut self, now: u64) -> Result<bool, Ending> {
        let ready = self.streams.slots.take_ready(now);
        let has_news = !ready.is_empty();
        for slot in &ready {
            self.poll_stream(*slot, now)?;
        }
        self.streams.slots.give_back(ready);
        Ok(has_news)
    }

    fn poll_stream(&mut self, slot: u32, now: u64) -> Result<(), Ending> {
        let (mut is_last, most) = (false, self.most());
        let polled = (self.streams).poll(slot, (now, most), self.quic.proto(), &mut is_last);
        let (mut small, mut is_partial) = (0, false);
        if let Some(stream) = self.streams.slots.get(slot) {
            small = stream.receiving.take_small();
            is_partial = stream.receiving.partial_head() > 0;
        }
        for _ in 0..small {
            self.count(Kind::Small);
        }
        match polled {
            Polled::Waits
                if is_partial && self.streams.partial_heads() > self.most() * MOST_PARTIAL =>
            {
                self.front
                    .limit_exceeded("max_head (in heads that are not whole)");
                return Err(Ending::Told(Wrong {
                    code: EXCESSIVE_LOAD,
                    why: "too much in heads that are not whole",
                }));
            }
            Polled::Waits | Polled::Over => {}
            Polled::Sends => self.streams.slots.sends(slot),
            Polled::Reset => {
                self.count_reset(slot, now);
                self.finish(slot, false);
            }
            Polled::Closed(code) => {
                self.reset(slot, code);
                self.finish(slot, false);
            }
            Polled::Wrong(wrong) => return Err(Ending::Told(wrong)),
            Polled::TooLarge(begin) => {
                self.refuse(slot, &head::too_large(&begin, &self.limits));
            }
            Polled::Head(block) => self.begin(slot, &block, now)?,
        }
        if is_last {
            self.leave(now);
        }
        Ok(())
    }

    /// The head of a request is whole.
    fn begin(&mut self, slot: u32, block: &[u8], now: u64) -> Result<(), Ending> {
        let read = head::read(block, &self.limits);
        let (head, declared) = match read {
            Ok(Ok(whole)) => whole,
            Ok(Err(Unfit::Refused(refused))) => {
                self.refuse(slot, &refused);
                return Ok(());
            }
            Ok(Err(Unfit::Malformed)) => {
                self.reset(slot, MESSAGE_ERROR);
                self.finish(slot, false);
                return Ok(());
            }
            Err(failed) => return self.failed(slot, failed),
        };
        if !self.clients.is_empty() && self.clients.is_refused(self.front.client_of(&head), now) {
            self.refuse(slot, &TOO_MANY_RESETS);
            return Ok(());
        }
        let Some(stream) = self.streams.slots.get(slot) else {
            return Ok(());
        };
        stream.receiving.declare(declared);
        // Nearly always the end comes with the head.
        let proto = self.quic.proto();
        let has_body = match stream.receiving.look_ahead(proto, stream.id) {
            Ok(has_body) => has_body,
            Err(failed) => {
                return self.failed(slot, failed);
            }
        };
        self.front.state().begin_request();
        let request = stream.request.clone();
        let expect = head.fields.get(Name::Expect).unwrap_or_default();
        stream.awaits_consent = has_body && expect.eq_ignore_ascii_case(b"100-continue");
        stream.is_head = head.method == Method::HEAD;
        // An earlier PRIORITY_UPDATE frame overrides the header.
        if stream.priority == Priority::default()
            && let Some(field) = head.fields.get(Name::Priority)
        {
            stream.priority = Priority::of(field);
        }
        let started = stream.since;
        let body = match has_body {
            true => RequestBody::new(&request, declared),
            false => RequestBody::none(),
        };
        let begun = self.front.begin(Request {
            head,
            params: None,
            body,
            started,
            state: request,
        });
        let mut is_last = false;
        let Some(stream) = self.streams.slots.get(slot) else {
            return Ok(());
        };
        self.is_of_proxy |= stream.request.client() != 0;
        let is_open = match begun {
            Begun::Steps(steps) => {
                stream.stage = Stage::Steps(steps);
                true
            }
            Begun::Answered(answer) => stream.answer(answer, self.quic.proto(), &mut is_last),
        };
        match is_open {
            true => self.streams.slots.wake(slot),
            false => self.finish(slot, false),
        }
        if is_last {
            self.leave(now);
        }
        Ok(())
    }

    /// The frames after a head are wrong.
    fn failed(&mut self, slot: u32, failed: receive::Failed) -> Result<(), Ending> {
        match Polled::from(failed) {
            Polled::Wrong(wrong) => return Err(Ending::Told(wrong)),
            Polled::Closed(code) => self.reset(slot, code),
            Polled::TooLarge(_) => self.reset(slot, EXCESSIVE_LOAD),
            _ => self.count(Kind::Reset),
        }
        self.finish(slot, false);
        Ok(())
    }

    /// Answers a head that does not become a request.
    fn refuse(&mut self, slot: u32, refused: &Refused) {
        self.front.state().begin_request();
        self.front
            .refused(refused.status, refused.reason, refused.why);
        if let Some(stream) = self.streams.slots.get(slot)
            && stream.refuse(refused.status, self.quic.proto()) != Polled::Waits
        {
            self.finish(slot, false);
        }
    }

    /// Tells the client why it gets nothing more of a stream.
    fn reset(&mut self, slot: u32, code: u64) {
        if code == NO_ERROR {
            return;
        }
        if let Some(stream) = self.streams.slots.get(slot) {
            let id = stream.id;
            reset(self.quic.proto(), id, code);
            stream.receiving.stop(self.quic.proto(), id, code);
        }
    }

    /// Gives bodies of answers to QUIC. Returns whether it has got anything.
    fn send_bodies(&mut self) -> bool {
        // QUIC keeps what it sends until the client has it. Beyond that it gets little, so that what is urgent overtakes the rest.
        let window = self.quic.proto().congestion_state().window();
        let window = window.saturating_add(AHEAD).min(MOST_UNACKED);
        self.quic.proto().set_send_window(window);
        let mut has_news = false;
        for _ in 0..FRAMES_AT_ONCE {
            let next = (self.streams).send_next(self.quic.proto(), self.front.state());
            let Some((slot, turn)) = next else {
                break;
            };
            has_news = true;
            if turn == Turn::Closed {
                self.finish(slot, false);
            }
        }
        has_news
    }

    /// Frees a stream. `is_sent`: the client has its answer.
    fn finish(&mut self, slot: u32, is_sent: bool) {
        let Some(stream) = self.streams.remove(slot) else {
            return;
        };
        if self.streams.slots.is_empty() {
            self.front.state().set_idle();
        }
        stream.finish(self.quic.proto(), is_sent).give_back();
    }

    /// Tells the client that the connection takes no more requests (GOAWAY), in two steps (RFC 9114 §5.2): requests
    /// that are on their way are still served.
    fn leave(&mut self, now: u64) {
        if self.leaving_since == 0 {
            self.leaving_since = now;
            self.say_goaway(LAST_REQUEST);
        }
    }

    fn say_goaway(&mut self, id: u64) {
        let mut payload = Vec::new();
        put_varint(&mut payload, id);
        let mut bytes = Vec::new();
        put_head(&mut bytes, GOAWAY, payload.len());
        bytes.extend_from_slice(&payload);
        self.control_out.push(bytes);
        self.streams.slots.wake_connection();
    }

    /// Whether requests that come now are refused: the client was told long ago.
    fn is_closed_to_new(&mut self, now: u64) -> bool {
        let is_closed =
            self.leaving_since > 0 && now.saturating_sub(self.leaving_since) >= FIRST_REQUEST;
        if is_closed && self.refused_from == u64::MAX {
            self.refused_from = self.next;
            self.say_goaway(self.next);
        }
        is_closed || self.refused_from != u64::MAX
    }

    /// Whether one of the connection's times is over.
    fn overdue(&mut self, now: u64) -> Option<Ending> {
        let bye = match self.is_calmed {
            true => TOO_MUCH,
            false => Wrong {
                code: NO_ERROR,
                why: "",
            },
        };
        let header = self.front.state().timeouts.header;
        if now >= after(self.streams.oldest_head(), header) {
            let before = now.saturating_sub(header.as_micros() as u64);
            for slot in self.streams.late_heads(before) {
                self.refuse(slot, &TOO_LATE);
            }
        }
        let is_draining = self.front.is_draining();
        let is_closed = self.is_closed_to_new(now);
        let state = self.front.state();
        if self.streams.slots.is_empty() {
            let is_done = is_closed
                || now >= self.front.state().idle_deadline()
                || (self.leaving_since == 0 && state.is_over(is_draining, now));
            if is_done {
                return Some(Ending::Told(bye));
            }
        } else if self.leaving_since == 0
            && state.phase() == Phase::Head
            && state.is_over(is_draining, now)
        {
            // The connection has only parts of heads, and others need its place.
            return Some(Ending::Told(bye));
        } else if now >= self.ping_deadline() {
            // If the client does not answer, QUIC closes the connection after its own timeout.
            self.pinged_at = now;
            self.quic.proto().ping();
        }
        if is_draining {
            self.leave(now);
        }
        None
    }

    /// Plans when the task is woken at the latest.
    fn plan(&self) {
        let state = self.front.state();
        let mut next = after(self.streams.oldest_head(), state.timeouts.header);
        next = next.min(match self.streams.slots.is_empty() {
            true => self.front.state().idle_deadline(),
            false => self.ping_deadline().min(self.streams.slots.wakes_at()),
        });
        if self.leaving_since > 0 && self.refused_from == u64::MAX {
            next = next.min(self.leaving_since + FIRST_REQUEST);
        }
        state.wake_at(next);
    }

    /// When a client is asked whether it is there.
    fn ping_deadline(&self) -> u64 {
        after(self.heard_at.max(self.pinged_at), self.limits.ping)
    }

    fn end(&mut self, ending: Ending) {
        let is_peaceful = ending == Ending::Closed(true);
        // Tells the steps of all requests that the client has left.
        for stream in self.streams.clear() {
            stream.close(is_peaceful).give_back();
        }
        self.front.state().wake_at(NEVER);
        if let Ending::Told(wrong) = ending {
            self.quic.close(wrong.code, wrong.why);
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

/// Whether the client has closed the connection without an error: then it has all answers, except those that it refused.
fn is_peaceful(reason: &ConnectionError) -> bool {
    match reason {
        ConnectionError::ApplicationClosed(close) => {
            matches!(close.error_code.into_inner(), 0 | NO_ERROR)
        }
        _ => false,
    }
}

const TOO_MUCH: Wrong = Wrong {
    code: EXCESSIVE_LOAD,
    why: "too much that costs nothing",
};

const TOO_LATE: Refused = Refused {
    status: http::StatusCode::REQUEST_TIMEOUT,
    reason: "head_timeout",
    why: "the head took longer than header_timeout",
};

/// The kind of weir's own stream (RFC 9114 §6.2.1).
const CONTROL: u8 = 0;

/// The priority of that stream for QUIC.
const FIRST_OF_ALL: i32 = 100;

/// The highest number of a stream of requests, and how far these are apart (RFC 9000 §2.1).
const LAST_REQUEST: u64 = (1 << 62) - 4;
const REQUEST_STEP: u64 = 4;

/// Requests that a connection may begin in one turn.
const TURN_REQUESTS: u32 = 16;

/// How often a turn receives and sends.
const TURN_ROUNDS: usize = 16;

/// Frames with parts of answers that QUIC gets before it sends them.
const FRAMES_AT_ONCE: usize = 8;

/// How many bytes of all bodies a client may send before they are read, if there is no memory for more.
pub const FIRST_WINDOW: u64 = 64 * 1024;

/// Maximum memory of all incomplete heads together, in multiples of the largest head.
const MOST_PARTIAL: u64 = 4;

/// How many bytes QUIC gets beyond the congestion window, and how many it may keep at most until clients have them.
const AHEAD: u64 = 64 * 1024;
const MOST_UNACKED: u64 = 8 * 1024 * 1024;
