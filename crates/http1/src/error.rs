//! What can be wrong with a peer's bytes.

use core::fmt;

/// Makes [`Error`]. Each row has a mistake, in one word for logs and metrics, and in a sentence.
macro_rules! errors {
    ($($(#[$doc:meta])* $error:ident $reason:literal, $text:literal;)*) => {
        /// A message that is malformed, ambiguous or larger than a limit.
        ///
        /// The peer that sent it is at fault, and the connection must be closed: nothing that follows can be trusted. A decoder
        /// that has given an error gives the same error from then on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Error {
            $($(#[$doc])* $error,)*
        }

        impl Error {
            /// One word for logs and metrics.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self {
                    $(Self::$error => $reason,)*
                }
            }
        }

        impl fmt::Display for Error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$error => $text,)*
                })
            }
        }
    };
}

errors! {
    /// The first byte is that of a TLS record: the peer speaks HTTPS to a plain port.
    Tls "tls", "TLS was received where plain HTTP is expected";
    /// The preface of an HTTP/2 connection (RFC 9113 §3.4).
    Http2 "http2", "HTTP/2 was received where HTTP/1 is expected";
    /// The first line is no request line (RFC 9112 §3), or no status line (§4).
    StartLine "start_line", "the first line is malformed";
    /// The target has a control character, a space or a form that its method does not allow (RFC 9112 §3.2).
    Target "target", "the request target is malformed";
    /// A version other than HTTP/1.x (RFC 9112 §2.3).
    Version "version", "the version is not HTTP/1.0 or HTTP/1.1";
    /// A field name that is no token, or white space before its colon (RFC 9112 §5.1).
    FieldName "field_name", "a field name is malformed";
    /// A control character in a field's value (RFC 9110 §5.5).
    FieldValue "field_value", "a field value has a control character";
    /// A line that continues the one before it (obs-fold, RFC 9112 §5.2).
    Folded "folded", "a field is continued on the next line";
    /// A line that ends with a line feed alone. RFC 9112 §2.2 allows a server to take it; two servers that do not agree
    /// on it see different messages.
    BareLf "bare_lf", "a line ends with a line feed and no carriage return";
    /// A request of HTTP/1.1 without a Host (RFC 9112 §3.2).
    HostMissing "host_missing", "the request has no Host";
    /// More than one Host (RFC 9112 §3.2).
    HostRepeated "host_repeated", "the request has more than one Host";
    /// The first line does not fit the limit of the head.
    TargetTooLong "target_too_long", "the first line is too long";
    /// The head does not fit its limit.
    HeadTooLarge "head_too_large", "the head is too large";
    /// More fields than the limit.
    TooManyFields "too_many_fields", "the head has too many fields";
    /// A Content-Length that is not one decimal number (RFC 9112 §6.3).
    Length "length", "the Content-Length is not a number";
    /// More than one Content-Length, even if all are equal (RFC 9112 §6.3 permits to refuse them).
    LengthRepeated "length_repeated", "there is more than one Content-Length";
    /// A Content-Length that is beyond 64 bits.
    LengthTooLarge "length_too_large", "the Content-Length is larger than 64 bits";
    /// Content-Length and Transfer-Encoding in one message (RFC 9112 §6.1).
    LengthAndCoding "length_and_coding", "Content-Length and Transfer-Encoding in one message";
    /// A Transfer-Encoding other than `chunked` (RFC 9112 §6.1).
    CodingUnknown "transfer_encoding", "the Transfer-Encoding is not chunked";
    /// Transfer-Encoding more than once.
    CodingRepeated "transfer_encoding_repeated", "there is more than one Transfer-Encoding";
    /// Transfer-Encoding in a message of HTTP/1.0 (RFC 9112 §6.1).
    CodingInHttp10 "transfer_encoding_http10", "an HTTP/1.0 message has a Transfer-Encoding";
    /// A chunk whose length is missing or no hexadecimal number of 64 bits (RFC 9112 §7.1).
    ChunkLength "chunk_length", "a chunk has no valid length";
    /// Something else than extensions behind the length of a chunk (RFC 9112 §7.1.1).
    ChunkExtension "chunk_extension", "what follows the length of a chunk is no extension";
    /// More bytes of chunk extensions, white space and zeros than the limit.
    ChunkExtensions "chunk_extensions", "the chunk extensions are too long";
    /// A chunk that does not end where its length says.
    ChunkEnd "chunk_end", "a chunk does not end where its length says";
    /// A carriage return without a line feed, between chunks or in trailers.
    BareCr "bare_cr", "a carriage return has no line feed behind it";
    /// Trailers that do not fit the limit of the head.
    TrailersTooLarge "trailers_too_large", "the trailers are too large";
    /// The connection ended within a message (RFC 9112 §8).
    Truncated "truncated", "the connection ended within a message";
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
}

impl core::error::Error for Error {}
