//! A run over time: one point per second, or per longer time in a long run.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::record::Verdict;

/// Points of equal length from the start of the count.
#[derive(Debug)]
pub struct Series {
    /// Seconds of each.
    step: u64,
    points: Vec<Point>,
}

/// The results within one point.
#[derive(Debug, Clone)]
pub struct Point {
    /// Requests that were sent, or should have been.
    pub sent: u64,
    /// Good answers that came.
    pub good: u64,
    /// Refusals that came.
    pub refused: u64,
    /// Everything else.
    pub failed: u64,
    /// Times of the good answers, µs.
    pub times: Histogram<u64>,
    /// The longest of the refusals, µs.
    pub refused_longest: u64,
}

impl Series {
    /// Seconds per point.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// All of them.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The point of a time since the start.
    pub fn at(&mut self, time: Duration) -> &mut Point {
        while time.as_secs() / self.step >= MOST_POINTS {
            self.coarser();
        }
        let index = usize::try_from(time.as_secs() / self.step).unwrap_or(0);
        if index >= self.points.len() {
            self.points.resize(index + 1, Point::default());
        }
        &mut self.points[index]
    }

    /// Adds another series with the same start.
    pub fn merge(&mut self, mut other: Series) {
        while self.step < other.step {
            self.coarser();
        }
        while other.step < self.step {
            other.coarser();
        }
        if other.points.len() > self.points.len() {
            self.points.resize(other.points.len(), Point::default());
        }
        for (own, more) in self.points.iter_mut().zip(&other.points) {
            own.merge(more);
        }
    }

    fn coarser(&mut self) {
        self.step *= 2;
        let pairs = self.points.chunks(2).map(|pair| {
            let mut sum = pair[0].clone();
            if let Some(second) = pair.get(1) {
                sum.merge(second);
            }
            sum
        });
        self.points = pairs.collect();
    }
}

impl Default for Series {
    fn default() -> Self {
        Self {
            step: 1,
            points: Vec::new(),
        }
    }
}

impl Point {
    /// A request ended.
    pub fn add(&mut self, verdict: Verdict, time: u64) {
        match verdict {
            Verdict::Good => {
                self.good += 1;
                // The histogram grows as needed.
                let _ = self.times.record(time.min(LONGEST));
            }
            Verdict::Refused => {
                self.refused += 1;
                self.refused_longest = self.refused_longest.max(time);
            }
            Verdict::Failed => self.failed += 1,
        }
    }

    fn merge(&mut self, other: &Point) {
        self.sent += other.sent;
        self.good += other.good;
        self.refused += other.refused;
        self.failed += other.failed;
        self.refused_longest = self.refused_longest.max(other.refused_longest);
        // The histogram grows as needed.
        let _ = self.times.add(&other.times);
    }
}

impl Default for Point {
    fn default() -> Self {
        // Two digits, and only as large as needed, because there is one per second.
        let times = match Histogram::new(2) {
            Ok(histogram) => histogram,
            Err(error) => unreachable!("{error}"),
        };
        Self {
            sent: 0,
            good: 0,
            refused: 0,
            failed: 0,
            times,
            refused_longest: 0,
        }
    }
}

/// A day, µs.
const LONGEST: u64 = 86_400_000_000;

/// With more points than this, two points are merged into one.
const MOST_POINTS: u64 = 600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_point_are_kept_however_long() {
        let mut series = Series::default();
        for time in [5, 300_000, 90_000_000, u64::MAX] {
            series.at(Duration::ZERO).add(Verdict::Good, time);
        }
        let times = &series.points()[0].times;
        assert_eq!((times.len(), times.min()), (4, 5));
        assert!(times.max() >= LONGEST);
        let half = times.value_at_quantile(0.5);
        assert!((295_000..305_000).contains(&half), "{half}");
    }

    #[test]
    fn a_long_run_has_longer_points_and_loses_nothing() {
        let mut long = Series::default();
        let mut short = Series::default();
        for second in 0..5_000 {
            long.at(Duration::from_secs(second))
                .add(Verdict::Good, second);
        }
        for second in 0..10 {
            short
                .at(Duration::from_secs(second))
                .add(Verdict::Refused, 7);
        }
        assert_eq!(long.step(), 16);
        assert!(long.points().len() as u64 <= MOST_POINTS);
        short.merge(long);
        assert_eq!(short.step(), 16);
        assert_eq!(short.points()[0].good, 16);
        assert_eq!(short.points()[0].refused, 10);
        assert_eq!(short.points()[1].times.max(), 31);
        assert_eq!(
            short.points().iter().map(|point| point.good).sum::<u64>(),
            5_000
        );
        assert_eq!(
            short.points().iter().map(|p| p.times.len()).sum::<u64>(),
            5_000
        );
    }
}
