//! The words between the gateway and the egress, which runs beside it on threads of its own: what the one may ask of
//! the other. The two rooms do not import one another; `main` hands the one to the other.

use std::sync::Arc;

use weir_config::LogFormat;

use crate::{
    control::EgressGiven, log_sink::Sink, metrics::Page, pulse::Pulses, resolver::Resolver,
    window::Task,
};

/// The egress as the gateway sees it, which shows it in the operator's window.
pub trait EgressView: Send + Sync {
    /// The object `egress` of `GET /status`.
    fn status(&self) -> serde_json::Value;

    /// Puts the rows `weir_egress_*` on the page.
    fn put_metrics(&self, page: &mut Page);

    /// Takes nothing new, and lets what runs end.
    fn drain(&self);

    /// Whether nothing runs any more after that.
    fn is_done(&self) -> bool;
}

/// The workers of all pools as the egress sees them: a call belongs to the request that its worker has.
pub trait Workers: Send + Sync {
    /// What the worker with this process id does; none: it is no worker that weir runs, or has no request.
    fn of_pid(&self, pid: u32) -> Option<WorkerNow>;

    /// The workers that have a request now.
    fn busy_pids(&self) -> Vec<u32>;

    /// Which of the workers that have a request has the socket with this inode open: for the case that the manager may
    /// see what the gateway may not. May take its time, or answer none where there are too many such questions.
    fn owner(&self, inode: u32) -> Task<Option<u32>>;
}

/// A worker at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerNow {
    /// The pool's NAME.
    pub pool: Arc<str>,
    /// The request that it has, by the number that the logs give it.
    pub request: u64,
    /// By when its answer has to have begun ([`crate::clock::now`]); [`crate::clock::NEVER`]: it need not, or has.
    pub deadline: u64,
}

/// What the egress is given by the gateway.
pub struct Beside {
    /// The workers that may call.
    pub workers: Arc<dyn Workers>,
    /// Where calls are written. The gateway opens it, reopens it and writes what is left at the end: it may be the access
    /// log's own.
    pub log: Arc<Sink>,
    /// How.
    pub log_format: LogFormat,
    /// Where its threads tell that they move.
    pub pulses: Pulses,
}

/// Starts the egress with its settings, what the manager has handed over for it, and the number of the machine's cores. It
/// ends with the process.
pub type Start = fn(
    weir_config::Egress,
    EgressGiven,
    Resolver,
    usize,
    Beside,
) -> Result<Arc<dyn EgressView>, String>;
