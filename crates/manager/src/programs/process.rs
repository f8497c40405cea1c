//! One process of a program: started, read, ended.

use std::{
    fs::File,
    time::{Duration, Instant},
};

use weir_observe::error_log::{about_program, tell};
use weir_sys::process;

use crate::{children::watch::Source, generation::plan::Program, output::Outputs, php::Masters};

#[derive(Debug)]
pub(super) struct Process {
    /// Index of its slot.
    pub(super) slot: usize,
    /// Never used again; names its output.
    pub(super) number: u32,
    pub(super) pid: u32,
    pub(super) since: Instant,
    /// `None`: it has ended.
    pub(super) outputs: Option<Outputs>,
    pub(super) told: Told,
    /// Only what it has started is still there.
    pub(super) has_left: bool,
}

/// Whether weir has ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    No,
    /// To be replaced, or because weir stops.
    Requested,
    /// It ran for longer than `max_runtime`.
    TooLong,
}

impl Process {
    /// Starts it.
    pub(super) fn start(
        program: &Program,
        (slot, number): (usize, u32),
        masters: &Masters,
        now: Instant,
    ) -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let (outputs, outs) = Outputs::pipes(program.identity.as_ref()).map_err(text)?;
        let nothing = File::open("/dev/null").map_err(text)?;
        let spawn = program.spawn(nothing.into(), outs);
        let pid = spawn.start().map_err(|error| error.to_string())?;
        // It never was in PHP-FPM's log.
        let outputs = outputs.in_plain_lines();
        let source = |stream| Source::ProgramOutput(number, stream);
        if let Err(error) = masters.watch.add_outputs(&outputs, source) {
            log::error!("what a program prints cannot be read before it ends: {error}");
        }
        Ok(Self {
            slot,
            number,
            pid,
            since: now,
            outputs: Some(outputs),
            told: Told::No,
            has_left: false,
        })
    }

    /// Tells it to end.
    pub(super) fn end(&mut self, name: &str, told: Told) {
        self.told = told;
        if let Err(error) = process::send_signal(self.pid, weir_sys::signal::Signal::Term) {
            let about = about_program(name, Some(self.pid));
            tell!(error, about, "cannot stop the program: {error}");
        }
    }

    /// Kills it, and what it has started.
    pub(super) fn kill(&self, name: &str) {
        // The number of a group is nobody else's as long as one of it is there.
        if self.is_there()
            && let Err(error) = process::kill(self.pid)
        {
            let about = about_program(name, Some(self.pid));
            tell!(error, about, "cannot kill the program: {error}");
        }
    }

    /// Whether the process, or something that it has started, is there.
    pub(super) fn is_there(&self) -> bool {
        !self.has_left || process::has_group(self.pid)
    }
}

/// A process that leads a group ends: what it has left there is to end, too.
pub(super) fn end_group(pid: u32) {
    if let Err(error) = process::terminate(pid) {
        log::error!("cannot stop what process {pid} has started: {error}");
    }
}

/// How often it is looked whether what a process has left is there.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
