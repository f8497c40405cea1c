//! Observes a load: the machine's processors, and the status of the running weir's pools.

use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Whose CPU time is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scope {
    /// CPU use of the whole machine, minus its use without load (processors). This includes work that a request causes
    /// elsewhere on the machine, for example in a database.
    Machine(f64),
    /// CPU use of a process and its descendants, if other programs keep the machine busy (with this many processors).
    Tree(u32, f64),
    /// It cannot be seen.
    Nothing,
}

/// CPU time at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Cpu {
    at: Instant,
    /// In the kernel's ticks.
    ticks: u64,
}

impl Scope {
    /// The whole machine if it is quiet. Otherwise the running weir, if its status names its
    /// process.
    pub fn choose(status: Option<&Value>, cores: f64) -> Scope {
        let idle = idle(IDLE);
        let weir = status.and_then(|status| u32::try_from(status["manager_pid"].as_u64()?).ok());
        let seen = weir.filter(|pid| tree(&processes(), *pid).is_some());
        match (idle, seen) {
            (Some(idle), _) if idle < cores * QUIET => Scope::Machine(idle),
            (idle, Some(pid)) => Scope::Tree(pid, idle.unwrap_or(0.0)),
            (_, None) => Scope::Nothing,
        }
    }

    /// Reads the CPU time; `None`: it cannot be seen.
    pub fn now(&self) -> Option<Cpu> {
        let ticks = match self {
            Scope::Machine(_) => ticks(&fs::read_to_string("/proc/stat").ok()?)?,
            Scope::Tree(pid, _) => tree(&processes(), *pid)?,
            Scope::Nothing => return None,
        };
        Some(Cpu {
            at: Instant::now(),
            ticks,
        })
    }

    /// Mean number of busy processors between two readings, without `own`, those of this process.
    pub fn between(&self, before: &Cpu, after: &Cpu, own: f64) -> f64 {
        let busy = after.since(before);
        match self {
            Scope::Machine(idle) => (busy - idle - own).max(0.0),
            Scope::Tree(..) | Scope::Nothing => busy,
        }
    }
}

impl Cpu {
    fn since(&self, before: &Cpu) -> f64 {
        let seconds = (self.at - before.at).as_secs_f64().max(1e-3);
        self.ticks.saturating_sub(before.ticks) as f64 / TICKS / seconds
    }
}

/// Processors that are busy without load, measured over `time`.
fn idle(time: Duration) -> Option<f64> {
    let machine = Scope::Machine(0.0);
    let before = machine.now()?;
    thread::sleep(time);
    Some(machine.now()?.since(&before))
}

/// user, nice, system, irq and softirq of all processors (proc_stat(5)).
fn ticks(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    [0, 1, 2, 5, 6].iter().map(|index| fields.get(*index)).sum()
}

/// A process: its parent, and its ticks with those of children that have ended.
type Processes = BTreeMap<u32, (u32, u64)>;

fn processes() -> Processes {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, process(&text)?))
    })
    .collect()
}

/// Fields 4 and 14 to 17 of a process's line (proc_pid_stat(5)); its name may contain anything.
fn process(text: &str) -> Option<(u32, u64)> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks = fields
        .get(11..15)?
        .iter()
        .map(|field| field.parse::<u64>().ok());
    Some((parent, ticks.sum::<Option<u64>>()?))
}

/// The ticks of a process and its descendants; `None`: it does not exist.
fn tree(all: &Processes, root: u32) -> Option<u64> {
    let mut sum = all.get(&root)?.1;
    let mut below = vec![root];
    while let Some(parent) = below.pop() {
        for (pid, (of, ticks)) in all {
            if *of == parent && *pid != parent {
                sum += ticks;
                below.push(*pid);
            }
        }
    }
    Some(sum)
}

/// The status before the load, after the first step, and after all steps.
#[derive(Debug, Default)]
pub struct Observation {
    pools: BTreeMap<String, Figures>,
}

/// The figures of one pool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figures {
    /// Requests that it got in between.
    pub taken: u64,
    /// Time that a request kept a worker busy without other load, s.
    pub service: Option<f64>,
    /// Maximum of workers.
    pub limit: Option<u32>,
    /// Processes of its workers.
    pub pids: Vec<u32>,
}

impl Observation {
    /// Compares the status values.
    pub fn of(before: Option<&Value>, first: Option<&Value>, after: Option<&Value>) -> Observation {
        let mut pools = BTreeMap::new();
        for pool in list(after, "pools") {
            let Some(name) = pool["name"].as_str() else {
                continue;
            };
            let earlier = find(before, name);
            let taken = |pool: &Value| pool["requests"]["taken"].as_u64().unwrap_or(0);
            let service = earlier.zip(find(first, name)).and_then(|(before, first)| {
                let times = |pool: &Value, key: &str| pool["times"]["service"][key].as_f64();
                let count = times(first, "count")? - times(before, "count")?;
                let sum = times(first, "sum")? - times(before, "sum")?;
                (count >= 1.0).then_some(sum / count)
            });
            let processes = pool["processes"].as_array().into_iter().flatten();
            let pid = |process: &Value| u32::try_from(process["pid"].as_u64()?).ok();
            let limit = pool["workers"]["max"].as_u64();
            pools.insert(
                name.to_owned(),
                Figures {
                    taken: taken(pool).saturating_sub(earlier.map_or(0, taken)),
                    service,
                    limit: limit.and_then(|limit| u32::try_from(limit).ok()),
                    pids: processes.filter_map(pid).filter(|pid| *pid != 0).collect(),
                },
            );
        }
        Observation { pools }
    }

    /// The figures of a pool.
    pub fn pool(&self, name: &str) -> Option<Figures> {
        self.pools.get(name).cloned()
    }

    /// The pool that got the most requests; `None`: none got any.
    pub fn busiest(&self) -> Option<&str> {
        let most = self.pools.iter().max_by_key(|(_, figures)| figures.taken)?;
        (most.1.taken > 0).then_some(most.0.as_str())
    }
}

fn list<'a>(status: Option<&'a Value>, key: &str) -> &'a [Value] {
    let list = status.and_then(|status| status[key].as_array());
    list.map_or(&[], Vec::as_slice)
}

fn find<'a>(status: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    list(status, "pools")
        .iter()
        .find(|pool| pool["name"] == name)
}

/// A machine on which less than this is busy without load counts as quiet.
const QUIET: f64 = 0.1;

/// How long the machine is observed without load.
const IDLE: Duration = Duration::from_millis(500);

/// Ticks of a second (USER_HZ, which is 100 on all machines that Linux supports today).
const TICKS: f64 = 100.0;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn work_is_what_is_neither_idle_nor_stolen() {
        assert_eq!(
            ticks("cpu  1 2 4 1000 1000 8 16 1000 0 0\ncpu0 1 1\n"),
            Some(31)
        );
        assert_eq!(ticks("cpu  1 2\n"), None);
        assert_eq!(ticks(""), None);
        assert!(Scope::Machine(0.0).now().is_some());
    }

    #[test]
    fn a_tree_is_a_process_and_all_below_it() {
        let line = |pid: u32, parent: u32, ticks: u64| {
            let text = format!("{pid} (a) b) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 1 2 3 20 0 1");
            (pid, process(&text).unwrap())
        };
        let all: Processes = [
            line(1, 0, 100),
            line(7, 1, 10),
            line(8, 7, 20),
            line(9, 8, 30),
            line(5, 1, 50),
        ]
        .into();
        assert_eq!(tree(&all, 7), Some(10 + 20 + 30 + 3 * 6));
        assert_eq!(tree(&all, 77), None);
        assert_eq!(process("7 (x"), None);
        assert_eq!(process("7 (x) S 1"), None);
        let own = Scope::Tree(std::process::id(), 0.0);
        let before = own.now().unwrap();
        assert!(own.between(&before, &own.now().unwrap(), 0.0) >= 0.0);
        assert!(Scope::Nothing.now().is_none());
    }

    #[test]
    fn the_pool_that_got_the_requests_is_found() {
        let status = |a: u64, b: u64, count: u64, sum: f64| {
            json!({ "pools": [
                { "name": "a", "requests": { "taken": a }, "workers": { "max": 4 }, "processes": [],
                  "times": { "service": { "count": 0, "sum": 0.0 } } },
                { "name": "b", "requests": { "taken": b }, "workers": { "max": 8 },
                  "processes": [{ "pid": 7 }, { "pid": 0 }],
                  "times": { "service": { "count": count, "sum": sum } } },
            ] })
        };
        let (before, first, after) = (
            status(900, 10, 10, 1.0),
            status(900, 20, 20, 1.5),
            status(901, 50, 50, 9.0),
        );
        let seen = Observation::of(Some(&before), Some(&first), Some(&after));
        assert_eq!(seen.busiest(), Some("b"));
        let b = seen.pool("b").unwrap();
        assert_eq!((b.taken, b.limit, &b.pids[..]), (40, Some(8), &[7][..]));
        assert!((b.service.unwrap() - 0.05).abs() < 1e-9);
        assert_eq!(seen.pool("a").unwrap().service, None);
    }

    #[test]
    fn a_weir_that_says_nothing_or_nonsense_is_no_harm() {
        assert_eq!(Observation::of(None, None, None).busiest(), None);
        let odd = json!({ "pools": [{ "name": 3 }, { "name": "x", "processes": 5 }, "y"] });
        let seen = Observation::of(Some(&odd), Some(&odd), Some(&odd));
        assert_eq!(seen.pool("x"), Some(Figures::default()));
        assert_eq!(seen.busiest(), None);
    }
}
