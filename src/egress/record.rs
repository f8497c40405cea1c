//! What is known of a call when it has ended: its line in the log, and what is counted.

use std::{net::SocketAddr, sync::Arc, time::SystemTime};

use http::{Method, StatusCode, uri::PathAndQuery};

use super::{
    fault::Kind,
    target::{Form, Origin},
};

/// One call. Times are microseconds.
#[derive(Debug, Clone)]
pub(crate) struct CallRecord {
    /// When its head was there.
    pub(crate) at: SystemTime,
    pub(crate) method: Method,
    /// None where the request names none that can be read.
    pub(crate) origin: Option<Arc<Origin>>,
    /// Shown without the query, which may hold secrets; none where the request names none that can be read.
    pub(crate) path: Option<PathAndQuery>,
    pub(crate) form: Option<Form>,
    /// What the caller got; none: it left before.
    pub(crate) status: Option<StatusCode>,
    pub(crate) fault: Option<Kind>,
    /// The connection of the last try; none where there was none.
    pub(crate) connection: Option<Connection>,
    /// Waiting for a place at the origin.
    pub(crate) waited: u64,
    /// From the request's last try to the first byte of its answer.
    pub(crate) first_byte: Option<u64>,
    /// From the head of the request to the end of the answer.
    pub(crate) total: u64,
    /// Tries after the first.
    pub(crate) retries: u32,
    /// Of the request's body, and of the answer's as the caller got it.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// The caller's own word that it left before the end.
    pub(crate) caller_left: bool,
    pub(crate) cache: CacheUse,
    pub(crate) caller: Caller,
}

/// What a call was carried by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    /// How it was made; none: it was there.
    pub(crate) made: Option<DialTimes>,
}

/// What is spoken with the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// Bytes that weir does not look at.
    Tunnel,
}

/// What it took to make a connection, µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DialTimes {
    /// Zero where the address was known.
    pub(crate) dns: u64,
    pub(crate) connect: u64,
    /// None over http.
    pub(crate) tls: Option<u64>,
    /// The TLS session went on with an earlier one.
    pub(crate) resumed: bool,
}

impl Protocol {
    /// One word for the log and the metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Protocol::Http1 => "h1",
            Protocol::Http2 => "h2",
            Protocol::Tunnel => "tunnel",
        }
    }
}

/// What the cache had to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum CacheUse {
    /// There is none for this call.
    #[default]
    None,
    /// The answer came from it.
    Hit,
    /// It had none.
    Miss,
    /// The origin said that what it had is still right.
    Revalidated,
    /// The origin failed, and what it had was used.
    Stale,
    /// The answer to an equal call that was on its way.
    Joined,
}

impl CacheUse {
    /// All that are something.
    pub(crate) const ALL: [CacheUse; 5] = [
        CacheUse::Hit,
        CacheUse::Miss,
        CacheUse::Revalidated,
        CacheUse::Stale,
        CacheUse::Joined,
    ];

    /// One word for the log and the metrics; none where there is no cache.
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

/// Who called, as far as it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller {
    /// None over a unix socket.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) pid: Option<u32>,
    /// The pool whose worker called.
    pub(crate) pool: Option<Arc<str>>,
    /// The request that the worker had then, by its number in the logs.
    pub(crate) request: Option<u64>,
}
