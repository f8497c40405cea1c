//! `weir bench`: loads a URL and reports.
//!
//! | file | what it is for |
//! |---|---|
//! | `args` | what is typed |
//! | `plan` | the plan for that, or why it is impossible; with `target` (URL, whose machine), `urls`, `replay`, `work` |
//! | `probe` | sends one request before the load begins |
//! | `engine` | sends: closed and open loop; with `client`, one connection |
//! | `record` | adds up what happened; with `series`, by seconds |
//! | `report` | the results: `summary`, then `text`, `json`, `html` |
//! | `advise` | loads in steps, and proposes a pool's limits |
//!
//! It uses nothing of the gateway: it measures what any client would see.

mod advise;
mod args;
mod client;
mod engine;
mod plan;
mod probe;
mod record;
mod replay;
mod report;
mod series;
mod target;
mod urls;
mod work;

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    process::ExitCode,
    time::{Duration, Instant},
};

use weir_observe::console;
use weir_sys::{
    limits, poll,
    signal::{Signal, Signals},
};

pub use advise::{Known, main as advise};
pub use args::BenchArgs;
use engine::{Run, Running};
use plan::Plan;
use report::Summary;

/// Why there is no report.
#[derive(Debug)]
pub struct Stop {
    /// The exit code.
    code: u8,
    message: String,
    /// How to fix it; may be empty.
    hint: String,
}

/// Runs `weir bench`.
pub fn main(args: &BenchArgs) -> ExitCode {
    say(bench(args))
}

fn say(done: Result<ExitCode, Stop>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(stop) => {
            console::say_error(&stop.message, &stop.hint);
            ExitCode::from(stop.code)
        }
    }
}

fn bench(args: &BenchArgs) -> Result<ExitCode, Stop> {
    let mut plan = Plan::of(args)?;
    // Opened before the load, so that a load is not run in vain.
    let page = match &args.html {
        Some(path) => {
            let made = File::create(path).map(|page| (page, path));
            let wrong = |error| Stop::usage(format!("--html {}: {error}", path.display()));
            Some(made.map_err(wrong)?)
        }
        None => None,
    };
    let signals = begin(&mut plan, args)?;
    for note in &plan.notes {
        console::say(format_args!("note: {note}\n"));
    }
    let run = load(&plan, &signals)?;
    let summary = Summary::of(&plan, &run);
    print(&match args.json {
        true => report::json(&summary),
        false => report::text(&summary),
    })?;
    if let Some((mut page, path)) = page {
        page.write_all(report::html(&summary).as_bytes())
            .map_err(|error| Stop::internal(format!("--html {}: {error}", path.display())))?;
    }
    let too_low = args
        .fail_below
        .is_some_and(|least| summary.availability.unwrap_or(0.0) < least);
    Ok(ExitCode::from(u8::from(too_low)))
}

/// The preparation of each load: descriptors, the probe, signals.
fn begin(plan: &mut Plan, args: &BenchArgs) -> Result<Signals, Stop> {
    allow_descriptors(plan)?;
    if !args.no_probe {
        probe::ask(plan)?;
    }
    // The signal is handled only from here on. Before there is anything to report, Ctrl-C just ends the program.
    Signals::take(&[Signal::Int, Signal::Term])
        .map_err(|error| Stop::internal(format!("signals: {error}")))
}

/// Writes to stdout.
fn print(text: &str) -> Result<(), Stop> {
    console::print(text).map_err(|error| Stop::internal(format!("standard output: {error}")))
}

/// Runs a load to its end, or until it is interrupted, and shows its progress on a terminal.
fn load(plan: &Plan, signals: &Signals) -> Result<Run, Stop> {
    let wrong = |error: io::Error| Stop::internal(format!("the load: {error}"));
    let running = engine::start(plan).map_err(wrong)?;
    let mut progress = report::Progress::new(io::stderr().is_terminal());
    let mut next = Instant::now() + SECOND;
    while !running.is_over() {
        let look = poll::readable(&[signals.as_fd()], Some(LOOK)).map_err(wrong)?;
        if look.contains(&true) && signals.next().map_err(wrong)?.is_some() {
            running.end();
        }
        if Instant::now() >= next {
            next += SECOND;
            show(&running, &mut progress);
        }
    }
    progress.end();
    running.finish().map_err(wrong)
}

fn show(running: &Running, progress: &mut report::Progress) {
    progress.show(&running.progress());
}

/// Raises the limit of open files as far as possible; a load that does not fit is refused or gets fewer connections.
fn allow_descriptors(plan: &mut Plan) -> Result<(), Stop> {
    // If it cannot be raised, the present limit counts.
    let _ = limits::raise_open_files();
    let limit = limits::open_files().soft;
    let wanted = plan.descriptors();
    if wanted <= limit {
        return Ok(());
    }
    let most = u32::try_from(limit.saturating_sub(wanted - plan.connections())).unwrap_or(u32::MAX);
    if most > 0 && plan.limit_connections(most) {
        plan.notes.push(format!(
            "at most {most} connections at a time, because this process is limited to {limit} open files (ulimit -n)"
        ));
        return Ok(());
    }
    Err(Stop {
        hint: format!("run ulimit -n {wanted}, or use fewer users"),
        ..Stop::usage(format!(
            "this many connections need {wanted} open files, but this process is limited to {limit}"
        ))
    })
}

impl Stop {
    /// The command line is wrong.
    fn usage(message: impl Into<String>) -> Self {
        Self {
            code: EX_USAGE,
            message: message.into(),
            hint: String::new(),
        }
    }

    /// The target does not answer.
    fn unavailable(message: impl Into<String>) -> Self {
        Self {
            code: EX_UNAVAILABLE,
            ..Self::usage(message)
        }
    }

    /// An internal error.
    fn internal(message: impl Into<String>) -> Self {
        Self {
            code: EX_SOFTWARE,
            ..Self::usage(message)
        }
    }
}

/// Wrong command line (sysexits.h).
const EX_USAGE: u8 = 64;

/// Nobody answers (sysexits.h).
const EX_UNAVAILABLE: u8 = 69;

/// Internal (sysexits.h).
const EX_SOFTWARE: u8 = 70;

const SECOND: Duration = Duration::from_secs(1);

/// How often the end of a load is checked.
const LOOK: Duration = Duration::from_millis(20);
