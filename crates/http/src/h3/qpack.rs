//! QPACK (RFC 9204) with its static table only: no table to keep, nothing that a client can make weir hold.

use std::{collections::HashMap, sync::OnceLock};

use super::tables::STATIC;
use crate::multiplex::literals::{Malformed, integer, put_integer, put_text, text};

/// Reads a head, and gives its fields: name and value. `is_cut`: it is the beginning of one, and the last value may be cut.
///
/// # Errors
///
/// It is no QPACK, or refers to a table entry that does not exist: the connection must end.
pub(super) fn decode(
    mut block: &[u8],
    is_cut: bool,
    mut field: impl FnMut(&[u8], &[u8]),
) -> Result<(), Malformed> {
    let bytes = &mut block;
    // There is no dynamic table, so none of its entries can be required.
    if integer(bytes, 8)? != 0 {
        return Err(Malformed);
    }
    // So the base must not be negative (RFC 9204 §4.5.1.2).
    if bytes.first().is_some_and(|base| base & NEGATIVE != 0) {
        return Err(Malformed);
    }
    integer(bytes, 7)?;
    let mut rooms = (Vec::new(), Vec::new());
    while let Some(first) = bytes.first().copied() {
        match first {
            0xc0.. => {
                let (name, value) = entry(integer(bytes, 6)?)?;
                field(name.as_bytes(), value.as_bytes());
            }
            0x50..=0x5f | 0x70..=0x7f => {
                let (name, _) = entry(integer(bytes, 4)?)?;
                let value = text_or_begin(bytes, &mut rooms.1, is_cut)?;
                field(name.as_bytes(), value);
            }
            0x20..=0x3f => {
                let name = text(bytes, 3, &mut rooms.0)?;
                field(name, text_or_begin(bytes, &mut rooms.1, is_cut)?);
            }
            // Entries of the dynamic table.
            _ => return Err(Malformed),
        }
    }
    Ok(())
}

/// A value, or its first part.
fn text_or_begin<'r, 'b: 'r>(
    bytes: &mut &'b [u8],
    room: &'r mut Vec<u8>,
    is_cut: bool,
) -> Result<&'r [u8], Malformed> {
    match text(bytes, 7, room) {
        Err(Malformed) if is_cut => Ok(std::mem::take(bytes)),
        read => read,
    }
}

/// Begins a head.
pub(super) fn begin(out: &mut Vec<u8>) {
    // The head needs no entries of a dynamic table, and no base.
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

fn entry(index: u64) -> Result<(&'static str, &'static str), Malformed> {
    let entry = usize::try_from(index).ok().and_then(|at| STATIC.get(at));
    entry.copied().ok_or(Malformed)
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

/// The sign of a base.
const NEGATIVE: u8 = 0x80;

/// Size of a field in addition to its name and value, bytes.
pub(super) const FIELD: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
        digits.chunks(2).map(|pair| byte(pair).unwrap()).collect()
    }

    fn shown(block: &str) -> Result<String, Malformed> {
        let mut fields = Vec::new();
        decode(&hex(block), false, |name, value| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            fields.push(format!("{}={}", text(name), text(value)));
        })?;
        Ok(fields.join("|"))
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
    fn what_is_no_qpack_is_refused() {
        for wrong in [
            "",
            "00",
            "0100",
            // A base before the first entry.
            "0080 c1",
            // Entries of a dynamic table, and entries that do not exist.
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
            assert_eq!(shown(wrong), Err(Malformed), "{wrong}");
        }
    }
}
