//! `[egress]` and `[egress.host.NAME]` → [`Egress`].

use crate::{
    document::{EgressTables, Named},
    entries::Entries,
    model::{Egress, Forwarded, Host, HostSettings, Secret},
    sink::Sink,
    value::Value,
};

/// What is in force; `sink` is told what does not fit together.
pub(crate) fn egress(tables: &EgressTables, sink: &mut Sink) -> Egress {
    let entries = &tables.egress;
    let over = |host| Over {
        host,
        egress: entries,
    };
    let hosts = tables.hosts.iter().map(|Named { name, entries }| Host {
        name: name.clone(),
        hosts: entries.origins("hosts"),
        settings: over(Some(entries)).settings(sink),
    });
    Egress {
        hosts: hosts.collect(),
        listen: match entries.value("listen") {
            Some(Value::Addresses(addresses)) => addresses,
            _ => Vec::new(),
        },
        owner: entries.text("owner"),
        group: entries.text("group"),
        mode: entries.number("mode") as u32,
        token_file: entries.path("token_file"),
        threads: entries.count("threads"),
        max_connections: entries.count("max_connections"),
        max_hosts: entries.count("max_hosts"),
        allow: match entries.value("allow") {
            Some(Value::AllowRules(rules)) => rules,
            _ => Vec::new(),
        },
        upgrade: entries.origins("upgrade"),
        connect: entries.bool("connect"),
        cache_size: entries.number("cache_size"),
        cache_max_object: entries.number("cache_max_object"),
        defaults: over(None).settings(sink),
    }
}

/// Looks a key up in a host's table, then in `[egress]`, then in the defaults.
struct Over<'a> {
    host: Option<&'a Entries>,
    egress: &'a Entries,
}

impl<'a> Over<'a> {
    /// The table that says what `key` is.
    fn of(&self, key: &str) -> &'a Entries {
        match self.host {
            Some(host) if host.is_written(key) => host,
            _ => self.egress,
        }
    }

    fn settings(&self, _sink: &mut Sink) -> HostSettings {
        let bool = |key| self.of(key).bool(key);
        let count = |key| self.of(key).count(key);
        let number = |key| self.of(key).number(key) as u32;
        let duration = |key| self.of(key).duration(key);
        let word = |key| self.of(key).text(key).unwrap_or_default();
        HostSettings {
            keepalive: count("keepalive"),
            keepalive_timeout: duration("keepalive_timeout"),
            keepalive_time: duration("keepalive_time"),
            preconnect: count("preconnect"),
            http2: bool("http2"),
            maxconn: count("maxconn"),
            max_queue: count("max_queue"),
            queue_timeout: duration("queue_timeout"),
            connect_timeout: duration("connect_timeout"),
            first_byte_timeout: duration("first_byte_timeout"),
            read_timeout: duration("read_timeout"),
            timeout: duration("timeout"),
            retries: number("retries"),
            retry_budget: number("retry_budget"),
            max_fails: number("max_fails"),
            fail_timeout: duration("fail_timeout"),
            resolve_min: duration("resolve_min"),
            resolve_max: duration("resolve_max"),
            verify: bool("verify"),
            ca_file: self.of("ca_file").path("ca_file"),
            client_cert: self
                .of("client_cert")
                .path("client_cert")
                .zip(self.of("client_key").path("client_key")),
            set_headers: self.set_headers(),
            forwarded: match word("forwarded").as_str() {
                "x-forwarded-for" => Forwarded::XForwardedFor,
                "forwarded" => Forwarded::Rfc7239,
                _ => Forwarded::Off,
            },
            traceparent: word("traceparent") == "create",
            compress: bool("compress"),
            cache: bool("cache"),
            stale_if_error: duration("stale_if_error"),
            max_response_head: self.of("max_response_head").number("max_response_head"),
        }
    }

    /// Those of `[egress]`, with the host's added or put in their place.
    fn set_headers(&self) -> Vec<(String, Secret)> {
        let mut all = secrets(self.egress);
        for (name, value) in self.host.map(secrets).unwrap_or_default() {
            match all
                .iter_mut()
                .find(|(known, _)| known.eq_ignore_ascii_case(&name))
            {
                Some(slot) => *slot = (name, value),
                None => all.push((name, value)),
            }
        }
        all
    }
}

fn secrets(entries: &Entries) -> Vec<(String, Secret)> {
    match entries.value("set_headers") {
        Some(Value::Secrets(secrets)) => secrets,
        _ => Vec::new(),
    }
}
