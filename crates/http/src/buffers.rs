//! Buffers that all connections of a reactor share.

use std::cell::{Cell, RefCell};

use weir_net::Spare;

thread_local! {
    /// What a connection reads goes through this buffer. What cannot be used at once is copied.
    static INPUT: RefCell<Box<[u8]>> = RefCell::new(vec![0; INPUT_SIZE].into_boxed_slice());
    /// How often clients' sockets were read.
    static READS: Cell<u64> = const { Cell::new(0) };
    /// Buffers for output that are not in use.
    static OUTPUT: Spare<Vec<u8>> = const { Spare::new(64) };
}

/// Reads into the shared buffer. `read` must not use it again.
pub(crate) fn with_input<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    count_read();
    INPUT.with_borrow_mut(|input| read(input))
}

/// How often this reactor has read from clients. A lookup since the last read is as fresh as if each request of that
/// read had looked it up.
pub fn reads() -> u64 {
    READS.get()
}

/// A carrier reads, and does not use [`with_input`].
pub(crate) fn count_read() {
    READS.set(READS.get() + 1);
}

/// An empty buffer for output.
pub(crate) fn output() -> Vec<u8> {
    OUTPUT.with(Spare::take).unwrap_or_default()
}

/// Gives a buffer for output to other connections, unless it is large.
pub(crate) fn give_back(mut buffer: Vec<u8>) {
    if (1..=KEPT_CAPACITY).contains(&buffer.capacity()) {
        buffer.clear();
        OUTPUT.with(|buffers| buffers.keep(buffer));
    }
}

/// Bytes that are read at once.
pub(crate) const INPUT_SIZE: usize = 64 * 1024;

/// Larger buffers are not kept for other connections.
const KEPT_CAPACITY: usize = 64 * 1024;
