//! What weir writes about itself, in all of its processes: the error log and its events, the logs of requests, the
//! trace, metrics, counts and rates, what workers do, the formats of a pool's status, output for the person who runs a
//! command, and the clock.
//!
//! It decides nothing about requests, pools or workers. Each report has its subject ([`error_log::About`]).
#![forbid(unsafe_code)]

pub mod access_log;
pub mod cache_use;
pub mod clock;
pub mod console;
mod durations;
pub mod error_log;
pub mod events;
pub mod failures;
pub mod histogram;
pub mod history;
pub mod kernel_queues;
pub mod log_sink;
pub mod log_text;
pub mod logs;
pub mod metrics;
pub mod pool_log;
pub mod pool_status;
pub mod pulse;
pub mod recent;
pub mod scoreboard;
pub mod seldom;
pub mod tally;
pub mod template;
pub mod trace;
