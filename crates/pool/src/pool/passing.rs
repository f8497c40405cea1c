//! Effects of time: windows of overload end, and requests become stale.

use super::Pool;
use crate::overload::Situation;
use crate::{Micros, Order};

impl Pool {
    /// Lets time pass. All other calls with a time do this as well: this one is for callers that only read figures.
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
            self.totals.busy_time = self.totals.busy_time.after(Micros(busy));
            self.clock = now;
            if now >= self.overload.wakes_at() {
                self.wake();
            }
        }
        self.clock
    }

    #[inline(never)]
    fn wake(&mut self) {
        if self.overload.is_due(self.clock) {
            self.look_at_overload();
        }
        if self.overload.is_on() {
            self.make_stale();
        }
    }

    /// A worker becomes busy.
    #[inline]
    pub(super) fn begins_work(&mut self) {
        self.busy_until_zero = self.busy_until_zero.wrapping_sub(self.clock.0);
    }

    /// A busy worker becomes free.
    #[inline]
    pub(super) fn ends_work(&mut self) {
        self.busy_until_zero = self.busy_until_zero.wrapping_add(self.clock.0);
    }

    /// Total busy time of all workers, µs. Each worker adds the times at which it became free and subtracts those at
    /// which it became busy, modulo 2⁶⁴; only differences have a meaning.
    fn busy_time(&self) -> u64 {
        let now = self.clock.0.wrapping_mul(self.workers.busy() as u64);
        now.wrapping_add(self.busy_until_zero)
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
            busy: self.busy_time(),
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

    /// Notes when no request waits.
    pub(super) fn note_length(&mut self) {
        if self.queue.len() == 0 {
            self.overload.queue_is_empty();
        }
    }
}
