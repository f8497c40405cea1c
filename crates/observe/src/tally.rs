//! Counts and durations of finished requests by site and by pool, for the admin interface.
//!
//! Each reactor counts in its own part, which no other thread writes: counting is a plain addition, without locks and
//! allocations. Readers add the parts up.

use std::{
    cell::Cell,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use serde_json::{Value, json};

use crate::{
    cache_use::CacheUse,
    histogram::{Counted, Histogram},
    metrics::{COARSE, Durations, FINE, Metric, Page},
};

thread_local! {
    /// The part of this thread.
    static PART: Cell<usize> = const { Cell::new(0) };
}

/// All counts of a gateway.
#[derive(Debug)]
pub struct Tally {
    parts: Box<[Part]>,
}

/// A request whose answer has ended.
#[derive(Debug, Clone, Copy)]
pub struct FinishedRequest {
    /// Index into the configuration's sites; `None`: no site.
    pub site: Option<usize>,
    /// Index into the configuration's pools, if it asked for a worker, and how long it waited for one, µs.
    pub pool: Option<(u16, u64)>,
    pub status: u16,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// From its first byte to the last byte of its answer, µs.
    pub total: u64,
    /// The client left while a worker processed the request.
    pub left_running: bool,
    /// What the cache had for it, if its site has one.
    pub cache: Option<CacheUse>,
}

/// The counts of a site, or of requests without a site.
#[derive(Debug, Clone, Default)]
pub struct SiteCounts {
    /// By the first digit of the status, 1 to 5.
    pub statuses: [u64; CLASSES],
    /// Requests that exceeded the `rate` of their client.
    pub rate_limited: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Answers by what the cache had, in the order of [`CacheUse::ALL`].
    pub cache: [u64; CacheUse::ALL.len()],
    pub times: TimeCounts,
}

/// Counts of a pool that the pool itself does not have.
#[derive(Debug, Clone, Default)]
pub struct PoolCounts {
    pub left_running: u64,
    pub times: TimeCounts,
}

/// Durations of waiting for a worker, of having one, and of the whole request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimeCounts {
    pub wait: Durations,
    pub service: Durations,
    pub total: Durations,
}

/// The counts of one reactor. Two parts never share a cache line of the processor.
#[derive(Debug)]
#[repr(align(128))]
struct Part {
    /// One per site, and one for requests without a site.
    sites: Box<[Site]>,
    pools: Box<[Pool]>,
}

#[derive(Debug, Default)]
struct Site {
    statuses: [AtomicU64; CLASSES],
    rate_limited: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    cache: [AtomicU64; CacheUse::ALL.len()],
    times: LazyTimes,
}

#[derive(Debug, Default)]
struct Pool {
    left_running: AtomicU64,
    times: LazyTimes,
}

/// They are made when the first request ends: a machine may have thousands of sites and pools of which few are used, and
/// dozens of reactors.
#[derive(Debug, Default)]
struct LazyTimes(OnceLock<Box<Times>>);

#[derive(Debug, Default)]
struct Times {
    wait: Histogram,
    service: Histogram,
    total: Histogram,
}

/// This thread is the reactor `home`.
pub fn count_as(home: u16) {
    PART.set(usize::from(home));
}

impl Tally {
    pub fn new(reactors: u16, sites: usize, pools: usize) -> Tally {
        let part = |_| Part {
            sites: (0..=sites).map(|_| Site::default()).collect(),
            pools: (0..pools).map(|_| Pool::default()).collect(),
        };
        Tally {
            parts: (0..reactors.max(1)).map(part).collect(),
        }
    }

    /// The number of sites.
    pub fn sites(&self) -> usize {
        self.parts[0].sites.len() - 1
    }

    /// Counts a request whose answer has ended.
    pub fn ended(&self, ended: &FinishedRequest) {
        let part = self.part();
        let total = Counted::of(ended.total);
        let pool = ended.pool.map(|(pool, wait)| (pool, Counted::of(wait)));
        if let Some(site) = part.site(ended.site) {
            let class = usize::from(ended.status / 100).clamp(1, CLASSES) - 1;
            add(&site.statuses[class], 1);
            add(&site.bytes_in, ended.bytes_in);
            add(&site.bytes_out, ended.bytes_out);
            if let Some(cache) = ended.cache {
                add(&site.cache[cache as usize], 1);
            }
            let times = site.times.get();
            times.total.add_alone(total);
            if let Some((_, wait)) = pool {
                times.wait.add_alone(wait);
            }
        }
        if let Some((pool, wait)) = pool
            && let Some(pool) = part.pools.get(usize::from(pool))
        {
            let times = pool.times.get();
            times.total.add_alone(total);
            times.wait.add_alone(wait);
            add(&pool.left_running, u64::from(ended.left_running));
        }
    }

    /// Counts a request that exceeds the `rate` of its client.
    pub fn rate_limited(&self, site: Option<usize>) {
        if let Some(site) = self.part().site(site) {
            add(&site.rate_limited, 1);
        }
    }

    /// Counts a worker that is free again after `service` µs.
    pub fn served(&self, site: Option<usize>, pool: u16, service: u64) {
        let (part, service) = (self.part(), Counted::of(service));
        if let Some(site) = part.site(site) {
            site.times.get().service.add_alone(service);
        }
        if let Some(pool) = part.pools.get(usize::from(pool)) {
            pool.times.get().service.add_alone(service);
        }
    }

    /// The counts of a site; `None`: of requests without a site.
    pub fn site(&self, index: Option<usize>) -> SiteCounts {
        let mut counts = SiteCounts::default();
        for site in self.parts.iter().filter_map(|part| part.site(index)) {
            for (sum, count) in counts.statuses.iter_mut().zip(&site.statuses) {
                *sum += count.load(Relaxed);
            }
            counts.rate_limited += site.rate_limited.load(Relaxed);
            counts.bytes_in += site.bytes_in.load(Relaxed);
            counts.bytes_out += site.bytes_out.load(Relaxed);
            for (sum, count) in counts.cache.iter_mut().zip(&site.cache) {
                *sum += count.load(Relaxed);
            }
            site.times.add_to(&mut counts.times);
        }
        counts
    }

    /// The counts of a pool.
    pub fn pool(&self, index: u16) -> PoolCounts {
        let mut counts = PoolCounts::default();
        let pools = self.parts.iter();
        for pool in pools.filter_map(|part| part.pools.get(usize::from(index))) {
            counts.left_running += pool.left_running.load(Relaxed);
            pool.times.add_to(&mut counts.times);
        }
        counts
    }

    fn part(&self) -> &Part {
        self.parts.get(PART.get()).unwrap_or(&self.parts[0])
    }
}

impl Part {
    fn site(&self, index: Option<usize>) -> Option<&Site> {
        match index {
            Some(index) => self.sites.get(index),
            None => self.sites.last(),
        }
    }
}

impl SiteCounts {
    pub fn requests(&self) -> u64 {
        self.statuses.iter().sum()
    }

    /// Adds the metrics of the site with this name. `has_rate`: it limits the rate of its clients; `has_cache`: it has a cache.
    pub fn put_metrics(&self, page: &mut Page, name: &str, has_rate: bool, has_cache: bool) {
        let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"];
        // weir itself sends no 1xx answers.
        for (class, count) in classes.iter().zip(self.statuses).skip(1) {
            page.put(Metric::SiteRequests, &[name, class], count as f64);
        }
        if self.requests() == 0 {
            // A machine may have a thousand sites of which few are used.
            return;
        }
        if has_rate {
            page.put(Metric::SiteRateLimited, &[name], self.rate_limited as f64);
        }
        if has_cache {
            for (cache, count) in CacheUse::ALL.into_iter().zip(self.cache) {
                page.put(Metric::SiteCache, &[name, cache.word()], count as f64);
            }
        }
        page.put(Metric::SiteReceived, &[name], self.bytes_in as f64);
        page.put(Metric::SiteSent, &[name], self.bytes_out as f64);
    }
}

impl TimeCounts {
    /// For the admin interface.
    pub fn to_json(&self) -> Value {
        json!({
            "queue": self.wait.to_json(),
            "service": self.service.to_json(),
            "total": self.total.to_json(),
        })
    }

    /// Adds the metrics for waiting, service and total, labelled with `name`: those that are marked, with few buckets. `all`:
    /// all three with many buckets, or none.
    pub fn put_metrics(
        &self,
        page: &mut Page,
        metrics: [(Metric, bool); 3],
        all: Option<bool>,
        name: &str,
    ) {
        let bounds = if all == Some(true) { FINE } else { COARSE };
        let times = [&self.wait, &self.service, &self.total];
        for ((metric, is_usual), times) in metrics.into_iter().zip(times) {
            if all.unwrap_or(is_usual) {
                page.put_durations(metric, &[name], times, bounds);
            }
        }
    }

    /// The difference to `before`, an earlier value.
    pub fn since(&self, before: &TimeCounts) -> TimeCounts {
        TimeCounts {
            wait: self.wait.since(&before.wait),
            service: self.service.since(&before.service),
            total: self.total.since(&before.total),
        }
    }
}

impl LazyTimes {
    fn get(&self) -> &Times {
        self.0.get_or_init(Box::default)
    }

    /// Nothing is added if nothing was counted.
    fn add_to(&self, counts: &mut TimeCounts) {
        if let Some(times) = self.0.get() {
            times.wait.add_to(&mut counts.wait);
            times.service.add_to(&mut counts.service);
            times.total.add_to(&mut counts.total);
        }
    }
}

fn add(counter: &AtomicU64, more: u64) {
    // Only this thread writes it.
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// Classes of status: 1xx to 5xx.
const CLASSES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_added_up() {
        let tally = Tally::new(2, 1, 1);
        let ended = FinishedRequest {
            site: Some(0),
            pool: Some((0, 2_000)),
            status: 200,
            bytes_in: 1,
            bytes_out: 10,
            total: 40_000,
            left_running: true,
            cache: Some(CacheUse::Stale),
        };
        for home in [0, 1, 1] {
            count_as(home);
            tally.ended(&ended);
            tally.served(Some(0), 0, 30_000);
        }
        tally.ended(&FinishedRequest {
            site: None,
            pool: None,
            status: 404,
            left_running: false,
            cache: None,
            ..ended
        });
        count_as(0);
        let site = tally.site(Some(0));
        assert_eq!(site.statuses, [0, 3, 0, 0, 0]);
        assert_eq!((site.bytes_in, site.bytes_out), (3, 30));
        assert_eq!(site.cache, [0, 0, 3, 0, 0, 0, 0]);
        assert_eq!((site.times.wait.count(), site.times.wait.sum), (3, 6_000));
        assert_eq!(site.times.service.sum, 90_000);
        assert_eq!(site.times.total.longest, 40_000);
        assert_eq!(tally.site(None).statuses, [0, 0, 0, 1, 0]);
        let pool = tally.pool(0);
        assert_eq!((pool.left_running, pool.times.total.count()), (3, 3));
    }

    #[test]
    fn what_nobody_uses_has_no_histograms() {
        let tally = Tally::new(1, 2, 2);
        count_as(0);
        tally.served(Some(0), 0, 1_000);
        let part = &tally.parts[0];
        let made = |times: &LazyTimes| times.0.get().is_some();
        assert!(made(&part.sites[0].times) && made(&part.pools[0].times));
        assert!(!made(&part.sites[1].times) && !made(&part.pools[1].times));
        assert_eq!(tally.pool(1).times.total.counts, Vec::<u64>::new());
    }

    #[test]
    fn what_is_not_configured_is_counted_nowhere_and_harms_nobody() {
        let tally = Tally::new(0, 0, 0);
        count_as(9);
        tally.served(Some(7), 7, 1);
        tally.ended(&FinishedRequest {
            site: Some(7),
            pool: Some((7, 1)),
            status: 0,
            bytes_in: 0,
            bytes_out: 0,
            total: u64::MAX,
            left_running: true,
            cache: None,
        });
        count_as(0);
        assert_eq!(tally.site(None).requests(), 0);
        assert_eq!(tally.pool(7).left_running, 0);
    }
}
