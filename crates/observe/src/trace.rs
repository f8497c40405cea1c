//! `--trace`: writes each step of each request to standard error as it happens.
//!
//! ```text
//! 12:14:00.123511 #42     +0.000012 head        GET /index.php
//! 12:14:00.123530 #42     +0.000031 route       site=shop script /srv/shop/index.php
//! 12:14:00.123543 #42     +0.000044 queue       pool=shop waiting=3
//! 12:14:00.204010 #42     +0.080511 left        0 bytes
//! ```
//!
//! Each line has: local time, the request's number (as in the logs), seconds since its head was complete, the step,
//! and its details. Lines are in the order of events, for all reactors together. If tracing is off, a step costs a
//! load and a branch; its arguments are not evaluated.

use std::env;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use crate::clock;
use crate::log_sink::{Options, Sink, Target};
use crate::log_text as text;

/// Traces a step: `step!(id, start, "queue", "pool={} waiting={n}", pool.name)`. `id` is the number of the request,
/// `start` when its head was complete ([`clock::now`]).
#[macro_export]
macro_rules! step {
    ($id:expr, $start:expr, $step:expr, $($detail:tt)+) => {
        if $crate::trace::is_on() {
            $crate::trace::write($id, $start, $step, ::core::format_args!($($detail)+));
        }
    };
}
pub use crate::step;

/// Turns tracing on. It cannot be turned off again.
///
/// # Errors
/// If no thread can be started or no descriptor is left.
pub fn enable() -> io::Result<()> {
    let options = Options {
        max_delay: Duration::ZERO,
        ..Options::default()
    };
    let colour =
        io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let sink = Arc::new(Sink::start("trace", Target::Stderr, options)?);
    let _ = TRACE.set(Trace { sink, colour });
    ON.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether steps are traced.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// What [`step!`] calls.
#[cold]
pub fn write(id: u64, start: u64, step: &str, detail: fmt::Arguments<'_>) {
    if let Some(trace) = TRACE.get() {
        trace.write(id, start, step, detail);
    }
}

/// Waits, at most for `limit`, until all steps are written.
pub fn flush(limit: Duration) {
    if let Some(trace) = TRACE.get() {
        trace.sink.flush(limit);
    }
}

struct Trace {
    sink: Arc<Sink>,
    colour: bool,
}

impl Trace {
    fn write(&self, id: u64, start: u64, step: &str, detail: fmt::Arguments<'_>) {
        let mut said = Vec::new();
        text::put_formatted(detail, &mut said);
        // Both clocks are read under the sink's lock, so that lines and times have the same order.
        self.sink.push_with(said.len() + 64, |out| {
            text::put_clock(SystemTime::now(), out);
            let since = Duration::from_micros(clock::precise().saturating_sub(start));
            put_step(id, since, (step, &said), self.colour, out);
        });
    }
}

fn put_step(
    id: u64,
    since: Duration,
    (step, detail): (&str, &[u8]),
    colour: bool,
    out: &mut Vec<u8>,
) {
    let (on, off) = if colour {
        (colour_of(step), "\x1b[0m")
    } else {
        ("", "")
    };
    let micros = since.as_micros();
    // Writing to a Vec cannot fail.
    let _ = write!(
        out,
        " #{id:<6} +{}.{:06} {on}{step:<11}{off}",
        micros / 1_000_000,
        micros % 1_000_000
    );
    if detail.is_empty() {
        out.truncate(out.trim_ascii_end().len());
    } else {
        out.push(b' ');
        out.extend_from_slice(detail);
    }
    out.push(b'\n');
}

/// Waiting is yellow, work is green, the end is cyan, so that they are easy to find.
fn colour_of(step: &str) -> &'static str {
    match step {
        "queue" | "retry" => "\x1b[33m",
        "refuse" | "left" => "\x1b[31m",
        "dispatch" | "first byte" => "\x1b[32m",
        "response" | "sent" => "\x1b[36m",
        _ => "",
    }
}

static ON: AtomicBool = AtomicBool::new(false);

static TRACE: OnceLock<Trace> = OnceLock::new();

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LATER: Duration = Duration::from_micros(1_000_012);

    fn line(id: u64, step: &str, detail: &str, colour: bool) -> String {
        let mut out = Vec::new();
        put_step(id, LATER, (step, detail.as_bytes()), colour, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn lines_are_aligned() {
        assert_eq!(
            line(42, "head", "GET /", false),
            " #42     +1.000012 head        GET /\n"
        );
        assert_eq!(
            line(42, "release", "", false),
            " #42     +1.000012 release\n"
        );
        assert_eq!(
            line(1, "queue", "a", true),
            " #1      +1.000012 \x1b[33mqueue      \x1b[0m a\n"
        );
    }

    #[test]
    fn nothing_is_evaluated_while_it_is_off() {
        let start = clock::now();
        let mut evaluated = false;
        step!(1, start, "head", "{}", {
            evaluated = true;
            ""
        });
        assert!(!is_on() && !evaluated);
    }

    #[test]
    fn lines_are_in_the_order_of_their_times() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace");
        let file = fs::File::create(&path).expect("a file");
        let sink = Arc::new(
            Sink::start("trace", Target::Fd(file.into()), Options::default()).expect("a sink"),
        );
        let trace = Trace {
            sink,
            colour: false,
        };
        let start = clock::now();
        std::thread::scope(|scope| {
            for id in 0..4 {
                let trace = &trace;
                scope.spawn(move || {
                    for n in 0..500 {
                        trace.write(id, start, "step", format_args!("{n}\n\x1b[2J"));
                    }
                });
            }
        });
        assert!(trace.sink.flush(Duration::from_secs(30)));
        let text = fs::read_to_string(&path).expect("text");
        let since: Vec<&str> = text
            .lines()
            .map(|line| line.split_once('+').expect("a time").1)
            .collect();
        assert_eq!(since.len(), 2_000);
        assert!(since.is_sorted_by_key(|line| &line[..8]), "{text}");
        assert!(since.iter().all(|line| line.ends_with("\\x0A\\x1B[2J")));
    }
}
