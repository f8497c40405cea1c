//! PHP-FPM's status page (`status_path`) and the array of `fpm_get_status()`: their values and formats.
//!
//! Keys, order, layout and types are those of PHP-FPM 8.2, so that tools that read its pages can read these. If the
//! pool runs PHP 8.4 or newer, `memory peak` of 8.4 is added at the end. Values from clients are escaped for each
//! format, also where PHP-FPM does not do that.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::log_text::{put_json_string, put_message, put_number, put_time_combined};

/// The figures of a pool in PHP-FPM's status page.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolStatus {
    /// The pool's NAME.
    pub name: String,
    /// `static`, `dynamic`, `ondemand` or `auto`; `servers` if others run the workers.
    pub pm: &'static str,
    /// When the gateway started to serve it.
    pub started: SystemTime,
    /// Requests that were given to workers.
    pub accepted: u64,
    /// Requests that are waiting now.
    pub listen_queue: usize,
    /// The highest number of waiting requests so far.
    pub max_listen_queue: usize,
    /// The limit of waiting requests.
    pub listen_queue_len: usize,
    /// Workers without a request.
    pub idle: usize,
    /// Workers with a request.
    pub active: usize,
    /// The highest number of workers with a request so far.
    pub max_active: usize,
    /// How often more workers were wanted than `max_children` allows.
    pub max_children_reached: u64,
    /// Requests that ran for longer than `request_slowlog_timeout`.
    pub slow_requests: u64,
    /// The largest memory use of a request, bytes; 0 if it is not measured. `None`: the page of this PHP version has
    /// no such field.
    pub memory_peak: Option<u64>,
    /// The processes that weir runs for it, in the order of their slots.
    pub workers: Vec<WorkerStatus>,
}

/// A worker's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerStatus {
    /// Its process.
    pub pid: u32,
    /// What it does.
    pub stage: Stage,
    /// When it was started.
    pub started: SystemTime,
    /// Requests that it was given.
    pub requests: u64,
    /// The most memory that one of its first requests used, the tenth if it has had so many; 0: not measured. An
    /// application that stays booted and needs more and more memory has a leak.
    pub early_memory: u64,
    /// Its running or last request; empty before the first one.
    pub request: RequestStatus,
}

/// A request, as the status page shows it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestStatus {
    /// How long it has run so far, or ran.
    pub duration: Duration,
    pub method: Vec<u8>,
    /// Its path as the client sent it.
    pub uri: Vec<u8>,
    /// Its query, without the question mark.
    pub query: Vec<u8>,
    /// Length of its body, bytes.
    pub content_length: u64,
    /// The user that the client names; empty if it names none.
    pub user: Vec<u8>,
    /// SCRIPT_FILENAME.
    pub script: Vec<u8>,
    /// CPU time that it used, in percent of its duration; 0 while it runs, and if it is not measured.
    pub cpu: f64,
    /// The most memory that it used, bytes; 0 while it runs, and if it is not measured.
    pub memory: u64,
}

/// The state of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// The worker waits for a request.
    #[default]
    Idle,
    /// The worker has a request.
    Running,
    /// Its response is complete, and its script continues.
    Finishing,
}

impl Stage {
    /// The name in PHP-FPM's words.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Idle => "Idle",
            Stage::Running => "Running",
            Stage::Finishing => "Finishing",
        }
    }
}

impl WorkerStatus {
    /// For the admin interface.
    pub fn to_json(&self) -> serde_json::Value {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let request = &self.request;
        json!({
            "pid": self.pid,
            "state": self.stage.name(),
            "uptime": self.started.elapsed().unwrap_or_default().as_secs_f64(),
            "requests": self.requests,
            "time": request.duration.as_secs_f64(),
            "method": text(&request.method),
            // Without its query, which may hold private data.
            "uri": text(&request.uri),
            "script": text(&request.script),
            "cpu_percent": request.cpu,
            "memory": request.memory,
            "early_memory": self.early_memory,
        })
    }
}

impl PoolStatus {
    /// The array that `fpm_get_status()` returns, as JSON with exactly its keys.
    pub fn to_php(&self) -> Vec<u8> {
        let now = SystemTime::now();
        let mut out = Vec::with_capacity(512 + self.workers.len() * 512);
        for (label, value) in of_pool(self, now) {
            put_php_field(label, &value, &mut out);
        }
        out.extend_from_slice(b",\"procs\":[");
        for (index, worker) in self.workers.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let begin = out.len();
            for (label, value) in of_worker(worker, now) {
                match (label, &value) {
                    ("request URI", _) => {
                        let request = &worker.request;
                        put_php_field("request uri", &Value::Text(&request.uri), &mut out);
                        put_php_field("query string", &Value::Text(&request.query), &mut out);
                    }
                    ("content length", _) => put_php_field("request length", &value, &mut out),
                    _ => put_php_field(label, &value, &mut out),
                }
            }
            out[begin] = b'{';
            out.push(b'}');
        }
        out[0] = b'{';
        out.extend_from_slice(b"]}");
        out
    }
}

/// A value of that array, with its key and a comma before it. The number of a percentage has a decimal point, because
/// PHP would otherwise read it as an integer.
fn put_php_field(label: &str, value: &Value<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!(",\"{}\":", label.replace(' ', "-")).as_bytes());
    Format::Json.put_value(value, out);
}

/// The output format of the status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Html,
    Xml,
    Json,
    OpenMetrics,
}

/// The format in a query: the first format, in PHP-FPM's order, that the query names. Also whether each worker is
/// listed.
pub fn asked(query: &[u8]) -> (Format, bool) {
    let has = |name: &str| {
        let mut pairs = query.split(|byte| *byte == b'&');
        pairs.any(|pair| pair.split(|byte| *byte == b'=').next() == Some(name.as_bytes()))
    };
    let formats = [
        ("html", Format::Html),
        ("xml", Format::Xml),
        ("json", Format::Json),
        ("openmetrics", Format::OpenMetrics),
    ];
    let format = formats.into_iter().find(|(name, _)| has(name));
    (
        format.map_or(Format::Text, |(_, format)| format),
        has("full"),
    )
}

/// A value on the page.
enum Value<'s> {
    Text(&'s [u8]),
    Number(u64),
    Time(SystemTime),
    Percent(f64),
    /// Path and query.
    Uri(&'s [u8], &'s [u8]),
}

impl Format {
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => TEXT,
            Format::Html => "text/html;charset=UTF-8",
            Format::Xml => "text/xml;charset=UTF-8",
            Format::Json => "application/json",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The page; `full`: with each worker.
    pub fn write(self, status: &PoolStatus, full: bool, now: SystemTime) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024 + status.workers.len() * 512 * usize::from(full));
        if self == Format::OpenMetrics {
            put_metrics(status, now, &mut out);
            return out;
        }
        let put = |out: &mut Vec<u8>, text: &str| out.extend_from_slice(text.as_bytes());
        let layout = self.layout();
        put(&mut out, layout.begin);
        for (index, (label, value)) in of_pool(status, now).into_iter().enumerate() {
            self.put_field(index, label, &value, &mut out);
            put(&mut out, layout.breaks);
        }
        put(&mut out, layout.end_of_pool);
        if full {
            put(&mut out, layout.workers);
            for (index, worker) in status.workers.iter().enumerate() {
                if index > 0 {
                    put(&mut out, layout.between);
                }
                put(&mut out, layout.worker);
                for (index, (label, value)) in of_worker(worker, now).into_iter().enumerate() {
                    self.put_worker_field(index, label, &value, &mut out);
                }
                put(&mut out, layout.end_of_worker);
            }
            put(&mut out, layout.end_of_workers);
        }
        put(&mut out, layout.end);
        out
    }

    fn put_field(self, index: usize, label: &str, value: &Value<'_>, out: &mut Vec<u8>) {
        let tag = label.replace(' ', "-").to_ascii_lowercase();
        match self {
            Format::Text => {
                out.extend_from_slice(format!("{:<22}", format!("{label}:")).as_bytes())
            }
            Format::Html => {
                out.extend_from_slice(format!("<tr><th>{label}</th><td>").as_bytes());
            }
            Format::Xml => out.extend_from_slice(format!("<{tag}>").as_bytes()),
            Format::Json => {
                let comma = if index > 0 { "," } else { "" };
                let key = label.to_ascii_lowercase();
                out.extend_from_slice(format!("{comma}\"{key}\":").as_bytes());
            }
            Format::OpenMetrics => {}
        }
        self.put_value(value, out);
        match self {
            Format::Html => out.extend_from_slice(b"</td></tr>"),
            Format::Xml => out.extend_from_slice(format!("</{tag}>").as_bytes()),
            _ => {}
        }
    }

    fn put_worker_field(self, index: usize, label: &str, value: &Value<'_>, out: &mut Vec<u8>) {
        if self != Format::Html {
            self.put_field(index, label, value, out);
            if self == Format::Text {
                out.push(b'\n');
            }
            return;
        }
        out.extend_from_slice(b"<td>");
        self.put_value(value, out);
        out.extend_from_slice(b"</td>");
    }

    fn put_value(self, value: &Value<'_>, out: &mut Vec<u8>) {
        match *value {
            Value::Number(number) => put_number(number, out),
            Value::Percent(percent) => out.extend_from_slice(format!("{percent:.2}").as_bytes()),
            Value::Time(time) => match self {
                Format::Text | Format::Html => put_time_combined(time, out),
                _ => put_number(seconds(time), out),
            },
            Value::Text(text) => match self {
                Format::Json => put_json_string(text, out),
                _ => self.put_text(text, out),
            },
            Value::Uri(path, query) => {
                let uri = match query {
                    b"" => path.to_vec(),
                    query => [path, b"?", query].concat(),
                };
                match self {
                    Format::Json => put_php_json_string(&uri, out),
                    _ => self.put_text(&uri, out),
                }
            }
        }
    }

    fn put_text(self, text: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        put_message(text, out);
        if self == Format::Text || !out[start..].iter().any(|byte| b"&<>".contains(byte)) {
            return;
        }
        for byte in out.split_off(start) {
            match byte {
                b'&' => out.extend_from_slice(b"&amp;"),
                b'<' => out.extend_from_slice(b"&lt;"),
                b'>' => out.extend_from_slice(b"&gt;"),
                byte => out.push(byte),
            }
        }
    }

    fn layout(self) -> Layout {
        match self {
            Format::Text | Format::OpenMetrics => Layout {
                breaks: "\n",
                worker: "\n************************\n",
                ..Layout::default()
            },
            Format::Html => Layout {
                begin: HTML,
                breaks: "\n",
                end_of_pool: "</table>\n",
                workers: HTML_WORKERS,
                worker: "<tr>",
                end_of_worker: "</tr>\n",
                end_of_workers: "</table>",
                end: "</body></html>",
                ..Layout::default()
            },
            Format::Xml => Layout {
                begin: "<?xml version=\"1.0\" ?>\n<status>\n",
                breaks: "\n",
                workers: "<processes>\n",
                worker: "<process>",
                end_of_worker: "</process>\n",
                end_of_workers: "</processes>\n",
                end: "</status>",
                ..Layout::default()
            },
            Format::Json => Layout {
                begin: "{",
                workers: ", \"processes\":[",
                worker: "{",
                end_of_worker: "}",
                between: ",",
                end_of_workers: "]",
                end: "}",
                ..Layout::default()
            },
        }
    }
}

/// The text around the values.
#[derive(Default)]
struct Layout {
    begin: &'static str,
    /// After each value of the pool.
    breaks: &'static str,
    end_of_pool: &'static str,
    workers: &'static str,
    worker: &'static str,
    end_of_worker: &'static str,
    between: &'static str,
    end_of_workers: &'static str,
    end: &'static str,
}

/// The pool's values with PHP-FPM's names.
fn of_pool(status: &PoolStatus, now: SystemTime) -> Vec<(&'static str, Value<'_>)> {
    let count = |count: usize| Value::Number(count as u64);
    let mut figures = vec![
        ("pool", Value::Text(status.name.as_bytes())),
        ("process manager", Value::Text(status.pm.as_bytes())),
        ("start time", Value::Time(status.started)),
        ("start since", Value::Number(since(status.started, now))),
        ("accepted conn", Value::Number(status.accepted)),
        ("listen queue", count(status.listen_queue)),
        ("max listen queue", count(status.max_listen_queue)),
        ("listen queue len", count(status.listen_queue_len)),
        ("idle processes", count(status.idle)),
        ("active processes", count(status.active)),
        ("total processes", count(status.idle + status.active)),
        ("max active processes", count(status.max_active)),
        (
            "max children reached",
            Value::Number(status.max_children_reached),
        ),
        ("slow requests", Value::Number(status.slow_requests)),
    ];
    let memory_peak = status.memory_peak.map(Value::Number);
    figures.extend(memory_peak.map(|value| ("memory peak", value)));
    figures
}

/// A worker's values with PHP-FPM's names.
fn of_worker(worker: &WorkerStatus, now: SystemTime) -> [(&'static str, Value<'_>); 13] {
    let request = &worker.request;
    fn or_dash(text: &[u8]) -> &[u8] {
        if text.is_empty() { b"-" } else { text }
    }
    let micros = request.duration.as_micros() as u64;
    [
        ("pid", Value::Number(worker.pid.into())),
        ("state", Value::Text(worker.stage.name().as_bytes())),
        ("start time", Value::Time(worker.started)),
        ("start since", Value::Number(since(worker.started, now))),
        ("requests", Value::Number(worker.requests)),
        ("request duration", Value::Number(micros)),
        ("request method", Value::Text(or_dash(&request.method))),
        (
            "request URI",
            Value::Uri(or_dash(&request.uri), &request.query),
        ),
        ("content length", Value::Number(request.content_length)),
        ("user", Value::Text(or_dash(&request.user))),
        ("script", Value::Text(or_dash(&request.script))),
        ("last request cpu", Value::Percent(request.cpu)),
        ("last request memory", Value::Number(request.memory)),
    ]
}

/// The pool's values in the format of Prometheus (OpenMetrics 1.0).
fn put_metrics(status: &PoolStatus, now: SystemTime, out: &mut Vec<u8>) {
    let up = format!(
        "Could pool {} using a {} PM on PHP-FPM be reached?",
        status.name, status.pm
    );
    let count = |count: usize| count as u64;
    let metrics: [(&str, &str, &str, u64); 13] = [
        ("up", "gauge", &up, 1),
        (
            "start_since",
            "counter",
            "The number of seconds since FPM has started.",
            since(status.started, now),
        ),
        (
            "accepted_connections",
            "counter",
            "The number of requests accepted by the pool.",
            status.accepted,
        ),
        (
            "listen_queue",
            "gauge",
            "The number of requests in the queue of pending connections.",
            count(status.listen_queue),
        ),
        (
            "max_listen_queue",
            "counter",
            "The maximum number of requests in the queue of pending connections since FPM has started.",
            count(status.max_listen_queue),
        ),
        (
            "listen_queue_length",
            "gauge",
            "The size of the socket queue of pending connections.",
            count(status.listen_queue_len),
        ),
        (
            "idle_processes",
            "gauge",
            "The number of idle processes.",
            count(status.idle),
        ),
        (
            "active_processes",
            "gauge",
            "The number of active processes.",
            count(status.active),
        ),
        (
            "total_processes",
            "gauge",
            "The number of idle + active processes.",
            count(status.idle + status.active),
        ),
        (
            "max_active_processes",
            "counter",
            "The maximum number of active processes since FPM has started.",
            count(status.max_active),
        ),
        (
            "max_children_reached",
            "counter",
            "The number of times, the process limit has been reached, when pm tries to start more children (works only \
             for pm 'dynamic' and 'ondemand').",
            status.max_children_reached,
        ),
        (
            "slow_requests",
            "counter",
            "The number of requests that exceeded your 'request_slowlog_timeout' value.",
            status.slow_requests,
        ),
        (
            "memory_peak",
            "gauge",
            "The most memory that a request took, in bytes.",
            status.memory_peak.unwrap_or_default(),
        ),
    ];
    let metrics = metrics.into_iter();
    let metrics =
        metrics.filter(|(name, ..)| *name != "memory_peak" || status.memory_peak.is_some());
    for (name, kind, help, value) in metrics {
        let mut about = [
            format!("# HELP phpfpm_{name} {help}\n"),
            format!("# TYPE phpfpm_{name} {kind}\n"),
        ];
        if name == "listen_queue_length" {
            // PHP-FPM has these two fields in the reverse order.
            about.reverse();
        }
        out.extend_from_slice(format!("{}phpfpm_{name} {value}\n", about.concat()).as_bytes());
    }
    out.extend_from_slice(b"# EOF\n");
}

/// A string as PHP's json_encode() writes it: slashes are escaped, and characters beyond ASCII are UTF-16.
fn put_php_json_string(text: &[u8], out: &mut Vec<u8>) {
    let mut json = Vec::with_capacity(text.len() + 2);
    put_json_string(text, &mut json);
    // The remaining characters beyond ASCII are complete; control characters are already escaped.
    for character in String::from_utf8_lossy(&json).chars() {
        match character {
            '/' => out.extend_from_slice(b"\\/"),
            ascii if ascii.is_ascii() => out.push(ascii as u8),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
        }
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn since(then: SystemTime, now: SystemTime) -> u64 {
    seconds(now).saturating_sub(seconds(then))
}

/// The type as PHP writes it with its default charset.
pub const TEXT: &str = "text/plain;charset=UTF-8";

const HTML: &str = "<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0 Strict//EN\" \
     \"http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd\">\n\
     <html xmlns=\"http://www.w3.org/1999/xhtml\" xml:lang=\"en\" lang=\"en\">\n\
     <head><title>PHP-FPM Status Page</title></head>\n<body>\n<table>\n";

const HTML_WORKERS: &str = "<table border=\"1\">\n<tr><th>pid</th><th>state</th><th>start time</th>\
     <th>start since</th><th>requests</th><th>request duration</th><th>request method</th><th>request uri</th>\
     <th>content length</th><th>user</th><th>script</th><th>last request cpu</th><th>last request memory</th></tr>\n";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status(uri: &[u8], query: &[u8]) -> PoolStatus {
        let started = UNIX_EPOCH + Duration::from_secs(1_795_189_940);
        let worker = |pid, stage, request| WorkerStatus {
            early_memory: 0,
            pid,
            stage,
            started,
            requests: 3,
            request,
        };
        let request = RequestStatus {
            duration: Duration::from_micros(1234),
            method: b"GET".to_vec(),
            uri: uri.to_vec(),
            query: query.to_vec(),
            content_length: 5,
            user: b"al<a>\"ddin".to_vec(),
            script: b"/srv/\xc3\xa9/a\"b.php".to_vec(),
            cpu: 12.345,
            memory: 2_097_152,
        };
        PoolStatus {
            name: "www".into(),
            pm: "dynamic",
            started,
            accepted: 7,
            listen_queue: 1,
            max_listen_queue: 2,
            listen_queue_len: 1000,
            idle: 3,
            active: 4,
            max_active: 5,
            max_children_reached: 6,
            slow_requests: 8,
            memory_peak: Some(9),
            workers: vec![
                worker(11, Stage::Idle, request),
                worker(12, Stage::Running, RequestStatus::default()),
            ],
        }
    }

    fn written(format: Format, full: bool) -> String {
        let status = status(b"/a<\xc3\xa9>", b"x=1&y=\"");
        let now = status.started + Duration::from_secs(60);
        String::from_utf8(format.write(&status, full, now)).unwrap()
    }

    #[test]
    fn the_query_says_the_format() {
        assert_eq!(asked(b""), (Format::Text, false));
        assert_eq!(asked(b"full"), (Format::Text, true));
        assert_eq!(asked(b"json&full"), (Format::Json, true));
        assert_eq!(asked(b"full=1&json=&xml"), (Format::Xml, true));
        assert_eq!(asked(b"JSON&_=html"), (Format::Text, false));
        assert_eq!(asked(b"openmetrics"), (Format::OpenMetrics, false));
    }

    #[test]
    fn text_is_laid_out_as_php_fpms() {
        let text = written(Format::Text, true);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("pool:                 www"));
        assert!(text.contains(
            "\nmax active processes: 5\nmax children reached: 6\nslow requests:        8\nmemory peak:          9\n\n****"
        ));
        assert!(text.contains("\nrequest URI:          /a<é>?x=1&y=\"\n"));
        assert!(
            text.contains("\nlast request cpu:     12.35\n")
                || text.contains("\nlast request cpu:     12.34\n")
        );
        assert!(text.ends_with("last request memory:  0\n"));
    }

    #[test]
    fn json_is_json_with_php_fpms_keys() {
        let text = written(Format::Json, true);
        assert!(text.starts_with("{\"pool\":\"www\",\"process manager\":\"dynamic\",\"start time\":1795189940,\"start since\":60,"));
        assert!(
            text.contains("\"slow requests\":8,\"memory peak\":9, \"processes\":[{\"pid\":11,")
        );
        assert!(text.contains("\"request uri\":\"\\/a<\\u00e9>?x=1&y=\\\"\""));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["processes"][0]["script"], "/srv/é/a\"b.php");
        assert_eq!(value["processes"][1]["request uri"], "-");
    }

    #[test]
    fn markup_is_escaped() {
        for format in [Format::Html, Format::Xml] {
            let text = written(format, true);
            assert!(text.contains("/a&lt;é&gt;?x=1&amp;y=\""), "{text}");
            assert!(text.contains("al&lt;a&gt;\"ddin"), "{text}");
        }
        assert!(written(Format::Xml, true).ends_with("</process>\n</processes>\n</status>"));
        assert!(written(Format::Html, false).ends_with("</table>\n</body></html>"));
    }

    #[test]
    fn the_array_for_php_has_php_fpms_keys() {
        let mut status = status(b"/a%20b.php", b"x=\"1\"&y=?");
        status.workers[0].stage = Stage::Running;
        let json = status.to_php();
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let keys = |value: &serde_json::Value| {
            let keys = value.as_object().unwrap().keys();
            keys.cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            keys(&value),
            "accepted-conn active-processes idle-processes listen-queue listen-queue-len max-active-processes \
             max-children-reached max-listen-queue memory-peak pool process-manager procs slow-requests start-since \
             start-time total-processes"
        );
        assert_eq!(
            keys(&value["procs"][0]),
            "last-request-cpu last-request-memory pid query-string request-duration request-length request-method \
             request-uri requests script start-since start-time state user"
        );
        assert_eq!(value["total-processes"], 7);
        assert_eq!(value["start-time"], 1_795_189_940);
        assert_eq!(value["procs"][0]["query-string"], "x=\"1\"&y=?");
        assert_eq!(value["procs"][0]["request-uri"], "/a%20b.php");
        assert_eq!(value["procs"][1]["request-method"], "-");
        assert_eq!(value["procs"][1]["request-uri"], "");
        assert!(value["procs"][1]["last-request-cpu"].is_f64());
    }

    proptest! {
        #[test]
        fn any_uri_leaves_json_json_and_markup_whole(
            uri in prop::collection::vec(any::<u8>(), 0..60),
            query in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let status = status(&uri, &query);
            let json = Format::Json.write(&status, true, SystemTime::now());
            let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
            prop_assert_eq!(value["processes"].as_array().unwrap().len(), 2);
            let text = Format::Text.write(&status, true, SystemTime::now());
            prop_assert_eq!(String::from_utf8(text).unwrap().lines().count(), 15 + 2 * 15);
            let xml = String::from_utf8(Format::Xml.write(&status, true, SystemTime::now())).unwrap();
            prop_assert_eq!(xml.matches('<').count(), 2 * 16 + 1 + 2 + 2 * (1 + 13) * 2);
            prop_assert!(!xml.chars().any(|c| c.is_control() && c != '\n'));
        }
    }
}
