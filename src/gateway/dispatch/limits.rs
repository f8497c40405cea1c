//! What bounds a pool: what its configuration says, and what an operator has set while it runs, which the next reload makes
//! it forget.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use weir_config::{Queue, QueueOrder, Runtime};
use weir_pool::{Action, Limits, Micros, Order, Reserve, Reserves, Stats};

use super::PoolHandle;

/// What was set, 0 where nothing was.
#[derive(Debug, Default)]
pub(super) struct Set {
    max_children: AtomicUsize,
    maxconn: AtomicUsize,
}

impl PoolHandle {
    /// Sets limits: workers at most, and requests at work at once; none: as before. Who waits may run at once then, and
    /// workers that are too many leave, after what they run.
    pub(crate) fn set_limits(self: &Arc<Self>, max_children: Option<u32>, maxconn: Option<u32>) {
        let before = (self.max_children(), self.maxconn());
        if let Some(most) = max_children {
            self.set.max_children.store(most as usize, Relaxed);
        }
        // As many requests as workers, where nothing else was ever said.
        let with = max_children.filter(|_| before.0 == Some(before.1));
        if let Some(most) = maxconn.or(with) {
            self.set.maxconn.store(most as usize, Relaxed);
        }
        // Those beside the limit come again if they are needed.
        self.own.beyond.store(0, Relaxed);
        self.change(|state, now, after| {
            if let (Some(scaling), Some(workers)) = (&mut state.scaling, self.settings.workers()) {
                let most = self.max_children().unwrap_or(workers.max_children);
                scaling.set_max_children(now, workers, most);
            }
            if state.farm.is_some() {
                return state.fit(self, now, after);
            }
            let mut limits = state.pool.limits();
            limits.maxconn = self.maxconn();
            for action in state.pool.set_limits(now, limits) {
                match action {
                    Action::Run(assignment) => state.grant(self, assignment, after),
                    Action::Shed { request, reason } => state.refuse(request, reason, after),
                }
            }
        });
    }

    /// Workers at most, now; none where others run them.
    pub(crate) fn max_children(&self) -> Option<usize> {
        let configured = self.settings.workers()?.max_children;
        Some(match self.set.max_children.load(Relaxed) {
            0 => configured,
            set => set,
        })
    }

    /// Requests at work at once at most, now.
    pub(crate) fn maxconn(&self) -> usize {
        match self.set.maxconn.load(Relaxed) {
            0 => self.settings.queue.maxconn,
            set => set,
        }
    }

    /// Requests that may run at once now: [`Self::maxconn`], or less while there is less to do (`fullconn`).
    pub(crate) fn running_limit(&self, stats: &Stats) -> usize {
        match stats.limit {
            0 => self.maxconn(),
            limit => limit,
        }
    }

    /// Requests at work at once at most, now: as many as there may be workers, and `maxconn`.
    pub(crate) fn capacity(&self, stats: &Stats) -> usize {
        let most = self
            .running_limit(stats)
            .max(self.maxconn().min(stats.limit));
        self.max_children()
            .map_or(most, |children| most.min(children))
    }

    /// How full its queue is, per cent: of its places, or of the time that a request may wait, whichever is fuller.
    pub(crate) fn fullness(&self) -> f64 {
        let (stats, queue) = (self.stats(), &self.settings.queue);
        let places = stats.waiting as f64 / queue.max_queue.max(1) as f64;
        let timeout = queue.timeout.as_micros().max(1) as f64;
        let time = stats.expected_wait.0 as f64 / timeout;
        100.0 * places.max(time)
    }

    /// Whether an operator has set any of them.
    pub(crate) fn is_set(&self) -> bool {
        self.set.max_children.load(Relaxed) > 0 || self.set.maxconn.load(Relaxed) > 0
    }
}

/// What bounds the pool.
pub(super) fn of(queue: &Queue) -> Limits {
    let reserve = queue.reserve.iter().map(|reserve| Reserve {
        priority: reserve.priority,
        workers: reserve.workers,
    });
    Limits {
        maxconn: queue.maxconn,
        minconn: queue.minconn,
        fullconn: queue.fullconn,
        max_queue: queue.max_queue,
        timeout: Micros(queue.timeout.as_micros() as u64),
        order: match queue.order {
            QueueOrder::Adaptive => Order::Adaptive,
            QueueOrder::Fifo => Order::Fifo,
        },
        // More than there is room for are refused with the configuration.
        reserve: Reserves::new(&reserve.collect::<Vec<_>>()).unwrap_or(Reserves::NONE),
    }
}

/// How many requests a php-cgi takes before it ends.
pub(super) fn php_requests(runtime: &Runtime) -> Option<u64> {
    let Runtime::Command(command) = runtime else {
        return None;
    };
    let program = command.argv.first()?.rsplit('/').next()?;
    let (_, most) = command
        .workers
        .env
        .iter()
        .find(|(name, _)| name == "PHP_FCGI_MAX_REQUESTS")?;
    let most = most.parse().ok();
    most.filter(|most: &u64| *most > 0 && program.starts_with("php"))
}
