//! The application's calls: the listening addresses, then a table of hosts.

use std::fmt::Write;

use serde_json::Value;

use super::{Sheet, list, size, span, text};

/// Appends the section of the egress; nothing if there is none.
pub(super) fn egress(out: &mut Sheet, egress: &Value) {
    if !egress.is_object() {
        return;
    }
    let connections = &egress["connections"];
    let mut head = format!(
        "{}; {} of {} callers' connections",
        text(&egress["listen"]),
        text(&connections["now"]),
        text(&connections["max"]),
    );
    let refused = counted(&egress["refused_by"]);
    if !refused.is_empty() {
        let _ = write!(head, "; refused: {refused}");
    }
    out.push('\n');
    out.wrap("calls ", &head);
    let cache = &egress["cache"];
    if cache.is_object() {
        let line = format!(
            "{} of {} in {} answers; {} hits, {} misses",
            size(&cache["bytes"]),
            size(&cache["max"]),
            text(&cache["answers"]),
            text(&cache["hits"]),
            text(&cache["misses"]),
        );
        out.wrap("  cache     ", &line);
    }
    hosts(out, list(&egress["hosts"]));
}

fn hosts(out: &mut Sheet, hosts: &[Value]) {
    if hosts.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "{:<24} {:>8} {:>6} {:>6} {:>4} {:>4} {:>5} {:>5} {:>8}",
        "host", "calls", "failed", "5xx", "now", "wait", "conns", "kept", "p99"
    );
    // The hosts with the most calls first.
    let mut sorted: Vec<&Value> = hosts.iter().collect();
    sorted.sort_by_key(|host| std::cmp::Reverse(host["calls"].as_u64()));
    for host in sorted.iter().take(MOST_HOSTS) {
        let connections = &host["connections"];
        let all = ["idle", "busy", "connecting"].map(|state| connections[state].as_u64());
        let all = all.iter().flatten().sum::<u64>();
        let kept = match host["reuse"].as_f64() {
            Some(share) => format!("{:.0}%", share * 100.0),
            None => "-".to_owned(),
        };
        let name = text(&host["name"]);
        // A name that is too long gets its own line.
        let name = match name.chars().count() > 24 {
            true => {
                out.line(&name);
                String::new()
            }
            false => name,
        };
        let total = &host["times"]["total"];
        let line = format!(
            "{name:<24} {:>8} {:>6} {:>6} {:>4} {:>4} {:>5} {kept:>5} {:>8}",
            text(&host["calls"]),
            text(&host["failed"]),
            text(&host["server_errors"]),
            text(&host["at_work"]),
            text(&host["waiting"]),
            all,
            span(&total["p99"]),
        );
        out.line(&line);
        if let Some(trouble) = trouble(host) {
            out.wrap("  ", &trouble);
        }
    }
    if hosts.len() > MOST_HOSTS {
        let more = hosts.len() - MOST_HOSTS;
        let _ = writeln!(out, "and {more} more: weir status --json");
    }
}

/// The problem of a host now or recently.
fn trouble(host: &Value) -> Option<String> {
    let breaker = match host["breaker"].as_str() {
        None | Some("closed") => None,
        Some(state) => Some(format!("breaker {}", state.replace('_', " "))),
    };
    let error = &host["last_error"];
    let recent = error["age"].as_f64().is_some_and(|age| age < RECENT);
    let error = (error.is_object() && (recent || breaker.is_some())).then(|| {
        format!(
            "{} {} ago: {}",
            text(&error["reason"]),
            span(&error["age"]),
            text(&error["message"])
        )
    });
    let answered = &host["last_server_error"];
    let recent = answered["age"].as_f64().is_some_and(|age| age < RECENT);
    let answered = recent.then(|| {
        format!(
            "answered {} {} ago",
            text(&answered["status"]),
            span(&answered["age"])
        )
    });
    let all: Vec<String> = [breaker, error, answered].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// `3 not allowed, 1 no token`
fn counted(reasons: &Value) -> String {
    let reasons = reasons.as_object().into_iter().flatten();
    let reasons =
        reasons.map(|(reason, count)| format!("{} {}", text(count), reason.replace('_', " ")));
    reasons.collect::<Vec<_>>().join(", ")
}

/// Maximum number of hosts that are shown.
const MOST_HOSTS: usize = 24;

/// For how long an error is shown, seconds.
const RECENT: f64 = 600.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{WIDTH, status};
    use serde_json::json;

    #[test]
    fn hosts_are_a_table_and_what_is_not_well_stands_below() {
        let host = |name: &str, calls: u64| {
            json!({
                "name": name, "calls": calls, "failed": 2, "server_errors": 5, "at_work": 3, "waiting": 0, "breaker": "closed",
                "connections": { "idle": 4, "busy": 3, "connecting": 1 }, "reuse": 0.984,
                "times": { "total": { "p50": 0.012, "p99": 0.2 } }, "last_error": null,
            })
        };
        let mut broken = host("http://legacy.internal:8080", 7);
        broken["breaker"] = "half_open".into();
        broken["reuse"] = Value::Null;
        broken["last_server_error"] = json!({ "status": 503, "age": 4.0 });
        broken["last_error"] = json!({
            "age": 3.0, "reason": "connect_timeout", "message": "192.0.2.7:8080 does not answer\u{1b}[31m"
        });
        let mut hosts = vec![broken, host("api.example.com", 1_234)];
        hosts.extend((0..30).map(|index| host(&format!("{index}.example"), 1)));
        let shown = status(&json!({
            "egress": {
                "listen": ["127.0.0.1:8083", "unix:/run/weir/egress.sock"],
                "connections": { "now": 3, "max": 1000 },
                "refused_by": { "not_allowed": 3 },
                "cache": { "bytes": 20_480, "max": 67_108_864, "answers": 34, "hits": 12, "misses": 3 },
                "hosts": hosts,
            },
        }));
        for line in shown.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for text in [
            "calls 127.0.0.1:8083, unix:/run/weir/egress.sock; 3 of 1000 callers' connections; refused: 3 not allowed",
            "cache 20 KiB of 64.0 MiB in 34 answers; 12 hits, 3 misses",
            "api.example.com 1234 2 5 3 0 8 98% 200.0 ms http://legacy.internal:8080 7 2 5 3 0 8 - 200.0 ms",
            "breaker half open; connect_timeout 3.0 s ago: 192.0.2.7:8080 does not answer\\u{1b}[31m; answered 503 4.0 s ago",
            "and 8 more",
        ] {
            assert!(words.contains(text), "{text}: {shown}");
        }
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }

    #[test]
    fn without_an_egress_nothing_is_said_of_it() {
        assert!(!status(&json!({ "egress": null })).contains("call"));
        assert!(!status(&json!({})).contains("call"));
    }
}
