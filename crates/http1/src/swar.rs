//! Bytes compared eight at a time, in one number ("SIMD within a register"): a head is read in a few steps a line, without
//! a call for each short name and value.

const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES << 7;

/// Where the first byte of this value is.
pub(crate) fn position_of(byte: u8, bytes: &[u8]) -> Option<usize> {
    let wanted = ONES * u64::from(byte);
    let mut count = 0;
    let mut pieces = bytes.chunks_exact(8);
    for piece in &mut pieces {
        let other = number(piece) ^ wanted;
        // The lowest bit that is set belongs to the first byte that is zero; those above may be wrong.
        let found = other.wrapping_sub(ONES) & !other & HIGH;
        if found != 0 {
            return Some(count + first(found));
        }
        count += 8;
    }
    let rest = pieces.remainder().iter();
    Some(count + rest.clone().position(|found| *found == byte)?)
}

/// How many bytes of text these begin with: all but control characters, and tabs (RFC 9110 §5.5).
pub(crate) fn text(bytes: &[u8]) -> usize {
    let mut count = from(b' ', bytes);
    while bytes.get(count) == Some(&b'\t') {
        count += 1;
        count += from(b' ', &bytes[count..]);
    }
    count
}

/// How many bytes these begin with that are neither control characters nor spaces.
pub(crate) fn visible(bytes: &[u8]) -> usize {
    from(b'!', bytes)
}

/// How many bytes these begin with that are not below `least`, and not the last control character.
#[inline]
fn from(least: u8, bytes: &[u8]) -> usize {
    let mut count = 0;
    let mut pieces = bytes.chunks_exact(8);
    for piece in &mut pieces {
        let piece = number(piece);
        let delete = piece ^ (ONES * 0x7f);
        let low = piece.wrapping_sub(ONES * u64::from(least)) & !piece;
        let found = (low | (delete.wrapping_sub(ONES) & !delete)) & HIGH;
        if found != 0 {
            return count + first(found);
        }
        count += 8;
    }
    let rest = pieces.remainder().iter();
    count
        + rest
            .take_while(|byte| **byte >= least && **byte != 0x7f)
            .count()
}

/// Whether a field name is this well-known one, which has letters, digits and dashes, in any case.
pub(crate) fn is_same_name(name: &[u8], known: &[u8]) -> bool {
    /// The bit in which letters differ from their other case, of bytes that are letters.
    const fn cases(known: u64) -> u64 {
        (known & (ONES << 6)) >> 1
    }
    let length = known.len();
    if name.len() != length {
        return false;
    }
    let differs = |one: u64, known: u64| (one ^ known) & !cases(known) != 0;
    if length >= 8 {
        let mut at = 0;
        while at < length {
            // The last step begins earlier, so that it ends with the name.
            let begin = at.min(length - 8);
            if differs(
                number(&name[begin..begin + 8]),
                number(&known[begin..begin + 8]),
            ) {
                return false;
            }
            at += 8;
        }
        return true;
    }
    let pairs = name.iter().zip(known);
    pairs.fold(true, |same, (one, known)| {
        same & !differs(u64::from(*one), u64::from(*known))
    })
}

/// Eight bytes, the first one lowest.
fn number(eight: &[u8]) -> u64 {
    eight.try_into().map_or(0, u64::from_le_bytes)
}

/// The first byte of which the highest bit is set.
fn first(found: u64) -> usize {
    found.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => Just(b'a'), 1 => Just(b'\t'), 1 => Just(b':'), 1 => Just(0x7f), 1 => Just(b'\r'), 1 => Just(0x80), 1 => any::<u8>(),
        ];
        prop::collection::vec(byte, 0..40)
    }

    proptest! {
        #[test]
        fn eight_at_a_time_finds_what_one_at_a_time_finds(bytes in bytes(), name in "[A-Za-z0-9-]{0,20}", changes in any::<u64>()) {
            let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
            prop_assert_eq!(text(&bytes), bytes.iter().take_while(|byte| is_text(byte)).count());
            let is_visible = |byte: &u8| *byte > b' ' && *byte != 0x7f;
            prop_assert_eq!(visible(&bytes), bytes.iter().take_while(|byte| is_visible(byte)).count());
            for wanted in [b':', b'a', 0, 0x80, 0xff] {
                let found = bytes.iter().position(|byte| *byte == wanted);
                prop_assert_eq!(position_of(wanted, &bytes), found);
            }
            let name = name.as_bytes();
            let changed = |bit: u8| -> Vec<u8> {
                let each = name.iter().enumerate();
                each.map(|(at, byte)| byte ^ if changes >> at & 1 == 1 { bit } else { 0 }).collect()
            };
            for bit in [0x01, 0x20, 0x40, 0x80] {
                let other = changed(bit);
                prop_assert_eq!(is_same_name(&other, name), other.eq_ignore_ascii_case(name));
            }
        }
    }
}
