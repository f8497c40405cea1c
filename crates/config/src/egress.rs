//! `[egress]` and `[egress.host.NAME]` → [`Egress`].

mod checks;

pub use checks::is_credential;

use std::path::PathBuf;

use crate::{
    document::{Document, EgressTables, Named},
    entries::Entries,
    model::{Egress, Host, HostSettings},
    rows::Section,
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
    let defaults = settings(entries, None);
    let hosts = tables.hosts.iter().map(|Named { name, entries }| Host {
        name: name.clone(),
        hosts: entries.get("hosts"),
        settings: settings(entries, Some(&defaults)),
    });
    Egress {
        hosts: hosts.collect(),
        allow: match entries.value("allow") {
            Some(Value::AllowRules(rules)) => rules,
            _ => Vec::new(),
        },
        defaults,
        ..entries.fields(None)
    }
}

/// The settings of a table: for `[egress]` with the rows' defaults, for a host over those of `[egress]`.
fn settings(entries: &Entries, base: Option<&HostSettings>) -> HostSettings {
    let file = |key: &str, inherited: Option<PathBuf>| match entries.is_written(key) {
        true => entries.get(key),
        false => inherited,
    };
    let (cert, key) = base.and_then(|base| base.client_cert.clone()).unzip();
    HostSettings {
        client_cert: file("client_cert", cert).zip(file("client_key", key)),
        ..entries.fields(base)
    }
}

/// The settings of a host that no table names.
pub(crate) fn usual() -> HostSettings {
    settings(&Entries::none(Section::Egress, "egress", 0..0), None)
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
        assert_eq!(egress.defaults, usual());
        assert_eq!(egress.hosts[0].settings, usual());
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
        let text = |(name, value): &(String, crate::Secret)| format!("{name}={value}");
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
