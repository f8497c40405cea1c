//! What operators see of programs.

use std::time::{Duration, Instant, UNIX_EPOCH};

use weir_control::{ProgramEnd, ProgramProcess, ProgramReport, ProgramReports, ToGateway};
use weir_pool::SlotState;
use weir_sys::memory::file;

use super::{
    Context, Programs,
    managed::{LastEnd, Managed},
    process::Told,
    times::WallClock,
};
use crate::workers::memory;

impl Programs {
    /// The state of all programs, for the admin interface. `None`: there are none.
    pub(crate) fn report(&self, now: Instant) -> Option<ToGateway> {
        if self.list.is_empty() {
            return None;
        }
        let list = self.list.iter();
        let reports = ProgramReports {
            list: list
                .map(|program| program.report(&self.context, &self.clock, now))
                .collect(),
            forgets: self.state.is_failing(),
        };
        let file = file(c"programs", &reports.encode()).ok()?;
        Some(ToGateway::Programs(file))
    }
}

impl Managed {
    /// Memory of all processes, estimated from some.
    fn memory(&self) -> u64 {
        let alive = || self.processes.iter().filter(|process| !process.has_left);
        let mean = memory::cost(alive().map(|process| process.pid));
        mean.unwrap_or(0) * alive().count() as u64
    }

    fn report(&self, context: &Context, clock: &WallClock, now: Instant) -> ProgramReport {
        let micros = context.micros(now);
        let settings = &self.settings.program;
        let (mut again_in, mut elsewhere) = (0, 0);
        for slot in self.life.slots(micros) {
            match slot {
                SlotState::Waiting(at) => {
                    let left = context.instant(at).saturating_duration_since(now);
                    again_in = millis(left).max(1);
                }
                SlotState::Elsewhere => elsewhere += 1,
                _ => {}
            }
        }
        let seconds = |seconds: i64| u64::try_from(seconds).unwrap_or(0);
        let next = self.times.as_ref().and_then(|times| times.next(clock));
        let last_start = self.last_start.map(|at| at.duration_since(UNIX_EPOCH));
        let counts = &self.counts;
        ProgramReport {
            name: settings.name.clone(),
            pool: self.settings.pool.clone(),
            schedule: (settings.schedule.as_ref())
                .map_or_else(String::new, |schedule| schedule.as_str().to_owned()),
            instances: u32::try_from(settings.instances).unwrap_or(u32::MAX),
            processes: (self.processes.iter())
                .map(|process| ProgramProcess {
                    pid: process.pid,
                    time: millis(now.saturating_duration_since(process.since)),
                    ends: process.has_left || process.told != Told::No,
                })
                .collect(),
            memory: self.memory(),
            elsewhere,
            next: next.map_or(0, seconds),
            last_start: last_start.map_or(0, |since| since.unwrap_or_default().as_secs()),
            last_end: self.last_end.as_ref().map(|end| end.report(now)),
            failures: self.life.failures(micros),
            again_in,
            started: counts.started,
            not_started: counts.not_started,
            succeeded: counts.succeeded,
            failed: counts.failed,
            too_long: counts.too_long,
            killed: counts.killed,
            skipped: counts.skipped,
            made_up: counts.made_up,
        }
    }
}

impl LastEnd {
    fn report(&self, now: Instant) -> ProgramEnd {
        ProgramEnd {
            ago: millis(now.saturating_duration_since(self.at)),
            how: self.how.clone(),
            is_failure: self.is_failure,
            lived: millis(self.lived),
            said: self.said.clone(),
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
