//! Parses `HOST[:PORT]` to one unambiguous host, or refuses it.

use std::net::{Ipv4Addr, Ipv6Addr};

/// RFC 1035 §2.3.4, without the byte of the root label.
const MAX_HOST: usize = 253;

/// RFC 1035 §2.3.4
const MAX_LABEL: usize = 63;

/// The host in lower case, without brackets and final dot, an address in canonical form (RFC 5952 §4; an IPv4-mapped
/// IPv6 address as IPv4). Also the port, if there is one.
///
/// # Errors
/// The cause, and what to write instead. It never repeats the text before an `@`, which may be a password.
pub(super) fn authority(written: &str) -> Result<(String, Option<u16>), String> {
    if written.contains('@') {
        return Err("the host has a user (user@host); remove it and send Authorization".to_owned());
    }
    if let Some(rest) = written.strip_prefix('[') {
        let Some((address, rest)) = rest.split_once(']') else {
            return Err("the host begins with [ and has no ]".to_owned());
        };
        let port = match rest.strip_prefix(':') {
            Some(digits) => Some(port(digits)?),
            None if rest.is_empty() => None,
            None => return Err("only a port may follow the ] of its host".to_owned()),
        };
        return Ok((bracketed(address)?, port));
    }
    let (host, digits) = match written.split_once(':') {
        Some((_, rest)) if rest.contains(':') => {
            return Err(
                "the host has more than one colon; write an IPv6 address in brackets".to_owned(),
            );
        }
        Some((host, digits)) => (host, Some(digits)),
        None => (written, None),
    };
    let port = digits.map(port).transpose()?;
    Ok((name_or_ipv4(host)?, port))
}

/// From 1 to 65535, in the usual notation.
fn port(digits: &str) -> Result<u16, String> {
    let usual = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    let port = digits.parse().ok().filter(|_| usual);
    port.ok_or_else(|| format!("the port {} is not a number from 1 to 65535", shown(digits)))
}

/// Parses the text between brackets.
fn bracketed(address: &str) -> Result<String, String> {
    if address.contains('%') {
        return Err("the host is an IPv6 address with a zone, which is not allowed".to_owned());
    }
    let parsed: Result<Ipv6Addr, _> = address.parse();
    match parsed {
        Ok(address) => Ok(address.to_canonical().to_string()),
        Err(_) => Err(format!(
            "the host [{}] is not an IPv6 address",
            shown(address)
        )),
    }
}

fn name_or_ipv4(written: &str) -> Result<String, String> {
    if written.is_empty() {
        return Err(
            "it has no host; write /HOST/path, or http://HOST/path with weir as the proxy"
                .to_owned(),
        );
    }
    let host = written.strip_suffix('.').unwrap_or(written);
    if !host.is_ascii() {
        return Err("the host is not ASCII; write its ASCII form (xn--…)".to_owned());
    }
    if host.contains('%') {
        return Err("the host is percent-encoded; write it without encoding".to_owned());
    }
    let foreign = |byte: &u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if let Some(byte) = host.bytes().find(|byte| foreign(byte)) {
        return Err(format!(
            "the host {} has {:?}, which is not allowed in a host",
            shown(host),
            char::from(byte)
        ));
    }
    if host.len() > MAX_HOST {
        return Err(format!("the host is longer than {MAX_HOST} bytes"));
    }
    if host.split('.').any(str::is_empty) {
        return Err(format!("the host {} has a misplaced dot", shown(written)));
    }
    if host.split('.').any(|label| label.len() > MAX_LABEL) {
        return Err(format!(
            "the host has a label of more than {MAX_LABEL} bytes"
        ));
    }
    if ends_in_a_number(host) {
        // The standard library accepts only four decimal numbers without leading zeros.
        return match host.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.to_string()),
            Err(_) => Err(format!(
                "the host {} is a number that some programs read as an IPv4 address; write four decimal numbers, as in 192.0.2.1",
                shown(host)
            )),
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
