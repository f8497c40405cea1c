//! What a checked configuration means, defaults included.
//!
//! The text of `weir.toml` says little; this says everything. Every value is resolved: a route carries the
//! whole [`Settings`] in force for it (the site's, overlaid by its own), names have become indices, and every
//! limit has a number. Regular expressions and globs are kept as checked source text, so that this crate
//! needs no matcher at run time and the gateway compiles them once.
//!
//! Durations are [`Duration`], sizes are bytes.

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use core::{
    fmt,
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use std::path::PathBuf;

mod egress;
mod servers;

pub use egress::{
    AllowRule, Egress, Forwarded, Host, HostSettings, Network, OriginHost, OriginPattern, Scheme,
    Secret, SecretPiece,
};
pub use servers::{Adaptive, Balance, Check, HashBy, Servers, Upstream, UpstreamServer};

use crate::{access_format::AccessFormat, template::Template};

/// A whole configuration, as the manager performs it and the gateway serves it.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[server]`
    pub server: Server,
    /// `[listen.NAME]`, in the order of the file.
    pub listeners: Vec<Listener>,
    /// `[site.NAME]`, in the order of the file.
    pub sites: Vec<Site>,
    /// `[pool.NAME]`, in the order of the file. [`PoolId`] is an index into it.
    pub pools: Vec<Pool>,
    /// `[egress]`; none: there is no such table.
    pub egress: Option<Egress>,
    /// `[log]`
    pub log: Log,
}

/// `[server]`: the process, its identity, and the limits that hold for all sites.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Identity of the gateway when weir is started by root; none: stay who we are; for root the
    /// first of `weir`, `www-data` and `nobody` that there is.
    pub user: Option<String>,
    /// Group of the gateway; none: the user's primary group.
    pub group: Option<String>,
    /// Folder that the gateway locks itself into.
    pub chroot: Option<PathBuf>,
    /// Reactors; 0: one for every two cores.
    pub threads: usize,
    /// Where the manager's process id is written.
    pub pid_file: Option<PathBuf>,
    /// How long a graceful stop waits for what runs.
    pub shutdown_timeout: Duration,
    /// Configurations that were replaced and still finish what runs, at most; a further reload waits.
    pub max_old_generations: usize,
    /// A gateway that gives no sign of life for so long is replaced; zero: never.
    pub gateway_timeout: Duration,
    /// Client connections in all; more wait in the kernel's queue.
    pub max_connections: usize,
    /// Client connections of one address; more are closed at once. 0: no limit.
    pub max_connections_per_address: usize,
    /// What `SERVER_SOFTWARE` says to scripts.
    pub server_software: String,
    /// Where bodies that do not fit memory are spooled (unnamed files).
    pub spool_dir: PathBuf,
    /// All temporary files together may take so many bytes.
    pub max_spool: u64,
    /// The operator's window.
    pub admin: Window,
    /// DNS servers; none: those of /etc/resolv.conf.
    pub resolver: Vec<SocketAddr>,
    /// It is on this address too.
    pub admin_tcp: Option<SocketAddr>,
    /// Where the token stands that actions over TCP need; none: there are no such actions.
    pub admin_token_file: Option<PathBuf>,
    /// Per cent of a pool's queue from which on weir is not ready; 0: however full it is.
    pub ready_saturation: u64,
    /// weir is not ready once all workers of a pool have been busy with the same requests for so long; zero: it is.
    pub ready_stalled: Duration,
    /// `/metrics` has the durations of each site.
    pub site_histograms: bool,
    /// Nice value of the gateway; none: [`GATEWAY_FIRST`] before weir's own, where that is allowed.
    pub priority: Option<i32>,
    /// Workers of all pools together; 0: no limit but each pool's own.
    pub process_max: usize,
    /// So many workers of a pool killed by SIGSEGV or SIGBUS within `emergency_restart_interval` start it anew; 0: never.
    pub emergency_restart_threshold: usize,
    /// See `emergency_restart_threshold`.
    pub emergency_restart_interval: Duration,
}

/// So much before weir's own priority (nice values) the gateway runs where nothing else is said.
pub const GATEWAY_FIRST: i32 = 5;

/// Where the operator's window is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Window {
    /// Where the machine has such sockets: `weir/admin.sock` in the folder for them. It is done without where that
    /// cannot be.
    Usual,
    /// Nowhere.
    Off,
    /// On this unix socket.
    At(PathBuf),
}

/// Where a listener or a server is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// `host:port`, `[::]:port`
    Tcp(SocketAddr),
    /// `unix:PATH`
    Unix(PathBuf),
}

/// As it is written in weir.toml.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(socket) => write!(f, "{socket}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `[listen.NAME]`
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// The NAME.
    pub name: String,
    /// Where it listens.
    pub address: Address,
    /// What is spoken there.
    pub protocol: Protocol,
    /// Length of the kernel's accept queue (cut by net.core.somaxconn).
    pub backlog: u32,
    /// Owner of a unix socket.
    pub owner: Option<String>,
    /// Group of a unix socket.
    pub group: Option<String>,
    /// Mode of a unix socket (default 0660).
    pub mode: u32,
    /// Users that may connect to a unix socket, by an access control list.
    pub acl_users: Vec<String>,
    /// Groups that may connect to a unix socket, by an access control list.
    pub acl_groups: Vec<String>,
    /// Largest request head (request line and headers), bytes; more: 431.
    pub max_head: usize,
    /// Most header fields in a request; more: 431.
    pub max_headers: usize,
    /// From the head's first byte to its last; longer: 408.
    pub header_timeout: Duration,
    /// Between two reads of a body; longer: 408.
    pub body_timeout: Duration,
    /// Between two requests of a kept connection.
    pub idle_timeout: Duration,
    /// Between two writes to a client that does not read.
    pub send_timeout: Duration,
    /// Requests served by one connection; 0: no limit.
    pub max_requests_per_connection: u64,
}

/// What is spoken on a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.
    Http,
    /// FastCGI 1.0, with a web server in front.
    FastCgi(FastCgi),
    /// HAProxy's agent-check: one line that says what the pool can take.
    AgentCheck(AgentCheck),
}

/// A listener with `protocol = "agent-check"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCheck {
    /// Of which pool is told.
    pub pool: PoolId,
    /// Addresses that may connect over TCP; empty: any.
    pub allowed_clients: Vec<IpAddr>,
}

/// A listener with `protocol = "fastcgi"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastCgi {
    /// Whose workers answer.
    pub pool: PoolId,
    /// Only the status page and the ping page are answered.
    pub status_only: bool,
    /// Where a worker failed: 502 and 504 are answers of weir's own. Else the connection is closed, as by PHP-FPM.
    pub answers_failures: bool,
    /// Refusals say why in `Proxy-Status`.
    pub proxy_status: bool,
    /// Addresses that may connect over TCP; empty: any.
    pub allowed_clients: Vec<IpAddr>,
    /// What the requests are worth.
    pub policy: Policy,
}

/// One pattern of `hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `shop.example` (lower case, no port).
    Exact(String),
    /// `*.shop.example`: any name that ends so (kept with its leading dot: `.shop.example`).
    Suffix(String),
    /// `shop.*`: any name that begins so (kept with its last dot: `shop.`).
    Prefix(String),
}

/// `[site.NAME]`
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// The NAME.
    pub name: String,
    /// Hosts it answers to; none: the default site of its listeners.
    pub hosts: Vec<HostPattern>,
    /// Indices of its listeners; never empty (all HTTP listeners where the file names none).
    pub listen: Vec<usize>,
    /// What holds where no route says otherwise.
    pub settings: Settings,
    /// `[[site.NAME.route]]`, first match wins.
    pub routes: Vec<Route>,
}

/// `[[site.NAME.route]]`
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// Which paths.
    pub path: PathPattern,
    /// Which methods; empty: any.
    pub methods: Vec<String>,
    /// An answer without file or script; none: go on to files and scripts with `settings`.
    pub action: Option<Action>,
    /// The path and query that stand for the request's; `$1` to `$9` and `${name}` are groups of `path`'s expression.
    pub rewrite: Option<String>,
    /// The site's settings overlaid by the route's.
    pub settings: Settings,
}

/// How a route's `path` is written. Matched against the decoded, normalised path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    /// A glob over the whole path; `*` matches any run of characters, slashes included; `?` one.
    Glob(String),
    /// `~REGEX`
    Regex(String),
}

/// What a route answers by itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// `redirect = "…"` with `status` (301, 302, 303, 307, 308; default 308).
    Redirect {
        /// The Location.
        to: Template,
        /// Its status.
        status: u16,
    },
    /// `deny = true`: 403.
    Deny,
    /// `reply = { status, body, content_type }`
    Reply {
        /// 200 to 599.
        status: u16,
        /// The body as written.
        body: Template,
        /// Default `text/plain; charset=utf-8`.
        content_type: String,
    },
}

/// Index into [`Config::pools`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub usize);

/// What a site says and a route may say otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The document root; none: no files and no scripts (only replies).
    pub root: Option<PathBuf>,
    /// Of a route: the folder that stands for its prefix, in place of `root`.
    pub alias: Option<Alias>,
    /// What the worker calls `root`; none: the same.
    pub script_root: Option<PathBuf>,
    /// Files tried, in order, for a URL that ends in a slash.
    pub index: Vec<String>,
    /// Regular expression: which URLs are scripts; 1st group script name, 2nd path-info.
    pub script: String,
    /// Where a URL goes that is no file: a path, with a query and groups where it is [`Route::rewrite`]'s like; none: 404.
    pub fallback: Option<String>,
    /// A script has to be a file on this machine; none: where the pool's scripts are PHP's.
    pub check_files: Option<bool>,
    /// What a path with an encoded slash is.
    pub encoded_slash: EncodedSlash,
    /// Who runs scripts; none: scripts are refused with 403, never sent as text.
    pub pool: Option<PoolId>,
    /// Parameters added to the request, in order.
    pub params: Vec<(String, Template)>,
    /// Names of the headers passed; none: all but Proxy and those of the connection.
    pub pass_headers: Option<Vec<String>>,
    /// Headers with underscores in their names are passed too (default false).
    pub underscores_in_headers: bool,
    /// Regular expressions over the path and the script's name: never served, never run. Those of
    /// [`crate::default_hide_files`] are about files only.
    pub hide_files: Vec<String>,
    /// Path prefixes whose scripts are served as files with a plain type and never run.
    pub deny_scripts: Vec<String>,
    /// Status → file (absolute, or relative to `root`).
    pub error_pages: BTreeMap<u16, PathBuf>,
    /// Cache-Control of static files.
    pub cache_control: Option<String>,
    /// Response headers set.
    pub set_headers: Vec<(String, Template)>,
    /// Response headers removed.
    pub remove_headers: Vec<String>,
    /// Request headers set before the worker sees them.
    pub set_request_headers: Vec<(String, Template)>,
    /// charset added to text types; empty: none.
    pub charset: String,
    /// Types by extension, before the built-in list.
    pub types: BTreeMap<String, String>,
    /// Serve `file.br`, `file.zst`, `file.gz` beside the file.
    pub precompressed: bool,
    /// Symlinks that lead out of the root are followed (default false).
    pub follow_symlinks: bool,
    /// Largest request body, bytes; more: 413.
    pub max_body: u64,
    /// Request body kept in memory, bytes; more goes to a temporary file.
    pub body_memory: usize,
    /// Response kept in memory for a slow client, bytes; more goes to a temporary file.
    pub response_memory: usize,
    /// Response kept in a temporary file for a slow client, bytes; more waits (the worker too).
    pub max_response_file: u64,
    /// Pass responses through as they come; no reading ahead.
    pub buffering: bool,
    /// X-Accel-Redirect: URL prefix → folder.
    pub accel_redirect: Vec<(String, PathBuf)>,
    /// X-Sendfile: folders that files may come from.
    pub sendfile_dirs: Vec<PathBuf>,
    /// Requests are written to the access log.
    pub access_log: bool,
    /// What a request for a script is worth.
    pub policy: Policy,
}

/// A folder that stands for a URL prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// Begins and ends with a slash.
    pub prefix: String,
    /// The folder.
    pub folder: PathBuf,
}

/// What a path with an encoded slash (`%2F`) is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EncodedSlash {
    /// No file; a script's path-info, or the fallback's.
    #[default]
    Pass,
    /// Not found.
    Refuse,
}

/// What a site, a route or a FastCGI listener says about the worth of a request for a script.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// From the request's first byte to the head of its answer; zero: no limit.
    pub timeout: Duration,
    /// The request header by which a client may lower that.
    pub timeout_header: Option<String>,
    /// Place in the queue, lower first; -1000 to 1000.
    pub priority: i16,
    /// The first that matches says another one.
    pub priority_by: Vec<PriorityRule>,
    /// By what clients are told apart.
    pub fair_by: FairBy,
    /// What requests run one after the other by.
    pub serialize_by: SerializeBy,
    /// What becomes of a running script whose client has left.
    pub on_client_left: OnClientLeft,
}

/// One rule of `priority_by`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriorityRule {
    /// What is looked at.
    pub part: RequestPart,
    /// What it has to be.
    pub value: ValuePattern,
    /// The priority then.
    pub priority: i16,
}

/// A part of a request that a client, or what is in front of weir, has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestPart {
    /// A header, by its name in lower case.
    Header(String),
    /// A cookie, by its name.
    Cookie(String),
}

/// How a value is described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValuePattern {
    /// A glob over the whole value; `*` matches any run of characters, `?` one.
    Glob(String),
    /// `~REGEX`
    Regex(String),
}

/// By what clients are told apart that get equal shares.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FairBy {
    /// They are not.
    Off,
    /// By their address; IPv6 by its first 64 bits.
    #[default]
    Address,
    /// By this; where it is missing, by their address.
    Part(RequestPart),
}

/// What requests run one after the other by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SerializeBy {
    /// As the pool's queue says.
    #[default]
    Pool,
    /// They do not.
    Off,
    /// Those that have the same one; those without it do not.
    Part(RequestPart),
}

/// What becomes of a running script whose client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnClientLeft {
    /// Nobody stops it.
    #[default]
    Finish,
    /// Its worker is stopped.
    Cancel,
    /// Its worker is stopped unless it has begun to answer.
    FinishIfAnswering,
}

/// `[pool.NAME]`
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// The NAME.
    pub name: String,
    /// Who the workers are.
    pub runtime: Runtime,
    /// One connection serves many requests.
    pub keep_conn: bool,
    /// Requests per connection; 0: no limit.
    pub max_reqs: u64,
    /// Waiting for a connection to be made.
    pub connect_timeout: Duration,
    /// A worker may be silent for so long (between two reads or writes); then 504. A server's connection is closed.
    pub read_timeout: Duration,
    /// A script may run for so long in all; zero: no limit. 504, and the worker is given up.
    pub request_terminate_timeout: Duration,
    /// That limit holds also after `fastcgi_finish_request()`.
    pub request_terminate_timeout_track_finished: bool,
    /// To how many other workers a request may be given whose connection was closed; 0: to none.
    pub retries: u32,
    /// Largest response head, bytes; more: 502.
    pub max_response_head: usize,
    /// Extensions (with the dot) of scripts that may run; empty: any.
    pub limit_extensions: Vec<String>,
    /// Where PHP-FPM's status page is.
    pub status_path: Option<String>,
    /// Where PHP-FPM's ping page is.
    pub ping_path: Option<String>,
    /// What the ping page says.
    pub ping_response: String,
    /// PHP-FPM's log of the pool's requests.
    pub access_log: Option<PathBuf>,
    /// How its lines are written (`%` codes of PHP-FPM's `access.format`).
    pub access_format: AccessFormat,
    /// GET and HEAD requests for these paths are left out of it where all went well.
    pub access_suppress_path: Vec<String>,
    /// `[pool.NAME.queue]`
    pub queue: Queue,
}

impl Pool {
    /// What weir starts its workers with; none where somebody else runs them.
    pub fn workers(&self) -> Option<&Workers> {
        match &self.runtime {
            Runtime::Php(php) => Some(&php.workers),
            Runtime::Command(command) => Some(&command.workers),
            Runtime::Servers(_) => None,
        }
    }

    /// weir's own PHP; none for any other runtime.
    pub fn php(&self) -> Option<&Php> {
        match &self.runtime {
            Runtime::Php(php) => Some(php),
            Runtime::Command(_) | Runtime::Servers(_) => None,
        }
    }
}

/// Who the workers of a pool are.
#[derive(Debug, Clone, PartialEq)]
pub enum Runtime {
    /// weir's own PHP: a master that loads it once, and workers that it forks.
    Php(Php),
    /// Any FastCGI program: one process per worker, a private listening socket as its fd 0.
    Command(Command),
    /// Workers that somebody else runs.
    Servers(Servers),
}

/// `runtime = "command"`
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Program and arguments; the program is an absolute path or found in PATH at start.
    pub argv: Vec<String>,
    /// How many, as whom, with what.
    pub workers: Workers,
}

/// `runtime = "php"`
#[derive(Debug, Clone, PartialEq)]
pub struct Php {
    /// Major and minor version, `8.2`; none: the newest installed.
    pub version: Option<String>,
    /// php.ini, or its folder; none: PHP's own place.
    pub ini: Option<PathBuf>,
    /// No php.ini is read.
    pub no_ini: bool,
    /// Settings in place of what php.ini says, also those that are read at start only.
    pub define: Vec<(String, String)>,
    /// `php_value`, `php_flag`, `php_admin_value` and `php_admin_flag`, in this order.
    pub settings: Vec<PhpSetting>,
    /// A changed symlink on the way to a site's root starts the pool anew.
    pub watch_root: bool,
    /// The stack of a script that runs for longer is written to the slow log; zero: never.
    pub slowlog_timeout: Duration,
    /// Calls of that stack at most.
    pub slowlog_depth: u32,
    /// The slow log; none: the error log.
    pub slowlog: Option<PathBuf>,
    /// Debuggers of the same user may look into the workers.
    pub dumpable: bool,
    /// How many, as whom, with what.
    pub workers: Workers,
}

/// One setting of PHP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhpSetting {
    /// As php.ini calls it.
    pub name: String,
    /// As php.ini would write it.
    pub value: String,
    /// Neither scripts nor .user.ini can change it.
    pub admin: bool,
    /// It is a switch (`php_flag`, `php_admin_flag`).
    pub flag: bool,
}

/// How the number of workers is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pm {
    /// Always `max_children`.
    Static,
    /// Some are kept spare.
    Dynamic {
        /// Workers at the start.
        start: usize,
        /// Fewer free ones, and others are started.
        min_spare: usize,
        /// More free ones, and some are stopped.
        max_spare: usize,
    },
    /// None without requests.
    OnDemand,
    /// From waiting time, cores and memory.
    Auto {
        /// Workers at the start, and at least.
        start: usize,
    },
}

/// Workers that weir runs itself: how many, as whom, with what.
#[derive(Debug, Clone, PartialEq)]
pub struct Workers {
    /// How the number is chosen.
    pub pm: Pm,
    /// Workers at most.
    pub max_children: usize,
    /// Workers beside `max_children` for calls that scripts make to their own site.
    pub self_call_workers: usize,
    /// What a worker is taken to need before any has shown it (auto), bytes.
    pub worker_memory: u64,
    /// Workers started in a second at most.
    pub max_spawn_rate: usize,
    /// A path whose script has ended so many workers within `crash_window` is refused for `crash_pause`; 0: never.
    pub crash_limit: u32,
    /// See `crash_limit`; not zero.
    pub crash_window: Duration,
    /// See `crash_limit`; not zero.
    pub crash_pause: Duration,
    /// A worker that is free for so long is stopped (on demand, auto).
    pub idle_timeout: Duration,
    /// A worker is replaced after so many requests; 0: never.
    pub max_requests: u64,
    /// A worker whose resident memory has been larger is replaced after its request, bytes; 0: never.
    pub max_memory: u64,
    /// Identity, as root only; none: the gateway's.
    pub user: Option<String>,
    /// Group, as root only.
    pub group: Option<String>,
    /// Folder that the workers are locked into, as root only.
    pub chroot: Option<PathBuf>,
    /// Working folder, as seen from inside of `chroot`.
    pub chdir: Option<PathBuf>,
    /// The environment is only `env` (default true) or weir's with `env` added.
    pub clear_env: bool,
    /// Environment of the workers.
    pub env: Vec<(String, String)>,
    /// RLIMIT_NOFILE of the workers; none: weir's.
    pub rlimit_files: Option<u64>,
    /// RLIMIT_CORE of the workers, bytes; none: weir's.
    pub rlimit_core: Option<u64>,
    /// Nice value of the workers; none: weir's.
    pub priority: Option<i32>,
    /// Where the lines go that they print to their standard output and error; none: the error log.
    pub output_log: Option<LogTarget>,
    /// These lines are written with time, pool and process before them.
    pub decorate_output: bool,
}

/// `[pool.NAME.queue]`
#[derive(Debug, Clone, PartialEq)]
pub struct Queue {
    /// Requests at work at once; where the servers' limits are found out, what these can be together at most.
    pub maxconn: usize,
    /// With fullconn: the limit is never below. 0: there is no fullconn.
    pub minconn: usize,
    /// The load (running and waiting) at which the limit is maxconn; below it grows with the load. 0: always maxconn.
    pub fullconn: usize,
    /// Requests waiting at most; more are shed at once.
    pub max_queue: usize,
    /// Waiting at most; then 503.
    pub timeout: Duration,
    /// Workers kept for requests of a priority, each with a different one, together fewer than maxconn.
    pub reserve: Vec<Reserve>,
    /// Requests with the same one run one after the other, where nothing else is said; none: they do not.
    pub serialize_by: Option<RequestPart>,
    /// Requests of one key that wait for their turn at most.
    pub serialize_queue: usize,
    /// Who goes first under lasting overload.
    pub order: QueueOrder,
}

/// Workers that only take requests of a priority or a lower number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// The highest number that may use them, -1000 to 1000.
    pub priority: i16,
    /// So many, at least 1.
    pub workers: usize,
}

/// Who goes first under lasting overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueOrder {
    /// The queue is kept short, and who has waited too long goes last.
    Adaptive,
    /// As they came.
    Fifo,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// Where requests are written.
    pub access: LogTarget,
    /// How.
    pub format: LogFormat,
    /// Where the application's outgoing calls are written.
    pub egress: LogTarget,
    /// Where errors are written.
    pub error: LogTarget,
    /// The least severe level that is written.
    pub level: Level,
    /// Whose words errors are written in.
    pub error_format: ErrorFormat,
    /// Longest line in PHP-FPM's format, bytes.
    pub error_limit: u32,
    /// In PHP-FPM's format, lines of workers are written when they are whole.
    pub error_buffering: bool,
    /// What messages to syslog are called.
    pub syslog_ident: String,
    /// Which of syslog's facilities they belong to, as syslog(3) numbers them (daemon: 3).
    pub syslog_facility: u8,
}

/// Whose words errors are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorFormat {
    /// weir's own.
    Weir,
    /// PHP-FPM's, for scripts that look for them.
    Fpm,
}

/// Where a log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Nowhere.
    Off,
    /// `"stdout"`
    Stdout,
    /// `"stderr"`
    Stderr,
    /// A file, appended to, reopened at SIGUSR1.
    File(PathBuf),
    /// The system's log (/dev/log); the error log only.
    Syslog,
}

/// How a line of the access log is written.
#[derive(Debug, Clone, PartialEq)]
pub enum LogFormat {
    /// Apache's and nginx's combined format.
    Combined,
    /// One JSON object a line with all fields.
    Json,
    /// Text with `${...}`.
    Template(Template),
}

/// Severity, most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is lost.
    Error,
    /// Something will bite.
    Warning,
    /// What an operator wants to know.
    Notice,
    /// Everything.
    Debug,
}
