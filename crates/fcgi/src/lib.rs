//! FastCGI 1.0 without I/O: both sides of the protocol as bytes in, events and bytes out.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
