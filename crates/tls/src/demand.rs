//! Certificates on demand: handshakes for names that have no certificate yet wait here for one, a limited time.
//!
//! The gateway reports the name to the manager, and the manager answers with a certificate or a refusal, and how long
//! to keep the refusal. The numbers of waiting names and handshakes and of kept refusals are limited, and so is the
//! rate of reports.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::{Duration, Instant},
};

/// The names that handshakes wait for.
pub struct Demand {
    /// How long a handshake waits.
    pub limit: Duration,
    /// Tells the manager a name.
    tell: Box<dyn Fn(&str) + Send + Sync>,
    state: Mutex<State>,
    /// The time that each new name uses up, and how far in advance it may be used.
    interval: Duration,
    tolerance: Duration,
}

#[derive(Default)]
struct State {
    waiting: HashMap<Box<str>, Waiting>,
    /// Handshakes in `waiting`.
    handshakes: usize,
    /// Until when names are refused.
    refused: HashMap<Box<str>, Instant>,
    /// When the rate allows the next name.
    next: Option<Instant>,
    /// The number of the last handshake.
    last: u64,
}

struct Waiting {
    /// When it was told last.
    told: Instant,
    handshakes: HashMap<u64, Waker>,
}

/// What a handshake without a certificate may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Wait: its waker is kept.
    Wait,
    /// There is no certificate.
    Refused,
}

impl Demand {
    /// `limit`: how long a handshake waits. `interval`: one new name is told in this time on average, `burst` more at once.
    /// `tell` tells the manager a name.
    pub fn new(
        limit: Duration,
        (interval, burst): (Duration, u32),
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Demand {
        Demand {
            limit,
            tell: Box::new(tell),
            state: Mutex::default(),
            interval,
            tolerance: interval.saturating_mul(burst),
        }
    }

    /// A number for another handshake.
    pub(crate) fn number(&self) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        state.last
    }

    /// A handshake needs a certificate for this name. `number` is its own.
    pub(crate) fn ask(&self, name: &str, number: u64, waker: &Waker) -> Verdict {
        let now = Instant::now();
        let mut state = self.lock();
        let is_known = state.waiting.contains_key(name);
        if !is_known {
            if state.refused.get(name).is_some_and(|until| now < *until) {
                return Verdict::Refused;
            }
            state.refused.remove(name);
            let next = state.next.map_or(now, |next| next.max(now));
            if state.waiting.len() >= MOST_NAMES || next > now + self.tolerance {
                return Verdict::Refused;
            }
            state.next = Some(next + self.interval);
            let waiting = Waiting {
                told: now,
                handshakes: HashMap::new(),
            };
            state.waiting.insert(name.into(), waiting);
        }
        let has_room = state.handshakes < MOST_HANDSHAKES;
        let Some(waiting) = state.waiting.get_mut(name) else {
            return Verdict::Refused;
        };
        // The manager is told again after a while: the message may be lost, or a newer manager may have replaced the
        // old one.
        let tells = !is_known || now >= waiting.told + TELL_AGAIN;
        if tells {
            waiting.told = now;
        }
        if let Some(known) = waiting.handshakes.get_mut(&number) {
            known.clone_from(waker);
        } else if has_room {
            waiting.handshakes.insert(number, waker.clone());
            state.handshakes += 1;
        } else {
            return Verdict::Refused;
        }
        drop(state);
        if tells {
            (self.tell)(name);
        }
        Verdict::Wait
    }

    /// A handshake waits no more.
    pub(crate) fn forget(&self, name: &str, number: u64) {
        let mut state = self.lock();
        let Some(waiting) = state.waiting.get_mut(name) else {
            return;
        };
        if waiting.handshakes.remove(&number).is_some() {
            let is_last = waiting.handshakes.is_empty();
            state.handshakes -= 1;
            if is_last {
                state.waiting.remove(name);
            }
        }
    }

    /// There is no certificate for this name, and it is not asked for again for this time.
    pub fn refuse(&self, name: &str, pause: Duration) {
        let now = Instant::now();
        let mut state = self.lock();
        if state.refused.len() >= MOST_REFUSED {
            state.refused.retain(|_, until| now < *until);
        }
        // The manager keeps refused names, too. A name that is forgotten here costs only a message.
        if state.refused.len() >= MOST_REFUSED {
            state.refused.clear();
        }
        // Waiting handshakes must find the refusal when they are woken.
        let until = now + pause.max(SHORTEST_REFUSAL);
        state.refused.insert(name.into(), until);
        let Some(waiting) = state.waiting.remove(name) else {
            return;
        };
        state.handshakes -= waiting.handshakes.len();
        drop(state);
        waiting.handshakes.into_values().for_each(Waker::wake);
    }

    /// Certificates have changed: handshakes that wait look again.
    pub(crate) fn wake_all(&self) {
        let state = self.lock();
        let waiting = state.waiting.values();
        let wakers: Vec<Waker> = waiting
            .flat_map(|waiting| waiting.handshakes.values().cloned())
            .collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Names and handshakes that wait, and refusals that are kept.
    pub fn counts(&self) -> [usize; 3] {
        let state = self.lock();
        [state.waiting.len(), state.handshakes, state.refused.len()]
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Demand")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Names that are waited for at once.
const MOST_NAMES: usize = 100;

/// Handshakes that wait at once.
const MOST_HANDSHAKES: usize = 1000;

/// Refusals that are kept.
const MOST_REFUSED: usize = 2000;

/// A name that is still waited for is told again after this time.
const TELL_AGAIN: Duration = Duration::from_secs(5);

/// A name is refused for so long at least.
const SHORTEST_REFUSAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use super::*;

    fn demand(burst: u32) -> (Demand, Arc<AtomicUsize>) {
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        let tell = move |_: &str| {
            count.fetch_add(1, Relaxed);
        };
        let hour = Duration::from_secs(3600);
        (Demand::new(hour, (hour, burst), tell), told)
    }

    #[test]
    fn handshakes_for_one_name_wait_together_and_the_manager_is_told_once() {
        let (demand, told) = demand(0);
        let waker = Waker::noop();
        for number in 0..50 {
            assert_eq!(demand.ask("shop.example", number, waker), Verdict::Wait);
        }
        assert_eq!((told.load(Relaxed), demand.counts()), (1, [1, 50, 0]));
        // The rate allows no second name within the hour.
        assert_eq!(demand.ask("b.example", 60, waker), Verdict::Refused);
        (0..49).for_each(|number| demand.forget("shop.example", number));
        demand.forget("shop.example", 1);
        assert_eq!(demand.counts(), [1, 1, 0]);
        demand.refuse("shop.example", Duration::from_secs(60));
        assert_eq!(demand.counts(), [0, 0, 1]);
        assert_eq!(demand.ask("shop.example", 1, waker), Verdict::Refused);
        assert_eq!(told.load(Relaxed), 1);
    }

    #[test]
    fn names_that_clients_invent_do_not_grow_anything() {
        let (demand, told) = demand(1_000_000);
        let waker = Waker::noop();
        for number in 0..5000 {
            let name = format!("{number}.example");
            let verdict = demand.ask(&name, number, waker);
            assert_eq!(verdict == Verdict::Wait, number < MOST_NAMES as u64);
        }
        assert_eq!(told.load(Relaxed), MOST_NAMES);
        for number in 0..5000 {
            demand.refuse(&format!("{number}.example"), Duration::from_secs(60));
        }
        let [names, handshakes, refused] = demand.counts();
        assert!(names == 0 && handshakes == 0 && refused <= MOST_REFUSED);
        // Many handshakes for one name.
        for number in 0..5000 {
            demand.ask("shop.example", number, waker);
        }
        assert_eq!(demand.counts()[..2], [1, MOST_HANDSHAKES]);
    }
}
