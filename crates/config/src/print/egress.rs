//! Prints `[egress]` and its hosts as in weir.toml.

use super::{Absent, Foreign, Printed, Value, field, option};
use crate::{
    field::{path, quoted, quoted_list, shown},
    model::{Address, AllowRule, Egress, Host, HostSettings, OriginPattern, Scheme},
    origin,
    rows::Row,
    texts::quote,
};

pub(super) fn egress(egress: &Egress, row: &Row) -> Printed {
    let is_unix = |address: &Address| matches!(address, Address::Unix(_));
    let unix = egress.listen.iter().any(is_unix);
    match row.name {
        "allow" if egress.allow.is_empty() => Absent,
        "allow" => Value(shown(&egress.allow, rule)),
        "upgrade" if egress.upgrade.is_empty() => Absent,
        "upgrade" => Value(shown(&egress.upgrade, upgrade)),
        "owner" if !unix && egress.owner.is_none() => Foreign,
        "group" if !unix && egress.group.is_none() => Foreign,
        // Without a unix socket the mode has no effect, but it is kept.
        "mode" if !unix && egress.mode == 0o666 => Foreign,
        _ => match field(egress, row) {
            Foreign => settings(&egress.defaults, row),
            printed => printed,
        },
    }
}

pub(super) fn host(host: &Host, row: &Row) -> Printed {
    match row.name {
        "hosts" => Value(quoted(&host.hosts)),
        _ => settings(&host.settings, row),
    }
}

fn settings(settings: &HostSettings, row: &Row) -> Printed {
    let (cert, key) = settings.client_cert.clone().unzip();
    match row.name {
        "client_cert" => option(cert.map(path)),
        "client_key" => option(key.map(path)),
        _ => field(settings, row),
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
        keys.push(format!("methods = {}", quoted_list(&rule.methods)));
    }
    if rule.path != "/" {
        keys.push(format!("path = {}", quote(&rule.path)));
    }
    if !has_implied {
        keys.push(format!("addresses = {}", quoted(&rule.addresses)));
    }
    if !rule.pools.is_empty() {
        keys.push(format!("pools = {}", quoted_list(&rule.pools)));
    }
    format!("{{ {} }}", keys.join(", "))
}

/// An element of `upgrade` is always http, so the scheme is omitted.
fn upgrade(origin: &OriginPattern) -> String {
    let text = origin.to_string();
    let scheme = format!("{}://", Scheme::Http.as_str());
    quote(text.strip_prefix(&scheme).unwrap_or(&text))
}
