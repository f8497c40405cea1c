//! What is to be written, for the thread that may wait for the disk. Nobody else waits for it: what finds no room here is not written.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use super::journal::Note;
use crate::{
    key::KeyHash,
    purges::{Manner, Purge},
    store::Object,
};

#[derive(Debug)]
pub(super) struct Queue<H> {
    state: Mutex<State<H>>,
    /// Something is to be done.
    filled: Condvar,
    /// Everything is done.
    emptied: Condvar,
    most_bytes: u64,
}

#[derive(Debug)]
pub(super) enum Job<H> {
    /// An answer.
    Write(KeyHash, Arc<Object<H>>),
    /// The fields by which answers of a key vary.
    Vary(KeyHash, Box<[u8]>),
    /// A file with a body that is not needed.
    Unlink(u64),
    /// Purges, in their order.
    Purges(Vec<Note>),
}

#[derive(Debug)]
struct State<H> {
    jobs: VecDeque<Job<H>>,
    purges: Vec<Note>,
    /// Bytes of the jobs.
    bytes: u64,
    is_busy: bool,
    is_closed: bool,
}

/// With more purges that are not written yet, these become one of everything.
const MOST_PURGES: usize = 65_536;

/// With more jobs nothing else is written.
const MOST_JOBS: usize = 65_536;

impl<H> Queue<H> {
    pub(super) fn new(most_bytes: u64) -> Queue<H> {
        Queue {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                purges: Vec::new(),
                bytes: 0,
                is_busy: false,
                is_closed: false,
            }),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            most_bytes,
        }
    }

    /// False: there is no room.
    pub(super) fn push(&self, job: Job<H>) -> bool {
        let mut state = self.state();
        let bytes = state.bytes + job.bytes();
        let is_full = bytes > self.most_bytes || state.jobs.len() >= MOST_JOBS;
        // What frees room on the disk is never refused: there are not more of these than files.
        if state.is_closed || is_full && !matches!(job, Job::Unlink(_)) {
            return false;
        }
        state.bytes = bytes;
        state.jobs.push_back(job);
        self.filled.notify_one();
        true
    }

    /// Purges go before everything else.
    pub(super) fn push_purge(&self, note: Note) {
        let mut state = self.state();
        if state.purges.len() >= MOST_PURGES {
            let is_hard = |note: &Note| note.manner == Manner::Hard;
            let manner = match state.purges.iter().any(is_hard) {
                true => Manner::Hard,
                false => Manner::Soft,
            };
            state.purges.clear();
            state.purges.push(Note {
                purge: Purge::All,
                manner,
                number: note.number,
            });
        }
        state.purges.push(note);
        self.filled.notify_one();
    }

    /// Waits for a job. `None`: the queue was closed, and everything is done.
    pub(super) fn next(&self) -> Option<Job<H>> {
        let mut state = self.state();
        loop {
            state.is_busy = true;
            if !state.purges.is_empty() {
                return Some(Job::Purges(std::mem::take(&mut state.purges)));
            }
            if let Some(job) = state.jobs.pop_front() {
                state.bytes -= job.bytes();
                return Some(job);
            }
            state.is_busy = false;
            self.emptied.notify_all();
            if state.is_closed {
                return None;
            }
            let waited = self.filled.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until everything is written.
    pub(super) fn flush(&self) {
        let mut state = self.state();
        while state.is_busy || !state.jobs.is_empty() || !state.purges.is_empty() {
            let waited = self.emptied.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes no more jobs.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.filled.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H> Job<H> {
    fn bytes(&self) -> u64 {
        match self {
            Job::Write(_, object) => object.body().in_memory() + 256,
            Job::Vary(_, names) => names.len() as u64 + 64,
            Job::Unlink(_) | Job::Purges(_) => 0,
        }
    }
}
