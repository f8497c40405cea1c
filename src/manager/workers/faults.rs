//! Workers that crash: where many do in a short time, what they share may be damaged, and the pool is started anew.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use weir_config::Server;
use weir_sys::process::Exit;

/// The crashes of a pool's workers (`emergency_restart_threshold`).
#[derive(Debug)]
pub(super) struct Faults {
    /// So many within `interval` are too many; 0: there are never too many.
    pub(super) threshold: usize,
    pub(super) interval: Duration,
    /// The last ones, `threshold` at most.
    times: VecDeque<Instant>,
    too_many: bool,
}

impl Faults {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            threshold: match server.emergency_restart_interval {
                // As in PHP-FPM, one without the other means nothing.
                Duration::ZERO => 0,
                _ => server.emergency_restart_threshold,
            },
            interval: server.emergency_restart_interval,
            times: VecDeque::new(),
            too_many: false,
        }
    }

    /// A worker has ended without having been asked to.
    pub(super) fn note(&mut self, exit: Exit, now: Instant) {
        let crashed = matches!(exit, Exit::Signal(SIGSEGV | SIGBUS));
        if self.threshold == 0 || !crashed {
            return;
        }
        if self.times.len() == self.threshold {
            self.times.pop_front();
        }
        self.times.push_back(now);
        let oldest = self.times[0];
        if self.times.len() == self.threshold && now - oldest <= self.interval {
            self.too_many = true;
            self.times.clear();
        }
    }

    /// Whether there were too many since this was last asked.
    pub(super) fn were_too_many(&mut self) -> bool {
        std::mem::take(&mut self.too_many)
    }
}

/// SIGBUS of Linux, but for a few rare machines.
const SIGBUS: i32 = 7;

/// SIGSEGV of Linux.
const SIGSEGV: i32 = 11;

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(threshold: usize, seconds: u64) -> Faults {
        Faults {
            threshold,
            interval: Duration::from_secs(seconds),
            times: VecDeque::new(),
            too_many: false,
        }
    }

    #[test]
    fn so_many_crashes_within_the_interval_are_too_many() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut faults = faults(3, 10);
        for (second, exit, too_many) in [
            (0, Exit::Signal(SIGSEGV), false),
            (5, Exit::Signal(9), false),
            (6, Exit::Code(255), false),
            (9, Exit::Signal(SIGBUS), false),
            // The first is 11 seconds ago.
            (11, Exit::Signal(SIGSEGV), false),
            (19, Exit::Signal(SIGSEGV), true),
            // They are counted anew.
            (19, Exit::Signal(SIGSEGV), false),
        ] {
            faults.note(exit, at(second));
            assert_eq!(faults.were_too_many(), too_many, "{second}");
            assert!(!faults.were_too_many());
        }
    }

    #[test]
    fn without_a_threshold_there_are_never_too_many() {
        let mut faults = faults(0, 10);
        for _ in 0..5 {
            faults.note(Exit::Signal(SIGSEGV), Instant::now());
            assert!(!faults.were_too_many());
        }
    }
}
