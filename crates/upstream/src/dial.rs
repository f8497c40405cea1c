//! Makes new connections: name, address, TCP, TLS.
//!
//! The addresses of a name are checked here, and weir connects to exactly those addresses: there is no second lookup
//! that could have another result. Everything must be done within `connect_timeout`, and before the call's deadline.

mod race;
mod stream;

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use weir_config::{Address, Egress, HostSettings, Network};

use self::race::Race;
pub use self::stream::Stream;
use crate::resolver::Resolver;
use weir_observe::clock;

use super::{
    Counters, address,
    fault::{Fault, Kind},
    names::Names,
    origin::{Connection, DialTimes, Origin, Protocol},
    origin_tls::TlsContext,
};

/// Makes connections, for all origins.
pub struct Dialer {
    names: Arc<Names>,
    /// Addresses that could not be connected to, and when that was.
    failed: Mutex<HashMap<SocketAddr, u64>>,
    /// Which address of a name the next connection tries first.
    turn: AtomicUsize,
    /// The addresses on which weir accepts calls.
    own: Vec<SocketAddr>,
    /// The last protocol of origins with TLS, by host and port; at most as many as cached names.
    spoken: Mutex<HashMap<(String, u16), Protocol>>,
    most_spoken: usize,
}

/// How an origin is reached; made once per origin.
#[derive(Clone)]
pub struct Route {
    pub origin: Arc<Origin>,
    pub settings: Arc<HostSettings>,
    /// Networks that are not public and that the rule allows.
    pub networks: Vec<Network>,
    /// `None` for http.
    pub tls: Option<Arc<TlsContext>>,
}

/// A connection to an origin.
#[derive(Debug)]
pub struct Link {
    pub stream: Stream,
    pub connection: Connection,
}

/// The time limit of a connection attempt ([`clock::now`]).
#[derive(Debug, Clone, Copy)]
struct Limit {
    at: u64,
    begun: u64,
    /// Whether the call's own deadline is earlier than the connection's.
    of_call: bool,
}

impl Dialer {
    /// `resolver` looks names up; the lookups are counted.
    pub fn new(egress: &Egress, resolver: Resolver, counters: Arc<dyn Counters>) -> Dialer {
        let own = egress.listen.iter().filter_map(|address| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        });
        let names = Names::new(resolver, egress.max_hosts, counters);
        Dialer {
            own: own.collect(),
            most_spoken: egress.max_hosts,
            ..Dialer::by(names)
        }
    }

    /// A dialer that uses these names, without a configuration.
    pub fn by(names: Arc<Names>) -> Dialer {
        Dialer {
            names,
            failed: Mutex::default(),
            turn: AtomicUsize::new(0),
            own: Vec::new(),
            spoken: Mutex::default(),
            most_spoken: 100,
        }
    }

    /// The last protocol of an origin with TLS; `None`: not known.
    pub fn spoken(&self, origin: &Origin) -> Option<Protocol> {
        let spoken = self.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        spoken.get(&(origin.host.clone(), origin.port)).copied()
    }

    /// Stores the protocol of an origin.
    pub fn speaks(&self, origin: &Origin, protocol: Protocol) {
        let mut spoken = self.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        if spoken.len() >= self.most_spoken {
            // Origins that are called again are added again.
            spoken.clear();
        }
        spoken.insert((origin.host.clone(), origin.port), protocol);
    }

    /// Refuses a call of weir to itself, which would repeat endlessly.
    fn check_loop(&self, origin: &Origin, addresses: &[IpAddr]) -> Result<(), Fault> {
        let is_own = |ip: &&IpAddr| {
            let same = |own: IpAddr| match own.is_unspecified() {
                true => is_of_this_machine(**ip),
                false => own.to_canonical() == ip.to_canonical(),
            };
            let mut own = self.own.iter();
            own.any(|own| own.port() == origin.port && same(own.ip()))
        };
        match addresses.iter().find(is_own) {
            None => Ok(()),
            Some(ip) => Err(Fault::unsent(
                Kind::Loop,
                format!(
                    "{origin}: {ip} is an address on which weir accepts calls; call the real origin instead, or remove this one from [egress] allow"
                ),
            )),
        }
    }

    /// Whether an address still belongs to the origin; otherwise a connection to it gets no new calls. This keeps the
    /// name in the cache ([`Names::still`]).
    pub fn still_leads(&self, route: &Route, ip: IpAddr) -> bool {
        self.names.still(&route.origin.host, &route.settings, ip)
    }

    /// Makes a new connection that is ready for HTTP; `deadline` is the call's.
    ///
    /// # Errors
    /// Nothing of the call was sent. [`Kind::Deadline`] if the call's time is over, otherwise the error of DNS,
    /// addresses, TCP or TLS.
    pub async fn dial(&self, route: &Route, deadline: u64) -> Result<Link, Fault> {
        let limit = Limit::new(&route.settings, deadline);
        let (stream, mut connection) = self.reach(route, limit).await?;
        let Some(tls) = &route.tls else {
            let stream = Stream::plain(stream);
            return Ok(Link { stream, connection });
        };
        let begun = clock::now();
        let secured = clock::in_time(tls.handshake(&route.origin, stream), limit.at).await;
        let secured = match secured {
            Some(Ok(secured)) => secured,
            Some(Err(fault)) => {
                self.note_failure(connection.address, clock::now());
                return Err(fault);
            }
            None => {
                self.note_failure(connection.address, clock::now());
                let what = format!("{} does not finish the TLS handshake", connection.address);
                return Err(limit.over(&route.origin, Kind::ConnectTimeout, &what));
            }
        };
        if let Some(times) = &mut connection.made {
            times.tls = Some(clock::now().saturating_sub(begun));
            times.resumed = secured.resumed;
        }
        connection.protocol = match secured.http2 {
            true => Protocol::Http2,
            false => Protocol::Http1,
        };
        Ok(Link {
            stream: Stream::tls(secured.stream),
            connection,
        })
    }

    /// Makes a new connection for a tunnel: only TCP.
    ///
    /// # Errors
    /// As [`dial`](Self::dial).
    pub async fn dial_plain(
        &self,
        route: &Route,
        deadline: u64,
    ) -> Result<(TcpStream, Connection), Fault> {
        let limit = Limit::new(&route.settings, deadline);
        let (stream, mut connection) = self.reach(route, limit).await?;
        connection.protocol = Protocol::Tunnel;
        Ok((stream, connection))
    }

    /// Name → addresses → the allowed ones → the first one that accepts a connection.
    async fn reach(&self, route: &Route, limit: Limit) -> Result<(TcpStream, Connection), Fault> {
        let Route {
            origin, settings, ..
        } = route;
        let found = self.names.addresses(&origin.host, settings, limit.at).await;
        let found = found.map_err(|fault| match fault.kind {
            Kind::DnsTimeout if limit.of_call => {
                limit.over(origin, Kind::DnsTimeout, &fault.message)
            }
            _ => fault,
        })?;
        let begun = clock::now();
        let addresses = permitted(route, &found.addresses)?;
        self.check_loop(origin, &addresses)?;
        let mut race = Race::new(self.order(&addresses, origin.port, begun));
        let mut won = clock::in_time(race.run(), limit.at).await;
        let mut doubted = 0;
        if matches!(won, Some(None)) && found.spent == 0 {
            // The addresses came from the cache; the name may have other addresses by now.
            let asked = clock::now();
            let patience = clock::deadline(DOUBT).min(limit.at);
            let renewed = self.names.renewed(&origin.host, settings, patience).await;
            let mut new = renewed.map_or_else(Vec::new, |renewed| renewed.to_vec());
            new.retain(|ip| !found.addresses.contains(ip));
            doubted = clock::now().saturating_sub(asked);
            if !new.is_empty() {
                race.add(self.order(&permitted(route, &new)?, origin.port, asked));
                won = clock::in_time(race.run(), limit.at).await;
            }
        }
        let now = clock::now();
        for address in race.losers() {
            self.note_failure(address, now);
        }
        match won {
            Some(Some((address, stream))) => {
                prepare(&stream);
                self.failed().remove(&address);
                let made = DialTimes {
                    dns: found.spent + doubted,
                    connect: now.saturating_sub(begun + doubted),
                    ..DialTimes::default()
                };
                let connection = Connection {
                    address,
                    protocol: Protocol::Http1,
                    made: Some(made),
                };
                Ok((stream, connection))
            }
            Some(None) => Err(refused(origin, &race.failed)),
            None => {
                self.names.suspect(&origin.host, settings);
                let what = format!("{} does not accept a connection", race.tried());
                Err(limit.over(origin, Kind::ConnectTimeout, &what))
            }
        }
    }

    /// The order in which addresses are tried: the families alternate, IPv6 first (RFC 8305 §4). Each connection
    /// begins with another address of the name, so that all of them are used. Addresses that failed a moment ago come
    /// last.
    fn order(&self, addresses: &[IpAddr], port: u16, now: u64) -> Vec<SocketAddr> {
        let turn = self.turn.fetch_add(1, Relaxed);
        let of_family = |v6: bool| {
            let mut list = addresses.to_vec();
            list.retain(|ip| ip.is_ipv6() == v6);
            let by = turn.checked_rem(list.len()).unwrap_or(0);
            list.rotate_left(by);
            list
        };
        let (v6, v4) = (of_family(true), of_family(false));
        let mut ordered = Vec::with_capacity(addresses.len());
        for index in 0..v6.len().max(v4.len()) {
            let pair = [v6.get(index), v4.get(index)].into_iter().flatten();
            ordered.extend(pair.map(|ip| SocketAddr::new(*ip, port)));
        }
        let failed = self.failed();
        let has_failed = |address: &SocketAddr| {
            let at = failed.get(address);
            at.is_some_and(|at| now.saturating_sub(*at) < FAILED_FOR)
        };
        ordered.sort_by_key(has_failed);
        ordered.truncate(MOST_TRIED);
        ordered
    }

    fn note_failure(&self, address: SocketAddr, now: u64) {
        let mut failed = self.failed();
        if failed.len() >= MOST_FAILED {
            failed.retain(|_, at| now.saturating_sub(*at) < FAILED_FOR);
        }
        if failed.len() < MOST_FAILED {
            failed.insert(address, now);
        }
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, HashMap<SocketAddr, u64>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limit {
    fn new(settings: &HostSettings, deadline: u64) -> Limit {
        let begun = clock::now();
        let own = clock::deadline(settings.connect_timeout);
        Limit {
            at: own.min(deadline),
            begun,
            // If both limits are the same moment, the connection's limit is reported.
            of_call: deadline.saturating_add(SAME) < own,
        }
    }

    /// The time limit was reached during this step.
    fn over(self, origin: &Origin, kind: Kind, what: &str) -> Fault {
        let took = self.at.saturating_sub(self.begun) / 1000;
        let (kind, whose) = match self.of_call {
            true => (
                Kind::Deadline,
                "which is all the time that the call had left",
            ),
            false => (kind, "which is connect_timeout"),
        };
        let message = format!("{origin}: {what} within {took} ms, {whose}");
        Fault::unsent(kind, message)
    }
}

/// Whether an address belongs to this machine: then packets to it have it as their source. The kernel is asked for
/// the route; nothing is sent.
fn is_of_this_machine(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    if ip.is_loopback() || ip.is_unspecified() {
        return true;
    }
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((ip, 9))?;
        socket.local_addr()
    };
    // Without a route there is no loop either.
    source().is_ok_and(|source| source.ip() == ip)
}

/// The addresses of a name that may be called.
fn permitted(route: &Route, addresses: &[IpAddr]) -> Result<Vec<IpAddr>, Fault> {
    let mut forbidden = Vec::new();
    let mut permitted = Vec::new();
    for ip in addresses {
        match address::permitted(*ip, &route.networks) {
            Ok(()) => permitted.push(*ip),
            Err(what) => forbidden.push(format!("{ip} ({what})")),
        }
    }
    match permitted.is_empty() {
        false => Ok(permitted),
        true => {
            forbidden.truncate(MOST_TOLD);
            let message = format!(
                "{}: {} is {}; to allow it, add its network to addresses of the rule in [egress] allow",
                route.origin,
                route.origin.host,
                forbidden.join(", ")
            );
            Err(Fault::unsent(Kind::ForbiddenAddress, message))
        }
    }
}

/// No address accepts a connection: decides which cause is reported, and collects all of them for the log.
fn refused(origin: &Origin, failed: &[(SocketAddr, io::Error)]) -> Fault {
    let kinds = || failed.iter().map(|(_, error)| kind(error));
    // The most informative cause first: the host refuses; it is too slow; there is no route; weir itself has a
    // problem.
    let order = [
        Kind::Refused,
        Kind::Terminated,
        Kind::ConnectTimeout,
        Kind::Unreachable,
    ];
    let found = order.into_iter().find(|kind| kinds().any(|k| k == *kind));
    let kind = found.unwrap_or(Kind::Internal);
    let mend = match kind {
        Kind::Refused => "check that it is running and listens on that port",
        Kind::Terminated => "check whether it limits connections or clients",
        Kind::ConnectTimeout => "check that it is running and that no firewall blocks it",
        Kind::Unreachable => "check the network, its routes and firewalls",
        _ => "check the limits of open files and of local ports on this machine",
    };
    let causes = failed.iter().take(MOST_TOLD);
    let causes: Vec<String> = causes
        .map(|(address, error)| format!("{address}: {error}"))
        .collect();
    let causes = causes.join("; ");
    Fault::unsent(
        kind,
        format!("cannot connect to {origin}: {causes}; {mend}"),
    )
}

fn kind(error: &io::Error) -> Kind {
    use io::ErrorKind;
    match error.kind() {
        _ if is_of_this_side(error) => Kind::Internal,
        ErrorKind::ConnectionRefused => Kind::Refused,
        // The connection was made and closed before weir noticed it.
        ErrorKind::ConnectionReset => Kind::Terminated,
        ErrorKind::TimedOut => Kind::ConnectTimeout,
        _ => Kind::Unreachable,
    }
}

/// Whether connect(2) failed because this machine has no descriptor, memory or port left: that says nothing about the other
/// side.
pub fn is_of_this_side(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(ENOMEM | EMFILE | ENFILE | ENOBUFS | EADDRNOTAVAIL)
    )
}

/// Sends small pieces at once, and detects a vanished peer while weir waits for an answer. Options that cannot be set
/// are ignored.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10));
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// If all addresses refuse, how long weir waits for new addresses from DNS.
const DOUBT: Duration = Duration::from_millis(500);

/// Two deadlines within this time count as equal, µs.
const SAME: u64 = 5_000;

/// For how long a failed address is tried last, µs.
const FAILED_FOR: u64 = 60 * 1_000_000;

/// How many failed addresses are remembered.
const MOST_FAILED: usize = 1024;

/// How many addresses of a name are tried for one connection.
const MOST_TRIED: usize = 16;

/// How many addresses a message lists.
const MOST_TOLD: usize = 4;

/// Error numbers of Linux.
const ENOMEM: i32 = 12;
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;
const ENOBUFS: i32 = 105;
const EADDRNOTAVAIL: i32 = 99;

#[cfg(test)]
mod tests;
