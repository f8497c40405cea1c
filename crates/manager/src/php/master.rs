//! One master: its process, its channel, and what waits to be sent.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::{Duration, Instant},
};

use weir_observe::{
    error_log::{self, About, Format, tell},
    log_text::Worker,
};
use weir_sys::{
    identity::Capability,
    limits::{self, OpenFiles},
    memory, message,
    process::{self, Spawn},
};

use super::{
    Fields, Inputs, Logs, MAX_PACKET, MasterEvent, MasterEventKind, MasterId, Order, Report, Spec,
    TemplateId, of_this_build, variables,
};
use crate::{
    children::{
        unsent::Unsent,
        watch::{Source, Watch},
    },
    output::{Outputs, slow_log::SlowSocket},
};

/// A packet to a process that loads PHP, and the descriptors that go with it.
pub(super) type Packet = (Vec<u8>, Vec<OwnedFd>);

/// Sends a packet; the process gets duplicates of its descriptors.
pub(super) fn send_packet(channel: &OwnedFd, (packet, attached): &Packet) -> io::Result<()> {
    let attached: Vec<BorrowedFd<'_>> = attached.iter().map(AsFd::as_fd).collect();
    message::send(channel.as_fd(), packet, &attached, false)
}

#[derive(Debug)]
pub(super) struct Master {
    pub(super) id: MasterId,
    /// `None`: it was ordered from a template, and is not there yet.
    pub(super) pid: Option<u32>,
    /// The template that it was ordered from, and when it must be there.
    pub(super) from: Option<(TemplateId, Instant)>,
    pub(super) spec: Rc<Spec>,
    /// `None`: it is ending.
    pub(super) channel: Option<OwnedFd>,
    pub(super) unsent: Unsent<Packet>,
    pub(super) outputs: Outputs,
    pub(super) slow: Option<SlowSocket>,
    pub(super) logs: Logs,
    /// Its PHP version, and whether answers may name it; empty until it is ready.
    pub(super) version: (String, bool),
    /// `None`: it is not ready.
    pub(super) inputs: Option<Rc<Inputs>>,
    /// Until then it takes one of the places of `php_starts` while it loads PHP.
    pub(super) turn: Instant,
    /// When it is killed; `None`: not planned.
    pub(super) until: Option<Instant>,
}

/// The ends of a master.
pub(super) struct Theirs {
    pub(super) channel: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) slow: OwnedFd,
}

impl Master {
    /// A master that is not there yet, and the ends that it gets.
    pub(super) fn new(
        id: MasterId,
        spec: &Rc<Spec>,
        logs: &Logs,
        watch: &Watch,
    ) -> io::Result<(Self, Theirs)> {
        let (channel, theirs) = message::pair()?;
        let (outputs, [stdout, stderr]) = Outputs::pipes(spec.identity.as_ref())?;
        let (slow, slow_end) = SlowSocket::pair()?;
        watch.add(channel.as_fd(), Source::Master(id))?;
        watch.add(slow.as_fd(), Source::SlowLog(id))?;
        watch.add_outputs(&outputs, |stream| Source::MasterOutput(id, stream))?;
        let master = Self {
            id,
            pid: None,
            from: None,
            spec: spec.clone(),
            channel: Some(channel),
            unsent: Unsent::default(),
            outputs: outputs.in_plain_lines(),
            slow: Some(slow),
            logs: logs.clone(),
            version: (String::new(), false),
            inputs: None,
            turn: Instant::now() + TURN,
            until: None,
        };
        let theirs = Theirs {
            channel: theirs,
            stdout,
            stderr,
            slow: slow_end,
        };
        Ok((master, theirs))
    }

    /// Starts a process that loads PHP itself.
    pub(super) fn load(&mut self, theirs: Theirs) -> Result<(), String> {
        let spec = &self.spec;
        let (open, hidden) = variables::open_and_hidden(&spec.environment);
        let hidden = memory::file(c"environment", &variables::lines(&hidden));
        let hidden = hidden.map_err(|error| error.to_string())?;
        let spawn = Spawn {
            program: spec.program.path.clone(),
            name: Some(self.title().into()),
            arguments: spec.program.arguments(),
            environment: spec.program.environment(open),
            identity: spec.identity.clone(),
            chroot: None,
            // As long as it loads PHP, others of its user must not look into it.
            keeps: match spec.chroot {
                Some(_) => Capability::Chroot,
                None => Capability::Guard,
            },
            // php.ini and other files must not be searched in the folder where weir was started.
            folder: Some("/".into()),
            open_files: Some(spec.open_files),
            core_size: spec.core_size,
            processes: spec.processes,
            priority: spec.priority,
            huge_pages: true,
            outlives_us: false,
            stdin: theirs.channel,
            stdout: theirs.stdout,
            stderr: theirs.stderr,
        };
        let pid = spawn.start().map_err(|error| error.to_string())?;
        self.pid = Some(pid);
        let config = self.config(Fields::new());
        self.unsent.push((config, vec![theirs.slow, hidden]));
        self.flush(Instant::now());
        Ok(())
    }

    /// Its name in process lists.
    pub(super) fn title(&self) -> String {
        match error_log::format() {
            Format::Weir => format!("weir-php: pool {}", self.spec.pool),
            // The name that users of PHP-FPM look for.
            Format::Fpm => format!("php-fpm: pool {}", self.spec.pool),
        }
    }

    pub(super) fn config(&self, more: Fields) -> Vec<u8> {
        let mut config = variables::build_first();
        config.extend(self.spec.config.iter().cloned());
        config.extend(more);
        Order::Config(&config).encode()
    }

    /// When it must be there that was ordered from a template; `None`: it is there, or nobody wants it any more.
    pub(super) fn birth(&self) -> Option<Instant> {
        let (_, until) = self.from?;
        (self.pid.is_none() && self.channel.is_some()).then_some(until)
    }

    /// Whether it was ordered from a template, and nobody wants it any more.
    pub(super) fn is_given_up(&self) -> bool {
        self.pid.is_none() && self.channel.is_none()
    }

    /// The first message of one that was forked from a template is its process id. Returns whether it is our child.
    pub(super) fn is_born(&mut self) -> bool {
        let Some(channel) = &self.channel else {
            return false;
        };
        let mut buffer = [0; 64];
        let received = message::receive(channel.as_fd(), &mut buffer, false);
        let report = received.ok().map(|(n, _)| Report::decode(&buffer[..n]));
        match report {
            Some(Ok(Report::Forked { number, pid }))
                if number == self.id.0 && process::is_child(pid) =>
            {
                self.pid = Some(pid);
                true
            }
            _ => false,
        }
    }

    /// The limits that one sets for itself which was not executed with them.
    pub(super) fn limits(&self) -> Fields {
        let OpenFiles { soft, hard } = self.spec.open_files;
        let core = (self.spec.core_size).map(|size| format!("core {size} {}", u64::MAX));
        let processes = (self.spec.processes).map(|count| format!("processes {count} {count}"));
        let all = std::iter::once(format!("files {soft} {hard}"));
        let all = all.chain(core).chain(processes);
        all.map(|limit| ("rlimit", limit.into_bytes())).collect()
    }

    /// Sets what only we may: limits above those with which weir was started, and the priority.
    pub(super) fn limit(&self) -> io::Result<()> {
        let Some(pid) = self.pid else { return Ok(()) };
        if limits::may_raise_limits() {
            limits::set_open_files(Some(pid), self.spec.open_files)?;
            if let Some(size) = self.spec.core_size {
                limits::set_core_size(Some(pid), size)?;
            }
            if let Some(count) = self.spec.processes {
                limits::set_processes(Some(pid), count)?;
            }
        }
        if let Some(nice) = self.spec.priority {
            limits::set_priority(pid, nice)?;
        }
        Ok(())
    }

    /// Queues an order; if the master is ending, it is dropped with its descriptors.
    pub(super) fn send(&mut self, order: &Order<'_>, attached: Vec<OwnedFd>) {
        if self.channel.is_some() {
            self.unsent.push((order.encode(), attached));
            self.flush(Instant::now());
        }
    }

    pub(super) fn flush(&mut self, now: Instant) {
        let Some(channel) = self.channel.as_ref().filter(|_| self.pid.is_some()) else {
            return;
        };
        let sent = self.unsent.flush(|packet| send_packet(channel, packet));
        if sent.is_err() {
            // Its end will be reported. If not, it has closed the channel and cannot be used any more.
            return self.end(now);
        }
        if self.unsent.len() > MAX_QUEUE {
            tell!(
                error,
                self.about(),
                "the pool's PHP master does not read commands: killed"
            );
            self.end(now);
            self.kill();
        }
    }

    /// `shared`: the files that PHP was loaded from, if a template has loaded it.
    pub(super) fn read(
        &mut self,
        limit: usize,
        shared: Option<&Rc<Inputs>>,
        now: Instant,
        news: &mut Vec<MasterEvent>,
    ) {
        let mut buffer = vec![0; MAX_PACKET];
        for _ in 0..limit {
            let Some(channel) = &self.channel else {
                return;
            };
            // Descriptors that it might send are closed here without being used.
            let received = message::receive(channel.as_fd(), &mut buffer, false);
            let report = match received {
                Ok((0, _)) => return self.end(now),
                Ok((n, _)) => Report::decode(&buffer[..n]).ok(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
                Err(_) => return self.end(now),
            };
            match report {
                Some(ref report @ Report::Ready { .. })
                    if let Err(cause) = of_this_build(&self.spec.program, report) =>
                {
                    news.push(MasterEvent {
                        master: self.id,
                        kind: MasterEventKind::Report(Report::Failed(cause)),
                    });
                    return self.end(now);
                }
                Some(report) => {
                    if let Report::Ready {
                        version,
                        exposed,
                        inputs,
                        libraries,
                        ..
                    } = &report
                        && self.inputs.is_none()
                    {
                        self.version = (version.clone(), *exposed);
                        let program = &self.spec.program.path;
                        let pid = self.pid.unwrap_or_default();
                        let own = || Rc::new(Inputs::of(program, pid, inputs, libraries));
                        self.inputs = Some(shared.map_or_else(own, Rc::clone));
                    }
                    news.push(MasterEvent {
                        master: self.id,
                        kind: MasterEventKind::Report(report),
                    });
                }
                None => {
                    tell!(
                        error,
                        self.about(),
                        "the pool's PHP master sent invalid messages: killed"
                    );
                    self.end(now);
                    return self.kill();
                }
            }
        }
    }

    /// Orders it to end with all its workers; it is killed if it does not.
    pub(super) fn end(&mut self, now: Instant) {
        if self.channel.take().is_some() {
            self.unsent.clear();
            self.until = Some(now + LAST_WORDS);
        }
    }

    /// A script, which runs as the same user, may have stopped the master: then it would fork and kill nothing any
    /// more.
    pub(super) fn wake(&self) {
        if let Some(Err(error)) = self.pid.map(process::wake) {
            tell!(
                error,
                self.about(),
                "cannot send a signal to the pool's PHP master: {error}"
            );
        }
    }

    pub(super) fn kill(&self) {
        if let Some(Err(error)) = self.pid.map(process::kill) {
            tell!(
                error,
                self.about(),
                "cannot kill the pool's master: {error}"
            );
        }
    }

    pub(super) fn about(&self) -> About<'_> {
        About {
            pool: Some(&self.spec.pool),
            worker: self.pid.map(Worker::Pid),
            ..About::default()
        }
    }
}

/// How long a master may take to end by itself.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long a master counts for `php_starts` while it loads PHP. That takes some 40 ms of a processor. One that takes longer
/// waits for something, or a process of its user has stopped it, and must not keep other pools from their start.
const TURN: Duration = Duration::from_secs(2);

/// Maximum number of waiting orders; with more, the master counts as stuck.
const MAX_QUEUE: usize = 16_384;
