//! The path of a URL: decoded once, without dot segments, nothing in it that a file system reads differently.
//!
//! What comes out begins with a slash, holds no NUL, no empty, `.` or `..` segment, and never rose above the root
//! on the way. A backslash and bytes that are no UTF-8 are ordinary. It is not a URL any more: [`encode`] makes one.

use std::borrow::Cow;

use super::Refusal;

/// Decodes `%XX` once, merges runs of slashes (as nginx's `merge_slashes`) and removes dot segments
/// (RFC 3986 §5.2.4), also those that were written encoded. Allocates only where something has to change.
///
/// # Errors
/// [`Refusal::BadPath`] for a path that does not begin with a slash, an unfinished or wrong escape and a NUL;
/// [`Refusal::AboveRoot`]; [`Refusal::EncodedSlash`]: a slash inside of a segment can be no file, and read as a
/// separator it would let one path pass the rules of another.
pub(super) fn normalise(raw: &[u8]) -> Result<Cow<'_, [u8]>, Refusal> {
    if raw.first() != Some(&b'/') {
        return Err(Refusal::BadPath);
    }
    if is_normal(raw) {
        return Ok(Cow::Borrowed(raw));
    }
    let decoded = decode(raw)?;
    let mut path = Vec::with_capacity(decoded.len());
    let mut ends_in_folder = true;
    for segment in decoded[1..].split(|&b| b == b'/') {
        ends_in_folder = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => {
                let parent = memchr::memrchr(b'/', &path).ok_or(Refusal::AboveRoot)?;
                path.truncate(parent);
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
    Ok(Cow::Owned(path))
}

/// A normalised path as a URL has it: safe in a `Location`, whatever bytes its names have.
pub(super) fn encode(path: &[u8], out: &mut Vec<u8>) {
    for &byte in path {
        // RFC 3986 §3.3: pchar and the slash.
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
    }
}

/// True where nothing has to be decoded, merged or removed. A dot file is taken the long way.
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

fn decode(raw: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw.iter();
    while let Some(&byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let high = rest.next().and_then(hex_value).ok_or(Refusal::BadPath)?;
                let low = rest.next().and_then(hex_value).ok_or(Refusal::BadPath)?;
                match high << 4 | low {
                    b'/' => return Err(Refusal::EncodedSlash),
                    byte => byte,
                }
            }
            byte => byte,
        };
        if byte == 0 {
            return Err(Refusal::BadPath);
        }
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
            let path = normalise(raw.as_bytes()).unwrap();
            assert_eq!(String::from_utf8_lossy(&path), expected, "{raw}");
        }
        assert_eq!(*normalise(b"/%ff\xfe").unwrap(), *b"/\xff\xfe");
    }

    #[test]
    fn what_cannot_be_a_path_is_refused() {
        for (raw, refusal) in [
            ("", Refusal::BadPath),
            ("*", Refusal::BadPath),
            ("a/b", Refusal::BadPath),
            ("/%", Refusal::BadPath),
            ("/%4", Refusal::BadPath),
            ("/%4g", Refusal::BadPath),
            ("/%+1", Refusal::BadPath),
            ("/a%00.php", Refusal::BadPath),
            ("/a\0", Refusal::BadPath),
            ("/..", Refusal::AboveRoot),
            ("/a/../..", Refusal::AboveRoot),
            ("/a/../../etc/passwd", Refusal::AboveRoot),
            ("/%2e%2e/etc/passwd", Refusal::AboveRoot),
            ("/..%2f..%2fetc/passwd", Refusal::EncodedSlash),
            ("/a%2Fb", Refusal::EncodedSlash),
        ] {
            assert_eq!(normalise(raw.as_bytes()), Err(refusal), "{raw}");
        }
    }

    #[test]
    fn an_ordinary_path_is_not_copied() {
        for raw in ["/", "/index.php", "/wp-content/themes/a-b/style.css"] {
            assert!(matches!(normalise(raw.as_bytes()), Ok(Cow::Borrowed(_))));
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
            let Ok(path) = normalise(&raw) else { return Ok(()) };
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
            let Ok(path) = normalise(&raw) else { return Ok(()) };
            let mut url = Vec::new();
            encode(&path, &mut url);
            prop_assert!(url.is_ascii());
            prop_assert_eq!(normalise(&url).unwrap(), path);
        }

        #[test]
        fn any_bytes_are_taken(raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = normalise(&raw);
        }
    }
}
