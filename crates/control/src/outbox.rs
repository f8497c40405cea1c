//! Sends messages to the manager without waiting for it.
//!
//! A manager that hangs must not block a reactor. Messages that do not fit into the channel are kept here in order,
//! and a thread sends them. While many are waiting, messages that will be repeated anyway are dropped. Beyond
//! [`MOST_KEPT`] messages the manager counts as lost, and no more are kept.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use crate::{Channel, ToManager};

/// Sends messages to the manager. Never blocks.
#[derive(Clone)]
pub struct ManagerHandle(Arc<dyn Fn(ToManager) + Send + Sync>);

/// The queue of messages to the manager. Shared by all threads.
struct Outbox {
    channel: Arc<Channel>,
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<ToManager>,
    /// Whether the log says already that messages are lost.
    told: bool,
}

impl ManagerHandle {
    /// Calls `send` with each message.
    pub fn new(send: impl Fn(ToManager) + Send + Sync + 'static) -> ManagerHandle {
        ManagerHandle(Arc::new(send))
    }

    /// Sends over `channel`, with a thread for messages that do not fit into it.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(channel: Arc<Channel>) -> Result<ManagerHandle, String> {
        let outbox = Outbox::start(channel)?;
        Ok(ManagerHandle::new(move |message| outbox.send(message)))
    }

    /// Sends a message, or keeps it until the channel has room. Never waits.
    pub fn tell(&self, message: ToManager) {
        (self.0)(message);
    }
}

impl std::fmt::Debug for ManagerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ManagerHandle")
    }
}

impl Outbox {
    fn start(channel: Arc<Channel>) -> Result<Arc<Self>, String> {
        let outbox = Arc::new(Self {
            channel,
            state: Mutex::default(),
            filled: Condvar::new(),
        });
        let sender = outbox.clone();
        thread::Builder::new()
            .name("to manager".into())
            .stack_size(SMALL_STACK)
            .spawn(move || sender.send_what_waits())
            .map_err(|error| format!("cannot start the thread that tells the manager: {error}"))?;
        Ok(outbox)
    }

    fn send(&self, message: ToManager) {
        let mut state = self.lock();
        if state.queue.is_empty() {
            match self.channel.tell_manager_now(&message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The thread that reads the manager's messages notices if the manager is gone.
                _ => return,
            }
        }
        let many = state.queue.len() >= MANY;
        if many && is_asked_again(&message) {
            return;
        }
        if state.queue.len() >= MOST_KEPT {
            let told = std::mem::replace(&mut state.told, true);
            drop(state);
            if !told {
                log::error!(
                    "the manager has not read messages for a long time and {MOST_KEPT} are waiting: further ones are lost"
                );
            }
            return;
        }
        state.queue.push_back(message);
        drop(state);
        self.filled.notify_one();
    }

    fn send_what_waits(&self) {
        let mut state = self.lock();
        loop {
            let Some(message) = state.queue.front().cloned() else {
                state.told = false;
                state = self
                    .filled
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let sent = self.channel.tell_manager(&message);
            state = self.lock();
            // Only this thread removes messages: the first one is still the one that was sent.
            state.queue.pop_front();
            if sent.is_err() {
                state.queue.clear();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the message is a question that waits for its answer for a limited time and is then repeated.
fn is_asked_again(message: &ToManager) -> bool {
    matches!(
        message,
        ToManager::FindOwner { .. }
            | ToManager::FindFormer { .. }
            | ToManager::Measure
            | ToManager::TraceWorker { .. }
            | ToManager::Alive { .. }
    )
}

/// From this number on, questions that are repeated are dropped.
const MANY: usize = 256;

/// The stack of the thread that sends waiting messages, bytes.
const SMALL_STACK: usize = 256 << 10;

/// How many messages are kept: several for each worker that a machine can have.
const MOST_KEPT: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn retire(worker: u32) -> ToManager {
        ToManager::Retire {
            pool: 1,
            worker,
            spent: false,
        }
    }

    #[test]
    fn a_manager_that_stands_still_holds_nobody_and_gets_all_in_order() {
        let (manager, gateway) = Channel::pair().unwrap();
        let outbox = Outbox::start(Arc::new(gateway)).unwrap();
        let begun = Instant::now();
        for worker in 0..5_000 {
            outbox.send(retire(worker));
            outbox.send(ToManager::Measure);
        }
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "nobody reads yet"
        );
        let until = Instant::now() + Duration::from_secs(30);
        let (mut next, mut others) = (0, 0);
        while next < 5_000 {
            assert!(Instant::now() < until, "{next} came");
            match manager.next_for_manager() {
                Ok(Some(ToManager::Measure)) => others += 1,
                Ok(Some(message)) => {
                    assert_eq!(message, retire(next));
                    next += 1;
                }
                Ok(None) => panic!("closed"),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    thread::yield_now();
                }
            }
        }
        assert!(others < 1_000, "{others} that are asked again were kept");
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let (_manager, gateway) = Channel::pair().unwrap();
        let outbox = Outbox::start(Arc::new(gateway)).unwrap();
        for worker in 0..MOST_KEPT as u32 + 2_000 {
            outbox.send(retire(worker));
        }
        assert!(outbox.lock().queue.len() <= MOST_KEPT);
    }
}
