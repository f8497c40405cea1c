//! The state of one origin: its settings, breaker, limit and connections.
//!
//! [`Hosts`] has the origins that were called recently, at most `max_hosts`, because a rule with a wildcard allows an
//! unlimited number of names.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use http::{
    HeaderName, HeaderValue, Method, Uri,
    uri::{self, PathAndQuery},
};
use weir_config::HostSettings;
use weir_control::EgressFiles;
use weir_observe::clock;
use weir_pool::{
    Attempt, Breaker, BreakerChange, BreakerRules, BreakerState, Failure, Micros, Outcome, Retry,
    RetryBudget, Verdict,
};

use super::{
    connections::Connections,
    dial::{Dialer, Route},
    fault::{Fault, Kind},
    figures::{BreakerNow, Figures, HostFigures, HostNow, HostState},
    headers::Outbound,
    limiter::Limiter,
    origin::Origin,
    origin_tls::TlsContexts,
    rules::Rules,
    target::{Form, Target},
    upload::Upload,
};

/// An origin.
pub(crate) struct Host {
    pub(crate) origin: Arc<Origin>,
    pub(crate) settings: Arc<HostSettings>,
    /// For `Host`.
    authority: Box<str>,
    /// The first parts of its URIs.
    scheme: uri::Scheme,
    uri_authority: uri::Authority,
    /// Every call to it is allowed, from any caller ([`Rules::is_open_to_all`]).
    is_open_to_all: bool,
    /// Headers that are set in each request.
    pub(crate) set_headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) connections: Arc<Connections<Upload>>,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) figures: Arc<HostFigures>,
    trouble: Mutex<Trouble>,
    /// When it was last called.
    used: AtomicU64,
    /// Whether it was logged that tunnels cannot share connections.
    tunnel_noted: AtomicBool,
}

struct Trouble {
    breaker: Breaker,
    budget: RetryBudget,
}

impl HostState for Host {
    fn now(&self) -> HostNow {
        let connections = self.connections.counts();
        let calls = self.limiter.view();
        let now = Micros(clock::now());
        let state = self.trouble().breaker.state(now);
        HostNow {
            pause: match state {
                BreakerState::Open { until, .. } => until.since(now).0,
                BreakerState::Closed { .. } | BreakerState::HalfOpen { .. } => 0,
            },
            breaker: match state {
                BreakerState::Closed { .. } => BreakerNow::Closed,
                BreakerState::HalfOpen { .. } => BreakerNow::HalfOpen,
                BreakerState::Open { .. } => BreakerNow::Open,
            },
            at_work: calls.at_work,
            waiting: calls.waiting,
            idle: connections.idle,
            busy: connections.busy,
            connecting: connections.connecting,
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({})", self.origin)
    }
}

/// An attempt that the breaker of its origin counts. If it is dropped without a result, it counts
/// neither as success nor as failure.
pub(crate) struct Try<'a> {
    host: &'a Host,
    attempt: Option<Attempt>,
}

impl Host {
    /// The absolute URI of a path.
    ///
    /// # Errors
    /// If the path is not valid in a URI.
    pub(crate) fn uri(&self, path: &PathAndQuery) -> Result<Uri, uri::InvalidUriParts> {
        let mut parts = uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.uri_authority.clone());
        parts.path_and_query = Some(path.clone());
        Uri::from_parts(parts)
    }

    /// A call begins, whether the cache or the origin answers it.
    pub(crate) fn begin(&self) {
        self.used.store(clock::now(), Relaxed);
    }

    /// The origin is called, which counts for the retry budget. Answers from the cache do not count.
    pub(crate) fn calls(&self) {
        self.trouble().budget.call(Micros(clock::now()));
    }

    /// The headers that weir sets in calls of this host; `caller`: the address of the caller, `None` for a unix socket.
    pub(crate) fn outbound(&self, caller: Option<IpAddr>) -> Outbound<'_> {
        Outbound {
            authority: &self.authority,
            set: &self.set_headers,
            forwarded: self.settings.forwarded,
            traceparent: self.settings.traceparent,
            caller,
        }
    }

    /// Whether a call may wait for its turn at the origin.
    ///
    /// # Errors
    /// While its breaker is open: the call would be refused after the wait.
    pub(crate) fn admits(&self) -> Result<(), Fault> {
        let refused = self.trouble().breaker.refuses(Micros(clock::now()));
        refused.map_or(Ok(()), |retry_after| Err(self.refusal(retry_after)))
    }

    /// Whether the origin may be called now.
    ///
    /// # Errors
    /// While its breaker is open.
    pub(crate) fn ask(&self) -> Result<Try<'_>, Fault> {
        let verdict = self.trouble().breaker.ask(Micros(clock::now()));
        match verdict {
            Verdict::Go(attempt) | Verdict::Probe(attempt) => Ok(Try {
                host: self,
                attempt: Some(attempt),
            }),
            Verdict::Open { retry_after } => Err(self.refusal(retry_after)),
        }
    }

    fn refusal(&self, retry_after: Micros) -> Fault {
        Fault {
            retry_after: Some(retry_after.0.div_ceil(1_000_000).max(1)),
            ..Fault::unsent(
                Kind::BreakerOpen,
                format!(
                    "{}: call refused, because its last calls failed (max_fails)",
                    self.origin
                ),
            )
        }
    }

    /// Whether a failed call may be retried. If so, the retry is counted.
    pub(crate) fn may_retry(&self, failure: &Failure) -> bool {
        let now = Micros(clock::now());
        self.trouble().budget.may_retry(now, failure) == Retry::Again
    }

    /// Whether it can be removed without losing anything but idle connections. It cannot while somebody holds it, for
    /// example a call whose caller still sends the request.
    fn may_be_forgotten(self: &Arc<Self>) -> bool {
        self.settings.preconnect == 0
            && Arc::strong_count(self) == 1
            && HostState::now(self.as_ref()).is_idle()
    }

    /// Logs once that a tunnel cannot share connections.
    pub(crate) fn note_tunnel(&self) {
        if !self.tunnel_noted.swap(true, Relaxed) {
            log::info!(
                "[egress] {}: called with CONNECT: weir cannot see these requests or share \
                 their connections. Calls by path, or upgraded from http, share connections",
                self.origin
            );
        }
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Try<'_> {
    /// The origin has answered.
    pub(crate) fn answered(self) {
        self.ended(Outcome::Success);
    }

    /// The try has failed.
    pub(crate) fn failed(self, kind: Kind) {
        match kind.blames_origin() {
            true => self.ended(Outcome::Failure),
            false => self.ended(Outcome::Unknown),
        }
    }

    fn ended(mut self, outcome: Outcome) {
        let Some(attempt) = self.attempt.take() else {
            return;
        };
        let now = Micros(clock::now());
        let change = self.host.trouble().breaker.ended(now, attempt, outcome);
        let origin = &self.host.origin;
        match change {
            None => {}
            Some(BreakerChange::Opened { fails, pause }) => {
                self.host.figures.breaker_opened();
                let why = match fails {
                    0 => "most of its last calls failed".to_owned(),
                    fails => format!("{fails} calls in a row failed"),
                };
                log::warn!(
                    "[egress] {origin}: {why}; calls are refused for {} ms, then one is tried",
                    pause.0 / 1000
                );
            }
            Some(BreakerChange::Closed { after }) => {
                log::info!(
                    "[egress] {origin} answers again, after {} ms",
                    after.0 / 1000
                );
            }
        }
    }
}

impl Drop for Try<'_> {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            let now = Micros(clock::now());
            let _ = self
                .host
                .trouble()
                .breaker
                .ended(now, attempt, Outcome::Unknown);
        }
    }
}

/// The known origins. Callers that are entitled to everything that the configuration has for an origin
/// ([`Rules::is_entitled`]: `true`) share neither connections nor credentials with those that are not.
#[derive(Default)]
struct HostTable(HashMap<(Origin, bool), Arc<Host>>);

impl HostTable {
    /// Takes the origin out that was called longest ago, of those that may be forgotten.
    fn take_oldest(&mut self) -> Option<((Origin, bool), Arc<Host>)> {
        let may_go = self.0.iter().filter(|(_, host)| host.may_be_forgotten());
        let (oldest, _) = may_go.min_by_key(|(_, host)| host.used.load(Relaxed))?;
        let oldest = oldest.clone();
        self.0.remove_entry(&oldest)
    }
}

/// The origins that were called recently.
pub(crate) struct Hosts {
    settings: Arc<weir_config::Egress>,
    rules: Arc<Rules>,
    files: Arc<EgressFiles>,
    dialer: Arc<Dialer>,
    tls: TlsContexts,
    figures: Arc<Figures>,
    known: Mutex<HostTable>,
    /// How many origins were forgotten.
    forgotten: AtomicU64,
}

thread_local! {
    /// The last origins that a thread has called and that are open to all, and [`Hosts::forgotten`] at that time.
    static RECENT: RefCell<(u64, Vec<Weak<Host>>)> = const { RefCell::new((0, Vec::new())) };
}

impl Hosts {
    /// Starts without origins.
    pub(crate) fn new(
        settings: Arc<weir_config::Egress>,
        files: Arc<EgressFiles>,
        dialer: Arc<Dialer>,
        tls: TlsContexts,
        figures: Arc<Figures>,
    ) -> Hosts {
        Hosts {
            rules: Arc::new(Rules::new(&settings)),
            settings,
            files,
            dialer,
            tls,
            figures,
            known: Mutex::default(),
            forgotten: AtomicU64::new(0),
        }
    }

    /// The rules for calls.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.rules.clone()
    }

    /// The state of an origin for a call that is certainly allowed, because this thread has called
    /// the origin recently, and every caller may. `None`: check the rules.
    pub(crate) fn recent(&self, target: &Target, method: &Method) -> Option<Arc<Host>> {
        if target.form == Form::Tunnel || *method == Method::TRACE {
            return None;
        }
        RECENT.with_borrow(|(forgotten, hosts)| {
            let is_current = *forgotten == self.forgotten.load(Relaxed);
            let mut hosts = hosts.iter().filter_map(Weak::upgrade);
            let found = hosts.find(|host| *host.origin == target.origin);
            found.filter(|_| is_current)
        })
    }

    /// Notes an origin for [`recent`](Self::recent).
    pub(crate) fn note_recent(&self, host: &Arc<Host>) {
        if !host.is_open_to_all {
            return;
        }
        RECENT.with_borrow_mut(|(forgotten, hosts)| {
            let now = self.forgotten.load(Relaxed);
            match std::mem::replace(forgotten, now) == now {
                true => hosts.truncate(MOST_RECENT - 1),
                false => hosts.clear(),
            }
            hosts.insert(0, Arc::downgrade(host));
        });
    }

    /// The state of an origin that `allow` names, for callers that are `entitled` or not.
    ///
    /// # Errors
    /// If it cannot be called with the settings of the configuration.
    pub(crate) fn of(&self, origin: &Origin, entitled: bool) -> Result<Arc<Host>, Fault> {
        let key = (origin.clone(), entitled);
        let mut known = self.known();
        if let Some(host) = known.0.get(&key) {
            return Ok(host.clone());
        }
        let mut forgotten = None;
        if known.0.len() >= self.settings.max_hosts {
            forgotten = known.take_oldest();
        }
        let host = Arc::new(self.made(origin, entitled)?);
        if entitled || !known.0.contains_key(&(origin.clone(), true)) {
            let state: Weak<Host> = Arc::downgrade(&host);
            host.figures.watch(state);
        }
        known.0.insert(key, host.clone());
        let Some(((origin, was_entitled), forgotten)) = forgotten else {
            return Ok(host);
        };
        self.forgotten.fetch_add(1, Relaxed);
        // Both share their counters.
        let other = (origin, !was_entitled);
        let is_counted = known.0.contains_key(&other);
        drop(known);
        forgotten.connections.close();
        if !is_counted {
            self.figures.forget(&other.0);
        }
        Ok(host)
    }

    /// All known origins, in no particular order.
    pub(crate) fn all(&self) -> Vec<Arc<Host>> {
        self.known().0.values().cloned().collect()
    }

    /// Maintains the connections of all origins.
    pub(crate) fn tend(&self) {
        let now = clock::precise();
        for host in self.all() {
            host.connections.tend(now);
        }
    }

    /// Adds the origins to which connections are made in advance.
    pub(crate) fn prepare(&self) {
        for (scheme, host, port) in self.settings.preconnected() {
            let origin = Origin { scheme, host, port };
            if let Err(fault) = self.of(&origin, true) {
                log::error!("[egress] preconnect: {}", fault.message);
            }
        }
    }

    fn made(&self, origin: &Origin, entitled: bool) -> Result<Host, Fault> {
        let mut settings = self
            .settings
            .settings(origin.scheme, &origin.host, origin.port)
            .clone();
        if !entitled {
            // Callers that are not entitled get neither the credentials nor the stored answers of the others.
            settings.set_headers = Vec::new();
            settings.client_cert = None;
            settings.cache = false;
            settings.preconnect = 0;
        }
        let settings = Arc::new(settings);
        let origin = Arc::new(origin.clone());
        let figures = self.figures.host(&origin);
        let internal = |error: String| Fault::unsent(Kind::Internal, format!("{origin}: {error}"));
        let tls = self.tls.of(&origin, &settings).map_err(internal)?;
        let route = Route {
            origin: origin.clone(),
            settings: settings.clone(),
            networks: self.rules.networks(&origin, entitled),
            tls,
        };
        let trouble = Trouble {
            breaker: Breaker::new(BreakerRules {
                max_fails: settings.max_fails,
                fail_timeout: Micros(settings.fail_timeout.as_micros() as u64),
            }),
            budget: RetryBudget::new(settings.retry_budget, settings.maxconn),
        };
        Ok(Host {
            is_open_to_all: entitled && self.rules.is_open_to_all(&origin),
            scheme: match origin.scheme {
                weir_config::Scheme::Https => uri::Scheme::HTTPS,
                weir_config::Scheme::Http => uri::Scheme::HTTP,
            },
            uri_authority: uri::Authority::try_from(origin.authority())
                .map_err(|error| internal(error.to_string()))?,
            authority: origin.authority().into(),
            set_headers: self.set_headers(&settings).map_err(internal)?,
            connections: Connections::new(self.dialer.clone(), route, figures.clone()),
            limiter: Limiter::new(origin.to_string(), &settings),
            figures,
            trouble: Mutex::new(trouble),
            used: AtomicU64::new(clock::now()),
            tunnel_noted: AtomicBool::new(false),
            origin,
            settings,
        })
    }

    /// The headers to set, with their secrets.
    fn set_headers(
        &self,
        settings: &HostSettings,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        let set = settings.set_headers.iter().map(|(name, secret)| {
            let value = self.files.value(secret)?;
            let not_one = |what: &str| format!("set_headers: {name} {what}");
            let mut value = HeaderValue::from_bytes(&value)
                .map_err(|_| not_one("has a value that is not allowed in a header"))?;
            // So the value is not logged, and not stored in HTTP/2's header tables.
            value.set_sensitive(true);
            let name = HeaderName::try_from(name).map_err(|_| not_one("is not a header name"))?;
            Ok((name, value))
        });
        set.collect()
    }

    fn known(&self) -> MutexGuard<'_, HostTable> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many origins a thread remembers: more are seldom called by one application at the same time.
const MOST_RECENT: usize = 4;
