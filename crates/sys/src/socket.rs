//! What a connected socket can be asked beside reading and writing.

use std::{
    io::{self, IoSlice},
    os::fd::BorrowedFd,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{self, RecvFlags, SendAncillaryBuffer, SendFlags, sockopt},
};

/// Makes the coming close a reset (`SO_LINGER` 0): the peer cannot take what it got for a whole answer.
///
/// # Errors
/// As setsockopt(2).
pub fn reset_on_close(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Whether a connection that should be silent no longer is: closed, broken, or with bytes nobody asked for.
/// Takes nothing from the socket and never waits.
pub fn peer_closed(socket: BorrowedFd<'_>) -> bool {
    loop {
        match net::recv(
            socket,
            &mut [0_u8; 1],
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        ) {
            Err(Errno::AGAIN) => return false,
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => return true,
        }
    }
}

/// Sends `pieces`, and says that more follows at once (`MSG_MORE`), so that the kernel puts it into the same packet.
///
/// # Errors
/// As sendmsg(2); `WouldBlock` where the socket is non-blocking and full.
pub fn send_more(socket: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
    let mut nothing = SendAncillaryBuffer::default();
    Ok(net::sendmsg(socket, pieces, &mut nothing, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;
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
