//! Tags of an answer: the names by which its application purges it later.
//!
//! Applications write for different caches, so there are several fields. All of them mean the same here, and an answer may have more than one.

use std::{convert::Infallible, error::Error, fmt};

use sfv::{
    BareItemFromInput, Parser,
    visitor::{
        EntryVisitor, Ignored, InnerListVisitor, ItemVisitor, ListVisitor, ParameterVisitor,
    },
};

use super::{
    fields::{Fields, joined},
    key::{Seed, Subject},
};

/// The tags of one answer, without those that it has twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tags(Vec<Box<[u8]>>);

/// An answer has more than [`MOST_TAGS`], or longer ones than [`LONGEST_TAG`]. It must not be stored, because a purge of one of these could not find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

/// How many tags an answer may have.
pub const MOST_TAGS: usize = 1_024;

/// How long a tag may be, bytes.
pub const LONGEST_TAG: usize = 1_024;

/// Fields with tags, in lower case, and how each separates them. Beside them there is Cache-Groups, a list of strings (RFC 9875).
const FIELDS: [(&str, Separators); 5] = [
    // Fastly and others.
    ("surrogate-key", Separators::Spaces),
    // Cloudflare, Akamai and others.
    ("cache-tag", Separators::Commas),
    // Varnish's module xkey.
    ("xkey", Separators::Both),
    ("x-litespeed-tag", Separators::Commas),
    ("x-magento-tags", Separators::Commas),
];

#[derive(Debug, Clone, Copy)]
enum Separators {
    Spaces,
    Commas,
    Both,
}

impl Tags {
    /// Reads all fields with tags.
    ///
    /// # Errors
    /// If there are too many.
    pub fn of(fields: &impl Fields) -> Result<Tags, TooMany> {
        let mut tags = Tags::default();
        for (name, separators) in FIELDS {
            for value in fields.values(name) {
                tags.read(value, separators);
            }
        }
        // RFC 9875 §2
        let groups = joined(fields, "cache-groups");
        tags.0
            .extend(groups.map(|value| Tags::groups(&value)).unwrap_or_default());
        tags.0.sort_unstable();
        tags.0.dedup();
        let is_long = tags.iter().any(|tag| tag.len() > LONGEST_TAG);
        match is_long || tags.0.len() > MOST_TAGS {
            true => Err(TooMany),
            false => Ok(tags),
        }
    }

    /// The tags that a field names whose lists are separated by commas, as those of `X-LiteSpeed-Purge` and `Weir-Purge` are.
    pub fn separated_by_commas(value: &[u8]) -> impl Iterator<Item = &[u8]> {
        elements(value, |byte| byte == b',')
    }

    /// The groups that a field names, as `Cache-Group-Invalidation` does (RFC 9875 §3). Empty, if it is no list of strings.
    #[must_use]
    pub fn groups(value: &[u8]) -> Vec<Box<[u8]>> {
        strings(value).unwrap_or_default()
    }

    /// The tags.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|tag| &**tag)
    }

    /// How purges name them.
    pub fn subjects(&self, seed: &Seed, site: &[u8]) -> impl Iterator<Item = Subject> {
        self.iter().map(move |tag| seed.tag(site, tag))
    }

    fn read(&mut self, value: &[u8], separators: Separators) {
        let mut add = |tag: &[u8]| self.0.push(tag.into());
        match separators {
            Separators::Spaces => elements(value, is_space).for_each(&mut add),
            Separators::Commas => elements(value, |byte| byte == b',').for_each(&mut add),
            Separators::Both => {
                elements(value, |byte| byte == b',' || is_space(byte)).for_each(&mut add);
            }
        }
    }
}

fn elements(value: &[u8], is_between: impl Fn(u8) -> bool) -> impl Iterator<Item = &[u8]> {
    let elements = value.split(move |byte| is_between(*byte));
    elements
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

fn is_space(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// The strings of a list (RFC 9651 §3.1). `None`: it is no list, or has members of other types: then the field does not count.
fn strings(value: &[u8]) -> Option<Vec<Box<[u8]>>> {
    let mut strings = Strings(Vec::new());
    Parser::new(value)
        .parse_list_with_visitor(&mut strings)
        .ok()?;
    Some(strings.0)
}

struct Strings(Vec<Box<[u8]>>);

/// A member of the list.
struct Member<'s>(&'s mut Strings);

#[derive(Debug)]
struct NoString;

impl<'v> ListVisitor<'v> for Strings {
    type Error = Infallible;

    fn entry(&mut self) -> Result<impl EntryVisitor<'v>, Infallible> {
        Ok(Member(self))
    }
}

impl<'v> ItemVisitor<'v> for Member<'_> {
    type Error = NoString;

    fn bare_item(self, item: BareItemFromInput<'v>) -> Result<impl ParameterVisitor<'v>, NoString> {
        let BareItemFromInput::String(string) = item else {
            return Err(NoString);
        };
        self.0.0.push(string.as_str().as_bytes().into());
        Ok(Ignored)
    }
}

impl<'v> EntryVisitor<'v> for Member<'_> {
    fn inner_list(self) -> Result<impl InnerListVisitor<'v>, NoString> {
        Err::<Ignored, _>(NoString)
    }
}

impl fmt::Display for NoString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no string")
    }
}

impl Error for NoString {}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn tags(fields: &[(&str, &str)]) -> Result<Vec<String>, TooMany> {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let tags = Tags::of(&map)?;
        Ok(tags
            .iter()
            .map(|tag| String::from_utf8_lossy(tag).into_owned())
            .collect())
    }

    #[test]
    fn each_field_separates_tags_in_its_own_way() {
        let cases: &[(&str, &str, &[&str])] = &[
            (
                "surrogate-key",
                " post-1  post-2,3\tfront ",
                &["front", "post-1", "post-2,3"],
            ),
            ("cache-tag", "a, b c ,,d", &["a", "b c", "d"]),
            ("xkey", "a, b c", &["a", "b", "c"]),
            (
                "x-litespeed-tag",
                "B1_,B1_F,B1_URL.x",
                &["B1_", "B1_F", "B1_URL.x"],
            ),
            (
                "x-magento-tags",
                "cat_c,cat_c_p,FPC",
                &["FPC", "cat_c", "cat_c_p"],
            ),
            (
                "cache-groups",
                r#""a", "b c";x;y="z;\"";q=1.5 , "d\"\\""#,
                &["a", "b c", r#"d"\"#],
            ),
            ("cache-groups", "token", &[]),
            ("cache-groups", r#""a" "b""#, &[]),
            ("cache-groups", r#""a","#, &[]),
            ("cache-groups", r#""a\n""#, &[]),
            ("cache-groups", r#""open"#, &[]),
            ("cache-groups", "", &[]),
        ];
        for (name, value, expected) in cases {
            assert_eq!(
                tags(&[(name, value)]).unwrap(),
                *expected,
                "{name}: {value}"
            );
        }
        let both = [
            ("cache-tag", "a,b"),
            ("Surrogate-Key", "b c"),
            ("cache-tag", "d"),
        ];
        assert_eq!(tags(&both).unwrap(), ["a", "b", "c", "d"]);
    }

    #[test]
    fn an_answer_whose_tags_are_too_many_is_refused() {
        let many = |count: usize| {
            (0..count)
                .map(|n| n.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            tags(&[("xkey", &many(MOST_TAGS))]).unwrap().len(),
            MOST_TAGS
        );
        assert_eq!(tags(&[("xkey", &many(MOST_TAGS + 1))]), Err(TooMany));
        assert_eq!(
            tags(&[("xkey", &"x".repeat(LONGEST_TAG + 1))]),
            Err(TooMany)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(value in prop::collection::vec(any::<u8>(), 0..60)) {
            for (_, separators) in FIELDS {
                Tags::default().read(&value, separators);
            }
            prop_assert!(Tags::groups(&value).len() <= value.len());
        }

        #[test]
        fn strings_come_back(texts in prop::collection::vec("[ -~]{0,8}", 0..5)) {
            let quoted = texts.iter().map(|text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")));
            let value = quoted.collect::<Vec<_>>().join(", ");
            let expected: Vec<Box<[u8]>> = texts.iter().map(|text| text.as_bytes().into()).collect();
            prop_assert_eq!(strings(value.as_bytes()), Some(expected));
        }
    }
}
