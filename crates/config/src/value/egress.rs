//! `allow` of `[egress]`: a list of rules, each a text or a table.

use toml::de::{DeTable, DeValue};

use super::{Node, Reader, Value, type_of};
use crate::{model::AllowRule, origin, rows::Kind};

impl Reader<'_> {
    /// Reads `["api.example.com", { host = "legacy.internal", addresses = ["10.0.0.0/8"] }]`. `None`: it is wrong,
    /// and that was reported.
    pub(super) fn allow_rules(&mut self, kind: &Kind, node: &Node<'_>) -> Option<Vec<AllowRule>> {
        self.elements(kind, node, |reader, element| match element.get_ref() {
            DeValue::String(text) => reader.sink.take(element.span(), origin::rule(text)),
            DeValue::Table(table) => reader.allow_rule(element, table),
            other => {
                let message = format!("a rule must be a text or a table, not {}", type_of(other));
                reader.error(element, message, EXAMPLE);
                None
            }
        })
    }

    fn allow_rule(&mut self, node: &Node<'_>, table: &DeTable<'_>) -> Option<AllowRule> {
        let (mut host, mut path) = (None, "/".to_owned());
        let (mut methods, mut addresses, mut pools) = (Vec::new(), Vec::new(), Vec::new());
        let (mut good, mut named) = (true, false);
        for (key, value) in table {
            let mut inner = self.of_key(key.get_ref());
            let kind = match key.get_ref().as_ref() {
                "host" => &Kind::Origin,
                "path" => &Kind::UrlPath,
                "methods" => &Kind::Methods,
                "addresses" => &Kind::Networks,
                "pools" => &Kind::References,
                _ => {
                    let known = ["host", "path", "methods", "addresses", "pools"];
                    good = inner.unknown_key(key, "a rule", &known).unwrap_or(false);
                    continue;
                }
            };
            named |= matches!(kind, Kind::Origin);
            let read = match kind {
                // A rule's path has stricter rules than a site's path.
                Kind::UrlPath => inner
                    .scalar(kind, value, origin::path_prefix)
                    .map(Value::Text),
                kind => inner.read(kind, value),
            };
            match read {
                Some(Value::Origin(read)) => host = Some(read),
                Some(Value::Text(read)) => path = read,
                Some(Value::Texts(read)) if matches!(kind, Kind::References) => {
                    if read.is_empty() {
                        let message = "this list is empty, so no pool could make this call";
                        let hint = "list the pools, or remove `pools` to allow all of them";
                        self.error(value, message.to_owned(), hint);
                        good = false;
                    }
                    pools = read;
                }
                Some(Value::Texts(read)) => methods = read,
                Some(Value::Networks(read)) => addresses = read,
                _ => good = false,
            }
        }
        if !named {
            self.error(node, "`host` is missing in this rule", EXAMPLE);
        }
        let origin = host?;
        for network in origin::implied(&origin.host) {
            if !addresses.contains(&network) {
                addresses.push(network);
            }
        }
        good.then_some(AllowRule {
            origin,
            path,
            methods,
            addresses,
            pools,
        })
    }
}

const EXAMPLE: &str = "for example \"GET,POST api.example.com/v1/\", or { host = \"http://legacy.internal:8080\", addresses = [\"10.0.0.0/8\"] }";
