//! Programs beside the pools (`[program.NAME]`): workers of a queue, schedulers, lines of a crontab.
//!
//! They belong to no generation: at a reload, a program that is still configured goes on here, under its new settings. Which processes are
//! started and ended, and when a schedule's time comes, is decided in `weir_pool`: `program.rs` and `timetable.rs`. This module performs it:
//!
//! - The programs of a configuration begin when it is in force ([`Programs::serve`]), so that its pools are ready. Processes that always run
//!   are replaced then: they hold old code. The run of a schedule finishes.
//! - At an upgrade, the old weir ends its processes and tells the new one which slots are still taken ([`handover`]).
//! - When weir stops, programs end at the same time as the gateway finishes its requests.
//!
//! A process leads a session and a process group of its own. SIGTERM goes to it alone, so that it can finish a job for which it has started
//! others. When it has ended, what it has left in its group gets SIGTERM too, and after `stop_timeout` all are killed.

pub(crate) mod handover;
mod managed;
mod process;
mod report;
mod state;
mod times;

use std::{
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use weir_config::Config;
use weir_observe::events::Stream;
use weir_pool::Micros;
use weir_sys::process::Exit;

pub(crate) use self::{handover::Handed, times::Zone};
use self::{
    managed::{Managed, Settings},
    state::StateFile,
    times::WallClock,
};
use crate::{
    children::oom::OomKills,
    generation::{Generation, plan::Problem},
    output::{OutputLog, log_files::LogFiles},
    php::Masters,
    workers::Pools,
};

/// The programs of the configuration in force, and what is left of earlier ones.
#[derive(Debug)]
pub(crate) struct Programs {
    list: Vec<Managed>,
    /// Programs of earlier configurations that have not ended.
    leaving: Vec<Managed>,
    /// The generation whose programs these are; 0: none yet.
    generation: u32,
    state: StateFile,
    clock: WallClock,
    context: Context,
    /// Programs were due when this was last noted.
    noted_due: bool,
    is_stopping: bool,
}

/// What all programs need.
#[derive(Debug)]
struct Context {
    /// The zero of [`Micros`].
    zero: Instant,
    /// Number of the last process.
    last_number: u32,
}

impl Context {
    fn micros(&self, now: Instant) -> Micros {
        now.saturating_duration_since(self.zero).into()
    }

    fn instant(&self, at: Micros) -> Instant {
        self.zero + Duration::from(at)
    }
}

impl Programs {
    /// No programs yet. `file`: the configuration's, whose programs these will be.
    pub(crate) fn new(file: Option<&Path>, now: Instant) -> Self {
        Self {
            list: Vec::new(),
            leaving: Vec::new(),
            generation: 0,
            state: StateFile::of(file),
            clock: WallClock,
            context: Context {
                zero: now,
                last_number: 0,
            },
            noted_due: false,
            is_stopping: false,
        }
    }

    /// Takes the programs of a configuration that is in force now. `handed`: what the weir before this one has told.
    pub(crate) fn serve(&mut self, generation: &Generation, handed: &[Handed], now: Instant) {
        if self.generation == generation.id || self.is_stopping {
            return;
        }
        let is_first = std::mem::replace(&mut self.generation, generation.id) == 0;
        let config = &generation.loaded.config;
        let is_scheduled = |program: &weir_config::Program| program.schedule.is_some();
        if config.programs.iter().any(is_scheduled) {
            self.state
                .move_to(config.server.state_dir.as_deref(), is_first);
        }
        let mut before = std::mem::take(&mut self.list);
        for settings in Settings::all(generation) {
            let known = before.iter().position(|one| one.is_same_kind(&settings));
            let program = match known.map(|index| before.remove(index)) {
                Some(mut program) => {
                    program.renew(settings, &self.clock, self.context.micros(now));
                    program
                }
                None => {
                    let name = &settings.program.name;
                    let handed = handed.iter().find(|handed| handed.name == *name);
                    let last = handed.and_then(|handed| handed.last.clone());
                    let last = last.or_else(|| self.state.last(name));
                    let taken = handed.map_or(&[][..], |handed| &handed.slots);
                    Managed::new(settings, last, taken, &self.clock)
                }
            };
            self.list.push(program);
        }
        let micros = self.context.micros(now);
        before
            .iter_mut()
            .for_each(|program| program.life.leave(micros));
        self.leaving.append(&mut before);
        self.heed_pools(&generation.pools, true, micros);
        self.save(now);
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, pools: &Pools, masters: &Masters, now: Instant) {
        let micros = self.context.micros(now);
        let mut has_come = false;
        if !self.is_stopping {
            self.heed_pools(pools, false, micros);
            for program in &mut self.list {
                has_come |= program.look_at_clock(&self.clock);
            }
        }
        let retries = self.state.retry_at().is_some_and(|at| at <= now);
        // Before anything is started: a time that was noted is not taken twice, and one that was not is not lost. While weir stops, the
        // file is the next weir's.
        if !self.is_stopping && (has_come || retries) {
            self.save(now);
        }
        for program in self.list.iter_mut().chain(&mut self.leaving) {
            program.tick(&mut self.context, masters, now);
        }
        self.leaving.retain(|program| !program.life.is_gone());
        if !self.is_stopping && self.noted_due && !self.is_due() {
            self.save(now);
        }
    }

    /// Restarts programs whose pool was restarted. `begins`: their configuration is new.
    fn heed_pools(&mut self, pools: &Pools, begins: bool, now: Micros) {
        for program in &mut self.list {
            let Some(pool) = program.settings.program.pool else {
                continue;
            };
            let start = pools.start_number(pool);
            let before = std::mem::replace(&mut program.pool_start, start);
            if !begins && before > 0 && start > before {
                program.life.replace(now);
            }
        }
    }

    /// A process ends: called while its number, and that of its group, cannot be another's.
    pub(crate) fn ends(&self, pid: u32) {
        if self.all().any(|program| program.has(pid)) {
            process::end_group(pid);
        }
    }

    /// A process has ended; whether it was one of a program.
    pub(crate) fn exited(&mut self, pid: u32, exit: Exit, oom: &OomKills, now: Instant) -> bool {
        let all = self.list.iter_mut().chain(&mut self.leaving);
        let mut of_programs = all.filter(|program| program.has(pid));
        let Some(program) = of_programs.next() else {
            return false;
        };
        let no_memory = oom.ended(exit, now);
        program.exited(pid, (exit, no_memory), &self.context, now);
        true
    }

    /// Reads what a process has printed.
    pub(crate) fn read_output(&mut self, number: u32, stream: Stream) {
        for program in self.list.iter_mut().chain(&mut self.leaving) {
            program.read_output(number, stream);
        }
    }

    /// Starts nothing more; programs that always run end, and the run of a schedule finishes.
    pub(crate) fn leave(&mut self, now: Instant) {
        self.is_stopping = true;
        let now = self.context.micros(now);
        self.all_mut().for_each(|program| program.life.leave(now));
    }

    /// Ends all.
    pub(crate) fn stop(&mut self, now: Instant) {
        if !self.is_stopping {
            self.save(now);
        }
        self.is_stopping = true;
        let now = self.context.micros(now);
        self.all_mut().for_each(|program| program.life.stop(now));
    }

    /// Ends all, and kills what is left after `grace`.
    pub(crate) fn stop_now(&mut self, now: Instant, grace: Duration) {
        self.stop(now);
        let now = self.context.micros(now);
        self.all_mut()
            .for_each(|program| program.life.hurry(now, grace.into()));
    }

    /// Whether nothing runs any more.
    pub(crate) fn are_gone(&self) -> bool {
        self.all().all(|program| program.life.is_gone())
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let micros = self.context.micros(now);
        let lives = self.all().filter_map(|program| program.life.next(micros));
        let lives = lives.map(|at| self.context.instant(at));
        let looks = self.all().any(Managed::has_left);
        let looks = looks.then(|| now + process::LOOK_EVERY);
        let has_schedule = self.list.iter().any(|program| program.times.is_some());
        let minute = (has_schedule && !self.is_stopping).then(|| now + self.clock.until_minute());
        let retry = self.state.retry_at().filter(|_| !self.is_stopping);
        lives.chain(looks).chain(minute).chain(retry).min()
    }

    /// Reopens their logs.
    pub(crate) fn reopen_logs(&self) {
        for program in self.all() {
            if let Err(problem) = program.settings.log.reopen() {
                let Problem { key, cause, mend } = problem;
                log::error!(
                    "this log cannot be reopened and stays as it was: {key}: {cause}; {mend}"
                );
            }
        }
    }

    /// Waits until the last output is written, at most for `limit`.
    pub(crate) fn flush_logs(&self, limit: Duration) {
        let until = Instant::now() + limit;
        for program in self.all() {
            let left = until.saturating_duration_since(Instant::now());
            program.settings.log.flush(left);
        }
    }

    /// Whether the time of a program has come, and no process was started for it yet.
    fn is_due(&self) -> bool {
        self.list.iter().any(|program| program.life.is_due())
    }

    fn save(&mut self, now: Instant) {
        self.noted_due = self.is_due();
        let times = self.list.iter().filter_map(Managed::last);
        self.state.write(times, now);
    }

    fn all(&self) -> impl Iterator<Item = &Managed> {
        self.list.iter().chain(&self.leaving)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Managed> {
        self.list.iter_mut().chain(&mut self.leaving)
    }
}

/// Opens the logs of all programs.
pub(crate) fn open_logs(
    config: &Config,
    files: &Rc<LogFiles>,
) -> Result<Vec<Rc<OutputLog>>, Vec<Problem>> {
    let (mut logs, mut problems) = (Vec::new(), Vec::new());
    for program in &config.programs {
        match OutputLog::of_program(&program.name, &program.process, files) {
            Ok(log) => logs.push(Rc::new(log)),
            Err(problem) => problems.push(problem),
        }
    }
    match problems.is_empty() {
        true => Ok(logs),
        false => Err(problems),
    }
}
