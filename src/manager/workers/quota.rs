//! How many workers of a pool there may be, and how fast they may come: what stands between a gateway that asks and
//! the machine, should that gateway not be ours any more.

use std::time::{Duration, Instant};

/// What was asked for and is still to be started, within limits.
#[derive(Debug)]
pub(super) struct Quota {
    /// Workers at most.
    pub(super) most: usize,
    /// Of these: those beside `max_children`, for calls of workers.
    pub(super) beyond: usize,
    /// To be started.
    pub(super) wanted: usize,
    /// When the next start would be on time, had they come evenly.
    next: Instant,
}

impl Quota {
    pub(super) fn new(max_children: usize, beyond: usize, now: Instant) -> Self {
        Self {
            most: max_children + beyond,
            beyond,
            wanted: 0,
            next: now,
        }
    }

    /// `count` more are wanted while there are `live`; says how many of them can be.
    pub(super) fn ask(&mut self, count: u32, live: usize) -> usize {
        let room = self.most.saturating_sub(live.saturating_add(self.wanted));
        room.min(count as usize)
    }

    /// When the next one may be started.
    pub(super) fn due(&self) -> Option<Instant> {
        let ahead = START_INTERVAL * u32::try_from(self.most).unwrap_or(u32::MAX);
        (self.wanted > 0).then(|| self.next.checked_sub(ahead).unwrap_or(self.next))
    }

    /// One is started.
    pub(super) fn start(&mut self, now: Instant) {
        self.wanted = self.wanted.saturating_sub(1);
        self.next = self.next.max(now) + START_INTERVAL;
    }
}

/// So many are started in the long run: as many as a pool can use whose workers serve one request each, and no more
/// than keeps a machine alive. As many as the pool may have are started at once.
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
