//! The pool: any sequence of events leaves it in order, two bytes an event.
#![no_main]

use weir_pool::{Limits, Micros, Pool, RequestId, WorkerId};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut pool = Pool::new(Limits {
        maxconn: 3,
        max_queue: 5,
        timeout: Micros(100),
    });
    let (mut now, mut last, mut gone) = (1_000, 0, Vec::new());
    for &[event, argument] in data.as_chunks().0 {
        let worker = WorkerId(u32::from(argument % 8));
        let home = u16::from(argument / 64);
        match event % 10 {
            0..=2 => {
                last += 1;
                pool.admit(Micros(now), RequestId(last), home);
            }
            3 => _ = pool.release(Micros(now), worker),
            4 => drop(pool.worker_up(Micros(now), worker, home)),
            5 => {
                if let Some(request) = pool.worker_down(Micros(now), worker) {
                    pool.readmit(Micros(now), request, home, Micros(now.saturating_sub(50)));
                }
                while pool.dispatch(Micros(now)).is_some() {}
                pool.drain_waiting(Micros(now), &mut gone);
            }
            6 => drop(pool.leave(Micros(now), RequestId(last.saturating_sub(argument.into())))),
            7 => pool.expire(Micros(now), &mut gone),
            8 => pool.worker_expected(argument % 2 == 0),
            _ => now += u64::from(argument),
        }
        assert_eq!(pool.check(), Ok(()));
        assert!(pool.stats().agree());
    }
});
