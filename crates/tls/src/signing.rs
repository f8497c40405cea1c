//! Steps of handshakes that need a signature of the keeper, on threads of their own.
//!
//! rustls needs a signature in the middle of a step, and continues when it has the signature. If a reactor waited there
//! and the keeper hung, all connections of the reactor would wait. So another thread does the whole step: the reactor
//! gives the connection to it, and is woken when the connection is back.

use std::{
    cell::Cell,
    collections::VecDeque,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::Waker,
    thread,
};

/// The threads. They start when they are needed, and then wait for work.
pub(crate) struct Threads {
    most: usize,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    comes: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for work.
    idle: usize,
    /// The log has a line that none can be started.
    is_told: bool,
    /// Nobody gives work any more.
    is_over: bool,
}

type Job = Box<dyn FnOnce() + Send>;

/// A step that is done on one of the threads.
pub(crate) struct Step<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    result: Option<T>,
    waker: Option<Waker>,
}

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
    /// A step is being done that has to do without signatures: whether it has asked for one.
    static HAS_ASKED: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Whether this is one of the threads: it may wait.
pub(crate) fn may_wait() -> bool {
    IS_OURS.get()
}

/// Does a step that probably needs no signature. Returns whether it has asked for one, which it did not get.
pub(crate) fn without_signatures<T>(step: impl FnOnce() -> T) -> (T, bool) {
    HAS_ASKED.set(Some(false));
    let result = step();
    (result, HAS_ASKED.take() == Some(true))
}

/// Whether this step has to do without the signature that it asks for.
pub(crate) fn is_refused() -> bool {
    let is_refused = HAS_ASKED.get().is_some();
    if is_refused {
        HAS_ASKED.set(Some(true));
    }
    is_refused
}

impl Threads {
    /// At most so many.
    pub(crate) fn new(most: usize) -> Threads {
        Threads {
            most,
            queue: Arc::default(),
        }
    }

    /// Lets a thread do this work. If nobody waits for the result any more when its turn comes, the work is left out.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        step: impl FnOnce() -> T + Send + 'static,
    ) -> Step<T> {
        let slot = Arc::new(Mutex::new(Slot {
            result: None,
            waker: None,
        }));
        let of_thread = Arc::downgrade(&slot);
        self.push(Box::new(move || {
            if of_thread.strong_count() == 0 {
                return;
            }
            let result = step();
            if let Some(slot) = of_thread.upgrade() {
                let mut slot = lock(&slot);
                slot.result = Some(result);
                if let Some(waker) = slot.waker.take() {
                    waker.wake();
                }
            }
        }));
        Step(slot)
    }

    /// Lets a thread do this work. The caller may stop waiting for the result.
    pub(crate) fn push(&self, job: Job) {
        let mut state = lock(&self.queue.state);
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < self.most {
            let queue = self.queue.clone();
            let name = "signing".to_owned();
            let started = thread::Builder::new()
                .name(name)
                .spawn(move || queue.work());
            match started {
                Ok(_) => {
                    state.threads += 1;
                    state.is_told = false;
                }
                Err(_) if state.is_told => {}
                // The other threads sign. If there are none, handshakes fail at their time limit.
                Err(error) => {
                    state.is_told = true;
                    log::error!("no thread for handshakes can be started: {error}");
                }
            }
        }
        // Busy threads look at the queue before they wait. The woken thread needs the lock.
        let is_awaited = state.idle > 0;
        drop(state);
        if is_awaited {
            self.queue.comes.notify_one();
        }
    }
}

impl Queue {
    fn work(&self) {
        IS_OURS.set(true);
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = lock(&self.state);
            } else if state.is_over {
                return;
            } else {
                state.idle += 1;
                state = (self.comes.wait(state)).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        lock(&self.queue.state).is_over = true;
        self.queue.comes.notify_all();
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads")
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

impl<T> Step<T> {
    /// Its result, once. `None`: not yet; `waker` is woken then.
    pub(crate) fn take(&self, waker: &Waker) -> Option<T> {
        let mut slot = lock(&self.0);
        let result = slot.result.take();
        if result.is_none() {
            slot.waker = Some(waker.clone());
        }
        result
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, time::Duration};

    use super::*;

    #[test]
    fn steps_are_done_elsewhere_and_those_that_nobody_waits_for_are_left_out() {
        let threads = Threads::new(1);
        let (go, gone) = channel::<()>();
        let first = threads.run(move || {
            let _ = gone.recv_timeout(Duration::from_secs(60));
            may_wait()
        });
        drop(threads.run(|| panic!("nobody waits for this")));
        let last = threads.run(|| 7);
        assert_eq!(first.take(Waker::noop()), None);
        go.send(()).unwrap();
        let mut results = (None, None);
        while results.0.is_none() || results.1.is_none() {
            results.0 = results.0.or_else(|| first.take(Waker::noop()));
            results.1 = results.1.or_else(|| last.take(Waker::noop()));
            thread::yield_now();
        }
        assert_eq!((results, may_wait()), ((Some(true), Some(7)), false));
    }
}
