//! The gateway's monotonic clock: microseconds since the process began to serve.
//!
//! One number serves every deadline, the queue ([`weir_pool::Micros`]) and the times in the log, so that they can be
//! compared and subtracted without conversions.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// Microseconds since the first call in this process.
pub(crate) fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_micros() as u64
}

/// The deadline that lies `after` from now; [`NEVER`] for a zero duration, which is how options say "no limit".
pub(crate) fn deadline(after: Duration) -> u64 {
    if after.is_zero() {
        NEVER
    } else {
        now().saturating_add(after.as_micros() as u64)
    }
}

/// A deadline that does not come.
pub(crate) const NEVER: u64 = u64::MAX;
