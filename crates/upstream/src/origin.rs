//! An origin, and the connections to it as the log and the figures show them.

use std::{fmt, net::SocketAddr};

use weir_config::Scheme;

/// The origin of a call: scheme, host, port. It is the key for connections, limits and counters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    pub scheme: Scheme,
    /// In lower case, without brackets and without a dot at the end; a name, or an address in canonical form.
    pub host: String,
    pub port: u16,
}

impl Origin {
    /// For `Host`, `:authority` and the log: with the port only if it is not the scheme's default, IPv6 in brackets.
    pub fn authority(&self) -> String {
        let bracketed = self.host.contains(':');
        let host = match bracketed {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port == self.scheme.default_port() {
            true => host,
            false => format!("{host}:{}", self.port),
        }
    }
}

/// As a URL, without a path.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}

/// The connection that carried a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    pub address: SocketAddr,
    pub protocol: Protocol,
    /// How it was made; `None`: it existed before.
    pub made: Option<DialTimes>,
}

/// The protocol with the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
    /// Bytes that weir does not parse.
    Tunnel,
}

/// Times of making a connection, µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DialTimes {
    /// Zero if the address was known.
    pub dns: u64,
    pub connect: u64,
    /// `None` for http.
    pub tls: Option<u64>,
    /// Whether the TLS session was resumed.
    pub resumed: bool,
}

impl Protocol {
    /// One word for the log and the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Http1 => "h1",
            Protocol::Http2 => "h2",
            Protocol::Tunnel => "tunnel",
        }
    }
}
