//! The pool: its states, its events, its rules.

use alloc::vec::Vec;

use crate::queue::{Class, Queue, Waiting};
use crate::workers::{State, Withdrawal, Workers};
use crate::{Limits, Micros, Orders, Stats, Ticket};

/// A worker's slot number, given by the caller: small, below [`crate::MAX_WORKERS`], and used again by the worker that
/// takes a dead one's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

/// A request, named by the caller from a counter: never two with the same id in a pool at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The answer to a request that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It has this worker until [`Pool::release`] or [`Pool::worker_down`].
    Run(WorkerId),
    /// It waits.
    Wait {
        /// At most so many are before it; 0: it is next.
        position: usize,
        /// This one, which waited, is out of the queue for it: answer it with [`ShedReason::PushedOut`].
        pushed_out: Option<RequestId>,
    },
    /// It is refused and forgotten.
    Shed(ShedReason),
}

/// This request has this worker now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// It is out of the queue.
    pub request: RequestId,
    /// It was free.
    pub worker: WorkerId,
}

/// The answer to [`Pool::release`].
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Released {
    /// Who is next, and on which worker.
    pub next: Option<Assignment>,
    /// The worker that was released leaves: it was retired while it was busy. End it, and report
    /// [`Pool::worker_down`] when it has ended; call [`Pool::drain_waiting`], since it may have been the last one.
    pub leaves: bool,
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShedReason {
    /// `max_queue` requests are waiting.
    QueueFull,
    /// It waited for `timeout`, or its time was up before it could wait.
    QueueTimeout,
    /// It was not let into the queue: by what is known it would have had to wait beyond `timeout` or its deadline.
    Hopeless,
    /// Its own deadline is past, or so near that a worker could not keep it any more.
    Deadline,
    /// The pool is overloaded, and its queue as long as it should be then.
    Overload,
    /// It waited, and had to make room: for a request of a client that has fewer waiting, of a better class, or that has
    /// not waited for too long.
    PushedOut,
    /// No worker is there and none is expected.
    NoWorker,
}

/// A request that waited, is out of the queue, and is to be answered with a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Which.
    pub request: RequestId,
    /// Why.
    pub reason: ShedReason,
}

/// What is to be done after [`Pool::set_limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Give the request to the worker.
    Run(Assignment),
    /// Answer the request, which waited, with this refusal.
    Shed {
        /// It is out of the queue.
        request: RequestId,
        /// Why.
        reason: ShedReason,
    },
}

/// Which worker runs which request, who waits, and who is refused.
///
/// # States
///
/// A worker is **down** (not there, as all are at first), **free**, **busy** with one request, or **leaving**
/// (withdrawn, but its process has not yet ended: it gets no request, and its slot is not free). A busy one may be
/// **retiring**, that is, leave when it is released. One that is up may be **outdated**, that is, it works but shall be
/// replaced. A request that the pool knows is **waiting** in the queue, or **running**: held by exactly one busy worker. All others are unknown to
/// it: not yet admitted, finished, refused, or gone. The pool itself is **expecting** a worker or not, which matters
/// only while all workers are down.
///
/// # Events and who may cause them
///
/// The owner of the workers calls [`worker_up`](Self::worker_up), [`worker_down`](Self::worker_down) and
/// [`worker_expected`](Self::worker_expected). Who serves a request calls [`admit`](Self::admit), then
/// [`release`](Self::release) when the worker says that it is ready again (which is not when its answer is complete: a
/// script may run on), [`leave`](Self::leave) when the client is gone, and [`readmit`](Self::readmit) when the worker
/// failed and [`may_retry`](crate::may_retry) allows it. A timer set to [`next_deadline`](Self::next_deadline) calls
/// [`expire`](Self::expire).
///
/// | event | worker down | worker free | worker busy | worker leaving |
/// |---|---|---|---|---|
/// | `worker_up` | → free, or busy with who is next | has a new home, used last | ignored: report `worker_down` first | ignored |
/// | `worker_down` | ignored | → down | → down, the request is handed back and forgotten | → down |
/// | `release` | ignored | ignored | → free, or busy with who is next; → leaving if retiring | ignored |
/// | `retire` | ignored | → leaving | retiring | ignored |
/// | `lose` | ignored | ignored | → leaving, the request is handed back and forgotten | ignored |
/// | `outdate` | ignored | outdated | outdated, unless retiring | ignored |
///
/// | event | request unknown | request waiting | request running |
/// |---|---|---|---|
/// | `admit`, `readmit` | → running, waiting or refused | asserts; ignored | the caller's defect; not noticed |
/// | `leave` | false | → unknown | false: stopping it is the worker's matter |
/// | `expire` | – | → unknown if its time is up | – |
///
/// Ignored events change nothing but [`Stats::ignored`]: they are what is left of a race between threads, such as a
/// release on the heels of the worker's death. What the pool cannot see is a late release of a worker that went down
/// **and came up again with the same id**: whoever may be late compares [`running`](Self::running) first.
///
/// # What holds after each call
///
/// - No worker has two requests, and no request two workers.
/// - At most `maxconn` requests run, unless `maxconn` was lowered: then no new one starts until enough have finished.
/// - Nobody waits while a worker is free and `maxconn` allows one more. The one exception is between `worker_down` of a
///   busy worker and [`dispatch`](Self::dispatch), so that its request can be readmitted and get the free place.
/// - Nobody waits while no worker is up and none expected. The one exception is between the call that brought this about
///   (`worker_down`, `worker_expected`, or the withdrawal of the last one) and [`drain_waiting`](Self::drain_waiting).
/// - Requests get workers in the order of their first admission, retries before all others.
/// - Among free workers the one used last is taken, of the request's home if there is one, so that the coldest stay
///   idle and can be stopped.
/// - Each request that was admitted ends exactly once: refused, gone, handed back by `worker_down`, or released.
///
/// # Time
///
/// The caller's threads may read the clock in one order and come here in another; the pool takes a time that is earlier
/// than the last one for the last one. A request is past its deadline when `expire` says so, not before: a worker that
/// becomes free first takes it even if the timer is late.
///
/// # Cost
///
/// Every call is O(1), on average over growing and shrinking where it puts into or takes out of the queue, apart from
/// `readmit` (a step for each retry that waits) and those that hand out many at once (a step for each). `admit` with a
/// free worker and `release` with nobody waiting never allocate.
#[derive(Debug)]
pub struct Pool {
    limits: Limits,
    workers: Workers,
    queue: Queue,
    expected: bool,
    clock: Micros,
    /// Totals only; what can be counted now is filled in by [`Pool::stats`].
    totals: Stats,
}

/// The pool as the scaling sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) free: usize,
    pub(crate) busy: usize,
    /// Of the busy ones: those that leave when they are released.
    pub(crate) retiring: usize,
    pub(crate) leaving: usize,
    pub(crate) outdated_free: usize,
    pub(crate) outdated_busy: usize,
    /// Requests that wait.
    pub(crate) queued: usize,
    pub(crate) maxconn: usize,
    pub(crate) finished: u64,
    pub(crate) proven: u64,
}

impl Pool {
    /// A pool without workers that expects some.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            workers: Workers::new(),
            queue: Queue::new(),
            expected: true,
            clock: Micros::ZERO,
            totals: Stats::default(),
        }
    }

    /// What bounds the pool now.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes the limits, for those too that wait: more may run at once, and who has waited for longer than the new
    /// timeout is refused. A shorter `max_queue` refuses newcomers only; who was let in stays.
    pub fn set_limits(&mut self, now: Micros, limits: Limits) -> Vec<Action> {
        let now = self.advance(now);
        self.limits = limits;
        let mut actions = Vec::new();
        while let Some(assignment) = self.next(now) {
            actions.push(Action::Run(assignment));
        }
        let mut expired = Vec::new();
        self.expire(now, &mut expired);
        actions.extend(
            expired
                .into_iter()
                .map(|Refused { request, reason }| Action::Shed { request, reason }),
        );
        actions
    }

    /// A worker is there and free: for the first time, again after it was down, or with a connection of another reactor
    /// (`home`: index of the reactor that its connection is registered with; it moves to the home of each request that
    /// the worker is given). Gives it to who is next.
    pub fn worker_up(&mut self, now: Micros, worker: WorkerId, home: u16) -> Option<Assignment> {
        let now = self.advance(now);
        if !self.workers.up(worker, home, now) {
            self.totals.ignored += 1;
            return None;
        }
        self.next(now)
    }

    /// A worker died or was withdrawn. Returns the request that it had, which the pool has forgotten: answer it, or
    /// [`readmit`](Self::readmit) it. After that, in any case, call [`dispatch`](Self::dispatch) until None, because
    /// there is a free place where `maxconn` was the limit, and [`drain_waiting`](Self::drain_waiting), because it may
    /// have been the last worker.
    pub fn worker_down(&mut self, now: Micros, worker: WorkerId) -> Option<RequestId> {
        let now = self.advance(now);
        match self.workers.down(worker) {
            State::Down => {
                self.totals.ignored += 1;
                None
            }
            State::Free | State::Leaving => None,
            State::Busy { request, since } => {
                self.totals.lost += 1;
                self.count_service(now.since(since));
                Some(request)
            }
        }
    }

    /// A busy worker has failed its request, and its process is still to end: it leaves, and its slot is not free before
    /// [`worker_down`](Self::worker_down). Returns the request, and asks for the same calls as that.
    pub fn lose(&mut self, now: Micros, worker: WorkerId) -> Option<RequestId> {
        let now = self.advance(now);
        let Some((request, since)) = self.workers.lose(worker) else {
            self.totals.ignored += 1;
            return None;
        };
        self.totals.lost += 1;
        self.count_service(now.since(since));
        Some(request)
    }

    /// Whether a worker can come up (true at first). False: all that is there is all there will be, so that requests
    /// are refused at once while no worker is up; call [`drain_waiting`](Self::drain_waiting) then.
    pub fn worker_expected(&mut self, expected: bool) {
        self.expected = expected;
    }

    /// A request arrives. `home`: index of the reactor that serves it.
    pub fn admit(&mut self, now: Micros, ticket: &Ticket) -> Admission {
        let &Ticket { request, home, .. } = ticket;
        let now = self.advance(now);
        if self.is_waiting_already(request) {
            return self.already_waiting();
        }
        self.totals.admitted += 1;
        // Somebody may wait beside a free worker between `worker_down` and `dispatch`: a newcomer does not overtake.
        if self.queue.len() == 0
            && let Some(worker) = self.start(now, request, home)
        {
            self.totals.run_at_once += 1;
            return Admission::Run(worker);
        }
        if self.abandoned() {
            return self.shed(ShedReason::NoWorker);
        }
        if self.queue.len() >= self.limits.max_queue {
            return self.shed(ShedReason::QueueFull);
        }
        if self.limits.timeout == Micros::ZERO {
            return self.shed(ShedReason::QueueTimeout);
        }
        let position = self.queue.len();
        self.queue.push(Waiting {
            request,
            home,
            admitted_at: now,
            queued_at: now,
        });
        self.count_waiting();
        Admission::Wait {
            position,
            pushed_out: None,
        }
    }

    /// A request comes back because its worker failed. It goes before all that were not yet given to a worker, is not
    /// refused for a full queue, and keeps the deadline of its first admission (`admitted_at`): if that is past and no
    /// worker is free, it is refused at once.
    pub fn readmit(&mut self, now: Micros, ticket: &Ticket, admitted_at: Micros) -> Admission {
        let &Ticket { request, home, .. } = ticket;
        let now = self.advance(now);
        if self.is_waiting_already(request) {
            return self.already_waiting();
        }
        self.totals.readmitted += 1;
        let admitted_at = admitted_at.min(now);
        // Another retry that waits and is older goes first; newcomers that wait do not.
        if !self.queue.has_retry_before(admitted_at)
            && let Some(worker) = self.start(now, request, home)
        {
            self.totals.run_at_once += 1;
            return Admission::Run(worker);
        }
        if self.abandoned() {
            return self.shed(ShedReason::NoWorker);
        }
        if now.since(admitted_at) >= self.limits.timeout {
            return self.shed(ShedReason::QueueTimeout);
        }
        let position = self.queue.push_retry(Waiting {
            request,
            home,
            admitted_at,
            queued_at: now,
        });
        self.count_waiting();
        Admission::Wait {
            position,
            pushed_out: None,
        }
    }

    /// A busy worker is ready for its next request, which is who is next in the queue, or leaves if it was retired. Where
    /// `maxconn` is below the number of workers, the assignment may name another free worker, one of that request's home.
    pub fn release(&mut self, now: Micros, worker: WorkerId) -> Released {
        let now = self.advance(now);
        let Some(release) = self.workers.release(worker, now) else {
            self.totals.ignored += 1;
            return Released::default();
        };
        self.totals.finished += 1;
        self.totals.proven += u64::from(release.first);
        self.count_service(now.since(release.since));
        Released {
            next: self.next(now),
            leaves: release.leaves,
        }
    }

    /// Withdraws a worker as soon as it is not busy. True: it was free and leaves now; end it, and report
    /// [`worker_down`](Self::worker_down) when it has ended. False: it is busy, and [`release`](Self::release) will say
    /// that it leaves; or it is not there. In either case it may have been the last one: call
    /// [`drain_waiting`](Self::drain_waiting) when it leaves.
    pub fn retire(&mut self, now: Micros, worker: WorkerId) -> bool {
        self.advance(now);
        match self.workers.retire(worker) {
            Withdrawal::Leaves => true,
            Withdrawal::LeavesLater => false,
            Withdrawal::Not => {
                self.totals.ignored += 1;
                false
            }
        }
    }

    /// Marks a worker as one that is to be replaced, such as one of the time before a reload. It works on until
    /// [`Orders::renew`] or [`retire`](Self::retire) withdraws it.
    pub fn outdate(&mut self, now: Micros, worker: WorkerId) {
        self.advance(now);
        self.totals.ignored += u64::from(!self.workers.outdate(worker));
    }

    /// Withdraws as many workers as the orders say, and appends to `out` those that leave now: end them, and report
    /// [`worker_down`](Self::worker_down) when they have ended; call [`drain_waiting`](Self::drain_waiting), since there
    /// may be none left. Those that are busy leave when they are released. No worker is withdrawn under its request. A step
    /// for each worker, and for each that is busy a look through all.
    pub fn withdraw(&mut self, now: Micros, orders: &Orders, out: &mut Vec<WorkerId>) {
        self.advance(now);
        for _ in 0..orders.stop {
            let Some((worker, _)) = self.workers.coldest() else {
                break;
            };
            self.withdraw_one(worker, out);
        }
        for _ in 0..orders.renew {
            let Some(worker) = self.workers.any_outdated() else {
                break;
            };
            self.withdraw_one(worker, out);
        }
        for _ in 0..orders.retire {
            let coldest = self.workers.coldest().map(|(worker, _)| worker);
            let Some(worker) = coldest.or_else(|| self.workers.any_busy()) else {
                break;
            };
            self.withdraw_one(worker, out);
        }
    }

    /// The free worker that was used longest ago, and since when it is free.
    pub fn coldest_idle(&self) -> Option<(WorkerId, Micros)> {
        self.workers.coldest()
    }

    /// Gives a free place to who is next; None if nobody waits, no worker is free or `maxconn` is reached. Needed after
    /// [`worker_down`](Self::worker_down) only.
    pub fn dispatch(&mut self, now: Micros) -> Option<Assignment> {
        let now = self.advance(now);
        self.next(now)
    }

    /// A client left. True: its request waited, and is out of the queue. False: it does not wait (any more).
    pub fn leave(&mut self, now: Micros, request: RequestId) -> bool {
        self.advance(now);
        let waited = self.queue.remove(request).is_some();
        self.totals.left += u64::from(waited);
        waited
    }

    /// Takes out of the queue who is past the deadline, and appends them to `out`: they are refused with
    /// [`ShedReason::QueueTimeout`].
    pub fn expire(&mut self, now: Micros, out: &mut Vec<Refused>) {
        let now = self.advance(now);
        let Some(limit) = now.0.checked_sub(self.limits.timeout.0) else {
            return;
        };
        for class in [Class::Retry, Class::Newcomer] {
            while let Some(waiting) = self.queue.pop_admitted_by(class, Micros(limit)) {
                self.totals.shed_queue_timeout += 1;
                out.push(Refused {
                    request: waiting.request,
                    reason: ShedReason::QueueTimeout,
                });
            }
        }
    }

    /// When [`expire`](Self::expire) will have something to do if nothing else happens until then.
    pub fn next_deadline(&self) -> Option<Micros> {
        self.queue
            .oldest()
            .map(|admitted_at| admitted_at.after(self.limits.timeout))
    }

    /// If no worker is up and none is expected, takes all out of the queue, in its order, and appends them to `out`:
    /// they are refused with [`ShedReason::NoWorker`]. Else does nothing, so it may be called at any time.
    pub fn drain_waiting(&mut self, now: Micros, out: &mut Vec<RequestId>) {
        self.advance(now);
        if !self.abandoned() {
            return;
        }
        while let Some(waiting) = self.queue.pop() {
            self.totals.shed_no_worker += 1;
            out.push(waiting.request);
        }
    }

    /// The request that a worker has.
    pub fn running(&self, worker: WorkerId) -> Option<RequestId> {
        match self.workers.state(worker) {
            State::Busy { request, .. } => Some(request),
            State::Down | State::Free | State::Leaving => None,
        }
    }

    /// Whether a request is in the queue.
    pub fn is_waiting(&self, request: RequestId) -> bool {
        self.queue.contains(request)
    }

    /// Requests in the queue.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Tells that a client left while its request ran, and how long after its admission.
    pub fn client_left(&mut self, now: Micros, since_admitted: Micros) {
        let _ = since_admitted;
        self.advance(now);
        self.totals.left_running += 1;
    }

    /// When a request that came then would find a place, counted from `now`.
    pub fn retry_after(&self, now: Micros) -> Micros {
        let _ = now;
        self.limits.timeout
    }

    /// The pool's figures.
    pub fn stats(&self) -> Stats {
        let (free, busy) = (self.workers.free(), self.workers.busy());
        Stats {
            waiting: self.queue.len(),
            busy,
            free,
            workers: free + busy,
            retiring: self.workers.retiring(),
            outdated: self.workers.outdated_free() + self.workers.outdated_busy(),
            leaving: self.workers.leaving(),
            ..self.totals
        }
    }

    /// So many requests fit into the memory that the queue has now.
    pub fn queue_capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// Walks through all workers and all that wait, and says what is inconsistent. Slow: for tests and fuzzing.
    pub fn check(&self) -> Result<(), &'static str> {
        self.workers.check()?;
        self.queue.check()?;
        if !self.stats().agree() {
            return Err("the figures do not agree");
        }
        Ok(())
    }

    /// What the scaling looks at, which is less than [`stats`](Self::stats) and cheaper.
    pub(crate) fn view(&self) -> View {
        View {
            free: self.workers.free(),
            busy: self.workers.busy(),
            retiring: self.workers.retiring(),
            leaving: self.workers.leaving(),
            outdated_free: self.workers.outdated_free(),
            outdated_busy: self.workers.outdated_busy(),
            queued: self.queue.len(),
            maxconn: self.limits.maxconn,
            finished: self.totals.finished,
            proven: self.totals.proven,
        }
    }

    /// How many workers are idle since `limit` or longer, counted to `at_most`, and since when the next one is.
    pub(crate) fn idle_since(&self, limit: Micros, at_most: usize) -> (usize, Option<Micros>) {
        self.workers.idle_since(limit, at_most)
    }

    /// When the longest waiting was first admitted.
    pub(crate) fn oldest_waiting(&self) -> Option<Micros> {
        self.queue.oldest()
    }

    fn withdraw_one(&mut self, worker: WorkerId, out: &mut Vec<WorkerId>) {
        if self.workers.retire(worker) == Withdrawal::Leaves {
            out.push(worker);
        }
    }

    fn advance(&mut self, now: Micros) -> Micros {
        self.clock = self.clock.max(now);
        self.clock
    }

    /// Gives who is next to a worker, if somebody waits and a worker may be used.
    fn next(&mut self, now: Micros) -> Option<Assignment> {
        if self.queue.len() == 0 || !self.has_room() {
            return None;
        }
        let waiting = self.queue.pop()?;
        let wait = now.since(waiting.queued_at);
        self.totals.waited_time = self.totals.waited_time.after(wait);
        self.totals.queue_time = self.totals.waited_time;
        self.totals.longest_wait = self.totals.longest_wait.max(wait);
        let worker = self.start(now, waiting.request, waiting.home);
        debug_assert!(worker.is_some(), "there was room");
        worker.map(|worker| Assignment {
            request: waiting.request,
            worker,
        })
    }

    fn start(&mut self, now: Micros, request: RequestId, home: u16) -> Option<WorkerId> {
        if !self.has_room() {
            return None;
        }
        let worker = self.workers.take(request, home, now)?;
        self.totals.started += 1;
        self.totals.max_busy = self.totals.max_busy.max(self.workers.busy());
        Some(worker)
    }

    fn has_room(&self) -> bool {
        self.workers.free() > 0 && self.workers.busy() < self.limits.maxconn
    }

    fn abandoned(&self) -> bool {
        !self.expected && self.workers.free() + self.workers.busy() == 0
    }

    fn shed(&mut self, reason: ShedReason) -> Admission {
        *match reason {
            ShedReason::QueueFull => &mut self.totals.shed_queue_full,
            ShedReason::QueueTimeout => &mut self.totals.shed_queue_timeout,
            ShedReason::Hopeless => &mut self.totals.shed_hopeless,
            ShedReason::Deadline => &mut self.totals.shed_deadline,
            ShedReason::Overload => &mut self.totals.shed_overload,
            ShedReason::PushedOut => &mut self.totals.shed_pushed_out,
            ShedReason::NoWorker => &mut self.totals.shed_no_worker,
        } += 1;
        Admission::Shed(reason)
    }

    /// A request that is in the queue would, queued again, run twice.
    fn is_waiting_already(&self, request: RequestId) -> bool {
        let twice = self.queue.contains(request);
        debug_assert!(!twice, "{request:?} is waiting already");
        twice
    }

    fn already_waiting(&mut self) -> Admission {
        self.totals.ignored += 1;
        Admission::Wait {
            position: self.queue.len() - 1,
            pushed_out: None,
        }
    }

    fn count_waiting(&mut self) {
        self.totals.waited += 1;
        self.totals.max_waiting = self.totals.max_waiting.max(self.queue.len());
    }

    fn count_service(&mut self, time: Micros) {
        self.totals.service_time = self.totals.service_time.after(time);
    }
}
