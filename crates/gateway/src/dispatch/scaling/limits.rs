//! The limits of a pool: those of the configuration, and those that an operator has set at run time, which last until
//! the next reload.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use weir_config::{Queue, QueueOrder, Runtime};
use weir_control::WorkerTotals;
use weir_observe::clock;
use weir_pool::{Action, Limits, Micros, Order, Reserve, Reserves, Stats};

use crate::dispatch::{AskedBy, PoolHandle};

/// Limits that an operator has set; 0 if not set.
#[derive(Debug, Default)]
pub(crate) struct Set {
    max_children: AtomicUsize,
    maxconn: AtomicUsize,
}

impl PoolHandle {
    /// Sets limits: the maximum of workers, and of requests at work at once; `None` leaves a limit unchanged. Waiting
    /// requests may then run at once, and surplus workers end after their present request.
    pub(crate) fn set_limits(&'static self, max_children: Option<u32>, maxconn: Option<u32>) {
        let before = (self.max_children(), self.maxconn());
        if let Some(most) = max_children {
            self.set.max_children.store(most as usize, Relaxed);
        }
        // If `maxconn` was always equal to the number of workers, it stays so.
        let with = max_children.filter(|_| before.0 == Some(before.1));
        if let Some(most) = maxconn.or(with) {
            self.set.maxconn.store(most as usize, Relaxed);
        }
        // Workers beyond the limit are started again if they are needed.
        self.self_calls.beyond.store(0, Relaxed);
        self.change(|state, now, effects| {
            if let (Some(scaling), Some(workers)) = (&mut state.scaling, self.settings.workers()) {
                let most = self.max_children().unwrap_or(workers.max_children);
                scaling.set_max_children(now, workers, most);
            }
            if state.group.is_some() {
                return state.fit(self, now, effects);
            }
            let mut limits = state.pool.limits();
            limits.maxconn = self.maxconn();
            for action in state.pool.set_limits(now, limits) {
                match action {
                    Action::Run(assignment) => state.grant(self, assignment, effects),
                    Action::Shed { request, reason } => state.refuse(request, reason, effects),
                }
            }
        });
    }

    /// The maximum of workers now; `None` if others run them.
    pub(crate) fn max_children(&self) -> Option<usize> {
        let configured = self.settings.workers()?.max_children;
        Some(match self.set.max_children.load(Relaxed) {
            0 => configured,
            set => set,
        })
    }

    /// The maximum of requests at work at once now.
    pub(crate) fn maxconn(&self) -> usize {
        match self.set.maxconn.load(Relaxed) {
            0 => self.settings.queue.maxconn,
            set => set,
        }
    }

    /// How many requests may run at once now: [`Self::maxconn`], or less while there is little load (`fullconn`).
    pub(crate) fn running_limit(&self, stats: &Stats) -> usize {
        match stats.limit {
            0 => self.maxconn(),
            limit => limit,
        }
    }

    /// How many requests can be at work at once now: the lower of the number of workers and `maxconn`.
    pub(crate) fn capacity(&self, stats: &Stats) -> usize {
        let most = self
            .running_limit(stats)
            .max(self.maxconn().min(stats.limit));
        self.max_children()
            .map_or(most, |children| most.min(children))
    }

    /// How full the queue is, per cent: the higher one of waiting requests ÷ `max_queue`, and expected wait ÷
    /// `timeout`.
    pub(crate) fn fullness(&self) -> f64 {
        let (stats, queue) = (self.stats(), &self.settings.queue);
        let places = stats.waiting as f64 / queue.max_queue.max(1) as f64;
        let timeout = queue.timeout.as_micros().max(1) as f64;
        let time = stats.expected_wait.0 as f64 / timeout;
        100.0 * places.max(time)
    }

    /// Adds what its workers do.
    pub(crate) fn add_to(&self, work: &mut WorkerTotals) {
        let (stats, slow, counts) = {
            let mut state = self.state();
            state.pass(Micros(clock::now()));
            let counts = state.counted(&AskedBy::Nobody, None);
            (state.pool.stats(), state.slow_requests, counts)
        };
        let (idle, active, _) = counts.unwrap_or((stats.free, stats.busy, 0));
        work.active = work.active.saturating_add(active as u32);
        work.idle = work.idle.saturating_add(idle as u32);
        work.requests += stats.started + self.pages.load(Relaxed);
        work.slow += slow;
    }

    /// Waits while the queue is full, if further requests must stay in the kernel's queue (`when_full = "wait"`).
    pub(crate) async fn room_to_wait(&self) {
        let queue = &self.settings.queue;
        if queue.waits_when_full {
            // This loop runs only while the queue is full. The pause is much shorter than a request.
            while self.state().pool.waiting() >= queue.max_queue {
                tokio::time::sleep(LOOK_FOR_ROOM).await;
            }
        }
    }

    /// Whether an operator has set a limit.
    pub(crate) fn is_set(&self) -> bool {
        self.set.max_children.load(Relaxed) > 0 || self.set.maxconn.load(Relaxed) > 0
    }
}

/// Time between two checks whether a full queue has room.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(5);

/// The pool's limits from the configuration.
pub(crate) fn of(queue: &Queue) -> Limits {
    let reserve = queue.reserve.iter().map(|reserve| Reserve {
        priority: reserve.priority,
        workers: reserve.workers,
    });
    Limits {
        maxconn: queue.maxconn,
        minconn: queue.minconn,
        fullconn: queue.fullconn,
        max_queue: match queue.waits_when_full {
            // Bounded by the connections that are accepted.
            true => usize::MAX >> 1,
            false => queue.max_queue,
        },
        timeout: Micros(queue.timeout.as_micros() as u64),
        client_share: queue.client_share,
        order: match queue.order {
            QueueOrder::Adaptive => Order::Adaptive,
            QueueOrder::Fifo => Order::Fifo,
        },
        // The configuration's check has refused larger numbers.
        reserve: Reserves::new(&reserve.collect::<Vec<_>>()).unwrap_or(Reserves::NONE),
    }
}

/// After how many requests a php-cgi process ends.
pub(crate) fn php_requests(runtime: &Runtime) -> Option<u64> {
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
