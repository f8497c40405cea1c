//! `shutdown_delay`: the time between the order to stop and the stop, in which load balancers learn of it.
//!
//! ```text
//!          SIGTERM, weir stop            the time is over, weir stop again
//! serves ─────────────────────► leaves ───────────────────────────────────► stops gracefully
//!                                 │ a second signal
//!                                 └──────────────────────────────────────► stops at once
//! ```
//!
//! weir that leaves is drained (`weir drain`): not ready, and each connection ends after its answer. All that still comes is answered.

use std::time::Instant;

use super::{Manager, Stopping};

impl Manager<'_> {
    /// Stops gracefully, after `shutdown_delay`. A second call does not wait.
    pub(super) fn leave(&mut self) {
        let delay = self.current.shutdown_delay();
        if delay.is_zero() || self.stopping != Stopping::No || !self.current.is_serving() {
            return self.stop_gracefully();
        }
        log::info!(
            "stopping: not ready from now on; requests that still arrive are answered for {} s (shutdown_delay)",
            delay.as_secs_f64()
        );
        self.notifier.stopping();
        let now = Instant::now();
        self.stopping = Stopping::Leaving(now + delay);
        self.declines = true;
        self.current.decline(true);
        self.abandon_next(now);
        self.abandon_upgrade();
    }

    /// When the delay is over; `None`: there is none now.
    pub(super) fn leaves_at(&self) -> Option<Instant> {
        match self.stopping {
            Stopping::Leaving(until) => Some(until),
            _ => None,
        }
    }

    /// Stops when the delay is over.
    pub(super) fn tend_leaving(&mut self, now: Instant) {
        if self.leaves_at().is_some_and(|at| at <= now) {
            self.stop_gracefully();
        }
    }
}
