//! Signals for a process and all that it has started in its process group.

use std::io;

use rustix::{io::Errno, process};

use super::{process_id, unless_gone};

/// Asks the process group of `pid` to end (`SIGTERM`). It is not an error if the process is gone.
///
/// # Errors
/// As kill(2).
pub fn terminate(pid: u32) -> io::Result<()> {
    signal_group(pid, process::Signal::TERM)
}

/// Kills the process group of `pid` (`SIGKILL`). It is not an error if the process is gone.
///
/// # Errors
/// As kill(2).
pub fn kill(pid: u32) -> io::Result<()> {
    signal_group(pid, process::Signal::KILL)
}

/// Whether a process of the process group of `pid` is still there, also one that nobody has waited for.
pub fn has_group(pid: u32) -> bool {
    let group = process_id(pid).map(process::test_kill_process_group);
    // Without the permission to signal it, there is one.
    group.is_some_and(|there| there.is_ok() || there == Err(Errno::PERM))
}

/// Every child of [`Spawn`] leads a group before `start` returns. A number that is no group's any more may be that of any process.
fn signal_group(pid: u32, signal: process::Signal) -> io::Result<()> {
    let group = process_id(pid).map(|pid| process::kill_process_group(pid, signal));
    unless_gone(group.unwrap_or(Ok(())))
}
