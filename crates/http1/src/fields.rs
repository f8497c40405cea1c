//! The fields of a head: one buffer with its bytes, and where each name and value is in it.

use alloc::vec::Vec;

use crate::{Error, Limits, Name, head::is_token, swar};

/// The fields of a message, in the order of their lines. Names keep their spelling.
///
/// It owns one buffer. Clearing keeps the room, so that a record that is used again allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct ParsedFields {
    /// All of the head as received, the first line too.
    bytes: Vec<u8>,
    list: Vec<Field>,
    /// The well-known names that occur: a bit each.
    known: u64,
    first: First,
}

/// For each well-known name that occurs: the number of its first field, 255 at most. The search begins there.
#[derive(Clone, Copy, Debug)]
struct First([u8; Name::ALL.len()]);

impl Default for First {
    fn default() -> First {
        First([0; Name::ALL.len()])
    }
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

impl ParsedFields {
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

    /// Whether there is a field of one of these names. Costs one comparison for names that are known when it is compiled.
    #[must_use]
    #[inline]
    pub fn has_any(&self, names: &[Name]) -> bool {
        let set = names.iter().fold(0, |set, name| set | name.bit());
        self.known & set != 0
    }

    /// The value of the first field of this name, without white space around it.
    #[must_use]
    pub fn get(&self, name: Name) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The values of all fields of this name.
    pub fn all(&self, name: Name) -> impl Iterator<Item = &[u8]> {
        // Most of the requested names do not occur. Then the list is not searched.
        let list = match self.has(name) {
            true => self.list.get(usize::from(self.first.0[name as usize])..),
            false => None,
        };
        list.unwrap_or_default()
            .iter()
            .filter(move |field| field.known == Some(name))
            .map(|field| self.value(field))
    }

    /// The values of all fields of any name, in any case.
    pub fn named<'f>(&'f self, name: &'f [u8]) -> impl Iterator<Item = &'f [u8]> {
        self.iter()
            .filter(|(_, found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, _, value)| value)
    }

    /// The value of the first field of this name, in any case, which must not be a well-known one.
    #[must_use]
    pub fn get_other(&self, name: &[u8]) -> Option<&[u8]> {
        let mut others = self.list.iter().filter(|field| field.known.is_none());
        let found = others.find(|field| self.name(field).eq_ignore_ascii_case(name))?;
        Some(self.value(found))
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

    /// Removes all fields. `line`, the target of a request, is stored before the fields that are added.
    pub fn begin(&mut self, line: &[u8]) {
        self.clear();
        self.bytes.extend_from_slice(line);
    }

    /// Appends a field without a check: for a head that is processed further, not sent.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        let known = Name::of(name);
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.add(Field {
            name: at,
            value: at + name.len() as u32,
            value_len: value.len() as u32,
            // Longer names are cut. The positions of the value and of later fields do not change.
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
        self.known = 0;
        for at in 0..self.list.len() {
            self.note(at);
        }
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
        *self = ParsedFields::default();
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
        let lines = &head[start..];
        // Each field has 4 bytes at least ("a:" and the end of its line).
        let room = max_fields.min(lines.len() / 4 + 1);
        let mut room = alloc::vec![httparse::EMPTY_HEADER; room];
        let list = match httparse::parse_headers(lines, &mut room) {
            Ok(httparse::Status::Complete((end, list))) if start + end == head.len() => list,
            // httparse and the caller disagree about the end: there is no empty line, or an earlier one.
            Ok(_) => return Err(Error::FieldName),
            Err(error) => return Err(why(error, lines)),
        };
        let offset = |part: &[u8]| part.as_ptr().addr() - head.as_ptr().addr();
        self.list.reserve(list.len());
        for field in list {
            let (name, value) = (field.name.as_bytes(), field.value);
            let at = offset(name);
            // The previous line must end directly before this one.
            if at > 0 && !head[..at].ends_with(b"\r\n") {
                return Err(Error::BareLf);
            }
            let known = Name::of(name);
            self.add(Field {
                name: at as u32,
                value: match value {
                    // httparse gives an empty value outside the buffer.
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

    /// As [`Self::read`], of the head that these bytes begin with, if its lines are as nearly all programs write them.
    /// Returns where it ends; `None`: the head is incomplete, larger than the limits, or unusual. Then [`Self::read`]
    /// reads it, or tells the mistake. This function never accepts a head that [`Self::read`] refuses.
    pub(crate) fn read_plain(
        &mut self,
        bytes: &[u8],
        start: usize,
        limits: &Limits,
    ) -> Option<usize> {
        self.clear();
        let mut at = start;
        loop {
            let lines = bytes.get(at..)?;
            if lines.starts_with(b"\r\n") {
                let end = at + 2;
                self.bytes.extend_from_slice(&bytes[..end]);
                return (end <= limits.head()).then_some(end);
            }
            let colon = swar::position_of(b':', lines)?;
            let name = &lines[..colon];
            let known = Name::of(name);
            // A well-known name is a token.
            if known.is_none() && (name.is_empty() || !name.iter().copied().all(is_token)) {
                return None;
            }
            let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
            let mut value = colon + 1;
            while is_blank(lines.get(value)?) {
                value += 1;
            }
            let line = value + swar::text(&lines[value..]);
            if !lines[line..].starts_with(b"\r\n") || self.list.len() == limits.fields as usize {
                return None;
            }
            let mut end = line;
            while end > value && is_blank(&lines[end - 1]) {
                end -= 1;
            }
            self.add(Field {
                name: at as u32,
                value: (at + value) as u32,
                value_len: (end - value) as u32,
                name_len: u16::try_from(colon).ok()?,
                known,
            });
            at += line + 2;
        }
    }

    fn add(&mut self, field: Field) {
        self.list.push(field);
        self.note(self.list.len() - 1);
    }

    /// Notes the name of the field of this number, of which no earlier field has that name or it was noted before.
    fn note(&mut self, at: usize) {
        if let Some(name) = self.list[at].known
            && !self.has(name)
        {
            self.known |= name.bit();
            self.first.0[name as usize] = u8::try_from(at).unwrap_or(u8::MAX);
        }
    }

    fn name(&self, field: &Field) -> &[u8] {
        &self.bytes[field.name as usize..][..usize::from(field.name_len)]
    }

    fn value(&self, field: &Field) -> &[u8] {
        &self.bytes[field.value as usize..][..field.value_len as usize]
    }
}

/// The mistake in field lines that httparse refuses.
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{string::String, vec};
    use proptest::prelude::*;

    type Listed = Vec<(Option<Name>, Vec<u8>, Vec<u8>)>;

    fn listed(fields: &ParsedFields) -> Listed {
        let owned = |(known, name, value): (Option<Name>, &[u8], &[u8])| {
            (known, name.to_vec(), value.to_vec())
        };
        fields.iter().map(owned).collect()
    }

    /// The fields as both readers see them; `None`: the reader refuses them.
    fn both(lines: &[u8], max: u32) -> (Option<Listed>, Option<Listed>) {
        let (mut plain, mut any) = (ParsedFields::default(), ParsedFields::default());
        let limits = Limits {
            fields: max,
            ..Limits::default()
        };
        let end = plain.read_plain(lines, 0, &limits);
        let head = &lines[..end.unwrap_or(lines.len())];
        let is_any = any.read(head, 0, max as usize).is_ok();
        (end.map(|_| listed(&plain)), is_any.then(|| listed(&any)))
    }

    #[test]
    fn lines_of_most_clients_are_plain() {
        let lines = b"Host: a\r\nX:\t b c \t\r\nAccept:*/*\r\nUser-Agent: \"long enough for two steps\"\r\nx: \xfc\r\n\r\n";
        let (plain, any) = both(lines, 5);
        assert_eq!(plain.as_ref().map(Vec::len), Some(5));
        assert_eq!(plain, any);
        assert_eq!(both(lines, 4), (None, None));
        assert_eq!(both(b"\r\n", 4), (Some(Vec::new()), Some(Vec::new())));
        let mut fields = ParsedFields::default();
        let (head, limits) = (b"A: b\r\n\r\nmore", Limits::default());
        assert_eq!(fields.read_plain(head, 0, &limits), Some(8));
        assert_eq!(fields.as_bytes(), b"A: b\r\n\r\n");
        let limits = Limits { head: 7, ..limits };
        assert_eq!(fields.read_plain(head, 0, &limits), None, "too large");
        assert_eq!(fields.read_plain(&head[..7], 0, &limits), None, "not whole");
    }

    #[test]
    fn the_first_field_of_a_name_is_found_whatever_was_removed() {
        let mut fields = ParsedFields::default();
        for (name, value) in [
            ("X-A", "1"),
            ("Via", "2"),
            ("Host", "3"),
            ("via", "4"),
            ("Age", "5"),
        ] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        fields.remove(b"x-a");
        assert_eq!(fields.get(Name::Via), Some(&b"2"[..]));
        assert_eq!(fields.get(Name::Age), Some(&b"5"[..]));
        fields.remove(b"Via");
        assert_eq!(
            (fields.get(Name::Via), fields.has(Name::Via)),
            (None, false)
        );
        assert_eq!(fields.get(Name::Host), Some(&b"3"[..]));
        assert!(fields.has_any(&[Name::Via, Name::Host]));
        assert!(!fields.has_any(&[Name::Via, Name::Cookie]) && !fields.has_any(&[]));
        for _ in 0..300 {
            fields.push(b"X-B", b"");
        }
        fields.push(b"Via", b"6");
        fields.push(b"Via", b"7");
        assert_eq!(fields.all(Name::Via).count(), 2);
        assert_eq!(fields.get(Name::Via), Some(&b"6"[..]));
    }

    proptest! {
        /// A head that the quick parser accepts has the same fields in the full parser.
        #[test]
        fn the_short_way_takes_nothing_else(
            pieces in prop::collection::vec(prop_oneof![
                Just("\r\n"), Just("\n"), Just("\r"), Just(": "), Just(":"), Just(" "), Just("\t"), Just("Host"),
                Just("x-a"), Just("value of some length"), Just("\u{fc}"), Just("\0"), Just("\x7f"), Just("\""), Just("("),
                Just("Host: a\r\n"), Just("Cookie: a=b; c=d\r\n"),
            ], 0..12),
            max in 0..6_u32,
        ) {
            let lines: String = pieces.concat() + "\r\n\r\n";
            let (plain, any) = both(lines.as_bytes(), max);
            if plain.is_some() {
                prop_assert_eq!(plain, any);
            }
        }
    }
}
