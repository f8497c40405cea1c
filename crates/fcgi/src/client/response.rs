//! Reads what an application sends back for one request.

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

use crate::ProtocolError;
use crate::frame::Frame;
use crate::nv;
use crate::record::{
    Header, MAX_EXTENSION, MAX_MANAGEMENT, ProtocolStatus, RecordType, VERSION, is_extension,
};

/// What an application sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// A piece of the response: header block, blank line, body, as from a CGI program. Never empty. The ends of
    /// pieces have no meaning: one record may give several.
    Stdout(&'i [u8]),
    /// The response is complete. PHP does not send this, only [`End`](Self::End).
    StdoutEnd,
    /// A piece of error messages; may come between any two pieces of the response. Never empty.
    Stderr(&'i [u8]),
    /// No more error messages.
    StderrEnd,
    /// The request has ended; nothing follows (FastCGI 1.0 §5.5).
    End {
        /// The exit code of a CGI program; always 0 from PHP.
        app_status: u32,
        /// Whether the request ran, or why it was refused.
        protocol_status: ProtocolStatus,
    },
    /// The answer to [`get_values`](super::get_values): (name, value) of the variables that the application knows.
    GetValuesResult(Vec<(Vec<u8>, Vec<u8>)>),
    /// The application does not know management records of this type (FastCGI 1.0 §4.2).
    UnknownType(u8),
    /// A management record of a type that the two sides have agreed on
    /// ([`allow_extensions`](ResponseDecoder::allow_extensions)).
    Extension(Extension),
}

/// A management record whose type FastCGI 1.0 does not define.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Extension {
    /// Its type. The number is higher than the types of FastCGI 1.0.
    pub kind: u8,
    len: u8,
    bytes: [u8; MAX_EXTENSION],
}

impl Extension {
    /// `content` is at most [`MAX_EXTENSION`] bytes.
    #[inline]
    fn new(kind: u8, content: &[u8]) -> Self {
        let mut bytes = [0; MAX_EXTENSION];
        bytes[..content.len()].copy_from_slice(content);
        Self {
            kind,
            len: content.len() as u8,
            bytes,
        }
    }

    /// The record's content; at most [`MAX_EXTENSION`] bytes.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension({}, {:?})", self.kind, self.content())
    }
}

/// Decodes the records of one request at a time on one connection; the input may come in pieces of any size.
///
/// Payloads are slices of the input. The decoder stores at most eight bytes of a header or fixed body, and a
/// management record of at most [`MAX_MANAGEMENT`] bytes.
///
/// An application is not trusted: a record of another request, of a type that only clients send, after the end of its
/// stream or of a wrong length is an error, and so is any byte after the end. Types on which both sides have agreed
/// must be [allowed](Self::allow_extensions).
#[derive(Clone, Debug)]
pub struct ResponseDecoder {
    id: u16,
    frame: Frame,
    body: Body,
    stdout_ended: bool,
    stderr_ended: bool,
    ended: bool,
    failed: Option<ProtocolError>,
    /// Whether records are accepted whose type is not of FastCGI 1.0.
    extensions: bool,
    /// Set while a management record arrives in pieces, which is rare.
    pieces: Option<Box<Pieces>>,
}

/// The part of a management record that has arrived.
#[derive(Clone, Debug)]
enum Pieces {
    Values(nv::Decoder),
    Extension(Extension),
}

/// The kind of the content that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Stdout,
    Stderr,
    End,
    UnknownType,
    Values,
    Extension,
}

impl ResponseDecoder {
    /// A decoder for the answer to request `id` on a connection without unread data.
    ///
    /// With `id` 0, only answers to management records are accepted.
    #[must_use]
    pub fn new(id: u16) -> Self {
        Self {
            id,
            frame: Frame::default(),
            body: Body::Stdout,
            stdout_ended: false,
            stderr_ended: false,
            ended: false,
            failed: None,
            extensions: false,
            pieces: None,
        }
    }

    /// Accepts management records of types that FastCGI 1.0 does not define, also after [`Event::End`], if both sides
    /// have agreed on them. Their contents are at most [`MAX_EXTENSION`] bytes.
    #[must_use]
    pub fn allow_extensions(self) -> Self {
        Self {
            extensions: true,
            ..self
        }
    }

    /// Continues with the next request on the same connection, after [`Event::End`]. Missing padding of the last
    /// record is still skipped.
    ///
    /// For another connection make a new decoder, which is as cheap.
    pub fn reset(&mut self, id: u16) {
        let padding_left = if self.ended && self.failed.is_none() {
            self.frame.padding_left()
        } else {
            0
        };
        *self = Self {
            frame: Frame::after_padding(padding_left),
            extensions: self.extensions,
            ..Self::new(id)
        };
    }

    /// Takes bytes from the front of `input` and returns the next event; `None` if all input is used and more is
    /// needed. Empty input does not mean the end: a caller whose peer has closed checks [`is_ended`](Self::is_ended).
    ///
    /// # Errors
    ///
    /// [`ProtocolError`] if the application breaks the protocol; every later call returns the same error.
    #[inline]
    pub fn next<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if let Some(event) = self.whole_record(input) {
            return Ok(Some(event));
        }
        let event = self.advance(input);
        if let Err(error) = event {
            self.failed = Some(error);
        }
        event
    }

    /// A piece of the response, or its end, whose record is in `input` as a whole and is as expected: nearly every record.
    #[inline]
    fn whole_record<'i>(&mut self, input: &mut &'i [u8]) -> Option<Event<'i>> {
        if !self.frame.at_boundary() {
            return None;
        }
        let (header, rest) = input.split_first_chunk()?;
        let header = Header::from_bytes(*header);
        let (content, rest) = rest.split_at_checked(usize::from(header.content_len))?;
        let (_, rest) = rest.split_at_checked(usize::from(header.padding_len))?;
        if header.version != VERSION {
            return None;
        }
        let is_ours = header.id == self.id && header.id != 0 && !self.ended;
        let event = match (header.kind, content) {
            (kind, _) if !is_ours => {
                let is_allowed = self.extensions && is_extension(kind) && header.id == 0;
                if !is_allowed || content.len() > MAX_EXTENSION {
                    return None;
                }
                Event::Extension(Extension::new(kind, content))
            }
            (STDOUT, [_, ..]) if !self.stdout_ended => Event::Stdout(content),
            (END, &[a, b, c, d, status, _, _, _]) => {
                self.ended = true;
                Event::End {
                    app_status: u32::from_be_bytes([a, b, c, d]),
                    protocol_status: ProtocolStatus::from(status),
                }
            }
            _ => return None,
        };
        *input = rest;
        Some(event)
    }

    /// Whether no record is open: all of its content and padding has been taken. A connection can be kept if this
    /// holds after [`Event::End`], or if only padding is missing (see [`reset`](Self::reset)).
    #[must_use]
    pub fn at_record_boundary(&self) -> bool {
        self.frame.at_boundary()
    }

    /// Whether [`Event::End`] has been given.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Memory held on the heap, in bytes; never more than [`MAX_MANAGEMENT`].
    #[must_use]
    pub fn held(&self) -> usize {
        match self.pieces.as_deref() {
            Some(Pieces::Values(values)) => values.held(),
            _ => 0,
        }
    }

    #[inline]
    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, ProtocolError> {
        loop {
            self.frame.skip_padding(input);
            if input.is_empty() {
                return Ok(None);
            }
            let event = if self.frame.content_left() > 0 {
                self.content(input)?
            } else if self.ended && !self.extensions {
                return Err(ProtocolError::AfterEnd);
            } else {
                match self.frame.header(input)? {
                    Some(header) => self.open(header)?,
                    None => return Ok(None),
                }
            };
            if event.is_some() {
                // The padding is taken with the last piece of a record, so that the connection is at a boundary after
                // the event that the caller waited for.
                self.frame.skip_padding(input);
                return Ok(event);
            }
        }
    }

    /// Checks a header; returns an event if the record has no content to wait for.
    #[inline]
    fn open(&mut self, header: Header) -> Result<Option<Event<'static>>, ProtocolError> {
        if self.extensions && is_extension(header.kind) {
            return self.open_extension(header);
        }
        if self.ended {
            return Err(ProtocolError::AfterEnd);
        }
        let kind = RecordType::try_from(header.kind).map_err(ProtocolError::UnexpectedType)?;
        let length = header.content_len;
        self.body = match kind {
            RecordType::Stdout => {
                self.of_request(header)?;
                if self.stdout_ended {
                    return Err(ProtocolError::AfterStreamEnd(header.kind));
                }
                if length == 0 {
                    self.stdout_ended = true;
                    return Ok(Some(Event::StdoutEnd));
                }
                Body::Stdout
            }
            RecordType::Stderr => {
                self.of_request(header)?;
                if self.stderr_ended {
                    return Err(ProtocolError::AfterStreamEnd(header.kind));
                }
                if length == 0 {
                    self.stderr_ended = true;
                    return Ok(Some(Event::StderrEnd));
                }
                Body::Stderr
            }
            RecordType::EndRequest => {
                self.of_request(header)?;
                if length != 8 {
                    return Err(ProtocolError::BadEndRequest);
                }
                Body::End
            }
            RecordType::GetValuesResult => {
                header.management()?;
                if usize::from(length) > MAX_MANAGEMENT {
                    return Err(ProtocolError::TooLarge {
                        limit: MAX_MANAGEMENT,
                    });
                }
                if length == 0 {
                    return Ok(Some(Event::GetValuesResult(Vec::new())));
                }
                self.pieces = Some(Box::new(Pieces::Values(nv::Decoder::new(VALUES))));
                Body::Values
            }
            RecordType::UnknownType => {
                header.management()?;
                if length != 8 {
                    return Err(ProtocolError::BadUnknownType);
                }
                Body::UnknownType
            }
            RecordType::BeginRequest
            | RecordType::AbortRequest
            | RecordType::Params
            | RecordType::Stdin
            | RecordType::Data
            | RecordType::GetValues => {
                return Err(ProtocolError::UnexpectedType(header.kind));
            }
        };
        Ok(None)
    }

    /// Takes content of the open record; `input` is not empty.
    #[inline]
    fn content<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, ProtocolError> {
        Ok(match self.body {
            Body::Stdout => Some(Event::Stdout(self.frame.take(input))),
            Body::Stderr => Some(Event::Stderr(self.frame.take(input))),
            Body::End => self.frame.fixed(input).map(|body| {
                self.ended = true;
                Event::End {
                    app_status: u32::from_be_bytes([body[0], body[1], body[2], body[3]]),
                    protocol_status: ProtocolStatus::from(body[4]),
                }
            }),
            Body::UnknownType => self
                .frame
                .fixed(input)
                .map(|body| Event::UnknownType(body[0])),
            Body::Values => self.values(input)?,
            Body::Extension => self.extension(input),
        })
    }

    #[cold]
    fn extension(&mut self, input: &mut &[u8]) -> Option<Event<'static>> {
        let piece = self.frame.take(input);
        let Some(Pieces::Extension(extension)) = self.pieces.as_deref_mut() else {
            return None;
        };
        let have = usize::from(extension.len);
        // `open_extension` has checked that the content fits.
        extension.bytes[have..have + piece.len()].copy_from_slice(piece);
        extension.len += piece.len() as u8;
        (self.frame.content_left() == 0).then_some(Event::Extension(*extension))
    }

    #[cold]
    fn open_extension(&mut self, header: Header) -> Result<Option<Event<'static>>, ProtocolError> {
        header.management()?;
        if usize::from(header.content_len) > MAX_EXTENSION {
            return Err(ProtocolError::TooLarge {
                limit: MAX_EXTENSION,
            });
        }
        let extension = Extension::new(header.kind, &[]);
        if header.content_len == 0 {
            return Ok(Some(Event::Extension(extension)));
        }
        self.pieces = Some(Box::new(Pieces::Extension(extension)));
        self.body = Body::Extension;
        Ok(None)
    }

    #[cold]
    fn values(&mut self, input: &mut &[u8]) -> Result<Option<Event<'static>>, ProtocolError> {
        let piece = self.frame.take(input);
        let Some(Pieces::Values(values)) = self.pieces.as_deref_mut() else {
            return Ok(None);
        };
        values.feed(piece)?;
        if self.frame.content_left() > 0 {
            return Ok(None);
        }
        let pairs = values.finish()?;
        let owned = pairs
            .iter()
            .map(|(name, value)| (name.to_vec(), value.to_vec()));
        Ok(Some(Event::GetValuesResult(owned.collect())))
    }

    #[inline]
    fn of_request(&self, header: Header) -> Result<(), ProtocolError> {
        if header.id != self.id || header.id == 0 {
            return Err(ProtocolError::WrongRequest {
                expected: self.id,
                got: header.id,
            });
        }
        Ok(())
    }
}

const STDOUT: u8 = RecordType::Stdout as u8;
const END: u8 = RecordType::EndRequest as u8;

/// One management record's worth of pairs; two bytes is the shortest pair.
const VALUES: nv::Limits = nv::Limits {
    bytes: MAX_MANAGEMENT,
    pairs: MAX_MANAGEMENT / 2,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server;
    use alloc::vec;

    const END: Event<'static> = Event::End {
        app_status: 0,
        protocol_status: ProtocolStatus::RequestComplete,
    };

    fn record(kind: RecordType, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
        let header = Header {
            padding_len: padding,
            ..Header::new(kind, id, content.len() as u16)
        };
        let mut out = header.to_bytes().to_vec();
        out.extend_from_slice(content);
        out.resize(out.len() + usize::from(padding), 0xaa);
        out
    }

    fn end(id: u16) -> Vec<u8> {
        record(RecordType::EndRequest, id, &[0; 8], 0)
    }

    /// The result for the whole input, which must be the same for single bytes.
    fn error_of(records: &[Vec<u8>]) -> ProtocolError {
        let bytes = records.concat();
        let whole = run(&mut ResponseDecoder::new(1), &bytes, bytes.len());
        assert_eq!(whole, run(&mut ResponseDecoder::new(1), &bytes, 1));
        whole.expect_err("the decoder took it")
    }

    fn run(decoder: &mut ResponseDecoder, bytes: &[u8], step: usize) -> Result<(), ProtocolError> {
        for mut piece in bytes.chunks(step) {
            while decoder.next(&mut piece)?.is_some() {}
            assert!(piece.is_empty());
        }
        Ok(())
    }

    #[test]
    fn a_response_of_php_gives_its_pieces_and_its_end() {
        let mut bytes = record(RecordType::Stdout, 1, b"Status: 200\r\n\r\nhello", 4);
        bytes.extend(record(RecordType::Stderr, 1, b"PHP Notice", 6));
        bytes.extend(end(1));
        let mut input = &bytes[..];
        let mut decoder = ResponseDecoder::new(1);
        let stdout = Event::Stdout(b"Status: 200\r\n\r\nhello");
        assert_eq!(decoder.next(&mut input), Ok(Some(stdout)));
        assert!(decoder.at_record_boundary());
        assert_eq!(
            decoder.next(&mut input),
            Ok(Some(Event::Stderr(b"PHP Notice")))
        );
        assert!(!decoder.is_ended());
        assert_eq!(decoder.next(&mut input), Ok(Some(END)));
        assert!(decoder.is_ended() && decoder.at_record_boundary() && input.is_empty());
        assert_eq!(decoder.next(&mut input), Ok(None));
    }

    #[test]
    fn stderr_may_stand_between_any_records_of_stdout() {
        let bytes = [
            record(RecordType::Stderr, 1, b"e", 0),
            record(RecordType::Stdout, 1, b"o", 0),
            record(RecordType::Stderr, 1, b"e", 7),
            record(RecordType::Stdout, 1, b"", 0),
            record(RecordType::Stderr, 1, b"e", 0),
            record(RecordType::Stderr, 1, b"", 3),
            end(1),
        ]
        .concat();
        let mut decoder = ResponseDecoder::new(1);
        let mut input = &bytes[..];
        let mut events = Vec::new();
        while let Some(event) = decoder.next(&mut input).unwrap() {
            events.push(event);
        }
        let (o, e) = (Event::Stdout(b"o"), Event::Stderr(b"e"));
        assert_eq!(
            events,
            [
                e.clone(),
                o,
                e.clone(),
                Event::StdoutEnd,
                e,
                Event::StderrEnd,
                END
            ]
        );
    }

    #[test]
    fn what_is_no_fastcgi_is_refused_by_its_version() {
        let bytes = vec![b"HTTP/1.1 400 Bad Request\r\n".to_vec()];
        assert_eq!(error_of(&bytes), ProtocolError::BadVersion(b'H'));
    }

    #[test]
    fn records_of_another_request_are_refused() {
        for kind in [
            RecordType::Stdout,
            RecordType::Stderr,
            RecordType::EndRequest,
        ] {
            for got in [0, 2] {
                let wrong = ProtocolError::WrongRequest { expected: 1, got };
                assert_eq!(error_of(&[record(kind, got, &[0; 8], 0)]), wrong);
            }
        }
        for kind in [RecordType::GetValuesResult, RecordType::UnknownType] {
            let wrong = ProtocolError::WrongRequest {
                expected: 0,
                got: 1,
            };
            assert_eq!(error_of(&[record(kind, 1, &[0; 8], 0)]), wrong);
        }
    }

    #[test]
    fn without_a_request_only_management_records_are_taken() {
        let mut decoder = ResponseDecoder::new(0);
        let bytes = record(RecordType::Stdout, 0, b"x", 0);
        let wrong = ProtocolError::WrongRequest {
            expected: 0,
            got: 0,
        };
        assert_eq!(decoder.next(&mut &bytes[..]), Err(wrong));
    }

    #[test]
    fn types_that_only_clients_send_or_nobody_knows_are_refused() {
        for kind in [1, 2, 4, 5, 8, 9, 0, 12, 255] {
            let mut bytes = record(RecordType::Stdout, 1, b"", 0);
            bytes[1] = kind;
            assert_eq!(error_of(&[bytes]), ProtocolError::UnexpectedType(kind));
        }
    }

    #[test]
    fn a_stream_ends_once() {
        for kind in [RecordType::Stdout, RecordType::Stderr] {
            for content in [&b""[..], b"more"] {
                let records = [record(kind, 1, b"", 0), record(kind, 1, content, 0)];
                let error = ProtocolError::AfterStreamEnd(kind as u8);
                assert_eq!(error_of(&records), error);
            }
        }
    }

    #[test]
    fn fixed_bodies_have_their_length() {
        for length in [0, 7, 9, 16] {
            let content = vec![0; length];
            let bytes = record(RecordType::EndRequest, 1, &content, 0);
            assert_eq!(error_of(&[bytes]), ProtocolError::BadEndRequest);
            let bytes = record(RecordType::UnknownType, 0, &content, 0);
            assert_eq!(error_of(&[bytes]), ProtocolError::BadUnknownType);
        }
    }

    #[test]
    fn nothing_may_follow_the_end() {
        for late in [
            record(RecordType::Stdout, 1, b"late", 0),
            end(1),
            end(2),
            record(RecordType::GetValuesResult, 0, b"", 0),
            vec![1],
        ] {
            assert_eq!(error_of(&[end(1), late]), ProtocolError::AfterEnd);
        }
    }

    fn extension(kind: u8, id: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = record(RecordType::UnknownType, id, content, 3);
        bytes[1] = kind;
        bytes
    }

    #[test]
    fn extensions_are_taken_where_they_are_allowed_also_after_the_end() {
        let content: Vec<u8> = (0..MAX_EXTENSION as u8).collect();
        let bytes = [
            extension(65, 0, b""),
            end(1),
            extension(64, 0, &content),
            extension(255, 0, b"x"),
        ]
        .concat();
        for step in [1, 7, bytes.len()] {
            let mut decoder = ResponseDecoder::new(1).allow_extensions();
            let mut seen = Vec::new();
            for mut piece in bytes.chunks(step) {
                while let Some(event) = decoder.next(&mut piece).unwrap() {
                    if let Event::Extension(extension) = event {
                        seen.push((extension.kind, extension.content().to_vec()));
                    }
                }
            }
            let expected = [(65, vec![]), (64, content.clone()), (255, b"x".to_vec())];
            assert_eq!(seen, expected);
            assert!(decoder.is_ended() && decoder.at_record_boundary());
        }
    }

    #[test]
    fn an_extension_is_refused_that_is_too_long_of_a_request_or_not_agreed_on() {
        let error_of = |bytes: &[u8]| {
            let mut decoder = ResponseDecoder::new(1).allow_extensions();
            let whole = run(&mut decoder, bytes, bytes.len());
            assert_eq!(
                whole,
                run(&mut ResponseDecoder::new(1).allow_extensions(), bytes, 1)
            );
            whole.expect_err("the decoder took it")
        };
        let limit = MAX_EXTENSION;
        let long = extension(64, 0, &[0; MAX_EXTENSION + 1]);
        assert_eq!(error_of(&long), ProtocolError::TooLarge { limit });
        let wrong = ProtocolError::WrongRequest {
            expected: 0,
            got: 1,
        };
        assert_eq!(error_of(&extension(64, 1, b"")), wrong);
        let unknown = extension(0, 0, b"");
        assert_eq!(error_of(&unknown), ProtocolError::UnexpectedType(0));
        let late = [end(1), record(RecordType::Stderr, 1, b"late", 0)].concat();
        assert_eq!(error_of(&late), ProtocolError::AfterEnd);
    }

    #[test]
    fn an_error_is_for_good() {
        let mut decoder = ResponseDecoder::new(1);
        let mut bad = &[9; 8][..];
        assert_eq!(decoder.next(&mut bad), Err(ProtocolError::BadVersion(9)));
        let good = end(1);
        assert_eq!(
            decoder.next(&mut &good[..]),
            Err(ProtocolError::BadVersion(9))
        );
    }

    #[test]
    fn the_next_request_may_begin_before_the_last_padding_has_come() {
        let bytes = record(RecordType::EndRequest, 1, &[0; 8], 8);
        let (early, late) = bytes.split_at(19);
        let mut decoder = ResponseDecoder::new(1);
        let mut input = early;
        assert_eq!(decoder.next(&mut input), Ok(Some(END)));
        assert!(!decoder.at_record_boundary());
        decoder.reset(2);
        let mut rest = late.to_vec();
        rest.extend(end(2));
        assert_eq!(decoder.next(&mut &rest[..]), Ok(Some(END)));
        // A decoder in any other state starts again.
        let mut decoder = ResponseDecoder::new(1);
        let open = record(RecordType::Stdout, 1, b"abcdef", 2);
        decoder.next(&mut &open[..10]).unwrap();
        decoder.reset(2);
        assert_eq!(decoder.next(&mut &end(2)[..]), Ok(Some(END)));
    }

    #[test]
    fn status_and_exit_code_are_given_as_sent() {
        let body = [1, 2, 3, 4, 2, 9, 9, 9];
        let bytes = record(RecordType::EndRequest, 1, &body, 0);
        let event = ResponseDecoder::new(1).next(&mut &bytes[..]);
        let overloaded = Event::End {
            app_status: 0x0102_0304,
            protocol_status: ProtocolStatus::Overloaded,
        };
        assert_eq!(event, Ok(Some(overloaded)));
    }

    #[test]
    fn management_answers_are_read_and_limited() {
        let mut bytes = Vec::new();
        server::get_values_result(&mut bytes, &[(b"FCGI_MPXS_CONNS", b"0")]);
        server::get_values_result(&mut bytes, &[]);
        server::unknown_type(&mut bytes, 77);
        let mut input = &bytes[..];
        let mut decoder = ResponseDecoder::new(0);
        let values = vec![(b"FCGI_MPXS_CONNS".to_vec(), b"0".to_vec())];
        assert_eq!(
            decoder.next(&mut input),
            Ok(Some(Event::GetValuesResult(values)))
        );
        assert_eq!(
            decoder.next(&mut input),
            Ok(Some(Event::GetValuesResult(vec![])))
        );
        assert_eq!(decoder.next(&mut input), Ok(Some(Event::UnknownType(77))));
        assert_eq!(decoder.held(), 0);

        let large = record(
            RecordType::GetValuesResult,
            0,
            &vec![0; MAX_MANAGEMENT + 1],
            0,
        );
        let limit = MAX_MANAGEMENT;
        assert_eq!(error_of(&[large]), ProtocolError::TooLarge { limit });
        let cut = record(RecordType::GetValuesResult, 0, &[3, 1, b'a'], 0);
        assert_eq!(error_of(&[cut]), ProtocolError::TruncatedPair);
    }
}
