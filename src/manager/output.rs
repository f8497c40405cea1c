//! What workers write to their standard output and error, line by line.
//!
//! A line without an end is cut at [`LONGEST`]; nothing more is kept of any worker.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// The reading end of a worker's output.
#[derive(Debug)]
pub(super) struct Output {
    pipe: File,
    line: Vec<u8>,
}

impl Output {
    /// Makes a pipe: its reading end, and the end that the worker writes to.
    pub(super) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (read, write) = io::pipe()?;
        let read = OwnedFd::from(read);
        weir_sys::listener::set_waiting(&read, false)?;
        let output = Self {
            pipe: File::from(read),
            line: Vec::new(),
        };
        Ok((output, write.into()))
    }

    /// Reads what is there, up to 64 KiB, and gives each whole line to `say`. `false`: the worker closed it.
    pub(super) fn read(&mut self, mut say: impl FnMut(&[u8])) -> bool {
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

    /// What is left without an end of line.
    pub(super) fn finish(mut self, mut say: impl FnMut(&[u8])) {
        // The worker is gone and its pipe holds no more than this; what its children write later is nobody's.
        self.read(&mut say);
        if !self.line.is_empty() {
            say(&self.line);
        }
    }

    fn push(&mut self, bytes: &[u8], say: &mut impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            for part in piece.chunks(LONGEST) {
                if self.line.len() + part.len() > LONGEST {
                    say(&self.line);
                    self.line.clear();
                }
                self.line.extend(part);
            }
            if self.line.ends_with(b"\n") {
                let line = self.line.trim_ascii_end();
                if !line.is_empty() {
                    say(line);
                }
                self.line.clear();
            }
        }
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// Longest line, bytes.
const LONGEST: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_are_whole_whatever_the_pieces_and_the_rest_comes_at_the_end() {
        let (mut output, write) = Output::pipe().unwrap();
        let mut write = File::from(write);
        let mut lines = Vec::new();
        let mut say = |line: &[u8]| lines.push(String::from_utf8_lossy(line).into_owned());
        assert!(output.read(&mut say), "nothing there yet is no end");
        write.write_all(b"one\ntw").unwrap();
        assert!(output.read(&mut say));
        write.write_all(b"o\r\n\n\nrest").unwrap();
        assert!(output.read(&mut say));
        output.finish(&mut say);
        assert_eq!(lines, ["one", "two", "rest"]);
    }

    #[test]
    fn an_endless_line_is_cut() {
        let (mut output, write) = Output::pipe().unwrap();
        let mut write = File::from(write);
        write.write_all(&[b'x'; 3 * LONGEST + 5]).unwrap();
        drop(write);
        let mut lengths = Vec::new();
        assert!(!output.read(|line| lengths.push(line.len())));
        output.finish(|line| lengths.push(line.len()));
        assert_eq!(lengths.iter().sum::<usize>(), 3 * LONGEST + 5);
        assert!(lengths.iter().all(|&n| n <= LONGEST));
    }
}
