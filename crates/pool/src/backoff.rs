//! How fast workers may be started: the spawn rate, the pause after workers that die young, and the count of crashes
//! that calls for a restart of everything.

use alloc::collections::VecDeque;

use crate::Micros;

/// A token bucket: `rate` at once, and `rate` a second.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: u64,
    /// Millionths of a start.
    level: u64,
    filled_at: Micros,
}

impl Bucket {
    /// Full. A rate of 0 is taken for 1.
    pub(crate) fn new(rate: usize) -> Self {
        let rate = Self::bounded(rate);
        Self {
            rate,
            level: rate * WHOLE,
            filled_at: Micros::ZERO,
        }
    }

    /// What is in the bucket stays, as far as it fits.
    pub(crate) fn set_rate(&mut self, now: Micros, rate: usize) {
        self.fill(now);
        self.rate = Self::bounded(rate);
        self.level = self.level.min(self.rate * WHOLE);
    }

    /// Takes `wanted` out, or as many as are there.
    pub(crate) fn take(&mut self, now: Micros, wanted: usize) -> usize {
        self.fill(now);
        let taken = (self.level / WHOLE).min(wanted as u64);
        self.level -= taken * WHOLE;
        taken as usize
    }

    /// When the next start will be there, if none is taken until then.
    pub(crate) fn next(&self, now: Micros) -> Micros {
        let missing = WHOLE.saturating_sub(self.level);
        now.max(self.filled_at)
            .after(Micros(missing.div_ceil(self.rate)))
    }

    fn fill(&mut self, now: Micros) {
        let span = now.since(self.filled_at).0;
        let level = span.saturating_mul(self.rate).saturating_add(self.level);
        self.level = level.min(self.rate * WHOLE);
        self.filled_at = self.filled_at.max(now);
    }

    fn bounded(rate: usize) -> u64 {
        (rate as u64).clamp(1, 1 << 20)
    }
}

/// Growing pauses while workers die before they were given anything to do, or cannot be started. A worker that dies
/// under a request is no matter of this: that is the request's doing, and others wait for its successor.
///
/// Deaths are counted by rounds: one round is all workers that were started before the first of them died. The first
/// round is replaced at once, since one death says nothing, and many at once say no more than one. If one of the
/// replacements dies young too, there is a pause, and then a single worker is tried; each that fails doubles the pause.
/// It is over when a worker has served, or has lived for [`YOUNG`]; or has come up, where it was that which failed.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// Rounds that failed, one after another.
    failures: u32,
    first_failure: Micros,
    last_failure: Micros,
    /// What failed last.
    failure: Failed,
    pause: Micros,
    resume_at: Micros,
    /// The first worker that came up since the last failure did so then.
    came_at: Option<Micros>,
    /// Workers that had ever served when the last round failed; none until it is known.
    proven: Option<u64>,
}

/// What failed, which says how long the pauses may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// A worker could not be started. To try costs next to nothing, and may succeed as soon as others have ended.
    Start,
    /// A worker died before it was given a request: its program is broken.
    Idle,
}

/// What may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowance {
    All,
    /// One, if no other is starting.
    One,
    /// None before the one that was tried has shown what it is good for.
    Nothing,
    NothingUntil(Micros),
}

impl Backoff {
    pub(crate) const fn new() -> Self {
        Self {
            failures: 0,
            first_failure: Micros::ZERO,
            last_failure: Micros::ZERO,
            failure: Failed::Idle,
            pause: Micros::ZERO,
            resume_at: Micros::ZERO,
            came_at: None,
            proven: None,
        }
    }

    /// A worker that was started at `born` failed. Tells the pause if it is the first one.
    pub(crate) fn failed(&mut self, now: Micros, born: Micros, failure: Failed) -> Option<Micros> {
        if self.failures > 0 && born < self.last_failure {
            return None;
        }
        if self.failures == 0 {
            self.first_failure = now;
        }
        self.failures = self.failures.saturating_add(1);
        self.last_failure = now;
        self.failure = failure;
        self.came_at = None;
        self.proven = None;
        if self.failures > 1 {
            let doubled = Micros(2 * self.pause.0).max(FIRST_PAUSE);
            self.pause = doubled.min(longest_pause(failure));
        }
        self.resume_at = now.after(self.pause);
        (self.failures == 2).then_some(self.pause)
    }

    pub(crate) fn came(&mut self, now: Micros) {
        self.came_at.get_or_insert(now);
    }

    /// So many workers have ever served. Tells how many rounds failed and for how long if it was told and is over.
    pub(crate) fn look(&mut self, now: Micros, proven: u64) -> Option<(u32, Micros)> {
        if self.failures == 0 {
            return None;
        }
        let before = *self.proven.get_or_insert(proven);
        let is_good = self
            .came_at
            .is_some_and(|came| self.failure == Failed::Start || now.since(came) >= YOUNG);
        if proven <= before && !is_good {
            return None;
        }
        let (failures, first) = (self.failures, self.first_failure);
        let was_trying = self.is_trying();
        *self = Self::new();
        was_trying.then_some((failures, now.since(first)))
    }

    pub(crate) fn allowance(&self, now: Micros) -> Allowance {
        if now < self.resume_at {
            Allowance::NothingUntil(self.resume_at)
        } else if self.is_trying() && self.came_at.is_some() {
            Allowance::Nothing
        } else if self.is_trying() {
            Allowance::One
        } else {
            Allowance::All
        }
    }

    /// When something changes if nothing happens until then.
    pub(crate) fn next(&self, now: Micros) -> Option<Micros> {
        let came = self.came_at.filter(|_| self.failures > 0);
        let grown = came.map(|came| came.after(YOUNG));
        grown.or(self.hopeless_until(now))
    }

    /// The end of the pause; none while there is none.
    pub(crate) fn paused_until(&self, now: Micros) -> Option<Micros> {
        (now < self.resume_at).then_some(self.resume_at)
    }

    /// The last worker that was started did not live.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    pub(crate) fn is_trying(&self) -> bool {
        self.failures > 1
    }

    /// Workers die so persistently that nobody should wait for one, until then: the next request is what the next
    /// worker is tried with.
    pub(crate) fn hopeless_until(&self, now: Micros) -> Option<Micros> {
        self.paused_until(now).filter(|_| self.pause >= HOPELESS)
    }
}

/// Crashes that call for a restart of everything, as PHP-FPM's `emergency_restart_threshold` and
/// `emergency_restart_interval`: so many workers ended by SIGSEGV or SIGBUS within the interval.
#[derive(Debug)]
pub struct Emergency {
    threshold: u32,
    interval: Micros,
    crashes: VecDeque<Micros>,
}

impl Emergency {
    /// A threshold or an interval of 0: never.
    pub const fn new(threshold: u32, interval: Micros) -> Self {
        Self {
            threshold,
            interval,
            crashes: VecDeque::new(),
        }
    }

    /// A worker ended by SIGSEGV or SIGBUS. True: that makes `threshold` of them within `interval`; the count begins
    /// anew.
    pub fn crashed(&mut self, now: Micros) -> bool {
        if self.threshold == 0 || self.interval == Micros::ZERO {
            return false;
        }
        while let Some(first) = self.crashes.front()
            && now.since(*first) > self.interval
        {
            self.crashes.pop_front();
        }
        self.crashes.push_back(now);
        let reached = self.crashes.len() as u64 >= u64::from(self.threshold);
        if reached {
            self.crashes.clear();
        }
        reached
    }
}

/// A worker that has lived for so long is not young any more, even if it had nothing to do.
pub(crate) const YOUNG: Micros = Micros::from_secs(10);

const FIRST_PAUSE: Micros = Micros::from_millis(100);

const fn longest_pause(failure: Failed) -> Micros {
    match failure {
        Failed::Idle => Micros::from_secs(30),
        Failed::Start => Micros::from_millis(1_600),
    }
}

/// While pauses are as long as this, requests are not made to wait for a worker.
const HOPELESS: Micros = Micros::from_secs(1);

const WHOLE: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_bucket_gives_its_size_at_once_and_then_so_many_a_second() {
        let mut bucket = Bucket::new(32);
        assert_eq!(bucket.take(Micros(0), 40), 32);
        assert_eq!(bucket.take(Micros(0), 40), 0);
        let next = bucket.next(Micros(0));
        assert_eq!(next, Micros(31_250));
        assert_eq!(bucket.take(Micros(31_249), 40), 0);
        assert_eq!(bucket.take(next, 40), 1);
        assert_eq!(bucket.take(Micros::from_secs(60), 1_000), 32);
    }

    #[test]
    fn pauses_double_from_100_ms_to_30_s() {
        let mut backoff = Backoff::new();
        let mut now = Micros::from_secs(1);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let born = now;
            now = now.after(Micros(1_000));
            backoff.failed(now, born, Failed::Idle);
            let until = match backoff.allowance(now) {
                Allowance::NothingUntil(until) => until,
                _ => now,
            };
            pauses.push(until.since(now).0 / 1_000);
            now = until;
        }
        let expected = [
            0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000,
        ];
        assert_eq!(pauses, expected);
    }

    #[test]
    fn deaths_at_the_same_time_are_one_round() {
        let mut backoff = Backoff::new();
        for moment in 100..120 {
            assert_eq!(
                backoff.failed(Micros(moment), Micros(10), Failed::Idle),
                None
            );
        }
        assert_eq!(backoff.allowance(Micros(120)), Allowance::All);
        let pause = backoff.failed(Micros(200), Micros(150), Failed::Idle);
        assert_eq!(pause, Some(Micros::from_millis(100)), "told once");
        let later = Micros(100_500);
        assert_eq!(backoff.failed(later, Micros(100_300), Failed::Idle), None);
    }

    #[test]
    fn an_emergency_is_so_many_crashes_within_the_interval() {
        let mut emergency = Emergency::new(3, Micros::from_secs(60));
        let crashes = [0, 50, 100, 110, 111, 112, 113].map(Micros::from_secs);
        let told = crashes.map(|now| emergency.crashed(now));
        assert_eq!(told, [false, false, false, true, false, false, true]);
        assert!(!Emergency::new(0, Micros::from_secs(1)).crashed(Micros(0)));
        assert!(!Emergency::new(1, Micros::ZERO).crashed(Micros(0)));
        assert!(Emergency::new(1, Micros(1)).crashed(Micros(0)));
    }
}
