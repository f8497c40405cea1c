//! Reads what an application sends back for one request.

use alloc::vec::Vec;

use crate::ProtocolError;
use crate::gather::Gather;
use crate::nv;
use crate::record::{Header, ProtocolStatus, RecordType, VERSION};

/// The longest management record (`FCGI_GET_VALUES_RESULT`) that is taken from an application, in bytes of content.
/// The three variables of the specification take about 60.
pub const MAX_MANAGEMENT: usize = 4096;

/// What an application said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// A piece of the response: header block, blank line, body, as of a CGI program. Never empty. Pieces do not mean
    /// anything; one record may give several.
    Stdout(&'i [u8]),
    /// The response is complete. PHP leaves it out and goes on to [`End`](Self::End).
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
}

/// Decodes the records of one request at a time on one connection, in pieces of any size.
///
/// Payloads are slices of the input. What is held is at most eight bytes of a header or fixed body, and a management
/// record of at most [`MAX_MANAGEMENT`] bytes.
///
/// An application is trusted with nothing: a record of another request, of a type that only clients send, out of
/// order or of a wrong length is an error, and so is any byte after the end.
#[derive(Clone, Debug)]
pub struct ResponseDecoder {
    id: u16,
    content_left: u16,
    padding_left: u8,
    body: Body,
    stdout_ended: bool,
    stderr_ended: bool,
    ended: bool,
    failed: Option<ProtocolError>,
    unit: Gather,
    values: nv::Decoder,
}

/// What the content that is being read belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Stdout,
    Stderr,
    End,
    UnknownType,
    Values,
}

impl ResponseDecoder {
    /// A decoder for the answer to request `id` on a connection from which nothing is left to read.
    ///
    /// With `id` 0, only answers to management records are accepted.
    #[must_use]
    pub fn new(id: u16) -> Self {
        Self {
            id,
            content_left: 0,
            padding_left: 0,
            body: Body::Stdout,
            stdout_ended: false,
            stderr_ended: false,
            ended: false,
            failed: None,
            unit: Gather::default(),
            values: nv::Decoder::new(VALUES),
        }
    }

    /// Goes on to the next request on the same connection, after [`Event::End`]. Padding of the last record that has
    /// not come yet is still skipped.
    ///
    /// For another connection, make a new decoder (which is as cheap).
    pub fn reset(&mut self, id: u16) {
        let padding_left = if self.ended && self.failed.is_none() {
            self.padding_left
        } else {
            0
        };
        *self = Self {
            padding_left,
            ..Self::new(id)
        };
    }

    /// Takes bytes from the front of `input` and gives the next event; `None` once all of the input is taken and
    /// more is needed.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`] where the application breaks the protocol; the same again from then on.
    #[inline]
    pub fn next<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let event = self.advance(input);
        if let Err(error) = event {
            self.failed = Some(error);
        }
        event
    }

    /// Whether no record is open: all of its content and padding has been taken. A connection can be kept only if
    /// this holds after [`Event::End`] or the rest is padding (see [`reset`](Self::reset)).
    #[must_use]
    pub fn at_record_boundary(&self) -> bool {
        self.content_left == 0 && self.padding_left == 0 && self.unit.is_empty()
    }

    /// Whether [`Event::End`] has been given.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    #[inline]
    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, ProtocolError> {
        loop {
            if self.content_left > 0 {
                if input.is_empty() {
                    return Ok(None);
                }
                let event = self.content(input)?;
                self.skip_padding(input);
                if event.is_some() {
                    return Ok(event);
                }
                continue;
            }
            self.skip_padding(input);
            if input.is_empty() {
                return Ok(None);
            }
            if self.ended {
                return Err(ProtocolError::AfterEnd);
            }
            let Some(bytes) = self.unit.take(input) else {
                return Ok(None);
            };
            if let Some(event) = self.open(Header::from_bytes(bytes))? {
                self.skip_padding(input);
                return Ok(Some(event));
            }
        }
    }

    /// Judges a header; an event where the record has no content to wait for.
    #[inline]
    fn open(&mut self, header: Header) -> Result<Option<Event<'static>>, ProtocolError> {
        if header.version != VERSION {
            return Err(ProtocolError::BadVersion(header.version));
        }
        let kind = RecordType::try_from(header.kind).map_err(ProtocolError::UnexpectedType)?;
        let length = header.content_len;
        let body = match kind {
            RecordType::Stdout => {
                self.of_request(header)?;
                if self.stdout_ended {
                    return Err(ProtocolError::AfterStreamEnd(header.kind));
                }
                Body::Stdout
            }
            RecordType::Stderr => {
                self.of_request(header)?;
                if self.stderr_ended {
                    return Err(ProtocolError::AfterStreamEnd(header.kind));
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
                management(header)?;
                if usize::from(length) > MAX_MANAGEMENT {
                    return Err(ProtocolError::TooLarge {
                        limit: MAX_MANAGEMENT,
                    });
                }
                Body::Values
            }
            RecordType::UnknownType => {
                management(header)?;
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
        self.body = body;
        self.content_left = length;
        self.padding_left = header.padding_len;
        if length > 0 {
            return Ok(None);
        }
        Ok(match body {
            Body::Stdout => {
                self.stdout_ended = true;
                Some(Event::StdoutEnd)
            }
            Body::Stderr => {
                self.stderr_ended = true;
                Some(Event::StderrEnd)
            }
            Body::Values => Some(Event::GetValuesResult(Vec::new())),
            Body::End | Body::UnknownType => None,
        })
    }

    /// Takes content of the open record; `input` is not empty.
    #[inline]
    fn content<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, ProtocolError> {
        match self.body {
            Body::Stdout => Ok(Some(Event::Stdout(self.take(input)))),
            Body::Stderr => Ok(Some(Event::Stderr(self.take(input)))),
            Body::End => Ok(self.unit.take(input).map(|body| {
                self.content_left = 0;
                self.ended = true;
                Event::End {
                    app_status: u32::from_be_bytes([body[0], body[1], body[2], body[3]]),
                    protocol_status: ProtocolStatus::from(body[4]),
                }
            })),
            Body::UnknownType => Ok(self.unit.take(input).map(|body| {
                self.content_left = 0;
                Event::UnknownType(body[0])
            })),
            Body::Values => {
                let piece = self.take(input);
                self.values.feed(piece)?;
                if self.content_left > 0 {
                    return Ok(None);
                }
                let pairs = self.values.finish()?;
                let owned = pairs
                    .iter()
                    .map(|(name, value)| (name.to_vec(), value.to_vec()));
                Ok(Some(Event::GetValuesResult(owned.collect())))
            }
        }
    }

    /// Takes as much of the open record's content as there is.
    #[inline]
    fn take<'i>(&mut self, input: &mut &'i [u8]) -> &'i [u8] {
        let length = input.len().min(usize::from(self.content_left));
        let (piece, rest) = input.split_at(length);
        *input = rest;
        self.content_left -= length as u16; // at most content_left
        piece
    }

    /// Skips the padding that is there, once the content is taken.
    #[inline]
    fn skip_padding(&mut self, input: &mut &[u8]) {
        if self.padding_left > 0 && self.content_left == 0 {
            let length = input.len().min(usize::from(self.padding_left));
            *input = &input[length..];
            self.padding_left -= length as u8; // at most padding_left
        }
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

fn management(header: Header) -> Result<(), ProtocolError> {
    if header.id != 0 {
        return Err(ProtocolError::WrongRequest {
            expected: 0,
            got: header.id,
        });
    }
    Ok(())
}

/// One management record's worth of pairs; two bytes is the shortest pair.
const VALUES: nv::Limits = nv::Limits {
    bytes: MAX_MANAGEMENT,
    pairs: MAX_MANAGEMENT / 2,
};
