//! Decides how many workers there are: when to start some, and when to withdraw some.

mod maintenance;
mod renew;
mod rest;

use alloc::vec::Vec;

use crate::backoff::{Allowance, Backoff, Failed, YOUNG};
use crate::climb::Climb;
use crate::leaving;
use crate::memory::{Memory, Patience};
use crate::pool::View;
use crate::token_bucket::{EventRate, TokenBucket};
use crate::{Decision, MAX_WORKERS, Micros, Pool, ProcessorUse};

use self::maintenance::Maintenance;

/// How the number of workers is chosen; the first three are PHP-FPM's `pm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Always `max_children`.
    Static,
    /// `start` at first; then as many as are busy, and some spare ones.
    Dynamic {
        /// Workers that are started in advance.
        start: usize,
        /// If fewer are idle, more are started at once.
        min_spare: usize,
        /// If more are idle for a second, the one idle longest leaves, one per second.
        max_spare: usize,
    },
    /// None at first, one for each waiting request; a worker that is idle for `idle_timeout` leaves.
    OnDemand,
    /// As many as are useful.
    Auto {
        /// Minimum, at least one.
        start: usize,
        /// Processors that this pool may use; 0 counts as 1.
        cores: usize,
        /// None at first, and none again when all of them were idle for `idle_timeout`. `start` is the minimum in between.
        rests: bool,
    },
}

/// The limits of the number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scaling {
    /// How the number is chosen.
    pub mode: Mode,
    /// Maximum, including workers that are starting or ending. If it is lowered, the surplus leaves, idle ones first.
    pub max_children: usize,
    /// How many may be started at once, and per second (PHP-FPM's `pm.max_spawn_rate`); 0 counts as 1. The workers of
    /// the start do not count: `max_children` of `Static`, `start` of `Dynamic` and `Auto`.
    pub max_spawn_rate: usize,
    /// Idle workers leave after this time (`OnDemand`, `Auto`).
    pub idle_timeout: Micros,
}

/// The actions after [`Scaler::look`]: start workers, and let [`Pool::withdraw`] do the rest.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Orders {
    /// Start this many. Each must be reported once: [`Scaler::came`] or [`Scaler::start_failed`].
    pub start: usize,
    /// Withdraw this many idle ones, those idle longest first.
    pub stop: usize,
    /// Withdraw this many, idle or not, idle ones first.
    pub retire: usize,
    /// Withdraw this many outdated ones ([`Pool::outdate`]), idle ones first.
    pub renew: usize,
}

impl Orders {
    /// Whether there is nothing to do.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The worker was ended: by [`Orders`], by a time limit, or by a person.
    Withdrawn,
    /// The worker was ended because it has served its maximum (of requests or memory), or it was killed during its request
    /// because of a limit. Its replacement does not count for `max_spawn_rate`; otherwise a busy pool whose workers
    /// serve few requests each would soon have no workers.
    Spent,
    /// By itself with code 0, without being asked.
    Clean(Life),
    /// By a signal, or with another code.
    Crashed(Life),
}

/// The life of a worker that ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// Time since its start.
    pub lived: Micros,
    /// The worker had been given a request, or has one now.
    pub had_work: bool,
    /// The worker ended during a request. Its replacement does not count for `max_spawn_rate`: a script that crashes must not
    /// take workers away from other requests.
    pub at_work: bool,
}

/// The memory that workers may use (`Auto`). It is valid until the next report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryView {
    /// Memory of one more worker, bytes; 0: not known, so memory is no limit.
    pub worker_cost: u64,
    /// Memory that workers may still use, at least, bytes.
    pub available: u64,
    /// Memory is short now.
    pub pressure: bool,
}

/// The figures of the scaling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScalerStats {
    /// Requested workers that have not started yet.
    pub starting: usize,
    /// How many workers there should be now, regardless of limits. The pool knows this only roughly.
    pub wanted: usize,
    /// The present maximum: `max_children`, or less in `Auto`.
    pub limit: usize,
    /// How often more than `max_children` were needed (PHP-FPM's `max children reached`).
    pub max_children_reached: u64,
    /// Requested workers.
    pub asked: u64,
    /// How many of these have started.
    pub spawned: u64,
    /// How many of these could not be started.
    pub failed: u64,
    /// Workers that crashed.
    pub crashed: u64,
    /// Workers that were asked to end.
    pub withdrawn: u64,
    /// Workers that ended by themselves with code 0.
    pub ended: u64,
    /// The end of the pause because workers die early; `None` if there is no pause.
    pub paused_until: Option<Micros>,
    /// Workers die early, so only one is tried at a time.
    pub trying: bool,
    /// Memory is short.
    pub pressure: bool,
    /// Decisions that were not fetched in time and are lost.
    pub untold: u64,
}

/// Decides how many workers a [`Pool`] has.
///
/// # Input
///
/// All of this happens under the pool's lock, in the order of the events: [`ready`](Self::ready) when the master that
/// forks workers comes up or is lost, [`came`](Self::came) together with [`Pool::worker_up`],
/// [`start_failed`](Self::start_failed), [`exited`](Self::exited) together with [`Pool::worker_down`], and
/// [`memory`](Self::memory) from time to time. After each of these calls, and after each change of the pool (a
/// request admitted, released, gone), [`look`](Self::look) returns what to do; if that is nothing, it costs a few
/// comparisons. If nothing happens, a timer set to [`next_look`](Self::next_look) calls it.
///
/// # Rules
///
/// PHP-FPM checks once a second and starts one worker, then two, then four: a burst of twenty requests waits for
/// seconds. Here each waiting request counts at once.
///
/// | mode | a worker is started | a worker leaves |
/// |---|---|---|
/// | static | while fewer than `max_children` are there | never |
/// | dynamic | for each request that waits, and while fewer than `min_spare` are idle | each second in which more than `max_spare` were idle |
/// | ondemand | for each request that waits | after it was idle for `idle_timeout`, a few at a time |
/// | auto | for each request that waits, and one ahead of the next, as long as more workers do more | after two were idle for `idle_timeout`, a few at a time, so that one stays ahead; never below `start`, unless it rests and all were idle for that time |
///
/// `auto` sets its own limit below `max_children`: by the effect of more workers and by what scripts do, as
/// `climb.rs` explains, and by memory. The memory limit is [`MemoryView::available`] in workers; under pressure it is
/// the present number. Then idle workers leave, one each 100 ms, and then busy ones as they finish, one each 2 s,
/// down to `start`. When the pressure is over, the limit rises again by one each 10 s, because memory that is used
/// again at once would soon be short again.
///
/// If an `auto` worker leaves and is missed soon after, it was ended too early: then `idle_timeout` is doubled, up to
/// eight times, until this has not happened for long.
///
/// # Invariants
///
/// - Workers that are up, leaving or starting are never more than `max_children`, unless it was lowered.
/// - Workers are not started faster than `max_spawn_rate`, except those of the start when the master comes up, and
///   replacements for workers that ended during a request or have served their maximum.
/// - No request waits for a worker that may be started: missing workers are requested in the same look if nothing
///   forbids it.
/// - A worker is never withdrawn during its request.
/// - Workers that die early without a request are replaced once at once, and then by a single one, after a pause that
///   doubles from 100 ms to 30 s (to 1.6 s if they cannot be started). This ends when one has served, or lived for 10
///   s. Workers that die during a request are always replaced at once.
/// - Outdated workers work until their replacements are up, or until there is no room for both.
#[derive(Debug)]
pub struct Scaler {
    scaling: Scaling,
    ready: bool,
    clock: Micros,
    starting: usize,
    asked_at: Micros,
    /// Workers of the start that are not requested yet.
    initial: usize,
    /// Replacements that are not requested yet and do not count for `max_spawn_rate`.
    owed: usize,
    /// The master has just come up: the next look finds how many workers of the start are missing.
    begins: bool,
    bucket: TokenBucket,
    backoff: Backoff,
    /// `Auto` only.
    climb: Option<Climb>,
    /// `Dynamic` and `OnDemand`, at PHP-FPM's pace.
    maintenance: Option<Maintenance>,
    memory: Memory,
    patience: Patience,
    /// Since when there are more idle workers than `max_spare`, or since one has left.
    too_many_since: Option<Micros>,
    /// `Auto` that rests: nobody asks for a worker, so none has to be there.
    resting: bool,
    /// When the next outdated workers may leave; `None` if there are none.
    renew_at: Option<Micros>,
    at_max: bool,
    at_memory: bool,
    wanted: usize,
    limit: usize,
    next: Option<Micros>,
    decisions: Vec<Decision>,
    totals: ScalerStats,
}

impl Scaler {
    /// Without workers; none can be requested until [`ready`](Self::ready).
    pub fn new(scaling: Scaling) -> Self {
        let scaling = bounded(scaling);
        Self {
            ready: false,
            clock: Micros::ZERO,
            starting: 0,
            asked_at: Micros::ZERO,
            initial: 0,
            owed: 0,
            begins: false,
            bucket: TokenBucket::new(EventRate::per_second(scaling.max_spawn_rate)),
            backoff: Backoff::new(),
            climb: climb(&scaling),
            maintenance: None,
            memory: Memory::new(),
            patience: Patience::new(),
            too_many_since: None,
            resting: matches!(scaling.mode, Mode::Auto { rests: true, .. }),
            renew_at: None,
            at_max: false,
            at_memory: false,
            wanted: 0,
            limit: scaling.max_children,
            next: None,
            decisions: Vec::new(),
            totals: ScalerStats::default(),
            scaling,
        }
    }

    /// Changes the limits. If there are too many workers, they leave at the next look.
    pub fn set(&mut self, now: Micros, scaling: Scaling) {
        let now = self.advance(now);
        let scaling = bounded(scaling);
        let rate = EventRate::per_second(scaling.max_spawn_rate);
        self.bucket.set_rate(now, rate);
        if scaling.mode != self.scaling.mode {
            self.climb = climb(&scaling);
            self.too_many_since = None;
            self.resting &= matches!(scaling.mode, Mode::Auto { rests: true, .. });
        }
        self.scaling = scaling;
    }

    /// Whether workers can be requested (the master is up). If not, requested workers will not come.
    pub fn ready(&mut self, now: Micros, ready: bool) {
        self.advance(now);
        if ready && !self.ready {
            self.begins = true;
        }
        if !ready {
            self.totals.failed += self.starting as u64;
            self.starting = 0;
        }
        self.ready = ready;
    }

    /// A requested worker is up. Call it together with [`Pool::worker_up`].
    pub fn came(&mut self, now: Micros) {
        let now = self.advance(now);
        self.starting = self.starting.saturating_sub(1);
        self.totals.spawned += 1;
        self.backoff.came(now);
    }

    /// `count` of the requested workers could not be started, or died before they were up.
    pub fn start_failed(&mut self, now: Micros, count: usize) {
        let now = self.advance(now);
        let count = count.min(self.starting);
        if count == 0 {
            return;
        }
        self.starting -= count;
        self.totals.failed += count as u64;
        self.failed(now, self.asked_at, Failed::Start);
    }

    /// A worker that was up has ended. Call it together with [`Pool::worker_down`].
    pub fn exited(&mut self, now: Micros, how: Exit) {
        let now = self.advance(now);
        if let Some(maintenance) = &mut self.maintenance
            && how != Exit::Withdrawn
        {
            maintenance.replaces += 1;
        }
        let life = match how {
            Exit::Withdrawn => {
                self.totals.withdrawn += 1;
                return;
            }
            Exit::Spent => {
                self.totals.withdrawn += 1;
                return self.owe();
            }
            Exit::Clean(life) => {
                self.totals.ended += 1;
                life
            }
            Exit::Crashed(life) => {
                self.totals.crashed += 1;
                life
            }
        };
        if life.at_work {
            self.owe();
        } else if self.ready && !life.had_work && life.lived < YOUNG {
            // Without a master no worker can live.
            let born = Micros(now.0.saturating_sub(life.lived.0));
            self.failed(now, born, Failed::Idle);
        }
    }

    /// Allows one more start in addition to the rate.
    fn owe(&mut self) {
        self.owed = (self.owed + 1).min(self.scaling.max_children);
    }

    /// How much memory there is (`Auto`; other modes ignore it).
    pub fn memory(&mut self, now: Micros, view: MemoryView) {
        self.advance(now);
        self.memory.view = Some(view);
    }

    /// How the pool used the processors in the last tenth of a second or so (`Auto`). To be called
    /// about every 100 ms while [`wants_processors`](Self::wants_processors); otherwise nothing is known about them.
    pub fn processors(&mut self, now: Micros, found: ProcessorUse) {
        let now = self.advance(now);
        if let Some(climb) = &mut self.climb {
            climb.processors(now, found);
        }
    }

    /// Whether it matters how the pool uses the processors.
    pub fn wants_processors(&self) -> bool {
        self.climb.as_ref().is_some_and(Climb::wants_processors)
    }

    /// How many workers there may be before the requests that wait now have waited for long. `Auto` finds its limit
    /// by trying: it doubles it while requests wait and this is useful, and raises it to everything that fits into
    /// memory while its scripts wait.
    pub fn soon(&self) -> usize {
        match &self.climb {
            Some(climb) if climb.may_grow_freely(self.clock) => {
                self.scaling.max_children.min(self.memory.limit().max(1))
            }
            Some(_) => self.limit.saturating_mul(2).min(self.scaling.max_children),
            None => self.limit,
        }
    }

    /// What to do now. To be called after each change of the pool or of the scaler, and at
    /// [`next_look`](Self::next_look). Workers in `start` count as starting from now on.
    pub fn look(&mut self, now: Micros, pool: &Pool) -> Orders {
        let now = self.advance(now);
        let view = pool.view();
        self.next = None;
        self.see_recovery(now, &view);
        self.resting &= view.busy + view.queued == 0;
        if self.begins && self.ready {
            self.begin(&view);
        }
        self.find_limit(now, &view);
        let waiting = self.waiting(&view);
        let total = self.total(&view);
        let missing = self.maintain(now, &view, waiting);
        let missing = missing.max(self.missing(&view, waiting));
        self.wanted = total - view.leaving + missing;
        // Workers that leave and are needed again at once, as after `max_requests`, do not end this state.
        self.at_max &= total.max(self.wanted) >= self.scaling.max_children;
        self.at_memory &= total >= self.memory.limit();
        let mut orders = Orders::default();
        if missing > 0 {
            orders.start = self.grow(now, pool, &view, missing);
        } else {
            (self.initial, self.owed) = (0, 0);
            self.replaced(usize::MAX);
        }
        if view.outdated_free + view.outdated_busy > 0 {
            orders.renew = self.renew(now, &view, missing);
        } else if view.free > view.kept && orders.start == 0 {
            orders.stop = self.shrink(now, pool, &view, waiting);
        } else {
            self.too_many_since = None;
        }
        if view.outdated_free + view.outdated_busy == 0 {
            self.renew_at = None;
        }
        let staying = (view.free + view.busy - view.retiring) - (orders.stop + orders.renew);
        orders.retire = self.too_many(staying);
        if self.memory.pressed && orders.stop + orders.retire == 0 {
            self.give_memory_back(now, &view, staying, &mut orders);
        }
        orders
    }

    /// When [`look`](Self::look) may have something to do, if nothing happens before.
    pub fn next_look(&self) -> Option<Micros> {
        self.next
    }

    /// Whether a request should wait for a worker while none is up: not during long pauses after workers that died
    /// early. For [`Pool::worker_expected`], after each [`look`](Self::look), [`exited`](Self::exited) and
    /// [`start_failed`](Self::start_failed).
    pub fn expects_worker(&self) -> bool {
        self.starting > 0 || self.backoff.hopeless_until(self.clock).is_none()
    }

    /// The decisions since the last call. At most 64 are kept.
    pub fn decisions(&mut self) -> impl Iterator<Item = Decision> + '_ {
        self.decisions.drain(..)
    }

    /// The figures of the scaling.
    pub fn figures(&self) -> ScalerStats {
        ScalerStats {
            starting: self.starting,
            wanted: self.wanted,
            limit: self.limit,
            paused_until: self.backoff.paused_until(self.clock),
            trying: self.backoff.is_trying(),
            pressure: self.memory.pressed,
            ..self.totals
        }
    }

    fn see_recovery(&mut self, now: Micros, view: &View) {
        if let Some((tries, after)) = self.backoff.look(now, view.proven) {
            self.tell(Decision::Recovered { tries, after });
        }
        if let Some(at) = self.backoff.next(now) {
            self.wake(at);
        }
    }

    /// The master has come up: the workers of the start are missing, except existing ones.
    fn begin(&mut self, view: &View) {
        self.begins = false;
        let start = match self.scaling.mode {
            Mode::Static => self.scaling.max_children,
            Mode::Auto { .. } if self.resting => 0,
            Mode::Dynamic { start, .. } | Mode::Auto { start, .. } => start,
            Mode::OnDemand => 0,
        };
        let outdated = view.outdated_free + view.outdated_busy;
        let fresh = view.free + view.busy - outdated;
        self.initial = start.saturating_sub(fresh + self.starting);
    }

    /// Computes the present maximum of workers, in `limit`.
    fn find_limit(&mut self, now: Micros, view: &View) {
        self.limit = self.scaling.max_children;
        let Mode::Auto { start, .. } = self.scaling.mode else {
            return;
        };
        if let Some(decision) = self.memory.look(now, view, self.limit) {
            self.tell(decision);
        }
        if let Some(at) = self.memory.next().filter(|_| !self.memory.pressed) {
            self.wake(at);
        }
        self.limit = self.limit.min(self.memory.limit().max(start));
        let Some(climb) = &mut self.climb else { return };
        let (next, useless) = climb.look(now, view, self.limit);
        self.limit = self.limit.min(climb.cap());
        if let Some(at) = next {
            self.wake(at);
        }
        if let Some(useless) = useless {
            self.tell(useless);
        }
    }

    /// Waiting requests that could run with one more worker each.
    fn waiting(&self, view: &View) -> usize {
        if view.maxconn >= self.scaling.max_children {
            return view.queued;
        }
        view.queued.min(view.maxconn.saturating_sub(view.busy))
    }

    /// How many more workers are needed, regardless of limits.
    fn missing(&self, view: &View, waiting: usize) -> usize {
        let fresh_free = view.free - view.outdated_free;
        let fresh = fresh_free + view.busy - view.outdated_busy - view.retiring;
        // Workers that are kept for other requests count as busy.
        let coming = fresh_free.saturating_sub(view.kept) + self.starting;
        match self.scaling.mode {
            Mode::Static => (self.scaling.max_children).saturating_sub(fresh + self.starting),
            Mode::Dynamic { min_spare, .. } => {
                let (spare, replaces) = match &self.maintenance {
                    None => (min_spare, 0),
                    Some(maintenance) => (0, maintenance.replaces),
                };
                let needed = (waiting + spare).saturating_sub(coming);
                needed.max(self.initial).max(replaces)
            }
            Mode::OnDemand => {
                let replaces = self.maintenance.as_ref().map_or(0, |own| own.replaces);
                waiting.saturating_sub(coming).max(replaces)
            }
            Mode::Auto { start, .. } => {
                let spare = usize::from(view.busy + waiting > 0);
                let needed = (waiting + spare).saturating_sub(coming);
                let least = if self.resting { 0 } else { start };
                needed.max(least.saturating_sub(fresh + self.starting))
            }
        }
    }

    /// Requests as many of the missing workers as allowed.
    fn grow(&mut self, now: Micros, pool: &Pool, view: &View, missing: usize) -> usize {
        let waiting = self.waiting(view);
        let total = self.total(view);
        let room = self.limit.saturating_sub(total);
        if room < missing && self.maintenance.is_none() {
            self.tell_limit(total, waiting);
        }
        let mut count = missing.min(room);
        if count == 0 || !self.ready {
            return 0;
        }
        match self.backoff.allowance(now) {
            Allowance::All => {}
            Allowance::One => count = count.min(1_usize.saturating_sub(self.starting)),
            Allowance::Nothing => return 0,
            Allowance::NothingUntil(at) => {
                self.wake(at);
                return 0;
            }
        }
        let initial = count.min(self.initial);
        let owed = (count - initial).min(self.owed);
        let exempt = initial + owed;
        let limited = count - exempt;
        let mut taken = 0;
        while taken < limited {
            match self.bucket.take(now) {
                Ok(()) => taken += 1,
                Err(next) => {
                    self.wake(next);
                    break;
                }
            }
        }
        let count = exempt + taken;
        if count == 0 {
            return 0;
        }
        self.initial -= initial;
        self.owed -= owed;
        self.replaced(count);
        self.starting += count;
        self.totals.asked += count as u64;
        self.asked_at = now;
        self.patience.missed(now, self.scaling.idle_timeout);
        let oldest = pool.oldest_waiting().filter(|_| waiting > 0);
        self.tell(Decision::Grew {
            by: count,
            workers: total + count,
            outdated: view.outdated_free + view.outdated_busy,
            waiting,
            waited: oldest.map_or(Micros::ZERO, |oldest| now.since(oldest)),
        });
        count
    }

    /// More are needed than allowed: reports it, if that was not done already.
    fn tell_limit(&mut self, total: usize, waiting: usize) {
        let max_children = self.scaling.max_children;
        if total >= max_children {
            // All workers of a static pool exist: that is not a reached limit.
            if self.scaling.mode != Mode::Static && !self.at_max {
                self.at_max = true;
                self.totals.max_children_reached += 1;
                self.tell(Decision::ReachedMaxChildren {
                    max_children,
                    waiting,
                });
            }
        } else if total >= self.memory.limit() && !self.at_memory {
            self.at_memory = true;
            self.tell(Decision::ReachedMemory {
                workers: total,
                waiting,
            });
        }
    }

    /// How many idle workers leave.
    fn shrink(&mut self, now: Micros, pool: &Pool, view: &View, waiting: usize) -> usize {
        let Some((_, coldest)) = pool.coldest_idle() else {
            return 0;
        };
        let up = view.free + view.busy;
        let count = match self.scaling.mode {
            Mode::Static => 0,
            Mode::Dynamic { .. } if self.maintenance.is_some() => self.ends_one(),
            Mode::Dynamic { max_spare, .. } => {
                if view.free <= max_spare || waiting > 0 {
                    self.too_many_since = None;
                    return 0;
                }
                let due = self.too_many_since.get_or_insert(now).after(PACE);
                let is_due = usize::from(now >= due);
                if is_due == 1 {
                    self.too_many_since = Some(now);
                }
                self.wake(if is_due == 1 { now.after(PACE) } else { due });
                is_due
            }
            Mode::OnDemand if self.maintenance.is_some() => self.ends_coldest(now, coldest),
            Mode::OnDemand => {
                let timeout = self.scaling.idle_timeout;
                self.expired(now, pool, view, timeout)
            }
            Mode::Auto { start, rests, .. } => {
                let timeout = self.patience.stretch(self.scaling.idle_timeout);
                if rests && view.busy + view.queued + self.starting == 0 {
                    self.look_for_rest(now, pool, view, timeout);
                }
                let too_many = up.saturating_sub(start);
                if !self.resting && (too_many == 0 || view.free < 2) {
                    return 0;
                }
                if self.resting {
                    let leaving = self.expired(now, pool, view, timeout);
                    return self.shrinks(now, up, leaving, coldest);
                }
                let expired = self.expired(now, pool, view, timeout);
                expired.saturating_sub(1).min(too_many)
            }
        };
        self.shrinks(now, up, count, coldest)
    }

    /// How many are idle for `timeout` or longer, and leave now. The next ones leave when these have ended, because the
    /// end of a process needs CPU time that others need to serve or start. Plans the next look for when this changes.
    fn expired(&mut self, now: Micros, pool: &Pool, view: &View, timeout: Micros) -> usize {
        let Some((_, coldest)) = pool.coldest_idle() else {
            return 0;
        };
        let due = coldest.after(timeout);
        if now < due {
            self.wake(due);
            return 0;
        }
        let most = leaving::idle_at_once(view.free + view.busy);
        let room = most.saturating_sub(view.leaving);
        if room == 0 {
            // The scaler looks again when one of the leaving workers has ended.
            return 0;
        }
        let limit = Micros(now.0 - timeout.0);
        let (expired, next) = pool.idle_since(limit, room);
        if let Some(next) = next {
            self.wake(next.after(timeout));
        }
        expired
    }

    /// How many of the staying workers exceed the maximum. Only workers that exist count, not those that may come.
    fn too_many(&self, staying: usize) -> usize {
        let cap = self.climb.as_ref().map_or(usize::MAX, Climb::cap);
        staying.saturating_sub(self.scaling.max_children.min(cap))
    }

    /// Memory is short: one worker leaves, if the time for it has come.
    fn give_memory_back(&mut self, now: Micros, view: &View, staying: usize, orders: &mut Orders) {
        let Mode::Auto { start, .. } = self.scaling.mode else {
            return;
        };
        if staying <= start {
            return;
        }
        if let Some(at) = self.memory.next().filter(|at| now < *at) {
            return self.wake(at);
        }
        let is_idle = view.free > 0;
        if is_idle {
            orders.stop = 1;
        } else {
            orders.retire = 1;
        }
        self.memory.step(now, is_idle);
        self.wake(now);
    }

    fn failed(&mut self, now: Micros, born: Micros, failure: Failed) {
        if let Some(pause) = self.backoff.failed(now, born, failure) {
            let died = failure != Failed::Start;
            self.tell(Decision::Pausing { pause, died });
        }
    }

    /// Workers that take up room: those that are up, leaving, or starting.
    fn total(&self, view: &View) -> usize {
        view.free + view.busy + view.leaving + self.starting
    }

    fn wake(&mut self, at: Micros) {
        let at = at.max(self.clock.after(SOON));
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn tell(&mut self, decision: Decision) {
        if self.decisions.len() < MOST_DECISIONS {
            self.decisions.push(decision);
        } else {
            self.totals.untold += 1;
        }
    }

    fn advance(&mut self, now: Micros) -> Micros {
        self.clock = self.clock.max(now);
        self.clock
    }
}

fn bounded(mut scaling: Scaling) -> Scaling {
    scaling.max_children = scaling.max_children.min(MAX_WORKERS as usize);
    let most = scaling.max_children;
    match &mut scaling.mode {
        Mode::Dynamic {
            start, min_spare, ..
        } => {
            *start = (*start).min(most);
            *min_spare = (*min_spare).min(most);
        }
        Mode::Auto { start, cores, .. } => {
            *start = (*start).clamp(1, most.max(1));
            *cores = (*cores).clamp(1, MAX_WORKERS as usize);
        }
        Mode::Static | Mode::OnDemand => {}
    }
    scaling
}

fn climb(scaling: &Scaling) -> Option<Climb> {
    match scaling.mode {
        Mode::Auto { start, cores, .. } => Some(Climb::new(start, cores)),
        Mode::Static | Mode::Dynamic { .. } | Mode::OnDemand => None,
    }
}

/// One surplus idle worker leaves per this time (`Dynamic`), as in PHP-FPM.
const PACE: Micros = Micros::from_secs(1);

/// Minimum of timers.
const SOON: Micros = Micros::from_millis(1);

const MOST_DECISIONS: usize = 64;
