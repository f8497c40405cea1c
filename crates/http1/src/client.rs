//! The client's side: requests are written, responses read.
//!
//! ```
//! use weir_http1::{Event, Limits, Method, Name, ResponseHead, client};
//!
//! let mut out = Vec::new();
//! let mut head = client::request(&mut out, "GET", b"/status")?;
//! head.field("Host", b"api.example")?;
//! head.finish(client::framing("GET", Some(0)));
//! assert_eq!(out, b"GET /status HTTP/1.1\r\nHost: api.example\r\n\r\n");
//!
//! let mut connection = client::Decoder::new(Limits::default());
//! let mut response = ResponseHead::default();
//! connection.sent(Method::Get);
//! let mut input = &b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"[..];
//! let mut body = Vec::new();
//! while let Some(event) = connection.next(&mut input, &mut response)? {
//!     match event {
//!         Event::Head if response.is_interim() => {}
//!         Event::Head => assert_eq!(response.status(), 200),
//!         Event::Data(bytes) => body.extend_from_slice(bytes),
//!         Event::End => {}
//!     }
//! }
//! assert_eq!(body, b"ok\n");
//! assert!(connection.is_reusable(&response) && input.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::vec::Vec;

use crate::{
    Error, Event, HeadEncoder, InvalidField, Limits, Method, ParsedFields, ResponseHead, decoder,
    encode::{Coding, Connection, Framing},
    head::{ResponseTo, is_token},
};

/// Reads the responses of a connection.
#[derive(Debug)]
pub struct Decoder {
    decoder: decoder::Decoder,
    method: Method,
}

impl Decoder {
    /// The decoder of a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Decoder {
        Decoder {
            decoder: decoder::Decoder::new(limits),
            method: Method::Get,
        }
    }

    /// A request of this method has been sent: its response comes next.
    pub fn sent(&mut self, method: Method) {
        self.method = method;
        self.decoder.restart();
    }

    /// Reads on. None: more bytes are needed, or the response is whole.
    ///
    /// Used bytes are removed from the input. The bytes of an incomplete head stay there: call this again when more
    /// have arrived after them. The head is in `head` from [`Event::Head`] on; after an interim response another one
    /// follows. After a 101, or a 2xx to CONNECT, [`Event::End`] comes at once, and the rest of the input is not HTTP.
    ///
    /// # Errors
    ///
    /// The response is malformed or too large, and the connection cannot go on.
    pub fn next<'i>(
        &mut self,
        input: &mut &'i [u8],
        head: &mut ResponseHead,
    ) -> Result<Option<Event<'i>>, Error> {
        let mut head = ResponseTo {
            head,
            method: self.method,
        };
        let event = self.decoder.next(input, &mut head)?;
        // A server that speaks another protocol is known by its first bytes.
        let is_other = |bytes: &[u8]| {
            let count = bytes.len().min(VERSION.len());
            bytes[..count] != VERSION[..count] && bytes != b"\r"
        };
        if event.is_none() && self.decoder.is_in_head() && is_other(input) {
            return Err(self.decoder.fail(Error::StartLine));
        }
        Ok(event)
    }

    /// The server sends nothing more. Some: that was the end of the response.
    ///
    /// # Errors
    ///
    /// That is within the response.
    pub fn end(&mut self) -> Result<Option<Event<'static>>, Error> {
        self.decoder.end()
    }

    /// Whether no byte of a response has come, so that a repeatable request can be sent again.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.decoder.is_idle()
    }

    /// The trailers of a body in chunks; only after a complete response.
    #[must_use]
    pub fn trailers(&self) -> Option<&ParsedFields> {
        self.decoder.trailers()
    }

    /// Whether another request can be sent: the response is complete and leaves the connection open.
    #[must_use]
    pub fn is_reusable(&self, head: &ResponseHead) -> bool {
        let is_http =
            head.status() != 101 && (self.method != Method::Connect || head.status() / 100 != 2);
        self.decoder.is_done() && head.is_persistent() && is_http
    }
}

/// What every response begins with.
const VERSION: &[u8] = b"HTTP/";

/// Begins a request with its request line.
///
/// # Errors
///
/// Nothing is written where the method is no token, or the target is empty or has white space or control characters.
pub fn request<'o>(
    out: &'o mut Vec<u8>,
    method: impl AsRef<[u8]>,
    target: &[u8],
) -> Result<HeadEncoder<'o>, InvalidField> {
    let method = method.as_ref();
    let is_target = |byte: u8| byte > b' ' && byte != 0x7f;
    if method.is_empty()
        || !method.iter().copied().all(is_token)
        || target.is_empty()
        || !target.iter().copied().all(is_target)
    {
        return Err(InvalidField);
    }
    out.extend_from_slice(method);
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    Ok(HeadEncoder { out })
}

/// What the head of a request says about its body. None: the length is not known, and the body goes in chunks.
///
/// For methods that usually have a body, an empty one is announced with `Content-Length: 0` (RFC 9110 §8.6).
#[must_use]
pub fn framing(method: impl AsRef<[u8]>, length: Option<u64>) -> Framing {
    let expects = matches!(method.as_ref(), b"POST" | b"PUT" | b"PATCH");
    Framing {
        body: length.map_or(Coding::Chunked, Coding::Length),
        length: length.filter(|length| *length > 0 || expects),
        connection: Connection::Unsaid,
        is_persistent: true,
    }
}
