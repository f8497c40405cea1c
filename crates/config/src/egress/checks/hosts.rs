//! Checks that `allow`, `upgrade` and the tables of hosts fit together.

use crate::{
    document::{EgressTables, Named},
    entries::Entries,
    model::{Egress, Host, OriginHost, OriginPattern, Scheme},
    origin::{covers, meet},
    scalar,
    sink::Sink,
};

/// `[egress.host.NAME]`
pub(super) fn hosts(tables: &EgressTables, egress: &Egress, sink: &mut Sink) {
    for (index, (table, host)) in tables.hosts.iter().zip(&egress.hosts).enumerate() {
        let Named { name, entries } = table;
        let Some(entry) = entries.entry("hosts") else {
            continue;
        };
        if host.hosts.is_empty() {
            let message = "this list is empty, so this table has no effect";
            let hint = "for example hosts = [\"api.example.com\"]";
            sink.error(entry.span.clone(), message, hint);
            continue;
        }
        for (place, (pattern, span)) in host.hosts.iter().zip(&entry.parts).enumerate() {
            if host.hosts[..place]
                .iter()
                .any(|first| covers(first, pattern))
            {
                sink.warning(span.clone(), "this host is in the list twice", "");
                continue;
            }
            let mut before = egress.hosts[..index].iter();
            let says = |other: &&Host| other.hosts.iter().any(|first| covers(first, pattern));
            if let Some(first) = before.find(says) {
                let message = format!(
                    "[egress.host.{}] above already applies to this host",
                    first.name
                );
                let hint = "the first match is used: remove the host there, or move this table up";
                sink.warning(span.clone(), message, hint);
            }
        }
        if !entries.is_wrong("verify") && entries.entry("verify").is_some() && !host.settings.verify
        {
            let message = "certificates are not checked: anybody on the network path can read and change the calls";
            let hint =
                "for a private certificate authority, write ca_file = \"/etc/weir/ca.pem\" instead";
            sink.warning(entries.span("verify"), message, hint);
        }
        if !tables.egress.is_wrong("allow") {
            may_be_called(name, entries, host, egress, sink);
        }
        preconnect(entries, &host.hosts, host.settings.preconnect, egress, sink);
    }
}

/// Checks the settings of `[egress]` for hosts without a table of their own.
pub(super) fn defaults(entries: &Entries, egress: &Egress, sink: &mut Sink) {
    let exact = |host: &OriginPattern| is_exact(host);
    let unnamed = !egress.allow.iter().any(|rule| exact(&rule.origin))
        && !egress.hosts.iter().any(|host| host.hosts.iter().any(exact));
    if let Some(entry) = entries.entry("preconnect")
        && egress.defaults.preconnect > 0
        && unnamed
        && !entries.is_wrong("allow")
    {
        let message = "`preconnect` has no effect: it needs a host without `*`";
        sink.warning(entry.key.clone(), message, NAME_IT);
    }
}

/// Checks `upgrade`: weir calls these hosts by https, so `allow` must allow that.
pub(super) fn upgrade(entries: &Entries, egress: &Egress, sink: &mut Sink) {
    let Some(entry) = entries.entry("upgrade") else {
        return;
    };
    if entries.is_wrong("allow") {
        return;
    }
    for (pattern, span) in egress.upgrade.iter().zip(&entry.parts) {
        let wanted = OriginPattern {
            scheme: Scheme::Https,
            host: pattern.host.clone(),
            port: match pattern.port {
                Some(80) => Some(443),
                other => other,
            },
        };
        if !egress.allow.iter().any(|rule| meet(&rule.origin, &wanted)) {
            let message = format!("`allow` does not allow {wanted} by https");
            sink.warning_of_whole(
                span.clone(),
                message,
                format!("add \"{wanted}\" to `allow`"),
            );
        }
    }
}

/// Reports a table if `allow` allows none of its hosts.
fn may_be_called(name: &str, entries: &Entries, host: &Host, egress: &Egress, sink: &mut Sink) {
    let lets = |pattern: &OriginPattern| {
        let mut rules = egress.allow.iter();
        rules.any(|rule| meet(&rule.origin, pattern))
    };
    if egress.allow.is_empty() || host.hosts.iter().any(lets) {
        return;
    }
    let message = format!("[egress.host.{name}] has no effect: `allow` has none of its hosts");
    sink.warning_of_whole(
        entries.span("hosts"),
        message,
        nearest(&host.hosts, egress).unwrap_or_else(|| {
            let first = host.hosts.first().map(ToString::to_string);
            format!("add \"{}\" to `allow`", first.unwrap_or_default())
        }),
    );
}

/// The entry of `allow` that was probably meant: one with the same host, else one with a similar name.
fn nearest(hosts: &[OriginPattern], egress: &Egress) -> Option<String> {
    let allowed = || egress.allow.iter().map(|rule| &rule.origin);
    let same_host = |origin: &&OriginPattern| {
        let any_port = |origin: &OriginPattern| OriginPattern {
            scheme: Scheme::Https,
            port: None,
            ..origin.clone()
        };
        hosts
            .iter()
            .any(|host| meet(&any_port(host), &any_port(origin)))
    };
    if let Some(origin) = allowed().find(same_host) {
        return Some(format!(
            "`allow` has \"{origin}\": write the same here, or add this one to `allow`"
        ));
    }
    let texts: Vec<String> = allowed().map(ToString::to_string).collect();
    let near = hosts
        .iter()
        .find_map(|host| scalar::nearest(&host.to_string(), texts.iter().map(String::as_str)));
    near.map(|near| format!("did you mean \"{near}\"?"))
}

/// Checks that connections are opened in advance only to hosts with an exact name.
fn preconnect(
    entries: &Entries,
    hosts: &[OriginPattern],
    preconnect: usize,
    egress: &Egress,
    sink: &mut Sink,
) {
    let named = |pattern: &OriginPattern| {
        let known = |origin: &OriginPattern| is_exact(origin) && covers(pattern, origin);
        is_exact(pattern) || egress.allow.iter().any(|rule| known(&rule.origin))
    };
    if let Some(entry) = entries.entry("preconnect")
        && preconnect > 0
        && let Some(unnamed) = hosts.iter().find(|pattern| !named(pattern))
    {
        let message =
            format!("`preconnect` has no effect on {unnamed}, which is not a single host");
        sink.warning(entry.key.clone(), message, NAME_IT);
    }
}

fn is_exact(pattern: &OriginPattern) -> bool {
    pattern.port.is_some() && !matches!(pattern.host, OriginHost::Suffix(_))
}

const NAME_IT: &str = "write the host and its port in `allow` or in `hosts` of a table";
