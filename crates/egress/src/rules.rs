//! Decides which calls are allowed: `allow`, `upgrade` and `connect` of `[egress]`.
//!
//! Calls are denied by default. A call is allowed if one rule names its origin, its path and its
//! method. A refusal says which rule nearly matched, for the person who writes the rules.

use std::{net::IpAddr, sync::Arc};

use http::Method;
use weir_config::{AllowRule, Egress, Network, OriginHost, OriginPattern, Scheme};

use super::{
    fault::{Fault, Kind},
    origin::Origin,
    target::{Form, Target},
};

// With a path attribute, because fuzz/ includes this file, too.
#[path = "rules/plain_path.rs"]
mod plain_path;

/// The rules of `[egress]`.
#[derive(Debug)]
pub(crate) struct Rules {
    allow: Vec<AllowRule>,
    upgrade: Vec<OriginPattern>,
    connect: bool,
}

impl Rules {
    /// The rules of a configuration.
    pub(crate) fn new(egress: &Egress) -> Rules {
        Rules {
            allow: egress.allow.clone(),
            upgrade: egress.upgrade.clone(),
            connect: egress.connect,
        }
    }

    /// Whether a call is allowed.
    ///
    /// # Errors
    /// [`Kind::NotAllowed`], with the rule that nearly matched.
    pub(crate) fn judge(&self, target: &Target, method: &Method, who: &Who) -> Result<(), Fault> {
        let origin = &target.origin;
        let refusal = match target.form {
            Form::Tunnel if !self.connect => format!(
                "CONNECT {}: tunnels are off; call {origin} by path or with weir as an \
                 http proxy, or set connect = true in [egress]",
                origin.host
            ),
            Form::Tunnel => {
                let rules = self.allow.iter().filter(|rule| tunnels(rule, origin));
                match rules.clone().next() {
                    Some(_) if rules.clone().any(|rule| who.is_of(&rule.pools)) => return Ok(()),
                    Some(_) => not_of(rules, origin, who),
                    None => self.no_tunnel(target),
                }
            }
            Form::Path | Form::Proxy => {
                let path = target.path.path();
                let allows = |rule: &AllowRule| {
                    is_for(&rule.origin, origin)
                        && takes(rule, method)
                        && beneath(path, &rule.path).is_ok()
                };
                let mut rules = self.allow.iter().filter(|rule| allows(rule));
                match rules.clone().next() {
                    Some(_) if rules.any(|rule| who.is_of(&rule.pools)) => return Ok(()),
                    Some(_) => not_of(self.allow.iter().filter(|rule| allows(rule)), origin, who),
                    None => self.no_call(target, method),
                }
            }
        };
        Err(Fault::unsent(Kind::NotAllowed, refusal))
    }

    /// Whether the rules for an origin depend on the caller: a rule that names it is for some pools only.
    pub(crate) fn asks_who(&self, target: &Target) -> bool {
        let named = |rule: &&AllowRule| match target.form {
            Form::Tunnel => {
                is_host(&rule.origin.host, &target.origin.host)
                    && is_port(&rule.origin, target.origin.port)
            }
            Form::Path | Form::Proxy => is_for(&rule.origin, &target.origin),
        };
        let mut rules = self.allow.iter().filter(named);
        rules.any(|rule| !rule.pools.is_empty())
    }

    /// Whether a call may use everything that the configuration has for the origin: credentials, stored answers, and
    /// networks that are not public. If rules that name the origin are for some pools, only the calls of these pools
    /// may.
    pub(crate) fn is_entitled(&self, origin: &Origin, who: &Who) -> bool {
        let named = |rule: &&AllowRule| {
            is_host(&rule.origin.host, &origin.host)
                && is_port(&rule.origin, origin.port)
                && !rule.pools.is_empty()
        };
        let mut rules = self.allow.iter().filter(named).peekable();
        rules.peek().is_none() || rules.any(|rule| who.is_of(&rule.pools))
    }

    /// Whether all calls to the origin except tunnels and TRACE are allowed and entitled, from any
    /// caller.
    pub(crate) fn is_open_to_all(&self, origin: &Origin) -> bool {
        let is_any = |rule: &AllowRule| rule.path == "/" && rule.methods.is_empty();
        let mut rules = self.allow.iter();
        self.is_entitled(origin, &Who::default())
            && rules.any(|rule| is_for(&rule.origin, origin) && is_any(rule))
    }

    /// The non-public networks that may be called for this origin: those of all rules that name it; rules for some
    /// pools count only if the caller is `entitled`.
    pub(crate) fn networks(&self, origin: &Origin, entitled: bool) -> Vec<Network> {
        let rules = self.allow.iter();
        let of_origin = rules
            .filter(|rule| is_for(&rule.origin, origin) && (entitled || rule.pools.is_empty()));
        of_origin
            .flat_map(|rule| rule.addresses.iter().copied())
            .collect()
    }

    /// The scheme for a host that a path names without a scheme.
    pub(super) fn scheme(&self, host: &str, port: Option<u16>) -> Scheme {
        let decides = |rule: &&AllowRule| {
            let origin = &rule.origin;
            let port = port.unwrap_or(origin.scheme.default_port());
            is_host(&origin.host, host) && is_port(origin, port)
        };
        let rule = self.allow.iter().find(decides);
        rule.map_or(Scheme::Https, |rule| rule.origin.scheme)
    }

    /// The scheme under which a tunnel is counted; its content is not known.
    pub(super) fn tunnel_scheme(&self, host: &str, port: u16) -> Scheme {
        let named = |rule: &&AllowRule| {
            is_host(&rule.origin.host, host) && is_port(&rule.origin, port) && is_open(rule)
        };
        let rule = self.allow.iter().find(named);
        rule.map_or(Scheme::Https, |rule| rule.origin.scheme)
    }

    /// Applies `upgrade` to an absolute-form request: returns https if a pattern says so. The port of http becomes
    /// the port of https; other ports stay.
    pub(super) fn upgraded(&self, scheme: Scheme, host: &str, port: u16) -> (Scheme, u16) {
        if scheme == Scheme::Https {
            return (scheme, port);
        }
        let secure = secure_port(port);
        // A pattern may be written with the called scheme, or with the resulting one.
        let means = |pattern: &OriginPattern| {
            let port = match pattern.scheme {
                Scheme::Http => port,
                Scheme::Https => secure,
            };
            is_host(&pattern.host, host) && is_port(pattern, port)
        };
        match self.upgrade.iter().any(means) {
            true => (Scheme::Https, secure),
            false => (scheme, port),
        }
    }

    /// The message if no rule allows a call.
    fn no_call(&self, target: &Target, method: &Method) -> String {
        let (origin, path) = (&target.origin, target.path.path());
        let of_origin = || {
            self.allow
                .iter()
                .filter(|rule| is_for(&rule.origin, origin))
        };
        if of_origin().next().is_none() {
            return self.no_rule(target);
        }
        let of_path: Vec<_> = of_origin()
            .filter(|rule| beneath(path, &rule.path).is_ok())
            .collect();
        if !of_path.is_empty() {
            if *method == Method::TRACE {
                return format!(
                    "TRACE {origin}: refused, because it would show the caller the headers that weir \
                     sets; to allow it, add it to the rule's methods"
                );
            }
            let methods = of_path.iter().flat_map(|rule| rule.methods.iter());
            let methods: Vec<&str> = methods.map(String::as_str).collect();
            return format!(
                "{method} {origin}: only {} is allowed; add {method:?} to the rule's methods to allow it",
                methods.join(", "),
                method = method.as_str(),
            );
        }
        let unclear = |rule: &AllowRule| match beneath(path, &rule.path) {
            Err(Miss::Unclear(what)) => Some(what),
            _ => None,
        };
        if let Some(what) = of_origin().find_map(unclear) {
            return format!(
                "{origin} is allowed only below a path, but the path of the call has \
                 {what}, which servers interpret in different ways"
            );
        }
        let takes_it = of_origin().any(|rule| takes(rule, method));
        let near = of_origin().filter(|rule| !takes_it || takes(rule, method));
        let paths: Vec<&str> = near.map(|rule| rule.path.as_str()).collect();
        format!(
            "{} {origin} is allowed only below {}",
            method.as_str(),
            paths.join(", ")
        )
    }

    /// The message if no rule allows a tunnel.
    fn no_tunnel(&self, target: &Target) -> String {
        let origin = &target.origin;
        let named = |rule: &AllowRule| {
            is_host(&rule.origin.host, &origin.host) && is_port(&rule.origin, origin.port)
        };
        match self.allow.iter().any(named) {
            true => format!(
                "CONNECT {}:{}: weir cannot see the requests in a tunnel, so it needs a rule without \
                 a path, and without methods or with CONNECT in them",
                origin.host, origin.port
            ),
            false => self.no_rule(target),
        }
    }

    /// The message if no rule names the origin.
    fn no_rule(&self, target: &Target) -> String {
        let origin = &target.origin;
        let of_host = |rule: &&AllowRule| is_host(&rule.origin.host, &origin.host);
        let others = self.allow.iter().filter(of_host).map(|rule| {
            let scheme = rule.origin.scheme;
            let (host, port) = (origin.host.clone(), rule.origin.port);
            match port {
                Some(port) => Origin { scheme, host, port }.to_string(),
                None => format!("{}://{host}:*", scheme.as_str()),
            }
        });
        let others: Vec<String> = others.collect();
        let new = match origin.scheme {
            Scheme::Https => origin.authority(),
            Scheme::Http => origin.to_string(),
        };
        if target.form == Form::Proxy && origin.scheme == Scheme::Http {
            let is_secure = |rule: &AllowRule| rule.origin.scheme == Scheme::Https;
            let by_tls = self
                .allow
                .iter()
                .any(|rule| of_host(&rule) && is_secure(rule));
            if by_tls || TLS_PORTS.contains(&origin.port) {
                return self.not_upgraded(origin);
            }
        }
        match others.is_empty() {
            true if target.form == Form::Path && !is_a_host_of_others(&origin.host) => format!(
                "the path of the call begins with {:?}, where weir expects a host: write /HOST/{}. If the client joins paths to a base URL \
                 (base_uri of Guzzle), end that with a slash and begin paths without one. If this is a host, add {new:?} to [egress] allow",
                origin.host, origin.host
            ),
            true => format!(
                "{} is not in [egress] allow; add {new:?} to allow it",
                origin.host
            ),
            false => format!(
                "[egress] allow has {}, but not {origin}; add {new:?} to allow it",
                others.join(", ")
            ),
        }
    }

    /// The message for a call by http as through a proxy, of a host that takes TLS.
    fn not_upgraded(&self, origin: &Origin) -> String {
        let host = match origin.port == Scheme::Http.default_port() {
            true => origin.host.clone(),
            false => origin.authority(),
        };
        let secure = Origin {
            scheme: Scheme::Https,
            host: origin.host.clone(),
            port: secure_port(origin.port),
        };
        let also = match self.allow.iter().any(|rule| is_for(&rule.origin, &secure)) {
            true => String::new(),
            false => format!(", and {:?} to allow", secure.authority()),
        };
        format!(
            "{origin} was called without TLS, which [egress] allow does not allow. A client with http_proxy writes http:// so that weir sees its calls: \
             add {host:?} to upgrade in [egress]{also}; weir then calls {secure}"
        )
    }
}

/// The port of a call by https that was one by http.
fn secure_port(port: u16) -> u16 {
    match port == Scheme::Http.default_port() {
        true => Scheme::Https.default_port(),
        false => port,
    }
}

/// Whether a name can be that of another machine, and not a part of a path.
fn is_a_host_of_others(host: &str) -> bool {
    host.contains(['.', ':', '[']) || host == "localhost"
}

/// Ports that nearly always take TLS.
const TLS_PORTS: [u16; 2] = [443, 8443];

/// The caller, as the kernel reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Who {
    /// The pool of the calling worker, or of the worker that has started the caller.
    pub(crate) pool: Option<Arc<str>>,
    /// All pools that run as the caller's user; empty: not known, or none.
    pub(crate) of_user: Vec<Arc<str>>,
}

impl Who {
    /// Whether the caller certainly belongs to one of these pools; true if the list is empty.
    fn is_of(&self, pools: &[String]) -> bool {
        let is_one = |name: &Arc<str>| pools.iter().any(|pool| **pool == **name);
        pools.is_empty()
            || match &self.pool {
                Some(pool) => is_one(pool),
                None => !self.of_user.is_empty() && self.of_user.iter().all(is_one),
            }
    }
}

/// The message if rules allow it, but only for other pools.
fn not_of<'a>(rules: impl Iterator<Item = &'a AllowRule>, origin: &Origin, who: &Who) -> String {
    let mut pools: Vec<&str> = Vec::new();
    for pool in rules.flat_map(|rule| &rule.pools) {
        if !pools.contains(&pool.as_str()) {
            pools.push(pool);
        }
    }
    let caller = match &who.pool {
        Some(pool) => format!("pool {pool} calls"),
        None => "the calling pool is not known: make calls over \
                 the unix socket (WEIR_EGRESS_SOCKET)"
            .to_owned(),
    };
    format!(
        "{origin} is allowed only for calls of pools {}, but {caller}",
        pools.join(", ")
    )
}

/// Whether the pattern matches the origin.
fn is_for(pattern: &OriginPattern, origin: &Origin) -> bool {
    pattern.scheme == origin.scheme
        && is_port(pattern, origin.port)
        && is_host(&pattern.host, &origin.host)
}

fn is_port(pattern: &OriginPattern, port: u16) -> bool {
    pattern.port.is_none_or(|own| own == port)
}

/// Whether the pattern matches the host. An address is matched only by an address: it is not a name below `*.1`.
fn is_host(pattern: &OriginHost, host: &str) -> bool {
    match (pattern, pattern.matches(host)) {
        (OriginHost::Ip(own), _) if is_address(host) => host.parse() == Ok(own.to_canonical()),
        (_, true) => !is_address(host),
        (_, false) => false,
    }
}

/// Whether a host is an address and not a name.
fn is_address(host: &str) -> bool {
    // Last characters of addresses in canonical form. Most names end with another one.
    let may_be = match host.as_bytes().last() {
        Some(b'0'..=b'9') => true,
        Some(b'a'..=b'f' | b':') => host.as_bytes().contains(&b':'),
        _ => false,
    };
    may_be && host.parse::<IpAddr>().is_ok()
}

/// Whether the rule allows the method. A rule without methods allows all of them except TRACE. The answer to TRACE is
/// the request as the origin got it, including the headers that weir sets and that the application must not see.
fn takes(rule: &AllowRule, method: &Method) -> bool {
    match rule.methods.is_empty() {
        true => *method != Method::TRACE,
        false => rule.methods.iter().any(|own| own == method.as_str()),
    }
}

/// Whether the rule allows a tunnel to the origin. weir cannot see what is sent through it, so it cannot check scheme
/// and path: the rule must have no path, and its scheme does not matter.
fn tunnels(rule: &AllowRule, origin: &Origin) -> bool {
    is_host(&rule.origin.host, &origin.host) && is_port(&rule.origin, origin.port) && is_open(rule)
}

fn is_open(rule: &AllowRule) -> bool {
    rule.path == "/" && takes(rule, &Method::CONNECT)
}

/// Why a path is not below another one.
enum Miss {
    /// The path is elsewhere.
    Elsewhere,
    /// The path seems to be below, but some servers read it differently.
    Unclear(&'static str),
}

/// Whether the path is below `prefix`, up to a `/` or its end, however an origin interprets it.
///
/// Paths are checked like this only here. If a rule allows all paths of an origin, its interpretation does not
/// matter, and `..` or an encoded `/` may be what it needs.
fn beneath(path: &str, prefix: &str) -> Result<(), Miss> {
    if prefix == "/" {
        return Ok(());
    }
    match path.strip_prefix(prefix) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/') => {
            plain_path::check(path).map_err(Miss::Unclear)
        }
        _ => Err(Miss::Elsewhere),
    }
}

#[cfg(test)]
#[path = "rules/tests.rs"]
mod tests;
