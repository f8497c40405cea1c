//! The policy for requests of scripts: how long the answer may take, the priority in the queue, how the client is
//! identified, and what happens to the script when the client leaves.
//!
//! A site, a route or a FastCGI listener sets the policy ([`weir_config::Policy`]). [`Policy::apply`] combines it
//! with the values in the request to the [`RequestPolicy`] of that request. Values from a client are used only where the
//! configuration says so, and can only make its own request wait longer or fail. A header or cookie that identifies
//! clients must be set by a proxy in front.
//!
//! # Sessions
//!
//! Many visitors may have one address: that of a company, or of a proxy that is not in `trusted`. So weir also
//! distinguishes requests of one client by their session ([`session`]): by the session's cookie, or by all cookies if
//! none is known to be of a session. A client can invent cookies, so the rule is that **an invented session has no
//! advantage**: sessions divide only the share of their client. A client has its turns and its share of the workers,
//! however many sessions it names. Its oldest request is next, but a session that already has its share of the workers
//! is skipped while other sessions of this client wait. A client that invents a session for each request is never
//! skipped, and gets exactly what requests without cookies get.

use std::{
    hash::Hash,
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use weir_config::{FairBy, OnClientLeft, RequestPart, SerializeBy};
use weir_interfaces::secret;
use weir_observe::log_text;

use weir_semantics::cookies;

use crate::{
    clock::{self, NEVER},
    dispatch::{Learner, PoolHandle, session_script},
    record::Record,
    route::Matcher,
};

/// The policy of the configuration, compiled.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    settings: weir_config::Policy,
    rules: Vec<Rule>,
}

/// One rule of `priority_by`.
#[derive(Debug)]
struct Rule {
    part: RequestPart,
    value: Matcher,
    priority: i16,
}

/// The values that apply to one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestPolicy {
    /// After this time the answer is not needed any more, if it has not begun ([`clock::now`]).
    pub(crate) deadline: u64,
    /// Lower values first.
    pub(crate) priority: i16,
    /// Keyed hash of the client; 0: no particular client.
    pub(crate) client: u64,
    /// Whether sessions of that client are told apart.
    pub(crate) has_sessions: bool,
    pub(crate) on_client_left: OnClientLeft,
    /// Which requests run one after the other.
    pub(crate) serial: Serial,
}

/// Which requests run one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Serial {
    /// The pool decides.
    #[default]
    Pool,
    /// Requests with the same value, as a keyed hash, are of one client; 0: no key.
    Key(u64),
    /// Requests of one session, if their script holds the session's lock.
    Auto,
}

impl Policy {
    /// Compiles the policy of the configuration.
    ///
    /// # Errors
    ///
    /// If an expression cannot be compiled.
    pub(crate) fn new(settings: &weir_config::Policy) -> Result<Policy, String> {
        let mut rules = Vec::with_capacity(settings.priority_by.len());
        for rule in &settings.priority_by {
            rules.push(Rule {
                part: rule.part.clone(),
                value: Matcher::of_value(&rule.value)
                    .map_err(|error| format!("priority_by: {error}"))?,
                priority: rule.priority,
            });
        }
        Ok(Policy {
            settings: settings.clone(),
            rules,
        })
    }

    /// Stores the values for the request in `record`. After a local redirect the earlier of the two deadlines counts.
    pub(crate) fn apply(&self, record: &mut Record) {
        let asked = self.settings.timeout_header.as_deref();
        let asked = asked.and_then(|name| parse_timeout(record.header(name)?));
        let own = Some(self.settings.timeout).filter(|timeout| !timeout.is_zero());
        let timeout = own.into_iter().chain(asked).min();
        let deadline = timeout.map_or(NEVER, |timeout| {
            record.started.saturating_add(timeout.as_micros() as u64)
        });
        let rule = self.rules.iter().find(|rule| rule.matches(record));
        record.policy = RequestPolicy {
            deadline: deadline.min(record.policy.deadline),
            priority: rule.map_or(self.settings.priority, |rule| rule.priority),
            client: self.client(record),
            has_sessions: match &self.settings.fair_by {
                FairBy::Off | FairBy::Part(RequestPart::Cookie(_)) => false,
                FairBy::Address | FairBy::Part(RequestPart::Header(_)) => true,
            },
            serial: match &self.settings.serialize_by {
                SerializeBy::Pool => Serial::Pool,
                SerializeBy::Off => Serial::Key(0),
                SerializeBy::Part(part) => Serial::Key(key_of(part, record)),
                SerializeBy::Auto => Serial::Auto,
            },
            on_client_left: self.settings.on_client_left,
        };
    }

    /// Keyed hash of the client by `fair_by`; 0: no particular client.
    pub(crate) fn client(&self, record: &Record) -> u64 {
        match &self.settings.fair_by {
            FairBy::Off => 0,
            FairBy::Address => record.endpoints.client,
            FairBy::Part(part) => {
                let mut found = None;
                any_value(part, record, |value| {
                    found = match part {
                        RequestPart::Header(_) => client_of_header(value),
                        RequestPart::Cookie(_) => named(value),
                    }
                    .or(found);
                    false
                });
                found.unwrap_or(record.endpoints.client)
            }
        }
    }
}

impl Rule {
    fn matches(&self, record: &Record) -> bool {
        any_value(&self.part, record, |value| self.value.matches(value))
    }
}

impl RequestPolicy {
    /// Writes the deadline as scripts get it: seconds since 1970 with three decimals, like PHP's `microtime(true)`.
    /// Writes nothing if there is no deadline.
    pub(crate) fn put_deadline(&self, out: &mut Vec<u8>) {
        if self.deadline == NEVER {
            return;
        }
        let left = Duration::from_micros(self.deadline.saturating_sub(clock::now()));
        let at = SystemTime::now().checked_add(left);
        let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        if let Some(since) = since {
            log_text::put_seconds_millis(since.as_micros() as u64, out);
        }
    }
}

impl Default for RequestPolicy {
    fn default() -> Self {
        RequestPolicy {
            deadline: NEVER,
            priority: 0,
            client: 0,
            has_sessions: false,
            serial: Serial::Pool,
            on_client_left: OnClientLeft::Finish,
        }
    }
}

/// The key by which requests of `pool` run one after the other; 0: this request has none. Also returns what the
/// request's end will show about its script.
pub(crate) fn serial(record: &Record, pool: &PoolHandle) -> (u64, Option<Learner>) {
    match (record.policy.serial, &pool.settings.queue.serialize_by) {
        (Serial::Key(key), _) => (key, None),
        (Serial::Auto, _) | (Serial::Pool, SerializeBy::Auto) => learned(record, pool),
        (Serial::Pool, SerializeBy::Part(part)) => (key_of(part, record), None),
        (Serial::Pool, SerializeBy::Off | SerializeBy::Pool) => (0, None),
    }
}

/// Keyed hash of the session that a request of a script belongs to; 0: it has no cookies, or sessions are not told apart.
pub(crate) fn session(record: &Record, pool: &PoolHandle) -> u64 {
    if !record.policy.has_sessions || !any_header("cookie", record, |_| true) {
        return 0;
    }
    let script = record.script.as_ref();
    let script = script.filter(|_| pool.settings.php().is_some());
    let known = script.and_then(|script| {
        let script = session_script(record.site, &script.filename);
        pool.session_cookie(script)
    });
    let name = known.as_deref().unwrap_or(PHP_SESSION).as_bytes();
    let (mut own, mut all) = (None, 0);
    any_header("cookie", record, |cookies| {
        own = cookies::values(cookies, name).next().map(hashed).or(own);
        all = hashed((all, cookies));
        false
    });
    match own.unwrap_or(all) {
        0 => 0,
        // Of this client: another one may send the same cookie.
        session => hashed((record.policy.client, session)),
    }
}

/// The key of the request's session, if its script is known to hold the session's lock.
fn learned(record: &Record, pool: &PoolHandle) -> (u64, Option<Learner>) {
    // Only weir's own PHP reports how scripts use their session.
    let Some(script) = record
        .script
        .as_ref()
        .filter(|_| pool.settings.php().is_some())
    else {
        return (0, None);
    };
    let script = session_script(record.site, &script.filename);
    let cookie = pool.session_cookie(script);
    let key = cookie.map_or(0, |cookie| {
        key_in(|found| {
            any_header("cookie", record, |cookies| {
                cookies::values(cookies, cookie.as_bytes()).any(&mut *found)
            });
        })
    });
    let learner = Learner {
        script,
        has_session: key != 0,
    };
    (key, Some(learner))
}

/// The key in this part of a request; 0 if there is none.
fn key_of(part: &RequestPart, record: &Record) -> u64 {
    key_in(|found| {
        any_value(part, record, found);
    })
}

/// The key in the last value that `look` finds; 0 if there is none.
fn key_in(look: impl FnOnce(&mut dyn FnMut(&[u8]) -> bool)) -> u64 {
    let mut found = None;
    look(&mut |value| {
        found = named(value.trim_ascii()).or(found);
        false
    });
    found.unwrap_or(0)
}

/// The client of this address. Usually a client has a whole /64 of IPv6 (RFC 6177 §2).
pub(crate) fn client_of(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => keyed(OF_ADDRESS, &address.octets()),
        IpAddr::V6(address) => keyed(OF_ADDRESS, &address.octets()[..8]),
    }
}

/// Like [`client_of`], for an address as a web server in front writes it.
pub(crate) fn client_of_text(address: &[u8]) -> u64 {
    let text = std::str::from_utf8(address).ok();
    match text.and_then(|text| text.parse().ok()) {
        Some(address) => client_of(address),
        // Clients connect to the web server over a unix socket, or it does not send the address.
        None if address.is_empty() || address.starts_with(b"unix:") => 0,
        None => keyed(OF_ADDRESS, address),
    }
}

/// The client in a header that a proxy in front has set. In a list, as in X-Forwarded-For, the last part counts: the
/// proxy has added it, and a client can forge the parts before it. An address counts like the address of a
/// connection.
fn client_of_header(value: &[u8]) -> Option<u64> {
    let last = value.rsplit(|byte| *byte == b',').next()?.trim_ascii();
    let text = std::str::from_utf8(last).ok();
    match text.and_then(|text| text.parse().ok()) {
        Some(address) => Some(client_of(address)),
        None => named(last),
    }
}

/// The client with this name; `None` if the name is empty.
fn named(name: &[u8]) -> Option<u64> {
    (!name.is_empty()).then(|| keyed(OF_PART, name))
}

/// A hash with a secret key of this process, so that nobody can choose names that collide; never 0.
fn keyed(kind: u8, bytes: &[u8]) -> u64 {
    hashed((kind, bytes))
}

/// See [`keyed`].
fn hashed(value: impl Hash) -> u64 {
    secret::hash(value).max(1)
}

/// Whether `is` holds for any value of this part of the request.
fn any_value(part: &RequestPart, record: &Record, mut is: impl FnMut(&[u8]) -> bool) -> bool {
    match part {
        RequestPart::Header(name) => any_header(name, record, is),
        RequestPart::Cookie(name) => any_header("cookie", record, |cookies| {
            cookies::values(cookies, name.as_bytes()).any(&mut is)
        }),
    }
}

fn any_header(name: &str, record: &Record, is: impl FnMut(&[u8]) -> bool) -> bool {
    if record.params.is_some() {
        return record.header(name).is_some_and(is);
    }
    record.head.fields.named(name.as_bytes()).any(is)
}

/// The timeout that a client has sent: seconds with or without decimals, or with a unit as in weir.toml. `None` if it
/// cannot be understood, or is `0`.
fn parse_timeout(text: &[u8]) -> Option<Duration> {
    let text = text.trim_ascii();
    let digits = |bytes: &[u8]| {
        bytes
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let (whole, rest) = text.split_at(digits(text));
    let (decimals, unit) = match rest.strip_prefix(b".") {
        Some(rest) => rest.split_at(digits(rest)),
        None => (&b""[..], rest),
    };
    let missing = whole.is_empty() || (rest.first() == Some(&b'.') && decimals.is_empty());
    if missing || whole.len() > MOST_DIGITS {
        return None;
    }
    let unit: u64 = match unit {
        b"ms" => 1_000,
        b"" | b"s" => 1_000_000,
        b"m" => 60_000_000,
        b"h" => 3_600_000_000,
        b"d" => 86_400_000_000,
        _ => return None,
    };
    let number = |digits: &[u8]| {
        digits
            .iter()
            .fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'))
    };
    let decimals = &decimals[..decimals.len().min(6)];
    let part = number(decimals) * unit / 10_u64.pow(decimals.len() as u32);
    let micros = number(whole).saturating_mul(unit).saturating_add(part);
    (micros > 0).then(|| Duration::from_micros(micros.min(LONGEST)))
}

/// The kind of hashed value, so that an address never equals a cookie.
const OF_ADDRESS: u8 = 0;
const OF_PART: u8 = 1;

/// The session's cookie where weir does not know another: PHP's `session.name`.
const PHP_SESSION: &str = "PHPSESSID";

/// Maximum number of digits before the decimal point in a client's timeout.
const MOST_DIGITS: usize = 12;

/// Maximum of a client's timeout, µs: a year, as in weir.toml.
const LONGEST: u64 = 366 * 86_400_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn timeout(text: &str) -> Option<u64> {
        parse_timeout(text.as_bytes()).map(|timeout| timeout.as_micros() as u64)
    }

    #[test]
    fn clients_say_seconds_or_a_unit() {
        for (text, micros) in [
            ("2", 2_000_000),
            ("1.5", 1_500_000),
            ("0.000001", 1),
            ("0.0000019", 1),
            ("250ms", 250_000),
            ("0.5ms", 500),
            ("1.5s", 1_500_000),
            ("2m", 120_000_000),
            ("1h", 3_600_000_000),
            (" 3 ", 3_000_000),
            ("999999999999d", LONGEST),
        ] {
            assert_eq!(timeout(text), Some(micros), "{text}");
        }
        for text in [
            "",
            "0",
            "0.0",
            "-1",
            "+1",
            "1.",
            ".5",
            "1e3",
            "1 s",
            "1w",
            "soon",
            "inf",
            "NaN",
            "1,5",
            "0.0000001",
            "9999999999999",
        ] {
            assert_eq!(timeout(text), None, "{text}");
        }
    }

    #[test]
    fn clients_are_told_apart_by_address_and_networks_are_not() {
        let of = |text: &str| client_of_text(text.as_bytes());
        assert_eq!(
            of("192.0.2.1"),
            client_of("::ffff:192.0.2.1".parse().unwrap())
        );
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!((of(""), of("unix:")), (0, 0));
        assert_ne!(of("a name"), 0);
        assert_ne!(keyed(OF_PART, &[192, 0, 2, 1]), of("192.0.2.1"));
    }

    #[test]
    fn of_a_list_of_addresses_the_last_counts() {
        let of = |text: &str| client_of_header(text.as_bytes());
        let address = Some(client_of("192.0.2.1".parse().unwrap()));
        assert_eq!(of("192.0.2.1"), address);
        assert_eq!(of("made up, 198.51.100.9 , 192.0.2.1 "), address);
        assert_eq!(of("2001:db8::1"), of("x,2001:db8::2"));
        assert_eq!((of(""), of("a, ")), (None, None));
        assert_ne!(of("somebody"), of("somebody else"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_time_or_none(text in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(timeout) = parse_timeout(&text) {
                prop_assert!(!timeout.is_zero() && timeout.as_micros() as u64 <= LONGEST);
            }
            let _ = client_of_text(&text);
        }

        #[test]
        fn what_is_written_as_a_number_is_that_number(seconds in 0.001_f64..1e6) {
            let text = format!("{seconds:.6}");
            let got = timeout(&text).unwrap();
            prop_assert!((got as f64 / 1e6 - seconds).abs() < 2e-6, "{text} {got}");
        }
    }
}
