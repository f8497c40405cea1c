//! Measures what processes use, for the admin interface.
//!
//! It measures only on request, and limits its cost: for the memory of a pool it checks at most
//! [`SAMPLE`](crate::workers::memory) workers. While the last measurement has taken more than 1/[`SHARE`] of the time since,
//! its result is returned again.

use std::{
    collections::{HashMap, HashSet},
    fs,
    time::{Duration, Instant},
};

use weir_control::{MOST_USES, ManagerCounts, PoolUse, ProcessUse, ToGateway};
use weir_sys::process;

use crate::workers::memory;

/// Measures the processes of one generation.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pools: HashMap<u16, Cpu>,
    /// The last result, and when the next measurement is allowed.
    last: Vec<(u16, PoolUse)>,
    own: (ProcessUse, ProcessUse),
    due: Option<Instant>,
}

/// The processes of a pool.
#[derive(Debug)]
pub(crate) struct PoolPids {
    /// Index into the configuration's pools.
    pub(crate) pool: u16,
    /// PHP masters: their CPU time includes that of ended workers.
    pub(crate) masters: Vec<u32>,
    pub(crate) workers: Vec<u32>,
}

/// CPU time of a pool since its processes were first seen.
#[derive(Debug, Default)]
struct Cpu {
    /// µs
    total: u64,
    seen: HashMap<u32, u64>,
}

impl Meter {
    /// The messages that answer [`ToManager::Measure`](weir_control::ToManager::Measure).
    pub(crate) fn measure(
        &mut self,
        now: Instant,
        pools: impl Iterator<Item = PoolPids>,
        gateway: Option<u32>,
        counts: ManagerCounts,
    ) -> Vec<ToGateway> {
        if self.due.is_none_or(|due| due <= now) {
            self.last = pools.map(|pids| self.pool(&pids)).collect();
            let process = |pid| ProcessUse {
                cpu: cpu_of(pid).map_or(0, |cpu| cpu.own),
                memory: memory::cost([pid].into_iter()).unwrap_or(0),
                files: files_of(pid).unwrap_or(0),
            };
            let gateway = gateway.map(process).unwrap_or_default();
            self.own = (process(std::process::id()), gateway);
            self.due = Some(now + LEAST.max(now.elapsed() * SHARE));
        }
        let pools = self.last.chunks(MOST_USES);
        let pools = pools.map(|pools| ToGateway::PoolUse {
            pools: pools.to_vec(),
        });
        let (manager, gateway) = self.own;
        let own = ToGateway::OwnUse {
            manager,
            gateway,
            counts,
        };
        pools.chain([own]).collect()
    }

    fn pool(&mut self, pids: &PoolPids) -> (u16, PoolUse) {
        let cpu = self.pools.entry(pids.pool).or_default();
        cpu.look(pids, cpu_of);
        let worker_memory = memory::cost(pids.workers.iter().copied()).unwrap_or(0);
        let masters = pids.masters.iter();
        let masters = masters.filter_map(|pid| memory::cost([*pid].into_iter()));
        let all = ProcessUse {
            cpu: cpu.total,
            memory: worker_memory * pids.workers.len() as u64 + masters.sum::<u64>(),
            files: 0,
        };
        (pids.pool, PoolUse { all, worker_memory })
    }
}

impl Cpu {
    /// Adds the CPU time since the last measurement. CPU time of a worker after its last
    /// measurement is included if its master counts it.
    fn look(&mut self, pids: &PoolPids, cpu_of: impl Fn(u32) -> Option<CpuTime>) {
        let mut grown: u64 = 0;
        let mut alive = HashSet::new();
        for (pid, is_master) in (pids.workers.iter().map(|pid| (*pid, false)))
            .chain(pids.masters.iter().map(|pid| (*pid, true)))
        {
            let Some(taken) = cpu_of(pid) else {
                continue;
            };
            let now = taken.own + if is_master { taken.children } else { 0 };
            let before = self.seen.insert(pid, now).unwrap_or(0);
            grown += now.saturating_sub(before);
            alive.insert(pid);
        }
        let has_master = !pids.masters.is_empty();
        let mut counted: u64 = 0;
        self.seen.retain(|pid, last| {
            let lives = alive.contains(pid);
            if !lives && has_master {
                // Its master now counts it among its children.
                counted += *last;
            }
            lives
        });
        self.total += grown.saturating_sub(counted);
    }
}

/// CPU time, µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuTime {
    own: u64,
    /// CPU time of children that have ended and were waited for.
    children: u64,
}

fn cpu_of(pid: u32) -> Option<CpuTime> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    taken(&stat, process::clock_ticks())
}

/// Number of open descriptors of a process.
fn files_of(pid: u32) -> Option<u64> {
    let folder = format!("/proc/{pid}/fd");
    // Since Linux 6.2 the folder's size is their number, so they need not be listed.
    match fs::metadata(&folder).ok()?.len() {
        0 => Some(fs::read_dir(&folder).ok()?.count() as u64),
        files => Some(files),
    }
}

/// Fields 14 to 17 of proc_pid_stat(5). The second field, the program's name, may contain anything.
fn taken(stat: &str, ticks: u64) -> Option<CpuTime> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut micros = || {
        let ticked: u64 = fields.next()?.parse().ok()?;
        ticked.checked_mul(1_000_000)?.checked_div(ticks)
    };
    let own = micros()? + micros()?;
    Some(CpuTime {
        own,
        children: micros()? + micros()?,
    })
}

/// Measuring takes at most this fraction (1/50) of the manager's time.
const SHARE: u32 = 50;

/// Minimum time between two measurements.
const LEAST: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_anything_in_it_is_passed_over() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 30 20 20 0 1 0 5 6 7";
        let expected = CpuTime {
            own: 2_000_000,
            children: 500_000,
        };
        assert_eq!(taken(stat, 100), Some(expected));
        assert_eq!(taken("7 (a) S 1", 100), None);
        assert_eq!(taken("", 100), None);
        assert!(cpu_of(std::process::id()).is_some());
        assert!(files_of(std::process::id()) > Some(2));
    }

    #[test]
    fn a_workers_time_is_counted_once_also_when_its_master_has_it() {
        let mut cpu = Cpu::default();
        let mut look = |workers: &[(u32, u64)], master: (u64, u64)| {
            let pids = PoolPids {
                pool: 0,
                masters: vec![1],
                workers: workers.iter().map(|(pid, _)| *pid).collect(),
            };
            cpu.look(&pids, |pid| {
                let worker = workers.iter().find(|(known, _)| *known == pid);
                let (own, children) = worker.map_or(master, |(_, own)| (*own, 0));
                Some(CpuTime { own, children })
            });
            cpu.total
        };
        assert_eq!(look(&[(2, 100), (3, 50)], (10, 0)), 160);
        assert_eq!(look(&[(2, 150), (3, 50)], (10, 0)), 210);
        // The first process has used 20 more, and ended.
        assert_eq!(look(&[(3, 60)], (10, 170)), 240);
        assert_eq!(look(&[(3, 60)], (10, 170)), 240);
    }
}
