//! A request's head as the exchange gets it, and why a head is refused.

use bytes::Bytes;
use http::{
    Method, StatusCode, Uri, Version,
    uri::{Authority, PathAndQuery, Scheme},
};
use weir_http1::{Error, RequestHead, Target};

use super::target::{Spelled, spelled};
use crate::Head;

/// Path and query as received, if the URI has them in another spelling.
type Received = Option<Box<[u8]>>;

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
            Error::HeadTooLarge | Error::TooManyFields | Error::TargetTooLong => (
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
pub(super) fn take(head: &mut RequestHead) -> Result<Head, Refused> {
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
    let (uri, received) = uri(head)?;
    Ok(Head {
        method,
        version,
        uri,
        received,
        fields: head.take_fields(),
    })
}

fn uri(head: &RequestHead) -> Result<(Uri, Received), Error> {
    let authority = head.target_authority().map(|authority| {
        Authority::from_maybe_shared(Bytes::copy_from_slice(authority)).map_err(|_| Error::Target)
    });
    let mut uri = http::uri::Parts::default();
    uri.authority = authority.transpose()?;
    let mut received = None;
    match head.target() {
        Target::Asterisk => uri.path_and_query = Some(PathAndQuery::from_static("*")),
        Target::Authority => {}
        Target::Origin | Target::Absolute => {
            let spelled: Spelled = spelled(head.path_and_query()).ok_or(Error::TargetTooLong)?;
            received = spelled.received;
            if uri.authority.is_none() {
                return Ok((Uri::from(spelled.path), received));
            }
            uri.path_and_query = Some(spelled.path);
            uri.scheme = Some(match head.target_bytes()[4] {
                b's' | b'S' => Scheme::HTTPS,
                _ => Scheme::HTTP,
            });
        }
    }
    let uri = Uri::from_parts(uri).map_err(|_| Error::Target)?;
    Ok((uri, received))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_http1::{Event, Limits, server::Decoder};

    fn read(text: &str) -> Result<Head, Refused> {
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
        assert_eq!(head.uri, "/a?b");
        assert_eq!(head.received, None);
        let many: Vec<_> = head.fields.named(b"X-MANY").collect();
        assert_eq!(many, ["1".as_bytes(), b"", "\u{fc}".as_bytes()]);
        assert_eq!(head.field("host"), Some(&b"a"[..]));
    }

    #[test]
    fn targets_of_every_form() {
        for (line, uri, received) in [
            ("GET http://a:8/p?q", "http://a:8/p?q", None),
            ("GET http://a", "http://a/", None),
            ("GET HTTPS://a/p", "https://a/p", None),
            ("GET http://a?\"", "http://a/?%22", Some("?\"")),
            ("GET /a<", "/a%3C", Some("/a<")),
            ("OPTIONS *", "*", None),
            ("CONNECT a:443", "a:443", None),
        ] {
            let head = read(&format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n")).unwrap();
            assert_eq!(head.uri.to_string(), uri, "{line}");
            assert_eq!(
                head.received.as_deref(),
                received.map(str::as_bytes),
                "{line}"
            );
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
        for text in [
            format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
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
