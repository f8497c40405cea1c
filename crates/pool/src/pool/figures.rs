//! The present state of the pool: for operators, for the scaling, and for tests.

use super::Pool;
use crate::workers::{Job, State};
use crate::{Micros, RequestId, Stats, WorkerId};

/// The pool as the scaling sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) free: usize,
    pub(crate) busy: usize,
    /// How many busy workers leave when they are released.
    pub(crate) retiring: usize,
    pub(crate) leaving: usize,
    pub(crate) outdated_free: usize,
    pub(crate) outdated_busy: usize,
    /// Waiting requests.
    pub(crate) queued: usize,
    /// How many free workers are reserved, so that no waiting request may use them.
    pub(crate) kept: usize,
    /// At the present load.
    pub(crate) maxconn: usize,
    pub(crate) finished: u64,
    pub(crate) proven: u64,
}

impl Pool {
    /// The request of a worker.
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

    /// Workers that are up and stay so when they are released.
    pub fn staying(&self) -> usize {
        self.workers.free() + self.workers.busy() - self.workers.retiring()
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

    /// How many requests fit into the present memory of the queue.
    pub fn queue_capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// Checks all workers and all waiting requests, and returns what is inconsistent. Slow: for tests and fuzzing.
    pub fn check(&self) -> Result<(), &'static str> {
        self.workers.check()?;
        self.queue.check()?;
        let counted = |who: fn(&Job) -> u64| {
            let jobs = self.workers.jobs();
            jobs.filter(|job| self.counts_client(who(job))).count()
        };
        if counted(|job| job.client) != self.holders.total()
            || counted(|job| job.session) != self.sessions.total()
        {
            return Err("the clients do not have as many workers as are counted");
        }
        if !self.stats().agree() {
            return Err("the figures do not agree");
        }
        Ok(())
    }

    /// The values for the scaling, which are fewer than those of [`stats`](Self::stats) and cheaper.
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

    /// How many workers have been idle for `limit` or longer, counted up to `at_most`, and since when the next one is
    /// idle.
    pub(crate) fn idle_since(&self, limit: Micros, at_most: usize) -> (usize, Option<Micros>) {
        self.workers.idle_since(limit, at_most)
    }

    /// When the longest waiting request was first admitted.
    pub(crate) fn oldest_waiting(&self) -> Option<Micros> {
        self.queue.oldest()
    }

    /// Free workers that no waiting request may use because they are reserved.
    fn kept(&self) -> usize {
        let is_kept = !self.limits.reserve.is_empty()
            && self.queue.len() > 0
            && self.has_place(0)
            && !self.queue.is_any_let(|priority| self.lets(priority));
        if is_kept { self.workers.free() } else { 0 }
    }
}
