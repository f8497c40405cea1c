//! HPACK (RFC 7541). What clients send may use a dynamic table; what weir sends uses the static one only.

use std::{cell::RefCell, collections::VecDeque};

use weir_http1::Name;

use crate::multiplex::literals::{Malformed, integer, put_integer, put_text, text};

/// Reads heads, and keeps the fields that later ones refer to.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The dynamic table, the newest entry first.
    entries: VecDeque<Entry>,
    /// Its size as RFC 7541 §4.1 counts it, and how large it may become.
    size: usize,
    most: usize,
}

/// A field of the dynamic table: its name and behind that its value.
#[derive(Debug)]
struct Entry {
    text: Box<[u8]>,
    name: usize,
}

thread_local! {
    /// Room for names and values that have the Huffman code.
    static ROOMS: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl Decoder {
    pub(super) fn new() -> Decoder {
        Decoder {
            entries: VecDeque::new(),
            size: 0,
            most: TABLE,
        }
    }

    /// Reads a head, and gives its fields: name and value.
    ///
    /// # Errors
    ///
    /// It is no HPACK, or refers to a table entry that does not exist: the connection must end.
    pub(super) fn decode(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Malformed> {
        ROOMS.with_borrow_mut(|rooms| {
            let read = self.read(block, rooms, &mut field);
            if rooms.0.capacity() + rooms.1.capacity() > KEPT_ROOM {
                *rooms = Default::default();
            }
            read
        })
    }

    fn read(
        &mut self,
        mut block: &[u8],
        rooms: &mut (Vec<u8>, Vec<u8>),
        field: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Malformed> {
        let bytes = &mut block;
        let mut is_first = true;
        while let Some(first) = bytes.first().copied() {
            match first {
                0x80.. => {
                    let (name, value) = self.entry(integer(bytes, 7)?)?;
                    field(name, value);
                }
                // Updates of the table's size stand before all fields (RFC 7541 §4.2).
                0x20..0x40 => {
                    let most = integer(bytes, 5)?;
                    if !is_first || most > TABLE as u64 {
                        return Err(Malformed);
                    }
                    self.most = most as usize;
                    self.make_room(0);
                    continue;
                }
                _ => {
                    let is_kept = first >= 0x40;
                    let name = match integer(bytes, if is_kept { 6 } else { 4 })? {
                        0 => text(bytes, 7, &mut rooms.0)?,
                        index => self.entry(index)?.0,
                    };
                    let value = text(bytes, 7, &mut rooms.1)?;
                    field(name, value);
                    if is_kept {
                        let entry = Entry {
                            text: [name, value].concat().into(),
                            name: name.len(),
                        };
                        self.insert(entry);
                    }
                }
            }
            is_first = false;
        }
        Ok(())
    }

    fn entry(&self, index: u64) -> Result<(&[u8], &[u8]), Malformed> {
        let index = usize::try_from(index).map_err(|_| Malformed)?;
        let at = index.checked_sub(1).ok_or(Malformed)?;
        if let Some((name, value)) = STATIC.get(at) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let entry = self.entries.get(at - STATIC.len()).ok_or(Malformed)?;
        Ok(entry.text.split_at(entry.name))
    }

    fn insert(&mut self, entry: Entry) {
        let size = entry.text.len() + FIELD;
        self.make_room(size);
        // An entry that is larger than the table empties the table. This is no error.
        if size <= self.most {
            self.size += size;
            self.entries.push_front(entry);
        }
    }

    fn make_room(&mut self, size: usize) {
        while self.size + size > self.most
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.text.len() + FIELD;
        }
    }
}

#[cfg(any(test, feature = "checks"))]
impl Decoder {
    /// Whether the table has the size that it counts, and that is allowed.
    pub(super) fn has_room(&self) -> bool {
        let sizes = self.entries.iter().map(|entry| entry.text.len() + FIELD);
        self.size == sizes.sum::<usize>() && self.size <= self.most
    }
}

/// Begins a head, if weir's table is to become smaller: it has none.
pub(super) fn put_no_table(out: &mut Vec<u8>) {
    out.push(0x20);
}

/// Adds the status.
pub(super) fn put_status(out: &mut Vec<u8>, status: &str) {
    let mut known = (8..).zip(&STATIC[7..14]);
    match known.find(|(_, (_, value))| *value == status) {
        Some((index, _)) => out.push(0x80 | index),
        None => {
            put_integer(out, 0, 4, STATUS);
            put_text(out, 0, 7, status.as_bytes());
        }
    }
}

/// Adds a field. `name` is in lower case, and `known` identifies it.
pub(super) fn put(out: &mut Vec<u8>, known: Option<Name>, name: &[u8], value: &[u8]) {
    match known.map_or(0, |known| INDICES[known as usize]) {
        0 => {
            out.push(0);
            put_text(out, 0, 7, name);
        }
        index => put_integer(out, 0, 4, index.into()),
    }
    put_text(out, 0, 7, value);
}

/// Where each well-known name is in the static table; 0: it is not.
static INDICES: [u8; Name::ALL.len()] = {
    let mut indices = [0; Name::ALL.len()];
    let mut number = 0;
    while number < Name::ALL.len() {
        let name = Name::ALL[number].as_str().as_bytes();
        let mut at = 0;
        while at < STATIC.len() && indices[number] == 0 {
            if is_same(name, STATIC[at].0.as_bytes()) {
                indices[number] = at as u8 + 1;
            }
            at += 1;
        }
        number += 1;
    }
    indices
};

/// Whether a name is this one, which is in lower case.
const fn is_same(name: &[u8], lower: &[u8]) -> bool {
    if name.len() != lower.len() {
        return false;
    }
    let mut at = 0;
    while at < name.len() && name[at].to_ascii_lowercase() == lower[at] {
        at += 1;
    }
    at == name.len()
}

/// The size of the dynamic table, which weir does not change (RFC 9113 §6.5.2).
const TABLE: usize = 4096;

/// Size of a field in addition to its name and value, bytes.
pub(super) const FIELD: usize = 32;

/// The index of `:status`.
const STATUS: u64 = 8;

/// More room than this is not kept.
const KEPT_ROOM: usize = 64 * 1024;

/// Names and values (RFC 7541, appendix A).
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"), (":scheme", "http"),
    (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"),
    (":status", "404"), (":status", "500"), ("accept-charset", ""), ("accept-encoding", "gzip, deflate"), ("accept-language", ""),
    ("accept-ranges", ""), ("accept", ""), ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""),
    ("cache-control", ""), ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""), ("expect", ""),
    ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""), ("max-forwards", ""),
    ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""), ("referer", ""), ("refresh", ""), ("retry-after", ""),
    ("server", ""), ("set-cookie", ""), ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""),
    ("via", ""), ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
        digits.chunks(2).map(|pair| byte(pair).unwrap()).collect()
    }

    fn shown(decoder: &mut Decoder, block: &[u8]) -> Result<String, Malformed> {
        let mut fields = Vec::new();
        decoder.decode(block, |name, value| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            fields.push(format!("{}={}", text(name), text(value)));
        })?;
        Ok(fields.join("|"))
    }

    /// RFC 7541, appendix C.4 and C.6, whose table has 256 bytes.
    #[test]
    fn examples_of_the_rfc_are_read() {
        let mut decoder = Decoder::new();
        let get = ":method=GET|:scheme=http|:path=/|:authority=www.example.com";
        for (block, fields, size) in [
            (
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                get.to_owned(),
                57,
            ),
            (
                "8286 84be 5886 a8eb 1064 9cbf",
                format!("{get}|cache-control=no-cache"),
                110,
            ),
            (
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
                format!(
                    "{}|custom-key=custom-value",
                    get.replace("=http|", "=https|")
                        .replace("=/|", "=/index.html|")
                ),
                164,
            ),
        ] {
            assert_eq!(shown(&mut decoder, &hex(block)), Ok(fields));
            assert_eq!(decoder.size, size);
        }
        let mut decoder = Decoder::new();
        assert_eq!(shown(&mut decoder, &hex("3fe101")), Ok(String::new()));
        assert_eq!(decoder.most, 256);
        for (block, fields, size) in [
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e
                 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                ":status=302|cache-control=private|date=Mon, 21 Oct 2013 20:13:21 GMT|location=https://www.example.com",
                222,
            ),
            (
                "4883 640e ffc1 c0bf",
                ":status=307|cache-control=private|date=Mon, 21 Oct 2013 20:13:21 GMT|location=https://www.example.com",
                222,
            ),
        ] {
            assert_eq!(shown(&mut decoder, &hex(block)).as_deref(), Ok(fields));
            assert_eq!(decoder.size, size);
        }
    }

    #[test]
    fn the_table_has_a_size_and_what_is_wrong_is_no_head() {
        let mut decoder = Decoder::new();
        let long = |name: &str, length: usize| {
            let mut block = vec![0x40];
            put_text(&mut block, 0, 7, name.as_bytes());
            put_text(&mut block, 0, 7, &vec![b'x'; length]);
            block
        };
        let has = |decoder: &mut Decoder, index: u8| shown(decoder, &[0x80 | index]).is_ok();
        decoder.decode(&long("a", 3000), |_, _| ()).unwrap();
        decoder.decode(&long("b", 1100), |_, _| ()).unwrap();
        assert!(has(&mut decoder, 62) && !has(&mut decoder, 64));
        assert_eq!((decoder.size, decoder.entries.len()), (1133, 1));
        // An entry that does not fit empties the table.
        decoder.decode(&long("c", 5000), |_, _| ()).unwrap();
        assert_eq!((decoder.size, decoder.entries.len()), (0, 0));
        decoder.decode(&long("d", 100), |_, _| ()).unwrap();
        shown(&mut decoder, &[0x20, 0x3f, 0x40, 0x82]).unwrap();
        assert_eq!((decoder.most, decoder.entries.len()), (95, 0));
        for wrong in [
            "80",
            "be",
            "ff",
            "c0ff",
            "40",
            "4001",
            "400161",
            "40016105",
            "0f",
            "82 20",
            "3fe2 1f",
            "3fff ffff ffff ffff ffff ffff 01",
        ] {
            assert_eq!(shown(&mut decoder, &hex(wrong)), Err(Malformed), "{wrong}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut block = Vec::new();
        put_no_table(&mut block);
        let mut expected = Vec::new();
        for status in ["200", "404", "500", "201", "103", "999"] {
            put_status(&mut block, status);
            expected.push(format!(":status={status}"));
        }
        for name in Name::ALL {
            let text = name.as_str().to_ascii_lowercase();
            put(&mut block, Some(*name), text.as_bytes(), b"a");
            put(&mut block, None, text.as_bytes(), &[b'b'; 200]);
            expected.push(format!("{text}=a|{text}={}", "b".repeat(200)));
        }
        let read = shown(&mut Decoder::new(), &block);
        assert_eq!(read.unwrap(), expected.join("|"));
        assert_eq!(INDICES[Name::ContentType as usize], 31);
        assert_eq!(INDICES[Name::WwwAuthenticate as usize], 61);
    }
}
