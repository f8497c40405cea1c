//! What one configuration runs: a gateway, and the workers of its pools. A reload starts a second beside the first.
//!
//! States, and who may move them:
//!
//! ```text
//! Booting ── every pool's PHP loaded ──► Starting ── gateway ready ──► Serving ── drain() ──► Draining ─┐
//!    └──────────────────────── stop() (from any state) ──────────────────────► Stopping ◄── or too late ┘
//!                                                                                  └──► gone
//! ```
//!
//! Only a reload boots before it starts its gateway: until then nothing of it meets a client, and it is given up where a
//! pool's PHP cannot be had. A gateway that dies is started again in `Serving` only. Workers are stopped when their
//! gateway is done, not before. In `Stopping` everything is asked to end, and killed when the grace is over.

use std::time::{Duration, Instant};

use weir_sys::process::Exit;

use super::{
    Failure, Loaded,
    gateway::Gateway,
    heritage::{self, Logs},
    listen::Sockets,
    php::{Masters, News},
    plan::Plan,
    window::WindowSocket,
    workers::{Before, Pools},
};
use crate::control::{Action, ToGateway, ToManager};

/// A configuration at work.
#[derive(Debug)]
pub(super) struct Generation {
    /// Which one; never used again.
    pub(super) id: u32,
    pub(super) loaded: Loaded,
    pub(super) sockets: Sockets,
    /// Where operators come in.
    pub(super) window: Option<WindowSocket>,
    pub(super) gateway: Gateway,
    pub(super) pools: Pools,
    plan: Plan,
    logs: Logs,
    phase: Phase,
    /// What the gateway said before it went.
    complaint: Option<String>,
    /// What came of its messages and was not asked for yet.
    events: Vec<Event>,
}

/// Where a generation is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its PHP is being loaded, its gateway not started.
    Booting,
    /// The first gateway is not ready yet; given up at that time.
    Starting { until: Instant },
    /// At work.
    Serving,
    /// Finishing what runs.
    Draining { until: Instant },
    /// Ending; killed at that time.
    Stopping { until: Instant },
}

/// What has to be decided by whoever knows the other generations.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Its gateway accepts connections for the first time.
    Ready,
    /// It cannot serve, and why.
    Failed(String),
    /// An operator asks for something that concerns more than a pool.
    Act { id: u32, action: Action },
}

impl Generation {
    /// Binds and opens what the configuration needs. `sockets`, `window` and `before` have what is kept where both need it.
    pub(super) fn prepare(
        id: u32,
        (loaded, plan): (Loaded, Plan),
        (sockets, window): (&Sockets, Option<&WindowSocket>),
        before: Before<'_>,
        masters: &Masters,
        now: Instant,
    ) -> Result<Self, Failure> {
        let logs = Logs::open(&loaded.config).map_err(|problems| loaded.failure(problems))?;
        let pools = Pools::new(now, &loaded.config, &plan.runs, before, masters)
            .map_err(|problems| loaded.failure(problems))?;
        let sockets = Sockets::bind(&loaded.config, &plan, sockets)
            .map_err(|problems| loaded.failure(problems))?;
        let window = WindowSocket::open(loaded.window(), window)
            .map_err(|problem| loaded.failure(vec![problem]))?;
        Ok(Self {
            id,
            sockets,
            window,
            gateway: Gateway::default(),
            pools,
            plan,
            logs,
            loaded,
            phase: Phase::Starting {
                until: now + START_LIMIT,
            },
            complaint: None,
            events: Vec::new(),
        })
    }

    /// Starts what is to take another one's place: first its PHP, then its gateway.
    pub(super) fn boot(&mut self) {
        self.pools.try_once();
        self.phase = Phase::Booting;
    }

    /// Starts the gateway, now or again.
    pub(super) fn start_gateway(&mut self, now: Instant) -> Result<(), String> {
        let messages = || {
            let mut messages = heritage::messages(&self.loaded, &self.plan, &self.logs)?;
            messages.extend(self.sockets.messages(self.plan.reactors)?);
            if let Some(window) = &self.window {
                messages.push(ToGateway::Window(window.socket()?));
            }
            messages.push(ToGateway::Start);
            std::io::Result::Ok(messages)
        };
        let messages = messages().map_err(|error| error.to_string())?;
        let priority = self.loaded.config.server.priority;
        self.gateway.start(now, messages, priority)?;
        self.pools.serve_new_gateway(now);
        Ok(())
    }

    /// Does what is due: starts, looks, sends, ends.
    pub(super) fn tick(&mut self, now: Instant, masters: &mut Masters) -> Vec<Event> {
        self.gateway.tick(now);
        if self.phase == Phase::Serving
            && self.gateway.is_due(now)
            && let Err(error) = self.start_gateway(now)
        {
            log::error!("the gateway cannot be started: {error}");
            self.gateway.restart_later(now);
        }
        // Also while it finishes: requests may wait for workers that die meanwhile.
        self.pools.tick(now, masters);
        match self.phase {
            Phase::Booting => self.booted(now),
            Phase::Starting { until } if until <= now => {
                let cause = "the gateway does not become ready".into();
                self.events.push(Event::Failed(cause));
            }
            Phase::Draining { until } if until <= now => {
                log::warn!("shutdown_timeout is over: requests that still run are cut off");
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

    /// Starts the gateway when every pool has its PHP, or ends the trial.
    fn booted(&mut self, now: Instant) {
        let tell = |(pool, cause)| format!("[pool.{pool}] PHP cannot be started: {cause}");
        let failures: Vec<String> = self.pools.failures().map(tell).collect();
        if !failures.is_empty() {
            self.events.push(Event::Failed(failures.join("\n")));
        } else if self.pools.are_ready() {
            self.phase = Phase::Starting {
                until: now + START_LIMIT,
            };
            if let Err(error) = self.start_gateway(now) {
                let cause = format!("the gateway cannot be started: {error}");
                self.events.push(Event::Failed(cause));
            }
        }
    }

    /// Takes the messages of the gateway, and says what came of them.
    pub(super) fn hear(&mut self, now: Instant, masters: &mut Masters) -> Vec<Event> {
        self.take_messages(now, masters);
        std::mem::take(&mut self.events)
    }

    /// Tells the gateway what became of something that an operator asked for.
    pub(super) fn act_done(&mut self, id: u32, done: bool, text: &str) {
        let text = text.to_owned();
        self.gateway.send(ToGateway::ActionDone { id, done, text });
        self.gateway.flush();
    }

    /// Takes what a master has told.
    pub(super) fn hear_master(&mut self, now: Instant, news: &News, masters: &mut Masters) {
        self.pools.hear(now, news, masters);
    }

    fn take_messages(&mut self, now: Instant, masters: &mut Masters) {
        for _ in 0..MESSAGES_AT_ONCE {
            let Some(message) = self.gateway.next() else {
                break;
            };
            match message {
                ToManager::Ready => {
                    if matches!(self.phase, Phase::Starting { .. }) {
                        self.phase = Phase::Serving;
                        self.pools.trial_is_over(now, masters);
                        self.events.push(Event::Ready);
                    } else if self.phase == Phase::Serving {
                        log::info!("the gateway accepts connections again");
                    }
                }
                ToManager::Failed(message) => {
                    log::debug!("the gateway cannot serve: {message}");
                    self.complaint = Some(message);
                }
                ToManager::Warning(message) => log::warn!("{message}"),
                ToManager::Connect { pool, worker } => self.pools.connect(now, pool, worker),
                ToManager::Kill { pool, worker } => self.pools.kill(pool, worker, masters),
                ToManager::StartWorkers { pool, count } => {
                    self.pools.start_workers(now, pool, count);
                }
                ToManager::Retire {
                    pool,
                    worker,
                    spent,
                } => self.pools.retire(now, pool, worker, spent),
                ToManager::TraceWorker { pool, worker } => self.pools.trace(pool, worker, masters),
                ToManager::Act {
                    id,
                    action: Action::RestartPool { pool },
                } => self.pools.renew(&pool, id, now, masters),
                ToManager::Act { id, action } => self.events.push(Event::Act { id, action }),
                ToManager::Drained => {
                    if matches!(self.phase, Phase::Draining { .. }) {
                        self.stop(now, GRACE);
                    }
                }
            }
        }
        self.send_news();
    }

    /// A process ended; `Ok(false)`: it is none of this generation's.
    pub(super) fn exited(
        &mut self,
        now: Instant,
        pid: u32,
        exit: Exit,
        masters: &mut Masters,
    ) -> Result<bool, Event> {
        if self.gateway.is_process(pid) {
            // What it said last tells more than how it ended.
            self.take_messages(now, masters);
        }
        if let Some(lived) = self.gateway.exited(now, pid) {
            match self.phase {
                Phase::Starting { .. } => {
                    let cause = self.complaint.take();
                    return Err(Event::Failed(cause.unwrap_or_else(|| {
                        format!("the gateway ended before it was ready: {exit}")
                    })));
                }
                Phase::Serving => {
                    if let Some(complaint) = self.complaint.take() {
                        log::error!("the gateway cannot serve: {complaint}");
                    }
                    self.gateway.restart(now, lived, exit);
                }
                Phase::Draining { .. } => {
                    if exit != Exit::Code(0) {
                        log::error!("the gateway died while it finished: {exit}");
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

    /// Accepts nothing more, and ends when nothing runs any more, or after `limit`. `last`: no other takes its place.
    pub(super) fn drain(&mut self, now: Instant, limit: Duration, last: bool) {
        match self.phase {
            Phase::Draining { .. } | Phase::Stopping { .. } => {}
            _ if !self.gateway.is_running() => self.stop(now, GRACE),
            // One that has not said yet that it is ready may be at work already.
            _ => {
                self.phase = Phase::Draining { until: now + limit };
                self.pools.finish();
                self.gateway.send(ToGateway::Drain { last });
                self.gateway.flush();
            }
        }
        // Connections that nobody will accept are refused from here on, once the gateway has closed them too.
        self.sockets = Sockets::default();
    }

    /// Ends gateway and workers, killing what is left after `grace`.
    pub(super) fn stop(&mut self, now: Instant, grace: Duration) {
        self.phase = Phase::Stopping { until: now + grace };
        self.gateway.give_up();
        self.gateway.send(ToGateway::Stop);
        self.gateway.flush();
        self.pools.stop();
        self.sockets = Sockets::default();
    }

    /// As [`stop`](Self::stop), with the grace of somebody who is in a hurry.
    pub(super) fn stop_now(&mut self, now: Instant) {
        self.stop(now, SHORT_GRACE);
    }

    /// Opens the logs again and tells the gateway.
    pub(super) fn reopen_logs(&mut self) -> Result<(), String> {
        let of_pools = self.pools.reopen_logs();
        let opened = match (Logs::open(&self.loaded.config), of_pools.is_empty()) {
            (Ok(logs), true) => Ok(logs),
            (Ok(_), false) => Err(of_pools),
            (Err(problems), _) => Err([problems, of_pools].concat()),
        };
        self.logs = opened.map_err(|problems| self.loaded.failure(problems).message)?;
        let messages = heritage::log_messages(&self.logs).map_err(|error| error.to_string())?;
        messages
            .into_iter()
            .for_each(|message| self.gateway.send(message));
        self.gateway.flush();
        Ok(())
    }

    /// Where errors are written.
    pub(super) fn error_log(&self) -> Option<&std::os::fd::OwnedFd> {
        self.logs.error.as_ref()
    }

    pub(super) fn shutdown_timeout(&self) -> Duration {
        self.loaded.config.server.shutdown_timeout
    }

    /// Nothing of it runs any more.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. })
            && !self.gateway.is_running()
            && self.pools.are_gone()
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Booting | Phase::Serving => None,
            Phase::Starting { until } | Phase::Draining { until } | Phase::Stopping { until } => {
                Some(until)
            }
        };
        [phase, self.gateway.deadline(now), self.pools.deadline()]
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

/// A gateway that is not ready after so long never will be.
const START_LIMIT: Duration = Duration::from_secs(30);

/// What gateway and workers get to end by themselves once nothing runs any more.
const GRACE: Duration = Duration::from_secs(5);

/// The same when somebody is in a hurry.
const SHORT_GRACE: Duration = Duration::from_secs(1);

/// Messages of one gateway that are taken before others get their turn.
const MESSAGES_AT_ONCE: usize = 256;
