//! The record: eight bytes of header, then content, then padding (FastCGI 1.0 §3.3), and its constants.

use alloc::vec::Vec;

use crate::{ProtocolError, nv};

/// Length of a record's header in bytes (FastCGI 1.0 §3.3).
pub const HEADER_LEN: usize = 8;

/// The most content that one record can carry, in bytes: its length is a 16-bit number (FastCGI 1.0 §3.3).
pub const MAX_CONTENT: usize = 65_535;

/// The longest management record that is accepted from a peer, in bytes of content: names or values of variables. The
/// three variables of the specification need about 60.
pub const MAX_MANAGEMENT: usize = 4096;

/// The longest content of a management record of a type that FastCGI 1.0 does not define, in bytes
/// ([`client::Extension`](crate::client::Extension)).
pub const MAX_EXTENSION: usize = 112;

/// The only protocol version there is: `FCGI_VERSION_1` (FastCGI 1.0 §8).
pub const VERSION: u8 = 1;

/// The name of the variable that tells how many connections an application accepts at once (FastCGI 1.0 §4.1).
pub const FCGI_MAX_CONNS: &[u8] = b"FCGI_MAX_CONNS";

/// The name of the variable that tells how many requests an application accepts at once (FastCGI 1.0 §4.1).
pub const FCGI_MAX_REQS: &[u8] = b"FCGI_MAX_REQS";

/// The name of the variable that tells whether an application multiplexes requests on a connection: `0` or `1`
/// (FastCGI 1.0 §4.1).
pub const FCGI_MPXS_CONNS: &[u8] = b"FCGI_MPXS_CONNS";

/// What a record is for (FastCGI 1.0 §8).
///
/// A byte on the wire may be none of these: [`RecordType::try_from`] gives it back as the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordType {
    /// Starts a request; client to application (§5.1).
    BeginRequest = 1,
    /// Asks to give a request up; client to application (§5.4).
    AbortRequest = 2,
    /// Ends a request; application to client (§5.5).
    EndRequest = 3,
    /// Stream of name-value pairs; client to application (§5.2).
    Params = 4,
    /// Stream of the request's body; client to application (§5.3).
    Stdin = 5,
    /// Stream of the response; application to client (§5.3).
    Stdout = 6,
    /// Stream of error messages; application to client (§5.3).
    Stderr = 7,
    /// Second input stream, of filters only; client to application (§5.3).
    Data = 8,
    /// Management: asks for variables; client to application (§4.1).
    GetValues = 9,
    /// Management: the answer to [`GetValues`](Self::GetValues); application to client (§4.1).
    GetValuesResult = 10,
    /// Management: the answer to a management record of a type not known; application to client (§4.2).
    UnknownType = 11,
}

impl TryFrom<u8> for RecordType {
    /// The byte, which is not a type of FastCGI 1.0.
    type Error = u8;

    fn try_from(byte: u8) -> Result<Self, u8> {
        Ok(match byte {
            1 => Self::BeginRequest,
            2 => Self::AbortRequest,
            3 => Self::EndRequest,
            4 => Self::Params,
            5 => Self::Stdin,
            6 => Self::Stdout,
            7 => Self::Stderr,
            8 => Self::Data,
            9 => Self::GetValues,
            10 => Self::GetValuesResult,
            11 => Self::UnknownType,
            other => return Err(other),
        })
    }
}

/// What an application is asked to be for a request (FastCGI 1.0 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Role {
    /// Answers a request as a CGI program does (§6.2). The only role that PHP plays.
    Responder = 1,
    /// Says whether a request is allowed (§6.3).
    Authorizer = 2,
    /// Turns a file into a response (§6.4).
    Filter = 3,
}

impl TryFrom<u16> for Role {
    /// The number, which is not a role of FastCGI 1.0.
    type Error = u16;

    fn try_from(number: u16) -> Result<Self, u16> {
        Ok(match number {
            1 => Self::Responder,
            2 => Self::Authorizer,
            3 => Self::Filter,
            other => return Err(other),
        })
    }
}

/// How a request ended at protocol level (FastCGI 1.0 §5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtocolStatus {
    /// The request ran to its end.
    RequestComplete,
    /// Refused: the application takes one request at a time on a connection.
    CantMultiplex,
    /// Refused: the application is out of some resource.
    Overloaded,
    /// Refused: the application does not support the requested role.
    UnknownRole,
    /// A number that FastCGI 1.0 does not define, as received.
    Other(u8),
}

impl From<u8> for ProtocolStatus {
    fn from(byte: u8) -> Self {
        match byte {
            0 => Self::RequestComplete,
            1 => Self::CantMultiplex,
            2 => Self::Overloaded,
            3 => Self::UnknownRole,
            other => Self::Other(other),
        }
    }
}

impl From<ProtocolStatus> for u8 {
    fn from(status: ProtocolStatus) -> Self {
        match status {
            ProtocolStatus::RequestComplete => 0,
            ProtocolStatus::CantMultiplex => 1,
            ProtocolStatus::Overloaded => 2,
            ProtocolStatus::UnknownRole => 3,
            ProtocolStatus::Other(byte) => byte,
        }
    }
}

/// A record's header; its type is not checked yet (FastCGI 1.0 §3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The protocol's version; if it is not [`VERSION`], the peer speaks another protocol.
    pub version: u8,
    /// The type as it stands on the wire; see [`RecordType`].
    pub kind: u8,
    /// The request that the record belongs to; 0 in management records.
    pub id: u16,
    /// Bytes of content that follow the header.
    pub content_len: u16,
    /// Bytes of padding that follow the content; their values have no meaning.
    pub padding_len: u8,
}

impl Header {
    /// A header of this version without padding.
    #[must_use]
    pub const fn new(kind: RecordType, id: u16, content_len: u16) -> Self {
        Self {
            version: VERSION,
            kind: kind as u8,
            id,
            content_len,
            padding_len: 0,
        }
    }

    /// The header as it stands on the wire.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_LEN] {
        let id = self.id.to_be_bytes();
        let length = self.content_len.to_be_bytes();
        [
            self.version,
            self.kind,
            id[0],
            id[1],
            length[0],
            length[1],
            self.padding_len,
            0,
        ]
    }

    /// Reads a header without any check, not even of the version. The reserved byte is ignored.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; HEADER_LEN]) -> Self {
        Self {
            version: bytes[0],
            kind: bytes[1],
            id: u16::from_be_bytes([bytes[2], bytes[3]]),
            content_len: u16::from_be_bytes([bytes[4], bytes[5]]),
            padding_len: bytes[6],
        }
    }

    /// An error unless the record belongs to the connection, as management records do (FastCGI 1.0 §3.3).
    pub(crate) fn management(self) -> Result<(), ProtocolError> {
        if self.id != 0 {
            return Err(ProtocolError::WrongRequest {
                expected: 0,
                got: self.id,
            });
        }
        Ok(())
    }
}

/// Whether FastCGI 1.0 leaves this type to agreements (§8: types above its own are for later versions, which never came).
pub(crate) const fn is_extension(kind: u8) -> bool {
    kind > RecordType::UnknownType as u8
}

/// Appends a record of eight bytes' content, as the fixed bodies of FastCGI 1.0 §8 are.
pub(crate) fn put_fixed(out: &mut Vec<u8>, kind: RecordType, id: u16, body: [u8; 8]) {
    let mut record = [0; HEADER_LEN + 8];
    record[..HEADER_LEN].copy_from_slice(&Header::new(kind, id, 8).to_bytes());
    record[HEADER_LEN..].copy_from_slice(&body);
    out.extend_from_slice(&record);
}

/// Appends a record without content, the end of a stream (FastCGI 1.0 §3.3).
pub(crate) fn put_empty(out: &mut Vec<u8>, kind: RecordType, id: u16) {
    out.extend_from_slice(&Header::new(kind, id, 0).to_bytes());
}

/// Appends a management record of as many of the pairs as one record holds.
pub(crate) fn put_pairs<'p>(
    out: &mut Vec<u8>,
    kind: RecordType,
    pairs: impl IntoIterator<Item = (&'p [u8], &'p [u8])>,
) {
    let start = out.len();
    put_empty(out, kind, 0);
    let content = out.len();
    for (name, value) in pairs {
        if out.len() - content + nv::encoded_len(name.len(), value.len()) > MAX_CONTENT {
            break;
        }
        nv::encode(out, name, value);
    }
    let header = Header::new(kind, 0, (out.len() - content) as u16); // at most MAX_CONTENT
    out[start..content].copy_from_slice(&header.to_bytes());
}

/// Appends `data` as records of a stream, as few as hold it; none at all for no data, which would end the stream.
pub(crate) fn put_stream(out: &mut Vec<u8>, kind: RecordType, id: u16, data: &[u8]) {
    out.reserve(data.len() + data.len().div_ceil(MAX_CONTENT) * HEADER_LEN);
    for content in data.chunks(MAX_CONTENT) {
        // `chunks` gives at most MAX_CONTENT bytes, which a u16 holds.
        out.extend_from_slice(&Header::new(kind, id, content.len() as u16).to_bytes());
        out.extend_from_slice(content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn header_is_laid_out_as_the_specification_draws_it() {
        let header = Header {
            version: 1,
            kind: 6,
            id: 0x0102,
            content_len: 0x0304,
            padding_len: 5,
        };
        assert_eq!(header.to_bytes(), [1, 6, 1, 2, 3, 4, 5, 0]);
        assert_eq!(Header::from_bytes([1, 6, 1, 2, 3, 4, 5, 0xff]), header);
    }

    #[test]
    fn numbers_round_trip() {
        for byte in 0..=u8::MAX {
            match RecordType::try_from(byte) {
                Ok(kind) => assert_eq!(kind as u8, byte),
                Err(other) => assert!(other == byte && !(1..=11).contains(&byte)),
            }
            assert_eq!(u8::from(ProtocolStatus::from(byte)), byte);
        }
        for number in 0..=u16::MAX {
            match Role::try_from(number) {
                Ok(role) => assert_eq!(role as u16, number),
                Err(other) => assert!(other == number && !(1..=3).contains(&number)),
            }
        }
    }

    #[test]
    fn a_stream_is_cut_where_a_record_is_full() {
        for (length, records) in [
            (0, 0),
            (1, 1),
            (MAX_CONTENT, 1),
            (MAX_CONTENT + 1, 2),
            (3 * MAX_CONTENT, 3),
        ] {
            let mut out = Vec::new();
            put_stream(&mut out, RecordType::Stdin, 1, &vec![7; length]);
            assert_eq!(out.len(), length + records * HEADER_LEN);
        }
    }
}
