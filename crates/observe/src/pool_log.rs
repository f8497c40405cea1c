//! PHP-FPM's log of a pool's requests: `access_log` and `access_format` of [pool.NAME].
//!
//! It is written in addition to weir's own access log, for tools that read PHP-FPM's format. It has the requests that a
//! worker got, and those that the gateway answered with the pool's status or ping page. Values from a client are
//! escaped as in weir's own log.

use std::time::SystemTime;

use weir_config::{
    AccessFormat, CpuTime, FormatCode, FormatPiece, MemoryUnit, Pool as Settings, TimeUnit,
};
use weir_fcgi::nv::{Decoder, Limits, Pairs};

use headers::{Header, authorization::Basic};
use http::HeaderValue;

use crate::{
    log_sink::Sink,
    log_text::{
        put_escaped, put_number, put_seconds_millis, put_time_combined, put_time_formatted,
    },
};

/// The log of one pool.
pub struct PoolLog {
    format: AccessFormat,
    suppressed: Vec<String>,
    wants_params: bool,
    wants_headers: bool,
    /// Workers say what their lines contain.
    from_worker: bool,
    sink: Sink,
}

/// The cost of a finished request, as the worker reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// CPU time, µs.
    pub cpu: u64,
    /// The part of it that was spent in user mode, µs.
    pub user: u64,
    /// The most memory that PHP used for it, bytes.
    pub memory: u64,
    /// The highest memory use of the process so far, bytes.
    pub resident: u64,
}

/// The values of one log line.
pub struct PoolLogEntry<'r> {
    /// The cost of the script; `None` for a page of the gateway, and if the script still runs.
    pub cost: Option<Cost>,
    /// The parameters for the worker, or those from a web server in front.
    pub params: Option<&'r Pairs>,
    /// A header of the response.
    pub header: &'r dyn Fn(&str) -> Option<&'r [u8]>,
    /// The address of the client, or of the web server in front.
    pub peer: &'r str,
    /// When weir runs instead of PHP-FPM: parameters (`e:NAME`) and headers (`o:NAME`) as PHP has them. They replace
    /// those above.
    pub note: Option<&'r Pairs>,
    pub begun: SystemTime,
    pub written: SystemTime,
    /// Time since the worker got the request, µs.
    pub duration: u64,
    pub pool: &'r str,
    /// The worker's process; `None` if weir does not run it.
    pub pid: Option<u32>,
    pub method: &'r [u8],
    /// `SCRIPT_NAME`
    pub path: &'r [u8],
    pub query: &'r [u8],
    /// `SCRIPT_FILENAME`; may be empty.
    pub script: &'r [u8],
    /// Length of the request's body, bytes.
    pub content_length: u64,
    pub status: u16,
    /// The client's credentials (`Authorization`).
    pub authorization: &'r [u8],
}

impl PoolLog {
    /// The log with these `settings`, written to `sink`. `from_worker`: workers send the values of their lines.
    pub fn new(settings: &Settings, from_worker: bool, sink: Sink) -> PoolLog {
        let format = settings.access_format.clone();
        let has = |wanted: fn(&FormatCode) -> bool| {
            let mut pieces = format.pieces.iter();
            pieces.any(|piece| matches!(piece, FormatPiece::Code(code) if wanted(code)))
        };
        PoolLog {
            wants_params: has(|code| matches!(code, FormatCode::Parameter(_))),
            wants_headers: has(|code| matches!(code, FormatCode::Header(_))),
            suppressed: settings.access_suppress_path.clone(),
            format,
            from_worker,
            sink,
        }
    }

    /// Whether the workers send the values of their requests' lines.
    pub fn is_from_worker(&self) -> bool {
        self.from_worker
    }

    /// Whether [`PoolLogEntry::params`] are needed.
    pub fn wants_params(&self) -> bool {
        self.wants_params
    }

    /// Whether [`PoolLogEntry::header`] is needed.
    pub fn wants_headers(&self) -> bool {
        self.wants_headers
    }

    /// The output, for reopening and flushing.
    pub fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Writes the line of a request, unless `access_suppress_path` leaves it out. Never blocks.
    pub fn write(&self, entry: &PoolLogEntry<'_>) {
        if self.suppresses(entry) {
            return;
        }
        (self.sink).put_line(|line| put_line(&self.format, entry, line));
    }

    /// Successful GET and HEAD requests for one of these paths, without query and body.
    fn suppresses(&self, entry: &PoolLogEntry<'_>) -> bool {
        let same = |path: &String| path.as_bytes() == entry.path;
        !self.suppressed.is_empty()
            && matches!(entry.method, b"GET" | b"HEAD")
            && entry.query.is_empty()
            && entry.content_length == 0
            && (200..300).contains(&entry.status)
            && self.suppressed.iter().any(same)
    }
}

impl std::fmt::Debug for PoolLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolLog({})", self.format)
    }
}

/// Appends a line with its newline.
fn put_line(format: &AccessFormat, entry: &PoolLogEntry<'_>, out: &mut Vec<u8>) {
    for piece in &format.pieces {
        match piece {
            FormatPiece::Text(text) => out.extend_from_slice(text.as_bytes()),
            FormatPiece::Code(code) => put_code(code, entry, out),
        }
    }
    out.push(b'\n');
}

fn put_code(code: &FormatCode, entry: &PoolLogEntry<'_>, out: &mut Vec<u8>) {
    // PHP always uses some memory, so 0 means that it was not measured. Numbers stay numbers, as readers of the log
    // expect.
    let measured = entry.cost.filter(|cost| cost.memory > 0);
    match code {
        FormatCode::Cpu(which) => {
            let took = measured.map_or(0, |cost| match which {
                CpuTime::Total => cost.cpu,
                CpuTime::User => cost.user,
                CpuTime::System => cost.cpu.saturating_sub(cost.user),
            });
            let percent = took as f64 * 100.0 / entry.duration.max(1) as f64;
            out.extend_from_slice(format!("{percent:.2}").as_bytes());
        }
        FormatCode::Duration(TimeUnit::Seconds) => put_seconds_millis(entry.duration, out),
        FormatCode::Duration(TimeUnit::Milliseconds) => {
            let (millis, micros) = (entry.duration / 1000, entry.duration % 1000);
            out.extend_from_slice(format!("{millis}.{micros:03}").as_bytes());
        }
        FormatCode::Duration(TimeUnit::Microseconds) => put_number(entry.duration, out),
        FormatCode::Parameter(name) => {
            let value = match entry.note {
                Some(note) => note.get(format!("e:{name}").as_bytes()),
                None => entry.params.and_then(|params| params.get(name.as_bytes())),
            };
            match value {
                None => out.push(b'-'),
                Some(value) => put_escaped(value, out),
            }
        }
        FormatCode::Script => put_or_dash(Some(entry.script), out),
        FormatCode::ContentLength => put_number(entry.content_length, out),
        FormatCode::Method => put_or_dash(Some(entry.method), out),
        FormatCode::Memory(unit) => {
            let memory = measured.map_or(0, |cost| cost.memory);
            let memory = match unit {
                MemoryUnit::Bytes => memory,
                MemoryUnit::Kilobytes => memory >> 10,
                MemoryUnit::Megabytes => memory >> 20,
            };
            put_number(memory, out);
        }
        FormatCode::Pool => put_escaped(entry.pool.as_bytes(), out),
        FormatCode::Header(name) => {
            let value = match entry.note {
                Some(note) => note.get(format!("o:{name}").as_bytes()),
                None => (entry.header)(name),
            };
            put_or_dash(value, out);
        }
        FormatCode::Pid => match entry.pid {
            Some(pid) => put_number(pid.into(), out),
            None => out.push(b'-'),
        },
        FormatCode::ParentPid => put_number(std::os::unix::process::parent_id().into(), out),
        FormatCode::Query => put_escaped(entry.query, out),
        FormatCode::QuestionMark if entry.query.is_empty() => {}
        FormatCode::QuestionMark => out.push(b'?'),
        FormatCode::Path => put_escaped(entry.path, out),
        FormatCode::RemoteAddr => match entry.peer {
            // A unix socket's peer has no address.
            "unix:" => out.push(b'-'),
            peer => put_escaped(peer.as_bytes(), out),
        },
        FormatCode::Status => put_number(entry.status.into(), out),
        FormatCode::Begun(format) => put_time(entry.begun, format.as_deref(), out),
        FormatCode::Written(format) => put_time(entry.written, format.as_deref(), out),
        FormatCode::User => put_escaped(&user_of(entry.authorization).unwrap_or_default(), out),
    }
}

fn put_or_dash(value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        None | Some(b"") => out.push(b'-'),
        Some(value) => put_escaped(value, out),
    }
}

/// The user in basic credentials (RFC 7617); `None` for other credentials.
pub fn user_of(authorization: &[u8]) -> Option<Vec<u8>> {
    let value = HeaderValue::from_bytes(authorization).ok()?;
    let basic = headers::Authorization::<Basic>::decode(&mut [value].iter()).ok()?;
    Some(basic.username().as_bytes().to_vec())
}

fn put_time(time: SystemTime, format: Option<&str>, out: &mut Vec<u8>) {
    match format {
        None => put_time_combined(time, out),
        Some(format) => put_time_formatted(time, format, out),
    }
}

/// The note of a page that the gateway answers itself: all parameters, and the headers of `head` (CGI).
pub fn note_of_page(pool: &Settings, params: &Pairs, head: &[u8]) -> Option<Pairs> {
    let mut decoder = Decoder::new(Limits {
        bytes: MAX_NOTE,
        ..Limits::default()
    });
    let mut add = |kind: &[u8], name: &[u8], value: &[u8]| {
        let mut pair = Vec::new();
        weir_fcgi::nv::encode(&mut pair, &[kind, name].concat(), value);
        decoder.feed(&pair).ok()
    };
    // PHP looks for the script, and removes the name of one that it does not find.
    let looks = looks_for_scripts(pool);
    let kept = |(name, _): &(&[u8], &[u8])| !looks || *name != b"SCRIPT_FILENAME";
    for (name, value) in params.iter().filter(kept) {
        add(b"e:", name, value)?;
    }
    for line in head.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii_end();
        if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            add(b"o:", &line[..colon], line[colon + 1..].trim_ascii_start())?;
        }
    }
    decoder.finish().ok()
}

/// Whether the pool's settings leave `cgi.fix_pathinfo` on, as it is by default. Those of php.ini are not known.
fn looks_for_scripts(pool: &Settings) -> bool {
    let Some(php) = pool.php() else {
        return true;
    };
    let defines = php.define.iter().map(|(name, value)| (name, value));
    let settings = php.settings.iter().map(|own| (&own.name, &own.value));
    let last = defines
        .chain(settings)
        .rev()
        .find(|(name, _)| *name == "cgi.fix_pathinfo");
    last.is_none_or(|(_, value)| {
        !["0", "", "off", "no", "false"].contains(&value.to_ascii_lowercase().as_str())
    })
}

/// Maximum size of a worker's note about a request, bytes; also in php/note.c.
pub const MAX_NOTE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    const COST: Cost = Cost {
        cpu: 500,
        user: 400,
        memory: 3_000_000,
        resident: 0,
    };

    fn format(text: &str) -> AccessFormat {
        let toml = format!(
            "[listen.a]\naddress = \"127.0.0.1:80\"\n[site.a]\nroot = \"/\"\npool = \"a\"\n\
             [pool.a]\nruntime = \"servers\"\nservers = [\"127.0.0.1:9\"]\nqueue.maxconn = 1\n\
             access_format = '{text}'\n"
        );
        let environment = weir_config::Environment {
            folder: "/".into(),
            cores: 1,
            memory: 1 << 30,
            open_files: 1 << 16,
        };
        let config = weir_config::parse("a", &toml, &environment).expect("a configuration");
        config.pools[0].access_format.clone()
    }

    fn entry(text: &[u8]) -> PoolLogEntry<'_> {
        PoolLogEntry {
            cost: None,
            params: None,
            header: &|_| None,
            peer: "",
            note: None,
            begun: UNIX_EPOCH + Duration::from_secs(100),
            written: UNIX_EPOCH + Duration::from_secs(101),
            duration: 1_234_567,
            pool: "app",
            pid: Some(7),
            method: b"GET",
            path: text,
            query: text,
            script: text,
            content_length: 5,
            status: 200,
            authorization: b"",
        }
    }

    fn line(text: &str, entry: &PoolLogEntry<'_>) -> String {
        let mut out = Vec::new();
        put_line(&format(text), entry, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn figures_are_written_in_their_units() {
        let mut entry = entry(b"x");
        assert_eq!(
            line("%d %{mili}d %{micro}d %l %s %{%s}t %{%s}T %p", &entry),
            "1.234 1234.567 1234567 5 200 100 101 7\n"
        );
        // There are no measured values.
        assert_eq!(line("%C %{user}C %M %{kilo}M", &entry), "0.00 0.00 0 0\n");
        entry.cost = Some(COST);
        assert_eq!(
            line("%C %{user}C %M %{kilo}M %{mega}M", &entry),
            "0.04 0.03 3000000 2929 2\n"
        );
    }

    #[test]
    fn what_is_not_there_is_a_dash_or_nothing() {
        let entry = PoolLogEntry {
            pid: None,
            peer: "unix:",
            ..entry(b"")
        };
        assert_eq!(
            line("%R|%u|%r|%Q|%q|%f|%{X}e|%{X}o|%p|%n", &entry),
            "-|||||-|-|-|-|app\n"
        );
    }

    #[test]
    fn only_requests_that_nobody_asks_about_are_suppressed() {
        let log = PoolLog {
            format: format("%r"),
            suppressed: vec!["/ping".into()],
            wants_params: false,
            wants_headers: false,
            from_worker: false,
            sink: Sink::off(),
        };
        let ping = || PoolLogEntry {
            query: b"",
            content_length: 0,
            ..entry(b"/ping")
        };
        assert!(log.suppresses(&ping()));
        let others = [
            PoolLogEntry {
                query: b"x",
                ..ping()
            },
            PoolLogEntry {
                status: 500,
                ..ping()
            },
            PoolLogEntry {
                method: b"POST",
                ..ping()
            },
            PoolLogEntry {
                content_length: 1,
                ..ping()
            },
            PoolLogEntry {
                path: b"/ping/",
                ..ping()
            },
        ];
        assert!(others.iter().all(|entry| !log.suppresses(entry)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_one_line(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let peer = String::from_utf8_lossy(&bytes);
            let entry = PoolLogEntry {
                peer: &peer,
                method: &bytes,
                authorization: &bytes,
                ..entry(&bytes)
            };
            let line = line("\"%R %u %m %r%Q%q %f\"", &entry);
            prop_assert_eq!(line.matches('\n').count(), 1);
            prop_assert_eq!(line.matches('"').count(), 2);
            prop_assert!(line.trim_end().bytes().all(|byte| (0x20..0x7f).contains(&byte)));
        }
    }
}
