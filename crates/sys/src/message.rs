//! Messages with descriptors between two processes on the same kernel: `SOCK_SEQPACKET` keeps message boundaries and
//! order, and the end of file shows that the other process has ended.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{
        self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sockopt,
    },
};

/// Maximum number of descriptors in a message.
pub const MAX_DESCRIPTORS: usize = 4;

/// Two connected ends, close-on-exec.
///
/// # Errors
/// As socketpair(2): `EMFILE`, `ENFILE`.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Sends one complete message.
///
/// # Errors
/// `BrokenPipe` if the other end is gone; `WouldBlock` with `wait` false if its queue is full; `InvalidInput` for
/// more than [`MAX_DESCRIPTORS`].
pub fn send(
    end: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    wait: bool,
) -> io::Result<()> {
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut flags = SendFlags::NOSIGNAL;
    if !wait {
        flags |= SendFlags::DONTWAIT;
    }
    loop {
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        match net::sendmsg(end, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            result => return result.map(drop).map_err(io::Error::from),
        }
    }
}

/// Limits how long [`receive`] waits at this end: then it fails with `WouldBlock`.
///
/// # Errors
/// As setsockopt(2).
pub fn limit_wait(end: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    Ok(sockopt::set_socket_timeout(
        end,
        sockopt::Timeout::Recv,
        Some(limit),
    )?)
}

/// Receives one message: its length in `buffer` (0: the other end is gone) and its descriptors, close-on-exec.
///
/// # Errors
/// `WouldBlock` if there is none, with `wait` false or at the end of [`limit_wait`]; `InvalidData` if it is longer than `buffer`, or if descriptors
/// were lost because no more can be opened.
pub fn receive(
    end: BorrowedFd<'_>,
    buffer: &mut [u8],
    wait: bool,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let flags = RecvFlags::CMSG_CLOEXEC | waiting(wait);
    let (length, lost, descriptors) = receive_with(end, buffer, flags)?;
    if lost.is_empty() {
        return Ok((length, descriptors));
    }
    Err(cut_short())
}

/// As [`receive`], with one system call more. If its descriptors cannot be opened now, the message stays and can be received later.
///
/// # Errors
/// As [`receive`]; `EMFILE` if no more descriptors can be opened.
pub fn receive_or_leave(
    end: BorrowedFd<'_>,
    buffer: &mut [u8],
    wait: bool,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::PEEK | waiting(wait);
    let (length, lost, descriptors) = receive_with(end, buffer, flags)?;
    if lost.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE.into());
    }
    if length > 0 {
        // Removes the message from the socket. Without space for descriptors, the call does not open them again.
        let rest: &mut [u8] = &mut [0];
        net::recv(end, rest, RecvFlags::DONTWAIT)?;
    }
    if lost.is_empty() {
        return Ok((length, descriptors));
    }
    Err(cut_short())
}

fn cut_short() -> io::Error {
    let text = "a message between our own processes was cut short";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn waiting(wait: bool) -> RecvFlags {
    match wait {
        true => RecvFlags::empty(),
        false => RecvFlags::DONTWAIT,
    }
}

/// Its length, what was cut, and the descriptors.
fn receive_with(
    end: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> io::Result<(usize, ReturnFlags, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut was_reset = false;
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(buffer)];
        let message = match net::recvmsg(end, slices, &mut control, flags) {
            Err(Errno::INTR) => continue,
            // The other end was closed before it had read all messages. The kernel reports that first, and then returns
            // the messages that the other end had sent.
            Err(Errno::CONNRESET) if !was_reset => {
                was_reset = true;
                continue;
            }
            Err(Errno::CONNRESET) => return Ok((0, ReturnFlags::empty(), Vec::new())),
            result => result?,
        };
        let mut descriptors = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                descriptors.extend(rights);
            }
        }
        let lost = message.flags & (ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        return Ok((message.bytes, lost, descriptors));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_wait_with_a_limit_ends() {
        let (here, _there) = pair().unwrap();
        limit_wait(here.as_fd(), Duration::from_millis(1)).unwrap();
        let error = receive(here.as_fd(), &mut [0; 8], true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn messages_keep_their_bounds_and_carry_descriptors() {
        let (here, there) = pair().unwrap();
        let file = crate::memory::file(c"test", b"attached").unwrap();
        send(here.as_fd(), b"one", &[file.as_fd(), file.as_fd()], true).unwrap();
        send(here.as_fd(), b"two", &[], false).unwrap();
        let mut buffer = [0; 16];
        let (n, descriptors) = receive(there.as_fd(), &mut buffer, true).unwrap();
        assert_eq!((&buffer[..n], descriptors.len()), (&b"one"[..], 2));
        assert_eq!(
            crate::memory::read(descriptors[1].as_fd(), 100).unwrap(),
            b"attached"
        );
        let flags = rustix::io::fcntl_getfd(&descriptors[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        let (n, descriptors) = receive(there.as_fd(), &mut buffer, false).unwrap();
        assert_eq!((&buffer[..n], descriptors.len()), (&b"two"[..], 0));
        let error = receive(there.as_fd(), &mut buffer, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(here);
        assert_eq!(receive(there.as_fd(), &mut buffer, true).unwrap().0, 0);
        let error = send(there.as_fd(), b"x", &[], true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_was_sent_before_the_end_comes_although_the_sender_had_not_read_all() {
        for wait in [false, true] {
            let (ours, theirs) = pair().unwrap();
            send(ours.as_fd(), b"nobody reads this", &[], false).unwrap();
            send(theirs.as_fd(), b"the reason", &[], false).unwrap();
            drop(theirs);
            let mut buffer = [0; 100];
            let (length, _) = receive(ours.as_fd(), &mut buffer, wait).unwrap();
            assert_eq!(&buffer[..length], b"the reason");
            assert_eq!(receive(ours.as_fd(), &mut buffer, wait).unwrap().0, 0);
        }
    }

    #[test]
    fn a_message_is_received_once_whichever_way() {
        let (here, there) = pair().unwrap();
        let file = crate::memory::file(c"test", b"attached").unwrap();
        for text in [b"one".as_slice(), b"two"] {
            send(here.as_fd(), text, &[file.as_fd()], true).unwrap();
        }
        let mut buffer = [0; 16];
        let (n, descriptors) = receive_or_leave(there.as_fd(), &mut buffer, true).unwrap();
        assert_eq!((&buffer[..n], descriptors.len()), (&b"one"[..], 1));
        let text = crate::memory::read(descriptors[0].as_fd(), 100).unwrap();
        assert_eq!(text, b"attached");
        let (n, descriptors) = receive(there.as_fd(), &mut buffer, true).unwrap();
        assert_eq!((&buffer[..n], descriptors.len()), (&b"two"[..], 1));
        drop(here);
        let end = receive_or_leave(there.as_fd(), &mut buffer, true).unwrap();
        assert_eq!(end.0, 0);
    }

    #[test]
    fn a_message_too_long_for_the_buffer_is_an_error_not_a_part() {
        let (here, there) = pair().unwrap();
        for receive in [receive, receive_or_leave] {
            send(here.as_fd(), &[7; 100], &[], true).unwrap();
            let error = receive(there.as_fd(), &mut [0; 10], true).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            let error = receive(there.as_fd(), &mut [0; 10], false).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }
}
