//! What a pool's busy workers do with the processors (`auto`): whether their scripts compute or wait.
//!
//! A busy worker runs on a processor, or wants one and waits for it, or sleeps until something else has answered: a
//! database, an API, a lock. How idle the machine is shows none of this, because other programs use it, too. Two figures
//! do, and neither depends on these programs:
//!
//! - what the pool's workers themselves use of the processors,
//! - how much of their time scripts **wait**: the time in which they slept, beside the time in which they ran. The time
//!   in which they wanted a processor and had none is left out. It depends on how many other processes want a
//!   processor, not on the scripts.
//!
//! The kernel tells how long a process wanted a processor (`delayed`). If it does not, there is a bound: the time that
//! a process runs, times the number of processes that share a processor (`crowd`), because a scheduler that is fair
//! gives none of them much less than the others.
//!
//! Pressure stall information (/proc/pressure/cpu, or cpu.pressure of a control group) is not used. It tells for how long
//! some process wanted a processor and had none. Beside other programs that is nearly always so, and it does not say
//! whether the process was a worker of this pool. `delayed` is the same time for each worker.

/// A busy worker over the time of a measurement, µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Worked {
    /// Time of processors that it used.
    pub cpu: u64,
    /// How long it wanted a processor and had none; `None`: the kernel does not tell.
    pub delayed: Option<u64>,
}

/// The circumstances of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    /// How long it took, µs.
    pub span: u64,
    /// Processors that the pool may use.
    pub cores: usize,
    /// Busy workers. Not all of them need to be measured.
    pub busy: usize,
    /// Processes that want a processor now, for each processor, per mille; `None`: not known.
    pub crowd: Option<u32>,
    /// Part of the processors' time that a hypervisor gave to others, per mille.
    pub stolen: u32,
}

/// How a pool uses the processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessorUse {
    /// The part of the processors that the pool's workers leave unused, per mille. Other programs do not change it.
    pub unused: u32,
    /// How much of their time its scripts wait for something else than a processor, per mille.
    pub waiting: u32,
}

impl ProcessorUse {
    /// `None`: nothing was measured.
    pub fn of(workers: &[Worked], at: &Surroundings) -> Option<Self> {
        let time = at.span.checked_mul(workers.len() as u64)?;
        if time == 0 {
            return None;
        }
        let cpu = workers.iter().map(|worker| worker.cpu).sum::<u64>();
        let slept = workers
            .iter()
            .map(|worker| at.span.saturating_sub(at.wanted_by(worker)))
            .sum::<u64>();
        // A smaller time may be only the error of the measurement.
        let waiting = match slept * 10 >= time {
            true => slept * 1_000 / (slept + cpu).max(1),
            false => 0,
        };
        let all = u128::from(at.span) * at.cores.max(1) as u128;
        let used = u128::from(cpu) * at.busy as u128 * 1_000 / (all * workers.len() as u128);
        Some(Self {
            unused: 1_000 - used.min(1_000) as u32,
            waiting: waiting.min(1_000) as u32,
        })
    }
}

impl Surroundings {
    /// How long a worker ran or wanted to run, at most, µs.
    fn wanted_by(&self, worker: &Worked) -> u64 {
        // While the hypervisor has the processor, the kernel counts nothing.
        let ran = worker.cpu * 1_000 / u64::from(1_000 - self.stolen.min(999));
        if let Some(delayed) = worker.delayed {
            return ran.saturating_add(delayed);
        }
        let crowd = self.crowd.map_or(1_000, |crowd| {
            // During the measurement, the crowd may have been larger by half than at this moment.
            u64::from(crowd.max(1_000)) * 3 / 2
        });
        ran.saturating_mul(crowd) / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: u64 = 100_000;

    fn at(cores: usize, busy: usize) -> Surroundings {
        Surroundings {
            span: SPAN,
            cores,
            busy,
            crowd: None,
            stolen: 0,
        }
    }

    fn found(cpu: u64, delayed: Option<u64>, at: &Surroundings) -> (u32, u32) {
        let found = ProcessorUse::of(&[Worked { cpu, delayed }; 2], at).expect("workers");
        (found.unused, found.waiting)
    }

    #[test]
    fn neighbours_make_nobody_wait_and_let_nobody_compute() {
        // Alone, and with as many neighbours as take nine tenths of the processors.
        assert_eq!(found(SPAN, Some(0), &at(2, 2)), (0, 0));
        assert_eq!(found(10_000, Some(90_000), &at(2, 2)), (900, 0));
        // Without neighbours this script computes for 2 of 30 ms.
        assert_eq!(found(6_666, Some(0), &at(2, 2)).1, 933);
        assert_eq!(found(2_083, Some(68_750), &at(2, 2)).1, 933);
        // Two were measured of eight.
        assert_eq!(found(10_000, Some(0), &at(2, 8)).0, 600);
        assert_eq!(ProcessorUse::of(&[], &at(2, 2)), None);
    }

    #[test]
    fn where_the_kernel_does_not_tell_a_bound_does() {
        let crowd = |crowd| Surroundings {
            crowd: Some(crowd),
            ..at(2, 2)
        };
        // There are ten processes for each processor, and this one runs for a tenth of the time. So it computes all the
        // time.
        assert_eq!(found(10_000, None, &crowd(10_000)).1, 0);
        assert_eq!(found(70_000, None, &crowd(0)).1, 0);
        // It runs far less.
        assert!(found(100, None, &crowd(10_000)).1 >= 990);
        assert!(found(10_000, None, &crowd(1_000)).1 >= 890);
        assert!(found(10_000, None, &at(2, 2)).1 >= 900, "nothing is known");
    }

    #[test]
    fn processors_that_a_hypervisor_takes_away_are_not_waited_for() {
        let stolen = Surroundings {
            stolen: 800,
            ..at(2, 2)
        };
        assert_eq!(found(20_000, Some(0), &stolen), (800, 0));
        assert!(found(1_000, Some(0), &stolen).1 >= 980);
    }
}
