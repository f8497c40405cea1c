//! The PHP masters: processes that load PHP once and fork workers on request. There is one per pool, or two while a
//! pool is restarted. A master that a reload does not change serves both configurations.
//!
//! ```text
//! start ── CONFIG ──► booting ── READY ──► ready ── nobody uses it any more ──► ending ──► gone
//!                        └── FAILED, or it dies ──────────────────────────────────┘
//! ```
//!
//! A master is forked from a process that has loaded PHP for several pools ([`template`]), or loads PHP itself. It runs as its pool's
//! user before anything of the pool happens in it. It gets orders over a `SOCK_SEQPACKET` pair on its descriptor 0
//! ([`wire`]). When that pair is closed or the manager dies, the master and all its workers end. Its reports are not
//! trusted: each number in them is looked up by the code that requested it ([`crate::workers`]), and a report can only
//! make the manager record an end.

mod inputs;
mod master;
mod template;
mod variables;
mod wire;

use std::{
    collections::HashSet,
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

use weir_control::SlowPlace;
use weir_machine::php::Program;
use weir_observe::events::Stream;
use weir_sys::{identity::Identity, limits::OpenFiles, process::Exit, version};

use crate::{
    children::{oom::OomKills, watch::Watch},
    output::{OutputLog, slow_log::SlowLog},
    upgrade::InheritedLists,
};

use inputs::{Inputs, Look};
use master::{LAST_WORDS, Master, Theirs};
use template::Templates;
pub(super) use template::{Load, Part, TemplateId};
pub(super) use variables::Fields;
use wire::Order;
pub(super) use wire::{Report, Task};

/// Who loads PHP for a pool.
#[derive(Debug, Clone)]
pub(super) enum Loading {
    /// A template, together with other pools.
    Shared(Rc<Load>),
    /// The pool's master; with the reason.
    Own(&'static str),
}

/// A master works in the same way whether a template or the master itself has loaded PHP. So this is no reason to
/// replace a master.
impl PartialEq for Loading {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Loading {}

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
    pub(super) config: Fields,
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
    /// Whether the configuration wants PHP to be loaded for this pool alone.
    pub(super) own_load: bool,
    /// Who loads PHP.
    pub(super) loading: Loading,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MasterId(pub(super) u32);

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
    /// The master sent a report.
    Report(Report),
    /// The master has ended, and with it all its workers.
    Exited {
        /// How it ended.
        exit: Exit,
        /// Its last output.
        words: String,
    },
}

/// All masters of this weir.
#[derive(Debug)]
pub(super) struct Masters {
    /// Which descriptors of masters, and of all workers, can be read.
    pub(super) watch: Watch,
    list: Vec<Master>,
    last: u32,
    templates: Templates,
    look: u32,
    /// The kernel's kills, for all generations.
    pub(super) oom: Rc<OomKills>,
    /// Lists of scripts from the weir before this one.
    pub(super) inherited: InheritedLists,
    /// See [`Self::take_places`].
    places: Vec<SlowPlace>,
}

impl Masters {
    /// None yet.
    ///
    /// # Errors
    /// As [`Watch::new`].
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            watch: Watch::new()?,
            list: Vec::new(),
            last: 0,
            templates: Templates::default(),
            look: 0,
            oom: Rc::default(),
            inherited: InheritedLists::default(),
            places: Vec::new(),
        })
    }

    /// Starts a master, or orders it from a template, and sends its configuration.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub(super) fn start(&mut self, spec: &Rc<Spec>, logs: &Logs) -> Result<MasterId, String> {
        let now = Instant::now();
        let from = match &spec.loading {
            Loading::Shared(load) => self.templates.serve(load, now, &self.watch),
            Loading::Own(_) => None,
        };
        let id = MasterId(self.last + 1);
        let made = Master::new(id, spec, logs, &self.watch);
        let (mut master, theirs) = made.map_err(|error| error.to_string())?;
        match from {
            Some(template) => self.order(template, &mut master, theirs, now),
            None => master.load(theirs)?,
        }
        self.last += 1;
        self.list.push(master);
        Ok(id)
    }

    /// Orders a master from a template.
    fn order(&mut self, template: TemplateId, master: &mut Master, theirs: Theirs, now: Instant) {
        let begins = self.templates.loads_until(template).unwrap_or(now);
        master.from = Some((template, begins + BIRTH_LIMIT));
        let mut more = master.limits();
        more.push(("title", master.title().into_bytes()));
        let config = master.config(more);
        master.unsent.push((config, vec![theirs.slow]));
        let attached = vec![theirs.channel, theirs.stdout, theirs.stderr];
        let who = master.spec.identity.as_ref();
        self.templates.order(template, master.id.0, who, attached);
    }

    /// The settings with which the master was started; `None`: it has ended or is ending.
    pub(super) fn spec(&self, id: MasterId) -> Option<&Rc<Spec>> {
        let master = self.list.iter().find(|master| master.id == id)?;
        master.channel.is_some().then_some(&master.spec)
    }

    /// Its PHP version, and whether answers may name it.
    pub(super) fn version(&self, id: MasterId) -> Option<&(String, bool)> {
        let master = self.list.iter().find(|master| master.id == id)?;
        Some(&master.version)
    }

    /// A reload looks which masters [do](Self::does) what they did.
    pub(super) fn begin_look(&mut self, now: Instant) {
        self.look = self.look.wrapping_add(1);
        self.templates.renew(now);
    }

    /// Whether it runs, and a new one with `spec` would do the same.
    pub(super) fn does(&self, id: MasterId, spec: &Spec) -> bool {
        let look = Look(self.look);
        let master = self.list.iter().find(|master| master.id == id);
        master.is_some_and(|master| {
            let inputs = master.inputs.as_ref();
            master.channel.is_some()
                && *master.spec == *spec
                && inputs.is_some_and(|inputs| inputs.are_the_same_at(look))
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
        self.send(id, &Order::Signal(number, SIGTERM), Vec::new());
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
        let Some(index) = self.list.iter().position(|master| master.id == id) else {
            return;
        };
        let master = &mut self.list[index];
        if master.pid.is_none() {
            if !master.is_born() {
                return self.load_alone(index, now, news);
            }
            if let Err(error) = master.limit() {
                let cause = format!("the limits of its process cannot be set: {error}");
                news.push(MasterEvent {
                    master: id,
                    kind: MasterEventKind::Report(Report::Failed(cause)),
                });
                return master.end(now);
            }
            master.flush(now);
        }
        let template = master.from.map(|(template, _)| template);
        let inputs = template.and_then(|template| self.templates.inputs(template));
        self.list[index].read(MESSAGES_AT_ONCE, inputs, now, news);
    }

    /// A template has not forked this master: it loads PHP itself.
    fn load_alone(&mut self, index: usize, now: Instant, news: &mut Vec<MasterEvent>) {
        let master = &mut self.list[index];
        let Master { id, spec, logs, .. } = master;
        let id = *id;
        let again = Master::new(id, &spec.clone(), &logs.clone(), &self.watch);
        let again = again.map_err(|error| error.to_string());
        let started = again.and_then(|(again, theirs)| {
            *master = again;
            master.load(theirs)
        });
        if let Err(cause) = started {
            master.end(now);
            news.push(MasterEvent {
                master: id,
                kind: MasterEventKind::Report(Report::Failed(cause)),
            });
        }
    }

    /// The process of a master; `None`: it has ended, or is not there yet.
    pub(super) fn pid(&self, id: MasterId) -> Option<u32> {
        self.list.iter().find(|master| master.id == id)?.pid
    }

    /// The process that loads PHP for this pool and others, 0: none; and why this pool loads it for itself. `master`: the pool's, if
    /// there is one.
    pub(super) fn loader(&self, spec: &Spec, master: Option<MasterId>) -> (u32, String) {
        let load = match &spec.loading {
            Loading::Shared(load) => load,
            Loading::Own(why) => return (0, (*why).to_owned()),
        };
        let is_alone = |one: &Master| Some(one.id) == master && one.from.is_none();
        match self.templates.refusal(load) {
            Some(why) => (0, why.to_owned()),
            None if self.list.iter().any(is_alone) => (0, ENDED_BEFORE.to_owned()),
            None => (self.templates.pid(load).unwrap_or(0), String::new()),
        }
    }

    /// A process has ended. `None`: it was not a master. Its earlier reports come first.
    pub(super) fn exited(
        &mut self,
        pid: u32,
        exit: Exit,
        now: Instant,
    ) -> Option<Vec<MasterEvent>> {
        if self.templates.exited(pid, exit, now) {
            return Some(Vec::new());
        }
        let index = (self.list.iter()).position(|master| master.pid == Some(pid))?;
        let mut master = self.list.remove(index);
        let mut news = Vec::new();
        master.read(LAST_MESSAGES, None, now, &mut news);
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

    /// Kills a master that does not obey its orders, with all its workers.
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

    /// Ends all masters except those in `used`, with all their workers, and templates that nobody `needs`.
    pub(super) fn keep_only(
        &mut self,
        used: &HashSet<MasterId>,
        needs: impl Fn(&Load) -> bool,
        now: Instant,
    ) {
        for master in &mut self.list {
            if !used.contains(&master.id) {
                master.end(now);
            }
        }
        // If a template still starts one of these masters, it ends at once.
        self.list.retain(|master| !master.is_given_up());
        self.templates.keep_only(needs, now);
    }

    /// Sends waiting orders, kills masters that do not end, and gives templates up that do not fork.
    pub(super) fn tick(&mut self, now: Instant, news: &mut Vec<MasterEvent>) {
        let is_late = |master: &Master| master.birth().is_some_and(|until| until <= now);
        while let Some(index) = self.list.iter().position(is_late) {
            if let Some((template, _)) = self.list[index].from {
                self.templates.give_up(template, now);
            }
            self.load_alone(index, now, news);
        }
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
        let next = |master: &Master| {
            let resend = || master.unsent.next_flush(now);
            master.birth().or_else(resend).or(master.until)
        };
        let next = self.list.iter().filter_map(next);
        let templates = self.templates.deadline(now);
        next.chain(self.turns(now)).chain(templates).min()
    }

    /// Reads something of a template.
    pub(super) fn read_template(&mut self, id: TemplateId, part: Part, now: Instant) {
        self.templates.read(id, part, now);
    }

    /// Writes the output of its processes to these logs from now on.
    pub(super) fn write_to(&mut self, id: MasterId, logs: &Logs) {
        if let Some(master) = self.get(id) {
            master.logs = logs.clone();
        }
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

    /// Reads new output.
    pub(super) fn read_output(&mut self, id: MasterId, stream: Stream) {
        if let Some(master) = self.get(id) {
            let pid = master.pid.unwrap_or_default();
            master.outputs.read(stream, pid, &master.logs.output);
        }
    }

    /// Whether no process is left.
    pub(super) fn are_gone(&self) -> bool {
        self.list.is_empty() && self.templates.are_gone()
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

/// Whether READY comes from a weir-php of our build. An older one does not check the version itself.
///
/// # Errors
/// Cause and fix.
fn of_this_build(program: &Program, ready: &Report) -> Result<(), String> {
    let Report::Ready {
        protocol, build, ..
    } = ready
    else {
        return Ok(());
    };
    if *protocol == Some(weir_machine::php::PROTOCOL)
        && build.as_deref() == Some(version::version())
    {
        return Ok(());
    }
    let (cause, mend) =
        weir_machine::php::other_build(&program.object, *protocol, build.as_deref());
    Err(format!("{cause}; {mend}"))
}

/// Why a pool has loaded PHP for itself that would share a load.
const ENDED_BEFORE: &str =
    "the process that loads PHP for several pools has ended before it forked this pool's master";

/// Numbers of Linux.
const SIGKILL: u8 = 9;
const SIGTERM: u8 = 15;

/// How long a template may take to fork a master. It needs some milliseconds.
const BIRTH_LIMIT: Duration = Duration::from_secs(5);

/// How many messages of one master are handled before others get their turn.
const MESSAGES_AT_ONCE: usize = 256;

/// How many messages of an ended master are read: more than its channel holds.
const LAST_MESSAGES: usize = 10_000;

/// Maximum size of a message, bytes.
const MAX_PACKET: usize = 64 * 1024;
