//! What a pool does in named situations.

use std::time::{Duration, Instant};

use weir_pool::{
    Action, Admission, Assignment, Limits, MAX_WORKERS, Micros, Orders, Pool, Refused, Released,
    RequestId, ShedReason, Ticket, WorkerId,
};

use crate::checked::{Checked, Outcome, waits};
use crate::world::{Course, run};

const USUAL: Limits = Limits {
    maxconn: 4,
    max_queue: 1_000,
    timeout: Micros::from_secs(5),
    ..Limits::USUAL
};
const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000;

// Crowds

#[test]
fn a_burst_of_300_over_4_workers_waits_exactly_as_long_as_the_queue_explains() {
    let course = Course {
        at_start: 300,
        script: 10 * MILLISECOND,
        ..Course::calm(4, USUAL)
    };
    let report = run(&course, 1);
    assert_eq!(report.good, 300, "everybody is served");
    let explained: Vec<u64> = (0..300).map(|place| place / 4 * 10 * MILLISECOND).collect();
    assert_eq!(report.waits, explained, "in turn, four at a time");
    assert_eq!(report.stats.longest_wait, Micros::from_millis(740));
    assert_eq!(report.stats.max_waiting, 296);
}

#[test]
fn overload_of_3_times_is_refused_at_once_and_the_rest_is_served_at_full_rate() {
    let course = Course {
        every: 833, // 1,200 a second; 4 workers do 400
        until: 60 * SECOND,
        script: 10 * MILLISECOND,
        ..Course::calm(
            4,
            Limits {
                max_queue: 40,
                ..USUAL
            },
        )
    };
    let report = run(&course, 1);
    assert!(report.good >= 400 * 60 - 4, "{}", report.good);
    assert!(report.stats.shed_queue_full > 47_000);
    assert_eq!(report.stats.shed(), report.stats.shed_queue_full);
    assert_eq!(report.refusals.iter().max(), Some(&0), "refused at once");
    let longest = *report.waits.iter().max().unwrap();
    assert!(longest <= 110 * MILLISECOND, "40 / 400 a second, {longest}");
    // When the load ends, the waits end too.
    assert!(report.ended_at <= 60 * SECOND + 120 * MILLISECOND);
}

#[test]
fn endless_overload_with_impatient_clients_wastes_nothing_if_the_timeout_is_below_their_patience() {
    for times in [15, 30] {
        let course = Course {
            every: 10 * SECOND / (100 * times), // 4 workers do 100 a second
            until: 60 * SECOND,
            script: 40 * MILLISECOND,
            patience: 2 * SECOND,
            ..Course::calm(
                4,
                Limits {
                    timeout: Micros::from_millis(1_500),
                    ..USUAL
                },
            )
        };
        let report = run(&course, 1);
        assert!(report.good >= 60 * 100, "goodput {}", report.good);
        assert_eq!((report.wasted, report.stats.left), (0, 0));
        assert!(report.stats.shed() > 2_000);
    }
}

#[test]
fn slow_scripts_hold_their_own_workers_only() {
    let mut pool = workers(2, USUAL);
    let slow = started(pool.admit(Micros(0), &Ticket::new(RequestId(1), 0)));
    for request in 2..100 {
        let quick = started(pool.admit(Micros(request), &Ticket::new(RequestId(request), 0)));
        assert_ne!(quick, slow);
        assert_eq!(pool.release(Micros(request), quick).next, None);
    }
}

// Order

#[test]
fn free_workers_are_taken_last_in_first_out_so_that_the_coldest_stay_idle() {
    let mut pool = workers(4, USUAL);
    for request in 0..3 {
        assert_eq!(
            started(pool.admit(at(0), &Ticket::new(RequestId(request), 0))),
            worker(3 - request as u32)
        );
    }
    for back in [2, 1, 3] {
        let _ = pool.release(at(1), worker(back));
    }
    let taken: Vec<_> = (3..7)
        .map(|id| started(pool.admit(at(2), &Ticket::new(RequestId(id), 0))).0)
        .collect();
    assert_eq!(taken, [3, 1, 2, 0]);
}

#[test]
fn a_trickle_of_requests_keeps_one_worker_warm() {
    let course = Course {
        every: 20 * MILLISECOND,
        until: 10 * SECOND,
        script: 10 * MILLISECOND,
        ..Course::calm(4, USUAL)
    };
    assert_eq!(run(&course, 1).stats.max_busy, 1);
}

#[test]
fn a_worker_of_the_requests_own_reactor_is_preferred_to_a_warmer_one() {
    let mut pool = Checked::new(USUAL);
    pool.worker_up(at(0), worker(0), 0);
    pool.worker_up(at(0), worker(1), 1);
    pool.worker_up(at(0), worker(2), 1);
    assert_eq!(
        started(pool.admit(at(1), &Ticket::new(RequestId(1), 0))),
        worker(0)
    );
    assert_eq!(
        started(pool.admit(at(1), &Ticket::new(RequestId(2), 1))),
        worker(2)
    );
    assert_eq!(
        started(pool.admit(at(1), &Ticket::new(RequestId(3), 7))),
        worker(1),
        "any is better than none"
    );
}

#[test]
fn a_free_worker_whose_connection_moved_is_found_at_its_new_reactor() {
    let mut pool = Checked::new(USUAL);
    pool.worker_up(at(0), worker(0), 0);
    pool.worker_up(at(0), worker(1), 0);
    assert_eq!(pool.worker_up(at(1), worker(0), 3), None);
    assert_eq!(pool.pool.stats().workers, 2);
    assert_eq!(
        started(pool.admit(at(2), &Ticket::new(RequestId(1), 0))),
        worker(1)
    );
    assert_eq!(
        started(pool.admit(at(2), &Ticket::new(RequestId(2), 0))),
        worker(0)
    );
}

#[test]
fn a_newcomer_does_not_overtake_those_who_wait_for_the_place_of_a_dead_worker() {
    let mut pool = Pool::new(Limits {
        maxconn: 1,
        ..USUAL
    });
    pool.worker_up(at(0), worker(0), 0);
    pool.worker_up(at(0), worker(1), 0);
    let dead = started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    assert_eq!(pool.admit(at(1), &Ticket::new(RequestId(2), 0)), waits(0));
    assert_eq!(pool.worker_down(at(2), dead), Some(RequestId(1)));
    assert_eq!(pool.admit(at(3), &Ticket::new(RequestId(3), 0)), waits(1));
    let next = pool.dispatch(at(4));
    assert_eq!(next.map(|next| next.request), Some(RequestId(2)));
    assert_eq!(pool.dispatch(at(4)), None);
}

// Deaths

#[test]
fn a_worker_dies_under_its_request_which_is_the_next_to_run() {
    let mut pool = workers(1, USUAL);
    started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    for request in 2..5 {
        pool.admit(at(request), &Ticket::new(RequestId(request), 0));
    }
    let (lost, outcomes) = pool.worker_down(at(5), worker(0), again(at(0)));
    assert_eq!((lost, outcomes), (Some(RequestId(1)), vec![]));
    let next = pool.worker_up(at(6), worker(0), 0);
    assert_eq!(next, assignment(1, 0));
    assert_eq!(pool.release(at(7), worker(0)).next, assignment(2, 0));
}

#[test]
fn a_worker_dies_and_another_free_one_takes_its_request_at_once() {
    let mut pool = workers(2, USUAL);
    let dead = started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    let (_, outcomes) = pool.worker_down(at(1), dead, again(at(0)));
    let other = worker(1 - dead.0);
    let request = RequestId(1);
    assert_eq!(
        outcomes,
        [Outcome::Started(Assignment {
            request,
            worker: other
        })]
    );
}

#[test]
fn the_longest_wait_is_told_also_where_it_ended_in_a_refusal_or_has_not_ended() {
    let mut pool = workers(1, USUAL);
    started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    pool.admit(at(1_000), &Ticket::new(RequestId(2), 0));
    pool.admit(at(4_000), &Ticket::new(RequestId(3), 0));
    assert_eq!(pool.expire(at(6_000)), [timed_out(2)]);
    assert_eq!(pool.pool.stats().longest_wait, Micros::from_millis(5_000));
    assert_eq!(pool.pool.stats().oldest_wait, Micros::from_millis(2_000));
    pool.expire(at(8_999));
    assert_eq!(pool.pool.stats().oldest_wait, Micros::from_millis(4_999));
    pool.leave(at(8_999), RequestId(3));
    assert_eq!(pool.pool.stats().oldest_wait, Micros::ZERO);
    assert_eq!(pool.pool.stats().longest_wait, Micros::from_millis(5_000));
}

#[test]
fn a_worker_dies_where_maxconn_was_the_limit_and_its_place_goes_to_who_is_next() {
    let mut pool = workers(
        2,
        Limits {
            maxconn: 1,
            ..USUAL
        },
    );
    let dead = started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    pool.admit(at(1), &Ticket::new(RequestId(2), 0));
    let (lost, outcomes) = pool.worker_down(at(2), dead, |_| None);
    assert_eq!(lost, Some(RequestId(1)));
    let (request, worker) = (RequestId(2), worker(1 - dead.0));
    assert_eq!(outcomes, [Outcome::Started(Assignment { request, worker })]);
}

#[test]
fn all_workers_die_and_none_comes_back_so_everybody_is_told_in_turn() {
    let mut pool = workers(2, USUAL);
    for request in 1..6 {
        pool.admit(at(request), &Ticket::new(RequestId(request), 0));
    }
    assert_eq!(pool.worker_expected(at(6), false), []);
    let (_, outcomes) = pool.worker_down(at(7), worker(0), again(at(1)));
    assert_eq!(outcomes, [], "the other worker serves them");
    let (lost, outcomes) = pool.worker_down(at(8), worker(1), |_| None);
    assert!(lost.is_some());
    assert_eq!(outcomes.len(), 4);
    for outcome in outcomes {
        assert!(
            matches!(outcome, Outcome::Shed(_, ShedReason::NoWorker)),
            "{outcome:?}"
        );
    }
    let refused = Admission::Shed(ShedReason::NoWorker);
    assert_eq!(pool.admit(at(9), &Ticket::new(RequestId(9), 0)), refused);
    // The pool accepts a worker that was no longer expected.
    pool.worker_up(at(10), worker(0), 0);
    started(pool.admit(at(11), &Ticket::new(RequestId(10), 0)));
}

#[test]
fn all_workers_die_and_are_restarted_and_everybody_waits_for_them() {
    let mut pool = workers(2, USUAL);
    for request in 1..6 {
        pool.admit(at(request), &Ticket::new(RequestId(request), 0));
    }
    for id in [0, 1] {
        let (_, outcomes) = pool.worker_down(at(7), worker(id), |request| {
            Some((Ticket::new(request, 0), Micros(request.0 * MILLISECOND)))
        });
        assert_eq!(outcomes, []);
    }
    assert_eq!(pool.waiting(), 5);
    assert_eq!(
        pool.worker_up(at(8), worker(0), 0),
        assignment(1, 0),
        "oldest first"
    );
    for request in 2..6 {
        assert_eq!(pool.release(at(9), worker(0)).next, assignment(request, 0));
    }
}

#[test]
fn an_empty_pool_that_expects_workers_lets_requests_wait() {
    let mut pool = Checked::new(USUAL);
    assert_eq!(pool.admit(at(0), &Ticket::new(RequestId(1), 0)), waits(0));
    assert_eq!(pool.admit(at(1), &Ticket::new(RequestId(2), 0)), waits(1));
    let gone = ShedReason::NoWorker;
    let told = [1, 2].map(|request| Outcome::Shed(RequestId(request), gone));
    assert_eq!(pool.worker_expected(at(2), false), told);
}

#[test]
fn a_retry_keeps_its_first_deadline() {
    let mut pool = workers(1, USUAL);
    started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    pool.worker_down(at(4_000), worker(0), again(at(0)));
    assert_eq!(pool.pool.next_deadline(), Some(at(5_000)));
    assert_eq!(pool.expire(at(4_999)), []);
    assert_eq!(pool.expire(at(5_000)), [timed_out(1)]);
}

#[test]
fn a_retry_past_its_deadline_runs_if_a_worker_is_free_and_is_refused_if_none_is() {
    let mut pool = workers(2, USUAL);
    let dead = started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    let (_, outcomes) = pool.worker_down(at(6_000), dead, again(at(0)));
    assert!(matches!(outcomes[..], [Outcome::Started(_)]));
    let last = worker(1 - dead.0);
    let (_, outcomes) = pool.worker_down(at(7_000), last, again(at(0)));
    assert_eq!(
        outcomes,
        [Outcome::Shed(RequestId(1), ShedReason::QueueTimeout)]
    );
}

#[test]
fn a_retry_is_not_refused_for_a_full_queue() {
    let mut pool = workers(
        1,
        Limits {
            max_queue: 1,
            ..USUAL
        },
    );
    started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    pool.admit(at(1), &Ticket::new(RequestId(2), 0));
    let full = Admission::Shed(ShedReason::QueueFull);
    assert_eq!(pool.admit(at(2), &Ticket::new(RequestId(3), 0)), full);
    pool.worker_down(at(3), worker(0), again(at(0)));
    assert_eq!(pool.waiting(), 2);
    assert_eq!(pool.worker_up(at(4), worker(0), 0), assignment(1, 0));
}

// Withdrawals

#[test]
fn a_free_worker_that_is_retired_leaves_at_once_and_gets_nothing_more() {
    let mut pool = workers(2, USUAL);
    assert!(pool.retire(at(1), worker(1)), "it leaves");
    assert!(!pool.retire(at(1), worker(1)), "it leaves already");
    assert_eq!(
        started(pool.admit(at(2), &Ticket::new(RequestId(1), 0))),
        worker(0)
    );
    assert_eq!(pool.admit(at(2), &Ticket::new(RequestId(2), 0)), waits(0));
    assert_eq!(pool.worker_up(at(3), worker(1), 0), None, "it is leaving");
    assert_eq!(pool.worker_down(at(4), worker(1), |_| None), (None, vec![]));
    assert_eq!(pool.worker_up(at(5), worker(1), 0), assignment(2, 1));
}

#[test]
fn a_busy_worker_that_is_retired_finishes_its_request_and_leaves() {
    let mut pool = workers(1, USUAL);
    started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    pool.admit(at(1), &Ticket::new(RequestId(2), 0));
    assert!(!pool.retire(at(2), worker(0)), "it is busy");
    assert_eq!(pool.pool.running(worker(0)), Some(RequestId(1)));
    let released = pool.release(at(3), worker(0));
    let expected = Released {
        next: None,
        leaves: true,
    };
    assert_eq!(released, expected, "who waits is not given to it");
    assert_eq!(pool.pool.stats().finished, 1);
    pool.worker_down(at(4), worker(0), |_| None);
    assert_eq!(pool.worker_up(at(5), worker(0), 0), assignment(2, 0));
}

#[test]
fn where_maxconn_is_the_limit_a_worker_that_leaves_passes_its_place_on() {
    let mut pool = workers(
        2,
        Limits {
            maxconn: 1,
            ..USUAL
        },
    );
    let one = started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    pool.admit(at(1), &Ticket::new(RequestId(2), 0));
    pool.retire(at(2), one);
    let released = pool.release(at(3), one);
    assert!(released.leaves);
    assert_eq!(released.next, assignment(2, 1 - one.0));
}

#[test]
fn the_coldest_are_withdrawn_first_and_the_outdated_wherever_they_are() {
    let mut pool = workers(5, USUAL);
    for (request, id) in [4, 3].into_iter().enumerate() {
        let busy = started(pool.admit(at(0), &Ticket::new(RequestId(request as u64), 0)));
        assert_eq!(busy, worker(id));
    }
    let _ = pool.release(at(9), worker(3));
    assert_eq!(pool.pool.coldest_idle(), Some((worker(0), at(0))));
    let stop = Orders {
        stop: 1,
        ..Orders::default()
    };
    assert_eq!(pool.withdraw(at(10), &stop), [worker(0)]);
    pool.outdate(at(11), worker(3));
    pool.outdate(at(11), worker(4));
    let renew = Orders {
        renew: 1,
        ..Orders::default()
    };
    assert_eq!(pool.withdraw(at(12), &renew), [worker(3)], "it is idle");
    assert_eq!(pool.withdraw(at(13), &renew), [], "the other one is busy");
    assert_eq!(pool.pool.stats().retiring, 1);
    assert_eq!(pool.withdraw(at(14), &renew), [], "and leaves only once");
    assert!(pool.release(at(15), worker(4)).leaves);
    let all = Orders {
        retire: 9,
        ..Orders::default()
    };
    assert_eq!(pool.withdraw(at(16), &all), [worker(1), worker(2)]);
}

// Clients that leave, and deadlines

#[test]
fn a_client_that_leaves_while_waiting_never_starts_and_does_not_hold_up_the_others() {
    let mut pool = workers(1, USUAL);
    for request in 1..6 {
        pool.admit(at(request), &Ticket::new(RequestId(request), 0));
    }
    assert!(!pool.leave(at(6), RequestId(1)), "it runs");
    for request in [3, 2, 5] {
        assert!(pool.leave(at(6), RequestId(request)));
        assert!(!pool.leave(at(6), RequestId(request)), "only once");
    }
    assert_eq!(pool.release(at(7), worker(0)).next, assignment(4, 0));
    assert_eq!(pool.release(at(8), worker(0)).next, None);
}

#[test]
fn a_hundred_thousand_clients_leave_from_anywhere_in_no_time_and_their_memory_is_given_back() {
    const CLIENTS: u64 = 100_000;
    let limits = Limits {
        max_queue: CLIENTS as usize,
        ..USUAL
    };
    let mut pool = Pool::new(limits);
    let begin = Instant::now();
    for request in 0..CLIENTS {
        pool.admit(at(0), &Ticket::new(RequestId(request), 0));
    }
    assert!(pool.queue_capacity() >= CLIENTS as usize);
    for step in 0..CLIENTS {
        assert!(pool.leave(at(1), RequestId(step * 7_919 % CLIENTS)));
    }
    // A scan for each would take ten thousand million steps.
    assert!(
        begin.elapsed() < Duration::from_secs(30),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(pool.stats().waiting, 0);
    assert!(pool.queue_capacity() <= 1_000);
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn the_deadline_is_told_before_it_is_reached_and_kept_to_the_microsecond() {
    let mut pool = workers(0, USUAL);
    assert_eq!(pool.pool.next_deadline(), None);
    pool.admit(Micros(7), &Ticket::new(RequestId(1), 0));
    pool.admit(Micros(9), &Ticket::new(RequestId(2), 0));
    assert_eq!(pool.pool.next_deadline(), Some(Micros(5 * SECOND + 7)));
    assert_eq!(pool.expire(Micros(5 * SECOND + 6)), []);
    assert_eq!(pool.expire(Micros(5 * SECOND + 7)), [timed_out(1)]);
    assert_eq!(pool.pool.next_deadline(), Some(Micros(5 * SECOND + 9)));
}

// Limits

#[test]
fn maxconn_bounds_what_runs_though_more_workers_are_free() {
    let mut pool = workers(
        4,
        Limits {
            maxconn: 2,
            ..USUAL
        },
    );
    let first = started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    started(pool.admit(at(0), &Ticket::new(RequestId(2), 0)));
    assert_eq!(pool.admit(at(0), &Ticket::new(RequestId(3), 0)), waits(0));
    let stats = pool.pool.stats();
    assert_eq!((stats.busy, stats.free, stats.waiting), (2, 2, 1));
    let next = pool.release(at(1), first).next.unwrap();
    assert_eq!(next.request, RequestId(3));
}

#[test]
fn a_higher_maxconn_lets_those_who_wait_run_at_once() {
    let mut pool = workers(
        4,
        Limits {
            maxconn: 1,
            ..USUAL
        },
    );
    for request in 1..5 {
        pool.admit(at(0), &Ticket::new(RequestId(request), 0));
    }
    let outcomes = pool.set_limits(
        at(1),
        Limits {
            maxconn: 3,
            ..USUAL
        },
    );
    let started = outcomes.iter().map(|outcome| match outcome {
        Outcome::Started(assignment) => assignment.request.0,
        Outcome::Shed(..) => panic!("{outcome:?}"),
    });
    assert_eq!(started.collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a_lower_maxconn_takes_effect_as_requests_finish() {
    let mut pool = workers(3, USUAL);
    let [one, two, three] =
        [1, 2, 3].map(|id| started(pool.admit(at(0), &Ticket::new(RequestId(id), 0))));
    pool.admit(at(0), &Ticket::new(RequestId(4), 0));
    assert_eq!(
        pool.set_limits(
            at(1),
            Limits {
                maxconn: 1,
                ..USUAL
            }
        ),
        []
    );
    assert_eq!(pool.release(at(2), one).next, None);
    assert_eq!(pool.release(at(3), two).next, None);
    assert_eq!(
        pool.release(at(4), three).next.unwrap().request,
        RequestId(4)
    );
}

#[test]
fn a_shorter_timeout_refuses_who_waited_longer_and_a_shorter_queue_refuses_newcomers_only() {
    let mut pool = Pool::new(USUAL);
    for request in 0..10 {
        pool.admit(at(request * 100), &Ticket::new(RequestId(request), 0));
    }
    let timeout = Micros::from_millis(500);
    let limits = Limits {
        max_queue: 2,
        timeout,
        ..USUAL
    };
    let refused = (0..6).map(|request| Action::Shed {
        request: RequestId(request),
        reason: ShedReason::QueueTimeout,
    });
    assert_eq!(
        pool.set_limits(at(1_000), limits),
        refused.collect::<Vec<_>>()
    );
    assert_eq!(pool.stats().waiting, 4);
    let full = Admission::Shed(ShedReason::QueueFull);
    assert_eq!(pool.admit(at(1_000), &Ticket::new(RequestId(10), 0)), full);
}

#[test]
fn without_a_queue_there_is_run_or_refuse() {
    for (limits, reason) in [
        (
            Limits {
                max_queue: 0,
                ..USUAL
            },
            ShedReason::QueueFull,
        ),
        (
            Limits {
                timeout: Micros::ZERO,
                ..USUAL
            },
            ShedReason::QueueTimeout,
        ),
    ] {
        let mut pool = workers(1, limits);
        started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
        assert_eq!(
            pool.admit(at(0), &Ticket::new(RequestId(2), 0)),
            Admission::Shed(reason)
        );
    }
}

// What callers may do in a race or by mistake

#[test]
fn late_words_about_workers_change_nothing_and_are_counted() {
    let mut pool = workers(2, USUAL);
    let busy = started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    let dead = worker(1 - busy.0);
    pool.worker_down(at(1), dead, |_| None);
    let before = pool.pool.stats();
    assert_eq!(pool.release(at(2), dead).next, None, "released, but down");
    assert_eq!(
        pool.worker_down(at(2), dead, |_| None),
        (None, vec![]),
        "down twice"
    );
    assert_eq!(pool.worker_up(at(2), busy, 0), None, "up, but busy");
    assert_eq!(pool.release(at(2), worker(77)).next, None, "never heard of");
    let after = pool.pool.stats();
    assert_eq!(after.ignored, before.ignored + 4);
    assert_eq!(pool.pool.running(busy), Some(RequestId(1)));
}

#[test]
fn worker_ids_past_the_limit_take_no_memory_and_no_requests() {
    let mut pool = Pool::new(USUAL);
    for id in [MAX_WORKERS, u32::MAX] {
        assert_eq!(pool.worker_up(at(0), WorkerId(id), 0), None);
    }
    assert_eq!(pool.stats().workers, 0);
    pool.worker_up(at(0), WorkerId(MAX_WORKERS - 1), u16::MAX);
    assert_eq!(
        started(pool.admit(at(1), &Ticket::new(RequestId(1), 0))),
        WorkerId(MAX_WORKERS - 1)
    );
}

#[test]
fn a_clock_that_goes_back_is_taken_to_stand_still() {
    let mut pool = workers(0, USUAL);
    pool.admit(at(1_000), &Ticket::new(RequestId(1), 0));
    pool.admit(at(1), &Ticket::new(RequestId(2), 0));
    assert_eq!(pool.expire(at(6_000)), [timed_out(1), timed_out(2)]);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "is waiting already")]
fn admitting_a_waiting_request_again_is_a_defect_that_asserts() {
    let mut pool = Pool::new(USUAL);
    pool.admit(at(0), &Ticket::new(RequestId(1), 0));
    pool.admit(at(1), &Ticket::new(RequestId(1), 0));
}

#[test]
#[cfg(not(debug_assertions))]
fn admitting_a_waiting_request_again_does_not_queue_it_twice() {
    let mut pool = Pool::new(USUAL);
    pool.admit(at(0), &Ticket::new(RequestId(1), 0));
    assert_eq!(pool.admit(at(1), &Ticket::new(RequestId(1), 0)), waits(0));
    assert_eq!((pool.stats().waiting, pool.stats().ignored), (1, 1));
}

// Figures

#[test]
fn waiting_and_service_times_add_up() {
    let mut pool = workers(1, USUAL);
    started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    pool.admit(at(10), &Ticket::new(RequestId(2), 0));
    pool.admit(at(20), &Ticket::new(RequestId(3), 0));
    let _ = pool.release(at(100), worker(0));
    let _ = pool.release(at(150), worker(0));
    pool.worker_down(at(170), worker(0), |_| None);
    let stats = pool.pool.stats();
    assert_eq!(stats.waited_time, at(90 + 130));
    assert_eq!(stats.longest_wait, at(130));
    assert_eq!(stats.service_time, at(170));
    assert_eq!((stats.run_at_once, stats.waited, stats.started), (1, 2, 3));
    assert_eq!((stats.finished, stats.lost, stats.max_waiting), (2, 1, 2));
}

#[test]
fn a_retrys_time_at_work_is_not_counted_as_waiting() {
    let mut pool = workers(1, USUAL);
    started(pool.admit(at(0), &Ticket::new(RequestId(1), 0)));
    pool.worker_down(at(1_000), worker(0), again(at(0)));
    pool.worker_up(at(1_030), worker(0), 0);
    let stats = pool.pool.stats();
    assert_eq!(stats.waited_time, at(30));
    assert_eq!(stats.service_time, at(1_000));
    assert_eq!((stats.admitted, stats.readmitted, stats.waited), (1, 1, 1));
}

fn workers(count: u32, limits: Limits) -> Checked {
    let mut pool = Checked::new(limits);
    for id in 0..count {
        pool.worker_up(at(0), worker(id), 0);
    }
    pool
}

/// The request comes back; it was first admitted at this time.
fn again(admitted_at: Micros) -> impl FnOnce(RequestId) -> Option<(Ticket, Micros)> {
    move |request| Some((Ticket::new(request, 0), admitted_at))
}

fn timed_out(request: u64) -> Refused {
    Refused {
        request: RequestId(request),
        reason: ShedReason::QueueTimeout,
    }
}

fn started(admission: Admission) -> WorkerId {
    match admission {
        Admission::Run(worker) => worker,
        other => panic!("{other:?}"),
    }
}

fn assignment(request: u64, worker: u32) -> Option<Assignment> {
    Some(Assignment {
        request: RequestId(request),
        worker: WorkerId(worker),
    })
}

fn worker(id: u32) -> WorkerId {
    WorkerId(id)
}

fn at(milliseconds: u64) -> Micros {
    Micros::from_millis(milliseconds)
}
