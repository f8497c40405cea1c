//! The table of metrics: one row for each, from which `GET /metrics` and docs/metrics.md are written.
//!
//! A row has the name of a metric, its meaning and the options that change it. [`Page`] takes values by row, so every
//! value has a row, and exactly the row's labels. Labels are names of the configuration and weir's own words, never
//! something that a client sent: so their number does not grow while weir runs.
//!
//! The crate `prometheus` writes the text: it has the classic text format, which all scrapers and promtool read, and
//! accepts families made elsewhere. So weir can count in its own way (`gateway::tally`).

use prometheus::{
    Encoder, TextEncoder,
    proto::{self, MetricFamily, MetricType},
};

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only increases, until its process restarts.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Durations, counted in buckets.
    Histogram,
}

/// The description of a metric.
#[derive(Debug)]
pub struct Row {
    /// Its name, including the unit.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Its meaning, in one sentence.
    pub help: &'static str,
    /// The options that change or limit it; empty: none.
    #[cfg(test)]
    pub moved_by: &'static str,
    /// Its heading on the reference page.
    #[cfg(test)]
    pub group: &'static str,
}

/// Durations, counted in buckets.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Durations {
    /// Number of durations per bucket, in the order of the bounds; the last one is for durations above all bounds.
    pub counts: Vec<u64>,
    /// Their upper bounds, µs.
    pub bounds: &'static [u64],
    /// Sum of all durations, µs.
    pub sum: u64,
    /// The longest, µs.
    pub longest: u64,
}

/// The answer of `GET /metrics`, while it is made.
#[derive(Debug)]
pub struct Page {
    families: Vec<MetricFamily>,
}

impl Page {
    /// A page without values.
    pub fn new() -> Page {
        Page {
            families: ROWS.iter().map(family).collect(),
        }
    }

    /// Adds a value of a counter or gauge; `labels` in the order of the row.
    pub fn put(&mut self, metric: Metric, labels: &[&str], value: f64) {
        let mut point = labelled(metric, labels);
        match metric.row().kind {
            Kind::Counter => {
                let mut counter = proto::Counter::default();
                counter.set_value(value);
                point.set_counter(counter);
            }
            Kind::Gauge | Kind::Histogram => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(value);
                point.set_gauge(gauge);
            }
        }
        self.families[metric as usize].mut_metric().push(point);
    }

    /// Adds a histogram.
    pub fn put_durations(&mut self, metric: Metric, labels: &[&str], durations: &Durations) {
        let mut histogram = proto::Histogram::default();
        let mut count = 0;
        let mut buckets = Vec::with_capacity(SCRAPED_BOUNDS.len());
        for (bound, within) in durations.bounds.iter().zip(&durations.counts) {
            count += within;
            if !SCRAPED_BOUNDS.contains(bound) {
                continue;
            }
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(*bound as f64 / 1e6);
            bucket.set_cumulative_count(count);
            buckets.push(bucket);
        }
        histogram.set_bucket(buckets);
        histogram.set_sample_count(durations.counts.iter().sum());
        histogram.set_sample_sum(durations.sum as f64 / 1e6);
        let mut point = labelled(metric, labels);
        point.set_histogram(histogram);
        self.families[metric as usize].mut_metric().push(point);
    }

    /// The text; a metric without a value is left out.
    pub fn text(mut self) -> Vec<u8> {
        self.families
            .retain(|family| !family.get_metric().is_empty());
        let mut out = Vec::with_capacity(16 << 10);
        // This fails only if a family has no name or value, which cannot happen here, or if the writer fails.
        let _ = TextEncoder::new().encode(&self.families, &mut out);
        out
    }
}

impl Durations {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The difference to `before`, an earlier state of the same counts.
    pub fn since(&self, before: &Durations) -> Durations {
        let earlier = before.counts.iter().copied().chain(std::iter::repeat(0));
        let counts: Vec<u64> = (self.counts.iter().zip(earlier))
            .map(|(now, earlier)| now.saturating_sub(earlier))
            .collect();
        // The longest of these is not known, only its bucket.
        let last = counts.iter().rposition(|count| *count > 0);
        let longest = last.map_or(0, |last| {
            let bound = self.bounds.get(last).copied().unwrap_or(u64::MAX);
            bound.min(self.longest)
        });
        Durations {
            counts,
            bounds: self.bounds,
            sum: self.sum.saturating_sub(before.sum),
            longest,
        }
    }

    /// For the operator's window: in seconds; the quantiles are computed from the buckets.
    pub fn to_json(&self) -> serde_json::Value {
        let seconds = |micros: u64| micros as f64 / 1e6;
        let quantile = |share| self.quantile(share).map(seconds);
        serde_json::json!({
            "count": self.count(),
            "sum": seconds(self.sum),
            "p50": quantile(0.5),
            "p95": quantile(0.95),
            "p99": quantile(0.99),
        })
    }

    /// The duration that this share of them did not exceed, µs; linear between two bounds. `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let rank = share * self.count() as f64;
        let (mut before, mut from) = (0.0, 0);
        let beyond = std::iter::once(&self.longest);
        for (within, bound) in self.counts.iter().zip(self.bounds.iter().chain(beyond)) {
            let within = *within as f64;
            if within > 0.0 && before + within >= rank {
                let part = ((rank - before) / within).clamp(0.0, 1.0);
                // The bound may be far above the longest duration.
                let to = (*bound).min(self.longest).max(from);
                return Some(from + ((to - from) as f64 * part) as u64);
            }
            before += within;
            from = *bound;
        }
        None
    }
}

/// Upper bounds of the buckets in `GET /metrics`, µs: 1 ms to 60 s, each about twice the last one. Finer buckets are
/// added up, because each bucket is a time series in the scraper.
pub const SCRAPED_BOUNDS: [u64; 15] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// The media type of the text.
pub const TEXT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The reference page, as Markdown.
#[cfg(test)]
fn reference() -> String {
    use std::fmt::Write;

    let mut page = INTRODUCTION.to_owned();
    let mut group = "";
    for row in ROWS {
        if row.group != group {
            group = row.group;
            let _ = write!(page, "\n## {group}\n\n{HEAD}");
        }
        let labels = row.labels.join(", ");
        let name = match labels.as_str() {
            "" => row.name.to_owned(),
            labels => format!("{}{{{labels}}}", row.name),
        };
        let kind = match row.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let (help, moved_by) = (row.help, row.moved_by);
        let _ = writeln!(page, "| `{name}` | {kind} | {help} | {moved_by} |");
    }
    page
}

fn family(row: &Row) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(row.name.to_owned());
    family.set_help(plain(row.help));
    family.set_field_type(match row.kind {
        Kind::Counter => MetricType::COUNTER,
        Kind::Gauge => MetricType::GAUGE,
        Kind::Histogram => MetricType::HISTOGRAM,
    });
    family
}

/// Without Markdown, which is only for the reference page.
fn plain(help: &str) -> String {
    help.replace("**", "").replace('`', "")
}

fn labelled(metric: Metric, values: &[&str]) -> proto::Metric {
    let names = metric.row().labels;
    debug_assert_eq!(names.len(), values.len(), "{}", metric.row().name);
    let pair = |(name, value): (&&str, &&str)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    proto::Metric::from_label(names.iter().zip(values).map(pair).collect())
}

macro_rules! rows {
    ($($group:literal: { $($id:ident $kind:ident $name:literal [$($label:literal)*] $help:literal $moved_by:literal)* })*) => {
        /// Which metric: an index into [`ROWS`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Metric {
            $($(#[doc = $help] $id,)*)*
        }

        /// All of them, in the order of the page.
        pub const ROWS: &[Row] = &[$($(Row {
            name: $name,
            kind: Kind::$kind,
            labels: &[$($label),*],
            help: $help,
            #[cfg(test)]
            moved_by: $moved_by,
            #[cfg(test)]
            group: $group,
        },)*)*];
    };
}

impl Metric {
    /// The description of this metric.
    pub fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }
}

#[rustfmt::skip]
rows! {
    "Requests of pools": {
        QueueSeconds Counter "weir_queue_seconds_total" ["pool"]
            "Time that requests have spent waiting for a worker, all of them together. Its rate is the mean length of the queue: **the figure to scale on**."
            "`max_children`, `maxconn`"
        QueueSecondsPerSecond Gauge "weir_pool_queue_seconds_per_second" ["pool"]
            "The same over the last ten seconds, for scalers that take a gauge."
            "`max_children`, `maxconn`"
        BusySeconds Counter "weir_busy_seconds_total" ["pool"]
            "Time that workers have had a request, all of them together. Its rate is the mean number of busy workers; divided by `weir_pool_capacity_requests` it is what to scale on before anybody waits."
            "`max_children`, `maxconn`"
        PoolCapacity Gauge "weir_pool_capacity_requests" ["pool"]
            "Requests that may be at workers at once: `max_children` and `maxconn`, or what servers may have."
            "`max_children`, `maxconn`"
        PoolBusyRatio Gauge "weir_pool_busy_ratio" ["pool"]
            "Which part of that was in use over the last ten seconds, from 0 to 1, for scalers that take a gauge."
            "`max_children`, `maxconn`"
        PoolQueue Gauge "weir_pool_queue_requests" ["pool"]
            "Requests that wait for a worker now."
            "`max_children`, `maxconn`"
        PoolQueueLimit Gauge "weir_pool_queue_limit_requests" ["pool"]
            "As many may wait; the next is refused."
            "`max_queue`"
        PoolQueueTimeout Gauge "weir_pool_queue_timeout_seconds" ["pool"]
            "A request waits so long at most."
            "`timeout` of `[pool.NAME.queue]`"
        PoolExpectedWait Gauge "weir_pool_expected_wait_seconds" ["pool"]
            "What a usual request of a client that has none waiting would wait if it came now, as far as can be foreseen."
            "`max_children`, `maxconn`"
        PoolAdmittedWait Gauge "weir_pool_admitted_wait_seconds" ["pool"]
            "Who would have to wait for longer is refused at once: the queue's `timeout`, or less under overload."
            "`timeout`, `order` of `[pool.NAME.queue]`"
        PoolServiceEstimate Gauge "weir_pool_service_estimate_seconds" ["pool"]
            "What a worker needs for a request, as the pool reckons with it; 0: not known."
            ""
        PoolPatience Gauge "weir_pool_patience_seconds" ["pool"]
            "After so long one client in four leaves without its answer; without a value: not known."
            ""
        PoolOverloaded Gauge "weir_pool_overloaded" ["pool"]
            "1 while the pool cannot serve all that comes, and keeps its queue short."
            "`order` of `[pool.NAME.queue]`"
        PoolOverloads Counter "weir_pool_overloads_total" ["pool"]
            "How often it became so."
            "`order` of `[pool.NAME.queue]`"
        PoolRequests Counter "weir_pool_requests_total" ["pool"]
            "Requests that asked for a worker."
            ""
        PoolFinished Counter "weir_pool_finished_total" ["pool"]
            "Requests that a worker has done."
            ""
        PoolLost Counter "weir_pool_lost_total" ["pool"]
            "Requests whose worker went down under them."
            ""
        PoolRetries Counter "weir_pool_retries_total" ["pool"]
            "Requests that asked for another worker after theirs had gone."
            "`retries`"
        PoolShed Counter "weir_pool_shed_total" ["pool" "reason"]
            "Requests that were refused with 503, by reason: `queue_full`, `queue_timeout` (it has waited for so long), `hopeless` (it would have to wait too long), `deadline` (its own), `overload`, `pushed_out` (by one that goes first), `no_worker`."
            "`max_queue`, `timeout`, `order` of `[pool.NAME.queue]`"
        PoolClientLeft Counter "weir_pool_client_left_total" ["pool" "when"]
            "Requests whose client left, `waiting` (its script did not start) or `running`."
            ""
        PoolCancelled Counter "weir_pool_cancelled_total" ["pool"]
            "Scripts whose worker was stopped because nobody waited for their answer any more."
            "`on_client_left`, `timeout` of sites and routes"
        PoolSlow Counter "weir_pool_slow_requests_total" ["pool"]
            "Requests that ran for longer than `request_slowlog_timeout`."
            "`request_slowlog_timeout`"
        PoolWait Histogram "weir_pool_queue_duration_seconds" ["pool"]
            "How long requests waited for a worker, those that got none included."
            "`max_children`, `maxconn`"
        PoolService Histogram "weir_pool_service_duration_seconds" ["pool"]
            "How long a worker had a request, until it was free again."
            "`request_terminate_timeout`"
        PoolTotal Histogram "weir_pool_request_duration_seconds" ["pool"]
            "From a request's first byte to the last of its answer, clients' slowness included."
            ""
    }
    "Workers of pools": {
        PoolUp Gauge "weir_pool_up" ["pool"]
            "1 while workers can be had; 0: nobody shall wait for one."
            ""
        PoolWorkers Gauge "weir_pool_workers" ["pool" "state"]
            "Workers, by state: `busy`, `idle`, `starting`, `leaving`. Of `servers`: connections."
            "`pm`, `max_children`, `start_servers`, `min_spare_servers`, `max_spare_servers`"
        PoolWorkersLimit Gauge "weir_pool_workers_limit" ["pool"]
            "As many there may be now: `max_children`, or what `pm = \"auto\"` finds worth having."
            "`max_children`"
        PoolMaxConn Gauge "weir_pool_running_limit_requests" ["pool"]
            "As many requests may be at workers at once."
            "`maxconn`"
        PoolStarted Counter "weir_pool_workers_started_total" ["pool"]
            "Workers that came up."
            "`max_requests`, `process_idle_timeout`, `max_spawn_rate`"
        PoolStartFailed Counter "weir_pool_workers_failed_total" ["pool"]
            "Workers that could not be started."
            ""
        PoolEnded Counter "weir_pool_workers_ended_total" ["pool" "how"]
            "Workers that ended: `crashed` (a signal or a code other than 0), `told` (idle, spent or outdated), `unasked` (by themselves, with code 0)."
            "`max_requests`, `process_idle_timeout`"
        PoolMaxReached Counter "weir_pool_max_children_reached_total" ["pool"]
            "How often more workers were wanted than `max_children` allows."
            "`max_children`"
        PoolDecisions Counter "weir_pool_decisions_total" ["pool" "decision"]
            "What the scaling decided: `grew`, `shrank`, `max_children`, `memory`, `useless`, `pausing`, `recovered`."
            "`pm`"
        PoolGeneration Gauge "weir_pool_generation" ["pool"]
            "How often the pool was started anew, beginning with 1."
            ""
        PoolPressure Gauge "weir_pool_memory_pressure" ["pool"]
            "1 while memory is short, so that workers leave (`pm = \"auto\"`)."
            ""
        PoolCpu Counter "weir_pool_cpu_seconds_total" ["pool"]
            "Processor time of its workers and their master."
            ""
        PoolMemory Gauge "weir_pool_memory_bytes" ["pool"]
            "Memory of its workers and their master; what processes share is counted once (PSS)."
            "`max_children`, `max_memory`"
        PoolWorkerMemory Gauge "weir_pool_worker_memory_bytes" ["pool"]
            "Memory of one of its workers, the mean of some (PSS)."
            "`max_memory`"
    }
    "Servers of pools": {
        ServerUp Gauge "weir_server_up" ["pool" "server"]
            "1 while the server gets requests, or would as a backup. A name that leads to several addresses is as many servers."
            "`check`, `rise`, `fall`"
        ServerBusy Gauge "weir_server_requests" ["pool" "server"]
            "Requests that it has now."
            "`balance`, `weight`"
        ServerLimit Gauge "weir_server_limit_requests" ["pool" "server"]
            "As many it may have: an equal share of `maxconn`, or what was found that it can bear."
            "`maxconn`"
        ServerRequests Counter "weir_server_requests_total" ["pool" "server"]
            "Requests that it was given."
            "`balance`, `weight`"
        ServerFailures Counter "weir_server_failures_total" ["pool" "server"]
            "Of these: those that failed."
            ""
        ServerDowns Counter "weir_server_downs_total" ["pool" "server"]
            "Times that it went down."
            "`fall`, `max_fails`"
    }
    "Sites": {
        SiteRequests Counter "weir_site_requests_total" ["site" "code"]
            "Requests, by the class of their status: `2xx`, `3xx`, `4xx`, `5xx`. The site `-` is none: FastCGI from a web server, and what no site answers."
            ""
        SiteReceived Counter "weir_site_received_bytes_total" ["site"]
            "Bytes of requests' bodies."
            "`max_body`"
        SiteSent Counter "weir_site_sent_bytes_total" ["site"]
            "Bytes of answers' bodies."
            ""
        SiteWait Histogram "weir_site_queue_duration_seconds" ["site"]
            "How long requests waited for a worker, those that got none included. Of sites that have a pool."
            "`site_histograms`"
        SiteService Histogram "weir_site_service_duration_seconds" ["site"]
            "How long a worker had a request, until it was free again. Of sites that have a pool."
            "`site_histograms`"
        SiteTotal Histogram "weir_site_request_duration_seconds" ["site"]
            "From a request's first byte to the last of its answer: files, redirects and refusals too. Of sites that have a pool."
            "`site_histograms`"
    }
    "Connections": {
        Connections Gauge "weir_connections" ["state"]
            "Connections of clients: `active` with a request, `idle` without one (counted five times a second)."
            "`idle_timeout`"
        ConnectionsLimit Gauge "weir_connections_limit" []
            "As many there may be; for more, idle ones are closed, or they wait."
            "`max_connections`"
        ConnectionsAtLimit Counter "weir_connections_limit_reached_total" []
            "New connections that found as many open as there may be."
            "`max_connections`"
        ConnectionsClosedForOthers Counter "weir_connections_closed_for_others_total" []
            "Idle connections that were closed because new ones needed their place."
            "`max_connections`, `idle_timeout`"
        Accepted Counter "weir_connections_accepted_total" ["listener"]
            "Connections that were accepted."
            ""
        Refused Counter "weir_connections_refused_total" ["listener" "reason"]
            "Connections that were closed at once: `per_address`, `not_allowed`."
            "`max_connections_per_address`, `allowed_clients`"
    }
    "The kernel's queues": {
        KernelQueue Gauge "weir_listener_queue_connections" ["listener"]
            "Connections that clients have made and weir has not accepted yet, of all sockets of the listener."
            "`max_connections`, `threads`"
        KernelQueueLimit Gauge "weir_listener_queue_limit_connections" ["listener"]
            "As many the kernel lets wait: `backlog`, cut by net.core.somaxconn."
            "`backlog`"
        KernelQueueMax Gauge "weir_listener_queue_max_connections" ["listener"]
            "The most that were seen waiting there."
            ""
        KernelQueueFull Counter "weir_listener_queue_full_total" ["listener"]
            "How often the queue of one of its sockets was found full."
            "`backlog`"
        KernelQueueDrops Counter "weir_listener_queue_drops_total" ["listener"]
            "Connections that the kernel did not let in at this listener (TCP), because the queue was full or for another reason."
            "`backlog`"
        KernelOverflows Counter "weir_kernel_listen_overflows_total" []
            "Connections that the kernel turned away because a listener's queue was full (TcpExt ListenOverflows): of any TCP listener of this network namespace."
            "`backlog`"
        KernelDrops Counter "weir_kernel_listen_drops_total" []
            "The same, for any reason (TcpExt ListenDrops)."
            "`backlog`"
    }
    "Bodies": {
        SpoolMemory Gauge "weir_spool_memory_bytes" []
            "What bodies of requests take in memory."
            "`body_memory`"
        Spool Gauge "weir_spool_bytes" []
            "What temporary files of bodies take now, of requests and of answers to slow clients."
            "`body_memory`, `response_memory`"
        SpoolLimit Gauge "weir_spool_limit_bytes" []
            "As much they may take."
            "`max_spool`"
    }
    "Outgoing calls (egress)": {
        EgressCalls Counter "weir_egress_calls_total" ["host" "code"]
            "Calls that were answered, by the class of what the caller got: `2xx`, `3xx`, `4xx`, `5xx`. Hosts are called as `allow` writes them; beyond `max_hosts` they are `*`."
            "`max_hosts`"
        EgressFailures Counter "weir_egress_failures_total" ["host" "reason"]
            "Calls that failed, by reason: the words of the log."
            ""
        EgressRefused Counter "weir_egress_refused_total" ["reason"]
            "Calls that were refused before it was looked for their host: `not_allowed`, `no_token`, `bad_request`, `loop`."
            "`allow`, `token_file`"
        EgressCallersLeft Counter "weir_egress_callers_left_total" ["host"]
            "Calls whose caller left before their end."
            ""
        EgressWorking Gauge "weir_egress_running_calls" ["host"]
            "Calls that an origin has now."
            "`maxconn`"
        EgressWaiting Gauge "weir_egress_waiting_calls" ["host"]
            "Calls that wait for a place now."
            "`maxconn`, `max_queue`"
        EgressWait Histogram "weir_egress_wait_duration_seconds" ["host"]
            "How long calls waited for a place, those that got none included."
            "`maxconn`, `queue_timeout`"
        EgressFirstByte Histogram "weir_egress_first_byte_duration_seconds" ["host"]
            "From a call's last try to the first byte of its answer."
            "`first_byte_timeout`"
        EgressTotal Histogram "weir_egress_call_duration_seconds" ["host"]
            "From the head of a call to the last byte of its answer."
            "`timeout`"
        EgressRetries Counter "weir_egress_retries_total" ["host"]
            "Tries of calls after their first."
            "`retries`, `retry_budget`"
        EgressBreaker Gauge "weir_egress_breaker" ["host" "state"]
            "1 for the state that the breaker is in, else 0: `closed`, `half_open`, `open`."
            "`max_fails`, `fail_timeout`"
        EgressBreakerOpened Counter "weir_egress_breaker_opened_total" ["host"]
            "How often the breaker opened."
            "`max_fails`"
        EgressConnections Gauge "weir_egress_connections" ["host" "state"]
            "Connections to origins, by state: `idle`, `busy`, `connecting`."
            "`keepalive`, `keepalive_timeout`, `preconnect`, `maxconn`"
        EgressOpened Counter "weir_egress_connections_opened_total" ["host" "protocol"]
            "Connections that were made: `h1`, `h2`, `tunnel`."
            "`keepalive`, `keepalive_timeout`, `keepalive_time`"
        EgressKept Counter "weir_egress_kept_calls_total" ["host"]
            "Calls over a connection that was there."
            "`keepalive`, `preconnect`"
        EgressConnect Histogram "weir_egress_connect_duration_seconds" ["host"]
            "What it took to make a connection: DNS, TCP and TLS."
            "`connect_timeout`"
        EgressHandshakes Counter "weir_egress_tls_handshakes_total" ["host" "kind"]
            "TLS handshakes: `full`, and `resumed` from an earlier session."
            ""
        EgressUnverified Counter "weir_egress_tls_unverified_total" ["host"]
            "Of these: those whose certificate was not checked."
            "`verify`"
        EgressTunnels Counter "weir_egress_tunnels_total" ["host"]
            "Calls by CONNECT, which cannot be pooled."
            "`connect`"
        EgressReceived Counter "weir_egress_received_bytes_total" ["host"]
            "Bytes of callers' bodies."
            ""
        EgressSent Counter "weir_egress_sent_bytes_total" ["host"]
            "Bytes of answers' bodies, as callers got them."
            "`compress`"
        EgressCache Counter "weir_egress_cache_calls_total" ["host" "use"]
            "Calls that the cache had to do with: `hit`, `miss`, `revalidated`, `stale` (the origin had failed), `joined` (they waited for an equal call)."
            "`cache`, `stale_if_error`"
        EgressCacheBytes Gauge "weir_egress_cache_bytes" []
            "What all answers that are kept take."
            "`cache_size`"
        EgressCacheAnswers Gauge "weir_egress_cache_answers" []
            "Answers that are kept."
            "`cache_size`, `cache_max_object`"
        EgressLookups Counter "weir_egress_dns_lookups_total" ["result"]
            "Questions to name servers: `done`, `failed`."
            "`resolve_min`, `resolve_max`"
        EgressCallers Gauge "weir_egress_callers_connections" []
            "Callers' connections now."
            "`max_connections` of `[egress]`"
        EgressCallersAccepted Counter "weir_egress_callers_connections_accepted_total" []
            "Callers' connections that were accepted."
            ""
    }
    "weir itself": {
        Build Gauge "weir_build_info" ["version"]
            "1, with weir's version."
            ""
        StartTime Gauge "weir_gateway_start_time_seconds" []
            "When this gateway began to serve, seconds since 1970: all counters but those of this table begin there, at each reload too."
            ""
        Ready Gauge "weir_ready" []
            "1 while `/readyz` says so."
            ""
        Reloads Counter "weir_reloads_total" ["result"]
            "Reloads since the manager's start: `done`, `failed`."
            ""
        GatewayRestarts Counter "weir_gateway_restarts_total" []
            "Gateways that died and were replaced, since the manager's start."
            ""
        GatewayHangs Counter "weir_gateway_hangs_total" []
            "Of these: those that were killed because they gave no sign of life."
            "`gateway_timeout`"
        OldGenerations Gauge "weir_old_generations" []
            "Configurations that were replaced, and still finish what they began."
            "`shutdown_timeout`, `max_old_generations`"
        OomKills Counter "weir_oom_kills_total" []
            "Processes of weir, workers above all, that the kernel ended because memory ran out, since the manager's start."
            ""
        Draining Gauge "weir_draining" []
            "1 while it takes nothing new, or an operator has said `weir drain`."
            ""
        ProcessCpu Counter "weir_process_cpu_seconds_total" ["process"]
            "Processor time of the `manager` and of the `gateway`."
            ""
        ProcessMemory Gauge "weir_process_memory_bytes" ["process"]
            "Memory of the `manager` and of the `gateway` (PSS)."
            ""
        ProcessFiles Gauge "weir_process_open_fds" ["process"]
            "Descriptors that the `manager` and the `gateway` have open."
            "`max_connections`"
        ProcessFilesLimit Gauge "weir_process_max_fds" ["process"]
            "As many the `gateway` may have open."
            ""
        LogLinesLost Counter "weir_log_lines_lost_total" ["log"]
            "Lines of logs that could not be written, by the log's name."
            ""
    }
}

#[cfg(test)]
const HEAD: &str = "| metric | kind | meaning | moved by |\n|---|---|---|---|\n";

#[cfg(test)]
const INTRODUCTION: &str = "\
# Metrics

<!-- Written from the table in src/metrics.rs. To write it again: WEIR_REFRESH=1 cargo test --bin weir metrics -->

`GET /metrics` of the operator's window returns these metrics in Prometheus' text format. Durations are in seconds, sizes in
bytes. Labels are names from the configuration, or the words that this page lists.

Counters start at 0 with each gateway, so also at each reload. Prometheus' `rate()` handles this.

Use these two figures together to scale the number of machines:

```promql
# The share of a pool that is in use, on average. Add machines (or workers) above 0.7, remove some below 0.4.
sum by (pool) (rate(weir_busy_seconds_total[5m])) / sum by (pool) (weir_pool_capacity_requests)

# How many requests wait, on average. Above 0 the capacity is already too small: add machines at once.
sum by (pool) (rate(weir_queue_seconds_total[1m]))
```

The first one rises before anybody waits. The second one is 0 while every request finds a worker at once; otherwise it shows how
many workers are missing. For autoscalers that read gauges and cannot query, `weir_pool_busy_ratio` and
`weir_pool_queue_seconds_per_second` are the same over the last ten seconds. A pool with `pm = \"auto\"` does not start workers that
would not help. So set a `max_children` that its machine can take, or the first figure stays low.

Answers are compressed for clients that send `Accept-Encoding: gzip`, as Prometheus does. Each site with a pool has three
histograms. With hundreds of sites, `site_histograms = false` leaves them out.
";

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, fs, path::Path};

    use super::*;

    #[test]
    fn the_page_of_metrics_is_what_the_rows_say() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
        let wanted = reference();
        if std::env::var_os("WEIR_REFRESH").is_some() {
            fs::write(&page, &wanted).unwrap();
        }
        let kept = fs::read_to_string(&page).unwrap_or_default();
        assert!(
            kept == wanted,
            "docs/metrics.md is stale: WEIR_REFRESH=1 cargo test --bin weir metrics"
        );
    }

    #[test]
    fn names_say_unit_and_kind() {
        let mut names = HashSet::new();
        for row in ROWS {
            assert!(names.insert(row.name), "{} is there twice", row.name);
            assert!(row.name.starts_with("weir_"), "{}", row.name);
            assert!(row.help.ends_with('.'), "{}", row.name);
            assert!(!plain(row.help).contains('`'), "{}", row.name);
            let counts = row.kind == Kind::Counter;
            assert_eq!(counts, row.name.ends_with("_total"), "{}", row.name);
            let lasts = row.kind == Kind::Histogram;
            assert_eq!(
                lasts,
                row.name.ends_with("_duration_seconds"),
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn a_page_has_what_was_put_there() {
        let mut page = Page::new();
        page.put(Metric::PoolQueue, &["a\"b"], 3.0);
        let durations = Durations {
            counts: vec![1, 2, 1],
            bounds: &[1_000, 500_000],
            sum: 2_000_000,
            longest: 1_000_000,
        };
        page.put_durations(Metric::PoolWait, &["shop"], &durations);
        let text = String::from_utf8(page.text()).unwrap();
        assert!(
            text.contains("# TYPE weir_pool_queue_requests gauge"),
            "{text}"
        );
        assert!(
            text.contains("weir_pool_queue_requests{pool=\"a\\\"b\"} 3"),
            "{text}"
        );
        for line in [
            "_bucket{pool=\"shop\",le=\"0.001\"} 1",
            "_bucket{pool=\"shop\",le=\"0.5\"} 3",
            "_bucket{pool=\"shop\",le=\"+Inf\"} 4",
            "_sum{pool=\"shop\"} 2",
            "_count{pool=\"shop\"} 4",
        ] {
            let line = format!("weir_pool_queue_duration_seconds{line}");
            assert!(text.contains(&line), "{line}: {text}");
        }
        assert!(!text.contains("weir_ready"), "{text}");
    }

    #[test]
    fn what_came_since_has_its_own_quantiles() {
        let of = |counts: [u64; 3], sum, longest| Durations {
            counts: counts.to_vec(),
            bounds: &[1_000, 5_000],
            sum,
            longest,
        };
        let (before, now) = (
            of([0, 0, 9], 90_000_000, 10_000_000),
            of([4, 0, 9], 90_002_000, 10_000_000),
        );
        let since = now.since(&before);
        assert_eq!((since.count(), since.sum, since.longest), (4, 2_000, 1_000));
        assert_eq!(since.quantile(0.99), Some(990));
        assert_eq!(now.since(&Durations::default()), now);
        assert_eq!(now.since(&now).count(), 0);
    }

    #[test]
    fn quantiles_lie_between_their_bounds() {
        let median = |counts: &[u64], longest| {
            let durations = Durations {
                counts: counts.to_vec(),
                bounds: &[1_000, 5_000, 10_000],
                sum: 0,
                longest,
            };
            durations.quantile(0.5)
        };
        assert_eq!(median(&[0, 0, 0, 0], 0), None);
        assert_eq!(median(&[2, 2, 0, 0], 5_000), Some(1_000));
        assert_eq!(median(&[0, 4, 0, 0], 5_000), Some(3_000));
        assert_eq!(median(&[0, 4, 0, 0], 1_200), Some(1_100));
        assert_eq!(median(&[0, 0, 0, 3], 30_000), Some(20_000));
        // Read between the update of the count and of the longest duration.
        assert_eq!(median(&[0, 0, 0, 3], 0), Some(10_000));
    }
}
