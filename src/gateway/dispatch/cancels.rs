//! How often a worker may be stopped because nobody waits for its script.
//!
//! Each that is stopped costs a new process, and no more than `max_spawn_rate` are made in a second. Clients that ask and
//! leave a thousand times a second would have a pool lose its workers faster than it gets new ones, and all others wait
//! for that. So half of the rate is for them, and half for what else needs workers. Who may not be stopped yet runs on,
//! as without `cancel`, and is stopped when its turn comes if it still runs.

/// A token bucket.
#[derive(Debug)]
pub(super) struct Cancels {
    /// µs for one.
    interval: u64,
    /// µs that may be saved up.
    most: u64,
    /// Saved up, µs.
    level: u64,
    filled_at: u64,
    /// How many there were.
    pub(super) taken: u64,
}

impl Cancels {
    /// Full; half of `max_spawn_rate` in a second, and at once, but at least one.
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

    /// One more, at `now` (µs).
    ///
    /// # Errors
    ///
    /// When there may be one, if nobody comes before.
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
