//! The processes of a pool, a line for each.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Sheet, size, span, text};

/// Lists the processes, the busy ones first.
pub(super) fn put(out: &mut Sheet, processes: &[Value]) {
    if processes.is_empty() {
        return;
    }
    // Only for weir's own PHP, and only if the pool measures it.
    let is_measured = |process: &Value| {
        process["early_memory"]
            .as_u64()
            .is_some_and(|size| size > 0)
    };
    let measured = processes.iter().any(is_measured);
    let memory = |now: &str, early: &str| match measured {
        true => format!("{now:>9}  {early:>9}  "),
        false => String::new(),
    };
    let _ = writeln!(
        out,
        "  {:>8}  {:<9} {:>9}  {:>9}  {}running",
        "pid",
        "state",
        "requests",
        "time",
        memory("memory", "at first")
    );
    // Busy workers first, the longest request at the top; then the other workers.
    let mut sorted: Vec<&Value> = processes.iter().collect();
    sorted.sort_by(|one, other| {
        let key = |process: &Value| (process["state"] != "Idle", process["time"].as_f64());
        let (one, other) = (key(one), key(other));
        other.partial_cmp(&one).unwrap_or(std::cmp::Ordering::Equal)
    });
    for process in sorted.iter().take(MOST_PROCESSES) {
        let running = format!("{} {}", text(&process["method"]), text(&process["uri"]));
        let line = format!(
            "  {:>8}  {:<9} {:>9}  {:>9}  {}{running}",
            text(&process["pid"]),
            text(&process["state"]),
            text(&process["requests"]),
            span(&process["time"]),
            memory(&size(&process["memory"]), &size(&process["early_memory"])),
        );
        out.line(&line);
    }
    if processes.len() > MOST_PROCESSES {
        let more = processes.len() - MOST_PROCESSES;
        let _ = writeln!(out, "  and {more} more: weir status --json");
    }
}

/// Maximum number of a pool's workers that are shown.
const MOST_PROCESSES: usize = 24;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::status;

    #[test]
    fn what_a_process_keeps_can_be_seen() {
        let shown = status(&json!({
            "pools": [{
                "name": "shop", "state": "up",
                "processes": [{ "pid": 9, "state": "Idle", "requests": 300, "time": 0.0123, "method": "GET",
                                "uri": "/", "memory": 31 << 20, "early_memory": 14 << 20 }],
            }],
        }));
        let line = shown.lines().find(|line| line.contains("Idle"));
        let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        assert_eq!(
            words,
            [
                "9", "Idle", "300", "12.3", "ms", "31.0", "MiB", "14.0", "MiB", "GET", "/"
            ],
            "{shown}"
        );
    }
}
