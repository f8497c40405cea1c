//! Lines that a thread gives to its logs in blocks, so that a request takes no lock for its line.
//!
//! A reactor collects the lines of each log ([`collect_here`]). It gives them to the log's writer ([`give`]) whenever it is about
//! to wait, so that lines of an idle server appear at once, and when a block is full. Other threads give each line at once.
//!
//! Lines of one thread keep their order. Code that moves to another thread and writes its next line there calls
//! [`give`] before.

use std::{
    cell::RefCell,
    mem,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::Shared;

/// From now on, this thread gives its lines in blocks. It must call [`give`] before it waits.
pub fn collect_here() {
    let has_lines = Arc::new(AtomicBool::new(false));
    let mut all = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|thread| thread.strong_count() > 0);
    all.push(Arc::downgrade(&has_lines));
    drop(all);
    LINES.with_borrow_mut(|lines| lines.collected = Some(has_lines));
}

/// Gives the writers all lines that this thread has collected.
#[inline]
pub fn give() {
    // A thread that has ended has given its lines before.
    let _ = LINES.try_with(|lines| {
        // `LINES` is borrowed if a log reports its own problem while it takes a line.
        if let Ok(mut lines) = lines.try_borrow_mut()
            && lines.has_some
        {
            lines.give();
        }
    });
}

/// Waits, at most for `limit`, until no thread has lines that it has not given.
pub fn wait_until_given(limit: Duration) {
    let until = Instant::now() + limit;
    let has_lines = || {
        let all = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut threads = all.iter().filter_map(Weak::upgrade);
        threads.any(|has_lines| has_lines.load(Ordering::Acquire))
    };
    while has_lines() && Instant::now() < until {
        thread::sleep(PAUSE);
    }
}

/// Adds a line of this thread.
pub(super) fn put(sink: &Arc<Shared>, put: impl FnOnce(&mut Vec<u8>)) {
    LINES.with_borrow_mut(|lines| {
        let known = (lines.blocks.iter()).position(|block| Arc::ptr_eq(&block.sink, sink));
        let at = known.unwrap_or_else(|| {
            // A log that is not used any more leaves nothing behind.
            lines.blocks.retain(|block| !block.bytes.is_empty());
            lines.blocks.push(Block {
                sink: sink.clone(),
                bytes: Vec::new(),
            });
            lines.blocks.len() - 1
        });
        let block = &mut lines.blocks[at];
        put(&mut block.bytes);
        match &lines.collected {
            Some(has_lines) if block.bytes.len() < FULL => {
                if !mem::replace(&mut lines.has_some, true) {
                    has_lines.store(true, Ordering::Release);
                }
            }
            _ => block.give(),
        }
    });
}

/// The lines of this thread.
#[derive(Default)]
struct Lines {
    /// One for each log that it writes: few.
    blocks: Vec<Block>,
    /// Whether a block has lines.
    has_some: bool,
    /// The same, for other threads. `None`: this thread gives each line at once.
    collected: Option<Arc<AtomicBool>>,
}

struct Block {
    sink: Arc<Shared>,
    bytes: Vec<u8>,
}

impl Lines {
    fn give(&mut self) {
        self.blocks.iter_mut().for_each(Block::give);
        self.has_some = false;
        if let Some(has_lines) = &self.collected {
            has_lines.store(false, Ordering::Release);
        }
    }
}

impl Block {
    fn give(&mut self) {
        if !self.bytes.is_empty() {
            self.sink.take_lines(&self.bytes);
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.give();
    }
}

thread_local! {
    static LINES: RefCell<Lines> = RefCell::default();
}

/// The threads that collect: whether they have lines.
static THREADS: Mutex<Vec<Weak<AtomicBool>>> = Mutex::new(Vec::new());

/// A block of this size is given at once, bytes.
const FULL: usize = 8 << 10;
/// A thread keeps a buffer of up to this many bytes. One that grew for a very long line is freed.
const KEPT: usize = 16 << 10;
/// How often [`wait_until_given`] looks.
const PAUSE: Duration = Duration::from_millis(1);
