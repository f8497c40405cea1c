//! Reports settings in `[egress]` and the tables of its hosts that do not fit together.

mod hosts;

use core::{net::IpAddr, ops::Range, time::Duration};

use crate::{
    document::{Document, EgressTables},
    entries::Entries,
    model::{
        Address, AllowRule, Egress, HostSettings, OriginHost, Secret, SecretPiece, SocketPath,
    },
    origin::covers,
    scalar::suggestion,
    sink::Sink,
    value::Value,
};

/// Runs all checks.
pub(super) fn check(document: &Document, tables: &EgressTables, egress: &Egress, sink: &mut Sink) {
    let entries = &tables.egress;
    listen(document, entries, egress, sink);
    allow(document, entries, egress, sink);
    not_everywhere(entries, egress, sink);
    answers(tables, egress, sink);
    table(entries, &egress.defaults, sink);
    hosts::defaults(entries, egress, sink);
    for (named, host) in tables.hosts.iter().zip(&egress.hosts) {
        table(&named.entries, &host.settings, sink);
    }
    hosts::hosts(tables, egress, sink);
    hosts::upgrade(entries, egress, sink);
}

fn listen(document: &Document, entries: &Entries, egress: &Egress, sink: &mut Sink) {
    if egress.listen.is_empty() && !entries.is_wrong("listen") {
        let message = "this list is empty, so no call could be made";
        let hint = "remove `listen` to use 127.0.0.1:8083";
        sink.error(entries.span("listen"), message, hint);
    }
    let written = entries.entry("listen");
    let has_token = entries.is_written("token_file");
    for (index, address) in egress.listen.iter().enumerate() {
        let place = written.and_then(|entry| entry.parts.get(index));
        let place = place.cloned().unwrap_or_else(|| entries.header.clone());
        if let Address::Tcp(socket) = address
            && !socket.ip().to_canonical().is_loopback()
            && !has_token
        {
            let message =
                format!("{socket} can be reached from other machines, which could make calls");
            let hint = format!(
                "write \"127.0.0.1:{}\", or add token_file = \"/etc/weir/egress.token\"; callers must then send that token",
                socket.port()
            );
            sink.error(place.clone(), message, hint);
        }
        // Port 0: the kernel chooses a free port, so two of them never conflict.
        if matches!(address, Address::Tcp(socket) if socket.port() == 0) {
            continue;
        }
        if egress.listen[..index].contains(address) {
            sink.error(place, "this address is in the list twice", "");
        } else if let Some(owner) = owner(document, address) {
            let message = format!("{owner} has this address already");
            let hint = "[egress] needs its own address: 127.0.0.1:8083 is usual";
            sink.error(place, message, hint);
        }
    }
    let unix = |address: &Address| matches!(address, Address::Unix(_));
    if !egress.listen.iter().any(unix) {
        for key in ["owner", "group", "mode"] {
            if let Some(entry) = entries.entry(key) {
                let message = format!("`{key}` has no effect: it is only for unix sockets");
                sink.warning(entry.key.clone(), message, "");
            }
        }
    }
    if let SocketPath::At(path) = &egress.socket
        && let Some(entry) = entries.entry("socket")
    {
        let address = Address::Unix(path.clone());
        if egress.listen.contains(&address) {
            let message = "`listen` has this socket already";
            let hint = "remove it from `listen`, or remove `socket`: workers then get the path in `listen`";
            sink.error(entry.span.clone(), message, hint);
        } else if let Some(owner) = owner(document, &address) {
            let message = format!("{owner} has this address already");
            sink.error(entry.span.clone(), message, "choose another path");
        }
    }
    if let Some(entry) = entries.entry("token_file")
        && egress.listen.iter().all(unix)
    {
        let message = "`token_file` has no effect: this is a unix socket, and file permissions control access to it";
        sink.warning(
            entry.key.clone(),
            message,
            "use `owner`, `group` and `mode`",
        );
    }
}

/// Name of the listener at that address.
fn owner(document: &Document, address: &Address) -> Option<String> {
    let is_it =
        |value: Option<Value>| matches!(value, Some(Value::Address(other)) if other == *address);
    let mut listeners = document.listeners.iter();
    if let Some(listener) = listeners.find(|listener| is_it(listener.entries.value("address"))) {
        return Some(format!("[listen.{}]", listener.name));
    }
    if is_it(document.server.value("admin_tcp")) {
        return Some("`admin_tcp` of [server]".to_owned());
    }
    match (document.server.get("admin"), address) {
        (SocketPath::At(socket), Address::Unix(path)) if socket == *path => {
            Some("`admin` of [server]".to_owned())
        }
        _ => None,
    }
}

fn allow(document: &Document, entries: &Entries, egress: &Egress, sink: &mut Sink) {
    let Some(entry) = entries.entry("allow") else {
        if !entries.is_wrong("allow") {
            let message = "no call is allowed: `allow` is missing";
            let hint = "list the allowed hosts: allow = [\"api.example.com\"]";
            sink.warning_of_whole(entries.header.clone(), message, hint);
        }
        return;
    };
    if egress.allow.is_empty() {
        let message = "this list is empty, so no call is allowed";
        let hint = "list the allowed hosts: allow = [\"api.example.com\"]";
        sink.warning(entry.span.clone(), message, hint);
    }
    for (index, (rule, span)) in egress.allow.iter().zip(&entry.parts).enumerate() {
        let mut before = egress.allow[..index].iter();
        if let Some(first) = before.find(|first| lets_all_of(first, rule)) {
            let message = match first == rule {
                true => "this rule is in the list twice".to_owned(),
                false => format!(
                    "this rule has no effect: \"{first}\" before it already allows everything that it allows"
                ),
            };
            sink.warning(span.clone(), message, "remove this rule, or the wider one");
        }
        let pools = || {
            document
                .pools
                .iter()
                .map(|tables| tables.pool.name.as_str())
        };
        for name in &rule.pools {
            if !pools().any(|pool| pool == name) {
                let message = format!("unknown pool: there is no [pool.{name}]");
                sink.error(span.clone(), message, suggestion(name, pools()));
            }
        }
        if let Some(all) = rule.addresses.iter().find(|network| network.prefix == 0) {
            let message =
                format!("{all} allows every address, including those of cloud metadata services");
            let hint = "list only the networks of this host: \"10.0.0.0/8\"";
            sink.warning(span.clone(), message, hint);
        }
    }
}

/// Whether `first` allows everything that `later` allows, with at least the same addresses.
fn lets_all_of(first: &AllowRule, later: &AllowRule) -> bool {
    let of_path = match later.path.strip_prefix(first.path.as_str()) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || first.path.ends_with('/'),
        None => false,
    };
    // TRACE must be named explicitly: its response shows the headers that weir adds.
    let lets = |method: &String| match first.methods.is_empty() {
        true => method != "TRACE",
        false => first.methods.contains(method),
    };
    let of_methods = match later.methods.is_empty() {
        true => first.methods.is_empty(),
        false => later.methods.iter().all(lets),
    };
    let reached = |ip: IpAddr, prefix: u8| {
        let mut wider = first.addresses.iter();
        wider.any(|network| network.prefix <= prefix && network.contains(ip))
    };
    // A rule for certain pools also decides who may use the credentials of the host.
    let of_pools = first.pools.is_empty() == later.pools.is_empty()
        && later.pools.iter().all(|pool| first.pools.contains(pool));
    covers(&first.origin, &later.origin)
        && of_path
        && of_pools
        && of_methods
        && later
            .addresses
            .iter()
            .all(|network| reached(network.address, network.prefix))
}

/// Reports settings that are only valid for single hosts.
fn not_everywhere(entries: &Entries, egress: &Egress, sink: &mut Sink) {
    if let Some(entry) = entries.entry("verify")
        && !egress.defaults.verify
    {
        let message = "certificate checks cannot be turned off for all hosts at once";
        let hint = "write verify = false in the [egress.host.NAME] of that one host, or give the certificate of its authority as ca_file";
        sink.error(entry.span.clone(), message, hint);
    }
    let Some(entry) = entries.entry("set_headers") else {
        return;
    };
    let several = match egress.allow.as_slice() {
        [first, others @ ..] => {
            matches!(first.origin.host, OriginHost::Suffix(_))
                || others
                    .iter()
                    .any(|rule| rule.origin.host != first.origin.host)
        }
        [] => false,
    };
    for ((name, value), span) in egress.defaults.set_headers.iter().zip(&entry.parts) {
        if several && (stands_elsewhere(value) || is_credential(name)) {
            let message = format!("{name} is sent to every allowed host");
            let hint = "move it to the [egress.host.NAME] of the host that needs it";
            sink.warning(span.clone(), message, hint);
        }
    }
}

/// Checks the cache settings that all hosts share.
fn answers(tables: &EgressTables, egress: &Egress, sink: &mut Sink) {
    let entries = &tables.egress;
    let kept = egress.defaults.cache || egress.hosts.iter().any(|host| host.settings.cache);
    let unclear = entries.is_wrong("cache")
        || tables
            .hosts
            .iter()
            .any(|host| host.entries.is_wrong("cache"));
    for key in ["cache_size", "cache_max_object"] {
        if let Some(entry) = entries.entry(key)
            && !kept
            && !unclear
        {
            let message = format!("`{key}` has no effect without `cache`");
            sink.warning(
                entry.key.clone(),
                message,
                "write cache = true here or for a host",
            );
        }
    }
    if let Some(entry) = entries.entry("cache_max_object")
        && egress.cache_max_object > egress.cache_size
        && !entries.is_wrong("cache_size")
    {
        let message = "more than `cache_size`, the limit for all answers together";
        sink.error(entry.span.clone(), message, "");
    }
}

/// Checks one table, `[egress]` or a host's. `settings`: the settings in force there.
fn table(entries: &Entries, settings: &HostSettings, sink: &mut Sink) {
    waits(entries, settings, sink);
    let mut warn_if = |key: &str, is_vain: bool, message: String, hint: &str| {
        if let Some(entry) = entries.entry(key).filter(|_| is_vain) {
            sink.warning(entry.key.clone(), message, hint);
        }
    };
    let HostSettings {
        keepalive,
        maxconn,
        preconnect,
        ..
    } = *settings;
    warn_if(
        "keepalive",
        keepalive > maxconn,
        format!("more than `maxconn` ({maxconn}): there are never that many connections"),
        "",
    );
    warn_if(
        "preconnect",
        preconnect > maxconn,
        format!("more than `maxconn` ({maxconn}): that many connections are never used"),
        "raise maxconn, or lower this number",
    );
    let no_retries = settings.retries == 0;
    warn_if(
        "retry_budget",
        no_retries,
        "`retry_budget` has no effect with `retries = 0`".to_owned(),
        "",
    );
    warn_if(
        "fail_timeout",
        settings.max_fails == 0,
        "`fail_timeout` has no effect with `max_fails = 0`".to_owned(),
        "",
    );
    warn_if(
        "stale_if_error",
        !settings.cache && !settings.stale_if_error.is_zero(),
        "`stale_if_error` has no effect without `cache`".to_owned(),
        "write cache = true",
    );
    warn_if(
        "ca_file",
        !settings.verify,
        "`ca_file` has no effect with verify = false".to_owned(),
        "remove verify = false",
    );
    for (one, other) in [("client_cert", "client_key"), ("client_key", "client_cert")] {
        if let Some(entry) = entries.entry(one)
            && !entries.is_written(other)
        {
            let message = format!("`{one}` without `{other}`");
            let hint = format!("add {other} = \"/etc/weir/client.pem\"; one file can contain both");
            sink.error(entry.key.clone(), message, hint);
        }
    }
    if settings.resolve_min > settings.resolve_max {
        let mut keys = ["resolve_max", "resolve_min"].into_iter();
        if let Some(key) = keys.find(|key| entries.entry(key).is_some()) {
            let message = "`resolve_max` is less than `resolve_min`";
            sink.error(entries.span(key), message, "");
        }
    }
    literal_secrets(entries, sink);
}

/// Reports timeouts that never expire because another one expires earlier.
fn waits(entries: &Entries, settings: &HostSettings, sink: &mut Sink) {
    let all = settings.timeout;
    let parts: [(&str, Duration); 4] = [
        ("queue_timeout", settings.queue_timeout),
        ("connect_timeout", settings.connect_timeout),
        ("first_byte_timeout", settings.first_byte_timeout),
        ("read_timeout", settings.read_timeout),
    ];
    for (key, part) in parts {
        if let Some(entry) = entries.entry(key)
            && part > all
            && !all.is_zero()
        {
            let message =
                "longer than `timeout`, the limit for the whole call, so it has no effect";
            sink.warning(
                entry.span.clone(),
                message,
                "raise timeout, or lower this value",
            );
        }
    }
}

fn literal_secrets(entries: &Entries, sink: &mut Sink) {
    let Some(entry) = entries.entry("set_headers") else {
        return;
    };
    let Value::Secrets(headers) = &entry.value else {
        return;
    };
    for ((name, value), span) in headers.iter().zip(&entry.parts) {
        if is_credential(name) && !stands_elsewhere(value) {
            let span: Range<usize> = span.clone();
            let message = format!(
                "the secret {name} is readable in this file and in the output of `weir check --print`"
            );
            let hint = "keep it in a separate file: \"Bearer ${file:/etc/weir/api.token}\", or in weir's environment: \
                        \"${env:API_KEY}\"";
            sink.warning(span, message, hint);
        }
    }
}

fn stands_elsewhere(value: &Secret) -> bool {
    value
        .0
        .iter()
        .any(|piece| !matches!(piece, SecretPiece::Text(_)))
}

/// Whether the header, judged by its name, carries a secret or identifies the caller. The egress does not cache
/// responses to requests with such a header for other callers, and `weir check` warns if its value is in the file. A
/// false positive costs little.
pub fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let whole: String = name
        .chars()
        .filter(|byte| byte.is_ascii_alphanumeric())
        .collect();
    const WORDS: [&str; 11] = [
        "authori",
        "authent",
        "token",
        "secret",
        "passw",
        "cookie",
        "credential",
        "session",
        "signature",
        "apikey",
        "accesskey",
    ];
    let mut parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    // `X-Auth-User` identifies the caller; `X-Author` does not.
    let is_one = |part: &str| {
        let auth = part.starts_with("auth") && !part.starts_with("author");
        auth || part.ends_with("auth") || matches!(part, "key" | "jwt" | "sid" | "bearer")
    };
    WORDS.iter().any(|word| whole.contains(word)) || parts.any(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_with_secrets_are_known_by_their_names() {
        for name in [
            "Authorization",
            "X-Auth",
            "x-api-key",
            "ApiKey",
            "X-Amz-Security-Token",
            "Cookie",
            "X.Api.Key",
            "X_Auth_User",
            "Ocp-Apim-Subscription-Key",
            "X-Session-Id",
            "X-OAuth-Scopes",
            "Signature-Input",
        ] {
            assert!(is_credential(name), "{name}");
        }
        for name in [
            "User-Agent",
            "X-Author",
            "X-Keyword",
            "Accept",
            "X-Request-Id",
        ] {
            assert!(!is_credential(name), "{name}");
        }
    }
}
