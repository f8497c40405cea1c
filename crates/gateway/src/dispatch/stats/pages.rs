//! The data for a pool's status and ping pages.

use std::{
    sync::{PoisonError, atomic::Ordering::Relaxed},
    time::SystemTime,
};

use weir_config::Pm;
use weir_observe::scoreboard::{Score, WorkerScore};
use weir_observe::{
    clock,
    pool_status::{PoolStatus, RequestStatus, Stage, WorkerStatus},
};
use weir_pool::{Micros, Released};

use super::counts::ListenQueue;
use crate::dispatch::{PoolHandle, Scaling, State};

/// The source of a request for a page or for the figures.
#[derive(Debug, Clone)]
pub(crate) enum AskedBy {
    /// A request at the pool's own listener. In PHP-FPM one of its processes would answer it.
    Request(RequestStatus),
    /// A request at a listener for pages alone, which PHP-FPM answers by other processes.
    Elsewhere,
    /// A worker, or weir itself.
    Nobody,
}

impl PoolHandle {
    /// The pool's figures now, and those of its workers, for the status page.
    pub(crate) fn status(&self, asked_by: AskedBy) -> PoolStatus {
        let (stats, figures, slow_requests, memory_peak, scores, counts, queue) = {
            let mut state = self.state();
            state.pass(Micros(clock::now()));
            let counts = state.counted(&asked_by, self.max_children());
            let running = state.slots.iter().filter(|slot| slot.process.is_some());
            let scores: Vec<&WorkerScore> = running
                .filter_map(|slot| slot.score.as_ref().map(Score::get))
                .collect();
            let figures = state.scaling.as_ref().map(Scaling::figures);
            let (slow, peak) = (state.slow_requests, state.memory_peak);
            let stats = state.pool.stats();
            let queue = match &state.counts {
                Some(counts) => counts.queue(),
                None => ListenQueue {
                    length: stats.waiting,
                    most: stats.max_waiting,
                    limit: self.settings.queue.max_queue,
                },
            };
            (stats, figures, slow, peak, scores, counts, queue)
        };
        let truth = (stats.free, stats.busy, stats.max_busy);
        let (idle, active, max_active) = counts.unwrap_or(truth);
        let mut workers: Vec<WorkerStatus> = scores.iter().map(|score| score.status()).collect();
        if let (AskedBy::Request(request), Some(_)) = (asked_by, counts) {
            show(request, &mut workers, idle + active);
        }
        PoolStatus {
            name: self.settings.name.clone(),
            pm: match self.settings.workers().map(|workers| workers.pm) {
                Some(Pm::Static) => "static",
                Some(Pm::Dynamic { .. }) => "dynamic",
                Some(Pm::OnDemand) => "ondemand",
                Some(Pm::Auto { .. }) => "auto",
                None => "servers",
            },
            started: self.started,
            accepted: stats.started + self.pages.load(Relaxed),
            listen_queue: queue.length,
            max_listen_queue: queue.most,
            listen_queue_len: queue.limit,
            idle,
            active,
            max_active,
            max_children_reached: figures.map_or(0, |figures| figures.max_children_reached),
            slow_requests,
            memory_peak: self.shows_memory_peak().then_some(memory_peak),
            workers,
        }
    }

    /// Notes the PHP version of the workers. `exposed`: answers may name it.
    pub(crate) fn has_php(&self, version: &str, exposed: bool) {
        *self.php.lock().unwrap_or_else(PoisonError::into_inner) = (version.to_owned(), exposed);
    }

    /// The PHP version of the workers, and whether answers may name it; empty if they do not run weir's PHP.
    pub(crate) fn php(&self) -> (String, bool) {
        let php = self.php.lock().unwrap_or_else(PoisonError::into_inner);
        php.clone()
    }

    /// Notes the process that workers are forked from (0: none), or why there is none.
    pub(crate) fn has_zygote(&self, pid: u32, declined: String) {
        *self.zygote.lock().unwrap_or_else(PoisonError::into_inner) = (pid, declined);
    }

    /// The process that workers are forked from (0: none), and why there is none; empty: for no special reason.
    pub(crate) fn zygote(&self) -> (u32, String) {
        let zygote = self.zygote.lock().unwrap_or_else(PoisonError::into_inner);
        zygote.clone()
    }

    /// Notes which process loads PHP for several pools (0: none), or why this pool loads it for itself.
    pub(crate) fn has_load(&self, template: u32, own: &str) {
        *self.load.lock().unwrap_or_else(PoisonError::into_inner) = (template, own.to_owned());
    }

    /// The process that has loaded PHP for this pool and others (0: none), and why this pool loads it for itself; empty: it does not.
    pub(crate) fn load(&self) -> (u32, String) {
        let load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        load.clone()
    }

    /// PHP-FPM's page has this field since 8.4. If the workers are not PHP, nobody expects it to be missing.
    pub(crate) fn shows_memory_peak(&self) -> bool {
        let (loaded, _) = self.php();
        let configured = self.settings.php().and_then(|php| php.version.clone());
        let version = match loaded.is_empty() {
            true => configured.unwrap_or_default(),
            false => loaded,
        };
        let mut numbers = version
            .split('.')
            .map_while(|part| part.parse::<u32>().ok());
        let version = (numbers.next(), numbers.next());
        version.0.is_none() || version >= (Some(8), Some(4))
    }

    /// Counts a status or ping page as PHP-FPM does.
    pub(crate) fn count_page(&self, asked_by: &AskedBy) {
        if let AskedBy::Request(_) = asked_by {
            self.pages.fetch_add(1, Relaxed);
            let mut state = self.state();
            state.pass(Micros(clock::now()));
            state.counted(asked_by, self.max_children());
        }
    }
}

impl State {
    /// Updates the counts as PHP-FPM's master does, if a second has begun. To be called before anything changes.
    pub(crate) fn pass(&mut self, now: Micros) {
        if let Some(counts) = &mut self.counts
            && counts.is_due(now.0)
        {
            let starting = self
                .scaling
                .as_ref()
                .map_or(0, |own| own.figures().starting);
            let stats = self.pool.stats();
            counts.set(self.pool.free(), stats.busy + starting, stats.waiting);
        }
    }

    /// A worker is free again, if it does not leave.
    pub(crate) fn waits_again(&mut self, released: &Released) {
        if let Some(counts) = self.counts.as_mut().filter(|_| !released.leaves) {
            counts.waits();
        }
    }

    /// Idle and active processes, and the highest number of active ones, as PHP-FPM counts them.
    pub(crate) fn counted(
        &mut self,
        asked_by: &AskedBy,
        max_children: Option<usize>,
    ) -> Option<(usize, usize, usize)> {
        let stats = self.pool.stats();
        let starting = self
            .scaling
            .as_ref()
            .map_or(0, |own| own.figures().starting);
        let all = stats.workers + stats.leaving + starting;
        let counts = self.counts.as_mut()?;
        Some(match asked_by {
            AskedBy::Request(_) => {
                counts.shown_by_one(max_children.is_some_and(|most| all >= most))
            }
            AskedBy::Elsewhere | AskedBy::Nobody => counts.shown(),
        })
    }
}

/// Shows this request at an idle worker, as in PHP-FPM; where there is none, at the gateway, if that is one of `total`.
fn show(request: RequestStatus, workers: &mut Vec<WorkerStatus>, total: usize) {
    let idle = workers
        .iter_mut()
        .find(|worker| worker.stage == Stage::Idle);
    if let Some(worker) = idle {
        worker.stage = Stage::Running;
        worker.request = request;
    } else if workers.len() < total {
        workers.push(WorkerStatus {
            early_memory: 0,
            pid: std::process::id(),
            stage: Stage::Running,
            started: SystemTime::now(),
            requests: 1,
            request,
        });
    }
}
