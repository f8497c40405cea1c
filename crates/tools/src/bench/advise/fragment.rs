//! Writes advice as lines of weir.toml, and merges them into a given one.
//!
//! Merging is done on the text, line by line, so that comments and order stay. It is used to check that the result is
//! valid, and understands the usual notations: tables with headers, dotted keys below their table.

use std::time::Duration;

use weir_config::{Listener, Pm, Pool};

use super::decide::Advice;

/// A key to be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The table: `pool.shop.queue`
    pub table: String,
    /// `timeout`
    pub key: &'static str,
    /// The value as it is written.
    pub value: String,
    /// The present value.
    pub before: String,
}

/// The settings for a pool, and for the loaded listener.
pub fn settings(advice: &Advice, pool: &Pool, listener: Option<&Listener>) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut set = |table: String, key, value: String, before: String| {
        settings.push(Setting {
            table,
            key,
            value,
            before,
        });
    };
    let name = quoted(&pool.name);
    let table = format!("pool.{name}");
    if let Some(workers) = pool.workers() {
        let count = |number: usize| number.to_string();
        set(
            table.clone(),
            "max_children",
            advice.workers.to_string(),
            count(workers.max_children),
        );
        // More than the maximum of workers would be refused.
        let most = advice.workers as usize;
        let lower: &[(&'static str, usize)] = match workers.pm {
            Pm::Dynamic {
                start,
                min_spare,
                max_spare,
            } => &[
                ("start_servers", start),
                ("min_spare_servers", min_spare),
                ("max_spare_servers", max_spare),
            ],
            Pm::Auto { start, .. } => &[("start_servers", start)],
            Pm::Static | Pm::OnDemand => &[],
        };
        for (key, now) in lower {
            if *now > most {
                set(table.clone(), key, count(most), count(*now));
            }
        }
    }
    let queue = &pool.queue;
    let table = format!("{table}.queue");
    set(
        table.clone(),
        "maxconn",
        advice.workers.to_string(),
        queue.maxconn.to_string(),
    );
    if queue.minconn > advice.workers as usize {
        set(
            table.clone(),
            "minconn",
            advice.workers.to_string(),
            queue.minconn.to_string(),
        );
    }
    set(
        table.clone(),
        "max_queue",
        advice.max_queue.to_string(),
        queue.max_queue.to_string(),
    );
    set(
        table,
        "timeout",
        duration(Duration::from_secs_f64(advice.timeout)),
        duration(queue.timeout),
    );
    // A longer backlog costs nothing and is kept.
    if let Some(listener) = listener.filter(|listener| listener.backlog < advice.backlog) {
        set(
            format!("listen.{}", quoted(&listener.name)),
            "backlog",
            advice.backlog.to_string(),
            listener.backlog.to_string(),
        );
    }
    settings
}

/// The settings as lines of weir.toml; comments show the present values.
pub fn toml(settings: &[Setting]) -> String {
    let mut out = String::new();
    for (index, setting) in settings.iter().enumerate() {
        if index == 0 || settings[index - 1].table != setting.table {
            let gap = if index == 0 { "" } else { "\n" };
            out.push_str(&format!("{gap}[{}]\n", setting.table));
        }
        out.push_str(&format!(
            "{} = {}    # now {}\n",
            setting.key, setting.value, setting.before
        ));
    }
    out
}

/// A configuration with the settings in it.
pub fn merge(text: &str, settings: &[Setting]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for setting in settings {
        set(&mut lines, setting);
    }
    lines.join("\n") + "\n"
}

fn set(lines: &mut Vec<String>, setting: &Setting) {
    let path = path(&setting.table);
    // From the innermost table up: `timeout` in [pool.a.queue], `queue.timeout` in [pool.a].
    for depth in (1..=path.len()).rev() {
        let (table, rest) = path.split_at(depth);
        let Some(range) = section(lines, table) else {
            continue;
        };
        let mut key: Vec<String> = rest.to_vec();
        key.push(setting.key.to_owned());
        let line = format!("{} = {}", key.join("."), setting.value);
        if let Some(at) = range.clone().find(|at| key_of(&lines[*at]) == key) {
            lines[at] = line;
            return;
        }
        let is_beside = |at: &usize| !rest.is_empty() && key_of(&lines[*at]).starts_with(rest);
        if rest.is_empty() || range.clone().any(|at| is_beside(&at)) {
            lines.insert(range.start, line);
            return;
        }
    }
    lines.push(format!("\n[{}]", setting.table));
    lines.push(format!("{} = {}", setting.key, setting.value));
}

/// The lines of a table after its header.
fn section(lines: &[String], table: &[String]) -> Option<std::ops::Range<usize>> {
    let is_header = |line: &&String| line.trim_start().starts_with('[');
    let header = lines.iter().position(|line| {
        let line = line.trim();
        let inside = line
            .strip_prefix('[')
            .and_then(|line| line.split(']').next());
        !line.starts_with("[[") && inside.is_some_and(|inside| path(inside) == table)
    })?;
    let rest = &lines[header + 1..];
    let length = rest
        .iter()
        .position(|line| is_header(&line))
        .unwrap_or(rest.len());
    Some(header + 1..header + 1 + length)
}

/// The key that a line sets, in its parts.
fn key_of(line: &str) -> Vec<String> {
    match line.split_once('=') {
        Some((key, _)) if !key.trim_start().starts_with('#') => path(key),
        _ => Vec::new(),
    }
}

/// `pool."a.b".queue` in its parts.
fn path(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quote = None;
    for c in text.trim().chars() {
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            ('.', None) => parts.push(String::new()),
            (' ' | '\t', None) => {}
            (c, _) => {
                if let Some(last) = parts.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    parts
}

/// A name as a key is written.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    match !name.is_empty() && name.chars().all(plain) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

fn duration(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("\"{}s\"", time.as_secs()),
        _ => format!("\"{}ms\"", time.as_millis()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_merged_into_one_that_has_the_setting(text in "(\\[[a.\"q]{0,5}\\]?|[a-z.= #]{0,9}|\n){0,30}") {
            let merged = merge(&text, &[setting("pool.a.queue", "maxconn", "9")]);
            prop_assert!(merged.contains("maxconn = 9"));
        }
    }

    fn setting(table: &str, key: &'static str, value: &str) -> Setting {
        Setting {
            table: table.to_owned(),
            key,
            value: value.to_owned(),
            before: "1".to_owned(),
        }
    }

    #[test]
    fn keys_go_where_they_stand_or_into_their_table() {
        let text = "[pool.a] # first\nmax_children = 3 # three\nqueue.timeout = \"1s\"\n\n[pool.b]\n[pool.b.queue]\nmaxconn = 1\n\n[listen.\"w.1\"]\naddress = \":80\"\n";
        let merged = merge(
            text,
            &[
                setting("pool.a", "max_children", "9"),
                setting("pool.a.queue", "timeout", "\"2s\""),
                setting("pool.a.queue", "maxconn", "9"),
                setting("pool.b.queue", "maxconn", "8"),
                setting("pool.b.queue", "timeout", "\"3s\""),
                setting("listen.\"w.1\"", "backlog", "512"),
                setting("pool.c.queue", "maxconn", "7"),
            ],
        );
        let expected = "[pool.a] # first\nqueue.maxconn = 9\nmax_children = 9\nqueue.timeout = \"2s\"\n\n[pool.b]\n[pool.b.queue]\ntimeout = \"3s\"\nmaxconn = 8\n\n[listen.\"w.1\"]\nbacklog = 512\naddress = \":80\"\n\n[pool.c.queue]\nmaxconn = 7\n";
        assert_eq!(merged, expected);
    }

    #[test]
    fn the_fragment_has_a_table_once_and_what_stood_there() {
        let text = toml(&[
            setting("pool.a", "max_children", "9"),
            setting("pool.a.queue", "maxconn", "9"),
            setting("pool.a.queue", "timeout", "\"2s\""),
        ]);
        assert_eq!(
            text,
            "[pool.a]\nmax_children = 9    # now 1\n\n[pool.a.queue]\nmaxconn = 9    # now 1\ntimeout = \"2s\"    # now 1\n"
        );
    }

    #[test]
    fn names_and_times_are_written_as_toml() {
        assert_eq!(quoted("shop-1"), "shop-1");
        assert_eq!(quoted("a.b\"c"), "\"a.b\\\"c\"");
        assert_eq!(duration(Duration::from_millis(1500)), "\"1500ms\"");
        assert_eq!(duration(Duration::from_secs(2)), "\"2s\"");
    }
}
