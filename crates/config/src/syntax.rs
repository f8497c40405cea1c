//! Checks the TOML syntax of a text, and finds out what can be read despite syntax errors.

use core::ops::Range;

use toml::de::{DeTable, Error};

use crate::{
    diagnostic::{Diagnostic, Severity},
    rows::{self, Section},
    scalar,
    sink::Sink,
    texts::quote,
};

/// Reports every syntax error, and returns the readable part of the text. Lines that are not TOML at all are replaced
/// by blanks, because the parser stops at them, and the text after them may contain errors too.
pub(crate) fn readable(text: &str, sink: &mut Sink) -> String {
    let mut usable = text.to_owned();
    for _ in 0..ROUNDS {
        let (_, errors) = DeTable::parse_recoverable(&usable);
        let problems = errors.iter().map(|error| Problem::of(text, error));
        let (stops, others): (Vec<_>, Vec<_>) = problems.partition(|problem| problem.stops);
        let problems = if stops.is_empty() { others } else { stops };
        let done = !problems.iter().any(|problem| problem.stops);
        for problem in problems {
            if problem.stops {
                let blank = " ".repeat(problem.line.len());
                usable.replace_range(problem.line.clone(), &blank);
            }
            problem.report(text, sink);
        }
        if done {
            break;
        }
    }
    usable
}

/// The lines of `[server]`, with its header; `None`: there is no such line, or lines may be parts of texts.
pub(crate) fn server_table(text: &str) -> Option<&str> {
    const HEADER: &str = "[server]";
    if text.contains("\"\"\"") || text.contains("'''") {
        return None;
    }
    let mut from = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        match from {
            None if line.trim() == HEADER => from = Some(at),
            // A list may have lines like this: then the table is cut short, and is not TOML.
            Some(from) if line.trim_start().starts_with('[') => return text.get(from..at),
            _ => {}
        }
        at += line.len();
    }
    text.get(from?..)
}

struct Problem {
    span: Range<usize>,
    /// Range of the whole line, without its newline.
    line: Range<usize>,
    message: String,
    /// The parser does not continue after this error.
    stops: bool,
}

impl Problem {
    fn of(text: &str, error: &Error) -> Self {
        let span = error.span().unwrap_or(0..0);
        let start = span.start.min(text.len());
        let bytes = text.as_bytes();
        let line_start = bytes[..start]
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        let line_end = bytes[start..]
            .iter()
            .position(|b| *b == b'\n')
            .map_or(text.len(), |at| start + at);
        let message = error.message();
        Self {
            // An empty span at position 0 would mean the whole file.
            span: match start {
                0 => 0..span.end.max(1).min(text.len()),
                start => start..span.end.clamp(start, text.len()),
            },
            line: line_start..line_end,
            message: message.to_owned(),
            stops: message.starts_with("key with no value") && line_start < line_end,
        }
    }

    fn report(self, text: &str, sink: &mut Sink) {
        let line = &text[self.line.clone()];
        let (message, hint) = explain(&self.message, line);
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            span: self.span,
            message,
            hint,
        };
        // With a duplicate key, no key is missing in the parser's result.
        let partial = self.message != "duplicate key";
        sink.syntax(diagnostic, self.line.start..self.line.end + 1, partial);
    }
}

/// The parser's message in the terms of weir.toml, and what to write instead.
fn explain(message: &str, line: &str) -> (String, Option<String>) {
    let (key, value) = match line.split_once('=') {
        Some((key, value)) => (
            key.trim(),
            value.split(" #").next().unwrap_or_default().trim(),
        ),
        None => (line.trim(), ""),
    };
    if message == "duplicate key" {
        let message = "this is written twice".to_owned();
        let hint = match line.trim().ends_with(".cache]") {
            true => {
                "`cache = \"…\"` is short for this table: write preset = \"…\" in the table instead"
            }
            false => "write each key and table only once; a list of tables is written [[…]]",
        };
        return (message, Some(hint.into()));
    }
    if message.starts_with("missing escaped value") || message.contains("escape") {
        let message = "unknown escape: a backslash in \"…\" begins an escape sequence".to_owned();
        return (
            message,
            Some("in '…' (single quotes) a backslash is a backslash".into()),
        );
    }
    if message.starts_with("key with no value") {
        let message = "this is not `key = value`".to_owned();
        if key.starts_with("php_") || key.starts_with("env[") {
            // PHP-FPM's syntax: php_value[memory_limit] = 128M, env[LANG] = C
            if let Some((table, rest)) = key.split_once('[')
                && let Some((name, _)) = rest.split_once(']')
            {
                let value = quote(value.trim_matches(['"', '\'']));
                let name = match name.contains('.') {
                    true => quote(name),
                    false => name.to_owned(),
                };
                let hint =
                    format!("write all of them as one table: {table} = {{ {name} = {value} }}");
                return (message, Some(hint));
            }
        }
        let hint = match line.trim_end().ends_with('{') {
            true => "weir.toml is in TOML format: write tables as [NAME] and keys as `key = value`",
            false => "write `key = value`, texts in quotes",
        };
        return (message, Some(hint.into()));
    }
    if let Some(name) = key.strip_prefix("pm.")
        && message.starts_with("cannot extend")
    {
        let near = scalar::nearest(name, rows::of(Section::Pool).map(|row| row.name));
        let hint = near.map(|near| format!("it is called `{near}` here"));
        return (format!("`pm.{name}` is not a key of [pool.NAME]"), hint);
    }
    let quoted = value.contains(['"', '\'', '[', '{']);
    if !key.is_empty() && line.contains('=') && !quoted {
        return match value {
            "" => (format!("`{key}` has no value"), None),
            _ if value.starts_with(|c: char| c == '-' || c.is_ascii_digit())
                && !value.contains([':', '/']) =>
            {
                (
                    format!("{value} is not a valid value"),
                    Some(format!("write texts in quotes: {key} = {}", quote(value))),
                )
            }
            _ => (
                "texts are written in quotes".to_owned(),
                Some(format!(
                    "write {key} = {}",
                    quote(value.trim_end_matches(';'))
                )),
            ),
        };
    }
    if message.starts_with("string values must be quoted") {
        return ("texts are written in quotes".to_owned(), None);
    }
    let message = message
        .strip_suffix(", expected nothing")
        .unwrap_or(message);
    (message.to_owned(), None)
}

/// The first round finds all lines at which the parser stops. Blanking them may uncover a few more.
const ROUNDS: usize = 4;

#[cfg(test)]
mod tests {
    use super::server_table;

    #[test]
    fn the_server_s_table_is_found_or_all_is_read() {
        let found = |text: &str| server_table(text).map(str::to_owned);
        let table = "[server]\nuser = \"a\"\n";
        assert_eq!(
            found(&format!("# x\n{table}[pool.a]\nuser = \"b\"\n")),
            Some(table.into())
        );
        assert_eq!(found(&format!("[pool.a]\n{table}")), Some(table.into()));
        assert_eq!(found("[ server ]\n"), None);
        assert_eq!(found("server.user = \"a\"\n"), None);
        assert_eq!(found("[site.a]\nx = '''\n[server]\n'''\n"), None);
    }

    #[test]
    fn the_server_is_the_same_from_its_lines_and_from_the_file() {
        let env = crate::Environment::of_this_machine(std::path::Path::new("/"));
        let texts = [
            "[pool.a]\nruntime = 5\n[server]\nadmin = \"unix:/a\"\n[site.a]\nroot = 1\n",
            "[server]\ntrusted = [\n\"10.0.0.0/8\",\n]\nadmin = \"unix:/a\"\n[site.a]\n",
            "[ server ]\nadmin = \"unix:/a\"\n",
            "server = { admin = \"unix:/a\" }\n",
            "server.admin = \"unix:/a\"\n",
        ];
        for text in texts {
            let server = crate::read_server("weir.toml", text, &env).expect(text);
            assert_eq!(server.admin, crate::SocketPath::At("/a".into()), "{text}");
        }
        let wrong = "[pool.a]\n[server]\nadmin = 5\n[site.a]\n";
        let said = crate::read_server("weir.toml", wrong, &env).unwrap_err();
        assert!(said.to_string().contains("weir.toml:3:"), "{said}");
    }
}
