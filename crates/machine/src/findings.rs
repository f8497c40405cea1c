//! A finding of a check: how severe it is, what it is, why it matters, and how to fix it. It connects the code that
//! checks (the start, `weir check`, `weir doctor`) with the code that prints.

use std::fmt;

/// The severity, from harmless to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The setting was checked and is fine.
    Ok,
    /// Worth knowing; it has no bad effect yet.
    Note,
    /// The setting will have bad effects under load.
    Warn,
    /// The setting cannot work.
    Break,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How severe it is.
    pub severity: Severity,
    /// The fact, with its place: `[listen.web] backlog = 4096 is cut to 128 (net.core.somaxconn)`.
    pub what: String,
    /// Who is affected, and when.
    pub why: String,
    /// A command or a configuration line that fixes it.
    pub mend: Option<String>,
}

impl Finding {
    /// A finding that is fine.
    pub fn ok(what: impl Into<String>) -> Self {
        Self {
            severity: Severity::Ok,
            what: what.into(),
            why: String::new(),
            mend: None,
        }
    }

    /// A finding that is not fine.
    pub fn new(
        severity: Severity,
        what: impl Into<String>,
        why: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            what: what.into(),
            why: why.into(),
            mend: Some(mend.into()),
        }
    }
}

impl Severity {
    /// One word for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Break => "break",
        }
    }
}

/// In one line, as in the log.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.why.is_empty() {
            write!(f, ": {}", self.why)?;
        }
        match &self.mend {
            Some(mend) => write!(f, "; {mend}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_and_the_worst_is_the_greatest() {
        let finding = Finding::new(
            Severity::Warn,
            "the queue is short",
            "clients wait",
            "make it longer",
        );
        assert_eq!(
            finding.to_string(),
            "the queue is short: clients wait; make it longer"
        );
        assert_eq!(Finding::ok("it is well").to_string(), "it is well");
        assert!(Severity::Break > Severity::Warn && Severity::Note > Severity::Ok);
        assert_eq!(Severity::Break.name(), "break");
    }
}
