//! Which names and addresses no public authority signs, so that weir's local authority does.

use std::net::IpAddr;

use crate::origin;

/// Domains of names that no public authority signs: reserved ones (RFC 6761, 6762, 8375, ICANN's `internal`) and those that
/// local networks use.
pub const LOCAL_DOMAINS: &[&str] = &[
    "localhost",
    "test",
    "local",
    "internal",
    "home.arpa",
    "lan",
    "home",
    "corp",
    "intranet",
    "private",
];

/// Networks of addresses that no public authority signs: loopback, private, link-local and shared ones.
pub const LOCAL_NETWORKS: &[&str] = &[
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "100.64.0.0/10",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
];

/// Whether a name (in lower case; the first label may be a star) or an address is one that only the local authority signs.
pub fn is_local_name(name: &str) -> bool {
    if let Ok(address) = name.parse::<IpAddr>() {
        let networks = LOCAL_NETWORKS
            .iter()
            .filter_map(|network| origin::network(network).ok());
        return networks
            .into_iter()
            .any(|network| network.contains(address));
    }
    LOCAL_DOMAINS.iter().any(|domain| {
        let below = name.strip_suffix(domain);
        match below {
            Some("") => *domain == "localhost",
            Some(below) => below.ends_with('.'),
            None => false,
        }
    })
}

/// Whether a public authority may sign for a name (in lower case): a host name with a dot, without a star, and no address. This
/// is also what makes a name fit to be a part of a path and of a URL.
pub fn is_public_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(fits)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let Some((_, last)) = name.rsplit_once('.') else {
        return false;
    };
    name.len() <= 253
        && name.split('.').all(is_label)
        && last.bytes().any(|byte| byte.is_ascii_lowercase())
        && !RESERVED.contains(&last)
        && !is_local_name(name)
}

/// Domains of the highest level that are never in the public DNS (RFC 6761, RFC 7686, RFC 9476), besides [`LOCAL_DOMAINS`].
/// `example` is left to tests and documentation.
const RESERVED: &[&str] = &["invalid", "onion", "alt", "arpa"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_names_can_be_signed_by_public_authorities() {
        let long = format!("{}.example", "a".repeat(64));
        let longer = format!("{}example", "a.".repeat(130));
        for name in [
            "shop.example",
            "a.b-c.example",
            "xn--bcher-kva.example",
            "1.example",
        ] {
            assert!(is_public_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "shop",
            "shop.",
            ".example",
            "a..example",
            "*.shop.example",
            "-a.example",
            "a-.example",
            "a_b.example",
            "Shop.example",
            "shop.test",
            "shop.localhost",
            "192.0.2.1",
            "1.2.3",
            "2001:db8::1",
            "[::1]",
            "../../etc/passwd.example",
            "a.example/b",
            "a b.example",
            "a%2e.example",
            "1.2.0.192.in-addr.arpa",
            "x.onion",
            &long,
            &longer,
        ] {
            assert!(!is_public_name(name), "{name}");
        }
    }

    #[test]
    fn names_that_no_public_authority_signs_are_local() {
        for local in [
            "localhost",
            "shop.localhost",
            "shop.test",
            "*.shop.test",
            "printer.local",
            "nas.home.arpa",
            "127.0.0.1",
            "127.8.9.10",
            "10.1.2.3",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "::1",
            "fd12::1",
            "fe80::1",
        ] {
            assert!(is_local_name(local), "{local}");
        }
        for public in [
            "shop.example",
            "example.com",
            "test.example",
            "mytest",
            "contest",
            "test",
            "local",
            "notlocalhost",
            "*.localhost.example",
            "172.32.0.1",
            "192.0.2.1",
            "2001:db8::1",
        ] {
            assert!(!is_local_name(public), "{public}");
        }
    }

    #[test]
    fn every_network_is_one() {
        let read = LOCAL_NETWORKS
            .iter()
            .filter(|network| origin::network(network).is_ok());
        assert_eq!(read.count(), LOCAL_NETWORKS.len());
    }
}
