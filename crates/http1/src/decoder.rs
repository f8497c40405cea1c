//! Shared by both sides: the position of a connection in its messages, and how the end of a head is found.

use crate::{
    BodyLength, Error, Limits, ParsedFields,
    body::{BodyDecoder, Piece},
};

/// What has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// A head, which is now in the given record.
    Head,
    /// Bytes of the body, without their framing.
    Data(&'i [u8]),
    /// The message is whole.
    End,
}

/// The head of a side, as its decoder reads it.
pub(crate) trait ReadHead {
    /// Looks at a first line whose head is not whole.
    fn first_line(line: &[u8]) -> Result<(), Error>;

    /// Reads the head that these bytes begin with, if it is whole and written as nearly all are. Returns where the head
    /// ends. None: the end must be found first, and then [`Self::read`] reads the head.
    fn read_plain(&mut self, bytes: &[u8], limits: &Limits) -> Option<usize>;

    /// Reads a whole head, from its first line to the empty one.
    fn read(&mut self, head: &[u8], limits: &Limits) -> Result<(), Error>;

    /// Which body follows the head that was read; None: another head does.
    fn body(&mut self) -> Result<Option<BodyLength>, Error>;
}

/// Where a connection is.
#[derive(Debug)]
pub(crate) struct Decoder {
    limits: Limits,
    state: State,
}

#[derive(Debug)]
enum State {
    Head(Partial),
    Body(BodyDecoder),
    /// Behind a message.
    Done(BodyDecoder),
    Failed(Error),
}

/// What is known about an incomplete head.
#[derive(Clone, Copy, Debug, Default)]
struct Partial {
    /// Bytes in which the end has been looked for.
    searched: u32,
    /// Bytes of empty lines before it.
    skipped: u32,
    /// The first line has been looked at.
    is_begun: bool,
}

impl Decoder {
    pub(crate) fn new(limits: Limits) -> Decoder {
        Decoder {
            limits,
            state: State::Head(Partial::default()),
        }
    }

    /// Reads on; a head into `head`.
    pub(crate) fn next<'i>(
        &mut self,
        input: &mut &'i [u8],
        head: &mut impl ReadHead,
    ) -> Result<Option<Event<'i>>, Error> {
        let result = match &mut self.state {
            State::Head(partial) => match partial.read(input, &self.limits, head) {
                Ok(false) => Ok(None),
                Ok(true) => head.body().map(|body| {
                    self.state = match body {
                        Some(body) => State::Body(BodyDecoder::new(body, &self.limits)),
                        None => State::Head(Partial::default()),
                    };
                    Some(Event::Head)
                }),
                Err(error) => Err(error),
            },
            State::Body(body) => match body.next(input) {
                Ok(Some(Piece::Data(data))) => Ok(Some(Event::Data(data))),
                Ok(Some(Piece::End)) => {
                    let end = core::mem::replace(body, BodyDecoder::Length(0));
                    self.state = State::Done(end);
                    Ok(Some(Event::End))
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            },
            State::Done(_) => Ok(None),
            State::Failed(error) => Err(*error),
        };
        if let Err(error) = result {
            self.state = State::Failed(error);
        }
        result
    }

    /// The peer sends nothing more. Some: that is the end of the message.
    pub(crate) fn end(&mut self) -> Result<Option<Event<'static>>, Error> {
        match self.state {
            State::Body(BodyDecoder::UntilClose) => {
                self.state = State::Done(BodyDecoder::UntilClose);
                Ok(Some(Event::End))
            }
            State::Head(Partial { searched: 0, .. }) | State::Done(_) => Ok(None),
            State::Failed(error) => Err(error),
            State::Head(_) | State::Body(_) => {
                self.state = State::Failed(Error::Truncated);
                Err(Error::Truncated)
            }
        }
    }

    /// Before the first byte of a head.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Head(Partial { searched: 0, .. }))
    }

    /// Before the last byte of a head.
    pub(crate) fn is_in_head(&self) -> bool {
        matches!(self.state, State::Head(_))
    }

    /// Refuses everything from now on.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.state = State::Failed(error);
        error
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }

    /// Goes on with the next message, from behind this one.
    pub(crate) fn restart(&mut self) {
        if self.is_done() {
            self.state = State::Head(Partial::default());
        }
    }

    pub(crate) fn trailers(&self) -> Option<&ParsedFields> {
        match &self.state {
            State::Done(body) => body.trailers().filter(|fields| !fields.is_empty()),
            _ => None,
        }
    }
}

impl Partial {
    /// Takes a head from the input; false: it is not whole, and its bytes have to be given again with more behind them.
    fn read<H: ReadHead>(
        &mut self,
        input: &mut &[u8],
        limits: &Limits,
        head: &mut H,
    ) -> Result<bool, Error> {
        // Empty lines before a request are ignored (RFC 9112 §2.2).
        while let Some(rest) = input.strip_prefix(b"\r\n") {
            *input = rest;
            self.searched = 0;
            self.skipped += 2;
            if self.skipped as usize > limits.head() {
                return Err(Error::HeadTooLarge);
            }
        }
        let bytes = *input;
        // Only for the first piece of a head that comes in pieces.
        if self.searched == 0
            && let Some(end) = head.read_plain(bytes, limits)
        {
            *input = &bytes[end..];
            return Ok(true);
        }
        if !self.is_begun {
            begins(bytes)?;
        }
        let end = self.end(bytes);
        if end.unwrap_or(bytes.len()) > limits.head() {
            return Err(match memchr::memchr(b'\n', bytes) {
                Some(line) if line < limits.head() => Error::HeadTooLarge,
                _ => Error::TargetTooLong,
            });
        }
        if let Some(end) = end {
            let (bytes, rest) = bytes.split_at(end);
            *input = rest;
            return head.read(bytes, limits).map(|()| true);
        }
        if !self.is_begun && memchr::memchr(b'\n', bytes).is_some() {
            // Bytes that are not HTTP are refused at the first line.
            H::first_line(bytes)?;
            self.is_begun = true;
        }
        Ok(false)
    }

    /// Where the head ends. Only up to three bytes are searched twice.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut from = (self.searched as usize).min(bytes.len());
        while let Some(lf) = memchr::memchr(b'\n', &bytes[from..]).map(|lf| from + lf) {
            match bytes[lf + 1..] {
                [b'\r', b'\n', ..] => return Some(lf + 3),
                // A bare line feed: the end of the head, whose reader refuses it.
                [b'\n', ..] => return Some(lf + 2),
                [] | [b'\r'] => {
                    self.searched = lf as u32;
                    return None;
                }
                _ => from = lf + 1,
            }
        }
        self.searched = bytes.len() as u32;
        None
    }
}

/// Refuses what cannot become a head, from its first bytes on.
fn begins(bytes: &[u8]) -> Result<(), Error> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
    match bytes.first() {
        // A TLS record: handshake, version 3.x (RFC 8446 §5.1).
        Some(0x16) if bytes.get(1).is_none_or(|major| *major == 3) => Err(Error::Tls),
        Some(b'\r') if bytes.len() == 1 => Ok(()),
        Some(b'\n') => Err(Error::BareLf),
        Some(&byte) if !crate::head::is_token(byte) => Err(Error::StartLine),
        Some(_) if bytes.starts_with(PREFACE) => Err(Error::Http2),
        _ => Ok(()),
    }
}
