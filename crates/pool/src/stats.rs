//! The pool's figures.

use crate::Micros;

/// The present state of the pool, and its totals since it was made.
///
/// The totals are consistent at every moment, which [`Stats::agree`] checks:
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
    /// How many of these have waited too long and go after all others, because the pool is overloaded.
    pub stale: usize,
    /// Workers with a request now.
    pub busy: usize,
    /// Workers without a request now (they may be idle beside a queue if the limit is reached, or if they are
    /// reserved).
    pub free: usize,
    /// Workers that are up now: busy and free.
    pub workers: usize,
    /// How many busy ones leave when they are released ([`crate::Pool::retire`]).
    pub retiring: usize,
    /// How many of those that are up and not retiring are to be replaced ([`crate::Pool::outdate`]).
    pub outdated: usize,
    /// Workers that were withdrawn and have not ended yet; not counted in `workers`.
    pub leaving: usize,
    /// Requests that may run at once now: `maxconn`, or less with `fullconn`.
    pub limit: usize,

    /// How long the oldest waiting request has waited so far; zero: no request waits.
    pub oldest_wait: Micros,
    /// The expected wait of a usual request (priority 0, of a client without waiting requests) now.
    pub expected_wait: Micros,
    /// The estimated duration of a request; zero: not known.
    pub service_estimate: Micros,
    /// After this time one in four clients leaves, of those without an answer that had not left before. `None`: not
    /// known.
    pub patience: Option<Micros>,
    /// The pool loses requests that it cannot serve, and keeps its queue short ([`crate::Order::Adaptive`]).
    pub overloaded: bool,
    /// New requests that would have to wait longer are refused at once: the queue's timeout, or less under overload.
    pub longest_admitted_wait: Micros,
    /// Requests that have waited this long go after all others; [`Micros::MAX`] while the pool is not overloaded.
    pub stale_after: Micros,

    /// Requests that arrived ([`crate::Pool::admit`]), with any result.
    pub admitted: u64,
    /// Requests that came back after their worker failed ([`crate::Pool::readmit`]), with any result.
    pub readmitted: u64,
    /// How many of both got a worker on arrival.
    pub run_at_once: u64,
    /// How many of both were put into the queue.
    pub waited: u64,
    /// Requests given to workers, on arrival or from the queue; a retry counts again.
    pub started: u64,
    /// Requests whose worker was released.
    pub finished: u64,
    /// Workers that have finished a request; each counts once.
    pub proven: u64,
    /// Requests whose worker went down while it processed them.
    pub lost: u64,
    /// Requests that were given to a worker and not begun, because their client had just left.
    pub abandoned: u64,
    /// Refused at once because the queue was full.
    pub shed_queue_full: u64,
    /// Refused because they had waited for the queue's timeout.
    pub shed_queue_timeout: u64,
    /// Refused at once because the expected wait exceeded the timeout or their deadline.
    pub shed_hopeless: u64,
    /// Refused because their deadline had passed, or could not be met any more after waiting.
    pub shed_deadline: u64,
    /// Refused at once because the pool was overloaded and its queue had the length allowed then.
    pub shed_overload: u64,
    /// Refused after waiting, to make room for a request of a client with fewer waiting requests, of a better class,
    /// or of a client that is still waiting for its answer.
    pub shed_pushed_out: u64,
    /// Refused because there was no worker and none was expected.
    pub shed_no_worker: u64,
    /// Removed from the queue because their client left.
    pub left: u64,
    /// Clients that left while their request ran ([`crate::Pool::client_left`]).
    pub left_running: u64,
    /// How often the pool became overloaded.
    pub overloads: u64,
    /// Events that did not fit the state and changed nothing, such as the release of a worker that is down.
    pub ignored: u64,

    /// The highest number of waiting requests at once.
    pub max_waiting: usize,
    /// The highest number of busy workers at once.
    pub max_busy: usize,
    /// Sum of the times in the queue of all requests, with any result, including the present ones up to the last
    /// given time: the area under the queue's length. If it grows by a second per second, one request is waiting.
    pub queue_time: Micros,
    /// Sum of the busy times of workers, including the present ones up to the last given time: the area under the
    /// number of busy workers.
    pub busy_time: Micros,
    /// Sum of the times in the queue of all requests that got a worker from it.
    pub waited_time: Micros,
    /// The longest wait in the queue, with any result, including requests that wait now.
    pub longest_wait: Micros,
    /// Sum of the busy times of workers, without those that are busy now.
    pub service_time: Micros,
}

impl Stats {
    /// Refusals for all reasons together.
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

    /// Whether the figures are consistent; false is a defect of this crate.
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
