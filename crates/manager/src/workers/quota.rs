//! Limits the number and the start rate of a pool's workers. This protects the machine even if the gateway is
//! compromised.

use std::time::{Duration, Instant};

/// Requested workers that are not started yet, within limits.
#[derive(Debug)]
pub(super) struct Quota {
    /// Maximum of workers.
    pub(super) most: usize,
    /// How many of these are beyond `max_children`, for calls of workers.
    pub(super) beyond: usize,
    /// Number of workers to start.
    pub(super) wanted: usize,
    /// Whose turn it is if not all pools can have what they want: the pool whose number is lowest. It is numbered when it
    /// begins to want workers.
    pub(super) turn: u64,
    /// When the next start would be due if starts were evenly spaced.
    next: Instant,
}

impl Quota {
    pub(super) fn new(max_children: usize, beyond: usize, now: Instant) -> Self {
        Self {
            most: max_children + beyond,
            beyond,
            wanted: 0,
            turn: 0,
            next: now,
        }
    }

    /// `count` more are requested while there are `live`; returns how many of them are possible.
    pub(super) fn ask(&mut self, count: u32, live: usize) -> usize {
        let room = self.most.saturating_sub(live.saturating_add(self.wanted));
        room.min(count as usize)
    }

    /// When the next one may be started.
    pub(super) fn due(&self) -> Option<Instant> {
        let ahead = START_INTERVAL * u32::try_from(self.most).unwrap_or(u32::MAX);
        (self.wanted > 0).then(|| self.next.checked_sub(ahead).unwrap_or(self.next))
    }

    /// Counts a start.
    pub(super) fn start(&mut self, now: Instant) {
        self.wanted = self.wanted.saturating_sub(1);
        self.next = self.next.max(now) + START_INTERVAL;
    }
}

/// Mean interval between starts in the long run. This is enough for a pool whose workers serve one request each, and
/// keeps the machine usable. A burst may start as many as the pool may have.
const START_INTERVAL: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_wanted_than_there_may_be() {
        let mut quota = Quota::new(4, 0, Instant::now());
        assert_eq!(quota.ask(u32::MAX, 1), 3);
        quota.wanted = 2;
        assert_eq!(quota.ask(5, 1), 1);
        assert_eq!(quota.ask(5, 2), 0);
        assert_eq!(quota.ask(5, 9), 0);
    }

    #[test]
    fn a_pool_starts_whole_at_once_and_then_at_a_limited_rate() {
        let now = Instant::now();
        let mut quota = Quota::new(10, 0, now);
        assert_eq!(quota.due(), None);
        quota.wanted = 1_000;
        let mut started = 0;
        let second = now + Duration::from_secs(1);
        for step in 0..=1_000 {
            let at = now + Duration::from_millis(step);
            while quota.due().is_some_and(|due| due <= at) && at <= second {
                quota.start(at);
                started += 1;
            }
            if step == 0 {
                assert_eq!(started, 11);
            }
        }
        assert_eq!(started, 511);
    }
}
