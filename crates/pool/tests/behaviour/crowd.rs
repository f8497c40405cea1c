//! Crowds of clients before a pool, with a virtual clock: who gets an answer in time, how long clients wait, and who is
//! refused. The same seed gives the same events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use weir_pool::{
    Admission, Assignment, Limits, Micros, Pool, Refused, RequestId, ShedReason, Stats, Ticket,
    WorkerId,
};

use crate::random::Random;

/// The plan of a run. Times are microseconds.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) workers: u32,
    pub(crate) limits: Limits,
    pub(crate) groups: Vec<Group>,
    /// Between these two times, this many workers finish no request.
    pub(crate) stuck: (u64, u64, u32),
    /// After this time no client comes.
    pub(crate) until: u64,
}

/// Clients of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) arrive: Arrive,
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// How long a script takes.
    pub(crate) script: u64,
    pub(crate) spread: Spread,
    /// A client disconnects after this time; 0: never.
    pub(crate) patience: u64,
    /// The deadline that the client tells the pool; 0: none.
    pub(crate) deadline: u64,
    pub(crate) priority: i16,
    pub(crate) who: Who,
    /// Its scripts wait for one lock, like the scripts of one session. A script holds the lock while it runs.
    pub(crate) has_lock: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Arrive {
    /// This many clients. Each sends its next request when it has its answer, or a second after a refusal.
    Closed(u64),
    /// One client per this many microseconds, at random or at equal distances.
    Random(u64),
    Even(u64),
    /// This many clients at once.
    Burst(u64),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Spread {
    Constant,
    Exponential,
    /// One in a hundred scripts takes fifty times as long.
    HeavyTail,
    /// The first script of each worker takes this many times as long.
    Cold(u64),
}

/// Which client a request belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    Nobody,
    One(u64),
    /// Each request comes from a different client.
    Each,
    /// A session of a client.
    Session(u64, u64),
    /// Each request is of a different session of this client.
    EachOf(u64),
}

/// The results of a group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// For each answer that its client waited for: when it came, the wait for a worker, and the wait for the answer.
    pub(crate) answers: Vec<(u64, u64, u64)>,
    /// When answers came that no client waited for.
    pub(crate) wasted: Vec<u64>,
    /// For each refusal: when it came, after how long, and why.
    pub(crate) refused: Vec<(u64, u64, ShedReason)>,
    /// When each refused client was told to try again.
    pub(crate) told: Vec<u64>,
    /// When clients left while they waited.
    pub(crate) left: Vec<u64>,
    pub(crate) came: u64,
}

impl Outcome {
    /// Answers in that time that a client still waited for.
    pub(crate) fn answered(&self, from: u64, until: u64) -> u64 {
        let answers = self.answers.iter().map(|(at, ..)| at);
        answers.filter(|at| (from..until).contains(at)).count() as u64
    }

    /// The longest wait for a worker among the requests answered in that time.
    pub(crate) fn longest_wait(&self, from: u64, until: u64) -> u64 {
        let answers = self.answers.iter();
        let inside = answers.filter(|(at, ..)| (from..until).contains(at));
        inside.map(|(_, wait, _)| *wait).max().unwrap_or(0)
    }

    pub(crate) fn refused_for(&self, reason: ShedReason) -> usize {
        let refused = self.refused.iter();
        refused.filter(|(.., why)| *why == reason).count()
    }
}

impl Plan {
    /// A pool without clients.
    pub(crate) fn calm(workers: u32) -> Self {
        Self {
            workers,
            limits: Limits {
                maxconn: workers as usize,
                ..Limits::USUAL
            },
            groups: Vec::new(),
            stuck: (0, 0, 0),
            until: u64::MAX,
        }
    }
}

impl Group {
    /// Clients with equal scripts and no timeout, during the whole run.
    pub(crate) fn new(arrive: Arrive, script: u64) -> Self {
        Self {
            arrive,
            from: 0,
            until: u64::MAX,
            script,
            spread: Spread::Constant,
            patience: 0,
            deadline: 0,
            priority: 0,
            who: Who::Each,
            has_lock: false,
        }
    }
}

/// Sends the crowds to the pool. Calls `each_second` with the pool after each second.
pub(crate) fn run_watched(
    plan: &Plan,
    seed: u64,
    mut each_second: impl FnMut(u64, &Stats),
) -> (Vec<Outcome>, Stats) {
    let mut world = World::new(plan.clone(), seed);
    let mut second = 1_000_000;
    while let Some(Reverse((at, _, event))) = world.events.pop() {
        while at >= second {
            world.pool.pass(Micros(second));
            each_second(second, &world.pool.stats());
            assert_eq!(world.pool.check(), Ok(()));
            second += 1_000_000;
        }
        if at > plan.until {
            break;
        }
        world.now = at;
        world.happen(event);
        world.watch_deadlines();
    }
    (world.outcomes, world.pool.stats())
}

pub(crate) fn run(plan: &Plan, seed: u64) -> (Vec<Outcome>, Stats) {
    run_watched(plan, seed, |_, _| ())
}

struct World {
    plan: Plan,
    random: Random,
    pool: Pool,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    timer_at: u64,
    requests: BTreeMap<RequestId, Request>,
    next_request: u64,
    served: Vec<u64>,
    /// For each group: when its lock is free.
    lock_free_at: Vec<u64>,
    outcomes: Vec<Outcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    /// A client of a closed group sends its next request.
    Again(usize),
    Done(WorkerId),
    Leaves(RequestId),
    Deadline,
}

#[derive(Debug)]
struct Request {
    group: usize,
    came: u64,
    started: u64,
    is_gone: bool,
}

impl World {
    fn new(plan: Plan, seed: u64) -> Self {
        let mut world = Self {
            random: Random::new(seed),
            pool: Pool::new(plan.limits),
            now: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            timer_at: u64::MAX,
            requests: BTreeMap::new(),
            next_request: 0,
            served: vec![0; plan.workers as usize],
            lock_free_at: vec![0; plan.groups.len()],
            outcomes: vec![Outcome::default(); plan.groups.len()],
            plan,
        };
        for worker in 0..world.plan.workers {
            world.pool.worker_up(Micros(0), WorkerId(worker), 0);
        }
        for index in 0..world.plan.groups.len() {
            let group = world.plan.groups[index];
            match group.arrive {
                Arrive::Closed(count) | Arrive::Burst(count) => {
                    for _ in 0..count {
                        world.schedule(group.from, Event::Again(index));
                    }
                }
                Arrive::Random(_) | Arrive::Even(_) => {
                    world.schedule(group.from, Event::Arrival(index));
                }
            }
        }
        world
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(index) => {
                let group = self.plan.groups[index];
                let pause = match group.arrive {
                    Arrive::Random(every) => self.random.around(every),
                    Arrive::Even(every) => every,
                    Arrive::Closed(_) | Arrive::Burst(_) => unreachable!("it comes again"),
                };
                if self.now < group.until {
                    self.schedule(pause, event);
                    self.arrive(index);
                }
            }
            Event::Again(index) => {
                if self.now < self.plan.groups[index].until {
                    self.arrive(index);
                }
            }
            Event::Done(worker) => self.done(worker),
            Event::Leaves(request) => {
                let Some(known) = self.requests.get_mut(&request) else {
                    return;
                };
                let (group, came) = (known.group, known.came);
                if self.pool.leave(Micros(self.now), request) {
                    self.requests.remove(&request);
                    self.outcomes[group].left.push(self.now);
                } else {
                    known.is_gone = true;
                    let waited = Micros(self.now - came);
                    self.pool.client_left(Micros(self.now), waited);
                }
                self.again(group, 1_000);
            }
            Event::Deadline => {
                self.timer_at = u64::MAX;
                let mut expired = Vec::new();
                self.pool.expire(Micros(self.now), &mut expired);
                for Refused { request, reason } in expired {
                    self.refuse(request, reason);
                }
            }
        }
    }

    fn arrive(&mut self, index: usize) {
        let group = self.plan.groups[index];
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.outcomes[index].came += 1;
        self.requests.insert(
            request,
            Request {
                group: index,
                came: self.now,
                started: 0,
                is_gone: false,
            },
        );
        if group.patience > 0 {
            self.schedule(group.patience, Event::Leaves(request));
        }
        let ticket = Ticket {
            deadline: match group.deadline {
                0 => Micros::MAX,
                deadline => Micros(self.now + deadline),
            },
            priority: group.priority,
            client: match group.who {
                Who::Nobody => 0,
                Who::One(client) | Who::Session(client, _) | Who::EachOf(client) => client,
                Who::Each => self.random.next(),
            },
            session: match group.who {
                Who::Session(_, session) => session,
                Who::EachOf(_) => self.random.next(),
                Who::Nobody | Who::One(_) | Who::Each => 0,
            },
            ..Ticket::new(request, 0)
        };
        match self.pool.admit(Micros(self.now), &ticket) {
            Admission::Run(worker) => self.start(Assignment { request, worker }),
            Admission::Shed(reason) => self.refuse(request, reason),
            Admission::Wait { pushed_out, .. } => {
                if let Some(other) = pushed_out {
                    self.refuse(other, ShedReason::PushedOut);
                }
                while let Some(next) = self.pool.dispatch(Micros(self.now)) {
                    self.start(next);
                }
            }
        }
    }

    fn start(&mut self, Assignment { request, worker }: Assignment) {
        let known = self.requests.get_mut(&request).expect("a request");
        known.started = self.now;
        let group = self.plan.groups[known.group];
        let served = &mut self.served[worker.0 as usize];
        *served += 1;
        let time = match group.spread {
            Spread::Constant => group.script,
            Spread::Exponential => self.random.around(group.script),
            Spread::HeavyTail if self.random.chance(10) => group.script * 50,
            Spread::Cold(times) if *served == 1 => group.script * times,
            Spread::HeavyTail | Spread::Cold(_) => group.script,
        };
        let time = match group.has_lock {
            true => {
                let free_at = &mut self.lock_free_at[known.group];
                *free_at = self.now.max(*free_at) + time;
                *free_at - self.now
            }
            false => time,
        };
        let (from, until, workers) = self.plan.stuck;
        let is_stuck = worker.0 < workers && (from..until).contains(&(self.now + time));
        let time = if is_stuck { until - self.now } else { time };
        self.schedule(time, Event::Done(worker));
    }

    fn done(&mut self, worker: WorkerId) {
        let request = self.pool.running(worker).expect("it works");
        let known = self.requests.remove(&request).expect("a request");
        let outcome = &mut self.outcomes[known.group];
        match known.is_gone {
            true => outcome.wasted.push(self.now),
            false => {
                let waited = known.started - known.came;
                outcome
                    .answers
                    .push((self.now, waited, self.now - known.came));
                self.again(known.group, 100);
            }
        }
        if let Some(next) = self.pool.release(Micros(self.now), worker).next {
            self.start(next);
        }
    }

    fn refuse(&mut self, request: RequestId, reason: ShedReason) {
        let known = self.requests.remove(&request).expect("a request");
        let waited = self.now - known.came;
        let outcome = &mut self.outcomes[known.group];
        outcome.refused.push((self.now, waited, reason));
        let told = self.pool.retry_after(Micros(self.now)).0;
        outcome.told.push(self.now + told);
        self.again(known.group, 1_000_000);
    }

    fn again(&mut self, group: usize, pause: u64) {
        if let Arrive::Closed(_) = self.plan.groups[group].arrive {
            self.schedule(pause, Event::Again(group));
        }
    }

    fn watch_deadlines(&mut self) {
        if let Some(deadline) = self.pool.next_deadline()
            && deadline.0 < self.timer_at
        {
            self.timer_at = deadline.0;
            let pause = deadline.0.saturating_sub(self.now);
            self.schedule(pause, Event::Deadline);
        }
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.scheduled += 1;
        let at = self.now.saturating_add(after);
        self.events.push(Reverse((at, self.scheduled, event)));
    }
}
