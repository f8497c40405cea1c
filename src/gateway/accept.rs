//! Accepts connections on the listening sockets, counts them, enforces the limits, and watches the deadlines of open
//! connections.
//!
//! Each reactor has its own listening socket for each listener, and its own list of connections. Every [`SWEEP`] it
//! compares the deadline of each connection with the clock. Ten thousand comparisons cost less than one request, and
//! no request needs its own timer.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, UnixListener},
    sync::Notify,
    task::AbortHandle,
};
use weir_config::{Address, Listener, Protocol};

use crate::events;

use super::{Gateway, conn::Conn, connection, fastcgi_front, route};
use crate::{
    clock::{self, NEVER},
    http::Timeouts,
    net::Socket,
};

/// Counts the connections of all reactors and enforces the server's limits.
#[derive(Debug)]
pub(crate) struct Census {
    max: usize,
    max_per_address: usize,
    count: AtomicUsize,
    room: Notify,
    per_address: Mutex<HashMap<IpAddr, usize>>,
    reactors: Box<[Idle]>,
    /// New connections that wait because `max_connections` is reached.
    waiting: AtomicUsize,
    /// How many new connections found the limit reached, and how many idle connections were closed for them.
    at_limit: AtomicU64,
    closed_for_others: AtomicU64,
    said_limit: Seldom,
    said_per_address: Seldom,
    /// In the order of the listeners in the configuration.
    listeners: Box<[ListenerTally]>,
}

/// The connections of one reactor that have no request, as of its last sweep.
#[derive(Debug)]
struct Idle {
    count: AtomicUsize,
    /// When the longest idle connection became idle ([`clock::now`]); [`NEVER`] if no connection is idle.
    longest: AtomicU64,
    /// Another reactor needs room for new connections and has no idle ones: this reactor closes some of its own.
    is_asked: Notify,
}

/// Limits how often a message is logged, and counts how often its event happened.
#[derive(Debug, Default)]
struct Seldom {
    next: AtomicU64,
    count: AtomicU64,
}

/// Counters of one listener.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ListenerCounts {
    /// Connections that were accepted.
    pub(crate) accepted: u64,
    /// Of these: closed at once, because the address had too many connections, or is not in `allowed_clients`.
    pub(crate) per_address: u64,
    pub(crate) not_allowed: u64,
}

#[derive(Debug, Default)]
struct ListenerTally {
    accepted: AtomicU64,
    per_address: AtomicU64,
    not_allowed: AtomicU64,
}

/// A place in the [`Census`]. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    census: Arc<Census>,
    address: Option<IpAddr>,
    /// Whether this place counts towards `max_connections`.
    is_counted: bool,
}

/// A connection of this reactor.
#[derive(Debug)]
struct Entry {
    conn: Arc<Conn>,
    /// Its task; `None` while the connection is being set up.
    task: Option<AbortHandle>,
}

/// A listening socket of one reactor.
#[derive(Debug)]
pub(super) enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

thread_local! {
    /// This reactor's connections. The slot of a closed connection is reused.
    static CONNECTIONS: RefCell<Vec<Option<Entry>>> = const { RefCell::new(Vec::new()) };
    static FREE_PLACES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Accepts connections on `fd` until the gateway drains. Runs on the reactor `home`.
///
/// # Errors
///
/// If the reactor cannot watch `fd` as a listening socket.
pub(crate) async fn listen(
    gateway: &Arc<Gateway>,
    listener: u16,
    home: u16,
    fd: OwnedFd,
) -> io::Result<()> {
    let settings = &gateway.config.listeners[usize::from(listener)];
    let listening = Listening::new(settings, fd)?;
    let limits = connection::limits(settings);
    let timeouts = Arc::new(Timeouts {
        header: settings.header_timeout,
        body: settings.body_timeout,
        idle: settings.idle_timeout,
        send: settings.send_timeout,
    });
    let local = match settings.address {
        Address::Tcp(address) => Some(address),
        Address::Unix(_) => None,
    };
    let admit = |peer: Option<SocketAddr>| {
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
            return None;
        }
        // A web server in front uses one address for all of its clients, so the limit per address does not apply to
        // it.
        let counted = peer.filter(|_| settings.protocol == Protocol::Http);
        let place = gateway.census.enter(counted);
        if let (None, Some(peer)) = (&place, peer) {
            count(|tally| &tally.per_address);
            gateway.census.say_per_address(peer.ip());
        }
        place
    };
    let serve = |(socket, peer): (Socket, Option<SocketAddr>), mut place: Place| {
        place.count();
        let local = local_address(&socket, local);
        let pid = match &socket {
            Socket::Unix(unix) => weir_sys::socket::peer_process(unix.as_fd()).map(|(pid, _)| pid),
            Socket::Tcp(_) => None,
        };
        let conn = Arc::new(Conn::new(
            listener,
            home,
            (peer, local),
            pid,
            timeouts.clone(),
        ));
        let registered = Registered::new(conn.clone());
        let index = registered.0;
        let gateway = gateway.clone();
        // Two kinds of task: a task is as large as the largest future in it.
        let task = match &settings.protocol {
            Protocol::Http => {
                let seat = (registered, place);
                tokio::spawn(connection::serve(gateway, socket, conn, limits, seat))
            }
            Protocol::FastCgi(front) => {
                let front = front.clone();
                tokio::spawn(async move {
                    fastcgi_front::serve(gateway, socket, conn, &front).await;
                    drop((registered, place));
                })
            }
            // These listeners have their own accept loop (`agent_check`).
            Protocol::AgentCheck(_) => return,
        };
        CONNECTIONS.with_borrow_mut(|connections| {
            if let Some(Some(entry)) = connections.get_mut(index) {
                entry.task = Some(task.abort_handle());
            }
        });
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
        let accepted = tokio::select! {
            biased;
            () = gateway.drain.started() => break,
            accepted = listening.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                if let Some(mut place) = admit(peer) {
                    // When the gateway stops accepting, it still serves the connections that were accepted, even
                    // above the limit.
                    tokio::select! {
                        biased;
                        () = gateway.census.room(&mut place, gateway, home) => {}
                        () = gateway.drain.started() => {}
                    }
                    serve((socket, peer), place);
                }
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                // Out of descriptors or memory: pending connections stay in the kernel's queue.
                log::error!(
                    "cannot accept connections on listen.{}: {error}; trying again in {ACCEPT_PAUSE:?}",
                    settings.name
                );
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Connections in the kernel's queue would be reset when the socket is closed, so they are accepted first. The
    // queue counts as empty after two empty results with a yield in between: tokio also reports "nothing" to a task
    // that has used up its budget.
    let mut nothing = false;
    loop {
        match tokio::time::timeout(Duration::ZERO, listening.accept()).await {
            Err(_) if std::mem::replace(&mut nothing, true) => return Ok(()),
            Err(_) => tokio::task::yield_now().await,
            Ok(Ok((socket, peer))) => {
                nothing = false;
                if let Some(place) = admit(peer) {
                    serve((socket, peer), place);
                }
            }
            Ok(Err(error)) if is_of_one_connection(&error) => nothing = false,
            Ok(Err(error)) => {
                log::error!(
                    "cannot accept waiting connections on listen.{}: {error}; trying again in {ACCEPT_PAUSE:?}",
                    settings.name
                );
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Wakes the connections whose deadline has passed, and counts idle ones. Runs on each reactor
/// (`home`) and never ends.
pub(crate) async fn sweep(gateway: Arc<Gateway>, home: u16) {
    let (mut draining, mut cut) = (false, false);
    let (mut sweep_files_at, mut give_back_at) = (0, 0);
    let mut rested = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(SWEEP) => {}
            () = gateway.census.asked(home) => {
                close_idle(&gateway, home);
                continue;
            }
            () = gateway.drain.started(), if !draining => {
                draining = true;
            }
            () = gateway.cut.started(), if !cut => {
                cut = true;
                cut_all();
            }
        }
        let now = clock::now();
        if now >= sweep_files_at {
            route::sweep(clock::instant());
            sweep_files_at = now + SWEEP_FILES;
        }
        let (mut resting, mut idle, mut longest) = (0, 0, NEVER);
        CONNECTIONS.with_borrow(|connections| {
            for Entry { conn, .. } in connections.iter().flatten() {
                let rests = conn
                    .idle_since()
                    .is_some_and(|since| now.saturating_sub(since) > REST_AFTER);
                if rests {
                    conn.park();
                }
                resting += usize::from(rests || conn.waits_for_long(now));
                idle += usize::from(conn.is_idle());
                longest = longest.min(conn.spare_since(now).unwrap_or(NEVER));
                if draining || conn.overdue(now) {
                    conn.wake();
                }
            }
        });
        if let Some(reactor) = gateway.census.reactors.get(usize::from(home)) {
            reactor.count.store(idle, Relaxed);
            reactor.longest.store(longest, Relaxed);
        }
        // More connections may have become idle since the new connection looked for some.
        if longest < NEVER && gateway.census.waiting.load(Relaxed) > 0 {
            close_idle(&gateway, home);
        }
        rested += resting;
        if rested >= GIVE_BACK && resting < GIVE_BACK && now >= give_back_at {
            // The load is over and the buffers are free. Give memory back now: this reactor may have nothing to do
            // for hours.
            weir_sys::memory::give_back();
            rested = 0;
            give_back_at = now + GIVE_BACK_PAUSE;
        }
    }
}

/// Closes all connections of this reactor at once. Answers that were not sent yet are cut.
fn cut_all() {
    let tasks: Vec<AbortHandle> = CONNECTIONS.with_borrow(|connections| {
        let tasks = connections.iter().flatten();
        tasks.filter_map(|entry| entry.task.clone()).collect()
    });
    tasks.iter().for_each(AbortHandle::abort);
}

impl Census {
    /// Counts the connections of `listeners`. `max` limits all of them, `max_per_address` those of one address (0: no
    /// limit).
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
            reactors: (0..reactors).map(|_| Idle::new()).collect(),
            waiting: AtomicUsize::new(0),
            at_limit: AtomicU64::new(0),
            closed_for_others: AtomicU64::new(0),
            said_limit: Seldom::default(),
            said_per_address: Seldom::default(),
            listeners: (0..listeners).map(|_| ListenerTally::default()).collect(),
        }
    }

    /// Open connections.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// How many of these have no request, as of the last sweep (at most [`SWEEP`] ago).
    pub(crate) fn idle(&self) -> usize {
        let counts = self.reactors.iter().map(|idle| idle.count.load(Relaxed));
        counts.sum()
    }

    /// How many new connections found `max_connections` reached.
    pub(crate) fn at_limit(&self) -> u64 {
        self.at_limit.load(Relaxed)
    }

    /// How many idle connections were closed for new ones.
    pub(crate) fn closed_for_others(&self) -> u64 {
        self.closed_for_others.load(Relaxed)
    }

    /// The counters of a listener, by its index in the configuration.
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
            .map(|peer| network_of(peer.ip()))
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
        Some(Place {
            census: self.clone(),
            address,
            is_counted: false,
        })
    }

    /// Waits until `place` counts as one of `max_connections`. The longest idle connections are closed for it, as
    /// nginx does. If all connections have requests, it waits.
    async fn room(&self, place: &mut Place, gateway: &Gateway, home: u16) {
        if self.take(place) {
            return;
        }
        self.at_limit.fetch_add(1, Relaxed);
        self.waiting.fetch_add(1, Relaxed);
        let _waiting = Waiting(self);
        loop {
            let room = self.room.notified();
            if self.take(place) {
                return;
            }
            self.ask_for_room(gateway, home);
            room.await;
        }
    }

    fn take(&self, place: &mut Place) -> bool {
        let more = |count| (count < self.max).then_some(count + 1);
        place.is_counted =
            place.is_counted || self.count.fetch_update(Relaxed, Relaxed, more).is_ok();
        place.is_counted
    }

    /// Asks the reactor whose connections have been idle longest to close some of them.
    fn ask_for_room(&self, gateway: &Gateway, home: u16) {
        let own = longest_idle(gateway).unwrap_or(NEVER);
        let longest = |reactor: &Idle| reactor.longest.load(Relaxed);
        let others = self.reactors.iter().enumerate();
        let other = others
            .filter(|(index, _)| *index != usize::from(home))
            .min_by_key(|(_, reactor)| longest(reactor));
        match other {
            Some((_, other)) if longest(other) < own => other.is_asked.notify_one(),
            _ if own < NEVER => close_idle(gateway, home),
            _ => {
                if let Some(count) = self.said_limit.due() {
                    log::warn!(
                        "max_connections ({}) of [server] is reached and no connection is idle: \
                         {count} new connections wait or have waited",
                        self.max
                    );
                }
            }
        }
    }

    async fn asked(&self, home: u16) {
        match self.reactors.get(usize::from(home)) {
            Some(reactor) => reactor.is_asked.notified().await,
            None => std::future::pending().await,
        }
    }

    fn say_per_address(&self, address: IpAddr) {
        if let Some(count) = self.said_per_address.due() {
            log::warn!(
                "closed {count} connections, the last from {}: max_connections_per_address ({}) of [server] is reached",
                address.to_canonical(),
                self.max_per_address
            );
        }
    }
}

impl Idle {
    fn new() -> Idle {
        Idle {
            count: AtomicUsize::new(0),
            longest: AtomicU64::new(NEVER),
            is_asked: Notify::new(),
        }
    }
}

impl Seldom {
    /// Counts the event. If a message is due, returns how often the event happened since the last message.
    fn due(&self) -> Option<u64> {
        self.count.fetch_add(1, Relaxed);
        let now = clock::now();
        let next = self.next.load(Relaxed);
        let is_due = now >= next
            && (self.next)
                .compare_exchange(next, now + SAY_AGAIN, Relaxed, Relaxed)
                .is_ok();
        is_due.then(|| self.count.swap(0, Relaxed))
    }
}

impl Place {
    /// Counts the connection, even above the limit.
    fn count(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.census.count.fetch_add(1, Relaxed);
        }
    }
}

/// A new connection that waits for room. Dropping it ends the wait.
struct Waiting<'c>(&'c Census);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_counted && self.census.count.fetch_sub(1, Relaxed) <= self.census.max {
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
                // Accepted connections inherit this. Answers are written whole, so Nagle's algorithm would only delay
                // them.
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

/// When the longest idle client connection of this reactor became idle. Connections of web servers in front are left
/// out: they are few, and each serves many clients.
fn longest_idle(gateway: &Gateway) -> Option<u64> {
    let now = clock::now();
    CONNECTIONS.with_borrow(|connections| {
        let all = connections.iter().flatten();
        all.map(|entry| &entry.conn)
            .filter(|conn| is_of_client(gateway, conn))
            .filter_map(|conn| conn.spare_since(now))
            .min()
    })
}

/// Closes the longest idle connections of this reactor: an eighth of them, so that not every new connection has to
/// search the whole list, and 32 at most.
fn close_idle(gateway: &Gateway, home: u16) {
    let (census, now) = (&gateway.census, clock::now());
    let mut idle: Vec<(u64, Arc<Conn>)> = CONNECTIONS.with_borrow(|connections| {
        let all = connections.iter().flatten();
        all.map(|entry| &entry.conn)
            .filter(|conn| is_of_client(gateway, conn))
            .filter_map(|conn| Some((conn.spare_since(now)?, conn.clone())))
            .collect()
    });
    if let Some(reactor) = census.reactors.get(usize::from(home)) {
        // Until the next sweep, other reactors must not ask for connections that are being closed now.
        reactor.longest.store(NEVER, Relaxed);
    }
    if idle.is_empty() {
        return;
    }
    let count = (idle.len() / 8).clamp(1, MOST_CLOSED);
    idle.select_nth_unstable_by_key(count - 1, |(since, _)| *since);
    idle.truncate(count);
    for (_, conn) in idle {
        conn.give_up_if_idle();
    }
    census.closed_for_others.fetch_add(count as u64, Relaxed);
    if let Some(times) = census.said_limit.due() {
        log::warn!(
            "max_connections ({}) of [server] is reached: connections that have been idle longest are closed \
             for new ones, {count} of them now; {times} times since the last message",
            census.max
        );
    }
}

fn is_of_client(gateway: &Gateway, conn: &Conn) -> bool {
    let listener = gateway.config.listeners.get(usize::from(conn.listener));
    listener.is_some_and(|listener| listener.protocol == Protocol::Http)
}

/// The unit that `max_connections_per_address` counts: an IPv4 address, or the /64 of an IPv6 address, because one
/// client usually has a whole /64.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

/// The address that the client connected to: the listener's address, or the socket's own if the listener has a
/// wildcard address.
fn local_address(socket: &Socket, listener: Option<SocketAddr>) -> Option<SocketAddr> {
    match (socket, listener) {
        (Socket::Tcp(tcp), Some(address)) if address.ip().is_unspecified() => tcp.local_addr().ok(),
        (_, address) => address,
    }
}

/// Whether a client at `peer` may connect (`allowed_clients`).
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

/// Errors that accept(2) reports for the accepted connection, not for the listener (accept(2), "Error handling").
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

/// A slot in this reactor's list of connections. Dropping it, on the same reactor, frees the slot.
struct Registered(usize);

impl Registered {
    fn new(conn: Arc<Conn>) -> Registered {
        let entry = Entry { conn, task: None };
        CONNECTIONS.with_borrow_mut(|connections| match FREE_PLACES.with_borrow_mut(Vec::pop) {
            Some(place) => {
                connections[place] = Some(entry);
                Registered(place)
            }
            None => {
                connections.push(Some(entry));
                Registered(connections.len() - 1)
            }
        })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let entry = CONNECTIONS.with_borrow_mut(|connections| connections[self.0].take());
        FREE_PLACES.with_borrow_mut(|free| free.push(self.0));
        drop(entry);
    }
}

/// How many idle connections are closed at once, at most.
const MOST_CLOSED: usize = 32;

/// Minimum time between two messages about a reached limit, µs.
const SAY_AGAIN: u64 = 10_000_000;

/// How exact the deadlines of clients are.
const SWEEP: Duration = Duration::from_millis(200);

/// How often the open-file cache is checked, µs.
const SWEEP_FILES: u64 = 1_000_000;

/// A connection that is idle for this long (µs) rests: nothing of its last request is in use any more.
const REST_AFTER: u64 = 1_000_000;

/// After this many connections have come to rest, or requests have begun a long wait, it is worth checking whether
/// memory can be given back.
const GIVE_BACK: usize = 256;

/// Minimum time between two such checks, µs: a check costs milliseconds with much memory, and while a queue stays
/// long, requests start to wait all the time.
const GIVE_BACK_PAUSE: u64 = 2_000_000;

/// Pause after accept(2) failed for lack of descriptors or memory.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_ipv6_are_counted_by_their_network() {
        let of = |address: &str| network_of(address.parse().unwrap()).to_string();
        assert_eq!(of("192.0.2.7"), "192.0.2.7");
        assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(
            of("2001:db8:1:2::1"),
            of("2001:db8:1:2:ffff:ffff:ffff:ffff")
        );
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    }

    #[test]
    fn a_network_has_as_many_places_as_it_may() {
        let census = Arc::new(Census::new((10, 2), 1, 1));
        let enter =
            |address: &str| census.enter(Some(SocketAddr::new(address.parse().unwrap(), 1)));
        let (_first, second) = (enter("2001:db8::1").unwrap(), enter("2001:db8::2").unwrap());
        assert!(enter("2001:db8::3").is_none());
        assert!(enter("2001:db8:0:1::3").is_some());
        drop(second);
        assert!(enter("2001:db8::3").is_some());
        assert!(census.per_address.lock().unwrap().len() == 1);
    }

    #[test]
    fn room_is_taken_once_and_given_back() {
        let census = Arc::new(Census::new((2, 0), 1, 1));
        let mut places: Vec<Place> = (0..3).map(|_| census.enter(None).unwrap()).collect();
        assert!(census.take(&mut places[0]) && census.take(&mut places[1]));
        assert!(census.take(&mut places[0]) && !census.take(&mut places[2]));
        assert_eq!(census.count(), 2);
        places.remove(0);
        assert!(census.take(&mut places[1]));
        places.clear();
        assert_eq!(census.count(), 0);
    }
}
