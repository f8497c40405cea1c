//! The queue: who waits, in which order, and where each of them is.
//!
//! Two lists, retries before newcomers, each in the order of first admission; a hash index finds a waiting request by
//! its id. The lists are linked through one table of entries, so that a client that leaves from the middle is taken out
//! in constant time, and a freed entry is used again. Table and index are made anew, larger or smaller, when the number
//! of waiting requests has grown past them or has fallen to an eighth: the memory of a burst is given back, and each
//! operation is O(1) on average.

use alloc::{vec, vec::Vec};

use crate::{Micros, RequestId};

/// A request in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) request: RequestId,
    /// The reactor that serves the request.
    pub(crate) home: u16,
    /// When it was first admitted; its deadline counts from here.
    pub(crate) admitted_at: Micros,
    /// When it was put into this queue; the same, unless it is a retry.
    pub(crate) queued_at: Micros,
}

/// Which of the two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Retry = 0,
    Newcomer = 1,
}

#[derive(Debug)]
pub(crate) struct Queue {
    entries: Vec<Entry>,
    /// First of the unused entries, which are linked by `next`.
    unused: u32,
    /// Open addressing: the place in `entries`, or NONE. Its length is a power of two, twice that of `entries` or more.
    index: Vec<u32>,
    lists: [List; 2],
    len: usize,
}

impl Queue {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            unused: NONE,
            index: Vec::new(),
            lists: [EMPTY; 2],
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// So many can wait before memory is asked for.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn contains(&self, request: RequestId) -> bool {
        self.find(request).is_some()
    }

    /// Puts a newcomer at the end.
    pub(crate) fn push(&mut self, waiting: Waiting) {
        let tail = self.lists[Class::Newcomer as usize].tail;
        self.insert_after(tail, Class::Newcomer, waiting);
    }

    /// Puts a retry before all newcomers and behind the retries that were first admitted earlier; tells how many these
    /// are. Takes a step for each retry that waits, of which there are never more than there were workers.
    pub(crate) fn push_retry(&mut self, waiting: Waiting) -> usize {
        let (mut after, mut position) = (NONE, 0);
        let mut at = self.lists[Class::Retry as usize].head;
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.waiting.admitted_at > waiting.admitted_at {
                break;
            }
            position += 1;
            (after, at) = (at, entry.next);
        }
        self.insert_after(after, Class::Retry, waiting);
        position
    }

    /// Whether a retry waits that was first admitted at `admitted_at` or before.
    pub(crate) fn has_retry_before(&self, admitted_at: Micros) -> bool {
        let head = self.lists[Class::Retry as usize].head;
        head != NONE && self.entries[head as usize].waiting.admitted_at <= admitted_at
    }

    /// Takes out who is next: the oldest retry, else the oldest newcomer.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let [retries, newcomers] = &self.lists;
        let at = if retries.head != NONE {
            retries.head
        } else {
            newcomers.head
        };
        (at != NONE).then(|| self.take(at))
    }

    /// Takes out the oldest of a class if it was first admitted at `limit` or before.
    pub(crate) fn pop_admitted_by(&mut self, class: Class, limit: Micros) -> Option<Waiting> {
        let at = self.lists[class as usize].head;
        let due = at != NONE && self.entries[at as usize].waiting.admitted_at <= limit;
        due.then(|| self.take(at))
    }

    /// When the longest waiting was first admitted.
    pub(crate) fn oldest(&self) -> Option<Micros> {
        let heads = self.lists.iter().map(|list| list.head);
        heads
            .filter(|head| *head != NONE)
            .map(|head| self.entries[head as usize].waiting.admitted_at)
            .min()
    }

    /// Takes a request out, wherever it is.
    pub(crate) fn remove(&mut self, request: RequestId) -> Option<Waiting> {
        let cell = self.find(request)?;
        let at = self.index[cell];
        self.index_remove(cell);
        Some(self.unlink(at))
    }

    /// Walks through everything and says what does not fit. For tests.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let mut count = 0;
        for class in [Class::Retry, Class::Newcomer] {
            let list = &self.lists[class as usize];
            let (mut at, mut before, mut admitted_at) = (list.head, NONE, Micros::ZERO);
            while at != NONE {
                let entry = &self.entries[at as usize];
                if entry.prev != before || entry.class != class || count > self.len {
                    return Err("a list's links do not match");
                }
                if entry.waiting.admitted_at < admitted_at {
                    return Err("a list is not in the order of admission");
                }
                if self
                    .find(entry.waiting.request)
                    .map(|cell| self.index[cell])
                    != Some(at)
                {
                    return Err("the index does not lead to a waiting request");
                }
                admitted_at = entry.waiting.admitted_at;
                count += 1;
                (before, at) = (at, entry.next);
            }
            if list.tail != before {
                return Err("a list does not end in its tail");
            }
        }
        if count != self.len {
            return Err("the number of waiting requests is not the one counted");
        }
        if self.index.iter().filter(|at| **at != NONE).count() != count {
            return Err("the index has more or fewer than wait");
        }
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

    fn insert_after(&mut self, prev: u32, class: Class, waiting: Waiting) {
        // Growing numbers the entries anew, so the neighbour is looked up again by its id.
        let prev = if self.unused == NONE {
            let neighbour = (prev != NONE).then(|| self.entries[prev as usize].waiting.request);
            self.rebuild((self.entries.len() * 2).max(SMALLEST));
            neighbour
                .and_then(|request| self.find(request))
                .map_or(NONE, |cell| self.index[cell])
        } else {
            prev
        };
        let at = self.unused;
        self.unused = self.entries[at as usize].next;
        let list = &mut self.lists[class as usize];
        let next = if prev == NONE {
            core::mem::replace(&mut list.head, at)
        } else {
            core::mem::replace(&mut self.entries[prev as usize].next, at)
        };
        if next == NONE {
            list.tail = at;
        } else {
            self.entries[next as usize].prev = at;
        }
        self.entries[at as usize] = Entry {
            waiting,
            class,
            prev,
            next,
        };
        self.len += 1;
        self.index_insert(at);
    }

    fn take(&mut self, at: u32) -> Waiting {
        let cell = self.find(self.entries[at as usize].waiting.request);
        debug_assert!(cell.is_some(), "every waiting request is in the index");
        if let Some(cell) = cell {
            self.index_remove(cell);
        }
        self.unlink(at)
    }

    fn unlink(&mut self, at: u32) -> Waiting {
        let Entry {
            waiting,
            class,
            prev,
            next,
        } = self.entries[at as usize];
        let list = &mut self.lists[class as usize];
        match prev {
            NONE => list.head = next,
            _ => self.entries[prev as usize].next = next,
        }
        match next {
            NONE => list.tail = prev,
            _ => self.entries[next as usize].prev = prev,
        }
        self.entries[at as usize].next = self.unused;
        self.unused = at;
        self.len -= 1;
        if self.entries.len() > SMALLEST && self.len <= self.entries.len() / 8 {
            self.rebuild((self.entries.len() / 4).max(SMALLEST));
        }
        waiting
    }

    /// Makes table and index anew with room for `capacity`, which all that wait fit into, keeping their order.
    fn rebuild(&mut self, capacity: usize) {
        let old = core::mem::replace(self, Self::new());
        self.entries.reserve_exact(capacity);
        self.index = vec![NONE; (capacity * 2).next_power_of_two()];
        for class in [Class::Retry, Class::Newcomer] {
            let mut from = old.lists[class as usize].head;
            let mut prev = NONE;
            while from != NONE {
                let entry = old.entries[from as usize];
                let at = self.entries.len() as u32;
                self.entries.push(Entry {
                    prev,
                    next: NONE,
                    ..entry
                });
                match prev {
                    NONE => self.lists[class as usize].head = at,
                    _ => self.entries[prev as usize].next = at,
                }
                self.index_insert(at);
                (prev, from) = (at, entry.next);
            }
            self.lists[class as usize].tail = prev;
        }
        self.len = self.entries.len();
        debug_assert!(self.len == old.len && self.len <= capacity);
        for at in self.len..capacity {
            let next = if at + 1 < capacity {
                at as u32 + 1
            } else {
                NONE
            };
            self.entries.push(Entry { next, ..UNUSED });
        }
        if self.len < capacity {
            self.unused = self.len as u32;
        }
    }

    fn find(&self, request: RequestId) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mut cell = self.home_cell(request);
        loop {
            let at = self.index[cell];
            if at == NONE {
                return None;
            }
            if self.entries[at as usize].waiting.request == request {
                return Some(cell);
            }
            cell = (cell + 1) & (self.index.len() - 1);
        }
    }

    fn index_insert(&mut self, at: u32) {
        let mut cell = self.home_cell(self.entries[at as usize].waiting.request);
        while self.index[cell] != NONE {
            cell = (cell + 1) & (self.index.len() - 1);
        }
        self.index[cell] = at;
    }

    /// Empties a cell and moves back those behind it that would no longer be found, so that no tombstones gather.
    fn index_remove(&mut self, cell: usize) {
        let mask = self.index.len() - 1;
        let mut hole = cell;
        let mut next = (hole + 1) & mask;
        while self.index[next] != NONE {
            let at = self.index[next];
            let home = self.home_cell(self.entries[at as usize].waiting.request);
            let distance_from_home = next.wrapping_sub(home) & mask;
            let distance_from_hole = next.wrapping_sub(hole) & mask;
            if distance_from_home >= distance_from_hole {
                self.index[hole] = at;
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.index[hole] = NONE;
    }

    /// Multiplicative hashing. Ids come from the caller's counter, never from a client, so nobody can aim at one cell.
    fn home_cell(&self, request: RequestId) -> usize {
        let bits = self.index.len().trailing_zeros();
        (request.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as usize
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    waiting: Waiting,
    class: Class,
    prev: u32,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

const NONE: u32 = u32::MAX;
const EMPTY: List = List {
    head: NONE,
    tail: NONE,
};
const UNUSED: Entry = Entry {
    waiting: Waiting {
        request: RequestId(0),
        home: 0,
        admitted_at: Micros::ZERO,
        queued_at: Micros::ZERO,
    },
    class: Class::Newcomer,
    prev: NONE,
    next: NONE,
};

/// Room that is kept once somebody has waited: about 14 KB.
const SMALLEST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(request: u64, admitted_at: u64) -> Waiting {
        Waiting {
            request: RequestId(request),
            home: 0,
            admitted_at: Micros(admitted_at),
            queued_at: Micros(admitted_at),
        }
    }

    fn drain(queue: &mut Queue) -> Vec<u64> {
        core::iter::from_fn(|| queue.pop())
            .map(|waiting| waiting.request.0)
            .collect()
    }

    #[test]
    fn retries_go_first_and_the_oldest_of_them_before_the_others() {
        let mut queue = Queue::new();
        queue.push(waiting(10, 10));
        queue.push(waiting(11, 11));
        assert_eq!(queue.push_retry(waiting(3, 3)), 0);
        assert_eq!(queue.push_retry(waiting(1, 1)), 0);
        assert_eq!(queue.push_retry(waiting(2, 2)), 1);
        assert_eq!(queue.push_retry(waiting(4, 3)), 3);
        queue.check().unwrap();
        assert_eq!(drain(&mut queue), [1, 2, 3, 4, 10, 11]);
        queue.check().unwrap();
    }

    #[test]
    fn a_retry_that_makes_the_table_grow_still_finds_its_place() {
        let mut queue = Queue::new();
        queue.push_retry(waiting(1, 1));
        queue.push_retry(waiting(3, 3));
        for request in 2..SMALLEST as u64 {
            queue.push(waiting(100 + request, 100 + request));
        }
        assert_eq!(queue.len(), queue.capacity());
        assert_eq!(queue.push_retry(waiting(2, 2)), 1);
        assert_eq!(queue.capacity(), 2 * SMALLEST);
        queue.check().unwrap();
        assert_eq!(drain(&mut queue)[..4], [1, 2, 3, 102]);
    }

    #[test]
    fn memory_of_a_burst_is_given_back_while_some_still_wait() {
        let mut queue = Queue::new();
        for request in 0..100_000 {
            queue.push(waiting(request, request));
        }
        assert!(queue.capacity() >= 100_000);
        for request in 0..99_990 {
            assert!(queue.remove(RequestId(request)).is_some());
        }
        queue.check().unwrap();
        assert!(queue.capacity() <= SMALLEST, "{}", queue.capacity());
        assert_eq!(
            drain(&mut queue),
            Vec::from_iter(99_990..100_000),
            "the rest keeps its order"
        );
    }

    #[test]
    fn ids_that_share_a_cell_are_told_apart_after_removals() {
        let mut queue = Queue::new();
        queue.push(waiting(0, 0));
        let home = queue.home_cell(RequestId(0));
        let rivals: Vec<u64> = (1..)
            .filter(|id| {
                let cell = queue.home_cell(RequestId(*id));
                (cell.wrapping_sub(home) & (queue.index.len() - 1)) < 3
            })
            .take(60)
            .collect();
        for request in &rivals {
            queue.push(waiting(*request, *request));
        }
        for request in rivals.iter().step_by(3) {
            assert!(queue.remove(RequestId(*request)).is_some());
            assert!(!queue.contains(RequestId(*request)));
            queue.check().unwrap();
        }
        assert_eq!(queue.len(), 41);
    }
}
