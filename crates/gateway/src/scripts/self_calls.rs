//! Finds out whether a request comes from a script of weir's own workers, and from which worker.
//!
//! Such a call needs a worker while its caller occupies one. If all workers wait for such calls, no worker can answer
//! them. So calls that would have to wait are checked. For a unix socket the kernel names the process that has
//! connected. For TCP from this machine the kernel names the socket at the other end, and /proc tells which process has
//! it. Only connections from this machine are checked, only while their request waits, and only a limited number of
//! times per second. The result is kept with the connection. If the gateway may not inspect workers, the manager is
//! asked, at a limited rate.

pub(crate) mod callers;
mod finder;

use std::{
    collections::HashMap,
    net::{SocketAddr, SocketAddrV4},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use weir_pool::{EventRate, Micros, TokenBucket};
use weir_sys::{
    process,
    socket_owners::{self, Owner, is_local, may_be_of},
};

use self::finder::Finding;
pub(crate) use self::finder::PendingLookup;
use crate::{Gateway, clock};

/// The origin of a client's connection.
#[derive(Debug)]
pub(crate) struct ConnectionOrigin {
    kind: Kind,
    /// The process id of the worker that made it; 0: not known.
    worker: AtomicU32,
    /// Number of failed lookups.
    vain: AtomicU32,
    /// By which [`SOURCES`] knows it; 0: no worker had a request of it yet.
    number: AtomicU32,
}

/// Origins whose requests workers had, as long as their connections last.
#[derive(Default)]
struct Sources {
    by_number: HashMap<u32, Weak<ConnectionOrigin>>,
    last: u32,
}

/// Who has sent a request.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    pub(crate) source: Arc<ConnectionOrigin>,
    /// The worker that the request identifies by a ticket ([`weir_interfaces::self_call`]); 0: none.
    pub(crate) named: u32,
}

/// Small, because each connection has one.
#[derive(Debug, Clone)]
enum Kind {
    Unix(u32),
    Here4 {
        own: SocketAddrV4,
        peer: SocketAddrV4,
    },
    Here(Box<(SocketAddr, SocketAddr)>),
    Elsewhere,
}

/// Finds the workers that make calls.
#[derive(Default)]
pub(crate) struct SelfCalls {
    sockets: socket_owners::Callers,
    turns: Mutex<Turns>,
    finder: Finding,
}

/// When lookups are allowed.
struct Turns {
    bucket: TokenBucket,
    /// Time between two lookups.
    pause: Duration,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            bucket: TokenBucket::new(EventRate::new(PAUSE, AT_ONCE)),
            pause: PAUSE,
        }
    }
}

enum Found {
    Worker(u32),
    /// The socket has this inode, but the gateway may not see which process has it.
    Barred(u32),
    /// The socket's user is not the user of any of these workers, so it is not theirs.
    OtherUser,
    Nobody,
}

impl ConnectionOrigin {
    /// `pid`: the process at the other end of a unix socket.
    pub(crate) fn new(
        peer: Option<SocketAddr>,
        local: Option<SocketAddr>,
        pid: Option<u32>,
    ) -> Arc<ConnectionOrigin> {
        let kind = match (peer, local, pid) {
            (Some(SocketAddr::V4(peer)), Some(SocketAddr::V4(own)), _)
                if is_local(own.into(), peer.into()) =>
            {
                Kind::Here4 { own, peer }
            }
            (Some(peer), Some(own), _) if is_local(own, peer) => Kind::Here(Box::new((own, peer))),
            (None, _, Some(pid)) => Kind::Unix(pid),
            _ => return ELSEWHERE.clone(),
        };
        Arc::new(ConnectionOrigin::of(kind))
    }

    const fn of(kind: Kind) -> ConnectionOrigin {
        ConnectionOrigin {
            kind,
            worker: AtomicU32::new(0),
            vain: AtomicU32::new(0),
            number: AtomicU32::new(0),
        }
    }

    /// A number for the sender of a request, with which [`Requester::numbered`] finds it until its connection ends. `named`: the
    /// worker that the request identifies. 0: it cannot be a worker.
    pub(crate) fn number(self: &Arc<Self>, named: u32) -> u64 {
        if !self.may_be_worker(named) {
            return 0;
        }
        // Only the reactor of its connection comes here.
        let number = match self.number.load(Relaxed) {
            0 => self.register(),
            number => number,
        };
        u64::from(number) << 32 | u64::from(named)
    }

    #[cold]
    fn register(self: &Arc<Self>) -> u32 {
        let mut sources = sources();
        let mut number = sources.last.wrapping_add(1).max(1);
        while sources.by_number.contains_key(&number) {
            number = number.wrapping_add(1).max(1);
        }
        sources.last = number;
        sources.by_number.insert(number, Arc::downgrade(self));
        self.number.store(number, Relaxed);
        number
    }

    /// Whether the client may be a worker, or has said which worker it is (`named`).
    pub(crate) fn may_be_worker(&self, named: u32) -> bool {
        named != 0 || self.worker.load(Relaxed) != 0 || self.may_be_found()
    }

    /// Whether the client may be a worker that is not known yet.
    fn may_be_found(&self) -> bool {
        !matches!(self.kind, Kind::Elsewhere) && self.vain.load(Relaxed) < MOST_LOOKS
    }
}

impl Requester {
    /// The one with this number ([`ConnectionOrigin::number`]); `None`: the client has left.
    pub(crate) fn numbered(number: u64) -> Option<Requester> {
        let source = sources()
            .by_number
            .get(&((number >> 32) as u32))?
            .upgrade()?;
        let named = number as u32;
        Some(Requester { source, named })
    }

    /// The worker at the other end, if it is known.
    pub(crate) fn worker(&self) -> Option<u32> {
        let found = || Some(self.source.worker.load(Relaxed)).filter(|pid| *pid != 0);
        self.named().or_else(found)
    }

    fn named(&self) -> Option<u32> {
        Some(self.named).filter(|pid| *pid != 0)
    }

    /// Whether a worker is known, or may still be found.
    pub(crate) fn may_be_worker(&self) -> bool {
        self.source.may_be_worker(self.named)
    }
}

impl Drop for ConnectionOrigin {
    fn drop(&mut self) {
        let number = *self.number.get_mut();
        if number != 0 {
            sources().by_number.remove(&number);
        }
    }
}

impl SelfCalls {
    /// Takes the right to a lookup.
    ///
    /// # Errors
    ///
    /// When the next one is allowed ([`clock::now`]).
    fn turn(&self, now: u64) -> Result<(), u64> {
        let taken = self.turns().bucket.take(Micros(now));
        taken.map_err(|next| next.0)
    }

    /// Records whether a lookup has found a worker. If most clients that wait are not workers (a proxy on this
    /// machine), lookups become rarer.
    fn looked(&self, found: bool, now: u64) {
        let mut turns = self.turns();
        let pause = match found {
            true => PAUSE,
            false => (turns.pause + PAUSE / 5).min(LONGEST_TURN),
        };
        if pause != turns.pause {
            turns.pause = pause;
            let rate = EventRate::new(pause, AT_ONCE);
            turns.bucket.set_rate(Micros(now), rate);
        }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Searches /proc; may take some hundred microseconds.
    fn look(&self, kind: &Kind, busy: &[u32]) -> Found {
        match kind {
            Kind::Elsewhere => Found::Nobody,
            Kind::Unix(pid) => process::nearest(*pid, |pid| busy.contains(&pid))
                .map_or(Found::Nobody, Found::Worker),
            Kind::Here4 { own, peer } => self.look_at((*own).into(), (*peer).into(), busy),
            Kind::Here(ends) => self.look_at(ends.0, ends.1, busy),
        }
    }

    fn look_at(&self, own: SocketAddr, peer: SocketAddr, busy: &[u32]) -> Found {
        let Some(socket) = self.sockets.socket(own, peer) else {
            return Found::Nobody;
        };
        // Most clients of this machine, such as a proxy, have a user of their own.
        if !busy.iter().any(|pid| may_be_of(*pid, socket.uid)) {
            return Found::OtherUser;
        }
        match self.sockets.owner(socket.inode, busy) {
            Owner::Process(pid) => Found::Worker(pid),
            Owner::Barred => Found::Barred(socket.inode),
            Owner::Nobody | Owner::Later => Found::Nobody,
        }
    }
}

impl Gateway {
    /// Makes one lookup of the worker that has sent a request, if it is allowed now.
    pub(crate) async fn caller(&'static self, asker: &Requester) -> Option<u32> {
        match self.known_caller(asker) {
            Some(known) => known,
            None if self.self_calls.turn(clock::now()).is_err() => None,
            None => self.look_up(&asker.source).await,
        }
    }

    /// The worker, if it is known without a lookup. `Some(None)`: the client is not a worker.
    fn known_caller(&self, asker: &Requester) -> Option<Option<u32>> {
        if let Some(named) = asker.named() {
            return Some(Some(named).filter(|pid| self.busy_workers().contains(pid)));
        }
        let source = &asker.source;
        let known = source.worker.load(Relaxed);
        if known != 0 {
            let works = self.busy_workers().contains(&known);
            if !works {
                source.vain.store(MOST_LOOKS, Relaxed);
            }
            return Some(works.then_some(known));
        }
        (!source.may_be_found()).then_some(None)
    }

    /// The process ids of workers that have a request.
    fn busy_workers(&self) -> Vec<u32> {
        let workers = self.pools.iter().flat_map(|pool| pool.at_work());
        workers.map(|(_, pid)| pid).collect()
    }

    async fn look_up(&'static self, source: &ConnectionOrigin) -> Option<u32> {
        let busy = self.busy_workers();
        if busy.is_empty() {
            source.vain.store(MOST_LOOKS, Relaxed);
            return None;
        }
        let (gateway, kind) = (self, source.kind.clone());
        let looked =
            tokio::task::spawn_blocking(move || gateway.self_calls.look(&kind, &busy)).await;
        let worker = match looked {
            Ok(Found::Worker(pid)) => Some(pid),
            Ok(Found::Barred(inode)) => {
                let asked = callers::owner_of(self, inode);
                match tokio::time::timeout(LONGEST, asked).await {
                    Ok(found) => found,
                    // This error says nothing about the client.
                    Err(_) => return None,
                }
            }
            Ok(Found::OtherUser) => {
                source.vain.store(MOST_LOOKS, Relaxed);
                None
            }
            Ok(Found::Nobody) | Err(_) => None,
        };
        self.self_calls.looked(worker.is_some(), clock::now());
        match worker {
            Some(pid) => source.worker.store(pid, Relaxed),
            None => drop(source.vain.fetch_add(1, Relaxed)),
        }
        worker
    }
}

fn sources() -> MutexGuard<'static, Sources> {
    SOURCES.lock().unwrap_or_else(PoisonError::into_inner)
}

static SOURCES: LazyLock<Mutex<Sources>> = LazyLock::new(Mutex::default);

/// All clients of other machines: nothing is ever found of them.
static ELSEWHERE: LazyLock<Arc<ConnectionOrigin>> =
    LazyLock::new(|| Arc::new(ConnectionOrigin::of(Kind::Elsewhere)));

/// Maximum number of failed lookups for one connection.
const MOST_LOOKS: u32 = 8;

/// Minimum time between two lookups: 200 per second, and 20 if none finds a worker.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_TURN: Duration = Duration::from_millis(50);

/// Lookups that are allowed in a row after a quiet time.
const AT_ONCE: u64 = 200;

/// How long the manager may take to answer.
const LONGEST: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_of_this_machine_are_looked_at_and_not_without_end() {
        let address = |text: &str| text.parse().ok();
        let here = ConnectionOrigin::new(address("127.0.0.1:5"), address("127.0.0.1:80"), None);
        assert!(here.may_be_found());
        here.vain.store(MOST_LOOKS, Relaxed);
        assert!(!here.may_be_found());
        let own = ConnectionOrigin::new(address("192.0.2.1:5"), address("192.0.2.1:80"), None);
        assert!(own.may_be_found());
        let away = ConnectionOrigin::new(address("192.0.2.2:5"), address("192.0.2.1:80"), None);
        assert!(!away.may_be_found());
        assert!(ConnectionOrigin::new(None, None, Some(7)).may_be_found());
        assert!(!ConnectionOrigin::new(None, None, None).may_be_found());
        let calls = SelfCalls::default();
        let looks = |now| (0..1_000).filter(|_| calls.turn(now).is_ok()).count();
        assert_eq!(looks(60_000_000), 200);
        assert_eq!(calls.turn(60_005_000), Ok(()));
        assert_eq!(calls.turn(60_005_001), Err(60_010_000));
        // Clients that are not workers cost less and less.
        (0..1_000).for_each(|_| calls.looked(false, 60_010_000));
        assert!(calls.turn(61_000_000).is_ok());
        let in_a_second = (0..1_000)
            .filter(|n| calls.turn(100_000_000 + n * 1_000).is_ok())
            .count();
        assert!(in_a_second > 200);
        assert_eq!(
            (0..1_000)
                .filter(|n| calls.turn(101_000_000 + n * 1_000).is_ok())
                .count(),
            20
        );
        calls.looked(true, 102_000_000);
        let more = (0..1_000)
            .filter(|n| calls.turn(102_000_000 + n * 1_000).is_ok())
            .count();
        assert!(more > 150, "{more}");
    }

    #[test]
    fn the_sender_of_a_request_is_known_by_its_number_until_its_connection_ends() {
        let address = |text: &str| text.parse().ok();
        let here = ConnectionOrigin::new(address("127.0.0.1:5"), address("127.0.0.1:80"), None);
        let number = here.number(9);
        assert_eq!(here.number(0) >> 32, number >> 32, "it has one number");
        let asker = Requester::numbered(number).unwrap();
        assert!(Arc::ptr_eq(&asker.source, &here) && asker.named == 9);
        drop(asker);
        drop(here);
        assert!(Requester::numbered(number).is_none());
        let away = ConnectionOrigin::new(address("192.0.2.2:5"), address("192.0.2.1:80"), None);
        assert_eq!(away.number(0), 0);
        let named = away.number(9);
        assert_eq!(Requester::numbered(named).unwrap().worker(), Some(9));
    }

    #[test]
    fn a_worker_is_found_by_its_connection_and_by_what_it_has_started() {
        let calls = SelfCalls::default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let own = listener.local_addr().expect("an address");
        let client = std::net::TcpStream::connect(own).expect("a connection");
        let peer = client.local_addr().expect("an address");
        let us = std::process::id();
        let kind = ConnectionOrigin::new(Some(peer), Some(own), None)
            .kind
            .clone();
        let found = calls.look(&kind, &[us]);
        assert!(matches!(found, Found::Worker(pid) if pid == us));
        let other = calls.look(&kind, &[1]);
        assert!(!matches!(other, Found::Worker(_)));
    }
}
