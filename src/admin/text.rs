//! `GET /status` as a person reads it.

use std::fmt::Write;

use serde_json::Value;

/// The status in lines: weir itself, its listeners, and each pool with its workers.
pub fn status(status: &Value) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "weir {}, {}, process {}, up {}",
        text(&status["version"]),
        text(&status["state"]),
        text(&status["manager_pid"]),
        span(&status["uptime"]),
    );
    let _ = writeln!(
        out,
        "connections {} of {}",
        text(&status["connections"]["now"]),
        text(&status["connections"]["max"])
    );
    for listener in list(&status["listeners"]) {
        let _ = writeln!(
            out,
            "listens on {} ({}, {}): {}",
            text(&listener["address"]),
            text(&listener["name"]),
            text(&listener["protocol"]),
            text(&listener["serves"]),
        );
    }
    for pool in list(&status["pools"]) {
        out.push('\n');
        self::pool(&mut out, pool);
    }
    out
}

fn pool(out: &mut String, pool: &Value) {
    let (workers, queue, requests) = (&pool["workers"], &pool["queue"], &pool["requests"]);
    let _ = writeln!(
        out,
        "pool {}: {}, {}, generation {}",
        text(&pool["name"]),
        text(&pool["runtime"]),
        text(&pool["state"]),
        text(&pool["generation"]),
    );
    // Less than may be configured: what `pm = "auto"` finds worth having.
    let limit = match workers["limit"].as_u64() < workers["max"].as_u64() {
        true => format!(", for now {}", text(&workers["limit"])),
        false => String::new(),
    };
    let _ = writeln!(
        out,
        "  workers   {} busy, {} idle, {} starting; at most {}{limit} ({}), {} busy at once so far",
        text(&workers["busy"]),
        text(&workers["idle"]),
        text(&workers["starting"]),
        text(&workers["max"]),
        text(&pool["pm"]),
        text(&workers["most_busy"]),
    );
    let _ = writeln!(
        out,
        "  queue     {} waiting of {} at most, for {} at most; {} at once so far, longest wait {}",
        text(&queue["waiting"]),
        text(&queue["max"]),
        span(&queue["timeout"]),
        text(&queue["most_waiting"]),
        span(&queue["longest_wait"]),
    );
    let _ = writeln!(
        out,
        "  requests  {} taken, {} answered, {} refused, {} lost, {} slow",
        text(&requests["taken"]),
        text(&requests["finished"]),
        text(&requests["refused"]),
        text(&requests["lost"]),
        text(&requests["slow"]),
    );
    for decision in list(&pool["decisions"]) {
        let _ = writeln!(
            out,
            "  {}  {}",
            text(&decision["time"]),
            text(&decision["what"])
        );
    }
    let processes = list(&pool["processes"]);
    if processes.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "  {:>8}  {:<9} {:>9}  {:>9}  running",
        "pid", "state", "requests", "time"
    );
    for process in processes {
        let _ = writeln!(
            out,
            "  {:>8}  {:<9} {:>9}  {:>9}  {} {}",
            text(&process["pid"]),
            text(&process["state"]),
            text(&process["requests"]),
            span(&process["time"]),
            text(&process["method"]),
            text(&process["uri"]),
        );
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// What a field says, fit for a terminal: a URL is the client's text.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.chars().fold(String::new(), |mut shown, c| {
            match c.is_control() {
                true => shown.extend(c.escape_default()),
                false => shown.push(c),
            }
            shown
        }),
        Value::Null => "-".into(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Seconds as a person says them.
fn span(value: &Value) -> String {
    let Some(seconds) = value.as_f64() else {
        return "-".into();
    };
    match seconds {
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pool_is_shown_with_its_workers() {
        let shown = status(&json!({
            "version": "1.0", "state": "serving", "manager_pid": 7, "uptime": 86_400.0 * 3.0,
            "connections": { "now": 3, "max": 20_000 },
            "listeners": [{ "name": "web", "address": "0.0.0.0:80", "protocol": "http", "serves": ["shop", "blog"] }],
            "pools": [{
                "name": "shop", "runtime": "php", "state": "up", "generation": 2, "pm": "dynamic",
                "workers": { "busy": 1, "idle": 2, "starting": 0, "max": 20, "limit": 6, "most_busy": 9 },
                "queue": { "waiting": 0, "max": 1000, "timeout": 10.0, "most_waiting": 4, "longest_wait": 0.25 },
                "requests": { "taken": 10, "finished": 9, "refused": 0, "lost": 0, "slow": 1 },
                "processes": [{ "pid": 9, "state": "Running", "requests": 3, "time": 0.0123, "method": "GET",
                                "uri": "/a\u{1b}[31m" }],
            }],
        }));
        assert!(shown.contains("up 3.0 d"), "{shown}");
        assert!(
            shown.contains("listens on 0.0.0.0:80 (web, http): shop, blog"),
            "{shown}"
        );
        assert!(shown.contains("1 busy, 2 idle"), "{shown}");
        assert!(shown.contains("at most 20, for now 6 (dynamic)"), "{shown}");
        assert!(shown.contains("longest wait 250.0 ms"), "{shown}");
        // What a client sent cannot colour or move anything.
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }

    #[test]
    fn what_is_missing_is_a_dash() {
        assert!(status(&json!({})).contains("weir -"));
    }
}
