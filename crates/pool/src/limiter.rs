//! How many requests a server of others can bear at once, found out by trying.
//!
//! Nobody says how many workers a PHP-FPM on another host has. What it is given beyond them waits in its accept queue,
//! where weir can neither see nor order nor refuse it, and every answer takes longer by that wait. [`Limiter`] therefore
//! compares how long requests take now with how long they took when nothing waited, and estimates from that how many
//! wait there (as TCP Vegas does for a router's queue). Few: the limit grows. Many: it shrinks to what was served
//! without waiting. Timeouts and refusals shrink it at once.
//!
//! What is compared is the mean of the logarithm of the times. It moves with every request's wait, however short; one
//! script that takes a thousand times as long as the others moves it little.
//!
//! How long requests take without a wait is measured, and again from time to time, since scripts change: the limit is
//! halved for as many requests as that needs. Where that shows that something had waited before, it is measured
//! again soon, else ever more rarely.
//!
//! It knows no clock: time comes with what happens.

use crate::Micros;
use crate::log2::{ONE, log2, power_of_minus};

/// Bounds of an adaptive limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitBounds {
    /// At first.
    pub start: usize,
    /// Never less.
    pub min: usize,
    /// Never more.
    pub max: usize,
}

impl Default for LimitBounds {
    /// From 10 at the start to 1,000 at most.
    fn default() -> Self {
        Self {
            start: 10,
            min: 1,
            max: 1_000,
        }
    }
}

/// What [`Limiter::begin`] says of a request, to be told when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    at: Micros,
    /// The limit has changed since where this is not the limiter's.
    epoch: u32,
}

impl Begun {
    /// Of a server whose limit is not found out.
    pub(crate) fn at(at: Micros) -> Self {
        Self { at, epoch: 0 }
    }
}

/// How a request at a server ended, as its limit is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With its answer.
    Answered,
    /// In a way that says nothing about the time it takes.
    Unknown,
    /// Not in time, or the server's queue was full.
    Overloaded,
}

/// The limit of one server.
#[derive(Debug, Clone)]
pub struct Limiter {
    bounds: LimitBounds,
    /// In parts of [`ONE`], so that it can grow by less than one.
    limit: u64,
    /// Logarithm of the time without a wait; none before anything was measured.
    base: Option<u64>,
    /// Logarithm of the time now, smoothed over windows.
    now: Option<u64>,
    /// Counts changes of the limit.
    epoch: u32,
    /// So many requests of this epoch are still passed over: the first to end are the shortest of those that began.
    skipping: usize,
    window: Window,
    phase: Phase,
    /// Windows until it is measured again, and so many after that.
    until_probe: u32,
    probe_every: u32,
    /// It has never shrunk: it grows by half, not by steps.
    young: bool,
    /// It was last lowered for an overload.
    lowered_at: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Usual,
    /// Halved, to measure; then it is this again.
    Probing {
        before: u64,
    },
}

/// Requests that began and ended under one limit.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    count: u64,
    sum_of_logs: u64,
    /// Requests at the server when these ended, summed up, themselves included.
    sum_of_busy: u64,
    /// The most that were there at once.
    most: usize,
}

impl Limiter {
    /// A limiter that has measured nothing.
    pub fn new(bounds: LimitBounds) -> Self {
        let min = bounds.min.clamp(1, MOST);
        let max = bounds.max.clamp(min, MOST);
        let start = bounds.start.clamp(min, max);
        Self {
            bounds: LimitBounds { start, min, max },
            limit: start as u64 * ONE,
            base: None,
            now: None,
            epoch: 0,
            skipping: 0,
            window: Window::default(),
            phase: Phase::Usual,
            until_probe: FIRST_PROBE,
            probe_every: FIRST_PROBE,
            young: true,
            lowered_at: Micros::ZERO,
        }
    }

    /// Requests that the server is given at once, at most.
    pub fn limit(&self) -> usize {
        ((self.limit / ONE) as usize).clamp(self.bounds.min, self.bounds.max)
    }

    /// A request begins; `busy`: so many are at the server then, it included.
    pub fn begin(&mut self, now: Micros, busy: usize) -> Begun {
        self.window.most = self.window.most.max(busy.min(MOST));
        Begun {
            at: now,
            epoch: self.epoch,
        }
    }

    /// A request has ended; `busy`: so many were at the server, it included.
    pub fn end(&mut self, now: Micros, begun: Begun, busy: usize, ended: Ended) {
        match ended {
            Ended::Unknown => return,
            Ended::Overloaded => return self.overloaded(now),
            Ended::Answered => {}
        }
        let busy = busy.min(MOST);
        // What began under another limit met another queue.
        if begun.epoch != self.epoch {
            return;
        }
        if self.skipping > 0 {
            self.skipping -= 1;
            return;
        }
        let window = &mut self.window;
        window.count += 1;
        window.sum_of_logs += log2(now.since(begun.at).0);
        window.sum_of_busy += busy as u64;
        window.most = window.most.max(busy);
        if window.count >= self.needed() {
            self.look();
        }
    }

    /// What it takes without a wait, µs; none before anything was measured.
    pub fn unloaded(&self) -> Option<Micros> {
        // 2^log, by way of the inverse power.
        self.base.map(|log| Micros(power(log)))
    }

    /// The server did not answer in time, or its queue was full. One that had many at once says so many times at once;
    /// that counts once.
    fn overloaded(&mut self, now: Micros) {
        let pause = self.unloaded().unwrap_or(Micros::ZERO).max(ONE_OVERLOAD);
        if self.lowered_at != Micros::ZERO && now.since(self.lowered_at) < pause {
            return;
        }
        self.lowered_at = now.max(Micros(1));
        self.young = false;
        self.phase = Phase::Usual;
        self.set(self.limit * 7 / 10);
        self.window = Window::default();
    }

    /// So many requests make a window.
    fn needed(&self) -> u64 {
        let limit = self.limit() as u64;
        match self.phase {
            Phase::Usual => (4 * limit).max(FEWEST),
            Phase::Probing { .. } => (8 * limit).max(FEWEST_PROBED),
        }
    }

    fn look(&mut self) {
        let window = core::mem::take(&mut self.window);
        let log = window.sum_of_logs / window.count;
        match self.phase {
            Phase::Probing { before } => self.probed(log, before),
            Phase::Usual => self.looked(log, &window),
        }
    }

    /// A window of the halved limit has ended.
    fn probed(&mut self, log: u64, before: u64) {
        self.phase = Phase::Usual;
        let known = self.base.unwrap_or(log);
        // Less than it was by more than chance: something waited when it was measured before.
        let fell = known.saturating_sub(log) > NOTABLE;
        self.probe_every = match fell {
            true => FIRST_PROBE,
            false => (self.probe_every * 2).min(RAREST_PROBE),
        };
        self.until_probe = self.probe_every;
        self.base = Some(match fell {
            true => log,
            false => (2 * known + log) / 3,
        });
        self.set(before);
    }

    fn looked(&mut self, log: u64, window: &Window) {
        let now = match self.now {
            Some(before) => (2 * before + log) / 3,
            None => log,
        };
        let base = *self.base.get_or_insert(log);
        // Half of what the server could take was in use: nothing waited, if anything is known of it.
        let idle = 2 * window.most <= self.limit();
        let base = match idle {
            true => (3 * base + log) / 4,
            false if now + NOTABLE < base => now,
            false => base,
        };
        (self.now, self.base) = (Some(now), Some(base));
        let busy = window.sum_of_busy * ONE / window.count;
        // Of those that are there, the part that the longer time is more.
        let waiting = busy - busy * power_of_minus(now - base.min(now)) / ONE;
        // Chance makes the estimate as much too high or too low.
        let chance = (self.limit * ONE).isqrt() * 3 / 4;
        let used = window.most >= self.limit();
        if waiting > 2 * (ONE + chance) {
            self.young = false;
            let served = busy.saturating_sub(waiting) + ONE + chance;
            return self.set(served.clamp(self.limit * 7 / 10, self.limit));
        }
        if waiting > (ONE + chance) * 3 / 2 {
            self.set(self.limit - ONE / 2);
        }
        if used {
            // At the limit: it is due to be measured, or may be raised.
            self.until_probe = self.until_probe.saturating_sub(1);
            if self.until_probe == 0 && self.limit() > self.bounds.min {
                self.phase = Phase::Probing { before: self.limit };
                return self.set(self.limit / 4);
            }
            if waiting < ONE + chance {
                let step = match self.young {
                    true => self.limit / 2,
                    false => chance.max(ONE / 2),
                };
                self.set(self.limit + step);
            }
        }
    }

    fn set(&mut self, limit: u64) {
        let limit = limit.clamp(self.bounds.min as u64 * ONE, self.bounds.max as u64 * ONE);
        // What began under nearly the same limit met nearly the same queue.
        if limit.abs_diff(self.limit) > self.limit / 8 + ONE {
            self.epoch = self.epoch.wrapping_add(1);
            self.window = Window::default();
            self.now = None;
            self.skipping = (limit / ONE) as usize;
        }
        self.limit = limit;
    }
}

/// 2 to the power of `log`, in whole numbers.
fn power(log: u64) -> u64 {
    let (whole, part) = (log / ONE, log % ONE);
    if whole >= 47 {
        return u64::MAX >> 1;
    }
    // 2^(whole + 1) × 2^−(1 − part)
    (power_of_minus(ONE - part) << (whole + 1)) / ONE
}

/// No limit is higher, whatever is asked for.
const MOST: usize = crate::MAX_WORKERS as usize;

/// Requests of a window at least.
const FEWEST: u64 = 20;

/// Requests of a measurement at least: it is compared with for long.
const FEWEST_PROBED: u64 = 40;

/// Windows at the limit before the first measurement.
const FIRST_PROBE: u32 = 3;

/// Windows at the limit between two measurements, at most.
const RAREST_PROBE: u32 = 48;

/// A difference of times that is taken for one: a sixth more (as a logarithm).
const NOTABLE: u64 = ONE * 32 / 100;

/// Overloads within this time are one.
const ONE_OVERLOAD: Micros = Micros::from_millis(100);
