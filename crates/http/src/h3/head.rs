//! Heads (RFC 9114 §4.2, §4.3): of requests as they become those of the exchange, and of answers as they are sent.

use http::{HeaderName, HeaderValue, Method, Response, Uri, Version, request, uri::PathAndQuery};

use super::{
    frames::{HEADERS, put_head},
    qpack::{self, Field},
};
use crate::{
    Fields,
    h1::target::MAX_LENGTH,
    multiplex::head::{self, Refused, TARGET_TOO_LONG, TOO_LARGE},
};

/// Why fields are no request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The stream is reset with H3_MESSAGE_ERROR.
    Malformed,
    /// The client gets an answer.
    Refused(Refused),
}

use Wrong::Malformed;

/// The fields of a request, as the `http` crate has them.
pub(super) fn parts(fields: Vec<Field>) -> Result<request::Parts, Wrong> {
    let mut pseudo: [Option<Vec<u8>>; 4] = Default::default();
    let (mut parts, ()) = http::Request::new(()).into_parts();
    let mut is_behind = false;
    for (name, value) in fields {
        if name.first() == Some(&b':') {
            let names = [":method", ":scheme", ":authority", ":path"];
            let known = names.iter().position(|known| known.as_bytes() == name);
            let place = &mut pseudo[known.ok_or(Malformed)?];
            if is_behind || place.replace(value).is_some() {
                return Err(Malformed);
            }
            continue;
        }
        is_behind = true;
        let (name, value) = field(&name, &value)?;
        // Names whose hashes are equal fill a map long before it is full.
        let added = parts.headers.try_append(name, value);
        added.map_err(|_| Wrong::Refused(TOO_LARGE))?;
    }
    let [method, scheme, authority, path] = pseudo;
    parts.method = Method::from_bytes(&method.ok_or(Malformed)?).map_err(|_| Malformed)?;
    parts.version = Version::HTTP_3;
    let mut uri = http::uri::Parts::default();
    if let Some(authority) = authority.filter(|authority| !authority.is_empty()) {
        let authority = http::uri::Authority::try_from(&authority[..]).map_err(|_| Malformed)?;
        // User names do not belong there.
        if authority.as_str().contains('@') {
            return Err(Malformed);
        }
        uri.authority = Some(authority);
    }
    if parts.method == Method::CONNECT {
        if scheme.is_some() || path.is_some() || uri.authority.is_none() {
            return Err(Malformed);
        }
    } else {
        let (scheme, path) = (scheme.ok_or(Malformed)?, path.ok_or(Malformed)?);
        if uri.authority.is_none() && !parts.headers.contains_key(http::header::HOST) {
            return Err(Malformed);
        }
        if path.is_empty() {
            return Err(Malformed);
        }
        if path.len() > MAX_LENGTH {
            return Err(Wrong::Refused(TARGET_TOO_LONG));
        }
        uri.path_and_query = Some(PathAndQuery::try_from(&path[..]).map_err(|_| Malformed)?);
        let scheme = http::uri::Scheme::try_from(&scheme[..]).map_err(|_| Malformed)?;
        // Without an authority, the `http` crate takes no scheme.
        uri.scheme = uri.authority.is_some().then_some(scheme);
    }
    if uri.authority.is_some() && uri.path_and_query.is_none() && uri.scheme.is_some() {
        return Err(Malformed);
    }
    parts.uri = Uri::from_parts(uri).map_err(|_| Malformed)?;
    Ok(parts)
}

/// Whether fields may stand behind a body; their content is not used.
pub(super) fn check_trailers(fields: &[Field]) -> Result<(), Wrong> {
    fields
        .iter()
        .try_for_each(|(name, value)| field(name, value).map(drop))
}

fn field(name: &[u8], value: &[u8]) -> Result<(HeaderName, HeaderValue), Wrong> {
    let name = HeaderName::from_lowercase(name).map_err(|_| Malformed)?;
    let of_connection = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ];
    let is_padded = value.first().is_some_and(u8::is_ascii_whitespace)
        || value.last().is_some_and(u8::is_ascii_whitespace);
    if of_connection.contains(&name.as_str()) || (name == "te" && value != b"trailers") || is_padded
    {
        return Err(Malformed);
    }
    let value = HeaderValue::from_bytes(value).map_err(|_| Malformed)?;
    Ok((name, value))
}

/// The length that a head says. `Err`: it says no number, or several.
pub(super) fn declared(parts: &request::Parts) -> Result<Option<u64>, Wrong> {
    let mut lengths = parts.headers.get_all(http::header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else {
        return Ok(None);
    };
    let text = first.to_str().map_err(|_| Malformed)?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match (is_number, lengths.next()) {
        (true, None) => text.parse().map(Some).map_err(|_| Malformed),
        _ => Err(Malformed),
    }
}

/// The frame with fields behind a body.
pub(super) fn trailers(fields: &Fields) -> Vec<u8> {
    let mut block = Vec::new();
    qpack::begin(&mut block);
    for (name, value) in &head::trailers(fields) {
        qpack::put(&mut block, name.as_str().as_bytes(), value.as_bytes());
    }
    framed(&block)
}

/// The frame with the head of an answer.
pub(super) fn encode(head: &Response<()>) -> Vec<u8> {
    let mut block = Vec::with_capacity(256);
    qpack::begin(&mut block);
    qpack::put(&mut block, b":status", head.status().as_str().as_bytes());
    for (name, value) in head.headers() {
        qpack::put(&mut block, name.as_str().as_bytes(), value.as_bytes());
    }
    framed(&block)
}

fn framed(block: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(block.len() + 8);
    put_head(&mut frame, HEADERS, block.len());
    frame.extend_from_slice(block);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[(&str, &str)]) -> Result<request::Parts, Wrong> {
        let field =
            |(name, value): &(&str, &str)| (name.as_bytes().into(), value.as_bytes().into());
        parts(fields.iter().map(field).collect())
    }

    const GET: [(&str, &str); 4] = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "a.test:1"),
        (":path", "/x?y"),
    ];

    #[test]
    fn a_request_has_its_pseudo_header_fields_once_and_first() {
        let got = read(&[&GET[..], &[("x", "y"), ("te", "trailers")]].concat()).unwrap();
        assert_eq!(got.uri, "https://a.test:1/x?y");
        assert_eq!((got.method, got.headers.len()), (Method::GET, 2));
        let host = [GET[0], GET[1], GET[3], ("host", "b.test")];
        assert_eq!(read(&host).unwrap().uri, "/x?y");
        let connect = [(":method", "CONNECT"), (":authority", "a.test:443")];
        assert_eq!(read(&connect).unwrap().uri, "a.test:443");
        for wrong in [
            &GET[1..],
            &GET[..3],
            &[GET[0], GET[1], GET[3]],
            &[GET[0], GET[2], GET[3]],
            &[&GET[..], &GET[..1]].concat(),
            &[&[("x", "y")], &GET[..]].concat(),
            &[&GET[..], &[(":status", "200")]].concat(),
            &[&GET[..3], &[(":path", "")]].concat(),
            &[&GET[..3], &[(":path", "/ x")]].concat(),
            &[GET[0], GET[1], (":authority", "u@a.test"), GET[3]],
            &[(":method", "G T"), GET[1], GET[2], GET[3]],
            &[connect[0], connect[1], (":path", "/")],
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        for field in [
            ("Upper", "x"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "x"),
            ("te", "gzip"),
            ("x y", "z"),
            ("", "z"),
            ("x", "a\nb"),
            ("x", "a\0b"),
            ("x", " a"),
        ] {
            assert!(read(&[&GET[..], &[field]].concat()).is_err(), "{field:?}");
        }
    }

    #[test]
    fn names_and_targets_without_number_are_refused_and_nothing_panics() {
        let names: Vec<String> = (0..30_000).map(|number| format!("x-{number}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
        let read_many = read(&[&GET[..], &many].concat());
        assert_eq!(read_many.unwrap_err(), Wrong::Refused(TOO_LARGE));
        let long = format!("/{}", "x".repeat(MAX_LENGTH));
        let read_long = read(&[GET[0], GET[1], GET[2], (":path", &long)]);
        assert_eq!(read_long.unwrap_err(), Wrong::Refused(TARGET_TOO_LONG));
    }

    #[test]
    fn a_length_is_one_number() {
        let length = |values: &[&str]| {
            let fields = values.iter().map(|value| ("content-length", *value));
            declared(&read(&GET.into_iter().chain(fields).collect::<Vec<_>>()).unwrap())
        };
        assert_eq!(length(&[]), Ok(None));
        assert_eq!(length(&["17"]), Ok(Some(17)));
        for wrong in [
            &["+1"][..],
            &[""],
            &["1", "1"],
            &["1, 1"],
            &["99999999999999999999"],
        ] {
            assert_eq!(length(wrong), Err(Malformed), "{wrong:?}");
        }
    }
}
