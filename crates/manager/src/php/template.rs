//! Templates: each loads PHP once for several pools that load PHP in the same way, and their masters are forked from it
//! (php/template.h).
//!
//! ```text
//! Loading ── READY ──► Ready ── its files have changed, or no pool needs it any more ──► its channel is closed, and it ends
//!    └── DECLINED, FAILED, it ends, or it is late ──► Refused: each of these pools loads PHP for itself, until a reload or for a while
//! ```
//!
//! A template has the environment with which PHP is loaded, and nothing of a pool. It may become any user, so what it says is
//! checked: a master that was forked from it tells its process id over its own channel, and counts only if it is our child
//! ([`super::Masters`]).

use std::{
    ffi::OsString,
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    time::{Duration, Instant},
};

use weir_machine::php::Program;
use weir_observe::{error_log::tell, events::Stream};
use weir_sys::{
    identity::{Capability, Identity},
    memory, message,
    process::{self, Exit, Spawn},
};

use super::{
    LAST_MESSAGES, MAX_PACKET,
    inputs::Inputs,
    master::{LAST_WORDS, Packet, send_packet},
    of_this_build,
    variables::{self, Fields},
    wire::{Order, Report},
};
use crate::{
    children::{
        oom::KILLED,
        unsent::Unsent,
        watch::{Source, Watch},
    },
    output::{OutputLog, Outputs},
};

/// What pools have in common that may share a template.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// The PHP program with weir-php's object, or weir-php itself.
    pub(crate) program: Program,
    /// The environment with which PHP is loaded.
    pub(crate) environment: Rc<[(OsString, OsString)]>,
    /// What PHP reads of a pool's settings while it is loaded.
    pub(crate) config: Fields,
    /// The template's own user; `None`: ours, as for all pools.
    pub(crate) identity: Option<Identity>,
}

/// All templates.
#[derive(Debug, Default)]
pub(super) struct Templates {
    list: Vec<Template>,
    last: u32,
}

/// Identifies a template; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TemplateId(pub(crate) u32);

/// Something of a template that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its reports.
    Channel,
    /// The template's output.
    Output(Stream),
}

#[derive(Debug)]
struct Template {
    id: TemplateId,
    load: Rc<Load>,
    /// `None`: the process has ended.
    process: Option<Running>,
    state: State,
}

#[derive(Debug)]
struct Running {
    pid: u32,
    /// `None`: it is ending.
    channel: Option<OwnedFd>,
    /// Orders that the channel had no room for.
    unsent: Unsent<Packet>,
    outputs: Outputs,
    log: OutputLog,
    /// When it is killed if it has not ended.
    until: Option<Instant>,
}

#[derive(Debug)]
enum State {
    /// PHP is being loaded, until then.
    Loading(Instant),
    Ready {
        inputs: Rc<Inputs>,
        /// When its files were looked at last.
        looked: Instant,
    },
    /// Pools load for themselves, until then; `None`: until the next reload.
    Refused(String, Option<Instant>),
    /// Another one is to be started.
    Old,
}

impl Templates {
    /// The template for such pools, which may still be loading PHP; it is started if there is none. `None`: the pool has to load PHP
    /// for itself.
    pub(super) fn serve(
        &mut self,
        load: &Rc<Load>,
        now: Instant,
        watch: &Watch,
    ) -> Option<TemplateId> {
        self.look(now, LOOK);
        let is_theirs = |one: &&Template| *one.load == **load && !matches!(one.state, State::Old);
        if let Some(one) = self.list.iter().find(is_theirs) {
            return (!matches!(one.state, State::Refused(..))).then_some(one.id);
        }
        self.last += 1;
        let mut one = Template {
            id: TemplateId(self.last),
            load: load.clone(),
            process: None,
            state: State::Loading(now + LOAD_LIMIT),
        };
        match Running::start(load, one.id, watch) {
            Ok(running) => one.process = Some(running),
            Err(error) => one.refuse(format!("it cannot be started: {error}"), Some(now + PAUSE)),
        }
        let id = one.process.is_some().then_some(one.id);
        self.list.push(one);
        id
    }

    /// Orders a master with this number, for this user; `None`: its own. The master's end of its channel and its outputs are attached.
    pub(super) fn order(
        &mut self,
        id: TemplateId,
        number: u32,
        who: Option<&Identity>,
        attached: Vec<OwnedFd>,
    ) {
        let running = self.get(id).and_then(|one| one.process.as_mut());
        if let Some(running) = running.filter(|running| running.channel.is_some()) {
            let order = Order::Master(number, who).encode();
            running.unsent.push((order, attached));
            running.flush();
        }
    }

    /// The files that PHP was loaded from.
    pub(super) fn inputs(&self, id: TemplateId) -> Option<&Rc<Inputs>> {
        match &self.list.iter().find(|one| one.id == id)?.state {
            State::Ready { inputs, .. } => Some(inputs),
            State::Loading(_) | State::Refused(..) | State::Old => None,
        }
    }

    /// When PHP must be loaded; `None`: it is, or will not be.
    pub(super) fn loads_until(&self, id: TemplateId) -> Option<Instant> {
        match self.list.iter().find(|one| one.id == id)?.state {
            State::Loading(until) => Some(until),
            _ => None,
        }
    }

    /// Why such pools load PHP for themselves now; `None`: they need not.
    pub(super) fn refusal(&self, load: &Load) -> Option<&str> {
        self.list.iter().find_map(|one| match &one.state {
            State::Refused(why, _) if *one.load == *load => Some(why.as_str()),
            _ => None,
        })
    }

    /// The process of the template for such pools.
    pub(super) fn pid(&self, load: &Load) -> Option<u32> {
        let mut theirs = self.list.iter().filter(|one| *one.load == *load);
        theirs.find_map(|one| match one.state {
            State::Loading(_) | State::Ready { .. } => Some(one.process.as_ref()?.pid),
            State::Refused(..) | State::Old => None,
        })
    }

    /// A reload: those whose files have changed are not used any more, and those that were refused are tried again.
    pub(super) fn renew(&mut self, now: Instant) {
        self.look(now, Duration::ZERO);
        for one in &mut self.list {
            if matches!(one.state, State::Refused(..)) {
                one.state = State::Old;
            }
        }
    }

    /// Gives up a template that does not fork masters as ordered.
    pub(super) fn give_up(&mut self, id: TemplateId, now: Instant) {
        if let Some(one) = self.get(id) {
            one.refuse(
                "its process does not answer: killed".into(),
                Some(now + PAUSE),
            );
        }
    }

    /// Ends those that nobody `needs`.
    pub(super) fn keep_only(&mut self, needs: impl Fn(&Load) -> bool, now: Instant) {
        for one in &mut self.list {
            if !matches!(one.state, State::Old) && !needs(&one.load) {
                one.state = State::Old;
            }
        }
        self.tick(now);
    }

    fn tick(&mut self, now: Instant) {
        for one in &mut self.list {
            match one.state {
                State::Loading(until) if until <= now => {
                    let limit = LOAD_LIMIT.as_secs();
                    one.refuse(
                        format!("it is not loaded after {limit} s"),
                        Some(now + PAUSE),
                    );
                }
                State::Refused(_, Some(until)) if until <= now => one.state = State::Old,
                _ => {}
            }
            let ends = matches!(one.state, State::Refused(..) | State::Old);
            if let Some(running) = &mut one.process {
                running.flush();
                if ends {
                    running.end(now);
                }
                if running.until.is_some_and(|until| until <= now) {
                    running.until = Some(now + LAST_WORDS);
                    running.kill();
                }
            }
        }
        let is_done = |one: &Template| one.process.is_none() && matches!(one.state, State::Old);
        self.list.retain(|one| !is_done(one));
    }

    /// When [`keep_only`](Self::keep_only) has something to do.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let of_one = |one: &Template| {
            let state = match one.state {
                State::Loading(until) => Some(until),
                State::Refused(_, until) => until,
                State::Ready { .. } | State::Old => None,
            };
            let running = one.process.as_ref();
            let resend = running.and_then(|running| running.unsent.next_flush(now));
            let ends = running.and_then(|running| running.until);
            [state, ends, resend]
        };
        self.list.iter().flat_map(of_one).flatten().min()
    }

    /// Reads what there is.
    pub(super) fn read(&mut self, id: TemplateId, part: Part, now: Instant) {
        let Some(one) = self.get(id) else { return };
        match part {
            Part::Channel => one.hear(now),
            Part::Output(stream) => {
                if let Some(running) = &mut one.process {
                    running.outputs.read(stream, running.pid, &running.log);
                }
            }
        }
    }

    /// A process has ended. Returns whether it was a template.
    pub(super) fn exited(&mut self, pid: u32, exit: Exit, now: Instant) -> bool {
        let is_it = |one: &&mut Template| one.process.as_ref().is_some_and(|it| it.pid == pid);
        let Some(one) = self.list.iter_mut().find(is_it) else {
            return false;
        };
        // Its last report says why.
        one.hear(now);
        if let Some(running) = one.process.take() {
            let words = running.outputs.finish(pid, &running.log).joined();
            let said = match words.is_empty() {
                true => String::new(),
                false => format!("; its message: {words}"),
            };
            match one.state {
                // A kill says nothing about PHP. The next pool that needs the template starts it again.
                State::Loading(_) if exit == KILLED => {
                    log::warn!(
                        "the process that loads PHP for all pools was killed: {exit}{said}; the pools that wait for it load PHP for themselves, and the next one has it loaded again"
                    );
                    one.state = State::Old;
                }
                State::Loading(_) => {
                    let why = format!("it ended before PHP was loaded: {exit}{said}");
                    one.refuse(why, Some(now + PAUSE));
                }
                State::Ready { .. } => {
                    log::warn!(
                        "the process that has loaded PHP for all pools has ended: {exit}{said}; the pools run on, and the next one that needs PHP loads it again"
                    );
                    one.state = State::Old;
                }
                State::Refused(..) | State::Old => {}
            }
        }
        true
    }

    /// Whether no process is left.
    pub(super) fn are_gone(&self) -> bool {
        self.list.iter().all(|one| one.process.is_none())
    }

    /// Checks the templates that are ready and were not checked for this time. A template is replaced if one of its
    /// files has changed.
    fn look(&mut self, now: Instant, pause: Duration) {
        for one in &mut self.list {
            if let State::Ready { inputs, looked } = &mut one.state
                && now.saturating_duration_since(*looked) >= pause
            {
                *looked = now;
                if !inputs.are_the_same() {
                    one.state = State::Old;
                }
            }
        }
    }

    fn get(&mut self, id: TemplateId) -> Option<&mut Template> {
        self.list.iter_mut().find(|one| one.id == id)
    }
}

impl Template {
    fn hear(&mut self, now: Instant) {
        let mut buffer = vec![0; MAX_PACKET];
        for _ in 0..LAST_MESSAGES {
            let channel = self.process.as_ref().and_then(|it| it.channel.as_ref());
            let Some(channel) = channel else { return };
            let report = match message::receive(channel.as_fd(), &mut buffer, false) {
                Ok((n, _)) if n > 0 => Report::decode(&buffer[..n]).ok(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Its exit says more.
                Ok(_) | Err(_) => return self.close(now),
            };
            match (report, &self.state) {
                (Some(report @ Report::Ready { .. }), State::Loading(_)) => {
                    self.loaded(&report, now);
                }
                (Some(Report::Declined { why, .. }), State::Loading(_)) => self.refuse(why, None),
                (Some(Report::Failed(why)), State::Loading(_)) => {
                    self.refuse(why, Some(now + PAUSE));
                }
                (Some(_), State::Refused(..) | State::Old) => {}
                (_, _) => {
                    let why = "its process sent invalid messages: killed".into();
                    self.refuse(why, Some(now + PAUSE));
                }
            }
        }
    }

    fn loaded(&mut self, report: &Report, now: Instant) {
        let Report::Ready {
            inputs, libraries, ..
        } = report
        else {
            return;
        };
        if let Err(why) = of_this_build(&self.load.program, report) {
            return self.refuse(why, Some(now + PAUSE));
        }
        let Some(running) = &self.process else { return };
        let inputs = Inputs::of(&self.load.program.path, running.pid, inputs, libraries);
        self.state = State::Ready {
            inputs: Rc::new(inputs),
            looked: now,
        };
    }

    fn refuse(&mut self, why: String, until: Option<Instant>) {
        tell!(
            notice,
            weir_observe::error_log::About::default(),
            "each pool loads PHP ({}) for itself, because one process cannot load it for all: {why}",
            self.load.program.path.display()
        );
        self.state = State::Refused(why, until);
    }

    fn close(&mut self, now: Instant) {
        if let Some(running) = &mut self.process {
            running.end(now);
        }
    }
}

impl Running {
    fn start(load: &Load, id: TemplateId, watch: &Watch) -> io::Result<Self> {
        // The masters that it forks become our children.
        process::adopt_orphans()?;
        let (channel, theirs) = message::pair()?;
        let (outputs, [stdout, stderr]) = Outputs::pipes(load.identity.as_ref())?;
        watch.add(channel.as_fd(), Source::Template(id, Part::Channel))?;
        watch.add_outputs(&outputs, |stream| {
            Source::Template(id, Part::Output(stream))
        })?;
        let (open, hidden) = variables::open_and_hidden(&load.environment);
        let hidden = memory::file(c"environment", &variables::lines(&hidden))?;
        let null = std::fs::File::open("/dev/null")?;
        let spawn = Spawn {
            program: load.program.path.clone(),
            // The name has room for the names of masters, which replace it.
            name: Some(format!("{:ROOM$}", "weir-php: template").into()),
            arguments: load.program.arguments(),
            environment: load.program.environment(open),
            identity: load.identity.clone(),
            keeps: match load.identity {
                Some(_) => Capability::OtherUsers,
                None => Capability::Guard,
            },
            folder: Some("/".into()),
            huge_pages: true,
            ..Spawn::new(&load.program.path, theirs, stdout, stderr)
        };
        let pid = spawn
            .start()
            .map_err(|error| io::Error::other(error.to_string()))?;
        let mut config = variables::build_first();
        config.push(("template", b"1".to_vec()));
        config.extend(load.config.iter().cloned());
        let mut running = Self {
            pid,
            channel: Some(channel),
            unsent: Unsent::default(),
            outputs: outputs.in_plain_lines(),
            log: OutputLog::of_no_pool("(all)"),
            until: None,
        };
        let order = Order::Config(&config).encode();
        running.unsent.push((order, vec![null.into(), hidden]));
        running.flush();
        Ok(running)
    }

    fn flush(&mut self) {
        let Some(channel) = &self.channel else {
            return;
        };
        let sent = self.unsent.flush(|packet| send_packet(channel, packet));
        if sent.is_err() {
            // The template is gone. The masters' ends of the sockets are closed here, which the other ends notice.
            self.unsent.clear();
        }
    }

    /// Lets it end; it is killed if it does not.
    fn end(&mut self, now: Instant) {
        if self.channel.take().is_some() {
            self.unsent.clear();
            self.until = Some(now + LAST_WORDS);
        }
    }

    fn kill(&self) {
        if let Err(error) = process::kill(self.pid) {
            log::error!(
                "cannot kill process {}, which has loaded PHP for all pools: {error}",
                self.pid
            );
        }
    }
}

/// Length of the longest name of a master in process lists, bytes.
const ROOM: usize = 120;

/// How long a template may take to load PHP. Pools that wait for it load PHP for themselves then.
const LOAD_LIMIT: Duration = Duration::from_secs(10);

/// For this time pools load PHP for themselves after a template has failed.
const PAUSE: Duration = Duration::from_secs(30);

/// Files are looked at this often while masters are started.
const LOOK: Duration = Duration::from_secs(1);
