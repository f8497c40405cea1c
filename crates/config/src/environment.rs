//! What defaults depend on besides the text.

use std::path::{Path, PathBuf};

/// The machine, as far as defaults depend on it. Given by the caller, so that a text means the same wherever the
/// same environment is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// The configuration file's folder, absolute: relative paths are relative to it.
    pub folder: PathBuf,
    /// Cores that may be used.
    pub cores: usize,
    /// Memory that may be used, bytes.
    pub memory: u64,
    /// Files that may be open (the hard limit).
    pub open_files: u64,
}

impl Environment {
    /// This machine: cores, memory (of the control group, where that is less) and limits, from /proc and /sys.
    pub fn of_this_machine(folder: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let total = memory_total(&read("/proc/meminfo"));
        let group = read("/sys/fs/cgroup/memory.max").trim().parse().ok();
        Self {
            folder: std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: group.map_or(total, |group: u64| group.min(total)),
            open_files: open_files(&read("/proc/self/limits")),
        }
    }

    /// Workers of a pool that does not say how many: four per core, since scripts wait for databases more than
    /// they compute; at least 4; and no more than fit half the memory at 64 MiB each.
    pub fn default_workers(&self) -> usize {
        let by_cores = self.cores.saturating_mul(4).max(4);
        let by_memory = usize::try_from(self.memory / 2 / (64 << 20)).unwrap_or(usize::MAX);
        by_cores.min(by_memory).clamp(1, 256)
    }

    /// Workers that `pm = "auto"` may come to where nothing else is said: as many as fit three quarters of the memory
    /// at 16 MiB each. What a worker really costs is measured then, and limits them further.
    pub fn most_workers(&self) -> usize {
        let by_memory = usize::try_from(self.memory / 4 * 3 / (16 << 20)).unwrap_or(usize::MAX);
        by_memory.clamp(self.default_workers(), 1000)
    }

    /// Client connections of a server that does not say how many: two fifths of the open files, since each may
    /// have a file or a temporary file beside its socket, and workers and logs need some too.
    pub(crate) fn default_max_connections(&self) -> usize {
        let by_files = usize::try_from(self.open_files / 5 * 2).unwrap_or(usize::MAX);
        by_files.clamp(1, 20_000)
    }

    /// Of these, those that one address may have: it is not to take all of them, and a proxy in front, or a large household,
    /// is not to notice.
    pub(crate) fn default_max_per_address(max_connections: usize) -> usize {
        (max_connections / 4 * 3).max(256)
    }
}

fn memory_total(meminfo: &str) -> u64 {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map_or(1 << 30, |kibibytes| kibibytes << 10)
}

fn open_files(limits: &str) -> u64 {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    match line.and_then(|line| line.split_whitespace().nth(1)) {
        Some("unlimited") => 1 << 20,
        hard => hard.and_then(|hard| hard.parse().ok()).unwrap_or(1024),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        assert_eq!(
            memory_total("MemTotal:       24617180 kB\nMemFree: 1 kB\n"),
            24_617_180 << 10
        );
        assert_eq!(memory_total(""), 1 << 30);
        let line = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(open_files(line), 524_288);
        assert_eq!(
            open_files("Max open files  1024  unlimited  files"),
            1 << 20
        );
        assert_eq!(open_files(""), 1024);
    }

    #[test]
    fn small_machines_get_fewer_workers() {
        let machine = |cores, memory| Environment {
            folder: "/".into(),
            cores,
            memory,
            open_files: 1024,
        };
        assert_eq!(machine(2, 24 << 30).default_workers(), 8);
        assert_eq!(machine(1, 256 << 20).default_workers(), 2);
        assert_eq!(machine(1, 0).default_workers(), 1);
        assert_eq!(machine(2, 1 << 30).default_max_connections(), 408);
    }
}
