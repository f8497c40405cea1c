//! The environment that defaults depend on.

use std::path::{Path, PathBuf};

/// The properties of the machine that defaults depend on. The caller passes them in, so a text has the same meaning
/// wherever the environment is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Folder of the configuration file, absolute. Relative paths are relative to it.
    pub folder: PathBuf,
    /// Number of usable cores.
    pub cores: usize,
    /// Usable memory, bytes.
    pub memory: u64,
    /// Maximum number of open files (the hard limit).
    pub open_files: u64,
}

impl Environment {
    /// The environment of this machine: cores, memory (or the limit of the control group, if lower) and limits, from
    /// /proc and /sys.
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

    /// Default number of workers of a pool: four per core, because scripts wait for databases more than they compute.
    /// At least 4, and at most as many as fit into half of the memory at 64 MiB each.
    pub fn default_workers(&self) -> usize {
        let by_cores = self.cores.saturating_mul(4).max(4);
        let by_memory = usize::try_from(self.memory / 2 / (64 << 20)).unwrap_or(usize::MAX);
        by_cores.min(by_memory).clamp(1, 256)
    }

    /// Default maximum number of workers with `pm = "auto"`: as many as fit into three quarters of the memory at 16
    /// MiB each. At run time weir measures the real memory of a worker and limits the number further.
    pub fn most_workers(&self) -> usize {
        let by_memory = usize::try_from(self.memory / 4 * 3 / (16 << 20)).unwrap_or(usize::MAX);
        by_memory.clamp(self.default_workers(), 1000)
    }

    /// Default maximum of client connections: two fifths of the open files, because each connection may use a file or
    /// a temporary file in addition to its socket, and workers and logs need some too.
    pub(crate) fn default_max_connections(&self) -> usize {
        let by_files = usize::try_from(self.open_files / 5 * 2).unwrap_or(usize::MAX);
        by_files.clamp(1, 20_000)
    }

    /// Default maximum of connections of one address. One address must not take all connections, but a proxy in front
    /// or a large NAT must not notice the limit.
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
