//! The reports about memory for the gateway, if `pm = "auto"` needs them.

use std::time::{Duration, Instant};

use weir_control::ToGateway;

use super::{Pools, Worker};
use crate::workers::memory;

impl Pools {
    /// Tells the gateway what workers cost, and how much memory is left for more.
    pub(super) fn measure(&mut self, now: Instant) {
        let left = memory::headroom();
        let killed = memory::killed();
        // A kill shows that memory is short, even if the measurement does not.
        let is_short = left.pressure || killed > std::mem::replace(&mut self.killed, killed);
        for pool in &self.list {
            let Some(guess) = pool.auto else { continue };
            // The oldest workers have grown to the size that others will reach.
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

/// After this time a worker has shown how much it needs.
const GROWN: Duration = Duration::from_secs(5);
