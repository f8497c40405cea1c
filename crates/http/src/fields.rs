//! The fields of an answer, as the lines that are sent.

use std::num::NonZeroU64;

use http::StatusCode;
use weir_http1::{InvalidField, Name, check_field, check_value};
use weir_net::Spare;

/// Names and values, in order, in the form that HTTP/1 sends: a line each. Names keep their spelling.
///
/// Most answers are sent as they are made: that copies the lines at once. Whether a well-known name occurs is known
/// without a search.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    /// Each with its end.
    lines: Vec<u8>,
    /// The well-known names that occur: a bit each.
    known: u64,
    /// The number in the first Content-Length and one more, if it was added with its name.
    length: Option<NonZeroU64>,
    /// The reason phrase of the status, if it is not the usual one. Only HTTP/1 sends it.
    phrase: Option<Box<Phrase>>,
}

/// In a box, because few answers have one.
#[derive(Debug, Clone)]
struct Phrase(Box<[u8]>);

/// A field's name: a well-known one, or any text.
pub trait FieldName: Copy {
    fn text(&self) -> &[u8];
    fn known(self) -> Option<Name>;
}

impl FieldName for Name {
    fn text(&self) -> &[u8] {
        self.as_str().as_bytes()
    }

    fn known(self) -> Option<Name> {
        Some(self)
    }
}

impl FieldName for &str {
    fn text(&self) -> &[u8] {
        self.as_bytes()
    }

    fn known(self) -> Option<Name> {
        Name::of(self.as_bytes())
    }
}

/// A name whose well-known name, if any, has been looked up before.
impl FieldName for (Option<Name>, &[u8]) {
    fn text(&self) -> &[u8] {
        self.1
    }

    fn known(self) -> Option<Name> {
        self.0
    }
}

thread_local! {
    /// Memory of fields that are not needed any more.
    static SPARE: Spare<Vec<u8>> = const { Spare::new(32) };
}

impl Fields {
    /// Without a field, and with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Fields {
        let mut lines = SPARE.with(Spare::take).unwrap_or_default();
        lines.reserve(bytes);
        Fields {
            lines,
            known: 0,
            length: None,
            phrase: None,
        }
    }

    /// Gives the memory of fields that are not needed any more to a later answer of this reactor, unless it is large.
    pub(crate) fn give_back(self) {
        let mut lines = self.lines;
        if (1..=SPARE_CAPACITY).contains(&lines.capacity()) {
            lines.clear();
            SPARE.with(|spare| spare.keep(lines));
        }
    }

    /// The head of a script's answer (RFC 3875 §6.2) for a web server in front, as the script wrote it, with the blank line
    /// at its end. Among its lines is its status, unless they imply it.
    pub fn of_script(lines: &[u8]) -> Fields {
        let mut fields = Fields::with_capacity(lines.len());
        fields.append_checked(lines);
        fields.note(Some(Name::Status));
        fields
    }

    /// The same fields, and room for so many more bytes.
    pub fn copy(&self, room: usize) -> Fields {
        let mut copy = Fields::with_capacity(self.lines.len() + room);
        copy.lines.extend_from_slice(&self.lines);
        copy.known = self.known;
        copy.length = self.length;
        copy.phrase.clone_from(&self.phrase);
        copy
    }

    /// The reason phrase that a script has given `status`. One that HTTP does not allow (RFC 9112 §4) is left out.
    pub fn set_phrase(&mut self, status: StatusCode, phrase: &[u8]) {
        let usual = status.canonical_reason().unwrap_or_default();
        let is_other = !phrase.is_empty() && phrase != usual.as_bytes();
        self.phrase =
            (is_other && check_value(phrase).is_ok()).then(|| Box::new(Phrase(phrase.into())));
    }

    /// The reason phrase, if it is not the usual one of the status.
    pub(crate) fn phrase(&self) -> Option<&[u8]> {
        self.phrase.as_ref().map(|phrase| &*phrase.0)
    }

    /// Adds a field, also if there is one of this name.
    ///
    /// # Errors
    ///
    /// The field would change the message; it is not added.
    pub fn append(&mut self, name: impl FieldName, value: &[u8]) -> Result<(), InvalidField> {
        check_field(name.text(), value)?;
        self.push_read(name, value);
        Ok(())
    }

    /// Adds a field that a parser of HTTP has read, and so has checked.
    pub fn push_read(&mut self, name: impl FieldName, value: &[u8]) {
        let text = name.text();
        if let Some(known) = name.known() {
            if known == Name::ContentLength && !self.has(known) {
                self.length = number(value).and_then(|length| NonZeroU64::MIN.checked_add(length));
            }
            self.known |= known.bit();
        }
        self.lines.reserve(text.len() + value.len() + 4);
        self.lines.extend_from_slice(text);
        self.lines.extend_from_slice(b": ");
        self.lines.extend_from_slice(value);
        self.lines.extend_from_slice(b"\r\n");
    }

    /// Adds lines whose fields have been checked ([`check_field`]) and noted ([`Self::note`]), each with its end.
    pub fn append_checked(&mut self, lines: &[u8]) {
        self.lines.extend_from_slice(lines);
    }

    /// A field of this name is among the lines, or is going to be.
    pub fn note(&mut self, name: Option<Name>) {
        self.known |= name.map_or(0, Name::bit);
    }

    /// Adds a field in place of those of this name.
    ///
    /// # Errors
    ///
    /// As [`Self::append`]; then nothing changes.
    pub fn insert(&mut self, name: impl FieldName, value: &[u8]) -> Result<(), InvalidField> {
        check_field(name.text(), value)?;
        self.remove(name);
        self.append(name, value)
    }

    /// Removes all fields of this name.
    pub fn remove(&mut self, name: impl FieldName) {
        if !self.may_have(name.known()) {
            return;
        }
        let mut at = 0;
        while let Some(length) = memchr::memchr(b'\n', &self.lines[at..]) {
            let end = at + length + 1;
            let line = &self.lines[at..end];
            let colon = memchr::memchr(b':', line).unwrap_or(0);
            match line[..colon].eq_ignore_ascii_case(name.text()) {
                true => drop(self.lines.drain(at..end)),
                false => at = end,
            }
        }
        if let Some(known) = name.known() {
            self.known &= !known.bit();
            if known == Name::ContentLength {
                self.length = None;
            }
        }
    }

    /// Adds a field that is the same in all answers: its whole line, with its end.
    pub fn append_line(&mut self, name: Name, line: &'static [u8]) {
        debug_assert!(line.starts_with(name.as_str().as_bytes()) && line.ends_with(b"\r\n"));
        self.known |= name.bit();
        self.lines.extend_from_slice(line);
    }

    /// The number in Content-Length.
    pub fn length(&self) -> Option<u64> {
        self.length
            .map(|above| above.get() - 1)
            .or_else(|| number(self.get(Name::ContentLength)?))
    }

    /// The value of the first field of this name.
    pub fn get(&self, name: impl FieldName) -> Option<&[u8]> {
        if !self.may_have(name.known()) {
            return None;
        }
        let found = self
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name.text()));
        found.map(|(_, value)| value)
    }

    /// Whether there is a field of this name.
    pub fn has(&self, name: Name) -> bool {
        self.known & name.bit() != 0
    }

    /// The values of all fields of this name.
    pub fn all<'f>(&'f self, name: &'f impl FieldName) -> impl Iterator<Item = &'f [u8]> {
        let lines = match self.may_have(name.known()) {
            true => &self.lines[..],
            false => &[],
        };
        each(lines)
            .filter(|(found, _)| found.eq_ignore_ascii_case(name.text()))
            .map(|(_, value)| value)
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        each(&self.lines)
    }

    /// The lines, each with its end.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }

    fn may_have(&self, known: Option<Name>) -> bool {
        known.is_none_or(|name| self.has(name))
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn each(mut lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let end = memchr::memchr(b'\n', lines)?;
        let (line, rest) = lines.split_at(end + 1);
        lines = rest;
        let colon = memchr::memchr(b':', line)?;
        // A colon, a space, the value, and the end of the line.
        Some((&line[..colon], &line[colon + 2..end - 1]))
    })
}

/// How large pieces of memory may be that a reactor keeps for later answers, bytes.
const SPARE_CAPACITY: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Fields {
        let mut fields = Fields::default();
        fields.append("content-TYPE", b"a").unwrap();
        fields.append("X-Many", b"1").unwrap();
        fields.append(Name::Etag, b"").unwrap();
        fields.append("x-many", b"2: 3").unwrap();
        fields
    }

    fn shown(fields: &Fields) -> &str {
        std::str::from_utf8(fields.lines()).unwrap()
    }

    #[test]
    fn fields_are_found_by_any_spelling_and_keep_theirs() {
        let fields = some();
        assert_eq!(
            shown(&fields),
            "content-TYPE: a\r\nX-Many: 1\r\nETag: \r\nx-many: 2: 3\r\n"
        );
        assert_eq!(fields.get(Name::ContentType), Some(&b"a"[..]));
        assert_eq!(fields.get("Content-Type"), Some(&b"a"[..]));
        assert_eq!(fields.get("etag"), Some(&b""[..]));
        assert_eq!(fields.get("x-other"), None);
        assert!(fields.has(Name::ContentType) && !fields.has(Name::Server));
        let many: Vec<_> = fields.all(&"X-MANY").collect();
        assert_eq!(many, [&b"1"[..], b"2: 3"]);
        assert_eq!(fields.iter().count(), 4);
    }

    #[test]
    fn fields_are_removed_and_replaced() {
        let mut fields = some();
        fields.remove("x-Many");
        fields.insert(Name::ContentType, b"b").unwrap();
        fields.remove(Name::Server);
        assert_eq!(shown(&fields), "ETag: \r\nContent-Type: b\r\n");
        fields.remove("ETAG");
        assert!(!fields.has(Name::Etag));
        fields.remove("content-type");
        assert!(fields.lines().is_empty() && !fields.has(Name::ContentType));
    }

    #[test]
    fn the_length_is_that_of_its_field() {
        let mut fields = some();
        assert_eq!(fields.length(), None);
        fields.append("content-length", b"12").unwrap();
        fields.append("Content-Length", b"13").unwrap();
        assert_eq!(
            (fields.length(), fields.copy(8).length()),
            (Some(12), Some(12))
        );
        fields.insert(Name::ContentLength, b"14").unwrap();
        assert_eq!(fields.length(), Some(14));
        fields.insert(Name::ContentLength, b"many").unwrap();
        assert_eq!(fields.length(), None);
        fields.insert(Name::ContentLength, b"15").unwrap();
        fields.remove("content-length");
        assert_eq!(fields.length(), None);
    }

    #[test]
    fn no_field_can_begin_another_one() {
        let mut fields = some();
        let before = shown(&fields).to_owned();
        for (name, value) in [
            ("", &b"v"[..]),
            ("a b", b"v"),
            ("a:", b"v"),
            ("a\r\nb", b"v"),
            ("a", b"v\r\nb: c"),
            ("a", b"v\n"),
            ("a", b"\0"),
            ("x-many", b"\x7f"),
        ] {
            assert!(fields.append(name, value).is_err(), "{name:?}");
            assert!(fields.insert(name, value).is_err(), "{name:?}");
        }
        assert_eq!(shown(&fields), before);
    }
}
