//! Logs failed calls in the error log: the first time, and then from time to time with a count, because an origin
//! that is down fails as often as it is called.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use weir_observe::clock;

use super::{
    fault::{Fault, Kind},
    origin::Origin,
};

/// What was logged recently.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<HashMap<(Option<Origin>, Kind), LastLogged>>);

#[derive(Debug, Default)]
struct LastLogged {
    /// [`clock::now`]
    at: u64,
    since: u64,
}

impl Complaints {
    /// Logs a fault, unless the same was logged for the same origin a moment ago.
    pub(crate) fn tell(&self, origin: Option<&Origin>, fault: &Fault) {
        if fault.message.is_empty() {
            return;
        }
        let now = clock::precise();
        let more = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= MOST {
                all.retain(|_, said| now.saturating_sub(said.at) < AGAIN);
            }
            if all.len() >= MOST {
                return;
            }
            let said = all.entry((origin.cloned(), fault.kind)).or_default();
            if said.at != 0 && now.saturating_sub(said.at) < AGAIN {
                said.since += 1;
                return;
            }
            said.at = now;
            std::mem::take(&mut said.since)
        };
        match more {
            0 => log::warn!("outgoing call: {}", fault.message),
            more => log::warn!(
                "outgoing call: {} (and {more} more since the last message)",
                fault.message
            ),
        }
    }
}

/// The same fault is logged again after this time, µs.
const AGAIN: u64 = 10_000_000;

/// How many different faults are remembered.
const MOST: usize = 1000;
