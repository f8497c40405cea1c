//! The times of a schedule, by the machine's clock and a time zone.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};
use weir_config::Schedule;
use weir_pool::{Due, Pace, REACH, Timetable};

/// The machine's clock.
#[derive(Debug)]
pub(super) struct WallClock;

impl WallClock {
    /// Seconds since 1970.
    pub(super) fn now(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
        }
    }

    /// How long the present minute still lasts.
    pub(super) fn until_minute(&self) -> Duration {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default();
        let of_minute = Duration::from_secs(since.as_secs() % 60);
        Duration::from_secs(60) - of_minute - Duration::from_nanos(since.subsec_nanos().into())
    }
}

/// A time zone.
#[derive(Debug, Clone)]
pub(crate) struct Zone(TimeZone);

impl Zone {
    /// The zone of this name. `None`: the machine's.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn named(name: Option<&str>) -> Result<Self, String> {
        match name {
            None => Ok(Self(TimeZone::system())),
            Some(name) => TimeZone::get(name)
                .map(Self)
                .map_err(|_| format!("{name:?} is not a time zone of this machine")),
        }
    }

    /// The local minute of a minute since 1970.
    fn local(&self, minute: i64) -> i64 {
        let at = minute.checked_mul(60).map(Timestamp::from_second);
        match at {
            Some(Ok(at)) => minute + i64::from(self.0.to_offset(at).seconds()).div_euclid(60),
            // Beyond the calendar.
            _ => minute,
        }
    }

    /// The minute since 1970 of a local minute after `now`. A local minute that the clock leaves out is the first one after the gap.
    fn global(&self, local: i64, now: i64) -> i64 {
        let offset = |minute: i64| self.local(minute) - minute;
        let first = local - offset(now);
        let second = local - offset(first);
        let exact = [first, second].map(|minute| self.local(minute) == local && minute > now);
        match exact {
            [true, _] => first,
            [_, true] => second,
            // Between them the clock jumps.
            _ => (first.min(second)..=first.max(second))
                .find(|minute| self.local(*minute) >= local)
                .unwrap_or(first)
                .max(now + 1),
        }
    }
}

/// The schedule of a program, and what of it has come.
#[derive(Debug)]
pub(super) struct Times {
    schedule: Schedule,
    /// The zone as it is written.
    zone_name: Option<String>,
    zone: Zone,
    table: Timetable,
    /// It goes on where it was left.
    pub(super) is_continued: bool,
}

/// How far a schedule was followed: what a restart, an upgrade or a reload continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Last {
    /// The schedule and its zone as they are written. Another schedule begins anew.
    schedule: String,
    zone: Option<String>,
    /// The last minute.
    minute: i64,
    /// A time has come, and no process was started for it yet.
    #[serde(default)]
    pub(super) due: bool,
}

impl Times {
    /// Follows a schedule from now on, or from where it was left: times that have come since are made up as after a jump of the clock.
    pub(super) fn new(
        program: &weir_config::Program,
        zone: Zone,
        last: Option<&Last>,
        clock: &WallClock,
    ) -> Option<Self> {
        let mut times = Self {
            schedule: program.schedule.clone()?,
            zone_name: program.timezone.clone(),
            zone,
            table: Timetable::new(0),
            is_continued: false,
        };
        let now = times.minute(clock.now());
        let is_same =
            |last: &&Last| last.schedule == times.schedule.as_str() && last.zone == times.zone_name;
        let last = last.filter(is_same).map(|last| last.minute);
        times.is_continued = last.is_some();
        times.table = Timetable::new(match last {
            // What was not due until then was looked at, although it was not noted.
            Some(last) if last < now => last.max(now - REACH),
            Some(last) => last,
            None => now,
        });
        Some(times)
    }

    /// How far it was followed. `due`: see [`Last`].
    pub(super) fn last(&self, due: bool) -> Last {
        Last {
            schedule: self.schedule.as_str().to_owned(),
            zone: self.zone_name.clone(),
            minute: self.table.last(),
            due,
        }
    }

    /// Looks at the clock: whether the program's time has come, and whether the clock has gone back.
    pub(super) fn look(&mut self, clock: &WallClock) -> (Option<Due>, bool) {
        let before = self.table.last();
        let (now, pace) = (self.minute(clock.now()), self.pace());
        let (schedule, zone) = (&self.schedule, &self.zone);
        let due = self.table.look(now, pace, |minute| match pace {
            Pace::TimesOfDay => schedule.has(minute),
            Pace::Intervals => schedule.has(zone.local(minute)),
        });
        (due, self.table.last() < before)
    }

    /// When the program's next time comes, seconds since 1970. `None`: not in years.
    pub(super) fn next(&self, clock: &WallClock) -> Option<i64> {
        let now = clock.now().div_euclid(60);
        let local = match self.pace() {
            // After the clock has gone back, nothing comes until it is where it was.
            Pace::TimesOfDay => self.table.last().max(self.zone.local(now)),
            Pace::Intervals => self.zone.local(now),
        };
        let next = self.schedule.next(local)?;
        Some(self.zone.global(next, now) * 60)
    }

    fn pace(&self) -> Pace {
        match self.schedule.is_fixed() {
            true => Pace::TimesOfDay,
            false => Pace::Intervals,
        }
    }

    /// The minute in which the timetable counts.
    fn minute(&self, seconds: i64) -> i64 {
        let minute = seconds.div_euclid(60);
        match self.pace() {
            Pace::TimesOfDay => self.zone.local(minute),
            Pace::Intervals => minute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_second()
    }

    #[test]
    fn local_minutes_have_a_gap_and_a_fold() {
        let zone = Zone::named(Some("Europe/Berlin")).unwrap();
        let minute = |text: &str| seconds(text) / 60;
        let local = |text: &str| zone.local(minute(text)) - minute(text);
        assert_eq!(local("2026-01-01T00:00:00Z"), 60);
        assert_eq!(local("2026-03-29T00:59:00Z"), 60);
        assert_eq!(local("2026-03-29T01:00:00Z"), 120);
        assert_eq!(local("2026-10-25T01:00:00Z"), 60);
        // Half past two on the day that has none: the clock shows three then.
        let gap = minute("2026-03-29T02:30:00Z");
        let before = minute("2026-03-28T22:00:00Z");
        assert_eq!(zone.global(gap, before), minute("2026-03-29T01:00:00Z"));
        // Noon on the day after.
        let noon = minute("2026-03-30T12:00:00Z");
        assert_eq!(zone.global(noon, before), minute("2026-03-30T10:00:00Z"));
        // In the repeated hour, the time that is still to come.
        let fold = minute("2026-10-25T02:30:00Z");
        let now = minute("2026-10-25T01:10:00Z");
        assert_eq!(zone.global(fold, now), minute("2026-10-25T01:30:00Z"));
        assert!(Zone::named(Some("Europe/Nowhere")).is_err());
    }
}
