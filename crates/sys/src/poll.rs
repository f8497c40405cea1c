//! Waiting for descriptors.

use std::{io, os::fd::BorrowedFd, time::Duration};

use rustix::{
    event::{self, PollFd, PollFlags, Timespec},
    io::Errno,
};

/// Waits until one of `descriptors` can be read, is closed by its other end or broken, or `limit` is over; says
/// for each whether it is one of them. A signal that is not blocked ends the waiting early, with none.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::fd::AsFd, os::unix::net::UnixStream};

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
