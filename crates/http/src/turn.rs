//! The turns of a connection with one request at a time, for HTTP/1 and FastCGI: how much it does in one, and how long it waits
//! between two requests.

use std::task::Context;

use weir_net::Socket;

use crate::{
    Front, Phase,
    conn::{ConnState, FIRST_REQUEST},
};

/// What follows a part of a turn. `E`: how a connection may end.
pub(crate) enum Next<E> {
    /// Another part.
    Part,
    /// The end of the connection.
    End(E),
}

/// How much a connection may do before other connections have their turn.
pub(crate) struct Budget {
    requests: u32,
    /// Bytes of a body that it may still read.
    pub(crate) bytes: usize,
}

impl Budget {
    pub(crate) fn new() -> Budget {
        Budget {
            requests: TURN_REQUESTS,
            bytes: TURN_BYTES,
        }
    }

    /// Whether another request may begin in this turn. If not, there will be another turn.
    pub(crate) fn may_begin(&self, cx: &mut Context<'_>) -> bool {
        if self.requests == 0 {
            cx.waker().wake_by_ref();
        }
        self.requests > 0
    }

    pub(crate) fn begun(&mut self) {
        self.requests -= 1;
    }
}

/// The wait for a request.
#[derive(Default)]
pub(crate) struct Waiting {
    /// When the connection first saw the drain; 0: there is none.
    drain_seen: u64,
}

/// The reason why the wait is over.
pub(crate) enum TimedOut {
    /// No request has begun.
    Idle,
    /// A part of a head has come, and the rest has not come within `header_timeout`.
    Head,
    /// The same, within a second of the drain.
    Draining,
}

impl Waiting {
    /// Whether the connection waits no longer.
    pub(crate) fn timed_out(&mut self, front: &impl Front, now: u64) -> Option<TimedOut> {
        let state = front.state();
        let has_begun = || state.phase() == Phase::Head;
        if state.overdue(now) {
            return Some(match has_begun() {
                true => TimedOut::Head,
                false => TimedOut::Idle,
            });
        }
        if self.drain_seen == 0 && front.is_draining() {
            self.drain_seen = now;
        }
        let is_late = self.drain_seen > 0 && now - self.drain_seen >= FIRST_REQUEST;
        (is_late && has_begun()).then_some(TimedOut::Draining)
    }

    /// Nothing more has come: moves the connection to another reactor if that should have it. Whether it ends here.
    pub(crate) fn ends(
        &self,
        front: &mut impl Front,
        now: u64,
        take_idle: impl FnOnce() -> Option<Socket>,
    ) -> bool {
        let may_move = |state: &ConnState| state.is_idle() && !state.is_unwanted();
        // This comes first: if the connection is handed over while it is idle, no request is lost.
        if may_move(front.state())
            && let Some(to) = front.should_move()
            && let Some(socket) = take_idle()
        {
            front.move_away(to, socket);
            return true;
        }
        front.state().is_over(self.drain_seen > 0, now)
    }
}

/// Requests that a connection may begin in one turn.
const TURN_REQUESTS: u32 = 16;

/// Bytes of a body that a connection may read in one turn.
const TURN_BYTES: usize = 256 * 1024;
