//! The request that the parameters of a web server describe (RFC 3875 §4.1).

use std::borrow::Cow;

use http::{Method, Version};
use weir_fcgi::{Role, nv::Pairs};

use crate::{Head, Request, RequestBody, RequestState, Target, h1::target::spelled};

/// The length of a body according to the parameters. PHP reads no further, and does not wait for anything after that. It
/// does not wait for the record that ends the stream either; HAProxy does not send that record after an empty body
/// without a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// This many bytes are missing.
    Announced(u64),
    /// The length is not given. `begun`: a part of the body has arrived.
    Unknown { begun: bool },
}

/// The request with these parameters.
pub(super) fn described(params: Pairs, role: Role) -> (Request, Length) {
    let mut found = Found::default();
    for (name, value) in &params {
        if let Some(field) = found.field(name) {
            *field = value;
        }
    }
    let length = match (found.length(), role) {
        // An authorizer gets no body (FastCGI 1.0 §6.3). But an announced body counts, as in PHP-FPM.
        (Length::Unknown { .. }, Role::Authorizer) => Length::Announced(0),
        (length, _) => length,
    };
    let state = RequestState::new();
    state.set_role(role);
    let body = match length {
        Length::Announced(0) => RequestBody::none(),
        Length::Announced(length) => RequestBody::new(&state, Some(length)),
        Length::Unknown { .. } => RequestBody::new(&state, None),
    };
    let head = Box::new(Head {
        // weir assumes that an invalid method may change something, so the request does not run twice.
        method: Method::from_bytes(found.method).unwrap_or_else(|_| no_method()),
        target: found.target(),
        version: match found.protocol {
            b"HTTP/1.0" => Version::HTTP_10,
            b"HTTP/2.0" | b"HTTP/2" => Version::HTTP_2,
            b"HTTP/3.0" | b"HTTP/3" => Version::HTTP_3,
            _ => Version::HTTP_11,
        },
        ..Head::default()
    });
    let params = Some(Box::new(params));
    let request = Request {
        head,
        params,
        body,
        started: 0,
        state,
    };
    (request, length)
}

/// The parameters that say what is asked for.
#[derive(Default)]
struct Found<'p> {
    method: &'p [u8],
    request_uri: &'p [u8],
    document_uri: &'p [u8],
    query: &'p [u8],
    protocol: &'p [u8],
    script_name: &'p [u8],
    path_info: &'p [u8],
    content_length: &'p [u8],
}

impl<'p> Found<'p> {
    fn field(&mut self, name: &[u8]) -> Option<&mut &'p [u8]> {
        Some(match name {
            b"REQUEST_METHOD" => &mut self.method,
            b"REQUEST_URI" => &mut self.request_uri,
            b"DOCUMENT_URI" => &mut self.document_uri,
            b"QUERY_STRING" => &mut self.query,
            b"SERVER_PROTOCOL" => &mut self.protocol,
            b"SCRIPT_NAME" => &mut self.script_name,
            b"PATH_INFO" => &mut self.path_info,
            b"CONTENT_LENGTH" => &mut self.content_length,
            _ => return None,
        })
    }

    fn length(&self) -> Length {
        match (self.content_length, self.method) {
            (b"", b"GET" | b"HEAD") => Length::Announced(0),
            (b"", _) => Length::Unknown { begun: false },
            (text, _) => Length::Announced(number(text)),
        }
    }

    /// The requested URI; as received, if that is known.
    fn target(&self) -> Target {
        if !self.request_uri.is_empty() {
            return target(self.request_uri);
        }
        let path = match self.document_uri {
            b"" => Cow::Owned([self.script_name, self.path_info].concat()),
            path => Cow::Borrowed(path),
        };
        match self.query {
            b"" => target(&path),
            query => target(&[&path[..], b"?", query].concat()),
        }
    }
}

/// Parsed as PHP does it: digits up to the first other character; no digits mean 0.
fn number(text: &[u8]) -> u64 {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u64, digit| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    })
}

/// A target in the spelling of a URI. Of one that is too long, only the beginning is kept: it is for logs.
fn target(received: &[u8]) -> Target {
    let short = |received| spelled(received).map(|spelled| (received, spelled));
    let found = short(received).or_else(|| short(&received[..MAX_TARGET.min(received.len())]));
    let Some((received, spelled)) = found else {
        return Target::default();
    };
    let text = (spelled.text).unwrap_or_else(|| String::from_utf8_lossy(received).into());
    Target::received(0..0, Some(text), spelled.path)
}

/// Stands in logs for an invalid method: a token (RFC 9110 §9.1) that no method uses.
fn no_method() -> Method {
    Method::from_bytes(b"-").unwrap_or(Method::POST)
}

/// How much of a target that is too long is kept, bytes. Percent-encoded, it has a third of what a URI may have.
const MAX_TARGET: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_fcgi::nv;

    fn pairs(list: &[(&str, &str)]) -> Pairs {
        let mut bytes = Vec::new();
        for (name, value) in list {
            nv::encode(&mut bytes, name.as_bytes(), value.as_bytes());
        }
        let mut decoder = nv::Decoder::default();
        decoder.feed(&bytes).unwrap();
        decoder.finish().unwrap()
    }

    fn text(received: &[u8]) -> String {
        let head = Head {
            target: target(received),
            ..Head::default()
        };
        String::from_utf8(head.path_and_query().to_vec()).unwrap()
    }

    #[test]
    fn what_is_no_uri_is_encoded() {
        assert_eq!(text(b"/a?b=c"), "/a?b=c");
        assert_eq!(text(b"/a b\n<"), "/a%20b%0A%3C");
        assert_eq!(text(b""), "/");
        assert_eq!(text(&[b'<'; 70_000]).len(), 1 + 3 * MAX_TARGET);
    }

    #[test]
    fn a_target_is_found_in_what_web_servers_send() {
        for (list, target) in [
            (&[("REQUEST_URI", "/a?b")][..], "/a?b"),
            (&[("DOCUMENT_URI", "/a"), ("QUERY_STRING", "b")][..], "/a?b"),
            (
                &[("SCRIPT_NAME", "/a.php"), ("PATH_INFO", "/b")][..],
                "/a.php/b",
            ),
            (&[][..], "/"),
        ] {
            let (request, _) = described(pairs(list), Role::Responder);
            assert_eq!(request.head.path_and_query(), target.as_bytes());
        }
    }

    #[test]
    fn a_body_is_as_long_as_php_takes_it_to_be() {
        for (method, length, expected) in [
            ("GET", "", Length::Announced(0)),
            ("HEAD", "", Length::Announced(0)),
            ("POST", "", Length::Unknown { begun: false }),
            ("GET", "12", Length::Announced(12)),
            ("POST", " +12x", Length::Announced(12)),
            ("POST", "x", Length::Announced(0)),
            ("POST", "99999999999999999999", Length::Announced(u64::MAX)),
        ] {
            let list = [("REQUEST_METHOD", method), ("CONTENT_LENGTH", length)];
            let (request, found) = described(pairs(&list), Role::Responder);
            assert_eq!(found, expected, "{method} {length}");
            assert_eq!(request.body.is_none(), expected == Length::Announced(0));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_target(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            text(&bytes);
        }
    }
}
