//! The life of a pool's master: it is started, restarted beside the running one, and warmed up from that one.
//!
//! ```text
//! due ──► Boot ── ready ──► List ── the old master's scripts ──► Warm ── compiled ──► current
//!          └─ fails: again later, or the old one continues           (List and Warm only if there is an old one)
//!              └─ Inherited ── the list of an earlier weir ──► Warm        (after an upgrade)
//! ```
//!
//! Until the new master is `current`, the old one forks workers. After that the gateway replaces the workers; the old
//! master ends when its last worker has ended.

mod ends;

use std::{
    os::fd::OwnedFd,
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

use weir_control::ToGateway;
use weir_observe::{error_log::tell, events};
use weir_sys::{memory, process::Exit};

use self::ends::{MOST_KILLED, NOT_LOADED, not_loaded};
use super::{
    Context, Kind, Pool, about_pool, next_number,
    on_demand::OnDemand,
    zygote::{self, Zygote},
};
use crate::{
    children::{
        gateway::{Lifetime, back_off, describe_pause},
        oom::KILLED,
    },
    php::{Logs, MasterId, Masters, Report, Spec, Task},
    upgrade::Inherited,
};

/// A pool's master, and the next master, which will replace it.
#[derive(Debug)]
pub(super) struct Php {
    /// What the next master is started with.
    pub(super) spec: Rc<Spec>,
    pub(super) logs: Logs,
    /// The master that forks workers.
    current: Option<MasterId>,
    /// The process that workers are forked from; `None`: each boots for itself, or has nothing to boot.
    pub(super) zygote: Option<Zygote>,
    next: Option<Renewal>,
    /// Masters whose last workers are finishing, with the time when they are killed.
    old: Vec<(MasterId, Instant)>,
    /// When to start a master; `None` while there is one, and while a pool on demand is cold.
    due: Option<Instant>,
    /// The start that is due waits until fewer masters load PHP.
    waits_for_turn: bool,
    /// `None`: the pool always has a master.
    pub(super) on_demand: Option<OnDemand>,
    /// Number of masters in a row that died before they forked a worker, or could not load PHP.
    failures: u32,
    /// Number of masters in a row that were killed while they loaded PHP.
    killed: u32,
    /// Whether the present master has forked a worker.
    pub(super) has_forked: bool,
    /// Whether the last master lived only for a short time.
    was_short: bool,
    since: Instant,
    /// The PHP version of the current master, and whether answers may name it.
    pub(super) version: (String, bool),
    /// Who loaded PHP for the current master; see [`Masters::loader`].
    pub(super) loader: (u32, String),
    /// The master of the previous configuration: its scripts are compiled for the new one.
    warm_from: Option<MasterId>,
    /// Another restart was requested during a restart; with the numbers of the requests.
    again: Option<Vec<u32>>,
    trial: Trial,
    /// When to check whether a site's root is still the same folder; `None`: not watched.
    look: Option<Instant>,
    /// How long the workers of an old master may take to finish.
    grace: Duration,
}

/// What the configuration says about a pool's masters.
pub(super) struct MasterRules {
    /// How long the workers of an old master may take to finish.
    pub(super) grace: Duration,
    /// Whether PHP is loaded only when it is needed.
    pub(super) on_demand: Option<OnDemand>,
}

/// Whether the pool belongs to a configuration on trial.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trial {
    /// The pool serves: a failed master is retried.
    Over,
    /// A failed master ends the trial.
    On,
    /// The trial has failed.
    Failed(String),
}

/// A new master that is being prepared.
#[derive(Debug)]
struct Renewal {
    master: MasterId,
    spec: Rc<Spec>,
    version: (String, bool),
    stage: Stage,
    /// It has reported that PHP cannot be loaded; with the reason.
    failed: Option<String>,
    /// When the stage is given up.
    until: Instant,
    /// The numbers of the requests for it.
    asked: Vec<u32>,
}

#[derive(Debug)]
enum Stage {
    /// The process loads PHP.
    Boot,
    /// A process of the old master writes its list of scripts.
    List {
        by: MasterId,
        number: u32,
        list: OwnedFd,
    },
    /// The list of an earlier weir is still to come.
    Inherited,
    /// A process of the new master compiles them.
    Warm { number: u32 },
}

/// The master that the pool had in the configuration before.
pub(super) struct EarlierMaster {
    /// The master that stays.
    pub(super) same: Option<MasterId>,
    /// The previous master, whether it stays or not.
    pub(super) last: Option<MasterId>,
    /// The version of its PHP, and whether answers may name it.
    pub(super) version: (String, bool),
    /// Which process loads PHP, if that is known.
    pub(super) loader: (u32, String),
}

impl Php {
    /// A pool whose master is the earlier one, or is started now and warmed up with the scripts of that. A pool on demand
    /// without an earlier master is cold.
    pub(super) fn new(
        spec: Rc<Spec>,
        logs: Logs,
        earlier: EarlierMaster,
        rules: MasterRules,
        now: Instant,
    ) -> Self {
        let EarlierMaster {
            same,
            last,
            version,
            loader,
        } = earlier;
        let is_cold = rules.on_demand.is_some() && last.is_none();
        Self {
            version,
            loader,
            look: spec.watch.then_some(now + LOOK),
            zygote: spec.zygote.then(|| Zygote::new(now)),
            spec,
            logs,
            current: same,
            next: None,
            old: Vec::new(),
            due: (same.is_none() && !is_cold).then_some(now),
            waits_for_turn: false,
            on_demand: rules.on_demand,
            failures: 0,
            killed: 0,
            has_forked: false,
            was_short: false,
            since: now,
            warm_from: last,
            again: None,
            trial: Trial::Over,
            grace: rules.grace,
        }
    }

    /// Whether it can fork workers.
    pub(super) fn has_master(&self) -> bool {
        self.current.is_some()
    }

    /// Whether a master is being prepared, or a start is due or has failed.
    pub(super) fn is_starting(&self) -> bool {
        self.next.is_some() || self.due.is_some() || matches!(self.trial, Trial::Failed(_))
    }

    /// When a master is to be started.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Its master ends when no other generation needs it.
    pub(super) fn forget_master(&mut self) {
        self.current = None;
        self.zygote = None;
        self.again = None;
    }

    pub(super) fn current(&self) -> Option<MasterId> {
        self.current
    }

    /// The masters that it needs, besides those of its workers.
    pub(super) fn masters(&self) -> Vec<MasterId> {
        let next = self.next.as_ref().map(|next| next.master);
        self.current.into_iter().chain(next).collect()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let stage = self.next.as_ref().map(|next| next.until);
        let look = self.look.filter(|_| self.may_look());
        let old = self.old.iter().map(|(_, until)| *until).min();
        let again = self.may_begin_again().then_some(self.since);
        // If it waits for its turn, the end of another start wakes the manager.
        let begins = [self.due, again].map(|time| time.filter(|_| !self.waits_for_turn));
        let idle = self.on_demand.as_ref().and_then(OnDemand::deadline);
        let times = [stage, look, old, idle];
        times.into_iter().chain(begins).flatten().min()
    }

    /// From now on a failed master is not retried, but reported ([`failure`](Self::failure)).
    pub(super) fn try_once(&mut self) {
        self.trial = Trial::On;
    }

    /// The trial is over: the pool serves.
    pub(super) fn trial_is_over(&mut self, now: Instant, masters: &mut Masters) {
        if let Some(master) = self.current {
            masters.write_to(master, &self.logs);
        }
        if let Trial::Failed(_) = std::mem::replace(&mut self.trial, Trial::Over) {
            self.due = Some(now);
        }
    }

    /// Stops checking the roots of sites.
    pub(super) fn watch_no_more(&mut self) {
        self.look = None;
    }

    pub(super) fn failure(&self) -> Option<&str> {
        match &self.trial {
            Trial::Failed(cause) => Some(cause),
            Trial::Over | Trial::On => None,
        }
    }

    /// Whether another restart was requested and can start now.
    fn may_begin_again(&self) -> bool {
        self.again.is_some() && self.may_look()
    }

    /// Whether there is a master, and no other one is being prepared.
    fn may_look(&self) -> bool {
        self.next.is_none() && self.current.is_some()
    }

    /// Whether the process with this number, forked by this master, belongs to the restart.
    fn is_helper(&self, master: MasterId, number: u32) -> bool {
        let Some(next) = &self.next else {
            return false;
        };
        match &next.stage {
            Stage::Boot | Stage::Inherited => false,
            Stage::List { by, number: n, .. } => (*by, *n) == (master, number),
            Stage::Warm { number: n } => (next.master, *n) == (master, number),
        }
    }
}

impl Pool {
    /// Restarts the pool: at once for a command, when a new master is ready for PHP. `asked` is told then.
    pub(super) fn renew(&mut self, asked: Option<u32>, context: &mut Context<'_>) {
        let Kind::Php(php) = &mut self.kind else {
            self.start_number += 1;
            let text = "restarting: its workers are replaced as they become free";
            context.news.extend(asked.map(|id| done(id, true, text)));
            return context.news.push(self.ready());
        };
        if php.is_cold() {
            let text = "no process to restart: the next request loads PHP";
            return context.news.extend(asked.map(|id| done(id, true, text)));
        }
        if php.next.is_some() {
            let again = php.again.get_or_insert_default();
            match again.len() < MAX_ASKED {
                true => again.extend(asked),
                false => context
                    .news
                    .extend(asked.map(|id| done(id, false, "too many such commands"))),
            }
            return;
        }
        self.begin(asked.into_iter().collect(), context);
    }

    /// As [`renew`](Self::renew), at the next tick.
    pub(super) fn renew_soon(&mut self, news: &mut Vec<ToGateway>) {
        match &mut self.kind {
            Kind::Php(php) if php.is_cold() => {}
            Kind::Php(php) => {
                php.again.get_or_insert_default();
            }
            Kind::Command(_) => {
                self.start_number += 1;
                news.push(self.ready());
            }
        }
    }

    /// Starts a master.
    fn begin(&mut self, asked: Vec<u32>, context: &mut Context<'_>) {
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        php.waits_for_turn = context.masters.are_loading(context.now) >= context.php_starts;
        if php.waits_for_turn {
            match php.current {
                Some(_) => php.again.get_or_insert_default().extend(asked),
                // It keeps its turn.
                None => php.due = php.due.or(Some(context.now)),
            }
            return;
        }
        php.due = None;
        let spec = Rc::new(php.spec.renewed());
        match context.masters.start(&spec, &php.logs) {
            Ok(master) => {
                php.next = Some(Renewal {
                    master,
                    spec,
                    version: Default::default(),
                    stage: Stage::Boot,
                    failed: None,
                    until: context.now + BOOT_LIMIT,
                    asked,
                });
            }
            Err(error) => {
                let cause = format!("{} cannot be started: {error}", spec.program.path.display());
                self.renewal_failed(cause, asked, context.now, context.news);
            }
        }
    }

    /// Starts a master if one is due, gives up stages that take too long, and checks the sites' roots.
    pub(super) fn tick_master(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        self.cool_down(now);
        let may_stay_cold = self.may_stay_cold();
        let is_asked = self.is_asked();
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        if php.is_cold() && is_asked {
            return self.begin(Vec::new(), context);
        }
        if php.due.is_some_and(|due| due <= now) {
            if may_stay_cold && php.warm_from.is_none() {
                php.due = None;
                php.waits_for_turn = false;
                return;
            }
            return self.begin(Vec::new(), context);
        }
        if php.next.as_ref().is_some_and(|next| next.until <= now) {
            return self.stage_is_over(true, context);
        }
        let waits = |next: &&Renewal| matches!(next.stage, Stage::Inherited);
        let has_come = |next: &Renewal| !context.masters.inherited.is_late(&next.spec.pool);
        if php.next.as_ref().filter(waits).is_some_and(has_come) {
            return self.stage_is_over(false, context);
        }
        let overdue = |(_, until): &&(MasterId, Instant)| *until <= now;
        let overdue: Vec<MasterId> = php.old.iter().filter(overdue).map(|(id, _)| *id).collect();
        if php.may_begin_again() {
            let asked = php.again.take().unwrap_or_default();
            return self.begin(asked, context);
        }
        if php.look.is_some_and(|look| look <= now) && php.may_look() {
            php.look = Some(now + LOOK);
            if php.spec.roots_have_moved() {
                tell!(
                    notice,
                    about_pool(&self.name),
                    "{} now leads to another folder: the pool is restarted",
                    php.spec.watched()
                );
                return self.begin(Vec::new(), context);
            }
        }
        self.end_old(&overdue, now, context.masters);
    }

    /// Removes old masters without workers, and kills the workers of those whose grace period is
    /// over.
    fn end_old(&mut self, overdue: &[MasterId], now: Instant, masters: &mut Masters) {
        for worker in &mut self.workers {
            if worker
                .master()
                .is_some_and(|master| overdue.contains(&master))
            {
                worker.kill(events::Ending::Requested, &self.name, masters);
            }
        }
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        let has_workers = |id: MasterId| self.workers.iter().any(|w| w.master() == Some(id));
        php.old.retain(|(id, _)| has_workers(*id));
        for (_, until) in php.old.iter_mut().filter(|(_, until)| *until <= now) {
            *until = now + php.grace.max(LOOK);
        }
    }

    /// Handles a report of a master about itself.
    pub(super) fn hear_master(&mut self, id: MasterId, report: &Report, context: &mut Context<'_>) {
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        let is_next = php.next.as_ref().is_some_and(|next| next.master == id);
        match report {
            Report::Ready {
                version, exposed, ..
            } => {
                let boots = |next: &&mut Renewal| is_next && matches!(next.stage, Stage::Boot);
                if let Some(next) = php.next.as_mut().filter(boots) {
                    next.version = (version.clone(), *exposed);
                    php.loader = context.masters.loader(&next.spec, Some(next.master));
                    self.stage_is_over(false, context);
                }
            }
            Report::Failed(cause) => {
                if let Some(next) = php.next.as_mut().filter(|_| is_next) {
                    // It is about to end. Its output has more details.
                    next.failed = Some(cause.clone());
                    next.until = context.now + LAST_WORDS;
                }
            }
            Report::OpcacheIsFull if php.current == Some(id) && php.may_look() => {
                let is_new = context.now.saturating_duration_since(php.since) < OPCACHE_PAUSE;
                if php.spec.boot_limit.is_some() && php.again.is_none() && !is_new {
                    tell!(
                        warning,
                        about_pool(&self.name),
                        "OPcache must clear its memory, because of opcache_reset() or because it is full: the pool is \
                         restarted, and its workers are replaced as they become free; if this happens often, set opcache_memory"
                    );
                    self.renew_soon(context.news);
                }
            }
            Report::Exited { number, .. } | Report::ForkFailed { number, .. }
                if php.is_helper(id, *number) =>
            {
                self.stage_is_over(false, context);
            }
            _ => {}
        }
    }

    /// The new master has finished a stage, or has `failed` to do so in time. If warming up fails, the restart
    /// continues without it.
    fn stage_is_over(&mut self, failed: bool, context: &mut Context<'_>) {
        let Context {
            now, masters, news, ..
        } = context;
        let now = *now;
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        let source = php.current.or(php.warm_from);
        let Some(next) = &mut php.next else {
            return;
        };
        let stage = std::mem::replace(&mut next.stage, Stage::Boot);
        let (stage, limit) = match stage {
            Stage::Boot if failed => {
                let late = || format!("PHP is not loaded after {} s", BOOT_LIMIT.as_secs());
                let cause = next.failed.take().unwrap_or_else(late);
                return self.give_up(cause, now, news);
            }
            Stage::Boot => {
                let begun = match list_scripts(source, &next.spec, masters) {
                    Some(stage) => Some(stage),
                    None => match masters.inherited.take(&next.spec) {
                        Inherited::Nothing => None,
                        Inherited::Later => Some(Stage::Inherited),
                        Inherited::Here(before, list) => warm(next, &before, list, masters),
                    },
                };
                let limit = match &begun {
                    Some(Stage::Warm { .. }) => WARM_LIMIT,
                    _ => LIST_LIMIT,
                };
                match begun {
                    Some(stage) => (stage, limit),
                    None => return self.renewed(now, news),
                }
            }
            Stage::Inherited => {
                let warms = match masters.inherited.take(&next.spec) {
                    Inherited::Here(before, list) => warm(next, &before, list, masters),
                    Inherited::Nothing | Inherited::Later => None,
                };
                match warms {
                    Some(stage) => (stage, WARM_LIMIT),
                    None => return self.renewed(now, news),
                }
            }
            Stage::List { by, list, .. } if !failed => {
                let before = masters.spec(by).map(|spec| spec.roots.clone());
                match warm(next, &before.unwrap_or_default(), list, masters) {
                    Some(stage) => (stage, WARM_LIMIT),
                    None => return self.renewed(now, news),
                }
            }
            Stage::List { by, number, .. } => {
                masters.kill(by, number);
                return self.renewed(now, news);
            }
            Stage::Warm { number } => {
                if failed {
                    masters.kill(next.master, number);
                }
                return self.renewed(now, news);
            }
        };
        next.stage = stage;
        next.until = now + limit;
    }

    /// The new master replaces the old one.
    fn renewed(&mut self, now: Instant, news: &mut Vec<ToGateway>) {
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        let Some(next) = php.next.take() else {
            return;
        };
        let was_cold = php.on_demand.is_some() && php.current.is_none() && self.start_number > 0;
        if let Some(before) = php.current.replace(next.master) {
            php.old.push((before, now + php.grace));
            php.failures = 0;
        }
        php.spec = next.spec;
        php.zygote = php.spec.zygote.then(|| Zygote::new(now));
        if php.zygote.is_some() {
            news.push(zygote::tell_gateway(self.id, 0, ""));
        }
        php.has_forked = false;
        php.killed = 0;
        php.version = next.version;
        php.since = now;
        php.warm_from = None;
        // If the pool had no master, there are no workers to replace.
        self.start_number += u32::from(!was_cold);
        self.down = false;
        let text = format!(
            "PHP {} is loaded: new workers replace the old ones",
            php.version.0
        );
        let program = &php.spec.program;
        let profile = weir_machine::php::apparmor_profile(&program.path);
        events::php_loaded(&self.name, &php.version.0, profile.as_deref());
        news.push(self.ready());
        news.extend(self.tell_loader());
        news.extend(next.asked.into_iter().map(|id| done(id, true, &text)));
    }

    /// The message that tells the gateway which process loaded PHP for the pool.
    fn tell_loader(&self) -> Option<ToGateway> {
        let Kind::Php(php) = &self.kind else {
            return None;
        };
        let (template, own) = php.loader.clone();
        let pools = vec![self.id];
        Some(ToGateway::PhpLoad {
            template,
            own,
            pools,
        })
    }

    /// A master has ended that has no workers any more.
    pub(super) fn master_gone(
        &mut self,
        id: MasterId,
        exit: Exit,
        words: &str,
        context: &mut Context<'_>,
    ) {
        let now = context.now;
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        let said = match words.is_empty() {
            true => String::new(),
            false => format!("; its message: {words}"),
        };
        if let Some(next) = php.next.as_mut().filter(|next| next.master == id) {
            let is_killed = exit == KILLED && next.failed.is_none();
            let cause = match next.failed.take() {
                Some(cause) => cause + &said,
                None if NOT_LOADED.contains(&exit) => {
                    let program = &next.spec.program;
                    not_loaded(&program.path, &program.object, words)
                }
                None => format!("it ended before PHP was loaded: {exit}{said}"),
            };
            let serves = php.current.is_none() && php.trial == Trial::Over;
            if is_killed && serves && php.killed < MOST_KILLED {
                // A kill says nothing about PHP. Requests wait for the next master, as if this one had been killed
                // later.
                php.killed += 1;
                let asked = php.next.take().map_or(Vec::new(), |next| next.asked);
                let about = about_pool(&self.name);
                tell!(
                    error,
                    about,
                    "the pool's PHP master was killed: {cause}; it starts again at once"
                );
                return self.begin(asked, context);
            }
            return self.give_up(cause, now, context.news);
        }
        php.old.retain(|(old, _)| *old != id);
        if php.current != Some(id) {
            return;
        }
        php.current = None;
        php.zygote = None;
        let lists = |next: &Renewal| matches!(next.stage, Stage::List { by, .. } if by == id);
        let lists = php.next.as_ref().is_some_and(lists);
        let lived = Lifetime {
            time: now.saturating_duration_since(php.since),
            served: php.has_forked,
        };
        let pause = lived.pause(&mut php.failures, &mut php.was_short, MAX_PAUSE);
        // If a master is already being started, it will be ready soon.
        php.due = php.next.is_none().then_some(now + pause);
        let again = match php.due {
            Some(_) => describe_pause(pause),
            None => "at once".into(),
        };
        let why = match self.oom.ended(exit, now) {
            true => " (the kernel killed it because memory ran out)",
            false => "",
        };
        tell!(
            error,
            about_pool(&self.name),
            "the pool's PHP master died, and its workers with it: {exit}{why}, after {:.1} s; it starts again {again}{said}",
            lived.time.as_secs_f64()
        );
        if lists {
            self.stage_is_over(true, context);
        }
    }

    /// The new master could not be started.
    fn give_up(&mut self, cause: String, now: Instant, news: &mut Vec<ToGateway>) {
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        let asked = php.next.take().map_or(Vec::new(), |next| next.asked);
        self.renewal_failed(cause, asked, now, news);
    }

    fn renewal_failed(
        &mut self,
        cause: String,
        asked: Vec<u32>,
        now: Instant,
        news: &mut Vec<ToGateway>,
    ) {
        let Kind::Php(php) = &mut self.kind else {
            return;
        };
        let pause = back_off(php.failures, MAX_PAUSE);
        php.failures += 1;
        news.extend(asked.into_iter().map(|id| done(id, false, &cause)));
        let about = about_pool(&self.name);
        if php.current.is_some() {
            // Tried again when somebody requests it, or while the root is still a different one.
            php.look = php.look.map(|_| now + pause.max(LOOK));
            return tell!(
                error,
                about,
                "PHP cannot be restarted, the pool stays as it is: {cause}"
            );
        }
        if php.trial != Trial::Over {
            php.trial = Trial::Failed(cause);
            return;
        }
        php.due = Some(now + pause);
        let again = describe_pause(pause);
        tell!(
            error,
            about,
            "PHP cannot be started: {cause}; again {again}"
        );
        news.extend(self.cannot_start());
        if !self.down {
            self.down = true;
            news.push(self.is_down(cause));
        }
    }
}

/// Makes the running master list its scripts; `None`: there is none, or it runs as another user.
fn list_scripts(source: Option<MasterId>, spec: &Spec, masters: &mut Masters) -> Option<Stage> {
    let by = source.filter(|id| {
        let before = masters.spec(*id);
        before.is_some_and(|before| before.identity == spec.identity)
    })?;
    let list = memory::empty(c"weir-scripts").ok()?;
    let number = next_number();
    masters.fork(by, number, Task::List, vec![list.try_clone().ok()?]);
    Some(Stage::List { by, number, list })
}

/// Orders the new master to compile the scripts of a list. The scripts had these roots. `None`: there is no list.
fn warm(
    next: &Renewal,
    before: &[(String, PathBuf)],
    list: OwnedFd,
    masters: &mut Masters,
) -> Option<Stage> {
    if !memory::len(&list).is_ok_and(|len| (1..=MAX_LIST).contains(&len)) {
        return None;
    }
    let moves = next.spec.moves(before);
    let number = next_number();
    masters.fork(next.master, number, Task::Warm(&moves), vec![list]);
    Some(Stage::Warm { number })
}

fn done(id: u32, done: bool, text: &str) -> ToGateway {
    ToGateway::ActionDone {
        id,
        done,
        text: text.to_owned(),
    }
}

/// A master that has not loaded PHP after this time counts as failed.
const BOOT_LIMIT: Duration = Duration::from_secs(30);

/// How long a master that could not load PHP may take to end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long listing the scripts may take.
const LIST_LIMIT: Duration = Duration::from_secs(3);

/// How long compiling them may take; the other scripts are compiled at their first request.
const WARM_LIMIT: Duration = Duration::from_secs(10);

/// A pool is restarted because of OPcache only when its master is at least this old.
const OPCACHE_PAUSE: Duration = Duration::from_secs(5);

/// Maximum size of the list of scripts, bytes: 4,000 paths of 4 KiB.
const MAX_LIST: u64 = 16 << 20;

/// Maximum pause between two starts.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// How often watched roots are checked.
const LOOK: Duration = Duration::from_secs(1);

/// Maximum number of requests that wait for a restart.
const MAX_ASKED: usize = 64;

#[cfg(test)]
mod tests;
