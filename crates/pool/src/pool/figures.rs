//! The pool as it is: for operators, for the scaling, and for tests.

use super::Pool;
use crate::workers::State;
use crate::{Micros, RequestId, Stats, WorkerId};

/// The pool as the scaling sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) free: usize,
    pub(crate) busy: usize,
    /// Of the busy ones: those that leave when they are released.
    pub(crate) retiring: usize,
    pub(crate) leaving: usize,
    pub(crate) outdated_free: usize,
    pub(crate) outdated_busy: usize,
    /// Requests that wait.
    pub(crate) queued: usize,
    /// Of the free ones: those that nobody who waits may use, because they are reserved.
    pub(crate) kept: usize,
    /// As the load is now.
    pub(crate) maxconn: usize,
    pub(crate) finished: u64,
    pub(crate) proven: u64,
}

impl Pool {
    /// The request that a worker has.
    pub fn running(&self, worker: WorkerId) -> Option<RequestId> {
        match self.workers.state(worker) {
            State::Busy { job, .. } => Some(job.request),
            State::Down | State::Free | State::Leaving => None,
        }
    }

    /// Whether a request is in the queue.
    pub fn is_waiting(&self, request: RequestId) -> bool {
        self.queue.contains(request)
    }

    /// Requests in the queue.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Workers that are up and without a request.
    pub fn free(&self) -> usize {
        self.workers.free()
    }

    /// The pool's figures.
    pub fn stats(&self) -> Stats {
        let (free, busy) = (self.workers.free(), self.workers.busy());
        let oldest = self.oldest_waiting();
        let oldest_wait = oldest.map_or(Micros::ZERO, |since| self.clock.since(since));
        Stats {
            waiting: self.queue.len(),
            stale: self.queue.stale(),
            limit: self.limit(0),
            oldest_wait,
            longest_wait: self.totals.longest_wait.max(oldest_wait),
            expected_wait: self.expected_wait(),
            service_estimate: self.service.estimate(),
            patience: self.patience.get(),
            overloaded: self.overload.is_on(),
            longest_admitted_wait: self.overload.longest().min(self.limits.timeout),
            stale_after: self.overload.stale_after(),
            overloads: self.overload.times(),
            busy,
            free,
            workers: free + busy,
            retiring: self.workers.retiring(),
            outdated: self.workers.outdated_free() + self.workers.outdated_busy(),
            leaving: self.workers.leaving(),
            ..self.totals
        }
    }

    /// So many requests fit into the memory that the queue has now.
    pub fn queue_capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// Walks through all workers and all that wait, and says what is inconsistent. Slow: for tests and fuzzing.
    pub fn check(&self) -> Result<(), &'static str> {
        self.workers.check()?;
        self.queue.check()?;
        if !self.stats().agree() {
            return Err("the figures do not agree");
        }
        Ok(())
    }

    /// What the scaling looks at, which is less than [`stats`](Self::stats) and cheaper.
    pub(crate) fn view(&self) -> View {
        View {
            free: self.workers.free(),
            busy: self.workers.busy(),
            retiring: self.workers.retiring(),
            leaving: self.workers.leaving(),
            outdated_free: self.workers.outdated_free(),
            outdated_busy: self.workers.outdated_busy(),
            queued: self.queue.len(),
            kept: self.kept(),
            maxconn: self.limit(0),
            finished: self.totals.finished,
            proven: self.totals.proven,
        }
    }

    /// How many workers are idle since `limit` or longer, counted to `at_most`, and since when the next one is.
    pub(crate) fn idle_since(&self, limit: Micros, at_most: usize) -> (usize, Option<Micros>) {
        self.workers.idle_since(limit, at_most)
    }

    /// When the longest waiting was first admitted.
    pub(crate) fn oldest_waiting(&self) -> Option<Micros> {
        self.queue.oldest()
    }

    /// Free workers that nobody who waits may use because they are reserved.
    fn kept(&self) -> usize {
        let is_kept = !self.limits.reserve.is_empty()
            && self.queue.len() > 0
            && self.has_place(0)
            && !self.queue.is_any_let(|priority| self.lets(priority));
        if is_kept { self.workers.free() } else { 0 }
    }
}
