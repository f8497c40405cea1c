//! The pool: states, events, rules.

use alloc::vec::Vec;

use crate::estimate::{Service, Spread};
use crate::holders::Holders;
use crate::overload::Overload;
use crate::patience::Patience;
use crate::queue::{Queue, Waiting};
use crate::workers::{Job, State, Withdrawal, Workers};
use crate::{
    Action, Admission, Assignment, Limits, MAX_RESERVES, Micros, Order, Orders, Refused, Released,
    RequestId, ShedReason, Stats, Ticket, WorkerId,
};

mod figures;
mod foresight;
mod passing;
mod starting;

pub(crate) use figures::View;
use starting::count_outsiders;

/// Decides which worker runs which request, which requests wait, and which are refused.
///
/// # States
///
/// A worker is **down** (all are at first), **free**, **busy** with one request, or **leaving** (withdrawn, but its
/// process has not ended: it gets no requests, and its slot is not free). A busy worker may be **retiring**: it
/// leaves when it is released. A worker that is up may be **outdated**: it works but is to be replaced. A request
/// that the pool knows is **waiting** in the queue, or **running**: one busy worker has it. All others are unknown:
/// not yet admitted, finished, refused, or gone. A waiting request may become **stale**. The pool itself is
/// **expecting** a worker or not, which matters only while all workers are down, and is **overloaded** or not.
///
/// # Events and their callers
///
/// The owner of the workers calls [`worker_up`](Self::worker_up), [`worker_down`](Self::worker_down) and
/// [`worker_expected`](Self::worker_expected). For a request, [`admit`](Self::admit) is called first.
/// [`release`](Self::release) follows when the worker reports that it is ready again (not when the answer is
/// complete: a script may run on), [`leave`](Self::leave) when the client is gone, and [`readmit`](Self::readmit)
/// when the worker failed and [`may_retry`](crate::may_retry) allows it. A timer set to
/// [`next_deadline`](Self::next_deadline) calls [`expire`](Self::expire).
///
/// | event | worker down | worker free | worker busy | worker leaving |
/// |---|---|---|---|---|
/// | `worker_up` | → free, or busy with who is next | has a new home, used last | ignored: report `worker_down` first | ignored |
/// | `worker_down` | ignored | → down | → down, the request is handed back and forgotten | → down |
/// | `release`, `abandon` | ignored | ignored | → free, or busy with who is next; → leaving if retiring | ignored |
/// | `retire` | ignored | → leaving | retiring | ignored |
/// | `lose` | ignored | ignored | → leaving, the request is handed back and forgotten | ignored |
/// | `outdate` | ignored | outdated | outdated, unless retiring | ignored |
///
/// | event | request unknown | request waiting | request running |
/// |---|---|---|---|
/// | `admit`, `readmit` | → running, waiting or refused | asserts; ignored | the caller's defect; not noticed |
/// | `leave` | false | → unknown | false: stopping it is the worker's matter |
/// | `expire` | – | → unknown if its time is up | – |
/// | `client_left` | – | – | noted; stopping it is the worker's matter |
/// | time passes | – | stale, if it has waited for too long under overload | – |
///
/// Ignored events change only [`Stats::ignored`]: they come from races between threads, such as a release just after
/// the worker's death. The pool cannot recognize the late release of a worker that went down **and came up again with
/// the same id**: a caller that may be late must compare [`running`](Self::running) first.
///
/// # Invariants after each call
///
/// - No worker has two requests, and no request two workers.
/// - At most `maxconn` requests run, and with `fullconn` no more than the load allows. If the limit was lowered, no
///   new request starts until enough have finished.
/// - No request waits while a worker is free, the limit allows one more, and no reserve keeps the worker for others.
///   The only exception is before [`dispatch`](Self::dispatch). It must be called after each call that frees a place
///   without assigning it: `worker_down` and `lose` (so that the request can be readmitted and get the place), and an
///   `admit` or `readmit` that made a request wait, because with `fullconn` this raises the limit.
/// - No request waits while no worker is up and none is expected. The only exception is between the call that caused
///   this (`worker_down`, `worker_expected`, or the withdrawal of the last worker) and
///   [`drain_waiting`](Self::drain_waiting).
/// - Requests get workers in this order: the class with the lowest priority number first. Within a class, retries
///   come first, in the order of their first admission (a retry belongs to the class of its ticket); then the clients
///   take turns with one request each, in order of arrival. A class knows a client only while it has requests waiting
///   there; all requests with client number 0 count as one client. A client that has its share of the workers
///   ([`Limits::client_share`]) is skipped while another client with less waits in its class, and so is a session of a client
///   while another request of that client waits. While the pool is
///   overloaded, requests that have waited too long go after all others, the newest first ([`Order::Adaptive`]).
/// - At most `max_queue` requests wait, not counting retries. If the queue is full, a new request replaces another
///   one that has a weaker claim, if there is one: the oldest of those that have waited too long under overload;
///   otherwise, in the last class, the newest request of a client with the most waiting requests there, if that class
///   goes after the new request's class, or if it is the same class and that client still has at least as many
///   requests left as the new request's client then has.
/// - A new request is refused at once if its expected wait exceeds the queue's timeout or its deadline
///   ([`Stats::expected_wait`]): no request waits in vain.
/// - The running requests leave free the workers of each reserve that is not for them; but one worker is for all.
/// - Among free workers the one used last is taken, from the request's home if possible, so that the longest idle
///   ones stay idle and can be stopped.
/// - Each admitted request ends exactly once: refused, gone, returned by `worker_down`, released, or abandoned.
///
/// # Time
///
/// Threads of the caller may read the clock in one order and call the pool in another: a time before the last one
/// counts as the last one. A request is past its deadline only when `expire` says so: a worker that becomes free
/// first takes it even if the timer is late. A request's own deadline is counted to the last moment at which a worker
/// is expected to be able to meet it; at most half of its time is reserved for that.
///
/// # Cost
///
/// Every call is O(1), on average over the growing and shrinking of the queue and over the lives of requests that
/// become stale. Exceptions are `readmit` (one step per waiting retry), requests with their own deadline (O(log n)),
/// and calls that return many requests (one step each). Each is multiplied by the number of classes with waiting
/// requests, which is small. `admit` with a free worker and `release` without waiting requests never allocate.
#[derive(Debug)]
pub struct Pool {
    limits: Limits,
    workers: Workers,
    /// How many workers each client uses. Without `client_share` nothing is counted.
    holders: Holders,
    /// The same for each session.
    sessions: Holders,
    queue: Queue,
    expected: bool,
    /// How many workers there will be soon, according to their owner; 0: not told.
    soon: usize,
    clock: Micros,
    /// When a request was last given to a worker.
    last_start: Micros,
    /// For each reserve: running requests that may not use its workers.
    outsiders: [usize; MAX_RESERVES],
    service: Service,
    spread: Spread,
    patience: Patience,
    overload: Overload,
    /// The part of the workers' busy time that does not depend on the present time, µs.
    busy_until_zero: u64,
    /// Only totals; [`Pool::stats`] fills in the present values.
    totals: Stats,
}

impl Pool {
    /// A pool without workers that expects some.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            workers: Workers::new(),
            holders: Holders::new(),
            sessions: Holders::new(),
            queue: Queue::new(),
            expected: true,
            soon: 0,
            clock: Micros::ZERO,
            last_start: Micros::ZERO,
            outsiders: [0; MAX_RESERVES],
            service: Service::default(),
            spread: Spread::default(),
            patience: Patience::new(),
            overload: Overload::new(),
            busy_until_zero: 0,
            totals: Stats::default(),
        }
    }

    /// How many requests may run at once ([`Limits::maxconn`]).
    pub fn maxconn(&self) -> usize {
        self.limits.maxconn
    }

    /// The present limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes the limits, also for waiting requests: more may run at once, and those that have waited longer than
    /// the new timeout are refused. A lower `max_queue` refuses only new requests; the waiting ones stay.
    pub fn set_limits(&mut self, now: Micros, limits: Limits) -> Vec<Action> {
        let now = self.advance(now);
        self.limits = limits;
        self.outsiders = [0; MAX_RESERVES];
        self.holders.clear();
        self.sessions.clear();
        for job in self.workers.jobs() {
            for (holders, who) in [
                (&mut self.holders, job.client),
                (&mut self.sessions, job.session),
            ] {
                if who != 0 && limits.client_share < 100 {
                    holders.add(who);
                }
            }
            count_outsiders(&mut self.outsiders, &limits.reserve, job.priority, |n| {
                n + 1
            });
        }
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
        if limits.order == Order::Fifo {
            self.overload.stop();
        }
        actions
    }

    /// A worker is up and free: for the first time, again after it was down, or with a connection of another reactor.
    /// `home`: index of the reactor with which its connection is registered; the connection moves to the home of each
    /// request that the worker gets. Gives the worker to the next request.
    pub fn worker_up(&mut self, now: Micros, worker: WorkerId, home: u16) -> Option<Assignment> {
        let now = self.advance(now);
        if !self.workers.up(worker, home, now) {
            self.totals.ignored += 1;
            return None;
        }
        self.holders.make_room(self.workers.slots());
        self.sessions.make_room(self.workers.slots());
        self.next(now)
    }

    /// A worker died or was withdrawn. Returns its request, which the pool has forgotten: answer it, or
    /// [`readmit`](Self::readmit) it. After that, in any case, call [`dispatch`](Self::dispatch) until it returns
    /// `None`, because a place is free if `maxconn` was the limit, and [`drain_waiting`](Self::drain_waiting),
    /// because this may have been the last worker.
    pub fn worker_down(&mut self, now: Micros, worker: WorkerId) -> Option<RequestId> {
        let now = self.advance(now);
        match self.workers.down(worker) {
            State::Down => {
                self.totals.ignored += 1;
                None
            }
            State::Free | State::Leaving => None,
            State::Busy { job, since } => {
                self.totals.lost += 1;
                self.count_end(now, &job, since);
                Some(job.request)
            }
        }
    }

    /// A busy worker has failed its request, but its process has not ended yet: it leaves, and its slot is not free
    /// before [`worker_down`](Self::worker_down). Returns the request; the same calls must follow as for
    /// `worker_down`.
    pub fn lose(&mut self, now: Micros, worker: WorkerId) -> Option<RequestId> {
        let now = self.advance(now);
        let Some((job, since)) = self.workers.lose(worker) else {
            self.totals.ignored += 1;
            return None;
        };
        self.totals.lost += 1;
        self.count_end(now, &job, since);
        Some(job.request)
    }

    /// Whether a worker can come up (true at first). If false, requests are refused at once while no worker is up;
    /// call [`drain_waiting`](Self::drain_waiting) then.
    pub fn worker_expected(&mut self, expected: bool) {
        self.expected = expected;
    }

    /// How many workers there will be soon, including the present ones, according to their owner: then requests are
    /// not refused because there are few now. It may be called at any time; 0 (the initial value): only the present
    /// ones.
    pub fn workers_soon(&mut self, count: usize) {
        self.soon = count;
    }

    /// A request arrives.
    pub fn admit(&mut self, now: Micros, ticket: &Ticket) -> Admission {
        let now = self.advance(now);
        if self.is_waiting_already(ticket.request) {
            return self.already_waiting();
        }
        self.totals.admitted += 1;
        if ticket.deadline <= now {
            return self.shed(ShedReason::Deadline);
        }
        let job = Job::new(ticket, now);
        // Until `dispatch`, a request may wait although a worker is free: a new request must not overtake it.
        let stale_last = self.overload.is_on();
        if !self.queue.has_before(ticket.priority, stale_last)
            && let Some(worker) = self.start(now, &job, 1)
        {
            self.totals.run_at_once += 1;
            return Admission::Run(worker);
        }
        self.admit_to_queue(now, ticket, stale_last)
    }

    /// No worker is available at once.
    #[inline(never)]
    fn admit_to_queue(&mut self, now: Micros, ticket: &Ticket, stale_last: bool) -> Admission {
        if self.abandoned() {
            return self.shed(ShedReason::NoWorker);
        }
        let is_full = self.queue.len() >= self.limits.max_queue;
        let gives_way = match is_full && self.limits.max_queue > 0 {
            true => self.queue.who_gives_way(ticket.priority, ticket.client),
            false => None,
        };
        if is_full && gives_way.is_none() {
            self.overload.lost();
            return self.shed(ShedReason::QueueFull);
        }
        if self.limits.timeout == Micros::ZERO {
            return self.shed(ShedReason::QueueTimeout);
        }
        let own = self.queue.flow_of(ticket.priority, ticket.client);
        let position = self.place_in(ticket, own, stale_last);
        let start_by = self.start_by(ticket.deadline, now);
        if let Some(reason) = self.foresee(now, ticket, position, start_by) {
            return self.shed(reason);
        }
        if let Some(waiting) = gives_way.and_then(|request| self.queue.remove(request)) {
            self.totals.shed_pushed_out += 1;
            self.note_wait(now, waiting.queued_at);
            self.patience.stayed(now.since(waiting.admitted_at));
        }
        let newcomer = waiting(ticket, now, now, start_by);
        match gives_way {
            // The request that gave way may have removed or moved the flow of the new one.
            Some(_) => self.queue.push(newcomer),
            None => self.queue.push_in(own, newcomer),
        }
        self.count_waiting();
        Admission::Wait {
            position,
            pushed_out: gives_way,
        }
    }

    /// A request comes back because its worker failed. It goes before all requests of its class that were not yet
    /// given to a worker. It is not refused for a full queue, overload or an expected wait. It keeps the timeout of
    /// its first admission (`admitted_at`) and its own deadline: if one has passed and no worker is free, it is
    /// refused at once.
    pub fn readmit(&mut self, now: Micros, ticket: &Ticket, admitted_at: Micros) -> Admission {
        let now = self.advance(now);
        if self.is_waiting_already(ticket.request) {
            return self.already_waiting();
        }
        self.totals.readmitted += 1;
        let admitted_at = admitted_at.min(now);
        let stale_last = self.overload.is_on();
        // An older waiting retry and requests of better classes go first; new requests of its own class do not.
        let position = self
            .queue
            .place_of_retry(ticket.priority, admitted_at, stale_last);
        if position == 0
            && let Some(worker) = self.start(now, &Job::new(ticket, admitted_at), 1)
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
        let start_by = self.start_by(ticket.deadline, admitted_at);
        if start_by <= now {
            return self.shed(ShedReason::Deadline);
        }
        self.queue
            .push_retry(waiting(ticket, admitted_at, now, start_by));
        self.count_waiting();
        Admission::Wait {
            position,
            pushed_out: None,
        }
    }

    /// Moves a waiting request into another class, before all of its requests that are not retries; its time in the
    /// queue continues. False: it is not waiting (any more). It may be next: call [`dispatch`](Self::dispatch).
    pub fn promote(&mut self, now: Micros, request: RequestId, priority: i16) -> bool {
        self.advance(now);
        let Some(waiting) = self.queue.remove(request) else {
            return false;
        };
        self.queue.push_retry(Waiting {
            priority,
            ..waiting
        });
        true
    }

    /// A busy worker is ready for the next request of the queue, or leaves if it was retired. If `maxconn` is lower
    /// than the number of workers, the assignment may name another free worker, one of that request's home.
    pub fn release(&mut self, now: Micros, worker: WorkerId) -> Released {
        let now = self.advance(now);
        let Some(release) = self.workers.finish(worker) else {
            self.totals.ignored += 1;
            return Released::default();
        };
        self.totals.finished += 1;
        self.totals.proven += u64::from(release.first);
        self.service.finished(now, now.since(release.since));
        self.spread.finished(now.since(release.since));
        self.overload.finished();
        self.count_end(now, &release.job, release.since);
        let next = match self.queue.len() > 0 && !release.leaves {
            true => self.pass_on(now, worker),
            false => None,
        };
        if next.is_some() {
            return Released {
                next,
                leaves: false,
            };
        }
        self.workers.rest(worker, now);
        Released {
            next: self.next(now),
            leaves: release.leaves,
        }
    }

    /// A busy worker got a request and did not begin it, because its client has just left: the worker is free again.
    /// The request counts as one that left, and its duration is not used for estimates.
    pub fn abandon(&mut self, now: Micros, worker: WorkerId) -> Released {
        let now = self.advance(now);
        let Some(release) = self.workers.abandon(worker) else {
            self.totals.ignored += 1;
            return Released::default();
        };
        self.totals.abandoned += 1;
        self.overload.lost();
        self.patience.left(now.since(release.job.admitted_at));
        self.ends_job(&release.job);
        self.workers.rest(worker, now);
        Released {
            next: self.next(now),
            leaves: release.leaves,
        }
    }

    /// Withdraws a worker as soon as it is not busy. True: it was free and leaves now; end it, and call
    /// [`worker_down`](Self::worker_down) when it has ended. False: it is busy, and [`release`](Self::release) will
    /// say that it leaves; or it does not exist. It may be the last worker: call
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

    /// Marks a worker as to be replaced, for example one from before a reload. It works on until [`Orders::renew`] or
    /// [`retire`](Self::retire) withdraws it.
    pub fn outdate(&mut self, now: Micros, worker: WorkerId) {
        self.advance(now);
        self.totals.ignored += u64::from(!self.workers.outdate(worker));
    }

    /// Withdraws as many workers as the orders say, and appends those that leave now to `out`: end them, and call
    /// [`worker_down`](Self::worker_down) when they have ended; call [`drain_waiting`](Self::drain_waiting), because
    /// none may be left. Busy ones leave when they are released; no worker is withdrawn during its request. One step
    /// per worker, and for each busy one a search through all.
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

    /// Gives a free place to the next request; `None` if no request waits, or no waiting request may have the place.
    pub fn dispatch(&mut self, now: Micros) -> Option<Assignment> {
        let now = self.advance(now);
        self.next(now)
    }

    /// A client left. True: its request was waiting, and is removed from the queue. False: it is not waiting (any
    /// more).
    pub fn leave(&mut self, now: Micros, request: RequestId) -> bool {
        let now = self.advance(now);
        let Some(waiting) = self.queue.remove(request) else {
            return false;
        };
        self.totals.left += 1;
        self.note_wait(now, waiting.queued_at);
        self.overload.lost();
        self.patience.left(now.since(waiting.admitted_at));
        self.note_length();
        true
    }

    /// A client left while its request ran; `since_admitted`: the time since its (first) admission. The request
    /// continues, and the caller decides about it; the pool learns how long clients wait.
    pub fn client_left(&mut self, now: Micros, since_admitted: Micros) {
        self.advance(now);
        self.totals.left_running += 1;
        self.overload.lost();
        self.patience.left(since_admitted);
    }

    /// Removes requests from the queue that have reached the timeout or cannot meet their deadline any more, and
    /// appends them to `out`.
    pub fn expire(&mut self, now: Micros, out: &mut Vec<Refused>) {
        let now = self.advance(now);
        if let Some(limit) = now.0.checked_sub(self.limits.timeout.0) {
            while let Some(waiting) = self.queue.pop_admitted_by(Micros(limit)) {
                self.totals.shed_queue_timeout += 1;
                self.note_wait(now, waiting.queued_at);
                self.overload.lost();
                self.patience.stayed(now.since(waiting.admitted_at));
                out.push(Refused {
                    request: waiting.request,
                    reason: ShedReason::QueueTimeout,
                });
            }
        }
        while let Some(waiting) = self.queue.pop_to_start_by(now) {
            self.totals.shed_deadline += 1;
            self.note_wait(now, waiting.queued_at);
            self.overload.lost_by_deadline();
            self.patience.left(now.since(waiting.admitted_at));
            out.push(Refused {
                request: waiting.request,
                reason: ShedReason::Deadline,
            });
        }
        self.note_length();
    }

    /// When [`expire`](Self::expire) will have something to do, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Micros> {
        let timeout = self.limits.timeout;
        let oldest = self.queue.oldest().map(|oldest| oldest.after(timeout));
        let deadline = self.queue.first_deadline();
        oldest.into_iter().chain(deadline).min()
    }

    /// If no worker is up and none is expected, removes all requests from the queue, in order, and appends them to
    /// `out`: they are refused with [`ShedReason::NoWorker`]. Otherwise does nothing, so it may be called at any
    /// time.
    pub fn drain_waiting(&mut self, now: Micros, out: &mut Vec<RequestId>) {
        let now = self.advance(now);
        if !self.abandoned() {
            return;
        }
        while let Some(waiting) = self.queue.pop(false, |_| true, |_| false, |_| false) {
            self.totals.shed_no_worker += 1;
            self.note_wait(now, waiting.queued_at);
            out.push(waiting.request);
        }
        self.note_length();
    }

    /// A request that was put into the queue at `queued_at` has left it.
    pub(super) fn note_wait(&mut self, now: Micros, queued_at: Micros) {
        self.totals.longest_wait = self.totals.longest_wait.max(now.since(queued_at));
    }

    fn withdraw_one(&mut self, worker: WorkerId, out: &mut Vec<WorkerId>) {
        if self.workers.retire(worker) == Withdrawal::Leaves {
            out.push(worker);
        }
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

    /// A request that is queued twice would run twice.
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
}

fn waiting(ticket: &Ticket, admitted_at: Micros, queued_at: Micros, start_by: Micros) -> Waiting {
    Waiting {
        request: ticket.request,
        home: ticket.home,
        priority: ticket.priority,
        client: ticket.client,
        session: ticket.session,
        admitted_at,
        queued_at,
        start_by,
    }
}
