//! A pool beside a naive model of its rules: each answer is foretold by the model, each state compared with it.
//!
//! The model is written for being obviously right (ordered sets, searches through all workers), and shares no code with
//! the pool.

use std::collections::{BTreeMap, BTreeSet};

use weir_pool::{
    Action, Admission, Assignment, Limits, Micros, Orders, Pool, Released, RequestId, ShedReason,
    Ticket, WorkerId,
};

/// How a request ended; each ends once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Answered,
    Shed(ShedReason),
    LeftWhileWaiting,
    LostItsWorker,
}

/// Something that happened to a request without being asked for, in the order in which it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Started(Assignment),
    Shed(RequestId, ShedReason),
}

/// It waits, behind so many.
pub(crate) fn waits(position: usize) -> Admission {
    Admission::Wait {
        position,
        pushed_out: None,
    }
}

pub(crate) struct Checked {
    pub(crate) pool: Pool,
    limits: Limits,
    expected: bool,
    clock: Micros,
    workers: BTreeMap<WorkerId, ModelWorker>,
    /// Retries before newcomers, each in the order of admission, then of arrival in the queue.
    queue: BTreeSet<(Class, Micros, u64, RequestId)>,
    places: BTreeMap<RequestId, (Class, Micros, u64, u16)>,
    running: BTreeMap<RequestId, WorkerId>,
    ended: BTreeMap<RequestId, End>,
    steps: u64,
    proven: u64,
    outcomes: Vec<Outcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Retry,
    Newcomer,
}

#[derive(Debug, Clone, Copy)]
struct ModelWorker {
    home: u16,
    /// None: free, since step `used`, or leaving.
    request: Option<RequestId>,
    used: u64,
    since: Micros,
    is_retiring: bool,
    is_outdated: bool,
    is_leaving: bool,
    has_served: bool,
}

impl ModelWorker {
    fn is_free(&self) -> bool {
        self.request.is_none() && !self.is_leaving
    }

    fn stays(&self) -> bool {
        !self.is_leaving && !self.is_retiring
    }
}

impl Checked {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            pool: Pool::new(limits),
            limits,
            expected: true,
            clock: Micros::ZERO,
            workers: BTreeMap::new(),
            queue: BTreeSet::new(),
            places: BTreeMap::new(),
            running: BTreeMap::new(),
            ended: BTreeMap::new(),
            steps: 0,
            proven: 0,
            outcomes: Vec::new(),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn end_of(&self, request: RequestId) -> Option<End> {
        self.ended.get(&request).copied()
    }

    /// It is up or leaving.
    pub(crate) fn is_there(&self, worker: WorkerId) -> bool {
        self.workers.contains_key(&worker)
    }

    pub(crate) fn worker_of(&self, request: RequestId) -> Option<WorkerId> {
        self.running.get(&request).copied()
    }

    /// When the longest waiting was first admitted.
    pub(crate) fn oldest(&self) -> Option<Micros> {
        let newcomers = (Class::Newcomer, Micros::ZERO, 0, RequestId(0));
        let heads = [self.queue.first(), self.queue.range(newcomers..).next()];
        heads.into_iter().flatten().map(|entry| entry.1).min()
    }

    pub(crate) fn admit(&mut self, now: Micros, ticket: &Ticket) -> Admission {
        let &Ticket { request, home, .. } = ticket;
        self.tick(now);
        let foretold = if self.queue.is_empty() && self.has_room() {
            Admission::Run(self.warmest(home))
        } else if self.abandoned() {
            Admission::Shed(ShedReason::NoWorker)
        } else if self.queue.len() >= self.limits.max_queue {
            Admission::Shed(ShedReason::QueueFull)
        } else if self.limits.timeout == Micros::ZERO {
            Admission::Shed(ShedReason::QueueTimeout)
        } else {
            waits(self.queue.len())
        };
        let answer = self.pool.admit(now, ticket);
        assert_eq!(answer, foretold, "admit {request:?} home {home}");
        self.admitted(answer, Class::Newcomer, request, home, self.clock);
        self.settled();
        answer
    }

    pub(crate) fn release(&mut self, now: Micros, worker: WorkerId) -> Released {
        self.tick(now);
        let busy = self.workers.get(&worker).and_then(|known| known.request);
        let mut foretold = Released::default();
        if let Some(request) = busy {
            self.running.remove(&request);
            self.end(request, End::Answered);
            let (used, since) = (self.steps, self.clock);
            let known = self.workers.get_mut(&worker).unwrap();
            (known.request, known.used, known.since) = (None, used, since);
            known.is_leaving = known.is_retiring;
            foretold.leaves = known.is_leaving;
            self.proven += u64::from(!known.has_served);
            known.has_served = true;
            foretold.next = self.foretell_next();
        }
        let answer = self.pool.release(now, worker);
        assert_eq!(answer, foretold, "release {worker:?}");
        self.started(answer.next);
        self.refuse_the_stranded(now);
        answer
    }

    pub(crate) fn worker_up(
        &mut self,
        now: Micros,
        worker: WorkerId,
        home: u16,
    ) -> Option<Assignment> {
        self.tick(now);
        let (used, since) = (self.steps, self.clock);
        let new = ModelWorker {
            home,
            request: None,
            used,
            since,
            is_retiring: false,
            is_outdated: false,
            is_leaving: false,
            has_served: false,
        };
        let known = self.workers.entry(worker).or_insert(new);
        let mut foretold = None;
        if known.is_free() {
            (known.home, known.used, known.since) = (home, used, since);
            foretold = self.foretell_next();
        }
        let answer = self.pool.worker_up(now, worker, home);
        assert_eq!(answer, foretold, "worker_up {worker:?} home {home}");
        self.started(answer);
        self.settled();
        answer
    }

    /// True: it leaves at once.
    pub(crate) fn retire(&mut self, now: Micros, worker: WorkerId) -> bool {
        self.tick(now);
        let foretold = self.withdraw_one(worker);
        let answer = self.pool.retire(now, worker);
        assert_eq!(answer, foretold, "retire {worker:?}");
        self.refuse_the_stranded(now);
        answer
    }

    pub(crate) fn outdate(&mut self, now: Micros, worker: WorkerId) {
        self.tick(now);
        let known = self.workers.get_mut(&worker);
        if let Some(known) = known.filter(|known| known.stays()) {
            known.is_outdated = true;
        }
        self.pool.outdate(now, worker);
        self.settled();
    }

    /// Tells who leaves at once.
    pub(crate) fn withdraw(&mut self, now: Micros, orders: &Orders) -> Vec<WorkerId> {
        self.tick(now);
        let mut foretold = Vec::new();
        let first = |model: &Self, wanted: fn(&ModelWorker) -> bool| {
            let mut all = model.workers.iter();
            all.find(|(_, known)| wanted(known)).map(|found| *found.0)
        };
        for _ in 0..orders.stop {
            let coldest = self.coldest().map(|(worker, _)| worker);
            foretold.extend(coldest.filter(|worker| self.withdraw_one(*worker)));
        }
        for _ in 0..orders.renew {
            let free = first(self, |known| known.is_outdated && known.is_free());
            let any = || first(self, |known| known.is_outdated && known.stays());
            let worker = free.or_else(any);
            foretold.extend(worker.filter(|worker| self.withdraw_one(*worker)));
        }
        for _ in 0..orders.retire {
            let coldest = self.coldest().map(|(worker, _)| worker);
            let worker = coldest.or_else(|| first(self, ModelWorker::stays));
            foretold.extend(worker.filter(|worker| self.withdraw_one(*worker)));
        }
        let mut answer = Vec::new();
        self.pool.withdraw(now, orders, &mut answer);
        assert_eq!(answer, foretold, "withdraw {orders:?}");
        self.refuse_the_stranded(now);
        answer
    }

    /// The last worker may have been withdrawn.
    fn refuse_the_stranded(&mut self, now: Micros) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.deal_with_the_rest(now, &mut outcomes);
        self.outcomes = outcomes;
    }

    /// What happened to requests because workers were withdrawn.
    pub(crate) fn take_outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    fn withdraw_one(&mut self, worker: WorkerId) -> bool {
        let Some(known) = self.workers.get_mut(&worker) else {
            return false;
        };
        if known.is_free() {
            known.is_leaving = true;
            return true;
        }
        known.is_retiring |= known.request.is_some();
        false
    }

    fn coldest(&self) -> Option<(WorkerId, Micros)> {
        let free = self.workers.iter().filter(|(_, known)| known.is_free());
        let coldest = free.min_by_key(|(_, known)| known.used);
        coldest.map(|(worker, known)| (*worker, known.since))
    }

    /// A worker fails its request and is still to end. Then the rest is dealt with, as every caller must.
    pub(crate) fn lose(
        &mut self,
        now: Micros,
        worker: WorkerId,
    ) -> (Option<RequestId>, Vec<Outcome>) {
        self.tick(now);
        let known = self.workers.get_mut(&worker);
        let foretold = known.and_then(|known| {
            known.is_leaving |= known.request.is_some();
            known.request.take()
        });
        let lost = self.pool.lose(now, worker);
        assert_eq!(lost, foretold, "lose {worker:?}");
        if let Some(request) = lost {
            self.running.remove(&request);
            self.end(request, End::LostItsWorker);
        }
        let mut outcomes = Vec::new();
        self.deal_with_the_rest(now, &mut outcomes);
        (lost, outcomes)
    }

    /// A worker goes down; `retry` says of the request that it had, if any, with which home and first admission it comes
    /// back. Then the free place and an abandoned queue are dealt with, as every caller must.
    pub(crate) fn worker_down(
        &mut self,
        now: Micros,
        worker: WorkerId,
        retry: impl FnOnce(RequestId) -> Option<(u16, Micros)>,
    ) -> (Option<RequestId>, Vec<Outcome>) {
        self.tick(now);
        let foretold = self.workers.remove(&worker).and_then(|known| known.request);
        let lost = self.pool.worker_down(now, worker);
        assert_eq!(lost, foretold, "worker_down {worker:?}");
        let mut outcomes = Vec::new();
        if let Some(request) = lost {
            self.running.remove(&request);
            match retry(request) {
                None => self.end(request, End::LostItsWorker),
                Some((home, admitted_at)) => match self.readmit(now, request, home, admitted_at) {
                    Admission::Run(worker) => {
                        outcomes.push(Outcome::Started(Assignment { request, worker }));
                    }
                    Admission::Shed(reason) => outcomes.push(Outcome::Shed(request, reason)),
                    Admission::Wait { .. } => {}
                },
            }
        }
        self.deal_with_the_rest(now, &mut outcomes);
        (lost, outcomes)
    }

    pub(crate) fn worker_expected(&mut self, now: Micros, expected: bool) -> Vec<Outcome> {
        self.tick(now);
        self.expected = expected;
        self.pool.worker_expected(expected);
        let mut outcomes = Vec::new();
        self.deal_with_the_rest(now, &mut outcomes);
        outcomes
    }

    pub(crate) fn leave(&mut self, now: Micros, request: RequestId) -> bool {
        self.tick(now);
        let foretold = self.places.contains_key(&request);
        let answer = self.pool.leave(now, request);
        assert_eq!(answer, foretold, "leave {request:?}");
        if answer {
            self.unqueue(request);
            self.end(request, End::LeftWhileWaiting);
        }
        self.settled();
        answer
    }

    pub(crate) fn expire(&mut self, now: Micros) -> Vec<RequestId> {
        self.tick(now);
        let foretold = self.foretell_expired();
        let mut answer = Vec::new();
        self.pool.expire(now, &mut answer);
        let answer: Vec<RequestId> = answer.iter().map(|refused| refused.request).collect();
        assert_eq!(answer, foretold, "expire");
        for request in &answer {
            self.unqueue(*request);
            self.end(*request, End::Shed(ShedReason::QueueTimeout));
        }
        self.settled();
        answer
    }

    pub(crate) fn set_limits(&mut self, now: Micros, limits: Limits) -> Vec<Outcome> {
        self.tick(now);
        self.limits = limits;
        let actions = self.pool.set_limits(now, limits);
        let mut outcomes = Vec::new();
        let mut answer = actions.into_iter().peekable();
        while let Some(Action::Run(assignment)) = answer.peek().copied() {
            assert_eq!(Some(assignment), self.foretell_next(), "set_limits runs");
            self.started(Some(assignment));
            outcomes.push(Outcome::Started(assignment));
            answer.next();
        }
        let reason = ShedReason::QueueTimeout;
        let foretold = self.foretell_expired().into_iter();
        let foretold: Vec<_> = foretold
            .map(|request| Action::Shed { request, reason })
            .collect();
        assert_eq!(answer.collect::<Vec<_>>(), foretold, "set_limits sheds");
        for action in foretold {
            let Action::Shed { request, reason } = action else {
                unreachable!()
            };
            self.unqueue(request);
            self.end(request, End::Shed(reason));
            outcomes.push(Outcome::Shed(request, reason));
        }
        self.settled();
        outcomes
    }

    fn readmit(
        &mut self,
        now: Micros,
        request: RequestId,
        home: u16,
        admitted_at: Micros,
    ) -> Admission {
        self.tick(now);
        let admitted_at = admitted_at.min(self.clock);
        let is_before = |entry: &(Class, Micros, u64, RequestId)| {
            entry.0 == Class::Retry && entry.1 <= admitted_at
        };
        let before = self
            .queue
            .iter()
            .take_while(|entry| is_before(entry))
            .count();
        let foretold = if before == 0 && self.has_room() {
            Admission::Run(self.warmest(home))
        } else if self.abandoned() {
            Admission::Shed(ShedReason::NoWorker)
        } else if self.clock.since(admitted_at) >= self.limits.timeout {
            Admission::Shed(ShedReason::QueueTimeout)
        } else {
            waits(before)
        };
        let answer = self
            .pool
            .readmit(now, &Ticket::new(request, home), admitted_at);
        assert_eq!(answer, foretold, "readmit {request:?} of {admitted_at:?}");
        self.admitted(answer, Class::Retry, request, home, admitted_at);
        answer
    }

    fn deal_with_the_rest(&mut self, now: Micros, outcomes: &mut Vec<Outcome>) {
        loop {
            let foretold = self.foretell_next();
            let answer = self.pool.dispatch(now);
            assert_eq!(answer, foretold, "dispatch");
            self.started(answer);
            let Some(assignment) = answer else { break };
            outcomes.push(Outcome::Started(assignment));
        }
        let mut foretold: Vec<RequestId> = Vec::new();
        if self.abandoned() {
            foretold.extend(self.queue.iter().map(|entry| entry.3));
        }
        let mut answer = Vec::new();
        self.pool.drain_waiting(now, &mut answer);
        assert_eq!(answer, foretold, "drain_waiting");
        for request in answer {
            self.unqueue(request);
            self.end(request, End::Shed(ShedReason::NoWorker));
            outcomes.push(Outcome::Shed(request, ShedReason::NoWorker));
        }
        self.settled();
    }

    fn admitted(
        &mut self,
        answer: Admission,
        class: Class,
        request: RequestId,
        home: u16,
        admitted_at: Micros,
    ) {
        assert!(
            !self.ended.contains_key(&request),
            "{request:?} came back from the dead"
        );
        match answer {
            Admission::Run(worker) => self.occupy(Assignment { request, worker }, home),
            Admission::Wait { .. } => {
                let place = (class, admitted_at, self.steps, home);
                assert!(self.places.insert(request, place).is_none());
                self.queue.insert((class, admitted_at, self.steps, request));
            }
            Admission::Shed(reason) => self.end(request, End::Shed(reason)),
        }
    }

    fn started(&mut self, assignment: Option<Assignment>) {
        if let Some(assignment) = assignment {
            let home = self.unqueue(assignment.request);
            self.occupy(assignment, home);
        }
    }

    fn occupy(&mut self, assignment: Assignment, home: u16) {
        let Assignment { request, worker } = assignment;
        assert!(
            self.running.len() < self.limits.maxconn,
            "maxconn is passed"
        );
        let known = self.workers.get_mut(&worker).expect("a worker that is up");
        assert_eq!(known.request, None, "{worker:?} has two requests");
        known.request = Some(request);
        known.home = home;
        let other = self.running.insert(request, worker);
        assert_eq!(other, None, "{request:?} has two workers");
    }

    fn unqueue(&mut self, request: RequestId) -> u16 {
        let place = self.places.remove(&request).expect("a waiting request");
        let (class, admitted_at, step, home) = place;
        assert!(self.queue.remove(&(class, admitted_at, step, request)));
        home
    }

    fn end(&mut self, request: RequestId, end: End) {
        let before = self.ended.insert(request, end);
        assert_eq!(before, None, "{request:?} ended twice");
    }

    fn foretell_next(&self) -> Option<Assignment> {
        let request = self.queue.first()?.3;
        let home = self.places[&request].3;
        self.has_room().then(|| Assignment {
            request,
            worker: self.warmest(home),
        })
    }

    fn foretell_expired(&self) -> Vec<RequestId> {
        let due = |admitted_at: Micros| {
            let deadline = admitted_at.0.checked_add(self.limits.timeout.0);
            deadline.is_some_and(|deadline| deadline <= self.clock.0)
        };
        let entries = self.queue.iter().filter(|entry| due(entry.1));
        entries.map(|entry| entry.3).collect()
    }

    fn warmest(&self, home: u16) -> WorkerId {
        let free = self.workers.iter().filter(|(_, known)| known.is_free());
        let warmest = free.max_by_key(|(_, known)| (known.home == home, known.used));
        *warmest.expect("a free worker").0
    }

    fn has_room(&self) -> bool {
        self.running.len() < self.up() && self.running.len() < self.limits.maxconn
    }

    fn abandoned(&self) -> bool {
        !self.expected && self.up() == 0
    }

    fn up(&self) -> usize {
        let there = self.workers.values();
        there.filter(|known| !known.is_leaving).count()
    }

    fn tick(&mut self, now: Micros) {
        self.clock = self.clock.max(now);
        self.steps += 1;
    }

    /// What holds after each call that left the pool in order.
    fn settled(&self) {
        let stats = self.pool.stats();
        assert!(stats.agree(), "the figures do not agree: {stats:?}");
        assert_eq!(stats.waiting, self.queue.len(), "waiting");
        assert_eq!(stats.busy, self.running.len(), "busy");
        let mut counts = [0; 4];
        for (worker, known) in &self.workers {
            assert_eq!(self.pool.running(*worker), known.request, "{worker:?}");
            counts[0] += usize::from(!known.is_leaving);
            counts[1] += usize::from(known.is_leaving);
            counts[2] += usize::from(known.is_retiring && !known.is_leaving);
            counts[3] += usize::from(known.is_outdated && known.stays());
        }
        let figures = [stats.workers, stats.leaving, stats.retiring, stats.outdated];
        assert_eq!(figures, counts, "up, leaving, retiring, outdated");
        assert_eq!(stats.proven, self.proven, "proven");
        assert_eq!(self.pool.coldest_idle(), self.coldest(), "coldest");
        if !self.queue.is_empty() {
            assert!(
                !self.has_room(),
                "somebody waits while a worker may be used"
            );
            assert!(!self.abandoned(), "somebody waits for nothing");
        }
        let deadline = self
            .oldest()
            .map(|oldest| oldest.after(self.limits.timeout));
        assert_eq!(self.pool.next_deadline(), deadline, "deadline");
        if self.queue.len() < 16 || self.steps.is_multiple_of(256) {
            self.pool.check().unwrap();
        }
    }
}
