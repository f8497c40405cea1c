//! Requests with the same key run one after the other (`serialize_by`). The others wait here, without occupying a
//! worker. An example is requests of one PHP session, which would wait for the session's lock; [`super::turns::sessions`]
//! finds out for which scripts this happens.

pub(crate) mod sessions;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::PoolHandle;
use crate::clock;

/// The waiting requests by key. For each key in the map one request runs.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<u64, Waiting>>);

/// In order of arrival.
type Waiting = VecDeque<oneshot::Sender<Turn>>;

/// The right to run for a key. Dropping it gives the right to the next request.
#[derive(Debug)]
pub(crate) struct Turn {
    /// `None`: the right was already passed on.
    pool: Option<&'static PoolHandle>,
    key: u64,
}

/// Why a request does not get its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// The limit of waiting requests with this key is reached; its value.
    Full(usize),
    /// The request has waited for `queue_timeout`.
    TimedOut,
    /// The request's own deadline has passed.
    Late,
}

impl PoolHandle {
    /// Waits until it is this request's turn for `key`; returns at once if no other request runs for it.
    ///
    /// # Errors
    ///
    /// Why the request does not get its turn.
    pub(crate) async fn turn(&'static self, key: u64, deadline: u64) -> Result<Turn, NoTurn> {
        let queue = &self.settings.queue;
        let receiver = {
            let mut keys = self.turns.keys();
            let Some(waiting) = keys.get_mut(&key) else {
                keys.insert(key, Waiting::new());
                let pool = Some(self);
                return Ok(Turn { pool, key });
            };
            // Requests whose clients have left do not count.
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

    /// How many requests wait for another one with the same key.
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
                pool: Some(pool),
                key: self.key,
            };
            match next.send(turn) {
                Ok(()) => return,
                // That request has left: the next one is tried.
                Err(mut turn) => turn.pool = None,
            }
        }
    }
}
