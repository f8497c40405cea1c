//! The PHP masters: processes that load PHP once and fork workers on request. There is one per pool, or two while a
//! pool is restarted. A master that a reload does not change serves both configurations.
//!
//! ```text
//! start ── CONFIG ──► booting ── READY ──► ready ── nobody uses it any more ──► ending ──► gone
//!                        └── FAILED, or it dies ──────────────────────────────────┘
//! ```
//!
//! A master runs as its pool's user from the beginning. It gets orders over a `SOCK_SEQPACKET` pair on its descriptor 0
//! ([`wire`]). When that pair is closed or the manager dies, the master and all its workers end. Its reports are not
//! trusted: each number in them is looked up by the code that requested it ([`super::workers`]), and a report can only
//! make the manager record an end.

mod inputs;
mod wire;

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

use weir_control::SlowPlace;
use weir_machine::php::Program;
use weir_observe::{
    error_log::{self, About, Format, tell},
    events::Stream,
    log_text::Worker,
};
use weir_sys::{
    identity::{Capability, Identity},
    limits::OpenFiles,
    memory, message,
    process::{self, Exit, Spawn},
    version,
};

use super::{
    environment::{self, Variables},
    gateway::is_full,
    handover::HandedLists,
    oom::OomKills,
    output::{OutputLog, Outputs},
    slow_log::{SlowLog, SlowSocket},
};

use inputs::Inputs;
use wire::Order;
pub(super) use wire::{Report, Task};

/// What a master is started with. If two are equal, their masters do the same, so a reload keeps the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    /// The pool's name.
    pub(super) pool: String,
    /// The PHP program with weir-php's object, or weir-php itself.
    pub(super) program: Program,
    /// The environment with which PHP is started; `config` has the environment of scripts. Only a part of it is there when the
    /// program is executed ([`environment::is_open`]): it gets the rest when nobody can look into it any more.
    pub(super) environment: Rc<[(OsString, OsString)]>,
    /// Its user; `None`: ours.
    pub(super) identity: Option<Identity>,
    /// The folder of its chroot, which it enters when PHP is loaded.
    pub(super) chroot: Option<PathBuf>,
    /// Limit of open files.
    pub(super) open_files: OpenFiles,
    /// Largest core file, bytes.
    pub(super) core_size: Option<u64>,
    pub(super) processes: Option<u64>,
    /// Nice value.
    pub(super) priority: Option<i32>,
    /// The content of CONFIG.
    pub(super) config: Vec<(&'static str, Vec<u8>)>,
    /// The roots of the sites whose scripts it runs, with the site's name, as configured.
    pub(super) sites: Vec<(String, PathBuf)>,
    /// The same roots with symbolic links resolved.
    pub(super) roots: Vec<(String, PathBuf)>,
    /// Whether the pool is restarted when these change.
    pub(super) watch: bool,
    /// How long a worker may take to boot its application. `None`: it has nothing to boot.
    pub(super) boot_limit: Option<Duration>,
    /// Whether workers with an application to boot are forked from one process that has booted it.
    pub(super) zygote: bool,
}

impl Spec {
    /// The script of an application that stays booted, as its processes see it.
    pub(super) fn booted_script(&self) -> Option<String> {
        let (_, path) = self.config.iter().find(|(key, _)| *key == "worker")?;
        Some(String::from_utf8_lossy(path).into_owned())
    }
}

/// The logs for the output of a pool's processes and for its slow scripts.
#[derive(Debug, Clone)]
pub(super) struct Logs {
    pub(super) output: Rc<OutputLog>,
    pub(super) slow: Rc<SlowLog>,
}

/// Identifies a master; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MasterId(u32);

/// A report about a master.
#[derive(Debug)]
pub(super) struct MasterEvent {
    /// The master.
    pub(super) master: MasterId,
    /// What happened.
    pub(super) kind: MasterEventKind,
}

/// What happened to a master.
#[derive(Debug)]
pub(super) enum MasterEventKind {
    /// It sent a report.
    Report(Report),
    /// It has ended, and with it all its workers.
    Exited {
        /// How it ended.
        exit: Exit,
        /// Its last output.
        words: String,
    },
}

/// All masters of this weir.
#[derive(Debug, Default)]
pub(super) struct Masters {
    list: Vec<Master>,
    last: u32,
    /// The kernel's kills, for all generations.
    pub(super) oom: Rc<OomKills>,
    /// Lists of scripts from the weir before this one.
    pub(super) handed: HandedLists,
    /// See [`Self::take_places`].
    places: Vec<SlowPlace>,
}

#[derive(Debug)]
struct Master {
    id: MasterId,
    pid: u32,
    spec: Rc<Spec>,
    /// `None`: it is ending.
    channel: Option<OwnedFd>,
    queue: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    outputs: Outputs,
    slow: Option<SlowSocket>,
    logs: Logs,
    /// Its PHP version, and whether answers may name it; empty until it is ready.
    version: (String, bool),
    /// `None`: it is not ready.
    inputs: Option<Inputs>,
    /// Until then it takes one of the places of `php_starts` while it loads PHP.
    turn: Instant,
    /// When it is killed; `None`: not planned.
    until: Option<Instant>,
}

impl Masters {
    /// Starts a master and sends its configuration.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub(super) fn start(&mut self, spec: &Rc<Spec>, logs: &Logs) -> Result<MasterId, String> {
        let text = |error: io::Error| error.to_string();
        let (channel, theirs) = message::pair().map_err(text)?;
        let (outputs, [stdout, stderr]) = Outputs::pipes(spec.identity.as_ref()).map_err(text)?;
        let (slow, slow_end) = SlowSocket::pair().map_err(text)?;
        let (open, hidden): (Variables, Variables) =
            (spec.environment.iter().cloned()).partition(|(name, _)| environment::is_open(name));
        let hidden = memory::file(c"environment", &lines(&hidden)).map_err(text)?;
        let spawn = Spawn {
            program: spec.program.path.clone(),
            name: Some(match error_log::format() {
                Format::Weir => format!("weir-php: pool {}", spec.pool).into(),
                // The name that users of PHP-FPM look for in process lists.
                Format::Fpm => format!("php-fpm: pool {}", spec.pool).into(),
            }),
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
            turn: Instant::now() + TURN,
            until: None,
        };
        let own = weir_machine::php::own_program().into_os_string().into_vec();
        // The version comes first, so that a weir-php with another protocol reads nothing else.
        let mut config = vec![
            (
                "protocol",
                weir_machine::php::PROTOCOL.to_string().into_bytes(),
            ),
            ("weir_version", version::version().into()),
            ("weir", own),
        ];
        config.extend(spec.config.iter().cloned());
        master.send(&Order::Config(&config), vec![slow_end, hidden]);
        self.list.push(master);
        Ok(id)
    }

    /// What it was started with; `None`: it is gone or ending.
    pub(super) fn spec(&self, id: MasterId) -> Option<&Rc<Spec>> {
        let master = self.list.iter().find(|master| master.id == id)?;
        master.channel.is_some().then_some(&master.spec)
    }

    /// Its PHP version, and whether answers may name it.
    pub(super) fn version(&self, id: MasterId) -> Option<&(String, bool)> {
        let master = self.list.iter().find(|master| master.id == id)?;
        Some(&master.version)
    }

    /// Whether it runs, and a new one with `spec` would do the same.
    pub(super) fn does(&self, id: MasterId, spec: &Spec) -> bool {
        let master = self.list.iter().find(|master| master.id == id);
        master.is_some_and(|master| {
            let inputs = master.inputs.as_ref();
            master.channel.is_some()
                && *master.spec == *spec
                && inputs.is_some_and(Inputs::are_the_same)
        })
    }

    /// Orders it to fork a process. The result arrives as [`News`].
    pub(super) fn fork(
        &mut self,
        id: MasterId,
        number: u32,
        task: Task<'_>,
        attached: Vec<OwnedFd>,
    ) {
        self.send(id, &Order::Fork(number, task), attached);
    }

    /// Ends one of its processes by SIGTERM.
    pub(super) fn terminate(&mut self, id: MasterId, number: u32) {
        self.send(id, &Order::Signal(number, wire::TERMINATE), Vec::new());
    }

    /// Kills one of its processes.
    pub(super) fn kill(&mut self, id: MasterId, number: u32) {
        self.send(id, &Order::Signal(number, SIGKILL), Vec::new());
    }

    /// Orders a worker to write its position to the slow log.
    pub(super) fn trace(&mut self, id: MasterId, number: u32) {
        if let Some(slow) = self.get(id).and_then(|master| master.slow.as_mut()) {
            slow.expect();
        }
        self.send(id, &Order::Trace(number), Vec::new());
    }

    /// Reads the reports of a master.
    pub(super) fn read(&mut self, id: MasterId, now: Instant, news: &mut Vec<MasterEvent>) {
        if let Some(master) = self.get(id) {
            master.read(MESSAGES_AT_ONCE, now, news);
        }
    }

    /// The process of a master; `None`: it has ended.
    pub(super) fn pid(&self, id: MasterId) -> Option<u32> {
        let master = self.list.iter().find(|master| master.id == id)?;
        Some(master.pid)
    }

    /// A process has ended. `None`: it was not a master. Its earlier reports come first.
    pub(super) fn exited(
        &mut self,
        pid: u32,
        exit: Exit,
        now: Instant,
    ) -> Option<Vec<MasterEvent>> {
        let index = self.list.iter().position(|master| master.pid == pid)?;
        let mut master = self.list.remove(index);
        let mut news = Vec::new();
        master.read(LAST_MESSAGES, now, &mut news);
        if let Some(slow) = &mut master.slow {
            slow.read(&master.logs.slow, &mut self.places);
        }
        let words = master.outputs.finish(pid, &master.logs.output).joined();
        news.push(MasterEvent {
            master: master.id,
            kind: MasterEventKind::Exited { exit, words },
        });
        Some(news)
    }

    /// It does not do what it was ordered: kills it with all its workers.
    pub(super) fn give_up(&mut self, id: MasterId, now: Instant) {
        if let Some(master) = self.get(id) {
            master.end(now);
            master.kill();
        }
    }

    /// How many of them load PHP now, and still have their turn.
    pub(super) fn are_loading(&self, now: Instant) -> usize {
        self.turns(now).count()
    }

    /// When the turns of those that load PHP end.
    fn turns(&self, now: Instant) -> impl Iterator<Item = Instant> {
        let loads = |master: &&Master| master.channel.is_some() && master.inputs.is_none();
        let ends = self.list.iter().filter(loads).map(|master| master.turn);
        ends.filter(move |turn| *turn > now)
    }

    /// Ends all masters except those in `used`, with all their workers.
    pub(super) fn keep_only(&mut self, used: &[MasterId], now: Instant) {
        for master in &mut self.list {
            if !used.contains(&master.id) {
                master.end(now);
            }
        }
    }

    /// Sends waiting orders, and kills masters that do not end.
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
        let next = self.list.iter().filter_map(next);
        next.chain(self.turns(now)).min()
    }

    /// The channels to wait for.
    pub(super) fn channels(&self) -> impl Iterator<Item = (MasterId, BorrowedFd<'_>)> {
        let channels = self.list.iter();
        channels.filter_map(|master| Some((master.id, master.channel.as_ref()?.as_fd())))
    }

    /// Writes the output of its processes to these logs from now on.
    pub(super) fn write_to(&mut self, id: MasterId, logs: &Logs) {
        if let Some(master) = self.get(id) {
            master.logs = logs.clone();
        }
    }

    /// The slow logs' sockets to wait for.
    pub(super) fn slow_sockets(&self) -> impl Iterator<Item = (MasterId, BorrowedFd<'_>)> {
        let sockets = self.list.iter();
        sockets.filter_map(|master| Some((master.id, master.slow.as_ref()?.as_fd())))
    }

    /// Writes new entries to the slow log.
    pub(super) fn read_slow(&mut self, id: MasterId) {
        let mut places = std::mem::take(&mut self.places);
        if let Some(master) = self.get(id)
            && let Some(slow) = &mut master.slow
            && !slow.read(&master.logs.slow, &mut places)
        {
            master.slow = None;
        }
        self.places = places;
    }

    /// Where slow scripts are, of the entries since the last call.
    pub(super) fn take_places(&mut self) -> Vec<SlowPlace> {
        std::mem::take(&mut self.places)
    }

    /// The outputs to wait for.
    pub(super) fn outputs(&self) -> impl Iterator<Item = ((MasterId, Stream), BorrowedFd<'_>)> {
        self.list.iter().flat_map(|master| {
            let outputs = master.outputs.descriptors();
            outputs.map(|(stream, fd)| ((master.id, stream), fd))
        })
    }

    /// Reads new output.
    pub(super) fn read_output(&mut self, (id, stream): (MasterId, Stream)) {
        if let Some(master) = self.get(id) {
            master.outputs.read(stream, master.pid, &master.logs.output);
        }
    }

    /// Whether no process is left.
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
    /// Queues an order; if the master is ending, it is dropped with its descriptors.
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
                // Its end will be reported. If not, it has closed the channel and cannot be used any more.
                Err(_) => return self.end(now),
            }
        }
        if self.queue.len() > MAX_QUEUE {
            tell!(
                error,
                self.about(),
                "the pool's PHP master does not read commands: killed"
            );
            self.end(now);
            self.kill();
        }
    }

    fn read(&mut self, limit: usize, now: Instant, news: &mut Vec<MasterEvent>) {
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
                // An older weir-php does not check the version itself.
                Some(Report::Ready {
                    protocol,
                    ref build,
                    ..
                }) if protocol != Some(weir_machine::php::PROTOCOL)
                    || build.as_deref() != Some(version::version()) =>
                {
                    let program = self.spec.program.file();
                    let (cause, mend) =
                        weir_machine::php::other_build(program, protocol, build.as_deref());
                    news.push(MasterEvent {
                        master: self.id,
                        kind: MasterEventKind::Report(Report::Failed(format!("{cause}; {mend}"))),
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
                        self.inputs = Some(Inputs::of(program, self.pid, inputs, libraries));
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
    fn end(&mut self, now: Instant) {
        if self.channel.take().is_some() {
            self.queue.clear();
            self.until = Some(now + LAST_WORDS);
        }
    }

    /// A script, which runs as the same user, may have stopped the master: then it would fork and kill nothing any
    /// more.
    fn wake(&self) {
        if let Err(error) = process::wake(self.pid) {
            tell!(
                error,
                self.about(),
                "cannot send a signal to the pool's PHP master: {error}"
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

/// Variables as the kernel has them: each with a zero behind it.
fn lines(variables: &[(OsString, OsString)]) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in variables {
        lines.extend([name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat());
    }
    lines
}

/// SIGKILL of Linux.
const SIGKILL: u8 = 9;

/// How long a master may take to end by itself.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long a master counts for `php_starts` while it loads PHP. That takes some 40 ms of a processor. One that takes longer
/// waits for something, or a process of its user has stopped it, and must not keep other pools from their start.
const TURN: Duration = Duration::from_secs(2);

/// Pause before an order is sent again for which the channel had no room.
const RESEND: Duration = Duration::from_millis(5);

/// Maximum number of waiting orders; with more, the master counts as stuck.
const MAX_QUEUE: usize = 16_384;

/// How many messages of one master are handled before others get their turn.
const MESSAGES_AT_ONCE: usize = 256;

/// How many messages of an ended master are read: more than its channel holds.
const LAST_MESSAGES: usize = 10_000;

/// Maximum size of a message, bytes.
const MAX_PACKET: usize = 64 * 1024;
