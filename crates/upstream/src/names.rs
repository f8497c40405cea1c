//! Resolves names to addresses and caches them as long as DNS allows.
//!
//! A name in use is looked up again before its TTL is over, so that only its first call waits for
//! DNS:
//!
//! ```text
//!  call ─► known and fresh ──────────────────────────────► its addresses
//!       ├► unknown: a look-up, which all callers share ──► its addresses, or why not
//!       └► over: the look-up under way, for a moment; then the last good answer, for an hour at most
//!
//!  task of a name:  look up ─► wait for 4/5 of the time ─► used since? ─ yes ─► look up …
//!                                                                     └ no ──► end
//! ```
//!
//! One task at a time looks up a name, whichever call waits for it, and continues if these calls end. This module
//! does not check addresses: [`super::dial`] decides which ones may be called.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::resolver::{Failure, FailureKind, Family, Half, Resolved, Resolver};
use tokio::sync::watch;
use weir_config::HostSettings;
use weir_observe::clock;

use super::{
    Counters,
    fault::{Fault, Kind},
};

/// The cached names.
pub struct Names {
    resolver: Box<dyn LookUp>,
    /// Maximum number of cached names.
    most: usize,
    counters: Arc<dyn Counters>,
    known: Mutex<NameCache>,
}

/// The addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedName {
    /// Not empty; in no particular order.
    pub addresses: Arc<[IpAddr]>,
    /// How long the call waited for DNS, µs; zero if they were cached.
    pub spent: u64,
}

/// The resolver.
trait LookUp: Send + Sync {
    fn half<'a>(
        &'a self,
        name: &'a str,
        family: Family,
    ) -> Pin<Box<dyn Future<Output = Half> + Send + 'a>>;
}

impl LookUp for Resolver {
    fn half<'a>(
        &'a self,
        name: &'a str,
        family: Family,
    ) -> Pin<Box<dyn Future<Output = Half> + Send + 'a>> {
        Box::pin(self.half(name, family))
    }
}

#[derive(Default)]
struct NameCache {
    entries: HashMap<Arc<str>, CachedName>,
    /// Number of tasks started so far.
    tasks: u64,
}

/// One name. Times are [`clock::now`].
struct CachedName {
    /// The last good answer; empty if there is none.
    addresses: Arc<[IpAddr]>,
    /// Until when it is valid.
    fresh_until: u64,
    /// When the name must be looked up again.
    due: u64,
    /// The error of the last lookup, if it failed.
    failure: Option<Failure>,
    /// How many lookups in a row have failed.
    failures: u32,
    /// When the last answer arrived.
    answered: u64,
    /// When it was last used.
    used: u64,
    /// The running lookup.
    looking: Option<watch::Receiver<Option<Outcome>>>,
    /// The number of the task that looks it up or waits until it is due. A task with another number does not own this
    /// entry any more.
    task: Option<u64>,
}

/// The result for waiting callers.
type Outcome = Result<Arc<[IpAddr]>, Failure>;

/// What a caller should do.
enum Advice {
    Take(Arc<[IpAddr]>),
    Fail(Failure),
    /// Wait for the lookup; use these addresses if it takes too long.
    Wait(watch::Receiver<Option<Outcome>>, Option<Arc<[IpAddr]>>),
}

/// Minimum and maximum time for which answers are valid.
type Bounds = (Duration, Duration);

impl Names {
    /// Caches up to `most` names.
    pub fn new(resolver: Resolver, most: usize, counters: Arc<dyn Counters>) -> Arc<Names> {
        Names::asking(Box::new(resolver), most, counters)
    }

    fn asking(resolver: Box<dyn LookUp>, most: usize, counters: Arc<dyn Counters>) -> Arc<Names> {
        Arc::new(Names {
            resolver,
            most: most.max(1),
            counters,
            known: Mutex::default(),
        })
    }

    /// The addresses of a host (in lower case, without brackets); waits for them until `deadline` at most.
    ///
    /// # Errors
    /// [`Kind::DnsError`]: the name does not exist, or the name servers have an error. [`Kind::DnsTimeout`]: they do
    /// not answer.
    pub async fn addresses(
        self: &Arc<Self>,
        host: &str,
        settings: &HostSettings,
        deadline: u64,
    ) -> Result<ResolvedName, Fault> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(ResolvedName {
                addresses: [ip].into(),
                spent: 0,
            });
        }
        let begun = clock::now();
        let advice = self.with_entry(host, settings, false, |entry| entry.advice(begun));
        let (mut looking, last_resort) = match advice {
            Advice::Take(addresses) => {
                return Ok(ResolvedName {
                    addresses,
                    spent: 0,
                });
            }
            Advice::Fail(failure) => return Err(fault(host, &failure)),
            Advice::Wait(looking, last_resort) => (looking, last_resort),
        };
        let until = match &last_resort {
            Some(_) => {
                let half = deadline.saturating_sub(begun) / 2;
                begun.saturating_add(half.min(PATIENCE.as_micros() as u64))
            }
            None => deadline,
        };
        let outcome = clock::in_time(looking.wait_for(Option::is_some), until).await;
        // The task may have ended without a result, because its runtime has ended.
        let outcome = outcome.map(|told| told.ok().and_then(|told| told.clone()));
        let spent = clock::now().saturating_sub(begun);
        match (outcome.flatten(), last_resort) {
            (Some(Ok(addresses)), _) => Ok(ResolvedName { addresses, spent }),
            (Some(Err(failure)), Some(_)) if failure.kind == FailureKind::None => {
                Err(fault(host, &failure))
            }
            (_, Some(addresses)) => Ok(ResolvedName { addresses, spent }),
            (Some(Err(failure)), None) => Err(fault(host, &failure)),
            (None, None) => {
                let text = format!(
                    "the DNS servers have not answered within {} ms",
                    spent / 1000
                );
                Err(fault(host, &Failure::new(FailureKind::Timeout, &text)))
            }
        }
    }

    /// Whether an address belongs to the host, by the last lookup: a kept connection to another address gets no new
    /// calls. This counts as use of the name, and starts a lookup if one is due, but does not wait.
    pub fn still(self: &Arc<Self>, host: &str, settings: &HostSettings, ip: IpAddr) -> bool {
        if host.parse::<IpAddr>().is_ok() {
            return true;
        }
        self.with_entry(host, settings, false, |entry| {
            match entry.addresses.is_empty() {
                false => entry.addresses.contains(&ip),
                // The present addresses are not known. A working connection stays open.
                true => !entry.is_denied(),
            }
        })
    }

    /// Looks a name up again before its time, because its addresses do not respond; not if it was looked up less than
    /// `resolve_min` ago.
    pub fn suspect(self: &Arc<Self>, host: &str, settings: &HostSettings) {
        if host.parse::<IpAddr>().is_err() {
            self.with_entry(host, settings, true, |_| ());
        }
    }

    /// As [`suspect`](Self::suspect), and waits for the result; `None`: nothing new.
    pub async fn renewed(
        self: &Arc<Self>,
        host: &str,
        settings: &HostSettings,
        deadline: u64,
    ) -> Option<Arc<[IpAddr]>> {
        if host.parse::<IpAddr>().is_ok() {
            return None;
        }
        let looking = self.with_entry(host, settings, true, |entry| entry.looking.clone());
        let mut looking = looking?;
        let outcome = clock::in_time(looking.wait_for(Option::is_some), deadline).await;
        outcome?.ok().and_then(|told| told.clone())?.ok()
    }

    /// Runs a function with the name's entry, which is created if necessary. Starts a lookup if one is due, or if the
    /// known addresses are in doubt (`doubt`).
    fn with_entry<T>(
        self: &Arc<Self>,
        host: &str,
        settings: &HostSettings,
        doubt: bool,
        ask: impl FnOnce(&mut CachedName) -> T,
    ) -> T {
        let now = clock::now();
        let mut known = self.lock();
        if !known.entries.contains_key(host) {
            known.make_room(self.most);
            known.entries.insert(host.into(), CachedName::default());
        }
        let id = known.tasks + 1;
        let slot = known.entries.entry(host.into());
        let name = slot.key().clone();
        let entry = slot.or_default();
        entry.used = now;
        let due = entry.task.is_none() && now >= entry.due;
        let wanted = doubt && entry.may_be_doubted(now, settings.resolve_min);
        let mut begins = None;
        if due || wanted {
            entry.task = Some(id);
            let (tell, looking) = watch::channel(None);
            entry.looking = Some(looking);
            let task = Task {
                names: self.clone(),
                name,
                id,
                bounds: (settings.resolve_min, settings.resolve_max),
                over: false,
            };
            begins = Some((task, tell));
        }
        let answer = ask(entry);
        known.tasks = id;
        // A task that cannot be started is dropped at once, and dropping it takes the lock.
        drop(known);
        if let Some((task, tell)) = begins {
            tokio::spawn(task.tend(tell));
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, NameCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NameCache {
    /// Removes the least recently used name. Its task, if it has one, notices that.
    fn make_room(&mut self, most: usize) {
        while self.entries.len() >= most {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else {
                return;
            };
            self.entries.remove(&name);
        }
    }
}

impl Default for CachedName {
    fn default() -> CachedName {
        CachedName {
            addresses: Arc::new([]),
            fresh_until: 0,
            due: 0,
            failure: None,
            failures: 0,
            answered: 0,
            used: 0,
            looking: None,
            task: None,
        }
    }
}

impl CachedName {
    /// Whether a new lookup makes sense: none is running, the last one did not fail, and it is old enough.
    fn may_be_doubted(&self, now: u64, least: Duration) -> bool {
        let old = now.saturating_sub(self.answered) >= micros(least.max(PAUSE));
        self.looking.is_none() && self.failure.is_none() && old
    }

    fn advice(&self, now: u64) -> Advice {
        let known = (!self.addresses.is_empty()).then(|| self.addresses.clone());
        match (known, &self.looking, &self.failure) {
            (Some(addresses), _, _) if now < self.fresh_until => Advice::Take(addresses),
            (Some(addresses), looking, failure) if now < self.fresh_until + LAST_RESORT => {
                match (looking, failure) {
                    (Some(looking), None) => Advice::Wait(looking.clone(), Some(addresses)),
                    _ => Advice::Take(addresses),
                }
            }
            (_, Some(looking), _) => Advice::Wait(looking.clone(), None),
            (_, None, Some(failure)) => Advice::Fail(failure.clone()),
            // Its task wakes in a moment.
            (_, None, None) => {
                Advice::Fail(Failure::new(FailureKind::Servers, "it is not known yet"))
            }
        }
    }

    fn is_denied(&self) -> bool {
        let failure = self.failure.as_ref();
        failure.is_some_and(|failure| failure.kind == FailureKind::None)
    }

    /// Stores an answer; returns the result for callers.
    fn learn(&mut self, host: &str, answer: &Resolved, (least, most): Bounds, now: u64) -> Outcome {
        self.answered = now;
        match &answer.failure {
            Some(failure) if answer.addresses.is_empty() => {
                if failure.kind == FailureKind::None {
                    self.addresses = Arc::new([]);
                    self.failures = 0;
                } else {
                    if self.failures == 0 && !self.addresses.is_empty() {
                        log::warn!(
                            "DNS lookup of {host} failed: {failure}; its last addresses are used, for at most an hour"
                        );
                    }
                    self.failures = self.failures.saturating_add(1);
                }
                let pause = least
                    .max(PAUSE)
                    .saturating_mul(1 << self.failures.clamp(1, 10) >> 1);
                self.due = now + micros(pause.min(MOST_PAUSE.max(least)));
                self.failure = Some(failure.clone());
                Err(failure.clone())
            }
            failure => {
                if self.failures > 0 && !self.addresses.is_empty() {
                    log::info!("DNS lookup of {host} works again");
                }
                let most = match failure {
                    // One family is not known yet.
                    Some(_) => most.min(MOST_PAUSE),
                    None => most,
                };
                let time = micros(answer.ttl.clamp(least, most.max(least)));
                // If a family got no answer, its last addresses stay valid.
                let held = match now < self.fresh_until + LAST_RESORT {
                    true => self.addresses.clone(),
                    false => Arc::new([]),
                };
                let held = held.iter().copied().filter(|ip| match ip {
                    IpAddr::V4(_) => answer.unknown_v4,
                    IpAddr::V6(_) => answer.unknown_v6,
                });
                let addresses: BTreeSet<IpAddr> =
                    answer.addresses.iter().copied().chain(held).collect();
                self.addresses = addresses.into_iter().collect();
                self.fresh_until = now + time;
                self.due = now + time / 5 * 4;
                (self.failure, self.failures) = (None, 0);
                Ok(self.addresses.clone())
            }
        }
    }
}

/// The task that keeps a name in the cache while it is used.
struct Task {
    names: Arc<Names>,
    name: Arc<str>,
    id: u64,
    bounds: Bounds,
    /// The next caller starts a new task.
    over: bool,
}

impl Task {
    async fn tend(mut self, mut tell: watch::Sender<Option<Outcome>>) {
        loop {
            self.look_up(&tell).await;
            let Some(due) = self.refresh_at() else {
                return;
            };
            tokio::time::sleep(Duration::from_micros(due.saturating_sub(clock::now()))).await;
            match self.again() {
                Some(next) => tell = next,
                None => return,
            }
        }
    }

    /// Looks up both families at once. Waiting callers get the first one that has addresses after a short delay,
    /// because the other one may follow at once. They do not wait longer if the name server does not answer for it
    /// (RFC 8305 §3).
    async fn look_up(&self, tell: &watch::Sender<Option<Outcome>>) {
        let resolver = &self.names.resolver;
        let mut v4 = resolver.half(&self.name, Family::V4);
        let mut v6 = resolver.half(&self.name, Family::V6);
        let pending = || Err(Failure::new(FailureKind::Timeout, "no answer yet"));
        let has_some = |half: &Half| half.as_ref().is_ok_and(|found| !found.addresses.is_empty());
        let (mut first, v4_is_first) = tokio::select! {
            half = &mut v4 => (half, true),
            half = &mut v6 => (half, false),
        };
        let answered = clock::now();
        let other = match v4_is_first {
            true => &mut v6,
            false => &mut v4,
        };
        let in_order = |first: Half, other: Half| match v4_is_first {
            true => Resolved::of(first, other),
            false => Resolved::of(other, first),
        };
        if has_some(&first) {
            match tokio::time::timeout(RESOLUTION_DELAY, &mut *other).await {
                Ok(other) => return self.learn(&in_order(first, other), tell, true),
                Err(_) => self.learn(&in_order(first.clone(), pending()), tell, false),
            }
        }
        let other = match has_some(&first) {
            true => tokio::time::timeout(OTHER_FAMILY, other).await,
            false => Ok(other.await),
        };
        if let Ok(found) = &mut first {
            let passed = Duration::from_micros(clock::now().saturating_sub(answered));
            found.ttl = found.ttl.saturating_sub(passed);
        }
        let other = other.unwrap_or_else(|_| pending());
        self.learn(&in_order(first, other), tell, true);
    }

    /// `whole`: this is the last result of this lookup.
    fn learn(&self, answer: &Resolved, tell: &watch::Sender<Option<Outcome>>, whole: bool) {
        let now = clock::now();
        let mut known = self.names.lock();
        let outcome = match self.entry(&mut known) {
            Some(entry) => {
                let outcome = entry.learn(&self.name, answer, self.bounds, now);
                if whole {
                    entry.looking = None;
                }
                outcome
            }
            // The name was removed meanwhile; waiting callers still get the result.
            None => CachedName::default().learn(&self.name, answer, self.bounds, now),
        };
        drop(known);
        if whole {
            self.names.counters.looked_up(outcome.is_ok());
        }
        tell.send_replace(Some(outcome));
    }

    /// When to look it up again; `None`: the next caller starts the lookup, because the answer has no such time, or
    /// the name is gone.
    fn refresh_at(&mut self) -> Option<u64> {
        let names = self.names.clone();
        let mut known = names.lock();
        let entry = self.entry(&mut known)?;
        let long_enough = entry.due.saturating_sub(entry.answered) >= LEAST_REST;
        let rests = long_enough && !entry.is_denied();
        let due = entry.due;
        if !rests {
            entry.task = None;
        }
        self.over = !rests;
        rests.then_some(due)
    }

    /// Starts another lookup if the name was used since the last one; otherwise the next caller does that.
    fn again(&mut self) -> Option<watch::Sender<Option<Outcome>>> {
        let names = self.names.clone();
        let mut known = names.lock();
        let entry = self.entry(&mut known)?;
        if entry.used <= entry.answered {
            entry.task = None;
            self.over = true;
            return None;
        }
        let (tell, looking) = watch::channel(None);
        entry.looking = Some(looking);
        Some(tell)
    }

    /// `None`: the name was removed, or has another task.
    fn entry<'a>(&self, known: &'a mut NameCache) -> Option<&'a mut CachedName> {
        let entry = known.entries.get_mut(&self.name);
        entry.filter(|entry| entry.task == Some(self.id))
    }
}

/// Its runtime has ended: the next caller starts another task.
impl Drop for Task {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut known = self.names.lock();
        if let Some(entry) = self.entry(&mut known) {
            entry.task = None;
            entry.looking = None;
        }
    }
}

fn fault(host: &str, failure: &Failure) -> Fault {
    let (kind, mend) = match failure.kind {
        FailureKind::None => (
            Kind::DnsError,
            "check the spelling, and that weir's DNS servers know the name",
        ),
        FailureKind::Timeout => (
            Kind::DnsTimeout,
            "check that the DNS servers in /etc/resolv.conf, or in resolver of [server], can be reached",
        ),
        FailureKind::Servers => (
            Kind::DnsError,
            "check the DNS servers in /etc/resolv.conf, or in resolver of [server]",
        ),
    };
    Fault::unsent(
        kind,
        format!("DNS lookup of {host} failed: {failure}; {mend}"),
    )
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 4)
}

/// For how long after its time the last good answer is used while name servers fail, µs.
const LAST_RESORT: u64 = 3600 * 1_000_000;

/// How long a caller waits for a new answer if the last good one could be used (RFC 8767 §5); at most half of its
/// time.
const PATIENCE: Duration = Duration::from_millis(1800);

/// How long callers wait for the other family after the first one is known (RFC 8305 §3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// How long the lookup itself waits for it, so that the first result does not become too old.
const OTHER_FAMILY: Duration = Duration::from_secs(5);

/// Minimum pause before a failed lookup is repeated; it doubles each time.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum of that pause, if `resolve_min` is not longer.
const MOST_PAUSE: Duration = Duration::from_secs(10);

/// Answers that are valid for a shorter time are looked up only on demand, µs.
const LEAST_REST: u64 = 500_000;

#[cfg(test)]
mod tests;
