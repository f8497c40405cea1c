//! Writes one line per call: JSON if the access log is JSON, otherwise `egress` and key-value pairs.
//!
//! Both formats have the same keys in the same order in every line. As in the access log, the line is built in a
//! buffer of the thread and given to the shared [`Sink`], which never blocks. Values from a caller or an origin are
//! escaped. A line never has header values, queries or userinfo.

use std::{cell::RefCell, io::Write, net::SocketAddr, sync::Arc, time::Duration};

use http::uri::PathAndQuery;
use weir_config::{LogFormat, Scheme};
use weir_observe::{
    log_sink::Sink,
    log_text::{self as text, JsonMembers},
};

use super::{fault::Kind, origin::Origin, record::CallRecord, target::Form};

/// The log of calls: a format and an output.
pub(crate) struct CallLog {
    json: bool,
    sink: Arc<Sink>,
}

impl CallLog {
    /// A log that writes lines to `sink`. A template of the access log is for requests only; calls are written as
    /// text then.
    pub(crate) fn new(format: &LogFormat, sink: Arc<Sink>) -> CallLog {
        CallLog {
            json: matches!(format, LogFormat::Json),
            sink,
        }
    }

    /// Whether nothing is logged.
    pub(crate) fn is_off(&self) -> bool {
        self.sink.is_off()
    }

    /// Writes the line of a call that has ended. Never blocks.
    pub(crate) fn write(&self, call: &CallRecord) {
        thread_local! {
            static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        if self.is_off() {
            return;
        }
        LINE.with_borrow_mut(|line| {
            line.clear();
            line.shrink_to(KEPT_CAPACITY);
            match self.json {
                true => put_json(call, line),
                false => put_text(call, line),
            }
            self.sink.push(line);
        });
    }
}

fn put_json(call: &CallRecord, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"log\":\"egress\",\"time_iso\":\"");
    text::put_time_iso(call.at + Duration::from_micros(call.total), out);
    out.push(b'"');
    put_members(call, &mut JsonMembers(out));
    out.extend_from_slice(b"}\n");
}

fn put_text(call: &CallRecord, out: &mut Vec<u8>) {
    out.extend_from_slice(b"egress time_iso=");
    text::put_time_iso(call.at + Duration::from_micros(call.total), out);
    put_members(call, &mut Pairs(out));
    out.push(b'\n');
}

/// The fields of both formats.
fn put_members(call: &CallRecord, to: &mut impl Members) {
    let caller = &call.caller;
    to.number("request_id", caller.request);
    to.string("pool", caller.pool.as_deref());
    to.number("pid", caller.pid.map(u64::from));
    match &caller.address {
        Some(address) => to.word("caller", Some(address)),
        None => to.word("caller", Some("unix")),
    }
    to.string("method", Some(call.method.as_str()));
    to.word("origin", call.origin.as_deref());
    to.string("path", call.path.as_ref().map(PathAndQuery::path));
    to.word("form", call.form.map(Form::as_str));
    let left = call.caller_left.then_some(CALLER_LEFT);
    let status = call.status.map(|status| status.as_u16()).or(left);
    to.number("status", status.map(u64::from));
    to.word("reason", call.fault.map(Kind::reason));
    let connection = call.connection.as_ref();
    to.word("address", connection.map(|connection| &connection.address));
    let made = connection.and_then(|connection| connection.made.as_ref());
    to.word(
        "connection",
        connection.map(|connection| match connection.made {
            Some(_) => "new",
            None => "kept",
        }),
    );
    to.word(
        "protocol",
        connection.map(|connection| connection.protocol.as_str()),
    );
    to.seconds("time_dns", made.map(|made| made.dns));
    to.seconds("time_connect", made.map(|made| made.connect));
    to.seconds("time_tls", made.and_then(|made| made.tls));
    let resumed = made.and_then(|made| made.tls.map(|_| made.resumed));
    to.flag("resumed", resumed);
    to.seconds("time_wait", Some(call.waited));
    to.seconds("time_first_byte", call.first_byte);
    to.seconds("time_total", Some(call.total));
    to.number("retries", Some(call.retries.into()));
    to.number("bytes_in", Some(call.bytes_in));
    to.number("bytes_out", Some(call.bytes_out));
    to.word("cache", call.cache.as_str());
    to.flag("caller_left", Some(call.caller_left));
}

/// How a format writes values; `None`: there is no value.
trait Members {
    /// Text from outside.
    fn string(&mut self, key: &str, value: Option<&str>);
    /// A value of letters, digits and the like, which needs no escaping.
    fn word<W: Word + ?Sized>(&mut self, key: &str, value: Option<&W>);
    fn number(&mut self, key: &str, value: Option<u64>);
    fn seconds(&mut self, key: &str, micros: Option<u64>);
    fn flag(&mut self, key: &str, value: Option<bool>);
}

impl Members for JsonMembers<'_> {
    fn string(&mut self, key: &str, value: Option<&str>) {
        self.string(key, value.map(str::as_bytes));
    }

    fn word<W: Word + ?Sized>(&mut self, key: &str, value: Option<&W>) {
        let value = value.map(|value| {
            let mut word = Vec::new();
            value.put(&mut word);
            word
        });
        self.string(key, value.as_deref());
    }

    fn number(&mut self, key: &str, value: Option<u64>) {
        self.number(key, value);
    }

    fn seconds(&mut self, key: &str, micros: Option<u64>) {
        self.seconds(key, micros);
    }

    fn flag(&mut self, key: &str, value: Option<bool>) {
        self.flag(key, value);
    }
}

/// ` key=value`, and `-` for a missing value.
struct Pairs<'a>(&'a mut Vec<u8>);

impl Pairs<'_> {
    // Inlined, so that each key is copied as a constant.
    #[inline(always)]
    fn put<T>(&mut self, key: &str, value: Option<T>, put: impl FnOnce(T, &mut Vec<u8>)) {
        // Written in one step: so there is only one check for room, and the length is known at
        // compile time.
        let mut head = [b' '; LONGEST_KEY + 3];
        let end = key.len() + 1;
        head[1..end].copy_from_slice(key.as_bytes());
        head[end] = b'=';
        match value {
            Some(value) => {
                self.0.extend_from_slice(&head[..=end]);
                put(value, self.0);
            }
            None => {
                head[end + 1] = b'-';
                self.0.extend_from_slice(&head[..=end + 1]);
            }
        }
    }
}

impl Members for Pairs<'_> {
    #[inline(always)]
    fn string(&mut self, key: &str, value: Option<&str>) {
        self.put(key, value.map(str::as_bytes), text::put_value);
    }

    #[inline(always)]
    fn word<W: Word + ?Sized>(&mut self, key: &str, value: Option<&W>) {
        self.put(key, value, W::put);
    }

    #[inline(always)]
    fn number(&mut self, key: &str, value: Option<u64>) {
        self.put(key, value, text::put_number);
    }

    #[inline(always)]
    fn seconds(&mut self, key: &str, micros: Option<u64>) {
        self.put(key, micros, text::put_seconds_micros);
    }

    #[inline(always)]
    fn flag(&mut self, key: &str, value: Option<bool>) {
        self.put(key, value, |value, out| {
            out.extend_from_slice(if value { b"yes" } else { b"no" });
        });
    }
}

/// A value of letters, digits and the like.
trait Word {
    fn put(&self, out: &mut Vec<u8>);
}

impl Word for str {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl Word for SocketAddr {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            SocketAddr::V4(address) => {
                let (mut digits, mut end) = ([0; "255.255.255.255:".len()], 0);
                let mut put = |byte| {
                    digits[end] = byte;
                    end += 1;
                };
                for (octet, behind) in address.ip().octets().into_iter().zip(*b"...:") {
                    if octet >= 100 {
                        put(b'0' + octet / 100);
                    }
                    if octet >= 10 {
                        put(b'0' + octet / 10 % 10);
                    }
                    put(b'0' + octet % 10);
                    put(behind);
                }
                out.extend_from_slice(&digits[..end]);
                text::put_number(address.port().into(), out);
            }
            SocketAddr::V6(_) => {
                // It takes all.
                let _ = write!(out, "{self}");
            }
        }
    }
}

/// As a URL without a path; the port only if it is not the scheme's default. A host has no other characters: `target`
/// refuses them.
impl Word for Origin {
    fn put(&self, out: &mut Vec<u8>) {
        match self.scheme {
            Scheme::Https => out.extend_from_slice(b"https://"),
            Scheme::Http => out.extend_from_slice(b"http://"),
        }
        let is_v6 = memchr::memchr(b':', self.host.as_bytes()).is_some();
        if is_v6 {
            out.push(b'[');
        }
        out.extend_from_slice(self.host.as_bytes());
        if is_v6 {
            out.push(b']');
        }
        if self.port != self.scheme.default_port() {
            out.push(b':');
            text::put_number(self.port.into(), out);
        }
    }
}

/// The longest key has so many bytes.
const LONGEST_KEY: usize = "time_first_byte".len();

/// The status of a call whose caller left before there was an answer, as in the access log.
const CALLER_LEFT: u16 = 499;

/// A thread keeps a line buffer of up to this many bytes. A buffer that grew for a very long path is freed.
const KEPT_CAPACITY: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::{
        fault::Kind,
        figures::tests::{call, connection, origin},
        record::{CacheUse, Caller},
    };

    fn example() -> CallRecord {
        CallRecord {
            caller: Caller {
                address: Some("127.0.0.1:50000".parse().expect("an address")),
                pid: Some(4711),
                pool: Some("shop".into()),
                request: Some(42),
            },
            ..call(&origin(Scheme::Https, "api.example.com", 443))
        }
    }

    /// A call with as few known values as possible.
    fn nothing() -> CallRecord {
        CallRecord {
            origin: None,
            path: None,
            form: None,
            status: None,
            connection: None,
            first_byte: None,
            caller_left: true,
            caller: Caller::default(),
            ..example()
        }
    }

    fn written(put: impl FnOnce(&CallRecord, &mut Vec<u8>), call: &CallRecord) -> String {
        let mut out = Vec::new();
        put(call, &mut out);
        String::from_utf8(out).expect("a log is UTF-8")
    }

    /// The line without its time, which depends on the time zone.
    fn text_of(call: &CallRecord) -> String {
        let line = written(put_text, call);
        let (time, rest) = line.split_once(" request_id=").expect("a number");
        assert!(time.starts_with("egress time_iso=20"), "{line}");
        assert!(rest.ends_with('\n'));
        rest.trim_end().to_owned()
    }

    #[test]
    fn a_line_of_text() {
        assert_eq!(
            text_of(&example()),
            "42 pool=shop pid=4711 caller=127.0.0.1:50000 method=GET origin=https://api.example.com path=/v1/x \
             form=path status=200 reason=- address=192.0.2.7:443 connection=new protocol=h2 time_dns=0.001000 \
             time_connect=0.002000 time_tls=0.003000 resumed=no time_wait=0.000000 time_first_byte=0.012345 \
             time_total=0.013000 retries=0 bytes_in=10 bytes_out=2000 cache=- caller_left=no"
        );
        let kept = CallRecord {
            status: Some(StatusCode::BAD_GATEWAY),
            fault: Some(Kind::Terminated),
            connection: Some(connection(false)),
            cache: CacheUse::Miss,
            caller: Caller::default(),
            ..example()
        };
        let line = text_of(&kept);
        for pairs in [
            "- pool=- pid=- caller=unix method=GET",
            "status=502 reason=terminated",
            "connection=kept protocol=h2 time_dns=- time_connect=- time_tls=- resumed=- ",
            "cache=miss",
        ] {
            assert!(line.contains(pairs), "{pairs}: {line}");
        }
        assert!(text_of(&nothing()).contains("origin=- path=- form=- status=499 reason=- "));
    }

    #[test]
    fn a_line_of_json_has_the_same_keys_always() {
        let parsed = |call| -> Value {
            serde_json::from_str(&written(put_json, &call)).expect("a line is JSON")
        };
        let (full, empty) = (parsed(example()), parsed(nothing()));
        let keys = |value: &Value| -> Vec<String> {
            value
                .as_object()
                .expect("an object")
                .keys()
                .cloned()
                .collect()
        };
        assert_eq!(keys(&full), keys(&empty));
        assert_eq!(full["log"], "egress");
        assert_eq!(full["request_id"], 42);
        assert_eq!(full["origin"], "https://api.example.com");
        assert_eq!(full["time_tls"], 0.003);
        assert_eq!(full["resumed"], false);
        assert_eq!(full["time_first_byte"], 0.012345);
        assert_eq!(empty["resumed"], Value::Null);
        assert_eq!(empty["status"], 499);
        assert_eq!(empty["caller_left"], true);
        // A text line has the same keys.
        let text = written(put_text, &nothing());
        for key in keys(&full).iter().filter(|key| *key != "log") {
            assert!(text.contains(&format!(" {key}=")), "{key}: {text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_comes_from_outside_ends_a_line_or_makes_a_pair(path in "/[!$-;=@-Z\\[\\]^_a-z|~\u{e4}\u{6f22}]{0,40}", method in "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}") {
            let call = CallRecord {
                path: Some(PathAndQuery::try_from(path.as_str()).expect("a path")),
                method: method.parse().expect("a token"),
                ..example()
            };
            let line = written(put_text, &call);
            prop_assert_eq!(line.matches('\n').count(), 1);
            prop_assert!(line.chars().all(|c| c == '\n' || !c.is_control()));
            let behind = line.rsplit(" form=").next().expect("a form");
            prop_assert!(behind.starts_with("path status=200 "), "{}", line);
            let line = written(put_json, &call);
            let parsed: Value = serde_json::from_str(&line).expect("a line is JSON");
            prop_assert_eq!(parsed["path"].as_str(), Some(path.as_str()));
        }
    }

    #[test]
    fn addresses_and_origins_are_written_as_everywhere() {
        for text in [
            "127.0.0.1:80",
            "255.10.0.9:65535",
            "[2001:db8::1]:443",
            "[::ffff:192.0.2.1]:1",
            "[fe80::1%3]:80",
        ] {
            let address: SocketAddr = text.parse().expect("an address");
            let mut written = Vec::new();
            address.put(&mut written);
            assert_eq!(written, text.as_bytes());
        }
        for (scheme, host, port) in [
            (Scheme::Https, "api.example", 443),
            (Scheme::Https, "api.example", 80),
            (Scheme::Http, "2001:db8::1", 80),
            (Scheme::Http, "2001:db8::1", 8080),
        ] {
            let origin = origin(scheme, host, port);
            let mut written = Vec::new();
            origin.put(&mut written);
            assert_eq!(written, origin.to_string().as_bytes());
        }
    }

    #[test]
    fn long_names_are_written_whole() {
        let name = "a".repeat(253);
        let call = call(&origin(Scheme::Https, &name, 65_535));
        assert!(text_of(&call).contains(&format!("origin=https://{name}:65535 ")));
    }
}
