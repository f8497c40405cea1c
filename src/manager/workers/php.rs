//! Workers of `runtime = "php"`: forked by their pool's master ([`crate::manager::php`]), each with one end of a stream
//! whose other end the gateway gets.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    rc::Rc,
    time::{Duration, Instant},
};

use weir_sys::process::Exit;

use super::{Claim, Kind, Link, Pool, Started, Worker, about_pool};
use crate::{
    control::ToGateway,
    error_log::tell,
    manager::{
        gateway::{back_off, describe_pause},
        output::Outputs,
        php::{MasterId, Masters, News, Report, Spec, Task, What},
    },
};

/// A pool's master.
#[derive(Debug)]
pub(super) struct Php {
    spec: Rc<Spec>,
    /// The one that forks.
    current: Option<MasterId>,
    /// The one that is to take its place.
    next: Option<Boot>,
    /// When to start one; none while one runs.
    due: Option<Instant>,
    /// Masters in a row that died young, or could not load PHP.
    failures: u32,
    since: Instant,
}

/// A master that loads PHP.
#[derive(Debug)]
struct Boot {
    master: MasterId,
    /// Given up at that time.
    until: Instant,
}

/// How the manager reaches a worker.
#[derive(Debug)]
pub(super) struct Forked {
    pub(super) master: MasterId,
    /// The gateway's end, until the worker is there.
    pub(super) stream: Option<OwnedFd>,
}

impl Php {
    /// A pool whose master is `same`, or is to be started now.
    pub(super) fn new(spec: Rc<Spec>, same: Option<MasterId>, now: Instant) -> Self {
        Self {
            spec,
            current: same,
            next: None,
            due: same.is_none().then_some(now),
            failures: 0,
            since: now,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.current.is_some()
    }

    pub(super) fn current(&self) -> Option<MasterId> {
        self.current
    }

    /// The masters that it needs, beside those of its workers.
    pub(super) fn masters(&self) -> Vec<MasterId> {
        let next = self.next.as_ref().map(|next| next.master);
        self.current.into_iter().chain(next).collect()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let boot = self.next.as_ref().map(|next| next.until);
        [self.due, boot].into_iter().flatten().min()
    }

    /// Has the master fork a worker.
    pub(super) fn fork(&self, number: u32, masters: &mut Masters) -> Result<Started, String> {
        let Some(master) = self.current else {
            return Err("the pool's master is not there".into());
        };
        let make = || -> io::Result<(Outputs, [OwnedFd; 2], UnixStream, UnixStream)> {
            let (outputs, ends) = Outputs::pipes(self.spec.identity.as_ref())?;
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            Ok((outputs, ends, ours, theirs))
        };
        let (outputs, [stdout, stderr], ours, theirs) =
            make().map_err(|error| format!("no worker can be made: {error}"))?;
        let attached = vec![theirs.into(), stdout, stderr];
        masters.fork(master, number, Task::Work, attached);
        Ok(Started {
            pid: None,
            outputs,
            link: Link::Php(Forked {
                master,
                stream: Some(ours.into()),
            }),
        })
    }
}

impl Pool {
    /// Starts the master if it is due, and gives up one that does not get ready.
    pub(super) fn tick_master(
        &mut self,
        now: Instant,
        masters: &mut Masters,
        news: &mut Vec<ToGateway>,
    ) {
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        if php.due.is_some_and(|due| due <= now) {
            php.due = None;
            match masters.start(&php.spec, &self.log) {
                Ok(master) => {
                    php.next = Some(Boot {
                        master,
                        until: now + BOOT_LIMIT,
                    });
                }
                Err(error) => {
                    let program = php.spec.program.display();
                    let cause = format!("{program} cannot be started: {error}");
                    return self.boot_failed(cause, now, news);
                }
            }
        }
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        if php.next.as_ref().is_some_and(|next| next.until <= now) {
            let seconds = BOOT_LIMIT.as_secs();
            self.boot_failed(format!("PHP is not loaded after {seconds} s"), now, news);
        }
    }

    /// A master told something, or has ended; if it is this pool's, or some of its workers are.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        heard: &News,
        stopping: bool,
        masters: &mut Masters,
        news: &mut Vec<ToGateway>,
    ) {
        let id = heard.master;
        match &heard.what {
            What::Told(Report::Forked { number, pid }) => {
                if let Some(index) = self.forked(id, *number) {
                    self.worker_forked(index, *pid, stopping, masters, news);
                }
            }
            What::Told(Report::Exited { number, exit }) => {
                if let Some(index) = self.forked(id, *number) {
                    self.exited(index, *exit, now, news);
                }
            }
            What::Told(Report::ForkFailed { number, errno }) => {
                if let Some(index) = self.forked(id, *number) {
                    let worker = self.workers.remove(index);
                    let error = io::Error::from_raw_os_error(*errno);
                    tell!(
                        error,
                        about_pool(&self.name),
                        "no worker can be forked: {error}"
                    );
                    if worker.claim == Claim::Asked {
                        news.push(self.failed(1));
                    }
                }
            }
            What::Told(report) => self.hear_master(id, report, now, news),
            What::Gone(exit) => {
                while let Some(index) = self.workers.iter().position(|w| w.master() == Some(id)) {
                    // The master's end took them along.
                    self.exited(index, KILLED, now, news);
                }
                if !stopping {
                    self.master_gone(id, *exit, now, news);
                }
            }
        }
    }

    /// The place of a worker that this master was told to fork.
    fn forked(&self, id: MasterId, number: u32) -> Option<usize> {
        let is_it = |worker: &Worker| worker.number == number && worker.master() == Some(id);
        self.workers.iter().position(is_it)
    }

    /// A worker is there: the gateway gets it.
    fn worker_forked(
        &mut self,
        index: usize,
        pid: u32,
        stopping: bool,
        masters: &mut Masters,
        news: &mut Vec<ToGateway>,
    ) {
        let worker = &mut self.workers[index];
        if worker.pid.is_some() {
            return;
        }
        worker.pid = Some(pid);
        let Link::Php(link) = &mut worker.link else {
            return;
        };
        let Some(connection) = link.stream.take() else {
            // Its gateway is gone, and it sees that.
            return;
        };
        if stopping || worker.until.is_some() {
            return worker.kill(&self.name, masters);
        }
        worker.claim = Claim::Given;
        news.push(ToGateway::Worker {
            pool: self.id,
            worker: worker.number,
            pid,
            generation: worker.generation,
            used: false,
            connection,
        });
        self.told_started(pid);
        self.is_up(pid);
    }

    fn hear_master(
        &mut self,
        id: MasterId,
        report: &Report,
        now: Instant,
        news: &mut Vec<ToGateway>,
    ) {
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        let is_next = php.next.as_ref().is_some_and(|next| next.master == id);
        let is_ours = is_next || php.current == Some(id);
        match report {
            Report::Ready { version, .. } if is_next => {
                let version = version.clone();
                php.next = None;
                php.current = Some(id);
                php.since = now;
                self.generation += 1;
                self.down = false;
                tell!(notice, about_pool(&self.name), "PHP {version} is loaded");
                news.push(self.ready());
            }
            Report::Failed(cause) if is_next => {
                let cause = cause.clone();
                self.boot_failed(cause, now, news);
            }
            Report::Warning(text) if is_ours => {
                tell!(warning, about_pool(&self.name), "{text}");
            }
            _ => {}
        }
    }

    /// A master has ended, and its workers with it.
    fn master_gone(&mut self, id: MasterId, exit: Exit, now: Instant, news: &mut Vec<ToGateway>) {
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        if php.next.as_ref().is_some_and(|next| next.master == id) {
            return self.boot_failed(format!("it ended before PHP was loaded: {exit}"), now, news);
        }
        if php.current != Some(id) {
            return;
        }
        php.current = None;
        let lived = now.saturating_duration_since(php.since);
        let pause = match lived >= LONG_LIFE {
            true => {
                php.failures = 0;
                Duration::ZERO
            }
            false => back_off(php.failures, MAX_PAUSE),
        };
        php.failures += 1;
        php.due = Some(now + pause);
        tell!(
            error,
            about_pool(&self.name),
            "the pool's master died, and its workers with it: {exit}, after {:.1} s; it starts again {}",
            lived.as_secs_f64(),
            describe_pause(pause)
        );
    }

    /// The master that was to be cannot be had. Without another one the pool has no worker.
    fn boot_failed(&mut self, cause: String, now: Instant, news: &mut Vec<ToGateway>) {
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        php.next = None;
        let pause = back_off(php.failures, MAX_PAUSE);
        php.failures += 1;
        php.due = Some(now + pause);
        tell!(
            error,
            about_pool(&self.name),
            "PHP cannot be started: {cause}; again {}",
            describe_pause(pause)
        );
        news.extend(self.cannot_start());
        if !self.down {
            self.down = true;
            news.push(self.is_down(cause));
        }
    }
}

/// How a worker ended whose master has ended.
const KILLED: Exit = Exit::Signal(9);

/// A master that has not loaded PHP after so long never will.
const BOOT_LIMIT: Duration = Duration::from_secs(30);

/// A master that lived for so long starts again at once.
const LONG_LIFE: Duration = Duration::from_secs(5);

/// The longest pause between two starts.
const MAX_PAUSE: Duration = Duration::from_secs(30);
