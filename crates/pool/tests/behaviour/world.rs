//! The simulator: clients, workers and a virtual clock around a [`Checked`] pool. The same seed gives the same events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use weir_pool::{
    Admission, Assignment, Failure, Limits, Micros, Orders, Released, RequestId, Retry, Sent,
    Stats, Ticket, WorkerId, may_retry,
};

use crate::checked::{Checked, End, Outcome};
use crate::random::Random;

/// The plan of a world. Times are microseconds, chances are per mille.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    pub(crate) limits: Limits,
    pub(crate) workers: u32,
    pub(crate) reactors: u16,
    /// Clients that come at the start, all at once.
    pub(crate) at_start: u64,
    /// Mean time between arrivals; 0: no client comes after the start.
    pub(crate) every: u64,
    /// Arrivals are at equal distances instead of random.
    pub(crate) evenly: bool,
    /// No client comes after this time.
    pub(crate) until: u64,
    /// The chance that an arrival is a burst of `burst` clients at once.
    pub(crate) burst_chance: u64,
    pub(crate) burst: u64,
    /// Mean time of a script.
    pub(crate) script: u64,
    /// All scripts take exactly this time.
    pub(crate) script_is_constant: bool,
    /// The chance that a script takes 50 times as long.
    pub(crate) slow_chance: u64,
    /// The number of different clients; 0: requests have no client.
    pub(crate) clients: u64,
    /// Each request has one of these priorities.
    pub(crate) priorities: &'static [i16],
    /// A request has its own deadline, this long after arrival on average; 0: no request has one.
    pub(crate) deadline: u64,
    /// How long a client waits for its answer (mean, or exactly if arrivals are even); 0: without limit.
    pub(crate) patience: u64,
    /// The chance that a worker dies during a request.
    pub(crate) death_chance: u64,
    /// Mean time until a dead worker is replaced.
    pub(crate) restart: u64,
    /// Mean time between the deaths of one worker, busy or idle; 0: never.
    pub(crate) murder_every: u64,
    /// Mean time between the deaths of all workers at once; 0: never.
    pub(crate) disaster_every: u64,
    /// Mean time between withdrawals of workers, busy or idle; 0: never.
    pub(crate) retire_every: u64,
    /// Mean time between changes of the limits; 0: never.
    pub(crate) reload_every: u64,
    /// The deadline timer is late by up to this.
    pub(crate) timer_lag: u64,
    /// Threads' clocks reach the pool out of order by up to this.
    pub(crate) clock_skew: u64,
}

impl Course {
    /// Workers that never die, clients that never leave, and no client at the start.
    pub(crate) fn calm(workers: u32, limits: Limits) -> Self {
        Self {
            limits,
            workers,
            reactors: 1,
            at_start: 0,
            every: 0,
            evenly: true,
            until: 0,
            burst_chance: 0,
            burst: 0,
            script: 10_000,
            script_is_constant: true,
            slow_chance: 0,
            clients: 0,
            priorities: &[0],
            deadline: 0,
            patience: 0,
            death_chance: 0,
            restart: 100_000,
            murder_every: 0,
            disaster_every: 0,
            retire_every: 0,
            reload_every: 0,
            timer_lag: 0,
            clock_skew: 0,
        }
    }
}

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) stats: Stats,
    /// Answers that a client still waited for, answers that no client waited for, and failures.
    pub(crate) good: u64,
    pub(crate) wasted: u64,
    pub(crate) failed: u64,
    /// Workers that were withdrawn.
    pub(crate) withdrawn: u64,
    /// Time from arrival to the (last) start, for each started request.
    pub(crate) waits: Vec<u64>,
    /// Time from arrival to refusal.
    pub(crate) refusals: Vec<u64>,
    /// When the last request ended.
    pub(crate) ended_at: u64,
    pub(crate) queue_capacity: usize,
}

/// Runs a pool through the plan with this seed, until no client is left.
pub(crate) fn run(course: &Course, seed: u64) -> Report {
    let mut world = World::new(course.clone(), seed);
    world.live();
    world.finish()
}

struct World {
    course: Course,
    seed: u64,
    random: Random,
    pool: Checked,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    timer_at: Option<u64>,
    clients: BTreeMap<RequestId, Client>,
    next_request: u64,
    /// Counts the lives of a worker slot, so that an event for an earlier life does not affect the present one.
    lives: Vec<u64>,
    report: Report,
    /// The last events; printed if a check fails.
    diary: VecDeque<(u64, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    /// The worker is ready again.
    Ready(WorkerId, u64),
    DiesAtWork(WorkerId, u64),
    Starts(WorkerId, u64),
    Leaves(RequestId),
    Deadline,
    Murder,
    Disaster,
    Recovery,
    Retire,
    /// A worker that was withdrawn has ended.
    Ended(WorkerId, u64),
    Reload,
}

#[derive(Debug)]
struct Client {
    ticket: Ticket,
    arrived: u64,
    /// The time as the pool knows it: its clock may have been ahead.
    admitted_at: Micros,
    idempotent: bool,
    attempts: u32,
    gone: bool,
}

impl World {
    fn new(course: Course, seed: u64) -> Self {
        let mut world = Self {
            random: Random::new(seed),
            pool: Checked::new(course.limits),
            seed,
            now: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            timer_at: None,
            clients: BTreeMap::new(),
            next_request: 0,
            lives: vec![0; course.workers as usize],
            report: Report::default(),
            diary: VecDeque::new(),
            course,
        };
        for worker in 0..world.course.workers {
            world.start_worker(WorkerId(worker));
        }
        for _ in 0..world.course.at_start {
            world.arrive();
        }
        world.again(Event::Arrival, world.course.every);
        world.again(Event::Murder, world.course.murder_every);
        world.again(Event::Disaster, world.course.disaster_every);
        world.again(Event::Retire, world.course.retire_every);
        world.again(Event::Reload, world.course.reload_every);
        world
    }

    fn live(&mut self) {
        // The clients that came at the start wait too.
        self.watch_deadlines();
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            assert!(at >= self.now);
            self.now = at;
            self.happen(event);
            self.watch_deadlines();
        }
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each event")]
    fn happen(&mut self, event: Event) {
        let now = self.now_as_told();
        match event {
            Event::Arrival => {
                let burst = self.random.chance(self.course.burst_chance);
                for _ in 0..if burst { self.course.burst } else { 1 } {
                    self.arrive();
                }
                self.again(event, self.course.every);
            }
            Event::Ready(worker, life) if self.lives[worker.0 as usize] == life => {
                self.lives[worker.0 as usize] += 1;
                let request = self.pool.pool.running(worker).expect("it worked");
                self.note(format!("{worker:?} is ready again after {request:?}"));
                match self.clients[&request].gone {
                    true => self.report.wasted += 1,
                    false => self.report.good += 1,
                }
                self.report.ended_at = self.now;
                let released = self.pool.release(now, worker);
                if released.leaves {
                    self.leaves(worker);
                }
                self.on_start(released.next);
                let outcomes = self.pool.take_outcomes();
                self.on_outcomes(outcomes);
            }
            Event::DiesAtWork(worker, life) if self.lives[worker.0 as usize] == life => {
                self.kill(worker);
            }
            Event::Starts(worker, life) if self.lives[worker.0 as usize] == life => {
                self.start_worker(worker);
            }
            // A lost race: the worker is dead, or has another request. The pool can only notice it if the worker is
            // down. It is told about it sometimes.
            Event::Ended(worker, life) if self.lives[worker.0 as usize] == life => {
                self.kill(worker);
            }
            Event::Ready(worker, _)
            | Event::DiesAtWork(worker, _)
            | Event::Starts(worker, _)
            | Event::Ended(worker, _) => {
                if !self.pool.is_there(worker) && self.random.chance(200) {
                    self.note(format!("a late word of {worker:?}"));
                    assert_eq!(self.pool.release(now, worker), Released::default());
                    let (lost, outcomes) = self.pool.worker_down(now, worker, |_| None);
                    assert_eq!((lost, outcomes), (None, Vec::new()));
                }
            }
            Event::Leaves(request) => {
                let waited = self.pool.leave(now, request);
                self.note(format!("client of {request:?} leaves (waiting: {waited})"));
                self.clients.get_mut(&request).unwrap().gone = true;
                if self.pool.worker_of(request).is_some() {
                    let since = now.since(self.clients[&request].admitted_at);
                    self.pool.client_left(now, since);
                }
            }
            Event::Deadline => {
                if self.timer_at.is_some_and(|at| at <= self.now) {
                    self.timer_at = None;
                }
                let expired = self.pool.expire(Micros(self.now));
                for refused in expired {
                    self.on_shed(refused.request);
                }
            }
            Event::Murder => {
                let worker = self.random.below(u64::from(self.course.workers));
                self.kill(WorkerId(worker as u32));
                self.again(event, self.course.murder_every);
            }
            Event::Disaster => {
                if self.random.chance(500) {
                    self.note("no worker is expected any more".into());
                    let outcomes = self.pool.worker_expected(now, false);
                    self.on_outcomes(outcomes);
                    let pause = self.random.around(self.course.restart * 3);
                    self.schedule(pause, Event::Recovery);
                }
                for worker in 0..self.course.workers {
                    self.kill(WorkerId(worker));
                }
                self.again(event, self.course.disaster_every);
            }
            Event::Retire => {
                let worker = WorkerId(self.random.below(u64::from(self.course.workers)) as u32);
                let leaving = match self.random.below(4) {
                    0 if self.pool.retire(now, worker) => vec![worker],
                    0 => Vec::new(),
                    1 => {
                        self.pool.outdate(now, worker);
                        Vec::new()
                    }
                    kind => {
                        let orders = Orders {
                            stop: self.random.below(3) as usize,
                            retire: usize::from(kind == 3),
                            renew: self.random.below(2) as usize,
                            ..Orders::default()
                        };
                        self.pool.withdraw(now, &orders)
                    }
                };
                self.note(format!("{leaving:?} leave"));
                let outcomes = self.pool.take_outcomes();
                self.on_outcomes(outcomes);
                for worker in leaving {
                    self.leaves(worker);
                }
                self.again(event, self.course.retire_every);
            }
            Event::Recovery => {
                self.note("workers are expected again".into());
                let outcomes = self.pool.worker_expected(now, true);
                self.on_outcomes(outcomes);
            }
            Event::Reload => {
                let base = self.course.limits;
                let workers = u64::from(self.course.workers);
                let fullconn = self.random.below(4) as usize * base.maxconn;
                let limits = Limits {
                    minconn: 1,
                    fullconn,
                    maxconn: 1 + self.random.below(workers * 5 / 4 + 1) as usize,
                    client_share: [50, 30, 100][self.random.below(3) as usize],
                    max_queue: self.random.below(base.max_queue as u64 * 2) as usize,
                    timeout: Micros(1 + self.random.below(base.timeout.0.saturating_mul(2))),
                    ..base
                };
                self.note(format!("{limits:?}"));
                let outcomes = self.pool.set_limits(now, limits);
                self.on_outcomes(outcomes);
                self.again(event, self.course.reload_every);
            }
        }
    }

    fn arrive(&mut self) {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        let home = self.random.below(u64::from(self.course.reactors)) as u16;
        let now = self.now_as_told();
        let deadline = match self.course.deadline {
            0 => Micros::MAX,
            mean => Micros(self.now + self.random.around(mean)),
        };
        let priorities = self.course.priorities;
        let ticket = Ticket {
            deadline,
            priority: priorities[self.random.below(priorities.len() as u64) as usize],
            client: self.random.below(self.course.clients + 1),
            ..Ticket::new(request, home)
        };
        let client = Client {
            ticket,
            arrived: self.now,
            admitted_at: now,
            idempotent: self.random.chance(700),
            attempts: 0,
            gone: false,
        };
        self.clients.insert(request, client);
        if self.course.patience > 0 {
            let patience = self.time(self.course.patience, self.course.evenly);
            self.schedule(patience, Event::Leaves(request));
        }
        let admission = self.pool.admit(now, &ticket);
        self.note(format!("{ticket:?} arrives: {admission:?}"));
        match admission {
            Admission::Run(worker) => self.on_start(Some(Assignment { request, worker })),
            Admission::Wait { .. } => {}
            Admission::Shed(_) => self.on_shed(request),
        }
        let outcomes = self.pool.take_outcomes();
        self.on_outcomes(outcomes);
    }

    fn start_worker(&mut self, worker: WorkerId) {
        let home = self.random.below(u64::from(self.course.reactors)) as u16;
        self.note(format!("{worker:?} of home {home} is up"));
        let now = self.now_as_told();
        let next = self.pool.worker_up(now, worker, home);
        self.on_start(next);
    }

    fn leaves(&mut self, worker: WorkerId) {
        self.report.withdrawn += 1;
        self.lives[worker.0 as usize] += 1;
        let end = self.random.around(self.course.restart);
        self.schedule(end, Event::Ended(worker, self.lives[worker.0 as usize]));
    }

    fn kill(&mut self, worker: WorkerId) {
        if !self.pool.is_there(worker) {
            return;
        }
        self.lives[worker.0 as usize] += 1;
        let restart = self.random.around(self.course.restart);
        self.schedule(
            restart,
            Event::Starts(worker, self.lives[worker.0 as usize]),
        );
        let sent = match self.random.chance(100) {
            true => Sent::Nothing,
            false => Sent::Maybe,
        };
        let answered = sent == Sent::Maybe && self.random.chance(200);
        let now = self.now_as_told();
        let clients = &self.clients;
        let (lost, outcomes) = self.pool.worker_down(now, worker, |request| {
            let client = &clients[&request];
            let failure = Failure {
                idempotent: client.idempotent,
                sent,
                answered,
                attempts: client.attempts,
                max_attempts: 3,
            };
            let again = may_retry(&failure) == Retry::Again && !client.gone;
            again.then_some((client.ticket, client.admitted_at))
        });
        self.note(format!("{worker:?} dies under {lost:?}: {outcomes:?}"));
        let failed = |request| self.pool.end_of(request) == Some(End::LostItsWorker);
        self.report.failed += u64::from(lost.is_some_and(failed));
        self.on_outcomes(outcomes);
    }

    fn on_outcomes(&mut self, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            match outcome {
                Outcome::Started(assignment) => self.on_start(Some(assignment)),
                Outcome::Shed(request, _) => self.on_shed(request),
            }
        }
    }

    fn on_start(&mut self, assignment: Option<Assignment>) {
        let Some(Assignment { request, worker }) = assignment else {
            return;
        };
        self.note(format!("{request:?} runs on {worker:?}"));
        assert_eq!(self.pool.worker_of(request), Some(worker));
        let client = self.clients.get_mut(&request).unwrap();
        client.attempts += 1;
        assert!(client.attempts == 1 || !client.gone);
        self.report.waits.push(self.now - client.arrived);
        let slot = worker.0 as usize;
        self.lives[slot] += 1;
        let mut script = self.time(self.course.script, self.course.script_is_constant);
        if self.random.chance(self.course.slow_chance) {
            script *= 50;
        }
        if self.random.chance(self.course.death_chance) {
            let moment = self.random.below(script + 1);
            self.schedule(moment, Event::DiesAtWork(worker, self.lives[slot]));
        }
        self.schedule(script, Event::Ready(worker, self.lives[slot]));
    }

    fn on_shed(&mut self, request: RequestId) {
        let end = self.pool.end_of(request);
        self.note(format!("{request:?}: {end:?}"));
        let waited = self.now - self.clients[&request].arrived;
        self.report.refusals.push(waited);
        self.report.ended_at = self.now;
    }

    /// Sets the timer as a caller would, and checks that the timer covers every request.
    fn watch_deadlines(&mut self) {
        let late = self.course.timer_lag + self.course.clock_skew;
        let Some(deadline) = self.pool.pool.next_deadline() else {
            return;
        };
        let oldest = self.pool.oldest().expect("somebody waits");
        let waits = Micros(self.now).since(oldest);
        let limit = self.pool.limits().timeout.0.saturating_add(late);
        assert!(waits.0 <= limit, "somebody waits since {oldest:?}");
        if deadline < Micros::MAX && self.timer_at.is_none_or(|at| at > deadline.0) {
            let lag = self.random.below(self.course.timer_lag + 1);
            let at = deadline.0.saturating_add(lag).max(self.now);
            self.timer_at = Some(at);
            self.schedule(at - self.now, Event::Deadline);
        }
    }

    fn finish(mut self) -> Report {
        assert_eq!(self.pool.waiting(), 0, "somebody waits for ever");
        let stats = self.pool.pool.stats();
        assert_eq!(stats.busy, 0, "a worker is busy for ever");
        assert_eq!(stats.admitted, self.next_request);
        let mut ends = BTreeMap::new();
        for request in 1..=self.next_request {
            let end = self.pool.end_of(RequestId(request));
            let end = end.unwrap_or_else(|| panic!("request {request} has not ended"));
            *ends.entry(format!("{end:?}")).or_insert(0_u64) += 1;
        }
        let count = |end: &str| ends.get(end).copied().unwrap_or(0);
        assert_eq!(count("Answered"), stats.finished);
        assert_eq!(count("Shed(QueueFull)"), stats.shed_queue_full);
        assert_eq!(count("Shed(QueueTimeout)"), stats.shed_queue_timeout);
        assert_eq!(count("Shed(NoWorker)"), stats.shed_no_worker);
        assert_eq!(count("Shed(Hopeless)"), stats.shed_hopeless);
        assert_eq!(count("Shed(Deadline)"), stats.shed_deadline);
        assert_eq!(count("Shed(Overload)"), stats.shed_overload);
        assert_eq!(count("Shed(PushedOut)"), stats.shed_pushed_out);
        assert_eq!(count("LeftWhileWaiting"), stats.left);
        assert_eq!(count("LostItsWorker"), stats.lost - stats.readmitted);
        assert_eq!(stats.finished, self.report.good + self.report.wasted);
        let mut report = std::mem::take(&mut self.report);
        report.stats = stats;
        report.queue_capacity = self.pool.pool.queue_capacity();
        report
    }

    fn now_as_told(&mut self) -> Micros {
        Micros(
            self.now
                .saturating_sub(self.random.below(self.course.clock_skew + 1)),
        )
    }

    fn time(&mut self, mean: u64, exactly: bool) -> u64 {
        match exactly {
            true => mean,
            false => self.random.around(mean),
        }
    }

    fn again(&mut self, event: Event, mean: u64) {
        let evenly = event == Event::Arrival && self.course.evenly;
        let pause = self.time(mean, evenly);
        if mean > 0 && self.now + pause <= self.course.until {
            self.schedule(pause, event);
        }
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.scheduled += 1;
        self.events
            .push(Reverse((self.now + after, self.scheduled, event)));
    }

    fn note(&mut self, what: String) {
        if self.diary.len() == REMEMBERED {
            self.diary.pop_front();
        }
        self.diary.push_back((self.now, what));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last events before the failure (time in µs):");
            for (at, what) in &self.diary {
                eprintln!("{at:>12} {what}");
            }
            eprintln!("after that, at {}: {:?}", self.now, self.pool.pool.stats());
            eprintln!("replay with {}={}", crate::simulation::SEED, self.seed);
        }
    }
}

const REMEMBERED: usize = 60;
