//! Whether threads that must not stand still move: each tells so again and again, and whoever asks is told of the one that
//! has not for longest.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::clock;

/// The threads of a process that must move. A copy is the same.
#[derive(Debug, Clone, Default)]
pub struct Pulses(Arc<Mutex<Vec<(Thread, Pulse)>>>);

/// Which thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    /// A reactor of the gateway, by its number.
    Reactor(u16),
    /// A thread that carries calls of the application.
    Egress,
}

/// The sign of life of one of them. A copy is the same.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulses {
    /// Another thread, which has just moved.
    pub fn add(&self, thread: Thread) -> Pulse {
        let pulse = Pulse(Arc::new(AtomicU64::new(clock::precise())));
        self.list().push((thread, pulse.clone()));
        pulse
    }

    /// How long the one has not moved that has not for longest; zero: there is none.
    pub fn silent(&self) -> Duration {
        let now = clock::precise();
        let list = self.list();
        list.iter()
            .map(|(_, pulse)| pulse.silent(now))
            .max()
            .unwrap_or_default()
    }

    /// The gateway's reactors that have not moved for `limit` or longer, with that time.
    pub fn silent_reactors(&self, limit: Duration) -> Vec<(u16, Duration)> {
        let now = clock::precise();
        let list = self.list();
        let reactors = list.iter().filter_map(|(thread, pulse)| match thread {
            Thread::Reactor(number) => Some((*number, pulse.silent(now))),
            Thread::Egress => None,
        });
        reactors.filter(|(_, silent)| *silent >= limit).collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<(Thread, Pulse)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pulse {
    /// It moves.
    pub fn beat(&self) {
        self.0.store(clock::precise(), Relaxed);
    }

    /// How long it has not moved at `now`.
    fn silent(&self, now: u64) -> Duration {
        Duration::from_micros(now.saturating_sub(self.0.load(Relaxed)))
    }

    /// Beats for as long as the runtime turns that this is polled by. Runs for ever.
    pub async fn keep(self) {
        loop {
            self.beat();
            tokio::time::sleep(EVERY).await;
        }
    }
}

/// How often a thread that waits moves.
const EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silence_is_told() {
        let pulses = Pulses::default();
        assert_eq!(pulses.silent(), Duration::ZERO);
        let (one, other) = (pulses.add(Thread::Reactor(3)), pulses.add(Thread::Egress));
        let begun = std::time::Instant::now();
        let pause = Duration::from_millis(20);
        while begun.elapsed() < pause {
            one.beat();
        }
        assert!(pulses.clone().silent() >= pause);
        other.beat();
        one.beat();
        assert!(pulses.silent() < Duration::from_secs(20));
    }

    #[test]
    fn reactors_are_told_by_their_numbers() {
        let pulses = Pulses::default();
        let (_egress, moves, stands) = (
            pulses.add(Thread::Egress),
            pulses.add(Thread::Reactor(0)),
            pulses.add(Thread::Reactor(1)),
        );
        // The clock begins with the process: a time before that lies in the future.
        moves.0.store(clock::precise() + 60_000_000, Relaxed);
        let limit = Duration::from_millis(20);
        while stands.silent(clock::precise()) < limit {}
        let silent = pulses.silent_reactors(limit);
        assert_eq!(silent.len(), 1, "{silent:?}");
        assert_eq!(silent[0].0, 1);
        assert!(silent[0].1 >= limit);
    }
}
