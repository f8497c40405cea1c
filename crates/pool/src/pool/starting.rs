//! From the queue to a worker: which request is next, on which worker, and what is counted while it runs.
//!
//! No client gets more than its share of the workers while others wait (`Limits::client_share`). "Others" are clients
//! of the same class that wait in flows: a better class goes first in any case, and retries do too, but they are few. A
//! client that has its share loses its turn. It gets the next one as soon as it has less, or when no other client
//! waits. So this rule leaves no worker idle, and no client waits for ever: a skipped client has workers, and gets its
//! turn again when they finish. The clients of requests with client 0 are not known, so they have no such limit.
//!
//! The same holds for the sessions of one client: a session that has its share of the workers is passed by while
//! another request of its client waits. Many visitors may come through one proxy, whose address is then the client; if
//! one of them sends a crowd of requests that wait for the lock of his session, the others still get workers. Sessions
//! divide only the share of their client, and never change its turns with other clients. A client that invents a
//! session for each request gets what requests without sessions get: service in the order of arrival.

use super::Pool;
use crate::holders::Holders;
use crate::limits::Reserves;
use crate::workers::{Job, Workers};
use crate::{Assignment, Limits, MAX_RESERVES, Micros, Ticket, WorkerId};

impl Pool {
    /// Gives the next request to a worker, if one waits and a worker may be used.
    #[inline]
    pub(super) fn next(&mut self, now: Micros) -> Option<Assignment> {
        if self.queue.len() == 0 {
            self.overload.queue_is_empty();
            return None;
        }
        match self.has_place(0) {
            true => self.give_place(now),
            false => None,
        }
    }

    /// A request waits, and there is a place.
    fn give_place(&mut self, now: Micros) -> Option<Assignment> {
        let job = self.pop(now, self.limit(0))?;
        debug_assert!(self.has_place(1) && self.lets(job.priority), "there was");
        let request = job.request;
        let worker = self.run(now, &job)?;
        Some(Assignment { request, worker })
    }

    /// A request waits, and a worker has finished: gives it the next request directly, if it would be the only free
    /// worker, and the limit and the reserves allow it.
    pub(super) fn pass_on(&mut self, now: Micros, worker: WorkerId) -> Option<Assignment> {
        let others = self.workers.busy() - 1;
        let limit = self.limits.at_load(others + self.queue.len());
        if self.workers.free() > 0 || others >= limit {
            return None;
        }
        let job = self.pop(now, limit)?;
        self.workers.pass_on(worker, &job, now);
        self.count_start(now, &job);
        let request = job.request;
        Some(Assignment { request, worker })
    }

    /// Takes the next request out of the queue, if one may run. `limit`: how many requests may run at once now.
    #[inline]
    fn pop(&mut self, now: Micros, limit: usize) -> Option<Job> {
        let stale_last = self.overload.is_on();
        let share = self.share(limit);
        let (workers, limits, outsiders) = (&self.workers, &self.limits, &self.outsiders);
        let (holders, sessions) = (&self.holders, &self.sessions);
        let waiting = self.queue.pop(
            stale_last,
            |priority| reserves_let(workers, limits, outsiders, priority),
            |client| has_share(holders, share, client),
            |session| has_share(sessions, share, session),
        )?;
        let wait = now.since(waiting.queued_at);
        self.totals.waited_time = self.totals.waited_time.after(wait);
        self.totals.longest_wait = self.totals.longest_wait.max(wait);
        let answered = now
            .after(self.service.estimate())
            .since(waiting.admitted_at);
        if self
            .patience
            .get()
            .is_some_and(|patience| answered >= patience)
        {
            self.overload.lost();
        }
        Some(Job {
            request: waiting.request,
            home: waiting.home,
            priority: waiting.priority,
            client: waiting.client,
            session: waiting.session,
            admitted_at: waiting.admitted_at,
        })
    }

    /// `more`: requests that are neither running nor waiting, but count in the load.
    #[inline]
    pub(super) fn start(&mut self, now: Micros, job: &Job, more: usize) -> Option<WorkerId> {
        if !self.has_place(more) || !self.lets(job.priority) {
            return None;
        }
        self.run(now, job)
    }

    /// Gives a request to the most suitable free worker, if there is one.
    #[inline]
    fn run(&mut self, now: Micros, job: &Job) -> Option<WorkerId> {
        let worker = self.workers.take(job, now)?;
        self.count_start(now, job);
        Some(worker)
    }

    /// A worker gets the request.
    #[inline]
    fn count_start(&mut self, now: Micros, job: &Job) {
        self.begins_work();
        if self.workers.busy() == 1 {
            self.service.woke(now);
        }
        self.last_start = now;
        self.totals.started += 1;
        self.totals.max_busy = self.totals.max_busy.max(self.workers.busy());
        if self.counts_client(job.client) {
            self.holders.add(job.client);
        }
        if self.counts_client(job.session) {
            self.sessions.add(job.session);
        }
        if !self.limits.reserve.is_empty() {
            count_outsiders(
                &mut self.outsiders,
                &self.limits.reserve,
                job.priority,
                |n| n + 1,
            );
        }
    }

    /// How many workers one client may have while others wait; none: any number. `limit`: how many requests may run at
    /// once now.
    #[inline]
    fn share(&self, limit: usize) -> Option<usize> {
        if self.limits.client_share >= 100 {
            return None;
        }
        let workers = limit.min(self.workers.free() + self.workers.busy());
        Some((workers * usize::from(self.limits.client_share) / 100).max(1))
    }

    /// Whether this session has its share of the workers.
    pub(super) fn session_has_enough(&self, session: u64) -> bool {
        has_share(&self.sessions, self.share(self.limit(0)), session)
    }

    /// At most how many would be ahead of a new request, whose flow is `own`. Those of its client that would be passed by are
    /// set aside first.
    pub(super) fn place_in(
        &mut self,
        ticket: &Ticket,
        own: Option<u32>,
        stale_last: bool,
    ) -> usize {
        let share = self.share(self.limit(0));
        let sessions = &self.sessions;
        if let Some(flow) = own {
            self.queue
                .set_aside(flow, |session| has_share(sessions, share, session));
        }
        let has_enough = has_share(sessions, share, ticket.session);
        self.queue
            .place_in(ticket.priority, (own, has_enough), stale_last)
    }

    /// Whether the workers of this client or session are counted.
    #[inline]
    pub(super) fn counts_client(&self, client: u64) -> bool {
        client != 0 && self.limits.client_share < 100
    }

    /// Whether a worker is free and the limit allows one more.
    pub(super) fn has_place(&self, more: usize) -> bool {
        self.workers.free() > 0 && self.workers.busy() < self.limit(more)
    }

    /// How many requests may run if this many more come.
    pub(super) fn limit(&self, more: usize) -> usize {
        self.limits
            .at_load(self.workers.busy() + self.queue.len() + more)
    }

    /// Whether the reserves let a request of this class use one of the free workers.
    pub(super) fn lets(&self, priority: i16) -> bool {
        reserves_let(&self.workers, &self.limits, &self.outsiders, priority)
    }

    /// A worker has ended the request.
    pub(super) fn count_end(&mut self, now: Micros, job: &Job, since: Micros) {
        let time = now.since(since);
        self.totals.service_time = self.totals.service_time.after(time);
        self.patience.stayed(now.since(job.admitted_at));
        self.ends_job(job);
    }

    /// The same, only for the counts of running requests.
    pub(super) fn ends_job(&mut self, job: &Job) {
        self.ends_work();
        if self.counts_client(job.client) {
            self.holders.take(job.client);
        }
        if self.counts_client(job.session) {
            self.sessions.take(job.session);
        }
        if !self.limits.reserve.is_empty() {
            count_outsiders(
                &mut self.outsiders,
                &self.limits.reserve,
                job.priority,
                |n| n - 1,
            );
        }
    }
}

/// Whether a client or session has its share.
#[inline]
fn has_share(holders: &Holders, share: Option<usize>, who: u64) -> bool {
    share.is_some_and(|share| who != 0 && holders.count(who) >= share)
}

/// Counts a request for each reserve whose workers it may not use.
pub(super) fn count_outsiders(
    outsiders: &mut [usize; MAX_RESERVES],
    reserves: &Reserves,
    priority: i16,
    count: fn(usize) -> usize,
) {
    for (outsiders, reserve) in outsiders.iter_mut().zip(reserves.as_slice()) {
        if priority > reserve.priority {
            *outsiders = count(*outsiders);
        }
    }
}

/// Whether one more request of this class may run beside the running ones. Each reserve, together with the reserves
/// for better classes, keeps its workers from all other classes; the last worker is for all.
fn reserves_let(
    workers: &Workers,
    limits: &Limits,
    outsiders: &[usize; MAX_RESERVES],
    priority: i16,
) -> bool {
    let reserves = limits.reserve.as_slice();
    if reserves.is_empty() {
        return true;
    }
    let all = limits.maxconn.min(workers.free() + workers.busy());
    reserves
        .iter()
        .zip(outsiders)
        .filter(|(reserve, _)| priority > reserve.priority)
        .all(|(reserve, outsiders)| {
            *outsiders < all.saturating_sub(limits.reserve.kept_from(reserve)).max(1)
        })
}
