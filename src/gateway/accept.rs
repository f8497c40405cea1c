//! Sockets → connections: accepts, counts, refuses what is over a limit, and looks after those that wait.
//!
//! Each reactor has its own listening socket of each listener and keeps its own list of connections. Once in
//! [`SWEEP`] it compares every connection's deadline with the clock: ten thousand comparisons cost less than one
//! request, and no request pays for a timer of its own.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, UnixListener},
    sync::Notify,
};
use weir_config::{Address, Listener, Protocol};

use crate::events;

use super::{
    Gateway,
    client_io::{Conn, Socket, Timeouts},
    connection::{self, Limits},
    fastcgi_front, route,
};
use crate::clock;

/// The connections of all reactors, counted against the server's limits.
#[derive(Debug)]
pub(crate) struct Census {
    max: usize,
    max_per_address: usize,
    count: AtomicUsize,
    room: Notify,
    per_address: Mutex<HashMap<IpAddr, usize>>,
    /// Of each reactor: connections without a request, when it last looked.
    idle: Box<[AtomicUsize]>,
    /// In the order of the configuration.
    listeners: Box<[ListenerTally]>,
}

/// What has come to a listener.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ListenerCounts {
    /// Connections that were accepted.
    pub(crate) accepted: u64,
    /// Of these: closed at once, because one address had too many, or may not connect.
    pub(crate) per_address: u64,
    pub(crate) not_allowed: u64,
}

#[derive(Debug, Default)]
struct ListenerTally {
    accepted: AtomicU64,
    per_address: AtomicU64,
    not_allowed: AtomicU64,
}

/// A place in the [`Census`], given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    census: Arc<Census>,
    address: Option<IpAddr>,
}

/// A listening socket of one reactor.
#[derive(Debug)]
pub(super) enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

thread_local! {
    /// This reactor's connections. A place is reused when its connection has ended.
    static CONNECTIONS: RefCell<Vec<Option<Arc<Conn>>>> = const { RefCell::new(Vec::new()) };
    static FREE_PLACES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Accepts on `fd` until the gateway drains. Runs on the reactor `home`.
///
/// # Errors
///
/// Where `fd` is no listening socket that the reactor can watch.
pub(crate) async fn listen(
    gateway: &Arc<Gateway>,
    listener: u16,
    home: u16,
    fd: OwnedFd,
) -> io::Result<()> {
    let settings = &gateway.config.listeners[usize::from(listener)];
    let listening = Listening::new(settings, fd)?;
    let limits = Limits::new(settings);
    let timeouts = Timeouts {
        header: settings.header_timeout,
        body: settings.body_timeout,
        idle: settings.idle_timeout,
        send: settings.send_timeout,
    };
    let local = match settings.address {
        Address::Tcp(address) => Some(address),
        Address::Unix(_) => None,
    };
    let serve = |(socket, peer): (Socket, Option<SocketAddr>)| {
        let tally = gateway.census.listeners.get(usize::from(listener));
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
            events::client_turned_away(&settings.name, peer.ip().to_canonical());
            return;
        }
        // A web server in front has one address for all of its clients.
        let counted = peer.filter(|_| settings.protocol == Protocol::Http);
        let Some(place) = gateway.census.enter(counted) else {
            count(|tally| &tally.per_address);
            log::warn!(
                "closed a connection of {}: max_connections_per_address ({}) reached",
                peer.map_or_else(String::new, |peer| peer.ip().to_string()),
                gateway.config.server.max_connections_per_address
            );
            return;
        };
        let local = local_address(&socket, local);
        let conn = Arc::new(Conn::new(listener, home, peer, local, timeouts));
        let registered = Registered::new(conn.clone());
        let gateway = gateway.clone();
        // Two tasks, since each is as large as the largest of what it may do.
        match &settings.protocol {
            Protocol::Http => {
                let seat = (registered, place);
                tokio::spawn(connection::serve(
                    gateway,
                    socket,
                    conn,
                    limits.clone(),
                    seat,
                ));
            }
            Protocol::FastCgi(front) => {
                let front = front.clone();
                tokio::spawn(async move {
                    fastcgi_front::serve(gateway, socket, conn, &front).await;
                    drop((registered, place));
                });
            }
            // Its listeners have a loop of their own.
            Protocol::AgentCheck(_) => {}
        }
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = gateway.drain.started() => break,
            accepted = next(gateway, &listening) => accepted,
        };
        match accepted {
            Ok(accepted) => serve(accepted),
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                // Out of descriptors or memory: what waits in the kernel's queue keeps waiting there.
                log::error!(
                    "cannot accept on listen.{}: {error}; trying again in {ACCEPT_PAUSE:?}",
                    settings.name
                );
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Who has been let into the kernel's queue is served: closing the socket would reset them.
    while let Ok(Ok(accepted)) = tokio::time::timeout(Duration::ZERO, listening.accept()).await {
        serve(accepted);
    }
    Ok(())
}

/// Wakes the connections whose deadline has passed, and asks idle ones to put down what they do not need. Runs on
/// each reactor, `home`, for ever.
pub(crate) async fn sweep(gateway: Arc<Gateway>, home: u16) {
    let mut draining = false;
    let (mut sweep_files_at, mut give_back_at) = (0, 0);
    let mut parked = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(SWEEP) => {}
            () = gateway.drain.started(), if !draining => {
                draining = true;
            }
        }
        gateway.pulse.beat(home);
        let now = clock::now();
        if now >= sweep_files_at {
            route::sweep(clock::instant());
            sweep_files_at = now + SWEEP_FILES;
        }
        let (mut parking, mut idle) = (0, 0);
        CONNECTIONS.with_borrow(|connections| {
            for conn in connections.iter().flatten() {
                let parks = conn
                    .idle_since()
                    .is_some_and(|since| now.saturating_sub(since) > connection::PARK_AFTER);
                parking += usize::from(parks || conn.is_to_wait(now));
                idle += usize::from(conn.is_idle());
                if draining || parks || conn.overdue(now) {
                    conn.wake();
                }
            }
        });
        if let Some(count) = gateway.census.idle.get(usize::from(home)) {
            count.store(idle, Relaxed);
        }
        parked += parking;
        if parked >= GIVE_BACK && parking < GIVE_BACK && now >= give_back_at {
            // The wave is over, and its buffers are free: perhaps nothing else happens here for hours.
            weir_sys::memory::give_back();
            parked = 0;
            give_back_at = now + GIVE_BACK_PAUSE;
        }
    }
}

impl Census {
    /// Counts connections of `listeners` against `max` in all and `max_per_address` (0: no limit).
    pub(crate) fn new(
        (max, max_per_address): (usize, usize),
        reactors: u16,
        listeners: usize,
    ) -> Census {
        Census {
            max,
            max_per_address,
            count: AtomicUsize::new(0),
            room: Notify::new(),
            per_address: Mutex::default(),
            idle: (0..reactors).map(|_| AtomicUsize::new(0)).collect(),
            listeners: (0..listeners).map(|_| ListenerTally::default()).collect(),
        }
    }

    /// Open connections.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Of these: those without a request, as of [`SWEEP`] ago at most.
    pub(crate) fn idle(&self) -> usize {
        self.idle.iter().map(|idle| idle.load(Relaxed)).sum()
    }

    /// What has come to a listener of the configuration.
    pub(crate) fn of_listener(&self, index: usize) -> ListenerCounts {
        let Some(tally) = self.listeners.get(index) else {
            return ListenerCounts::default();
        };
        ListenerCounts {
            accepted: tally.accepted.load(Relaxed),
            per_address: tally.per_address.load(Relaxed),
            not_allowed: tally.not_allowed.load(Relaxed),
        }
    }

    fn enter(self: &Arc<Self>, peer: Option<SocketAddr>) -> Option<Place> {
        let address = peer
            .map(|peer| peer.ip())
            .filter(|_| self.max_per_address > 0);
        if let Some(address) = address {
            let mut counts = self
                .per_address
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(address).or_insert(0);
            if *count >= self.max_per_address {
                return None;
            }
            *count += 1;
        }
        self.count.fetch_add(1, Relaxed);
        Some(Place {
            census: self.clone(),
            address,
        })
    }

    async fn wait_for_room(&self) {
        while self.count() >= self.max {
            let room = self.room.notified();
            if self.count() < self.max {
                return;
            }
            room.await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.census.count.fetch_sub(1, Relaxed) == self.census.max {
            self.census.room.notify_waiters();
        }
        if let Some(address) = self.address {
            let mut counts = self
                .census
                .per_address
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = counts.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&address);
                }
            }
        }
    }
}

impl Listening {
    pub(super) fn new(settings: &Listener, fd: OwnedFd) -> io::Result<Listening> {
        match settings.address {
            Address::Tcp(_) => {
                let listener = std::net::TcpListener::from(fd);
                listener.set_nonblocking(true)?;
                // Inherited by what is accepted: an answer is written whole, waiting for more only delays it.
                socket2::SockRef::from(&listener).set_tcp_nodelay(true)?;
                Ok(Listening::Tcp(TcpListener::from_std(listener)?))
            }
            Address::Unix(_) => {
                let listener = std::os::unix::net::UnixListener::from(fd);
                listener.set_nonblocking(true)?;
                Ok(Listening::Unix(UnixListener::from_std(listener)?))
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        match self {
            Listening::Tcp(tcp) => {
                let (stream, peer) = tcp.accept().await?;
                Ok((Socket::Tcp(stream), Some(peer)))
            }
            Listening::Unix(unix) => {
                let (stream, _) = unix.accept().await?;
                Ok((Socket::Unix(stream), None))
            }
        }
    }
}

async fn next(
    gateway: &Gateway,
    listening: &Listening,
) -> io::Result<(Socket, Option<SocketAddr>)> {
    gateway.census.wait_for_room().await;
    listening.accept().await
}

/// The address that the client connected to: the listener's own, asked of the socket only where that is a wildcard.
fn local_address(socket: &Socket, listener: Option<SocketAddr>) -> Option<SocketAddr> {
    match (socket, listener) {
        (Socket::Tcp(tcp), Some(address)) if address.ip().is_unspecified() => tcp.local_addr().ok(),
        (_, address) => address,
    }
}

/// Whether somebody may connect from `peer` (`allowed_clients`).
pub(super) fn may_connect(protocol: &Protocol, peer: SocketAddr) -> bool {
    let allowed = match protocol {
        Protocol::FastCgi(front) => &front.allowed_clients,
        Protocol::AgentCheck(agent) => &agent.allowed_clients,
        Protocol::Http => return true,
    };
    let peer = peer.ip().to_canonical();
    let same = |allowed: &IpAddr| allowed.to_canonical() == peer;
    allowed.is_empty() || allowed.iter().any(same)
}

/// Errors that accept(2) reports for the connection it took, not for the listener (accept(2), "Error handling").
pub(super) fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::Interrupted
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
    )
}

/// A place in this reactor's list of connections, given back when dropped, on the same reactor.
struct Registered(usize);

impl Registered {
    fn new(conn: Arc<Conn>) -> Registered {
        CONNECTIONS.with_borrow_mut(|connections| match FREE_PLACES.with_borrow_mut(Vec::pop) {
            Some(place) => {
                connections[place] = Some(conn);
                Registered(place)
            }
            None => {
                connections.push(Some(conn));
                Registered(connections.len() - 1)
            }
        })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let conn = CONNECTIONS.with_borrow_mut(|connections| connections[self.0].take());
        FREE_PLACES.with_borrow_mut(|free| free.push(self.0));
        drop(conn);
    }
}

/// How exact deadlines of clients are.
const SWEEP: Duration = Duration::from_millis(200);

/// How often kept files are looked through, µs.
const SWEEP_FILES: u64 = 1_000_000;

/// So many connections that have put down hyper are worth a look for memory that can be given back.
const GIVE_BACK: usize = 256;

/// That look costs milliseconds where there is much memory: it is taken no oftener than this, µs. In a queue that stays
/// long, requests come to wait all the time.
const GIVE_BACK_PAUSE: u64 = 2_000_000;

/// How long to wait where accept(2) has no descriptor to give.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
