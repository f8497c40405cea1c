//! The position of a decoder in the sequence of records: header, content, padding, in pieces of any size.

use crate::ProtocolError;
use crate::record::{Header, VERSION};

/// Cuts input into headers, content and padding.
///
/// Stores at most the seven bytes of an incomplete header or body of fixed length.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    /// The first bytes of a header or fixed body that is not complete yet.
    unit: [u8; 8],
    unit_len: u8,
    content_left: u16,
    padding_left: u8,
}

impl Frame {
    /// The frame of a connection on which only this much padding is missing.
    pub(crate) fn after_padding(padding_left: u8) -> Self {
        Self {
            padding_left,
            ..Self::default()
        }
    }

    /// Content of the open record that has not been taken yet, in bytes.
    #[inline]
    pub(crate) fn content_left(&self) -> u16 {
        self.content_left
    }

    /// Padding that has not come yet, in bytes.
    #[inline]
    pub(crate) fn padding_left(&self) -> u8 {
        self.padding_left
    }

    /// Whether all records that have begun were taken completely, including padding.
    #[inline]
    pub(crate) fn at_boundary(&self) -> bool {
        self.unit_len == 0 && self.content_left == 0 && self.padding_left == 0
    }

    /// Takes the next header and opens its record; `None` if it is not whole yet.
    #[inline]
    pub(crate) fn header(&mut self, input: &mut &[u8]) -> Result<Option<Header>, ProtocolError> {
        let Some(bytes) = self.unit(input) else {
            return Ok(None);
        };
        let header = Header::from_bytes(bytes);
        if header.version != VERSION {
            return Err(ProtocolError::BadVersion(header.version));
        }
        self.content_left = header.content_len;
        self.padding_left = header.padding_len;
        Ok(Some(header))
    }

    /// Takes as much of the open record's content as there is.
    #[inline]
    pub(crate) fn take<'i>(&mut self, input: &mut &'i [u8]) -> &'i [u8] {
        let length = input.len().min(usize::from(self.content_left));
        let (piece, rest) = input.split_at(length);
        *input = rest;
        self.content_left -= length as u16; // at most content_left
        piece
    }

    /// Takes a content of eight bytes when it is complete. The caller has checked the length.
    #[inline]
    pub(crate) fn fixed(&mut self, input: &mut &[u8]) -> Option<[u8; 8]> {
        let body = self.unit(input)?;
        self.content_left = 0;
        Some(body)
    }

    /// Skips the available padding after the content was taken.
    #[inline]
    pub(crate) fn skip_padding(&mut self, input: &mut &[u8]) {
        if self.padding_left > 0 && self.content_left == 0 {
            let length = input.len().min(usize::from(self.padding_left));
            *input = &input[length..];
            self.padding_left -= length as u8; // at most padding_left
        }
    }

    /// Eight bytes, directly from the input if they are complete there, which is nearly always the case.
    #[inline]
    fn unit(&mut self, input: &mut &[u8]) -> Option<[u8; 8]> {
        if self.unit_len == 0
            && let Some((unit, rest)) = input.split_first_chunk::<8>()
        {
            *input = rest;
            return Some(*unit);
        }
        self.unit_in_pieces(input)
    }

    #[cold]
    fn unit_in_pieces(&mut self, input: &mut &[u8]) -> Option<[u8; 8]> {
        let have = usize::from(self.unit_len);
        let (piece, rest) = input.split_at(input.len().min(8 - have));
        self.unit[have..have + piece.len()].copy_from_slice(piece);
        *input = rest;
        self.unit_len += piece.len() as u8; // at most 8
        if self.unit_len < 8 {
            return None;
        }
        self.unit_len = 0;
        Some(self.unit)
    }
}
