//! No client has more than its share of the workers while others wait.

use weir_pool::{Admission, Limits, Micros, Pool, RequestId, Ticket, WorkerId};

use crate::checked::Checked;
use crate::crowd::{Arrive, Group, Outcome, Plan, Spread, Who, run};

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// One visitor whose ten requests wait for one session's lock, and visitors with short requests.
fn session(share: u8, script: u64) -> Vec<Outcome> {
    let plan = Plan {
        groups: vec![
            Group {
                who: Who::One(1),
                has_lock: true,
                ..Group::new(Arrive::Closed(10), script)
            },
            Group {
                from: SECOND,
                until: 30 * SECOND,
                spread: Spread::Exponential,
                ..Group::new(Arrive::Even(100 * MILLISECOND), 30 * MILLISECOND)
            },
        ],
        until: 60 * SECOND,
        limits: Limits {
            maxconn: 8,
            client_share: share,
            ..Limits::USUAL
        },
        ..Plan::calm(8)
    };
    run(&plan, 1).0
}

#[test]
fn one_visitor_whose_ten_requests_wait_for_a_lock_costs_the_others_no_refusal() {
    for (script, lost_without) in [(8 * SECOND, 150), (2 * SECOND, 0)] {
        let [with, without] = [50, 100].map(|share| session(share, script));
        let (mine, others) = (&with[0], &with[1]);
        assert_eq!(others.refused.len() + others.left.len(), 0);
        assert_eq!(others.answers.len() as u64, others.came);
        // Other clients wait at most for the end of one script of this session. The session may have all workers while
        // no other client waits.
        let longest = others.longest_wait(0, u64::MAX);
        assert!(longest <= script, "{longest}");
        // The session loses nothing, because its scripts would wait for its lock anyway.
        assert_eq!(mine.answers.len(), without[0].answers.len());
        // Without a limit, nearly every worker waits for the lock, again and again, and the others wait for the
        // workers.
        let before = without[1].longest_wait(0, u64::MAX);
        let lost = without[1].refused.len();
        assert!(before > longest && lost >= lost_without, "{before} {lost}");
    }
}

/// All come through one proxy, whose address is the client. One session sends a crowd that waits for its lock.
#[test]
fn one_session_whose_ten_requests_wait_for_its_lock_costs_other_visitors_of_its_address_no_refusal()
{
    let visitors = |crowd, others| {
        let script = 8 * SECOND;
        let plan = Plan {
            groups: vec![
                Group {
                    who: crowd,
                    has_lock: true,
                    ..Group::new(Arrive::Closed(10), script)
                },
                Group {
                    who: others,
                    from: SECOND,
                    until: 30 * SECOND,
                    spread: Spread::Exponential,
                    ..Group::new(Arrive::Even(100 * MILLISECOND), 30 * MILLISECOND)
                },
            ],
            until: 60 * SECOND,
            limits: Limits {
                maxconn: 8,
                ..Limits::USUAL
            },
            ..Plan::calm(8)
        };
        run(&plan, 1).0
    };
    for others in [Who::EachOf(1), Who::One(1)] {
        let with = visitors(Who::Session(1, 7), others);
        let refused = with[1].refused.len() + with[1].left.len();
        assert_eq!(refused, 0, "{others:?}");
        assert_eq!(with[1].answers.len() as u64, with[1].came, "{others:?}");
    }
    let without = visitors(Who::One(1), Who::One(1));
    assert!(without[1].refused.len() > 100, "told apart by nothing");
}

/// A client that sends a new cookie with each request gets as much as without cookies. Other clients, of this address
/// and of other addresses, get no less.
#[test]
fn invented_sessions_bring_nobody_more_than_his_share() {
    let against = |stranger, visitor| {
        let plan = Plan {
            groups: vec![
                Group {
                    who: stranger,
                    ..Group::new(Arrive::Closed(100), 50 * MILLISECOND)
                },
                Group {
                    who: visitor,
                    ..Group::new(Arrive::Closed(4), 50 * MILLISECOND)
                },
            ],
            until: 30 * SECOND,
            limits: Limits {
                maxconn: 8,
                ..Limits::USUAL
            },
            ..Plan::calm(8)
        };
        run(&plan, 1).0
    };
    for visitor in [Who::One(2), Who::Session(2, 7), Who::EachOf(2)] {
        let [invented, honest] =
            [Who::EachOf(1), Who::One(1)].map(|stranger| against(stranger, visitor));
        let answers = [&invented, &honest].map(|outcome| outcome[1].answers.len());
        assert!(
            answers[0] * 100 >= answers[1] * 98,
            "{visitor:?}: {answers:?}"
        );
    }
    // A client with the same address. All requests of this address are treated alike.
    let [invented, honest] =
        [Who::EachOf(1), Who::One(1)].map(|stranger| against(stranger, Who::Session(1, 7)));
    let answers = [&invented, &honest].map(|outcome| outcome[1].answers.len());
    assert!(answers[0] * 100 >= answers[1] * 98, "{answers:?}");
}

/// A pool whose workers are all busy with requests 1, 2, … of client 1. The same number of its requests wait.
fn captured(workers: u32, limits: Limits) -> Checked {
    let maxconn = workers as usize;
    let mut pool = Checked::new(Limits { maxconn, ..limits });
    for worker in 0..workers {
        pool.worker_up(Micros(0), WorkerId(worker), 0);
    }
    for request in 1..=u64::from(workers) * 2 {
        let admission = pool.admit(Micros(request), &ticket(request, 1));
        let runs = request <= u64::from(workers);
        assert_eq!(matches!(admission, Admission::Run(_)), runs, "it is alone");
    }
    pool
}

fn ticket(request: u64, client: u64) -> Ticket {
    Ticket {
        client,
        ..Ticket::new(RequestId(request), 0)
    }
}

/// Ends requests of client 1 (below 1,000), the oldest first, and returns the clients whose requests begin then.
fn handed_over(pool: &mut Checked, count: u64) -> Vec<u64> {
    let mut got = Vec::new();
    for step in 0..count {
        let mut running = (1..1_000).filter_map(|request| pool.worker_of(RequestId(request)));
        let worker = running.next().expect("one of client 1 runs");
        let next = pool.release(Micros(10_000 + step), worker).next;
        got.push(next.map_or(0, |next| next.request.0 / 1_000));
    }
    got
}

#[test]
fn a_client_that_has_all_workers_gives_them_up_until_it_has_half() {
    for (workers, share, expected) in [
        (1, 50, vec![0, 1]),
        (2, 50, vec![1, 0, 0]),
        (3, 50, vec![1, 0, 1]),
        (8, 50, vec![1, 1, 1, 1, 0, 0, 0]),
        (8, 25, vec![1, 1, 0, 1, 0]),
        (8, 100, vec![0, 1, 0, 1]),
    ] {
        let mut pool = captured(
            workers,
            Limits {
                client_share: share,
                ..Limits::USUAL
            },
        );
        for request in 1_000..1_009 {
            pool.admit(Micros(9_000), &ticket(request, 2));
        }
        let got = handed_over(&mut pool, expected.len() as u64);
        assert_eq!(got, expected, "{workers} workers, {share} %");
    }
}

#[test]
fn nobody_else_waits_and_one_client_has_all_workers() {
    let mut pool = captured(8, Limits::USUAL);
    assert_eq!(handed_over(&mut pool, 8), [0; 8]);
    assert_eq!(pool.pool.stats().busy, 8);
}

#[test]
fn requests_that_cannot_be_told_apart_have_no_limit() {
    let mut pool = Pool::new(Limits {
        maxconn: 4,
        ..Limits::USUAL
    });
    for worker in 0..4 {
        pool.worker_up(Micros(0), WorkerId(worker), 0);
    }
    for request in 1..=8 {
        pool.admit(Micros(0), &ticket(request, 0));
    }
    for request in 1_000..1_004 {
        pool.admit(Micros(0), &ticket(request, 2));
    }
    // They take turns, as if there were two clients.
    let next: Vec<u64> = (0..4)
        .filter_map(|worker| pool.release(Micros(1), WorkerId(worker)).next)
        .map(|next| next.request.0 / 1_000)
        .collect();
    assert_eq!(next, [0, 1, 0, 1]);
}

#[test]
fn a_better_class_goes_first_whatever_its_client_has() {
    let mut pool = captured(4, Limits::USUAL);
    for request in 1_000..1_004 {
        let worse = Ticket {
            priority: 5,
            ..ticket(request, 2)
        };
        pool.admit(Micros(9_000), &worse);
    }
    assert_eq!(handed_over(&mut pool, 4), [0; 4]);
}

#[test]
fn clients_that_all_have_their_share_take_turns_and_no_worker_is_idle() {
    // Three workers, a third for each client: both have their share, and both wait.
    let mut pool = captured(
        3,
        Limits {
            client_share: 34,
            ..Limits::USUAL
        },
    );
    for request in 1_000..1_004 {
        pool.admit(Micros(9_000), &ticket(request, 2));
    }
    assert_eq!(handed_over(&mut pool, 3), [1, 0, 1]);
    assert_eq!(pool.pool.stats().busy, 3);
}

/// All visitors behind a proxy have its address. A few visitors come directly.
#[test]
fn a_proxy_with_many_visitors_has_what_the_others_leave() {
    let through_proxy = Group {
        who: Who::One(1),
        ..Group::new(Arrive::Closed(40), 20 * MILLISECOND)
    };
    let direct = Group::new(Arrive::Even(100 * MILLISECOND), 20 * MILLISECOND);
    let answers = |groups: &[Group]| {
        let plan = Plan {
            groups: groups.to_vec(),
            until: 20 * SECOND,
            ..Plan::calm(8)
        };
        let (got, stats) = run(&plan, 1);
        assert_eq!(stats.shed(), 0);
        let longest = got.last().map(|group| group.longest_wait(0, u64::MAX));
        (got[0].answers.len(), longest.unwrap())
    };
    let (alone, _) = answers(&[through_proxy]);
    let (beside, longest) = answers(&[through_proxy, direct]);
    // Eight workers serve 50 requests a second each. The other clients send 10 a second.
    assert!(alone >= 7_900, "{alone}");
    assert!(beside >= alone - 250, "{beside} of {alone}");
    assert!(longest <= 20 * MILLISECOND, "{longest}");
}
