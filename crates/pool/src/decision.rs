//! Why the scaling did what it did.

use crate::Micros;

/// Something that the scaling decided, with the figures that it had, for the log and the operator's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Workers were asked for.
    Grew {
        /// So many.
        by: usize,
        /// That makes so many, the starting ones included.
        workers: usize,
        /// Workers of an earlier generation, whose places the new ones take.
        outdated: usize,
        /// Requests that wait for a worker; 0: workers of the start, spare ones, or ones that take another one's place.
        waiting: usize,
        /// The longest wait of these so far.
        waited: Micros,
    },
    /// Workers that nobody needs are withdrawn.
    Shrank {
        /// So many.
        by: usize,
        /// So many are left, the starting ones included.
        workers: usize,
        /// The coldest of them had nothing to do for so long.
        idle: Micros,
    },
    /// More workers are wanted than `max_children` allows. Told once until fewer are there, and wanted, again.
    ReachedMaxChildren {
        /// The limit.
        max_children: usize,
        /// Requests that wait.
        waiting: usize,
    },
    /// More workers are wanted than there is memory for (`auto`). Told once until memory is not the limit any more.
    ReachedMemory {
        /// Workers that are there, and all that there is memory for.
        workers: usize,
        /// Requests that wait.
        waiting: usize,
    },
    /// Memory is short: workers are withdrawn, and none is started (`auto`). Told once.
    MemoryPressure {
        /// Workers that are there.
        workers: usize,
    },
    /// Memory is not short any more (`auto`).
    MemoryRelieved {
        /// Workers that are there, and as many as there may be at first.
        workers: usize,
    },
    /// More workers finished no more requests, so that there are fewer again (`auto`).
    GrowthWasUseless {
        /// Workers now.
        workers: usize,
        /// Workers that were tried.
        tried: usize,
        /// Requests that `workers` finish in 1,000 seconds.
        rate: u64,
        /// Requests that `tried` finished in 1,000 seconds.
        rate_tried: u64,
    },
    /// Workers die, or cannot be started, before they have served anything: there is a pause before the next is tried,
    /// which doubles each time. Told once.
    Pausing {
        /// The first pause.
        pause: Micros,
        /// They died; else they could not be started.
        died: bool,
    },
    /// A worker has served, or has lived for ten seconds, or could be started at last: no more pauses.
    Recovered {
        /// So many tries failed.
        tries: u32,
        /// Since the first of them.
        after: Micros,
    },
}
