//! HTTP/1.1 (RFC 9112) without I/O: both sides of the protocol as bytes in, events and bytes out.
//!
//! [`server`] reads requests and writes responses, [`client`] writes requests and reads responses. Decoders take the
//! bytes that have arrived and give [`Event`]s: a head, pieces of the body as slices of the input, the end. Encoders
//! append to a buffer. Nothing here owns a socket, reads a clock or waits.
//!
//! # Heads
//!
//! A head is one buffer and where each field is in it ([`ParsedFields`]). Each name is compared with the well-known ones once
//! ([`Name`]), and what the fields mean for the connection is decided at the same time: how the body ends, whether the
//! connection stays open, what is expected first. A record that is used again allocates nothing.
//!
//! # What is refused
//!
//! A message that two programs could read in two ways is refused: one of these programs may be a proxy in front of the
//! other.
//!
//! | what | here | RFC 9112 |
//! |---|---|---|
//! | a line that ends with a line feed alone | 400 | may be taken (§2.2) |
//! | white space before the colon, at the start of a field line | 400 | 400 (§5.1), 400 or replaced (§5.2) |
//! | more than one space in the request line | 400 | may be taken (§3) |
//! | a control character but the tab in a value | 400 | refused or replaced (RFC 9110 §5.5) |
//! | no Host in HTTP/1.1, or two | 400 | 400 (§3.2) |
//! | Content-Length twice, or a list of it, also if equal | 400; taken in a response if all are equal | refused or one taken (§6.3) |
//! | Content-Length with a sign, spaces or nothing | 400 | 400 (§6.3) |
//! | Content-Length and Transfer-Encoding | 400; the length is ignored in a response, which then ends the connection | may be refused (§6.1), the length is ignored (§6.3) |
//! | Transfer-Encoding other than `chunked` | 501 | 501 (§6.1) |
//! | Transfer-Encoding twice | 400 | 400 where chunked is not last (§6.3) |
//! | Transfer-Encoding in HTTP/1.0 | 400 | faulty (§6.1) |
//! | chunk extensions | ignored, limited | ignored, limited (§7.1.1) |
//! | something else behind the length of a chunk; control characters in its extensions | 400 | not in the grammar (§7.1.1) |
//! | a bare line feed or carriage return between chunks or in trailers | 400 | – |
//! | HTTP/1.2 to 1.9 | taken as 1.1 | as 1.1 (RFC 9110 §2.5) |
//! | other versions | 505 | 505 |
//! | empty lines before a request | ignored | ignored (§2.2) |
//! | `http://` without a host or with a fragment behind it, another scheme, `*` or a path where the method does not allow it | 400 | 400 (§3.2) |
//! | bytes above 127 in the target | passed | not in the grammar; every browser's users send them |
//!
//! # Limits
//!
//! | held | at most |
//! |---|---|
//! | by a decoder | trailers of [`Limits::head`] bytes, while a body in chunks is read |
//! | by a head | [`Limits::head`] bytes and 20 bytes for each of [`Limits::fields`] |
//! | by the caller | the bytes of one head that is not whole |
//!
//! A byte is looked at a constant number of times, however the input is cut.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod client;
pub mod server;

mod body;
mod decoder;
mod encode;
mod error;
mod fields;
mod head;
mod name;
mod swar;

pub use decoder::Event;
pub use encode::{
    BodyEncoder, ChunkSize, Framing, HeadEncoder, InvalidField, WrongLength, check_field,
    check_value,
};
pub use error::Error;
pub use fields::ParsedFields;
pub use head::{BodyLength, Expect, Limits, Method, RequestHead, ResponseHead, Target, Version};
pub use name::Name;
