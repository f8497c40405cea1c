//! Is the pool overloaded, for how long already, and how long may its queue be then?
//!
//! A queue in which everybody waits for seconds is no overload, where all of them wait: each of 300 clients that asks
//! again when it has its answer waits for the 299 others, and refusing one of them helps nobody. What counts is what is
//! **lost**: clients that leave, requests whose time is up, or who had to be refused. A pool that has more to do than it can
//! loses something all the time, and where everybody is served in turn, it loses nearly all of it: each answer comes just
//! after its client has left.
//!
//! Time is cut into windows. A window is bad if something was lost in it, at least one for eight that were finished, and
//! somebody waited all the time. Three bad windows of the last eight: the pool is overloaded from now on. It is so too,
//! and at once,
//!
//! - when eight were lost, that says how long clients wait, and those that wait now would wait for half of that or more;
//! - when it is known how long clients wait, and the queue has grown for seconds because more come than are served
//!   (`growth.rs`), before anybody is lost. As long as nobody is known to leave, a queue that grows harms nobody: after a
//!   reload the clients of the gateway before it come one after the other, and all of them wait.
//!
//! While it is,
//!
//! - newcomers are refused at once that would find more than [`most`](Overload::most) before them: what is served within
//!   an eighth of the clients' patience, at most 250 ms, but enough to keep all workers at work;
//! - who has waited for longer than [`stale_after`](Overload::stale_after), half of that patience, goes after all others.
//!
//! It is over when nobody was lost or refused for a second. If the queue was empty in between, or now and then for a
//! try, more are let in, because clients that are refused and come again at once look the same as ones that never end,
//! and only letting them in tells them apart. For a minute after that no more losses are waited for: it is back as soon as
//! waiting takes half of the clients' patience again.

use crate::Micros;
use crate::estimate::{Drain, Spread};
use crate::growth::{Growth, Sight};

#[derive(Debug)]
pub(crate) struct Overload {
    is_on: bool,
    began: Micros,
    ends: Micros,
    window: Window,
    /// A bit for each of the last windows: it was bad.
    history: u32,
    /// Of the windows of the last second, fading.
    recent: (u64, u64),
    drain: Drain,
    most: usize,
    longest: Micros,
    stale_after: Micros,
    /// So many times as much is let in.
    factor: u64,
    quiet_since: Micros,
    try_at: Micros,
    tries: u32,
    trying_until: Micros,
    wary_until: Micros,
    times: u64,
    growth: Growth,
    /// It is on because the queue grew, before anybody was lost.
    has_only_grown: bool,
    /// Many were lost since it was looked last.
    is_urgent: bool,
    /// Before that, time that passes changes nothing.
    wakes_at: Micros,
}

/// What happened since it began.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    /// In halves.
    lost: u64,
    refused: u64,
    finished: u64,
    busy_before: u64,
    was_empty: bool,
}

/// The pool at the end of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Situation {
    /// Nobody, whatever happens, is refused for overload.
    pub(crate) is_fifo: bool,
    /// Requests that wait and are not stale.
    pub(crate) fresh: usize,
    /// At work, or as good as; at least 1.
    pub(crate) workers: usize,
    pub(crate) service: Micros,
    pub(crate) spread: Spread,
    /// As far as clients wait, and no longer than they may.
    pub(crate) patience: Micros,
    /// Whether that was learned from those who left.
    pub(crate) is_patience_known: bool,
    /// All that wait.
    pub(crate) waiting: usize,
    /// Requests that workers were ever done with, one way or the other.
    pub(crate) ended: u64,
    /// More workers will be there soon.
    pub(crate) is_growing: bool,
    /// The time that all workers were ever busy, added up, µs, modulo 2⁶⁴.
    pub(crate) busy: u64,
}

impl Overload {
    pub(crate) fn new() -> Self {
        Self {
            is_on: false,
            began: Micros::ZERO,
            ends: SHORTEST,
            window: Window::default(),
            history: 0,
            recent: (0, 0),
            drain: Drain::default(),
            most: usize::MAX,
            longest: Micros::MAX,
            stale_after: Micros::MAX,
            factor: 1,
            quiet_since: Micros::ZERO,
            try_at: Micros::ZERO,
            tries: 0,
            trying_until: Micros::ZERO,
            wary_until: Micros::ZERO,
            times: 0,
            growth: Growth::new(),
            has_only_grown: false,
            is_urgent: false,
            wakes_at: SHORTEST,
        }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// How often it began.
    pub(crate) fn times(&self) -> u64 {
        self.times
    }

    /// Newcomers with so many before them are refused.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// What the last of them that is let in waits, about.
    pub(crate) fn longest(&self) -> Micros {
        self.longest
    }

    /// Who has waited for so long goes after all others.
    pub(crate) fn stale_after(&self) -> Micros {
        self.stale_after
    }

    /// What a request takes as things are.
    pub(crate) fn service(&self) -> Option<Micros> {
        self.drain.service()
    }

    /// So many were refused lately, for so many that were finished.
    pub(crate) fn refused_and_finished(&self) -> (u64, u64) {
        self.recent
    }

    /// Somebody was lost who would have been served if there were fewer.
    pub(crate) fn lost(&mut self) {
        self.window.lost += 2;
        if self.window.lost.is_multiple_of(2 * MANY) {
            self.is_urgent = true;
            self.wakes_at = Micros::ZERO;
        }
    }

    /// Somebody's own deadline was too short: it may be that of this one only.
    pub(crate) fn lost_by_deadline(&mut self) {
        self.window.lost += 1;
    }

    /// A newcomer was refused because it is on.
    pub(crate) fn refused(&mut self) {
        self.window.refused += 1;
    }

    #[inline]
    pub(crate) fn finished(&mut self) {
        self.window.finished += 1;
    }

    #[inline]
    pub(crate) fn queue_is_empty(&mut self) {
        self.window.was_empty = true;
    }

    /// Before that, neither is [`look`](Self::look) due, nor does anybody become stale.
    #[inline]
    pub(crate) fn wakes_at(&self) -> Micros {
        self.wakes_at
    }

    /// Whether it is time for [`look`](Self::look).
    pub(crate) fn is_due(&self, now: Micros) -> bool {
        now >= self.ends || self.is_urgent
    }

    /// A window is at its end: decides, and begins the next. Or many were lost in it already.
    pub(crate) fn look(&mut self, now: Micros, seen: &Situation) {
        match core::mem::take(&mut self.is_urgent) && now < self.ends {
            true => self.look_early(now, seen),
            false => self.look_at_window(now, seen),
        }
        self.wakes_at = match self.is_on {
            true => Micros::ZERO,
            false => self.ends,
        };
    }

    /// It is not on, whatever happened.
    pub(crate) fn stop(&mut self) {
        self.is_on = false;
        self.most = usize::MAX;
        self.longest = Micros::MAX;
        self.stale_after = Micros::MAX;
        self.wakes_at = self.ends;
    }

    fn look_at_window(&mut self, now: Micros, seen: &Situation) {
        let window = self.window;
        let span = now.since(self.began);
        self.drain.saw(
            span,
            seen.busy.wrapping_sub(window.busy_before),
            window.finished,
        );
        let is_bad = !window.was_empty && window.lost > 0 && window.lost * 4 >= window.finished;
        // Windows in which nothing happened at all are not looked at one by one.
        let passed = span.0 / self.ends.since(self.began).0.max(1);
        self.history = self.history.checked_shl(passed as u32).unwrap_or(0) | u32::from(is_bad);
        let keep = |value: u64| value - value / 4;
        let (refused, finished) = self.recent;
        self.recent = (
            keep(refused) + window.refused + window.lost / 2,
            keep(finished) + window.finished,
        );
        if self.is_on {
            self.go_on(now, &window, seen);
        }
        let was_on = self.is_on;
        let sight = Sight {
            at: now,
            waiting: seen.waiting as u64,
            ended: seen.ended,
            workers: seen.workers,
            busy: seen.busy,
        };
        if seen.is_fifo {
            self.is_on = false;
        } else if !self.is_on {
            let is_back = now < self.wary_until
                && !window.was_empty
                && self.waits(seen) > seen.patience.0 / 2;
            let bad = (self.history & REMEMBERED).count_ones();
            let is_lossy = is_back || bad >= LASTING;
            self.has_only_grown = !is_lossy && self.has_grown(&sight, seen);
            self.is_on = is_lossy || self.has_only_grown;
        }
        self.growth.saw(sight);
        if self.is_on && !was_on {
            self.begin(now);
        }
        if self.is_on {
            self.wary_until = now.after(WARY);
            self.set_bounds(seen);
        } else {
            self.stop();
        }
        let next = self.spacing(seen).0.saturating_mul(8);
        self.began = now;
        self.ends = now.after(Micros(next.clamp(SHORTEST.0, LONGEST.0)));
        self.window = Window {
            busy_before: seen.busy,
            ..Window::default()
        };
    }

    /// Many were lost: it begins at once if that is because they had to wait, and, now that it is known for how long they
    /// do, who has no time left goes last.
    fn look_early(&mut self, now: Micros, seen: &Situation) {
        let window = self.window;
        let is_lossy = !window.was_empty && window.lost >= window.finished;
        if seen.is_fifo || !seen.is_patience_known {
            return;
        }
        if !self.is_on {
            if !is_lossy || self.waits(seen) <= seen.patience.0 / 2 {
                return;
            }
            (self.is_on, self.has_only_grown) = (true, false);
            self.begin(now);
        }
        self.wary_until = now.after(WARY);
        self.set_bounds(seen);
    }

    fn begin(&mut self, now: Micros) {
        self.times += 1;
        self.factor = 1;
        self.quiet_since = now;
        if now >= self.wary_until {
            self.tries = 0;
        }
        self.try_at = now.after(match self.has_only_grown {
            true => SOON,
            false => FIRST_PAUSE,
        });
    }

    /// More come than are served, and have to wait already.
    fn has_grown(&self, sight: &Sight, seen: &Situation) -> bool {
        !seen.is_growing
            && seen.is_patience_known
            && self.waits(seen) >= LONG.0.min(seen.patience.0 / 4)
            && self.growth.is_lasting(sight, seen.service, &seen.spread)
    }

    /// It is on: is it over, and may more be let in?
    fn go_on(&mut self, now: Micros, window: &Window, seen: &Situation) {
        let is_lossy = window.lost + window.refused > 0;
        if is_lossy {
            self.quiet_since = now;
        } else {
            let few = self.spacing(seen).0.saturating_mul(QUIET_FINISHED);
            let quiet = now.since(self.quiet_since).0;
            // A queue that grows, and is not yet as long as it may be, is quiet too.
            let is_short = self.waits(seen) <= USUAL.0;
            let enough = QUIET.0.max(few) * if is_short { 1 } else { 5 };
            let goes_on = !is_short && self.growth.is_longer(now, seen.waiting, seen.workers);
            if quiet >= enough && !goes_on {
                self.is_on = false;
                self.history = 0;
                return;
            }
        }
        if now >= self.try_at {
            self.tries += 1;
            let pause = FIRST_PAUSE.0 << self.tries.min(8);
            self.try_at = now.after(Micros(pause.min(LAST_PAUSE.0)));
            self.trying_until = now.after(QUIET);
            // Where nobody was lost it may be clients that came one after the other and are all there by now.
            let step = if self.has_only_grown { 2 } else { 0 };
            let factor = 1 << (self.tries + step).min(8);
            self.factor = self.factor.max(factor).min(MOST_FACTOR);
        } else if window.was_empty {
            self.factor = (self.factor * 2).min(MOST_FACTOR);
        } else if is_lossy && now >= self.trying_until {
            self.factor = (self.factor / 2).max(1);
        }
    }

    /// What who is last waits, about, µs.
    fn waits(&self, seen: &Situation) -> u64 {
        self.spacing(seen).0.saturating_mul(seen.fresh as u64)
    }

    fn set_bounds(&mut self, seen: &Situation) {
        let patience = seen.patience.0;
        let each = self.spacing(seen).0;
        let usual = (patience / 8).min(USUAL.0);
        // Half of the patience is the most that anybody is made to wait on purpose.
        let most = usual.saturating_mul(self.factor).min(patience / 2) / each;
        let at_work = (2 * seen.workers as u64).max(FEW).min(patience / 4 / each);
        self.most = most.max(at_work).max(1) as usize;
        self.longest = Micros((self.most as u64).saturating_mul(each));
        let stale_after = (patience / 2).max(self.longest.0.saturating_mul(2));
        self.stale_after = Micros(stale_after.min(patience));
    }

    /// From one request that is finished to the next; at least 1 µs.
    fn spacing(&self, seen: &Situation) -> Micros {
        let service = self.drain.service().unwrap_or(seen.service);
        Micros((service.0 / seen.workers.max(1) as u64).max(1))
    }
}

/// A window is eight times what is between two requests that are finished, but no shorter and no longer than these.
const SHORTEST: Micros = Micros::from_millis(200);
const LONGEST: Micros = Micros::from_millis(400);

/// So many windows are remembered.
const REMEMBERED: u32 = 0xFF;

/// So many bad ones of them are lasting overload.
const LASTING: u32 = 3;

/// The queue under overload is that long, or an eighth of the clients' patience.
const USUAL: Micros = Micros::from_millis(250);

/// Where the queue grows, it is overload when they wait for so long, or for a quarter of the clients' patience.
const LONG: Micros = Micros::from_millis(500);

/// When so many were lost in a window, its end is not waited for.
const MANY: u64 = 8;

/// Requests that wait where few workers are to be kept at work, though requests come at random.
const FEW: u64 = 8;

/// It is over after so long without a loss, and not before so many were finished.
const QUIET: Micros = Micros::from_secs(1);
const QUIET_FINISHED: u64 = 32;

/// Pauses between the tries to let more in; doubled each time.
const FIRST_PAUSE: Micros = Micros::from_secs(5);
const LAST_PAUSE: Micros = Micros::from_secs(60);

/// The first pause where nobody was lost.
const SOON: Micros = Micros::from_secs(3);

/// So much more is let in at most.
const MOST_FACTOR: u64 = 8;

/// For so long after it ended it comes back without losses.
const WARY: Micros = Micros::from_secs(60);
