//! Rewrites URLs: `rewrite` of a route, and a `fallback` with a query.
//!
//! `$1` to `$9` (or `${1}`, `${name}`) are the groups of the route's regular expression, `$$` is a dollar sign. In
//! the path a group is inserted unchanged, and the result is normalised like the path of a request: it cannot lead
//! out of the root or bypass a rule. In the query a group is encoded, so that it stays one value.

use regex::bytes::{Captures, Regex};
use weir_semantics::path::{encode, normalise};

use crate::route::Refusal;

/// A parsed rewrite of the configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rewrite {
    path: Vec<Piece>,
    query: Vec<Piece>,
    /// Whether the request's own query is appended.
    keeps_query: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<[u8]>),
    Group(usize),
    Named(Box<str>),
}

/// The resulting path and query.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rewritten {
    pub(crate) path: Vec<u8>,
    pub(crate) plain: usize,
    pub(crate) query: Query,
}

/// A query that a rewrite has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    text: String,
    keeps_query: bool,
}

impl Query {
    /// The query, with the request's own query appended if that is kept.
    pub(crate) fn with(&self, asked: Option<&str>) -> String {
        let asked = asked.filter(|asked| self.keeps_query && !asked.is_empty());
        match (asked, self.text.is_empty()) {
            (Some(asked), true) => asked.to_owned(),
            (Some(asked), false) => format!("{}&{asked}", self.text),
            (None, _) => self.text.clone(),
        }
    }

    /// Combines it with the query of an earlier rewrite.
    pub(crate) fn before(&self, earlier: Self) -> Self {
        Self {
            text: self.with(Some(&earlier.text)),
            keeps_query: self.keeps_query && earlier.keeps_query,
        }
    }
}

impl Rewrite {
    /// Parses a checked text: `/path?query`. A question mark at the end drops the request's own query.
    pub(crate) fn new(text: &str) -> Self {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let bare = query.strip_suffix('?');
        let drops_query = bare.is_some() || query.is_empty() && text.ends_with('?');
        Self {
            path: pieces(path),
            query: pieces(bare.unwrap_or(query)),
            keeps_query: !drops_query,
        }
    }

    /// Whether it is only a path.
    pub(crate) fn is_plain(&self) -> bool {
        self.query.is_empty()
            && self.keeps_query
            && self
                .path
                .iter()
                .all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// Applies it to `path`, of which `plain` bytes may name a file, with the groups of `matcher`.
    ///
    /// # Errors
    /// As for a request's path.
    pub(crate) fn apply(
        &self,
        matcher: Option<&Regex>,
        path: &[u8],
        plain: usize,
    ) -> Result<Rewritten, Refusal> {
        let captures = matcher.and_then(|regex| regex.captures(path));
        let mut raw = Vec::new();
        let mut from_path = None;
        for piece in &self.path {
            if !matches!(piece, Piece::Text(_)) {
                from_path.get_or_insert(raw.len());
            }
            raw.extend_from_slice(piece.value(captures.as_ref()));
        }
        let mut url = Vec::with_capacity(raw.len());
        encode(&raw, &mut url);
        let made = normalise(&url)?.path.into_owned();
        let mut query = Vec::new();
        for piece in &self.query {
            match piece {
                Piece::Text(text) => query.extend_from_slice(text),
                group => encode_value(group.value(captures.as_ref()), &mut query),
            }
        }
        // The part after an encoded slash is not a file's path here either.
        let plain = match from_path.filter(|_| plain < path.len()) {
            Some(from) if made == raw => from,
            Some(_) => 0,
            None => made.len(),
        };
        Ok(Rewritten {
            path: made,
            plain,
            query: Query {
                text: String::from_utf8_lossy(&query).into_owned(),
                keeps_query: self.keeps_query,
            },
        })
    }
}

impl Piece {
    fn value<'v>(&'v self, captures: Option<&'v Captures<'_>>) -> &'v [u8] {
        let group = match self {
            Self::Text(text) => return text,
            Self::Group(number) => captures.and_then(|captures| captures.get(*number)),
            Self::Named(name) => captures.and_then(|captures| captures.name(name)),
        };
        group.map_or(b"", |group| group.as_bytes())
    }
}

fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        literal.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        let (piece, behind) = match after.as_bytes().first() {
            Some(b'$') => {
                literal.push('$');
                (None, &after[1..])
            }
            Some(digit @ b'0'..=b'9') => {
                (Some(Piece::Group(usize::from(digit - b'0'))), &after[1..])
            }
            Some(b'{') if after.contains('}') => {
                let (name, behind) = after[1..].split_once('}').unwrap_or_default();
                let piece = match name.parse() {
                    Ok(number) => Piece::Group(number),
                    Err(_) => Piece::Named(name.into()),
                };
                (Some(piece), behind)
            }
            _ => {
                literal.push('$');
                (None, after)
            }
        };
        if let Some(piece) = piece {
            if !literal.is_empty() {
                pieces.push(Piece::Text(
                    core::mem::take(&mut literal).into_bytes().into(),
                ));
            }
            pieces.push(piece);
        }
        rest = behind;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal.into_bytes().into()));
    }
    pieces
}

/// RFC 3986 §3.4, but also encodes the separators of query values, and the plus sign, which means a space.
fn encode_value(value: &[u8], out: &mut Vec<u8>) {
    for &byte in value {
        if byte.is_ascii_alphanumeric() || b"-._~/:@!*(),".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(rewrite: &str, regex: &str, path: &str, asked: Option<&str>) -> (String, String) {
        let regex = Regex::new(regex).unwrap();
        let new = Rewrite::new(rewrite).apply(Some(&regex), path.as_bytes(), path.len());
        let new = new.unwrap();
        let path = String::from_utf8_lossy(&new.path).into_owned();
        (path, new.query.with(asked))
    }

    #[test]
    fn groups_are_put_into_path_and_query() {
        for (rewrite, regex, path, asked, expected) in [
            (
                "/doku.php?id=$1",
                "^/wiki/(.*)$",
                "/wiki/a:b",
                None,
                ("/doku.php", "id=a:b"),
            ),
            (
                "/doku.php?id=$1",
                "^/(.*)$",
                "/a&b=c d",
                Some("x=1"),
                ("/doku.php", "id=a%26b%3Dc%20d&x=1"),
            ),
            (
                "/doku.php?id=$1?",
                "^/(.*)$",
                "/a",
                Some("x=1"),
                ("/doku.php", "id=a"),
            ),
            (
                "/new/$1",
                "^/old/(.*)$",
                "/old/a b",
                Some("x=1"),
                ("/new/a b", "x=1"),
            ),
            ("/new?", "^/old$", "/old", Some("x=1"), ("/new", "")),
            ("/$2/$1", "^/([a-z]+)/([a-z]+)$", "/a/b", None, ("/b/a", "")),
            (
                "/${name}.html",
                "^/(?P<name>[a-z]+)$",
                "/a",
                None,
                ("/a.html", ""),
            ),
            ("/${1}0", "^/([a-z]+)$", "/a", None, ("/a0", "")),
            ("/p$$1/$", "^/([a-z]+)$", "/a", None, ("/p$1/$", "")),
            (
                "/x?q=$1&r=$2",
                "^/([a-z]+)(/[a-z]+)?$",
                "/a",
                None,
                ("/x", "q=a&r="),
            ),
            (
                "/x?q=$1",
                "^/(.*)$",
                "/a+b#c?d",
                None,
                ("/x", "q=a%2Bb%23c%3Fd"),
            ),
        ] {
            let (path, query) = made(rewrite, regex, path, asked);
            assert_eq!((path.as_str(), query.as_str()), expected, "{rewrite}");
        }
    }

    #[test]
    fn what_is_made_cannot_lead_out() {
        let regex = Regex::new("^/(.*)$").unwrap();
        for (rewrite, path, expected) in [
            ("/x/$1/y", "/..", Err(Refusal::AboveRoot)),
            ("/x/.$1", "/./secret", Ok("/secret")),
            ("/x/%2e%2e/$1", "/a", Ok("/x/%2e%2e/a")),
            ("/x//$1", "/a", Ok("/x/a")),
        ] {
            let path = match path {
                "/.." => &b"/../.."[..],
                path => path.as_bytes(),
            };
            let new = Rewrite::new(rewrite).apply(Some(&regex), path, path.len());
            let new = new.map(|new| String::from_utf8_lossy(&new.path).into_owned());
            assert_eq!(new, expected.map(str::to_owned), "{rewrite}");
        }
    }

    #[test]
    fn a_group_from_behind_an_encoded_slash_names_no_file() {
        let regex = Regex::new("^/wiki/(.*)$").unwrap();
        let plain = |rewrite: &str| {
            let new = Rewrite::new(rewrite).apply(Some(&regex), b"/wiki/a/b", 7);
            let new = new.unwrap();
            (new.plain, new.path.len())
        };
        assert_eq!(plain("/doku.php?id=$1"), (9, 9));
        assert_eq!(plain("/docs/$1"), (6, 9));
        assert_eq!(plain("/docs//$1"), (0, 9));
    }

    #[test]
    fn one_rewrite_after_another_keeps_the_earlier_query() {
        let query = |text: &str, keeps_query| Query {
            text: text.into(),
            keeps_query,
        };
        let second = query("b=2", true).before(query("a=1", true));
        assert_eq!(second.with(Some("x=1")), "b=2&a=1&x=1");
        let dropping = query("b=2", false).before(query("a=1", true));
        assert_eq!(dropping.with(Some("x=1")), "b=2");
    }
}
