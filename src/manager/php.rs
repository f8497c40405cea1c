//! The PHP masters: processes that load PHP once and fork workers when told. One for each pool, or two while a pool is
//! started anew; a master that a reload leaves as it is serves both configurations.
//!
//! ```text
//! start ── CONFIG ──► booting ── READY ──► ready ── nobody uses it any more ──► ending ──► gone
//!                        └── FAILED, or it dies ──────────────────────────────────┘
//! ```
//!
//! A master is its pool's user from its first instruction. It is told what to do over a `SOCK_SEQPACKET` pair on its
//! descriptor 0 ([`wire`]); the end of that pair ends it and all its workers, as does the manager's death. What it
//! tells is not believed: the numbers are looked up by whoever asked for them ([`super::workers`]), and no message
//! makes the manager do more than note an end.

mod inputs;
mod wire;

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

use weir_sys::{
    identity::Identity,
    limits::OpenFiles,
    message,
    process::{self, Exit, Spawn},
};

use super::{
    gateway::is_full,
    oom::OomKills,
    output::{OutputLog, Outputs},
    slow_log::{SlowLog, SlowSocket},
};
use crate::{
    error_log::{self, About, Format, tell},
    events::Stream,
    log_text::Worker,
    machine,
};

use inputs::Inputs;
use wire::Order;
pub(super) use wire::{Report, Task};

/// What a master is started with. Two that are equal do the same: a reload keeps the master then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    /// The pool's name.
    pub(super) pool: String,
    /// `weir-php8.2`, with its path.
    pub(super) program: PathBuf,
    /// The environment that PHP is started with; `config` says what scripts find.
    pub(super) environment: Vec<(OsString, OsString)>,
    /// Who it is; none: who we are.
    pub(super) identity: Option<Identity>,
    /// The folder that it locks itself into when PHP is loaded.
    pub(super) chroot: Option<PathBuf>,
    /// Limit of open files.
    pub(super) open_files: OpenFiles,
    /// Largest core file, bytes.
    pub(super) core_size: Option<u64>,
    /// Nice value.
    pub(super) priority: Option<i32>,
    /// What CONFIG says.
    pub(super) config: Vec<(&'static str, Vec<u8>)>,
    /// The roots of the sites whose scripts it runs, by the site's name, as configured.
    pub(super) sites: Vec<(String, PathBuf)>,
    /// Where these really are, symbolic links followed.
    pub(super) roots: Vec<(String, PathBuf)>,
    /// The pool is started anew when that changes.
    pub(super) watch: bool,
}

/// Where it is written what processes of a pool print, and where its slow scripts are.
#[derive(Debug, Clone)]
pub(super) struct Logs {
    pub(super) output: Rc<OutputLog>,
    pub(super) slow: Rc<SlowLog>,
}

/// Which master; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MasterId(u32);

/// What became known of a master.
#[derive(Debug)]
pub(super) struct News {
    /// Whose.
    pub(super) master: MasterId,
    /// What.
    pub(super) what: What,
}

/// See [`News`].
#[derive(Debug)]
pub(super) enum What {
    /// It told something.
    Told(Report),
    /// It has ended, and all its workers with it.
    Gone {
        /// How.
        exit: Exit,
        /// What it printed last.
        words: String,
    },
}

/// All masters of this weir.
#[derive(Debug, Default)]
pub(super) struct Masters {
    list: Vec<Master>,
    last: u32,
    /// What the kernel has ended, of all generations.
    pub(super) oom: Rc<OomKills>,
}

#[derive(Debug)]
struct Master {
    id: MasterId,
    pid: u32,
    spec: Rc<Spec>,
    /// None: it is to end.
    channel: Option<OwnedFd>,
    queue: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    outputs: Outputs,
    slow: Option<SlowSocket>,
    logs: Logs,
    /// Which PHP it has loaded, and whether answers name that; empty until it is ready.
    version: (String, bool),
    /// None: it is not ready.
    inputs: Option<Inputs>,
    /// Killed at that time; none: it may live.
    until: Option<Instant>,
}

impl Masters {
    /// Starts one, and tells it what it is for.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub(super) fn start(&mut self, spec: &Rc<Spec>, logs: &Logs) -> Result<MasterId, String> {
        let text = |error: io::Error| error.to_string();
        let (channel, theirs) = message::pair().map_err(text)?;
        let (outputs, [stdout, stderr]) = Outputs::pipes(spec.identity.as_ref()).map_err(text)?;
        let (slow, slow_end) = SlowSocket::pair().map_err(text)?;
        let spawn = Spawn {
            program: spec.program.clone(),
            name: Some(match error_log::format() {
                Format::Weir => format!("weir-php: pool {}", spec.pool).into(),
                // What people who watch PHP-FPM's processes look for.
                Format::Fpm => format!("php-fpm: pool {}", spec.pool).into(),
            }),
            arguments: Vec::new(),
            environment: spec.environment.clone(),
            identity: spec.identity.clone(),
            chroot: None,
            may_chroot: spec.chroot.is_some(),
            // Neither php.ini nor anything else is looked for where weir happened to be started.
            folder: Some("/".into()),
            open_files: Some(spec.open_files),
            core_size: spec.core_size,
            priority: spec.priority,
            huge_pages: true,
            stdin: theirs,
            stdout,
            stderr,
        };
        let pid = spawn.start().map_err(|error| error.to_string())?;
        self.last += 1;
        let id = MasterId(self.last);
        let mut master = Master {
            id,
            pid,
            spec: spec.clone(),
            channel: Some(channel),
            queue: VecDeque::new(),
            outputs: outputs.in_plain_lines(),
            slow: Some(slow),
            logs: logs.clone(),
            version: (String::new(), false),
            inputs: None,
            until: None,
        };
        let own = machine::php::own_program().into_os_string().into_vec();
        // First of all, so that whatever follows is read only by who understands it.
        let mut config = vec![
            ("protocol", machine::php::PROTOCOL.to_string().into_bytes()),
            ("weir", own),
        ];
        config.extend(spec.config.iter().cloned());
        master.send(&Order::Config(&config), vec![slow_end]);
        self.list.push(master);
        Ok(id)
    }

    /// What it was started with; none: it is gone, or ends.
    pub(super) fn spec(&self, id: MasterId) -> Option<&Rc<Spec>> {
        let master = self.list.iter().find(|master| master.id == id)?;
        master.channel.is_some().then_some(&master.spec)
    }

    /// Which PHP it has loaded, and whether answers name that.
    pub(super) fn version(&self, id: MasterId) -> Option<&(String, bool)> {
        let master = self.list.iter().find(|master| master.id == id)?;
        Some(&master.version)
    }

    /// It is there, and does what a new one of these would.
    pub(super) fn does(&self, id: MasterId, spec: &Spec) -> bool {
        let master = self.list.iter().find(|master| master.id == id);
        master.is_some_and(|master| {
            let inputs = master.inputs.as_ref();
            master.channel.is_some()
                && *master.spec == *spec
                && inputs.is_some_and(Inputs::are_the_same)
        })
    }

    /// Has it make a process. What becomes of that comes as [`News`].
    pub(super) fn fork(
        &mut self,
        id: MasterId,
        number: u32,
        task: Task<'_>,
        attached: Vec<OwnedFd>,
    ) {
        self.send(id, &Order::Fork(number, task), attached);
    }

    /// Ends a process that it made by SIGTERM.
    pub(super) fn terminate(&mut self, id: MasterId, number: u32) {
        self.send(id, &Order::Signal(number, wire::TERMINATE), Vec::new());
    }

    /// Kills a process that it made.
    pub(super) fn kill(&mut self, id: MasterId, number: u32) {
        self.send(id, &Order::Signal(number, SIGKILL), Vec::new());
    }

    /// Has a worker tell the slow log what it runs.
    pub(super) fn trace(&mut self, id: MasterId, number: u32) {
        if let Some(slow) = self.get(id).and_then(|master| master.slow.as_mut()) {
            slow.expect();
        }
        self.send(id, &Order::Trace(number), Vec::new());
    }

    /// Takes what a master has told.
    pub(super) fn read(&mut self, id: MasterId, now: Instant, news: &mut Vec<News>) {
        if let Some(master) = self.get(id) {
            master.read(MESSAGES_AT_ONCE, now, news);
        }
    }

    /// A process has ended; none: it was no master. What it told before comes first.
    /// The process of a master; none: it has ended.
    pub(super) fn pid(&self, id: MasterId) -> Option<u32> {
        let master = self.list.iter().find(|master| master.id == id)?;
        Some(master.pid)
    }

    pub(super) fn exited(&mut self, pid: u32, exit: Exit, now: Instant) -> Option<Vec<News>> {
        let index = self.list.iter().position(|master| master.pid == pid)?;
        let mut master = self.list.remove(index);
        let mut news = Vec::new();
        master.read(LAST_MESSAGES, now, &mut news);
        if let Some(slow) = &mut master.slow {
            slow.read(&master.logs.slow);
        }
        let words = master.outputs.finish(pid, &master.logs.output);
        news.push(News {
            master: master.id,
            what: What::Gone { exit, words },
        });
        Some(news)
    }

    /// It does not do what it is told: it is killed, and all its workers with it.
    pub(super) fn give_up(&mut self, id: MasterId, now: Instant) {
        if let Some(master) = self.get(id) {
            master.end(now);
            master.kill();
        }
    }

    /// Ends all but those in `used`, with all their workers.
    pub(super) fn keep_only(&mut self, used: &[MasterId], now: Instant) {
        for master in &mut self.list {
            if !used.contains(&master.id) {
                master.end(now);
            }
        }
    }

    /// Sends what there was no room for, and kills what does not end.
    pub(super) fn tick(&mut self, now: Instant) {
        for master in &mut self.list {
            master.flush(now);
            if let Some(until) = &mut master.until
                && *until <= now
            {
                *until = now + LAST_WORDS;
                master.kill();
            }
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let next = |master: &Master| match master.queue.is_empty() {
            true => master.until,
            false => Some(now + RESEND),
        };
        self.list.iter().filter_map(next).min()
    }

    /// Channels to wait for.
    pub(super) fn channels(&self) -> impl Iterator<Item = (MasterId, BorrowedFd<'_>)> {
        let channels = self.list.iter();
        channels.filter_map(|master| Some((master.id, master.channel.as_ref()?.as_fd())))
    }

    /// From here on its processes' words are written there.
    pub(super) fn write_to(&mut self, id: MasterId, logs: &Logs) {
        if let Some(master) = self.get(id) {
            master.logs = logs.clone();
        }
    }

    /// Slow logs' sockets to wait for.
    pub(super) fn slow_sockets(&self) -> impl Iterator<Item = (MasterId, BorrowedFd<'_>)> {
        let sockets = self.list.iter();
        sockets.filter_map(|master| Some((master.id, master.slow.as_ref()?.as_fd())))
    }

    /// Writes the entries that have come to the slow log.
    pub(super) fn read_slow(&mut self, id: MasterId) {
        if let Some(master) = self.get(id)
            && let Some(slow) = &mut master.slow
            && !slow.read(&master.logs.slow)
        {
            master.slow = None;
        }
    }

    /// Outputs to wait for.
    pub(super) fn outputs(&self) -> impl Iterator<Item = ((MasterId, Stream), BorrowedFd<'_>)> {
        self.list.iter().flat_map(|master| {
            let outputs = master.outputs.descriptors();
            outputs.map(|(stream, fd)| ((master.id, stream), fd))
        })
    }

    /// Reads what was written to an output.
    pub(super) fn read_output(&mut self, (id, stream): (MasterId, Stream)) {
        if let Some(master) = self.get(id) {
            master.outputs.read(stream, master.pid, &master.logs.output);
        }
    }

    /// No process is left.
    pub(super) fn are_gone(&self) -> bool {
        self.list.is_empty()
    }

    fn get(&mut self, id: MasterId) -> Option<&mut Master> {
        self.list.iter_mut().find(|master| master.id == id)
    }

    fn send(&mut self, id: MasterId, order: &Order<'_>, attached: Vec<OwnedFd>) {
        if let Some(master) = self.get(id) {
            master.send(order, attached);
            master.wake();
        }
    }
}

impl Master {
    /// Queues an order; of a master that ends it is dropped, with what is attached.
    fn send(&mut self, order: &Order<'_>, attached: Vec<OwnedFd>) {
        if self.channel.is_some() {
            self.queue.push_back((order.encode(), attached));
            self.flush(Instant::now());
        }
    }

    fn flush(&mut self, now: Instant) {
        let Some(channel) = &self.channel else {
            return;
        };
        while let Some((packet, attached)) = self.queue.front() {
            let attached: Vec<BorrowedFd<'_>> = attached.iter().map(AsFd::as_fd).collect();
            match message::send(channel.as_fd(), packet, &attached, false) {
                Ok(()) => drop(self.queue.pop_front()),
                Err(error) if is_full(&error) => break,
                // Its end will be told. Where it is not, it has closed its end and is no master any more.
                Err(_) => return self.end(now),
            }
        }
        if self.queue.len() > MAX_QUEUE {
            tell!(
                error,
                self.about(),
                "the pool's master takes no orders: killed"
            );
            self.end(now);
            self.kill();
        }
    }

    fn read(&mut self, limit: usize, now: Instant, news: &mut Vec<News>) {
        let mut buffer = vec![0; MAX_PACKET];
        for _ in 0..limit {
            let Some(channel) = &self.channel else {
                return;
            };
            // Descriptors that it might send are closed here, unseen.
            let received = message::receive(channel.as_fd(), &mut buffer, false);
            let report = match received {
                Ok((0, _)) => return self.end(now),
                Ok((n, _)) => Report::decode(&buffer[..n]).ok(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
                Err(_) => return self.end(now),
            };
            match report {
                // It would say so itself if it knew that it has to.
                Some(Report::Ready { protocol, .. })
                    if protocol != Some(machine::php::PROTOCOL) =>
                {
                    let (cause, mend) = machine::php::other_build(&self.spec.program, protocol);
                    news.push(News {
                        master: self.id,
                        what: What::Told(Report::Failed(format!("{cause}; {mend}"))),
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
                        let program = &self.spec.program;
                        self.inputs = Some(Inputs::of(program, self.pid, inputs, libraries));
                    }
                    news.push(News {
                        master: self.id,
                        what: What::Told(report),
                    });
                }
                None => {
                    tell!(
                        error,
                        self.about(),
                        "the pool's master talks nonsense: killed"
                    );
                    self.end(now);
                    return self.kill();
                }
            }
        }
    }

    /// Tells it to end with all its workers; it is killed if it does not.
    fn end(&mut self, now: Instant) {
        if self.channel.take().is_some() {
            self.queue.clear();
            self.until = Some(now + LAST_WORDS);
        }
    }

    /// A script may have stopped it, which runs as the same user: then nothing would be forked or killed any more.
    fn wake(&self) {
        if let Err(error) = process::wake(self.pid) {
            tell!(
                error,
                self.about(),
                "cannot wake the pool's master: {error}"
            );
        }
    }

    fn kill(&self) {
        if let Err(error) = process::kill(self.pid) {
            tell!(
                error,
                self.about(),
                "cannot kill the pool's master: {error}"
            );
        }
    }

    fn about(&self) -> About<'_> {
        About {
            pool: Some(&self.spec.pool),
            worker: Some(Worker::Pid(self.pid)),
            ..About::default()
        }
    }
}

/// SIGKILL of Linux.
const SIGKILL: u8 = 9;

/// What a master gets to end by itself.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How soon an order is tried again that the channel had no room for.
const RESEND: Duration = Duration::from_millis(5);

/// Orders that a master may leave waiting; beyond, it is taken for stuck.
const MAX_QUEUE: usize = 16_384;

/// Messages of one master that are taken before others get their turn.
const MESSAGES_AT_ONCE: usize = 256;

/// Messages that are taken of a master that has ended: more than its channel holds.
const LAST_MESSAGES: usize = 10_000;

/// Longest message, bytes.
const MAX_PACKET: usize = 64 * 1024;
