//! The differences when weir runs in place of PHP-FPM: signals, reloads, and the report that it has started.

use std::{cell::Cell, fmt};

use weir_sys::signal::Signal;

/// Set if the manager is started in PHP-FPM's place.
#[derive(Clone, Copy)]
pub struct StandIn<'a> {
    /// Makes the text of the configuration again, for a reload.
    pub reread: &'a dyn Fn() -> Result<String, String>,
    /// The command line: program and arguments.
    pub command: &'a [String],
    /// How often the service manager is notified, ms; 0: never. [`reread`](Self::reread) updates it.
    pub monitor: &'a Cell<i64>,
    /// Called when the first gateway is ready.
    pub ready: &'a dyn Fn(),
}

impl fmt::Debug for StandIn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandIn")
    }
}

/// The action for a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// A child has ended.
    Reap,
    /// Finish running requests, then end.
    StopGracefully,
    /// End at once.
    StopAtOnce,
    /// Read the configuration again, and keep pools that have not changed.
    Reload,
    /// Read the configuration again, and restart all pools.
    ReloadAnew,
    /// Reopen the logs.
    ReopenLogs,
    /// Nothing new; PHP-FPM logs it again.
    KeepFinishing,
}

/// The action for a signal. `as_fpm`: with PHP-FPM's meaning; `finishing`: a graceful stop is in progress.
pub(super) fn asked(signal: Signal, as_fpm: bool, finishing: bool) -> Asked {
    match signal {
        Signal::Child => Asked::Reap,
        Signal::Usr1 => Asked::ReopenLogs,
        Signal::Hup if !as_fpm => Asked::Reload,
        Signal::Hup | Signal::Usr2 => Asked::ReloadAnew,
        Signal::Int => Asked::StopAtOnce,
        Signal::Term if as_fpm => Asked::StopAtOnce,
        Signal::Quit if as_fpm && finishing => Asked::KeepFinishing,
        Signal::Term | Signal::Quit if finishing => Asked::StopAtOnce,
        Signal::Term | Signal::Quit => Asked::StopGracefully,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_mean_what_those_who_send_them_expect() {
        for (signal, weir, weir_again, fpm, fpm_again) in [
            (
                Signal::Term,
                Asked::StopGracefully,
                Asked::StopAtOnce,
                Asked::StopAtOnce,
                Asked::StopAtOnce,
            ),
            (
                Signal::Quit,
                Asked::StopGracefully,
                Asked::StopAtOnce,
                Asked::StopGracefully,
                Asked::KeepFinishing,
            ),
            (
                Signal::Int,
                Asked::StopAtOnce,
                Asked::StopAtOnce,
                Asked::StopAtOnce,
                Asked::StopAtOnce,
            ),
            (
                Signal::Usr2,
                Asked::ReloadAnew,
                Asked::ReloadAnew,
                Asked::ReloadAnew,
                Asked::ReloadAnew,
            ),
            (
                Signal::Hup,
                Asked::Reload,
                Asked::Reload,
                Asked::ReloadAnew,
                Asked::ReloadAnew,
            ),
        ] {
            assert_eq!(asked(signal, false, false), weir, "{signal:?}");
            assert_eq!(asked(signal, false, true), weir_again, "{signal:?}");
            assert_eq!(asked(signal, true, false), fpm, "{signal:?}");
            assert_eq!(asked(signal, true, true), fpm_again, "{signal:?}");
        }
    }
}
