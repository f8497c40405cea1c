//! Drives a [`Pool`]: the pool decides by request ids; the driver knows who waits for each
//! decision, and when the next one is due. Pools of workers (the gateway's `dispatch`) and the
//! calls to an origin ([`limiter`](crate::limiter)) use it.
//!
//! The user holds it behind a lock, and informs requests ([`Sender`]) after that is free.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    ops::{Deref, DerefMut},
};

use tokio::sync::oneshot;
use weir_observe::clock::NEVER;
use weir_pool::{Micros, Pool, Refused, RequestId, ShedReason};

/// A pool, and the requests that wait for its workers. `L`: the right to use one.
#[derive(Debug)]
pub struct Driver<L> {
    pool: Pool,
    pub(crate) waiting: ByNumber<RequestId, Sender<L>>,
    expired: Vec<Refused>,
    wakes_at: u64,
}

/// Gives a waiting request its worker, or the reason why it gets none.
pub type Sender<L> = oneshot::Sender<Result<L, ShedReason>>;

/// The receiving side for a waiting request.
pub type Receiver<L> = oneshot::Receiver<Result<L, ShedReason>>;

/// A table by the numbers of requests. They are counted by the gateway, so that nobody can choose some that meet in one
/// place of the table, and a multiplication is enough.
pub type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// The hasher of [`ByNumber`].
#[derive(Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        // The table takes its place from the lowest bits, which numbers in a row fill evenly, and a tag from the highest.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl<L> Driver<L> {
    pub fn new(pool: Pool) -> Driver<L> {
        Driver {
            pool,
            waiting: ByNumber::default(),
            expired: Vec::new(),
            wakes_at: NEVER,
        }
    }

    /// The pool has put a request into its queue.
    pub fn waits(&mut self, request: RequestId) -> Receiver<L> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(request, sender);
        receiver
    }

    /// Whether a request waits.
    pub fn is_waiting(&self, request: RequestId) -> bool {
        self.waiting.contains_key(&request)
    }

    /// The pool has decided about a waiting request. `None`: its client is leaving.
    pub fn decided(&mut self, request: RequestId) -> Option<Sender<L>> {
        self.waiting.remove(&request)
    }

    /// The client of a waiting request has left.
    pub fn leave(&mut self, now: Micros, request: RequestId) {
        self.pool.leave(now, request);
        self.waiting.remove(&request);
    }

    /// Removes requests from the queue that have waited too long.
    pub fn expire(&mut self, now: Micros, mut refuse: impl FnMut(Sender<L>, ShedReason)) {
        self.pool.expire(now, &mut self.expired);
        for Refused { request, reason } in self.expired.drain(..) {
            if let Some(sender) = self.waiting.remove(&request) {
                refuse(sender, reason);
            }
        }
    }

    /// When the task that expires requests wakes next; [`NEVER`]: nothing is planned.
    pub fn wakes_at(&self) -> u64 {
        self.wakes_at
    }

    /// Plans a wake. `true`: it is earlier than planned before.
    #[must_use]
    pub fn wake_at(&mut self, at: u64) -> bool {
        let is_earlier = at < self.wakes_at;
        self.wakes_at = self.wakes_at.min(at);
        is_earlier
    }

    /// Plans a wake for when the first waiting request reaches its limit. `true`: it is earlier than planned before.
    #[must_use]
    pub fn wake_for_queue(&mut self) -> bool {
        let deadline = self.pool.next_deadline();
        deadline.is_some_and(|deadline| self.wake_at(deadline.0))
    }

    /// The task was woken as planned, or has ended: nothing is planned.
    pub fn woken(&mut self) {
        self.wakes_at = NEVER;
    }
}

impl<L> Deref for Driver<L> {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}

impl<L> DerefMut for Driver<L> {
    fn deref_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }
}
