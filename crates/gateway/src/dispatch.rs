//! Gives requests to workers: asks `weir_pool` which request runs next, lends worker connections, and takes them
//! back.
//!
//! A [`Lease`] is the right to use one worker for one request. Dropping it returns the worker, or gives up a worker
//! whose connection cannot be used again. One lock guards the pool's state. It is held for a few comparisons and
//! never while waiting.
//!
//! ```text
//! acquire ──admit──► Run(worker) ───────────────► Lease ──release──► the next in the queue, or free, or withdrawn
//!               └──► Wait ──oneshot──► Lease            └─dropped──► connection gone: killed (php), down until the
//!               └──► Shed                                            manager gives a new one (command), free (servers)
//! ```
//!
//! [`scaling`] decides after each change how many workers there are; [`servers`] has the workers that others run.

mod cancels;
mod lease;
mod loops;
mod numbers;
mod refusals;
mod scaling;
mod self_calls;
mod servers;
mod stats;
mod suspects;
mod turns;

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    task::{Context, Poll, ready},
    time::SystemTime,
};

use tokio::sync::{Notify, oneshot::error::RecvError};
use weir_config::{Pool as Settings, Runtime};
use weir_pool::{
    Admission, Finish, Micros, Pool, RequestId, ScalerStats, ShedReason, Stats, Ticket, WorkerId,
};
use weir_sys::process::Exit;

pub(crate) use self::stats::insight::Machine;
pub(crate) use self::turns::sessions::script as session_script;
use self::{
    cancels::Cancels,
    lease::LeaseInner,
    numbers::{Known, WorkerPlace},
    scaling::{Effects, Scaling, limits},
    servers::ServerGroup,
    stats::{counts::Counts, insight},
    suspects::Suspects,
    turns::sessions,
};
pub(crate) use self::{
    lease::Lease,
    numbers::Numbers,
    servers::{ServerChoice, ServerStatus, UnknownName},
    stats::{pages::AskedBy, running::Script},
    turns::{
        NoTurn, Turn,
        sessions::{Learner, SessionUse},
    },
};
use weir_control::ManagerHandle;
use weir_observe::{clock, pool_log::Cost, scoreboard::Score};
use weir_upstream::driver::{Driver, Receiver};

use crate::{
    scripts::{run::connection::WorkerConn, self_calls::PendingLookup},
    tally::Tally,
};

/// A pool as the gateway uses it.
#[derive(Debug)]
pub(crate) struct PoolHandle {
    /// Index into the configuration's pools.
    pub(crate) id: u16,
    pub(crate) settings: &'static Settings,
    /// A process gets this many requests and is then replaced.
    process_requests: u64,
    /// The process ends by itself at that number; one that another gateway used before may be about to end.
    ends_by_itself: bool,
    started: SystemTime,
    decisions: Mutex<Decisions>,
    state: Mutex<State>,
    /// Notified when a worker's process has ended.
    exits: Notify,
    /// Notified when the pool's task has to wake earlier than planned.
    woken: Notify,
    /// Limits how many scripts may be cancelled; `None` if others run the workers.
    cancels: Option<Mutex<Cancels>>,
    manager: ManagerHandle,
    tally: Arc<Tally>,
    numbers: Arc<Numbers>,
    /// Number of processors that weir may use.
    cores: usize,
    set: limits::Set,
    refusals: refusals::Refusals,
    odd: refusals::Refusals,
    any_suspects: suspects::Any,
    loops: loops::Loops,
    /// Requests for status and ping pages, which the gateway answers without a worker.
    pages: AtomicU64,
    /// The PHP version of the workers, and whether answers may name it.
    php: Mutex<(String, bool)>,
    /// The process that workers are forked from (0: none), and why a booted process cannot be forked.
    zygote: Mutex<(u32, String)>,
    /// See [`Self::load`].
    load: Mutex<(u32, String)>,
    self_calls: self_calls::SelfCalls,
    turns: turns::Turns,
    sessions: sessions::Sessions,
    insight: insight::Insight,
}

/// What a pool is made of.
pub(crate) struct PoolParts<'p> {
    /// Index into the configuration's pools.
    pub(crate) id: u16,
    pub(crate) settings: &'static Settings,
    /// The gateway's chroot folder; the sockets of servers are named as seen from outside.
    pub(crate) chroot: Option<&'p Path>,
    /// Number of processors that weir may use.
    pub(crate) cores: usize,
    /// The number of workers changes, and is shown, as in PHP-FPM; the page has this limit of the listener's accept queue, 0
    /// of a unix socket. `None`: not in PHP-FPM's place.
    pub(crate) as_fpm: Option<usize>,
    pub(crate) manager: ManagerHandle,
    pub(crate) tally: Arc<Tally>,
    /// Numbers of all pools.
    pub(crate) numbers: Arc<Numbers>,
}

/// Decisions of the scaling.
#[derive(Debug, Default)]
struct Decisions {
    /// The latest ones with their time; the oldest first.
    last: VecDeque<(SystemTime, String)>,
    /// How often each kind was made.
    counts: BTreeMap<&'static str, u64>,
}

/// A request, with the values for the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'r> {
    pub(crate) id: RequestId,
    /// The reactor that serves the request.
    pub(crate) home: u16,
    /// The answer is useless after this time ([`clock::now`]); [`clock::NEVER`]: no deadline of its own.
    pub(crate) deadline: u64,
    /// Lower values first.
    pub(crate) priority: i16,
    /// Keyed hash of the client: all requests of one client share one share of the workers. 0: no particular client.
    pub(crate) client: u64,
    /// Keyed hash of the session of that client; 0: none.
    pub(crate) session: u64,
    /// Which servers may get it.
    pub(crate) choice: ServerChoice<'r>,
}

/// How a request got its worker, for the log.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wait {
    /// When it was admitted ([`clock::now`]).
    pub(crate) admitted: u64,
    /// How long it waited, µs; `None` while it waits.
    pub(crate) waited: Option<u64>,
    /// How many requests were waiting when it arrived.
    pub(crate) queue: usize,
    /// If it was refused because of the expected wait: how many requests were ahead of it, and the expected wait, µs.
    pub(crate) foreseen: Option<(usize, u64)>,
    /// It was refused because all workers wait for calls like this one.
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
    /// The manager's number for the process.
    pub(crate) number: u32,
    pub(crate) pid: u32,
    pub(crate) start_number: u32,
    /// The process has had a connection before.
    pub(crate) used: bool,
}

/// Result of asking for a worker.
pub(crate) enum Admitted {
    Lent(Lease),
    Waits(QueuePlace),
    Shed(ShedReason),
}

#[derive(Debug)]
struct State {
    pool: Driver<Lease>,
    /// `None` if others run the workers.
    scaling: Option<Scaling>,
    /// In PHP-FPM's place.
    counts: Option<Counts>,
    slots: Vec<Slot>,
    /// `None` if weir runs the workers.
    group: Option<ServerGroup>,
    suspects: Suspects,
    /// How the last processes ended, and whether somebody else killed them.
    exits: VecDeque<(u32, Exit, bool)>,
    slow_requests: u64,
    /// The largest amount of memory that a request used, bytes.
    memory_peak: u64,
    /// How much of OPcache is in use, in thousandths, and which start of the pool has told it.
    opcache: Option<(u32, u16)>,
    /// When a worker was last lent, and when one was last returned ([`clock::now`]).
    last_lent: u64,
    last_end: u64,
}

/// A slot for one worker: a process that weir runs, or one connection to servers.
#[derive(Debug, Default)]
struct Slot {
    conn: Option<WorkerConn>,
    /// A second descriptor for the stream of weir's own PHP, to shut it down if a child process of a dead worker
    /// keeps it open.
    handle: Option<OwnedFd>,
    leased: bool,
    /// The manager's number for the process; `None` if there is no process.
    process: Option<u32>,
    pid: u32,
    start_number: u32,
    /// When the process arrived ([`clock::now`]).
    since: u64,
    /// How many requests the process has been given.
    requests: u64,
    /// It was told to end, or was killed.
    withdrawn: bool,
    /// It has served its maximum number of requests, or uses too much memory.
    spent: bool,
    /// Its connection is closed, but its process has not ended yet.
    lost: bool,
    /// How it ended, if it ended while it was lent.
    exit: Option<Exit>,
    score: Option<Score>,
    _known: Option<Known>,
}

impl PoolHandle {
    /// A pool without workers yet.
    pub(crate) fn new(parts: PoolParts<'_>) -> &'static PoolHandle {
        let PoolParts {
            id,
            settings,
            chroot,
            cores,
            as_fpm,
            manager,
            tally,
            numbers,
        } = parts;
        let maxconn = settings.queue.maxconn;
        let pool = Driver::new(Pool::new(limits::of(&settings.queue)));
        let group = match &settings.runtime {
            Runtime::Servers(servers) => Some(ServerGroup::new(servers, maxconn, chroot)),
            Runtime::Php(_) | Runtime::Command(_) => None,
        };
        let state = State {
            pool,
            scaling: settings
                .workers()
                .map(|workers| Scaling::new(workers, cores, as_fpm.is_some())),
            counts: as_fpm.map(|limit| Counts::new(clock::now(), limit)),
            slots: Vec::new(),
            suspects: Suspects::new(settings.workers()),
            group,
            exits: VecDeque::new(),
            slow_requests: 0,
            memory_peak: 0,
            opcache: None,
            last_lent: 0,
            last_end: 0,
        };
        let cancels = settings.workers();
        let cancels = cancels.map(|workers| Mutex::new(Cancels::new(workers.max_spawn_rate)));
        let by_itself = limits::php_requests(&settings.runtime);
        let replaced = settings.workers().map(|workers| workers.max_requests);
        let handle: &'static PoolHandle = Box::leak(Box::new(PoolHandle {
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
            numbers,
            cores,
            set: limits::Set::default(),
            refusals: refusals::Refusals::default(),
            odd: refusals::Refusals::default(),
            any_suspects: suspects::Any::default(),
            loops: loops::Loops::default(),
            pages: AtomicU64::new(0),
            php: Mutex::default(),
            zygote: Mutex::default(),
            load: Mutex::default(),
            self_calls: self_calls::SelfCalls::default(),
            turns: turns::Turns::default(),
            sessions: sessions::Sessions::default(),
            insight: insight::Insight::default(),
        }));
        handle.change(|state, now, effects| state.fit(handle, now, effects));
        handle
    }

    /// Gets a worker for a request, or a place in the queue.
    ///
    /// If the request runs again, `wait` says when it was first admitted to this pool: then it waits at the head of the
    /// queue with its first deadline. `wait` is filled in with every result.
    pub(crate) fn admit(&'static self, ask: &Ask<'_>, wait: &mut Option<Wait>) -> Admitted {
        let ticket = ask.ticket();
        let request = ask.id;
        let now = clock::now();
        let first = wait.map(|wait| wait.admitted);
        let admitted = first.unwrap_or(now);
        let mut effects = Effects::default();
        let receiver = {
            let mut state = self.state();
            state.pass(Micros(now));
            state.arrived();
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
                    let mut lease = state.lend(self, worker);
                    state.choose_server(&mut lease, Micros(now), &ask.choice, &mut effects);
                    state.look_at_load(self, Micros(now), &mut effects);
                    drop(state);
                    effects.perform(self);
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
                    let receiver = state.pool.waits(request);
                    if let Some(other) = pushed_out {
                        state.refuse(other, ShedReason::PushedOut, &mut effects);
                    }
                    // With `fullconn` the limit grows with the number of waiting requests.
                    while let Some(assignment) = state.pool.dispatch(Micros(now)) {
                        state.grant(self, assignment, &mut effects);
                    }
                    state.look_at_load(self, Micros(now), &mut effects);
                    state.wake_for_queue(&mut effects);
                    receiver
                }
            }
        };
        effects.perform(self);
        Admitted::Waits(QueuePlace {
            pool: self,
            request,
            state: Place::Waits(receiver),
        })
    }

    /// The manager reports a connection to a worker: to a new process, or a new one to a running process.
    pub(crate) fn worker_ready(&'static self, worker: NewWorker, conn: WorkerConn) {
        self.change(|state, now, effects| {
            let index = state.slot_of(&worker, self);
            let id = WorkerId(index as u32);
            let slot = &mut state.slots[index];
            if slot.withdrawn {
                return effects.close(Some(conn));
            }
            if self.settings.php().is_some() {
                slot.handle = conn.as_fd().try_clone_to_owned().ok();
            }
            effects.close(slot.conn.replace(conn));
            if slot.leased {
                return;
            }
            if std::mem::take(&mut slot.lost) {
                state.pool.worker_down(now, id);
            }
            if slot.score.is_none() {
                slot.since = now.0;
                slot.score = Some(Score::new(worker.pid));
                if let Some(scaling) = &mut state.scaling {
                    scaling.came(now);
                }
                if let Some(counts) = &mut state.counts {
                    counts.waits();
                }
            }
            if let Some(next) = state.pool.worker_up(now, id, 0) {
                state.grant(self, next, effects);
            }
            let outdated = |scaling: &Scaling| scaling.is_outdated(worker.start_number);
            if state.scaling.as_ref().is_some_and(outdated) {
                state.pool.outdate(now, id);
            }
        });
    }

    /// A worker's process has ended.
    pub(crate) fn worker_exited(&'static self, worker: u32, exit: Exit, killed: bool) {
        self.change(|state, now, effects| {
            if state.exits.len() == REMEMBERED_EXITS {
                state.exits.pop_front();
            }
            state.exits.push_back((worker, exit, killed));
            let known = state
                .slots
                .iter()
                .position(|slot| slot.process == Some(worker));
            if let Some(index) = known {
                let slot = &mut state.slots[index];
                slot.process = None;
                slot.exit = Some(exit);
                self.loops.ended(self.settings, slot);
                effects.close(slot.conn.take());
                if let Some(handle) = &slot.handle {
                    // Usually the kept connection has been closed meanwhile.
                    let _ = weir_sys::socket::end(handle.as_fd());
                }
                if !slot.leased {
                    state.ended(self, WorkerId(index as u32), now, effects);
                }
            }
        });
        self.exits.notify_waiters();
    }

    /// The expected number of seconds (1 to 60) after which a new request will get a place.
    pub(crate) fn retry_after(&self) -> u64 {
        let effects = self.state().pool.retry_after(Micros(clock::now()));
        effects.0.div_ceil(1_000_000).clamp(1, 60)
    }

    /// A client left while its request ran. `since_admitted`: the time since its (first) admission. The pool learns
    /// from this how long clients wait.
    pub(crate) fn client_left(&self, since_admitted: Micros) {
        let now = Micros(clock::now());
        self.state().pool.client_left(now, since_admitted);
    }

    /// Whether a worker may be stopped now because nobody waits for its script any more.
    ///
    /// # Errors
    ///
    /// When to ask again ([`clock::now`]); [`clock::NEVER`] if others run the workers.
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

    /// Whether the workers are a PHP that uses PATH_TRANSLATED as the script.
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

    /// Whether to log a refusal now. Returns how many refusals were not logged since the last message.
    pub(crate) fn say_refusal(&self) -> Option<u64> {
        self.refusals.say(clock::now())
    }

    /// The same for an answer that is sent although something is wrong with it.
    pub(crate) fn say_odd(&self) -> Option<u64> {
        self.odd.say(clock::now())
    }

    /// Requests at workers now, including those whose client has left.
    pub(crate) fn busy(&self) -> usize {
        self.state().pool.stats().busy
    }

    /// The pool's figures now.
    pub(crate) fn stats(&self) -> Stats {
        let mut state = self.state();
        state.pool.pass(Micros(clock::now()));
        state.pool.stats()
    }

    /// The request that a worker of this pool is processing: its number, and the time by which its answer must have begun.
    /// `None` if the worker is idle, or another process has its place now.
    pub(crate) fn works(&self, pid: u32, place: WorkerPlace) -> Option<(u64, u64)> {
        let state = self.state();
        let slot = state.slots.get(place.slot)?;
        let is_it = slot.pid == pid && slot.leased && slot.process.is_some();
        slot.score.as_ref().filter(|_| is_it)?.works()
    }

    /// The busy workers: the manager's number and the process id.
    pub(crate) fn at_work(&self) -> Vec<(u32, u32)> {
        let state = self.state();
        let leased = state.slots.iter().filter(|slot| slot.leased);
        leased
            .filter_map(|slot| Some((slot.process?, slot.pid)))
            .collect()
    }

    /// The figures of the scaling; `None` if others run the workers.
    pub(crate) fn scaling(&self) -> Option<ScalerStats> {
        self.state().scaling.as_ref().map(Scaling::figures)
    }

    /// The number of the pool's present start; 0 before the first, and if others run the workers.
    pub(crate) fn start_number(&self) -> u32 {
        let state = self.state();
        state.scaling.as_ref().map_or(0, Scaling::start_number)
    }

    /// Whether there is no worker and none is expected, or no server is up.
    pub(crate) fn is_lost(&self) -> bool {
        let state = self.state();
        let none_starts = state.scaling.as_ref().is_some_and(Scaling::is_down);
        let none_is_up = state.group.as_ref().is_some_and(ServerGroup::is_down);
        none_is_up || (none_starts && state.pool.stats().workers == 0)
    }

    /// Why no worker can be started, if that is the case.
    pub(crate) fn down_because(&self) -> Option<String> {
        let state = self.state();
        let why = state.scaling.as_ref().and_then(Scaling::down_because);
        why.map(str::to_owned)
    }

    /// The latest decisions of the scaling, the oldest first.
    pub(crate) fn decisions(&self) -> Vec<(SystemTime, String)> {
        let decisions = self.decisions.lock();
        let decisions = decisions.unwrap_or_else(PoisonError::into_inner);
        decisions.last.iter().cloned().collect()
    }

    /// How often the scaling made each kind of decision.
    pub(crate) fn decision_counts(&self) -> Vec<(&'static str, u64)> {
        let decisions = self.decisions.lock();
        let decisions = decisions.unwrap_or_else(PoisonError::into_inner);
        let counts = decisions.counts.iter();
        counts.map(|(what, count)| (*what, *count)).collect()
    }

    /// Stores a decision for the admin interface.
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

impl Ask<'_> {
    fn ticket(&self) -> Ticket {
        Ticket {
            request: self.id,
            home: self.home,
            deadline: Micros(self.deadline),
            priority: self.priority,
            client: self.client,
            session: self.session,
        }
    }
}

impl State {
    fn lend(&mut self, pool: &'static PoolHandle, worker: WorkerId) -> Lease {
        self.last_lent = clock::now();
        if let Some(counts) = &mut self.counts {
            counts.works();
        }
        let slot = &mut self.slots[worker.0 as usize];
        if self.group.is_some() && slot.score.is_none() {
            // The scoreboard entry is only for this slot: weir does not run the process.
            slot.score = Some(Score::new(0));
        }
        slot.leased = true;
        slot.requests = slot.requests.saturating_add(1);
        let conn = slot.conn.take();
        Lease(Box::new(LeaseInner {
            pool,
            worker,
            process: slot.process,
            pid: slot.pid,
            chosen: None,
            server_name: None,
            outcome: Finish::Unknown,
            cause: None,
            conn,
            score: slot.score.as_ref().map(Score::get),
            kill: false,
            terminated: None,
            last: slot.requests >= pool.process_requests,
            cost: Cost::default(),
            ended: None,
            line: None,
            lent: self.last_lent,
            begun: false,
            turn: None,
            learner: None,
            session: None,
            site: None,
        }))
    }

    /// The slot of a process: its present slot, an empty one, or a new one. If the process ends by itself after some
    /// requests, another gateway may have given it some. It is good for at least one more, because it has just accepted a
    /// connection.
    fn slot_of(&mut self, worker: &NewWorker, pool: &PoolHandle) -> usize {
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
                start_number: worker.start_number,
                requests: match worker.used && pool.ends_by_itself {
                    true => u64::MAX,
                    false => 0,
                },
                _known: Some((pool.numbers).add(worker.pid, worker.number, (pool.id, index))),
                ..Slot::default()
            };
        }
        index
    }

    /// The process of this slot has ended, and the slot is not in use any more.
    fn ended(&mut self, pool: &PoolHandle, worker: WorkerId, now: Micros, effects: &mut Effects) {
        let slot = std::mem::take(&mut self.slots[worker.0 as usize]);
        let at_work = self.pool.worker_down(now, worker).is_some() || slot.lost;
        let Some(exit) = slot.exit else { return };
        if let Some(scaling) = &mut self.scaling {
            scaling.exited(now, &slot, exit, at_work);
        }
        // An application that stays booted may end behind an answer; a crash has another exit code, or a signal.
        let by_itself = exit == Exit::Code(0) && loops::is_application(pool.settings);
        if at_work && !slot.withdrawn && !slot.spent && !by_itself {
            self.crashed_at_work(pool, &slot, now, effects);
        }
    }
}

/// A request's place in the queue. It is given up when the client leaves: then this is dropped.
///
/// Thousands of requests may wait: each field takes memory for each of them.
pub(crate) struct QueuePlace {
    pool: &'static PoolHandle,
    request: RequestId,
    state: Place,
}

enum Place {
    Waits(Receiver<Lease>),
    /// As a call of a worker. Few are calls.
    Calls(Pin<Box<dyn Future<Output = Called>>>),
    /// The wait is over.
    Left,
}

/// The result of a wait, and whether no worker could ever serve the call.
type Called = (Result<Result<Lease, ShedReason>, RecvError>, bool);

impl QueuePlace {
    /// Waits for a worker. `caller`: finds out whether a worker makes the request, if that is possible.
    ///
    /// # Errors
    ///
    /// Why the request is refused.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        wait: &mut Option<Wait>,
        caller: Option<&PendingLookup>,
    ) -> Poll<Result<Lease, ShedReason>> {
        let (lease, stuck) = loop {
            match &mut self.state {
                Place::Waits(receiver) => match Pin::new(receiver).poll(cx) {
                    Poll::Ready(lease) => break (lease, false),
                    Poll::Pending => {
                        let Some(call) = caller.and_then(PendingLookup::call) else {
                            return Poll::Pending;
                        };
                        if let Place::Waits(receiver) = self.leave() {
                            let waiting = self.pool.wait_as_call(self.request, receiver, call);
                            self.state = Place::Calls(Box::pin(waiting));
                        }
                    }
                },
                Place::Calls(waiting) => break ready!(waiting.as_mut().poll(cx)),
                Place::Left => return Poll::Ready(Err(ShedReason::NoWorker)),
            }
        };
        self.leave();
        if let Some(wait) = wait {
            wait.waited = Some(clock::now() - wait.admitted);
            wait.stuck = stuck;
        }
        Poll::Ready(lease.unwrap_or(Err(ShedReason::NoWorker)))
    }

    fn leave(&mut self) -> Place {
        std::mem::replace(&mut self.state, Place::Left)
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if !matches!(self.leave(), Place::Left) {
            let mut state = self.pool.state();
            state.pool.leave(Micros(clock::now()), self.request);
        }
    }
}

/// How many decisions the admin interface shows.
const REMEMBERED_DECISIONS: usize = 20;

/// For how many ended processes the end is remembered for waiting requests.
const REMEMBERED_EXITS: usize = 64;
