//! A purge as an entry of the stream: names and values. Values are bytes, because tags and URLs are.

use std::collections::HashMap;

use redis::Value;

/// A purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purge {
    /// Of which pages.
    pub what: What,
    /// They may never be sent again, not even if nothing better can be had.
    pub is_hard: bool,
}

/// Which pages. Sites have the same names on all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Those of a site with a tag.
    Tag {
        /// The site's name.
        site: Vec<u8>,
        /// The tag.
        tag: Vec<u8>,
    },
    /// That of a URL.
    Url {
        /// The site's name.
        site: Vec<u8>,
        /// The host, with its port.
        host: Vec<u8>,
        /// Path and query.
        target: Vec<u8>,
    },
    /// Those whose URLs begin like this.
    Prefix {
        /// The site's name.
        site: Vec<u8>,
        /// The host, with its port; `None`: all hosts.
        host: Option<Vec<u8>>,
        /// The beginning of path and query.
        target: Vec<u8>,
    },
    /// All of a site.
    Site {
        /// The site's name.
        site: Vec<u8>,
    },
    /// All.
    All,
}

impl Purge {
    /// Everything is outdated.
    pub(crate) fn everything() -> Purge {
        Purge {
            what: What::All,
            is_hard: false,
        }
    }
}

/// What an entry of the stream is.
pub(crate) enum Read {
    /// A purge of another node.
    Purge(Purge),
    /// Nothing to do: this node has written it, or it is the first entry.
    Nothing,
    /// A newer version has written it, or a stranger.
    Unknown,
}

/// `what` of the first entry.
pub(crate) const BEGIN: &str = "begin";

/// Names and values of an entry.
pub(crate) fn fields<'p>(purge: &'p Purge, node: &'p str) -> Vec<(&'static str, &'p [u8])> {
    let mut fields = vec![("node", node.as_bytes())];
    match &purge.what {
        What::Tag { site, tag } => {
            fields.extend([("what", &b"tag"[..]), ("site", site), ("tag", tag)]);
        }
        What::Url { site, host, target } => {
            fields.extend([
                ("what", &b"url"[..]),
                ("site", site),
                ("host", host),
                ("target", target),
            ]);
        }
        What::Prefix { site, host, target } => {
            fields.extend([("what", &b"prefix"[..]), ("site", site), ("target", target)]);
            fields.extend(host.iter().map(|host| ("host", &host[..])));
        }
        What::Site { site } => fields.extend([("what", &b"site"[..]), ("site", site)]),
        What::All => fields.push(("what", b"all")),
    }
    if purge.is_hard {
        fields.push(("hard", b"yes"));
    }
    fields
}

pub(crate) fn read(fields: &HashMap<String, Value>, node: &str) -> Read {
    let field = |name: &str| match fields.get(name)? {
        Value::BulkString(bytes) => Some(bytes.clone()),
        Value::SimpleString(text) => Some(text.clone().into_bytes()),
        _ => None,
    };
    if field("node").is_some_and(|writer| writer == node.as_bytes()) {
        return Read::Nothing;
    }
    if field("what").is_some_and(|what| what == BEGIN.as_bytes()) {
        return Read::Nothing;
    }
    let what = || {
        Some(match &field("what")?[..] {
            b"tag" => What::Tag {
                site: field("site")?,
                tag: field("tag")?,
            },
            b"url" => What::Url {
                site: field("site")?,
                host: field("host")?,
                target: field("target")?,
            },
            b"prefix" => What::Prefix {
                site: field("site")?,
                host: field("host"),
                target: field("target")?,
            },
            b"site" => What::Site {
                site: field("site")?,
            },
            b"all" => What::All,
            _ => return None,
        })
    };
    what().map_or(Read::Unknown, |what| {
        Read::Purge(Purge {
            what,
            is_hard: field("hard").is_some(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(purge: &Purge, node: &str) -> HashMap<String, Value> {
        let fields = fields(purge, node).into_iter();
        fields
            .map(|(name, value)| (name.to_owned(), Value::BulkString(value.to_vec())))
            .collect()
    }

    #[test]
    fn each_purge_is_read_as_it_was_written() {
        let site = b"shop".to_vec();
        for what in [
            What::Tag {
                site: site.clone(),
                tag: vec![0xff, b' ', 0],
            },
            What::Url {
                site: site.clone(),
                host: b"shop.example:8080".to_vec(),
                target: b"/a?b".to_vec(),
            },
            What::Prefix {
                site: site.clone(),
                host: None,
                target: b"/a/".to_vec(),
            },
            What::Prefix {
                site: site.clone(),
                host: Some(Vec::new()),
                target: Vec::new(),
            },
            What::Site { site },
            What::All,
        ] {
            for is_hard in [false, true] {
                let purge = Purge {
                    what: what.clone(),
                    is_hard,
                };
                match read(&entry(&purge, "a"), "b") {
                    Read::Purge(found) => assert_eq!(found, purge),
                    Read::Nothing | Read::Unknown => panic!("{purge:?}"),
                }
                assert!(matches!(read(&entry(&purge, "a"), "a"), Read::Nothing));
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_known_to_be_so() {
        for (name, value) in [("what", "star"), ("what", "tag"), ("other", "all")] {
            let value = Value::BulkString(value.as_bytes().to_vec());
            let fields = HashMap::from([(name.to_owned(), value)]);
            assert!(matches!(read(&fields, "a"), Read::Unknown), "{name}");
        }
    }
}
