//! What happens because time passes: windows of overload end, and requests become stale.

use super::Pool;
use crate::overload::Situation;
use crate::{Micros, Order};

impl Pool {
    /// Lets time pass. Every other call that is told the time does so as well: this one is for those that look at the
    /// figures only.
    pub fn pass(&mut self, now: Micros) {
        self.advance(now);
    }

    #[inline]
    pub(super) fn advance(&mut self, now: Micros) -> Micros {
        if now > self.clock {
            let passed = now.0 - self.clock.0;
            if self.queue.len() > 0 {
                let waited = passed.saturating_mul(self.queue.len() as u64);
                self.totals.queue_time = self.totals.queue_time.after(Micros(waited));
            }
            let busy = passed.saturating_mul(self.workers.busy() as u64);
            self.busy_time = self.busy_time.saturating_add(busy);
            self.clock = now;
            if self.overload.is_due(now) {
                self.look_at_overload();
            }
            if self.overload.is_on() {
                self.make_stale();
            }
        }
        self.clock
    }

    #[cold]
    fn look_at_overload(&mut self) {
        self.patience.look(self.clock);
        let timeout = self.limits.timeout;
        let situation = Situation {
            is_fifo: self.limits.order == Order::Fifo,
            fresh: self.queue.len() - self.queue.stale(),
            workers: self.workers_now(),
            service: self.service.estimate(),
            spread: self.spread,
            patience: self
                .patience
                .get()
                .map_or(timeout, |patience| patience.min(timeout)),
            is_patience_known: self.patience.get().is_some(),
            waiting: self.queue.len(),
            ended: self.totals.finished + self.totals.lost,
            is_growing: self.soon > self.workers.free() + self.workers.busy(),
            busy: self.busy_time,
        };
        self.overload.look(self.clock, &situation);
        self.note_length();
    }

    fn make_stale(&mut self) {
        let age = self.overload.stale_after();
        if let Some(limit) = self.clock.0.checked_sub(age.0) {
            self.queue.make_stale(Micros(limit));
        }
    }

    /// Notes it where nobody waits.
    pub(super) fn note_length(&mut self) {
        if self.queue.len() == 0 {
            self.overload.queue_is_empty();
        }
    }
}
