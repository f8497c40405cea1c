//! The decisions of the scaling, with their reasons.

use crate::Micros;

/// A decision of the scaling with its figures, for the log and the admin interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Workers were requested.
    Grew {
        /// How many.
        by: usize,
        /// Total number of workers, including those that are starting.
        workers: usize,
        /// Workers of an earlier generation that these replace.
        outdated: usize,
        /// Waiting requests; 0: these are workers of the start, spare ones, or replacements.
        waiting: usize,
        /// The longest wait of these requests so far.
        waited: Micros,
    },
    /// Workers that are not needed are withdrawn.
    Shrank {
        /// How many.
        by: usize,
        /// How many are left, including those that are starting.
        workers: usize,
        /// How long the longest idle one had nothing to do.
        idle: Micros,
    },
    /// More workers are needed than `max_children` allows. Reported once, and again only after there were fewer and
    /// more are needed.
    ReachedMaxChildren {
        /// The limit.
        max_children: usize,
        /// Requests that wait.
        waiting: usize,
    },
    /// Too few workers have been idle for several seconds, although more and more were started
    /// ([`crate::Scaler::set_maintenance`]).
    SeemsBusy {
        /// How many may be started now.
        rate: usize,
        /// Workers that are idle.
        idle: usize,
        /// The number of workers.
        workers: usize,
    },
    /// More workers are needed than fit into memory (`auto`). Reported once, until memory is not the limit any more.
    ReachedMemory {
        /// The number of workers, which is all that fits into memory.
        workers: usize,
        /// Requests that wait.
        waiting: usize,
    },
    /// Memory is short: workers are withdrawn, and none is started (`auto`). Reported once.
    MemoryPressure {
        /// The number of workers.
        workers: usize,
    },
    /// Memory is no longer short (`auto`).
    MemoryRelieved {
        /// The number of workers, and the maximum for now.
        workers: usize,
    },
    /// More workers did not finish more requests, so their number goes down again (`auto`).
    GrowthWasUseless {
        /// Number of workers now.
        workers: usize,
        /// Number of workers that was tried.
        tried: usize,
        /// Requests per 1,000 seconds that `workers` finish.
        rate: u64,
        /// Requests per 1,000 seconds that `tried` finished.
        rate_tried: u64,
    },
    /// Scripts compute nearly all of their time, so more workers would only share the processors (`auto`).
    ScriptsCompute {
        /// Number of workers now.
        workers: usize,
        /// How much of their time scripts wait for something else than a processor, per mille.
        waiting: u32,
    },
    /// Workers die or cannot be started before they have served anything: there is a pause before the next one is
    /// tried, which doubles each time. Reported once.
    Pausing {
        /// The first pause.
        pause: Micros,
        /// Whether they died; otherwise they could not be started.
        died: bool,
    },
    /// A worker has served, lived for ten seconds, or could finally be started: no more pauses.
    Recovered {
        /// Number of failed tries.
        tries: u32,
        /// Time since the first of them.
        after: Micros,
    },
}
