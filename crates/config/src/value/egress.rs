//! `allow` of `[egress]`: a list of rules, each a text or a table.

use toml::de::{DeTable, DeValue};

use super::{Node, Reader, Value, type_of};
use crate::{model::AllowRule, origin, rows::Kind, scalar};

impl Reader<'_> {
    /// Reads `["api.example.com", { host = "legacy.internal", addresses = ["10.0.0.0/8"] }]`. `None`: it is wrong,
    /// and that was reported.
    pub(super) fn allow_rules(&mut self, kind: &Kind, node: &Node<'_>) -> Option<Vec<AllowRule>> {
        let Some(array) = node.get_ref().as_array() else {
            self.mismatch(kind, node);
            return None;
        };
        let mut list = Vec::with_capacity(array.len());
        for element in array.iter() {
            let rule = match element.get_ref() {
                DeValue::String(text) => self.sink.take(element.span(), origin::rule(text)),
                DeValue::Table(table) => self.allow_rule(element, table),
                other => {
                    let message =
                        format!("a rule must be a text or a table, not {}", type_of(other));
                    self.error(element, message, EXAMPLE);
                    None
                }
            };
            if let Some(rule) = rule {
                list.push(rule);
                self.parts.push(element.span());
            }
        }
        (list.len() == array.len()).then_some(list)
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
                unknown => {
                    let known = ["host", "path", "methods", "addresses", "pools"];
                    let hint = scalar::suggestion(unknown, known);
                    let message = format!("`{unknown}` is not a key of a rule");
                    inner.sink.error(key.span(), message, hint);
                    good = false;
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
