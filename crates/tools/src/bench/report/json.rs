//! The report as JSON. Existing keys stay; new ones may be added. docs/bench.md explains them.

use serde_json::{Map, Value, json};

use super::summary::{Moment, PERCENTILES, Summary, Times};

/// One object, on lines.
pub fn json(summary: &Summary) -> String {
    let reasons = summary.reasons.iter().map(|(status, reason, count)| {
        json!({
            "status": (*status != 0).then_some(status),
            "reason": (!reason.is_empty()).then_some(reason),
            "count": count,
        })
    });
    let statuses: Map<String, Value> = summary
        .statuses
        .iter()
        .map(|(status, count)| (status.to_string(), (*count).into()))
        .collect();
    let bars = summary
        .histogram
        .iter()
        .map(|bar| json!({ "from": bar.from, "to": bar.to, "count": bar.count }));
    let own = &summary.own;
    let value = json!({
        "weir_bench": 1,
        "url": summary.url,
        "mode": summary.mode,
        "users": summary.users,
        "rate_asked": summary.rate_asked,
        "timeout": summary.timeout,
        "transactions": summary.good,
        "refused": summary.refused,
        "failed": summary.failed,
        "availability": summary.availability,
        "elapsed": summary.elapsed,
        "tail": summary.tail,
        "bytes": summary.bytes,
        "rate": summary.rate,
        "throughput": summary.throughput,
        "concurrency": summary.concurrency,
        "response_time": times(&summary.times),
        "refused_time": times(&summary.refusals),
        "failed_time": times(&summary.failures),
        "late": summary.late.as_ref().map(times),
        "statuses": statuses,
        "failures": reasons.collect::<Vec<_>>(),
        "retry_after": {
            "count": summary.retry_after.count,
            "min": (summary.retry_after.count > 0).then_some(summary.retry_after.soonest),
            "max": (summary.retry_after.count > 0).then_some(summary.retry_after.latest),
        },
        "clients": summary.fairness.map(|fair| json!({
            "count": fair.clients,
            "served_least": fair.least,
            "served_median": fair.middle,
            "served_most": fair.most,
            "never_served": fair.starved,
            "longest_wait_best": fair.best_wait,
            "longest_wait_median": fair.middle_wait,
            "longest_wait_worst": fair.worst_wait,
        })),
        "histogram": bars.collect::<Vec<_>>(),
        "series_step": summary.step,
        "series": summary.points.iter().map(moment).collect::<Vec<_>>(),
        "generator": {
            "cpu": own.cpu,
            "cpu_us_per_request": own.cpu_per_request,
            "busiest_thread": own.busiest,
            "threads": own.threads,
            "connections": own.connections,
            "sent_again": own.sent_again,
            "warm_up_requests": own.warm_up,
            "most_connections": own.most_connections,
        },
        "stopped_early": summary.stopped.is_some(),
        "unfinished": summary.stopped.unwrap_or(0),
        "warnings": summary.warnings,
        "notes": summary.notes,
    });
    format!("{value:#}\n")
}

fn times(times: &Times) -> Value {
    let mut object = Map::new();
    let mut put = |name: &str, value: f64| {
        // Without measurements the value is null, not 0 seconds.
        let value = (times.count > 0).then_some(value);
        // Some programs read a dot in a key as a path.
        object.insert(name.replace('.', "_"), value.into());
    };
    put("mean", times.mean);
    put("min", times.shortest);
    for ((name, _), value) in PERCENTILES.iter().zip(times.percentiles) {
        put(name, value);
    }
    put("max", times.longest);
    object.insert("count".to_owned(), times.count.into());
    Value::Object(object)
}

fn moment(moment: &Moment) -> Value {
    json!({
        "at": moment.at,
        "span": moment.span,
        "sent": moment.sent,
        "good": moment.good,
        "refused": moment.refused,
        "failed": moment.failed,
        "p50": moment.p50,
        "p99": moment.p99,
        "max": moment.longest,
        "refused_max": moment.refused_longest,
    })
}
