//! The output of workers in the format of PHP-FPM 8.2, byte for byte (sapi/fpm/fpm: fpm_stdio.c, zlog.c):
//!
//! ```text
//! [20-Nov-2026 15:13:20] WARNING: [pool www] child 7 said into stderr: "NOTICE: PHP message: hello"
//! ```
//!
//! Writes are joined until a newline arrives or the worker's request ends, which the worker marks in its standard
//! error. A line longer than `error_limit` is split. The text between the quotes is unchanged, including control
//! characters, so that scripts for PHP-FPM's log find what they expect.

use std::time::SystemTime;

use log::LevelFilter;

use weir_observe::{events::Stream, log_text as text};

/// The settings of the format.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) pool: String,
    /// Adds time, pool and process before the text, and quotes around it.
    pub(super) decorate: bool,
    /// Maximum length of a line with its end, bytes; at least 512.
    pub(super) limit: usize,
    /// Lines are written when they are complete, not part by part.
    pub(super) buffered: bool,
    /// The output is syslog, which adds the time itself and needs whole lines.
    pub(super) syslog: bool,
}

/// The unfinished line of a worker's output.
#[derive(Debug)]
pub(super) struct PartialLine {
    /// Bytes that are not written yet.
    line: Vec<u8>,
    /// How many of them belong to complete lines.
    whole: usize,
    /// Length of the unfinished line.
    length: usize,
    stream: Stream,
    /// How many bytes of an end mark have arrived.
    marked: usize,
}

impl PartialLine {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            line: Vec::new(),
            whole: 0,
            length: 0,
            stream,
            marked: 0,
        }
    }

    /// The next bytes are from this stream. A worker has one line: output and error interrupt each other.
    pub(super) fn turn_to(&mut self, stream: Stream, pid: u32, form: &Form) {
        if self.stream != stream {
            self.end(pid, form);
            self.stream = stream;
        }
    }

    /// Adds bytes, in pieces of any size.
    pub(super) fn push(&mut self, mut bytes: &[u8], pid: u32, form: &Form) {
        if self.marked > 0 {
            let rest = &MARK[self.marked..];
            let count = rest.len().min(bytes.len());
            if bytes[..count] != rest[..count] {
                let marked = std::mem::take(&mut self.marked);
                self.add(&MARK[..marked], pid, form);
            } else if count < rest.len() {
                self.marked += count;
                return;
            } else {
                self.marked = 0;
                self.finish(pid, form, "");
                bytes = &bytes[count..];
            }
        }
        // Text between line ends stays in one piece, because the pieces are visible if they are written at once.
        let mut from = 0;
        while let Some(found) = memchr::memchr2(b'\n', MARK[0], &bytes[from..]) {
            let at = from + found;
            let length = match bytes[at] {
                b'\n' => 1,
                _ if bytes[at..].starts_with(MARK) => MARK.len(),
                _ if MARK.starts_with(&bytes[at..]) => {
                    self.add(&bytes[..at], pid, form);
                    self.marked = bytes.len() - at;
                    return;
                }
                _ => {
                    from = at + 1;
                    continue;
                }
            };
            self.add(&bytes[..at], pid, form);
            self.finish(pid, form, "");
            bytes = &bytes[at + length..];
            from = 0;
        }
        self.add(bytes, pid, form);
    }

    /// Ends the line, if there is one.
    pub(super) fn end(&mut self, pid: u32, form: &Form) {
        let marked = std::mem::take(&mut self.marked);
        self.add(&MARK[..marked], pid, form);
        self.finish(pid, form, "");
    }

    /// The same, if everything was read only at the end of the pipe.
    pub(super) fn end_of_pipe(&mut self, pid: u32, form: &Form) {
        let marked = std::mem::take(&mut self.marked);
        self.add(&MARK[..marked], pid, form);
        self.finish(pid, form, CLOSED);
    }

    /// The bytes to write now, with newlines; may be empty.
    pub(super) fn take_written(&mut self, form: &Form) -> Vec<u8> {
        if !form.at_once() {
            let rest = self.line.split_off(self.whole);
            self.whole = 0;
            return std::mem::replace(&mut self.line, rest);
        }
        self.whole = 0;
        std::mem::take(&mut self.line)
    }

    fn add(&mut self, mut bytes: &[u8], pid: u32, form: &Form) {
        while !bytes.is_empty() {
            if self.length == 0 {
                self.begin(pid, form, true);
            }
            let reserved = self.length + usize::from(form.decorate);
            let wanted = reserved + bytes.len();
            if wanted < form.limit {
                self.line.extend_from_slice(bytes);
                self.length += bytes.len();
                return;
            }
            let (now, later) = bytes.split_at((form.limit - 1).saturating_sub(reserved));
            self.line.extend_from_slice(now);
            // If PHP-FPM writes at once, it forgets the end of a line that has exactly the maximum length.
            if !form.at_once() || wanted > form.limit {
                self.quote(form);
                self.end_line();
            }
            self.length = 0;
            bytes = later;
        }
    }

    fn begin(&mut self, pid: u32, form: &Form, quote: bool) {
        let before = self.line.len();
        // If the message is less severe than the log's level, PHP-FPM leaves out the prefix, but not the message.
        if form.decorate && log::max_level() >= LevelFilter::Warn {
            self.put_head(pid, form);
            if quote {
                self.line.push(b'"');
            }
        }
        self.length = self.line.len() - before;
    }

    fn put_head(&mut self, pid: u32, form: &Form) {
        let debug = log::max_level() >= LevelFilter::Debug;
        if form.syslog {
            self.line.extend_from_slice(b"[WARNING] ");
        } else {
            self.line.push(b'[');
            text::put_time_php(SystemTime::now(), debug, &mut self.line);
            self.line.extend_from_slice(b"] WARNING: ");
        }
        if debug && !form.syslog {
            let us = std::process::id();
            text::put_formatted(format_args!("pid {us}, "), &mut self.line);
        }
        if debug {
            self.line.extend_from_slice(b"(null)(), line 0: ");
        }
        let stream = match self.stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        let pool = &form.pool;
        let who = format_args!("[pool {pool}] child {pid} said into {stream}: ");
        text::put_formatted(who, &mut self.line);
    }

    fn finish(&mut self, pid: u32, form: &Form, suffix: &str) {
        if self.length == 0 {
            return;
        }
        self.quote(form);
        if form.decorate {
            self.put_suffix(pid, form, suffix);
        }
        self.end_line();
        self.length = 0;
    }

    fn put_suffix(&mut self, pid: u32, form: &Form, suffix: &str) {
        let length = self.length + 1;
        let over = (length + suffix.len() + 1).saturating_sub(form.limit);
        if suffix.is_empty() || over == 0 {
            self.line.extend_from_slice(suffix.as_bytes());
            return;
        }
        let (now, later) = suffix.split_at(suffix.len().saturating_sub(over));
        self.line.extend_from_slice(now.as_bytes());
        self.end_line();
        if !form.at_once() {
            self.end_line();
        }
        self.begin(pid, form, false);
        self.line.extend_from_slice(later.as_bytes());
        if !form.at_once() {
            self.end_line();
        }
    }

    fn quote(&mut self, form: &Form) {
        if form.decorate {
            self.line.push(b'"');
        }
    }

    fn end_line(&mut self) {
        self.line.push(b'\n');
        self.whole = self.line.len();
    }
}

impl Form {
    fn at_once(&self) -> bool {
        !self.buffered && !self.syslog
    }
}

/// A worker marks the end of its request with this; PHP-FPM uses the same bytes.
const MARK: &[u8; 6] = b"\0fscf\0";

const CLOSED: &str = ", pipe is closed";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form(decorate: bool, limit: usize, buffered: bool) -> Form {
        Form {
            pool: "www".into(),
            decorate,
            limit,
            buffered,
            syslog: false,
        }
    }

    fn said(form: &Form, pieces: &[&[u8]]) -> Vec<u8> {
        let mut said = PartialLine::new(Stream::Stderr);
        let mut out = Vec::new();
        for piece in pieces {
            said.push(piece, 7, form);
            out.extend(said.take_written(form));
        }
        said.end(7, form);
        out.extend(said.take_written(form));
        out
    }

    #[test]
    fn a_mark_ends_a_line_wherever_it_is_cut_and_half_a_mark_is_text() {
        let whole = b"one\0fscf\0two\0fsc\nthree\0\0fscf\0\0fscf\0four\0";
        let expected = b"one\ntwo\0fsc\nthree\0\nfour\0\n";
        for cut in 0..whole.len() {
            let (one, two) = whole.split_at(cut);
            assert_eq!(said(&form(false, 1024, true), &[one, two]), expected);
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_line_is_longer_than_the_limit(
            text in prop::collection::vec(any::<u8>().prop_filter("", |b| !matches!(b, 0 | b'\n')), 0..4000),
            cuts in prop::collection::vec(0_usize..4000, 0..5),
            limit in 512_usize..2048,
            decorate: bool,
            buffered: bool,
        ) {
            let form = form(decorate, limit, buffered);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            let out = said(&form, &pieces);
            let mut found = Vec::new();
            for line in out.split_inclusive(|byte| *byte == b'\n') {
                // Two lines in one, where PHP-FPM forgets a line end.
                prop_assert!(line.len() <= limit || !buffered);
                let line = line.strip_suffix(b"\n").unwrap();
                if decorate {
                    prop_assert!(line.ends_with(b"\""));
                }
                found.extend_from_slice(line);
            }
            if !decorate {
                prop_assert_eq!(found, text);
            }
        }
    }
}
