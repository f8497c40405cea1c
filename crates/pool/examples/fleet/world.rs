//! A fleet on a virtual clock: nodes with one pool each, gateways that choose between the nodes, and clients with
//! limited patience.
//!
//! [`weir_pool::Pool`] decides for the nodes, [`weir_pool::Balancer`] for the gateways. The rest is invented: when
//! clients come, how long scripts take, and how clients react to a refusal. The same seed gives the same run.
//!
//! [`Rules::Backlog`] replaces the pool by a queue without a limit or a deadline. Like the backlog of a listening
//! socket, it does not notice that a client has left.

use std::collections::VecDeque;

use weir_pool::{
    Admission, Algorithm, Assignment, Balancer, Balancing, Capacity, Chosen, Finish, Limits,
    Micros, NewServer, Pool, Refused, RequestId, Ticket, WorkerId,
};

use crate::calendar::Calendar;

/// What decides on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// weir's pool with the default options.
    Pool,
    /// An unlimited queue.
    Backlog,
}

/// The plan of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// What decides on the nodes.
    pub(crate) rules: Rules,
    /// How many nodes there are.
    pub(crate) nodes: usize,
    /// Workers of each node.
    pub(crate) workers: usize,
    /// Gateways in front of the nodes.
    pub(crate) gateways: usize,
    /// First requests a second, for each node of the plan. Repeated requests are not included.
    pub(crate) rate: f64,
    /// Length of the run in seconds.
    pub(crate) seconds: u64,
    /// The losses of nodes.
    pub(crate) losses: Vec<Loss>,
    /// The rate is multiplied by the first number, from the first second to the second one.
    pub(crate) crowd: (f64, u64, u64),
}

/// Some nodes die. They come back later, with an empty queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loss {
    /// The number of the first of these nodes.
    pub(crate) first: usize,
    /// How many nodes.
    pub(crate) nodes: usize,
    /// Begin of the loss, in seconds.
    pub(crate) from: u64,
    /// End of the loss, in seconds.
    pub(crate) until: u64,
}

/// One second of the run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Second {
    /// Requests that came, including repeated ones.
    pub(crate) asked: u64,
    /// Answers to clients who still waited.
    pub(crate) good: u64,
    /// Refusals.
    pub(crate) refused: u64,
    /// Clients who left while they waited.
    pub(crate) gave_up: u64,
    /// Requests that were lost with a node and that no other node answered.
    pub(crate) lost: u64,
    /// How many answers the living nodes could give.
    pub(crate) capacity: u64,
    /// Times of the good answers.
    pub(crate) waits: Waits,
    /// Times from a request to its refusal.
    pub(crate) refusals: Waits,
}

/// A histogram of times. The error of a time is at most 3 %.
#[derive(Debug, Clone)]
pub(crate) struct Waits {
    counts: Vec<u32>,
    total: u64,
}

/// The run of a plan.
pub(crate) struct Fleet {
    plan: Plan,
    random: Random,
    now: Micros,
    calendar: Calendar<Event>,
    nodes: Vec<Node>,
    gateways: Vec<Balancer>,
    calls: Vec<Call>,
    unused: Vec<u32>,
    /// When each client gives up, by patience.
    patience: [VecDeque<(Micros, u32, u32)>; PATIENCE.len()],
    refused: Vec<Refused>,
    course: Vec<Second>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A worker of a node is done; the second number says which life of the node it was.
    Done(u32, u32, u32),
    /// A client retries; the number is its attempt.
    Again(u8),
    /// Nodes die or come back: the loss's number.
    Lose(u32),
    Return(u32),
    /// The nodes' timers.
    Tick,
}

struct Node {
    desk: Desk,
    life: u32,
    up: bool,
    /// The call of each worker.
    running: Vec<u32>,
}

/// What receives a node's requests.
enum Desk {
    Pool(Box<Pool>),
    Backlog {
        waiting: VecDeque<u32>,
        free: Vec<u32>,
    },
}

/// A request. Its client waits for it, or has waited.
struct Call {
    /// Counts how often this place was used.
    number: u32,
    asked_at: Micros,
    node: u32,
    gateway: u32,
    chosen: Option<Chosen>,
    attempt: u8,
    wanted: bool,
    running: bool,
    moved: bool,
    in_use: bool,
}

impl Fleet {
    /// The state before the first second.
    pub(crate) fn new(plan: Plan, seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let gateways = (0..plan.gateways).map(|_| {
            let mut balancer = Balancer::new(balancing(&plan), random.next());
            for node in 0..plan.nodes {
                balancer.add(
                    Micros::ZERO,
                    NewServer {
                        key: weir_pool::mixed(node as u64),
                        weight: 100,
                        backup: false,
                        cold: false,
                    },
                );
            }
            balancer
        });
        let mut fleet = Self {
            gateways: gateways.collect(),
            nodes: (0..plan.nodes)
                .map(|_| Node::new(&plan, Micros::ZERO))
                .collect(),
            course: vec![Second::default(); plan.seconds as usize],
            now: Micros::ZERO,
            calendar: Calendar::new(),
            calls: Vec::new(),
            unused: Vec::new(),
            patience: Default::default(),
            refused: Vec::new(),
            random,
            plan,
        };
        fleet.calendar.put(TICK, Event::Tick);
        fleet
    }

    /// Runs the plan. Returns one entry for each second.
    pub(crate) fn run(mut self) -> Vec<Second> {
        let end = Micros::from_secs(self.plan.seconds);
        for second in 0..self.plan.seconds {
            self.plan_second(second);
            let until = Micros::from_secs(second + 1);
            let mut next = self.now.0 as f64 + self.pause(second);
            loop {
                let arrival = Micros(next as u64).min(until);
                self.catch_up(arrival);
                self.now = arrival;
                if arrival >= until {
                    break;
                }
                self.ask(0);
                next += self.pause(second);
            }
            let up = self.nodes.iter().filter(|node| node.up).count();
            self.course[second as usize].capacity = (up as f64 * self.plan.capacity()) as u64;
        }
        debug_assert!(self.now == end);
        self.course
    }

    /// Plans the losses and returns of this second.
    fn plan_second(&mut self, second: u64) {
        let now = self.now;
        for (number, loss) in self.plan.losses.iter().enumerate() {
            if loss.from == second {
                self.calendar.put(now, Event::Lose(number as u32));
            }
            if loss.until == second {
                self.calendar.put(now, Event::Return(number as u32));
            }
        }
    }

    /// Microseconds until the next client comes.
    fn pause(&mut self, second: u64) -> f64 {
        let (times, from, until) = self.plan.crowd;
        let crowd = if (from..until).contains(&second) {
            times
        } else {
            1.0
        };
        self.random
            .exponential(1e6 / (self.plan.rate * self.plan.nodes as f64 * crowd))
    }

    /// Processes all events before `until`.
    fn catch_up(&mut self, until: Micros) {
        while let Some((at, event)) = self.calendar.next_before(until) {
            self.leave_until(at);
            self.now = at;
            match event {
                Event::Done(node, life, worker) => self.done(node, life, worker),
                Event::Again(attempt) => self.ask(attempt),
                Event::Lose(number) => self.lose(self.plan.losses[number as usize]),
                Event::Return(number) => self.bring_back(self.plan.losses[number as usize]),
                Event::Tick => self.tick(),
            }
        }
        self.leave_until(until);
    }

    /// Removes the clients whose patience ends before `until`.
    fn leave_until(&mut self, until: Micros) {
        for class in 0..PATIENCE.len() {
            while let Some((at, call, number)) = self.patience[class].front().copied() {
                if at >= until {
                    break;
                }
                self.patience[class].pop_front();
                self.now = self.now.max(at);
                self.give_up(call, number);
            }
        }
    }

    /// A client sends a request; the number is its attempt.
    fn ask(&mut self, attempt: u8) {
        self.second().asked += 1;
        let call = match self.unused.pop() {
            Some(call) => call,
            None => {
                self.calls.push(Call {
                    number: 0,
                    asked_at: Micros::ZERO,
                    node: 0,
                    gateway: 0,
                    chosen: None,
                    attempt: 0,
                    wanted: false,
                    running: false,
                    moved: false,
                    in_use: false,
                });
                self.calls.len() as u32 - 1
            }
        };
        let gateway = (self.random.next() % self.plan.gateways as u64) as u32;
        let class = (self.random.next() % PATIENCE.len() as u64) as usize;
        let now = self.now;
        let place = &mut self.calls[call as usize];
        *place = Call {
            number: place.number.wrapping_add(1),
            asked_at: now,
            node: 0,
            gateway,
            chosen: None,
            attempt,
            wanted: true,
            running: false,
            moved: false,
            in_use: true,
        };
        self.patience[class].push_back((now.after(PATIENCE[class]), call, place.number));
        self.send(call);
    }

    /// The gateway chooses a node. A dead node refuses connections.
    fn send(&mut self, call: u32) {
        let mut tried = Vec::new();
        while tried.len() <= RETRIES {
            let gateway = &mut self.gateways[self.calls[call as usize].gateway as usize];
            let Some(chosen) = gateway.choose(self.now, None, &tried) else {
                break;
            };
            let node = chosen.server.0;
            if self.nodes[node as usize].up {
                let place = &mut self.calls[call as usize];
                place.chosen = Some(chosen);
                place.node = node;
                return self.arrive(node, call);
            }
            let _ = gateway.finish(self.now, chosen, Finish::Refused);
            tried.push(chosen.server);
        }
        self.second().lost += 1;
        self.end(call, None);
    }

    fn arrive(&mut self, node: u32, call: u32) {
        let now = self.now;
        let client = weir_pool::mixed(self.random.next());
        match &mut self.nodes[node as usize].desk {
            Desk::Pool(pool) => {
                let ticket = Ticket {
                    client,
                    ..Ticket::new(RequestId(u64::from(call)), 0)
                };
                match pool.admit(now, &ticket) {
                    Admission::Run(worker) => self.start(node, worker.0, call),
                    Admission::Wait { pushed_out, .. } => {
                        if let Some(other) = pushed_out {
                            self.refuse(other.0 as u32);
                        }
                    }
                    Admission::Shed(_) => self.refuse(call),
                }
            }
            Desk::Backlog { waiting, free } => match free.pop() {
                Some(worker) => self.start(node, worker, call),
                None => waiting.push_back(call),
            },
        }
    }

    fn start(&mut self, node: u32, worker: u32, call: u32) {
        let time = SHORTEST.0 as f64 + self.random.exponential((MEAN.0 - SHORTEST.0) as f64);
        self.calls[call as usize].running = true;
        let place = &mut self.nodes[node as usize];
        place.running[worker as usize] = call;
        let done = Event::Done(node, place.life, worker);
        let at = self.now.after(Micros((time as u64).min(LONGEST.0)));
        self.calendar.put(at, done);
    }

    fn done(&mut self, node: u32, life: u32, worker: u32) {
        let now = self.now;
        let place = &mut self.nodes[node as usize];
        if place.life != life {
            return;
        }
        let call = std::mem::replace(&mut place.running[worker as usize], NOBODY);
        let next = match &mut place.desk {
            Desk::Pool(pool) => {
                let released = pool.release(now, WorkerId(worker));
                released
                    .next
                    .map(|next| (next.worker.0, next.request.0 as u32))
            }
            Desk::Backlog { waiting, free } => match waiting.pop_front() {
                Some(next) => Some((worker, next)),
                None => {
                    free.push(worker);
                    None
                }
            },
        };
        let answered = &self.calls[call as usize];
        if answered.wanted {
            let waited = now.since(answered.asked_at);
            let second = self.second();
            second.good += 1;
            second.waits.add(waited);
        }
        self.end(call, Some(Finish::Answered));
        if let Some((worker, next)) = next {
            self.start(node, worker, next);
        }
    }

    /// Refuses a call. The refusal says when to try again, and some clients do.
    fn refuse(&mut self, call: u32) {
        let now = self.now;
        let (node, attempt, asked_at) = {
            let call = &self.calls[call as usize];
            (call.node, call.attempt, call.asked_at)
        };
        let second = self.second();
        second.refused += 1;
        second.refusals.add(now.since(asked_at));
        let after = match &mut self.nodes[node as usize].desk {
            Desk::Pool(pool) => pool.retry_after(now),
            Desk::Backlog { .. } => Micros::ZERO,
        };
        self.end(call, Some(Finish::Answered));
        // Whole seconds, as in the header, with the precision of people and programs.
        let seconds = after.0.div_ceil(1_000_000).clamp(1, 30) * 1_000_000;
        let pause = seconds + self.random.next() % 1_000_000;
        self.perhaps_again(attempt, Micros(pause));
    }

    /// The client's patience is over.
    fn give_up(&mut self, call: u32, number: u32) {
        let now = self.now;
        let place = &mut self.calls[call as usize];
        if place.number != number || !place.wanted {
            return;
        }
        place.wanted = false;
        let (node, running, attempt, asked_at) =
            (place.node, place.running, place.attempt, place.asked_at);
        self.second().gave_up += 1;
        if let Desk::Pool(pool) = &mut self.nodes[node as usize].desk {
            if running {
                pool.client_left(now, now.since(asked_at));
            } else if pool.leave(now, RequestId(u64::from(call))) {
                self.end(call, Some(Finish::Unknown));
            }
        }
        // A client who gives up asks again soon, or never.
        let pause = self.random.next() % 500_000;
        self.perhaps_again(attempt, Micros(pause));
    }

    fn perhaps_again(&mut self, attempt: u8, pause: Micros) {
        if attempt < ATTEMPTS && self.random.next() % 100 < ASK_AGAIN {
            let at = self.now.after(pause);
            if at < Micros::from_secs(self.plan.seconds) {
                self.calendar.put(at, Event::Again(attempt + 1));
            }
        }
    }

    /// Nodes die with all their requests. A request without an answer goes to another node, once.
    fn lose(&mut self, loss: Loss) {
        for node in loss.first..loss.first + loss.nodes {
            // The node comes back empty.
            let life = self.nodes[node].life + 1;
            self.nodes[node] = Node::new(&self.plan, self.now);
            (self.nodes[node].life, self.nodes[node].up) = (life, false);
            let calls = 0..self.calls.len();
            let there: Vec<u32> = calls
                .filter(|&call| self.calls[call].in_use && self.calls[call].node == node as u32)
                .map(|call| call as u32)
                .collect();
            for call in there {
                let place = &mut self.calls[call as usize];
                let Some(chosen) = place.chosen.take() else {
                    continue;
                };
                let _ =
                    self.gateways[place.gateway as usize].finish(self.now, chosen, Finish::Failed);
                place.running = false;
                if place.wanted && !place.moved {
                    place.moved = true;
                    self.send(call);
                } else {
                    self.second().lost += u64::from(self.calls[call as usize].wanted);
                    self.end(call, None);
                }
            }
        }
    }

    fn bring_back(&mut self, loss: Loss) {
        for node in loss.first..loss.first + loss.nodes {
            self.nodes[node].up = true;
        }
    }

    /// Refuses the requests whose time in a queue is over.
    fn tick(&mut self) {
        let now = self.now;
        let mut refused = std::mem::take(&mut self.refused);
        for node in 0..self.nodes.len() {
            if let Desk::Pool(pool) = &mut self.nodes[node].desk
                && pool.next_deadline().is_some_and(|deadline| deadline <= now)
            {
                pool.expire(now, &mut refused);
                for refused in refused.drain(..) {
                    self.refuse(refused.request.0 as u32);
                }
            }
        }
        self.refused = refused;
        self.calendar.put(now.after(TICK), Event::Tick);
    }

    /// The call is over for its gateway, and its place is free.
    fn end(&mut self, call: u32, finish: Option<Finish>) {
        let place = &mut self.calls[call as usize];
        if let (Some(chosen), Some(finish)) = (place.chosen.take(), finish) {
            let _ = self.gateways[place.gateway as usize].finish(self.now, chosen, finish);
        }
        (place.wanted, place.in_use) = (false, false);
        self.unused.push(call);
    }

    fn second(&mut self) -> &mut Second {
        let second = (self.now.0 / 1_000_000).min(self.plan.seconds - 1);
        &mut self.course[second as usize]
    }
}

impl Plan {
    /// How many answers a second one node can give.
    pub(crate) fn capacity(&self) -> f64 {
        self.workers as f64 * 1e6 / MEAN.0 as f64
    }
}

impl Node {
    fn new(plan: &Plan, now: Micros) -> Self {
        let desk = match plan.rules {
            Rules::Pool => {
                let mut pool = Pool::new(Limits {
                    maxconn: plan.workers,
                    ..Limits::USUAL
                });
                for worker in 0..plan.workers {
                    let first: Option<Assignment> = pool.worker_up(now, WorkerId(worker as u32), 0);
                    assert!(first.is_none(), "nobody waits yet");
                }
                Desk::Pool(Box::new(pool))
            }
            Rules::Backlog => Desk::Backlog {
                waiting: VecDeque::new(),
                free: (0..plan.workers as u32).collect(),
            },
        };
        Self {
            desk,
            life: 0,
            up: true,
            running: vec![NOBODY; plan.workers],
        }
    }
}

impl Waits {
    fn add(&mut self, wait: Micros) {
        self.counts[slot(wait.0)] += 1;
        self.total += 1;
    }

    /// The wait that this share of all waits did not exceed. `None` if there were no waits.
    pub(crate) fn quantile(&self, share: f64) -> Option<Micros> {
        let mut left = (self.total as f64 * share).ceil().max(1.0) as u64;
        let found = self.counts.iter().position(|&count| {
            left = left.saturating_sub(u64::from(count));
            left == 0
        });
        found
            .filter(|_| self.total > 0)
            .map(|slot| Micros(value(slot)))
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            counts: vec![0; slot(u64::from(u32::MAX)) + 1],
            total: 0,
        }
    }
}

/// 32 slots for each doubling.
fn slot(micros: u64) -> usize {
    let micros = micros.clamp(32, u64::from(u32::MAX));
    let power = 63 - micros.leading_zeros() as u64;
    ((power - 5) * 32 + (micros >> (power - 5)) - 32) as usize
}

fn value(slot: usize) -> u64 {
    let (power, rest) = (slot as u64 / 32, slot as u64 % 32);
    (32 + rest) << power
}

/// Random numbers; the same seed gives the same numbers (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        let share = (self.next() as f64 + 1.0) / (1_u64 << 53) as f64;
        -share.ln() * mean
    }
}

fn balancing(plan: &Plan) -> Balancing {
    Balancing {
        algorithm: Algorithm::Random,
        capacity: Capacity::Shared(plan.nodes * 100_000),
        max_fails: 3,
        fail_timeout: Micros::from_secs(10),
        checked: false,
        rise: 2,
        fall: 3,
        slowstart: Micros::ZERO,
        probe_timeout: Micros::from_secs(10),
    }
}

/// The time of a script: minimum, mean, maximum.
const SHORTEST: Micros = Micros::from_millis(4);
const MEAN: Micros = Micros::from_millis(20);
const LONGEST: Micros = Micros::from_secs(5);
/// How long clients wait. A third of them has each value.
const PATIENCE: [Micros; 3] = [
    Micros::from_secs(1),
    Micros::from_secs(2),
    Micros::from_secs(4),
];
/// How many of a hundred clients without an answer ask again, and the maximum number of attempts.
const ASK_AGAIN: u64 = 50;
const ATTEMPTS: u8 = 3;
/// How many other nodes a gateway tries.
const RETRIES: usize = 3;
/// The precision of the nodes' timers.
const TICK: Micros = Micros::from_millis(10);
const NOBODY: u32 = u32::MAX;
