//! Limits how often the log says that a pool refuses requests. Each refusal is in the access log and in the figures. If
//! a thousand are refused per second, the error log has some lines, and the number of further refusals.

use std::sync::{Mutex, PoisonError};

/// Counts refusals that were logged, and those that were not.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    second: u64,
    logged: u32,
    not_logged: u64,
}

impl Refusals {
    /// A request was refused at `now` (µs). If it is to be logged, returns how many were not logged since the last
    /// line.
    pub(super) fn say(&self, now: u64) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let second = now / 1_000_000;
        if state.second != second {
            (state.second, state.logged) = (second, 0);
        }
        if state.logged == A_SECOND {
            state.not_logged += 1;
            return None;
        }
        state.logged += 1;
        Some(std::mem::take(&mut state.not_logged))
    }
}

/// Lines per pool and second.
const A_SECOND: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_a_second_are_said_and_how_many_were_not() {
        let refusals = Refusals::default();
        let logged = (0..500).filter(|n| refusals.say(5_000_000 + n) == Some(0));
        assert_eq!(logged.count(), 10);
        assert_eq!(refusals.say(6_000_000), Some(490));
        assert_eq!(refusals.say(6_000_001), Some(0));
    }
}
