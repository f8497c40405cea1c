//! The pool's figures.

use crate::Micros;

/// The pool as it is, and what it has done since it was made.
///
/// The totals agree at every moment, which [`Stats::agree`] checks:
///
/// ```text
/// admitted + readmitted = run_at_once + waited + shed on arrival
/// admitted + readmitted = started + shed_queue_full + shed_queue_timeout + shed_no_worker + left + waiting
/// started               = finished + lost + busy
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Requests in the queue now.
    pub waiting: usize,
    /// Workers with a request now.
    pub busy: usize,
    /// Workers without one now (they may stand idle beside a queue if `maxconn` is reached).
    pub free: usize,
    /// Workers that are up now: busy and free.
    pub workers: usize,
    /// Of the busy ones: those that leave when they are released ([`crate::Pool::retire`]).
    pub retiring: usize,
    /// Of those that are up and not retiring: those that are to be replaced ([`crate::Pool::outdate`]).
    pub outdated: usize,
    /// Workers that were withdrawn and have not yet ended; not counted in `workers`.
    pub leaving: usize,

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
    /// Refused because the queue was full.
    pub shed_queue_full: u64,
    /// Refused because they waited too long, or would have had to.
    pub shed_queue_timeout: u64,
    /// Refused because there was no worker and none expected.
    pub shed_no_worker: u64,
    /// Withdrawn from the queue because their client left.
    pub left: u64,
    /// Events that did not fit the state and changed nothing, such as the release of a worker that is down.
    pub ignored: u64,

    /// The most that ever waited at once.
    pub max_waiting: usize,
    /// The most workers that were ever busy at once.
    pub max_busy: usize,
    /// Time in the queue of all that were given a worker from it, summed up.
    pub waited_time: Micros,
    /// The longest of these waits.
    pub longest_wait: Micros,
    /// Time that workers had a request, summed up; without those that are at work now.
    pub service_time: Micros,
}

impl Stats {
    /// Nothing yet.
    pub(crate) const ZERO: Self = Self {
        waiting: 0,
        busy: 0,
        free: 0,
        workers: 0,
        retiring: 0,
        outdated: 0,
        leaving: 0,
        admitted: 0,
        readmitted: 0,
        run_at_once: 0,
        waited: 0,
        started: 0,
        finished: 0,
        proven: 0,
        lost: 0,
        shed_queue_full: 0,
        shed_queue_timeout: 0,
        shed_no_worker: 0,
        left: 0,
        ignored: 0,
        max_waiting: 0,
        max_busy: 0,
        waited_time: Micros::ZERO,
        longest_wait: Micros::ZERO,
        service_time: Micros::ZERO,
    };

    /// Refusals for all reasons.
    pub fn shed(&self) -> u64 {
        self.shed_queue_full + self.shed_queue_timeout + self.shed_no_worker
    }

    /// Whether the figures are consistent with one another; false is a defect of this crate.
    pub fn agree(&self) -> bool {
        let arrived = self.admitted + self.readmitted;
        let ended = self.started + self.shed() + self.left;
        arrived == ended + self.waiting as u64
            && self.started == self.finished + self.lost + self.busy as u64
            && self.workers == self.busy + self.free
            && self.retiring <= self.busy
            && self.retiring + self.outdated <= self.workers
            && self.proven <= self.finished
            && self.run_at_once <= self.started
            && self.run_at_once + self.waited <= arrived
            && self.max_waiting >= self.waiting
            && self.max_busy >= self.busy
    }
}
