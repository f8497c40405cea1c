//! `[listen.NAME]` → [`Listener`]: addresses, allowed clients, and the protocol.

use std::collections::HashMap;

use crate::{
    document::Named,
    entries::Entries,
    model::{Address, AgentCheck, FastCgi, Listener, PoolId, Protocol},
    rows::{self, Section},
    settings::{self, PoolNames},
    sink::Sink,
    value::Value,
};

/// The listeners, in the order of the file.
pub(crate) fn listeners(tables: &[Named], pools: &PoolNames<'_>, sink: &mut Sink) -> Vec<Listener> {
    let mut seen: HashMap<Address, &str> = HashMap::new();
    let mut listeners = Vec::with_capacity(tables.len());
    for Named { name, entries } in tables {
        let address = match entries.value("address") {
            Some(Value::Address(address)) => address,
            _ => Address::default(),
        };
        // Port 0: the kernel chooses a free port, so two of them never conflict.
        let fixed = !matches!(&address, Address::Tcp(socket) if socket.port() == 0);
        if entries.entry("address").is_some() && fixed {
            if let Some(first) = seen.get(&address) {
                let message = format!("[listen.{first}] already has this address");
                let hint = "one listener can serve many sites: write its NAME in their `listen`";
                sink.error(entries.span("address"), message, hint);
            }
            seen.entry(address.clone()).or_insert(name);
        }
        if let Some(entry) = entries.entry("ipv6only")
            && !matches!(&address, Address::Tcp(socket) if socket.is_ipv6())
        {
            let message = "`ipv6only` has no effect: only IPv6 addresses have it";
            sink.warning(entry.key.clone(), message, "");
        }
        if matches!(address, Address::Tcp(_)) {
            for key in ["owner", "group", "mode", "acl_users", "acl_groups"] {
                if let Some(entry) = entries.entry(key) {
                    let message = format!("`{key}` has no effect: it is only for unix sockets");
                    sink.warning(entry.key.clone(), message, "");
                }
            }
        }
        let has_acl = entries.is_written("acl_users") || entries.is_written("acl_groups");
        for key in ["owner", "group"] {
            if let Some(entry) = entries.entry(key).filter(|_| has_acl) {
                let message = format!("`{key}` has no effect with `acl_users` or `acl_groups`");
                sink.warning(entry.key.clone(), message, "");
            }
        }
        listeners.push(Listener {
            name: name.clone(),
            // Resolved when all certificates are known.
            tls: None,
            protocol: protocol(name, entries, &address, pools, sink),
            address,
            http2_limits: entries.fields(None),
            ..entries.fields(None)
        });
    }
    listeners
}

fn protocol(
    name: &str,
    entries: &Entries,
    address: &Address,
    pools: &PoolNames<'_>,
    sink: &mut Sink,
) -> Protocol {
    let spoken = spoken(entries);
    let word = entries.text("protocol").unwrap_or_default();
    for row in rows::of(Section::Listen).filter(|row| !row.applies_to(&word)) {
        let Some(entry) = entries.entry(row.name) else {
            continue;
        };
        if spoken != Spoken::Http {
            let message = format!("`{}` has no effect with `protocol = \"{word}\"`", row.name);
            sink.warning(entry.key.clone(), message, "");
            continue;
        }
        let message = format!("`{}` needs `protocol = \"fastcgi\"`", row.name);
        let hint = match row.name {
            "pool" => "an HTTP listener gets its pools from the sites: `pool` in [site.NAME]",
            "allowed_clients" => "for an HTTP listener, use a firewall",
            _ if row.sections.contains(&Section::Site) => "write it in [site.NAME], or in a route",
            _ => "",
        };
        sink.error(entry.key.clone(), message, hint);
    }
    if spoken == Spoken::Http {
        return Protocol::Http;
    }
    if let Some(entry) = entries.entry("allowed_clients")
        && matches!(address, Address::Unix(_))
    {
        let message = "`allowed_clients` has no effect: this is a unix socket, and file permissions control access to it";
        sink.warning(
            entry.key.clone(),
            message,
            "use `owner`, `group` and `mode`",
        );
    }
    let pool = settings::pool(entries, pools, sink);
    if !entries.is_written("pool") {
        let asks = match spoken {
            Spoken::AgentCheck => "whose state does it report?",
            _ => "which workers answer?",
        };
        let message = format!("`pool` is missing in [listen.{name}]: {asks}");
        sink.error_of_whole(entries.header.clone(), message, "add pool = \"NAME\"");
    }
    if spoken == Spoken::FastCgi && pool.is_some_and(|pool| pools.is_http(pool)) {
        let message =
            "this pool's servers speak HTTP: a web server can reach them without weir's FastCGI";
        let hint = "name a pool of FastCGI workers, or let the web server use HTTP with weir";
        sink.error(entries.span("pool"), message, hint);
    }
    let pool = pool.unwrap_or(PoolId(0));
    if spoken == Spoken::AgentCheck {
        return Protocol::AgentCheck(AgentCheck {
            pool,
            allowed_clients: entries.get("allowed_clients"),
        });
    }
    Protocol::FastCgi(FastCgi {
        pool,
        policy: entries.fields(None),
        ..entries.fields(None)
    })
}

/// The protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    Http,
    FastCgi,
    AgentCheck,
}

/// The protocol that a listener's table sets.
pub(crate) fn spoken(entries: &Entries) -> Spoken {
    match entries.text("protocol").as_deref() {
        Some("fastcgi") => Spoken::FastCgi,
        Some("agent-check") => Spoken::AgentCheck,
        _ => Spoken::Http,
    }
}
