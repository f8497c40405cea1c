//! A set of descriptors that the kernel watches for input (epoll(7)).
//!
//! tokio needs some hundred bytes for each descriptor that it watches. A set costs the process nothing for a
//! descriptor. tokio ([`Epoll`]) or poll(2) ([`Set`]) watches only the set itself.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    io::Errno,
};
use tokio::io::{Interest, unix::AsyncFd};

/// A set of descriptors. The reactor in which it was created watches it.
#[derive(Debug)]
pub struct Epoll(AsyncFd<OwnedFd>);

impl Epoll {
    /// Creates an empty set.
    ///
    /// # Errors
    /// As epoll_create1(2) and epoll_ctl(2). Panics outside of a tokio runtime with I/O.
    pub fn new() -> io::Result<Self> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // SAFETY: an `OwnedFd` names the same open descriptor for its whole life, and nobody can put another one in
        // its place: `AsyncFd` is private here and never given out.
        let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(Self(watched.map_err(io::Error::from)?))
    }

    /// Adds a descriptor. [`ready`](Self::ready) names it by `key` as long as it has input, is closed by its peer or is
    /// broken. Closing its last copy removes it.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn add(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        add(self.0.get_ref(), fd, key)
    }

    /// Removes a descriptor, which stays open.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(self.0.get_ref(), fd)?)
    }

    /// Waits until a descriptor is ready. Appends the keys of those that are, [`MOST`] at most, to `keys`.
    ///
    /// # Errors
    /// As epoll_wait(2).
    pub async fn ready(&self, keys: &mut Vec<u64>) -> io::Result<()> {
        loop {
            let mut guard = self.0.readable().await?;
            if ready(self.0.get_ref(), keys)? > 0 {
                return Ok(());
            }
            guard.clear_ready();
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

/// A set of descriptors for which no reactor is needed: it is readable (poll(2)) if one of them is ready.
#[derive(Debug)]
pub struct Set(OwnedFd);

impl Set {
    /// Creates an empty set.
    ///
    /// # Errors
    /// As epoll_create1(2).
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor, as [`Epoll::add`].
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn add(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        add(&self.0, fd, key)
    }

    /// Appends the keys of descriptors that are ready, 128 at most, to `keys`, and does not wait. Those that are ready again and again
    /// come after the others the next time.
    ///
    /// # Errors
    /// As epoll_wait(2).
    pub fn ready(&self, keys: &mut Vec<u64>) -> io::Result<()> {
        ready(&self.0, keys).map(drop)
    }
}

impl AsFd for Set {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn add(set: &OwnedFd, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
    let data = epoll::EventData::new_u64(key);
    Ok(epoll::add(set, fd, data, epoll::EventFlags::IN)?)
}

/// Returns how many keys it has appended.
fn ready(set: &OwnedFd, keys: &mut Vec<u64>) -> io::Result<usize> {
    let mut events = Vec::with_capacity(MOST);
    let now = Timespec::default();
    match epoll::wait(set, spare_capacity(&mut events), Some(&now)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    keys.extend(events.iter().map(|event| event.data.u64()));
    Ok(events.len())
}

/// How many descriptors are named at once, at most.
const MOST: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write,
        os::unix::net::UnixStream,
        pin::pin,
        task::{Context, Waker},
    };

    #[test]
    fn a_set_without_a_reactor_names_those_with_input_and_those_that_are_closed() {
        let set = Set::new().unwrap();
        let (here, mut there) = UnixStream::pair().unwrap();
        let (quiet, other) = UnixStream::pair().unwrap();
        set.add(here.as_fd(), 1).unwrap();
        set.add(quiet.as_fd(), 2).unwrap();
        let ready = || {
            let mut keys = Vec::new();
            set.ready(&mut keys).unwrap();
            keys.sort_unstable();
            keys
        };
        assert!(ready().is_empty());
        there.write_all(b"x").unwrap();
        assert_eq!((ready(), ready()), (vec![1], vec![1]));
        drop(other);
        assert_eq!(ready(), [1, 2]);
        // A descriptor that is closed here is no longer in the set.
        drop(here);
        assert_eq!(ready(), [2]);
    }

    #[test]
    fn those_with_input_and_those_that_are_closed_are_ready() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(async {
            let set = Epoll::new().unwrap();
            let mut pairs: Vec<_> = (0..300).map(|_| UnixStream::pair().unwrap()).collect();
            for (key, (here, _)) in (0..).zip(&pairs) {
                set.add(here.as_fd(), key).unwrap();
            }
            let mut keys = Vec::new();
            {
                let mut cx = Context::from_waker(Waker::noop());
                let ready = pin!(set.ready(&mut keys));
                assert!(ready.poll(&mut cx).is_pending());
            }
            for (_, there) in &mut pairs {
                there.write_all(b"x").unwrap();
            }
            let mut found = Vec::new();
            while found.len() < pairs.len() {
                set.ready(&mut keys).await.unwrap();
                for key in keys.drain(..) {
                    set.remove(pairs[key as usize].0.as_fd()).unwrap();
                    found.push(key);
                }
            }
            found.sort_unstable();
            assert_eq!(found, (0..300).collect::<Vec<_>>());
            // A descriptor that is closed later wakes the set again.
            let (here, there) = UnixStream::pair().unwrap();
            set.add(here.as_fd(), 7).unwrap();
            drop(there);
            set.ready(&mut keys).await.unwrap();
            assert_eq!(keys, [7]);
        });
    }
}
