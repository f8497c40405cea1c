//! The addresses of servers' names that gateways have found. They are kept for later gateways, which use them until
//! they can look the names up themselves. So an outage of DNS does not take servers down at a reload or when a
//! gateway is replaced.
//!
//! Only names of the current configuration are kept, so a gateway cannot make the manager store unlimited names.

use std::{cell::RefCell, collections::BTreeMap, net::IpAddr};

use weir_config::{Config, Runtime, Upstream};
use weir_control::{MOST_ADDRESSES, ToGateway};

/// The known addresses, for all generations.
#[derive(Debug, Default)]
pub(crate) struct Addresses(RefCell<BTreeMap<String, Vec<IpAddr>>>);

impl Addresses {
    /// A gateway with this configuration has found these addresses.
    pub(crate) fn found(&self, config: &Config, name: String, mut addresses: Vec<IpAddr>) {
        if names(config).any(|known| known == name) && !addresses.is_empty() {
            addresses.truncate(MOST_ADDRESSES);
            self.0.borrow_mut().insert(name, addresses);
        }
    }

    /// The messages for a new gateway with this configuration.
    pub(crate) fn messages(&self, config: &Config) -> Vec<ToGateway> {
        let known = self.0.borrow();
        let mut names: Vec<&str> = names(config).collect();
        names.sort_unstable();
        names.dedup();
        let message = |name: &str| {
            Some(ToGateway::Addresses {
                name: name.to_owned(),
                addresses: known.get(name)?.clone(),
            })
        };
        names.into_iter().filter_map(message).collect()
    }

    /// All of them, for another weir.
    pub(crate) fn all(&self) -> BTreeMap<String, Vec<IpAddr>> {
        self.0.borrow().clone()
    }

    /// Takes over the addresses of the previous weir.
    pub(crate) fn take_over(&self, addresses: BTreeMap<String, Vec<IpAddr>>) {
        *self.0.borrow_mut() = addresses;
    }

    /// Forgets names that are not in this configuration, which serves from now on.
    pub(crate) fn keep_only(&self, config: &Config) {
        let names: Vec<&str> = names(config).collect();
        self.0
            .borrow_mut()
            .retain(|name, _| names.contains(&name.as_str()));
    }
}

fn names(config: &Config) -> impl Iterator<Item = &str> {
    config.pools.iter().flat_map(|pool| {
        let servers = match &pool.runtime {
            Runtime::Servers(servers) => servers.list.as_slice(),
            Runtime::Php(_) | Runtime::Command(_) => &[],
        };
        servers.iter().filter_map(|server| match &server.address {
            Upstream::Named { host, .. } => Some(host.as_str()),
            Upstream::At(_) => None,
        })
    })
}
