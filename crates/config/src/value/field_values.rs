//! `public_if`: `{ X-Page = "public" }`, also with a list of values.

use toml::de::DeValue;

use super::{Node, Reader};
use crate::{cache, rows::Kind};

impl Reader<'_> {
    /// Names in lower case and their values; a name for each value.
    pub(super) fn field_values(
        &mut self,
        kind: &Kind,
        node: &Node<'_>,
    ) -> Option<Vec<(String, String)>> {
        let Some(table) = node.get_ref().as_table() else {
            self.mismatch(kind, node);
            return None;
        };
        let mut names: Vec<_> = table.iter().collect();
        names.sort_by_key(|(name, _)| name.span().start);
        let mut pairs = Vec::new();
        let mut good = true;
        for (name, value) in names {
            let mut inner = self.of_key(name.get_ref());
            let kind = Kind::Text;
            let values = match value.get_ref() {
                DeValue::Array(values) => values.iter().collect(),
                _ => vec![value],
            };
            for value in values {
                let read = |text: &str| cache::field_value(name.get_ref(), text);
                match inner.scalar(&kind, value, read) {
                    Some(pair) => pairs.push(pair),
                    None => good = false,
                }
            }
        }
        good.then_some(pairs)
    }
}
