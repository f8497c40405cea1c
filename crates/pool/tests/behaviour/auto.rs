//! `auto`: finds the number of workers that is useful, for any kind of script.

use weir_pool::{Decision, Limits, Micros, Mode, Scaling};

use crate::machine::{Clients, Load, Memory, Outcome, Plan, run};
use crate::scaling::{MILLISECOND, SECOND};

pub(crate) fn auto(cores: u64) -> Mode {
    Mode::Auto {
        start: 2,
        cores: cores as usize,
        rests: false,
    }
}

// What more workers bring

#[test]
fn scripts_that_compute_have_one_and_a_half_workers_for_each_core() {
    for cores in [1, 2, 4] {
        for script in [2 * MILLISECOND, 30 * MILLISECOND] {
            let clients = Clients::Closed(60);
            let plan = Plan {
                loads: vec![Load::from(SECOND, clients, script, 0).uneven()],
                until: 25 * SECOND,
                ..Plan::calm(cores, auto(cores), 60)
            };
            let got = run(&plan, 1);
            let few = (cores + cores.div_ceil(2)) as usize;
            let counts = got.spent_with(12 * SECOND, plan.until);
            let most_of_the_time = counts.iter().max_by_key(|count| count.1).unwrap().0;
            assert!(
                (few..=2 * cores as usize).contains(&most_of_the_time),
                "{cores} cores, {script}: {counts:?}"
            );
            let rate = got.rate(12 * SECOND, plan.until);
            let capacity = cores * SECOND / script;
            assert!(rate >= capacity * 90 / 100, "{rate} of {capacity}");
        }
    }
}

#[test]
fn scripts_that_wait_have_as_many_workers_as_they_can_use() {
    for (cores, io) in [(1, 50), (2, 50), (2, 300), (8, 50)] {
        let clients = Clients::Closed(60);
        let plan = Plan {
            loads: vec![Load::from(SECOND, clients, 200, io * MILLISECOND).uneven()],
            until: 10 * SECOND,
            ..Plan::calm(cores, auto(cores), 40)
        };
        let got = run(&plan, 1);
        let all = got.first_with(40).expect("all of them");
        assert!(all <= 6 * SECOND, "{cores} cores, {io} ms: {all}");
        assert_eq!(got.workers_at(plan.until), 40);
        let rate = got.rate(7 * SECOND, plan.until);
        let ideal = 40 * 1_000 / (io + 1);
        assert!(rate >= ideal * 90 / 100, "{rate} of {ideal}");
    }
}

#[test]
fn scripts_that_do_both_have_enough_workers_to_keep_the_cores_busy_and_not_many_more() {
    // With two cores, workers above 10 (or 6) are of no use.
    for (cpu, io, enough) in [(10_000, 40_000, 10), (20_000, 40_000, 6)] {
        let load = Load::from(SECOND, Clients::Closed(60), cpu, io).uneven();
        let plan = |mode| Plan {
            loads: vec![load.clone()],
            until: 30 * SECOND,
            ..Plan::calm(2, mode, 60)
        };
        let (mut rate, mut workers) = (0, 0);
        for seed in 1..=10 {
            let got = run(&plan(auto(2)), seed);
            rate += got.rate(10 * SECOND, 30 * SECOND);
            workers += got.mean_workers(10 * SECOND, 30 * SECOND);
        }
        let most = run(&plan(Mode::Static), 1).rate(10 * SECOND, 30 * SECOND);
        let (rate, mean) = (rate / 10, workers / 10);
        assert!(rate >= most * 90 / 100, "{rate} of {most}");
        assert!((enough..=5 * enough / 2).contains(&mean), "{mean} workers");
    }
}

#[test]
fn a_crowd_is_met_within_a_quarter_of_a_second_where_there_are_cores() {
    let plan = Plan {
        loads: vec![Load::from(SECOND, Clients::Closed(20), 1_000, 50_000)],
        until: 3 * SECOND,
        ..Plan::calm(8, auto(8), 40)
    };
    let all = run(&plan, 1).first_with(20).expect("20 workers");
    assert!(all <= SECOND + 250 * MILLISECOND, "{all}");
    let plan = Plan {
        cores: 2,
        scaling: Plan::calm(2, auto(2), 40).scaling,
        ..plan
    };
    let all = run(&plan, 1).first_with(20).expect("20 workers");
    assert!(all <= 2 * SECOND, "on two cores: {all}");
}

#[test]
fn an_api_that_becomes_slow_has_more_workers_at_once() {
    let quick = Load::from(SECOND, Clients::Closed(30), 5_000, 5_000).until(30 * SECOND);
    let slow = Load::from(30 * SECOND, Clients::Closed(30), 5_000, 2 * SECOND);
    let plan = Plan {
        loads: vec![quick.uneven(), slow.uneven()],
        until: 45 * SECOND,
        ..Plan::calm(2, auto(2), 30)
    };
    let got = run(&plan, 1);
    assert!(got.mean_workers(15 * SECOND, 30 * SECOND) <= 8);
    let after = |seconds: u64| got.workers_at((30 + seconds) * SECOND);
    assert!(after(3) >= 8, "{}", after(3));
    assert!(after(15) >= 16, "{}", after(15));
}

/// A database that takes 5 s instead of 30 ms. The machine is idle. `dynamic`, which has a worker for each client,
/// refuses nobody.
#[test]
fn a_dependency_that_becomes_slow_costs_nobody_more_than_with_dynamic() {
    let quick = Load::from(0, Clients::Random(50_000), 2_000, 28_000).until(30 * SECOND);
    let slow = Load::from(30 * SECOND, Clients::Random(50_000), 2_000, 5 * SECOND);
    let dynamic = Mode::Dynamic {
        start: 2,
        min_spare: 2,
        max_spare: 5,
    };
    let (mut refused, mut longest) = (Vec::new(), Vec::new());
    for mode in [dynamic, auto(2)] {
        let calm = Plan::calm(2, mode, 200);
        let plan = Plan {
            loads: vec![quick.clone().uneven(), slow.clone().uneven()],
            limits: Limits {
                timeout: Micros::from_secs(10),
                max_queue: 1_000,
                ..calm.limits
            },
            until: 120 * SECOND,
            ..calm
        };
        let got = run(&plan, 1);
        refused.push(got.stats.shed());
        longest.push(got.longest_wait(30 * SECOND, plan.until));
    }
    assert_eq!(refused, [0, 0], "dynamic, auto");
    assert!(longest[1] <= 500 * MILLISECOND, "{longest:?}");
}

/// What the pool learned while the database was slow is of no use when it is fast again.
#[test]
fn a_crowd_after_a_slow_phase_is_not_refused_for_what_requests_took_then() {
    for max_children in [8, 200] {
        let slow = Load::from(SECOND, Clients::Closed(10), 2_000, 5 * SECOND).until(40 * SECOND);
        let crowd = Load::from(70 * SECOND, Clients::Closed(100), 2_000, 28_000);
        let calm = Plan::calm(4, auto(4), max_children);
        let plan = Plan {
            loads: vec![slow.uneven(), crowd.uneven()],
            limits: Limits {
                timeout: Micros::from_secs(10),
                max_queue: 1_000,
                ..calm.limits
            },
            until: 75 * SECOND,
            ..calm
        };
        let got = run(&plan, 1);
        assert!(got.of_loads[&1].1 > 1_000, "{:?}", got.of_loads);
        assert_eq!(got.stats.shed_hopeless, 0, "{max_children}");
        assert_eq!(got.stats.shed(), 0, "{max_children}");
    }
}

#[test]
fn a_load_that_becomes_lighter_is_not_held_to_what_was_learnt() {
    let heavy = Load::from(SECOND, Clients::Closed(40), 20_000, 0).until(100 * SECOND);
    let light = Load::from(100 * SECOND, Clients::Closed(40), 200, 4_000);
    let plan = Plan {
        loads: vec![heavy.uneven(), light.uneven()],
        until: 105 * SECOND,
        ..Plan::calm(2, auto(2), 30)
    };
    let got = run(&plan, 1);
    assert!(got.mean_workers(50 * SECOND, 100 * SECOND) <= 6);
    assert!(got.workers_at(plan.until) >= 20, "before the hold is over");
}

#[test]
fn what_one_crowd_has_shown_does_not_count_for_the_next() {
    let waits = Load::from(SECOND, Clients::Closed(40), 200, 50_000).until(10 * SECOND);
    let computes = Load::from(40 * SECOND, Clients::Closed(40), 5_000, 0);
    let plan = Plan {
        loads: vec![waits.uneven(), computes.uneven()],
        until: 50 * SECOND,
        ..Plan::calm(2, auto(2), 40)
    };
    let got = run(&plan, 1);
    assert_eq!(got.workers_at(10 * SECOND), 40);
    assert_eq!(got.workers_at(39 * SECOND), 2);
    assert!(got.mean_workers(41 * SECOND, 50 * SECOND) <= 8);
}

#[test]
fn overload_by_siege_is_served_at_full_rate_by_three_workers() {
    let script = 450;
    let plan = Plan {
        loads: vec![Load::from(SECOND, Clients::Closed(100), script, 0)],
        until: 5 * SECOND,
        ..Plan::calm(2, auto(2), 20)
    };
    let got = run(&plan, 1);
    let capacity = 2 * SECOND / script;
    let rate = got.rate(2 * SECOND, plan.until);
    assert!(rate >= capacity * 98 / 100, "{rate} of {capacity}");
    let longest = got.longest_wait(2 * SECOND, plan.until);
    assert!(longest <= 2 * 100 * SECOND / capacity, "{longest}");
    assert!(got.most_workers() <= 6);
    assert_eq!(got.workers_at(plan.until), 3);
}

// Rest

#[test]
fn a_constant_load_makes_nobody_come_and_go() {
    let load = |clients| Load::from(0, clients, 1_000, 19_000);
    let (even, random) = (Clients::Even(5_000), Clients::Random(5_000));
    for (name, load, at_once, most) in [
        ("even", load(even), 1, 0),
        ("random", load(random).uneven(), 1, 4),
        ("one in 3 s", load(Clients::Even(3 * SECOND)), 1, 0),
        ("one in 60 s", load(Clients::Even(60 * SECOND)), 1, 0),
        // Longer than the timeout, so that four would come and go each time.
        ("four in 15 s", load(Clients::Even(15 * SECOND)), 4, 0),
        ("four in 25 s", load(Clients::Even(25 * SECOND)), 4, 0),
    ] {
        let plan = Plan {
            loads: vec![load; at_once],
            until: 300 * SECOND,
            ..Plan::calm(4, auto(4), 20)
        };
        let got = run(&plan, 1);
        let late = got.withdrawals.iter().filter(|at| **at > 100 * SECOND);
        let starts = got.started_within(100 * SECOND, plan.until);
        assert!(starts.max(late.count()) <= most, "{name}: {starts}");
    }
}

#[test]
fn endless_overload_is_probed_ever_more_rarely() {
    let plan = Plan {
        loads: vec![Load::from(0, Clients::Closed(30), 20_000, 0).uneven()],
        until: 900 * SECOND,
        ..Plan::calm(2, auto(2), 20)
    };
    let got = run(&plan, 1);
    // It holds for 10, 20, 40, 80, 160, 300 s, and starts three workers each time.
    let starts = got.started_within(20 * SECOND, plan.until);
    assert!(starts <= 30, "{starts}");
    let mean = got.mean_workers(20 * SECOND, plan.until);
    assert!(mean <= 6, "{mean}");
}

#[test]
fn idle_workers_leave_and_those_of_the_start_stay() {
    let crowd = Load::from(SECOND, Clients::Closed(20), 1_000, 50_000);
    let plan = Plan {
        loads: vec![crowd.until(10 * SECOND)],
        until: 30 * SECOND,
        ..Plan::calm(8, auto(8), 40)
    };
    let got = run(&plan, 1);
    assert!(got.most_workers() >= 20);
    assert!(got.workers_at(19 * SECOND) >= 20, "not before the timeout");
    assert_eq!(got.workers_at(21 * SECOND), 2);
    let shrank = got.told(|told| matches!(told, Decision::Shrank { .. }));
    let idle = shrank.iter().map(|(_, told)| match told {
        Decision::Shrank { idle, .. } => *idle,
        _ => unreachable!(),
    });
    assert!(idle.min() >= Some(Micros::from_secs(10)));
}

#[test]
fn one_idle_worker_is_kept_ahead_of_the_next_request() {
    let plan = Plan {
        loads: vec![
            Load::from(SECOND, Clients::Closed(3), 1_000, 50_000),
            Load::from(40 * SECOND, Clients::Closed(1), 1_000, 50_000),
        ],
        until: 41 * SECOND,
        ..Plan::calm(4, auto(4), 20)
    };
    let got = run(&plan, 1);
    assert_eq!(got.workers_at(39 * SECOND), 4);
    assert_eq!(got.longest_wait(39 * SECOND, 41 * SECOND), 0);
}

// Memory

const MIB: u64 = 1 << 20;

fn memory(room: &[(u64, u64)]) -> Option<Memory> {
    Some(Memory {
        room: room.iter().map(|(at, mib)| (*at, mib * MIB)).collect(),
        worker: 20 * MIB,
        every: SECOND / 2,
    })
}

#[test]
fn there_are_no_more_workers_than_there_is_memory_for() {
    let plan = Plan {
        loads: vec![Load::from(SECOND, Clients::Closed(60), 200, 50_000).uneven()],
        memory: memory(&[(0, 250)]),
        until: 20 * SECOND,
        ..Plan::calm(4, auto(4), 40)
    };
    let got = run(&plan, 1);
    assert_eq!(got.most_workers(), 12);
    assert_eq!(got.workers_at(plan.until), 12);
    let told = got.told(|told| matches!(told, Decision::ReachedMemory { .. }));
    assert!((1..=3).contains(&told.len()), "{told:?}");
    assert_eq!(got.max_children_reached, 0);
    assert_eq!(got.withdrawals, []);
}

#[test]
fn under_pressure_the_idle_leave_first_then_the_busy_as_they_finish() {
    let busy = Load::from(SECOND, Clients::Closed(4), 1_000, 100_000);
    let crowd = Load::from(SECOND, Clients::Closed(16), 1_000, 100_000).until(10 * SECOND);
    let plan = Plan {
        loads: vec![busy, crowd],
        memory: memory(&[(0, 1_000), (12 * SECOND, 50)]),
        until: 30 * SECOND,
        ..Plan::calm(8, auto(8), 40)
    };
    let got = run(&plan, 1);
    let before = got.workers_at(12 * SECOND - 1);
    assert!(before >= 20, "{before}");
    // One every 100 ms until the idle workers are gone.
    assert_eq!(got.workers_at(12_950 * MILLISECOND), before - 10);
    assert!(got.workers_at(13_500 * MILLISECOND) >= 4);
    assert!(got.workers_at(15 * SECOND) <= 4);
    assert_eq!(got.workers_at(30 * SECOND), 2, "the workers of the start");
    assert_eq!(got.started_within(12 * SECOND, plan.until), 0);
    assert_eq!(got.stats.lost, 0);
    let told = got.told(|told| matches!(told, Decision::MemoryPressure { .. }));
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn after_pressure_workers_come_back_one_by_one() {
    let plan = Plan {
        loads: vec![Load::from(SECOND, Clients::Closed(60), 200, 50_000)],
        memory: memory(&[(0, 1_000), (10 * SECOND, 199), (20 * SECOND, 1_000)]),
        until: 60 * SECOND,
        ..Plan::calm(4, auto(4), 20)
    };
    let got = run(&plan, 1);
    assert_eq!(got.workers_at(10 * SECOND), 20);
    let low = got.workers_at(20 * SECOND);
    assert!((9..=16).contains(&low), "{low}");
    assert!(got.workers_at(25 * SECOND) <= low);
    let back = got.workers_at(60 * SECOND) - low;
    assert!((3..=4).contains(&back), "one each 10 s: {back}");
    let relieved = got.told(|told| matches!(told, Decision::MemoryRelieved { .. }));
    assert_eq!(relieved.len(), 1);
}

#[test]
fn nothing_is_withdrawn_below_the_start_and_memory_that_is_not_known_is_no_limit() {
    let plan = Plan {
        memory: memory(&[(0, 0)]),
        until: 20 * SECOND,
        ..Plan::calm(
            4,
            Mode::Auto {
                start: 3,
                cores: 4,
                rests: false,
            },
            20,
        )
    };
    assert_eq!(run(&plan, 1).workers_at(plan.until), 3);
    let plan = Plan {
        memory: Some(Memory {
            room: vec![(0, 0)],
            worker: 0,
            every: SECOND,
        }),
        loads: vec![Load::from(SECOND, Clients::Closed(60), 200, 50_000)],
        ..plan
    };
    assert_eq!(run(&plan, 1).workers_at(plan.until), 20);
}

#[test]
fn modes_with_numbers_of_their_own_do_not_ask_for_memory() {
    let plan = Plan {
        memory: memory(&[(0, 10)]),
        until: 5 * SECOND,
        ..Plan::calm(4, Mode::Static, 20)
    };
    assert_eq!(run(&plan, 1).workers_at(plan.until), 20);
}

#[test]
fn the_mode_may_change_while_it_runs() {
    let calm = Plan::calm(2, Mode::Static, 12);
    let to = |mode, max_children| Scaling {
        mode,
        max_children,
        ..calm.scaling
    };
    let plan = Plan {
        changes: vec![
            (5 * SECOND, to(auto(2), 12)),
            (30 * SECOND, to(Mode::OnDemand, 12)),
            (50 * SECOND, to(Mode::Static, 4)),
        ],
        until: 60 * SECOND,
        ..calm
    };
    let got = run(&plan, 1);
    let seen = [4, 29, 49, 60].map(|at| got.workers_at(at * SECOND));
    assert_eq!(seen, [12, 2, 0, 4]);
}

impl Outcome {
    /// How long the pool had each number of workers.
    fn spent_with(&self, from: u64, until: u64) -> Vec<(usize, u64)> {
        let mut spent = std::collections::BTreeMap::new();
        let ends = self.workers.iter().skip(1).map(|next| next.0);
        let spans = self.workers.iter().zip(ends.chain([until]));
        for ((begin, workers), end) in spans {
            let span = end.min(until).saturating_sub(*begin.max(&from));
            *spent.entry(*workers).or_insert(0) += span;
        }
        spent.into_iter().filter(|(_, span)| *span > 0).collect()
    }

    pub(crate) fn mean_workers(&self, from: u64, until: u64) -> u64 {
        let spent = self.spent_with(from, until);
        let all = spent.iter().map(|(workers, span)| *workers as u64 * span);
        all.sum::<u64>() / (until - from)
    }
}

// A pool that rests

/// Requests at 5 s and at 60 s. In between all workers end.
#[test]
fn a_pool_that_rests_has_workers_only_while_somebody_asks() {
    for start in [1, 3] {
        let mode = Mode::Auto {
            start,
            cores: 4,
            rests: true,
        };
        let crowd = |at, until| {
            Load::from(at * SECOND, Clients::Closed(6), 1_000, 20 * MILLISECOND)
                .until(until * SECOND)
        };
        let plan = Plan {
            loads: vec![crowd(5, 10), crowd(60, 62)],
            until: 120 * SECOND,
            ..Plan::calm(4, mode, 20)
        };
        let got = run(&plan, 1);
        assert_eq!(got.workers_at(4 * SECOND), 0, "nobody has asked yet");
        assert!(got.workers_at(9 * SECOND) >= 6);
        // The time of `Plan::calm` is 10 s.
        assert!(got.workers_at(18 * SECOND) >= start);
        assert_eq!(got.workers_at(40 * SECOND), 0);
        assert!(got.workers_at(61 * SECOND) >= 6);
        assert!(got.longest_wait(60 * SECOND, 62 * SECOND) <= 2 * plan.fork);
        assert_eq!(got.workers_at(plan.until), 0);
    }
}

/// A worker whose request takes longer than the time after which idle ones leave is not idle, and neither is its pool.
#[test]
fn a_pool_with_a_request_does_not_rest() {
    let mode = Mode::Auto {
        start: 3,
        cores: 4,
        rests: true,
    };
    let plan = Plan {
        loads: vec![Load::from(SECOND, Clients::Closed(1), 1_000, 60 * SECOND)],
        until: 50 * SECOND,
        ..Plan::calm(4, mode, 20)
    };
    let got = run(&plan, 1);
    assert!(
        got.workers_at(49 * SECOND) >= 3,
        "as many as `start_servers`"
    );
}
