//! FastCGI 1.0 without I/O: both sides of the protocol as bytes in, events and bytes out.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod client;
pub mod nv;
pub mod record;
pub mod server;

mod error;
mod frame;

pub use error::ProtocolError;
pub use record::{
    HEADER_LEN, Header, MAX_CONTENT, MAX_MANAGEMENT, ProtocolStatus, RecordType, Role, VERSION,
};
