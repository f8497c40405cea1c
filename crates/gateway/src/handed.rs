//! Idle connections go from a gateway that drains to the one that follows. So none is closed at the moment in which its
//! client, such as a web server in front that keeps connections, sends the next request over it.
//!
//! The manager makes the channel. Each message is one connection, and what the next gateway must know of it. Only those are
//! given of which their socket and their peer's address are all: no TLS, nothing that a proxy has said. The others are
//! closed, as all are if no gateway follows or it does not take them.

use std::{
    io,
    net::TcpStream,
    os::fd::{AsFd, OwnedFd},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use weir_config::{Address, Listener, Protocol};
use weir_observe::clock;
use weir_sys::message;

use super::{Gateway, SMALL_STACK, accept, idle, idle::Detached, proxied::Ends};

/// The gateway that follows.
#[derive(Debug, Default)]
pub(crate) struct Next {
    /// The channel, and since when there is one.
    channel: OnceLock<(OwnedFd, Instant)>,
    /// It takes no more.
    is_gone: AtomicBool,
}

impl Next {
    /// Connections can be given from now on.
    pub(super) fn set(&self, channel: OwnedFd) {
        // There is one in the life of a gateway.
        let _ = self.channel.set((channel, Instant::now()));
    }

    /// Whether it takes connections of this listener.
    pub(super) fn takes(&self, listener: &Listener) -> bool {
        self.channel.get().is_some() && !self.is_gone.load(Relaxed) && kind(listener).is_some()
    }
}

/// Gives it this connection, which has no request and of which nothing was read.
///
/// # Errors
/// The connection, if it cannot be given, at least not now.
pub(super) fn give(gateway: &Gateway, connection: Detached) -> Result<(), Detached> {
    let listener = &gateway.config.listeners[usize::from(connection.listener)];
    let next = &gateway.next;
    let (Some((channel, _)), Some(kind), true) = (
        next.channel.get(),
        kind(listener),
        next.takes(listener) && connection.tls.is_none(),
    ) else {
        return Err(connection);
    };
    let (requests, since) = connection.before.unwrap_or((0, clock::now()));
    let packet = encode(kind, requests, clock::now().saturating_sub(since), listener);
    let sent = message::send(
        channel.as_fd(),
        &packet,
        &[connection.socket.as_fd()],
        false,
    );
    match sent {
        Ok(()) => Ok(()),
        Err(error) => {
            let is_full = error.kind() == io::ErrorKind::WouldBlock
                || error.raw_os_error() == Some(TOO_MANY_IN_TRANSIT);
            if !is_full {
                next.is_gone.store(true, Relaxed);
            }
            Err(connection)
        }
    }
}

/// Gives the idle connections of this reactor that have no task. Returns whether some wait for room in the channel.
pub(super) fn give_idle(gateway: &Gateway) -> bool {
    let Some((_, since)) = gateway.next.channel.get() else {
        return false;
    };
    let mut is_full = false;
    for connection in idle::take_some(usize::MAX) {
        let listener = &gateway.config.listeners[usize::from(connection.listener)];
        let is_taken = gateway.next.takes(listener) && connection.tls.is_none();
        let kept = match is_taken && !is_full {
            true => give(gateway, connection),
            false => Err(connection),
        };
        if let Err(connection) = kept {
            is_full |= is_taken;
            idle::keep(gateway, connection);
        }
    }
    is_full && !gateway.next.is_gone.load(Relaxed) && since.elapsed() < LONGEST
}

/// Takes the connections that the gateway before this one gives, until it ends.
pub(super) fn take(gateway: &'static Gateway, channel: OwnedFd) {
    let receive = move || {
        let mut packet = [0; LONGEST_PACKET];
        let mut count = 0_u16;
        loop {
            let (length, sockets) = match message::receive(channel.as_fd(), &mut packet, true) {
                Ok((0, _)) => return,
                Ok(received) => received,
                // There was no descriptor for it: it is closed.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
                Err(error) => {
                    return log::error!("idle connections of the gateway before: {error}");
                }
            };
            let socket = sockets.into_iter().next();
            let Some(connection) = socket.and_then(|s| accepted(gateway, &packet[..length], s))
            else {
                continue;
            };
            count = count.wrapping_add(1);
            let to = count % gateway.reactors.running().max(1);
            if gateway.reactors.send(to, connection).is_err() {
                log::debug!("an idle connection of the gateway before is closed");
            }
        }
    };
    let started = thread::Builder::new()
        .name("handed".into())
        .stack_size(SMALL_STACK)
        .spawn(receive);
    if let Err(error) = started {
        log::error!("idle connections of the gateway before are closed: {error}");
    }
}

/// A connection that was given; `None`: no listener is the same, or it may not take it.
fn accepted(gateway: &'static Gateway, packet: &[u8], socket: OwnedFd) -> Option<Detached> {
    let (of, requests, idle, address) = decode(packet)?;
    let mut listeners = gateway.config.listeners.iter();
    let is_same =
        |one: &Listener| kind(one) == Some(of) && one.address.to_string().as_bytes() == address;
    let listener = listeners.position(is_same)?;
    let settings = &gateway.config.listeners[listener];
    let (socket, peer) = match settings.address {
        Address::Unix(_) => (socket, None),
        Address::Tcp(_) => {
            let stream = TcpStream::from(socket);
            let peer = stream.peer_addr().ok()?;
            (OwnedFd::from(stream), Some(peer))
        }
    };
    if peer.is_some_and(|peer| !accept::may_connect(&settings.protocol, peer)) {
        return None;
    }
    let counted = peer.filter(|_| settings.protocol == Protocol::Http);
    let mut place = gateway.census.enter(counted)?;
    place.count();
    Some(Detached {
        listener: listener as u16,
        socket,
        tls: None,
        ends: Ends::new(peer, None),
        place,
        before: Some((requests, clock::now().saturating_sub(idle))),
    })
}

/// The protocol of a listener whose connections can be given; `None`: they cannot.
fn kind(listener: &Listener) -> Option<u8> {
    let has_port = match listener.address {
        Address::Tcp(address) => address.port() != 0,
        Address::Unix(_) => true,
    };
    match &listener.protocol {
        _ if listener.tls.is_some() || listener.proxy_protocol || !has_port => None,
        Protocol::Http => Some(b'h'),
        Protocol::FastCgi(_) => Some(b'f'),
        Protocol::AgentCheck(_) => None,
    }
}

/// The form of a message, its number first: the other gateway may be of another version.
fn encode(kind: u8, requests: u64, idle: u64, listener: &Listener) -> Vec<u8> {
    let mut packet = vec![FORM, kind];
    packet.extend(requests.to_le_bytes());
    packet.extend(idle.to_le_bytes());
    packet.extend(listener.address.to_string().as_bytes());
    packet
}

/// Kind, number of requests, for how long it has been idle (µs), and the listener's address.
fn decode(packet: &[u8]) -> Option<(u8, u64, u64, &[u8])> {
    let (&[form, kind], rest) = packet.split_first_chunk()?;
    let (requests, rest) = rest.split_first_chunk()?;
    let (idle, address) = rest.split_first_chunk()?;
    let (requests, idle) = (u64::from_le_bytes(*requests), u64::from_le_bytes(*idle));
    (form == FORM).then_some((kind, requests, idle, address))
}

/// The first byte of a message.
const FORM: u8 = 1;

/// Bytes of the longest message: an address has at most those of a path.
const LONGEST_PACKET: usize = 512;

/// ETOOMANYREFS of Linux: too many descriptors are under way.
const TOO_MANY_IN_TRANSIT: i32 = 109;

/// How long connections wait for room in the channel.
const LONGEST: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written_and_nothing_else_is() {
        let text = "[listen.a]\naddress = \"unix:/run/a.sock\"\n";
        let mut packet = vec![FORM, b'f'];
        packet.extend(7_u64.to_le_bytes());
        packet.extend(9_u64.to_le_bytes());
        packet.extend(text.as_bytes());
        assert_eq!(decode(&packet), Some((b'f', 7, 9, text.as_bytes())));
        for length in 0..18 {
            assert_eq!(decode(&packet[..length]), None);
        }
        packet[0] = FORM + 1;
        assert_eq!(decode(&packet), None);
    }
}
