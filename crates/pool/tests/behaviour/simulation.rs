//! Runs many seeds through worlds with every kind of failure. `WEIR_POOL_SEED=n` replays one seed; `WEIR_POOL_SEEDS=n`
//! runs n seeds.

use std::collections::BTreeMap;

use weir_pool::{Decision, Limits, Micros, Mode, Order, Reserve, Reserves, Scaling};

use crate::machine::{self, Clients, Load, Memory, Plan};
use crate::random::Random;
use crate::world::{Course, run};

/// The environment variable that replays a single seed.
pub(crate) const SEED: &str = "WEIR_POOL_SEED";
const SEEDS: &str = "WEIR_POOL_SEEDS";

#[test]
fn all_promises_hold_in_worlds_where_everything_goes_wrong() {
    let mut seen = Seen::default();
    for seed in seeds(100) {
        let report = run(&any_course(seed), seed);
        let stats = report.stats;
        seen.virtual_seconds += report.ended_at / 1_000_000;
        seen.requests += stats.admitted;
        for (name, happened) in [
            ("retry", stats.readmitted > 0),
            ("worker lost", stats.lost > 0),
            ("queue full", stats.shed_queue_full > 0),
            ("queue timeout", stats.shed_queue_timeout > 0),
            ("no worker", stats.shed_no_worker > 0),
            ("left while waiting", stats.left > 0),
            ("wasted", report.wasted > 0),
            ("race", stats.ignored > 0),
            ("worker withdrawn", report.withdrawn > 0),
            ("hopeless", stats.shed_hopeless > 0),
            ("deadline", stats.shed_deadline > 0),
            ("overload", stats.shed_overload > 0),
            ("pushed out", stats.shed_pushed_out > 0),
            ("left while running", stats.left_running > 0),
        ] {
            *seen.happened.entry(name).or_insert(0) += u32::from(happened);
        }
    }
    println!("{seen:?}");
    // A simulation in which an event never happens proves nothing about that event.
    if std::env::var(SEED).is_err() {
        for (name, times) in &seen.happened {
            assert!(*times > 0, "{name} never happened");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_course_of_events() {
    for seed in [3, 14] {
        let [one, other] = [(); 2].map(|()| run(&any_course(seed), seed));
        assert_eq!(one.stats, other.stats);
        assert_eq!(one.waits, other.waits);
        assert_eq!(one.ended_at, other.ended_at);
    }
}

/// [`crate::scaled::Scaled`] checks the promises at each step. This test checks that every event happens, and that the
/// pool comes to rest when nothing fails any more.
#[test]
fn all_promises_of_the_scaling_hold_on_machines_where_everything_goes_wrong() {
    let mut happened = BTreeMap::new();
    for seed in seeds(80) {
        let plan = any_plan(seed);
        let got = machine::run(&plan, seed);
        let told = |wanted: fn(&Decision) -> bool| !got.told(wanted).is_empty();
        for (name, did) in [
            ("lost", got.stats.lost > 0),
            ("withdrawn", !got.withdrawals.is_empty()),
            ("waited", got.stats.waited > 0),
            ("grew", told(|told| matches!(told, Decision::Grew { .. }))),
            (
                "shrank",
                told(|told| matches!(told, Decision::Shrank { .. })),
            ),
            (
                "reached max_children",
                told(|told| matches!(told, Decision::ReachedMaxChildren { .. })),
            ),
            (
                "reached memory",
                told(|told| matches!(told, Decision::ReachedMemory { .. })),
            ),
            (
                "memory pressure",
                told(|told| matches!(told, Decision::MemoryPressure { .. })),
            ),
            (
                "memory relieved",
                told(|told| matches!(told, Decision::MemoryRelieved { .. })),
            ),
            (
                "pausing because of deaths",
                told(|told| matches!(told, Decision::Pausing { died: true, .. })),
            ),
            (
                "pausing because of failed starts",
                told(|told| matches!(told, Decision::Pausing { died: false, .. })),
            ),
            (
                "recovered",
                told(|told| matches!(told, Decision::Recovered { .. })),
            ),
        ] {
            *happened.entry(name).or_insert(0) += u32::from(did);
        }
        let late = got.answers.iter().filter(|at| **at >= CALM).count();
        assert!(late >= LATE, "seed {seed}: {late} of the last; {plan:?}");
        assert_eq!((got.stats.waiting, got.stats.busy), (0, 0), "seed {seed}");
    }
    println!("{happened:?}");
    if std::env::var(SEED).is_err() {
        for (name, times) in &happened {
            assert!(*times > 0, "{name} never happened");
        }
    }
}

#[derive(Debug, Default)]
struct Seen {
    virtual_seconds: u64,
    requests: u64,
    happened: BTreeMap<&'static str, u32>,
}

fn seeds(usual: u64) -> impl Iterator<Item = u64> {
    let number = |name| {
        let text: Option<String> = std::env::var(name).ok();
        text.map(|text| text.parse::<u64>().expect("a number"))
    };
    let (from, count) = match number(SEED) {
        Some(seed) => (seed, 1),
        None => (1, number(SEEDS).unwrap_or(usual)),
    };
    from..from + count
}

/// From an almost idle pool to one with up to three times its capacity; with every kind of failure, or without
/// failures.
fn any_course(seed: u64) -> Course {
    let mut random = Random::new(seed ^ 0x5EED);
    let mut one_of = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
    let workers = one_of(&[1, 2, 4, 7, 20]);
    let script = one_of(&[1_000, 10_000, 40_000]);
    let load_percent = one_of(&[30, 90, 150, 300]);
    Course {
        limits: Limits {
            maxconn: one_of(&[workers, workers, workers.div_ceil(2), workers * 2]) as usize,
            max_queue: one_of(&[1, 10, 100, 1_000]) as usize,
            timeout: Micros(one_of(&[script, 20 * script, 100 * script, 5_000_000])),
            minconn: 1,
            fullconn: (one_of(&[0, 0, 1, 5]) * workers) as usize,
            order: match one_of(&[0, 1, 2]) {
                0 => Order::Fifo,
                _ => Order::Adaptive,
            },
            client_share: one_of(&[50, 50, 20, 100]) as u8,
            reserve: match one_of(&[0, 0, 1]) {
                0 => Reserves::NONE,
                _ => Reserves::new(&[Reserve {
                    priority: -1,
                    workers: 1,
                }])
                .unwrap(),
            },
        },
        workers: workers as u32,
        reactors: one_of(&[1, 2, 4]) as u16,
        at_start: one_of(&[0, 1, 300]),
        every: (script * 100 / load_percent / workers).max(1),
        evenly: false,
        // About 2,000 requests each.
        until: script * 100 / load_percent / workers * 2_000,
        burst_chance: one_of(&[0, 0, 5]),
        burst: 100,
        script,
        script_is_constant: one_of(&[0, 1]) == 1,
        slow_chance: one_of(&[0, 10]),
        clients: one_of(&[0, 3, 1_000]),
        priorities: [&[0][..], &[-10, 0, 50]][one_of(&[0, 1]) as usize],
        deadline: one_of(&[0, 0, 10 * script]),
        patience: one_of(&[0, 5 * script, 2_000_000]),
        death_chance: one_of(&[0, 0, 20, 300]),
        restart: one_of(&[script / 10, 10 * script]),
        murder_every: one_of(&[0, 30 * script]),
        disaster_every: one_of(&[0, 0, 300 * script]),
        retire_every: one_of(&[0, 0, 10 * script, 200 * script]),
        reload_every: one_of(&[0, 0, 100 * script]),
        timer_lag: one_of(&[0, 1_000]),
        clock_skew: one_of(&[0, 50]),
    }
}

fn any_plan(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x5CA1E);
    let cores = [1, 2, 4, 16][random.below(4) as usize];
    let scaling = any_scaling(&mut random, cores);
    let mut plan = Plan::calm(cores, scaling.mode, scaling.max_children);
    plan.scaling = scaling;
    let mut one_of = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
    let most = scaling.max_children as u64;
    plan.limits = Limits {
        maxconn: one_of(&[most, most, most.div_ceil(2), most * 2]) as usize,
        max_queue: one_of(&[5, 100, 1_000]) as usize,
        timeout: Micros(one_of(&[100_000, 5_000_000])),
        ..Limits::USUAL
    };
    let patient = plan.limits.timeout > Micros(1_000_000);
    plan.fork = one_of(&[1_000, 5_000, if patient { 300_000 } else { 20_000 }]);
    for _ in 0..one_of(&[1, 2, 3]) {
        let from = one_of(&[0, 1_000_000, 7_000_000]);
        let clients = match one_of(&[0, 1, 2]) {
            0 => Clients::Closed(one_of(&[1, 10, 40])),
            1 => Clients::Random(one_of(&[5_000, 50_000])),
            _ => Clients::Even(one_of(&[3_000, 100_000, 3_000_000])),
        };
        let cpu = one_of(&[2_000, 20_000]);
        let io = one_of(&[0, 5_000, 50_000, 1_000_000]);
        plan.loads.push(
            Load::from(from, clients, cpu, io)
                .until(12_000_000)
                .uneven(),
        );
    }
    let last = Load::from(CALM, Clients::Even(2_000_000), 1_000, 1_000);
    let until = CALM + 2_000_000 * LATE as u64;
    plan.loads.push(last.until(until));
    plan.death_chance = one_of(&[0, 0, 5, 300]);
    plan.fork_failure_chance = one_of(&[0, 0, 100]);
    plan.broken = (5_000_000, one_of(&[0, 0, 6_000_000, 20_000_000]));
    plan.no_forks = (3_000_000, one_of(&[0, 0, 3_500_000, 15_000_000]));
    plan.max_requests = one_of(&[0, 0, 7]);
    let mut times = |chance| match one_of(&[0, 100]) < chance {
        true => vec![
            one_of(&[2_000_000, 8_000_000]),
            one_of(&[9_000_000, 13_000_000]),
        ],
        false => Vec::new(),
    };
    plan.renewals = times(100);
    plan.master_lost = times(50);
    if one_of(&[0, 1]) == 1 {
        let worker = 10;
        plan.memory = Some(Memory {
            room: vec![
                (0, one_of(&[20, 100, 1_000])),
                (6_000_000, one_of(&[0, 50, 1_000])),
                (9_000_000, one_of(&[30, 1_000])),
            ],
            worker,
            every: 500_000,
        });
    }
    if one_of(&[0, 1]) == 1 {
        let at = one_of(&[4_000_000, 10_000_000]);
        plan.changes.push((at, any_scaling(&mut random, cores)));
    }
    // At that time the crashes and the longest pause are over.
    plan.calm_from = 20_000_000;
    plan.until = until + 5_000_000;
    plan
}

fn any_scaling(random: &mut Random, cores: u64) -> Scaling {
    let mut one_of = |choices: &[usize]| choices[random.below(choices.len() as u64) as usize];
    let max_children = one_of(&[1, 2, 5, 20, 40]);
    let start = one_of(&[1, 2, 5]).min(max_children);
    let min_spare = one_of(&[1, 2]);
    Scaling {
        mode: match one_of(&[0, 1, 2, 3, 4]) {
            0 => Mode::Static,
            1 => Mode::Dynamic {
                start,
                min_spare,
                max_spare: min_spare + one_of(&[0, 3]),
            },
            2 => Mode::OnDemand,
            _ => Mode::Auto {
                start,
                cores: cores as usize,
                rests: one_of(&[0, 1]) == 1,
            },
        },
        max_children,
        max_spawn_rate: one_of(&[1, 4, 32]),
        idle_timeout: Micros(one_of(&[0, 300_000, 3_000_000]) as u64),
    }
}

/// From this time on nothing fails, and the last pauses are over.
const CALM: u64 = 65_000_000;
/// Requests that come after that.
const LATE: usize = 5;
