//! `reserve` of `[pool.NAME.queue]`: a list of tables.

use toml::de::DeValue;

use super::{Node, Reader, type_of};
use crate::{model::Reserve, rows::Kind};

impl Reader<'_> {
    /// Reads `[{ priority = -10, workers = 1 }]`. `None`: it is wrong, and that was reported.
    pub(super) fn reserves(&mut self, kind: &Kind, node: &Node<'_>) -> Option<Vec<Reserve>> {
        self.elements(kind, node, Self::reserve)
    }

    fn reserve(&mut self, node: &Node<'_>) -> Option<Reserve> {
        let DeValue::Table(table) = node.get_ref() else {
            let message = format!(
                "`{}` takes tables; this is {}",
                self.key,
                type_of(node.get_ref())
            );
            self.error(node, message, EXAMPLE);
            return None;
        };
        let (mut priority, mut workers, mut good) = (None, None, true);
        for (key, value) in table {
            let mut inner = self.of_key(key.get_ref());
            match key.get_ref().as_ref() {
                "priority" => {
                    priority = inner.queue_priority(value);
                    good &= priority.is_some();
                }
                "workers" => {
                    let (min, max) = (1, 1_000_000);
                    workers = inner.count(&Kind::Count { min, max }, value, min, max);
                    good &= workers.is_some();
                }
                _ => {
                    good = inner
                        .unknown_key(key, "a reserve", &["priority", "workers"])
                        .unwrap_or(false)
                }
            }
        }
        for (key, is_there) in [
            ("priority", priority.is_some()),
            ("workers", workers.is_some()),
        ] {
            if !is_there && good {
                self.error(node, format!("`{key}` is missing"), EXAMPLE);
            }
        }
        Some(Reserve {
            priority: priority?,
            workers: workers? as usize,
        })
    }

    fn queue_priority(&mut self, node: &Node<'_>) -> Option<i16> {
        let number = node
            .get_ref()
            .as_integer()
            .and_then(|integer| i16::from_str_radix(integer.as_str(), integer.radix()).ok())
            .filter(|number| (-1_000..=1_000).contains(number));
        if number.is_none() {
            let message = "a priority must be a whole number from -1000 to 1000";
            self.error(node, message, "lower numbers go first; 0 is usual");
        }
        number
    }
}

const EXAMPLE: &str = "{ priority = -10, workers = 1 }";
