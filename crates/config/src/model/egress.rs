//! `[egress]`: the application's outgoing calls.

use alloc::{string::String, vec::Vec};
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};
use std::path::PathBuf;

use super::{Address, Window};

/// `[egress]`
#[derive(Debug, Clone, PartialEq)]
pub struct Egress {
    /// Where calls are taken; not empty. TCP addresses are of the loopback unless there is a token.
    pub listen: Vec<Address>,
    /// The unix socket of the workers. The usual one is there only if `listen` has no unix socket.
    pub socket: Window,
    /// Owner of the unix sockets.
    pub owner: Option<String>,
    /// Group of the unix sockets.
    pub group: Option<String>,
    /// Mode of the unix sockets.
    pub mode: u32,
    /// What has to be known to call over TCP stands in this file; none: nothing has to be.
    pub token_file: Option<PathBuf>,
    /// Threads that carry calls; 0: one for every four cores.
    pub threads: usize,
    /// Callers' connections at once.
    pub max_connections: usize,
    /// Origins of which something is remembered at once; those that were not called for the longest time go first.
    pub max_hosts: usize,
    /// Who may be called, and how; one rule that lets a call is enough, and who is in none may not be called.
    pub allow: Vec<AllowRule>,
    /// Who is called by https where an absolute-form request says http.
    pub upgrade: Vec<OriginPattern>,
    /// CONNECT is tunnelled where `allow` lets it.
    pub connect: bool,
    /// Bytes of all answers that are kept.
    pub cache_size: u64,
    /// A longer answer is not kept, bytes.
    pub cache_max_object: u64,
    /// What holds for origins of which no table says otherwise.
    pub defaults: HostSettings,
    /// `[egress.host.NAME]`, in the order of the file; first match wins.
    pub hosts: Vec<Host>,
}

impl Egress {
    /// What holds for an origin; `host` in lower case, without brackets.
    pub fn settings(&self, scheme: Scheme, host: &str, port: u16) -> &HostSettings {
        let matching = |table: &&Host| {
            let mut patterns = table.hosts.iter();
            patterns.any(|pattern| pattern.matches(scheme, host, port))
        };
        let table = self.hosts.iter().find(matching);
        table.map_or(&self.defaults, |table| &table.settings)
    }

    /// The variables of weir's own environment that are secrets of its calls (`${env:NAME}`).
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

    /// Origins that connections are made to before anybody calls them: those with `preconnect` that `allow` or a table
    /// names with their port and without `*`, as far as `allow` lets them be called. The host is in lower case, without
    /// brackets.
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
    /// Which origins.
    pub origin: OriginPattern,
    /// What a path begins with, up to a `/` or its end; `/`: any.
    pub path: String,
    /// Methods, in upper case; empty: any.
    pub methods: Vec<String>,
    /// Networks that are not public and yet may be called under that name.
    pub addresses: Vec<Network>,
    /// Pools whose workers may call so, by their NAMEs; empty: whoever may call at all.
    pub pools: Vec<String>,
}

/// As `allow` writes it in a text, which has no `addresses` and no `pools`.
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

/// Origins: scheme, host, port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginPattern {
    /// How they are called.
    pub scheme: Scheme,
    /// Under which names.
    pub host: OriginHost,
    /// At which port; none: any (`host:*`).
    pub port: Option<u16>,
}

impl OriginPattern {
    /// Whether it means this origin; `host` in lower case, without brackets.
    pub fn matches(&self, scheme: Scheme, host: &str, port: u16) -> bool {
        self.scheme == scheme && self.port.is_none_or(|own| own == port) && self.host.matches(host)
    }
}

/// As `allow` writes it: https and the scheme's own port go without saying.
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
    /// Any name that ends so (kept with its leading dot), of whatever depth.
    Suffix(String),
    /// This address.
    Ip(IpAddr),
}

impl OriginHost {
    /// Whether it means this host (in lower case, without brackets).
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Name(name) => name == host,
            Self::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
            Self::Ip(ip) => host.parse() == Ok(*ip),
        }
    }
}

/// As `allow` writes it: `*.partner.example`, IPv6 in brackets.
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

/// How an origin is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// Over TLS.
    Https,
    /// In the clear.
    Http,
}

impl Scheme {
    /// The port where none is said.
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

/// Addresses that begin alike (`10.0.0.0/8`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// How many bits are the same: at most 32 or 128.
    pub prefix: u8,
}

impl Network {
    /// Whether the address is one of them; one of IPv4 that is written as one of IPv6 is what it stands for.
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

/// As `addresses` writes it: one address alone without its length.
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
    /// Whom it is about; not empty.
    pub hosts: Vec<OriginPattern>,
    /// What holds for them.
    pub settings: HostSettings,
}

/// How one origin is called. Each origin has connections, limits and a breaker of its own, also where several share a
/// table.
#[derive(Debug, Clone, PartialEq)]
pub struct HostSettings {
    /// Idle connections kept.
    pub keepalive: usize,
    /// An idle connection is closed after that.
    pub keepalive_timeout: Duration,
    /// A connection takes no new call after that.
    pub keepalive_time: Duration,
    /// Connections that are open at least, in use or not; only of origins that `allow` or a table names exactly.
    pub preconnect: usize,
    /// HTTP/2 is offered to https origins.
    pub http2: bool,
    /// Calls at work at once.
    pub maxconn: usize,
    /// Calls waiting at most.
    pub max_queue: usize,
    /// Waiting at most.
    pub queue_timeout: Duration,
    /// Until a connection is there: DNS, TCP and TLS.
    pub connect_timeout: Duration,
    /// From the request to the first byte of its answer.
    pub first_byte_timeout: Duration,
    /// From one piece of a body to the next, both ways.
    pub read_timeout: Duration,
    /// For all of a call; zero: no limit.
    pub timeout: Duration,
    /// How often a call is tried again at most.
    pub retries: u32,
    /// Tries again may be so many percent of the calls.
    pub retry_budget: u32,
    /// So many failures in a row open the breaker; 0: never.
    pub max_fails: u32,
    /// How long it stays open before one call tries.
    pub fail_timeout: Duration,
    /// A name is looked up again after this at the earliest, whatever its TTL says.
    pub resolve_min: Duration,
    /// And after this at the latest.
    pub resolve_max: Duration,
    /// Certificates are checked.
    pub verify: bool,
    /// Authorities that are trusted beside the system's.
    pub ca_file: Option<PathBuf>,
    /// The certificate that weir shows, with its chain, and its key.
    pub client_cert: Option<(PathBuf, PathBuf)>,
    /// Headers that are set in each call, whatever the caller says.
    pub set_headers: Vec<(String, Secret)>,
    /// Which header says who called.
    pub forwarded: Forwarded,
    /// A call without `traceparent` is given one.
    pub traceparent: bool,
    /// Answers are compressed for callers that ask for it.
    pub compress: bool,
    /// Answers are kept as RFC 9111 allows.
    pub cache: bool,
    /// A kept answer that is stale by at most that is used when the origin fails.
    pub stale_if_error: Duration,
    /// Largest head of an answer, bytes.
    pub max_response_head: u64,
}

impl HostSettings {
    /// What holds where nothing is written: the defaults of the reference page.
    pub const USUAL: Self = Self {
        keepalive: 32,
        keepalive_timeout: Duration::from_secs(60),
        keepalive_time: Duration::from_secs(3600),
        preconnect: 0,
        http2: true,
        maxconn: 100,
        max_queue: 1000,
        queue_timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(5),
        first_byte_timeout: Duration::from_secs(60),
        read_timeout: Duration::from_secs(60),
        timeout: Duration::from_secs(3600),
        retries: 2,
        retry_budget: 20,
        max_fails: 10,
        fail_timeout: Duration::from_secs(10),
        resolve_min: Duration::from_secs(1),
        resolve_max: Duration::from_secs(300),
        verify: true,
        ca_file: None,
        client_cert: None,
        set_headers: Vec::new(),
        forwarded: Forwarded::Off,
        traceparent: false,
        compress: false,
        cache: false,
        stale_if_error: Duration::ZERO,
        max_response_head: 64 << 10,
    };
}

/// Which header says who called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    /// None.
    Off,
    /// `X-Forwarded-For`
    XForwardedFor,
    /// `Forwarded` (RFC 7239)
    Rfc7239,
}

/// A text with parts that stand elsewhere: `Bearer ${file:/etc/weir/api.token}`, `${env:API_KEY}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret(pub Vec<SecretPiece>);

/// As it is written in weir.toml: what stands elsewhere is named, never shown.
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
    /// As written.
    Text(String),
    /// What the file holds, without white space at its end.
    File(PathBuf),
    /// The variable of weir's own environment.
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
