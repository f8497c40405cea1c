//! Learns how long clients wait before they leave.
//!
//! A client that left shows how long it waited. A client that was answered or refused only shows that it would have
//! waited at least that long. Both are counted by duration (in sixteenths of an octave). The share that stays beyond
//! each age is the product of the shares that stayed in each step up to it: the estimate of Kaplan and Meier
//! ("Nonparametric estimation from incomplete observations", 1958). A single client that leaves early among many that
//! wait changes nothing.

use crate::Micros;

#[derive(Debug, Clone)]
pub(crate) struct Patience {
    left: [u32; STEPS],
    stayed: [u32; STEPS],
    /// The result, and when it was last confirmed.
    known: Option<(Micros, Micros)>,
    halve_at: Micros,
    news: bool,
}

impl Patience {
    pub(crate) const fn new() -> Self {
        Self {
            left: [0; STEPS],
            stayed: [0; STEPS],
            known: None,
            halve_at: Micros::ZERO,
            news: false,
        }
    }

    /// A client left this long after it came, or announced that it would.
    pub(crate) fn left(&mut self, after: Micros) {
        let count = &mut self.left[step(after)];
        *count = count.saturating_add(1);
        self.news = true;
    }

    /// A client was still there this long after it came.
    #[inline]
    pub(crate) fn stayed(&mut self, after: Micros) {
        let count = &mut self.stayed[step(after)];
        *count = count.saturating_add(1);
    }

    /// The time after which one client in four has left; at least half a second.
    pub(crate) fn get(&self) -> Option<Micros> {
        self.known.map(|(patience, _)| patience)
    }

    /// Computes it again. Called from time to time.
    pub(crate) fn look(&mut self, now: Micros) {
        if core::mem::take(&mut self.news) || self.known.is_some() {
            match self.find() {
                Estimate::Patience(patience) => self.known = Some((patience, now)),
                // The recent data contradicts the known value, and does not give another one.
                Estimate::AtLeast(age) if self.get().is_some_and(|known| age > known) => {
                    self.known = None;
                }
                Estimate::AtLeast(_) => {}
            }
        }
        if let Some((_, at)) = self.known
            && now.since(at) >= FORGET
        {
            self.known = None;
        }
        if now >= self.halve_at {
            self.halve_at = now.after(HALVE);
            let counts = self.left.iter_mut().chain(&mut self.stayed);
            counts.for_each(|count| *count /= 2);
        }
    }

    fn find(&self) -> Estimate {
        let mut there: u64 = self
            .left
            .iter()
            .chain(&self.stayed)
            .map(|n| u64::from(*n))
            .sum();
        let (mut staying, mut gone) = (ALL, 0);
        let mut at_least = Micros::ZERO;
        for step in 0..STEPS {
            if there < FEW {
                break;
            }
            let leaving = u64::from(self.left[step]);
            staying -= staying * leaving / there;
            gone += leaving;
            if staying <= ALL / 4 * 3 && gone >= FEW {
                return Estimate::Patience(start(step).max(LEAST));
            }
            if there >= MANY {
                at_least = start(step);
            }
            there -= leaving + u64::from(self.stayed[step]);
        }
        Estimate::AtLeast(at_least)
    }
}

enum Estimate {
    Patience(Micros),
    /// Most clients are still there at this age, and nothing is known beyond it.
    AtLeast(Micros),
}

/// The step of an age.
#[inline]
fn step(age: Micros) -> usize {
    let age = age.0.clamp(1 << FIRST, u64::MAX);
    let octave = age.ilog2();
    let part = (age >> (octave - 4)) & 15;
    (((octave - FIRST) * 16) as usize + part as usize).min(STEPS - 1)
}

/// The shortest age of a step.
fn start(step: usize) -> Micros {
    let (octave, part) = (FIRST as usize + step / 16, step % 16);
    Micros(((16 + part) as u64) << (octave - 4))
}

/// Shorter ages count as this power of two of a microsecond: 4 ms.
const FIRST: u32 = 12;

/// Sixteen per octave, up to 268 s: so clients that were just answered and clients that just left can be distinguished
/// near the end of their patience.
const STEPS: usize = 256;

/// A client that leaves sooner says something about itself only; otherwise clients that connect and leave could
/// shorten the queue for all others. A queue for clients with this patience is kept to an eighth of it, which serves
/// those clients too.
const LEAST: Micros = Micros::from_millis(500);

/// All clients.
const ALL: u64 = 1 << 20;

/// Fewer clients say nothing.
const FEW: u64 = 8;

/// If this many stay, the patience is longer than was assumed.
const MANY: u64 = 32;

/// After this time the counts are halved.
const HALVE: Micros = Micros::from_secs(8);

/// After this time without clients leaving, it is not known any more.
const FORGET: Micros = Micros::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_begin_where_they_say() {
        for number in 0..STEPS {
            assert_eq!(step(start(number)), number);
            assert_eq!(step(Micros(start(number).0 - 1)), number.saturating_sub(1));
        }
        assert_eq!(step(Micros::ZERO), 0);
        assert_eq!(step(Micros::MAX), STEPS - 1);
    }

    #[test]
    fn those_who_were_answered_sooner_say_nothing_of_those_who_waited() {
        let mut patience = Patience::new();
        for _ in 0..10_000 {
            patience.stayed(Micros::from_millis(50));
        }
        for _ in 0..20 {
            patience.left(Micros::from_secs(2));
        }
        patience.look(Micros::ZERO);
        let known = patience.get().unwrap();
        assert!((Micros::from_millis(1_600)..=Micros::from_secs(2)).contains(&known));
    }

    #[test]
    fn a_few_who_leave_early_change_nothing() {
        let mut patience = Patience::new();
        for _ in 0..1_000 {
            patience.stayed(Micros::from_secs(3));
        }
        for _ in 0..100 {
            patience.left(Micros::from_millis(300));
        }
        patience.look(Micros::ZERO);
        assert_eq!(patience.get(), None);
    }

    #[test]
    fn it_is_forgotten_when_others_wait_for_longer() {
        let mut patience = Patience::new();
        (0..20).for_each(|_| patience.left(Micros::from_secs(1)));
        patience.look(Micros::ZERO);
        assert!(patience.get().is_some());
        (0..200).for_each(|_| patience.stayed(Micros::from_secs(4)));
        patience.left(Micros::from_secs(4));
        patience.look(Micros(1));
        assert_eq!(patience.get(), None);
        for second in (0..400).step_by(8) {
            patience.look(Micros::from_secs(second));
        }
        assert_eq!(patience.left, [0; STEPS]);
    }
}
