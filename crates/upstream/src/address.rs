//! Decides which addresses are not public. They may be called only if a rule names them.
//!
//! An allowed name may resolve to any address, because its DNS server decides that. So the address is checked after the
//! lookup, right before connecting, and not the name alone. Refused are addresses that IANA's registries of
//! special-purpose addresses (IPv4 and IPv6, RFC 6890) do not list as globally reachable, and all IPv6 addresses
//! outside of `2000::/3`, the range of internet addresses. A few single addresses inside of protocol blocks (PCP, TURN,
//! AS112, ORCHID) are global in the registry, too. They serve no HTTP, so their blocks are refused completely.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_config::Network;

/// Whether weir may connect to an address: it is public, or in one of `networks`, which the rule
/// allows.
///
/// An IPv4-mapped IPv6 address (`::ffff:0:0/96`) counts as its IPv4 address. So does an address that a NAT64 or 6to4
/// relay translates to IPv4 (`64:ff9b::/96`, `2002::/16`), because the packets arrive there.
///
/// # Errors
/// The kind of address, for a message: "a private address".
pub fn permitted(ip: IpAddr, networks: &[Network]) -> Result<(), &'static str> {
    let is_named = |ip: IpAddr| networks.iter().any(|network| network.contains(ip));
    if is_named(ip) {
        return Ok(());
    }
    match ip.to_canonical() {
        IpAddr::V4(ip) => public_v4(ip),
        IpAddr::V6(ip) => match embedded(ip) {
            Some(inner) if is_named(IpAddr::V4(inner)) => Ok(()),
            Some(inner) => public_v4(inner),
            None => public_v6(ip),
        },
    }
}

/// The IPv4 address at which packets to this address arrive.
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = ip.to_bits();
    match ip.segments() {
        // NAT64 (RFC 6052 §2.1)
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(Ipv4Addr::from_bits(bits as u32)),
        // 6to4 (RFC 3056 §2)
        [0x2002, ..] => Some(Ipv4Addr::from_bits((bits >> 80) as u32)),
        _ => None,
    }
}

fn public_v4(ip: Ipv4Addr) -> Result<(), &'static str> {
    match ip.octets() {
        [0, ..] => Err("an address of this host (0.0.0.0/8)"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Err("a private address"),
        [100, 64..=127, ..] => Err("a private address of a provider (100.64.0.0/10)"),
        [127, ..] => Err("a loopback address"),
        [169, 254, ..] => Err("a link-local address, which cloud metadata services use"),
        [192, 0, 0, _] => Err("an address that is reserved for protocols"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => {
            Err("an address for documentation")
        }
        [192, 88, 99, _] => Err("an address of a 6to4 relay"),
        [198, 18..=19, ..] => Err("an address for benchmarks"),
        // Public in the registry, but on Azure's machines it has the role of 169.254.169.254.
        [168, 63, 129, 16] => {
            Err("an address of the cloud platform, which its metadata service uses")
        }
        [224..=239, ..] => Err("a multicast address"),
        [255, 255, 255, 255] => Err("a broadcast address"),
        [240..=255, ..] => Err("a reserved address"),
        _ => Ok(()),
    }
}

fn public_v6(ip: Ipv6Addr) -> Result<(), &'static str> {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Err("the unspecified address"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Err("a loopback address"),
        // IPv4-compatible (RFC 4291 §2.5.5.1): deprecated, and never routed.
        [0, 0, 0, 0, 0, 0, ..] => {
            public_v4(Ipv4Addr::from_bits(ip.to_bits() as u32))?;
            Err("an IPv4-compatible address")
        }
        [0x64, 0xff9b, 1, ..] => Err("an address of a local NAT64"),
        [0x100, 0, 0, 0..=1, ..] => Err("an address that discards all packets"),
        [0x2001, 0..=0x1ff, ..] => {
            Err("an address that is reserved for protocols (Teredo and others)")
        }
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Err("an address for documentation"),
        [0x5f00, ..] => Err("a segment routing address"),
        [0xfc00..=0xfdff, ..] => Err("a private address"),
        [0xfe80..=0xfebf, ..] => Err("a link-local address"),
        [0xfec0..=0xfeff, ..] => Err("a private address"),
        [0xff00..=0xffff, ..] => Err("a multicast address"),
        [0x2000..=0x3fff, ..] => Ok(()),
        _ => Err("an address that is not public"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// First and last address of each refused range; `open`: the neighbours are public.
    const REFUSED: &[(&str, &str, Neighbours)] = &[
        ("0.0.0.0", "0.255.255.255", Neighbours::After),
        ("10.0.0.0", "10.255.255.255", Neighbours::Both),
        ("100.64.0.0", "100.127.255.255", Neighbours::Both),
        ("127.0.0.0", "127.255.255.255", Neighbours::Both),
        ("168.63.129.16", "168.63.129.16", Neighbours::Both),
        ("169.254.0.0", "169.254.255.255", Neighbours::Both),
        ("172.16.0.0", "172.31.255.255", Neighbours::Both),
        ("192.0.0.0", "192.0.0.255", Neighbours::Both),
        ("192.0.2.0", "192.0.2.255", Neighbours::Both),
        ("192.88.99.0", "192.88.99.255", Neighbours::Both),
        ("192.168.0.0", "192.168.255.255", Neighbours::Both),
        ("198.18.0.0", "198.19.255.255", Neighbours::Both),
        ("198.51.100.0", "198.51.100.255", Neighbours::Both),
        ("203.0.113.0", "203.0.113.255", Neighbours::Both),
        ("224.0.0.0", "255.255.255.255", Neighbours::Before),
        (
            "::",
            "64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff",
            Neighbours::None,
        ),
        (
            "64:ff9b:0:0:0:1::",
            "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            Neighbours::After,
        ),
        (
            "2001::",
            "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
            Neighbours::Both,
        ),
        (
            "2001:db8::",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
            Neighbours::Both,
        ),
        (
            "3fff::",
            "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
            Neighbours::Both,
        ),
        (
            "4000::",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            Neighbours::Before,
        ),
    ];

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Neighbours {
        None,
        Before,
        After,
        Both,
    }

    fn ip(text: &str) -> IpAddr {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn step(ip: IpAddr, by: i8) -> IpAddr {
        match ip {
            IpAddr::V4(ip) => {
                Ipv4Addr::from_bits(ip.to_bits().wrapping_add_signed(by.into())).into()
            }
            IpAddr::V6(ip) => {
                Ipv6Addr::from_bits(ip.to_bits().wrapping_add_signed(by.into())).into()
            }
        }
    }

    #[test]
    fn refused_to_the_last_address_and_no_further() {
        for &(first, last, neighbours) in REFUSED {
            let (first, last) = (ip(first), ip(last));
            for ip in [first, step(first, 1), step(last, -1), last] {
                if (first..=last).contains(&ip) {
                    assert!(permitted(ip, &[]).is_err(), "{ip}");
                }
            }
            if matches!(neighbours, Neighbours::Before | Neighbours::Both) {
                assert_eq!(permitted(step(first, -1), &[]), Ok(()), "before {first}");
            }
            if matches!(neighbours, Neighbours::After | Neighbours::Both) {
                assert_eq!(permitted(step(last, 1), &[]), Ok(()), "after {last}");
            }
        }
    }

    #[test]
    fn said_in_words() {
        for (address, word) in [
            ("10.1.2.3", "a private address"),
            ("172.31.0.1", "a private address"),
            ("127.0.0.1", "a loopback address"),
            (
                "169.254.169.254",
                "a link-local address, which cloud metadata services use",
            ),
            (
                "100.100.100.200",
                "a private address of a provider (100.64.0.0/10)",
            ),
            ("255.255.255.255", "a broadcast address"),
            ("239.1.1.1", "a multicast address"),
            ("::ffff:127.0.0.1", "a loopback address"),
            ("::127.0.0.1", "a loopback address"),
            ("::8.8.8.8", "an IPv4-compatible address"),
            ("::ffff:0:8.8.8.8", "an address that is not public"),
            ("64:ff9b::10.0.0.1", "a private address"),
            ("64:ff9b:1::8.8.8.8", "an address of a local NAT64"),
            ("2002:7f00:1::1", "a loopback address"),
            (
                "2002:a9fe:a9fe::1",
                "a link-local address, which cloud metadata services use",
            ),
            ("::", "the unspecified address"),
            ("::1", "a loopback address"),
            ("100::1", "an address that discards all packets"),
            ("100:0:0:1::1", "an address that discards all packets"),
            (
                "2001:0:1234::1",
                "an address that is reserved for protocols (Teredo and others)",
            ),
            ("5f00::1", "a segment routing address"),
            ("fd00:ec2::254", "a private address"),
            ("fe80::1", "a link-local address"),
            ("fec0::1", "a private address"),
            ("ff02::1", "a multicast address"),
        ] {
            assert_eq!(permitted(ip(address), &[]), Err(word), "{address}");
        }
        for address in [
            "1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
            "2606:4700::1111",
            "::ffff:9.9.9.9",
        ] {
            assert_eq!(permitted(ip(address), &[]), Ok(()), "{address}");
        }
    }

    #[test]
    fn what_a_rule_names_may_be_called_and_nothing_beside_it() {
        let network = |text: &str, prefix| Network {
            address: ip(text),
            prefix,
        };
        let networks = [network("10.1.0.0", 16), network("fd00:1::", 32)];
        for address in [
            "10.1.2.3",
            "::ffff:10.1.2.3",
            "64:ff9b::10.1.2.3",
            "fd00:1::5",
            "1.1.1.1",
        ] {
            assert_eq!(permitted(ip(address), &networks), Ok(()), "{address}");
        }
        for address in ["10.2.0.1", "::10.1.2.3", "fd00:2::5", "127.0.0.1", "::1"] {
            assert!(permitted(ip(address), &networks).is_err(), "{address}");
        }
    }

    proptest! {
        #[test]
        fn an_address_and_its_other_forms_are_judged_alike(
            bits: u32, prefix in 0_u8..=32, network: u32, named: bool,
        ) {
            let v4 = Ipv4Addr::from_bits(bits);
            let address = IpAddr::V4(Ipv4Addr::from_bits(if named { bits } else { network }));
            let networks = [Network { address, prefix }];
            let judged = permitted(v4.into(), &networks);
            let [a, b, c, d] = v4.octets().map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            for other in [
                v4.to_ipv6_mapped(),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ] {
                prop_assert_eq!(permitted(other.into(), &networks), judged, "{}", other);
            }
            prop_assert!(!named || judged.is_ok());
        }

        #[test]
        fn nothing_outside_of_the_internet_is_public(bits: u128) {
            let ip = Ipv6Addr::from_bits(bits);
            let is_given_out = ip.segments()[0] & 0xe000 == 0x2000;
            let is_nat64 = bits >> 32 == 0x0064_ff9b << 64;
            let is_mapped = ip.to_ipv4_mapped().is_some();
            prop_assert!(permitted(ip.into(), &[]).is_err() || is_given_out || is_nat64 || is_mapped);
        }
    }
}
