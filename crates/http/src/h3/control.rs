//! The streams of one direction that a client opens (RFC 9114 §6.2): one with settings, two of QPACK, and unknown ones.

use bytes::Bytes;

use super::frames::{
    CANCEL_PUSH, CLOSED_CRITICAL_STREAM, DATA, DECODER_STREAM_ERROR, ENCODER_STREAM_ERROR,
    FRAME_ERROR, FRAME_UNEXPECTED, Frames, GOAWAY, HEADERS, ID_ERROR, MAX_PUSH_ID,
    MISSING_SETTINGS, PRIORITY_UPDATE, PRIORITY_UPDATE_PUSH, PUSH_PROMISE, Piece, SETTINGS,
    SETTINGS_ERROR, STREAM_CREATION_ERROR, Wrong, is_of_http2, varint,
};
use crate::{Priority, multiplex::literals::integer};

/// The state of all control streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Controls {
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
    has_settings: bool,
    /// The push that the client allows, which weir never makes.
    max_push: Option<u64>,
    goaway: Option<u64>,
    /// The client takes heads of so many bytes.
    pub(super) max_head: Option<u64>,
}

/// One of these streams.
#[derive(Debug)]
pub(super) enum OneWay {
    /// The stream's kind has not arrived completely.
    New(Vec<u8>),
    Control {
        frames: Frames,
        kind: u64,
        payload: Vec<u8>,
    },
    Encoder,
    /// With the begin of an instruction.
    Decoder(Vec<u8>),
    /// Nobody reads it.
    Unknown,
}

/// A message of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A stream of requests has another priority.
    Priority(u64, Priority),
    /// Something that costs weir work and the client nearly nothing.
    Small,
    /// Nobody reads this stream: the client is told to stop.
    Stop,
}

impl OneWay {
    pub(super) fn new() -> OneWay {
        OneWay::New(Vec::new())
    }

    /// Parses received bytes, and adds the results to `events`.
    pub(super) fn read(
        &mut self,
        mut bytes: Bytes,
        controls: &mut Controls,
        events: &mut Vec<Event>,
    ) -> Result<(), Wrong> {
        while let OneWay::New(kind) = self {
            if bytes.is_empty() {
                return Ok(());
            }
            kind.push(bytes.split_to(1)[0]);
            if let Some(kind) = varint(&mut &kind[..]) {
                *self = controls.begin(kind)?;
                if let OneWay::Unknown = self {
                    events.push(Event::Stop);
                }
            }
        }
        match self {
            OneWay::New(_) | OneWay::Unknown => Ok(()),
            OneWay::Control {
                frames,
                kind,
                payload,
            } => {
                while let Some(piece) = frames.next(&mut bytes) {
                    match piece {
                        Piece::Begin { kind: of, length } => {
                            controls.may_begin(of, length)?;
                            *kind = of;
                            if !matches!(of, SETTINGS | GOAWAY | MAX_PUSH_ID) {
                                events.push(Event::Small);
                            }
                        }
                        Piece::Payload(more) if is_read(*kind) => payload.extend_from_slice(&more),
                        Piece::Payload(_) => {}
                    }
                    if frames.is_between() {
                        controls.frame(*kind, payload, events)?;
                        payload.clear();
                    }
                }
                Ok(())
            }
            OneWay::Encoder => match bytes.iter().all(|byte| *byte == EMPTY_TABLE) {
                true => {
                    events.extend((0..bytes.len()).map(|_| Event::Small));
                    Ok(())
                }
                false => Err(Wrong {
                    code: ENCODER_STREAM_ERROR,
                    why: "there is no dynamic table",
                }),
            },
            OneWay::Decoder(begun) => {
                begun.extend_from_slice(&bytes);
                decoder(begun, events)
            }
        }
    }

    /// Bytes of a frame that is not complete.
    #[cfg(any(test, feature = "checks"))]
    pub(super) fn kept(&self) -> usize {
        match self {
            OneWay::New(bytes) | OneWay::Decoder(bytes) => bytes.len(),
            OneWay::Control { payload, .. } => payload.len(),
            OneWay::Encoder | OneWay::Unknown => 0,
        }
    }

    /// The client has ended it.
    pub(super) fn end(&self) -> Result<(), Wrong> {
        match self {
            OneWay::New(_) | OneWay::Unknown => Ok(()),
            _ => Err(Wrong {
                code: CLOSED_CRITICAL_STREAM,
                why: "a stream that the connection needs was closed",
            }),
        }
    }
}

impl Controls {
    fn begin(&mut self, kind: u64) -> Result<OneWay, Wrong> {
        let (has, stream) = match kind {
            0 => {
                let control = OneWay::Control {
                    frames: Frames::default(),
                    kind: 0,
                    payload: Vec::new(),
                };
                (&mut self.has_control, control)
            }
            1 => return Err(creation("a client cannot push")),
            2 => (&mut self.has_encoder, OneWay::Encoder),
            3 => (&mut self.has_decoder, OneWay::Decoder(Vec::new())),
            _ => return Ok(OneWay::Unknown),
        };
        match std::mem::replace(has, true) {
            false => Ok(stream),
            true => Err(creation("a second stream of this kind")),
        }
    }

    /// Whether such a frame may come now.
    fn may_begin(&self, kind: u64, length: u64) -> Result<(), Wrong> {
        let wrong = |code, why| Err(Wrong { code, why });
        if !self.has_settings && kind != SETTINGS {
            return wrong(MISSING_SETTINGS, "the first frame has no settings");
        }
        match kind {
            SETTINGS if self.has_settings => wrong(FRAME_UNEXPECTED, "settings come once"),
            DATA | HEADERS | PUSH_PROMISE => wrong(
                FRAME_UNEXPECTED,
                "a frame of requests in the control stream",
            ),
            kind if is_of_http2(kind) => wrong(FRAME_UNEXPECTED, "a frame of HTTP/2"),
            kind if is_read(kind) && length > MOST_PAYLOAD => wrong(
                super::frames::EXCESSIVE_LOAD,
                "a control frame that is too long",
            ),
            _ => Ok(()),
        }
    }

    /// A frame is whole.
    fn frame(
        &mut self,
        kind: u64,
        mut payload: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), Wrong> {
        let malformed = Wrong {
            code: FRAME_ERROR,
            why: "a control frame is malformed",
        };
        let id_error = |why| {
            Err(Wrong {
                code: ID_ERROR,
                why,
            })
        };
        if kind == SETTINGS {
            self.has_settings = true;
            return self.settings(payload);
        }
        if !is_read(kind) {
            return Ok(());
        }
        let number = varint(&mut payload).ok_or(malformed)?;
        if kind != PRIORITY_UPDATE && kind != PRIORITY_UPDATE_PUSH && !payload.is_empty() {
            return Err(malformed);
        }
        match kind {
            GOAWAY => match self.goaway.replace(number) {
                Some(before) if number > before => id_error("GOAWAY takes back what it said"),
                _ => Ok(()),
            },
            MAX_PUSH_ID => match self.max_push.replace(number) {
                Some(before) if number < before => id_error("MAX_PUSH_ID becomes smaller"),
                _ => Ok(()),
            },
            CANCEL_PUSH => id_error("there is no push to cancel"),
            PRIORITY_UPDATE_PUSH => id_error("there is no push"),
            _ if number % 4 != 0 => id_error("that is no stream of requests"),
            _ => {
                events.push(Event::Priority(number, Priority::of(payload)));
                Ok(())
            }
        }
    }

    fn settings(&mut self, mut payload: &[u8]) -> Result<(), Wrong> {
        let wrong = |why| Wrong {
            code: SETTINGS_ERROR,
            why,
        };
        let cut = Wrong {
            code: FRAME_ERROR,
            why: "settings are cut",
        };
        let mut seen = Vec::new();
        while !payload.is_empty() {
            let key = varint(&mut payload).ok_or(cut)?;
            let value = varint(&mut payload).ok_or(cut)?;
            if seen.contains(&key) {
                return Err(wrong("a setting comes twice"));
            }
            seen.push(key);
            match key {
                // The settings of HTTP/2 are forbidden (RFC 9114 §7.2.4.1).
                0x00 | 0x02..=0x05 => return Err(wrong("a setting of HTTP/2")),
                MAX_FIELD_SECTION_SIZE => self.max_head = Some(value),
                _ => {}
            }
        }
        Ok(())
    }
}

fn creation(why: &'static str) -> Wrong {
    Wrong {
        code: STREAM_CREATION_ERROR,
        why,
    }
}

/// Instructions of the client's decoder: weir refers to no entry, so only cancelled streams may be said (RFC 9204 §4.4).
fn decoder(begun: &mut Vec<u8>, events: &mut Vec<Event>) -> Result<(), Wrong> {
    let wrong = Err(Wrong {
        code: DECODER_STREAM_ERROR,
        why: "there is no dynamic table",
    });
    let mut rest = &begun[..];
    while let Some(first) = rest.first() {
        if first & 0xc0 != 0x40 {
            return wrong;
        }
        let mut after = rest;
        if integer(&mut after, 6).is_err() {
            if rest.len() > MOST_INSTRUCTION {
                return wrong;
            }
            break;
        }
        events.push(Event::Small);
        rest = after;
    }
    let left = rest.len();
    begun.drain(..begun.len() - left);
    Ok(())
}

fn is_read(kind: u64) -> bool {
    matches!(
        kind,
        SETTINGS | GOAWAY | MAX_PUSH_ID | CANCEL_PUSH | PRIORITY_UPDATE | PRIORITY_UPDATE_PUSH
    )
}

/// Set Dynamic Table Capacity, to 0 (RFC 9204 §4.3.1).
const EMPTY_TABLE: u8 = 0x20;

/// How large a head may be that the other side takes (RFC 9114 §7.2.4.1).
pub(super) const MAX_FIELD_SECTION_SIZE: u64 = 6;

/// Bytes of a control frame that is read, at most.
pub(super) const MOST_PAYLOAD: u64 = 1024;

/// Bytes of an instruction, at most.
const MOST_INSTRUCTION: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(streams: &[&[u8]]) -> Result<Vec<Event>, u64> {
        let (mut controls, mut events) = (Controls::default(), Vec::new());
        for bytes in streams {
            // The bytes arrive one after the other.
            let mut stream = OneWay::new();
            for byte in *bytes {
                let byte = Bytes::copy_from_slice(&[*byte]);
                let read = stream.read(byte, &mut controls, &mut events);
                read.map_err(|wrong| wrong.code)?;
            }
        }
        Ok(events)
    }

    #[test]
    fn usual_clients_are_understood() {
        let control = b"\0\x04\x05\x06\x44\x00\x33\x01\x0d\x01\x05\x07\x01\x00\x0d\x01\x06\x21\x00";
        assert_eq!(
            read(&[control, b"\x02\x20", b"\x03\x40\x7f\x01"])
                .unwrap()
                .len(),
            4
        );
        let update = b"\0\x04\x00\x80\x0f\x07\x00\x04\x08u=1";
        let expected = [Event::Small, Event::Priority(8, Priority::of(b"u=1"))];
        assert_eq!(read(&[update]).unwrap(), expected);
        assert_eq!(read(&[b"\x40\x41abc"]).unwrap(), [Event::Stop]);
    }

    #[test]
    fn what_the_rfcs_forbid_has_its_code() {
        for (streams, code) in [
            (&[&b"\0\x04\x00"[..], b"\0"][..], STREAM_CREATION_ERROR),
            (&[b"\x01"], STREAM_CREATION_ERROR),
            (&[b"\x02", b"\x02"], STREAM_CREATION_ERROR),
            (&[b"\0\x07\x01\x00"], MISSING_SETTINGS),
            (&[b"\0\x04\x00\x04\x00"], FRAME_UNEXPECTED),
            (&[b"\0\x04\x00\x00\x01a"], FRAME_UNEXPECTED),
            (&[b"\0\x04\x00\x01\x01a"], FRAME_UNEXPECTED),
            (&[b"\0\x04\x00\x05\x01a"], FRAME_UNEXPECTED),
            (&[b"\0\x04\x00\x06\x00"], FRAME_UNEXPECTED),
            (&[b"\0\x04\x02\x02\x00"], SETTINGS_ERROR),
            (&[b"\0\x04\x04\x06\x01\x06\x01"], SETTINGS_ERROR),
            (&[b"\0\x04\x01\x06"], FRAME_ERROR),
            (&[b"\0\x04\x00\x0d\x01\x05\x0d\x01\x04"], ID_ERROR),
            (&[b"\0\x04\x00\x07\x01\x04\x07\x01\x08"], ID_ERROR),
            (&[b"\0\x04\x00\x03\x01\x00"], ID_ERROR),
            (&[b"\0\x04\x00\x80\x0f\x07\x00\x01\x01"], ID_ERROR),
            (&[b"\0\x04\x00\x80\x0f\x07\x01\x01\x00"], ID_ERROR),
            (&[b"\0\x04\x00\x07\x02\x00\x00"], FRAME_ERROR),
            (&[b"\0\x04\x00\x07\x00"], FRAME_ERROR),
            (
                &[b"\0\x04\x80\x01\x00\x00"],
                super::super::frames::EXCESSIVE_LOAD,
            ),
            (&[b"\x02\x3f"], ENCODER_STREAM_ERROR),
            (&[b"\x02\xc0"], ENCODER_STREAM_ERROR),
            (&[b"\x03\x80"], DECODER_STREAM_ERROR),
            (&[b"\x03\x01"], DECODER_STREAM_ERROR),
        ] {
            let read = read(streams);
            assert_eq!(read, Err(code), "{streams:?}");
        }
        let mut controls = Controls::default();
        let mut stream = OneWay::new();
        stream.end().unwrap();
        let read = stream.read(Bytes::from_static(b"\0"), &mut controls, &mut Vec::new());
        read.unwrap();
        assert_eq!(stream.end().unwrap_err().code, CLOSED_CRITICAL_STREAM);
    }
}
