//! The number of workers at PHP-FPM's pace ([`Scaler::set_maintenance`]). The expected numbers are those of php-fpm 8.2
//! with the same settings and requests.

use weir_pool::{
    Admission, Decision, Exit, Life, Limits, Micros, Mode, Pool, RequestId, Scaler, Scaling,
    Ticket, WorkerId,
};

use crate::scaling::{MILLISECOND, SECOND};

/// A pool with its scaler, and processes that start and end at once.
struct Line {
    pool: Pool,
    scaler: Scaler,
    now: u64,
    workers: u32,
    requests: u64,
    /// How long the last ones take.
    length: u64,
    /// Running requests, and when they end.
    running: Vec<(u64, WorkerId)>,
    /// Number of workers after each change, and when it changed.
    counts: Vec<(u64, usize)>,
    decisions: Vec<Decision>,
}

impl Line {
    /// The first second begins 100 ms after the start.
    fn new(mode: Mode, max_children: usize, idle_timeout: u64) -> Self {
        let now = SECOND - 100 * MILLISECOND;
        let mut scaler = Scaler::new(Scaling {
            mode,
            max_children,
            max_spawn_rate: 32,
            idle_timeout: Micros(idle_timeout),
        });
        scaler.set_maintenance(Micros(now), true);
        scaler.ready(Micros(now), true);
        let mut line = Self {
            pool: Pool::new(Limits {
                maxconn: max_children,
                ..Limits::USUAL
            }),
            scaler,
            now,
            workers: 0,
            requests: 0,
            length: 0,
            running: Vec::new(),
            counts: Vec::new(),
            decisions: Vec::new(),
        };
        line.look();
        line
    }

    fn look(&mut self) {
        let now = Micros(self.now);
        let orders = self.scaler.look(now, &self.pool);
        self.decisions.extend(self.scaler.decisions());
        let mut leaving = Vec::new();
        self.pool.withdraw(now, &orders, &mut leaving);
        for worker in leaving {
            self.pool.worker_down(now, worker);
            self.scaler.exited(now, Exit::Withdrawn);
        }
        for _ in 0..orders.start {
            let worker = WorkerId(self.workers);
            self.workers += 1;
            self.scaler.came(now);
            if let Some(next) = self.pool.worker_up(now, worker, 0) {
                self.running.push((self.now + self.length, next.worker));
            }
        }
        let count = self.pool.stats().workers;
        if self.counts.last().is_none_or(|(_, last)| *last != count) {
            self.counts.push((self.now, count));
        }
    }

    /// Time passes until `to`.
    fn pass(&mut self, to: u64) {
        loop {
            let end = self.running.iter().map(|(at, _)| *at).min();
            let look = self.scaler.next_look().map(|at| at.0);
            let next = end.into_iter().chain(look).min().unwrap_or(to).min(to);
            self.now = self.now.max(next);
            let now = self.now;
            let ended = self.running.extract_if(.., |(at, _)| *at <= now);
            for (_, worker) in ended.collect::<Vec<_>>() {
                let released = self.pool.release(Micros(now), worker);
                assert_eq!(released.next, None, "none waits in these situations");
            }
            self.look();
            if self.now >= to {
                return;
            }
        }
    }

    /// So many requests that take this long, at once.
    fn ask(&mut self, count: u64, length: u64) {
        self.length = length;
        for _ in 0..count {
            self.requests += 1;
            self.scaler.arrived(&self.pool);
            let ticket = Ticket::new(RequestId(self.requests), 0);
            let admitted = self.pool.admit(Micros(self.now), &ticket);
            if let Admission::Run(worker) = admitted {
                self.running.push((self.now + length, worker));
            }
            self.look();
        }
    }

    /// The number of workers after each second, from the first on, as far as it changed.
    fn seconds(&self) -> Vec<(u64, usize)> {
        let second = |at: u64| at / SECOND;
        let counts = self.counts.iter();
        counts.map(|(at, count)| (second(*at), *count)).collect()
    }

    fn reached(&self) -> usize {
        let reached = |told: &&Decision| matches!(told, Decision::ReachedMaxChildren { .. });
        self.decisions.iter().filter(reached).count()
    }
}

fn dynamic(start: usize, min_spare: usize, max_spare: usize) -> Mode {
    Mode::Dynamic {
        start,
        min_spare,
        max_spare,
    }
}

#[test]
fn spare_workers_come_once_a_second_in_doubling_numbers_and_leave_one_by_one() {
    let mut line = Line::new(dynamic(4, 4, 5), 12, 0);
    line.pass(SECOND + 500 * MILLISECOND);
    line.ask(4, 6 * SECOND);
    line.pass(12 * SECOND);
    assert_eq!(
        line.seconds(),
        [(0, 4), (2, 5), (3, 7), (4, 8), (8, 7), (9, 6), (10, 5)]
    );
    assert_eq!(line.reached(), 0);
}

#[test]
fn the_number_of_spare_workers_that_are_started_doubles_up_to_its_limit_and_begins_again() {
    let mut line = Line::new(dynamic(50, 50, 50), 200, 0);
    line.pass(SECOND);
    line.ask(50, 20 * SECOND);
    line.pass(10 * SECOND);
    // 1 + 2 + 4 + 8 + 16 + 19
    assert_eq!(
        line.seconds(),
        [
            (0, 50),
            (2, 51),
            (3, 53),
            (4, 57),
            (5, 65),
            (6, 81),
            (7, 100)
        ]
    );
    let busy: Vec<usize> = line
        .decisions
        .iter()
        .filter_map(|told| match told {
            Decision::SeemsBusy { rate, .. } => Some(*rate),
            _ => None,
        })
        .collect();
    assert_eq!(busy, [8, 16, 32]);
    line.ask(3, 2 * SECOND);
    line.pass(11 * SECOND + 1);
    assert_eq!(line.seconds().last(), Some(&(11, 101)));
}

/// For shorter than to the next second, PHP-FPM does not see it.
#[test]
fn what_is_over_within_a_second_starts_and_ends_nothing() {
    let mut line = Line::new(dynamic(3, 2, 3), 8, 0);
    for second in 1..20 {
        line.pass(second * SECOND + 100 * MILLISECOND);
        line.ask(3, 700 * MILLISECOND);
    }
    line.pass(21 * SECOND);
    assert_eq!(line.seconds(), [(0, 3)]);
    assert_eq!(line.reached(), 0);
}

/// PHP-FPM would let them wait for seconds.
#[test]
fn requests_that_wait_get_their_workers_at_once() {
    let mut line = Line::new(dynamic(2, 2, 3), 20, 0);
    line.pass(SECOND + MILLISECOND);
    line.ask(10, 5 * SECOND);
    assert_eq!(line.pool.stats().busy, 10);
    assert_eq!(
        line.seconds(),
        [
            (0, 2),
            (1, 3),
            (1, 4),
            (1, 5),
            (1, 6),
            (1, 7),
            (1, 8),
            (1, 9),
            (1, 10)
        ]
    );
    line.pass(4 * SECOND);
    assert_eq!(line.seconds()[9..], [(2, 11), (3, 12)]);
}

#[test]
fn a_reached_limit_is_noticed_with_the_second() {
    let mut line = Line::new(dynamic(1, 1, 1), 2, 0);
    line.pass(SECOND);
    line.ask(2, 300 * MILLISECOND);
    line.pass(2 * SECOND + 500 * MILLISECOND);
    assert_eq!(line.reached(), 0, "over before PHP-FPM looks");
    line.ask(2, 3 * SECOND);
    line.pass(5 * SECOND);
    assert_eq!(line.reached(), 1);
}

#[test]
fn on_demand_a_full_pool_is_noticed_when_a_request_comes() {
    let mut line = Line::new(Mode::OnDemand, 2, 10 * SECOND);
    line.pass(SECOND);
    line.ask(2, SECOND);
    assert_eq!(line.reached(), 0);
    line.pass(3 * SECOND);
    line.ask(2, 5 * SECOND);
    assert_eq!(line.reached(), 0, "both were idle");
    line.ask(2, SECOND);
    assert_eq!(line.reached(), 1);
}

#[test]
fn on_demand_idle_workers_leave_one_a_second() {
    let mut line = Line::new(Mode::OnDemand, 9, 2 * SECOND);
    line.pass(SECOND + 500 * MILLISECOND);
    line.ask(3, SECOND);
    line.pass(12 * SECOND);
    assert_eq!(
        line.seconds(),
        [(0, 0), (1, 1), (1, 2), (1, 3), (5, 2), (6, 1), (7, 0)]
    );
}

#[test]
fn a_worker_that_died_is_replaced_though_others_are_idle() {
    for mode in [dynamic(3, 1, 5), Mode::OnDemand] {
        let mut line = Line::new(mode, 9, 60 * SECOND);
        line.pass(SECOND);
        line.ask(3, SECOND);
        line.pass(2 * SECOND + MILLISECOND);
        let before = line.pool.stats().workers;
        line.ask(1, SECOND);
        let (_, worker) = line.running.pop().expect("a request");
        let now = Micros(line.now);
        line.pool.worker_down(now, worker);
        let life = Life {
            lived: Micros(SECOND),
            had_work: true,
            at_work: true,
        };
        line.scaler.exited(now, Exit::Crashed(life));
        line.look();
        assert_eq!(line.pool.stats().workers, before, "{mode:?}");
    }
}
