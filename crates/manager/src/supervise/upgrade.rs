//! Upgrades: a new weir is started, gets everything, and is in charge when it serves ([`crate::upgrade`]). Both sides are
//! here: the old weir, and the new one until it is in charge.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use weir_control::ToGateway;
use weir_sys::{process, signal::Signal};

use super::{LAST_WORDS, Manager, Reload, Requester, Stopping, reload::LONGEST_CLOSE, say_lines};
use crate::{
    Failure,
    children::unsent::is_gone,
    generation::give_connections,
    php::MasterEvent,
    programs::Handed,
    supervise::pid_file::PidFile,
    upgrade::{
        Anchor, Finishing, HANDOVER, Listing, Outcome, PredecessorMessage, Successor, ToAnchor,
        ToPredecessor, ToSuccessor,
    },
};

/// What an upgrade has made of this process.
#[derive(Debug, Default)]
pub(super) struct Roles {
    /// The new weir that starts, and those who asked for it.
    pub(super) starting: Option<(Successor, Vec<Requester>)>,
    /// The new weir serves, and this one still accepts connections. The new weir is in charge at this time at the
    /// latest.
    pub(super) closing: Option<Instant>,
    /// Where its gateway takes idle connections.
    takes: Option<OwnedFd>,
    /// Lists of scripts that are written for it.
    listings: Vec<Listing>,
    /// The new weir that is in charge. This one only finishes.
    pub(super) in_charge: Option<Successor>,
    /// What it was told of the programs.
    handed: Vec<Handed>,
    /// When it last got a report.
    reported: Option<Instant>,
    /// Whether this process was asked to end since another one is in charge.
    asked_to_end: bool,
    /// When it last was asked to stop.
    stop_asked: Option<Instant>,
    /// This process is watched from outside, and stays.
    pub(super) anchor: Option<Anchor>,
    /// Another one is watched from outside: the channel to it.
    pub(super) watched: Option<OwnedFd>,
    /// The service manager watched this process until the new weir took over.
    was_watched: bool,
}

impl Roles {
    /// The descriptors to wait for.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let starting = self.starting.iter().map(|(successor, _)| successor);
        let weirs = starting.chain(&self.in_charge);
        let anchor = self.anchor.iter().filter_map(Anchor::descriptor);
        let watched = self.watched.iter().map(AsFd::as_fd);
        weirs
            .flat_map(Successor::descriptors)
            .chain(anchor)
            .chain(watched)
    }

    /// When there is something to do.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let starting = self.starting.as_ref();
        let starting = starting.map(|(successor, _)| match self.closing {
            Some(until) => until,
            None => successor.deadline(now),
        });
        let report = self.in_charge.as_ref().and(self.reported);
        let report = report.map(|reported| reported + REPORT_EVERY);
        starting.into_iter().chain(report).min()
    }
}

impl Manager<'_> {
    /// Starts the new weir.
    pub(super) fn begin_upgrade(&mut self) {
        let program = &self.start.origin.program;
        log::info!("upgrade: {} starts", program.path.display());
        self.notifier.reloading();
        let limit = self.current.loaded.config.server.upgrade_timeout;
        let askers = std::mem::take(&mut self.askers);
        let started = Successor::start(program, self.inherited, limit);
        let handed = started.and_then(|mut successor| match self.hand(&mut successor) {
            Ok(()) => Ok(successor),
            // The process has ended. Its exit status says more.
            Err(error) if is_gone(&error) => Ok(successor),
            Err(error) => {
                successor.kill();
                Err(error.to_string())
            }
        });
        match handed {
            Ok(successor) => self.roles.starting = Some((successor, askers)),
            Err(cause) => self.upgrade_failed(&cause, &askers),
        }
    }

    /// Gives the new weir what it needs before it starts.
    fn hand(&mut self, successor: &mut Successor) -> std::io::Result<()> {
        let hello = ToSuccessor::Hello {
            handover: HANDOVER,
            version: weir_sys::version::version().to_owned(),
        };
        let stderr = std::io::stderr().as_fd().try_clone_to_owned()?;
        successor.tell(hello, Some(stderr));
        for (place, socket) in self.names.places() {
            successor.tell(ToSuccessor::Socket(place), Some(socket.try_clone()?));
        }
        for (place, socket) in self.names.datagram_places() {
            successor.tell(ToSuccessor::Datagrams(place), Some(socket.try_clone()?));
        }
        if let Some((secret, last)) = self.keeper.borrow().quic.shared() {
            successor.tell(ToSuccessor::Quic { secret, last }, None);
        }
        for (gateway, reactor, socket) in self.keeper.borrow().quic.inboxes() {
            let inbox = ToSuccessor::Inbox { gateway, reactor };
            successor.tell(inbox, Some(socket.try_clone()?));
        }
        let (admin, admin_tcp) = self.current.admin.parts();
        if let Some((path, name, socket)) = admin {
            let path = path.to_owned();
            successor.tell(ToSuccessor::Admin { path, name }, Some(socket.try_clone()?));
        }
        if let Some((wanted, socket)) = admin_tcp {
            successor.tell(ToSuccessor::AdminTcp { wanted }, Some(socket.try_clone()?));
        }
        if let Some((path, file)) = self.pid_file.parts() {
            let path = path.to_owned();
            let file = file.as_fd().try_clone_to_owned()?;
            successor.tell(ToSuccessor::PidFile { path }, Some(file));
        }
        let (keys, due) = self.keeper.borrow().tickets.shared(Instant::now());
        successor.tell(ToSuccessor::Tickets { keys, due }, None);
        if let Some(watched) = &self.roles.watched {
            successor.tell(ToSuccessor::Anchor, Some(watched.try_clone()?));
        }
        let sources = self.current.pools.current_masters();
        let listings = Listing::begin(sources, &mut self.masters);
        let start = ToSuccessor::Start {
            lists: listings.iter().map(|one| one.list.pool.clone()).collect(),
            declines: self.declines,
            generations: self.generations,
            addresses: self.addresses.all(),
        };
        successor.tell(start, None);
        self.roles.listings = listings;
        Ok(())
    }

    /// Hands lists of scripts over that are complete now.
    pub(super) fn hand_lists(&mut self, news: &MasterEvent) {
        let ended = Listing::take_ended(&mut self.roles.listings, news);
        if let Some((successor, _)) = &mut self.roles.starting {
            for (list, file) in ended {
                successor.tell(ToSuccessor::Scripts(list), file);
            }
        }
    }

    /// Looks after a new weir that starts, or that is in charge.
    pub(super) fn tend_upgrade(&mut self, now: Instant) {
        if self.roles.closing.is_none()
            && let Some((successor, _)) = &mut self.roles.starting
            && let Some(outcome) = successor.look(now)
            && let Some((successor, askers)) = self.roles.starting.take()
        {
            Listing::end_all(&mut self.roles.listings, &mut self.masters);
            match outcome {
                Outcome::Ready => {
                    let limit = self.current.shutdown_timeout();
                    let giving = self.old.iter_mut().chain([&mut self.current]);
                    self.roles.takes = give_connections(giving);
                    self.current.drain(now, limit, false);
                    self.roles.starting = Some((successor, askers));
                    self.roles.closing = Some(now + LONGEST_CLOSE);
                }
                Outcome::Failed(cause) => {
                    successor.kill();
                    self.upgrade_failed(&cause, &askers);
                }
            }
        }
        if let Some(anchor) = &mut self.roles.anchor
            && !anchor.hear()
        {
            // The weir in charge has ended: whoever watches this process must know.
            self.stop_at_once();
        }
        self.serve_successor(now);
        self.hear_predecessor(now);
        if let Some(watched) = &self.roles.watched
            && weir_sys::socket::peer_closed(watched.as_fd())
        {
            log::error!("the process that was started first has ended: weir ends, too");
            self.roles.watched = None;
            self.stop_at_once();
        }
    }

    fn upgrade_failed(&mut self, cause: &str, askers: &[Requester]) {
        self.counts.failed_reloads += 1;
        say_lines("upgrade failed, nothing was changed", cause);
        self.notifier.ready();
        self.reload_is_over(askers, false, cause.to_owned());
    }

    /// Ends the time in which the one before still accepts.
    pub(super) fn end_handing(&mut self) {
        self.say_reloaded();
        if self.roles.closing.take().is_some()
            && let Some((successor, askers)) = self.roles.starting.take()
        {
            self.hand_over(successor, &askers, Instant::now());
        }
    }

    /// Gives the role of this weir up: the new one serves.
    fn hand_over(&mut self, mut successor: Successor, askers: &[Requester], now: Instant) {
        let (pid, version) = (successor.pid, successor.version().to_owned());
        let is_known = self.notifier.main_is(pid);
        if let Err(error) = self.stay_if_watched(&mut successor, is_known) {
            log::error!("upgrade: this process ends when its requests are finished: {error}");
        }
        self.stopping = Stopping::Gracefully;
        // The new weir owns them now, including the names of unix sockets.
        self.names.set_ours(false);
        self.names = Default::default();
        self.current.admin.set_ours(false);
        self.pid_file.give_up();
        self.roles.handed = self.programs.handed();
        self.programs.leave(now);
        let programs = self.roles.handed.clone();
        successor.tell(ToSuccessor::Programs(programs), None);
        successor.tell(ToSuccessor::Yours, self.roles.takes.take());
        let text = format!("weir {version} serves (process {pid})");
        log::info!(
            "upgrade: {text}; this one (process {}) finishes its requests",
            std::process::id()
        );
        if let Some((_, waiting)) = self.reload_again.take() {
            successor.tell(ToSuccessor::Reload, None);
            self.answer(&waiting, true, &format!("{text} and reloads"));
        }
        self.reload_is_over(askers, true, text);
        self.roles.in_charge = Some(successor);
        self.roles.reported = Some(now);
        self.report(now);
    }

    /// Stays for those outside that watch this process, if there may be some.
    fn stay_if_watched(
        &mut self,
        successor: &mut Successor,
        is_known: bool,
    ) -> std::io::Result<()> {
        let is_first = std::process::id() == 1;
        let is_free = is_known || self.start.origin.program.is_daemon;
        self.roles.was_watched = self.roles.watched.take().is_some();
        if self.roles.was_watched || (is_free && !is_first) {
            return Ok(());
        }
        let (anchor, theirs) = Anchor::new(successor.pid)?;
        self.roles.anchor = Some(anchor);
        successor.tell(ToSuccessor::Anchor, Some(theirs));
        Ok(())
    }

    /// Talks to the new weir that is in charge.
    fn serve_successor(&mut self, now: Instant) {
        if self.roles.in_charge.is_none() {
            return;
        }
        let is_due = |reported: Instant| reported + REPORT_EVERY <= now;
        if self.roles.reported.is_some_and(is_due) {
            self.report(now);
        }
        self.report_programs();
        let next = |roles: &mut Roles| roles.in_charge.as_mut().and_then(Successor::next);
        while let Some(message) = next(&mut self.roles) {
            match message {
                ToPredecessor::ReopenLogs => self.reopen_logs(),
                ToPredecessor::StopNow => self.stop_at_once(),
                ToPredecessor::EndPrograms => self.programs.stop(now),
                ToPredecessor::Hello { .. } | ToPredecessor::Ready | ToPredecessor::Failed(_) => {}
            }
        }
    }

    /// Tells the new weir if a process of a program has ended.
    fn report_programs(&mut self) {
        let handed = self.programs.handed();
        if let Some(successor) = &mut self.roles.in_charge
            && handed != self.roles.handed
        {
            self.roles.handed.clone_from(&handed);
            successor.tell(ToSuccessor::Programs(handed), None);
        }
    }

    /// Tells the new weir what this one still finishes.
    fn report(&mut self, now: Instant) {
        let finishing = std::iter::once(&self.current).chain(&self.old);
        let finishing = finishing.filter(|generation| !generation.is_gone());
        let own = finishing.map(|generation| generation.as_old(now));
        let before = self.predecessor.iter().flat_map(|p| p.old.iter().cloned());
        let old: Vec<Finishing> = own.chain(before).map(Finishing::from).collect();
        let own = self.generations().flat_map(|g| g.workers(&self.masters));
        let before = self.predecessor.iter();
        let before = before.flat_map(|p| p.workers.iter().cloned());
        let workers = own.chain(before).take(MOST_WORKERS).collect();
        self.roles.reported = Some(now);
        if let Some(successor) = &mut self.roles.in_charge {
            successor.tell(ToSuccessor::Report { old, workers }, None);
        }
    }

    /// Ends a new weir that starts, because this one stops.
    pub(super) fn abandon_upgrade(&mut self) {
        if let Some((successor, askers)) = self.roles.starting.take() {
            Listing::end_all(&mut self.roles.listings, &mut self.masters);
            successor.kill();
            self.answer(&askers, false, "weir is stopping");
        }
    }

    /// A signal, as the role of this process wants it; `None`: it is dealt with.
    pub(super) fn heed_role(&mut self, signal: Signal) -> Option<Signal> {
        if signal == Signal::Child {
            return Some(signal);
        }
        if let Some(anchor) = &self.roles.anchor {
            anchor.pass_on(signal);
            return None;
        }
        let Some(successor) = &self.roles.in_charge else {
            return self.unless_passed_on(signal);
        };
        match signal {
            // Perhaps all processes of the service got the signal. This one finishes anyway.
            Signal::Term | Signal::Quit if !self.roles.asked_to_end => {
                self.roles.asked_to_end = true;
                log::info!(
                    "weir (process {}) is in charge; this one finishes",
                    successor.pid
                );
                // The process that stays may not know yet who is in charge. If the new weir gets the signal twice, it
                // counts once.
                if self.roles.was_watched
                    && let Err(error) = process::send_signal(successor.pid, signal)
                {
                    log::error!(
                        "cannot pass a signal on to weir (process {}): {error}",
                        successor.pid
                    );
                }
                None
            }
            Signal::Hup | Signal::Usr2 => None,
            signal => Some(signal),
        }
    }

    /// The signal, unless it is the same that the process that stays has passed on: perhaps all processes of the service got
    /// it, and a second signal to stop means that nothing may finish.
    fn unless_passed_on(&mut self, signal: Signal) -> Option<Signal> {
        if self.roles.watched.is_some() && matches!(signal, Signal::Term | Signal::Quit) {
            let before = self.roles.stop_asked.replace(Instant::now());
            if before.is_some_and(|before| before.elapsed() < SAME_SIGNAL) {
                return None;
            }
        }
        Some(signal)
    }

    /// Hears the old weir.
    fn hear_predecessor(&mut self, now: Instant) {
        let in_charge = self.is_in_charge;
        while let Some(said) = self
            .predecessor
            .as_mut()
            .and_then(|p| p.hear(in_charge || self.is_in_charge))
        {
            match said {
                PredecessorMessage::Yours(channel) if !self.is_in_charge => {
                    if let Some(channel) = channel {
                        let takes = ToGateway::TakeConnections(channel);
                        self.current.hand_connections(takes);
                    }
                    self.take_charge();
                }
                PredecessorMessage::Yours(_) => {}
                PredecessorMessage::Reload => self.reload(Reload::Keep, None),
                PredecessorMessage::Scripts(list, file) => self.masters.inherited.put(list, file),
                PredecessorMessage::Gone => {
                    let cause = "the weir that started this one has ended";
                    self.fail(Failure::internal(cause));
                }
            }
        }
        if let Some(predecessor) = &self.predecessor
            && self.is_in_charge
        {
            self.programs.hear(&predecessor.programs);
        }
        let is_gone = (self.predecessor.as_ref()).is_some_and(|p| !p.is_there());
        if is_gone && self.is_in_charge {
            log::info!("upgrade: the earlier weir has finished");
            self.predecessor = None;
        }
        let waited = |since: Instant| now.saturating_duration_since(since) > LAST_WORDS * 5;
        if self.stopping == Stopping::AtOnce && self.stopped_at.is_some_and(waited) {
            self.predecessor = None;
        }
    }

    /// The old weir has given up its role: this one is in charge.
    fn take_charge(&mut self) {
        self.is_in_charge = true;
        self.masters.inherited.clear();
        let Some(predecessor) = &mut self.predecessor else {
            return;
        };
        let given = std::mem::take(predecessor.given());
        log::info!(
            "upgrade: weir {} takes over from version {}",
            weir_sys::version::version(),
            predecessor.version()
        );
        // What this configuration does not use any more is removed.
        given.admin.set_ours(true);
        given.sockets.set_ours(true);
        drop(given.sockets);
        if let Err(problem) = self.current.sockets.change_rights() {
            let failure = self.current.loaded.failure(vec![problem]);
            log::error!("upgrade: {failure}");
        }
        self.pid_file = PidFile::given(given.pid_file);
        let claim = self.current.pid_file.take();
        let (loaded, groups) = (&self.current.loaded, &self.current.plan.groups);
        if let Err(failure) = self.pid_file.move_to(claim, loaded, groups) {
            log::error!("upgrade: {failure}");
        }
        if let Some(anchor) = given.anchor {
            let pid = std::process::id();
            ToAnchor::Main { pid }.send(&anchor);
            self.roles.watched = Some(anchor);
        }
        self.serves();
    }
}

/// How often the new weir hears what this one still finishes.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Two signals to stop within this time are one that came on two ways.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// Maximum number of workers in a report.
const MOST_WORKERS: usize = 2000;
