//! Counts the connections of all reactors, and enforces the limits of the server.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

use super::{silent, sweep};
use crate::Gateway;
use weir_observe::{
    clock::{self, NEVER},
    seldom::Seldom,
};

/// Counts the connections of all reactors and enforces the server's limits.
#[derive(Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) max: usize,
    max_per_address: usize,
    count: AtomicUsize,
    room: Notify,
    per_address: Mutex<HashMap<IpAddr, usize>>,
    pub(crate) reactors: Box<[Idle]>,
    /// New connections that wait because `max_connections` is reached.
    pub(crate) waiting: AtomicUsize,
    /// How many new connections found the limit reached, and how many idle connections were closed for them.
    at_limit: AtomicU64,
    pub(crate) closed_for_others: AtomicU64,
    pub(crate) said_limit: Seldom,
    said_per_address: Seldom,
    /// In the order of the listeners in the configuration.
    pub(crate) listeners: Box<[ListenerTally]>,
}

/// The connections of one reactor that have no request, as of its last sweep.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) count: AtomicUsize,
    /// When the longest idle connection became idle ([`clock::now`]), or a later time if there is much room;
    /// [`NEVER`] if no connection is idle.
    pub(crate) longest: AtomicU64,
    /// [`silent::Counts`], if there is little room.
    fullest: AtomicUsize,
    young: AtomicUsize,
    /// Notified when another reactor needs room for new connections and has no idle ones: this reactor then closes
    /// some of its own.
    is_asked: Notify,
}

/// Counters of one listener.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ListenerCounts {
    /// Connections that were accepted.
    pub(crate) accepted: u64,
    /// How many of these were closed at once, because the address had too many connections, or is not in
    /// `allowed_clients`.
    pub(crate) per_address: u64,
    pub(crate) not_allowed: u64,
    /// Datagrams of QUIC that were read and dropped.
    pub(crate) datagrams: u64,
}

#[derive(Debug, Default)]
pub(crate) struct ListenerTally {
    pub(crate) accepted: AtomicU64,
    pub(crate) per_address: AtomicU64,
    pub(crate) not_allowed: AtomicU64,
    pub(crate) datagrams: AtomicU64,
}

/// A place in the [`ConnectionLimits`]. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limits: &'static ConnectionLimits,
    address: Option<IpAddr>,
    /// Whether this place counts towards `max_connections`.
    is_counted: bool,
}

impl ConnectionLimits {
    /// Counts the connections of `listeners`. `max` limits all of them, `max_per_address` those of one address (0: no
    /// limit).
    pub(crate) fn new(
        (max, max_per_address): (usize, usize),
        reactors: u16,
        listeners: usize,
    ) -> ConnectionLimits {
        ConnectionLimits {
            max,
            max_per_address,
            count: AtomicUsize::new(0),
            room: Notify::new(),
            per_address: Mutex::default(),
            reactors: (0..reactors).map(|_| Idle::new()).collect(),
            waiting: AtomicUsize::new(0),
            at_limit: AtomicU64::new(0),
            closed_for_others: AtomicU64::new(0),
            said_limit: Seldom::new(1),
            said_per_address: Seldom::new(1),
            listeners: (0..listeners).map(|_| ListenerTally::default()).collect(),
        }
    }

    /// Open connections.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// How many of these have no request, as of the last sweep (at most [`sweep::SWEEP`] ago).
    pub(crate) fn idle(&self) -> usize {
        let counts = self.reactors.iter().map(|idle| idle.count.load(Relaxed));
        counts.sum()
    }

    /// Whether new connections may soon need the places of idle ones.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.count() >= self.max - self.max / 8 || self.waiting.load(Relaxed) > 0
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
            datagrams: tally.datagrams.load(Relaxed),
        }
    }

    pub(crate) fn enter(&'static self, peer: Option<SocketAddr>) -> Option<ConnectionPermit> {
        let mut place = ConnectionPermit {
            limits: self,
            address: None,
            is_counted: false,
        };
        let has_room = peer.is_none_or(|peer| place.is_of(peer.ip()));
        has_room.then_some(place)
    }

    /// Whether an address has as many connections as it may.
    pub(crate) fn is_full_for(&self, address: IpAddr) -> bool {
        let most = self.max_per_address;
        let counts = (self.per_address.lock()).unwrap_or_else(PoisonError::into_inner);
        let count = counts.get(&network_of(address));
        most > 0 && count.is_some_and(|count| *count >= most)
    }

    /// Waits until `place` counts as one of `max_connections`. Silent connections and the longest idle ones are closed for it
    /// ([`silent`]), as nginx does. If all connections have requests, it waits.
    pub(crate) async fn room(&self, place: &mut ConnectionPermit, gateway: &Gateway, home: u16) {
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

    fn take(&self, place: &mut ConnectionPermit) -> bool {
        let more = |count| (count < self.max).then_some(count + 1);
        place.is_counted =
            place.is_counted || self.count.fetch_update(Relaxed, Relaxed, more).is_ok();
        place.is_counted
    }

    /// Asks a reactor to close some connections: the reactor with those of the fullest network, with the longest idle
    /// one, or with young ones.
    fn ask_for_room(&self, gateway: &Gateway, home: u16) {
        let silent = silent::count(gateway, clock::now());
        let own = sweep::longest_idle(gateway).unwrap_or(NEVER);
        let longest = |reactor: &&Idle| reactor.longest.load(Relaxed);
        let fullest = |reactor: &&Idle| reactor.fullest.load(Relaxed);
        let young = |reactor: &&Idle| reactor.young.load(Relaxed);
        let others = || {
            let others = self.reactors.iter().enumerate();
            others.filter_map(|(index, other)| (index != usize::from(home)).then_some(other))
        };
        if let Some(other) = others().max_by_key(fullest)
            && fullest(&other) > silent.fullest
        {
            return other.is_asked.notify_one();
        }
        if silent.fullest > 0 {
            return sweep::close_idle(gateway, home);
        }
        match others().min_by_key(longest) {
            Some(other) if longest(&other) < own => other.is_asked.notify_one(),
            _ if own < NEVER || silent.young > 0 => sweep::close_idle(gateway, home),
            _ => {
                if let Some(other) = others().max_by_key(young)
                    && young(&other) > 0
                {
                    return other.is_asked.notify_one();
                }
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

    pub(crate) async fn asked(&self, home: u16) {
        match self.reactors.get(usize::from(home)) {
            Some(reactor) => reactor.is_asked.notified().await,
            None => std::future::pending().await,
        }
    }

    /// A connection is closed because its client, for which a proxy made it, has too many.
    pub(crate) fn close_for_address(&self, index: usize, address: IpAddr) {
        if let Some(tally) = self.listeners.get(index) {
            tally.per_address.fetch_add(1, Relaxed);
        }
        self.say_per_address(address);
    }

    pub(crate) fn say_per_address(&self, address: IpAddr) {
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
            fullest: AtomicUsize::new(0),
            young: AtomicUsize::new(0),
            is_asked: Notify::new(),
        }
    }

    /// Tells the other reactors which connections this one may close to make room.
    pub(crate) fn spare(&self, longest: u64, silent: silent::Counts) {
        self.longest.store(longest, Relaxed);
        self.fullest.store(silent.fullest, Relaxed);
        self.young.store(silent.young, Relaxed);
    }
}

impl ConnectionPermit {
    /// Counts the connection for the address of its client, if it is not counted for one; false: that has too many.
    pub(crate) fn is_of(&mut self, address: IpAddr) -> bool {
        let most = self.limits.max_per_address;
        if most == 0 || self.address.is_some() {
            return true;
        }
        let address = network_of(address);
        let mut counts = (self.limits.per_address.lock()).unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_insert(0);
        if *count >= most {
            return false;
        }
        *count += 1;
        self.address = Some(address);
        true
    }

    /// Counts the connection, even above the limit.
    pub(crate) fn count(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.limits.count.fetch_add(1, Relaxed);
        }
    }
}

/// A new connection that waits for room. Dropping it ends the wait.
struct Waiting<'c>(&'c ConnectionLimits);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if self.is_counted && self.limits.count.fetch_sub(1, Relaxed) <= self.limits.max {
            self.limits.room.notify_waiters();
        }
        if let Some(address) = self.address {
            let mut counts = self
                .limits
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
