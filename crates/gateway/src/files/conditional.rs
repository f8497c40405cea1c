//! Conditional requests (RFC 9110 §13).

use std::time::{SystemTime, UNIX_EPOCH};

use weir_http1::{Fields, Name};

use super::entry::Representation;

/// The result of the conditions of a GET or HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Answer as if there were no conditions.
    Proceed,
    /// 304
    NotModified,
    /// 412
    Failed,
}

/// Evaluates the conditions in the order of RFC 9110 §13.2.2. An invalid date is ignored.
pub(super) fn evaluate(chosen: &Representation, headers: &Fields) -> Outcome {
    let etag = chosen.etag.as_bytes();
    if headers.has(Name::IfMatch) {
        if !any_tag(headers, Name::IfMatch, |tag| {
            !tag.weak && tag.opaque == etag
        }) {
            return Outcome::Failed;
        }
    } else if date(headers, Name::IfUnmodifiedSince).is_some_and(|since| chosen.modified > since) {
        return Outcome::Failed;
    }
    if headers.has(Name::IfNoneMatch) {
        if any_tag(headers, Name::IfNoneMatch, |tag| tag.opaque == etag) {
            return Outcome::NotModified;
        }
    } else if date(headers, Name::IfModifiedSince).is_some_and(|since| chosen.modified <= since) {
        return Outcome::NotModified;
    }
    Outcome::Proceed
}

/// Whether ranges apply to the request (RFC 9110 §13.1.5): it has no `If-Range`, or one that matches the file.
pub(super) fn range_applies(chosen: &Representation, headers: &Fields) -> bool {
    let Some(value) = headers.get(Name::IfRange) else {
        return true;
    };
    if value.ends_with(b"\"") {
        return value == chosen.etag.as_bytes();
    }
    let Some(since) = date(headers, Name::IfRange) else {
        return false;
    };
    // RFC 9110 §8.8.2.2: a date is a strong validator only when its second is over.
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since == chosen.modified && chosen.modified + 1 < now.as_secs()
}

/// An entity tag (RFC 9110 §8.8.3).
#[derive(Debug, PartialEq, Eq)]
struct Tag<'h> {
    weak: bool,
    /// Including the quotes.
    opaque: &'h [u8],
}

/// Whether the header is `*` or lists a matching tag. Everything after an invalid tag is ignored.
fn any_tag(headers: &Fields, name: Name, fits: impl Fn(&Tag<'_>) -> bool) -> bool {
    headers.all(name).any(|value| {
        let mut rest = value.trim_ascii();
        rest == b"*" || core::iter::from_fn(|| next_tag(&mut rest)).any(|tag| fits(&tag))
    })
}

fn next_tag<'h>(rest: &mut &'h [u8]) -> Option<Tag<'h>> {
    while let [b' ' | b'\t' | b',', after @ ..] = rest {
        *rest = after;
    }
    let weak = rest.starts_with(b"W/");
    let quoted: &[u8] = if weak { &rest[2..] } else { rest };
    if quoted.first() != Some(&b'"') {
        return None;
    }
    let len = memchr::memchr(b'"', &quoted[1..])? + 2;
    *rest = &quoted[len..];
    let opaque = &quoted[..len];
    Some(Tag { weak, opaque })
}

/// Seconds since 1970. If the header occurs twice, it is ignored.
fn date(headers: &Fields, name: Name) -> Option<u64> {
    let mut values = headers.all(name);
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tags(list: &str) -> Vec<(bool, String)> {
        let mut rest = list.as_bytes();
        core::iter::from_fn(|| next_tag(&mut rest))
            .map(|tag| (tag.weak, String::from_utf8_lossy(tag.opaque).into_owned()))
            .collect()
    }

    #[test]
    fn lists_of_tags_are_read_up_to_the_first_that_is_none() {
        let owned = |weak, text: &str| (weak, text.to_owned());
        assert_eq!(tags(r#""a""#), [owned(false, r#""a""#)]);
        assert_eq!(
            tags(r#" , W/"a,b" ,"" "#),
            [owned(true, r#""a,b""#), owned(false, r#""""#)]
        );
        assert_eq!(tags(r#""a", b, "c""#), [owned(false, r#""a""#)]);
        assert_eq!(tags(r#""a"#), []);
        assert_eq!(tags("w/\"a\""), []);
        assert_eq!(tags(""), []);
    }

    proptest! {
        #[test]
        fn any_list_is_taken(mut list in proptest::collection::vec(any::<u8>(), 0..30)) {
            list.extend_from_slice(b"\"");
            let mut rest = &list[..];
            prop_assert!(core::iter::from_fn(|| next_tag(&mut rest)).count() <= list.len());
        }
    }
}
