//! The messages between manager and gateway, and nothing else.
//!
//! One `SOCK_SEQPACKET` pair joins the two. A message is one packet: a byte that says which, its fields in network
//! order, and at most one descriptor attached. The end of the socket is a message too: each knows by it that the
//! other is gone.
//!
//! The manager believes nothing that it reads here: the gateway meets the internet and may have been taken over. It
//! can ask for what [`ToManager`] lists, of workers that are its own, and for no more. Decoding never panics.

mod codec;
mod egress;
mod name_files;
mod wire;

use std::{
    fmt, io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use weir_sys::{identity::Identity, message, process::Exit, socket_owners::Owner};

pub use egress::{EgressFiles, EgressGiven};
pub use name_files::NameFiles;

/// From the manager to the gateway. `F` is how descriptors are held: [`OwnedFd`] when received.
///
/// A gateway is given [`Jail`](Self::Jail) first, then `Config` and everything it serves with, then `Start`. The rest
/// comes while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToGateway<F = OwnedFd> {
    /// What to become before anything else is looked at.
    Jail(Jail),
    /// The configuration: its name, for messages, and its text as a file.
    Config {
        /// What its meaning depends on beside the text.
        source: Source,
        /// Say each step of each request on stderr.
        trace: bool,
        /// How many reactors the listeners were made for.
        reactors: u16,
        /// The text.
        text: F,
    },
    /// A listening socket. One that is shared by several reactors comes once for each.
    Listener {
        /// Index into `Config::listeners`.
        listener: u16,
        /// Which reactor accepts from it.
        reactor: u16,
        /// The socket, non-blocking.
        socket: F,
    },
    /// Where requests are written. While running: the log was reopened.
    AccessLog(F),
    /// Where a pool's requests are written in PHP-FPM's way. While running: the log was reopened.
    PoolLog {
        /// Index into `Config::pools`.
        pool: u16,
        /// The file.
        file: F,
    },
    /// Where calls of the application are written, if not where requests are. While running: the log was reopened.
    EgressLog(F),
    /// Where errors are written. While running: the log was reopened.
    ErrorLog(F),
    /// The folder for spooled bodies.
    SpoolDir(F),
    /// The listening socket of the operator's window.
    Window(F),
    /// The listening socket of the operator's window on TCP.
    WindowTcp(F),
    /// What an operator has to know to come in over TCP and do something.
    WindowToken(String),
    /// A folder of the configuration, or a file of /proc, that the gateway cannot open itself.
    Opened {
        /// The path as seen from outside.
        path: PathBuf,
        /// What is there, open.
        file: F,
    },
    /// A listening socket for the application's outgoing calls.
    EgressListener {
        /// Index into `Egress::listen`.
        listener: u16,
        /// The socket, non-blocking.
        socket: F,
    },
    /// What was read for the egress, as [`EgressFiles::encode`] writes it.
    EgressFiles(F),
    /// The addresses of a server's name as they were known last: they are used until it can be looked up.
    Addresses {
        /// The name.
        name: String,
        /// Its addresses; [`MOST_ADDRESSES`] at most.
        addresses: Vec<IpAddr>,
    },
    /// That was all: serve.
    Start,
    /// A worker is there, with the one connection to it.
    Worker {
        /// Index into `Config::pools`.
        pool: u16,
        /// Its number, never used again.
        worker: u32,
        /// Its process id.
        pid: u32,
        /// The generation of its pool that it belongs to ([`PoolReady`](Self::PoolReady)).
        generation: u32,
        /// It has had a connection before: who has not heard of it does not know how many requests it has done.
        used: bool,
        /// A connected stream, non-blocking, that the worker has accepted.
        connection: F,
    },
    /// A worker is gone.
    WorkerExited {
        /// Index into `Config::pools`.
        pool: u16,
        /// Its number.
        worker: u32,
        /// Its process id.
        pid: u32,
        /// How it ended.
        exit: Exit,
    },
    /// No worker of the pool can start; the next `Worker` says that one could.
    PoolDown {
        /// Index into `Config::pools`.
        pool: u16,
        /// Why, for the log.
        message: String,
    },
    /// Workers of the pool can be asked for, and begin in this generation. Those of earlier ones are to be replaced: as
    /// each new one comes, an old one that is free is withdrawn, or one that is busy after its request.
    PoolReady {
        /// Index into `Config::pools`.
        pool: u16,
        /// Counts up from 1.
        generation: u32,
        /// Of the PHP that they run: `8.2.29`; empty where they are no PHP of weir's.
        version: String,
        /// `expose_php`: answers name it.
        exposed: bool,
    },
    /// Of the workers that were asked for, so many could not be started.
    StartFailed {
        /// Index into `Config::pools`.
        pool: u16,
        /// How many.
        count: u32,
    },
    /// What `pm = "auto"` needs to know of the machine; comes again and again.
    Memory {
        /// Index into `Config::pools`.
        pool: u16,
        /// What one worker of it costs (proportional set size), bytes; 0: not known yet.
        worker_cost: u64,
        /// What all workers may still take, bytes.
        available: u64,
        /// The kernel is short of memory.
        pressure: bool,
    },
    /// What became of an [`Action`] that was asked for.
    ActionDone {
        /// As in [`ToManager::Act`].
        id: u32,
        /// It was done.
        done: bool,
        /// What there is to say of it; of one that was not done, why.
        text: String,
    },
    /// An operator wants it to be left in peace, or not any more: it is not ready, and closes connections after their
    /// answer, and answers all that comes nevertheless.
    Decline {
        /// Not any more, where it is false.
        on: bool,
    },
    /// An operator has set other limits of a pool than the configuration's; they hold until the next reload.
    Limits {
        /// Index into `Config::pools`.
        pool: u16,
        /// Workers at most; none: as before.
        max_children: Option<u32>,
        /// Requests at work at once; none: as before.
        maxconn: Option<u32>,
    },
    /// What a pool's processes take; comes where the gateway has asked ([`ToManager::Measure`]).
    PoolUse {
        /// Index into `Config::pools`.
        pool: u16,
        /// Of all of them, the master of PHP included.
        all: ProcessUse,
        /// Memory of a worker, the mean of some, bytes; 0: not known.
        worker_memory: u64,
    },
    /// What weir's own processes take, and what the manager has done; the last of the answer to [`ToManager::Measure`].
    OwnUse {
        /// The manager.
        manager: ProcessUse,
        /// The gateway.
        gateway: ProcessUse,
        /// Since its start.
        counts: ManagerCounts,
    },
    /// Who has a socket ([`ToManager::FindOwner`]).
    Owner {
        /// As in the question.
        id: u32,
        /// Who.
        owner: Owner,
    },
    /// A configuration that was replaced and finishes what it began; part of the answer to [`ToManager::Measure`].
    OldGeneration(OldGeneration),
    /// What came of the last reload; part of the answer to [`ToManager::Measure`].
    LastReload {
        /// How long ago that was, ms.
        ago: u64,
        /// The new configuration serves.
        done: bool,
        /// What there is to say of it; of one that was not done, why.
        text: String,
    },
    /// Is it well? Answered with [`ToManager::Alive`].
    Ping,
    /// Accept nothing more, finish what runs, then say `Drained`.
    Drain {
        /// No other gateway follows: operators are answered here to the end.
        last: bool,
    },
    /// End now.
    Stop,
}

/// A request that a worker has, as the log tells of it: the manager says what becomes of the worker, and this before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// SCRIPT_FILENAME.
    pub script: String,
    /// REQUEST_METHOD.
    pub method: String,
    /// REQUEST_URI, with its query.
    pub uri: String,
    /// How long it has run, µs.
    pub elapsed: u64,
    /// Its number.
    pub request: u64,
}

/// From the gateway to the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToManager {
    /// It accepts connections.
    Ready,
    /// It cannot serve, and why.
    Failed(String),
    /// Something that the operator should know, found on start.
    Warning(String),
    /// The connection to this worker is closed: make a new one, and give it once the worker has accepted it.
    Connect {
        /// Index into `Config::pools`.
        pool: u16,
        /// Its number.
        worker: u32,
    },
    /// This worker is stuck or answers nonsense: kill it.
    Kill {
        /// Index into `Config::pools`.
        pool: u16,
        /// Its number.
        worker: u32,
    },
    /// This worker's request has run for too long: end it by SIGTERM, and kill it if that does not help.
    Terminate {
        /// Index into `Config::pools`.
        pool: u16,
        /// Its number.
        worker: u32,
        /// The request, for the log.
        told: Told,
    },
    /// More workers of a pool are wanted. Never more than `max_children` of a generation are there.
    StartWorkers {
        /// Index into `Config::pools`.
        pool: u16,
        /// How many.
        count: u32,
    },
    /// This worker is free and not wanted any more: it is to end by itself.
    Retire {
        /// Index into `Config::pools`.
        pool: u16,
        /// Its number.
        worker: u32,
        /// It has served its requests, or has grown: another one takes its place.
        spent: bool,
    },
    /// The PHP stack of what this worker runs is to be written to the slow log.
    TraceWorker {
        /// Index into `Config::pools`.
        pool: u16,
        /// Its number.
        worker: u32,
        /// The request, for the log.
        told: Told,
    },
    /// An operator asks for something.
    Act {
        /// Comes back in [`ToGateway::ActionDone`].
        id: u32,
        /// What.
        action: Action,
    },
    /// Somebody wants to know what processes take. The answer is `PoolUse` for each pool, then `OwnUse`.
    Measure,
    /// Which of these workers has a socket open? Answered with [`ToGateway::Owner`]: `Nobody` where the manager has spent too
    /// much time on such questions lately, too.
    FindOwner {
        /// Comes back in the answer.
        id: u32,
        /// The socket's number.
        inode: u32,
        /// Indices into `Config::pools`, and workers' numbers; [`MOST_ASKED`](Self::MOST_ASKED) at most.
        workers: Vec<(u16, u32)>,
    },
    /// The addresses of a server's name, for gateways to come.
    Addresses {
        /// The name, as `servers` has it.
        name: String,
        /// Its addresses; [`MOST_ADDRESSES`] at most.
        addresses: Vec<IpAddr>,
    },
    /// What it still waits for, while it finishes; comes again and again.
    Holding(Holding),
    /// The answer to [`ToGateway::Ping`].
    Alive {
        /// How long the thread has not moved that has not for longest, ms. Threads that wait move several times a second.
        silent: u32,
    },
    /// Nothing runs any more.
    Drained,
}

impl ToManager {
    /// Workers that may be asked about at once.
    pub const MOST_ASKED: usize = 128;
}

/// What an operator may ask of the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read the configuration again, as at SIGHUP.
    Reload,
    /// Start one pool anew beside its old workers.
    RestartPool {
        /// Its name.
        pool: String,
    },
    /// Have gateways say that they are not ready, or not any more ([`ToGateway::Decline`]).
    Decline {
        /// Not any more, where it is false.
        on: bool,
    },
    /// Other limits of a pool, until the next reload.
    SetPool {
        /// Its name.
        pool: String,
        /// Workers at most; none: as before.
        max_children: Option<u32>,
        /// Requests at work at once; none: as before.
        maxconn: Option<u32>,
    },
    /// Stop gracefully, as at SIGTERM.
    Stop,
    /// Stop at once, as at SIGINT.
    StopNow,
}

/// What processes have taken and take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// Processor time, µs. It does not shrink.
    pub cpu: u64,
    /// Memory, what is shared counted once (proportional set size), bytes.
    pub memory: u64,
    /// Descriptors that are open; 0: not looked at.
    pub files: u64,
}

/// What the manager has done since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ManagerCounts {
    /// Reloads that were done.
    pub reloads: u64,
    /// Reloads that changed nothing because something was wrong.
    pub failed_reloads: u64,
    /// Gateways that died and were replaced.
    pub gateway_restarts: u64,
    /// Of these: those that were killed because they gave no sign of life.
    pub gateway_hangs: u64,
    /// Workers and other processes of weir that the kernel ended because memory was out.
    pub oom_kills: u64,
    /// A reload waits until an older configuration has ended.
    pub reload_waits: bool,
}

/// What a gateway that finishes still waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
    /// Connections of clients.
    pub connections: u32,
    /// Requests that workers have.
    pub requests: u32,
    /// The application's outgoing calls are not over.
    pub calls: bool,
    /// How long the request that has run for longest has run, ms.
    pub longest: u64,
    /// That request: its method, path and pool; empty: none has a worker.
    pub request: String,
}

/// A configuration that was replaced, and finishes what it began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OldGeneration {
    /// Counts up with each configuration.
    pub number: u32,
    /// Its gateway's process; 0: that has ended.
    pub gateway: u32,
    /// How long it has been finishing, ms.
    pub since: u64,
    /// How long it may go on, ms; 0: it is ended.
    pub left: u64,
    /// As its gateway has told last.
    pub holding: Holding,
}

/// What the gateway becomes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Jail {
    /// User and groups; none: it stays who it is.
    pub identity: Option<Identity>,
    /// A user of its own, whom nobody else is: workers run as the same user as the gateway, and must not end it. It uses
    /// files as `identity` all the same.
    pub own_user: Option<u32>,
    /// The folder it locks itself into.
    pub chroot: Option<PathBuf>,
}

/// Where a configuration comes from: what its text means depends on it (see [`weir_config::Environment`]), and a gateway
/// in a chroot cannot look it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file's name as the user wrote it.
    pub name: String,
    /// The file's folder.
    pub folder: PathBuf,
    /// Cores of the machine.
    pub cores: u64,
    /// Memory of the machine, bytes.
    pub memory: u64,
    /// Files that may be open.
    pub open_files: u64,
}

/// A packet that is no message, or one without its descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadMessage;

/// One end of the pair. Shared by threads: sending and receiving take it by reference.
#[derive(Debug)]
pub struct Channel {
    end: OwnedFd,
}

/// All that a gateway is given: what it does not find here it has not got.
#[derive(Debug)]
pub struct Heritage {
    /// What to serve.
    pub config: weir_config::Config,
    /// Cores of the machine.
    pub cores: usize,
    /// Reactors to run; each has its own sockets among `listeners`.
    pub reactors: u16,
    /// Index into `config.listeners`, reactor, listening socket. A reactor may have several of one listener.
    pub listeners: Vec<(u16, u16, OwnedFd)>,
    /// Where requests are written; none: nowhere.
    pub access_log: Option<OwnedFd>,
    /// Index into `config.pools`, and where its requests are written in PHP-FPM's way.
    pub pool_logs: Vec<(u16, OwnedFd)>,
    /// Where calls of the application are written; none: nowhere, or where requests are.
    pub egress_log: Option<OwnedFd>,
    /// Where errors are written; none: nowhere.
    pub error_log: Option<OwnedFd>,
    /// The folder for spooled bodies.
    pub spool_dir: Option<OwnedFd>,
    /// Say each step of each request on stderr.
    pub trace: bool,
    /// The folder that the gateway is locked into; paths in `config` are those seen from outside.
    pub chroot: Option<PathBuf>,
    /// What lies outside of `chroot`, opened before, by its path in `config`.
    pub opened: Vec<(PathBuf, OwnedFd)>,
    /// How this machine looks names up.
    pub names: NameFiles,
    /// Addresses of servers' names as they were known last.
    pub addresses: Vec<(String, Vec<IpAddr>)>,
    /// The operator's window.
    pub window: WindowSockets,
    /// What carries the application's outgoing calls; none: `config` has no `[egress]`.
    pub egress: Option<EgressGiven>,
    /// To the manager. What comes from here on are `Worker` and the messages after it.
    pub control: Channel,
}

/// Where operators come in.
#[derive(Debug, Default)]
pub struct WindowSockets {
    /// Its listening unix socket; none: there is none.
    pub unix: Option<OwnedFd>,
    /// The one on TCP; none: there is none.
    pub tcp: Option<OwnedFd>,
    /// What has to be known to do something over TCP; none: nothing can be done there.
    pub token: Option<String>,
}

impl Heritage {
    /// Opens a folder of the configuration, wherever the gateway is locked in.
    ///
    /// # Errors
    /// As open(2); `NotFound` for what lies outside and was not there when the gateway started.
    pub fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        match self.given(path) {
            Some(folder) => folder.try_clone(),
            None => weir_sys::file::open_dir(&self.inside(path)?),
        }
    }

    /// How a path of the configuration is called inside `chroot`.
    ///
    /// # Errors
    /// `NotFound` for what lies outside.
    pub fn inside(&self, path: &Path) -> io::Result<PathBuf> {
        match &self.chroot {
            None => Ok(path.to_owned()),
            Some(chroot) => path_inside(chroot, path).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::NotFound,
                    format!(
                        "{} is not inside of chroot {}",
                        path.display(),
                        chroot.display()
                    ),
                )
            }),
        }
    }

    fn given(&self, path: &Path) -> Option<&OwnedFd> {
        let found = self.opened.iter().find(|(name, _)| name == path)?;
        Some(&found.1)
    }
}

/// How `path` is called by who is locked into `chroot`; none: it lies outside.
pub fn path_inside(chroot: &Path, path: &Path) -> Option<PathBuf> {
    Some(Path::new("/").join(path.strip_prefix(chroot).ok()?))
}

impl Channel {
    /// Takes over one end of a pair.
    pub fn new(end: OwnedFd) -> Self {
        Self { end }
    }

    /// Two connected ends.
    ///
    /// # Errors
    /// As socketpair(2).
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = message::pair()?;
        Ok((Self::new(one), Self::new(other)))
    }

    /// The same end once more, for who has to speak after it was given away.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::new(self.end.try_clone()?))
    }

    /// Sends to the manager; waits while its queue is full.
    ///
    /// # Errors
    /// `BrokenPipe`: the manager is gone.
    pub fn tell_manager(&self, message: &ToManager) -> io::Result<()> {
        message::send(self.end.as_fd(), &message.encode(), &[], true)
    }

    /// Sends to the manager; does not wait.
    ///
    /// # Errors
    /// `WouldBlock`: its queue is full. `BrokenPipe`: it is gone.
    pub fn tell_manager_now(&self, message: &ToManager) -> io::Result<()> {
        message::send(self.end.as_fd(), &message.encode(), &[], false)
    }

    /// Sends to the gateway; does not wait.
    ///
    /// # Errors
    /// `WouldBlock`: its queue is full. `BrokenPipe`: it is gone.
    pub fn tell_gateway<F: AsFd>(&self, message: &ToGateway<F>) -> io::Result<()> {
        let (bytes, descriptor) = message.encode();
        let attached: Vec<BorrowedFd<'_>> = descriptor.map(AsFd::as_fd).into_iter().collect();
        message::send(self.end.as_fd(), &bytes, &attached, false)
    }

    /// The gateway's next message from the manager; waits for it. `None`: the manager is gone.
    ///
    /// # Errors
    /// As recvmsg(2); `InvalidData` for what is no message.
    pub fn next_for_gateway(&self) -> io::Result<Option<ToGateway>> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let (n, descriptors) = message::receive(self.end.as_fd(), &mut buffer, true)?;
        if n == 0 {
            return Ok(None);
        }
        Ok(Some(ToGateway::decode(
            &buffer[..n],
            descriptors.into_iter().next(),
        )?))
    }

    /// The manager's next message from the gateway; does not wait. `None`: the gateway is gone.
    ///
    /// # Errors
    /// `WouldBlock`: there is none. `InvalidData` for what is no message.
    pub fn next_for_manager(&self) -> io::Result<Option<ToManager>> {
        let mut buffer = vec![0; MAX_MESSAGE];
        // Descriptors that a gateway might send are closed here, unseen.
        let (n, _) = message::receive(self.end.as_fd(), &mut buffer, false)?;
        if n == 0 {
            return Ok(None);
        }
        Ok(Some(ToManager::decode(&buffer[..n])?))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.end
    }
}

impl fmt::Display for BadMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a packet between manager and gateway is no message")
    }
}

impl std::error::Error for BadMessage {}

impl From<BadMessage> for io::Error {
    fn from(error: BadMessage) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// Addresses of a name in a message.
pub const MOST_ADDRESSES: usize = 128;

/// Longest message, bytes: an identity with all the 65,536 groups that Linux allows is 256 KiB, but no such user is
/// known; 4,096 of them, a path and a text fit.
const MAX_MESSAGE: usize = 32 * 1024;

#[cfg(test)]
mod tests;
