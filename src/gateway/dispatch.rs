//! Requests → workers: asks `weir_pool` who runs now, lends worker connections, and takes them back.
//!
//! A [`Lease`] is the right to one worker. Whoever holds it may use the worker's connection for one request;
//! dropping it gives the worker back, or gives it up where its connection is not fit for another request. The pool's
//! state is behind one lock that is held for a few comparisons and never across a wait.
//!
//! ```text
//! acquire ──admit──► Run(worker) ───────────────► Lease ──release──► the next in the queue, or free, or withdrawn
//!               └──► Wait ──oneshot──► Lease            └─dropped──► connection gone: killed (php), down until the
//!               └──► Shed                                            manager gives a new one (command), free (servers)
//! ```
//!
//! How many workers there are is decided in [`scaling`], after each change; [`servers`] has those of others.

mod cancels;
mod lease;
mod limits;
mod own;
mod pages;
mod processors;
mod refusals;
mod running;
mod scaling;
mod servers;
mod suspects;
mod turns;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use tokio::sync::{Notify, oneshot};
use weir_config::{Pm, Pool as Settings, Runtime};
use weir_pool::{
    Admission, Finish, Micros, Pool, Refused, RequestId, ScalerStats, ShedReason, Stats, Ticket,
    WorkerId,
};
use weir_sys::process::Exit;

pub(in crate::gateway) use self::suspects::subject;
use self::{
    cancels::Cancels,
    scaling::{After, Scaling},
    servers::Farm,
    suspects::Suspects,
};
pub(crate) use self::{
    lease::Lease,
    running::Script,
    servers::{ServerStatus, Toward, UnknownName},
    turns::{NoTurn, Turn},
};
use super::{
    Gateway,
    scoreboard::{Card, Cost, PoolStatus},
    tally::Tally,
    worker_conn::WorkerConn,
};
use crate::clock;
use crate::control::ToManager;

/// A pool as the gateway uses it.
#[derive(Debug)]
pub(crate) struct PoolHandle {
    /// Index into the configuration's pools.
    pub(crate) id: u16,
    pub(crate) settings: Settings,
    /// A process is given so many requests, and is replaced then.
    process_requests: u64,
    /// The process ends by itself then: one that was used before it came here may be about to.
    ends_by_itself: bool,
    started: SystemTime,
    decisions: Mutex<Decisions>,
    state: Mutex<State>,
    /// Told when a worker's process has ended.
    exits: Notify,
    /// Told when the pool's task is to look earlier than it meant to.
    woken: Notify,
    /// How many scripts may be cancelled; none where others run the workers.
    cancels: Option<Mutex<Cancels>>,
    manager: Manager,
    tally: Arc<Tally>,
    /// Processors that weir may use.
    cores: usize,
    set: limits::Set,
    refusals: refusals::Refusals,
    any_suspects: suspects::Any,
    /// Status and ping pages, which no worker was asked for.
    pages: AtomicU64,
    /// Which PHP the workers run, and whether answers name that.
    php: Mutex<(String, bool)>,
    own: own::Own,
    turns: turns::Turns,
}

/// What the scaling decided.
#[derive(Debug, Default)]
struct Decisions {
    /// Lately, and when; the oldest first.
    last: VecDeque<(SystemTime, String)>,
    /// How often, by what.
    counts: BTreeMap<&'static str, u64>,
}

/// How the manager is told of workers. Never waits.
#[derive(Clone)]
pub(crate) struct Manager(pub(crate) Arc<dyn Fn(ToManager) + Send + Sync>);

/// A request as the queue sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) id: RequestId,
    /// The reactor that serves it.
    pub(crate) home: u16,
    /// Nobody wants its answer after that ([`clock::now`]); [`clock::NEVER`]: no deadline of its own.
    pub(crate) deadline: u64,
    /// Lower first.
    pub(crate) priority: i16,
    /// Who asks: those of one client share one share of the workers. A keyed hash; 0: nobody in particular.
    pub(crate) client: u64,
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
    /// Where it was refused for what was foreseen: how many it would have had before it, and how long it would have
    /// waited, µs.
    pub(crate) foreseen: Option<(usize, u64)>,
    /// It was refused because every worker waits for a call like it.
    pub(crate) stuck: bool,
}

/// Why there is no connection to a worker.
#[derive(Debug)]
pub(crate) struct ConnectError {
    pub(crate) address: String,
    pub(crate) error: io::Error,
}

/// A process that the manager has started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewWorker {
    /// The manager's number of it.
    pub(crate) number: u32,
    pub(crate) pid: u32,
    pub(crate) generation: u32,
    /// It has had a connection before.
    pub(crate) used: bool,
}

/// How a request that waits is told of its worker, or that it gets none.
type Waiting = oneshot::Sender<Result<Lease, ShedReason>>;

/// Who asks may be a worker.
pub(crate) struct Asker {
    /// Finds out which.
    pub(crate) finding: Pin<Box<dyn Future<Output = Option<u32>> + Send>>,
    pub(crate) gateway: Arc<Gateway>,
}

/// What became of a request that asked for a worker.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for a moment, and most are lent at once: no allocation for that"
)]
enum Admitted {
    Lent(Lease),
    Waits(oneshot::Receiver<Result<Lease, ShedReason>>),
    Shed(ShedReason),
}

#[derive(Debug)]
struct State {
    pool: Pool,
    /// None: others run the workers.
    scaling: Option<Scaling>,
    slots: Vec<Slot>,
    /// None: weir runs the workers.
    farm: Option<Farm>,
    suspects: Suspects,
    /// How processes ended lately.
    exits: VecDeque<(u32, Exit)>,
    waiting: HashMap<RequestId, Waiting>,
    expired: Vec<Refused>,
    /// When the pool's task looks at it next ([`clock::now`]).
    wakes_at: u64,
    slow_requests: u64,
    /// The most memory that a request took, bytes.
    memory_peak: u64,
    /// When a worker was last given a request, and when one was last given back ([`clock::now`]).
    last_lent: u64,
    last_end: u64,
}

/// A place for one worker: a process that weir runs, or one connection to servers.
#[derive(Debug, Default)]
struct Slot {
    conn: Option<WorkerConn>,
    /// A second hold on the stream of weir's own PHP, to end it where a child of a worker that is gone keeps it open.
    grip: Option<OwnedFd>,
    leased: bool,
    /// The manager's number of the process; none while there is none.
    process: Option<u32>,
    pid: u32,
    generation: u32,
    /// When it came ([`clock::now`]).
    since: u64,
    /// Requests that the process was given.
    requests: u64,
    /// It was told to end, or is killed.
    withdrawn: bool,
    /// It has served as many requests as it may, or is too large.
    spent: bool,
    /// Its connection is gone, and its process is not, or not yet.
    lost: bool,
    /// It has ended like this while it was lent.
    exit: Option<Exit>,
    card: Option<Arc<Card>>,
}

impl PoolHandle {
    /// `chroot`: the folder that the gateway is locked into; servers' sockets are named as seen from outside. `cores`:
    /// processors of the machine.
    pub(crate) fn new(
        id: u16,
        settings: Settings,
        chroot: Option<&Path>,
        cores: usize,
        manager: Manager,
        tally: Arc<Tally>,
    ) -> Arc<PoolHandle> {
        let maxconn = settings.queue.maxconn;
        let pool = Pool::new(limits::of(&settings.queue));
        let farm = match &settings.runtime {
            Runtime::Servers(servers) => Some(Farm::new(servers, maxconn, chroot)),
            Runtime::Php(_) | Runtime::Command(_) => None,
        };
        let state = State {
            pool,
            scaling: settings
                .workers()
                .map(|workers| Scaling::new(workers, cores)),
            slots: Vec::new(),
            suspects: Suspects::new(settings.workers()),
            farm,
            exits: VecDeque::new(),
            waiting: HashMap::new(),
            expired: Vec::new(),
            wakes_at: clock::NEVER,
            slow_requests: 0,
            memory_peak: 0,
            last_lent: 0,
            last_end: 0,
        };
        let cancels = settings.workers();
        let cancels = cancels.map(|workers| Mutex::new(Cancels::new(workers.max_spawn_rate)));
        let by_itself = limits::php_requests(&settings.runtime);
        let replaced = settings.workers().map(|workers| workers.max_requests);
        let handle = Arc::new(PoolHandle {
            id,
            process_requests: replaced
                .filter(|most| *most > 0)
                .into_iter()
                .chain(by_itself)
                .min()
                .unwrap_or(u64::MAX),
            ends_by_itself: by_itself.is_some(),
            settings,
            started: SystemTime::now(),
            decisions: Mutex::default(),
            state: Mutex::new(state),
            exits: Notify::new(),
            woken: Notify::new(),
            cancels,
            manager,
            tally,
            cores,
            set: limits::Set::default(),
            refusals: refusals::Refusals::default(),
            any_suspects: suspects::Any::default(),
            pages: AtomicU64::new(0),
            php: Mutex::default(),
            own: own::Own::default(),
            turns: turns::Turns::default(),
        });
        handle.change(|state, now, after| state.fit(&handle, now, after));
        handle
    }

    /// A worker for a request, at once or after waiting in the queue.
    ///
    /// `caller` is asked for who finds out which worker asks, if the request has to wait.
    ///
    /// `wait` says when the request was admitted to this pool before, where it is run again: it then waits at the
    /// queue's head under its first deadline. It is filled in whatever becomes of the request.
    ///
    /// # Errors
    ///
    /// Why the request is refused.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        ask: &Ask,
        wait: &mut Option<Wait>,
        caller: impl FnOnce() -> Option<Asker>,
    ) -> Result<Lease, ShedReason> {
        // What deciding it takes is not carried through the wait.
        let mut receiver = match self.admit(ask, wait) {
            Admitted::Lent(lease) => return Ok(lease),
            Admitted::Shed(reason) => return Err(reason),
            Admitted::Waits(receiver) => receiver,
        };
        let mut place = QueuePlace {
            pool: self,
            request: ask.id,
            waiting: true,
        };
        let mut stuck = false;
        let lease = match caller() {
            None => receiver.await,
            Some(caller) => {
                // Boxed: few are such calls, and each request that waits would hold the room for it.
                let waiting = Box::pin(self.wait_as_caller(ask.id, &mut receiver, caller));
                let (lease, refused) = waiting.await;
                stuck = refused;
                lease
            }
        };
        place.waiting = false;
        if let Some(wait) = wait {
            wait.waited = Some(clock::now() - wait.admitted);
            wait.stuck = stuck;
        }
        lease.unwrap_or(Err(ShedReason::NoWorker))
    }

    fn admit(self: &Arc<Self>, ask: &Ask, wait: &mut Option<Wait>) -> Admitted {
        let ticket = ask.ticket();
        let request = ask.id;
        let now = clock::now();
        let first = wait.map(|wait| wait.admitted);
        let admitted = first.unwrap_or(now);
        let mut after = After::default();
        let receiver = {
            let mut state = self.state();
            let queue = state.pool.waiting();
            let admission = match first {
                None => state.pool.admit(Micros(now), &ticket),
                Some(first) => state.pool.readmit(Micros(now), &ticket, Micros(first)),
            };
            let wait = wait.get_or_insert(Wait {
                admitted,
                waited: None,
                queue,
                foreseen: None,
                stuck: false,
            });
            match admission {
                Admission::Run(worker) => {
                    wait.waited = Some(now - admitted);
                    let lease = state.lend(self, worker);
                    state.look_at_load(self, Micros(now), &mut after);
                    drop(state);
                    after.perform(self);
                    return Admitted::Lent(lease);
                }
                Admission::Shed(reason) => {
                    wait.waited = Some(now - admitted);
                    if matches!(reason, ShedReason::Hopeless | ShedReason::Overload) {
                        let (place, expected) = state.pool.foresee_wait(&ticket);
                        wait.foreseen = Some((place, expected.0));
                    }
                    return Admitted::Shed(reason);
                }
                Admission::Wait { pushed_out, .. } => {
                    wait.waited = None;
                    let (sender, receiver) = oneshot::channel();
                    state.waiting.insert(request, sender);
                    if let Some(other) = pushed_out {
                        state.refuse(other, ShedReason::PushedOut, &mut after);
                    }
                    // With `fullconn` the limit grows with who waits.
                    while let Some(assignment) = state.pool.dispatch(Micros(now)) {
                        state.grant(self, assignment, &mut after);
                    }
                    state.look_at_load(self, Micros(now), &mut after);
                    state.wake_for_queue(&mut after);
                    receiver
                }
            }
        };
        after.perform(self);
        Admitted::Waits(receiver)
    }

    /// The manager has a connection to a worker: a new process, or a new connection to one that runs.
    pub(crate) fn worker_ready(self: &Arc<Self>, worker: NewWorker, conn: WorkerConn) {
        self.change(|state, now, after| {
            let index = state.slot_of(&worker, self.ends_by_itself);
            let id = WorkerId(index as u32);
            let slot = &mut state.slots[index];
            if slot.withdrawn {
                return after.close(Some(conn));
            }
            if self.settings.php().is_some() {
                slot.grip = conn.as_fd().try_clone_to_owned().ok();
            }
            after.close(slot.conn.replace(conn));
            if slot.leased {
                return;
            }
            if std::mem::take(&mut slot.lost) {
                state.pool.worker_down(now, id);
            }
            if slot.card.is_none() {
                slot.since = now.0;
                slot.card = Some(Arc::new(Card::new(worker.pid)));
                if let Some(scaling) = &mut state.scaling {
                    scaling.came(now);
                }
            }
            if let Some(next) = state.pool.worker_up(now, id, 0) {
                state.grant(self, next, after);
            }
            let outdated = |scaling: &Scaling| scaling.is_outdated(worker.generation);
            if state.scaling.as_ref().is_some_and(outdated) {
                state.pool.outdate(now, id);
            }
        });
    }

    /// A worker's process has ended.
    pub(crate) fn worker_exited(self: &Arc<Self>, worker: u32, exit: Exit) {
        self.change(|state, now, after| {
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
                slot.exit = Some(exit);
                after.close(slot.conn.take());
                if let Some(grip) = &slot.grip {
                    // Not connected any more, as a rule.
                    let _ = weir_sys::socket::end(grip.as_fd());
                }
                if !slot.leased {
                    state.ended(self, WorkerId(index as u32), now, after);
                }
            }
        });
        self.exits.notify_waiters();
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

    /// Whole seconds after which a request that comes then will find a place, as far as can be foreseen: 1 to 60.
    pub(crate) fn retry_after(&self) -> u64 {
        let after = self.state().pool.retry_after(Micros(clock::now()));
        after.0.div_ceil(1_000_000).clamp(1, 60)
    }

    /// A client left while its request ran; `since_admitted`: how long after its (first) admission. From that the pool
    /// learns how long clients wait.
    pub(crate) fn client_left(&self, since_admitted: Micros) {
        let now = Micros(clock::now());
        self.state().pool.client_left(now, since_admitted);
    }

    /// Whether a worker may be stopped now because nobody waits for its script; else when it may be asked again
    /// ([`clock::now`]).
    ///
    /// # Errors
    ///
    /// That time; [`clock::NEVER`] where others run the workers.
    pub(crate) fn may_cancel(&self) -> Result<(), u64> {
        let Some(cancels) = &self.cancels else {
            return Err(clock::NEVER);
        };
        let mut cancels = cancels.lock().unwrap_or_else(PoisonError::into_inner);
        cancels.take(clock::now())
    }

    /// How many workers were stopped because nobody waited for their scripts.
    pub(crate) fn cancelled(&self) -> u64 {
        let cancels = self.cancels.as_ref();
        cancels.map_or(0, |cancels| {
            let cancels = cancels.lock().unwrap_or_else(PoisonError::into_inner);
            cancels.taken
        })
    }

    /// Whether weir runs the workers itself.
    pub(crate) fn has_workers(&self) -> bool {
        self.settings.workers().is_some()
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

    /// Whether it is to be said that a request is refused now, and how many were refused since the last that was said.
    pub(crate) fn say_refusal(&self) -> Option<u64> {
        self.refusals.say(clock::now())
    }

    /// Requests at workers now, also those whose client has left.
    pub(crate) fn busy(&self) -> usize {
        self.state().pool.stats().busy
    }

    /// The pool's figures now.
    pub(crate) fn stats(&self) -> Stats {
        let mut state = self.state();
        state.pool.pass(Micros(clock::now()));
        state.pool.stats()
    }

    /// The pool's figures now, and those of its workers, for the status page.
    pub(crate) fn status(&self) -> PoolStatus {
        let (stats, figures, slow_requests, memory_peak, cards) = {
            let state = self.state();
            let running = state.slots.iter().filter(|slot| slot.process.is_some());
            let cards: Vec<Arc<Card>> = running.filter_map(|slot| slot.card.clone()).collect();
            let figures = state.scaling.as_ref().map(Scaling::figures);
            let (slow, peak) = (state.slow_requests, state.memory_peak);
            (state.pool.stats(), figures, slow, peak, cards)
        };
        PoolStatus {
            name: self.settings.name.clone(),
            pm: match self.settings.workers().map(|workers| workers.pm) {
                Some(Pm::Static) => "static",
                Some(Pm::Dynamic { .. }) => "dynamic",
                Some(Pm::OnDemand) => "ondemand",
                Some(Pm::Auto { .. }) => "auto",
                None => "servers",
            },
            started: self.started,
            accepted: stats.started + self.pages.load(Relaxed),
            listen_queue: stats.waiting,
            max_listen_queue: stats.max_waiting,
            listen_queue_len: self.settings.queue.max_queue,
            idle: stats.free,
            active: stats.busy,
            max_active: stats.max_busy,
            max_children_reached: figures.map_or(0, |figures| figures.max_children_reached),
            slow_requests,
            memory_peak: self.shows_memory_peak().then_some(memory_peak),
            workers: cards.iter().map(|card| card.status()).collect(),
        }
    }

    /// What the worker with this process id has to do, by the request's number and the time until which its answer has to have
    /// begun; none: it is none of this pool's, or has nothing to do.
    pub(crate) fn works(&self, pid: u32) -> Option<(u64, u64)> {
        let state = self.state();
        let mut slots = state.slots.iter();
        let slot = slots.find(|slot| slot.pid == pid && slot.leased && slot.process.is_some())?;
        slot.card.as_ref()?.works()
    }

    /// The workers that have something to do: the manager's number, and the process.
    pub(crate) fn at_work(&self) -> Vec<(u32, u32)> {
        let state = self.state();
        let leased = state.slots.iter().filter(|slot| slot.leased);
        leased
            .filter_map(|slot| Some((slot.process?, slot.pid)))
            .collect()
    }

    /// What decides how many workers there are; none where others run them.
    pub(crate) fn scaling(&self) -> Option<ScalerStats> {
        self.state().scaling.as_ref().map(Scaling::figures)
    }

    /// Which generation new workers belong to; 0 before the first, and where others run the workers.
    pub(crate) fn generation(&self) -> u32 {
        let state = self.state();
        state.scaling.as_ref().map_or(0, Scaling::generation)
    }

    /// There is no worker, and none is expected; or no server is up.
    pub(crate) fn is_lost(&self) -> bool {
        let state = self.state();
        let none_starts = state.scaling.as_ref().is_some_and(Scaling::is_down);
        let none_is_up = state.farm.as_ref().is_some_and(Farm::is_down);
        none_is_up || (none_starts && state.pool.stats().workers == 0)
    }

    /// Why no worker can be started, where that is so.
    pub(crate) fn down_because(&self) -> Option<String> {
        let state = self.state();
        let why = state.scaling.as_ref().and_then(Scaling::down_because);
        why.map(str::to_owned)
    }

    /// What the scaling decided lately, the oldest first.
    pub(crate) fn decisions(&self) -> Vec<(SystemTime, String)> {
        let decisions = self.decisions.lock();
        let decisions = decisions.unwrap_or_else(PoisonError::into_inner);
        decisions.last.iter().cloned().collect()
    }

    /// How often the scaling decided what.
    pub(crate) fn decision_counts(&self) -> Vec<(&'static str, u64)> {
        let decisions = self.decisions.lock();
        let decisions = decisions.unwrap_or_else(PoisonError::into_inner);
        let counts = decisions.counts.iter();
        counts.map(|(what, count)| (*what, *count)).collect()
    }

    /// Notes a decision for whoever looks at the pool.
    fn note_decision(&self, kind: &'static str, what: String) {
        let decisions = self.decisions.lock();
        let mut decisions = decisions.unwrap_or_else(PoisonError::into_inner);
        *decisions.counts.entry(kind).or_default() += 1;
        if decisions.last.len() == REMEMBERED_DECISIONS {
            decisions.last.pop_front();
        }
        decisions.last.push_back((SystemTime::now(), what));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ask {
    fn ticket(&self) -> Ticket {
        Ticket {
            request: self.id,
            home: self.home,
            deadline: Micros(self.deadline),
            priority: self.priority,
            client: self.client,
        }
    }
}

impl State {
    fn lend(&mut self, pool: &Arc<PoolHandle>, worker: WorkerId) -> Lease {
        self.last_lent = clock::now();
        let slot = &mut self.slots[worker.0 as usize];
        if self.farm.is_some() && slot.card.is_none() {
            // Of this place; the process is another's.
            slot.card = Some(Arc::new(Card::new(0)));
        }
        slot.leased = true;
        slot.requests = slot.requests.saturating_add(1);
        let conn = slot.conn.take();
        Lease {
            pool: pool.clone(),
            worker,
            process: slot.process,
            pid: slot.pid,
            chosen: None,
            server_name: None,
            outcome: Finish::Unknown,
            cause: None,
            conn,
            card: slot.card.clone(),
            kill: false,
            terminated: None,
            last: slot.requests >= pool.process_requests,
            cost: Cost::default(),
            ended: None,
            lent: self.last_lent,
            begun: false,
            turn: None,
            site: None,
        }
    }

    /// The place of a process: the one it has, one that is empty, or a new one. `ends_by_itself`: after so many
    /// requests; another gateway may have given it some, and it is good for one more then, having just accepted a
    /// connection.
    fn slot_of(&mut self, worker: &NewWorker, ends_by_itself: bool) -> usize {
        let known = self
            .slots
            .iter()
            .position(|slot| slot.process == Some(worker.number));
        let free = |slot: &Slot| slot.process.is_none() && !slot.leased;
        let index = known
            .or_else(|| self.slots.iter().position(free))
            .unwrap_or_else(|| {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            });
        if known.is_none() {
            self.slots[index] = Slot {
                process: Some(worker.number),
                pid: worker.pid,
                generation: worker.generation,
                requests: match worker.used && ends_by_itself {
                    true => u64::MAX,
                    false => 0,
                },
                ..Slot::default()
            };
        }
        index
    }

    /// The process of this slot has ended, and nobody uses it any more.
    fn ended(&mut self, pool: &PoolHandle, worker: WorkerId, now: Micros, after: &mut After) {
        let slot = std::mem::take(&mut self.slots[worker.0 as usize]);
        let at_work = self.pool.worker_down(now, worker).is_some() || slot.lost;
        let Some(exit) = slot.exit else { return };
        if let Some(scaling) = &mut self.scaling {
            scaling.exited(now, &slot, exit, at_work);
        }
        if at_work && !slot.withdrawn && !slot.spent {
            self.crashed_at_work(pool, &slot, exit, now, after);
        }
    }
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

/// How long the gateway waits to be told how a worker's process ended, before it answers the client without knowing.
const EXIT_NOTICE: Duration = Duration::from_millis(250);

/// Decisions that the operator's window shows.
const REMEMBERED_DECISIONS: usize = 20;

/// Processes whose end is remembered for whoever waits to be told of it.
const REMEMBERED_EXITS: usize = 64;
