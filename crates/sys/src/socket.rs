//! Operations on connected sockets besides reading and writing.

use std::{
    io::{self, IoSlice},
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    time::Duration,
};

use rustix::{
    io::{Errno, retry_on_intr},
    net::{self, RecvFlags, SendAncillaryBuffer, SendFlags, sockopt},
};

use crate::identity::checked;

/// Makes the next close send a reset (`SO_LINGER` 0), so that the peer cannot treat an incomplete response as
/// complete.
///
/// # Errors
/// As setsockopt(2).
pub fn reset_on_close(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Shuts down a connection in both directions, for all processes that hold it. Data that has already arrived can
/// still be read, followed by the end of the stream.
///
/// # Errors
/// As shutdown(2); `NotConnected` if the peer has closed it too.
pub fn end(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::shutdown(socket, net::Shutdown::Both)?)
}

/// Receives nothing more: what was sent can still be read, and then the end; the peer cannot send.
///
/// # Errors
/// As shutdown(2).
pub fn end_reading(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::shutdown(socket, net::Shutdown::Read)?)
}

/// Sends nothing more: the peer sees the end after all that was sent.
///
/// # Errors
/// As shutdown(2); `NotConnected` if the peer has closed it too.
pub fn end_writing(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::shutdown(socket, net::Shutdown::Write)?)
}

/// Delays sent data until the end of the connection (`TCP_CORK`), so that the data and the end arrive in the same
/// packet. The kernel delays it by at most 200 ms.
///
/// # Errors
/// As setsockopt(2), also if it is not a TCP connection.
pub fn hold_until_end(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_tcp_cork(socket, true)?)
}

/// Whether an idle connection is no longer usable: closed, broken, or with unexpected bytes. Consumes nothing and
/// never waits.
pub fn peer_closed(socket: BorrowedFd<'_>) -> bool {
    !matches!(peek(socket), Err(Errno::AGAIN))
}

/// Whether the descriptor with this number (0 to 2) is a unix socket for packets, as two processes of weir have between them.
pub fn carries_packets(number: RawFd) -> bool {
    if !(0..=2).contains(&number) {
        return false;
    }
    // SAFETY: 0 to 2 are never closed by safe code; where it is not open, the calls fail.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    net::sockopt::socket_domain(socket) == Ok(net::AddressFamily::UNIX)
        && net::sockopt::socket_type(socket) == Ok(net::SocketType::SEQPACKET)
}

/// Whether a socket is for streams and listens.
pub fn listens(socket: BorrowedFd<'_>) -> bool {
    net::sockopt::socket_type(socket) == Ok(net::SocketType::STREAM)
        && net::sockopt::socket_acceptconn(socket) == Ok(true)
}

/// Whether there are unread bytes. Consumes nothing and never waits.
pub fn has_bytes(socket: BorrowedFd<'_>) -> bool {
    matches!(peek(socket), Ok((count, _)) if count > 0)
}

fn peek(socket: BorrowedFd<'_>) -> rustix::io::Result<(usize, usize)> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    retry_on_intr(|| net::recv(socket, &mut [0_u8; 1], flags))
}

/// The process that connected the other end of a unix stream socket, and its user (`SO_PEERCRED`), in our namespaces.
/// `None`: the kernel does not know, because the process is in another namespace, or the socket is of another type.
pub fn peer_process(socket: BorrowedFd<'_>) -> Option<(u32, u32)> {
    // rustix cannot do this: its process ids cannot be 0, but the kernel returns 0 for a process without an id in our
    // namespace.
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `peer`, which has as many, and for which any bytes will do.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    let pid = u32::try_from(peer.pid).ok()?;
    (status == 0 && pid != 0).then_some((pid, peer.uid))
}

/// Datagrams that the kernel dropped since the socket was made, because its buffer was full or they were damaged (`SO_MEMINFO`).
///
/// # Errors
/// As getsockopt(2).
pub fn dropped(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut counts = [0_u32; MEMINFO];
    let mut length = size_of_val(&counts) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `counts`, which has as many, and for which any bytes will do.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            counts.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    Ok(counts[MEMINFO_DROPS])
}

/// The numbers of `SO_MEMINFO`, and which of them counts what was dropped (`SK_MEMINFO_DROPS`).
const MEMINFO: usize = 9;
const MEMINFO_DROPS: usize = 8;

/// Bytes that were sent but not delivered (`SIOCOUTQ`). For TCP: bytes that the peer's kernel has not acknowledged.
/// For a unix socket: a measure of the bytes that the peer has not read.
///
/// # Errors
/// As ioctl(2).
pub fn unsent(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut left: libc::c_int = 0;
    // SAFETY: for this request the kernel writes one int, and `left` is one.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut left) })?;
    Ok(left.max(0) as u64)
}

/// Copies bytes that have come, as many as fit, and leaves them unread.
///
/// # Errors
/// As recv(2); `WouldBlock` if there are none.
pub fn look(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
    receive(socket, bytes, RecvFlags::PEEK)
}

/// Reads bytes that have come, as many as fit.
///
/// # Errors
/// As recv(2); `WouldBlock` if there are none.
pub fn read(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
    receive(socket, bytes, RecvFlags::empty())
}

fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    let flags = flags | RecvFlags::DONTWAIT;
    Ok(retry_on_intr(|| net::recv(socket, &mut *bytes, flags)).map(|(count, _)| count)?)
}

/// Sends bytes, as many as the socket takes without waiting.
///
/// # Errors
/// As send(2); `WouldBlock` if it takes none.
#[inline]
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(net::send(socket, bytes, flags)?)
}

/// Sends `pieces`, and announces that more data follows at once (`MSG_MORE`), so that the kernel puts it into the
/// same packet.
///
/// # Errors
/// As sendmsg(2); `WouldBlock` if the socket is non-blocking and full.
pub fn send_more(socket: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
    let mut nothing = SendAncillaryBuffer::default();
    Ok(net::sendmsg(socket, pieces, &mut nothing, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_beyond_the_buffer_are_counted() {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(dropped(receiver.as_fd()).unwrap(), 0);
        sockopt::set_socket_recv_buffer_size(&receiver, 10_000).unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender
                .send_to(&[0; 1000], receiver.local_addr().unwrap())
                .unwrap();
        }
        let dropped = dropped(receiver.as_fd()).unwrap();
        assert!((50..100).contains(&dropped), "{dropped}");
    }
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        os::{fd::AsFd, unix::net::UnixStream},
    };

    #[test]
    fn silence_is_open_and_bytes_or_end_are_not() {
        let (here, mut there) = UnixStream::pair().unwrap();
        assert!(!peer_closed(here.as_fd()));
        there.write_all(b"x").unwrap();
        assert!(peer_closed(here.as_fd()));
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        assert!(peer_closed(here.as_fd()));
    }

    #[test]
    fn what_the_peer_reads_is_no_longer_here() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        assert_eq!(unsent(here.as_fd()).unwrap(), 0);
        here.write_all(&[0; 10_000]).unwrap();
        assert!(unsent(here.as_fd()).unwrap() >= 10_000);
        there.read_exact(&mut [0; 10_000]).unwrap();
        assert_eq!(unsent(here.as_fd()).unwrap(), 0);
    }

    #[test]
    fn what_has_come_is_read_after_the_end() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let copy = there.try_clone().unwrap();
        there.write_all(b"last words").unwrap();
        let held = here.try_clone().unwrap();
        end(held.as_fd()).unwrap();
        let mut words = String::new();
        here.read_to_string(&mut words).unwrap();
        assert_eq!(words, "last words");
        drop((there, copy));
    }

    #[test]
    fn a_unix_peer_says_which_process_it_is_and_others_do_not() {
        let (here, there) = UnixStream::pair().unwrap();
        let us = Some((std::process::id(), crate::identity::current().0));
        assert_eq!(peer_process(here.as_fd()), us);
        drop(there);
        assert_eq!(peer_process(here.as_fd()), us);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(peer_process(listener.as_fd()), None);
    }

    /// Retries rely on this: the kernel reports whether a closed worker has read its request (unix(7)).
    #[test]
    fn a_peer_that_goes_with_unread_bytes_is_a_reset_and_else_an_end() {
        for (piece, reads) in [(10, 0), (10, 10), (30_000, 0), (30_000, 30_000)] {
            let (mut here, mut there) = UnixStream::pair().unwrap();
            assert_eq!(here.write(&vec![1; piece]).unwrap(), piece);
            let mut space = vec![0; 64 * 1024];
            if reads > 0 {
                assert_eq!(there.read(&mut space).unwrap(), reads, "in one piece");
            }
            drop(there);
            let outcome = here.read(&mut space).map_err(|error| error.kind());
            let expected = match reads {
                0 => Err(std::io::ErrorKind::ConnectionReset),
                _ => Ok(0),
            };
            assert_eq!(outcome, expected, "{piece} bytes, {reads} read");
            let sent = send(&here);
            assert_eq!(sent, Err(std::io::ErrorKind::BrokenPipe));
        }
    }

    fn send(socket: &UnixStream) -> Result<usize, std::io::ErrorKind> {
        super::send(socket.as_fd(), b"more").map_err(|error| error.kind())
    }

    #[test]
    fn a_reset_reaches_the_peer_as_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        reset_on_close(server.as_fd()).unwrap();
        drop(server);
        let error = client.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}
