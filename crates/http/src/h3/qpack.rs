//! QPACK (RFC 9204) with its static table only: no table to keep, nothing that a client can make weir hold.

use std::{collections::HashMap, sync::OnceLock};

use super::tables::{HUFFMAN, STATIC};

/// A field of a head: name and value.
pub(super) type Field = (Vec<u8>, Vec<u8>);

/// Why a head cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It is no QPACK, or refers to what is not there: the connection cannot go on.
    Malformed,
    /// Its fields are larger than the limit, or too many.
    TooLarge,
    /// Its target alone is.
    TargetTooLong,
}

/// How large a head may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Most {
    /// What its fields count: the bytes of name and value, and 32 (RFC 9114 §4.2.2).
    pub(super) bytes: u64,
    /// Its fields, besides those of pseudo-headers.
    pub(super) fields: usize,
}

/// Reads a head. It stops at the first field that is too much.
pub(super) fn decode(mut block: &[u8], most: Most) -> Result<Vec<Field>, Wrong> {
    let bytes = &mut block;
    // There is no dynamic table, so none of its entries can be required.
    if integer(bytes, 8)? != 0 {
        return Err(Wrong::Malformed);
    }
    // So the base must not be before it (RFC 9204 §4.5.1.2).
    if bytes.first().is_some_and(|base| base & NEGATIVE != 0) {
        return Err(Wrong::Malformed);
    }
    integer(bytes, 7)?;
    let (mut fields, mut size) = (Vec::new(), 0);
    while let Some(first) = bytes.first().copied() {
        let field = match first {
            0xc0.. => {
                let (name, value) = entry(integer(bytes, 6)?)?;
                (name.into(), value.into())
            }
            0x50..=0x5f | 0x70..=0x7f => {
                let (name, _) = entry(integer(bytes, 4)?)?;
                (name.into(), value_of(name.as_bytes(), bytes, most)?)
            }
            0x20..=0x3f => {
                let name = text(bytes, 3, most.bytes)?;
                let value = value_of(&name, bytes, most)?;
                (name, value)
            }
            // Entries of the dynamic table.
            _ => return Err(Wrong::Malformed),
        };
        size += (field.0.len() + field.1.len()) as u64 + FIELD;
        if size > most.bytes || fields.len() >= most.fields.saturating_add(PSEUDO) {
            return Err(Wrong::TooLarge);
        }
        fields.push(field);
    }
    Ok(fields)
}

/// The value of a field of this name.
fn value_of(name: &[u8], bytes: &mut &[u8], most: Most) -> Result<Vec<u8>, Wrong> {
    text(bytes, 7, most.bytes).map_err(|wrong| match wrong {
        Wrong::TooLarge if name == b":path" => Wrong::TargetTooLong,
        wrong => wrong,
    })
}

/// Begins a head.
pub(super) fn begin(out: &mut Vec<u8>) {
    // Neither entries of a dynamic table nor a base.
    out.extend_from_slice(&[0, 0]);
}

/// Adds a field to a head. `name` is in lower case.
pub(super) fn put(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let known = known().get(name);
    let same = |index: &&u8| STATIC[usize::from(**index)].1.as_bytes() == value;
    match known.map(|indices| (indices, indices.iter().find(same))) {
        Some((_, Some(index))) => put_integer(out, 0xc0, 6, u64::from(*index)),
        Some((indices, None)) => {
            put_integer(out, 0x50, 4, u64::from(indices[0]));
            put_text(out, 0, 7, value);
        }
        None => {
            put_text(out, 0x20, 3, name);
            put_text(out, 0, 7, value);
        }
    }
}

fn entry(index: u64) -> Result<(&'static str, &'static str), Wrong> {
    let entry = usize::try_from(index).ok().and_then(|at| STATIC.get(at));
    entry.copied().ok_or(Wrong::Malformed)
}

/// The indices of each name in the static table.
fn known() -> &'static HashMap<&'static [u8], Vec<u8>> {
    static KNOWN: OnceLock<HashMap<&'static [u8], Vec<u8>>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let mut known: HashMap<&[u8], Vec<u8>> = HashMap::new();
        for (index, (name, _)) in (0..).zip(&STATIC) {
            known.entry(name.as_bytes()).or_default().push(index);
        }
        known
    })
}

/// A number whose first part is in the last `bits` of a byte (RFC 7541 §5.1).
pub(super) fn integer(bytes: &mut &[u8], bits: u32) -> Result<u64, Wrong> {
    let (first, mut rest) = bytes.split_first().ok_or(Wrong::Malformed)?;
    let mask = ((1_u16 << bits) - 1) as u8;
    let mut value = u64::from(first & mask);
    if first & mask == mask {
        for shift in (0..).step_by(7) {
            let (byte, behind) = rest.split_first().ok_or(Wrong::Malformed)?;
            rest = behind;
            if shift > 49 {
                return Err(Wrong::Malformed);
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

fn put_integer(out: &mut Vec<u8>, flags: u8, bits: u32, value: u64) {
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

/// A text whose length has `bits`, and before these a bit that says whether it has the Huffman code.
fn text(bytes: &mut &[u8], bits: u32, most: u64) -> Result<Vec<u8>, Wrong> {
    let first = *bytes.first().ok_or(Wrong::Malformed)?;
    let length = integer(bytes, bits)?;
    if length > most {
        return Err(Wrong::TooLarge);
    }
    let (text, rest) = bytes
        .split_at_checked(length as usize)
        .ok_or(Wrong::Malformed)?;
    *bytes = rest;
    match first & (1 << bits) {
        0 => Ok(text.into()),
        _ => expand(text, most),
    }
}

/// Texts are sent as they are: it costs less time than the Huffman code saves.
fn put_text(out: &mut Vec<u8>, flags: u8, bits: u32, text: &[u8]) {
    put_integer(out, flags, bits, text.len() as u64);
    out.extend_from_slice(text);
}

/// The Huffman code as a tree: two children of each node. Those below [`BYTES`] are bytes, the others nodes.
fn tree() -> &'static [[u16; 2]] {
    static TREE: OnceLock<Vec<[u16; 2]>> = OnceLock::new();
    TREE.get_or_init(|| {
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
        nodes
    })
}

fn expand(text: &[u8], most: u64) -> Result<Vec<u8>, Wrong> {
    let tree = tree();
    let mut out = Vec::with_capacity(text.len() * 3 / 2);
    let (mut node, mut depth, mut is_padding) = (0, 0, true);
    for byte in text {
        for bit in (0..8).rev() {
            let side = usize::from(byte >> bit & 1);
            is_padding &= side == 1;
            depth += 1;
            match tree[node][side] {
                // The end of a string must not be coded.
                NONE => return Err(Wrong::Malformed),
                byte @ 0..BYTES => {
                    out.push(byte as u8);
                    (node, depth, is_padding) = (0, 0, true);
                }
                next => node = usize::from(next - BYTES),
            }
        }
        if out.len() as u64 > most {
            return Err(Wrong::TooLarge);
        }
    }
    // At the end are at most 7 bits, all of them ones (RFC 7541 §5.2).
    match depth < 8 && is_padding {
        true => Ok(out),
        false => Err(Wrong::Malformed),
    }
}

/// The sign of a base.
const NEGATIVE: u8 = 0x80;

const BYTES: u16 = 256;
const NONE: u16 = u16::MAX;

/// What a field counts besides its name and value, bytes.
pub(super) const FIELD: u64 = 32;

/// Pseudo-headers of a request (RFC 9114 §4.3.1).
const PSEUDO: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
        digits.chunks(2).map(|pair| byte(pair).unwrap()).collect()
    }

    fn most(bytes: u64) -> Most {
        let fields = 100;
        Most { bytes, fields }
    }

    fn shown(block: &str) -> Result<String, Wrong> {
        let fields = decode(&hex(block), most(10_000))?;
        let show = |(name, value): &Field| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            format!("{}={}", text(name), text(value))
        };
        Ok(fields.iter().map(show).collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn examples_of_the_rfcs_are_read() {
        // RFC 9204, appendix B.1.
        let path = "0000 510b 2f69 6e64 6578 2e68 746d 6c";
        assert_eq!(shown(path).unwrap(), ":path=/index.html");
        // The Huffman code: RFC 7541, appendix C.4.1 and C.4.3.
        let authority = "0000 508c f1e3 c2e5 f23a 6ba0 ab90 f4ff";
        assert_eq!(shown(authority).unwrap(), ":authority=www.example.com");
        let literal = "0000 2f01 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf";
        assert_eq!(shown(literal).unwrap(), "custom-key=custom-value");
        let indexed = "0000 d1 d7 c1 ff23";
        let expected = ":method=GET|:scheme=https|:path=/|x-frame-options=sameorigin";
        assert_eq!(shown(indexed).unwrap(), expected);
    }

    #[test]
    fn fields_are_counted_while_they_are_read() {
        // A pseudo-header, then as many fields as may be, then one whose bytes never come.
        let (get, field) = ([0xd1], [0xc5]);
        let block = |count: usize| [&[0, 0], &get[..], &field.repeat(count)].concat();
        assert_eq!(decode(&block(100), most(1 << 20)).unwrap().len(), 101);
        let endless = [&block(104)[..], &[0x2f]].concat();
        assert_eq!(decode(&endless, most(1 << 20)), Err(Wrong::TooLarge));
        assert_eq!(decode(&endless[..100], most(1 << 20)).unwrap().len(), 98);
        // A target that is longer than all of a head may be, before its bytes have come.
        assert_eq!(
            decode(&hex("0000 517f ff ff 03"), most(1000)),
            Err(Wrong::TargetTooLong)
        );
        assert_eq!(
            decode(&hex("0000 507f ff ff 03"), most(1000)),
            Err(Wrong::TooLarge)
        );
    }

    #[test]
    fn what_is_no_qpack_is_refused() {
        for wrong in [
            "",
            "00",
            "0100",
            // A base before the first entry.
            "0080 c1",
            // The dynamic table, and entries that are not there.
            "0000 80",
            "0000 10",
            "0000 00",
            "0000 4000",
            "0000 ff25",
            // Cut.
            "0000 51",
            "0000 5105 61",
            // Padding that is too long, or not of ones; the code of the end.
            "0000 5182 07ff",
            "0000 5181 00",
            "0000 5184 ffff ffff",
            // A number without end.
            "0000 ffff ffff ffff ffff ffff ffff ff01",
        ] {
            assert_eq!(shown(wrong), Err(Wrong::Malformed), "{wrong}");
        }
        let two = hex("0000 c1 c1");
        assert_eq!(decode(&two, most(75)), Err(Wrong::TooLarge));
        assert_eq!(decode(&two, most(76)).unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(fields in prop::collection::vec(("[a-z-]{1,20}", prop::collection::vec(any::<u8>(), 0..300)), 0..20)) {
            let mut block = Vec::new();
            begin(&mut block);
            for (name, value) in &fields {
                put(&mut block, name.as_bytes(), value);
            }
            let read = decode(&block, most(1 << 20)).unwrap();
            let fields: Vec<Field> = fields.into_iter().map(|(name, value)| (name.into_bytes(), value)).collect();
            prop_assert_eq!(read, fields);
        }

        #[test]
        fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes, most(1000));
        }

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
            prop_assert_eq!(expand(&coded, 1 << 20).unwrap(), text);
        }
    }
}
