//! Those who wait for a worker, and how much waiting that makes.

use std::collections::HashMap;

use weir_pool::RequestId;

use super::Waiting;
use crate::gateway::clock;

/// Where the word is sent to each request that waits; and the time that all have spent waiting, which grows by a second
/// in each second for each of them.
#[derive(Debug, Default)]
pub(super) struct WaitingRoom {
    senders: HashMap<RequestId, Waiting>,
    /// µs, up to `counted_at`.
    time: u64,
    counted_at: u64,
}

impl WaitingRoom {
    pub(super) fn insert(&mut self, request: RequestId, sender: Waiting) {
        self.count();
        self.senders.insert(request, sender);
    }

    pub(super) fn remove(&mut self, request: &RequestId) -> Option<Waiting> {
        self.count();
        self.senders.remove(request)
    }

    /// Time that requests have spent here, those included that are here now, µs.
    pub(super) fn time(&self) -> u64 {
        self.time_at(clock::now())
    }

    fn count(&mut self) {
        let now = clock::now();
        self.time = self.time_at(now);
        self.counted_at = self.counted_at.max(now);
    }

    fn time_at(&self, now: u64) -> u64 {
        let since = now.saturating_sub(self.counted_at);
        let more = since.saturating_mul(self.senders.len() as u64);
        self.time.saturating_add(more)
    }
}
