//! Who clients are, and what each may do: addresses, rates, speeds, users.

use core::{fmt, net::IpAddr, time::Duration};
use std::path::PathBuf;

use super::{Network, RequestPart};

/// Some of those that connect: an element of `trusted`, `allow` and `deny`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// `all`
    All,
    /// `unix:`, everybody who connects to a unix socket.
    Unix,
    /// These addresses.
    Network(Network),
}

impl Peer {
    /// Whether it includes a peer. `None`: one on a unix socket.
    pub fn includes(&self, address: Option<IpAddr>) -> bool {
        match (self, address) {
            (Peer::All, _) | (Peer::Unix, None) => true,
            (Peer::Network(network), Some(address)) => network.contains(address),
            _ => false,
        }
    }
}

/// Writes it as in weir.toml.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::All => f.write_str("all"),
            Peer::Unix => f.write_str("unix:"),
            Peer::Network(network) => network.fmt(f),
        }
    }
}

/// The fields in which trusted proxies say who the client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardedFields {
    /// `X-Forwarded-For` and its relatives; `Forwarded` if there is no `X-Forwarded-For`.
    #[default]
    Any,
    /// Only `X-Forwarded-For` and its relatives.
    XForwarded,
    /// Only `Forwarded` (RFC 7239).
    Rfc7239,
}

/// How many requests a client may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// So many in each `period`, evenly distributed.
    pub count: u32,
    /// A second, a minute or an hour.
    pub period: Duration,
    /// So many may come too early.
    pub burst: u32,
}

impl Rate {
    /// One may come in this time on average.
    pub fn interval(&self) -> Duration {
        self.period / self.count.max(1)
    }
}

/// Writes the rate as in weir.toml.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.period.as_secs() {
            1 => "s",
            60 => "m",
            _ => "h",
        };
        write!(f, "{}/{unit} burst {}", self.count, self.burst)
    }
}

/// How to identify clients that get equal shares of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FairBy {
    /// No fair queueing.
    Off,
    /// By client address; IPv6 by its first 64 bits.
    #[default]
    Address,
    /// By this part of the request; by client address if the part is missing.
    Part(RequestPart),
}

/// Users and passwords that clients need (RFC 7617).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasicAuth {
    /// Name of the protected area. Browsers show it where people type the password.
    pub realm: String,
    /// The file of users, as htpasswd writes it.
    pub file: PathBuf,
}
