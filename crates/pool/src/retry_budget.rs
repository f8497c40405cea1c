//! Limits how many calls are retried, in proportion to the calls that are made.

use crate::{Failure, Micros, Retry, may_retry};

/// A token bucket of retries: each call adds a fraction of a retry, each retry takes one. So an origin that fails for
/// long gets only a certain percentage of additional calls, not a multiple.
///
/// In addition there are [`RetryBudget::FLOOR`] retries at first, and, if fewer are left, one more every
/// [`RetryBudget::REFILL`] up to that number: for an origin that is rarely called. What calls add is kept up to
/// `most`.
#[derive(Debug)]
pub struct RetryBudget {
    percent: u32,
    /// Hundredths of a retry.
    level: u64,
    most: u64,
    /// Until when the refill over time was added.
    filled_at: Micros,
    calls: u64,
    retries: u64,
    refused: u64,
}

impl RetryBudget {
    /// Retries that are available at first, and that the refill restores.
    pub const FLOOR: u32 = 10;

    /// Time after which one is restored.
    pub const REFILL: Micros = Micros::from_secs(10);

    /// `percent`: this percentage of calls may be retried; 0: none at all. `most`: maximum of saved retries, for
    /// example the number of calls that one event can end at once; at least [`FLOOR`](Self::FLOOR).
    pub fn new(percent: u32, most: usize) -> Self {
        let floor = u64::from(Self::FLOOR) * WHOLE;
        Self {
            percent,
            level: floor,
            most: (most as u64).saturating_mul(WHOLE).max(floor),
            filled_at: Micros::ZERO,
            calls: 0,
            retries: 0,
            refused: 0,
        }
    }

    /// A call is made for the first time.
    pub fn call(&mut self, now: Micros) {
        self.fill(now);
        self.calls += 1;
        let part = u64::from(self.percent);
        self.level = self.level.saturating_add(part).min(self.most);
    }

    /// Whether a failed call may be retried: [`may_retry`] allows it and there is a retry left, which is taken.
    pub fn may_retry(&mut self, now: Micros, failure: &Failure) -> Retry {
        if may_retry(failure) == Retry::GiveUp {
            return Retry::GiveUp;
        }
        match self.take(now) {
            true => Retry::Again,
            false => Retry::GiveUp,
        }
    }

    /// Takes a retry, if there is one.
    pub fn take(&mut self, now: Micros) -> bool {
        self.fill(now);
        if self.percent == 0 || self.level < WHOLE {
            self.refused += 1;
            return false;
        }
        self.level -= WHOLE;
        self.retries += 1;
        true
    }

    /// Number of retries left.
    pub fn left(&self) -> u64 {
        match self.percent {
            0 => 0,
            _ => self.level / WHOLE,
        }
    }

    /// Number of calls, without retries.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Number of retries.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Number of retries that were refused because none was left.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn fill(&mut self, now: Micros) {
        let floor = u64::from(Self::FLOOR) * WHOLE;
        let span = now.since(self.filled_at).0;
        let whole = span / Self::REFILL.0;
        if self.level >= floor {
            self.filled_at = self.filled_at.max(now);
        } else if whole > 0 {
            let came = whole.saturating_mul(WHOLE);
            self.level = self.level.saturating_add(came).min(floor);
            self.filled_at = Micros(self.filled_at.0 + whole * Self::REFILL.0);
        }
    }
}

/// One retry, in hundredths.
const WHOLE: u64 = 100;
