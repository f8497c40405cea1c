//! `priority_by` of sites, routes and listeners: a list of tables.

use super::{Node, Reader, type_of};
use crate::{
    entries::in_order,
    model::{PriorityRule, ValuePattern},
    rows::{Kind, PRIORITIES},
    texts,
};

impl Reader<'_> {
    /// Reads `[{ header = "User-Agent", match = "*bot*", priority = 50 }]`. `None`: it is wrong, and that was
    /// reported.
    pub(super) fn priority_rules(
        &mut self,
        kind: &Kind,
        node: &Node<'_>,
    ) -> Option<Vec<PriorityRule>> {
        self.elements(kind, node, |reader, element| {
            reader.priority_rule(kind, element)
        })
    }

    fn priority_rule(&mut self, kind: &Kind, node: &Node<'_>) -> Option<PriorityRule> {
        let Some(table) = node.get_ref().as_table() else {
            let (noun, example) = kind.expectation();
            let message = format!(
                "`{}` takes {noun}, this is {}",
                self.key,
                type_of(node.get_ref())
            );
            self.error(
                node,
                message,
                format!("for example {} = {example}", self.key),
            );
            return None;
        };
        let (mut parts, mut value, mut priority) = (Vec::new(), None, None);
        let mut good = true;
        for (key, node) in in_order(table) {
            let mut inner = self.of_key(key.get_ref());
            let name = Kind::HeaderName;
            let read = match key.get_ref().as_ref() {
                "header" => inner
                    .scalar(&name, node, texts::header_part)
                    .map(|part| parts.push(part)),
                "cookie" => inner
                    .scalar(&name, node, texts::cookie_part)
                    .map(|part| parts.push(part)),
                "match" => inner
                    .scalar(&Kind::Text, node, texts::value_pattern)
                    .map(|pattern| value = Some(pattern)),
                "priority" => {
                    let (min, max) = PRIORITIES;
                    inner
                        .signed(&Kind::Signed { min, max }, node, min, max)
                        .map(|number| priority = Some(number as i16))
                }
                _ => inner.unknown_key(key, "a rule", &["header", "cookie", "match", "priority"]),
            };
            good &= read.is_some();
        }
        if !good {
            return None;
        }
        let hint = match parts.len() {
            0 => "add header = \"User-Agent\", or cookie = \"session\"",
            _ => "write separate rules",
        };
        let (Some(part), true) = (parts.pop(), parts.is_empty()) else {
            let message = "a rule can have `header` or `cookie`, not both";
            self.error(node, message, hint);
            return None;
        };
        let Some(priority) = priority else {
            let message = "`priority` is missing in this rule";
            self.error(node, message, "add priority = 10; lower numbers go first");
            return None;
        };
        Some(PriorityRule {
            part,
            value: value.unwrap_or_else(|| ValuePattern::Glob("*".into())),
            priority,
        })
    }
}
