//! Requests that come from scripts of this pool or of another pool. They go first. If every worker waits for such a
//! request, a worker beyond the limit is started.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use weir_pool::{Action, Micros, RequestId, ShedReason};
use weir_upstream::driver::Receiver;

use super::{Called, Lease, PoolHandle, State, scaling::Effects};
use crate::{Gateway, clock, scripts::self_calls::Requester};

/// The workers of all pools whose calls wait for a worker, and how many calls of each wait.
static CALLING: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());

/// A pool's state about such calls.
#[derive(Debug, Default)]
pub(super) struct SelfCalls {
    /// How many such calls wait.
    waiting: AtomicUsize,
    /// Number of workers beyond the limit now.
    pub(super) beyond: AtomicUsize,
    /// How many were started, and how many calls were refused because there were enough of them.
    pub(super) started: AtomicUsize,
    pub(super) refused: AtomicUsize,
}

/// A waiting call of a worker: the worker is blocked by it.
pub(super) struct BlockedWorker {
    pool: &'static PoolHandle,
    pid: u32,
}

impl BlockedWorker {
    pub(super) fn new(pool: &'static PoolHandle, pid: u32) -> BlockedWorker {
        *calling().entry(pid).or_default() += 1;
        pool.self_calls.waiting.fetch_add(1, Relaxed);
        BlockedWorker { pool, pid }
    }
}

impl Drop for BlockedWorker {
    fn drop(&mut self) {
        self.pool.self_calls.waiting.fetch_sub(1, Relaxed);
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
    /// A call of a worker waits. If no worker could ever serve it, because all busy workers wait for such calls, one
    /// more worker may be started. False: the maximum of those is reached, and the call is to be refused.
    pub(super) fn relieve(
        &mut self,
        pool: &'static PoolHandle,
        now: Micros,
        effects: &mut Effects,
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
        let beyond = pool.self_calls.beyond.load(Relaxed);
        let most = pool.max_children().unwrap_or(workers.max_children) + beyond;
        if stats.free == 0 && stats.workers + stats.leaving < most {
            // The scaling starts a worker in any case.
            return true;
        }
        if beyond >= workers.self_call_workers {
            if stats.leaving > 0 && stats.workers < most {
                // A worker that ends holds the place of the one to start. The caller looks again.
                return true;
            }
            pool.self_calls.refused.fetch_add(1, Relaxed);
            return false;
        }
        pool.self_calls.started.fetch_add(1, Relaxed);
        self.set_beyond(pool, beyond + 1, now, effects);
        true
    }

    /// If no call waits, the workers beyond the limit are not needed any more.
    pub(super) fn end_relief(
        &mut self,
        pool: &'static PoolHandle,
        now: Micros,
        effects: &mut Effects,
    ) {
        if pool.self_calls.beyond.load(Relaxed) > 0 && pool.self_calls.waiting.load(Relaxed) == 0 {
            self.set_beyond(pool, 0, now, effects);
        }
    }

    fn set_beyond(
        &mut self,
        pool: &'static PoolHandle,
        beyond: usize,
        now: Micros,
        effects: &mut Effects,
    ) {
        pool.self_calls.beyond.store(beyond, Relaxed);
        if let (Some(scaling), Some(workers)) = (&mut self.scaling, pool.settings.workers()) {
            let most = pool.max_children().unwrap_or(workers.max_children);
            scaling.set_max_children(now, workers, most + beyond);
        }
        let mut limits = self.pool.limits();
        limits.maxconn = pool.maxconn() + beyond;
        for action in self.pool.set_limits(now, limits) {
            match action {
                Action::Run(assignment) => self.grant(pool, assignment, effects),
                Action::Shed { request, reason } => self.refuse(request, reason, effects),
            }
        }
        self.look(pool, now, effects);
    }

    /// Whether every busy worker is blocked by its own call: the call waits for a worker, or runs on a worker that is
    /// blocked itself.
    fn are_all_calling(&self) -> bool {
        let busy = self.slots.iter().filter(|slot| slot.leased && !slot.lost);
        // Each busy worker, and the worker that waits for its request.
        let callers: Vec<(u32, Option<u32>)> = busy
            .map(|slot| {
                let asker = slot.score.as_ref().and_then(|score| score.asker());
                let asker = asker.and_then(Requester::numbered);
                (slot.pid, asker.and_then(|asker| asker.worker()))
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
    /// Waiting calls that are known to come from workers.
    pub(crate) fn self_calls_waiting(&self) -> usize {
        self.self_calls.waiting.load(Relaxed)
    }

    /// How many workers were started beyond the limit for calls of workers, and how many calls were refused.
    pub(crate) fn self_calls(&self) -> (usize, usize) {
        (
            self.self_calls.started.load(Relaxed),
            self.self_calls.refused.load(Relaxed),
        )
    }

    /// Waits for a worker, for a call that this worker has made. True beside the result: no worker could ever serve the
    /// call, so it was refused.
    pub(super) async fn wait_as_call(
        &'static self,
        request: RequestId,
        mut receiver: Receiver<Lease>,
        (gateway, pid): (&'static Gateway, u32),
    ) -> Called {
        let _calling = BlockedWorker::new(self, pid);
        let mut pause = FIRST_LOOK;
        loop {
            if !self.call_waits(request) {
                return (Ok(Err(ShedReason::NoWorker)), true);
            }
            // Running requests may be such calls too: if a request got a worker at once, weir has not looked up who
            // made it.
            let look = async {
                for asker in self.unknown_askers() {
                    gateway.caller(&asker).await;
                }
                tokio::time::sleep(pause).await;
            };
            tokio::select! {
                biased;
                lease = &mut receiver => return (lease, false),
                () = look => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Who has sent the running requests that may come from a worker, if that is not known yet.
    fn unknown_askers(&self) -> Vec<Requester> {
        let state = self.state();
        let leased = state.slots.iter().filter(|slot| slot.leased);
        let askers = leased.filter_map(|slot| slot.score.as_ref()?.asker());
        let askers = askers.filter_map(Requester::numbered);
        let unknown = askers.filter(|asker| asker.worker().is_none());
        unknown
            .filter(Requester::may_be_worker)
            .take(MOST_LOOKED_AT)
            .collect()
    }

    /// A waiting request comes from a worker, so it goes first. False: it was removed from the queue, because no
    /// worker could ever serve it.
    fn call_waits(&'static self, request: RequestId) -> bool {
        let mut effects = Effects::default();
        let mut state = self.state();
        let now = Micros(clock::now());
        let mut may_wait = true;
        if state.pool.promote(now, request, i16::MIN) {
            while let Some(assignment) = state.pool.dispatch(now) {
                state.grant(self, assignment, &mut effects);
            }
            let waits = state.pool.is_waiting(request);
            may_wait = !waits || state.relieve(self, now, &mut effects);
            if !may_wait {
                state.pool.leave(now, request);
            }
            state.wake_for_queue(&mut effects);
        }
        drop(state);
        effects.perform(self);
        may_wait
    }
}

fn calling() -> MutexGuard<'static, BTreeMap<u32, usize>> {
    CALLING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time between the first two checks of running requests while a call waits. It doubles each time.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How many connections are checked in one round.
const MOST_LOOKED_AT: usize = 16;
