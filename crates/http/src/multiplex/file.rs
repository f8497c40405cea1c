//! Reads parts of files for frames: sendfile(2) cannot put frames around the bytes.

use std::{
    future::Future,
    io,
    os::fd::AsFd,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::task::JoinHandle;
use weir_net::OpenFile;

/// A part of a file that is being sent.
#[derive(Debug)]
pub(crate) struct FileRead {
    file: Rc<OpenFile>,
    offset: u64,
    len: u64,
    /// How many of the next bytes were read from the disk a moment ago.
    in_memory: u64,
    /// A task that reads the next bytes from the disk, outside the reactor.
    populating: Option<JoinHandle<()>>,
}

impl FileRead {
    /// `len` bytes of `file`, from `offset` on.
    pub(crate) fn new(file: Rc<OpenFile>, offset: u64, len: u64) -> FileRead {
        FileRead {
            file,
            offset,
            len,
            in_memory: 0,
            populating: None,
        }
    }

    /// How many bytes are still to be read.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The next bytes, `most` at most.
    ///
    /// # Errors
    ///
    /// As read(2); `UnexpectedEof` if the file is shorter than it was.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<io::Result<Bytes>> {
        let most = self.len.min(most as u64) as usize;
        let mut buffer = Vec::new();
        loop {
            if let Some(populating) = &mut self.populating {
                let _ = ready!(Pin::new(populating).poll(cx));
                self.populating = None;
                self.in_memory = self.len.min(AHEAD);
            }
            let cached_only = self.in_memory == 0;
            let most = match cached_only {
                true => most,
                false => most.min(self.in_memory as usize),
            };
            buffer.reserve_exact(most);
            let file = self.file.as_fd();
            match weir_sys::file::append_from(file, &mut buffer, (self.offset, most), cached_only)?
            {
                Some(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Some(count) => {
                    self.offset += count as u64;
                    self.len -= count as u64;
                    self.in_memory = self.in_memory.saturating_sub(count as u64);
                    return Poll::Ready(Ok(buffer.into()));
                }
                None => {
                    let (file, offset, next) =
                        (self.file.for_thread(), self.offset, self.len.min(AHEAD));
                    self.populating = Some(tokio::task::spawn_blocking(move || {
                        // A read error shows up when the bytes are read.
                        let _ = weir_sys::file::populate(file.as_fd(), offset, next);
                    }));
                }
            }
        }
    }
}

/// How much is read from the disk at once, bytes.
const AHEAD: u64 = 1 << 20;
