//! The workers of one configuration's pools: started when the gateway requests them, never more than a pool may have.
//!
//! The gateway decides how many it wants ([`Pools::start_workers`]). This module enforces the limits: `max_children`,
//! `process_max`, and the rate of new processes ([`quota`]). For each requested worker one message is sent: it has
//! started (`Worker`), or it could not be started (`StartFailed`). A worker that ends is reported (`WorkerExited`),
//! and replaced only when the gateway requests it.
//!
//! ```text
//! asked for ──► starting ── accepts, or is forked ──► given ── retired ──► leaving ──► gone
//!                   └── fails, ends: StartFailed        └── ends, is killed ──────────┘
//! ```
//!
//! They are started in two ways: [`command`] starts a separate process for each, [`php`] makes the pool's master
//! fork.
//!
//! When a gateway dies, workers of commands are kept for the next one. It gets them when they accept a new
//! connection, so a worker that is still busy with a script of the dead gateway does not look free. PHP workers see
//! the end of their stream and end. One that does not is killed after the time that scripts may run.

mod command;
mod crashes;
mod master;
pub mod memory;
mod memory_left;
mod on_demand;
mod php;
mod pool;
mod quota;
mod roots;
mod worker;
mod zygote;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    rc::Rc,
    time::{Duration, Instant},
};

use weir_config::{Config, Pm};
use weir_control::{MOST_READY, ToGateway, WorkerRequest};
use weir_observe::{
    error_log::{about_pool, about_worker as about, tell},
    events::{self, Ending, Stream},
};
use weir_sys::process::Exit;

use self::{
    crashes::Crashes,
    master::{EarlierMaster, MasterRules, Php},
    on_demand::OnDemand,
    quota::Quota,
    worker::{Claim, Link, Started, Worker},
};
use crate::{
    children::{measure::PoolPids, oom::OomKills},
    generation::plan::{Plan, Problem, Program, Runs},
    output::{OutputLog, slow_log::SlowLog},
    php::{Load, Loading, Logs, MasterEvent, MasterId, Masters},
};
pub(super) use roots::resolve;

/// The pools of one configuration whose workers weir runs.
#[derive(Debug)]
pub(super) struct Pools {
    list: Vec<Pool>,
    /// Maximum of workers of all pools; 0: only each pool's own limit.
    process_max: usize,
    /// Whether it was logged that this limit is reached.
    process_max_told: bool,
    /// How many masters may load PHP at the same time.
    php_starts: usize,
    /// How often a pool has begun to want workers: numbers the turns.
    asked: u64,
    stopping: Stopping,
    /// When to measure memory; `None`: no pool depends on it.
    look: Option<Instant>,
    /// The kernel's count of processes killed for lack of memory, at the last check.
    killed: u64,
    /// Messages for the gateway.
    news: Vec<ToGateway>,
}

/// The pools of the configuration that is being replaced.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before<'a> {
    /// `None`: there is none.
    pub(super) pools: Option<&'a Pools>,
    /// Whether PHP masters with unchanged settings are kept.
    pub(super) keep: bool,
    /// Whether crashes in any pool restart all pools.
    pub(super) of_all: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    No,
    /// The workers were asked to end.
    Requested,
    /// The workers were killed.
    Killed,
}

#[derive(Debug)]
struct Pool {
    /// Index into `Config::pools`.
    id: u16,
    name: String,
    /// Increases with each restart of the pool, starting at 1; 0: not started yet.
    start_number: u32,
    quota: Quota,
    /// `max_children` of the configuration.
    configured: usize,
    workers: Vec<Worker>,
    kind: Kind,
    /// A worker that is still busy with a dead gateway's script after this time counts as stuck.
    patience: Duration,
    /// Whether the gateway was told that no worker can start.
    down: bool,
    /// If the number of workers depends on memory: the assumed cost of a worker before any was measured, bytes.
    auto: Option<u64>,
    emergency: Rc<RefCell<Crashes>>,
    /// How many workers must be replaced: they ended by themselves, or have served their maximum of requests.
    lost: usize,
    /// The gateway finishes what runs, and starts nothing more.
    is_finishing: bool,
    log: Rc<OutputLog>,
    oom: Rc<OomKills>,
}

/// What a step of a pool works with.
struct Context<'c> {
    now: Instant,
    masters: &'c mut Masters,
    /// Messages for the gateway.
    news: &'c mut Vec<ToGateway>,
    /// How many masters may load PHP at the same time.
    php_starts: usize,
}

#[derive(Debug)]
enum Kind {
    Command(Rc<Program>),
    Php(Box<Php>),
}

/// For a pool that has not loaded PHP yet: PHP's version, and whether answers may name it. An empty version: not known.
fn of_cold_php(settings: &weir_config::Pool) -> (String, bool) {
    let (version, exposed) = weir_machine::php::tried();
    if version.is_empty() {
        return (version, false);
    }
    let mut php = settings.php().into_iter().flat_map(|php| &php.settings);
    let last = php.rfind(|setting| setting.name == "expose_php");
    let is_on = |value: &str| ["1", "on", "yes", "true"].contains(&&*value.to_ascii_lowercase());
    (
        version,
        last.map_or(exposed, |setting| is_on(&setting.value)),
    )
}

impl Pools {
    /// All pools of `plan`, without workers yet.
    pub(super) fn new(
        now: Instant,
        config: &Config,
        plan: &Plan,
        before: Before<'_>,
        masters: &Masters,
    ) -> Result<Self, Vec<Problem>> {
        let pools = (0..).zip(config.pools.iter().zip(&plan.runs));
        let mut problems = Vec::new();
        let earlier = before.pools.map(Pools::masters_by_name);
        let earlier = earlier.unwrap_or_default();
        let of_all = before.of_all.then(|| {
            let mut crashes = Crashes::new(&config.server, now);
            crashes.of_all = true;
            Rc::new(RefCell::new(crashes))
        });
        let list = pools.filter_map(|(id, (settings, runs))| {
            let runs = runs.clone()?;
            let workers = settings.workers()?;
            let mut note = |problem| problems.push(problem);
            let log = OutputLog::open(&settings.name, workers, &config.log, &plan.log_files)
                .map_err(&mut note);
            let log = Rc::new(log.ok()?);
            let kind = match runs {
                Runs::Command(program) => Kind::Command(program),
                Runs::Php(spec) => {
                    let last = earlier.get(settings.name.as_str()).copied();
                    let is_same = |id: &MasterId| before.keep && masters.does(*id, &spec);
                    let same = last.filter(is_same);
                    let rules = MasterRules {
                        grace: config.server.shutdown_timeout,
                        on_demand: workers.pm.may_be_cold().then(|| {
                            OnDemand::new(
                                settings
                                    .php()
                                    .map_or(Duration::ZERO, |php| php.idle_timeout),
                            )
                        }),
                    };
                    let slow = SlowLog::open(&settings.name, settings.php()?, &plan.log_files);
                    let slow = slow.map_err(note);
                    let logs = Logs {
                        output: log.clone(),
                        slow: Rc::new(slow.ok()?),
                    };
                    let version = same.and_then(|master| masters.version(master).cloned());
                    let earlier = EarlierMaster {
                        same,
                        last,
                        version: version.unwrap_or_else(|| of_cold_php(settings)),
                        loader: masters.loader(&spec, same),
                    };
                    Kind::Php(Box::new(Php::new(spec, logs, earlier, rules, now)))
                }
            };
            Some(Pool {
                id,
                name: settings.name.clone(),
                start_number: match &kind {
                    Kind::Php(php) if !php.is_ready() => 0,
                    _ => 1,
                },
                quota: Quota::new(workers.max_children, workers.self_call_workers, now),
                configured: workers.max_children,
                workers: Vec::new(),
                kind,
                patience: match settings.request_terminate_timeout {
                    Duration::ZERO => settings.read_timeout,
                    limit => limit,
                },
                down: false,
                auto: matches!(workers.pm, Pm::Auto { .. }).then_some(workers.worker_memory),
                emergency: match &of_all {
                    Some(crashes) => Rc::clone(crashes),
                    None => Rc::new(RefCell::new(Crashes::new(&config.server, now))),
                },
                lost: 0,
                is_finishing: false,
                log,
                oom: masters.oom.clone(),
            })
        });
        let list: Vec<Pool> = list.collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            look: list.iter().any(|pool| pool.auto.is_some()).then_some(now),
            killed: memory::killed(),
            list,
            process_max: config.server.process_max,
            process_max_told: false,
            php_starts: match config.server.php_starts {
                0 => std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2)),
                starts => starts,
            },
            asked: 0,
            stopping: Stopping::No,
            news: Vec::new(),
        })
    }

    /// Starts what is due, checks which workers have accepted, and kills workers that do not end.
    pub(super) fn tick(&mut self, now: Instant, masters: &mut Masters) {
        if self.stopping == Stopping::No {
            let mut context = Context {
                now,
                masters,
                news: &mut self.news,
                php_starts: self.php_starts,
            };
            let turns = on_demand::turns(&self.list);
            for index in &turns {
                self.list[*index].tick_master(&mut context);
                self.list[*index].tick_zygote(&mut context);
            }
            self.start_wanted(&turns, now, masters);
            for pool in &mut self.list {
                pool.look(now, &mut self.news);
            }
            if self.look.is_some_and(|look| look <= now) {
                self.look = Some(now + MEMORY_LOOK);
                self.measure(now);
            }
        }
        for pool in &mut self.list {
            pool.kill_overdue(now, masters);
            pool.end_stuck_masters(now, masters);
            pool.end_stuck_boots(now, masters);
        }
    }

    /// The messages for the gateway since the last call.
    pub(super) fn take_news(&mut self) -> Vec<ToGateway> {
        std::mem::take(&mut self.news)
    }

    /// A new gateway has started: it knows no workers, and is told from which pools it may request some.
    pub(super) fn serve_new_gateway(&mut self, now: Instant) {
        self.news.clear();
        if self.look.is_some() {
            // The gateway must know how many workers fit into memory before it requests any.
            self.measure(now);
        }
        for pool in &mut self.list {
            pool.quota.wanted = 0;
            for worker in &mut pool.workers {
                worker.forget(now, pool.patience);
            }
            if pool.down {
                self.news.push(pool.is_down("no worker can start".into()));
            }
            self.news.extend(pool.tell_zygote());
        }
        self.tell_ready();
    }

    /// Tells the gateway from which pools it may request workers, and who loads their PHP: with a thousand pools, in a few messages.
    fn tell_ready(&mut self) {
        let mut alike: BTreeMap<_, Vec<u16>> = BTreeMap::new();
        for pool in self.list.iter().filter(|pool| pool.is_ready()) {
            alike.entry(pool.readiness()).or_default().push(pool.id);
        }
        for ((start_number, (version, exposed)), pools) in alike {
            let messages = pools.chunks(MOST_READY).map(|pools| ToGateway::PoolsReady {
                start_number,
                version: version.to_owned(),
                exposed,
                pools: pools.to_vec(),
            });
            self.news.extend(messages);
        }
        let mut alike: BTreeMap<_, Vec<u16>> = BTreeMap::new();
        for pool in &self.list {
            if let Kind::Php(php) = &pool.kind {
                alike.entry(&php.loader).or_default().push(pool.id);
            }
        }
        for ((template, own), pools) in alike {
            let messages = pools.chunks(MOST_READY).map(|pools| ToGateway::PhpLoad {
                template: *template,
                own: own.clone(),
                pools: pools.to_vec(),
            });
            self.news.extend(messages);
        }
    }

    /// The gateway requests more workers.
    pub(super) fn start_workers(&mut self, now: Instant, pool: u16, count: u32) {
        let Some(pool) = self.list.iter_mut().find(|p| p.id == pool) else {
            return;
        };
        if self.stopping != Stopping::No {
            return;
        }
        let granted = pool.quota.ask(count, pool.live());
        let kept = pool.claim(granted, now);
        if granted > kept && pool.quota.wanted == 0 {
            self.asked += 1;
            pool.quota.turn = self.asked;
        }
        pool.quota.wanted += granted - kept;
        let refused = count.saturating_sub(granted as u32);
        if refused > 0 {
            self.news.push(ToGateway::StartFailed {
                pool: pool.id,
                count: refused,
            });
        }
    }

    /// A worker is not needed any more; `spent`: another one replaces it.
    pub(super) fn retire(&mut self, now: Instant, pool: u16, worker: u32, spent: bool) {
        if let Some((pool, index)) = self.find(pool, worker) {
            let pool = &mut self.list[pool];
            let why = match pool.workers[index].start_number == pool.start_number {
                true if spent => Ending::Spent,
                true => Ending::Idle,
                false => Ending::Requested,
            };
            if why == Ending::Spent {
                pool.lost = (pool.lost + 1).min(pool.quota.most);
            }
            pool.workers[index].leave(&pool.name, why, now + RETIRE_LIMIT);
        }
    }

    /// Whether so many workers have crashed that all of them must be restarted; true only once.
    pub(super) fn take_emergency(&mut self) -> bool {
        let take = |pool: &Pool| std::mem::take(&mut pool.emergency.borrow_mut().reached);
        self.list.iter().any(take)
    }

    /// Kills a worker at the gateway's request.
    pub(super) fn kill(&mut self, pool: u16, worker: u32, masters: &mut Masters) {
        if let Some((pool, index)) = self.find(pool, worker) {
            let pool = &mut self.list[pool];
            let worker = &mut pool.workers[index];
            worker.kill(Ending::Killed, &pool.name, masters);
        }
    }

    /// Ends a worker whose request ran too long, as PHP-FPM does; a worker that is not our PHP is killed.
    pub(super) fn terminate(
        &mut self,
        pool: u16,
        worker: u32,
        request: &WorkerRequest,
        masters: &mut Masters,
    ) {
        let found = self.find(pool, worker);
        if let Some((pool, index)) = found {
            let pool = &self.list[pool];
            events::request_terminated(
                &request.running(&pool.name, pool.workers[index].pid.unwrap_or_default()),
            );
        }
        let link = found.map(|(pool, index)| &self.list[pool].workers[index].link);
        let Some((Link::Php(link), (at, index))) = link.zip(found) else {
            return self.kill(pool, worker, masters);
        };
        masters.terminate(link.master, worker);
        let worker = &mut self.list[at].workers[index];
        if worker.why == Ending::Unasked {
            worker.why = Ending::Killed;
        }
        let until = Instant::now() + TERMINATE_LIMIT;
        worker.until = Some(worker.until.map_or(until, |before| before.min(until)));
    }

    /// Makes a new connection to a worker for the gateway, which gets it when the worker accepts. A worker that has
    /// ended is ignored: the gateway will be told.
    pub(super) fn connect(&mut self, now: Instant, pool: u16, worker: u32) {
        if let Some((pool, index)) = self.find(pool, worker) {
            self.list[pool].workers[index].reconnect(now);
        }
    }

    /// A worker must write its position to the slow log.
    pub(super) fn trace(
        &mut self,
        pool: u16,
        worker: u32,
        request: &WorkerRequest,
        masters: &mut Masters,
    ) {
        if let Some((pool, index)) = self.find(pool, worker) {
            let worker = &self.list[pool].workers[index];
            if let (Link::Php(link), Some(pid)) = (&worker.link, worker.pid) {
                events::request_slow(
                    &request.running(&self.list[pool].name, worker.pid.unwrap_or_default()),
                );
                events::tracing(&self.list[pool].name, pid);
                masters.trace(link.master, worker.number);
            }
        }
    }

    /// A process has ended. `false`: it was not a worker of these pools.
    pub(super) fn exited(&mut self, now: Instant, pid: u32, exit: Exit) -> bool {
        for pool in &mut self.list {
            let is_it = |worker: &Worker| worker.is_command() && worker.pid == Some(pid);
            if let Some(index) = pool.workers.iter().position(is_it) {
                pool.exited(index, exit, now, &mut self.news);
                return true;
            }
        }
        false
    }

    /// A master has sent a report, or has ended.
    pub(super) fn hear(&mut self, now: Instant, news: &MasterEvent, masters: &mut Masters) {
        let stopping = self.stopping != Stopping::No;
        let mut context = Context {
            now,
            masters,
            news: &mut self.news,
            php_starts: self.php_starts,
        };
        for pool in &mut self.list {
            pool.hear(news, stopping, &mut context);
        }
    }

    /// The masters of PHP that are in use.
    pub(super) fn current_masters(&self) -> Vec<MasterId> {
        let current = |pool: &Pool| match &pool.kind {
            Kind::Php(php) => php.current(),
            Kind::Command(_) => None,
        };
        self.list.iter().filter_map(current).collect()
    }

    /// Restarts a pool beside its old workers; `asked` is told when that is done.
    pub(super) fn renew(&mut self, name: &str, asked: u32, now: Instant, masters: &mut Masters) {
        match self.list.iter_mut().find(|pool| pool.name == name) {
            Some(pool) => {
                let mut context = Context {
                    now,
                    masters,
                    news: &mut self.news,
                    php_starts: self.php_starts,
                };
                pool.renew(Some(asked), &mut context);
            }
            None => self.news.push(ToGateway::ActionDone {
                id: asked,
                done: false,
                text: format!("weir runs no workers for pool \"{name}\""),
            }),
        }
    }

    /// Sets the maximum of workers of a pool until the next reload; the error says why it cannot be set.
    pub(super) fn set_max_children(&mut self, id: u16, most: usize) -> Result<(), String> {
        let Some(pool) = self.list.iter_mut().find(|pool| pool.id == id) else {
            return Err("weir does not run its workers: set maxconn instead".into());
        };
        // A compromised gateway can request this, too.
        let highest = pool.configured.saturating_mul(RAISE).max(RAISE_TO);
        if most == 0 || most > highest {
            return Err(format!(
                "max_children can be set from 1 to {highest} while weir is running; for more, change weir.toml and run weir reload"
            ));
        }
        pool.quota.most = most + pool.quota.beyond;
        Ok(())
    }

    /// Whether a pool's masters are forked from the template that loads this.
    pub(super) fn need(&self, load: &Load) -> bool {
        self.list.iter().any(|pool| match &pool.kind {
            Kind::Php(php) => matches!(&php.spec.loading, Loading::Shared(own) if **own == *load),
            Kind::Command(_) => false,
        })
    }

    /// The processes of each pool.
    pub(super) fn pids<'a>(&'a self, masters: &'a Masters) -> impl Iterator<Item = PoolPids> + 'a {
        self.list.iter().map(|pool| {
            let forked_by = pool.workers.iter().filter_map(Worker::master);
            let mut ids: Vec<MasterId> = forked_by.collect();
            if let Kind::Php(php) = &pool.kind {
                ids.extend(php.masters());
            }
            let mut pids: Vec<u32> = ids.into_iter().filter_map(|id| masters.pid(id)).collect();
            pids.extend(pool.zygote_pid());
            pids.sort_unstable();
            pids.dedup();
            PoolPids {
                pool: pool.id,
                masters: pids,
                workers: pool
                    .workers
                    .iter()
                    .filter_map(|worker| worker.pid)
                    .collect(),
            }
        })
    }

    /// The process of a worker; `None`: there is none.
    pub(super) fn pid(&self, pool: u16, worker: u32) -> Option<u32> {
        let (pool, index) = self.find(pool, worker)?;
        self.list[pool].workers[index].pid
    }

    /// These pools are on trial: masters that cannot be started are not retried.
    pub(super) fn try_once(&mut self) {
        let php = self.list.iter_mut().filter_map(Pool::php);
        php.for_each(Php::try_once);
    }

    /// The trial is over: these pools serve.
    pub(super) fn trial_is_over(&mut self, now: Instant, masters: &mut Masters) {
        let php = self.list.iter_mut().filter_map(Pool::php);
        php.for_each(|php| php.trial_is_over(now, masters));
    }

    /// Reopens the pools' logs; returns the problems.
    pub(super) fn reopen_logs(&self) -> Vec<Problem> {
        let reopen = |pool: &Pool| {
            let slow = match &pool.kind {
                Kind::Php(php) => php.logs.slow.reopen(),
                Kind::Command(_) => Ok(()),
            };
            [pool.log.reopen().err(), slow.err()]
        };
        self.list.iter().flat_map(reopen).flatten().collect()
    }

    /// Whether workers of every pool can be requested.
    pub(super) fn are_ready(&self) -> bool {
        self.list.iter().all(Pool::is_ready)
    }

    /// Pools whose master cannot be started, and why.
    pub(super) fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().filter_map(|pool| match &pool.kind {
            Kind::Php(php) => Some((pool.name.as_str(), php.failure()?)),
            Kind::Command(_) => None,
        })
    }

    /// Another configuration takes over, or weir ends: this one restarts nothing because of changed files, and its workers end when they
    /// have nothing more to do.
    pub(super) fn finish(&mut self) {
        self.look = None;
        for pool in &mut self.list {
            pool.is_finishing = true;
            if let Some(php) = pool.php() {
                php.watch_no_more();
            }
        }
    }

    /// Asks all workers to end, and starts no others.
    pub(super) fn stop(&mut self) {
        self.stopping = Stopping::Requested;
        for pool in &mut self.list {
            pool.drop_zygote();
            pool.quota.wanted = 0;
            for worker in &mut pool.workers {
                worker.end(&pool.name);
            }
        }
    }

    /// Kills all workers.
    pub(super) fn kill_all(&mut self, masters: &mut Masters) {
        self.stopping = Stopping::Killed;
        for pool in &mut self.list {
            pool.drop_zygote();
            pool.quota.wanted = 0;
            for worker in &mut pool.workers {
                worker.kill(Ending::Requested, &pool.name, masters);
            }
        }
    }

    /// Whether no process is left.
    pub(super) fn are_gone(&self) -> bool {
        self.list.iter().all(|pool| pool.workers.is_empty())
    }

    /// The masters that are needed.
    pub(super) fn masters(&self) -> impl Iterator<Item = MasterId> {
        let living = |pool: &Pool| {
            let masters = pool.workers.iter().filter_map(Worker::master);
            masters.collect::<Vec<_>>()
        };
        let stopping = self.stopping;
        self.list
            .iter()
            .flat_map(move |pool| match (stopping, &pool.kind) {
                (Stopping::No, Kind::Php(php)) => [living(pool), php.masters()].concat(),
                (Stopping::Requested, Kind::Php(_)) => living(pool),
                // They end with everything that they have forked.
                _ => Vec::new(),
            })
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let stopping = self.stopping != Stopping::No;
        let pools = self.list.iter().filter_map(|pool| pool.deadline(stopping));
        pools.chain(self.look.filter(|_| !stopping)).min()
    }

    /// Reads the output of a worker or a zygote. `false`: it is not one of these.
    pub(super) fn read_output(&mut self, number: u32, stream: Stream) -> bool {
        for pool in &mut self.list {
            if pool.read_zygote(number, stream) {
                return true;
            }
            let worker = pool.workers.iter_mut().find(|w| w.number == number);
            if let Some(worker) = worker {
                if let Some(outputs) = &mut worker.outputs {
                    outputs.read(stream, worker.pid.unwrap_or_default(), &pool.log);
                }
                return true;
            }
        }
        false
    }

    /// The masters by the names of their pools.
    fn masters_by_name(&self) -> HashMap<&str, MasterId> {
        let named = |pool: &'_ Pool| match &pool.kind {
            Kind::Php(php) => php.current(),
            Kind::Command(_) => None,
        };
        let pools = self.list.iter();
        pools
            .filter_map(|pool| Some((pool.name.as_str(), named(pool)?)))
            .collect()
    }

    /// The indices of a pool and of a worker in it.
    fn find(&self, pool: u16, worker: u32) -> Option<(usize, usize)> {
        let place = self.list.iter().position(|p| p.id == pool)?;
        let workers = &self.list[place].workers;
        let index = workers.iter().position(|w| w.number == worker)?;
        Some((place, index))
    }

    fn start_wanted(&mut self, turns: &[usize], now: Instant, masters: &mut Masters) {
        let mut all: usize = self.list.iter().map(Pool::processes).sum();
        let mut context = Context {
            now,
            masters,
            news: &mut self.news,
            php_starts: self.php_starts,
        };
        for index in turns {
            let pool = &mut self.list[*index];
            while pool.may_start(now) {
                if self.process_max > 0 && all >= self.process_max {
                    context.news.extend(pool.cannot_start());
                    if !std::mem::replace(&mut self.process_max_told, true) {
                        events::process_max_reached(self.process_max);
                    }
                    break;
                }
                pool.start(&mut context);
                all += 1;
            }
        }
        if all < self.process_max {
            self.process_max_told = false;
        }
    }
}

/// The next worker's number: unique across all configurations.
pub(super) fn next_number() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static LAST: AtomicU32 = AtomicU32::new(0);
    LAST.fetch_add(1, Relaxed).wrapping_add(1)
}

/// The process of a pool whose application stays booted does not come to an end with its boot.
fn tell_stuck_boot(pool: &str, pid: Option<u32>, limit: Duration) {
    let seconds = limit.as_secs_f64();
    tell!(
        error,
        about(pool, pid.unwrap_or_default()),
        "the script of `worker` has not called frankenphp_handle_request() within {seconds} s: its process is killed; if it needs more \
         time, set worker_boot_timeout"
    );
}

/// The signals that PHP-FPM counts as a crash; with the numbers of Linux on most machines.
const SIGSEGV: i32 = 11;

/// See [`SIGSEGV`].
const SIGBUS: i32 = 7;

/// An operator can raise the number of workers to this multiple of the configured number.
const RAISE: usize = 4;

/// An operator can raise the number of workers to this in any case.
const RAISE_TO: usize = 16;

/// After this time a worker that SIGTERM has not ended is killed.
const TERMINATE_LIMIT: Duration = Duration::from_secs(1);

/// How often memory is measured.
const MEMORY_LOOK: Duration = Duration::from_secs(3);

/// After this time a worker that was asked to end, or was killed, is killed (again).
const RETIRE_LIMIT: Duration = Duration::from_secs(10);

/// How long a master may take to fork a worker.
const FORK_LIMIT: Duration = Duration::from_secs(30);

/// After this time a worker that the next gateway did not request is killed.
const UNCLAIMED_LIMIT: Duration = Duration::from_secs(30);
