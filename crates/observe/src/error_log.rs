//! The error log, behind the `log` facade: what went wrong, who caused it, and where to look.
//!
//! ```text
//! 2026-11-20T12:14:00.123Z error [gateway] worker died: signal 11 site=shop pool=shop request=42 worker=1234
//! ```
//!
//! One event is one line, whatever its text contains. Repeated events are not suppressed. The levels are those of the
//! configuration: error, warning, notice (`info` in the facade), debug (`debug` and `trace`).
//!
//! With `[log] error_format = "fpm"` the lines have PHP-FPM's format ([`fpm`]), for scripts that read it. Events of
//! pools and workers then also have PHP-FPM's wording ([`crate::events`]). With `"json"` each line is an object.
//!
//! Gateway and manager write through a [`Sink`], so they never wait for a disk or for a pipe that nobody reads; in
//! that case lines are lost. Only events before the configuration is read are written at once.

mod fpm;
mod json;
pub mod syslog;
mod worker_stderr;

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::parent_id;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use log::kv::{self, Key, Source, Value, VisitSource};
pub use log::{Level, max_level};
use log::{LevelFilter, Log, Metadata, Record};

use weir_config::ErrorFormat;
use weir_sys::poll;

pub use self::worker_stderr::WorkerStderr;

use crate::log_sink::{self, Options, Sink, Target, Trouble};
use crate::log_text::{self as text, Worker};

/// Sets up the process's error log: on standard error, unbuffered, so that all later events can be logged. `role`
/// names the process in the lines: `manager`, `gateway`. A second call changes nothing.
pub fn init(role: &'static str) {
    let way = Way::direct(Target::Stderr).unwrap_or(Way::Direct {
        file: None,
        lost: 0,
    });
    let _ = LOG.set(ErrorLog::new(role, way));
    let Some(log) = LOG.get() else { return };
    if log::set_logger(log).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Sets the least severe level that is written; the default is notice.
pub fn set_level(level: weir_config::Level) {
    log::set_max_level(match level {
        weir_config::Level::Error => LevelFilter::Error,
        weir_config::Level::Warning => LevelFilter::Warn,
        weir_config::Level::Notice => LevelFilter::Info,
        weir_config::Level::Debug => LevelFilter::Trace,
    });
}

/// Whose messages the log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `2026-11-20T12:14:00.123Z error [manager] message key=value`, or the same as JSON.
    Weir,
    /// `[20-Nov-2026 12:14:00] ERROR: message`
    Fpm,
}

/// Sets the format of lines; the default is weir's own.
pub fn set_format(format: ErrorFormat) {
    FPM.store(format == ErrorFormat::Fpm, Ordering::Relaxed);
    JSON.store(format == ErrorFormat::Json, Ordering::Relaxed);
}

/// Whose messages the log has now.
pub fn format() -> Format {
    match FPM.load(Ordering::Relaxed) {
        true => Format::Fpm,
        false => Format::Weir,
    }
}

/// From now on writes each event at once to `target`. For a process that has just started.
///
/// # Errors
/// If no descriptor is left.
pub fn write_directly(target: Target) -> io::Result<()> {
    if let Some(log) = LOG.get() {
        log.replace(Way::direct(target)?);
    }
    Ok(())
}

/// From now on writes to `target` from a separate thread; an existing writer thread continues with `target`. Then
/// logging never waits for a disk or for a pipe that nobody reads.
///
/// # Errors
/// If no thread or no descriptor is left.
pub fn write_behind(target: Target) -> io::Result<()> {
    let Some(log) = LOG.get() else { return Ok(()) };
    let before = log.with_way(|way| match way {
        Way::Behind(sink) => Some(Arc::clone(sink)),
        Way::Direct { .. } | Way::Syslog(_) => None,
    });
    match (before, target) {
        (Some(sink), Target::Fd(fd)) => sink.reopen(fd),
        (_, target) => log.replace(Way::behind(target)?),
    }
    Ok(())
}

/// From now on writes each event at once to syslog. `socket` is from [`syslog::connect`].
///
/// # Errors
/// If the socket cannot be used.
pub fn write_to_syslog(socket: OwnedFd, config: &weir_config::Log) -> io::Result<()> {
    let Some(log) = LOG.get() else { return Ok(()) };
    let pid = match config.error_format {
        // All messages of PHP-FPM come from its master process: here the manager, the parent of this process.
        ErrorFormat::Fpm if log.role != "manager" => parent_id(),
        _ => std::process::id(),
    };
    let syslog = syslog::Syslog::new(socket, config.into(), pid)?;
    log.replace(Way::Syslog(syslog));
    Ok(())
}

/// Continues in another file, as after the old one was moved away.
pub fn reopen(fd: OwnedFd) {
    if let Some(log) = LOG.get() {
        log.reopen(fd);
    }
}

/// Waits, at most for `limit`, until everything is written. Returns whether it is. To be called before the process
/// ends.
pub fn flush(limit: Duration) -> bool {
    LOG.get().is_none_or(|log| log.wait(limit))
}

/// Makes a panic an event of the error log.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        match panic.location() {
            Some(place) => {
                log::error!(thread = thread; "panic at {place}: {}", panic_message(panic.payload()))
            }
            None => log::error!(thread = thread; "panic: {}", panic_message(panic.payload())),
        }
        flush(PANIC_FLUSH);
    }));
}

/// The subject of an event: appended to its message, always with the same names.
#[derive(Debug, Clone, Copy, Default)]
pub struct About<'a> {
    /// Name of the site.
    pub site: Option<&'a str>,
    /// Name of the pool.
    pub pool: Option<&'a str>,
    /// Name of the program, and its process.
    pub program: Option<(&'a str, Option<u32>)>,
    /// Number of the request in this process, as the access log and the trace name it.
    pub request: Option<u64>,
    /// The worker.
    pub worker: Option<Worker<'a>>,
    /// The client and its request.
    pub asked: Option<RequestLine<'a>>,
}

/// A pool.
pub fn about_pool(pool: &str) -> About<'_> {
    About {
        pool: Some(pool),
        ..About::default()
    }
}

/// A worker of a pool.
pub fn about_worker(pool: &str, pid: u32) -> About<'_> {
    About {
        worker: Some(Worker::Pid(pid)),
        ..about_pool(pool)
    }
}

/// A program (`[program.NAME]`), or a process of it.
pub fn about_program(program: &str, pid: Option<u32>) -> About<'_> {
    About {
        program: Some((program, pid)),
        ..About::default()
    }
}

/// The request of a client.
#[derive(Debug, Clone, Copy)]
pub struct RequestLine<'a> {
    /// The client's address.
    pub client: &'a str,
    /// Its method.
    pub method: &'a str,
    /// Path and query as it sent them.
    pub url: &'a str,
}

impl Source for About<'_> {
    fn visit<'kvs>(&'kvs self, visitor: &mut dyn VisitSource<'kvs>) -> Result<(), kv::Error> {
        if let Some(site) = self.site {
            visitor.visit_pair(Key::from_str("site"), Value::from(site))?;
        }
        if let Some(pool) = self.pool {
            visitor.visit_pair(Key::from_str("pool"), Value::from(pool))?;
        }
        if let Some((program, pid)) = self.program {
            visitor.visit_pair(Key::from_str("program"), Value::from(program))?;
            if let Some(pid) = pid {
                visitor.visit_pair(Key::from_str("pid"), Value::from(pid))?;
            }
        }
        if let Some(request) = self.request {
            visitor.visit_pair(Key::from_str("request"), Value::from(request))?;
        }
        if let Some(worker) = &self.worker {
            visitor.visit_pair(Key::from_str("worker"), Value::from_display(worker))?;
        }
        if let Some(asked) = &self.asked {
            visitor.visit_pair(Key::from_str("client"), Value::from(asked.client))?;
            visitor.visit_pair(Key::from_str("method"), Value::from(asked.method))?;
            visitor.visit_pair(Key::from_str("url"), Value::from(asked.url))?;
        }
        Ok(())
    }
}

/// Logs an event about a site, a pool, a request or a worker: `tell!(error, about, "worker died: {status}")`, with an
/// [`About`]. Levels: error, warning, notice, debug. For events without such a subject, use the `log` crate's own
/// macros.
#[macro_export]
macro_rules! tell {
    (error, $($rest:tt)+) => { $crate::error_log::tell!(@ $crate::error_log::Level::Error, $($rest)+) };
    (warning, $($rest:tt)+) => { $crate::error_log::tell!(@ $crate::error_log::Level::Warn, $($rest)+) };
    (notice, $($rest:tt)+) => { $crate::error_log::tell!(@ $crate::error_log::Level::Info, $($rest)+) };
    (debug, $($rest:tt)+) => { $crate::error_log::tell!(@ $crate::error_log::Level::Debug, $($rest)+) };
    (@ $level:expr, $about:expr, $($message:tt)+) => {
        if $level <= $crate::error_log::max_level() {
            $crate::error_log::write($level, &$about, ::core::format_args!($($message)+));
        }
    };
}
pub use crate::tell;

/// What [`tell!`] calls.
pub fn write(level: Level, about: &About<'_>, message: fmt::Arguments<'_>) {
    log::logger().log(
        &Record::builder()
            .level(level)
            .target("weir")
            .args(message)
            .key_values(about)
            .build(),
    );
}

/// Used by [`crate::events`]: an event with its name and its source line, which PHP-FPM's format shows at level
/// debug.
pub(crate) fn write_event(
    event: &'static str,
    line: u32,
    level: Level,
    about: &About<'_>,
    message: fmt::Arguments<'_>,
) {
    if level > log::max_level() {
        return;
    }
    log::logger().log(
        &Record::builder()
            .level(level)
            .target("weir")
            .module_path_static(Some(event))
            .line(Some(line))
            .args(message)
            .key_values(about)
            .build(),
    );
}

/// Writes a line from another source without adding time or level: the output of a worker that is logged undecorated.
/// Control characters are still escaped.
pub(crate) fn write_plain(line: &[u8]) {
    if let Some(log) = LOG.get() {
        let mut out = Vec::with_capacity(line.len() + 1);
        match is_json() {
            true => json::put_plain(log.role, line, SystemTime::now(), &mut out),
            false => text::put_message(line, &mut out),
        }
        out.push(b'\n');
        log.write_text(Level::Warn, out);
    }
}

/// Writes bytes from another source, including newlines: lines in PHP-FPM's format, or parts of them. For syslog they
/// must be whole lines; each is one message.
pub fn write_bytes(bytes: &[u8]) {
    let Some(log) = LOG.get().filter(|_| !bytes.is_empty()) else {
        return;
    };
    if !log.with_way(|way| way.send_lines(bytes)) {
        log.write_text(Level::Warn, bytes.to_vec());
    }
}

/// Bytes as text; those that are not UTF-8 as `\xHH`.
pub struct Lossless<'a>(pub &'a [u8]);

impl fmt::Display for Lossless<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02X}")?;
            }
        }
        Ok(())
    }
}

/// An error log; a process has one, except in tests.
struct ErrorLog {
    role: &'static str,
    way: Mutex<Way>,
}

/// The output of the log.
enum Way {
    Direct { file: Option<File>, lost: u64 },
    Behind(Arc<Sink>),
    Syslog(syslog::Syslog),
}

impl Way {
    fn direct(target: Target) -> io::Result<Self> {
        let fd = match target {
            Target::Off => None,
            Target::Stdout => Some(io::stdout().as_fd().try_clone_to_owned()?),
            Target::Stderr => Some(io::stderr().as_fd().try_clone_to_owned()?),
            Target::Fd(fd) => Some(fd),
        };
        Ok(Self::Direct {
            file: fd.map(File::from),
            lost: 0,
        })
    }

    fn behind(target: Target) -> io::Result<Self> {
        // An event is written as soon as the writer wakes: an operator who watches the log sees it at once, and a
        // killed process has already written it.
        let options = Options {
            max_delay: Duration::ZERO,
            report: report_own_trouble,
            ..Options::default()
        };
        let sink = Sink::start(log_sink::ERROR_LOG, target, options)?;
        Ok(Self::Behind(Arc::new(sink)))
    }

    /// Sends lines to syslog; `false`: this is another kind of log.
    fn send_lines(&mut self, lines: &[u8]) -> bool {
        let Self::Syslog(syslog) = self else {
            return false;
        };
        syslog.send_lines(lines);
        true
    }
}

impl ErrorLog {
    fn new(role: &'static str, way: Way) -> Self {
        Self {
            role,
            way: Mutex::new(way),
        }
    }

    fn with_way<T>(&self, then: impl FnOnce(&mut Way) -> T) -> T {
        then(&mut self.way.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, way: Way) {
        let old = self.with_way(|old| std::mem::replace(old, way));
        if let Way::Behind(sink) = old {
            // The rest of the old log must not delay us.
            sink.close(PANIC_FLUSH);
        }
    }

    fn reopen(&self, fd: OwnedFd) {
        self.with_way(|way| match way {
            Way::Direct { file, .. } => *file = Some(fd.into()),
            Way::Behind(sink) => sink.reopen(fd),
            Way::Syslog(syslog) => syslog.reopen(fd),
        });
    }

    fn wait(&self, limit: Duration) -> bool {
        // Outside of the lock: other threads continue to log, and the writer itself may log something.
        let sink = self.with_way(|way| match way {
            Way::Direct { .. } | Way::Syslog(_) => None,
            Way::Behind(sink) => Some(Arc::clone(sink)),
        });
        sink.is_none_or(|sink| sink.flush(limit))
    }

    fn write(&self, record: &Record<'_>) {
        let mut line = Vec::with_capacity(256);
        if self.with_way(|way| matches!(way, Way::Syslog(_))) {
            match format() {
                Format::Weir if is_json() => {
                    json::put(self.role, record, SystemTime::now(), &mut line)
                }
                Format::Weir => syslog::put_text(record, self.role, &mut line),
                Format::Fpm => fpm::put_text(record, &mut line),
            }
            return self.write_text(record.level(), line);
        }
        match format() {
            Format::Weir if is_json() => json::put(self.role, record, SystemTime::now(), &mut line),
            Format::Weir => self.put_line(record, SystemTime::now(), &mut line),
            Format::Fpm => fpm::put_line(record, SystemTime::now(), &mut line),
        }
        line.push(b'\n');
        self.write_text(record.level(), line);
    }

    /// Writes a line with its end, or a message to syslog.
    fn write_text(&self, level: Level, mut line: Vec<u8>) {
        self.with_way(|way| match way {
            Way::Behind(sink) => sink.push(&line),
            Way::Syslog(syslog) => syslog.send(level, line.trim_ascii_end()),
            Way::Direct { file: None, .. } => {}
            Way::Direct {
                file: Some(file),
                lost,
            } => {
                if *lost > 0 && is_json() {
                    json::put_lost(*lost, &mut line);
                } else if *lost > 0 && line.pop_if(|byte| *byte == b'\n').is_some() {
                    line.extend_from_slice(format!(" lines_lost={lost}\n").as_bytes());
                }
                *lost = if write_line(file, &line) {
                    0
                } else {
                    *lost + 1
                };
            }
        });
    }

    fn put_line(&self, record: &Record<'_>, time: SystemTime, out: &mut Vec<u8>) {
        text::put_time_utc(time, out);
        for part in [" ", level_name(record.level()), " [", self.role, "] "] {
            out.extend_from_slice(part.as_bytes());
        }
        text::put_formatted(*record.args(), out);
        // This can fail only in a broken Display; what was written until then is kept.
        let _ = record.key_values().visit(&mut Pairs(out));
    }
}

/// The level as weir.toml names it.
fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "notice",
        Level::Debug | Level::Trace => "debug",
    }
}

fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

impl Log for ErrorLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.write(record);
        }
    }

    fn flush(&self) {
        self.wait(PANIC_FLUSH);
    }
}

/// Appends `key=value` pairs.
struct Pairs<'a>(&'a mut Vec<u8>);

impl<'kvs> VisitSource<'kvs> for Pairs<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        put_pair(&key, &value, self.0);
        Ok(())
    }
}

fn put_pair(key: &Key<'_>, value: &Value<'_>, out: &mut Vec<u8>) {
    out.push(b' ');
    text::put_message(key.as_str().as_bytes(), out);
    out.push(b'=');
    text::put_value(value.to_string().as_bytes(), out);
}

/// Writes a line, in one piece if the file accepts that. Returns whether it was written. A full pipe gets a short
/// time.
fn write_line(mut file: &File, line: &[u8]) -> bool {
    let mut at = 0;
    let mut patience = 20;
    while at < line.len() {
        // Waiting for the reader of a full pipe would block the process.
        if !poll::writable(file.as_fd(), DIRECT_LIMIT).unwrap_or(true) {
            return false;
        }
        let end = line.len().min(at + PIPE_BUF);
        match file.write(&line[at..end]) {
            Ok(0) => return false,
            Ok(written) => at += written,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && patience > 0 => {
                patience -= 1;
                thread::sleep(Duration::from_millis(1));
            }
            Err(_) => return false,
        }
    }
    true
}

/// An error log that cannot be written is reported on standard error only. Lost lines are noticed by a thread that
/// wants to log and must not wait, not even for standard error: they are reported when the trouble is over.
fn report_own_trouble(name: &str, trouble: &Trouble) {
    match trouble {
        Trouble::Failing(error, _) => {
            let _ = writeln!(io::stderr(), "weir: {name} cannot be written: {error}");
        }
        Trouble::Losing(_) => {}
        Trouble::Recovered(lost) => log::warn!(lines_lost = lost; "{name} is written again"),
    }
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> &str {
    match (
        payload.downcast_ref::<&str>(),
        payload.downcast_ref::<String>(),
    ) {
        (Some(message), _) => message,
        (_, Some(message)) => message,
        _ => "no message",
    }
}

static LOG: OnceLock<ErrorLog> = OnceLock::new();

/// Whether the format is PHP-FPM's.
static FPM: AtomicBool = AtomicBool::new(false);

/// Whether lines are JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// How long a line waits for the reader of standard error.
const DIRECT_LIMIT: Duration = Duration::from_millis(20);

/// pipe(7): a writable pipe accepts this much at once.
const PIPE_BUF: usize = 4096;

/// How long a panic waits for its line to be written.
const PANIC_FLUSH: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::{worker_stderr::LONGEST_STDERR_LINE, *};

    const ABOUT: About<'_> = About {
        site: Some("shop"),
        pool: Some("my shop"),
        program: None,
        request: Some(42),
        worker: Some(Worker::Pid(7)),
        asked: Some(RequestLine {
            client: "2001:db8::7",
            method: "GET",
            url: "/a?b=\"c",
        }),
    };

    fn line(level: Level, about: &About<'_>, message: fmt::Arguments<'_>) -> String {
        let log = ErrorLog::new(
            "gateway",
            Way::Direct {
                file: None,
                lost: 0,
            },
        );
        let record = Record::builder()
            .level(level)
            .args(message)
            .key_values(about)
            .build();
        let mut out = Vec::new();
        log.put_line(
            &record,
            UNIX_EPOCH + Duration::from_millis(1_795_176_840_123),
            &mut out,
        );
        out.push(b'\n');
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn line_of_an_event() {
        assert_eq!(
            line(Level::Error, &ABOUT, format_args!("worker died: {}", 11)),
            "2026-11-20T12:14:00.123Z error [gateway] worker died: 11 site=shop pool=\"my shop\" request=42 worker=7 \
             client=2001:db8::7 method=GET url=\"/a?b=\\\"c\"\n"
        );
        let server = About {
            worker: Some(Worker::Server("unix:/run/a.sock")),
            ..About::default()
        };
        assert_eq!(
            line(Level::Warn, &server, format_args!("a\nb\x1b[31m")),
            "2026-11-20T12:14:00.123Z warning [gateway] a\\x0Ab\\x1B[31m worker=unix:/run/a.sock\n"
        );
        assert!(
            line(Level::Info, &About::default(), format_args!("ä"))
                .ends_with(" notice [gateway] ä\n")
        );
        assert!(
            line(Level::Trace, &About::default(), format_args!("x"))
                .ends_with(" debug [gateway] x\n")
        );
    }

    proptest! {
        #[test]
        fn no_value_breaks_a_line(message: String, site: String) {
            let about = About { site: Some(&site), ..About::default() };
            let line = line(Level::Error, &about, format_args!("{message}"));
            prop_assert!(line.ends_with('\n'));
            prop_assert!(!line[..line.len() - 1].contains(char::is_control), "{line:?}");
        }
    }

    /// The facade has one logger for all tests of this program, so everything that uses it is a single test.
    #[test]
    fn through_the_facade() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let open = |name: &str| -> OwnedFd {
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(path(name))
                .expect("a log")
                .into()
        };
        // Other tests may log as well: only lines of this test count.
        let read = |name: &str| -> Vec<String> {
            let text = fs::read_to_string(path(name)).expect("text");
            let lines = text.lines().filter(|line| line.contains("request=1700"));
            lines
                .map(|line| line.split_once(" [").expect("a role").1.to_owned())
                .collect()
        };
        let about = About {
            request: Some(1_700),
            ..About::default()
        };

        init("test");
        write_directly(Target::Fd(open("manager"))).expect("a log");
        tell!(error, about, "at once {}", 1);
        tell!(debug, about, "not told");
        assert_eq!(read("manager"), ["test] at once 1 request=1700"]);
        set_level(weir_config::Level::Debug);
        tell!(debug, about, "told");
        reopen(open("manager.1"));
        tell!(warning, about, "elsewhere");
        assert_eq!(
            read("manager"),
            ["test] at once 1 request=1700", "test] told request=1700"]
        );
        assert_eq!(read("manager.1"), ["test] elsewhere request=1700"]);

        write_behind(Target::Fd(open("gateway"))).expect("a log");
        log::error!(pool = "a", request = 1_700; "by the facade");
        let mut stderr = WorkerStderr::new();
        let long = "x".repeat(LONGEST_STDERR_LINE);
        let text = format!("PHP Warning:  a\r\n\nPHP Fatal\x07\n{long}\n{long}y\nunfinished");
        for piece in text.as_bytes().chunks(7) {
            stderr.push(piece, &about);
        }
        stderr.push(b" \xff", &about);
        stderr.finish(&about);
        stderr.finish(&about);
        assert!(flush(Duration::from_secs(30)));
        let expected = [
            "test] by the facade pool=a request=1700".to_owned(),
            "test] worker stderr: PHP Warning:  a request=1700".to_owned(),
            "test] worker stderr: PHP Fatal\\x07 request=1700".to_owned(),
            format!("test] worker stderr: {long} request=1700"),
            format!("test] worker stderr: {long} [goes on] request=1700"),
            "test] worker stderr: [continued] y request=1700".to_owned(),
            "test] worker stderr: unfinished \\xFF request=1700".to_owned(),
        ];
        assert_eq!(read("gateway"), expected);

        log_panics();
        let panicked = thread::spawn(|| panic!("line 1\nrequest=1700")).join();
        let _ = std::panic::take_hook();
        assert!(panicked.is_err());
        let told = read("gateway");
        let last = told.last().expect("a line");
        assert!(
            last.starts_with("test] panic at crates/observe/src/error_log.rs:"),
            "{last}"
        );
        assert!(
            last.ends_with(": line 1\\x0Arequest=1700 thread=unnamed"),
            "{last}"
        );
    }

    #[test]
    fn lines_lost_by_a_full_pipe_are_counted() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        // A pipe that is opened again has its own flags.
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let non_blocking = OpenOptions::new()
            .write(true)
            .custom_flags(O_NONBLOCK)
            .open(path)
            .expect("the pipe again");
        drop(writer);
        let way = Way::direct(Target::Fd(non_blocking.into())).expect("a way");
        let log = ErrorLog::new("manager", way);
        let say = |message: &str| {
            log.write(
                &Record::builder()
                    .level(Level::Error)
                    .args(format_args!("{message}"))
                    .build(),
            )
        };
        let lost = || log.with_way(|way| matches!(way, Way::Direct { lost: 2, .. }));
        let filling = "x".repeat(4_000);
        for _ in 0..100 {
            say(&filling);
            if lost() {
                break;
            }
        }
        assert!(lost());
        let mut room = vec![0; 8_192];
        reader.read_exact(&mut room).expect("lines");
        say("again");
        drop(log);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        assert!(
            text.ends_with(" error [manager] again lines_lost=2\n"),
            "{}",
            &text[text.len() - 200..]
        );
    }

    /// fcntl.h on Linux, except for a few rare architectures.
    const O_NONBLOCK: i32 = 0o4000;
}
