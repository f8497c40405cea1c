//! The running requests of a pool, and whether its workers make progress: for readiness and the admin interface.

use std::{collections::HashMap, time::Duration};

use weir_observe::{
    clock,
    pool_status::{Stage, WorkerStatus},
    scoreboard::{Score, WorkerScore},
};

use crate::dispatch::{PoolHandle, State};

/// What workers do now.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Running {
    /// Requests whose worker is known. While a request connects to a server, its worker is not known yet.
    pub(crate) count: usize,
    /// The request that has run longest.
    pub(crate) oldest: Option<WorkerStatus>,
    /// The scripts that they run, those with the most requests first; at most [`MOST_SCRIPTS`].
    pub(crate) scripts: Vec<Script>,
}

/// A script that workers run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Script {
    /// SCRIPT_FILENAME, or the path if there is none.
    pub(crate) name: String,
    /// How many requests run it.
    pub(crate) count: usize,
    /// How long the oldest of them has run.
    pub(crate) oldest: Duration,
}

impl PoolHandle {
    /// The requests that the workers run now.
    pub(crate) fn running(&self) -> Running {
        let scores: Vec<&WorkerScore> = {
            let state = self.state();
            let leased = state.slots.iter().filter(|slot| slot.leased);
            leased
                .filter_map(|slot| slot.score.as_ref().map(Score::get))
                .collect()
        };
        let running = scores.iter().map(|score| score.status());
        Running::of(running.filter(|status| status.stage != Stage::Idle))
    }

    /// How long all workers that the pool may have are busy, each with the same request. `None` if a worker is free,
    /// or another one can be started.
    pub(crate) fn stalled(&self) -> Option<Duration> {
        let most = match self.max_children() {
            Some(children) => children.min(self.maxconn()),
            None => usize::MAX,
        };
        self.state().stalled(clock::precise(), most)
    }
}

impl State {
    /// See [`PoolHandle::stalled`]. `now`: [`clock::now`].
    fn stalled(&self, now: u64, most: usize) -> Option<Duration> {
        let stats = self.pool.stats();
        // If there are fewer workers than allowed, the next request starts another one, or tries to.
        let limit = if stats.limit == 0 { most } else { stats.limit };
        let full = stats.busy >= most.min(limit);
        let waits_in_vain = stats.free == 0 && stats.waiting > 0;
        let moved = self.last_lent.max(self.last_end);
        (stats.busy > 0 && (full || waits_in_vain))
            .then(|| Duration::from_micros(now.saturating_sub(moved)))
    }
}

impl Running {
    fn of(workers: impl Iterator<Item = WorkerStatus>) -> Running {
        let mut running = Running::default();
        let mut scripts: HashMap<String, (usize, Duration)> = HashMap::new();
        for worker in workers {
            running.count += 1;
            let request = &worker.request;
            let name = match &request.script[..] {
                b"" => &request.uri,
                script => script,
            };
            let name = String::from_utf8_lossy(name).into_owned();
            let (count, oldest) = scripts.entry(name).or_default();
            *count += 1;
            *oldest = (*oldest).max(request.duration);
            let longest = running
                .oldest
                .as_ref()
                .map(|oldest| oldest.request.duration);
            if longest.is_none_or(|longest| request.duration > longest) {
                running.oldest = Some(worker);
            }
        }
        running.scripts = (scripts.into_iter())
            .map(|(name, (count, oldest))| Script {
                name,
                count,
                oldest,
            })
            .collect();
        let key = |script: &Script| (script.count, script.oldest);
        running
            .scripts
            .sort_by(|one, other| key(other).cmp(&key(one)).then(one.name.cmp(&other.name)));
        running.scripts.truncate(MOST_SCRIPTS);
        running
    }
}

/// How many scripts are reported.
const MOST_SCRIPTS: usize = 5;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use weir_observe::pool_status::RequestStatus;

    #[test]
    fn the_script_that_most_workers_run_comes_first_and_the_longest_is_known() {
        let worker = |pid, script: &str, seconds| WorkerStatus {
            early_memory: 0,
            pid,
            stage: Stage::Running,
            started: SystemTime::UNIX_EPOCH,
            requests: 1,
            request: RequestStatus {
                script: script.into(),
                uri: b"/uri".to_vec(),
                duration: Duration::from_secs(seconds),
                ..RequestStatus::default()
            },
        };
        let running = Running::of(
            [
                worker(1, "/a.php", 3),
                worker(2, "/b.php", 60),
                worker(3, "/a.php", 9),
                worker(4, "", 1),
            ]
            .into_iter(),
        );
        assert_eq!(running.count, 4);
        assert_eq!(running.oldest.map(|worker| worker.pid), Some(2));
        let told: Vec<_> = (running.scripts.iter())
            .map(|script| (script.name.as_str(), script.count, script.oldest.as_secs()))
            .collect();
        assert_eq!(told, [("/a.php", 2, 9), ("/b.php", 1, 60), ("/uri", 1, 1)]);
    }
}
