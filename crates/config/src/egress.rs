//! `[egress]` and `[egress.host.NAME]` → [`Egress`].

mod checks;

pub use checks::is_credential;

use crate::{
    document::{Document, EgressTables, Named},
    entries::Entries,
    model::{Egress, Forwarded, Host, HostSettings, Secret},
    sink::Sink,
    value::Value,
};

/// Returns the settings in force, or `None` without the table. Reports settings that do not fit together to `sink`.
pub(crate) fn egress(document: &Document, sink: &mut Sink) -> Option<Egress> {
    let tables = document.egress.as_ref()?;
    let egress = model(tables);
    checks::check(document, tables, &egress, sink);
    Some(egress)
}

fn model(tables: &EgressTables) -> Egress {
    let entries = &tables.egress;
    let over = |host| Over {
        host,
        egress: entries,
    };
    let hosts = tables.hosts.iter().map(|Named { name, entries }| Host {
        name: name.clone(),
        hosts: entries.origins("hosts"),
        settings: over(Some(entries)).settings(),
    });
    Egress {
        hosts: hosts.collect(),
        listen: match entries.value("listen") {
            Some(Value::Addresses(addresses)) => addresses,
            _ => Vec::new(),
        },
        socket: entries.window("socket"),
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
        defaults: over(None).settings(),
    }
}

/// Looks a key up in a host's table, then in `[egress]`, then in the defaults.
struct Over<'a> {
    host: Option<&'a Entries>,
    egress: &'a Entries,
}

impl<'a> Over<'a> {
    /// The table that sets `key`.
    fn of(&self, key: &str) -> &'a Entries {
        match self.host {
            Some(host) if host.is_written(key) => host,
            _ => self.egress,
        }
    }

    fn settings(&self) -> HostSettings {
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

    /// The headers of `[egress]`, with the host's headers added or replacing them.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Environment, read,
        rows::{self, Section},
    };

    fn egress(text: &str) -> Egress {
        let site = "[listen.web]\naddress = \"127.0.0.1:80\"\n[site.a]\nroot = \"/srv\"\n";
        let env = Environment {
            folder: "/etc/weir".into(),
            cores: 2,
            memory: 1 << 30,
            open_files: 1 << 20,
        };
        let read = read("weir.toml", &format!("{site}{text}"), &env);
        let read = read.unwrap_or_else(|wrong| panic!("{wrong}"));
        read.config.egress.unwrap()
    }

    #[test]
    fn where_nothing_is_written_the_usual_holds() {
        let egress = egress("[egress]\n[egress.host.a]\nhosts = [\"a.example\"]\n");
        assert_eq!(egress.defaults, HostSettings::USUAL);
        assert_eq!(egress.hosts[0].settings, HostSettings::USUAL);
        assert_eq!(
            egress.listen,
            ["127.0.0.1:8083".parse().map(crate::Address::Tcp).unwrap()]
        );
    }

    /// If a key exists in only one of the two tables, it would be ignored silently.
    #[test]
    fn what_holds_for_hosts_may_be_said_for_one() {
        let of_all: Vec<&str> = rows::of(Section::Egress).map(|row| row.name).collect();
        let of_one = rows::of(Section::EgressHost).map(|row| row.name);
        let of_one: Vec<&str> = of_one.filter(|name| *name != "hosts").collect();
        assert_eq!(of_all[of_all.len() - of_one.len()..], of_one);
        assert_eq!(of_one.first(), Some(&"keepalive"));
    }

    #[test]
    fn a_host_says_otherwise_and_has_the_rest_from_above() {
        let egress = egress(
            "[egress]\nmaxconn = 7\ntimeout = \"7s\"\nclient_cert = \"c\"\nclient_key = \"k\"\n\
             set_headers = { X-A = \"a\", X-B = \"b\" }\n\
             [egress.host.a]\nhosts = [\"a.example\"]\ntimeout = \"8s\"\nset_headers = { x-b = \"c\", X-C = \"d\" }\n",
        );
        let of_a = egress.settings(crate::Scheme::Https, "a.example", 443);
        assert_eq!((of_a.maxconn, of_a.timeout.as_secs()), (7, 8));
        assert_eq!(of_a.client_cert, egress.defaults.client_cert);
        let text = |(name, value): &(String, Secret)| format!("{name}={value}");
        let headers: Vec<String> = of_a.set_headers.iter().map(text).collect();
        assert_eq!(headers, ["X-A=a", "x-b=c", "X-C=d"]);
        let other = egress.settings(crate::Scheme::Http, "a.example", 80);
        assert_eq!(*other, egress.defaults);
    }

    #[test]
    fn connections_are_made_ahead_to_who_is_named_and_allowed() {
        let egress = egress(
            "[egress]\npreconnect = 1\nallow = [\"a.example\", \"*.b.example\", \"c.example:*\", \"http://10.0.0.1:8080\"]\n\
             [egress.host.b]\nhosts = [\"x.b.example\", \"y.example\"]\npreconnect = 2\n\
             [egress.host.none]\nhosts = [\"a.example\"]\npreconnect = 0\n",
        );
        let shown = egress.preconnected();
        let shown: Vec<String> = shown
            .into_iter()
            .map(|(scheme, host, port)| format!("{}://{host}:{port}", scheme.as_str()))
            .collect();
        assert_eq!(shown, ["https://x.b.example:443", "http://10.0.0.1:8080"]);
    }
}
