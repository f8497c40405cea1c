//! Limits the memory of all connections for heads of requests, and for bodies that were not read yet, for example
//! because they wait for a disk.
//!
//! The windows of a connection limit the body bytes that it may hold. Many connections together may hold much, so they
//! share a limit. When it is reached, weir does not read from a connection that holds more than a small part, until its
//! requests have taken these bytes; TCP then slows the client down. No connection depends on another one here: its own
//! requests read what it holds. The heads stay, because their requests may wait for bodies; so a connection that holds
//! more than a small part may begin no more requests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The memory of all connections.
#[derive(Debug)]
pub struct Memory {
    most: u64,
    held: AtomicU64,
}

/// The memory of one connection.
#[derive(Debug)]
pub(crate) struct Share {
    memory: &'static Memory,
    bytes: u64,
}

impl Memory {
    /// For `most` bytes.
    pub const fn new(most: u64) -> Memory {
        Memory {
            most,
            held: AtomicU64::new(0),
        }
    }

    /// How many bytes are held.
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }
}

impl Share {
    /// The share of a connection that holds nothing.
    pub(crate) fn of(memory: &'static Memory) -> Share {
        Share { memory, bytes: 0 }
    }

    /// The connection now holds so many bytes.
    pub(crate) fn set(&mut self, bytes: u64) {
        if bytes == self.bytes {
            return;
        }
        // If the memory becomes less, the difference wraps around.
        let more = bytes.wrapping_sub(self.bytes);
        self.memory.held.fetch_add(more, Relaxed);
        self.bytes = bytes;
    }

    /// Whether it holds anything.
    pub(crate) fn is_some(&self) -> bool {
        self.bytes > 0
    }

    /// Whether the memory of all connections is full.
    pub(crate) fn is_full(&self) -> bool {
        self.memory.held() > self.memory.most
    }

    /// Whether there is room for so many bytes, for all connections together.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.memory.held().saturating_add(bytes) <= self.memory.most
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// How many bytes a connection may hold even if the memory is full: as much as HTTP/2 allows when a connection begins.
pub(crate) const ALWAYS: u64 = 64 * 1024;
