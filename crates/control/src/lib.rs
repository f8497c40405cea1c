//! The messages between manager and gateway, and how the gateway sends its own ([`ManagerHandle`]) and keeps what the
//! manager answers ([`ManagerReports`], [`OperatorActions`]).
//!
//! They are connected by one `SOCK_SEQPACKET` pair. A message is one packet: a byte for its kind, its fields in network byte
//! order, and at most one descriptor. When one side's socket is closed, the other side knows that it is gone.
//!
//! The manager trusts nothing that it reads here: the gateway handles input from the internet and may be compromised.
//! It can request what [`ToManager`] lists, for its own workers, and nothing else. Decoding never panics.
#![forbid(unsafe_code)]

mod codec;
mod egress;
mod gateway_tls;
mod heritage;
mod manager_report;
mod name_files;
mod operator_actions;
mod outbox;
mod programs;
mod reactors;
mod wire;

use std::{
    cell::RefCell,
    fmt, io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use weir_observe::{events::Running, log_sink::Health};
use weir_sys::{identity::Identity, message, process::Exit, socket_owners::Owner};

pub use egress::{EgressFiles, EgressGiven};
pub use gateway_tls::{
    CertificateOrder, CertificateOrders, Challenges, DemandReport, GivenCertificate,
    GivenChallenge, QuicGiven, TicketSecrets, TlsFiles, TlsGiven,
};
pub use heritage::{AdminSockets, Heritage};
pub use manager_report::{LastReload, ManagerReport, ManagerReports, PoolUse, SlowPlace};
pub use name_files::NameFiles;
pub use operator_actions::{ActionResult, OperatorActions};
pub use outbox::ManagerHandle;
pub use programs::{ProgramEnd, ProgramProcess, ProgramReport, ProgramReports};
pub use reactors::Reactors;

/// The source of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallSource {
    /// This process, or one that it has started.
    Process(u32),
    /// The socket with this inode.
    Socket(u32),
}

/// From the manager to the gateway. `F` is the type of descriptors: [`OwnedFd`] for received ones.
///
/// A gateway gets [`Jail`](Self::Jail) first, then `Config` and everything it needs for serving, then `Start`. The
/// other messages come while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToGateway<F = OwnedFd> {
    /// The user and folder to change to, before anything else is read.
    Jail(Jail),
    /// The configuration: its name for messages, and its text as a file.
    Config {
        /// The values besides the text that are needed to interpret it.
        source: Source,
        /// Whether to write each step of each request to stderr.
        trace: bool,
        /// The reactors for which the listeners were made.
        reactors: Reactors,
        /// The text.
        text: F,
    },
    /// A listening socket. A socket that several reactors share is sent once for each of them.
    Listener {
        /// Index into `Config::listeners`.
        listener: u16,
        /// The reactor that accepts from it.
        reactor: u16,
        /// The socket, non-blocking.
        socket: F,
    },
    /// The access log. At run time: the log was reopened.
    AccessLog(F),
    /// A pool's log in PHP-FPM's format. At run time: the log was reopened.
    PoolLog {
        /// Index into `Config::pools`.
        pool: u16,
        /// The file.
        file: F,
    },
    /// The log for the application's calls, if it is not the access log. At run time: the log was reopened.
    EgressLog(F),
    /// The error log. At run time: the log was reopened.
    ErrorLog(F),
    /// The folder for spooled bodies.
    SpoolDir(F),
    /// The listening socket of the admin interface.
    AdminUnix(F),
    /// The listening socket of the admin interface on TCP.
    AdminTcp(F),
    /// The token that an operator needs for actions over TCP.
    AdminToken(String),
    /// The password for the server of `bus`.
    BusPassword(String),
    /// A folder of the configuration, or a file in /proc, that the gateway cannot open itself.
    Opened {
        /// The path as seen from outside.
        path: PathBuf,
        /// The open folder or file.
        file: F,
    },
    /// A listening socket for the application's outgoing calls.
    EgressListener {
        /// Index into `Egress::listen`.
        listener: u16,
        /// The socket, non-blocking.
        socket: F,
    },
    /// The files for the egress, in the form of [`EgressFiles::encode`].
    EgressFiles(F),
    /// Certificates, in the form of [`TlsFiles::encode`]. At run time: these have changed.
    Certificates(F),
    /// The file of a certificate's chain, for a gateway that has its keys itself.
    CertificateChain {
        /// Index into `Config::certificates`.
        index: u32,
        /// The file.
        file: F,
    },
    /// The file of its private key, behind that of its chain.
    CertificateKey {
        /// Index into `Config::certificates`.
        index: u32,
        /// The file.
        file: F,
    },
    /// A reactor's channel to the keeper. At run time: the keeper was started again.
    Signer {
        /// The reactor.
        reactor: u16,
        /// Its end of a pair.
        socket: F,
    },
    /// The keys of session tickets. At run time: they have changed.
    TicketKeys(TicketSecrets),
    /// The secret of the IDs of QUIC's connections, which all gateways share.
    Quic {
        /// The number of this gateway; later ones have higher numbers.
        gateway: u32,
        /// One key.
        secret: TicketSecrets,
    },
    /// A UDP socket for QUIC.
    Datagrams {
        /// Index into `Config::listeners`.
        listener: u16,
        /// The reactor that reads it.
        reactor: u16,
        /// The socket, non-blocking.
        socket: F,
    },
    /// The inbox of a reactor: datagrams that others have received for its connections.
    Inbox {
        /// The reactor.
        reactor: u16,
        /// An end of a pair.
        socket: F,
    },
    /// The other end of an inbox, of this gateway or an earlier one.
    Outbox {
        /// The number of that gateway.
        gateway: u32,
        /// Its reactor.
        reactor: u16,
        /// The other end.
        socket: F,
    },
    /// The answers to challenges of authorities, in the form of [`Challenges::encode`]: all that are in force. Answered with
    /// [`ToManager::ChallengesSet`].
    Challenges {
        /// Of this message.
        number: u32,
        /// The file.
        file: F,
    },
    /// The last known addresses of a server's name: they are used until the name is looked up.
    Addresses {
        /// The name.
        name: String,
        /// Its addresses; [`MOST_ADDRESSES`] at most.
        addresses: Vec<IpAddr>,
    },
    /// The initial messages are complete: start serving.
    Start,
    /// A worker has started; with its connection.
    Worker {
        /// Index into `Config::pools`.
        pool: u16,
        /// Number of the worker, which is never used again.
        worker: u32,
        /// Process id of the worker.
        pid: u32,
        /// The number of its pool's start ([`PoolsReady`](Self::PoolsReady)).
        start_number: u32,
        /// The worker has had a connection before, so a new gateway does not know how many requests the worker has
        /// processed.
        used: bool,
        /// A connected, non-blocking stream that the worker has accepted.
        connection: F,
    },
    /// A worker has ended.
    WorkerExited {
        /// Index into `Config::pools`.
        pool: u16,
        /// Number of the worker.
        worker: u32,
        /// Process id of the worker.
        pid: u32,
        /// How it ended.
        exit: Exit,
        /// The worker got SIGKILL or SIGTERM, but neither from weir, nor from the kernel because memory ran out. So its
        /// request is not the cause.
        killed: bool,
    },
    /// No worker of the pool can start. The next `Worker` message ends this state.
    PoolDown {
        /// Index into `Config::pools`.
        pool: u16,
        /// Why, for the log.
        message: String,
    },
    /// Workers of these pools can be requested; they belong to this start of the pool. Workers of earlier starts are
    /// replaced: for each new worker an old one is withdrawn, either an idle one, or a busy one after its request.
    PoolsReady {
        /// Counts up from 1.
        start_number: u32,
        /// The version of their PHP: `8.2.29`; empty if they do not run weir's PHP.
        version: String,
        /// `expose_php`: whether answers name the version.
        exposed: bool,
        /// Indices into `Config::pools`; [`MOST_READY`] at most.
        pools: Vec<u16>,
    },
    /// Workers of this pool are forked from another process than before, or not any more.
    Zygote {
        /// Index into `Config::pools`.
        pool: u16,
        /// The process that has booted the application; 0: there is none.
        pid: u32,
        /// Why a booted process cannot be forked; empty: it can, or was not tried yet.
        declined: String,
    },
    /// Who loads PHP for these pools.
    PhpLoad {
        /// The process that their masters are forked from; 0: each pool's master loads PHP itself.
        template: u32,
        /// Why it does; empty: the template is not running now.
        own: String,
        /// Indices into `Config::pools`; [`MOST_READY`] at most.
        pools: Vec<u16>,
    },
    /// This many of the requested workers could not be started.
    StartFailed {
        /// Index into `Config::pools`.
        pool: u16,
        /// How many.
        count: u32,
    },
    /// What `pm = "auto"` needs to know about the machine; sent regularly.
    Memory {
        /// Index into `Config::pools`.
        pool: u16,
        /// The memory of one worker (proportional set size), bytes; 0: not known yet.
        worker_cost: u64,
        /// How much more memory all workers may use, bytes.
        available: u64,
        /// The kernel is short of memory.
        pressure: bool,
    },
    /// Result of an [`Action`].
    ActionDone {
        /// As in [`ToManager::Act`].
        id: u32,
        /// Whether it was done.
        done: bool,
        /// A text about the result; if it was not done, why.
        text: String,
    },
    /// An operator has turned draining for a load balancer on or off. While it is on, the gateway is not ready and
    /// closes each connection after its answer. Requests that still arrive are answered.
    Decline {
        /// False: off.
        on: bool,
    },
    /// An operator has set limits of a pool that replace the configured ones until the next reload.
    Limits {
        /// Index into `Config::pools`.
        pool: u16,
        /// Maximum of workers; `None`: unchanged.
        max_children: Option<u32>,
        /// Maximum of requests at work at once; `None`: unchanged.
        maxconn: Option<u32>,
    },
    /// What pools' processes use; sent if the gateway has asked ([`ToManager::Measure`]).
    PoolUse {
        /// The pools, by index into `Config::pools`; [`MOST_USES`] at most.
        pools: Vec<(u16, PoolUse)>,
    },
    /// What weir's own processes use, and the manager's counters; the last message of the answer to
    /// [`ToManager::Measure`].
    OwnUse {
        /// The manager.
        manager: ProcessUse,
        /// The gateway.
        gateway: ProcessUse,
        /// Since its start.
        counts: ManagerCounts,
    },
    /// Which process has a socket ([`ToManager::FindOwner`]).
    Owner {
        /// As in the question.
        id: u32,
        /// The process.
        owner: Owner,
    },
    /// The worker of an earlier configuration that makes a call ([`ToManager::FindFormer`]).
    Former {
        /// As in the question.
        id: u32,
        /// The worker's process and the NAME of its pool.
        found: Option<(u32, String)>,
        /// The manager had no time for the search: the question must be repeated.
        later: bool,
    },
    /// An earlier configuration that is finishing; part of the answer to [`ToManager::Measure`].
    OldGeneration(OldGeneration),
    /// Where a slow script is: the entry of a worker is in the slow log.
    SlowPlace(SlowPlace),
    /// Result of the last reload; part of the answer to [`ToManager::Measure`].
    LastReload {
        /// How long ago that was, ms.
        ago: u64,
        /// Whether the new configuration serves.
        done: bool,
        /// A text about the result; if it was not done, why.
        text: String,
    },
    /// The state of a log that the manager writes; part of the answer to [`ToManager::Measure`].
    ManagerLog(Health),
    /// The state of orders for certificates, in the form of [`CertificateOrders::encode`]; part of the answer to
    /// [`ToManager::Measure`].
    CertificateOrders(F),
    /// [`ProgramReports::encode`]; part of the answer to [`ToManager::Measure`].
    Programs(F),
    /// There is no certificate on demand for this name, and it is not to be wanted again for so many seconds.
    CertificateRefused {
        /// The name.
        name: String,
        /// Seconds.
        pause: u32,
    },
    /// Checks that the gateway runs. Answered with [`ToManager::Alive`].
    Ping,
    /// The gateway that follows takes idle connections here.
    GiveConnections(F),
    /// The gateway before this one gives idle connections here.
    TakeConnections(F),
    /// Accept nothing more, finish running requests, then send `Drained`.
    Drain {
        /// No other gateway follows, so this one answers operators until the end.
        last: bool,
    },
    /// End now.
    Stop,
}

/// A worker's request, for the log: the manager logs what happens to the worker, and this before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRequest {
    /// SCRIPT_FILENAME.
    pub script: String,
    /// REQUEST_METHOD.
    pub method: String,
    /// REQUEST_URI, with its query.
    pub uri: String,
    /// How long it has run, µs.
    pub elapsed: u64,
    /// Number of the request.
    pub number: u64,
}

impl WorkerRequest {
    /// This request of a worker of `pool`, as it is logged.
    pub fn running<'a>(&'a self, pool: &'a str, pid: u32) -> Running<'a> {
        Running {
            pool,
            pid,
            script: &self.script,
            method: &self.method,
            uri: &self.uri,
            elapsed: Duration::from_micros(self.elapsed),
            request: Some(self.number),
        }
    }
}

/// From the gateway to the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToManager {
    /// The gateway accepts connections.
    Ready,
    /// Follows `Ready`: each pool has the workers of its start, or cannot have them now.
    WorkersStarted,
    /// The gateway cannot serve; with the reason.
    Failed(String),
    /// A problem that the operator should know, found at the start.
    Warning(String),
    /// The connection to this worker is closed: make a new one, and send it when the worker has accepted it.
    Connect {
        /// Index into `Config::pools`.
        pool: u16,
        /// Number of the worker.
        worker: u32,
    },
    /// This worker is stuck or sends invalid answers: kill it.
    Kill {
        /// Index into `Config::pools`.
        pool: u16,
        /// Number of the worker.
        worker: u32,
    },
    /// This worker's request has run too long: send SIGTERM, and kill the worker if that does not help.
    Terminate {
        /// Index into `Config::pools`.
        pool: u16,
        /// Number of the worker.
        worker: u32,
        /// The request, for the log.
        request: WorkerRequest,
    },
    /// More workers of a pool are needed. There are never more than `max_children` of one start of the pool.
    StartWorkers {
        /// Index into `Config::pools`.
        pool: u16,
        /// How many.
        count: u32,
    },
    /// This worker is idle and not needed any more: it should end by itself.
    Retire {
        /// Index into `Config::pools`.
        pool: u16,
        /// Number of the worker.
        worker: u32,
        /// The worker has served its number of requests, or uses too much memory: another worker replaces it.
        spent: bool,
    },
    /// Write the PHP stack of this worker's script to the slow log.
    TraceWorker {
        /// Index into `Config::pools`.
        pool: u16,
        /// Number of the worker.
        worker: u32,
        /// The request, for the log.
        request: WorkerRequest,
    },
    /// An operator requests an action.
    Act {
        /// Returned in [`ToGateway::ActionDone`].
        id: u32,
        /// The action.
        action: Action,
    },
    /// Measure what the processes use. The answer is `PoolUse` with all pools, in as many messages as that takes, then `OwnUse`.
    Measure,
    /// Which of these workers has a socket open? Answered with [`ToGateway::Owner`]; the answer is `Later` if
    /// the manager has spent too much time on such questions recently.
    FindOwner {
        /// Returned in the answer.
        id: u32,
        /// The inode of the socket.
        inode: u32,
        /// Indices into `Config::pools`, and the workers' numbers; at most [`MOST_ASKED`](Self::MOST_ASKED).
        workers: Vec<(u16, u32)>,
    },
    /// Which worker of an earlier configuration makes this call? Answered with [`ToGateway::Former`].
    FindFormer {
        /// Comes back in the answer.
        id: u32,
        /// The source of the call.
        whose: CallSource,
    },
    /// The addresses of a server's name, for later gateways.
    Addresses {
        /// The name, as `servers` has it.
        name: String,
        /// Its addresses; [`MOST_ADDRESSES`] at most.
        addresses: Vec<IpAddr>,
    },
    /// What the draining gateway still waits for; sent regularly.
    DrainStatus(DrainStatus),
    /// The keeper of private keys does not answer.
    KeeperSilent,
    /// The answers of [`ToGateway::Challenges`] are in force.
    ChallengesSet(u32),
    /// Clients ask for this host name in handshakes, and it has no certificate. Answered with [`ToGateway::Certificates`] or
    /// [`ToGateway::CertificateRefused`].
    WantCertificate(String),
    /// The answer to [`ToGateway::Ping`].
    Alive {
        /// How long the slowest thread has not reported progress, ms. Waiting threads report several times a second.
        silent: u32,
        /// What it does.
        work: WorkerTotals,
    },
    /// The gateway has stopped accepting, because another gateway follows. No new client reaches it.
    AcceptsNothing,
    /// Nothing runs any more.
    Drained,
}

impl ToManager {
    /// Maximum number of workers in one question.
    pub const MOST_ASKED: usize = 128;
}

/// Actions that an operator may request from the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read the configuration again, as for SIGHUP.
    Reload,
    /// Start the program anew, which takes over.
    Upgrade,
    /// Restart one pool beside its old workers.
    RestartPool {
        /// Name of the pool.
        pool: String,
    },
    /// Turn the drain for load balancers on or off in the gateways ([`ToGateway::Decline`]).
    Decline {
        /// False: off.
        on: bool,
    },
    /// Change limits of a pool until the next reload.
    SetPool {
        /// Name of the pool.
        pool: String,
        /// Maximum of workers; `None`: unchanged.
        max_children: Option<u32>,
        /// Maximum of requests at work at once; `None`: unchanged.
        maxconn: Option<u32>,
    },
    /// Stop gracefully, as for SIGTERM.
    Stop,
    /// Stop at once, as for SIGINT.
    StopNow,
}

/// What processes use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// CPU time, µs. It never decreases.
    pub cpu: u64,
    /// Memory, with shared memory counted once (proportional set size), bytes.
    pub memory: u64,
    /// Open descriptors; 0: not measured.
    pub files: u64,
}

/// The manager's counters since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ManagerCounts {
    /// Successful reloads.
    pub reloads: u64,
    /// Reloads that failed and changed nothing.
    pub failed_reloads: u64,
    /// Gateways that died and were replaced.
    pub gateway_restarts: u64,
    /// How many of these were killed because they did not respond.
    pub gateway_hangs: u64,
    /// Workers and other processes of weir that the kernel killed because it was out of memory.
    pub oom_kills: u64,
    /// Whether a reload waits until an older configuration has ended.
    pub reload_waits: bool,
}

/// What the workers of all pools do, and have done since the gateway's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerTotals {
    /// Workers with a request.
    pub active: u32,
    /// Workers without one.
    pub idle: u32,
    /// Requests that were given to workers, and pages that were answered for them.
    pub requests: u64,
    /// Requests that ran for longer than `request_slowlog_timeout`.
    pub slow: u64,
}

/// What a draining gateway still waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainStatus {
    /// Connections of clients.
    pub connections: u32,
    /// Requests at workers.
    pub requests: u32,
    /// Whether the application's outgoing calls are still running.
    pub calls: bool,
    /// How long the oldest request has run, ms.
    pub longest: u64,
    /// That request: its method, path and pool; empty: no request is at a worker.
    pub request: String,
}

/// An earlier configuration that is finishing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OldGeneration {
    /// Increases with each configuration.
    pub number: u32,
    /// The process of its gateway; 0: it has ended.
    pub gateway: u32,
    /// How long it has been finishing, ms.
    pub since: u64,
    /// How much longer it may take, ms; 0: it is being ended.
    pub left: u64,
    /// The last report of its gateway.
    pub holding: DrainStatus,
}

/// The user and folder that the gateway changes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Jail {
    /// User and groups; `None`: unchanged.
    pub identity: Option<Identity>,
    /// A user number that no other process has, because workers run as the gateway's user and must not be able to
    /// signal it. It still accesses files as `identity`.
    pub own_user: Option<u32>,
    /// The folder of its chroot.
    pub chroot: Option<PathBuf>,
}

/// Where a configuration comes from. This is needed to interpret its text (see [`weir_config::Environment`]), and a
/// gateway in a chroot cannot look it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file's name as the user gave it.
    pub name: String,
    /// The file's folder.
    pub folder: PathBuf,
    /// Cores of the machine.
    pub cores: u64,
    /// Memory of the machine, bytes.
    pub memory: u64,
    /// Limit of open files.
    pub open_files: u64,
}

/// A packet that is not a valid message, or one without its descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadMessage;

/// One end of the pair. Threads can share it: it sends and receives by reference.
#[derive(Debug)]
pub struct Channel {
    end: OwnedFd,
}

/// `path` as seen by a process in `chroot`; `None`: it is outside.
pub fn path_inside(chroot: &Path, path: &Path) -> Option<PathBuf> {
    Some(Path::new("/").join(path.strip_prefix(chroot).ok()?))
}

thread_local! {
    /// Where messages are received. Kept, because it would be filled with zeros for each message.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_MESSAGE]);
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

    /// A second handle of the same end.
    ///
    /// # Errors
    /// If no descriptor is left.
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

    /// Waits for the manager's next message to the gateway. `None`: the manager is gone.
    ///
    /// # Errors
    /// As recvmsg(2); `EMFILE` if its descriptor cannot be opened now: it comes again. `InvalidData` if it is not a valid message.
    pub fn next_for_gateway(&self) -> io::Result<Option<ToGateway>> {
        BUFFER.with_borrow_mut(|buffer| {
            let (n, descriptors) = message::receive_or_leave(self.end.as_fd(), buffer, true)?;
            if n == 0 {
                return Ok(None);
            }
            let descriptor = descriptors.into_iter().next();
            Ok(Some(ToGateway::decode(&buffer[..n], descriptor)?))
        })
    }

    /// The gateway's next message to the manager; does not wait. `None`: the gateway is gone.
    ///
    /// # Errors
    /// `WouldBlock`: there is none. `InvalidData` if it is not a valid message.
    pub fn next_for_manager(&self) -> io::Result<Option<ToManager>> {
        BUFFER.with_borrow_mut(|buffer| {
            // Descriptors that a gateway might send are closed here without being used.
            let (n, _) = message::receive(self.end.as_fd(), buffer, false)?;
            if n == 0 {
                return Ok(None);
            }
            Ok(Some(ToManager::decode(&buffer[..n])?))
        })
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
        f.write_str("invalid message between manager and gateway")
    }
}

impl std::error::Error for BadMessage {}

impl From<BadMessage> for io::Error {
    fn from(error: BadMessage) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// Maximum number of addresses in a message.
pub const MOST_ADDRESSES: usize = 128;

/// Maximum size of a message, bytes. An identity with all the 65,536 groups that Linux allows needs 256 KiB, but such
/// users do not exist in practice; 4,096 groups, a path and a text fit.
const MAX_MESSAGE: usize = 32 * 1024;

/// Maximum number of pools in a [`ToGateway::PoolsReady`].
pub const MOST_READY: usize = 8192;

/// Maximum number of pools in a [`ToGateway::PoolUse`].
pub const MOST_USES: usize = 512;

#[cfg(test)]
mod tests;
