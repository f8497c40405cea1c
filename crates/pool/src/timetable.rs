//! When the times of a schedule come, on a clock that may jump: somebody sets it, summer time begins, weir was not running.
//!
//! The rules are those of Debian's cron (cron(8)), with one more: a missed time is made up whatever the schedule is, but once, however
//! many times were missed.
//!
//! | the clock | times of the day (`30 2 * * *`) | intervals (`*/5 * * * *`, `0 * * * *`) |
//! |---|---|---|
//! | runs | each minute counts once | the same |
//! | jumps ahead by less than [`REACH`] | one run for all times that were jumped over | the same |
//! | jumps back by less than [`REACH`] | nothing until it is where it was | nothing for [`STEP`] at most |
//! | jumps farther | nothing is made up | the same |
//!
//! Times of the day are counted on the local clock, so that summer time is a jump for them. Intervals are counted on the clock without
//! time zone: an hour is an hour.

/// How a schedule counts time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Times of the day, in minutes of the local clock.
    TimesOfDay,
    /// Intervals, in minutes of the clock without time zone.
    Intervals,
}

/// What of a schedule has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timetable {
    /// The last minute that was looked at. After a jump back it stays ahead of the clock.
    last: i64,
}

/// A run is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The minute of its time; of several times the last.
    pub minute: i64,
    /// The number of times that this run stands for: more than 1 if some were missed.
    pub times: u32,
}

impl Timetable {
    /// Begins in this minute. The first time that counts is in the next one.
    pub const fn new(now: i64) -> Self {
        Self { last: now }
    }

    /// The minute with which another timetable of the same schedule continues ([`new`](Self::new)).
    pub const fn last(&self) -> i64 {
        self.last
    }

    /// Looks at the clock, as often as the caller likes. `has`: whether the schedule has a minute.
    pub fn look(&mut self, now: i64, pace: Pace, has: impl Fn(i64) -> bool) -> Option<Due> {
        let held = match pace {
            Pace::TimesOfDay => REACH,
            Pace::Intervals => STEP,
        };
        let first = match now.saturating_sub(self.last) {
            1..=REACH => self.last + 1,
            ahead if ahead <= 0 && ahead >= -held => return None,
            _ => now,
        };
        self.last = now;
        let times = (first..=now).filter(|minute| has(*minute));
        times.fold(None, |due: Option<Due>, minute| {
            let times = due.map_or(0, |due| due.times) + 1;
            Some(Due { minute, times })
        })
    }
}

/// A jump of the clock that is longer than this was no mistake of some hours: nothing is made up, nothing held back. Minutes.
pub const REACH: i64 = 180;

/// A clock that was corrected by less than this has not really gone back. Minutes.
const STEP: i64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks once a minute at these clocks; returns for each run the minute and the number of times.
    fn runs(pace: Pace, clock: &[core::ops::RangeInclusive<i64>], every: i64) -> Vec<(i64, u32)> {
        let mut table = Timetable::new(*clock[0].start());
        let minutes = clock.iter().cloned().flatten();
        minutes
            .filter_map(|now| table.look(now, pace, |minute| minute % every == 0))
            .map(|due| (due.minute, due.times))
            .collect()
    }

    use Pace::{Intervals, TimesOfDay};
    use alloc::vec::Vec;

    #[test]
    fn the_minute_of_the_start_does_not_count_and_each_later_one_once() {
        assert_eq!(
            runs(TimesOfDay, &[60..=60, 60..=180], 60),
            [(120, 1), (180, 1)]
        );
        let mut table = Timetable::new(119);
        let mut look = |now| table.look(now, Intervals, |minute| minute == 120);
        assert!(look(120).is_some() && look(120).is_none() && look(121).is_none());
    }

    #[test]
    fn missed_times_are_made_up_by_one_run() {
        for pace in [TimesOfDay, Intervals] {
            assert_eq!(runs(pace, &[61..=70, 245..=250], 60), [(240, 3)]);
            assert_eq!(runs(pace, &[61..=70, 251..=260], 60), [], "too far");
            assert_eq!(runs(pace, &[61..=70, 300..=300], 60), [(300, 1)]);
        }
    }

    #[test]
    fn a_clock_that_goes_back_repeats_intervals_but_no_times_of_the_day() {
        let back = [100..=121, 60..=180];
        assert_eq!(runs(TimesOfDay, &back, 60), [(120, 1), (180, 1)]);
        assert_eq!(
            runs(Intervals, &back, 60),
            [(120, 1), (60, 1), (120, 1), (180, 1)]
        );
    }

    #[test]
    fn a_small_correction_repeats_nothing() {
        for pace in [TimesOfDay, Intervals] {
            assert_eq!(runs(pace, &[100..=121, 117..=130], 60), [(120, 1)]);
        }
    }

    #[test]
    fn a_clock_that_was_years_away_is_simply_believed() {
        for pace in [TimesOfDay, Intervals] {
            assert_eq!(runs(pace, &[400..=410, 0..=0], 60), [(0, 1)]);
            assert_eq!(
                runs(pace, &[1_000_000..=1_000_000, 0..=70], 60),
                [(0, 1), (60, 1)]
            );
            assert_eq!(
                runs(pace, &[i64::MIN..=i64::MIN, i64::MAX..=i64::MAX], 60),
                []
            );
        }
    }
}
