//! The data of a call that has ended, for its log line and the counters.

use std::{net::SocketAddr, sync::Arc, time::SystemTime};

use http::{Method, StatusCode, uri::PathAndQuery};

use super::{
    fault::Kind,
    origin::{Connection, Origin},
    target::Form,
};

/// One call. Times are in microseconds.
#[derive(Debug, Clone)]
pub(crate) struct CallRecord {
    /// When its head had arrived.
    pub(crate) at: SystemTime,
    pub(crate) method: Method,
    /// `None` if the request names no valid origin.
    pub(crate) origin: Option<Arc<Origin>>,
    /// Shown without the query, which may contain secrets; `None` if the request has no valid path.
    pub(crate) path: Option<PathAndQuery>,
    pub(crate) form: Option<Form>,
    /// The status for the caller; `None`: the caller left before.
    pub(crate) status: Option<StatusCode>,
    pub(crate) fault: Option<Kind>,
    /// The connection of the last attempt; `None` if there was none.
    pub(crate) connection: Option<Connection>,
    /// Time in the queue of the origin.
    pub(crate) waited: u64,
    /// From the request's last attempt to the first byte of its answer.
    pub(crate) first_byte: Option<u64>,
    /// From the head of the request to the end of the answer.
    pub(crate) total: u64,
    /// Tries after the first.
    pub(crate) retries: u32,
    /// Bytes of the request's body, and of the answer's body as the caller got it.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Whether the caller left before the end.
    pub(crate) caller_left: bool,
    pub(crate) cache: CacheUse,
    pub(crate) caller: Caller,
}

/// What the cache did for the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum CacheUse {
    /// No cache was used for this call.
    #[default]
    None,
    /// The answer came from it.
    Hit,
    /// The cache had no answer.
    Miss,
    /// The origin confirmed that the stored answer is still valid.
    Revalidated,
    /// The origin failed, and a stale answer was used.
    Stale,
    /// The answer to an equal call that was running.
    Joined,
}

impl CacheUse {
    /// All uses of the cache.
    pub(crate) const ALL: [CacheUse; 5] = [
        CacheUse::Hit,
        CacheUse::Miss,
        CacheUse::Revalidated,
        CacheUse::Stale,
        CacheUse::Joined,
    ];

    /// One word for the log and the metrics; `None` if no cache was used.
    pub(crate) fn as_str(self) -> Option<&'static str> {
        match self {
            CacheUse::None => None,
            CacheUse::Hit => Some("hit"),
            CacheUse::Miss => Some("miss"),
            CacheUse::Revalidated => Some("revalidated"),
            CacheUse::Stale => Some("stale"),
            CacheUse::Joined => Some("joined"),
        }
    }
}

/// The caller, if it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller {
    /// `None` for a unix socket.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) pid: Option<u32>,
    /// The pool whose worker called.
    pub(crate) pool: Option<Arc<str>>,
    /// The number (as in the logs) of the request that the worker had then.
    pub(crate) request: Option<u64>,
}
