//! Measures how many of the machine's processors are idle, for `pm = "auto"` while requests wait. There are two
//! measurements, and the lower one counts: the kernel's figure for the machine, and the part of weir's processors
//! (fewer in a container) that the pool's own workers do not use.

use std::time::Duration;

use weir_sys::cpu;

/// The values of the last measurement.
#[derive(Debug, Default)]
pub(super) struct Processors {
    at: u64,
    machine: Option<(u64, u64)>,
    /// CPU time that each worker had used.
    workers: Vec<(u32, Duration)>,
}

impl Processors {
    /// Measures at `now` (µs). Returns the idle share since the last measurement in per mille, if that was recent.
    /// `cores`: processors that weir may use.
    pub(super) fn look(&mut self, now: u64, pids: &[u32], cores: usize) -> Option<u32> {
        let span = now.saturating_sub(self.at);
        if span < SHORTEST {
            return None;
        }
        let machine = cpu::of_machine();
        let used = pids.iter().take(MOST);
        let workers: Vec<(u32, Duration)> = used
            .filter_map(|pid| Some((*pid, cpu::of(*pid)?)))
            .collect();
        let of_machine = self.machine.zip(machine).and_then(|(before, effects)| {
            let all = effects.0.saturating_sub(before.0);
            let idle = effects.1.saturating_sub(before.1).min(all);
            (idle * 1_000).checked_div(all)
        });
        let own: Duration = workers
            .iter()
            .map(|(pid, used)| self.since(*pid, *used))
            .sum();
        let own = own.as_micros() as u64 * 1_000 / (span * cores.max(1) as u64);
        let own_idle = 1_000_u64.saturating_sub(own);
        *self = Processors {
            at: now,
            machine,
            workers,
        };
        let idle = of_machine.map_or(own_idle, |idle| idle.min(own_idle));
        (span <= LONGEST).then_some(idle as u32)
    }

    /// CPU time that a worker has used since the last measurement.
    fn since(&self, pid: u32, used: Duration) -> Duration {
        let before = self.workers.iter().find(|(other, _)| *other == pid);
        before.map_or(Duration::ZERO, |(_, before)| used.saturating_sub(*before))
    }
}

/// Minimum time between two measurements, µs: the kernel counts in hundredths of a second.
const SHORTEST: u64 = 80_000;

/// After this time the last measurement is too old, µs.
const LONGEST: u64 = 500_000;

/// Maximum number of workers that are measured.
const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_computes_leaves_the_other_processors_idle() {
        let mut processors = Processors::default();
        let own = [std::process::id()];
        assert_eq!(
            processors.look(1_000_000, &own, 1),
            None,
            "nothing to compare with"
        );
        assert_eq!(processors.look(1_010_000, &own, 1), None, "too soon");
        let began = cpu::of_thread();
        while cpu::of_thread() - began < Duration::from_millis(100) {
            std::hint::black_box(began);
        }
        // As if the time was as long as the computation.
        let idle = processors.look(1_100_000, &own, 1).expect("a share");
        assert_eq!(idle, 0);
        assert_eq!(processors.look(9_000_000, &own, 1), None, "too late");
    }
}
