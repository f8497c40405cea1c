//! Random sequences of operations, in any order and with any arguments. A failing sequence is reduced to the shortest
//! one.

use proptest::prelude::*;
use weir_pool::{
    Exit, Life, Limits, MemoryView, Micros, Mode, Order, Orders, Pool, RequestId, Reserve,
    Reserves, Scaler, Scaling, Ticket, WorkerId,
};

use crate::checked::{Checked, waits};

#[derive(Debug, Clone)]
enum Operation {
    Admit {
        home: u16,
        priority: i16,
        client: u64,
        deadline: u64,
    },
    ClientLeft {
        after: u64,
    },
    Release {
        worker: u32,
    },
    Abandon {
        worker: u32,
    },
    Up {
        worker: u32,
        home: u16,
    },
    Down {
        worker: u32,
        retry: bool,
        age: u64,
    },
    Lose {
        worker: u32,
    },
    Retire {
        worker: u32,
    },
    Outdate {
        worker: u32,
    },
    Withdraw {
        stop: usize,
        retire: usize,
        renew: usize,
    },
    Expected(bool),
    Leave {
        back: u64,
    },
    Expire,
    Limits {
        maxconn: usize,
        max_queue: usize,
        timeout: u64,
        fullconn: usize,
        reserved: usize,
        share: u8,
        fifo: bool,
    },
    Pass {
        time: u64,
    },
    ClockOfASlowThread {
        back: u64,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let worker = 0..6_u32;
    prop_oneof![
        8 => (0..3_u16, -1..2_i16, 0..3_u64, prop_oneof![3 => Just(u64::MAX), 1 => 0..150_u64])
            .prop_map(|(home, priority, client, deadline)| Admit { home, priority, client, deadline }),
        1 => (0..200_u64).prop_map(|after| ClientLeft { after }),
        6 => worker.clone().prop_map(|worker| Release { worker }),
        1 => worker.clone().prop_map(|worker| Abandon { worker }),
        3 => (worker.clone(), 0..3_u16).prop_map(|(worker, home)| Up { worker, home }),
        1 => worker.clone().prop_map(|worker| Lose { worker }),
        2 => worker.clone().prop_map(|worker| Retire { worker }),
        1 => worker.clone().prop_map(|worker| Outdate { worker }),
        1 => (0..3_usize, 0..2_usize, 0..3_usize)
            .prop_map(|(stop, retire, renew)| Withdraw { stop, retire, renew }),
        2 => (worker, any::<bool>(), 0..200_u64)
            .prop_map(|(worker, retry, age)| Down { worker, retry, age }),
        1 => any::<bool>().prop_map(Expected),
        2 => (0..12_u64).prop_map(|back| Leave { back }),
        2 => Just(Expire),
        1 => (0..6_usize, 0..8_usize, prop_oneof![0..150_u64, Just(u64::MAX)], 0..9_usize, 0..3_usize, 0..120_u8, any::<bool>())
            .prop_map(|(maxconn, max_queue, timeout, fullconn, reserved, share, fifo)| {
                Limits { maxconn, max_queue, timeout, fullconn, reserved, share, fifo }
            }),
        3 => (0..60_u64).prop_map(|time| Pass { time }),
        1 => (0..30_u64).prop_map(|back| ClockOfASlowThread { back }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn any_sequence_of_operations_agrees_with_the_model(
        operations in prop::collection::vec(operation(), 1..200),
    ) {
        let limits = Limits { maxconn: 3, max_queue: 5, timeout: Micros(100), ..Limits::USUAL };
        let mut pool = Checked::new(limits);
        let (mut now, mut last) = (1_000_u64, 0_u64);
        for operation in operations {
            match operation {
                Operation::Admit { home, priority, client, deadline } => {
                    last += 1;
                    pool.admit(Micros(now), &Ticket {
                        deadline: Micros(now.saturating_add(deadline)),
                        priority,
                        client,
                        ..Ticket::new(RequestId(last), home)
                    });
                    pool.take_outcomes();
                }
                Operation::ClientLeft { after } => pool.client_left(Micros(now), Micros(after)),
                Operation::Release { worker } => {
                    let _ = pool.release(Micros(now), WorkerId(worker));
                }
                Operation::Abandon { worker } => {
                    let _ = pool.abandon(Micros(now), WorkerId(worker));
                }
                Operation::Up { worker, home } => {
                    pool.worker_up(Micros(now), WorkerId(worker), home);
                }
                Operation::Down { worker, retry, age } => {
                    pool.worker_down(Micros(now), WorkerId(worker), |request| {
                        let ticket = Ticket {
                            priority: (age % 3) as i16 - 1,
                            ..Ticket::new(request, 0)
                        };
                        retry.then_some((ticket, Micros(now.saturating_sub(age))))
                    });
                }
                Operation::Lose { worker } => {
                    pool.lose(Micros(now), WorkerId(worker));
                }
                Operation::Retire { worker } => {
                    pool.retire(Micros(now), WorkerId(worker));
                }
                Operation::Outdate { worker } => pool.outdate(Micros(now), WorkerId(worker)),
                Operation::Withdraw { stop, retire, renew } => {
                    let orders = Orders { stop, retire, renew, ..Orders::default() };
                    pool.withdraw(Micros(now), &orders);
                }
                Operation::Expected(expected) => {
                    pool.worker_expected(Micros(now), expected);
                }
                Operation::Leave { back } => {
                    pool.leave(Micros(now), RequestId(last.saturating_sub(back)));
                }
                Operation::Expire => {
                    pool.expire(Micros(now));
                }
                Operation::Limits { maxconn, max_queue, timeout, fullconn, reserved, share, fifo } => {
                    let reserves = [0, -1].map(|priority| Reserve { priority, workers: 1 });
                    pool.set_limits(Micros(now), Limits {
                        maxconn,
                        minconn: 1,
                        fullconn,
                        max_queue,
                        client_share: share,
                        timeout: Micros(timeout),
                        order: if fifo { Order::Fifo } else { Order::Adaptive },
                        reserve: Reserves::new(&reserves[..reserved]).unwrap(),
                    });
                }
                Operation::Pass { time } => now += time,
                Operation::ClockOfASlowThread { back } => now -= back.min(now),
            }
        }
    }

    /// A scaler that gets any events in any order stays within its bounds and does not panic.
    #[test]
    fn any_sequence_of_events_keeps_the_scaler_within_its_bounds(
        events in prop::collection::vec((0..16_u8, 0..40_u64), 1..300),
        mode in 0..5_u8,
        max_children in 0..12_usize,
    ) {
        let scaling = |mode, max_children| Scaling {
            mode: match mode {
                0 => Mode::Static,
                1 => Mode::Dynamic { start: 2, min_spare: 1, max_spare: 3 },
                2 => Mode::OnDemand,
                _ => Mode::Auto { start: 1, cores: 2, rests: mode == 4 },
            },
            max_children,
            max_spawn_rate: 8,
            idle_timeout: Micros::from_millis(50),
        };
        let limits = Limits { maxconn: 8, max_queue: 20, timeout: Micros::from_secs(1), ..Limits::USUAL };
        let mut pool = Pool::new(limits);
        let mut scaler = Scaler::new(scaling(mode, max_children));
        let (mut now, mut last, mut most) = (Micros(1_000), 0, max_children);
        let mut leaving = Vec::new();
        for (event, number) in events {
            let worker = WorkerId((number % 14) as u32);
            match event {
                0..=3 => {
                    last += 1;
                    pool.admit(now, &Ticket::new(RequestId(last), 0));
                }
                4 | 5 => drop(pool.release(now, worker).next),
                6 | 7 => {
                    // A worker that came without an order counts too.
                    if scaler.figures().starting > 0 || number > 36 {
                        pool.worker_up(now, worker, 0);
                        scaler.came(now);
                    }
                }
                8 => {
                    pool.worker_down(now, worker);
                    while pool.dispatch(now).is_some() {}
                    let lived = Micros(number * 500_000);
                    scaler.exited(now, match number % 4 {
                        0 => Exit::Withdrawn,
                        2 => Exit::Spent,
                        1 => Exit::Clean(Life { lived, had_work: false, at_work: false }),
                        _ => Exit::Crashed(Life { lived, had_work: true, at_work: number > 20 }),
                    });
                }
                9 => scaler.start_failed(now, number as usize),
                10 => scaler.ready(now, number > 5),
                11 => scaler.memory(now, MemoryView {
                    worker_cost: number % 3,
                    available: number,
                    pressure: number % 5 == 0,
                }),
                12 if number < 10 => {
                    most = number as usize;
                    scaler.set(now, scaling((number % 4) as u8, most));
                }
                13 => pool.outdate(now, worker),
                14 => now = Micros(now.0.saturating_sub(number * 100)),
                _ => now = now.after(Micros(number * number * number * 10)),
            }
            let before = pool.stats();
            let starting = scaler.figures().starting;
            let orders = scaler.look(now, &pool);
            let total = before.workers + before.leaving + starting;
            prop_assert!(orders.start == 0 || total + orders.start <= most);
            prop_assert_eq!(scaler.figures().starting, starting + orders.start);
            prop_assert!(orders.stop <= before.free);
            prop_assert!(orders.renew <= before.outdated);
            let withdrawn = orders.stop + orders.renew + orders.retire;
            prop_assert!(withdrawn <= before.workers - before.retiring);
            let busy = before.busy;
            pool.withdraw(now, &orders, &mut leaving);
            prop_assert_eq!(pool.stats().busy, busy, "nobody's request is taken");
            prop_assert!(scaler.figures().limit <= most);
            prop_assert!(pool.check().is_ok());
            if number == 0 {
                prop_assert!(scaler.decisions().count() <= 64);
            }
        }
    }

    #[test]
    fn ids_from_anywhere_are_found_again(
        ids in prop::collection::hash_set(any::<u64>(), 1..700),
        every in 1..5_usize,
    ) {
        let limits = Limits { maxconn: 1, max_queue: 1_000, timeout: Micros(100), ..Limits::USUAL };
        let mut pool = Pool::new(limits);
        for (position, id) in ids.iter().enumerate() {
            let answer = pool.admit(Micros(position as u64), &Ticket::new(RequestId(*id), 0));
            prop_assert_eq!(answer, waits(position));
        }
        for id in ids.iter().step_by(every) {
            prop_assert!(pool.leave(Micros(0), RequestId(*id)));
            prop_assert!(!pool.leave(Micros(0), RequestId(*id)));
        }
        prop_assert!(pool.check().is_ok());
        let left = ids.iter().enumerate().filter(|(place, _)| place % every != 0);
        let mut left = left.map(|(_, id)| *id).peekable();
        let mut next = pool.worker_up(Micros(0), WorkerId(0), 0);
        while let Some(assignment) = next {
            prop_assert_eq!(Some(assignment.request.0), left.next());
            next = pool.release(Micros(0), WorkerId(0)).next;
        }
        prop_assert_eq!(left.next(), None);
    }
}
