//! Many seeds through worlds where everything goes wrong. `WEIR_POOL_SEED=n` replays one of them;
//! `WEIR_POOL_SEEDS=n` tries so many.

use weir_pool::{Limits, Micros};

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
        ] {
            *seen.happened.entry(name).or_insert(0) += u32::from(happened);
        }
    }
    println!("{seen:?}");
    // A simulation in which something never happens proves nothing about it.
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

#[derive(Debug, Default)]
struct Seen {
    virtual_seconds: u64,
    requests: u64,
    happened: std::collections::BTreeMap<&'static str, u32>,
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

/// From a sleepy pool of one to three times more than it can do; with every kind of trouble, or without it.
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
        patience: one_of(&[0, 5 * script, 2_000_000]),
        death_chance: one_of(&[0, 0, 20, 300]),
        restart: one_of(&[script / 10, 10 * script]),
        murder_every: one_of(&[0, 30 * script]),
        disaster_every: one_of(&[0, 0, 300 * script]),
        reload_every: one_of(&[0, 0, 100 * script]),
        timer_lag: one_of(&[0, 1_000]),
        clock_skew: one_of(&[0, 50]),
    }
}
