//! The interface to the kernel: safe functions with owned descriptors. The only crate with unsafe code.
//!
//! One file per subject of the kernel. This crate makes no decisions: it offers calls and ensures memory safety.
//! Linux only. If a call is newer than the oldest supported kernel, the function says what it does without it.

pub mod access;
pub mod cpu;
pub mod daemon;
pub mod epoll;
pub mod file;
pub mod glob;
pub mod identity;
pub mod inotify;
pub mod limits;
pub mod listener;
pub mod log_file;
pub mod memory;
pub mod message;
pub mod net_stat;
pub mod poll;
pub mod process;
pub mod random;
pub mod sandbox;
pub mod signal;
pub mod sock_diag;
pub mod socket;
pub mod socket_owners;
pub mod terminal;
pub mod timer;
pub mod version;
mod walk;
pub mod watch;
