//! When a program is started: cron's five fields. They mean what crontab(5) of Debian's cron says, with two differences: what could
//! never happen is refused, and so is a step without a range (`5/15`), which cron reads in another way than people do.
//!
//! A local minute is a number of minutes since 1970 on the local clock: neither time zones nor leap seconds are known here.

use crate::scalar::{Checked, wrong};

/// A schedule. Each set has a bit per value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// As written, with single spaces.
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// Sunday is 0.
    weekdays: u64,
    /// Days and weekdays must both fit: one of these fields begins with a star. Otherwise one of them is enough.
    both_days: bool,
    is_fixed: bool,
}

/// A field: its name, its least and greatest value, and names of values.
struct Field {
    name: &'static str,
    least: u8,
    most: u8,
    names: &'static [&'static str],
    /// The number of the first name.
    first: u8,
}

const FIELDS: [Field; 5] = [
    field("minute", 0, 59, &[], 0),
    field("hour", 0, 23, &[], 0),
    field("day", 1, 31, &[], 0),
    field("month", 1, 12, &MONTHS, 1),
    field("weekday", 0, 7, &WEEKDAYS, 0),
];

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Cron's words.
const WORDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl Schedule {
    pub(crate) fn parse(text: &str) -> Checked<Self> {
        let written: Vec<&str> = text.split_ascii_whitespace().collect();
        let fields: Vec<&str> = match written[..] {
            [word] if word.starts_with('@') => word_fields(word)?.split(' ').collect(),
            _ => written.clone(),
        };
        let [minute, hour, day, month, weekday] = fields[..] else {
            return wrong(
                format!(
                    "a schedule has five fields, and {text:?} has {}",
                    fields.len()
                ),
                match fields.len() {
                    6.. => {
                        "minute, hour, day, month, weekday: \"30 3 * * *\"; there are neither seconds, nor a user, nor the command"
                    }
                    _ => {
                        "minute, hour, day, month, weekday: \"30 3 * * *\" is half past three every day"
                    }
                },
            );
        };
        let sets = |index: usize, text: &str| FIELDS[index].set(text);
        let is_star = |text: &str| text.starts_with('*');
        let weekdays = sets(4, weekday)?;
        let schedule = Self {
            text: written.join(" "),
            minutes: sets(0, minute)?,
            hours: sets(1, hour)?,
            days: sets(2, day)?,
            months: sets(3, month)?,
            // 7 is Sunday, too.
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            both_days: is_star(day) || is_star(weekday),
            is_fixed: !is_star(minute) && !is_star(hour),
        };
        match schedule.can_come(is_star(weekday)) {
            true => Ok(schedule),
            false => wrong(
                format!("{text:?} never comes: none of these months has such a day"),
                "",
            ),
        }
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// It names times of the day: neither the minute nor the hour begins with a star. Debian's cron treats such times in another
    /// way when the clock jumps.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Whether the program is started in this local minute.
    pub fn has(&self, minute: i64) -> bool {
        let (day, of_day) = (minute.div_euclid(DAY), minute.rem_euclid(DAY));
        holds(self.minutes, of_day % 60) && holds(self.hours, of_day / 60) && self.has_day(day)
    }

    /// The next local minute after this one in which the program is started. `None`: not in the next eight years.
    pub fn next(&self, after: i64) -> Option<i64> {
        let first = after + 1;
        let today = first.div_euclid(DAY);
        let mut days = (today..today + LONGEST).filter(|day| self.has_day(*day));
        days.find_map(|day| {
            let begin = first.max(day * DAY);
            (begin..(day + 1) * DAY).find(|minute| self.has(*minute))
        })
    }

    /// `day`: number of days since 1970.
    fn has_day(&self, day: i64) -> bool {
        let (month, of_month) = month_and_day(day);
        // 1970 began on a Thursday.
        let weekday = (day + 4).rem_euclid(7);
        let (by_day, by_weekday) = (holds(self.days, of_month), holds(self.weekdays, weekday));
        holds(self.months, month)
            && match self.both_days {
                true => by_day && by_weekday,
                false => by_day || by_weekday,
            }
    }

    /// Whether one of its months has one of its days.
    fn can_come(&self, any_weekday: bool) -> bool {
        const LENGTHS: [u8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut months = (1..=12).filter(|month| holds(self.months, *month));
        (!any_weekday && !self.both_days)
            || months.any(|month| {
                let length = LENGTHS[month as usize - 1];
                (1..=i64::from(length)).any(|day| holds(self.days, day))
            })
    }
}

fn word_fields(word: &str) -> Checked<&'static str> {
    let lower = word.to_ascii_lowercase();
    match WORDS.iter().find(|(known, _)| *known == lower) {
        Some((_, fields)) => Ok(fields),
        None if lower == "@reboot" => wrong(
            "`@reboot` is not a schedule",
            "remove `schedule`, and write restart = \"never\": the program then starts with weir, and after each reload",
        ),
        None => {
            let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
            wrong(
                format!("{word:?} is not a schedule"),
                format!("use one of {}, or five fields", words.join(", ")),
            )
        }
    }
}

const fn field(
    name: &'static str,
    least: u8,
    most: u8,
    names: &'static [&'static str],
    first: u8,
) -> Field {
    Field {
        name,
        least,
        most,
        names,
        first,
    }
}

impl Field {
    /// `*`, `*/5`, `1-5`, `1-5/2`, `7`, and lists of these.
    fn set(&self, text: &str) -> Checked<u64> {
        let mut set = 0;
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(step)),
                None => (part, None),
            };
            let (from, to) = match range.split_once('-') {
                _ if range == "*" => (self.least, self.last()),
                Some((from, to)) => (self.value(from)?, self.end(to)?),
                None => {
                    let value = self.value(range)?;
                    if let Some(step) = step {
                        return wrong(
                            format!("{part:?} in the {} has a step, but no range", self.name),
                            format!("write \"{value}-{}/{step}\"", self.last()),
                        );
                    }
                    (value, value)
                }
            };
            if from > to {
                return wrong(
                    format!("{range:?} in the {} ends before it begins", self.name),
                    format!("write \"{from}-{},{}-{to}\"", self.last(), self.least),
                );
            }
            let step = match step {
                None => 1,
                Some(step) => self.step(step, part, to - from)?,
            };
            for value in (from..=to).step_by(step) {
                set |= 1 << value;
            }
        }
        Ok(set)
    }

    fn step(&self, text: &str, part: &str, most: u8) -> Checked<usize> {
        match text.parse::<u8>() {
            Ok(step @ 1..) if step <= most.max(1) => Ok(step.into()),
            Ok(1..) => wrong(
                format!(
                    "the step of {part:?} in the {} is longer than its range",
                    self.name
                ),
                match self.name {
                    "minute" => {
                        "a step begins anew each hour: \"*/90\" cannot be said; two schedules can, for example \"0 0-21/3\" and \"30 1-22/3\""
                    }
                    _ => "write the value itself, without a step",
                },
            ),
            _ => wrong(
                format!("{text:?} in the {} is not a step", self.name),
                "write a number of at least 1: \"*/5\"",
            ),
        }
    }

    /// The greatest value; Sunday is the first day then.
    fn last(&self) -> u8 {
        match self.name {
            "weekday" => 6,
            _ => self.most,
        }
    }

    /// The end of a range. A range may end on Sunday.
    fn end(&self, text: &str) -> Checked<u8> {
        match self.value(text)? {
            0 if self.name == "weekday" && text != "0" => Ok(7),
            value => Ok(value),
        }
    }

    fn value(&self, text: &str) -> Checked<u8> {
        let lower = text.to_ascii_lowercase();
        if let Some(index) = (0..).zip(self.names).find(|(_, name)| **name == lower) {
            return Ok(self.first + index.0);
        }
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u8>() {
            Ok(value) if digits && (self.least..=self.most).contains(&value) => Ok(value),
            _ => wrong(
                format!("{text:?} is not a {}", self.name),
                match self.names.first() {
                    Some(name) => format!(
                        "write a number from {} to {}, or a name such as {name:?}",
                        self.least, self.most
                    ),
                    None => format!("write a number from {} to {}", self.least, self.most),
                },
            ),
        }
    }
}

fn holds(set: u64, value: i64) -> bool {
    set >> value & 1 == 1
}

/// Month (1 to 12) and day of the month of a number of days since 1970, in the Gregorian calendar. The method is that of Howard Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms": years begin in March.
fn month_and_day(days: i64) -> (i64, i64) {
    let of_era = (days + 719_468).rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    (if month < 10 { month + 3 } else { month - 9 }, day)
}

/// Minutes of a day.
const DAY: i64 = 24 * 60;

/// Days within which the next time is searched: 29 February comes every eight years at the latest.
const LONGEST: i64 = 8 * 366;

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str) -> Schedule {
        Schedule::parse(text).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"))
    }

    /// Saturday, 28 November 2026, 15:00.
    const NOW: i64 = 20_785 * DAY + 15 * 60;

    /// The next time from `NOW` on: days from today, hour and minute.
    fn next(text: &str) -> (i64, i64, i64) {
        let minute = schedule(text).next(NOW).unwrap();
        let of_day = minute % DAY;
        (minute / DAY - NOW / DAY, of_day / 60, of_day % 60)
    }

    #[test]
    fn times_are_those_that_crontab_describes() {
        assert_eq!(next("* * * * *"), (0, 15, 1));
        assert_eq!(next("*/5 * * * *"), (0, 15, 5));
        assert_eq!(next("0 15 * * *"), (1, 15, 0), "this minute has begun");
        assert_eq!(next("30 3 * * *"), (1, 3, 30));
        assert_eq!(next("@hourly"), (0, 16, 0));
        assert_eq!(next("@Weekly"), (1, 0, 0));
        assert_eq!(next("5,10-20/5 8-10 * * mon-fri"), (2, 8, 5));
        assert_eq!(next("0 0 * * fri-sun"), (1, 0, 0));
        assert_eq!(next("0 0 * * 7"), (1, 0, 0));
        assert_eq!(next("0 0 1 Jan *"), (34, 0, 0));
        // Monday, or the 13th.
        assert_eq!(next("0 0 13 * 1"), (2, 0, 0));
        // A Monday that is an odd day.
        assert_eq!(next("0 0 */2 * 1"), (9, 0, 0));
        assert_eq!(next("0 0 29 2 *"), (458, 0, 0));
    }

    #[test]
    fn a_minute_fits_as_often_as_the_next_one_is_found() {
        for text in [
            "7 */3 * * *",
            "0 12 31 * *",
            "*/20 0-4 * 2,12 sun",
            "0 0 13 * 5",
        ] {
            let schedule = schedule(text);
            let until = NOW + 500 * DAY;
            let by_steps = std::iter::successors(schedule.next(NOW), |at| schedule.next(*at));
            let found: Vec<i64> = by_steps.take_while(|at| *at <= until).collect();
            let all = (NOW + 1..=until).filter(|minute| schedule.has(*minute));
            assert_eq!(found, all.collect::<Vec<_>>(), "{text}");
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(month_and_day(0), (1, 1));
        assert_eq!(month_and_day(-1), (12, 31));
        assert_eq!(month_and_day(58), (2, 28));
        assert_eq!(month_and_day(59), (3, 1));
        // 29 February 2000 and 2024, 1 March 2100.
        assert_eq!(month_and_day(11_016), (2, 29));
        assert_eq!(month_and_day(19_782), (2, 29));
        assert_eq!(month_and_day(47_541), (3, 1));
    }

    #[test]
    fn what_cron_refuses_or_people_mistake_is_wrong() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "*/0 * * * *",
            "*/90 * * * *",
            "5/15 * * * *",
            "10-5 * * * *",
            "1-2-3 * * * *",
            "+5 * * * *",
            "1, * * * *",
            "x * * * *",
            "0 0 30 2 *",
            "0 0 31 4,6 *",
            "@reboot",
            "@often",
            "@daily x",
            "0 0 L * *",
        ] {
            assert!(Schedule::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_times_of_the_day_are_fixed() {
        let fixed = |text| schedule(text).is_fixed();
        assert!(fixed("0 3 * * *") && fixed("0,30 2-4 * * 1") && fixed("@daily"));
        assert!(!fixed("0 * * * *") && !fixed("*/5 3 * * *") && !fixed("@hourly"));
    }
}
