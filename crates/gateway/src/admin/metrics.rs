//! `GET /metrics`: the gateway's figures, in the rows of [`weir_observe::metrics`].
//!
//! The values are read from their places when the page is requested. A pool's lock is held only while its figures are
//! copied.

use std::{collections::HashSet, time::UNIX_EPOCH};

use weir_config::{Pm, Settings};
use weir_control::ManagerReport;
use weir_observe::{
    history::{PoolTotals, SHED_REASONS},
    log_sink,
    metrics::{Metric, Page},
};
use weir_pool::{Micros, ScalerStats, ServerState, Stats};

use super::{certificates, ratio};
use crate::{
    Gateway,
    dispatch::{AskedBy, PoolHandle},
};

/// All metrics with their current values.
pub(crate) fn page(gateway: &Gateway) -> Page {
    let mut page = Page::new();
    let uses = gateway.reports.latest();
    for (index, pool) in gateway.pools.iter().enumerate() {
        match is_used(pool) {
            true => put_pool(&mut page, gateway, (index, pool), uses.as_ref()),
            false => put_unused_pool(&mut page, pool),
        }
    }
    let sites = gateway.config.sites.iter().enumerate();
    for (index, site) in sites {
        put_site(&mut page, gateway, Some(index), &site.name);
    }
    put_site(&mut page, gateway, None, NO_SITE);
    put_gateway(&mut page, gateway);
    gateway.look_at_kernel_queues().put_metrics(&mut page);
    if let Some(egress) = gateway.egress.get() {
        egress.put_metrics(&mut page);
    }
    certificates::put_metrics(&mut page, gateway, uses.as_ref());
    if let Some(uses) = &uses {
        uses.put_metrics(&mut page);
    }
    page
}

/// All metrics of the pool with this name, and no others; `None`: there is none.
pub(crate) fn page_of(gateway: &Gateway, name: &str) -> Option<Page> {
    let mut pools = gateway.pools.iter().enumerate();
    let (index, pool) = pools.find(|(_, pool)| pool.settings.name == name)?;
    let mut page = Page::new();
    let uses = gateway.reports.latest();
    put_pool(&mut page, gateway, (index, pool), uses.as_ref());
    Some(page)
}

/// Whether somebody has asked the pool for something, or it has had a worker. A machine may have a thousand pools of which
/// few are used.
fn is_used(pool: &PoolHandle) -> bool {
    let (stats, scaling) = (pool.stats(), pool.scaling());
    let started = |figures: &ScalerStats| figures.asked + figures.spawned > 0;
    scaling.as_ref().is_none_or(started)
        || stats.admitted + stats.readmitted + pool.refused_crashing() > 0
        || shed(&stats).iter().sum::<u64>() > 0
        || pool.is_lost()
}

/// The metrics of an unused pool that alerts and dashboards need.
fn put_unused_pool(page: &mut Page, pool: &PoolHandle) {
    let stats = pool.stats();
    let name = [pool.settings.name.as_str()];
    page.put(Metric::PoolUp, &name, flag(!pool.is_lost()));
    page.put(Metric::PoolRequests, &name, 0.0);
    page.put(Metric::QueueSeconds, &name, 0.0);
    page.put(Metric::BusySeconds, &name, 0.0);
    page.put(Metric::PoolQueue, &name, stats.waiting as f64);
    page.put(Metric::PoolCapacity, &name, pool.capacity(&stats) as f64);
}

fn put_pool(
    page: &mut Page,
    gateway: &Gateway,
    (index, pool): (usize, &PoolHandle),
    uses: Option<&ManagerReport>,
) {
    let (stats, figures) = (pool.stats(), pool.scaling());
    let running_limit = pool.running_limit(&stats);
    let counts = gateway.tally.pool(pool.id);
    let queue = &pool.settings.queue;
    let name = pool.settings.name.as_str();
    let mut put = |metric, value: f64| page.put(metric, &[name], value);
    put(Metric::QueueSeconds, stats.queue_time.0 as f64 / 1e6);
    let rates = gateway.history.pool(index, &totals(pool));
    put(Metric::QueueSecondsPerSecond, rates.waiting);
    let capacity = pool.capacity(&stats);
    put(Metric::BusySeconds, stats.busy_time.0 as f64 / 1e6);
    put(Metric::PoolCapacity, capacity as f64);
    put(Metric::PoolBusyRatio, ratio(rates.busy, capacity));
    put(Metric::PoolQueue, stats.waiting as f64);
    put(Metric::PoolQueueLimit, queue.max_queue as f64);
    put(Metric::PoolQueueTimeout, queue.timeout.as_secs_f64());
    put(Metric::PoolExpectedWait, seconds(stats.expected_wait));
    put(
        Metric::PoolAdmittedWait,
        seconds(stats.longest_admitted_wait),
    );
    put(Metric::PoolServiceEstimate, seconds(stats.service_estimate));
    if let Some(patience) = stats.patience {
        put(Metric::PoolPatience, seconds(patience));
    }
    put(Metric::PoolOverloaded, flag(stats.overloaded));
    put(Metric::PoolOverloads, stats.overloads as f64);
    put(Metric::PoolRequests, stats.admitted as f64);
    put(Metric::PoolFinished, stats.finished as f64);
    put(Metric::PoolLost, stats.lost as f64);
    put(Metric::PoolRetries, stats.readmitted as f64);
    put(Metric::PoolCancelled, pool.cancelled() as f64);
    put(
        Metric::PoolSlow,
        pool.status(AskedBy::Nobody).slow_requests as f64,
    );
    put(Metric::PoolUp, flag(!pool.is_lost()));
    put(Metric::PoolMaxConn, running_limit as f64);
    put(
        Metric::PoolWorkersLimit,
        figures.map_or(running_limit, |figures| figures.limit) as f64,
    );
    if let Some(figures) = figures {
        put(Metric::PoolStarted, figures.spawned as f64);
        put(Metric::PoolStartFailed, figures.failed as f64);
        put(Metric::PoolMaxReached, figures.max_children_reached as f64);
        put(Metric::PoolGeneration, f64::from(pool.start_number()));
        let workers = pool.settings.workers();
        if workers.is_some_and(|workers| matches!(workers.pm, Pm::Auto { .. })) {
            put(Metric::PoolPressure, flag(figures.pressure));
        }
    }
    let stalled = pool.stalled().unwrap_or_default();
    put(Metric::PoolStalled, stalled.as_secs_f64());
    if let Some(thousandths) = pool.opcache_used() {
        put(Metric::PoolOpcacheUsed, f64::from(thousandths) / 1e3);
    }
    let uses = uses.and_then(|uses| uses.pools.get(&pool.id));
    if let Some(taken) = uses {
        put(Metric::PoolCpu, taken.all.cpu as f64 / 1e6);
        put(Metric::PoolMemory, taken.all.memory as f64);
        put(Metric::PoolWorkerMemory, taken.worker_memory as f64);
    }
    put_pool_labelled(page, pool, &stats, counts.left_running);
    put_servers(page, pool);
    let all = gateway.config.server.pool_histograms;
    counts.times.put_metrics(page, POOL_TIMES, all, name);
}

/// The metrics of a pool with one more label.
fn put_pool_labelled(page: &mut Page, pool: &PoolHandle, stats: &Stats, left_running: u64) {
    let name = pool.settings.name.as_str();
    let mut put = |metric, label: &str, value: f64| page.put(metric, &[name, label], value);
    for (reason, count) in SHED_REASONS.iter().zip(shed(stats)) {
        put(Metric::PoolShed, reason, count as f64);
    }
    put(Metric::PoolShed, "crashing", pool.refused_crashing() as f64);
    let left_waiting = stats.left + stats.abandoned;
    put(Metric::PoolClientLeft, "waiting", left_waiting as f64);
    put(Metric::PoolClientLeft, "running", left_running as f64);
    put(Metric::PoolWorkers, "busy", stats.busy as f64);
    put(Metric::PoolWorkers, "idle", stats.free as f64);
    put(Metric::PoolWorkers, "leaving", stats.leaving as f64);
    if let Some(figures) = pool.scaling() {
        put(Metric::PoolWorkers, "starting", figures.starting as f64);
        put(Metric::PoolEnded, "crashed", figures.crashed as f64);
        put(Metric::PoolEnded, "told", figures.withdrawn as f64);
        put(Metric::PoolEnded, "unasked", figures.ended as f64);
    }
    for (decision, count) in pool.decision_counts() {
        put(Metric::PoolDecisions, decision, count as f64);
    }
}

fn put_servers(page: &mut Page, pool: &PoolHandle) {
    let name = pool.settings.name.as_str();
    let mut told = HashSet::new();
    for server in pool.servers() {
        // Two samples with the same labels would make scrapers refuse the whole page.
        if !told.insert(server.name) {
            continue;
        }
        let labels = [name, server.name];
        let up = matches!(server.state, ServerState::Up | ServerState::SlowStart);
        page.put(Metric::ServerUp, &labels, flag(up));
        page.put(Metric::ServerBusy, &labels, server.busy as f64);
        page.put(Metric::ServerLimit, &labels, server.limit as f64);
        page.put(Metric::ServerRequests, &labels, server.requests as f64);
        page.put(Metric::ServerFailures, &labels, server.failures as f64);
        page.put(Metric::ServerDowns, &labels, server.downs as f64);
    }
}

/// The totals of a pool since the gateway's start.
pub(crate) fn totals(pool: &PoolHandle) -> PoolTotals {
    let (stats, scaling) = (pool.stats(), pool.scaling());
    PoolTotals {
        asked: stats.admitted,
        finished: stats.finished,
        lost: stats.lost,
        shed_by: shed(&stats),
        crashed: scaling.as_ref().map_or(0, |scaling| scaling.crashed),
        could_not_start: scaling.as_ref().map_or(0, |scaling| scaling.failed),
        waiting: stats.queue_time.0,
        busy: stats.busy_time.0,
        computed: pool.computed(),
    }
}

/// Requests that the pool refused since the gateway's start, in the order of [`SHED_REASONS`].
pub(crate) fn shed(stats: &Stats) -> [u64; SHED_REASONS.len()] {
    [
        stats.shed_queue_full,
        stats.shed_queue_timeout,
        stats.shed_hopeless,
        stats.shed_deadline,
        stats.shed_overload,
        stats.shed_pushed_out,
        stats.shed_no_worker,
    ]
}

fn put_site(page: &mut Page, gateway: &Gateway, index: Option<usize>, name: &str) {
    let counts = gateway.tally.site(index);
    let has_rate = any_settings(gateway, index, |settings| settings.rate.is_some());
    let has_cache = any_settings(gateway, index, |settings| settings.cache.is_some());
    counts.put_metrics(page, name, has_rate, has_cache);
    let has_pool = any_settings(gateway, index, |settings| settings.pool.is_some());
    if counts.requests() > 0 && has_pool {
        let all = gateway.config.server.site_histograms;
        counts.times.put_metrics(page, SITE_TIMES, all, name);
    }
}

fn put_gateway(page: &mut Page, gateway: &Gateway) {
    if let Some(server) = &gateway.tls {
        for (result, count) in ["full", "resumed", "failed"]
            .iter()
            .zip(server.counts.get())
        {
            page.put(Metric::TlsHandshakes, &[result], count as f64);
        }
    }
    for (coding, counts) in gateway.compression_counts.all() {
        let labels = &[coding.name()];
        page.put(Metric::CompressedAnswers, labels, counts.answers as f64);
        page.put(Metric::CompressionInput, labels, counts.original as f64);
        page.put(Metric::CompressionOutput, labels, counts.sent as f64);
    }
    if let Some(pages) = &gateway.pages {
        pages.put_metrics(page);
    }
    let limits = &gateway.connections;
    let (all, idle) = (limits.count(), limits.idle());
    page.put(Metric::Connections, &["idle"], idle.min(all) as f64);
    page.put(
        Metric::Connections,
        &["active"],
        all.saturating_sub(idle) as f64,
    );
    let server = &gateway.config.server;
    page.put(Metric::ConnectionsLimit, &[], server.max_connections as f64);
    page.put(Metric::ConnectionsAtLimit, &[], limits.at_limit() as f64);
    page.put(
        Metric::ConnectionsClosedForOthers,
        &[],
        limits.closed_for_others() as f64,
    );
    for (index, listener) in gateway.config.listeners.iter().enumerate() {
        let counts = limits.of_listener(index);
        let name = listener.name.as_str();
        page.put(Metric::Accepted, &[name], counts.accepted as f64);
        let refused = [
            ("per_address", counts.per_address),
            ("not_allowed", counts.not_allowed),
        ];
        for (reason, count) in refused {
            page.put(Metric::Refused, &[name, reason], count as f64);
        }
        if let Some(by_kernel) = gateway.quic.dropped(index) {
            for (reason, count) in [("buffer_full", by_kernel), ("busy", counts.datagrams)] {
                page.put(Metric::DatagramsDropped, &[name, reason], count as f64);
            }
        }
    }
    let reactors = &gateway.reactors;
    page.put(Metric::Reactors, &[], reactors.running().into());
    page.put(Metric::ReactorsLimit, &[], reactors.most().into());
    page.put(Metric::ConnectionsMoved, &[], reactors.moved() as f64);
    for (reactor, _, seconds) in reactors.busy() {
        page.put(Metric::ReactorBusy, &[&reactor.to_string()], seconds);
    }
    page.put(Metric::ReadingBodies, &[], gateway.uploads.count() as f64);
    let in_memory = gateway.spool_space.in_memory();
    page.put(Metric::SpoolMemory, &[], in_memory as f64);
    page.put(Metric::Spool, &[], gateway.spool_space.used() as f64);
    page.put(Metric::SpoolLimit, &[], server.max_spool as f64);
    page.put(Metric::Build, &[weir_sys::version::version()], 1.0);
    let started = gateway.started.duration_since(UNIX_EPOCH);
    let started = started.unwrap_or_default().as_secs_f64();
    page.put(Metric::StartTime, &[], started);
    for log in log_sink::health() {
        log.put_metrics(page);
    }
    if let Some(limit) = gateway.open_files_limit {
        page.put(Metric::ProcessFilesLimit, &["gateway"], limit as f64);
    }
    let ready = gateway.readiness().is_ok();
    page.put(Metric::Ready, &[], flag(ready));
    page.put(Metric::Draining, &[], flag(gateway.keeps_no_connections()));
}

/// Whether this is true of a site or of one of its routes.
fn any_settings(gateway: &Gateway, site: Option<usize>, is_so: impl Fn(&Settings) -> bool) -> bool {
    let site = site.and_then(|index| gateway.config.sites.get(index));
    site.is_some_and(|site| {
        let routes = site.routes.iter().map(|route| &route.settings);
        let mut settings = std::iter::once(&site.settings).chain(routes);
        settings.any(is_so)
    })
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

fn seconds(span: Micros) -> f64 {
    span.0 as f64 / 1e6
}

/// The durations of a pool, and whether they are there by default: what happens in the pool.
const POOL_TIMES: [(Metric, bool); 3] = [
    (Metric::PoolWait, true),
    (Metric::PoolService, true),
    (Metric::PoolTotal, false),
];

/// The same of a site: what its visitors notice.
const SITE_TIMES: [(Metric, bool); 3] = [
    (Metric::SiteWait, false),
    (Metric::SiteService, false),
    (Metric::SiteTotal, true),
];

/// The site label for requests that belong to no site.
const NO_SITE: &str = "-";
