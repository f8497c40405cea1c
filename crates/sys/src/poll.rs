//! Waiting for descriptors.

use std::{io, os::fd::BorrowedFd, time::Duration};

use rustix::{
    event::{self, PollFd, PollFlags, Timespec},
    io::Errno,
};

/// Waits until one of `descriptors` is readable, closed by its other end or broken, or until `limit` is over; returns
/// for each whether it is ready. A signal that is not blocked ends the wait early, with none ready.
///
/// # Errors
/// As ppoll(2).
pub fn readable(descriptors: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut entries: Vec<PollFd<'_>> = descriptors
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let limit = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    match event::poll(&mut entries, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(entries.iter().map(|e| !e.revents().is_empty()).collect())
}

/// Whether reads and writes of this open file block (without `O_NONBLOCK`).
///
/// # Errors
/// As fcntl(2).
pub fn waits(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(!flags.contains(rustix::fs::OFlags::NONBLOCK))
}

/// Waits until `fd` is writable or `limit` is over; returns whether it is writable or broken. A writable pipe accepts
/// 4,096 bytes (pipe(7)) without blocking, if nobody else fills it meanwhile. Files are always writable.
///
/// # Errors
/// As ppoll(2).
pub fn writable(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    let mut entries = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    match event::poll(&mut entries, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => Ok(!entries[0].revents().is_empty()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::fd::AsFd, os::unix::net::UnixStream};

    #[test]
    fn a_full_pipe_cannot_be_written_to_until_it_is_read() {
        let (mut there, here) = io::pipe().unwrap();
        assert!(writable(here.as_fd(), Duration::ZERO).unwrap());
        while writable(here.as_fd(), Duration::ZERO).unwrap() {
            (&here).write_all(&[0; 4096]).unwrap();
        }
        let moment = Duration::from_millis(5);
        assert!(!writable(here.as_fd(), moment).unwrap());
        io::Read::read_exact(&mut there, &mut [0; 65_536]).unwrap();
        assert!(writable(here.as_fd(), moment).unwrap());
    }

    #[test]
    fn only_what_has_something_to_read_is_readable() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let (quiet, _other) = UnixStream::pair().unwrap();
        let both = [quiet.as_fd(), here.as_fd()];
        let none = readable(&both, Some(Duration::ZERO)).unwrap();
        assert_eq!(none, [false, false]);
        there.write_all(b"x").unwrap();
        assert_eq!(readable(&both, None).unwrap(), [false, true]);
    }
}
