//! A generation is what one configuration runs: a gateway, and the workers of its pools. A reload starts a second one
//! beside the first.
//!
//! States and transitions:
//!
//! ```text
//! Booting ── every pool's PHP loaded ──► Starting ── gateway ready ──► Serving ── drain() ──► Draining ─┐
//!    │                                      └─ instead of PHP-FPM: StartingWorkers ─┘                     │
//!    └──────────────────────── stop() (from any state) ──────────────────────► Stopping ◄── or too late ┘
//!                                                                                  └──► gone
//! ```
//!
//! Only a reload boots first: its gateway reads the configuration meanwhile, and gets the sockets when all PHP is loaded. Until then the
//! generation has no contact with clients, and it is given up if the PHP of a pool cannot be loaded. A dead gateway is restarted only in
//! `Serving`. Workers are stopped when their gateway has ended, not before. In `Stopping` everything is asked to end, and killed after
//! the grace period.

pub(crate) mod addresses;
mod boot;
mod bus;
pub(crate) mod egress;
mod limits;
mod messages;
pub(crate) mod plan;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    os::fd::OwnedFd,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use weir_config::Address;
use weir_control::{
    Action, CallSource, DrainStatus, EgressFiles, ManagerCounts, ToGateway, ToManager, WorkerTotals,
};
use weir_sys::{
    message,
    process::{self, Exit},
    socket_owners::Owner,
};

pub(super) use self::messages::{said, say_listeners};
use crate::{
    Failure, Loaded,
    certificates::{Certificates, acme::Demanded, keeper::Keeper},
    children::{
        gateway::Gateway,
        heritage::{self, Logs},
        measure::Meter,
    },
    generation::{addresses::Addresses, plan::Plan},
    output::OutputLog,
    php::{MasterEvent, Masters},
    programs,
    sockets::{admin::AdminListeners, listen::Sockets, owners::Owners},
    supervise::{notify, pid_file::Claim},
    workers::{Before, Pools},
};

/// A running configuration.
#[derive(Debug)]
pub(super) struct Generation {
    /// Its number, which is never used again.
    pub(super) id: u32,
    pub(super) loaded: Loaded,
    pub(super) sockets: Sockets,
    /// The sockets of the admin interface.
    pub(super) admin: AdminListeners,
    bus_password: Option<String>,
    /// Files for the egress: a restarted gateway gets the same ones.
    egress: Option<EgressFiles>,
    /// `None`: no listener has TLS.
    pub(super) certificates: Option<Certificates>,
    /// Its pid file, until it is written.
    pub(super) pid_file: Option<Claim>,
    pub(super) gateway: Gateway,
    pub(super) pools: Pools,
    /// Of the programs, in the order of the configuration.
    pub(super) program_logs: Vec<Rc<OutputLog>>,
    pub(super) plan: Plan,
    logs: Logs,
    phase: Phase,
    /// Its gateway was ready once.
    is_ready: bool,
    /// The gateway's last error message.
    complaint: Option<String>,
    /// What the draining gateway waits for, according to its last report, and since when it drains.
    holding: DrainStatus,
    /// Figures of its workers in the gateway's last report.
    pub(super) work: WorkerTotals,
    addresses: Rc<Addresses>,
    finishing: Option<Instant>,
    /// Its gateway has reported that it accepts nothing any more.
    is_closed: bool,
    /// Whether operators have turned the drain for load balancers on.
    declines: bool,
    /// Limits that operators have set, by pool: maximum of workers and of requests.
    limits: BTreeMap<u16, (Option<u32>, Option<u32>)>,
    /// It serves only when its pools have the workers of their start, as PHP-FPM does.
    waits_for_workers: bool,
    meter: Meter,
    owners: Owners,
    /// Events from its messages that were not fetched yet.
    events: Vec<Event>,
}

/// The state of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its PHP is being loaded, and the keeper reads its certificates; its gateway has no sockets yet.
    Booting,
    /// The first gateway is not ready yet, or local certificates are not made yet; the start is given up at `until`.
    Starting { until: Instant },
    /// Its gateway accepts, and the workers of the start are coming; it serves at `until` at the latest.
    StartingWorkers { until: Instant },
    /// Serving requests.
    Serving,
    /// Finishing running requests.
    Draining { until: Instant },
    /// Ending; killed at `until`.
    Stopping { until: Instant },
}

/// Events that concern other generations, too.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Its gateway accepts connections for the first time.
    Ready,
    /// The generation cannot serve.
    Failed(Failure),
    /// An operator requests an action that concerns more than one pool.
    Act { id: u32, action: Action },
    /// Its gateway asks what the processes use.
    Measure,
    /// Its gateway wants to know to which worker of an older generation a call belongs.
    FindFormer { id: u32, whose: CallSource },
    /// Its gateway died and will be restarted.
    Restarts,
    /// Its gateway is killed because it does not respond.
    Hangs,
    /// Its gateway has the answers to challenges up to this message.
    ChallengesSet(u32),
    /// Its gateway wants a certificate for a name.
    WantCertificate(String),
}

/// What a generation shares with the one before it.
pub(super) struct Shared<'a> {
    pub(super) sockets: &'a Sockets,
    pub(super) admin: Option<&'a AdminListeners>,
    pub(super) addresses: Rc<Addresses>,
    pub(super) before: Before<'a>,
    pub(super) masters: &'a Masters,
    pub(super) keeper: &'a Rc<RefCell<Keeper>>,
    pub(super) certificates: Option<&'a Certificates>,
    /// Its PHP is loaded before its gateway starts.
    pub(super) boots: bool,
    /// It serves only when its pools have the workers of their start.
    pub(super) waits_for_workers: bool,
    /// weir starts, so that this may wait for the keeper of private keys: there is nothing else to do yet.
    pub(super) may_wait: bool,
    /// The pid file that there is.
    pub(super) pid_file: Option<&'a Path>,
}

/// Lets the gateways of these generations give their idle connections to another gateway when they drain. Returns where
/// that gateway takes them. `None`: they are closed.
pub(super) fn give_connections<'g>(
    generations: impl Iterator<Item = &'g mut Generation>,
) -> Option<OwnedFd> {
    let (gives, takes) = message::pair()
        .inspect_err(|error| log::warn!("idle connections are closed: {error}"))
        .ok()?;
    for generation in generations {
        if let Ok(gives) = gives.try_clone() {
            generation.hand_connections(ToGateway::GiveConnections(gives));
        }
    }
    Some(takes)
}

impl Generation {
    /// Binds and opens what the configuration needs.
    pub(super) fn prepare(
        id: u32,
        (loaded, plan): (Loaded, Plan),
        shared: Shared<'_>,
        now: Instant,
    ) -> Result<Self, Failure> {
        let Shared {
            sockets,
            admin,
            addresses,
            before,
            masters,
            keeper,
            certificates,
            boots,
            waits_for_workers,
            may_wait,
            pid_file,
        } = shared;
        let logs = Logs::open(&loaded.config, &plan.log_files)
            .map_err(|problems| loaded.failure(problems))?;
        let mut egress = egress::read(&loaded)?;
        let bus_password = bus::password(&loaded)?;
        let pools = Pools::new(now, &loaded.config, &plan, before, masters)
            .map_err(|problems| loaded.failure(problems))?;
        let program_logs = programs::open_logs(&loaded.config, &plan.log_files)
            .map_err(|problems| loaded.failure(problems))?;
        let sockets = Sockets::bind(&loaded.config, &plan, sockets)
            .map_err(|problems| loaded.failure(problems))?;
        if let Some(files) = &mut egress {
            files.users = egress::users(&loaded.config, &plan.runs);
            files.socket = plan.egress_socket.as_ref().and_then(|own| {
                let mut bound = sockets.egress_addresses().into_iter();
                let is_bound = bound.any(|address| address == Address::Unix(own.path.clone()));
                is_bound.then(|| (own.path.clone(), own.users.clone()))
            });
        }
        let admin = AdminListeners::open(&loaded, admin, &plan.groups)
            .map_err(|problem| loaded.failure(vec![problem]))?;
        let pid_file = Claim::take(&loaded, &plan.groups, pid_file)?;
        // The keeper may have to be started for these certificates.
        let mut certificates =
            Certificates::prepare(&loaded.config, &plan, keeper, certificates, now);
        if let (true, Some(certificates)) = (may_wait, &mut certificates) {
            certificates
                .prepare_now(&loaded.config, !boots)
                .map_err(|problems| loaded.failure(problems))?;
        }
        Ok(Self {
            id,
            sockets,
            admin,
            bus_password,
            egress,
            certificates,
            pid_file,
            gateway: Gateway::new(notify::watchdog_period()),
            pools,
            program_logs,
            plan,
            logs,
            loaded,
            phase: Phase::Starting {
                until: now + START_LIMIT,
            },
            is_ready: false,
            complaint: None,
            holding: DrainStatus::default(),
            work: WorkerTotals::default(),
            addresses,
            finishing: None,
            is_closed: false,
            declines: false,
            limits: BTreeMap::new(),
            waits_for_workers,
            meter: Meter::default(),
            owners: Owners::default(),
            events: Vec::new(),
        })
    }

    /// Starts a generation that will replace another one: its PHP first. Its gateway reads the configuration meanwhile, and gets
    /// the sockets afterwards.
    pub(super) fn boot(&mut self, now: Instant) {
        self.pools.try_once();
        self.phase = Phase::Booting;
        if let Err(error) = self.prepare_gateway(now) {
            log::debug!("the gateway is started later: {error}");
        }
    }

    /// Starts the process of a gateway, which reads the configuration and waits for the sockets.
    fn prepare_gateway(&mut self, now: Instant) -> Result<(), String> {
        let messages = heritage::first_messages(&self.loaded, &self.plan);
        let messages = messages.map_err(|error| error.to_string())?;
        let priority = self.loaded.config.server.priority;
        self.gateway.start(now, messages, priority)
    }

    /// Starts or restarts the gateway.
    pub(super) fn start_gateway(&mut self, now: Instant) -> Result<(), String> {
        let messages = || {
            let mut messages = heritage::messages(&self.loaded, &self.plan, &self.logs)?;
            messages.extend(self.sockets.messages(self.plan.reactors.acceptors())?);
            messages.extend(self.admin.messages()?);
            messages.extend(self.bus_password.clone().map(ToGateway::BusPassword));
            if let Some(files) = &self.egress {
                messages.push(egress::message(files)?);
                messages.extend(self.sockets.egress_messages()?);
            }
            messages.extend(self.addresses.messages(&self.loaded.config));
            std::io::Result::Ok(messages)
        };
        let mut messages = messages().map_err(|error| error.to_string())?;
        if let Some(certificates) = &mut self.certificates {
            messages.extend(certificates.messages()?);
            let acceptors = self.plan.reactors.acceptors();
            let datagrams = self.sockets.datagram_messages(acceptors);
            let datagrams = datagrams.map_err(|error| error.to_string())?;
            if !datagrams.is_empty() {
                messages.extend(datagrams);
                messages.extend(certificates.quic(acceptors)?);
            }
        }
        messages.push(ToGateway::Start);
        if !self.gateway.is_running() {
            self.prepare_gateway(now)?;
        }
        self.gateway.begin(messages);
        self.pools.serve_new_gateway(now);
        // A restarted gateway must know this, too.
        if self.declines {
            self.gateway.send(ToGateway::Decline { on: true });
        }
        for (&pool, &(max_children, maxconn)) in &self.limits {
            self.gateway.send(ToGateway::Limits {
                pool,
                max_children,
                maxconn,
            });
        }
        Ok(())
    }

    /// Something has become of a name on demand.
    pub(super) fn demanded(&mut self, what: &Demanded) {
        let Some(certificates) = &mut self.certificates else {
            return;
        };
        let messages = certificates.demanded(what);
        // A gateway that does not run yet gets all certificates at its start.
        if self.gateway.pid().is_some() {
            self.hand(messages);
        }
    }

    /// Whether it serves requests, and is not finishing.
    pub(super) fn is_serving(&self) -> bool {
        self.phase == Phase::Serving
    }

    /// Does what is due: starts, checks, sends, ends.
    pub(super) fn tick(&mut self, now: Instant, masters: &mut Masters) -> Vec<Event> {
        let limit = self.loaded.config.server.gateway_timeout;
        if self.gateway.tick(now, limit) {
            self.events.push(Event::Hangs);
        }
        if self.phase == Phase::Serving
            && self.gateway.is_due(now)
            && let Err(error) = self.start_gateway(now)
        {
            log::error!("the gateway cannot be started: {error}");
            self.gateway.restart_later(now);
        }
        if let Some(certificates) = &mut self.certificates {
            let messages = certificates.tick(now, self.phase == Phase::Serving);
            (messages.into_iter()).for_each(|message| self.gateway.send(message));
        }
        // Also while it drains: requests may wait for workers that die meanwhile.
        self.pools.tick(now, masters);
        match self.phase {
            Phase::Booting => self.booted(now),
            Phase::Starting { until } if until <= now => {
                self.give_up(Failure::internal(match self.is_ready {
                    false => "the gateway did not become ready in time",
                    true => "the certificates of the local CA were not made in time",
                }));
            }
            Phase::Starting { .. } if self.is_ready => self.make_certificates(now, masters),
            Phase::StartingWorkers { until } if until <= now => {
                log::warn!(
                    "some workers are still missing after {} s: weir continues without them",
                    WORKERS_LIMIT.as_secs()
                );
                self.serve();
            }
            Phase::Draining { until } if until <= now => {
                log::warn!(
                    "shutdown_timeout is over, remaining requests are cut off: {}",
                    said(&self.holding)
                );
                self.stop(now, SHORT_GRACE);
            }
            Phase::Stopping { until } if until <= now => {
                self.gateway.kill();
                self.pools.kill_all(masters);
                self.phase = Phase::Stopping {
                    until: now + SHORT_GRACE,
                };
            }
            _ => {}
        }
        self.send_news();
        std::mem::take(&mut self.events)
    }

    fn serve(&mut self) {
        self.phase = Phase::Serving;
        self.events.push(Event::Ready);
    }

    fn give_up(&mut self, failure: Failure) {
        self.events.push(Event::Failed(failure));
    }

    fn hand(&mut self, messages: Vec<ToGateway>) {
        (messages.into_iter()).for_each(|message| self.gateway.send(message));
        self.gateway.flush();
    }

    /// Handles the messages of the gateway; returns the resulting events.
    pub(super) fn hear(&mut self, now: Instant, masters: &mut Masters) -> Vec<Event> {
        self.take_messages(now, masters);
        std::mem::take(&mut self.events)
    }

    /// Tells the gateway the result of an operator's action.
    pub(super) fn act_done(&mut self, id: u32, done: bool, text: &str) {
        let text = text.to_owned();
        self.gateway.send(ToGateway::ActionDone { id, done, text });
        self.gateway.flush();
    }

    /// Turns the drain for load balancers on or off in the gateway.
    pub(super) fn decline(&mut self, on: bool) {
        self.declines = on;
        self.gateway.send(ToGateway::Decline { on });
        self.gateway.flush();
    }

    /// Sends the gateway what the processes use; `first`: other messages to send before.
    pub(super) fn measure(
        &mut self,
        now: Instant,
        masters: &Masters,
        counts: ManagerCounts,
        first: Vec<ToGateway>,
    ) {
        let pools = self.pools.pids(masters);
        let answer = self.meter.measure(now, pools, self.gateway.pid(), counts);
        first
            .into_iter()
            .chain(answer)
            .for_each(|message| self.gateway.send(message));
        self.gateway.flush();
    }

    /// Tells the gateway to which of these workers of older generations a call belongs.
    pub(super) fn find_former(
        &mut self,
        now: Instant,
        (id, whose): (u32, CallSource),
        workers: &[(u32, String)],
    ) {
        let pids: Vec<u32> = workers.iter().map(|(pid, _)| *pid).collect();
        let owner = match whose {
            _ if pids.is_empty() => Owner::Nobody,
            CallSource::Process(pid) => process::nearest(pid, |pid| pids.contains(&pid))
                .map_or(Owner::Nobody, Owner::Process),
            CallSource::Socket(inode) => self.owners.find(now, inode, &pids),
        };
        let found = match owner {
            Owner::Process(pid) => workers.iter().find(|(other, _)| *other == pid).cloned(),
            Owner::Barred | Owner::Nobody | Owner::Later => None,
        };
        let later = owner == Owner::Later;
        self.gateway.send(ToGateway::Former { id, found, later });
    }

    /// The workers of its pools: process, and the pool's NAME.
    pub(super) fn workers<'a>(
        &'a self,
        masters: &'a Masters,
    ) -> impl Iterator<Item = (u32, String)> + 'a {
        self.pools.pids(masters).flat_map(|of_pool| {
            let pool = self.loaded.config.pools.get(usize::from(of_pool.pool));
            let name = pool.map_or_else(String::new, |pool| pool.name.clone());
            let pids = of_pool.workers.into_iter();
            pids.map(move |pid| (pid, name.clone()))
        })
    }

    /// Handles a message of a master.
    pub(super) fn hear_master(&mut self, now: Instant, news: &MasterEvent, masters: &mut Masters) {
        self.pools.hear(now, news, masters);
    }

    fn take_messages(&mut self, now: Instant, masters: &mut Masters) {
        for _ in 0..MESSAGES_AT_ONCE {
            let Some(message) = self.gateway.next() else {
                break;
            };
            match message {
                ToManager::Addresses { name, addresses } => {
                    self.addresses.found(&self.loaded.config, name, addresses);
                }
                ToManager::DrainStatus(mut holding) => {
                    let longest = holding.request.char_indices().nth(MAX_REQUEST);
                    if let Some((end, _)) = longest {
                        holding.request.truncate(end);
                    }
                    self.holding = holding;
                }
                ToManager::Alive { silent, work } => {
                    self.work = work;
                    let silent = Duration::from_millis(silent.into());
                    self.gateway.is_alive(now, silent);
                }
                ToManager::ChallengesSet(number) => self.events.push(Event::ChallengesSet(number)),
                ToManager::WantCertificate(name) => {
                    self.events.push(Event::WantCertificate(name));
                }
                ToManager::KeeperSilent => {
                    if let Some(certificates) = &self.certificates {
                        certificates.replace_keeper(now);
                    }
                }
                ToManager::Ready => {
                    self.gateway.serves();
                    self.gateway.watch(now);
                    if matches!(self.phase, Phase::Starting { .. }) {
                        self.is_ready = true;
                        self.make_certificates(now, masters);
                    } else if self.phase == Phase::Serving {
                        log::info!("the gateway accepts connections again");
                    }
                }
                ToManager::WorkersStarted => {
                    self.waits_for_workers = false;
                    if matches!(self.phase, Phase::StartingWorkers { .. }) {
                        self.serve();
                    }
                }
                ToManager::Failed(message) => {
                    log::debug!("the gateway cannot serve: {message}");
                    self.complaint = Some(message);
                }
                ToManager::Warning(message) => log::warn!("{message}"),
                ToManager::Connect { pool, worker } => self.pools.connect(now, pool, worker),
                ToManager::Kill { pool, worker } => self.pools.kill(pool, worker, masters),
                ToManager::Terminate {
                    pool,
                    worker,
                    request,
                } => {
                    self.pools.terminate(pool, worker, &request, masters);
                }
                ToManager::StartWorkers { pool, count } => {
                    self.pools.start_workers(now, pool, count);
                }
                ToManager::Retire {
                    pool,
                    worker,
                    spent,
                } => self.pools.retire(now, pool, worker, spent),
                ToManager::TraceWorker {
                    pool,
                    worker,
                    request,
                } => {
                    self.pools.trace(pool, worker, &request, masters);
                }
                ToManager::Act {
                    id,
                    action: Action::RestartPool { pool },
                } => self.pools.renew(&pool, id, now, masters),
                ToManager::Act {
                    id,
                    action:
                        Action::SetPool {
                            pool,
                            max_children,
                            maxconn,
                        },
                } => match self.set_pool(&pool, max_children, maxconn) {
                    Ok(text) => self.act_done(id, true, &text),
                    Err(text) => self.act_done(id, false, &text),
                },
                ToManager::FindOwner { id, inode, workers } => {
                    let pids = workers.iter();
                    let pids = pids.filter_map(|(pool, worker)| self.pools.pid(*pool, *worker));
                    let pids: Vec<u32> = pids.collect();
                    let owner = self.owners.find(now, inode, &pids);
                    self.gateway.send(ToGateway::Owner { id, owner });
                }
                ToManager::FindFormer { id, whose } => {
                    self.events.push(Event::FindFormer { id, whose });
                }
                ToManager::Measure => self.events.push(Event::Measure),
                ToManager::Act { id, action } => self.events.push(Event::Act { id, action }),
                ToManager::AcceptsNothing => self.is_closed = true,
                ToManager::Drained => {
                    if matches!(self.phase, Phase::Draining { .. }) {
                        self.stop(now, GRACE);
                    }
                }
            }
        }
        self.send_news();
    }

    /// A process has ended; `Ok(false)`: it does not belong to this generation.
    pub(super) fn exited(
        &mut self,
        now: Instant,
        pid: u32,
        exit: Exit,
        masters: &mut Masters,
    ) -> Result<bool, Event> {
        if self.gateway.is_process(pid) {
            // Its last messages have more details than its exit status.
            self.take_messages(now, masters);
        }
        if let Some(lived) = self.gateway.exited(now, pid) {
            match self.phase {
                Phase::Starting { .. } | Phase::StartingWorkers { .. } => {
                    let cause = self.complaint.take().unwrap_or_else(|| {
                        format!("the gateway ended before it was ready: {exit}")
                    });
                    return Err(Event::Failed(Failure::internal(cause)));
                }
                Phase::Serving => {
                    if let Some(complaint) = self.complaint.take() {
                        log::error!("the gateway cannot serve: {complaint}");
                    }
                    if masters.oom.ended(exit, now) {
                        log::error!("the kernel killed the gateway because memory ran out");
                    }
                    self.gateway.restart(now, lived, exit);
                    self.events.push(Event::Restarts);
                }
                Phase::Draining { .. } => {
                    if exit != Exit::Code(0) {
                        log::error!(
                            "an old gateway died before its requests were finished: {exit}"
                        );
                    }
                    self.stop(now, GRACE);
                }
                Phase::Booting | Phase::Stopping { .. } => {}
            }
            return Ok(true);
        }
        let ours = self.pools.exited(now, pid, exit);
        self.send_news();
        Ok(ours)
    }

    /// Its gateway gives or takes idle connections here.
    pub(super) fn hand_connections(&mut self, message: ToGateway) {
        self.gateway.send(message);
        self.gateway.flush();
    }

    /// Accepts nothing new, and ends when nothing runs any more, or after `limit`. `last`: no other generation
    /// follows.
    pub(super) fn drain(&mut self, now: Instant, limit: Duration, last: bool) {
        match self.phase {
            Phase::Draining { .. } | Phase::Stopping { .. } => {}
            _ if !self.gateway.has_begun() => self.stop(now, GRACE),
            // A gateway that has not reported that it is ready may already have requests.
            _ => {
                self.phase = Phase::Draining { until: now + limit };
                self.finishing = Some(now);
                self.pools.finish();
                self.gateway.send(ToGateway::Drain { last });
                self.gateway.flush();
            }
        }
        // When the gateway has closed its sockets as well, further connections are refused.
        self.sockets = Sockets::default();
    }

    /// Whether no new client reaches it any more, after [`drain`](Self::drain).
    pub(super) fn accepts_nothing(&self) -> bool {
        let drains = matches!(self.phase, Phase::Draining { .. });
        self.is_closed || !drains || !self.gateway.is_running()
    }

    /// Ends gateway and workers, and kills what is left after `grace`. A second call does not extend the grace
    /// period.
    pub(super) fn stop(&mut self, now: Instant, grace: Duration) {
        let until = match self.phase {
            Phase::Stopping { until } => until.min(now + grace),
            _ => now + grace,
        };
        self.phase = Phase::Stopping { until };
        self.gateway.stop();
        self.pools.stop();
        self.sockets = Sockets::default();
    }

    /// From now on this configuration is in force: files and sockets that were made for it stay.
    pub(super) fn takes_effect(&self) {
        self.sockets.set_backlogs();
        self.plan.log_files.keep();
    }

    /// Ends a generation that does not take effect, and removes what was made for it.
    pub(super) fn discard(&mut self, now: Instant) {
        self.stop_now(now);
        self.admin = AdminListeners::default();
        (self.certificates, self.pid_file) = (None, None);
        self.plan.log_files.discard();
    }

    /// As [`stop`](Self::stop), with a short grace period.
    pub(super) fn stop_now(&mut self, now: Instant) {
        self.stop(now, SHORT_GRACE);
    }

    /// Reopens the logs and tells the gateway. The error names the logs that could not be reopened.
    pub(super) fn reopen_logs(&mut self) -> Result<(), String> {
        let mut problems = self.logs.reopen(&self.loaded.config, &self.plan.log_files);
        problems.extend(self.pools.reopen_logs());
        let messages = heritage::log_messages(&self.logs).map_err(|error| error.to_string())?;
        messages
            .into_iter()
            .for_each(|message| self.gateway.send(message));
        self.gateway.flush();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(self.loaded.failure(problems).message),
        }
    }

    /// The file of the error log.
    pub(super) fn error_log(&self) -> Option<&std::os::fd::OwnedFd> {
        self.logs.error.as_ref()
    }

    pub(super) fn shutdown_delay(&self) -> Duration {
        self.loaded.config.server.shutdown_delay
    }

    pub(super) fn shutdown_timeout(&self) -> Duration {
        self.loaded.config.server.shutdown_timeout
    }

    /// Whether nothing of it runs any more.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. })
            && !self.gateway.is_running()
            && self.pools.are_gone()
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Booting | Phase::Serving => None,
            Phase::Starting { until }
            | Phase::StartingWorkers { until }
            | Phase::Draining { until }
            | Phase::Stopping { until } => Some(until),
        };
        let looks = self.phase == Phase::Serving;
        let certificates = self.certificates.as_ref();
        let certificates = certificates.and_then(|own| own.deadline(now, looks));
        [
            phase,
            self.gateway.deadline(now),
            self.pools.deadline(),
            certificates,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn send_news(&mut self) {
        for message in self.pools.take_news() {
            self.gateway.send(message);
        }
        self.gateway.flush();
    }
}

/// How many characters of a request are kept in such a report.
const MAX_REQUEST: usize = 256;

/// A gateway that is not ready after this time counts as failed.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How long the workers of the start are waited for.
const WORKERS_LIMIT: Duration = Duration::from_secs(10);

/// How long gateway and workers may take to end when nothing runs any more.
const GRACE: Duration = Duration::from_secs(5);

/// The same for a fast stop.
const SHORT_GRACE: Duration = Duration::from_secs(1);

/// How many messages of one gateway are handled before others get their turn.
const MESSAGES_AT_ONCE: usize = 256;
