//! The requests of a load, their order, and their times.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};

/// A request, ready to be sent.
#[derive(Debug, Clone)]
pub struct Shot {
    /// Its method.
    pub method: Method,
    /// Path and query.
    pub uri: Uri,
}

/// All requests.
#[derive(Debug, Clone)]
pub struct Requests {
    /// Different ones; never empty.
    pub shots: Vec<Shot>,
    /// Headers of each request, including `Host`.
    pub headers: HeaderMap,
    /// Body of each request.
    pub body: Bytes,
    /// In random order, not one after the other.
    pub random: bool,
}

/// When requests are sent, even if earlier ones are slow or fail.
#[derive(Debug, Clone)]
pub enum Arrivals {
    /// This many per second, at equal distances.
    Even(f64),
    /// This many per second on average, at independent random times.
    Poisson(f64),
    /// At these times, with these of the requests.
    Log(Vec<(Duration, u32)>),
}

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// After this many requests.
    pub requests: Option<u64>,
    /// After this time, including the warm-up.
    pub time: Option<Duration>,
}

/// The times of one of several threads: each takes every n-th request.
#[derive(Debug)]
pub struct Schedule<'a> {
    arrivals: &'a Arrivals,
    end: End,
    next: u64,
    step: u64,
    random: Random,
    /// Time of the last random arrival, seconds.
    last: f64,
}

impl<'a> Schedule<'a> {
    /// For thread `thread` of `threads`.
    pub fn new(arrivals: &'a Arrivals, end: End, thread: u64, threads: u64, seed: u64) -> Self {
        Self {
            arrivals,
            end,
            next: thread,
            step: threads.max(1),
            random: Random::new(seed.wrapping_mul(threads + 1).wrapping_add(thread)),
            last: 0.0,
        }
    }
}

impl Iterator for Schedule<'_> {
    /// The time since the start, and which of the log's requests; `None`: the next one in order.
    type Item = (Duration, Option<u32>);

    fn next(&mut self) -> Option<Self::Item> {
        let number = self.next;
        if self.end.requests.is_some_and(|most| number >= most) {
            return None;
        }
        self.next += self.step;
        let (at, which) = match self.arrivals {
            Arrivals::Even(rate) => (seconds(number as f64 / rate), None),
            Arrivals::Poisson(rate) => {
                // Each thread's part is a Poisson process too, and together they form one again.
                self.last += self.random.gap() * self.step as f64 / rate;
                (seconds(self.last), None)
            }
            Arrivals::Log(log) => {
                let (at, which) = log.get(usize::try_from(number).ok()?)?;
                (*at, Some(*which))
            }
        };
        match self.end.time {
            Some(end) if at >= end => None,
            _ => Some((at, which)),
        }
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Pseudo-random numbers that are the same for the same seed (SplitMix64, Steele et al. 2014). They are not used for
/// anything that must be unpredictable.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts with `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u128::try_from(limit).unwrap_or(1);
        usize::try_from((u128::from(self.next()) * limit) >> 64).unwrap_or(0)
    }

    /// An exponentially distributed gap whose mean is 1.
    fn gap(&mut self) -> f64 {
        // Above 0 and at most 1, so that the logarithm is finite.
        let unit = ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -unit.ln()
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: End = End {
        requests: None,
        time: Some(Duration::from_secs(10)),
    };

    fn all(arrivals: &Arrivals, end: End, threads: u64) -> Vec<Duration> {
        let thread = |thread| Schedule::new(arrivals, end, thread, threads, 1);
        let mut times: Vec<Duration> = (0..threads)
            .flat_map(|number| thread(number).map(|(at, _)| at))
            .collect();
        times.sort();
        times
    }

    #[test]
    fn even_arrivals_are_the_same_for_any_number_of_threads() {
        let arrivals = Arrivals::Even(200.0);
        let one = all(&arrivals, OPEN, 1);
        assert_eq!(one.len(), 2000);
        assert_eq!(one[1], Duration::from_millis(5));
        assert_eq!(one, all(&arrivals, OPEN, 3));
        let few = End {
            requests: Some(7),
            time: None,
        };
        assert_eq!(all(&arrivals, few, 2), one[..7]);
    }

    #[test]
    fn random_arrivals_have_the_rate_and_the_spread_of_independent_ones() {
        let arrivals = Arrivals::Poisson(1000.0);
        for threads in [1, 4] {
            let times = all(&arrivals, OPEN, threads);
            assert!((9_500..10_500).contains(&times.len()), "{}", times.len());
            let gaps: Vec<f64> = times
                .windows(2)
                .map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1000.0)
                .collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let spread = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
            let spread = (spread / gaps.len() as f64).sqrt();
            assert!((0.9..1.1).contains(&(spread / mean)), "{spread} {mean}");
        }
    }

    #[test]
    fn a_log_keeps_its_times_and_its_requests() {
        let at = Duration::from_secs;
        let arrivals = Arrivals::Log(vec![(at(0), 3), (at(1), 1), (at(2), 3), (at(20), 0)]);
        let thread = |number| Schedule::new(&arrivals, OPEN, number, 2, 1).collect::<Vec<_>>();
        assert_eq!(thread(0), [(at(0), Some(3)), (at(2), Some(3))]);
        assert_eq!(thread(1), [(at(1), Some(1))]);
    }

    #[test]
    fn random_numbers_stay_below_their_limit() {
        let mut random = Random::new(7);
        let mut seen = [0; 5];
        for _ in 0..5000 {
            seen[random.below(5)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 800), "{seen:?}");
    }
}
