//! A line on the terminal while a load runs.

use std::time::Instant;

use weir_observe::console;

use crate::bench::engine;

/// A line that is updated each second; nothing without a terminal.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    began: Instant,
    last: engine::Progress,
    at: Instant,
}

impl Progress {
    /// `shown`: there is a terminal.
    pub fn new(shown: bool) -> Self {
        Self {
            shown,
            began: Instant::now(),
            last: engine::Progress::default(),
            at: Instant::now(),
        }
    }

    /// Writes it.
    pub fn show(&mut self, now: &engine::Progress) {
        if !self.shown {
            return;
        }
        let span = self.at.elapsed().as_secs_f64().max(0.001);
        let rate = now.good.saturating_sub(self.last.good) as f64 / span;
        let line = format!(
            "{} s: {:.0} a second, {} good, {} refused, {} failed, {} under way",
            self.began.elapsed().as_secs(),
            rate,
            now.good,
            now.refused,
            now.failed,
            now.in_flight,
        );
        // Moves to the start of the line and clears the rest of the old text (ECMA-48 EL).
        console::say(format_args!("\r{line}\x1b[K"));
        self.last = *now;
        self.at = Instant::now();
    }

    /// Removes the line.
    pub fn end(&self) {
        if self.shown {
            console::say("\r\x1b[K");
        }
    }
}
