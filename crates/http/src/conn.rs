//! The state of a client connection of any protocol: its phase, its deadlines, and what its request does.
//!
//! The carrier of the connection, the steps of its request and the reactor's sweeper share it. The sweeper wakes the
//! connection when one of its deadlines has passed, so that no request needs a timer of its own. It looks at a connection
//! only when one of them may have passed: [`crate::watch`].

use std::{
    os::fd::AsFd,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
    time::Duration,
};

use weir_net::Socket;
use weir_observe::clock::{self, NEVER};

use crate::watch;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Between two requests, or before the first byte of the first.
    Idle = 0,
    /// A part of a head has arrived.
    Head = 1,
    /// A request is being processed or answered.
    Busy = 2,
    /// Idle for a while: its task is not needed any more.
    Resting = 3,
}

/// The limits of a connection, from its listener.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    pub header: Duration,
    pub body: Duration,
    pub idle: Duration,
    pub send: Duration,
}

/// The state of a client connection.
#[derive(Debug)]
pub struct ConnState {
    /// The listener's timeouts, shared by all of its connections.
    pub timeouts: Arc<Timeouts>,
    phase: AtomicU8,
    /// The connection is idle and is to be closed to make room for others.
    is_unwanted: AtomicBool,
    /// Whether a request of this client is being processed: 0, [`WATCHED`] or [`WORKS`]. If so, its close is noticed
    /// even after other bytes that it sent.
    watched: AtomicU8,
    /// The rest of a request body was not read, so the socket must be closed carefully (see [`weir_net::linger`]).
    body_unread: AtomicBool,
    /// `interim` is not empty.
    has_interim: AtomicBool,
    /// When the first byte of the current request arrived.
    head_started: AtomicU64,
    /// When the wait of this phase ends. The sweeper then wakes the connection.
    deadline: AtomicU64,
    /// When a write without progress is given up.
    send_deadline: AtomicU64,
    /// Bytes that were not yet received by the client when `send_deadline` was last extended.
    unsent: AtomicU64,
    /// Requests answered so far.
    requests: AtomicU64,
    /// Its number in the reactor's list ([`watch`]); [`UNWATCHED`] if it is in none.
    slot: AtomicU32,
    /// The sweep after which it last became idle.
    idle_sweep: AtomicU32,
    /// The sweeper looks at it at this time, or earlier.
    look_at: AtomicU64,
    waker: OnceLock<Waker>,
    /// Interim answers for the carrier. Boxed, because few requests have any.
    #[allow(clippy::box_collection, reason = "8 bytes in each connection, not 24")]
    interim: Mutex<Option<Box<Vec<u8>>>>,
}

impl ConnState {
    pub fn new(timeouts: Arc<Timeouts>) -> ConnState {
        let header_deadline = clock::deadline(timeouts.header);
        ConnState {
            timeouts,
            phase: AtomicU8::new(Phase::Idle as u8),
            is_unwanted: AtomicBool::new(false),
            watched: AtomicU8::new(0),
            body_unread: AtomicBool::new(false),
            has_interim: AtomicBool::new(false),
            head_started: AtomicU64::new(clock::now()),
            deadline: AtomicU64::new(header_deadline),
            send_deadline: AtomicU64::new(NEVER),
            unsent: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            slot: AtomicU32::new(UNWATCHED),
            idle_sweep: AtomicU32::new(0),
            look_at: AtomicU64::new(0),
            waker: OnceLock::new(),
            interim: Mutex::default(),
        }
    }

    /// The connection is not new: it had so many requests and has been idle since then.
    pub fn continues(&self, requests: u64, since: u64) {
        self.requests.store(requests, Relaxed);
        self.head_started.store(since, Relaxed);
        self.wake_at(self.timeouts.idle_until(requests, since));
    }

    /// The reactor's sweeper watches the connection in `slot` of its list. Called on the reactor, before the first byte.
    pub fn watch(&self, slot: u32) {
        self.slot.store(slot, Relaxed);
        watch::begin(slot);
        self.looked_at();
    }

    /// The sweeper no longer watches it.
    pub fn unwatch(&self) {
        let slot = self.slot.swap(UNWATCHED, Relaxed);
        if slot != UNWATCHED {
            watch::end(slot, self.is_idle(), self.idle_sweep.load(Relaxed));
        }
    }

    /// The sweeper has looked at it, and looks again when the next of its deadlines passes, or when it has been idle for
    /// long enough to rest.
    pub fn looked_at(&self) {
        let mut next = (self.deadline.load(Relaxed)).min(self.send_deadline.load(Relaxed));
        if self.phase() == Phase::Idle {
            next = next.min(self.head_started.load(Relaxed).saturating_add(REST_AFTER));
        }
        self.look_at.store(next, Relaxed);
        watch::set(self.slot.load(Relaxed), next);
    }

    /// The sweeper must look at it at this time.
    fn look_by(&self, time: u64) {
        if time < self.look_at.load(Relaxed) {
            self.look_at.store(time, Relaxed);
            watch::set(self.slot.load(Relaxed), time);
        }
    }

    pub fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Busy,
            _ => Phase::Resting,
        }
    }

    /// The connection has been idle for a while.
    pub fn park(&self) {
        self.phase.store(Phase::Resting as u8, Relaxed);
    }

    /// Whether it has been idle for so long that it should rest, and does not yet.
    pub fn should_rest(&self, now: u64) -> bool {
        self.phase() == Phase::Idle
            && now.saturating_sub(self.head_started.load(Relaxed)) >= REST_AFTER
    }

    /// A complete head has arrived, so a request begins. Returns when its first byte arrived.
    pub fn begin_request(&self) -> u64 {
        let started = self.head_started.load(Relaxed);
        let requests = self.requests.load(Relaxed) + 1;
        self.requests.store(requests, Relaxed);
        self.phase.store(Phase::Busy as u8, Relaxed);
        self.watched.store(0, Relaxed);
        self.deadline.store(NEVER, Relaxed);
        started
    }

    /// Requests begun on this connection.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Sets when the connection's task is woken ([`clock::now`]'s time). Each waiting step then checks its own
    /// deadline.
    pub fn wake_at(&self, deadline: u64) {
        self.deadline.store(deadline, Relaxed);
        self.look_by(deadline);
    }

    /// As [`Self::wake_at`], if the connection's task would not be woken before that.
    pub(crate) fn wake_by(&self, deadline: u64) {
        if deadline < self.deadline.load(Relaxed) {
            self.wake_at(deadline);
        }
    }

    /// When the task is woken; [`NEVER`]: nothing is planned.
    pub fn wakes_at(&self) -> u64 {
        self.deadline.load(Relaxed)
    }

    /// Stores the waker of the connection's task. It stays the same as long as the connection lives.
    pub fn remember_waker(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Wakes the connection's task.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Whether a deadline of the connection has passed.
    pub fn overdue(&self, now: u64) -> bool {
        now >= self.deadline.load(Relaxed) || self.send_overdue(now)
    }

    /// Whether the client has received nothing for too long.
    pub fn send_overdue(&self, now: u64) -> bool {
        now >= self.send_deadline.load(Relaxed)
    }

    /// When the connection was opened or became idle.
    pub fn idle_since(&self) -> u64 {
        self.head_started.load(Relaxed)
    }

    /// Whether the connection has no request.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase(), Phase::Idle | Phase::Resting)
    }

    /// When the connection became idle; `None` if it has a request or has had none yet.
    pub fn rests_since(&self) -> Option<u64> {
        (self.is_idle() && self.requests() > 0).then(|| self.head_started.load(Relaxed))
    }

    /// When a connection that has had no request yet was opened; `None` for all others.
    pub fn fresh_since(&self) -> Option<u64> {
        (self.requests() == 0).then(|| self.head_started.load(Relaxed))
    }

    /// The body of the request is complete, and the answer may take long: the carrier watches whether the client leaves.
    pub fn watch_client(&self) {
        self.watched.store(WATCHED, Relaxed);
    }

    /// The work for the request has begun: from now on it is done even if the client leaves.
    pub fn work_begins(&self) {
        self.watched.store(WORKS, Relaxed);
    }

    /// Whether the carrier checks that the client is still there before the exchange continues.
    pub(crate) fn is_client_looked_at_first(&self) -> bool {
        self.watched.load(Relaxed) == WATCHED
    }

    /// Whether the carrier watches whether the client of the current request leaves.
    pub(crate) fn is_client_watched(&self) -> bool {
        self.watched.load(Relaxed) != 0
    }

    /// The client is still sending a body that is not read.
    pub fn leave_body_unread(&self) {
        self.body_unread.store(true, Relaxed);
    }

    pub(crate) fn body_is_unread(&self) -> bool {
        self.body_unread.load(Relaxed)
    }

    /// Sends an interim response (1xx, RFC 9110 §15.2) before the final one. If too many are waiting, it is dropped,
    /// which §15 allows.
    pub fn send_interim(&self, head: &[u8]) {
        let mut interim = self.interim.lock().unwrap_or_else(PoisonError::into_inner);
        let interim = interim.get_or_insert_default();
        if interim.len() + head.len() > MAX_INTERIM {
            return;
        }
        interim.extend_from_slice(head);
        self.has_interim.store(true, Relaxed);
    }

    /// The interim responses since the last call, if there are any.
    pub(crate) fn take_interim(&self) -> Option<Vec<u8>> {
        if !self.has_interim.load(Relaxed) {
            return None;
        }
        self.has_interim.store(false, Relaxed);
        let mut interim = self.interim.lock().unwrap_or_else(PoisonError::into_inner);
        interim.take().map(|interim| *interim)
    }

    /// Between two requests: the kernel has the whole last answer.
    pub fn rest(&self) {
        if !self.is_idle() && self.slot.load(Relaxed) != UNWATCHED {
            self.idle_sweep.store(watch::became_idle(), Relaxed);
        }
        let now = clock::now();
        self.phase.store(Phase::Idle as u8, Relaxed);
        self.head_started.store(now, Relaxed);
        let deadline = clock::deadline(self.timeouts.idle);
        self.deadline.store(deadline, Relaxed);
        self.look_by(deadline.min(now + REST_AFTER));
    }

    /// Notes whether a write to `socket` waits for the client. `send_timeout` limits that wait. A client that reads
    /// slowly but steadily is not cut: a large send buffer of the kernel may stay full for much longer than the
    /// timeout.
    pub fn note_write(&self, waits: bool, socket: &Socket) {
        let deadline = self.send_deadline.load(Relaxed);
        let unsent = || weir_sys::socket::unsent(socket.as_fd());
        match (waits, deadline != NEVER) {
            (true, false) => self.wait_for_client(unsent().unwrap_or(0)),
            (true, true) if clock::now() >= deadline => {
                if let Ok(left) = unsent()
                    && left < self.unsent.load(Relaxed)
                {
                    self.wait_for_client(left);
                }
            }
            (false, true) => self.send_deadline.store(NEVER, Relaxed),
            _ => {}
        }
    }

    fn wait_for_client(&self, unsent: u64) {
        let deadline = clock::deadline(self.timeouts.send);
        self.unsent.store(unsent, Relaxed);
        self.send_deadline.store(deadline, Relaxed);
        self.look_by(deadline);
    }

    /// Closes the connection if it is still idle when its task runs.
    pub fn give_up_if_idle(&self) {
        self.is_unwanted.store(true, Relaxed);
        self.wake();
    }

    /// Whether the connection, on which nothing has come, is to be closed.
    pub(crate) fn is_over(&self, is_draining: bool, now: u64) -> bool {
        if !self.is_idle() {
            return false;
        }
        // A client whose last answer did not say "close" may have sent its next request already; or the first request
        // is on its way; or the client only opened the connection in advance.
        let since = || self.fresh_since().or(self.rests_since());
        let may_come = |since: u64| now.saturating_sub(since) < FIRST_REQUEST;
        self.is_unwanted.load(Relaxed) || (is_draining && !since().is_some_and(may_come))
    }

    /// Since when the connection may be closed for others; `None` if it may not.
    pub fn spare_since(&self, now: u64) -> Option<u64> {
        let from = spare_from(self.requests(), self.idle_since());
        (self.is_idle() && from <= now && !self.is_unwanted.load(Relaxed)).then_some(from)
    }

    /// The first byte of the next head has arrived.
    pub fn received(&self) {
        if self.is_idle() {
            if self.slot.load(Relaxed) != UNWATCHED {
                watch::is_not_idle(self.idle_sweep.load(Relaxed));
            }
            self.phase.store(Phase::Head as u8, Relaxed);
            self.is_unwanted.store(false, Relaxed);
            self.head_started.store(clock::now(), Relaxed);
            self.wake_at(clock::deadline(self.timeouts.header));
        }
    }
}

impl Timeouts {
    /// Until when a connection may be idle that has had so many requests, and has had none since then.
    pub fn idle_until(&self, requests: u64, since: u64) -> u64 {
        let limit = match requests {
            0 => self.header,
            _ => self.idle,
        };
        match limit.as_micros() as u64 {
            0 => NEVER,
            limit => since.saturating_add(limit),
        }
    }
}

/// A connection that is idle for this long rests, µs: nothing of its last request is in use any more.
pub const REST_AFTER: u64 = 1_000_000;

/// The slot of a connection that no sweeper watches.
const UNWATCHED: u32 = u32::MAX;

/// From when on a connection may be closed for others that has had so many requests and is idle since then. A client that
/// has just connected is about to send a request.
pub fn spare_from(requests: u64, since: u64) -> u64 {
    match requests {
        0 => since + NEW,
        _ => since,
    }
}

/// How long a drain waits for the first request on a new connection, for the next request after an answer, and for
/// the rest of a head, µs.
pub(crate) const FIRST_REQUEST: u64 = 1_000_000;

const WATCHED: u8 = 1;
const WORKS: u8 = 2;

/// A connection without a byte is not closed for others for this long, µs: the default of `header_timeout`.
const NEW: u64 = 10_000_000;

/// How many bytes of interim responses may wait for a client that does not read.
pub(crate) const MAX_INTERIM: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each open connection has one of these. Data that is rare, or the same for all connections, belongs elsewhere.
    #[test]
    fn what_is_kept_of_each_connection_is_small() {
        assert!(size_of::<ConnState>() <= 112, "{}", size_of::<ConnState>());
    }

    fn due(now: u64) -> Vec<u32> {
        let mut slots = Vec::new();
        watch::due(now, &mut slots);
        slots
    }

    #[test]
    fn the_sweeper_looks_at_a_connection_when_one_of_its_deadlines_passes() {
        let second = Duration::from_secs(1);
        let timeouts = Timeouts {
            header: 10 * second,
            body: 10 * second,
            idle: 70 * second,
            send: 30 * second,
        };
        let state = ConnState::new(Arc::new(timeouts));
        let begin = clock::now();
        let at = |seconds: u64| begin + seconds * 1_000_000 + 500_000;
        state.watch(0);
        assert_eq!((watch::look().idle, watch::look().active), (1, 0));
        assert!(due(at(0)).is_empty());
        assert_eq!(due(at(1)), [0]);
        assert!(state.should_rest(at(1)) && !state.overdue(at(1)));
        state.park();
        state.looked_at();
        assert!(due(at(9)).is_empty());
        assert!((at(9)..at(10)).contains(&watch::next_due(at(1))));
        assert_eq!(watch::next_due(at(10)), NEVER, "what is due already");
        assert_eq!(due(at(10)), [0], "header_timeout of a new connection");
        state.received();
        state.begin_request();
        assert_eq!((watch::look().idle, watch::look().active), (0, 1));
        // It was to be looked at for its head, but has no deadline any more.
        assert_eq!(due(at(10)), [0]);
        state.looked_at();
        assert!(due(at(1_000)).is_empty());
        state.wake_at(at(3));
        assert_eq!(due(at(3)), [0], "a deadline of the steps");
        state.wake_at(NEVER);
        state.looked_at();
        state.rest();
        let figures = watch::look();
        assert_eq!((figures.idle, figures.active), (1, 1));
        assert_eq!(due(at(1)), [0]);
        watch::look();
        state.unwatch();
        assert_eq!((watch::look().idle, watch::look().active), (0, 0));
        assert!(due(at(1_000)).is_empty());
    }
}
