//! A file that the reactors read, or store bodies in. It is closed on another thread if closing may take long.
//!
//! When a deleted file is closed for the last time, the kernel frees its blocks, which takes milliseconds for each
//! few hundred megabytes. A reactor would block for that time.

use std::{
    cell::Cell,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

/// An open file of one reactor. If it has [`LARGE`] bytes or more, it is closed on a thread that may block.
#[derive(Debug)]
pub struct OpenFile {
    /// Shared with threads that wait for the disk in the reactor's place. `None` only while it is dropped.
    fd: Option<Arc<Opened>>,
    len: Cell<u64>,
    /// When the whole file was last found in the page cache ([`weir_sys::timer::monotonic`], µs).
    cached_at: Cell<u64>,
}

/// An open descriptor, and what is dropped when it is closed.
#[derive(Debug)]
pub struct Opened {
    fd: OwnedFd,
    /// Behind the descriptor, because fields are dropped in their order.
    _until_closed: Option<Arc<dyn CloseGuard>>,
}

/// What is kept until a file is closed, and dropped then.
pub trait CloseGuard: std::fmt::Debug + Send + Sync {}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl OpenFile {
    /// A file with `len` bytes.
    pub fn new(fd: OwnedFd, len: u64) -> OpenFile {
        OpenFile::of(fd, len, None)
    }

    /// An empty file, which will be written. `guard` is dropped when the descriptor was closed, by whoever uses it last.
    pub fn guarded(fd: OwnedFd, guard: Arc<dyn CloseGuard>) -> OpenFile {
        OpenFile::of(fd, 0, Some(guard))
    }

    fn of(fd: OwnedFd, len: u64, guard: Option<Arc<dyn CloseGuard>>) -> OpenFile {
        OpenFile {
            fd: Some(Arc::new(Opened {
                fd,
                _until_closed: guard,
            })),
            len: Cell::new(len),
            cached_at: Cell::new(0),
        }
    }

    /// The descriptor, for a thread that reads or writes it.
    pub fn for_thread(&self) -> Arc<Opened> {
        self.open().clone()
    }

    fn open(&self) -> &Arc<Opened> {
        match &self.fd {
            Some(fd) => fd,
            None => unreachable!("a file that is dropped has no users"),
        }
    }

    /// Size in bytes, as far as it is known here.
    pub fn len(&self) -> u64 {
        self.len.get()
    }

    /// Adds `bytes` to the size.
    pub fn grow(&self, bytes: u64) {
        self.len.set(self.len.get() + bytes);
    }

    /// Whether `[offset, offset + len)` is in the page cache, as [`weir_sys::file::is_cached`] judges it. If the whole
    /// file is, the answer holds for [`CACHED_FOR`]: the kernel drops pages that were not used for long.
    pub(crate) fn is_cached(&self, offset: u64, len: u64) -> bool {
        let now = weir_sys::timer::monotonic();
        if now.saturating_sub(self.cached_at.get()) < CACHED_FOR {
            return true;
        }
        let cached = weir_sys::file::is_cached(self.as_fd(), offset, len);
        if cached && offset == 0 && len == self.len() {
            self.cached_at.set(now);
        }
        cached
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.open().as_fd()
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
/// How long a file counts as being in the page cache after the last look, µs. A wrong answer makes one reader wait
/// for the disk; a check costs a system call for each 64 KiB.
const CACHED_FOR: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{ErrorKind, Read},
        os::unix::net::UnixStream,
        sync::mpsc,
    };

    #[test]
    fn what_was_in_memory_a_moment_ago_is_not_looked_up_again() {
        // The page cache never has bytes of a socket.
        let (socket, _peer) = UnixStream::pair().unwrap();
        let file = OpenFile::new(socket.into(), 10);
        assert!(!file.is_cached(0, 10));
        let now = weir_sys::timer::monotonic();
        file.cached_at.set(now + 3_600_000_000);
        assert!(file.is_cached(0, 10));
        file.cached_at.set(now.saturating_sub(CACHED_FOR));
        assert!(!file.is_cached(0, 10));
    }

    #[test]
    fn only_a_look_at_the_whole_file_is_remembered() {
        let folder = weir_sys::file::open_dir(&std::env::temp_dir()).unwrap();
        let mut file = std::fs::File::from(weir_sys::file::temp_file(folder.as_fd()).unwrap());
        std::io::Write::write_all(&mut file, b"0123456789").unwrap();
        let file = OpenFile::new(file.into(), 10);
        assert!(file.is_cached(2, 8));
        assert_eq!(file.cached_at.get(), 0);
        assert!(file.is_cached(0, 10));
        assert_ne!(file.cached_at.get(), 0);
    }

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
