//! Reads bodies: by length, in chunks, or to the end of the connection (RFC 9112 §6 and §7).

use alloc::{boxed::Box, vec::Vec};

use crate::{BodyLength, Error, Limits, ParsedFields, head::is_token};

/// A piece of a body.
pub(crate) enum Piece<'i> {
    /// Bytes of it, in the input.
    Data(&'i [u8]),
    /// The body is complete.
    End,
}

/// How much of a body has been read.
#[derive(Debug)]
pub(crate) enum BodyDecoder {
    /// So many bytes are to come.
    Length(u64),
    Chunked(Box<Chunked>),
    UntilClose,
}

impl BodyDecoder {
    pub(crate) fn new(length: BodyLength, limits: &Limits) -> BodyDecoder {
        match length {
            BodyLength::Known(length) => BodyDecoder::Length(length),
            BodyLength::UntilClose => BodyDecoder::UntilClose,
            BodyLength::Chunked => BodyDecoder::Chunked(Box::new(Chunked {
                at: At::Length,
                left: 0,
                digits: 0,
                extra_left: limits.chunk_extensions,
                trailers: Vec::new(),
                max_trailers: limits.head(),
                max_fields: limits.fields as usize,
                fields: ParsedFields::default(),
            })),
        }
    }

    /// Takes the next piece from the input; None: the input is used up and more is needed.
    pub(crate) fn next<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Piece<'i>>, Error> {
        match self {
            BodyDecoder::Length(0) => Ok(Some(Piece::End)),
            BodyDecoder::Length(left) => Ok(take(input, left).map(Piece::Data)),
            BodyDecoder::UntilClose => {
                let mut all = u64::MAX;
                Ok(take(input, &mut all).map(Piece::Data))
            }
            BodyDecoder::Chunked(chunked) => chunked.next(input),
        }
    }

    /// The fields after the last chunk.
    pub(crate) fn trailers(&self) -> Option<&ParsedFields> {
        match self {
            BodyDecoder::Chunked(chunked) => Some(&chunked.fields),
            _ => None,
        }
    }
}

/// Takes as many bytes as there are, `left` at most.
fn take<'i>(input: &mut &'i [u8], left: &mut u64) -> Option<&'i [u8]> {
    if input.is_empty() {
        return None;
    }
    let count = (input.len() as u64).min(*left) as usize;
    *left -= count as u64;
    let (taken, rest) = input.split_at(count);
    *input = rest;
    Some(taken)
}

/// Where the next byte of a body in chunks is.
#[derive(Debug)]
pub(crate) struct Chunked {
    at: At,
    /// Bytes of the chunk that are to come.
    left: u64,
    /// Digits of its length so far.
    digits: u8,
    /// How many more bytes the lines with lengths may have, apart from the digits of the lengths.
    extra_left: u32,
    /// The lines of the trailers so far.
    trailers: Vec<u8>,
    max_trailers: usize,
    max_fields: usize,
    fields: ParsedFields,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Length,
    /// White space after the digits.
    Space,
    /// Extensions, outside of quotes.
    Extension,
    Quoted,
    /// Behind a backslash in quotes.
    Escaped,
    LengthLf,
    Data,
    DataCr,
    DataLf,
    Trailers,
    Done,
}

impl Chunked {
    fn next<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Piece<'i>>, Error> {
        loop {
            match self.at {
                At::Done => return Ok(Some(Piece::End)),
                At::Data => {
                    let Some(data) = take(input, &mut self.left) else {
                        return Ok(None);
                    };
                    if self.left == 0 {
                        self.at = At::DataCr;
                    }
                    return Ok(Some(Piece::Data(data)));
                }
                At::Trailers => match self.trailers(input)? {
                    true => self.at = At::Done,
                    false => return Ok(None),
                },
                at => {
                    let Some((&byte, rest)) = input.split_first() else {
                        return Ok(None);
                    };
                    *input = rest;
                    self.at = self.step(at, byte)?;
                }
            }
        }
    }

    /// A byte of a line between two chunks.
    fn step(&mut self, at: At, byte: u8) -> Result<At, Error> {
        match (at, byte) {
            (At::Length, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                if self.left >> 60 != 0 {
                    return Err(Error::ChunkLength);
                }
                self.left = self.left << 4 | u64::from(digit);
                match self.digits < DIGITS {
                    true => self.digits += 1,
                    // Leading zeros, since the number still fits.
                    false => self.extra()?,
                }
                Ok(At::Length)
            }
            (At::Length, _) if self.digits == 0 => Err(Error::ChunkLength),
            (At::Length | At::Space | At::Extension, b'\r') => Ok(At::LengthLf),
            (
                At::Length | At::Space | At::Extension | At::Quoted | At::Escaped | At::DataCr,
                b'\n',
            ) => Err(Error::BareLf),
            (At::Length, b' ' | b'\t' | b';')
            | (At::Space | At::Extension | At::Quoted | At::Escaped, _) => {
                self.extra()?;
                extension(at, byte)
            }
            (At::Length, _) => Err(Error::ChunkLength),
            (At::LengthLf, b'\n') => {
                self.digits = 0;
                Ok(match self.left {
                    0 => At::Trailers,
                    _ => At::Data,
                })
            }
            (At::DataCr, b'\r') => Ok(At::DataLf),
            (At::DataLf, b'\n') => Ok(At::Length),
            (At::LengthLf | At::DataLf, _) => Err(Error::BareCr),
            (At::DataCr | At::Data | At::Trailers | At::Done, _) => Err(Error::ChunkEnd),
        }
    }

    fn extra(&mut self) -> Result<(), Error> {
        self.extra_left = self
            .extra_left
            .checked_sub(1)
            .ok_or(Error::ChunkExtensions)?;
        Ok(())
    }

    /// Takes lines of trailers; whether all are here.
    fn trailers(&mut self, input: &mut &[u8]) -> Result<bool, Error> {
        while !input.is_empty() {
            let end = memchr::memchr(b'\n', input).map_or(input.len(), |lf| lf + 1);
            let (line, rest) = input.split_at(end);
            *input = rest;
            if self.trailers.len() + line.len() > self.max_trailers {
                return Err(Error::TrailersTooLarge);
            }
            self.trailers.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                continue;
            }
            if !self.trailers.ends_with(b"\r\n") {
                return Err(Error::BareLf);
            }
            if self.trailers == b"\r\n" || self.trailers.ends_with(b"\r\n\r\n") {
                let lines = core::mem::take(&mut self.trailers);
                if lines.len() > 2 {
                    self.fields.read(&lines, 0, self.max_fields)?;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A byte between the digits of a length and the end of their line (RFC 9112 §7.1.1). Bytes that another program could take for
/// that end, or for the end of the text, have no place there.
fn extension(at: At, byte: u8) -> Result<At, Error> {
    let is_text = matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
    match (at, byte) {
        (At::Quoted, b'"') => Ok(At::Extension),
        (At::Quoted, b'\\') => Ok(At::Escaped),
        (At::Quoted | At::Escaped, _) if is_text => Ok(At::Quoted),
        (At::Length | At::Space, b' ' | b'\t') => Ok(At::Space),
        (At::Length | At::Space, b';') => Ok(At::Extension),
        (At::Extension, b'"') => Ok(At::Quoted),
        (At::Extension, b' ' | b'\t' | b'=' | b';') => Ok(At::Extension),
        (At::Extension, byte) if is_token(byte) => Ok(At::Extension),
        _ => Err(Error::ChunkExtension),
    }
}

/// Digits of the largest length; zeros before them count as extensions do.
const DIGITS: u8 = 16;
