//! docs/metrics.md, written from the table of metrics.

use std::{fmt::Write, fs, path::Path};

use super::{Kind, ROWS};

#[test]
fn the_page_of_metrics_is_what_the_rows_say() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let wanted = reference();
    if std::env::var_os("WEIR_REFRESH").is_some() {
        fs::write(&page, &wanted).unwrap();
    }
    let kept = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        kept == wanted,
        "docs/metrics.md is stale: WEIR_REFRESH=1 cargo test -p weir-observe metrics"
    );
}

/// The reference page, as Markdown.
fn reference() -> String {
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

const HEAD: &str = "| metric | kind | meaning | related options |\n|---|---|---|---|\n";

const INTRODUCTION: &str = "\
# Metrics

<!-- Written from the table in crates/observe/src/metrics.rs. To write it again: WEIR_REFRESH=1 cargo test -p weir-observe metrics -->

`GET /metrics` of the admin interface returns these metrics in Prometheus' text format. Durations are in seconds, sizes in
bytes. Labels are names from the configuration, or the words that this page lists.

Counters start at 0 with each gateway, so also at each reload. Prometheus' `rate()` handles this.

[alerts.md](alerts.md) has rules for Prometheus, and a dashboard for Grafana.

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

Answers are compressed for clients that send `Accept-Encoding: gzip`, as Prometheus does.

Each bucket of a histogram is a time series. So by default each pool has two histograms, of waiting and of the time at a worker, and each site
with a pool has one, of the whole request; they have five buckets: 50 ms, 250 ms, 1 s, 5 s, 30 s. A pool with a site has some 80 series then; a test
keeps it so for a hundred pools. `pool_histograms = true` and `site_histograms = true` give three histograms with fifteen buckets from 1 ms to 60 s for each,
and `false` gives none. `weir status` has exact percentiles in any case. There are no native histograms: Prometheus reads these only from its binary format, and
only where they are switched on.

A pool that nobody has asked since the gateway's start, and that has had no worker, has only `weir_pool_up`,
`weir_pool_requests_total`, `weir_queue_seconds_total`, `weir_busy_seconds_total`, `weir_pool_queue_requests` and
`weir_pool_capacity_requests`; a site without requests has only `weir_site_requests_total`. So a machine with a thousand pools has a
short page if few of them are used. `GET /metrics?pool=NAME` returns all metrics of one pool, and nothing else.
";
