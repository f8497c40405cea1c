//! Finds out by measuring how many requests a server that others run can handle at once.
//!
//! weir does not know how many workers a PHP-FPM on another host has. Requests beyond that number wait in its accept
//! queue, where weir can neither see nor order nor refuse them, and every answer takes longer. So [`AdaptiveLimit`]
//! compares the present response time with the time without waiting, and estimates how many requests wait there (as
//! TCP Vegas does for a router's queue). If few wait, the limit grows. If many wait, it shrinks to the number that
//! was served without waiting. Timeouts and refusals shrink it at once.
//!
//! It compares the mean of the logarithms of the times. This mean changes with the wait of every request, however
//! short; but a single script that takes a thousand times as long changes it little.
//!
//! The time without waiting is measured again from time to time, because scripts change: for that the limit is halved
//! for as many requests as needed. If this shows that requests had waited before, the next measurement comes soon,
//! otherwise less and less often.
//!
//! It has no clock: the time comes with each event.

use crate::Micros;
use crate::log2::{ONE, log2, power_of_minus};

/// Bounds of an adaptive limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitBounds {
    /// The first limit.
    pub start: usize,
    /// Never less.
    pub min: usize,
    /// Never more.
    pub max: usize,
}

impl Default for LimitBounds {
    /// Starts at 10, with 1,000 at most.
    fn default() -> Self {
        Self {
            start: 10,
            min: 1,
            max: 1_000,
        }
    }
}

/// Data of a request from [`AdaptiveLimit::begin`], to be passed back when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    at: Micros,
    /// If this differs from the limit's value, the limit has changed since.
    epoch: u32,
}

impl Begun {
    /// For a server without an adaptive limit.
    pub(crate) fn at(at: Micros) -> Self {
        Self { at, epoch: 0 }
    }
}

/// How a request at a server ended, for its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    /// With an answer.
    Answered,
    /// In a way that says nothing about its duration.
    Unknown,
    /// The request timed out, or the server's queue was full.
    Overloaded,
}

/// The limit of one server.
#[derive(Debug, Clone)]
pub struct AdaptiveLimit {
    bounds: LimitBounds,
    /// In units of 1/[`ONE`], so that it can grow by less than one.
    limit: u64,
    /// Logarithm of the time without waiting; `None` before the first measurement.
    base: Option<u64>,
    /// Logarithm of the present time, smoothed over windows.
    now: Option<u64>,
    /// Number of changes of the limit.
    epoch: u32,
    /// How many requests of this epoch are still ignored: the first ones to end are the shortest of those that began.
    skipping: usize,
    window: Window,
    phase: Phase,
    /// Windows until the next measurement, and the interval after that.
    until_probe: u32,
    probe_every: u32,
    /// The limit has never shrunk: it grows by half, not in steps.
    young: bool,
    /// When it was last lowered because of overload.
    lowered_at: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Usual,
    /// Halved for a measurement; afterwards it gets this value again.
    Probing {
        before: u64,
    },
}

/// Requests that began and ended with the same limit.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    count: u64,
    sum_of_logs: u64,
    /// Sum of the requests at the server when these ended, including themselves.
    sum_of_busy: u64,
    /// The highest number at once.
    most: usize,
}

impl AdaptiveLimit {
    /// A limit without measurements.
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

    /// Maximum number of requests at the server.
    pub fn limit(&self) -> usize {
        ((self.limit / ONE) as usize).clamp(self.bounds.min, self.bounds.max)
    }

    /// A request begins; `busy`: number of requests at the server, including it.
    pub fn begin(&mut self, now: Micros, busy: usize) -> Begun {
        self.window.most = self.window.most.max(busy.min(MOST));
        Begun {
            at: now,
            epoch: self.epoch,
        }
    }

    /// A request has ended; `busy`: number of requests at the server, including it.
    pub fn end(&mut self, now: Micros, begun: Begun, busy: usize, ended: RequestEnd) {
        match ended {
            RequestEnd::Unknown => return,
            RequestEnd::Overloaded => return self.overloaded(now),
            RequestEnd::Answered => {}
        }
        let busy = busy.min(MOST);
        // When this request began, the limit was different, and so was the queue.
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

    /// The time without waiting, µs; `None` before the first measurement.
    pub fn unloaded(&self) -> Option<Micros> {
        // 2^log, computed with the inverse power.
        self.base.map(|log| Micros(power(log)))
    }

    /// The server did not answer in time, or its queue was full. If many requests report this at the same time, it
    /// counts once.
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

    /// Number of requests in a window.
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

    /// A window with the halved limit has ended.
    fn probed(&mut self, log: u64, before: u64) {
        self.phase = Phase::Usual;
        let known = self.base.unwrap_or(log);
        // Lower by more than chance: requests had waited during the last measurement.
        let fell = known.saturating_sub(log) > NOTABLE;
        self.probe_every = match fell {
            true => FIRST_PROBE,
            false => (self.probe_every * 2).min(RAREST_PROBE),
        };
        self.until_probe = self.probe_every;
        self.base = Some(if fell { log } else { (2 * known + log) / 3 });
        self.set(before);
    }

    fn looked(&mut self, log: u64, window: &Window) {
        let now = match self.now {
            Some(before) => (2 * before + log) / 3,
            None => log,
        };
        let base = *self.base.get_or_insert(log);
        // At most half of the limit was in use: nothing waited, as far as is known.
        let idle = 2 * window.most <= self.limit();
        let base = match idle {
            true => (3 * base + log) / 4,
            false if now + NOTABLE < base => now,
            false => base,
        };
        (self.now, self.base) = (Some(now), Some(base));
        let busy = window.sum_of_busy * ONE / window.count;
        // How many of the present requests wait, as the longer time tells.
        let waiting = busy - busy * power_of_minus(now - base.min(now)) / ONE;
        // The error of the estimate, upwards or downwards.
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
            // The limit is used up: it may be measured or raised.
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
        // Requests that began with nearly the same limit met nearly the same queue.
        if limit.abs_diff(self.limit) > self.limit / 8 + ONE {
            self.epoch = self.epoch.wrapping_add(1);
            self.window = Window::default();
            self.now = None;
            self.skipping = (limit / ONE) as usize;
        }
        self.limit = limit;
    }
}

/// 2 to the power of `log`, in integers.
fn power(log: u64) -> u64 {
    let (whole, part) = (log / ONE, log % ONE);
    if whole >= 47 {
        return u64::MAX >> 1;
    }
    // 2^(whole + 1) × 2^−(1 − part)
    (power_of_minus(ONE - part) << (whole + 1)) / ONE
}

/// Maximum of all limits.
const MOST: usize = crate::MAX_WORKERS as usize;

/// Minimum number of requests in a window.
const FEWEST: u64 = 20;

/// Minimum number of requests in a measurement, which is used for a long time.
const FEWEST_PROBED: u64 = 40;

/// Windows at the limit before the first measurement.
const FIRST_PROBE: u32 = 3;

/// Maximum number of windows at the limit between two measurements.
const RAREST_PROBE: u32 = 48;

/// The smallest difference of times that counts: a sixth more (as a logarithm).
const NOTABLE: u64 = ONE * 32 / 100;

/// Overloads within this time count as one.
const ONE_OVERLOAD: Micros = Micros::from_millis(100);
