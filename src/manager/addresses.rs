//! Addresses of servers' names, as gateways have found them: kept for the gateways to come, which use them until they can look
//! the names up themselves. So DNS that is away for a while takes no server away at a reload or where a gateway is replaced.
//!
//! Only names of the configuration at hand are kept, so that no gateway can have more of them kept than it has.

use std::{cell::RefCell, collections::BTreeMap, net::IpAddr};

use weir_config::{Config, Runtime, Upstream};

use crate::control::{MOST_ADDRESSES, ToGateway};

/// What is known, of all generations.
#[derive(Debug, Default)]
pub(super) struct Addresses(RefCell<BTreeMap<String, Vec<IpAddr>>>);

impl Addresses {
    /// A gateway of this configuration has found them.
    pub(super) fn found(&self, config: &Config, name: String, mut addresses: Vec<IpAddr>) {
        if names(config).any(|known| known == name) && !addresses.is_empty() {
            addresses.truncate(MOST_ADDRESSES);
            self.0.borrow_mut().insert(name, addresses);
        }
    }

    /// What a new gateway of this configuration is told.
    pub(super) fn messages(&self, config: &Config) -> Vec<ToGateway> {
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

    /// Forgets names that this configuration, which serves from now on, has not.
    pub(super) fn keep_only(&self, config: &Config) {
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
