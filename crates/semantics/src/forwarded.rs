//! `X-Forwarded-For` and its relatives, and `Forwarded` (RFC 7239): the client's address, as proxies in front report
//! it.
//!
//! Each proxy appends the address that connected to it. Only values that a trusted proxy has appended are true, so the
//! values are read from the right: as long as an address belongs to a trusted proxy, the value before it counts,
//! because that proxy has appended it. nginx does the same with `real_ip_recursive on`.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::authority;

/// What proxies in front say of a request. `None`: they do not say it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Client {
    /// The client's address; an IPv4-mapped IPv6 address as IPv4.
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: Option<u16>,
    /// Whether the client used https.
    pub is_https: Option<bool>,
    /// The host that the client asked for, with its port if it had one. It is valid ([`authority::host_name`]).
    pub host: Option<Vec<u8>>,
}

/// The values of the fields `X-Forwarded-…`, in their order.
#[derive(Debug, Clone, Default)]
pub struct XForwarded<'v> {
    /// `X-Forwarded-For`
    pub addresses: Vec<&'v [u8]>,
    /// `X-Forwarded-Proto`
    pub protos: Vec<&'v [u8]>,
    /// `X-Forwarded-Host`
    pub hosts: Vec<&'v [u8]>,
}

impl XForwarded<'_> {
    /// The client of a request from a trusted proxy.
    pub fn client(&self, is_trusted: impl Fn(IpAddr) -> bool) -> Client {
        let mut client = Client::default();
        let mut proxies = 0;
        let texts = self.addresses.iter().rev();
        let texts =
            texts.flat_map(|value| value.rsplit(|byte| matches!(byte, b',' | b' ' | b'\t')));
        for text in texts.filter(|text| !text.is_empty()).take(MAX_PROXIES) {
            let Some((address, port)) = node(text) else {
                break;
            };
            (client.address, client.port) = (Some(address), port);
            if !is_trusted(address) {
                break;
            }
            proxies += 1;
        }
        // If each proxy has appended its own value, the client's value is at the same place as the client's address.
        client.is_https = from_right(&self.protos, proxies).and_then(is_https);
        let host = from_right(&self.hosts, proxies);
        client.host = host.filter(|host| is_host(host)).map(<[u8]>::to_vec);
        client
    }
}

/// The client of a request from a trusted proxy, from the values of `Forwarded`, in their order. What is not valid, and
/// everything before it, is ignored.
pub fn client(values: &[&[u8]], is_trusted: impl Fn(IpAddr) -> bool) -> Client {
    let mut client = Client::default();
    let mut proxies = 0;
    for value in values.iter().rev() {
        let mut rest = *value;
        while !rest.trim_ascii().is_empty() {
            if proxies == MAX_PROXIES {
                return client;
            }
            let Some((element, before)) = last_element(rest) else {
                return client;
            };
            rest = before;
            let Some(element) = element else {
                continue;
            };
            proxies += 1;
            client.is_https = element.is_https.or(client.is_https);
            client.host = element.host.or(client.host);
            let Some((address, port)) = element.node else {
                return client;
            };
            (client.address, client.port) = (Some(address), port);
            if !is_trusted(address) {
                return client;
            }
        }
    }
    client
}

/// The element of a comma-separated list with so many behind it, or the first if there are fewer.
fn from_right<'v>(values: &[&'v [u8]], behind: usize) -> Option<&'v [u8]> {
    let elements = values.iter().rev();
    let elements = elements.flat_map(|value| value.rsplit(|byte| *byte == b','));
    let elements = elements.map(<[u8]>::trim_ascii);
    elements
        .filter(|text| !text.is_empty())
        .take(behind + 1)
        .last()
}

fn is_https(proto: &[u8]) -> Option<bool> {
    let is = |names: [&str; 2]| {
        names
            .iter()
            .any(|name| proto.eq_ignore_ascii_case(name.as_bytes()))
    };
    match (is(["https", "wss"]), is(["http", "ws"])) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

fn is_host(host: &[u8]) -> bool {
    host.len() <= MAX_HOST && authority::host_name(host).is_ok()
}

/// An address, with a port or without (RFC 7239 §6). `None`: it is unknown, hidden or wrong.
fn node(text: &[u8]) -> Option<(IpAddr, Option<u16>)> {
    let text = std::str::from_utf8(text).ok()?;
    let port = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|port| is_number && *port > 0)
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        let port = match rest.strip_prefix(':') {
            Some(digits) => Some(port(digits)?),
            None if rest.is_empty() => None,
            None => return None,
        };
        return Some((IpAddr::V6(address).to_canonical(), port));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some((address.to_canonical(), None));
    }
    let (address, digits) = text.split_once(':')?;
    let address: Ipv4Addr = address.parse().ok()?;
    Some((address.into(), Some(port(digits)?)))
}

/// What one proxy has appended to `Forwarded`.
#[derive(Default)]
struct Element {
    node: Option<(IpAddr, Option<u16>)>,
    is_https: Option<bool>,
    host: Option<Vec<u8>>,
}

/// The last element of a list, and what is before its comma; `None` as the element: it is empty. Read from the right, so
/// that a quotation mark that a client has sent cannot hide what a proxy has appended.
fn last_element(list: &[u8]) -> Option<(Option<Element>, &[u8])> {
    let mut end = list.len();
    for _ in 0..MAX_COMMAS {
        let comma = list[..end].iter().rposition(|byte| *byte == b',');
        let text = list[comma.map_or(0, |comma| comma + 1)..].trim_ascii();
        let before = &list[..comma.unwrap_or(0)];
        if text.is_empty() {
            return Some((None, before));
        }
        if let Some(element) = element(text) {
            return Some((Some(element), before));
        }
        // The comma may be in a quoted string.
        end = comma?;
    }
    None
}

/// `for=192.0.2.1;proto=https;host="shop.example:8443"`; `None`: it is not valid.
fn element(mut text: &[u8]) -> Option<Element> {
    let mut element = Element::default();
    let mut seen = [false; 3];
    loop {
        let (name, rest) = text.split_at(text.iter().position(|byte| *byte == b'=')?);
        let (value, rest) = value(&rest[1..])?;
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return None;
        }
        let names = ["for", "proto", "host"];
        let known = names
            .iter()
            .position(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        if let Some(known) = known {
            // Each only once (RFC 7239 §4).
            if std::mem::replace(&mut seen[known], true) {
                return None;
            }
            match known {
                0 => element.node = node(&value),
                1 => element.is_https = is_https(&value),
                _ => element.host = Some(value.into_owned()).filter(|host| is_host(host)),
            }
        }
        text = match rest.trim_ascii_start() {
            b"" => return Some(element),
            [b';', rest @ ..] => rest.trim_ascii_start(),
            _ => return None,
        };
        if text.is_empty() {
            return Some(element);
        }
    }
}

/// A token or a quoted string at the beginning of the text, and what follows (RFC 9110 §5.6.4).
fn value(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let [b'"', quoted @ ..] = text else {
        let end = text
            .iter()
            .position(|byte| !is_token(*byte) && *byte != b':');
        let (token, rest) = text.split_at(end.unwrap_or(text.len()));
        // A colon outside of quotation marks is not allowed (RFC 7239 §4), but its meaning is clear.
        return (!token.is_empty()).then_some((Cow::Borrowed(token), rest));
    };
    let mut plain = Vec::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((Cow::Owned(plain), &quoted[at + 1..])),
            b'\\' => plain.push(*bytes.next()?.1),
            byte => plain.push(*byte),
        }
    }
    None
}

/// RFC 9110 §5.6.2
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The values of at most this many proxies are read.
pub const MAX_PROXIES: usize = 64;

/// So many commas may be in the quoted strings of an element.
const MAX_COMMAS: usize = 4;

/// The longest name that DNS allows, and a port.
const MAX_HOST: usize = 255 + 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn trusted(address: IpAddr) -> bool {
        address.to_string().starts_with("10.")
    }

    fn x(addresses: &[&str], protos: &[&str], hosts: &[&str]) -> (String, Option<bool>, String) {
        let bytes = |texts: &[&'static str]| texts.iter().map(|text| text.as_bytes()).collect();
        let leak = |texts: &[&str]| -> Vec<&'static str> {
            texts.iter().map(|text| &*text.to_string().leak()).collect()
        };
        let fields = XForwarded {
            addresses: bytes(&leak(addresses)),
            protos: bytes(&leak(protos)),
            hosts: bytes(&leak(hosts)),
        };
        shown(fields.client(trusted))
    }

    fn rfc(values: &[&str]) -> (String, Option<bool>, String) {
        let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        shown(client(&values, trusted))
    }

    fn shown(client: Client) -> (String, Option<bool>, String) {
        let address = match (client.address, client.port) {
            (Some(address), Some(port)) => format!("{address} {port}"),
            (Some(address), None) => address.to_string(),
            _ => String::new(),
        };
        let host = client.host.unwrap_or_default();
        (address, client.is_https, String::from_utf8(host).unwrap())
    }

    #[test]
    fn the_client_is_the_first_from_the_right_that_is_no_trusted_proxy() {
        for (values, address) in [
            (&["192.0.2.1"][..], "192.0.2.1"),
            (&["192.0.2.1, 10.0.0.1"], "192.0.2.1"),
            (
                &["made up, 198.51.100.7, 192.0.2.1, 10.0.0.1 , 10.0.0.2"],
                "192.0.2.1",
            ),
            (&["192.0.2.1", "10.0.0.1", "10.0.0.2"], "192.0.2.1"),
            (&["192.0.2.1:8080"], "192.0.2.1 8080"),
            (&["[2001:db8::1]:8080"], "2001:db8::1 8080"),
            (&["2001:db8::1"], "2001:db8::1"),
            (&["::ffff:192.0.2.1"], "192.0.2.1"),
            (&["192.0.2.1, unknown, 10.0.0.1"], "10.0.0.1"),
            (&["192.0.2.1, 10.0.0.1:0"], ""),
            (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            (&[""], ""),
            (&["nonsense"], ""),
            (&[], ""),
        ] {
            assert_eq!(x(values, &[], &[]).0, address, "{values:?}");
        }
    }

    #[test]
    fn protocol_and_host_are_those_of_the_same_place() {
        let of = |protos: &[&str], hosts: &[&str]| {
            let (_, https, host) = x(&["192.0.2.1, 10.0.0.1"], protos, hosts);
            (https, host)
        };
        assert_eq!(
            of(&["https"], &["shop.example"]),
            (Some(true), "shop.example".into())
        );
        assert_eq!(
            of(&["https, http"], &["a.example:8443, b.example"]),
            (Some(true), "a.example:8443".into())
        );
        assert_eq!(
            of(&["https, http, https"], &["x, a, b"]),
            (Some(false), "a".into())
        );
        assert_eq!(of(&["ftp"], &["a b"]), (None, String::new()));
        // A client's own value does not count if the first proxy has appended its own.
        let (_, https, _) = x(&["192.0.2.1"], &["https, http"], &[]);
        assert_eq!(https, Some(false));
    }

    #[test]
    fn forwarded_says_the_same() {
        for (values, expected) in [
            (&["for=192.0.2.1"][..], ("192.0.2.1", None, "")),
            (
                &["For=\"[2001:db8::1]:4711\";Proto=HTTPS"],
                ("2001:db8::1 4711", Some(true), ""),
            ),
            (
                &["for=192.0.2.1;host=shop.example;proto=https, for=10.0.0.1;proto=http"],
                ("192.0.2.1", Some(true), "shop.example"),
            ),
            (
                &["for=192.0.2.1", "for=10.0.0.1;host=\"shop.example:8443\""],
                ("192.0.2.1", None, "shop.example:8443"),
            ),
            (
                &["for=192.0.2.1;secret=\"a,b\", for=10.0.0.1"],
                ("192.0.2.1", None, ""),
            ),
            (
                &["for=192.0.2.1, for=_hidden, for=10.0.0.1"],
                ("10.0.0.1", None, ""),
            ),
            (&["for=unknown;proto=https"], ("", Some(true), "")),
            (&["for=192.0.2.1;for=192.0.2.2"], ("", None, "")),
            (&["nonsense, for=10.0.0.1"], ("10.0.0.1", None, "")),
            (&[", for=192.0.2.1 ,"], ("192.0.2.1", None, "")),
        ] {
            let (address, https, host) = expected;
            assert_eq!(
                rfc(values),
                (address.into(), https, host.into()),
                "{values:?}"
            );
        }
    }

    #[test]
    fn a_clients_quotation_mark_hides_nothing_that_a_proxy_has_appended() {
        for begin in [
            "for=\"",
            "for=\"1.2.3.4",
            "x=\"y\\",
            "\"",
            "for=1.2.3.4;host=\"a",
        ] {
            for appended in [
                "for=192.0.2.1",
                "for=\"192.0.2.1:80\"",
                "proto=http;for=192.0.2.1",
            ] {
                let found = rfc(&[&format!("{begin}, {appended}")]).0;
                assert!(
                    found.starts_with("192.0.2.1"),
                    "{begin} {appended}: {found}"
                );
            }
        }
        // The proxy passes on the host that the client has named.
        let host = r#"for=192.0.2.1;host="a,for=6.6.6.6;x=\"";proto=https"#;
        assert_eq!(rfc(&[host]).0, "192.0.2.1");
    }
}
