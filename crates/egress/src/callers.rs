//! Finds out who makes a call: which worker of which pool, and until when the worker's own request may last.
//!
//! For a unix socket the kernel names the process that has connected. For TCP the kernel names the socket at the
//! other end, and /proc tells which process has it. That lookup costs more than a short call. So it starts when a
//! call has lasted for [`LOOK_AFTER`], on a blocking thread, only among busy workers, and a limited number of times
//! per second ([`BURST`], [`PAUSE`]). If the gateway may not look into /proc (another user, a process that is not
//! dumpable), the manager is asked. A call never waits for this lookup: if it ends earlier, its caller stays unknown.
//! After [`MOST_LOOKS`] failed lookups a connection is not checked any more: it does not belong to a worker.
//!
//! A process that is not a worker counts as the worker that has started it, a few levels up ([`process::nearest`]). For
//! TCP only workers themselves are checked.
//!
//! After a reload, workers of the earlier configuration finish their requests and may make new calls. This gateway does
//! not know them; the manager does, and is asked last.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::SocketAddr,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use weir_control::CallSource;
use weir_interfaces::{
    egress::{WorkerNow, Workers},
    self_call::Ticket,
};
use weir_observe::clock::{self, NEVER};
use weir_pool::{EventRate, Micros, TokenBucket};
use weir_sys::{
    process, socket,
    socket_owners::{self, Owner, is_local},
};

use super::{record::Caller, rules::Who};

/// Finds the callers.
pub(crate) struct Callers {
    workers: Arc<dyn Workers>,
    /// The pools that run as a user of their own, with the user's number.
    users: Vec<(Arc<str>, u32)>,
    looks: Mutex<TokenBucket>,
    sockets: socket_owners::Callers,
}

/// The other end of a caller's connection.
pub(crate) struct Peer {
    callers: Arc<Callers>,
    kind: Kind,
    /// Whether its calls need the token, if there is one.
    needs_token: bool,
    /// The worker of an earlier configuration that it belongs to, and that worker's pool.
    former: Mutex<Option<(u32, Arc<str>)>>,
    /// The process id of its worker; 0: not known.
    worker: AtomicU32,
    /// When it was found, for TCP ([`clock::now`]).
    found_at: AtomicU64,
    /// Number of failed lookups.
    vain: AtomicU32,
}

/// A call, and the known data of its caller.
pub(crate) struct ActiveCall {
    peer: Arc<Peer>,
    /// The worker, and its request when the call was tied to it.
    worker: Mutex<Option<(u32, WorkerNow)>>,
    /// When the call began ([`clock::now`]).
    since: u64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// The process that has connected; `None` if it is in another pid namespace.
    Unix(Option<Peercred>),
    Tcp {
        own: SocketAddr,
        peer: SocketAddr,
    },
}

/// The kernel's data about the process that has connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Peercred {
    pid: u32,
    uid: u32,
}

/// The result of a lookup.
enum LookupResult {
    Worker(u32),
    /// The socket has this inode, but the gateway may not see which process has it.
    Barred(u32),
    /// The socket has this number, if it is known.
    Nobody {
        inode: Option<u32>,
    },
}

impl Callers {
    /// Ties calls to these workers. `users`: the users of the pools.
    pub(crate) fn new(workers: Arc<dyn Workers>, users: Vec<(Arc<str>, u32)>) -> Arc<Callers> {
        Arc::new(Callers {
            workers,
            users,
            looks: Mutex::new(TokenBucket::new(EventRate::new(PAUSE, BURST))),
            sockets: socket_owners::Callers::default(),
        })
    }

    /// The peer of a unix stream.
    /// `is_own`: it came over the workers' own socket.
    pub(crate) fn over_unix(self: &Arc<Callers>, stream: impl AsFd, is_own: bool) -> Arc<Peer> {
        let peer = socket::peer_process(stream.as_fd());
        let peer = peer.map(|(pid, uid)| Peercred { pid, uid });
        self.peer(Kind::Unix(peer), is_own)
    }

    /// The peer of a TCP connection: `own` is weir's address.
    pub(crate) fn over_tcp(self: &Arc<Callers>, own: SocketAddr, peer: SocketAddr) -> Arc<Peer> {
        self.peer(Kind::Tcp { own, peer }, true)
    }

    fn peer(self: &Arc<Callers>, kind: Kind, needs_token: bool) -> Arc<Peer> {
        Arc::new(Peer {
            callers: self.clone(),
            kind,
            needs_token,
            former: Mutex::default(),
            worker: AtomicU32::new(match kind {
                Kind::Unix(Some(peer)) => peer.pid,
                Kind::Unix(None) | Kind::Tcp { .. } => 0,
            }),
            found_at: AtomicU64::new(0),
            vain: AtomicU32::new(match kind {
                Kind::Unix(Some(_)) => 0,
                Kind::Tcp { own, peer } if is_local(own, peer) => 0,
                Kind::Unix(None) | Kind::Tcp { .. } => MOST_LOOKS,
            }),
        })
    }

    fn may_look(&self) -> bool {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.take(Micros(clock::now())).is_ok()
    }

    /// Searches /proc; may take some hundred microseconds.
    fn look(&self, kind: Kind) -> LookupResult {
        match kind {
            Kind::Unix(None) => LookupResult::Nobody { inode: None },
            Kind::Unix(Some(Peercred { pid, .. })) => {
                let is_worker = |pid: u32| self.workers.of_pid(pid).is_some();
                let nobody = LookupResult::Nobody { inode: None };
                process::nearest(pid, is_worker).map_or(nobody, LookupResult::Worker)
            }
            Kind::Tcp { own, peer } => {
                let pids = self.workers.busy_pids();
                let Some(socket) = self.sockets.socket(own, peer) else {
                    return LookupResult::Nobody { inode: None };
                };
                let inode = socket.inode;
                match self.sockets.owner(inode, &pids) {
                    Owner::Process(pid) => LookupResult::Worker(pid),
                    Owner::Barred => LookupResult::Barred(inode),
                    Owner::Nobody | Owner::Later => LookupResult::Nobody { inode: Some(inode) },
                }
            }
        }
    }
}

impl Peer {
    /// The user that has connected (uid), over a unix socket.
    pub(crate) fn uid(&self) -> Option<u32> {
        match self.kind {
            Kind::Unix(peer) => peer.map(|peer| peer.uid),
            Kind::Tcp { .. } => None,
        }
    }

    /// A call has begun on this connection.
    pub(crate) fn calls(self: &Arc<Peer>) -> ActiveCall {
        let calling = ActiveCall {
            peer: self.clone(),
            worker: Mutex::new(None),
            since: clock::now(),
        };
        calling.tie();
        calling
    }

    /// Looks for the worker, if a lookup is allowed now. Returns whether it is known.
    async fn find(self: &Arc<Peer>) -> bool {
        if !self.callers.may_look() {
            return false;
        }
        let peer = self.clone();
        let looked = tokio::task::spawn_blocking(move || peer.callers.look(peer.kind)).await;
        let workers = &self.callers.workers;
        let found = looked.unwrap_or(LookupResult::Nobody { inode: None });
        let worker = match found {
            LookupResult::Worker(pid) => Some(pid),
            LookupResult::Barred(inode) => workers.owner(inode).await,
            LookupResult::Nobody { .. } => None,
        };
        let worker = match worker {
            Some(pid) => Some(pid),
            // Only the manager knows the worker of a script that still runs after a reload.
            None => {
                let whose = match (self.kind, found) {
                    (Kind::Unix(Some(peer)), _) => Some(CallSource::Process(peer.pid)),
                    (Kind::Unix(None), _) | (_, LookupResult::Worker(_)) => None,
                    (Kind::Tcp { .. }, LookupResult::Barred(inode)) => {
                        Some(CallSource::Socket(inode))
                    }
                    (Kind::Tcp { .. }, LookupResult::Nobody { inode }) => {
                        inode.map(CallSource::Socket)
                    }
                };
                let former = match whose {
                    Some(whose) => workers.former(whose).await,
                    None => None,
                };
                let pid = former.as_ref().map(|(pid, _)| *pid);
                if former.is_some() {
                    *self.former() = former;
                }
                pid
            }
        };
        match worker {
            Some(worker) => {
                self.found_at.store(clock::precise(), Relaxed);
                self.worker.store(worker, Relaxed);
            }
            None => drop(self.vain.fetch_add(1, Relaxed)),
        }
        worker.is_some()
    }

    fn former(&self) -> MutexGuard<'_, Option<(u32, Arc<str>)>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current request of its worker; `None`: the worker is not known, or has no request.
    fn now(&self, pid: u32) -> Option<WorkerNow> {
        let now = self.callers.workers.of_pid(pid);
        now.or_else(|| {
            let former = self.former();
            let (_, pool) = former.as_ref().filter(|(worker, _)| *worker == pid)?;
            Some(WorkerNow {
                pool: pool.clone(),
                request: UNKNOWN,
                deadline: NEVER,
            })
        })
    }

    /// Whether another lookup may find it.
    fn may_be_found(&self) -> bool {
        self.vain.load(Relaxed) < MOST_LOOKS
    }
}

impl ActiveCall {
    /// Whether the call needs the token, if there is one.
    pub(crate) fn needs_token(&self) -> bool {
        self.peer.needs_token
    }

    /// The address of the caller; `None` for a unix socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self.peer.kind {
            Kind::Unix(_) => None,
            Kind::Tcp { peer, .. } => Some(peer),
        }
    }

    /// The client for the queue: all calls of a pool share one turn; 0: not known.
    pub(crate) fn client(&self) -> u64 {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        worker.as_ref().map_or(0, |(_, now)| {
            let mut hasher = DefaultHasher::new();
            now.pool.hash(&mut hasher);
            hasher.finish()
        })
    }

    /// The caller, if it is known now.
    pub(crate) fn caller(&self) -> Caller {
        let (address, process) = match self.peer.kind {
            Kind::Unix(process) => (None, process.map(|process| process.pid)),
            Kind::Tcp { peer, .. } => (Some(peer), None),
        };
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        match &*worker {
            Some((pid, now)) => Caller {
                address,
                pid: Some(*pid),
                pool: Some(now.pool.clone()),
                request: Some(now.request).filter(|request| *request != UNKNOWN),
            },
            None => Caller {
                address,
                pid: process,
                ..Caller::default()
            },
        }
    }

    /// Finds out the caller for a call that may not be made without that: waits until a lookup is allowed.
    pub(crate) async fn identify(&self) {
        let until = clock::deadline(MOST_IDENTIFY);
        if let Kind::Tcp { .. } = self.peer.kind
            && clock::precise().saturating_sub(self.peer.found_at.load(Relaxed)) > FOUND_FOR
        {
            // An earlier result does not count: another process may have the connection now, and the process id may
            // belong to another worker.
            *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = None;
            self.peer.worker.store(0, Relaxed);
            *self.peer.former() = None;
        }
        while !self.is_tied() && self.peer.may_be_found() && clock::precise() < until {
            match self.peer.find().await {
                true => self.tie(),
                false => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// For a call to a site of this weir: a ticket that identifies its worker there, as long as it
    /// exists. `None`: it is not such a call, or no worker makes it.
    pub(crate) async fn self_call(&self, host: &str, address: SocketAddr) -> Option<Ticket> {
        if !self.peer.callers.workers.serves(host, address) {
            return None;
        }
        // It is rare, and its future is large.
        Box::pin(self.identify()).await;
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let (pid, _) = worker.as_ref().filter(|(_, now)| now.request != UNKNOWN)?;
        Some(Ticket::new(*pid))
    }

    /// The caller according to the kernel: the worker, if it is known by now, otherwise the pools of its user.
    pub(crate) fn who(&self) -> Who {
        let uid = match self.peer.kind {
            Kind::Unix(peer) => peer.map(|peer| peer.uid),
            Kind::Tcp { .. } => None,
        };
        let users = &self.peer.callers.users;
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = worker.as_ref().map(|(_, now)| now.pool.clone());
        // The process id of an ended process may have been reused by a worker.
        let is_another = |pool: &Arc<str>| {
            let own = users.iter().find(|(name, _)| name == pool);
            matches!((own, uid), (Some((_, own)), Some(uid)) if *own != uid)
        };
        let of_user = users.iter().filter(|(_, own)| Some(*own) == uid);
        Who {
            pool: pool.filter(|pool| !is_another(pool)),
            of_user: of_user.map(|(name, _)| name.clone()).collect(),
        }
    }

    /// Until when the call may last ([`clock::now`]), by what is known now; [`NEVER`]: nothing is known.
    ///
    /// This is a little before the deadline of the request that the call belongs to, so that the script can still
    /// react: a twentieth of the time that was left when the call began, at most [`MOST_MARGIN`].
    pub(crate) fn deadline(&self) -> u64 {
        let tied = {
            let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
            worker.as_ref().map(|(pid, now)| (*pid, now.request))
        };
        // If the request's answer has begun meanwhile, there is no deadline any more.
        let now = tied.and_then(|(pid, request)| {
            let now = self.peer.callers.workers.of_pid(pid)?;
            (now.request == request).then_some(now)
        });
        match now {
            Some(WorkerNow { deadline, .. }) if deadline != NEVER => {
                let left = deadline.saturating_sub(self.since);
                deadline - (left / 20).min(MOST_MARGIN.as_micros() as u64)
            }
            _ => NEVER,
        }
    }

    /// Waits until [`deadline`](Self::deadline), and looks for the caller meanwhile. It must be polled as long as the
    /// call lasts, and may be dropped at any time. `until` waits until a time ([`clock::now`]).
    pub(crate) async fn over<W: Future<Output = ()>>(&self, until: impl Fn(u64) -> W) {
        let mut pause = LOOK_AFTER;
        while !self.is_tied() {
            if !self.peer.may_be_found() {
                return std::future::pending().await;
            }
            until(clock::deadline(pause)).await;
            pause = (pause * 4).min(LONGEST_PAUSE);
            if Box::pin(self.peer.find()).await {
                self.tie();
            }
        }
        loop {
            match self.deadline() {
                NEVER => return std::future::pending().await,
                deadline if deadline <= clock::now() => return,
                deadline => until(deadline).await,
            }
        }
    }

    fn is_tied(&self) -> bool {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        worker.is_some()
    }

    /// Notes the worker's request, if the worker is known and has one.
    fn tie(&self) {
        let pid = self.peer.worker.load(Relaxed);
        if pid == 0 {
            return;
        }
        if let Some(now) = self.peer.now(pid) {
            *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some((pid, now));
        }
    }
}

/// Stands for the request of a worker of an earlier configuration.
const UNKNOWN: u64 = 0;

/// Shorter calls are not looked up.
const LOOK_AFTER: Duration = Duration::from_millis(10);

/// Maximum pause between two lookups for the same call. Pauses start at 10 ms; each is four times as long as the
/// last.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// For how long the result of a TCP lookup is used if rules depend on the caller, µs.
const FOUND_FOR: u64 = 1_000_000;

/// How long a call may wait until its caller is found, if it is not allowed without a known caller.
const MOST_IDENTIFY: Duration = Duration::from_secs(2);

/// Maximum number of failed lookups per connection.
const MOST_LOOKS: u32 = 4;

/// Lookups at once, and the time after which one more is allowed: a hundred per second.
const BURST: u64 = 50;
const PAUSE: Duration = Duration::from_millis(10);

/// How long before its request's deadline a call ends, at most.
const MOST_MARGIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        os::unix::net::UnixStream,
    };

    use super::*;
    use weir_interfaces::admin::Task;

    /// One worker: this process, or what the manager would report.
    struct One {
        pid: u32,
        now: Mutex<Option<WorkerNow>>,
        /// The pool of which this process was a worker before a reload.
        former: Option<Arc<str>>,
    }

    impl Workers for One {
        fn of_pid(&self, pid: u32) -> Option<WorkerNow> {
            let now = self.now.lock().expect("no panic").clone();
            now.filter(|_| pid == self.pid)
        }

        fn busy_pids(&self) -> Vec<u32> {
            vec![self.pid]
        }

        fn owner(&self, _: u32) -> Task<Option<u32>> {
            Box::pin(async { None })
        }

        fn serves(&self, host: &str, _: SocketAddr) -> bool {
            host == "own.example"
        }

        fn former(&self, whose: CallSource) -> Task<Option<(u32, Arc<str>)>> {
            let is_us = whose == CallSource::Process(std::process::id());
            let found = self.former.clone().filter(|_| is_us);
            Box::pin(async { found.map(|pool| (7, pool)) })
        }
    }

    fn works(deadline: u64) -> Option<WorkerNow> {
        Some(WorkerNow {
            pool: "shop".into(),
            request: 42,
            deadline,
        })
    }

    fn one(deadline: u64) -> (Arc<One>, Arc<Callers>) {
        let one = Arc::new(One {
            pid: std::process::id(),
            now: Mutex::new(works(deadline)),
            former: None,
        });
        let users = vec![("shop".into(), own_uid())];
        (one.clone(), Callers::new(one, users))
    }

    fn own_uid() -> u32 {
        weir_sys::identity::current().0
    }

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    }

    #[test]
    fn a_worker_that_connects_over_a_unix_socket_is_known_at_once() {
        let (_, callers) = one(NEVER);
        let (here, _there) = UnixStream::pair().expect("a pair");
        let caller = callers.over_unix(&here, false).calls().caller();
        assert_eq!(caller.pid, Some(std::process::id()));
        assert_eq!(caller.pool.as_deref(), Some("shop"));
        assert_eq!((caller.request, caller.address), (Some(42), None));
    }

    async fn sleep_until(at: u64) {
        tokio::time::sleep(Duration::from_micros(at.saturating_sub(clock::now()))).await;
    }

    #[test]
    fn a_worker_that_connects_over_tcp_is_found_while_it_waits() {
        let (_, callers) = one(NEVER);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let at = listener.local_addr().expect("an address");
        let _client = TcpStream::connect(at).expect("a connection");
        let (_, peer) = listener.accept().expect("a caller");
        let calling = callers.over_tcp(at, peer).calls();
        assert_eq!(calling.caller().pid, None);
        assert_eq!(calling.caller().address, Some(peer));
        runtime().block_on(async {
            let known = async {
                while !calling.is_tied() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                () = calling.over(sleep_until) => panic!("it has no deadline"),
                () = known => {}
                () = tokio::time::sleep(Duration::from_secs(30)) => panic!("it is not found"),
            }
        });
        assert_eq!(calling.caller().pool.as_deref(), Some("shop"));
        // The next call on this connection is tied at once.
        assert!(calling.peer.calls().is_tied());
    }

    #[test]
    fn a_call_is_over_a_little_before_its_request_is() {
        let deadline = clock::now() + 200_000;
        let (one, callers) = one(deadline);
        let (here, _there) = UnixStream::pair().expect("a pair");
        let peer = callers.over_unix(&here, false);
        let calling = peer.calls();
        let until = calling.deadline();
        assert!(until < deadline && until > deadline - 11_000, "{until}");
        runtime().block_on(calling.over(sleep_until));
        assert!(clock::now() >= until);
        // Its answer has begun, so there is no deadline any more.
        *one.now.lock().expect("no panic") = works(NEVER);
        assert_eq!(calling.deadline(), NEVER);
        // The worker has another request, to which this call does not belong.
        let mut other = works(deadline).expect("some");
        other.request = 43;
        *one.now.lock().expect("no panic") = Some(other);
        assert_eq!(calling.deadline(), NEVER);
        assert_eq!(calling.caller().request, Some(42));
        *one.now.lock().expect("no panic") = None;
        assert_eq!(peer.calls().caller().pool, None);
    }

    #[test]
    fn a_worker_of_an_earlier_configuration_calls_for_its_pool() {
        let one = Arc::new(One {
            pid: 0,
            now: Mutex::new(None),
            former: Some("blog".into()),
        });
        let callers = Callers::new(one, Vec::new());
        let (here, _there) = UnixStream::pair().expect("a pair");
        let peer = callers.over_unix(&here, false);
        for _ in 0..2 {
            // A later call of the same connection, too.
            let calling = peer.calls();
            runtime().block_on(calling.identify());
            assert_eq!(calling.who().pool.as_deref(), Some("blog"));
            let caller = calling.caller();
            assert_eq!((caller.pid, caller.request), (Some(7), None));
            assert_eq!(calling.deadline(), NEVER);
        }
    }

    #[test]
    fn nobodys_caller_is_not_looked_for_without_end() {
        let (one, callers) = one(NEVER);
        *one.now.lock().expect("no panic") = None;
        let (here, _there) = UnixStream::pair().expect("a pair");
        let peer = callers.over_unix(&here, false);
        let calling = peer.calls();
        runtime().block_on(async {
            let given_up = async {
                while peer.may_be_found() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                () = calling.over(sleep_until) => panic!("it has no deadline"),
                () = given_up => {}
                () = tokio::time::sleep(Duration::from_secs(30)) => panic!("it is looked for still"),
            }
        });
        assert_eq!(calling.caller().pid, Some(std::process::id()));
        let address = |text: &str| text.parse().expect("an address");
        let away = callers.over_tcp(address("192.0.2.1:1"), address("192.0.2.2:2"));
        assert!(!away.may_be_found());
        let near = callers.over_tcp(address("192.0.2.1:1"), address("192.0.2.1:2"));
        assert!(near.may_be_found());
    }

    #[test]
    fn what_a_worker_has_started_calls_for_it() {
        let us = std::process::id();
        assert_eq!(process::nearest(us, |pid| pid == us), Some(us));
        let parent = process::parent_of(us).expect("a parent");
        if parent > 1 {
            assert_eq!(process::nearest(us, |pid| pid == parent), Some(parent));
        }
        assert_eq!(process::nearest(us, |_| false), None);
    }
}
