//! HTTP/2 without I/O and without a clock (RFC 9113): bytes of a client in, requests and bodies out, and frames for the client.
//!
//! [`super::incoming`] has what each frame does. An error in a request ends its stream (§8.1.1); an error in frames or
//! in the compression of heads ends the connection. Frames that cost weir work and the client nearly nothing are
//! counted.

use std::collections::VecDeque;

use bytes::Bytes;
use weir_observe::clock::NEVER;

use super::{
    channel::{Channel, NO_SLOT, allowance},
    frames::{
        CANCEL, DATA, ENHANCE_YOUR_CALM, FIRST_WINDOW, FRAME_SIZE_ERROR, FrameHead, GOAWAY, HEAD,
        HEADERS, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, MAX_FRAME, MAX_HEADER_LIST_SIZE,
        MOST_WINDOW, NO_ERROR, PING, PREFACE, PROTOCOL_ERROR, RST_STREAM, SETTINGS, WINDOW_UPDATE,
        put, put_fields,
    },
    hpack::{self, Decoder},
    output::Output,
};
use crate::{
    Fields, Priority, buffers,
    multiplex::{
        Limits,
        head::{self, AnswerHead, Refused, Whole},
        limits::{Clients, Counter, Kind, SMALL_DATA},
        memory::ALWAYS,
    },
};

/// Why the connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrong {
    /// What the client is told.
    pub(super) code: u32,
    /// The option that the client exceeded.
    pub(super) limit: Option<&'static str>,
}

/// The head of a request that has come.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) id: u32,
    pub(super) head: Result<Whole, Refused>,
}

/// The received part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// Bytes of it.
    Data(Vec<u8>),
    /// The end of the body.
    End,
    /// Nothing now.
    Nothing,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Protocol {
    pub(super) limits: Limits,
    /// Frames for the client.
    pub(super) out: Output,
    pub(super) decoder: Decoder,
    /// In the order of their numbers.
    pub(super) channels: Vec<Channel>,
    /// How many streams count as open.
    pub(super) open: u32,
    /// The streams that weir has reset, the newest last: their frames are ignored.
    pub(super) gone: VecDeque<u32>,
    /// The highest number of a stream that the client has opened, and the highest that is served.
    pub(super) last: u32,
    pub(super) last_served: u32,
    /// Bytes that were received; the first `used` of them are used.
    ahead: Vec<u8>,
    used: usize,
    /// The next bytes belong to another turn.
    is_stopped: bool,
    has_preface: bool,
    pub(super) has_settings: bool,
    /// A head that comes in several frames.
    pub(super) partial: Option<Partial>,
    pub(super) counter: Counter,
    /// The resets of clients of a proxy.
    pub(super) clients: Clients,
    /// What the client did too often. After that nothing more is read.
    pub(super) exceeded: Option<Kind>,
    /// The client has reset too much, and was told so.
    is_calmed: bool,
    /// WINDOW_UPDATE frames that are explained by what was sent or begun.
    pub(super) explained: u32,
    /// Frames and requests that may still come in this turn.
    frames: u32,
    pub(super) requests: u32,
    /// The memory of all connections is full.
    pub(super) is_full: bool,
    /// The window of all bodies, and the bytes that have arrived and were not taken.
    pub(super) window: i64,
    pub(super) held: usize,
    /// The memory of the heads of requests that are not over, bytes.
    pub(super) heads: usize,
    /// The client has acknowledged weir's settings.
    pub(super) is_settled: bool,
    /// How many bytes of all bodies weir may send, and of each body at first.
    pub(super) send_window: i64,
    pub(super) first_window: i64,
    /// The next head says that it uses no dynamic table.
    pub(super) drops_table: bool,
    /// Requests that have come.
    pub(super) arrived: VecDeque<Arrived>,
    /// The slots of streams on which something has happened.
    pub(super) woken: Vec<u32>,
    /// The window of all bodies was closed, and is open.
    pub(super) has_opened: bool,
    /// Priorities of streams from frames.
    pub(super) priorities: Vec<(u32, Priority)>,
    /// When something last came.
    pub(super) received_at: u64,
    /// When the incomplete head or frame began.
    incomplete_since: u64,
}

/// A head that comes in several frames.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) stream: u32,
    pub(super) is_last: bool,
    pub(super) depends_on_itself: bool,
    pub(super) block: Vec<u8>,
    pub(super) frames: usize,
}

impl Protocol {
    /// Begins a connection with weir's settings. `ahead`: bytes that the client has already sent.
    pub(super) fn new(limits: Limits, ahead: Vec<u8>, now: u64) -> Protocol {
        let mut protocol = Protocol {
            out: Output::default(),
            decoder: Decoder::new(),
            channels: Vec::new(),
            open: 0,
            gone: VecDeque::new(),
            last: 0,
            last_served: MOST_WINDOW,
            ahead,
            used: 0,
            is_stopped: false,
            has_preface: false,
            has_settings: false,
            partial: None,
            counter: Counter::new(&limits, now),
            clients: Clients::default(),
            exceeded: None,
            is_calmed: false,
            explained: EXPLAINED_AT_FIRST,
            frames: TURN_FRAMES,
            requests: TURN_REQUESTS,
            is_full: false,
            window: FIRST_WINDOW.into(),
            held: 0,
            heads: 0,
            is_settled: false,
            send_window: FIRST_WINDOW.into(),
            first_window: FIRST_WINDOW.into(),
            drops_table: false,
            arrived: VecDeque::new(),
            woken: Vec::new(),
            has_opened: false,
            priorities: Vec::new(),
            received_at: now,
            incomplete_since: now,
            limits,
        };
        // A client that obeys this limit never has a head refused because of its size.
        let list = u32::try_from(protocol.most()).unwrap_or(u32::MAX);
        let settings = [
            (MAX_CONCURRENT_STREAMS, limits.streams),
            (INITIAL_WINDOW_SIZE, limits.stream_window),
            (MAX_HEADER_LIST_SIZE, list),
        ];
        let mut payload = Vec::new();
        for (setting, value) in settings {
            payload.extend_from_slice(&setting.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        put(protocol.out.bytes(), SETTINGS, 0, 0, &payload);
        protocol.allow_more();
        protocol
    }

    /// How large a head may be, as HPACK counts it.
    pub(super) fn most(&self) -> usize {
        self.limits.head as usize + self.limits.fields as usize * hpack::FIELD
    }

    /// Whether the connection is to take no more memory: that of all connections is full, and it has more than a little.
    pub(super) fn must_not_grow(&self, by: usize) -> bool {
        self.is_full && (self.heads + self.held + by) as u64 > ALWAYS
    }

    /// A turn of the connection begins. `is_full`: the memory of all connections is.
    pub(super) fn begin_turn(&mut self, is_full: bool) {
        self.is_full = is_full;
        (self.frames, self.requests) = (TURN_FRAMES, TURN_REQUESTS);
        self.is_stopped = false;
    }

    /// Whether the received bytes belong to another turn.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Bytes have come.
    pub(super) fn receive(&mut self, bytes: &[u8], now: u64) -> Result<(), Wrong> {
        self.received_at = now;
        self.go_on_with(bytes)
    }

    /// Processes bytes that arrived in an earlier turn.
    pub(super) fn go_on(&mut self) -> Result<(), Wrong> {
        match self.ahead.is_empty() {
            true => Ok(()),
            false => self.go_on_with(&[]),
        }
    }

    fn go_on_with(&mut self, mut bytes: &[u8]) -> Result<(), Wrong> {
        while self.used < self.ahead.len() {
            let ahead = std::mem::take(&mut self.ahead);
            let step = self.step(&ahead[self.used..]);
            self.ahead = ahead;
            self.used += step?;
            if step != Ok(0) {
                continue;
            }
            if self.is_stopped || bytes.is_empty() {
                break;
            }
            let missing = self.missing(&self.ahead[self.used..]);
            let (part, rest) = bytes.split_at(missing.min(bytes.len()));
            self.ahead.extend_from_slice(part);
            bytes = rest;
        }
        if self.used == self.ahead.len() {
            buffers::give_back(std::mem::take(&mut self.ahead));
            self.used = 0;
            while !bytes.is_empty() {
                match self.step(bytes)? {
                    0 => break,
                    used => bytes = &bytes[used..],
                }
            }
        }
        if !bytes.is_empty() {
            if self.ahead.capacity() == 0 {
                self.ahead = buffers::output();
            }
            self.ahead.drain(..std::mem::take(&mut self.used));
            self.ahead.extend_from_slice(bytes);
        }
        self.note_incomplete();
        self.allow_more();
        Ok(())
    }

    /// Uses the first frame of these bytes. Returns how many bytes it has; 0: it is not whole, or belongs to another turn.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, Wrong> {
        if !self.has_preface {
            let most = bytes.len().min(PREFACE.len());
            if bytes[..most] != PREFACE[..most] {
                return Err(wrong(PROTOCOL_ERROR));
            }
            self.has_preface = most == PREFACE.len();
            return Ok(if self.has_preface { most } else { 0 });
        }
        let Some(head) = FrameHead::of(bytes) else {
            return Ok(0);
        };
        if head.length > MAX_FRAME {
            return Err(wrong(FRAME_SIZE_ERROR));
        }
        // Frames after the last request belong to this turn. They may reset that request, which then is not begun.
        let is_request = head.kind == HEADERS && self.partial.is_none();
        let is_enough = self.frames == 0 || (self.requests == 0 && is_request);
        if is_enough || self.exceeded.is_some() {
            self.is_stopped = true;
            return Ok(0);
        }
        let Some(payload) = bytes.get(HEAD..HEAD + head.length) else {
            return Ok(0);
        };
        self.frames -= 1;
        self.frame(head, payload)?;
        if self.partial.is_none() {
            self.incomplete_since = NEVER;
        }
        Ok(HEAD + head.length)
    }

    /// How many bytes these lack to be a frame, or the head of one.
    fn missing(&self, bytes: &[u8]) -> usize {
        if !self.has_preface {
            return PREFACE.len() - bytes.len();
        }
        let whole = FrameHead::of(bytes).map_or(HEAD, |head| HEAD + head.length);
        whole - bytes.len()
    }

    fn note_incomplete(&mut self) {
        let rest = &self.ahead[self.used..];
        let is_data = rest.get(3) == Some(&DATA) && rest.len() >= HEAD && self.has_preface;
        let is_cut = !self.is_stopped && !rest.is_empty() && !is_data;
        let is_incomplete = is_cut || self.partial.is_some() || !self.has_preface;
        self.incomplete_since = match is_incomplete {
            true => self.incomplete_since.min(self.received_at),
            false => NEVER,
        };
    }

    /// When the head or frame began that has not come whole; [`NEVER`]: there is none.
    pub(super) fn incomplete_since(&self) -> u64 {
        self.incomplete_since
    }

    /// Enlarges the client's window, if the client has used much of it.
    fn allow_more(&mut self) {
        let most = self.limits.window.max(self.limits.stream_window);
        if let Some(more) = allowance(most, self.window, self.held) {
            self.window += i64::from(more);
            put(self.out.bytes(), WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
    }

    /// The memory of heads and bodies that the client has sent, bytes.
    pub(super) fn memory(&self) -> u64 {
        let channels = self.channels.iter();
        let bodies: usize = channels.map(|channel| channel.body.capacity()).sum();
        let partial = self.partial.as_ref();
        let partial = partial.map_or(0, |partial| partial.block.capacity());
        (self.heads + bodies + partial) as u64
    }

    /// The next request that has come. It may have been reset ([`Self::is_reset`]).
    pub(super) fn next_request(&mut self) -> Option<Arrived> {
        self.arrived.pop_front()
    }

    /// The carrier has a stream in this slot.
    pub(super) fn attach(&mut self, id: u32, slot: u32) {
        if let Some(channel) = self.channel(id) {
            channel.slot = slot;
        }
    }

    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.channels.binary_search_by_key(&id, |one| one.id).ok()
    }

    fn channel(&mut self, id: u32) -> Option<&mut Channel> {
        let at = self.find(id)?;
        Some(&mut self.channels[at])
    }

    /// Whether a side has reset the stream before weir had sent all of its answer.
    pub(super) fn is_reset(&self, id: u32) -> bool {
        let at = self.find(id);
        at.is_none_or(|at| self.channels[at].is_reset)
    }

    /// Whether there is nothing to read of the request's body any more.
    pub(super) fn is_request_over(&self, id: u32) -> bool {
        let at = self.find(id);
        at.is_none_or(|at| self.channels[at].is_whole && self.channels[at].body.is_empty())
    }

    /// Takes the received part of a body, and enlarges the client's window by the same amount.
    pub(super) fn take_body(&mut self, id: u32) -> Came {
        let window = self.limits.stream_window;
        let Some(at) = self.find(id) else {
            return Came::Nothing;
        };
        let channel = &mut self.channels[at];
        let data = std::mem::take(&mut channel.body);
        self.held -= data.len();
        if let Some(more) = channel.allowance(window) {
            channel.window += i64::from(more);
            put(self.out.bytes(), WINDOW_UPDATE, 0, id, &more.to_be_bytes());
        }
        self.allow_more();
        match (data.is_empty(), self.channels[at].is_whole) {
            (false, _) => Came::Data(data),
            (true, true) => Came::End,
            (true, false) => Came::Nothing,
        }
    }

    /// Nobody reads the rest of a body.
    pub(super) fn ignore_body(&mut self, id: u32) {
        if let Some(at) = self.find(id) {
            self.channels[at].is_ignored = true;
            self.drop_body(at);
            self.allow_more();
        }
    }

    pub(super) fn drop_body(&mut self, at: usize) {
        self.held -= std::mem::take(&mut self.channels[at].body).len();
    }

    /// How many bytes of a body weir may send.
    pub(super) fn room(&mut self, id: u32) -> usize {
        let all = self.send_window;
        let room = self.channel(id).map_or(0, |one| one.send_window.min(all));
        usize::try_from(room).unwrap_or(0)
    }

    /// Whether the client allows bytes on the stream, if it allows some on the connection.
    pub(super) fn may_send(&self, id: u32) -> bool {
        let at = self.find(id);
        at.is_some_and(|at| self.channels[at].send_window > 0)
    }

    /// Sends a head. `is_last`: it is all.
    pub(super) fn send_head(&mut self, id: u32, head: &AnswerHead, is_last: bool) {
        let drops_table = std::mem::take(&mut self.drops_table);
        put_fields(self.out.bytes(), id, is_last, |out| {
            if drops_table {
                hpack::put_no_table(out);
            }
            hpack::put_status(out, head.status.as_str());
            head.each(|known, name, value| hpack::put(out, known, name, value));
        });
        if is_last {
            self.end(id);
        }
    }

    /// Sends a part of a body, for which there must be room.
    pub(super) fn send_data(&mut self, id: u32, data: Bytes, is_last: bool) {
        let length = data.len();
        if let Some(channel) = self.channel(id) {
            channel.send_window -= length as i64;
            self.send_window -= length as i64;
        }
        if length >= SMALL_DATA as usize {
            self.explained = self.explained.saturating_add(EXPLAINED_BY_DATA);
        }
        self.out.put_data(id, data, is_last);
        if is_last {
            self.end(id);
        }
    }

    /// Sends the fields behind a body.
    pub(super) fn send_trailers(&mut self, id: u32, fields: &Fields) {
        put_fields(self.out.bytes(), id, true, |out| {
            head::each(fields, true, |known, name, value| {
                hpack::put(out, known, name, value);
            });
        });
        self.end(id);
    }

    /// All of the answer was sent. If the client still sends a body, it is told that nobody wants it (RFC 9113 §8.1).
    fn end(&mut self, id: u32) {
        let Some(at) = self.find(id) else {
            return;
        };
        let channel = &mut self.channels[at];
        self.open -= u32::from(channel.is_open());
        channel.is_over = true;
        if !channel.is_whole && !channel.is_reset {
            self.drop_body(at);
            self.remember_reset(id);
            put(
                self.out.behind(),
                RST_STREAM,
                0,
                id,
                &NO_ERROR.to_be_bytes(),
            );
            self.count_reset_at(at);
        }
    }

    /// Resets a stream.
    pub(super) fn reset(&mut self, id: u32, code: u32) {
        if let Some(at) = self.find(id) {
            self.fail(at, code);
        }
    }

    /// As [`Self::reset`], for the stream at this place.
    pub(super) fn fail(&mut self, at: usize, code: u32) {
        let channel = &mut self.channels[at];
        let id = channel.id;
        if channel.is_reset {
            return;
        }
        if channel.is_open() {
            self.open -= 1;
            channel.is_reset = true;
        }
        self.drop_body(at);
        self.wake(at);
        self.reset_stream(id, code);
        self.count_reset_at(at);
    }

    /// Sends RST_STREAM. Clients can make weir do so, so it is counted.
    pub(super) fn reset_stream(&mut self, id: u32, code: u32) {
        self.remember_reset(id);
        put(self.out.bytes(), RST_STREAM, 0, id, &code.to_be_bytes());
    }

    /// The client may not know of the reset yet when it sends more.
    fn remember_reset(&mut self, id: u32) {
        if self.gone.len() >= self.limits.streams.max(self.limits.resets) as usize {
            self.gone.pop_front();
        }
        self.gone.push_back(id);
    }

    /// Counts the reset of a stream. For a stream that was not begun, the carrier knows the client ([`Self::count_reset`]).
    pub(super) fn count_reset_at(&mut self, at: usize) {
        let channel = &self.channels[at];
        if channel.slot != NO_SLOT || channel.is_over {
            self.count_reset(channel.client);
        }
    }

    /// Counts a reset: for its client, if a proxy has said who that is, otherwise for the connection.
    pub(super) fn count_reset(&mut self, client: u64) {
        let (most, now) = (self.limits.resets, self.received_at);
        if client == 0 || !self.clients.count(client, most, now) {
            self.count(Kind::Reset);
        }
    }

    /// Sets the client of a stream.
    pub(super) fn set_client(&mut self, id: u32, client: u64) {
        if let Some(channel) = self.channel(id) {
            channel.client = client;
        }
    }

    /// Something has happened on a stream.
    pub(super) fn wake(&mut self, at: usize) {
        let slot = self.channels[at].slot;
        if slot != NO_SLOT {
            self.woken.push(slot);
        }
    }

    /// The carrier has done with a stream.
    pub(super) fn remove(&mut self, id: u32) {
        let Some(at) = self.find(id) else {
            return;
        };
        if self.channels[at].is_open() {
            self.fail(at, CANCEL);
        }
        self.drop_body(at);
        self.heads -= self.channels.remove(at).head;
        self.allow_more();
    }

    pub(super) fn count(&mut self, kind: Kind) {
        let kind = match kind {
            // While requests run, the client may still reset them.
            Kind::Reset if self.is_calmed => Kind::Small,
            kind => kind,
        };
        if !self.counter.count(kind, self.received_at) {
            self.exceeded.get_or_insert(kind);
        }
    }

    /// Asks whether the client is there.
    pub(super) fn ping(&mut self) {
        put(self.out.bytes(), PING, 0, 0, b"are you?");
    }

    /// Tells the client that the connection takes no more requests, in two steps (RFC 9113 §6.8): requests that are on
    /// their way are still served. The answer to the PING shows that they have arrived.
    pub(super) fn say_leave(&mut self) {
        put_goaway(self.out.bytes(), MOST_WINDOW, NO_ERROR);
        put(self.out.bytes(), PING, 0, 0, LEAVE);
    }

    /// Tells the client which of its requests is the last one that is served, and why.
    pub(super) fn say_last(&mut self, code: u32) {
        self.last_served = self.last.min(self.last_served);
        put_goaway(self.out.bytes(), self.last_served, code);
    }

    /// The client has reset too much: no more of its requests are served, but those that run are.
    pub(super) fn calm(&mut self) {
        (self.exceeded, self.is_calmed) = (None, true);
        self.say_last(ENHANCE_YOUR_CALM);
    }

    /// What a client is told at the end if nothing else is wrong.
    pub(super) fn goodbye(&self) -> u32 {
        match self.is_calmed {
            true => ENHANCE_YOUR_CALM,
            false => NO_ERROR,
        }
    }

    /// Whether the client was told the last request.
    pub(super) fn has_said_last(&self) -> bool {
        self.last_served != MOST_WINDOW
    }

    /// Bytes that are kept for later, and those of bodies.
    #[cfg(any(test, feature = "checks"))]
    pub(super) fn kept(&self) -> usize {
        self.ahead.len() - self.used
    }

    #[cfg(any(test, feature = "checks"))]
    pub(super) fn bodies(&self) -> usize {
        self.channels.iter().map(|one| one.body.len()).sum()
    }

    /// Frees memory that is not needed while no stream is open.
    pub(super) fn shrink(&mut self) {
        if self.channels.is_empty() {
            self.channels = Vec::new();
            self.arrived = VecDeque::new();
            self.woken = Vec::new();
            self.priorities = Vec::new();
        }
    }
}

fn put_goaway(out: &mut Vec<u8>, last: u32, code: u32) {
    let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
    put(out, GOAWAY, 0, 0, &payload);
}

/// The connection must end.
pub(super) fn wrong(code: u32) -> Wrong {
    Wrong { code, limit: None }
}

/// The client has exceeded an option.
pub(super) fn exceeded(limit: &'static str) -> Wrong {
    Wrong {
        code: ENHANCE_YOUR_CALM,
        limit: Some(limit),
    }
}

/// The payload of the PING behind the first GOAWAY.
pub(super) const LEAVE: &[u8; 8] = b"last one";

/// Frames that may begin in one turn: those of a client that sends many small ones cost more than their bytes.
pub(super) const TURN_FRAMES: u32 = 64;

/// Requests, or trailers, that may come in one turn: others have their turn before more requests begin.
const TURN_REQUESTS: u32 = 16;

/// WINDOW_UPDATE frames that a client may send besides those that the limit counts: at first, for each request, and for
/// each DATA frame that weir sends and that is not small.
pub(super) const EXPLAINED_AT_FIRST: u32 = 16;
pub(super) const EXPLAINED_BY_REQUEST: u32 = 4;
pub(super) const EXPLAINED_BY_DATA: u32 = 4;
