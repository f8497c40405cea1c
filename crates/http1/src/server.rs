//! The server's side: requests are read, responses written.
//!
//! ```
//! use weir_http1::{Event, Limits, Name, RequestHead, server};
//!
//! let mut connection = server::Decoder::new(Limits::default());
//! let mut request = RequestHead::default();
//! let mut input = &b"POST /cart HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\na=12GET / HTTP/1.1\r\n"[..];
//! let mut body = Vec::new();
//! while let Some(event) = connection.next(&mut input, &mut request)? {
//!     match event {
//!         Event::Head => assert_eq!(request.fields().get(Name::Host), Some(&b"a"[..])),
//!         Event::Data(bytes) => body.extend_from_slice(bytes),
//!         Event::End => {}
//!     }
//! }
//! assert_eq!(body, b"a=12");
//!
//! let mut out = Vec::new();
//! let mut head = server::response(&mut out, 200);
//! head.field("Content-Type", b"text/plain")?;
//! let mut encoder = head.finish(server::framing(&request, 200, Some(3), true));
//! encoder.data(&mut out, b"ok\n")?;
//! encoder.end(&mut out)?;
//! assert_eq!(out, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n");
//!
//! // The next request is read after this one has been answered.
//! assert!(encoder.is_persistent() && connection.restart());
//! assert!(input.starts_with(b"GET"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::vec::Vec;

use crate::{
    Error, Event, HeadEncoder, Limits, Method, ParsedFields, RequestHead, Version, decoder,
    encode::{Coding, Connection, Decimal, Framing},
};

/// Reads the requests of a connection.
#[derive(Debug)]
pub struct Decoder(decoder::Decoder);

impl Decoder {
    /// The decoder of a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Decoder {
        Decoder(decoder::Decoder::new(limits))
    }

    /// Reads on. None: more bytes are needed, or the request is whole and waits for [`restart`](Self::restart).
    ///
    /// Used bytes are removed from the input. The bytes of an incomplete head stay there: call this again when more
    /// have arrived after them. The head is in `head` from [`Event::Head`] on.
    ///
    /// # Errors
    ///
    /// The request is malformed or too large, and the connection cannot go on: answer with the error's status, and close.
    pub fn next<'i>(
        &mut self,
        input: &mut &'i [u8],
        head: &mut RequestHead,
    ) -> Result<Option<Event<'i>>, Error> {
        self.0.next(input, head)
    }

    /// The client sends nothing more.
    ///
    /// # Errors
    ///
    /// That is within a request.
    pub fn end(&mut self) -> Result<(), Error> {
        self.0.end().map(drop)
    }

    /// Whether no byte of a request has come: the connection may be closed without an answer.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    /// Whether the request has been read to its end.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// The trailers of a body in chunks; only after a complete request.
    #[must_use]
    pub fn trailers(&self) -> Option<&ParsedFields> {
        self.0.trailers()
    }

    /// Continues with the next request; false: this one is not complete, so its connection cannot be used again.
    pub fn restart(&mut self) -> bool {
        let is_done = self.is_done();
        self.0.restart();
        is_done
    }
}

/// Begins a response with its status line.
pub fn response(out: &mut Vec<u8>, status: u16) -> HeadEncoder<'_> {
    if status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return HeadEncoder { out };
    }
    response_with(out, status, reason(status).as_bytes())
}

/// As [`response`], with this reason phrase, which has been checked ([`crate::check_value`]).
pub fn response_with<'o>(out: &'o mut Vec<u8>, status: u16, phrase: &[u8]) -> HeadEncoder<'o> {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(Decimal::new(u64::from(status)).as_bytes());
    out.push(b' ');
    out.extend_from_slice(phrase);
    out.extend_from_slice(b"\r\n");
    HeadEncoder { out }
}

/// What a request decides about its response. It is small, and outlives the head, which may be used for the next request.
#[derive(Clone, Copy, Debug)]
pub struct ResponseTo {
    /// The method of the request.
    pub method: Method,
    /// Its version.
    pub version: Version,
    /// Whether the client wants to use the connection again.
    pub is_persistent: bool,
}

impl From<&RequestHead> for ResponseTo {
    fn from(request: &RequestHead) -> ResponseTo {
        ResponseTo {
            method: request.method(),
            version: request.version(),
            is_persistent: request.is_persistent(),
        }
    }
}

/// What the head of a response says about its body and the connection.
///
/// `length` is the length of the body, or of the body that GET would have got (HEAD, 304). None: it is not known.
/// `keep` is false where the server wants to close the connection.
#[must_use]
pub fn framing(
    request: impl Into<ResponseTo>,
    status: u16,
    length: Option<u64>,
    keep: bool,
) -> Framing {
    let request = request.into();
    let is_tunnel = status == 101 || (request.method == Method::Connect && status / 100 == 2);
    if status < 200 || is_tunnel {
        // An interim response does not describe the final one (RFC 9110 §15.2).
        return Framing {
            body: Coding::Length(0),
            length: None,
            connection: Connection::Unsaid,
            is_persistent: !is_tunnel,
        };
    }
    let body = match (status, request.method, length, request.version) {
        (204 | 304, ..) | (_, Method::Head, ..) => Coding::Length(0),
        (_, _, Some(length), _) => Coding::Length(length),
        (_, _, None, Version::Http11) => Coding::Chunked,
        (_, _, None, Version::Http10) => Coding::UntilClose,
    };
    let is_persistent = keep && request.is_persistent && body != Coding::UntilClose;
    Framing {
        body,
        // RFC 9110 §8.6.
        length: length.filter(|_| status != 204),
        connection: match (is_persistent, request.version) {
            (false, _) => Connection::Close,
            (true, Version::Http10) => Connection::KeepAlive,
            (true, Version::Http11) => Connection::Unsaid,
        },
        is_persistent,
    }
}

/// The reason phrase of a status (RFC 9110 §15 and the registry of status codes); empty: there is none.
#[must_use]
pub const fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Payload Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Entity",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        510 => "Not Extended",
        511 => "Network Authentication Required",
        _ => "",
    }
}
