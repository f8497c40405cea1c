//! What the operator's window shows of the gateway, and how it reaches the manager. See [`crate::window`].

mod servers;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio::sync::oneshot;
use weir_config::{Protocol, Runtime};

use super::{Gateway, dispatch::Manager, dispatch::PoolHandle, figures, scoreboard::WorkerStatus};
use crate::{
    control::{Action, ToManager},
    log_text,
    metrics::Durations,
    window::{Task, Window},
};

/// What operators have asked the manager for and wait for.
pub(super) struct Asked {
    manager: Manager,
    next: AtomicU32,
    waiting: Mutex<HashMap<u32, oneshot::Sender<Result<String, String>>>>,
}

/// A gateway, as an operator sees it.
pub(super) struct View(pub(super) Arc<Gateway>);

impl Asked {
    pub(super) fn new(manager: Manager) -> Asked {
        Asked {
            manager,
            next: AtomicU32::new(1),
            waiting: Mutex::default(),
        }
    }

    fn ask(&self, action: Action) -> oneshot::Receiver<Result<String, String>> {
        let id = self.next.fetch_add(1, Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiting().insert(id, sender);
        (self.manager.0)(ToManager::Act { id, action });
        receiver
    }

    /// The manager has said what became of it.
    pub(super) fn done(&self, id: u32, done: bool, text: String) {
        if let Some(sender) = self.waiting().remove(&id) {
            // Whoever asked may have gone meanwhile.
            let _ = sender.send(if done { Ok(text) } else { Err(text) });
        }
    }

    fn waiting(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<u32, oneshot::Sender<Result<String, String>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window for View {
    fn status(&self) -> Value {
        let gateway = &self.0;
        let pools = (gateway.pools.iter().enumerate())
            .map(|(index, pool)| pool_status(gateway, index, pool));
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "manager_pid": weir_sys::process::parent(),
            "gateway_pid": std::process::id(),
            "state": if gateway.drain.has_started() { "draining" } else { "serving" },
            "uptime": seconds_since(gateway.started),
            "connections": {
                "now": gateway.census.count(),
                "max": gateway.config.server.max_connections,
                "idle": gateway.census.idle(),
            },
            "spool": {
                "bytes": gateway.spool_space.used(),
                "max": gateway.config.server.max_spool,
            },
            "listeners": self.listeners(),
            "sites": self.sites(),
            "pools": pools.collect::<Vec<_>>(),
        })
    }

    fn metrics(&self) -> Vec<u8> {
        figures::page(&self.0).text()
    }

    fn ready(&self) -> Result<(), String> {
        self.0.readiness()
    }

    fn act(&self, action: Action) -> Task<Result<String, String>> {
        let gateway = self.0.clone();
        Box::pin(async move {
            let answer = gateway.asked.ask(action).await;
            // Who is told that another configuration serves is not to meet this one once more. The window itself is
            // the last to close.
            while gateway.drain.has_started() && gateway.listening.load(Relaxed) > 1 {
                tokio::time::sleep(LOOK).await;
            }
            answer.unwrap_or_else(|_| Err("this gateway ended before it was done".into()))
        })
    }

    fn closing(&self) -> Task<()> {
        let gateway = self.0.clone();
        Box::pin(async move { gateway.window_ends.started().await })
    }
}

impl View {
    fn sites(&self) -> Vec<Value> {
        let gateway = &self.0;
        let site = |(index, site): (usize, &weir_config::Site)| {
            let counts = gateway.tally.site(Some(index));
            let rates = gateway.history.site(gateway, Some(index));
            let [_, done, redirected, refused, failed] = counts.statuses;
            json!({
                "name": site.name,
                "requests": counts.requests(),
                "statuses": { "2xx": done, "3xx": redirected, "4xx": refused, "5xx": failed },
                "bytes_in": counts.bytes_in,
                "bytes_out": counts.bytes_out,
                "rates": { "requests": rates.requests, "failures": rates.failures },
                "times": {
                    "queue": durations(&counts.times.wait),
                    "service": durations(&counts.times.service),
                    "total": durations(&counts.times.total),
                },
            })
        };
        gateway.config.sites.iter().enumerate().map(site).collect()
    }

    fn listeners(&self) -> Vec<Value> {
        let config = &self.0.config;
        let serves = |index: usize| -> Vec<&str> {
            let sites = config
                .sites
                .iter()
                .filter(|site| site.listen.contains(&index));
            sites.map(|site| site.name.as_str()).collect()
        };
        let listener = |(index, listener): (usize, &weir_config::Listener)| {
            let (protocol, serves) = match &listener.protocol {
                Protocol::Http => ("http", serves(index)),
                Protocol::AgentCheck(agent) => {
                    let pool = config.pools.get(agent.pool.0);
                    (
                        "agent-check",
                        pool.map(|pool| pool.name.as_str()).into_iter().collect(),
                    )
                }
                Protocol::FastCgi(fastcgi) => {
                    let pool = config.pools.get(fastcgi.pool.0);
                    (
                        "fastcgi",
                        pool.map(|pool| pool.name.as_str()).into_iter().collect(),
                    )
                }
            };
            json!({
                "name": listener.name,
                "address": listener.address.to_string(),
                "protocol": protocol,
                "serves": serves,
            })
        };
        config.listeners.iter().enumerate().map(listener).collect()
    }
}

fn pool_status(gateway: &Gateway, index: usize, pool: &PoolHandle) -> Value {
    let (stats, status) = (pool.stats(), pool.status());
    let figures = pool.scaling();
    let counts = gateway.tally.pool(pool.id);
    let rates = gateway.history.pool(gateway, index);
    let queue = &pool.settings.queue;
    let decision = |(time, what): (SystemTime, String)| {
        let mut text = Vec::new();
        log_text::put_time_utc(time, &mut text);
        json!({ "time": String::from_utf8_lossy(&text), "what": what })
    };
    json!({
        "name": status.name,
        "runtime": match &pool.settings.runtime {
            Runtime::Php(_) => "php",
            Runtime::Command(_) => "command",
            Runtime::Servers(_) => "servers",
        },
        "pm": status.pm,
        "state": if pool.is_lost() { "down" } else { "up" },
        "generation": pool.generation(),
        "workers": {
            "busy": status.active,
            "idle": status.idle,
            "starting": figures.as_ref().map_or(0, |figures| figures.starting),
            "max": pool.settings.workers().map_or(queue.maxconn, |workers| workers.max_children),
            // What `pm = "auto"` allows now; with servers, what these can bear.
            "limit": figures.as_ref().map_or_else(|| pool.limit(), |figures| figures.limit),
            "most_busy": status.max_active,
            "max_children_reached": status.max_children_reached,
            "crashed": figures.as_ref().map_or(0, |figures| figures.crashed),
            "short_of_memory": figures.as_ref().is_some_and(|figures| figures.pressure),
        },
        "queue": {
            "waiting": stats.waiting,
            "max": queue.max_queue,
            "timeout": queue.timeout.as_secs_f64(),
            "most_waiting": stats.max_waiting,
            "longest_wait": seconds(stats.longest_wait.0),
            "seconds": seconds(pool.waiting_time()),
            "seconds_per_second": rates.waiting,
        },
        "requests": {
            "taken": stats.admitted,
            "finished": stats.finished,
            "refused": stats.shed(),
            "refused_queue_full": stats.shed_queue_full,
            "refused_queue_timeout": stats.shed_queue_timeout,
            "refused_no_worker": stats.shed_no_worker,
            "left": stats.left,
            "lost": stats.lost,
            "retried": stats.readmitted,
            "cancelled": pool.cancelled(),
            "slow": status.slow_requests,
            "left_running": counts.left_running,
        },
        "rates": {
            "taken": rates.asked,
            "finished": rates.finished,
            "refused": rates.shed,
        },
        "times": {
            "queue": durations(&counts.times.wait),
            "service": durations(&counts.times.service),
            "total": durations(&counts.times.total),
        },
        "decisions": pool.decisions().into_iter().map(decision).collect::<Vec<_>>(),
        "servers": servers::servers(pool),
        "processes": status.workers.iter().map(process).collect::<Vec<_>>(),
    })
}

/// Since the gateway's start; quantiles by the histogram's bounds.
fn durations(durations: &Durations) -> Value {
    let quantile = |share| durations.quantile(share).map(seconds);
    json!({
        "count": durations.count(),
        "sum": seconds(durations.sum),
        "p50": quantile(0.5),
        "p95": quantile(0.95),
        "p99": quantile(0.99),
    })
}

fn process(worker: &WorkerStatus) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let request = &worker.request;
    json!({
        "pid": worker.pid,
        "state": worker.stage.name(),
        "uptime": seconds_since(worker.started),
        "requests": worker.requests,
        "time": request.duration.as_secs_f64(),
        "method": text(&request.method),
        // Without its query, which may hold what is nobody's business.
        "uri": text(&request.uri),
        "script": text(&request.script),
        "cpu_percent": request.cpu,
        "memory": request.memory,
    })
}

/// How often a draining gateway looks whether its listeners are closed.
const LOOK: Duration = Duration::from_millis(1);

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn seconds_since(time: SystemTime) -> f64 {
    time.elapsed().unwrap_or_default().as_secs_f64()
}
