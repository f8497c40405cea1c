//! What the manager reports for the admin interface: memory and CPU use of processes, its logs, and reloads. The
//! manager may read these; the gateway may not, and cannot from a chroot.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use tokio::sync::Notify;
use weir_observe::{
    clock,
    log_sink::{self, Health},
    metrics::{Metric, Page},
};

use crate::{
    CertificateOrder, CertificateOrders, DemandReport, ManagerCounts, ManagerHandle, OldGeneration,
    ProcessUse, ProgramReports, ToManager,
};

/// Asks the manager for reports, and keeps the last one.
#[derive(Debug, Default)]
pub struct ManagerReports {
    last: Mutex<ManagerReport>,
    /// A report is complete.
    completed: Notify,
}

/// What the manager has reported.
#[derive(Debug, Clone, Default)]
pub struct ManagerReport {
    /// By index into the configuration's pools; only pools whose workers weir runs.
    pub pools: BTreeMap<u16, PoolUse>,
    pub manager: ProcessUse,
    pub gateway: ProcessUse,
    pub counts: ManagerCounts,
    /// Earlier configurations that are finishing.
    pub old: Vec<OldGeneration>,
    /// The state of the logs that the manager writes.
    pub logs: Vec<Health>,
    /// The state of orders for certificates.
    pub orders: Arc<[CertificateOrder]>,
    /// The state of certificates on demand; `None`: there are none.
    pub demand: Option<DemandReport>,
    /// Programs.
    pub programs: Arc<ProgramReports>,
    /// Collects the earlier configurations and the logs until the manager says that the report is complete.
    partial: (Vec<OldGeneration>, Vec<Health>),
    pub last_reload: Option<LastReload>,
    /// When the manager was last asked, and when its answer was complete ([`clock::precise`]); 0: never.
    asked_at: u64,
    pub completed_at: u64,
    /// Since when an answer is missing ([`clock::precise`]); 0: the manager has answered.
    unanswered_since: u64,
}

/// Result of the last reload.
#[derive(Debug, Clone)]
pub struct LastReload {
    pub at: Instant,
    pub done: bool,
    pub text: String,
}

/// What a pool's processes use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolUse {
    pub all: ProcessUse,
    /// Memory of a worker, the mean of some workers, bytes; 0: not known.
    pub worker_memory: u64,
}

/// Where a script was when it had run for `request_slowlog_timeout`. The worker reports the place, so it may be wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlowPlace {
    /// The pool's name.
    pub pool: String,
    pub pid: u32,
    /// The innermost function, with its class if it is a method of PHP's own.
    pub function: String,
    /// File and line.
    pub at: String,
}

impl ManagerReports {
    /// Asks the manager, unless it was asked a moment ago, and waits for its answer, but not for long: old values are
    /// better than no answer.
    pub async fn refresh(&self, manager: &ManagerHandle) {
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
                manager.tell(ToManager::Measure);
            }
        }
        // A busy manager answers within this time. If it does not answer, it hangs.
        let patience = match self.silent() {
            None => SILENCE,
            Some(_) => PATIENCE,
        };
        let _ = tokio::time::timeout(patience, completed).await;
    }

    /// The manager reports pools.
    pub fn pools(&self, taken: Vec<(u16, PoolUse)>) {
        self.last().pools.extend(taken);
    }

    /// The manager reports an earlier configuration that is finishing.
    pub fn old_generation(&self, old: OldGeneration) {
        let mut last = self.last();
        // `max_old_generations` does not allow more.
        if last.partial.0.len() < MOST_OLD {
            last.partial.0.push(old);
        }
    }

    /// The manager reports the state of one of its logs.
    pub fn log(&self, mut log: Health) {
        // The name identifies the log, except for the error log, which each process has.
        if log.name == log_sink::ERROR_LOG {
            log.name.push_str(" of the manager");
        }
        let mut last = self.last();
        if last.partial.1.len() < MOST_LOGS {
            last.partial.1.push(log);
        }
    }

    /// The manager reports what becomes of certificates.
    pub fn orders(&self, orders: CertificateOrders) {
        let mut last = self.last();
        last.orders = orders.list.into();
        last.demand = orders.demand;
    }

    /// The manager reports its programs.
    pub fn set_programs(&self, programs: ProgramReports) {
        self.last().programs = programs.into();
    }

    /// The manager reports the last reload.
    pub fn last_reload(&self, ago: u64, done: bool, text: String) {
        let now = Instant::now();
        let at = now.checked_sub(Duration::from_millis(ago)).unwrap_or(now);
        self.last().last_reload = Some(LastReload { at, done, text });
    }

    /// The manager reports its own processes; the report is complete with this.
    pub fn own(&self, manager: ProcessUse, gateway: ProcessUse, counts: ManagerCounts) {
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
    pub fn latest(&self) -> Option<ManagerReport> {
        let last = self.last();
        (last.completed_at > 0).then(|| last.clone())
    }

    /// How long the manager has not answered; `None` if it has, or if the time is too short to mean anything.
    pub fn silent(&self) -> Option<Duration> {
        let since = self.last().unanswered_since;
        let silent = Duration::from_micros(clock::precise().saturating_sub(since));
        (since > 0 && silent + SLACK >= SILENCE).then_some(silent)
    }

    fn last(&self) -> MutexGuard<'_, ManagerReport> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ManagerReport {
    /// Adds the metrics of the manager's own counts, of its logs, and of its and the gateway's process.
    pub fn put_metrics(&self, page: &mut Page) {
        let counts = self.counts;
        for log in &self.logs {
            log.put_metrics(page);
        }
        // Certificates on demand are counted together, because there may be very many.
        for order in self.orders.iter().filter(|order| !order.on_demand) {
            let results = [("done", order.done), ("failed", order.failed)];
            for (result, count) in results {
                let labels = [order.name.as_str(), result];
                page.put(Metric::CertificateOrders, &labels, count as f64);
            }
            let failures = f64::from(order.failures);
            page.put(Metric::CertificateFailures, &[&order.name], failures);
        }
        if let Some(demand) = &self.demand {
            demand.put_metrics(page);
        }
        self.programs.put_metrics(page);
        page.put(Metric::Reloads, &["done"], counts.reloads as f64);
        page.put(Metric::Reloads, &["failed"], counts.failed_reloads as f64);
        page.put(Metric::GatewayRestarts, &[], counts.gateway_restarts as f64);
        page.put(Metric::GatewayHangs, &[], counts.gateway_hangs as f64);
        page.put(Metric::OldGenerations, &[], self.old.len() as f64);
        page.put(Metric::OomKills, &[], counts.oom_kills as f64);
        for (process, used) in [("manager", self.manager), ("gateway", self.gateway)] {
            page.put(Metric::ProcessFiles, &[process], used.files as f64);
            page.put(Metric::ProcessCpu, &[process], used.cpu as f64 / 1e6);
            page.put(Metric::ProcessMemory, &[process], used.memory as f64);
        }
    }

    /// The processes of manager and gateway, for the admin interface.
    pub fn processes(&self) -> Value {
        let process =
            |used: &ProcessUse| json!({ "cpu": used.cpu as f64 / 1e6, "memory": used.memory });
        json!({ "manager": process(&self.manager), "gateway": process(&self.gateway) })
    }

    /// The programs, for the admin interface.
    pub fn programs(&self) -> Vec<Value> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.programs.to_json(now.map_or(0, |now| now.as_secs()))
    }

    /// The reloads so far, for the admin interface.
    pub fn reloads(&self) -> Value {
        json!({
            "done": self.counts.reloads,
            "failed": self.counts.failed_reloads,
            "gateway_restarts": self.counts.gateway_restarts,
            "gateway_hangs": self.counts.gateway_hangs,
            "waiting": self.counts.reload_waits,
            "last": self.last_reload.as_ref().map(|last| json!({
                "ago": last.at.elapsed().as_secs_f64(),
                "done": last.done,
                "text": last.text,
            })),
        })
    }

    /// The earlier configurations that are finishing, for the admin interface.
    pub fn old_generations(&self) -> Vec<Value> {
        self.old.iter().map(old_generation).collect()
    }
}

impl DemandReport {
    fn put_metrics(&self, page: &mut Page) {
        let mut put = |metric, labels: &[&str], count: u64| page.put(metric, labels, count as f64);
        put(Metric::DemandCertificates, &[], self.kept);
        put(Metric::DemandCertificatesLimit, &[], self.most);
        put(Metric::DemandPending, &[], self.pending);
        for (result, count) in [
            ("allowed", self.allowed),
            ("refused", self.refused),
            ("unanswered", self.unanswered),
            ("limited", self.limited),
        ] {
            put(Metric::DemandNames, &[result], count);
        }
        for (result, count) in [("done", self.done), ("failed", self.failed)] {
            put(Metric::DemandOrders, &[result], count);
        }
        put(Metric::DemandLapsed, &[], self.lapsed);
        if self.first_end > 0 {
            put(Metric::DemandExpiry, &[], self.first_end);
        }
    }

    /// For the admin interface; `now`: seconds since 1970.
    pub fn status(&self, now: i64) -> Value {
        json!({
            "certificates": self.kept,
            "max": self.most,
            "pending": self.pending,
            "allowed": self.allowed,
            "refused": self.refused,
            "unanswered": self.unanswered,
            "limited": self.limited,
            "orders_done": self.done,
            "orders_failed": self.failed,
            "lapsed": self.lapsed,
            "first_expires_in": i64::try_from(self.first_end).ok().filter(|end| *end > 0).map(|end| end - now),
            "last_error": self.error,
        })
    }
}

fn old_generation(old: &OldGeneration) -> Value {
    let holding = &old.holding;
    let seconds = |millis: u64| millis as f64 / 1e3;
    json!({
        "generation": old.number,
        "gateway_pid": (old.gateway > 0).then_some(old.gateway),
        "finishing_for": seconds(old.since),
        "ends_in": seconds(old.left),
        "connections": holding.connections,
        "requests": holding.requests,
        "calls": holding.calls,
        "longest": (!holding.request.is_empty()).then(|| json!({
            "time": seconds(holding.longest),
            "request": holding.request,
        })),
    })
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
