//! The right to use one worker for one request.

use std::{
    io,
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock},
};

use weir_config::Runtime;
use weir_control::{ToManager, WorkerRequest};
use weir_observe::{
    clock,
    pool_log::Cost,
    scoreboard::{Facts, WorkerScore},
};
use weir_observe::{
    error_log::{About, tell},
    events,
};
use weir_pool::{Chosen, Finish, Micros, Released, ServerId, WorkerId};

use super::{
    ConnectError, Learner, PoolHandle, ServerChoice, SessionUse, Turn, scaling::Effects,
    turns::sessions::Learned,
};
use crate::{
    record::{
        OwnedWorker,
        pool_log::{Line, ScriptEnd},
    },
    scripts::run::connection::WorkerConn,
};

/// The right to use one worker. See the module. Its fields are in a box: it is moved many times, and a request that waits has
/// no room for them.
#[derive(Debug)]
pub(crate) struct Lease(pub(super) Box<LeaseInner>);

/// What a [`Lease`] knows.
#[derive(Debug)]
pub(crate) struct LeaseInner {
    pub(crate) pool: &'static PoolHandle,
    pub(super) worker: WorkerId,
    /// The manager's number for the process; `None` if others run it.
    pub(crate) process: Option<u32>,
    pub(super) pid: u32,
    pub(super) conn: Option<WorkerConn>,
    /// The server that got the request, and its name; `None` if weir runs the workers.
    pub(super) chosen: Option<Chosen>,
    pub(super) server_name: Option<&'static str>,
    /// How the request ended at the server, and the cause for the log.
    pub(super) outcome: Finish,
    pub(super) cause: Option<String>,
    /// Where its figures are kept.
    pub(super) score: Option<&'static WorkerScore>,
    /// Whether the process is to be replaced: at once (`kill`), or after this request (`last`).
    pub(super) kill: bool,
    /// Set if the process is killed because its request ran too long.
    pub(super) terminated: Option<Box<WorkerRequest>>,
    pub(super) last: bool,
    /// The cost that the worker reported for its request.
    pub(super) cost: Cost,
    /// Where the end of the request is noted, if somebody waits for it.
    pub(crate) ended: Option<Arc<OnceLock<ScriptEnd>>>,
    /// Its line in the pool's own log, if the worker reports its values.
    pub(crate) line: Option<Box<Line>>,
    /// Whether the request was begun. If not, returning the worker does not count as a finished request.
    pub(super) begun: bool,
    /// The turn of the request's `serialize_by` key, which ends with the lease.
    pub(crate) turn: Option<Turn>,
    /// What the pool learns from the request, and how the request used its session.
    pub(crate) learner: Option<Learner>,
    pub(super) session: Option<SessionUse>,
    /// Since when it is lent ([`clock::now`]), and for which site.
    pub(super) lent: u64,
    pub(crate) site: Option<usize>,
}

impl Deref for Lease {
    type Target = LeaseInner;

    fn deref(&self) -> &LeaseInner {
        &self.0
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut LeaseInner {
        &mut self.0
    }
}

impl Lease {
    /// The worker's kept connection, registered with the reactor `home`. `None` if there is none that can be used:
    /// [`Self::connect`] must follow.
    ///
    /// `choice.certain`: the request must not be lost or sent twice, so it must not go into a connection that the
    /// worker is about to close. A server then gets a new connection, because PHP-FPM closes kept ones at any time
    /// (`pm.max_requests`). For a program that weir runs, the connection is first checked to be open. The same is
    /// done with a connection that was idle for a while. For weir's own PHP the kernel tells afterwards whether the
    /// worker has read the request.
    pub(crate) fn reach(&mut self, home: u16, choice: &ServerChoice<'_>) -> Option<WorkerConn> {
        if matches!(self.pool.settings.runtime, Runtime::Servers(_)) {
            return self.reach_server(home, choice);
        }
        let conn = self.conn.take()?.at_home(home).ok()?;
        let stale = match self.is_php() {
            true => conn.has_spoken(),
            false => (choice.certain || conn.has_rested()) && conn.is_stale(),
        };
        (!stale).then_some(conn)
    }

    /// A new connection, after [`Self::reach`] has found none. The same parameters.
    ///
    /// # Errors
    ///
    /// If no server accepts a connection within `connect_timeout`, or a worker has just ended.
    pub(crate) async fn connect(
        &mut self,
        home: u16,
        choice: ServerChoice<'_>,
    ) -> Result<WorkerConn, ConnectError> {
        if matches!(self.pool.settings.runtime, Runtime::Servers(_)) {
            return self.connect_to(home, choice).await;
        }
        Err(ConnectError {
            address: format!("worker {}", self.pid),
            error: io::ErrorKind::NotConnected.into(),
        })
    }

    /// Notes how the request ended at the server. The first call counts.
    pub(crate) fn ended(&mut self, finish: Finish, cause: Option<&dyn std::fmt::Display>) {
        if self.outcome == Finish::Unknown {
            self.outcome = finish;
            self.cause = cause.map(|cause| cause.to_string());
        }
    }

    /// The server that got the request; `None` if weir runs the workers.
    pub(crate) fn server(&self) -> Option<ServerId> {
        self.chosen.map(|chosen| chosen.server)
    }

    /// The worker is about to get the request: notes it for the status page. `asker`: the client's number if it may be a
    /// worker ([`Source::number`](crate::scripts::self_calls::Caller::number)), otherwise 0.
    pub(crate) fn begin(&mut self, facts: &Facts<'_>, asker: u64) {
        self.begun = true;
        if let Some(score) = self.score {
            score.begin(facts, asker);
        }
    }

    /// Sets the time by which the answer must have begun ([`clock::now`]), or that there is no such time any more.
    pub(crate) fn ends_at(&self, request: u64, deadline: u64) {
        if let Some(score) = self.score {
            score.works_for(request, deadline);
        }
    }

    /// The worker has reported how the request used its session: the end of a READY record.
    pub(crate) fn used_session(&mut self, report: &[u8]) {
        if self.learner.is_some() {
            self.session = SessionUse::parse(report);
        }
    }

    /// The worker has looked how much of OPcache is in use, in thousandths.
    pub(crate) fn looked_at_opcache(&self, used: u16) {
        let mut state = self.pool.state();
        let start_number = state.slots[self.worker.0 as usize].start_number;
        state.opcache = Some((start_number, used));
    }

    /// The worker reports the values of that line ([`Line::take`]). `false`: it was not asked for them.
    pub(crate) fn take_note(&mut self, content: &[u8]) -> bool {
        self.line.as_mut().is_some_and(|line| line.take(content))
    }

    /// The response is complete, but the script still runs: it finished its response early.
    pub(crate) fn is_finishing(&self) {
        if let Some(score) = self.score {
            score.finishing();
        }
    }

    /// The worker has finished its request and is free; `conn` can be used for another one.
    pub(crate) fn release(mut self, conn: Option<WorkerConn>, cost: Cost) {
        self.conn = conn;
        self.cost = cost;
    }

    /// The worker is stuck or sends invalid data: if weir runs it, its process is replaced.
    pub(crate) fn kill(mut self) {
        self.conn = None;
        self.kill = true;
    }

    /// The script runs longer than `request_slowlog_timeout`: its position goes to the slow log.
    pub(crate) fn trace(&self, request: u64) {
        self.pool.state().slow_requests += 1;
        if let Some((worker, request)) = self.process.zip(self.told(request)) {
            let pool = self.pool.id;
            self.pool.manager.tell(ToManager::TraceWorker {
                pool,
                worker,
                request,
            });
        }
    }

    /// The script is ended because it ran longer than `request_terminate_timeout`: this goes to the log.
    pub(crate) fn terminate(&mut self, request: u64) {
        let told = self.told(request);
        match told {
            // The manager ends this one and reports how it ended.
            Some(told) if self.is_php() => self.terminated = Some(Box::new(told)),
            Some(told) => {
                events::request_terminated(&told.running(&self.pool.settings.name, self.pid))
            }
            None => {}
        }
    }

    /// Whether the worker is weir's own PHP, which reports when it is free.
    pub(crate) fn is_php(&self) -> bool {
        self.pool.settings.php().is_some()
    }

    /// The worker's name for the log; `None` before a server is chosen.
    pub(crate) fn worker(&self) -> Option<OwnedWorker> {
        match (self.process, self.server_name) {
            (Some(_), _) => Some(OwnedWorker::Pid(self.pid)),
            (None, Some(server)) => Some(OwnedWorker::Server(server)),
            (None, None) => None,
        }
    }

    fn told(&self, request: u64) -> Option<WorkerRequest> {
        // If weir does not run the worker, its process is not known, and weir does nothing to it.
        let score = self.score.filter(|_| self.process.is_some())?;
        let done = score.status().request;
        let query: &[&[u8]] = match &done.query[..] {
            b"" => &[],
            query => &[b"?", query],
        };
        let uri = [&done.uri[..], &query.concat()].concat();
        let text = |bytes: &[u8]| {
            let cut = &bytes[..bytes.len().min(LONGEST_TOLD)];
            String::from_utf8_lossy(cut).into_owned()
        };
        Some(WorkerRequest {
            script: text(&done.script),
            method: text(&done.method),
            uri: text(&uri),
            elapsed: done.duration.as_micros() as u64,
            number: request,
        })
    }
}

/// A script's name, method or URI is cut to this many bytes in the log.
const LONGEST_TOLD: usize = 4096;

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(score) = self.score {
            score.end(self.cost);
        }
        if let Some(ended) = &self.ended {
            let _ = ended.set(ScriptEnd {
                at: clock::now(),
                cost: self.cost,
            });
        }
        if let Some(line) = self.line.take() {
            line.write(self.pool, self.pid);
        }
        let pool = self.pool;
        if self.begun {
            let served = clock::now().saturating_sub(self.lent);
            pool.tally.served(self.site, pool.id, served);
            // Nothing is known about a request whose worker did not report its end.
            if let Some(learner) = self.learner.filter(|_| self.conn.is_some() && !self.kill) {
                self.learn(learner, served);
            }
        }
        let mut effects = Effects::default();
        let mut state = pool.state();
        let now = Micros(clock::now());
        state.pass(now);
        state.last_end = now.0;
        match pool.settings.runtime {
            Runtime::Servers(_) => state.take_place_back(pool, self, now, &mut effects),
            Runtime::Php(_) | Runtime::Command(_) => {
                self.give_back(pool, &mut state, now, &mut effects);
            }
        }
        state.end_relief(pool, now, &mut effects);
        drop(state);
        effects.perform(pool);
    }
}

impl Lease {
    /// Learns from the end of the request whether its script holds the lock of its session.
    fn learn(&self, learner: Learner, served: u64) {
        let session = self.session.as_ref();
        let learned = self.pool.learn(learner, session, served);
        if let Some((learned, score)) = learned.zip(self.score) {
            let done = score.status().request;
            // A client may have chosen a part of this text, so it is escaped.
            let script = format!("{:?}", String::from_utf8_lossy(&done.script));
            let about = About {
                pool: Some(&self.pool.settings.name),
                ..About::default()
            };
            match learned {
                Learned::Holds(cookie) => tell!(
                    notice,
                    about,
                    "{script} holds the lock of its session: requests with the same cookie {cookie} run one after the other (serialize_by = \"auto\")"
                ),
                Learned::HoldsNoMore => tell!(
                    notice,
                    about,
                    "{script} no longer holds the lock of its session: its requests run at the same time again (serialize_by = \"auto\")"
                ),
            }
        }
    }

    /// Returns a worker that weir runs.
    fn give_back(
        &mut self,
        pool: &'static PoolHandle,
        state: &mut super::State,
        now: Micros,
        effects: &mut Effects,
    ) {
        state.memory_peak = state.memory_peak.max(self.cost.memory);
        let slot = &mut state.slots[self.worker.0 as usize];
        slot.leased = false;
        if slot.process != self.process {
            // It has ended meanwhile.
            effects.close(self.conn.take());
            slot.lost = true;
            self.lose(state, now, effects);
            state.ended(pool, self.worker, now, effects);
            state.settle(pool, now, effects);
            return state.look(pool, now, effects);
        }
        // If a new connection arrived meanwhile, it is used instead of the lent one.
        if slot.conn.is_none() && !self.kill {
            slot.conn = self.conn.take();
        }
        if slot.conn.is_some() && !self.kill && !self.begun {
            // The client left before the worker got the request.
            slot.requests = slot.requests.saturating_sub(1);
            let released = state.pool.abandon(now, self.worker);
            state.waits_again(&released);
            return self.go_on(state, released, now, effects);
        }
        if slot.conn.is_some() && !self.kill {
            let grew = pool.settings.workers().is_some_and(|workers| {
                workers.max_memory > 0 && self.cost.resident > workers.max_memory
            });
            if self.last || grew {
                slot.spent = true;
                state.pool.retire(now, self.worker);
            }
            if let Some(score) = self.score {
                state.answered(pool, score, now, effects);
            }
            let released = state.pool.release(now, self.worker);
            state.waits_again(&released);
            return self.go_on(state, released, now, effects);
        }
        effects.close(slot.conn.take());
        // weir's own PHP has one connection for its whole life; a program gets a new one.
        let kill = self.kill || pool.settings.php().is_some();
        slot.withdrawn |= self.kill;
        slot.lost = true;
        self.lose(state, now, effects);
        if let Some(worker) = self.process {
            let pool = pool.id;
            effects.tell_manager(match kill {
                true => match self.terminated.take() {
                    Some(told) => ToManager::Terminate {
                        pool,
                        worker,
                        request: *told,
                    },
                    None => ToManager::Kill { pool, worker },
                },
                false => ToManager::Connect { pool, worker },
            });
        }
        state.settle(pool, now, effects);
        state.look(pool, now, effects);
    }

    /// The worker gets no other request. Its own is lost, unless its response was complete: a script may end its process
    /// after that.
    fn lose(&self, state: &mut super::State, now: Micros, effects: &mut Effects) {
        if self.outcome != Finish::Answered {
            state.pool.lose(now, self.worker);
            return;
        }
        state.pool.retire(now, self.worker);
        if let Some(next) = state.pool.release(now, self.worker).next {
            state.grant(self.pool, next, effects);
        }
    }

    /// The worker is free or ends; the next request gets one.
    fn go_on(
        &self,
        state: &mut super::State,
        released: Released,
        now: Micros,
        effects: &mut Effects,
    ) {
        let pool = self.pool;
        if released.leaves {
            state.withdraw(pool, self.worker, effects);
        }
        if let Some(next) = released.next {
            state.grant(pool, next, effects);
        }
        match released.leaves {
            true => state.look(pool, now, effects),
            false => state.look_at_load(pool, now, effects),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_moved_as_a_pointer() {
        assert_eq!(size_of::<Lease>(), size_of::<usize>());
    }
}
