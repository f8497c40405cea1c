//! A pool beside a simple model of its rules. The model predicts each answer, and each state is compared with it.
//!
//! The model is written to be obviously correct (ordered sets, searches through all workers), and shares no code with
//! the pool. It does not learn by itself how long requests take, how long clients wait, and whether the pool is
//! overloaded: it reads that from the pool's figures. If the pool refuses a new request for such a reason, the model
//! accepts that when the figures allow it.

use std::collections::BTreeMap;

use weir_pool::{
    Action, Admission, Assignment, Limits, Micros, Order, Orders, Pool, Refused, Released,
    RequestId, Reserve, ShedReason, Stats, Ticket, WorkerId,
};

use crate::line::{Line, Place};

/// How a request ended. Each request ends once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Answered,
    Shed(ShedReason),
    LeftWhileWaiting,
    LostItsWorker,
}

/// Something that happened to a request without a call for it, in the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Started(Assignment),
    Shed(RequestId, ShedReason),
}

/// The request waits behind this many requests.
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
    line: Line,
    running: BTreeMap<RequestId, WorkerId>,
    /// The tickets of running requests.
    tickets: BTreeMap<RequestId, Ticket>,
    learned: Stats,
    ended: BTreeMap<RequestId, End>,
    steps: u64,
    proven: u64,
    outcomes: Vec<Outcome>,
}

#[derive(Debug, Clone, Copy)]
struct ModelWorker {
    home: u16,
    /// `None`: the worker is free since step `used`, or it is leaving.
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
            line: Line::default(),
            running: BTreeMap::new(),
            tickets: BTreeMap::new(),
            learned: Stats::default(),
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
        self.line.len()
    }

    pub(crate) fn end_of(&self, request: RequestId) -> Option<End> {
        self.ended.get(&request).copied()
    }

    /// The worker is up or leaving.
    pub(crate) fn is_there(&self, worker: WorkerId) -> bool {
        self.workers.contains_key(&worker)
    }

    pub(crate) fn worker_of(&self, request: RequestId) -> Option<WorkerId> {
        self.running.get(&request).copied()
    }

    /// When the request that has waited longest was first admitted.
    pub(crate) fn oldest(&self) -> Option<Micros> {
        self.line.oldest()
    }

    /// [`take_outcomes`](Self::take_outcomes) returns the requests that are pushed out or that get a worker because the
    /// limit grows with the number of waiting requests.
    pub(crate) fn admit(&mut self, now: Micros, ticket: &Ticket) -> Admission {
        self.tick(now);
        let stale_last = self.learned.overloaded;
        let places = self.line.places_of(ticket, stale_last);
        let is_full = self.line.len() >= self.limits.max_queue;
        let giving = match is_full && self.limits.max_queue > 0 {
            true => self.line.who_may_give_way(ticket),
            false => Vec::new(),
        };
        let start_by = self.start_by(ticket.deadline, self.clock);
        let answer = self.pool.admit(now, ticket);
        let request = ticket.request;
        let foretold = if ticket.deadline <= self.clock {
            Some(Admission::Shed(ShedReason::Deadline))
        } else if !self.line.has_before(ticket.priority, stale_last)
            && self.may_run(ticket.priority, 1)
        {
            Some(Admission::Run(self.warmest(ticket.home)))
        } else if self.abandoned() {
            Some(Admission::Shed(ShedReason::NoWorker))
        } else if is_full && giving.is_empty() {
            Some(Admission::Shed(ShedReason::QueueFull))
        } else if self.limits.timeout == Micros::ZERO {
            Some(Admission::Shed(ShedReason::QueueTimeout))
        } else {
            None
        };
        match (answer, foretold) {
            (answer, Some(foretold)) => assert_eq!(answer, foretold, "admit {ticket:?}"),
            (Admission::Shed(ShedReason::Hopeless), None) => {
                assert!(self.learned.service_estimate > Micros::ZERO || start_by < Micros::MAX);
                assert!(self.pool.stats().finished >= 32, "nothing is known yet");
            }
            (Admission::Shed(ShedReason::Overload), None) => {
                assert!(self.learned.overloaded && self.limits.order == Order::Adaptive);
                assert!(places.1 > 0, "nobody is before it");
            }
            (
                Admission::Wait {
                    position,
                    pushed_out,
                },
                None,
            ) => {
                assert!(
                    (places.0..=places.1).contains(&position),
                    "{position}: {places:?}"
                );
                assert_eq!(pushed_out.is_some(), is_full, "somebody gives way");
                if let Some(other) = pushed_out {
                    assert!(giving.contains(&other), "{other:?} of {giving:?}");
                    self.line.remove(other);
                    let reason = ShedReason::PushedOut;
                    self.end(other, End::Shed(reason));
                    self.outcomes.push(Outcome::Shed(other, reason));
                }
            }
            (answer, None) => panic!("admit {ticket:?}: {answer:?}"),
        }
        self.admitted(answer, Place::new(ticket, self.clock, start_by));
        // The limit grows with the number of waiting requests.
        if let Admission::Wait { .. } = answer
            && !self.line.places.contains_key(&request)
        {
            panic!("{request:?} waits and does not");
        }
        self.refuse_the_stranded(now);
        answer
    }

    pub(crate) fn release(&mut self, now: Micros, worker: WorkerId) -> Released {
        self.gives_back(now, worker, End::Answered)
    }

    /// The client has left before the worker began its request.
    pub(crate) fn abandon(&mut self, now: Micros, worker: WorkerId) -> Released {
        self.gives_back(now, worker, End::LeftWhileWaiting)
    }

    fn gives_back(&mut self, now: Micros, worker: WorkerId, end: End) -> Released {
        self.tick(now);
        let busy = self.workers.get(&worker).and_then(|known| known.request);
        let mut foretold = Released::default();
        if let Some(request) = busy {
            self.stops(request);
            self.end(request, end);
            let (used, since) = (self.steps, self.clock);
            let known = self.workers.get_mut(&worker).unwrap();
            (known.request, known.used, known.since) = (None, used, since);
            known.is_leaving = known.is_retiring;
            foretold.leaves = known.is_leaving;
            if end == End::Answered {
                self.proven += u64::from(!known.has_served);
                known.has_served = true;
            }
            foretold.next = self.foretell_next();
        }
        let before = self.pool.stats();
        let answer = match end {
            End::Answered => self.pool.release(now, worker),
            _ => self.pool.abandon(now, worker),
        };
        assert_eq!(answer, foretold, "{end:?} {worker:?}");
        let learned = self.pool.stats().service_estimate != before.service_estimate;
        assert!(
            end == End::Answered || !learned,
            "of a request that never ran"
        );
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

    /// Returns true if the worker leaves at once.
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

    /// Returns the workers that leave at once.
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

    /// A worker fails its request but has not ended yet. Then handles the rest, as every caller must.
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
            self.stops(request);
            self.end(request, End::LostItsWorker);
        }
        let mut outcomes = Vec::new();
        self.deal_with_the_rest(now, &mut outcomes);
        (lost, outcomes)
    }

    /// A worker goes down. If it had a request, `retry` decides with which ticket and first admission the request comes
    /// back. Then handles the free place and an abandoned queue, as every caller must.
    pub(crate) fn worker_down(
        &mut self,
        now: Micros,
        worker: WorkerId,
        retry: impl FnOnce(RequestId) -> Option<(Ticket, Micros)>,
    ) -> (Option<RequestId>, Vec<Outcome>) {
        self.tick(now);
        let foretold = self.workers.remove(&worker).and_then(|known| known.request);
        let lost = self.pool.worker_down(now, worker);
        assert_eq!(lost, foretold, "worker_down {worker:?}");
        let mut outcomes = Vec::new();
        if let Some(request) = lost {
            self.stops(request);
            match retry(request) {
                None => self.end(request, End::LostItsWorker),
                Some((ticket, admitted_at)) => match self.readmit(now, &ticket, admitted_at) {
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
        let foretold = self.line.places.contains_key(&request);
        let answer = self.pool.leave(now, request);
        assert_eq!(answer, foretold, "leave {request:?}");
        if answer {
            self.line.remove(request);
            self.end(request, End::LeftWhileWaiting);
        }
        self.settled();
        answer
    }

    pub(crate) fn client_left(&mut self, now: Micros, since_admitted: Micros) {
        self.tick(now);
        self.pool.client_left(now, since_admitted);
        self.settled();
    }

    pub(crate) fn expire(&mut self, now: Micros) -> Vec<Refused> {
        self.tick(now);
        let foretold = self.foretell_expired();
        let mut answer = Vec::new();
        self.pool.expire(now, &mut answer);
        self.expired(&answer, foretold);
        self.settled();
        answer
    }

    /// The refusals may come in any order, each once.
    fn expired(&mut self, answer: &[Refused], foretold: BTreeMap<RequestId, ShedReason>) {
        let told: BTreeMap<_, _> = answer
            .iter()
            .map(|told| (told.request, told.reason))
            .collect();
        assert_eq!(told, foretold, "expire");
        assert_eq!(told.len(), answer.len(), "expire");
        for (request, reason) in told {
            self.line.remove(request);
            self.end(request, End::Shed(reason));
        }
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
        let foretold = self.foretell_expired();
        let refused: Vec<Refused> = answer
            .map(|action| match action {
                Action::Shed { request, reason } => Refused { request, reason },
                Action::Run(assignment) => panic!("{assignment:?} after a refusal"),
            })
            .collect();
        self.expired(&refused, foretold);
        let told = refused.iter();
        outcomes.extend(told.map(|told| Outcome::Shed(told.request, told.reason)));
        self.settled();
        outcomes
    }

    fn readmit(&mut self, now: Micros, ticket: &Ticket, admitted_at: Micros) -> Admission {
        self.tick(now);
        let admitted_at = admitted_at.min(self.clock);
        let (priority, stale_last) = (ticket.priority, self.learned.overloaded);
        let before = self.line.place_of_retry(priority, admitted_at, stale_last);
        let start_by = self.start_by(ticket.deadline, admitted_at);
        let foretold = if before == 0 && self.may_run(priority, 1) {
            Admission::Run(self.warmest(ticket.home))
        } else if self.abandoned() {
            Admission::Shed(ShedReason::NoWorker)
        } else if self.clock.since(admitted_at) >= self.limits.timeout {
            Admission::Shed(ShedReason::QueueTimeout)
        } else if start_by <= self.clock {
            Admission::Shed(ShedReason::Deadline)
        } else {
            waits(before)
        };
        let answer = self.pool.readmit(now, ticket, admitted_at);
        assert_eq!(answer, foretold, "readmit {ticket:?} of {admitted_at:?}");
        self.admitted(answer, Place::new(ticket, admitted_at, start_by).of_retry());
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
            foretold = self.line.in_order();
        }
        let mut answer = Vec::new();
        self.pool.drain_waiting(now, &mut answer);
        assert_eq!(answer, foretold, "drain_waiting");
        for request in answer {
            self.line.remove(request);
            self.end(request, End::Shed(ShedReason::NoWorker));
            outcomes.push(Outcome::Shed(request, ShedReason::NoWorker));
        }
        self.settled();
    }

    fn admitted(&mut self, answer: Admission, place: Place) {
        let request = place.ticket.request;
        assert!(
            !self.ended.contains_key(&request),
            "{request:?} came back from the dead"
        );
        match answer {
            Admission::Run(worker) => self.occupy(Assignment { request, worker }, &place.ticket),
            Admission::Wait { .. } => self.line.push(place, self.steps),
            Admission::Shed(reason) => self.end(request, End::Shed(reason)),
        }
    }

    fn started(&mut self, assignment: Option<Assignment>) {
        if let Some(assignment) = assignment {
            let place = self.line.serve(assignment.request);
            self.occupy(assignment, &place.ticket);
        }
    }

    fn stops(&mut self, request: RequestId) {
        self.running.remove(&request);
        self.tickets.remove(&request);
    }

    fn occupy(&mut self, assignment: Assignment, ticket: &Ticket) {
        let Assignment { request, worker } = assignment;
        assert!(
            self.running.len() < self.limits.maxconn,
            "maxconn is passed"
        );
        let known = self.workers.get_mut(&worker).expect("a worker that is up");
        assert_eq!(known.request, None, "{worker:?} has two requests");
        known.request = Some(request);
        known.home = ticket.home;
        self.tickets.insert(request, *ticket);
        let other = self.running.insert(request, worker);
        assert_eq!(other, None, "{request:?} has two workers");
    }

    fn end(&mut self, request: RequestId, end: End) {
        let before = self.ended.insert(request, end);
        assert_eq!(before, None, "{request:?} ended twice");
    }

    fn foretell_next(&self) -> Option<Assignment> {
        let may = |priority| self.may_run(priority, 0);
        let enough = |client| self.has_its_share(client);
        let request = self.line.next(self.learned.overloaded, may, enough)?;
        let home = self.line.places[&request].ticket.home;
        Some(Assignment {
            request,
            worker: self.warmest(home),
        })
    }

    fn foretell_expired(&self) -> BTreeMap<RequestId, ShedReason> {
        let mut expired = BTreeMap::new();
        for (request, place) in &self.line.places {
            let timeout = place.admitted_at.0.checked_add(self.limits.timeout.0);
            if timeout.is_some_and(|timeout| timeout <= self.clock.0) {
                expired.insert(*request, ShedReason::QueueTimeout);
            } else if place.start_by <= self.clock {
                expired.insert(*request, ShedReason::Deadline);
            }
        }
        expired
    }

    fn start_by(&self, deadline: Micros, admitted_at: Micros) -> Micros {
        let half = deadline.since(admitted_at).0 / 2;
        match deadline {
            Micros::MAX => deadline,
            _ => Micros(deadline.0 - self.learned.service_estimate.0.min(half)),
        }
    }

    /// `more`: requests that count in the load but are not in this pool.
    fn may_run(&self, priority: i16, more: usize) -> bool {
        let (busy, up) = (self.running.len(), self.up());
        let (maxconn, limit) = (self.limits.maxconn, self.limit(more));
        let reserves = self.limits.reserve.as_slice();
        let kept = |reserve: &Reserve| {
            let better = reserves
                .iter()
                .filter(|other| other.priority <= reserve.priority);
            better.map(|other| other.workers).sum::<usize>()
        };
        let mut against = reserves
            .iter()
            .filter(|reserve| priority > reserve.priority);
        busy < up
            && busy < limit
            && against.all(|reserve| {
                let running = self.tickets.values();
                let outside = |ticket: &&Ticket| ticket.priority > reserve.priority;
                let outsiders = running.filter(outside).count();
                outsiders < up.min(maxconn).saturating_sub(kept(reserve)).max(1)
            })
    }

    /// Requests that may run at once. `more` counts in the load but is not in this pool.
    fn limit(&self, more: usize) -> usize {
        let Limits {
            maxconn,
            minconn,
            fullconn,
            ..
        } = self.limits;
        let load = self.running.len() + self.line.len() + more;
        match load >= fullconn {
            true => maxconn,
            false => (maxconn * load / fullconn).max(minconn).min(maxconn),
        }
    }

    /// The client has as many workers as one client may have while others wait.
    fn has_its_share(&self, client: u64) -> bool {
        let share = usize::from(self.limits.client_share);
        let workers = self.up().min(self.limit(0));
        let running = self.tickets.values();
        let own = running.filter(|ticket| ticket.client == client).count();
        share < 100 && client > 0 && own >= (workers * share / 100).max(1)
    }

    fn warmest(&self, home: u16) -> WorkerId {
        let free = self.workers.iter().filter(|(_, known)| known.is_free());
        let warmest = free.max_by_key(|(_, known)| (known.home == home, known.used));
        *warmest.expect("a free worker").0
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
        // Reads what the pool has learned, before anything happens.
        self.pool.pass(now);
        self.learned = self.pool.stats();
        assert!(self.limits.order == Order::Adaptive || !self.learned.overloaded);
        let stale_after = self.learned.stale_after.0;
        if self.learned.overloaded
            && let Some(limit) = self.clock.0.checked_sub(stale_after)
        {
            self.line.make_stale(Micros(limit));
        }
    }

    /// Checks what must hold after each call.
    fn settled(&self) {
        let stats = self.pool.stats();
        assert!(stats.agree(), "the figures do not agree: {stats:?}");
        assert_eq!(stats.waiting, self.line.len(), "waiting");
        assert_eq!(stats.stale, self.line.stale(), "stale");
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
        assert_eq!(
            self.foretell_next(),
            None,
            "somebody waits while a worker may be used"
        );
        assert!(
            self.line.len() == 0 || !self.abandoned(),
            "somebody waits for nothing"
        );
        let oldest = self.oldest();
        let timeout = oldest.map(|oldest| oldest.after(self.limits.timeout));
        let deadline = self.line.first_deadline();
        let deadline = timeout.into_iter().chain(deadline).min();
        assert_eq!(self.pool.next_deadline(), deadline, "deadline");
        if self.line.len() < 16 || self.steps.is_multiple_of(256) {
            self.pool.check().unwrap();
        }
    }
}
