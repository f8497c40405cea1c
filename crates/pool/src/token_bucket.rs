//! Token buckets: how often something may happen.
//!
//! A bucket is one number, the time at which it is full again (GCRA, the generic cell rate algorithm of ATM Forum TM 4.0). Each
//! event moves it by one interval. An event is refused if the bucket would be empty: if that time is too far in the future.

use core::time::Duration;

use crate::Micros;

/// A limit: one event per interval on average, and several at once after a quiet time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRate {
    /// Nanoseconds, so that a thousand events per second are exact enough.
    interval: u64,
    at_once: u64,
}

/// How often one kind of event may happen. It starts full.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate: EventRate,
    /// Nanoseconds of the caller's clock.
    full_at: u64,
}

impl EventRate {
    /// One event per `interval`, and `at_once` (at least one) at the same time.
    pub const fn new(interval: Duration, at_once: u64) -> Self {
        let interval = interval.as_nanos();
        let interval = if interval > MOST { MOST } else { interval };
        Self {
            interval: if interval == 0 { 1 } else { interval as u64 },
            at_once: if at_once == 0 { 1 } else { at_once },
        }
    }

    /// So many (1 to 1,000,000) events per second, and as many at once.
    pub fn per_second(rate: usize) -> Self {
        let rate = rate.clamp(1, 1_000_000) as u32;
        Self::new(Duration::from_secs(1) / rate, rate.into())
    }

    /// Time after which one more event may happen, nanoseconds.
    pub const fn interval(&self) -> u64 {
        self.interval
    }

    /// How many events may happen at once.
    pub const fn at_once(&self) -> u64 {
        self.at_once
    }

    /// Takes a token at `now` out of the bucket that is full at `full_at`. Nanoseconds.
    ///
    /// # Errors
    ///
    /// How long it takes until there is one.
    pub fn take(&self, full_at: &mut u64, now: u64) -> Result<(), u64> {
        let missing = full_at.saturating_sub(now);
        let most = self.interval.saturating_mul(self.at_once - 1);
        if missing > most {
            return Err(missing - most);
        }
        *full_at = now.saturating_add(missing).saturating_add(self.interval);
        Ok(())
    }
}

impl TokenBucket {
    /// A full one.
    pub const fn new(rate: EventRate) -> Self {
        Self { rate, full_at: 0 }
    }

    /// Takes a token.
    ///
    /// # Errors
    ///
    /// When there will be one, if nobody else takes it.
    pub fn take(&mut self, now: Micros) -> Result<(), Micros> {
        let taken = self.rate.take(&mut self.full_at, nanoseconds(now));
        taken.map_err(|wait| now.after(Micros(wait.div_ceil(1_000))))
    }

    /// Changes the rate. Keeps the tokens, up to the new limit.
    pub fn set_rate(&mut self, now: Micros, rate: EventRate) {
        let now = nanoseconds(now);
        let missing = u128::from(self.full_at.saturating_sub(now));
        let capacity = |rate: &EventRate| u128::from(rate.interval) * u128::from(rate.at_once);
        // In the new rate's time.
        let tokens = capacity(&self.rate).saturating_sub(missing) * u128::from(rate.interval)
            / u128::from(self.rate.interval);
        let missing = capacity(&rate).saturating_sub(tokens);
        self.full_at = now.saturating_add(u64::try_from(missing).unwrap_or(u64::MAX));
        self.rate = rate;
    }
}

fn nanoseconds(time: Micros) -> u64 {
    time.0.saturating_mul(1_000)
}

/// The longest interval, nanoseconds: a century.
const MOST: u128 = 100 * 365 * 86_400 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bucket: &mut TokenBucket, now: Micros) -> usize {
        (0..2_000).filter(|_| bucket.take(now).is_ok()).count()
    }

    #[test]
    fn a_bucket_gives_its_size_at_once_and_then_so_many_a_second() {
        let mut bucket = TokenBucket::new(EventRate::per_second(32));
        assert_eq!(taken(&mut bucket, Micros(0)), 32);
        let next = bucket.take(Micros(0)).unwrap_err();
        assert_eq!(next, Micros(31_250));
        assert_eq!(taken(&mut bucket, Micros(31_249)), 0);
        assert_eq!(taken(&mut bucket, next), 1);
        assert_eq!(taken(&mut bucket, Micros::from_secs(60)), 32);
        let hour = Duration::from_secs(3_600);
        let mut bucket = TokenBucket::new(EventRate::new(hour / 60, 101));
        assert_eq!(taken(&mut bucket, Micros(0)), 101);
        assert_eq!(taken(&mut bucket, Micros::from_secs(600)), 10);
    }

    #[test]
    fn it_says_when_there_is_one_more() {
        for rate in [0, 1, 3, 32, 100_000, usize::MAX] {
            let mut bucket = TokenBucket::new(EventRate::per_second(rate));
            let now = Micros::from_secs(1);
            let next = loop {
                if let Err(next) = bucket.take(now) {
                    break next;
                }
            };
            assert!(
                next > now && next <= Micros::from_secs(2),
                "{rate}: {next:?}"
            );
            assert!(bucket.take(Micros(next.0 - 1)).is_err());
            assert_eq!(bucket.take(next), Ok(()));
        }
    }

    #[test]
    fn tokens_stay_when_the_rate_changes_as_far_as_they_fit() {
        let now = Micros::from_secs(1);
        for (before, used, after, left) in [(32, 8, 64, 24), (32, 8, 10, 10), (32, 30, 10, 2)] {
            let mut bucket = TokenBucket::new(EventRate::per_second(before));
            (0..used).for_each(|_| assert_eq!(bucket.take(now), Ok(())));
            bucket.set_rate(now, EventRate::per_second(after));
            assert_eq!(taken(&mut bucket, now), left, "{before} {used} {after}");
        }
    }
}
