//! Numbers and texts of compressed heads, in the format that HPACK and QPACK share (RFC 7541 §5).

use std::sync::OnceLock;

/// A head cannot be decompressed, or refers to a table entry that does not exist. The connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A number whose first part is in the last `bits` of a byte (RFC 7541 §5.1).
pub(crate) fn integer(bytes: &mut &[u8], bits: u32) -> Result<u64, Malformed> {
    let (first, mut rest) = bytes.split_first().ok_or(Malformed)?;
    let mask = ((1_u16 << bits) - 1) as u8;
    let mut value = u64::from(first & mask);
    if first & mask == mask {
        for shift in (0..).step_by(7) {
            let (byte, behind) = rest.split_first().ok_or(Malformed)?;
            rest = behind;
            if shift > 49 {
                return Err(Malformed);
            }
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *bytes = rest;
    Ok(value)
}

pub(crate) fn put_integer(out: &mut Vec<u8>, flags: u8, bits: u32, value: u64) {
    let mask = (1_u64 << bits) - 1;
    if value < mask {
        return out.push(flags | value as u8);
    }
    out.push(flags | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// A text whose length has `bits`, and before these a bit that says whether it has the Huffman code. Then it is in `room`.
pub(crate) fn text<'r, 'b: 'r>(
    bytes: &mut &'b [u8],
    bits: u32,
    room: &'r mut Vec<u8>,
) -> Result<&'r [u8], Malformed> {
    let first = *bytes.first().ok_or(Malformed)?;
    let length = integer(bytes, bits)?;
    let length = usize::try_from(length).map_err(|_| Malformed)?;
    let (text, rest) = bytes.split_at_checked(length).ok_or(Malformed)?;
    *bytes = rest;
    if first & (1 << bits) == 0 {
        return Ok(text);
    }
    room.clear();
    expand(text, room)?;
    Ok(room)
}

/// Texts are sent as they are: it costs less time than the Huffman code saves.
pub(crate) fn put_text(out: &mut Vec<u8>, flags: u8, bits: u32, text: &[u8]) {
    put_integer(out, flags, bits, text.len() as u64);
    out.extend_from_slice(text);
}

/// The result of four bits of Huffman code, from a place in the tree.
#[derive(Debug, Clone, Copy)]
struct Step {
    next: u8,
    /// The byte that is complete. Codes have five bits at least, so it is one at most.
    byte: Option<u8>,
    /// The text may end here: the bits since the last byte are ones, seven at most (RFC 7541 §5.2).
    may_end: bool,
    /// The bits are those of the end of a text, which must not be coded.
    is_wrong: bool,
}

/// The steps from each place in the tree, which has as many as there are bytes.
fn steps() -> &'static [[Step; 16]] {
    static STEPS: OnceLock<Vec<[Step; 16]>> = OnceLock::new();
    STEPS.get_or_init(|| {
        // Two children of each node. Those below `BYTES` are bytes, the others nodes.
        let mut nodes = vec![[NONE; 2]];
        for (byte, (code, length)) in (0..).zip(HUFFMAN) {
            let mut node = 0;
            for bit in (0..length).rev() {
                let side = (code >> bit & 1) as usize;
                if bit == 0 {
                    nodes[node][side] = byte;
                    break;
                }
                if nodes[node][side] == NONE {
                    nodes[node][side] = BYTES + nodes.len() as u16;
                    nodes.push([NONE; 2]);
                }
                node = usize::from(nodes[node][side] - BYTES);
            }
        }
        // The nodes at which a text may end: the root, and the nodes below it along bits of one.
        let mut ends = vec![0];
        while ends.len() < 8 {
            ends.push(usize::from(nodes[ends[ends.len() - 1]][1] - BYTES));
        }
        let step = |from: usize, bits: usize| {
            let (mut node, mut byte) = (from, None);
            for bit in (0..4).rev() {
                match nodes[node][bits >> bit & 1] {
                    NONE => {
                        return Step {
                            next: 0,
                            byte,
                            may_end: false,
                            is_wrong: true,
                        };
                    }
                    leaf @ 0..BYTES => (node, byte) = (0, Some(leaf as u8)),
                    next => node = usize::from(next - BYTES),
                }
            }
            Step {
                next: node as u8,
                byte,
                may_end: ends.contains(&node),
                is_wrong: false,
            }
        };
        let from = |node| std::array::from_fn(|bits| step(node, bits));
        (0..nodes.len()).map(from).collect()
    })
}

fn expand(text: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let steps = steps();
    out.reserve(text.len() * 8 / 5 + 1);
    let (mut at, mut may_end) = (0, true);
    for byte in text {
        for bits in [byte >> 4, byte & 15] {
            let step = &steps[usize::from(at)][usize::from(bits)];
            if step.is_wrong {
                return Err(Malformed);
            }
            out.extend(step.byte);
            (at, may_end) = (step.next, step.may_end);
        }
    }
    may_end.then_some(()).ok_or(Malformed)
}

const BYTES: u16 = 256;
const NONE: u16 = u16::MAX;

/// The Huffman code of each byte: its bits, and how many (RFC 7541, appendix B).
#[rustfmt::skip]
const HUFFMAN: [(u32, u8); 256] = [
    (0x1ff8, 13), (0x7fffd8, 23), (0xfffffe2, 28), (0xfffffe3, 28), (0xfffffe4, 28), (0xfffffe5, 28), (0xfffffe6, 28), (0xfffffe7, 28),
    (0xfffffe8, 28), (0xffffea, 24), (0x3ffffffc, 30), (0xfffffe9, 28), (0xfffffea, 28), (0x3ffffffd, 30), (0xfffffeb, 28), (0xfffffec, 28),
    (0xfffffed, 28), (0xfffffee, 28), (0xfffffef, 28), (0xffffff0, 28), (0xffffff1, 28), (0xffffff2, 28), (0x3ffffffe, 30), (0xffffff3, 28),
    (0xffffff4, 28), (0xffffff5, 28), (0xffffff6, 28), (0xffffff7, 28), (0xffffff8, 28), (0xffffff9, 28), (0xffffffa, 28), (0xffffffb, 28),
    (0x14, 6), (0x3f8, 10), (0x3f9, 10), (0xffa, 12), (0x1ff9, 13), (0x15, 6), (0xf8, 8), (0x7fa, 11),
    (0x3fa, 10), (0x3fb, 10), (0xf9, 8), (0x7fb, 11), (0xfa, 8), (0x16, 6), (0x17, 6), (0x18, 6),
    (0x0, 5), (0x1, 5), (0x2, 5), (0x19, 6), (0x1a, 6), (0x1b, 6), (0x1c, 6), (0x1d, 6),
    (0x1e, 6), (0x1f, 6), (0x5c, 7), (0xfb, 8), (0x7ffc, 15), (0x20, 6), (0xffb, 12), (0x3fc, 10),
    (0x1ffa, 13), (0x21, 6), (0x5d, 7), (0x5e, 7), (0x5f, 7), (0x60, 7), (0x61, 7), (0x62, 7),
    (0x63, 7), (0x64, 7), (0x65, 7), (0x66, 7), (0x67, 7), (0x68, 7), (0x69, 7), (0x6a, 7),
    (0x6b, 7), (0x6c, 7), (0x6d, 7), (0x6e, 7), (0x6f, 7), (0x70, 7), (0x71, 7), (0x72, 7),
    (0xfc, 8), (0x73, 7), (0xfd, 8), (0x1ffb, 13), (0x7fff0, 19), (0x1ffc, 13), (0x3ffc, 14), (0x22, 6),
    (0x7ffd, 15), (0x3, 5), (0x23, 6), (0x4, 5), (0x24, 6), (0x5, 5), (0x25, 6), (0x26, 6),
    (0x27, 6), (0x6, 5), (0x74, 7), (0x75, 7), (0x28, 6), (0x29, 6), (0x2a, 6), (0x7, 5),
    (0x2b, 6), (0x76, 7), (0x2c, 6), (0x8, 5), (0x9, 5), (0x2d, 6), (0x77, 7), (0x78, 7),
    (0x79, 7), (0x7a, 7), (0x7b, 7), (0x7ffe, 15), (0x7fc, 11), (0x3ffd, 14), (0x1ffd, 13), (0xffffffc, 28),
    (0xfffe6, 20), (0x3fffd2, 22), (0xfffe7, 20), (0xfffe8, 20), (0x3fffd3, 22), (0x3fffd4, 22), (0x3fffd5, 22), (0x7fffd9, 23),
    (0x3fffd6, 22), (0x7fffda, 23), (0x7fffdb, 23), (0x7fffdc, 23), (0x7fffdd, 23), (0x7fffde, 23), (0xffffeb, 24), (0x7fffdf, 23),
    (0xffffec, 24), (0xffffed, 24), (0x3fffd7, 22), (0x7fffe0, 23), (0xffffee, 24), (0x7fffe1, 23), (0x7fffe2, 23), (0x7fffe3, 23),
    (0x7fffe4, 23), (0x1fffdc, 21), (0x3fffd8, 22), (0x7fffe5, 23), (0x3fffd9, 22), (0x7fffe6, 23), (0x7fffe7, 23), (0xffffef, 24),
    (0x3fffda, 22), (0x1fffdd, 21), (0xfffe9, 20), (0x3fffdb, 22), (0x3fffdc, 22), (0x7fffe8, 23), (0x7fffe9, 23), (0x1fffde, 21),
    (0x7fffea, 23), (0x3fffdd, 22), (0x3fffde, 22), (0xfffff0, 24), (0x1fffdf, 21), (0x3fffdf, 22), (0x7fffeb, 23), (0x7fffec, 23),
    (0x1fffe0, 21), (0x1fffe1, 21), (0x3fffe0, 22), (0x1fffe2, 21), (0x7fffed, 23), (0x3fffe1, 22), (0x7fffee, 23), (0x7fffef, 23),
    (0xfffea, 20), (0x3fffe2, 22), (0x3fffe3, 22), (0x3fffe4, 22), (0x7ffff0, 23), (0x3fffe5, 22), (0x3fffe6, 22), (0x7ffff1, 23),
    (0x3ffffe0, 26), (0x3ffffe1, 26), (0xfffeb, 20), (0x7fff1, 19), (0x3fffe7, 22), (0x7ffff2, 23), (0x3fffe8, 22), (0x1ffffec, 25),
    (0x3ffffe2, 26), (0x3ffffe3, 26), (0x3ffffe4, 26), (0x7ffffde, 27), (0x7ffffdf, 27), (0x3ffffe5, 26), (0xfffff1, 24), (0x1ffffed, 25),
    (0x7fff2, 19), (0x1fffe3, 21), (0x3ffffe6, 26), (0x7ffffe0, 27), (0x7ffffe1, 27), (0x3ffffe7, 26), (0x7ffffe2, 27), (0xfffff2, 24),
    (0x1fffe4, 21), (0x1fffe5, 21), (0x3ffffe8, 26), (0x3ffffe9, 26), (0xffffffd, 28), (0x7ffffe3, 27), (0x7ffffe4, 27), (0x7ffffe5, 27),
    (0xfffec, 20), (0xfffff3, 24), (0xfffed, 20), (0x1fffe6, 21), (0x3fffe9, 22), (0x1fffe7, 21), (0x1fffe8, 21), (0x7ffff3, 23),
    (0x3fffea, 22), (0x3fffeb, 22), (0x1ffffee, 25), (0x1ffffef, 25), (0xfffff4, 24), (0xfffff5, 24), (0x3ffffea, 26), (0x7ffff4, 23),
    (0x3ffffeb, 26), (0x7ffffe6, 27), (0x3ffffec, 26), (0x3ffffed, 26), (0x7ffffe7, 27), (0x7ffffe8, 27), (0x7ffffe9, 27), (0x7ffffea, 27),
    (0x7ffffeb, 27), (0xffffffe, 28), (0x7ffffec, 27), (0x7ffffed, 27), (0x7ffffee, 27), (0x7ffffef, 27), (0x7fffff0, 27), (0x3ffffee, 26),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
        let (mut rest, mut room) = (bytes, Vec::new());
        let read = text(&mut rest, 7, &mut room).map(<[u8]>::to_vec);
        assert!(read.is_err() || rest.is_empty());
        read
    }

    #[test]
    fn texts_of_the_rfc_are_read_and_wrong_ones_are_not() {
        // RFC 7541, appendix C.4.1.
        let example = b"\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        assert_eq!(read(example).unwrap(), b"www.example.com");
        assert_eq!(read(b"\x80").unwrap(), b"");
        for wrong in [
            &b""[..],
            b"\x05abc",
            // Padding that is too long, or not of ones; the code of the end.
            b"\x82\x07\xff",
            b"\x81\x00",
            b"\x81\xff",
            b"\x84\xff\xff\xff\xff",
            // A number without end.
            b"\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert_eq!(read(wrong), Err(Malformed), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn the_huffman_code_is_undone(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut bits, mut count, mut coded) = (0_u64, 0, Vec::new());
            for byte in &text {
                let (code, length) = HUFFMAN[usize::from(*byte)];
                bits = bits << length | u64::from(code);
                count += u32::from(length);
                while count >= 8 {
                    count -= 8;
                    coded.push((bits >> count) as u8);
                    bits &= (1 << count) - 1;
                }
            }
            if count > 0 {
                coded.push((bits << (8 - count)) as u8 | ((1_u16 << (8 - count)) - 1) as u8);
            }
            let mut out = Vec::new();
            prop_assert_eq!(expand(&coded, &mut out), Ok(()));
            prop_assert_eq!(out, text);
        }

        #[test]
        fn numbers_and_texts_are_read_as_written(number in 0..1_u64 << 50, bits in 3..8_u32, text in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut out = Vec::new();
            put_integer(&mut out, 0, bits, number);
            prop_assert_eq!(integer(&mut &out[..], bits), Ok(number));
            let mut out = Vec::new();
            put_text(&mut out, 0, 7, &text);
            prop_assert_eq!(read(&out), Ok(text));
        }
    }
}
