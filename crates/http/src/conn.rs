//! The state of a client connection of any protocol: its phase, its deadlines, and what its request does.
//!
//! The carrier of the connection, the steps of its request and the reactor's sweeper share it. The sweeper wakes the
//! connection when one of its deadlines has passed, so that no request needs a timer of its own. It looks at a
//! connection only when a deadline may have passed: [`crate::watch`].

use std::{
    cell::{Cell, OnceCell},
    os::fd::AsFd,
    task::Waker,
    time::Duration,
};

use weir_net::Socket;
use weir_observe::clock::{self, NEVER};

use crate::watch;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Between two requests, or before the first byte of the first.
    Idle,
    /// A part of a head has arrived.
    Head,
    /// A request is being processed or answered.
    Busy,
    /// Idle for a while: its task is not needed any more.
    Resting,
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
    /// The timeouts of its listener.
    pub timeouts: &'static Timeouts,
    phase: Cell<Phase>,
    /// The connection is idle and is to be closed to make room for others.
    is_unwanted: Cell<bool>,
    /// When the first byte of the current request arrived.
    head_started: Cell<u64>,
    /// When the wait of this phase ends. The sweeper then wakes the connection.
    deadline: Cell<u64>,
    /// When a write without progress is given up.
    send_deadline: Cell<u64>,
    /// Bytes that were not yet received by the client when `send_deadline` was last extended.
    unsent: Cell<u64>,
    /// Requests answered so far.
    requests: Cell<u64>,
    /// Its number in the reactor's list ([`watch`]); [`UNWATCHED`] if it is in none.
    slot: Cell<u32>,
    /// The sweep after which it last became idle.
    idle_sweep: Cell<u32>,
    /// The sweeper looks at it at this time, or earlier.
    look_at: Cell<u64>,
    waker: OnceCell<Waker>,
}

impl ConnState {
    pub fn new(timeouts: &'static Timeouts) -> ConnState {
        let header_deadline = clock::deadline(timeouts.header);
        ConnState {
            timeouts,
            phase: Cell::new(Phase::Idle),
            is_unwanted: Cell::new(false),
            head_started: Cell::new(clock::now()),
            deadline: Cell::new(header_deadline),
            send_deadline: Cell::new(NEVER),
            unsent: Cell::new(0),
            requests: Cell::new(0),
            slot: Cell::new(UNWATCHED),
            idle_sweep: Cell::new(0),
            look_at: Cell::new(0),
            waker: OnceCell::new(),
        }
    }

    /// The connection is not new: it had so many requests and has been idle since then.
    pub fn continues(&self, requests: u64, since: u64) {
        self.requests.set(requests);
        self.head_started.set(since);
        self.wake_at(self.timeouts.idle_until(requests, since));
    }

    /// The reactor's sweeper watches the connection in `slot` of its list. Called on the reactor, before the first byte.
    pub fn watch(&self, slot: u32) {
        self.slot.set(slot);
        watch::begin(slot);
        self.looked_at();
    }

    /// The sweeper no longer watches it.
    pub fn unwatch(&self) {
        let slot = self.slot.replace(UNWATCHED);
        if slot != UNWATCHED {
            watch::end(slot, self.is_idle(), self.idle_sweep.get());
        }
    }

    /// The sweeper has looked at it, and looks again when the next of its deadlines passes, or when it has been idle for
    /// long enough to rest.
    pub fn looked_at(&self) {
        let mut next = (self.deadline.get()).min(self.send_deadline.get());
        if self.phase() == Phase::Idle {
            next = next.min(self.head_started.get().saturating_add(REST_AFTER));
        }
        self.look_at.set(next);
        watch::set(self.slot.get(), next);
    }

    /// The sweeper must look at it at this time.
    fn look_by(&self, time: u64) {
        if time < self.look_at.get() {
            self.look_at.set(time);
            watch::set(self.slot.get(), time);
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// The connection has been idle for a while.
    pub fn park(&self) {
        self.phase.set(Phase::Resting);
    }

    /// Whether it has been idle for so long that it should rest, and does not yet.
    pub fn should_rest(&self, now: u64) -> bool {
        self.phase() == Phase::Idle && now.saturating_sub(self.head_started.get()) >= REST_AFTER
    }

    /// A complete head has arrived, so a request begins; or a head was refused. Returns when its first byte arrived.
    pub fn begin_request(&self) -> u64 {
        let started = self.head_started.get();
        let requests = self.requests.get() + 1;
        self.requests.set(requests);
        self.phase.set(Phase::Busy);
        self.is_unwanted.set(false);
        self.deadline.set(NEVER);
        started
    }

    /// Requests begun on this connection.
    pub fn requests(&self) -> u64 {
        self.requests.get()
    }

    /// Sets when the connection's task is woken ([`clock::now`]'s time). Each waiting step then checks its own
    /// deadline.
    pub fn wake_at(&self, deadline: u64) {
        self.deadline.set(deadline);
        self.look_by(deadline);
    }

    /// As [`Self::wake_at`], if the connection's task would not be woken before that.
    pub(crate) fn wake_by(&self, deadline: u64) {
        if deadline < self.deadline.get() {
            self.wake_at(deadline);
        }
    }

    /// When the task is woken; [`NEVER`]: nothing is planned.
    pub fn wakes_at(&self) -> u64 {
        self.deadline.get()
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
        now >= self.deadline.get() || self.send_overdue(now)
    }

    /// Whether the client has received nothing for too long.
    pub fn send_overdue(&self, now: u64) -> bool {
        now >= self.send_deadline.get()
    }

    /// When the first byte of the current head or request arrived.
    pub fn head_started(&self) -> u64 {
        self.head_started.get()
    }

    /// Wakes the connection's task, once that has run. Other threads may use it.
    pub fn waker(&self) -> Option<&Waker> {
        self.waker.get()
    }

    /// When the connection was opened or became idle.
    pub fn idle_since(&self) -> u64 {
        self.head_started.get()
    }

    /// Until when it may be idle.
    pub(crate) fn idle_deadline(&self) -> u64 {
        self.timeouts.idle_until(self.requests(), self.idle_since())
    }

    /// Whether the connection has no request.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase(), Phase::Idle | Phase::Resting)
    }

    /// When the connection became idle; `None` if it has a request or has had none yet.
    pub fn rests_since(&self) -> Option<u64> {
        (self.is_idle() && self.requests() > 0).then(|| self.head_started.get())
    }

    /// When a connection that has had no request yet was opened; `None` for all others.
    pub fn fresh_since(&self) -> Option<u64> {
        (self.requests() == 0).then(|| self.head_started.get())
    }

    /// Between two requests: the kernel has the whole last answer.
    pub fn set_idle(&self) {
        if !self.is_idle() && self.slot.get() != UNWATCHED {
            self.idle_sweep.set(watch::became_idle());
        }
        let now = clock::now();
        self.phase.set(Phase::Idle);
        self.head_started.set(now);
        let deadline = clock::deadline(self.timeouts.idle);
        self.deadline.set(deadline);
        self.look_by(deadline.min(now + REST_AFTER));
    }

    /// Notes whether a write to `socket` waits for the client. `send_timeout` limits that wait. A client that reads
    /// slowly but steadily is not cut: a large send buffer of the kernel may stay full for much longer than the
    /// timeout.
    pub fn note_write(&self, waits: bool, socket: &Socket) {
        let deadline = self.send_deadline.get();
        let unsent = || weir_sys::socket::unsent(socket.as_fd());
        match (waits, deadline != NEVER) {
            (true, false) => self.wait_for_client(unsent().unwrap_or(0)),
            (true, true) if clock::now() >= deadline => {
                if let Ok(left) = unsent()
                    && left < self.unsent.get()
                {
                    self.wait_for_client(left);
                }
            }
            (false, true) => self.send_deadline.set(NEVER),
            _ => {}
        }
    }

    fn wait_for_client(&self, unsent: u64) {
        let deadline = clock::deadline(self.timeouts.send);
        self.unsent.set(unsent);
        self.send_deadline.set(deadline);
        self.look_by(deadline);
    }

    /// Closes the connection if it still has no request when its task runs.
    pub fn give_up_if_idle(&self) {
        self.is_unwanted.set(true);
        self.wake();
    }

    /// Whether it is to be closed to make room for others.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.is_unwanted.get()
    }

    /// Whether the connection, on which no more has come, is to be closed.
    pub(crate) fn is_over(&self, is_draining: bool, now: u64) -> bool {
        if !self.is_idle() {
            return self.phase() == Phase::Head && self.is_unwanted.get();
        }
        // A client whose last answer did not say "close" may have sent its next request already; or the first request
        // is on its way; or the client only opened the connection in advance.
        let since = || self.fresh_since().or(self.rests_since());
        let may_come = |since: u64| now.saturating_sub(since) < FIRST_REQUEST;
        self.is_unwanted.get() || (is_draining && !since().is_some_and(may_come))
    }

    /// Since when the connection may be closed for others; `None` if it may not.
    pub fn spare_since(&self, now: u64) -> Option<u64> {
        let from = spare_from(self.requests(), self.idle_since());
        (self.is_idle() && from <= now && !self.is_unwanted.get()).then_some(from)
    }

    /// Since when a client has connected and not asked, or has sent a part of a head; `None`: it has asked, or is to be closed.
    pub fn silent_since(&self) -> Option<u64> {
        let is_silent = match self.phase() {
            Phase::Head => true,
            Phase::Idle | Phase::Resting => self.requests() == 0,
            Phase::Busy => false,
        };
        (is_silent && !self.is_unwanted.get()).then(|| self.head_started.get())
    }

    /// The first byte of the next head has arrived.
    pub fn received(&self) {
        if self.is_idle() {
            if self.slot.get() != UNWATCHED {
                watch::is_not_idle(self.idle_sweep.get());
            }
            self.phase.set(Phase::Head);
            self.is_unwanted.set(false);
            self.head_started.set(clock::now());
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
        after(since, limit)
    }
}

/// `time` after `since`; [`NEVER`] if there is no such time.
pub(crate) fn after(since: u64, time: Duration) -> u64 {
    match (since, time.as_micros() as u64) {
        (NEVER, _) | (_, 0) => NEVER,
        (since, time) => since.saturating_add(time),
    }
}

/// A connection that is idle for this long rests, µs: nothing of its last request is in use any more.
pub const REST_AFTER: u64 = 1_000_000;

/// The slot of a connection that no sweeper watches.
const UNWATCHED: u32 = u32::MAX;

/// From when on a connection may be closed for others that has had so many requests and is idle since then. For one without a
/// request there are other rules ([`ConnState::silent_since`]).
pub fn spare_from(requests: u64, since: u64) -> u64 {
    match requests {
        0 => NEVER - 1,
        _ => since,
    }
}

/// How long a drain waits for the first request on a new connection, for the next request after an answer, and for
/// the rest of a head, µs.
pub(crate) const FIRST_REQUEST: u64 = 1_000_000;

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
        let state = ConnState::new(Box::leak(Box::new(timeouts)));
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
        // The sweeper looks at the connection because of the head's deadline, which is over by now.
        assert_eq!(due(at(10)), [0]);
        state.looked_at();
        assert!(due(at(1_000)).is_empty());
        state.wake_at(at(3));
        assert_eq!(due(at(3)), [0], "a deadline of the steps");
        state.wake_at(NEVER);
        state.looked_at();
        state.set_idle();
        let figures = watch::look();
        assert_eq!((figures.idle, figures.active), (1, 1));
        assert_eq!(due(at(1)), [0]);
        watch::look();
        state.unwatch();
        assert_eq!((watch::look().idle, watch::look().active), (0, 0));
        assert!(due(at(1_000)).is_empty());
    }
}
