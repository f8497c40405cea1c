//! Programs that weir runs beside the pools.

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use super::{PoolId, Workers};
use crate::schedule::Schedule;

/// `[program.NAME]`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// The NAME.
    pub name: String,
    /// Program and arguments. The program is an absolute path, or is looked up in PATH at the start.
    pub argv: Vec<String>,
    /// Number of processes that always run; 1 with a schedule.
    pub instances: usize,
    /// What follows when it ends by itself. Without meaning with a schedule.
    pub restart: Restart,
    /// When it is started. `None`: it always runs.
    pub schedule: Option<Schedule>,
    /// Time zone of the schedule. `None`: the machine's.
    pub timezone: Option<String>,
    /// What follows if its time comes while it runs.
    pub overlap: Overlap,
    /// A process that has run for so long is stopped. Zero: never.
    pub max_runtime: Duration,
    /// How long a process may take to end after SIGTERM. Not zero.
    pub stop_timeout: Duration,
    /// The pool of the same application: the program is restarted with it.
    pub pool: Option<PoolId>,
    /// User, environment and limits; the rest of it is not used.
    pub process: Workers,
}

/// What follows when a program ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Restart {
    /// It is started again.
    #[default]
    Always,
    /// It is started again if its exit code was not 0.
    OnFailure,
    /// It stays ended.
    Never,
}

/// What follows if the time of a program comes while it still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// Nothing.
    #[default]
    Skip,
    /// It is started once more when it has ended.
    Wait,
}
