//! A file that the reactors read, or store bodies in. It is closed on another thread if closing may take long.
//!
//! When a deleted file is closed for the last time, the kernel frees its blocks, which takes milliseconds for each
//! few hundred megabytes. A reactor would block for that time.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// An open file. If it has [`LARGE`] bytes or more, it is closed on a thread that may block.
#[derive(Debug)]
pub struct OpenFile {
    /// `None` only while it is dropped.
    fd: Option<OwnedFd>,
    len: AtomicU64,
}

impl OpenFile {
    /// A file with `len` bytes.
    pub fn new(fd: OwnedFd, len: u64) -> OpenFile {
        OpenFile {
            fd: Some(fd),
            len: AtomicU64::new(len),
        }
    }

    /// Size in bytes, as far as it is known here.
    pub fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    /// Adds `bytes` to the size.
    pub fn grow(&self, bytes: u64) {
        self.len.fetch_add(bytes, Relaxed);
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Some(fd) => fd.as_fd(),
            None => unreachable!("a file that is dropped has no users"),
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.len() >= LARGE
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let fd = self.fd.take();
            runtime.spawn_blocking(move || drop(fd));
        }
    }
}

/// Closing a smaller file takes no longer than handing it to another thread.
const LARGE: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{ErrorKind, Read},
        os::unix::net::UnixStream,
        sync::mpsc,
    };

    #[test]
    fn a_large_file_is_not_closed_by_the_reactor() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let (release, held) = mpsc::channel::<()>();
        let (mut peer, small) = UnixStream::pair().unwrap();
        peer.set_nonblocking(true).unwrap();
        runtime.block_on(async { drop(OpenFile::new(small.into(), LARGE - 1)) });
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "still open");

        let (mut peer, large) = UnixStream::pair().unwrap();
        peer.set_nonblocking(true).unwrap();
        runtime.block_on(async {
            // Blocks the thread, so that nothing else is closed meanwhile.
            let busy = tokio::task::spawn_blocking(move || held.recv());
            drop(OpenFile::new(large.into(), LARGE));
            let error = peer.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            drop(release);
            busy.await.unwrap().unwrap_err();
        });
        peer.set_nonblocking(false).unwrap();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
}
