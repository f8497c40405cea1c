//! What sites and routes demand of clients: `allow`, `deny`, `rate`, `basic_auth`.

use super::Refusal;
use crate::{
    access::{
        basic_auth::{Checked, Unverified},
        guard::Guard,
        rates::RateFields,
    },
    record::{RareValues, Record},
    route::RouteMatch,
};

/// What the guards of a request have found.
pub(super) struct Outcome {
    rate: Option<Box<RateFields>>,
    /// Users whose passwords are right.
    verified: Vec<Unverified>,
    /// `Some`: this has to be verified, and then the guards are asked again.
    result: Result<Option<Unverified>, Refusal>,
}

/// Checks all that the path of a request demands of its client. A request is counted only once, even if this is called
/// again or a script has redirected the request. nginx does the same.
#[cold]
pub(super) fn check(record: &Record, found: &RouteMatch<'_, '_>) -> Outcome {
    let guards = || found.guards().chain(&found.rules.guard);
    let mut outcome = Outcome {
        rate: None,
        verified: Vec::new(),
        result: Ok(None),
    };
    if !record.is_admitted() {
        if let Err(refusal) = guards().try_for_each(|guard| guard.check_client(&record.endpoints)) {
            outcome.result = Err(refusal);
            return outcome;
        }
        if let Some(guard) = &found.rules.guard
            && record.asked().is_none()
        {
            let (rate, allowed) = guard.check_rate(record, &found.rules.policy, found.zone());
            outcome.rate = rate;
            if let Err(refusal) = allowed {
                outcome.result = Err(refusal);
                return outcome;
            }
        }
    }
    outcome.users(record, guards());
    outcome
}

/// The same for the guard of the file or script that a folder's URL leads to. `rate` counts requests by their paths.
#[cold]
pub(super) fn check_target(record: &Record, guard: &Guard) -> Outcome {
    let mut outcome = Outcome {
        rate: None,
        verified: Vec::new(),
        result: guard.check_client(&record.endpoints).map(|()| None),
    };
    if outcome.result.is_ok() {
        outcome.users(record, [guard].into_iter());
    }
    outcome
}

impl Outcome {
    fn users<'g>(&mut self, record: &Record, guards: impl Iterator<Item = &'g Guard>) {
        for guard in guards {
            match guard.check_user(record) {
                Ok(Checked::Passes) => {}
                Ok(Checked::Remembered(verified)) => self.verified.push(verified),
                Ok(Checked::Unverified(unverified)) => {
                    self.result = Ok(Some(unverified));
                    return;
                }
                Err(refusal) => {
                    self.result = Err(refusal);
                    return;
                }
            }
        }
    }

    /// Notes what was found. `Some`: a password has to be verified.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn note(
        self,
        rare: &mut Option<Box<RareValues>>,
    ) -> Result<Option<Box<Unverified>>, Refusal> {
        if self.rate.is_some() {
            rare.get_or_insert_default().rate = self.rate;
        }
        for verified in self.verified {
            rare.get_or_insert_default().sign_in(verified);
        }
        let unverified = self.result?;
        if unverified.is_some() {
            rare.get_or_insert_default().is_admitted = true;
        }
        Ok(unverified.map(Box::new))
    }
}
