//! The number of workers in named situations: PHP-FPM's three modes, and what holds for all modes.

use std::collections::VecDeque;

use weir_pool::{
    Decision, Exit, Limits, Micros, Mode, Pool, Reserve, Reserves, Scaler, Scaling, WorkerId,
};

use crate::machine::{Clients, Load, Outcome, Plan, run};

pub(crate) const MILLISECOND: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000_000;

/// The mode of the scenario with crowds below: PHP-FPM's example.
const DYNAMIC: Mode = Mode::Dynamic {
    start: 2,
    min_spare: 2,
    max_spare: 5,
};

// Growing

/// PHP-FPM looks once a second and starts at most as many workers as spares are missing: one, and then two a second. It
/// needs ten seconds to go from 2 to 20.
#[test]
fn a_crowd_for_20_workers_has_all_20_at_work_at_once() {
    for mode in [DYNAMIC, Mode::OnDemand] {
        let plan = Plan {
            loads: vec![Load::from(SECOND, Clients::Closed(20), 1_000, 300_000)],
            until: 2 * SECOND,
            ..Plan::calm(4, mode, 20)
        };
        let got = run(&plan, 1);
        assert_eq!(got.workers_at(SECOND), if mode == DYNAMIC { 2 } else { 0 });
        let all = got.first_with(20).expect("20 workers");
        assert!(all <= SECOND + 250 * MILLISECOND, "{mode:?}: {all}");
        assert_eq!(all, SECOND + plan.fork, "the time of one fork");
        assert_eq!(got.longest_wait(0, plan.until), plan.fork);
    }
}

/// `siege -c 100` on a script that prints a line 1,000 times. At most 20 children, 2 at the start, 2 to 5 spare.
#[test]
fn an_overload_of_a_small_pool_is_served_at_full_rate_and_in_turn() {
    let script = 450;
    let plan = Plan {
        loads: vec![Load::from(SECOND, Clients::Closed(100), script, 0)],
        until: 4 * SECOND,
        ..Plan::calm(2, DYNAMIC, 20)
    };
    let got = run(&plan, 1);
    let capacity = 2 * SECOND / script;
    let rate = got.rate(2 * SECOND, 4 * SECOND);
    assert!(rate >= capacity * 98 / 100, "{rate} of {capacity}");
    // A hundred clients; twenty requests are running.
    let longest = got.longest_wait(2 * SECOND, 4 * SECOND);
    assert!(longest <= 2 * 100 * SECOND / capacity, "{longest}");
    assert_eq!(got.max_children_reached, 1, "told once");
    let reached = |told: &Decision| matches!(told, Decision::ReachedMaxChildren { .. });
    assert_eq!(got.told(reached).len(), 1);
    assert_eq!(got.withdrawals, [], "they are needed all the time");
}

#[test]
fn spare_workers_are_there_before_they_are_needed() {
    // One more client a second, which stays.
    let loads =
        (1..=10).map(|second| Load::from(second * SECOND, Clients::Closed(1), 1_000, 50_000));
    let plan = Plan {
        loads: loads.collect(),
        until: 11 * SECOND,
        ..Plan::calm(2, DYNAMIC, 20)
    };
    let got = run(&plan, 1);
    assert_eq!(got.longest_wait(0, plan.until), 0, "nobody ever waits");
    assert_eq!(got.most_workers(), 12);
    assert_eq!(got.withdrawals, []);
}

/// An idle worker that is kept for other requests is not a spare one.
#[test]
fn a_reserve_does_not_keep_a_pool_from_growing() {
    for mode in [
        Mode::Static,
        DYNAMIC,
        Mode::OnDemand,
        crate::auto::auto(8),
        Mode::Auto {
            start: 1,
            cores: 8,
            rests: false,
        },
    ] {
        let calm = Plan::calm(8, mode, 8);
        let reserve = Reserve {
            priority: -10,
            workers: 2,
        };
        let plan = Plan {
            limits: Limits {
                reserve: Reserves::new(&[reserve]).unwrap(),
                ..calm.limits
            },
            loads: vec![Load::from(SECOND, Clients::Closed(40), 1_000, 50_000)],
            until: 30 * SECOND,
            ..calm
        };
        let got = run(&plan, 1);
        assert_eq!(got.workers_at(plan.until), 8, "{mode:?}");
        // Six of the workers serve these.
        let rate = got.rate(20 * SECOND, plan.until);
        assert!((110..=118).contains(&rate), "{mode:?}: {rate}");
        assert_eq!(got.stats.busy, 6);
        assert_eq!(got.stats.shed(), 0);
    }
}

#[test]
fn the_spawn_rate_bounds_growth_but_not_the_start() {
    let plan = Plan {
        loads: vec![Load::from(SECOND, Clients::Closed(200), 100, SECOND)],
        until: 5 * SECOND,
        ..Plan::calm(2, Mode::OnDemand, 200)
    };
    let got = run(&plan, 1);
    for (at, up) in [(10, 32), (1_010, 64), (2_010, 96), (3_010, 128)] {
        assert_eq!(
            got.workers_at(SECOND + at * MILLISECOND),
            up,
            "after {at} ms"
        );
    }

    let plan = Plan {
        until: SECOND,
        ..Plan::calm(2, Mode::Static, 200)
    };
    let got = run(&plan, 1);
    assert_eq!(got.first_with(200), Some(plan.fork), "all at once");
}

#[test]
fn workers_that_could_not_be_used_are_not_started() {
    let calm = Plan::calm(2, Mode::OnDemand, 20);
    let plan = Plan {
        loads: vec![Load::from(0, Clients::Closed(50), 1_000, 50_000)],
        limits: Limits {
            maxconn: 3,
            ..calm.limits
        },
        until: 3 * SECOND,
        ..calm
    };
    assert_eq!(run(&plan, 1).most_workers(), 3);
}

// Shrinking

#[test]
fn dynamic_lets_one_a_second_go_until_max_spare_are_left() {
    let crowd = Load::from(SECOND, Clients::Closed(18), 1_000, 50_000);
    let plan = Plan {
        loads: vec![crowd.until(2 * SECOND)],
        until: 40 * SECOND,
        ..Plan::calm(4, DYNAMIC, 20)
    };
    let got = run(&plan, 1);
    assert_eq!(got.most_workers(), 20);
    assert_eq!(got.workers_at(plan.until), 5);
    let pauses = got.withdrawals.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(pauses.clone().all(|pause| pause >= SECOND));
    assert_eq!(pauses.min(), Some(SECOND));
    let last = got.withdrawals.last().unwrap();
    assert!(*last < 18 * SECOND + SECOND / 2, "{last}");
}

#[test]
fn ondemand_lets_each_go_when_it_was_idle_for_the_timeout() {
    let plan = Plan {
        loads: vec![
            Load::from(SECOND, Clients::Closed(10), 1_000, 50_000).until(2 * SECOND),
            Load::from(2 * SECOND + SECOND / 2, Clients::Closed(1), 1_000, 50_000)
                .until(20 * SECOND),
        ],
        until: 40 * SECOND,
        ..Plan::calm(4, Mode::OnDemand, 20)
    };
    let got = run(&plan, 1);
    assert_eq!(got.most_workers(), 10);
    assert_eq!(got.workers_at(11 * SECOND), 10);
    assert_eq!(got.workers_at(13 * SECOND), 1, "the one that is used");
    assert_eq!(got.workers_at(29 * SECOND), 1);
    assert_eq!(got.workers_at(31 * SECOND), 0);
    assert_eq!(got.started_within(2 * SECOND, 40 * SECOND), 0);
}

#[test]
fn a_constant_load_makes_nobody_come_and_go() {
    for (mode, most) in [(Mode::Static, 0), (DYNAMIC, 20), (Mode::OnDemand, 6)] {
        for clients in [Clients::Even(5_000), Clients::Random(5_000)] {
            let plan = Plan {
                // Four at work on average.
                loads: vec![Load::from(0, clients, 1_000, 19_000)],
                until: 60 * SECOND,
                ..Plan::calm(4, mode, 20)
            };
            let got = run(&plan, 1);
            let (starts, stops) = (
                got.started_within(20 * SECOND, 60 * SECOND),
                &got.withdrawals,
            );
            let late = stops.iter().filter(|at| **at > 20 * SECOND).count();
            let evenly = matches!(clients, Clients::Even(_));
            let most = if evenly { 0 } else { most };
            assert!(
                starts.max(late) <= most,
                "{mode:?} {clients:?}: {starts} {late}"
            );
        }
    }
}

// When the bounds change

#[test]
fn a_lower_max_children_is_reached_without_taking_anybodys_request() {
    for mode in [Mode::Static, DYNAMIC, Mode::OnDemand, crate::auto::auto(8)] {
        let calm = Plan::calm(8, mode, 20);
        let lower = Scaling {
            max_children: 6,
            ..calm.scaling
        };
        let higher = Scaling {
            max_children: 10,
            ..calm.scaling
        };
        let plan = Plan {
            loads: vec![Load::from(SECOND, Clients::Closed(40), 1_000, 200_000)],
            changes: vec![(5 * SECOND, lower), (10 * SECOND, higher)],
            until: 15 * SECOND,
            ..calm
        };
        let got = run(&plan, 1);
        assert_eq!(got.workers_at(5 * SECOND), 20, "{mode:?}");
        assert_eq!(got.workers_at(8 * SECOND), 6, "{mode:?}");
        assert_eq!(got.workers_at(15 * SECOND), 10, "{mode:?}");
        assert_eq!(got.stats.lost, 0);
    }
}

#[test]
fn a_new_generation_takes_over_without_a_gap() {
    let short = Load::from(0, Clients::Closed(6), 1_000, 50_000);
    let long = Load::from(0, Clients::Closed(2), 1_000, 4 * SECOND);
    for (mode, max_children) in [
        (Mode::Static, 8),
        (DYNAMIC, 8),
        (DYNAMIC, 20),
        (Mode::OnDemand, 8),
        (Mode::OnDemand, 20),
        (crate::auto::auto(8), 8),
        (crate::auto::auto(8), 20),
    ] {
        let plan = Plan {
            loads: vec![short.clone(), long.clone()],
            renewals: vec![5 * SECOND],
            until: 15 * SECOND,
            ..Plan::calm(8, mode, max_children)
        };
        let got = run(&plan, 1);
        assert_eq!(got.stats.outdated, 0, "{mode:?}");
        assert_eq!(got.stats.lost, 0);
        let longest = got.longest_wait(5 * SECOND, 6 * SECOND);
        let limit = 30 * MILLISECOND;
        assert!(longest <= limit, "{mode:?} of {max_children}: {longest}");
    }
}

#[test]
fn a_new_generation_that_dies_at_once_leaves_the_old_one_at_work() {
    for (mode, max_children, left) in [
        (Mode::Static, 8, 6),
        (DYNAMIC, 8, 6),
        (DYNAMIC, 20, 8),
        (crate::auto::auto(8), 20, 7),
        (
            Mode::Auto {
                start: 1,
                cores: 8,
                rests: false,
            },
            20,
            7,
        ),
    ] {
        let plan = Plan {
            loads: vec![Load::from(0, Clients::Closed(6), 1_000, 50_000)],
            renewals: vec![5 * SECOND],
            broken: (5 * SECOND, 60 * SECOND),
            until: 60 * SECOND,
            ..Plan::calm(8, mode, max_children)
        };
        let got = run(&plan, 1);
        let workers = got.workers_at(plan.until);
        assert!((left..=left + 1).contains(&workers), "{mode:?}: {workers}");
        assert!(got.rate(50 * SECOND, plan.until) >= 110, "{mode:?}");
    }
}

#[test]
fn workers_that_have_served_enough_are_replaced_and_nobody_notices() {
    let plan = Plan {
        loads: vec![Load::from(SECOND, Clients::Closed(4), 1_000, 9_000)],
        max_requests: 50,
        until: 10 * SECOND,
        ..Plan::calm(4, DYNAMIC, 20)
    };
    let got = run(&plan, 1);
    assert!(got.withdrawals.len() > 50, "{}", got.withdrawals.len());
    assert_eq!(got.longest_wait(2 * SECOND, plan.until), 0);
    let paused = |told: &Decision| matches!(told, Decision::Pausing { .. });
    assert_eq!(got.told(paused), []);
}

#[test]
fn workers_that_serve_one_request_each_are_replaced_faster_than_the_spawn_rate() {
    let plan = Plan {
        loads: vec![Load::from(SECOND, Clients::Closed(10), 1_000, 9_000)],
        max_requests: 1,
        until: 10 * SECOND,
        ..Plan::calm(4, Mode::Static, 10)
    };
    let got = run(&plan, 1);
    // Each takes 10 ms to serve, 2 ms to end, and 5 ms to be replaced.
    let rate = got.rate(2 * SECOND, plan.until);
    assert!(rate > 500, "{rate}");
}

/// How many of `workers` idle workers leave, and when, in µs, if each takes 20 ms to end. The workers are `outdated`
/// and have successors, or they have nothing to do.
fn leaving(workers: u32, outdated: bool) -> Vec<(u64, usize)> {
    let max_children = workers as usize * 2;
    let mut pool = Pool::new(Limits {
        maxconn: max_children,
        ..Limits::USUAL
    });
    let mut scaler = Scaler::new(Scaling {
        mode: Mode::OnDemand,
        max_children,
        max_spawn_rate: 32,
        idle_timeout: Micros::from_secs(1),
    });
    scaler.ready(Micros(0), true);
    for worker in 0..workers {
        pool.worker_up(Micros(0), WorkerId(worker), 0);
        if outdated {
            pool.outdate(Micros(0), WorkerId(worker));
        }
    }
    let (mut now, mut told) = (Micros(0), Vec::new());
    let mut ending = VecDeque::new();
    while pool.stats().workers + pool.stats().leaving > 0 {
        let orders = scaler.look(now, &pool);
        let mut leave = Vec::new();
        pool.withdraw(now, &orders, &mut leave);
        ending.extend(leave.into_iter().map(|worker| (now.after(END), worker)));
        told.push((now.0, ending.len()));
        let end = ending.front().map(|(at, _)| *at);
        let Some(next) = end.into_iter().chain(scaler.next_look()).min() else {
            break;
        };
        now = next;
        while let Some((_, worker)) = ending.front().copied().filter(|(at, _)| *at <= now) {
            ending.pop_front();
            pool.worker_down(now, worker);
            scaler.exited(now, Exit::Withdrawn);
        }
    }
    assert_eq!(pool.stats().workers, 0, "{told:?}");
    told
}

/// How long the end of a process takes.
const END: Micros = Micros::from_millis(20);

/// The end of a process takes processor time: 400 ends at once would take it from workers that serve or start.
#[test]
fn idle_and_replaced_workers_leave_a_few_at_a_time_and_all_within_seconds() {
    for (workers, outdated, within) in [
        (400, false, 6 * SECOND),
        (400, true, 4 * SECOND),
        (5_000, false, 20 * SECOND),
        (5_000, true, 12 * SECOND),
        (3, false, 2 * SECOND),
        (16, true, SECOND),
    ] {
        let told = leaving(workers, outdated);
        let (last, _) = *told.last().expect("some");
        assert!(last <= within, "{workers} {outdated}: {last}");
        let most = told.iter().map(|(_, ending)| *ending).max().expect("some");
        let share = if outdated { 20 } else { 100 };
        let limit = (workers / share).max(if outdated { 16 } else { 4 }) as usize;
        assert!(most <= limit, "{workers} {outdated}: {most} at a time");
    }
}

// Deaths

#[test]
fn one_death_among_many_is_replaced_at_once() {
    let plan = Plan {
        loads: vec![Load::from(0, Clients::Closed(20), 1_000, 50_000)],
        death_chance: 5,
        until: 10 * SECOND,
        ..Plan::calm(4, Mode::Static, 20)
    };
    let got = run(&plan, 1);
    assert!(got.stats.lost > 10, "{}", got.stats.lost);
    let paused = |told: &Decision| matches!(told, Decision::Pausing { .. });
    assert_eq!(got.told(paused), []);
    for (at, _) in got.workers.iter().filter(|(_, up)| *up < 20) {
        assert_eq!(got.workers_at(at + 2 * plan.fork), 20, "after {at}");
    }
}

#[test]
fn a_crash_loop_is_paced_and_told_once_and_so_is_its_end() {
    for mode in [Mode::Static, DYNAMIC, crate::auto::auto(2)] {
        let plan = Plan {
            broken: (0, 60 * SECOND),
            until: 120 * SECOND,
            ..Plan::calm(2, mode, 20)
        };
        let got = run(&plan, 1);
        // Each is replaced once. Then one is tried after 100 ms, 200 ms, … 25.6 s.
        assert!(got.started_within(0, 60 * SECOND) <= 50, "{:?}", got.starts);
        assert!(got.started_within(SECOND, 60 * SECOND) <= 8);
        let paused = got.told(|told| matches!(told, Decision::Pausing { died: true, .. }));
        let recovered = got.told(|told| matches!(told, Decision::Recovered { .. }));
        assert_eq!((paused.len(), recovered.len()), (1, 1), "{mode:?}");
        let back = recovered[0].0;
        assert!((60 * SECOND..102 * SECOND).contains(&back), "{back}");
        let all = if mode == Mode::Static { 20 } else { 2 };
        assert_eq!(got.workers_at(back + 20 * MILLISECOND), all, "{mode:?}");
    }
}

#[test]
fn workers_that_die_under_their_first_request_are_replaced_at_once() {
    for mode in [Mode::Static, DYNAMIC, Mode::OnDemand, crate::auto::auto(2)] {
        let plan = Plan {
            loads: vec![Load::from(0, Clients::Even(10_000), 1_000, 9_000).deadly()],
            until: 10 * SECOND,
            ..Plan::calm(2, mode, 8)
        };
        let got = run(&plan, 1);
        let paused = |told: &Decision| matches!(told, Decision::Pausing { .. });
        assert_eq!(got.told(paused), [], "{mode:?}");
        assert!(got.stats.lost >= 990, "{mode:?}: {:?}", got.stats);
        let longest = got.longest_wait(SECOND, plan.until);
        assert!(longest <= 3 * plan.fork, "{mode:?}: {longest}");
    }
}

/// PHP-FPM replaces a child that crashes at once, and answers all other requests.
#[test]
fn a_script_that_crashes_5_20_or_50_times_a_second_costs_the_others_nothing() {
    let good = Load::from(SECOND, Clients::Random(SECOND / 150), 2_000, 8_000).uneven();
    for mode in [Mode::Static, DYNAMIC, Mode::OnDemand, crate::auto::auto(2)] {
        for crashes in [5, 20, 50] {
            let poison = Load::from(SECOND, Clients::Random(SECOND / crashes), 10_000, 10_000);
            let calm = Plan::calm(2, mode, 8);
            let plan = Plan {
                loads: vec![good.clone(), poison.deadly()],
                limits: Limits {
                    timeout: Micros::from_secs(10),
                    max_queue: 1_000,
                    ..calm.limits
                },
                until: 61 * SECOND,
                ..calm
            };
            let got = run(&plan, 1);
            let (came, answered) = got.of_loads[&0];
            assert!(came > 8_000, "{came}");
            assert!(
                answered + 8 >= came,
                "{mode:?}, {crashes}: {answered} of {came}"
            );
            assert_eq!(got.stats.shed(), 0, "{mode:?}, {crashes}");
            let longest = got.longest_wait(2 * SECOND, plan.until);
            assert!(
                longest <= 500 * MILLISECOND,
                "{mode:?}, {crashes}: {longest}"
            );
        }
    }
}

/// Half of the requests run a script that crashes. The pool still serves the others.
#[test]
fn who_finds_a_script_that_crashes_does_not_stop_the_others() {
    for mode in [Mode::Static, DYNAMIC, Mode::OnDemand, crate::auto::auto(2)] {
        let plan = Plan {
            loads: vec![Load::from(0, Clients::Random(20_000), 1_000, 9_000)],
            death_chance: 500,
            until: 60 * SECOND,
            ..Plan::calm(2, mode, 20)
        };
        let got = run(&plan, 1);
        let answered = got.answers.len() as u64;
        assert!(
            answered * 100 >= got.stats.admitted * 45,
            "{mode:?}: {answered}"
        );
        assert_eq!(got.stats.shed(), 0, "{mode:?}");
        let longest = got.longest_wait(SECOND, plan.until);
        assert!(longest <= 2 * SECOND, "{mode:?}: {longest}");
    }
}

#[test]
fn workers_that_cannot_be_forked_are_not_tried_without_pause() {
    let plan = Plan {
        loads: vec![Load::from(0, Clients::Even(10_000), 1_000, 1_000)],
        no_forks: (0, 60 * SECOND),
        until: 70 * SECOND,
        ..Plan::calm(2, Mode::OnDemand, 20)
    };
    let got = run(&plan, 1);
    let tries = got.started_within(5 * SECOND, 60 * SECOND);
    assert!((30..=36).contains(&tries), "{tries}");
    let paused = got.told(|told| matches!(told, Decision::Pausing { died: false, .. }));
    let recovered = got.told(|told| matches!(told, Decision::Recovered { .. }));
    assert_eq!((paused.len(), recovered.len()), (1, 1));
    assert!(recovered[0].0 <= 62 * SECOND);
    // Requests that came meanwhile did not wait in vain.
    assert!(got.stats.shed_no_worker > 1_000, "{:?}", got.stats);
}

#[test]
fn a_master_that_comes_back_has_the_workers_of_the_start_again() {
    for mode in [Mode::Static, DYNAMIC, crate::auto::auto(2)] {
        let plan = Plan {
            master_lost: vec![5 * SECOND],
            until: 6 * SECOND,
            ..Plan::calm(2, mode, 4)
        };
        let got = run(&plan, 1);
        let start = if mode == Mode::Static { 4 } else { 2 };
        assert_eq!(got.workers_at(4 * SECOND), start);
        assert_eq!(got.workers_at(5 * SECOND), 0);
        assert_eq!(got.workers_at(5 * SECOND + 60 * MILLISECOND), start);
        let paused = |told: &Decision| matches!(told, Decision::Pausing { .. });
        assert_eq!(got.told(paused), [], "its death is not theirs");
    }
}

#[test]
fn the_limit_is_told_once_however_often_workers_are_replaced() {
    for max_requests in [1, 3] {
        let plan = Plan {
            loads: vec![Load::from(SECOND, Clients::Closed(30), 1_000, 10_000)],
            max_requests,
            until: 20 * SECOND,
            ..Plan::calm(4, Mode::OnDemand, 4)
        };
        let got = run(&plan, 1);
        assert!(got.started_within(SECOND, plan.until) > 100);
        assert_eq!(got.max_children_reached, 1);
    }
}

#[test]
fn the_limit_is_told_again_when_there_were_fewer_meanwhile() {
    let crowd = Load::from(SECOND, Clients::Closed(30), 1_000, 50_000);
    let again = Load::from(40 * SECOND, Clients::Closed(30), 1_000, 50_000);
    let plan = Plan {
        loads: vec![crowd.until(5 * SECOND), again.until(45 * SECOND)],
        until: 60 * SECOND,
        ..Plan::calm(4, Mode::OnDemand, 10)
    };
    let got = run(&plan, 1);
    assert_eq!(got.max_children_reached, 2);
    let told = got.told(|told| matches!(told, Decision::ReachedMaxChildren { .. }));
    assert_eq!(told.len(), 2);
}

impl Load {
    pub(crate) fn from(from: u64, clients: Clients, cpu: u64, io: u64) -> Self {
        Self {
            from,
            until: u64::MAX,
            clients,
            cpu,
            io,
            turns: if io == 0 { 1 } else { 2 },
            is_constant: true,
            is_deadly: false,
        }
    }

    /// Each script ends its worker instead of answering.
    pub(crate) fn deadly(self) -> Self {
        Self {
            is_deadly: true,
            ..self
        }
    }

    pub(crate) fn until(self, until: u64) -> Self {
        Self { until, ..self }
    }

    /// Scripts take different times.
    pub(crate) fn uneven(self) -> Self {
        Self {
            is_constant: false,
            ..self
        }
    }
}

impl Outcome {
    pub(crate) fn told(&self, wanted: impl Fn(&Decision) -> bool) -> Vec<(u64, Decision)> {
        let told = self.decisions.iter().copied();
        told.filter(|(_, told)| wanted(told)).collect()
    }
}
