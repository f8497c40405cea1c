//! A part of the store's memory: values by the hash of their key, limited in bytes and in number.
//!
//! What is removed first is decided as by S3-FIFO (Yang and others, "FIFO queues are all you need for cache eviction", SOSP 2023):
//!
//! ```text
//!              new              used at least twice
//! insert ────────────► small ───────────────────────► main ◄─┐
//!    │                   │                             │ ├───┘ used meanwhile: once more, with one use less
//!    │                   └─ else: removed ─► ghost     │ └─ else: removed
//!    └─ its ghost is there: it comes back ─────────────┘
//! ```
//!
//! Most pages are asked for once: these pass through `small`, a tenth of the bytes, and never displace what is asked for again
//! and again. A ghost is the hash of a removed value, without the value.

use std::collections::VecDeque;

use hashbrown::HashTable;

use crate::key::KeyHash;

/// A shard with values of type `V`.
#[derive(Debug)]
pub(crate) struct Shard<V> {
    limits: Limits,
    /// The places of nodes by hash.
    table: HashTable<u32>,
    nodes: Vec<Node<V>>,
    /// The first unused node; the others follow by `next`.
    unused: u32,
    small: Queue,
    main: Queue,
    ghosts: Ghosts,
    /// Bytes of values that are not complete yet.
    reserved: u64,
    evictions: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of all values, as they say themselves.
    pub(crate) bytes: u64,
    /// Number of values.
    pub(crate) values: usize,
}

#[derive(Debug)]
struct Node<V> {
    /// The part of the hash that the table uses. The shard was chosen by the other part, and the value has the whole key.
    hash: u64,
    value: Option<V>,
    weight: u32,
    /// Neighbours in its queue.
    older: u32,
    newer: u32,
    /// How often it was used since it came or was moved, up to [`MOST_USES`].
    uses: u8,
    is_main: bool,
}

#[derive(Debug)]
struct Queue {
    oldest: u32,
    newest: u32,
    bytes: u64,
}

/// Hashes of values that were removed from `small`: as many as there are values, the oldest of them is forgotten first.
#[derive(Debug, Default)]
struct Ghosts {
    order: VecDeque<u32>,
    table: HashTable<u32>,
}

/// What was removed, for the caller to drop without the shard's lock.
pub(crate) type Removed<V> = Vec<V>;

const NONE: u32 = u32::MAX;
const MOST_USES: u8 = 3;
/// A value with so many uses is moved from `small` to `main`.
const USES_OF_MAIN: u8 = 2;

impl<V> Shard<V> {
    pub(crate) fn new(limits: Limits) -> Shard<V> {
        Shard {
            limits,
            table: HashTable::new(),
            nodes: Vec::new(),
            unused: NONE,
            small: Queue::new(),
            main: Queue::new(),
            ghosts: Ghosts::default(),
            reserved: 0,
            evictions: 0,
        }
    }

    /// Looks up a value, which counts as a use.
    pub(crate) fn get(&mut self, hash: KeyHash) -> Option<&V> {
        let place = self.find(hash)?;
        let node = self.node(place)?;
        node.uses = (node.uses + 1).min(MOST_USES);
        node.value.as_ref()
    }

    /// Looks at a value, which is no use.
    pub(crate) fn peek(&self, hash: KeyHash) -> Option<&V> {
        let place = self.find(hash)?;
        self.nodes.get(place as usize)?.value.as_ref()
    }

    /// Whether it is there and was used since it came.
    pub(crate) fn is_used(&self, hash: KeyHash) -> bool {
        let node = self
            .find(hash)
            .and_then(|place| self.nodes.get(place as usize));
        node.is_some_and(|node| node.is_main || node.uses > 0)
    }

    /// Stores a value in place of the one with the same hash. False: it is too large, or too much is reserved.
    pub(crate) fn insert(
        &mut self,
        hash: KeyHash,
        value: V,
        weight: u32,
        removed: &mut Removed<V>,
    ) -> bool {
        // A renewed value is as much in use as the one before it.
        let before = self.find(hash).and_then(|place| self.node(place));
        let before = before.map(|node| (node.uses, node.is_main));
        removed.extend(self.remove(hash));
        if self.limits.values == 0 || !self.make_room(weight.into(), removed) {
            removed.push(value);
            return false;
        }
        while self.table.len() >= self.limits.values && self.evict(removed) {}
        let (uses, is_main) = before.unwrap_or_else(|| (0, self.ghosts.take(hash.low())));
        let place = self.new_node(Node {
            hash: hash.low(),
            value: Some(value),
            weight,
            older: NONE,
            newer: NONE,
            uses,
            is_main,
        });
        self.push(place);
        let nodes = &self.nodes;
        let hash_of = |place: &u32| hash_at(nodes, *place);
        self.table.insert_unique(hash.low(), place, hash_of);
        true
    }

    /// Changes the weight of a value that has grown. The value itself may be removed by that.
    pub(crate) fn add_weight(&mut self, hash: KeyHash, more: u32, removed: &mut Removed<V>) {
        if let Some(place) = self.find(hash) {
            let is_main = self.node(place).is_some_and(|node| {
                node.weight = node.weight.saturating_add(more);
                node.is_main
            });
            self.queue(is_main).bytes += u64::from(more);
            self.make_room(0, removed);
        }
    }

    pub(crate) fn remove(&mut self, hash: KeyHash) -> Option<V> {
        let place = self.find(hash)?;
        self.take(place)
    }

    /// Reserves bytes for a value that is not complete. False: there is not enough room, or more than half would be reserved.
    pub(crate) fn reserve(&mut self, bytes: u64, removed: &mut Removed<V>) -> bool {
        let may = self.reserved + bytes <= self.limits.bytes / 2 && self.make_room(bytes, removed);
        if may {
            self.reserved += bytes;
        }
        may
    }

    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// With what is reserved.
    pub(crate) fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes + self.reserved
    }

    /// How many values were removed to make room.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    fn make_room(&mut self, bytes: u64, removed: &mut Removed<V>) -> bool {
        if bytes.saturating_add(self.reserved) > self.limits.bytes {
            return false;
        }
        while self.bytes() + bytes > self.limits.bytes {
            if !self.evict(removed) {
                return false;
            }
        }
        true
    }

    /// Removes one value. False: there is none.
    fn evict(&mut self, removed: &mut Removed<V>) -> bool {
        loop {
            let is_small_full = self.small.bytes >= self.limits.bytes / 10;
            let oldest = match (self.small.oldest, self.main.oldest) {
                (NONE, NONE) => return false,
                (small, NONE) => small,
                (NONE, main) => main,
                (small, _) if is_small_full => small,
                (_, main) => main,
            };
            let Some(node) = self.node(oldest) else {
                return false;
            };
            let (uses, is_main, hash) = (node.uses, node.is_main, node.hash);
            if is_main && uses > 0 || uses >= USES_OF_MAIN {
                self.unlink(oldest);
                if let Some(node) = self.node(oldest) {
                    node.uses = if is_main { uses - 1 } else { 0 };
                    node.is_main = true;
                }
                self.push(oldest);
                continue;
            }
            if !is_main {
                self.ghosts.add(hash, self.table.len());
            }
            self.evictions += 1;
            removed.extend(self.take(oldest));
            return true;
        }
    }

    /// Removes a node from all lists.
    fn take(&mut self, place: u32) -> Option<V> {
        let hash = self.nodes.get(place as usize)?.hash;
        if let Ok(entry) = self.table.find_entry(hash, |found| *found == place) {
            entry.remove();
        }
        self.unlink(place);
        let unused = std::mem::replace(&mut self.unused, place);
        let node = self.node(place)?;
        node.newer = unused;
        node.value.take()
    }

    fn find(&self, hash: KeyHash) -> Option<u32> {
        let low = hash.low();
        let is_it = |place: &u32| hash_at(&self.nodes, *place) == low;
        self.table.find(low, is_it).copied()
    }

    fn new_node(&mut self, node: Node<V>) -> u32 {
        let place = self.unused;
        if let Some(free) = self.nodes.get_mut(place as usize) {
            self.unused = free.newer;
            *free = node;
            return place;
        }
        if self.nodes.len() == self.nodes.capacity() {
            // A vector of so many nodes would otherwise have room for as many again.
            self.nodes.reserve_exact(self.nodes.len() / 16 + 16);
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    /// Puts a node at the end of its queue.
    fn push(&mut self, place: u32) {
        let Some((is_main, weight)) = self
            .nodes
            .get(place as usize)
            .map(|node| (node.is_main, node.weight))
        else {
            return;
        };
        let queue = self.queue(is_main);
        queue.bytes += u64::from(weight);
        let before = std::mem::replace(&mut queue.newest, place);
        if before == NONE {
            queue.oldest = place;
        }
        if let Some(before) = self.node(before) {
            before.newer = place;
        }
        if let Some(node) = self.node(place) {
            (node.older, node.newer) = (before, NONE);
        }
    }

    fn unlink(&mut self, place: u32) {
        let Some(node) = self.nodes.get(place as usize) else {
            return;
        };
        let (older, newer, is_main, weight) = (node.older, node.newer, node.is_main, node.weight);
        if let Some(older) = self.node(older) {
            older.newer = newer;
        }
        if let Some(newer) = self.node(newer) {
            newer.older = older;
        }
        let queue = self.queue(is_main);
        queue.bytes -= u64::from(weight);
        if queue.oldest == place {
            queue.oldest = newer;
        }
        if queue.newest == place {
            queue.newest = older;
        }
    }

    fn queue(&mut self, is_main: bool) -> &mut Queue {
        match is_main {
            true => &mut self.main,
            false => &mut self.small,
        }
    }

    fn node(&mut self, place: u32) -> Option<&mut Node<V>> {
        self.nodes.get_mut(place as usize)
    }
}

impl Queue {
    fn new() -> Queue {
        Queue {
            oldest: NONE,
            newest: NONE,
            bytes: 0,
        }
    }
}

impl Ghosts {
    fn add(&mut self, hash: u64, most: usize) {
        let ghost = hash as u32;
        if self
            .table
            .find(spread(ghost), |other| *other == ghost)
            .is_some()
        {
            return;
        }
        self.table
            .insert_unique(spread(ghost), ghost, |ghost| spread(*ghost));
        self.order.push_back(ghost);
        while self.order.len() > most
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(oldest);
        }
    }

    /// Whether it was there.
    fn take(&mut self, hash: u64) -> bool {
        // Its place in the order stays: it is forgotten when that comes to the front.
        self.remove(hash as u32)
    }

    fn remove(&mut self, ghost: u32) -> bool {
        let entry = self
            .table
            .find_entry(spread(ghost), |other| *other == ghost);
        entry
            .map(hashbrown::hash_table::OccupiedEntry::remove)
            .is_ok()
    }
}

fn hash_at<V>(nodes: &[Node<V>], place: u32) -> u64 {
    nodes.get(place as usize).map_or(0, |node| node.hash)
}

/// A table uses the highest and the lowest bits.
fn spread(ghost: u32) -> u64 {
    u64::from(ghost).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
pub(crate) mod tests;
