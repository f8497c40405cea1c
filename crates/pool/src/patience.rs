//! How long clients wait before they leave.
//!
//! Who has left says how long it waited; who was answered or refused says only that it would have waited for that long at
//! least. Both are counted by how long it was (in sixteenths of an octave), and the share that stays beyond each age is the
//! product of the shares that stayed within each step up to it: Kaplan and Meier's estimate ("Nonparametric estimation from
//! incomplete observations", 1958). A single client that gives up early among many that wait changes nothing.

use crate::Micros;

#[derive(Debug, Clone)]
pub(crate) struct Patience {
    left: [u32; STEPS],
    stayed: [u32; STEPS],
    /// What was found, and when it was last confirmed.
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

    /// A client left so long after it came, or said that it would.
    pub(crate) fn left(&mut self, after: Micros) {
        let count = &mut self.left[step(after)];
        *count = count.saturating_add(1);
        self.news = true;
    }

    /// A client was still there so long after it came.
    #[inline]
    pub(crate) fn stayed(&mut self, after: Micros) {
        let count = &mut self.stayed[step(after)];
        *count = count.saturating_add(1);
    }

    /// After so long one in four has left; at least half a second.
    pub(crate) fn get(&self) -> Option<Micros> {
        self.known.map(|(patience, _)| patience)
    }

    /// Works it out anew. Called now and then.
    pub(crate) fn look(&mut self, now: Micros) {
        if core::mem::take(&mut self.news) || self.known.is_some() {
            match self.find() {
                Found::Patience(patience) => self.known = Some((patience, now)),
                // Not known any more from those of late, and nothing else is.
                Found::AtLeast(age) if self.get().is_some_and(|known| age > known) => {
                    self.known = None;
                }
                Found::AtLeast(_) => {}
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

    fn find(&self) -> Found {
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
                return Found::Patience(start(step).max(LEAST));
            }
            if there >= MANY {
                at_least = start(step);
            }
            there -= leaving + u64::from(self.stayed[step]);
        }
        Found::AtLeast(at_least)
    }
}

enum Found {
    Patience(Micros),
    /// Most are still there at this age, and nothing is known beyond.
    AtLeast(Micros),
}

/// Which step an age belongs to.
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

/// Shorter ages are taken for this power of two of a microsecond: 4 ms.
const FIRST: u32 = 12;

/// Sixteen for each octave, to 268 s: near the end of their patience those who were just answered and those who just
/// left are told apart.
const STEPS: usize = 256;

/// Who gives up sooner says something about itself only: else whoever comes and goes shortened everybody's queue. A
/// queue for clients of this patience is kept to an eighth of it, and serves those too.
const LEAST: Micros = Micros::from_millis(500);

/// Everybody.
const ALL: u64 = 1 << 20;

/// Fewer say nothing.
const FEW: u64 = 8;

/// So many that stay say that it is longer than was thought.
const MANY: u64 = 32;

/// After so long what was counted counts half.
const HALVE: Micros = Micros::from_secs(8);

/// After so long without anybody leaving it is not known any more.
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
