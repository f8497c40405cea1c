//! What is shown of servers.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use weir_pool::{Micros, ServerId, ServerState};

use super::UnknownName;
use crate::clock;
use crate::gateway::dispatch::PoolHandle;

/// A server as it is.
#[derive(Debug, Clone)]
pub(crate) struct ServerStatus {
    /// Its address; behind the name that it was found by, where there is one: `php.internal:9000 (10.0.0.5)`.
    pub(crate) name: Arc<str>,
    /// Whether it gets requests.
    pub(crate) state: ServerState,
    /// Only while no other server is up.
    pub(crate) backup: bool,
    /// Compared with the others' weights.
    pub(crate) weight: u32,
    /// Requests it has.
    pub(crate) busy: usize,
    /// Requests it may have.
    pub(crate) limit: usize,
    /// Connections kept for further requests.
    pub(crate) kept: usize,
    /// Requests it was given.
    pub(crate) requests: u64,
    /// Of these: those that failed.
    pub(crate) failures: u64,
    /// Times that it went down.
    pub(crate) downs: u64,
    /// How long its requests take while none waits for another, where its limit is found out.
    pub(crate) unloaded: Option<Duration>,
    /// None where it is not checked, or was not yet.
    pub(crate) last_check: Option<CheckStatus>,
    /// For how long it has had requests and answered none; none: it has no request.
    pub(crate) silent: Option<Duration>,
}

/// How a check ended.
#[derive(Debug, Clone)]
pub(crate) struct CheckStatus {
    pub(crate) at: SystemTime,
    /// None: the server was busy, which counts for nothing.
    pub(crate) good: Option<bool>,
    /// What it said, or what went wrong.
    pub(crate) what: String,
    pub(crate) took: Duration,
}

impl ServerStatus {
    /// `up`, `backup` (up, and not in use but as one), `slow start`, `probing`, `down`, `drained` or `leaving`.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            ServerState::Up if self.backup => "backup",
            ServerState::Up => "up",
            ServerState::SlowStart => "slow start",
            ServerState::Probing => "probing",
            ServerState::Down => "down",
            ServerState::Drained => "drained",
            ServerState::Leaving => "leaving",
        }
    }
}

impl PoolHandle {
    /// The servers of the pool; none where weir runs the workers itself.
    pub(crate) fn servers(&self) -> Vec<ServerStatus> {
        let state = self.state();
        let now = Micros(clock::now());
        let Some(farm) = &state.farm else {
            return Vec::new();
        };
        let all = (0..).map(ServerId).zip(&farm.members);
        let shown = all.filter_map(|(id, member)| {
            let (member, figures) = (member.as_ref()?, farm.balancer.figures(now, id)?);
            let status = ServerStatus {
                name: member.name.clone(),
                state: figures.state,
                backup: figures.backup,
                weight: figures.weight,
                busy: figures.busy,
                limit: figures.limit,
                kept: member.kept.len(),
                requests: figures.requests,
                failures: figures.failures,
                downs: figures.downs,
                unloaded: figures.unloaded.map(Duration::from),
                last_check: member.last_check.clone(),
                silent: (figures.busy > 0)
                    .then(|| Duration::from_micros(now.0.saturating_sub(member.quiet_since))),
            };
            Some((member.entry, member.serial, status))
        });
        let mut shown: Vec<_> = shown.collect();
        shown.sort_by_key(|(entry, serial, _)| (*entry, *serial));
        shown.into_iter().map(|(_, _, status)| status).collect()
    }

    /// Names of servers that cannot be looked up.
    pub(crate) fn unknown_names(&self) -> Vec<UnknownName> {
        let state = self.state();
        let farm = state.farm.as_ref();
        farm.map_or_else(Vec::new, |farm| {
            farm.unknown_names.values().cloned().collect()
        })
    }

    /// Requests that may be at work at once now.
    pub(crate) fn limit(&self) -> usize {
        self.state().pool.limits().maxconn
    }
}
