//! Where the frames of a WebSocket begin (RFC 6455 §5.2). weir passes them on unread; it must know this to say the last word.

/// One direction of a WebSocket.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The beginning of a frame's header, and how much of it has come.
    header: [u8; HEADER],
    begun: u8,
    /// Bytes of the frame's content that are still to come.
    left: u64,
    /// A frame that closes the WebSocket has come: nothing may follow.
    is_closed: bool,
}

impl Frames {
    /// These bytes come next.
    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let of_frame = self.left.min(bytes.len() as u64);
                self.left -= of_frame;
                bytes = &bytes[of_frame as usize..];
                continue;
            }
            self.header[usize::from(self.begun)] = bytes[0];
            self.begun += 1;
            bytes = &bytes[1..];
            if let Some(left) = self.content() {
                self.is_closed |= self.header[0] & 0x0f == CLOSE;
                (self.begun, self.left) = (0, left);
            }
        }
    }

    /// Whether another frame may be sent now.
    pub(super) fn is_between(&self) -> bool {
        self.begun == 0 && self.left == 0 && !self.is_closed
    }

    /// The length of the content, with the mask before it, once the length is known.
    fn content(&self) -> Option<u64> {
        let [_, second, long @ ..] = self.header;
        let mask = u64::from(second >> 7) * 4;
        let (needed, length) = match second & 0x7f {
            126 => (4, u64::from(u16::from_be_bytes([long[0], long[1]]))),
            127 => (10, u64::from_be_bytes(long)),
            short => (2, u64::from(short)),
        };
        (self.begun == needed).then(|| length.saturating_add(mask))
    }
}

/// Tells a client that the server restarts: it is to connect again (1012).
pub(super) const TO_CLIENT: &[u8] = &[0x88, 2, 0x03, 0xf4];

/// The same for a server: masked, as all that comes from clients, with zeros.
pub(super) const TO_SERVER: &[u8] = &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xf4];

/// The opcode of a frame that closes.
const CLOSE: u8 = 8;

/// Bytes of a header up to its length.
const HEADER: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, length: usize, is_masked: bool) -> Vec<u8> {
        let mask = u8::from(is_masked) << 7;
        let mut bytes = vec![0x80 | opcode];
        match length {
            0..126 => bytes.push(mask | length as u8),
            126..65_536 => {
                bytes.push(mask | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            _ => {
                bytes.push(mask | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend(vec![0x88; length + usize::from(is_masked) * 4]);
        bytes
    }

    #[test]
    fn frames_end_where_their_lengths_say_wherever_they_are_split() {
        for (length, is_masked) in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000]
            .into_iter()
            .flat_map(|length| [(length, false), (length, true)])
        {
            let bytes = frame(2, length, is_masked);
            for piece in [1, 2, 3, 7, bytes.len()] {
                let mut frames = Frames::default();
                let mut seen = 0;
                for piece in bytes.chunks(piece) {
                    assert!(seen == 0 || !frames.is_between(), "{length} {seen}");
                    frames.take(piece);
                    seen += piece.len();
                }
                assert!(frames.is_between(), "{length} {is_masked}");
            }
        }
    }

    #[test]
    fn nothing_follows_a_frame_that_closes() {
        for close in [TO_CLIENT, TO_SERVER] {
            let mut frames = Frames::default();
            frames.take(&frame(1, 3, false));
            assert!(frames.is_between());
            frames.take(close);
            assert!(!frames.is_between());
        }
    }
}
