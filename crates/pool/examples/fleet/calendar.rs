//! Millions of events, in the order of their times.
//!
//! Events that are due within a millisecond are in a heap. Later events are in one list for each millisecond. So the
//! cost of an event hardly depends on the number of events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_pool::Micros;

/// Future events. Events with the same time keep the order in which they were put in.
#[derive(Debug)]
pub(crate) struct Calendar<E> {
    near: BinaryHeap<Reverse<(u64, u64, E)>>,
    later: Vec<Vec<(u64, u64, E)>>,
    /// `near` holds everything up to and including this millisecond.
    opened: u64,
    count: u64,
}

impl<E: Ord> Calendar<E> {
    /// An empty calendar at time 0.
    pub(crate) fn new() -> Self {
        Self {
            near: BinaryHeap::new(),
            later: (0..SPAN).map(|_| Vec::new()).collect(),
            opened: 0,
            count: 0,
        }
    }

    /// Adds an event that happens at `at`, less than a minute from now.
    pub(crate) fn put(&mut self, at: Micros, event: E) {
        self.count += 1;
        let entry = (at.0, self.count, event);
        let slot = at.0 / 1_000;
        if slot <= self.opened {
            self.near.push(Reverse(entry));
        } else {
            assert!(slot - self.opened < SPAN, "an event too far away");
            self.later[(slot % SPAN) as usize].push(entry);
        }
    }

    /// The next event, if it is before `end`.
    pub(crate) fn next_before(&mut self, end: Micros) -> Option<(Micros, E)> {
        loop {
            match self.near.peek() {
                Some(Reverse((at, ..))) if *at < end.0 => {
                    let Reverse((at, _, event)) = self.near.pop()?;
                    return Some((Micros(at), event));
                }
                Some(_) => return None,
                None if self.opened >= end.0 / 1_000 => return None,
                None => {
                    self.opened += 1;
                    let due = &mut self.later[(self.opened % SPAN) as usize];
                    self.near.extend(due.drain(..).map(Reverse));
                }
            }
        }
    }
}

/// How many milliseconds a calendar looks ahead.
const SPAN: u64 = 65_536;
