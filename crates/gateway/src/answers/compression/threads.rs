//! The threads that compress what would hold up a reactor, and the memory that compression may use.
//!
//! Threads start when there is work for them, and end when there was none for [`IDLE`]. Work waits for them in one queue. An
//! answer asks for memory first ([`Compressors::room`]): if there is none, or if too much work waits, it is sent as it is. So
//! the queue is never longer than the memory allows.

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// Work for a thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The threads and their memory.
#[derive(Debug)]
pub(crate) struct Compressors {
    shared: Arc<Shared>,
    /// Bytes that answers have reserved.
    used: Arc<AtomicUsize>,
    memory: usize,
}

struct Shared {
    most: usize,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

/// Memory that an answer has reserved. Dropping it gives the memory back.
#[derive(Debug)]
pub(crate) struct Reserved {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Compressors {
    /// At most `threads` threads; answers reserve at most `memory` bytes together.
    pub(crate) fn new(threads: usize, memory: usize) -> Compressors {
        Compressors {
            shared: Arc::new(Shared {
                most: threads.max(1),
                state: Mutex::default(),
                wake: Condvar::new(),
            }),
            used: Arc::default(),
            memory,
        }
    }

    /// Reserves memory for an answer. Streams, which may last long, get three quarters of the memory at most. `None`: there
    /// is no memory, or too much work waits already.
    pub(crate) fn room(&self, bytes: usize, is_stream: bool) -> Option<Reserved> {
        let limit = match is_stream {
            true => self.memory / 4 * 3,
            false => self.memory,
        };
        if self.shared.state().jobs.len() >= self.shared.most * MOST_WAITING {
            return None;
        }
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        let reserved = self.used.fetch_update(Relaxed, Relaxed, more).is_ok();
        reserved.then(|| Reserved {
            used: self.used.clone(),
            bytes,
        })
    }

    /// Lets a thread do this job.
    ///
    /// # Errors
    ///
    /// The work: there is no thread, and none can be started.
    pub(crate) fn run(&self, job: Job) -> Result<(), Job> {
        let mut state = self.shared.state();
        if state.idle <= state.jobs.len() && state.threads < self.shared.most {
            let shared = self.shared.clone();
            let thread = thread::Builder::new().name("weir compress".into());
            match thread.spawn(move || shared.work()) {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads == 0 => return Err(job),
                Err(_) => {}
            }
        }
        state.jobs.push_back(job);
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until there was nothing to do for [`IDLE`].
    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // The request that waits for the result notices that there is none.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state();
                continue;
            }
            state.idle += 1;
            let waited = self.wake.wait_timeout(state, IDLE);
            let (back, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Relaxed);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} threads", self.most)
    }
}

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);
/// With this many jobs per thread in the queue, further answers are sent as they are.
const MOST_WAITING: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn memory_is_limited_and_streams_leave_some_of_it() {
        let compressors = Compressors::new(1, 100);
        let stream = compressors.room(75, true).unwrap();
        assert!(compressors.room(1, true).is_none());
        let other = compressors.room(25, false).unwrap();
        assert!(compressors.room(1, false).is_none());
        drop(stream);
        assert!(compressors.room(75, false).is_some());
        drop(other);
        assert!(compressors.room(usize::MAX, false).is_none());
    }

    #[test]
    fn work_that_panics_takes_no_thread_with_it_and_a_long_queue_takes_no_more() {
        let compressors = Compressors::new(1, 100);
        let (go, wait) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        assert!(
            compressors
                .run(Box::new(move || {
                    let _ = begun.send(());
                    let _ = wait.recv();
                }))
                .is_ok()
        );
        begins.recv().unwrap();
        let (tell, told) = mpsc::channel();
        for number in 0..MOST_WAITING {
            assert!(compressors.room(1, false).is_some());
            let tell = tell.clone();
            let job = move || {
                let _ = tell.send(number);
                panic!("of the test");
            };
            assert!(compressors.run(Box::new(job)).is_ok());
        }
        assert!(compressors.room(1, false).is_none());
        go.send(()).unwrap();
        let done: Vec<_> = told.iter().take(MOST_WAITING).collect();
        assert_eq!(done, (0..MOST_WAITING).collect::<Vec<_>>());
        assert_eq!(compressors.shared.state().threads, 1);
    }
}
