//! A pool and its scaler as a gateway uses them, and a manager that counts the processes. After each step the test
//! compares the promises of [`weir_pool::Scaler`] with what the manager sees.

use std::collections::BTreeMap;

use weir_pool::{
    Admission, Assignment, Exit, Life, Limits, MemoryView, Micros, Mode, Orders, Pool, RequestId,
    Scaler, Scaling, Ticket, WorkerId,
};

pub(crate) struct Scaled {
    pub(crate) pool: Pool,
    pub(crate) scaler: Scaler,
    scaling: Scaling,
    /// Workers that were ordered and are not up yet, as the manager counts them.
    starting: usize,
    processes: BTreeMap<WorkerId, Process>,
    is_ready: bool,
    generation: u32,
    /// There may be more workers than `max_children`, because it was lowered.
    lowered_from: usize,
    /// The rest of the spawn rate, without the first workers and with them.
    tokens: Tokens,
    strict_tokens: Tokens,
    counts: Counts,
    looks: u64,
    /// Workers that have been leaving since the last look.
    leaving: Vec<WorkerId>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    asked: u64,
    spawned: u64,
    failed: u64,
    ended: u64,
    crashed: u64,
}

#[derive(Debug)]
struct Process {
    born: Micros,
    served: u64,
    generation: u32,
    leaves: bool,
    /// The worker leaves because it has served enough requests.
    is_spent: bool,
}

/// The results of a worker's death.
pub(crate) struct Death {
    pub(crate) lost: Option<RequestId>,
    pub(crate) started: Vec<Assignment>,
}

/// The results of a look.
pub(crate) struct Look {
    /// This many workers must be started.
    pub(crate) start: usize,
    /// These workers must be ended.
    pub(crate) leaving: Vec<WorkerId>,
    /// No worker will come for these requests.
    pub(crate) refused: Vec<RequestId>,
}

impl Scaled {
    pub(crate) fn new(limits: Limits, scaling: Scaling) -> Self {
        Self {
            pool: Pool::new(limits),
            scaler: Scaler::new(scaling),
            scaling,
            starting: 0,
            processes: BTreeMap::new(),
            is_ready: false,
            generation: 0,
            lowered_from: 0,
            tokens: Tokens::full(scaling.max_spawn_rate),
            strict_tokens: Tokens::full(scaling.max_spawn_rate),
            counts: Counts::default(),
            looks: 0,
            leaving: Vec::new(),
        }
    }

    /// Processes that are up or starting.
    pub(crate) fn processes(&self) -> usize {
        self.processes.len() + self.starting
    }

    pub(crate) fn is_there(&self, worker: WorkerId) -> bool {
        self.processes.contains_key(&worker)
    }

    pub(crate) fn admit(&mut self, now: Micros, request: RequestId) -> Admission {
        self.pool.admit(now, &Ticket::new(request, 0))
    }

    pub(crate) fn expire(&mut self, now: Micros) -> Vec<RequestId> {
        let mut expired = Vec::new();
        self.pool.expire(now, &mut expired);
        expired.iter().map(|refused| refused.request).collect()
    }

    pub(crate) fn release(
        &mut self,
        now: Micros,
        worker: WorkerId,
        max_requests: u64,
    ) -> Option<Assignment> {
        let process = self.processes.get_mut(&worker).expect("a process");
        process.served += 1;
        if process.served == max_requests {
            process.is_spent = true;
            assert!(!self.pool.retire(now, worker), "it is busy");
        }
        let released = self.pool.release(now, worker);
        if released.leaves {
            assert_ne!(released.next.map(|next| next.worker), Some(worker));
            self.leaves(worker);
        }
        released.next
    }

    pub(crate) fn came(&mut self, now: Micros) -> (WorkerId, Option<Assignment>) {
        self.starting -= 1;
        self.counts.spawned += 1;
        let mut ids = (0..).map(WorkerId);
        let worker = ids.find(|id| !self.processes.contains_key(id)).unwrap();
        self.processes.insert(
            worker,
            Process {
                born: now,
                served: 0,
                generation: self.generation,
                leaves: false,
                is_spent: false,
            },
        );
        let next = self.pool.worker_up(now, worker, 0);
        self.scaler.came(now);
        (worker, next)
    }

    pub(crate) fn start_failed(&mut self, now: Micros, count: usize) {
        self.starting -= count;
        self.counts.failed += count as u64;
        self.scaler.start_failed(now, count);
    }

    /// A worker that was told to end has ended.
    pub(crate) fn ended(&mut self, now: Micros, worker: WorkerId) {
        let process = self.processes.remove(&worker).expect("a process");
        assert!(process.leaves);
        assert_eq!(self.pool.worker_down(now, worker), None, "nothing is lost");
        self.counts.ended += 1;
        if process.is_spent {
            self.tokens.exempt += 1;
            return self.scaler.exited(now, Exit::Spent);
        }
        self.scaler.exited(now, Exit::Withdrawn);
    }

    pub(crate) fn died(&mut self, now: Micros, worker: WorkerId) -> Death {
        let process = self.processes.remove(&worker).expect("a process");
        let lost = self.pool.worker_down(now, worker);
        self.counts.crashed += 1;
        self.scaler.exited(
            now,
            Exit::Crashed(Life {
                lived: now.since(process.born),
                had_work: lost.is_some() || process.served > 0,
                at_work: lost.is_some(),
            }),
        );
        self.tokens.exempt += usize::from(lost.is_some());
        let mut started = Vec::new();
        while let Some(assignment) = self.pool.dispatch(now) {
            started.push(assignment);
        }
        Death { lost, started }
    }

    pub(crate) fn ready(&mut self, now: Micros) {
        self.is_ready = true;
        self.tokens.exempt += match self.scaling.mode {
            Mode::Static => self.scaling.max_children,
            Mode::Dynamic { start, .. } => start,
            Mode::Auto { start, .. } => start.max(1),
            Mode::OnDemand => 0,
        };
        self.scaler.ready(now, true);
    }

    /// The master is lost, and with it all starting workers. The workers that are up die at once, and are returned.
    pub(crate) fn master_lost(&mut self, now: Micros) -> Vec<WorkerId> {
        self.is_ready = false;
        self.counts.failed += self.starting as u64;
        self.starting = 0;
        self.scaler.ready(now, false);
        self.processes.keys().copied().collect()
    }

    pub(crate) fn memory(&mut self, now: Micros, view: MemoryView) {
        self.scaler.memory(now, view);
    }

    /// A new generation: all present workers must be replaced.
    pub(crate) fn renew(&mut self, now: Micros) {
        self.generation += 1;
        for (worker, process) in &self.processes {
            if !process.leaves {
                self.pool.outdate(now, *worker);
            }
        }
    }

    pub(crate) fn set(&mut self, now: Micros, scaling: Scaling) {
        self.lowered_from = self.processes();
        self.scaling = scaling;
        for tokens in [&mut self.tokens, &mut self.strict_tokens] {
            tokens.take(now, 0);
            tokens.rate = scaling.max_spawn_rate as f64;
            tokens.level = tokens.level.min(tokens.rate);
        }
        self.scaler.set(now, scaling);
    }

    /// Looks, and does what the scaler orders.
    pub(crate) fn look(&mut self, now: Micros) -> Look {
        let orders = self.scaler.look(now, &self.pool);
        if !orders.are_none() {
            self.obey(now, &orders);
        }
        self.check(now, &orders);
        self.pool.worker_expected(self.scaler.expects_worker());
        let mut refused = Vec::new();
        self.pool.drain_waiting(now, &mut refused);
        Look {
            start: orders.start,
            leaving: std::mem::take(&mut self.leaving),
            refused,
        }
    }

    fn obey(&mut self, now: Micros, orders: &Orders) {
        let before = self.pool.stats();
        assert!(orders.stop <= before.free, "{orders:?}");
        assert!(orders.renew <= before.outdated, "{orders:?}");
        let works: Vec<bool> = self.works();
        let mut leaving = Vec::new();
        self.pool.withdraw(now, orders, &mut leaving);
        assert_eq!(works, self.works(), "a request was taken from a worker");
        for worker in leaving {
            self.leaves(worker);
        }
        let after = self.pool.stats();
        let told = orders.stop + orders.retire + orders.renew;
        let done = (after.leaving - before.leaving) + (after.retiring - before.retiring);
        assert_eq!(told, done, "{orders:?}");
        self.starting += orders.start;
        self.counts.asked += orders.start as u64;
        if orders.start > 0 {
            assert!(self.is_ready, "nobody can start them");
            self.tokens.take(now, orders.start);
            self.strict_tokens.take(now, orders.start);
        }
    }

    fn works(&self) -> Vec<bool> {
        let all = self.processes.keys();
        all.map(|worker| self.pool.running(*worker).is_some())
            .collect()
    }

    fn leaves(&mut self, worker: WorkerId) {
        let process = self.processes.get_mut(&worker).expect("a process");
        assert!(!process.leaves, "{worker:?} leaves twice");
        assert_eq!(self.pool.running(worker), None, "{worker:?} works");
        process.leaves = true;
        self.leaving.push(worker);
    }

    fn check(&mut self, now: Micros, orders: &Orders) {
        let (stats, figures) = (self.pool.stats(), self.scaler.figures());
        assert_eq!(figures.starting, self.starting, "starting");
        assert_eq!(stats.workers + stats.leaving, self.processes.len(), "up");
        self.looks += 1;
        if !orders.are_none() || self.looks.is_multiple_of(64) {
            self.check_thoroughly();
        }
        self.lowered_from = self.lowered_from.min(self.processes());
        let most = self.scaling.max_children.max(self.lowered_from);
        assert!(self.processes() <= most, "more than max_children");
        assert!(figures.limit <= self.scaling.max_children);
        if orders.start > 0 {
            assert!(self.tokens.level > -1e-6, "max_spawn_rate is passed");
        }
        let seats = self.pool.limits().maxconn.saturating_sub(stats.busy);
        let waiting = match self.pool.limits().maxconn >= self.scaling.max_children {
            true => stats.waiting,
            false => stats.waiting.min(seats),
        };
        if waiting > stats.free + self.starting {
            let may = self.is_ready
                && self.processes() < figures.limit
                && figures.paused_until.is_none()
                && !figures.trying
                && self.strict_tokens.at(now) >= 1.0;
            assert!(
                !may,
                "somebody waits while a worker may be started: {figures:?} {stats:?}"
            );
        }
    }

    fn check_thoroughly(&self) {
        let (stats, figures) = (self.pool.stats(), self.scaler.figures());
        self.pool.check().unwrap();
        let leaving = self.processes.values().filter(|process| process.leaves);
        assert_eq!(stats.leaving, leaving.count(), "leaving");
        let counts = Counts {
            asked: figures.asked,
            spawned: figures.spawned,
            failed: figures.failed,
            ended: figures.withdrawn,
            crashed: figures.crashed,
        };
        assert_eq!(counts, self.counts);
        let ended = figures.spawned + figures.failed;
        assert_eq!(figures.asked, ended + self.starting as u64);
        let old = |process: &&Process| process.generation < self.generation && !process.leaves;
        assert!(stats.outdated <= self.processes.values().filter(old).count());
    }
}

/// A token bucket.
struct Tokens {
    rate: f64,
    level: f64,
    since: u64,
    /// Starts that are not counted.
    exempt: usize,
}

impl Tokens {
    fn full(rate: usize) -> Self {
        Self {
            rate: rate as f64,
            level: rate as f64,
            since: 0,
            exempt: 0,
        }
    }

    fn at(&self, now: Micros) -> f64 {
        let level = self.level + (now.0 - self.since) as f64 * self.rate / 1e6;
        level.min(self.rate)
    }

    fn take(&mut self, now: Micros, count: usize) {
        let counted = count.saturating_sub(self.exempt);
        self.exempt -= count - counted;
        self.level = self.at(now) - counted as f64;
        self.since = now.0;
    }
}
