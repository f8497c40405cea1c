//! Limits how often a worker may be stopped because the client of its script has left.
//!
//! Each stopped worker needs a new process, and at most `max_spawn_rate` are started per second. If clients connect and
//! leave a thousand times a second, the pool would lose workers faster than it gets new ones, and all other requests
//! would wait. So half of the rate is for these replacements, and half for everything else. A worker that may not be
//! stopped yet continues, as without `cancel`. If it still runs when the limit permits, it is stopped then.

use weir_pool::{EventRate, Micros, TokenBucket};

#[derive(Debug)]
pub(super) struct Cancels {
    bucket: TokenBucket,
    /// How many workers were stopped.
    pub(super) taken: u64,
}

impl Cancels {
    /// Half of `max_spawn_rate` per second, and as many at once, but at least one.
    pub(super) fn new(max_spawn_rate: usize) -> Cancels {
        Cancels {
            bucket: TokenBucket::new(EventRate::per_second(max_spawn_rate / 2)),
            taken: 0,
        }
    }

    /// Takes one at `now` (µs).
    ///
    /// # Errors
    ///
    /// When the next one is available, if no other takes it.
    pub(super) fn take(&mut self, now: u64) -> Result<(), u64> {
        self.bucket.take(Micros(now)).map_err(|next| next.0)?;
        self.taken += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn half_of_the_rate_at_once_and_a_second() {
        let mut cancels = Cancels::new(32);
        let mut taken = |now| (0..100).filter(|_| cancels.take(now).is_ok()).count();
        assert_eq!(taken(10 * SECOND), 16);
        assert_eq!(taken(10 * SECOND), 0);
        assert_eq!(taken(10 * SECOND + SECOND / 2), 8);
        assert_eq!(taken(100 * SECOND), 16);
    }
}
