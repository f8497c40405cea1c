//! A request to an origin, in the form that the connection needs.

use http::{
    HeaderValue, Method, Request, Version,
    header::{CONNECTION, CONTENT_LENGTH, HOST},
    uri::InvalidUriParts,
};
use http_body::Body;
use weir_http::Fields;
use weir_http1::Name;
use weir_interfaces::self_call;
use weir_upstream::h1;

use super::{
    connections, headers,
    host::Host,
    message::{OriginRequest, map},
    upload::Upload,
};

/// A request for one attempt.
pub(crate) struct Outgoing<'r> {
    request: &'r OriginRequest,
    upload: Upload,
    host: &'r Host,
    /// The value of [`self_call::HEADER`], and the fields with it.
    ticket: Option<(HeaderValue, Fields)>,
}

impl Outgoing<'_> {
    /// `ticket`: the value of [`self_call::HEADER`].
    pub(crate) fn new<'r>(
        request: &'r OriginRequest,
        upload: Upload,
        host: &'r Host,
        ticket: Option<HeaderValue>,
    ) -> Outgoing<'r> {
        let ticket = ticket.map(|ticket| {
            let mut fields = request.fields.copy(64);
            fields.push_read(self_call::HEADER.as_str(), ticket.as_bytes());
            (ticket, fields)
        });
        Outgoing {
            request,
            upload,
            host,
            ticket,
        }
    }
}

impl connections::Outgoing for Outgoing<'_> {
    type Body = Upload;
    type Fields = Fields;

    fn head(&self) -> h1::Request<'_> {
        let with_ticket = self.ticket.as_ref().map(|(_, fields)| fields);
        h1::Request {
            method: &self.request.method,
            target: self.request.path.as_str().as_bytes(),
            lines: with_ticket.unwrap_or(&self.request.fields).lines(),
            length: self.upload.size_hint().exact(),
            says_empty: self.request.says_length,
        }
    }

    fn into_body(self) -> Upload {
        self.upload
    }

    /// Without what HTTP/2 has instead of fields (RFC 9113 §8.2.2, §8.3.1).
    fn into_http2(self) -> Result<Request<Upload>, InvalidUriParts> {
        let mut headers = map(self.request.fields.iter());
        headers.remove(HOST);
        headers.remove(CONNECTION);
        for (name, _) in &self.host.set_headers {
            // So the value is not stored in the header tables.
            if let Some(value) = headers.get_mut(name) {
                value.set_sensitive(true);
            }
        }
        if let Some((ticket, _)) = self.ticket {
            headers.insert(self_call::HEADER, ticket);
        }
        let method = &self.request.method;
        if let Some(length) = self.upload.size_hint().exact() {
            // For methods that usually have a body, a length must be sent also if the body is empty (RFC 9110 §8.6).
            let usual = [Method::POST, Method::PUT, Method::PATCH].contains(method);
            if length > 0 || usual || self.request.says_length {
                headers.insert(CONTENT_LENGTH, length.into());
            }
        }
        let mut request = Request::new(self.upload);
        *request.method_mut() = method.clone();
        *request.uri_mut() = self.host.uri(&self.request.path)?;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = headers;
        Ok(request)
    }

    fn fields<'f, I>(answer: impl Fn() -> I, has_body: bool) -> Fields
    where
        I: Iterator<Item = (Option<Name>, &'f [u8], &'f [u8])>,
    {
        headers::to_caller(answer, has_body)
    }
}
