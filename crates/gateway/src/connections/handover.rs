//! Idle connections go from a gateway that drains to the one that follows. So weir does not close a connection at the
//! moment in which its client, for example a web server that keeps connections, sends the next request.
//!
//! The manager makes the channel. Each message is one connection with the data that the next gateway needs. Only
//! connections without further state are handed over: no TLS, and no client's address from a proxy. All others are
//! closed. If no gateway follows, or it does not accept them, all are closed.

use std::{
    io,
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use weir_config::{Address, Listener, Protocol};
use weir_observe::clock;
use weir_sys::message;

use super::{
    accept,
    idle::{self, Detached},
    proxy_protocol::Ends,
};
use crate::{Gateway, SMALL_STACK};

/// The gateway that follows.
#[derive(Debug, Default)]
pub(crate) struct NextGateway(Mutex<Option<Channel>>);

/// The way to it.
#[derive(Debug)]
struct Channel {
    /// `None`: it takes no more. It drains, too, and the manager names another one.
    socket: Option<Arc<OwnedFd>>,
    since: Instant,
}

/// Channels of gateways before this one, which are read until those have ended, or this one drains.
#[derive(Debug, Default)]
pub(crate) struct PreviousGateways {
    channels: Mutex<Vec<Weak<OwnedFd>>>,
    /// How many of them are not read to their end.
    open: AtomicUsize,
}

impl NextGateway {
    /// Connections are given to this one from now on.
    pub(crate) fn set(&self, socket: OwnedFd) {
        *self.lock() = Some(Channel {
            socket: Some(Arc::new(socket)),
            since: Instant::now(),
        });
    }

    /// Whether it takes connections of this listener, now or soon.
    pub(crate) fn takes(&self, listener: &Listener) -> bool {
        kind(listener).is_some() && self.lock().as_ref().is_some_and(Channel::is_of_use)
    }

    fn socket(&self) -> Option<Arc<OwnedFd>> {
        self.lock().as_ref()?.socket.clone()
    }

    /// The other gateway takes no more connections, unless another gateway was named meanwhile.
    fn is_gone(&self, gone: &Arc<OwnedFd>) {
        if let Some(channel) = &mut *self.lock()
            && channel
                .socket
                .take_if(|socket| Arc::ptr_eq(socket, gone))
                .is_some()
        {
            channel.since = Instant::now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Channel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Channel {
    fn is_of_use(&self) -> bool {
        self.socket.is_some() || self.since.elapsed() < NAMED_WITHIN
    }
}

/// Gives it this connection, which has no request and from which nothing was read.
///
/// # Errors
/// The connection, if it cannot be given, at least not now.
pub(crate) fn give(gateway: &Gateway, connection: Detached) -> Result<(), Detached> {
    let listener = &gateway.config.listeners[usize::from(connection.listener)];
    let (Some(socket), Some(kind), None) = (gateway.next.socket(), kind(listener), &connection.tls)
    else {
        return Err(connection);
    };
    let (requests, since) = connection.before.unwrap_or((0, clock::now()));
    let packet = encode(kind, requests, clock::now().saturating_sub(since), listener);
    let sent = message::send(socket.as_fd(), &packet, &[connection.socket.as_fd()], false);
    let Err(error) = sent else {
        return Ok(());
    };
    let is_full = error.kind() == io::ErrorKind::WouldBlock
        || error.raw_os_error() == Some(TOO_MANY_IN_TRANSIT);
    if !is_full {
        gateway.next.is_gone(&socket);
    }
    Err(connection)
}

/// Gives the idle connections of this reactor that have no task. Returns whether some can be given soon.
pub(crate) fn give_idle(gateway: &Gateway) -> bool {
    let began = gateway.next.lock().as_ref().map(|channel| channel.since);
    let Some(began) = began else {
        return false;
    };
    let mut wait = false;
    for connection in idle::take_some(usize::MAX) {
        let listener = &gateway.config.listeners[usize::from(connection.listener)];
        let is_taken = gateway.next.takes(listener) && connection.tls.is_none();
        let kept = match is_taken && !wait {
            true => give(gateway, connection),
            false => Err(connection),
        };
        if let Err(connection) = kept {
            wait |= is_taken;
            idle::keep(gateway, connection);
        }
    }
    wait && began.elapsed() < LONGEST
}

impl PreviousGateways {
    /// Accepts nothing more: later connections are for the next gateway. Those that were already sent are still read.
    pub(crate) fn end(&self) {
        let channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        for channel in channels.iter().filter_map(Weak::upgrade) {
            let _ = weir_sys::socket::end_reading(channel.as_fd());
        }
    }

    /// Whether connections may still come.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Relaxed) > 0
    }
}

/// Takes the connections that gateways before this one give, until they end or this one drains.
pub(crate) fn take(gateway: &'static Gateway, channel: OwnedFd) {
    let channel = Arc::new(channel);
    let taking = &gateway.taking;
    (taking.channels.lock())
        .unwrap_or_else(PoisonError::into_inner)
        .push(Arc::downgrade(&channel));
    taking.open.fetch_add(1, Relaxed);
    if gateway.drain.has_started() {
        taking.end();
    }
    let receive = move || {
        take_all(gateway, channel.as_fd());
        taking.open.fetch_sub(1, Relaxed);
    };
    let started = thread::Builder::new()
        .name("handed".into())
        .stack_size(SMALL_STACK)
        .spawn(receive);
    if let Err(error) = started {
        log::error!("idle connections of the earlier gateway are closed: {error}");
        taking.open.fetch_sub(1, Relaxed);
    }
}

fn take_all(gateway: &'static Gateway, channel: BorrowedFd<'_>) {
    let mut packet = [0; LONGEST_PACKET];
    let mut count = 0_u16;
    loop {
        let (length, sockets) = match message::receive(channel, &mut packet, true) {
            Ok((0, _)) => return,
            Ok(received) => received,
            // No descriptor came with the message, so the connection is closed.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
            Err(error) => {
                return log::error!(
                    "cannot take over idle connections of the earlier gateway: {error}"
                );
            }
        };
        let socket = sockets.into_iter().next();
        let Some(connection) = socket.and_then(|s| accepted(gateway, &packet[..length], s)) else {
            continue;
        };
        count = count.wrapping_add(1);
        let to = count % gateway.reactors.running().max(1);
        if gateway.reactors.send(to, connection).is_err() {
            log::debug!("an idle connection of the earlier gateway is closed");
        }
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
    let mut place = gateway.connections.enter(counted)?;
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

/// How long the manager may take to name the next gateway when one drains, too.
const NAMED_WITHIN: Duration = Duration::from_secs(1);

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
