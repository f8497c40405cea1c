//! Requests → workers: asks `weir_pool` who runs now, lends worker connections, and takes them back.
//!
//! A [`Lease`] is the right to one worker. Whoever holds it may use the worker's connection for one request;
//! dropping it gives the worker back, or gives it up where its connection is not fit for another request. The pool's
//! state is behind one lock that is held for a few comparisons and never across a wait.
//!
//! ```text
//! acquire ──admit──► Run(worker) ───────────────► Lease ──release──► the next in the queue, or free
//!               └──► Wait ──oneshot──► Lease            └─dropped──► connection gone: down until the manager
//!               └──► Shed                                            gives a new one (command), or free (servers)
//! ```

use std::{
    collections::{HashMap, VecDeque},
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use weir_config::{Address, Pool as Settings, Runtime};
use weir_pool::{
    Admission, Assignment, Limits, Micros, Pool, RequestId, ShedReason, Stats, WorkerId,
};
use weir_sys::process::Exit;

use super::{clock, record::OwnedWorker, worker_conn::WorkerConn};
use crate::control::{ToManager, path_inside};

/// A pool as the gateway uses it.
#[derive(Debug)]
pub(crate) struct PoolHandle {
    /// Index into the configuration's pools.
    pub(crate) id: u16,
    pub(crate) settings: Settings,
    /// The servers as weir.toml writes them.
    server_names: Vec<Arc<str>>,
    /// After so many requests a process ends by itself; it is given no more, since what is written to it then is lost.
    process_requests: Option<u64>,
    state: Mutex<State>,
    /// Told when a worker's process has ended.
    exits: Notify,
    manager: Manager,
}

/// How the manager is told of workers. Never waits.
#[derive(Clone)]
pub(crate) struct Manager(pub(crate) Arc<dyn Fn(ToManager) + Send + Sync>);

/// The right to one worker.
#[derive(Debug)]
pub(crate) struct Lease {
    pool: Arc<PoolHandle>,
    worker: WorkerId,
    /// The manager's number of the process; none where others run it.
    process: Option<u32>,
    pid: u32,
    conn: Option<WorkerConn>,
    server: Option<usize>,
    /// The process is to be replaced.
    kill: bool,
}

/// How a request came to its worker, for the log.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wait {
    /// When it was admitted ([`clock::now`]).
    pub(crate) admitted: u64,
    /// How long it waited, µs; none while it does.
    pub(crate) waited: Option<u64>,
    /// Requests that waited when it came.
    pub(crate) queue: usize,
}

/// Why there is no connection to a worker.
#[derive(Debug)]
pub(crate) struct ConnectError {
    pub(crate) address: String,
    pub(crate) error: io::Error,
}

#[derive(Debug)]
struct State {
    pool: Pool,
    slots: Vec<Slot>,
    servers: Vec<Server>,
    /// How processes ended lately.
    exits: VecDeque<(u32, Exit)>,
    waiting: HashMap<RequestId, oneshot::Sender<Result<Lease, ShedReason>>>,
    expired: Vec<RequestId>,
}

/// A place for one worker: a process of a command, or one connection to servers.
#[derive(Debug, Default)]
struct Slot {
    conn: Option<WorkerConn>,
    leased: bool,
    /// The manager's number of the process; none while there is none.
    process: Option<u32>,
    /// Requests that the process was given.
    requests: u64,
    pid: u32,
    server: Option<usize>,
}

/// One of `servers`.
#[derive(Debug, Default)]
struct Server {
    busy: usize,
    /// Its last connection was refused, or timed out.
    refused: bool,
    /// Not tried before ([`clock::now`]) while there are others.
    down_until: u64,
}

impl PoolHandle {
    /// `chroot`: the folder that the gateway is locked into; servers' sockets are named as seen from outside.
    pub(crate) fn new(
        id: u16,
        mut settings: Settings,
        chroot: Option<&Path>,
        manager: Manager,
    ) -> PoolHandle {
        let maxconn = settings.queue.maxconn;
        let mut pool = Pool::new(Limits {
            maxconn,
            max_queue: settings.queue.max_queue,
            timeout: Micros(settings.queue.timeout.as_micros() as u64),
        });
        let (slots, servers) = match &settings.runtime {
            Runtime::Php(_) | Runtime::Command(_) => (0, 0),
            Runtime::Servers(servers) => {
                for worker in 0..maxconn as u32 {
                    pool.worker_up(Micros(clock::now()), WorkerId(worker), 0);
                }
                (maxconn, servers.len())
            }
        };
        let state = State {
            pool,
            slots: std::iter::repeat_with(Slot::default).take(slots).collect(),
            servers: std::iter::repeat_with(Server::default)
                .take(servers)
                .collect(),
            exits: VecDeque::new(),
            waiting: HashMap::new(),
            expired: Vec::new(),
        };
        let server_names = match &settings.runtime {
            Runtime::Php(_) | Runtime::Command(_) => Vec::new(),
            Runtime::Servers(servers) => servers
                .iter()
                .map(|server| address_text(server).into())
                .collect(),
        };
        if let (Some(chroot), Runtime::Servers(servers)) = (chroot, &mut settings.runtime) {
            servers
                .iter_mut()
                .for_each(|server| find_inside(chroot, server));
        }
        PoolHandle {
            id,
            process_requests: php_requests(&settings.runtime),
            settings,
            server_names,
            state: Mutex::new(state),
            exits: Notify::new(),
            manager,
        }
    }

    /// A worker for `request`, at once or after waiting in the queue.
    ///
    /// `wait` says when the request was admitted to this pool before, where it is run again: it then waits at the
    /// queue's head under its first deadline. It is filled in whatever becomes of the request.
    ///
    /// # Errors
    ///
    /// Why the request is refused.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: RequestId,
        home: u16,
        wait: &mut Option<Wait>,
    ) -> Result<Lease, ShedReason> {
        let now = clock::now();
        let first = wait.map(|wait| wait.admitted);
        let admitted = first.unwrap_or(now);
        let receiver = {
            let mut state = self.state();
            let queue = state.pool.stats().waiting;
            let admission = match first {
                None => state.pool.admit(Micros(now), request, home),
                Some(first) => state
                    .pool
                    .readmit(Micros(now), request, home, Micros(first)),
            };
            let wait = wait.get_or_insert(Wait {
                admitted,
                waited: None,
                queue,
            });
            match admission {
                Admission::Run(worker) => {
                    wait.waited = Some(now - admitted);
                    return Ok(state.lend(self, worker));
                }
                Admission::Shed(reason) => {
                    wait.waited = Some(now - admitted);
                    return Err(reason);
                }
                Admission::Wait { .. } => {
                    wait.waited = None;
                    let (sender, receiver) = oneshot::channel();
                    state.waiting.insert(request, sender);
                    receiver
                }
            }
        };
        let mut place = QueuePlace {
            pool: self,
            request,
            waiting: true,
        };
        let lease = Box::pin(self.wait(receiver, admitted)).await;
        place.waiting = false;
        if let Some(wait) = wait {
            wait.waited = Some(clock::now() - admitted);
        }
        lease
    }

    async fn wait(
        self: &Arc<Self>,
        mut receiver: oneshot::Receiver<Result<Lease, ShedReason>>,
        admitted: u64,
    ) -> Result<Lease, ShedReason> {
        let limit = self.settings.queue.timeout.as_micros() as u64;
        let deadline = admitted.saturating_add(limit);
        loop {
            let left = Duration::from_micros(deadline.saturating_sub(clock::now()).max(1_000));
            match tokio::time::timeout(left, &mut receiver).await {
                Ok(result) => return result.unwrap_or(Err(ShedReason::NoWorker)),
                Err(_) => self.expire(),
            }
        }
    }

    /// Refuses those who have waited too long.
    fn expire(self: &Arc<Self>) {
        let mut state = self.state();
        let mut expired = std::mem::take(&mut state.expired);
        state.pool.expire(Micros(clock::now()), &mut expired);
        let senders: Vec<_> = expired
            .drain(..)
            .filter_map(|request| state.waiting.remove(&request))
            .collect();
        state.expired = expired;
        drop(state);
        for sender in senders {
            let _ = sender.send(Err(ShedReason::QueueTimeout));
        }
    }

    /// The manager has a connection to a worker: a new process, or a new connection to one that runs (`used`).
    pub(crate) fn worker_ready(
        self: &Arc<Self>,
        worker: u32,
        pid: u32,
        used: bool,
        conn: WorkerConn,
    ) {
        let mut state = self.state();
        state.pool.worker_expected(true);
        let index = state.slot_of(worker, used);
        let slot = &mut state.slots[index];
        slot.pid = pid;
        slot.conn = Some(conn);
        if slot.leased {
            return;
        }
        let next = state
            .pool
            .worker_up(Micros(clock::now()), WorkerId(index as u32), 0);
        self.give(state, next);
    }

    /// A worker's process has ended.
    pub(crate) fn worker_exited(self: &Arc<Self>, worker: u32, exit: Exit) {
        let mut state = self.state();
        if state.exits.len() == REMEMBERED_EXITS {
            state.exits.pop_front();
        }
        state.exits.push_back((worker, exit));
        let known = state
            .slots
            .iter()
            .position(|slot| slot.process == Some(worker));
        if let Some(index) = known {
            let slot = &mut state.slots[index];
            slot.process = None;
            slot.conn = None;
            if !slot.leased {
                state
                    .pool
                    .worker_down(Micros(clock::now()), WorkerId(index as u32));
            }
        }
        self.settle(state);
        self.exits.notify_waiters();
    }

    /// No worker can be started: nobody shall wait for one.
    pub(crate) fn down(self: &Arc<Self>) {
        let mut state = self.state();
        state.pool.worker_expected(false);
        self.settle(state);
    }

    /// How a worker's process ended, once the manager has told; none where it does not in time, or runs on.
    pub(crate) async fn exit(&self, process: Option<u32>) -> Option<Exit> {
        let process = process?;
        let told = async {
            loop {
                let mut exits = std::pin::pin!(self.exits.notified());
                exits.as_mut().enable();
                let known = self
                    .state()
                    .exits
                    .iter()
                    .find(|(worker, _)| *worker == process)
                    .copied();
                match known {
                    Some((_, exit)) => return exit,
                    None => exits.await,
                }
            }
        };
        tokio::time::timeout(EXIT_NOTICE, told).await.ok()
    }

    /// Seconds after which a refused client may come again: what the queue needs to drain at its limit, at least 1.
    pub(crate) fn retry_after(&self) -> u64 {
        self.settings.queue.timeout.as_secs().clamp(1, 60)
    }

    /// Whether weir runs the workers itself.
    pub(crate) fn is_command(&self) -> bool {
        matches!(self.settings.runtime, Runtime::Command(_))
    }

    /// Whether the workers are PHP told to take PATH_TRANSLATED for the script.
    pub(crate) fn misreads_path_translated(&self) -> bool {
        let Runtime::Command(command) = &self.settings.runtime else {
            return false;
        };
        let says = |setting: &str| {
            command
                .argv
                .iter()
                .any(|argument| argument.contains(setting))
        };
        says("cgi.fix_pathinfo=0") && !says("cgi.discard_path=1")
    }

    /// Requests at workers now, also those whose client has left.
    pub(crate) fn busy(&self) -> usize {
        self.state().pool.stats().busy
    }

    /// Requests waiting now.
    pub(crate) fn waiting(&self) -> usize {
        self.stats().waiting
    }

    /// The pool's figures now.
    pub(crate) fn stats(&self) -> Stats {
        self.state().pool.stats()
    }

    /// After a worker went down: those who wait may run at others, or wait for nothing.
    fn settle(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let now = Micros(clock::now());
        let mut granted = Vec::new();
        while let Some(Assignment { request, worker }) = state.pool.dispatch(now) {
            let lease = state.lend(self, worker);
            granted.push((state.waiting.remove(&request), lease));
        }
        let mut stranded = Vec::new();
        state.pool.drain_waiting(now, &mut stranded);
        let refused: Vec<_> = stranded
            .into_iter()
            .filter_map(|request| state.waiting.remove(&request))
            .collect();
        drop(state);
        for (sender, lease) in granted {
            if let Some(sender) = sender {
                drop(sender.send(Ok(lease)));
            }
        }
        for sender in refused {
            let _ = sender.send(Err(ShedReason::NoWorker));
        }
    }

    /// Hands a worker that has become free to the request that is next.
    fn give(self: &Arc<Self>, mut state: MutexGuard<'_, State>, next: Option<Assignment>) {
        let Some(Assignment { request, worker }) = next else {
            return;
        };
        let sender = state.waiting.remove(&request);
        let lease = state.lend(self, worker);
        drop(state);
        match sender {
            // Dropped where the client has just left: the lease goes on to the one behind it.
            Some(sender) => drop(sender.send(Ok(lease))),
            None => drop(lease),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn lend(&mut self, pool: &Arc<PoolHandle>, worker: WorkerId) -> Lease {
        let slot = &mut self.slots[worker.0 as usize];
        slot.leased = true;
        slot.requests = slot.requests.saturating_add(1);
        let retires = pool
            .process_requests
            .is_some_and(|most| slot.requests >= most);
        let conn = slot.conn.take();
        Lease {
            pool: pool.clone(),
            worker,
            process: slot.process,
            pid: slot.pid,
            server: slot.server.filter(|_| conn.is_some()),
            conn,
            kill: retires,
        }
    }

    /// The place of a process: the one it has, one that is empty, or a new one. `used`: another gateway may have given
    /// it requests. One that ends by itself after so many is good for one more then, having just accepted a connection.
    fn slot_of(&mut self, process: u32, used: bool) -> usize {
        let known = self
            .slots
            .iter()
            .position(|slot| slot.process == Some(process));
        let free = |slot: &Slot| slot.process.is_none() && !slot.leased;
        let index = known
            .or_else(|| self.slots.iter().position(free))
            .unwrap_or_else(|| {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            });
        let slot = &mut self.slots[index];
        if slot.process != Some(process) {
            slot.process = Some(process);
            slot.requests = if used { u64::MAX } else { 0 };
        }
        index
    }

    /// The server that is least busy, of those that have not just refused; all of them where all have. It is counted
    /// as busier by one. Only one request at a time finds out whether a server that has refused is there again.
    fn choose_server(&mut self, now: u64, connect_timeout: Duration) -> usize {
        let order = |index: &usize| {
            let server = &self.servers[*index];
            (server.down_until > now, server.busy)
        };
        let index = (0..self.servers.len()).min_by_key(order).unwrap_or(0);
        let server = &mut self.servers[index];
        server.busy += 1;
        if server.refused {
            let answered_by = now + connect_timeout.as_micros() as u64;
            server.down_until = server.down_until.max(answered_by);
        }
        index
    }

    /// Whether there is a server that has not just refused.
    fn has_server(&self, now: u64) -> bool {
        self.servers.iter().any(|server| server.down_until <= now)
    }
}

impl Server {
    fn works(&mut self) {
        self.refused = false;
        self.down_until = 0;
    }

    fn refuses(&mut self, now: u64) {
        self.refused = true;
        self.down_until = now + SERVER_DOWN;
    }
}

impl Lease {
    /// The worker's connection, watched by the reactor `home`; connects where there is none.
    ///
    /// `certain`: what is sent into a connection that the worker is about to close is lost, and must not be or not
    /// again. A server gets a new connection then, since PHP-FPM closes kept ones at any time (`pm.max_requests`);
    /// weir's own worker is asked whether it is still there. So is one that nobody has used for a while.
    ///
    /// # Errors
    ///
    /// Where no server takes a connection within `connect_timeout`, or a worker has just gone.
    pub(crate) async fn connect(
        &mut self,
        home: u16,
        certain: bool,
    ) -> Result<WorkerConn, ConnectError> {
        let renew = certain && !self.pool.is_command();
        if let Some(conn) = self.conn.take()
            && !renew
            && let Ok(conn) = conn.at_home(home)
            && !((certain || conn.has_rested()) && conn.is_stale())
        {
            return Ok(conn);
        }
        let pool = self.pool.clone();
        match &pool.settings.runtime {
            Runtime::Servers(servers) => Box::pin(self.connect_to(servers, home)).await,
            Runtime::Php(_) | Runtime::Command(_) => Err(ConnectError {
                address: format!("worker {}", self.pid),
                error: io::ErrorKind::NotConnected.into(),
            }),
        }
    }

    async fn connect_to(
        &mut self,
        servers: &[Address],
        home: u16,
    ) -> Result<WorkerConn, ConnectError> {
        let mut limit = clock::deadline(self.pool.settings.connect_timeout);
        let mut pause = CONNECT_PAUSE;
        let mut timed_out = 0;
        loop {
            let index = {
                let mut state = self.pool.state();
                if let Some(before) = self.server.take() {
                    state.servers[before].busy = state.servers[before].busy.saturating_sub(1);
                }
                state.choose_server(clock::now(), self.pool.settings.connect_timeout)
            };
            self.server = Some(index);
            let left = Duration::from_micros(limit.saturating_sub(clock::now()).max(1));
            let result = tokio::time::timeout(left, WorkerConn::connect(&servers[index])).await;
            let error = match result {
                Ok(Ok(conn)) => {
                    self.pool.state().servers[index].works();
                    match conn.at_home(home) {
                        Ok(conn) => return Ok(conn),
                        Err(error) => error,
                    }
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    timed_out += 1;
                    io::ErrorKind::TimedOut.into()
                }
            };
            // A full accept queue says nothing against the server.
            let full = error.kind() == io::ErrorKind::WouldBlock;
            if !full {
                let mut state = self.pool.state();
                state.servers[index].refuses(clock::now());
                if timed_out < servers.len() && state.has_server(clock::now()) {
                    // Another one, with the time that each of them has.
                    limit = clock::deadline(self.pool.settings.connect_timeout);
                    continue;
                }
            }
            let last =
                clock::now() + pause.as_micros() as u64 >= limit || (!full && pause > LAST_PAUSE);
            if last {
                return Err(ConnectError {
                    address: self.pool.server_names[index].to_string(),
                    error,
                });
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// The worker has ended its request and is free; `conn` is fit for another one.
    pub(crate) fn release(mut self, conn: Option<WorkerConn>) {
        self.conn = conn;
    }

    /// The worker is stuck or talks nonsense: its process is replaced where weir runs it.
    pub(crate) fn kill(mut self) {
        self.conn = None;
        self.kill = true;
    }

    pub(crate) fn pool(&self) -> &Arc<PoolHandle> {
        &self.pool
    }

    /// The manager's number of the process; none where others run it.
    pub(crate) fn process(&self) -> Option<u32> {
        self.process
    }

    /// Who works, for the log; none before a server is chosen.
    pub(crate) fn worker(&self) -> Option<OwnedWorker> {
        match (self.process, self.server) {
            (Some(_), _) => Some(OwnedWorker::Pid(self.pid)),
            (None, Some(server)) => {
                Some(OwnedWorker::Server(self.pool.server_names[server].clone()))
            }
            (None, None) => None,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let pool = self.pool.clone();
        let mut state = pool.state();
        let now = Micros(clock::now());
        let slot = &mut state.slots[self.worker.0 as usize];
        slot.leased = false;
        let ended = slot.process != self.process;
        // A connection that came meanwhile takes the place of the one that was lent.
        if slot.conn.is_none() && !ended && !self.kill {
            slot.conn = self.conn.take();
        }
        let connected = slot.conn.is_some();
        slot.server = self.server.filter(|_| connected);
        if let Some(server) = self.server.filter(|_| !connected) {
            state.servers[server].busy = state.servers[server].busy.saturating_sub(1);
        }
        if connected || matches!(pool.settings.runtime, Runtime::Servers(_)) {
            let released = state.pool.release(now, self.worker);
            return pool.give(state, released.next);
        }
        state.pool.worker_down(now, self.worker);
        pool.settle(state);
        if let Some(worker) = self.process.filter(|_| !ended) {
            (pool.manager.0)(if self.kill {
                ToManager::Kill {
                    pool: pool.id,
                    worker,
                }
            } else {
                ToManager::Connect {
                    pool: pool.id,
                    worker,
                }
            });
        }
    }
}

/// How many requests a php-cgi takes before it ends.
fn php_requests(runtime: &Runtime) -> Option<u64> {
    let Runtime::Command(command) = runtime else {
        return None;
    };
    let program = command.argv.first()?.rsplit('/').next()?;
    let (_, most) = command
        .workers
        .env
        .iter()
        .find(|(name, _)| name == "PHP_FCGI_MAX_REQUESTS")?;
    let most = most.parse().ok();
    most.filter(|most: &u64| *most > 0 && program.starts_with("php"))
}

/// A request's place in the queue, given up when its client leaves.
struct QueuePlace<'p> {
    pool: &'p Arc<PoolHandle>,
    request: RequestId,
    waiting: bool,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        if self.waiting {
            let mut state = self.pool.state();
            state.pool.leave(Micros(clock::now()), self.request);
            state.waiting.remove(&self.request);
        }
    }
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Manager")
    }
}

/// Calls a socket by the name that it has inside of `chroot`. One that lies outside was warned of at the start, and is
/// not found.
fn find_inside(chroot: &Path, server: &mut Address) {
    if let Address::Unix(path) = server
        && let Some(inside) = path_inside(chroot, path)
    {
        *path = inside;
    }
}

/// An address as weir.toml writes it.
fn address_text(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// How long the gateway waits to be told how a worker's process ended, before it answers the client without knowing.
const EXIT_NOTICE: Duration = Duration::from_millis(250);

/// Processes whose end is remembered for whoever waits to be told of it.
const REMEMBERED_EXITS: usize = 64;

/// First pause before a server is tried again; doubled each time.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// A server that refuses is given up after the pause that is longer than this; about 300 ms in all.
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// A server that has refused is not preferred for so long, µs.
const SERVER_DOWN: u64 = 1_000_000;
