//! Detects threads that hang although they must make progress: each reports regularly, and the longest time without a
//! report can be queried.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::clock;

/// The threads of a process that must make progress. Copies share the list.
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

/// The reports of one thread. Copies share the value.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulses {
    /// Adds a thread, with a report now.
    pub fn add(&self, thread: Thread) -> Pulse {
        let pulse = Pulse(Arc::new(AtomicU64::new(clock::precise())));
        self.list().push((thread, pulse.clone()));
        pulse
    }

    /// The longest time since a thread's last report; zero: there are no threads.
    pub fn silent(&self) -> Duration {
        let now = clock::precise();
        let list = self.list();
        list.iter()
            .map(|(_, pulse)| pulse.silent(now))
            .max()
            .unwrap_or_default()
    }

    /// The gateway's reactors that have not reported for `limit` or longer, with that time.
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
    /// Reports progress.
    pub fn beat(&self) {
        self.0.store(clock::precise(), Relaxed);
    }

    /// Reports that the thread sleeps: until its next report it is not silent.
    pub fn rest(&self) {
        self.0.store(u64::MAX, Relaxed);
    }

    /// Time since the last report, at `now`.
    fn silent(&self, now: u64) -> Duration {
        Duration::from_micros(now.saturating_sub(self.0.load(Relaxed)))
    }

    /// Reports regularly as long as the runtime that polls this runs. Never returns.
    pub async fn keep(self) {
        loop {
            self.beat();
            tokio::time::sleep(EVERY).await;
        }
    }
}

/// How often a waiting thread reports.
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
    fn a_thread_that_sleeps_is_not_silent() {
        let pulses = Pulses::default();
        let sleeps = pulses.add(Thread::Reactor(1));
        sleeps.rest();
        assert_eq!(pulses.silent(), Duration::ZERO);
        assert_eq!(pulses.silent_reactors(Duration::from_nanos(1)), []);
    }

    #[test]
    fn reactors_are_told_by_their_numbers() {
        let pulses = Pulses::default();
        let (_egress, moves, stands) = (
            pulses.add(Thread::Egress),
            pulses.add(Thread::Reactor(0)),
            pulses.add(Thread::Reactor(1)),
        );
        // The clock starts with the process, so the test uses a time in the future instead of an earlier one.
        moves.0.store(clock::precise() + 60_000_000, Relaxed);
        let limit = Duration::from_millis(20);
        while stands.silent(clock::precise()) < limit {}
        let silent = pulses.silent_reactors(limit);
        assert_eq!(silent.len(), 1, "{silent:?}");
        assert_eq!(silent[0].0, 1);
        assert!(silent[0].1 >= limit);
    }
}
