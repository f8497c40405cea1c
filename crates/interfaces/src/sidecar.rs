//! The interface between the gateway and the egress, which runs beside it on its own threads. The two modules do not
//! import each other; `main` connects them.

use std::{net::SocketAddr, sync::Arc};

use weir_config::LogFormat;
use weir_control::{CallSource, EgressGiven};
use weir_observe::{log_sink::Sink, metrics::Page, pulse::Pulses};
use weir_upstream::resolver::Resolver;

use crate::window::Task;

/// The egress as the gateway sees it; the gateway shows it in the operator's window.
pub trait EgressView: Send + Sync {
    /// The object `egress` of `GET /status`.
    fn status(&self) -> serde_json::Value;

    /// Adds the rows `weir_egress_*` to the page.
    fn put_metrics(&self, page: &mut Page);

    /// Accepts nothing new, and lets running calls finish.
    fn drain(&self);

    /// Whether nothing runs any more after that.
    fn is_done(&self) -> bool;
}

/// The workers of all pools as the egress sees them: a call belongs to the request of its worker.
pub trait Workers: Send + Sync {
    /// The request of the worker with this process id; `None`: it is not a worker that weir runs, or it has no
    /// request.
    fn of_pid(&self, pid: u32) -> Option<WorkerNow>;

    /// The workers that have a request now.
    fn busy_pids(&self) -> Vec<u32>;

    /// Which busy worker has the socket with this inode open: for cases in which the manager may see more than the
    /// gateway. It may take long, and returns `None` if there are too many such questions.
    fn owner(&self, inode: u32) -> Task<Option<u32>>;

    /// Whether calls of this host (in lower case) or to this address come back to a site of this weir, as far as the
    /// configuration tells.
    fn serves(&self, host: &str, address: SocketAddr) -> bool;

    /// Which worker of an earlier configuration it is or belongs to, and the NAME of its pool: such a worker finishes its
    /// request after a reload. As [`owner`](Self::owner), it may take its time.
    fn former(&self, whose: CallSource) -> Task<Option<(u32, Arc<str>)>>;
}

/// A busy worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerNow {
    /// The pool's NAME.
    pub pool: Arc<str>,
    /// The number (as in the logs) of its request.
    pub request: u64,
    /// By when its answer must have begun ([`weir_observe::clock::now`]); [`weir_observe::clock::NEVER`]: no deadline, or it has
    /// begun.
    pub deadline: u64,
}

/// What the egress gets from the gateway.
pub struct Beside {
    /// The workers that may make calls.
    pub workers: Arc<dyn Workers>,
    /// The log of calls. The gateway opens and reopens it, and writes the rest at the end: it may be the access log's
    /// sink.
    pub log: Arc<Sink>,
    /// The format of the log.
    pub log_format: LogFormat,
    /// Where its threads report that they run.
    pub pulses: Pulses,
}

/// Starts the egress with its settings, what the manager has passed for it, and the number of the machine's cores. It
/// ends with the process.
pub type Start = fn(
    weir_config::Egress,
    EgressGiven,
    Resolver,
    usize,
    Beside,
) -> Result<Arc<dyn EgressView>, String>;
