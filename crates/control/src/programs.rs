//! What the manager reports of programs (`[program.NAME]`).

use serde_json::{Value, json};
use weir_observe::metrics::{Metric, Page};

/// All programs of the configuration in force.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ProgramReports {
    /// In the order of the configuration.
    pub list: Vec<ProgramReport>,
    /// Times of schedules cannot be noted (`state_dir`): a restart of weir makes nothing up.
    pub forgets: bool,
}

/// One program. Counts are from the time on since which the manager has it, times are ms.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ProgramReport {
    /// The NAME.
    pub name: String,
    /// Its pool; empty: none.
    pub pool: String,
    /// As configured; empty: it always runs.
    pub schedule: String,
    /// Number of processes that are to run.
    pub instances: u32,
    /// Its processes, also those that are ending.
    pub processes: Vec<ProgramProcess>,
    /// What these use, without those that they have started: memory in bytes, measured on some of them. 0: not known.
    pub memory: u64,
    /// Processes that an earlier weir still ends.
    pub elsewhere: u32,
    /// The time of the next run (seconds since 1970); 0: it has no schedule.
    pub next: u64,
    /// When a process was last started (seconds since 1970); 0: never.
    pub last_start: u64,
    /// The last end that weir has not asked for; `None`: there was none.
    pub last_end: Option<ProgramEnd>,
    /// Number of ends in a row that came at once.
    pub failures: u32,
    /// Until it is started again after these.
    pub again_in: u64,
    /// Processes that were started, and that could not be started.
    pub started: u64,
    pub not_started: u64,
    /// Ends by itself: with and without success.
    pub succeeded: u64,
    pub failed: u64,
    /// Ends by weir: because of `max_runtime`; killed after `stop_timeout`.
    pub too_long: u64,
    pub killed: u64,
    /// Times of the schedule: skipped because it still ran; made up together with another one.
    pub skipped: u64,
    pub made_up: u64,
}

/// A process of a program.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ProgramProcess {
    /// Its process id.
    pub pid: u32,
    /// How long it has run.
    pub time: u64,
    /// It was told to end.
    pub ends: bool,
}

/// The end of a process.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ProgramEnd {
    /// How long ago.
    pub ago: u64,
    /// How: `exit code 1`. Or why it could not be started.
    pub how: String,
    /// It was no success.
    pub is_failure: bool,
    /// How long it had run.
    pub lived: u64,
    /// What it printed last.
    pub said: String,
}

impl ProgramReports {
    /// Adds the metrics.
    pub(crate) fn put_metrics(&self, page: &mut Page) {
        for program in &self.list {
            let name = program.name.as_str();
            let running = program.processes.iter().filter(|process| !process.ends);
            page.put(Metric::ProgramProcesses, &[name], running.count() as f64);
            page.put(Metric::ProgramMemory, &[name], program.memory as f64);
            page.put(Metric::ProgramStarts, &[name], program.started as f64);
            for (result, count) in [
                ("success", program.succeeded),
                ("failure", program.failed),
                ("not_started", program.not_started),
            ] {
                page.put(Metric::ProgramEnds, &[name, result], count as f64);
            }
            page.put(Metric::ProgramKills, &[name], program.killed as f64);
            page.put(Metric::ProgramFailing, &[name], f64::from(program.failures));
            if program.last_start > 0 {
                page.put(Metric::ProgramLastStart, &[name], program.last_start as f64);
            }
            if !program.schedule.is_empty() {
                page.put(Metric::ProgramSkipped, &[name], program.skipped as f64);
                page.put(Metric::ProgramNext, &[name], program.next as f64);
            }
        }
    }

    /// For the admin interface; `now`: seconds since 1970.
    pub(crate) fn to_json(&self, now: u64) -> Vec<Value> {
        let list = self.list.iter();
        list.map(|program| program.to_json(now, self.forgets))
            .collect()
    }
}

impl ProgramReport {
    /// One word for people and programs.
    fn state(&self) -> &'static str {
        let runs = self.processes.iter().any(|process| !process.ends);
        match () {
            () if self.failures >= FAILING => "failing",
            () if runs => "running",
            () if self.elsewhere > 0 && !self.schedule.is_empty() => "running",
            () if !self.processes.is_empty() || self.elsewhere > 0 => "ending",
            () if !self.schedule.is_empty() => "waiting",
            () if self.again_in > 0 => "starting",
            () => "ended",
        }
    }

    fn to_json(&self, now: u64, forgets: bool) -> Value {
        let seconds = |millis: u64| millis as f64 / 1e3;
        let process = |process: &ProgramProcess| json!({ "pid": process.pid, "time": seconds(process.time), "ends": process.ends });
        let end = |end: &ProgramEnd| {
            json!({
                "ago": seconds(end.ago),
                "how": end.how,
                "failure": end.is_failure,
                "time": seconds(end.lived),
                "output": end.said,
            })
        };
        let has_schedule = !self.schedule.is_empty();
        json!({
            "name": self.name,
            "pool": (!self.pool.is_empty()).then_some(&self.pool),
            "state": self.state(),
            "schedule": has_schedule.then_some(&self.schedule),
            "instances": self.instances,
            "processes": self.processes.iter().map(process).collect::<Vec<_>>(),
            "memory": (self.memory > 0).then_some(self.memory),
            "of_earlier_weir": self.elsewhere,
            "next": (self.next > 0).then_some(self.next),
            "next_in": (self.next > 0).then(|| self.next.saturating_sub(now)),
            "last_start": (self.last_start > 0).then_some(self.last_start),
            "last_end": self.last_end.as_ref().map(end),
            "failures": self.failures,
            "again_in": (self.failures > 0).then(|| seconds(self.again_in)),
            "started": self.started,
            "not_started": self.not_started,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "too_long": self.too_long,
            "killed": self.killed,
            "skipped": self.skipped,
            "made_up": self.made_up,
            "forgets_at_restart": has_schedule && forgets,
        })
    }
}

/// After so many ends in a row that came at once, a program counts as failing.
const FAILING: u32 = 3;
