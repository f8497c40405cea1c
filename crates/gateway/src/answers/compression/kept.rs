//! Compressed files in memory, for all reactors: a thread compresses each file once, and all requests for the file wait
//! meanwhile.
//!
//! [`FileStat`] identifies a file, so a changed file counts as another one. When the memory is full, files that were
//! not requested for the longest time are dropped. For a file that does not become smaller, this fact is kept.

use std::{
    cell::RefCell,
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use tokio::sync::oneshot;
use weir_http::compress::{self, Effort, KEPT_MEMORY};
use weir_net::OpenFile;
use weir_observe::clock;
use weir_semantics::coding::Coding;
use weir_sys::file::{self, FileStat};

use super::{
    read_file,
    threads::{Compressors, Reserved},
};

/// The compressed files.
#[derive(Debug)]
pub(crate) struct KeptFiles {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    used: Arc<AtomicUsize>,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    kept: HashMap<Key, Arc<Kept>>,
    /// The files that are being compressed, and the requests that wait for them.
    made: HashMap<Key, Vec<oneshot::Sender<Option<Arc<Kept>>>>>,
}

/// A file as it was when it was opened, in one coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    dev: u64,
    ino: u64,
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
    coding: u8,
}

/// A compressed file; empty if it did not become smaller.
#[derive(Debug)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    used_at: AtomicU64,
    /// Memory of all compressed forms, including this one.
    used: Arc<AtomicUsize>,
}

/// Compressed forms of an open file, by coding: those that are known and still in memory.
#[derive(Debug, Default)]
pub(crate) struct KnownForms(RefCell<[Weak<Kept>; 3]>);

/// The state of a file.
pub(crate) enum Found {
    /// The compressed form.
    Kept(Arc<Kept>),
    /// The compressed form is being made. The channel tells when it is there, or that it failed.
    Soon(oneshot::Receiver<Option<Arc<Kept>>>),
    /// The compressed form cannot be made now.
    Nothing,
}

impl KeptFiles {
    /// All files together take `limit` bytes at most.
    pub(crate) fn new(limit: usize) -> KeptFiles {
        KeptFiles {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                used: Arc::default(),
                limit,
            }),
        }
    }

    /// Whether a file of this size may be kept. One file takes no more than a quarter of the memory.
    pub(super) fn takes(&self, size: u64) -> bool {
        size <= MOST_KEPT.min(self.shared.limit as u64 / 4)
    }

    /// The compressed form of a file; if it is not known, a thread makes it.
    pub(super) fn find(
        &self,
        (file, stat): (&OpenFile, &FileStat),
        coding: Coding,
        compressors: &Compressors,
    ) -> Found {
        let key = Key::of(stat, coding);
        let mut state = self.shared.state();
        if let Some(kept) = state.kept.get(&key) {
            return Found::Kept(kept.clone());
        }
        let (tell, told) = oneshot::channel();
        if let Some(waiting) = state.made.get_mut(&key) {
            waiting.push(tell);
            return Found::Soon(told);
        }
        let memory = KEPT_MEMORY + 2 * stat.size as usize;
        let Some(reserved) = compressors.room(memory, false) else {
            return Found::Nothing;
        };
        state.made.insert(key, vec![tell]);
        drop(state);
        let making = Making {
            shared: self.shared.clone(),
            key,
            made: None,
            _reserved: reserved,
        };
        let (file, stat) = (file.for_thread(), *stat);
        // If there is no thread, the work is dropped together with `making`. That wakes the requests that wait.
        let _ = compressors.run(Box::new(move || making.make(file.as_fd(), &stat, coding)));
        Found::Soon(told)
    }
}

/// When it is dropped, the waiting requests learn the result of the compression, in every case.
struct Making {
    shared: Arc<Shared>,
    key: Key,
    made: Option<Arc<Kept>>,
    _reserved: Reserved,
}

impl Making {
    fn make(mut self, file: BorrowedFd<'_>, stat: &FileStat, coding: Coding) {
        let Some(original) = read_file(file, 0, stat.size as usize) else {
            return;
        };
        // A file that changed while it was read is neither the old nor the new file.
        if file::fstat(file).ok() != Some(*stat) {
            return;
        }
        let Ok(mut bytes) = compress::whole(coding, Effort::Kept, &original) else {
            return;
        };
        if bytes.len() >= original.len() {
            bytes.clear();
        }
        bytes.shrink_to_fit();
        self.made = self.shared.keep(self.key, bytes);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let waiting = self.shared.state().made.remove(&self.key);
        for tell in waiting.into_iter().flatten() {
            let _ = tell.send(self.made.clone());
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a compressed file. `None`: there is no memory for it.
    fn keep(&self, key: Key, bytes: Vec<u8>) -> Option<Arc<Kept>> {
        let size = bytes.len() + OVERHEAD;
        let mut state = self.state();
        let is_full = || self.used.load(Relaxed) + size > self.limit;
        if is_full() {
            self.make_room(&mut state, size);
            if is_full() {
                return None;
            }
        }
        self.used.fetch_add(size, Relaxed);
        let kept = Arc::new(Kept {
            bytes,
            used_at: AtomicU64::new(clock::now()),
            used: self.used.clone(),
        });
        state.kept.insert(key, kept.clone());
        Some(kept)
    }
}

impl Shared {
    /// Drops those that were not requested for the longest time, until there is room for `size` bytes. Those that are being
    /// sent stay, because their memory does too.
    fn make_room(&self, state: &mut State, size: usize) {
        let idle = |(_, kept): &(&Key, &Arc<Kept>)| Arc::strong_count(kept) == 1;
        let idle = state.kept.iter().filter(idle);
        let mut idle: Vec<_> = idle
            .map(|(key, kept)| (kept.used_at.load(Relaxed), *key))
            .collect();
        idle.sort_unstable_by_key(|(used_at, _)| *used_at);
        // If there are many files, some more of them are removed: all requests wait while the oldest files are
        // searched.
        let more = match idle.len() {
            0..=MANY => 0,
            _ => self.limit / 16,
        };
        for (_, key) in idle {
            if self.used.load(Relaxed) + size + more <= self.limit {
                break;
            }
            state.kept.remove(&key);
        }
    }
}

impl Kept {
    /// The bytes; `None`: the file does not become smaller.
    pub(super) fn bytes(self: &Arc<Self>) -> Option<Bytes> {
        self.used_at.store(clock::now(), Relaxed);
        let bytes = || Bytes::from_owner(Shown(self.clone()));
        (!self.bytes.is_empty()).then(bytes)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let size = self.bytes.len() + OVERHEAD;
        self.used.fetch_sub(size, Relaxed);
    }
}

/// The bytes of a file that is being sent.
struct Shown(Arc<Kept>);

impl AsRef<[u8]> for Shown {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl KnownForms {
    pub(super) fn get(&self, coding: Coding) -> Option<Arc<Kept>> {
        self.0.borrow()[coding as usize].upgrade()
    }

    pub(super) fn set(&self, coding: Coding, kept: &Arc<Kept>) {
        self.0.borrow_mut()[coding as usize] = Arc::downgrade(kept);
    }
}

impl Key {
    fn of(stat: &FileStat, coding: Coding) -> Key {
        Key {
            dev: stat.dev,
            ino: stat.ino,
            size: stat.size,
            mtime_ns: stat.mtime_ns,
            ctime_ns: stat.ctime_ns,
            coding: coding as u8,
        }
    }
}

/// Larger files are compressed while they are sent, each time, bytes.
const MOST_KEPT: u64 = 8 << 20;
/// Memory for a kept file besides its bytes, about.
const OVERHEAD: usize = 256;
/// Files whose order is known in an instant.
const MANY: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(limit: usize) -> Shared {
        Shared {
            state: Mutex::default(),
            used: Arc::default(),
            limit,
        }
    }

    fn key(ino: u64) -> Key {
        Key {
            dev: 1,
            ino,
            size: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            coding: 0,
        }
    }

    #[test]
    fn files_that_are_not_requested_make_room_and_those_being_sent_count() {
        let shared = shared(2 * (1000 + OVERHEAD));
        let first = shared.keep(key(1), vec![1; 1000]).unwrap();
        drop(shared.keep(key(2), vec![2; 1000]).unwrap());
        first.used_at.store(u64::MAX, Relaxed);
        drop(first);
        assert!(shared.keep(key(3), vec![3; 1000]).is_some());
        let has = |ino| shared.state().kept.contains_key(&key(ino));
        assert!(has(1) && !has(2) && has(3));
        // Answers to slow clients need their memory until the end.
        let sent: Vec<_> = (shared.state().kept.values())
            .map(|kept| kept.bytes().unwrap())
            .collect();
        assert!(shared.keep(key(4), vec![4; 1000]).is_none());
        assert!(has(1) && has(3), "what cannot make room stays");
        drop(sent);
        assert!(shared.keep(key(4), vec![4; 1000]).is_some());
        assert_eq!(shared.used.load(Relaxed), 2 * (1000 + OVERHEAD));
    }

    #[test]
    fn of_many_small_files_so_many_make_room_that_the_search_is_rare() {
        let files = 4 * MANY;
        let shared = shared(files * (100 + OVERHEAD));
        let mut searches = 0;
        for ino in 0..2 * files as u64 {
            let before = shared.state().kept.len();
            assert!(shared.keep(key(ino), vec![1; 100]).is_some());
            searches += usize::from(shared.state().kept.len() <= before);
        }
        assert!((1..=20).contains(&searches), "{searches}");
        assert!(shared.used.load(Relaxed) <= shared.limit);
        assert!(!shared.state().kept.contains_key(&key(0)), "the oldest");
    }
}
