//! Requests for origins and answers for callers, with their headers as the lines that HTTP/1 sends.
//!
//! HTTP/2, the cache and the compressor need a [`HeaderMap`] and convert the fields. Usual calls do
//! not need that.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, uri::PathAndQuery};

use super::{body::ResponseBody, connections::of_map};
use weir_http::Fields;

/// A request for an origin, without its body.
#[derive(Debug, Clone)]
pub(crate) struct OriginRequest {
    pub(crate) method: Method,
    pub(crate) path: PathAndQuery,
    /// Without those about the body.
    pub(crate) fields: Fields,
    /// The caller has sent a `Content-Length`.
    pub(crate) says_length: bool,
}

impl OriginRequest {
    /// Changes the fields as a map.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut HeaderMap)) {
        let mut headers = map(self.fields.iter());
        change(&mut headers);
        self.fields = lines(&headers);
    }
}

/// An answer for a caller.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) fields: Fields,
    pub(crate) body: ResponseBody,
}

impl Reply {
    /// For the cache and the compressor.
    pub(crate) fn into_response(self) -> Response<ResponseBody> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = map(self.fields.iter());
        response
    }
}

impl From<Response<ResponseBody>> for Reply {
    fn from(response: Response<ResponseBody>) -> Reply {
        let (parts, body) = response.into_parts();
        Reply {
            status: parts.status,
            fields: lines(&parts.headers),
            body,
        }
    }
}

/// Fields as a map. Those that a map cannot have are left out: a parser has read them, so there are none.
pub(crate) fn map<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    headers
}

/// The fields of a caller's request as a map.
pub(crate) fn of_caller(fields: &weir_http1::ParsedFields) -> HeaderMap {
    map(fields.iter().map(|(_, name, value)| (name, value)))
}

/// A map as fields.
pub(crate) fn lines(headers: &HeaderMap) -> Fields {
    let length = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    // Room for what the carrier adds.
    let mut fields = Fields::with_capacity(headers.iter().map(length).sum::<usize>() + 64);
    for (known, name, value) in of_map(headers) {
        fields.push_read((known, name), value);
    }
    fields
}
