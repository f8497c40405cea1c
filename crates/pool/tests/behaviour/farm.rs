//! A pool before several servers with limits that are learned. Joins pool, balancer and limits as the gateway does,
//! with a virtual clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use weir_pool::{
    Algorithm, Balancer, Balancing, Capacity, Change, Chosen, Finish, LimitBounds, Micros,
    NewServer, ServerId, mixed,
};

use crate::random::Random;

/// A server: its number of workers, the queue in front of them, and whether it accepts connections.
struct Remote {
    workers: usize,
    mean: u64,
    alive: bool,
    running: usize,
    backlog: VecDeque<(Chosen, u64)>,
}

struct Farm {
    balancer: Balancer,
    remotes: HashMap<ServerId, Remote>,
    random: Random,
    now: u64,
    /// Running requests, by the time of their end.
    ends: BinaryHeap<Reverse<(u64, u64)>>,
    running: HashMap<u64, (Chosen, u64)>,
    number: u64,
    answered: HashMap<ServerId, u64>,
    /// Requests that no server accepted.
    lost: u64,
    changes: Vec<Change>,
}

impl Farm {
    fn new(algorithm: Algorithm, capacity: Capacity, servers: &[(usize, u64)]) -> Farm {
        let settings = Balancing {
            algorithm,
            capacity,
            max_fails: 3,
            fail_timeout: Micros::from_secs(10),
            checked: false,
            rise: 2,
            fall: 3,
            slowstart: Micros::from_secs(2),
            probe_timeout: Micros::from_secs(10),
        };
        let mut farm = Farm {
            balancer: Balancer::new(settings, 7),
            remotes: HashMap::new(),
            random: Random::new(11),
            now: 1,
            ends: BinaryHeap::new(),
            running: HashMap::new(),
            number: 0,
            answered: HashMap::new(),
            lost: 0,
            changes: Vec::new(),
        };
        for (number, (workers, mean)) in (0..).zip(servers) {
            let new = NewServer {
                key: mixed(number),
                weight: 100,
                backup: false,
                cold: false,
            };
            let id = farm.balancer.add(Micros(1), new);
            let remote = Remote {
                workers: *workers,
                mean: *mean,
                alive: true,
                running: 0,
                backlog: VecDeque::new(),
            };
            farm.remotes.insert(id, remote);
        }
        farm
    }

    /// Keeps the number of running and waiting requests at the total limit of the servers.
    fn feed(&mut self) {
        while self.running.len() + self.waiting() < self.balancer.limit(Micros(self.now)) {
            let mut tried = Vec::new();
            loop {
                let key = Some(mixed(self.random.next()));
                let now = Micros(self.now);
                let Some(chosen) = self.balancer.choose(now, key, &tried) else {
                    self.lost += 1;
                    return;
                };
                let Some(remote) = self.remotes.get_mut(&chosen.server) else {
                    return;
                };
                if remote.alive {
                    remote.backlog.push_back((chosen, self.now));
                    self.start(chosen.server);
                    break;
                }
                let change = self.balancer.finish(now, chosen, Finish::Refused);
                self.changes.extend(change);
                tried.push(chosen.server);
                if !self.balancer.has_other(&tried) {
                    self.lost += 1;
                    return;
                }
            }
        }
    }

    fn waiting(&self) -> usize {
        self.remotes
            .values()
            .map(|remote| remote.backlog.len())
            .sum()
    }

    fn start(&mut self, server: ServerId) {
        let Some(remote) = self.remotes.get_mut(&server) else {
            return;
        };
        while remote.running < remote.workers
            && let Some((chosen, _)) = remote.backlog.pop_front()
        {
            remote.running += 1;
            self.number += 1;
            let end = self.now + self.random.around(remote.mean) + 50;
            self.ends.push(Reverse((end, self.number)));
            self.running.insert(self.number, (chosen, end));
        }
    }

    fn pass(&mut self, seconds: u64) -> HashMap<ServerId, u64> {
        let end = self.now + seconds * 1_000_000;
        self.answered.clear();
        self.feed();
        while self.now < end {
            let next = match self.ends.peek() {
                Some(Reverse((at, _))) if *at <= end => *at,
                _ => end,
            };
            self.now = next.max(self.now + 1);
            while let Some(Reverse((at, number))) = self.ends.peek().copied() {
                if at > self.now {
                    break;
                }
                self.ends.pop();
                let Some((chosen, _)) = self.running.remove(&number) else {
                    continue;
                };
                let now = Micros(self.now);
                let change = self.balancer.finish(now, chosen, Finish::Answered);
                self.changes.extend(change);
                *self.answered.entry(chosen.server).or_default() += 1;
                if let Some(remote) = self.remotes.get_mut(&chosen.server) {
                    remote.running -= 1;
                }
                self.start(chosen.server);
            }
            self.feed();
        }
        self.balancer.check().expect("consistent");
        self.answered.clone()
    }
}

const ADAPTIVE: Capacity = Capacity::Adaptive(LimitBounds {
    start: 10,
    min: 1,
    max: 1_000,
});

#[test]
fn each_server_is_given_what_it_can_bear() {
    // Two small servers and a large one. The sizes are not configured.
    let mut farm = Farm::new(
        Algorithm::LeastConn,
        ADAPTIVE,
        &[(4, 20_000), (4, 20_000), (24, 20_000)],
    );
    farm.pass(60);
    let answered = farm.pass(30);
    let rate = |server: u32| answered.get(&ServerId(server)).copied().unwrap_or(0) / 30;
    // 200, 200 and 1,200 a second are possible.
    assert!(rate(0) >= 130 && rate(1) >= 130, "{} {}", rate(0), rate(1));
    assert!(rate(2) >= 800, "{}", rate(2));
    let limit = |server: u32| {
        let figures = farm.balancer.figures(Micros(farm.now), ServerId(server));
        figures.expect("it is there").limit
    };
    assert!(
        limit(0) <= 14 && limit(1) <= 14,
        "{} {}",
        limit(0),
        limit(1)
    );
}

#[test]
fn a_server_that_dies_and_comes_back_costs_no_request() {
    for algorithm in [
        Algorithm::LeastConn,
        Algorithm::RoundRobin,
        Algorithm::First,
        Algorithm::Random,
        Algorithm::Hash { factor: 150 },
    ] {
        let servers = [(10, 10_000), (10, 10_000), (10, 10_000)];
        let mut farm = Farm::new(algorithm, Capacity::Shared(30), &servers);
        farm.pass(5);
        let one = ServerId(1);
        if let Some(remote) = farm.remotes.get_mut(&one) {
            remote.alive = false;
        }
        farm.pass(5);
        assert_eq!(farm.lost, 0, "{algorithm:?}");
        assert_eq!(farm.balancer.limit(Micros(farm.now)), 20, "{algorithm:?}");
        if let Some(remote) = farm.remotes.get_mut(&one) {
            remote.alive = true;
        }
        farm.pass(15);
        let answered = farm.pass(5);
        assert_eq!(farm.lost, 0, "{algorithm:?}");
        assert_eq!(farm.balancer.limit(Micros(farm.now)), 30, "{algorithm:?}");
        assert!(answered[&one] > 3_000, "{algorithm:?}: {answered:?}");
        assert_eq!(farm.changes.len(), 2, "{algorithm:?}: {:?}", farm.changes);
    }
}
