//! A line as PHP-FPM 8.2 writes it (sapi/fpm/fpm/zlog.c):
//!
//! ```text
//! [20-Nov-2026 15:13:20] WARNING: [pool www] child 7 exited on signal 11 (SIGSEGV) after 2.003142 seconds from start
//! [20-Nov-2026 15:13:20.104312] DEBUG: pid 5, worker_started(), line 93: [pool www] child 7 started
//! ```
//!
//! The second form is that of `level = "debug"`. Details of an event other than its pool follow after the message,
//! because PHP-FPM has no place for them. Control characters are escaped, which PHP-FPM does not do.

use std::time::SystemTime;

use log::kv::{self, Key, Value, VisitSource};
use log::{Level, LevelFilter, Record};

use crate::log_text as text;

/// Appends the line of `record`, without its end.
pub(super) fn put_line(record: &Record<'_>, time: SystemTime, out: &mut Vec<u8>) {
    let debug = log::max_level() >= LevelFilter::Debug;
    out.push(b'[');
    text::put_time_php(time, debug, out);
    out.extend_from_slice(b"] ");
    out.extend_from_slice(match record.level() {
        Level::Error => b"ERROR: ",
        Level::Warn => b"WARNING: ",
        Level::Info => b"NOTICE: ",
        Level::Debug | Level::Trace => b"DEBUG: ",
    });
    if debug {
        let pid = std::process::id();
        text::put_formatted(format_args!("pid {pid}, "), out);
        put_place(record, out);
    }
    put_message(record, out);
}

/// The text for syslog: the level in brackets, and the message. syslog itself adds time and process.
pub(super) fn put_text(record: &Record<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(match record.level() {
        Level::Error => b"[ERROR] ",
        Level::Warn => b"[WARNING] ",
        Level::Info => b"[NOTICE] ",
        Level::Debug | Level::Trace => b"[DEBUG] ",
    });
    if log::max_level() >= LevelFilter::Debug {
        put_place(record, out);
    }
    put_message(record, out);
}

/// `worker_started(), line 93: `
fn put_place(record: &Record<'_>, out: &mut Vec<u8>) {
    let path = record.module_path().unwrap_or("weir");
    let function = path.rsplit("::").next().unwrap_or(path);
    let line = record.line().unwrap_or(0);
    text::put_formatted(format_args!("{function}(), line {line}: "), out);
}

fn put_message(record: &Record<'_>, out: &mut Vec<u8>) {
    // This can fail only in a broken Display; what was written until then is kept.
    let _ = record.key_values().visit(&mut Pool(out));
    text::put_formatted(*record.args(), out);
    let _ = record.key_values().visit(&mut Rest(out));
}

/// Writes the pool where PHP-FPM has it: before the message.
struct Pool<'a>(&'a mut Vec<u8>);

impl<'kvs> VisitSource<'kvs> for Pool<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        if key.as_str() == POOL {
            text::put_formatted(format_args!("[pool {value}] "), self.0);
        }
        Ok(())
    }
}

/// Writes the other details as weir's own format does.
struct Rest<'a>(&'a mut Vec<u8>);

impl<'kvs> VisitSource<'kvs> for Rest<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        if key.as_str() != POOL {
            super::put_pair(&key, &value, self.0);
        }
        Ok(())
    }
}

const POOL: &str = "pool";

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::error_log::About;

    #[test]
    fn a_line_begins_as_php_fpm_s_and_names_the_pool_first() {
        let about = About {
            pool: Some("www"),
            request: Some(42),
            ..About::default()
        };
        let mut out = Vec::new();
        put_line(
            &Record::builder()
                .level(Level::Warn)
                .args(format_args!("a\nb"))
                .key_values(&about)
                .build(),
            UNIX_EPOCH + Duration::from_millis(1_795_176_840_123),
            &mut out,
        );
        let line = String::from_utf8(out).expect("text");
        let (time, rest) = line.split_once("] ").expect("a time");
        assert!(time.starts_with("[20-Nov-2026 "), "{time}");
        // Another test may have set the level to debug.
        assert!(rest.starts_with("WARNING: "), "{rest}");
        assert!(rest.ends_with("[pool www] a\\x0Ab request=42"), "{rest}");
    }
}
