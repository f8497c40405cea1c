//! The messages of `weir fpm` before its log is open, as PHP-FPM prints them.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    path::Path,
    time::SystemTime,
};

use weir_config::fpm::{Diagnostics, Level, Message};
use weir_observe::{
    error_log::syslog::{self, Syslog, Tag},
    log_text as text,
};
use weir_sys::log_file;

/// The original standard error, and the error log once it is known.
#[derive(Debug)]
pub(super) struct Printer {
    /// Less severe messages are suppressed.
    level: Level,
    stderr: Option<File>,
    log: Option<File>,
    /// The log is syslog, and lines have the format for it.
    syslog: Option<Syslog>,
}

impl Printer {
    /// On standard error, at level notice.
    pub(super) fn new() -> Self {
        let stderr = io::stderr().as_fd().try_clone_to_owned().ok();
        Self {
            level: Level::Notice,
            stderr: stderr.map(File::from),
            log: None,
            syslog: None,
        }
    }

    /// Prints the messages of reading the configuration. `force_stderr`: the log is not used while weir stays in the
    /// foreground.
    pub(super) fn tell(&mut self, diagnostics: &Diagnostics, force_stderr: bool) {
        for (at, message) in diagnostics.messages.iter().enumerate() {
            self.open_log(diagnostics, at, force_stderr);
            self.say(message);
        }
        self.open_log(diagnostics, diagnostics.messages.len(), force_stderr);
    }

    fn open_log(&mut self, diagnostics: &Diagnostics, at: usize, force_stderr: bool) {
        let Some(log) = diagnostics.log.as_ref().filter(|log| log.before == at) else {
            return;
        };
        self.level = log.level.unwrap_or(self.level);
        if !uses_log(log.daemonize, force_stderr) {
            return;
        }
        match &log.path {
            Some(path) => {
                // An error was already reported when opening was tried.
                let opened = log_file::open(Path::new(path), 0o600, &[]).ok();
                self.log = opened.map(|opened| opened.file.into());
            }
            None => {
                let tag = Tag {
                    ident: log.syslog_ident.clone(),
                    facility: log.syslog_facility,
                };
                let new = |socket| Syslog::new(socket, tag, std::process::id());
                self.syslog = syslog::connect().and_then(new).ok();
            }
        }
    }

    /// The error log.
    pub(super) fn log(&self) -> Option<&File> {
        self.log.as_ref()
    }

    /// Prints a message in PHP-FPM's format.
    pub(super) fn say(&mut self, message: &Message) {
        let mut line = Vec::with_capacity(128);
        let Some(level) = message.level else {
            // From PHP's parser, which adds neither time nor log.
            text::put_message(message.text.as_bytes(), &mut line);
            line.push(b'\n');
            self.write_stderr(&line);
            return;
        };
        if level < self.level {
            return;
        }
        let debug = self.level == Level::Debug;
        line.push(b'[');
        if self.syslog.is_none() {
            text::put_time_php(SystemTime::now(), debug, &mut line);
            line.extend_from_slice(b"] ");
        }
        line.extend_from_slice(level.name().as_bytes());
        line.extend_from_slice(match self.syslog {
            Some(_) => b"] ",
            None => b": ",
        });
        if debug && self.syslog.is_none() {
            let pid = std::process::id();
            text::put_formatted(format_args!("pid {pid}, "), &mut line);
        }
        if debug {
            let place = format_args!("{}(), line {}: ", module_path!(), line!());
            text::put_formatted(place, &mut line);
        }
        // In the output of -tt, names of settings follow after a tab.
        let bare = message.text.strip_suffix('\n');
        for (index, part) in bare.unwrap_or(&message.text).split('\t').enumerate() {
            line.extend_from_slice(if index == 0 { b"" } else { b"\t" });
            text::put_message(part.as_bytes(), &mut line);
        }
        // Some of PHP-FPM's own texts end their line, too.
        line.extend_from_slice(if bare.is_some() { b"\n\n" } else { b"\n" });
        // If neither can be written, the message is lost.
        self.write_stderr(&line);
        if let Some(log) = &mut self.log {
            let _ = log.write_all(&line);
        }
        if let Some(syslog) = &mut self.syslog {
            // As in PHP-FPM, the severity is that of the log's level, not the message's own.
            let severity = match self.level {
                Level::Debug => 7,
                Level::Notice => 5,
                Level::Warning => 4,
                Level::Error => 3,
                Level::Alert => 1,
            };
            line.pop();
            for part in line.split(|&byte| byte == b'\n') {
                syslog.send_with(severity, part);
            }
        }
    }

    fn write_stderr(&mut self, line: &[u8]) {
        if let Some(stderr) = &mut self.stderr {
            let _ = stderr.write_all(line);
        }
    }

    /// Prints an error.
    pub(super) fn error(&mut self, text: impl Into<String>) {
        self.say(&Message {
            level: Some(Level::Error),
            text: text.into(),
        });
    }
}

/// Whether errors go to the configured log: PHP-FPM writes to standard error only if it is a terminal, or if asked
/// to.
pub(super) fn uses_log(daemonize: bool, force_stderr: bool) -> bool {
    daemonize || (!io::stderr().is_terminal() && !force_stderr)
}
