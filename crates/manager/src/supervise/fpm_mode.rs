//! The differences when weir runs in place of PHP-FPM: signals, reloads, and the report that it has started.

use std::{cell::Cell, fmt};

use weir_sys::signal::Signal;

/// Set if weir runs instead of PHP-FPM.
#[derive(Clone, Copy)]
pub struct FpmMode<'a> {
    /// Generates the text of the configuration again, for a reload.
    pub reread: &'a dyn Fn() -> Result<String, String>,
    /// The command line: program and arguments.
    pub command: &'a [String],
    /// How often the service manager is notified, ms; 0: never. [`reread`](Self::reread) updates it.
    pub monitor: &'a Cell<i64>,
    /// Called when the first gateway is ready.
    pub ready: &'a dyn Fn(),
}

impl fmt::Debug for FpmMode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FpmMode")
    }
}

/// The action for a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalAction {
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
pub(crate) fn action_of(signal: Signal, as_fpm: bool, finishing: bool) -> SignalAction {
    match signal {
        Signal::Child => SignalAction::Reap,
        Signal::Usr1 => SignalAction::ReopenLogs,
        Signal::Hup if !as_fpm => SignalAction::Reload,
        Signal::Hup | Signal::Usr2 => SignalAction::ReloadAnew,
        Signal::Int => SignalAction::StopAtOnce,
        Signal::Term if as_fpm => SignalAction::StopAtOnce,
        Signal::Quit if as_fpm && finishing => SignalAction::KeepFinishing,
        Signal::Term | Signal::Quit if finishing => SignalAction::StopAtOnce,
        Signal::Term | Signal::Quit => SignalAction::StopGracefully,
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
                SignalAction::StopGracefully,
                SignalAction::StopAtOnce,
                SignalAction::StopAtOnce,
                SignalAction::StopAtOnce,
            ),
            (
                Signal::Quit,
                SignalAction::StopGracefully,
                SignalAction::StopAtOnce,
                SignalAction::StopGracefully,
                SignalAction::KeepFinishing,
            ),
            (
                Signal::Int,
                SignalAction::StopAtOnce,
                SignalAction::StopAtOnce,
                SignalAction::StopAtOnce,
                SignalAction::StopAtOnce,
            ),
            (
                Signal::Usr2,
                SignalAction::ReloadAnew,
                SignalAction::ReloadAnew,
                SignalAction::ReloadAnew,
                SignalAction::ReloadAnew,
            ),
            (
                Signal::Hup,
                SignalAction::Reload,
                SignalAction::Reload,
                SignalAction::ReloadAnew,
                SignalAction::ReloadAnew,
            ),
        ] {
            assert_eq!(action_of(signal, false, false), weir, "{signal:?}");
            assert_eq!(action_of(signal, false, true), weir_again, "{signal:?}");
            assert_eq!(action_of(signal, true, false), fpm, "{signal:?}");
            assert_eq!(action_of(signal, true, true), fpm_again, "{signal:?}");
        }
    }
}
