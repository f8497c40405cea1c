//! The client's side: what a web server sends to an application, and what it gets back.
//!
//! Encoders append to a buffer, so that a whole request can be one write.

mod response;

use alloc::vec::Vec;

pub use crate::ProtocolError;
use crate::nv;
use crate::record::{
    HEADER_LEN, Header, MAX_CONTENT, RecordType, Role, put_empty, put_fixed, put_stream,
};

pub use response::{Event, MAX_MANAGEMENT, ResponseDecoder};

/// Starts request `id` (not 0) and says whether the connection stays open after it (FastCGI 1.0 §5.1).
pub fn begin_request(out: &mut Vec<u8>, id: u16, role: Role, keep_conn: bool) {
    let [role_high, role_low] = (role as u16).to_be_bytes();
    let flags = u8::from(keep_conn);
    put_fixed(
        out,
        RecordType::BeginRequest,
        id,
        [role_high, role_low, flags, 0, 0, 0, 0, 0],
    );
}

/// Writes a request's parameters as `FCGI_PARAMS` records, straight into the buffer (FastCGI 1.0 §5.2).
///
/// A record is closed when the next pair would not fit it any more: PHP reads each record on its own and refuses a
/// request in which a pair goes on in the next one. Only a pair that is longer than a record can be (65,535 bytes with
/// its lengths, see [`nv::encoded_len`]) spans records; the protocol allows that, PHP does not.
///
/// The stream has no end before [`finish`](Self::finish).
#[derive(Debug)]
#[must_use = "the stream of parameters has no end before `finish`"]
pub struct Params<'a> {
    out: &'a mut Vec<u8>,
    id: u16,
    /// Where the content of the open record begins in `out`; its header, with a length of 0 so far, stands before.
    content: usize,
}

impl<'a> Params<'a> {
    /// Opens the stream of request `id`.
    pub fn new(out: &'a mut Vec<u8>, id: u16) -> Self {
        put_empty(out, RecordType::Params, id);
        let content = out.len();
        Self { out, id, content }
    }

    /// Appends a pair.
    ///
    /// # Panics
    ///
    /// If the name or the value is longer than [`nv::MAX_LEN`].
    #[inline]
    pub fn pair(&mut self, name: &[u8], value: &[u8]) {
        if self.make_room(nv::encoded_len(name.len(), value.len())) {
            nv::encode_lengths(self.out, name.len(), value.len());
            self.out.extend_from_slice(name);
            self.out.extend_from_slice(value);
        } else {
            self.span(b"", name, value, |_| {});
        }
    }

    /// Appends a request header under its CGI name: `HTTP_` and the name in upper case, `-` as `_` (RFC 3875 §4.1.18).
    ///
    /// Which headers may go to an application is the caller's to decide: `Proxy` must not, since `HTTP_PROXY` means
    /// something else to many programs, nor a name with an underscore, which could pass for another header.
    ///
    /// # Panics
    ///
    /// If the name or the value is longer than [`nv::MAX_LEN`].
    #[inline]
    pub fn header(&mut self, name: &[u8], value: &[u8]) {
        let name_len = HTTP.len() + name.len();
        if self.make_room(nv::encoded_len(name_len, value.len())) {
            nv::encode_lengths(self.out, name_len, value.len());
            self.out.extend_from_slice(HTTP);
            self.out.extend(name.iter().map(|&byte| cgi_byte(byte)));
            self.out.extend_from_slice(value);
        } else {
            self.span(HTTP, name, value, |bytes| {
                bytes.iter_mut().for_each(|byte| *byte = cgi_byte(*byte));
            });
        }
    }

    /// Closes the last record and the stream.
    pub fn finish(mut self) {
        // Without any content the open record is the empty one that ends the stream.
        if self.out.len() > self.content {
            self.close_record();
            put_empty(self.out, RecordType::Params, self.id);
        }
    }

    /// Makes sure that so many bytes can be appended to the open record; false if no record can hold them.
    #[inline]
    fn make_room(&mut self, length: usize) -> bool {
        self.out.reserve(length);
        if self.out.len() - self.content + length > MAX_CONTENT {
            return self.next_record_for(length);
        }
        true
    }

    #[cold]
    fn next_record_for(&mut self, length: usize) -> bool {
        if self.out.len() > self.content {
            self.next_record();
        }
        length <= MAX_CONTENT
    }

    fn next_record(&mut self) {
        self.close_record();
        put_empty(self.out, RecordType::Params, self.id);
        self.content = self.out.len();
    }

    fn close_record(&mut self) {
        // `make_room` and `append` never let the content of a record pass MAX_CONTENT, which a u16 holds.
        let length = (self.out.len() - self.content) as u16;
        self.out[self.content - HEADER_LEN..self.content]
            .copy_from_slice(&Header::new(RecordType::Params, self.id, length).to_bytes());
    }

    /// Writes a pair that no record can hold over as many as it takes.
    #[cold]
    fn span(&mut self, prefix: &[u8], name: &[u8], value: &[u8], map_name: impl Fn(&mut [u8])) {
        let mut lengths = Vec::with_capacity(8);
        nv::encode_lengths(&mut lengths, prefix.len() + name.len(), value.len());
        self.append(&lengths, |_| {});
        self.append(prefix, |_| {});
        self.append(name, map_name);
        self.append(value, |_| {});
    }

    fn append(&mut self, mut bytes: &[u8], map: impl Fn(&mut [u8])) {
        while !bytes.is_empty() {
            let room = MAX_CONTENT - (self.out.len() - self.content);
            if room == 0 {
                self.next_record();
                continue;
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(room));
            let start = self.out.len();
            self.out.extend_from_slice(piece);
            map(&mut self.out[start..]);
            bytes = rest;
        }
    }
}

/// Appends a piece of the request's body, copied, in as few records as hold it; nothing for an empty piece, since an
/// empty record would end the stream (FastCGI 1.0 §5.3).
pub fn stdin(out: &mut Vec<u8>, id: u16, data: &[u8]) {
    put_stream(out, RecordType::Stdin, id, data);
}

/// The header to send before `len` bytes of the request's body that go out from where they are. No padding follows.
///
/// With a length of 0 it is the record that ends the stream.
#[must_use]
pub const fn stdin_header(id: u16, len: u16) -> [u8; HEADER_LEN] {
    Header::new(RecordType::Stdin, id, len).to_bytes()
}

/// Ends the request's body (FastCGI 1.0 §5.3). Every request needs it, also one without a body.
pub fn stdin_end(out: &mut Vec<u8>, id: u16) {
    put_empty(out, RecordType::Stdin, id);
}

/// Asks the application to give request `id` up (FastCGI 1.0 §5.4). PHP does not look at it while a script runs.
pub fn abort_request(out: &mut Vec<u8>, id: u16) {
    put_empty(out, RecordType::AbortRequest, id);
}

/// Asks for the application's variables of these names (FastCGI 1.0 §4.1); the three that the specification defines
/// are [`FCGI_MAX_CONNS`](crate::record::FCGI_MAX_CONNS) and its neighbours.
///
/// The question is one record. Names that do not fit it are left out, as an application may leave out what it does not know.
pub fn get_values(out: &mut Vec<u8>, names: &[&[u8]]) {
    let start = out.len();
    put_empty(out, RecordType::GetValues, 0);
    let content = out.len();
    for name in names {
        if out.len() - content + nv::encoded_len(name.len(), 0) > MAX_CONTENT {
            break;
        }
        nv::encode(out, name, b"");
    }
    let header = Header::new(RecordType::GetValues, 0, (out.len() - content) as u16);
    out[start..content].copy_from_slice(&header.to_bytes());
}

/// A byte of a header's name as CGI spells it.
#[inline]
const fn cgi_byte(byte: u8) -> u8 {
    if byte == b'-' {
        b'_'
    } else {
        byte.to_ascii_uppercase()
    }
}

const HTTP: &[u8] = b"HTTP_";
