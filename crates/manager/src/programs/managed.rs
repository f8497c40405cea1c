//! One program: its settings, its processes, and what became of them.

use std::{
    rc::Rc,
    time::{Duration, Instant, SystemTime},
};

use weir_config::{Overlap, Restart};
use weir_observe::{
    error_log::{about_program, tell},
    events::Stream,
};
use weir_pool::{Micros, Program, ProgramOrder, ProgramRules, Starts, Taken};
use weir_sys::process::{self, Exit};

use super::{
    Context,
    process::{Process, Told},
    times::{Last, Times, WallClock},
};
use crate::{
    generation::{Generation, plan::PlannedProgram},
    output::OutputLog,
    php::Masters,
};

#[derive(Debug)]
pub(super) struct Managed {
    pub(super) settings: Settings,
    pub(super) life: Program,
    pub(super) times: Option<Times>,
    pub(super) processes: Vec<Process>,
    /// The number of its pool's start; 0: none.
    pub(super) pool_start: u32,
    pub(super) counts: Counts,
    pub(super) last_end: Option<LastEnd>,
    /// When its last process was started.
    pub(super) last_start: Option<SystemTime>,
    /// It was logged that its processes end at once, or cannot be started.
    is_told: bool,
}

/// A program of the configuration, and what was made for it.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) program: weir_config::Program,
    /// The NAME of its pool; empty: none.
    pub(super) pool: String,
    plan: PlannedProgram,
    pub(super) log: Rc<OutputLog>,
}

/// Since weir has this program.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) started: u64,
    pub(super) not_started: u64,
    /// Ends by itself, with and without success.
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    /// Killed, because it did not end in time.
    pub(super) killed: u64,
    /// Stopped because of `max_runtime`.
    pub(super) too_long: u64,
    /// Times of the schedule at which the program still ran.
    pub(super) skipped: u64,
    /// Times that were missed, and for which another run stood.
    pub(super) made_up: u64,
}

/// The last end of a process that weir has not asked for.
#[derive(Debug)]
pub(super) struct LastEnd {
    pub(super) at: Instant,
    /// How; or why it could not be started.
    pub(super) how: String,
    pub(super) is_failure: bool,
    /// How long it had run.
    pub(super) lived: Duration,
    /// Its last lines.
    pub(super) said: String,
}

impl Settings {
    /// All of a configuration.
    pub(super) fn all(generation: &Generation) -> impl Iterator<Item = Self> {
        let config = &generation.loaded.config;
        let pool = |program: &weir_config::Program| config.pools.get(program.pool?.0);
        let programs = config.programs.iter();
        let made = generation
            .plan
            .programs
            .iter()
            .zip(&generation.program_logs);
        programs.zip(made).map(move |(program, (plan, log))| Self {
            program: program.clone(),
            pool: pool(program).map_or_else(String::new, |pool| pool.name.clone()),
            plan: plan.clone(),
            log: log.clone(),
        })
    }

    fn rules(&self) -> ProgramRules {
        let program = &self.program;
        ProgramRules {
            instances: program.instances,
            starts: match (&program.schedule, program.restart) {
                (Some(_), _) => Starts::OnTime {
                    waits: program.overlap == Overlap::Wait,
                },
                (None, Restart::Always) => Starts::Always,
                (None, Restart::OnFailure) => Starts::OnFailure,
                (None, Restart::Never) => Starts::Once,
            },
            max_runtime: match program.max_runtime {
                Duration::ZERO => Micros::MAX,
                limit => limit.into(),
            },
            stop_timeout: program.stop_timeout.into(),
        }
    }
}

impl Managed {
    /// A program that begins. `last`: how far its schedule was followed. `taken`: slots whose processes another weir has.
    pub(super) fn new(
        settings: Settings,
        last: Option<Last>,
        taken: &[usize],
        clock: &WallClock,
    ) -> Self {
        let zone = settings.plan.zone.clone();
        let times = Times::new(&settings.program, zone, last.as_ref(), clock);
        let mut life = Program::new(settings.rules(), taken);
        if times.as_ref().is_some_and(|times| times.is_continued)
            && last.is_some_and(|last| last.due)
        {
            life.due();
        }
        Self {
            life,
            times,
            settings,
            processes: Vec::new(),
            pool_start: 0,
            counts: Counts::default(),
            last_end: None,
            last_start: None,
            is_told: false,
        }
    }

    /// Whether it can go on with these settings.
    pub(super) fn is_same_kind(&self, other: &Settings) -> bool {
        let ours = &self.settings.program;
        ours.name == other.program.name
            && ours.schedule.is_some() == other.program.schedule.is_some()
    }

    /// Goes on with the settings of a new configuration.
    pub(super) fn renew(&mut self, settings: Settings, clock: &WallClock, now: Micros) {
        let last = self.times.as_ref().map(|times| times.last(false));
        let zone = settings.plan.zone.clone();
        self.times = Times::new(&settings.program, zone, last.as_ref(), clock);
        self.life.renew(settings.rules(), now);
        self.settings = settings;
        self.is_told = false;
    }

    /// How far its schedule was followed.
    pub(super) fn last(&self) -> Option<(String, Last)> {
        let last = self.times.as_ref()?.last(self.life.is_due());
        Some((self.settings.program.name.clone(), last))
    }

    /// Looks at the clock; whether that must be noted: a time has come, or the clock has gone back.
    pub(super) fn look_at_clock(&mut self, clock: &WallClock) -> bool {
        let Some(times) = &mut self.times else {
            return false;
        };
        let (due, has_gone_back) = times.look(clock);
        let Some(due) = due else {
            return has_gone_back;
        };
        let about = about_program(&self.settings.program.name, None);
        let missed = due.times - 1;
        self.counts.made_up += u64::from(missed);
        if missed > 0 {
            tell!(
                notice,
                about,
                "{missed} missed times: the clock has jumped, or weir was not running; one run stands for all"
            );
        }
        if self.life.due() == Taken::Skipped {
            self.counts.skipped += 1;
            tell!(
                warning,
                about,
                "its time has come, but it still runs: skipped ({} times so far); see overlap and max_runtime",
                self.counts.skipped
            );
        }
        true
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, context: &mut Context, masters: &Masters, now: Instant) {
        let gone = |process: &Process| !process.is_there();
        while let Some(index) = self.processes.iter().position(gone) {
            let process = self.processes.remove(index);
            self.life.gone(process.slot);
        }
        for order in self.life.tick(context.micros(now)) {
            match order {
                ProgramOrder::Start(slot) => self.start(slot, context, masters, now),
                ProgramOrder::End { slot, too_long } => self.end(slot, too_long),
                ProgramOrder::Kill(slot) => self.kill(slot),
            }
        }
    }

    fn start(&mut self, slot: usize, context: &mut Context, masters: &Masters, now: Instant) {
        let name = &self.settings.program.name;
        context.last_number = context.last_number.wrapping_add(1);
        let numbers = (slot, context.last_number);
        match Process::start(&self.settings.plan.program, numbers, masters, now) {
            Ok(process) => {
                let about = about_program(name, Some(process.pid));
                tell!(debug, about, "program started");
                self.counts.started += 1;
                self.last_start = Some(SystemTime::now());
                self.life.started(slot, context.micros(now));
                self.processes.push(process);
            }
            Err(cause) => {
                let path = self.settings.plan.program.path.display();
                let cause = format!("{path} cannot be started: {cause}");
                if !std::mem::replace(&mut self.is_told, true) {
                    tell!(
                        error,
                        about_program(name, None),
                        "{cause}; weir tries again and again"
                    );
                }
                self.counts.not_started += 1;
                self.life.not_started(slot, context.micros(now));
                self.last_end = Some(LastEnd {
                    at: now,
                    how: cause,
                    is_failure: true,
                    lived: Duration::ZERO,
                    said: String::new(),
                });
            }
        }
    }

    fn end(&mut self, slot: usize, too_long: bool) {
        let name = &self.settings.program.name;
        let Some(process) = self.processes.iter_mut().find(|one| one.slot == slot) else {
            return;
        };
        if too_long {
            self.counts.too_long += 1;
            let limit = self.settings.program.max_runtime.as_secs_f64();
            let about = about_program(name, Some(process.pid));
            tell!(
                warning,
                about,
                "it has run for {limit:.1} s (max_runtime): stopped"
            );
        }
        let told = match too_long {
            true => Told::TooLong,
            false => Told::Requested,
        };
        process.end(name, told);
    }

    fn kill(&mut self, slot: usize) {
        let name = &self.settings.program.name;
        let Some(process) = self.processes.iter().find(|one| one.slot == slot) else {
            return;
        };
        let about = about_program(name, Some(process.pid));
        match process.has_left {
            false => tell!(
                warning,
                about,
                "the program was told to end, but still runs (stop_timeout): killed"
            ),
            true => tell!(
                warning,
                about,
                "the program has ended, but what it has started still runs (stop_timeout): killed"
            ),
        }
        self.counts.killed += 1;
        process.kill(name);
    }

    /// Whether a process belongs to it and has not ended.
    pub(super) fn has(&self, pid: u32) -> bool {
        let mut processes = self.processes.iter();
        processes.any(|process| process.pid == pid && !process.has_left)
    }

    /// Whether it waits for what a process has left.
    pub(super) fn has_left(&self) -> bool {
        self.processes.iter().any(|process| process.has_left)
    }

    /// A process has ended; because the kernel had no memory, or for another reason.
    pub(super) fn exited(
        &mut self,
        pid: u32,
        (exit, no_memory): (Exit, bool),
        context: &Context,
        now: Instant,
    ) {
        let mut processes = self.processes.iter();
        let Some(index) = processes.position(|one| one.pid == pid && !one.has_left) else {
            return;
        };
        let process = &mut self.processes[index];
        let outputs = process.outputs.take();
        let said = outputs.map(|outputs| outputs.finish(pid, &self.settings.log));
        process.has_left = process::has_group(pid);
        let (slot, has_left) = (process.slot, process.has_left);
        let lived = now.saturating_duration_since(process.since);
        let told = process.told;
        if !has_left {
            self.processes.remove(index);
        }
        let succeeded = exit == Exit::Code(0);
        self.life
            .exited(slot, context.micros(now), succeeded, has_left);
        if no_memory {
            let about = about_program(&self.settings.program.name, Some(pid));
            tell!(
                error,
                about,
                "the kernel killed the program because memory ran out"
            );
        }
        self.tell_exit(pid, exit, told, lived);
        if told == Told::Requested {
            return;
        }
        match succeeded && told == Told::No {
            true => self.counts.succeeded += 1,
            false => self.counts.failed += 1,
        }
        self.last_end = Some(LastEnd {
            at: now,
            how: match told {
                _ if no_memory => format!("{exit}, because memory ran out"),
                Told::TooLong => format!("{exit}, because of max_runtime"),
                _ => exit.to_string(),
            },
            is_failure: !succeeded,
            lived,
            said: said.unwrap_or_default().joined(),
        });
        self.tell_loop(context, now);
    }

    fn tell_exit(&self, pid: u32, exit: Exit, told: Told, lived: Duration) {
        let about = about_program(&self.settings.program.name, Some(pid));
        let lived = lived.as_secs_f64();
        match (told, exit) {
            (Told::No, Exit::Code(0)) if self.times.is_none() => {
                tell!(notice, about, "program ended: {exit}, ran {lived:.1} s");
            }
            (Told::No, exit) if exit != Exit::Code(0) => {
                tell!(error, about, "program failed: {exit}, ran {lived:.1} s");
            }
            _ => tell!(debug, about, "program ended: {exit}, ran {lived:.1} s"),
        }
    }

    /// Logs once that it ends again and again as soon as it is started.
    fn tell_loop(&mut self, context: &Context, now: Instant) {
        let failures = self.life.failures(context.micros(now));
        if failures < MANY || self.is_told {
            return;
        }
        self.is_told = true;
        let about = about_program(&self.settings.program.name, None);
        let Some(end) = &self.last_end else { return };
        let said = match end.said.is_empty() {
            true => String::new(),
            false => format!("; it said: {}", end.said),
        };
        tell!(
            error,
            about,
            "the program has ended {failures} times in a row within seconds ({}){said}. It is started again with growing pauses, up to 30 s. {}",
            end.how,
            match end.is_failure {
                true => "Start its command by hand, as its user",
                false =>
                    "If it is done when its work is done, write a schedule; if it goes to the background, tell it not to",
            }
        );
    }

    /// Reads what a process has printed.
    pub(super) fn read_output(&mut self, number: u32, stream: Stream) {
        let mut processes = self.processes.iter_mut();
        if let Some(process) = processes.find(|process| process.number == number)
            && let Some(outputs) = &mut process.outputs
        {
            outputs.read(stream, process.pid, &self.settings.log);
        }
    }
}

/// After so many early ends in a row, one is no accident.
pub(super) const MANY: u32 = 3;
