//! Which connection a datagram belongs to: its connection ID tells.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    sync::Arc,
};

use quinn_proto::EcnCodepoint;
use tokio::net::UnixDatagram;
use weir_sys::message;
use weir_tls::quic::{ID, Ids, Place};

use super::{Endpoint, endpoint::Inner};

/// The end of an inbox that others send to.
#[derive(Debug)]
pub struct Outbox {
    /// The owner of the inbox: a gateway and one of its reactors.
    pub gateway: u32,
    /// The reactor.
    pub reactor: u16,
    /// Sends packets.
    pub socket: OwnedFd,
}

/// Where a reactor passes datagrams on.
#[derive(Debug)]
pub struct Routes {
    ids: Arc<Ids>,
    gateway: u32,
    reactor: u16,
    outboxes: Arc<Vec<Outbox>>,
    endpoints: RefCell<HashMap<u16, Rc<Inner>>>,
}

/// A datagram that has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Datagram<'d> {
    pub(super) from: SocketAddr,
    /// The address that it was sent to.
    pub(super) to: Option<IpAddr>,
    pub(super) ecn: Option<EcnCodepoint>,
    pub(super) bytes: &'d [u8],
}

impl Routes {
    /// The routes of a reactor. `outboxes`: to all reactors, including those of other gateways.
    pub fn new(
        ids: Arc<Ids>,
        (gateway, reactor): (u32, u16),
        outboxes: Arc<Vec<Outbox>>,
    ) -> Rc<Routes> {
        Rc::new(Routes {
            ids,
            gateway,
            reactor,
            outboxes,
            endpoints: RefCell::default(),
        })
    }

    /// Where the connections of a listener live.
    pub fn place(&self, listener: u16) -> Place {
        Place {
            gateway: self.gateway,
            reactor: self.reactor,
            listener,
        }
    }

    /// What makes and reads IDs.
    pub fn ids(&self) -> &Arc<Ids> {
        &self.ids
    }

    /// Datagrams for this listener's connections go to `endpoint`.
    pub fn add(&self, listener: u16, endpoint: &Endpoint) {
        let inner = endpoint.0.clone();
        self.endpoints.borrow_mut().insert(listener, inner);
    }

    /// Gives a datagram that came on a socket of `endpoint` to the connection or reactor that it is for.
    pub(super) fn dispatch(&self, endpoint: &Rc<Inner>, datagram: Datagram<'_>) {
        let place = destination(datagram.bytes).and_then(|id| self.ids.read(id));
        let Some(place) = place else {
            return endpoint.handle(datagram);
        };
        if (place.gateway, place.reactor) == (self.gateway, self.reactor) {
            return match self.endpoint(place.listener) {
                Some(endpoint) => endpoint.handle(datagram),
                None => endpoint.handle(datagram),
            };
        }
        let is_theirs =
            |other: &&Outbox| (other.gateway, other.reactor) == (place.gateway, place.reactor);
        match self.outboxes.iter().find(is_theirs) {
            Some(outbox) => match datagram.pass_on(outbox) {
                // That gateway has ended. The client is told that its connection is gone.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    endpoint.handle(datagram);
                }
                // Datagrams may be lost; the client sends them again.
                Err(_) => endpoint.has_dropped(),
                Ok(()) => {}
            },
            // Only a later gateway knows whether it has that connection.
            None if place.gateway > self.gateway => {}
            None => endpoint.handle(datagram),
        }
    }

    fn endpoint(&self, listener: u16) -> Option<Rc<Inner>> {
        self.endpoints.borrow().get(&listener).cloned()
    }

    /// Takes the datagrams that others pass on, until all of them have ended.
    ///
    /// # Errors
    /// If the reactor cannot watch the socket.
    pub async fn serve_inbox(&self, inbox: OwnedFd) -> io::Result<()> {
        // The socket is no datagram socket, but it also keeps the boundaries of packets.
        let inbox = std::os::unix::net::UnixDatagram::from(inbox);
        inbox.set_nonblocking(true)?;
        let inbox = UnixDatagram::from_std(inbox)?;
        let mut packet = vec![0; HEAD + LONGEST];
        let mut turns = 0;
        loop {
            inbox.readable().await?;
            match inbox.try_recv(&mut packet) {
                Ok(0) => return Ok(()),
                Ok(length) => {
                    if let Some(datagram) = Datagram::decode(&packet[..length])
                        && let Some(id) = destination(datagram.bytes)
                        && let Some(place) = self.ids.read(id)
                        && let Some(endpoint) = self.endpoint(place.listener)
                    {
                        endpoint.handle(datagram);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            turns += 1;
            if turns % AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}

impl<'d> Datagram<'d> {
    fn pass_on(&self, outbox: &Outbox) -> io::Result<()> {
        let mut packet = Vec::with_capacity(HEAD + self.bytes.len());
        packet.push(self.ecn.map_or(0, |ecn| ecn as u8));
        packet.extend_from_slice(&self.from.port().to_be_bytes());
        for address in [Some(self.from.ip()), self.to] {
            let (kind, bytes) = match address {
                None => (0, [0; 16]),
                Some(IpAddr::V4(four)) => (4, four.to_ipv6_mapped().octets()),
                Some(IpAddr::V6(six)) => (6, six.octets()),
            };
            packet.push(kind);
            packet.extend_from_slice(&bytes);
        }
        packet.extend_from_slice(self.bytes);
        message::send(outbox.socket.as_fd(), &packet, &[], false)
    }

    fn decode(packet: &'d [u8]) -> Option<Datagram<'d>> {
        let (head, bytes) = packet.split_first_chunk::<HEAD>()?;
        let address = |at: usize| {
            let six = Ipv6Addr::from(<[u8; 16]>::try_from(&head[at + 1..at + 17]).ok()?);
            match head[at] {
                4 => six.to_ipv4_mapped().map(Ipv4Addr::into),
                6 => Some(IpAddr::V6(six)),
                _ => None,
            }
        };
        let port = u16::from_be_bytes([head[1], head[2]]);
        Some(Datagram {
            from: SocketAddr::new(address(3)?, port),
            to: address(3 + 17),
            ecn: EcnCodepoint::from_bits(head[0]),
            bytes,
        })
    }
}

/// The ID in a datagram, if it may be one of ours (RFC 9000 §17).
fn destination(bytes: &[u8]) -> Option<&[u8]> {
    let (first, _) = bytes.split_first()?;
    match first & LONG_HEADER {
        0 => bytes.get(1..1 + ID),
        _ if usize::from(*bytes.get(5)?) == ID => bytes.get(6..6 + ID),
        _ => None,
    }
}

/// In the first byte of a packet with a long header.
const LONG_HEADER: u8 = 0x80;

/// Bytes before a datagram that is passed on: ECN, port, and two addresses.
const HEAD: usize = 3 + 2 * 17;

/// Bytes of the longest datagram.
const LONGEST: usize = 65_535;

/// Datagrams of an inbox that are taken before others have their turn.
const AT_ONCE: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_keeps_its_addresses_when_it_is_passed_on() {
        let (here, there) = message::pair().unwrap();
        let outbox = Outbox {
            gateway: 0,
            reactor: 0,
            socket: here,
        };
        for (from, to, ecn) in [
            ("192.0.2.7:4433", Some("192.0.2.1"), Some(EcnCodepoint::Ce)),
            ("[2001:db8::1]:1", None, None),
            ("[::ffff:192.0.2.7]:65535", Some("2001:db8::2"), None),
        ] {
            let sent = Datagram {
                from: from.parse().unwrap(),
                to: to.map(|to| to.parse().unwrap()),
                ecn,
                bytes: b"datagram",
            };
            sent.pass_on(&outbox).unwrap();
            let mut packet = [0; 100];
            let (length, _) = message::receive(there.as_fd(), &mut packet, true).unwrap();
            let got = Datagram::decode(&packet[..length]).unwrap();
            assert_eq!(format!("{got:?}"), format!("{sent:?}"));
            assert!(Datagram::decode(&packet[..HEAD - 1]).is_none());
        }
    }

    #[test]
    fn ids_are_found_in_both_kinds_of_headers() {
        let mut short = [0; 30];
        short[..17].copy_from_slice(b"@0123456789abcdef");
        assert_eq!(destination(&short), Some(&b"0123456789abcdef"[..]));
        let mut long = [0; 30];
        (long[0], long[5]) = (0xc0, 16);
        long[6..22].copy_from_slice(b"0123456789abcdef");
        assert_eq!(destination(&long), Some(&b"0123456789abcdef"[..]));
        long[5] = 8;
        assert_eq!(destination(&long), None);
        for short in [&b""[..], b"@", b"\xc0\0\0\0\x01", b"\xc0\0\0\0\x01\x10123"] {
            assert_eq!(destination(short), None);
        }
    }
}
