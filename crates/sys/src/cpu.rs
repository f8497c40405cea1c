//! CPU time.

use std::{fs::File, mem::MaybeUninit, os::unix::fs::FileExt, sync::OnceLock, time::Duration};

/// CPU time (user and system) that the calling thread has used.
pub fn of_thread() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

/// CPU time (user and system) that all threads of another process have used; `None`: there is no such process. It
/// needs no privileges and no file system (clock_getcpuclockid(3)).
pub fn of(pid: u32) -> Option<Duration> {
    /// `CPUCLOCK_SCHED` of Linux: the time of a process, exactly.
    const SCHED: libc::clockid_t = 2;
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
    read((!pid << 3) | SCHED)
}

/// Makes [`of_machine`] work after this process enters a chroot without /proc.
pub fn keep_machine_open() {
    STAT.get_or_init(|| File::open("/proc/stat").ok());
}

/// Time of all processors since the machine was started, and their idle time, in the kernel's units (proc_stat(5));
/// `None`: it cannot be read.
pub fn of_machine() -> Option<(u64, u64)> {
    keep_machine_open();
    let file = STAT.get()?.as_ref()?;
    let mut line = [0; 256];
    let length = file.read_at(&mut line, 0).ok()?;
    times(str::from_utf8(&line[..length]).ok()?)
}

/// The first line: `cpu  user nice system idle iowait irq softirq steal …`.
fn times(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = line
        .split_whitespace()
        .take(8)
        .map_while(|number| number.parse().ok())
        .collect();
    let idle = times.get(3)? + times.get(4).unwrap_or(&0);
    Some((times.iter().sum(), idle))
}

static STAT: OnceLock<Option<File>> = OnceLock::new();

/// Through the C library: callgrind cannot follow rustix's own search for the kernel's function.
fn read(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is room for one timespec, which the call writes in full where it returns 0.
    let time = unsafe {
        match libc::clock_gettime(clock, time.as_mut_ptr()) {
            0 => time.assume_init(),
            _ => return None,
        }
    };
    Some(Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_process() -> Duration {
        of(std::process::id()).unwrap_or_default()
    }

    #[test]
    fn another_process_and_the_machine_are_counted_too() {
        let own = of(std::process::id()).unwrap();
        assert!(own <= of_process() && of_process() - own < Duration::from_secs(5));
        assert_eq!(of(u32::MAX), None);
        assert_eq!(of(0), None);
        let (all, idle) = of_machine().unwrap();
        assert!(all > 0 && idle <= all);
        let text = "cpu  10 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3";
        assert_eq!(times(text), Some((531, 450)));
        assert_eq!(times("cpu0 1 2 3 4"), None);
    }

    #[test]
    fn work_is_counted() {
        let (process, thread) = (of_process(), of_thread());
        let mut sum = 0_u64;
        while of_thread() - thread < Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(of_process() - process >= Duration::from_millis(2));
    }
}
