//! Finds one connected TCP socket by its two addresses. The kernel looks it up as for a packet, so the cost does not
//! depend on the number of sockets.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use rustix::{
    io::Errno,
    net::{self, AddressFamily, SendFlags},
};

use super::{Connected, Diag, IPPROTO_TCP, NLM_F_REQUEST, bad, reply};

impl Diag {
    /// The TCP socket that is bound to `own` and connected to `peer`, of any process in this network namespace. `None`:
    /// this socket does not exist, or no process holds it any more.
    ///
    /// # Errors
    /// As sendmsg(2) and recvmsg(2). `NotFound` if the kernel was built without it (CONFIG_INET_DIAG). `InvalidData`
    /// for an invalid answer.
    pub fn connection(
        &mut self,
        own: SocketAddr,
        peer: SocketAddr,
    ) -> io::Result<Option<Connected>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(own, peer, self.sequence);
        loop {
            match net::send(&self.socket, &request, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => break,
            }
        }
        for _ in 0..MOST_PACKETS {
            let length = self.receive()?;
            match reply::connected(&self.space[..length], self.sequence) {
                Ok(Some(socket)) => return Ok(Some(socket).filter(|socket| socket.inode != 0)),
                // The answer to an earlier request.
                Ok(None) => {}
                Err(reply::Bad::Kernel(errno)) if errno == Errno::NOENT.raw_os_error() => {
                    return Ok(None);
                }
                Err(error) => return Err(bad(error)),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel does not answer",
        ))
    }
}

/// A request for one socket (`struct inet_diag_req_v2`, linux/inet_diag.h).
fn request(own: SocketAddr, peer: SocketAddr, sequence: u32) -> Vec<u8> {
    // A caller that has connected by IPv4 has an IPv4 socket, even if the listener's socket is IPv6.
    let (own_ip, peer_ip) = (own.ip().to_canonical(), peer.ip().to_canonical());
    let family = match own_ip {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let mut body = Vec::with_capacity(56);
    body.push(family.as_raw() as u8);
    body.extend([IPPROTO_TCP, 0, 0]);
    body.extend([0xff; 4]);
    body.extend(own.port().to_be_bytes());
    body.extend(peer.port().to_be_bytes());
    for ip in [own_ip, peer_ip] {
        match ip {
            IpAddr::V4(ip) => {
                body.extend(ip.octets());
                body.extend([0; 12]);
            }
            IpAddr::V6(ip) => body.extend(ip.octets()),
        }
    }
    // Any interface; no cookie.
    body.extend([0; 4]);
    body.extend([0xff; 8]);
    let mut bytes = Vec::with_capacity(reply::HEADER + body.len());
    bytes.extend((body.len() as u32 + reply::HEADER as u32).to_ne_bytes());
    bytes.extend(reply::SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// The answer is one packet. Old answers may precede it.
const MOST_PACKETS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sock_diag::inode;
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

    fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        (client, server)
    }

    fn ours(socket: &TcpStream) -> Connected {
        Connected {
            inode: inode(socket).unwrap(),
            uid: rustix::process::getuid().as_raw(),
        }
    }

    #[test]
    fn the_socket_at_the_other_end_is_found() {
        for ip in [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv6Addr::LOCALHOST.into(),
        ] {
            let listener = TcpListener::bind((ip, 0)).unwrap();
            let (client, server) = pair(&listener);
            let (own, theirs) = (server.local_addr().unwrap(), server.peer_addr().unwrap());
            let mut diag = Diag::open().unwrap();
            let found = diag.connection(theirs, own).unwrap();
            assert_eq!(found, Some(ours(&client)));
            let found = diag.connection(own, theirs).unwrap();
            assert_eq!(found, Some(ours(&server)));
        }
    }

    #[test]
    fn a_caller_of_ipv4_is_found_at_a_listener_of_ipv6() {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (server, peer) = listener.accept().unwrap();
        assert!(peer.ip().to_canonical().is_ipv4());
        let own = server.local_addr().unwrap();
        let found = Diag::open().unwrap().connection(peer, own).unwrap();
        assert_eq!(found, Some(ours(&client)));
    }

    #[test]
    fn what_is_not_connected_is_not_found() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let mut diag = Diag::open().unwrap();
        // The listener itself would receive such a packet.
        assert_eq!(
            diag.connection(at, "127.0.0.1:1".parse().unwrap()).unwrap(),
            None
        );
        let nobody = "127.0.0.1:2".parse().unwrap();
        assert_eq!(diag.connection(nobody, at).unwrap(), None);
        // The other end still exists, but no process has this end open.
        let (client, server) = pair(&listener);
        let (own, theirs) = (server.local_addr().unwrap(), server.peer_addr().unwrap());
        drop(client);
        assert_eq!(diag.connection(theirs, own).unwrap(), None);
    }
}
