//! Whether threads that must not stand still move: each tells so again and again, and whoever asks is told of the one that
//! has not for longest.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::clock;

/// The threads of a process that must move. A copy is the same.
#[derive(Debug, Clone, Default)]
pub struct Pulses(Arc<Mutex<Vec<Pulse>>>);

/// One of them. A copy is the same.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulses {
    /// Another thread, which has just moved.
    pub fn add(&self) -> Pulse {
        let pulse = Pulse(Arc::new(AtomicU64::new(clock::precise())));
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(pulse.clone());
        pulse
    }

    /// How long the one has not moved that has not for longest; zero: there is none.
    pub fn silent(&self) -> Duration {
        let now = clock::precise();
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = list
            .iter()
            .map(|pulse| now.saturating_sub(pulse.0.load(Relaxed)));
        Duration::from_micros(silent.max().unwrap_or(0))
    }
}

impl Pulse {
    /// It moves.
    pub fn beat(&self) {
        self.0.store(clock::precise(), Relaxed);
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
        let (one, other) = (pulses.add(), pulses.add());
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
}
