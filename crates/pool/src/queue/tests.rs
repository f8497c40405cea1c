use super::*;

fn waiting(request: u64, admitted_at: u64) -> Waiting {
    Waiting {
        request: RequestId(request),
        admitted_at: Micros(admitted_at),
        queued_at: Micros(admitted_at),
        ..UNUSED.waiting
    }
}

fn of(client: u64, waiting: Waiting) -> Waiting {
    Waiting { client, ..waiting }
}

fn drain(queue: &mut Queue) -> Vec<u64> {
    core::iter::from_fn(|| queue.pop(false, |_| true, |_| false, |_| false))
        .map(|waiting| waiting.request.0)
        .collect()
}

#[test]
fn retries_go_first_and_the_oldest_of_them_before_the_others() {
    let mut queue = Queue::new();
    queue.push(waiting(10, 10));
    queue.push(waiting(11, 11));
    for (request, place) in [(3, 0), (1, 0), (2, 1)] {
        assert_eq!(queue.place_of_retry(0, Micros(request), false), place);
        queue.push_retry(waiting(request, request));
    }
    queue.push_retry(waiting(4, 3));
    queue.check().unwrap();
    assert_eq!(drain(&mut queue), [1, 2, 3, 4, 10, 11]);
    queue.check().unwrap();
}

#[test]
fn a_retry_that_makes_the_table_grow_still_finds_its_place() {
    let mut queue = Queue::new();
    queue.push_retry(waiting(1, 1));
    queue.push_retry(waiting(3, 3));
    for request in 2..SMALLEST as u64 {
        queue.push(waiting(100 + request, 100 + request));
    }
    assert_eq!(queue.len(), queue.capacity());
    queue.push_retry(waiting(2, 2));
    assert_eq!(queue.capacity(), 2 * SMALLEST);
    queue.check().unwrap();
    assert_eq!(drain(&mut queue)[..4], [1, 2, 3, 102]);
}

#[test]
fn memory_of_a_burst_is_given_back_while_some_still_wait() {
    for clients in [1, 7, u64::MAX] {
        let mut queue = Queue::new();
        for request in 0..100_000 {
            let deadline = Micros(u64::MAX - request % 2);
            let waiting = of(request % clients, waiting(request, request));
            queue.push(Waiting {
                start_by: deadline,
                ..waiting
            });
        }
        assert!(queue.capacity() >= 100_000);
        for request in 0..99_990 {
            assert!(queue.remove(RequestId(request)).is_some());
            if request % 10_000 == 9_999 {
                queue.check().unwrap();
            }
        }
        queue.check().unwrap();
        assert!(queue.capacity() <= SMALLEST, "{}", queue.capacity());
        let mut rest = drain(&mut queue);
        if clients == 7 {
            rest.sort_unstable();
        }
        assert_eq!(rest, Vec::from_iter(99_990..100_000), "it keeps its order");
    }
}

#[test]
fn clients_take_turns_and_a_new_one_comes_in_at_the_end() {
    let mut queue = Queue::new();
    for (request, client) in [(1, 1), (2, 1), (3, 1), (4, 2), (5, 3), (6, 3)] {
        queue.push(of(client, waiting(request, request)));
    }
    assert_eq!(queue.place_of(0, 9, false), 3, "one of each before it");
    assert_eq!(queue.place_of(0, 2, false), 1 + 4);
    assert_eq!(queue.place_of(0, 1, false), 6);
    let next = queue.pop(false, |_| true, |_| false, |_| false).unwrap();
    assert_eq!(next.request, RequestId(1));
    queue.push(of(9, waiting(7, 7)));
    queue.check().unwrap();
    assert_eq!(drain(&mut queue), [4, 5, 2, 7, 6, 3]);
}

#[test]
fn the_newest_of_the_longest_gives_way_to_who_has_less() {
    let mut queue = Queue::new();
    for request in 0..5 {
        queue.push(of(1, waiting(request, request)));
    }
    queue.push(of(2, waiting(5, 5)));
    assert_eq!(queue.who_gives_way(0, 3), Some(RequestId(4)));
    assert_eq!(queue.who_gives_way(0, 2), Some(RequestId(4)));
    assert_eq!(queue.who_gives_way(0, 1), None, "not to itself");
    assert_eq!(queue.who_gives_way(5, 3), None, "not to a worse class");
    assert_eq!(queue.who_gives_way(-5, 1), Some(RequestId(4)));
    for request in 0..4 {
        queue.remove(RequestId(request));
        queue.check().unwrap();
    }
    assert_eq!(queue.who_gives_way(0, 3), None, "nobody has more");
}

#[test]
fn the_stale_go_last_the_newest_of_them_first_and_else_before_all() {
    let fill = || {
        let mut queue = Queue::new();
        for request in 1..=6 {
            queue.push(of(request % 3, waiting(request, request)));
        }
        queue.make_stale(Micros(4));
        queue.check().unwrap();
        assert_eq!(queue.stale(), 4);
        queue
    };
    let mut queue = fill();
    let drained = core::iter::from_fn(|| queue.pop(true, |_| true, |_| false, |_| false));
    let drained: Vec<u64> = drained.map(|waiting| waiting.request.0).collect();
    assert_eq!(drained, [5, 6, 4, 3, 2, 1]);
    assert_eq!(drain(&mut fill()), [1, 2, 3, 4, 5, 6]);
    assert_eq!(fill().who_gives_way(0, 1), Some(RequestId(1)));
}

#[test]
fn deadlines_are_found_in_their_order_wherever_their_requests_are() {
    let mut queue = Queue::new();
    for request in 0..500_u64 {
        queue.push(Waiting {
            start_by: Micros(request * 7_919 % 500),
            ..waiting(request, request)
        });
    }
    for request in (0..500).step_by(3) {
        queue.remove(RequestId(request));
        queue.check().unwrap();
    }
    let mut last = Micros::ZERO;
    while let Some(first) = queue.first_deadline() {
        assert!(first >= last);
        assert_eq!(queue.pop_to_start_by(first).unwrap().start_by, first);
        last = first;
    }
    assert_eq!(queue.len(), 0);
}

#[test]
fn ten_thousand_that_wait_each_of_another_client_take_less_than_four_megabytes() {
    let mut queue = Queue::new();
    for request in 0..10_000 {
        queue.push(Waiting {
            start_by: Micros(request),
            ..of(request, waiting(request, request))
        });
    }
    let room = queue.capacity();
    // Each table has an index of twice its size, rounded up to a power of two.
    let entries = room * (size_of::<Entry>() + 4 * size_of::<u32>());
    let flows = 2 * 10_000 * (size_of::<Flow>() + 4 * size_of::<u32>());
    let deadlines = 2 * 10_000 * size_of::<u32>();
    let bytes = entries + flows + deadlines;
    assert!(bytes < 4 << 20, "{bytes}");
}

#[test]
fn requests_of_a_session_that_has_enough_are_passed_by_and_not_forgotten() {
    let mut queue = Queue::new();
    let of = |session, request| Waiting {
        session,
        ..waiting(request, request)
    };
    for (session, request) in [(1, 1), (1, 2), (2, 3), (1, 4), (0, 5)] {
        queue.push(of(session, request));
    }
    let next = |queue: &mut Queue, enough: &[u64]| {
        let next = queue.pop(
            false,
            |_| true,
            |_| false,
            |session| enough.contains(&session),
        );
        queue.check().unwrap();
        next.map(|next| next.request.0)
    };
    let flow = queue.flow_of(0, 0).expect("a flow");
    queue.set_aside(flow, |session| session == 1);
    queue.check().unwrap();
    assert_eq!(queue.place_in(0, (Some(flow), false), false), 3);
    assert_eq!(queue.place_in(0, (Some(flow), true), false), 5);
    assert_eq!(next(&mut queue, &[1]), Some(3));
    // The flow has less than its share again, and its request is older.
    assert_eq!(next(&mut queue, &[]), Some(1));
    assert_eq!(next(&mut queue, &[1]), Some(5));
    // Nobody else waits.
    assert_eq!(next(&mut queue, &[1]), Some(2));
    assert_eq!(next(&mut queue, &[1]), Some(4));
    assert_eq!(next(&mut queue, &[1]), None);
}

#[test]
fn sessions_do_not_confuse_the_lists_whatever_happens() {
    for seed in 1..=20_u64 {
        let mut state = seed;
        let mut below = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let (mut queue, mut pushed, mut out) = (Queue::new(), 0, 0);
        for step in 0..3_000 {
            let enough = below(8);
            match below(9) {
                // Waves, so that tables grow and shrink.
                0..=4 if step / 700 % 2 == 0 => {
                    pushed += 1;
                    queue.push(Waiting {
                        session: below(4),
                        client: below(3),
                        priority: below(2) as i16,
                        ..waiting(pushed, pushed)
                    });
                }
                0..=5 => {
                    let next = queue.pop(
                        below(4) == 0,
                        |_| true,
                        |client| client == enough,
                        |session| session > 0 && enough & session != 0,
                    );
                    out += u64::from(next.is_some());
                }
                6 => out += u64::from(queue.remove(RequestId(below(pushed + 1))).is_some()),
                7 => {
                    let given = queue.who_gives_way(0, below(3));
                    out += u64::from(given.is_some_and(|one| queue.remove(one).is_some()));
                }
                _ => queue.make_stale(Micros(pushed.saturating_sub(400))),
            }
            if let Some(flow) = queue.flow_of(0, below(3)) {
                queue.set_aside(flow, |session| session == enough);
            }
            queue.check().unwrap();
            assert_eq!(queue.len() as u64, pushed - out);
        }
    }
}
