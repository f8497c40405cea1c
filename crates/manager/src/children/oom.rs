//! Recognizes processes that the kernel has killed because it was out of memory.
//!
//! Such a death looks like any SIGKILL, and often weir itself sent a SIGKILL a moment later. The kernel counts its
//! kills (`oom_kill` in memory.events and memory.oom_control of our control group, cgroups(7); for the whole machine in
//! proc_vmstat(5) if neither exists). Each death by SIGKILL is matched with one of the recently counted kills, as long
//! as there are any.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use weir_sys::process::Exit;

use crate::workers::memory;

/// The kernel's counter, and the matched deaths.
#[derive(Debug)]
pub(crate) struct OomKills {
    read: fn() -> Option<u64>,
    /// The last value of the counter.
    counted: Cell<Option<u64>>,
    /// Recent kills that are not matched yet, with their times.
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

    /// Reads the counter for new kills, unless that was done a moment ago, so that their time is known.
    pub(crate) fn look(&self, now: Instant) {
        if self.looked.get().is_none_or(|at| now - at >= EVERY) {
            self.read(now);
        }
    }

    /// Whether the kernel has killed this process of ours because it was out of memory.
    pub(crate) fn ended(&self, exit: Exit, now: Instant) -> bool {
        if exit != KILLED {
            return false;
        }
        self.read(now);
        let one = self.recent.borrow_mut().pop().is_some();
        self.found.set(self.found.get() + u64::from(one));
        one
    }

    /// Number of killed processes of ours, since the start.
    pub(crate) fn count(&self) -> u64 {
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

/// How a process ends that somebody, or the kernel for lack of memory, has killed: SIGKILL of Linux.
pub(crate) const KILLED: Exit = Exit::Signal(9);

/// How often the counter is read.
const EVERY: Duration = Duration::from_secs(1);

/// A kill older than this is not matched with a death.
const FRESH: Duration = Duration::from_secs(5);

/// Maximum number of new kills in one reading.
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
        let killed = |now| kills.ended(KILLED, now);
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
