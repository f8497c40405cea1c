//! What comes on a stream of requests: a head, a body in frames, and perhaps fields behind it (RFC 9114 §4.1).

use bytes::Bytes;
use quinn_proto::{Connection, ReadError, StreamId};

use super::{
    frames::{
        CANCEL_PUSH, DATA, FRAME_ERROR, FRAME_UNEXPECTED, Frames, GOAWAY, HEADERS, MAX_PUSH_ID,
        MESSAGE_ERROR, PRIORITY_UPDATE, PRIORITY_UPDATE_PUSH, PUSH_PROMISE, Piece,
        REQUEST_INCOMPLETE, SETTINGS, Wrong, is_of_http2,
    },
    head,
};
use crate::multiplex::limits::SMALL_DATA;

/// The client's side of a stream.
#[derive(Debug)]
pub(super) struct Receiving {
    frames: Frames,
    /// The kind of the frame that is being read.
    kind: u64,
    part: Part,
    /// Bytes that were read from QUIC and not used.
    pending: Bytes,
    /// The received part of a head.
    head: Vec<u8>,
    /// The head is larger than allowed. It is read until its beginning tells why.
    is_too_large: bool,
    /// The length that the head says.
    declared: Option<u64>,
    received: u64,
    /// QUIC has nothing more.
    is_over: bool,
    /// Frames that cost weir work and the client nearly nothing, since that was asked.
    small: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Head,
    Body,
    Trailers,
    Behind,
}

/// The next part of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// The head of the request, encoded.
    Head(Vec<u8>),
    /// A part of the body.
    Data(Bytes),
    /// The end.
    End,
    /// Nothing for now.
    Waits,
}

/// Why nothing more comes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The client has reset it.
    Reset,
    /// The stream is to be reset with this code.
    Stream(u64),
    /// The connection must end.
    Connection(Wrong),
    /// The head, which begins with these bytes, is larger than allowed.
    TooLarge(Vec<u8>),
}

impl Receiving {
    pub(super) fn new() -> Receiving {
        Receiving {
            frames: Frames::default(),
            kind: NONE,
            part: Part::Head,
            pending: Bytes::new(),
            head: Vec::new(),
            is_too_large: false,
            declared: None,
            received: 0,
            is_over: false,
            small: 0,
        }
    }

    /// The head has said so much of the body.
    pub(super) fn declare(&mut self, length: Option<u64>) {
        self.declared = length;
    }

    /// Whether everything has come, or nothing more will.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Bytes of an incomplete head.
    pub(super) fn partial_head(&self) -> usize {
        self.head.len()
    }

    /// How many small frames have come since the last call.
    pub(super) fn take_small(&mut self) -> u32 {
        std::mem::take(&mut self.small)
    }

    /// Parses the received bytes. `most`: the maximum size of a head.
    pub(super) fn poll(
        &mut self,
        quic: &mut Connection,
        id: StreamId,
        most: u64,
    ) -> Result<Got, Failed> {
        loop {
            if let Some(got) = self.next(most)? {
                return Ok(got);
            }
            if self.is_over {
                return Ok(Got::End);
            }
            match read(quic, id) {
                Ok(Some(bytes)) => self.pending = bytes,
                Ok(None) => {
                    self.is_over = true;
                    self.end()?;
                    return Ok(Got::End);
                }
                Err(ReadError::Blocked) => return Ok(Got::Waits),
                Err(ReadError::Reset(_)) => {
                    self.is_over = true;
                    return Err(Failed::Reset);
                }
            }
        }
    }

    /// The next part in the pending bytes; `None`: all of them are used.
    fn next(&mut self, most: u64) -> Result<Option<Got>, Failed> {
        while !self.pending.is_empty() {
            if let Some(got) = self.take(most)? {
                return Ok(Some(got));
            }
        }
        Ok(None)
    }

    /// Takes bytes as if QUIC had them. Everything before them was used.
    #[cfg(any(test, feature = "checks"))]
    pub(super) fn feed(&mut self, bytes: Bytes, most: u64) -> Result<Option<Got>, Failed> {
        if !bytes.is_empty() {
            self.pending = bytes;
        }
        self.next(most)
    }

    /// Takes the end as if QUIC had it.
    #[cfg(any(test, feature = "checks"))]
    pub(super) fn feed_end(&mut self) -> Result<(), Failed> {
        self.end()
    }

    /// Whether more than the head comes, as far as can be seen now.
    pub(super) fn look_ahead(
        &mut self,
        quic: &mut Connection,
        id: StreamId,
    ) -> Result<bool, Failed> {
        if self.pending.is_empty() && !self.is_over {
            match read(quic, id) {
                Ok(Some(bytes)) => self.pending = bytes,
                Ok(None) => {
                    self.is_over = true;
                    self.end()?;
                }
                Err(ReadError::Blocked) => {}
                Err(ReadError::Reset(_)) => {
                    self.is_over = true;
                    return Err(Failed::Reset);
                }
            }
        }
        Ok(!(self.is_over && self.pending.is_empty()))
    }

    /// Uses a piece of the pending bytes.
    fn take(&mut self, most: u64) -> Result<Option<Got>, Failed> {
        match self.frames.next(&mut self.pending) {
            None => {}
            Some(Piece::Begin { kind, length }) => {
                self.begin(kind, length, most)?;
                self.kind = kind;
            }
            Some(Piece::Payload(more)) => match self.kind {
                DATA => {
                    self.received += more.len() as u64;
                    if self.declared.is_some_and(|most| self.received > most) {
                        return Err(Failed::Stream(MESSAGE_ERROR));
                    }
                    return Ok(Some(Got::Data(more)));
                }
                HEADERS => {
                    self.head.extend_from_slice(&more);
                    if self.is_too_large && self.head.len() as u64 >= most {
                        self.head.truncate(most as usize);
                        return Err(Failed::TooLarge(std::mem::take(&mut self.head)));
                    }
                }
                _ => {}
            },
        }
        if self.kind != HEADERS || !self.frames.is_between() {
            return Ok(None);
        }
        self.kind = NONE;
        let head = std::mem::take(&mut self.head);
        if self.part == Part::Head {
            self.part = Part::Body;
            return Ok(Some(Got::Head(head)));
        }
        self.part = Part::Behind;
        head::read_trailers(&head)?;
        Ok(None)
    }

    /// A frame begins.
    fn begin(&mut self, kind: u64, length: u64, most: u64) -> Result<(), Failed> {
        let unexpected = |why| {
            Err(Failed::Connection(Wrong {
                code: FRAME_UNEXPECTED,
                why,
            }))
        };
        match (kind, self.part) {
            (DATA, Part::Body) => {
                self.small += u32::from(length < u64::from(SMALL_DATA));
                Ok(())
            }
            (DATA, _) => unexpected("DATA without a head before it, or behind the end"),
            (HEADERS, Part::Head) => {
                self.is_too_large = length > most;
                Ok(())
            }
            (HEADERS, Part::Body) if length > most => Err(Failed::TooLarge(Vec::new())),
            (HEADERS, Part::Body) => {
                self.part = Part::Trailers;
                Ok(())
            }
            (HEADERS, _) => unexpected("HEADERS behind the end"),
            (
                CANCEL_PUSH | SETTINGS | PUSH_PROMISE | GOAWAY | MAX_PUSH_ID | PRIORITY_UPDATE
                | PRIORITY_UPDATE_PUSH,
                _,
            ) => unexpected("a frame of the control stream in a request"),
            (kind, _) if is_of_http2(kind) => unexpected("a frame of HTTP/2"),
            _ => {
                self.small += 1;
                Ok(())
            }
        }
    }

    /// The client has ended the stream.
    fn end(&self) -> Result<(), Failed> {
        if !self.frames.is_between() {
            return Err(Failed::Connection(Wrong {
                code: FRAME_ERROR,
                why: "a stream ends within a frame",
            }));
        }
        match self.part {
            Part::Head => Err(Failed::Stream(REQUEST_INCOMPLETE)),
            _ if self.declared.is_some_and(|length| self.received != length) => {
                Err(Failed::Stream(MESSAGE_ERROR))
            }
            _ => Ok(()),
        }
    }

    /// Whether the client has reset the stream, although nobody reads it.
    pub(super) fn is_reset(&mut self, quic: &mut Connection, id: StreamId) -> bool {
        if self.is_over {
            return false;
        }
        let is_reset = matches!(quic.recv_stream(id).received_reset(), Ok(Some(_)));
        self.is_over |= is_reset;
        is_reset
    }

    /// Nobody reads the rest.
    pub(super) fn stop(&mut self, quic: &mut Connection, id: StreamId, code: u64) {
        self.pending = Bytes::new();
        if !self.is_over {
            self.is_over = true;
            let code = quinn_proto::VarInt::from_u64(code).unwrap_or_default();
            // This fails if the stream has ended meanwhile.
            let _ = quic.recv_stream(id).stop(code);
        }
    }
}

/// The next bytes of a stream; `None` at its end.
pub(super) fn read(quic: &mut Connection, id: StreamId) -> Result<Option<Bytes>, ReadError> {
    let mut stream = quic.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else {
        // The stream was stopped or read to its end before.
        return Ok(None);
    };
    chunks
        .next(AT_ONCE)
        .map(|chunk| chunk.map(|chunk| chunk.bytes))
}

/// No frame.
const NONE: u64 = u64::MAX;

/// Bytes that are read at once.
const AT_ONCE: usize = 16 * 1024;
