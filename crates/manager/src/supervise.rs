//! The manager's loop: waits for signals, gateways, workers' output and timers, and acts.
//!
//! `current` serves. `next` is a reload in progress: it replaces `current` when its gateway is ready, and is removed
//! if it fails. `old` are generations that are finishing.

mod actions;
mod delay;
pub(crate) mod fpm_mode;
pub(crate) mod notify;
pub(crate) mod pid_file;
mod reload;
mod upgrade;

use std::{
    cell::RefCell,
    collections::HashSet,
    io,
    os::fd::{AsFd, BorrowedFd},
    rc::Rc,
    time::{Duration, Instant},
};

use weir_config::LogTarget;
use weir_control::{ManagerCounts, ToGateway};
use weir_observe::{
    console, error_log, events,
    log_sink::{self, Target},
};
use weir_sys::{
    limits::{self, OpenFiles},
    poll, process,
    signal::{Signal, Signals},
};

use crate::{
    Failure, Loaded, Start,
    certificates::{acme::Orders, keeper::Keeper},
    children::{heritage, watch::Source},
    generation::{
        Event, Generation, Shared,
        addresses::Addresses,
        plan::{self, Plan},
        say_listeners,
    },
    output::banner,
    php::{Load, MasterEvent, MasterId, Masters},
    programs::Programs,
    sockets::listen::Sockets,
    supervise::{
        fpm_mode::{SignalAction, action_of},
        notify::Notifier,
        pid_file::PidFile,
    },
    upgrade::{Anchor, Predecessor, ToAnchor},
    workers::Before,
};
use reload::Handing;
use upgrade::Roles;

/// Serves until a signal stops it.
pub(super) fn run(mut start: Start<'_>) -> Result<(), Failure> {
    let mut predecessor = (start.origin.predecessor.take())
        .map(Predecessor::receive)
        .transpose()?;
    let reporter = predecessor.as_mut().and_then(|p| p.reporter());
    let ended = serve(start, predecessor);
    if let (Err(failure), Some(reporter)) = (&ended, reporter) {
        reporter.failed(&failure.message);
    }
    ended
}

fn serve(mut start: Start<'_>, mut predecessor: Option<Predecessor>) -> Result<(), Failure> {
    // Read before anything is opened: workers inherit the limit with which we were started.
    let inherited = limits::open_files();
    let signals = Signals::take(&[
        Signal::Term,
        Signal::Quit,
        Signal::Int,
        Signal::Hup,
        Signal::Usr1,
        Signal::Usr2,
        Signal::Child,
    ])
    .map_err(|error| Failure::internal(format!("cannot set up signal handling: {error}")))?;
    if let Err(error) = limits::raise_open_files() {
        log::warn!("the limit of open files cannot be raised: {error}");
    }
    let now = Instant::now();
    let loaded = Loaded::parse(&start, start.text.clone())?;
    let plan = make_plan(&loaded, inherited)?;
    let warnings = plan_warnings(&loaded, &plan);
    let mut masters = Masters::new()
        .map_err(|error| Failure::internal(format!("epoll is not available: {error}")))?;
    let addresses = Rc::new(Addresses::default());
    let keeper = Rc::new(RefCell::new(Keeper::new(now)));
    let given_sockets = std::mem::take(&mut start.origin.sockets);
    let (mut before, mut number) = (Sockets::of_service_manager(given_sockets), 1);
    let mut declines = false;
    if let Some(given) = predecessor.as_mut().map(Predecessor::given) {
        let quic = std::mem::take(&mut given.quic);
        (keeper.borrow_mut()).take_over(given.tickets.take(), quic, now);
        addresses.take_over(std::mem::take(&mut given.addresses));
        before = given.sockets.clone();
        number = given.generations.wrapping_add(1);
        declines = given.declines;
        masters.inherited.promise(std::mem::take(&mut given.lists));
    }
    // PHP-FPM is ready only when PHP is loaded, and does not start without it.
    let boots = start.fpm_mode.is_some() || predecessor.is_some();
    let given_pid_file = predecessor.as_mut().map(|p| p.given().pid_file.as_ref());
    let pid_path = given_pid_file.flatten().map(|(path, _)| path.clone());
    let shared = Shared {
        keeper: &keeper,
        certificates: None,
        sockets: &before,
        admin: predecessor.as_mut().map(|p| &p.given().admin),
        addresses: addresses.clone(),
        before: Before {
            of_all: start.fpm_mode.is_some(),
            ..Before::default()
        },
        masters: &masters,
        boots,
        waits_for_workers: start.fpm_mode.is_some(),
        may_wait: true,
        pid_file: pid_path.as_deref(),
    };
    let mut current = Generation::prepare(number, (loaded, plan), shared, now)?;
    let mut pid_file = PidFile::none();
    if predecessor.is_none() {
        let claim = current.pid_file.take();
        pid_file.move_to(claim, &current.loaded, &current.plan.groups)?;
    }
    use_error_log(&current);
    warnings.iter().for_each(|warning| log::warn!("{warning}"));
    let names = current.sockets.clone();
    if predecessor.is_none() {
        before.say_unused(&names);
    }
    // Sockets that are not used are closed.
    drop(before);
    if boots {
        current.boot(now);
    } else if let Err(error) = current.start_gateway(now) {
        return Err(Failure::internal(format!(
            "the gateway cannot be started: {error}"
        )));
    }
    let programs = Programs::new(start.file.as_deref(), now);
    let manager = Manager {
        start,
        programs,
        notifier: Notifier::new(now),
        inherited,
        signals,
        pid_file,
        names,
        masters,
        orders: Orders::new(keeper.clone(), now),
        keeper,
        addresses,
        current,
        next: None,
        handing: None,
        old: Vec::new(),
        stopping: Stopping::No,
        reload_again: None,
        last_reload: None,
        askers: Vec::new(),
        generations: number,
        declines,
        is_in_charge: predecessor.is_none(),
        predecessor,
        roles: Roles::default(),
        stopped_at: None,
        counts: ManagerCounts::default(),
        failure: None,
    };
    let (ended, signals, anchor) = manager.work();
    match anchor.map(|anchor| anchor.stay(&signals)) {
        None | Some(0) => ended,
        Some(code) => Err(Failure {
            code,
            message: String::new(),
        }),
    }
}

struct Manager<'a> {
    start: Start<'a>,
    notifier: Notifier,
    inherited: OpenFiles,
    signals: Signals,
    pid_file: PidFile,
    /// The sockets of `current`, kept so that their paths can be removed after `current` has closed them.
    names: Sockets,
    /// The masters of all generations.
    masters: Masters,
    /// The private keys of all generations.
    keeper: Rc<RefCell<Keeper>>,
    /// Certificates of public authorities.
    orders: Orders,
    /// The addresses of servers' names.
    addresses: Rc<Addresses>,
    current: Generation,
    /// Those of `current`, and what is left of others.
    programs: Programs,
    next: Option<Generation>,
    /// `current` serves, and the one before it still accepts.
    handing: Option<Handing>,
    old: Vec<Generation>,
    stopping: Stopping,
    /// A reload that was requested during another one, or while too many older configurations are finishing; with the
    /// operators who requested it. A signal may have requested it as well.
    reload_again: Option<(Reload, Vec<Requester>)>,
    /// When the last reload ended, whether it succeeded, and a message.
    last_reload: Option<(Instant, bool, String)>,
    /// Operators who wait for the result of the current reload.
    askers: Vec<Requester>,
    /// Number of generations so far.
    generations: u32,
    /// Whether operators have turned the drain for load balancers on.
    declines: bool,
    counts: ManagerCounts,
    failure: Option<Failure>,
    /// The weir that has started this one, until it has finished.
    predecessor: Option<Predecessor>,
    /// No other weir is in charge.
    is_in_charge: bool,
    roles: Roles,
    /// When all was told to end at once.
    stopped_at: Option<Instant>,
}

/// What a reload does with PHP masters whose settings have not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reload {
    /// Keeps them, and with them the content of OPcache.
    Keep,
    /// Restarts all of them, as PHP-FPM does.
    Anew,
    /// Starts the program anew, which takes over from this one.
    Upgrade,
}

/// An operator's request that came through a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Requester {
    /// [`Generation::id`]
    generation: u32,
    /// The gateway's number for the request.
    id: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    No,
    /// It still serves until then, and is not ready (delay.rs).
    Leaving(Instant),
    Gracefully,
    AtOnce,
}

impl Manager<'_> {
    /// Returns how it has ended, the signals, and who is to stay.
    fn work(mut self) -> (Result<(), Failure>, Signals, Option<Anchor>) {
        // Without pools nothing has to be waited for before the gateway can start.
        let now = Instant::now();
        self.each(|generation, masters| generation.tick(now, masters));
        while !(self.has_finished()
            && self.orders.stop(Instant::now())
            && self.keeper.borrow_mut().stop())
        {
            let news = self.wait().unwrap_or_else(|error| {
                self.fail(Failure::internal(format!("waiting failed: {error}")));
                Vec::new()
            });
            let now = Instant::now();
            self.hear_masters(now, &news);
            for place in self.masters.take_places() {
                self.current.gateway.send(ToGateway::SlowPlace(place));
            }
            self.take_signals();
            let now = Instant::now();
            let silent = self.current.gateway.silent(now);
            self.notifier.tick(now, silent, &self.current.work);
            self.masters.oom.look(now);
            self.keeper.borrow_mut().tick(now);
            self.tend_upgrade(now);
            self.order_certificates(now);
            self.programs.tick(&self.current.pools, &self.masters, now);
            self.each(|generation, masters| generation.hear(now, masters));
            self.each(|generation, masters| generation.tick(now, masters));
            self.heed_emergency();
            let before = self.old.len();
            self.old.retain(|generation| !generation.is_gone());
            if self.old.len() < before {
                // With a thousand pools, a generation has megabytes.
                weir_sys::memory::give_back();
            }
            self.tend_handing(now);
            self.tend_leaving(now);
            self.reload_again();
            self.end_masters(now);
        }
        // Their paths go with them.
        self.names = Sockets::default();
        self.current.pools.flush_logs(LAST_WORDS);
        self.programs.flush_logs(LAST_WORDS);
        drop(self.pid_file);
        if let Some(watched) = &self.roles.watched {
            let code = self.failure.as_ref().map_or(0, |failure| failure.code);
            ToAnchor::Ended { code }.send(watched);
        }
        let ended = match self.failure {
            Some(failure) => Err(failure),
            None => {
                match &self.roles.in_charge {
                    None => events::stopped(),
                    Some(other) => log::info!("finished; weir (process {}) goes on", other.pid),
                }
                Ok(())
            }
        };
        error_log::flush(LAST_WORDS);
        (ended, self.signals, self.roles.anchor)
    }

    /// Whether it was to stop, and nothing serves any more.
    fn has_finished(&self) -> bool {
        self.stopping != Stopping::No
            && self.current.is_gone()
            && self.next.is_none()
            && self.old.is_empty()
            && self.masters.are_gone()
            && self.programs.are_gone()
            && (self.predecessor.is_none() || !self.is_in_charge)
    }

    /// Waits until there is something to do. Reads the output of workers and the reports of masters.
    fn wait(&mut self) -> io::Result<Vec<MasterEvent>> {
        let now = Instant::now();
        let deadlines = self.generations().filter_map(|g| g.deadline(now));
        let deadlines = deadlines.chain(self.masters.deadline(now));
        let deadlines = deadlines.chain(self.keeper.borrow().deadline(now));
        let deadlines = deadlines.chain(self.orders.deadline(now));
        let deadlines = deadlines.chain(self.programs.deadline(now));
        let deadlines = deadlines.chain(self.roles.deadline(now));
        let deadlines = deadlines.chain(self.handing.as_ref().map(|handing| handing.until));
        let deadlines = deadlines.chain(self.leaves_at());
        let deadlines = deadlines.chain(self.stopped_at.and(Some(now + LAST_WORDS)));
        let deadline = deadlines.chain(self.notifier.deadline()).min();
        let limit = deadline.map(|deadline| deadline.saturating_duration_since(now));
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.signals.as_fd()];
        descriptors.extend(self.generations().filter_map(|g| g.gateway.descriptor()));
        let keeper = self.keeper.borrow();
        descriptors.extend(keeper.descriptor());
        descriptors.extend(self.orders.descriptors());
        descriptors.extend(self.roles.descriptors());
        descriptors.extend(self.predecessor.iter().filter_map(Predecessor::descriptor));
        descriptors.push(self.masters.watch.as_fd());
        let readable = poll::readable(&descriptors, limit)?;
        drop(keeper);
        let mut news = Vec::new();
        if readable.last() == Some(&true) {
            for source in self.masters.watch.ready()? {
                match source {
                    Source::Master(id) => self.masters.read(id, now, &mut news),
                    Source::Template(id, part) => self.masters.read_template(id, part, now),
                    Source::SlowLog(id) => self.masters.read_slow(id),
                    Source::MasterOutput(id, stream) => self.masters.read_output(id, stream),
                    Source::ProgramOutput(number, stream) => {
                        self.programs.read_output(number, stream);
                    }
                    Source::WorkerOutput(number, stream) => {
                        let mut generations = self.generations_mut();
                        let _ = generations.any(|g| g.pools.read_output(number, stream));
                    }
                }
            }
        }
        Ok(news)
    }

    /// Orders certificates that are due, and tells the gateways what proves their names, and what became of names on demand.
    fn order_certificates(&mut self, now: Instant) {
        self.order_what_is_due(now);
        for what in self.orders.demanded() {
            self.generations_mut()
                .for_each(|generation| generation.demanded(&what));
        }
    }

    fn order_what_is_due(&mut self, now: Instant) {
        self.orders.hear(now);
        if self.stopping != Stopping::No {
            self.orders.stop(now);
            return;
        }
        let current = &mut self.current;
        if !current.is_serving() || !self.is_in_charge {
            return;
        }
        let config = &current.loaded.config;
        self.orders
            .serve(current.id, config, &current.plan.acme, now);
        let gateway = (current.id, current.gateway.pid());
        if let Some(message) = self.orders.tick(now, gateway) {
            current.gateway.send(message);
            current.gateway.flush();
        }
    }

    /// Passes the masters' reports to all generations: after a reload, a kept master serves two of them.
    fn hear_masters(&mut self, now: Instant, news: &[MasterEvent]) {
        for news in news {
            self.hand_lists(news);
            self.each(|generation, masters| {
                generation.hear_master(now, news, masters);
                Vec::new()
            });
        }
    }

    /// Ends masters that no generation needs any more.
    fn end_masters(&mut self, now: Instant) {
        let needed: HashSet<MasterId> =
            self.generations().flat_map(|g| g.pools.masters()).collect();
        let all = std::iter::once(&self.current)
            .chain(&self.next)
            .chain(&self.old);
        let stops = matches!(self.stopping, Stopping::Gracefully | Stopping::AtOnce);
        let needs = |load: &Load| !stops && all.clone().any(|g| g.pools.need(load));
        self.masters.keep_only(&needed, needs, now);
        let mut news = Vec::new();
        self.masters.tick(now, &mut news);
        self.hear_masters(now, &news);
    }

    fn generations(&self) -> impl Iterator<Item = &Generation> {
        std::iter::once(&self.current)
            .chain(&self.next)
            .chain(&self.old)
    }

    fn generations_mut(&mut self) -> impl Iterator<Item = &mut Generation> {
        std::iter::once(&mut self.current)
            .chain(&mut self.next)
            .chain(&mut self.old)
    }

    /// Lets each generation act, and handles the resulting events.
    fn each(&mut self, act: impl Fn(&mut Generation, &mut Masters) -> Vec<Event>) {
        for event in act(&mut self.current, &mut self.masters) {
            self.on_current(event);
        }
        if let Some(next) = &mut self.next {
            for event in act(next, &mut self.masters) {
                self.on_next(event);
            }
        }
        for generation in &mut self.old {
            for event in act(generation, &mut self.masters) {
                match event {
                    Event::Act { id, .. } => {
                        generation.act_done(id, false, "another configuration is already in use");
                    }
                    Event::Measure => {
                        generation.measure(Instant::now(), &self.masters, self.counts, Vec::new());
                    }
                    Event::Hangs => self.counts.gateway_hangs += 1,
                    _ => {}
                }
            }
        }
    }

    fn take_signals(&mut self) {
        loop {
            let signal = match self.signals.next() {
                Ok(Some(signal)) => signal,
                Ok(None) => return,
                Err(error) => {
                    self.fail(Failure::internal(format!(
                        "signals cannot be read: {error}"
                    )));
                    return;
                }
            };
            if matches!(signal, Signal::Term | Signal::Quit | Signal::Int) {
                self.end_handing();
            }
            let Some(signal) = self.heed_role(signal) else {
                continue;
            };
            let finishing = self.stopping != Stopping::No;
            match action_of(signal, self.start.fpm_mode.is_some(), finishing) {
                SignalAction::Reap => self.reap(),
                SignalAction::StopGracefully => self.leave(),
                SignalAction::StopAtOnce => self.stop_at_once(),
                SignalAction::Reload => self.reload(Reload::Keep, None),
                // As in PHP-FPM, where people use this signal to empty OPcache.
                SignalAction::ReloadAnew => self.reload(Reload::Anew, None),
                SignalAction::ReopenLogs => self.reopen_logs(),
                SignalAction::KeepFinishing => events::finishing(self.current.shutdown_timeout()),
            }
        }
    }

    fn reap(&mut self) {
        let now = Instant::now();
        loop {
            let before = |pid| {
                self.orders.ends(pid);
                self.programs.ends(pid);
            };
            let (pid, exit) = match process::reap(before) {
                Ok(Some(ended)) => ended,
                Ok(None) => return,
                Err(error) => {
                    log::error!("cannot wait for ended processes: {error}");
                    return;
                }
            };
            if let Some(anchor) = &mut self.roles.anchor {
                anchor.exited(pid, exit);
            }
            if let Some((successor, _)) = &mut self.roles.starting
                && successor.pid == pid
            {
                successor.exited(exit);
                continue;
            }
            if self.keeper.borrow_mut().exited(now, pid, exit) || self.orders.exited(now, pid, exit)
            {
                continue;
            }
            if self.programs.exited(pid, exit, &self.masters.oom, now) {
                continue;
            }
            if let Some(news) = self.masters.exited(pid, exit, now) {
                self.hear_masters(now, &news);
                continue;
            }
            let masters = &mut self.masters;
            match self.current.exited(now, pid, exit, masters) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(event) => {
                    self.on_current(event);
                    continue;
                }
            }
            let next = self.next.as_mut();
            match next.map(|next| next.exited(now, pid, exit, masters)) {
                None | Some(Ok(false)) => {}
                Some(Ok(true)) => continue,
                Some(Err(event)) => {
                    self.on_next(event);
                    continue;
                }
            }
            // As process 1 of a container we also have to wait for orphaned processes.
            let _ = self
                .old
                .iter_mut()
                .any(|old| old.exited(now, pid, exit, masters) != Ok(false));
        }
    }

    /// The first generation became ready, or failed: then weir ends.
    fn on_current(&mut self, event: Event) {
        match event {
            Event::Ready => {
                if self.is_in_charge {
                    return self.serves();
                }
                if self.declines {
                    self.current.decline(true);
                }
                if let Some(predecessor) = &mut self.predecessor {
                    predecessor.tell_ready();
                }
            }
            Event::Failed(failure) => self.fail(failure),
            Event::ChallengesSet(number) => self.orders.are_set(number),
            Event::WantCertificate(name) => self.orders.demand(&name, Instant::now()),
            Event::Act { id, action } => self.act(id, action),
            Event::Measure => {
                let now = Instant::now();
                let first = self.of_reloads_logs_and_certificates(now);
                self.counts.reload_waits = self.reload_again.is_some();
                self.counts.oom_kills = self.masters.oom.count();
                self.current.measure(now, &self.masters, self.counts, first);
            }
            Event::FindFormer { id, whose } => {
                let old = self.old.iter();
                let workers = old.flat_map(|old| old.workers(&self.masters));
                let before = self.predecessor.iter();
                let before = before.flat_map(|p| p.workers.iter().cloned());
                let workers: Vec<(u32, String)> = workers.chain(before).collect();
                self.current
                    .find_former(Instant::now(), (id, whose), &workers);
            }
            Event::Restarts => self.counts.gateway_restarts += 1,
            Event::Hangs => self.counts.gateway_hangs += 1,
        }
    }

    /// The first generation serves, and this weir is in charge.
    fn serves(&mut self) {
        self.current.takes_effect();
        self.begin_programs();
        // Checking a configuration needs megabytes, and may not happen again for months.
        weir_sys::memory::give_back();
        events::serving(std::process::id());
        self.notifier.ready();
        if let Some(fpm_mode) = &self.start.fpm_mode {
            let interval = fpm_mode.monitor.get();
            self.notifier.monitor(interval, &mut self.current.gateway);
            (fpm_mode.ready)();
        }
        self.check_late();
        let config = &self.current.loaded.config;
        let addresses = self.current.sockets.addresses();
        if let Some(folder) = &self.start.folder {
            let admin = self.current.admin.shown(None);
            return console::say(banner::text(folder, config, &addresses, &admin));
        }
        say_listeners(&self.current);
        let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        if self.start.fpm_mode.is_none() && is_terminal {
            let name = &self.start.name;
            let admin = self.current.admin.shown(Some(name));
            console::say(banner::of_file(name, config, &addresses, &admin));
        }
    }

    /// Starts the programs of the configuration in force; of another weir, it continues what that has told.
    fn begin_programs(&mut self) {
        let handed = self.predecessor.as_ref().map(|p| &p.programs[..]);
        let handed = handed.unwrap_or_default();
        self.programs.serve(&self.current, handed, Instant::now());
    }

    /// Starts the checks that would delay the start.
    fn check_late(&self) {
        let Some(check) = self.start.late_checks else {
            return;
        };
        let config = self.current.loaded.config.clone();
        let started = std::thread::Builder::new()
            .name("late checks".into())
            .spawn(move || check(&config).iter().for_each(|line| log::warn!("{line}")));
        if let Err(error) = started {
            log::warn!("the sites are not checked: no thread: {error}; run weir doctor");
        }
    }

    /// The messages for the current gateway about reloads, the logs that the manager writes, and certificates.
    fn of_reloads_logs_and_certificates(&self, now: Instant) -> Vec<ToGateway> {
        let last = self.last_reload.as_ref();
        let last = last.map(|(at, done, text)| ToGateway::LastReload {
            ago: u64::try_from((now - *at).as_millis()).unwrap_or(u64::MAX),
            done: *done,
            text: text.clone(),
        });
        let old = self.old.iter();
        let old = old.map(|old| ToGateway::OldGeneration(old.as_old(now)));
        let logs = log_sink::health().into_iter().map(ToGateway::ManagerLog);
        let before = self.predecessor.iter();
        let before = before.flat_map(|p| p.old.iter().cloned());
        let before = before.map(ToGateway::OldGeneration);
        old.chain(before)
            .chain(last)
            .chain(logs)
            .chain(self.orders.report())
            .chain(self.programs.report(now))
            .collect()
    }

    fn reopen_logs(&mut self) {
        if let Some(predecessor) = &self.predecessor {
            predecessor.reopen_logs();
        }
        for generation in self.generations_mut() {
            if let Err(error) = generation.reopen_logs() {
                say_lines(
                    "these logs cannot be reopened and stay as they were",
                    &error,
                );
            }
        }
        self.programs.reopen_logs();
        use_error_log(&self.current);
        let config = &self.current.loaded.config;
        let of_pools = config.pools.iter().any(|pool| pool.access_log.is_some());
        let of_calls = config.egress.is_some() && config.log.egress != LogTarget::Off;
        events::logs_reopened(of_pools || of_calls || config.log.access != LogTarget::Off);
    }

    fn stop_gracefully(&mut self) {
        let limit = self.current.shutdown_timeout();
        events::finishing(limit);
        self.notifier.stopping();
        self.stopping = Stopping::Gracefully;
        let now = Instant::now();
        self.current.drain(now, limit, true);
        self.programs.stop(now);
        if let Some(predecessor) = &self.predecessor {
            predecessor.end_programs();
        }
        // Our last listening sockets: from now on connections are refused, so that clients can go elsewhere.
        self.names.close();
        self.abandon_next(now);
        self.abandon_upgrade();
    }

    fn stop_at_once(&mut self) {
        if self.stopping == Stopping::AtOnce {
            return;
        }
        events::terminating();
        self.notifier.stopping();
        self.stopping = Stopping::AtOnce;
        let now = Instant::now();
        self.stopped_at = Some(now);
        if let Some(predecessor) = &self.predecessor
            && self.is_in_charge
        {
            predecessor.stop_now();
        }
        self.programs.stop_now(now, SHORT_GRACE);
        self.abandon_next(now);
        self.abandon_upgrade();
        self.generations_mut()
            .for_each(|generation| generation.stop_now(now));
    }

    /// Ends with a failure; the first one is reported.
    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
        self.stopping = Stopping::No;
        self.stop_at_once();
    }
}

fn make_plan(loaded: &Loaded, inherited: OpenFiles) -> Result<Plan, Failure> {
    plan::make(&loaded.config, inherited).map_err(|problems| loaded.failure(problems))
}

fn plan_warnings(loaded: &Loaded, plan: &Plan) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(found) = &loaded.warnings {
        warnings.extend(found.lines().map(str::to_owned));
    }
    warnings.extend(plan.warnings.iter().cloned());
    if let Some(chroot) = &plan.jail.chroot {
        warnings.extend(heritage::unreachable(&loaded.config, chroot));
    }
    warnings
}

/// Writes the manager's error log as configured.
fn use_error_log(generation: &Generation) {
    let config = &generation.loaded.config.log;
    error_log::set_level(config.level);
    error_log::set_format(config.error_format);
    let log = generation.error_log().map(|log| log.try_clone());
    let used = match (log, &config.error) {
        (None, _) => error_log::write_directly(Target::Off),
        (Some(Ok(socket)), LogTarget::Syslog) => error_log::write_to_syslog(socket, config),
        (Some(Ok(log)), _) => error_log::write_behind(Target::Fd(log)),
        (Some(Err(error)), _) => Err(error),
    };
    if let Err(error) = used {
        log::error!("the error log cannot be used: {error}");
    }
}

/// Logs each line of a text as one event.
fn say_lines(head: &str, text: &str) {
    log::error!("{head}");
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.for_each(|line| log::error!("{line}"));
}

/// How long programs may take to end when weir is to end at once.
const SHORT_GRACE: Duration = Duration::from_secs(1);

/// How long the readers of logs may take for the last lines.
const LAST_WORDS: Duration = Duration::from_secs(1);
