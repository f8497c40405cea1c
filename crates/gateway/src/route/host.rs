//! Finds the site for a host name: one table per listener.

use std::collections::HashMap;

use weir_config::HostPattern;

use super::{Refusal, hashing::Seeded};

/// The sites of one listener by host. A site is an index into the configuration's sites.
#[derive(Debug, Default)]
pub(super) struct HostTable {
    exact: HashMap<Box<[u8]>, usize, Seeded>,
    /// `.shop.example`, with its leading dot.
    suffixes: HashMap<Box<[u8]>, usize, Seeded>,
    /// `shop.`, with its last dot.
    prefixes: HashMap<Box<[u8]>, usize, Seeded>,
    /// The site without a host.
    default: Option<usize>,
    /// The first site of the listener, in the order of the file.
    first: Option<usize>,
}

impl HostTable {
    /// Adds a site; if two sites have the same host, the first one gets it.
    pub(super) fn add(&mut self, site: usize, hosts: &[HostPattern]) {
        self.first.get_or_insert(site);
        if hosts.is_empty() {
            self.default.get_or_insert(site);
        }
        for host in hosts {
            let (table, name) = match host {
                HostPattern::Exact(name) => (&mut self.exact, name),
                HostPattern::Suffix(name) => (&mut self.suffixes, name),
                HostPattern::Prefix(name) => (&mut self.prefixes, name),
            };
            let name = name.to_ascii_lowercase().into_bytes();
            table.entry(name.into()).or_insert(site);
        }
    }

    /// The exact name, else the longest `*.name`, else the longest `name.*`, else the default site.
    ///
    /// A client that sends no host (HTTP/1.0, a health check) gets the default site, or the listener's first site if
    /// there is no default site.
    ///
    /// # Errors
    /// [`Refusal::UnknownHost`] if no site has the host and the listener has no default site. Otherwise the first
    /// site would answer for foreign names, and use them in its links and caches.
    pub(super) fn find(&self, host: &[u8]) -> Result<usize, Refusal> {
        if host.is_empty() {
            return self.default.or(self.first).ok_or(Refusal::UnknownHost);
        }
        self.by_name(host)
            .or(self.default)
            .ok_or(Refusal::UnknownHost)
    }

    /// The site without a host.
    pub(super) fn default_site(&self) -> Option<usize> {
        self.default
    }

    fn by_name(&self, host: &[u8]) -> Option<usize> {
        if let Some(site) = lookup(&self.exact, host) {
            return Some(site);
        }
        let suffix = |dot| lookup(&self.suffixes, &host[dot..]);
        let prefix = |dot| lookup(&self.prefixes, &host[..=dot]);
        // A star stands for at least one character.
        let inner = 1..host.len().max(2) - 1;
        let mut found = None;
        if !self.suffixes.is_empty() {
            found = memchr::memchr_iter(b'.', host)
                .filter(|&dot| dot > 0)
                .find_map(suffix);
        }
        if found.is_none() && !self.prefixes.is_empty() {
            found = memchr::memrchr_iter(b'.', host)
                .filter(|dot| inner.contains(dot))
                .find_map(prefix);
        }
        found
    }
}

fn lookup(table: &HashMap<Box<[u8]>, usize, Seeded>, name: &[u8]) -> Option<usize> {
    if table.is_empty() {
        return None;
    }
    table.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table() -> HostTable {
        let mut table = HostTable::default();
        let exact = |s: &str| HostPattern::Exact(s.into());
        let suffix = |s: &str| HostPattern::Suffix(s.into());
        let prefix = |s: &str| HostPattern::Prefix(s.into());
        table.add(0, &[exact("shop.example"), suffix(".shop.example")]);
        table.add(1, &[suffix(".api.shop.example"), prefix("shop.")]);
        table.add(2, &[prefix("shop.de."), exact("shop.example")]);
        table
    }

    #[test]
    fn exact_then_longest_suffix_then_longest_prefix_then_default() {
        let mut table = table();
        for (host, site) in [
            ("shop.example", Ok(0)),
            ("www.shop.example", Ok(0)),
            ("a.b.shop.example", Ok(0)),
            ("v1.api.shop.example", Ok(1)),
            ("api.shop.example", Ok(0)),
            ("shop.org", Ok(1)),
            ("shop.de.org", Ok(2)),
            ("shop.", Err(Refusal::UnknownHost)),
            (".shop.example", Err(Refusal::UnknownHost)),
            ("other.example", Err(Refusal::UnknownHost)),
            (".", Err(Refusal::UnknownHost)),
            ("", Ok(0)),
        ] {
            assert_eq!(table.find(host.as_bytes()), site, "{host}");
        }
        table.add(3, &[]);
        table.add(4, &[]);
        assert_eq!(table.find(b"other.example"), Ok(3));
        assert_eq!(table.find(b""), Ok(3));
        assert_eq!(table.find(b"shop.example"), Ok(0));
    }

    proptest! {
        #[test]
        fn any_host_is_looked_up(host in proptest::collection::vec(any::<u8>(), 0..30)) {
            let _ = table().find(&host);
        }
    }
}
