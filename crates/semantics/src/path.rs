//! The path of a URL: decoded once, without dot segments, and without anything that a file system reads differently.
//!
//! The result begins with a slash. It has no NUL and no empty, `.` or `..` segment, and `..` never led above the
//! root. Backslashes and bytes that are not UTF-8 are ordinary bytes. The result is not a URL; [`encode`] makes one.

use std::borrow::Cow;

/// Why a path cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    /// It does not begin with a slash, has an incomplete or wrong escape, or a NUL.
    Invalid,
    /// `..` leads above the root.
    AboveRoot,
}

/// A decoded and normalised path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Normal<'r> {
    /// Begins with a slash; see the module's head.
    pub path: Cow<'r, [u8]>,
    /// How much of `path` may name a file: all of it, or the part before the first encoded slash. That slash belongs
    /// to a segment, and no file name contains a slash.
    pub plain: usize,
    /// Whether dot segments were removed.
    pub dotted: bool,
}

/// Decodes `%XX` once, merges slashes (as nginx's `merge_slashes`) and removes dot segments (RFC 3986 §5.2.4), also
/// encoded ones. An encoded slash separates segments like a plain one, so that the rules for a path cannot be
/// bypassed with it; [`Normal::plain`] says where it was. Allocates only if something has to change.
///
/// # Errors
/// [`PathError`], as its variants say.
pub fn normalise(raw: &[u8]) -> Result<Normal<'_>, PathError> {
    if raw.first() != Some(&b'/') {
        return Err(PathError::Invalid);
    }
    if is_normal(raw) {
        return Ok(Normal {
            path: Cow::Borrowed(raw),
            plain: raw.len(),
            dotted: false,
        });
    }
    let decoded = decode(raw)?;
    let mut path = Vec::with_capacity(decoded.len());
    let mut plain = None;
    let mut dotted = false;
    let mut ends_in_folder = true;
    for (segment, after) in segments(&decoded) {
        if after == ENCODED_SLASH {
            let before = plain.unwrap_or(path.len());
            plain = Some(before.min(path.len()));
        }
        ends_in_folder = matches!(segment, b"" | b"." | b"..");
        dotted |= matches!(segment, b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => {
                let parent = memchr::memrchr(b'/', &path).ok_or(PathError::AboveRoot)?;
                path.truncate(parent);
                plain = plain.map(|plain| plain.min(parent));
            }
            _ => {
                path.push(b'/');
                path.extend_from_slice(segment);
            }
        }
    }
    if ends_in_folder {
        path.push(b'/');
    }
    Ok(Normal {
        plain: plain.unwrap_or(path.len()),
        path: Cow::Owned(path),
        dotted,
    })
}

/// As [`normalise`], but keeps the dot segments: this is the path that an application sees in `REQUEST_URI`.
///
/// # Errors
/// As [`normalise`].
pub fn with_dots(raw: &[u8]) -> Result<Vec<u8>, PathError> {
    let decoded = decode(raw)?;
    let mut path = Vec::with_capacity(decoded.len());
    let mut ends_in_slash = true;
    for (segment, _) in segments(&decoded) {
        ends_in_slash = segment.is_empty();
        if !segment.is_empty() {
            path.push(b'/');
            path.extend_from_slice(segment);
        }
    }
    if ends_in_slash {
        path.push(b'/');
    }
    Ok(path)
}

/// The segments of a decoded path, each with the slash before it.
fn segments(decoded: &[u8]) -> impl Iterator<Item = (&[u8], u8)> {
    let mut rest = Some(decoded);
    core::iter::from_fn(move || {
        let (slash, after) = rest?.split_first()?;
        let end = memchr::memchr2(b'/', ENCODED_SLASH, after);
        rest = end.map(|end| &after[end..]);
        Some((&after[..end.unwrap_or(after.len())], *slash))
    })
}

/// Encodes a normalised path for a URL. The result is safe in `Location`, with any bytes in the names.
pub fn encode(path: &[u8], out: &mut Vec<u8>) {
    for &byte in path {
        // RFC 3986 §3.3: pchar and the slash.
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
    }
}

/// True if nothing has to be decoded, merged or removed. Dot files are not recognized here and take the slow path.
fn is_normal(raw: &[u8]) -> bool {
    let mut after_slash = false;
    for &byte in raw {
        match byte {
            b'%' | 0 => return false,
            b'/' | b'.' if after_slash => return false,
            _ => after_slash = byte == b'/',
        }
    }
    true
}

fn decode(raw: &[u8]) -> Result<Vec<u8>, PathError> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw.iter();
    while let Some(&byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let high = rest.next().and_then(hex_value).ok_or(PathError::Invalid)?;
                let low = rest.next().and_then(hex_value).ok_or(PathError::Invalid)?;
                match high << 4 | low {
                    0 => return Err(PathError::Invalid),
                    b'/' => ENCODED_SLASH,
                    byte => byte,
                }
            }
            0 => return Err(PathError::Invalid),
            byte => byte,
        };
        decoded.push(byte);
    }
    Ok(decoded)
}

fn hex_value(digit: &u8) -> Option<u8> {
    (*digit as char).to_digit(16).map(|value| value as u8)
}

fn hex_digit(value: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(value)]
}

/// Stands for an encoded slash in a decoded path. A path cannot contain a NUL itself.
const ENCODED_SLASH: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_are_decoded_once_merged_and_straightened() {
        for (raw, expected) in [
            ("/", "/"),
            ("/a/b.html", "/a/b.html"),
            ("/a%20b", "/a b"),
            ("/%2541", "/%41"),
            ("//a///b//", "/a/b/"),
            ("/a/./b", "/a/b"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/../b", "/b"),
            ("/a//../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e/b", "/b"),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."),
            ("/a/..b", "/a/..b"),
            ("/a\\..\\b", "/a\\..\\b"),
            ("/a%5c..%5cb", "/a\\..\\b"),
            ("/a%0ab", "/a\nb"),
        ] {
            let normal = normalise(raw.as_bytes()).unwrap();
            assert_eq!(String::from_utf8_lossy(&normal.path), expected, "{raw}");
            assert_eq!(normal.plain, normal.path.len(), "{raw}");
        }
        assert_eq!(*normalise(b"/%ff\xfe").unwrap().path, *b"/\xff\xfe");
    }

    #[test]
    fn what_cannot_be_a_path_is_refused() {
        for (raw, refusal) in [
            ("", PathError::Invalid),
            ("*", PathError::Invalid),
            ("a/b", PathError::Invalid),
            ("/%", PathError::Invalid),
            ("/%4", PathError::Invalid),
            ("/%4g", PathError::Invalid),
            ("/%+1", PathError::Invalid),
            ("/a%00.php", PathError::Invalid),
            ("/a\0", PathError::Invalid),
            ("/..", PathError::AboveRoot),
            ("/a/../..", PathError::AboveRoot),
            ("/a/../../etc/passwd", PathError::AboveRoot),
            ("/%2e%2e/etc/passwd", PathError::AboveRoot),
            ("/..%2f..%2fetc/passwd", PathError::AboveRoot),
            ("/a%2F../..", PathError::AboveRoot),
        ] {
            assert_eq!(normalise(raw.as_bytes()), Err(refusal), "{raw}");
        }
    }

    #[test]
    fn what_stands_behind_an_encoded_slash_names_no_file() {
        for (raw, path, plain) in [
            ("/a%2Fb", "/a/b", "/a"),
            ("/x.php/a%2fb", "/x.php/a/b", "/x.php/a"),
            ("/x.php%2Fa", "/x.php/a", "/x.php"),
            ("/%2Fdocs", "/docs", ""),
            ("/docs%2F", "/docs/", "/docs"),
            ("/docs/%2F", "/docs/", "/docs"),
            ("/docs/x%2F../a.txt", "/docs/a.txt", "/docs"),
            ("/docs/x%2F../../a.txt", "/a.txt", ""),
            ("/a/b%2Fc/../../d%2Fe", "/a/d/e", "/a"),
        ] {
            let normal = normalise(raw.as_bytes()).unwrap();
            assert_eq!(String::from_utf8_lossy(&normal.path), path, "{raw}");
            let before = &normal.path[..normal.plain];
            assert_eq!(String::from_utf8_lossy(before), plain, "{raw}");
        }
    }

    #[test]
    fn dots_are_left_where_they_are_asked_for() {
        for (raw, expected) in [
            ("/a/../b", "/a/../b"),
            ("//a/%2e%2e%2Fb/", "/a/../b/"),
            ("/a/.", "/a/."),
            ("/", "/"),
        ] {
            let path = with_dots(raw.as_bytes()).unwrap();
            assert_eq!(String::from_utf8_lossy(&path), expected, "{raw}");
        }
    }

    #[test]
    fn an_ordinary_path_is_not_copied() {
        for raw in ["/", "/index.php", "/wp-content/themes/a-b/style.css"] {
            let normal = normalise(raw.as_bytes()).unwrap();
            assert!(matches!(normal.path, Cow::Borrowed(_)));
        }
    }

    fn raw_path() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"/".to_vec()),
            Just(b".".to_vec()),
            Just(b"..".to_vec()),
            Just(b"%2e".to_vec()),
            Just(b"%2F".to_vec()),
            Just(b"%00".to_vec()),
            Just(b"%25".to_vec()),
            Just(b"%".to_vec()),
            Just(b"\\".to_vec()),
            "[a-z%]{1,3}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 1..3),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| {
            let mut path = b"/".to_vec();
            path.extend(pieces.concat());
            path
        })
    }

    proptest! {
        #[test]
        fn a_normalised_path_never_leads_out(raw in raw_path()) {
            let Ok(Normal { path, plain, .. }) = normalise(&raw) else { return Ok(()) };
            prop_assert!(plain <= path.len());
            prop_assert_eq!(path[0], b'/');
            prop_assert!(!path.contains(&0));
            let inner = path[1..].strip_suffix(b"/").unwrap_or(&path[1..]);
            if !inner.is_empty() {
                for segment in inner.split(|&b| b == b'/') {
                    prop_assert!(!matches!(segment, b"" | b"." | b".."), "{:?}", path);
                }
            }
        }

        #[test]
        fn encoding_and_normalising_again_changes_nothing(raw in raw_path()) {
            let Ok(Normal { path, .. }) = normalise(&raw) else { return Ok(()) };
            let mut url = Vec::new();
            encode(&path, &mut url);
            prop_assert!(url.is_ascii());
            let again = normalise(&url).unwrap();
            prop_assert_eq!(again.plain, path.len());
            prop_assert_eq!(again.path, path);
        }

        #[test]
        fn any_bytes_are_taken(raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = normalise(&raw);
            let _ = with_dots(&raw);
        }
    }
}
