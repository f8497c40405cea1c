//! The value of `servers`: a list of servers, each a text or a table.

use toml::de::{DeTable, DeValue};

use super::{Node, Reader, type_of};
use crate::{model::UpstreamServer, rows::Kind, texts};

impl Reader<'_> {
    /// Reads servers, each a text or a table.
    pub(super) fn servers(&mut self, kind: &Kind, node: &Node<'_>) -> Option<Vec<UpstreamServer>> {
        self.elements(kind, node, |reader, element| match element.get_ref() {
            DeValue::String(text) => {
                let address = texts::upstream(reader.folder, text);
                let address = reader.sink.take(element.span(), address)?;
                Some(UpstreamServer {
                    address,
                    weight: USUAL_WEIGHT,
                    backup: false,
                })
            }
            DeValue::Table(table) => reader.server(element, table),
            other => {
                let message = format!("a server must be a text or a table, not {}", type_of(other));
                let hint = "for example \"10.0.0.5:9000\", or { address = \"10.0.0.5:9000\", weight = 50 }";
                reader.error(element, message, hint);
                None
            }
        })
    }

    fn server(&mut self, node: &Node<'_>, table: &DeTable<'_>) -> Option<UpstreamServer> {
        let (mut address, mut weight, mut backup) = (None, USUAL_WEIGHT, false);
        let (mut good, mut named) = (true, false);
        for (key, value) in table {
            let mut inner = self.of_key(key.get_ref());
            let read = match key.get_ref().as_ref() {
                "address" => {
                    named = true;
                    let folder = inner.folder;
                    inner
                        .scalar(&Kind::Address, value, |text| texts::upstream(folder, text))
                        .map(|read| address = Some(read))
                }
                "weight" => inner
                    .count(&Kind::Count { min: 0, max: 1_000 }, value, 0, 1_000)
                    .map(|read| weight = read as u32),
                "backup" => inner.bool(&Kind::Bool, value).map(|read| backup = read),
                _ => inner.unknown_key(key, "a server", &["address", "weight", "backup"]),
            };
            good &= read.is_some();
        }
        if !named {
            let hint = "add address = \"10.0.0.5:9000\"";
            self.error(node, "`address` is missing in this server", hint);
        }
        let address = address?;
        good.then_some(UpstreamServer {
            address,
            weight,
            backup,
        })
    }
}

/// Default weight of a server.
const USUAL_WEIGHT: u32 = 100;
