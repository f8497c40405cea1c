//! CPU time.

use std::{
    fs::{self, File},
    mem::MaybeUninit,
    os::unix::fs::FileExt,
    sync::OnceLock,
    time::Duration,
};

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

/// On how many processors another process may run; `None`: its status cannot be read.
pub fn allowed(pid: u32) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed:"))?;
    let bits = mask.chars().filter_map(|digit| digit.to_digit(16));
    Some(bits.map(|digit| digit.count_ones() as usize).sum())
}

/// How a process was scheduled since its start, as its first thread saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheduled {
    /// Time on a processor.
    pub ran: Duration,
    /// Time in which it wanted a processor and had none. The present wait does not count until it is over.
    pub delayed: Duration,
    /// How often it was given a processor.
    pub turns: u64,
}

/// How another process was scheduled; `None`: there is no such process, or /proc does not tell.
pub fn scheduled(pid: u32) -> Option<Scheduled> {
    schedule(&fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?)
}

/// `ran delayed turns` (Documentation/scheduler/sched-stats.rst), in nanoseconds. All are 0 if the kernel does not count.
fn schedule(text: &str) -> Option<Scheduled> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    let (ran, delayed, turns) = (next()?, next()?, next()?);
    (turns > 0 && ran > 0).then(|| Scheduled {
        ran: Duration::from_nanos(ran),
        delayed: Duration::from_nanos(delayed),
        turns,
    })
}

/// Whether a process runs or wants to run (proc_pid_stat(5)). `false` if /proc does not tell.
pub fn is_runnable(pid: u32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program's name may contain any character. The state follows after the name.
    let name_end = stat.iter().rposition(|byte| *byte == b')');
    name_end.is_some_and(|end| stat[end..].starts_with(b") R"))
}

/// Makes [`of_machine`] and [`runnable`] work after this process enters a chroot without /proc.
pub fn keep_machine_open() {
    STAT.get_or_init(|| File::open("/proc/stat").ok());
    LOAD.get_or_init(|| File::open("/proc/loadavg").ok());
}

/// Time of all processors since the machine was started, in the kernel's units (proc_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineTime {
    /// All of it.
    pub all: u64,
    /// In which they had nothing to do.
    pub idle: u64,
    /// Time that the hypervisor gave to other machines.
    pub stolen: u64,
}

/// The time of all processors; `None`: it cannot be read.
pub fn of_machine() -> Option<MachineTime> {
    keep_machine_open();
    let mut line = [0; 256];
    times(read_start(&STAT, &mut line)?)
}

/// How many threads of the machine run or want to run, the caller among them (proc_loadavg(5)).
pub fn runnable() -> Option<u32> {
    keep_machine_open();
    let mut line = [0; 256];
    let fields = read_start(&LOAD, &mut line)?;
    let (running, _) = fields.split_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

fn read_start<'a>(file: &OnceLock<Option<File>>, line: &'a mut [u8]) -> Option<&'a str> {
    let length = file.get()?.as_ref()?.read_at(line, 0).ok()?;
    str::from_utf8(&line[..length]).ok()
}

/// The first line: `cpu  user nice system idle iowait irq softirq steal …`.
fn times(text: &str) -> Option<MachineTime> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = line
        .split_whitespace()
        .take(8)
        .map_while(|number| number.parse().ok())
        .collect();
    let field = |index: usize| times.get(index).copied();
    Some(MachineTime {
        all: times.iter().sum(),
        idle: field(3)?.saturating_add(field(4).unwrap_or(0)),
        stolen: field(7).unwrap_or(0),
    })
}

static STAT: OnceLock<Option<File>> = OnceLock::new();
static LOAD: OnceLock<Option<File>> = OnceLock::new();

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
        let machine = of_machine().unwrap();
        assert!(machine.all > 0 && machine.stolen + machine.idle <= machine.all);
        assert!(runnable().unwrap() >= 1);
        let text = "cpu  10 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3";
        let expected = MachineTime {
            all: 531,
            idle: 450,
            stolen: 8,
        };
        assert_eq!(times(text), Some(expected));
        assert_eq!(times("cpu0 1 2 3 4"), None);
    }

    #[test]
    fn how_a_process_was_scheduled_is_known_where_the_kernel_counts() {
        let known = Scheduled {
            ran: Duration::from_micros(7),
            delayed: Duration::from_nanos(9),
            turns: 3,
        };
        assert_eq!(schedule("7000 9 3\n"), Some(known));
        for unknown in ["0 0 0\n", "", "7 9", "a b c", "-1 0 3"] {
            assert_eq!(schedule(unknown), None, "{unknown:?}");
        }
        assert_eq!(scheduled(u32::MAX), None);
        assert!(!is_runnable(u32::MAX));
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
