//! The fields of a head, as the rules see them.
//!
//! The front has them as lines of HTTP/1 ([`Lines`], [`FieldList`], [`ParsedFields`]), the egress as a [`HeaderMap`].

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use weir_http1::{InvalidField, Name, ParsedFields, check_field};

/// Reads the fields of a head. Names are given in lower case and match in any case.
pub trait Fields {
    /// The values of all fields of a name, in their order.
    fn values<'f>(&'f self, name: &str) -> impl Iterator<Item = &'f [u8]>;

    /// Names and values of all fields, in their order.
    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])>;

    /// The first value of a name.
    fn first(&self, name: &str) -> Option<&[u8]> {
        self.values(name).next()
    }

    /// Whether a field has that name.
    fn has(&self, name: &str) -> bool {
        self.first(name).is_some()
    }

    /// Whether one of the lists of that name has this token, in any case.
    fn has_token(&self, name: &str, token: &str) -> bool {
        weir_semantics::fields::has_token(self.values(name), token)
    }
}

/// Changes the fields of a head.
pub trait FieldsMut: Fields {
    /// Keeps the fields whose name fulfils the condition.
    fn retain(&mut self, keep: impl FnMut(&[u8]) -> bool);

    /// Adds a field behind the others. A field that HTTP does not allow is left out.
    fn append(&mut self, name: &[u8], value: &[u8]);

    /// Removes all fields of a name.
    fn remove(&mut self, name: &str) {
        self.retain(|own| !own.eq_ignore_ascii_case(name.as_bytes()));
    }

    /// Replaces all fields of a name by one.
    fn set(&mut self, name: &str, value: &[u8]) {
        self.remove(name);
        self.append(name.as_bytes(), value);
    }
}

/// Fields as HTTP/1 sends them: `name: value` and the end of the line for each. A line without a colon is skipped.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lines<'l>(pub &'l [u8]);

/// Fields of a stored answer, in one piece of memory of their exact size: lines as HTTP/1 sends them, which can be
/// copied into an answer or a file as they are.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct FieldList(Vec<u8>);

impl FieldList {
    /// A copy of those fields whose name fulfils the condition.
    pub fn of(fields: &impl Fields, mut keep: impl FnMut(&[u8]) -> bool) -> FieldList {
        let mut list = FieldList::default();
        for (name, value) in fields.all().filter(|(name, _)| keep(name)) {
            list.append(name, value);
        }
        list.0.shrink_to_fit();
        list
    }

    /// The fields in these bytes, which were another list's ([`FieldList::as_bytes`]).
    ///
    /// # Errors
    /// If they were not: a line is none, or HTTP does not allow it.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<FieldList, InvalidField> {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let end = memchr::memmem::find(rest, b"\r\n").ok_or(InvalidField)?;
            let (name, value) = parts(&rest[..end]).ok_or(InvalidField)?;
            check_field(name, value)?;
            rest = &rest[end + 2..];
        }
        Ok(FieldList(bytes))
    }

    /// The lines, each with its end.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for FieldList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

impl Fields for Lines<'_> {
    fn values<'f>(&'f self, name: &str) -> impl Iterator<Item = &'f [u8]> {
        named(self.0, name)
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        lines(self.0)
    }
}

impl Fields for FieldList {
    fn values<'f>(&'f self, name: &str) -> impl Iterator<Item = &'f [u8]> {
        named(&self.0, name)
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        lines(&self.0)
    }
}

impl FieldsMut for FieldList {
    fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        if self.all().all(|(name, _)| keep(name)) {
            return;
        }
        let kept = FieldList::of(self, keep);
        *self = kept;
    }

    fn append(&mut self, name: &[u8], value: &[u8]) {
        if check_field(name, value).is_ok() {
            for part in [name, b": ", value, b"\r\n"] {
                self.0.extend_from_slice(part);
            }
        }
    }
}

impl Fields for ParsedFields {
    fn values<'f>(&'f self, name: &str) -> impl Iterator<Item = &'f [u8]> {
        let known = Name::of(name.as_bytes());
        let all = known.map(|known| self.all(known));
        let others = known.is_none().then(|| {
            let other = move |own: &&[u8]| own.eq_ignore_ascii_case(name.as_bytes());
            let fields = self.iter().map(|(_, own, value)| (own, value));
            fields.filter(move |(own, _)| other(own))
        });
        let others = others.into_iter().flatten().map(|(_, value)| value);
        all.into_iter().flatten().chain(others)
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter().map(|(_, name, value)| (name, value))
    }
}

impl Fields for HeaderMap {
    fn values<'f>(&'f self, name: &str) -> impl Iterator<Item = &'f [u8]> {
        self.get_all(name).iter().map(HeaderValue::as_bytes)
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter()
            .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
    }
}

impl FieldsMut for HeaderMap {
    fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        let mut gone: Vec<HeaderName> = Vec::new();
        for name in self.keys() {
            if !keep(name.as_str().as_bytes()) {
                gone.push(name.clone());
            }
        }
        for name in gone {
            HeaderMap::remove(self, name);
        }
    }

    fn append(&mut self, name: &[u8], value: &[u8]) {
        let name = HeaderName::from_bytes(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            HeaderMap::append(self, name, value);
        }
    }
}

/// All lines of a name joined into one (RFC 9110 §5.3). `None`: there is no such field.
#[must_use]
pub fn joined(fields: &impl Fields, name: &str) -> Option<Vec<u8>> {
    let mut values = fields.values(name).map(<[u8]>::trim_ascii);
    let mut all = values.next()?.to_vec();
    for value in values {
        all.extend_from_slice(b", ");
        all.extend_from_slice(value);
    }
    Some(all)
}

fn named<'l>(bytes: &'l [u8], name: &str) -> impl Iterator<Item = &'l [u8]> {
    lines(bytes)
        .filter(move |(own, _)| own.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| value)
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let ends = memchr::memchr_iter(b'\n', bytes);
    let mut start = 0;
    let lines = ends.map(move |end| {
        let line = &bytes[start..end];
        start = end + 1;
        line.strip_suffix(b"\r").unwrap_or(line)
    });
    lines.filter_map(parts)
}

/// Name and value of a line.
fn parts(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', line)?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}
