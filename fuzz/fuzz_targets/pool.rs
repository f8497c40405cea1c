//! The pool and its scaler stay consistent after any sequence of events. An event has two bytes.
#![no_main]

use weir_pool::{
    Admission, Exit, Life, Limits, MemoryView, Micros, Mode, Order, Orders, Pool, RequestId,
    Reserve, Reserves, Scaler, Scaling, Ticket, WorkerId,
};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut pool = Pool::new(limits(data.last().copied().unwrap_or(0)));
    let mut scaling = scaling(data.first().copied().unwrap_or(0));
    let mut scaler = Scaler::new(scaling);
    let (mut now, mut last, mut gone, mut leaving) = (1_000, 0, Vec::new(), Vec::new());
    let mut refused = Vec::new();
    for &[event, argument] in data.as_chunks().0 {
        let time = Micros(now);
        let worker = WorkerId(u32::from(argument % 8));
        let home = u16::from(argument / 64);
        match event % 24 {
            0..=2 => {
                last += 1;
                if let Admission::Wait { .. } = pool.admit(time, &ticket(last, now, argument)) {
                    while pool.dispatch(time).is_some() {}
                }
            }
            3 => _ = pool.release(time, worker),
            4 => drop(pool.worker_up(time, worker, home)),
            5 => {
                let lost = match argument & 8 {
                    0 => pool.worker_down(time, worker),
                    _ => pool.lose(time, worker),
                };
                if let Some(request) = lost {
                    pool.readmit(
                        time,
                        &ticket(request.0, now, argument),
                        Micros(now.saturating_sub(50)),
                    );
                }
                while pool.dispatch(time).is_some() {}
                pool.drain_waiting(time, &mut gone);
            }
            6 => drop(pool.leave(time, RequestId(last.saturating_sub(argument.into())))),
            7 => pool.expire(time, &mut refused),
            8 => pool.worker_expected(argument % 2 == 0),
            9 => drop(pool.retire(time, worker)),
            10 => pool.outdate(time, worker),
            11 => {
                let orders = Orders {
                    stop: usize::from(argument & 3),
                    retire: usize::from(argument >> 2 & 3),
                    renew: usize::from(argument >> 4 & 3),
                    ..Orders::default()
                };
                pool.withdraw(time, &orders, &mut leaving);
            }
            12 => scaler.came(time),
            13 => scaler.start_failed(time, argument.into()),
            14 => {
                let lived = Micros(u64::from(argument) << 16);
                let life = Life {
                    lived,
                    had_work: argument & 1 > 0,
                    at_work: argument & 3 == 3,
                };
                scaler.exited(
                    time,
                    match argument % 4 {
                        0 => Exit::Withdrawn,
                        2 => Exit::Spent,
                        1 => Exit::Clean(life),
                        _ => Exit::Crashed(life),
                    },
                );
            }
            15 => scaler.ready(time, argument < 200),
            16 => scaler.memory(
                time,
                MemoryView {
                    worker_cost: u64::from(argument & 3),
                    available: u64::from(argument >> 2),
                    pressure: argument & 1 > 0,
                },
            ),
            17 => {
                scaling = self::scaling(argument);
                scaler.set(time, scaling);
            }
            18 => now += u64::from(argument) << (argument & 15),
            19 => drop(pool.set_limits(time, limits(argument))),
            20 => pool.client_left(time, Micros(u64::from(argument) << (argument & 31))),
            21 => pool.workers_soon(argument.into()),
            // As in overload: time passes while a request waits.
            22 => now += u64::from(argument) * 1_000,
            _ => now += u64::from(argument),
        }
        look(&mut scaler, Micros(now), &mut pool, scaling.max_children);
        assert_eq!(pool.check(), Ok(()));
        assert!(pool.stats().agree());
        leaving.clear();
        gone.clear();
        refused.clear();
    }
});

fn ticket(request: u64, now: u64, seed: u8) -> Ticket {
    Ticket {
        deadline: match seed & 12 {
            0 => Micros(now + u64::from(seed) * 50),
            _ => Micros::MAX,
        },
        priority: i16::from(seed & 3) - 1,
        client: u64::from(seed >> 4),
        ..Ticket::new(RequestId(request), u16::from(seed / 64))
    }
}

fn limits(seed: u8) -> Limits {
    let reserves = [0, -1].map(|priority| Reserve {
        priority,
        workers: 1,
    });
    Limits {
        maxconn: usize::from(seed & 3) + 1,
        minconn: 1,
        fullconn: usize::from(seed >> 2 & 3) * 3,
        max_queue: 5 + usize::from(seed >> 6) * 100,
        timeout: Micros(if seed & 8 > 0 { 100 } else { 1_000_000 }),
        order: if seed & 16 > 0 {
            Order::Fifo
        } else {
            Order::Adaptive
        },
        client_share: [100, 50, 34, 1][usize::from(seed >> 2 & 3)],
        reserve: Reserves::new(&reserves[..usize::from(seed >> 5 & 1) * 2])
            .unwrap_or(Reserves::NONE),
    }
}

/// What the scaler orders is possible, and is done.
fn look(scaler: &mut Scaler, now: Micros, pool: &mut Pool, max_children: usize) {
    let (before, starting) = (pool.stats(), scaler.figures().starting);
    let orders = scaler.look(now, pool);
    let total = before.workers + before.leaving + starting;
    assert!(orders.start == 0 || total + orders.start <= max_children);
    let mut leaving = Vec::new();
    pool.withdraw(now, &orders, &mut leaving);
    let after = pool.stats();
    let withdrawn = after.leaving + after.retiring - before.leaving - before.retiring;
    assert_eq!(orders.stop + orders.retire + orders.renew, withdrawn);
    assert_eq!(after.busy, before.busy);
    assert!(
        scaler
            .next_look()
            .is_none_or(|next| next > now || next == Micros::MAX)
    );
    assert!(scaler.decisions().count() <= 64);
}

fn scaling(seed: u8) -> Scaling {
    let number = usize::from(seed >> 4);
    Scaling {
        mode: match seed & 3 {
            0 => Mode::Static,
            1 => Mode::Dynamic {
                start: number / 2,
                min_spare: 1,
                max_spare: 2,
            },
            2 => Mode::OnDemand,
            _ => Mode::Auto {
                start: number / 3,
                cores: 1,
                rests: seed & 4 != 0,
            },
        },
        max_children: number,
        max_spawn_rate: usize::from(seed & 12),
        idle_timeout: Micros(u64::from(seed & 12) * 50),
    }
}
