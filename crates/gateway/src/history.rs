//! Rates of the last ten seconds and of the last minute, for the operator's window.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use weir_observe::clock;
use weir_pool::Stats;

use super::{Gateway, figures, tally::TimeCounts};

/// Samples of the totals.
#[derive(Debug, Default)]
pub(super) struct History {
    /// One sample per second, for the last ten seconds.
    seconds: Mutex<VecDeque<Sample>>,
    /// One sample every ten seconds, for the last minute.
    minute: Mutex<VecDeque<MinuteSample>>,
}

/// Rates per second, averaged over the last ten seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PoolRates {
    /// Requests that asked for a worker.
    pub(super) asked: f64,
    /// Requests that workers have finished.
    pub(super) finished: f64,
    /// Requests that were refused.
    pub(super) shed: f64,
    /// The same by reason, in the order of [`figures::shed_reasons`].
    pub(super) shed_by: [f64; REASONS],
    /// Sum of the waiting times of all requests, seconds per second: the mean length of the queue.
    pub(super) waiting: f64,
    /// Sum of the busy times of all workers, seconds per second: the mean number of busy workers.
    pub(super) busy: f64,
}

/// See [`PoolRates`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SiteRates {
    pub(super) requests: f64,
    /// How many of these have a status of 500 or above.
    pub(super) failures: f64,
}

/// Totals of a pool in the last minute.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolMinute {
    pub(super) totals: PoolTotals,
    pub(super) times: TimeCounts,
}

#[derive(Debug)]
struct Sample {
    /// [`clock::precise`]
    at: u64,
    pools: Vec<PoolTotals>,
    /// One per site, and one for requests that belong to no site.
    sites: Vec<SiteTotals>,
}

#[derive(Debug)]
struct MinuteSample {
    pools: Vec<PoolMinute>,
    sites: Vec<TimeCounts>,
}

/// Counters of a pool.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PoolTotals {
    /// Requests that asked for a worker.
    pub(super) asked: u64,
    /// Requests that workers have finished.
    pub(super) finished: u64,
    /// Requests whose worker ended while it processed them.
    pub(super) lost: u64,
    /// Requests that were refused, by reason.
    pub(super) shed_by: [u64; REASONS],
    /// Workers that crashed.
    pub(super) crashed: u64,
    /// Workers that could not be started.
    pub(super) could_not_start: u64,
    /// µs
    waiting: u64,
    busy: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct SiteTotals {
    requests: u64,
    failures: u64,
}

impl History {
    /// Takes a sample of the totals once a second. Never returns.
    pub(super) async fn keep(&self, gateway: &Gateway) {
        for second in 0_u64.. {
            let sample = Sample::of(gateway);
            push(&mut lock(&self.seconds), sample, SAMPLES);
            if second.is_multiple_of(MINUTE_STEP) {
                let sample = MinuteSample::of(gateway);
                push(&mut lock(&self.minute), sample, MINUTE_SAMPLES);
            }
            tokio::time::sleep(STEP).await;
        }
    }

    /// The rates of the pool in the last seconds.
    pub(super) fn pool(&self, gateway: &Gateway, index: usize) -> PoolRates {
        let Some(pool) = gateway.pools.get(index) else {
            return PoolRates::default();
        };
        let now = PoolTotals::of(pool);
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
            }
        })
    }

    /// The totals of the pool in the last minute.
    pub(super) fn pool_minute(&self, gateway: &Gateway, index: usize) -> PoolMinute {
        let Some(now) = PoolMinute::of(gateway, index) else {
            return PoolMinute::default();
        };
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
    pub(super) fn site_minute(&self, gateway: &Gateway, index: usize) -> TimeCounts {
        let now = gateway.tally.site(Some(index)).times;
        let samples = lock(&self.minute);
        let first = samples.front().and_then(|first| first.sites.get(index));
        match first {
            Some(before) => now.since(before),
            None => now,
        }
    }

    /// The rates of the site in the last seconds; `None`: requests that belong to no site.
    pub(super) fn site(&self, gateway: &Gateway, index: Option<usize>) -> SiteRates {
        let now = SiteTotals::of(gateway, index);
        let place = index.unwrap_or(gateway.config.sites.len());
        self.since(|first, seconds| {
            let before = first.sites.get(place).copied().unwrap_or_default();
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            SiteRates {
                requests: rate(now.requests, before.requests),
                failures: rate(now.failures, before.failures),
            }
        })
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

impl Sample {
    fn of(gateway: &Gateway) -> Sample {
        let sites = (0..gateway.config.sites.len()).map(Some).chain([None]);
        Sample {
            at: clock::precise(),
            pools: (gateway.pools.iter())
                .map(|pool| PoolTotals::of(pool))
                .collect(),
            sites: sites.map(|site| SiteTotals::of(gateway, site)).collect(),
        }
    }
}

impl MinuteSample {
    fn of(gateway: &Gateway) -> MinuteSample {
        let pools = 0..gateway.pools.len();
        let sites = 0..gateway.config.sites.len();
        MinuteSample {
            pools: pools
                .filter_map(|index| PoolMinute::of(gateway, index))
                .collect(),
            sites: sites
                .map(|site| gateway.tally.site(Some(site)).times)
                .collect(),
        }
    }
}

impl PoolMinute {
    /// Totals since the start.
    fn of(gateway: &Gateway, index: usize) -> Option<PoolMinute> {
        let pool = gateway.pools.get(index)?;
        Some(PoolMinute {
            totals: PoolTotals::of(pool),
            times: gateway.tally.pool(pool.id).times,
        })
    }
}

impl PoolTotals {
    fn of(pool: &super::PoolHandle) -> PoolTotals {
        let (stats, figures) = (pool.stats(), pool.scaling());
        PoolTotals {
            asked: stats.admitted,
            finished: stats.finished,
            lost: stats.lost,
            shed_by: shed(&stats),
            crashed: figures.as_ref().map_or(0, |figures| figures.crashed),
            could_not_start: figures.as_ref().map_or(0, |figures| figures.failed),
            waiting: stats.queue_time.0,
            busy: stats.busy_time.0,
        }
    }

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
        }
    }
}

fn shed(stats: &Stats) -> [u64; REASONS] {
    figures::shed_reasons(stats).map(|(_, count)| count)
}

impl SiteTotals {
    fn of(gateway: &Gateway, index: Option<usize>) -> SiteTotals {
        let site = gateway.tally.site(index);
        SiteTotals {
            requests: site.requests(),
            failures: site.statuses[4],
        }
    }
}

/// Reasons for a refusal by the queue.
pub(super) const REASONS: usize = 7;

/// Number of samples that rates are computed from.
const SAMPLES: usize = 11;

/// Time between two samples.
const STEP: Duration = Duration::from_secs(1);

/// Time between two samples of the minute, in steps. The oldest of these samples is one minute old.
const MINUTE_STEP: u64 = 10;
const MINUTE_SAMPLES: usize = 7;

/// A rate over a shorter time has no meaning, µs.
const SHORTEST: u64 = 100_000;
