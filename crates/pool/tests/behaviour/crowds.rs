//! How a pool serves crowds of clients: bursts, floods, classes, and stuck workers.

use weir_pool::{
    Admission, Limits, Micros, Order, Pool, RequestId, Reserve, Reserves, ShedReason, Ticket,
};

use crate::crowd::{Arrive, Group, Plan, Spread, Who, run};
use crate::overload::overload;

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000;

// All clients wait, and none leaves

/// `siege -c 100` over 20 workers, and `ab -c 300` on a page that takes 10 ms of one of two processors.
#[test]
fn clients_that_ask_again_when_they_are_answered_are_never_refused_and_wait_alike() {
    for (workers, clients, script) in [
        (20, 100, 9 * MILLISECOND),
        (2, 300, 19 * MILLISECOND),
        (4, 300, 40 * MILLISECOND),
        (1, 300, 10 * MILLISECOND),
    ] {
        for spread in [
            Spread::Constant,
            Spread::Exponential,
            Spread::HeavyTail,
            Spread::Cold(50),
        ] {
            let group = Group {
                spread,
                ..Group::new(Arrive::Closed(clients), script)
            };
            let plan = Plan {
                groups: vec![group],
                until: 30 * SECOND,
                ..Plan::calm(workers)
            };
            let (got, stats) = run(&plan, 1);
            let what = format!("{clients} clients, {workers} workers, {spread:?}");
            assert_eq!(stats.shed(), 0, "{what}: {stats:?}");
            assert_eq!(stats.overloads, 0, "{what}");
            if matches!(spread, Spread::Constant) {
                let rate = stats.finished / 30;
                let longest = got[0].longest_wait(0, 30 * SECOND);
                assert!(
                    longest <= clients * SECOND / rate * 11 / 10,
                    "{what}: {longest}"
                );
            }
        }
    }
}

#[test]
fn a_burst_that_can_be_served_in_time_is_served_whole() {
    for who in [Who::Nobody, Who::One(1), Who::Each] {
        let burst = Group {
            from: 5 * SECOND,
            who,
            ..Group::new(Arrive::Burst(1_000), 20 * MILLISECOND)
        };
        let usual = Group {
            until: 30 * SECOND,
            ..Group::new(Arrive::Even(40 * MILLISECOND), 20 * MILLISECOND)
        };
        let plan = Plan {
            groups: vec![usual, burst],
            ..Plan::calm(4)
        };
        let (got, stats) = run(&plan, 1);
        assert_eq!(stats.shed(), 0, "{who:?}: {stats:?}");
        assert_eq!(got[1].answers.len(), 1_000);
    }
}

#[test]
fn of_a_burst_that_cannot_be_served_in_time_the_rest_is_refused_at_once() {
    let usual = Group::new(Arrive::Even(100 * MILLISECOND), 100 * MILLISECOND);
    let burst = Group {
        from: 20 * SECOND,
        ..Group::new(Arrive::Burst(900), 100 * MILLISECOND)
    };
    let plan = Plan {
        groups: vec![usual, burst],
        until: 60 * SECOND,
        ..Plan::calm(4)
    };
    let (got, stats) = run(&plan, 1);
    // 40 a second for 10 s.
    let served = got[1].answers.len();
    assert!((380..=402).contains(&served), "{served}");
    let hopeless = got[1].refused_for(ShedReason::Hopeless);
    assert!(hopeless >= 490, "{hopeless} of {:?}", got[1].refused.len());
    assert!(
        got[1]
            .refused
            .iter()
            .filter(|(_, after, _)| *after > 0)
            .count()
            <= 10
    );
    assert_eq!(stats.overloads, 0, "{stats:?}");
}

// Stuck workers

#[test]
fn while_all_workers_are_stuck_newcomers_are_told_at_once_and_after_that_served_at_once() {
    let group = Group {
        patience: 2 * SECOND,
        until: 60 * SECOND,
        ..Group::new(Arrive::Even(20 * MILLISECOND), 40 * MILLISECOND)
    };
    let plan = Plan {
        groups: vec![group],
        stuck: (10 * SECOND, 40 * SECOND, 4),
        ..Plan::calm(4)
    };
    let (got, stats) = run(&plan, 1);
    let refused = got[0].refused.iter();
    let at_once = refused.filter(|(at, after, _)| *at > 15 * SECOND && *after == 0);
    assert!(at_once.count() >= 1_200, "{stats:?}");
    assert!(
        got[0].answered(42 * SECOND, 60 * SECOND) >= 880,
        "50 a second"
    );
    assert!(got[0].longest_wait(42 * SECOND, 60 * SECOND) <= 100 * MILLISECOND);
}

#[test]
fn three_of_four_stuck_workers_leave_a_quarter_of_what_can_be_done() {
    let group = Group {
        patience: 2 * SECOND,
        until: 60 * SECOND,
        ..Group::new(Arrive::Even(15 * MILLISECOND), 40 * MILLISECOND)
    };
    let plan = Plan {
        groups: vec![group],
        stuck: (10 * SECOND, 60 * SECOND, 3),
        ..Plan::calm(4)
    };
    let (got, stats) = run(&plan, 1);
    let good = got[0].answered(15 * SECOND, 59 * SECOND);
    assert!(good >= 44 * 25 * 90 / 100, "{good}: {stats:?}");
}

// Fair shares

/// One client with 1,000 requests at a time and ten with one each, on 4 workers.
#[test]
fn a_flood_of_one_client_makes_the_others_wait_no_longer_than_three_times() {
    for spread in [Spread::Constant, Spread::Exponential] {
        let ten: Vec<Group> = (0..10)
            .map(|client| Group {
                who: Who::One(100 + client),
                spread,
                ..Group::new(Arrive::Closed(1), 40 * MILLISECOND)
            })
            .collect();
        let flood = Group {
            who: Who::One(1),
            spread,
            ..Group::new(Arrive::Closed(1_000), 40 * MILLISECOND)
        };
        let mean = |groups: Vec<Group>| {
            let plan = Plan {
                groups,
                until: 30 * SECOND,
                ..Plan::calm(4)
            };
            let (got, _) = run(&plan, 1);
            let times = got[..10].iter().flat_map(|got| &got.answers);
            let (sum, count) = times.fold((0, 0), |(sum, n), answer| (sum + answer.2, n + 1));
            let refused: usize = got[..10].iter().map(|got| got.refused.len()).sum();
            assert_eq!(refused, 0, "who has one request is never refused");
            sum / count
        };
        let alone = mean(ten.clone());
        let beside = mean(ten.into_iter().chain([flood]).collect());
        assert!(beside <= 2 * alone, "{beside} beside, {alone} alone");
    }
}

#[test]
fn who_has_few_waiting_takes_the_place_of_who_has_most_when_the_queue_is_full() {
    let flood = Group {
        who: Who::One(1),
        ..Group::new(Arrive::Closed(500), 40 * MILLISECOND)
    };
    let others = Group {
        from: SECOND,
        ..Group::new(Arrive::Even(50 * MILLISECOND), 40 * MILLISECOND)
    };
    let mut plan = Plan {
        groups: vec![flood, others],
        until: 20 * SECOND,
        ..Plan::calm(4)
    };
    plan.limits.max_queue = 100;
    plan.limits.order = Order::Fifo;
    let (got, stats) = run(&plan, 1);
    assert_eq!(got[1].refused, []);
    assert!(stats.shed_pushed_out > 10, "{stats:?}");
    assert!(got[1].longest_wait(0, 20 * SECOND) <= 100 * MILLISECOND);
}

#[test]
fn a_flood_of_new_clients_takes_no_more_memory_than_its_requests() {
    let flood = Group {
        until: 10 * SECOND,
        ..Group::new(Arrive::Even(100), 40 * MILLISECOND)
    };
    let plan = Plan {
        groups: vec![flood],
        ..Plan::calm(4)
    };
    // The queue's own check compares the number of flows with the waiting requests.
    let (_, stats) = run(&plan, 1);
    assert!(stats.max_waiting <= 1_000);
    assert!(stats.shed() > 90_000);
}

// Classes and reserves

#[test]
fn a_better_class_does_not_notice_the_overload_of_a_worse_one() {
    for order in [Order::Adaptive, Order::Fifo] {
        let crawler = Group {
            priority: 50,
            patience: 2 * SECOND,
            ..Group::new(Arrive::Even(4 * MILLISECOND), 40 * MILLISECOND)
        };
        let checkout = Group {
            from: 5 * SECOND,
            priority: -10,
            patience: 2 * SECOND,
            ..Group::new(Arrive::Even(50 * MILLISECOND), 40 * MILLISECOND)
        };
        let mut plan = Plan {
            groups: vec![crawler, checkout],
            until: 30 * SECOND,
            ..Plan::calm(4)
        };
        plan.limits.order = order;
        let (got, stats) = run(&plan, 1);
        assert_eq!(got[1].refused, [], "{order:?}: {stats:?}");
        assert_eq!(got[1].left, []);
        let longest = got[1].longest_wait(0, 30 * SECOND);
        assert!(longest <= 45 * MILLISECOND, "{order:?}: {longest}");
    }
}

#[test]
fn a_reserve_keeps_a_worker_for_those_it_is_for_and_the_others_have_the_rest() {
    let slow = Group {
        priority: 0,
        ..Group::new(Arrive::Closed(30), SECOND)
    };
    let health = Group {
        from: 3 * SECOND,
        priority: -10,
        ..Group::new(Arrive::Even(250 * MILLISECOND), 10 * MILLISECOND)
    };
    let mut plan = Plan {
        groups: vec![slow, health],
        until: 30 * SECOND,
        ..Plan::calm(4)
    };
    plan.limits.timeout = Micros::from_secs(60);
    plan.limits.reserve = Reserves::new(&[Reserve {
        priority: -10,
        workers: 1,
    }])
    .unwrap();
    let (got, stats) = run(&plan, 1);
    assert_eq!(got[1].longest_wait(0, 30 * SECOND), 0, "{stats:?}");
    assert_eq!(
        got[0].answered(0, 30 * SECOND + 1),
        90,
        "three workers, one each second"
    );
    assert_eq!(stats.max_busy, 4);
}

// Deadlines

#[test]
fn who_cannot_be_served_before_its_deadline_is_told_at_once_and_the_others_wait() {
    let patient = Group::new(Arrive::Closed(100), 40 * MILLISECOND);
    let hurried = Group {
        from: 5 * SECOND,
        deadline: 300 * MILLISECOND,
        ..Group::new(Arrive::Even(500 * MILLISECOND), 40 * MILLISECOND)
    };
    let less = Group {
        deadline: 3 * SECOND,
        ..hurried
    };
    let plan = Plan {
        groups: vec![patient, hurried, less],
        until: 30 * SECOND,
        ..Plan::calm(4)
    };
    let (got, stats) = run(&plan, 1);
    assert_eq!(got[0].refused, [], "{stats:?}");
    assert_eq!(got[1].answers, [], "100 wait, which takes a second");
    assert!(
        got[1]
            .refused
            .iter()
            .all(|(_, after, reason)| { *after == 0 && *reason == ShedReason::Hopeless })
    );
    assert_eq!(got[2].refused, []);
}

#[test]
fn a_deadline_that_passes_while_waiting_is_kept_to_the_microsecond() {
    let slow = Group::new(Arrive::Burst(1), 10 * SECOND);
    let hurried = Group {
        from: SECOND,
        deadline: 300 * MILLISECOND,
        ..Group::new(Arrive::Burst(1), MILLISECOND)
    };
    let plan = Plan {
        groups: vec![slow, hurried],
        ..Plan::calm(1)
    };
    let (got, _) = run(&plan, 1);
    let told = (
        SECOND + 300 * MILLISECOND,
        300 * MILLISECOND,
        ShedReason::Deadline,
    );
    assert_eq!(
        got[1].refused,
        [told],
        "nothing is known of how long scripts run"
    );
}

// Retry times

#[test]
fn who_comes_again_when_it_was_told_to_finds_a_place() {
    let usual = Group {
        until: 5 * SECOND,
        ..Group::new(Arrive::Even(100 * MILLISECOND), 100 * MILLISECOND)
    };
    let burst = Group {
        from: 5 * SECOND,
        ..Group::new(Arrive::Burst(900), 100 * MILLISECOND)
    };
    let mut plan = Plan {
        groups: vec![usual, burst],
        ..Plan::calm(4)
    };
    for (max_queue, timeout) in [(200, 2), (50, 60), (1_000, 5)] {
        plan.limits.max_queue = max_queue;
        plan.limits.timeout = Micros::from_secs(timeout);
        plan.groups.truncate(2);
        let (got, _) = run(&plan, 1);
        let told = &got[1].told;
        assert!(told.len() > 650, "{}", told.len());
        for at in [told[0], *told.last().unwrap()] {
            assert!((6 * SECOND..15 * SECOND).contains(&at), "{at}");
            plan.groups.truncate(2);
            plan.groups.push(Group {
                from: at,
                ..Group::new(Arrive::Burst(1), 100 * MILLISECOND)
            });
            let (got, _) = run(&plan, 1);
            assert_eq!(got[2].refused, [], "{max_queue} {timeout}");
        }
    }
}

#[test]
fn the_area_under_the_queue_is_the_waiting_of_all() {
    let plan = overload(4, 40 * MILLISECOND, Spread::Exponential, 150);
    let (got, stats) = run(&plan, 1);
    assert_eq!(stats.waiting, 0);
    let patience = 2 * SECOND * got[0].left.len() as u64;
    let refused: u64 = got[0].refused.iter().map(|(_, after, _)| after).sum();
    assert_eq!(stats.queue_time.0, stats.waited_time.0 + patience + refused);
}

#[test]
fn it_grows_while_nothing_happens_but_that_somebody_waits() {
    let mut pool = Pool::new(Limits::USUAL);
    let waits = pool.admit(Micros::from_secs(5), &Ticket::new(RequestId(1), 0));
    assert!(matches!(waits, Admission::Wait { .. }));
    for second in 1..=3 {
        pool.pass(Micros::from_secs(5 + second));
        assert_eq!(pool.stats().queue_time, Micros::from_secs(second));
    }
}
