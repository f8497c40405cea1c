//! Limits how fast workers are started: pauses after workers that die early, and the count of crashes that triggers a restart of
//! everything.

use alloc::collections::VecDeque;

use crate::Micros;

/// Growing pauses while workers die before they got a request, or cannot be started. Workers that die during a
/// request are not counted here: the request is the cause, and other requests wait for a replacement.
///
/// Deaths are counted in rounds. A round consists of all workers that were started before the first of them died. The
/// first round is replaced at once, because one death, or many at the same time, may be an accident. If a replacement
/// dies early, too, there is a pause, and then a single worker is tried; each failure doubles the pause. The pauses
/// end when a worker has served a request or lived for [`YOUNG`], or, if starting had failed, when a worker has
/// started.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// Number of failed rounds in a row.
    failures: u32,
    first_failure: Micros,
    last_failure: Micros,
    /// The last kind of failure.
    failure: Failed,
    pause: Micros,
    resume_at: Micros,
    /// When the first worker since the last failure started.
    came_at: Option<Micros>,
    /// Number of workers that had ever served when the last round failed; `None` until it is known.
    proven: Option<u64>,
}

/// The kind of failure, which decides how long pauses may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// A worker could not be started. Another try is cheap, and may succeed when other processes have ended.
    Start,
    /// A worker died before it got a request: its program does not work.
    Idle,
}

/// How many workers may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowance {
    All,
    /// One, if no other one is starting.
    One,
    /// None, until the one that was tried has served, lived long enough, or died.
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

    /// A worker that was started at `born` failed. Returns the pause if it is the first one.
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

    /// `proven` workers have ever served. If a reported series of failures is over, returns the number of failed
    /// rounds and its duration.
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

    /// When the state changes, if nothing happens before.
    pub(crate) fn next(&self, now: Micros) -> Option<Micros> {
        let came = self.came_at.filter(|_| self.failures > 0);
        let grown = came.map(|came| came.after(YOUNG));
        grown.or(self.hopeless_until(now))
    }

    /// The end of the pause; `None` if there is no pause.
    pub(crate) fn paused_until(&self, now: Micros) -> Option<Micros> {
        (now < self.resume_at).then_some(self.resume_at)
    }

    /// Number of failed rounds in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether the last started worker failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    pub(crate) fn is_trying(&self) -> bool {
        self.failures > 1
    }

    /// Workers die so persistently that requests should not wait for one, until this time; the next request after it
    /// tries the next worker.
    pub(crate) fn hopeless_until(&self, now: Micros) -> Option<Micros> {
        self.paused_until(now).filter(|_| self.pause >= HOPELESS)
    }
}

/// Counts crashes that trigger a restart of everything, like PHP-FPM's `emergency_restart_threshold` and
/// `emergency_restart_interval`: this many workers ended by SIGSEGV or SIGBUS within the interval.
#[derive(Debug)]
pub struct Emergency {
    threshold: u32,
    interval: Micros,
    crashes: VecDeque<Micros>,
}

impl Emergency {
    /// A threshold or an interval of 0 disables it.
    pub const fn new(threshold: u32, interval: Micros) -> Self {
        Self {
            threshold,
            interval,
            crashes: VecDeque::new(),
        }
    }

    /// A worker ended by SIGSEGV or SIGBUS. True: there were `threshold` crashes within `interval`; the count starts
    /// again.
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

/// A worker that has lived this long does not count as early death, even without a request.
pub(crate) const YOUNG: Micros = Micros::from_secs(10);

const FIRST_PAUSE: Micros = Micros::from_millis(100);

const fn longest_pause(failure: Failed) -> Micros {
    match failure {
        Failed::Idle => Micros::from_secs(30),
        Failed::Start => Micros::from_millis(1_600),
    }
}

/// During pauses of this length or longer, requests do not wait for a worker.
const HOPELESS: Micros = Micros::from_secs(1);

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

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
