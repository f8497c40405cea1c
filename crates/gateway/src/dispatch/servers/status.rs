//! The status of servers for the operator.

use std::time::{Duration, SystemTime};

use weir_observe::clock;
use weir_pool::{Micros, ServerId, ServerState};

use super::UnknownName;
use crate::dispatch::PoolHandle;

/// The current state of a server.
#[derive(Debug, Clone)]
pub(crate) struct ServerStatus {
    /// Its address, after the name it was resolved from, if any: `php.internal:9000 (10.0.0.5)`.
    pub(crate) name: &'static str,
    /// Whether it gets requests.
    pub(crate) state: ServerState,
    /// Used only while no other server is up.
    pub(crate) backup: bool,
    /// Relative to the weights of the others.
    pub(crate) weight: u32,
    /// Requests at the server now.
    pub(crate) busy: usize,
    /// The maximum of these.
    pub(crate) limit: usize,
    /// Idle connections that are kept.
    pub(crate) kept: usize,
    /// Requests that were given to it.
    pub(crate) requests: u64,
    /// How many of these failed.
    pub(crate) failures: u64,
    /// How often it went down.
    pub(crate) downs: u64,
    /// How long its requests take without load, if its limit is measured.
    pub(crate) unloaded: Option<Duration>,
    /// `None` if it is not checked, or was not yet.
    pub(crate) last_check: Option<CheckStatus>,
    /// How long it has had requests without answering any; `None` if it has no request.
    pub(crate) silent: Option<Duration>,
}

/// Result of a check.
#[derive(Debug, Clone)]
pub(crate) struct CheckStatus {
    pub(crate) at: SystemTime,
    /// `None`: the server was busy, which is neither good nor bad.
    pub(crate) good: Option<bool>,
    /// The answer, or what went wrong.
    pub(crate) what: String,
    pub(crate) took: Duration,
}

impl ServerStatus {
    /// `up`, `backup` (up, but used only if no other is), `slow start`, `probing`, `down`, `drained` or `leaving`.
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
    /// The servers of the pool; `None` if weir runs the workers itself.
    pub(crate) fn servers(&self) -> Vec<ServerStatus> {
        let state = self.state();
        let now = Micros(clock::now());
        let Some(group) = &state.group else {
            return Vec::new();
        };
        let all = (0..).map(ServerId).zip(&group.members);
        let shown = all.filter_map(|(id, member)| {
            let (member, figures) = (member.as_ref()?, group.balancer.figures(now, id)?);
            let status = ServerStatus {
                name: member.name,
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

    /// Server names that could not be looked up.
    pub(crate) fn unknown_names(&self) -> Vec<UnknownName> {
        let state = self.state();
        let group = state.group.as_ref();
        group.map_or_else(Vec::new, |group| {
            group.unknown_names.values().cloned().collect()
        })
    }

    /// How many requests may be at work at once now.
    pub(crate) fn limit(&self) -> usize {
        self.state().pool.limits().maxconn
    }
}
