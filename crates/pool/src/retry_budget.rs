//! How many calls are tried again, in proportion to those that are made.

use crate::{Failure, Micros, Retry, may_retry};

/// A token bucket of retries: each call puts a part of one in, each retry takes one out. So an origin that fails for long is
/// called by so many percent more often, and not by as many times as each call might be tried.
///
/// Beside that there are [`RetryBudget::FLOOR`] retries at first, and, when fewer are left, one more every
/// [`RetryBudget::REFILL`] up to that: for an origin that is seldom called. What calls put in is kept up to `most`.
#[derive(Debug)]
pub struct RetryBudget {
    percent: u32,
    /// Hundredths of a retry.
    level: u64,
    most: u64,
    /// Up to when time has put in what it may.
    filled_at: Micros,
    calls: u64,
    retries: u64,
    refused: u64,
}

impl RetryBudget {
    /// Retries that are there at first, and that time brings back.
    pub const FLOOR: u32 = 10;

    /// Time in which one comes back.
    pub const REFILL: Micros = Micros::from_secs(10);

    /// `percent`: of the calls so many may be tried again; 0: none at all. `most`: retries that are kept for bad times, such
    /// as the number of calls that one event can end at once; [`FLOOR`](Self::FLOOR) at least.
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

    /// A call is made, for the first time.
    pub fn call(&mut self, now: Micros) {
        self.fill(now);
        self.calls += 1;
        let part = u64::from(self.percent);
        self.level = self.level.saturating_add(part).min(self.most);
    }

    /// May a call that failed be tried again? Yes, if [`may_retry`] says so of it and there is a retry left, which is taken.
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

    /// Retries that are left.
    pub fn left(&self) -> u64 {
        match self.percent {
            0 => 0,
            _ => self.level / WHOLE,
        }
    }

    /// Calls that were made, without those that were tried again.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Retries that were taken.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Retries that there was nothing left for.
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

/// A retry, in hundredths.
const WHOLE: u64 = 100;
