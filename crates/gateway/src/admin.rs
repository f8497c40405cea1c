//! The gateway's data in the admin interface, and an operator's requests to the manager. See
//! [`weir_interfaces::admin`].

pub(crate) mod agent_check;
pub(crate) mod certificates;
pub(crate) mod fpm_status;
pub(crate) mod metrics;
pub(crate) mod programs;
pub(crate) mod readiness;
mod serialized;
mod servers;

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use weir_config::{PoolId, Protocol, Runtime};
use weir_control::{Action, ManagerReport};
use weir_interfaces::admin::{AdminData, Task};
use weir_observe::{
    history::SHED_REASONS,
    kernel_queues::{KernelView, ListenerQueue},
    log_sink, log_text,
    pool_status::{PoolStatus, WorkerStatus},
};
use weir_pool::Stats;
use weir_semantics::coding::Coding;

use crate::{
    Gateway,
    answers::{cache::show, compression::CodingCounts},
    dispatch::{AskedBy, PoolHandle, Script},
};
use serialized::Serialized;

/// A gateway as an operator sees it.
pub(super) struct View(pub(super) &'static Gateway);

impl AdminData for View {
    fn refresh(&self) -> Task<()> {
        let gateway = self.0;
        Box::pin(async move { gateway.reports.refresh(&gateway.manager).await })
    }

    fn pools(&self) -> Vec<String> {
        let pools = self.0.pools.iter();
        pools.map(|pool| pool.settings.name.clone()).collect()
    }

    fn status(&self, only: Option<&str>) -> Option<Value> {
        let gateway = &self.0;
        let (uses, view) = (gateway.reports.latest(), gateway.look_at_kernel_queues());
        let mut logs = log_sink::health();
        logs.extend(uses.iter().flat_map(|uses| uses.logs.clone()));
        let serialized = Serialized::of(gateway.config);
        let pools: Vec<Value> = (gateway.pools.iter().enumerate())
            .filter(|(_, pool)| only.is_none_or(|only| pool.settings.name == only))
            .map(|(index, pool)| {
                let mut shown = pool_status(gateway, index, pool, uses.as_ref());
                if let Some(serialized) = serialized.get(index) {
                    shown["work"]["serialized"] = serialized.everywhere().into();
                    shown["work"]["not_serialized"] = serialized.elsewhere().into();
                }
                shown
            })
            .collect();
        if only.is_some() && pools.is_empty() {
            return None;
        }
        // Of one pool: nothing about sites, listeners and calls.
        let all = only.is_none();
        let mut status = json!({
            "version": weir_sys::version::version(),
            "manager_pid": weir_sys::process::parent(),
            "gateway_pid": std::process::id(),
            "state": if gateway.keeps_no_connections() { "draining" } else { "serving" },
            "ready": gateway.readiness().is_ok(),
            "not_ready": gateway.readiness().err(),
            "uptime": seconds_since(gateway.started),
            "connections": {
                "now": gateway.connections.count(),
                "max": gateway.config.server.max_connections,
                "idle": gateway.connections.idle(),
                "max_per_address": gateway.config.server.max_connections_per_address,
                "limit_reached": gateway.connections.at_limit(),
                "closed_for_others": gateway.connections.closed_for_others(),
            },
            "tls": gateway.tls.as_ref().map(|server| {
                let [full, resumed, failed] = server.counts.get();
                json!({ "full": full, "resumed": resumed, "failed": failed })
            }),
            "certificates": certificates::status(gateway, uses.as_ref()),
            "on_demand": certificates::demand_status(uses.as_ref()),
            "compression": self.compression(),
            "reactors": {
                "running": gateway.reactors.running(),
                "most": gateway.reactors.most(),
                "elastic": gateway.reactors.is_elastic(),
                "moved": gateway.reactors.moved(),
                "busy": gateway.reactors.busy().map(|(reactor, share, _)| {
                    json!({ "reactor": reactor, "share": share })
                }).collect::<Vec<_>>(),
            },
            // Shows that a part of weir hangs.
            "silent": {
                "manager": gateway.reports.silent().map(|time| time.as_secs_f64()),
                "reactors": gateway.pulses.silent_reactors(SILENT).into_iter().map(|(reactor, time)| {
                    json!({ "reactor": reactor, "seconds": time.as_secs_f64() })
                }).collect::<Vec<_>>(),
            },
            "logs": logs.iter().map(log_sink::Health::to_json).collect::<Vec<_>>(),
            // Requests that failed without a pool.
            "failures": gateway.failures.status(None),
            "untrusted_proxy": gateway.untrusted.status(),
            "cache": all.then(|| show::stats(gateway)),
            "spool": {
                "bytes": gateway.spool_space.used(),
                "memory": gateway.spool_space.in_memory(),
                "max": gateway.config.server.max_spool,
            },
            // Requests whose body has not arrived completely.
            "bodies": gateway.uploads.status(),
            "listeners": all.then(|| self.listeners(&view)),
            "sites": null,
            "kernel": all.then(|| view.to_json()),
            "processes": uses.as_ref().map(ManagerReport::processes),
            "programs": uses.as_ref().filter(|_| all).map(ManagerReport::programs),
            "reloads": uses.as_ref().map(ManagerReport::reloads),
            "old_generations": uses.as_ref().map(ManagerReport::old_generations),
            "oom_kills": uses.as_ref().map(|uses| uses.counts.oom_kills),
            "manager_silent": gateway.manager_silent().map(|silent| silent.as_secs_f64()),
            "egress": gateway.egress.get().filter(|_| all).map(|egress| egress.status()),
        });
        // The macro copies its values, and there may be thousands of pools.
        status["pools"] = Value::Array(pools);
        if all {
            status["sites"] = Value::Array(self.sites());
        }
        Some(status)
    }

    fn metrics(&self, only: Option<&str>) -> Option<Vec<u8>> {
        let page = match only {
            None => metrics::page(self.0),
            Some(pool) => metrics::page_of(self.0, pool)?,
        };
        Some(page.text())
    }

    fn ready(&self) -> Result<(), String> {
        self.0.readiness()
    }

    fn act(&self, action: Action) -> Task<Result<String, String>> {
        let gateway = self.0;
        Box::pin(async move {
            let answer = gateway.actions.ask(action).await;
            // After this answer another configuration serves, so a client must not reach this one again: wait until
            // the listeners are closed. The admin interface itself closes last.
            while gateway.drain.has_started() && gateway.listening.load(Relaxed) > 1 {
                tokio::time::sleep(LOOK).await;
            }
            answer.unwrap_or_else(|_| Err("this gateway ended before the command was done".into()))
        })
    }

    fn cache(&self) -> Value {
        show::stats(self.0)
    }

    fn cache_why(&self, query: &str) -> Result<Value, String> {
        show::why(self.0, query)
    }

    fn cache_purge(&self, query: &str) -> Result<Value, String> {
        show::purge(self.0, query)
    }

    fn closing(&self) -> Task<()> {
        let gateway = self.0;
        Box::pin(async move { gateway.admin_ends.started().await })
    }
}

impl View {
    /// Compressed answers since the start, by coding.
    fn compression(&self) -> Value {
        let of = |(coding, counts): (Coding, CodingCounts)| {
            let counts = json!({
                "answers": counts.answers,
                "bytes_in": counts.original,
                "bytes_out": counts.sent,
            });
            (coding.name().to_owned(), counts)
        };
        let all = self.0.compression_counts.all();
        Value::Object(all.into_iter().map(of).collect())
    }

    fn sites(&self) -> Vec<Value> {
        let gateway = &self.0;
        let site = |(index, site): (usize, &weir_config::Site)| {
            let counts = gateway.tally.site(Some(index));
            let rates = gateway.history.site(Some(index));
            let [_, done, redirected, refused, failed] = counts.statuses;
            json!({
                "name": site.name,
                "requests": counts.requests(),
                "statuses": { "2xx": done, "3xx": redirected, "4xx": refused, "5xx": failed },
                "rate_limited": counts.rate_limited,
                "bytes_in": counts.bytes_in,
                "bytes_out": counts.bytes_out,
                "rates": { "requests": rates.requests, "failures": rates.failures },
                "times": counts.times.to_json(),
                "last_minute": { "times": gateway.history.site_minute(index).to_json() },
            })
        };
        gateway.config.sites.iter().enumerate().map(site).collect()
    }

    fn listeners(&self, view: &KernelView) -> Vec<Value> {
        let config = &self.0.config;
        let serves = |index: usize| -> Vec<&str> {
            let sites = config
                .sites
                .iter()
                .filter(|site| site.listen.contains(&index));
            sites.map(|site| site.name.as_str()).collect()
        };
        let of_pool = |pool: &PoolId| -> Vec<&str> {
            let pool = config.pools.get(pool.0);
            pool.map(|pool| pool.name.as_str()).into_iter().collect()
        };
        let listener = |(index, listener): (usize, &weir_config::Listener)| {
            let (protocol, serves) = match &listener.protocol {
                Protocol::Http => ("http", serves(index)),
                Protocol::AgentCheck(agent) => ("agent-check", of_pool(&agent.pool)),
                Protocol::FastCgi(fastcgi) => ("fastcgi", of_pool(&fastcgi.pool)),
            };
            let counts = self.0.connections.of_listener(index);
            json!({
                "name": listener.name,
                "address": listener.address.to_string(),
                "protocol": protocol,
                "serves": serves,
                "accepted": counts.accepted,
                "refused": counts.per_address + counts.not_allowed,
                "datagrams_dropped": self.0.quic.dropped(index).map(|kernel| kernel + counts.datagrams),
                "queue": view.listeners.get(index).map(ListenerQueue::to_json),
            })
        };
        config.listeners.iter().enumerate().map(listener).collect()
    }
}

fn pool_status(
    gateway: &Gateway,
    index: usize,
    pool: &PoolHandle,
    uses: Option<&ManagerReport>,
) -> Value {
    let (stats, status) = (pool.stats(), pool.status(AskedBy::Nobody));
    let capacity = pool.capacity(&stats);
    let counts = gateway.tally.pool(pool.id);
    let totals = metrics::totals(pool);
    let minute = gateway.history.pool_minute(index, &totals);
    let rates = gateway.history.pool(index, &totals);
    let taken = uses.and_then(|uses| uses.pools.get(&pool.id));
    let decision = |(time, what): (SystemTime, String)| {
        let mut text = Vec::new();
        log_text::put_time_utc(time, &mut text);
        json!({ "time": String::from_utf8_lossy(&text), "what": what })
    };
    let mut shown = json!({
        "name": status.name,
        "runtime": match &pool.settings.runtime {
            Runtime::Php(_) => "php",
            Runtime::Command(_) => "command",
            Runtime::Servers(_) => "servers",
        },
        "pm": status.pm,
        "state": if pool.is_lost() { "down" } else { "up" },
        "down_because": pool.down_because(),
        "generation": pool.start_number(),
        "zygote": zygote(pool),
        "php_load": php_load(pool),
        // Over the last ten seconds: the mean number of busy workers, and its share of the maximum.
        "load": { "busy": rates.busy, "capacity": capacity, "ratio": ratio(rates.busy, capacity) },
        "rates": {
            "taken": rates.asked,
            "finished": rates.finished,
            "refused": rates.shed,
            "refused_by": by_reason(rates.shed_by.map(Into::into)),
        },
        "last_minute": {
            "taken": minute.totals.asked,
            "finished": minute.totals.finished,
            "lost": minute.totals.lost,
            "crashed": minute.totals.crashed,
            "could_not_start": minute.totals.could_not_start,
            "refused_by": by_reason(minute.totals.shed_by.map(Into::into)),
        },
        "failures": gateway.failures.status(Some(pool.id)),
        "running": running(gateway, pool),
        "memory": taken.map(|taken| json!({
            "all": taken.all.memory,
            "worker": taken.worker_memory,
        })),
        "cpu": taken.map(|taken| seconds(taken.all.cpu)),
        "crashing": pool.crashing().iter().map(|script| json!({
            "path": script.path,
            "script": script.script,
            "crashes": script.crashes,
            "refused": script.refused,
            "tried_in": script.seconds,
        })).collect::<Vec<_>>(),
        "decisions": pool.decisions().into_iter().map(decision).collect::<Vec<_>>(),
        "servers": servers::servers(pool),
        "unknown_names": servers::unknown_names(pool),
        "request_terminate_timeout": pool.settings.request_terminate_timeout.as_secs_f64(),
        "processes": status.workers.iter().map(WorkerStatus::to_json).collect::<Vec<_>>(),
    });
    // The macro would copy them.
    shown["workers"] = workers(pool, &stats, &status);
    shown["queue"] = queue(pool, &stats, rates.waiting);
    shown["work"] = work(gateway, pool, (rates.computed, rates.busy), &status);
    shown["requests"] = requests(pool, &stats, status.slow_requests, counts.left_running);
    shown["times"] = counts.times.to_json();
    shown["last_minute"]["times"] = minute.times.to_json();
    shown
}

/// What the workers of a pool spend their time with. `processors`: how many they use, `busy`: how many of them are busy.
fn work(
    gateway: &Gateway,
    pool: &PoolHandle,
    (processors, busy): (f64, f64),
    status: &PoolStatus,
) -> Value {
    let name = &pool.settings.name;
    let places = pool.places(&status.workers);
    let calls = gateway.egress.get();
    let calls = calls.map_or_else(Vec::new, |egress| egress.running_calls(name));
    json!({
        // Over the last ten seconds, of the time of busy workers; null: too little to tell, or others run the workers.
        "computing": (busy >= LITTLE && pool.settings.workers().is_some()).then(|| (processors / busy).min(1.0)),
        "processors": processors,
        "usable_processors": pool.usable_processors(),
        // The busy share of all processors of the machine.
        "machine": gateway.machine.busy(),
        // Where scripts are that run for longer than `request_slowlog_timeout`.
        "slow_at": places.into_iter().map(|place| json!({
            "function": place.function,
            "at": place.at,
            "count": place.count,
        })).collect::<Vec<_>>(),
        "calls": calls.into_iter().map(|(host, count)| json!({
            "host": host,
            "count": count,
        })).collect::<Vec<_>>(),
        "request_slowlog_timeout": pool.settings.php().map(|php| php.slowlog_timeout.as_secs_f64()),
    })
}

/// The process that the workers of a pool are forked from, or why there is none.
fn zygote(pool: &PoolHandle) -> Value {
    match pool.zygote() {
        (0, why) if why.is_empty() => Value::Null,
        (0, why) => json!({ "pid": null, "declined": why }),
        (pid, _) => json!({ "pid": pid, "declined": null }),
    }
}

/// Who loads PHP for a pool.
fn php_load(pool: &PoolHandle) -> Value {
    match pool.load() {
        (0, why) if why.is_empty() => Value::Null,
        (0, why) => json!({ "template": null, "own": why }),
        (pid, _) => json!({ "template": pid, "own": null }),
    }
}

/// The workers of a pool.
fn workers(pool: &PoolHandle, stats: &Stats, status: &PoolStatus) -> Value {
    let figures = pool.scaling();
    json!({
        "busy": stats.busy,
        "idle": stats.free,
        "starting": figures.as_ref().map_or(0, |figures| figures.starting),
        "max": pool.max_children().unwrap_or_else(|| pool.maxconn()),
        // The limit that `pm = "auto"` allows now.
        "limit": figures.as_ref().map_or_else(|| pool.limit(), |figures| figures.limit),
        "running_limit": pool.running_limit(stats),
        "leaving": stats.leaving,
        // Until the next reload.
        "set_by_operator": pool.is_set(),
        "most_busy": stats.max_busy,
        "max_children_reached": status.max_children_reached,
        "crashed": figures.as_ref().map_or(0, |figures| figures.crashed),
        "started": figures.as_ref().map_or(0, |figures| figures.spawned),
        "could_not_start": figures.as_ref().map_or(0, |figures| figures.failed),
        "beyond_for_own_calls": pool.self_calls().0,
        "short_of_memory": figures.as_ref().is_some_and(|figures| figures.pressure),
    })
}

/// The queue of a pool. `seconds_per_second`: the time that requests waited in one second.
fn queue(pool: &PoolHandle, stats: &Stats, seconds_per_second: f64) -> Value {
    let settings = &pool.settings.queue;
    json!({
        "waiting": stats.waiting,
        "waiting_own_calls": pool.self_calls_waiting(),
        "waiting_for_turns": pool.waiting_for_turns(),
        "session_scripts": pool.session_scripts(),
        "max": settings.max_queue,
        "timeout": settings.timeout.as_secs_f64(),
        "most_waiting": stats.max_waiting,
        "longest_wait": seconds(stats.longest_wait.0),
        "oldest_wait": seconds(stats.oldest_wait.0),
        "expected_wait": seconds(stats.expected_wait.0),
        "longest_admitted_wait": seconds(stats.longest_admitted_wait.0),
        "service_estimate": seconds(stats.service_estimate.0),
        "patience": stats.patience.map(|patience| seconds(patience.0)),
        "overloaded": stats.overloaded,
        "overloads": stats.overloads,
        "stale": stats.stale,
        "seconds": seconds(stats.queue_time.0),
        "seconds_per_second": seconds_per_second,
    })
}

/// Numbers of requests since the gateway's start.
fn requests(pool: &PoolHandle, stats: &Stats, slow: u64, left_running: u64) -> Value {
    let mut refused_by = by_reason(metrics::shed(stats).map(Into::into));
    refused_by.insert("crashing".to_owned(), pool.refused_crashing().into());
    json!({
        "taken": stats.admitted,
        "finished": stats.finished,
        "refused": stats.shed() + pool.refused_crashing(),
        "refused_crashing": pool.refused_crashing(),
        "refused_self_call": pool.self_calls().1,
        "refused_queue_full": stats.shed_queue_full,
        "refused_queue_timeout": stats.shed_queue_timeout,
        "refused_no_worker": stats.shed_no_worker,
        "refused_by": refused_by,
        "left": stats.left + stats.abandoned,
        "lost": stats.lost,
        "retried": stats.readmitted,
        "cancelled": pool.cancelled(),
        "slow": slow,
        "left_running": left_running,
    })
}

/// The share of `busy` in `capacity`.
pub(super) fn ratio(busy: f64, capacity: usize) -> f64 {
    match capacity {
        0 => 0.0,
        capacity => (busy / capacity as f64).min(1.0),
    }
}

/// `values` with the refusal reasons as keys, in their order.
fn by_reason(values: [Value; SHED_REASONS.len()]) -> serde_json::Map<String, Value> {
    let reasons = SHED_REASONS.map(str::to_owned);
    reasons.into_iter().zip(values).collect()
}

/// What the workers do now, and how long all of them have been stuck.
fn running(gateway: &Gateway, pool: &PoolHandle) -> Value {
    let limit = gateway.config.server.ready_stalled;
    let running = pool.running();
    let script = |script: &Script| {
        json!({
            "script": script.name,
            "count": script.count,
            "oldest": script.oldest.as_secs_f64(),
        })
    };
    json!({
        "count": running.count,
        "oldest": running.oldest.as_ref().map(WorkerStatus::to_json),
        "scripts": running.scripts.iter().map(script).collect::<Vec<_>>(),
        "stalled": pool.stalled().map(|time| time.as_secs_f64()),
        // After this time weir counts as not ready; 0: never.
        "ready_stalled": limit.as_secs_f64(),
    })
}

/// Longer than the machine's load delays a thread: a reactor that has not moved for so long is shown.
const SILENT: Duration = Duration::from_secs(1);

/// Below this number of busy workers on average, the share of computing means nothing.
const LITTLE: f64 = 0.05;

/// How often a draining gateway checks whether its listeners are closed.
const LOOK: Duration = Duration::from_millis(1);

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn seconds_since(time: SystemTime) -> f64 {
    time.elapsed().unwrap_or_default().as_secs_f64()
}
