//! Sends parts of files from the page cache to the socket without a copy.

use std::{
    future::Future,
    io,
    os::fd::AsFd,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use tokio::task::JoinHandle;

use super::{OpenFile, Socket};

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

    /// How many bytes are still to be sent.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Sends the next bytes. Returns how many the kernel took.
    ///
    /// # Errors
    ///
    /// As sendfile(2); `UnexpectedEof` if the file is shorter than it was.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
    ) -> Poll<io::Result<u64>> {
        loop {
            if let Some(populating) = &mut self.populating {
                let _ = ready!(Pin::new(populating).poll(cx));
                self.populating = None;
                self.in_memory = self.len.min(SLICE);
            } else if self.in_memory == 0 {
                let next = self.len.min(SLICE);
                if !self.file.is_cached(self.offset, next) {
                    // sendfile(2) would wait for the disk and block all connections of this reactor.
                    let (file, offset) = (self.file.for_thread(), self.offset);
                    self.populating = Some(tokio::task::spawn_blocking(move || {
                        // A read error shows up when the file is sent.
                        let _ = weir_sys::file::populate(file.as_fd(), offset, next);
                    }));
                    continue;
                }
                self.in_memory = next;
            }
            if let Socket::Tls(tls) = socket {
                let most = usize::try_from(self.in_memory).unwrap_or(usize::MAX);
                let (file, offset) = (&self.file, self.offset);
                let read = |space: &mut [u8]| weir_sys::file::read_at(file.as_fd(), space, offset);
                return match ready!(tls.poll_write_from(cx, most, read))? {
                    0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    sent => Poll::Ready(Ok(self.sent(sent as u64))),
                };
            }
            ready!(socket.poll_write_ready(cx))?;
            let mut offset = self.offset;
            let sent = socket.try_write_io(|socket| {
                let most = self.in_memory as usize;
                weir_sys::file::send_file(socket, self.file.as_fd(), &mut offset, most)
            });
            match sent {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(sent) => {
                    return Poll::Ready(Ok(self.sent(sent as u64)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl FilePart {
    /// The socket took so many bytes.
    fn sent(&mut self, sent: u64) -> u64 {
        self.offset += sent;
        self.len -= sent;
        self.in_memory -= sent;
        sent
    }
}

/// The longest piece that is sent at once, bytes: long enough for sendfile(2) to fill the socket's buffer with few
/// calls.
const SLICE: u64 = 1 << 20;
