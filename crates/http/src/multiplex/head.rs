//! Heads: of requests as the exchange gets them, and of answers as `h2` sends them.

use std::sync::LazyLock;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version,
    header::{self, MaxSizeReached},
    request,
};
use weir_http1::Name;

use super::Limits;
use crate::{Fields, Head, Target, date, h1::target::spelled};

/// Why a head does not become a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    /// One word for the logs.
    pub(crate) reason: &'static str,
    pub(crate) why: &'static str,
}

/// The head of a request. Pseudo-header fields and names were checked before (RFC 9113 §8.2, §8.3; RFC 9114 §4.2, §4.3).
pub(crate) fn request(
    parts: request::Parts,
    version: Version,
    limits: &Limits,
) -> Result<Box<Head>, Refused> {
    let uri = parts.uri.into_parts();
    let path = uri
        .path_and_query
        .as_ref()
        .map_or("*", |path| path.as_str());
    let lines = parts.headers.iter();
    let size = lines.map(|(name, value)| name.as_str().len() + value.len() + LINE);
    let size: usize = size.sum::<usize>() + path.len() + parts.method.as_str().len();
    let most = limits.head as usize;
    if path.len() + parts.method.as_str().len() > most {
        return Err(TARGET_TOO_LONG);
    }
    if size > most || parts.headers.len() > limits.fields as usize {
        return Err(TOO_LARGE);
    }
    let is_path = path.starts_with('/');
    if !is_path && path != "*" {
        return Err(BAD_PATH);
    }
    let spelled = spelled(path.as_bytes()).ok_or(TARGET_TOO_LONG)?;
    let mut head = Head::spare();
    head.method = parts.method;
    head.version = version;
    head.fields.begin(path.as_bytes());
    head.target = match is_path && head.method != Method::CONNECT {
        true => Target::received(0..path.len(), spelled.text, spelled.path),
        false => Target::received(0..0, Some("*".into()), 1),
    };
    if let Some(authority) = &uri.authority {
        head.fields.push(b"host", authority.as_str().as_bytes());
    }
    let authority = uri.authority.as_ref().map(|authority| authority.as_str());
    let mut cookies = Vec::new();
    for (name, value) in &parts.headers {
        let value = value.as_bytes();
        if *name == header::COOKIE {
            // Clients may divide them (RFC 9113 §8.2.3).
            if !cookies.is_empty() {
                cookies.extend_from_slice(b"; ");
            }
            cookies.extend_from_slice(value);
            continue;
        }
        // Another host than that of the target is refused by the exchange: a request has one host.
        let is_said = |said: &str| said.as_bytes().eq_ignore_ascii_case(value);
        if *name != header::HOST || !authority.is_some_and(is_said) {
            head.fields.push(name.as_str().as_bytes(), value);
        }
    }
    if !cookies.is_empty() {
        head.fields.push(b"cookie", &cookies);
    }
    Ok(head)
}

/// The head of an answer. `length`: that of its body, if the head says it.
///
/// # Errors
///
/// It has more fields than a map takes.
pub(crate) fn response(
    status: StatusCode,
    fields: &Fields,
    length: Option<u64>,
) -> Result<Response<()>, MaxSizeReached> {
    let mut head = Response::new(());
    *head.status_mut() = status;
    let headers = head.headers_mut();
    headers.reserve(USUAL_FIELDS);
    put(headers, fields, length.is_some())?;
    if let Some(length) = length {
        headers.try_insert(header::CONTENT_LENGTH, length.into())?;
    }
    if !fields.has(Name::Date) {
        headers.try_insert(header::DATE, date::value())?;
    }
    Ok(head)
}

/// The head of an interim answer.
///
/// # Errors
///
/// As [`response`].
pub(crate) fn interim(status: StatusCode, fields: &Fields) -> Result<Response<()>, MaxSizeReached> {
    let mut head = Response::new(());
    *head.status_mut() = status;
    put(head.headers_mut(), fields, true)?;
    Ok(head)
}

/// Fields behind a body.
pub(crate) fn trailers(fields: &Fields) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // Without those that a map does not take: the body is whole without them.
    let _ = put(&mut headers, fields, true);
    headers
}

/// Adds the fields that are not about the connection (RFC 9113 §8.2.2).
///
/// A map takes a limited number of names, fewer if they were chosen so that their hashes are equal.
fn put(
    headers: &mut HeaderMap,
    fields: &Fields,
    without_length: bool,
) -> Result<(), MaxSizeReached> {
    for (text, value) in fields.iter() {
        let name = Name::of(text);
        let is_left_out = match name {
            Some(
                Name::Connection
                | Name::KeepAlive
                | Name::ProxyConnection
                | Name::TransferEncoding
                | Name::Upgrade,
            ) => true,
            Some(Name::ContentLength) => without_length,
            _ => false,
        };
        if is_left_out {
            continue;
        }
        let known = name.and_then(|name| NAMES[name as usize].clone());
        let name = known.or_else(|| HeaderName::from_bytes(text).ok());
        // Fields of an answer were checked when they were added.
        if let (Some(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            headers.try_append(name, value)?;
        }
    }
    Ok(())
}

/// The well-known names as `h2` has them, in their order.
static NAMES: LazyLock<Vec<Option<HeaderName>>> = LazyLock::new(|| {
    let names = Name::ALL.iter();
    let names = names.map(|name| HeaderName::from_bytes(name.as_str().as_bytes()));
    names.map(Result::ok).collect()
});

/// For so many fields an answer has room from the beginning.
const USUAL_FIELDS: usize = 12;

pub(crate) const TOO_LARGE: Refused = Refused {
    status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    reason: "head_too_large",
    why: "the head is larger than max_head, or has more fields than max_headers",
};

pub(crate) const TARGET_TOO_LONG: Refused = Refused {
    status: StatusCode::URI_TOO_LONG,
    reason: "target_too_long",
    why: "the path is longer than max_head, or than a URI may be",
};

const BAD_PATH: Refused = Refused {
    status: StatusCode::BAD_REQUEST,
    reason: "bad_head",
    why: "the path does not begin with a slash",
};

/// What a line of HTTP/1 has besides name and value: `: ` and its end. Limits count heads as if they were of HTTP/1.
const LINE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    const LIMITS: Limits = Limits {
        head: 8192,
        fields: 10,
        streams: 1,
        resets: 1,
        pings: 1,
        settings: 1,
        small_frames: 1,
        stream_window: 1,
        window: 1,
        ping: std::time::Duration::ZERO,
    };

    fn read(uri: &str, fields: &[(&str, &str)]) -> Result<Box<Head>, Refused> {
        let mut request = Request::get(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        super::request(parts, Version::HTTP_2, &LIMITS)
    }

    fn values<'h>(head: &'h Head, name: &str) -> Vec<&'h str> {
        let found = head.fields.iter();
        found
            .filter(|(_, found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, _, value)| std::str::from_utf8(value).unwrap())
            .collect()
    }

    #[test]
    fn a_request_has_its_target_its_host_and_one_cookie_field() {
        let fields = [("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")];
        let head = read("http://Shop.example:81/a%20b?c=d", &fields).unwrap();
        assert_eq!(head.path(), b"/a%20b");
        assert_eq!(head.query(), Some(&b"c=d"[..]));
        assert_eq!(head.received(), b"/a%20b?c=d");
        assert_eq!(values(&head, "host"), ["Shop.example:81"]);
        assert_eq!(values(&head, "cookie"), ["a=1; b=2"]);
        assert_eq!(values(&head, "x"), ["y"]);
        assert_eq!(head.fields.get(Name::Cookie), Some(&b"a=1; b=2"[..]));
        assert_eq!(head.version, Version::HTTP_2);
    }

    #[test]
    fn a_host_that_differs_from_the_authority_is_a_second_one() {
        let hosts = |fields: &[(&str, &str)], uri: &str| {
            let head = read(uri, fields).unwrap();
            values(&head, "host").join("|")
        };
        assert_eq!(hosts(&[("host", "A")], "http://a/"), "a");
        assert_eq!(hosts(&[("host", "b")], "http://a/"), "a|b");
        assert_eq!(hosts(&[("host", "b")], "/"), "b");
        assert_eq!(hosts(&[], "/"), "");
    }

    #[test]
    fn heads_beyond_the_limits_are_refused() {
        let long = "x".repeat(9000);
        for (uri, fields, status) in [
            (format!("/{long}"), vec![], 414),
            ("/".into(), vec![("x", &long[..])], 431),
            (
                format!("/{}", &long[..5000]),
                vec![("x", &long[..5000])],
                431,
            ),
            ("/".into(), vec![("x", "y"); 11], 431),
        ] {
            assert_eq!(read(&uri, &fields).unwrap_err().status, status);
        }
        read("/", &[("x", "y"); 10]).unwrap();
    }

    #[test]
    fn an_answer_with_more_names_than_a_map_takes_is_none() {
        let mut fields = Fields::default();
        for number in 0..30_000 {
            fields.append(&*format!("x-{number}"), b"1").unwrap();
        }
        assert!(response(StatusCode::OK, &fields, None).is_err());
        assert!(interim(StatusCode::EARLY_HINTS, &fields).is_err());
        assert!(trailers(&fields).len() > 20_000);
    }

    #[test]
    fn well_known_names_are_those_of_http() {
        for name in Name::ALL {
            let known = NAMES[*name as usize].as_ref().unwrap();
            assert!(known.as_str().eq_ignore_ascii_case(name.as_str()));
        }
    }

    #[test]
    fn an_answer_has_no_fields_about_the_connection() {
        let mut fields = Fields::default();
        for (name, value) in [
            ("Connection", "close"),
            ("Keep-Alive", "timeout=5"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("Content-Length", "5"),
            ("X-Many", "1"),
            ("x-many", "2"),
        ] {
            fields.append(name, value.as_bytes()).unwrap();
        }
        let head = response(StatusCode::OK, &fields, Some(7)).unwrap();
        let names: Vec<_> = head.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["x-many", "content-length", "date"]);
        assert_eq!(head.headers()["content-length"], "7");
        assert_eq!(head.headers().get_all("x-many").iter().count(), 2);
        assert_eq!(
            response(StatusCode::OK, &fields, None).unwrap().headers()["content-length"],
            "5"
        );
    }
}
