//! PHP that is loaded when it is needed: a pool with `pm = "ondemand"` has no process before its first request, and none
//! after it was idle for a while. So a machine can have thousands of pools of which few are used.
//!
//! ```text
//! cold ── a worker is requested ──► the master loads PHP ──► warm ── no worker for `master_idle_timeout` ──► cold
//! ```
//!
//! The gateway sees no difference: it may request workers of a cold pool, and gets them when PHP is loaded.
//!
//! A start takes a processor for some 10 ms, or 60 ms if PHP is loaded for the pool alone, so only some masters do it
//! at the same time (`php_starts` of `[server]`). Pools with requested workers go first, in the order of these
//! requests. In the order of the configuration, the last pools would wait as long as others get requests.

use std::time::{Duration, Instant};

use super::{Kind, Pool, master::Php};

/// The order in which pools start what they want.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Workers are wanted: the pool that was asked first.
    Asked(u64),
    /// Only a master is: the one that was due first.
    Due(Instant),
    Nothing,
}

/// The indices of all pools, in the order in which they start masters and workers.
pub(super) fn turns(list: &[Pool]) -> Vec<usize> {
    in_order(list.iter().map(|pool| match &pool.kind {
        _ if pool.quota.wanted > 0 => Turn::Asked(pool.quota.turn),
        Kind::Php(php) => php.due().map_or(Turn::Nothing, Turn::Due),
        Kind::Command(_) => Turn::Nothing,
    }))
}

fn in_order(turns: impl Iterator<Item = Turn>) -> Vec<usize> {
    let mut turns: Vec<(Turn, usize)> = turns.zip(0..).collect();
    turns.sort_unstable();
    turns.into_iter().map(|(_, index)| index).collect()
}

/// What a pool on demand has besides its master.
#[derive(Debug)]
pub(super) struct OnDemand {
    /// A master that has had no worker for this time ends. `None`: it stays.
    limit: Option<Duration>,
    /// Since when it has had none.
    idle_since: Option<Instant>,
}

impl OnDemand {
    /// `limit`: zero for no limit.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit: (!limit.is_zero()).then_some(limit),
            idle_since: None,
        }
    }

    /// When the master ends, if it gets no worker before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.idle_since? + self.limit?)
    }
}

impl Php {
    /// Whether it has no master, and gets one when a worker is requested.
    pub(super) fn is_cold(&self) -> bool {
        self.on_demand.is_some() && !self.has_master() && !self.is_starting()
    }

    /// Whether workers may be requested: now, or as soon as PHP is loaded for them.
    pub(super) fn is_ready(&self) -> bool {
        self.has_master() || self.is_cold()
    }
}

impl Pool {
    /// Whether workers are wanted that only a master can fork which is not there.
    pub(super) fn is_asked(&self) -> bool {
        self.quota.wanted > 0 && matches!(&self.kind, Kind::Php(php) if !php.has_master())
    }

    /// Whether the master that is due is not needed yet: a pool on demand waits for a request.
    pub(super) fn may_stay_cold(&self) -> bool {
        let Kind::Php(php) = &self.kind else {
            return false;
        };
        // A gateway that knows that the pool is down requests nothing.
        php.on_demand.is_some() && self.quota.wanted == 0 && !self.down
    }

    /// Ends a master that has had no worker for long enough.
    pub(super) fn cool_down(&mut self, now: Instant) {
        let is_used = !self.workers.is_empty() || self.quota.wanted > 0;
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        let is_used = is_used || !php.has_master() || php.is_starting();
        let Some(on_demand) = &mut php.on_demand else {
            return;
        };
        if is_used {
            on_demand.idle_since = None;
            return;
        }
        on_demand.idle_since.get_or_insert(now);
        if on_demand.deadline().is_some_and(|until| until <= now) {
            on_demand.idle_since = None;
            php.forget_master();
            log::info!(pool = self.name.as_str(); "no worker for master_idle_timeout: PHP ends until the next request");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_that_are_asked_come_first_and_the_order_of_the_list_decides_nothing() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let turns = [
            Turn::Nothing,
            Turn::Due(later),
            Turn::Asked(9),
            Turn::Due(now),
            Turn::Nothing,
            Turn::Asked(2),
            Turn::Due(now),
        ];
        assert_eq!(in_order(turns.into_iter()), [5, 2, 3, 6, 1, 0, 4]);
    }
}
