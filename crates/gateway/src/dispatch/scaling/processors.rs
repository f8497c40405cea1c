//! Measures what busy workers do with the processors, for `pm = "auto"` while requests wait: how long they ran, and how
//! long they wanted to run. `weir_pool::ProcessorUse` says what follows from it.
//!
//! The kernel's figures for a process are the time that it ran, and the time that it waited for a processor
//! (/proc/PID/schedstat). The second figure does not include the present wait, and is only about the first thread. If
//! it cannot be read (a gateway in a chroot, /proc with `hidepid`), the number of runnable threads of the machine is
//! used instead.

use std::time::Duration;

use weir_pool::{ProcessorUse, Surroundings, Worked};
use weir_sys::cpu::{self, MachineTime, Scheduled};

/// The values of the last measurement.
#[derive(Debug, Default)]
pub(crate) struct Processors {
    at: u64,
    machine: Option<MachineTime>,
    workers: Vec<Worker>,
}

/// The CPU time of a worker at the last measurement.
#[derive(Debug, Clone, Copy)]
struct Worker {
    pid: u32,
    cpu: Duration,
    scheduled: Option<Scheduled>,
}

impl Processors {
    /// Measures at `now` (µs). Returns what the workers did since the last measurement, if that was recent.
    /// `cores`: processors that weir may use.
    pub(crate) fn look(&mut self, now: u64, pids: &[u32], cores: usize) -> Option<ProcessorUse> {
        let span = now.saturating_sub(self.at);
        if span < SHORTEST {
            return None;
        }
        let workers: Vec<Worker> = pids
            .iter()
            .take(MOST)
            .filter_map(|pid| Worker::look(*pid))
            .collect();
        let before = std::mem::replace(
            self,
            Processors {
                at: now,
                machine: cpu::of_machine(),
                workers,
            },
        );
        if span > LONGEST {
            return None;
        }
        let worked: Vec<Worked> = self
            .workers
            .iter()
            .filter_map(|worker| {
                let before = before.workers.iter().find(|old| old.pid == worker.pid)?;
                Some(worker.since(before, span))
            })
            .collect();
        let stolen = before.machine.zip(self.machine).and_then(|(old, new)| {
            let all = new.all.saturating_sub(old.all);
            (new.stolen.saturating_sub(old.stolen).min(all) * 1_000).checked_div(all)
        });
        // This thread runs, too.
        let others = cpu::runnable().map(|all| all.saturating_sub(1));
        let cores = cores.max(1);
        ProcessorUse::of(
            &worked,
            &Surroundings {
                span,
                cores,
                busy: pids.len(),
                crowd: others.map(|others| others.saturating_mul(1_000) / cores as u32),
                stolen: stolen.unwrap_or(0) as u32,
            },
        )
    }
}

impl Worker {
    fn look(pid: u32) -> Option<Worker> {
        Some(Worker {
            pid,
            cpu: cpu::of(pid)?,
            scheduled: cpu::scheduled(pid),
        })
    }

    /// The worker's use of the processor since then; `span`: the time since then, µs.
    fn since(&self, before: &Worker, span: u64) -> Worked {
        let cpu = self.cpu.saturating_sub(before.cpu);
        let micros = |time: Duration| time.as_micros() as u64;
        let known = before.scheduled.zip(self.scheduled);
        let delayed = known.and_then(|(before, after)| {
            let ran = after.ran.saturating_sub(before.ran);
            if cpu > ran * 2 + OF_OTHERS {
                // Other threads than the first one compute.
                return None;
            }
            let delayed = micros(after.delayed.saturating_sub(before.delayed));
            let rest = span.saturating_sub(micros(cpu) + delayed);
            // The present wait, if there is one, is about as long as the others.
            let present = match cpu::is_runnable(self.pid) {
                true => match (delayed * 2).checked_div(after.turns.saturating_sub(before.turns)) {
                    Some(usual) => usual.min(rest),
                    None => rest,
                },
                false => 0,
            };
            Some(delayed + present)
        });
        Worked {
            cpu: micros(cpu),
            delayed,
        }
    }
}

/// Minimum time between two measurements, µs: the kernel counts the time of a hypervisor in hundredths of a second.
const SHORTEST: u64 = 80_000;

/// After this time the last measurement is too old, µs.
const LONGEST: u64 = 500_000;

/// Maximum number of workers that are measured: it takes about 20 µs for each.
const MOST: usize = 64;

/// Time of processors that threads of a worker may use beside its first thread, as a control thread does.
const OF_OTHERS: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::{
        process::{Child, Command},
        thread,
        time::Instant,
    };

    use super::*;

    #[test]
    fn one_that_computes_leaves_no_processor_unused() {
        let mut processors = Processors::default();
        let own = [std::process::id()];
        let first = processors.look(1_000_000, &own, 1);
        assert_eq!(first, None, "nothing to compare with");
        let soon = processors.look(1_010_000, &own, 1);
        assert_eq!(soon, None, "too soon");
        let began = cpu::of_thread();
        while cpu::of_thread() - began < Duration::from_millis(100) {
            std::hint::black_box(began);
        }
        // The measured time is set to the length of the computation.
        let found = processors.look(1_100_000, &own, 1).expect("a use");
        assert_eq!((found.unused, found.waiting), (0, 0));
        assert_eq!(processors.look(9_000_000, &own, 1), None, "too late");
    }

    struct Running(Vec<Child>);

    impl Drop for Running {
        fn drop(&mut self) {
            for child in &mut self.0 {
                child.kill().expect("kill");
                child.wait().expect("wait");
            }
        }
    }

    /// Measures how long these scripts wait beside neighbours, until four measurements in a row say in the mean what is expected. The first
    /// ones are about the scripts' start, and other work on the machine may spoil some.
    #[track_caller]
    fn expect_waiting(script: &str, neighbours: usize, is_expected: impl Fn(u32) -> bool) {
        let start = |script| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]).spawn().expect("sh")
        };
        let spin = (0..neighbours).map(|_| start("while :; do :; done"));
        let _neighbours = Running(spin.collect());
        let workers = Running((0..2).map(|_| start(script)).collect());
        let pids: Vec<u32> = workers.0.iter().map(Child::id).collect();
        let (began, mut processors, mut found) = (Instant::now(), Processors::default(), vec![]);
        let mean = |last: &[ProcessorUse]| last.iter().map(|one| one.waiting).sum::<u32>() / 4;
        while !found
            .last_chunk::<4>()
            .is_some_and(|last| is_expected(mean(last)))
        {
            let all: Vec<u32> = found.iter().map(|one| one.waiting).collect();
            assert!(began.elapsed() < LIMIT, "{script}, {neighbours}: {all:?}");
            thread::sleep(Duration::from_millis(90));
            let now = 1_000_000 + began.elapsed().as_micros() as u64;
            found.extend(processors.look(now, &pids, 2));
        }
    }

    #[test]
    fn neighbours_do_not_make_a_script_that_computes_one_that_waits() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for neighbours in [0, 4 * cores] {
            expect_waiting("while :; do :; done", neighbours, |waits| waits < 200);
            expect_waiting("exec sleep 60", neighbours, |waits| waits > 900);
        }
    }

    const LIMIT: Duration = Duration::from_secs(30);
}
