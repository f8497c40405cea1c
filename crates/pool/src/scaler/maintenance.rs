//! The pace of PHP-FPM's process manager: once a second it looks at each pool, starts a few spare workers or ends one.
//!
//! Used when weir runs instead of PHP-FPM, so that operators see the numbers of processes that they expect. Waiting
//! requests are not affected: workers for them are started at once.
//!
//! PHP-FPM 8.2, sapi/fpm/fpm/fpm_process_ctl.c: `fpm_pctl_perform_idle_server_maintenance`.

use super::{Mode, Scaler};
use crate::pool::View;
use crate::{Decision, Micros, Pool};

impl Scaler {
    /// Whether spare workers are started and stopped at PHP-FPM's pace (`Dynamic`, `OnDemand`): each second, 1, 2, 4, …
    /// of those that are missing are started, up to `max_spawn_rate`, or one that is idle ends; a limit that is reached
    /// is noticed then. A worker that died or has served its maximum is always replaced. Workers for requests that wait
    /// are still started at once.
    pub fn set_maintenance(&mut self, now: Micros, on: bool) {
        let now = self.advance(now);
        self.maintenance = on.then(|| Maintenance::new(now));
    }

    /// A request has arrived. At PHP-FPM's pace, an `OnDemand` pool notices then that it has `max_children` workers and
    /// none is idle.
    pub fn arrived(&mut self, pool: &Pool) {
        let view = pool.view();
        if self.maintenance.is_some() && self.scaling.mode == Mode::OnDemand && view.free == 0 {
            self.at_max &= self.total(&view) >= self.scaling.max_children;
            self.tell_limit(self.total(&view), view.queued);
        }
    }

    /// Does this second's work. Returns how many spare workers are missing.
    pub(super) fn maintain(&mut self, now: Micros, view: &View, waiting: usize) -> usize {
        let Mode::Dynamic {
            min_spare,
            max_spare,
            ..
        } = self.scaling.mode
        else {
            return 0;
        };
        let Some(maintenance) = &mut self.maintenance else {
            return 0;
        };
        let total = view.free + view.busy + view.leaving + self.starting;
        let seen = PoolSnapshot {
            idle: (view.free - view.outdated_free + self.starting).saturating_sub(waiting),
            total,
            min_spare,
            max_spare,
            max_children: self.scaling.max_children,
        };
        let step = maintenance.look(now, &seen, self.scaling.max_spawn_rate);
        maintenance.ends = step == Step::End;
        if let Some(at) = maintenance.next() {
            self.wake(at);
        }
        match step {
            Step::Rest | Step::End => 0,
            Step::Full => {
                self.tell_limit(total, waiting);
                0
            }
            Step::Start { count, rate } => {
                if rate >= SEEMS_BUSY {
                    self.tell(Decision::SeemsBusy {
                        rate,
                        idle: view.free,
                        workers: total,
                    });
                }
                // Workers that are started for waiting requests are not spare.
                count + waiting.saturating_sub(view.free - view.outdated_free + self.starting)
            }
        }
    }

    /// This number of workers was requested. They replace workers that have ended.
    pub(super) fn replaced(&mut self, count: usize) {
        if let Some(maintenance) = &mut self.maintenance {
            maintenance.replaces = maintenance.replaces.saturating_sub(count);
        }
    }

    /// How many idle workers end now (`Dynamic`).
    pub(super) fn ends_one(&mut self) -> usize {
        let maintenance = self.maintenance.as_mut();
        usize::from(maintenance.is_some_and(|own| core::mem::take(&mut own.ends)))
    }

    /// How many idle workers end now (`OnDemand`); `coldest`: since when the first of them is idle.
    pub(super) fn ends_coldest(&mut self, now: Micros, coldest: Micros) -> usize {
        let timeout = self.scaling.idle_timeout;
        let Some(maintenance) = &mut self.maintenance else {
            return 0;
        };
        let is_due = maintenance.is_due(now);
        let ends = is_due && is_idle_for(timeout, coldest, now);
        let next = maintenance.boundary().max(idle_until(timeout, coldest));
        self.wake(next);
        usize::from(ends)
    }
}

/// What happens in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Rest,
    /// One idle worker ends.
    End,
    /// `count` workers are started. `rate`: the maximum in this second.
    Start { count: usize, rate: usize },
    /// Spare workers are missing, and there are already as many workers as allowed.
    Full,
}

/// The pool at the time of a look.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolSnapshot {
    /// Workers that are idle, or will be when they are up.
    pub(super) idle: usize,
    /// All workers.
    pub(super) total: usize,
    pub(super) min_spare: usize,
    pub(super) max_spare: usize,
    pub(super) max_children: usize,
}

/// State between the seconds.
#[derive(Debug)]
pub(super) struct Maintenance {
    /// The last second that was looked at.
    second: u64,
    /// How many spare workers are started next.
    rate: usize,
    /// There were too many or too few idle workers at the last look.
    outside: bool,
    /// One idle worker is to end now.
    pub(super) ends: bool,
    /// How many workers have died or served their maximum, and are replaced in any case.
    pub(super) replaces: usize,
}

impl Maintenance {
    pub(super) fn new(now: Micros) -> Self {
        Self {
            second: second(now),
            rate: 1,
            outside: false,
            ends: false,
            replaces: 0,
        }
    }

    /// What happens now. Nothing within a second; [`next`](Self::next) says when the next one begins.
    pub(super) fn look(&mut self, now: Micros, seen: &PoolSnapshot, max_rate: usize) -> Step {
        let is_due = self.is_due(now);
        let was_outside = core::mem::replace(
            &mut self.outside,
            seen.idle > seen.max_spare || seen.idle < seen.min_spare,
        );
        if !is_due {
            return Step::Rest;
        }
        if !was_outside {
            // At the beginning of this second the numbers were right; they have changed since.
            self.rate = 1;
            return Step::Rest;
        }
        if seen.idle > seen.max_spare {
            self.rate = 1;
            return Step::End;
        }
        if seen.idle >= seen.min_spare {
            self.rate = 1;
            return Step::Rest;
        }
        let room = seen.max_children.saturating_sub(seen.total);
        if room == 0 {
            self.rate = 1;
            return Step::Full;
        }
        let rate = self.rate;
        self.rate = if rate < max_rate { rate * 2 } else { rate };
        Step::Start {
            count: rate.min(seen.min_spare - seen.idle).min(room),
            rate,
        }
    }

    /// Whether a new second has begun since the last call.
    pub(super) fn is_due(&mut self, now: Micros) -> bool {
        let second = second(now);
        let is_due = second > self.second;
        self.second = self.second.max(second);
        is_due
    }

    /// When the next second begins, if the numbers have to be looked at then.
    pub(super) fn next(&self) -> Option<Micros> {
        self.outside.then(|| self.boundary())
    }

    /// When the next second begins.
    pub(super) fn boundary(&self) -> Micros {
        Micros((self.second + 1) * SECOND)
    }
}

/// Whether PHP-FPM takes a worker that is idle since then for one that has been idle for longer than `timeout`: it
/// compares whole seconds.
pub(super) fn is_idle_for(timeout: Micros, since: Micros, now: Micros) -> bool {
    second(now) > second(since) + timeout.0 / SECOND
}

/// When that will be the case.
pub(super) fn idle_until(timeout: Micros, since: Micros) -> Micros {
    Micros((second(since) + timeout.0 / SECOND + 1) * SECOND)
}

fn second(time: Micros) -> u64 {
    time.0 / SECOND
}

/// If so many workers may be started at once, a pool seems busy.
const SEEMS_BUSY: usize = 8;

const SECOND: u64 = 1_000_000;
