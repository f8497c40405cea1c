//! How many workers each client uses.
//!
//! A hash table with open addressing that contains the counts themselves. It has room for as many clients as there are
//! workers, so a request that starts or ends never allocates. Read next: `share` in `pool/starting.rs`, which uses it.

use alloc::{vec, vec::Vec};

use crate::index::hash;

/// Client → number of its running requests.
#[derive(Debug)]
pub(crate) struct Holders {
    /// A power of two, at least twice the number of workers, or none yet.
    cells: Vec<Holder>,
}

#[derive(Debug, Clone, Copy)]
struct Holder {
    client: u64,
    /// 0: the cell is empty.
    count: u32,
}

impl Holders {
    pub(crate) const fn new() -> Self {
        Self { cells: Vec::new() }
    }

    /// Makes room for so many clients.
    #[inline]
    pub(crate) fn make_room(&mut self, clients: usize) {
        if self.cells.len() < clients * 2 {
            self.grow(clients);
        }
    }

    /// Counts one more for a client. There must be room for it.
    #[inline]
    pub(crate) fn add(&mut self, client: u64) {
        let at = self.cell(client);
        let cell = &mut self.cells[at];
        (cell.client, cell.count) = (client, cell.count + 1);
    }

    /// Counts one less for a client.
    #[inline]
    pub(crate) fn take(&mut self, client: u64) {
        let at = self.cell(client);
        let cell = &mut self.cells[at];
        debug_assert!(cell.count > 0, "it was added");
        cell.count = cell.count.saturating_sub(1);
        if cell.count == 0 {
            self.close_hole(at);
        }
    }

    /// How many a client has.
    #[inline]
    pub(crate) fn count(&self, client: u64) -> usize {
        match self.cells.is_empty() {
            true => 0,
            false => self.cells[self.cell(client)].count as usize,
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.cells.fill(EMPTY);
    }

    /// How many all clients have together.
    pub(crate) fn total(&self) -> usize {
        self.cells.iter().map(|cell| cell.count as usize).sum()
    }

    /// Where the client is, or where it would be put: there is always an empty cell.
    #[inline]
    fn cell(&self, client: u64) -> usize {
        let mut at = self.home(client);
        while self.cells[at].count > 0 && self.cells[at].client != client {
            at = (at + 1) & (self.cells.len() - 1);
        }
        at
    }

    /// Moves back the entries behind an emptied cell that would no longer be found.
    #[inline]
    fn close_hole(&mut self, emptied: usize) {
        let mask = self.cells.len() - 1;
        let (mut hole, mut next) = (emptied, (emptied + 1) & mask);
        while self.cells[next].count > 0 {
            let from_home = next.wrapping_sub(self.home(self.cells[next].client)) & mask;
            if from_home >= next.wrapping_sub(hole) & mask {
                self.cells[hole] = self.cells[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.cells[hole] = EMPTY;
    }

    /// The highest bits choose the cell; there are two cells at least.
    #[inline]
    fn home(&self, client: u64) -> usize {
        (hash(client) >> (64 - self.cells.len().trailing_zeros())) as usize
    }

    #[cold]
    fn grow(&mut self, clients: usize) {
        let room = (clients * 2).next_power_of_two().max(SMALLEST);
        let before = core::mem::replace(&mut self.cells, vec![EMPTY; room]);
        for holder in before.into_iter().filter(|holder| holder.count > 0) {
            let at = self.cell(holder.client);
            self.cells[at] = holder;
        }
    }
}

const EMPTY: Holder = Holder {
    client: 0,
    count: 0,
};

const SMALLEST: usize = 16;

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    #[test]
    fn counts_are_those_of_a_map_whatever_comes_and_goes() {
        let (mut holders, mut map) = (Holders::new(), BTreeMap::new());
        let mut held = Vec::new();
        let mut random = 7_u64;
        for step in 0..20_000_usize {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (client, back) = ((random >> 40) % 97 + 1, random >> 33 & 1);
            let most = 1 + step / 200;
            if held.len() < most && (back == 0 || held.is_empty()) {
                holders.make_room(most);
                holders.add(client);
                *map.entry(client).or_insert(0) += 1;
                held.push(client);
            } else {
                let client = held.swap_remove((random >> 20) as usize % held.len());
                holders.take(client);
                *map.get_mut(&client).unwrap() -= 1;
            }
            assert_eq!(
                holders.count(client),
                map.get(&client).copied().unwrap_or(0)
            );
            assert_eq!(holders.total(), held.len());
        }
        for (client, count) in &map {
            assert_eq!(holders.count(*client), *count);
        }
        holders.clear();
        assert_eq!((holders.total(), holders.count(5)), (0, 0));
    }
}
