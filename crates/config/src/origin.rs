//! Parsers for the targets of `[egress]`: hosts with scheme, port and path, and networks. Like `scalar`, this module
//! knows no keys and no places.
//!
//! It refuses names that could be parsed as an address in another notation (`0x7f.1`, `2130706433`), so that only
//! what the file says is allowed.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    model::{AllowRule, Network, OriginHost, OriginPattern, Scheme},
    scalar::{self, Checked, wrong},
    texts,
};

/// An entry of `allow` as a text: `[METHOD[,METHOD] ][http://]HOST[:PORT][/PATH]`.
pub(crate) fn rule(text: &str) -> Checked<AllowRule> {
    let (methods, rest) = match text.trim().split_once(' ') {
        Some((methods, rest)) => (methods, rest),
        None => ("", text),
    };
    if rest.chars().any(|c| c.is_whitespace() || c.is_control()) || text.trim() != text {
        return wrong(
            format!("{text:?} has a space in the wrong place"),
            "write one space between methods and host: \"GET,POST api.example.com/v1/\"",
        );
    }
    let (origin, path) = split_path(rest);
    let origin = self::origin(origin, Scheme::Https)?;
    let path = match path {
        "" => "/".to_owned(),
        path => path_prefix(path)?,
    };
    let methods = match methods {
        "" => Vec::new(),
        list => self::methods(list)?,
    };
    Ok(AllowRule {
        addresses: implied(&origin.host),
        origin,
        path,
        methods,
        pools: Vec::new(),
    })
}

/// The `host` of an entry of `allow` that is a table, or an element of `hosts`: no methods and no path.
pub(crate) fn host(text: &str) -> Checked<OriginPattern> {
    only_host(text)?;
    origin(text, Scheme::Https)
}

/// An element of `upgrade`: an http origin, written without the scheme.
pub(crate) fn http_host(text: &str) -> Checked<OriginPattern> {
    if let Some((_, rest)) = text.split_once("://") {
        return wrong(
            format!("{text:?} has a scheme; `upgrade` takes hosts without one"),
            format!("write {rest:?}"),
        );
    }
    only_host(text)?;
    origin(text, Scheme::Http)
}

fn only_host(text: &str) -> Checked<()> {
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return wrong(
            format!("{text:?} has spaces"),
            "write only the host, without methods",
        );
    }
    match split_path(text) {
        (_, "") => Ok(()),
        (host, path) => wrong(
            format!("{text:?} has a path, {path:?}"),
            format!("write only the host: {host:?}"),
        ),
    }
}

/// The networks that a rule allows because of its host. A rule with an address allows that address, in any network.
/// `localhost` always means the loopback addresses (RFC 6761 §6.3).
pub(crate) fn implied(host: &OriginHost) -> Vec<Network> {
    match host {
        OriginHost::Ip(ip) => vec![alone(*ip)],
        OriginHost::Name(name) if name == "localhost" => vec![
            Network {
                address: Ipv4Addr::new(127, 0, 0, 0).into(),
                prefix: 8,
            },
            alone(Ipv6Addr::LOCALHOST.into()),
        ],
        OriginHost::Name(_) | OriginHost::Suffix(_) => Vec::new(),
    }
}

/// An element of `addresses`: `10.0.0.0/8`, `fd00::/8`, or one address.
pub(crate) fn network(text: &str) -> Checked<Network> {
    let (ip, prefix) = match text.split_once('/') {
        Some((ip, prefix)) => (ip, Some(prefix)),
        None => (text, None),
    };
    if let Some(inner) = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']'))
        && inner.parse::<Ipv6Addr>().is_ok()
    {
        let tail = prefix.map_or(String::new(), |prefix| format!("/{prefix}"));
        return wrong(
            format!("{text:?} has brackets, which are only for URLs"),
            format!("write \"{inner}{tail}\""),
        );
    }
    let Ok(ip) = ip.parse::<IpAddr>() else {
        // `10/8` omits the zero octets.
        let complete = [".0.0.0", ".0.0", ".0"]
            .map(|zeros| format!("{ip}{zeros}"))
            .into_iter()
            .find(|whole| whole.parse::<Ipv4Addr>().is_ok());
        let hint = match (odd_ipv4(ip), complete, prefix) {
            (_, Some(whole), Some(prefix)) => format!("write \"{whole}/{prefix}\""),
            (Some(usual), _, None) => format!("did you mean \"{usual}\"?"),
            _ => "for example \"10.0.0.0/8\", \"192.168.7.12\" or \"fd00::/8\"".to_owned(),
        };
        return wrong(format!("{text:?} is not a network"), hint);
    };
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let bits = match prefix {
        None => most,
        Some(prefix) => match digits(prefix).filter(|bits| *bits <= most) {
            Some(bits) => bits,
            None => {
                let hint = match prefix.parse::<Ipv4Addr>().map(Ipv4Addr::to_bits) {
                    Ok(mask) if mask.count_ones() == mask.leading_ones() => {
                        format!("write \"{ip}/{}\"", mask.leading_ones())
                    }
                    _ => format!("for example \"{ip}/{}\"", most / 2),
                };
                let message =
                    format!("{prefix:?} is not a prefix length: write a number from 0 to {most}");
                return wrong(message, hint);
            }
        },
    };
    let first = first_of(ip, bits);
    if first != ip {
        return wrong(
            format!("{ip} is not the first address of a network of {bits} bits"),
            format!("write \"{first}/{bits}\", or \"{ip}\" for this address alone"),
        );
    }
    // An IPv4-mapped IPv6 address means the IPv4 address (RFC 4291 §2.5.5.2).
    Ok(match (ip.to_canonical(), bits) {
        (IpAddr::V4(v4), bits) if ip.is_ipv6() && bits >= 96 => Network {
            address: v4.into(),
            prefix: (bits - 96) as u8,
        },
        (_, bits) => Network {
            address: ip,
            prefix: bits as u8,
        },
    })
}

/// Whether `wide` matches every origin that `narrow` matches.
pub(crate) fn covers(wide: &OriginPattern, narrow: &OriginPattern) -> bool {
    let port = wide.port.is_none() || wide.port == narrow.port;
    let host = match (&wide.host, &narrow.host) {
        (OriginHost::Suffix(wide), OriginHost::Suffix(narrow)) => narrow.ends_with(wide.as_str()),
        (wide, OriginHost::Name(name)) => wide.matches(name),
        (wide, narrow) => wide == narrow,
    };
    wide.scheme == narrow.scheme && port && host
}

/// Whether an origin can exist that both match.
pub(crate) fn meet(one: &OriginPattern, other: &OriginPattern) -> bool {
    let port = one.port.is_none() || other.port.is_none() || one.port == other.port;
    let same = |host: &OriginHost| OriginPattern {
        scheme: Scheme::Https,
        port: None,
        host: host.clone(),
    };
    let (one_host, other_host) = (same(&one.host), same(&other.host));
    let host = covers(&one_host, &other_host) || covers(&other_host, &one_host);
    one.scheme == other.scheme && port && host
}

fn alone(ip: IpAddr) -> Network {
    let prefix = if ip.is_ipv4() { 32 } else { 128 };
    Network {
        address: ip,
        prefix,
    }
}

fn first_of(ip: IpAddr, bits: u32) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

/// Splits before the first slash after the scheme.
fn split_path(text: &str) -> (&str, &str) {
    let after = text.find("://").map_or(0, |at| at + 3);
    match text[after..].find('/') {
        Some(slash) => text.split_at(after + slash),
        None => (text, ""),
    }
}

/// `[http://]HOST[:PORT]`
fn origin(text: &str, usual: Scheme) -> Checked<OriginPattern> {
    let (scheme, authority) = match text.split_once("://") {
        None => (usual, text),
        Some(("https", rest)) => (Scheme::Https, rest),
        Some(("http", rest)) => (Scheme::Http, rest),
        Some((other, rest)) => {
            let lower = other.to_ascii_lowercase();
            let hint = match lower.as_str() {
                "http" | "https" => format!("write \"{lower}://{rest}\""),
                _ => format!("write \"{rest}\" for https, or \"http://{rest}\" for http"),
            };
            return wrong(format!("{other:?} is not a known scheme"), hint);
        }
    };
    if let Some((_, host)) = authority.rsplit_once('@') {
        return wrong(
            "a host cannot have a user or password",
            format!(
                "write {host:?}, and the credentials in `set_headers` of an [egress.host.NAME]"
            ),
        );
    }
    for (mark, what) in [('?', "query"), ('#', "fragment")] {
        if let Some((before, _)) = authority.split_once(mark) {
            return wrong(
                format!("{text:?} has a {what}, which is not allowed in a rule"),
                format!("write {before:?}"),
            );
        }
    }
    let (host, port) = split_port(authority)?;
    let port = match port {
        None => Some(scheme.default_port()),
        Some("*") => None,
        Some(port) => match digits(port).filter(|port| (1..=65_535).contains(port)) {
            Some(port) => Some(port as u16),
            None => {
                return wrong(
                    format!("{port:?} is not a port"),
                    format!(
                        "a port is a number from 1 to 65535 or `*`, for example \"{host}:8443\""
                    ),
                );
            }
        },
    };
    Ok(OriginPattern {
        scheme,
        host: origin_host(host)?,
        port,
    })
}

fn split_port(authority: &str) -> Checked<(&str, Option<&str>)> {
    if authority.starts_with('[') {
        return match authority.find(']') {
            None => wrong(
                format!("{authority:?} has no `]`"),
                "for example \"[fd00::7]:8443\"",
            ),
            Some(end) => match authority.split_at(end + 1) {
                (host, "") => Ok((host, None)),
                (host, rest) => match rest.strip_prefix(':') {
                    Some(port) => Ok((host, Some(port))),
                    None => wrong(
                        format!("unexpected {rest:?} after the address"),
                        format!("for example \"{host}:8443\""),
                    ),
                },
            },
        };
    }
    if authority.parse::<Ipv6Addr>().is_ok() {
        // `fd00::7:8443` is an address, but its end may have been meant as a port.
        let hint = match authority.rsplit_once(':') {
            Some((ip, port)) if ip.parse::<Ipv6Addr>().is_ok() && digits(port).is_some() => {
                format!("write \"[{authority}]\", or \"[{ip}]:{port}\" if the end is a port")
            }
            _ => format!("write \"[{authority}]\""),
        };
        return wrong(format!("{authority:?} needs brackets"), hint);
    }
    match authority.rsplit_once(':') {
        None => Ok((authority, None)),
        Some((host, _)) if host.contains(':') => wrong(
            format!("{authority:?} is not a host"),
            "an IPv6 address is written in brackets: \"[fd00::7]:8443\"",
        ),
        Some((host, port)) => Ok((host, Some(port))),
    }
}

fn origin_host(text: &str) -> Checked<OriginHost> {
    match text {
        "" => {
            return wrong(
                "the host is missing",
                "for example \"api.example.com\" or \"http://legacy.internal:8080\"",
            );
        }
        "*" => {
            return wrong(
                "`*` alone would allow every host",
                "list the hosts, or all subdomains of a name: \"*.example.com\"",
            );
        }
        _ => {}
    }
    if !text.is_ascii() {
        return wrong(
            format!("{text:?} is not in ASCII"),
            "write the name as it is in DNS (xn--…)",
        );
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return match inner.parse::<Ipv6Addr>() {
            Ok(ip) => address(text, IpAddr::V6(ip).to_canonical()),
            Err(_) if inner.contains('%') => wrong(
                format!("{text:?} has an interface name, which is not allowed here"),
                "",
            ),
            Err(_) => wrong(
                format!("{text:?} is not an IPv6 address"),
                "for example \"[fd00::7]\"",
            ),
        };
    }
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return address(text, ip.into());
    }
    let lower = text.to_ascii_lowercase();
    let (wild, name) = match lower.strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, lower.as_str()),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.contains('*') {
        return wrong(
            format!("{text:?} has a `*` in the middle"),
            "`*` can only replace the first labels: \"*.example.com\"",
        );
    }
    if is_number(name.rsplit('.').next().unwrap_or_default()) {
        return match odd_ipv4(name) {
            Some(ip) if !wild => wrong(
                format!("{text:?} is an unusual spelling of an address"),
                format!("did you mean \"{ip}\"?"),
            ),
            _ => wrong(
                format!("{text:?} is neither a name nor an IP address"),
                "for example \"api.example.com\" or \"10.0.0.5\"",
            ),
        };
    }
    let ragged = |label: &str| label.starts_with('-') || label.ends_with('-');
    if !scalar::is_host_name(name) || name.split('.').any(ragged) {
        return wrong(
            format!("{text:?} is not a host name"),
            "for example \"api.example.com\" or \"*.example.com\"",
        );
    }
    Ok(match wild {
        true => OriginHost::Suffix(format!(".{name}")),
        false => OriginHost::Name(name.to_owned()),
    })
}

fn address(text: &str, ip: IpAddr) -> Checked<OriginHost> {
    match ip.is_unspecified() {
        true => wrong(
            format!("{text:?} is not an address that can be called"),
            "this machine is \"localhost\"",
        ),
        false => Ok(OriginHost::Ip(ip)),
    }
}

/// Whether old resolvers parse the label as a number of an IPv4 address (inet_aton(3), WHATWG URL "ends in a
/// number").
fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x") {
        Some(hex) => hex.bytes().all(|b| b.is_ascii_hexdigit()),
        None => !label.is_empty() && label.bytes().all(|b| b.is_ascii_digit()),
    }
}

/// The address that inet_aton(3) would parse: one to four numbers; the last one fills the remaining bytes.
fn odd_ipv4(text: &str) -> Option<Ipv4Addr> {
    let numbers: Vec<u64> = text
        .split('.')
        .map(|label| match (label, label.to_ascii_lowercase()) {
            ("", _) => None,
            (_, lower) if lower.starts_with("0x") => match &lower[2..] {
                "" => Some(0),
                hex => u64::from_str_radix(hex, 16).ok(),
            },
            (label, _) if label.len() > 1 && label.starts_with('0') => {
                u64::from_str_radix(label, 8).ok()
            }
            (label, _) => label.parse().ok(),
        })
        .collect::<Option<_>>()?;
    let (last, bytes) = numbers.split_last().filter(|(_, bytes)| bytes.len() < 4)?;
    let room = 1_u64 << (8 * (4 - bytes.len()));
    if *last >= room || bytes.iter().any(|byte| *byte > 255) {
        return None;
    }
    let mut bits = *last;
    for (index, byte) in bytes.iter().enumerate() {
        bits |= byte << (8 * (3 - index));
    }
    u32::try_from(bits).ok().map(Ipv4Addr::from_bits)
}

fn digits(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

fn methods(list: &str) -> Checked<Vec<String>> {
    let mut methods: Vec<String> = Vec::new();
    for method in list.split(',') {
        if method == "*" {
            return wrong(
                "`*` is not a method",
                "remove it: without methods, all are allowed",
            );
        }
        let method = texts::method(method)?;
        if methods.contains(&method) {
            return wrong(format!("{method} is in the list twice"), "");
        }
        methods.push(method);
    }
    Ok(methods)
}

/// The path prefix of a rule. Calls are compared after `.` and `..` are removed, so a prefix that contains them would
/// match nothing.
pub(crate) fn path_prefix(text: &str) -> Checked<String> {
    for (mark, what) in [('?', "query"), ('#', "fragment")] {
        if let Some((path, _)) = text.split_once(mark) {
            return wrong(
                format!("{text:?} has a {what}, which is not allowed in a rule"),
                format!("write {path:?}"),
            );
        }
    }
    if let Some(prefix) = text.strip_suffix('*') {
        return wrong(
            format!("{text:?} has a `*`, which is not needed: a path includes everything below it"),
            format!("write {prefix:?}"),
        );
    }
    let hex = |at: usize| {
        let digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_hexdigit);
        digit(at + 1) && digit(at + 2)
    };
    let fits = |(at, byte): (usize, u8)| match byte {
        b'%' => hex(at),
        b'\\' | b'*' => false,
        byte => byte.is_ascii_graphic(),
    };
    let segments = || text.split('/');
    let (_, inner) = text.split_at(text.len().min(1));
    match text {
        text if !text.starts_with('/') => wrong(
            format!("{text:?} is not a path"),
            format!(
                "it must begin with a slash: {}",
                texts::quote(&format!("/{text}"))
            ),
        ),
        text if !text.bytes().enumerate().all(fits) => wrong(
            format!("{text:?} is not a URL path"),
            "write it as in a URL: \"/v1/\", with %20 for a space",
        ),
        text if segments().any(|part| matches!(part, "." | "..")) => wrong(
            format!("{text:?} has `.` or `..` parts"),
            "write the resulting path",
        ),
        text if inner.contains("//") || inner.starts_with('/') => wrong(
            format!("{text:?} has an empty part"),
            "write a single slash",
        ),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> AllowRule {
        rule(text).unwrap_or_else(|wrong| panic!("{text}: {}", wrong.message))
    }

    #[test]
    fn rules_are_written_as_they_are_read() {
        for (text, shown) in [
            ("api.example.com", "api.example.com"),
            ("https://API.example.com:443/", "api.example.com"),
            ("http://api.example.com.:80", "http://api.example.com"),
            ("api.example.com:80", "api.example.com:80"),
            ("http://api.example.com:443", "http://api.example.com:443"),
            ("*.Example.com:*", "*.example.com:*"),
            ("GET,POST x.example/v1", "GET,POST x.example/v1"),
            ("_http.my_service", "_http.my_service"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("10.0.0.5", "10.0.0.5"),
            ("[::FFFF:10.0.0.5]:1", "10.0.0.5:1"),
            ("[FD00:0:0::7]", "[fd00::7]"),
            ("x.example/a%20b/~c", "x.example/a%20b/~c"),
            ("4.example", "4.example"),
        ] {
            assert_eq!(read(text).to_string(), shown, "{text}");
            assert_eq!(read(shown), read(text));
        }
    }

    #[test]
    fn an_address_that_is_named_is_among_its_networks() {
        let networks = |text: &str| {
            let networks = read(text).addresses;
            let shown = networks.iter().map(ToString::to_string);
            shown.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(networks("http://10.0.0.5"), "10.0.0.5");
        assert_eq!(networks("[::ffff:127.0.0.1]"), "127.0.0.1");
        assert_eq!(networks("[::1]:8443"), "::1");
        assert_eq!(networks("LOCALHOST:8443"), "127.0.0.0/8 ::1");
        assert_eq!(networks("*.localhost"), "");
        assert_eq!(networks("api.example.com"), "");
    }

    #[test]
    fn addresses_in_other_spellings_are_refused_with_the_usual_one() {
        for (text, usual) in [
            ("2130706433", "127.0.0.1"),
            ("0x7f.1", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("017700000001", "127.0.0.1"),
            ("0177.0.0.01", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("127.0.1", "127.0.0.1"),
            ("10.0.0.0x5", "10.0.0.5"),
            ("169.254.43518", "169.254.169.254"),
            ("127.0.0.1.", "127.0.0.1"),
            ("0x", "0.0.0.0"),
        ] {
            let wrong = rule(text).unwrap_err();
            let hint = wrong.hint.unwrap_or_default();
            assert!(hint.contains(&format!("{usual:?}")), "{text}: {hint}");
        }
        for text in [
            "256.0.0.1",
            "1.2.3.4.5",
            "4294967296",
            "1.2.3.08",
            "a.0x1",
            "127.0.0.1..",
        ] {
            let wrong = rule(text).unwrap_err();
            assert!(
                wrong.message.contains("neither") || wrong.message.contains("not a host name"),
                "{}",
                wrong.message
            );
        }
    }

    #[test]
    fn networks_in_their_usual_form() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3"),
            ("10.1.2.3/32", "10.1.2.3"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("FD00::/8", "fd00::/8"),
            ("::1", "::1"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("::/0", "::/0"),
        ] {
            let network = network(text).unwrap_or_else(|wrong| panic!("{text}: {}", wrong.message));
            assert_eq!(network.to_string(), shown);
        }
    }

    #[test]
    fn wider_patterns_cover_narrower_ones() {
        let covers = |wide: &str, narrow: &str| covers(&read(wide).origin, &read(narrow).origin);
        for (wide, narrow) in [
            ("a.example", "a.example"),
            ("*.example", "a.example"),
            ("*.example", "*.a.example"),
            ("a.example:*", "a.example:8443"),
            ("[fd00::7]", "[fd00::7]"),
        ] {
            assert!(covers(wide, narrow), "{wide} {narrow}");
            assert!(meet(&read(narrow).origin, &read(wide).origin));
        }
        for (wide, narrow) in [
            ("a.example", "http://a.example:443"),
            ("a.example", "a.example:8443"),
            ("a.example", "*.example"),
            ("*.example", "example"),
            ("*.a.example", "*.example"),
            ("a.example:8443", "a.example:*"),
        ] {
            assert!(!covers(wide, narrow), "{wide} {narrow}");
        }
        assert!(!meet(
            &read("a.example").origin,
            &read("http://a.example").origin
        ));
    }
}
