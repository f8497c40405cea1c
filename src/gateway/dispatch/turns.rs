//! Requests of one key that run one after the other (`serialize_by`): the others wait here, and hold no worker while they
//! would wait for the same lock, as requests of one PHP session do.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::PoolHandle;
use crate::gateway::clock;

/// Who waits, by key. For each key in here one request runs.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<u64, Waiting>>);

/// In the order in which they came.
type Waiting = VecDeque<oneshot::Sender<Turn>>;

/// The right to run for a key. Dropped, it goes to the next.
#[derive(Debug)]
pub(crate) struct Turn {
    /// None: it is somebody else's already.
    pool: Option<Arc<PoolHandle>>,
    key: u64,
}

/// Why a request does not get its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// So many of its key wait already.
    Full(usize),
    /// It has waited for the queue's timeout.
    TimedOut,
    /// Its own deadline is past.
    Late,
}

impl PoolHandle {
    /// The turn of a request whose key this is, at once or after those before it.
    ///
    /// # Errors
    ///
    /// Why it does not get it.
    pub(crate) async fn turn(self: &Arc<Self>, key: u64, deadline: u64) -> Result<Turn, NoTurn> {
        let queue = &self.settings.queue;
        let receiver = {
            let mut keys = self.turns.keys();
            let Some(waiting) = keys.get_mut(&key) else {
                keys.insert(key, Waiting::new());
                let pool = Some(self.clone());
                return Ok(Turn { pool, key });
            };
            // Those that have left make room.
            waiting.retain(|sender| !sender.is_closed());
            if waiting.len() >= queue.serialize_queue {
                return Err(NoTurn::Full(waiting.len()));
            }
            let (sender, receiver) = oneshot::channel();
            waiting.push_back(sender);
            receiver
        };
        let limit = clock::deadline(queue.timeout).min(deadline);
        let left = Duration::from_micros(limit.saturating_sub(clock::now()));
        match tokio::time::timeout(left, receiver).await {
            Ok(Ok(turn)) => Ok(turn),
            _ if limit == deadline => Err(NoTurn::Late),
            _ => Err(NoTurn::TimedOut),
        }
    }

    /// Requests that wait for another one of their key.
    pub(crate) fn waiting_for_turns(&self) -> usize {
        let keys = self.turns.keys();
        let waiting = keys.values().flatten();
        waiting.filter(|sender| !sender.is_closed()).count()
    }
}

impl Turns {
    fn keys(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        loop {
            let next = {
                let mut keys = pool.turns.keys();
                match keys.get_mut(&self.key).and_then(Waiting::pop_front) {
                    Some(next) => next,
                    None => {
                        keys.remove(&self.key);
                        return;
                    }
                }
            };
            let turn = Turn {
                pool: Some(pool.clone()),
                key: self.key,
            };
            match next.send(turn) {
                Ok(()) => return,
                // It has left: the one behind it is next.
                Err(mut turn) => turn.pool = None,
            }
        }
    }
}
