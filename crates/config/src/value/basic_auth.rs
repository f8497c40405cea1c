//! `basic_auth`: `{ realm = "staging", file = "/etc/weir/htpasswd" }`, or false.

use toml::de::DeValue;

use super::{Node, Reader};
use crate::{model::BasicAuth, rows::Kind, texts};

impl Reader<'_> {
    pub(super) fn basic_auth(&mut self, kind: &Kind, node: &Node<'_>) -> Option<Option<BasicAuth>> {
        let table = match node.get_ref() {
            DeValue::Boolean(false) => return Some(None),
            DeValue::Table(table) => table,
            _ => {
                self.mismatch(kind, node);
                return None;
            }
        };
        let folder = self.folder;
        let (mut realm, mut file) = (Some(REALM.to_owned()), None);
        let mut good = true;
        for (key, value) in table {
            let mut inner = self.of_key(key.get_ref());
            match key.get_ref().as_ref() {
                "realm" => {
                    realm = inner.scalar(&Kind::HeaderValue, value, texts::header_value);
                    good &= realm.is_some();
                }
                "file" => {
                    file = inner.scalar(&Kind::Path, value, |text| texts::path(folder, text));
                    good &= file.is_some();
                }
                _ => {
                    let _: Option<()> = inner.unknown_key(key, "`basic_auth`", &["realm", "file"]);
                    good = false;
                }
            }
        }
        if good && file.is_none() {
            let hint = "add file = \"/etc/weir/htpasswd\", which `htpasswd -B` writes";
            self.error(node, "`basic_auth` has no `file` of users", hint);
        }
        match (good, realm, file) {
            (true, Some(realm), Some(file)) => Some(Some(BasicAuth { realm, file })),
            _ => None,
        }
    }
}

/// The realm if none is written.
const REALM: &str = "restricted";
