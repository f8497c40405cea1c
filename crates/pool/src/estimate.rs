//! How long requests take: two estimates for two different questions.
//!
//! [`Service`] is the time that a worker needs for a request **at best**: the lower one of two running means, a quick
//! and a slow one. One script that ran for a minute hardly moves the slow mean, and many quick requests in a row soon
//! move the quick one. It tells whether a request *cannot* be served in time, which must be certain.
//!
//! [`Drain`] is the time that workers take for a request **at present**: their busy time divided by the number of
//! finished requests, while requests were waiting all the time. Stuck workers count. It tells how long a queue may
//! be.

use crate::Micros;

/// The time that a worker needs for a request at best.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Service {
    /// Both in 1/256 µs.
    quick: u64,
    slow: u64,
    known: u64,
    /// When a request last finished.
    last: Micros,
}

impl Service {
    /// A worker has finished a request that took `time`. Knowledge from long ago is dropped: a database that was slow
    /// then may be fast again.
    #[inline]
    pub(crate) fn finished(&mut self, now: Micros, time: Micros) {
        if self.is_stale(now) {
            (self.quick, self.slow, self.known) = (0, 0, 0);
        }
        self.last = now;
        let time = time.0.min(LONGEST) << 8;
        self.known += 1;
        if self.known < SLOW {
            return self.begin(time);
        }
        let mean = |mean: u64, most: u64| mean - mean / most + time / most;
        (self.quick, self.slow) = (mean(self.quick, QUICK), mean(self.slow, SLOW));
    }

    /// Starts with plain means.
    #[cold]
    fn begin(&mut self, time: u64) {
        let mean = |mean: u64, most: u64| {
            let weight = self.known.min(most);
            if time >= mean {
                mean + (time - mean) / weight
            } else {
                mean - (mean - time) / weight
            }
        };
        (self.quick, self.slow) = (mean(self.quick, QUICK), mean(self.slow, SLOW));
    }

    /// A worker begins a request, and no other is busy: knowledge from before a long idle time is dropped.
    #[inline]
    pub(crate) fn woke(&mut self, now: Micros) {
        if now.since(self.last).0 > STALE {
            (self.quick, self.slow, self.known) = (0, 0, 0);
        }
    }

    /// Zero: not known.
    pub(crate) fn estimate(&self) -> Micros {
        Micros(self.quick.min(self.slow) >> 8)
    }

    /// Whether enough is known to refuse requests because of it. The first requests of a pool take much longer than
    /// later ones, because nothing is loaded yet.
    pub(crate) fn is_known(&self, now: Micros) -> bool {
        self.known >= ENOUGH && !self.is_stale(now)
    }

    /// Whether nothing was finished for longer than requests take.
    fn is_stale(&self, now: Micros) -> bool {
        let estimate = self.estimate().0;
        now.since(self.last).0 > estimate.saturating_mul(2).saturating_add(STALE)
    }
}

/// The time that workers take for a request at present.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Drain {
    /// µs.
    busy: u64,
    /// In 1/256.
    finished: u64,
}

impl Drain {
    /// The sum of busy time, and the finished requests, in a time span in which requests waited.
    pub(crate) fn saw(&mut self, span: Micros, busy: u64, finished: u64) {
        if span.0 > FORGOTTEN && finished == 0 {
            *self = Self::default();
        }
        // Earlier values decay by half per second.
        let keep = |value: u64| value - value.min(value * span.0.min(MEMORY) / (2 * MEMORY));
        self.busy = keep(self.busy).saturating_add(busy);
        self.finished = keep(self.finished).saturating_add(finished << 8);
    }

    /// `None`: no request has waited yet, or nothing was finished recently.
    pub(crate) fn service(&self) -> Option<Micros> {
        let time = (self.busy << 8).checked_div(self.finished)?;
        Some(Micros(time.clamp(1, LONGEST)))
    }
}

/// How much the durations of requests vary.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spread {
    count: u64,
    /// Sums of the times and of their squares, in units of 16 µs.
    sum: u64,
    squares: u64,
}

impl Spread {
    #[inline]
    pub(crate) fn finished(&mut self, time: Micros) {
        // 9 minutes; the sum of this many squares fits.
        let time = (time.0 >> 4).min(1 << 25);
        self.count += 1;
        self.sum += time;
        self.squares += time * time;
        if self.count == REMEMBERED {
            (self.count, self.sum, self.squares) = (self.count / 2, self.sum / 2, self.squares / 2);
        }
    }

    /// The variance of the number of requests that finish in the time for which `count` is the mean: `count` times
    /// the square of the coefficient of variation, and at least as much as with exponential times, because other
    /// effects delay workers as well.
    pub(crate) fn variance_of(&self, count: u64) -> u64 {
        let square = u128::from(self.sum) * u128::from(self.sum);
        if square == 0 {
            return count;
        }
        let mean_of_squares = u128::from(self.squares) * u128::from(self.count);
        let more = mean_of_squares.saturating_sub(square);
        let variance = u128::from(count).saturating_mul(more) / square;
        u64::try_from(variance).unwrap_or(u64::MAX).max(count)
    }
}

/// Number of requests in the quick mean.
const QUICK: u64 = 8;

/// Number of requests in the slow mean.
const SLOW: u64 = 64;

/// Number of requests after which the means are used.
const ENOUGH: u64 = 32;

/// Knowledge is stale after this time without any busy worker; while workers are busy, after this time plus twice the
/// time of a request without one finishing; µs.
const STALE: u64 = 2_000_000;

/// After this time without finished requests, earlier values do not count, µs.
const FORGOTTEN: u64 = 5_000_000;

/// Number of requests after which the spread drops half of its data.
const REMEMBERED: u64 = 1 << 10;

/// Longer times count as this, µs: a day.
const LONGEST: u64 = 86_400_000_000;

/// After this time the data counts half, µs.
const MEMORY: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_script_does_not_make_the_estimate_long_and_many_do() {
        let (mut service, now) = (Service::default(), Micros::from_secs(7));
        assert_eq!(service.estimate(), Micros::ZERO);
        for _ in 0..100 {
            service.finished(now, Micros(10_000));
        }
        assert!(service.is_known(now));
        assert_eq!(service.estimate(), Micros(10_000));
        service.finished(now, Micros::from_secs(1));
        assert!(service.estimate() < Micros(30_000));
        for _ in 0..200 {
            service.finished(now, Micros(100_000));
        }
        assert!(service.estimate() > Micros(90_000));
        for _ in 0..30 {
            service.finished(now, Micros(1_000));
        }
        assert!(service.estimate() < Micros(4_000), "it falls quickly");
    }

    #[test]
    fn what_was_known_before_a_long_rest_is_not_believed_after_it() {
        let mut service = Service::default();
        for second in 0..100 {
            service.finished(Micros::from_secs(second), Micros::from_secs(5));
        }
        let rest = |seconds: u64| Micros::from_secs(99 + seconds);
        assert!(service.is_known(rest(12)));
        assert!(!service.is_known(rest(13)));
        let mut rested = service;
        rested.woke(rest(3));
        assert!(!rested.is_known(rest(3)));
        assert_eq!(rested.estimate(), Micros::ZERO);
        service.finished(rest(25), Micros(30_000));
        assert_eq!(service.estimate(), Micros(30_000));
        assert!(!service.is_known(rest(25)), "one says little");
        let mut drain = Drain::default();
        drain.saw(Micros::from_secs(1), 4_000_000, 4);
        drain.saw(Micros::from_secs(25), 0, 0);
        assert_eq!(drain.service(), None);
    }

    #[test]
    fn times_beyond_reason_do_not_overflow() {
        let mut service = Service::default();
        for _ in 0..1_000 {
            service.finished(Micros::ZERO, Micros::MAX);
        }
        assert_eq!(service.estimate(), Micros(LONGEST));
        let mut drain = Drain::default();
        drain.saw(Micros::from_secs(1), 1 << 40, 0);
        assert_eq!(drain.service(), None);
    }

    #[test]
    fn stuck_workers_count_in_what_a_request_takes() {
        let mut drain = Drain::default();
        let second = Micros::from_secs(1);
        for _ in 0..10 {
            // Four workers, 10 ms each.
            drain.saw(second, 4_000_000, 400);
        }
        assert_eq!(drain.service(), Some(Micros(10_000)));
        for _ in 0..10 {
            // Three of them are stuck.
            drain.saw(second, 4_000_000, 100);
        }
        let time = drain.service().unwrap();
        assert!((39_000..41_000).contains(&time.0), "{time:?}");
    }
}
