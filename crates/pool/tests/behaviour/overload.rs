//! Overload that lasts: from the first second to the last, the pool works for clients that still wait. Clients that it
//! cannot serve are told at once.

use weir_pool::{Order, Stats};

use crate::crowd::{Arrive, Group, Outcome, Plan, Spread, run, run_watched};

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// Scenario 5: 1.5 and 3 times the capacity for 60 s, with clients that give up after 2 s, and then half the capacity.
#[test]
fn overload_that_lasts_costs_nothing_of_what_is_done_and_is_over_when_it_is_over() {
    for (workers, script, spread) in [
        (4, 40 * MILLISECOND, Spread::Constant),
        (4, 40 * MILLISECOND, Spread::Exponential),
        (2, 10 * MILLISECOND, Spread::Exponential),
        (20, 100 * MILLISECOND, Spread::Exponential),
        (1, 20 * MILLISECOND, Spread::Constant),
        (4, 500 * MILLISECOND, Spread::Constant),
        (2, MILLISECOND, Spread::Exponential),
    ] {
        for percent in [150, 300] {
            for seed in 1..=3 {
                let plan = overload(workers, script, spread, percent);
                let (got, stats) = run(&plan, seed);
                let what = format!("{percent} %, {workers} × {script} µs {spread:?}, {seed}");
                let capacity = u64::from(workers) * 60 * SECOND / script;
                let good = got[0].answered(0, 60 * SECOND) * 100 / capacity;
                assert!(good >= 95, "{what}: goodput {good} %: {stats:?}");
                let late = |outcome: &Outcome| {
                    let refused = outcome.refused.iter();
                    refused
                        .filter(|(_, after, _)| *after > 100 * MILLISECOND)
                        .count()
                };
                assert_eq!(late(&got[0]), 0, "{what}: refused at once");
                // The pool does not switch between overload and normal state again and again.
                assert!(stats.overloads <= 2, "{what}: {}", stats.overloads);
                let longest = got[1].longest_wait(61 * SECOND, 75 * SECOND);
                let normal = (4 * script).max(150 * MILLISECOND);
                assert!(longest <= normal, "{what}: {longest} after it");
                let refused = got[1].refused.iter();
                let refused = refused.filter(|(at, ..)| *at > 61 * SECOND);
                assert_eq!(refused.count(), 0, "{what}: {:?}", got[1].refused);
                assert!(!stats.overloaded);
            }
        }
    }
}

/// The first clients come before the pool knows how long clients wait. They are not served in vain either: in each
/// second, and in any five seconds, nearly all work is for clients that still wait.
#[test]
fn no_second_at_the_start_of_lasting_overload_is_lost() {
    for (workers, script, spread) in [
        (2, 20 * MILLISECOND, Spread::Constant),
        (4, 40 * MILLISECOND, Spread::Exponential),
        (4, 10 * MILLISECOND, Spread::Exponential),
        (2, 5 * MILLISECOND, Spread::Constant),
        (20, 50 * MILLISECOND, Spread::Exponential),
    ] {
        for (percent, patience) in [120, 150, 200, 300].into_iter().flat_map(|percent| {
            let patiences: [&[u64]; 4] = [&[2], &[4], &[2, 4], &[10]];
            patiences.map(|patience| (percent, patience))
        }) {
            for seed in 1..=3 {
                let mut plan = overload(workers, script, spread, percent);
                let all = plan.groups[0];
                let every = script * 100 / u64::from(workers) / percent;
                let groups = patience.iter().map(|seconds| Group {
                    arrive: Arrive::Random(every * patience.len() as u64),
                    patience: seconds * SECOND,
                    until: 20 * SECOND,
                    ..all
                });
                plan.groups = groups.collect();
                let (got, stats) = run(&plan, seed);
                let what =
                    format!("{percent} %, {workers} × {script} µs, {patience:?} s, seed {seed}");
                let done = |from: u64, seconds: u64| {
                    let (from, until) = (from * SECOND, (from + seconds) * SECOND);
                    let good: u64 = got.iter().map(|all| all.answered(from, until)).sum();
                    let wasted = got.iter().flat_map(|outcome| &outcome.wasted);
                    let wasted = wasted.filter(|at| (from..until).contains(at)).count() as u64;
                    (good, wasted)
                };
                // If the overload is small, it takes the pool longer to recognize it.
                let (of_a_second, of_five) = if percent < 150 { (30, 10) } else { (7, 5) };
                // The requests from which the pool learns, and the requests that run meanwhile.
                let learning = 16 + 2 * u64::from(workers);
                for second in 0..20 {
                    let (good, wasted) = done(second, 1);
                    let few = learning.max((good + wasted) * of_a_second / 100);
                    assert!(wasted <= few, "{what}, second {second}: {good} {wasted}");
                    let (good, wasted) = done(second, 5);
                    let few = (good + wasted) * of_five / 100;
                    assert!(wasted <= few, "{what}, 5 from {second}: {good} {wasted}");
                }
                assert!(stats.overloads <= 2, "{what}: {stats:?}");
                let done = stats.service_time.0 / u64::from(workers);
                assert!(done >= 19 * SECOND, "{what}: all are at work");
            }
        }
    }
}

#[test]
fn clients_that_come_one_after_the_other_and_wait_their_turn_are_not_refused() {
    let groups = (0..300).map(|client| Group {
        from: client * 3 * SECOND / 300,
        spread: Spread::Exponential,
        ..Group::new(Arrive::Closed(1), 20 * MILLISECOND)
    });
    let plan = Plan {
        groups: groups.collect(),
        until: 40 * SECOND,
        ..Plan::calm(4)
    };
    let (got, stats) = run(&plan, 1);
    let refused = got.iter().flat_map(|outcome| &outcome.refused);
    assert_eq!(refused.count(), 0, "{stats:?}");
}

/// If nearly as many come as can be served, random arrivals make queues of some length.
#[test]
fn as_many_as_can_be_served_are_served_however_they_come() {
    for (workers, script, spread, percent) in [
        (2, 20 * MILLISECOND, Spread::Constant, 95),
        (1, 100 * MILLISECOND, Spread::Exponential, 80),
        (4, 40 * MILLISECOND, Spread::Exponential, 90),
        (20, 100 * MILLISECOND, Spread::Exponential, 95),
        (4, 10 * MILLISECOND, Spread::HeavyTail, 60),
    ] {
        let mut plan = overload(workers, script, spread, percent);
        plan.groups.truncate(1);
        (plan.groups[0].until, plan.until) = (u64::MAX, 300 * SECOND);
        plan.groups[0].patience = 0;
        let (_, stats) = run(&plan, 1);
        assert_eq!(stats.shed(), 0, "{workers}, {spread:?}: {stats:?}");
    }
}

#[test]
fn first_come_first_served_would_have_lost_nearly_everything() {
    let mut plan = overload(4, 40 * MILLISECOND, Spread::Constant, 150);
    plan.limits.order = Order::Fifo;
    let (got, stats) = run(&plan, 1);
    let capacity = 100 * 60;
    assert!(got[0].answered(0, 60 * SECOND) * 100 / capacity < 30);
    assert_eq!((stats.overloads, stats.shed_overload), (0, 0));
}

/// Deadlines that clients tell have the same effect as clients that leave.
#[test]
fn overload_by_requests_with_deadlines_is_seen_as_well() {
    for percent in [150, 300] {
        let mut plan = overload(4, 40 * MILLISECOND, Spread::Exponential, percent);
        plan.groups.iter_mut().for_each(|group| {
            group.patience = 0;
            group.deadline = 2 * SECOND;
        });
        let (got, stats) = run(&plan, 1);
        let in_time = |answer: &&(u64, u64, u64)| answer.2 <= 2 * SECOND;
        let good = got[0].answers.iter().filter(in_time).count();
        assert!(good >= 5_700, "{percent} %: {good}: {stats:?}");
    }
}

#[test]
fn clients_that_stay_are_refused_at_once_too_when_more_come_than_can_be_served() {
    let mut plan = overload(4, 40 * MILLISECOND, Spread::Exponential, 200);
    plan.groups.iter_mut().for_each(|group| group.patience = 0);
    let (got, stats) = run(&plan, 1);
    assert!(got[0].answered(0, 60 * SECOND) >= 5_700, "{stats:?}");
    let longest = got[0].longest_wait(30 * SECOND, 60 * SECOND);
    assert!(
        longest <= 2 * SECOND,
        "{longest}: the queue is short by then"
    );
    assert_eq!(stats.left, 0);
}

/// 300 refused clients come again a second later, so there seem to be many more clients.
#[test]
fn a_pause_of_all_workers_does_not_leave_a_closed_loop_refused_for_ever() {
    let group = Group {
        patience: 3 * SECOND,
        ..Group::new(Arrive::Closed(150), 20 * MILLISECOND)
    };
    let plan = Plan {
        groups: vec![group],
        stuck: (10 * SECOND, 16 * SECOND, 4),
        until: 120 * SECOND,
        ..Plan::calm(4)
    };
    let mut overloaded_at = Vec::new();
    let (got, stats) = run_watched(&plan, 1, |second, stats: &Stats| {
        if stats.overloaded {
            overloaded_at.push(second / SECOND);
        }
    });
    assert!(!overloaded_at.is_empty(), "{stats:?}");
    let refused = got[0].refused.iter().filter(|(at, ..)| *at > 60 * SECOND);
    assert_eq!(refused.count(), 0, "overloaded at {overloaded_at:?} s");
    assert_eq!(got[0].answered(60 * SECOND, 120 * SECOND) / 60, 200);
}

#[test]
fn clients_at_the_edge_of_their_patience_get_what_can_be_done() {
    for clients in [150, 190, 210, 250, 400] {
        // 100 a second, so that 200 clients wait for 2 s.
        let group = Group {
            patience: 2 * SECOND,
            spread: Spread::Exponential,
            ..Group::new(Arrive::Closed(clients), 40 * MILLISECOND)
        };
        let plan = Plan {
            groups: vec![group],
            until: 60 * SECOND,
            ..Plan::calm(4)
        };
        let (got, stats) = run(&plan, 1);
        let good = got[0].answered(0, 60 * SECOND);
        assert!(good >= 5_500, "{clients}: {good}: {stats:?}");
    }
}

#[test]
fn a_thousand_at_once_who_give_up_after_two_seconds_are_over_when_they_are_gone() {
    let burst = Group {
        from: 5 * SECOND,
        patience: 2 * SECOND,
        ..Group::new(Arrive::Burst(1_000), 20 * MILLISECOND)
    };
    let usual = Group {
        patience: 2 * SECOND,
        until: 20 * SECOND,
        ..Group::new(Arrive::Even(10 * MILLISECOND), 20 * MILLISECOND)
    };
    let plan = Plan {
        groups: vec![usual, burst],
        ..Plan::calm(4)
    };
    let (got, stats) = run(&plan, 1);
    assert!(got[1].answers.len() + got[0].answered(5 * SECOND, 7 * SECOND) as usize >= 390);
    // Until 9 s the pool serves the requests that came in the meantime.
    let after = 9 * SECOND..20 * SECOND;
    let refused = got[0].refused.iter().filter(|(at, ..)| after.contains(at));
    assert_eq!(refused.count(), 0, "{stats:?}");
    let longest = got[0].longest_wait(9 * SECOND, 20 * SECOND);
    assert!(longest <= 50 * MILLISECOND, "{longest}");
}

/// This share of the capacity (in percent) for a minute, by clients that give up after 2 s, and then half the capacity.
pub(crate) fn overload(workers: u32, script: u64, spread: Spread, percent: u64) -> Plan {
    let every = script * 100 / u64::from(workers) / percent;
    let group = Group {
        spread,
        patience: 2 * SECOND,
        until: 60 * SECOND,
        ..Group::new(Arrive::Random(every), script)
    };
    let after = Group {
        arrive: Arrive::Random(script * 2 / u64::from(workers)),
        from: 60 * SECOND,
        until: 75 * SECOND,
        ..group
    };
    Plan {
        groups: vec![group, after],
        ..Plan::calm(workers)
    }
}
