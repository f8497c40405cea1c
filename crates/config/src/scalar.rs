//! Text of one value → its meaning, or the problem with it. Pure functions; they know no keys and no places.

use core::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use std::{cell::RefCell, collections::HashMap};

use crate::model::{Address, HostPattern};

/// A problem, and what to write instead if that is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

pub(crate) type Checked<T> = Result<T, Wrong>;

pub(crate) fn wrong<T>(message: impl Into<String>, hint: impl Into<String>) -> Checked<T> {
    let hint = hint.into();
    Err(Wrong {
        message: message.into(),
        hint: (!hint.is_empty()).then_some(hint),
    })
}

/// `10s`, `500ms`, `2m`, `1h`, `7d`. A bare number means seconds.
pub(crate) fn duration(text: &str) -> Checked<Duration> {
    let (digits, unit) = split_number(text);
    let Ok(number) = digits.parse::<u64>() else {
        return wrong(
            format!("{text:?} is not a duration"),
            "write a whole number and a unit (ms, s, m, h, d): \"500ms\", \"30s\", \"2m\"",
        );
    };
    if unit.starts_with('.') {
        return wrong(
            format!("{text:?} is not a whole number"),
            "use the next smaller unit: \"1500ms\"",
        );
    }
    let factor = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => {
            return wrong(
                format!("{unit:?} is not a unit of time"),
                format!("units are ms, s, m, h and d, for example \"{number}s\""),
            );
        }
    };
    let milliseconds = number.checked_mul(factor).filter(|ms| *ms <= LONGEST_MS);
    match milliseconds {
        Some(ms) => Ok(Duration::from_millis(ms)),
        None => wrong(format!("{text:?} is more than 366 days"), ""),
    }
}

/// `512`, `64K`, `16M`, `2G`: bytes, in steps of 1024.
pub(crate) fn size(text: &str) -> Checked<u64> {
    let (digits, unit) = split_number(text);
    let Ok(number) = digits.parse::<u64>() else {
        return wrong(
            format!("{text:?} is not a size"),
            "write a whole number and a unit (K, M, G; in steps of 1024): \"64K\", \"16M\"",
        );
    };
    let factor: u64 = match unit {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        _ => {
            let first = unit
                .trim_start()
                .chars()
                .next()
                .unwrap_or_default()
                .to_ascii_uppercase();
            let unit_meant = if "KMG".contains(first) { first } else { 'M' };
            return wrong(
                format!("{unit:?} is not a unit of size"),
                format!(
                    "units are K, M and G (steps of 1024), for example \"{number}{unit_meant}\""
                ),
            );
        }
    };
    match number
        .checked_mul(factor)
        .filter(|bytes| *bytes <= i64::MAX as u64)
    {
        Some(bytes) => Ok(bytes),
        None => wrong(format!("{text:?} is too large"), ""),
    }
}

/// `host:port`, `[::]:port`, `*:80`, `:80`, `localhost:8080` or `unix:PATH`.
pub(crate) fn address(text: &str) -> Checked<Address> {
    if let Some(path) = text.strip_prefix("unix:") {
        return match path {
            "" => wrong(
                "`unix:` needs a path",
                "for example \"unix:/run/weir/web.sock\"",
            ),
            path if path.contains('\0') => wrong("a path cannot contain NUL", ""),
            path => Ok(Address::Unix(path.into())),
        };
    }
    if text.starts_with('/') || text.starts_with("./") {
        return wrong(
            format!("{text:?} is not an address"),
            format!("a unix socket is written \"unix:{text}\""),
        );
    }
    if text.contains("://") {
        return wrong(
            format!("{text:?} is a URL, not an address"),
            "write host:port",
        );
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Address::Tcp(address));
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return wrong(
            format!("{text:?} is only a port"),
            format!(
                "write \"127.0.0.1:{text}\" for this machine only, or \"0.0.0.0:{text}\" for all"
            ),
        );
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        let bracketed = match text.rsplit_once(':') {
            // `::1:80` is an address, but its end was meant as a port.
            Some((host, port))
                if ip.is_ipv6()
                    && host.parse::<IpAddr>().is_ok()
                    && port.parse::<u16>().is_ok() =>
            {
                format!("[{host}]:{port}")
            }
            _ => SocketAddr::new(ip, 80).to_string(),
        };
        return wrong(
            format!("{text:?} has no port"),
            format!("for example \"{bracketed}\""),
        );
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return wrong(
            format!("{text:?} is not an address"),
            "write host:port, [::]:port or unix:PATH",
        );
    };
    let Ok(port) = port.parse::<u16>() else {
        return wrong(
            format!("{port:?} is not a port"),
            "a port is a number from 0 to 65535, for example \"0.0.0.0:80\"",
        );
    };
    let ip: IpAddr = match host {
        "" | "*" => Ipv4Addr::UNSPECIFIED.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host if host.parse::<core::net::Ipv6Addr>().is_ok() => {
            return wrong(
                format!("{host:?} needs brackets"),
                format!("write \"[{host}]:{port}\""),
            );
        }
        host => {
            return wrong(
                format!("{host:?} is not an IP address"),
                "write the host's IP address, or * for all addresses",
            );
        }
    };
    Ok(Address::Tcp(SocketAddr::new(ip, port)))
}

/// `0660`: permission bits in octal.
pub(crate) fn mode(text: &str) -> Checked<u32> {
    let octal =
        !text.is_empty() && text.len() <= 4 && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if octal && mode <= 0o777 => Ok(mode),
        _ => wrong(
            format!("{text:?} is not a file mode"),
            "write permission bits in octal: \"0660\"",
        ),
    }
}

/// `shop.example`, `*.shop.example`, `shop.*`, `127.0.0.1`, `[::1]`.
pub(crate) fn host_pattern(text: &str) -> Checked<HostPattern> {
    if text == "*" || text.is_empty() {
        return wrong(
            format!("{text:?} is not a host"),
            "a site without `hosts` is the default site and answers to every name",
        );
    }
    if text.contains("://") || text.contains('/') {
        return wrong(
            format!("{text:?} is a URL, not a host"),
            "write only the name: \"shop.example\"",
        );
    }
    if !text.is_ascii() {
        return wrong(
            format!("{text:?} is not in ASCII"),
            "write the name as it is in DNS (xn--…)",
        );
    }
    let lower = text.to_ascii_lowercase();
    if let Some(inner) = lower.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return match inner.parse::<core::net::Ipv6Addr>() {
            Ok(ip) => Ok(HostPattern::Exact(format!("[{ip}]"))),
            Err(_) => wrong(format!("{text:?} is not an IPv6 address"), ""),
        };
    }
    if let Some((name, port)) = lower.rsplit_once(':') {
        if port.bytes().all(|b| b.is_ascii_digit()) && !name.contains(':') {
            return wrong(
                format!("{text:?} has a port"),
                format!(
                    "write only the name here (\"{name}\"), and the port in the listener's address"
                ),
            );
        }
        return wrong(
            format!("{text:?} is not a host name"),
            format!("an IPv6 address is written \"[{lower}]\""),
        );
    }
    let (pattern, name) = if let Some(name) = lower.strip_prefix("*.") {
        (HostPattern::Suffix(format!(".{name}")), name)
    } else if let Some(name) = lower.strip_suffix(".*") {
        (HostPattern::Prefix(format!("{name}.")), name)
    } else {
        (HostPattern::Exact(lower.clone()), lower.as_str())
    };
    if name.contains('*') {
        return wrong(
            format!("{text:?} has a `*` in the middle"),
            "`*` can replace the first labels (\"*.shop.example\") or the last ones (\"shop.*\")",
        );
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    if !has_labels(name) {
        return wrong(
            format!("{text:?} is not a host name"),
            "for example \"shop.example\" or \"*.shop.example\"",
        );
    }
    if lower.ends_with('.') && matches!(pattern, HostPattern::Exact(_)) {
        return Ok(HostPattern::Exact(name.to_owned()));
    }
    Ok(pattern)
}

/// Whether the text is a valid DNS name and not an IP address (RFC 1123 §2.1: the last label is not a number).
pub(crate) fn is_host_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let last = name.rsplit('.').next().unwrap_or_default();
    has_labels(name) && !last.bytes().all(|b| b.is_ascii_digit())
}

/// Whether it consists of labels as a DNS name does.
fn has_labels(name: &str) -> bool {
    let is_label = |label: &str| {
        let of_label = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(of_label)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// A field name of HTTP (RFC 9110 §5.1), method or other token.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// A field value of HTTP (RFC 9110 §5.5): visible characters, spaces and tabs, without leading or trailing spaces.
pub(crate) fn is_header_value(text: &str) -> bool {
    text.trim_matches([' ', '\t']) == text && text.chars().all(|c| c == '\t' || !c.is_control())
}

/// Compiles a regular expression to check it.
pub(crate) fn regex(pattern: &str) -> Checked<regex::Regex> {
    let known = COMPILED.with_borrow(|compiled| compiled.get(pattern).cloned());
    if let Some(regex) = known {
        return Ok(regex);
    }
    let regex = compile(pattern)?;
    COMPILED.with_borrow_mut(|compiled| {
        if compiled.len() < MAX_COMPILED {
            compiled.insert(pattern.to_owned(), regex.clone());
        }
    });
    Ok(regex)
}

/// Forgets the expressions that were compiled while a configuration was read.
pub(crate) fn forget_compiled() {
    COMPILED.take();
}

thread_local! {
    /// The expressions of the configuration that is being read: many sites write the same ones.
    static COMPILED: RefCell<HashMap<String, regex::Regex>> = RefCell::default();
}

/// Maximum number of these.
const MAX_COMPILED: usize = 256;

fn compile(pattern: &str) -> Checked<regex::Regex> {
    match regex::Regex::new(pattern) {
        Ok(regex) => Ok(regex),
        Err(regex::Error::CompiledTooBig(_)) => wrong(
            "this regular expression is too big",
            "use smaller counts in {…} or fewer alternatives",
        ),
        Err(error) => {
            // The crate's message shows the pattern with a mark. Only its last line contains the reason.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            let hint = match reason.contains("look-around") || reason.contains("backreference") {
                true => "",
                false => "in '…' (single quotes) a backslash is written once, in \"…\" twice",
            };
            wrong(format!("not a regular expression: {reason}"), hint)
        }
    }
}

/// The candidate that was most likely meant.
pub(crate) fn nearest<'c>(
    typed: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    // A very long name is not a misspelling, and the comparison is quadratic.
    if typed.len() > 64 {
        return None;
    }
    let lower = typed.to_lowercase().replace('-', "_");
    let allowed = (lower.chars().count() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .map(|candidate| {
            let normal = candidate.to_lowercase().replace('-', "_");
            (strsim::damerau_levenshtein(&lower, &normal), candidate)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `did you mean …?`. If no candidate is similar and the list is short: the list of candidates.
pub(crate) fn suggestion<'c>(
    typed: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<String> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    if let Some(near) = nearest(typed, candidates.iter().copied()) {
        return Some(format!("did you mean `{near}`?"));
    }
    match candidates.len() {
        0 => None,
        1..=12 => Some(format!("known keys: {}", candidates.join(", "))),
        _ => None,
    }
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text
        .bytes()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

const LONGEST_MS: u64 = 366 * 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_take_units_and_bare_seconds() {
        let ms = |text| duration(text).map(|d| d.as_millis()).ok();
        assert_eq!(ms("500ms"), Some(500));
        assert_eq!(ms("30s"), Some(30_000));
        assert_eq!(ms("30"), Some(30_000));
        assert_eq!(ms("2m"), Some(120_000));
        assert_eq!(ms("1h"), Some(3_600_000));
        assert_eq!(ms("1d"), Some(86_400_000));
        for bad in [
            "",
            "s",
            "-1s",
            "1.5s",
            "1 s",
            "1w",
            "400d",
            "99999999999999999999s",
        ] {
            assert_eq!(ms(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_step_by_1024() {
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("1m"), Ok(1 << 20));
        assert_eq!(size("2G"), Ok(2 << 30));
        for bad in ["", "K", "1KB", "1 M", "99999999999G", "-1"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_in_all_spellings() {
        let shown = |text| match address(text) {
            Ok(Address::Tcp(address)) => address.to_string(),
            Ok(Address::Unix(path)) => path.display().to_string(),
            Err(error) => error.message,
        };
        assert_eq!(shown("0.0.0.0:80"), "0.0.0.0:80");
        assert_eq!(shown("[::]:80"), "[::]:80");
        assert_eq!(shown("*:80"), "0.0.0.0:80");
        assert_eq!(shown(":80"), "0.0.0.0:80");
        assert_eq!(shown("localhost:8080"), "127.0.0.1:8080");
        assert_eq!(shown("unix:/run/a.sock"), "/run/a.sock");
        assert_eq!(shown("80"), "\"80\" is only a port");
        assert_eq!(shown("::1:80"), "\"::1:80\" has no port");
        assert_eq!(shown("1.2.3.4"), "\"1.2.3.4\" has no port");
        assert_eq!(shown("1.2.3.4:99999"), "\"99999\" is not a port");
        assert_eq!(shown("/run/a.sock"), "\"/run/a.sock\" is not an address");
        assert_eq!(
            shown("php.internal:9000"),
            "\"php.internal\" is not an IP address"
        );
    }

    #[test]
    fn hosts_exact_and_wild() {
        assert_eq!(
            host_pattern("Shop.Example"),
            Ok(HostPattern::Exact("shop.example".into()))
        );
        assert_eq!(
            host_pattern("shop.example."),
            Ok(HostPattern::Exact("shop.example".into()))
        );
        assert_eq!(
            host_pattern("*.a.b"),
            Ok(HostPattern::Suffix(".a.b".into()))
        );
        assert_eq!(host_pattern("a.*"), Ok(HostPattern::Prefix("a.".into())));
        assert_eq!(
            host_pattern("[::1]"),
            Ok(HostPattern::Exact("[::1]".into()))
        );
        for bad in [
            "",
            "*",
            "a.*.b",
            "http://a",
            "a:80",
            "::1",
            "a..b",
            "a b",
            "ä.example",
            "*.",
            ".a",
        ] {
            assert!(host_pattern(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nearest_finds_slips_and_leaves_strangers() {
        let keys = ["address", "backlog", "max_children"];
        assert_eq!(nearest("adress", keys), Some("address"));
        assert_eq!(nearest("max-childs", keys), Some("max_children"));
        assert_eq!(nearest("colour", keys), None);
    }
}
