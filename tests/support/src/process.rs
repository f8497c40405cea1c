//! Processes: what a process has started, and whether any of it still runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since boot.
    started: u64,
    /// Its name, for messages.
    pub name: String,
}

impl Process {
    /// Whether it still runs. A process that ended and was not waited for does not.
    pub fn runs(&self) -> bool {
        stat(self.pid).is_some_and(|now| now.started == self.started && now.state != 'Z')
    }
}

/// All processes that `pid` started, and all that those started.
pub fn descendants(pid: u32) -> Vec<Process> {
    let mut children: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if let Some(stat) = stat(pid) {
            children.entry(stat.parent).or_default().push(Process {
                pid,
                started: stat.started,
                name: stat.name,
            });
        }
    }
    let mut found = Vec::new();
    let mut next = vec![pid];
    while let Some(parent) = next.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            next.push(child.pid);
            found.push(child);
        }
    }
    found
}

/// All processes that were started with this argument.
pub fn with_argument(argument: &str) -> Vec<Process> {
    let mut found = descendants(1);
    found.retain(|process| {
        let words = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        words
            .split(|byte| *byte == 0)
            .any(|word| word == argument.as_bytes())
    });
    found
}

/// What each thread of a process and of its descendants does: where in the kernel it waits, in which call with which
/// descriptors, and how much processor time it had. This helps to find out why a test got stuck.
pub fn table(pid: u32) -> String {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let mut text = format!("load {}\n", read("/proc/loadavg".to_owned()).trim_end());
    for resource in ["cpu", "io"] {
        let pressure = read(format!("/proc/pressure/{resource}"));
        if let Some(line) = pressure.lines().next() {
            text.push_str(&format!("waiting for {resource}: {line}\n"));
        }
    }
    let started = descendants(pid);
    for pid in std::iter::once(pid).chain(started.iter().map(|process| process.pid)) {
        let mut threads: Vec<_> = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .collect();
        threads.sort_unstable();
        for thread in threads {
            let folder = format!("/proc/{pid}/task/{thread}");
            let Some(stat) = stat_at(&format!("{folder}/stat")) else {
                continue;
            };
            text.push_str(&format!(
                "{pid} {thread} {} {} cpu={} ticks in {} call {}\n",
                stat.name,
                stat.state,
                stat.ticks,
                read(format!("{folder}/wchan")),
                read(format!("{folder}/syscall")).trim_end(),
            ));
        }
    }
    text
}

/// Whether there is a process with this number that still runs. A process that ended and was not waited for does not.
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|now| now.state != 'Z')
}

/// Sends a signal. It is not an error if the process has already ended.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a process id");
    let _ = kill_process(pid, signal);
}

/// Waits for the end of a child. Returns none if it still runs after `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return Some(status);
        }
        if began.elapsed() > limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Resident memory of a process, in bytes.
pub fn resident(pid: u32) -> u64 {
    kilobytes(pid, "VmRSS:") * 1024
}

/// The most resident memory that a process has had, in bytes.
pub fn most_resident(pid: u32) -> u64 {
    kilobytes(pid, "VmHWM:") * 1024
}

/// CPU time that a process has used.
pub fn cpu_time(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_secs(ticks) / rustix::param::clock_ticks_per_second() as u32
}

fn kilobytes(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.unwrap_or(0)
}

/// The memory of a process without its program, whose pages are loaded as they are used, bytes.
pub fn anonymous(pid: u32) -> u64 {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(path).expect("smaps_rollup");
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    1024 * kilobytes.expect("Pss_Anon")
}

/// Waits until the memory of process `pid` has grown by at most `most` bytes for each of `count` since it was `before`.
#[track_caller]
pub fn expect_growth(pid: u32, before: u64, count: u64, most: u64, what: &str) {
    let each = || anonymous(pid).saturating_sub(before) / count;
    crate::wait_until(&format!("{what}: at most {most} bytes each"), || {
        each() <= most
    });
    eprintln!("{what}: {} bytes", each());
}

/// The newest program whose path begins with this and ends in a version, as Debian names them.
pub fn newest(folder: &str, prefix: &str) -> PathBuf {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .expect(folder)
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix(prefix));
            rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| {
        panic!("{folder}/{prefix}* is missing; setup/install.sh test installs it")
    })
}

struct Stat {
    name: String,
    state: char,
    parent: u32,
    /// Processor time, in the kernel and in user mode.
    ticks: u64,
    started: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    stat_at(&format!("/proc/{pid}/stat"))
}

/// proc(5), /proc/PID/stat: the name is in parentheses and may contain any character.
fn stat_at(path: &str) -> Option<Stat> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let fields: Vec<&str> = text[close + 1..].split_whitespace().collect();
    Some(Stat {
        name: text[open + 1..close].to_owned(),
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        ticks: fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}
