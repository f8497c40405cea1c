//! Collects the diagnostics of all passes over one text.

use core::ops::Range;

use crate::{
    diagnostic::{Diagnostic, Severity},
    scalar::Wrong,
};

/// Collects diagnostics. A text with syntax errors is still read as far as possible. Diagnostics from such a reading
/// are kept only if the syntax errors cannot be their cause.
#[derive(Default)]
pub(crate) struct Sink {
    found: Vec<Diagnostic>,
    /// Byte ranges of the lines with syntax errors.
    broken: Vec<Range<usize>>,
    /// Warnings that count only if there is no error.
    of_whole: Vec<Diagnostic>,
    /// Parts of the text may be missing in the result of the parser.
    partial: bool,
}

impl Sink {
    /// Adds a syntax error. `line` is the range of its whole line.
    pub(crate) fn syntax(&mut self, diagnostic: Diagnostic, line: Range<usize>, partial: bool) {
        self.found.push(diagnostic);
        self.broken.push(line);
        self.partial |= partial;
    }

    /// Adds an error at `span`.
    pub(crate) fn error(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        hint: impl IntoHint,
    ) {
        self.push(Severity::Error, span, message.into(), hint.into_hint());
    }

    /// Adds an error that depends on the rest of the file, such as a missing section.
    pub(crate) fn error_of_whole(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        hint: impl IntoHint,
    ) {
        if !self.partial {
            self.error(span, message, hint);
        }
    }

    /// Adds a warning about something that will cause a problem.
    pub(crate) fn warning(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        hint: impl IntoHint,
    ) {
        if !self.partial {
            self.push(Severity::Warning, span, message.into(), hint.into_hint());
        }
    }

    /// Adds a warning that an error elsewhere in the file may cause. It is kept only if there are no errors.
    pub(crate) fn warning_of_whole(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        hint: impl IntoHint,
    ) {
        self.of_whole.push(Diagnostic {
            severity: Severity::Warning,
            span,
            message: message.into(),
            hint: hint.into_hint(),
        });
    }

    /// Adds the error of a value at `span`, or returns the value.
    pub(crate) fn take<T>(&mut self, span: Range<usize>, checked: Result<T, Wrong>) -> Option<T> {
        match checked {
            Ok(value) => Some(value),
            Err(Wrong { message, hint }) => {
                self.error(span, message, hint);
                None
            }
        }
    }

    /// Whether there is at least one error.
    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|d| d.severity == Severity::Error)
    }

    pub(crate) fn into_found(mut self) -> Vec<Diagnostic> {
        if !self.has_errors() {
            self.found.append(&mut self.of_whole);
        }
        self.found
    }

    fn push(
        &mut self,
        severity: Severity,
        span: Range<usize>,
        message: String,
        hint: Option<String>,
    ) {
        if self.broken.iter().any(|line| line.contains(&span.start)) {
            return;
        }
        self.found.push(Diagnostic {
            severity,
            span,
            message,
            hint,
        });
    }
}

/// Types that can be a hint: nothing (`""`), a text, or an optional text.
pub(crate) trait IntoHint {
    fn into_hint(self) -> Option<String>;
}

impl IntoHint for &str {
    fn into_hint(self) -> Option<String> {
        (!self.is_empty()).then(|| self.to_owned())
    }
}

impl IntoHint for String {
    fn into_hint(self) -> Option<String> {
        (!self.is_empty()).then_some(self)
    }
}

impl IntoHint for Option<String> {
    fn into_hint(self) -> Option<String> {
        self
    }
}
