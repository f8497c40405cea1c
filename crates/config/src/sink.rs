//! Where the passes over one text leave what they find.

use core::ops::Range;

use crate::{
    diagnostic::{Diagnostic, Severity},
    scalar::Wrong,
};

/// Collects diagnostics. A text with broken syntax is still read as far as it can be; what such a reading finds
/// is kept only where the broken places cannot be its cause.
#[derive(Default)]
pub(crate) struct Sink {
    found: Vec<Diagnostic>,
    /// Bytes of the lines whose syntax is broken.
    broken: Vec<Range<usize>>,
    /// Warnings that count only if there is no error.
    of_whole: Vec<Diagnostic>,
    /// Parts of the text may be missing from what was read.
    partial: bool,
}

impl Sink {
    /// Notes an error of syntax; `line` is the whole line it stands in.
    pub(crate) fn syntax(&mut self, diagnostic: Diagnostic, line: Range<usize>, partial: bool) {
        self.found.push(diagnostic);
        self.broken.push(line);
        self.partial |= partial;
    }

    /// An error in what stands at `span`.
    pub(crate) fn error(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        hint: impl IntoHint,
    ) {
        self.push(Severity::Error, span, message.into(), hint.into_hint());
    }

    /// An error in how one place fits the rest of the file, such as something that is missing.
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

    /// Something that will bite.
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

    /// A warning that an error elsewhere in the file may be the cause of; kept only if there is none.
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

    /// Notes what is wrong with a value at `span`, and passes on what is not wrong.
    pub(crate) fn take<T>(&mut self, span: Range<usize>, checked: Result<T, Wrong>) -> Option<T> {
        match checked {
            Ok(value) => Some(value),
            Err(Wrong { message, hint }) => {
                self.error(span, message, hint);
                None
            }
        }
    }

    /// At least one error was found.
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

/// What may be given as a hint: nothing (`""`), a text, or a text that may be missing.
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
