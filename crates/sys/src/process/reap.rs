//! Waits for children that have ended.

use std::io;

use rustix::{
    io::Errno,
    process::{self, Pid, WaitOptions},
};

use super::Exit;

/// Returns process id and exit of the next child that has exited, if any. Does not wait. Use it instead of
/// `Child::wait`. `before` is called with its number while that, and the number of its group, cannot be another's.
///
/// # Errors
/// As waitpid(2), but without children the result is `Ok(None)`.
pub fn reap(before: impl FnOnce(u32)) -> io::Result<Option<(u32, Exit)>> {
    let Some(pid) = ended()? else {
        return Ok(None);
    };
    before(pid.as_raw_nonzero().get().unsigned_abs());
    loop {
        return match process::waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(None) | Err(Errno::CHILD) => Ok(None),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error.into()),
            Ok(Some((pid, status))) => {
                let exit = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    // Stopped or continued: not requested, and not an exit.
                    (None, None) => continue,
                };
                Ok(Some((pid.as_raw_nonzero().get().unsigned_abs(), exit)))
            }
        };
    }
}

/// A child that has ended and is still there.
fn ended() -> io::Result<Option<Pid>> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        // SAFETY: all zeros is a valid siginfo_t: a structure of numbers.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: writes to `info` only.
        if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) } == 0 {
            // SAFETY: the call has filled it for a child, or has left it zero.
            return Ok(Pid::from_raw(unsafe { info.si_pid() }));
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            error => return Err(error),
        }
    }
}
