//! Durations that are counted where they happen, by any thread, without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::metrics::Durations;

/// How many durations there were, by how long they were.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
    longest: AtomicU64,
}

impl Histogram {
    /// Counts a duration, µs.
    pub(crate) fn add(&self, micros: u64) {
        let bucket = BOUNDS.iter().take_while(|bound| **bound < micros).count();
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
        if micros > self.longest.load(Relaxed) {
            self.longest.fetch_max(micros, Relaxed);
        }
    }

    /// Adds what was counted to `durations`, which has come from here or is empty.
    pub(crate) fn add_to(&self, durations: &mut Durations) {
        durations.bounds = &BOUNDS;
        durations.counts.resize(self.counts.len(), 0);
        for (sum, count) in durations.counts.iter_mut().zip(&self.counts) {
            *sum += count.load(Relaxed);
        }
        durations.sum += self.sum.load(Relaxed);
        durations.longest = durations.longest.max(self.longest.load(Relaxed));
    }

    /// What was counted.
    pub(crate) fn durations(&self) -> Durations {
        let mut durations = Durations::default();
        self.add_to(&mut durations);
        durations
    }
}

/// Upper bounds, µs: 1 ms to 60 s, each about twice the one before.
const BOUNDS: [u64; 15] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_within_the_first_bound_that_it_does_not_exceed() {
        let histogram = Histogram::default();
        for micros in [0, 1_000, 1_001, 60_000_001] {
            histogram.add(micros);
        }
        let mut durations = histogram.durations();
        assert_eq!(durations.counts[..2], [2, 1]);
        assert_eq!(durations.counts.last(), Some(&1));
        assert_eq!((durations.sum, durations.longest), (60_002_002, 60_000_001));
        histogram.add_to(&mut durations);
        assert_eq!(durations.count(), 8);
    }
}
