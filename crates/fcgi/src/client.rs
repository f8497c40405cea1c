//! The client's side: what a web server sends to an application.
//!
//! Encoders append to a buffer, so that a whole request can be one write. A body that lies in a file or in another
//! buffer goes out without being copied, behind [`stdin_header`]:
//!
//! ```
//! use weir_fcgi::{MAX_CONTENT, client};
//!
//! let body = vec![b'x'; 100_000];
//! let mut pieces: Vec<(usize, [u8; 8])> = Vec::new(); // what would go to writev
//! for content in body.chunks(MAX_CONTENT) {
//!     pieces.push((content.len(), client::stdin_header(1, content.len() as u16)));
//! }
//! pieces.push((0, client::stdin_header(1, 0)));
//! assert_eq!(pieces.len(), 3);
//! ```

mod response;

use alloc::vec::Vec;

pub use crate::ProtocolError;
use crate::nv;
use crate::record::{
    HEADER_LEN, Header, MAX_CONTENT, RecordType, Role, put_empty, put_fixed, put_pairs, put_stream,
};

pub use response::{Event, Extension, ResponseDecoder};

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
/// A record is closed when the next pair does not fit any more: PHP reads each record separately, and refuses a
/// request in which a pair continues in the next record. Only a pair that is longer than a record can be (65,535
/// bytes with its lengths, see [`nv::encoded_len`]) spans records; the protocol allows that, PHP does not.
///
/// The stream does not end before [`finish`](Self::finish).
#[derive(Debug)]
#[must_use = "the stream of parameters has no end before `finish`"]
pub struct Params<'a> {
    out: &'a mut Vec<u8>,
    id: u16,
    /// Where the content of the open record begins in `out`; its header, with length 0 so far, is before it.
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
        let length = 2 + name.len() + value.len();
        let room = MAX_CONTENT - (self.out.len() - self.content);
        if name.len() <= nv::SHORT && value.len() <= nv::SHORT && length <= room {
            // Nearly every pair.
            self.out.reserve(length);
            self.out
                .extend_from_slice(&[name.len() as u8, value.len() as u8]);
            self.out.extend_from_slice(name);
            self.out.extend_from_slice(value);
            return;
        }
        self.any_pair(name, value);
    }

    #[cold]
    fn any_pair(&mut self, name: &[u8], value: &[u8]) {
        if self.make_room(nv::encoded_len(name.len(), value.len())) {
            nv::encode_lengths(self.out, name.len(), value.len());
            self.out.extend_from_slice(name);
            self.out.extend_from_slice(value);
        } else {
            self.span(b"", name, value, |_| {});
        }
    }

    /// Appends pairs that were encoded before ([`nv::encode`]), for example pairs that many requests share. All of them
    /// are copied at once.
    ///
    /// # Panics
    ///
    /// If they are longer than a record can be ([`MAX_CONTENT`]).
    #[inline]
    pub fn encoded(&mut self, pairs: &[u8]) {
        assert!(self.make_room(pairs.len()), "pairs of one record");
        self.out.extend_from_slice(pairs);
    }

    /// Appends a request header under its CGI name: `HTTP_` and the name in upper case, `-` as `_` (RFC 3875 §4.1.18).
    ///
    /// The caller decides which headers may go to an application: `Proxy` must not, because `HTTP_PROXY` means
    /// something else to many programs, nor a name with an underscore, which could be confused with another header.
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
        // If the open record has no content, it already is the empty record that ends the stream.
        if self.out.len() > self.content {
            self.close_record();
            put_empty(self.out, RecordType::Params, self.id);
        }
    }

    /// Makes room for this many bytes in the open record; false if no record can hold them.
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

    /// Writes a pair that is too long for one record over several ones.
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

/// The header to send before `len` bytes of the request's body that are sent without a copy. No padding follows.
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

/// Asks the application to give up request `id` (FastCGI 1.0 §5.4). PHP ignores it while a script runs.
pub fn abort_request(out: &mut Vec<u8>, id: u16) {
    put_empty(out, RecordType::AbortRequest, id);
}

/// Asks for the application's variables of these names (FastCGI 1.0 §4.1); the three that the specification defines
/// are [`FCGI_MAX_CONNS`](crate::record::FCGI_MAX_CONNS) and the two constants after it.
///
/// The question is one record. Names that do not fit into it are left out. An application may leave out variables, too.
pub fn get_values(out: &mut Vec<u8>, names: &[&[u8]]) {
    let pairs = names.iter().map(|&name| (name, &b""[..]));
    put_pairs(out, RecordType::GetValues, pairs);
}

/// Sends `content` in management records of a type that FastCGI 1.0 does not define, as few as possible, followed by
/// an empty one. Both sides must have agreed on the type.
pub fn extension(out: &mut Vec<u8>, kind: u8, content: &[u8]) {
    for piece in content.chunks(MAX_CONTENT).chain([&[][..]]) {
        let header = Header {
            kind,
            ..Header::new(RecordType::UnknownType, 0, piece.len() as u16) // at most MAX_CONTENT
        };
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(piece);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// The contents of the records in `bytes`, each with its type; checks what all records have in common.
    fn records(mut bytes: &[u8], id: u16) -> Vec<(u8, &[u8])> {
        let mut records = Vec::new();
        while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() {
            let header = Header::from_bytes(*header);
            assert_eq!((header.version, header.id, header.padding_len), (1, id, 0));
            let (content, rest) = rest.split_at(usize::from(header.content_len));
            records.push((header.kind, content));
            bytes = rest;
        }
        assert!(bytes.is_empty());
        records
    }

    fn params(write: impl Fn(&mut Params<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        let mut params = Params::new(&mut out, 1);
        write(&mut params);
        params.finish();
        out
    }

    #[test]
    fn begin_request_is_laid_out_as_the_specification_draws_it() {
        let mut out = Vec::new();
        begin_request(&mut out, 0x0102, Role::Filter, true);
        assert_eq!(out, [1, 1, 1, 2, 0, 8, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_stream_of_no_parameters_is_its_end() {
        assert_eq!(params(|_| {}), [1, 4, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn pairs_of_the_specifications_example() {
        // FastCGI 1.0, appendix B.
        let out = params(|params| {
            params.pair(b"SERVER_PORT", b"80");
            params.pair(b"SERVER_ADDR", b"199.170.183.42");
        });
        let content = b"\x0b\x02SERVER_PORT80\x0b\x0eSERVER_ADDR199.170.183.42";
        assert_eq!(records(&out, 1), [(4, &content[..]), (4, b"")]);
    }

    #[test]
    fn a_header_gets_its_cgi_name() {
        let plain = params(|params| params.pair(b"HTTP_X_FORWARDED_FOR2.A", b"v-x"));
        let header = params(|params| params.header(b"x-Forwarded-fOr2.a", b"v-x"));
        assert_eq!(plain, header);
    }

    #[test]
    fn every_byte_of_a_name_is_mapped_as_cgi_has_it() {
        for byte in 0..=u8::MAX {
            let expected = match byte {
                b'-' => b'_',
                b'a'..=b'z' => byte - b'a' + b'A',
                other => other,
            };
            assert_eq!(cgi_byte(byte), expected);
        }
    }

    #[test]
    fn a_pair_goes_to_the_next_record_whole() {
        // Six bytes and the value, then four bytes: 65,525 fill the first record to its last byte.
        for (first, contents) in [
            (65_525, vec![65_535, 0]),
            (65_526, vec![65_532, 4, 0]),
            (65_529, vec![65_535, 4, 0]),
        ] {
            let out = params(|params| {
                params.pair(b"a", &vec![b'v'; first]);
                params.pair(b"b", b"w");
            });
            let lengths: Vec<_> = records(&out, 1).iter().map(|r| r.1.len()).collect();
            assert_eq!(lengths, contents, "{first}");
        }
    }

    #[test]
    fn a_pair_longer_than_a_record_spans_records() {
        for spans in [65_530, 200_000] {
            let value = vec![b'v'; spans];
            let name = vec![b'n'; 70_000];
            for header in [false, true] {
                let out = params(|params| {
                    params.pair(b"before", b"1");
                    if header {
                        params.header(&name, &value);
                    } else {
                        params.pair(&name, &value);
                    }
                    params.pair(b"after", b"2");
                });
                let records = records(&out, 1);
                assert!(records.iter().all(|record| record.0 == 4));
                let (last, full) = records.split_last().unwrap();
                assert!(last.1.is_empty() && full.iter().all(|record| !record.1.is_empty()));
                let content: Vec<u8> = full.iter().flat_map(|r| r.1).copied().collect();
                let mut expected = Vec::new();
                nv::encode(&mut expected, b"before", b"1");
                if header {
                    let name = [b"HTTP_", &vec![b'N'; 70_000][..]].concat();
                    nv::encode(&mut expected, &name, &value);
                } else {
                    nv::encode(&mut expected, &name, &value);
                }
                nv::encode(&mut expected, b"after", b"2");
                assert!(content == expected);
            }
        }
    }

    #[test]
    fn what_stands_in_the_buffer_before_is_left_alone() {
        let mut out = b"earlier".to_vec();
        let mut params = Params::new(&mut out, 1);
        params.pair(b"n", b"v");
        params.finish();
        assert_eq!(&out[..7], b"earlier");
        assert_eq!(records(&out[7..], 1).len(), 2);
    }

    #[test]
    fn an_empty_piece_of_a_body_does_not_end_it() {
        let mut out = Vec::new();
        stdin(&mut out, 1, b"");
        assert!(out.is_empty());
        stdin_end(&mut out, 1);
        assert_eq!(out, stdin_header(1, 0));
    }

    #[test]
    fn names_that_do_not_fit_a_question_are_left_out() {
        let long = vec![b'n'; 40_000];
        let mut out = Vec::new();
        get_values(&mut out, &[&long, &long]);
        assert_eq!(records(&out, 0), [(9, &out[HEADER_LEN..])]);
        assert_eq!(out.len(), HEADER_LEN + nv::encoded_len(40_000, 0));
    }
}
