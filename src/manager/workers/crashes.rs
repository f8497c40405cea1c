//! Crashes of workers, which may be many enough to start their pool, or all pools, anew (`emergency_restart_threshold`).

use std::time::{Duration, Instant};

use weir_config::Server;
use weir_pool::{Emergency, Micros};
use weir_sys::process::Exit;

use super::{SIGBUS, SIGSEGV};

/// Crashes of workers, which may be many enough to start their pool anew.
#[derive(Debug)]
pub(super) struct Crashes {
    limit: Emergency,
    pub(super) threshold: usize,
    pub(super) interval: Duration,
    since: Instant,
    /// They are counted over all pools, and start all of them anew, as PHP-FPM's do.
    pub(super) of_all: bool,
    /// They are to be started anew.
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

    /// A worker ended so. Whether that was the one too many.
    pub(super) fn count(&mut self, exit: Exit, now: Instant) -> bool {
        let at = now.saturating_duration_since(self.since);
        matches!(exit, Exit::Signal(SIGSEGV | SIGBUS))
            && self.limit.crashed(Micros(at.as_micros() as u64))
    }
}
