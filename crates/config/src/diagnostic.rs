//! Problems of a configuration, and how they are displayed.
//!
//! A diagnostic is a byte range of the text, a sentence and, if known, a hint what to write instead. [`Diagnostics`]
//! keeps the file name and the text once, and displays the diagnostics:
//!
//! ```text
//! weir.toml:2:1: error: `adress` is not a key of [listen.NAME]
//!     2 | adress = "0.0.0.0:80"
//!       | ^^^^^^
//! hint: did you mean `address`?
//! ```

use core::{fmt, ops::Range};
use std::sync::Arc;

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but does not have the expected effect, or will cause a problem.
    Warning,
}

/// One problem at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its severity.
    pub severity: Severity,
    /// The byte range of the text. It may be empty. `0..0` means the whole file.
    pub span: Range<usize>,
    /// The problem, in one line.
    pub message: String,
    /// What to write instead, if known.
    pub hint: Option<String>,
}

/// All diagnostics of one file, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics {
    file: String,
    text: Arc<str>,
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Sorts `list` by place and removes duplicates.
    pub fn new(file: &str, text: Arc<str>, mut list: Vec<Diagnostic>) -> Self {
        list.sort_by(|a, b| {
            let key = |d: &Diagnostic| (d.span.start, d.severity, d.span.end);
            key(a).cmp(&key(b)).then_with(|| a.message.cmp(&b.message))
        });
        list.dedup();
        Self {
            file: file.to_owned(),
            text,
            list,
        }
    }

    /// Returns a list with one error about the whole file (for example: the file cannot be read).
    pub fn of_file(file: &str, message: impl Into<String>) -> Self {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            span: 0..0,
            message: message.into(),
            hint: None,
        };
        Self::new(file, Arc::from(""), vec![diagnostic])
    }

    /// The diagnostics, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// Position of a diagnostic: `weir.toml:12:3:`. A diagnostic about the whole file has no line.
    pub fn place(&self, diagnostic: &Diagnostic) -> String {
        if self.text.is_empty() || diagnostic.span == (0..0) {
            return format!("{}:", self.file);
        }
        let place = Lines::of(&self.text).place(diagnostic.span.start);
        format!("{}:{}:{}:", self.file, place.number, place.column)
    }

    /// Whether there are no diagnostics.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether there is at least one error.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|d| d.severity == Severity::Error)
    }

    /// Adds the diagnostics of another pass over the same text.
    pub fn extend(&mut self, more: impl IntoIterator<Item = Diagnostic>) {
        let mut list = core::mem::take(&mut self.list);
        list.extend(more);
        *self = Self::new(&self.file, Arc::clone(&self.text), list);
    }

    /// Renders all diagnostics as text. With `colour`, it uses ANSI escapes: the caller knows whether the output is a
    /// terminal.
    pub fn render(&self, colour: bool) -> String {
        let mut out = String::new();
        let lines = Lines::of(&self.text);
        let paint = Paint { colour };
        for (index, diagnostic) in self.list.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            self.render_one(&mut out, &lines, paint, diagnostic);
        }
        out
    }

    fn render_one(
        &self,
        out: &mut String,
        lines: &Lines<'_>,
        paint: Paint,
        diagnostic: &Diagnostic,
    ) {
        let (word, style) = match diagnostic.severity {
            Severity::Error => ("error:", RED),
            Severity::Warning => ("warning:", YELLOW),
        };
        let place = lines.place(diagnostic.span.start);
        let whole_file = self.text.is_empty() || diagnostic.span == (0..0);
        let position = match whole_file {
            true => format!("{}:", self.file),
            false => format!("{}:{}:{}:", self.file, place.number, place.column),
        };
        out.push_str(&paint.with(BOLD, &position));
        out.push(' ');
        out.push_str(&paint.with(style, word));
        out.push(' ');
        out.push_str(&visible(&diagnostic.message));
        out.push('\n');
        if !whole_file {
            let excerpt = Excerpt::of(&place, diagnostic.span.end);
            out.push_str(&format!("{:>5} | {}\n", place.number, excerpt.line));
            let carets = paint.with(style, &"^".repeat(excerpt.width));
            out.push_str(&format!("      | {}{carets}\n", excerpt.indent));
        }
        if let Some(hint) = &diagnostic.hint {
            out.push_str(&paint.with(GREEN, "hint:"));
            out.push(' ');
            out.push_str(&visible(hint));
            out.push('\n');
        }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

#[derive(Clone, Copy)]
struct Paint {
    colour: bool,
}

impl Paint {
    fn with(self, style: &str, text: &str) -> String {
        match self.colour {
            true => format!("\x1b[{style}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// The beginnings of the lines of a text.
struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

/// Line and column of a byte offset. Both count from 1; the column counts characters.
struct Position<'t> {
    number: usize,
    column: usize,
    line: &'t str,
    line_start: usize,
}

impl<'t> Lines<'t> {
    fn of(text: &'t str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            starts: core::iter::once(0).chain(after_newlines).collect(),
        }
    }

    fn place(&self, offset: usize) -> Position<'t> {
        let offset = floor_boundary(self.text, offset.min(self.text.len()));
        let mut index = self.starts.partition_point(|start| *start <= offset) - 1;
        // If the text ends with a newline, show its end as the end of the last line.
        if index > 0 && offset == self.text.len() && self.starts[index] == offset {
            index -= 1;
        }
        let line_start = self.starts[index];
        let line = self.text[line_start..]
            .split('\n')
            .next()
            .unwrap_or_default();
        let line = line.strip_suffix('\r').unwrap_or(line);
        let within = (offset - line_start).min(line.len());
        Position {
            number: index + 1,
            column: line[..within].chars().count() + 1,
            line,
            line_start,
        }
    }
}

/// A line with the marked range, cut to the width of a terminal.
struct Excerpt {
    line: String,
    indent: String,
    width: usize,
}

impl Excerpt {
    fn of(place: &Position<'_>, span_end: usize) -> Self {
        let line: Vec<char> = place.line.chars().collect();
        let mark = place.column - 1;
        let end_in_line = floor_boundary(
            place.line,
            span_end
                .saturating_sub(place.line_start)
                .min(place.line.len()),
        );
        let mark_end = place.line[..end_in_line].chars().count().max(mark + 1);

        let first = if mark > LINE_MAX / 2 {
            mark - LINE_MAX / 3
        } else {
            0
        };
        let last = line.len().min(first + LINE_MAX);
        let mut shown = String::new();
        let mut indent = String::new();
        if first > 0 {
            shown.push('…');
            indent.push(' ');
        }
        for (index, character) in line[first..last].iter().enumerate() {
            let character = visible_char(*character);
            shown.push(character);
            if first + index < mark {
                indent.push(if character == '\t' { '\t' } else { ' ' });
            }
        }
        if last < line.len() {
            shown.push('…');
        }
        // A mark after the last character (something is missing there) has no character above it.
        for _ in line.len()..mark {
            indent.push(' ');
        }
        Self {
            line: shown.trim_end().to_owned(),
            indent,
            width: mark_end.min(last.max(mark + 1)) - mark,
        }
    }
}

/// The largest character boundary that is not after `at`.
fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Replaces control characters: a configuration must not write escapes to the terminal of the user who checks it.
fn visible(text: &str) -> String {
    text.chars()
        .map(|c| if c == '\n' { c } else { visible_char(c) })
        .collect()
}

fn visible_char(character: char) -> char {
    match character {
        '\t' => '\t',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

const LINE_MAX: usize = 120;
const BOLD: &str = "1";
const RED: &str = "1;31";
const YELLOW: &str = "1;33";
const GREEN: &str = "1;32";

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, span: Range<usize>) -> String {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            span,
            message: "m".into(),
            hint: None,
        };
        Diagnostics::new("f", text.into(), vec![diagnostic]).to_string()
    }

    #[test]
    fn place_counts_characters_not_bytes() {
        assert_eq!(
            at("ä = ö\n", 5..7),
            "f:1:5: error: m\n    1 | ä = ö\n      |     ^\n"
        );
    }

    #[test]
    fn tabs_are_kept_in_front_of_the_mark() {
        assert_eq!(
            at("\tab\n", 1..3),
            "f:1:2: error: m\n    1 | \tab\n      | \t^^\n"
        );
    }

    #[test]
    fn end_of_the_text_is_the_end_of_its_last_line() {
        assert_eq!(
            at("a =\n", 4..4),
            "f:1:4: error: m\n    1 | a =\n      |    ^\n"
        );
    }

    #[test]
    fn marks_stay_within_their_line() {
        assert_eq!(
            at("a\nb\n", 0..4),
            "f:1:1: error: m\n    1 | a\n      | ^\n"
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_mark() {
        let text = format!("{}x{}", "a".repeat(500), "b".repeat(500));
        let shown = at(&text, 500..501);
        let longest = shown.lines().map(|l| l.chars().count()).max().unwrap();
        assert!(longest < 140, "{shown}");
        let mark = shown
            .lines()
            .nth(2)
            .unwrap()
            .chars()
            .position(|c| c == '^')
            .unwrap();
        assert_eq!(shown.lines().nth(1).unwrap().chars().nth(mark), Some('x'));
    }

    #[test]
    fn escapes_do_not_reach_the_terminal() {
        assert!(!at("\u{1b}[31mred", 0..1).contains('\u{1b}'));
    }

    #[test]
    fn colour_is_only_there_when_asked_for() {
        let diagnostics = Diagnostics::of_file("f", "gone");
        assert_eq!(diagnostics.render(false), "f: error: gone\n");
        assert!(diagnostics.render(true).contains("\x1b[1;31merror:\x1b[0m"));
    }
}
