//! The pools: a few of them whole, many of them as a table with one line each.

use std::{collections::HashMap, fmt::Write};

use serde_json::Value;

use super::{MOST_IN_FULL, Sheet, count, first_of, rate, span, text};
use crate::advice::{Cost, Trouble};

pub(super) fn put(out: &mut Sheet, pools: &[Value], troubles: &[Trouble]) {
    if pools.len() <= MOST_WHOLE {
        for pool in pools {
            out.push('\n');
            super::pool(out, pool);
        }
        return;
    }
    // What its worst problem costs.
    let mut costs: HashMap<&str, Cost> = HashMap::new();
    for trouble in troubles.iter().rev() {
        if let Some(pool) = &trouble.pool {
            costs.insert(pool, trouble.cost);
        }
    }
    let cost = |pool: &Value| costs.get(pool["name"].as_str()?).copied();
    let rests = |pool: &&Value| is_at_rest(pool) && cost(pool).is_none();
    let mut shown: Vec<&Value> = pools.iter().filter(|pool| !rests(pool)).collect();
    shown.sort_by(|one, other| {
        let key = |pool| (cost(pool).is_none(), cost(pool));
        let busy = |pool: &Value| pool["rates"]["finished"].as_f64().unwrap_or(0.0);
        key(one)
            .cmp(&key(other))
            .then(busy(other).total_cmp(&busy(one)))
    });
    table(out, &shown, cost);
    let resting: Vec<String> = (pools.iter().filter(rests))
        .map(|pool| text(&pool["name"]))
        .collect();
    if !resting.is_empty() {
        let line = format!(
            "{} without processes: {}",
            count(resting.len(), "pool"),
            first_of(&resting)
        );
        out.wrap("", &line);
    }
    out.line("weir status --pool NAME shows one");
}

fn table(out: &mut Sheet, pools: &[&Value], cost: impl Fn(&Value) -> Option<Cost>) {
    let _ = writeln!(
        out,
        "\n{:<24} {:<8} {:>9} {:>7} {:>8} {:>8} {:>9}",
        "pool", "state", "busy", "waiting", "a second", "refused", "p95"
    );
    for pool in pools.iter().take(MOST_IN_FULL) {
        let state = match cost(pool) {
            _ if pool["state"] == "down" => "down",
            Some(cost) => cost.level().as_str(),
            None if is_at_rest(pool) => "at rest",
            None => "fine",
        };
        let workers = &pool["workers"];
        let line = format!(
            "{:<24} {state:<8} {:>9} {:>7} {:>8} {:>8} {:>9}",
            text(&pool["name"]),
            format!("{} of {}", text(&workers["busy"]), text(&workers["max"])),
            text(&pool["queue"]["waiting"]),
            rate(&pool["rates"]["finished"]),
            rate(&pool["rates"]["refused"]),
            span(&pool["last_minute"]["times"]["total"]["p95"]),
        );
        out.line(&line);
    }
    if let Some(more @ 1..) = pools.len().checked_sub(MOST_IN_FULL) {
        out.line(&format!("and {} with fewer requests", count(more, "pool")));
    }
}

/// Whether nothing happens in a pool.
fn is_at_rest(pool: &Value) -> bool {
    let no_workers = ["busy", "idle", "starting"].map(|state| pool["workers"][state] == 0);
    pool["state"] == "up"
        && pool["runtime"] != "servers"
        && no_workers == [true; 3]
        && pool["queue"]["waiting"] == 0
}

/// More pools than this are a table.
const MOST_WHOLE: usize = 5;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::text::{WIDTH, status};

    fn pool(index: usize, busy: u64) -> Value {
        json!({
            "name": format!("p{index}"), "runtime": "php", "state": if index == 7 { "down" } else { "up" },
            "workers": { "busy": busy, "idle": 0, "starting": 0, "max": 5, "limit": 5, "running_limit": 5 },
            "queue": { "waiting": if index == 8 { 3 } else { 0 }, "oldest_wait": 1.0 },
            "rates": { "finished": index as f64, "refused": 0.0 },
            "last_minute": { "finished": 9 },
        })
    }

    #[test]
    fn many_pools_are_a_short_table_with_the_worst_first() {
        let pools: Vec<Value> = (0..100).map(|index| pool(index, 1)).collect();
        let shown = status(&json!({ "pools": pools }));
        assert!(shown.lines().count() < 50, "{shown}");
        assert!(
            shown.lines().all(|line| line.chars().count() <= WIDTH),
            "{shown}"
        );
        let rows: Vec<&str> = shown
            .lines()
            .skip_while(|line| !line.starts_with("pool "))
            .collect();
        let begin = |row: &str| row.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let first = rows[1..4].iter().map(|row| begin(row)).collect::<Vec<_>>();
        assert_eq!(first, ["p7 down", "p8 warning", "p99 fine"], "{shown}");
        assert!(
            shown.contains("and 80 pools with fewer requests"),
            "{shown}"
        );
        assert!(
            shown.contains("\n!! pool p7: no worker can be started"),
            "{shown}"
        );
        assert!(shown.contains("\n! pool p8: 3 wait"), "{shown}");
    }

    #[test]
    fn problems_of_many_pools_do_not_fill_the_screen() {
        let waits = |index: usize| {
            let mut pool = pool(index + 1_000, 1);
            pool["queue"]["waiting"] = 1.into();
            pool
        };
        let pools: Vec<Value> = (0..100).map(waits).collect();
        let shown = status(&json!({ "pools": pools }));
        assert!(shown.lines().count() < 80, "{shown}");
        assert!(shown.contains("and 90 more problems"), "{shown}");
    }
}
