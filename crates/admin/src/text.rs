//! `GET /status` as text for people, in 80 columns: problems first, then pools, sites, the cache, calls and listeners.

mod cache;
mod certificates;
mod egress;
mod pools;
mod processes;
mod programs;

use std::fmt::Write;

use serde_json::Value;
use weir_observe::log_text;

use super::advice::{self, Level};

pub use cache::{cache, cache_why};

/// The status in lines of 80 columns.
pub fn status(status: &Value) -> String {
    status_in(status, WIDTH)
}

/// The status for a terminal with this many columns and rows: problems are at the top. Lines without room are left
/// out, and a line says so.
pub fn status_on_screen(status: &Value, columns: usize, rows: usize) -> String {
    let text = status_in(status, columns.clamp(NARROWEST, WIDEST));
    let (lines, rows) = (text.lines().count(), rows.max(SHORTEST));
    // The last row stays empty: a newline there would scroll the screen.
    if lines < rows {
        return text;
    }
    let shown = rows - 2;
    let mut screen: String = text.split_inclusive('\n').take(shown).collect();
    let _ = writeln!(screen, "and {} more lines: weir status", lines - shown);
    screen
}

fn status_in(status: &Value, width: usize) -> String {
    let mut out = Sheet::of_width(width);
    let troubles = advice::troubles(status);
    head(&mut out, status, troubles.len());
    for trouble in troubles.iter().take(MOST_TROUBLES) {
        out.push('\n');
        out.wrap(mark(trouble.cost.level()), &trouble.what);
        out.wrap("  ", &format!("> {}", trouble.help));
    }
    if let Some(more @ 1..) = troubles.len().checked_sub(MOST_TROUBLES) {
        out.push('\n');
        let line = format!(
            "and {more} more problems, none of which costs visitors more: weir status --json"
        );
        out.wrap("", &line);
    }
    reloads(&mut out, status);
    pools::put(&mut out, list(&status["pools"]), &troubles);
    programs::put(&mut out, list(&status["programs"]));
    sites(&mut out, list(&status["sites"]));
    cache::put(&mut out, &status["cache"]);
    egress::egress(&mut out, &status["egress"]);
    listeners(&mut out, status);
    out.text
}

/// What stands before a problem.
fn mark(level: Level) -> &'static str {
    match level {
        Level::Critical => "!! ",
        Level::Warning => "! ",
        Level::Notice => "- ",
    }
}

/// The first names, and how many there are more.
fn first_of(names: &[String]) -> String {
    let first = &names[..names.len().min(MOST_NAMES)];
    match names.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

fn count(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Reduces the status to one pool.
///
/// # Errors
/// The names of all pools, if there is no pool with this name.
pub fn of_pool(status: &mut Value, name: &str) -> Result<(), Vec<String>> {
    let is_it = |pool: &Value| pool["name"] == name;
    let pools = list(&status["pools"]);
    if !pools.iter().any(is_it) {
        return Err(pools.iter().map(|pool| text(&pool["name"])).collect());
    }
    if let Some(pools) = status["pools"].as_array_mut() {
        pools.retain(is_it);
    }
    if let Some(troubles) = status["troubles"].as_array_mut() {
        troubles.retain(|trouble| trouble["pool"].is_null() || trouble["pool"] == name);
    }
    if let Some(status) = status.as_object_mut() {
        for other in ["sites", "cache", "egress", "listeners", "kernel"] {
            status.remove(other);
        }
    }
    Ok(())
}

fn head(out: &mut Sheet, status: &Value, troubles: usize) {
    let ready = match (&status["ready"], &status["not_ready"]) {
        (Value::Bool(true), _) => ", ready".to_owned(),
        (Value::Bool(false), why) => format!(", NOT READY: {}", text(why)),
        _ => String::new(),
    };
    let troubles = match troubles {
        0 => String::new(),
        1 => ", 1 problem".to_owned(),
        count => format!(", {count} problems"),
    };
    let line = format!(
        "weir {}, {}, process {}, up {}{ready}{troubles}",
        text(&status["version"]),
        text(&status["state"]),
        text(&status["manager_pid"]),
        span(&status["uptime"]),
    );
    out.wrap("", &line);
    let connections = &status["connections"];
    let reached = connections["limit_reached"].as_u64().unwrap_or(0);
    if reached > 0 {
        let line = format!(
            "max_connections was reached {reached} times; {} idle connections were closed to make room",
            text(&connections["closed_for_others"]),
        );
        out.wrap("", &line);
    }
    let now = connections["now"].as_u64().unwrap_or(0);
    let idle = connections["idle"].as_u64().unwrap_or(0).min(now);
    let _ = write!(
        out,
        "connections {now} of {}, {} of them active",
        text(&connections["max"]),
        now - idle,
    );
    let spool = &status["spool"];
    if spool["bytes"].as_u64() > Some(0) {
        let _ = write!(
            out,
            "; spool {} of {}",
            size(&spool["bytes"]),
            size(&spool["max"])
        );
    }
    out.push('\n');
    bodies(out, &status["bodies"]);
    if let Some(tls) = status["tls"].as_object() {
        let count = |kind: &str| tls.get(kind).map_or_else(String::new, text);
        let _ = writeln!(
            out,
            "TLS         {} full handshakes, {} resumed, {} failed",
            count("full"),
            count("resumed"),
            count("failed"),
        );
    }
    certificates::show(out, status);
    compression(out, &status["compression"]);
    reactors(out, &status["reactors"]);
    let processes = &status["processes"];
    if processes.is_object() {
        let _ = writeln!(
            out,
            "memory      gateway {}, manager {}",
            size(&processes["gateway"]["memory"]),
            size(&processes["manager"]["memory"]),
        );
    }
    if status["oom_kills"].as_u64() > Some(0) {
        let line = format!(
            "the kernel has killed {} processes of weir because memory ran out",
            text(&status["oom_kills"])
        );
        out.wrap("            ", &line);
    }
}

/// Requests whose body is being read, and the oldest of them.
fn bodies(out: &mut Sheet, bodies: &Value) {
    let oldest = &bodies["oldest"][0];
    if oldest.is_object() {
        let line = format!(
            "{} being read, the oldest for {}: {} {}",
            text(&bodies["reading"]),
            span(&oldest["time"]),
            text(&oldest["method"]),
            text(&oldest["uri"]),
        );
        out.wrap("bodies      ", &line);
    }
}

/// How many answers were compressed, and how much shorter that made them.
fn compression(out: &mut Sheet, compression: &Value) {
    let codings = compression.as_object().into_iter().flatten();
    let sum = |key: &str| -> u64 {
        let counts = codings
            .clone()
            .filter_map(|(_, counts)| counts[key].as_u64());
        counts.sum()
    };
    let answers = sum("answers");
    if answers > 0 {
        let _ = writeln!(
            out,
            "compressed  {answers} answers, {} to {}",
            size(&sum("bytes_in").into()),
            size(&sum("bytes_out").into()),
        );
    }
}

/// How many reactors accept connections, and how busy the busiest one is.
fn reactors(out: &mut Sheet, reactors: &Value) {
    let Some(running) = reactors["running"].as_u64() else {
        return;
    };
    let shares = list(&reactors["busy"]).iter();
    let busiest = shares.filter_map(|busy| busy["share"].as_f64());
    let busiest = busiest.fold(0.0, f64::max) * 100.0;
    let _ = match reactors["elastic"] == true {
        true => write!(
            out,
            "reactors    {running} of at most {}",
            text(&reactors["most"])
        ),
        false => write!(out, "reactors    {running}"),
    };
    let _ = match running {
        1 => writeln!(out, ", busy {busiest:.0} % of the time"),
        _ => writeln!(out, ", the busiest {busiest:.0} % of the time"),
    };
}

/// Result of the last reload if it failed, and earlier configurations that are finishing.
fn reloads(out: &mut Sheet, status: &Value) {
    let (reloads, old) = (&status["reloads"], list(&status["old_generations"]));
    let last = &reloads["last"];
    if reloads["waiting"] == true || last["done"] == false || !old.is_empty() {
        out.push('\n');
    }
    if last["done"] == false {
        let line = format!(
            "failed {} ago and changed nothing: {}",
            span(&last["ago"]),
            text(&last["text"])
        );
        out.wrap("reload      ", &line);
    }
    if reloads["waiting"] == true {
        let line = "one is waiting until an older configuration has ended (max_old_generations)";
        out.wrap("reload      ", line);
    }
    for old in old.iter().take(MOST_OLD) {
        let longest = match &old["longest"] {
            Value::Object(longest) => format!(
                "; {} has run for {}",
                text(&longest["request"]),
                span(&longest["time"])
            ),
            _ => String::new(),
        };
        let calls = match old["calls"] == true {
            true => ", calls of the application",
            false => "",
        };
        let ends = match old["ends_in"].as_f64() {
            Some(0.0) => "is being ended".to_owned(),
            _ => format!("ends in at most {}", span(&old["ends_in"])),
        };
        let line = format!(
            "configuration {} has been finishing for {}, {ends}: {} connections, {} requests \
             at workers{calls}{longest}",
            text(&old["generation"]),
            span(&old["finishing_for"]),
            text(&old["connections"]),
            text(&old["requests"]),
        );
        out.wrap("old         ", &line);
    }
    if old.len() > MOST_OLD {
        let _ = writeln!(out, "old         and {} more", old.len() - MOST_OLD);
    }
}

fn pool(out: &mut Sheet, pool: &Value) {
    let _ = writeln!(
        out,
        "pool {}: {}, {}, generation {}",
        text(&pool["name"]),
        text(&pool["runtime"]),
        text(&pool["state"]),
        text(&pool["generation"]),
    );
    pool_workers(out, pool);
    running(out, &pool["running"]);
    pool_queue(out, &pool["queue"]);
    pool_requests(out, &pool["requests"]);
    pool_rates(out, pool);
    if pool["memory"].is_object() {
        let _ = writeln!(
            out,
            "  memory    {}, a worker {}; processor {}",
            size(&pool["memory"]["all"]),
            size(&pool["memory"]["worker"]),
            span(&pool["cpu"]),
        );
    }
    for server in list(&pool["servers"]) {
        pool_server(out, server);
    }
    for script in list(&pool["crashing"]) {
        let line = format!(
            "{} crashes its workers ({} so far): refused, tried again in {} s",
            text(&script["path"]),
            text(&script["crashes"]),
            text(&script["tried_in"]),
        );
        out.wrap("  refused   ", &line);
    }
    for decision in list(&pool["decisions"]) {
        let time = text(&decision["time"]);
        out.wrap("  ", &format!("{time} {}", text(&decision["what"])));
    }
    processes::put(out, list(&pool["processes"]));
}

fn pool_workers(out: &mut Sheet, pool: &Value) {
    let workers = &pool["workers"];
    // Less than configured: the limit that `pm = "auto"` has found useful.
    let limit = match workers["limit"].as_u64() < workers["max"].as_u64() {
        true => format!(", for now {}", text(&workers["limit"])),
        false => String::new(),
    };
    let set = match workers["set_by_operator"] == true {
        true => ", set by an operator",
        false => "",
    };
    let line = format!(
        "{} busy, {} idle, {} starting; at most {}{limit} ({}{set}), {} busy at once so far",
        text(&workers["busy"]),
        text(&workers["idle"]),
        text(&workers["starting"]),
        text(&workers["max"]),
        text(&pool["pm"]),
        text(&workers["most_busy"]),
    );
    out.wrap("  workers   ", &line);
    let load = &pool["php_load"];
    if load["template"].is_u64() {
        let line = format!(
            "loaded once for several pools, by process {}",
            text(&load["template"])
        );
        out.wrap("  PHP       ", &line);
    } else if load["own"].is_string() {
        let line = format!("loaded for this pool alone: {}", text(&load["own"]));
        out.wrap("  PHP       ", &line);
    }
    let zygote = &pool["zygote"];
    if zygote["pid"].is_u64() {
        let line = format!(
            "process {} has booted the application; workers are forked from it",
            text(&zygote["pid"])
        );
        out.wrap("  zygote    ", &line);
    } else if zygote["declined"].is_string() {
        let line = format!(
            "none, each worker boots for itself: {}",
            text(&zygote["declined"])
        );
        out.wrap("  zygote    ", &line);
    }
}

fn pool_queue(out: &mut Sheet, queue: &Value) {
    // A predicted wait that is shorter than the present one is useless.
    let (oldest, expected) = (&queue["oldest_wait"], &queue["expected_wait"]);
    let expected = match queue["waiting"].as_u64() {
        None | Some(0) => String::new(),
        Some(_) if expected.as_f64() > oldest.as_f64() => format!(
            ", the first for {} so far; expected wait of a new request {}",
            span(oldest),
            span(expected)
        ),
        Some(_) => format!(", the first for {} so far", span(oldest)),
    };
    let overloaded = match queue["overloaded"] == true {
        true => "; OVERLOADED",
        false => "",
    };
    let line = format!(
        "{} waiting of at most {}, for at most {}{expected}; highest so far {}, longest wait {}{overloaded}",
        text(&queue["waiting"]),
        text(&queue["max"]),
        span(&queue["timeout"]),
        text(&queue["most_waiting"]),
        span(&queue["longest_wait"]),
    );
    out.wrap("  queue     ", &line);
}

fn pool_requests(out: &mut Sheet, requests: &Value) {
    // Lost requests include those whose worker was stopped because the client had left.
    let cancelled = match requests["cancelled"].as_u64() {
        None | Some(0) => String::new(),
        Some(count) => format!(" ({count} cancelled)"),
    };
    let line = format!(
        "{} taken, {} answered, {} refused, {} lost{cancelled}, {} slow, {} clients left",
        text(&requests["taken"]),
        text(&requests["finished"]),
        text(&requests["refused"]),
        text(&requests["lost"]),
        text(&requests["slow"]),
        requests["left"].as_u64().unwrap_or(0) + requests["left_running"].as_u64().unwrap_or(0),
    );
    out.wrap("  requests  ", &line);
    if let Some(reasons) = requests["refused_by"].as_object() {
        let reasons = reasons.iter().filter(|(_, count)| count.as_u64() > Some(0));
        let reasons: Vec<String> = reasons
            .map(|(reason, count)| format!("{} {}", text(count), reason.replace('_', " ")))
            .collect();
        if !reasons.is_empty() {
            out.wrap("  refused   ", &reasons.join(", "));
        }
    }
}

fn pool_rates(out: &mut Sheet, pool: &Value) {
    let (rates, times) = (&pool["rates"], &pool["times"]);
    if rates.is_object() {
        let _ = writeln!(
            out,
            "  a second  {} taken, {} answered, {} refused (the last ten)",
            rate(&rates["taken"]),
            rate(&rates["finished"]),
            rate(&rates["refused"]),
        );
    }
    let last_minute = &pool["last_minute"]["times"];
    let mut percentiles = |times: &Value, of: &str| {
        if times["total"]["count"].as_u64() > Some(0) {
            let both = |time: &Value| format!("{} / {}", span(&time["p50"]), span(&time["p95"]));
            let line = format!(
                "waiting {}, at a worker {}, in all {} ({of})",
                both(&times["queue"]),
                both(&times["service"]),
                both(&times["total"]),
            );
            out.wrap("  p50 / p95 ", &line);
        }
    };
    percentiles(last_minute, "the last minute");
    percentiles(times, "since the start");
}

fn pool_server(out: &mut Sheet, server: &Value) {
    let line = format!(
        "{}: {}, {} busy of at most {}; {} requests, {} failed, {} times down{}",
        text(&server["name"]),
        text(&server["state"]),
        text(&server["busy"]),
        text(&server["limit"]),
        text(&server["requests"]),
        text(&server["failures"]),
        text(&server["downs"]),
        bad_check(&server["last_check"]),
    );
    out.wrap("  server    ", &line);
}

/// Running requests, the oldest first, and their scripts.
fn running(out: &mut Sheet, running: &Value) {
    let oldest = &running["oldest"];
    if !oldest.is_object() {
        return;
    }
    let mut line = format!(
        "{} now, the oldest for {}: {} {}",
        text(&running["count"]),
        span(&oldest["time"]),
        text(&oldest["method"]),
        text(&oldest["uri"]),
    );
    if oldest["pid"].as_u64() > Some(0) {
        let _ = write!(line, " (process {})", text(&oldest["pid"]));
    }
    let scripts = list(&running["scripts"]).iter();
    let scripts: Vec<String> = scripts
        .map(|script| format!("{} {}", text(&script["count"]), text(&script["script"])))
        .collect();
    let _ = write!(line, "; {}", scripts.join(", "));
    out.wrap("  running   ", &line);
}

/// Result of the last check, if it was not good.
fn bad_check(check: &Value) -> String {
    match check["good"] == true || !check.is_object() {
        true => String::new(),
        false => format!("; checked: {}", text(&check["what"])),
    }
}

fn sites(out: &mut Sheet, sites: &[Value]) {
    if sites.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n{:<24} {:>9} {:>9} {:>7} {:>7} {:>9} {:>9}",
        "site", "requests", "a second", "4xx", "5xx", "p50", "p95"
    );
    let is_long = sites.len() > MOST_IN_FULL;
    let is_unused = |site: &&Value| is_long && site["requests"] == 0;
    let mut used: Vec<&Value> = sites.iter().filter(|site| !is_unused(site)).collect();
    if is_long {
        let lately = |site: &Value| site["rates"]["requests"].as_f64().unwrap_or(0.0);
        let all = |site: &Value| site["requests"].as_u64().unwrap_or(0);
        used.sort_by(|one, other| {
            let rates = lately(other).total_cmp(&lately(one));
            rates.then(all(other).cmp(&all(one)))
        });
    }
    for site in used.iter().take(MOST_IN_FULL) {
        let total = &site["last_minute"]["times"]["total"];
        let statuses = &site["statuses"];
        let line = format!(
            "{:<24} {:>9} {:>9} {:>7} {:>7} {:>9} {:>9}",
            text(&site["name"]),
            text(&site["requests"]),
            rate(&site["rates"]["requests"]),
            text(&statuses["4xx"]),
            text(&statuses["5xx"]),
            span(&total["p50"]),
            span(&total["p95"]),
        );
        out.line(&line);
    }
    if let Some(more @ 1..) = used.len().checked_sub(MOST_IN_FULL) {
        out.line(&format!("and {} with fewer requests", count(more, "site")));
    }
    let unused = sites.len() - used.len();
    if unused > 0 {
        out.line(&format!("{} without requests", count(unused, "site")));
    }
}

fn listeners(out: &mut Sheet, status: &Value) {
    let listeners = list(&status["listeners"]);
    if !listeners.is_empty() {
        out.push('\n');
    }
    for listener in listeners.iter().take(MOST_IN_FULL) {
        let queue = &listener["queue"];
        let waiting = match queue.is_object() {
            true => format!(
                "; {} of {} in the kernel's queue, highest so far {}",
                text(&queue["length"]),
                text(&queue["limit"]),
                text(&queue["most"]),
            ),
            false => String::new(),
        };
        let line = format!(
            "listens on {} ({}, {}): {}{waiting}",
            text(&listener["address"]),
            text(&listener["name"]),
            text(&listener["protocol"]),
            first_of(
                &list(&listener["serves"])
                    .iter()
                    .map(text)
                    .collect::<Vec<_>>()
            ),
        );
        out.wrap("", &line);
    }
    if let Some(more @ 1..) = listeners.len().checked_sub(MOST_IN_FULL) {
        let _ = writeln!(out, "and {}", count(more, "more listener"));
    }
    let overflows = &status["kernel"]["overflows"];
    if overflows.as_u64() > Some(0) {
        let line = format!(
            "the kernel rejected {} connections because an accept queue was full (all programs on this machine)",
            text(overflows)
        );
        out.wrap("", &line);
    }
}

/// The output, with a line width.
struct Sheet {
    text: String,
    width: usize,
}

impl Sheet {
    fn of_width(width: usize) -> Sheet {
        Sheet {
            text: String::new(),
            width,
        }
    }

    fn push(&mut self, c: char) {
        self.text.push(c);
    }

    /// Writes a text in lines that fit, indented by the width of `label`.
    fn wrap(&mut self, label: &str, words: &str) {
        let indent = label.chars().count();
        let mut column = indent;
        self.text.push_str(label);
        for (index, word) in words.split(' ').enumerate() {
            let length = word.chars().count();
            if index > 0 && column + 1 + length > self.width {
                let _ = write!(self.text, "\n{:indent$}", "");
                column = indent;
            } else if index > 0 {
                self.push(' ');
                column += 1;
            }
            self.text.push_str(word);
            column += length;
        }
        self.push('\n');
    }

    /// Writes a line, cut to the width.
    fn line(&mut self, line: &str) {
        match line.chars().count() > self.width {
            true => {
                self.text.extend(line.chars().take(self.width - 1));
                self.push('…');
            }
            false => self.text.push_str(line.trim_end()),
        }
        self.push('\n');
    }
}

impl Write for Sheet {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.text.push_str(text);
        Ok(())
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The value of a field, safe for a terminal: a URL is text from a client.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => log_text::shown(text),
        Value::Null => "-".into(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Seconds in readable form.
pub(super) fn span(value: &Value) -> String {
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

/// Bytes in readable form.
pub(super) fn size(value: &Value) -> String {
    let Some(bytes) = value.as_u64() else {
        return "-".into();
    };
    match bytes as f64 {
        b if b < 10_240.0 => format!("{b:.0} B"),
        b if b < 10_485_760.0 => format!("{:.0} KiB", b / 1024.0),
        b if b < 10_737_418_240.0 => format!("{:.1} MiB", b / 1_048_576.0),
        b => format!("{:.1} GiB", b / 1_073_741_824.0),
    }
}

/// A rate per second.
fn rate(value: &Value) -> String {
    match value.as_f64() {
        None => "-".into(),
        Some(rate) if rate >= 100.0 => format!("{rate:.0}"),
        Some(rate) => format!("{rate:.1}"),
    }
}

/// Default width of a terminal.
const WIDTH: usize = 80;

/// Minimum of columns and rows that is assumed, and maximum width of the text.
const NARROWEST: usize = 40;
const WIDEST: usize = 120;
const SHORTEST: usize = 6;
/// With more sites than this, those that nobody uses are not shown one by one. Also the maximum number of lines of a table.
const MOST_IN_FULL: usize = 20;
/// Maximum number of problems that are shown.
const MOST_TROUBLES: usize = 10;
/// Maximum number of names in a line.
const MOST_NAMES: usize = 20;
/// Maximum number of earlier configurations that are shown.
const MOST_OLD: usize = 8;

#[cfg(test)]
mod tests;
