//! A hash index: maps a name to a place in a table of the caller.
//!
//! Open addressing. It stores only places; the caller compares the names and provides the hash.

use alloc::{vec, vec::Vec};

/// Names → places.
#[derive(Debug)]
pub(crate) struct Index {
    /// A place, or NONE. The length is a power of two, at least twice the number of places.
    cells: Vec<u32>,
}

impl Index {
    /// Without room.
    pub(crate) const fn new() -> Self {
        Self { cells: Vec::new() }
    }

    /// Empty, with room for this many places.
    pub(crate) fn with_room(places: usize) -> Self {
        Self {
            cells: vec![NONE; (places * 2).next_power_of_two()],
        }
    }

    /// The cell with the place for which `is_it` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        if self.cells.is_empty() {
            return None;
        }
        let mut cell = self.home(hash);
        loop {
            let place = self.cells[cell];
            if place == NONE {
                return None;
            }
            if is_it(place) {
                return Some(cell);
            }
            cell = (cell + 1) & (self.cells.len() - 1);
        }
    }

    /// The content of a cell.
    #[inline]
    pub(crate) fn place(&self, cell: usize) -> u32 {
        self.cells[cell]
    }

    /// Inserts a place. There must be room, and the place must not be in it yet.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, place: u32) {
        let mut cell = self.home(hash);
        while self.cells[cell] != NONE {
            cell = (cell + 1) & (self.cells.len() - 1);
        }
        self.cells[cell] = place;
    }

    /// Empties a cell, and moves later entries back that could not be found any more. So no tombstones are needed.
    #[inline]
    pub(crate) fn remove(&mut self, cell: usize, hash_of: impl Fn(u32) -> u64) {
        let mask = self.cells.len() - 1;
        let mut hole = cell;
        let mut next = (hole + 1) & mask;
        while self.cells[next] != NONE {
            let place = self.cells[next];
            let home = self.home(hash_of(place));
            let distance_from_home = next.wrapping_sub(home) & mask;
            let distance_from_hole = next.wrapping_sub(hole) & mask;
            if distance_from_home >= distance_from_hole {
                self.cells[hole] = place;
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.cells[hole] = NONE;
    }

    /// Number of places.
    pub(crate) fn count(&self) -> usize {
        self.cells.iter().filter(|place| **place != NONE).count()
    }

    /// The highest bits choose the cell.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        let bits = self.cells.len().trailing_zeros();
        // Shifting by 64 − 0 bits for a single cell would overflow.
        (hash >> 1 >> (63 - bits)) as usize
    }
}

/// Multiplicative hashing: for numbers that outsiders cannot choose, such as counters or keyed hashes.
pub(crate) const fn hash(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_share_a_cell_are_told_apart_after_removals() {
        let mut index = Index::with_room(64);
        let near = |index: &Index, name: u64| {
            let distance = index.home(hash(name)).wrapping_sub(index.home(hash(0)));
            (distance & (index.cells.len() - 1)) < 3
        };
        let names: Vec<u64> = (0..).filter(|name| near(&index, *name)).take(60).collect();
        for (place, name) in names.iter().enumerate() {
            index.insert(hash(*name), place as u32);
        }
        let find = |index: &Index, name: u64| {
            index.find(hash(name), |place| names[place as usize] == name)
        };
        for name in names.iter().step_by(3) {
            let cell = find(&index, *name).unwrap();
            index.remove(cell, |place| hash(names[place as usize]));
            assert_eq!(find(&index, *name), None);
        }
        assert_eq!(index.count(), 40);
        for (place, name) in names.iter().enumerate() {
            let found = find(&index, *name).map(|cell| index.place(cell));
            assert_eq!(found, (place % 3 != 0).then_some(place as u32));
        }
    }
}
