//! The gateway's monotonic clock: microseconds since the process began to serve.
//!
//! One number serves every deadline, the queue ([`weir_pool::Micros`]) and the times in the log, so that they can be
//! compared and subtracted without conversions. A turn of a connection's task lasts microseconds and would ask for
//! the time a dozen times: [`frozen`] asks once for all of them.

use std::{
    cell::Cell,
    sync::OnceLock,
    time::{Duration, Instant},
};

thread_local! {
    /// The time of the turn that is running; 0 outside of one.
    static TURN: Cell<u64> = const { Cell::new(0) };
}

/// Microseconds since the process began to serve; never 0. Within [`frozen`] the time at which that began.
pub(crate) fn now() -> u64 {
    match TURN.get() {
        0 => precise(),
        turn => turn,
    }
}

/// As [`now`], never frozen.
pub(crate) fn precise() -> u64 {
    start().elapsed().as_micros() as u64 + 1
}

/// [`now`] as an [`Instant`].
pub(crate) fn instant() -> Instant {
    *start() + Duration::from_micros(now() - 1)
}

/// Runs a turn of a task, in which the time stands still.
pub(crate) fn frozen<T>(turn: impl FnOnce() -> T) -> T {
    /// Lets the time go on also where the turn panics.
    struct Thaw;
    impl Drop for Thaw {
        fn drop(&mut self) {
            TURN.set(0);
        }
    }
    TURN.set(precise());
    let _thaw = Thaw;
    turn()
}

/// The deadline that lies `after` from now; [`NEVER`] for a zero duration, which is how options say "no limit".
pub(crate) fn deadline(after: Duration) -> u64 {
    if after.is_zero() {
        NEVER
    } else {
        now().saturating_add(after.as_micros() as u64)
    }
}

/// What comes of `work`; none if it takes past `deadline` ([`now`]).
pub(crate) async fn in_time<T>(work: impl Future<Output = T>, deadline: u64) -> Option<T> {
    if deadline == NEVER {
        return Some(work.await);
    }
    let left = Duration::from_micros(deadline.saturating_sub(now()));
    tokio::time::timeout(left, work).await.ok()
}

fn start() -> &'static Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now)
}

/// A deadline that does not come.
pub(crate) const NEVER: u64 = u64::MAX;
