//! Finds out how many workers are useful (`auto`): more, as long as more workers finish more requests.
//!
//! # What is known beforehand
//!
//! A PHP worker mostly waits, for a database or an API, and meanwhile another one can use the processor: so more
//! workers than cores are right. But if scripts only compute, or if all of them wait for the same lock or the same
//! slow database, more workers do not finish more requests. Each request then takes longer in proportion, and each
//! worker costs memory. The waiting times of requests and the number of busy workers do not show the difference: both
//! cases look like a pool that is too small. A test shows it: the rate of finished requests rises with the number of
//! workers, or it does not.
//!
//! # What is done
//!
//! There is a **cap**; below it workers are started as soon as a request waits. It starts at one and a half workers
//! per core, so that the cores stay busy while some workers are between two requests. While the pool is **saturated**
//! (as many workers are busy as the cap allows, and a request waits), the rate of finished requests is measured, and
//! the cap is moved:
//!
//! - **Up**, to twice as many. If the rate rises by at least a third of the share by which the workers rose, this was
//!   useful, and the next doubling is tried. (Scripts that wait half of their time gain the whole first doubling;
//!   scripts that only compute gain nothing; a third is far enough from both for the noise of a short measurement.)
//! - **Down** again if it was not useful. There the rate is measured once more. If it has fallen, the verdict was
//!   wrong (because of noise, or the load has changed): the cap goes back up and the search continues. If it has not,
//!   and the cap had been reached without measuring, even fewer workers are tried.
//! - Then it **holds** for 10 s, and twice as long after each further try without success, up to 5 minutes. If the
//!   rate halves or doubles with the same number of workers, the load has changed, and what was learned is forgotten:
//!   when an API becomes slow, more workers are tried at once, not after the hold.
//!
//! A rate is measured over whole generations of requests (a multiple of the cap, at least [`SAMPLE`]) and over
//! [`SHORTEST`] or longer, after one generation that is not counted because it began before. Time in which the pool
//! is not saturated is left out; if it is four times the rest, the measurement starts again. If the rates differ by
//! two thirds of the share or more, the result is clear; otherwise twice as many requests are measured before the
//! verdict. After the first hold there is more time, and four times as many requests are measured: with many
//! measurements over a long time, one would otherwise be wrong by chance.
//!
//! Scripts that take seconds finish so rarely that measuring would take longer than clients wait. So if a request has
//! waited for [`BLIND`] and the measurement is not half done, the cap is doubled without it, up to four per core, and
//! then raised by a quarter each second, up to eight per core. Beyond that only measurements count.
//!
//! If it is known what the busy workers do ([`crate::Scaler::processors`]), there is no need to measure:
//!
//! - Scripts that wait for half of their time or more, while the pool leaves a part of its processors, need a worker each.
//!   The cap is raised to the number of waiting requests, but only so far that half of what the pool leaves would be used,
//!   estimated by the use of the present workers.
//! - Scripts that wait for less than a quarter of their time keep the cores busy with one and a half workers per core. More
//!   workers would only take processors away from other programs, which a rate of finished requests shows as a success. So
//!   nothing more is tried, and a cap that is higher goes down by halves.
//!
//! Both are facts about the pool's own workers. What other programs do with the processors changes neither.
//!
//! When workers leave because they are idle, the cap follows them: what was learned from the load in the morning does
//! not apply to a different load in the evening.
//!
//! # What it cannot know
//!
//! It assumes that requests are alike on average over a generation. If they are not, it is wrong by up to a factor of
//! two in either direction, and corrects this with the next measurement.

use crate::pool::View;
use crate::{Decision, Micros, ProcessorUse};

#[derive(Debug)]
pub(crate) struct Climb {
    cores: usize,
    /// Minimum of the cap.
    base: usize,
    cap: usize,
    search: Search,
    window: Window,
    /// Fewer workers than this finished clearly less.
    needed: usize,
    /// This many workers finished no more than fewer.
    useless: usize,
    hold_for: Micros,
    /// There is time for thorough measurements.
    is_calm: bool,
    seen_at: Micros,
    seen_finished: u64,
    was_saturated: bool,
    /// When it was last seen saturated, and since when.
    saturated_at: Micros,
    saturated_since: Micros,
    /// The last report about processors, and when it came.
    processors: Option<(Micros, ProcessorUse)>,
    /// How much scripts wait, per mille, over the last reports, and when the last one came.
    waiting: Option<(Micros, u32)>,
}

/// The present search.
#[derive(Debug, Clone, Copy)]
enum Search {
    /// Are these better than fewer? `below`: the measurement of fewer, if there is one.
    Up { below: Option<Measure> },
    /// Are these fewer workers as good?
    Down { above: Measure },
    /// No search until then.
    Hold { until: Micros, this: Measure },
}

/// A number of workers and the rate that they finished.
#[derive(Debug, Clone, Copy)]
struct Measure {
    workers: usize,
    /// Requests per 1,000 s.
    rate: u64,
}

/// A measurement in progress.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    /// The number of busy workers that is measured; `None` until it is reached.
    level: Option<usize>,
    /// How many requests must finish before the measurement counts, and how many have.
    settling: u64,
    settled: u64,
    settled_for: u64,
    finished: u64,
    lasted: u64,
    unsaturated: u64,
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
            waiting: None,
        }
    }

    /// Reports how the pool used the processors recently.
    pub(crate) fn processors(&mut self, now: Micros, found: ProcessorUse) {
        self.processors = Some((now, found));
        let before = self.waiting.filter(|(at, _)| now.since(*at) <= RECENT);
        let before = before.map_or(found.waiting, |(_, before)| before);
        // One report may show the beginning of scripts that wait later.
        self.waiting = Some((now, (3 * before + found.waiting) / 4));
    }

    /// Whether it matters what workers do: a request waits, and all allowed workers are busy.
    pub(crate) fn wants_processors(&self) -> bool {
        self.was_saturated
    }

    /// Whether more workers than the cap may come soon: nothing shows that they would be useless, and scripts wait, or
    /// it was not measured since the pool is saturated.
    pub(crate) fn may_grow_freely(&self, now: Micros) -> bool {
        let searches = matches!(self.search, Search::Up { .. });
        let helps = match self.processors {
            Some((at, found)) if now.since(at) <= RECENT => found.needs_workers(),
            _ => !self.was_saturated || now.since(self.saturated_since) <= RECENT,
        };
        searches && helps
    }

    /// How much scripts wait, if it is known that they compute nearly all of their time.
    fn computes(&self, now: Micros) -> Option<u32> {
        let (at, waiting) = self.waiting?;
        (now.since(at) <= RECENT && waiting < COMPUTE).then_some(waiting)
    }

    pub(crate) fn cap(&self) -> usize {
        self.cap
    }

    /// Handles what has happened since the last call, and may move the cap. `most`: the maximum of workers. Returns
    /// when to look again if nothing happens, and why there will not be more workers, if that was found.
    pub(crate) fn look(
        &mut self,
        now: Micros,
        view: &View,
        most: usize,
    ) -> (Option<Micros>, Option<Decision>) {
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
        self.give_each_a_worker(now, view, level, most);
        let sample = now.after(PROCESSORS_EVERY);
        let next = self.next(now, most).map_or(sample, |next| next.min(sample));
        (Some(next), found)
    }

    /// Scripts wait for something else, and requests wait for workers: allows a worker for each request, as long as the
    /// pool leaves processors idle.
    fn give_each_a_worker(&mut self, now: Micros, view: &View, level: usize, most: usize) {
        let Some((at, found)) = self.processors else {
            return;
        };
        let is_new = at > self.saturated_since && now.since(at) <= RECENT;
        let searches = matches!(self.search, Search::Up { .. });
        let wait = self.waiting.is_some_and(|(_, waiting)| waiting >= WAIT);
        if !is_new || !searches || !wait || !found.needs_workers() || self.cap > level {
            return;
        }
        let each = ((1_000 - found.unused) as usize)
            .div_ceil(level.max(1))
            .max(1);
        let more = (found.unused as usize / 2 / each).max(1).min(view.queued);
        let cap = self.cap.saturating_add(more).min(most);
        // The report is used up: the next step needs a new one.
        self.processors = None;
        if cap > self.cap {
            self.search = Search::Up { below: None };
            self.go(cap);
        }
    }

    /// Only `left` workers remain, because others were idle.
    pub(crate) fn shrunk(&mut self, left: usize) {
        let cap = left.max(self.base);
        if cap < self.cap {
            self.forget();
            self.go(cap);
        }
    }

    fn decide(&mut self, now: Micros, level: usize, most: usize) -> Option<Decision> {
        let Some(rate) = self.window.rate(self.sample(level)) else {
            self.decide_unmeasured(now, level, most);
            return None;
        };
        let this = Measure {
            workers: level,
            rate,
        };
        if let Some(waiting) = self.computes(now) {
            match self.search {
                Search::Hold { this: then, .. } if then.is_another_load(&this) => {
                    // The reports may be about the former load.
                    self.forget();
                    self.waiting = None;
                    self.window = Window::default();
                    return None;
                }
                Search::Hold { until, .. } if now < until => {}
                _ => return self.settle_for_few(now, this, waiting),
            }
        }
        // A clear result needs no more requests, other results need twice as many.
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
                Some(Decision::GrowthWasUseless {
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

    /// Too few requests have finished for a rate.
    fn decide_unmeasured(&mut self, now: Micros, level: usize, most: usize) {
        let waited = self.window.settled_for + self.window.lasted;
        match self.search {
            Search::Up { below: None } => {
                if 2 * self.window.progress() < self.window_size(level) {
                    self.grow_blindly(now, waited, most);
                }
            }
            // If requests are this slow, the load is not the one that was measured.
            Search::Up { below: Some(other) } | Search::Hold { this: other, .. } => {
                if waited >= 2 * other.time_for(self.window_size(level)) {
                    self.forget();
                    self.grow_blindly(now, waited, most);
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
    }

    /// Scripts compute: goes down to as many workers as keep the cores busy, by halves, and stays there for a while.
    fn settle_for_few(&mut self, now: Micros, this: Measure, waiting: u32) -> Option<Decision> {
        let fewer = (this.workers / 2).max(self.base);
        if is_much_more(this.workers, fewer) {
            self.search = Search::Down { above: this };
            self.go(fewer);
            return None;
        }
        self.hold(now, this);
        Some(Decision::ScriptsCompute {
            workers: this.workers,
            waiting,
        })
    }

    /// Nothing could be measured while a request waited for this long.
    fn grow_blindly(&mut self, now: Micros, waited: u64, most: usize) {
        if self.computes(now).is_some() {
            return;
        }
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

    /// Number of requests from reaching a level until its rate is known.
    fn window_size(&self, level: usize) -> u64 {
        level as u64 + self.sample(level)
    }

    /// Number of requests for a rate: whole generations, because the requests of a generation may finish at the same
    /// time.
    fn sample(&self, level: usize) -> u64 {
        let level = (level as u64).max(1);
        let enough = if self.is_calm { 4 * SAMPLE } else { SAMPLE };
        level * enough.div_ceil(level).max(2)
    }

    /// When a decision may be made although nothing happens.
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
    /// At least a third of the gain of workers that only wait: that is useful.
    fn gains_little_over(&self, fewer: &Measure) -> bool {
        let (rate, workers) = (u128::from(self.rate), self.workers as u128);
        let (less, fewer) = (u128::from(fewer.rate), fewer.workers as u128);
        3 * rate.saturating_sub(less) * fewer < workers.saturating_sub(fewer) * less
    }

    /// At least two thirds of that gain: that is clear.
    fn gains_much_over(&self, fewer: &Measure) -> bool {
        let (rate, workers) = (u128::from(self.rate), self.workers as u128);
        let (less, fewer) = (u128::from(fewer.rate), fewer.workers as u128);
        3 * rate.saturating_sub(less) * fewer >= 2 * workers.saturating_sub(fewer) * less
    }

    fn is_another_load(&self, now: &Measure) -> bool {
        now.rate < self.rate / 2 || now.rate / 2 > self.rate
    }

    /// The time in µs in which this rate finishes that many requests.
    fn time_for(&self, requests: u64) -> u64 {
        (requests.saturating_mul(1_000_000_000) / self.rate.max(1)).max(SHORTEST.0)
    }
}

impl Window {
    /// Notes time that has passed, and the requests that finished in it.
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

    /// Requests per 1,000 s, once enough have finished.
    fn rate(&self, sample: u64) -> Option<u64> {
        let enough = self.finished >= sample && self.lasted >= SHORTEST.0;
        enough.then(|| {
            let rate = u128::from(self.finished) * 1_000_000_000 / u128::from(self.lasted);
            u64::try_from(rate).unwrap_or(u64::MAX)
        })
    }
}

impl ProcessorUse {
    /// Scripts wait for something else than processors, so that each needs a worker.
    fn needs_workers(&self) -> bool {
        self.unused >= ENOUGH_UNUSED && self.waiting >= WAIT
    }
}

/// If a pool leaves less than this of its processors, per mille, measuring has to show that more workers are useful.
const ENOUGH_UNUSED: u32 = 200;

/// From this part of their time on, per mille, scripts wait.
const WAIT: u32 = 500;

/// Up to this part of their time, per mille, scripts compute. If they wait for a third of it, one and a half workers per
/// core just keep the cores busy.
const COMPUTE: u32 = 250;

/// How long a report about processors is used.
const RECENT: Micros = Micros::from_secs(1);

/// How often a report is requested while the pool is saturated.
const PROCESSORS_EVERY: Micros = Micros::from_millis(100);

/// The effect of a smaller difference cannot be measured, and it costs little.
fn is_much_more(more: usize, than: usize) -> bool {
    more >= than + than.div_ceil(2)
}

/// Minimum number of requests for a rate. The error is about a fifth.
const SAMPLE: u64 = 32;

/// Minimum time for a rate, so that a short disturbance of the machine does not decide about quick scripts.
const SHORTEST: Micros = Micros::from_millis(100);

/// How long a request waits before the cap is doubled without measuring.
const BLIND: Micros = Micros::from_millis(150);

/// The same with four workers or more per core.
const BLIND_LATER: Micros = Micros::from_secs(1);

/// After this time without saturation, earlier rates are not compared.
const STALE: Micros = Micros::from_secs(60);

const FIRST_HOLD: Micros = Micros::from_secs(10);
const LONGEST_HOLD: Micros = Micros::from_secs(300);
