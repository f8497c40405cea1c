//! Counters of calls, by host.
//!
//! Counting is an addition to memory, without allocations and locks. The counters of a host are looked up once, when
//! the host becomes known ([`Figures::host`]), and are kept with it. Their number is limited: calls to further hosts
//! are counted under [`OTHER`]. Calls that are refused before they have a host are counted separately, so that names
//! from callers that are not allowed never become labels.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

use weir_config::Scheme;
use weir_observe::{clock, histogram::Histogram, recent::Recent};
use weir_upstream::{Counters, HostCounters};

use super::{
    fault::{Fault, Kind},
    origin::{Connection, Origin, Protocol},
    record::{CacheUse, CallRecord},
    target::Form,
};

/// All counters of the egress.
#[derive(Debug)]
pub(crate) struct Figures {
    max_hosts: usize,
    hosts: Mutex<HashMap<Origin, Arc<HostFigures>>>,
    other: Arc<HostFigures>,
    /// Calls that had no host, by [`Kind`].
    refused: [AtomicU64; KINDS],
    callers: AtomicU64,
    callers_accepted: AtomicU64,
    lookups: AtomicU64,
    failed_lookups: AtomicU64,
    cache: Mutex<Option<Weak<dyn CacheState>>>,
}

/// Gives the state of the cache.
pub(crate) trait CacheState: Send + Sync + std::fmt::Debug {
    /// The current state.
    fn now(&self) -> CacheNow;
}

/// See [`CacheState`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CacheNow {
    /// Size of all stored answers.
    pub(crate) bytes: u64,
    pub(crate) answers: u64,
}

/// Gives the state of a host that is not counted here: its connections, queue and breaker.
pub(crate) trait HostState: Send + Sync + std::fmt::Debug {
    /// The current state. Holds locks only while it copies these values.
    fn now(&self) -> HostNow;
}

/// See [`HostState`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HostNow {
    pub(crate) breaker: BreakerNow,
    /// How long the breaker still refuses calls, µs; 0: the next call may go.
    pub(crate) pause: u64,
    /// Running calls.
    pub(crate) at_work: usize,
    /// Calls that wait in the queue.
    pub(crate) waiting: usize,
    /// Connections without a call, with calls, and being opened.
    pub(crate) idle: usize,
    pub(crate) busy: usize,
    pub(crate) connecting: usize,
}

impl HostNow {
    /// No call uses the host now.
    pub(crate) fn is_idle(&self) -> bool {
        self.at_work + self.waiting + self.busy + self.connecting == 0
    }
}

/// The state of a breaker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum BreakerNow {
    /// Calls pass.
    #[default]
    Closed,
    /// One call is sent as a test.
    HalfOpen,
    /// No call passes.
    Open,
}

/// The counters of one host.
#[derive(Debug, Default)]
pub(crate) struct HostFigures {
    /// In the form of `allow`: `api.example.com`, `partner.example:8443`, `http://legacy.internal:8080`.
    pub(super) name: String,
    /// `None`: for all hosts without counters of their own.
    pub(super) origin: Option<Origin>,
    /// By the first digit of the status, 1 to 5.
    pub(super) statuses: [AtomicU64; CLASSES],
    /// By [`Kind`].
    pub(super) failures: [AtomicU64; KINDS],
    /// Calls whose caller left before the end.
    pub(super) callers_left: AtomicU64,
    /// Calls over an existing connection, and over one that was opened for them.
    pub(super) kept: AtomicU64,
    pub(super) fresh: AtomicU64,
    /// New connections, by [`Protocol`].
    pub(super) opened: [AtomicU64; PROTOCOLS],
    /// TLS handshakes: full ones, and those that resumed a session.
    pub(super) handshakes: AtomicU64,
    pub(super) resumed: AtomicU64,
    /// How many of both did not verify the certificate.
    pub(super) unverified: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) breaker_opened: AtomicU64,
    pub(super) tunnels: AtomicU64,
    /// What the cache did, in the order of [`CacheUse::ALL`].
    pub(super) cache: [AtomicU64; CACHE_USES],
    /// Bytes of bodies: from callers, and to them.
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
    /// Times in the queue, until the first byte, of the whole answer, and for opening a connection.
    pub(super) waited: Histogram,
    pub(super) first_byte: Histogram,
    pub(super) total: Histogram,
    pub(super) connect: Histogram,
    /// The [`Protocol`] of the last connection plus one; 0: there was none.
    protocol: AtomicU64,
    last_error: Mutex<Option<LastError>>,
    /// Answers of 5xx that are the host's own.
    pub(super) server_errors: AtomicU64,
    /// The last of these: its status, and when it ended ([`clock::now`]).
    last_server_error: (AtomicU64, AtomicU64),
    pub(super) lately: Lately,
    /// Running calls of the pools that have any.
    running: Mutex<Vec<(Arc<str>, u64)>>,
    state: Mutex<Option<Weak<dyn HostState>>>,
}

/// Calls of the last minute that have ended.
#[derive(Debug, Default)]
pub(super) struct Lately {
    pub(super) calls: Recent,
    /// The host failed: its breaker counts these.
    pub(super) failed: Recent,
    /// See [`HostFigures::server_errors`].
    pub(super) server_errors: Recent,
    /// The host answered 401, 403, 407 or 429, the statuses for callers that it refuses.
    pub(super) rejected: Recent,
}

/// The last failure of a host.
#[derive(Debug, Clone)]
pub(crate) struct LastError {
    pub(crate) at: SystemTime,
    pub(crate) kind: Kind,
    /// As in the error log.
    pub(crate) message: String,
}

impl Figures {
    /// Empty counters for at most `max_hosts` hosts.
    pub(crate) fn new(max_hosts: usize) -> Arc<Figures> {
        Arc::new(Figures {
            max_hosts,
            hosts: Mutex::default(),
            other: Arc::new(HostFigures::new(None)),
            refused: Default::default(),
            callers: AtomicU64::new(0),
            callers_accepted: AtomicU64::new(0),
            lookups: AtomicU64::new(0),
            failed_lookups: AtomicU64::new(0),
            cache: Mutex::new(None),
        })
    }

    /// The counters of a host that may be called; its name becomes a label. The same origin always gets the same
    /// counters.
    pub(crate) fn host(&self, origin: &Origin) -> Arc<HostFigures> {
        let mut hosts = self.lock();
        if let Some(known) = hosts.get(origin) {
            return known.clone();
        }
        if hosts.len() >= self.max_hosts {
            return self.other.clone();
        }
        let new = Arc::new(HostFigures::new(Some(origin.clone())));
        hosts.insert(origin.clone(), new.clone());
        new
    }

    /// The origin was forgotten: removes its counters.
    pub(crate) fn forget(&self, origin: &Origin) {
        self.lock().remove(origin);
    }

    /// Counts a call that was refused before it had a host.
    pub(crate) fn refused(&self, kind: Kind) {
        add(&self.refused[kind as usize], 1);
    }

    /// A caller's connection was accepted.
    pub(crate) fn caller_came(&self) {
        add(&self.callers, 1);
        add(&self.callers_accepted, 1);
    }

    /// A caller's connection was closed.
    pub(crate) fn caller_left(&self) {
        self.callers.fetch_sub(1, Relaxed);
    }

    /// Sets the source for the state of the cache.
    pub(crate) fn watch_cache(&self, cache: Weak<dyn CacheState>) {
        *self.cache.lock().unwrap_or_else(PoisonError::into_inner) = Some(cache);
    }

    /// The state of the cache; `None` if there is no cache.
    pub(super) fn cache_now(&self) -> Option<CacheNow> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = cache.as_ref()?.upgrade();
        Some(cache?.now())
    }

    /// Callers' connections: open now, and total.
    pub(super) fn callers(&self) -> (u64, u64) {
        (get(&self.callers), get(&self.callers_accepted))
    }

    /// Lookups in DNS: all, and those without an address.
    pub(super) fn lookups(&self) -> (u64, u64) {
        (get(&self.lookups), get(&self.failed_lookups))
    }

    /// Calls that were refused before they had a host, by reason.
    pub(super) fn refusals(&self) -> impl Iterator<Item = (Kind, u64)> {
        by_kind(&self.refused)
    }

    /// The counters of all hosts by name, then those of the other hosts, if any.
    pub(super) fn hosts(&self) -> Vec<Arc<HostFigures>> {
        let mut hosts: Vec<_> = self.lock().values().cloned().collect();
        hosts.sort_by(|one, other| one.name.cmp(&other.name));
        if self.other.calls() > 0 {
            hosts.push(self.other.clone());
        }
        hosts
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Origin, Arc<HostFigures>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostFigures {
    fn new(origin: Option<Origin>) -> HostFigures {
        HostFigures {
            name: origin.as_ref().map_or_else(|| OTHER.to_owned(), name),
            origin,
            ..HostFigures::default()
        }
    }

    /// A worker of this pool calls.
    pub(crate) fn pool_calls(&self, pool: &Arc<str>) {
        let mut running = self.running();
        match running.iter_mut().find(|(other, _)| other == pool) {
            Some((_, count)) => *count += 1,
            None => running.push((pool.clone(), 1)),
        }
    }

    /// A call of this pool has ended.
    pub(crate) fn pool_called(&self, pool: &str) {
        let mut running = self.running();
        if let Some(index) = running.iter().position(|(other, _)| **other == *pool) {
            running[index].1 -= 1;
            if running[index].1 == 0 {
                running.swap_remove(index);
            }
        }
    }

    /// Running calls of this pool.
    pub(super) fn running_calls(&self, pool: &str) -> u64 {
        let running = self.running();
        let found = running.iter().find(|(other, _)| **other == *pool);
        found.map_or(0, |(_, count)| *count)
    }

    fn running(&self) -> MutexGuard<'_, Vec<(Arc<str>, u64)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call that has ended.
    pub(crate) fn call_ended(&self, call: &CallRecord) {
        if let Some(status) = call.status {
            let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES) - 1;
            add(&self.statuses[class], 1);
        }
        if let Some(kind) = call.fault {
            add(&self.failures[kind as usize], 1);
        }
        self.count_lately(call);
        add(&self.callers_left, u64::from(call.caller_left));
        if let Some(connection) = &call.connection {
            let kind = match connection.made {
                Some(_) => &self.fresh,
                None => &self.kept,
            };
            add(kind, 1);
            self.protocol.store(connection.protocol as u64 + 1, Relaxed);
        }
        add(&self.retries, u64::from(call.retries));
        add(&self.tunnels, u64::from(call.form == Some(Form::Tunnel)));
        if let Some(index) = CacheUse::ALL.iter().position(|used| *used == call.cache) {
            add(&self.cache[index], 1);
        }
        add(&self.received, call.bytes_in);
        add(&self.sent, call.bytes_out);
        self.waited.add(call.waited);
        if let Some(first_byte) = call.first_byte {
            self.first_byte.add(first_byte);
        }
        self.total.add(call.total);
    }

    fn count_lately(&self, call: &CallRecord) {
        self.lately.calls.count();
        match (call.fault, call.status.map(|status| status.as_u16())) {
            (Some(kind), _) if kind.blames_origin() => self.lately.failed.count(),
            // It comes from memory.
            (None, _) if call.cache == CacheUse::Hit => {}
            (None, Some(status @ 500..)) => {
                add(&self.server_errors, 1);
                self.lately.server_errors.count();
                let (last, at) = &self.last_server_error;
                last.store(status.into(), Relaxed);
                at.store(clock::now(), Relaxed);
            }
            (None, Some(401 | 403 | 407 | 429)) => self.lately.rejected.count(),
            _ => {}
        }
    }

    /// The host's last answer of 5xx: its status, and how many µs ago it ended. `None`: there was none.
    pub(super) fn last_server_error(&self) -> Option<(u64, u64)> {
        let (last, at) = (
            get(&self.last_server_error.0),
            get(&self.last_server_error.1),
        );
        (last > 0).then(|| (last, clock::now().saturating_sub(at)))
    }

    /// Counts that the breaker opened, also if it did so again after a failed test.
    pub(crate) fn breaker_opened(&self) {
        add(&self.breaker_opened, 1);
    }

    /// Sets the source for the state of its connections, queue and breaker.
    pub(crate) fn watch(&self, state: Weak<dyn HostState>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }

    /// Connections, queue and breaker; `None` if weir has no state of the host now.
    pub(super) fn now(&self) -> Option<HostNow> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = state.as_ref()?.upgrade();
        Some(state?.now())
    }

    pub(super) fn last_error(&self) -> Option<LastError> {
        let last = self.last_error.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The protocol of its last connection.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        let index = get(&self.protocol).checked_sub(1)?;
        ALL_PROTOCOLS.get(index as usize).copied()
    }

    /// Calls that have ended.
    pub(super) fn calls(&self) -> u64 {
        self.total.durations().count()
    }

    /// Failed calls, for all causes.
    pub(super) fn failed_calls(&self) -> u64 {
        self.failures.iter().map(get).sum()
    }

    /// How often calls failed, by cause.
    pub(super) fn failures(&self) -> impl Iterator<Item = (Kind, u64)> {
        by_kind(&self.failures)
    }

    /// The share of calls with a connection that used an existing one; `None` if there were no such calls.
    pub(super) fn reuse(&self) -> Option<f64> {
        let (kept, fresh) = (get(&self.kept), get(&self.fresh));
        (kept + fresh > 0).then(|| kept as f64 / (kept + fresh) as f64)
    }

    /// Number of connections that were made.
    pub(super) fn connections_opened(&self) -> u64 {
        self.opened.iter().map(get).sum()
    }
}

impl Counters for Figures {
    fn looked_up(&self, found: bool) {
        add(&self.lookups, 1);
        add(&self.failed_lookups, u64::from(!found));
    }
}

impl HostCounters for HostFigures {
    fn connection_opened(&self, connection: &Connection, verified: bool) {
        add(&self.opened[connection.protocol as usize], 1);
        let Some(made) = &connection.made else {
            return;
        };
        self.connect
            .add(made.dns + made.connect + made.tls.unwrap_or(0));
        if made.tls.is_some() {
            let kind = match made.resumed {
                true => &self.resumed,
                false => &self.handshakes,
            };
            add(kind, 1);
            add(&self.unverified, u64::from(!verified));
        }
    }

    /// Also notes an error of a call.
    fn failed(&self, fault: &Fault) {
        let error = LastError {
            at: SystemTime::now(),
            kind: fault.kind,
            message: fault.message.clone(),
        };
        let mut last = self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = Some(error);
    }
}

impl BreakerNow {
    pub(super) const ALL: [BreakerNow; 3] =
        [BreakerNow::Closed, BreakerNow::HalfOpen, BreakerNow::Open];

    /// One word for the status and the metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            BreakerNow::Closed => "closed",
            BreakerNow::HalfOpen => "half_open",
            BreakerNow::Open => "open",
        }
    }
}

/// The name of a host in the form of `allow`, which is unique.
fn name(origin: &Origin) -> String {
    match origin.scheme {
        Scheme::Https => origin.authority(),
        Scheme::Http => origin.to_string(),
    }
}

/// The counts that are not zero.
fn by_kind(counts: &[AtomicU64; KINDS]) -> impl Iterator<Item = (Kind, u64)> {
    let counts = Kind::ALL.iter().zip(counts);
    let counts = counts.map(|(kind, count)| (*kind, get(count)));
    counts.filter(|(_, count)| *count > 0)
}

pub(super) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

fn add(counter: &AtomicU64, more: u64) {
    if more > 0 {
        counter.fetch_add(more, Relaxed);
    }
}

/// The label for calls to hosts without counters of their own.
///
/// It cannot be the name of a host.
pub(super) const OTHER: &str = "*";

/// In the order of their declaration.
pub(super) const ALL_PROTOCOLS: [Protocol; PROTOCOLS] =
    [Protocol::Http1, Protocol::Http2, Protocol::Tunnel];

const PROTOCOLS: usize = 3;

const KINDS: usize = Kind::ALL.len();

const CACHE_USES: usize = CacheUse::ALL.len();

/// Classes of status: 1xx to 5xx.
const CLASSES: usize = 5;

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use http::{Method, StatusCode, uri::PathAndQuery};

    use super::*;
    use crate::{origin::DialTimes, record::Caller};

    pub(crate) fn origin(scheme: Scheme, host: &str, port: u16) -> Origin {
        Origin {
            scheme,
            host: host.to_owned(),
            port,
        }
    }

    /// A successful call over a new connection.
    pub(crate) fn call(origin: &Origin) -> CallRecord {
        CallRecord {
            at: SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_176_840_123_456),
            method: Method::GET,
            origin: Some(Arc::new(origin.clone())),
            path: Some(PathAndQuery::from_static("/v1/x?a=b")),
            form: Some(Form::Path),
            status: Some(StatusCode::OK),
            fault: None,
            connection: Some(connection(true)),
            waited: 0,
            first_byte: Some(12_345),
            total: 13_000,
            retries: 0,
            bytes_in: 10,
            bytes_out: 2_000,
            caller_left: false,
            cache: CacheUse::None,
            caller: Caller::default(),
        }
    }

    pub(crate) fn connection(new: bool) -> Connection {
        Connection {
            address: "192.0.2.7:443".parse().expect("an address"),
            protocol: Protocol::Http2,
            made: new.then_some(DialTimes {
                dns: 1_000,
                connect: 2_000,
                tls: Some(3_000),
                resumed: false,
            }),
        }
    }

    #[test]
    fn kinds_and_protocols_are_numbered_as_they_are_listed() {
        for (index, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, index, "{kind:?}");
        }
        for (index, protocol) in ALL_PROTOCOLS.iter().enumerate() {
            assert_eq!(*protocol as usize, index, "{protocol:?}");
        }
    }

    #[test]
    fn calls_are_counted_by_what_became_of_them() {
        let figures = Figures::new(10);
        let origin = origin(Scheme::Https, "api.example.com", 443);
        let host = figures.host(&origin);
        let first = call(&origin);
        host.connection_opened(&connection(true), false);
        host.call_ended(&first);
        host.call_ended(&CallRecord {
            connection: Some(connection(false)),
            cache: CacheUse::Miss,
            ..first.clone()
        });
        host.call_ended(&CallRecord {
            status: Some(StatusCode::BAD_GATEWAY),
            fault: Some(Kind::Refused),
            connection: None,
            retries: 2,
            ..first.clone()
        });
        host.call_ended(&CallRecord {
            status: None,
            caller_left: true,
            ..first
        });
        assert_eq!(host.statuses.each_ref().map(get), [0, 2, 0, 0, 1]);
        assert_eq!(host.last_server_error(), None, "weir's own answer");
        assert_eq!(get(&host.failures[Kind::Refused as usize]), 1);
        assert_eq!((host.calls(), host.failed_calls()), (4, 1));
        assert_eq!((get(&host.kept), host.connections_opened()), (1, 1));
        assert_eq!((get(&host.handshakes), get(&host.resumed)), (1, 0));
        assert_eq!((get(&host.unverified), get(&host.retries)), (1, 2));
        assert_eq!(get(&host.callers_left), 1);
        assert_eq!(host.cache.each_ref().map(get), [0, 1, 0, 0, 0]);
        assert_eq!(host.connect.durations().sum, 6_000);
        assert_eq!(host.protocol(), Some(Protocol::Http2));
    }

    #[test]
    fn a_host_that_answers_with_errors_only_is_not_healthy() {
        let figures = Figures::new(10);
        let origin = origin(Scheme::Https, "api.example.com", 443);
        let host = figures.host(&origin);
        let answered = |status, cache| CallRecord {
            status: Some(status),
            cache,
            ..call(&origin)
        };
        host.call_ended(&answered(StatusCode::SERVICE_UNAVAILABLE, CacheUse::None));
        host.call_ended(&answered(StatusCode::INTERNAL_SERVER_ERROR, CacheUse::Miss));
        host.call_ended(&answered(StatusCode::BAD_GATEWAY, CacheUse::Hit));
        host.call_ended(&answered(StatusCode::TOO_MANY_REQUESTS, CacheUse::None));
        host.call_ended(&CallRecord {
            fault: Some(Kind::FirstByteTimeout),
            ..answered(StatusCode::GATEWAY_TIMEOUT, CacheUse::None)
        });
        assert_eq!(get(&host.server_errors), 2);
        assert_eq!(
            host.last_server_error().map(|(status, _)| status),
            Some(500)
        );
        let lately = &host.lately;
        let counts = [
            &lately.calls,
            &lately.failed,
            &lately.server_errors,
            &lately.rejected,
        ];
        assert_eq!(counts.map(Recent::minute), [5, 1, 2, 1]);
    }

    #[test]
    fn running_calls_are_known_by_pool() {
        let host = HostFigures::new(None);
        let [shop, api]: [Arc<str>; 2] = ["shop".into(), "api".into()];
        for pool in [&shop, &api, &shop] {
            host.pool_calls(pool);
        }
        host.pool_called("api");
        host.pool_called("other");
        assert_eq!(
            (host.running_calls("shop"), host.running_calls("api")),
            (2, 0)
        );
        assert_eq!(host.running().len(), 1);
    }

    #[test]
    fn hosts_beyond_the_limit_are_counted_together() {
        let figures = Figures::new(2);
        let hosts = ["a.example", "b.example", "c.example", "d.example"];
        for host in hosts {
            let origin = origin(Scheme::Https, host, 443);
            let own = figures.host(&origin);
            own.call_ended(&call(&origin));
            assert!(Arc::ptr_eq(&own, &figures.host(&origin)));
        }
        let names = |figures: &Figures| -> Vec<(String, u64)> {
            let hosts = figures.hosts();
            hosts
                .iter()
                .map(|host| (host.name.clone(), host.calls()))
                .collect()
        };
        let expected = [("a.example", 1), ("b.example", 1), (OTHER, 2)];
        assert_eq!(
            names(&figures),
            expected.map(|(name, n)| (name.to_owned(), n))
        );
        figures.forget(&origin(Scheme::Https, "a.example", 443));
        figures.host(&origin(Scheme::Http, "c.example", 8080));
        assert_eq!(names(&figures)[1].0, "http://c.example:8080");
    }

    #[test]
    fn two_schemes_of_a_host_have_two_names() {
        assert_eq!(name(&origin(Scheme::Https, "h", 443)), "h");
        assert_eq!(name(&origin(Scheme::Http, "h", 80)), "http://h");
        assert_eq!(name(&origin(Scheme::Https, "::1", 8443)), "[::1]:8443");
    }

    #[test]
    fn what_is_refused_has_no_host() {
        let figures = Figures::new(2);
        figures.refused(Kind::NotAllowed);
        assert!(figures.hosts().is_empty());
        let refused: Vec<_> = figures.refusals().collect();
        assert_eq!(refused, [(Kind::NotAllowed, 1)]);
    }
}
