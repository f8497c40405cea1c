//! Whether the reactors move: each says so five times a second, and the operator's window, which has a thread of its own,
//! notices which does not.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock;

/// When each reactor last said that it moves ([`clock::now`]).
#[derive(Debug)]
pub(crate) struct Pulse(Box<[AtomicU64]>);

impl Pulse {
    /// Of so many reactors, which begin now.
    pub(super) fn new(reactors: u16) -> Pulse {
        let now = clock::precise();
        Pulse((0..reactors).map(|_| AtomicU64::new(now)).collect())
    }

    /// The reactor `home` moves.
    pub(super) fn beat(&self, home: u16) {
        if let Some(last) = self.0.get(usize::from(home)) {
            last.store(clock::precise(), Relaxed);
        }
    }

    /// The reactors that have not moved for a second or longer, with that time, µs.
    pub(super) fn silent(&self) -> Vec<(usize, u64)> {
        let now = clock::precise();
        let since = |last: &AtomicU64| now.saturating_sub(last.load(Relaxed));
        let all = self.0.iter().map(since).enumerate();
        all.filter(|(_, silent)| *silent >= SILENT).collect()
    }
}

/// Longer than the machine's load delays a thread, µs.
const SILENT: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_beat_is_told() {
        let pulse = Pulse::new(2);
        assert!(pulse.silent().is_empty());
        pulse.0[1].store(clock::precise().wrapping_sub(2 * SILENT), Relaxed);
        // The clock begins with the process: a time before that lies in the future.
        pulse.0[0].store(clock::precise() + 5, Relaxed);
        let silent = pulse.silent();
        assert!(
            silent.iter().all(|(reactor, _)| *reactor == 1),
            "{silent:?}"
        );
        pulse.beat(1);
        pulse.beat(9);
        assert!(pulse.silent().is_empty());
    }
}
