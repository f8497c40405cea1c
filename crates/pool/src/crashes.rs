//! Scripts that crash their workers again and again are refused for a while.
//!
//! Each crash costs a process. Requests are identified by a number from the caller (a hash of script and path). A
//! number is refused when [`CrashRules::limit`] crashes were counted within [`CrashRules::window`] and at most one in
//! ten of its requests was answered meanwhile, so that a script that crashes for some requests still answers the
//! others. After [`CrashRules::pause`] one request is tried, and one more after each further pause; an answer ends
//! the refusal.
//!
//! Workers that end at the same time count once: only a request that began after the last counted crash counts again.
//! If an operator kills all workers, or the kernel is out of memory, this says nothing about the requests.

use alloc::vec::Vec;

use crate::Micros;

/// When crashing scripts are refused, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashRules {
    /// After this many crashes; 0: never.
    pub limit: u32,
    /// How long a crash counts.
    pub window: Micros,
    /// Time between two requests that are tried.
    pub pause: Micros,
}

/// Something that crashed a worker recently. At most 256 are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspect {
    /// The caller's number for it.
    pub key: u64,
    /// Counted crashes.
    pub crashes: u32,
    /// How many of its requests were answered since the first of these.
    pub answers: u32,
    /// Refused requests.
    pub refused: u64,
    /// The script is refused until then; `None`: not refused.
    pub until: Option<Micros>,
    since: Micros,
    last: Micros,
}

/// The scripts that have crashed workers of a pool recently.
#[derive(Debug)]
pub struct Crashes {
    rules: CrashRules,
    list: Vec<Suspect>,
}

impl Crashes {
    /// No crashes yet.
    pub const fn new(rules: CrashRules) -> Self {
        Self {
            rules,
            list: Vec::new(),
        }
    }

    /// The remembered suspects, the oldest first.
    pub fn suspects(&self) -> &[Suspect] {
        &self.list
    }

    /// Whether a request for `key` may run. If it is a tried one, the next may run after the pause.
    ///
    /// # Errors
    ///
    /// When the next one is tried.
    pub fn may_run(&mut self, now: Micros, key: u64) -> Result<(), Micros> {
        let pause = self.rules.pause;
        let Some(suspect) = self.find(key) else {
            return Ok(());
        };
        match suspect.until {
            Some(until) if now < until => {
                suspect.refused += 1;
                Err(until)
            }
            Some(_) => {
                suspect.until = Some(now.after(pause));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A request for `key` that began at `begun` has crashed its worker. `Some`: it is refused from now on.
    pub fn crashed(&mut self, now: Micros, key: u64, begun: Micros) -> Option<Suspect> {
        if self.rules.limit == 0 {
            return None;
        }
        let CrashRules {
            limit,
            window,
            pause,
        } = self.rules;
        if self.find(key).is_none() {
            self.make_room();
            self.list.push(Suspect {
                key,
                crashes: 0,
                answers: 0,
                refused: 0,
                until: None,
                since: now,
                last: Micros::ZERO,
            });
        }
        let suspect = self.find(key)?;
        if suspect.crashes > 0 && begun < suspect.last {
            return None;
        }
        suspect.last = now;
        if suspect.until.is_some() {
            suspect.crashes = suspect.crashes.saturating_add(1);
            suspect.until = Some(now.after(pause));
            return None;
        }
        if now.since(suspect.since) > window {
            (suspect.crashes, suspect.answers, suspect.since) = (0, 0, now);
        }
        suspect.crashes += 1;
        let refused =
            suspect.crashes >= limit && suspect.answers.saturating_mul(10) <= suspect.crashes;
        if refused {
            suspect.until = Some(now.after(pause));
        }
        refused.then_some(*suspect)
    }

    /// A request for `key` was answered. `Some`: it was refused until now.
    pub fn answered(&mut self, now: Micros, key: u64) -> Option<Suspect> {
        let window = self.rules.window;
        let place = self.list.iter().position(|suspect| suspect.key == key)?;
        let suspect = &mut self.list[place];
        suspect.answers = suspect.answers.saturating_add(1);
        let is_over = suspect.until.is_some() || now.since(suspect.last) > window;
        let before = *suspect;
        if is_over {
            self.list.remove(place);
        }
        before.until.is_some().then_some(before)
    }

    fn find(&mut self, key: u64) -> Option<&mut Suspect> {
        self.list.iter_mut().find(|suspect| suspect.key == key)
    }

    /// The suspect whose last crash is oldest is forgotten; refused ones last.
    fn make_room(&mut self) {
        if self.list.len() < MOST {
            return;
        }
        let oldest = self.list.iter().enumerate();
        let oldest = oldest.min_by_key(|(_, suspect)| (suspect.until.is_some(), suspect.last));
        if let Some((place, _)) = oldest {
            self.list.remove(place);
        }
    }
}

/// How many suspects are remembered.
pub(crate) const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: CrashRules = CrashRules {
        limit: 10,
        window: Micros::from_secs(60),
        pause: Micros::from_secs(10),
    };

    fn ms(ms: u64) -> Micros {
        Micros::from_millis(ms)
    }

    #[test]
    fn what_crashes_each_time_is_refused_tried_after_each_pause_and_served_after_an_answer() {
        let mut crashes = Crashes::new(RULES);
        for n in 0..10 {
            assert_eq!(crashes.may_run(ms(50 * n), 7), Ok(()));
            let told = crashes.crashed(ms(50 * n + 20), 7, ms(50 * n));
            assert_eq!(told.is_some(), n == 9, "{n}");
        }
        assert_eq!(crashes.may_run(ms(480), 7), Err(ms(10_470)));
        assert_eq!(crashes.may_run(ms(480), 8), Ok(()), "others are served");
        assert_eq!(crashes.suspects()[0].refused, 1);
        assert_eq!(crashes.may_run(ms(10_470), 7), Ok(()));
        assert_eq!(crashes.may_run(ms(10_471), 7), Err(ms(20_470)));
        assert_eq!(
            crashes.crashed(ms(10_500), 7, ms(10_470)),
            None,
            "told once"
        );
        assert_eq!(crashes.may_run(ms(20_471), 7), Err(ms(20_500)));
        assert_eq!(crashes.may_run(ms(20_500), 7), Ok(()));
        let over = crashes.answered(ms(20_510), 7).expect("it was refused");
        assert_eq!(over.crashes, 11);
        assert_eq!(crashes.may_run(ms(20_511), 7), Ok(()));
        assert_eq!(crashes.suspects(), []);
    }

    #[test]
    fn a_script_that_answers_most_requests_is_never_refused() {
        let mut crashes = Crashes::new(RULES);
        for n in 0..10_000 {
            let now = ms(10 * n);
            assert_eq!(crashes.may_run(now, 7), Ok(()));
            match n % 4 {
                3 => assert_eq!(crashes.crashed(now, 7, now), None),
                _ => assert_eq!(crashes.answered(now, 7), None),
            }
        }
    }

    #[test]
    fn workers_that_end_at_once_and_crashes_long_ago_do_not_add_up() {
        let mut crashes = Crashes::new(RULES);
        for n in 0..100 {
            assert_eq!(
                crashes.crashed(ms(1_000 + n), 7, ms(900)),
                None,
                "one round"
            );
        }
        assert_eq!(crashes.suspects()[0].crashes, 1);
        for n in 0..100 {
            let now = ms(10_000 * n);
            assert_eq!(
                crashes.crashed(now.after(ms(9_000)), 7, now.after(ms(8_000))),
                None
            );
        }
        let mut never = Crashes::new(CrashRules { limit: 0, ..RULES });
        for n in 0..100 {
            assert_eq!(never.crashed(ms(n), 7, ms(n)), None);
        }
        assert_eq!(never.suspects(), []);
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for_and_the_refused_longest() {
        let mut crashes = Crashes::new(CrashRules { limit: 1, ..RULES });
        assert!(crashes.crashed(ms(0), 1, ms(0)).is_some());
        crashes.rules.limit = 2;
        for key in 2..10_000 {
            assert_eq!(crashes.crashed(ms(key), key, ms(key)), None);
            assert!(crashes.suspects().len() <= MOST);
        }
        assert!(crashes.may_run(ms(9_999), 1).is_err());
    }
}
