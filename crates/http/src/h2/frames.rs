//! Frames of HTTP/2 (RFC 9113 §4, §6): their heads, and those that weir sends.

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    /// The head at the beginning of these bytes, if it is whole.
    pub(super) fn of(bytes: &[u8]) -> Option<FrameHead> {
        let [a, b, c, kind, flags, stream @ ..] = bytes.first_chunk::<HEAD>()?;
        Some(FrameHead {
            length: u32::from_be_bytes([0, *a, *b, *c]) as usize,
            kind: *kind,
            flags: *flags,
            stream: number(stream),
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The bytes of the frame's head.
    pub(super) fn bytes(&self) -> [u8; HEAD] {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }
}

/// Adds a frame.
pub(super) fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let head = FrameHead {
        length: payload.len(),
        kind,
        flags,
        stream,
    };
    out.extend_from_slice(&head.bytes());
    out.extend_from_slice(payload);
}

/// Adds frames with a head that `write` writes: one, or several if it is long.
pub(super) fn put_fields(
    out: &mut Vec<u8>,
    stream: u32,
    is_last: bool,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let at = out.len();
    out.extend_from_slice(&[0; HEAD]);
    write(out);
    let length = out.len() - at - HEAD;
    let end = if is_last { END_STREAM } else { 0 };
    if length <= MAX_FRAME {
        let head = FrameHead {
            length,
            kind: HEADERS,
            flags: END_HEADERS | end,
            stream,
        };
        out[at..at + HEAD].copy_from_slice(&head.bytes());
        return;
    }
    let block = out.split_off(at + HEAD);
    out.truncate(at);
    let parts = block.chunks(MAX_FRAME);
    let last = parts.len() - 1;
    for (number, part) in parts.enumerate() {
        let (kind, mut flags) = match number {
            0 => (HEADERS, end),
            _ => (CONTINUATION, 0),
        };
        flags |= if number == last { END_HEADERS } else { 0 };
        put(out, kind, flags, stream, part);
    }
}

/// The number of a stream, or a part of a window: the first bit has no meaning.
pub(super) fn number(bytes: &[u8; 4]) -> u32 {
    u32::from_be_bytes(*bytes) & MOST_WINDOW
}

/// The bytes with which a connection of HTTP/2 begins (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of the head of a frame.
pub(super) const HEAD: usize = 9;

/// The longest payload that every client takes, and the longest that weir takes.
pub(super) const MAX_FRAME: usize = 16 * 1024;

/// The largest window, and the highest number of a stream.
pub(super) const MOST_WINDOW: u32 = u32::MAX >> 1;

/// The windows before either side has said something else (RFC 9113 §6.9.2).
pub(super) const FIRST_WINDOW: u32 = 65_535;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
/// RFC 9218 §7.1.
pub(super) const PRIORITY_UPDATE: u8 = 16;

pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const HAS_PRIORITY: u8 = 32;

/// Settings (RFC 9113 §6.5.2).
pub(super) const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_FRAME_SIZE: u16 = 5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// Codes of errors (RFC 9113 §7).
pub(super) const NO_ERROR: u32 = 0;
pub(super) const PROTOCOL_ERROR: u32 = 1;
pub(super) const INTERNAL_ERROR: u32 = 2;
pub(super) const FLOW_CONTROL_ERROR: u32 = 3;
pub(super) const STREAM_CLOSED: u32 = 5;
pub(super) const FRAME_SIZE_ERROR: u32 = 6;
pub(super) const REFUSED_STREAM: u32 = 7;
pub(super) const CANCEL: u32 = 8;
pub(super) const COMPRESSION_ERROR: u32 = 9;
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_head_becomes_several_frames() {
        for (length, kinds) in [
            (0, &[(HEADERS, END_HEADERS | END_STREAM)][..]),
            (MAX_FRAME, &[(HEADERS, END_HEADERS | END_STREAM)]),
            (
                MAX_FRAME + 1,
                &[(HEADERS, END_STREAM), (CONTINUATION, END_HEADERS)],
            ),
            (
                3 * MAX_FRAME,
                &[
                    (HEADERS, END_STREAM),
                    (CONTINUATION, 0),
                    (CONTINUATION, END_HEADERS),
                ],
            ),
        ] {
            let block: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut out = b"before".to_vec();
            put_fields(&mut out, 7, true, |out| out.extend_from_slice(&block));
            let mut rest = &out[6..];
            let (mut found, mut payload) = (Vec::new(), Vec::new());
            while let Some(head) = FrameHead::of(rest) {
                assert_eq!(head.stream, 7);
                found.push((head.kind, head.flags));
                payload.extend_from_slice(&rest[HEAD..HEAD + head.length]);
                rest = &rest[HEAD + head.length..];
            }
            assert_eq!(found, kinds);
            assert_eq!(payload, block);
        }
    }
}
