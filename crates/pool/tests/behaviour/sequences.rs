//! Random sequences of operations, in any order and with any arguments, shrunk to the shortest that fails.

use proptest::prelude::*;
use weir_pool::{Admission, Limits, Micros, Pool, RequestId, WorkerId};

use crate::checked::Checked;

#[derive(Debug, Clone)]
enum Operation {
    Admit {
        home: u16,
    },
    Release {
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
    Expected(bool),
    Leave {
        back: u64,
    },
    Expire,
    Limits {
        maxconn: usize,
        max_queue: usize,
        timeout: u64,
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
        8 => (0..3_u16).prop_map(|home| Admit { home }),
        6 => worker.clone().prop_map(|worker| Release { worker }),
        3 => (worker.clone(), 0..3_u16).prop_map(|(worker, home)| Up { worker, home }),
        2 => (worker, any::<bool>(), 0..200_u64)
            .prop_map(|(worker, retry, age)| Down { worker, retry, age }),
        1 => any::<bool>().prop_map(Expected),
        2 => (0..12_u64).prop_map(|back| Leave { back }),
        2 => Just(Expire),
        1 => (0..6_usize, 0..8_usize, prop_oneof![0..150_u64, Just(u64::MAX)])
            .prop_map(|(maxconn, max_queue, timeout)| Limits { maxconn, max_queue, timeout }),
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
        let limits = Limits { maxconn: 3, max_queue: 5, timeout: Micros(100) };
        let mut pool = Checked::new(limits);
        let (mut now, mut last) = (1_000_u64, 0_u64);
        for operation in operations {
            match operation {
                Operation::Admit { home } => {
                    last += 1;
                    pool.admit(Micros(now), RequestId(last), home);
                }
                Operation::Release { worker } => {
                    pool.release(Micros(now), WorkerId(worker));
                }
                Operation::Up { worker, home } => {
                    pool.worker_up(Micros(now), WorkerId(worker), home);
                }
                Operation::Down { worker, retry, age } => {
                    let comes_back = retry.then_some((0, Micros(now.saturating_sub(age))));
                    pool.worker_down(Micros(now), WorkerId(worker), |_| comes_back);
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
                Operation::Limits { maxconn, max_queue, timeout } => {
                    let timeout = Micros(timeout);
                    pool.set_limits(Micros(now), Limits { maxconn, max_queue, timeout });
                }
                Operation::Pass { time } => now += time,
                Operation::ClockOfASlowThread { back } => now -= back.min(now),
            }
        }
    }

    #[test]
    fn ids_from_anywhere_are_found_again(
        ids in prop::collection::hash_set(any::<u64>(), 1..700),
        every in 1..5_usize,
    ) {
        let limits = Limits { maxconn: 1, max_queue: 1_000, timeout: Micros(100) };
        let mut pool = Pool::new(limits);
        for (position, id) in ids.iter().enumerate() {
            let answer = pool.admit(Micros(position as u64), RequestId(*id), 0);
            prop_assert_eq!(answer, Admission::Wait { position });
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
