//! HTTP/3: the UDP sockets of each reactor, and which clients get a connection.
//!
//! As over TCP, `limits` decides whether there is room. A connection stays on the reactor whose socket got its first
//! datagram. After a reload the next gateway reads the sockets, and passes datagrams of this gateway's connections on
//! (`weir_net::quic`).

use std::{
    cell::Cell,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::task::spawn_local;
use weir_config::{Address, Listener};
use weir_control::QuicGiven;
use weir_http::h3;
use weir_net::quic::{
    Arrival, Connection, Endpoint, Handshakes, Ids, Outbox, Routes, Settings,
    quinn_proto::{IdleTimeout, TransportConfig, VarInt},
};

use weir_sys::socket::dropped;

use super::{
    accept::ConnectionGuard,
    client::Conn,
    limits::ConnectionPermit,
    serve::{self, ClientFront},
    sweep::Registered,
};
use crate::{Gateway, record::Endpoints, scripts::self_calls::ConnectionOrigin};

/// What reactors need, until they take it.
#[derive(Debug, Default)]
pub(crate) struct Quic {
    reactors: Mutex<Vec<OfReactor>>,
    /// By listener: the same sockets, to ask the kernel what it dropped.
    sockets: Vec<(u16, OwnedFd)>,
}

/// What a reactor needs.
#[derive(Debug)]
struct OfReactor {
    reactor: u16,
    gateway: u32,
    ids: Arc<Ids>,
    inbox: OwnedFd,
    outboxes: Arc<Vec<Outbox>>,
    /// By listener.
    sockets: Vec<(u16, Vec<OwnedFd>)>,
}

impl Quic {
    /// # Errors
    /// If the manager gave something that does not belong together.
    pub(crate) fn new(given: Option<QuicGiven>) -> Result<Quic, String> {
        let given = given.unwrap_or_default();
        let Some((gateway, secret)) = given.secret else {
            return Ok(Quic::default());
        };
        let secret = secret.keys.first();
        let ids = Arc::new(Ids::new(secret.map_or(&[], |secret| &secret[..]))?);
        let outboxes = given.outboxes.into_iter();
        let outboxes = outboxes.map(|(gateway, reactor, socket)| Outbox {
            gateway,
            reactor,
            socket,
        });
        let outboxes = Arc::new(outboxes.collect());
        let of = |(reactor, inbox)| OfReactor {
            reactor,
            gateway,
            ids: ids.clone(),
            inbox,
            outboxes: Arc::clone(&outboxes),
            sockets: Vec::new(),
        };
        let mut reactors: Vec<OfReactor> = given.inboxes.into_iter().map(of).collect();
        let mut sockets = Vec::new();
        for (listener, reactor, socket) in given.sockets {
            let mut all = reactors.iter_mut();
            let of = all
                .find(|of| of.reactor == reactor)
                .ok_or("a UDP socket for a reactor without an inbox")?;
            sockets.extend(socket.try_clone().ok().map(|socket| (listener, socket)));
            match of.sockets.iter_mut().find(|(other, _)| *other == listener) {
                Some((_, sockets)) => sockets.push(socket),
                None => of.sockets.push((listener, vec![socket])),
            }
        }
        Ok(Quic {
            reactors: Mutex::new(reactors),
            sockets,
        })
    }

    /// Datagrams that the kernel dropped at a listener since its sockets were made, because weir did not read them in time. `None`:
    /// it has no UDP sockets.
    pub(crate) fn dropped(&self, listener: usize) -> Option<u64> {
        let sockets = self.sockets.iter();
        let ours = sockets.filter(|(of, _)| usize::from(*of) == listener);
        let counts = ours.map(|(_, socket)| u64::from(dropped(socket.as_fd()).unwrap_or_default()));
        counts.reduce(|sum, count| sum + count)
    }

    fn take(&self, reactor: u16) -> Option<OfReactor> {
        let mut reactors = self.reactors.lock().unwrap_or_else(PoisonError::into_inner);
        let at = reactors.iter().position(|of| of.reactor == reactor)?;
        Some(reactors.swap_remove(at))
    }
}

/// Starts HTTP/3 on the reactor `home`, if it has sockets for it.
pub(crate) fn start(gateway: &'static Gateway, home: u16) {
    let (Some(of), Some(server)) = (gateway.quic.take(home), &gateway.tls) else {
        return;
    };
    let routes = Routes::new(of.ids, (of.gateway, home), of.outboxes);
    for (listener, sockets) in of.sockets {
        let settings = &gateway.config.listeners[usize::from(listener)];
        let tally = &gateway.connections.listeners[usize::from(listener)];
        let endpoint = Handshakes::new(server.clone(), listener).and_then(|handshakes| {
            let settings = Settings {
                handshakes,
                transport: transport(settings),
                max_incoming: MAX_INCOMING,
                dropped: &tally.datagrams,
            };
            let made = Endpoint::new(listener, sockets, &routes, settings);
            made.map_err(|error| error.to_string())
        });
        match endpoint {
            Ok(endpoint) => listen(gateway, (listener, home), &endpoint),
            Err(error) => {
                log::error!("[listen.{}] http3: {error}", settings.name);
            }
        }
    }
    spawn_local(async move {
        if let Err(error) = routes.serve_inbox(of.inbox).await {
            log::error!("the inbox of reactor {home}: {error}");
        }
    });
}

/// The settings of QUIC for a listener's connections.
fn transport(listener: &Listener) -> TransportConfig {
    let limits = &listener.http2_limits;
    let mut transport = TransportConfig::default();
    // A client that is still connected answers a PING within this time.
    let silence = listener.idle_timeout.max(limits.ping * 2) + ANSWER;
    transport
        .max_idle_timeout(IdleTimeout::try_from(silence).ok())
        .max_concurrent_bidi_streams(limits.streams.into())
        .max_concurrent_uni_streams(ONE_WAY_STREAMS.into())
        .stream_receive_window(limits.stream_window.into())
        // The window grows when bodies arrive, within `http2_memory`.
        .receive_window(VarInt::from_u64(h3::FIRST_WINDOW).unwrap_or_default())
        .datagram_receive_buffer_size(None)
        .send_fairness(false);
    transport
}

/// Accepts connections until the gateway ends.
fn listen(gateway: &'static Gateway, (listener, home): (u16, u16), endpoint: &Endpoint) {
    let reading = endpoint.clone();
    spawn_local(async move {
        tokio::select! {
            () = reading.read() => {}
            // The next gateway reads them.
            () = gateway.admin_ends.started() => {}
        }
    });
    let unblocking = endpoint.clone();
    spawn_local(async move { unblocking.unblock().await });
    let endpoint = endpoint.clone();
    let port = endpoint.port();
    spawn_local(async move {
        loop {
            let arrival = endpoint.arrival().await;
            if gateway.drain.has_started() {
                // If another gateway follows, the client is not answered: it tries again soon, and reaches that one.
                if !gateway.admin_ends.has_started() {
                    arrival.refuse();
                }
                continue;
            }
            if !arrival.is_validated() && must_show_itself(gateway, &arrival) {
                arrival.retry();
                continue;
            }
            if let Some(mut place) = admit(gateway, listener, &arrival) {
                tokio::select! {
                    biased;
                    () = gateway.connections.room(&mut place, gateway, home) => {}
                    () = gateway.drain.started() => {}
                }
                place.count();
                serve(gateway, (listener, home, port), arrival, place);
            } else {
                arrival.refuse();
            }
        }
    });
}

/// Whether a client must first show that it gets what is sent to its address (Retry, RFC 9000 §8.1.2): others could have sent its
/// first datagram in its name, and would take the last places with such datagrams, or those of its address.
fn must_show_itself(gateway: &Gateway, arrival: &Arrival) -> bool {
    HANDSHAKES.get() >= UNVALIDATED_HANDSHAKES
        || gateway.connections.is_nearly_full()
        || (arrival.remote()).is_some_and(|peer| gateway.connections.is_full_for(peer.ip()))
}

/// The place of a new connection. It counts for its address once it is known that the client is there: now, or when its handshake
/// is over ([`connected`]).
fn admit(gateway: &'static Gateway, listener: u16, arrival: &Arrival) -> Option<ConnectionPermit> {
    let tally = gateway.connections.listeners.get(usize::from(listener));
    if let Some(tally) = tally {
        tally.accepted.fetch_add(1, Relaxed);
    }
    let peer = arrival.remote()?;
    let known = arrival.is_validated().then_some(peer);
    let place = gateway.connections.enter(known);
    if place.is_none() {
        if let Some(tally) = tally {
            tally.per_address.fetch_add(1, Relaxed);
        }
        gateway.connections.say_per_address(peer.ip());
    }
    place
}

fn serve(
    gateway: &'static Gateway,
    (listener, home, port): (u16, u16, u16),
    arrival: Arrival,
    place: ConnectionPermit,
) {
    let (Some(peer), local) = (arrival.remote(), arrival.local()) else {
        return;
    };
    let local = local_address(gateway, listener, local, port);
    let Some(quic) = arrival.accept() else {
        return;
    };
    let endpoints = Endpoints::new(Some(peer), Some(local), None);
    let front = guarded(gateway, (listener, home), (endpoints, Some(place)));
    let (Some((front, slot)), shaking) = (front, Shaking::new()) else {
        return;
    };
    let task = spawn_local(async move {
        let _shaking = shaking;
        h3::Handshake::new(front, quic).await;
    });
    slot.has_task(task.abort_handle());
}

/// Serves a connection whose handshake is over.
pub(crate) fn connected(
    gateway: &'static Gateway,
    conn: &Conn,
    before: &mut ConnectionGuard,
    mut quic: Connection,
) {
    let (listener, home) = (conn.listener, conn.home);
    let mut place = before.take_place();
    let address = quic.remote().ip();
    if !place.as_mut().is_some_and(|place| place.is_of(address)) {
        let index = usize::from(listener);
        gateway.connections.close_for_address(index, address);
        quic.close(h3::EXCESSIVE_LOAD, "too many connections of this address");
        return;
    }
    let port = conn.endpoints.server_port;
    let local = local_address(gateway, listener, quic.local(), port);
    let endpoints = Endpoints::new(Some(quic.remote()), Some(local), quic.info());
    if let Some((front, slot)) = guarded(gateway, (listener, home), (endpoints, place)) {
        let task = spawn_local(serve::http3(front, quic));
        slot.has_task(task.abort_handle());
    }
}

fn guarded(
    gateway: &'static Gateway,
    (listener, home): (u16, u16),
    (endpoints, place): (Endpoints, Option<ConnectionPermit>),
) -> Option<(ClientFront, super::sweep::Slot)> {
    // Workers make their calls over TCP.
    let source = ConnectionOrigin::new(None, None, None);
    let timeouts = &gateway.timeouts[usize::from(listener)];
    let conn = Rc::new(Conn::new(listener, home, endpoints, source, timeouts));
    let registered = Registered::new(conn.clone());
    let slot = registered.slot();
    let guard = ConnectionGuard::new(registered, place?);
    Some((ClientFront::new(gateway, conn, guard), slot))
}

/// The address that the client connected to.
fn local_address(gateway: &Gateway, listener: u16, local: Option<IpAddr>, port: u16) -> SocketAddr {
    let settings = &gateway.config.listeners[usize::from(listener)];
    let configured = match settings.address {
        Address::Tcp(address) => address.ip(),
        Address::Unix(_) => IpAddr::from([0, 0, 0, 0]),
    };
    SocketAddr::new(local.unwrap_or(configured), port)
}

thread_local! {
    /// Handshakes of this reactor that are not over.
    static HANDSHAKES: Cell<usize> = const { Cell::new(0) };
}

/// Counts a handshake as long as it lasts.
struct Shaking;

impl Shaking {
    fn new() -> Shaking {
        HANDSHAKES.set(HANDSHAKES.get() + 1);
        Shaking
    }
}

impl Drop for Shaking {
    fn drop(&mut self) {
        HANDSHAKES.set(HANDSHAKES.get() - 1);
    }
}

/// New connections of a reactor and listener that wait for their turn; more are dropped, and the clients try again.
const MAX_INCOMING: usize = 1024;

/// With so many handshakes at once on a reactor, clients must first show themselves.
const UNVALIDATED_HANDSHAKES: usize = 128;

/// Streams of one direction that a client may have open: it needs three.
const ONE_WAY_STREAMS: u32 = 16;

/// How long a client may take to answer a PING.
const ANSWER: Duration = Duration::from_secs(5);
