//! The one door to the kernel: safe functions over owned descriptors. The only crate with unsafe code.
//!
//! One file per subject of the kernel. Nothing here decides anything: it says what can be asked and keeps the
//! rules that memory safety needs. Linux only; where a call is younger than the oldest kernel in use, the
//! function says what it does without it.

pub mod access;
pub mod cpu;
pub mod daemon;
pub mod file;
pub mod glob;
pub mod identity;
pub mod limits;
pub mod listener;
pub mod log_file;
pub mod memory;
pub mod message;
pub mod net_stat;
pub mod poll;
pub mod process;
pub mod signal;
pub mod sock_diag;
pub mod socket;
pub mod socket_owners;
pub mod terminal;
pub mod timer;
pub mod watch;
