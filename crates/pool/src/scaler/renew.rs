//! Outdated workers leave when their replacements are up.

use super::Scaler;
use crate::pool::View;
use crate::{Micros, leaving};

impl Scaler {
    /// How many outdated workers leave, a few at a time, as idle ones do: when the others are enough, or if there is no
    /// room for their replacements beside them. The tenth of a second between shows whether replacements die.
    pub(super) fn renew(&mut self, now: Micros, view: &View, missing: usize) -> usize {
        let due = self.renew_at.get_or_insert(now.after(RENEW_PACE));
        if now < *due {
            let due = *due;
            self.wake(due);
            return 0;
        }
        if !self.ready || self.backoff.has_failed() {
            return 0;
        }
        let outdated = view.outdated_free + view.outdated_busy;
        let most = leaving::outdated_at_once(view.free + view.busy);
        let most = most.saturating_sub(view.leaving);
        let count = if missing == 0 && self.starting == 0 {
            outdated.min(most)
        } else if self.total(view) < self.limit {
            0
        } else {
            let at_once = (self.limit / 4).max(1);
            let under_way = view.leaving + view.retiring + self.starting;
            outdated.min(most).min(at_once.saturating_sub(under_way))
        };
        if count > 0 {
            let next = now.after(RENEW_PACE);
            self.renew_at = Some(next);
            if count < outdated {
                self.wake(next);
            }
        }
        count
    }
}

/// Time between two groups of outdated workers that leave, in which their replacements can show that they work.
const RENEW_PACE: Micros = Micros::from_millis(100);
