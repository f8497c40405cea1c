//! When a reactor's sweeper must check each connection, and how many are idle: known without reading the connections
//! themselves.
//!
//! Each connection has a slot. For each slot there is one time, so that a sweep reads a short array, and not ten thousand
//! connections that are spread over the memory. A connection sets its own time when it gets an earlier deadline
//! ([`crate::ConnState`]). A deadline that moves to a later time is noticed when the sweeper looks.

use std::cell::{Cell, RefCell};

use weir_observe::clock::NEVER;

thread_local! {
    /// When the sweeper must look at the connection of each slot; [`NEVER`] if the slot is free.
    static LOOKS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// Connections that have no request.
    static IDLE: Cell<usize> = const { Cell::new(0) };
    /// Idle connections that have had a request since the last sweep.
    static RECENT: Cell<usize> = const { Cell::new(0) };
    static OPEN: Cell<usize> = const { Cell::new(0) };
    /// Counts sweeps.
    static SWEEP: Cell<u32> = const { Cell::new(1) };
}

/// What [`look`] has counted.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// All connections.
    pub open: usize,
    /// Connections without a request.
    pub idle: usize,
    /// Connections that have a request or have had one since the last sweep.
    pub active: usize,
}

/// Counts this reactor's connections, once in each sweep.
pub fn look() -> Counts {
    let (open, idle) = (OPEN.get(), IDLE.get());
    SWEEP.set(SWEEP.get().wrapping_add(1).max(1));
    Counts {
        open,
        idle,
        active: open.saturating_sub(idle) + RECENT.take(),
    }
}

/// Appends the slots of the connections to look at.
pub fn due(now: u64, slots: &mut Vec<u32>) {
    LOOKS.with_borrow(|looks| {
        let due = (0..).zip(looks).filter(|(_, at)| **at <= now);
        slots.extend(due.map(|(slot, _)| slot));
    });
}

/// When the next connection becomes due after this time; [`NEVER`] if none does.
pub fn next_due(after: u64) -> u64 {
    LOOKS.with_borrow(|looks| {
        let later = looks.iter().copied().filter(|at| *at > after);
        later.min().unwrap_or(NEVER)
    })
}

pub(crate) fn begin(slot: u32) {
    LOOKS.with_borrow_mut(|looks| {
        let slot = slot as usize;
        if looks.len() <= slot {
            looks.resize(slot + 1, NEVER);
        }
    });
    OPEN.set(OPEN.get() + 1);
    IDLE.set(IDLE.get() + 1);
}

pub(crate) fn end(slot: u32, is_idle: bool, idle_sweep: u32) {
    set(slot, NEVER);
    OPEN.set(OPEN.get().saturating_sub(1));
    if is_idle {
        is_not_idle(idle_sweep);
    }
}

pub(crate) fn set(slot: u32, time: u64) {
    LOOKS.with_borrow_mut(|looks| {
        if let Some(look) = looks.get_mut(slot as usize) {
            *look = time;
        }
    });
}

/// A connection has become idle. Returns the number of the sweep before, for [`is_not_idle`].
pub(crate) fn became_idle() -> u32 {
    IDLE.set(IDLE.get() + 1);
    RECENT.set(RECENT.get() + 1);
    SWEEP.get()
}

/// A connection is not idle any more, or closed. It had become idle after the sweep of this number.
pub(crate) fn is_not_idle(idle_sweep: u32) {
    IDLE.set(IDLE.get().saturating_sub(1));
    if idle_sweep == SWEEP.get() {
        RECENT.set(RECENT.get().saturating_sub(1));
    }
}
