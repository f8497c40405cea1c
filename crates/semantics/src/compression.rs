//! Which answers a server may compress on its way to the client, and what changes in their fields (RFC 9110 §8.8, §12.5.5).

use super::{coding::Coding, fields};

/// Whether the media type of a `Content-Type` is in a list of types: `text/css`, `text/*`, `*+json`, or `*` for all. Case does
/// not matter, and parameters do not count.
pub fn is_listed<'t>(content_type: &[u8], mut types: impl Iterator<Item = &'t str>) -> bool {
    let essence = content_type.split(|&b| b == b';').next();
    let essence = essence.unwrap_or_default().trim_ascii();
    let ends_with = |end: &[u8]| {
        let at = essence.len().checked_sub(end.len());
        at.is_some_and(|at| essence[at..].eq_ignore_ascii_case(end))
    };
    let begins_with = |begin: &[u8]| {
        let part = essence.get(..begin.len());
        part.is_some_and(|part| part.eq_ignore_ascii_case(begin))
    };
    !essence.is_empty()
        && types.any(|listed| match listed.as_bytes() {
            b"*" => true,
            [b'*', suffix @ ..] => ends_with(suffix),
            [kind @ .., b'*'] => begins_with(kind),
            exact => essence.eq_ignore_ascii_case(exact),
        })
}

/// Whether `Cache-Control` has `no-transform` (RFC 9111 §5.2.1.6, §5.2.2.6).
pub fn is_no_transform<'v>(cache_control: impl Iterator<Item = &'v [u8]>) -> bool {
    fields::has_token(cache_control, "no-transform")
}

/// Whether `Vary` already says that the answer depends on what the client accepts.
pub fn varies_by_coding<'v>(mut values: impl Iterator<Item = &'v [u8]>) -> bool {
    let says_so = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding");
    values.any(|value| fields::elements(value).any(says_so))
}

/// The tag of an answer whose bytes another program has compressed: the meaning is the same, the bytes are not (RFC 9110
/// §8.8.1). `None`: it is weak already, or not a tag.
#[must_use]
pub fn weak_tag(tag: &[u8]) -> Option<Vec<u8>> {
    tag.starts_with(b"\"").then(|| [b"W/", tag].concat())
}

/// The tag of a compressed file: the original's tag and the name of the coding, `"abc-zstd"`.
#[must_use]
pub fn suffixed_tag(tag: &[u8], coding: Coding) -> Vec<u8> {
    let opaque = tag.strip_suffix(b"\"").unwrap_or(tag);
    [opaque, b"-", coding.name().as_bytes(), b"\""].concat()
}

/// The tag of a script's answer that is compressed on its way: weak, because other compressions have other bytes, and marked
/// so that [`original_tags`] finds it: `"abc"` becomes `W/"abc-weir-zstd"`. `None`: it is weak already, or not a tag.
#[must_use]
pub fn marked_tag(tag: &[u8], coding: Coding) -> Option<Vec<u8>> {
    let opaque = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    Some([b"W/\"", opaque, MARK, coding.name().as_bytes(), b"\""].concat())
}

/// The value of `If-Match`, `If-None-Match` or `If-Range` with the original tags in place of marked ones: it undoes
/// [`marked_tag`], and changes nothing else. Returns also the coding of the first of them. `None`: there is none.
#[must_use]
pub fn original_tags(value: &[u8]) -> Option<(Vec<u8>, Coding)> {
    let mut original = Vec::new();
    let mut first = None;
    let (mut at, mut copied) = (0, 0);
    while let Some(quote) = position(&value[at..], b'"') {
        let begin = at + quote;
        let Some(length) = position(&value[begin + 1..], b'"') else {
            break;
        };
        let end = begin + 1 + length;
        let opaque = &value[begin + 1..end];
        at = end + 1;
        if let Some((opaque, coding)) = without_mark(opaque)
            && value[copied..begin].ends_with(b"W/")
        {
            original.extend_from_slice(&value[copied..begin - 2]);
            original.extend_from_slice(&[b"\"", opaque, b"\""].concat());
            copied = at;
            first.get_or_insert(coding);
        }
    }
    original.extend_from_slice(&value[copied..]);
    first.map(|coding| (original, coding))
}

fn position(bytes: &[u8], byte: u8) -> Option<usize> {
    bytes.iter().position(|other| *other == byte)
}

fn without_mark(opaque: &[u8]) -> Option<(&[u8], Coding)> {
    [Coding::Zstd, Coding::Brotli, Coding::Gzip]
        .into_iter()
        .find_map(|coding| {
            let opaque = opaque.strip_suffix(coding.name().as_bytes())?;
            Some((opaque.strip_suffix(MARK)?, coding))
        })
}

/// No application ends its tags like this.
const MARK: &[u8] = b"-weir-";

/// Types of text that becomes much smaller, in the form of [`is_listed`].
pub const TEXT_TYPES: [&str; 26] = [
    "text/*",
    "*+json",
    "*+xml",
    "*+yaml",
    "*+text",
    "application/json",
    "application/xml",
    "application/javascript",
    "application/x-javascript",
    "application/ecmascript",
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/yaml",
    "application/toml",
    "application/sql",
    "application/graphql",
    "application/wasm",
    "application/x-www-form-urlencoded",
    "application/rtf",
    "application/vnd.ms-fontobject",
    "font/ttf",
    "font/otf",
    "image/bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
];

/// An answer with one of these fields is already compressed, a part, or signed as it is.
pub const UNCHANGEABLE: [&str; 7] = [
    "content-encoding",
    "content-range",
    "content-digest",
    "repr-digest",
    "digest",
    "content-md5",
    "signature",
];

/// A shorter answer fits into one packet without compression, bytes.
pub const SMALLEST: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn types_are_listed_exactly_by_kind_or_by_suffix() {
        let is = |media: &str| is_listed(media.as_bytes(), TEXT_TYPES.into_iter());
        assert!(is("text/css; charset=utf-8") && is("image/svg+xml") && is("Application/JSON"));
        assert!(is("application/problem+json ;x=y") && is("application/wasm") && is("TEXT/x"));
        assert!(!is("image/png") && !is("video/mp4") && !is("application/octet-stream"));
        assert!(!is("") && !is(";text/css") && !is("text") && !is("application/jsonx"));
        assert!(is_listed(b"video/mp4", ["*"].into_iter()));
        assert!(!is_listed(b"", ["*"].into_iter()));
    }

    #[test]
    fn tags_become_weak_or_get_the_coding_and_back() {
        assert_eq!(weak_tag(b"\"a\""), Some(b"W/\"a\"".to_vec()));
        assert_eq!(weak_tag(b"W/\"a\""), None);
        assert_eq!(weak_tag(b"a"), None);
        assert_eq!(suffixed_tag(b"\"a\"", Coding::Zstd), b"\"a-zstd\"");
        for (value, original) in [
            ("\"a\"", None),
            ("*", None),
            ("", None),
            ("W/", None),
            ("W/\"a\"", None),
            ("W/\"a-gzip\", \"a-weir-gzip\"", None),
            ("W/\"a-weir-gzip", None),
            ("W/\"a-weir-gzip-\"", None),
            ("W/\"a-weir-\"", None),
            ("W/\"a-weir-br\"", Some("\"a\"")),
            ("W/\"-weir-gzip\"", Some("\"\"")),
            (
                "\"a\", W/\"b-weir-zstd\" ,W/\"c\",W/\"d, W/-weir-gzip\", \"W/\"",
                Some("\"a\", \"b\" ,W/\"c\",\"d, W/\", \"W/\""),
            ),
        ] {
            let found = original_tags(value.as_bytes()).map(|(value, _)| value);
            assert_eq!(found.as_deref(), original.map(str::as_bytes), "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_value_is_taken(value in proptest::collection::vec(prop_oneof![Just(b'"'), Just(b'W'), Just(b'/'), any::<u8>()], 0..40)) {
            prop_assert!(original_tags(&value).is_none());
        }

        #[test]
        fn a_mark_is_undone(opaque in "[!#-~]{0,20}(-weir-gzip)?", others in "(\"x\", ?|W/\"y\", )*", which in 0..3_usize) {
            let coding = [Coding::Zstd, Coding::Brotli, Coding::Gzip][which];
            let tag = format!("\"{opaque}\"");
            let marked = marked_tag(tag.as_bytes(), coding).expect("strong");
            let sent = [others.as_bytes(), &marked, b",W/\"z\""].concat();
            let (original, first) = original_tags(&sent).expect("marked");
            prop_assert_eq!(original, format!("{others}{tag},W/\"z\"").into_bytes());
            prop_assert_eq!(first, coding);
        }
    }
}
