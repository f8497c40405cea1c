//! The fields of a head: one buffer with its bytes, and where each name and value is in it.

use alloc::vec::Vec;

use crate::{Error, Name};

/// The fields of a message, in the order of their lines. Names keep their spelling.
///
/// It owns one buffer. Clearing keeps the room, so that a record that is used again allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// All of the head as received, the first line too.
    bytes: Vec<u8>,
    list: Vec<Field>,
    /// The well-known names that occur: a bit each.
    known: u64,
}

/// Where a field is in the buffer. A head is smaller than 4 GiB, a name than 64 KiB: [`crate::Limits`].
#[derive(Clone, Copy, Debug)]
struct Field {
    name: u32,
    value: u32,
    value_len: u32,
    name_len: u16,
    known: Option<Name>,
}

impl Fields {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether there is a field of this name.
    #[must_use]
    pub fn has(&self, name: Name) -> bool {
        self.known & name.bit() != 0
    }

    /// The value of the first field of this name, without white space around it.
    #[must_use]
    pub fn get(&self, name: Name) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The values of all fields of this name.
    pub fn all(&self, name: Name) -> impl Iterator<Item = &[u8]> {
        // Most names that are asked for do not occur: then nothing is searched.
        let list = match self.has(name) {
            true => &self.list[..],
            false => &[],
        };
        list.iter()
            .filter(move |field| field.known == Some(name))
            .map(|field| self.value(field))
    }

    /// The values of all fields of a name that may be any, in any case.
    pub fn named<'f>(&'f self, name: &'f [u8]) -> impl Iterator<Item = &'f [u8]> {
        self.iter()
            .filter(|(_, found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, _, value)| value)
    }

    /// All fields: the well-known name if it is one, the name as received, the value.
    pub fn iter(&self) -> impl Iterator<Item = (Option<Name>, &[u8], &[u8])> {
        self.list
            .iter()
            .map(|field| (field.known, self.name(field), self.value(field)))
    }

    /// The elements of the comma-separated lists in all fields of this name (RFC 9110 §5.6.1), without white space
    /// around them; empty elements are left out. For lists of tokens: a comma in a quoted string divides too.
    pub fn tokens(&self, name: Name) -> impl Iterator<Item = &[u8]> {
        self.all(name)
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|token| !token.is_empty())
    }

    /// Whether one of [`tokens`](Self::tokens) is this one, in any case.
    #[must_use]
    pub fn has_token(&self, name: Name, token: &str) -> bool {
        self.tokens(name)
            .any(|found| found.eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Appends a field of one's own, which is not checked: for a head that is read further, not sent.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        let known = Name::of(name);
        self.known |= known.map_or(0, Name::bit);
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.list.push(Field {
            name: at,
            value: at + name.len() as u32,
            value_len: value.len() as u32,
            // Longer names are cut, so that what follows stays where it is.
            name_len: u16::try_from(name.len()).unwrap_or(u16::MAX),
            known,
        });
    }

    /// Removes all fields of a name, in any case.
    pub fn remove(&mut self, name: &[u8]) {
        let known = Name::of(name);
        if known.is_some_and(|known| !self.has(known)) {
            return;
        }
        let bytes = &self.bytes;
        self.list.retain(|field| {
            let found = &bytes[field.name as usize..][..usize::from(field.name_len)];
            !found.eq_ignore_ascii_case(name)
        });
        self.known &= !known.map_or(0, Name::bit);
    }

    /// Sets a field in place of all of this name, as [`Self::push`] does.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.remove(name);
        self.push(name, value);
    }

    /// The head as received, and behind it the bytes of fields that were added.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets all fields and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.list.clear();
        self.known = 0;
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() + self.list.capacity() * size_of::<Field>()
    }

    /// Gives back all memory.
    pub fn release(&mut self) {
        *self = Fields::default();
    }

    /// Takes a copy of a head whose field lines begin at `start`; its last line is the empty one. `see` is told each
    /// well-known field.
    pub(crate) fn read(
        &mut self,
        head: &[u8],
        start: usize,
        max_fields: usize,
    ) -> Result<(), Error> {
        self.clear();
        // Most heads have fewer fields than this, and an array that is ready costs its size in time.
        let mut few = [httparse::EMPTY_HEADER; FEW];
        let lines = &head[start..];
        let (room, mut many);
        let parsed = match httparse::parse_headers(lines, &mut few) {
            Err(httparse::Error::TooManyHeaders) if max_fields > FEW => {
                // Each field has 4 bytes at least ("a:" and the end of its line).
                room = max_fields.min(lines.len() / 4 + 1);
                many = alloc::vec![httparse::EMPTY_HEADER; room];
                httparse::parse_headers(lines, &mut many)
            }
            parsed => parsed,
        };
        let list = match parsed {
            Ok(httparse::Status::Complete((_, list))) if list.len() > max_fields => {
                return Err(Error::TooManyFields);
            }
            Ok(httparse::Status::Complete((end, list))) if start + end == head.len() => list,
            // The caller has found the end: it was no empty line, or not the first one.
            Ok(_) => return Err(Error::FieldName),
            Err(error) => return Err(why(error, lines)),
        };
        let offset = |part: &[u8]| part.as_ptr().addr() - head.as_ptr().addr();
        self.list.reserve(list.len());
        for field in list {
            let (name, value) = (field.name.as_bytes(), field.value);
            let at = offset(name);
            // The line before this one ends in front of it.
            if at > 0 && !head[..at].ends_with(b"\r\n") {
                return Err(Error::BareLf);
            }
            let known = Name::of(name);
            self.known |= known.map_or(0, Name::bit);
            self.list.push(Field {
                name: at as u32,
                value: match value {
                    // httparse gives an empty value that is nowhere.
                    [] => at as u32,
                    value => offset(value) as u32,
                },
                value_len: value.len() as u32,
                name_len: u16::try_from(name.len()).map_err(|_| Error::FieldName)?,
                known,
            });
        }
        if !head.ends_with(b"\r\n\r\n") && lines != b"\r\n" {
            return Err(Error::BareLf);
        }
        self.bytes.extend_from_slice(head);
        Ok(())
    }

    fn name(&self, field: &Field) -> &[u8] {
        &self.bytes[field.name as usize..][..usize::from(field.name_len)]
    }

    fn value(&self, field: &Field) -> &[u8] {
        &self.bytes[field.value as usize..][..field.value_len as usize]
    }
}

/// What is wrong with field lines that httparse refuses.
#[cold]
fn why(error: httparse::Error, lines: &[u8]) -> Error {
    let is_folded = |line: &[u8]| matches!(line.first(), Some(b' ' | b'\t'));
    match error {
        httparse::Error::TooManyHeaders => Error::TooManyFields,
        httparse::Error::HeaderValue => Error::FieldValue,
        httparse::Error::NewLine => Error::BareCr,
        _ if lines.split(|byte| *byte == b'\n').any(is_folded) => Error::Folded,
        _ => Error::FieldName,
    }
}

/// Fields that a head has room for on the stack while it is read.
const FEW: usize = 32;
