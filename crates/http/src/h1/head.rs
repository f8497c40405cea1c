//! A request's head as the exchange gets it, and why a head is refused.

use http::{
    Method, StatusCode, Version,
    uri::{Authority, Scheme},
};
use weir_http1::{Error, RequestHead, Target as Form};

use super::target::spelled;
use crate::{Head, Target};

/// Why a head does not become a request.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    /// One word for the logs.
    pub(super) reason: &'static str,
    pub(super) why: String,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        let (status, reason) = match error {
            Error::Http2 | Error::Version => {
                (StatusCode::HTTP_VERSION_NOT_SUPPORTED, "http_version")
            }
            Error::CodingUnknown => (StatusCode::NOT_IMPLEMENTED, "transfer_encoding"),
            Error::TargetTooLong => (StatusCode::URI_TOO_LONG, "target_too_long"),
            Error::HeadTooLarge | Error::TooManyFields => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "head_too_large",
            ),
            _ => (StatusCode::BAD_REQUEST, "bad_head"),
        };
        Refused {
            status,
            reason,
            why: error.to_string(),
        }
    }
}

/// Takes a head in the form of the exchange. The bytes of its fields go along.
pub(super) fn take(head: &mut RequestHead) -> Result<Box<Head>, Refused> {
    let method = match head.method() {
        weir_http1::Method::Get => Method::GET,
        weir_http1::Method::Head => Method::HEAD,
        weir_http1::Method::Post => Method::POST,
        _ => Method::from_bytes(head.method_bytes()).map_err(|_| Error::StartLine)?,
    };
    let version = match head.version() {
        weir_http1::Version::Http10 => Version::HTTP_10,
        weir_http1::Version::Http11 => Version::HTTP_11,
    };
    let target = target(head)?;
    let mut taken = Head::spare();
    taken.method = method;
    taken.version = version;
    taken.target = target;
    taken.fields = head.take_fields(std::mem::take(&mut taken.fields));
    Ok(taken)
}

fn target(head: &RequestHead) -> Result<Target, Error> {
    let authority = match head.target_authority() {
        None => None,
        Some(authority) => {
            let authority = Authority::try_from(authority).map_err(|_| Error::Target)?;
            Some(Box::new(authority))
        }
    };
    let received = head.path_and_query();
    let range = head.path_and_query_range();
    Ok(match head.target() {
        Form::Asterisk => Target::received(range, None, received.len()),
        Form::Authority => Target::received(0..0, Some("*".into()), 1).at(None, authority),
        Form::Origin | Form::Absolute => {
            let spelled = spelled(received).ok_or(Error::TargetTooLong)?;
            let target = Target::received(range, spelled.text, spelled.path);
            let scheme = match head.target_bytes().get(4) {
                Some(b's' | b'S') => Scheme::HTTPS,
                _ => Scheme::HTTP,
            };
            match authority {
                Some(_) => target.at(Some(scheme), authority),
                None => target,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_http1::{Event, Limits, server::Decoder};

    fn read(text: &str) -> Result<Box<Head>, Refused> {
        let mut head = RequestHead::default();
        let mut input = text.as_bytes();
        let event = Decoder::new(Limits::default()).next(&mut input, &mut head)?;
        assert_eq!(event, Some(Event::Head));
        take(&mut head)
    }

    #[test]
    fn a_head_says_the_same_to_the_exchange() {
        let head = read(
            "PUT /a?b HTTP/1.0\r\nHost: a\r\nX-Many: 1\r\nx-many: \r\nx-many: \t\u{fc} \r\n\r\n",
        )
        .unwrap();
        assert_eq!(
            (&head.method, head.version),
            (&Method::PUT, Version::HTTP_10)
        );
        assert_eq!((head.path(), head.query()), (&b"/a"[..], Some(&b"b"[..])));
        assert_eq!(head.received(), b"/a?b");
        let many: Vec<_> = head.fields.named(b"X-MANY").collect();
        assert_eq!(many, ["1".as_bytes(), b"", "\u{fc}".as_bytes()]);
        assert_eq!(head.field("host"), Some(&b"a"[..]));
    }

    #[test]
    fn targets_of_every_form() {
        for (line, authority, spelled, received) in [
            ("GET http://a:8/p?q", Some("a:8"), "/p?q", "/p?q"),
            ("GET http://a", Some("a"), "/", "/"),
            ("GET HTTPS://a/p", Some("a"), "/p", "/p"),
            ("GET http://a?\"", Some("a"), "/?%22", "?\""),
            ("GET /a<", None, "/a%3C", "/a<"),
            ("GET /a?b?c", None, "/a?b?c", "/a?b?c"),
            ("OPTIONS *", None, "*", "*"),
            ("CONNECT a:443", Some("a:443"), "*", "*"),
        ] {
            let head = read(&format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n")).unwrap();
            assert_eq!(head.authority(), authority, "{line}");
            assert_eq!(head.path_and_query(), spelled.as_bytes(), "{line}");
            assert_eq!(head.received(), received.as_bytes(), "{line}");
            let (path, query) = match spelled.split_once('?') {
                Some((path, query)) => (path, Some(query.as_bytes())),
                None => (spelled, None),
            };
            assert_eq!(
                (head.path(), head.query()),
                (path.as_bytes(), query),
                "{line}"
            );
        }
    }

    #[test]
    fn a_target_becomes_the_uri_that_was_received() {
        for (line, uri) in [
            ("GET http://a:8/p?q", Some("http://a:8/p?q")),
            ("GET http://a", Some("http://a/")),
            ("GET HTTPS://a/p", Some("https://a/p")),
            ("GET /a<", None),
            ("GET /a#b", Some("/a")),
            ("OPTIONS *", Some("*")),
            ("CONNECT a:443", Some("a:443")),
        ] {
            let head = read(&format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n")).unwrap();
            let found = head.uri().map(|found| found.to_string());
            assert_eq!(found.as_deref(), uri, "{line}");
        }
    }

    #[test]
    fn what_is_refused_has_its_status_and_its_word() {
        let of = |text: &str| {
            let refused = read(text).unwrap_err();
            (refused.status.as_u16(), refused.reason)
        };
        for (text, status, reason) in [
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, "bad_head"),
            (
                "GET http://a b/ HTTP/1.1\r\nHost: a\r\n\r\n",
                400,
                "bad_head",
            ),
            ("GET http://[/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_head"),
            ("PRI * HTTP/2.0\r\n\r\n", 505, "http_version"),
            ("GET / HTTP/3.0\r\n\r\n", 505, "http_version"),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
                501,
                "transfer_encoding",
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
                400,
                "bad_head",
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
                400,
                "bad_head",
            ),
        ] {
            assert_eq!(of(text), (status, reason), "{text:?}");
        }
        let long = "x".repeat(70_000);
        let target = format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(of(&target), (414, "target_too_long"));
        for text in [
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"),
            format!(
                "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
                "X: 1\r\n".repeat(200)
            ),
        ] {
            assert_eq!(of(&text), (431, "head_too_large"));
        }
    }
}
