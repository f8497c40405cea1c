//! Sends parts of files from the page cache to the socket without a copy.

use std::{
    future::Future,
    io::{self, IoSlice},
    os::fd::AsFd,
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::ClientIo;

impl ClientIo {
    /// Sends from the first file in the queue.
    pub(super) fn poll_send_file(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let piece = self.conn.outbox().files.front().cloned();
        let Some(piece) = piece else {
            return Poll::Ready(Err(io::Error::other("no file is queued")));
        };
        loop {
            if let Some(populating) = &mut self.populating {
                let _ = ready!(Pin::new(populating).poll(cx));
                self.populating = None;
                self.in_memory = piece.len;
            } else if self.in_memory == 0
                && !weir_sys::file::is_cached(piece.file.as_fd(), piece.offset, piece.len as u64)
            {
                // sendfile(2) would wait for the disk and block all connections of this reactor.
                let piece = piece.clone();
                self.populating = Some(tokio::task::spawn_blocking(move || {
                    // A read error shows up when the file is sent.
                    let _ = weir_sys::file::populate(
                        piece.file.as_fd(),
                        piece.offset,
                        piece.len as u64,
                    );
                }));
                continue;
            }
            self.in_memory = piece.len;
            ready!(self.socket.poll_write_ready(cx))?;
            let mut offset = piece.offset;
            let sent = self.socket.try_write_io(|socket| {
                weir_sys::file::send_file(socket, piece.file.as_fd(), &mut offset, piece.len)
            });
            match sent {
                Ok(0) => {
                    // The file is shorter than when Content-Length was sent.
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(sent) => {
                    let mut outbox = self.conn.outbox();
                    if let Some(front) = outbox.files.front_mut() {
                        front.offset += sent as u64;
                        front.len -= sent;
                        self.in_memory = front.len;
                        if front.len == 0 {
                            outbox.files.pop_front();
                        }
                    }
                    return Poll::Ready(Ok(sent));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends bytes from memory that a file follows.
    pub(super) fn poll_send_more(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_write_ready(cx))?;
            let sent = self
                .socket
                .try_write_io(|socket| weir_sys::socket::send_more(socket, slices));
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}
