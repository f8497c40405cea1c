//! Detects whether the queue grows because more requests arrive than are served, for longer than a burst and by more
//! than chance.
//!
//! Clients that send the next request after each answer fill the queue once, and then its length stays the same. A
//! burst fills it at once, and then it becomes shorter. If more requests arrive than can be served, it keeps growing.
//! So a time span is split into two halves: the queue must have grown in **both**, and in each by more than could
//! happen by chance if as many arrived as were served. The difference between random arrivals and departures is about
//! the square root of their sum, and more if the durations of requests vary much. Strong overload is detected after 2
//! s, weak overload after 4 or 8.
//!
//! The queue also grows if workers are stuck or are still starting. This says nothing about the pool's capacity
//! afterwards, so it is not counted.

use crate::Micros;
use crate::estimate::Spread;

/// The queue's length over the last seconds.
#[derive(Debug)]
pub(crate) struct Growth {
    seen: [Snapshot; SIGHTS],
    /// Index of the next sample.
    next: usize,
}

/// The pool at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Snapshot {
    pub(crate) at: Micros,
    /// Waiting requests.
    pub(crate) waiting: u64,
    /// Total number of requests that workers have ended, in any way.
    pub(crate) ended: u64,
    /// Workers that serve the waiting requests.
    pub(crate) workers: usize,
    /// Total busy time of all workers, µs, modulo 2⁶⁴.
    pub(crate) busy: u64,
}

impl Growth {
    pub(crate) fn new() -> Self {
        Self {
            seen: [Snapshot::default(); SIGHTS],
            next: 0,
        }
    }

    /// Takes a sample of the pool. Called a few times per second.
    pub(crate) fn saw(&mut self, sight: Snapshot) {
        let last = self.seen[(self.next + SIGHTS - 1) % SIGHTS];
        if sight.at.since(last.at) >= SPACING {
            self.seen[self.next] = sight;
            self.next = (self.next + 1) % SIGHTS;
        }
    }

    /// Whether the queue has been growing for seconds until now.
    pub(crate) fn is_lasting(&self, now: &Snapshot, service: Micros, spread: &Spread) -> bool {
        STRETCHES.into_iter().any(|stretch| {
            let (Some(start), Some(middle)) = (
                self.ago(now.at, stretch),
                self.ago(now.at, Micros(stretch.0 / 2)),
            ) else {
                return false;
            };
            let ended = now.ended - start.ended;
            let are_at_work = ended.saturating_mul(service.0).saturating_mul(2)
                >= now.busy.wrapping_sub(start.busy);
            let are_all_there = now.workers <= start.workers.min(middle.workers);
            are_all_there && are_at_work && grew(start, middle, spread) && grew(middle, now, spread)
        })
    }

    /// Whether clearly more requests wait than two seconds ago.
    pub(crate) fn is_longer(&self, now: Micros, waiting: usize, workers: usize) -> bool {
        self.ago(now, STRETCHES[0]).is_some_and(|before| {
            let about_as_many = before.waiting + before.waiting / 16 + workers as u64;
            waiting as u64 > about_as_many
        })
    }

    /// The sample of `stretch` before `now`, or a little earlier.
    fn ago(&self, now: Micros, stretch: Micros) -> Option<&Snapshot> {
        let until = Micros(now.0.checked_sub(stretch.0)?);
        let before = self.seen.iter().filter(|sight| sight.at <= until);
        let last = before.max_by_key(|sight| sight.at)?;
        (until.since(last.at) <= SLACK).then_some(last)
    }
}

/// Whether the queue became longer by more than chance.
fn grew(from: &Snapshot, to: &Snapshot, spread: &Spread) -> bool {
    let more = to.waiting.saturating_sub(from.waiting);
    let ended = to.ended - from.ended;
    let variance = (more + ended).saturating_add(spread.variance_of(ended));
    more.saturating_mul(more) > variance.saturating_mul(CHANCE)
}

/// The lengths of each half.
const STRETCHES: [Micros; 3] = [
    Micros::from_secs(2),
    Micros::from_secs(4),
    Micros::from_secs(8),
];

/// How much longer a half may be: two windows of overload at their longest.
const SLACK: Micros = Micros::from_millis(800);

/// Minimum time between two samples.
const SPACING: Micros = Micros::from_millis(190);

/// Enough for the longest span and its tolerance.
const SIGHTS: usize = 48;

/// The square of the number of standard deviations by which each half must have grown.
const CHANCE: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Four workers and 25 ms: samples every 200 ms for this many seconds; how many wait, and how many end per
    /// second.
    fn grows(
        seconds: u64,
        waiting: impl Fn(u64) -> u64,
        ended: u64,
        workers: impl Fn(u64) -> usize,
    ) -> bool {
        let mut growth = Growth::new();
        (0..=seconds * 5).any(|look| {
            let sight = Snapshot {
                at: Micros::from_millis(7_000 + look * 200),
                waiting: waiting(look),
                ended: look * ended / 5,
                workers: workers(look),
                busy: look * 4 * 200_000,
            };
            let grows = growth.is_lasting(&sight, Micros(25_000), &Spread::default());
            growth.saw(sight);
            grows
        })
    }

    #[test]
    fn what_grows_on_and_on_is_seen_and_a_burst_is_not() {
        let four = |_| 4;
        assert!(grows(3, |look| 16 * look, 160, four), "1.5 times, in 3 s");
        assert!(!grows(3, |look| 6 * look, 160, four), "1.2 times");
        assert!(grows(9, |look| 6 * look, 160, four), "in 9 s");
        assert!(!grows(60, |look| look.min(1), 160, four), "next to nobody");
        assert!(
            !grows(60, |look| 300.min(60 * look), 160, four),
            "300 in 1 s"
        );
        assert!(!grows(60, |look| 1_000 - look.min(1_000), 160, four));
    }

    #[test]
    fn workers_that_stand_still_and_those_to_come_say_nothing() {
        let grown = |look| 16 * look;
        assert!(!grows(9, grown, 0, |_| 4), "stuck");
        assert!(!grows(9, grown, 60, |_| 4), "nearly");
        assert!(!grows(9, grown, 160, |look| 4 + look as usize / 5));
        assert!(grows(9, grown, 160, |look| 8 - look.min(4) as usize));
    }
}
