//! Writes one line per request: combined, JSON, or a template.
//!
//! The line is built in a buffer of the thread, which gives it to the shared [`Sink`] together with others
//! ([`crate::log_sink::blocks`]) and never waits for it. Values from the
//! client or the worker are escaped for the format, so that no value can end its field or its line.

use std::sync::Arc;
use std::time::SystemTime;

use crate::cache_use::CacheUse;
use crate::log_sink::Sink;
use crate::log_text::{self as text, Worker};
use weir_config::{LogFormat, Piece, Template, Variable};

use crate::template::Variables;

/// The values of one log line. All times are in microseconds.
pub struct Entry<'a> {
    /// When the line is written, as in nginx: the end of the request.
    pub time: SystemTime,
    /// Number of the request in this process, as the error log and the trace name it.
    pub request_id: u64,
    /// The client's address without port, as in REMOTE_ADDR.
    pub remote_addr: &'a str,
    /// The address that the connection comes from: the same, or a proxy's.
    pub peer_addr: &'a str,
    /// The user name that the client sent with HTTP authentication.
    pub remote_user: Option<&'a [u8]>,
    /// The method; empty if no request head could be read. `uri` and `protocol` are empty then, too.
    pub method: &'a str,
    /// Path and query as received.
    pub uri: &'a [u8],
    /// `HTTP/1.1`
    pub protocol: &'static str,
    /// The requested host.
    pub host: &'a [u8],
    /// Status of the answer; 499 if the client left before there was one.
    pub status: u16,
    /// Body bytes from the client.
    pub bytes_in: u64,
    /// Body bytes to the client.
    pub bytes_out: u64,
    /// The coding with which weir has compressed the answer.
    pub compression: Option<&'a str>,
    /// Body bytes before compression, if weir has compressed the answer.
    pub bytes_uncompressed: Option<u64>,
    /// What the cache had for the request, if its site has one.
    pub cache: Option<CacheUse>,
    /// The TLS of the connection, if it has TLS.
    pub tls: Option<Tls<'a>>,
    /// The Referer header.
    pub referer: Option<&'a [u8]>,
    /// The User-Agent header.
    pub user_agent: Option<&'a [u8]>,
    /// Name of the site; `None` if no site matched the request.
    pub site: Option<&'a str>,
    /// Name of the pool, if the request was for one.
    pub pool: Option<&'a str>,
    /// The worker that got the request last.
    pub worker: Option<Worker<'a>>,
    /// From the first byte of the request to the end of its head.
    pub time_head: u64,
    /// From the end of the head to the end of the body; `None` without a body, and if it did not come as a whole.
    pub time_body: Option<u64>,
    /// Time in the queue; `None` if the request was for no pool.
    pub time_queue: Option<u64>,
    /// From dispatch to the first byte of the worker, if there was one.
    pub time_first_byte: Option<u64>,
    /// From the first byte of the request to the last byte of the answer.
    pub time_total: u64,
    /// Length of the pool's queue when the request arrived.
    pub queue: Option<u64>,
    /// How often the request was given to another worker.
    pub retries: u32,
    /// The request's priority in the queue, lower first; `None` if the request was for no pool.
    pub priority: Option<i16>,
    /// From the first byte of the request to its deadline, if it has one.
    pub time_limit: Option<u64>,
    /// Why the answer is an error.
    pub reason: Option<&'a str>,
    /// Everything else that a template can use: the request's headers, path, script, ….
    pub request: &'a dyn Variables,
}

/// The TLS of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Tls<'a> {
    /// `TLSv1.3`
    pub protocol: &'a str,
    /// `TLS_AES_128_GCM_SHA256`
    pub cipher: &'a str,
    /// The client continued an earlier session.
    pub is_resumed: bool,
    /// The host name that the client asked for.
    pub server_name: Option<&'a str>,
}

/// The access log: a format and an output.
pub struct AccessLog {
    format: Format,
    sink: Arc<Sink>,
}

impl AccessLog {
    /// A log that writes lines in `format` to `sink`.
    pub fn new(format: LogFormat, sink: Arc<Sink>) -> Self {
        let format = match format {
            LogFormat::Combined => Format::Combined,
            LogFormat::Json => Format::Json,
            LogFormat::Template(template) => Format::Template(one_line(template)),
        };
        Self { format, sink }
    }

    /// Whether nothing is logged. Then the caller need not build an entry.
    pub fn is_off(&self) -> bool {
        self.sink.is_off()
    }

    /// The output, for reopening and flushing, and for others that write to the same place.
    pub fn sink(&self) -> &Arc<Sink> {
        &self.sink
    }

    /// Writes the line of a request. Never blocks.
    pub fn write(&self, entry: &Entry<'_>) {
        self.sink.put_line(|line| self.put_line(entry, line));
    }

    /// Appends the line of a request with its newline.
    pub fn put_line(&self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        match &self.format {
            Format::Combined => put_combined(entry, out),
            Format::Json => put_json(entry, out),
            Format::Template(template) => put_template(template, entry, out),
        }
        out.push(b'\n');
    }
}

enum Format {
    Combined,
    Json,
    /// Without line breaks.
    Template(Template),
}

/// Removes line breaks from the template, because a log line must be one line: a break at the end is dropped
/// (multi-line strings in TOML end with one), others become spaces.
fn one_line(mut template: Template) -> Template {
    if let Some(Piece::Text(last)) = template.pieces.last_mut() {
        last.truncate(last.trim_end_matches(['\r', '\n']).len());
    }
    for piece in &mut template.pieces {
        if let Piece::Text(text) = piece {
            *text = text.replace("\r\n", " ").replace(['\r', '\n'], " ");
        }
    }
    template
}

/// Apache's `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`, byte by byte as nginx writes it.
fn put_combined(entry: &Entry<'_>, out: &mut Vec<u8>) {
    text::put_escaped(entry.remote_addr.as_bytes(), out);
    out.extend_from_slice(b" - ");
    match entry.remote_user {
        // A space would shift all following fields.
        Some(user) if !user.is_empty() => put_word(user, out),
        _ => out.push(b'-'),
    }
    out.extend_from_slice(b" [");
    text::put_time_combined(entry.time, out);
    out.extend_from_slice(b"] \"");
    if entry.method.is_empty() {
        out.push(b'-');
    } else {
        text::put_escaped(entry.method.as_bytes(), out);
        out.push(b' ');
        text::put_escaped(entry.uri, out);
        out.push(b' ');
        out.extend_from_slice(entry.protocol.as_bytes());
    }
    out.extend_from_slice(b"\" ");
    text::put_number(entry.status.into(), out);
    out.push(b' ');
    text::put_number(entry.bytes_out, out);
    out.extend_from_slice(b" \"");
    match entry.referer {
        Some(referer) => text::put_escaped(referer, out),
        None => out.push(b'-'),
    }
    out.extend_from_slice(b"\" \"");
    match entry.user_agent {
        Some(agent) => text::put_escaped(agent, out),
        None => out.push(b'-'),
    }
    out.push(b'"');
}

/// One object with all fields. Missing values are null, so that all lines have the same keys. Times are in seconds as
/// in templates, but keep their microseconds. A worker is always text: a pid, or the address of a server.
fn put_json(entry: &Entry<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time_iso\":\"");
    text::put_time_iso(entry.time, out);
    out.push(b'"');
    let mut object = text::JsonMembers(out);
    object.number("request_id", Some(entry.request_id));
    object.string("remote_addr", Some(entry.remote_addr.as_bytes()));
    object.string("remote_user", entry.remote_user);
    object.string("method", Some(entry.method.as_bytes()));
    object.string("uri", Some(entry.uri));
    object.string("protocol", Some(entry.protocol.as_bytes()));
    object.string("host", Some(entry.host));
    object.number("status", Some(entry.status.into()));
    object.number("bytes_in", Some(entry.bytes_in));
    object.number("bytes_out", Some(entry.bytes_out));
    object.string("http_referer", entry.referer);
    object.string("http_user_agent", entry.user_agent);
    object.string("site", entry.site.map(str::as_bytes));
    object.string("pool", entry.pool.map(str::as_bytes));
    match entry.worker {
        Some(Worker::Pid(pid)) => {
            object.string("worker", Some(itoa::Buffer::new().format(pid).as_bytes()))
        }
        Some(Worker::Server(address)) => object.string("worker", Some(address.as_bytes())),
        None => object.string("worker", None),
    }
    object.seconds("time_head", Some(entry.time_head));
    object.seconds("time_body", entry.time_body);
    object.seconds("time_queue", entry.time_queue);
    object.seconds("time_first_byte", entry.time_first_byte);
    object.seconds("time_total", Some(entry.time_total));
    object.number("queue", entry.queue);
    object.number("retries", Some(entry.retries.into()));
    object.string("reason", entry.reason.map(str::as_bytes));
    object.signed("priority", entry.priority);
    object.seconds("time_limit", entry.time_limit);
    object.string("peer_addr", Some(entry.peer_addr.as_bytes()));
    object.string("compression", entry.compression.map(str::as_bytes));
    object.number("bytes_uncompressed", entry.bytes_uncompressed);
    put_json_tls(entry.tls, &mut object);
    let cache = entry.cache.map(CacheUse::word);
    object.string("cache", cache.map(str::as_bytes));
    out.push(b'}');
}

fn put_json_tls(tls: Option<Tls<'_>>, object: &mut text::JsonMembers<'_>) {
    object.string("ssl_protocol", tls.map(|tls| tls.protocol.as_bytes()));
    object.string("ssl_cipher", tls.map(|tls| tls.cipher.as_bytes()));
    object.flag("ssl_session_reused", tls.map(|tls| tls.is_resumed));
    let server_name = tls.and_then(|tls| tls.server_name);
    object.string("ssl_server_name", server_name.map(str::as_bytes));
}

/// Like `template::render`, but every value is escaped, and a missing one is `-`.
fn put_template(template: &Template, entry: &Entry<'_>, out: &mut Vec<u8>) {
    for piece in &template.pieces {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Variable(variable) => {
                let start = out.len();
                entry.put(variable, out);
                if out.len() == start {
                    out.push(b'-');
                } else if text::needs_escape(&out[start..]) {
                    let value = out.split_off(start);
                    text::put_escaped(&value, out);
                }
            }
        }
    }
}

impl Variables for Entry<'_> {
    fn put(&self, variable: &Variable, out: &mut Vec<u8>) {
        let mut put = |value: &[u8]| out.extend_from_slice(value);
        match variable {
            Variable::Method => put(self.method.as_bytes()),
            Variable::Host => put(self.host),
            Variable::Uri => put(self.uri),
            Variable::Protocol => put(self.protocol.as_bytes()),
            Variable::RemoteAddr => put(self.remote_addr.as_bytes()),
            Variable::RemoteUser => put(self.remote_user.unwrap_or_default()),
            Variable::Site => put(self.site.unwrap_or_default().as_bytes()),
            Variable::Pool => put(self.pool.unwrap_or_default().as_bytes()),
            Variable::Reason => put(self.reason.unwrap_or_default().as_bytes()),
            Variable::Time => text::put_time_combined(self.time, out),
            Variable::TimeIso => text::put_time_iso(self.time, out),
            Variable::Status => text::put_number(self.status.into(), out),
            Variable::BytesIn => text::put_number(self.bytes_in, out),
            Variable::BytesOut => text::put_number(self.bytes_out, out),
            Variable::Compression => put(self.compression.unwrap_or_default().as_bytes()),
            Variable::BytesUncompressed => put_if(self.bytes_uncompressed, text::put_number, out),
            Variable::Cache => put(self.cache.map_or("", CacheUse::word).as_bytes()),
            Variable::TimeHead => text::put_seconds_millis(self.time_head, out),
            Variable::TimeTotal => text::put_seconds_millis(self.time_total, out),
            Variable::TimeBody => put_if(self.time_body, text::put_seconds_millis, out),
            Variable::TimeQueue => put_if(self.time_queue, text::put_seconds_millis, out),
            Variable::TimeFirstByte => put_if(self.time_first_byte, text::put_seconds_millis, out),
            Variable::QueueLength => put_if(self.queue, text::put_number, out),
            Variable::Worker => match self.worker {
                Some(Worker::Pid(pid)) => text::put_number(pid.into(), out),
                Some(Worker::Server(address)) => put(address.as_bytes()),
                None => {}
            },
            Variable::RequestId => text::put_number(self.request_id, out),
            Variable::Retries => text::put_number(self.retries.into(), out),
            Variable::Priority => put_if(self.priority, text::put_signed, out),
            Variable::TimeLimit => put_if(self.time_limit, text::put_seconds_millis, out),
            Variable::Scheme
            | Variable::Path
            | Variable::Query
            | Variable::Args
            | Variable::PeerAddr
            | Variable::RemotePort
            | Variable::ServerAddr
            | Variable::ServerPort
            | Variable::DocumentRoot
            | Variable::ScriptName
            | Variable::PathInfo
            | Variable::Tls(_)
            | Variable::Header(_) => self.request.put(variable, out),
        }
    }
}

fn put_if<T>(value: Option<T>, put: impl FnOnce(T, &mut Vec<u8>), out: &mut Vec<u8>) {
    if let Some(value) = value {
        put(value, out);
    }
}

/// Writes a value whose field ends with a space.
fn put_word(value: &[u8], out: &mut Vec<u8>) {
    for (at, word) in value.split(|&byte| byte == b' ').enumerate() {
        if at > 0 {
            out.extend_from_slice(b"\\x20");
        }
        text::put_escaped(word, out);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;
    use regex::bytes::Regex;
    use serde_json::Value;

    use super::*;
    use crate::log_sink::{Options, Target};

    /// Returns the same bytes for every variable that is not part of the entry.
    struct Same<'a>(&'a [u8]);

    impl Variables for Same<'_> {
        fn put(&self, _: &Variable, out: &mut Vec<u8>) {
            out.extend_from_slice(self.0);
        }
    }

    fn entry<'a>() -> Entry<'a> {
        Entry {
            time: UNIX_EPOCH + Duration::from_micros(1_795_176_840_123_456),
            request_id: 42,
            remote_addr: "203.0.113.7",
            peer_addr: "10.0.0.7",
            remote_user: None,
            method: "GET",
            uri: b"/a?b=c",
            protocol: "HTTP/1.1",
            host: b"shop.example",
            status: 200,
            bytes_in: 12,
            bytes_out: 3456,
            compression: Some("zstd"),
            bytes_uncompressed: Some(20_000),
            cache: Some(CacheUse::Stale),
            tls: Some(Tls {
                protocol: "TLSv1.3",
                cipher: "TLS_AES_128_GCM_SHA256",
                is_resumed: false,
                server_name: Some("shop.example"),
            }),
            referer: None,
            user_agent: Some(b"curl/8.0"),
            site: Some("shop"),
            pool: Some("shop"),
            worker: Some(Worker::Pid(1234)),
            time_head: 51,
            time_body: Some(14_000_000),
            time_queue: Some(1_200),
            time_first_byte: Some(5_000_001),
            time_total: 5_010_000,
            queue: Some(3),
            retries: 1,
            priority: Some(-5),
            time_limit: Some(2_000_000),
            reason: None,
            request: &Same(b"asked"),
        }
    }

    fn line(format: LogFormat, entry: &Entry<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        AccessLog::new(format, Arc::new(Sink::off())).put_line(entry, &mut out);
        out
    }

    fn combined(entry: &Entry<'_>) -> String {
        String::from_utf8(line(LogFormat::Combined, entry)).expect("ASCII")
    }

    fn template(pieces: Vec<Piece>) -> LogFormat {
        LogFormat::Template(Template { pieces })
    }

    /// A pattern that reads the combined format as log readers do.
    fn combined_pattern() -> Regex {
        Regex::new(concat!(
            r#"(?-u)^([^ \n]+) - ([^ \n]+) \[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "#,
            r#""(-|[^"\n]*)" (\d{3}) (\d+) "([^"\n]*)" "([^"\n]*)"\n$"#
        ))
        .expect("a pattern")
    }

    #[test]
    fn combined_line() {
        let mut time = Vec::new();
        text::put_time_combined(entry().time, &mut time);
        let time = String::from_utf8(time).expect("ASCII");
        assert!(combined_pattern().is_match(combined(&entry()).as_bytes()));
        assert_eq!(
            combined(&entry()),
            format!(
                "203.0.113.7 - - [{time}] \"GET /a?b=c HTTP/1.1\" 200 3456 \"-\" \"curl/8.0\"\n"
            )
        );
        let hostile = Entry {
            remote_user: Some(b"J\xf6 \"x\""),
            uri: b"/\"\\\n\xff",
            referer: Some(b""),
            user_agent: Some(b"a\" 200 1 \"forged"),
            ..entry()
        };
        assert_eq!(
            combined(&hostile),
            format!(
                "203.0.113.7 - J\\xF6\\x20\\x22x\\x22 [{time}] \"GET /\\x22\\x5C\\x0A\\xFF HTTP/1.1\" 200 3456 \"\" \
                 \"a\\x22 200 1 \\x22forged\"\n"
            )
        );
        let headless = Entry {
            method: "",
            uri: b"",
            protocol: "",
            status: 400,
            bytes_out: 0,
            ..entry()
        };
        assert!(
            combined(&headless).contains("] \"-\" 400 0 \"-\""),
            "{}",
            combined(&headless)
        );
    }

    #[test]
    fn json_line() {
        let text = line(LogFormat::Json, &entry());
        let value: Value = serde_json::from_slice(&text).expect("valid JSON");
        let mut iso = Vec::new();
        text::put_time_iso(entry().time, &mut iso);
        let expected = serde_json::json!({
            "time_iso": String::from_utf8(iso).expect("ASCII"),
            "request_id": 42, "remote_addr": "203.0.113.7", "remote_user": null,
            "method": "GET", "uri": "/a?b=c", "protocol": "HTTP/1.1", "host": "shop.example",
            "status": 200, "bytes_in": 12, "bytes_out": 3456,
            "http_referer": null, "http_user_agent": "curl/8.0",
            "site": "shop", "pool": "shop", "worker": "1234",
            "time_head": 0.000051, "time_body": 14.0, "time_queue": 0.0012, "time_first_byte": 5.000001, "time_total": 5.01,
            "queue": 3, "retries": 1, "reason": null, "priority": -5, "time_limit": 2.0, "peer_addr": "10.0.0.7",
            "compression": "zstd", "bytes_uncompressed": 20_000, "ssl_protocol": "TLSv1.3",
            "ssl_cipher": "TLS_AES_128_GCM_SHA256", "ssl_session_reused": false, "ssl_server_name": "shop.example",
            "cache": "stale",
        });
        assert_eq!(value, expected);
        let shed = Entry {
            worker: None,
            time_first_byte: None,
            reason: Some("queue_full"),
            compression: None,
            bytes_uncompressed: None,
            cache: None,
            tls: None,
            uri: b"/\"\\\n\xff\xc3\xa4",
            ..entry()
        };
        let value: Value =
            serde_json::from_slice(&line(LogFormat::Json, &shed)).expect("valid JSON");
        assert_eq!(value["worker"], Value::Null);
        assert_eq!(value["time_first_byte"], Value::Null);
        assert_eq!(value["reason"], "queue_full");
        for absent in [
            "compression",
            "bytes_uncompressed",
            "ssl_protocol",
            "ssl_cipher",
            "ssl_session_reused",
            "cache",
        ] {
            assert_eq!(value.get(absent), Some(&Value::Null), "{absent}");
        }
        assert_eq!(value["uri"], "/\"\\\n\\xFFä");
    }

    #[test]
    fn template_line() {
        use Variable::*;
        let names = [
            Method,
            Scheme,
            Host,
            Uri,
            Protocol,
            RemoteAddr,
            Site,
            Pool,
            Header("x-a".into()),
            Status,
            BytesIn,
            BytesOut,
            TimeHead,
            TimeBody,
            TimeQueue,
            TimeFirstByte,
            TimeTotal,
            Worker,
            QueueLength,
            Reason,
            RequestId,
            Retries,
            Priority,
            TimeLimit,
            Compression,
            BytesUncompressed,
            Cache,
        ];
        let pieces = names
            .into_iter()
            .flat_map(|name| [Piece::Variable(name), Piece::Text("\t|\n".into())])
            .collect();
        let with_worker = Entry {
            worker: Some(super::Worker::Server("10.0.0.5:9000")),
            ..entry()
        };
        assert_eq!(
            String::from_utf8(line(template(pieces), &with_worker)).expect("ASCII"),
            "GET\t| asked\t| shop.example\t| /a?b=c\t| HTTP/1.1\t| 203.0.113.7\t| shop\t| shop\t| asked\t| 200\t| 12\t| \
             3456\t| 0.000\t| 14.000\t| 0.001\t| 5.000\t| 5.010\t| 10.0.0.5:9000\t| 3\t| -\t| 42\t| 1\t| -5\t| 2.000\t| zstd\t| 20000\t| stale\t|\n"
        );
        let hostile = Entry {
            request: &Same(b"a\"\nb"),
            ..entry()
        };
        let pieces = vec![
            Piece::Text("\"".into()),
            Piece::Variable(Header("x-a".into())),
            Piece::Text("\"".into()),
        ];
        assert_eq!(line(template(pieces), &hostile), b"\"a\\x22\\x0Ab\"\n");
    }

    #[test]
    fn lines_reach_the_sink() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let file = fs::File::create(&path).expect("a file");
        let sink = Arc::new(
            Sink::start("test", Target::Fd(file.into()), Options::default()).expect("a sink"),
        );
        let log = AccessLog::new(LogFormat::Combined, Arc::clone(&sink));
        let long = vec![b'x'; 100_000];
        let entries = [
            entry(),
            Entry {
                uri: &long,
                ..entry()
            },
            entry(),
        ];
        for entry in &entries {
            log.write(entry);
        }
        assert!(log.sink().flush(Duration::from_secs(30)));
        let expected: String = entries.iter().map(combined).collect();
        assert!(fs::read_to_string(&path).expect("text") == expected);
    }

    proptest! {
        #[test]
        fn no_value_breaks_a_line(
            user: Vec<u8>, uri: Vec<u8>, host: Vec<u8>, referer: Option<Vec<u8>>, agent: Vec<u8>,
            method: String, server: String, header: Vec<u8>, numbers: [u64; 4],
        ) {
            let entry = Entry {
                remote_user: Some(&user),
                method: &method,
                uri: &uri,
                host: &host,
                referer: referer.as_deref(),
                user_agent: Some(&agent),
                worker: Some(Worker::Server(&server)),
                site: Some(&server),
                reason: Some(&method),
                bytes_in: numbers[0],
                bytes_out: numbers[1],
                time_total: numbers[2],
                time_queue: Some(numbers[3]),
                request: &Same(&header),
                ..entry()
            };
            let combined = line(LogFormat::Combined, &entry);
            prop_assert!(combined_pattern().is_match(&combined), "{}", combined.escape_ascii());

            let json = line(LogFormat::Json, &entry);
            prop_assert_eq!(memchr::memchr_iter(b'\n', &json).count(), 1);
            let value: Value = serde_json::from_slice(&json)?;
            prop_assert_eq!(value.as_object().map(|object| object.len()), Some(34));
            prop_assert_eq!(value["method"].as_str(), Some(method.as_str()));
            prop_assert_eq!(value["bytes_out"].as_u64(), Some(numbers[1]));
            if let Ok(agent) = std::str::from_utf8(&agent) {
                prop_assert_eq!(value["http_user_agent"].as_str(), Some(agent));
            }

            let variables = [Variable::Uri, Variable::Host, Variable::Worker, Variable::Header("x-a".into())];
            let count = variables.len();
            let pieces = variables.into_iter().flat_map(|name| [
                Piece::Text("\"".into()), Piece::Variable(name), Piece::Text("\"".into())
            ]).collect();
            let templated = line(template(pieces), &entry);
            prop_assert!(templated[..templated.len() - 1].iter().all(|byte| (0x20..0x7f).contains(byte)));
            prop_assert_eq!(memchr::memchr_iter(b'"', &templated).count(), count * 2);
        }
    }
}
