//! A machine with processors, memory and a virtual clock that runs the workers of a pool. The gateway and the manager
//! use the pool and its scaler correctly. The same seed gives the same events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use weir_pool::{
    Admission, Assignment, Decision, Limits, MemoryView, Micros, Mode, ProcessorUse, RequestId,
    Scaling, Stats, Surroundings, Worked, WorkerId,
};

use crate::random::Random;
use crate::scaled::{Death, Look, Scaled};

/// The plan of a machine. Times are microseconds, chances are per mille.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) scaling: Scaling,
    pub(crate) limits: Limits,
    /// Processors.
    pub(crate) cores: u64,
    /// Time from asking for a worker until it is up.
    pub(crate) fork: u64,
    pub(crate) loads: Vec<Load>,
    /// When the scaler gets each value.
    pub(crate) memory: Option<Memory>,
    /// The chance that a worker dies instead of answering.
    pub(crate) death_chance: u64,
    /// Between these two times, each worker dies as soon as it is up.
    pub(crate) broken: (u64, u64),
    /// The chance that a fork fails.
    pub(crate) fork_failure_chance: u64,
    /// Between these two times, every fork fails.
    pub(crate) no_forks: (u64, u64),
    /// A new generation of workers begins.
    pub(crate) renewals: Vec<u64>,
    /// The master is lost, and comes back 50 ms later.
    pub(crate) master_lost: Vec<u64>,
    /// New bounds from these times on.
    pub(crate) changes: Vec<(u64, Scaling)>,
    /// From this time on, no worker dies at work and every fork succeeds.
    pub(crate) calm_from: u64,
    /// What the scaler is told about processors.
    pub(crate) known: Known,
    /// Other programs that compute all the time.
    pub(crate) neighbours: Neighbours,
    /// Requests that a worker serves before it is replaced; 0: no limit.
    pub(crate) max_requests: u64,
    /// The end of the run.
    pub(crate) until: u64,
}

/// What is known about the pool's use of processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Nothing,
    /// For how long its workers wanted one.
    Delays,
    /// How many processes of the machine want one.
    Crowd,
}

/// Programs that compute all the time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Neighbours {
    pub(crate) count: u64,
    /// What each gets of a processor, compared with a worker, in 1/1024.
    pub(crate) weight: u64,
}

/// Clients of one kind.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) clients: Clients,
    /// The time a script computes, the time it waits, and the number of turns.
    pub(crate) cpu: u64,
    pub(crate) io: u64,
    pub(crate) turns: u64,
    /// All scripts take exactly these times.
    pub(crate) is_constant: bool,
    /// Each script ends its worker instead of answering.
    pub(crate) is_deadly: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Clients {
    /// This many clients. Each sends its next request when it has its answer.
    Closed(u64),
    /// One client per this many microseconds, on average or exactly.
    Random(u64),
    Even(u64),
}

#[derive(Debug, Clone)]
pub(crate) struct Memory {
    /// The bytes for workers, and from when on.
    pub(crate) room: Vec<(u64, u64)>,
    pub(crate) worker: u64,
    pub(crate) every: u64,
}

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) stats: Stats,
    pub(crate) max_children_reached: u64,
    /// Each change of the number of workers that are up.
    pub(crate) workers: Vec<(u64, usize)>,
    /// When workers were started, and how many.
    pub(crate) starts: Vec<(u64, usize)>,
    /// When each worker was withdrawn.
    pub(crate) withdrawals: Vec<u64>,
    /// When a request was given to a worker, and how long it had waited.
    pub(crate) waits: Vec<(u64, u64)>,
    /// When each request was finished.
    pub(crate) answers: Vec<u64>,
    pub(crate) decisions: Vec<(u64, Decision)>,
    /// For each load: requests that came, and requests that were answered.
    pub(crate) of_loads: BTreeMap<usize, (u64, u64)>,
}

impl Outcome {
    /// Workers that were up at that time.
    pub(crate) fn workers_at(&self, time: u64) -> usize {
        let before = self.workers.iter().take_while(|(at, _)| *at <= time);
        before.last().map_or(0, |(_, workers)| *workers)
    }

    /// When this many workers were up for the first time.
    pub(crate) fn first_with(&self, workers: usize) -> Option<u64> {
        let found = self.workers.iter().find(|(_, up)| *up >= workers);
        found.map(|(at, _)| *at)
    }

    pub(crate) fn most_workers(&self) -> usize {
        self.workers.iter().map(|(_, up)| *up).max().unwrap_or(0)
    }

    pub(crate) fn started_within(&self, from: u64, until: u64) -> usize {
        let inside = self
            .starts
            .iter()
            .filter(|(at, _)| (from..until).contains(at));
        inside.map(|(_, count)| count).sum()
    }

    /// Answers a second.
    pub(crate) fn rate(&self, from: u64, until: u64) -> u64 {
        let inside = self.answers.iter().filter(|at| (from..until).contains(at));
        inside.count() as u64 * 1_000_000 / (until - from)
    }

    pub(crate) fn longest_wait(&self, from: u64, until: u64) -> u64 {
        let inside = self
            .waits
            .iter()
            .filter(|(at, _)| (from..until).contains(at));
        inside.map(|(_, wait)| *wait).max().unwrap_or(0)
    }
}

impl Plan {
    /// A plan without failures and without clients.
    pub(crate) fn calm(cores: u64, mode: Mode, max_children: usize) -> Self {
        Self {
            scaling: Scaling {
                mode,
                max_children,
                max_spawn_rate: 32,
                idle_timeout: Micros::from_secs(10),
            },
            limits: Limits {
                maxconn: max_children,
                max_queue: 10_000,
                timeout: Micros::from_secs(60),
                ..Limits::USUAL
            },
            cores,
            fork: 5_000,
            loads: Vec::new(),
            memory: None,
            death_chance: 0,
            broken: (0, 0),
            fork_failure_chance: 0,
            no_forks: (0, 0),
            renewals: Vec::new(),
            master_lost: Vec::new(),
            changes: Vec::new(),
            calm_from: u64::MAX,
            known: Known::Delays,
            neighbours: Neighbours::default(),
            max_requests: 0,
            until: 0,
        }
    }
}

/// Runs the machine through the plan, with this seed.
pub(crate) fn run(plan: &Plan, seed: u64) -> Outcome {
    let mut machine = Machine::new(plan.clone(), seed);
    machine.live();
    machine.outcome.stats = machine.gateway.pool.stats();
    machine.outcome.max_children_reached = machine.gateway.scaler.figures().max_children_reached;
    std::mem::take(&mut machine.outcome)
}

struct Machine {
    plan: Plan,
    seed: u64,
    random: Random,
    now: u64,
    gateway: Scaled,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    timer_at: Option<u64>,
    next_request: u64,
    clients: BTreeMap<RequestId, Client>,
    processors: Processors,
    /// Counts the lives of a worker, so that an event for an earlier life does not affect the present one.
    lives: BTreeMap<WorkerId, u64>,
    /// Counts the workers that a slot has had.
    births: BTreeMap<WorkerId, u64>,
    /// Counts the masters: forks of an earlier master are lost.
    master: u64,
    /// The time of the last look at the processors, and what workers had used, wanted, and been busy by then.
    looked: [u64; 4],
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    /// The worker's wait is over.
    Waited(WorkerId, u64),
    /// A worker has finished computing, if nothing has changed since.
    Computed(u64),
    Forked(u64),
    ForkFailed(u64),
    /// A worker that was told to end has ended.
    Ended(WorkerId, u64),
    DiesYoung(WorkerId, u64),
    Look,
    Expire,
    Memory,
    Renewal,
    MasterLost,
    MasterUp,
    Change(usize),
}

#[derive(Debug)]
struct Client {
    load: usize,
    arrived: u64,
    turns_left: u64,
    cpu: u64,
    io: u64,
    dies: bool,
}

/// All computing workers share the processors in equal parts, with what the neighbours leave; none gets more than one
/// processor.
struct Processors {
    count: u64,
    /// The weight of all neighbours.
    others: u64,
    /// What each computing worker has got since the beginning, in 1/1024 µs.
    got: u64,
    at: u64,
    /// The computing workers, by the value of `got` at which each is done.
    work: BTreeSet<(u64, WorkerId)>,
    version: u64,
    /// The time that workers used, and the time that they used or wanted.
    used: u64,
    wanted: u64,
}

impl Machine {
    fn new(plan: Plan, seed: u64) -> Self {
        let mut machine = Self {
            seed,
            random: Random::new(seed),
            now: 0,
            gateway: Scaled::new(plan.limits, plan.scaling),
            events: BinaryHeap::new(),
            scheduled: 0,
            timer_at: None,
            next_request: 0,
            clients: BTreeMap::new(),
            processors: Processors {
                count: plan.cores,
                others: plan.neighbours.count * plan.neighbours.weight,
                got: 0,
                at: 0,
                work: BTreeSet::new(),
                version: 0,
                used: 0,
                wanted: 0,
            },
            lives: BTreeMap::new(),
            births: BTreeMap::new(),
            master: 0,
            looked: [0; 4],
            outcome: Outcome::default(),
            plan,
        };
        let plan = machine.plan.clone();
        machine.schedule(0, Event::MasterUp);
        for (index, load) in plan.loads.iter().enumerate() {
            let first = match load.clients {
                Clients::Closed(count) => count,
                Clients::Random(_) | Clients::Even(_) => 1,
            };
            for _ in 0..first {
                machine.schedule(load.from, Event::Arrival(index));
            }
        }
        if plan.memory.is_some() {
            machine.schedule(0, Event::Memory);
        }
        for at in &plan.renewals {
            machine.schedule(*at, Event::Renewal);
        }
        for at in &plan.master_lost {
            machine.schedule(*at, Event::MasterLost);
        }
        for (index, (at, _)) in plan.changes.iter().enumerate() {
            machine.schedule(*at, Event::Change(index));
        }
        machine
    }

    fn live(&mut self) {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > self.plan.until {
                break;
            }
            self.now = at;
            self.happen(event);
            self.follow_orders();
        }
    }

    fn happen(&mut self, event: Event) {
        let now = Micros(self.now);
        match event {
            Event::Arrival(index) => {
                let load = &self.plan.loads[index];
                let again = match load.clients {
                    Clients::Closed(_) => None,
                    Clients::Random(every) => Some(self.random.around(every)),
                    Clients::Even(every) => Some(every),
                };
                if self.now >= load.until {
                    return;
                }
                if let Some(pause) = again {
                    self.schedule(pause, event);
                }
                self.arrive(index);
            }
            Event::Waited(worker, life) if self.lives[&worker] == life => self.turn(worker),
            Event::Computed(version) if self.processors.version == version => {
                if let Some(worker) = self.processors.done(self.now) {
                    self.wait(worker);
                }
                self.watch_processors();
            }
            Event::Forked(master) if master == self.master => {
                let (worker, next) = self.gateway.came(now);
                *self.lives.entry(worker).or_insert(0) += 1;
                *self.births.entry(worker).or_insert(0) += 1;
                let (from, until) = self.plan.broken;
                if (from..until).contains(&self.now) {
                    let soon = self.random.below(3_000);
                    self.schedule(soon, Event::DiesYoung(worker, self.births[&worker]));
                }
                self.on_start(next);
            }
            Event::ForkFailed(master) if master == self.master => {
                self.gateway.start_failed(now, 1);
            }
            Event::Ended(worker, life) if self.lives[&worker] == life => {
                self.gateway.ended(now, worker);
            }
            Event::DiesYoung(worker, birth)
                if self.births[&worker] == birth && self.gateway.is_there(worker) =>
            {
                self.die(worker);
            }
            Event::Waited(..)
            | Event::Computed(_)
            | Event::Forked(_)
            | Event::ForkFailed(_)
            | Event::Ended(..)
            | Event::DiesYoung(..) => {}
            Event::Look => self.timer_at = None,
            Event::Expire => {
                for request in self.gateway.expire(now) {
                    self.on_end(request);
                }
            }
            Event::Memory => {
                let memory = self.plan.memory.clone().expect("a memory");
                let mut sizes = memory.room.iter().rev();
                let size = sizes.find(|(from, _)| *from <= self.now);
                let room = size.expect("its size at the start").1;
                let used = memory.worker * self.gateway.processes() as u64;
                self.gateway.memory(
                    now,
                    MemoryView {
                        worker_cost: memory.worker,
                        available: room.saturating_sub(used),
                        pressure: used > room,
                    },
                );
                self.schedule(memory.every, event);
            }
            Event::Renewal => self.gateway.renew(now),
            Event::MasterLost => {
                self.master += 1;
                let all = self.gateway.master_lost(now);
                for worker in all {
                    self.die(worker);
                }
                self.schedule(50_000, Event::MasterUp);
            }
            Event::MasterUp => self.gateway.ready(now),
            Event::Change(index) => self.gateway.set(now, self.plan.changes[index].1),
        }
    }

    fn arrive(&mut self, load: usize) {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        let script = &self.plan.loads[load];
        let (turns, is_constant) = (script.turns.max(1), script.is_constant);
        let is_deadly = script.is_deadly;
        self.outcome.of_loads.entry(load).or_default().0 += 1;
        let mut time = |mean: u64| match is_constant {
            true => mean / turns,
            false => self.random.around(mean) / turns,
        };
        let client = Client {
            load,
            arrived: self.now,
            turns_left: turns,
            cpu: time(script.cpu),
            io: time(script.io),
            dies: is_deadly
                || self.random.chance(self.plan.death_chance) && self.now < self.plan.calm_from,
        };
        self.clients.insert(request, client);
        match self.gateway.admit(Micros(self.now), request) {
            Admission::Run(worker) => self.on_start(Some(Assignment { request, worker })),
            Admission::Wait { .. } => {
                let limit = self.plan.limits.timeout.0;
                self.schedule(limit, Event::Expire);
            }
            Admission::Shed(_) => self.on_end(request),
        }
    }

    fn on_start(&mut self, assignment: Option<Assignment>) {
        let Some(Assignment { request, worker }) = assignment else {
            return;
        };
        *self.lives.get_mut(&worker).expect("it is up") += 1;
        let waited = self.now - self.clients[&request].arrived;
        self.outcome.waits.push((self.now, waited));
        self.turn(worker);
    }

    /// A script computes, or has ended.
    fn turn(&mut self, worker: WorkerId) {
        let request = self.gateway.pool.running(worker).expect("it works");
        let client = self.clients.get_mut(&request).expect("a client");
        if client.turns_left == 0 {
            return self.finish(worker, request);
        }
        client.turns_left -= 1;
        let cpu = client.cpu;
        self.processors.compute(self.now, worker, cpu);
        self.watch_processors();
    }

    /// A script waits for its database.
    fn wait(&mut self, worker: WorkerId) {
        let request = self.gateway.pool.running(worker).expect("it works");
        let io = self.clients[&request].io;
        let life = self.lives.get_mut(&worker).expect("it is up");
        *life += 1;
        let life = *life;
        self.schedule(io, Event::Waited(worker, life));
    }

    fn finish(&mut self, worker: WorkerId, request: RequestId) {
        if self.clients[&request].dies {
            return self.die(worker);
        }
        *self.lives.get_mut(&worker).expect("it is up") += 1;
        self.outcome.answers.push(self.now);
        let load = self.clients[&request].load;
        self.outcome.of_loads.entry(load).or_default().1 += 1;
        let next = self
            .gateway
            .release(Micros(self.now), worker, self.plan.max_requests);
        self.on_end(request);
        self.on_start(next);
    }

    fn die(&mut self, worker: WorkerId) {
        *self.lives.get_mut(&worker).expect("it was up") += 1;
        self.processors.stop(self.now, worker);
        self.watch_processors();
        let Death { lost, started } = self.gateway.died(Micros(self.now), worker);
        if let Some(request) = lost {
            self.on_end(request);
        }
        for assignment in started {
            self.on_start(Some(assignment));
        }
    }

    /// A client has its answer, or will not get one.
    fn on_end(&mut self, request: RequestId) {
        let client = self.clients.remove(&request).expect("a client");
        if let Clients::Closed(_) = self.plan.loads[client.load].clients {
            // The client sends the next request on the same connection. A refused client comes back later.
            let is_answered = self.outcome.answers.last() == Some(&self.now);
            let pause = if is_answered { 100 } else { 100_000 };
            self.schedule(pause, Event::Arrival(client.load));
        }
    }

    /// Looks at the processors as a gateway does: a tenth of a second after the last look, if the scaler needs it.
    fn look_at_processors(&mut self) {
        let span = self.now - self.looked[0];
        if span < 100_000 || !self.gateway.scaler.wants_processors() {
            return;
        }
        self.processors.pass(self.now);
        self.gateway.pool.pass(Micros(self.now));
        let stats = self.gateway.pool.stats();
        let Processors { used, wanted, .. } = self.processors;
        let now = [self.now, used, wanted, stats.busy_time.0];
        let before = std::mem::replace(&mut self.looked, now);
        let [_, used, wanted, busy] = [0, 1, 2, 3].map(|of| now[of] - before[of]);
        if span >= 400_000 || busy < span {
            return;
        }
        let all = self.plan.neighbours.count + self.processors.work.len() as u64;
        // The mean of all.
        let worker = Worked {
            cpu: used * span / busy,
            delayed: (self.plan.known == Known::Delays).then_some((wanted - used) * span / busy),
        };
        let surroundings = Surroundings {
            span,
            cores: self.plan.cores as usize,
            busy: ((busy + span / 2) / span) as usize,
            crowd: Some((all * 1_000 / self.plan.cores) as u32),
            stolen: 0,
        };
        let found = ProcessorUse::of(&[worker], &surroundings).expect("a worker");
        self.gateway.scaler.processors(Micros(self.now), found);
    }

    fn follow_orders(&mut self) {
        if self.plan.known != Known::Nothing {
            self.look_at_processors();
        }
        let now = Micros(self.now);
        let Look {
            start,
            leaving,
            refused,
        } = self.gateway.look(now);
        for request in refused {
            self.on_end(request);
        }
        if start > 0 {
            self.outcome.starts.push((self.now, start));
        }
        for _ in 0..start {
            let (from, until) = self.plan.no_forks;
            let never = (from..until).contains(&self.now);
            let chance = self.random.chance(self.plan.fork_failure_chance);
            match never || chance && self.now < self.plan.calm_from {
                true => self.schedule(1_000, Event::ForkFailed(self.master)),
                false => self.schedule(self.plan.fork, Event::Forked(self.master)),
            }
        }
        for worker in leaving {
            let life = self.lives.get_mut(&worker).expect("it was up");
            *life += 1;
            let life = *life;
            self.outcome.withdrawals.push(self.now);
            self.schedule(2_000, Event::Ended(worker, life));
        }
        self.gateway.pool.workers_soon(self.gateway.scaler.soon());
        let told = self.gateway.scaler.decisions();
        let now = self.now;
        self.outcome.decisions.extend(told.map(|told| (now, told)));
        let up = self.gateway.pool.stats().workers;
        if self.outcome.workers.last().is_none_or(|last| last.1 != up) {
            self.outcome.workers.push((self.now, up));
        }
        if let Some(at) = self.gateway.scaler.next_look()
            && self.timer_at.is_none_or(|timer| timer > at.0)
        {
            assert!(at.0 > self.now, "a timer that is due already");
            self.timer_at = Some(at.0);
            self.schedule(at.0 - self.now, Event::Look);
        }
    }

    fn watch_processors(&mut self) {
        if let Some((after, version)) = self.processors.next(self.now) {
            self.schedule(after, Event::Computed(version));
        }
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.scheduled += 1;
        let at = self.now + after;
        self.events.push(Reverse((at, self.scheduled, event)));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}", self.plan);
            eprintln!("the last decisions before the failure (time in µs):");
            let told = &self.outcome.decisions;
            for (at, decision) in &told[told.len().saturating_sub(20)..] {
                eprintln!("{at:>12} {decision:?}");
            }
            eprintln!(
                "after that, at {}: {:?}",
                self.now,
                self.gateway.pool.stats()
            );
            eprintln!("{:?}", self.gateway.scaler.figures());
            eprintln!("replay with {}={}", crate::simulation::SEED, self.seed);
        }
    }
}

impl Processors {
    fn compute(&mut self, now: u64, worker: WorkerId, time: u64) {
        self.pass(now);
        self.work.insert((self.got + time * PART, worker));
        self.version += 1;
    }

    fn stop(&mut self, now: u64, worker: WorkerId) {
        self.pass(now);
        self.work.retain(|(_, other)| *other != worker);
        self.version += 1;
    }

    /// Returns one worker that is done by now.
    fn done(&mut self, now: u64) -> Option<WorkerId> {
        self.pass(now);
        self.version += 1;
        let first = *self.work.first()?;
        if first.0 > self.got {
            return None;
        }
        self.work.pop_first();
        Some(first.1)
    }

    /// When the next worker is done, if nothing changes.
    fn next(&self, now: u64) -> Option<(u64, u64)> {
        let missing = self.work.first()?.0.saturating_sub(self.got);
        let after = (missing * self.sharing()).div_ceil(self.count * PART * PART);
        Some((after + self.at - now, self.version))
    }

    fn pass(&mut self, now: u64) {
        let (time, workers) = (now - self.at, self.work.len() as u64);
        self.got += time * PART * PART * self.count / self.sharing();
        self.used += time * workers * PART * self.count / self.sharing();
        self.wanted += time * workers;
        self.at = now;
    }

    /// The weight of all who compute, or of as many as there are processors.
    fn sharing(&self) -> u64 {
        (self.work.len() as u64 * PART + self.others).max(self.count * PART)
    }
}

/// The weight of a worker, and the parts of a microsecond.
const PART: u64 = 1_024;
