//! The decisions of a worker pool, without clock, socket or thread: which request runs now, which ones wait, which
//! are refused, and how many workers there are.
//!
//! [`Pool`] is told what happens (a request arrives, a worker is free, a worker died, a client left) with the time,
//! and returns what to do. It does no I/O itself, so a simulator can run minutes of overload in milliseconds. It must
//! not read a clock, a socket or an environment variable, and must not panic if threads of its caller race.
//!
//! ```
//! use weir_pool::{Admission, Limits, Micros, Pool, RequestId, Ticket, WorkerId};
//!
//! let limits = Limits { maxconn: 1, ..Limits::USUAL };
//! let mut pool = Pool::new(limits);
//! pool.worker_up(Micros(0), WorkerId(0), 0);
//! assert_eq!(pool.admit(Micros(10), &Ticket::new(RequestId(1), 0)), Admission::Run(WorkerId(0)));
//! assert_eq!(pool.admit(Micros(20), &Ticket::new(RequestId(2), 0)), Admission::Wait { position: 0, pushed_out: None });
//! let next = pool.release(Micros(30), WorkerId(0)).next.unwrap();
//! assert_eq!((next.request, next.worker), (RequestId(2), WorkerId(0)));
//! ```
//!
//! [`Scaler`] runs after each change of the pool, and decides how many workers to start and to withdraw:
//!
//! ```
//! # use weir_pool::{Limits, Micros, Mode, Pool, RequestId, Scaler, Scaling, Ticket, WorkerId};
//! # let limits = Limits { maxconn: 4, ..Limits::USUAL };
//! # let mut pool = Pool::new(limits);
//! let mut scaler = Scaler::new(Scaling {
//!     mode: Mode::OnDemand,
//!     max_children: 4,
//!     max_spawn_rate: 32,
//!     idle_timeout: Micros::from_secs(10),
//! });
//! scaler.ready(Micros(0), true);
//! pool.admit(Micros(10), &Ticket::new(RequestId(1), 0));
//! assert_eq!(scaler.look(Micros(10), &pool).start, 1);
//! // The worker is there:
//! scaler.came(Micros(5_000));
//! assert!(pool.worker_up(Micros(5_000), WorkerId(0), 0).is_some());
//! ```
//!
//! Read next: `pool.rs` (states, events, rules), then `queue.rs`, `flows.rs`, `workers.rs` and `holders.rs` (the
//! structures below it), `estimate.rs`, `patience.rs` and `overload.rs` (what it learns, and the consequences), `retry.rs` (whether a
//! failed request may run again), `scaler.rs` (the number of workers), `climb.rs` (how `auto` finds the useful
//! number) and `processors.rs` (whether scripts compute or wait), `balance.rs` and `health.rs` (choosing a server, and whether it is up), `adaptive_limit.rs` (how many requests a
//! server can handle), `backoff.rs`, `token_bucket.rs` and `memory.rs` (what slows the scaling down), `crashes.rs` (scripts that are
//! refused because they crash workers), `breaker.rs` and `retry_budget.rs` (whether a failing origin is called, and
//! how often again), `reactors.rs` (how many threads serve connections), `program.rs`
//! and `timetable.rs` (programs beside the pools: which processes run, and when a schedule's time comes), and `tests/behaviour/` (the simulators and the promises that they check).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod adaptive_limit;
mod answers;
mod backoff;
mod balance;
mod breaker;
mod climb;
mod crashes;
mod decision;
mod estimate;
mod flows;
mod growth;
mod health;
mod holders;
mod index;
mod leaving;
mod limits;
mod log2;
mod memory;
mod overload;
mod patience;
mod pool;
mod processors;
mod program;
mod queue;
mod reactors;
mod retry;
mod retry_budget;
mod scaler;
mod stats;
mod time;
mod timetable;
mod token_bucket;
mod workers;

pub use adaptive_limit::{AdaptiveLimit, Begun, LimitBounds, RequestEnd};
pub use answers::{
    Action, Admission, Assignment, Refused, Released, RequestId, ShedReason, WorkerId,
};
pub use backoff::Emergency;
pub use balance::{
    Algorithm, Balancer, Balancing, Capacity, Change, Chosen, Finish, NewServer, ServerFigures,
    ServerId, ServerState, Why, mixed,
};
pub use breaker::{Attempt, Breaker, BreakerChange, BreakerRules, BreakerState, Outcome, Verdict};
pub use crashes::{CrashRules, Crashes, Suspect};
pub use decision::Decision;
pub use limits::{Limits, MAX_RESERVES, Order, Reserve, Reserves, Ticket};
pub use pool::Pool;
pub use processors::{ProcessorUse, Surroundings, Worked};
pub use program::{Program, ProgramOrder, ProgramRules, SlotState, Starts, Taken};
pub use reactors::{ReactorChange, ReactorLoad, ReactorMove, ReactorOrders, ReactorScaler, spread};
pub use retry::{Failure, Retry, Sent, may_retry};
pub use retry_budget::RetryBudget;
pub use scaler::{Exit, Life, MemoryView, Mode, Orders, Scaler, ScalerStats, Scaling};
pub use stats::Stats;
pub use time::Micros;
pub use timetable::{Due, Pace, REACH, Timetable};
pub use token_bucket::{EventRate, TokenBucket};
pub use workers::MAX_WORKERS;
