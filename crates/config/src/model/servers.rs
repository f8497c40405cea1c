//! `runtime = "servers"`: workers that somebody else runs.

use alloc::{string::String, vec::Vec};
use core::{fmt, time::Duration};

use super::Address;

/// Servers, and how requests are spread over them.
#[derive(Debug, Clone, PartialEq)]
pub struct Servers {
    /// Who they are; not empty.
    pub list: Vec<UpstreamServer>,
    /// Which of them gets a request.
    pub balance: Balance,
    /// Requests at one server at once, where `maxconn` is not said and the limit is found out; none: `maxconn` holds.
    pub adaptive: Option<Adaptive>,
    /// How they are checked beside their requests.
    pub check: Check,
    /// Between two checks of a server, more or less by a fifth.
    pub check_interval: Duration,
    /// A check that takes longer is a bad one.
    pub check_timeout: Duration,
    /// So many good checks in a row bring a server back.
    pub rise: u32,
    /// So many bad checks in a row take it out.
    pub fall: u32,
    /// A server that has come back gets its whole share after that; zero: at once.
    pub slowstart: Duration,
    /// So many failures in a row within `fail_timeout` take a server out; 0: none do.
    pub max_fails: u32,
    /// See `max_fails`; also the longest pause before such a server is tried again.
    pub fail_timeout: Duration,
    /// A name is looked up again after this at the earliest, whatever its TTL says.
    pub resolve_min: Duration,
    /// And after this at the latest.
    pub resolve_max: Duration,
}

impl Servers {
    /// Whether a server is written as a name.
    pub fn has_names(&self) -> bool {
        let named = |server: &UpstreamServer| matches!(server.address, Upstream::Named { .. });
        self.list.iter().any(named)
    }
}

/// One of `servers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamServer {
    /// Where it is.
    pub address: Upstream,
    /// Compared with the others' weights (100 where nothing is said); 0: it gets no requests.
    pub weight: u32,
    /// It gets requests only while no other server is up.
    pub backup: bool,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Upstream {
    /// At this address.
    At(Address),
    /// At all addresses that this name has.
    Named {
        /// In lower case.
        host: String,
        /// Of all of them.
        port: u16,
    },
}

/// As it is written in weir.toml.
impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Named { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Which server gets a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Balance {
    /// One after the other.
    RoundRobin,
    /// The least busy one.
    LeastConn,
    /// The first that has room.
    First,
    /// The less busy one of two taken at random.
    Random,
    /// The one that the key belongs to.
    Hash {
        /// What the key is.
        by: HashBy,
        /// A server with more than so many percent of its share passes its keys on; 0: only at its limit.
        factor: u32,
    },
}

/// What a request's key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashBy {
    /// The client's address.
    Source,
    /// The URL's path.
    Uri,
    /// This request header.
    Header(String),
    /// This cookie.
    Cookie(String),
}

/// As it is written in weir.toml.
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

/// A limit that is found out, for each server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adaptive {
    /// At first.
    pub start: usize,
    /// Never more.
    pub max: usize,
}

/// How servers are checked beside their requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// Not at all.
    Off,
    /// It accepts a connection.
    Tcp,
    /// It answers a FastCGI request for this path with 2xx or 3xx.
    FastCgi(String),
}
