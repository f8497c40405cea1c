//! The queue: which requests wait, in which order, and where each of them is.
//!
//! There is a class per priority, the lowest number first. A class has its retries (in the order of first admission),
//! its **fresh** requests (in flows, one per client, that take turns: `flows.rs`), and its **stale** ones, which have
//! waited too long while the pool was overloaded ([`Queue::make_stale`]). The next request is:
//!
//! - usually from the first class with waiting requests: a retry, then a stale one (the oldest first), then from the
//!   flow whose turn it is;
//! - with `stale_last`, under overload: a retry or from a flow, through all classes, and only then a stale one, the
//!   newest one of the first class first.
//!
//! When it is the turn of a request whose session has enough workers, its flow sets it **aside**. Such a request is
//! next when its session uses fewer workers, or when the flow has no other request. Each request is set aside at most
//! once.
//!
//! All requests except retries are also in one list by age, of which the stale ones are the older part. Requests with
//! their own deadline are in a heap. A hash index finds a waiting request by its id. All lists are linked through one
//! table of entries, so that a client that leaves is removed in constant time, and a freed entry is used again. Table
//! and index are rebuilt, larger or smaller, when the number of waiting requests exceeds them or falls to an eighth:
//! the memory of a burst is given back, and each operation is O(1) on average, except those of the heap, which are
//! O(log n).

use alloc::{vec, vec::Vec};

use crate::flows::{Flow, Flows, Ring};
use crate::index::{Index, NONE, hash};
use crate::{Micros, RequestId};

mod check;
mod deadlines;

/// A request in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) request: RequestId,
    /// The reactor that serves the request.
    pub(crate) home: u16,
    pub(crate) priority: i16,
    pub(crate) client: u64,
    /// A session of the client; 0: none.
    pub(crate) session: u64,
    /// When it was first admitted; the queue's timeout counts from here.
    pub(crate) admitted_at: Micros,
    /// When it was put into this queue; the same time, unless it is a retry.
    pub(crate) queued_at: Micros,
    /// When it must have a worker; MAX: it has no deadline.
    pub(crate) start_by: Micros,
}

#[derive(Debug)]
pub(crate) struct Queue {
    entries: Vec<Entry>,
    /// First of the unused entries, which are linked by `next`.
    unused: u32,
    index: Index,
    flows: Flows,
    /// In order of priority; some may be empty.
    classes: Vec<Class>,
    /// All except retries, the oldest first.
    ages: List,
    /// The oldest one that is not stale.
    oldest_fresh: u32,
    /// A heap of the entries with a deadline, the earliest at the top.
    deadlines: Vec<u32>,
    len: usize,
    stale: usize,
}

/// The waiting requests of a class.
#[derive(Debug)]
struct Class {
    priority: i16,
    retries: List,
    stale: List,
    ring: Ring,
    /// Lengths of the three lists.
    retrying: usize,
    stale_len: usize,
    fresh: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    waiting: Waiting,
    part: Part,
    is_used: bool,
    /// Only for a fresh request.
    flow: u32,
    /// Its flow has set it aside.
    aside: bool,
    /// In its flow, or in a list of the class.
    prev: u32,
    next: u32,
    /// By age; not for retries.
    older: u32,
    newer: u32,
    /// Its index in the heap.
    heap: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Retry,
    Fresh,
    Stale,
}

#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

impl Class {
    fn new(priority: i16) -> Self {
        Self {
            priority,
            retries: EMPTY,
            stale: EMPTY,
            ring: Ring::default(),
            retrying: 0,
            stale_len: 0,
            fresh: 0,
        }
    }

    fn len(&self) -> usize {
        self.retrying + self.stale_len + self.fresh
    }

    /// How many of its requests go before others.
    fn ahead(&self, stale_last: bool) -> usize {
        match stale_last {
            true => self.retrying + self.fresh,
            false => self.len(),
        }
    }
}

impl Queue {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            unused: NONE,
            index: Index::new(),
            flows: Flows::new(),
            classes: Vec::new(),
            ages: EMPTY,
            oldest_fresh: NONE,
            deadlines: Vec::new(),
            len: 0,
            stale: 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many of these are stale.
    pub(crate) fn stale(&self) -> usize {
        self.stale
    }

    /// How many can wait before memory is allocated.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn contains(&self, request: RequestId) -> bool {
        self.find(request).is_some()
    }

    /// Whether a request waits that goes before a new request of this class in any case.
    #[inline]
    pub(crate) fn has_before(&self, priority: i16, stale_last: bool) -> bool {
        self.len > 0 && self.upto(priority).any(|class| class.ahead(stale_last) > 0)
    }

    /// At most how many would be ahead of a new request.
    pub(crate) fn place_of(&self, priority: i16, client: u64, stale_last: bool) -> usize {
        self.place_in(
            priority,
            (self.flow_of(priority, client), false),
            stale_last,
        )
    }

    /// The flow of a client in a class, if it has requests waiting there.
    pub(crate) fn flow_of(&self, priority: i16, client: u64) -> Option<u32> {
        self.flows.find(priority, client)
    }

    /// The same as [`place_of`](Self::place_of) for a new request whose flow is `own`, and whose session `has_enough`.
    pub(crate) fn place_in(
        &self,
        priority: i16,
        (own, has_enough): (Option<u32>, bool),
        stale_last: bool,
    ) -> usize {
        let mut before = 0;
        for class in self.upto(priority) {
            before += class.ahead(stale_last);
            if class.priority == priority {
                let own_flow = own.map(|flow| self.flows.get(flow));
                let all = own_flow.map_or(0, |flow| flow.len as usize);
                let passed = own_flow.map_or(0, |flow| flow.aside_len as usize);
                let passed = if has_enough { 0 } else { passed };
                let own_len = all - passed;
                let others = class.ring.count() - usize::from(own.is_some());
                let theirs = class.fresh - all;
                before -= passed + theirs - theirs.min(others.saturating_mul(own_len + 1));
            }
        }
        before
    }

    /// Adds a new request at the end of its client's flow.
    pub(crate) fn push(&mut self, waiting: Waiting) {
        let own = self.flow_of(waiting.priority, waiting.client);
        self.push_in(own, waiting);
    }

    /// The same, if its [`flow_of`](Self::flow_of) is known.
    #[inline]
    pub(crate) fn push_in(&mut self, own: Option<u32>, waiting: Waiting) {
        self.make_room();
        let place = self.class_place(waiting.priority);
        let ring = &mut self.classes[place].ring;
        let flow = match own {
            Some(flow) => flow,
            None => self.flows.make(ring, waiting.priority, waiting.client),
        };
        let prev = self.flows.get(flow).tail;
        let at = self.new_entry(Entry {
            flow,
            prev,
            older: self.ages.tail,
            ..Entry::new(waiting, Part::Fresh)
        });
        if prev == NONE {
            self.flows.get_mut(flow).head = at;
        } else {
            self.entries[prev as usize].next = at;
        }
        self.flows.get_mut(flow).tail = at;
        let class = &mut self.classes[place];
        self.flows.grew(&mut class.ring, flow);
        class.fresh += 1;
        match self.ages.tail {
            NONE => self.ages.head = at,
            tail => self.entries[tail as usize].newer = at,
        }
        self.ages.tail = at;
        if self.oldest_fresh == NONE {
            self.oldest_fresh = at;
        }
    }

    /// Adds a retry before all fresh requests of its class and after the retries that were first admitted earlier.
    /// One step per waiting retry of the class; there are never more of them than there were workers.
    pub(crate) fn push_retry(&mut self, waiting: Waiting) {
        self.make_room();
        let place = self.class_place(waiting.priority);
        let (mut prev, mut next) = (NONE, self.classes[place].retries.head);
        while next != NONE && self.entries[next as usize].waiting.admitted_at <= waiting.admitted_at
        {
            (prev, next) = (next, self.entries[next as usize].next);
        }
        let at = self.new_entry(Entry {
            prev,
            next,
            ..Entry::new(waiting, Part::Retry)
        });
        let class = &mut self.classes[place];
        match prev {
            NONE => class.retries.head = at,
            _ => self.entries[prev as usize].next = at,
        }
        match next {
            NONE => class.retries.tail = at,
            _ => self.entries[next as usize].prev = at,
        }
        class.retrying += 1;
    }

    /// How many are ahead of a retry that was first admitted at `admitted_at`.
    pub(crate) fn place_of_retry(
        &self,
        priority: i16,
        admitted_at: Micros,
        stale_last: bool,
    ) -> usize {
        let mut before = 0;
        for class in self.upto(priority) {
            if class.priority < priority {
                before += class.ahead(stale_last);
                continue;
            }
            let mut at = class.retries.head;
            while at != NONE && self.entries[at as usize].waiting.admitted_at <= admitted_at {
                before += 1;
                at = self.entries[at as usize].next;
            }
        }
        before
    }

    /// Takes out the next request among those whose priority `may` run. If a priority may not, no higher number may. A
    /// client that `has_enough` is skipped if another client of its class has a flow, and a session that
    /// `session_has_enough` if another request of its flow waits.
    pub(crate) fn pop(
        &mut self,
        stale_last: bool,
        may: impl Fn(i16) -> bool,
        has_enough: impl Fn(u64) -> bool,
        session_has_enough: impl Fn(u64) -> bool,
    ) -> Option<Waiting> {
        let class = self
            .classes
            .iter_mut()
            .find(|class| class.ahead(stale_last) > 0);
        if let Some(class) = class
            && may(class.priority)
        {
            let at = if class.retries.head != NONE {
                class.retries.head
            } else if !stale_last && class.stale.head != NONE {
                class.stale.head
            } else {
                self.flows.pass_turn(&mut class.ring, has_enough);
                let flow = class.ring.turn()?;
                self.first_of(flow, session_has_enough)
            };
            return Some(self.take(at, true));
        }
        if !stale_last {
            return None;
        }
        let class = self.classes.iter().find(|class| class.stale_len > 0)?;
        let newest = class.stale.tail;
        may(class.priority).then(|| self.take(newest, true))
    }

    /// The next request of a flow.
    #[inline]
    fn first_of(&mut self, flow: u32, has_enough: impl Fn(u64) -> bool) -> u32 {
        self.set_aside(flow, &has_enough);
        let Flow {
            head, aside_head, ..
        } = *self.flows.get(flow);
        if aside_head == NONE || head == NONE {
            return if head == NONE { aside_head } else { head };
        }
        let (first, aside) = (
            &self.entries[head as usize].waiting,
            &self.entries[aside_head as usize].waiting,
        );
        match aside.admitted_at <= first.admitted_at && !has_enough(aside.session) {
            true => aside_head,
            false => head,
        }
    }

    /// Sets the first requests of a flow aside whose session `has_enough`. One step each.
    #[inline]
    pub(crate) fn set_aside(&mut self, flow: u32, has_enough: impl Fn(u64) -> bool) {
        loop {
            let Flow {
                head, aside_tail, ..
            } = *self.flows.get(flow);
            if head == NONE || !has_enough(self.entries[head as usize].waiting.session) {
                return;
            }
            let entry = &mut self.entries[head as usize];
            let next = entry.next;
            (entry.aside, entry.prev, entry.next) = (true, aside_tail, NONE);
            match next {
                NONE => self.flows.get_mut(flow).tail = NONE,
                next => self.entries[next as usize].prev = NONE,
            }
            match aside_tail {
                NONE => self.flows.get_mut(flow).aside_head = head,
                tail => self.entries[tail as usize].next = head,
            }
            let flow = self.flows.get_mut(flow);
            (flow.head, flow.aside_tail) = (next, head);
            flow.aside_len += 1;
        }
    }

    /// Whether a request waits whose priority `may` run.
    pub(crate) fn is_any_let(&self, may: impl Fn(i16) -> bool) -> bool {
        let first = self.classes.iter().find(|class| class.len() > 0);
        first.is_some_and(|class| may(class.priority))
    }

    /// All except retries that were admitted at `limit` or before become stale. One step each.
    pub(crate) fn make_stale(&mut self, limit: Micros) {
        while let Some(entry) = self.entries.get(self.oldest_fresh as usize)
            && entry.waiting.admitted_at <= limit
        {
            let at = self.oldest_fresh;
            self.oldest_fresh = entry.newer;
            let place = self.class_place(entry.waiting.priority);
            self.leave_flow(at, place, false);
            let class = &mut self.classes[place];
            let tail = core::mem::replace(&mut class.stale.tail, at);
            match tail {
                NONE => class.stale.head = at,
                _ => self.entries[tail as usize].next = at,
            }
            class.stale_len += 1;
            self.stale += 1;
            let entry = &mut self.entries[at as usize];
            (entry.part, entry.flow, entry.aside) = (Part::Stale, NONE, false);
            (entry.prev, entry.next) = (tail, NONE);
        }
    }

    /// The request that is removed for a new one in a full queue: the oldest stale one; otherwise, in the last class
    /// that has flows, the newest request of the longest flow, if that class goes after the new request's class, or
    /// if it is the same class and that flow stays at least as long as the new request's flow.
    pub(crate) fn who_gives_way(&self, priority: i16, client: u64) -> Option<RequestId> {
        let at = if self.stale > 0 {
            self.ages.head
        } else {
            let last = self.classes.iter().rev().find(|class| class.fresh > 0)?;
            let own = self.flows.find(priority, client);
            let own_len = own.map_or(0, |flow| self.flows.get(flow).len as usize);
            let gives = last.priority > priority
                || last.priority == priority && last.ring.longest() > own_len + 1;
            if !gives {
                return None;
            }
            let flow = self.flows.get(last.ring.a_longest()?);
            if flow.aside_tail == NONE {
                flow.tail
            } else {
                flow.aside_tail
            }
        };
        Some(self.entries[at as usize].waiting.request)
    }

    /// Takes out one that was first admitted at `limit` or before, if there is one.
    pub(crate) fn pop_admitted_by(&mut self, limit: Micros) -> Option<Waiting> {
        let oldest = self
            .oldest_entry()
            .filter(|at| self.entries[*at as usize].waiting.admitted_at <= limit)?;
        Some(self.take(oldest, false))
    }

    /// Takes out one that had to have a worker by `limit`, if there is one.
    pub(crate) fn pop_to_start_by(&mut self, limit: Micros) -> Option<Waiting> {
        let first = *self.deadlines.first()?;
        let due = self.entries[first as usize].waiting.start_by <= limit;
        due.then(|| self.take(first, false))
    }

    /// When the longest waiting request was first admitted.
    pub(crate) fn oldest(&self) -> Option<Micros> {
        let oldest = self.oldest_entry()?;
        Some(self.entries[oldest as usize].waiting.admitted_at)
    }

    /// The earliest deadline of the waiting requests.
    pub(crate) fn first_deadline(&self) -> Option<Micros> {
        let first = *self.deadlines.first()?;
        Some(self.entries[first as usize].waiting.start_by)
    }

    /// Takes a request out, wherever it is.
    pub(crate) fn remove(&mut self, request: RequestId) -> Option<Waiting> {
        let cell = self.find(request)?;
        let at = self.index.place(cell);
        Some(self.take(at, false))
    }

    /// The classes before this one, and the class itself.
    fn upto(&self, priority: i16) -> impl Iterator<Item = &Class> {
        self.classes
            .iter()
            .take_while(move |class| class.priority <= priority)
    }

    /// The oldest entry of all classes. There are few classes, and the oldest retry of each is its first.
    fn oldest_entry(&self) -> Option<u32> {
        let retries = self.classes.iter().map(|class| class.retries.head);
        retries
            .chain([self.ages.head])
            .filter(|at| *at != NONE)
            .min_by_key(|at| self.entries[*at as usize].waiting.admitted_at)
    }

    /// The index of the class, which is created if necessary. Usually there is only one class.
    #[inline]
    fn class_place(&mut self, priority: i16) -> usize {
        match self.classes.first() {
            Some(first) if first.priority == priority => 0,
            _ => self.search_class_place(priority),
        }
    }

    fn search_class_place(&mut self, priority: i16) -> usize {
        let find = |classes: &[Class]| classes.binary_search_by_key(&priority, |c| c.priority);
        find(&self.classes).unwrap_or_else(|mut place| {
            if self.classes.len() >= KEPT_CLASSES {
                self.classes.retain(|class| class.len() > 0);
                place = find(&self.classes).unwrap_or_else(|place| place);
            }
            self.classes.insert(place, Class::new(priority));
            place
        })
    }

    #[inline]
    fn new_entry(&mut self, entry: Entry) -> u32 {
        let at = self.unused;
        self.unused = self.entries[at as usize].next;
        self.entries[at as usize] = entry;
        self.len += 1;
        self.index.insert(hash(entry.waiting.request.0), at);
        if entry.waiting.start_by < Micros::MAX {
            self.add_deadline(at);
        }
        at
    }

    /// Removes an entry from all lists. `served`: its client's turn is over.
    fn take(&mut self, at: u32, served: bool) -> Waiting {
        let Entry {
            waiting,
            part,
            prev,
            next,
            older,
            newer,
            heap,
            ..
        } = self.entries[at as usize];
        let cell = self
            .index
            .find(hash(waiting.request.0), |place| place == at);
        if let Some(cell) = cell {
            let entries = &self.entries;
            self.index
                .remove(cell, |at| hash(entries[at as usize].waiting.request.0));
        }
        if heap != NONE {
            self.remove_deadline(heap as usize);
        }
        let place = self.class_place(waiting.priority);
        match part {
            Part::Fresh => self.leave_flow(at, place, served),
            Part::Retry | Part::Stale => {
                let class = &mut self.classes[place];
                let (list, count) = match part {
                    Part::Retry => (&mut class.retries, &mut class.retrying),
                    _ => (&mut class.stale, &mut class.stale_len),
                };
                *count -= 1;
                match prev {
                    NONE => list.head = next,
                    _ => self.entries[prev as usize].next = next,
                }
                match next {
                    NONE => list.tail = prev,
                    _ => self.entries[next as usize].prev = prev,
                }
                self.stale -= usize::from(part == Part::Stale);
            }
        }
        if part != Part::Retry {
            if self.oldest_fresh == at {
                self.oldest_fresh = newer;
            }
            match older {
                NONE => self.ages.head = newer,
                _ => self.entries[older as usize].newer = newer,
            }
            match newer {
                NONE => self.ages.tail = older,
                _ => self.entries[newer as usize].older = older,
            }
        }
        let entry = &mut self.entries[at as usize];
        (entry.is_used, entry.next) = (false, self.unused);
        self.unused = at;
        self.len -= 1;
        if self.entries.len() > SMALLEST && self.len <= self.entries.len() / 8 {
            self.shrink();
        }
        waiting
    }

    #[inline]
    fn leave_flow(&mut self, at: u32, place: usize, served: bool) {
        let Entry {
            flow,
            aside,
            prev,
            next,
            ..
        } = self.entries[at as usize];
        let (head, tail) = self.flows.get_mut(flow).ends(aside);
        if prev == NONE {
            *head = next;
        }
        if next == NONE {
            *tail = prev;
        }
        if prev != NONE {
            self.entries[prev as usize].next = next;
        }
        if next != NONE {
            self.entries[next as usize].prev = prev;
        }
        self.flows.get_mut(flow).aside_len -= u32::from(aside);
        let class = &mut self.classes[place];
        class.fresh -= 1;
        self.flows.shrank(&mut class.ring, flow, served);
    }

    /// Ensures that there is an unused entry.
    #[inline]
    fn make_room(&mut self) {
        if self.unused == NONE {
            self.grow_to((self.entries.len() * 2).max(SMALLEST));
        }
    }

    /// All entries of the table are in use; the rest, up to `room`, becomes unused entries.
    fn grow_to(&mut self, room: usize) {
        let used = self.entries.len();
        self.entries.reserve_exact(room - used);
        self.index = Index::with_room(room);
        for (at, entry) in self.entries.iter().enumerate() {
            self.index.insert(hash(entry.waiting.request.0), at as u32);
        }
        for at in used..room {
            let next = if at + 1 < room { at as u32 + 1 } else { NONE };
            self.entries.push(Entry { next, ..UNUSED });
        }
        self.unused = if used < room { used as u32 } else { NONE };
    }

    /// Rebuilds the table with a quarter of its size, which is twice what the waiting requests need.
    fn shrink(&mut self) {
        let room = (self.entries.len() / 4).max(SMALLEST);
        let moved_flows = self
            .flows
            .compact(self.classes.iter_mut().map(|c| &mut c.ring));
        let mut moved = vec![NONE; self.entries.len()];
        let mut kept = Vec::with_capacity(room);
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.is_used {
                moved[at] = kept.len() as u32;
                kept.push(*entry);
            }
        }
        let to = |at: &mut u32| {
            if *at != NONE {
                *at = moved[*at as usize];
            }
        };
        for entry in &mut kept {
            if entry.flow != NONE {
                entry.flow = moved_flows[entry.flow as usize];
            }
            let links = [&mut entry.prev, &mut entry.next];
            let ages = [&mut entry.older, &mut entry.newer];
            links.into_iter().chain(ages).for_each(to);
            if entry.part == Part::Fresh {
                let (head, tail) = self.flows.get_mut(entry.flow).ends(entry.aside);
                // Once per list: at its oldest request.
                if entry.prev == NONE {
                    to(head);
                    to(tail);
                }
            }
        }
        for class in &mut self.classes {
            for list in [&mut class.retries, &mut class.stale] {
                to(&mut list.head);
                to(&mut list.tail);
            }
        }
        to(&mut self.ages.head);
        to(&mut self.ages.tail);
        to(&mut self.oldest_fresh);
        self.deadlines.iter_mut().for_each(to);
        self.deadlines.shrink_to_fit();
        debug_assert!(kept.len() == self.len && self.len <= room);
        self.entries = kept;
        self.grow_to(room);
    }

    #[inline]
    fn find(&self, request: RequestId) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        self.index.find(hash(request.0), |at| {
            self.entries[at as usize].waiting.request == request
        })
    }
}

impl Entry {
    fn new(waiting: Waiting, part: Part) -> Self {
        Self {
            waiting,
            part,
            is_used: true,
            ..UNUSED
        }
    }
}

const EMPTY: List = List {
    head: NONE,
    tail: NONE,
};
const UNUSED: Entry = Entry {
    waiting: Waiting {
        request: RequestId(0),
        home: 0,
        priority: 0,
        client: 0,
        session: 0,
        admitted_at: Micros::ZERO,
        queued_at: Micros::ZERO,
        start_by: Micros::MAX,
    },
    part: Part::Fresh,
    is_used: false,
    flow: NONE,
    aside: false,
    prev: NONE,
    next: NONE,
    older: NONE,
    newer: NONE,
    heap: NONE,
};

/// Minimum room after the first wait: about 30 KB.
const SMALLEST: usize = 256;

/// How many empty classes are kept, so that a class is not created for each request.
const KEPT_CLASSES: usize = 8;

#[cfg(test)]
mod tests;
