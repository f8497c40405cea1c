//! The zygote of a pool whose application stays booted: a process that has booted the application, and from which the
//! pool's workers are forked. So a worker costs a fork and not a boot, and workers share the booted pages.
//!
//! ```text
//! due ──► Booting ── booted ──► Ready ── dies ──► due, after a pause if that was soon
//!            ├── declined: each worker boots for itself, as long as the pool has this master
//!            └── fails, takes too long: due after a pause that grows; until then each worker boots for itself
//! ```
//!
//! While it boots, workers that are requested wait: a boot of their own would not be faster. A worker does not depend
//! on the zygote that it was forked from. Each pool of each configuration has its own zygote, because a reload may have
//! changed the application while the master stays.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    time::{Duration, Instant},
};

use weir_control::ToGateway;
use weir_observe::{error_log::tell, events::Stream};
use weir_sys::process::Exit;

use super::{
    Context, FORK_LIMIT, Kind, Pool, RETIRE_LIMIT, about, about_pool, next_number, tell_stuck_boot,
    worker::watch_output,
};
use crate::{
    children::gateway::{Lifetime, describe_pause},
    output::Outputs,
    php::{MasterId, Masters, Report, Task},
};

/// A pool's zygote. The process ends when this is dropped.
#[derive(Debug)]
pub(super) struct Zygote {
    state: State,
    /// Number of boots that failed in a row.
    failures: u32,
    /// Whether the last one lived only for a short time.
    was_short: bool,
}

#[derive(Debug)]
enum State {
    /// Started at this time, if the pool has or wants workers.
    Due(Instant),
    Booting(Process),
    Ready(Process),
    /// The application may not be forked, and is not tried again; with the reason.
    Declined(String),
}

#[derive(Debug)]
struct Process {
    number: u32,
    master: MasterId,
    /// `None`: not forked yet.
    pid: Option<u32>,
    since: Instant,
    /// When it is killed, if it boots; when it is given up, if it was killed.
    until: Instant,
    is_killed: bool,
    has_booted: bool,
    outputs: Outputs,
    /// The process ends when this is closed.
    _life: OwnedFd,
}

impl Zygote {
    /// One that is started when the pool has or wants workers.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: State::Due(now),
            failures: 0,
            was_short: false,
        }
    }

    /// Whether workers must wait for it.
    pub(super) fn is_booting(&self) -> bool {
        matches!(self.state, State::Booting(_))
    }

    /// The number of the process that workers can be forked from.
    pub(super) fn ready(&self) -> Option<u32> {
        match &self.state {
            State::Ready(process) => Some(process.number),
            _ => None,
        }
    }

    /// When [`Pool::tick_zygote`] has something to do; `is_used`: whether the pool has or wants workers.
    pub(super) fn deadline(&self, is_used: bool) -> Option<Instant> {
        match &self.state {
            State::Due(at) => is_used.then_some(*at),
            State::Booting(process) => Some(process.until),
            State::Ready(process) => process.is_killed.then_some(process.until),
            State::Declined(_) => None,
        }
    }

    fn process(&mut self) -> Option<&mut Process> {
        match &mut self.state {
            State::Booting(process) | State::Ready(process) => Some(process),
            State::Due(_) | State::Declined(_) => None,
        }
    }

    /// Its process id.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.state {
            State::Booting(process) | State::Ready(process) => process.pid,
            State::Due(_) | State::Declined(_) => None,
        }
    }
}

impl Process {
    fn kill(&mut self, masters: &mut Masters, now: Instant) {
        masters.kill(self.master, self.number);
        self.is_killed = true;
        self.until = now + RETIRE_LIMIT;
    }
}

impl Pool {
    /// Whether a zygote is of use.
    pub(super) fn uses_zygote(&self) -> bool {
        self.quota.wanted > 0 || self.live() > 0
    }

    /// Whether the zygote allows another worker: it is not booting, and not too many forks are ordered.
    pub(super) fn zygote_can_fork(&self) -> bool {
        let Kind::Php(php) = &self.kind else {
            return true;
        };
        let Some(zygote) = &php.zygote else {
            return true;
        };
        let ordered = || {
            let waits = |worker: &&super::Worker| worker.pid.is_none();
            self.workers.iter().filter(waits).count()
        };
        !zygote.is_booting() && (zygote.ready().is_none() || ordered() < FORKS_AT_ONCE)
    }

    /// Starts a zygote that is due, and kills one that boots for too long.
    pub(super) fn tick_zygote(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let is_used = self.uses_zygote();
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        let (Some(master), Some(limit)) = (php.current(), php.spec.boot_limit) else {
            return;
        };
        let Some(zygote) = &mut php.zygote else {
            return;
        };
        match &mut zygote.state {
            State::Due(at) if *at <= now && is_used => {
                match start(master, limit, php.spec.identity.as_ref(), context) {
                    Ok(process) => zygote.state = State::Booting(process),
                    Err(error) => {
                        zygote.state = State::Due(now + MAX_PAUSE);
                        let about = about_pool(&self.name);
                        tell!(error, about, "no zygote can be created: {error}");
                    }
                }
            }
            State::Booting(process) | State::Ready(process)
                if process.is_killed && process.until <= now =>
            {
                // Its master does not tell of its end.
                zygote.state = State::Due(now + MAX_PAUSE);
            }
            State::Booting(process) if process.until <= now => {
                tell_stuck_boot(&self.name, process.pid, limit);
                process.kill(context.masters, now);
            }
            _ => {}
        }
    }

    /// A report of a master. Returns whether it is about this pool's zygote.
    pub(super) fn hear_zygote(
        &mut self,
        id: MasterId,
        report: &Report,
        context: &mut Context<'_>,
    ) -> bool {
        let now = context.now;
        let about_it = match report {
            Report::Forked { number, .. }
            | Report::Booted { number }
            | Report::Declined { number, .. }
            | Report::Exited { number, .. }
            | Report::ForkFailed { number, .. } => *number,
            _ => return false,
        };
        let Kind::Php(php) = &mut self.kind else {
            return false;
        };
        let limit = php.spec.boot_limit.unwrap_or_default();
        let Some(zygote) = &mut php.zygote else {
            return false;
        };
        let is_it = |process: &&mut Process| process.number == about_it && process.master == id;
        let Some(process) = zygote.process().filter(is_it) else {
            return false;
        };
        match report {
            Report::Forked { pid, .. } if process.pid.is_none() => {
                process.pid = Some(*pid);
                process.since = now;
                process.until = now + limit;
                let number = process.number;
                watch_output(&process.outputs, number, context.masters);
            }
            Report::Booted { .. } => {
                let pid = process.pid.unwrap_or_default();
                let seconds = now.saturating_duration_since(process.since).as_secs_f64();
                log::info!(
                    pool = self.name.as_str(), pid = pid;
                    "the application has booted in {seconds:.2} s, and workers are forked from this process"
                );
                zygote.failures = 0;
                zygote.is_ready();
                context.news.push(tell_gateway(self.id, pid, ""));
            }
            Report::Declined { why, .. } => {
                tell!(
                    notice,
                    about_pool(&self.name),
                    "each worker boots the application for itself, because a booted process cannot be forked: {why}; \
                     see docs/booted.md"
                );
                zygote.state = State::Declined(why.clone());
                context.news.push(tell_gateway(self.id, 0, why));
            }
            Report::Exited { exit, .. } => {
                self.zygote_has_ended(*exit, now);
                context.news.push(tell_gateway(self.id, 0, ""));
            }
            Report::ForkFailed { errno, .. } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                let about = about_pool(&self.name);
                tell!(error, about, "no zygote can be forked: {error}");
                zygote.state = State::Due(now + MAX_PAUSE);
            }
            _ => {}
        }
        true
    }

    fn zygote_has_ended(&mut self, exit: Exit, now: Instant) {
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        let Some(zygote) = &mut php.zygote else {
            return;
        };
        let state = std::mem::replace(&mut zygote.state, State::Due(now));
        let (State::Booting(process) | State::Ready(process)) = state else {
            return;
        };
        let was_ready = process.has_booted;
        let lived = Lifetime {
            time: now.saturating_duration_since(process.since),
            served: was_ready,
        };
        let pause = match was_ready {
            true => lived.pause(&mut zygote.failures, &mut zygote.was_short, MAX_PAUSE),
            // This includes a boot that failed only after a long time.
            false => {
                zygote.failures += 1;
                crate::children::gateway::back_off(zygote.failures + 2, MAX_PAUSE)
            }
        };
        zygote.state = State::Due(now + pause);
        let pid = process.pid.unwrap_or_default();
        let last = process.outputs.finish(pid, &self.log);
        let why = match self.oom.ended(exit, now) {
            true => " (the kernel killed it because memory ran out)",
            false => "",
        };
        let again = describe_pause(pause);
        let about = about(&self.name, pid);
        match was_ready {
            true => tell!(
                warning,
                about,
                "the process that workers are forked from has ended: {exit}{why}; its workers continue, and another one boots {again}"
            ),
            false => tell!(
                error,
                about,
                "{}{why}; it is tried again {again}, and until then each worker boots for itself",
                self.boot_failed(exit, &last)
            ),
        }
    }

    /// A fork was not possible because the zygote is gone: the worker is wanted again. Returns whether it was that.
    pub(super) fn zygote_was_gone(&mut self, from: Option<u32>, errno: i32, now: Instant) -> bool {
        if from.is_none() || ![ESRCH, EPIPE, ECONNRESET].contains(&errno) {
            return false;
        }
        self.quota.wanted += 1;
        if let Kind::Php(php) = &mut self.kind
            && let Some(zygote) = &mut php.zygote
            && zygote.ready() == from
            && let Some(process) = zygote.process()
            && !process.is_killed
        {
            // The report of its end has come, or is on its way.
            process.is_killed = true;
            process.until = now + RETIRE_LIMIT;
            zygote.is_gone();
        }
        true
    }

    /// The zygote has forked no worker for too long: kills it. Returns whether there was one.
    pub(super) fn kill_zygote(&mut self, number: u32, now: Instant, masters: &mut Masters) -> bool {
        let Kind::Php(php) = &mut self.kind else {
            return false;
        };
        let Some(zygote) = &mut php.zygote else {
            return false;
        };
        let is_it = |process: &&mut Process| process.number == number && !process.is_killed;
        let Some(process) = zygote.process().filter(is_it) else {
            return false;
        };
        tell!(
            error,
            about(&self.name, process.pid.unwrap_or_default()),
            "the process that workers are forked from has forked none for {} s: killed",
            FORK_LIMIT.as_secs()
        );
        process.kill(masters, now);
        true
    }

    /// When [`tick_zygote`](Self::tick_zygote) has something to do.
    pub(super) fn zygote_deadline(&self) -> Option<Instant> {
        let Kind::Php(php) = &self.kind else {
            return None;
        };
        php.current()?;
        php.zygote.as_ref()?.deadline(self.uses_zygote())
    }

    /// What a new gateway must know of its zygote.
    pub(super) fn tell_zygote(&self) -> Option<ToGateway> {
        let zygote = self.zygote()?;
        match &zygote.state {
            State::Ready(process) => Some(tell_gateway(self.id, process.pid?, "")),
            State::Declined(why) => Some(tell_gateway(self.id, 0, why)),
            State::Due(_) | State::Booting(_) => None,
        }
    }

    /// Its zygote's process id.
    pub(super) fn zygote_pid(&self) -> Option<u32> {
        self.zygote()?.pid()
    }

    fn zygote(&self) -> Option<&Zygote> {
        match &self.kind {
            Kind::Php(php) => php.zygote.as_ref(),
            Kind::Command(_) => None,
        }
    }

    /// Ends its zygote.
    pub(super) fn drop_zygote(&mut self) {
        if let Kind::Php(php) = &mut self.kind {
            php.zygote = None;
        }
    }

    /// Reads the zygote's output. `false`: it is not this pool's.
    pub(super) fn read_zygote(&mut self, number: u32, stream: Stream) -> bool {
        let Kind::Php(php) = &mut self.kind else {
            return false;
        };
        let process = php.zygote.as_mut().and_then(Zygote::process);
        let Some(process) = process.filter(|process| process.number == number) else {
            return false;
        };
        let pid = process.pid.unwrap_or_default();
        process.outputs.read(stream, pid, &self.log);
        true
    }
}

impl Zygote {
    fn is_ready(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Declined(String::new()));
        self.state = match state {
            State::Booting(mut process) if !process.is_killed => {
                process.has_booted = true;
                State::Ready(process)
            }
            other => other,
        };
    }

    /// Workers are not forked from it any more.
    fn is_gone(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Declined(String::new()));
        self.state = match state {
            State::Ready(process) => State::Booting(process),
            other => other,
        };
    }
}

/// What the gateway shows of a pool's zygote.
pub(super) fn tell_gateway(pool: u16, pid: u32, declined: &str) -> ToGateway {
    ToGateway::Zygote {
        pool,
        pid,
        declined: declined.to_owned(),
    }
}

/// Orders the master to fork a process that boots the application.
fn start(
    master: MasterId,
    limit: Duration,
    identity: Option<&weir_sys::identity::Identity>,
    context: &mut Context<'_>,
) -> std::io::Result<Process> {
    let (outputs, [stdout, stderr]) = Outputs::pipes(identity)?;
    let (life, theirs) = UnixStream::pair()?;
    let number = next_number();
    let attached = vec![theirs.into(), stdout, stderr];
    context.masters.fork(master, number, Task::Zygote, attached);
    Ok(Process {
        number,
        master,
        pid: None,
        since: context.now,
        until: context.now + FORK_LIMIT + limit,
        is_killed: false,
        has_booted: false,
        outputs,
        _life: life.into(),
    })
}

/// Forks of one zygote that are ordered at the same time. Its socket holds more of them.
const FORKS_AT_ONCE: usize = 32;

/// Maximum pause between two boots.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The zygote is not there, by Linux's numbers.
const ESRCH: i32 = 3;

/// See [`ESRCH`].
const EPIPE: i32 = 32;

/// See [`ESRCH`].
const ECONNRESET: i32 = 104;
