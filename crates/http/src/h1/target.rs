//! The target of a request in the spelling that a URI has (RFC 3986).
//!
//! Clients send more than a URI may have: quotes, angle brackets, bytes above 127, fragments. nginx takes them, and so
//! does weir. A script gets what the client sent.

use http::uri::PathAndQuery;

/// A target's path and query.
pub(super) struct Spelled {
    pub(super) path: PathAndQuery,
    /// As received, if that is another spelling.
    pub(super) received: Option<Box<[u8]>>,
}

/// Reads the path and the query of a target. `None`: it is too long.
pub(super) fn spelled(received: &[u8]) -> Option<Spelled> {
    let is_plain = received.iter().all(|byte| PLAIN[usize::from(*byte)]);
    let is_uri = is_plain || !received.contains(&b'#');
    if is_uri
        && received.first() == Some(&b'/')
        && let Ok(path) = PathAndQuery::try_from(received)
    {
        return Some(Spelled {
            path,
            received: None,
        });
    }
    let path = PathAndQuery::from_maybe_shared(bytes::Bytes::from(encoded(received))).ok()?;
    // An absolute target without a path means `/`: that is no other spelling.
    let received = (!received.is_empty()).then(|| received.into());
    Some(Spelled { path, received })
}

/// Percent-encodes the characters that a URI may not have, and removes a fragment.
fn encoded(received: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(received.len() + 16);
    if received.first() != Some(&b'/') {
        text.push(b'/');
    }
    for &byte in received {
        match byte {
            b'#' => break,
            b'!' | b'$'..=b';' | b'=' | b'?'..=b']' | b'_' | b'a'..=b'z' | b'|' | b'~' => {
                text.push(byte);
            }
            byte => text.extend_from_slice(&[
                b'%',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]),
        }
    }
    text
}

/// Bytes that need no further check.
static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let is = byte as u8;
        plain[byte] = is.is_ascii_alphanumeric()
            || matches!(
                is,
                b'!' | b'$'..=b'/' | b':' | b';' | b'=' | b'?' | b'@' | b'[' | b']' | b'_' | b'~'
            );
        byte += 1;
    }
    plain
};

const HEX: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn targets_get_the_spelling_of_a_uri_and_keep_their_own() {
        let of = |target: &[u8]| {
            let spelled = spelled(target).unwrap();
            let received = spelled.received.map(Vec::from);
            (spelled.path.as_str().to_owned(), received)
        };
        for plain in [
            &b"/"[..],
            b"/a%20b?c=d&e",
            b"/a?b=http://c/d",
            "/\u{e4}?\u{f6}".as_bytes(),
        ] {
            assert_eq!(of(plain).1, None, "{plain:?}");
        }
        for (target, path) in [
            (&b"/a\"b?c=\xff#d"[..], "/a%22b?c=%FF"),
            (b"/<", "/%3C"),
            (b"?x=<y>", "/?x=%3Cy%3E"),
            (b"/#", "/"),
        ] {
            assert_eq!(of(target), (path.to_owned(), Some(target.to_vec())));
        }
        assert_eq!(of(b""), ("/".to_owned(), None));
        assert!(spelled(&[b'/'; 70_000]).is_none());
    }

    proptest! {
        #[test]
        fn any_target_has_a_spelling(rest in prop::collection::vec(any::<u8>(), 0..300)) {
            let target = [b"/", &rest[..]].concat();
            let spelled = spelled(&target).unwrap();
            prop_assert!(spelled.path.as_str().starts_with('/'));
        }
    }
}
