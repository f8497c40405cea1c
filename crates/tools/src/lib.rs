//! Commands for people: `weir bench`, `weir watch`, `weir doctor` and `weir init`, and what commands have in common. They ask the machine
//! and a running weir; nothing of a running weir uses them.
#![forbid(unsafe_code)]

pub mod bench;
pub mod command;
pub mod doctor;
pub mod folder;
pub mod htaccess;
pub mod watch;
