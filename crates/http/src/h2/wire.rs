//! The socket as the `h2` crate sees it. It counts frames in both directions by their heads (RFC 9113 §4.1), limits how much
//! is read in one turn, and takes PRIORITY_UPDATE frames (RFC 9218 §7.1), which `h2` ignores.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    os::fd::AsFd,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_net::Socket;
use weir_observe::clock::{self, NEVER};

use super::output::Output;
use crate::{
    ConnState, buffers,
    multiplex::limits::{Counter, Kind, Limits, SMALL_DATA},
};

/// The bytes with which a connection of HTTP/2 begins (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The side of `h2`.
#[derive(Debug)]
pub(super) struct Wire(pub(super) Rc<Shared>);

/// The socket and its counts, for `h2` and the carrier.
#[derive(Debug)]
pub(super) struct Shared {
    inner: RefCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None` once it was taken.
    socket: Option<Socket>,
    output: Output,
    /// Bytes that were read before `h2` wanted them; the first `used` of them are used.
    ahead: Vec<u8>,
    used: usize,
    incoming: Frames,
    outgoing: Frames,
    counter: Counter,
    /// What the client did too often.
    exceeded: Option<Kind>,
    /// A head is being sent in several frames.
    is_in_head: bool,
    /// The payload of a PRIORITY_UPDATE that has not arrived completely.
    update: Vec<u8>,
    /// Whole ones.
    updates: Vec<Vec<u8>>,
    /// WINDOW_UPDATE frames that are explained by what was sent or begun.
    explained: u32,
    /// The payloads of the GOAWAY frames that were sent: a connection has few, and short ones.
    goodbye: Vec<u8>,
    /// Bytes that may still be read in this turn.
    budget: usize,
    /// Frames that may still begin in this turn.
    frames: u32,
    /// Requests that may still come in this turn.
    requests: u32,
    /// DATA came in this turn.
    has_data: bool,
    received_at: u64,
    /// When the head or frame began that has not arrived completely.
    incomplete_since: u64,
}

/// Finds the frames in a stream of bytes.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; HEAD],
    have: usize,
    /// Bytes that are missing of the payload.
    left: u32,
    kind: u8,
}

#[derive(Debug, Clone, Copy)]
struct FrameHead {
    length: u32,
    kind: u8,
    flags: u8,
}

impl Shared {
    /// `ahead`: bytes that were read from the socket before.
    pub(super) fn new(socket: Socket, ahead: Vec<u8>, limits: &Limits) -> Shared {
        let now = clock::now();
        Shared {
            inner: RefCell::new(Inner {
                socket: Some(socket),
                output: Output::default(),
                ahead,
                used: 0,
                incoming: Frames {
                    left: PREFACE.len() as u32,
                    kind: NO_FRAME,
                    ..Frames::default()
                },
                outgoing: Frames::default(),
                counter: Counter::new(limits, now),
                exceeded: None,
                is_in_head: false,
                update: Vec::new(),
                updates: Vec::new(),
                explained: EXPLAINED_AT_FIRST,
                goodbye: Vec::new(),
                budget: TURN_BYTES,
                frames: TURN_FRAMES,
                requests: TURN_REQUESTS,
                has_data: false,
                received_at: now,
                incomplete_since: now,
            }),
        }
    }

    /// Begins a turn. False: it reads nothing.
    pub(super) fn begin_turn(&self, may_read: bool) {
        let mut inner = self.inner.borrow_mut();
        inner.budget = if may_read { TURN_BYTES } else { 0 };
        inner.frames = TURN_FRAMES;
        inner.requests = TURN_REQUESTS;
        inner.has_data = false;
    }

    /// Whether DATA came in this turn.
    pub(super) fn has_data(&self) -> bool {
        self.inner.borrow().has_data
    }

    /// Whether this turn has read so much that others are to have theirs.
    pub(super) fn is_used_up(&self) -> bool {
        self.inner.borrow().budget == 0
    }

    /// Whether the kernel takes no more now.
    pub(super) fn is_blocked(&self) -> bool {
        self.inner.borrow().output.is_blocked()
    }

    /// Gives the kernel what `h2` has written. `Pending`: it does not take everything now.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.inner.borrow_mut();
        match &mut inner.socket {
            Some(_) if inner.output.is_empty() => Poll::Ready(Ok(())),
            Some(socket) => inner.output.send(cx, socket),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// What the client did too often. Then nothing more is read.
    pub(super) fn exceeded(&self) -> Option<Kind> {
        self.inner.borrow().exceeded
    }

    /// What the client was told at the end: the words of `h2` are in it.
    pub(super) fn goodbye(&self) -> Vec<u8> {
        self.inner.borrow().goodbye.clone()
    }

    /// The payloads of PRIORITY_UPDATE frames since the last call.
    pub(super) fn take_updates(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.inner.borrow_mut().updates)
    }

    /// When the client last sent something.
    pub(super) fn received_at(&self) -> u64 {
        self.inner.borrow().received_at
    }

    /// When the head or frame began that has not arrived completely; [`NEVER`]: there is none.
    pub(super) fn incomplete_since(&self) -> u64 {
        self.inner.borrow().incomplete_since
    }

    /// Notes in the connection's state whether a write waits for the client.
    pub(super) fn note_write(&self, state: &ConnState) {
        let inner = self.inner.borrow();
        if let Some(socket) = &inner.socket {
            state.note_write(inner.output.is_blocked(), socket);
        }
    }

    /// The close of the socket is to be a reset.
    pub(super) fn reset_on_close(&self) {
        if let Some(socket) = &self.inner.borrow().socket {
            // If the option cannot be set, the connection is closed normally.
            let _ = weir_sys::socket::reset_on_close(socket.as_fd());
        }
    }

    /// Gives up the space of buffers: the client sends nothing for a while.
    pub(super) fn rest(&self) {
        if let Some(socket) = &mut self.inner.borrow_mut().socket {
            socket.rest();
        }
    }

    pub(super) fn take_socket(&self) -> Option<Socket> {
        self.inner.borrow_mut().socket.take()
    }
}

impl Inner {
    fn read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.exceeded.is_some() || self.budget == 0 {
            // The carrier looks at both after each turn.
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let is_ahead = self.used < self.ahead.len();
        if is_ahead {
            let count = buf.remaining().min(self.ahead.len() - self.used);
            buf.put_slice(&self.ahead[self.used..self.used + count]);
        } else {
            ready!(self.read_socket(cx, buf))?;
        }
        let came = &buf.filled()[before..];
        if came.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.received_at = clock::now();
        let taken = self.received(came);
        if is_ahead {
            self.used += taken;
            if self.used == self.ahead.len() {
                (self.ahead, self.used) = (Vec::new(), 0);
            }
        } else if taken < came.len() {
            self.ahead = came[taken..].to_vec();
        }
        self.budget = match taken < came.len() {
            // The frames of this turn.
            true => 0,
            false => self.budget.saturating_sub(taken),
        };
        buf.set_filled(before + taken);
        match taken {
            // It would look like the end.
            0 => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    fn read_socket(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(socket) = &mut self.socket else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if socket.tls().is_none() {
            buffers::count_read();
            return Pin::new(socket).poll_read(cx, buf);
        }
        // TLS would fill the whole buffer with zeros first, so that an idle connection holds all pages of it.
        buffers::with_input(|input| {
            let most = buf.remaining().min(input.len());
            let mut read = ReadBuf::new(&mut input[..most]);
            ready!(Pin::new(socket).poll_read(cx, &mut read))?;
            buf.put_slice(read.filled());
            Poll::Ready(Ok(()))
        })
    }

    /// Whether a frame is next, and belongs to another turn. Frames behind the last request do not: they may reset it, and
    /// then it is not begun.
    fn is_enough(&self, bytes: &[u8]) -> bool {
        let is_request = || !self.is_in_head && bytes.get(3).is_none_or(|kind| *kind == HEADERS);
        self.incoming.is_between() && (self.frames == 0 || (self.requests == 0 && is_request()))
    }

    /// Counts the frames that begin. Returns how many of the bytes belong to this turn: those before the first frame that
    /// is too many for it.
    fn received(&mut self, all: &[u8]) -> usize {
        let mut bytes = all;
        while !bytes.is_empty() {
            if self.is_enough(bytes) {
                break;
            }
            if self.incoming.is_between() {
                self.frames -= 1;
            }
            if let Some(payload) = self.incoming.payload(&mut bytes) {
                self.has_data |= self.incoming.kind == DATA;
                if self.incoming.kind == PRIORITY_UPDATE {
                    self.take_update(payload);
                }
            } else if let Some(head) = self.incoming.head(&mut bytes) {
                self.count(head);
            }
            if self.incoming.is_between() && !self.is_in_head {
                self.incomplete_since = NEVER;
            }
        }
        let is_incomplete = self.is_in_head
            || self.incoming.have > 0
            || (self.incoming.left > 0 && self.incoming.kind != DATA);
        self.incomplete_since = match is_incomplete {
            true => self.incomplete_since.min(self.received_at),
            false => NEVER,
        };
        all.len() - bytes.len()
    }

    fn take_update(&mut self, payload: &[u8]) {
        if self.update.len() + payload.len() <= MAX_UPDATE {
            self.update.extend_from_slice(payload);
        }
        if self.incoming.left == 0 && self.updates.len() < MOST_UPDATES {
            self.updates.push(std::mem::take(&mut self.update));
        }
    }

    fn count(&mut self, head: FrameHead) {
        let has = |flag: u8| head.flags & flag != 0;
        let kind = match head.kind {
            DATA if head.length < SMALL_DATA && !has(END_STREAM) => Kind::Small,
            HEADERS | CONTINUATION => {
                if head.kind == HEADERS {
                    self.requests = self.requests.saturating_sub(1);
                }
                let is_whole = has(END_HEADERS);
                let is_usual = is_whole && head.kind == HEADERS;
                self.is_in_head = !is_whole;
                if is_usual {
                    self.explained = self.explained.saturating_add(EXPLAINED_BY_REQUEST);
                    return;
                }
                Kind::Small
            }
            RST_STREAM => Kind::Reset,
            SETTINGS if !has(ACK) => Kind::Settings,
            PING if !has(ACK) => Kind::Ping,
            WINDOW_UPDATE if self.explained > 0 => {
                self.explained -= 1;
                return;
            }
            DATA | SETTINGS | PING => return,
            kind => {
                if kind == PRIORITY_UPDATE {
                    self.update.clear();
                }
                Kind::Small
            }
        };
        self.counted(kind);
    }

    fn write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let Some(socket) = &mut self.socket else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let count = ready!(self.output.write(cx, socket, slices))?;
        let mut left = count;
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            left -= part.len();
            self.sent(part);
        }
        Poll::Ready(Ok(count))
    }

    fn sent(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if let Some(payload) = self.outgoing.payload(&mut bytes) {
                if self.outgoing.kind == GOAWAY {
                    self.goodbye.extend_from_slice(payload);
                }
                continue;
            }
            let Some(head) = self.outgoing.head(&mut bytes) else {
                continue;
            };
            match head.kind {
                DATA if head.length >= SMALL_DATA => {
                    self.explained = self.explained.saturating_add(EXPLAINED_BY_DATA);
                }
                // Clients can make weir reset their streams.
                RST_STREAM => self.counted(Kind::Reset),
                _ => {}
            }
        }
    }

    fn counted(&mut self, kind: Kind) {
        if !self.counter.count(kind, clock::now()) {
            self.exceeded.get_or_insert(kind);
        }
    }
}

impl Frames {
    /// Whether the next byte begins a frame.
    fn is_between(&self) -> bool {
        self.left == 0 && self.have == 0
    }

    /// The next bytes of a payload; `None`: a head is next.
    fn payload<'b>(&mut self, bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
        if self.left == 0 {
            return None;
        }
        let count = bytes.len().min(self.left as usize);
        let (payload, rest) = bytes.split_at(count);
        self.left -= count as u32;
        *bytes = rest;
        Some(payload)
    }

    /// The next head, if it is complete.
    fn head(&mut self, bytes: &mut &[u8]) -> Option<FrameHead> {
        let count = bytes.len().min(HEAD - self.have);
        let (part, rest) = bytes.split_at(count);
        self.head[self.have..self.have + count].copy_from_slice(part);
        self.have += count;
        *bytes = rest;
        if self.have < HEAD {
            return None;
        }
        self.have = 0;
        let [a, b, c, kind, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]);
        (self.left, self.kind) = (length, kind);
        Some(FrameHead {
            length,
            kind,
            flags,
        })
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.inner.borrow_mut().read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.inner.borrow_mut().write(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// The carrier sends when the turn ends ([`Shared::poll_send`]); `h2` would send each frame.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.is_blocked() {
            true => self.0.poll_send(cx),
            false => Poll::Ready(Ok(())),
        }
    }

    /// The carrier shuts the socket down.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_send(cx)
    }
}

/// Bytes of the head of a frame.
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const PRIORITY_UPDATE: u8 = 16;
/// The kind of the preface, which is no frame.
const NO_FRAME: u8 = 255;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Bytes that a connection may read in one turn.
pub(super) const TURN_BYTES: usize = 256 * 1024;

/// Frames that may begin in one turn: those of a client that sends many small ones cost more than their bytes.
pub(super) const TURN_FRAMES: u32 = 64;

/// Requests, or trailers, that may come in one turn: others have their turn before more requests begin. `h2` keeps, as long as
/// the connection lives, the memory for as many as it once had at the same time (about 1 KB each), and most are answered in
/// their turn.
pub(super) const TURN_REQUESTS: u32 = 8;

/// WINDOW_UPDATE frames that a client may send besides those that the limit counts: at first, for each request, and for
/// each DATA frame that weir sends and that is not small.
const EXPLAINED_AT_FIRST: u32 = 16;
const EXPLAINED_BY_REQUEST: u32 = 4;
const EXPLAINED_BY_DATA: u32 = 4;

/// The longest PRIORITY_UPDATE that is used, bytes. Usual ones have 12 bytes.
const MAX_UPDATE: usize = 128;

/// How many of them one turn uses.
const MOST_UPDATES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        frame.extend_from_slice(payload);
        frame
    }

    fn inner(small_frames: u32) -> Inner {
        let limits = Limits {
            head: 0,
            fields: 0,
            streams: 0,
            resets: 3,
            pings: 2,
            settings: 1,
            small_frames,
            stream_window: 0,
            window: 0,
            ping: std::time::Duration::ZERO,
        };
        Inner {
            socket: None,
            output: Output::default(),
            ahead: Vec::new(),
            used: 0,
            incoming: Frames::default(),
            outgoing: Frames::default(),
            counter: Counter::new(&limits, clock::now()),
            exceeded: None,
            is_in_head: false,
            update: Vec::new(),
            updates: Vec::new(),
            explained: 0,
            goodbye: Vec::new(),
            budget: TURN_BYTES,
            frames: u32::MAX,
            requests: u32::MAX,
            has_data: false,
            received_at: 7,
            incomplete_since: NEVER,
        }
    }

    #[test]
    fn what_costs_a_client_nothing_is_counted() {
        for (bytes, most, exceeded) in [
            (frame(RST_STREAM, 0, b"1234"), 3, Kind::Reset),
            (frame(PING, 0, b"12345678"), 2, Kind::Ping),
            (frame(SETTINGS, 0, b""), 1, Kind::Settings),
            (frame(DATA, 0, b""), 5, Kind::Small),
            (frame(DATA, 0, b"a"), 5, Kind::Small),
            (frame(CONTINUATION, 0, b"a"), 5, Kind::Small),
            (frame(HEADERS, 0, b"a"), 5, Kind::Small),
            (frame(2, 0, b"12345"), 5, Kind::Small),
            (frame(WINDOW_UPDATE, 0, b"1234"), 5, Kind::Small),
            (frame(200, 0, b""), 5, Kind::Small),
        ] {
            let mut inner = inner(5);
            for _ in 0..most {
                inner.received(&bytes);
                assert_eq!(inner.exceeded, None, "{exceeded:?}");
            }
            inner.received(&bytes);
            assert_eq!(inner.exceeded, Some(exceeded));
        }
        let mut inner = inner(0);
        for usual in [
            frame(DATA, 0, &[0; 64]),
            frame(DATA, END_STREAM, b""),
            frame(HEADERS, END_HEADERS | END_STREAM, b"a"),
            frame(PING, ACK, b"12345678"),
            frame(SETTINGS, ACK, b""),
            frame(WINDOW_UPDATE, 0, b"1234"),
        ] {
            (0..4).for_each(|_| _ = inner.received(&usual));
        }
        assert_eq!(inner.exceeded, None);
    }

    #[test]
    fn a_turn_takes_so_many_frames_and_the_next_turn_goes_on() {
        let ping = frame(PING, ACK, b"12345678");
        let mut inner = inner(0);
        inner.frames = 3;
        // Two frames and a half, then the rest.
        let bytes = ping.repeat(10);
        let read = |inner: &mut Inner, room: usize| {
            let mut space = vec![0; room];
            let mut buf = ReadBuf::new(&mut space);
            let cx = &mut Context::from_waker(std::task::Waker::noop());
            let polled = inner.read(cx, &mut buf);
            polled.is_ready().then(|| buf.filled().to_vec())
        };
        inner.ahead = bytes.clone();
        let half = ping.len() * 5 / 2;
        let first = read(&mut inner, half).unwrap();
        let second = read(&mut inner, 1000).unwrap();
        assert_eq!([first, second].concat(), ping.repeat(3));
        assert_eq!(read(&mut inner, 1000), None);
        (inner.budget, inner.frames) = (TURN_BYTES, 100);
        assert_eq!(read(&mut inner, 1000), Some(ping.repeat(7)));
        assert!(inner.ahead.is_empty());
        // If a read ends with the last frame of a turn, the next one is no end of the stream.
        inner.frames = 2;
        inner.ahead = bytes.clone();
        assert_eq!(read(&mut inner, 2 * ping.len()), Some(ping.repeat(2)));
        assert_eq!(read(&mut inner, 1000), None);
        assert_eq!(inner.budget, 0);
        (inner.budget, inner.frames) = (TURN_BYTES, 100);
        assert_eq!(read(&mut inner, 1000), Some(ping.repeat(8)));
        // A long frame is no more than one, in however many parts it comes.
        inner.frames = 1;
        inner.ahead = frame(DATA, 0, &[0; 3000]);
        assert_eq!(
            (0..4)
                .filter_map(|_| Some(read(&mut inner, 900)?.len()))
                .sum::<usize>(),
            3009
        );
    }

    #[test]
    fn a_turn_takes_so_many_requests_and_what_is_behind_them() {
        let mut inner = inner(100);
        inner.requests = 2;
        let reset = frame(RST_STREAM, 0, b"1234");
        let usual = frame(HEADERS, END_HEADERS, b"abc");
        let (begin, end) = (
            frame(HEADERS, 0, b"a"),
            frame(CONTINUATION, END_HEADERS, b"bc"),
        );
        let bytes = [&usual[..], &begin, &end, &reset, &usual].concat();
        assert_eq!(inner.received(&bytes), bytes.len() - usual.len());
        inner.requests = 1;
        assert_eq!(inner.received(&usual), usual.len());
    }

    #[test]
    fn resets_by_weir_count_too_and_data_explains_window_updates() {
        let mut inner = inner(0);
        inner.sent(&frame(DATA, 0, &[0; 64]));
        let update = frame(WINDOW_UPDATE, 0, b"1234");
        (0..EXPLAINED_BY_DATA).for_each(|_| _ = inner.received(&update));
        (0..3).for_each(|_| inner.sent(&frame(RST_STREAM, 0, b"1234")));
        assert_eq!(inner.exceeded, None);
        inner.sent(&frame(RST_STREAM, 0, b"1234"));
        assert_eq!(inner.exceeded, Some(Kind::Reset));
    }

    proptest! {
        #[test]
        fn frames_are_found_wherever_the_bytes_are_divided(cuts in prop::collection::vec(1..20_usize, 0..40)) {
            let update = |text: &[u8]| [&[0, 0, 0, 3][..], text].concat();
            let bytes = [
                frame(PRIORITY_UPDATE, 0, &update(b"u=1")),
                frame(DATA, 0, &[PRIORITY_UPDATE; 100]),
                frame(PRIORITY_UPDATE, 0, &update(b"")),
                frame(PRIORITY_UPDATE, 0, &update(b"u=2, i")),
                frame(HEADERS, 0, b"ab"),
            ]
            .concat();
            let mut inner = inner(100);
            let mut rest = &bytes[..];
            for cut in cuts.into_iter().chain([bytes.len()]) {
                let (part, behind) = rest.split_at(cut.min(rest.len()));
                inner.received(part);
                rest = behind;
            }
            prop_assert_eq!(inner.updates, [update(b"u=1"), update(b""), update(b"u=2, i")]);
            prop_assert!(inner.is_in_head);
            prop_assert_eq!(inner.incomplete_since, 7);
        }
    }
}
