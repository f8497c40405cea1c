//! How many workers there are: when to start some, when to withdraw some, when to leave it.

use alloc::vec::Vec;

use crate::backoff::{Allowance, Backoff, Bucket, YOUNG};
use crate::climb::Climb;
use crate::pool::View;
use crate::{Decision, MAX_WORKERS, Micros, Pool};

/// How the number of workers is chosen; the first three are PHP-FPM's `pm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Always `max_children`.
    Static,
    /// `start` at first, then as many as are busy and some spare ones.
    Dynamic {
        /// Workers that are started without being asked for.
        start: usize,
        /// Fewer idle ones: more are started, at once.
        min_spare: usize,
        /// More idle ones for a second: the coldest leaves, one a second.
        max_spare: usize,
    },
    /// None at first, one for each request that waits; one that is idle for `idle_timeout` leaves.
    OnDemand,
    /// As many as do some good.
    Auto {
        /// Never fewer, and at least one.
        start: usize,
        /// Processors that this pool may use; 0 is taken for 1.
        cores: usize,
    },
}

/// What bounds the number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scaling {
    /// How it is chosen.
    pub mode: Mode,
    /// Never more, those that start or end included. Lowered below what is there: those too many leave, the idle first.
    pub max_children: usize,
    /// So many may be started at once, and so many a second (PHP-FPM's `pm.max_spawn_rate`); 0 is taken for 1. The
    /// workers of the start do not count: `max_children` of `Static`, `start` of `Dynamic` and `Auto`.
    pub max_spawn_rate: usize,
    /// Idle workers leave after that (`OnDemand`, `Auto`).
    pub idle_timeout: Micros,
}

/// What is to be done after [`Scaler::look`]: start some, and let [`Pool::withdraw`] do the rest.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Orders {
    /// Start so many. Each is reported once: [`Scaler::came`] or [`Scaler::start_failed`].
    pub start: usize,
    /// Withdraw so many idle ones, the coldest first.
    pub stop: usize,
    /// Withdraw so many, idle or not, the idle first.
    pub retire: usize,
    /// Withdraw so many of the outdated ones ([`Pool::outdate`]), the idle first.
    pub renew: usize,
}

impl Orders {
    /// Nothing is to be done.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It was told to: by [`Orders`], after so many requests, by a limit on its time or memory, or by a person.
    Withdrawn,
    /// By itself with code 0, without being told to.
    Clean {
        /// Time since it was started.
        lived: Micros,
        /// It had finished a request.
        had_served: bool,
    },
    /// By a signal or with another code.
    Crashed {
        /// Time since it was started.
        lived: Micros,
        /// It had finished a request.
        had_served: bool,
    },
}

/// The memory that workers may use (`Auto`). It holds until the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryView {
    /// Bytes that one more worker takes; 0: not known, so that memory is no limit.
    pub worker_cost: u64,
    /// Bytes that may still be taken by workers, at least.
    pub available: u64,
    /// Memory is short now.
    pub pressure: bool,
}

/// The scaling's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScalerStats {
    /// Workers that were asked for and are not there yet.
    pub starting: usize,
    /// Workers that there should be now, as far as is known, whatever forbids it.
    pub wanted: usize,
    /// The most that there may be now: `max_children`, or less in `Auto`.
    pub limit: usize,
    /// How often more than `max_children` were wanted (PHP-FPM's `max children reached`).
    pub max_children_reached: u64,
    /// Workers that were asked for.
    pub asked: u64,
    /// Of these: those that came up.
    pub spawned: u64,
    /// Of these: those that could not be started.
    pub failed: u64,
    /// Workers that crashed.
    pub crashed: u64,
    /// Workers that ended because they were told to.
    pub withdrawn: u64,
    /// Workers that ended by themselves with code 0.
    pub ended: u64,
    /// The end of the pause because workers die young; none while there is none.
    pub paused_until: Option<Micros>,
    /// Memory is short.
    pub pressure: bool,
    /// Decisions that were not fetched in time and are lost.
    pub untold: u64,
}

/// Decides how many workers a [`Pool`] has.
#[derive(Debug)]
pub struct Scaler {
    scaling: Scaling,
    ready: bool,
    clock: Micros,
    starting: usize,
    asked_at: Micros,
    /// Workers of the start that are still to be asked for.
    initial: usize,
    /// The master has just come up: how many workers of the start are missing is found at the next look.
    begins: bool,
    bucket: Bucket,
    backoff: Backoff,
    climb: Climb,
    memory: Memory,
    /// There are more idle workers than `max_spare` since then, or one has left.
    too_many_since: Option<Micros>,
    at_max: bool,
    wanted: usize,
    limit: usize,
    next: Option<Micros>,
    decisions: Vec<Decision>,
    totals: ScalerStats,
}

/// What is known of the memory.
#[derive(Debug)]
struct Memory {
    view: Option<MemoryView>,
    /// The view is new: what it allows counts from the workers that are there now.
    is_new: bool,
    /// All workers that there is memory for.
    workers: usize,
    told: bool,
    pressed: bool,
    /// When the next worker may leave because of pressure, or one more may come after it.
    step_at: Micros,
}

impl Scaler {
    /// No worker is there, and none can be asked for until [`ready`](Self::ready).
    pub fn new(scaling: Scaling) -> Self {
        let scaling = bounded(scaling);
        Self {
            ready: false,
            clock: Micros::ZERO,
            starting: 0,
            asked_at: Micros::ZERO,
            initial: 0,
            begins: false,
            bucket: Bucket::new(scaling.max_spawn_rate),
            backoff: Backoff::new(),
            climb: Climb::new(base(&scaling)),
            memory: Memory {
                view: None,
                is_new: false,
                workers: usize::MAX,
                told: false,
                pressed: false,
                step_at: Micros::ZERO,
            },
            too_many_since: None,
            at_max: false,
            wanted: 0,
            limit: scaling.max_children,
            next: None,
            decisions: Vec::new(),
            totals: ScalerStats::default(),
            scaling,
        }
    }

    /// Changes what bounds the number of workers.
    pub fn set(&mut self, now: Micros, scaling: Scaling) {
        let now = self.advance(now);
        let scaling = bounded(scaling);
        self.bucket.set_rate(now, scaling.max_spawn_rate);
        self.climb.set_base(base(&scaling));
        self.scaling = scaling;
        self.too_many_since = None;
    }

    /// Workers can be asked for (the master is up), or not (any more): those that were asked for will not come then.
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

    /// One of those asked for is up. Call it together with [`Pool::worker_up`].
    pub fn came(&mut self, now: Micros) {
        let now = self.advance(now);
        self.starting = self.starting.saturating_sub(1);
        self.totals.spawned += 1;
        self.backoff.came(now);
    }

    /// So many of those asked for could not be started.
    pub fn start_failed(&mut self, now: Micros, count: usize) {
        let now = self.advance(now);
        let count = count.min(self.starting);
        if count == 0 {
            return;
        }
        self.starting -= count;
        self.totals.failed += count as u64;
        self.failed(now, self.asked_at, false);
    }

    /// A worker that was up has ended. Call it together with [`Pool::worker_down`].
    pub fn exited(&mut self, now: Micros, how: Exit) {
        let now = self.advance(now);
        let (lived, had_served) = match how {
            Exit::Withdrawn => {
                self.totals.withdrawn += 1;
                return;
            }
            Exit::Clean { lived, had_served } => {
                self.totals.ended += 1;
                (lived, had_served)
            }
            Exit::Crashed { lived, had_served } => {
                self.totals.crashed += 1;
                (lived, had_served)
            }
        };
        if !had_served && lived < YOUNG {
            self.failed(now, Micros(now.0.saturating_sub(lived.0)), true);
        }
    }

    /// How much memory there is (`Auto`; the other modes do as they were told).
    pub fn memory(&mut self, now: Micros, view: MemoryView) {
        self.advance(now);
        self.memory.view = Some(view);
        self.memory.is_new = true;
    }

    /// What is to be done now. To be called after each change of the pool or of the scaler, and at
    /// [`next_look`](Self::next_look). What it says to start counts as starting from here on.
    pub fn look(&mut self, now: Micros, pool: &Pool) -> Orders {
        let now = self.advance(now);
        let view = pool.view();
        self.next = None;
        if let Some((tries, after)) = self.backoff.look(now, view.proven) {
            self.tell(Decision::Recovered { tries, after });
        }
        if let Some(at) = self.backoff.next() {
            self.wake(at);
        }
        let up = view.free + view.busy;
        if self.begins && self.ready {
            self.begins = false;
            let start = match self.scaling.mode {
                Mode::Static => self.scaling.max_children,
                Mode::Dynamic { start, .. } | Mode::Auto { start, .. } => start,
                Mode::OnDemand => 0,
            };
            self.initial = start.saturating_sub(up - view.outdated_free - view.outdated_busy);
        }
        self.find_limit(now, &view);
        let missing = self.missing(&view);
        self.wanted = up + self.starting + missing;
        let mut orders = Orders::default();
        if missing > 0 {
            orders.start = self.grow(now, pool, &view, missing);
        } else {
            self.at_max &= up + view.leaving + self.starting >= self.scaling.max_children;
            self.initial = 0;
        }
        if view.outdated_free + view.outdated_busy > 0 {
            orders.renew = self.renew(&view, missing);
        } else if view.free > 0 {
            orders.stop = self.shrink(now, pool, &view);
        } else {
            self.too_many_since = None;
        }
        orders.retire = self.surplus(now, &view, orders.stop + orders.renew);
        orders
    }

    /// When [`look`](Self::look) may have something to do if nothing happens until then.
    pub fn next_look(&self) -> Option<Micros> {
        self.next
    }

    /// Whether a request should wait for a worker while none is up: not while they die as soon as they are started. For
    /// [`Pool::worker_expected`].
    pub fn expects_worker(&self) -> bool {
        self.starting > 0 || !self.backoff.is_hopeless()
    }

    /// What was decided since the last call, and why. More than 64 are not kept.
    pub fn decisions(&mut self) -> impl Iterator<Item = Decision> + '_ {
        self.decisions.drain(..)
    }

    /// The scaling's figures.
    pub fn figures(&self) -> ScalerStats {
        ScalerStats {
            starting: self.starting,
            wanted: self.wanted,
            limit: self.limit,
            paused_until: self.backoff.paused_until(self.clock),
            pressure: self.memory.pressed,
            ..self.totals
        }
    }

    /// How many workers there may be now, into `limit`.
    fn find_limit(&mut self, now: Micros, view: &View) {
        self.limit = self.scaling.max_children;
        let Mode::Auto { start, .. } = self.scaling.mode else {
            return;
        };
        let up = view.free + view.busy + view.leaving;
        if let Some(memory) = self.memory.view
            && core::mem::take(&mut self.memory.is_new)
        {
            let more = memory.available.checked_div(memory.worker_cost);
            let more = more.map_or(usize::MAX, |more| {
                usize::try_from(more).unwrap_or(usize::MAX)
            });
            self.memory.workers = up.saturating_add(more);
            if memory.pressure != self.memory.pressed {
                self.memory.pressed = memory.pressure;
                self.tell(match memory.pressure {
                    true => Decision::MemoryPressure { workers: up },
                    false => Decision::MemoryRelieved { workers: up },
                });
            }
        }
        if self.memory.pressed {
            self.memory.workers = self.memory.workers.min(up);
        }
        let most = self.limit.min(self.memory.workers.max(start));
        if let Some(at) = self.climb.observe(now, view, most) {
            self.wake(at);
        }
        self.limit = most.min(self.climb.cap());
    }

    /// So many more workers are wanted, whether they may be or not.
    fn missing(&self, view: &View) -> usize {
        let fresh_free = view.free - view.outdated_free;
        let fresh = fresh_free + view.busy - view.outdated_busy - view.retiring;
        let coming = fresh_free + self.starting;
        match self.scaling.mode {
            Mode::Static => (self.scaling.max_children).saturating_sub(fresh + self.starting),
            Mode::Dynamic { min_spare, .. } => {
                let needed = (view.waiting + min_spare).saturating_sub(coming);
                needed.max(self.initial)
            }
            Mode::OnDemand => view.waiting.saturating_sub(coming),
            Mode::Auto { start, .. } => {
                let spare = usize::from(view.busy + view.waiting > 0);
                let needed = (view.waiting + spare).saturating_sub(coming);
                needed.max(start.saturating_sub(fresh + self.starting))
            }
        }
    }

    /// Asks for as many of those that are missing as may be.
    fn grow(&mut self, now: Micros, pool: &Pool, view: &View, missing: usize) -> usize {
        let total = view.free + view.busy + view.leaving + self.starting;
        if total + missing > self.scaling.max_children {
            self.reached_max_children(view, total);
        } else {
            self.at_max = false;
        }
        let mut count = missing.min(self.limit.saturating_sub(total));
        if count == 0 || !self.ready {
            return 0;
        }
        match self.backoff.allowance(now) {
            Allowance::All => {}
            Allowance::One => count = count.min(1_usize.saturating_sub(self.starting)),
            Allowance::NothingUntil(at) => {
                self.wake(at);
                return 0;
            }
        }
        let free_of_charge = count.min(self.initial);
        let limited = count - free_of_charge;
        let taken = self.bucket.take(now, limited);
        if taken < limited {
            self.wake(self.bucket.next(now));
        }
        let count = free_of_charge + taken;
        if count == 0 {
            return 0;
        }
        self.initial -= free_of_charge;
        self.starting += count;
        self.totals.asked += count as u64;
        self.asked_at = now;
        let oldest = pool.oldest_waiting();
        self.tell(Decision::Grew {
            by: count,
            workers: total + count,
            waiting: view.waiting,
            waited: oldest.map_or(Micros::ZERO, |oldest| now.since(oldest)),
        });
        count
    }

    fn reached_max_children(&mut self, view: &View, total: usize) {
        let is_static = self.scaling.mode == Mode::Static;
        if is_static || self.at_max || total < self.scaling.max_children {
            return;
        }
        self.at_max = true;
        self.totals.max_children_reached += 1;
        self.tell(Decision::ReachedMaxChildren {
            max_children: self.scaling.max_children,
            waiting: view.waiting,
        });
    }

    /// So many idle workers leave.
    fn shrink(&mut self, now: Micros, pool: &Pool, view: &View) -> usize {
        let up = view.free + view.busy;
        let timeout = self.scaling.idle_timeout;
        let limit = now.0.checked_sub(timeout.0).map(Micros);
        let Some((_, coldest)) = pool.coldest_idle() else {
            return 0;
        };
        let expired = || limit.map_or(0, |limit| pool.idle_since(limit, MOST_AT_ONCE));
        let count = match self.scaling.mode {
            Mode::Static => 0,
            Mode::Dynamic { max_spare, .. } => {
                if view.free <= max_spare || view.waiting > 0 {
                    self.too_many_since = None;
                    return 0;
                }
                let due = self.too_many_since.get_or_insert(now).after(PACE);
                if now < due {
                    self.wake(due);
                    return 0;
                }
                self.too_many_since = Some(now);
                self.wake(now.after(PACE));
                1
            }
            Mode::OnDemand => {
                self.wake(now.max(coldest.after(timeout)));
                expired()
            }
            Mode::Auto { start, .. } => {
                let count = expired().saturating_sub(1).min(up.saturating_sub(start));
                if up > start && view.free > 1 {
                    self.wake(now.after(timeout));
                }
                count
            }
        };
        if count > 0 {
            let left = up - count + self.starting;
            self.climb.shrunk(left);
            self.tell(Decision::Shrank {
                by: count,
                workers: left,
                idle: now.since(coldest),
            });
        }
        count
    }

    /// So many outdated workers leave: all of them once the others suffice, else a few at a time, and these only where
    /// there is no room for their successors beside them.
    fn renew(&self, view: &View, missing: usize) -> usize {
        let outdated = view.outdated_free + view.outdated_busy;
        if missing == 0 && self.starting == 0 {
            return outdated;
        }
        let total = view.free + view.busy + view.leaving + self.starting;
        if total < self.limit {
            return 0;
        }
        let at_once = (self.limit / 4).max(1);
        let under_way = view.leaving + view.retiring + self.starting;
        outdated.min(at_once.saturating_sub(under_way))
    }

    /// So many workers more than may be leave.
    fn surplus(&mut self, _now: Micros, view: &View, leaving: usize) -> usize {
        let staying = (view.free + view.busy - view.retiring).saturating_sub(leaving);
        let limit = match self.scaling.mode {
            Mode::Auto { .. } => self.scaling.max_children.min(self.climb.cap()),
            _ => self.scaling.max_children,
        };
        staying.saturating_sub(limit)
    }

    fn failed(&mut self, now: Micros, born: Micros, died: bool) {
        if let Some(pause) = self.backoff.failed(now, born) {
            self.tell(Decision::Pausing { pause, died });
        }
    }

    fn wake(&mut self, at: Micros) {
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
    if let Mode::Auto { start, cores } = &mut scaling.mode {
        *start = (*start).clamp(1, scaling.max_children.max(1));
        *cores = (*cores).max(1);
    }
    scaling
}

/// Workers that `Auto` starts without asking whether they do any good: enough to keep the processors busy while some
/// wait for their next request.
fn base(scaling: &Scaling) -> usize {
    match scaling.mode {
        Mode::Auto { start, cores } => start.max(cores.saturating_add(cores.div_ceil(2))),
        _ => usize::MAX,
    }
}

/// One idle worker too many leaves in that time (`Dynamic`), as in PHP-FPM.
const PACE: Micros = Micros::from_secs(1);

/// Idle workers that leave at one look.
const MOST_AT_ONCE: usize = 16;

const MOST_DECISIONS: usize = 64;
