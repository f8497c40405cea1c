//! The questions to the pool, and its answers.

/// The number of a worker's slot, chosen by the caller: small, below [`crate::MAX_WORKERS`]. The worker that replaces
/// a dead one uses its slot again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

/// A request, numbered by the caller's counter: a pool never has two requests with the same id at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The answer for a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The request has this worker until [`crate::Pool::release`] or [`crate::Pool::worker_down`].
    Run(WorkerId),
    /// The request must wait.
    Wait {
        /// At most this many requests are ahead of it; 0: it is next.
        position: usize,
        /// This waiting request was removed from the queue to make room: refuse it with [`ShedReason::PushedOut`].
        pushed_out: Option<RequestId>,
    },
    /// The request is refused and not kept.
    Shed(ShedReason),
}

/// This request gets this worker now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// The request has left the queue.
    pub request: RequestId,
    /// The worker was idle.
    pub worker: WorkerId,
}

/// The answer to [`crate::Pool::release`].
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Released {
    /// The next request, and its worker.
    pub next: Option<Assignment>,
    /// The released worker was retired while it was busy: end it, and call [`crate::Pool::worker_down`] when it has
    /// ended. Also call [`crate::Pool::drain_waiting`], because it may have been the last worker.
    pub leaves: bool,
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShedReason {
    /// `max_queue` requests are waiting already.
    QueueFull,
    /// The request has waited for `timeout`, or its time was over before it could wait.
    QueueTimeout,
    /// The request was refused on arrival: its expected wait exceeds `timeout` or its deadline.
    Hopeless,
    /// Its deadline has passed, or is too near for any worker to meet it.
    Deadline,
    /// The pool is overloaded, and the queue has the length that is allowed then.
    Overload,
    /// The request waited, and was removed to make room for a request of a client with fewer waiting requests, of a better
    /// class, or that has not waited too long.
    PushedOut,
    /// There is no worker, and none is expected.
    NoWorker,
}

/// A waiting request that was removed from the queue and must be answered with a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The request.
    pub request: RequestId,
    /// The reason.
    pub reason: ShedReason,
}

/// An action after [`crate::Pool::set_limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Give the request to the worker.
    Run(Assignment),
    /// Refuse this request, which was waiting.
    Shed {
        /// The request has left the queue.
        request: RequestId,
        /// The reason.
        reason: ShedReason,
    },
}
