//! `HOST[:PORT]`, as it comes in `Host` and in request targets (RFC 3986 §3.2).
//!
//! There are two ways to read it. [`host_name`] is for a server that looks up its own names: every valid host is
//! accepted. [`unambiguous`] is for a client that connects to what it reads: a host that one program could take for a
//! public name and another for an address of this machine is refused, never corrected.

use std::{
    borrow::Cow,
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

/// The host of a `Host` field or an absolute request target: in lower case, without port and final dot. Allocates only
/// for upper case.
///
/// # Errors
/// [`BadHost`] if it is not a valid host (RFC 3986 §3.2.2; in brackets only an IPv6 address, without a zone), if it is
/// empty, has only dots or two dots in a row, and if the port is not a number up to 65535.
pub fn host_name(written: &[u8]) -> Result<Cow<'_, [u8]>, BadHost> {
    match plain_name(written) {
        Some(name) => Ok(Cow::Borrowed(name)),
        None => any_name(written),
    }
}

/// As [`host_name`], for any text.
fn any_name(written: &[u8]) -> Result<Cow<'_, [u8]>, BadHost> {
    let parts = Parts::of(written).ok_or(BadHost)?;
    let is_port = parts.port.is_none_or(is_port);
    let name = parts.host;
    let is_name = match parts.is_literal() {
        true => {
            let address = std::str::from_utf8(&name[1..name.len() - 1]);
            address.is_ok_and(|address| address.parse::<Ipv6Addr>().is_ok())
        }
        false => name.iter().all(|&b| is_host_byte(b)) && is_encoded_right(name),
    };
    let name = name.strip_suffix(b".").unwrap_or(name);
    let names_nobody =
        name.is_empty() || name.ends_with(b".") || memchr::memmem::find(name, b"..").is_some();
    if !is_port || !is_name || names_nobody {
        return Err(BadHost);
    }
    if name.iter().any(u8::is_ascii_uppercase) {
        return Ok(Cow::Owned(name.to_ascii_lowercase()));
    }
    Ok(Cow::Borrowed(name))
}

/// Only digits, and not too many. An empty port means the usual port (RFC 3986 §3.2.3).
fn is_port(digits: &[u8]) -> bool {
    let more = |port: u32, digit: &u8| match digit {
        b'0'..=b'9' => Some(port * 10 + u32::from(digit - b'0')).filter(|port| *port <= 65_535),
        _ => None,
    };
    digits.iter().try_fold(0, more).is_some()
}

/// Whether each percent sign begins an encoded byte.
fn is_encoded_right(name: &[u8]) -> bool {
    memchr::memchr_iter(b'%', name).all(|at| {
        let digits = name.get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// The host in lower case, without brackets and final dot, an address in canonical form (RFC 5952 §4; an IPv4-mapped
/// IPv6 address as IPv4). Also the port, if there is one.
///
/// # Errors
/// [`Ambiguous`], as its variants say. It never repeats the text before an `@`, which may be a password.
pub fn unambiguous(written: &str) -> Result<(String, Option<u16>), Ambiguous> {
    if written.contains('@') {
        return Err(Ambiguous::User);
    }
    let Some(parts) = Parts::of(written.as_bytes()) else {
        return Err(match written.contains(']') {
            true => Ambiguous::AfterBracket,
            false => Ambiguous::OpenBracket,
        });
    };
    // Cut at ASCII characters, so both are text.
    let (host, rest) = written.split_at(parts.host.len());
    if parts.is_literal() {
        let address = bracketed(&host[1..host.len() - 1])?;
        let digits = rest.strip_prefix(':');
        return Ok((address, digits.map(port).transpose()?));
    }
    if rest.bytes().filter(|byte| *byte == b':').count() > 1 {
        return Err(Ambiguous::Colons);
    }
    let port = rest.strip_prefix(':').map(port).transpose()?;
    Ok((name_or_ipv4(host)?, port))
}

/// From 1 to 65535, in the usual notation.
fn port(digits: &str) -> Result<u16, Ambiguous> {
    let usual = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    let port = digits.parse().ok().filter(|_| usual);
    port.ok_or_else(|| Ambiguous::Port(shown(digits)))
}

/// Parses the text between brackets.
fn bracketed(address: &str) -> Result<String, Ambiguous> {
    if address.contains('%') {
        return Err(Ambiguous::Zone);
    }
    let parsed: Result<Ipv6Addr, _> = address.parse();
    match parsed {
        Ok(address) => Ok(address.to_canonical().to_string()),
        Err(_) => Err(Ambiguous::Ipv6(shown(address))),
    }
}

fn name_or_ipv4(written: &str) -> Result<String, Ambiguous> {
    if written.is_empty() {
        return Err(Ambiguous::Missing);
    }
    let host = written.strip_suffix('.').unwrap_or(written);
    if !host.is_ascii() {
        return Err(Ambiguous::NotAscii);
    }
    if host.contains('%') {
        return Err(Ambiguous::Encoded);
    }
    let foreign = |byte: &u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if let Some(byte) = host.bytes().find(|byte| foreign(byte)) {
        return Err(Ambiguous::Character(shown(host), char::from(byte)));
    }
    if host.len() > MAX_HOST {
        return Err(Ambiguous::Long);
    }
    if host.split('.').any(str::is_empty) {
        return Err(Ambiguous::Dots(shown(written)));
    }
    if host.split('.').any(|label| label.len() > MAX_LABEL) {
        return Err(Ambiguous::LongLabel);
    }
    if ends_in_a_number(host) {
        // The standard library accepts only four decimal numbers without leading zeros.
        return match host.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.to_string()),
            Err(_) => Err(Ambiguous::Number(shown(host))),
        };
    }
    Ok(host.to_ascii_lowercase())
}

/// Whether URL parsers would take the host for an IPv4 address: its last label is a number, also in hex (WHATWG URL
/// §3.5, "ends in a number").
fn ends_in_a_number(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    last.bytes().all(|byte| byte.is_ascii_digit()) || hex.is_some_and(is_hex)
}

/// For a message: printable and short.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    format!("{short:?}")
}

/// The text is no host: [`host_name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadHost;

/// Why a host is refused. Text in it is from the sender, printable and short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ambiguous {
    /// There is no host.
    Missing,
    /// The host has a user (`user@host`).
    User,
    /// The host begins with a bracket that does not end.
    OpenBracket,
    /// Something else than a port follows the bracket.
    AfterBracket,
    /// The host has more than one colon, and no brackets.
    Colons,
    /// The port is not a number from 1 to 65535 in the usual notation.
    Port(String),
    /// The host is an IPv6 address with a zone.
    Zone,
    /// The host has brackets and is not an IPv6 address.
    Ipv6(String),
    /// The host is not ASCII.
    NotAscii,
    /// The host is percent-encoded.
    Encoded,
    /// The host has this character, which is not allowed in a host.
    Character(String, char),
    /// The host is longer than RFC 1035 allows.
    Long,
    /// The host has a label that is longer than RFC 1035 allows.
    LongLabel,
    /// The host has an empty label.
    Dots(String),
    /// Some programs would read it as an IPv4 address.
    Number(String),
}

impl fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("it has no host"),
            Self::User => f.write_str("the host has a user (user@host)"),
            Self::OpenBracket => f.write_str("the host begins with [ and has no ]"),
            Self::AfterBracket => f.write_str("only a port may follow the ] of its host"),
            Self::Colons => {
                f.write_str("the host has more than one colon; write an IPv6 address in brackets")
            }
            Self::Port(digits) => write!(f, "the port {digits} is not a number from 1 to 65535"),
            Self::Zone => {
                f.write_str("the host is an IPv6 address with a zone, which is not allowed")
            }
            Self::Ipv6(address) => write!(f, "the host [{address}] is not an IPv6 address"),
            Self::NotAscii => f.write_str("the host is not ASCII; write its ASCII form (xn--…)"),
            Self::Encoded => f.write_str("the host is percent-encoded; write it without encoding"),
            Self::Character(host, character) => {
                write!(
                    f,
                    "the host {host} has {character:?}, which is not allowed in a host"
                )
            }
            Self::Long => write!(f, "the host is longer than {MAX_HOST} bytes"),
            Self::LongLabel => write!(f, "the host has a label of more than {MAX_LABEL} bytes"),
            Self::Dots(host) => write!(f, "the host {host} has a misplaced dot"),
            Self::Number(host) => write!(
                f,
                "the host {host} is a number that some programs read as an IPv4 address; write four decimal numbers, as in 192.0.2.1"
            ),
        }
    }
}

impl std::error::Error for Ambiguous {}

/// Where host and port are in an authority.
struct Parts<'a> {
    /// With brackets, if it has them.
    host: &'a [u8],
    /// What follows the colon.
    port: Option<&'a [u8]>,
}

impl<'a> Parts<'a> {
    /// `None` if a bracket does not end, or is followed by something other than a colon.
    fn of(written: &'a [u8]) -> Option<Parts<'a>> {
        let length = match written.first() {
            Some(b'[') => memchr::memchr(b']', written)? + 1,
            _ => memchr::memchr(b':', written).unwrap_or(written.len()),
        };
        let (host, rest) = written.split_at(length);
        let port = match rest {
            [] => None,
            [b':', port @ ..] => Some(port),
            _ => return None,
        };
        Some(Parts { host, port })
    }

    /// Whether the host is in brackets.
    fn is_literal(&self) -> bool {
        self.host.first() == Some(&b'[')
    }
}

/// The name in a header that has letters in lower case, digits, dashes and single dots, and perhaps a port: nearly all
/// have. `None`: it must be parsed completely.
fn plain_name(header: &[u8]) -> Option<&[u8]> {
    let mut after_dot = true;
    for (at, &byte) in header.iter().enumerate() {
        match PLAIN[usize::from(byte)] {
            Plain::Name => after_dot = false,
            _ if after_dot => return None,
            Plain::Dot => after_dot = true,
            Plain::Colon => {
                return is_port(&header[at + 1..]).then_some(&header[..at]);
            }
            Plain::Other => return None,
        }
    }
    (!after_dot).then_some(header)
}

#[derive(Clone, Copy)]
enum Plain {
    Name,
    Dot,
    Colon,
    Other,
}

static PLAIN: [Plain; 256] = {
    let mut kinds = [Plain::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        if matches!(byte as u8, b'a'..=b'z' | b'0'..=b'9' | b'-') {
            kinds[byte] = Plain::Name;
        }
        byte += 1;
    }
    kinds[b'.' as usize] = Plain::Dot;
    kinds[b':' as usize] = Plain::Colon;
    kinds
};

/// reg-name of RFC 3986 §3.2.2; an encoded byte stays as it is.
fn is_host_byte(byte: u8) -> bool {
    HOST_BYTES[usize::from(byte)]
}

static HOST_BYTES: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        bytes[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~!$&'()*+,;=%";
    let mut index = 0;
    while index < others.len() {
        bytes[others[index] as usize] = true;
        index += 1;
    }
    bytes
};

/// RFC 1035 §2.3.4, without the byte of the root label.
const MAX_HOST: usize = 253;

/// RFC 1035 §2.3.4
const MAX_LABEL: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_short_way_takes_only_what_the_long_way_takes_as_the_same() {
        let pieces = [
            "", "a", "B", "1", "-", ".", "..", ":", "80", "_", "[", "]", "%",
        ];
        for first in pieces {
            for second in pieces {
                for third in pieces {
                    let text = [first, second, "x.y", third, first].concat();
                    for written in [
                        text.as_bytes(),
                        &text.as_bytes()[..text.len() - first.len()],
                    ] {
                        if let Some(name) = plain_name(written) {
                            let any = any_name(written).map(Cow::into_owned);
                            assert_eq!(any.as_deref(), Ok(name), "{text}");
                        }
                    }
                }
            }
        }
        assert_eq!(plain_name(b"shop.example:8080"), Some(&b"shop.example"[..]));
        assert_eq!(plain_name(b""), None);
    }

    #[test]
    fn host_names_lose_port_case_and_final_dot() {
        for (header, name) in [
            ("shop.example", "shop.example"),
            ("Shop.Example:8080", "shop.example"),
            ("shop.example.", "shop.example"),
            ("shop.example.:80", "shop.example"),
            ("shop.example:", "shop.example"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]:80", "[::1]"),
            ("[FE80::1]", "[fe80::1]"),
            ("[::ffff:192.0.2.1]:080", "[::ffff:192.0.2.1]"),
            ("a%41_b:65535", "a%41_b"),
            ("a:000080", "a"),
            ("a:0", "a"),
        ] {
            let got = host_name(header.as_bytes()).unwrap();
            assert_eq!(String::from_utf8_lossy(&got), name, "{header}");
        }
        for header in [
            "",
            ":80",
            ":",
            ".",
            "..",
            ".:80",
            "a..b",
            "a..",
            "..a",
            "a b",
            "a/b",
            "a\\b",
            "user@host",
            "a:b",
            "a:80:80",
            "[::1",
            "[]",
            "[::1]x",
            "::1",
            "a?b",
            "a#b",
            "a\0",
            "\u{fc}.example",
            "a[b]",
            "<a>",
            "[zz]",
            "[::::]",
            "[%]",
            "[::g]",
            "[1.2.3.4]",
            "[v1.a]",
            "[fe80::1%25eth0]",
            "[:::1]",
            "[::1]:65536",
            "[::1]:-1",
            "a%zz",
            "a%",
            "a%4",
            "a%4g.b",
            "A%",
            "a:99999",
            "a:65536",
            "A:65536",
            "a:00000000000099999999999999999999",
            "a:+1",
            "a:8x",
        ] {
            assert_eq!(host_name(header.as_bytes()), Err(BadHost), "{header}");
        }
    }

    fn any_authority() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z0-9.:@%\\[\\]_-]{0,20}",
            "\\[[0-9a-f:.]{0,20}\\](:[0-9]{0,6})?",
            "[0-9x.]{0,16}(:[0-9]{0,6})?",
            "\\PC{0,20}",
        ]
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(written in proptest::collection::vec(any::<u8>(), 0..30)) {
            if let Ok(name) = host_name(&written) {
                prop_assert!(!name.is_empty() && !name.iter().any(u8::is_ascii_uppercase));
            }
        }

        #[test]
        fn what_is_unambiguous_reads_the_same_again(written in any_authority()) {
            let Ok((host, port)) = unambiguous(&written) else { return Ok(()) };
            let again = match host.contains(':') {
                true => format!("[{host}]"),
                false => host.clone(),
            };
            prop_assert_eq!(unambiguous(&again), Ok((host.clone(), None)));
            // A server that reads the same text finds the same host and port.
            let name = host_name(written.as_bytes()).expect("a valid host");
            if !written.starts_with('[') {
                prop_assert_eq!(&*name, host.as_bytes());
            }
            prop_assert_eq!(port.is_some(), Parts::of(written.as_bytes()).unwrap().port.is_some());
        }
    }
}
