//! Limits how often a worker may be stopped because the client of its script has left.
//!
//! Each stopped worker needs a new process, and at most `max_spawn_rate` are started per second. If clients connect and
//! leave a thousand times a second, the pool would lose workers faster than it gets new ones, and all other requests
//! would wait. So half of the rate is for these replacements, and half for everything else. A worker that may not be
//! stopped yet continues, as without `cancel`. If it still runs when the limit permits, it is stopped then.

/// A token bucket.
#[derive(Debug)]
pub(super) struct Cancels {
    /// µs per stopped worker.
    interval: u64,
    /// Maximum of saved µs.
    most: u64,
    /// Saved µs.
    level: u64,
    filled_at: u64,
    /// How many workers were stopped.
    pub(super) taken: u64,
}

impl Cancels {
    /// Starts full. Half of `max_spawn_rate` per second, and as many at once, but at least one.
    pub(super) fn new(max_spawn_rate: usize) -> Cancels {
        let rate = (max_spawn_rate as u64 / 2).clamp(1, SECOND);
        let interval = SECOND / rate;
        Cancels {
            interval,
            most: interval * rate,
            level: interval * rate,
            filled_at: 0,
            taken: 0,
        }
    }

    /// Takes one at `now` (µs).
    ///
    /// # Errors
    ///
    /// When the next one is available, if no other takes it.
    pub(super) fn take(&mut self, now: u64) -> Result<(), u64> {
        let passed = now.saturating_sub(self.filled_at);
        self.filled_at = self.filled_at.max(now);
        self.level = self.level.saturating_add(passed).min(self.most);
        match self.level.checked_sub(self.interval) {
            Some(left) => {
                self.level = left;
                self.taken += 1;
                Ok(())
            }
            None => Err(now.saturating_add(self.interval - self.level)),
        }
    }
}

const SECOND: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_rate_at_once_and_a_second() {
        let mut cancels = Cancels::new(32);
        let mut taken = |now| (0..100).filter(|_| cancels.take(now).is_ok()).count();
        assert_eq!(taken(10 * SECOND), 16);
        assert_eq!(taken(10 * SECOND), 0);
        assert_eq!(taken(10 * SECOND + SECOND / 2), 8);
        assert_eq!(taken(100 * SECOND), 16);
    }

    #[test]
    fn it_says_when_there_may_be_one_more() {
        for rate in [0, 1, 3, 32, 100_000, usize::MAX] {
            let mut cancels = Cancels::new(rate);
            let next = loop {
                if let Err(next) = cancels.take(SECOND) {
                    break next;
                }
            };
            assert!(next > SECOND && next <= 2 * SECOND, "{rate}: {next}");
            assert!(cancels.take(next - 1).is_err());
            assert_eq!(cancels.take(next), Ok(()));
        }
    }
}
