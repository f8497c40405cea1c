//! What a decision costs. `cargo bench -p weir-pool`; prints nanoseconds for each pair of calls.

use std::hint::black_box;
use std::time::Instant;

use weir_pool::{Admission, Limits, Micros, Pool, RequestId, WorkerId};

fn main() {
    for workers in [1, 16, 1_024] {
        let mut pool = pool(workers);
        measure(
            &format!("admit + release, {workers} workers, nobody waits"),
            |turn| {
                let answer = pool.admit(Micros(turn), RequestId(turn), (turn & 3) as u16);
                if let Admission::Run(worker) = answer {
                    let _ = black_box(pool.release(Micros(turn), worker));
                }
            },
        );
    }
    for waiting in [10, 1_000, 100_000] {
        let mut pool = pool(1);
        for request in 0..=waiting {
            pool.admit(Micros(0), RequestId(u64::MAX - request), 0);
        }
        measure(
            &format!("admit to the queue + release, {waiting} wait"),
            |turn| {
                black_box(pool.admit(Micros(turn), RequestId(turn), 0));
                let _ = black_box(pool.release(Micros(turn), WorkerId(0)));
            },
        );
    }
    for waiting in [10, 1_000, 100_000] {
        let mut pool = pool(1);
        for request in 0..=waiting {
            pool.admit(Micros(0), RequestId(request), 0);
        }
        measure(
            &format!("leave from anywhere + admit, {waiting} wait"),
            |turn| {
                let request = RequestId(1 + turn * 7_919 % waiting);
                pool.leave(Micros(turn), request);
                black_box(pool.admit(Micros(turn), request, 0));
            },
        );
    }
}

fn pool(workers: u32) -> Pool {
    let mut pool = Pool::new(Limits {
        maxconn: workers as usize,
        max_queue: 1_000_000,
        timeout: Micros::MAX,
    });
    for worker in 0..workers {
        pool.worker_up(Micros(0), WorkerId(worker), (worker & 3) as u16);
    }
    pool
}

fn measure(name: &str, mut operation: impl FnMut(u64)) {
    const TURNS: u64 = 2_000_000;
    let mut best = f64::MAX;
    for round in 0..3 {
        let start = Instant::now();
        for turn in 0..TURNS {
            operation(round * TURNS + turn);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / TURNS as f64);
    }
    println!("{best:8.1} ns  {name}");
}
