//! Shared by the protocols in which many requests use one connection: HTTP/2 ([`crate::h2`]) and HTTP/3
//! ([`crate::h3`]).
//!
//! [`slots`] has the streams of a connection, which of them were woken ([`ready`]), and whose turn it is to send.
//! [`head`] has requests as the exchange gets them and answers as they are sent. [`answer`] begins an answer, [`body`]
//! takes its body in pieces for frames. [`literals`] reads what HPACK and QPACK have in common. [`limits`] counts
//! frames that cost a client nothing, [`memory`] the memory of all connections for bodies that were not read.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod head;
pub(crate) mod limits;
pub(crate) mod literals;
pub(crate) mod memory;
mod ready;
pub(crate) mod slots;

pub use self::{limits::Limits, memory::Memory};
