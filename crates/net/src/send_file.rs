//! Sends parts of files: from the page cache to the socket without a copy, or through memory, because sendfile(2) cannot put frames
//! around the bytes. What is not in the page cache is read there first, outside the reactor.

use std::{
    future::Future,
    io,
    os::fd::AsFd,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::{OpenFile, Opened, Socket};

/// A part of a file that is being sent.
#[derive(Debug)]
pub struct FilePart {
    file: Rc<OpenFile>,
    offset: u64,
    len: u64,
    /// How many of the next bytes are known to be in the page cache.
    in_memory: u64,
    /// A task that reads the next bytes from the disk, outside the reactor.
    populating: Option<JoinHandle<()>>,
}

impl FilePart {
    /// `len` bytes of `file`, from `offset` on.
    pub fn new(file: Rc<OpenFile>, offset: u64, len: u64) -> FilePart {
        FilePart {
            file,
            offset,
            len,
            in_memory: 0,
            populating: None,
        }
    }

    /// How many bytes are left.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Drops the bytes after the first `most`.
    pub fn truncate(&mut self, most: u64) {
        self.len = self.len.min(most);
    }

    /// Divides it: what is behind its first `at` bytes.
    #[must_use]
    pub fn split_off(&mut self, at: u64) -> FilePart {
        let rest = self.len.saturating_sub(at);
        self.len -= rest;
        FilePart::new(self.file.clone(), self.offset + self.len, rest)
    }

    /// Where its bytes are, for a thread that reads them.
    pub fn for_thread(&self) -> (Arc<Opened>, u64, usize) {
        (self.file.for_thread(), self.offset, self.len as usize)
    }

    /// Sends the next bytes, `most` at most. Returns how many the kernel took.
    ///
    /// # Errors
    ///
    /// As sendfile(2); `UnexpectedEof` if the file is shorter than it was.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
        most: u64,
    ) -> Poll<io::Result<u64>> {
        loop {
            ready!(self.poll_populated(cx));
            if self.in_memory == 0 {
                let next = self.len.min(SLICE);
                if !self.file.is_cached(self.offset, next) {
                    // sendfile(2) would wait for the disk and block all connections of this reactor.
                    self.populate();
                    continue;
                }
                self.in_memory = next;
            }
            let most = self.in_memory.min(most) as usize;
            if let Socket::Tls(tls) = socket {
                let (file, offset) = (&self.file, self.offset);
                let read = |space: &mut [u8]| weir_sys::file::read_at(file.as_fd(), space, offset);
                return match ready!(tls.poll_write_from(cx, most, read))? {
                    0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    sent => Poll::Ready(Ok(self.took(sent as u64))),
                };
            }
            ready!(socket.poll_write_ready(cx))?;
            let mut offset = self.offset;
            let sent = socket.try_write_io(|socket| {
                weir_sys::file::send_file(socket, self.file.as_fd(), &mut offset, most)
            });
            match sent {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(sent) => return Poll::Ready(Ok(self.took(sent as u64))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Reads the next bytes, `most` at most.
    ///
    /// # Errors
    ///
    /// As read(2); `UnexpectedEof` if the file is shorter than it was.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Bytes>> {
        let most = self.len.min(most as u64) as usize;
        let mut buffer = Vec::new();
        loop {
            ready!(self.poll_populated(cx));
            let cached_only = self.in_memory == 0;
            let most = match cached_only {
                true => most,
                false => most.min(self.in_memory as usize),
            };
            buffer.reserve_exact(most);
            let (file, part) = (self.file.as_fd(), (self.offset, most));
            match weir_sys::file::append_from(file, &mut buffer, part, cached_only)? {
                Some(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Some(count) => {
                    self.took(count as u64);
                    return Poll::Ready(Ok(buffer.into()));
                }
                None => self.populate(),
            }
        }
    }

    /// Begins to read the next bytes from the disk.
    fn populate(&mut self) {
        let (file, offset) = (self.file.for_thread(), self.offset);
        let next = self.len.min(SLICE);
        self.populating = Some(tokio::task::spawn_blocking(move || {
            // A read error shows up when the bytes are read or sent.
            let _ = weir_sys::file::populate(file.as_fd(), offset, next);
        }));
    }

    fn poll_populated(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(populating) = &mut self.populating {
            let _ = ready!(Pin::new(populating).poll(cx));
            self.populating = None;
            self.in_memory = self.len.min(SLICE);
        }
        Poll::Ready(())
    }

    /// So many bytes were taken.
    fn took(&mut self, count: u64) -> u64 {
        self.offset += count;
        self.len -= count;
        self.in_memory = self.in_memory.saturating_sub(count);
        count
    }
}

/// The longest piece that is sent at once, bytes: long enough for sendfile(2) to fill the socket's buffer with few
/// calls.
const SLICE: u64 = 1 << 20;
