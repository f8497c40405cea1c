//! What workers write to their standard output and error, line by line, to the last byte.
//!
//! Each process has a pipe for either. A line that is longer than [`LONGEST`] goes on in another, and both say so:
//! nothing is cut, and nothing more is kept of any process.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use weir_sys::{file, identity::Identity};

use crate::events::{self, Stream};

/// Where the lines of a pool's processes go.
#[derive(Debug)]
pub(super) struct OutputLog {
    pool: String,
    decorate: bool,
}

/// The reading ends of a process's standard output and error.
#[derive(Debug)]
pub(super) struct Outputs {
    stdout: Option<Output>,
    stderr: Option<Output>,
}

#[derive(Debug)]
struct Output {
    pipe: File,
    line: Vec<u8>,
    /// The line has begun in one that was said already.
    continued: bool,
}

/// A line, or a piece of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece<'a> {
    bytes: &'a [u8],
    continued: bool,
    goes_on: bool,
}

impl OutputLog {
    /// `decorate`: lines are written with time, pool and process.
    pub(super) fn new(pool: &str, decorate: bool) -> Self {
        Self {
            pool: pool.to_owned(),
            decorate,
        }
    }

    fn say(&self, pid: u32, stream: Stream, piece: Piece<'_>) {
        let mut marked = Vec::new();
        let line = match (piece.continued, piece.goes_on) {
            (false, false) => piece.bytes,
            (continued, goes_on) => {
                marked.extend(
                    continued
                        .then_some(&b"[continued] "[..])
                        .unwrap_or_default(),
                );
                marked.extend(piece.bytes);
                marked.extend(goes_on.then_some(&b" [goes on]"[..]).unwrap_or_default());
                &marked
            }
        };
        events::worker_said(&self.pool, pid, stream, line, self.decorate);
    }
}

impl Outputs {
    /// Makes two pipes: their reading ends, and the ends that the process writes to, standard output first. Whoever
    /// it is may open /dev/stdout and /dev/stderr by their names.
    ///
    /// # Errors
    /// As pipe(2) and fchown(2).
    pub(super) fn pipes(owner: Option<&Identity>) -> io::Result<(Self, [OwnedFd; 2])> {
        let (stdout, out) = Output::pipe(owner)?;
        let (stderr, err) = Output::pipe(owner)?;
        let outputs = Self {
            stdout: Some(stdout),
            stderr: Some(stderr),
        };
        Ok((outputs, [out, err]))
    }

    /// What to wait for.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        let both = [
            (Stream::Stdout, &self.stdout),
            (Stream::Stderr, &self.stderr),
        ];
        both.into_iter()
            .filter_map(|(stream, output)| Some((stream, output.as_ref()?.pipe.as_fd())))
    }

    /// Reads what is there, up to 64 KiB, and gives each whole line to `log`.
    pub(super) fn read(&mut self, stream: Stream, pid: u32, log: &OutputLog) {
        let output = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        if let Some(open) = output
            && !open.read(|piece| log.say(pid, stream, piece))
        {
            // Nobody writes to it any more.
            if let Some(open) = output.take() {
                open.finish(|piece| log.say(pid, stream, piece));
            }
        }
    }

    /// The process has ended: what is left, also without an end of line.
    pub(super) fn finish(self, pid: u32, log: &OutputLog) {
        for (stream, output) in [(Stream::Stdout, self.stdout), (Stream::Stderr, self.stderr)] {
            if let Some(output) = output {
                output.finish(|piece| log.say(pid, stream, piece));
            }
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
        // The process is gone and its pipe holds no more than this; what its children write later is nobody's.
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

/// Longest line that is written in one piece, bytes.
const LONGEST: usize = 64 << 10;

/// How often 64 KiB are read from the pipe of a process that has ended: more than a pipe holds, and an end where
/// others go on writing to it.
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
