//! Programs in `weir status`, a line or two for each.

use serde_json::Value;

use super::{Sheet, list, size, span, text};

pub(super) fn put(out: &mut Sheet, programs: &[Value]) {
    if !programs.is_empty() {
        out.push('\n');
    }
    for program in programs {
        let mut line = format!("{}: {}", text(&program["name"]), text(&program["state"]));
        line += &match list(&program["processes"]) {
            [] => String::new(),
            [one] => format!(
                " for {} (process {})",
                span(&one["time"]),
                text(&one["pid"])
            ),
            many => {
                let pids: Vec<String> = many.iter().map(|one| text(&one["pid"])).collect();
                format!(" ({} processes: {})", many.len(), pids.join(", "))
            }
        };
        if program["memory"].is_u64() {
            line += &format!(", {}", size(&program["memory"]));
        }
        if program["schedule"].is_string() {
            let (schedule, next) = (text(&program["schedule"]), span(&program["next_in"]));
            line += &format!("; {schedule}, next in {next}");
        }
        let count = |key: &str| program[key].as_u64().filter(|count| *count > 0);
        let words = [
            ("started", "started"),
            ("failed", "failed"),
            ("skipped", "skipped"),
            ("killed", "killed"),
        ];
        let counts = words
            .iter()
            .filter_map(|(key, word)| Some(format!("{} {word}", count(key)?)));
        let counts: Vec<String> = counts.collect();
        if !counts.is_empty() {
            line += &format!("; {}", counts.join(", "));
        }
        out.wrap("program ", &line);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::status;

    #[test]
    fn each_program_has_its_line() {
        let shown = status(&json!({ "programs": [
            { "name": "queue", "state": "running", "processes": [{ "pid": 7, "time": 60.0 }], "memory": 31457280, "started": 3, "failed": 0 },
            { "name": "cron", "state": "waiting", "schedule": "*/5 * * * *", "next_in": 100, "started": 2, "failed": 1,
              "skipped": 4, "processes": [], "last_end": { "how": "exit code 1", "failure": true, "ago": 200.0 } },
        ] }));
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for line in [
            "program queue: running for 60.0 s (process 7), 30.0 MiB; 3 started",
            "program cron: waiting; */5 * * * *, next in 100.0 s; 2 started, 1 failed, 4 skipped",
        ] {
            assert!(shown.contains(line), "{shown}");
        }
    }
}
