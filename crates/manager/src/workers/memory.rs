//! Memory for `pm = "auto"`: the cost of a worker, how much is left, and whether the kernel is short of memory.
//!
//! - The cost of a worker is its largest proportional set size: its own memory, and its share of memory that it has
//!   in common with others (proc_pid_smaps(5)). If the kernel does not report that, it is the resident memory without
//!   memory that is shared by design, such as OPcache's.
//! - The memory that is left is the lowest value of the machine's available memory and of each control group of weir,
//!   minus a reserve.
//! - Memory is short if tasks have waited for memory for a considerable part of the last ten seconds
//!   (Documentation/accounting/psi.rst of Linux), or if less than the reserve is left.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Memory that workers may still use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headroom {
    /// Bytes.
    pub available: u64,
    /// Whether the kernel is short of memory.
    pub pressure: bool,
}

/// The state of this machine, with the limits of this process.
pub fn headroom() -> Headroom {
    let groups = groups(&read("/proc/self/cgroup"));
    let meminfo = read("/proc/meminfo");
    let total = field(&meminfo, "MemTotal:").unwrap_or(0);
    let available = field(&meminfo, "MemAvailable:").unwrap_or(u64::MAX);
    let (mut total, mut available) = (total, available);
    for group in &groups {
        if let Some(room) = room(group).filter(|room| room.limit < total) {
            total = total.min(room.limit);
            available = available.min(room.left);
        }
    }
    let stalled = groups.first().map(|group| group.join("memory.pressure"));
    let stalled = stalled.and_then(|file| fs::read_to_string(file).ok());
    let stalled = stalled.unwrap_or_else(|| read("/proc/pressure/memory"));
    let reserve = total / RESERVE;
    Headroom {
        available: available.saturating_sub(reserve),
        pressure: available < reserve || is_short(&stalled),
    }
}

/// The memory of this machine, or of our smallest control group; bytes.
pub fn total() -> u64 {
    Limits::of(None).memory
}

/// What the control groups of a process allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The memory of the machine, or of the smallest group; bytes.
    pub memory: u64,
    /// Processes and threads (pids.max); `None`: no limit.
    pub tasks: Option<u64>,
    /// CPU time in thousandths of a processor (cpu.max); `None`: no limit.
    pub processors: Option<u64>,
    /// Processes that the kernel has killed because the group had no memory left.
    pub oom_kills: u64,
}

impl Limits {
    /// The limits of a process; `None`: of this process.
    pub fn of(process: Option<u32>) -> Limits {
        let process = process.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        let own = read(&format!("/proc/{process}/cgroup"));
        let all = |kind: &str| groups_of(&own, kind);
        let memory = all("memory");
        let limits = memory.iter().filter_map(|group| room(group));
        let total = field(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0);
        let tasks = all("pids");
        let tasks = tasks.iter().filter_map(|group| {
            let text = fs::read_to_string(group.join("pids.max")).ok()?;
            text.trim().parse().ok()
        });
        let processors = all("cpu");
        let processors = processors.iter().filter_map(|group| quota(group));
        Limits {
            memory: limits.map(|room| room.limit).fold(total, u64::min),
            tasks: tasks.min(),
            processors: processors.min(),
            oom_kills: memory
                .iter()
                .filter_map(|group| kills(group))
                .max()
                .unwrap_or(0),
        }
    }
}

/// The part of the processors' time that a group may use, in thousandths of a processor.
fn quota(group: &Path) -> Option<u64> {
    let file = |name: &str| fs::read_to_string(group.join(name));
    let both = file("cpu.max").or_else(|_| {
        let [quota, period] = ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(file);
        std::io::Result::Ok(format!("{} {}", quota?.trim(), period?.trim()))
    });
    let both = both.ok()?;
    let mut numbers = both
        .split_whitespace()
        .map(|number| number.parse::<u64>().ok());
    let (quota, period) = (numbers.next()??, numbers.next()??);
    quota.checked_mul(1_000)?.checked_div(period)
}

/// The kernel's count of kills in a group.
fn kills(group: &Path) -> Option<u64> {
    ["memory.events", "memory.oom_control"]
        .into_iter()
        .find_map(|file| field(&fs::read_to_string(group.join(file)).ok()?, "oom_kill "))
}

/// The cost of a pool's workers, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// One worker now, on average.
    pub now: u64,
    /// The size of a large worker: the mean of the larger half. A worker may need the same memory again, and workers
    /// that have done little yet will grow.
    pub most: u64,
}

/// How many processes the kernel has killed because it was out of memory: those of our control group, or of the
/// machine if the group does not count them. `None`: not known.
pub fn oom_kills() -> Option<u64> {
    let group = groups(&read("/proc/self/cgroup")).into_iter().next();
    let of_group = group.and_then(|group| kills(&group));
    of_group.or_else(|| field(&read("/proc/vmstat"), "oom_kill "))
}

/// The present cost of one of these processes, on average, bytes; `None`: not known.
pub fn cost(pids: impl Iterator<Item = u32>) -> Option<u64> {
    costs(pids).map(|cost| cost.now)
}

/// The cost of these processes; `None`: not known.
pub fn costs(pids: impl Iterator<Item = u32>) -> Option<Cost> {
    let costs: Vec<Cost> = pids.take(SAMPLE).filter_map(cost_of).collect();
    mean(&costs)
}

fn mean(costs: &[Cost]) -> Option<Cost> {
    let now = costs.iter().map(|cost| cost.now).sum::<u64>();
    let mut most: Vec<u64> = costs.iter().map(|cost| cost.most).collect();
    most.sort_unstable();
    let larger = &most[most.len() / 2..];
    Some(Cost {
        now: now.checked_div(costs.len() as u64)?,
        most: larger.iter().sum::<u64>() / larger.len() as u64,
    })
}

fn cost_of(pid: u32) -> Option<Cost> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let resident = field(&status, "VmRSS:")?;
    // Heap that the process has given back since its peak.
    let given_back = field(&status, "VmHWM:")
        .unwrap_or(0)
        .saturating_sub(resident);
    // Without CAP_SYS_PTRACE only this process itself may read it. Files and shared memory are in memory once for all workers.
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
    let now = rollup
        .ok()
        .and_then(|text| field(&text, "Pss:"))
        .or_else(|| field(&status, "RssAnon:"))
        .unwrap_or(resident);
    Some(Cost {
        now,
        most: now.saturating_add(given_back),
    })
}

/// The calculation of `pm = "auto"`: the cost of one more worker, and the memory for more workers when the existing
/// ones have grown to full size. `measured`: the cost of some of the `workers`; if there are any that have lived for
/// a while, of those (`grown`). Before that, `guess` is used.
pub(crate) fn reckon(
    measured: Option<Cost>,
    grown: bool,
    guess: u64,
    workers: usize,
    available: u64,
) -> (u64, u64) {
    let cost = match (measured, grown) {
        (Some(cost), true) => cost.most.saturating_add(cost.most / MARGIN).max(SMALLEST),
        (Some(cost), false) => cost.most.max(guess),
        (None, _) => guess,
    };
    let now = measured.map_or(0, |cost| cost.now);
    let growth = cost.saturating_sub(now).saturating_mul(workers as u64);
    (cost.max(1), available.saturating_sub(growth))
}

/// Processes that the kernel has killed for lack of memory in our control groups, if they count that.
pub fn killed() -> u64 {
    let groups = groups(&read("/proc/self/cgroup"));
    groups
        .iter()
        .filter_map(|group| kills(group))
        .max()
        .unwrap_or(0)
}

/// A control group's limit and the rest of it, bytes.
struct Room {
    limit: u64,
    left: u64,
}

/// `None`: it has no limit.
fn room(group: &Path) -> Option<Room> {
    let number = |names: [&str; 2]| {
        let text = names.map(|name| fs::read_to_string(group.join(name)));
        let text = text.into_iter().find_map(Result::ok)?;
        text.trim().parse::<u64>().ok()
    };
    let limit = number(["memory.max", "memory.limit_in_bytes"])?;
    let used = number(["memory.current", "memory.usage_in_bytes"])?;
    // File pages that were not used recently are freed before any task has to wait.
    let inactive = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let inactive = ["total_inactive_file", "inactive_file"]
        .iter()
        .find_map(|name| field(&inactive, name))
        .unwrap_or(0);
    Some(Room {
        limit,
        left: limit.saturating_sub(used.saturating_sub(inactive)),
    })
}

/// The folders of the control groups that limit our memory, from ours upwards.
fn groups(own: &str) -> Vec<PathBuf> {
    groups_of(own, "memory")
}

/// The folders of the control groups with this controller, from the process's own upwards: of either version (cgroups(7)).
fn groups_of(own: &str, controller: &str) -> Vec<PathBuf> {
    let group = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        match controllers {
            "" if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() => {
                Some((PathBuf::from("/sys/fs/cgroup"), path))
            }
            _ if controllers.split(',').any(|name| name == controller) => {
                Some((Path::new("/sys/fs/cgroup").join(controller), path))
            }
            _ => None,
        }
    });
    let Some((root, path)) = group else {
        return Vec::new();
    };
    let own = root.join(path.trim_start_matches('/'));
    let up = own
        .ancestors()
        .take_while(|folder| folder.starts_with(&root));
    up.filter(|folder| folder.is_dir())
        .map(Path::to_owned)
        .collect()
}

/// The number after a name at the start of a line, with its unit applied.
pub fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match words.next() {
        Some("kB") => number.checked_mul(1024),
        _ => Some(number),
    }
}

/// Whether a pressure file shows that memory is short.
fn is_short(pressure: &str) -> bool {
    let share = |kind: &str| -> f64 {
        let line = pressure.lines().find_map(|line| line.strip_prefix(kind));
        let share = line.and_then(|line| line.split_whitespace().next()?.strip_prefix("avg10="));
        share.and_then(|share| share.parse().ok()).unwrap_or(0.0)
    };
    share("some ") >= SOME_STALLED || share("full ") >= ALL_STALLED
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// This fraction (1/4) is added to the measured cost of workers.
const MARGIN: u64 = 4;

/// Minimum cost of a worker, bytes.
const SMALLEST: u64 = 2 << 20;

/// How many workers of a pool are measured each time.
const SAMPLE: usize = 8;

/// This fraction (1/20) of the memory is reserved for other programs.
const RESERVE: u64 = 20;

/// Per cent of the time in which some tasks waited for memory.
const SOME_STALLED: f64 = 20.0;

/// Per cent of the time in which all tasks waited.
const ALL_STALLED: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_of_cpu_time_is_read_in_either_form() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let quota = || quota(folder.path());
        assert_eq!(quota(), None);
        write("cpu.cfs_quota_us", "-1\n");
        write("cpu.cfs_period_us", "100000\n");
        assert_eq!(quota(), None);
        write("cpu.cfs_quota_us", "50000\n");
        assert_eq!(quota(), Some(500));
        write("cpu.max", "max 100000\n");
        assert_eq!(quota(), None);
        write("cpu.max", "150000 100000\n");
        assert_eq!(quota(), Some(1_500));
    }

    #[test]
    fn the_limits_of_another_process_are_those_of_its_groups() {
        let own = Limits::of(None);
        assert!(own.memory > 0, "{own:?}");
        assert_eq!(Limits::of(Some(std::process::id())), own);
    }

    #[test]
    fn this_process_costs_something_and_something_is_left() {
        let own = costs([std::process::id()].into_iter()).unwrap();
        assert!((100_000..10_000_000_000).contains(&own.now), "{own:?}");
        assert!(own.most >= own.now);
        assert_eq!(cost([].into_iter()), None);
        assert_eq!(cost([u32::MAX].into_iter()), None);
        assert!(headroom().available > 0);
    }

    #[test]
    fn workers_are_reckoned_by_their_largest_and_before_any_was_measured_by_a_guess() {
        const MB: u64 = 1 << 20;
        let cost = |now, most| Cost {
            now: now * MB,
            most: most * MB,
        };
        // Nothing is measured: as many workers as fit with the estimate.
        assert_eq!(
            reckon(None, false, 32 * MB, 0, 200 * MB),
            (32 * MB, 200 * MB)
        );
        // Four workers that were just forked share nearly everything, and will still grow.
        let fresh = mean(&[cost(2, 3); 4]);
        assert_eq!(
            reckon(fresh, false, 32 * MB, 4, 192 * MB),
            (32 * MB, (192 - 4 * 30) * MB)
        );
        // Every second worker once needed much memory.
        let grown = mean(&[cost(8, 8), cost(8, 40), cost(8, 8), cost(8, 40)]);
        assert_eq!(grown, Some(cost(8, 40)));
        assert_eq!(
            reckon(grown, true, 32 * MB, 4, 400 * MB),
            (50 * MB, (400 - 4 * 42) * MB)
        );
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn fields_have_units_and_shares_have_two_lines() {
        let text = "Rss:  1732 kB\nPss:   186 kB\nPss_Dirty: 1 kB\n";
        assert_eq!(field(text, "Pss:"), Some(186 * 1024));
        assert_eq!(field("inactive_file 42\n", "inactive_file"), Some(42));
        assert_eq!(field("Pss: many", "Pss:"), None);
        let pressure = |some: &str, all: &str| {
            let rest = "avg60=0.00 avg300=0.00 total=1";
            is_short(&format!(
                "some avg10={some} {rest}\nfull avg10={all} {rest}\n"
            ))
        };
        assert!(!pressure("12.00", "0.50"));
        assert!(pressure("20.00", "0.00"));
        assert!(pressure("6.00", "5.10"));
        assert!(!is_short(""));
    }

    #[test]
    fn a_group_that_is_full_has_nothing_left_but_what_can_be_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert!(room(folder.path()).is_none());
        write("memory.max", "max\n");
        write("memory.current", "900\n");
        assert!(room(folder.path()).is_none());
        write("memory.max", "1000\n");
        write("memory.stat", "anon 5\ninactive_file 300\n");
        let room = room(folder.path()).unwrap();
        assert_eq!((room.limit, room.left), (1_000, 400));
    }
}
