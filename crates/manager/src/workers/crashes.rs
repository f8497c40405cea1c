//! Counts crashes of workers. Too many of them restart the pool or all pools (`emergency_restart_threshold`).

use std::time::{Duration, Instant};

use weir_config::Server;
use weir_pool::{Emergency, Micros};
use weir_sys::process::Exit;

use super::{SIGBUS, SIGSEGV};

/// Counts crashes of workers; too many of them restart the pool.
#[derive(Debug)]
pub(super) struct Crashes {
    limit: Emergency,
    pub(super) threshold: usize,
    pub(super) interval: Duration,
    since: Instant,
    /// Whether crashes of all pools count together and restart all of them, as in PHP-FPM.
    pub(super) of_all: bool,
    /// Whether the threshold is reached.
    pub(super) reached: bool,
}

impl Crashes {
    pub(super) fn new(server: &Server, now: Instant) -> Self {
        let (threshold, interval) = (
            server.emergency_restart_threshold,
            server.emergency_restart_interval,
        );
        let most = u32::try_from(threshold).unwrap_or(u32::MAX);
        Self {
            limit: Emergency::new(most, Micros(interval.as_micros() as u64)),
            threshold,
            interval,
            since: now,
            of_all: false,
            reached: false,
        }
    }

    /// Counts the end of a worker. Returns whether the threshold was reached.
    pub(super) fn count(&mut self, exit: Exit, now: Instant) -> bool {
        let at = now.saturating_duration_since(self.since);
        matches!(exit, Exit::Signal(SIGSEGV | SIGBUS))
            && self.limit.crashed(Micros(at.as_micros() as u64))
    }
}
