//! Reads the standard output and error of workers, line by line, to the last byte.
//!
//! Each process has one pipe for each. A line longer than [`LONGEST`] is split, and both parts are marked: nothing is
//! lost, and memory per process is limited. With PHP-FPM's format ([`fpm`]) the lines look like PHP-FPM's.

pub(crate) mod banner;
mod fpm;
pub(crate) mod line_log;
pub(crate) mod log_files;
pub(crate) mod slow_log;
pub(crate) mod tail;

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::{Duration, SystemTime},
};

use weir_config::{ErrorFormat, Log, LogTarget, Workers};
use weir_sys::{file, identity::Identity};

use crate::{
    generation::plan::Problem,
    output::{line_log::LineLog, log_files::LogFiles},
};
use fpm::{Form, PartialLine};
use weir_observe::{
    error_log,
    events::{self, Stream},
    log_text,
};

/// Where the lines of the processes of a pool or a program are written.
#[derive(Debug)]
pub(super) struct OutputLog {
    whose: Whose,
    /// Its NAME.
    name: String,
    decorate: bool,
    /// `None`: the error log.
    log: Option<LineLog>,
    /// Set if the error log has PHP-FPM's format.
    fpm: Option<Form>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Pool,
    Program,
}

/// The reading ends of a process's standard output and error.
#[derive(Debug)]
pub(super) struct Outputs {
    stdout: Option<Output>,
    stderr: Option<Output>,
    last: LastLines,
    /// With PHP-FPM's format: the unfinished line. `None`: there was no output yet.
    said: Option<Box<PartialLine>>,
    /// Never use PHP-FPM's format.
    plain: bool,
}

/// The last lines of a process.
#[derive(Debug, Default)]
pub(super) struct LastLines {
    /// The beginnings of the last lines.
    lines: VecDeque<Vec<u8>>,
    /// The beginning of the last line with an error of PHP.
    error: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Output {
    pipe: File,
    line: Vec<u8>,
    /// An earlier part of the line was already written.
    continued: bool,
}

/// A line or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece<'a> {
    bytes: &'a [u8],
    continued: bool,
    goes_on: bool,
}

impl OutputLog {
    /// Opens it.
    ///
    /// # Errors
    /// The problem, with its fix.
    pub(super) fn open(
        pool: &str,
        workers: &Workers,
        errors: &Log,
        files: &Rc<LogFiles>,
    ) -> Result<Self, Problem> {
        let open = |target| LineLog::open(format!("pool.{pool}.output_log"), target, files);
        let fpm = Form {
            pool: pool.to_owned(),
            decorate: workers.decorate_output,
            limit: errors.error_limit as usize,
            buffered: errors.error_buffering,
            syslog: errors.error == LogTarget::Syslog,
        };
        let is_fpm = errors.error_format == ErrorFormat::Fpm && workers.output_log.is_none();
        Ok(Self {
            whose: Whose::Pool,
            name: pool.to_owned(),
            decorate: workers.decorate_output,
            log: workers.output_log.as_ref().map(open).transpose()?,
            fpm: is_fpm.then_some(fpm),
        })
    }

    /// Opens that of a program.
    ///
    /// # Errors
    /// The problem, with its fix.
    pub(super) fn of_program(
        name: &str,
        workers: &Workers,
        files: &Rc<LogFiles>,
    ) -> Result<Self, Problem> {
        let open = |target| LineLog::open(format!("program.{name}.output_log"), target, files);
        Ok(Self {
            whose: Whose::Program,
            name: name.to_owned(),
            decorate: workers.decorate_output,
            log: workers.output_log.as_ref().map(open).transpose()?,
            fpm: None,
        })
    }

    /// The error log, for a process that belongs to no pool.
    pub(super) fn of_no_pool(name: &str) -> Self {
        Self {
            whose: Whose::Pool,
            name: name.to_owned(),
            decorate: true,
            log: None,
            fpm: None,
        }
    }

    /// Reopens it, as after the file was moved away.
    pub(super) fn reopen(&self) -> Result<(), Problem> {
        self.log.as_ref().map_or(Ok(()), LineLog::reopen)
    }

    /// Waits until everything is written, at most for `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        if let Some(log) = &self.log {
            log.flush(limit);
        }
    }

    fn say(&self, pid: u32, stream: Stream, piece: Piece<'_>) {
        let mut line = Vec::new();
        if piece.continued && (self.decorate || self.log.is_none()) {
            line.extend(b"[continued] ");
        }
        line.extend(piece.bytes);
        if piece.goes_on && (self.decorate || self.log.is_none()) {
            line.extend(b" [goes on]");
        }
        let written = match &self.log {
            None => false,
            Some(log) if self.decorate => {
                let mut decorated = Vec::with_capacity(line.len() + 64);
                log_text::put_time_utc(SystemTime::now(), &mut decorated);
                let who = format_args!(" [{} {pid}] ", self.name);
                log_text::put_formatted(who, &mut decorated);
                decorated.extend(&line);
                decorated.push(b'\n');
                log.write(&decorated)
            }
            Some(log) => {
                if !piece.goes_on {
                    line.push(b'\n');
                }
                log.write(&line)
            }
        };
        if !written {
            let say = match self.whose {
                Whose::Pool => events::worker_said,
                Whose::Program => events::program_said,
            };
            let line = line.trim_ascii_end();
            say(&self.name, pid, stream, line, self.decorate);
        }
    }
}

impl Outputs {
    /// Makes two pipes: returns our reading ends, and the writing ends for the process, standard output first.
    /// `owner` may open /dev/stdout and /dev/stderr by name.
    ///
    /// # Errors
    /// As pipe(2) and fchown(2).
    pub(super) fn pipes(owner: Option<&Identity>) -> io::Result<(Self, [OwnedFd; 2])> {
        let (stdout, out) = Output::pipe(owner)?;
        let (stderr, err) = Output::pipe(owner)?;
        let outputs = Self {
            stdout: Some(stdout),
            stderr: Some(stderr),
            last: LastLines::default(),
            said: None,
            plain: false,
        };
        Ok((outputs, [out, err]))
    }

    /// For processes that do not exist in PHP-FPM: their output is logged in whole lines.
    pub(super) fn in_plain_lines(self) -> Self {
        Self {
            plain: true,
            ..self
        }
    }

    /// The descriptors to wait for.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        let both = [
            (Stream::Stdout, &self.stdout),
            (Stream::Stderr, &self.stderr),
        ];
        both.into_iter()
            .filter_map(|(stream, output)| Some((stream, output.as_ref()?.pipe.as_fd())))
    }

    /// Reads what is available, up to 64 KiB, and gives each whole line to `log`.
    pub(super) fn read(&mut self, stream: Stream, pid: u32, log: &OutputLog) {
        if let Some(form) = log.fpm.as_ref().filter(|_| !self.plain) {
            return self.read_as_fpm(stream, pid, form, AT_ONCE);
        }
        let output = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let last = &mut self.last;
        let mut say = |piece: Piece<'_>| {
            last.keep(piece);
            log.say(pid, stream, piece);
        };
        if let Some(open) = output
            && !open.read(&mut say)
        {
            // No process can write to it any more.
            if let Some(open) = output.take() {
                open.finish(say);
            }
        }
    }

    /// The process has ended: reads the rest, also without a newline at the end. Returns its last lines.
    pub(super) fn finish(mut self, pid: u32, log: &OutputLog) -> LastLines {
        if let Some(form) = log.fpm.as_ref().filter(|_| !self.plain) {
            self.read_as_fpm(Stream::Stdout, pid, form, ALL);
            self.read_as_fpm(Stream::Stderr, pid, form, ALL);
            if let Some(mut said) = self.said {
                said.end(pid, form);
                error_log::write_bytes(&said.take_written(form));
            }
            return LastLines::default();
        }
        let mut last = self.last;
        for (stream, output) in [(Stream::Stdout, self.stdout), (Stream::Stderr, self.stderr)] {
            if let Some(output) = output {
                output.finish(|piece| {
                    last.keep(piece);
                    log.say(pid, stream, piece);
                });
            }
        }
        last
    }
}

impl Outputs {
    /// Reads up to this many pieces.
    fn read_as_fpm(&mut self, stream: Stream, pid: u32, form: &Form, pieces: usize) {
        let output = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let Some(open) = output else { return };
        let is_first = self.said.is_none();
        if let Some(said) = &mut self.said {
            said.turn_to(stream, pid, form);
        }
        let mut buffer = [0; PIECE];
        for _ in 0..pieces {
            match open.pipe.read(&mut buffer) {
                Ok(0) => {
                    if let Some(said) = self.said.as_mut().filter(|_| is_first) {
                        said.end_of_pipe(pid, form);
                    }
                    *output = None;
                    break;
                }
                Ok(n) => {
                    let said = self
                        .said
                        .get_or_insert_with(|| Box::new(PartialLine::new(stream)));
                    said.push(&buffer[..n], pid, form);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        *output = None;
                    }
                    break;
                }
            }
        }
        if let Some(said) = &mut self.said {
            error_log::write_bytes(&said.take_written(form));
        }
    }
}

impl Output {
    fn pipe(owner: Option<&Identity>) -> io::Result<(Self, OwnedFd)> {
        let (read, write) = io::pipe()?;
        let (read, write) = (OwnedFd::from(read), OwnedFd::from(write));
        weir_sys::listener::set_waiting(&read, false)?;
        if let Some(owner) = owner {
            file::give(write.as_fd(), owner.uid, owner.gid)?;
        }
        let output = Self {
            pipe: File::from(read),
            line: Vec::new(),
            continued: false,
        };
        Ok((output, write))
    }

    /// `false`: no process has it open any more.
    fn read(&mut self, mut say: impl FnMut(Piece<'_>)) -> bool {
        let mut buffer = [0; 8192];
        for _ in 0..8 {
            match self.pipe.read(&mut buffer) {
                Ok(0) => return false,
                Ok(n) => self.push(&buffer[..n], &mut say),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn finish(mut self, mut say: impl FnMut(Piece<'_>)) {
        // The process has ended, and its pipe holds at most this much. Later output of its children is ignored.
        for _ in 0..PIPE_READS {
            if !self.read(&mut say) {
                break;
            }
        }
        if !self.line.is_empty() {
            self.say(false, &mut say);
        }
    }

    fn push(&mut self, mut bytes: &[u8], say: &mut impl FnMut(Piece<'_>)) {
        while !bytes.is_empty() {
            let room = LONGEST - self.line.len();
            let end = memchr::memchr(b'\n', bytes);
            let take = end.unwrap_or(bytes.len());
            if take > room {
                self.line.extend(&bytes[..room]);
                bytes = &bytes[room..];
                self.say(true, say);
                continue;
            }
            self.line.extend(&bytes[..take]);
            bytes = &bytes[take + usize::from(end.is_some())..];
            if end.is_some() {
                if self.line.last() == Some(&b'\r') {
                    self.line.pop();
                }
                if !self.line.is_empty() || self.continued {
                    self.say(false, say);
                }
            }
        }
    }

    fn say(&mut self, goes_on: bool, say: &mut impl FnMut(Piece<'_>)) {
        say(Piece {
            bytes: &self.line,
            continued: self.continued,
            goes_on,
        });
        self.continued = goes_on;
        self.line.clear();
    }
}

impl LastLines {
    /// Keeps the beginning of a line.
    fn keep(&mut self, piece: Piece<'_>) {
        if piece.continued {
            return;
        }
        let bytes = &piece.bytes[..piece.bytes.len().min(LAST)];
        let starts = PHP_ERRORS
            .iter()
            .filter_map(|words| memchr::memmem::find(bytes, words));
        if let Some(at) = starts.min() {
            self.error = Some(bytes[at..].to_vec());
        }
        let line = match self.lines.len() {
            LAST_LINES => self.lines.pop_front(),
            _ => None,
        };
        let mut line = line.unwrap_or_default();
        line.clear();
        line.extend(bytes);
        self.lines.push_back(line);
    }

    /// The lines, in one.
    pub(super) fn joined(&self) -> String {
        let lines = self.lines.iter().map(|line| String::from_utf8_lossy(line));
        lines.collect::<Vec<_>>().join(" / ")
    }

    /// The first line of PHP's last error that ended the script.
    pub(super) fn error(&self) -> Option<String> {
        let error = self.error.as_deref()?;
        Some(String::from_utf8_lossy(error).into_owned())
    }

    /// What the process wrote last, except what weir-php did.
    pub(super) fn of_script(&self) -> Option<String> {
        let mut lines = self.lines.iter().rev();
        let line = lines.find(|line| !line.starts_with(b"weir-php: "))?;
        Some(String::from_utf8_lossy(line).into_owned())
    }
}

/// What PHP's messages begin with that tell why a script has ended.
const PHP_ERRORS: [&[u8]; 3] = [
    b"PHP Fatal error: ",
    b"PHP Parse error: ",
    b"PHP Compile error: ",
];

/// How many last lines are kept per process.
const LAST_LINES: usize = 3;

/// How many bytes of each are kept.
const LAST: usize = 400;

/// Maximum length of a line that is written in one piece, bytes.
const LONGEST: usize = 64 << 10;

/// With PHP-FPM's format, this much is read at a time. The size shows in how lines are split, so it is PHP-FPM's.
const PIECE: usize = 1023;

/// How many of these pieces are read at a time: 64 KiB.
const AT_ONCE: usize = 64;

/// The same for a process that has ended: more than a pipe holds.
const ALL: usize = 2048;

/// How often 64 KiB are read from the pipe of a process that has ended: more than a pipe holds, and a limit in case
/// other processes still write to it.
const PIPE_READS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn text(piece: Piece<'_>) -> String {
        let begin = if piece.continued { ">" } else { "" };
        let end = if piece.goes_on { "<" } else { "" };
        format!("{begin}{}{end}", String::from_utf8_lossy(piece.bytes))
    }

    #[test]
    fn lines_are_whole_whatever_the_pieces_and_the_rest_comes_at_the_end() {
        let (mut output, write) = Output::pipe(None).unwrap();
        let mut write = File::from(write);
        let mut lines = Vec::new();
        let mut say = |piece: Piece<'_>| lines.push(text(piece));
        assert!(output.read(&mut say), "nothing there yet is no end");
        write.write_all(b"one\ntw").unwrap();
        assert!(output.read(&mut say));
        write.write_all(b"o\r\n\n\nrest").unwrap();
        assert!(output.read(&mut say));
        output.finish(&mut say);
        assert_eq!(lines, ["one", "two", "rest"]);
    }

    #[test]
    fn a_line_that_is_too_long_goes_on_and_loses_no_byte() {
        let (mut output, _write) = Output::pipe(None).unwrap();
        let mut lines = Vec::new();
        let long = "x".repeat(LONGEST);
        let all = format!("{long}\n{long}{long}y\n{long}z");
        for bytes in all.as_bytes().chunks(10_007) {
            output.push(bytes, &mut |piece| lines.push(text(piece)));
        }
        output.finish(|piece| lines.push(text(piece)));
        let expected = [
            long.clone(),
            format!("{long}<"),
            format!(">{long}<"),
            ">y".to_owned(),
            format!("{long}<"),
            ">z".to_owned(),
        ];
        assert!(lines == expected, "{} pieces", lines.len());
    }
}
