//! What the manager reports for the operator's window: memory and CPU use of processes, its logs, and reloads. The
//! manager may read these; the gateway may not, and cannot from a chroot.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use weir_control::{ManagerCounts, OldGeneration, ProcessUse, ToManager};
use weir_observe::clock;
use weir_observe::log_sink::{self, Health};

use super::dispatch::Manager;

/// Asks the manager for reports, and keeps the last one.
#[derive(Debug, Default)]
pub(super) struct ManagerReports {
    last: Mutex<ManagerReport>,
    /// A report is complete.
    completed: Notify,
}

/// What the manager has reported.
#[derive(Debug, Clone, Default)]
pub(super) struct ManagerReport {
    /// By index into the configuration's pools; only pools whose workers weir runs.
    pub(super) pools: BTreeMap<u16, PoolUse>,
    pub(super) manager: ProcessUse,
    pub(super) gateway: ProcessUse,
    pub(super) counts: ManagerCounts,
    /// Earlier configurations that are finishing.
    pub(super) old: Vec<OldGeneration>,
    /// The state of the logs that the manager writes.
    pub(super) logs: Vec<Health>,
    /// Collects the earlier configurations and the logs until the manager says that the report is complete.
    partial: (Vec<OldGeneration>, Vec<Health>),
    pub(super) last_reload: Option<LastReload>,
    /// When the manager was last asked, and when its answer was complete ([`clock::precise`]); 0: never.
    asked_at: u64,
    pub(super) completed_at: u64,
    /// Since when an answer is missing ([`clock::precise`]); 0: the manager has answered.
    unanswered_since: u64,
}

/// Result of the last reload.
#[derive(Debug, Clone)]
pub(super) struct LastReload {
    pub(super) at: Instant,
    pub(super) done: bool,
    pub(super) text: String,
}

/// What a pool's processes use.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PoolUse {
    pub(super) all: ProcessUse,
    /// Memory of a worker, the mean of some workers, bytes; 0: not known.
    pub(super) worker_memory: u64,
}

impl ManagerReports {
    /// Asks the manager, unless it was asked a moment ago, and waits for its answer, but not for long: old values are
    /// better than no answer.
    pub(super) async fn refresh(&self, manager: &Manager) {
        let mut completed = std::pin::pin!(self.completed.notified());
        completed.as_mut().enable();
        {
            let mut last = self.last();
            let now = clock::precise();
            if last.completed_at > 0 && now < last.completed_at + FRESH {
                return;
            }
            if last.asked_at == 0 || now >= last.asked_at + FRESH {
                last.asked_at = now;
                if last.unanswered_since == 0 {
                    last.unanswered_since = now;
                }
                (manager.0)(ToManager::Measure);
            }
        }
        // A manager that is only busy answers within this time. So one that hangs can be recognized.
        let patience = match self.silent() {
            None => SILENCE,
            Some(_) => PATIENCE,
        };
        let _ = tokio::time::timeout(patience, completed).await;
    }

    /// The manager reports a pool.
    pub(super) fn pool(&self, pool: u16, taken: PoolUse) {
        self.last().pools.insert(pool, taken);
    }

    /// The manager reports an earlier configuration that is finishing.
    pub(super) fn old_generation(&self, old: OldGeneration) {
        let mut last = self.last();
        // There cannot be more (`max_old_generations`).
        if last.partial.0.len() < MOST_OLD {
            last.partial.0.push(old);
        }
    }

    /// The manager tells of a log of its own.
    pub(super) fn log(&self, mut log: Health) {
        // Its name says whose lines they are, but for the one that each process has.
        if log.name == log_sink::ERROR_LOG {
            log.name.push_str(" of the manager");
        }
        let mut last = self.last();
        if last.partial.1.len() < MOST_LOGS {
            last.partial.1.push(log);
        }
    }

    /// The manager reports the last reload.
    pub(super) fn last_reload(&self, ago: u64, done: bool, text: String) {
        let now = Instant::now();
        let at = now.checked_sub(Duration::from_millis(ago)).unwrap_or(now);
        self.last().last_reload = Some(LastReload { at, done, text });
    }

    /// The manager reports its own processes; the report is complete with this.
    pub(super) fn own(&self, manager: ProcessUse, gateway: ProcessUse, counts: ManagerCounts) {
        {
            let mut last = self.last();
            last.manager = manager;
            last.gateway = gateway;
            last.counts = counts;
            (last.old, last.logs) = std::mem::take(&mut last.partial);
            last.completed_at = clock::precise();
            last.unanswered_since = 0;
        }
        self.completed.notify_waiters();
    }

    /// The last report; `None` before the first one.
    pub(super) fn latest(&self) -> Option<ManagerReport> {
        let last = self.last();
        (last.completed_at > 0).then(|| last.clone())
    }

    /// How long the manager has not answered; `None` if it has, or if the time is too short to mean anything.
    pub(super) fn silent(&self) -> Option<Duration> {
        let since = self.last().unanswered_since;
        let silent = Duration::from_micros(clock::precise().saturating_sub(since));
        (since > 0 && silent + SLACK >= SILENCE).then_some(silent)
    }

    fn last(&self) -> MutexGuard<'_, ManagerReport> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum number of earlier configurations.
const MOST_OLD: usize = 1_100;

/// Maximum number of logs of the manager: two of each pool, and the error log.
const MOST_LOGS: usize = 2_001;

/// A report that is newer than this is used again, µs.
const FRESH: u64 = 500_000;

/// How long a status request waits for a manager that is known to hang.
const PATIENCE: Duration = Duration::from_millis(20);

/// A manager that has not answered for this long hangs or is stopped.
const SILENCE: Duration = Duration::from_millis(1500);

/// Timers may fire early by this much.
const SLACK: Duration = Duration::from_millis(5);
