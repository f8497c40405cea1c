//! A counter of the last minute. Counting is an addition to memory, without allocations and locks.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::clock;

/// Counts events by slices of time, and forgets what is older than a minute.
#[derive(Debug, Default)]
pub struct Recent([AtomicU64; PIECES as usize]);

impl Recent {
    /// Counts an event of now.
    pub fn count(&self) {
        self.count_in(clock::now() / PIECE);
    }

    /// Events of the last 55 to 60 seconds.
    pub fn minute(&self) -> u64 {
        self.lately(clock::now() / PIECE, PIECES)
    }

    /// Events of the last 10 to 15 seconds.
    pub fn ten_seconds(&self) -> u64 {
        self.lately(clock::now() / PIECE, TEN_SECONDS)
    }

    fn count_in(&self, piece: u64) {
        let place = &self.0[(piece % PIECES) as usize];
        // The slice's number and its count are one word, so that no thread clears what another one has counted.
        let add = |old: u64| match old >> COUNT_BITS == piece {
            true if old & MOST == MOST => old,
            true => old + 1,
            false => piece << COUNT_BITS | 1,
        };
        let _ = place.fetch_update(Relaxed, Relaxed, |old| Some(add(old)));
    }

    fn lately(&self, piece: u64, pieces: u64) -> u64 {
        let places = self.0.iter().map(|place| place.load(Relaxed));
        let recent = places.filter(|place| piece.saturating_sub(place >> COUNT_BITS) < pieces);
        recent.map(|place| place & MOST).sum()
    }
}

/// Length of a slice, µs.
const PIECE: u64 = Duration::from_secs(5).as_micros() as u64;

/// Slices of a minute.
const PIECES: u64 = 12;

/// Slices that cover the last ten seconds.
const TEN_SECONDS: u64 = 3;

/// Lower bits of a place, which have the count. The others have the slice's number, enough for centuries.
const COUNT_BITS: u32 = 32;

const MOST: u64 = (1 << COUNT_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_a_minute_is_forgotten() {
        let recent = Recent::default();
        assert_eq!(recent.lately(0, PIECES), 0);
        recent.count_in(7);
        recent.count_in(7);
        recent.count_in(8);
        assert_eq!(recent.lately(8, PIECES), 3);
        assert_eq!(recent.lately(8, TEN_SECONDS), 3);
        assert_eq!(recent.lately(10, TEN_SECONDS), 1);
        assert_eq!(recent.lately(18, PIECES), 3);
        assert_eq!(recent.lately(19, PIECES), 1);
        // The place of slice 7.
        recent.count_in(19);
        assert_eq!(recent.lately(19, PIECES), 2);
        assert_eq!(recent.lately(900, PIECES), 0);
    }

    #[test]
    fn a_count_does_not_run_over() {
        let recent = Recent::default();
        recent.0[3].store(3 << COUNT_BITS | (MOST - 1), Relaxed);
        recent.count_in(3);
        recent.count_in(3);
        assert_eq!(recent.lately(3, PIECES), MOST);
    }
}
