//! The sockets that the manager binds or finds for others.

pub(crate) mod admin;
pub mod listen;
pub(crate) mod own_path;
pub(crate) mod owners;
pub(crate) mod quic;
