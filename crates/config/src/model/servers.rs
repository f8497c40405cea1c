//! `runtime = "servers"`: workers that another program runs.

use alloc::{string::String, vec::Vec};
use core::{fmt, time::Duration};

use super::{Address, Forwarded, Pool, Runtime};

/// Servers, and the load balancing between them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Servers {
    /// The servers; not empty.
    pub list: Vec<UpstreamServer>,
    /// What is sent to servers that speak HTTP. `None`: they speak FastCGI.
    pub http: Option<HttpServers>,
    /// The balancing algorithm.
    pub balance: Balance,
    /// The cookie by which clients stay with a server.
    pub sticky: Option<String>,
    /// Limits of the adaptive concurrency per server, if `maxconn` is not written. `None`: `maxconn` is the limit.
    pub adaptive: Option<Adaptive>,
    /// The kind of health check.
    pub check: Check,
    /// Time between two health checks of a server, with a random variation of up to a fifth.
    pub check_interval: Duration,
    /// A health check that takes longer fails, unless the server has responded to a request in the meantime: then it
    /// is busy.
    pub check_timeout: Duration,
    /// This many consecutive successful checks mark a server as up.
    pub rise: u32,
    /// This many consecutive failed checks mark a server as down.
    pub fall: u32,
    /// A server that comes back reaches its full share after this time. Zero: at once.
    pub slowstart: Duration,
    /// This many consecutive failures within `fail_timeout` mark a server as down. 0: never.
    pub max_fails: u32,
    /// See `max_fails`. It is also the longest pause before such a server is tried again.
    pub fail_timeout: Duration,
    /// Minimum time between two lookups of a name, even if its TTL is shorter.
    pub resolve_min: Duration,
    /// Maximum time between two lookups of a name.
    pub resolve_max: Duration,
}

impl Servers {
    /// Whether at least one server is given by name.
    pub fn has_names(&self) -> bool {
        let named = |server: &UpstreamServer| matches!(server.address, Upstream::Named { .. });
        self.list.iter().any(named)
    }
}

/// Requests to servers with `protocol = "http"`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpServers {
    /// Their Host. `None`: the client's.
    pub host: Option<String>,
    /// The fields that say who the client is.
    pub forwarded: Forwarded,
}

impl Pool {
    /// Settings of servers that speak HTTP. `None`: its workers speak FastCGI.
    pub fn http(&self) -> Option<&HttpServers> {
        match &self.runtime {
            Runtime::Servers(servers) => servers.http.as_ref(),
            Runtime::Php(_) | Runtime::Command(_) => None,
        }
    }
}

/// One of `servers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamServer {
    /// Its address or name.
    pub address: Upstream,
    /// Weight relative to the other servers (default 100). 0: it gets no requests.
    pub weight: u32,
    /// It gets requests only while no other server is up.
    pub backup: bool,
}

/// Address or name of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Upstream {
    /// This address.
    At(Address),
    /// All addresses of this name.
    Named {
        /// The name, in lower case.
        host: String,
        /// The port for all of its addresses.
        port: u16,
    },
}

/// Writes the server as in weir.toml.
impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Named { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// The load balancing algorithm.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Balance {
    /// Each server in turn.
    RoundRobin,
    /// The server with the fewest running requests.
    #[default]
    LeastConn,
    /// The first server below its limit.
    First,
    /// Two random servers; the one with fewer running requests.
    Random,
    /// By a hash of the key.
    Hash {
        /// The key.
        by: HashBy,
        /// A server above this percentage of its share passes requests to the next server. 0: only at its limit.
        factor: u32,
    },
}

/// The key of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HashBy {
    /// The client's address.
    #[default]
    Source,
    /// The URL's path.
    Uri,
    /// This request header.
    Header(String),
    /// This cookie.
    Cookie(String),
}

/// Writes the key as in weir.toml.
impl fmt::Display for HashBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source => f.write_str("source"),
            Self::Uri => f.write_str("uri"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

/// Adaptive concurrency limit of each server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adaptive {
    /// Initial limit.
    pub start: usize,
    /// Maximum limit.
    pub max: usize,
}

/// The kind of health check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Check {
    /// No health checks.
    #[default]
    Off,
    /// The server accepts a connection.
    Tcp,
    /// The server responds to a FastCGI request for this path with 2xx or 3xx.
    FastCgi(String),
    /// The server responds to a GET request for `path` with one of the statuses.
    Http {
        /// The path.
        path: String,
        /// Good statuses.
        statuses: Statuses,
    },
}

/// Ranges of statuses, each with its first and last one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statuses(pub Vec<(u16, u16)>);

impl Statuses {
    /// Whether a status is among them.
    pub fn has(&self, status: u16) -> bool {
        let has = |(first, last): &(u16, u16)| (*first..=*last).contains(&status);
        self.0.iter().any(has)
    }
}

/// Writes the statuses as in weir.toml.
impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}
