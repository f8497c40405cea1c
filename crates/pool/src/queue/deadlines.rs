//! Deadlines of requests: a binary heap of entries. Each entry knows its index in it, so any of them can be removed
//! in O(log n).

use super::Queue;
use crate::{Micros, index::NONE};

impl Queue {
    pub(super) fn add_deadline(&mut self, at: u32) {
        self.deadlines.push(at);
        self.rise(self.deadlines.len() - 1);
    }

    pub(super) fn remove_deadline(&mut self, place: usize) {
        let at = self.deadlines.swap_remove(place);
        self.entries[at as usize].heap = NONE;
        if place < self.deadlines.len() {
            self.sink(place);
            self.rise(place);
        }
    }

    pub(super) fn start_by(&self, place: usize) -> Micros {
        self.entries[self.deadlines[place] as usize]
            .waiting
            .start_by
    }

    /// Moves an entry up while it is earlier, and notes its index.
    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.start_by(above) <= self.start_by(place) {
                break;
            }
            self.deadlines.swap(place, above);
            self.note_place(place);
            place = above;
        }
        self.note_place(place);
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let below = [2 * place + 1, 2 * place + 2].into_iter();
            let earliest = below
                .filter(|below| *below < self.deadlines.len())
                .min_by_key(|below| self.start_by(*below));
            let Some(below) = earliest.filter(|below| self.start_by(*below) < self.start_by(place))
            else {
                break;
            };
            self.deadlines.swap(place, below);
            self.note_place(place);
            place = below;
        }
        self.note_place(place);
    }

    fn note_place(&mut self, place: usize) {
        let at = self.deadlines[place];
        self.entries[at as usize].heap = place as u32;
    }
}
