//! The cache of pages: its size and the hit ratio of each site, and what it has for one URL.

use serde_json::Value;

use super::{MOST_IN_FULL, Sheet, count, size, span, text};

/// Appends the section of the cache; nothing if there is none.
pub(super) fn put(out: &mut Sheet, cache: &Value) {
    if !cache.is_object() {
        return;
    }
    out.push('\n');
    store(out, cache);
    sites(out, &cache["sites"]);
}

/// `GET /cache` as text.
pub fn cache(cache: &Value) -> String {
    let mut out = Sheet::of_width(super::WIDTH);
    match cache.is_object() {
        true => {
            store(&mut out, cache);
            sites(&mut out, &cache["sites"]);
        }
        false => out.line("no site has a cache: add cache = \"headers\" to one in weir.toml"),
    }
    out.text
}

/// `GET /cache/why` as text.
pub fn cache_why(said: &Value) -> String {
    let mut out = Sheet::of_width(super::WIDTH);
    let line = format!("{}: {}", text(&said["cache"]), text(&said["why"]));
    out.wrap("", &line);
    out.wrap("site    ", &text(&said["site"]));
    if said["target"].is_string() {
        let page = format!("{}{}", text(&said["host"]), text(&said["target"]));
        out.wrap("page    ", &page);
    }
    if said["stored"].is_object() {
        out.wrap("stored  ", &stored(&said["stored"]));
    }
    out.text
}

fn stored(answer: &Value) -> String {
    let ttl = &answer["ttl"];
    let life = match ttl.as_f64() {
        _ if answer["purged"] == true => "purged".to_owned(),
        Some(ttl @ ..0.0) => format!("expired {} ago", span(&(-ttl).into())),
        _ => format!("fresh for {}", span(ttl)),
    };
    format!(
        "status {}, {}, made {} ago, {life}",
        text(&answer["status"]),
        size(&answer["bytes"]),
        span(&answer["age"]),
    )
}

fn store(out: &mut Sheet, cache: &Value) {
    let line = format!(
        "{} of {} in {} answers; {} made room for others, {}",
        size(&cache["bytes"]),
        size(&cache["max_bytes"]),
        text(&cache["objects"]),
        text(&cache["evictions"]),
        count(cache["purges"].as_u64().unwrap_or(0) as usize, "purge"),
    );
    out.wrap("cache       ", &line);
    let bus = &cache["bus"];
    if bus.is_object() {
        let state = match bus["connected"] == true {
            true => "connected",
            false => "NOT CONNECTED",
        };
        let line = format!(
            "{state}; {} told, {} heard, purges may have been missed {} times",
            text(&bus["told"]),
            text(&bus["heard"]),
            text(&bus["missed"]),
        );
        out.wrap("  bus       ", &line);
    }
}

fn sites(out: &mut Sheet, sites: &Value) {
    let Some(sites) = sites.as_object().filter(|sites| !sites.is_empty()) else {
        return;
    };
    out.line(&format!(
        "{:<24} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "cache of site", "hits", "from it", "stale", "made", "bypass"
    ));
    let sum = |site: &Value, of: &[&str]| -> u64 {
        of.iter().filter_map(|name| site[*name].as_u64()).sum()
    };
    let all = |site: &Value| sum(site, &[SERVED, STALE, MADE].concat());
    let mut sorted: Vec<_> = sites.iter().collect();
    sorted.sort_by_key(|(_, site)| std::cmp::Reverse(all(site)));
    for (name, site) in sorted.iter().take(MOST_IN_FULL) {
        let (served, stale) = (sum(site, SERVED), sum(site, STALE));
        let share = match all(site) {
            0 => "-".to_owned(),
            all => format!("{:.0}%", (served + stale) as f64 * 100.0 / all as f64),
        };
        out.line(&format!(
            "{name:<24} {share:>6} {served:>9} {stale:>9} {:>9} {:>9}",
            sum(site, MADE),
            sum(site, &["bypass"]),
        ));
    }
    if let Some(more @ 1..) = sorted.len().checked_sub(MOST_IN_FULL) {
        out.line(&format!("and {} with fewer requests", count(more, "site")));
    }
}

/// Results whose answer was in the cache, or came for an equal request.
const SERVED: &[&str] = &["hit", "joined", "validated"];
const STALE: &[&str] = &["stale"];
/// Results for which the application made a page.
const MADE: &[&str] = &["expired", "miss"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_cache_is_shown_with_its_sites() {
        let shown = cache(&json!({
            "bytes": 1 << 20, "max_bytes": 128 << 20, "objects": 20, "max_objects": 1000, "evictions": 3, "purges": 1,
            "sites": {
                "idle": {},
                "blog": { "hit": 90, "joined": 4, "stale": 1, "miss": 5, "bypass": 7 },
            },
        }));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[0],
            "cache       1024 KiB of 128.0 MiB in 20 answers; 3 made room for others, 1 purge"
        );
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        assert_eq!(words(lines[2]), ["blog", "95%", "94", "1", "5", "7"]);
        assert_eq!(words(lines[3]), ["idle", "-", "0", "0", "0", "0"]);
        assert!(cache(&Value::Null).contains("no site has a cache"));
    }

    #[test]
    fn a_page_is_explained() {
        let shown = cache_why(&json!({
            "cache": "expired", "why": "a page is stored that has expired", "site": "blog", "host": "blog.example", "target": "/?a",
            "stored": { "status": 200, "age": 700, "ttl": -100, "bytes": 51_200, "purged": false, "fresh": false },
        }));
        let one_line = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "expired: a page is stored that has expired site blog",
            "page blog.example/?a",
            "stored status 200, 50 KiB, made 12 min ago, expired 100.0 s ago",
        ] {
            assert!(one_line.contains(part), "{part}: {shown}");
        }
        let bypass = cache_why(
            &json!({ "cache": "bypass", "why": "the path is one of bypass_paths", "site": "blog" }),
        );
        assert!(
            !bypass.contains("stored") && !bypass.contains("page "),
            "{bypass}"
        );
    }
}
