//! Reloads: the next configuration is prepared beside the current one, replaces it, or is given up.
//!
//! A reload keeps each master whose work would be the same: an equal `php::Spec`, the same roots, unchanged configuration files, program
//! and libraries. OPcache then stays warm. SIGUSR2, PHP-FPM's signal, keeps none. Workers are always new, because a worker's stream belongs to
//! one gateway: a gateway that was taken over could keep a copy of a stream, and read the requests of the next gateway.
//!
//! The order:
//!
//! 1. New sockets, logs and the pid file are opened. What holds them closes them again if the reload fails.
//! 2. Masters that change are booted and warmed. The next gateway is started, and reads the configuration meanwhile.
//! 3. The next gateway gets the sockets, and reports that it is ready.
//! 4. Only now changes what others see: certificates that weir makes, rights and backlogs of kept sockets, the pid file
//!    (`Manager::put_in_force`).
//! 5. The earlier gateway drains: it serves what is in its accept queues, then closes them. It gives its idle connections without TLS
//!    to the next gateway, and ends when its last connection and its last lease are gone.
//!
//! The reload has succeeded when the earlier gateway accepts nothing any more. Instead of PHP-FPM (`weir fpm`) it has succeeded when that gateway and
//! its workers have ended (5 s at most) and the new pools have their first workers (10 s at most).

use std::{
    fs,
    os::fd::RawFd,
    time::{Duration, Instant},
};

use weir_config::Address;
use weir_control::ToGateway;
use weir_observe::events;

use super::{
    Manager, Reload, Requester, Stopping, make_plan, plan_warnings, say_lines, use_error_log,
};
use crate::{
    Failure, Loaded,
    generation::{Event, Generation, Shared, give_connections, said, say_listeners},
    workers::Before,
};

impl Manager<'_> {
    /// A reload has succeeded or failed.
    pub(super) fn on_next(&mut self, event: Event) {
        let failure = match event {
            Event::Ready => None,
            Event::Failed(failure) => Some(failure),
            // Other events come from operators and clients. The new gateway does not serve them yet.
            _ => return,
        };
        let Some(mut next) = self.next.take() else {
            return;
        };
        let (now, askers) = (Instant::now(), std::mem::take(&mut self.askers));
        let failure = failure.or_else(|| self.put_in_force(&mut next).err());
        if let Some(failure) = failure {
            return self.give_up(next, failure.message, &askers, now);
        }
        self.counts.reloads += 1;
        self.addresses.keep_only(&next.loaded.config);
        let names = next.sockets.clone();
        let inherited = self.current.sockets.descriptors();
        let mut before = std::mem::replace(&mut self.current, next);
        if self.declines {
            self.current.decline(true);
        }
        let old = self.old.iter_mut().chain([&mut before]);
        if let Some(channel) = give_connections(old) {
            let takes = ToGateway::TakeConnections(channel);
            self.current.hand_connections(takes);
        }
        self.begin_programs();
        before.drain(now, before.shutdown_timeout(), false);
        self.handing = Some(Handing {
            from: before.id,
            until: now + LONGEST_CLOSE,
            inherited,
            askers,
        });
        self.old.push(before);
        self.names = names;
        use_error_log(&self.current);
    }

    /// Reports that the new configuration or weir serves, as soon as no new client reaches the previous one. In
    /// PHP-FPM's place the previous one has ended, too: nothing of it is answered or logged after that, unless a script
    /// runs for longer than this waits. Called when the gateways were heard and processes that have ended are known.
    pub(super) fn tend_handing(&mut self, now: Instant) {
        if let Some(until) = self.roles.closing
            && (until <= now || self.current.accepts_nothing())
        {
            return self.end_handing();
        }
        let Some(handing) = &self.handing else {
            return;
        };
        let mut old = self.old.iter();
        let before = old.find(|generation| generation.id == handing.from);
        let is_closed = before.is_none_or(Generation::accepts_nothing);
        let waits = !is_closed || (self.start.fpm_mode.is_some() && before.is_some());
        if waits && now < handing.until {
            return;
        }
        if !is_closed {
            log::warn!(
                "the gateway of the earlier configuration has not stopped accepting within {} s: some new clients may still reach it",
                LONGEST_CLOSE.as_secs()
            );
        }
        self.say_reloaded();
    }

    /// The new configuration serves.
    pub(super) fn say_reloaded(&mut self) {
        let Some(handing) = self.handing.take() else {
            return;
        };
        let command = self.start.fpm_mode.map_or(&[][..], |own| own.command);
        events::reloaded(std::process::id(), command, &handing.inherited);
        if let Some(fpm_mode) = &self.start.fpm_mode {
            let interval = fpm_mode.monitor.get();
            self.notifier.monitor(interval, &mut self.current.gateway);
        }
        self.notifier.ready();
        // The message has the file's name: `weir reload -c OTHER` reaches the weir at that
        // admin address, which reloads its own file.
        let name = &self.start.name;
        let text = format!("the new configuration serves: {name}");
        self.reload_is_over(&handing.askers, true, text);
        // Slow work is done after the operators have got their answer.
        say_listeners(&self.current);
        weir_sys::memory::give_back();
    }

    /// Whether the first configuration is starting, or another one or another weir is about to take over.
    fn is_changing(&self) -> bool {
        !self.current.is_serving()
            || self.next.is_some()
            || self.handing.is_some()
            || self.roles.starting.is_some()
    }

    /// Changes what is visible outside: the last step before a configuration serves. If a part of it fails, all is as before.
    fn put_in_force(&mut self, next: &mut Generation) -> Result<(), Failure> {
        let changed = next.sockets.change_rights();
        let changed = changed.map_err(|problem| next.loaded.failure(vec![problem]))?;
        let (claim, groups) = (next.pid_file.take(), &next.plan.groups);
        if let Err(failure) = self.pid_file.move_to(claim, &next.loaded, groups) {
            changed.put_back();
            return Err(failure);
        }
        next.takes_effect();
        Ok(())
    }

    /// Removes a configuration that does not replace the current one, and all that was made for it.
    fn give_up(&mut self, mut next: Generation, cause: String, askers: &[Requester], now: Instant) {
        next.discard(now);
        self.old.push(next);
        self.reload_failed(cause, askers);
    }

    fn reload_failed(&mut self, cause: String, askers: &[Requester]) {
        let with_keys = self.generations().find(|g| g.certificates.is_some());
        let keeper = with_keys.map(|g| g.plan.keeper.clone());
        self.keeper.borrow_mut().give_back(keeper);
        self.counts.failed_reloads += 1;
        say_lines("reload failed, nothing was changed", &cause);
        self.notifier.ready();
        self.reload_is_over(askers, false, cause);
    }

    pub(super) fn reload_is_over(&mut self, askers: &[Requester], done: bool, text: String) {
        self.answer(askers, done, &text);
        self.last_reload = Some((Instant::now(), done, text));
    }

    /// Starts a waiting reload, if it can start now.
    pub(super) fn reload_again(&mut self) {
        if self.stopping == Stopping::No
            && !self.is_changing()
            && self.has_room()
            && let Some((how, askers)) = self.reload_again.take()
        {
            self.askers = askers;
            self.begin(how);
        }
    }

    /// Whether one more configuration may be finishing: each has a gateway and the workers that it still needs.
    fn has_room(&self) -> bool {
        let before = self.predecessor.as_ref().map_or(0, |p| p.old.len());
        self.old.len() + before < self.current.loaded.config.server.max_old_generations
    }

    /// Logs what a reload waits for.
    fn say_that_it_waits(&self) {
        let now = Instant::now();
        let limit = self.current.loaded.config.server.max_old_generations;
        log::warn!(
            "the reload waits: {} older configurations are still finishing requests ([server] max_old_generations = {limit}); it continues when one of them has ended",
            self.old.len()
        );
        for old in &self.old {
            let old = old.as_old(now);
            log::warn!(
                "configuration {} (gateway {}) has been finishing for {:.1} s, ends in at most {:.1} s: {}",
                old.number,
                old.gateway,
                old.since as f64 / 1e3,
                old.left as f64 / 1e3,
                said(&old.holding)
            );
        }
    }

    pub(super) fn reload(&mut self, mut how: Reload, asker: Option<Requester>) {
        if self.stopping != Stopping::No {
            return events::reloading();
        }
        if !self.is_in_charge {
            let text = "this weir is not in charge yet";
            return self.answer(asker.as_slice(), false, text);
        }
        if how != Reload::Upgrade && self.start.origin.program.is_replaced() {
            let program = self.start.origin.program.path.display();
            log::info!("{program} was replaced since this weir started: the reload is an upgrade");
            how = Reload::Upgrade;
        }
        if how == Reload::Upgrade && self.roles.starting.is_some() {
            let text = "an upgrade is already under way";
            log::warn!("{text}");
            return self.answer(asker.as_slice(), false, text);
        }
        let waits = !self.is_changing() && !self.has_room();
        if waits && self.reload_again.is_none() {
            self.say_that_it_waits();
        }
        if waits || self.is_changing() {
            let (again, askers) = self.reload_again.get_or_insert((how, Vec::new()));
            *again = how.max(*again);
            match (asker, askers.len() < MAX_ASKERS) {
                (Some(asker), false) => self.answer(&[asker], false, "too many such commands"),
                (asker, _) => askers.extend(asker),
            }
            return;
        }
        self.askers.extend(asker);
        self.begin(how);
    }

    fn begin(&mut self, how: Reload) {
        events::reloading();
        match how {
            Reload::Upgrade => self.begin_upgrade(),
            how => self.begin_reload(how),
        }
    }

    /// Restarts everything if too many workers have crashed.
    pub(super) fn heed_emergency(&mut self) {
        let is_emergency = self.current.pools.take_emergency();
        if is_emergency && self.stopping == Stopping::No && !self.is_changing() {
            self.begin_reload(Reload::Anew);
        }
    }

    fn begin_reload(&mut self, how: Reload) {
        self.notifier.reloading();
        let now = Instant::now();
        match self.prepare_next(how, now) {
            Ok(next) => self.next = Some(next),
            Err(failure) => {
                let askers = std::mem::take(&mut self.askers);
                self.reload_failed(failure.message, &askers);
            }
        }
    }

    fn prepare_next(&mut self, how: Reload, now: Instant) -> Result<Generation, Failure> {
        let text = match (&self.start.file, &self.start.fpm_mode) {
            (_, Some(fpm_mode)) => (fpm_mode.reread)().map_err(Failure::configuration)?,
            (Some(path), None) => fs::read_to_string(path)
                .map_err(|error| Failure::configuration(format!("{}: {error}", self.start.name)))?,
            (None, None) => self.start.text.clone(),
        };
        let loaded = Loaded::parse(&self.start, text)?;
        let plan = make_plan(&loaded, self.inherited)?;
        let warnings = plan_warnings(&loaded, &plan);
        self.masters.begin_look(now);
        self.generations = self.generations.wrapping_add(1);
        let shared = Shared {
            keeper: &self.keeper,
            certificates: self.current.certificates.as_ref(),
            boots: true,
            waits_for_workers: self.start.fpm_mode.is_some(),
            may_wait: false,
            pid_file: self.pid_file.parts().map(|(path, _)| path),
            sockets: &self.names,
            admin: Some(&self.current.admin),
            addresses: self.addresses.clone(),
            before: Before {
                pools: Some(&self.current.pools),
                keep: how == Reload::Keep,
                of_all: self.start.fpm_mode.is_some(),
            },
            masters: &self.masters,
        };
        let mut next = Generation::prepare(self.generations, (loaded, plan), shared, now)?;
        warnings.iter().for_each(|warning| log::warn!("{warning}"));
        next.boot(now);
        Ok(next)
    }

    pub(super) fn abandon_next(&mut self, now: Instant) {
        let askers = std::mem::take(&mut self.askers);
        let again = self.reload_again.take();
        let askers = askers
            .into_iter()
            .chain(again.into_iter().flat_map(|(_, askers)| askers));
        self.answer(&askers.collect::<Vec<_>>(), false, "weir is stopping");
        if let Some(mut next) = self.next.take() {
            next.discard(now);
            self.old.push(next);
        }
    }
}

/// A configuration that serves, while the one before stops accepting.
pub(super) struct Handing {
    /// The one before.
    from: u32,
    /// Then it is said anyway.
    pub(super) until: Instant,
    /// The sockets of the one before.
    inherited: Vec<(Address, RawFd)>,
    /// Operators who wait for the result.
    askers: Vec<Requester>,
}

/// How long a gateway may take to stop accepting.
pub(super) const LONGEST_CLOSE: Duration = Duration::from_secs(5);

/// Maximum number of operators who wait for a reload.
const MAX_ASKERS: usize = 64;
