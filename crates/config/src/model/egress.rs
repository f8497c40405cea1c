//! `[egress]`: the application's outgoing calls.

use alloc::{string::String, vec::Vec};
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};
use std::path::PathBuf;

use super::{Address, SocketPath};

/// `[egress]`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Egress {
    /// Addresses that accept calls; not empty. TCP addresses must be loopback addresses unless there is a token.
    pub listen: Vec<Address>,
    /// The unix socket of the workers. The usual one is there only if `listen` has no unix socket.
    pub socket: SocketPath,
    /// Owner of the unix sockets.
    pub owner: Option<String>,
    /// Group of the unix sockets.
    pub group: Option<String>,
    /// Mode of the unix sockets.
    pub mode: u32,
    /// File with the token that callers over TCP must send. `None`: no token is needed.
    pub token_file: Option<PathBuf>,
    /// Number of threads that handle calls. 0: one for every four cores.
    pub threads: usize,
    /// Maximum number of callers' connections.
    pub max_connections: usize,
    /// Maximum number of origins with stored state. Those that were not called for the longest time are removed
    /// first.
    pub max_hosts: usize,
    /// The rules for allowed calls. A call is allowed if at least one rule matches; everything else is refused.
    pub allow: Vec<AllowRule>,
    /// Origins that are called by https if an absolute-form request says http.
    pub upgrade: Vec<OriginPattern>,
    /// CONNECT requests are tunnelled if `allow` permits the target.
    pub connect: bool,
    /// Maximum size of all cached responses together, bytes.
    pub cache_size: u64,
    /// Maximum size of one cached response, bytes.
    pub cache_max_object: u64,
    /// Settings for origins that no table matches.
    pub defaults: HostSettings,
    /// `[egress.host.NAME]`, in the order of the file. The first match wins.
    pub hosts: Vec<Host>,
}

impl Egress {
    /// The settings in force for an origin. `host` is in lower case, without brackets.
    pub fn settings(&self, scheme: Scheme, host: &str, port: u16) -> &HostSettings {
        let matching = |table: &&Host| {
            let mut patterns = table.hosts.iter();
            patterns.any(|pattern| pattern.matches(scheme, host, port))
        };
        let table = self.hosts.iter().find(matching);
        table.map_or(&self.defaults, |table| &table.settings)
    }

    /// The variables of weir's own environment that are used as secrets (`${env:NAME}`).
    pub fn variables(&self) -> Vec<&str> {
        let hosts = self.hosts.iter().map(|host| &host.settings);
        let headers = std::iter::once(&self.defaults).chain(hosts);
        let pieces = headers
            .flat_map(|settings| &settings.set_headers)
            .flat_map(|(_, secret)| &secret.0);
        let names = pieces.filter_map(|piece| match piece {
            SecretPiece::Env(name) => Some(name.as_str()),
            _ => None,
        });
        names.collect()
    }

    /// Origins to connect to before the first call: those with `preconnect` that `allow` or a table names exactly,
    /// with a port and without `*`, if `allow` permits calls to them. The host is in lower case, without brackets.
    pub fn preconnected(&self) -> Vec<(Scheme, String, u16)> {
        let of_tables = self.hosts.iter().flat_map(|table| &table.hosts);
        let of_rules = self.allow.iter().map(|rule| &rule.origin);
        let mut origins = Vec::new();
        for pattern in of_tables.chain(of_rules) {
            let host = match &pattern.host {
                OriginHost::Name(name) => name.clone(),
                OriginHost::Ip(ip) => ip.to_string(),
                OriginHost::Suffix(_) => continue,
            };
            let Some(port) = pattern.port else {
                continue;
            };
            let (scheme, mut rules) = (pattern.scheme, self.allow.iter());
            let origin = (scheme, host, port);
            if self.settings(scheme, &origin.1, port).preconnect > 0
                && rules.any(|rule| rule.origin.matches(scheme, &origin.1, port))
                && !origins.contains(&origin)
            {
                origins.push(origin);
            }
        }
        origins
    }
}

/// One entry of `allow`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowRule {
    /// The origins that match.
    pub origin: OriginPattern,
    /// Prefix of the path, which must end at a `/` or at the end of the path. `/`: any path.
    pub path: String,
    /// Methods in upper case. Empty: any.
    pub methods: Vec<String>,
    /// Non-public networks that the name may resolve to.
    pub addresses: Vec<Network>,
    /// NAMEs of the pools whose workers may make these calls. Empty: every caller.
    pub pools: Vec<String>,
}

/// Writes the rule as a text of `allow`, which has no `addresses` and no `pools`.
impl fmt::Display for AllowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_empty() {
            write!(f, "{} ", self.methods.join(","))?;
        }
        write!(f, "{}", self.origin)?;
        match self.path.as_str() {
            "/" => Ok(()),
            path => f.write_str(path),
        }
    }
}

/// A pattern for origins: scheme, host, port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginPattern {
    /// The scheme.
    pub scheme: Scheme,
    /// The host names.
    pub host: OriginHost,
    /// The port. `None`: any (`host:*`).
    pub port: Option<u16>,
}

impl OriginPattern {
    /// Whether the pattern matches this origin. `host` is in lower case, without brackets.
    pub fn matches(&self, scheme: Scheme, host: &str, port: u16) -> bool {
        self.scheme == scheme && self.port.is_none_or(|own| own == port) && self.host.matches(host)
    }
}

/// Writes the pattern as in `allow`: https and the scheme's default port are omitted.
impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scheme == Scheme::Http {
            f.write_str("http://")?;
        }
        write!(f, "{}", self.host)?;
        match self.port {
            None => f.write_str(":*"),
            Some(port) if port == self.scheme.default_port() => Ok(()),
            Some(port) => write!(f, ":{port}"),
        }
    }
}

/// The host of an [`OriginPattern`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginHost {
    /// This name, in lower case.
    Name(String),
    /// Any name with this suffix (stored with its leading dot), at any depth.
    Suffix(String),
    /// This address.
    Ip(IpAddr),
}

impl OriginHost {
    /// Whether the pattern matches this host (in lower case, without brackets).
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Name(name) => name == host,
            Self::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
            Self::Ip(ip) => host.parse() == Ok(*ip),
        }
    }
}

/// Writes the host as in `allow`: `*.partner.example`, IPv6 in brackets.
impl fmt::Display for OriginHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
        }
    }
}

/// The scheme of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// Over TLS.
    Https,
    /// Without TLS.
    Http,
}

impl Scheme {
    /// The scheme's default port.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }

    /// `https` or `http`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }
}

/// A range of addresses with the same prefix (`10.0.0.0/8`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Prefix length in bits: at most 32 or 128.
    pub prefix: u8,
}

impl Network {
    /// Whether the network contains the address. An IPv4-mapped IPv6 address counts as its IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.prefix))
                    .unwrap_or(0);
                let bits = |ip: Ipv4Addr| ip.to_bits() & mask;
                bits(own) == bits(other)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.prefix))
                    .unwrap_or(0);
                let bits = |ip: Ipv6Addr| ip.to_bits() & mask;
                bits(own) == bits(other)
            }
            _ => false,
        }
    }
}

/// Writes the network as in `addresses`: a single address has no prefix length.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.prefix) {
            (IpAddr::V4(ip), 32) => write!(f, "{ip}"),
            (IpAddr::V6(ip), 128) => write!(f, "{ip}"),
            (ip, prefix) => write!(f, "{ip}/{prefix}"),
        }
    }
}

/// `[egress.host.NAME]`
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// The NAME.
    pub name: String,
    /// The origins that match; not empty.
    pub hosts: Vec<OriginPattern>,
    /// Settings for these origins.
    pub settings: HostSettings,
}

/// Settings of calls to one origin. Each origin has connections, limits and a circuit breaker of its own, even if
/// several origins share a table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostSettings {
    /// Maximum number of idle connections that are kept.
    pub keepalive: usize,
    /// Idle connections are closed after this time.
    pub keepalive_timeout: Duration,
    /// Connections older than this take no new calls.
    pub keepalive_time: Duration,
    /// Minimum number of open connections, in use or not. Only for origins that `allow` or a table names exactly.
    pub preconnect: usize,
    /// HTTP/2 is offered to https origins.
    pub http2: bool,
    /// Maximum number of calls running at once.
    pub maxconn: usize,
    /// Maximum number of waiting calls.
    pub max_queue: usize,
    /// Maximum waiting time.
    pub queue_timeout: Duration,
    /// Timeout for opening a connection: DNS, TCP and TLS.
    pub connect_timeout: Duration,
    /// Timeout from the request to the first byte of its response.
    pub first_byte_timeout: Duration,
    /// Timeout between two parts of a body, in both directions.
    pub read_timeout: Duration,
    /// Timeout of the whole call. Zero: no limit.
    pub timeout: Duration,
    /// Maximum number of retries of a call.
    pub retries: u32,
    /// Maximum share of retries, in percent of the calls.
    pub retry_budget: u32,
    /// This many consecutive failures open the circuit breaker. 0: never.
    pub max_fails: u32,
    /// How long the breaker stays open before one call is tried.
    pub fail_timeout: Duration,
    /// Minimum time between two lookups of a name, even if its TTL is shorter.
    pub resolve_min: Duration,
    /// Maximum time between two lookups of a name.
    pub resolve_max: Duration,
    /// Certificates are verified.
    pub verify: bool,
    /// Certificate authorities that are trusted in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// weir's client certificate with its chain, and its key.
    pub client_cert: Option<(PathBuf, PathBuf)>,
    /// Headers that weir sets in each call. They replace the caller's headers of the same name.
    pub set_headers: Vec<(String, Secret)>,
    /// The header that contains the caller's address.
    pub forwarded: Forwarded,
    /// Calls without `traceparent` get one.
    pub traceparent: bool,
    /// Responses are compressed for callers that accept it.
    pub compress: bool,
    /// Responses are cached as RFC 9111 allows.
    pub cache: bool,
    /// If the origin fails, a cached response may be used that is stale by at most this time.
    pub stale_if_error: Duration,
    /// Maximum size of a response head, bytes.
    pub max_response_head: u64,
}

impl HostSettings {
    /// The defaults, as on the reference page.
    pub fn usual() -> Self {
        crate::egress::usual()
    }
}

/// The header that contains the caller's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Forwarded {
    /// None.
    #[default]
    Off,
    /// `X-Forwarded-For`
    XForwardedFor,
    /// `Forwarded` (RFC 7239)
    Rfc7239,
}

/// A text with parts from elsewhere: `Bearer ${file:/etc/weir/api.token}`, `${env:API_KEY}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret(pub Vec<SecretPiece>);

/// Writes the text as in weir.toml. It names secrets, but never shows them.
impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                SecretPiece::Text(text) => f.write_str(&text.replace("${", "$${"))?,
                SecretPiece::File(path) => write!(f, "${{file:{}}}", path.display())?,
                SecretPiece::Env(name) => write!(f, "${{env:{name}}}")?,
            }
        }
        Ok(())
    }
}

/// A part of a [`Secret`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPiece {
    /// Literal text.
    Text(String),
    /// Content of the file, without trailing white space.
    File(PathBuf),
    /// Value of the variable in weir's own environment.
    Env(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str, prefix: u8) -> Network {
        let address = text.parse().expect("an address");
        Network { address, prefix }
    }

    #[test]
    fn a_network_has_its_addresses_and_no_others() {
        for (network, inside, outside) in [
            (network("10.0.0.0", 8), "10.255.0.1", "11.0.0.1"),
            (network("10.1.2.3", 32), "10.1.2.3", "10.1.2.4"),
            (network("10.0.0.0", 8), "::ffff:10.0.0.1", "::10.0.0.1"),
            (network("fd00::", 8), "fdff::1", "fe00::1"),
            (network("::1", 128), "::1", "::2"),
        ] {
            assert!(
                network.contains(inside.parse().expect("an address")),
                "{network:?}"
            );
            assert!(
                !network.contains(outside.parse().expect("an address")),
                "{network:?}"
            );
        }
        assert!(network("0.0.0.0", 0).contains(IpAddr::V4(Ipv4Addr::BROADCAST)));
        assert!(network("::", 0).contains(IpAddr::V6(Ipv6Addr::LOCALHOST)));
    }

    #[test]
    fn a_suffix_is_no_name_of_its_own() {
        let suffix = OriginHost::Suffix(".partner.example".to_owned());
        assert!(suffix.matches("a.b.partner.example"));
        assert!(!suffix.matches(".partner.example") && !suffix.matches("partner.example"));
        assert!(!suffix.matches("evilpartner.example"));
    }

    #[test]
    fn the_variables_of_secrets_are_known_of_all_hosts() {
        let text = "[egress]\nlisten = [\"127.0.0.1:8083\"]\nallow = [\"a.example\", \"b.example\"]\n\
                    set_headers = { A = \"${env:FIRST} and ${file:/etc/b}\" }\n\
                    [egress.host.b]\nhosts = [\"b.example\"]\nset_headers = { B = \"x ${env:SECOND}${env:THIRD}\" }\n";
        let environment = crate::Environment {
            folder: "/".into(),
            cores: 1,
            memory: 1 << 30,
            open_files: 1024,
        };
        let config = crate::parse("weir.toml", text, &environment).unwrap();
        let mut variables = config.egress.as_ref().unwrap().variables();
        variables.sort_unstable();
        variables.dedup();
        assert_eq!(variables, ["FIRST", "SECOND", "THIRD"]);
    }
}
