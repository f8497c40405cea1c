//! The report as text for people, and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};
use weir_machine::findings::{Finding, Severity};

use super::{Report, Unseen};

/// The report as text: sections, in each the worst first, and a summary.
pub(super) fn page(report: &Report, colour: bool, width: usize) -> String {
    let paint = Paint(colour);
    let mut out = format!("{}\n", paint.with(BOLD, &clean(&report.name)));
    for line in &report.stance {
        put(&mut out, "", line, 0, width);
    }
    for (subject, notes) in &report.subjects {
        if notes.findings.is_empty() && notes.unseen.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{}", paint.with(BOLD, subject.title));
        for finding in &notes.findings {
            put_finding(&mut out, finding, paint, width);
        }
        for Unseen { what, how } in &notes.unseen {
            put(&mut out, &label("?", DIM, paint), what, INDENT, width);
            put(&mut out, LET, how, INDENT + LET.len() - 8, width);
        }
    }
    let _ = writeln!(out, "\n{}", summary(report, paint));
    out
}

/// The report as JSON; in later versions fields are only added.
pub(super) fn json(report: &Report) -> String {
    let mut checks = Vec::new();
    let mut unseen = Vec::new();
    for (subject, notes) in &report.subjects {
        for finding in &notes.findings {
            checks.push(json!({
                "subject": subject.name,
                "verdict": finding.severity.name(),
                "what": finding.what,
                "why": text_or_null(&finding.why),
                "fix": finding.mend,
            }));
        }
        for Unseen { what, how } in &notes.unseen {
            unseen.push(json!({ "subject": subject.name, "what": what, "how": how }));
        }
    }
    let whole = json!({
        "version": weir_sys::version::version(),
        "configuration": report.name,
        "stance": report.stance,
        "verdict": worst(report).name(),
        "count": {
            "break": report.count(Severity::Break),
            "warn": report.count(Severity::Warn),
            "note": report.count(Severity::Note),
            "ok": report.count(Severity::Ok),
            "unseen": report.unseen(),
        },
        "checks": checks,
        "unseen": unseen,
    });
    format!("{whole:#}\n")
}

/// The width of the terminal according to the shell, within a readable range.
pub(super) fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|columns| columns.parse().ok());
    columns.unwrap_or(100).clamp(60, 120)
}

fn put_finding(out: &mut String, finding: &Finding, paint: Paint, width: usize) {
    let style = match finding.severity {
        Severity::Break => RED,
        Severity::Warn => YELLOW,
        Severity::Note => CYAN,
        Severity::Ok => GREEN,
    };
    let word = label(finding.severity.name(), style, paint);
    put(out, &word, &finding.what, INDENT, width);
    if !finding.why.is_empty() {
        put(out, "         why   ", &finding.why, 15, width);
    }
    if let Some(mend) = &finding.mend {
        put(out, "         fix   ", mend, 15, width);
    }
}

/// A severity in its column.
fn label(word: &str, style: &str, paint: Paint) -> String {
    format!(
        "  {}{}",
        paint.with(style, word),
        " ".repeat(7 - word.len())
    )
}

/// A paragraph: its first line after `begin`, the others indented.
fn put(out: &mut String, begin: &str, text: &str, indent: usize, width: usize) {
    out.push_str(begin);
    let mut column = indent;
    for (index, word) in clean(text).split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > width {
            let _ = write!(out, "\n{}", " ".repeat(indent));
            column = indent;
        } else if index > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}

fn summary(report: &Report, paint: Paint) -> String {
    let some = |count: usize, word: &str, style: &str| {
        let text = format!("{count} {word}");
        match count {
            0 => text,
            _ => paint.with(style, &text),
        }
    };
    let plural = |count: usize, one: &'static str, more: &'static str| match count {
        1 => one,
        _ => more,
    };
    let (breaks, warns, notes) = (
        report.count(Severity::Break),
        report.count(Severity::Warn),
        report.count(Severity::Note),
    );
    format!(
        "{}, {}, {}, {} ok, {} not checked",
        some(breaks, "would break", RED),
        some(warns, plural(warns, "warning", "warnings"), YELLOW),
        some(notes, plural(notes, "note", "notes"), CYAN),
        report.count(Severity::Ok),
        report.unseen(),
    )
}

fn worst(report: &Report) -> Severity {
    let findings = report
        .subjects
        .iter()
        .flat_map(|(_, notes)| &notes.findings);
    findings
        .map(|finding| finding.severity)
        .max()
        .unwrap_or(Severity::Ok)
}

fn text_or_null(text: &str) -> Value {
    match text {
        "" => Value::Null,
        text => text.into(),
    }
}

/// Safe for a terminal: paths and names may come from others.
fn clean(text: &str) -> String {
    weir_observe::log_text::shown(text)
}

#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn with(self, style: &str, text: &str) -> String {
        match self.0 {
            true => format!("\x1b[{style}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "1;31";
const GREEN: &str = "32";
const YELLOW: &str = "1;33";
const CYAN: &str = "36";

/// Column where the text of a finding begins.
const INDENT: usize = 9;

/// Before the text about how something can be made visible.
const LET: &str = "         to check ";

#[cfg(test)]
mod tests {
    use super::super::{Notes, SUBJECTS};
    use super::*;

    fn report() -> Report {
        let mut notes = Notes::default();
        notes.ok("it is \u{1b}[31mwell");
        notes.note("it is known", "for later", "");
        notes.warn(
            "the queue is short",
            "clients wait for a long time",
            "make it longer",
        );
        notes.breaks("the root is missing", "404 to everything", "mkdir /srv");
        notes.unseen("what others have open", "run it as root");
        notes.sort();
        Report {
            name: "weir.toml".into(),
            stance: vec!["checked for a start by root".into()],
            subjects: vec![(&SUBJECTS[0], notes)],
        }
    }

    #[test]
    fn the_worst_comes_first_and_the_last_line_sums_up() {
        let page = page(&report(), false, 80);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        assert!(at("  break  the root") < at("  warn   the queue"), "{page}");
        assert!(
            at("  warn   the queue") < at("  note   it is known"),
            "{page}"
        );
        assert!(at("  note   ") < at("  ok     "), "{page}");
        assert!(page.contains("         fix   mkdir /srv\n"), "{page}");
        assert!(page.contains("  ?      what others have open\n"), "{page}");
        let last = page.lines().last();
        assert_eq!(
            last,
            Some("1 would break, 1 warning, 1 note, 1 ok, 1 not checked")
        );
        assert!(!page.contains('\u{1b}'), "{page}");
    }

    #[test]
    fn colour_is_only_put_around_words() {
        let (plain, painted) = (page(&report(), false, 80), page(&report(), true, 80));
        assert!(painted.contains("\x1b[1;31mbreak\x1b[0m"), "{painted}");
        assert_eq!(painted.lines().count(), plain.lines().count());
    }

    #[test]
    fn long_lines_are_folded_beneath_their_beginning() {
        let mut out = String::new();
        put(&mut out, "  warn   ", &"word ".repeat(30), INDENT, 60);
        assert!(
            out.lines().count() > 2 && out.lines().all(|line| line.len() <= 60),
            "{out}"
        );
        assert!(
            out.lines()
                .skip(1)
                .all(|line| line.starts_with("         word")),
            "{out}"
        );
    }

    #[test]
    fn programs_read_counts_verdicts_and_nulls() {
        let report: Value = serde_json::from_str(&json(&report())).unwrap();
        assert_eq!(report["verdict"], "break");
        assert_eq!(report["count"]["unseen"], 1);
        assert_eq!(report["checks"].as_array().unwrap().len(), 4);
        assert_eq!(report["checks"][0]["verdict"], "break");
        assert_eq!(report["checks"][0]["fix"], "mkdir /srv");
        assert_eq!(report["checks"][2]["fix"], Value::Null);
        assert_eq!(report["checks"][3]["why"], Value::Null);
        assert_eq!(report["unseen"][0]["how"], "run it as root");
    }
}
