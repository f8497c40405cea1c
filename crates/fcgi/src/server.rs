//! The application's side: what a responder receives and sends.
//!
//! ```
//! use weir_fcgi::{ProtocolStatus, Role, client, server};
//!
//! let mut wire = Vec::new();
//! client::begin_request(&mut wire, 1, Role::Responder, true);
//! let mut params = client::Params::new(&mut wire, 1);
//! params.pair(b"REQUEST_METHOD", b"GET");
//! params.finish();
//! client::stdin_end(&mut wire, 1);
//!
//! let mut decoder = server::RequestDecoder::new(server::Limits::default());
//! let mut answer = Vec::new();
//! let mut input = &wire[..];
//! while let Some(event) = decoder.next(&mut input)? {
//!     match event {
//!         server::Event::Params(params) => {
//!             assert_eq!(params.get(b"REQUEST_METHOD"), Some(&b"GET"[..]));
//!         }
//!         server::Event::StdinEnd => {
//!             server::stdout(&mut answer, 1, b"Content-Type: text/plain\r\n\r\nhello\n");
//!             server::end_request(&mut answer, 1, 0, ProtocolStatus::RequestComplete);
//!             decoder.end_request();
//!         }
//!         _ => {}
//!     }
//! }
//! # Ok::<(), weir_fcgi::ProtocolError>(())
//! ```

mod request;

use alloc::vec::Vec;

pub use crate::ProtocolError;
use crate::record::{
    HEADER_LEN, Header, MAX_CONTENT, ProtocolStatus, RecordType, put_empty, put_fixed, put_pairs,
    put_stream,
};

pub use request::{Event, Limits, RequestDecoder};

/// Appends a piece of the response, copied, in as few records as hold it; nothing for an empty piece, since an empty
/// record would end the stream (FastCGI 1.0 §5.3).
pub fn stdout(out: &mut Vec<u8>, id: u16, data: &[u8]) {
    put_stream(out, RecordType::Stdout, id, data);
}

/// The header to send before `len` bytes of the response that are sent without a copy. No padding follows.
///
/// With a length of 0 it is the record that ends the stream.
#[must_use]
pub const fn stdout_header(id: u16, len: u16) -> [u8; HEADER_LEN] {
    Header::new(RecordType::Stdout, id, len).to_bytes()
}

/// Ends the response, before [`end_request`] (FastCGI 1.0 §5.5). Clients do not need it; PHP does not send it.
pub fn stdout_end(out: &mut Vec<u8>, id: u16) {
    put_empty(out, RecordType::Stdout, id);
}

/// Appends a piece of error messages; nothing for an empty piece (FastCGI 1.0 §5.3).
///
/// Unlike all other records these are padded, always by at least one byte: HAProxy 2.6 crashes if the content of one
/// is the last byte that it has read.
pub fn stderr(out: &mut Vec<u8>, id: u16, data: &[u8]) {
    for content in data.chunks(MAX_CONTENT - ALIGNMENT) {
        let padding = ALIGNMENT - content.len() % ALIGNMENT;
        let header = Header {
            padding_len: padding as u8, // at most ALIGNMENT
            // `chunks` gives fewer bytes than MAX_CONTENT, which a u16 holds.
            ..Header::new(RecordType::Stderr, id, content.len() as u16)
        };
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(content);
        out.extend_from_slice(&[0; ALIGNMENT][..padding]);
    }
}

/// Ends the error messages. Needed only if there were some (FastCGI 1.0 §5.5).
pub fn stderr_end(out: &mut Vec<u8>, id: u16) {
    put_empty(out, RecordType::Stderr, id);
}

/// Ends request `id` (FastCGI 1.0 §5.5). Also call [`RequestDecoder::end_request`].
pub fn end_request(out: &mut Vec<u8>, id: u16, app_status: u32, protocol_status: ProtocolStatus) {
    let [a, b, c, d] = app_status.to_be_bytes();
    let body = [a, b, c, d, u8::from(protocol_status), 0, 0, 0];
    put_fixed(out, RecordType::EndRequest, id, body);
}

/// Answers [`Event::GetValues`] with (name, value) of the variables that were asked for and are known
/// (FastCGI 1.0 §4.1). The answer is one record; variables that do not fit it are left out.
pub fn get_values_result(out: &mut Vec<u8>, values: &[(&[u8], &[u8])]) {
    put_pairs(out, RecordType::GetValuesResult, values.iter().copied());
}

/// Answers [`Event::UnknownType`] (FastCGI 1.0 §4.2).
pub fn unknown_type(out: &mut Vec<u8>, kind: u8) {
    let body = [kind, 0, 0, 0, 0, 0, 0, 0];
    put_fixed(out, RecordType::UnknownType, 0, body);
}

/// Alignment of records that FastCGI 1.0 §3.3 recommends, in bytes.
const ALIGNMENT: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Event, ResponseDecoder};

    #[test]
    fn error_messages_are_always_padded() {
        for length in [1, 7, 8, 65_526, 65_527, 65_528, 200_000] {
            let data = alloc::vec![b'x'; length];
            let mut out = Vec::new();
            stderr(&mut out, 1, &data);
            assert_eq!(out.len() % ALIGNMENT, 0);
            let (mut rest, mut total) = (&out[..], 0);
            while let Some((header, after)) = rest.split_first_chunk() {
                let header = Header::from_bytes(*header);
                assert!(header.padding_len > 0);
                let content = usize::from(header.content_len);
                assert!(content + usize::from(header.padding_len) <= MAX_CONTENT);
                total += content;
                rest = &after[content + usize::from(header.padding_len)..];
            }
            assert_eq!(total, length);
            let (mut decoder, mut input, mut read) = (ResponseDecoder::new(1), &out[..], 0);
            while let Ok(Some(Event::Stderr(piece))) = decoder.next(&mut input) {
                read += piece.len();
            }
            assert_eq!(read, length);
        }
    }
}
