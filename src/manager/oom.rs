//! Processes that the kernel ends because memory is out.
//!
//! A process that was ended so looks as if somebody had killed it, and often weir has done that too, a moment too late. The
//! kernel counts what it ends (`oom_kill` of memory.events and of memory.oom_control in our control group, cgroups(7); of
//! the whole machine in proc_vmstat(5) where there is neither): each death by SIGKILL takes one of what was counted just
//! before, for as long as there are some.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use weir_sys::process::Exit;

use super::memory;

/// What the kernel has counted, and who was ended by it.
#[derive(Debug)]
pub(super) struct OomKills {
    read: fn() -> Option<u64>,
    /// As it was read last.
    counted: Cell<Option<u64>>,
    /// Those that were counted lately and not found yet; when.
    recent: RefCell<Vec<Instant>>,
    looked: Cell<Option<Instant>>,
    found: Cell<u64>,
}

impl Default for OomKills {
    fn default() -> Self {
        Self::new(memory::oom_kills)
    }
}

impl OomKills {
    fn new(read: fn() -> Option<u64>) -> Self {
        Self {
            read,
            counted: Cell::new(read()),
            recent: RefCell::default(),
            looked: Cell::new(None),
            found: Cell::new(0),
        }
    }

    /// Looks whether there are new ones, if that was not done just now: so that it is known about when they were.
    pub(super) fn look(&self, now: Instant) {
        if self.looked.get().is_none_or(|at| now - at >= EVERY) {
            self.read(now);
        }
    }

    /// Whether a process of ours that ended so was ended by the kernel because memory was out.
    pub(super) fn ended(&self, exit: Exit, now: Instant) -> bool {
        if exit != Exit::Signal(SIGKILL) {
            return false;
        }
        self.read(now);
        let one = self.recent.borrow_mut().pop().is_some();
        self.found.set(self.found.get() + u64::from(one));
        one
    }

    /// Processes of ours, since the start.
    pub(super) fn count(&self) -> u64 {
        self.found.get()
    }

    fn read(&self, now: Instant) {
        self.looked.set(Some(now));
        let mut recent = self.recent.borrow_mut();
        recent.retain(|at| now.saturating_duration_since(*at) < FRESH);
        let Some(counted) = (self.read)() else { return };
        let before = self.counted.replace(Some(counted)).unwrap_or(counted);
        let new = counted.saturating_sub(before).min(MOST);
        recent.extend((0..new).map(|_| now));
    }
}

/// SIGKILL of Linux.
const SIGKILL: i32 = 9;

/// How often the kernel's count is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// Who died longer after the kernel has counted was not meant.
const FRESH: Duration = Duration::from_secs(5);

/// Of one look.
const MOST: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn only_as_many_deaths_as_the_kernel_has_counted_lately_are_its_doing() {
        static COUNTED: AtomicU64 = AtomicU64::new(7);
        let kills = OomKills::new(|| Some(COUNTED.load(Relaxed)));
        let now = Instant::now();
        let killed = |now| kills.ended(Exit::Signal(SIGKILL), now);
        assert!(!killed(now), "seven were before us");
        COUNTED.store(9, Relaxed);
        assert!(!kills.ended(Exit::Signal(11), now));
        assert!(killed(now) && killed(now) && !killed(now));
        COUNTED.store(10, Relaxed);
        kills.look(now + EVERY * 2);
        assert!(!killed(now + EVERY * 2 + FRESH), "that was somebody else's");
        assert_eq!(kills.count(), 2);
    }
}
