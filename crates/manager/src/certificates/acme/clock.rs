//! The time: the authority's clock decides whether a certificate is valid, and this machine's clock may be wrong, or
//! may jump.

use std::time::{Duration, Instant};

use weir_acme::ToAcme;

use super::{
    Orders,
    times::{LOOK_EVERY, SHORT},
};

/// What time it is for the authority, by whose clock certificates are valid. This machine's clock may be wrong, and may jump: then it
/// would have certificates ordered without end.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// What the authority has said last (seconds since 1970), and when.
    said: Option<(i64, Instant)>,
    /// When it was asked last.
    asked: Option<Instant>,
    /// The authority was asked at this time, but has not named its own time.
    silent: Option<Instant>,
    /// When it was last logged that this machine's clock is wrong.
    told: Option<Instant>,
}

impl Clock {
    /// Seconds since 1970: by the authority's clock if that is known, otherwise by this machine's.
    pub(super) fn now(&self, now: Instant) -> i64 {
        self.at(now, weir_acme::now())
    }

    /// `own`: by this machine's clock.
    fn at(&self, now: Instant, own: i64) -> i64 {
        match self.said {
            Some((time, at)) if now.saturating_duration_since(at) < TIME_LIFE => {
                let since = now.saturating_duration_since(at).as_secs();
                time.saturating_add(since as i64)
            }
            _ => own,
        }
    }

    /// Whether a certificate may be replaced now: the authority has said what time it is, or does not say it. Otherwise it is to be
    /// asked if this returns `Err(true)`.
    pub(super) fn is_certain(&mut self, now: Instant) -> Result<(), bool> {
        let is_new = |at: Option<Instant>, life| {
            at.is_some_and(|at| now.saturating_duration_since(at) < life)
        };
        if is_new(self.said.map(|(_, at)| at), TIME_LIFE) || is_new(self.silent, LOOK_EVERY) {
            return Ok(());
        }
        let asks = !is_new(self.asked, LOOK_EVERY);
        if asks {
            self.asked = Some(now);
        }
        Err(asks)
    }

    /// The authority has said what time it is. Returns by how many seconds this machine's clock (`own`) is ahead, if people must know that
    /// it is wrong.
    pub(super) fn hear(&mut self, time: Option<i64>, now: Instant, own: i64) -> Option<i64> {
        let Some(time) = time else {
            self.silent = Some(now);
            return None;
        };
        self.said = Some((time, now));
        let ahead = own.saturating_sub(time);
        let was_told = |at: Instant| now.saturating_duration_since(at) < TELL_EVERY;
        if ahead.unsigned_abs() < WRONG || self.told.is_some_and(was_told) {
            return None;
        }
        self.told = Some(now);
        Some(ahead)
    }

    /// The process that asks has ended.
    pub(super) fn ask_again(&mut self) {
        self.asked = None;
    }
}

impl Orders {
    /// Whether it is certain what time it is, before a certificate is replaced. Otherwise the authority is asked.
    pub(super) fn knows_time(&mut self, index: usize, now: Instant) -> bool {
        if !self.runs(now) {
            self.wanted[index].due = now + SHORT;
            return false;
        }
        let Err(asks) = self.clock.is_certain(now) else {
            return true;
        };
        if asks {
            self.tell(&ToAcme::Time);
        }
        self.wanted[index].due = now + SHORT;
        false
    }

    /// The authority has said what time it is, or does not.
    pub(super) fn hear_time(&mut self, time: Option<i64>, now: Instant) {
        if let Some(ahead) = self.clock.hear(time, now, weir_acme::now()) {
            let way = if ahead > 0 { "ahead of" } else { "behind" };
            log::warn!(
                "the clock of this machine must be wrong: it is {} s {way} the authority's clock. Certificates follow the authority's; \
                 set this one (timedatectl)",
                ahead.unsigned_abs()
            );
        }
        // Those that have waited for it.
        self.wanted
            .iter_mut()
            .filter(|one| one.order.is_none() && one.not_after != 0)
            .for_each(|one| one.due = one.due.min(now));
    }
}

/// How long the time that an authority has said is used: it is asked before a certificate is replaced.
const TIME_LIFE: Duration = Duration::from_secs(24 * 3600);

/// From this difference on, a clock is wrong (seconds).
const WRONG: u64 = 300;

/// How often that is logged.
const TELL_EVERY: Duration = Duration::from_secs(6 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: i64 = 1_700_000_000;

    #[test]
    fn a_clock_that_is_wrong_or_jumps_does_not_matter_once_the_authority_has_said_the_time() {
        let now = Instant::now();
        let mut clock = Clock::default();
        assert_eq!(clock.at(now, TIME), TIME, "nothing else is known");
        assert_eq!(clock.is_certain(now), Err(true), "it must be asked");
        assert_eq!(clock.is_certain(now), Err(false), "it was asked");
        clock.ask_again();
        assert_eq!(clock.is_certain(now), Err(true));
        // The clock is a hundred days ahead. The log says so once.
        let ahead = 100 * 86_400;
        assert_eq!(clock.hear(Some(TIME), now, TIME + ahead), Some(ahead));
        assert_eq!(clock.hear(Some(TIME), now, TIME + ahead), None);
        assert_eq!(clock.is_certain(now), Ok(()));
        let later = now + Duration::from_secs(60);
        for own in [TIME + ahead, TIME - ahead, TIME, 0, i64::MAX] {
            assert_eq!(clock.at(later, own), TIME + 60, "{own}");
        }
        // After a day without an answer, the authority is asked again.
        let later = now + TIME_LIFE;
        assert_eq!(clock.at(later, TIME), TIME);
        assert_eq!(clock.is_certain(later), Err(true));
        assert_eq!(clock.hear(None, later, TIME), None);
        assert_eq!(clock.is_certain(later), Ok(()), "it does not say it");
        let mut clock = Clock::default();
        assert_eq!(clock.hear(Some(TIME), now, TIME - 299), None);
        assert_eq!(clock.hear(Some(TIME), now, TIME - 300), Some(-300));
    }
}
