//! How many calls an origin gets at once, and who waits: the pools' own queue.
//!
//! A [`Permit`] is the right to one call at work; dropping it gives it to who is next. Who waits, in which order and for how
//! long, and who is refused at once because it would wait for nothing, is [`weir_pool::Pool`]'s matter: its workers are
//! the `maxconn` places, which come up when they are needed for the first time, and never go.
//!
//! ```text
//! acquire ──admit──► Run ──────────────► Permit ──dropped──► who is next in the queue, or a free place
//!               ├──► Wait ──oneshot──► Permit
//!               │         └─dropped──► out of the queue
//!               └──► Shed
//! ```
//!
//! The lock is held for a few comparisons and never across a wait. While somebody waits, one task sleeps until the first of
//! them has waited for too long.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use weir_config::HostSettings;
use weir_pool::{
    Admission, Limits, MAX_WORKERS, Micros, Order, Pool, Refused, RequestId, ShedReason, Stats,
    Ticket, WorkerId,
};

use super::fault::{Fault, Kind};
use crate::clock;

/// The calls of one origin: at work, and waiting.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// The origin, for messages.
    name: Box<str>,
    limits: Limits,
    state: Mutex<State>,
    /// Told when the task that looks after the waiting ones is to wake earlier than it meant to.
    earlier: Notify,
}

/// The right to one call at work.
#[derive(Debug)]
#[must_use = "dropping it gives it to the next call"]
pub(crate) struct Permit {
    /// None: it was taken out.
    limiter: Option<Arc<Limiter>>,
    place: WorkerId,
    waited: u64,
}

/// An origin's calls as they are, and what became of those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct View {
    /// Calls at work now, and at most.
    pub(crate) at_work: usize,
    pub(crate) maxconn: usize,
    /// Calls that wait now, at most, and at most so far.
    pub(crate) waiting: usize,
    pub(crate) max_queue: usize,
    pub(crate) max_waiting: usize,
    /// Calls that had to wait, also those that wait now.
    pub(crate) waited: u64,
    /// How long those that wait and have waited did so together, µs.
    pub(crate) wait_time: u64,
    /// Calls that were refused: because the queue was full or to be kept short, because they waited for too long or would
    /// have to, and because their own time was up.
    pub(crate) queue_full: u64,
    pub(crate) queue_timeout: u64,
    pub(crate) deadline: u64,
    /// Calls whose caller left while they waited.
    pub(crate) left: u64,
}

#[derive(Debug)]
struct State {
    pool: Pool,
    /// So many places there are: never more than calls were at work at once.
    places: u32,
    calls: u64,
    waiting: HashMap<RequestId, Waiting>,
    /// When the task that looks after those that wait wakes; none: there is no such task.
    wakes_at: Option<u64>,
    expired: Vec<Refused>,
}

#[derive(Debug)]
struct Waiting {
    came: u64,
    sender: Sender,
}

/// How a call that waits is told.
type Sender = oneshot::Sender<Result<Permit, ShedReason>>;

/// What becomes of a call that comes.
enum Asked {
    Lent(Permit),
    Waits(RequestId, oneshot::Receiver<Result<Permit, ShedReason>>),
    Shed(ShedReason),
}

impl Limiter {
    /// `name`: of the origin, for messages.
    pub(crate) fn new(name: impl Into<Box<str>>, settings: &HostSettings) -> Arc<Limiter> {
        let limits = Limits {
            // The configuration has no 0, and nothing beyond what the pool can count.
            maxconn: settings.maxconn.clamp(1, MAX_WORKERS as usize),
            max_queue: settings.max_queue,
            timeout: Micros::from(settings.queue_timeout),
            // Callers are few, the application's own, and wait for as long as they were told.
            order: Order::Fifo,
            ..Limits::USUAL
        };
        Arc::new(Limiter {
            name: name.into(),
            limits,
            state: Mutex::new(State {
                pool: Pool::new(limits),
                places: 0,
                calls: 0,
                waiting: HashMap::new(),
                wakes_at: None,
                expired: Vec::new(),
            }),
            earlier: Notify::new(),
        })
    }

    /// The right to a call, at once or after waiting. `client`: who calls; callers take turns in the queue, and those of
    /// number 0 are one caller. `deadline`: the call is of no use after that ([`clock::now`]).
    ///
    /// # Errors
    ///
    /// [`Kind::QueueFull`] and [`Kind::QueueTimeout`], with the seconds after which it is of use to come again;
    /// [`Kind::Deadline`].
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        client: u64,
        deadline: u64,
    ) -> Result<Permit, Fault> {
        let came = clock::now();
        let (request, receiver) = match self.ask(came, client, deadline) {
            Asked::Lent(permit) => return Ok(permit),
            Asked::Shed(reason) => return Err(self.refusal(reason, 0)),
            Asked::Waits(request, receiver) => (request, receiver),
        };
        let mut place = QueuePlace {
            limiter: self,
            request,
            waits: true,
        };
        let answer = receiver.await;
        place.waits = false;
        // The sender is dropped with an answer only.
        let answer = answer.unwrap_or(Err(ShedReason::NoWorker));
        answer.map_err(|reason| self.refusal(reason, clock::now().saturating_sub(came)))
    }

    /// Calls at work and waiting now, and what became of those before.
    pub(crate) fn view(&self) -> View {
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

    fn ask(self: &Arc<Self>, now: u64, client: u64, deadline: u64) -> Asked {
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
            Admission::Run(place) => Asked::Lent(self.permit(place, now, now)),
            Admission::Shed(reason) => Asked::Shed(reason),
            Admission::Wait { pushed_out, .. } => {
                let (sender, receiver) = oneshot::channel();
                state.waiting.insert(request, Waiting { came: now, sender });
                let pushed_out = pushed_out.and_then(|other| state.waiting.remove(&other));
                let looks = self.look_after(&mut state);
                drop(state);
                // A runtime that has ended drops it at once, which asks for the lock.
                if let Some(looks) = looks {
                    tokio::spawn(looks.expire());
                }
                if let Some(pushed_out) = pushed_out {
                    // Its caller may just be leaving.
                    let _ = pushed_out.sender.send(Err(ShedReason::PushedOut));
                }
                Asked::Waits(request, receiver)
            }
        }
    }

    /// Gives a place to who is next.
    fn release(self: &Arc<Self>, place: WorkerId) {
        let now = clock::now();
        let mut place = place;
        loop {
            let mut state = self.state();
            let next = state.pool.release(Micros(now), place).next;
            let Some(next) = next else { return };
            let Some(waiting) = state.waiting.remove(&next.request) else {
                // Both are changed under one lock, so that there is one; a place is not lost for that.
                place = next.worker;
                continue;
            };
            drop(state);
            let permit = self.permit(next.worker, waiting.came, now);
            match waiting.sender.send(Ok(permit)) {
                Ok(()) => return,
                // Its caller is leaving. Not dropped, which would come here again, and deeper for each that leaves.
                Err(unsent) => {
                    let Ok(mut permit) = unsent else { return };
                    permit.limiter = None;
                    place = permit.place;
                }
            }
        }
    }

    /// Has a task wake when the first of those that wait has waited for too long. Some: it is to be started.
    fn look_after(self: &Arc<Self>, state: &mut State) -> Option<LooksAfter> {
        let Micros(at) = state.pool.next_deadline()?;
        match state.wakes_at {
            Some(earlier) if earlier <= at => None,
            Some(_) => {
                state.wakes_at = Some(at);
                self.earlier.notify_one();
                None
            }
            None => {
                state.wakes_at = Some(at);
                Some(LooksAfter {
                    limiter: self.clone(),
                    has_ended: false,
                })
            }
        }
    }

    fn permit(self: &Arc<Self>, place: WorkerId, came: u64, now: u64) -> Permit {
        Permit {
            limiter: Some(self.clone()),
            place,
            waited: now.saturating_sub(came),
        }
    }

    /// What is said of a call that was refused after so long, µs.
    fn refusal(&self, reason: ShedReason, waited: u64) -> Fault {
        let (stats, retry_after) = {
            let state = self.state();
            let after = state.pool.retry_after(Micros(clock::now()));
            (state.pool.stats(), after)
        };
        let (kind, why) = match reason {
            ShedReason::QueueFull => (Kind::QueueFull, "max_queue calls wait already"),
            ShedReason::Overload => (
                Kind::QueueFull,
                "it gets more calls than it answers, and its queue is as long as its callers wait",
            ),
            ShedReason::PushedOut => (
                Kind::QueueFull,
                "it made room for the call of another caller, who has fewer waiting",
            ),
            ShedReason::QueueTimeout => (Kind::QueueTimeout, "it waited for queue_timeout"),
            ShedReason::Hopeless => (
                Kind::QueueTimeout,
                "it would have to wait for longer than it may",
            ),
            ShedReason::Deadline => (
                Kind::Deadline,
                "the time of its request is up, or too short for a call",
            ),
            // Places never go.
            ShedReason::NoWorker => (Kind::Internal, "it has no places"),
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
            "{}: a call got no place: {why}; it waited {:.3} s; {} wait now of {} at most, {} are at work, maxconn is {}{service}",
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
    /// How long the call waited for it, µs.
    pub(crate) fn waited(&self) -> u64 {
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
    /// Sees to it that there is a place, if there may be one more.
    fn make_place(&mut self, now: u64, maxconn: usize) {
        if self.pool.free() == 0 && (self.places as usize) < maxconn {
            // Nobody waits while there may be one more, so that nobody is given it here.
            self.pool.worker_up(Micros(now), WorkerId(self.places), 0);
            self.places += 1;
        }
    }

    /// Takes out of the queue who has waited for too long, and says when it is to be done again; none: nobody waits.
    fn expire(&mut self, now: u64) -> (Vec<(Sender, ShedReason)>, Option<u64>) {
        let mut expired = std::mem::take(&mut self.expired);
        self.pool.expire(Micros(now), &mut expired);
        let refused = expired.drain(..).filter_map(|refused| {
            let waiting = self.waiting.remove(&refused.request)?;
            Some((waiting.sender, refused.reason))
        });
        let refused = refused.collect();
        self.expired = expired;
        self.wakes_at = self.pool.next_deadline().map(|at| at.0);
        (refused, self.wakes_at)
    }
}

/// A call's place in the queue, given up when its caller leaves.
struct QueuePlace<'l> {
    limiter: &'l Limiter,
    request: RequestId,
    waits: bool,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        if self.waits {
            let mut state = self.limiter.state();
            state.pool.leave(Micros(clock::now()), self.request);
            state.waiting.remove(&self.request);
        }
    }
}

/// Who looks after those that wait. Where its thread ends before, the next call that waits has another one look.
struct LooksAfter {
    limiter: Arc<Limiter>,
    has_ended: bool,
}

impl LooksAfter {
    /// Refuses who has waited for too long, until nobody waits.
    async fn expire(mut self) {
        loop {
            let now = clock::precise();
            let (refused, wakes_at) = self.limiter.state().expire(now);
            for (sender, reason) in refused {
                let _ = sender.send(Err(reason));
            }
            let Some(wakes_at) = wakes_at else {
                self.has_ended = true;
                return;
            };
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
            self.limiter.state().wakes_at = None;
        }
    }
}

#[cfg(test)]
mod tests;
