//! Rates of the last ten seconds and of the last minute, for the admin interface.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    clock,
    tally::{Tally, TimeCounts},
};

/// Samples of the totals.
#[derive(Debug)]
pub struct History {
    tally: Arc<Tally>,
    /// One sample per second, for the last ten seconds.
    seconds: Mutex<VecDeque<Sample>>,
    /// One sample every ten seconds, for the last minute.
    minute: Mutex<VecDeque<MinuteSample>>,
}

/// Rates per second, averaged over the last ten seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PoolRates {
    /// Requests that asked for a worker.
    pub asked: f64,
    /// Requests that workers have finished.
    pub finished: f64,
    /// Requests that were refused.
    pub shed: f64,
    /// The same by reason, in the order of [`SHED_REASONS`].
    pub shed_by: [f64; REASONS],
    /// Sum of the waiting times of all requests, seconds per second: the mean length of the queue.
    pub waiting: f64,
    /// Sum of the busy times of all workers, seconds per second: the mean number of busy workers.
    pub busy: f64,
    /// CPU time of all workers, seconds per second: the mean number of processors that they use.
    pub computed: f64,
}

/// See [`PoolRates`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SiteRates {
    /// Requests that were answered.
    pub requests: f64,
    /// How many of these have a status of 500 or above.
    pub failures: f64,
}

/// Totals of a pool in the last minute.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolMinute {
    /// Its counters.
    pub totals: PoolTotals,
    /// The durations of its requests.
    pub times: TimeCounts,
}

#[derive(Debug)]
struct Sample {
    /// [`clock::precise`]
    at: u64,
    pools: Used<PoolTotals>,
    /// One per site, and one for requests that belong to no site.
    sites: Used<SiteTotals>,
}

#[derive(Debug)]
struct MinuteSample {
    pools: Used<PoolMinute>,
    sites: Used<TimeCounts>,
}

/// Values by index, without those that are as at the start: a machine may have thousands of sites and pools of which few
/// are used.
#[derive(Debug)]
struct Used<T>(Vec<(usize, T)>);

impl<T: Default + PartialEq> Used<T> {
    fn of(all: impl Iterator<Item = T>) -> Self {
        let none = T::default();
        Self(all.enumerate().filter(|(_, one)| *one != none).collect())
    }

    fn get(&self, index: usize) -> Option<&T> {
        let found = self.0.binary_search_by_key(&index, |(index, _)| *index);
        Some(&self.0[found.ok()?].1)
    }
}

/// Counters of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PoolTotals {
    /// Requests that asked for a worker.
    pub asked: u64,
    /// Requests that workers have finished.
    pub finished: u64,
    /// Requests whose worker ended while it processed them.
    pub lost: u64,
    /// Requests that were refused, by reason.
    pub shed_by: [u64; REASONS],
    /// Workers that crashed.
    pub crashed: u64,
    /// Workers that could not be started.
    pub could_not_start: u64,
    /// Sum of the waiting times of all requests, µs.
    pub waiting: u64,
    /// Sum of the busy times of all workers, µs.
    pub busy: u64,
    /// CPU time of all workers, µs.
    pub computed: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct SiteTotals {
    requests: u64,
    failures: u64,
}

impl History {
    /// Without samples. `tally` has the counts of sites, and the times of pools.
    pub fn new(tally: Arc<Tally>) -> History {
        History {
            tally,
            seconds: Mutex::default(),
            minute: Mutex::default(),
        }
    }

    /// Takes a sample of the totals once a second; `pools` returns those of the pools. Never returns.
    pub async fn keep(&self, pools: impl Fn() -> Vec<PoolTotals>) {
        for second in 0_u64.. {
            let pools = pools();
            if second.is_multiple_of(MINUTE_STEP) {
                let sample = self.minute_sample(&pools);
                push(&mut lock(&self.minute), sample, MINUTE_SAMPLES);
            }
            push(&mut lock(&self.seconds), self.sample(pools), SAMPLES);
            tokio::time::sleep(STEP).await;
        }
    }

    /// The rates of the pool in the last seconds; `now`: its totals.
    pub fn pool(&self, index: usize, now: &PoolTotals) -> PoolRates {
        self.since(|first, seconds| {
            let before = first.pools.get(index).copied().unwrap_or_default();
            let since = now.since(&before);
            let rate = |count: u64| count as f64 / seconds;
            PoolRates {
                asked: rate(since.asked),
                finished: rate(since.finished),
                shed: rate(since.shed_by.iter().sum()),
                shed_by: since.shed_by.map(rate),
                waiting: rate(since.waiting) / 1e6,
                busy: rate(since.busy) / 1e6,
                computed: rate(since.computed) / 1e6,
            }
        })
    }

    /// The totals of the pool in the last minute; `now`: those since the start.
    pub fn pool_minute(&self, index: usize, now: &PoolTotals) -> PoolMinute {
        let now = self.pool_so_far(index, now);
        let samples = lock(&self.minute);
        let first = samples.front().and_then(|first| first.pools.get(index));
        match first {
            Some(before) => PoolMinute {
                totals: now.totals.since(&before.totals),
                times: now.times.since(&before.times),
            },
            None => now,
        }
    }

    /// The response times of the site in the last minute.
    pub fn site_minute(&self, index: usize) -> TimeCounts {
        let now = self.tally.site(Some(index)).times;
        let samples = lock(&self.minute);
        let first = samples.front().and_then(|first| first.sites.get(index));
        match first {
            Some(before) => now.since(before),
            None => now,
        }
    }

    /// The rates of the site in the last seconds; `None`: requests that belong to no site.
    pub fn site(&self, index: Option<usize>) -> SiteRates {
        let now = self.site_totals(index);
        let place = index.unwrap_or(self.tally.sites());
        self.since(|first, seconds| {
            let before = first.sites.get(place).copied().unwrap_or_default();
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            SiteRates {
                requests: rate(now.requests, before.requests),
                failures: rate(now.failures, before.failures),
            }
        })
    }

    fn sample(&self, pools: Vec<PoolTotals>) -> Sample {
        let sites = (0..self.tally.sites()).map(Some).chain([None]);
        Sample {
            at: clock::precise(),
            pools: Used::of(pools.into_iter()),
            sites: Used::of(sites.map(|site| self.site_totals(site))),
        }
    }

    fn minute_sample(&self, pools: &[PoolTotals]) -> MinuteSample {
        let pools = pools.iter().enumerate();
        MinuteSample {
            pools: Used::of(pools.map(|(index, totals)| self.pool_so_far(index, totals))),
            sites: Used::of((0..self.tally.sites()).map(|site| self.tally.site(Some(site)).times)),
        }
    }

    fn pool_so_far(&self, index: usize, totals: &PoolTotals) -> PoolMinute {
        PoolMinute {
            totals: *totals,
            times: self.tally.pool(index as u16).times,
        }
    }

    fn site_totals(&self, index: Option<usize>) -> SiteTotals {
        let site = self.tally.site(index);
        SiteTotals {
            requests: site.requests(),
            failures: site.statuses[4],
        }
    }

    /// Compares with the oldest sample, and how many seconds ago it was taken.
    fn since<T: Default>(&self, compare: impl FnOnce(&Sample, f64) -> T) -> T {
        let samples = lock(&self.seconds);
        let Some(first) = samples.front() else {
            return T::default();
        };
        let micros = clock::precise().saturating_sub(first.at);
        match micros {
            // Too short for a meaningful rate.
            ..SHORTEST => T::default(),
            micros => compare(first, micros as f64 / 1e6),
        }
    }
}

fn lock<T>(samples: &Mutex<VecDeque<T>>) -> MutexGuard<'_, VecDeque<T>> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a sample, and removes the oldest ones beyond `most`.
fn push<T>(samples: &mut VecDeque<T>, sample: T, most: usize) {
    while samples.len() >= most {
        samples.pop_front();
    }
    samples.push_back(sample);
}

impl PoolTotals {
    fn since(&self, before: &PoolTotals) -> PoolTotals {
        let mut shed_by = self.shed_by;
        for (now, before) in shed_by.iter_mut().zip(before.shed_by) {
            *now = now.saturating_sub(before);
        }
        PoolTotals {
            asked: self.asked.saturating_sub(before.asked),
            finished: self.finished.saturating_sub(before.finished),
            lost: self.lost.saturating_sub(before.lost),
            shed_by,
            crashed: self.crashed.saturating_sub(before.crashed),
            could_not_start: self.could_not_start.saturating_sub(before.could_not_start),
            waiting: self.waiting.saturating_sub(before.waiting),
            busy: self.busy.saturating_sub(before.busy),
            computed: self.computed.saturating_sub(before.computed),
        }
    }
}

/// Why a queue refuses requests, in the order of [`PoolTotals::shed_by`].
pub const SHED_REASONS: [&str; 7] = [
    "queue_full",
    "queue_timeout",
    "hopeless",
    "deadline",
    "overload",
    "pushed_out",
    "no_worker",
];

const REASONS: usize = SHED_REASONS.len();

/// Number of samples that rates are computed from.
const SAMPLES: usize = 11;

/// Time between two samples.
const STEP: Duration = Duration::from_secs(1);

/// Time between two samples of the minute, in steps. The oldest of these samples is one minute old.
const MINUTE_STEP: u64 = 10;
const MINUTE_SAMPLES: usize = 7;

/// A rate over a shorter time has no meaning, µs.
const SHORTEST: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::FinishedRequest;

    /// Totals after this many requests, each of which waited and ran for a second.
    fn totals(requests: u64) -> PoolTotals {
        PoolTotals {
            asked: requests,
            finished: requests,
            shed_by: [requests, 0, 0, 0, 0, 0, 2 * requests],
            waiting: requests * 1_000_000,
            busy: requests * 1_000_000,
            computed: requests * 500_000,
            ..PoolTotals::default()
        }
    }

    fn request(status: u16) -> FinishedRequest {
        FinishedRequest {
            site: Some(0),
            pool: Some((0, 1_000)),
            status,
            bytes_in: 0,
            bytes_out: 0,
            total: 1_000,
            left_running: false,
            cache: None,
        }
    }

    #[test]
    fn rates_are_the_difference_to_the_oldest_sample_by_its_age() {
        let tally = Arc::new(Tally::new(1, 1, 1));
        let history = History::new(tally.clone());
        assert_eq!(history.pool(0, &totals(5)), PoolRates::default());
        tally.ended(&request(200));
        let sample = history.sample(vec![totals(5)]);
        push(&mut lock(&history.seconds), sample, SAMPLES);
        assert_eq!(history.pool(0, &totals(25)), PoolRates::default());
        tally.ended(&request(200));
        tally.ended(&request(502));
        // A rate over a shorter time has no meaning.
        std::thread::sleep(Duration::from_micros(SHORTEST));
        let (pool, site) = (history.pool(0, &totals(25)), history.site(Some(0)));
        assert!(pool.asked > 0.0 && pool.asked <= 200.0, "{pool:?}");
        assert_eq!(pool.finished, pool.asked);
        let is = |rate: f64, expected: f64| (rate / expected - 1.0).abs() < 1e-6;
        assert!(is(pool.shed, 3.0 * pool.asked), "{pool:?}");
        assert!(is(pool.shed_by[6], 2.0 * pool.asked), "{pool:?}");
        assert!(
            is(pool.waiting, pool.asked)
                && is(pool.busy, pool.asked)
                && is(2.0 * pool.computed, pool.asked),
            "{pool:?}"
        );
        assert!(
            site.failures > 0.0 && site.requests > site.failures,
            "{site:?}"
        );
        assert_eq!(history.site(None), SiteRates::default());
    }

    #[test]
    fn the_minute_begins_with_its_oldest_sample() {
        let tally = Arc::new(Tally::new(1, 1, 1));
        let history = History::new(tally.clone());
        tally.ended(&request(200));
        assert_eq!(history.pool_minute(0, &totals(5)).totals.asked, 5);
        for requests in 5..5 + MINUTE_SAMPLES as u64 {
            let sample = history.minute_sample(&[totals(requests)]);
            push(&mut lock(&history.minute), sample, MINUTE_SAMPLES);
        }
        tally.ended(&request(200));
        let minute = history.pool_minute(0, &totals(30));
        assert_eq!((minute.totals.asked, minute.totals.shed_by[6]), (25, 50));
        assert_eq!(minute.times.total.count(), 1);
        assert_eq!(history.site_minute(0).total.count(), 1);
        // One more sample drops the oldest.
        let sample = history.minute_sample(&[totals(12)]);
        push(&mut lock(&history.minute), sample, MINUTE_SAMPLES);
        assert_eq!(history.pool_minute(0, &totals(30)).totals.asked, 24);
    }
}
