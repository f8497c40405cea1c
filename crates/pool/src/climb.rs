//! How many workers are worth having (`auto`): more, as long as more of them finish more.
//!
//! # What is known beforehand
//!
//! A PHP worker mostly waits, for a database or for somebody's API, and while it waits another one could use the
//! processor: more workers than cores are right. But where scripts only compute, or where all of them queue for the
//! same lock or the same slow database, more workers finish no more requests. Each of them then takes longer, in
//! proportion, and costs its memory. The two cannot be told apart by how long requests wait or by how many workers are
//! busy: both look like a pool that is too small. They can be told apart by trying: the rate at which requests are
//! finished rises with the workers, or it does not.
//!
//! # What is done
//!
//! There is a **cap**, and below it workers are started as soon as anybody waits. It begins at one and a half for each
//! core: the cores can be kept busy while some workers are between two requests. While the pool is **saturated** (as
//! many workers busy as the cap allows, and somebody waits) the rate of finished requests is measured, and the cap is
//! moved:
//!
//! - **Up**, to twice as many. If the rate rises by a third of the share by which the workers rose, or more, it was
//!   worth it, and the next doubling is tried. (Scripts that wait half of their time gain all of the first doubling;
//!   ones that only compute gain nothing; a third is far enough from both for the noise of a short measurement.)
//! - **Down** again, if it did not. There the rate is measured once more. If it has fallen, the verdict was wrong (it
//!   was noise, or the load has changed meanwhile): back, and on. If it has not, and the cap had been reached without
//!   measuring, even fewer are tried.
//! - Then it **holds** for 10 s, and twice as long each time that another try brings nothing, up to 5 minutes. A rate
//!   that halves or doubles at the same number of workers means that the load is another one, and what was learnt is
//!   forgotten: when an API becomes slow, more workers are tried at once, and not after the hold.
//!
//! A rate is that of whole generations of requests (a multiple of the cap, at least [`SAMPLE`]), over [`SHORTEST`] or
//! longer, after one generation that is not counted because it began before. Time in which the pool is not saturated
//! is left out, and where it is four times the rest, the measurement begins anew. If the rates differ by two thirds of
//! the share or more, that is clear; else twice as many requests are measured before the verdict. From the first hold on
//! there is no hurry any more, and four times as many make a rate: of the many rates that are measured in a long time,
//! one would be far enough off by chance.
//!
//! Scripts of seconds finish so rarely that measuring would take longer than clients wait. So, if somebody has waited
//! for [`BLIND`] and the measurement is not half done, the cap is doubled without, up to four for each core; and raised
//! by a quarter each second, up to eight for each core. Beyond that only what was measured counts.
//!
//! Where it is known that processors are idle although the pool is saturated ([`crate::Scaler::processors`]), nobody waits for a
//! measurement: scripts that wait for somebody else need a worker each. The cap is raised to as many as wait, but by no
//! more than would use half of what is idle, going by what those use that are at work.
//!
//! When workers leave because they are idle, the cap follows them: what a crowd has shown in the morning does not
//! count for another one in the evening.
//!
//! # What it cannot know
//!
//! It takes for granted that requests are alike on average over a generation. Where they are not, it errs to either
//! side by a factor of two, and finds out at the next measurement.

use crate::Micros;
use crate::pool::View;

#[derive(Debug)]
pub(crate) struct Climb {
    cores: usize,
    /// The cap is never lower.
    base: usize,
    cap: usize,
    search: Search,
    window: Window,
    /// Fewer than these finished clearly less.
    needed: usize,
    /// As many as these finished no more than fewer.
    useless: usize,
    hold_for: Micros,
    /// There is time to measure thoroughly.
    is_calm: bool,
    seen_at: Micros,
    seen_finished: u64,
    was_saturated: bool,
    /// It was saturated then, at last, and has been since then.
    saturated_at: Micros,
    saturated_since: Micros,
    /// What was told of the processors last, and when.
    processors: Option<(Micros, u32)>,
}

/// What is being found out.
#[derive(Debug, Clone, Copy)]
enum Search {
    /// Whether these are better than fewer, if it was measured what fewer did.
    Up { below: Option<Measure> },
    /// Whether these, which are fewer, are as good.
    Down { above: Measure },
    /// Nothing, until then.
    Hold { until: Micros, this: Measure },
}

/// So many workers finished so much.
#[derive(Debug, Clone, Copy)]
struct Measure {
    workers: usize,
    /// Requests in 1,000 s.
    rate: u64,
}

/// A measurement that goes on.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    /// So many workers were busy as are to be measured; none until they were.
    level: Option<usize>,
    /// Requests that are still to finish before it counts, and those that have.
    settling: u64,
    settled: u64,
    settled_for: u64,
    finished: u64,
    lasted: u64,
    unsaturated: u64,
}

/// More workers were tried and brought nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Useless {
    pub(crate) workers: usize,
    pub(crate) rate: u64,
    pub(crate) tried: usize,
    pub(crate) rate_tried: u64,
}

impl Climb {
    pub(crate) fn new(start: usize, cores: usize) -> Self {
        let base = start.max(cores.saturating_add(cores.div_ceil(2)));
        Self {
            cores,
            base,
            cap: base,
            search: Search::Up { below: None },
            window: Window::default(),
            needed: 0,
            useless: usize::MAX,
            hold_for: FIRST_HOLD,
            is_calm: false,
            seen_at: Micros::ZERO,
            seen_finished: 0,
            was_saturated: false,
            saturated_at: Micros::ZERO,
            saturated_since: Micros::ZERO,
            processors: None,
        }
    }

    /// So many per mille of the processors were idle lately.
    pub(crate) fn processors(&mut self, now: Micros, idle: u32) {
        self.processors = Some((now, idle.min(1_000)));
    }

    /// Whether it matters how many processors are idle: somebody waits, and all workers that may be are at work.
    pub(crate) fn wants_processors(&self) -> bool {
        self.was_saturated
    }

    /// More workers than the cap may come soon, as far as is known: nothing says that they would bring nothing, and
    /// processors are idle, or were not looked at since the pool is saturated.
    pub(crate) fn may_grow_freely(&self, now: Micros) -> bool {
        let searches = matches!(self.search, Search::Up { .. });
        let idle = match self.processors {
            Some((at, idle)) if now.since(at) <= RECENT => idle >= ENOUGH_IDLE,
            _ => !self.was_saturated || now.since(self.saturated_since) <= RECENT,
        };
        searches && idle
    }

    pub(crate) fn cap(&self) -> usize {
        self.cap
    }

    /// Takes note of what has happened since the last time, and may move the cap. `most`: more workers there cannot be.
    /// Tells when to look again if nothing happens, and a growth that was found useless.
    pub(crate) fn look(
        &mut self,
        now: Micros,
        view: &View,
        most: usize,
    ) -> (Option<Micros>, Option<Useless>) {
        let finished = view.finished.saturating_sub(self.seen_finished);
        let span = now.since(self.seen_at).0;
        self.window.pass(self.was_saturated, span, finished);
        let level = self.cap.min(most);
        self.seen_at = now;
        self.seen_finished = view.finished;
        self.was_saturated = view.queued > 0 && view.busy + view.kept >= level;
        if !self.was_saturated {
            return (None, None);
        }
        if self.saturated_at.after(RECENT) < now || self.saturated_since == Micros::ZERO {
            self.saturated_since = now;
        }
        if now.since(self.saturated_at) >= STALE && !matches!(self.search, Search::Hold { .. }) {
            self.forget();
            self.window = Window::default();
        }
        self.saturated_at = now;
        if self.window.level.is_some_and(|measured| measured != level) {
            self.window = Window::default();
        }
        if self.window.level.is_none() && view.busy + view.kept == level {
            self.window.level = Some(level);
            self.window.settling = level as u64;
        }
        let found = self.decide(now, level, most);
        self.use_idle_processors(now, view, level, most);
        let sample = now.after(PROCESSORS_EVERY);
        let next = self.next(now, most).map_or(sample, |next| next.min(sample));
        (Some(next), found)
    }

    /// Processors are idle, and somebody waits: a worker for each, as far as the processors bear it.
    fn use_idle_processors(&mut self, now: Micros, view: &View, level: usize, most: usize) {
        let Some((at, idle)) = self.processors else {
            return;
        };
        let is_new = at > self.saturated_since && now.since(at) <= RECENT;
        let searches = matches!(self.search, Search::Up { .. });
        if !is_new || !searches || idle < ENOUGH_IDLE || self.cap > level {
            return;
        }
        let each = ((1_000 - idle) as usize).div_ceil(level.max(1)).max(1);
        let more = (idle as usize / 2 / each).max(1).min(view.queued);
        let cap = self.cap.saturating_add(more).min(most);
        // What was told holds for these: the next step waits for the next look.
        self.processors = None;
        if cap > self.cap {
            self.search = Search::Up { below: None };
            self.go(cap);
        }
    }

    /// So many are left, because others were idle.
    pub(crate) fn shrunk(&mut self, left: usize) {
        let cap = left.max(self.base);
        if cap < self.cap {
            self.forget();
            self.go(cap);
        }
    }

    fn decide(&mut self, now: Micros, level: usize, most: usize) -> Option<Useless> {
        let waited = self.window.settled_for + self.window.lasted;
        let Some(rate) = self.window.rate(self.sample(level)) else {
            match self.search {
                Search::Up { below: None } => {
                    if 2 * self.window.progress() < self.window_size(level) {
                        self.grow_blindly(waited, most);
                    }
                }
                // So slow that it is another load than the one that was measured.
                Search::Up { below: Some(other) } | Search::Hold { this: other, .. } => {
                    if waited >= 2 * other.time_for(self.window_size(level)) {
                        self.forget();
                        self.grow_blindly(waited, most);
                    }
                }
                Search::Down { above } => {
                    if waited >= 4 * above.time_for(self.window_size(level)) {
                        self.needed = above.workers;
                        self.go(above.workers);
                        self.hold(now, above);
                    }
                }
            }
            return None;
        };
        let this = Measure {
            workers: level,
            rate,
        };
        // What is clear needs no more than that, the rest twice as much.
        let is_sure = self.is_calm || self.window.finished >= 2 * self.sample(level);
        match self.search {
            Search::Up { below } => {
                match below {
                    Some(below) if !is_sure && !this.gains_much_over(&below) => return None,
                    Some(below) if this.gains_little_over(&below) => {
                        self.search = Search::Down { above: this };
                        self.useless = this.workers;
                        self.go(below.workers);
                    }
                    _ => {
                        if below.is_some() {
                            self.needed = level;
                            self.hold_for = FIRST_HOLD;
                            self.is_calm = false;
                        }
                        self.try_more(this, most);
                    }
                }
                None
            }
            Search::Down { above } if !is_sure && !above.gains_much_over(&this) => None,
            Search::Down { above } if above.gains_little_over(&this) => {
                self.useless = self.useless.min(above.workers);
                let fewer = (level / 2).max(self.needed).max(self.base);
                if is_much_more(level, fewer) {
                    self.search = Search::Down { above: this };
                    self.go(fewer);
                    return None;
                }
                self.hold(now, this);
                Some(Useless {
                    workers: level,
                    rate,
                    tried: above.workers,
                    rate_tried: above.rate,
                })
            }
            Search::Down { above } => {
                self.needed = above.workers;
                self.go(above.workers);
                if self.useless == above.workers {
                    self.useless = usize::MAX;
                    self.search = Search::Up { below: None };
                } else {
                    self.hold(now, above);
                }
                None
            }
            Search::Hold { until, this: then } => {
                if then.is_another_load(&this) {
                    self.forget();
                    self.try_more(this, most);
                } else if now >= until {
                    self.try_more(this, most);
                } else {
                    let this = Measure {
                        rate: then.rate - then.rate / 4 + rate / 4,
                        ..this
                    };
                    self.search = Search::Hold { until, this };
                    self.window = Window::default();
                }
                None
            }
        }
    }

    /// Nothing could be measured in the time that somebody has waited.
    fn grow_blindly(&mut self, waited: u64, most: usize) {
        let more = if self.cap < self.cores.saturating_mul(4) {
            let enough = waited >= BLIND.0;
            let more = self.cap.saturating_mul(2).min(self.cores * 4);
            enough.then_some(more)
        } else if self.cap < self.cores.saturating_mul(8) {
            let enough = waited >= BLIND_LATER.0;
            let more = self.cap + self.cap.div_ceil(4);
            enough.then_some(more.min(self.cores * 8))
        } else {
            None
        };
        if let Some(more) = more
            && self.cap < most
        {
            self.go(more.min(most));
        }
    }

    fn try_more(&mut self, this: Measure, most: usize) {
        let more = self.cap.saturating_mul(2).min(most);
        self.search = Search::Up {
            below: is_much_more(more, this.workers).then_some(this),
        };
        self.go(more.max(self.cap));
    }

    fn hold(&mut self, now: Micros, this: Measure) {
        self.search = Search::Hold {
            until: now.after(self.hold_for),
            this,
        };
        self.hold_for = Micros((self.hold_for.0 * 2).min(LONGEST_HOLD.0));
        self.is_calm = true;
        self.window = Window::default();
    }

    fn forget(&mut self) {
        self.search = Search::Up { below: None };
        self.needed = 0;
        self.useless = usize::MAX;
        self.hold_for = FIRST_HOLD;
        self.is_calm = false;
    }

    fn go(&mut self, cap: usize) {
        self.cap = cap;
        self.window = Window::default();
    }

    /// Requests from the moment that a level is reached until its rate is known.
    fn window_size(&self, level: usize) -> u64 {
        level as u64 + self.sample(level)
    }

    /// Requests of which a rate is made: whole generations, because those of a generation may finish all at once.
    fn sample(&self, level: usize) -> u64 {
        let level = (level as u64).max(1);
        let enough = if self.is_calm { 4 * SAMPLE } else { SAMPLE };
        level * enough.div_ceil(level).max(2)
    }

    /// When something may be decided though nothing happens.
    fn next(&self, now: Micros, most: usize) -> Option<Micros> {
        self.window.level?;
        let waited = self.window.settled_for + self.window.lasted;
        let size = self.window_size(self.cap.min(most));
        let due = match self.search {
            Search::Up { below: None } if self.cap < most && 2 * self.window.progress() < size => {
                if self.cap < self.cores.saturating_mul(4) {
                    BLIND.0
                } else if self.cap < self.cores.saturating_mul(8) {
                    BLIND_LATER.0
                } else {
                    return None;
                }
            }
            Search::Up { below: None } => return None,
            Search::Up { below: Some(other) } | Search::Hold { this: other, .. } => {
                2 * other.time_for(size)
            }
            Search::Down { above } => 4 * above.time_for(size),
        };
        Some(now.after(Micros(due.saturating_sub(waited).max(1_000))))
    }
}

impl Measure {
    /// A third of what workers that only wait would do, or more, is worth it.
    fn gains_little_over(&self, fewer: &Measure) -> bool {
        let (rate, workers) = (u128::from(self.rate), self.workers as u128);
        let (less, fewer) = (u128::from(fewer.rate), fewer.workers as u128);
        3 * rate.saturating_sub(less) * fewer < workers.saturating_sub(fewer) * less
    }

    /// Clearly: two thirds of that, or more.
    fn gains_much_over(&self, fewer: &Measure) -> bool {
        let (rate, workers) = (u128::from(self.rate), self.workers as u128);
        let (less, fewer) = (u128::from(fewer.rate), fewer.workers as u128);
        3 * rate.saturating_sub(less) * fewer >= 2 * workers.saturating_sub(fewer) * less
    }

    fn is_another_load(&self, now: &Measure) -> bool {
        now.rate < self.rate / 2 || now.rate / 2 > self.rate
    }

    /// Microseconds that it takes at this rate to measure so many requests.
    fn time_for(&self, requests: u64) -> u64 {
        (requests.saturating_mul(1_000_000_000) / self.rate.max(1)).max(SHORTEST.0)
    }
}

impl Window {
    /// Time has passed, and requests were finished in it.
    fn pass(&mut self, saturated: bool, span: u64, finished: u64) {
        if self.level.is_none() {
            return;
        }
        if !saturated {
            self.unsaturated += span;
            if self.unsaturated > 4 * (self.settled_for + self.lasted) {
                *self = Self::default();
            }
        } else if self.settling > 0 {
            self.settled_for += span;
            self.settling = self.settling.saturating_sub(finished);
            self.settled += finished;
        } else {
            self.lasted += span;
            self.finished += finished;
        }
    }

    /// Requests that have finished since the level was reached.
    fn progress(&self) -> u64 {
        self.settled + self.finished
    }

    /// Requests in 1,000 s, once enough have finished.
    fn rate(&self, sample: u64) -> Option<u64> {
        let enough = self.finished >= sample && self.lasted >= SHORTEST.0;
        enough.then(|| {
            let rate = u128::from(self.finished) * 1_000_000_000 / u128::from(self.lasted);
            u64::try_from(rate).unwrap_or(u64::MAX)
        })
    }
}

/// So many per mille of the processors are idle where scripts wait for somebody else.
const ENOUGH_IDLE: u32 = 250;

/// What is known of the processors holds for so long.
const RECENT: Micros = Micros::from_secs(1);

/// How often it is asked for while the pool is saturated.
const PROCESSORS_EVERY: Micros = Micros::from_millis(100);

/// What fewer than that bring cannot be measured, and costs as little.
fn is_much_more(more: usize, than: usize) -> bool {
    more >= than + than.div_ceil(2)
}

/// Requests of which a rate is made, at least. Its error is about a fifth, as that of their number.
const SAMPLE: u64 = 32;

/// Time over which a rate is measured, at least: quick scripts shall not be judged by what the machine did in a moment.
const SHORTEST: Micros = Micros::from_millis(100);

/// Somebody waits for so long before the cap is doubled without measuring.
const BLIND: Micros = Micros::from_millis(150);

/// The same, where there are four workers for each core.
const BLIND_LATER: Micros = Micros::from_secs(1);

/// After so long without saturation, rates of before are not compared with.
const STALE: Micros = Micros::from_secs(60);

const FIRST_HOLD: Micros = Micros::from_secs(10);
const LONGEST_HOLD: Micros = Micros::from_secs(300);
