//! Counts durations from any thread, without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::metrics::Durations;

/// Number of durations per bucket.
#[derive(Debug)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
    longest: AtomicU64,
}

/// A duration and its bucket, which is found once for all histograms that count it.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    micros: u64,
    bucket: usize,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: [const { AtomicU64::new(0) }; BOUNDS.len() + 1],
            sum: AtomicU64::new(0),
            longest: AtomicU64::new(0),
        }
    }
}

impl Counted {
    /// The bucket of a duration, µs.
    pub fn of(micros: u64) -> Counted {
        // Most requests do not wait.
        let bucket = match micros <= BOUNDS[0] {
            true => 0,
            false => BOUNDS.partition_point(|bound| *bound < micros),
        };
        Counted { micros, bucket }
    }
}

impl Histogram {
    /// Counts a duration, µs.
    pub fn add(&self, micros: u64) {
        self.counts[Counted::of(micros).bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
        if micros > self.longest.load(Relaxed) {
            self.longest.fetch_max(micros, Relaxed);
        }
    }

    /// As [`Self::add`], where only the calling thread counts durations.
    #[inline]
    pub fn add_alone(&self, Counted { micros, bucket }: Counted) {
        let add = |counter: &AtomicU64, more| {
            counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
        };
        add(&self.counts[bucket], 1);
        add(&self.sum, micros);
        if micros > self.longest.load(Relaxed) {
            self.longest.store(micros, Relaxed);
        }
    }

    /// Adds the counts to `durations`, which comes from here or is empty.
    pub fn add_to(&self, durations: &mut Durations) {
        durations.bounds = &BOUNDS;
        durations.counts.resize(self.counts.len(), 0);
        for (sum, count) in durations.counts.iter_mut().zip(&self.counts) {
            *sum += count.load(Relaxed);
        }
        durations.sum += self.sum.load(Relaxed);
        durations.longest = durations.longest.max(self.longest.load(Relaxed));
    }

    /// The counts.
    pub fn durations(&self) -> Durations {
        let mut durations = Durations::default();
        self.add_to(&mut durations);
        durations
    }
}

/// Upper bounds, µs: ten for each power of ten from 100 µs to 75 s, and six up to 10 minutes. The error of a
/// percentile is at most half of it, and mostly a quarter. They include [`FINE`](crate::metrics::FINE) and [`COARSE`](crate::metrics::COARSE).
const BOUNDS: [u64; 66] = bounds();

const fn bounds() -> [u64; 66] {
    const STEPS: [u64; 10] = [100, 125, 150, 200, 250, 300, 400, 500, 600, 750];
    const SLOW: [u64; 6] = [100, 150, 200, 300, 450, 600];
    let mut bounds = [0; 66];
    let (mut at, mut scale) = (0, 1);
    while at < 60 {
        bounds[at] = STEPS[at % 10] * scale;
        at += 1;
        if at.is_multiple_of(10) {
            scale *= 10;
        }
    }
    while at < 66 {
        bounds[at] = SLOW[at - 60] * 1_000_000;
        at += 1;
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_within_the_first_bound_that_it_does_not_exceed() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 600_000_001] {
            histogram.add(micros);
        }
        let mut durations = histogram.durations();
        assert_eq!(durations.counts[..2], [2, 1]);
        assert_eq!(durations.counts.last(), Some(&1));
        assert_eq!(
            (durations.sum, durations.longest),
            (600_000_202, 600_000_001)
        );
        histogram.add_to(&mut durations);
        assert_eq!(durations.count(), 8);
    }

    #[test]
    fn bounds_grow_by_half_at_most_and_have_what_is_scraped() {
        assert_eq!((BOUNDS[0], BOUNDS[65]), (100, 600_000_000));
        for pair in BOUNDS.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] * 2 <= pair[0] * 3, "{pair:?}");
        }
        for bound in [crate::metrics::FINE, crate::metrics::COARSE].concat() {
            assert!(BOUNDS.contains(&bound), "{bound}");
        }
    }
}
