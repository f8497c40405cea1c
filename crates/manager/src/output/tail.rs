//! The end of what a child prints on a pipe, for a message about how it has ended.
//!
//! What the child prints never holds up the manager: each call reads a limited number of bytes, and only the last ones are kept.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Reads a pipe without waiting and keeps its last bytes.
#[derive(Debug)]
pub(crate) struct OutputTail {
    /// `None`: it has ended, or nobody wants to know more.
    pipe: Option<File>,
    last: Vec<u8>,
    most: usize,
}

impl OutputTail {
    /// A pipe of which at most `most` bytes are kept. Returns also its other end, for the child.
    ///
    /// # Errors
    /// As pipe(2).
    pub(crate) fn new(most: usize) -> io::Result<(OutputTail, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        let reader = OwnedFd::from(reader);
        weir_sys::listener::set_waiting(&reader, false)?;
        let tail = OutputTail {
            pipe: Some(reader.into()),
            last: Vec::new(),
            most,
        };
        Ok((tail, writer.into()))
    }

    /// Reads what is there, but no more than a pipe holds (64 KB): a child that prints without end is read in pieces.
    pub(crate) fn read(&mut self) {
        let mut bytes = [0; 4096];
        for _ in 0..16 {
            let Some(pipe) = &mut self.pipe else {
                return;
            };
            match pipe.read(&mut bytes) {
                Ok(0) => self.pipe = None,
                Ok(length) => {
                    self.last.extend(&bytes[..length]);
                    let excess = self.last.len().saturating_sub(self.most);
                    self.last.drain(..excess);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    /// Reads no more. A child that still prints gets an error for it.
    pub(crate) fn close(&mut self) {
        self.pipe = None;
    }

    /// The pipe, as long as it is open.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// The last bytes as text, without white space around it.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.last).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_last_bytes_are_kept_and_output_without_end_does_not_hold_up_its_reader() {
        let (mut tail, writer) = OutputTail::new(10).expect("a pipe");
        let mut writer = File::from(writer);
        tail.read();
        assert_eq!(tail.text(), "");
        writer.write_all(b" one two three \n").expect("a write");
        tail.read();
        assert_eq!(tail.text(), "wo three");
        // A file of which there is always more to read.
        tail.pipe = Some(File::open("/dev/zero").expect("/dev/zero"));
        tail.read();
        assert_eq!(tail.last, [0; 10]);
        assert!(tail.descriptor().is_some());
        tail.close();
        assert!(tail.descriptor().is_none());
        assert!(writer.write_all(b"more").is_err());
    }

    #[test]
    fn the_end_of_the_pipe_is_noticed() {
        let (mut tail, writer) = OutputTail::new(10).expect("a pipe");
        File::from(writer).write_all(b"end").expect("a write");
        tail.read();
        assert_eq!((tail.descriptor().is_none(), &*tail.text()), (true, "end"));
    }
}
