//! What a decision costs. `cargo bench -p weir-pool`; prints nanoseconds for each pair of calls.

use std::hint::black_box;
use std::time::Instant;

use weir_pool::{
    Admission, Limits, Micros, Mode, Order, Pool, RequestId, Scaler, Scaling, Ticket, WorkerId,
};

fn main() {
    for workers in [1, 16, 1_024] {
        let mut pool = pool(workers);
        measure(
            &format!("admit + release, {workers} workers, nobody waits"),
            |turn| {
                let answer = pool.admit(
                    Micros(turn),
                    &Ticket::new(RequestId(turn), (turn & 3) as u16),
                );
                if let Admission::Run(worker) = answer {
                    let _ = black_box(pool.release(Micros(turn), worker));
                }
            },
        );
    }
    let (dynamic, auto) = (
        Mode::Dynamic {
            start: 2,
            min_spare: 2,
            max_spare: 20,
        },
        AUTO,
    );
    for (name, mode) in [
        ("dynamic", dynamic),
        ("ondemand", Mode::OnDemand),
        ("auto", auto),
    ] {
        let mut pool = pool(16);
        let mut scaler = scaler(mode);
        measure(
            &format!("admit + look + release + look, {name}, nobody waits"),
            |turn| {
                let answer = pool.admit(Micros(turn), &Ticket::new(RequestId(turn), 0));
                let _ = black_box(scaler.look(Micros(turn), &pool));
                if let Admission::Run(worker) = answer {
                    let _ = black_box(pool.release(Micros(turn), worker));
                }
                let _ = black_box(scaler.look(Micros(turn), &pool));
            },
        );
        for request in 0..17 {
            pool.admit(Micros(0), &Ticket::new(RequestId(u64::MAX - request), 0));
        }
        measure(
            &format!("admit + look + release + look, {name}, all busy"),
            |turn| {
                pool.admit(Micros(turn), &Ticket::new(RequestId(turn), 0));
                let _ = black_box(scaler.look(Micros(turn), &pool));
                let _ = black_box(pool.release(Micros(turn), WorkerId(0)));
                let _ = black_box(scaler.look(Micros(turn), &pool));
            },
        );
    }
    for waiting in [10, 1_000, 100_000] {
        let mut pool = pool(1);
        for request in 0..=waiting {
            pool.admit(Micros(0), &Ticket::new(RequestId(u64::MAX - request), 0));
        }
        measure(
            &format!("admit to the queue + release, {waiting} wait"),
            |turn| {
                black_box(pool.admit(Micros(turn), &Ticket::new(RequestId(turn), 0)));
                let _ = black_box(pool.release(Micros(turn), WorkerId(0)));
            },
        );
    }
    for waiting in [10, 1_000, 100_000] {
        let mut pool = pool(1);
        // Each request is of another client. It has a deadline, and one of three classes.
        let ticket = |turn: u64| Ticket {
            deadline: Micros(u64::MAX / 2 + turn),
            priority: (turn % 3) as i16,
            client: turn,
            ..Ticket::new(RequestId(turn), 0)
        };
        for request in 0..=waiting {
            pool.admit(Micros(0), &ticket(u64::MAX / 4 + request));
        }
        measure(
            &format!("the same, 3 classes, each of another client, with deadlines, {waiting} wait"),
            |turn| {
                black_box(pool.admit(Micros(turn), &ticket(turn)));
                let _ = black_box(pool.release(Micros(turn), WorkerId(0)));
            },
        );
    }
    for waiting in [10, 1_000, 100_000] {
        let mut pool = pool(1);
        for request in 0..=waiting {
            pool.admit(Micros(0), &Ticket::new(RequestId(request), 0));
        }
        measure(
            &format!("leave from anywhere + admit, {waiting} wait"),
            |turn| {
                let request = RequestId(1 + turn * 7_919 % waiting);
                pool.leave(Micros(turn), request);
                black_box(pool.admit(Micros(turn), &Ticket::new(request, 0)));
            },
        );
    }
}

fn pool(workers: u32) -> Pool {
    let mut pool = Pool::new(Limits {
        maxconn: workers as usize,
        max_queue: 1_000_000,
        timeout: Micros::MAX,
        // The pool must not see an overload: the clock advances by a microsecond a turn.
        order: Order::Fifo,
        ..Limits::USUAL
    });
    for worker in 0..workers {
        pool.worker_up(Micros(0), WorkerId(worker), (worker & 3) as u16);
    }
    pool
}

/// At its limit of 16.
fn scaler(mode: Mode) -> Scaler {
    let mut scaler = Scaler::new(Scaling {
        mode,
        max_children: 16,
        max_spawn_rate: 32,
        idle_timeout: Micros::from_secs(1_000_000),
    });
    scaler.ready(Micros(0), true);
    scaler
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

const AUTO: Mode = Mode::Auto {
    start: 2,
    cores: 4,
    rests: false,
};
