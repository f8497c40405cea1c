//! Requests that a pool's own scripts make, or those of another pool: they go first, and where every worker waits for one,
//! another worker is started beside the limit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::oneshot::{self, error::RecvError};
use weir_pool::{Action, Micros, RequestId, ShedReason};

use super::{Asker, Lease, PoolHandle, State, scaling::After};
use crate::gateway::{client_io::Conn, clock};

/// The workers whose calls wait for a worker, of all pools, and how many calls of each do.
static CALLING: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());

/// What a pool knows of such calls.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Those that wait.
    waiting: AtomicUsize,
    /// Workers beside the limit, now.
    pub(super) beyond: AtomicUsize,
    /// How often one was started, and calls that were refused because there were enough of them.
    pub(super) started: AtomicUsize,
    pub(super) refused: AtomicUsize,
}

/// A call that waits: its caller can do nothing else.
pub(super) struct Calling {
    pool: Arc<PoolHandle>,
    pid: u32,
}

impl Calling {
    pub(super) fn new(pool: &Arc<PoolHandle>, pid: u32) -> Calling {
        *calling().entry(pid).or_default() += 1;
        pool.own.waiting.fetch_add(1, Relaxed);
        Calling {
            pool: pool.clone(),
            pid,
        }
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.pool.own.waiting.fetch_sub(1, Relaxed);
        let mut all = calling();
        if let Some(count) = all.get_mut(&self.pid) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.pid);
            }
        }
    }
}

impl State {
    /// A call of a worker waits. Where nobody could ever serve it, because all that work here wait for such calls, one more
    /// worker may come. False: there are as many already, and the call is to be refused.
    pub(super) fn relieve(
        &mut self,
        pool: &Arc<PoolHandle>,
        now: Micros,
        after: &mut After,
    ) -> bool {
        let Some(workers) = pool.settings.workers() else {
            return true;
        };
        let stats = self.pool.stats();
        let starting = self
            .scaling
            .as_ref()
            .map_or(0, |scaling| scaling.figures().starting);
        let has_place = stats.free > 0 && stats.busy < stats.limit;
        if starting > 0 || has_place || !self.are_all_calling() {
            return true;
        }
        let beyond = pool.own.beyond.load(Relaxed);
        let most = pool.max_children().unwrap_or(workers.max_children) + beyond;
        if stats.free == 0 && stats.workers + stats.leaving < most {
            // The scaling starts one by itself.
            return true;
        }
        if beyond >= workers.self_call_workers {
            pool.own.refused.fetch_add(1, Relaxed);
            return false;
        }
        pool.own.started.fetch_add(1, Relaxed);
        self.set_beyond(pool, beyond + 1, now, after);
        true
    }

    /// The workers beside the limit are needed no more, if no call waits.
    pub(super) fn end_relief(&mut self, pool: &Arc<PoolHandle>, now: Micros, after: &mut After) {
        if pool.own.beyond.load(Relaxed) > 0 && pool.own.waiting.load(Relaxed) == 0 {
            self.set_beyond(pool, 0, now, after);
        }
    }

    fn set_beyond(
        &mut self,
        pool: &Arc<PoolHandle>,
        beyond: usize,
        now: Micros,
        after: &mut After,
    ) {
        pool.own.beyond.store(beyond, Relaxed);
        if let (Some(scaling), Some(workers)) = (&mut self.scaling, pool.settings.workers()) {
            let most = pool.max_children().unwrap_or(workers.max_children);
            scaling.set_max_children(now, workers, most + beyond);
        }
        let mut limits = self.pool.limits();
        limits.maxconn = pool.maxconn() + beyond;
        for action in self.pool.set_limits(now, limits) {
            match action {
                Action::Run(assignment) => self.grant(pool, assignment, after),
                Action::Shed { request, reason } => self.refuse(request, reason, after),
            }
        }
        self.look(pool, now, after);
    }

    /// Every worker with a request waits for a call of its own that waits for a worker, or that such a worker runs.
    fn are_all_calling(&self) -> bool {
        let busy = self.slots.iter().filter(|slot| slot.leased && !slot.lost);
        // Who waits for whom.
        let callers: Vec<(u32, Option<u32>)> = busy
            .map(|slot| {
                let asker = slot.card.as_ref().and_then(|card| card.asker());
                (slot.pid, asker.and_then(|conn| conn.source.worker()))
            })
            .collect();
        let mut stuck: BTreeSet<u32> = calling().keys().copied().collect();
        loop {
            let more = callers
                .iter()
                .filter(|(worker, _)| stuck.contains(worker))
                .filter_map(|(_, caller)| caller.filter(|caller| !stuck.contains(caller)));
            let more: Vec<u32> = more.collect();
            if more.is_empty() {
                break;
            }
            stuck.extend(more);
        }
        callers.iter().all(|(worker, _)| stuck.contains(worker))
    }
}

impl PoolHandle {
    /// Workers that were started beside the limit for calls of workers, and calls that were refused.
    pub(crate) fn own_calls(&self) -> (usize, usize) {
        (
            self.own.started.load(Relaxed),
            self.own.refused.load(Relaxed),
        )
    }

    /// Waits for a worker while it is found out whether a worker asks. True beside it: nobody could ever serve the call,
    /// which was refused.
    pub(super) async fn wait_as_caller(
        self: &Arc<Self>,
        request: RequestId,
        receiver: &mut oneshot::Receiver<Result<Lease, ShedReason>>,
        mut caller: Asker,
    ) -> (Result<Result<Lease, ShedReason>, RecvError>, bool) {
        let found = tokio::select! {
            biased;
            lease = &mut *receiver => return (lease, false),
            found = &mut caller.finding => found,
        };
        let Some(pid) = found else {
            return (receiver.await, false);
        };
        let _calling = Calling::new(self, pid);
        let mut pause = FIRST_LOOK;
        loop {
            if !self.call_waits(request) {
                return (Ok(Err(ShedReason::NoWorker)), true);
            }
            // What runs here may be calls too, which found a worker at once and were not looked at.
            let look = async {
                for conn in self.unknown_askers() {
                    caller.gateway.caller(&conn).await;
                }
                tokio::time::sleep(pause).await;
            };
            tokio::select! {
                biased;
                lease = &mut *receiver => return (lease, false),
                () = look => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Connections of requests at work that may be a worker's, of which that is not known.
    fn unknown_askers(&self) -> Vec<Arc<Conn>> {
        let state = self.state();
        let leased = state.slots.iter().filter(|slot| slot.leased);
        let askers = leased.filter_map(|slot| slot.card.as_ref()?.asker());
        let unknown = askers.filter(|conn| conn.source.worker().is_none());
        unknown
            .filter(|conn| conn.source.may_be_worker())
            .take(MOST_LOOKED_AT)
            .collect()
    }

    /// A request that waits turned out to be a worker's: it goes first. False: it is out of the queue, since nobody could
    /// ever serve it.
    fn call_waits(self: &Arc<Self>, request: RequestId) -> bool {
        let mut after = After::default();
        let mut state = self.state();
        let now = Micros(clock::now());
        let mut may_wait = true;
        if state.pool.promote(now, request, i16::MIN) {
            while let Some(assignment) = state.pool.dispatch(now) {
                state.grant(self, assignment, &mut after);
            }
            let waits = state.waiting.contains_key(&request);
            may_wait = !waits || state.relieve(self, now, &mut after);
            if !may_wait {
                state.pool.leave(now, request);
                state.waiting.remove(&request);
            }
            state.wake_for_queue(&mut after);
        }
        drop(state);
        after.perform(self);
        may_wait
    }
}

fn calling() -> MutexGuard<'static, BTreeMap<u32, usize>> {
    CALLING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Between the first two looks at what runs while a call waits; twice as long each time.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Connections that are looked at in one round.
const MOST_LOOKED_AT: usize = 16;
