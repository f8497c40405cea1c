//! Errors in the bytes of a peer.

use core::fmt;

use crate::nv::NvError;

/// A peer broke the protocol, or exceeded a limit.
///
/// The peer is always the cause, and the connection always ends: after one wrong record, no later one can be trusted.
/// A decoder returns the same error again from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A record's version is not 1; usually it is not FastCGI at all (FastCGI 1.0 §3.3).
    BadVersion(u8),
    /// A record belongs to another request, an earlier one for instance; a management record belongs to request 0.
    WrongRequest {
        /// The request that a record of this type could have belonged to.
        expected: u16,
        /// The request in the record.
        got: u16,
    },
    /// A record of a type that this side never gets, or not at this point; the type as received.
    UnexpectedType(u8),
    /// A record of a stream that has already ended; the type as received (FastCGI 1.0 §3.3).
    AfterStreamEnd(u8),
    /// `FCGI_BEGIN_REQUEST` whose content is not eight bytes (FastCGI 1.0 §5.1).
    BadBeginRequest,
    /// `FCGI_END_REQUEST` whose content is not eight bytes (FastCGI 1.0 §5.5).
    BadEndRequest,
    /// `FCGI_UNKNOWN_TYPE` whose content is not eight bytes (FastCGI 1.0 §4.2).
    BadUnknownType,
    /// Bytes after the record that ended the request.
    AfterEnd,
    /// More than a limit allows to be held.
    TooLarge {
        /// The limit that was passed, in bytes.
        limit: usize,
    },
    /// More name-value pairs than a limit allows.
    TooManyPairs {
        /// The limit that was passed, in pairs.
        limit: usize,
    },
    /// Name-value pairs that end within a pair (FastCGI 1.0 §3.4).
    TruncatedPair,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadVersion(version) => {
                write!(f, "FastCGI version {version}, not 1")?;
                f.write_str(match version {
                    b'H' | b'<' => ": it looks like an HTTP answer; this is an HTTP server, but FastCGI is expected",
                    b'G' | b'P' | b'D' | b'O' => {
                        ": it looks like an HTTP request; FastCGI is expected (in nginx fastcgi_pass, not proxy_pass)"
                    }
                    TLS_HANDSHAKE | TLS_ALERT => ": it looks like TLS; plain FastCGI is expected",
                    _ => "",
                })
            }
            Self::WrongRequest { expected, got } => {
                write!(f, "record of request {got}, not of request {expected}")
            }
            Self::UnexpectedType(kind) => write!(f, "unexpected record type {kind}"),
            Self::AfterStreamEnd(kind) => {
                write!(f, "record of type {kind} after the end of its stream")
            }
            Self::BadBeginRequest => f.write_str("FCGI_BEGIN_REQUEST of a wrong length"),
            Self::BadEndRequest => f.write_str("FCGI_END_REQUEST of a wrong length"),
            Self::BadUnknownType => f.write_str("FCGI_UNKNOWN_TYPE of a wrong length"),
            Self::AfterEnd => f.write_str("bytes after the end of the request"),
            Self::TooLarge { limit } => write!(f, "more than {limit} bytes of name-value pairs"),
            Self::TooManyPairs { limit } => write!(f, "more than {limit} name-value pairs"),
            Self::TruncatedPair => f.write_str("name-value pairs end within a pair"),
        }
    }
}

impl core::error::Error for ProtocolError {}

/// Content types of TLS records (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 22;
const TLS_ALERT: u8 = 21;

impl From<NvError> for ProtocolError {
    fn from(error: NvError) -> Self {
        match error {
            NvError::TooLarge { limit } => Self::TooLarge { limit },
            NvError::TooManyPairs { limit } => Self::TooManyPairs { limit },
            NvError::Truncated => Self::TruncatedPair,
        }
    }
}
