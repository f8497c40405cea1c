//! `[log]`: what is logged, where and how.

use std::path::{Path, PathBuf};

use crate::template::Template;

/// `[log]`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Log {
    /// Target of the access log.
    pub access: LogTarget,
    /// Format of the access log.
    pub format: LogFormat,
    /// Target of the log of outgoing calls.
    pub egress: LogTarget,
    /// Target of the error log.
    pub error: LogTarget,
    /// The least severe level that is written.
    pub level: Level,
    /// Format of error messages.
    pub error_format: ErrorFormat,
    /// Longest line in PHP-FPM's format, bytes.
    pub error_limit: u32,
    /// In PHP-FPM's format, lines of workers are buffered until they are complete.
    pub error_buffering: bool,
    /// Ident of messages to syslog.
    pub syslog_ident: String,
    /// Syslog facility, numbered as in syslog(3) (daemon: 3).
    pub syslog_facility: u8,
}

/// Format of error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorFormat {
    /// weir's own.
    #[default]
    Weir,
    /// weir's own, as JSON.
    Json,
    /// PHP-FPM's, for scripts that parse them.
    Fpm,
}

/// Where a log goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LogTarget {
    /// Nowhere.
    #[default]
    Off,
    /// `"stdout"`
    Stdout,
    /// `"stderr"`
    Stderr,
    /// A file, opened for appending and reopened at SIGUSR1.
    File(PathBuf),
    /// The system's log (/dev/log); only for the error log.
    Syslog,
}

impl LogTarget {
    /// The folder of the file, if it is one.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::File(path) => path.parent(),
            _ => None,
        }
    }
}

/// Format of a line of the access log.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum LogFormat {
    /// Apache's and nginx's combined format.
    #[default]
    Combined,
    /// One JSON object per line, with all fields.
    Json,
    /// Text with `${...}`.
    Template(Template),
}

/// Severity, most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Something failed or is lost.
    Error,
    /// Something will cause a problem.
    Warning,
    /// Normal events for operators.
    #[default]
    Notice,
    /// Everything.
    Debug,
}
