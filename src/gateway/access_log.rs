//! A line for each request: combined, JSON, or a template.
//!
//! The line is made in a buffer that the thread keeps and handed to the shared [`Sink`], which never blocks. What
//! came from the client or the worker is escaped for the format, so that no value can end its field or its line.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::SystemTime;

use weir_config::{LogFormat, Piece, Template, Variable};

use super::template::Variables;
use crate::log_sink::Sink;
use crate::log_text::{self as text, Worker};

/// What a line tells of a request. All times are in microseconds.
pub struct Entry<'a> {
    /// When the line is written, as in nginx: the end of the request.
    pub time: SystemTime,
    /// Number of the request in this process, as the error log and the trace name it.
    pub request_id: u64,
    /// The client's address without port, as REMOTE_ADDR.
    pub remote_addr: &'a str,
    /// Who the client says it is, where it was asked.
    pub remote_user: Option<&'a [u8]>,
    /// The method; empty where no head could be read, as are `uri` and `protocol` then.
    pub method: &'a str,
    /// Path and query as received.
    pub uri: &'a [u8],
    /// `HTTP/1.1`
    pub protocol: &'a str,
    /// The host that was asked for.
    pub host: &'a [u8],
    /// Status of the answer; 499 where the client left before there was one.
    pub status: u16,
    /// Body bytes from the client.
    pub bytes_in: u64,
    /// Body bytes to the client.
    pub bytes_out: u64,
    /// The Referer header.
    pub referer: Option<&'a [u8]>,
    /// The User-Agent header.
    pub user_agent: Option<&'a [u8]>,
    /// Name of the site; none where no site was found for the request.
    pub site: Option<&'a str>,
    /// Name of the pool, where the request was for one.
    pub pool: Option<&'a str>,
    /// The worker that the request was given to last.
    pub worker: Option<Worker<'a>>,
    /// From the request's first byte to the whole head.
    pub time_head: u64,
    /// Waiting in the queue; none where the request was for no pool.
    pub time_queue: Option<u64>,
    /// From dispatch to the worker's first byte, where there was one.
    pub time_first_byte: Option<u64>,
    /// From the request's first byte to the answer's last.
    pub time_total: u64,
    /// Length of the pool's queue as the request arrived.
    pub queue: Option<u64>,
    /// How often the request was given to another worker.
    pub retries: u32,
    /// Why the answer is an error.
    pub reason: Option<&'a str>,
    /// All else that a template may ask for: the request's headers, path, script, ….
    pub request: &'a dyn Variables,
}

/// The access log: a format and a way out.
pub struct AccessLog {
    format: Format,
    sink: Arc<Sink>,
}

impl AccessLog {
    /// A log whose lines have `format` and go to `sink`.
    pub fn new(format: LogFormat, sink: Arc<Sink>) -> Self {
        let format = match format {
            LogFormat::Combined => Format::Combined,
            LogFormat::Json => Format::Json,
            LogFormat::Template(template) => Format::Template(one_line(template)),
        };
        Self { format, sink }
    }

    /// Whether nothing is logged, so that no entry need be made.
    pub fn is_off(&self) -> bool {
        self.sink.is_off()
    }

    /// The way out, to reopen or to flush it.
    pub fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Writes the line of a request. Never blocks.
    pub fn write(&self, entry: &Entry<'_>) {
        thread_local! {
            static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        if self.is_off() {
            return;
        }
        LINE.with_borrow_mut(|line| {
            line.clear();
            line.shrink_to(KEPT_CAPACITY);
            self.put_line(entry, line);
            self.sink.push(line);
        });
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

/// The template without line breaks, which would make several lines of one: a last one is dropped (texts of several
/// lines in TOML end with one), others become spaces.
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
        // A space would shift all fields behind it.
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
        text::put_escaped(entry.protocol.as_bytes(), out);
    }
    out.extend_from_slice(b"\" ");
    text::put_number(entry.status.into(), out);
    out.push(b' ');
    text::put_number(entry.bytes_out, out);
    out.extend_from_slice(b" \"");
    text::put_escaped(entry.referer.unwrap_or(b"-"), out);
    out.extend_from_slice(b"\" \"");
    text::put_escaped(entry.user_agent.unwrap_or(b"-"), out);
    out.push(b'"');
}

/// One object with all fields; what is not there is null, so that all lines have the same keys. Times are seconds
/// as in templates, but keep their microseconds. A worker is text always: a pid, or a server's address.
fn put_json(entry: &Entry<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time_iso\":\"");
    text::put_time_iso(entry.time, out);
    out.push(b'"');
    let mut object = Object(out);
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
    object.seconds("time_queue", entry.time_queue);
    object.seconds("time_first_byte", entry.time_first_byte);
    object.seconds("time_total", Some(entry.time_total));
    object.number("queue", entry.queue);
    object.number("retries", Some(entry.retries.into()));
    object.string("reason", entry.reason.map(str::as_bytes));
    out.push(b'}');
}

/// Members of a JSON object after its first.
struct Object<'a>(&'a mut Vec<u8>);

impl Object<'_> {
    fn key(&mut self, key: &str) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    fn string(&mut self, key: &str, value: Option<&[u8]>) {
        self.key(key);
        match value {
            Some(value) => text::put_json_string(value, self.0),
            None => self.0.extend_from_slice(b"null"),
        }
    }

    fn number(&mut self, key: &str, value: Option<u64>) {
        self.key(key);
        match value {
            Some(value) => text::put_number(value, self.0),
            None => self.0.extend_from_slice(b"null"),
        }
    }

    fn seconds(&mut self, key: &str, micros: Option<u64>) {
        self.key(key);
        match micros {
            Some(micros) => text::put_seconds_micros(micros, self.0),
            None => self.0.extend_from_slice(b"null"),
        }
    }
}

/// As `template::render`, with every value escaped, and `-` for one that is not there.
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
            Variable::Site => put(self.site.unwrap_or_default().as_bytes()),
            Variable::Pool => put(self.pool.unwrap_or_default().as_bytes()),
            Variable::Reason => put(self.reason.unwrap_or_default().as_bytes()),
            Variable::Time => text::put_time_combined(self.time, out),
            Variable::TimeIso => text::put_time_iso(self.time, out),
            Variable::Status => text::put_number(self.status.into(), out),
            Variable::BytesIn => text::put_number(self.bytes_in, out),
            Variable::BytesOut => text::put_number(self.bytes_out, out),
            Variable::TimeHead => text::put_seconds_millis(self.time_head, out),
            Variable::TimeTotal => text::put_seconds_millis(self.time_total, out),
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
            Variable::Scheme
            | Variable::Path
            | Variable::Query
            | Variable::Args
            | Variable::RemotePort
            | Variable::ServerAddr
            | Variable::ServerPort
            | Variable::DocumentRoot
            | Variable::ScriptName
            | Variable::PathInfo
            | Variable::Header(_) => self.request.put(variable, out),
        }
    }
}

fn put_if(value: Option<u64>, put: impl FnOnce(u64, &mut Vec<u8>), out: &mut Vec<u8>) {
    if let Some(value) = value {
        put(value, out);
    }
}

/// A value of a field that ends with a space.
fn put_word(value: &[u8], out: &mut Vec<u8>) {
    for (at, word) in value.split(|&byte| byte == b' ').enumerate() {
        if at > 0 {
            out.extend_from_slice(b"\\x20");
        }
        text::put_escaped(word, out);
    }
}

/// Of a thread's line buffer, bytes; one that a very long URI has made larger is not kept.
const KEPT_CAPACITY: usize = 16 << 10;
