//! The gateway's monotonic clock: microseconds since the process began to serve.
//!
//! The same unit is used for all deadlines, the queue (`weir_pool::Micros`) and the times in the log, so that they
//! can be compared and subtracted without conversions. A turn of a connection's task takes microseconds and would
//! read the clock a dozen times; with [`frozen`] it is read once.

use std::{cell::Cell, sync::OnceLock, time::Duration};

thread_local! {
    /// The time of the current turn; 0 outside of a turn.
    static TURN: Cell<u64> = const { Cell::new(0) };
}

/// Microseconds since the process began to serve; never 0. Within [`frozen`] it is the time at which that call began.
#[inline]
pub fn now() -> u64 {
    match TURN.get() {
        0 => precise(),
        turn => turn,
    }
}

/// As [`now`], never frozen.
#[inline]
pub fn precise() -> u64 {
    // Read first: the first call sets it.
    let start = start();
    weir_sys::timer::monotonic() - start + 1
}

/// Runs a turn of a task, during which the time does not change.
#[inline]
pub fn frozen<T>(turn: impl FnOnce() -> T) -> T {
    /// Unfreezes the time, also if the turn panics.
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

/// The deadline `after` from now; [`NEVER`] for a zero duration, which options use for "no limit".
#[inline]
pub fn deadline(after: Duration) -> u64 {
    if after.is_zero() {
        NEVER
    } else {
        now().saturating_add(after.as_micros() as u64)
    }
}

/// Result of `work`; `None` if it is not done at `deadline` ([`now`]).
pub async fn in_time<T>(work: impl Future<Output = T>, deadline: u64) -> Option<T> {
    if deadline == NEVER {
        return Some(work.await);
    }
    let left = Duration::from_micros(deadline.saturating_sub(now()));
    tokio::time::timeout(left, work).await.ok()
}

fn start() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    *START.get_or_init(weir_sys::timer::monotonic)
}

/// A deadline that is never reached.
pub const NEVER: u64 = u64::MAX;
