//! Signals, read from a descriptor so that an event loop can wait for them.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

/// The signals that a process manager handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// `SIGTERM`
    Term,
    /// `SIGQUIT`
    Quit,
    /// `SIGINT`
    Int,
    /// `SIGHUP`
    Hup,
    /// `SIGUSR1`
    Usr1,
    /// `SIGUSR2`
    Usr2,
    /// `SIGCHLD`
    Child,
}

/// Makes a write beyond the file-size limit (`RLIMIT_FSIZE`) return an error, as with a full disk, instead of killing
/// the process. [`crate::process`] resets this for programs that we start.
pub fn ignore_file_size_limit() {
    // SAFETY: ignoring a signal installs no handler, and no other code in the process uses this signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Ignores the signals that ask a process to end, to reload its files and the like. For processes of a service whose
/// manager handles these signals and informs the other processes itself. A sender may signal all processes (systemd's
/// `KillMode=`).
pub fn leave_to_the_manager() {
    for (signal, number) in Signal::ALL {
        if signal != Signal::Child {
            // SAFETY: ignoring a signal installs no handler, and nothing here waits for these signals.
            unsafe { libc::signal(number, libc::SIG_IGN) };
        }
    }
}

/// Signals that are blocked, and read from a descriptor.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Starts to receive `signals` for this process. Call it while the process has only one thread: later threads
    /// inherit it.
    ///
    /// # Errors
    /// As sigprocmask(2) and signalfd(2).
    pub fn take(signals: &[Signal]) -> io::Result<Self> {
        let mut set = empty_set();
        for signal in signals {
            // SAFETY: the set was initialised, the number is a signal's.
            unsafe { libc::sigaddset(&raw mut set, signal.number()) };
        }
        set_mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: the set was initialised; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// The next signal that arrived, if any. Several signals of one kind that arrive before the first is read count
    /// as one.
    ///
    /// # Errors
    /// As read(2).
    pub fn next(&self) -> io::Result<Option<Signal>> {
        let mut bytes = [0_u8; mem::size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.fd, &mut bytes) {
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            // ssi_signo is the first field, an unsigned 32 bit number (signalfd(2)).
            let number = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            if let Some(signal) = Signal::from_number(number as i32) {
                return Ok(Some(signal));
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// The number of SIGKILL.
pub const KILL: i32 = libc::SIGKILL;

/// A signal's name (`SIGSEGV`), or its number.
pub fn name(number: i32) -> String {
    let known = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGXFSZ, "SIGXFSZ"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    match known.iter().find(|(n, _)| *n == number) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("signal {number}"),
    }
}

/// For a child between fork and exec: unblocks all signals and sets their default actions. Async-signal-safe.
pub(crate) fn reset_all() -> io::Result<()> {
    for number in 1..=64 {
        // SAFETY: sets no handler. The call fails for SIGKILL, SIGSTOP and the C library's own two signals, which does
        // no harm.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    set_mask(libc::SIG_SETMASK, &empty_set())
}

impl Signal {
    const ALL: [(Self, i32); 7] = [
        (Self::Term, libc::SIGTERM),
        (Self::Quit, libc::SIGQUIT),
        (Self::Int, libc::SIGINT),
        (Self::Hup, libc::SIGHUP),
        (Self::Usr1, libc::SIGUSR1),
        (Self::Usr2, libc::SIGUSR2),
        (Self::Child, libc::SIGCHLD),
    ];

    pub(crate) fn number(self) -> i32 {
        Self::ALL[self as usize].1
    }

    fn from_number(number: i32) -> Option<Self> {
        let known = Self::ALL.into_iter().find(|(_, known)| *known == number);
        known.map(|(signal, _)| signal)
    }
}

/// Changes which signals this thread has blocked. Async-signal-safe.
fn set_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set was initialised; no old set is asked for.
    match unsafe { libc::pthread_sigmask(how, set, ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn empty_set() -> libc::sigset_t {
    let mut set = mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that it is given.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_sent_to_us_is_read_and_does_not_act() {
        let signals = Signals::take(&[Signal::Usr2]).unwrap();
        assert_eq!(signals.next().unwrap(), None);
        // SAFETY: sends a signal to this thread, which blocks that signal.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
        assert_eq!(signals.next().unwrap(), Some(Signal::Usr2));
        assert_eq!(signals.next().unwrap(), None);
    }

    #[test]
    fn names_are_the_manuals() {
        assert_eq!(name(11), "SIGSEGV");
        assert_eq!(name(40), "signal 40");
    }
}
