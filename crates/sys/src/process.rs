//! Starts child processes with explicit settings only, ends them, and waits for them.

mod group;
mod reap;

use std::{
    ffi::{CString, OsString},
    fmt,
    io::{self, Read},
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    io::Errno,
    process::{self, Pid},
};

pub use group::{has_group, kill, terminate};
pub use reap::reap;

use crate::{
    daemon,
    identity::{self, Capability, Identity, checked, set_ids},
    limits::{self, OpenFiles},
    memory, signal,
};

/// A process to start. It inherits only the three given descriptors, leads its own session, has default actions for
/// all signals, and is killed when the thread that starts it ends (unless `outlives_us`).
#[derive(Debug)]
pub struct Spawn {
    /// Path of the program. PATH is not searched.
    pub program: PathBuf,
    /// `argv[0]`. `None`: the path.
    pub name: Option<OsString>,
    /// Arguments after the program's name.
    pub arguments: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// User and groups of the process. `None`: ours.
    pub identity: Option<Identity>,
    /// Root folder (chroot), set before the change of user. `program` and `folder` are paths inside of it.
    pub chroot: Option<PathBuf>,
    /// What survives the change of user and the exec (as ambient capabilities, capabilities(7)), until the program gives it up.
    pub keeps: Capability,
    /// Working folder; the new user must be able to enter it. `None`: ours.
    pub folder: Option<PathBuf>,
    /// Limit of open files. `None`: ours.
    pub open_files: Option<OpenFiles>,
    /// Maximum size of a core file in bytes, `u64::MAX`: no limit (`RLIMIT_CORE`). `None`: ours.
    pub core_size: Option<u64>,
    /// Maximum number of processes and threads of its user, if that is not root (`RLIMIT_NPROC`). `None`: ours.
    pub processes: Option<u64>,
    /// Nice value, -20 (highest priority) to 19 (lowest). `None`: ours.
    pub priority: Option<i32>,
    /// Allow huge pages, regardless of our own setting ([`crate::memory::use_huge_pages`]).
    pub huge_pages: bool,
    /// The child goes on when the thread that starts it ends.
    pub outlives_us: bool,
    /// Its descriptor 0.
    pub stdin: OwnedFd,
    /// Its descriptor 1.
    pub stdout: OwnedFd,
    /// Its descriptor 2.
    pub stderr: OwnedFd,
}

/// Why a process could not be started.
#[derive(Debug)]
pub struct SpawnError {
    /// The step that failed.
    pub step: Step,
    /// The kernel's error.
    pub error: io::Error,
}

/// The steps of a new process before it executes the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Creating the process.
    Fork = 0,
    /// Signals and session.
    Session,
    /// The limit of open files.
    OpenFiles,
    /// The maximum size of a core file.
    CoreSize,
    /// The maximum number of processes.
    Processes,
    /// The nice value.
    Priority,
    /// Changing the root folder.
    Chroot,
    /// User and groups.
    Identity,
    /// Keeping permitted capabilities.
    Capability,
    /// The working folder.
    Folder,
    /// The signal at the parent's death.
    ParentDeath,
    /// Closing other descriptors at exec.
    Descriptors,
    /// Executing the program.
    Execute,
}

/// How a process exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Spawn {
    /// A process with these descriptors and without arguments, environment or limits of its own. It keeps our user and
    /// folders.
    pub fn new(
        program: impl Into<PathBuf>,
        stdin: OwnedFd,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) -> Self {
        Self {
            program: program.into(),
            name: None,
            arguments: Vec::new(),
            environment: Vec::new(),
            identity: None,
            chroot: None,
            keeps: Capability::None,
            folder: None,
            open_files: None,
            core_size: None,
            processes: None,
            priority: None,
            huge_pages: false,
            outlives_us: false,
            stdin,
            stdout,
            stderr,
        }
    }

    /// Starts the process and returns its process id.
    ///
    /// # Errors
    /// The step that failed. No process is left running then.
    pub fn start(self) -> Result<u32, SpawnError> {
        let fork_error = |error| SpawnError {
            step: Step::Fork,
            error,
        };
        let (failed_step, tell_step) = std::io::pipe().map_err(fork_error)?;
        let mut command = Command::new(&self.program);
        if let Some(name) = &self.name {
            command.arg0(name);
        }
        command
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment)
            .stdin(Stdio::from(self.stdin))
            .stdout(Stdio::from(self.stdout))
            .stderr(Stdio::from(self.stderr));
        let c_path = |path: Option<PathBuf>| {
            let path = path.map(|path| CString::new(path.into_os_string().into_encoded_bytes()));
            path.transpose()
                .map_err(|_| fork_error(io::ErrorKind::InvalidInput.into()))
        };
        let child = Child {
            identity: self.identity,
            chroot: c_path(self.chroot)?,
            keeps: self.keeps,
            folder: c_path(self.folder)?,
            open_files: self.open_files,
            core_size: self.core_size,
            processes: self.processes,
            priority: self.priority,
            huge_pages: self.huge_pages,
            outlives_us: self.outlives_us,
            parent: process::getpid(),
            tell_step: tell_step.as_raw_fd(),
        };
        // SAFETY: `prepare` runs between fork and exec of a process that may have several threads: it only makes
        // system calls on values made before the fork, allocates nothing and takes no lock.
        unsafe { command.pre_exec(move || child.prepare()) };
        let spawned = command.spawn();
        drop(command);
        drop(tell_step);
        match spawned {
            // The handle can be dropped: `reap` waits for children.
            Ok(child) => Ok(child.id()),
            Err(error) => {
                let mut step = [Step::Fork as u8];
                let step = match (&failed_step).read(&mut step) {
                    Ok(1) => Step::from_number(step[0]),
                    // The fork failed, or the child got as far as exec.
                    _ if error.raw_os_error() == Some(libc::EAGAIN) => Step::Fork,
                    _ => Step::Execute,
                };
                Err(SpawnError { step, error })
            }
        }
    }
}

/// The unit of processor time in /proc: ticks per second (proc_pid_stat(5)).
pub fn clock_ticks() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

/// Tells a process to read its configuration again (`SIGHUP`).
///
/// # Errors
/// As kill(2).
pub fn hang_up(pid: u32) -> io::Result<()> {
    let pid = process_id(pid).ok_or(Errno::SRCH)?;
    Ok(process::kill_process(pid, process::Signal::HUP)?)
}

/// Sends a signal to a process. It is not an error if the process is gone.
///
/// # Errors
/// As kill(2).
pub fn send_signal(pid: u32, signal: signal::Signal) -> io::Result<()> {
    let pid = process_id(pid).ok_or(Errno::SRCH)?;
    let signal = process::Signal::from_named_raw(signal.number()).ok_or(Errno::INVAL)?;
    unless_gone(process::kill_process(pid, signal))
}

/// Makes this process the new parent of processes below it whose parents end, as process 1 is for all others
/// (`PR_SET_CHILD_SUBREAPER`).
///
/// # Errors
/// As prctl(2).
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: sets a flag of this process.
    checked(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })
}

/// Takes ownership of `count` descriptors from number 3 on, which a service manager has opened for this process
/// (sd_listen_fds(3)). They become close-on-exec. Those that are not open are left out. Call it once, before anything else is
/// opened: later calls return nothing.
pub fn take_listen_fds(count: u32) -> Vec<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let take = |number: RawFd| {
        // SAFETY: only checks whether the number is open. The result is closed below or returned.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).ok()?;
        // SAFETY: the descriptor is open, and nobody in this process owns it: it was open when the program began, and
        // this function runs once, before any other file is opened.
        Some(unsafe { OwnedFd::from_raw_fd(number) })
    };
    let count = RawFd::try_from(count).unwrap_or(0);
    (3..3 + count).filter_map(take).collect()
}

/// Continues a process that was stopped (`SIGSTOP`). It has no effect on other processes. It is not an error if the
/// process is gone.
///
/// # Errors
/// As kill(2).
pub fn wake(pid: u32) -> io::Result<()> {
    let woken = process_id(pid).map(|pid| process::kill_process(pid, process::Signal::CONT));
    unless_gone(woken.unwrap_or(Ok(())))
}

/// Asks the kernel to kill this process when the thread that started it ends. A change of user cancels this, so call
/// it after one. `false`: `parent` has already ended.
///
/// # Errors
/// As prctl(2).
pub fn end_with_parent(parent: u32) -> io::Result<bool> {
    process::set_parent_process_death_signal(Some(process::Signal::KILL))?;
    Ok(self::parent() == parent)
}

/// Process id of our parent. 0 if it is in another namespace.
pub fn parent() -> u32 {
    process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs())
}

/// The parent of a process (proc_pid_stat(5)). 0 if it is in another namespace.
///
/// # Errors
/// As open(2): `NotFound` if the process has ended. `InvalidData` if the file has another format.
pub fn parent_of(pid: u32) -> io::Result<u32> {
    stat_field(pid, PARENT)
}

/// Whether it is a child of this process that was not waited for ([`reap`]): its number cannot be another's then.
pub fn is_child(pid: u32) -> bool {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: all zeros is a valid siginfo_t: a structure of numbers.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes to `info` only.
    pid > 0 && unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, options) } == 0
}

/// Whether a process has begun to end, or is gone. It has no open files any more a moment later, so a caller that saw
/// its connections close gets `true`. `false` if /proc does not tell.
pub fn is_ending(pid: u32) -> bool {
    match stat_field(pid, FLAGS) {
        Ok(flags) => flags & PF_EXITING != 0,
        // ESRCH: it ended between open(2) and read(2).
        Err(error) => {
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
        }
    }
}

/// A number of a process (proc_pid_stat(5)), by its place after the name.
fn stat_field(pid: u32, place: usize) -> io::Result<u32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat"))?;
    // The process name is in parentheses and may itself contain parentheses.
    let behind = stat.iter().rposition(|byte| *byte == b')');
    let fields = behind.and_then(|at| str::from_utf8(&stat[at + 1..]).ok());
    let mut fields = fields.unwrap_or_default().split_ascii_whitespace();
    let field = fields.nth(place).and_then(|field| field.parse().ok());
    field.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Places of the parent and the kernel's flags, after the name.
const PARENT: usize = 1;
const FLAGS: usize = 6;

/// The flag of a process that ends (include/linux/sched.h).
const PF_EXITING: u32 = 4;

/// The process itself or the nearest above it that `is_one`, at most [`GENERATIONS`] steps up: what a worker has started
/// belongs to it.
pub fn nearest(pid: u32, is_one: impl Fn(u32) -> bool) -> Option<u32> {
    let mut pid = pid;
    for _ in 0..=GENERATIONS {
        if is_one(pid) {
            return Some(pid);
        }
        pid = parent_of(pid).ok().filter(|parent| *parent > 1)?;
    }
    None
}

const GENERATIONS: usize = 4;

/// Sets our name in process lists, cut to 15 bytes. The name of an executed /proc/self/exe would be "exe".
///
/// # Errors
/// As prctl(2).
pub fn set_name(name: &std::ffi::CStr) -> io::Result<()> {
    // SAFETY: reads at most 16 bytes of a C string, up to its end.
    checked(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) })
}

/// Whether this program was started with this argument and no other.
pub fn has_role(role: &str) -> bool {
    std::env::args_os().skip(1).eq([role])
}

/// Takes ownership of a descriptor that we were started with, by number, and puts /dev/null at that number (0 to 2).
/// The returned descriptor is close-on-exec.
///
/// # Errors
/// `EBADF` if it is not open.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    if !(0..=2).contains(&number) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: 0 to 2 are never closed by safe code, only replaced, as here; dup fails where it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let taken = rustix::io::fcntl_dupfd_cloexec(borrowed, 3)?;
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    daemon::set_standard(number, &null)?;
    Ok(taken)
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => f.write_str(&signal::name(number)),
        }
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, step) = STEPS[self.step as usize];
        write!(f, "{step}: {}", self.error)
    }
}

impl core::error::Error for SpawnError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// What the child needs between fork and exec.
struct Child {
    identity: Option<Identity>,
    chroot: Option<CString>,
    keeps: Capability,
    folder: Option<CString>,
    open_files: Option<OpenFiles>,
    core_size: Option<u64>,
    processes: Option<u64>,
    priority: Option<i32>,
    huge_pages: bool,
    outlives_us: bool,
    parent: Pid,
    tell_step: RawFd,
}

impl Child {
    fn prepare(&self) -> io::Result<()> {
        let mut step = Step::Session;
        self.steps(&mut step).inspect_err(|_| {
            // SAFETY: writes one byte of a live array. The pipe's descriptor is open in the child.
            unsafe { libc::write(self.tell_step, [step as u8].as_ptr().cast(), 1) };
        })
    }

    fn steps(&self, step: &mut Step) -> io::Result<()> {
        signal::reset_all()?;
        process::setsid()?;
        if self.huge_pages {
            memory::use_huge_pages();
        }
        if let Some(limit) = self.open_files {
            *step = Step::OpenFiles;
            limits::set_open_files(None, limit)?;
        }
        if let Some(size) = self.core_size {
            *step = Step::CoreSize;
            limits::set_core_size(None, size)?;
        }
        if let Some(count) = self.processes {
            *step = Step::Processes;
            limits::set_processes(None, count)?;
        }
        // An ordinary user may not raise the priority, so this comes before the change of user.
        if let Some(nice) = self.priority {
            *step = Step::Priority;
            process::setpriority_process(None, nice)?;
        }
        // One that takes our place has to have our rights.
        if !self.outlives_us {
            *step = Step::Priority;
            limits::keep_priority()?;
        }
        if let Some(folder) = &self.chroot {
            *step = Step::Chroot;
            process::chroot(folder.as_c_str())?;
            process::chdir(c"/")?;
        }
        if self.keeps != Capability::None {
            *step = Step::Capability;
            identity::keep_capabilities()?;
        }
        if let Some(identity) = &self.identity {
            *step = Step::Identity;
            set_ids(identity)?;
        }
        if self.keeps != Capability::None {
            *step = Step::Capability;
            identity::leave_only(self.keeps)?;
        }
        // After the change of user: the program's user may lack permission for a folder that root can enter.
        if let Some(folder) = &self.folder {
            *step = Step::Folder;
            process::chdir(folder.as_c_str())?;
        }
        // A change of user resets this, so set it after that.
        *step = Step::ParentDeath;
        if !self.outlives_us {
            process::set_parent_process_death_signal(Some(process::Signal::KILL))?;
            if process::getppid() != Some(self.parent) {
                return Err(Errno::SRCH.into());
            }
        }
        *step = Step::Descriptors;
        close_from_on_exec(3)
    }
}

impl Step {
    fn from_number(number: u8) -> Self {
        STEPS
            .get(usize::from(number))
            .map_or(Self::Execute, |(step, _)| *step)
    }
}

/// The steps in their order, and what each does.
const STEPS: [(Step, &str); 13] = [
    (Step::Fork, "making a process"),
    (Step::Session, "starting a session of its own"),
    (Step::OpenFiles, "setting the limit of open files"),
    (Step::CoreSize, "setting the limit of core files"),
    (Step::Processes, "setting the limit of processes"),
    (Step::Priority, "setting its priority"),
    (Step::Chroot, "changing its root folder"),
    (Step::Identity, "becoming its user and group"),
    (
        Step::Capability,
        "keeping the capabilities that it needs at its start",
    ),
    (Step::Folder, "going to its working folder"),
    (
        Step::ParentDeath,
        "asking the kernel to end it with its parent",
    ),
    (Step::Descriptors, "closing files that are not its own"),
    (Step::Execute, "executing it"),
];

/// Sets close-on-exec for all descriptors from `first` on. Async-signal-safe.
fn close_from_on_exec(first: u32) -> io::Result<()> {
    // SAFETY: sets flags of descriptors only. Not every C library has the function, every kernel since 5.11 the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // An old kernel or a sandbox. All of our own descriptors are close-on-exec anyway. This loop closes descriptors
    // with which weir was started. They have low numbers.
    if !matches!(
        error.raw_os_error(),
        Some(libc::ENOSYS | libc::EINVAL | libc::EPERM)
    ) {
        return Err(error);
    }
    for number in first..1024 {
        // SAFETY: sets a flag of a descriptor. The call fails if it is not open.
        unsafe { libc::fcntl(number as RawFd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

fn process_id(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// A process that is gone is no error.
fn unless_gone(signalled: Result<(), Errno>) -> io::Result<()> {
    match signalled {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write,
        sync::Mutex,
        time::{Duration, Instant},
    };

    /// `reap` returns any child that has exited, so only one test may have children at a time.
    static CHILDREN: Mutex<()> = Mutex::new(());

    fn shell(script: &str) -> (Spawn, io::PipeReader) {
        let (out, stdout) = io::pipe().unwrap();
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let spawn = Spawn {
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("ONLY".into(), "this".into())],
            ..Spawn::new("/bin/sh", null(), stdout.into(), null())
        };
        (spawn, out)
    }

    fn output(mut out: io::PipeReader) -> String {
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        text
    }

    fn wait_for(pid: u32) -> Exit {
        let start = Instant::now();
        loop {
            match reap(|_| ()).unwrap() {
                Some((ended, exit)) if ended == pid => return exit,
                _ => assert!(start.elapsed() < Duration::from_secs(30), "it never ended"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_signal_for_a_group_that_is_gone_reaches_no_process_with_its_number() {
        let _one = CHILDREN.lock();
        // The process is in our process group, and leads no group.
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        kill(other.id()).unwrap();
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        let mut told = None;
        while told.is_none() {
            told = reap(|pid| assert!(parent_of(pid).is_ok(), "it is still there")).unwrap();
        }
        assert_eq!(told, Some((other.id(), Exit::Signal(libc::SIGKILL))));
    }

    #[test]
    fn a_child_has_its_folder_environment_limit_and_exit_code() {
        let _one = CHILDREN.lock();
        let (mut spawn, out) = shell("pwd; echo $ONLY $HOME; ulimit -n; ulimit -c; nice; exit 3");
        spawn.folder = Some("/usr".into());
        spawn.open_files = Some(OpenFiles { soft: 77, hard: 99 });
        spawn.core_size = Some(0);
        spawn.priority = Some(7);
        let pid = spawn.start().unwrap();
        assert_eq!(output(out), "/usr\nthis\n77\n0\n7\n");
        assert_eq!(wait_for(pid), Exit::Code(3));
    }

    #[test]
    fn a_process_that_ends_is_known_before_it_is_reaped() {
        let _one = CHILDREN.lock();
        let (spawn, out) = shell("sleep 60");
        let pid = spawn.start().unwrap();
        assert!(!is_ending(pid) && !is_ending(std::process::id()));
        kill(pid).unwrap();
        // The program's output ends when its files are closed.
        assert_eq!(output(out), "");
        assert!(is_ending(pid));
        assert_eq!(wait_for(pid), Exit::Signal(9));
        assert!(is_ending(pid));
    }

    #[test]
    fn a_child_inherits_no_other_descriptor_and_leads_its_session() {
        let _one = CHILDREN.lock();
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: clears a flag of a descriptor that is ours, so that it would be inherited.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        // The command is no pipeline, because the shell would keep the pipe open for a moment.
        let (spawn, out) = shell("ls /proc/$$/fd; cut -d' ' -f1,5,6 /proc/$$/stat");
        let pid = spawn.start().unwrap();
        let text = output(out);
        assert_eq!(text.trim_end(), format!("0\n1\n2\n{pid} {pid} {pid}"));
        assert_eq!(wait_for(pid), Exit::Code(0));
    }

    #[test]
    fn a_killed_child_is_told_with_its_signal_and_its_group_dies_too() {
        let _one = CHILDREN.lock();
        let (spawn, mut out) = shell("sleep 100 & echo ready; wait");
        let pid = spawn.start().unwrap();
        let mut line = [0; 6];
        out.read_exact(&mut line).unwrap();
        assert!(has_group(pid));
        kill(pid).unwrap();
        assert_eq!(wait_for(pid), Exit::Signal(libc::SIGKILL));
        // The pipe ends only when the grandchild, which also has it open, has exited.
        assert_eq!(output(out), "");
        kill(pid).unwrap();
    }

    #[test]
    fn a_failed_start_names_its_step() {
        let _one = CHILDREN.lock();
        let (mut spawn, _out) = shell("");
        spawn.program = "/no/such/program".into();
        let error = spawn.start().unwrap_err();
        assert_eq!(error.step, Step::Execute);
        assert_eq!(error.error.kind(), io::ErrorKind::NotFound);
        let (mut spawn, _out) = shell("");
        spawn.folder = Some("/no/such/folder".into());
        assert_eq!(spawn.start().unwrap_err().step, Step::Folder);
        assert_eq!(reap(|_| ()).unwrap(), None, "nothing is left to wait for");
    }

    #[test]
    fn a_child_of_root_is_locked_into_a_folder_or_keeps_only_the_right_to_do_so_itself() {
        if !weir_test::goes_on_as_root() {
            return;
        }
        let _one = CHILDREN.lock();
        let nobody = || Identity {
            uid: 4711,
            gid: 4711,
            groups: vec![4711],
        };
        let (mut spawn, out) = shell("grep -E '^Cap|^Uid' /proc/self/status");
        spawn.identity = Some(nobody());
        spawn.keeps = Capability::Chroot;
        let pid = spawn.start().unwrap();
        // Inheritable, permitted, effective, bounding (ours) and ambient; CAP_SYS_CHROOT is 18.
        let text = output(out);
        let sets = text
            .lines()
            .filter(|line| line.ends_with("\t0000000000040000"));
        assert_eq!(sets.count(), 4, "{text}");
        assert!(text.starts_with("Uid:\t4711\t4711\t4711\t4711"), "{text}");
        assert_eq!(wait_for(pid), Exit::Code(0));

        let (mut spawn, out) = shell("");
        spawn.identity = Some(nobody());
        spawn.chroot = Some("/usr".into());
        // Debian's /bin is /usr/bin.
        let look = "[ -d /share ] && [ ! -e /usr/share ] && pwd";
        spawn.arguments = vec!["-c".into(), look.into()];
        let pid = spawn.start().unwrap();
        assert_eq!(output(out), "/\n");
        assert_eq!(wait_for(pid), Exit::Code(0));
    }

    #[test]
    fn root_can_start_a_child_as_another_user() {
        if !crate::identity::is_root() {
            // Only root may change the user. For an ordinary user, this tests the refusal.
            let _one = CHILDREN.lock();
            let (mut spawn, _out) = shell("");
            spawn.identity = Some(Identity {
                uid: 0,
                gid: 0,
                groups: vec![],
            });
            assert_eq!(spawn.start().unwrap_err().step, Step::Identity);
        }
        if !weir_test::goes_on_as_root() {
            return;
        }
        let _one = CHILDREN.lock();
        let (mut spawn, out) = shell("id -u; id -g; id -G");
        spawn.identity = Some(Identity {
            uid: 4711,
            gid: 4712,
            groups: vec![4712, 4713],
        });
        let pid = spawn.start().unwrap();
        assert_eq!(output(out), "4711\n4712\n4712 4713\n");
        assert_eq!(wait_for(pid), Exit::Code(0));
        io::stdout().flush().unwrap();
    }

    #[test]
    fn the_parent_of_a_process_is_known() {
        assert_eq!(parent_of(std::process::id()).unwrap(), parent());
        let gone = parent_of(u32::MAX).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
