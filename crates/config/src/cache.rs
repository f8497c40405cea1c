//! `[cache]`, and `[site.NAME.cache]` → [`CacheRules`]: what a preset says, and what is written beside it.

mod presets;

use std::{path::Path, sync::Arc};

use crate::{
    entries::Entries,
    model::{Bus, Cache, CachePreset, CacheRules, Config, PathPattern, Settings, Site},
    scalar::{self, Checked, wrong},
    sink::Sink,
    texts::{self, show_size},
};

pub(crate) use presets::WORDS as PRESETS;
pub use presets::tables as preset_tables;

/// The rules of a site, or of a route on top of its site's. `None`: nothing is stored.
pub(crate) fn rules(
    entries: &Entries,
    site: Option<&Settings>,
    sink: &mut Sink,
) -> Option<Arc<CacheRules>> {
    let site = site.and_then(|site| site.cache.as_ref());
    let Some(own) = &entries.cache else {
        return site.cloned();
    };
    let preset = own
        .entry(PRESET)
        .map(|_| own.get::<CachePreset>(PRESET))
        .filter(|_| !own.is_wrong(PRESET));
    let base = match (preset, site) {
        (Some(CachePreset::Off), _) => {
            for row in own.rows().filter(|row| row.name != PRESET) {
                let message = format!("`{}` has no effect with `preset = \"off\"`", row.name);
                sink.warning(own.span(row.name), message, "");
            }
            return None;
        }
        (Some(preset), _) => presets::rules(preset),
        (None, Some(site)) => Arc::clone(site),
        (None, None) => presets::rules(CachePreset::Headers),
    };
    if own.rows().all(|row| row.name == PRESET) {
        return Some(base);
    }
    let mut rules: CacheRules = own.fields(Some(&*base));
    expand_all(&mut rules, &base);
    check(own, &rules, sink);
    Some(Arc::new(rules))
}

/// Puts those of `base` in the place of `"..."`.
fn expand_all(rules: &mut CacheRules, base: &CacheRules) {
    let names = [
        (&mut rules.bypass_cookies, &base.bypass_cookies),
        (&mut rules.bypass_query, &base.bypass_query),
        (&mut rules.drop_query, &base.drop_query),
        (&mut rules.vary_cookies, &base.vary_cookies),
        (&mut rules.purge_params, &base.purge_params),
    ];
    for (list, base) in names {
        expand(list, base, |name| name == REST);
    }
    let paths = [
        (&mut rules.bypass_paths, &base.bypass_paths),
        (&mut rules.purge_on, &base.purge_on),
        (&mut rules.login_paths, &base.login_paths),
    ];
    for (list, base) in paths {
        let is_rest = |path: &PathPattern| matches!(path, PathPattern::Glob(glob) if glob == REST);
        expand(list, base, is_rest);
    }
    for name in &mut rules.ignore_vary {
        name.make_ascii_lowercase();
    }
}

fn expand<T: Clone>(list: &mut Vec<T>, base: &[T], is_rest: impl Fn(&T) -> bool) {
    if let Some(at) = list.iter().position(&is_rest) {
        list.splice(at..=at, base.iter().cloned());
        list.retain(|item| !is_rest(item));
    }
}

fn check(own: &Entries, rules: &CacheRules, sink: &mut Sink) {
    if own.entry("stale_wait").is_some() && rules.grace.is_zero() {
        let message = "`stale_wait` has no effect without `grace`: no expired answer is kept";
        sink.warning(own.span("stale_wait"), message, "add grace = \"1h\"");
    }
    if own.entry("public_if").is_some() && !rules.public_if.is_empty() && rules.ttl.is_zero() {
        let message = "`public_if` has no effect without `ttl`: it says no lifetime";
        sink.warning(own.span("public_if"), message, "add ttl = \"10m\"");
    }
    for key in ["purge_on", "purge_params"] {
        if own.entry(key).is_some() && rules.bypass_cookies.is_empty() {
            let message = format!(
                "only users with an Authorization header can cause what `{key}` says: `bypass_cookies` is empty"
            );
            let hint = "add the cookie of those who are logged in: bypass_cookies = [\"session\"]";
            sink.warning(own.span(key), message, hint);
        }
    }
}

/// `[cache]`
pub(crate) fn cache(entries: &Entries, sink: &mut Sink) -> Cache {
    let cache: Cache = entries.fields(None);
    for key in ["bus_user", "bus_password_file", "bus_stream"] {
        if let Some(entry) = entries.entry(key)
            && !entries.is_written("bus")
        {
            let message = format!("`{key}` has no effect without `bus`");
            sink.warning(entry.key.clone(), message, "");
        }
    }
    if cache.max_object > cache.memory {
        let written = ["max_object", "memory"].into_iter();
        if let Some(key) = written.into_iter().find(|key| entries.entry(key).is_some()) {
            let message = format!(
                "`max_object` ({}) is more than `memory` ({})",
                show_size(cache.max_object),
                show_size(cache.memory)
            );
            sink.error(
                entries.span(key),
                message,
                "raise memory, or lower max_object",
            );
        }
    }
    cache
}

/// Whether a site or a route stores answers.
pub(crate) fn is_used(config: &Config) -> bool {
    let mut all = config.sites.iter().flat_map(all_settings);
    all.any(|settings| settings.cache.is_some())
}

fn all_settings(site: &Site) -> impl Iterator<Item = &Settings> {
    let routes = site.routes.iter().map(|route| &route.settings);
    std::iter::once(&site.settings).chain(routes)
}

/// Reports a cache that nobody uses, and rules for sites without scripts.
pub(crate) fn check_use<'e>(
    cache: &Entries,
    sites: impl Iterator<Item = &'e Entries>,
    config: &Config,
    sink: &mut Sink,
) {
    for (entries, site) in sites.zip(&config.sites) {
        let has_scripts = all_settings(site).any(|settings| settings.pool.is_some());
        if let (Some(own), false, Some(_)) = (&entries.cache, has_scripts, &site.settings.cache) {
            let message = "nothing is stored here: the site has no `pool`, and files need no cache";
            sink.warning_of_whole(own.header.clone(), message, "add pool = \"NAME\"");
        }
    }
    if config.cache.is_none() && !cache.header.is_empty() {
        let message = "no site has `cache`, so nothing is stored";
        let hint =
            "add cache = \"headers\" to a site, or the name of its application: \"wordpress\"";
        sink.warning_of_whole(cache.header.clone(), message, hint);
    }
}

/// `redis://HOST:PORT/DATABASE`, or `unix:PATH`.
pub(crate) fn bus(folder: &Path, text: &str) -> Checked<Bus> {
    const HINT: &str = "for example \"redis://10.0.0.5:6379\" or \"unix:/run/valkey/valkey.sock\"";
    if text.starts_with("unix:") {
        return Ok(Bus {
            server: texts::upstream(folder, text)?,
            database: 0,
        });
    }
    let rest = match text.split_once("://") {
        Some(("redis" | "valkey", rest)) => rest,
        Some(("rediss" | "valkeys", _)) => {
            return wrong(
                "the bus has no TLS",
                "connect through a private network, or through stunnel on this machine",
            );
        }
        _ => return wrong(format!("{text:?} is not the URL of a server"), HINT),
    };
    if rest.contains('@') {
        return wrong(
            "a password does not belong in the URL, which is shown and logged",
            "write bus_user = \"NAME\" and bus_password_file = \"/etc/weir/bus.password\"",
        );
    }
    let (server, database) = rest.split_once('/').unwrap_or((rest, ""));
    let database = match database {
        "" => Some(0),
        text => text.parse().ok(),
    };
    let has_port = server
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.contains(']'));
    let server = match has_port {
        true => server.to_owned(),
        false => format!("{server}:{BUS_PORT}"),
    };
    if server.starts_with([':', '*']) {
        return wrong(format!("{text:?} has no host"), HINT);
    }
    match database {
        Some(database) => Ok(Bus {
            server: texts::upstream(folder, &server)?,
            database,
        }),
        None => wrong(
            format!("{text:?} has no number of a database behind the slash"),
            HINT,
        ),
    }
}

/// The port of Redis and Valkey.
const BUS_PORT: u16 = 6379;

/// The name of a cookie or a parameter, as a glob.
pub(crate) fn name(text: &str) -> Checked<String> {
    match text {
        REST => Ok(text.to_owned()),
        "" => wrong("an empty name", ""),
        "*" => wrong(
            "\"*\" would be every name",
            "to store nothing, write preset = \"off\"",
        ),
        text if text.contains(['=', ';', '&', ',', ' ']) || !texts::is_plain(text) => wrong(
            format!("{text:?} is not a name"),
            "write only the name, for example \"wordpress_logged_in_*\"",
        ),
        text => Ok(text.to_owned()),
    }
}

/// `NAME=VALUE`, as a glob.
pub(crate) fn assignment(text: &str) -> Checked<String> {
    match text.split_once('=') {
        _ if text == REST => Ok(text.to_owned()),
        Some((name, _))
            if !name.is_empty() && !text.contains(['&', ' ']) && texts::is_plain(text) =>
        {
            Ok(text.to_owned())
        }
        _ => wrong(
            format!("{text:?} is not a name with a value"),
            "for example \"action=publish\", or \"publish=*\" for any value",
        ),
    }
}

/// A path pattern as in a route, or `...`.
pub(crate) fn path_pattern(text: &str) -> Checked<PathPattern> {
    match text {
        REST => Ok(PathPattern::Glob(REST.to_owned())),
        text => texts::path_pattern(text),
    }
}

/// A field and a value of it.
pub(crate) fn field_value(name: &str, value: &str) -> Checked<(String, String)> {
    let name = texts::header_name(name)?.to_ascii_lowercase();
    if name == "set-cookie" {
        return wrong("an answer with Set-Cookie is never stored", "");
    }
    match scalar::is_header_value(value) && !value.is_empty() {
        true => Ok((name, value.to_owned())),
        false => wrong(
            format!("{value:?} is not the value of a header"),
            "write the whole value as the application sends it",
        ),
    }
}

const PRESET: &str = "preset";

/// In a list: those of the preset.
const REST: &str = "...";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_dots_are_the_presets_values() {
        let base = ["a", "b"].map(str::to_owned);
        let mut list = ["x", "...", "y"].map(str::to_owned).to_vec();
        expand(&mut list, &base, |name| name == REST);
        assert_eq!(list, ["x", "a", "b", "y"]);
        let mut twice = ["...", "..."].map(str::to_owned).to_vec();
        expand(&mut twice, &base, |name| name == REST);
        assert_eq!(twice, ["a", "b"]);
    }

    #[test]
    fn a_bus_is_a_server_and_a_database() {
        for (text, shown) in [
            ("redis://127.0.0.1", "redis://127.0.0.1:6379"),
            (
                "valkey://cache.internal:7000/3",
                "redis://cache.internal:7000/3",
            ),
            ("redis://[::1]/0", "redis://[::1]:6379"),
            ("redis://localhost", "redis://127.0.0.1:6379"),
            ("unix:valkey.sock", "unix:/etc/weir/valkey.sock"),
        ] {
            let read = bus(Path::new("/etc/weir"), text).ok();
            assert_eq!(read.map(|bus| bus.to_string()).as_deref(), Some(shown));
        }
        for bad in [
            "",
            "127.0.0.1:6379",
            "http://a",
            "redis://",
            "redis://u:p@a",
            "rediss://a",
            "redis://a/b",
            "unix:",
        ] {
            assert!(bus(Path::new("/"), bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_have_no_values() {
        for good in ["utm_*", "SESS*", "a?", "wc-ajax", "filter[*]"] {
            assert!(name(good).is_ok(), "{good}");
        }
        for bad in ["", "*", "a=b", "a b", "a;b", "a&b", "a\n"] {
            assert!(name(bad).is_err(), "{bad}");
        }
        for bad in ["action", "=x", "a=b c"] {
            assert!(assignment(bad).is_err(), "{bad}");
        }
    }
}
