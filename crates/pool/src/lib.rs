//! The decisions of a worker pool without clock, socket or thread: who runs now, who waits, who is refused.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
