//! The adaptive limit with servers of many kinds: different numbers of workers and processors, and scripts of different
//! lengths.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use weir_pool::{AdaptiveLimit, Begun, LimitBounds, Micros, RequestEnd};

use crate::random::Random;

/// A server: its workers take requests in the order of arrival, and share the processors.
struct Remote {
    workers: usize,
    /// 0: scripts wait for something other than a processor.
    cores: usize,
}

/// How long scripts take, µs.
#[derive(Clone, Copy)]
enum Scripts {
    Alike(u64),
    /// Exponentially distributed around this mean.
    Around(u64),
    /// One in this many scripts takes the second time.
    Mixed(u64, u64, u64),
}

struct World {
    limit: AdaptiveLimit,
    remote: Remote,
    scripts: Scripts,
    random: Random,
    now: u64,
    /// Requests that workers have, with the remaining work (ns of a processor, or of time).
    running: Vec<(u64, Begun)>,
    backlog: VecDeque<Begun>,
    /// `None`: there is always a request. Otherwise this many requests arrive a second.
    rate: Option<u64>,
    waiting: usize,
    arrivals: BinaryHeap<Reverse<u64>>,
    answered: u64,
    /// The limits, weighted with time, since the last report.
    limits: (u128, u64),
}

impl World {
    fn new(remote: Remote, scripts: Scripts, seed: u64) -> World {
        World {
            limit: AdaptiveLimit::new(LimitBounds::default()),
            remote,
            scripts,
            random: Random::new(seed),
            now: 1,
            running: Vec::new(),
            backlog: VecDeque::new(),
            rate: None,
            waiting: 0,
            arrivals: BinaryHeap::new(),
            answered: 0,
            limits: (0, 0),
        }
    }

    fn work(&mut self) -> u64 {
        1_000
            * match self.scripts {
                Scripts::Alike(time) => time,
                Scripts::Around(mean) => self.random.around(mean) + 50,
                Scripts::Mixed(usual, long, one_in) => match self.random.below(one_in) {
                    0 => self.random.around(long) + 50,
                    _ => usual + self.random.below(usual / 4 + 1),
                },
            }
    }

    fn busy(&self) -> usize {
        self.running.len() + self.backlog.len()
    }

    /// The divisor of the speed: each running request gets 1/slowness ns of work in one nanosecond.
    fn slowness(&self) -> u64 {
        match self.remote.cores {
            0 => 1,
            cores => (self.running.len() as u64).div_ceil(cores as u64).max(1),
        }
    }

    fn feed(&mut self) {
        if let Some(rate) = self.rate {
            if self.arrivals.is_empty() {
                let next = self.now + self.random.around(1_000_000 / rate);
                self.arrivals.push(Reverse(next));
            }
            while let Some(Reverse(at)) = self.arrivals.peek().copied() {
                if at > self.now {
                    break;
                }
                self.arrivals.pop();
                self.waiting += 1;
                let next = at + self.random.around(1_000_000 / rate).max(1);
                self.arrivals.push(Reverse(next));
            }
        }
        while self.busy() < self.limit.limit() && (self.rate.is_none() || self.waiting > 0) {
            self.waiting = self.waiting.saturating_sub(1);
            let begun = self.limit.begin(Micros(self.now), self.busy() + 1);
            self.backlog.push_back(begun);
            self.start();
        }
    }

    fn start(&mut self) {
        while self.running.len() < self.remote.workers
            && let Some(begun) = self.backlog.pop_front()
        {
            let work = self.work();
            self.running.push((work, begun));
        }
    }

    /// Runs for this many seconds. Returns the answered requests a second, and the mean of the limit.
    fn pass(&mut self, seconds: u64) -> (u64, f64) {
        let end = self.now + seconds * 1_000_000;
        (self.answered, self.limits) = (0, (0, 0));
        self.feed();
        while self.now < end {
            let slow = self.slowness();
            let least = self.running.iter().map(|(left, _)| *left).min();
            let until_end = least.map_or(u64::MAX, |left| (left * slow).div_ceil(1_000).max(1));
            let until_next = self
                .arrivals
                .peek()
                .map_or(u64::MAX, |Reverse(at)| at.saturating_sub(self.now).max(1));
            let step = until_end.min(until_next).min(100_000);
            self.limits.0 += self.limit.limit() as u128 * u128::from(step);
            self.limits.1 += step;
            self.now += step;
            let done = step * 1_000 / slow;
            let mut index = 0;
            while index < self.running.len() {
                self.running[index].0 = self.running[index].0.saturating_sub(done);
                if self.running[index].0 > 0 {
                    index += 1;
                    continue;
                }
                let busy = self.busy();
                let (_, begun) = self.running.swap_remove(index);
                self.limit
                    .end(Micros(self.now), begun, busy, RequestEnd::Answered);
                self.answered += 1;
            }
            self.start();
            self.feed();
        }
        let mean = self.limits.0 as f64 / self.limits.1 as f64;
        (self.answered / seconds, mean)
    }
}

/// Mean time of a script, µs.
fn mean(scripts: Scripts) -> u64 {
    match scripts {
        Scripts::Alike(time) | Scripts::Around(time) => time,
        Scripts::Mixed(usual, long, one_in) => usual + usual / 8 - usual / one_in + long / one_in,
    }
}

const MIXES: [(&str, Scripts); 4] = [
    ("alike", Scripts::Alike(20_000)),
    ("around", Scripts::Around(20_000)),
    ("bimodal", Scripts::Mixed(2_000, 500_000, 20)),
    ("heavy tail", Scripts::Mixed(10_000, 2_000_000, 200)),
];

#[test]
fn it_settles_near_the_number_of_workers() {
    for (name, scripts) in MIXES {
        for (workers, seeds) in [(1, 4), (3, 4), (20, 2), (60, 1)] {
            for seed in 0..seeds {
                let remote = Remote { workers, cores: 0 };
                let mut world = World::new(remote, scripts, seed);
                world.pass(20);
                let (rate, limit) = world.pass(60);
                let possible = workers as u64 * 1_000_000 / mean(scripts);
                let what = format!(
                    "{name}, {workers} workers, seed {seed}: limit {limit:.1}, {rate} of {possible}/s"
                );
                assert!(limit <= 1.5 * workers as f64 + 6.0, "{what}");
                assert!(rate * 100 >= possible * 60, "{what}");
            }
        }
    }
}

#[test]
fn scripts_that_compute_are_no_more_at_once_than_it_takes() {
    for (name, scripts) in MIXES {
        for seed in 0..2 {
            let remote = Remote {
                workers: 100,
                cores: 2,
            };
            let mut world = World::new(remote, scripts, seed);
            world.pass(20);
            let (rate, limit) = world.pass(90);
            let possible = 2_000_000 / mean(scripts);
            let what = format!("{name}, seed {seed}: limit {limit:.1}, {rate} of {possible}/s");
            assert!(limit <= 20.0, "{what}");
            assert!(rate * 100 >= possible * 55, "{what}");
        }
    }
}

#[test]
fn it_follows_a_server_that_changes() {
    for seed in 0..2 {
        let remote = Remote {
            workers: 40,
            cores: 0,
        };
        let mut world = World::new(remote, Scripts::Around(20_000), seed);
        world.pass(60);
        world.remote.workers = 5;
        world.pass(20);
        let (_, small) = world.pass(30);
        assert!(small <= 14.0, "seed {seed}: {small:.1} for 5 workers");
        world.remote.workers = 40;
        world.pass(60);
        let (rate, large) = world.pass(30);
        assert!(large >= 25.0, "seed {seed}: {large:.1} for 40 workers");
        assert!(rate >= 1_300, "seed {seed}: {rate}/s of 2000");
        // From now on all scripts take four times as long, but no request waits longer for a worker.
        world.scripts = Scripts::Around(80_000);
        world.pass(120);
        let (rate, large) = world.pass(30);
        assert!(
            rate >= 300,
            "seed {seed}: {rate}/s of 500, limit {large:.1}"
        );
    }
}

#[test]
fn a_load_that_fits_is_not_held_back() {
    for seed in 0..4 {
        let remote = Remote {
            workers: 20,
            cores: 0,
        };
        let mut world = World::new(remote, Scripts::Around(20_000), seed);
        // Half of the server's capacity.
        world.rate = Some(500);
        world.pass(30);
        let (rate, limit) = world.pass(60);
        assert!(
            world.waiting < 20,
            "{} wait, limit {limit:.1}",
            world.waiting
        );
        assert!(rate >= 470, "{rate}/s of 500");
    }
}

#[test]
fn overload_halves_it_in_two_steps_and_a_burst_counts_once() {
    let mut limit = AdaptiveLimit::new(LimitBounds {
        start: 100,
        ..LimitBounds::default()
    });
    let begun: Vec<Begun> = (1..=50).map(|busy| limit.begin(Micros(1), busy)).collect();
    for begun in begun {
        limit.end(Micros::from_secs(1), begun, 50, RequestEnd::Overloaded);
    }
    assert_eq!(limit.limit(), 70);
    let begun = limit.begin(Micros::from_secs(2), 1);
    limit.end(Micros::from_secs(3), begun, 1, RequestEnd::Overloaded);
    assert_eq!(limit.limit(), 49);
    for _ in 0..100 {
        let begun = limit.begin(Micros::from_secs(9), 1);
        limit.end(Micros::MAX, begun, 1, RequestEnd::Unknown);
    }
    assert_eq!(limit.limit(), 49, "what is not known changes nothing");
}

#[test]
fn bounds_are_kept_whatever_comes() {
    let mut random = Random::new(9);
    for (start, min, max) in [
        (10, 1, 1_000),
        (0, 0, 0),
        (5, 7, 6),
        (usize::MAX, 1, usize::MAX),
    ] {
        let mut limit = AdaptiveLimit::new(LimitBounds { start, min, max });
        let (mut now, mut begun) = (0, Vec::new());
        for _ in 0..20_000 {
            now += random.below(10_000);
            let busy = random.below(3_000) as usize;
            match random.below(4) {
                0 => begun.push(limit.begin(Micros(now), busy)),
                kind => {
                    let Some(begun) = begun.pop() else { continue };
                    let ended = [
                        RequestEnd::Answered,
                        RequestEnd::Unknown,
                        RequestEnd::Overloaded,
                    ];
                    let at = now.saturating_sub(random.below(50));
                    limit.end(Micros(at), begun, busy, ended[kind as usize - 1]);
                }
            }
            let limit = limit.limit();
            assert!(
                limit >= 1 && limit <= max.max(7),
                "{limit} of {min} to {max}"
            );
        }
    }
}
