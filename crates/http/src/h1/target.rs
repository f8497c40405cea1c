//! The target of a request, spelled as a URI (RFC 3986).
//!
//! Clients send more than a URI may have: quotes, angle brackets, bytes above 127, fragments. nginx takes them, and so
//! does weir. A script gets what the client sent.

use http::uri::PathAndQuery;

/// A target's path and query.
pub(crate) struct Spelled {
    /// In the spelling of a URI, if it was received in another one.
    pub(crate) text: Option<Box<str>>,
    /// The length of the path in that spelling.
    pub(crate) path: usize,
}

/// Reads the path and the query of a target. `None`: it is too long.
pub(crate) fn spelled(received: &[u8]) -> Option<Spelled> {
    let mut query = None;
    let mut is_plain = received.first() == Some(&b'/');
    for (at, byte) in received.iter().enumerate() {
        match KINDS[usize::from(*byte)] {
            Kind::Plain => {}
            Kind::Query => _ = query.get_or_insert(at),
            Kind::Other => {
                is_plain = false;
                break;
            }
        }
    }
    if is_plain {
        return (received.len() <= MAX_LENGTH).then(|| Spelled {
            text: None,
            path: query.unwrap_or(received.len()),
        });
    }
    let path_of = |text: &[u8]| memchr::memchr(b'?', text).unwrap_or(text.len());
    if !received.contains(&b'#')
        && received.first() == Some(&b'/')
        && PathAndQuery::try_from(received).is_ok()
    {
        let path = path_of(received);
        return Some(Spelled { text: None, path });
    }
    let text = encoded(received);
    let path = path_of(text.as_bytes());
    (text.len() <= MAX_LENGTH).then(|| Spelled {
        text: Some(text.into()),
        path,
    })
}

/// Percent-encodes the characters that a URI may not have, and removes a fragment.
fn encoded(received: &[u8]) -> String {
    let mut text = String::with_capacity(received.len() + 16);
    if received.first() != Some(&b'/') {
        text.push('/');
    }
    for &byte in received {
        match byte {
            b'#' => break,
            b'!' | b'$'..=b';' | b'=' | b'?'..=b']' | b'_' | b'a'..=b'z' | b'|' | b'~' => {
                text.push(char::from(byte));
            }
            byte => {
                let digit = |value: u8| char::from(HEX[usize::from(value)]);
                text.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
    text
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Part of a URI, wherever it is.
    Plain,
    /// The same; the first one ends the path.
    Query,
    /// Needs a closer look.
    Other,
}

static KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        let is = byte as u8;
        if is.is_ascii_alphanumeric()
            || matches!(
                is,
                b'!' | b'$'..=b'/' | b':' | b';' | b'=' | b'@' | b'[' | b']' | b'_' | b'~'
            )
        {
            kinds[byte] = Kind::Plain;
        }
        byte += 1;
    }
    kinds[b'?' as usize] = Kind::Query;
    kinds
};

/// The longest path and query, bytes.
pub(crate) const MAX_LENGTH: usize = 65_534;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn targets_get_the_spelling_of_a_uri_and_keep_their_own() {
        let of = |target: &[u8]| {
            let spelled = spelled(target).unwrap();
            spelled.text.map(String::from)
        };
        for plain in [
            &b"/"[..],
            b"/a%20b?c=d&e",
            b"/a?b=http://c/d",
            "/\u{e4}?\u{f6}".as_bytes(),
        ] {
            assert_eq!(of(plain), None, "{plain:?}");
        }
        for (target, path) in [
            (&b"/a\"b?c=\xff#d"[..], "/a%22b?c=%FF"),
            (b"/<", "/%3C"),
            (b"?x=<y>", "/?x=%3Cy%3E"),
            (b"/#", "/"),
        ] {
            assert_eq!(of(target).as_deref(), Some(path));
        }
        assert_eq!(of(b"").as_deref(), Some("/"));
        for (target, path) in [("/a?b?c", 2), ("/a", 2), ("/\"?\"", 4), ("?", 1)] {
            assert_eq!(spelled(target.as_bytes()).unwrap().path, path, "{target}");
        }
        assert!(spelled(&[b'/'; 70_000]).is_none());
    }

    proptest! {
        #[test]
        fn any_target_has_a_spelling(rest in prop::collection::vec(any::<u8>(), 0..300)) {
            let target = [b"/", &rest[..]].concat();
            let spelled = spelled(&target).unwrap();
            let text = match &spelled.text {
                Some(text) => text,
                None => std::str::from_utf8(&target).unwrap(),
            };
            let uri = PathAndQuery::try_from(text).unwrap();
            prop_assert_eq!(uri.as_str(), text);
            prop_assert_eq!(uri.path().len(), spelled.path);
        }
    }
}
