//! Keeps `auto` from starting and ending the same workers again and again: a memory limit that rises slowly after a
//! shortage, and an idle timeout that grows with each worker that was ended too early.

use crate::pool::View;
use crate::{Decision, MemoryView, Micros};

/// How many workers fit into memory.
#[derive(Debug)]
pub(crate) struct Memory {
    /// A report that was not handled yet.
    pub(crate) view: Option<MemoryView>,
    /// Memory is short.
    pub(crate) pressed: bool,
    /// The limit according to the last report.
    available: usize,
    /// The limit learned from the last shortage.
    learnt: usize,
    /// When the next worker may be ended because of a shortage, or one more may be started after it.
    step_at: Micros,
}

impl Memory {
    pub(crate) const fn new() -> Self {
        Self {
            view: None,
            pressed: false,
            available: usize::MAX,
            learnt: usize::MAX,
            step_at: Micros::ZERO,
        }
    }

    /// How many workers fit into memory, including those that are leaving or starting.
    pub(crate) fn limit(&self) -> usize {
        self.available.min(self.learnt)
    }

    /// `most`: the maximum of workers.
    pub(crate) fn look(&mut self, now: Micros, pool: &View, most: usize) -> Option<Decision> {
        let up = pool.free + pool.busy;
        let mut decision = None;
        // Workers that are starting do not use their memory yet: it is part of the available memory.
        if let Some(view) = self.view.take() {
            let more = view.available.checked_div(view.worker_cost);
            let more = more.and_then(|more| usize::try_from(more).ok());
            self.available =
                more.map_or(usize::MAX, |more| (up + pool.leaving).saturating_add(more));
            if view.pressure != self.pressed {
                self.pressed = view.pressure;
                self.step_at = match view.pressure {
                    true => now,
                    false => now.after(RELIEF),
                };
                decision = Some(match view.pressure {
                    true => Decision::MemoryPressure { workers: up },
                    false => Decision::MemoryRelieved { workers: up },
                });
            }
        }
        if self.pressed {
            self.learnt = self.learnt.min((up - pool.retiring).max(1));
        } else if self.learnt < usize::MAX && now >= self.step_at {
            self.step_at = now.after(RELIEF);
            self.learnt += 1;
            if self.learnt >= most {
                self.learnt = usize::MAX;
            }
        }
        decision
    }

    /// When the next step is due: one worker less while memory is short, one more after that.
    pub(crate) fn next(&self) -> Option<Micros> {
        (self.pressed || self.learnt < usize::MAX).then_some(self.step_at)
    }

    /// A worker was ended because memory is short.
    pub(crate) fn step(&mut self, now: Micros, was_idle: bool) {
        self.step_at = now.after(if was_idle { IDLE_STEP } else { BUSY_STEP });
    }
}

/// How much longer than `idle_timeout` an idle worker is kept.
#[derive(Debug)]
pub(crate) struct Patience {
    doublings: u32,
    sent_away_at: Option<Micros>,
    regretted_at: Micros,
}

impl Patience {
    pub(crate) const fn new() -> Self {
        Self {
            doublings: 0,
            sent_away_at: None,
            regretted_at: Micros::ZERO,
        }
    }

    pub(crate) fn stretch(&self, timeout: Micros) -> Micros {
        Micros(timeout.0.saturating_mul(1 << self.doublings))
    }

    /// A worker is ended because it was idle.
    pub(crate) fn sent_away(&mut self, now: Micros, timeout: Micros) {
        let calm = self.stretch(timeout).0.saturating_mul(CALM);
        if self.doublings > 0 && now.since(self.regretted_at).0 > calm {
            self.doublings -= 1;
            self.regretted_at = now;
        }
        self.sent_away_at = Some(now);
    }

    /// A worker is missing. If one was ended not long ago, that was too early.
    pub(crate) fn missed(&mut self, now: Micros, timeout: Micros) {
        let Some(at) = self.sent_away_at.take() else {
            return;
        };
        if now.since(at).0 < self.stretch(timeout).0.saturating_mul(2) {
            self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
            self.regretted_at = now;
        }
    }
}

const IDLE_STEP: Micros = Micros::from_millis(100);
const BUSY_STEP: Micros = Micros::from_secs(2);
const RELIEF: Micros = Micros::from_secs(10);

const MOST_DOUBLINGS: u32 = 3;
const CALM: u64 = 16;
