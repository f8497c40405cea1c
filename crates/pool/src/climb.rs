//! How many workers are worth having (`auto`): more of them as long as more of them do more.

use crate::Micros;
use crate::pool::View;

#[derive(Debug)]
pub(crate) struct Climb {
    base: usize,
    cap: usize,
    saturated_since: Option<Micros>,
}

impl Climb {
    pub(crate) fn new(base: usize) -> Self {
        Self {
            base,
            cap: base,
            saturated_since: None,
        }
    }

    pub(crate) fn set_base(&mut self, base: usize) {
        self.base = base;
        self.cap = self.cap.max(base);
    }

    pub(crate) fn cap(&self) -> usize {
        self.cap
    }

    pub(crate) fn observe(&mut self, now: Micros, view: &View, limit: usize) -> Option<Micros> {
        if view.waiting == 0 || view.busy < self.cap || self.cap >= limit {
            self.saturated_since = None;
            return None;
        }
        let due = self.saturated_since.get_or_insert(now).after(PERSISTS);
        if now < due {
            return Some(due);
        }
        self.saturated_since = None;
        self.cap = (self.cap * 2).min(limit);
        None
    }

    pub(crate) fn shrunk(&mut self, workers: usize) {
        self.cap = workers.max(self.base);
    }
}

const PERSISTS: Micros = Micros::from_millis(50);
