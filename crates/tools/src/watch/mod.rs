//! `weir watch`: shows the kernel's accept queues of listeners, of weir and of any other program, repeatedly.
//!
//! PHP-FPM shows 0 for the queue of a unix socket, nginx and Apache show nothing. The kernel has the values and gives
//! them to everybody ([`weir_sys::sock_diag`]). No connections are made and nothing is changed. [`target`] finds the
//! listeners, [`sample`] measures, [`table`] shows.

mod sample;
mod table;
mod target;

use std::{
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use http::Method;
use serde_json::Value;
use weir_admin::client::Endpoint;
use weir_observe::console;
use weir_sys::{
    poll,
    signal::{Signal, Signals},
    terminal,
};

use self::{
    sample::{Sample, Watch},
    target::Target,
};

/// Flags of `weir watch`, except those that select a weir.
#[derive(Debug, Args)]
pub struct Flags {
    /// Listeners: host:port, :port, [::1]:port, unix:PATH, /PATH, @NAME [default: all of the running weir, else all]
    #[arg(value_name = "ADDR", value_parser = Target::parse)]
    addresses: Vec<Target>,

    /// Show all listening sockets of this network namespace
    #[arg(short, long, conflicts_with = "addresses")]
    all: bool,

    /// Time between two measurements
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Number of measurements before it ends
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Measure once, then end
    #[arg(long, conflicts_with = "count")]
    once: bool,

    /// Keep running if a listener does not exist yet, and show it as absent
    #[arg(long)]
    wait: bool,

    /// Print JSON, one object per line and measurement
    #[arg(long)]
    json: bool,
}

/// Nobody listens at the given address (EX_UNAVAILABLE of sysexits.h).
pub const NOBODY: u8 = 69;

/// The kernel gives no data (70, as elsewhere in weir).
const NOT_TOLD: u8 = 70;

/// Runs `weir watch`. `admin`: the admin address of a weir that may be running; `named`: the
/// command line sets it, so weir must be running.
pub fn main(flags: &Flags, admin: Option<&Endpoint>, named: bool) -> ExitCode {
    // Before any thread is started.
    let signals = match Signals::take(&[Signal::Int, Signal::Term, Signal::Quit]) {
        Ok(signals) => signals,
        Err(error) => return fail(&error.to_string(), "", NOT_TOLD),
    };
    let targets = match (flags.addresses.is_empty(), flags.all, admin) {
        (false, ..) => Some(flags.addresses.clone()),
        (true, true, _) | (_, _, None) => None,
        (true, false, Some(admin)) => match listeners_of(admin) {
            Ok(targets) => Some(targets),
            Err((error, code)) if named => {
                return fail(&error, "use --all to show all listening sockets", code);
            }
            Err(_) => None,
        },
    };
    let mut watch = match Watch::new(targets) {
        Ok(watch) => watch,
        Err(error) => return not_told(&error),
    };
    match run(flags, &mut watch, &signals) {
        Ok(code) => code,
        Err(Failure::Reader(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(Failure::Reader(error)) => fail(&format!("standard output: {error}"), "", NOT_TOLD),
        Err(Failure::Kernel(error)) => not_told(&error),
    }
}

/// Why it cannot continue.
enum Failure {
    /// The output cannot be written.
    Reader(io::Error),
    /// The kernel gives no data.
    Kernel(io::Error),
}

fn run(flags: &Flags, watch: &mut Watch, signals: &Signals) -> Result<ExitCode, Failure> {
    let mut screen = Screen::new(flags);
    let count = if flags.once { Some(1) } else { flags.count };
    let mut looks = 0;
    let mut next = Instant::now();
    loop {
        let sample = watch.look().map_err(Failure::Kernel)?;
        if looks == 0 && !flags.wait && !sample.absent.is_empty() {
            for (address, why) in &sample.absent {
                fail(&format!("{address}: {why}"), "", NOBODY);
            }
            console::say("hint: with --wait, weir watch waits for missing listeners\n");
            return Ok(ExitCode::from(NOBODY));
        }
        screen.show(&sample).map_err(Failure::Reader)?;
        looks += 1;
        if count.is_some_and(|count| looks >= count) {
            return Ok(ExitCode::SUCCESS);
        }
        next = (next + flags.interval).max(Instant::now());
        if interrupted(signals, next) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Waits. Returns whether a signal requests the end.
fn interrupted(signals: &Signals, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let come = poll::readable(&[signals.as_fd()], Some(left)).is_err();
        if come || matches!(signals.next(), Ok(Some(_)) | Err(_)) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
    }
}

/// Where samples are shown.
struct Screen {
    json: bool,
    every: String,
    terminal: bool,
    colour: bool,
    /// Number of lines of the present table; `None`: nothing was shown yet.
    height: Option<usize>,
}

impl Screen {
    fn new(flags: &Flags) -> Self {
        let once = flags.once || flags.count == Some(1);
        let terminal = io::stdout().is_terminal() && !flags.json && !once;
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let screen = Self {
            json: flags.json,
            every: match flags.interval.subsec_millis() {
                0 => format!("{}s", flags.interval.as_secs()),
                _ => format!("{}ms", flags.interval.as_millis()),
            },
            terminal,
            colour: terminal && !no_colour,
            height: None,
        };
        if terminal {
            let _ = io::stdout().write_all(HIDE_CURSOR);
        }
        screen
    }

    fn show(&mut self, sample: &Sample) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{}", sample.to_json())?;
        } else if self.terminal {
            let size = terminal::size(io::stdout());
            let text = table::table(sample, &self.every, self.colour, size);
            // Moves back to the table's first line and clears everything below.
            if let Some(height) = self.height.filter(|height| *height > 0) {
                write!(out, "\x1b[{height}F")?;
            }
            write!(out, "\x1b[J{text}")?;
            self.height = Some(text.lines().count());
        } else {
            out.write_all(table::lines(sample, self.height.is_none()).as_bytes())?;
            self.height = Some(0);
        }
        out.flush()
    }
}

/// Restores the terminal, however the program ends.
impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal {
            let mut out = io::stdout();
            let _ = out.write_all(SHOW_CURSOR).and_then(|()| out.flush());
        }
    }
}

/// The addresses on which the running weir listens.
///
/// # Errors
/// Why that is not known (usually no weir is running), with the exit code.
fn listeners_of(admin: &Endpoint) -> Result<Vec<Target>, (String, u8)> {
    let status = weir_admin::client::ask(admin, Method::GET, "/status").map_err(|error| {
        let code = match error {
            weir_admin::client::Error::Unreachable { .. } => NOBODY,
            _ => NOT_TOLD,
        };
        (error.to_string(), code)
    })?;
    let status: Value =
        serde_json::from_str(&status).map_err(|error| (error.to_string(), NOT_TOLD))?;
    let listeners = status["listeners"].as_array().into_iter().flatten();
    let address = |listener: &Value| Target::parse(listener["address"].as_str()?).ok();
    let targets: Vec<Target> = listeners.filter_map(address).collect();
    match targets.is_empty() {
        true => Err(("the running weir reports no listeners".into(), NOT_TOLD)),
        false => Ok(targets),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = weir_config::parse_duration(text)?;
    match interval < SHORTEST {
        true => Err("the interval must be at least 100ms".into()),
        false => Ok(interval),
    }
}

fn not_told(error: &io::Error) -> ExitCode {
    fail(
        &format!("the kernel gives no information on its queues (sock_diag): {error}"),
        "the kernel needs CONFIG_INET_DIAG and CONFIG_UNIX_DIAG, and a sandbox must allow AF_NETLINK; no special rights are needed",
        NOT_TOLD,
    )
}

fn fail(message: &str, hint: &str, code: u8) -> ExitCode {
    console::say_error(message, hint);
    ExitCode::from(code)
}

const HIDE_CURSOR: &[u8] = b"\x1b[?25l";
const SHOW_CURSOR: &[u8] = b"\x1b[?25h";

/// Minimum interval.
const SHORTEST: Duration = Duration::from_millis(100);
