//! What the last seconds were like: rates for the operator's window.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::Gateway;
use crate::clock;

/// Totals, taken once a second, of the last ten.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<VecDeque<Sample>>);

/// What has happened in a second, on average of the last ten.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PoolRates {
    /// Requests that asked for a worker.
    pub(super) asked: f64,
    /// Requests that workers have done.
    pub(super) finished: f64,
    /// Requests that were refused.
    pub(super) shed: f64,
    /// Seconds that requests have spent waiting, all together: the mean length of the queue.
    pub(super) waiting: f64,
}

/// See [`PoolRates`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SiteRates {
    pub(super) requests: f64,
    /// Of these: those with a status of 500 or above.
    pub(super) failures: f64,
}

#[derive(Debug)]
struct Sample {
    /// [`clock::precise`]
    at: u64,
    pools: Vec<PoolTotals>,
    /// One for each site, and one for what belongs to none.
    sites: Vec<SiteTotals>,
}

#[derive(Debug, Clone, Copy, Default)]
struct PoolTotals {
    asked: u64,
    finished: u64,
    shed: u64,
    /// µs
    waiting: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct SiteTotals {
    requests: u64,
    failures: u64,
}

impl History {
    /// Takes the totals once a second, for ever.
    pub(super) async fn keep(&self, gateway: &Gateway) {
        loop {
            let sample = Sample::of(gateway);
            {
                let mut samples = self.samples();
                if samples.len() > SAMPLES {
                    samples.pop_front();
                }
                samples.push_back(sample);
            }
            tokio::time::sleep(STEP).await;
        }
    }

    /// What the pool's last seconds were like, up to now.
    pub(super) fn pool(&self, gateway: &Gateway, index: usize) -> PoolRates {
        let Some(pool) = gateway.pools.get(index) else {
            return PoolRates::default();
        };
        let now = PoolTotals::of(pool);
        self.since(|first, seconds| {
            let before = first.pools.get(index).copied().unwrap_or_default();
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            PoolRates {
                asked: rate(now.asked, before.asked),
                finished: rate(now.finished, before.finished),
                shed: rate(now.shed, before.shed),
                waiting: rate(now.waiting, before.waiting) / 1e6,
            }
        })
    }

    /// What the site's last seconds were like, up to now; none: what belongs to no site.
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

    /// The oldest sample, and how many seconds ago it was taken.
    fn since<T: Default>(&self, compare: impl FnOnce(&Sample, f64) -> T) -> T {
        let samples = self.samples();
        let Some(first) = samples.front() else {
            return T::default();
        };
        let micros = clock::precise().saturating_sub(first.at);
        match micros {
            // Too short to say anything.
            ..SHORTEST => T::default(),
            micros => compare(first, micros as f64 / 1e6),
        }
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

impl PoolTotals {
    fn of(pool: &super::PoolHandle) -> PoolTotals {
        let stats = pool.stats();
        PoolTotals {
            asked: stats.admitted,
            finished: stats.finished,
            shed: stats.shed(),
            waiting: stats.queue_time.0,
        }
    }
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

/// Rates are those of so many steps.
const SAMPLES: usize = 10;

/// How often totals are taken.
const STEP: Duration = Duration::from_secs(1);

/// A rate over less than that says nothing, µs.
const SHORTEST: u64 = 100_000;
