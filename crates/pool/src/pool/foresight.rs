//! Predictions: how long a request would wait, whether that is too long, and when it would not be.

use super::Pool;
use crate::{Micros, ShedReason, Ticket};

impl Pool {
    /// The expected wait of a usual request (priority 0, of a client without waiting requests) that comes now; zero
    /// if it would not wait, or if nothing is known.
    pub(super) fn expected_wait(&self) -> Micros {
        self.expected_wait_at(self.clock)
    }

    fn expected_wait_at(&self, now: Micros) -> Micros {
        let stale_last = self.overload.is_on();
        let waits = self.queue.has_before(0, stale_last) || !self.has_place(1) || !self.lets(0);
        if !waits {
            return Micros::ZERO;
        }
        let place = self.queue.place_of(0, NOBODY, stale_last);
        self.wait_at(now, place, self.workers_now())
    }

    /// How many requests would at most be ahead of a new request with this ticket, and its expected wait;
    /// [`admit`](Pool::admit) refuses by these values.
    pub fn foresee_wait(&self, ticket: &Ticket) -> (usize, Micros) {
        let stale_last = self.overload.is_on();
        let own = self.queue.flow_of(ticket.priority, ticket.client);
        let has_enough = self.session_has_enough(ticket.session);
        let place = self
            .queue
            .place_in(ticket.priority, (own, has_enough), stale_last);
        (
            place,
            self.wait_at(self.clock, place, self.workers_for(ticket.priority)),
        )
    }

    /// After what time a new request is expected to find a place: when the excess in the queue is gone, and, while
    /// more are refused than can be served, those that were refused as well. A second if nothing is known; the
    /// queue's timeout while there is no worker.
    pub fn retry_after(&self, now: Micros) -> Micros {
        if self.workers.free() + self.workers.busy() == 0 {
            return self.limits.timeout;
        }
        let each = self.spacing();
        let waits = self.expected_wait_at(now.max(self.clock));
        let mut excess = waits.since(self.overload.longest().min(self.limits.timeout));
        if self.queue.len() >= self.limits.max_queue {
            excess = excess.max(each);
        }
        if self.overload.is_on() {
            let (refused, finished) = self.overload.refused_and_finished();
            let seconds = refused.div_ceil(finished.max(1));
            excess = excess.after(Micros::from_secs(seconds));
        }
        excess.max(AT_LEAST)
    }

    /// Why a new request with this many ahead of it is refused at once; `None`: it may wait.
    pub(super) fn foresee(
        &mut self,
        now: Micros,
        ticket: &Ticket,
        place: usize,
        start_by: Micros,
    ) -> Option<ShedReason> {
        if self.service.is_known(now) {
            let wait = self.wait_at(now, place, self.workers_for(ticket.priority));
            if wait > self.limits.timeout {
                self.overload.lost();
                return Some(ShedReason::Hopeless);
            }
            if now.after(wait) > start_by {
                self.overload.lost_by_deadline();
                self.patience.left(ticket.deadline.since(now));
                return Some(ShedReason::Hopeless);
            }
        }
        if self.overload.is_on() && place >= self.overload.most() {
            self.overload.refused();
            return Some(ShedReason::Overload);
        }
        None
    }

    /// The last moment at which a worker can still meet a deadline. The duration of a request is not known in
    /// advance: at most half of its time is reserved for it.
    pub(super) fn start_by(&self, deadline: Micros, admitted_at: Micros) -> Micros {
        if deadline == Micros::MAX {
            return deadline;
        }
        let half = deadline.since(admitted_at).0 / 2;
        Micros(deadline.0 - self.service.estimate().0.min(half))
    }

    /// Workers that serve waiting requests now, at least 1.
    pub(super) fn workers_now(&self) -> usize {
        let up = self.workers.free() + self.workers.busy();
        up.min(self.limit(1)).max(1)
    }

    /// Workers that will serve a class at best, including those that may still come.
    fn workers_for(&self, priority: i16) -> usize {
        let up = self.workers.free() + self.workers.busy();
        let all = up.max(self.soon).min(self.limits.maxconn);
        let kept = self.limits.reserve.kept_from_class(priority);
        all.saturating_sub(kept).max(1)
    }

    /// The expected wait of a request with this many ahead of it. If a worker is about to start for it, it waits only
    /// for that. Otherwise the next worker is expected to be free soon; if even the request that was started last has
    /// run longer than usual, the expectation is the time that it has already taken. The estimated duration is
    /// corrected as if the running requests ended now.
    fn wait_at(&self, now: Micros, place: usize, workers: usize) -> Micros {
        let busy = self.workers.busy();
        let Some(place) = place.checked_sub(workers.saturating_sub(busy)) else {
            return Micros::ZERO;
        };
        let service = self.service.estimate().0;
        let excess = match busy {
            0 => 0,
            _ => now.since(self.last_start).0.saturating_sub(service),
        };
        let corrected = service + excess / MEAN_OF * (busy as u64).min(MEAN_OF);
        let workers = workers as u64;
        let first = (service / workers).saturating_add(excess);
        Micros(first.saturating_add(corrected.saturating_mul(place as u64) / workers))
    }

    /// Time between two finished requests while requests wait.
    fn spacing(&self) -> Micros {
        let service = self.overload.service().unwrap_or(self.service.estimate());
        Micros(service.0 / self.workers_now() as u64)
    }
}

/// A client without waiting requests: the chance that a real client has this number is 1 in 2⁶⁴.
const NOBODY: u64 = u64::MAX;

/// Number of requests in the mean.
const MEAN_OF: u64 = 64;

/// Minimum of the advised time.
const AT_LEAST: Micros = Micros::from_secs(1);
