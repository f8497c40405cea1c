//! Workers of `runtime = "php"`: their pool's master forks them ([`crate::php`]). Each has one end of a
//! stream, and the gateway gets the other end: at once, or when it has booted its application (`worker`). Until then it counts
//! as starting, so that no request waits for a boot that fails.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    time::{Duration, Instant},
};

use weir_control::ToGateway;
use weir_observe::{
    error_log::tell,
    events::{self, Ending},
};
use weir_sys::process::Exit;

use super::{
    Claim, Context, Link, Pool, Started, Worker, about_pool, master::Php, tell_stuck_boot,
    worker::watch_output, zygote::Zygote,
};
use crate::{
    output::Outputs,
    php::{MasterEvent, MasterEventKind, MasterId, Masters, Report, Task},
};

/// The manager's connection to a worker.
#[derive(Debug)]
pub(super) struct Forked {
    pub(super) master: MasterId,
    /// The gateway's end, until the worker has started.
    pub(super) stream: Option<OwnedFd>,
    /// How long it may boot its application; `None`: it does not, or has.
    pub(super) boots: Option<Duration>,
    /// The zygote that was ordered to fork it; `None`: the master itself.
    pub(super) zygote: Option<u32>,
}

impl Php {
    /// Orders the master to fork a worker.
    pub(super) fn fork(&self, number: u32, masters: &mut Masters) -> Result<Started, String> {
        let Some(master) = self.current() else {
            return Err("the pool's PHP master is not running".into());
        };
        let make = || -> io::Result<(Outputs, [OwnedFd; 2], UnixStream, UnixStream)> {
            let (outputs, ends) = Outputs::pipes(self.spec.identity.as_ref())?;
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            Ok((outputs, ends, ours, theirs))
        };
        let (outputs, [stdout, stderr], ours, theirs) =
            make().map_err(|error| format!("no worker can be created: {error}"))?;
        let attached = vec![theirs.into(), stdout, stderr];
        let zygote = self.zygote.as_ref().and_then(Zygote::ready);
        let task = zygote.map_or(Task::Work, Task::WorkOf);
        masters.fork(master, number, task, attached);
        Ok(Started {
            pid: None,
            outputs,
            link: Link::Php(Forked {
                master,
                stream: Some(ours.into()),
                boots: self.spec.boot_limit,
                zygote,
            }),
        })
    }
}

impl Pool {
    /// A master has sent a report or ended. Handled if it is this pool's master, or that of some of its workers.
    pub(super) fn hear(&mut self, heard: &MasterEvent, stopping: bool, context: &mut Context<'_>) {
        let now = context.now;
        let id = heard.master;
        if let MasterEventKind::Report(report) = &heard.kind
            && self.hear_zygote(id, report, context)
        {
            return;
        }
        match &heard.kind {
            MasterEventKind::Report(Report::Forked { number, pid }) => {
                if let Some(index) = self.forked(id, *number) {
                    if let Some(php) = self.php()
                        && php.current() == Some(id)
                    {
                        php.has_forked = true;
                    }
                    self.worker_forked(index, *pid, stopping, context);
                }
            }
            MasterEventKind::Report(Report::Booted { number }) => {
                if let Some(index) = self.forked(id, *number) {
                    self.worker_booted(index, stopping, context);
                }
            }
            MasterEventKind::Report(report @ Report::Exited { number, exit }) => {
                match self.forked(id, *number) {
                    Some(index) => self.exited(index, *exit, now, context.news),
                    None => self.hear_master(id, report, context),
                }
            }
            MasterEventKind::Report(report @ Report::ForkFailed { number, errno }) => {
                let Some(index) = self.forked(id, *number) else {
                    return self.hear_master(id, report, context);
                };
                let from = self.workers[index].zygote();
                let worker = self.workers.remove(index);
                if !self.zygote_was_gone(from, *errno, now) {
                    let error = io::Error::from_raw_os_error(*errno);
                    tell!(
                        error,
                        about_pool(&self.name),
                        "no worker can be forked: {error}"
                    );
                    if worker.claim == Claim::Requested {
                        context.news.push(self.failed(1));
                    }
                }
            }
            MasterEventKind::Report(report) => self.hear_master(id, report, context),
            MasterEventKind::Exited { exit, words } => {
                while let Some(index) = self.workers.iter().position(|w| w.master() == Some(id)) {
                    // It ended together with its master.
                    self.exited(index, KILLED, now, context.news);
                }
                if !stopping {
                    self.master_gone(id, *exit, words, context);
                }
            }
        }
    }

    /// The index of a worker that this master was ordered to fork.
    fn forked(&self, id: MasterId, number: u32) -> Option<usize> {
        let is_it = |worker: &Worker| worker.number == number && worker.master() == Some(id);
        self.workers.iter().position(is_it)
    }

    /// A worker is there. If it has an application to boot, it gets its time for that.
    fn worker_forked(&mut self, index: usize, pid: u32, stopping: bool, context: &mut Context<'_>) {
        let worker = &mut self.workers[index];
        if worker.pid.is_some() {
            return;
        }
        worker.pid = Some(pid);
        if let Some(outputs) = &worker.outputs {
            watch_output(outputs, worker.number, context.masters);
        }
        match &worker.link {
            Link::Php(Forked { boots: Some(_), .. }) => worker.since = context.now,
            _ => self.worker_started(index, pid, stopping, context),
        }
    }

    /// A worker has booted its application.
    fn worker_booted(&mut self, index: usize, stopping: bool, context: &mut Context<'_>) {
        let worker = &mut self.workers[index];
        let Link::Php(link) = &mut worker.link else {
            return;
        };
        if let (Some(_), Some(pid)) = (link.boots.take(), worker.pid) {
            self.worker_started(index, pid, stopping, context);
        }
    }

    /// Kills workers that do not come to an end with their boot.
    pub(super) fn end_stuck_boots(&mut self, now: Instant, masters: &mut Masters) {
        for worker in &mut self.workers {
            if worker.booted_by().is_none_or(|until| until > now) {
                continue;
            }
            let Link::Php(Forked {
                boots: Some(limit), ..
            }) = &worker.link
            else {
                continue;
            };
            tell_stuck_boot(&self.name, worker.pid, *limit);
            worker.kill(Ending::Unasked, &self.name, masters);
        }
    }

    /// A worker has started: the gateway gets it.
    fn worker_started(
        &mut self,
        index: usize,
        pid: u32,
        stopping: bool,
        context: &mut Context<'_>,
    ) {
        let worker = &mut self.workers[index];
        let Link::Php(link) = &mut worker.link else {
            return;
        };
        let Some(connection) = link.stream.take() else {
            // Its gateway is gone; the worker sees that itself.
            return;
        };
        if stopping || worker.until.is_some() {
            return worker.kill(events::Ending::Requested, &self.name, context.masters);
        }
        worker.claim = Claim::Given;
        context.news.push(ToGateway::Worker {
            pool: self.id,
            worker: worker.number,
            pid,
            start_number: worker.start_number,
            used: false,
            connection,
        });
        self.told_started(pid);
        self.is_up(pid);
    }
}

/// The exit of a worker whose master has ended.
const KILLED: Exit = Exit::Signal(9);
