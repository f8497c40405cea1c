//! The keys that sites and routes share: the settings of a site, overridden by those of a route.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use crate::{
    cache,
    document::PoolTables,
    entries::Entries,
    model::{Alias, PathPattern, PoolId, Settings},
    scalar,
    sink::Sink,
    texts,
    value::Value,
};

/// Settings while they are read: the model's settings, and which keys are written in the route or its site, valid or
/// not.
#[derive(Clone)]
pub(crate) struct Overlay {
    pub(crate) settings: Settings,
    index_written: bool,
    root_written: bool,
}

/// The NAMEs of all pools. Thousands of sites may look for theirs.
pub(crate) struct PoolNames<'d> {
    /// Those whose servers speak HTTP.
    http: HashSet<PoolId>,
    in_order: Vec<&'d str>,
    ids: HashMap<&'d str, PoolId>,
}

impl<'d> PoolNames<'d> {
    pub(crate) fn of(pools: &'d [PoolTables]) -> Self {
        let is_http = |tables: &PoolTables| {
            let protocol = tables.pool.entries.text("protocol");
            protocol.as_deref() == Some("http")
        };
        let all = pools.iter().enumerate();
        let in_order: Vec<&str> = pools.iter().map(|tables| &*tables.pool.name).collect();
        let ids = in_order.iter().enumerate();
        Self {
            http: all
                .filter(|(_, tables)| is_http(tables))
                .map(|(index, _)| PoolId(index))
                .collect(),
            ids: ids.map(|(index, name)| (*name, PoolId(index))).collect(),
            in_order,
        }
    }

    /// Whether the servers of a pool speak HTTP.
    pub(crate) fn is_http(&self, pool: PoolId) -> bool {
        self.http.contains(&pool)
    }

    fn find(&self, name: &str) -> Option<PoolId> {
        self.ids.get(name).copied()
    }
}

/// Reads the settings of a site, or of a route on top of its site's.
pub(crate) fn read(
    entries: &Entries,
    site: Option<&Overlay>,
    pools: &PoolNames<'_>,
    sink: &mut Sink,
) -> Overlay {
    let base = site.map(|site| &site.settings);
    let pool = match entries.entry("pool") {
        Some(_) => pool(entries, pools, sink),
        None => base.and_then(|base| base.pool),
    };
    let index_written = entries.is_written("index") || site.is_some_and(|site| site.index_written);
    let index = match (entries.texts("index"), base) {
        (Some(index), _) => index,
        (None, Some(base)) if index_written => base.index.clone(),
        _ if pool.is_some() => vec!["index.php".into(), "index.html".into()],
        _ => vec!["index.html".into()],
    };

    let alias = alias(entries, sink);
    let is_http = pool.is_some_and(|pool| pools.is_http(pool));
    let mut settings = Settings {
        index,
        alias,
        is_proxied: is_http,
        strip_prefix: strip_prefix(entries, is_http, sink),
        pool,
        policy: entries.fields(base.map(|base| &base.policy)),
        cache: cache::rules(entries, base, sink),
        ..entries.fields(base)
    };
    if settings.alias.is_some() {
        // Settings of the site's root do not apply to another folder.
        settings.script_root = settings
            .script_root
            .filter(|_| entries.is_written("script_root"));
        settings.fallback = settings.fallback.filter(|_| entries.is_written("fallback"));
    }
    if base.is_none() && entries.entry("hide_files").is_none() {
        settings.hide_files = default_hide_files();
    }
    let root_written = entries.is_written("root")
        || entries.is_written("alias")
        || site.is_some_and(|site| site.root_written);
    check(entries, &settings, (root_written, is_http), sink);
    Overlay {
        settings,
        index_written,
        root_written,
    }
}

pub(crate) fn pool(entries: &Entries, pools: &PoolNames<'_>, sink: &mut Sink) -> Option<PoolId> {
    let name = entries.text("pool").filter(|text| !text.is_empty())?;
    find(&name, ("pool", entries), pools, sink)
}

/// The pool of this name, which is in the value of a key.
pub(crate) fn find(
    name: &str,
    (key, entries): (&str, &Entries),
    pools: &PoolNames<'_>,
    sink: &mut Sink,
) -> Option<PoolId> {
    let found = pools.find(name);
    if found.is_none() {
        let hint = match pools.in_order.is_empty() {
            true => format!("add [pool.{name}]"),
            false => scalar::suggestion(name, pools.in_order.iter().copied())
                .unwrap_or_else(|| format!("add [pool.{name}]")),
        };
        sink.error_of_whole(entries.span(key), format!("unknown pool {name:?}"), hint);
    }
    found
}

/// The folder that replaces a route's prefix.
fn alias(entries: &Entries, sink: &mut Sink) -> Option<Alias> {
    let entry = entries.entry("alias")?;
    let Some(Value::Path(folder)) = entries.value("alias") else {
        return None;
    };
    if let Some(root) = entries.entry("root") {
        let message = "a route can have `root` or `alias`, not both";
        let hint = "`alias` replaces the route's prefix; with `root` the whole path is appended";
        sink.error(root.key.clone(), message, hint);
    }
    let path = match entries.value("path") {
        Some(Value::PathPattern(PathPattern::Glob(path))) => path,
        _ => String::new(),
    };
    match path.strip_suffix('*') {
        Some(prefix) if prefix.ends_with('/') && !prefix.contains(['*', '?']) => Some(Alias {
            prefix: prefix.to_owned(),
            folder,
        }),
        _ if entries.is_wrong("path") => None,
        _ => {
            let message = "`alias` needs a `path` that is a prefix";
            let hint = match path.trim_end_matches('*').trim_matches('/') {
                name if !name.is_empty() && !name.contains(['*', '?']) => {
                    format!("write path = \"/{name}/*\"")
                }
                _ => {
                    "for example path = \"/javascript/*\": it must end in a slash and a star".into()
                }
            };
            sink.error(entry.key.clone(), message, hint);
            None
        }
    }
}

/// The prefix of a route that its pool does not get.
fn strip_prefix(entries: &Entries, is_http: bool, sink: &mut Sink) -> Option<String> {
    let entry = entries
        .entry("strip_prefix")
        .filter(|_| entries.bool("strip_prefix"))?;
    let path = match entries.value("path") {
        Some(Value::PathPattern(PathPattern::Glob(path))) => path,
        _ if entries.is_wrong("path") => return None,
        _ => String::new(),
    };
    if !is_http {
        let message = "`strip_prefix` has no effect: the route's pool does not speak HTTP";
        let hint = "it is for pools with protocol = \"http\"";
        sink.warning(entry.key.clone(), message, hint);
    }
    match path.strip_suffix('*') {
        Some(prefix) if prefix.ends_with('/') && !prefix.contains(['*', '?']) => {
            Some(prefix.to_owned())
        }
        _ => {
            let message = "`strip_prefix` needs a `path` that is a prefix";
            let hint = "for example path = \"/api/*\": it must end in a slash and a star";
            sink.error(entry.key.clone(), message, hint);
            None
        }
    }
}

/// Reports groups in a rewrite or a fallback that the route's expression does not have.
pub(crate) fn check_groups(entries: &Entries, key: &str, sink: &mut Sink) {
    let (Some(entry), Some(text)) = (entries.entry(key), entries.text(key)) else {
        return;
    };
    if entries.is_wrong("path") {
        return;
    }
    let expression = match entries.value("path") {
        Some(Value::PathPattern(PathPattern::Regex(regex))) => scalar::regex(&regex).ok(),
        _ => None,
    };
    for group in texts::groups(&text) {
        let Some(regex) = &expression else {
            let message = format!("`${group}` needs a regular expression in `path`");
            let hint =
                "for example path = \"~^/wiki/(.*)$\" in a route; a literal `$` is written `$$`";
            return sink.error(entry.span.clone(), message, hint);
        };
        let is_there = match group.parse::<usize>() {
            Ok(number) => number < regex.captures_len(),
            Err(_) => regex.capture_names().flatten().any(|name| name == group),
        };
        if !is_there {
            let message = format!(
                "`path` has no group `{group}`, it has {}",
                regex.captures_len() - 1
            );
            let hint = "write a group in parentheses: \"~^/wiki/(.*)$\"";
            sink.error(entry.span.clone(), message, hint);
        }
    }
}

/// Checks that the settings fit together.
fn check(
    entries: &Entries,
    settings: &Settings,
    (root_written, is_http): (bool, bool),
    sink: &mut Sink,
) {
    check_groups(entries, "fallback", sink);
    if let (Some(alias), Some(fallback), Some(entry)) = (
        &settings.alias,
        &settings.fallback,
        entries.entry("fallback"),
    ) && !fallback.starts_with(&alias.prefix)
    {
        let message = format!(
            "with `alias`, the fallback must begin with {:?}",
            alias.prefix
        );
        let hint = format!("write fallback = \"{}index.php\"", alias.prefix);
        sink.error(entry.span.clone(), message, hint);
    }
    let is_checked = settings.check_files != Some(false) && !is_http;
    if entries.is_written("pool") && settings.pool.is_some() && !root_written && is_checked {
        let message = "`root` is missing: the folder with the scripts";
        sink.error_of_whole(
            entries.span("pool"),
            message,
            "add root = \"/srv/shop/public\"",
        );
    }
    for key in ["fallback", "script", "check_files", "params"] {
        if let Some(entry) = entries.entry(key)
            && is_http
        {
            let message =
                format!("`{key}` has no effect here: the servers of this pool speak HTTP");
            let hint = "they get every request that is for no file; remove this key, or write it in a route with a pool for scripts";
            sink.warning(entry.key.clone(), message, hint);
        }
    }
    if let Some(entry) = entries.entry("script_root")
        && settings
            .script_root
            .as_ref()
            .is_some_and(|root| !root.starts_with("/"))
    {
        sink.error(
            entry.span.clone(),
            "`script_root` must begin with a slash",
            "",
        );
    }
    if let Some(entry) = entries.entry("error_pages")
        && !root_written
        && let Value::Pages(pages) = &entry.value
        && pages.values().any(|page| page.is_relative())
    {
        let message = "error pages are relative to `root`, which is missing";
        sink.error_of_whole(entry.span.clone(), message, "write them as absolute paths");
    }
    if let Some(entry) = entries.entry("fallback")
        && let Some(fallback) = &settings.fallback
        && settings.pool.is_none()
        && let path = fallback.split('?').next().unwrap_or_default()
        && scalar::regex(&settings.script).is_ok_and(|script| script.is_match(path))
    {
        let message = format!(
            "{fallback:?} is a script, but no pool runs scripts here: it is answered with 403"
        );
        sink.warning_of_whole(entry.span.clone(), message, "add pool = \"NAME\"");
    }
    let written = ["body_memory", "max_body"]
        .into_iter()
        .find(|key| entries.is_written(key));
    if let Some(key) = written
        && settings.body_memory as u64 > settings.max_body
        && entries.entry(key).is_some()
    {
        let message = "`body_memory` is more than `max_body`, so it is never used fully";
        let hint = match key {
            "body_memory" => "lower body_memory to max_body or less",
            // A small `max_body` with the default of `body_memory` is clear, so there is no warning.
            _ => return,
        };
        sink.warning(entries.span(key), message, hint);
    }
}

/// Dot-files, except `/.well-known/` in the root, and backup copies of editors and administrators. The regex syntax
/// has no look-ahead, so the name is spelled out: any name that begins with a dot and is not `well-known`. The router
/// recognizes these three expressions, in this order, and applies them to files, not to URLs.
pub fn default_hide_files() -> Vec<String> {
    DEFAULT_HIDE_FILES.clone()
}

/// Made once: thousands of sites may have it.
static DEFAULT_HIDE_FILES: LazyLock<Vec<String>> = LazyLock::new(|| {
    const NAME: &str = "well-known";
    let mut pattern = String::from("[^/]");
    for character in NAME.chars().rev() {
        let next = match character {
            '-' => "[^-]".to_owned(),
            other => format!("[^{other}]"),
        };
        pattern = format!("(?:$|{next}|{character}{pattern})");
    }
    // The outermost level belongs to the end of the name: a slash or nothing may follow `/.well-known`.
    vec![
        format!(r"^/\.{pattern}"),
        r"(?s)^/.*/\.".to_owned(),
        r"(?i)(?:~|/#[^/]*#|\.(?:bak|old|orig|save|dist|inc|sw[nop]))$".to_owned(),
    ]
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_files_are_hidden_but_not_well_known() {
        let hidden: Vec<_> = default_hide_files()
            .iter()
            .map(|p| scalar::regex(p).unwrap())
            .collect();
        let hides = |path: &str| hidden.iter().any(|regex| regex.is_match(path));
        for path in [
            "/.git/config",
            "/.env",
            "/a/.htaccess",
            "/.w",
            "/.well",
            "/.well-knowN",
            "/.well-known2/x",
            "/.",
            "/.well-known/.git",
            "/a/.well-known/x",
            "/.welcome",
            "/wp-config.php.bak",
            "/x~",
            "/a.inc",
        ] {
            assert!(hides(path), "{path}");
        }
        for path in [
            "/",
            "/a.b",
            "/.well-known/acme-challenge/x",
            "/.well-known/",
            "/.well-known",
            "/a./b",
        ] {
            assert!(!hides(path), "{path}");
        }
    }
}
