//! Frames (RFC 9114 §7): each has a kind and a length, both of variable length, then its payload.

use bytes::{Buf, Bytes};

/// Why the connection must end: a code for the client, and a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) code: u64,
    pub(super) why: &'static str,
}

/// Divides the bytes of a stream into frames.
#[derive(Debug, Default)]
pub(super) struct Frames {
    head: [u8; MOST_HEAD],
    have: usize,
    /// Bytes of the payload that are still to come.
    left: u64,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A frame begins.
    Begin { kind: u64, length: u64 },
    /// A part of its payload.
    Payload(Bytes),
}

impl Frames {
    /// The next piece of `bytes`; `None`: all of them are used.
    pub(super) fn next(&mut self, bytes: &mut Bytes) -> Option<Piece> {
        if bytes.is_empty() {
            return None;
        }
        if self.left > 0 {
            let count = self.left.min(bytes.len() as u64);
            self.left -= count;
            return Some(Piece::Payload(bytes.split_to(count as usize)));
        }
        while !bytes.is_empty() {
            self.head[self.have] = bytes.get_u8();
            self.have += 1;
            let mut head = &self.head[..self.have];
            if let Some(kind) = varint(&mut head)
                && let Some(length) = varint(&mut head)
            {
                (self.left, self.have) = (length, 0);
                return Some(Piece::Begin { kind, length });
            }
        }
        None
    }

    /// Whether the next byte begins a frame.
    pub(super) fn is_between(&self) -> bool {
        self.left == 0 && self.have == 0
    }
}

/// Takes a number of variable length (RFC 9000 §16); `None`: it is not whole.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let length = 1 << (bytes.first()? >> 6);
    let (number, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    let first = u64::from(number[0] & 0x3f);
    let others = number[1..].iter();
    Some(others.fold(first, |value, byte| value << 8 | u64::from(*byte)))
}

/// Writes a number of variable length, below 2^62.
pub(super) fn put_varint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => {
            out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes());
        }
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// The head of a frame.
pub(super) fn put_head(out: &mut Vec<u8>, kind: u64, length: usize) {
    put_varint(out, kind);
    put_varint(out, length as u64);
}

/// Whether HTTP/3 leaves out this frame of HTTP/2, so that nobody may send it (RFC 9114 §7.2.8).
pub(super) fn is_of_http2(kind: u64) -> bool {
    matches!(kind, 0x02 | 0x06 | 0x08 | 0x09)
}

/// Bytes of the longest head.
const MOST_HEAD: usize = 16;

/// Frames (RFC 9114 §11.2.1; RFC 9218 §7.2).
pub(super) const DATA: u64 = 0;
pub(super) const HEADERS: u64 = 1;
pub(super) const CANCEL_PUSH: u64 = 3;
pub(super) const SETTINGS: u64 = 4;
pub(super) const PUSH_PROMISE: u64 = 5;
pub(super) const GOAWAY: u64 = 7;
pub(super) const MAX_PUSH_ID: u64 = 0x0d;
pub(super) const PRIORITY_UPDATE: u64 = 0xf_0700;
pub(super) const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;

/// Codes (RFC 9114 §8.1, RFC 9204 §6).
pub(super) const NO_ERROR: u64 = 0x100;
pub(super) const GENERAL_PROTOCOL_ERROR: u64 = 0x101;
pub(super) const INTERNAL: u64 = 0x102;
pub(super) const STREAM_CREATION_ERROR: u64 = 0x103;
pub(super) const CLOSED_CRITICAL_STREAM: u64 = 0x104;
pub(super) const FRAME_UNEXPECTED: u64 = 0x105;
pub(super) const FRAME_ERROR: u64 = 0x106;
/// The client does what costs too much.
pub const EXCESSIVE_LOAD: u64 = 0x107;
pub(super) const ID_ERROR: u64 = 0x108;
pub(super) const SETTINGS_ERROR: u64 = 0x109;
pub(super) const MISSING_SETTINGS: u64 = 0x10a;
pub(super) const REQUEST_REJECTED: u64 = 0x10b;
pub(super) const REQUEST_CANCELLED: u64 = 0x10c;
pub(super) const REQUEST_INCOMPLETE: u64 = 0x10d;
pub(super) const MESSAGE_ERROR: u64 = 0x10e;
pub(super) const DECOMPRESSION_FAILED: u64 = 0x200;
pub(super) const ENCODER_STREAM_ERROR: u64 = 0x201;
pub(super) const DECODER_STREAM_ERROR: u64 = 0x202;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_the_lengths_of_the_rfc() {
        for (hex, value) in [
            (&[0x25][..], 37),
            (&[0x7b, 0xbd], 15_293),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
        ] {
            let mut bytes = hex;
            assert_eq!(varint(&mut bytes), Some(value));
            assert!(bytes.is_empty());
            assert_eq!(varint(&mut &hex[..hex.len() - 1]), None);
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, hex);
        }
    }

    proptest! {
        #[test]
        fn frames_are_found_wherever_the_bytes_are_divided(
            frames in prop::collection::vec((0..0x1_0000_u64, prop::collection::vec(any::<u8>(), 0..100)), 0..10),
            cuts in prop::collection::vec(1..20_usize, 0..60),
        ) {
            let mut bytes = Vec::new();
            for (kind, payload) in &frames {
                put_head(&mut bytes, *kind, payload.len());
                bytes.extend_from_slice(payload);
            }
            let (mut reader, mut read, mut rest) = (Frames::default(), Vec::new(), &bytes[..]);
            for cut in cuts.into_iter().chain([bytes.len()]) {
                let (part, behind) = rest.split_at(cut.min(rest.len()));
                rest = behind;
                let mut part = Bytes::copy_from_slice(part);
                while let Some(piece) = reader.next(&mut part) {
                    match piece {
                        Piece::Begin { kind, .. } => read.push((kind, Vec::new())),
                        Piece::Payload(more) => read.last_mut().unwrap().1.extend_from_slice(&more),
                    }
                }
                prop_assert!(part.is_empty());
            }
            prop_assert!(reader.is_between());
            prop_assert_eq!(read, frames);
        }
    }
}
