//! Resolves names to addresses, by DNS and /etc/hosts, without blocking a reactor.
//!
//! The machine's settings were read before the gateway entered its chroot ([`weir_control::NameFiles`]); later
//! changes are seen by the next gateway.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use hickory_resolver::{
    Hosts, TokioResolver,
    config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::RecordType,
    system_conf::parse_resolv_conf,
};

use weir_control::NameFiles;

/// Looks names up.
pub struct Resolver(TokioResolver);

/// The addresses of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Addresses of both families; the first [`MOST_ADDRESSES`] in ascending order.
    pub addresses: BTreeSet<IpAddr>,
    /// How many more there were.
    pub left_out: usize,
    /// How long they are valid; zero if there are none.
    pub ttl: Duration,
    /// The lookup of this family failed, so its addresses are not known.
    pub unknown_v4: bool,
    /// See `unknown_v4`.
    pub unknown_v6: bool,
    /// Why something is not known, or that there is no address.
    pub failure: Option<Failure>,
}

/// Why the addresses of a name are not, or not all, known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    /// For the log.
    pub text: Arc<str>,
}

/// Whether another lookup may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// According to the name servers there is no such name, or it has no address.
    None,
    /// The name servers did not answer in time.
    Timeout,
    /// The name servers reported an error, or cannot be reached.
    Servers,
}

/// Result of the lookup of one family.
pub type Half = Result<FamilyAddresses, Failure>;

/// Addresses of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyAddresses {
    /// In ascending order; empty: the name has none of this family.
    pub addresses: BTreeSet<IpAddr>,
    /// How long they are valid; zero if there are none.
    pub ttl: Duration,
}

/// The family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Resolver {
    /// `nameservers`: used instead of those of the machine.
    ///
    /// # Errors
    ///
    /// If the resolver cannot be made with these.
    pub fn new(nameservers: &[SocketAddr], files: &NameFiles) -> Result<Resolver, String> {
        let (config, mut options) = match parse_resolv_conf(&files.resolv_conf) {
            Ok(parsed) => parsed,
            // As resolv.conf(5) defines for a file without name servers.
            Err(_) => (
                ResolverConfig::from_parts(
                    None,
                    Vec::new(),
                    vec![NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into())],
                ),
                ResolverOpts::default(),
            ),
        };
        let config = match nameservers {
            [] => config,
            servers => {
                let (domain, search, _) = config.into_parts();
                let servers = servers.iter().map(|at| nameserver(*at)).collect();
                ResolverConfig::from_parts(domain, search, servers)
            }
        };
        // Callers look a name up only when its TTL is over.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let built = builder.with_options(options).build();
        let mut resolver = built.map_err(|error| format!("DNS lookups do not work: {error}"))?;
        let mut hosts = Hosts::default();
        // Lines that are not text or have no address are skipped.
        let lines = String::from_utf8_lossy(&files.hosts);
        hosts
            .read_hosts_conf(lines.as_bytes())
            .map_err(|error| format!("/etc/hosts cannot be read: {error}"))?;
        resolver.set_hosts(Arc::new(hosts));
        Ok(Resolver(resolver))
    }

    /// All addresses of a name.
    pub async fn look_up(&self, name: &str) -> Resolved {
        let (v4, v6) = tokio::join!(self.half(name, Family::V4), self.half(name, Family::V6));
        Resolved::of(v4, v6)
    }

    /// The addresses of one family. It ends after [`LOOK_UP_LIMIT`] at the latest.
    pub async fn half(&self, name: &str, family: Family) -> Half {
        let kind = match family {
            Family::V4 => RecordType::A,
            Family::V6 => RecordType::AAAA,
        };
        match tokio::time::timeout(LOOK_UP_LIMIT, self.0.lookup(name, kind)).await {
            Ok(Ok(lookup)) => {
                let found = lookup.answers().iter();
                let addresses: BTreeSet<IpAddr> =
                    found.filter_map(|record| record.data.ip_addr()).collect();
                let ttl = match addresses.is_empty() {
                    true => Duration::ZERO,
                    false => lookup
                        .valid_until()
                        .saturating_duration_since(Instant::now()),
                };
                Ok(FamilyAddresses { addresses, ttl })
            }
            Ok(Err(error)) if error.is_nx_domain() => {
                Err(Failure::new(FailureKind::None, "this name does not exist"))
            }
            Ok(Err(error)) if error.is_no_records_found() => Ok(FamilyAddresses {
                addresses: BTreeSet::new(),
                ttl: Duration::ZERO,
            }),
            Ok(Err(NetError::Timeout)) => {
                let text = "the DNS servers do not answer";
                Err(Failure::new(FailureKind::Timeout, text))
            }
            Ok(Err(error)) => Err(Failure::new(FailureKind::Servers, &error.to_string())),
            Err(_) => {
                let text = format!("no answer within {} s", LOOK_UP_LIMIT.as_secs());
                Err(Failure::new(FailureKind::Timeout, &text))
            }
        }
    }
}

impl Resolved {
    /// Combines both families. If the name has no addresses of one family, that family is known to be empty. If it
    /// has no address at all, nothing is known, because a name in use has addresses.
    pub fn of(v4: Half, v6: Half) -> Resolved {
        let mut answer = Resolved::default();
        let mut ttl: Option<Duration> = None;
        for (half, unknown) in [(v4, &mut answer.unknown_v4), (v6, &mut answer.unknown_v6)] {
            match half {
                Ok(found) if found.addresses.is_empty() => {}
                Ok(found) => {
                    answer.addresses.extend(found.addresses);
                    ttl = Some(ttl.map_or(found.ttl, |ttl| ttl.min(found.ttl)));
                }
                Err(failure) if failure.kind == FailureKind::None => {
                    answer.failure.get_or_insert(failure);
                }
                Err(failure) => {
                    *unknown = true;
                    answer.failure = Some(failure);
                }
            }
        }
        if let Some(first) = answer.addresses.iter().nth(MOST_ADDRESSES).copied() {
            answer.left_out = answer.addresses.split_off(&first).len();
        }
        answer.ttl = ttl.unwrap_or_default();
        let known = !answer.unknown_v4 && !answer.unknown_v6;
        if answer.addresses.is_empty() {
            (answer.unknown_v4, answer.unknown_v6) = (true, true);
            let none = || Failure::new(FailureKind::None, "the name has no address");
            answer.failure.get_or_insert_with(none);
        } else if known {
            // If a name does not exist for one family, this says nothing about the other one.
            answer.failure = None;
        }
        answer
    }

    /// Whether the server at this address stays: the address is in the answer, or the lookup of its family failed.
    pub fn keeps(&self, ip: IpAddr) -> bool {
        let unknown = match ip {
            IpAddr::V4(_) => self.unknown_v4,
            IpAddr::V6(_) => self.unknown_v6,
        };
        unknown || self.addresses.contains(&ip)
    }
}

impl Failure {
    pub fn new(kind: FailureKind, text: &str) -> Failure {
        let text = text.into();
        Failure { kind, text }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resolver")
    }
}

fn nameserver(at: SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(at.ip());
    for connection in &mut server.connections {
        connection.port = at.port();
    }
    server
}

/// Per name. Each address is a server that is checked and considered for every request; a DNS answer can have
/// thousands.
pub const MOST_ADDRESSES: usize = 128;

/// The resolver repeats a query that a name server does not answer; this limits the total time.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn look_up(files: NameFiles, name: &str) -> Resolved {
        let nobody = [SocketAddr::from(([127, 0, 0, 1], 9))];
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let resolver = Resolver::new(&nobody, &files).expect("a resolver");
            resolver.look_up(name).await
        })
    }

    #[test]
    fn hosts_are_asked_first_whatever_else_is_in_the_file() {
        let files = NameFiles {
            resolv_conf: b"options nonsense:x\nsearch .. \xFF\nnameserver none\n".to_vec(),
            hosts: b"\xFF\xFE garbage\n10.0.0.5\tphp.internal php # mine\n2001:db8::5 php.internal\n1.2.3 x\n"
                .to_vec(),
        };
        let answer = look_up(files, "php.internal");
        let expected = ["10.0.0.5", "2001:db8::5"].map(|ip| ip.parse().expect("an address"));
        assert_eq!(answer.addresses, BTreeSet::from(expected));
        assert_eq!(answer.failure, None);
        assert!(answer.ttl > Duration::from_secs(60));
    }

    #[test]
    fn a_name_is_not_a_thousand_servers() {
        let lines = (0..1000).map(|n| format!("10.0.{}.{} php.internal\n", n / 250, n % 250));
        let files = NameFiles {
            hosts: lines.collect::<String>().into_bytes(),
            ..NameFiles::default()
        };
        let answer = look_up(files, "php.internal");
        let last: IpAddr = "10.0.0.127".parse().expect("an address");
        assert_eq!(answer.addresses.len(), MOST_ADDRESSES);
        assert_eq!(answer.addresses.last(), Some(&last));
        assert_eq!(answer.left_out, 872);
    }

    #[test]
    fn a_machine_without_such_files_has_a_resolver_too() {
        let answer = look_up(NameFiles::default(), "php.internal");
        assert!(answer.addresses.is_empty() && answer.failure.is_some());
        assert!(answer.unknown_v4 && answer.unknown_v6);
    }
}
