//! Tables of the file → [`Entries`]: the keys of one table. Each key is known, allowed in the table and of the right
//! type.

use core::{
    any::{Any, TypeId},
    ops::Range,
};
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    sync::{LazyLock, Mutex, PoisonError},
    time::Duration,
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    field::Field,
    fields::Fields,
    foreign,
    rows::{self, Default as RowDefault, Kind, Quick, Row, Section},
    scalar,
    sink::Sink,
    value::{Reader, Value, type_of},
};

/// The keys of one table.
pub(crate) struct Entries {
    section: Section,
    /// `site.shop.route[0]`: the table, as [`crate::Places`] names it.
    pub(crate) path: String,
    /// Place of the table's header.
    pub(crate) header: Range<usize>,
    /// A table has few keys, and there may be thousands of tables: a list takes less memory and time than a map.
    written: Vec<(&'static str, Entry)>,
    /// Keys that are there but wrong or misspelt. They were already reported.
    wrong: BTreeSet<&'static str>,
    /// `cache` of a site or a route, which is a table, or a word for a table with a preset alone.
    pub(crate) cache: Option<Box<Entries>>,
}

/// One key of the file.
pub(crate) struct Entry {
    pub(crate) value: Value,
    /// Place of the key.
    pub(crate) key: Range<usize>,
    /// Place of the value.
    pub(crate) span: Range<usize>,
    /// Places of the elements of a list or table.
    pub(crate) parts: Vec<Range<usize>>,
}

impl Entries {
    /// A table that is not in the file.
    pub(crate) fn none(section: Section, path: &str, header: Range<usize>) -> Self {
        Self {
            section,
            path: path.to_owned(),
            header,
            written: Vec::new(),
            wrong: BTreeSet::new(),
            cache: None,
        }
    }

    /// Reads the keys of a table. The caller reads those that are tables of their own.
    pub(crate) fn read(&mut self, table: &DeTable<'_>, folder: &Path, sink: &mut Sink) {
        self.written.reserve_exact(table.len());
        for (key, node) in in_order(table) {
            let name: &str = key.get_ref();
            if self.section.tables().contains(&name) {
                continue;
            }
            let Some(row) = rows::find(self.section, name) else {
                let meant = unknown_key(self, key, node.get_ref(), sink);
                self.wrong.extend(meant);
                continue;
            };
            let mut reader = Reader {
                sink: &mut *sink,
                folder,
                key: row.name,
                parts: Vec::new(),
            };
            let value = match (row.name, node.get_ref()) {
                // PHP-FPM's own spelling, `pm.max_children = 4`, is a table `pm` in TOML.
                ("pm", DeValue::Table(table)) => {
                    self.wrong.extend(dotted_pm(table, reader.sink));
                    None
                }
                _ => reader.read(&row.kind, node),
            };
            let Some(value) = value else {
                self.wrong.insert(row.name);
                continue;
            };
            let entry = Entry {
                value,
                key: key.span(),
                span: node.span(),
                parts: reader.parts,
            };
            self.written.push((row.name, entry));
        }
    }

    /// Reads the value of one key of this table that is written elsewhere, as `written`: `cache = "headers"` for
    /// `preset = "headers"`.
    pub(crate) fn read_short(
        &mut self,
        name: &'static str,
        (written, node): (&Key<'_>, &Spanned<DeValue<'_>>),
        folder: &Path,
        sink: &mut Sink,
    ) {
        let mut reader = Reader {
            sink,
            folder,
            key: written.get_ref(),
            parts: Vec::new(),
        };
        let row = rows::find(self.section, name);
        match row.and_then(|row| reader.read(&row.kind, node)) {
            Some(value) => self.written.push((
                name,
                Entry {
                    value,
                    key: written.span(),
                    span: node.span(),
                    parts: reader.parts,
                },
            )),
            None => {
                self.wrong.insert(name);
            }
        }
    }

    /// The header of the table as written: `[site.shop]`, `[[site.shop.route]]`, `[site.shop.route.cache]`.
    pub(crate) fn title(&self) -> String {
        let Some((before, rest)) = self.path.rsplit_once('[') else {
            return format!("[{}]", self.path);
        };
        match rest.split_once(']') {
            Some((_, "")) | None => format!("[[{before}]]"),
            Some((_, inner)) => format!("[{before}{inner}]"),
        }
    }

    /// The entry for `name`, if the file has it.
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        let mut written = self.written.iter();
        let found = written.find(|(written, _)| *written == name);
        found.map(|(_, entry)| entry)
    }

    /// Whether the file has the key: valid, wrong or misspelt.
    pub(crate) fn is_written(&self, name: &str) -> bool {
        self.entry(name).is_some() || self.wrong.contains(name)
    }

    /// Whether the file has the key, but wrong or misspelt. That was already reported.
    pub(crate) fn is_wrong(&self, name: &str) -> bool {
        self.wrong.contains(name)
    }

    /// Place of the key's value. Without the key: place of the table's header.
    pub(crate) fn span(&self, name: &str) -> Range<usize> {
        self.entry(name)
            .map_or_else(|| self.header.clone(), |entry| entry.span.clone())
    }

    /// Places of all keys.
    pub(crate) fn places(&self) -> impl Iterator<Item = (String, Range<usize>)> {
        let values = self
            .written
            .iter()
            .map(|(name, entry)| (format!("{}.{name}", self.path), entry.span.clone()));
        let own = core::iter::once((self.path.clone(), self.header.clone()))
            .chain(values)
            .chain(self.headers());
        let cache: Vec<_> = self.cache.iter().flat_map(|cache| cache.places()).collect();
        own.chain(cache)
    }

    /// Places of headers whose values are elsewhere: `egress.set_headers.Authorization`.
    fn headers(&self) -> impl Iterator<Item = (String, Range<usize>)> {
        let tables = self.written.iter().filter_map(move |(name, entry)| {
            let Value::Secrets(headers) = &entry.value else {
                return None;
            };
            let headers = headers.iter().zip(&entry.parts);
            Some(headers.map(move |((header, _), span)| {
                (format!("{}.{name}.{header}", self.path), span.clone())
            }))
        });
        tables.flatten()
    }

    /// Reports missing keys that have no default.
    pub(crate) fn check_required(&self, sink: &mut Sink) {
        for row in rows::of(self.section) {
            if matches!(row.default, RowDefault::Required) && !self.is_written(row.name) {
                let example = row.example();
                let example = match row.kind {
                    Kind::Word(words, _) => {
                        let words: Vec<_> = words
                            .iter()
                            .map(|w| format!("{} = \"{w}\"", row.name))
                            .collect();
                        words.join(" or ")
                    }
                    _ => format!("{} = {example}", row.name),
                };
                let message = format!("`{}` is missing in {}", row.name, self.title());
                sink.error_of_whole(self.header.clone(), message, format!("add {example}"));
            }
        }
    }

    /// The value from the file, or the row's default.
    pub(crate) fn value(&self, name: &str) -> Option<Value> {
        self.value_of(rows::find(self.section, name)?)
    }

    fn value_of(&self, row: &'static Row) -> Option<Value> {
        match self.entry(row.name) {
            Some(entry) => Some(entry.value.clone()),
            None => default_of(row),
        }
    }

    /// As [`Self::value`], as a field of the model.
    pub(crate) fn get<T: Field + Default>(&self, name: &str) -> T {
        let mut field = T::default();
        if let Some(row) = rows::find(self.section, name) {
            field.set(self.value_of(row), row);
        }
        field
    }

    /// All fields of a struct that keys of this table fill. A key that is not written here: as in `base`; without it,
    /// the row's default.
    pub(crate) fn fields<T: Fields>(&self, base: Option<&T>) -> T {
        let mut fields = match base {
            Some(base) => base.clone(),
            None => defaults_of(self.section),
        };
        for row in self.rows() {
            if let Some(field) = fields.field_mut(row.name) {
                field.set(self.value_of(row), row);
            }
        }
        fields
    }

    /// The keys that the file has: valid, wrong or misspelt.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &'static Row> {
        let rows = self.names();
        rows.filter_map(|name| rows::find(self.section, name))
    }

    /// As [`rows`](Self::rows), by name.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        let wrong = self.wrong.iter();
        let wrong = wrong.filter(|name| self.entry(name).is_none());
        let written = self.written.iter().map(|(name, _)| name);
        written.chain(wrong).copied()
    }

    pub(crate) fn bool(&self, name: &str) -> bool {
        self.get(name)
    }

    /// A count, size, mode or status. 0 without a value.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.get(name)
    }

    /// As [`Self::number`], as a `usize`.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.get(name)
    }

    pub(crate) fn duration(&self, name: &str) -> Duration {
        self.get(name)
    }

    /// A text that is not empty.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name)
    }

    pub(crate) fn texts(&self, name: &str) -> Option<Vec<String>> {
        self.get(name)
    }

    pub(crate) fn pairs(&self, name: &str) -> Vec<(String, String)> {
        self.get(name)
    }
}

/// Entries of a table, in the order of the text.
pub(crate) fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(&'t Key<'i>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

pub(crate) type Key<'i> = Spanned<toml::de::DeString<'i>>;

/// Reports an unknown key with a suggestion. Returns the key of this table that was meant, if there is one.
fn unknown_key(
    entries: &Entries,
    key: &Key<'_>,
    value: &DeValue<'_>,
    sink: &mut Sink,
) -> Option<&'static str> {
    let section = entries.section;
    let name: &str = key.get_ref();
    let message = format!("`{name}` is not a key of {}", entries.title());
    let (hint, meant) = guess(section, name);
    let hint = hint.or_else(|| {
        let known: Vec<&str> = rows::of(section).map(|row| row.name).collect();
        let few = known.len() <= FEW && !value.is_table();
        few.then(|| format!("known keys: {}", known.join(", ")))
    });
    sink.error(key.span(), message, hint);
    meant
}

/// Guesses what an unknown key means: a key of PHP-FPM that has another place here, a key of another table, another
/// program's name for one of our keys, or a misspelt key.
fn guess(section: Section, name: &str) -> (Option<String>, Option<&'static str>) {
    if section == Section::Pool
        && let Some((_, hint)) = OF_PHP_FPM.iter().find(|(known, _)| *known == name)
    {
        return (Some((*hint).to_owned()), None);
    }
    let normal = normal(name);
    let theirs = |row: &&Row| {
        row.elsewhere
            .iter()
            .any(|other| self::normal(other) == normal)
    };
    if let Some(row) = rows::of(section).find(theirs) {
        return (
            Some(format!("it is called `{}` here", row.name)),
            Some(row.name),
        );
    }
    // Keys for outgoing calls are not suggested for incoming requests, and the reverse.
    let of_calls = |section: &Section| matches!(section, Section::Egress | Section::EgressHost);
    let mut sections = rows::all()
        .filter(|row| row.name == name)
        .flat_map(|row| row.sections);
    let belongs = sections.any(|other| of_calls(other) == of_calls(&section));
    if let Some(hint) = foreign::hint(&normal).filter(|_| !belongs) {
        return (Some(hint.to_owned()), None);
    }
    if rows::all().any(|row| row.name == name) {
        return (Some(format!("`{name}` belongs in {}", titles(name))), None);
    }
    if let Some(row) = rows::all().find(theirs) {
        let titles = titles(row.name);
        return (
            Some(format!(
                "it is called `{}` and belongs in {titles}",
                row.name
            )),
            None,
        );
    }
    let here = rows::of(section)
        .map(|row| row.name)
        .chain(section.tables().iter().copied());
    if let Some(near) = scalar::nearest(name, here) {
        let meant = rows::find(section, near).map(|row| row.name);
        return (Some(format!("did you mean `{near}`?")), meant);
    }
    if let Some(near) = scalar::nearest(name, rows::all().map(|row| row.name)) {
        let titles = titles(near);
        return (
            Some(format!("did you mean `{near}`, which belongs in {titles}?")),
            None,
        );
    }
    (None, None)
}

/// Keys of PHP-FPM's pools that are not keys of `[pool.NAME]`. TOML reads `status.path` as a table `status`.
const OF_PHP_FPM: &[(&str, &str)] = &[
    (
        "listen",
        "the address belongs in a [listen.NAME] with protocol = \"fastcgi\" and pool = \"…\"",
    ),
    (
        "catch_workers_output",
        "remove it: the output of workers is always written to a log",
    ),
    ("status", "`pm.status_path` is called `status_path` here"),
    ("ping", "it is called `ping_path` or `ping_response` here"),
    (
        "access",
        "it is called `access_log`, `access_format` or `access_suppress_path` here",
    ),
    ("security", "it is called `limit_extensions` here"),
];

/// Titles of the sections that have the key.
fn titles(name: &str) -> String {
    let titles: Vec<&str> = Section::ALL
        .into_iter()
        .filter(|section| rows::find(*section, name).is_some())
        .map(Section::title)
        .collect();
    titles.join(" or ")
}

fn normal(name: &str) -> String {
    name.to_lowercase().replace(['-', '.', ' '], "_")
}

/// Reports the names of PHP-FPM's keys that begin with `pm.`. Returns the keys that were meant.
fn dotted_pm(table: &DeTable<'_>, sink: &mut Sink) -> Vec<&'static str> {
    let mut all = Vec::new();
    for (key, _) in in_order(table) {
        let name: &str = key.get_ref();
        let names = rows::of(Section::Pool).map(|row| row.name);
        let meant = scalar::nearest(name, names).and_then(|near| rows::find(Section::Pool, near));
        let message = format!("`pm.{name}` is not a key of [pool.NAME]");
        let hint = meant.map(|row| format!("it is called `{}` here", row.name));
        sink.error(key.span(), message, hint);
        all.extend(meant.map(|row| row.name));
    }
    all
}

/// The row's default. It is parsed once: thousands of tables may need it.
fn default_of(row: &'static Row) -> Option<Value> {
    static PARSED: LazyLock<[HashMap<&'static str, Value, Quick>; rows::COUNT]> =
        LazyLock::new(|| {
            Section::ALL.map(|section| {
                let rows = rows::all().filter(|row| row.sections.first() == Some(&section));
                rows.filter_map(|row| Some((row.name, parsed_default(row)?)))
                    .collect()
            })
        });
    let section = row.sections.first()?;
    PARSED[*section as usize].get(row.name).cloned()
}

/// A struct with the defaults of a section's rows. It is made once: thousands of tables may begin with it.
fn defaults_of<T: Fields>(section: Section) -> T {
    type Made = HashMap<(TypeId, Section), Box<dyn Any + Send>>;
    static MADE: LazyLock<Mutex<Made>> = LazyLock::new(Mutex::default);
    let mut all = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = all.entry((TypeId::of::<T>(), section)).or_insert_with(|| {
        let mut fields = T::default();
        for row in rows::of(section) {
            if let Some(field) = fields.field_mut(row.name) {
                field.set(default_of(row), row);
            }
        }
        Box::new(fields)
    });
    made.downcast_ref::<T>().cloned().unwrap_or_default()
}

/// The row's default, parsed like a value from the file.
fn parsed_default(row: &Row) -> Option<Value> {
    let RowDefault::Value(text) = row.default else {
        return None;
    };
    let node = DeValue::parse(text).ok()?;
    let mut sink = Sink::default();
    let mut reader = Reader {
        sink: &mut sink,
        folder: Path::new("/"),
        key: row.name,
        parts: Vec::new(),
    };
    reader.read(&row.kind, &node)
}

/// Reports a value that should be a table.
pub(crate) fn expected_table(title: &str, node: &Spanned<DeValue<'_>>, sink: &mut Sink) {
    let message = format!("{title} is a table, not {}", type_of(node.get_ref()));
    sink.error(
        node.span(),
        message,
        format!("write {title} on a line of its own, and its keys below"),
    );
}

/// If no key is similar, up to this many keys are listed. A longer list would not help.
const FEW: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_kind() {
        for row in rows::all() {
            if let RowDefault::Value(text) = row.default {
                assert!(default_of(row).is_some(), "{} = {text}", row.name);
            }
        }
    }

    /// [`defaults_of`] sets a field, and the table sets it again.
    #[test]
    fn a_written_value_replaces_the_default_of_a_table() {
        let added = |row: &&Row| {
            matches!(
                row.kind,
                Kind::Params
                    | Kind::HeaderTemplates
                    | Kind::RequestHeaderTemplates
                    | Kind::SecretHeaders
                    | Kind::Folders
                    | Kind::ErrorPages
                    | Kind::Types
            )
        };
        for row in rows::all().filter(added) {
            // The values of the file would be added to the default.
            assert!(default_of(row).is_none(), "{} has a default", row.name);
        }
    }

    #[test]
    fn every_example_is_a_value_of_its_kind() {
        for row in rows::all() {
            let example = row.example();
            let node = DeValue::parse(&example).unwrap();
            let mut sink = Sink::default();
            let mut reader = Reader {
                sink: &mut sink,
                folder: Path::new("/"),
                key: row.name,
                parts: Vec::new(),
            };
            assert!(
                reader.read(&row.kind, &node).is_some(),
                "{} = {example}",
                row.name
            );
        }
    }
}
