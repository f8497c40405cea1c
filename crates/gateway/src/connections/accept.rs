//! Accepts connections on the listening sockets. Also serves those that other reactors send, and idle ones on which
//! bytes have arrived.
//!
//! Each reactor that accepts has its own listening socket for each listener, or shares it with others.
//! [`super::reactors`] says which reactor gets a connection, [`super::limits`] whether there is room for it.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::{sync::mpsc, task::spawn_local};
use weir_config::{Address, Protocol};
use weir_http::{Timeouts, h1::Limits, handshake::Handshake};
use weir_net::{ACCEPT_PAUSE, Accepted, Acceptor, Socket};
use weir_observe::{
    clock,
    events::{self, WorkersLog},
    seldom::Seldom,
};
use weir_tls::Session;

use super::{
    client::Conn,
    handover,
    idle::{self, Detached},
    limits::{ConnectionPermit, ListenerTally},
    proxy_protocol::{self, Ends, Proxied},
    serve::{self, ClientFront, FastCgi, Http1},
    sweep::Registered,
};
use crate::{Gateway, access::forwarded, record::Endpoints, scripts::self_calls::ConnectionOrigin};

/// What all connections of a listener have in common on a reactor.
struct ListenerContext {
    listener: u16,
    home: u16,
    limits: Limits,
    timeouts: &'static Timeouts,
    /// The listener's address.
    local: Option<SocketAddr>,
}

/// What a connection occupies. Dropping it, on the same reactor, frees everything.
pub(crate) struct ConnectionGuard {
    _registered: Registered,
    /// `None` once the connection has moved.
    place: Option<ConnectionPermit>,
}

impl ConnectionGuard {
    /// The guard of a connection that was just registered.
    pub(crate) fn new(registered: Registered, place: ConnectionPermit) -> ConnectionGuard {
        ConnectionGuard {
            _registered: registered,
            place: Some(place),
        }
    }

    /// Takes the place for another guard.
    pub(crate) fn take_place(&mut self) -> Option<ConnectionPermit> {
        self.place.take()
    }
}

/// Accepts connections on `fd` until the gateway drains. Runs on the reactor `home`.
///
/// # Errors
///
/// If the reactor cannot watch `fd` as a listening socket.
pub(crate) async fn listen(
    gateway: &'static Gateway,
    listener: u16,
    home: u16,
    fd: OwnedFd,
) -> io::Result<()> {
    let settings = &gateway.config.listeners[usize::from(listener)];
    let is_tcp = matches!(settings.address, Address::Tcp(_));
    let mut acceptor = Acceptor::new(format!("listen.{}", settings.name), fd, is_tcp)?;
    let terms = ListenerContext::new(gateway, listener, home);
    let admit = |peer: Option<SocketAddr>| {
        let tally = gateway.connections.listeners.get(usize::from(listener));
        let count = |counter: fn(&ListenerTally) -> &AtomicU64| {
            if let Some(tally) = tally {
                counter(tally).fetch_add(1, Relaxed);
            }
        };
        count(|tally| &tally.accepted);
        if let Some(peer) = peer
            && !may_connect(&settings.protocol, peer)
        {
            count(|tally| &tally.not_allowed);
            let workers = workers_log(gateway, &settings.protocol);
            events::client_turned_away(&settings.name, peer.ip().to_canonical(), workers);
            return None;
        }
        if settings.proxy_protocol && !forwarded::is_trusted(gateway, peer.map(|peer| peer.ip())) {
            count(|tally| &tally.not_allowed);
            events::untrusted_proxy(&settings.name, peer.map(|peer| peer.ip().to_canonical()));
            return None;
        }
        // A web server or proxy in front uses one address for all of its clients, so the limit per address does not
        // apply to it. For the clients of a proxy it does, as soon as they are known.
        let counted =
            peer.filter(|_| settings.protocol == Protocol::Http && !settings.proxy_protocol);
        let place = gateway.connections.enter(counted);
        if let (None, Some(peer)) = (&place, peer) {
            count(|tally| &tally.per_address);
            gateway.connections.say_per_address(peer.ip());
        }
        place
    };
    let serve = |(socket, peer): Accepted, mut place: ConnectionPermit| {
        place.count();
        let Some(to) = gateway.reactors.for_new(home) else {
            let incoming = Incoming {
                socket,
                peer,
                proxied: None,
                place,
                before: None,
            };
            return terms.serve(gateway, incoming);
        };
        let detached = socket.into_fd().map(|(socket, tls)| Detached {
            listener,
            socket,
            tls,
            ends: Ends::new(peer, None),
            place,
            before: None,
        });
        match detached.map(|connection| gateway.reactors.send(to, connection)) {
            Ok(Ok(())) => {}
            // That reactor takes no connections, so this one serves the connection.
            Ok(Err(connection)) => terms.take(gateway, connection),
            Err(error) => {
                if let Some(more) = CLOSED.line() {
                    log::error!("cannot give a connection to reactor {to}: {error}{more}");
                }
            }
        }
    };
    let pool = match &settings.protocol {
        Protocol::FastCgi(front) if !front.status_only => gateway.pools.get(front.pool.0),
        _ => None,
    };
    loop {
        if let Some(pool) = pool {
            tokio::select! {
                biased;
                () = gateway.drain.started() => break,
                () = pool.room_to_wait() => {}
            }
        }
        let (_, (socket, peer)) = tokio::select! {
            biased;
            () = gateway.drain.started() => break,
            accepted = acceptor.accept() => accepted,
        };
        if let Some(mut place) = admit(peer) {
            // When the gateway stops accepting, it still serves the connections that were accepted, even above the limit.
            tokio::select! {
                biased;
                () = gateway.connections.room(&mut place, gateway, home) => {}
                () = gateway.drain.started() => {}
            }
            serve((socket, peer), place);
        }
    }
    // The connections that waited in the queue when the drain began. The next gateway, if there is one, gets later
    // connections.
    for _ in 0..=settings.backlog {
        let Some((_, (socket, peer))) = acceptor.accept_queued().await else {
            break;
        };
        if let Some(place) = admit(peer) {
            serve((socket, peer), place);
        }
    }
    Ok(())
}

/// Serves the connections that other reactors send to the reactor `home`, and idle ones on which bytes have arrived.
/// Never returns.
pub(crate) async fn take_in(
    gateway: &'static Gateway,
    home: u16,
    mut mailbox: mpsc::UnboundedReceiver<Detached>,
) {
    let listeners = 0..gateway.config.listeners.len() as u16;
    let terms: Vec<ListenerContext> = listeners
        .map(|listener| ListenerContext::new(gateway, listener, home))
        .collect();
    let serve = |connection: Detached| {
        if let Some(terms) = terms.get(usize::from(connection.listener)) {
            terms.take(gateway, connection);
        }
    };
    let idle = match idle::start() {
        Ok(idle) => Some(idle),
        Err(error) => {
            log::error!("reactor {home} cannot watch idle connections, which are closed: {error}");
            None
        }
    };
    let mut slots = Vec::new();
    loop {
        let ready = async {
            match &idle {
                Some(idle) => idle.ready(&mut slots).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            sent = mailbox.recv() => match sent {
                Some(connection) if connection.rests(clock::now()) => {
                    idle::keep(gateway, connection);
                }
                Some(connection) => serve(connection),
                None => return,
            },
            result = ready => if let Err(error) = result {
                log::error!("reactor {home} cannot see what comes on idle connections: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            },
        }
        slots.drain(..).filter_map(idle::take).for_each(serve);
    }
}

/// A connection that this reactor watches and will serve.
pub(crate) struct Incoming {
    pub(crate) socket: Socket,
    pub(crate) peer: Option<SocketAddr>,
    /// The ends of the connection, as a proxy has named them.
    pub(crate) proxied: Option<Proxied>,
    pub(crate) place: ConnectionPermit,
    /// As in [`Detached`].
    before: Option<(u64, u64)>,
}

impl ListenerContext {
    fn new(gateway: &'static Gateway, listener: u16, home: u16) -> ListenerContext {
        let settings = &gateway.config.listeners[usize::from(listener)];
        ListenerContext {
            listener,
            home,
            limits: serve::limits(settings),
            timeouts: &gateway.timeouts[usize::from(listener)],
            local: match settings.address {
                Address::Tcp(address) => Some(address),
                Address::Unix(_) => None,
            },
        }
    }

    /// Serves a connection that has no task.
    fn take(&self, gateway: &'static Gateway, connection: Detached) {
        let settings = &gateway.config.listeners[usize::from(self.listener)];
        let Detached {
            socket,
            tls,
            ends,
            place,
            before,
            ..
        } = connection;
        let (peer, proxied) = ends.parts();
        match Socket::watch(socket, matches!(settings.address, Address::Tcp(_))) {
            Ok(socket) => {
                let socket = match tls {
                    Some(session) => socket.with_tls(session),
                    None => socket,
                };
                let incoming = Incoming {
                    socket,
                    peer,
                    proxied,
                    place,
                    before,
                };
                self.serve(gateway, incoming);
            }
            Err(error) => {
                if let Some(more) = CLOSED.line() {
                    log::error!(
                        "reactor {} cannot watch a connection, which is closed: {error}{more}",
                        self.home
                    );
                }
            }
        }
    }

    /// Serves a connection on this reactor.
    fn serve(&self, gateway: &'static Gateway, incoming: Incoming) {
        let settings = &gateway.config.listeners[usize::from(self.listener)];
        let local = local_address(&incoming.socket, self.local);
        if settings.proxy_protocol && incoming.proxied.is_none() {
            let terms = ListenerContext::new(gateway, self.listener, self.home);
            spawn_local(async move {
                if let Some(incoming) =
                    proxy_protocol::read(gateway, terms.listener, incoming, local).await
                {
                    terms.serve(gateway, incoming);
                }
            });
            return;
        }
        let Incoming {
            socket,
            peer,
            proxied,
            place,
            before,
        } = incoming;
        let pid = match peer {
            None => weir_sys::socket::peer_process(socket.as_fd()).map(|(pid, _)| pid),
            Some(_) => None,
        };
        let mut socket = socket;
        if let (None, true, Some(server)) = (socket.tls(), settings.tls.is_some(), &gateway.tls) {
            let local = local.map(|local| local.ip());
            let session = Session::new(server.clone(), self.listener, local);
            socket = socket.with_tls(Box::new(session));
        }
        let info = socket.tls().map(|session| session.info().cloned());
        let has_http2 = matches!(&info, Some(Some(info)) if info.http2);
        let conn = Rc::new(Conn::new(
            self.listener,
            self.home,
            match &proxied {
                None => Endpoints::new(peer, local, info.clone().flatten()),
                Some(proxied) => proxied.endpoints(peer, info.clone().flatten()),
            },
            ConnectionOrigin::new(peer, local, pid),
            self.timeouts,
        ));
        if let Some((requests, since)) = before {
            conn.continues(requests, since);
        }
        let registered = Registered::new(conn.clone());
        let slot = registered.slot();
        let guard = ConnectionGuard::new(registered, place);
        let front = ClientFront::new(gateway, conn, guard);
        // Four kinds of task: a task is as large as the largest future in it.
        let task = match &settings.protocol {
            Protocol::Http if has_http2 => spawn_local(serve::http2(front, socket, Vec::new())),
            Protocol::Http if info == Some(None) => spawn_local(Handshake::new(front, socket)),
            Protocol::Http => spawn_local(Http1::new(front, socket, self.limits)),
            Protocol::FastCgi(_) => spawn_local(FastCgi::new(front, socket)),
            // These listeners have their own accept loop (`agent_check`).
            Protocol::AgentCheck(_) => return,
        };
        slot.has_task(task.abort_handle());
    }
}

impl ConnectionGuard {
    /// Gives a connection that has no request, and from which nothing was read, to the reactor `to`.
    pub(crate) fn move_away(&mut self, to: u16, gateway: &Gateway, conn: &Conn, socket: Socket) {
        let peer = socket.peer_addr();
        // If one of these fails, the client has left, and the connection is closed.
        if let (Ok(peer), Ok((socket, tls)), Some(place)) =
            (peer, socket.into_fd(), self.place.take())
        {
            let connection = Detached {
                listener: conn.listener,
                socket,
                tls,
                ends: Ends::new(peer, proxy_protocol::kept(gateway, conn)),
                place,
                before: Some((conn.requests(), conn.idle_since())),
            };
            let kept = match to == conn.home {
                _ if gateway.drain.has_started() => handover::give(gateway, connection),
                true => Err(connection),
                false => gateway.reactors.send(to, connection),
            };
            if let Err(connection) = kept {
                idle::keep(gateway, connection);
            }
        }
    }
}

/// Serves a connection whose handshake of TLS is over.
pub(crate) fn secured(
    gateway: &'static Gateway,
    conn: &Conn,
    guard: &mut ConnectionGuard,
    socket: Socket,
) {
    // If one of these fails, the client has left, and the connection is closed.
    if let (Ok(peer), Some(place)) = (socket.peer_addr(), guard.place.take()) {
        let terms = ListenerContext {
            timeouts: conn.timeouts,
            ..ListenerContext::new(gateway, conn.listener, conn.home)
        };
        let incoming = Incoming {
            socket,
            peer,
            proxied: proxy_protocol::kept(gateway, conn),
            place,
            before: None,
        };
        terms.serve(gateway, incoming);
    }
}

/// Connections that were closed because this process cannot hold them.
static CLOSED: Seldom = Seldom::of_connections();

/// The address that the client connected to: the listener's address, or the socket's own if the listener has a
/// wildcard address.
fn local_address(socket: &Socket, listener: Option<SocketAddr>) -> Option<SocketAddr> {
    match (socket, listener) {
        (socket, Some(address)) if address.ip().is_unspecified() => socket.local_addr(),
        (_, address) => address,
    }
}

/// Where the workers behind a listener for web servers write.
fn workers_log<'g>(gateway: &'g Gateway, protocol: &Protocol) -> Option<WorkersLog<'g>> {
    let Protocol::FastCgi(front) = protocol else {
        return None;
    };
    let pool = gateway.pools.get(front.pool.0)?.settings;
    let workers = pool.workers()?;
    Some(WorkersLog {
        pool: &pool.name,
        caught: workers.output_log.is_none(),
        decorated: workers.decorate_output,
    })
}

/// Whether a client at `peer` may connect (`allowed_clients`).
pub(crate) fn may_connect(protocol: &Protocol, peer: SocketAddr) -> bool {
    let allowed = match protocol {
        Protocol::FastCgi(front) => &front.allowed_clients,
        Protocol::AgentCheck(agent) => &agent.allowed_clients,
        Protocol::Http => return true,
    };
    let peer = peer.ip().to_canonical();
    let same = |allowed: &IpAddr| allowed.to_canonical() == peer;
    allowed.is_empty() || allowed.iter().any(same)
}
