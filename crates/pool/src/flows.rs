//! The flows: the waiting requests of each client, and whose turn it is.
//!
//! A flow has all waiting requests of one client in one class, in order of arrival. The flows of a class form a ring:
//! the flow whose turn it is gives its oldest request, and goes to the end if it has more; a new flow is added at the
//! end. So clients get workers in turns, however many requests each has (deficit round robin with a quantum of one
//! request: Shreedhar and Varghese, "Efficient fair queueing using deficit round robin", 1995). A flow exists only
//! while it has waiting requests, so there are never more flows than requests.
//!
//! The flows of a class are also listed by length, because the longest one loses a request when the queue is full.
//! Every step is O(1).

use alloc::vec::Vec;

use crate::index::{Index, NONE, hash};

/// All flows of all classes.
#[derive(Debug)]
pub(crate) struct Flows {
    table: Vec<Flow>,
    /// First of the unused ones, which are linked by `after`.
    unused: u32,
    index: Index,
    len: usize,
}

/// The waiting requests of one client in one class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) priority: i16,
    pub(crate) client: u64,
    /// Its oldest and its newest request: indices into the queue's table.
    pub(crate) head: u32,
    pub(crate) tail: u32,
    /// The same of those that are set aside, and their number.
    pub(crate) aside_head: u32,
    pub(crate) aside_tail: u32,
    pub(crate) aside_len: u32,
    /// Number of the flow's requests, including those set aside.
    pub(crate) len: u32,
    /// Links of the ring.
    before: u32,
    after: u32,
    /// Links among flows of the same length.
    same_before: u32,
    same_after: u32,
}

impl Flow {
    /// The ends of one of its lists.
    pub(crate) fn ends(&mut self, aside: bool) -> (&mut u32, &mut u32) {
        match aside {
            true => (&mut self.aside_head, &mut self.aside_tail),
            false => (&mut self.head, &mut self.tail),
        }
    }
}

/// The flows of one class.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// The flow whose turn it is; valid only if `count` is not 0.
    turn: u32,
    count: usize,
    /// First of the flows of length 1, 2, …; the last entry is not empty.
    lengths: Vec<u32>,
}

impl Ring {
    /// Number of flows.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The flow whose turn it is.
    pub(crate) fn turn(&self) -> Option<u32> {
        (self.count > 0).then_some(self.turn)
    }

    /// The length of the longest flow.
    pub(crate) fn longest(&self) -> usize {
        self.lengths.len()
    }

    /// One of the longest flows.
    pub(crate) fn a_longest(&self) -> Option<u32> {
        self.lengths.last().copied()
    }
}

impl Flows {
    pub(crate) const fn new() -> Self {
        Self {
            table: Vec::new(),
            unused: NONE,
            index: Index::new(),
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn get(&self, flow: u32) -> &Flow {
        &self.table[flow as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, flow: u32) -> &mut Flow {
        &mut self.table[flow as usize]
    }

    /// The flow of a client in a class, if it has something waiting.
    #[inline]
    pub(crate) fn find(&self, priority: i16, client: u64) -> Option<u32> {
        let cell = self.cell(priority, client)?;
        Some(self.index.place(cell))
    }

    /// A new, empty flow at the end of the ring; none exists for this client yet. A request must be put into it, with
    /// [`grew`](Self::grew), at once.
    pub(crate) fn make(&mut self, ring: &mut Ring, priority: i16, client: u64) -> u32 {
        if self.unused == NONE {
            self.grow();
        }
        let new = self.unused;
        self.unused = self.table[new as usize].after;
        let (before, after) = match ring.turn() {
            Some(turn) => (self.table[turn as usize].before, turn),
            None => (new, new),
        };
        self.table[new as usize] = Flow {
            priority,
            client,
            before,
            after,
            ..EMPTY
        };
        self.table[before as usize].after = new;
        self.table[after as usize].before = new;
        if ring.count == 0 {
            ring.turn = new;
        }
        ring.count += 1;
        self.len += 1;
        self.index.insert(hash_of(priority, client), new);
        new
    }

    /// A request was put into a flow.
    #[inline]
    pub(crate) fn grew(&mut self, ring: &mut Ring, flow: u32) {
        let len = self.table[flow as usize].len;
        if len > 0 {
            self.unlist(ring, flow);
        }
        self.table[flow as usize].len = len + 1;
        self.list(ring, flow);
    }

    /// A request was taken out of a flow, which is removed if it was the last one. `served`: the next flow has its
    /// turn.
    #[inline]
    pub(crate) fn shrank(&mut self, ring: &mut Ring, flow: u32, served: bool) {
        self.unlist(ring, flow);
        let Flow { before, after, .. } = self.table[flow as usize];
        let left = self.table[flow as usize].len - 1;
        self.table[flow as usize].len = left;
        if ring.turn == flow && (served || left == 0) {
            ring.turn = after;
        }
        if left > 0 {
            self.list(ring, flow);
        } else {
            self.table[before as usize].after = after;
            self.table[after as usize].before = before;
            ring.count -= 1;
            self.forget(flow);
        }
        while ring.lengths.last() == Some(&NONE) {
            ring.lengths.pop();
        }
    }

    /// Gives the turn to the first flow, in the order of turns, whose client does not have enough yet. If all have enough,
    /// nothing changes. Takes one step for each skipped flow; these have workers, so they are few.
    #[inline]
    pub(crate) fn pass_turn(&self, ring: &mut Ring, has_enough: impl Fn(u64) -> bool) {
        let mut at = ring.turn;
        for _ in 1..ring.count {
            if !has_enough(self.get(at).client) {
                ring.turn = at;
                return;
            }
            at = self.get(at).after;
        }
        if ring.count > 1 && !has_enough(self.get(at).client) {
            ring.turn = at;
        }
    }

    /// Makes a new table with room for twice the present flows, and returns where each flow went.
    pub(crate) fn compact<'r>(&mut self, rings: impl Iterator<Item = &'r mut Ring>) -> Vec<u32> {
        let room = (self.len * 2).max(SMALLEST);
        let mut moved = alloc::vec![NONE; self.table.len()];
        let mut kept = Vec::with_capacity(room);
        for (place, flow) in self.table.iter().enumerate() {
            if flow.len > 0 {
                moved[place] = kept.len() as u32;
                kept.push(*flow);
            }
        }
        let to = |place: &mut u32| {
            if *place != NONE {
                *place = moved[*place as usize];
            }
        };
        for flow in &mut kept {
            let links = [&mut flow.before, &mut flow.after];
            let same = [&mut flow.same_before, &mut flow.same_after];
            links.into_iter().chain(same).for_each(to);
        }
        for ring in rings.filter(|ring| ring.count > 0) {
            to(&mut ring.turn);
            ring.lengths.iter_mut().for_each(to);
            ring.lengths.shrink_to_fit();
        }
        self.table = kept;
        self.grow_to(room);
        moved
    }

    /// Walks through the flows of a class and returns what is inconsistent. Calls `each` for every flow, in order of
    /// turns. For tests.
    pub(crate) fn check(
        &self,
        ring: &Ring,
        priority: i16,
        mut each: impl FnMut(u32, &Flow) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        let mut at = ring.turn;
        for _ in 0..ring.count {
            let flow = self.get(at);
            if flow.len == 0 || flow.priority != priority {
                return Err("a ring has a flow that does not belong there");
            }
            if self.get(flow.after).before != at {
                return Err("a ring's links do not match");
            }
            if self.find(priority, flow.client) != Some(at) {
                return Err("the index does not lead to a flow");
            }
            each(at, flow)?;
            at = flow.after;
        }
        if ring.count > 0 && at != ring.turn {
            return Err("a ring is longer than its count");
        }
        let mut listed = 0;
        for (length, first) in ring.lengths.iter().enumerate() {
            let (mut at, mut before) = (*first, NONE);
            while at != NONE {
                let flow = self.get(at);
                if flow.len as usize != length + 1 || flow.same_before != before {
                    return Err("a flow is not listed by its length");
                }
                listed += 1;
                (before, at) = (at, flow.same_after);
            }
        }
        if listed != ring.count || ring.lengths.last() == Some(&NONE) {
            return Err("the lists by length have more or fewer than the ring");
        }
        Ok(())
    }

    /// Number of flows, and their number in the index; must be equal.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.len, self.index.count())
    }

    #[inline]
    fn cell(&self, priority: i16, client: u64) -> Option<usize> {
        self.index.find(hash_of(priority, client), |flow| {
            let flow = &self.table[flow as usize];
            flow.client == client && flow.priority == priority
        })
    }

    fn forget(&mut self, flow: u32) {
        let Flow {
            priority, client, ..
        } = self.table[flow as usize];
        if let Some(cell) = self.cell(priority, client) {
            let table = &self.table;
            self.index.remove(cell, |flow| {
                let flow = &table[flow as usize];
                hash_of(flow.priority, flow.client)
            });
        }
        self.len -= 1;
        self.table[flow as usize].after = self.unused;
        self.unused = flow;
    }

    #[inline]
    fn list(&mut self, ring: &mut Ring, flow: u32) {
        let length = self.table[flow as usize].len as usize;
        // A flow grows by one, so at most one new list is needed.
        if ring.lengths.len() < length {
            ring.lengths.push(NONE);
        }
        let first = core::mem::replace(&mut ring.lengths[length - 1], flow);
        if first != NONE {
            self.table[first as usize].same_before = flow;
        }
        let flow = &mut self.table[flow as usize];
        (flow.same_before, flow.same_after) = (NONE, first);
    }

    #[inline]
    fn unlist(&mut self, ring: &mut Ring, flow: u32) {
        let Flow {
            len,
            same_before,
            same_after,
            ..
        } = self.table[flow as usize];
        match same_before {
            NONE => ring.lengths[len as usize - 1] = same_after,
            _ => self.table[same_before as usize].same_after = same_after,
        }
        if same_after != NONE {
            self.table[same_after as usize].same_before = same_before;
        }
    }

    fn grow(&mut self) {
        self.grow_to((self.table.len() * 2).max(SMALLEST));
    }

    /// All entries of the table are in use; the rest, up to `room`, becomes unused entries.
    fn grow_to(&mut self, room: usize) {
        let used = self.table.len();
        self.table.reserve_exact(room - used);
        self.index = Index::with_room(room);
        for (place, flow) in self.table.iter().enumerate() {
            self.index
                .insert(hash_of(flow.priority, flow.client), place as u32);
        }
        for place in used..room {
            let after = if place + 1 < room {
                place as u32 + 1
            } else {
                NONE
            };
            self.table.push(Flow { after, ..EMPTY });
        }
        self.unused = if used < room { used as u32 } else { NONE };
    }
}

fn hash_of(priority: i16, client: u64) -> u64 {
    hash(client ^ (u64::from(priority.cast_unsigned()) << 48))
}

const EMPTY: Flow = Flow {
    priority: 0,
    client: 0,
    head: NONE,
    tail: NONE,
    aside_head: NONE,
    aside_tail: NONE,
    aside_len: 0,
    len: 0,
    before: NONE,
    after: NONE,
    same_before: NONE,
    same_after: NONE,
};

/// Room that is kept after the first wait.
const SMALLEST: usize = 64;
