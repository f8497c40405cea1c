//! Connections to other servers: what every client of the binary uses, and none of them knows.
//!
//! [`h1`] is one connection of HTTP/1.1. Which connection a request gets, and what happens if it fails, is decided by
//! its user. [`resolver`] resolves names.
#![forbid(unsafe_code)]

pub mod h1;
pub mod resolver;
