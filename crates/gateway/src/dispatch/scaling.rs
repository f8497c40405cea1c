//! How many workers a pool has: tells [`weir_pool::Scaler`] what happens, and does what it decides.
//!
//! The scaler runs under the pool's lock, after each change and when it asked to be woken. The actions that follow
//! (messages to the manager, connections to close, requests that got a worker) are collected in [`Effects`] and
//! performed when the lock is free.
//!
//! The gateway asks (`StartWorkers`), and the manager decides by `max_children`, `process_max` and a rate of new processes, because the gateway
//! may be compromised. Each requested worker is answered once: `Worker` or `StartFailed`. A worker is withdrawn (`Retire`) when it
//! is free or given back, and was idle for too long, has served `max_requests`, has exceeded `max_memory`, or is older than the last
//! `PoolsReady`. Its place is free when the manager has reported its end.

pub(crate) mod limits;
pub(crate) mod processors;

use std::time::Duration;

use weir_config::{Pm, Workers};
use weir_control::ToManager;
use weir_observe::{
    error_log::{self, About, Format, tell},
    events,
};
use weir_pool::{
    Assignment, Decision, Life, MemoryView, Micros, Mode, RequestId, Scaler, ScalerStats,
    Scaling as Bounds, ShedReason, WorkerId,
};
use weir_sys::process::Exit;
use weir_upstream::driver::Sender;

use super::{Lease, PoolHandle, Slot, State, scaling::processors::Processors, servers::Note};
use crate::{
    clock::{self, NEVER},
    scripts::run::connection::WorkerConn,
};

/// The scaling of a pool whose workers weir starts.
#[derive(Debug)]
pub(super) struct Scaling {
    scaler: Scaler,
    mode: Mode,
    /// Whether the load of the pool changes the number of workers.
    by_load: bool,
    /// Workers of earlier starts are replaced.
    start_number: u32,
    /// The manager has said that workers can be requested.
    has_begun: bool,
    /// The manager has said that no worker can be started, and none has arrived since.
    down: bool,
    /// Why.
    down_because: String,
}

/// Actions to perform when the pool's lock is free.
#[must_use]
#[derive(Default)]
pub(super) struct Effects {
    /// The first request that got a worker. There is seldom more than one.
    granted: Option<Granted>,
    /// The pool's task has to wake earlier than planned.
    wake: bool,
    /// Boxed, because most changes have nothing of this.
    rare: Option<Box<RareActions>>,
}

/// A request that got a worker. `None`: the client has just left, so the worker goes to the next request.
type Granted = (Option<Sender<Lease>>, Lease);

/// Actions that most changes of a pool do not need.
#[derive(Default)]
struct RareActions {
    /// More requests that got a worker.
    granted: Vec<Granted>,
    refused: Vec<(Sender<Lease>, ShedReason)>,
    messages: Vec<ToManager>,
    closing: Vec<WorkerConn>,
    decisions: Vec<Decision>,
    /// Messages about servers and scripts.
    notes: Vec<Note>,
}

impl Scaling {
    /// `cores`: processors that the pool may use. `as_fpm`: the number of workers changes at PHP-FPM's pace.
    pub(super) fn new(workers: &Workers, cores: usize, as_fpm: bool) -> Scaling {
        let mode = match workers.pm {
            Pm::Static => Mode::Static,
            Pm::Dynamic {
                start,
                min_spare,
                max_spare,
            } => Mode::Dynamic {
                start,
                min_spare,
                max_spare,
            },
            Pm::OnDemand => Mode::OnDemand,
            Pm::Auto { start, rests } => Mode::Auto {
                start,
                cores,
                rests,
            },
        };
        let mut scaler = Scaler::new(bounds(workers, mode));
        scaler.set_maintenance(Micros(clock::now()), as_fpm);
        Scaling {
            scaler,
            mode,
            by_load: mode != Mode::Static,
            start_number: 0,
            has_begun: false,
            down: false,
            down_because: String::new(),
        }
    }

    pub(super) fn figures(&self) -> ScalerStats {
        self.scaler.figures()
    }

    pub(super) fn start_number(&self) -> u32 {
        self.start_number
    }

    pub(super) fn is_down(&self) -> bool {
        self.down
    }

    /// Whether the workers of the start are there, or cannot be started now.
    fn has_started(&self) -> bool {
        self.down || (self.has_begun && self.figures().starting == 0)
    }

    /// The reason if no worker can be started.
    pub(super) fn down_because(&self) -> Option<&str> {
        (self.down && !self.down_because.is_empty()).then_some(&*self.down_because)
    }

    /// Whether a worker of this start of the pool is to be replaced.
    pub(super) fn is_outdated(&self, start_number: u32) -> bool {
        start_number < self.start_number
    }

    /// Sets a new maximum of workers.
    pub(super) fn set_max_children(&mut self, now: Micros, workers: &Workers, most: usize) {
        let bounds = Bounds {
            max_children: most,
            ..bounds(workers, self.mode)
        };
        self.scaler.set(now, bounds);
    }

    /// A requested worker has arrived.
    pub(super) fn came(&mut self, now: Micros) {
        self.down = false;
        self.scaler.came(now);
    }

    /// The worker of this slot has ended. `at_work`: while it had a request.
    pub(super) fn exited(&mut self, now: Micros, slot: &Slot, exit: Exit, at_work: bool) {
        let life = Life {
            lived: now.since(Micros(slot.since)),
            had_work: slot.requests > 0,
            at_work,
        };
        self.scaler.exited(
            now,
            match exit {
                _ if slot.spent || (slot.withdrawn && at_work) => weir_pool::Exit::Spent,
                _ if slot.withdrawn => weir_pool::Exit::Withdrawn,
                Exit::Code(0) => weir_pool::Exit::Clean(life),
                _ => weir_pool::Exit::Crashed(life),
            },
        );
    }
}

impl PoolHandle {
    /// How many processes of this gateway are idle.
    pub(crate) fn idle_workers(&self) -> usize {
        match self.has_workers() {
            true => self.state().pool.free(),
            false => 0,
        }
    }

    /// Whether the workers of the start are there, or cannot be started now.
    pub(crate) fn has_started(&self) -> bool {
        let state = self.state();
        state.scaling.as_ref().is_none_or(Scaling::has_started)
    }

    /// From now on workers can be requested. They belong to this start of the pool.
    pub(crate) fn ready(&'static self, start_number: u32) {
        self.change(|state, now, _| {
            let Some(scaling) = &mut state.scaling else {
                return;
            };
            scaling.down = false;
            scaling.has_begun = true;
            scaling.scaler.ready(now, true);
            if start_number <= scaling.start_number {
                return;
            }
            scaling.start_number = start_number;
            for index in 0..state.slots.len() {
                let slot = &state.slots[index];
                if slot.process.is_some() && slot.start_number < start_number && !slot.withdrawn {
                    state.pool.outdate(now, WorkerId(index as u32));
                }
            }
        });
    }

    /// The gateway accepts nothing new. Workers that the running requests do not need end.
    pub(crate) fn wind_down(&'static self) {
        self.change(|state, now, _| {
            if let (Some(scaling), Some(workers)) = (&mut state.scaling, self.settings.workers()) {
                scaling.by_load = true;
                scaling.mode = Mode::OnDemand;
                scaling.scaler.set_maintenance(now, false);
                scaling.scaler.set(
                    now,
                    Bounds {
                        mode: Mode::OnDemand,
                        max_children: self.max_children().unwrap_or(workers.max_children),
                        idle_timeout: LAST_IDLE,
                        ..bounds(workers, Mode::OnDemand)
                    },
                );
            }
        });
    }

    /// No worker can be started, so no request waits for one. A program, or an application
    /// that must boot, is tried again after the scaling's pauses, PHP when its master is up, which [`ready`](Self::ready) reports.
    pub(crate) fn down(&'static self, why: String) {
        let about = About {
            pool: Some(&self.settings.name),
            ..About::default()
        };
        tell!(error, about, "no worker can start: {why}");
        self.change(|state, now, _| {
            if let Some(scaling) = &mut state.scaling {
                scaling.down = true;
                scaling.down_because = why;
                // A boot that fails is tried again, like a program.
                if self.settings.php().is_some_and(|php| php.worker.is_none()) {
                    scaling.scaler.ready(now, false);
                }
            }
        });
    }

    /// `count` of the requested workers could not be started.
    pub(crate) fn start_failed(&'static self, count: usize) {
        self.change(|state, now, _| {
            if let Some(scaling) = &mut state.scaling {
                scaling.scaler.start_failed(now, count);
            }
        });
    }

    /// Notes how much memory there is for workers.
    pub(crate) fn memory(&'static self, view: MemoryView) {
        self.change(|state, now, _| {
            if let Some(scaling) = &mut state.scaling {
                scaling.scaler.memory(now, view);
            }
        });
    }

    /// Wakes when the scaling wants to, or when a request has waited too long. Never returns; one task per pool.
    pub(crate) async fn drive(&'static self) {
        let mut processors = Processors::default();
        loop {
            let mut effects = Effects::default();
            let (wakes_at, busy) = {
                let mut state = self.state();
                let now = clock::precise();
                state.pass(Micros(now));
                if state.pool.wakes_at() <= now {
                    state.pool.woken();
                    state.expire(Micros(now), &mut effects);
                    state.look(self, Micros(now), &mut effects);
                    state.wake_for_queue(&mut effects);
                }
                (state.pool.wakes_at(), state.whose_processors())
            };
            effects.wake = false;
            effects.perform(self);
            if let Some(busy) = busy
                && let Some(found) = processors.look(clock::precise(), &busy, self.cores)
            {
                self.change(|state, now, _| {
                    if let Some(scaling) = &mut state.scaling {
                        scaling.scaler.processors(now, found);
                    }
                });
            }
            let left = wakes_at.saturating_sub(clock::precise());
            tokio::select! {
                () = self.woken.notified() => {}
                () = tokio::time::sleep(Duration::from_micros(left)), if wakes_at != NEVER => {}
            }
        }
    }

    /// Makes a change under the lock, runs the scaler, and performs the actions that follow.
    pub(super) fn change(&'static self, change: impl FnOnce(&mut State, Micros, &mut Effects)) {
        let mut effects = Effects::default();
        let mut state = self.state();
        let now = Micros(clock::now());
        state.pass(now);
        change(&mut state, now, &mut effects);
        state.settle(self, now, &mut effects);
        state.look(self, now, &mut effects);
        state.wake_for_queue(&mut effects);
        drop(state);
        effects.perform(self);
    }
}

impl State {
    /// A request arrives.
    pub(super) fn arrived(&mut self) {
        if let (Some(scaling), Some(_)) = (&mut self.scaling, &self.counts) {
            scaling.scaler.arrived(&self.pool);
        }
    }

    /// Runs the scaler after a request arrived or ended.
    pub(super) fn look_at_load(
        &mut self,
        pool: &'static PoolHandle,
        now: Micros,
        effects: &mut Effects,
    ) {
        if self.scaling.as_ref().is_some_and(|scaling| scaling.by_load) {
            self.look(pool, now, effects);
        }
    }

    /// Runs the scaler, and does what it decides.
    pub(super) fn look(&mut self, pool: &'static PoolHandle, now: Micros, effects: &mut Effects) {
        let Some(scaling) = &mut self.scaling else {
            return;
        };
        let orders = scaling.scaler.look(now, &self.pool);
        effects.decide(scaling.scaler.decisions());
        let next = scaling.scaler.next_look().map_or(NEVER, |next| next.0);
        let expected = !scaling.down && scaling.scaler.expects_worker();
        let soon = if expected { scaling.scaler.soon() } else { 0 };
        self.wake_at(next, effects);
        self.pool.worker_expected(expected);
        self.pool.workers_soon(soon);
        if orders.start > 0 {
            effects.tell_manager(ToManager::StartWorkers {
                pool: pool.id,
                count: orders.start as u32,
            });
        }
        if orders.stop + orders.retire + orders.renew > 0 {
            let mut leaving = Vec::new();
            self.pool.withdraw(now, &orders, &mut leaving);
            for worker in leaving {
                self.withdraw(pool, worker, effects);
            }
        }
        if !expected {
            self.settle(pool, now, effects);
        }
    }

    /// The process ids of busy workers, if the scaling needs to know what they do.
    fn whose_processors(&self) -> Option<Vec<u32>> {
        let scaling = self.scaling.as_ref()?;
        let leased = self.slots.iter().filter(|slot| slot.leased);
        let busy = || leased.filter(|slot| slot.process.is_some());
        let wants = scaling.scaler.wants_processors();
        wants.then(|| busy().map(|slot| slot.pid).collect())
    }

    /// Wakes the pool's task at that time, unless it wakes earlier anyway.
    fn wake_at(&mut self, at: u64, effects: &mut Effects) {
        effects.wake |= self.pool.wake_at(at);
    }

    /// Wakes the pool's task when the first waiting request reaches its limit.
    pub(super) fn wake_for_queue(&mut self, effects: &mut Effects) {
        effects.wake |= self.pool.wake_for_queue();
    }

    /// Ends a worker that gets no more requests: closes its connection, and asks the manager to end it.
    pub(super) fn withdraw(&mut self, pool: &PoolHandle, worker: WorkerId, effects: &mut Effects) {
        let slot = &mut self.slots[worker.0 as usize];
        slot.withdrawn = true;
        slot.handle = None;
        effects.close(slot.conn.take());
        if let Some(worker) = slot.process {
            effects.tell_manager(ToManager::Retire {
                pool: pool.id,
                worker,
                spent: slot.spent,
            });
        }
    }

    /// After a worker arrived or ended: gives waiting requests to other workers, or refuses them if no worker can
    /// come.
    pub(super) fn settle(&mut self, pool: &'static PoolHandle, now: Micros, effects: &mut Effects) {
        while let Some(assignment) = self.pool.dispatch(now) {
            self.grant(pool, assignment, effects);
        }
        let mut stranded = Vec::new();
        self.pool.drain_waiting(now, &mut stranded);
        for request in stranded {
            self.refuse(request, ShedReason::NoWorker, effects);
        }
    }

    /// Gives a free worker to the next request.
    pub(super) fn grant(
        &mut self,
        pool: &'static PoolHandle,
        Assignment { request, worker }: Assignment,
        effects: &mut Effects,
    ) {
        let sender = self.pool.decided(request);
        let lease = self.lend(pool, worker);
        effects.grant((sender, lease));
    }

    /// Tells a request, which has left the queue already, that it gets no worker.
    pub(super) fn refuse(&mut self, request: RequestId, reason: ShedReason, effects: &mut Effects) {
        if let Some(sender) = self.pool.decided(request) {
            effects.rare().refused.push((sender, reason));
        }
    }

    /// Removes requests that have waited too long from the queue.
    pub(super) fn expire(&mut self, now: Micros, effects: &mut Effects) {
        let refuse = |sender, reason| effects.rare().refused.push((sender, reason));
        self.pool.expire(now, refuse);
    }
}

impl Effects {
    pub(super) fn tell_manager(&mut self, message: ToManager) {
        self.rare().messages.push(message);
    }

    pub(super) fn note(&mut self, note: Note) {
        self.rare().notes.push(note);
    }

    pub(super) fn close(&mut self, conn: Option<WorkerConn>) {
        if let Some(conn) = conn {
            self.rare().closing.push(conn);
        }
    }

    fn decide(&mut self, decisions: impl Iterator<Item = Decision>) {
        for decision in decisions {
            self.rare().decisions.push(decision);
        }
    }

    fn grant(&mut self, granted: Granted) {
        match &self.granted {
            None => self.granted = Some(granted),
            Some(_) => self.rare().granted.push(granted),
        }
    }

    #[cold]
    fn rare(&mut self) -> &mut RareActions {
        self.rare.get_or_insert_default()
    }

    /// Performs the actions. The pool's lock is free.
    #[inline]
    pub(super) fn perform(self, pool: &PoolHandle) {
        if let Some(granted) = self.granted {
            give(granted);
        }
        if self.wake {
            pool.woken.notify_one();
        }
        if let Some(rare) = self.rare {
            (*rare).perform(pool);
        }
    }
}

impl RareActions {
    #[cold]
    fn perform(self, pool: &PoolHandle) {
        self.granted.into_iter().for_each(give);
        for (sender, reason) in self.refused {
            let _ = sender.send(Err(reason));
        }
        drop(self.closing);
        for message in self.messages {
            pool.manager.tell(message);
        }
        for decision in self.decisions {
            tell_decision(pool, decision);
        }
        for note in self.notes {
            tell_note(pool, note);
        }
    }
}

fn give((sender, lease): Granted) {
    match sender {
        // If the client has just left, the lease is dropped and goes to the next request.
        Some(sender) => drop(sender.send(Ok(lease))),
        None => drop(lease),
    }
}

fn bounds(workers: &Workers, mode: Mode) -> Bounds {
    Bounds {
        mode,
        max_children: workers.max_children,
        max_spawn_rate: workers.max_spawn_rate,
        idle_timeout: Micros(workers.idle_timeout.as_micros() as u64),
    }
}

/// Logs a decision of the scaling and stores it for the admin interface.
fn tell_decision(pool: &PoolHandle, decision: Decision) {
    let name = &pool.settings.name;
    let about = About {
        pool: Some(name),
        ..About::default()
    };
    let pm = pool.settings.workers().map(|workers| workers.pm);
    let what = words(&decision, matches!(pm, Some(Pm::Auto { .. })));
    match decision {
        Decision::Grew {
            by,
            workers,
            waiting,
            ..
        } => {
            if matches!(pm, Some(Pm::Dynamic { .. }))
                && error_log::format() == Format::Weir
                && waiting > 0
                && by >= SEEMS_BUSY
            {
                events::pool_seems_busy(name, by, pool.stats().free, workers - by);
            }
            tell_growth(about, pm, &what);
        }
        Decision::Shrank { .. }
        | Decision::GrowthWasUseless { .. }
        | Decision::ScriptsCompute { .. } => tell_growth(about, pm, &what),
        Decision::SeemsBusy {
            rate,
            idle,
            workers,
        } => events::pool_seems_busy(name, rate, idle, workers),
        Decision::ReachedMaxChildren { max_children, .. } => {
            events::pool_reached_max_children(name, max_children, pm == Some(Pm::OnDemand));
        }
        Decision::ReachedMemory { .. } | Decision::MemoryPressure { .. } => {
            tell!(warning, about, "{what}");
        }
        Decision::Pausing { .. } => tell!(error, about, "{what}"),
        Decision::MemoryRelieved { .. } | Decision::Recovered { .. } => {
            tell!(notice, about, "{what}");
        }
    }
    pool.note_decision(kind(&decision), what);
}

/// Logs a message about a server or a script and stores it for the admin interface.
fn tell_note(pool: &PoolHandle, note: Note) {
    let about = About {
        pool: Some(&pool.settings.name),
        ..About::default()
    };
    let (kind, what) = match note {
        Note::Notice(what) => {
            tell!(notice, about, "{what}");
            ("server", what)
        }
        Note::Warning(what) => {
            tell!(warning, about, "{what}");
            ("server", what)
        }
        Note::Crashing(what) => {
            tell!(error, about, "{what}");
            ("crashing", what)
        }
        Note::CrashesOver(what) => {
            tell!(notice, about, "{what}");
            ("crashing", what)
        }
    };
    pool.note_decision(kind, what);
}

/// Logs why the number of workers changed. With other modes than `pm = "auto"` the operator has chosen the numbers.
fn tell_growth(about: About<'_>, pm: Option<Pm>, what: &str) {
    match pm {
        Some(Pm::Auto { .. }) => tell!(notice, about, "{what}"),
        _ => tell!(debug, about, "{what}"),
    }
}

/// `1 worker`, `2 workers`.
fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// The kind of a decision as one word, for metrics.
fn kind(decision: &Decision) -> &'static str {
    match decision {
        Decision::Grew { .. } => "grew",
        Decision::Shrank { .. } => "shrank",
        Decision::ReachedMaxChildren { .. } => "max_children",
        Decision::SeemsBusy { .. } => "busy",
        Decision::ReachedMemory { .. }
        | Decision::MemoryPressure { .. }
        | Decision::MemoryRelieved { .. } => "memory",
        Decision::GrowthWasUseless { .. } | Decision::ScriptsCompute { .. } => "useless",
        Decision::Pausing { .. } => "pausing",
        Decision::Recovered { .. } => "recovered",
    }
}

/// A decision in words, with the values that led to it.
fn words(decision: &Decision, auto: bool) -> String {
    let ms = |span: Micros| span.0 / 1_000;
    match *decision {
        Decision::Grew {
            by,
            workers,
            outdated,
            waiting: 0,
            ..
        } => {
            let why = match () {
                () if outdated > 0 => format!(", {outdated} of them to be replaced"),
                () if auto && workers > by => ", to have one free for the next request".into(),
                () => String::new(),
            };
            format!("{} started, now {workers}{why}", counted(by, "worker"))
        }
        Decision::Grew {
            by,
            workers,
            waiting,
            waited,
            ..
        } => format!(
            "{} started, now {workers}: {} waiting, the first for {} ms",
            counted(by, "worker"),
            counted(waiting, "request"),
            ms(waited)
        ),
        Decision::Shrank { by, workers, idle } => format!(
            "{} stopped, {workers} left: idle for {} ms",
            counted(by, "worker"),
            ms(idle)
        ),
        Decision::SeemsBusy {
            rate,
            idle,
            workers,
        } => format!("up to {rate} workers are started at once: only {idle} of {workers} are idle"),
        Decision::ReachedMaxChildren {
            max_children,
            waiting,
        } => format!("max_children ({max_children}) is reached; {waiting} requests wait"),
        Decision::ReachedMemory { workers, waiting } => {
            format!("memory is only enough for {workers} workers, and {waiting} requests wait")
        }
        Decision::MemoryPressure { workers } => {
            format!("memory is short: some of {workers} workers are stopped, and none is started")
        }
        Decision::MemoryRelieved { .. } => "memory is no longer short".into(),
        Decision::GrowthWasUseless {
            workers,
            tried,
            rate,
            rate_tried,
        } => format!(
            "{tried} workers finished {} requests a second, {workers} finish {}: back to {workers}",
            rate_tried / 1_000,
            rate / 1_000
        ),
        Decision::ScriptsCompute { workers, waiting } => format!(
            "requests wait, but scripts compute for {} % of their time: more than {workers} workers would \
             only share the processors",
            100 - waiting / 10
        ),
        Decision::Pausing { pause, died } => {
            let what = match died {
                true => "die before they have served a request",
                false => "cannot be started",
            };
            format!(
                "workers {what}: next try in {} ms; the pause doubles each time",
                ms(pause)
            )
        }
        Decision::Recovered { tries, after } => format!(
            "workers start again, after {tries} tries in {:.1} s",
            Duration::from(after).as_secs_f64()
        ),
    }
}

/// An idle worker of a draining gateway ends after this time.
const LAST_IDLE: Micros = Micros::from_secs(1);

/// If this many workers are started at once, PHP-FPM logs that a pool seems busy.
const SEEMS_BUSY: usize = 8;
