//! Checks everything and returns what is inconsistent. For tests and fuzzing.

use super::{List, Part, Queue};
use crate::{Micros, index::NONE};

impl Queue {
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let (mut count, mut stale, mut flows) = (0, 0, 0);
        for pair in self.classes.windows(2) {
            if pair[0].priority >= pair[1].priority {
                return Err("the classes are not in order");
            }
        }
        for class in &self.classes {
            let priority = class.priority;
            if self.walk(class.retries, Part::Retry, priority)? != class.retrying
                || self.walk(class.stale, Part::Stale, priority)? != class.stale_len
            {
                return Err("a class has more or fewer than it counts");
            }
            let mut fresh = 0;
            self.flows.check(&class.ring, priority, |at, flow| {
                let (mut length, mut both) = (0, *flow);
                for aside in [false, true] {
                    let (head, tail) = both.ends(aside);
                    let (head, tail) = (*head, *tail);
                    let list = List { head, tail };
                    length = self.walk(list, Part::Fresh, priority)?;
                    fresh += length;
                    let first = self.entries.get(head as usize);
                    if first.is_some_and(|first| (first.flow, first.aside) != (at, aside)) {
                        return Err("a request is not at the place that its flow names");
                    }
                    both.len -= length as u32;
                }
                if both.len != 0 || length != flow.aside_len as usize {
                    return Err("a flow has more or fewer than it counts");
                }
                Ok(())
            })?;
            if fresh != class.fresh {
                return Err("a class has more or fewer fresh ones than it counts");
            }
            count += class.len();
            stale += class.stale_len;
            flows += class.ring.count();
        }
        if count != self.len || stale != self.stale || self.index.count() != count {
            return Err("the number of waiting requests is not the one counted");
        }
        if self.flows.counts() != (flows, flows) {
            return Err("the number of flows is not the one counted");
        }
        self.check_ages()?;
        self.check_deadlines()?;
        let (mut at, mut unused) = (self.unused, 0);
        while at != NONE && unused <= self.entries.len() {
            unused += 1;
            at = self.entries[at as usize].next;
        }
        if unused + count != self.entries.len() {
            return Err("entries were lost");
        }
        Ok(())
    }

    fn walk(&self, list: List, part: Part, priority: i16) -> Result<usize, &'static str> {
        let (mut at, mut before, mut admitted_at) = (list.head, NONE, Micros::ZERO);
        let mut count = 0;
        while at != NONE {
            let entry = &self.entries[at as usize];
            let waiting = &entry.waiting;
            if entry.prev != before || entry.part != part || !entry.is_used || count > self.len {
                return Err("a list's links do not match");
            }
            if waiting.admitted_at < admitted_at || waiting.priority != priority {
                return Err("a list is not in the order of admission");
            }
            if self
                .find(waiting.request)
                .map(|cell| self.index.place(cell))
                != Some(at)
            {
                return Err("the index does not lead to a waiting request");
            }
            admitted_at = waiting.admitted_at;
            count += 1;
            (before, at) = (at, entry.next);
        }
        if list.tail != before {
            return Err("a list does not end in its tail");
        }
        Ok(count)
    }

    fn check_ages(&self) -> Result<(), &'static str> {
        let (mut at, mut older, mut admitted_at) = (self.ages.head, NONE, Micros::ZERO);
        let (mut count, mut stale) = (0, 0);
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.older != older || entry.waiting.admitted_at < admitted_at {
                return Err("the list by age is not in order");
            }
            if entry.part == Part::Stale {
                stale += 1;
            } else if count == stale && self.oldest_fresh != at {
                return Err("the oldest fresh one is another");
            }
            count += 1;
            admitted_at = entry.waiting.admitted_at;
            (older, at) = (at, entry.newer);
        }
        let retries: usize = self.classes.iter().map(|class| class.retrying).sum();
        if self.ages.tail != older || count + retries != self.len || stale != self.stale {
            return Err("the list by age has more or fewer than wait");
        }
        if count == stale && self.oldest_fresh != NONE {
            return Err("there is no fresh one");
        }
        Ok(())
    }

    fn check_deadlines(&self) -> Result<(), &'static str> {
        for (place, at) in self.deadlines.iter().enumerate() {
            if self.entries[*at as usize].heap as usize != place {
                return Err("an entry does not know its place in the heap");
            }
            if place > 0 && self.start_by((place - 1) / 2) > self.start_by(place) {
                return Err("the heap is not in order");
            }
        }
        let entries = self.entries.iter();
        let with = entries.filter(|entry| entry.is_used && entry.waiting.start_by < Micros::MAX);
        if with.count() != self.deadlines.len() {
            return Err("the heap has more or fewer than have a deadline");
        }
        Ok(())
    }
}
