//! Sends a load with several threads. Each has its own reactor; they share only counters.
//!
//! - Closed loop: each user is a task that sends, waits for the answer, and sends again.
//! - Open loop: a task sends each request at its time, whatever happens to earlier ones. A request that finds all
//!   connections busy waits here; its time counts from when it should have been sent, so that a stalled server
//!   affects all requests that were due meanwhile ("coordinated omission").
//!
//! After a timeout the connection is closed. When the sending time is over, running requests are still awaited.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tokio::{sync::Notify, task::LocalSet};
use weir_sys::{cpu, timer::Timer};

use super::{
    client::{self, Connection, Dial},
    plan::{Load, Plan},
    record::{Failure, Outcome, Recorder, Verdict},
    work::{Random, Schedule},
};

/// The result of a load.
#[derive(Debug)]
pub struct Run {
    /// All that happened.
    pub record: Recorder,
    /// How long requests were sent, without the warm-up.
    pub window: Duration,
    /// CPU time of all sending threads.
    pub cpu: Duration,
    /// The highest share of time that one of these threads was busy, 0 to 1.
    pub busiest: f64,
    /// Threads.
    pub threads: usize,
    /// Requests that were running when the load was ended early.
    pub unfinished: u64,
    /// It was ended early.
    pub stopped: bool,
    /// The highest number of connections in use at once, if that is limited.
    pub most_connections: u64,
}

/// A running load.
#[derive(Debug)]
pub struct Running {
    threads: Vec<thread::JoinHandle<io::Result<Part>>>,
    shared: Arc<Shared>,
}

/// The progress of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Good answers.
    pub good: u64,
    /// Refusals.
    pub refused: u64,
    /// All other results.
    pub failed: u64,
    /// Running requests.
    pub in_flight: u64,
}

#[derive(Debug)]
struct Shared {
    plan: Plan,
    start: Instant,
    issued: AtomicU64,
    stop: AtomicBool,
    stopped: Notify,
    counters: Vec<Counters>,
}

/// Counters of one thread, on a separate cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counters {
    good: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    in_flight: AtomicI64,
}

/// The result of one thread.
struct Part {
    record: Recorder,
    cpu: Duration,
    busy: f64,
    unfinished: u64,
    most_connections: u64,
}

/// Starts a load.
///
/// # Errors
/// If no thread can be started.
pub fn start(plan: &Plan) -> io::Result<Running> {
    let threads = plan.threads.max(1);
    let shared = Arc::new(Shared {
        plan: plan.clone(),
        // All threads start at the same time.
        start: Instant::now() + START,
        issued: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        stopped: Notify::new(),
        counters: (0..threads).map(|_| Counters::default()).collect(),
    });
    let thread = |number: usize| {
        let shared = shared.clone();
        thread::Builder::new()
            .name(format!("load {number}"))
            .spawn(move || work(&shared, number))
    };
    let threads = (0..threads).map(thread).collect::<io::Result<_>>();
    if threads.is_err() {
        shared.end();
    }
    Ok(Running {
        threads: threads?,
        shared: shared.clone(),
    })
}

impl Running {
    /// Whether the load is over.
    pub fn is_over(&self) -> bool {
        self.threads.iter().all(thread::JoinHandle::is_finished)
    }

    /// The present progress.
    pub fn progress(&self) -> Progress {
        let mut sum = Progress::default();
        for counters in &self.shared.counters {
            sum.good += counters.good.load(Relaxed);
            sum.refused += counters.refused.load(Relaxed);
            sum.failed += counters.failed.load(Relaxed);
            sum.in_flight += u64::try_from(counters.in_flight.load(Relaxed)).unwrap_or(0);
        }
        sum
    }

    /// Ends the load now; running requests are abandoned.
    pub fn end(&self) {
        self.shared.end();
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If a thread could not start because no descriptor is left for its reactor.
    pub fn finish(self) -> io::Result<Run> {
        let threads = self.threads.len();
        let plan = &self.shared.plan;
        let from = self.shared.start + plan.warm_up;
        let mut run = Run {
            record: Recorder::new(from, None, 0),
            window: Duration::ZERO,
            cpu: Duration::ZERO,
            busiest: 0.0,
            threads,
            unfinished: 0,
            stopped: self.shared.stop.load(Relaxed),
            most_connections: 0,
        };
        for thread in self.threads {
            let part = match thread.join() {
                Ok(part) => part?,
                Err(_) => {
                    return Err(io::Error::other(
                        "internal error: a sending thread has panicked",
                    ));
                }
            };
            run.record.merge(part.record);
            run.cpu += part.cpu;
            run.busiest = run.busiest.max(part.busy);
            run.unfinished += part.unfinished;
            run.most_connections += part.most_connections;
        }
        run.stopped = self.shared.stop.load(Relaxed);
        let last = Duration::from_micros(run.record.last);
        run.window = match plan.window() {
            Some(window) if run.stopped => window.min(from.elapsed()),
            Some(window) => window,
            None => last,
        };
        Ok(run)
    }
}

impl Shared {
    fn end(&self) {
        self.stop.store(true, Relaxed);
        self.stopped.notify_waiters();
    }
}

/// Runs one thread.
fn work(shared: &Arc<Shared>, number: usize) -> io::Result<Part> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tasks = LocalSet::new();
    let hand = Rc::new(LoadThread::new(shared.clone(), number));
    let cpu = cpu::of_thread();
    let began = Instant::now();
    let done = tasks.block_on(&runtime, async {
        let stopped = shared.stopped.notified();
        // The stop was requested before this task listened for it.
        if shared.stop.load(Relaxed) {
            return Ok(());
        }
        tokio::select! {
            done = all(&hand) => done,
            () = stopped => Ok(()),
        }
    });
    let cpu = cpu::of_thread().saturating_sub(cpu);
    let busy = cpu.as_secs_f64() / began.elapsed().as_secs_f64().max(1e-9);
    let unfinished = hand.counters().in_flight.load(Relaxed);
    let unfinished = u64::try_from(unfinished).unwrap_or(0) + hand.behind.borrow().len() as u64;
    drop(tasks);
    drop(runtime);
    done?;
    let mut record = hand.record.replace(Recorder::new(began, None, 0));
    record.give_up(Instant::now());
    Ok(Part {
        record,
        cpu,
        busy,
        unfinished,
        most_connections: hand.most_in_flight.get(),
    })
}

async fn all(hand: &Rc<LoadThread>) -> io::Result<()> {
    tokio::time::sleep_until(hand.shared.start.into()).await;
    match &hand.shared.plan.load {
        Load::Users(users) => {
            let share = share(*users as usize, hand.number, hand.shared.counters.len());
            let mut tasks = Vec::with_capacity(share);
            for index in 0..share {
                tasks.push(tokio::task::spawn_local(user(hand.clone(), index)));
            }
            for task in tasks {
                // No task panics or is aborted; if one did, the others would go on.
                let _ = task.await;
            }
            Ok(())
        }
        Load::Arrivals { .. } => arrivals(hand).await,
    }
}

/// When a request was sent, or should have been, and which of the requests it is.
type Due = (Instant, usize);

/// Shared by the tasks of a thread.
struct LoadThread {
    shared: Arc<Shared>,
    number: usize,
    record: RefCell<Recorder>,
    requests: Vec<Request<Full<Bytes>>>,
    dials: Vec<Dial>,
    next_dial: Cell<usize>,
    random: RefCell<Random>,
    /// Idle connections, the one used last at the end.
    idle: RefCell<Vec<Connection>>,
    /// Due requests without a connection.
    behind: RefCell<VecDeque<Due>>,
    in_flight: Cell<u64>,
    most_in_flight: Cell<u64>,
    quiet: Notify,
}

impl LoadThread {
    fn new(shared: Arc<Shared>, number: usize) -> Self {
        let plan = &shared.plan;
        let threads = shared.counters.len();
        let users = match plan.load {
            Load::Users(users) => share(users as usize, number, threads),
            Load::Arrivals { .. } => 0,
        };
        let record = Recorder::new(shared.start + plan.warm_up, plan.window(), users);
        Self {
            record: RefCell::new(record),
            requests: plan.requests(),
            dials: plan.dials(),
            next_dial: Cell::new(number),
            random: RefCell::new(Random::new(plan.seed.wrapping_add(1000 + number as u64))),
            idle: RefCell::default(),
            behind: RefCell::default(),
            in_flight: Cell::new(0),
            most_in_flight: Cell::new(0),
            quiet: Notify::new(),
            number,
            shared,
        }
    }

    fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    fn counters(&self) -> &Counters {
        &self.shared.counters[self.number]
    }

    /// The next request; `None`: enough were sent, or the time is over.
    fn next(&self) -> Option<usize> {
        let end = self.plan().end;
        if end
            .time
            .is_some_and(|time| self.shared.start.elapsed() >= time)
        {
            return None;
        }
        let number = self.shared.issued.fetch_add(1, Relaxed);
        if end.requests.is_some_and(|most| number >= most) {
            return None;
        }
        Some(self.which(number))
    }

    fn which(&self, number: u64) -> usize {
        let count = self.requests.len();
        match self.plan().requests.random {
            true => self.random.borrow_mut().below(count),
            false => usize::try_from(number % count as u64).unwrap_or(0),
        }
    }

    /// Source addresses are used in turns.
    fn dial(&self) -> &Dial {
        let turn = self.next_dial.get();
        self.next_dial.set(turn.wrapping_add(1));
        &self.dials[turn % self.dials.len()]
    }

    /// Sends a request that began (or should have) at `began`, and counts its result.
    async fn send(
        &self,
        client: Option<usize>,
        dial: &Dial,
        slot: &mut Option<Connection>,
        (began, which): Due,
    ) -> Outcome {
        self.counters().in_flight.fetch_add(1, Relaxed);
        let limit = began + self.plan().timeout;
        let (outcome, cost) = client::exchange(dial, slot, &self.requests[which], limit).await;
        if !self.plan().keepalive {
            *slot = None;
        }
        self.counters().in_flight.fetch_sub(1, Relaxed);
        {
            let mut record = self.record.borrow_mut();
            record.connections += cost.connections;
            record.sent_again += cost.sent_again;
        }
        self.ended(client, began, &outcome);
        outcome
    }

    fn ended(&self, client: Option<usize>, began: Instant, outcome: &Outcome) {
        let mut record = self.record.borrow_mut();
        record.ended(client, began, Instant::now(), outcome);
        let counters = self.counters();
        let counter = match outcome.verdict() {
            Verdict::Good => &counters.good,
            Verdict::Refused => &counters.refused,
            Verdict::Failed => &counters.failed,
        };
        counter.fetch_add(1, Relaxed);
    }
}

/// One user of a closed loop.
async fn user(hand: Rc<LoadThread>, index: usize) {
    let dial = hand.dial().clone();
    let mut slot = None;
    let mut rest = REST;
    while let Some(which) = hand.next() {
        let began = Instant::now();
        {
            let mut record = hand.record.borrow_mut();
            record.sent(began, Duration::ZERO);
            if let Some(client) = record.clients.get_mut(index) {
                client.waits_since = Some(began);
            }
        }
        let outcome = hand
            .send(Some(index), &dial, &mut slot, (began, which))
            .await;
        match outcome {
            // A user that cannot connect pauses, so that it does not try a hundred thousand times a second.
            Outcome::Failed(failure) if failure.is_at_the_door() => {
                tokio::time::sleep(rest).await;
                rest = (rest * 2).min(LONGEST_REST);
            }
            _ => rest = REST,
        }
    }
}

/// This thread's part of an open loop.
async fn arrivals(hand: &Rc<LoadThread>) -> io::Result<()> {
    let shared = hand.shared.clone();
    let Load::Arrivals {
        arrivals,
        connections,
    } = &shared.plan.load
    else {
        return Ok(());
    };
    let threads = shared.counters.len();
    let most = share(*connections as usize, hand.number, threads).max(1) as u64;
    let schedule = Schedule::new(
        arrivals,
        shared.plan.end,
        hand.number as u64,
        threads as u64,
        shared.plan.seed,
    );
    let mut timer = Timer::new()?;
    for (count, (at, which)) in schedule.enumerate() {
        let due = shared.start + at;
        timer.until(due).await?;
        let which = match which {
            Some(which) => which as usize,
            None => hand.which((count * threads + hand.number) as u64),
        };
        launch(hand, due, which, most);
        // If many requests are due at once, answers must be read meanwhile.
        if count % BURST == BURST - 1 {
            tokio::task::yield_now().await;
        }
    }
    while hand.in_flight.get() > 0 {
        hand.quiet.notified().await;
    }
    Ok(())
}

fn launch(hand: &Rc<LoadThread>, due: Instant, which: usize, most: u64) {
    let late = Instant::now().saturating_duration_since(due);
    hand.record.borrow_mut().sent(due, late);
    if hand.in_flight.get() < most {
        hand.in_flight.set(hand.in_flight.get() + 1);
        hand.most_in_flight
            .set(hand.most_in_flight.get().max(hand.in_flight.get()));
        tokio::task::spawn_local(one(hand.clone(), due, which));
        return;
    }
    hand.most_in_flight.set(most);
    let mut behind = hand.behind.borrow_mut();
    while let Some((due, _)) = behind.front()
        && (due.elapsed() >= hand.plan().timeout || behind.len() >= MOST_BEHIND)
    {
        hand.ended(None, *due, &Outcome::Failed(Failure::NotSent));
        behind.pop_front();
    }
    behind.push_back((due, which));
}

/// A request of an open loop, and those that wait for its connection.
async fn one(hand: Rc<LoadThread>, due: Instant, which: usize) {
    let mut next = Some((due, which));
    while let Some((due, which)) = next {
        if due.elapsed() < hand.plan().timeout {
            // The connection that was used last is the one that the server has least likely closed.
            let mut slot = hand.idle.borrow_mut().pop();
            let dial = hand.dial().clone();
            hand.send(None, &dial, &mut slot, (due, which)).await;
            if let Some(connection) = slot {
                hand.idle.borrow_mut().push(connection);
            }
        } else {
            hand.ended(None, due, &Outcome::Failed(Failure::NotSent));
        }
        next = hand.behind.borrow_mut().pop_front();
    }
    hand.in_flight.set(hand.in_flight.get() - 1);
    if hand.in_flight.get() == 0 {
        hand.quiet.notify_one();
    }
}

impl Failure {
    /// Whether no connection was made, so that the next attempt would end as fast.
    fn is_at_the_door(self) -> bool {
        matches!(
            self,
            Failure::ConnectRefused
                | Failure::AcceptQueueFull
                | Failure::ConnectFailed
                | Failure::NoDescriptor
                | Failure::NoPort
        )
    }
}

/// The share of part `number` of `parts` in `total`.
fn share(total: usize, number: usize, parts: usize) -> usize {
    total / parts + usize::from(number < total % parts)
}

/// Time for the threads to start.
const START: Duration = Duration::from_millis(20);

/// First pause of a user that could not connect; it doubles each time.
const REST: Duration = Duration::from_millis(1);

/// Maximum of these pauses.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// How many requests are sent before answers are read.
const BURST: usize = 32;

/// Maximum number of requests per thread that wait for a connection.
const MOST_BEHIND: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (total, parts) in [(100, 3), (2, 4), (0, 2), (7, 7)] {
            let sum: usize = (0..parts).map(|number| share(total, number, parts)).sum();
            assert_eq!(sum, total);
        }
    }
}
