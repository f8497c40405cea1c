//! The right to one worker, for one request.

use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use weir_config::Runtime;
use weir_pool::{Chosen, Finish, Micros, Released, ServerId, WorkerId};

use super::{ConnectError, PoolHandle, Toward, Turn, scaling::After};
use crate::{
    control::{ToManager, Told},
    events::{self, Running},
    gateway::{
        client_io::Conn,
        clock,
        pool_log::Ended,
        record::OwnedWorker,
        scoreboard::{Card, Cost, Facts},
        worker_conn::WorkerConn,
    },
};

/// The right to one worker.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(super) pool: Arc<PoolHandle>,
    pub(super) worker: WorkerId,
    /// The manager's number of the process; none where others run it.
    pub(super) process: Option<u32>,
    pub(super) pid: u32,
    pub(super) conn: Option<WorkerConn>,
    /// The server that it was given to, and what that is called; none where weir runs the workers.
    pub(super) chosen: Option<Chosen>,
    pub(super) server_name: Option<Arc<str>>,
    /// How that ended, and what is to be said of it.
    pub(super) outcome: Finish,
    pub(super) cause: Option<String>,
    /// Where its figures are.
    pub(super) card: Option<Arc<Card>>,
    /// The process is to be replaced: at once, or after this request.
    pub(super) kill: bool,
    /// It is killed because its request ran for too long.
    pub(super) terminated: Option<Told>,
    pub(super) last: bool,
    /// What it said of the request that it has done.
    pub(super) cost: Cost,
    /// Where its end is noted, if somebody wants to know of it.
    pub(super) ended: Option<Arc<OnceLock<Ended>>>,
    /// Its request was begun: without that, nothing was finished when it is given back.
    pub(super) begun: bool,
    /// That of its key, which ends with it.
    pub(super) turn: Option<Turn>,
    /// Since when ([`clock::now`]), and for which site.
    pub(super) lent: u64,
    pub(super) site: Option<usize>,
}

impl Lease {
    /// The worker's connection, watched by the reactor `home`; connects where there is none.
    ///
    /// `toward.certain`: what is sent into a connection that the worker is about to close is lost, and must not be or not
    /// again. A server gets a new connection then, since PHP-FPM closes kept ones at any time (`pm.max_requests`);
    /// a program that weir runs is asked whether it is still there. So is one that nobody has used for a while. Of
    /// weir's own PHP the kernel tells afterwards whether it has read the request.
    ///
    /// # Errors
    ///
    /// Where no server takes a connection within `connect_timeout`, or a worker has just gone.
    pub(crate) async fn connect(
        &mut self,
        home: u16,
        toward: Toward<'_>,
    ) -> Result<WorkerConn, ConnectError> {
        if matches!(self.pool.settings.runtime, Runtime::Servers(_)) {
            return Box::pin(self.connect_to(home, toward)).await;
        }
        if let Some(conn) = self.conn.take()
            && let Ok(conn) = conn.at_home(home)
        {
            let stale = match self.is_php() {
                true => conn.has_spoken(),
                false => (toward.certain || conn.has_rested()) && conn.is_stale(),
            };
            if !stale {
                return Ok(conn);
            }
        }
        Err(ConnectError {
            address: format!("worker {}", self.pid),
            error: io::ErrorKind::NotConnected.into(),
        })
    }

    /// How the request ended, as the server is concerned. What is said first holds.
    pub(crate) fn ended(&mut self, finish: Finish, cause: Option<&dyn std::fmt::Display>) {
        if self.outcome == Finish::Unknown {
            self.outcome = finish;
            self.cause = cause.map(|cause| cause.to_string());
        }
    }

    /// The server that it was given to; none where weir runs the workers.
    pub(crate) fn server(&self) -> Option<ServerId> {
        self.chosen.map(|chosen| chosen.server)
    }

    /// The worker is about to be given the request: notes it for the status page.
    pub(crate) fn begin(&mut self, facts: &Facts<'_>) {
        self.begun = true;
        if let Some(card) = &self.card {
            card.begin(facts);
        }
    }

    /// Its answer has to have begun by then ([`clock::now`]), or need not any more.
    pub(crate) fn ends_at(&self, request: u64, deadline: u64) {
        if let Some(card) = &self.card {
            card.works_for(request, deadline);
        }
    }

    /// For which of the configuration's sites the worker works.
    pub(crate) fn serve(&mut self, site: Option<usize>) {
        self.site = site;
    }

    /// The turn of its key is over when the lease is.
    pub(crate) fn keep(&mut self, turn: Option<Turn>) {
        self.turn = turn;
    }

    /// Who asks is on this machine, and may be a worker.
    pub(crate) fn asked_by(&self, conn: &Arc<Conn>) {
        if let Some(card) = &self.card {
            card.asked_by(Arc::downgrade(conn));
        }
    }

    /// Has the moment noted at which the worker is free again.
    pub(crate) fn note_end(&mut self, ended: Arc<OnceLock<Ended>>) {
        self.ended = Some(ended);
    }

    /// The response is complete, the script is not: it said so early.
    pub(crate) fn is_finishing(&self) {
        if let Some(card) = &self.card {
            card.finishing();
        }
    }

    /// The worker has ended its request and is free; `conn` is fit for another one.
    pub(crate) fn release(mut self, conn: Option<WorkerConn>, cost: Cost) {
        self.conn = conn;
        self.cost = cost;
    }

    /// The worker is stuck or talks nonsense: its process is replaced where weir runs it.
    pub(crate) fn kill(mut self) {
        self.conn = None;
        self.kill = true;
    }

    /// The script runs for longer than `request_slowlog_timeout`: where it is goes to the slow log.
    pub(crate) fn trace(&self, request: u64) {
        self.pool.state().slow_requests += 1;
        if let Some((worker, told)) = self.process.zip(self.told(request)) {
            let pool = self.pool.id;
            (self.pool.manager.0)(ToManager::TraceWorker { pool, worker, told });
        }
    }

    /// The script is ended because it ran for longer than `request_terminate_timeout`: to be said in the log.
    pub(crate) fn terminate(&mut self, request: u64) {
        let told = self.told(request);
        match told {
            // Who ends it says so, and then how it ended.
            Some(told) if self.is_php() => self.terminated = Some(told),
            Some(told) => events::request_terminated(&self.running(&told)),
            None => {}
        }
    }

    pub(crate) fn pool(&self) -> &Arc<PoolHandle> {
        &self.pool
    }

    /// Whether the worker is weir's own PHP, which says when it is free.
    pub(crate) fn is_php(&self) -> bool {
        self.pool.settings.php().is_some()
    }

    /// The manager's number of the process; none where others run it.
    pub(crate) fn process(&self) -> Option<u32> {
        self.process
    }

    /// Who works, for the log; none before a server is chosen.
    pub(crate) fn worker(&self) -> Option<OwnedWorker> {
        match (self.process, &self.server_name) {
            (Some(_), _) => Some(OwnedWorker::Pid(self.pid)),
            (None, Some(server)) => Some(OwnedWorker::Server(server.clone())),
            (None, None) => None,
        }
    }

    fn told(&self, request: u64) -> Option<Told> {
        // Of what others run, the process is not known, and nothing is done to it.
        let card = self.card.as_ref().filter(|_| self.process.is_some())?;
        let done = card.status().request;
        let query: &[&[u8]] = match &done.query[..] {
            b"" => &[],
            query => &[b"?", query],
        };
        let uri = [&done.uri[..], &query.concat()].concat();
        let text = |bytes: &[u8]| {
            let cut = &bytes[..bytes.len().min(LONGEST_TOLD)];
            String::from_utf8_lossy(cut).into_owned()
        };
        Some(Told {
            script: text(&done.script),
            method: text(&done.method),
            uri: text(&uri),
            elapsed: done.duration.as_micros() as u64,
            request,
        })
    }

    fn running<'a>(&'a self, told: &'a Told) -> Running<'a> {
        Running {
            pool: &self.pool.settings.name,
            pid: self.pid,
            script: &told.script,
            method: &told.method,
            uri: &told.uri,
            elapsed: Duration::from_micros(told.elapsed),
            request: Some(told.request),
        }
    }
}

/// As much of a script's name, a method or a URI is told in the log, bytes.
const LONGEST_TOLD: usize = 4096;

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(card) = &self.card {
            card.end(self.cost);
        }
        if let Some(ended) = &self.ended {
            let _ = ended.set(Ended {
                at: clock::now(),
                cost: self.cost,
            });
        }
        let pool = self.pool.clone();
        if self.begun {
            let served = clock::now().saturating_sub(self.lent);
            pool.tally.served(self.site, pool.id, served);
        }
        let mut after = After::default();
        let mut state = pool.state();
        let now = Micros(clock::now());
        state.last_end = now.0;
        match pool.settings.runtime {
            Runtime::Servers(_) => state.take_place_back(&pool, self, now, &mut after),
            Runtime::Php(_) | Runtime::Command(_) => {
                self.give_back(&pool, &mut state, now, &mut after);
            }
        }
        state.end_relief(&pool, now, &mut after);
        drop(state);
        after.perform(&pool);
    }
}

impl Lease {
    /// Gives a worker back that weir runs.
    fn give_back(
        &mut self,
        pool: &Arc<PoolHandle>,
        state: &mut super::State,
        now: Micros,
        after: &mut After,
    ) {
        state.memory_peak = state.memory_peak.max(self.cost.memory);
        let slot = &mut state.slots[self.worker.0 as usize];
        slot.leased = false;
        if slot.process != self.process {
            // It has ended meanwhile.
            after.close(self.conn.take());
            state.ended(pool, self.worker, now, after);
            state.settle(pool, now, after);
            return state.look(pool, now, after);
        }
        // A connection that came meanwhile takes the place of the one that was lent.
        if slot.conn.is_none() && !self.kill {
            slot.conn = self.conn.take();
        }
        if slot.conn.is_some() && !self.kill && !self.begun {
            // Its client has left before it was told.
            slot.requests = slot.requests.saturating_sub(1);
            let released = state.pool.abandon(now, self.worker);
            return self.go_on(pool, state, released, now, after);
        }
        if slot.conn.is_some() && !self.kill {
            let grew = pool.settings.workers().is_some_and(|workers| {
                workers.max_memory > 0 && self.cost.resident > workers.max_memory
            });
            if self.last || grew {
                slot.spent = true;
                state.pool.retire(now, self.worker);
            }
            if let Some(card) = &self.card {
                state.answered(pool, card, now, after);
            }
            let released = state.pool.release(now, self.worker);
            return self.go_on(pool, state, released, now, after);
        }
        after.close(slot.conn.take());
        // Weir's own PHP has one connection for its life; a program gets another one.
        let kill = self.kill || pool.settings.php().is_some();
        slot.withdrawn |= self.kill;
        slot.lost = true;
        state.pool.lose(now, self.worker);
        if let Some(worker) = self.process {
            let pool = pool.id;
            after.tell_manager(match kill {
                true => match self.terminated.take() {
                    Some(told) => ToManager::Terminate { pool, worker, told },
                    None => ToManager::Kill { pool, worker },
                },
                false => ToManager::Connect { pool, worker },
            });
        }
        state.settle(pool, now, after);
        state.look(pool, now, after);
    }

    /// The worker is free, or leaves; who is next has one.
    fn go_on(
        &self,
        pool: &Arc<PoolHandle>,
        state: &mut super::State,
        released: Released,
        now: Micros,
        after: &mut After,
    ) {
        if released.leaves {
            state.withdraw(pool, self.worker, after);
        }
        if let Some(next) = released.next {
            state.grant(pool, next, after);
        }
        match released.leaves {
            true => state.look(pool, now, after),
            false => state.look_at_load(pool, now, after),
        }
    }
}
