//! The interface between the gateway and the egress, which runs beside it on its own threads. The two modules do not
//! import each other; `main` connects them.

use std::{net::SocketAddr, sync::Arc};

use weir_config::LogFormat;
use weir_control::{CallSource, EgressGiven};
use weir_observe::{log_sink::Sink, metrics::Page, pulse::Pulses};
use weir_upstream::resolver::Resolver;

use crate::admin::Task;

/// What the gateway can do with the egress, and show of it in the admin interface.
pub trait EgressView: Send + Sync {
    /// The object `egress` of `GET /status`.
    fn status(&self) -> serde_json::Value;

    /// Hosts that workers of this pool are calling now, with the number of calls; the most called one first.
    fn running_calls(&self, pool: &str) -> Vec<(String, u64)>;

    /// Adds the rows `weir_egress_*` to the page.
    fn put_metrics(&self, page: &mut Page);

    /// Accepts nothing new, and lets running calls finish.
    fn drain(&self);

    /// Whether all calls have ended after [`drain`](Self::drain).
    fn is_done(&self) -> bool;
}

/// What the egress can ask about the workers of all pools: a call belongs to the request of its
/// worker.
pub trait Workers: Send + Sync {
    /// The request of the worker with this process id; `None`: it is not a worker of weir, or it
    /// has no request.
    fn of_pid(&self, pid: u32) -> Option<WorkerNow>;

    /// The workers that have a request now.
    fn busy_pids(&self) -> Vec<u32>;

    /// The busy worker that has the socket with this inode open. The manager is asked, which may
    /// see more processes than the gateway. This may take long. `None` also if there are too many
    /// such requests.
    fn owner(&self, inode: u32) -> Task<Option<u32>>;

    /// Whether calls of this host (in lower case) or to this address come back to a site of this
    /// weir, according to the configuration.
    fn serves(&self, host: &str, address: SocketAddr) -> bool;

    /// The worker of an earlier configuration that makes this call, and the NAME of its pool: such
    /// a worker finishes its request after a reload. This may take long, as [`owner`](Self::owner).
    fn former(&self, whose: CallSource) -> Task<Option<(u32, Arc<str>)>>;
}

/// A busy worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerNow {
    /// The pool's NAME.
    pub pool: Arc<str>,
    /// The number (as in the logs) of its request.
    pub request: u64,
    /// The time by which its answer must have begun ([`weir_observe::clock::now`]); [`weir_observe::clock::NEVER`]: no
    /// deadline, or it has begun.
    pub deadline: u64,
}

/// What the egress gets from the gateway.
pub struct EgressContext {
    /// The workers that may make calls.
    pub workers: Arc<dyn Workers>,
    /// The log of calls. The gateway opens and reopens it, and writes the rest at the end: it may be the access log's
    /// sink.
    pub log: Arc<Sink>,
    /// The format of the log.
    pub log_format: LogFormat,
    /// The egress' threads report here that they are alive.
    pub pulses: Pulses,
}

/// Starts the egress with its settings, what the manager has passed for it, and the number of the machine's cores. It
/// ends with the process.
pub type Start = fn(
    weir_config::Egress,
    EgressGiven,
    Resolver,
    usize,
    EgressContext,
) -> Result<Arc<dyn EgressView>, String>;
