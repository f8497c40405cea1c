//! The table of metrics: one row for each, from which `GET /metrics` and docs/metrics.md are written.
//!
//! A row has the name of a metric, its meaning and the options that change it. [`Page`] takes values by row, so every
//! value has a row, and exactly the row's labels. Labels are names of the configuration and weir's own words, never
//! text from a client, so their number does not grow while weir runs.
//!
//! The crate `prometheus` writes the text: it has the classic text format, which all scrapers and promtool read, and
//! accepts families made elsewhere. So weir can count in its own way (`gateway::tally`).

use prometheus::{
    Encoder, TextEncoder,
    proto::{self, MetricFamily, MetricType},
};

pub use crate::durations::Durations;

#[cfg(test)]
mod reference;

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

/// The answer of `GET /metrics`, while it is made.
#[derive(Debug)]
pub struct Page {
    families: Vec<MetricFamily>,
}

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
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

    /// Adds a histogram with these buckets: [`FINE`] or [`COARSE`].
    pub fn put_durations(
        &mut self,
        metric: Metric,
        labels: &[&str],
        durations: &Durations,
        wanted: &[u64],
    ) {
        let mut histogram = proto::Histogram::default();
        let mut count = 0;
        let mut buckets = Vec::with_capacity(wanted.len());
        let nothing = wanted.iter().map(|bound| (bound, &0));
        let nothing = nothing.filter(|_| durations.counts.is_empty());
        let counted = durations.bounds.iter().zip(&durations.counts);
        for (bound, within) in counted.chain(nothing) {
            count += within;
            if !wanted.contains(bound) {
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

/// Upper bounds of the buckets in `GET /metrics`, µs: each about five times the last one. Finer buckets are added up, because each
/// bucket is a time series in the scraper, and a machine may have hundreds of pools and sites.
pub const COARSE: &[u64] = &[50_000, 250_000, 1_000_000, 5_000_000, 30_000_000];

/// The same where there are few histograms, or all details are asked for: 1 ms to 60 s, each about twice the last one.
pub const FINE: &[u64] = &[
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// The media type of the text.
pub const TEXT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

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
        pub(crate) const ROWS: &[Row] = &[$($(Row {
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
            "Total time that requests have waited for a worker. Its rate is the average queue length: **the figure to scale on**."
            "`max_children`, `maxconn`"
        QueueSecondsPerSecond Gauge "weir_pool_queue_seconds_per_second" ["pool"]
            "The same as a gauge over the last ten seconds, for autoscalers that cannot query rates."
            "`max_children`, `maxconn`"
        BusySeconds Counter "weir_busy_seconds_total" ["pool"]
            "Total time that workers have been busy. Its rate is the average number of busy workers. Divided by `weir_pool_capacity_requests`, it shows when to scale before requests wait."
            "`max_children`, `maxconn`"
        PoolCapacity Gauge "weir_pool_capacity_requests" ["pool"]
            "Number of requests that can run at once: from `max_children` and `maxconn`, or the limits of the servers."
            "`max_children`, `maxconn`"
        PoolBusyRatio Gauge "weir_pool_busy_ratio" ["pool"]
            "Share of that capacity in use over the last ten seconds, from 0 to 1, for autoscalers that cannot query rates."
            "`max_children`, `maxconn`"
        PoolQueue Gauge "weir_pool_queue_requests" ["pool"]
            "Requests that are waiting for a worker."
            "`max_children`, `maxconn`"
        PoolQueueLimit Gauge "weir_pool_queue_limit_requests" ["pool"]
            "Maximum number of waiting requests; more are refused."
            "`max_queue`"
        PoolQueueTimeout Gauge "weir_pool_queue_timeout_seconds" ["pool"]
            "Maximum time that a request may wait."
            "`timeout` of `[pool.NAME.queue]`"
        PoolExpectedWait Gauge "weir_pool_expected_wait_seconds" ["pool"]
            "Estimated waiting time of a new request from a client without other waiting requests."
            "`max_children`, `maxconn`"
        PoolAdmittedWait Gauge "weir_pool_admitted_wait_seconds" ["pool"]
            "Requests that would have to wait longer than this are refused at once: the queue's `timeout`, or less under overload."
            "`timeout`, `order` of `[pool.NAME.queue]`"
        PoolServiceEstimate Gauge "weir_pool_service_estimate_seconds" ["pool"]
            "The pool's estimate of the time that a worker needs for a request; 0 if not known."
            ""
        PoolPatience Gauge "weir_pool_patience_seconds" ["pool"]
            "Waiting time after which one client in four leaves without an answer; no value if not known."
            ""
        PoolOverloaded Gauge "weir_pool_overloaded" ["pool"]
            "1 while the pool is overloaded and keeps its queue short."
            "`order` of `[pool.NAME.queue]`"
        PoolOverloads Counter "weir_pool_overloads_total" ["pool"]
            "How often the pool became overloaded."
            "`order` of `[pool.NAME.queue]`"
        PoolRequests Counter "weir_pool_requests_total" ["pool"]
            "Requests that needed a worker."
            ""
        PoolFinished Counter "weir_pool_finished_total" ["pool"]
            "Requests that a worker has finished."
            ""
        PoolLost Counter "weir_pool_lost_total" ["pool"]
            "Requests whose worker died while it ran them."
            ""
        PoolRetries Counter "weir_pool_retries_total" ["pool"]
            "Requests that were given to another worker after the first one failed."
            "`retries`"
        PoolShed Counter "weir_pool_shed_total" ["pool" "reason"]
            "Requests that were refused with 503, by reason: `queue_full`, `queue_timeout` (waited too long), `hopeless` (would have to wait too long), `deadline` (its own deadline is over), `overload`, `pushed_out` (by a request that goes first), `no_worker`."
            "`max_queue`, `timeout`, `order` of `[pool.NAME.queue]`"
        PoolClientLeft Counter "weir_pool_client_left_total" ["pool" "when"]
            "Requests whose client left, while `waiting` (the script did not start) or `running`."
            ""
        PoolCancelled Counter "weir_pool_cancelled_total" ["pool"]
            "Scripts whose worker was stopped because the client had left."
            "`on_client_left`, `timeout` of sites and routes"
        PoolSlow Counter "weir_pool_slow_requests_total" ["pool"]
            "Requests that ran for longer than `request_slowlog_timeout`."
            "`request_slowlog_timeout`"
        PoolWait Histogram "weir_pool_queue_duration_seconds" ["pool"]
            "Time that requests waited for a worker, including those that got none."
            "`pool_histograms`, `max_children`, `maxconn`"
        PoolService Histogram "weir_pool_service_duration_seconds" ["pool"]
            "Time that a worker was busy with a request, until it was free again."
            "`pool_histograms`, `request_terminate_timeout`"
        PoolTotal Histogram "weir_pool_request_duration_seconds" ["pool"]
            "Time from the first byte of a request to the last byte of its answer, including slow clients. Only if it is set."
            "`pool_histograms = true`"
    }
    "Workers of pools": {
        PoolUp Gauge "weir_pool_up" ["pool"]
            "1 while workers can be started; 0 while the pool has none, and requests do not wait for one."
            ""
        PoolWorkers Gauge "weir_pool_workers" ["pool" "state"]
            "Workers by state: `busy`, `idle`, `starting`, `leaving`. For `servers`: connections."
            "`pm`, `max_children`, `start_servers`, `min_spare_servers`, `max_spare_servers`"
        PoolWorkersLimit Gauge "weir_pool_workers_limit" ["pool"]
            "Current maximum of workers: `max_children`, or what `pm = \"auto\"` has found useful."
            "`max_children`"
        PoolMaxConn Gauge "weir_pool_running_limit_requests" ["pool"]
            "Maximum number of requests that run at once."
            "`maxconn`"
        PoolStarted Counter "weir_pool_workers_started_total" ["pool"]
            "Workers that were started."
            "`max_requests`, `process_idle_timeout`, `max_spawn_rate`"
        PoolStartFailed Counter "weir_pool_workers_failed_total" ["pool"]
            "Workers that could not be started."
            ""
        PoolEnded Counter "weir_pool_workers_ended_total" ["pool" "how"]
            "Workers that ended: `crashed` (by a signal or an exit code other than 0), `told` (stopped by weir: idle, worn out or outdated), `unasked` (by themselves, with exit code 0)."
            "`max_requests`, `process_idle_timeout`"
        PoolMaxReached Counter "weir_pool_max_children_reached_total" ["pool"]
            "How often more workers were needed than `max_children` allows."
            "`max_children`"
        PoolDecisions Counter "weir_pool_decisions_total" ["pool" "decision"]
            "Decisions of the scaling: `grew`, `shrank`, `max_children`, `memory`, `useless`, `pausing`, `recovered`."
            "`pm`"
        PoolGeneration Gauge "weir_pool_generation" ["pool"]
            "Number of the pool's current start: 1 at first, one more with each restart."
            ""
        PoolStalled Gauge "weir_pool_stalled_seconds" ["pool"]
            "For how long the pool has had its maximum of workers and each has been busy with the same request; 0 if one is free or has changed."
            "`ready_stalled`, `request_terminate_timeout`"
        PoolOpcacheUsed Gauge "weir_pool_opcache_used_ratio" ["pool"]
            "Share of OPcache that is in use, from 0 to 1: of its memory or of its table of scripts, whichever is fuller. Near 1, scripts that have no room are compiled by each request. Only of weir's own PHP, whose workers look every 5 s."
            "`opcache_memory`"
        PoolPressure Gauge "weir_pool_memory_pressure" ["pool"]
            "1 while memory is short and workers are stopped for that reason. Only with `pm = \"auto\"`."
            ""
        PoolCpu Counter "weir_pool_cpu_seconds_total" ["pool"]
            "Processor time of the pool's workers and their master."
            ""
        PoolMemory Gauge "weir_pool_memory_bytes" ["pool"]
            "Memory of the pool's workers and their master; shared memory is counted once (PSS)."
            "`max_children`, `max_memory`"
        PoolWorkerMemory Gauge "weir_pool_worker_memory_bytes" ["pool"]
            "Memory of one worker, the average of a sample (PSS)."
            "`max_memory`"
    }
    "Servers of pools": {
        ServerUp Gauge "weir_server_up" ["pool" "server"]
            "1 while the server is up. A name with several addresses counts as several servers."
            "`check`, `rise`, `fall`"
        ServerBusy Gauge "weir_server_requests" ["pool" "server"]
            "Requests that the server is running now."
            "`balance`, `weight`"
        ServerLimit Gauge "weir_server_limit_requests" ["pool" "server"]
            "Maximum of requests at once: a share of `maxconn`, or the limit that weir has found."
            "`maxconn`"
        ServerRequests Counter "weir_server_requests_total" ["pool" "server"]
            "Requests that the server was given."
            "`balance`, `weight`"
        ServerFailures Counter "weir_server_failures_total" ["pool" "server"]
            "Requests of the server that failed."
            ""
        ServerDowns Counter "weir_server_downs_total" ["pool" "server"]
            "How often the server went down."
            "`fall`, `max_fails`"
    }
    "Sites": {
        SiteRequests Counter "weir_site_requests_total" ["site" "code"]
            "Requests by class of status: `2xx`, `3xx`, `4xx`, `5xx`. The site `-` is for requests without a site: FastCGI from a web server, and requests that no site matches."
            ""
        SiteRateLimited Counter "weir_site_rate_limited_total" ["site"]
            "Requests that were refused with 429, because their client had sent too many. Only of sites with a `rate`."
            "`rate`, `max_rate_clients`"
        SiteCache Counter "weir_site_cache_requests_total" ["site" "result"]
            "Requests by what the cache had: `hit`, `joined` (waited for an equal request), `stale` (expired, sent nevertheless), `validated` (expired, the application said that it is still valid), `expired`, `miss`, `bypass`. Only of sites with a cache."
            "`cache`"
        SiteReceived Counter "weir_site_received_bytes_total" ["site"]
            "Bytes of request bodies."
            "`max_body`"
        SiteSent Counter "weir_site_sent_bytes_total" ["site"]
            "Bytes of response bodies."
            ""
        SiteWait Histogram "weir_site_queue_duration_seconds" ["site"]
            "Time that requests waited for a worker, including those that got none. Only for sites with a pool, and if it is set."
            "`site_histograms = true`"
        SiteService Histogram "weir_site_service_duration_seconds" ["site"]
            "Time that a worker was busy with a request, until it was free again. Only for sites with a pool, and if it is set."
            "`site_histograms = true`"
        SiteTotal Histogram "weir_site_request_duration_seconds" ["site"]
            "Time from the first byte of a request to the last byte of its answer, for files, redirects and refusals too. Only for sites with a pool."
            "`site_histograms`"
    }
    "Connections": {
        Connections Gauge "weir_connections" ["state"]
            "Client connections: `active` with a request, `idle` without one (counted five times a second)."
            "`idle_timeout`"
        ConnectionsLimit Gauge "weir_connections_limit" []
            "Maximum of client connections. New ones then replace idle ones, or wait."
            "`max_connections`"
        ConnectionsAtLimit Counter "weir_connections_limit_reached_total" []
            "New connections that arrived when the maximum was reached."
            "`max_connections`"
        ConnectionsClosedForOthers Counter "weir_connections_closed_for_others_total" []
            "Idle connections that were closed to make room for new ones."
            "`max_connections`, `idle_timeout`"
        Accepted Counter "weir_connections_accepted_total" ["listener"]
            "Connections that were accepted."
            ""
        TlsHandshakes Counter "weir_tls_handshakes_total" ["result"]
            "TLS handshakes with clients: `full`, `resumed` (the client had a ticket), `failed` (also those that took too long)."
            ""
        CertificateExpiry Gauge "weir_certificate_expiry_timestamp_seconds" ["certificate"]
            "When the certificate that clients get expires (seconds since 1970). No value: there is no certificate yet."
            ""
        CertificateRenewal Gauge "weir_certificate_renewal_timestamp_seconds" ["certificate"]
            "When weir renews the certificate (seconds since 1970). Only of certificates that weir gets by itself."
            ""
        CertificateOrders Counter "weir_certificate_orders_total" ["certificate" "result"]
            "Orders at an authority since the manager's start: `done`, `failed`."
            "`challenge`"
        CertificateFailures Gauge "weir_certificate_failures" ["certificate"]
            "Orders that failed since the last successful one; above 0, the authority cannot be reached or refuses. weir tries again until it succeeds."
            "`challenge`"
        DemandCertificates Gauge "weir_on_demand_certificates" []
            "Certificates that were got on demand."
            "`ask`"
        DemandCertificatesLimit Gauge "weir_on_demand_certificates_limit" []
            "Maximum number of certificates on demand. At the limit, new names are refused."
            "`ask_max`"
        DemandPending Gauge "weir_on_demand_pending" []
            "Names about which the application is asked, or whose certificate is ordered, at the moment."
            "`ask_rate`, `ask_order_rate`"
        DemandNames Counter "weir_on_demand_names_total" ["result"]
            "Names of handshakes without a certificate: `allowed` or `refused` by the application, `unanswered` by it, `limited` by a rate or limit."
            "`ask`, `ask_rate`, `ask_order_rate`, `ask_max`"
        DemandOrders Counter "weir_on_demand_orders_total" ["result"]
            "Orders of certificates on demand: `done`, `failed`."
            "`challenge`"
        DemandLapsed Counter "weir_on_demand_lapsed_total" []
            "Certificates on demand that expired, because the application refused their renewal or the authority did."
            "`ask`"
        DemandExpiry Gauge "weir_on_demand_expiry_timestamp_seconds" []
            "When the first certificate on demand expires (seconds since 1970)."
            "`ask`"
        ProgramProcesses Gauge "weir_program_processes" ["program"]
            "Running processes of a program, without those that are ending."
            "`instances`"
        ProgramMemory Gauge "weir_program_memory_bytes" ["program"]
            "Memory of a program's processes, with shared memory counted once, without the processes that they have started."
            "`memory_limit` of PHP"
        ProgramStarts Counter "weir_program_starts_total" ["program"]
            "Processes of a program that were started."
            ""
        ProgramEnds Counter "weir_program_ends_total" ["program" "result"]
            "Ends that weir has not asked for: `success` (exit code 0), `failure`; `not_started`: no process could be started."
            "`restart`, `max_runtime`"
        ProgramKills Counter "weir_program_kills_total" ["program"]
            "Processes that were killed because they did not end within `stop_timeout`."
            "`stop_timeout`"
        ProgramFailing Gauge "weir_program_failures" ["program"]
            "How often in a row a program has ended within seconds of its start; 3 or more: it cannot run."
            ""
        ProgramLastStart Gauge "weir_program_last_start_timestamp_seconds" ["program"]
            "When a process of the program was last started (seconds since 1970)."
            ""
        ProgramNext Gauge "weir_program_next_start_timestamp_seconds" ["program"]
            "When the next time of the schedule comes (seconds since 1970)."
            "`schedule`"
        ProgramSkipped Counter "weir_program_skipped_total" ["program"]
            "Times of the schedule that were skipped because the program still ran."
            "`overlap`, `max_runtime`"
        CompressedAnswers Counter "weir_compression_answers_total" ["coding"]
            "Answers that weir has compressed, by coding: `zstd`, `br`, `gzip`. Precompressed files do not count."
            "`compress`, `compress_types`, `compress_min_size`"
        CompressionInput Counter "weir_compression_input_bytes_total" ["coding"]
            "Bytes of these answers before compression."
            "`compress`, `compress_types`, `compress_min_size`"
        CompressionOutput Counter "weir_compression_output_bytes_total" ["coding"]
            "Bytes of these answers after compression, as they were sent."
            "`compress`, `compress_types`, `compress_min_size`"
        CacheBytes Gauge "weir_cache_bytes" []
            "Memory used by stored answers."
            "`memory` of `[cache]`"
        CacheAnswers Gauge "weir_cache_answers" []
            "Number of stored answers."
            "`memory` and `max_objects` of `[cache]`"
        CacheEvictions Counter "weir_cache_evictions_total" []
            "Stored answers that made room for others."
            "`memory` and `max_objects` of `[cache]`"
        CachePurges Counter "weir_cache_purges_total" []
            "Purges by operators, by applications and by other nodes."
            ""
        CacheBusConnected Gauge "weir_cache_bus_connected" []
            "1: purges of other nodes are heard; 0: the server of `bus` cannot be reached."
            "`bus` of `[cache]`"
        CacheBusTold Counter "weir_cache_bus_told_total" []
            "Purges that other nodes can hear."
            ""
        CacheBusHeard Counter "weir_cache_bus_heard_total" []
            "Purges of other nodes."
            ""
        CacheBusMissed Counter "weir_cache_bus_missed_total" []
            "How often purges of others may have been missed, so that everything stored became outdated. 1 after the start."
            ""
        Refused Counter "weir_connections_refused_total" ["listener" "reason"]
            "Connections that were closed at once: `per_address`, `not_allowed`."
            "`max_connections_per_address`, `allowed_clients`"
        DatagramsDropped Counter "weir_quic_dropped_datagrams_total" ["listener" "reason"]
            "Datagrams of HTTP/3 that were dropped: `buffer_full` by the kernel since the listener's UDP sockets were made, because weir had not read those before (or because they were damaged); `busy` by weir, because a connection, another reactor or another gateway had too many that wait. Clients send their content again."
            "`http3`, net.core.rmem_max"
    }
    "Reactors": {
        Reactors Gauge "weir_reactors" []
            "Reactors (threads that serve clients) that accept connections."
            "`threads`"
        ReactorsLimit Gauge "weir_reactors_limit" []
            "Maximum of reactors that may accept connections."
            "`threads`"
        ReactorBusy Counter "weir_reactor_busy_seconds_total" ["reactor"]
            "CPU time of a reactor. A rate near 1 means that it has no time left."
            "`threads`"
        ConnectionsMoved Counter "weir_connections_moved_total" []
            "Connections that moved to another reactor between two requests."
            "`threads`"
    }
    "The kernel's queues": {
        KernelQueue Gauge "weir_listener_queue_connections" ["listener"]
            "Connections that wait in the kernel until weir accepts them, on all sockets of the listener."
            "`max_connections`, `threads`"
        KernelQueueLimit Gauge "weir_listener_queue_limit_connections" ["listener"]
            "Maximum of connections that wait in the kernel: `backlog`, cut to net.core.somaxconn."
            "`backlog`"
        KernelQueueMax Gauge "weir_listener_queue_max_connections" ["listener"]
            "Highest number of waiting connections that was seen."
            ""
        KernelQueueFull Counter "weir_listener_queue_full_total" ["listener"]
            "How often the queue of one of the listener's sockets was full."
            "`backlog`"
        KernelQueueDrops Counter "weir_listener_queue_drops_total" ["listener"]
            "Connections that the kernel dropped at this listener (TCP), because the queue was full or for another reason."
            "`backlog`"
        KernelOverflows Counter "weir_kernel_listen_overflows_total" []
            "Connections that the kernel dropped because an accept queue was full (TcpExt ListenOverflows), for all TCP listeners of this network namespace."
            "`backlog`"
        KernelDrops Counter "weir_kernel_listen_drops_total" []
            "Connections that the kernel dropped for any reason (TcpExt ListenDrops), for all TCP listeners of this network namespace."
            "`backlog`"
    }
    "Bodies": {
        ReadingBodies Gauge "weir_reading_bodies" []
            "Request bodies that are being read. Those that came with their head are not counted."
            "`body_timeout`"
        SpoolMemory Gauge "weir_spool_memory_bytes" []
            "Memory used by request bodies."
            "`body_memory`"
        Spool Gauge "weir_spool_bytes" []
            "Size of the temporary files for request bodies and for responses to slow clients."
            "`body_memory`, `response_memory`"
        SpoolLimit Gauge "weir_spool_limit_bytes" []
            "Maximum size of the temporary files."
            "`max_spool`"
    }
    "Outgoing calls (egress)": {
        EgressCalls Counter "weir_egress_calls_total" ["host" "code"]
            "Answered calls by class of status: `2xx`, `3xx`, `4xx`, `5xx`. Hosts have the names from `allow`; beyond `max_hosts` they are `*`."
            "`max_hosts`"
        EgressFailures Counter "weir_egress_failures_total" ["host" "reason"]
            "Failed calls, by the same reasons as in the log."
            ""
        EgressRefused Counter "weir_egress_refused_total" ["reason"]
            "Calls that were refused without contacting a host: `not_allowed`, `no_token`, `bad_request`, `loop`."
            "`allow`, `token_file`"
        EgressServerErrors Counter "weir_egress_server_errors_total" ["host"]
            "Calls that the host itself answered with 500 or above. `5xx` of `weir_egress_calls_total` also has weir's own answers."
            ""
        EgressCallersLeft Counter "weir_egress_callers_left_total" ["host"]
            "Calls whose caller left before the end."
            ""
        EgressWorking Gauge "weir_egress_running_calls" ["host"]
            "Calls that are running at a host now."
            "`maxconn`"
        EgressWaiting Gauge "weir_egress_waiting_calls" ["host"]
            "Calls that are waiting in the queue."
            "`maxconn`, `max_queue`"
        EgressWait Histogram "weir_egress_wait_duration_seconds" ["host"]
            "Time that calls waited in the queue, including those that were refused."
            "`maxconn`, `queue_timeout`"
        EgressFirstByte Histogram "weir_egress_first_byte_duration_seconds" ["host"]
            "Time from the last attempt of a call to the first byte of the answer."
            "`first_byte_timeout`"
        EgressTotal Histogram "weir_egress_call_duration_seconds" ["host"]
            "Time from the start of a call to the last byte of the answer."
            "`timeout`"
        EgressRetries Counter "weir_egress_retries_total" ["host"]
            "Repeated attempts of calls."
            "`retries`, `retry_budget`"
        EgressBreaker Gauge "weir_egress_breaker" ["host" "state"]
            "1 for the current state of the circuit breaker, otherwise 0: `closed`, `half_open`, `open`."
            "`max_fails`, `fail_timeout`"
        EgressBreakerOpened Counter "weir_egress_breaker_opened_total" ["host"]
            "How often the circuit breaker opened."
            "`max_fails`"
        EgressConnections Gauge "weir_egress_connections" ["host" "state"]
            "Connections to hosts by state: `idle`, `busy`, `connecting`."
            "`keepalive`, `keepalive_timeout`, `preconnect`, `maxconn`"
        EgressOpened Counter "weir_egress_connections_opened_total" ["host" "protocol"]
            "Connections that were opened: `h1`, `h2`, `tunnel`."
            "`keepalive`, `keepalive_timeout`, `keepalive_time`"
        EgressKept Counter "weir_egress_kept_calls_total" ["host"]
            "Calls that used an open connection."
            "`keepalive`, `preconnect`"
        EgressConnect Histogram "weir_egress_connect_duration_seconds" ["host"]
            "Time to open a connection: DNS, TCP and TLS."
            "`connect_timeout`"
        EgressHandshakes Counter "weir_egress_tls_handshakes_total" ["host" "kind"]
            "TLS handshakes: `full`, or `resumed` from an earlier session."
            ""
        EgressUnverified Counter "weir_egress_tls_unverified_total" ["host"]
            "TLS handshakes whose certificate was not checked (`verify = false`)."
            "`verify`"
        EgressTunnels Counter "weir_egress_tunnels_total" ["host"]
            "Calls with CONNECT, whose connections cannot be shared."
            "`connect`"
        EgressReceived Counter "weir_egress_received_bytes_total" ["host"]
            "Bytes of request bodies sent by callers."
            ""
        EgressSent Counter "weir_egress_sent_bytes_total" ["host"]
            "Bytes of response bodies sent to callers."
            "`compress`"
        EgressCache Counter "weir_egress_cache_calls_total" ["host" "use"]
            "Calls that could use the cache: `hit`, `miss`, `revalidated`, `stale` (the host had failed), `joined` (waited for an equal call)."
            "`cache`, `stale_if_error`"
        EgressCacheBytes Gauge "weir_egress_cache_bytes" []
            "Memory used by cached answers."
            "`cache_size`"
        EgressCacheAnswers Gauge "weir_egress_cache_answers" []
            "Number of cached answers."
            "`cache_size`, `cache_max_object`"
        EgressLookups Counter "weir_egress_dns_lookups_total" ["result"]
            "DNS lookups: `done`, `failed`."
            "`resolve_min`, `resolve_max`"
        EgressCallers Gauge "weir_egress_callers_connections" []
            "Open connections of callers."
            "`max_connections` of `[egress]`"
        EgressCallersAccepted Counter "weir_egress_callers_connections_accepted_total" []
            "Connections of callers that were accepted."
            ""
    }
    "weir itself": {
        Build Gauge "weir_build_info" ["version"]
            "Always 1, with weir's version as a label."
            ""
        StartTime Gauge "weir_gateway_start_time_seconds" []
            "Start time of this gateway in seconds since 1970. All counters except those of this table start there, also at each reload."
            ""
        Ready Gauge "weir_ready" []
            "1 while `/readyz` answers ready."
            ""
        Reloads Counter "weir_reloads_total" ["result"]
            "Reloads since the manager's start: `done`, `failed`."
            ""
        GatewayRestarts Counter "weir_gateway_restarts_total" []
            "Gateways that died and were replaced since the manager's start."
            ""
        GatewayHangs Counter "weir_gateway_hangs_total" []
            "Gateways that were killed and replaced because they gave no sign of life."
            "`gateway_timeout`"
        OldGenerations Gauge "weir_old_generations" []
            "Replaced configurations that are still finishing requests."
            "`shutdown_timeout`, `max_old_generations`"
        OomKills Counter "weir_oom_kills_total" []
            "Processes of weir, mostly workers, that the kernel killed because memory ran out, since the manager's start."
            ""
        Draining Gauge "weir_draining" []
            "1 while weir is stopping, or after `weir drain`."
            ""
        ProcessCpu Counter "weir_process_cpu_seconds_total" ["process"]
            "Processor time of the `manager` and of the `gateway`."
            ""
        ProcessMemory Gauge "weir_process_memory_bytes" ["process"]
            "Memory of the `manager` and of the `gateway` (PSS)."
            ""
        ProcessFiles Gauge "weir_process_open_fds" ["process"]
            "Open file descriptors of the `manager` and the `gateway`."
            "`max_connections`"
        ProcessFilesLimit Gauge "weir_process_max_fds" ["process"]
            "Maximum of open file descriptors of the `gateway`."
            ""
        LogLinesLost Counter "weir_log_lines_lost_total" ["log"]
            "Log lines that were lost because they could not be written, by log."
            ""
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

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
        page.put_durations(Metric::PoolWait, &["shop"], &durations, FINE);
        page.put_durations(Metric::PoolService, &["shop"], &durations, COARSE);
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
        let of_service = text.matches("weir_pool_service_duration_seconds_bucket");
        assert_eq!(of_service.count(), 1, "{text}");
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
