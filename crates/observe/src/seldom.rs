//! Limits how often a line is logged if strangers could cause it without end.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::clock;

/// Counts an event, and says when a line about it is due.
#[derive(Debug)]
pub struct Seldom {
    most: u64,
    left: AtomicU64,
    next: AtomicU64,
    count: AtomicU64,
}

impl Seldom {
    /// At most so many lines in [`SAY_AGAIN`].
    pub const fn new(most: u64) -> Seldom {
        Seldom {
            most,
            left: AtomicU64::new(0),
            next: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    /// For lines about single connections: the first ones show what happens.
    pub const fn of_connections() -> Seldom {
        Seldom::new(CONNECTIONS)
    }

    /// Counts the event. If a line is due, returns how often the event happened since the last line.
    pub fn due(&self) -> Option<u64> {
        self.count.fetch_add(1, Relaxed);
        let now = clock::precise();
        let next = self.next.load(Relaxed);
        let begins = now >= next
            && (self.next)
                .compare_exchange(next, now + SAY_AGAIN, Relaxed, Relaxed)
                .is_ok();
        if begins {
            self.left.store(self.most - 1, Relaxed);
        }
        let less = |left: u64| left.checked_sub(1);
        let is_due = begins || self.left.fetch_update(Relaxed, Relaxed, less).is_ok();
        is_due.then(|| self.count.swap(0, Relaxed))
    }

    /// As [`due`](Self::due), as the end of a line about the last event: empty, or how many others there were.
    pub fn line(&self) -> Option<More> {
        self.due().map(|count| More(count.saturating_sub(1)))
    }
}

/// ` (and 7 more since the last message)`, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct More(u64);

impl fmt::Display for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            more => write!(f, " (and {more} more since the last message)"),
        }
    }
}

/// The time in which the lines are counted, µs.
pub const SAY_AGAIN: u64 = 10_000_000;

/// For [`Seldom::of_connections`].
const CONNECTIONS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_are_written_and_the_others_counted() {
        let seldom = Seldom::new(3);
        let lines = (0..1000).filter_map(|_| seldom.line());
        assert_eq!(lines.collect::<Vec<_>>(), [More(0); 3]);
        // The time is over.
        seldom.next.store(0, Relaxed);
        assert_eq!(seldom.line(), Some(More(997)));
        assert_eq!(
            More(997).to_string(),
            " (and 997 more since the last message)"
        );
        assert_eq!(More(0).to_string(), "");
    }
}
