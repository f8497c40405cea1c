//! Derives from measurements how many workers and how long a queue a pool needs. Pure: no clock, no machine; it knows
//! only its input.
//!
//! The calculation is Little's law (requests at work = rate × time that each is at work) with two limits: the
//! processors (rate ≤ cores ÷ CPU time of a request), and the highest rate that the load has shown (if something
//! else, such as a database, is the limit).

/// The result of one step of the load: this many users, each waiting for its answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Users.
    pub users: u32,
    /// Good answers a second.
    pub rate: f64,
    /// Mean time of good answers, s.
    pub mean: f64,
    /// 95 of 100 answers came within this time, s.
    pub p95: f64,
    /// Share of refused and failed requests, 0 to 1.
    pub failed: f64,
    /// Processors that worked for the load, without the load generator; `None`: it cannot be seen.
    pub cpu: Option<f64>,
}

/// Everything that is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// With increasing numbers of users.
    pub steps: Vec<Step>,
    /// Processors.
    pub cores: f64,
    /// How many of these other programs kept busy before the load began.
    pub others: f64,
    /// Time that a worker needs for a request without other load, s; `None`: not known, the answer's time is used.
    pub service: Option<f64>,
    /// Memory of a worker, bytes.
    pub worker_memory: Option<u64>,
    /// Memory that all workers together may use, bytes.
    pub memory: Option<u64>,
    /// The present maximum of workers.
    pub workers: Option<u32>,
    /// How long a request may wait, s.
    pub target_wait: f64,
    /// The kernel's maximum for accept queues.
    pub somaxconn: Option<u32>,
}

/// What limits the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The processors.
    Cpu,
    /// The number of workers.
    Workers,
    /// Memory for more workers.
    Memory,
    /// Something that cannot be seen: a database, a lock, a disk, another host.
    Elsewhere,
}

/// The advice, with reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// Number of users from which on more users make no difference.
    pub knee: u32,
    /// Good answers a second at most, measured.
    pub measured_rate: f64,
    /// The same with this advice, estimated.
    pub rate: f64,
    /// Time of a request without other load, s.
    pub service: f64,
    /// CPU time of a request, s.
    pub cpu_per_request: Option<f64>,
    /// The limit that remains then.
    pub bound: Bound,
    /// Number of workers, and of requests at work.
    pub workers: u32,
    /// Maximum wait, s.
    pub timeout: f64,
    /// Maximum number of waiting requests.
    pub max_queue: u64,
    /// The kernel's accept queue.
    pub backlog: u32,
    /// The reasons, one sentence each.
    pub reasons: Vec<String>,
    /// Doubts that should be checked before the advice is used.
    pub doubts: Vec<String>,
}

/// The number of users of the next step; `None`: enough is known.
pub fn next(steps: &[Step]) -> Option<u32> {
    let Some(last) = steps.last() else {
        return Some(1);
    };
    if last.failed > MOST_FAILED || last.users >= MOST_USERS {
        return None;
    }
    // Two steps in a row that made no difference.
    if let [.., before, middle, last] = steps
        && middle.rate.max(last.rate) < before.rate * STILL_GROWS
    {
        return None;
    }
    Some(last.users * 2)
}

/// Decides.
///
/// # Errors
/// If there is nothing to decide from; with the reason.
pub fn decide(facts: &Facts) -> Result<Advice, String> {
    let measured = Measured::of(facts)?;
    let mut notes = Notes::default();
    notes.reason(format!(
        "a single request keeps a worker busy for {}; with more than {} users, the rate did not rise above {} a second",
        time(measured.service),
        measured.knee,
        rate(measured.best.rate)
    ));
    let (bound, possible) = find_bound(facts, &measured, &mut notes);
    let workers = choose_workers(facts, &measured, (bound, possible), &mut notes);
    let (bound, workers) = fit_memory(facts, bound, workers, &mut notes);
    // With that many at work.
    let possible = possible
        .min(f64::from(workers) / measured.service)
        .max(1e-3);
    let timeout = round_time(facts.target_wait.max(MIN_TIMEOUT));
    let max_queue = round_up(possible * timeout).max(u64::from(workers));
    if facts.target_wait < measured.service {
        notes.doubt(format!(
            "a request itself takes {}, which is longer than the target wait",
            time(measured.service)
        ));
    }
    notes.reason(format!(
        "requests that wait {} are refused; {} a second × {} = {max_queue} may wait, because more would not be served in time",
        time(timeout),
        rate(possible),
        time(timeout)
    ));
    let backlog = backlog(possible);
    let grants = match facts.somaxconn {
        Some(grants) if grants < backlog => {
            format!("; the kernel grants {grants}: sysctl -w net.core.somaxconn={backlog}")
        }
        _ => String::new(),
    };
    notes.reason(format!(
        "the accept queue takes the connections of one second at {FLASH} times that rate: {backlog}{grants}"
    ));
    doubt_measurement(facts, &measured, &mut notes);
    Ok(Advice {
        knee: measured.knee,
        measured_rate: measured.best.rate,
        rate: possible,
        service: measured.service,
        cpu_per_request: measured.cpu,
        bound,
        workers,
        timeout,
        max_queue,
        backlog,
        reasons: notes.reasons,
        doubts: notes.doubts,
    })
}

/// What the steps show.
struct Measured<'f> {
    /// Number of usable steps.
    usable: usize,
    /// The step with the highest rate. The other figures are from it, because there the machine's other work matters
    /// least.
    best: &'f Step,
    knee: u32,
    /// Time of a request without other load, s.
    service: f64,
    /// CPU time of a request, s.
    cpu: Option<f64>,
    /// How busy the processors were with it, 0 to 1.
    busy: f64,
    /// Other programs use the processors, too. Their CPU time is missing for the load.
    is_crowded: bool,
}

impl Measured<'_> {
    fn of(facts: &Facts) -> Result<Measured<'_>, String> {
        let is_usable = |step: &&Step| step.rate > 0.0 && step.failed <= MOST_FAILED;
        let usable: Vec<&Step> = facts.steps.iter().filter(is_usable).collect();
        let (Some(first), Some(best)) = (
            usable.first(),
            usable.iter().max_by(|a, b| a.rate.total_cmp(&b.rate)),
        ) else {
            return Err("no step got good answers: check what the URL answers without load".into());
        };
        let knee = usable
            .iter()
            .find(|step| step.rate >= best.rate * AT_THE_KNEE)
            .map_or(best.users, |step| step.users);
        let service = facts.service.filter(|time| *time > 0.0);
        Ok(Measured {
            usable: usable.len(),
            best,
            knee,
            service: service.unwrap_or(first.mean).max(1e-6),
            cpu: best.cpu.map(|cores| (cores / best.rate).max(1e-7)),
            busy: best.cpu.map_or(0.0, |cores| cores / facts.cores),
            is_crowded: facts.others >= facts.cores * CROWDED,
        })
    }
}

/// Sentences for the operator.
#[derive(Default)]
struct Notes {
    reasons: Vec<String>,
    doubts: Vec<String>,
}

impl Notes {
    fn reason(&mut self, reason: String) {
        self.reasons.push(reason);
    }

    fn doubt(&mut self, doubt: impl Into<String>) {
        self.doubts.push(doubt.into());
    }
}

/// What limits the rate, and the rate that is possible if there are enough workers.
fn find_bound(facts: &Facts, measured: &Measured<'_>, notes: &mut Notes) -> (Bound, f64) {
    let Measured { best, busy, .. } = *measured;
    if let Some(cpu) = measured.cpu {
        notes.reason(format!(
            "it needs {} of processor time; the {} cores were {:.0} % busy at {} a second",
            time(cpu),
            facts.cores,
            (busy * 100.0).min(100.0),
            rate(best.rate)
        ));
    }
    let all_busy = busy + facts.others / facts.cores >= BUSY;
    // More workers than this would be needed for the measured rate (Little's law).
    let at_work = best.rate * measured.service;
    let full = facts
        .workers
        .is_some_and(|workers| at_work >= f64::from(workers) * ALL_AT_WORK);
    match (measured.cpu.map(|cpu| facts.cores / cpu), full) {
        (Some(by_cpu), _) if busy >= BUSY || (measured.is_crowded && all_busy) => {
            (Bound::Cpu, by_cpu.max(best.rate))
        }
        (Some(by_cpu), true) => (Bound::Workers, by_cpu.max(best.rate)),
        (None, true) => (Bound::Workers, best.rate),
        _ => (Bound::Elsewhere, best.rate),
    }
}

/// As many workers as the possible rate needs, and some more.
fn choose_workers(
    facts: &Facts,
    measured: &Measured<'_>,
    (bound, possible): (Bound, f64),
    notes: &mut Notes,
) -> u32 {
    let wanted = (possible * measured.service * ROOM)
        .ceil()
        .clamp(1.0, f64::from(MOST_WORKERS));
    let mut workers = wanted as u32;
    if let Some(now) = facts.workers {
        let most = now.saturating_mul(MOST_GROWTH).max(MOST_GROWTH);
        if bound == Bound::Workers && workers > most {
            workers = most;
            notes.doubt(format!(
                "{wanted} workers would use the processors fully. That is far from the {now} that were measured: use this number, and measure again"
            ));
        }
    }
    // A machine that others keep busy answers slowly under any load, so few requests seem to be enough.
    let least = facts.cores.ceil().clamp(1.0, f64::from(MOST_WORKERS)) as u32;
    if measured.is_crowded && workers < least {
        workers = least;
        notes.doubt(format!(
            "other programs used the processors, so the best number of workers could not be measured: {least}, one for each processor, is the minimum; measure again on a quiet machine"
        ));
    }
    let (possible, service) = (rate(possible), time(measured.service));
    notes.reason(match bound {
        Bound::Cpu if measured.is_crowded => format!(
            "the processors are the limit, and other programs keep {:.1} of {} busy: on a quiet machine they could do {possible} a second, with {workers} workers",
            facts.others, facts.cores
        ),
        Bound::Cpu => format!(
            "the processors are the limit: {possible} a second × {service} × {ROOM} = {workers} workers keep them busy; more would only compete for them"
        ),
        Bound::Workers if measured.cpu.is_some() => format!(
            "the workers were the limit, not the processors, which could do {possible} a second: × {service} × {ROOM} = {workers} workers"
        ),
        Bound::Workers => format!(
            "the workers were the limit; it is not known whether the machine can do more: {possible} a second × {service} × {ROOM} = {workers} workers"
        ),
        Bound::Elsewhere | Bound::Memory => format!(
            "the limit was neither processors nor workers, but something that scripts wait for (a database, a lock, a disk, another host): {possible} a second × {service} × {ROOM} = {workers} workers are enough for it"
        ),
    });
    workers
}

/// Not more workers than the memory has room for.
fn fit_memory(facts: &Facts, bound: Bound, workers: u32, notes: &mut Notes) -> (Bound, u32) {
    let (Some(each), Some(all)) = (facts.worker_memory.filter(|size| *size > 0), facts.memory)
    else {
        notes.doubt("the memory of a worker could not be measured: check that this number fits");
        return (bound, workers);
    };
    let fit = u32::try_from(all / each).unwrap_or(u32::MAX);
    let relation = match fit < workers {
        true => "fewer than would be useful",
        false => "which is enough",
    };
    notes.reason(format!(
        "a worker needs {:.1} MB, so {fit} fit into {} MB: {relation}",
        each as f64 / f64::from(1 << 20),
        all >> 20
    ));
    if fit == 0 {
        notes.doubt("the free memory is not enough for even one worker");
    }
    match fit < workers {
        true => (Bound::Memory, fit.max(1)),
        false => (bound, workers),
    }
}

/// Doubts about the measurement itself.
fn doubt_measurement(facts: &Facts, measured: &Measured<'_>, notes: &mut Notes) {
    if measured.cpu.is_none() {
        notes.doubt("the processor use could not be measured: other programs keep the processors busy, or weir is on another machine");
    }
    if measured.usable < 3 {
        notes.doubt(
            "only a few steps could be used: measure for longer (-t), or without other load",
        );
    }
    let last = facts.steps.last();
    if last.is_some_and(|last| last.users >= MOST_USERS) && measured.knee >= MOST_USERS / 2 {
        notes.doubt(format!(
            "the rate was still growing at {MOST_USERS} users: the real limit is higher"
        ));
    }
}

fn backlog(rate: f64) -> u32 {
    let wanted = (rate * FLASH).clamp(f64::from(LEAST_BACKLOG), f64::from(MOST_BACKLOG));
    (wanted as u32).next_power_of_two().min(MOST_BACKLOG)
}

/// Rounded up to two digits.
fn round_up(value: f64) -> u64 {
    let digits = value.max(1.0).log10().floor() as i32 - 1;
    let unit = 10_f64.powi(digits.max(0));
    ((value / unit).ceil() * unit) as u64
}

/// Whole milliseconds, so that it can be written.
fn round_time(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

fn rate(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

fn time(seconds: f64) -> String {
    crate::bench::report::span(seconds)
}

/// A rate this near to the best counts as equal.
const AT_THE_KNEE: f64 = 0.95;

/// A step with a smaller gain has brought nothing.
const STILL_GROWS: f64 = 1.05;

/// A step with more failures says nothing about the capacity.
const MOST_FAILED: f64 = 0.05;

/// Processors that are busy for this share of the time count as fully busy.
const BUSY: f64 = 0.85;

/// If others keep the processors busy for this share of the time, little can be learned.
const CROWDED: f64 = 0.25;

/// Workers that were busy for this share of the time count as all busy.
const ALL_AT_WORK: f64 = 0.85;

/// Additional workers beyond the mean need, because requests differ.
const ROOM: f64 = 1.1;

/// Maximum number of users in the last step.
const MOST_USERS: u32 = 1024;

/// Maximum number of workers.
const MOST_WORKERS: u32 = 10_000;

/// Maximum factor over the measured number of workers.
const MOST_GROWTH: u32 = 10;

/// The assumed size of a burst, as a multiple of the rate.
const FLASH: f64 = 3.0;

const LEAST_BACKLOG: u32 = 512;
const MOST_BACKLOG: u32 = 65_536;

/// Seconds.
const MIN_TIMEOUT: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated machine: workers, processors, and a backend with a limited rate.
    struct World {
        cores: f64,
        workers: u32,
        /// Processor time and other time of a request, s.
        cpu: f64,
        idle: f64,
        /// Requests per second that the backend can serve.
        behind: f64,
        /// With more users than this it starts to swap.
        thrashes_at: u32,
    }

    const WORLD: World = World {
        cores: 2.0,
        workers: 1000,
        cpu: 0.01,
        idle: 0.0,
        behind: f64::INFINITY,
        thrashes_at: u32::MAX,
    };

    impl World {
        fn step(&self, users: u32) -> Step {
            let at_work = f64::from(users.min(self.workers));
            let alone = self.cpu + self.idle;
            let mut rate = (at_work / alone)
                .min(self.cores / self.cpu)
                .min(self.behind);
            if users > self.thrashes_at {
                rate *= f64::from(self.thrashes_at) / f64::from(users);
            }
            Step {
                users,
                rate,
                mean: f64::from(users) / rate,
                p95: 1.2 * f64::from(users) / rate,
                failed: 0.0,
                cpu: Some(rate * self.cpu),
            }
        }

        fn facts(&self) -> Facts {
            let mut steps = Vec::new();
            while let Some(users) = next(&steps) {
                steps.push(self.step(users));
            }
            Facts {
                steps,
                cores: self.cores,
                others: 0.0,
                service: None,
                worker_memory: Some(20 << 20),
                memory: Some(4 << 30),
                workers: Some(self.workers),
                target_wait: 1.0,
                somaxconn: Some(4096),
            }
        }

        fn advice(&self) -> Advice {
            decide(&self.facts()).unwrap()
        }
    }

    #[test]
    fn work_that_is_all_cpu_gets_about_a_worker_per_core() {
        for workers in [2, 20, 200] {
            let advice = World { workers, ..WORLD }.advice();
            assert_eq!(
                (advice.bound, advice.workers),
                (Bound::Cpu, 3),
                "{workers}: {advice:?}"
            );
            assert!((advice.rate - 200.0).abs() < 1.0);
            assert_eq!(advice.max_queue, 200);
            assert_eq!(advice.knee, 2);
            assert!((advice.cpu_per_request.unwrap() - 0.01).abs() < 1e-6);
        }
    }

    #[test]
    fn work_that_waits_gets_as_many_as_keep_the_cores_busy() {
        // 100 ms of sleep, 2 ms of CPU: two cores feed 1000 a second, by 102 workers.
        let world = World {
            cpu: 0.002,
            idle: 0.1,
            ..WORLD
        };
        let advice = world.advice();
        assert_eq!(advice.bound, Bound::Cpu, "{advice:?}");
        assert!((110..=115).contains(&advice.workers), "{advice:?}");
        assert_eq!(advice.max_queue, 1000);
        // The same with too few workers: they are the limit, and more would help.
        let few = World {
            workers: 20,
            ..world
        }
        .advice();
        assert_eq!(few.bound, Bound::Workers, "{few:?}");
        assert!((110..=115).contains(&few.workers), "{few:?}");
        assert!((few.measured_rate - 196.0).abs() < 1.0, "{few:?}");
        // With very few workers: at most ten times the measured number.
        let two = World {
            cpu: 0.002,
            idle: 0.1,
            workers: 2,
            ..WORLD
        }
        .advice();
        assert_eq!(two.workers, 20, "{two:?}");
        assert!(
            two.doubts
                .iter()
                .any(|doubt| doubt.contains("measure again"))
        );
        assert!((two.rate - 20.0 / 0.102).abs() < 1.0, "{two:?}");
    }

    #[test]
    fn a_machine_that_others_keep_busy_is_not_given_a_single_worker() {
        // Other programs hold nearly all of 8 processors: 30 ms of work take 10 times as long under any load.
        let steps = |cpu: Option<f64>| -> Vec<Step> {
            [(1_u32, 3.3), (2, 3.4), (4, 3.4)]
                .map(|(users, rate)| Step {
                    users,
                    rate,
                    mean: f64::from(users) / rate,
                    p95: 1.5 * f64::from(users) / rate,
                    failed: 0.0,
                    cpu,
                })
                .into()
        };
        for cpu in [Some(0.1), None] {
            for service in [None, Some(0.03)] {
                let facts = Facts {
                    steps: steps(cpu),
                    cores: 8.0,
                    others: 7.8,
                    service,
                    ..WORLD.facts()
                };
                let advice = decide(&facts).unwrap();
                assert!(advice.workers >= 8, "{cpu:?} {service:?}: {advice:?}");
                let told = advice.reasons.iter().chain(&advice.doubts);
                let told: String = told.map(String::as_str).collect();
                assert!(told.contains("other programs"), "{told}");
                // On a quiet machine the same answers show that the backend is the limit.
                let quiet = decide(&Facts {
                    others: 0.0,
                    ..facts
                });
                assert!(quiet.unwrap().workers < 8);
            }
        }
    }

    #[test]
    fn memory_is_a_limit() {
        let world = World {
            cpu: 0.002,
            idle: 0.1,
            ..WORLD
        };
        let facts = Facts {
            memory: Some(400 << 20),
            ..world.facts()
        };
        let advice = decide(&facts).unwrap();
        assert_eq!(
            (advice.bound, advice.workers),
            (Bound::Memory, 20),
            "{advice:?}"
        );
        // The rate of 20 workers: 20 ÷ 102 ms.
        assert!((advice.rate - 196.0).abs() < 1.0, "{advice:?}");
        assert_eq!(advice.max_queue, 200);
        let none = decide(&Facts {
            memory: Some(1 << 20),
            ..facts.clone()
        })
        .unwrap();
        assert_eq!(none.workers, 1);
        assert!(
            none.doubts
                .iter()
                .any(|doubt| doubt.contains("not enough for even one"))
        );
        let unknown = decide(&Facts {
            worker_memory: None,
            ..facts
        })
        .unwrap();
        assert_eq!(unknown.bound, Bound::Cpu);
        assert!(
            unknown.doubts.iter().any(|doubt| doubt.contains("memory")),
            "{unknown:?}"
        );
    }

    #[test]
    fn what_is_behind_is_not_hurried_by_more_workers() {
        // A database that serves 80 requests a second, each in 50 ms.
        let advice = World {
            cpu: 0.001,
            idle: 0.05,
            behind: 80.0,
            ..WORLD
        }
        .advice();
        assert_eq!(advice.bound, Bound::Elsewhere, "{advice:?}");
        assert_eq!(advice.workers, 5, "80 × 51 ms × 1.1");
        assert_eq!(advice.max_queue, 80);
    }

    #[test]
    fn a_machine_that_gets_slower_under_load_is_judged_by_its_best() {
        let advice = World {
            cpu: 0.002,
            idle: 0.03,
            thrashes_at: 16,
            ..WORLD
        }
        .advice();
        assert!((advice.measured_rate - 500.0).abs() < 1.0, "{advice:?}");
        assert_eq!(advice.knee, 16);
        assert!((17..=18).contains(&advice.workers), "{advice:?}");
    }

    #[test]
    fn steps_end_when_more_users_bring_nothing_or_fail() {
        let facts = World {
            workers: 4,
            ..WORLD
        }
        .facts();
        assert!(facts.steps.len() <= 5, "{:?}", facts.steps);
        let failed = Step {
            failed: 0.5,
            ..WORLD.step(4)
        };
        assert_eq!(next(&[WORLD.step(1), failed]), None);
        assert_eq!(next(&[]), Some(1));
        let endless = World {
            cores: 1e9,
            cpu: 1e-6,
            idle: 0.1,
            workers: u32::MAX,
            ..WORLD
        };
        assert_eq!(endless.facts().steps.last().unwrap().users, MOST_USERS);
        assert!(
            endless
                .advice()
                .doubts
                .iter()
                .any(|doubt| doubt.contains("the real limit is higher"))
        );
    }

    #[test]
    fn nothing_is_decided_from_nothing() {
        let facts = Facts {
            steps: vec![],
            ..WORLD.facts()
        };
        assert!(decide(&facts).is_err());
        let failed = Step {
            failed: 1.0,
            rate: 0.0,
            ..WORLD.step(1)
        };
        assert!(
            decide(&Facts {
                steps: vec![failed],
                ..facts.clone()
            })
            .is_err()
        );
        // The program cannot examine this machine.
        let blind = Facts {
            steps: WORLD
                .facts()
                .steps
                .into_iter()
                .map(|step| Step { cpu: None, ..step })
                .collect(),
            workers: None,
            worker_memory: None,
            memory: None,
            ..facts
        };
        let advice = decide(&blind).unwrap();
        assert_eq!(
            (advice.bound, advice.workers),
            (Bound::Elsewhere, 3),
            "{advice:?}"
        );
    }

    #[test]
    fn what_the_kernel_does_not_grant_is_told() {
        let fast = World {
            cpu: 0.000_05,
            ..WORLD
        };
        let facts = Facts {
            somaxconn: Some(128),
            ..fast.facts()
        };
        let advice = decide(&facts).unwrap();
        assert_eq!(advice.backlog, MOST_BACKLOG, "{advice:?}");
        assert!(
            advice
                .reasons
                .iter()
                .any(|reason| reason.contains("net.core.somaxconn=65536"))
        );
        assert_eq!(WORLD.advice().backlog, 1024);
        assert_eq!(backlog(1.0), 512);
    }

    #[test]
    fn numbers_are_round() {
        for (value, round) in [
            (0.2, 1),
            (7.0, 7),
            (23.4, 24),
            (196.07, 200),
            (1234.0, 1300),
        ] {
            assert_eq!(round_up(value), round);
        }
        assert_eq!(round_time(0.123_456), 0.123);
    }
}
