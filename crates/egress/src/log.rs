//! Writes one line per call: JSON if the access log is JSON, otherwise `egress` and key-value pairs.
//!
//! Both formats have the same keys in the same order in every line. As in the access log, the line is built in a
//! buffer of the thread and given to the shared [`Sink`], which never blocks. Values from a caller or an origin are
//! escaped. A line never has header values, queries or userinfo.

use std::{cell::RefCell, io::Write, sync::Arc, time::Duration};

use http::uri::PathAndQuery;
use weir_config::LogFormat;
use weir_observe::{
    log_sink::Sink,
    log_text::{self as text, JsonMembers},
};

use super::record::{CallRecord, Connection};

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
        Some(address) => with_text(address, |address| to.string("caller", Some(address))),
        None => to.string("caller", Some("unix")),
    }
    to.string("method", Some(call.method.as_str()));
    match &call.origin {
        Some(origin) => with_text(&**origin, |origin| to.string("origin", Some(origin))),
        None => to.string("origin", None),
    }
    to.string("path", call.path.as_ref().map(PathAndQuery::path));
    to.string("form", call.form.map(|form| form.as_str()));
    let left = call.caller_left.then_some(CALLER_LEFT);
    let status = call.status.map(|status| status.as_u16()).or(left);
    to.number("status", status.map(u64::from));
    to.string("reason", call.fault.map(|kind| kind.reason()));
    let connection = call.connection.as_ref();
    match connection {
        Some(Connection { address, .. }) => {
            with_text(address, |address| to.string("address", Some(address)));
        }
        None => to.string("address", None),
    }
    let made = connection.and_then(|connection| connection.made.as_ref());
    to.string(
        "connection",
        connection.map(|connection| match connection.made {
            Some(_) => "new",
            None => "kept",
        }),
    );
    to.string("protocol", connection.map(|c| c.protocol.as_str()));
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
    to.string("cache", call.cache.as_str());
    to.flag("caller_left", Some(call.caller_left));
}

/// How a format writes values; `None`: there is no value.
trait Members {
    fn string(&mut self, key: &str, value: Option<&str>);
    fn number(&mut self, key: &str, value: Option<u64>);
    fn seconds(&mut self, key: &str, micros: Option<u64>);
    fn flag(&mut self, key: &str, value: Option<bool>);
}

impl Members for JsonMembers<'_> {
    fn string(&mut self, key: &str, value: Option<&str>) {
        self.string(key, value.map(str::as_bytes));
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
    fn put<T>(&mut self, key: &str, value: Option<T>, put: impl FnOnce(T, &mut Vec<u8>)) {
        self.0.push(b' ');
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
        match value {
            Some(value) => put(value, self.0),
            None => self.0.push(b'-'),
        }
    }
}

impl Members for Pairs<'_> {
    fn string(&mut self, key: &str, value: Option<&str>) {
        self.put(key, value.map(str::as_bytes), text::put_value);
    }

    fn number(&mut self, key: &str, value: Option<u64>) {
        self.put(key, value, text::put_number);
    }

    fn seconds(&mut self, key: &str, micros: Option<u64>) {
        self.put(key, micros, text::put_seconds_micros);
    }

    fn flag(&mut self, key: &str, value: Option<bool>) {
        self.put(key, value, |value, out| {
            out.extend_from_slice(if value { b"yes" } else { b"no" });
        });
    }
}

/// A short value as text, without an allocation. Longer values are cut; no host name is that long.
fn with_text<T>(value: &impl std::fmt::Display, then: impl FnOnce(&str) -> T) -> T {
    let mut space = [0; LONGEST_ORIGIN];
    let mut left = &mut space[..];
    let _ = write!(left, "{value}");
    let written = LONGEST_ORIGIN - left.len();
    let text = &space[..written];
    then(match str::from_utf8(text) {
        Ok(text) => text,
        // It was cut within a character.
        Err(error) => str::from_utf8(&text[..error.valid_up_to()]).unwrap_or_default(),
    })
}

/// `https://`, a name of 253 bytes (RFC 1035 §3.1), a port.
const LONGEST_ORIGIN: usize = 8 + 255 + 6;

/// The status of a call whose caller left before there was an answer, as in the access log.
const CALLER_LEFT: u16 = 499;

/// A thread keeps a line buffer of up to this many bytes. A buffer that grew for a very long path is freed.
const KEPT_CAPACITY: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use proptest::prelude::*;
    use serde_json::Value;
    use weir_config::Scheme;

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
    fn long_names_are_written_whole() {
        let name = "a".repeat(253);
        let call = call(&origin(Scheme::Https, &name, 65_535));
        assert!(text_of(&call).contains(&format!("origin=https://{name}:65535 ")));
    }
}
