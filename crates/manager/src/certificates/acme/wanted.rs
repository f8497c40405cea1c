//! A certificate that weir must get: whether it is due, and the results of its orders.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use weir_acme::{AcmeOrder, Draft, Issued, Lock, State, is_issued};

use super::demand::OnDemand;
use super::times::{LONGEST, MOST_REFUSED, REFUSED_SPAN, rest};
use crate::certificates::keeper::Answer;

/// A certificate that is wanted.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) names: Vec<String>,
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
    pub(super) due: Instant,
    /// The results of the last orders, including orders before the start.
    pub(super) state: State,
    /// When it is to be renewed (seconds since 1970); 0: it is not there.
    pub(super) renew_at: i64,
    /// When the certificate that is there expires (seconds since 1970); 0: it is not there.
    pub(super) not_after: i64,
    /// For how long that one is valid (seconds); 0: it is not there.
    pub(super) life: i64,
    /// Orders since the manager's start that were successful, and that were not.
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) order: Option<OpenOrder>,
    pub(super) advice: Advice,
    /// It is not in the configuration, but was got on demand.
    pub(super) demand: Option<OnDemand>,
}

/// When the authority says that a certificate should be renewed (ARI).
#[derive(Debug, Default)]
pub(super) struct Advice {
    /// The number of the question.
    pub(super) number: u32,
    /// For the certificate that is known by this.
    pub(super) of: (Vec<u8>, Vec<u8>),
    /// Seconds since 1970; `None`: it has not said.
    pub(super) renew_at: Option<i64>,
    /// When to ask again; `None`: now.
    pub(super) ask_at: Option<Instant>,
}

/// An order that is under way.
#[derive(Debug)]
pub(super) struct OpenOrder {
    pub(super) number: u32,
    /// What the process is asked for as soon as the keeper has made the key and this request with it.
    pub(super) request: Option<(Answer<Vec<u8>>, AcmeOrder)>,
    pub(super) key: Draft,
    pub(super) lock: Lock,
    /// It is given up then.
    pub(super) until: Instant,
}

impl Wanted {
    /// A certificate that is wanted now, with the results of earlier orders that its folder has.
    pub(super) fn new(
        name: &str,
        names: Vec<String>,
        chain: PathBuf,
        key: PathBuf,
        now: Instant,
    ) -> Wanted {
        Wanted {
            name: name.to_owned(),
            names,
            key,
            due: now,
            state: State::read(&chain).unwrap_or_default(),
            chain,
            renew_at: 0,
            not_after: 0,
            life: 0,
            done: 0,
            failed: 0,
            order: None,
            advice: Advice::default(),
            demand: None,
        }
    }

    /// Whether it is for a name with a star, which only DNS can prove.
    pub(super) fn has_star(&self) -> bool {
        self.names.iter().any(|name| name.starts_with('*'))
    }

    /// Whether it must be ordered: it is not there, or is to be renewed. `now`: seconds since 1970, as in all of these.
    pub(super) fn is_due(&mut self, now: i64) -> bool {
        let issued = Issued::read(&self.chain);
        let issued = issued.filter(|issued| is_issued(issued, &self.names) && self.key.exists());
        let Some(issued) = issued else {
            (self.renew_at, self.not_after, self.life) = (0, 0, 0);
            return true;
        };
        self.not_after = issued.not_after;
        self.life = issued.not_after - issued.not_before;
        if self.advice.of != issued.known_by {
            self.advice = Advice {
                of: issued.known_by.clone(),
                ..Advice::default()
            };
        }
        self.renew_at = match self.advice.renew_at {
            Some(at) => issued.renew_as_advised(Some(at)),
            None => issued.renew_with(Some(&self.state)),
        };
        now >= self.renew_at
    }

    /// Reads the results of the last orders, including the orders of other nodes. Each written time is later than the
    /// previous one, even if the clocks of nodes differ.
    pub(super) fn read_state(&mut self) {
        if let Some(state) = State::read(&self.chain)
            && state.at >= self.state.at
        {
            self.state = state;
        }
    }

    /// Notes that the authority has made a certificate now.
    pub(super) fn is_made(&mut self, now: i64, life: i64) {
        let before = now.saturating_sub(self.state.made);
        let early = match before < life / 3 {
            true => self.state.early.saturating_add(1),
            false => 0,
        };
        self.state = State {
            records: std::mem::take(&mut self.state.records),
            at: now.max(self.state.at),
            made: now,
            early,
            ..State::default()
        };
    }

    /// How long to wait because the last certificate is new: a new certificate is not replaced. If its files are gone,
    /// or the authority wants it replaced, a new one is ordered at once, but not again and again.
    fn rest(&self, now: i64) -> i64 {
        let State { made, early, .. } = self.state;
        // The authority may want one of its certificates replaced at once, and has told this node or another one. Otherwise it
        // would not be renewed that early.
        let usual = self.not_after - self.life + self.life / 3 * 2;
        let is_advised = self.life > 0 && self.renew_at < usual;
        if early == 0 && (self.life == 0 || is_advised) {
            return 0;
        }
        let life = if self.life == 0 { i64::MAX } else { self.life };
        let rest = rest(life, early);
        // If it was made later than now, a clock is wrong, and this says nothing.
        let left = made.saturating_add(rest) - now;
        if left > rest { 0 } else { left.max(0) }
    }

    /// How long to wait because orders have failed, of this node or another one, or because the last one was just successful. A start
    /// and a reload try again at once, but not if the authority has refused too often of late.
    pub(super) fn pause(&self, served_at: i64, now: i64) -> Option<Duration> {
        let State {
            error,
            at,
            next,
            refused,
            ..
        } = &self.state;
        let mut until = 0;
        if error.is_some() && *at > served_at {
            until = *next;
        }
        let lately = refused
            .iter()
            .filter(|at| (now - REFUSED_SPAN..=now).contains(*at));
        if lately.count() >= MOST_REFUSED {
            until = until.max(refused[0] + REFUSED_SPAN);
        }
        let pause = u64::try_from(until.saturating_sub(now)).unwrap_or(0);
        // No pause is that long: the clock of another node is wrong, or this one has jumped.
        let pause = if pause > LONGEST.as_secs() { 0 } else { pause };
        let pause = pause.max(self.rest(now).unsigned_abs());
        (pause > 0).then(|| Duration::from_secs(pause))
    }

    /// Writes what became of the last orders beside the chain.
    pub(super) fn write_state(&self) {
        if let Err(error) = self.state.write(&self.chain) {
            log::error!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_tries_again_at_once_but_not_when_the_authority_has_refused_too_often() {
        let now = weir_acme::now();
        let names = vec!["shop.example".into()];
        let mut wanted = Wanted {
            state: State {
                error: Some("no".into()),
                at: now - 10,
                next: now + 600,
                refused: vec![now - 40, now - 30, now - 20],
                ..State::default()
            },
            ..Wanted::new(
                "shop.example",
                names,
                PathBuf::new(),
                PathBuf::new(),
                Instant::now(),
            )
        };
        let seconds =
            |wanted: &Wanted, served_at| wanted.pause(served_at, now).map(|it| it.as_secs());
        // Started after the failure, and before it: another node has failed.
        assert_eq!(seconds(&wanted, now), None);
        assert!(seconds(&wanted, now - 20).is_some_and(|pause| (590..=600).contains(&pause)));
        wanted.state.refused.push(now - 10);
        assert!(seconds(&wanted, now).is_some_and(|pause| (3550..=3560).contains(&pause)));
        wanted.state.refused[0] = now - 3700;
        assert_eq!(seconds(&wanted, now), None);
        // The clock of another node is wrong, or this one has jumped.
        wanted.state.next = now + 1_000_000;
        assert_eq!(seconds(&wanted, now - 20), None);
        wanted.state = State::default();
        // A certificate for 90 days that was just made is not replaced at once, even if the authority wants that.
        (wanted.not_after, wanted.life) = (now + 90 * 86_400, 90 * 86_400);
        wanted.renew_at = now + 60 * 86_400;
        wanted.is_made(now - 60, wanted.life);
        assert_eq!(seconds(&wanted, now), Some(6 * 3600 - 60));
        // The authority wants it replaced.
        wanted.renew_at = now - 30;
        assert_eq!(seconds(&wanted, now), None);
        wanted.is_made(now - 60, wanted.life);
        assert_eq!(seconds(&wanted, now), Some(12 * 3600 - 60));
        wanted.is_made(now + 90 * 86_400, wanted.life);
        assert_eq!(seconds(&wanted, now), None, "made in the future");
        // A certificate whose files are gone is ordered at once, but not again and again.
        (wanted.not_after, wanted.life) = (0, 0);
        wanted.is_made(now, 90 * 86_400);
        wanted.state.early = 0;
        assert_eq!(seconds(&wanted, now), None);
        wanted.state.early = 1;
        assert_eq!(seconds(&wanted, now), Some(12 * 3600));
    }
}
