//! The numbers of idle and active processes as in PHP-FPM's scoreboard at the same moment, for the status page when
//! weir runs instead of PHP-FPM.
//!
//! PHP-FPM's children count themselves when they begin to wait for a request and when they get one; its master counts
//! all of them once a second. So a new child is not in the total before the next second. Monitoring for PHP-FPM expects
//! these numbers.
//!
//! At the same time PHP-FPM's master reads the length of a TCP listener's accept queue. For a unix socket the kernel
//! does not report a length, so the page shows 0.
//!
//! PHP-FPM 8.2, sapi/fpm/fpm: `fpm_request_accepting`, `fpm_request_reading_headers`, `fpm_scoreboard_update` and
//! `fpm_pctl_perform_idle_server_maintenance`.

/// The numbers of a pool.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    idle: usize,
    active: usize,
    most_active: usize,
    queue: ListenQueue,
    /// The second in which the master has counted last.
    second: u64,
}

/// The accept queue of a pool's listener, as PHP-FPM shows it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListenQueue {
    pub(crate) length: usize,
    pub(crate) most: usize,
    /// 0: a unix socket, whose queue is not known.
    pub(crate) limit: usize,
}

impl Counts {
    /// `now`: [`weir_observe::clock::now`]; `queue_limit`: [`ListenQueue::limit`].
    pub(crate) fn new(now: u64, queue_limit: usize) -> Self {
        let limit = queue_limit;
        Self {
            queue: ListenQueue {
                limit,
                ..ListenQueue::default()
            },
            second: now / SECOND,
            ..Self::default()
        }
    }

    /// Whether the master counts now: a second has begun since the last call.
    pub(crate) fn is_due(&mut self, now: u64) -> bool {
        let second = now / SECOND;
        let is_due = second > self.second;
        self.second = self.second.max(second);
        is_due
    }

    /// The master has counted. A process that does not wait for requests yet is active. `waiting`: requests without a worker.
    pub(crate) fn set(&mut self, idle: usize, active: usize, waiting: usize) {
        (self.idle, self.active) = (idle, active);
        self.most_active = self.most_active.max(active);
        if self.queue.limit > 0 {
            self.queue.length = waiting;
            self.queue.most = self.queue.most.max(waiting);
        }
    }

    /// The queue of the listener when the master has looked last.
    pub(crate) fn queue(&self) -> ListenQueue {
        self.queue
    }

    /// A process begins to wait for a request: a new one, or one that has answered.
    pub(crate) fn waits(&mut self) {
        self.idle += 1;
        self.active = self.active.saturating_sub(1);
    }

    /// A process gets a request.
    pub(crate) fn works(&mut self) {
        self.idle = self.idle.saturating_sub(1);
        self.active += 1;
        self.most_active = self.most_active.max(self.active);
    }

    /// Idle and active processes, and how many were active at most.
    pub(crate) fn shown(&self) -> (usize, usize, usize) {
        (self.idle, self.active, self.most_active)
    }

    /// The same while one of the processes answers with the status or ping page. `full`: if none is idle, no further one
    /// can be started; in PHP-FPM the page waits for one that is busy now.
    pub(crate) fn shown_by_one(&mut self, full: bool) -> (usize, usize, usize) {
        let is_another = self.idle > 0 || !full;
        let active = self.active + usize::from(is_another);
        self.most_active = self.most_active.max(active);
        (self.idle.saturating_sub(1), active, self.most_active)
    }
}

/// In the unit of [`weir_observe::clock::now`], µs.
const SECOND: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// As php-fpm 8.2 shows it: 2 idle children, 2 requests, and a third child, which the master has forked.
    #[test]
    fn a_new_process_is_in_the_total_with_the_next_second() {
        let mut counts = Counts::new(100, 0);
        counts.waits();
        counts.waits();
        assert_eq!(counts.shown(), (2, 0, 0));
        counts.works();
        counts.works();
        assert_eq!(counts.shown(), (0, 2, 2));
        assert!(!counts.is_due(SECOND - 1));
        assert!(counts.is_due(SECOND));
        counts.set(0, 2, 3);
        counts.waits();
        assert_eq!(counts.shown(), (1, 1, 2));
        assert!(!counts.is_due(SECOND + 1));
        assert!(counts.is_due(2 * SECOND));
        counts.set(1, 2, 3);
        assert_eq!(counts.shown(), (1, 2, 2));
    }

    #[test]
    fn the_queue_is_that_of_the_last_second_and_only_of_tcp() {
        for (limit, seen) in [(0, [0, 0]), (7, [3, 1])] {
            let mut counts = Counts::new(0, limit);
            let queue = |counts: &Counts| (counts.queue().length, counts.queue().most);
            assert_eq!(queue(&counts), (0, 0));
            counts.set(0, 1, 3);
            assert_eq!(queue(&counts), (seen[0], seen[0]));
            counts.set(0, 1, 1);
            assert_eq!(queue(&counts), (seen[1], seen[0]));
            assert_eq!(counts.queue().limit, limit);
        }
    }

    #[test]
    fn the_page_s_own_request_is_active() {
        let mut counts = Counts::new(0, 0);
        assert_eq!(counts.shown_by_one(false), (0, 1, 1));
        counts.waits();
        counts.waits();
        assert_eq!(counts.shown_by_one(true), (1, 1, 1));
        counts.works();
        counts.works();
        assert_eq!(counts.shown_by_one(true), (0, 2, 2));
        assert_eq!(counts.shown_by_one(false), (0, 3, 3));
        assert_eq!(counts.shown(), (0, 2, 3));
    }
}
