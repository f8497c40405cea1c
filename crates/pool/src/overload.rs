//! Whether the pool is overloaded, for how long, and how long its queue may be then.
//!
//! A queue in which all requests wait for seconds is not overload by itself: if each of 300 clients sends its next
//! request after its answer, each waits for the 299 others, and refusing one helps nobody. What counts are **lost**
//! requests: clients that leave, and requests that time out or must be refused. A pool with more work than it can do
//! loses requests all the time. If it served all of them in order, it would lose nearly everything, because each
//! answer would come just after its client has left.
//!
//! Time is divided into windows. A window is bad if requests were lost in it, at least one for eight that were
//! finished, and requests were waiting all the time. After three bad windows of the last eight the pool counts as
//! overloaded. It also does so, at once,
//!
//! - when eight requests were lost, which shows how long clients wait, and the present requests would wait at least
//!   half of that;
//! - when it is known how long clients wait, and the queue has grown for seconds because more requests arrive than
//!   are served (`growth.rs`), before any is lost. As long as no client is known to leave, a growing queue does no
//!   harm: after a reload the clients of the old gateway come one after the other, and all of them wait.
//!
//! During overload,
//!
//! - new requests are refused at once if more than [`most`](Overload::most) are ahead of them: as many as are served
//!   within an eighth of the clients' patience, at most 250 ms, but enough to keep all workers busy;
//! - requests that have waited longer than [`stale_after`](Overload::stale_after), half of that patience, go after
//!   all others.
//!
//! Overload ends when no request was lost or refused for a second. If the queue was empty meanwhile, and from time to
//! time as a test, more requests are let in. Refused clients that retry at once look like an endless stream; only
//! letting them in shows the difference. For a minute after its end no further losses are needed: overload starts
//! again as soon as the wait reaches half of the clients' patience.

use crate::Micros;
use crate::estimate::{Drain, Spread};
use crate::growth::{Growth, Snapshot};

#[derive(Debug)]
pub(crate) struct Overload {
    is_on: bool,
    began: Micros,
    ends: Micros,
    window: Window,
    /// One bit for each of the last windows: it was bad.
    history: u32,
    /// Refused and finished requests of the last second, decaying.
    recent: (u64, u64),
    drain: Drain,
    most: usize,
    longest: Micros,
    stale_after: Micros,
    /// The factor by which more requests are accepted.
    factor: u64,
    quiet_since: Micros,
    try_at: Micros,
    tries: u32,
    trying_until: Micros,
    wary_until: Micros,
    times: u64,
    growth: Growth,
    /// The overload began because the queue grew, before any request was lost.
    has_only_grown: bool,
    /// Many were lost since the last check.
    is_urgent: bool,
    /// Before this time, nothing changes by itself.
    wakes_at: Micros,
}

/// What happened since the window began.
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
    /// Requests are never refused for overload.
    pub(crate) is_fifo: bool,
    /// Waiting requests that are not stale.
    pub(crate) fresh: usize,
    /// Workers that are busy or soon will be; at least 1.
    pub(crate) workers: usize,
    pub(crate) service: Micros,
    pub(crate) spread: Spread,
    /// How long clients wait, limited by how long they may.
    pub(crate) patience: Micros,
    /// Whether this was learned from clients that left.
    pub(crate) is_patience_known: bool,
    /// All waiting requests.
    pub(crate) waiting: usize,
    /// Total number of requests that workers have ended, in any way.
    pub(crate) ended: u64,
    /// More workers will be ready soon.
    pub(crate) is_growing: bool,
    /// Total busy time of all workers, µs, modulo 2⁶⁴.
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

    /// New requests with this many ahead of them are refused.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The approximate wait of the last request that is accepted.
    pub(crate) fn longest(&self) -> Micros {
        self.longest
    }

    /// Requests that have waited this long go after all others.
    pub(crate) fn stale_after(&self) -> Micros {
        self.stale_after
    }

    /// The present duration of a request.
    pub(crate) fn service(&self) -> Option<Micros> {
        self.drain.service()
    }

    /// How many were refused recently, and how many were finished.
    pub(crate) fn refused_and_finished(&self) -> (u64, u64) {
        self.recent
    }

    /// A request was lost that would have been served if there were fewer.
    pub(crate) fn lost(&mut self) {
        self.window.lost += 2;
        if self.window.lost.is_multiple_of(2 * MANY) {
            self.is_urgent = true;
            self.wakes_at = Micros::ZERO;
        }
    }

    /// A request missed its own deadline, which may have been too short.
    pub(crate) fn lost_by_deadline(&mut self) {
        self.window.lost += 1;
    }

    /// A new request was refused because of overload.
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

    /// Before this time [`look`](Self::look) is not due, and no request becomes stale.
    #[inline]
    pub(crate) fn wakes_at(&self) -> Micros {
        self.wakes_at
    }

    /// Whether it is time for [`look`](Self::look).
    pub(crate) fn is_due(&self, now: Micros) -> bool {
        now >= self.ends || self.is_urgent
    }

    /// At the end of a window: decides, and begins the next one. Also called early if many were lost.
    pub(crate) fn look(&mut self, now: Micros, seen: &Situation) {
        match core::mem::take(&mut self.is_urgent) && now < self.ends {
            true => self.look_early(now, seen),
            false => self.look_at_window(now, seen),
        }
        self.wakes_at = if self.is_on { Micros::ZERO } else { self.ends };
    }

    /// Ends overload in any case.
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
        // Windows without any event are handled together.
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
        let sight = Snapshot {
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

    /// Many were lost: begins at once if the cause was waiting. As it is known now how long clients wait, requests
    /// without enough time left go last.
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

    /// More requests arrive than are served, and they have to wait already.
    fn has_grown(&self, sight: &Snapshot, seen: &Situation) -> bool {
        !seen.is_growing
            && seen.is_patience_known
            && self.waits(seen) >= LONG.0.min(seen.patience.0 / 4)
            && self.growth.is_lasting(sight, seen.service, &seen.spread)
    }

    /// The pool is overloaded: checks whether this ends, or whether more requests may be accepted.
    fn go_on(&mut self, now: Micros, window: &Window, seen: &Situation) {
        let is_lossy = window.lost + window.refused > 0;
        if is_lossy {
            self.quiet_since = now;
        } else {
            let few = self.spacing(seen).0.saturating_mul(QUIET_FINISHED);
            let quiet = now.since(self.quiet_since).0;
            // A growing queue that is still shorter than allowed counts as quiet.
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
            // If no client has left so far, the clients may have come one after the other, and all of them may still
            // wait.
            let step = if self.has_only_grown { 2 } else { 0 };
            let factor = 1 << (self.tries + step).min(8);
            self.factor = self.factor.max(factor).min(MOST_FACTOR);
        } else if window.was_empty {
            self.factor = (self.factor * 2).min(MOST_FACTOR);
        } else if is_lossy && now >= self.trying_until {
            self.factor = (self.factor / 2).max(1);
        }
    }

    /// The approximate wait of the last one, µs.
    fn waits(&self, seen: &Situation) -> u64 {
        self.spacing(seen).0.saturating_mul(seen.fresh as u64)
    }

    fn set_bounds(&mut self, seen: &Situation) {
        let patience = seen.patience.0;
        let each = self.spacing(seen).0;
        let usual = (patience / 8).min(USUAL.0);
        // Half of the patience is the longest wait that is planned.
        let most = usual.saturating_mul(self.factor).min(patience / 2) / each;
        let at_work = (2 * seen.workers as u64).max(FEW).min(patience / 4 / each);
        self.most = most.max(at_work).max(1) as usize;
        self.longest = Micros((self.most as u64).saturating_mul(each));
        let stale_after = (patience / 2).max(self.longest.0.saturating_mul(2));
        self.stale_after = Micros(stale_after.min(patience));
    }

    /// Mean time between two finished requests; at least 1 µs.
    fn spacing(&self, seen: &Situation) -> Micros {
        let service = self.drain.service().unwrap_or(seen.service);
        Micros((service.0 / seen.workers.max(1) as u64).max(1))
    }
}

/// A window is eight times the time between two finished requests, within these bounds.
const SHORTEST: Micros = Micros::from_millis(200);
const LONGEST: Micros = Micros::from_millis(400);

/// How many windows are remembered.
const REMEMBERED: u32 = 0xFF;

/// This many bad ones of them are lasting overload.
const LASTING: u32 = 3;

/// Length of the queue under overload, or an eighth of the clients' patience.
const USUAL: Micros = Micros::from_millis(250);

/// If the queue grows, it counts as overload when requests wait this long, or a quarter of the clients' patience.
const LONG: Micros = Micros::from_millis(500);

/// After this many losses in a window, its end is not awaited.
const MANY: u64 = 8;

/// Number of waiting requests that keeps few workers busy although requests arrive randomly.
const FEW: u64 = 8;

/// The overload ends after this time without a loss, but not before this many requests were finished.
const QUIET: Micros = Micros::from_secs(1);
const QUIET_FINISHED: u64 = 32;

/// First pause between the attempts to accept more; it doubles each time.
const FIRST_PAUSE: Micros = Micros::from_secs(5);
const LAST_PAUSE: Micros = Micros::from_secs(60);

/// The first pause if no request was lost.
const SOON: Micros = Micros::from_secs(3);

/// Maximum of that factor.
const MOST_FACTOR: u64 = 8;

/// For this long after its end it starts again without losses.
const WARY: Micros = Micros::from_secs(60);
