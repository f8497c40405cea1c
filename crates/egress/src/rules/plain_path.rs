//! Checks whether all servers interpret a path in the same way.
//!
//! A rule with a path promises that only this part of the origin is called. But the origin interprets the path, and
//! origins differ: some resolve `..` after decoding `%2e` and `%2f`, some decode twice, some treat `\` as `/`, and
//! some remove `;parameters`, empty segments, or dots and spaces at the end of a segment. weir does not guess what
//! this origin does: it refuses everything that could be one of these.

use std::borrow::Cow;

/// How often a path is decoded to find hidden parts. More levels are used only to hide something.
const MOST_DECODINGS: usize = 3;

/// Refuses a path that servers may interpret in different ways.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(path: &str) -> Result<(), &'static str> {
    let mut bytes = Cow::Borrowed(path.as_bytes());
    if has_broken_encoding(&bytes) {
        return Err("a % without a valid code");
    }
    for _ in 0..MOST_DECODINGS {
        segments(&bytes)?;
        let decoded: Cow<'_, [u8]> = percent_encoding::percent_decode(&bytes).into();
        match decoded {
            Cow::Borrowed(_) => return Ok(()),
            Cow::Owned(decoded) => bytes = Cow::Owned(decoded),
        }
    }
    Err("a % that is encoded several times")
}

fn segments(path: &[u8]) -> Result<(), &'static str> {
    let inner = path.strip_prefix(b"/").unwrap_or(path);
    let mut segments = inner.split(|byte| matches!(byte, b'/' | b'\\')).peekable();
    while let Some(segment) = segments.next() {
        let name = segment
            .split(|&byte| byte == b';')
            .next()
            .unwrap_or_default();
        let blank = |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_control();
        let mut dots = name.iter().filter(|byte| !blank(byte)).peekable();
        if dots.peek().is_some() && dots.all(|&byte| byte == b'.') {
            return Err("a segment of dots (. or ..)");
        }
        // A path may end with a slash.
        if name.is_empty() && (segments.peek().is_some() || !segment.is_empty()) {
            return Err("an empty segment (//)");
        }
        // They never begin a character in UTF-8; older decoders read C0 AE as a dot.
        if segment.iter().any(|byte| matches!(byte, 0xc0 | 0xc1)) {
            return Err("bytes that are no UTF-8");
        }
    }
    Ok(())
}

/// Whether a `%` is not followed by two hex digits: some servers ignore it, some read `%u002e`.
fn has_broken_encoding(path: &[u8]) -> bool {
    memchr::memchr_iter(b'%', path).any(|at| {
        let digits = path.get(at + 1..at + 3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_everybody_reads_alike_passes() {
        for path in [
            "/v1/",
            "/v1/a",
            "/v1/a/b.json",
            "/v1/a.b..c/",
            "/v1/.well-known",
            "/v1/..a",
            "/v1/a%20b",
            "/v1/a;b=c",
            "/v1/%C3%A4",
            "/v1/ä",
            "/v1/100%25",
            "/v1/100%2525",
            "/v1/a:b@c",
        ] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn what_could_lead_elsewhere_does_not() {
        for path in [
            "/v1/..",
            "/v1/../a",
            "/v1/./a",
            "/v1/.",
            "/v1/...",
            "/v1//a",
            "/v1//",
            "//v1/a",
            "/v1/%2e%2e/a",
            "/v1/.%2E/a",
            "/v1/%2e",
            "/v1/..%2fa",
            "/v1/a%2f..%2f..%2fb",
            "/v1/..%5ca",
            "/v1/a%5c..%5c",
            "/v1/%252e%252e/a",
            "/v1/%25252e%25252e/a",
            "/v1/..;/a",
            "/v1/..;x=y/a",
            "/v1/;/a",
            "/v1/a/;x",
            "/v1/..%20/a",
            "/v1/..%09/a",
            "/v1/.%0b./a",
            "/v1/..%3b/a",
            "/v1/%c0%ae%c0%ae/a",
            "/v1/%u002e/a",
            "/v1/%%32%65/",
            "/v1/a%",
            "/v1/a%2",
            "/v1/a%2f/b",
            "/v1/..%00/a",
        ] {
            assert!(check(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_long_path_costs_no_more_than_its_length() {
        let nested = format!("/v1/%{}", "25".repeat(30_000));
        assert_eq!(check(&nested), Err("a % that is encoded several times"));
    }
}
