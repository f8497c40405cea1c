//! The pool's figures.

use crate::Micros;

/// The pool as it is, and what it has done since it was made.
///
/// The totals agree at every moment, which [`Stats::agree`] checks:
///
/// ```text
/// admitted + readmitted = run_at_once + waited + shed on arrival
/// admitted + readmitted = started + shed() + left + waiting
/// started               = finished + lost + abandoned + busy
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Requests in the queue now.
    pub waiting: usize,
    /// Of these: those that have waited for too long and go after all others, because the pool is overloaded.
    pub stale: usize,
    /// Workers with a request now.
    pub busy: usize,
    /// Workers without one now (they may stand idle beside a queue if the limit is reached, or if they are reserved).
    pub free: usize,
    /// Workers that are up now: busy and free.
    pub workers: usize,
    /// Of the busy ones: those that leave when they are released ([`crate::Pool::retire`]).
    pub retiring: usize,
    /// Of those that are up and not retiring: those that are to be replaced ([`crate::Pool::outdate`]).
    pub outdated: usize,
    /// Workers that were withdrawn and have not yet ended; not counted in `workers`.
    pub leaving: usize,
    /// Requests that may run at once now: `maxconn`, or less with `fullconn`.
    pub limit: usize,

    /// How long the one that has waited for longest has waited so far; zero: nobody waits.
    pub oldest_wait: Micros,
    /// What a usual request (priority 0, of a client that has none waiting) would wait now, as far as can be foreseen.
    pub expected_wait: Micros,
    /// What a worker needs for a request, as far as is known; zero: nothing is known.
    pub service_estimate: Micros,
    /// After so long clients leave: one in four, of those that have neither an answer nor given up before. None: not
    /// known.
    pub patience: Option<Micros>,
    /// The pool loses what it cannot serve, and keeps its queue short ([`crate::Order::Adaptive`]).
    pub overloaded: bool,
    /// Newcomers that would have to wait for longer are refused at once: the queue's timeout, or less under overload.
    pub longest_admitted_wait: Micros,
    /// Who has waited for so long goes after all others; [`Micros::MAX`] while the pool is not overloaded.
    pub stale_after: Micros,

    /// Requests that arrived ([`crate::Pool::admit`]), whatever they were answered.
    pub admitted: u64,
    /// Requests that came back after their worker failed ([`crate::Pool::readmit`]), whatever they were answered.
    pub readmitted: u64,
    /// Of both: those that got a worker on arrival.
    pub run_at_once: u64,
    /// Of both: those that were put into the queue.
    pub waited: u64,
    /// Requests given to workers, on arrival or from the queue; a retry counts again.
    pub started: u64,
    /// Requests whose worker was released.
    pub finished: u64,
    /// Workers that have finished a request, each counted once.
    pub proven: u64,
    /// Requests whose worker went down under them.
    pub lost: u64,
    /// Requests that were given to a worker and not begun, because their client had just left.
    pub abandoned: u64,
    /// Refused at once because the queue was full.
    pub shed_queue_full: u64,
    /// Refused because they had waited for the queue's timeout.
    pub shed_queue_timeout: u64,
    /// Refused at once because they would have had to wait beyond the timeout or their deadline.
    pub shed_hopeless: u64,
    /// Refused because their own deadline was past, or could not be kept any more after waiting.
    pub shed_deadline: u64,
    /// Refused at once because the pool was overloaded and its queue was as long as it should be then.
    pub shed_overload: u64,
    /// Refused after waiting, to make room for a request of a client that has fewer, or of a better class, or of one that
    /// still waits for its answer.
    pub shed_pushed_out: u64,
    /// Refused because there was no worker and none expected.
    pub shed_no_worker: u64,
    /// Withdrawn from the queue because their client left.
    pub left: u64,
    /// Clients that left while their request ran ([`crate::Pool::client_left`]).
    pub left_running: u64,
    /// How often the pool became overloaded.
    pub overloads: u64,
    /// Events that did not fit the state and changed nothing, such as the release of a worker that is down.
    pub ignored: u64,

    /// The most that ever waited at once.
    pub max_waiting: usize,
    /// The most workers that were ever busy at once.
    pub max_busy: usize,
    /// Time in the queue of all that waited, whatever became of them, and of those that wait now up to the last time told,
    /// summed up: the area under the queue's length. A second more of it in each second is one request that waits.
    pub queue_time: Micros,
    /// Time that workers had a request, those that have one now up to the last time told, summed up: the area under the number
    /// of busy workers.
    pub busy_time: Micros,
    /// Time in the queue of all that were given a worker from it, summed up.
    pub waited_time: Micros,
    /// The longest wait in the queue, whatever became of the request, those included that wait now.
    pub longest_wait: Micros,
    /// Time that workers had a request, summed up; without those that are at work now.
    pub service_time: Micros,
}

impl Stats {
    /// Refusals for all reasons.
    pub fn shed(&self) -> u64 {
        self.sheds().iter().sum()
    }

    fn sheds(&self) -> [u64; 7] {
        [
            self.shed_queue_full,
            self.shed_queue_timeout,
            self.shed_hopeless,
            self.shed_deadline,
            self.shed_overload,
            self.shed_pushed_out,
            self.shed_no_worker,
        ]
    }

    /// Whether the figures are consistent with one another; false is a defect of this crate.
    pub fn agree(&self) -> bool {
        let arrived = self.admitted + self.readmitted;
        let ended = self.started + self.shed() + self.left;
        arrived == ended + self.waiting as u64
            && self.started == self.finished + self.lost + self.abandoned + self.busy as u64
            && self.workers == self.busy + self.free
            && self.stale <= self.waiting
            && self.retiring <= self.busy
            && self.retiring + self.outdated <= self.workers
            && self.proven <= self.finished
            && self.run_at_once <= self.started
            && self.run_at_once + self.waited <= arrived
            && self.max_waiting >= self.waiting
            && self.max_busy >= self.busy
            && self.waited_time <= self.queue_time
    }
}
