//! What the number of reactors promises, with a virtual clock: enough for every load, one for a load that one can take,
//! and no changes back and forth.

use weir_pool::{Micros, ReactorChange, ReactorLoad, ReactorScaler, spread};

use crate::random::Random;

/// How often the gateway looks.
const LOOK: u64 = 200_000;

const SECOND: u64 = 1_000_000;

/// A gateway under a load, in steps of one look.
struct World {
    now: u64,
    scaler: ReactorScaler,
    /// The reactor of each kept connection.
    kept: Vec<usize>,
    /// The share of the load that comes over new connections, in hundredths.
    new: u64,
    credits: Vec<i64>,
    /// The part of new connections' load that each reactor had in the last step.
    accepted: Vec<u64>,
    random: Random,
    changes: Vec<(u64, ReactorChange)>,
    moved: u64,
    busy: Vec<u32>,
    /// Idle time of processors, thousandths of one.
    idle: Option<u32>,
}

impl World {
    fn new(most: u16, kept: usize, new: u64) -> World {
        World {
            now: 0,
            scaler: ReactorScaler::new(most),
            kept: vec![0; kept],
            new,
            credits: Vec::new(),
            accepted: Vec::new(),
            random: Random::new(1),
            changes: Vec::new(),
            moved: 0,
            busy: Vec::new(),
            idle: None,
        }
    }

    /// One look, under `demand`: thousandths of the time of a single reactor. Two reactors need a fifth more for it.
    fn step(&mut self, demand: u64) {
        self.now += LOOK;
        let running = usize::from(self.scaler.running());
        let count = self
            .kept
            .iter()
            .max()
            .map_or(1, |last| last + 1)
            .max(running);
        let demand = if count > 1 { demand * 6 / 5 } else { demand };
        self.accepted = vec![0; count];
        for _ in 0..100 {
            let weights = self.scaler.weights().iter().copied();
            self.accepted[spread(&mut self.credits, weights).unwrap()] += 1;
        }
        let loads: Vec<ReactorLoad> = (0..count)
            .map(|index| {
                let own = self.kept.iter().filter(|home| **home == index).count() as u64;
                let of_kept =
                    demand * (100 - self.new) * own / (100 * self.kept.len().max(1) as u64);
                let of_new = demand * self.new * self.accepted[index] / 10_000;
                ReactorLoad {
                    busy: (of_kept + of_new).min(1_000) as u32,
                    active: own as u32,
                }
            })
            .collect();
        self.busy = loads.iter().map(|load| load.busy).collect();
        let orders = self.scaler.look(Micros(self.now), &loads, self.idle);
        for order in orders.moves.into_iter().flatten() {
            assert!(order.from < self.scaler.running() && order.to < self.scaler.running());
            assert!(order.connections <= loads[usize::from(order.from)].active);
            let from = usize::from(order.from);
            let going = self.kept.iter_mut().filter(|home| **home == from);
            for home in going.take(order.connections as usize) {
                *home = order.to.into();
                self.moved += 1;
            }
        }
        if let Some(change) = orders.change {
            self.changes.push((self.now, change));
        }
        let running = usize::from(self.scaler.running());
        for home in self.kept.iter_mut().filter(|home| **home >= running) {
            *home = self.random.below(running as u64) as usize;
        }
    }

    /// Looks until `until`, under the demand at each time since the beginning.
    fn run(&mut self, until: u64, demand: impl Fn(u64) -> u64) {
        while self.now < until {
            self.step(demand(self.now));
        }
    }
}

#[test]
fn a_load_that_one_reactor_can_take_has_one() {
    for (kept, new) in [(64, 0), (4, 50), (0, 100)] {
        for demand in [0, 10, 400, 600, 750] {
            let mut world = World::new(8, kept, new);
            world.run(600 * SECOND, |_| demand);
            assert_eq!(world.changes, [], "{demand} {kept} {new}");
            assert_eq!(world.moved, 0);
        }
    }
}

/// PHP, a load generator or a neighbour uses what the reactor does not.
#[test]
fn a_full_reactor_is_joined_by_another_only_where_a_processor_is_idle() {
    let mut world = World::new(8, 64, 10);
    for idle in [0, 300, 499] {
        world.idle = Some(idle);
        world.run(world.now + 600 * SECOND, |_| 3_000);
        assert_eq!(world.changes, [], "{idle}");
    }
    world.idle = Some(500);
    world.run(world.now + 3 * LOOK, |_| 3_000);
    assert_eq!(world.scaler.running(), 2, "no more than are idle");
    world.idle = Some(6_000);
    world.run(world.now + 4 * SECOND, |_| 3_000);
    assert!(world.scaler.running() >= 4);
}

/// Cheap requests have brought a second reactor. Then come requests for PHP, which needs all processors.
#[test]
fn a_reactor_that_others_need_more_goes_within_a_second() {
    let mut world = World::new(2, 64, 10);
    world.idle = Some(900);
    world.run(2 * SECOND, |_| 1_500);
    assert_eq!(world.scaler.running(), 2);
    world.idle = Some(0);
    world.run(3 * SECOND, |_| 900);
    assert_eq!(world.scaler.running(), 1);
    world.run(600 * SECOND, |_| 900);
    assert_eq!(world.changes.len(), 2, "{:?}", world.changes);
    // Two full reactors do more than one, even if other programs want the processors.
    world.idle = Some(900);
    world.run(world.now + 2 * SECOND, |_| 1_800);
    world.idle = Some(0);
    world.run(world.now + 600 * SECOND, |_| 1_800);
    assert_eq!(world.scaler.running(), 2);
}

/// A processor is idle beside one reactor, and none beside two.
#[test]
fn the_number_seldom_changes_where_both_numbers_look_wrong() {
    let mut world = World::new(2, 64, 10);
    while world.now < 600 * SECOND {
        world.idle = Some(if world.scaler.running() == 1 { 600 } else { 0 });
        world.step(900);
    }
    assert!(world.changes.len() <= 32, "{}", world.changes.len());
}

/// The gateway needs more than half of a processor, and PHP all that is left: a second reactor would take it from PHP.
#[test]
fn a_reactor_with_time_is_not_joined_by_another_whatever_php_needs() {
    let mut world = World::new(2, 64, 10);
    let mut random = Random::new(7);
    let noise: Vec<u64> = (0..3_000).map(|_| random.below(300)).collect();
    world.run(600 * SECOND, |now| {
        480 + noise[(now / LOOK) as usize % noise.len()]
    });
    assert_eq!(world.changes, []);
}

#[test]
fn a_rising_load_has_enough_reactors_before_they_are_full() {
    for (kept, new) in [(400, 0), (100, 50), (0, 100)] {
        let mut world = World::new(16, kept, new);
        // From nothing to eight reactors' work within a minute, and back.
        let demand = |now: u64| match now / SECOND {
            0..60 => now * 8_000 / (60 * SECOND),
            60..90 => 8_000,
            90..150 => 8_000 - (now - 90 * SECOND) * 8_000 / (60 * SECOND),
            _ => 0,
        };
        let (mut full, mut most) = (0, 0);
        while world.now < 200 * SECOND {
            world.step(demand(world.now));
            let running = usize::from(world.scaler.running());
            let mean = world.busy.iter().sum::<u32>() as usize / running;
            full = if mean >= 970 { full + 1 } else { 0 };
            assert!(full <= 3, "{} s: {:?}", world.now / SECOND, world.busy);
            most = most.max(running);
        }
        assert!((11..=16).contains(&most), "{most}");
        assert_eq!(world.scaler.running(), 1);
    }
}

#[test]
fn a_sudden_load_has_all_reactors_that_it_needs_within_seconds() {
    let mut world = World::new(64, 1_000, 0);
    world.run(10 * SECOND, |_| 100);
    assert_eq!(world.scaler.running(), 1);
    world.run(14 * SECOND, |_| 40_000);
    assert!(world.scaler.running() >= 48, "{}", world.scaler.running());
    world.run(20 * SECOND, |_| 40_000);
    let busiest = world.busy.iter().max().unwrap();
    assert!(*busiest < 1_000, "{:?}", world.busy);
}

#[test]
fn a_short_burst_changes_nothing_and_a_longer_one_is_over_soon() {
    let mut world = World::new(2, 64, 20);
    world.run(60 * SECOND, |now| {
        if (30 * SECOND..30 * SECOND + LOOK).contains(&now) {
            3_000
        } else {
            50
        }
    });
    assert_eq!(world.changes, []);
    world.run(100 * SECOND, |now| {
        if (70 * SECOND..72 * SECOND).contains(&now) {
            3_000
        } else {
            50
        }
    });
    let [(more, _), (fewer, _)] = world.changes[..] else {
        panic!("{:?}", world.changes);
    };
    assert!(more <= 70 * SECOND + 600_000, "{more}");
    assert!((75 * SECOND..76 * SECOND).contains(&fewer), "{fewer}");
}

#[test]
fn a_load_that_comes_and_goes_does_not_change_the_number_each_time() {
    for period in [2, 4, 8, 10, 20, 40] {
        let mut world = World::new(4, 64, 20);
        let demand = |now: u64| {
            if now / SECOND % period < period / 2 {
                1_500
            } else {
                100
            }
        };
        world.run(600 * SECOND, demand);
        assert!(world.changes.len() <= 12, "{period}: {:?}", world.changes);
        // At last the reactors stay.
        let late = world
            .changes
            .iter()
            .filter(|(at, _)| *at > 400 * SECOND)
            .count();
        assert!(late <= 2, "{period}: {:?}", world.changes);
        // And they go when the load is really over.
        world.run(700 * SECOND, |_| 100);
        assert_eq!(world.scaler.running(), 1);
    }
}

#[test]
fn a_load_at_the_edge_does_not_flap() {
    for demand in (500..4_000).step_by(10) {
        let mut world = World::new(8, 200, 30);
        let mut random = Random::new(demand);
        let noise: Vec<u64> = (0..600).map(|_| random.below(100)).collect();
        world.run(120 * SECOND, |now| {
            demand - 50 + noise[(now / LOOK) as usize]
        });
        assert!(world.changes.len() <= 7, "{demand}: {:?}", world.changes);
        let late = world
            .changes
            .iter()
            .filter(|(at, _)| *at > 20 * SECOND)
            .count();
        assert!(late <= 2, "{demand}: {:?}", world.changes);
    }
}

#[test]
fn kept_connections_move_until_all_reactors_have_the_same_and_then_stay() {
    for kept in [2, 4, 8, 64] {
        let mut world = World::new(2, kept, 0);
        world.run(3 * SECOND, |_| 1_500);
        assert_eq!(world.scaler.running(), 2);
        let there = world.kept.iter().filter(|home| **home == 1).count();
        assert_eq!(there, kept / 2);
        let moved = world.moved;
        world.run(60 * SECOND, |_| 1_500);
        assert_eq!(world.moved, moved);
    }
}

/// Beside busy neighbours a reactor seems busier in one look and less busy in the next.
#[test]
fn noise_moves_few_connections() {
    let mut moved = 0;
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut scaler = ReactorScaler::new(2);
        for look in 0..500 {
            let full = look < 5;
            let loads = [(); 2].map(|()| ReactorLoad {
                busy: if full {
                    1_000
                } else {
                    500 + random.below(300) as u32
                },
                active: 32,
            });
            let orders = scaler.look(Micros(look * LOOK), &loads, None);
            let orders = orders.moves.into_iter().flatten();
            moved += orders.map(|order| order.connections).sum::<u32>();
        }
        assert_eq!(scaler.running(), 2);
    }
    // The limit is for 2,000 s with 64 busy connections.
    assert!(moved < 1_000, "{moved}");
}

#[test]
fn new_connections_make_up_for_old_ones_that_do_not_move() {
    // All old connections are at the first reactor and stay there, as those of a web server in front do.
    let mut scaler = ReactorScaler::new(2);
    let (mut credits, mut now) = (Vec::new(), 0);
    let mut busy = [0; 2];
    for look in 0..200 {
        let mut accepted = [0; 2];
        for _ in 0..100 {
            accepted[spread(&mut credits, scaler.weights().iter().copied()).unwrap()] += 1;
        }
        busy = [300 + accepted[0] * 9, accepted[1] * 9];
        let loads = busy.map(|busy| ReactorLoad {
            busy: busy.min(1_000),
            active: 1,
        });
        now += LOOK;
        let orders = scaler.look(Micros(now), &loads, None);
        assert!(look < 10 || orders.change.is_none());
    }
    assert_eq!(scaler.running(), 2);
    assert!(busy[0].abs_diff(busy[1]) < 100, "{busy:?}");
}

#[test]
fn whatever_comes_the_orders_can_be_carried_out() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let most = 1 + random.below(20) as u16;
        let mut scaler = ReactorScaler::new(most);
        let mut now = 0;
        for _ in 0..2_000 {
            now += random.below(3 * SECOND);
            let loads: Vec<ReactorLoad> = (0..random.below(25))
                .map(|_| ReactorLoad {
                    busy: random.below(1_500) as u32,
                    active: random.below(5) as u32 * random.below(1 << 30) as u32,
                })
                .collect();
            let before = scaler.running();
            let idle = [None, Some(random.below(9_000) as u32)][random.below(2) as usize];
            let orders = scaler.look(Micros(now), &loads, idle);
            assert!((1..=most).contains(&scaler.running()));
            assert_eq!(scaler.weights().len(), usize::from(scaler.running()));
            assert!(scaler.weights().iter().all(|weight| *weight > 0));
            assert_eq!(orders.change.is_some(), before != scaler.running());
            for order in orders.moves.into_iter().flatten() {
                assert!(order.from.max(order.to) < scaler.running() && order.from != order.to);
                assert!(order.connections <= loads[usize::from(order.from)].active);
            }
            if random.below(50) == 0 {
                scaler.could_not_start(Micros(now), before);
            }
        }
    }
}
