//! Prints `[egress]` and its hosts as in weir.toml.

use super::{
    Absent, Foreign, Printed, Value, address, bare, duration, list, option, path, plain, quote,
    size, table, texts,
};
use crate::{
    model::{
        Address, AllowRule, Egress, Forwarded, Host, HostSettings, OriginPattern, Scheme, Window,
    },
    origin,
};

pub(super) fn egress(egress: &Egress, key: &str) -> Printed {
    let unix = egress
        .listen
        .iter()
        .any(|address| matches!(address, Address::Unix(_)));
    match key {
        "listen" => Value(list(egress.listen.iter().map(address))),
        "allow" if egress.allow.is_empty() => Absent,
        "allow" => Value(list(egress.allow.iter().map(rule))),
        "upgrade" if egress.upgrade.is_empty() => Absent,
        "upgrade" => Value(list(egress.upgrade.iter().map(upgrade))),
        "connect" => plain(egress.connect),
        "token_file" => option(egress.token_file.as_deref().map(path)),
        "socket" => match &egress.socket {
            Window::Usual => Absent,
            Window::Off => Value("\"off\"".into()),
            Window::At(path) => Value(quote(&format!("unix:{}", path.display()))),
        },
        "owner" if unix || egress.owner.is_some() => option(egress.owner.as_deref().map(quote)),
        "group" if unix || egress.group.is_some() => option(egress.group.as_deref().map(quote)),
        // Without a unix socket the mode has no effect, but it is kept.
        "mode" if unix || egress.mode != 0o666 => Value(format!("\"{:04o}\"", egress.mode)),
        "threads" => plain(egress.threads),
        "max_connections" => plain(egress.max_connections),
        "max_hosts" => plain(egress.max_hosts),
        "cache_size" => Value(size(egress.cache_size)),
        "cache_max_object" => Value(size(egress.cache_max_object)),
        _ => settings(&egress.defaults, key),
    }
}

pub(super) fn host(host: &Host, key: &str) -> Printed {
    match key {
        "hosts" => Value(list(
            host.hosts.iter().map(|origin| quote(&origin.to_string())),
        )),
        _ => settings(&host.settings, key),
    }
}

fn settings(settings: &HostSettings, key: &str) -> Printed {
    match key {
        "keepalive" => plain(settings.keepalive),
        "keepalive_timeout" => Value(duration(settings.keepalive_timeout)),
        "keepalive_time" => Value(duration(settings.keepalive_time)),
        "preconnect" => plain(settings.preconnect),
        "http2" => plain(settings.http2),
        "maxconn" => plain(settings.maxconn),
        "max_queue" => plain(settings.max_queue),
        "queue_timeout" => Value(duration(settings.queue_timeout)),
        "connect_timeout" => Value(duration(settings.connect_timeout)),
        "first_byte_timeout" => Value(duration(settings.first_byte_timeout)),
        "read_timeout" => Value(duration(settings.read_timeout)),
        "timeout" => Value(duration(settings.timeout)),
        "retries" => plain(settings.retries),
        "retry_budget" => plain(settings.retry_budget),
        "max_fails" => plain(settings.max_fails),
        "fail_timeout" => Value(duration(settings.fail_timeout)),
        "resolve_min" => Value(duration(settings.resolve_min)),
        "resolve_max" => Value(duration(settings.resolve_max)),
        "verify" => plain(settings.verify),
        "ca_file" => option(settings.ca_file.as_deref().map(path)),
        "client_cert" => option(settings.client_cert.as_ref().map(|(cert, _)| path(cert))),
        "client_key" => option(settings.client_cert.as_ref().map(|(_, key)| path(key))),
        "set_headers" => {
            let headers = settings.set_headers.iter();
            table(headers.map(|(name, value)| (bare(name), quote(&value.to_string()))))
        }
        "forwarded" => Value(quote(match settings.forwarded {
            Forwarded::Off => "off",
            Forwarded::XForwardedFor => "x-forwarded-for",
            Forwarded::Rfc7239 => "forwarded",
        })),
        "traceparent" => Value(quote(match settings.traceparent {
            false => "pass",
            true => "create",
        })),
        "compress" => plain(settings.compress),
        "cache" => plain(settings.cache),
        "stale_if_error" => Value(duration(settings.stale_if_error)),
        "max_response_head" => Value(size(settings.max_response_head)),
        _ => Foreign,
    }
}

/// Writes a text if that is sufficient, else a table.
fn rule(rule: &AllowRule) -> String {
    let has_implied = rule.addresses == origin::implied(&rule.origin.host);
    if has_implied && rule.pools.is_empty() {
        return quote(&rule.to_string());
    }
    let mut keys = vec![format!("host = {}", quote(&rule.origin.to_string()))];
    if !rule.methods.is_empty() {
        keys.push(format!("methods = {}", texts(&rule.methods)));
    }
    if rule.path != "/" {
        keys.push(format!("path = {}", quote(&rule.path)));
    }
    if !has_implied {
        let networks = rule.addresses.iter();
        let networks = list(networks.map(|network| quote(&network.to_string())));
        keys.push(format!("addresses = {networks}"));
    }
    if !rule.pools.is_empty() {
        keys.push(format!("pools = {}", texts(&rule.pools)));
    }
    format!("{{ {} }}", keys.join(", "))
}

/// An element of `upgrade` is always http, so the scheme is omitted.
fn upgrade(origin: &OriginPattern) -> String {
    let text = origin.to_string();
    let scheme = format!("{}://", Scheme::Http.as_str());
    quote(text.strip_prefix(&scheme).unwrap_or(&text))
}
