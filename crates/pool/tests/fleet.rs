//! Checks that a small fleet keeps its promises: the simulator of `examples/fleet` with few nodes and few seconds.
#![forbid(unsafe_code)]

#[path = "../examples/fleet/calendar.rs"]
mod calendar;
#[path = "../examples/fleet/world.rs"]
mod world;

use weir_pool::Micros;
use world::{Fleet, Loss, Plan, Rules, Second};

/// Ten nodes. One node is gone from 4 s for 4 s. From 12 s a crowd comes for 8 s.
fn plan(rules: Rules) -> Plan {
    Plan {
        rules,
        nodes: 10,
        workers: 16,
        gateways: 2,
        rate: 500.0,
        seconds: 40,
        losses: vec![Loss {
            first: 0,
            nodes: 1,
            from: 4,
            until: 8,
        }],
        crowd: (5.0, 12, 20),
    }
}

#[test]
fn a_lost_node_costs_what_was_on_it_at_most() {
    let course = Fleet::new(plan(Rules::Pool), 1).run();
    for (number, second) in course.iter().enumerate().take(12).skip(1) {
        assert_eq!(second.refused, 0, "second {number}: {second:?}");
        assert!(
            quantile(second, 0.99) < Micros::from_millis(200),
            "second {number}"
        );
    }
    let lost: u64 = course.iter().map(|second| second.lost).sum();
    assert!(lost <= 16, "{lost}");
}

/// From the third second of the crowd on. Before that, the pool cannot know how long clients wait.
#[test]
fn in_a_crowd_everything_that_is_done_is_for_somebody_who_waits() {
    let course = Fleet::new(plan(Rules::Pool), 1).run();
    for (number, second) in course.iter().enumerate().take(20).skip(15) {
        assert!(
            second.good * 100 >= second.capacity * 95,
            "second {number}: {second:?}"
        );
        let told = second.refusals.quantile(0.99);
        assert!(
            told.is_some_and(|after| after <= Micros::from_millis(100)),
            "second {number}: {told:?}"
        );
    }
    // By then, the clients that were asked to try again have done so.
    for (number, second) in course.iter().enumerate().skip(35) {
        assert_eq!(second.refused, 0, "second {number}");
        assert!(
            quantile(second, 0.99) < Micros::from_millis(200),
            "second {number}"
        );
    }
}

#[test]
fn one_seed_is_one_course() {
    let short = Plan {
        seconds: 3,
        ..plan(Rules::Pool)
    };
    let good = |seed| -> Vec<u64> {
        let course = Fleet::new(short.clone(), seed).run();
        course.iter().map(|second| second.good).collect()
    };
    assert_eq!(good(7), good(7));
    assert_ne!(good(7), good(8));
}

/// The comparison in the picture: with this model of clients, an unlimited queue does fail.
#[test]
fn a_queue_without_an_end_serves_nobody() {
    let course = Fleet::new(plan(Rules::Backlog), 1).run();
    let last = &course[18..20];
    assert!(
        last.iter().all(|second| second.good * 10 < second.capacity),
        "{last:?}"
    );
}

fn quantile(second: &Second, share: f64) -> Micros {
    second.waits.quantile(share).unwrap_or(Micros::MAX)
}
