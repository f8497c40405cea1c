//! What can be wrong with a peer's bytes.

use core::fmt;

/// A message that is malformed, ambiguous or larger than a limit.
///
/// The peer that sent it is at fault, and the connection must be closed: nothing that follows can be trusted. A decoder
/// that has given an error gives the same error from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The first byte is that of a TLS record: the peer speaks HTTPS to a plain port.
    Tls,
    /// The preface of an HTTP/2 connection (RFC 9113 §3.4).
    Http2,
    /// The first line is no request line (RFC 9112 §3), or no status line (§4).
    StartLine,
    /// The target has a control character, a space or a form that its method does not allow (RFC 9112 §3.2).
    Target,
    /// A version other than HTTP/1.x (RFC 9112 §2.3).
    Version,
    /// A field name that is no token, or white space before its colon (RFC 9112 §5.1).
    FieldName,
    /// A control character in a field's value (RFC 9110 §5.5).
    FieldValue,
    /// A line that continues the one before it (obs-fold, RFC 9112 §5.2).
    Folded,
    /// A line that ends with a line feed alone. RFC 9112 §2.2 allows a server to take it; two servers that do not agree
    /// on it see different messages.
    BareLf,
    /// A request of HTTP/1.1 without a Host (RFC 9112 §3.2).
    HostMissing,
    /// More than one Host (RFC 9112 §3.2).
    HostRepeated,
    /// The first line does not fit the limit of the head.
    TargetTooLong,
    /// The head does not fit its limit.
    HeadTooLarge,
    /// More fields than the limit.
    TooManyFields,
    /// A Content-Length that is not one decimal number (RFC 9112 §6.3).
    Length,
    /// More than one Content-Length, even if all are equal (RFC 9112 §6.3 permits to refuse them).
    LengthRepeated,
    /// A Content-Length that is beyond 64 bits.
    LengthTooLarge,
    /// Content-Length and Transfer-Encoding in one message (RFC 9112 §6.1).
    LengthAndCoding,
    /// A Transfer-Encoding other than `chunked` (RFC 9112 §6.1).
    CodingUnknown,
    /// Transfer-Encoding more than once.
    CodingRepeated,
    /// Transfer-Encoding in a message of HTTP/1.0 (RFC 9112 §6.1).
    CodingInHttp10,
    /// A chunk whose length is missing or no hexadecimal number of 64 bits (RFC 9112 §7.1).
    ChunkLength,
    /// Something else than extensions behind the length of a chunk (RFC 9112 §7.1.1).
    ChunkExtension,
    /// More bytes of chunk extensions, white space and zeros than the limit.
    ChunkExtensions,
    /// A chunk that does not end where its length says.
    ChunkEnd,
    /// A carriage return without a line feed, between chunks or in trailers.
    BareCr,
    /// Trailers that do not fit the limit of the head.
    TrailersTooLarge,
    /// The connection ended within a message (RFC 9112 §8).
    Truncated,
}

impl Error {
    /// The status that a server answers with. A proxy that finds the error in a response answers 502.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::LengthTooLarge => 413,
            Self::TargetTooLong => 414,
            Self::HeadTooLarge | Self::TooManyFields | Self::TrailersTooLarge => 431,
            Self::CodingUnknown => 501,
            Self::Version | Self::Http2 => 505,
            _ => 400,
        }
    }

    /// One word for logs and metrics.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Http2 => "http2",
            Self::StartLine => "start_line",
            Self::Target => "target",
            Self::Version => "version",
            Self::FieldName => "field_name",
            Self::FieldValue => "field_value",
            Self::Folded => "folded",
            Self::BareLf => "bare_lf",
            Self::HostMissing => "host_missing",
            Self::HostRepeated => "host_repeated",
            Self::TargetTooLong => "target_too_long",
            Self::HeadTooLarge => "head_too_large",
            Self::TooManyFields => "too_many_fields",
            Self::Length => "length",
            Self::LengthRepeated => "length_repeated",
            Self::LengthTooLarge => "length_too_large",
            Self::LengthAndCoding => "length_and_coding",
            Self::CodingUnknown => "transfer_encoding",
            Self::CodingRepeated => "transfer_encoding_repeated",
            Self::CodingInHttp10 => "transfer_encoding_http10",
            Self::ChunkLength => "chunk_length",
            Self::ChunkExtension => "chunk_extension",
            Self::ChunkExtensions => "chunk_extensions",
            Self::ChunkEnd => "chunk_end",
            Self::BareCr => "bare_cr",
            Self::TrailersTooLarge => "trailers_too_large",
            Self::Truncated => "truncated",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => "TLS was received where plain HTTP is expected",
            Self::Http2 => "HTTP/2 was received where HTTP/1 is expected",
            Self::StartLine => "the first line is malformed",
            Self::Target => "the request target is malformed",
            Self::Version => "the version is not HTTP/1.0 or HTTP/1.1",
            Self::FieldName => "a field name is malformed",
            Self::FieldValue => "a field value has a control character",
            Self::Folded => "a field is continued on the next line",
            Self::BareLf => "a line ends with a line feed and no carriage return",
            Self::HostMissing => "the request has no Host",
            Self::HostRepeated => "the request has more than one Host",
            Self::TargetTooLong => "the first line is too long",
            Self::HeadTooLarge => "the head is too large",
            Self::TooManyFields => "the head has too many fields",
            Self::Length => "the Content-Length is not a number",
            Self::LengthRepeated => "there is more than one Content-Length",
            Self::LengthTooLarge => "the Content-Length is larger than 64 bits",
            Self::LengthAndCoding => "Content-Length and Transfer-Encoding in one message",
            Self::CodingUnknown => "the Transfer-Encoding is not chunked",
            Self::CodingRepeated => "there is more than one Transfer-Encoding",
            Self::CodingInHttp10 => "an HTTP/1.0 message has a Transfer-Encoding",
            Self::ChunkLength => "a chunk has no valid length",
            Self::ChunkExtension => "what follows the length of a chunk is no extension",
            Self::ChunkExtensions => "the chunk extensions are too long",
            Self::ChunkEnd => "a chunk does not end where its length says",
            Self::BareCr => "a carriage return has no line feed behind it",
            Self::TrailersTooLarge => "the trailers are too large",
            Self::Truncated => "the connection ended within a message",
        })
    }
}

impl core::error::Error for Error {}
