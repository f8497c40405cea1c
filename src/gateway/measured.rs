//! What processes take, as the manager measures it: it may read of them what the gateway may not, and from a chroot
//! cannot.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use super::dispatch::Manager;
use crate::clock;
use crate::control::{ManagerCounts, OldGeneration, ProcessUse, ToManager};

/// What was told last.
#[derive(Debug, Default)]
pub(super) struct Measured {
    last: Mutex<Uses>,
    told: Notify,
}

/// What processes take.
#[derive(Debug, Clone, Default)]
pub(super) struct Uses {
    /// By index into the configuration's pools; only those whose workers weir runs.
    pub(super) pools: BTreeMap<u16, PoolUse>,
    pub(super) manager: ProcessUse,
    pub(super) gateway: ProcessUse,
    pub(super) counts: ManagerCounts,
    /// Configurations that were replaced and finish what they began.
    pub(super) old: Vec<OldGeneration>,
    /// Those that the manager tells of before it says that this was all.
    coming: Vec<OldGeneration>,
    pub(super) last_reload: Option<LastReload>,
    /// When the manager was asked last, and has answered ([`clock::precise`]); 0: never.
    asked: u64,
    pub(super) told: u64,
    /// Since when it has been asked and has not answered ([`clock::precise`]); 0: it has.
    unanswered: u64,
}

/// What came of the last reload.
#[derive(Debug, Clone)]
pub(super) struct LastReload {
    pub(super) at: Instant,
    pub(super) done: bool,
    pub(super) text: String,
}

/// What a pool's processes take.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PoolUse {
    pub(super) all: ProcessUse,
    /// Memory of a worker, the mean of some, bytes; 0: not known.
    pub(super) worker_memory: u64,
}

impl Measured {
    /// Asks the manager where it was not asked just now, and waits for its answer, but not for long: what was told before
    /// is better than no answer.
    pub(super) async fn refresh(&self, manager: &Manager) {
        let mut told = std::pin::pin!(self.told.notified());
        told.as_mut().enable();
        {
            let mut last = self.last();
            let now = clock::precise();
            if last.told > 0 && now < last.told + FRESH {
                return;
            }
            if last.asked == 0 || now >= last.asked + FRESH {
                last.asked = now;
                if last.unanswered == 0 {
                    last.unanswered = now;
                }
                (manager.0)(ToManager::Measure);
            }
        }
        // A manager that is only busy answers within that time, so that one that hangs can be told from it.
        let patience = match self.silent() {
            None => SILENCE,
            Some(_) => PATIENCE,
        };
        let _ = tokio::time::timeout(patience, told).await;
    }

    /// The manager tells of a pool.
    pub(super) fn pool(&self, pool: u16, taken: PoolUse) {
        self.last().pools.insert(pool, taken);
    }

    /// The manager tells of a configuration that finishes.
    pub(super) fn old_generation(&self, old: OldGeneration) {
        let mut last = self.last();
        // There cannot be more (`max_old_generations`).
        if last.coming.len() < MOST_OLD {
            last.coming.push(old);
        }
    }

    /// The manager tells of the last reload.
    pub(super) fn last_reload(&self, ago: u64, done: bool, text: String) {
        let now = Instant::now();
        let at = now.checked_sub(Duration::from_millis(ago)).unwrap_or(now);
        self.last().last_reload = Some(LastReload { at, done, text });
    }

    /// The manager tells of weir's own processes, and that this was all.
    pub(super) fn own(&self, manager: ProcessUse, gateway: ProcessUse, counts: ManagerCounts) {
        {
            let mut last = self.last();
            last.manager = manager;
            last.gateway = gateway;
            last.counts = counts;
            last.old = std::mem::take(&mut last.coming);
            last.told = clock::precise();
            last.unanswered = 0;
        }
        self.told.notify_waiters();
    }

    /// What is known; none before the manager has told anything.
    pub(super) fn uses(&self) -> Option<Uses> {
        let last = self.last();
        (last.told > 0).then(|| last.clone())
    }

    /// For how long the manager has owed an answer; none: it has answered, or not for long enough to be a sign.
    pub(super) fn silent(&self) -> Option<Duration> {
        let since = self.last().unanswered;
        let silent = Duration::from_micros(clock::precise().saturating_sub(since));
        (since > 0 && silent + SLACK >= SILENCE).then_some(silent)
    }

    fn last(&self) -> MutexGuard<'_, Uses> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Configurations that finish, at most.
const MOST_OLD: usize = 1_100;

/// What was told so lately is told again, µs.
const FRESH: u64 = 500_000;

/// How long somebody who asks for the status waits for a manager that is known to hang.
const PATIENCE: Duration = Duration::from_millis(20);

/// A manager that has not answered for so long hangs or is stopped.
const SILENCE: Duration = Duration::from_millis(1500);

/// Timers may be early by that much.
const SLACK: Duration = Duration::from_millis(5);
