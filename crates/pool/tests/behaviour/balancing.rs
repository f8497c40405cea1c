//! What the balancer promises: which server gets a request, which server is left out, and which one comes back.

use weir_pool::{
    Algorithm, Balancer, Balancing, Capacity, Change, Chosen, Finish, LimitBounds, Micros,
    NewServer, ServerId, ServerState, Why, mixed,
};

use crate::random::Random;

const SECOND: u64 = 1_000_000;

fn settings(algorithm: Algorithm) -> Balancing {
    Balancing {
        algorithm,
        capacity: Capacity::Shared(1_000),
        max_fails: 3,
        fail_timeout: Micros::from_secs(10),
        checked: false,
        rise: 2,
        fall: 3,
        slowstart: Micros::ZERO,
        probe_timeout: Micros::from_secs(5),
    }
}

fn server(number: u64, weight: u32) -> NewServer {
    NewServer {
        key: mixed(number),
        weight,
        backup: false,
        cold: false,
    }
}

fn with(settings: Balancing, weights: &[u32]) -> Balancer {
    let mut balancer = Balancer::new(settings, 1);
    for (number, weight) in (0..).zip(weights) {
        balancer.add(Micros(1), server(number, *weight));
    }
    balancer
}

/// Sends this many requests one at a time, and counts them by server.
fn spread(balancer: &mut Balancer, requests: u64, keyed: bool) -> Vec<u64> {
    let mut counts = vec![0; balancer.count()];
    for number in 0..requests {
        let key = keyed.then(|| mixed(number));
        let chosen = balancer.choose(Micros(2), key, &[]).expect("a server");
        counts[chosen.server.0 as usize] += 1;
        balancer.finish(Micros(3), chosen, Finish::Answered);
    }
    balancer.check().expect("consistent");
    counts
}

/// Starts this many requests without ending any, and counts them by server.
fn pile(balancer: &mut Balancer, requests: usize, key: Option<u64>) -> Vec<usize> {
    let mut counts = vec![0; balancer.count()];
    for _ in 0..requests {
        let chosen = balancer.choose(Micros(2), key, &[]).expect("a server");
        counts[chosen.server.0 as usize] += 1;
    }
    counts
}

fn down(balancer: &mut Balancer, now: u64, chosen: Chosen) -> Option<Change> {
    balancer.finish(Micros(now), chosen, Finish::Refused)
}

fn state(balancer: &Balancer, now: u64, server: u32) -> ServerState {
    let figures = balancer.figures(Micros(now), ServerId(server));
    figures.expect("it is there").state
}

#[test]
fn turns_are_evenly_mixed_by_weight() {
    let mut balancer = with(settings(Algorithm::RoundRobin), &[5, 1, 1]);
    let mut order = Vec::new();
    for _ in 0..7 {
        let chosen = balancer.choose(Micros(2), None, &[]).expect("a server");
        order.push(chosen.server.0);
        balancer.finish(Micros(3), chosen, Finish::Answered);
    }
    assert_eq!(order.iter().filter(|server| **server == 0).count(), 5);
    assert_eq!(order.iter().filter(|server| **server == 1).count(), 1);
    assert!(
        !order.windows(4).any(|four| four == [0, 0, 0, 0]),
        "{order:?}"
    );
    let counts = spread(&mut balancer, 7_000, false);
    assert_eq!(counts, [5_000, 1_000, 1_000]);
}

#[test]
fn the_least_busy_for_its_weight_comes_first() {
    let mut balancer = with(settings(Algorithm::LeastConn), &[100, 200, 100]);
    assert_eq!(pile(&mut balancer, 40, None), [10, 20, 10]);
    // Idle servers take turns.
    let mut balancer = with(settings(Algorithm::LeastConn), &[100, 100, 100]);
    assert_eq!(spread(&mut balancer, 300, false), [100, 100, 100]);
}

#[test]
fn the_first_is_filled_first() {
    let mut settings = settings(Algorithm::First);
    settings.capacity = Capacity::Shared(30);
    let mut balancer = with(settings, &[1, 1, 1]);
    assert_eq!(pile(&mut balancer, 10, None), [10, 0, 0]);
    assert_eq!(pile(&mut balancer, 15, None), [0, 10, 5]);
    // Requests beyond the room of all servers still go to a server.
    assert_eq!(pile(&mut balancer, 6, None).iter().sum::<usize>(), 6);
}

#[test]
fn random_follows_the_weights_and_avoids_the_busier() {
    let mut balancer = with(settings(Algorithm::Random), &[100; 10]);
    let counts = pile(&mut balancer, 1_000, None);
    assert!(
        counts.iter().all(|count| (90..=110).contains(count)),
        "{counts:?}"
    );
    let mut balancer = with(settings(Algorithm::Random), &[300, 100, 100]);
    let counts = pile(&mut balancer, 1_000, None);
    assert!((550..=650).contains(&counts[0]), "{counts:?}");
    let mut balancer = with(settings(Algorithm::Random), &[100]);
    assert_eq!(pile(&mut balancer, 3, None), [3]);
}

#[test]
fn keys_are_spread_by_weight() {
    let mut balancer = with(settings(Algorithm::Hash { factor: 0 }), &[100, 200, 100]);
    let counts = spread(&mut balancer, 40_000, true);
    for (count, expected) in counts.iter().zip([10_000, 20_000, 10_000]) {
        assert!(count.abs_diff(expected) < expected / 10, "{counts:?}");
    }
}

#[test]
fn a_key_stays_when_servers_come_and_go() {
    let mut balancer = with(settings(Algorithm::Hash { factor: 0 }), &[100; 8]);
    let homes = |balancer: &mut Balancer| -> Vec<u32> {
        (0..4_000)
            .map(|number| {
                let key = Some(mixed(number));
                let chosen = balancer.choose(Micros(2), key, &[]).expect("a server");
                balancer.finish(Micros(3), chosen, Finish::Answered);
                chosen.server.0
            })
            .collect()
    };
    let before = homes(&mut balancer);
    let ninth = balancer.add(Micros(4), server(8, 100));
    let grown = homes(&mut balancer);
    for (before, after) in before.iter().zip(&grown) {
        assert!(before == after || *after == ninth.0);
    }
    let moved = before.iter().zip(&grown).filter(|(a, b)| a != b).count();
    assert!((350..550).contains(&moved), "{moved} of 4000 moved");
    assert!(balancer.remove(ninth));
    assert_eq!(homes(&mut balancer), before);
    assert!(balancer.remove(ServerId(3)));
    for (before, after) in before.iter().zip(homes(&mut balancer)) {
        assert!(*before == after || *before == 3);
    }
}

#[test]
fn a_hot_key_is_passed_on_within_the_bound() {
    let key = Some(mixed(77));
    let mut balancer = with(settings(Algorithm::Hash { factor: 0 }), &[100; 4]);
    let counts = pile(&mut balancer, 100, key);
    assert_eq!(counts.iter().filter(|count| **count == 100).count(), 1);
    let mut balancer = with(settings(Algorithm::Hash { factor: 125 }), &[100; 4]);
    let counts = pile(&mut balancer, 100, key);
    assert!(counts.iter().all(|count| *count <= 32), "{counts:?}");
    assert!(counts.contains(&32), "{counts:?}");
}

#[test]
fn without_a_key_the_least_busy_is_taken() {
    let mut balancer = with(settings(Algorithm::Hash { factor: 0 }), &[100; 4]);
    assert_eq!(pile(&mut balancer, 8, None), [2; 4]);
}

#[test]
fn a_share_is_kept_and_leaves_with_its_server() {
    for algorithm in [
        Algorithm::RoundRobin,
        Algorithm::LeastConn,
        Algorithm::Random,
    ] {
        let mut settings = settings(algorithm);
        settings.capacity = Capacity::Shared(7);
        let mut balancer = with(settings, &[100, 100, 100]);
        assert_eq!(balancer.limit(Micros(1)), 7);
        let counts = pile(&mut balancer, 7, None);
        assert!(
            counts.iter().all(|count| (2..=3).contains(count)),
            "{counts:?}"
        );
    }
    let mut settings = settings(Algorithm::LeastConn);
    settings.capacity = Capacity::Shared(9);
    let mut balancer = with(settings, &[100, 200]);
    let chosen = balancer.choose(Micros(1), None, &[]).expect("a server");
    assert_eq!(chosen.server, ServerId(1));
    down(&mut balancer, 2, chosen);
    assert_eq!(balancer.limit(Micros(2)), 3);
    balancer.share(18);
    assert_eq!(balancer.limit(Micros(2)), 6);
    // Fewer requests than servers: the common limit still holds.
    settings.capacity = Capacity::Shared(1);
    assert_eq!(with(settings, &[100; 5]).limit(Micros(1)), 1);
    assert_eq!(Balancer::new(settings, 0).limit(Micros(1)), 0);
}

#[test]
fn a_weight_of_zero_gets_nothing() {
    for algorithm in [
        Algorithm::RoundRobin,
        Algorithm::LeastConn,
        Algorithm::First,
        Algorithm::Random,
        Algorithm::Hash { factor: 125 },
    ] {
        let mut balancer = with(settings(algorithm), &[0, 100]);
        assert_eq!(spread(&mut balancer, 100, true), [0, 100]);
        assert_eq!(state(&balancer, 1, 0), ServerState::Drained);
        let mut balancer = with(settings(algorithm), &[0]);
        assert_eq!(balancer.choose(Micros(2), Some(1), &[]), None);
    }
}

#[test]
fn backups_serve_only_while_no_other_is_up() {
    let mut balancer = with(settings(Algorithm::LeastConn), &[100]);
    let backup = NewServer {
        backup: true,
        ..server(9, 100)
    };
    balancer.add(Micros(1), backup);
    assert_eq!(pile(&mut balancer, 5, None), [5, 0]);
    let chosen = balancer.choose(Micros(2), None, &[]).expect("a server");
    assert!(matches!(
        down(&mut balancer, 2, chosen),
        Some(Change::Down {
            why: Why::Refused,
            pause: Some(Micros(SECOND))
        })
    ));
    assert!(!balancer.is_down());
    assert_eq!(pile(&mut balancer, 5, None), [0, 5]);
    // After the pause one request tests the server. After that the server is used again.
    let later = Micros(2 + SECOND);
    let probe = balancer.choose(later, None, &[]).expect("a server");
    assert!(probe.probe && probe.server == ServerId(0));
    let other = balancer.choose(later, None, &[]).expect("a server");
    assert_eq!(other.server, ServerId(1));
    let change = balancer.finish(later, probe, Finish::Answered);
    assert_eq!(
        change,
        Some(Change::Up {
            after: Micros(SECOND)
        })
    );
    assert_eq!(pile(&mut balancer, 2, None), [2, 0]);
}

#[test]
fn failures_in_a_row_take_a_server_out_and_pauses_grow() {
    let mut balancer = with(settings(Algorithm::LeastConn), &[100, 100]);
    let fail = |balancer: &mut Balancer, now: u64, finish: Finish| {
        let tried = [ServerId(1)];
        let chosen = balancer
            .choose(Micros(now), None, &tried)
            .expect("a server");
        assert_eq!(chosen.server, ServerId(0));
        balancer.finish(Micros(now), chosen, finish)
    };
    assert_eq!(fail(&mut balancer, 1, Finish::Failed), None);
    assert_eq!(fail(&mut balancer, 2, Finish::TimedOut), None);
    assert_eq!(
        fail(&mut balancer, 3, Finish::Answered),
        None,
        "not in a row"
    );
    assert_eq!(fail(&mut balancer, 4, Finish::Failed), None);
    assert_eq!(fail(&mut balancer, 5, Finish::Failed), None);
    // Too long after the first failure.
    let late = 5 + 10 * SECOND;
    assert_eq!(fail(&mut balancer, late, Finish::Failed), None);
    assert_eq!(fail(&mut balancer, late, Finish::Failed), None);
    assert!(fail(&mut balancer, late, Finish::Failed).is_some());
    let mut now = late;
    for pause in [1, 2, 4, 8, 10, 10] {
        let early = balancer.choose(Micros(now + pause * SECOND - 1), None, &[]);
        let early = early.expect("the other");
        assert!(!early.probe && early.server == ServerId(1));
        now += pause * SECOND;
        let probe = balancer.choose(Micros(now), None, &[]).expect("a server");
        assert!(
            probe.probe && probe.server == ServerId(0),
            "after {pause} s"
        );
        assert_eq!(balancer.finish(Micros(now), probe, Finish::TimedOut), None);
    }
}

#[test]
fn a_request_that_tries_a_server_and_is_lost_does_not_keep_others_from_it() {
    let mut balancer = with(settings(Algorithm::LeastConn), &[100, 100]);
    let chosen = balancer.choose(Micros(1), None, &[]).expect("a server");
    down(&mut balancer, 1, chosen);
    let probe = balancer.choose(Micros(2 * SECOND), None, &[]).expect("one");
    assert!(probe.probe);
    let other = balancer.choose(Micros(3 * SECOND), None, &[]).expect("one");
    assert!(!other.probe);
    let again = balancer.choose(Micros(7 * SECOND), None, &[]).expect("one");
    assert!(again.probe && again.server == probe.server);
}

#[test]
fn all_are_tried_where_none_is_up() {
    let mut balancer = with(settings(Algorithm::LeastConn), &[100, 100]);
    let limit = balancer.limit(Micros(1));
    for _ in 0..2 {
        let chosen = balancer.choose(Micros(1), None, &[]).expect("a server");
        down(&mut balancer, 1, chosen);
    }
    assert!(balancer.is_down());
    assert_eq!(balancer.limit(Micros(1)), limit);
    let chosen = balancer.choose(Micros(2), None, &[]).expect("tried anyhow");
    assert!(
        balancer
            .finish(Micros(2), chosen, Finish::Answered)
            .is_some()
    );
    assert!(!balancer.is_down());
}

#[test]
fn a_request_goes_to_a_server_that_has_not_failed_it() {
    let mut balancer = with(settings(Algorithm::Hash { factor: 0 }), &[100; 3]);
    let mut tried = Vec::new();
    for _ in 0..3 {
        let chosen = balancer.choose(Micros(1), Some(5), &tried).expect("one");
        assert!(!tried.contains(&chosen.server));
        tried.push(chosen.server);
    }
    assert!(balancer.choose(Micros(1), Some(5), &tried).is_some());
}

#[test]
fn checks_take_servers_out_and_bring_them_back_slowly() {
    let mut settings = settings(Algorithm::LeastConn);
    (settings.checked, settings.slowstart) = (true, Micros::from_secs(10));
    settings.capacity = Capacity::Shared(200);
    let mut balancer = with(settings, &[100, 100]);
    let first = ServerId(0);
    let check = |balancer: &mut Balancer, now, good| balancer.checked(Micros(now), first, good);
    // A server that never succeeded is down at once. The other server needs more failures.
    assert!(matches!(
        check(&mut balancer, 1, false),
        Some(Change::Down {
            why: Why::Checks,
            pause: None
        })
    ));
    assert_eq!(balancer.limit(Micros(2)), 100);
    assert_eq!(check(&mut balancer, 2, true), None);
    assert_eq!(check(&mut balancer, 3, false), None);
    assert_eq!(check(&mut balancer, 4, true), None);
    assert_eq!(
        check(&mut balancer, 5, true),
        Some(Change::Up { after: Micros(4) })
    );
    assert_eq!(state(&balancer, 6, 0), ServerState::SlowStart);
    assert_eq!(balancer.limit(Micros(5)), 109);
    assert_eq!(balancer.limit(Micros(5 + 5 * SECOND)), 150);
    let counts = pile(&mut balancer, 110, None);
    assert!(counts[0] <= 11, "{counts:?}");
    assert_eq!(state(&balancer, 6 + 10 * SECOND, 0), ServerState::Up);
    assert_eq!(balancer.limit(Micros(5 + 10 * SECOND)), 200);
    for now in [1, 2] {
        assert_eq!(check(&mut balancer, 20 * SECOND + now, false), None);
    }
    assert!(check(&mut balancer, 21 * SECOND, false).is_some());
    // Failures of requests also take a server out, and answers alone do not bring back a server with health checks.
    let second = balancer
        .choose(Micros(22 * SECOND), None, &[])
        .expect("one");
    assert_eq!(second.server, ServerId(1));
    let change = down(&mut balancer, 22 * SECOND, second);
    assert!(matches!(change, Some(Change::Down { pause: None, .. })));
    let tried = balancer
        .choose(Micros(90 * SECOND), None, &[])
        .expect("anyhow");
    assert_eq!(
        balancer.finish(Micros(91 * SECOND), tried, Finish::Answered),
        None
    );
    assert!(balancer.is_down());
}

#[test]
fn a_server_that_leaves_is_there_until_its_last_request() {
    let mut balancer = with(settings(Algorithm::LeastConn), &[100, 100]);
    let one = balancer.choose(Micros(1), None, &[]).expect("a server");
    let two = balancer
        .choose(Micros(1), None, &[one.server])
        .expect("a server");
    assert!(!balancer.remove(one.server));
    assert_eq!(state(&balancer, 1, one.server.0), ServerState::Leaving);
    assert_eq!(balancer.count(), 1);
    let added = balancer.add(Micros(2), server(5, 100));
    assert_ne!(added, one.server, "its number is in use");
    balancer.finish(Micros(3), one, Finish::Answered);
    assert_eq!(balancer.figures(Micros(3), one.server), None);
    balancer.finish(Micros(3), two, Finish::Answered);
    balancer.check().expect("consistent");
}

#[test]
fn limits_that_are_found_out_add_up() {
    let mut settings = settings(Algorithm::LeastConn);
    settings.capacity = Capacity::Adaptive(LimitBounds::default());
    let mut balancer = with(settings, &[100, 100]);
    assert_eq!(balancer.limit(Micros(1)), 20);
    let chosen = balancer.choose(Micros(1), None, &[]).expect("a server");
    balancer.finish(Micros(2), chosen, Finish::QueueFull);
    assert_eq!(balancer.limit(Micros(2)), 17);
}

/// Random operations: the counts are always consistent, and the chosen server is available.
#[test]
fn any_course_of_events_is_survived() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let algorithms = [
            Algorithm::RoundRobin,
            Algorithm::LeastConn,
            Algorithm::First,
            Algorithm::Random,
            Algorithm::Hash { factor: 0 },
            Algorithm::Hash { factor: 100 },
        ];
        let mut settings = settings(algorithms[random.below(6) as usize]);
        settings.max_fails = random.below(4) as u32;
        settings.checked = random.chance(300);
        settings.slowstart = Micros(random.below(3) * SECOND);
        settings.capacity = match random.chance(500) {
            true => Capacity::Adaptive(LimitBounds::default()),
            false => Capacity::Shared(random.below(50) as usize),
        };
        let mut balancer = Balancer::new(settings, seed);
        let (mut now, mut held, mut there): (u64, Vec<Chosen>, Vec<ServerId>) =
            (1, Vec::new(), Vec::new());
        for _ in 0..400 {
            now += random.below(SECOND);
            let at = Micros(now);
            match random.below(12) {
                0 | 1 if there.len() < 8 => {
                    let new = NewServer {
                        key: random.next(),
                        weight: random.below(4) as u32 * 50,
                        backup: random.chance(200),
                        cold: random.chance(300),
                    };
                    there.push(balancer.add(at, new));
                }
                2 if !there.is_empty() => {
                    let index = random.below(there.len() as u64) as usize;
                    balancer.remove(there.swap_remove(index));
                }
                3 => {
                    let server = ServerId(random.below(9) as u32);
                    balancer.checked(at, server, random.chance(500));
                }
                4..=7 => {
                    let key = random.chance(500).then(|| random.next());
                    let tried = [ServerId(random.below(9) as u32)];
                    let tried = &tried[..random.below(2) as usize];
                    let chosen = balancer.choose(at, key, tried);
                    if let Some(chosen) = chosen {
                        assert!(there.contains(&chosen.server), "seed {seed}");
                    }
                    held.extend(chosen);
                }
                _ if !held.is_empty() => {
                    let index = random.below(held.len() as u64) as usize;
                    let ends = [
                        Finish::Answered,
                        Finish::Unknown,
                        Finish::Refused,
                        Finish::QueueFull,
                        Finish::Failed,
                        Finish::TimedOut,
                    ];
                    let finish = ends[random.below(6) as usize];
                    balancer.finish(at, held.swap_remove(index), finish);
                }
                _ => {}
            }
            balancer
                .check()
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(balancer.count(), there.len(), "seed {seed}");
            let _ = balancer.limit(at);
        }
    }
}
