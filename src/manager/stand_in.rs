//! What is otherwise where weir stands in for PHP-FPM: signals, reloads, and who waits for the start.

use std::{cell::Cell, fmt};

use weir_sys::signal::Signal;

/// Given by whoever starts the manager in PHP-FPM's place.
#[derive(Clone, Copy)]
pub struct StandIn<'a> {
    /// Makes the configuration's text anew, at a reload.
    pub reread: &'a dyn Fn() -> Result<String, String>,
    /// What it was started by: program and arguments.
    pub command: &'a [String],
    /// How often the service manager is to hear of us, ms; 0: not at all. [`reread`](Self::reread) sets it anew.
    pub monitor: &'a Cell<i64>,
    /// Is called when the first gateway is ready.
    pub ready: &'a dyn Fn(),
}

impl fmt::Debug for StandIn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandIn")
    }
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// A child has ended.
    Reap,
    /// Finish what runs, and end.
    StopGracefully,
    /// End.
    StopAtOnce,
    /// Take the configuration again, and keep the pools that are as they were.
    Reload,
    /// Take the configuration again, and start all pools anew.
    ReloadAnew,
    /// Open the logs again.
    ReopenLogs,
    /// Nothing.
    Nothing,
}

/// What a signal asks for. `as_fpm`: in PHP-FPM's terms; `finishing`: a graceful stop is under way.
pub(super) fn asked(signal: Signal, as_fpm: bool, finishing: bool) -> Asked {
    match signal {
        Signal::Child => Asked::Reap,
        Signal::Usr1 => Asked::ReopenLogs,
        Signal::Hup if !as_fpm => Asked::Reload,
        Signal::Hup | Signal::Usr2 => Asked::ReloadAnew,
        Signal::Int => Asked::StopAtOnce,
        Signal::Term if as_fpm => Asked::StopAtOnce,
        Signal::Quit if as_fpm && finishing => Asked::Nothing,
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
                Asked::Nothing,
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
