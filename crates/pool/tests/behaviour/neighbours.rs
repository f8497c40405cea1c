//! `auto` beside other programs that compute, few or many. The number of workers depends on what scripts do, not on how
//! idle the machine is.

use weir_pool::{Limits, Micros};

use crate::auto::auto;
use crate::machine::{Clients, Known, Load, Neighbours, Outcome, Plan, run};
use crate::scaling::{MILLISECOND, SECOND};

const CORES: u64 = 2;

/// What a process of nice 5 gets, compared with one of nice 0; the same for nice 0.
const POLITE: u64 = 335;
const EQUAL: u64 = 1_024;

/// None, one core, all cores, and more.
fn neighbours() -> impl Iterator<Item = Neighbours> {
    let of = |weight| move |count| Neighbours { count, weight };
    let polite = [0, 1, 2, 3, 8, 32, 100].into_iter().map(of(POLITE));
    polite.chain([1, 2, 3, 8, 32].into_iter().map(of(EQUAL)))
}

/// Runs the plan beside each of them. `verdict` is given the neighbours in words.
fn each(change: impl Fn(Plan) -> Plan, verdict: impl Fn(&str, &Outcome)) {
    for known in [Known::Delays, Known::Crowd] {
        for neighbours in neighbours() {
            let calm = Plan::calm(CORES, auto(CORES), 150);
            let plan = change(Plan {
                known,
                neighbours,
                limits: Limits {
                    timeout: Micros::from_secs(10),
                    max_queue: 1_000,
                    ..calm.limits
                },
                ..calm
            });
            verdict(&format!("{known:?}, {neighbours:?}"), &run(&plan, 1));
        }
    }
}

/// Twenty requests a second for a dependency that takes 5 s.
#[test]
fn scripts_that_wait_have_a_worker_each_whatever_others_do() {
    each(
        |plan| {
            let clients = Clients::Even(50_000);
            let load = Load::from(SECOND, clients, 2 * MILLISECOND, 5 * SECOND);
            Plan {
                loads: vec![load.until(51 * SECOND)],
                until: 70 * SECOND,
                ..plan
            }
        },
        |name, got| {
            assert_eq!(got.stats.shed(), 0, "{name}");
            assert_eq!(got.of_loads[&0], (1_000, 1_000), "{name}");
            let longest = got.longest_wait(0, 70 * SECOND);
            assert!(longest <= SECOND, "{name}: {longest}");
        },
    );
}

/// The same, after half a minute in which the dependency was quick.
#[test]
fn scripts_that_begin_to_wait_have_a_worker_each_whatever_others_do() {
    each(
        |plan| {
            let clients = Clients::Random(50_000);
            let quick = Load::from(SECOND, clients, 2 * MILLISECOND, 28 * MILLISECOND);
            let slow = Load::from(30 * SECOND, clients, 2 * MILLISECOND, 5 * SECOND);
            Plan {
                loads: vec![quick.uneven().until(30 * SECOND), slow.uneven()],
                until: 90 * SECOND,
                ..plan
            }
        },
        |name, got| {
            assert_eq!(got.stats.shed(), 0, "{name}");
            let longest = got.longest_wait(0, 90 * SECOND);
            assert!(longest <= 2 * SECOND, "{name}: {longest}");
        },
    );
}

/// More of them would get more of the processors, from the neighbours.
#[test]
fn scripts_that_compute_have_one_and_a_half_workers_for_each_core_whatever_others_do() {
    for (cpu, io) in [
        (5 * MILLISECOND, 0),
        (100 * MILLISECOND, 5 * MILLISECOND),
        (3 * SECOND, 0),
    ] {
        each(
            |plan| {
                let load = Load::from(SECOND, Clients::Closed(60), cpu, io);
                Plan {
                    loads: vec![load.uneven()],
                    until: 40 * SECOND,
                    limits: Limits {
                        timeout: Micros::from_secs(600),
                        ..plan.limits
                    },
                    ..plan
                }
            },
            |name, got| {
                let mean = got.mean_workers(10 * SECOND, 40 * SECOND);
                let most = got.most_workers();
                // A measurement of the slow ones takes minutes.
                let usual = if cpu < SECOND { 4 } else { 6 };
                assert!(mean <= usual && most <= 6, "{name}, {cpu}: {mean}, {most}");
            },
        );
    }
}

/// Workers that were useful while scripts waited leave when they compute.
#[test]
fn scripts_that_begin_to_compute_lose_what_they_had_whatever_others_do() {
    each(
        |plan| {
            let waits = Load::from(SECOND, Clients::Closed(60), MILLISECOND, 100 * MILLISECOND);
            let computes = Load::from(20 * SECOND, Clients::Closed(400), 5 * MILLISECOND, 0);
            Plan {
                loads: vec![waits.until(20 * SECOND), computes.uneven()],
                until: 120 * SECOND,
                ..plan
            }
        },
        |name, got| {
            let mean = got.mean_workers(90 * SECOND, 120 * SECOND);
            assert!(mean <= 4, "{name}: {mean}");
        },
    );
}
