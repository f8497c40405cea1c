//! What a check found: how bad it is, what, why it matters, what mends it. The words between those who check (the
//! start, `weir check`, `weir doctor`) and those who print.

use std::fmt;

/// How bad it is, from nothing to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It was looked at, and is well.
    Ok,
    /// Worth knowing; nothing suffers yet.
    Note,
    /// Somebody will suffer when there is much to do.
    Warn,
    /// It cannot work.
    Break,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What is so, with its place: `[listen.web] backlog = 4096 is cut to 128 (net.core.somaxconn)`.
    pub what: String,
    /// Whom it hurts, and when.
    pub why: String,
    /// A command or a line of configuration that mends it.
    pub mend: Option<String>,
}

impl Finding {
    /// Something that is well.
    pub fn ok(what: impl Into<String>) -> Self {
        Self {
            severity: Severity::Ok,
            what: what.into(),
            why: String::new(),
            mend: None,
        }
    }

    /// Something that is not.
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

/// In one line, as the log has it.
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
