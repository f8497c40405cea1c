//! Conditional requests (RFC 9110 §13).

use std::time::UNIX_EPOCH;

/// What conditions are compared with.
#[derive(Debug, Clone, Copy)]
pub struct Validators<'v> {
    /// The entity tag, including the quotes and without `W/`; empty if there is none.
    pub etag: &'v [u8],
    /// `Last-Modified`, seconds since 1970.
    pub modified: Option<u64>,
}

/// The fields that make a request conditional, without `If-Range` (RFC 9110 §13.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// `If-Match`
    IfMatch,
    /// `If-None-Match`
    IfNoneMatch,
    /// `If-Modified-Since`
    IfModifiedSince,
    /// `If-Unmodified-Since`
    IfUnmodifiedSince,
}

/// The result of the conditions of a GET or HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answer as if there were no conditions.
    Proceed,
    /// 304
    NotModified,
    /// 412
    Failed,
}

/// Evaluates the conditions in the order of RFC 9110 §13.2.2. `values` gives the values of all fields of a condition. An
/// invalid date is ignored.
#[must_use]
pub fn evaluate<'h, V>(chosen: Validators<'_>, values: impl Fn(Condition) -> V) -> Outcome
where
    V: Iterator<Item = &'h [u8]>,
{
    match any_tag(values(Condition::IfMatch), |tag| {
        !tag.weak && tag.opaque == chosen.etag
    }) {
        Some(true) => {}
        Some(false) => return Outcome::Failed,
        None => {
            let since = date(values(Condition::IfUnmodifiedSince));
            if matches!((chosen.modified, since), (Some(modified), Some(since)) if modified > since)
            {
                return Outcome::Failed;
            }
        }
    }
    let unchanged = match any_tag(values(Condition::IfNoneMatch), |tag| {
        tag.opaque == chosen.etag
    }) {
        Some(matches) => matches,
        None => {
            let since = date(values(Condition::IfModifiedSince));
            matches!((chosen.modified, since), (Some(modified), Some(since)) if modified <= since)
        }
    };
    match unchanged {
        true => Outcome::NotModified,
        false => Outcome::Proceed,
    }
}

/// Whether ranges apply, to a representation whose tag is strong, for a request with these values of `If-Range` (RFC 9110 §13.1.5): it has none, or one that
/// matches. `now` is in seconds since 1970.
#[must_use]
pub fn range_applies<'h>(
    chosen: Validators<'_>,
    mut if_range: impl Iterator<Item = &'h [u8]>,
    now: u64,
) -> bool {
    let Some(value) = if_range.next() else {
        return true;
    };
    if value.ends_with(b"\"") {
        return value == chosen.etag;
    }
    let Some(since) = date(std::iter::once(value).chain(if_range)) else {
        return false;
    };
    // RFC 9110 §8.8.2.2: a date is a strong validator only when its second is over.
    chosen.modified == Some(since) && since + 1 < now
}

/// An entity tag (RFC 9110 §8.8.3).
#[derive(Debug, PartialEq, Eq)]
struct Tag<'h> {
    weak: bool,
    /// Including the quotes.
    opaque: &'h [u8],
}

/// Whether one of the values is `*` or lists a tag that fits; none if there is no value. Everything after an invalid tag
/// is ignored.
fn any_tag<'h>(
    values: impl Iterator<Item = &'h [u8]>,
    fits: impl Fn(&Tag<'_>) -> bool,
) -> Option<bool> {
    let mut found = None;
    for value in values {
        let mut rest = value.trim_ascii();
        let matches =
            rest == b"*" || std::iter::from_fn(|| next_tag(&mut rest)).any(|tag| fits(&tag));
        if matches {
            return Some(true);
        }
        found = Some(false);
    }
    found
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

/// A date in seconds since 1970 (RFC 9110 §5.6.7). If the field occurs twice, it is ignored.
pub fn date<'h>(mut values: impl Iterator<Item = &'h [u8]>) -> Option<u64> {
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
        std::iter::from_fn(|| next_tag(&mut rest))
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

    const MODIFIED: &str = "Sun, 22 Nov 2026 10:00:00 GMT";
    const BEFORE: &str = "Sun, 22 Nov 2026 09:59:59 GMT";

    fn chosen() -> Validators<'static> {
        Validators {
            etag: b"\"now\"",
            modified: date([MODIFIED.as_bytes()].into_iter()),
        }
    }

    fn outcome(fields: &[(Condition, &str)]) -> Outcome {
        evaluate(chosen(), |condition| {
            let of_it = fields.iter().filter(move |(of, _)| *of == condition);
            of_it.map(|(_, value)| value.as_bytes())
        })
    }

    #[test]
    fn conditions_are_evaluated_in_their_order() {
        use Condition::{IfMatch, IfModifiedSince, IfNoneMatch, IfUnmodifiedSince};
        use Outcome::{Failed, NotModified, Proceed};
        for (fields, expected) in [
            (&[][..], Proceed),
            (&[(IfMatch, "*")], Proceed),
            (&[(IfMatch, "\"old\", \"now\"")], Proceed),
            (&[(IfMatch, "\"old\""), (IfMatch, "\"now\"")], Proceed),
            (&[(IfMatch, "W/\"now\"")], Failed),
            (&[(IfMatch, "")], Failed),
            // With If-Match the date does not count.
            (
                &[(IfMatch, "\"now\""), (IfUnmodifiedSince, BEFORE)],
                Proceed,
            ),
            (&[(IfUnmodifiedSince, BEFORE)], Failed),
            (&[(IfUnmodifiedSince, MODIFIED)], Proceed),
            (&[(IfUnmodifiedSince, "yesterday")], Proceed),
            (&[(IfNoneMatch, "W/\"now\"")], NotModified),
            (&[(IfNoneMatch, "*")], NotModified),
            (&[(IfNoneMatch, "\"old\"")], Proceed),
            // With If-None-Match the date does not count.
            (
                &[(IfNoneMatch, "\"old\""), (IfModifiedSince, MODIFIED)],
                Proceed,
            ),
            (&[(IfModifiedSince, MODIFIED)], NotModified),
            (&[(IfModifiedSince, BEFORE)], Proceed),
            (
                &[(IfModifiedSince, MODIFIED), (IfModifiedSince, MODIFIED)],
                Proceed,
            ),
            // A 412 comes before a 304.
            (&[(IfMatch, "\"old\""), (IfNoneMatch, "\"now\"")], Failed),
        ] {
            assert_eq!(outcome(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn without_validators_only_a_star_matches() {
        let none = Validators {
            etag: b"",
            modified: None,
        };
        for (condition, value, expected) in [
            (Condition::IfNoneMatch, "*", Outcome::NotModified),
            (Condition::IfNoneMatch, "\"\", , W/", Outcome::Proceed),
            (Condition::IfModifiedSince, MODIFIED, Outcome::Proceed),
            (Condition::IfUnmodifiedSince, MODIFIED, Outcome::Proceed),
        ] {
            let outcome = evaluate(none, |asked| {
                let value = (asked == condition).then_some(value.as_bytes());
                value.into_iter()
            });
            assert_eq!(outcome, expected, "{condition:?}: {value}");
        }
    }

    #[test]
    fn ranges_apply_to_what_the_client_has_in_part() {
        let applies = |values: &[&str], later: u64| {
            let values = values.iter().map(|value| value.as_bytes());
            range_applies(chosen(), values, chosen().modified.unwrap() + later)
        };
        assert!(applies(&[], 0) && applies(&["\"now\""], 0));
        assert!(!applies(&["W/\"now\""], 9) && !applies(&["\"old\""], 9));
        assert!(applies(&[MODIFIED], 2) && !applies(&[MODIFIED], 1));
        assert!(!applies(&[BEFORE], 9) && !applies(&["now"], 9));
        assert!(!applies(&[MODIFIED, MODIFIED], 9));
    }

    proptest! {
        #[test]
        fn any_values_are_taken(values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 0..3)) {
            let all = || values.iter().map(Vec::as_slice);
            let _ = evaluate(chosen(), |_| all());
            let _ = range_applies(chosen(), all(), 0);
        }

        #[test]
        fn any_list_is_taken(mut list in proptest::collection::vec(any::<u8>(), 0..30)) {
            list.extend_from_slice(b"\"");
            let mut rest = &list[..];
            prop_assert!(std::iter::from_fn(|| next_tag(&mut rest)).count() <= list.len());
        }
    }
}
