//! Limits of the kernel: open files, priority, the accept queue.

use std::io;

use rustix::{
    process::{
        Pid, Resource, Rlimit, getpriority_process, getrlimit, prlimit, setpriority_process,
        setrlimit,
    },
    thread::CapabilitySet,
};

/// The limits of open files of a process: the effective one, and how far the process may raise it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// Effective; `u64::MAX`: no limit.
    pub soft: u64,
    /// The maximum of `soft`; `u64::MAX`: no limit.
    pub hard: u64,
}

/// Our limit of open files (`RLIMIT_NOFILE`).
pub fn open_files() -> OpenFiles {
    let limit = getrlimit(Resource::Nofile);
    OpenFiles {
        soft: limit.current.unwrap_or(u64::MAX),
        hard: limit.maximum.unwrap_or(u64::MAX),
    }
}

/// Whether we may give a process this limit of open files: everybody may up to their own hard limit, root up to the
/// kernel's limit (`fs.nr_open`).
pub fn may_set_open_files(limit: u64) -> bool {
    limit <= open_files().hard || (may_raise_limits() && limit <= most_open_files())
}

/// Our own nice value.
///
/// # Errors
/// As getpriority(2).
pub fn priority() -> io::Result<i32> {
    Ok(getpriority_process(None)?)
}

/// Sets the nice value of a process that still has a single thread: -20 (highest priority) to 19 (lowest).
///
/// # Errors
/// As setpriority(2): `PermissionDenied` without the permission to raise the priority.
pub fn set_priority(pid: u32, nice: i32) -> io::Result<()> {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap_or(0)).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(setpriority_process(Some(pid), nice)?)
}

/// Whether we may give ourselves this nice value: everybody may lower the priority, or raise it as far as `RLIMIT_NICE` allows;
/// with `CAP_SYS_NICE` to any value (setpriority(2)).
pub fn may_set_priority(nice: i32) -> bool {
    getpriority_process(None).is_ok_and(|own| nice >= own)
        || lowest_nice(getrlimit(Resource::Nice).current) <= nice
        || rustix::thread::capabilities(None)
            .is_ok_and(|ours| ours.effective.contains(CapabilitySet::SYS_NICE))
}

/// This process and those that it starts cannot raise their priority any more, unless they have `CAP_SYS_NICE`. A service manager may
/// have allowed it.
///
/// # Errors
/// As setrlimit(2).
pub fn keep_priority() -> io::Result<()> {
    let nice = getpriority_process(None)?;
    if lowest_nice(getrlimit(Resource::Nice).maximum) >= nice {
        return Ok(());
    }
    let kept = u64::try_from(20 - nice).ok();
    let kept = Rlimit {
        current: kept,
        maximum: kept,
    };
    Ok(setrlimit(Resource::Nice, kept)?)
}

/// What a value of `RLIMIT_NICE` allows; `None`: no limit.
fn lowest_nice(limit: Option<u64>) -> i32 {
    limit.map_or(-20, |limit| 20 - i32::try_from(limit.min(40)).unwrap_or(40))
}

/// Whether we may raise hard limits (`CAP_SYS_RESOURCE`).
pub fn may_raise_limits() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|ours| ours.effective.contains(CapabilitySet::SYS_RESOURCE))
}

fn most_open_files() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/fs/nr_open");
    let most = text.ok().and_then(|text| text.trim().parse().ok());
    most.unwrap_or(u64::MAX)
}

/// Raises our limit of open files as far as possible, and returns the previous limits.
///
/// # Errors
/// As setrlimit(2).
pub fn raise_open_files() -> io::Result<OpenFiles> {
    let before = open_files();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(before)
}

/// Sets the limits of open files of a process; `None`: ours. Async-signal-safe.
///
/// # Errors
/// As prlimit(2): ESRCH if there is no such process.
pub fn set_open_files(of: Option<u32>, limits: OpenFiles) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(limits.soft),
        maximum: Some(limits.hard),
    };
    set(of, Resource::Nofile, limit)?;
    Ok(())
}

/// Sets the limit of core files of a process, `None`: ours; `u64::MAX`: no limit. Everybody may lower the limit; only root may
/// exceed our hard limit, others get the hard limit. Async-signal-safe.
///
/// # Errors
/// As [`set_open_files`].
pub fn set_core_size(of: Option<u32>, size: u64) -> io::Result<()> {
    let most = getrlimit(Resource::Core).maximum.unwrap_or(u64::MAX);
    let limit = |current: u64, maximum: u64| {
        let some = |size: u64| (size != u64::MAX).then_some(size);
        let (current, maximum) = (some(current), some(maximum));
        set(of, Resource::Core, Rlimit { current, maximum })
    };
    match limit(size, most.max(size)) {
        Err(rustix::io::Errno::PERM) => Ok(limit(size.min(most), most)?),
        result => Ok(result?),
    }
}

/// Sets the limit of processes and threads of a process's user; `None`: ours. Only root may exceed the hard limit, others keep
/// theirs. Async-signal-safe.
///
/// # Errors
/// As [`set_open_files`].
pub fn set_processes(of: Option<u32>, count: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(count),
        maximum: Some(count),
    };
    match set(of, Resource::Nproc, limit) {
        Err(rustix::io::Errno::PERM) => Ok(()),
        result => Ok(result?),
    }
}

fn set(of: Option<u32>, resource: Resource, limit: Rlimit) -> rustix::io::Result<()> {
    let Some(pid) = of else {
        return setrlimit(resource, limit);
    };
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    prlimit(Some(pid.ok_or(rustix::io::Errno::SRCH)?), resource, limit).map(|_| ())
}

/// The kernel's maximum for accept queues (`net.core.somaxconn`); `None` if it is not known.
pub fn somaxconn() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/net/core/somaxconn")
        .ok()?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_rises_to_the_hard_one() {
        let before = raise_open_files().unwrap();
        let now = open_files();
        assert_eq!(now.soft, now.hard);
        assert!(now.soft >= before.soft && now.hard == before.hard);
    }

    #[test]
    fn the_kernel_says_its_longest_accept_queue() {
        assert!(somaxconn().unwrap() > 0);
    }
}
