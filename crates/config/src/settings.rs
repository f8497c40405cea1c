//! The keys that sites and routes share: the settings of a site, overridden by those of a route.

use std::collections::BTreeMap;

use crate::{
    entries::Entries,
    model::{
        Alias, EncodedSlash, FairBy, OnClientLeft, PathPattern, Policy, PoolId, SerializeBy,
        Settings,
    },
    scalar,
    sink::Sink,
    template::Template,
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

/// Reads the settings of a site, or of a route on top of its site's.
pub(crate) fn read(
    entries: &Entries,
    site: Option<&Overlay>,
    pools: &[String],
    sink: &mut Sink,
) -> Overlay {
    let base = site.map(|site| &site.settings);
    let over = Over {
        entries,
        site: base,
    };

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
    // Settings of the site's root do not apply to another folder.
    let of_the_folder = |key: &str| alias.is_none() || entries.is_written(key);

    let settings = Settings {
        root: over.option("root", Entries::path, |s| &s.root),
        script_root: over
            .option("script_root", script_root, |s| &s.script_root)
            .filter(|_| of_the_folder("script_root")),
        index,
        script: over.value(
            "script",
            |e, k| e.text(k).unwrap_or_default(),
            |s| &s.script,
        ),
        fallback: over
            .option("fallback", Entries::text, |s| &s.fallback)
            .filter(|text| !text.is_empty() && of_the_folder("fallback")),
        check_files: over.option("check_files", check_files, |s| &s.check_files),
        encoded_slash: over.value("encoded_slash", encoded_slash, |s| &s.encoded_slash),
        alias,
        pool,
        params: over.named("params", |s| &s.params, |a, b| a == b),
        pass_headers: over.option("pass_headers", Entries::texts, |s| &s.pass_headers),
        underscores_in_headers: over.value("underscores_in_headers", Entries::bool, |s| {
            &s.underscores_in_headers
        }),
        hide_files: over
            .option("hide_files", Entries::texts, |s| &s.hide_files)
            .unwrap_or_else(default_hide_files),
        deny_scripts: over.list("deny_scripts", |s| &s.deny_scripts),
        error_pages: error_pages(entries, base),
        cache_control: over
            .option("cache_control", Entries::text, |s| &s.cache_control)
            .filter(|text| !text.is_empty()),
        set_headers: over.named("set_headers", |s| &s.set_headers, str::eq_ignore_ascii_case),
        remove_headers: over.list("remove_headers", |s| &s.remove_headers),
        set_request_headers: over.named(
            "set_request_headers",
            |s| &s.set_request_headers,
            str::eq_ignore_ascii_case,
        ),
        charset: over.value(
            "charset",
            |e, k| e.text(k).unwrap_or_default(),
            |s| &s.charset,
        ),
        types: types(entries, base),
        precompressed: over.value("precompressed", Entries::bool, |s| &s.precompressed),
        follow_symlinks: over.value("follow_symlinks", Entries::bool, |s| &s.follow_symlinks),
        max_body: over.value("max_body", Entries::number, |s| &s.max_body),
        body_memory: over.value("body_memory", Entries::count, |s| &s.body_memory),
        response_memory: over.value("response_memory", Entries::count, |s| &s.response_memory),
        max_response_file: over.value("max_response_file", Entries::number, |s| {
            &s.max_response_file
        }),
        buffering: over.value("buffering", Entries::bool, |s| &s.buffering),
        accel_redirect: accel_redirect(entries, base),
        sendfile_dirs: over
            .option("sendfile_dirs", Entries::paths, |s| &s.sendfile_dirs)
            .unwrap_or_default(),
        access_log: over.value("access_log", Entries::bool, |s| &s.access_log),
        policy: policy(entries, base.map(|base| &base.policy)),
    };
    let root_written = entries.is_written("root")
        || entries.is_written("alias")
        || site.is_some_and(|site| site.root_written);
    check(entries, &settings, root_written, sink);
    Overlay {
        settings,
        index_written,
        root_written,
    }
}

/// Looks a key up in a route, then in its site, then in the defaults.
struct Over<'a> {
    entries: &'a Entries,
    site: Option<&'a Settings>,
}

impl Over<'_> {
    fn value<T: Clone>(
        &self,
        key: &str,
        read: impl Fn(&Entries, &str) -> T,
        of: impl Fn(&Settings) -> &T,
    ) -> T {
        match self.site {
            Some(site) if !self.entries.is_written(key) => of(site).clone(),
            _ => read(self.entries, key),
        }
    }

    /// A key without a default: the value written here, else the site's value, which may be `None`.
    fn option<T, O>(
        &self,
        key: &str,
        read: impl Fn(&Entries, &str) -> Option<T>,
        of: impl Fn(&Settings) -> &O,
    ) -> Option<T>
    where
        O: Clone + Into<Option<T>>,
    {
        match self.site {
            Some(site) if !self.entries.is_written(key) => of(site).clone().into(),
            _ => read(self.entries, key),
        }
    }

    fn list(&self, key: &str, of: impl Fn(&Settings) -> &Vec<String>) -> Vec<String> {
        self.option(key, Entries::texts, of).unwrap_or_default()
    }

    /// Names with templates: those of the site, with those written here added or replacing them.
    fn named(
        &self,
        key: &str,
        of: impl Fn(&Settings) -> &Vec<(String, Template)>,
        same: impl Fn(&str, &str) -> bool,
    ) -> Vec<(String, Template)> {
        let mut all = self.site.map(|site| of(site).clone()).unwrap_or_default();
        for (name, value) in self.entries.templates(key) {
            match all.iter_mut().find(|(known, _)| same(known, &name)) {
                Some(slot) => *slot = (name, value),
                None => all.push((name, value)),
            }
        }
        all
    }
}

/// The timeout, priority and order of requests: of a listener or a site, or of a route on top of its site's.
pub(crate) fn policy(entries: &Entries, site: Option<&Policy>) -> Policy {
    let inherits = |key: &str| site.filter(|_| !entries.is_written(key));
    Policy {
        timeout: inherits("timeout")
            .map_or_else(|| entries.duration("timeout"), |site| site.timeout),
        timeout_header: match inherits("timeout_header") {
            Some(site) => site.timeout_header.clone(),
            None => entries
                .text("timeout_header")
                .filter(|name| !name.is_empty()),
        },
        priority: inherits("priority")
            .map_or_else(|| entries.signed("priority") as i16, |site| site.priority),
        priority_by: match (inherits("priority_by"), entries.value("priority_by")) {
            (Some(site), _) => site.priority_by.clone(),
            (None, Some(Value::PriorityRules(rules))) => rules,
            (None, _) => Vec::new(),
        },
        fair_by: match (inherits("fair_by"), entries.value("fair_by")) {
            (Some(site), _) => site.fair_by.clone(),
            (None, Some(Value::FairBy(fair_by))) => fair_by,
            (None, _) => FairBy::default(),
        },
        serialize_by: match (inherits("serialize_by"), entries.value("serialize_by")) {
            (Some(site), _) => site.serialize_by.clone(),
            (None, Some(Value::SerializeBy(by))) => by,
            (None, _) => SerializeBy::Pool,
        },
        on_client_left: match (
            inherits("on_client_left"),
            entries.text("on_client_left").as_deref(),
        ) {
            (Some(site), _) => site.on_client_left,
            (None, Some("cancel")) => OnClientLeft::Cancel,
            (None, Some("finish_if_answering")) => OnClientLeft::FinishIfAnswering,
            (None, _) => OnClientLeft::Finish,
        },
    }
}

pub(crate) fn pool(entries: &Entries, pools: &[String], sink: &mut Sink) -> Option<PoolId> {
    let name = entries.text("pool").filter(|text| !text.is_empty())?;
    let found = pools.iter().position(|pool| *pool == name);
    if found.is_none() {
        let hint = match pools.is_empty() {
            true => format!("add [pool.{name}]"),
            false => scalar::suggestion(&name, pools.iter().map(String::as_str))
                .unwrap_or_else(|| format!("add [pool.{name}]")),
        };
        sink.error_of_whole(entries.span("pool"), format!("unknown pool {name:?}"), hint);
    }
    found.map(PoolId)
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

fn script_root(entries: &Entries, key: &str) -> Option<std::path::PathBuf> {
    entries.text(key).map(Into::into)
}

fn check_files(entries: &Entries, key: &str) -> Option<bool> {
    entries.entry(key).map(|_| entries.bool(key))
}

fn encoded_slash(entries: &Entries, key: &str) -> EncodedSlash {
    match entries.text(key).as_deref() {
        Some("refuse") => EncodedSlash::Refuse,
        _ => EncodedSlash::Pass,
    }
}

fn error_pages(entries: &Entries, site: Option<&Settings>) -> BTreeMap<u16, std::path::PathBuf> {
    let mut pages = site
        .map(|site| site.error_pages.clone())
        .unwrap_or_default();
    if let Some(Value::Pages(written)) = entries.value("error_pages") {
        pages.extend(written);
    }
    pages
}

fn types(entries: &Entries, site: Option<&Settings>) -> BTreeMap<String, String> {
    let mut types = site.map(|site| site.types.clone()).unwrap_or_default();
    types.extend(entries.pairs("types"));
    types
}

fn accel_redirect(entries: &Entries, site: Option<&Settings>) -> Vec<(String, std::path::PathBuf)> {
    let mut folders = site
        .map(|site| site.accel_redirect.clone())
        .unwrap_or_default();
    let Some(Value::Folders(written)) = entries.value("accel_redirect") else {
        return folders;
    };
    for (prefix, folder) in written {
        match folders.iter_mut().find(|(known, _)| *known == prefix) {
            Some(slot) => slot.1 = folder,
            None => folders.push((prefix, folder)),
        }
    }
    folders
}

/// Checks that the settings fit together.
fn check(entries: &Entries, settings: &Settings, root_written: bool, sink: &mut Sink) {
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
    let is_checked = settings.check_files != Some(false);
    if entries.is_written("pool") && settings.pool.is_some() && !root_written && is_checked {
        let message = "`root` is missing: the folder with the scripts";
        sink.error_of_whole(
            entries.span("pool"),
            message,
            "add root = \"/srv/shop/public\"",
        );
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
}

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
