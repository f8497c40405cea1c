//! What happens when: events in the order of their times, millions of them.
//!
//! A heap for what is due within a millisecond, and a list for each millisecond to come: so an event costs about the
//! same however many there are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_pool::Micros;

/// Events to come; those of the same time in the order in which they were put in.
#[derive(Debug)]
pub(crate) struct Calendar<E> {
    near: BinaryHeap<Reverse<(u64, u64, E)>>,
    later: Vec<Vec<(u64, u64, E)>>,
    /// Milliseconds up to and including which everything is in `near`.
    opened: u64,
    count: u64,
}

impl<E: Ord> Calendar<E> {
    /// Nothing yet, at time 0.
    pub(crate) fn new() -> Self {
        Self {
            near: BinaryHeap::new(),
            later: (0..SPAN).map(|_| Vec::new()).collect(),
            opened: 0,
            count: 0,
        }
    }

    /// `event` happens at `at`, which is less than a minute away.
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

/// Milliseconds that a calendar looks ahead.
const SPAN: u64 = 65_536;
