//! What the pool is asked about, and what it answers.

/// A worker's slot number, given by the caller: small, below [`crate::MAX_WORKERS`], and used again by the worker that
/// takes a dead one's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

/// A request, named by the caller from a counter: never two with the same id in a pool at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The answer to a request that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It has this worker until [`crate::Pool::release`] or [`crate::Pool::worker_down`].
    Run(WorkerId),
    /// It waits.
    Wait {
        /// At most so many are before it; 0: it is next.
        position: usize,
        /// This one, which waited, is out of the queue for it: answer it with [`ShedReason::PushedOut`].
        pushed_out: Option<RequestId>,
    },
    /// It is refused and forgotten.
    Shed(ShedReason),
}

/// This request has this worker now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// It is out of the queue.
    pub request: RequestId,
    /// It was free.
    pub worker: WorkerId,
}

/// The answer to [`crate::Pool::release`].
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Released {
    /// Who is next, and on which worker.
    pub next: Option<Assignment>,
    /// The worker that was released leaves: it was retired while it was busy. End it, and report
    /// [`crate::Pool::worker_down`] when it has ended; call [`crate::Pool::drain_waiting`], since it may have been the last one.
    pub leaves: bool,
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShedReason {
    /// `max_queue` requests are waiting.
    QueueFull,
    /// It waited for `timeout`, or its time was up before it could wait.
    QueueTimeout,
    /// It was not let into the queue: by what is known it would have had to wait beyond `timeout` or its deadline.
    Hopeless,
    /// Its own deadline is past, or so near that a worker could not keep it any more.
    Deadline,
    /// The pool is overloaded, and its queue as long as it should be then.
    Overload,
    /// It waited, and had to make room: for a request of a client that has fewer waiting, of a better class, or that has
    /// not waited for too long.
    PushedOut,
    /// No worker is there and none is expected.
    NoWorker,
}

/// A request that waited, is out of the queue, and is to be answered with a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Which.
    pub request: RequestId,
    /// Why.
    pub reason: ShedReason,
}

/// What is to be done after [`crate::Pool::set_limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Give the request to the worker.
    Run(Assignment),
    /// Answer the request, which waited, with this refusal.
    Shed {
        /// It is out of the queue.
        request: RequestId,
        /// Why.
        reason: ShedReason,
    },
}
