//! Limits how many calls an origin gets at once. Others wait in the same kind of queue as requests for a pool.
//!
//! A [`Permit`] is the right to one running call; dropping it gives the right to the next call. [`weir_pool::Pool`]
//! decides which calls wait, in which order and for how long, and which are refused at once because waiting would be
//! useless. Its workers are the `maxconn` places. They are added when they are first needed and are never removed.
//!
//! ```text
//! acquire ──admit──► Run ──────────────► Permit ──dropped──► who is next in the queue, or a free place
//!               ├──► Wait ──oneshot──► Permit
//!               │         └─dropped──► out of the queue
//!               └──► Shed
//! ```
//!
//! The lock is held for a few comparisons and never while waiting. While calls wait, one task sleeps until the first
//! of them reaches its limit.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;
use weir_config::HostSettings;
use weir_observe::clock;
use weir_pool::{
    Admission, Limits, MAX_WORKERS, Micros, Order, Pool, RequestId, ShedReason, Stats, Ticket,
    WorkerId,
};

use super::{
    driver::{Driver, Receiver, Sender},
    fault::{Fault, Kind},
};

/// The running and waiting calls of one origin.
#[derive(Debug)]
pub struct Limiter {
    /// The name of the origin, for messages.
    name: Box<str>,
    limits: Limits,
    state: Mutex<State>,
    /// Notified when the task for waiting calls has to wake earlier than planned.
    earlier: Notify,
}

/// The right to one running call.
#[derive(Debug)]
#[must_use = "dropping it gives it to the next call"]
pub struct Permit {
    /// `None`: it was moved out.
    limiter: Option<Arc<Limiter>>,
    place: WorkerId,
    waited: u64,
}

/// The state of an origin's calls, and counts of earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct View {
    /// Running calls, and their maximum.
    pub at_work: usize,
    pub maxconn: usize,
    /// Waiting calls, their limit, and their highest number so far.
    pub waiting: usize,
    pub max_queue: usize,
    pub max_waiting: usize,
    /// Calls that had to wait, including those that wait now.
    pub waited: u64,
    /// Sum of all waiting times, µs.
    pub wait_time: u64,
    /// Refused calls: because the queue was full or has to be kept short; because they waited too long or would have
    /// to; and because their own deadline had passed.
    pub queue_full: u64,
    pub queue_timeout: u64,
    pub deadline: u64,
    /// Calls whose caller left while they waited.
    pub left: u64,
}

#[derive(Debug)]
struct State {
    /// No wake is planned while there is no task for waiting calls.
    pool: Driver<Permit>,
    /// Number of places: the highest number of calls at once so far.
    places: u32,
    calls: u64,
}

/// The result for a new call.
enum Admitted {
    Lent(Permit),
    Waits(RequestId, Receiver<Permit>),
    Shed(ShedReason),
}

impl Limiter {
    /// `name`: of the origin, for messages.
    pub fn new(name: impl Into<Box<str>>, settings: &HostSettings) -> Arc<Limiter> {
        let limits = Limits {
            // The configuration does not allow 0; the pool cannot count more than this.
            maxconn: settings.maxconn.clamp(1, MAX_WORKERS as usize),
            max_queue: settings.max_queue,
            timeout: Micros::from(settings.queue_timeout),
            // There are few callers, all of the application. They wait as long as configured.
            order: Order::Fifo,
            ..Limits::USUAL
        };
        Arc::new(Limiter {
            name: name.into(),
            limits,
            state: Mutex::new(State {
                pool: Driver::new(Pool::new(limits)),
                places: 0,
                calls: 0,
            }),
            earlier: Notify::new(),
        })
    }

    /// The right to run a call, at once or after waiting. `client`: the caller; callers take turns in the queue, and
    /// number 0 is one caller. `deadline`: the call is useless after that ([`clock::now`]).
    ///
    /// # Errors
    ///
    /// [`Kind::QueueFull`] and [`Kind::QueueTimeout`], with the seconds after which a retry makes sense;
    /// [`Kind::Deadline`].
    pub async fn acquire(self: &Arc<Self>, client: u64, deadline: u64) -> Result<Permit, Fault> {
        let came = clock::now();
        let (request, receiver) = match self.ask(came, client, deadline) {
            Admitted::Lent(permit) => return Ok(permit),
            Admitted::Shed(reason) => return Err(self.refusal(reason, 0)),
            Admitted::Waits(request, receiver) => (request, receiver),
        };
        let mut place = QueuePlace {
            limiter: self,
            request,
            waits: true,
        };
        let answer = receiver.await;
        place.waits = false;
        // The sender is never dropped without an answer.
        let answer = answer.unwrap_or(Err(ShedReason::NoWorker));
        let waited = clock::now().saturating_sub(came);
        match answer {
            Ok(mut permit) => {
                permit.waited = waited;
                Ok(permit)
            }
            Err(reason) => Err(self.refusal(reason, waited)),
        }
    }

    /// Running and waiting calls, and counts of earlier ones.
    pub fn view(&self) -> View {
        let mut state = self.state();
        state.pool.pass(Micros(clock::now()));
        let stats = state.pool.stats();
        View {
            at_work: stats.busy,
            maxconn: self.limits.maxconn,
            waiting: stats.waiting,
            max_queue: self.limits.max_queue,
            max_waiting: stats.max_waiting,
            waited: stats.waited,
            wait_time: stats.queue_time.0,
            queue_full: stats.shed_queue_full + stats.shed_overload + stats.shed_pushed_out,
            queue_timeout: stats.shed_queue_timeout + stats.shed_hopeless,
            deadline: stats.shed_deadline,
            left: stats.left,
        }
    }

    fn ask(self: &Arc<Self>, now: u64, client: u64, deadline: u64) -> Admitted {
        let mut state = self.state();
        state.calls += 1;
        let request = RequestId(state.calls);
        state.make_place(now, self.limits.maxconn);
        let ticket = Ticket {
            deadline: Micros(deadline),
            client,
            ..Ticket::new(request, 0)
        };
        match state.pool.admit(Micros(now), &ticket) {
            Admission::Run(place) => Admitted::Lent(self.permit(place)),
            Admission::Shed(reason) => Admitted::Shed(reason),
            Admission::Wait { pushed_out, .. } => {
                let receiver = state.pool.waits(request);
                let pushed_out = pushed_out.and_then(|other| state.pool.decided(other));
                let looks = self.look_after(&mut state);
                drop(state);
                // This needs the lock to be free: if the runtime has ended, the task is dropped at once, and dropping
                // it takes the lock.
                if let Some(looks) = looks {
                    tokio::spawn(looks.expire());
                }
                if let Some(pushed_out) = pushed_out {
                    // The caller of that request may be leaving at this moment.
                    let _ = pushed_out.send(Err(ShedReason::PushedOut));
                }
                Admitted::Waits(request, receiver)
            }
        }
    }

    /// Gives a place to the next call.
    fn release(self: &Arc<Self>, place: WorkerId) {
        let now = clock::now();
        let mut place = place;
        loop {
            let mut state = self.state();
            let next = state.pool.release(Micros(now), place).next;
            let Some(next) = next else { return };
            let Some(waiting) = state.pool.decided(next.request) else {
                // There always is one, because both are changed under one lock. If not, the place is at least not
                // lost.
                place = next.worker;
                continue;
            };
            drop(state);
            match waiting.send(Ok(self.permit(next.worker))) {
                Ok(()) => return,
                // Its caller is leaving. Dropping the permit would call this function again, one level deeper for
                // each such call.
                Err(unsent) => {
                    let Ok(mut permit) = unsent else { return };
                    permit.limiter = None;
                    place = permit.place;
                }
            }
        }
    }

    /// Makes a task wake when the first waiting call reaches its limit. `Some`: a task that must be started.
    fn look_after(self: &Arc<Self>, state: &mut State) -> Option<LooksAfter> {
        let is_there = state.pool.wakes_at() != clock::NEVER;
        match state.pool.wake_for_queue() {
            false => None,
            true if is_there => {
                self.earlier.notify_one();
                None
            }
            true => Some(LooksAfter {
                limiter: self.clone(),
                has_ended: false,
            }),
        }
    }

    fn permit(self: &Arc<Self>, place: WorkerId) -> Permit {
        Permit {
            limiter: Some(self.clone()),
            place,
            waited: 0,
        }
    }

    /// The fault of a call that was refused after waiting this long, µs.
    fn refusal(&self, reason: ShedReason, waited: u64) -> Fault {
        let (stats, retry_after) = {
            let state = self.state();
            let after = state.pool.retry_after(Micros(clock::now()));
            (state.pool.stats(), after)
        };
        let (kind, why) = match reason {
            ShedReason::QueueFull => (Kind::QueueFull, "max_queue calls are already waiting"),
            ShedReason::Overload => (
                Kind::QueueFull,
                "it gets more calls than it can answer, and its queue is full for the time that callers wait",
            ),
            ShedReason::PushedOut => (
                Kind::QueueFull,
                "it was removed in favour of a caller with fewer waiting calls",
            ),
            ShedReason::QueueTimeout => (Kind::QueueTimeout, "it waited for queue_timeout"),
            ShedReason::Hopeless => (
                Kind::QueueTimeout,
                "it would have to wait longer than allowed",
            ),
            ShedReason::Deadline => (
                Kind::Deadline,
                "the time limit of its request is over, or leaves too little time for a call",
            ),
            // Places are never removed.
            ShedReason::NoWorker => (Kind::Internal, "no connections are allowed to it"),
        };
        let mut fault = Fault::unsent(kind, self.message(why, waited, &stats));
        if matches!(kind, Kind::QueueFull | Kind::QueueTimeout) {
            fault.retry_after = Some(retry_after.0.div_ceil(1_000_000).clamp(1, 60));
        }
        fault
    }

    fn message(&self, why: &str, waited: u64, stats: &Stats) -> String {
        let seconds = |micros: u64| Duration::from_micros(micros).as_secs_f64();
        let service = match stats.service_estimate.0 {
            0 => String::new(),
            service => format!("; a call takes about {:.3} s", seconds(service)),
        };
        format!(
            "{}: call refused in the queue: {why}; it waited {:.3} s; {} of at most {} are waiting now, {} are running, maxconn is {}{service}",
            self.name,
            seconds(waited),
            stats.waiting,
            self.limits.max_queue,
            stats.busy,
            self.limits.maxconn,
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// How long the call waited, µs.
    pub fn waited(&self) -> u64 {
        self.waited
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.take() {
            limiter.release(self.place);
        }
    }
}

impl State {
    /// Adds a place if none is free and another one is allowed.
    fn make_place(&mut self, now: u64, maxconn: usize) {
        if self.pool.free() == 0 && (self.places as usize) < maxconn {
            // No call waits while another place is allowed, so no call gets it here.
            self.pool.worker_up(Micros(now), WorkerId(self.places), 0);
            self.places += 1;
        }
    }

    /// Removes calls from the queue that have waited too long. Also returns when to do this again; [`clock::NEVER`] if
    /// no call waits.
    fn expire(&mut self, now: u64) -> (Vec<(Sender<Permit>, ShedReason)>, u64) {
        let mut refused = Vec::new();
        let refuse = |sender, reason| refused.push((sender, reason));
        self.pool.expire(Micros(now), refuse);
        self.pool.woken();
        let _ = self.pool.wake_for_queue();
        (refused, self.pool.wakes_at())
    }
}

/// A call's place in the queue. It is given up when the caller leaves.
struct QueuePlace<'l> {
    limiter: &'l Limiter,
    request: RequestId,
    waits: bool,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        if self.waits {
            let now = Micros(clock::now());
            self.limiter.state().pool.leave(now, self.request);
        }
    }
}

/// The task for waiting calls. If its thread ends, the next call that waits starts another task.
struct LooksAfter {
    limiter: Arc<Limiter>,
    has_ended: bool,
}

impl LooksAfter {
    /// Refuses calls that have waited too long, until none is waiting.
    async fn expire(mut self) {
        loop {
            let now = clock::precise();
            let (refused, wakes_at) = self.limiter.state().expire(now);
            for (sender, reason) in refused {
                let _ = sender.send(Err(reason));
            }
            if wakes_at == clock::NEVER {
                self.has_ended = true;
                return;
            }
            let left = Duration::from_micros(wakes_at.saturating_sub(now));
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = self.limiter.earlier.notified() => {}
            }
        }
    }
}

impl Drop for LooksAfter {
    fn drop(&mut self) {
        if !self.has_ended {
            self.limiter.state().pool.woken();
        }
    }
}

#[cfg(test)]
mod tests;
