//! Writes heads and bodies.

use alloc::vec::Vec;
use core::fmt;

use crate::head::is_token;

/// A name or value that would change the message: a name that is empty or not a token, or a value with a control
/// character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidField;

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name is no token, or its value has a control character")
    }
}

impl core::error::Error for InvalidField {}

/// A body that is not as long as its head says. The connection must be closed, so that the peer sees a body that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongLength {
    /// The body is shorter by this many bytes.
    Short(u64),
    /// The body is longer.
    Long,
}

impl fmt::Display for WrongLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(missing) => write!(
                f,
                "the body is {missing} bytes shorter than its Content-Length"
            ),
            Self::Long => f.write_str("the body is longer than its Content-Length"),
        }
    }
}

impl core::error::Error for WrongLength {}

/// Whether a name and a value can be a field of a message (RFC 9110 §5.1, §5.5).
///
/// # Errors
///
/// They cannot.
pub fn check_field(name: &[u8], value: &[u8]) -> Result<(), InvalidField> {
    match !name.is_empty() && name.iter().copied().all(is_token) {
        true => check_value(value),
        false => Err(InvalidField),
    }
}

/// The same of a field whose name is known to be a token.
///
/// # Errors
///
/// As [`check_field`].
pub fn check_value(value: &[u8]) -> Result<(), InvalidField> {
    let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    // No early return, so that the compiler can check several bytes in one step.
    match value.iter().fold(true, |is, byte| is & is_text(byte)) {
        true => Ok(()),
        false => Err(InvalidField),
    }
}

/// Writes the lines of a head, after the first one.
#[derive(Debug)]
#[must_use = "a head ends with `finish`"]
pub struct HeadEncoder<'o> {
    pub(crate) out: &'o mut Vec<u8>,
}

impl HeadEncoder<'_> {
    /// Appends a field.
    ///
    /// # Errors
    ///
    /// Nothing is written of a field that would change the message (RFC 9110 §5.5).
    pub fn field(&mut self, name: impl AsRef<[u8]>, value: &[u8]) -> Result<(), InvalidField> {
        let name = name.as_ref();
        check_field(name, value)?;
        line(self.out, name, value);
        Ok(())
    }

    /// Appends a field whose name and value have been checked before, by another encoder of HTTP for example.
    pub fn checked_field(&mut self, name: impl AsRef<[u8]>, value: &[u8]) {
        line(self.out, name.as_ref(), value);
    }

    /// The buffer, for appending complete lines, each with its end.
    pub fn lines(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Appends the empty line and what `framing` adds before it.
    pub fn finish(self, framing: Framing) -> BodyEncoder {
        match framing.connection {
            Connection::Unsaid => {}
            Connection::Close => line(self.out, b"Connection", b"close"),
            Connection::KeepAlive => line(self.out, b"Connection", b"keep-alive"),
        }
        if let Some(length) = framing.length {
            line(self.out, b"Content-Length", Decimal::new(length).as_bytes());
        }
        if framing.body == Coding::Chunked {
            line(self.out, b"Transfer-Encoding", b"chunked");
        }
        self.out.extend_from_slice(b"\r\n");
        BodyEncoder {
            coding: framing.body,
            is_persistent: framing.is_persistent,
        }
    }
}

/// What a head says about its body and the connection. For a response: [`server::framing`](crate::server::framing);
/// for a request: [`client::framing`](crate::client::framing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    pub(crate) body: Coding,
    /// Said in Content-Length; also where no body follows.
    pub(crate) length: Option<u64>,
    pub(crate) connection: Connection,
    pub(crate) is_persistent: bool,
}

impl Framing {
    /// The Content-Length that is written.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// For a caller that writes that Content-Length itself.
    #[must_use]
    pub fn with_length_said(self) -> Framing {
        Framing {
            length: None,
            ..self
        }
    }
}

/// How the end of a body is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// So many bytes are to come. Zero: nothing, or no more.
    Length(u64),
    Chunked,
    UntilClose,
    /// The last chunk has been written.
    Ended,
}

/// What the Connection field says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    Unsaid,
    Close,
    KeepAlive,
}

/// Writes a body, in the framing that its head has announced.
#[derive(Debug)]
pub struct BodyEncoder {
    coding: Coding,
    is_persistent: bool,
}

impl BodyEncoder {
    /// Whether the head promised a body, or more of one. What a caller has for a HEAD request or a 304 is dropped.
    #[must_use]
    pub fn wants_data(&self) -> bool {
        !matches!(self.coding, Coding::Length(0) | Coding::Ended)
    }

    /// Whether the connection can be used again once the body is whole.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// What goes before and after `length` bytes of the body that are sent without a copy. Nothing may be sent for a
    /// length of zero, which would be the last chunk: then both are empty.
    ///
    /// # Errors
    ///
    /// The bytes are more than the head has told.
    pub fn frame(&mut self, length: u64) -> Result<(ChunkSize, &'static [u8]), WrongLength> {
        match &mut self.coding {
            _ if length == 0 => Ok((ChunkSize::NONE, b"")),
            Coding::Length(left) => {
                *left = left.checked_sub(length).ok_or(WrongLength::Long)?;
                Ok((ChunkSize::NONE, b""))
            }
            Coding::Chunked => Ok((ChunkSize::new(length), b"\r\n")),
            Coding::UntilClose => Ok((ChunkSize::NONE, b"")),
            Coding::Ended => Err(WrongLength::Long),
        }
    }

    /// Appends bytes of the body.
    ///
    /// # Errors
    ///
    /// They are more than the head has told; nothing is appended.
    pub fn data(&mut self, out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), WrongLength> {
        let (before, behind) = self.frame(bytes.len() as u64)?;
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(behind);
        Ok(())
    }

    /// Appends what ends the body.
    ///
    /// # Errors
    ///
    /// The body is shorter than the head has told.
    pub fn end(&mut self, out: &mut Vec<u8>) -> Result<(), WrongLength> {
        match core::mem::replace(&mut self.coding, Coding::Ended) {
            Coding::Length(left @ 1..) => return Err(WrongLength::Short(left)),
            Coding::Chunked => out.extend_from_slice(LAST_CHUNK),
            Coding::Length(0) | Coding::UntilClose | Coding::Ended => {}
        }
        Ok(())
    }

    /// Appends the end of the body. Trailers are sent only if the body is sent in chunks. The caller has checked their
    /// names and values, as for [`HeadEncoder::checked_field`].
    ///
    /// # Errors
    ///
    /// The body is shorter than the head has told.
    pub fn end_with(
        &mut self,
        out: &mut Vec<u8>,
        trailers: impl IntoIterator<Item = (impl AsRef<[u8]>, impl AsRef<[u8]>)>,
    ) -> Result<(), WrongLength> {
        if self.coding != Coding::Chunked {
            return self.end(out);
        }
        self.coding = Coding::Ended;
        out.extend_from_slice(b"0\r\n");
        for (name, value) in trailers {
            line(out, name.as_ref(), value.as_ref());
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// The line in front of a chunk's bytes (RFC 9112 §7.1), or nothing.
#[derive(Clone, Copy, Debug)]
pub struct ChunkSize {
    /// 16 digits and the end of the line at most; the text is at the end.
    bytes: [u8; 18],
    start: u8,
}

impl ChunkSize {
    const NONE: ChunkSize = ChunkSize {
        bytes: [0; 18],
        start: 18,
    };

    fn new(mut length: u64) -> ChunkSize {
        let mut bytes = *b"................\r\n";
        let mut start = 16;
        while length > 0 {
            start -= 1;
            bytes[start] = b"0123456789abcdef"[(length & 15) as usize];
            length >>= 4;
        }
        ChunkSize {
            bytes,
            start: start as u8,
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }
}

/// A decimal number as text.
pub(crate) struct Decimal {
    bytes: [u8; 20],
    start: usize,
}

impl Decimal {
    pub(crate) fn new(mut number: u64) -> Decimal {
        let mut bytes = [b'0'; 20];
        let mut start = 20;
        loop {
            start -= 1;
            bytes[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Decimal { bytes, start };
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Ends a body in chunks that has no trailers.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are() {
        for number in [0, 1, 9, 10, 255, 4096, u64::MAX] {
            let text = alloc::format!("{number}");
            assert_eq!(Decimal::new(number).as_bytes(), text.as_bytes());
            if number > 0 {
                let text = alloc::format!("{number:x}\r\n");
                assert_eq!(ChunkSize::new(number).as_bytes(), text.as_bytes());
            }
        }
        assert!(ChunkSize::NONE.as_bytes().is_empty());
    }

    #[test]
    fn a_field_cannot_begin_another_line() {
        let mut out = Vec::new();
        let mut head = HeadEncoder { out: &mut out };
        for (name, value) in [
            ("", &b"v"[..]),
            ("a b", b"v"),
            ("a:", b"v"),
            ("a", b"v\r\nb: c"),
            ("a", b"v\n"),
            ("a", b"\0"),
            ("a", b"\x7f"),
        ] {
            assert_eq!(head.field(name, value), Err(InvalidField), "{name:?}");
        }
        assert_eq!(head.field("a", "tab\tand \u{fc}".as_bytes()), Ok(()));
        assert_eq!(out, "a: tab\tand \u{fc}\r\n".as_bytes());
    }
}
