//! A pool: how many workers it has and may have, and what the gateway is told about them.

use std::time::{Duration, Instant};

use weir_config::PoolId;
use weir_control::ToGateway;
use weir_observe::{
    error_log::tell,
    events::{self, Ending},
};
use weir_sys::process::Exit;

use super::{
    Claim, Context, FORK_LIMIT, Kind, Link, Pool, Pools, RETIRE_LIMIT, Worker, about, about_pool,
    command, master::Php, next_number, worker::watch_output,
};
use crate::{output::LastLines, php::Masters};

impl Pools {
    /// The number of a pool's start; 0: it was not started, or weir does not run its workers.
    pub(crate) fn start_number(&self, pool: PoolId) -> u32 {
        let id = u16::try_from(pool.0).ok();
        let pool = self.list.iter().find(|pool| Some(pool.id) == id);
        pool.map_or(0, |pool| pool.start_number)
    }

    /// Waits until the last output of workers is written, at most for `limit`.
    pub(crate) fn flush_logs(&self, limit: Duration) {
        let until = Instant::now() + limit;
        for pool in &self.list {
            pool.log
                .flush(until.saturating_duration_since(Instant::now()));
        }
    }
}

impl Pool {
    /// Number of workers of the present start that serve or will serve.
    pub(super) fn live(&self) -> usize {
        let serves = |worker: &&Worker| {
            worker.start_number == self.start_number
                && worker.claim != Claim::None
                && worker.until.is_none()
        };
        self.workers.iter().filter(serves).count()
    }

    /// Number of processes of the present start, including those that are about to end.
    pub(super) fn processes(&self) -> usize {
        let is_new = |worker: &&Worker| worker.start_number == self.start_number;
        self.workers.iter().filter(is_new).count()
    }

    /// Whether the gateway may request workers.
    pub(super) fn is_ready(&self) -> bool {
        match &self.kind {
            Kind::Command(_) => true,
            Kind::Php(php) => php.is_ready(),
        }
    }

    pub(super) fn php(&mut self) -> Option<&mut Php> {
        match &mut self.kind {
            Kind::Php(php) => Some(php),
            Kind::Command(_) => None,
        }
    }

    pub(super) fn ready(&self) -> ToGateway {
        let (start_number, (version, exposed)) = self.readiness();
        ToGateway::PoolsReady {
            start_number,
            version: version.to_owned(),
            exposed,
            pools: vec![self.id],
        }
    }

    /// The number of its start, the version of its PHP, and whether answers may name that.
    pub(super) fn readiness(&self) -> (u32, (&str, bool)) {
        let php = match &self.kind {
            Kind::Php(php) => (php.version.0.as_str(), php.version.1),
            Kind::Command(_) => Default::default(),
        };
        (self.start_number, php)
    }

    /// Whether workers can be started now.
    fn can_start(&self) -> bool {
        match &self.kind {
            Kind::Command(_) => true,
            Kind::Php(php) => php.has_master() && self.zygote_can_fork(),
        }
    }

    pub(super) fn may_start(&self, now: Instant) -> bool {
        self.can_start()
            && self.processes() < self.quota.most
            && self.quota.due().is_some_and(|due| due <= now)
    }

    pub(super) fn start(&mut self, context: &mut Context<'_>) {
        let Context {
            now, masters, news, ..
        } = context;
        let now = *now;
        self.quota.start(now);
        let number = next_number();
        let started = match &mut self.kind {
            Kind::Command(program) => command::start(program, now),
            Kind::Php(php) => php.fork(number, masters),
        };
        match started {
            Ok(started) => {
                if let Some(pid) = started.pid {
                    self.told_started(pid);
                    watch_output(&started.outputs, number, masters);
                }
                self.workers.push(Worker {
                    number,
                    start_number: self.start_number,
                    pid: started.pid,
                    since: now,
                    claim: Claim::Requested,
                    until: None,
                    why: Ending::Unasked,
                    outputs: Some(started.outputs),
                    link: started.link,
                });
            }
            Err(cause) => {
                tell!(error, about_pool(&self.name), "{cause}");
                news.push(self.failed(1));
                self.look_whether_down(cause, news);
            }
        }
    }

    pub(super) fn told_started(&mut self, pid: u32) {
        let replaces = self.lost > 0;
        self.lost = self.lost.saturating_sub(1);
        events::worker_started(&self.name, pid, replaces);
    }

    pub(super) fn failed(&self, count: u32) -> ToGateway {
        ToGateway::StartFailed {
            pool: self.id,
            count,
        }
    }

    /// Cancels the requested workers that are not started yet.
    pub(super) fn cannot_start(&mut self) -> Option<ToGateway> {
        let wanted = std::mem::take(&mut self.quota.wanted);
        (wanted > 0).then(|| self.failed(u32::try_from(wanted).unwrap_or(u32::MAX)))
    }

    /// A worker's process has ended.
    pub(super) fn exited(
        &mut self,
        index: usize,
        exit: Exit,
        now: Instant,
        news: &mut Vec<ToGateway>,
    ) {
        let worker = self.workers.remove(index);
        let pid = worker.pid.unwrap_or_default();
        let was_booting = matches!(&worker.link, Link::Php(link) if link.boots.is_some());
        let lived = now.saturating_duration_since(worker.since);
        let proven = match &worker.link {
            Link::Command(link) => link.close(pid),
            Link::Php(_) => true,
        };
        let outputs = worker.outputs;
        let last = outputs.map(|outputs| outputs.finish(pid, &self.log));
        let no_memory = self.oom.ended(exit, now);
        // If it was asked to end, but ended in another way, it ended by itself.
        let why = match exit {
            _ if no_memory => Ending::Unasked,
            Exit::Signal(signal) if ![SIGTERM, SIGKILL].contains(&signal) => Ending::Unasked,
            // It has seen the end of its stream, and may report before the gateway does.
            Exit::Code(0) if self.is_finishing && worker.why == Ending::Unasked => {
                Ending::Requested
            }
            _ => worker.why,
        };
        if no_memory {
            events::worker_without_memory(&self.name, pid, self.oom.count());
        }
        if worker.pid.is_some() {
            events::worker_exited(&self.name, pid, exit, lived, why);
        }
        if matches!(why, Ending::Unasked | Ending::Killed) {
            self.lost = (self.lost + 1).min(self.quota.most);
        }
        let by_signal = matches!(exit, Exit::Signal(SIGTERM | SIGKILL));
        match worker.claim {
            Claim::Given => news.push(ToGateway::WorkerExited {
                pool: self.id,
                worker: worker.number,
                pid,
                exit,
                killed: by_signal && !no_memory && why == Ending::Unasked,
            }),
            Claim::Requested => news.push(self.failed(1)),
            Claim::None => {}
        }
        if self.emergency.borrow_mut().count(exit, now) {
            let mut crashes = self.emergency.borrow_mut();
            events::emergency_restart(&self.name, crashes.threshold, crashes.interval);
            match crashes.of_all {
                true => crashes.reached = true,
                false => {
                    drop(crashes);
                    self.renew_soon(news);
                }
            }
        }
        if !proven && why == Ending::Unasked {
            let cause = format!("its program ended before it accepted a connection: {exit}");
            self.look_whether_down(cause, news);
        }
        if was_booting && why == Ending::Unasked {
            let cause = self.boot_failed(exit, &last.unwrap_or_default());
            self.look_whether_down(cause, news);
        }
    }

    /// Why there is no booted application.
    pub(super) fn boot_failed(&self, exit: Exit, last: &LastLines) -> String {
        let script = match &self.kind {
            Kind::Php(php) => php.spec.booted_script(),
            Kind::Command(_) => None,
        };
        let why = match (last.error(), exit) {
            (Some(error), _) => format!(": {error}"),
            (None, Exit::Signal(_)) => String::new(),
            (None, Exit::Code(_)) => {
                let wrote = last.of_script();
                let wrote = wrote.map_or(String::new(), |line| format!(" and wrote: {line}"));
                format!("{wrote}; {LOOP_IS_MISSING}")
            }
        };
        format!(
            "the script of `worker`, {}, ended before it called frankenphp_handle_request() ({exit}){why}",
            script.unwrap_or_default()
        )
    }

    /// Tells the gateway if the pool has no worker and gets none.
    pub(super) fn look_whether_down(&mut self, cause: String, news: &mut Vec<ToGateway>) {
        // Without a master a PHP pool is down, too; this is reported elsewhere.
        let may_start = match &self.kind {
            Kind::Command(_) => true,
            Kind::Php(php) => php.spec.boot_limit.is_some() && php.has_master(),
        };
        if may_start && !self.down && self.workers.is_empty() && self.quota.wanted == 0 {
            tell!(
                error,
                about_pool(&self.name),
                "the pool has no worker: {cause}"
            );
            self.down = true;
            news.push(self.is_down(cause));
        }
    }

    pub(super) fn is_down(&self, message: String) -> ToGateway {
        ToGateway::PoolDown {
            pool: self.id,
            message,
        }
    }

    pub(super) fn is_up(&mut self, pid: u32) {
        if std::mem::take(&mut self.down) {
            tell!(
                notice,
                about(&self.name, pid),
                "workers can be started again"
            );
        }
    }

    /// Gives up to `count` workers of a dead gateway to the new one; returns how many.
    pub(super) fn claim(&mut self, count: usize, now: Instant) -> usize {
        let free = |worker: &&mut Worker| {
            worker.is_command() && worker.claim == Claim::None && worker.why == Ending::Unasked
        };
        let kept = self.workers.iter_mut().filter(free).take(count);
        kept.map(|worker| {
            worker.claim = Claim::Requested;
            worker.until = None;
            worker.reconnect(now);
        })
        .count()
    }

    pub(super) fn kill_overdue(&mut self, now: Instant, masters: &mut Masters) {
        for worker in &mut self.workers {
            if worker.until.is_some_and(|until| until <= now) {
                if worker.why == Ending::Unasked {
                    // Left by a gateway, and not requested by the next one.
                    worker.leave(&self.name, Ending::Requested, now + RETIRE_LIMIT);
                    continue;
                }
                let waited = now.saturating_duration_since(worker.since).as_secs_f64();
                tell!(
                    warning,
                    about(&self.name, worker.pid.unwrap_or_default()),
                    "the worker was told to end, but still runs {waited:.1} s after its start: killed"
                );
                worker.kill(Ending::Requested, &self.name, masters);
                // Try again later, in case this does not help.
                worker.until = Some(now + RETIRE_LIMIT);
            }
        }
    }

    /// Gives up masters that do not fork when ordered.
    pub(super) fn end_stuck_masters(&mut self, now: Instant, masters: &mut Masters) {
        let stuck = |worker: &&Worker| worker.forked_by().is_some_and(|until| until <= now);
        let worker = self.workers.iter().find(stuck);
        let zygote = worker.and_then(Worker::zygote);
        if zygote.is_some_and(|zygote| self.kill_zygote(zygote, now, masters)) {
            // Its master tells that they could not be forked.
            let waits = |worker: &&mut Worker| worker.pid.is_none();
            let waiting = self.workers.iter_mut().filter(waits);
            return waiting.for_each(|worker| worker.since = now);
        }
        if let Some(master) = self.workers.iter().find(stuck).and_then(Worker::master) {
            let seconds = FORK_LIMIT.as_secs();
            let about = about_pool(&self.name);
            tell!(
                error,
                about,
                "the pool's PHP master has started no worker for {seconds} s: killed"
            );
            masters.give_up(master, now);
            // Try again later, in case this does not help.
            let waits = |worker: &&mut Worker| worker.pid.is_none();
            let waiting = self.workers.iter_mut().filter(waits);
            waiting.for_each(|worker| worker.since = now);
        }
    }

    pub(super) fn deadline(&self, stopping: bool) -> Option<Instant> {
        let workers = self.workers.iter().flat_map(|worker| {
            let look = worker.next_look().filter(|_| !stopping);
            [worker.until, look, worker.forked_by(), worker.booted_by()]
        });
        let start = match self.can_start() && self.processes() < self.quota.most && !stopping {
            true => self.quota.due(),
            false => None,
        };
        let (master, zygote) = match &self.kind {
            Kind::Php(php) if !stopping => (php.deadline(), self.zygote_deadline()),
            _ => (None, None),
        };
        workers.chain([start, master, zygote]).flatten().min()
    }
}

/// The signals that end workers: the numbers are the same on all Linux systems.
const SIGTERM: i32 = 15;

/// The signal that kills workers.
const SIGKILL: i32 = 9;

/// Why the script of an application has ended, if PHP has not complained.
const LOOP_IS_MISSING: &str = "PHP has reported no error, so the loop is missing: while (frankenphp_handle_request($handler)) {}";
