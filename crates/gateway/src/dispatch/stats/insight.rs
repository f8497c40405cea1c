//! What the workers of a pool do: whether they compute or wait, and where slow scripts are. The status shows it, and
//! its advice depends on it.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use weir_control::SlowPlace;
use weir_observe::{
    clock,
    pool_status::{Stage, WorkerStatus},
};
use weir_sys::cpu::{self, MachineTime};

use crate::dispatch::PoolHandle;

/// What is known of a pool's workers.
#[derive(Debug, Default)]
pub(crate) struct Insight(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// When CPU times were read last ([`clock::precise`]); 0: never.
    at: u64,
    /// CPU time that each worker had used then.
    seen: Vec<(u32, Duration)>,
    /// CPU time of all workers so far, µs.
    computed: u64,
    /// Busy time of the pool when `seen` was taken, µs.
    busy: u64,
    /// The newest last.
    places: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// [`clock::precise`]
    at: u64,
    place: SlowPlace,
}

/// Where scripts are, or were a moment ago.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) function: String,
    /// File and line.
    pub(crate) at: String,
    /// How many scripts.
    pub(crate) count: usize,
}

impl PoolHandle {
    /// Reads the CPU time of the workers. To be called about once a second.
    pub(crate) fn measure(&self) {
        let (pids, busy) = {
            let state = self.state();
            let slots = state.slots.iter().filter(|slot| slot.process.is_some());
            let pids: Vec<u32> = slots.map(|slot| slot.pid).take(MOST).collect();
            (pids, state.pool.stats().busy_time.0)
        };
        let mut known = self.insight.known();
        // A pool without work has used no processor.
        if busy > known.busy || known.at == 0 {
            let used = pids
                .iter()
                .filter_map(|pid| Some((*pid, cpu::of(*pid)?)))
                .collect();
            known.look(clock::precise(), used);
            known.busy = busy;
        }
    }

    /// Number of processors that weir may use.
    pub(crate) fn usable_processors(&self) -> usize {
        self.cores
    }

    /// CPU time of all workers so far, µs.
    pub(crate) fn computed(&self) -> u64 {
        self.insight.known().computed
    }

    /// A slow script is there.
    pub(crate) fn is_slow_at(&self, place: SlowPlace) {
        let mut known = self.insight.known();
        let at = clock::precise();
        // A worker's report about an earlier request is out of date.
        known.places.retain(|other| other.place.pid != place.pid);
        if known.places.len() >= MOST {
            known.places.pop_front();
        }
        known.places.push_back(Entry { at, place });
    }

    /// Where slow scripts are or were a moment ago; the most frequent place first.
    pub(crate) fn places(&self, workers: &[WorkerStatus]) -> Vec<Place> {
        self.insight.known().places(clock::precise(), workers)
    }
}

impl Insight {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn look(&mut self, now: u64, used: Vec<(u32, Duration)>) {
        let span = Duration::from_micros(now.saturating_sub(self.at));
        if self.at > 0 {
            let since = used.iter().map(|(pid, used)| {
                let before = self.seen.iter().find(|(other, _)| other == pid);
                let before = before.map_or(Duration::ZERO, |(_, before)| *before);
                // If another gateway had the worker before, its CPU time includes earlier work.
                used.saturating_sub(before).min(span)
            });
            self.computed += since.sum::<Duration>().as_micros() as u64;
        }
        (self.at, self.seen) = (now, used);
    }

    fn places(&mut self, now: u64, workers: &[WorkerStatus]) -> Vec<Place> {
        self.places.retain(|entry| {
            let age = Duration::from_micros(now.saturating_sub(entry.at));
            let worker = workers.iter().find(|worker| worker.pid == entry.place.pid);
            let still = worker.is_some_and(|worker| {
                worker.stage != Stage::Idle && worker.request.duration >= age
            });
            still || age < LATELY
        });
        let mut found: Vec<Place> = Vec::new();
        for Entry { place, .. } in &self.places {
            let same =
                |known: &&mut Place| known.function == place.function && known.at == place.at;
            match found.iter_mut().find(same) {
                Some(known) => known.count += 1,
                None => found.push(Place {
                    function: place.function.clone(),
                    at: place.at.clone(),
                    count: 1,
                }),
            }
        }
        found.sort_by_key(|place| std::cmp::Reverse(place.count));
        found.truncate(MOST_SHOWN);
        found
    }
}

/// How busy the machine's processors are.
#[derive(Debug, Default)]
pub(crate) struct Machine(Mutex<VecDeque<MachineTime>>);

impl Machine {
    /// To be called once a second.
    pub(crate) fn measure(&self) {
        let mut samples = self.samples();
        if let Some(sample) = cpu::of_machine() {
            if samples.len() >= SAMPLES {
                samples.pop_front();
            }
            samples.push_back(sample);
        }
    }

    /// Their busy share in the last ten seconds, 0 to 1; `None`: not known.
    pub(crate) fn busy(&self) -> Option<f64> {
        let samples = self.samples();
        busy(samples.front()?, samples.back()?)
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<MachineTime>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn busy(first: &MachineTime, last: &MachineTime) -> Option<f64> {
    let all = last.all.saturating_sub(first.all);
    let idle = last.idle.saturating_sub(first.idle).min(all);
    (all > 0).then(|| 1.0 - idle as f64 / all as f64)
}

/// A place is forgotten after this time, unless its script is still running.
const LATELY: Duration = Duration::from_secs(60);

/// Maximum number of workers of a pool that are looked at.
const MOST: usize = 1024;

/// Maximum number of places that are shown.
const MOST_SHOWN: usize = 8;

/// One a second for the last ten seconds.
const SAMPLES: usize = 11;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use weir_observe::pool_status::RequestStatus;

    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn cpu_time_is_that_of_the_workers_since_they_were_first_seen() {
        let mut known = Known::default();
        let used = |list: &[(u32, u64)]| -> Vec<(u32, Duration)> {
            let one = |(pid, millis): &(u32, u64)| (*pid, Duration::from_millis(*millis));
            list.iter().map(one).collect()
        };
        known.look(SECOND, used(&[(1, 90_000)]));
        assert_eq!(known.computed, 0, "before this gateway");
        known.look(2 * SECOND, used(&[(1, 90_700), (2, 200)]));
        assert_eq!(known.computed, 900_000);
        // Process 1 has ended. Process 3 worked for another gateway before.
        known.look(3 * SECOND, used(&[(2, 300), (3, 70_000)]));
        assert_eq!(known.computed, 2_000_000);
    }

    #[test]
    fn processors_are_busy_unless_they_have_nothing_to_do() {
        let at = |all, idle| MachineTime {
            all,
            idle,
            stolen: 0,
        };
        assert_eq!(busy(&at(100, 90), &at(200, 115)), Some(0.75));
        assert_eq!(busy(&at(100, 90), &at(100, 90)), None);
    }

    #[test]
    fn places_are_counted_while_their_scripts_run_and_a_minute_longer() {
        let mut known = Known::default();
        let mut put = |pid: u32, function: &str, at: u64| {
            let place = SlowPlace {
                pool: String::new(),
                pid,
                function: function.to_owned(),
                at: "/a.php:3".to_owned(),
            };
            known.places.push_back(Entry { at, place });
        };
        for (pid, function) in [(1, "sleep"), (2, "flock"), (3, "flock")] {
            put(pid, function, SECOND);
        }
        let running = |pid: u32, seconds: u64| WorkerStatus {
            pid,
            stage: Stage::Running,
            started: SystemTime::now(),
            requests: 1,
            early_memory: 0,
            request: RequestStatus {
                duration: Duration::from_secs(seconds),
                ..RequestStatus::default()
            },
        };
        let mut shown = |now: u64, workers: &[WorkerStatus]| -> Vec<(String, usize)> {
            let places = known.places(now, workers);
            places
                .into_iter()
                .map(|place| (place.function, place.count))
                .collect()
        };
        let [lock, sleep] = ["flock", "sleep"].map(str::to_owned);
        assert_eq!(shown(2 * SECOND, &[]), [(lock.clone(), 2), (sleep, 1)]);
        // Worker 2 still runs that script, worker 3 runs another one.
        let workers = [running(2, 125), running(3, 1)];
        assert_eq!(shown(121 * SECOND, &workers), [(lock, 1)]);
        assert_eq!(shown(122 * SECOND, &[]), []);
    }
}
