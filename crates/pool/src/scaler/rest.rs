//! Ends the workers of a pool (`Mode::Auto`) that gets no requests.

use super::Scaler;
use crate::pool::View;
use crate::{Decision, Micros, Pool};

impl Scaler {
    /// This many of `up` workers leave.
    pub(super) fn shrinks(
        &mut self,
        now: Micros,
        up: usize,
        count: usize,
        coldest: Micros,
    ) -> usize {
        if count > 0 {
            let left = up - count + self.starting;
            if let Some(climb) = &mut self.climb {
                climb.shrunk(left);
            }
            self.patience.sent_away(now, self.scaling.idle_timeout);
            self.tell(Decision::Shrank {
                by: count,
                workers: left,
                idle: now.since(coldest),
            });
        }
        count
    }

    /// All workers are idle: the pool rests when the one used last was idle for `timeout`.
    pub(super) fn look_for_rest(&mut self, now: Micros, pool: &Pool, view: &View, timeout: Micros) {
        let limit = Micros(now.0.saturating_sub(timeout.0));
        let (expired, next) = pool.idle_since(limit, view.free);
        match next {
            _ if now.0 >= timeout.0 && expired == view.free => self.resting = true,
            Some(next) => self.wake(next.after(timeout)),
            None => {}
        }
    }
}
