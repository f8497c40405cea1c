//! What the gateway is told of memory, where `pm = "auto"` depends on it.

use std::time::{Duration, Instant};

use super::{Pools, Worker};
use crate::{control::ToGateway, manager::memory};

impl Pools {
    /// Tells the gateway what workers cost, and what is left for more.
    pub(super) fn measure(&mut self, now: Instant) {
        let left = memory::left();
        let killed = memory::killed();
        // Whatever was measured: it was too much.
        let is_short = left.pressure || killed > std::mem::replace(&mut self.killed, killed);
        for pool in &self.list {
            let Some(guess) = pool.auto else { continue };
            // The oldest have grown as far as others will.
            let pids = pool.workers.iter().filter_map(|worker| worker.pid);
            let is_grown = |worker: &Worker| now.saturating_duration_since(worker.since) >= GROWN;
            let (worker_cost, available) = memory::reckon(
                memory::costs(pids),
                pool.workers.first().is_some_and(is_grown),
                guess,
                pool.workers.len(),
                left.available,
            );
            self.news.push(ToGateway::Memory {
                pool: pool.id,
                worker_cost,
                available,
                pressure: is_short,
            });
        }
    }
}

/// A worker has shown what it needs after that.
const GROWN: Duration = Duration::from_secs(5);
