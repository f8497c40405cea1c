//! A worker's standard error during a request, as events of the error log.

use super::{About, Lossless, tell};

/// A worker's standard error during a request: each line becomes an event of level error that names the request. A
/// line longer than [`LONGEST_STDERR_LINE`] continues in another event, and both are marked.
#[derive(Debug, Default)]
pub struct WorkerStderr {
    line: Vec<u8>,
    continued: bool,
}

impl WorkerStderr {
    /// Empty; does not allocate.
    pub const fn new() -> Self {
        Self {
            line: Vec::new(),
            continued: false,
        }
    }

    /// Adds bytes, in pieces of any size.
    pub fn push(&mut self, mut bytes: &[u8], about: &About<'_>) {
        while !bytes.is_empty() {
            let room = LONGEST_STDERR_LINE - self.line.len();
            let end = memchr::memchr(b'\n', bytes);
            let take = end.unwrap_or(bytes.len());
            if take > room {
                self.line.extend_from_slice(&bytes[..room]);
                bytes = &bytes[room..];
                self.say(about, true);
                continue;
            }
            self.line.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take + usize::from(end.is_some())..];
            if end.is_some() {
                self.finish(about);
            }
        }
    }

    /// The request has ended: the rest counts as a line.
    pub fn finish(&mut self, about: &About<'_>) {
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        if !self.line.is_empty() {
            self.say(about, false);
        }
        self.continued = false;
    }

    fn say(&mut self, about: &About<'_>, goes_on: bool) {
        let begin = if self.continued { "[continued] " } else { "" };
        let end = if goes_on { " [goes on]" } else { "" };
        tell!(
            error,
            about,
            "worker stderr: {begin}{}{end}",
            Lossless(&self.line)
        );
        self.continued = goes_on;
        self.line.clear();
    }
}

/// A line of a worker's standard error is kept in one piece up to this many bytes.
pub(crate) const LONGEST_STDERR_LINE: usize = 64 << 10;
