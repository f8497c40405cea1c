//! The checked configuration, defaults included.
//!
//! `weir.toml` contains only some keys; this model contains all values, resolved. A route has the complete
//! [`Settings`] in force for it (the site's, overridden by its own), names are replaced by indices, and every limit
//! has a number. Regular expressions and globs are kept as checked source text, so this crate needs no matcher at run
//! time and the gateway compiles them once.
//!
//! Durations are [`Duration`], sizes are bytes.

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use core::{
    fmt,
    net::{IpAddr, SocketAddr},
    num::NonZeroU64,
    time::Duration,
};
use std::{path::PathBuf, sync::Arc};

mod cache;
mod clients;
mod egress;
mod host;
mod http2;
mod log;
mod php;
mod program;
mod servers;
mod tls;

pub use cache::{Bus, Cache, CachePreset, CacheRules};
pub use clients::{BasicAuth, FairBy, ForwardedFields, Peer, Rate};
pub use egress::{
    AllowRule, Egress, Forwarded, Host, HostSettings, Network, OriginHost, OriginPattern, Scheme,
    Secret, SecretPiece,
};
pub use host::HostPattern;
pub use http2::{Http2, Http2Limits};
pub use log::{ErrorFormat, Level, Log, LogFormat, LogTarget};
pub use php::{Php, PhpSetting};
pub use program::{Overlap, Program, Restart};
pub use servers::{
    Adaptive, Balance, Check, HashBy, HttpServers, Servers, Statuses, Upstream, UpstreamServer,
};
pub use tls::{
    Acme, AutoCertificate, Certificate, ClientAuth, DEFAULT_CERTIFICATES, Hsts, Issuer,
    ListenerTls, Tls,
};

use crate::{access_format::AccessFormat, template::Template};

/// A whole configuration. The manager applies it and the gateway serves it.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[server]`
    pub server: Server,
    /// `[listen.NAME]`, in the order of the file.
    pub listeners: Vec<Listener>,
    /// `[tls]`
    pub tls: Tls,
    /// `[certificate.NAME]`, in the order of the file.
    pub certificates: Vec<Certificate>,
    /// `[site.NAME]`, in the order of the file.
    pub sites: Vec<Site>,
    /// `[pool.NAME]`, in the order of the file. [`PoolId`] is an index into it.
    pub pools: Vec<Pool>,
    /// `[program.NAME]`, in the order of the file.
    pub programs: Vec<Program>,
    /// `[cache]`. `None`: no site has a cache.
    pub cache: Option<Cache>,
    /// `[egress]`. `None`: there is no such table.
    pub egress: Option<Egress>,
    /// `[log]`
    pub log: Log,
}

impl Config {
    /// Whether this pool replaces PHP-FPM: a web server talks FastCGI to it, and the error log has PHP-FPM's format.
    pub fn is_in_place_of_fpm(&self, pool: PoolId) -> bool {
        let spoken = self.listeners.iter().any(|listener| {
            matches!(&listener.protocol, Protocol::FastCgi(front) if front.pool == pool && !front.status_only)
        });
        spoken && self.log.error_format == ErrorFormat::Fpm
    }
}

/// `[server]`: the process, its identity, and the limits for all sites.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Server {
    /// User of the gateway if root starts weir. `None`: the current user, or for root the first existing one of
    /// `weir`, `www-data` and `nobody`.
    pub user: Option<String>,
    /// Group of the gateway. `None`: the user's primary group.
    pub group: Option<String>,
    /// Folder that the gateway changes its root to.
    pub chroot: Option<PathBuf>,
    /// Number of reactors. 0: as many as the load needs, up to the cores.
    pub threads: usize,
    /// File for the manager's process id.
    pub pid_file: Option<PathBuf>,
    /// Folder for what a restart of weir must know: the last times of programs with a schedule. `None`: systemd's, or
    /// `/var/lib/weir`.
    pub state_dir: Option<PathBuf>,
    /// How long a graceful stop waits for running requests.
    pub shutdown_timeout: Duration,
    /// How long weir still accepts connections after it was told to stop gracefully, while it is not ready.
    pub shutdown_delay: Duration,
    /// Maximum number of replaced configurations that still finish requests. A further reload waits.
    pub max_old_generations: usize,
    /// How long a new weir may take at an upgrade until it serves. Default 60 s.
    pub upgrade_timeout: Duration,
    /// A gateway that does not respond for this long is replaced. Zero: never.
    pub gateway_timeout: Duration,
    /// Maximum number of client connections. More connections wait in the kernel's backlog.
    pub max_connections: usize,
    /// Proxies that may say who the client is.
    pub trusted: Vec<Peer>,
    /// The fields in which they say it.
    pub forwarded_by: ForwardedFields,
    /// Such fields of others are passed to scripts.
    pub passes_untrusted: bool,
    /// Maximum number of clients whose rates are remembered.
    pub max_rate_clients: usize,
    /// Maximum number of passwords that wait to be verified.
    pub max_waiting_passwords: usize,
    /// Maximum number of client connections of one address. More are closed at once. 0: no limit.
    pub max_connections_per_address: usize,
    /// Value of `SERVER_SOFTWARE` for scripts.
    pub server_software: String,
    /// Folder for temporary (unnamed) files with bodies that do not fit into memory.
    pub spool_dir: PathBuf,
    /// Maximum size of all temporary files together, bytes.
    pub max_spool: u64,
    /// Maximum number of threads that compress. 0: one per core.
    pub compress_threads: usize,
    /// Memory of all answers that are being compressed, bytes.
    pub compress_memory: usize,
    /// Memory for compressed files, bytes.
    pub compress_cache: usize,
    /// Memory for heads of requests over HTTP/2, and for parts of their bodies that were not read yet, bytes.
    pub http2_memory: usize,
    /// The socket of the admin API.
    pub admin: SocketPath,
    /// DNS servers. Empty: those of /etc/resolv.conf.
    pub resolver: Vec<SocketAddr>,
    /// TCP address on which the admin API listens too.
    pub admin_tcp: Option<SocketAddr>,
    /// File with the token for actions over TCP. `None`: no actions over TCP.
    pub admin_token_file: Option<PathBuf>,
    /// Names of the pools that must all serve for weir to be ready. `None`: one pool that serves is enough.
    pub ready_pools: Option<Vec<String>>,
    /// weir reports not ready if a pool's queue is at least this full, in percent. 0: the queue does not matter.
    pub ready_saturation: u64,
    /// weir reports not ready if all workers of a pool have been busy with the same requests for this long. Zero:
    /// never for this reason.
    pub ready_stalled: Duration,
    /// Whether `/metrics` has all histograms of each site, or none. `None`: the one that matters to visitors.
    pub site_histograms: Option<bool>,
    /// Whether `/metrics` has all histograms of each pool, or none. `None`: those of waiting and of the time at a worker.
    pub pool_histograms: Option<bool>,
    /// Nice value of the gateway. `None`: [`GATEWAY_FIRST`] lower than weir's own, if that is permitted.
    pub priority: Option<i32>,
    /// Maximum number of workers of all pools together. 0: only each pool's own limit.
    pub process_max: usize,
    /// How many pools may load PHP at the same time. 0: one for each core, at least 2.
    pub php_starts: usize,
    /// If this many workers of a pool die by SIGSEGV or SIGBUS within `emergency_restart_interval`, the pool is
    /// restarted. 0: never.
    pub emergency_restart_threshold: usize,
    /// See `emergency_restart_threshold`.
    pub emergency_restart_interval: Duration,
}

/// By default the gateway's nice value is this much lower than weir's own.
pub const GATEWAY_FIRST: i32 = 5;

/// Path of one of weir's own sockets: of the admin interface, or of the egress.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SocketPath {
    /// The default path in the machine's folder for such sockets, for the admin interface `weir/admin.sock`. If that is not
    /// possible, weir runs without it.
    #[default]
    Default,
    /// No socket.
    Off,
    /// At this path.
    At(PathBuf),
}

/// Address of a listener or a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// `host:port`, `[::]:port`
    Tcp(SocketAddr),
    /// `unix:PATH`
    Unix(PathBuf),
}

/// Writes the address as in weir.toml.
impl Default for Address {
    fn default() -> Self {
        Self::Unix("/".into())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(socket) => write!(f, "{socket}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `[listen.NAME]`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listener {
    /// The NAME.
    pub name: String,
    /// Its address.
    pub address: Address,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its clients use TLS.
    pub tls: Option<ListenerTls>,
    /// Length of the kernel's accept backlog (limited by net.core.somaxconn).
    pub backlog: u32,
    /// An IPv6 socket takes no IPv4.
    pub ipv6only: bool,
    /// Owner of a unix socket.
    pub owner: Option<String>,
    /// Group of a unix socket.
    pub group: Option<String>,
    /// Mode of a unix socket (default 0660).
    pub mode: u32,
    /// Users that may connect to a unix socket (access control list).
    pub acl_users: Vec<String>,
    /// Groups that may connect to a unix socket (access control list).
    pub acl_groups: Vec<String>,
    /// Maximum size of a request head (request line and headers), bytes. Above: 431, or 414 if the target alone is.
    pub max_head: usize,
    /// Maximum number of header fields in a request. Above: 431.
    pub max_headers: usize,
    /// Timeout from the first to the last byte of the request head. After it: 408.
    pub header_timeout: Duration,
    /// Timeout between two reads of a request body. After it: 408.
    pub body_timeout: Duration,
    /// Timeout between two requests of a keep-alive connection.
    pub idle_timeout: Duration,
    /// Timeout between two writes to a client that does not read.
    pub send_timeout: Duration,
    /// Maximum number of requests on one connection. 0: no limit.
    pub max_requests_per_connection: u64,
    /// Each connection begins with a header of the PROXY protocol, from one of [`Server::trusted`].
    pub proxy_protocol: bool,
    /// Whether clients may use HTTP/2.
    pub http2: Http2,
    /// Clients may use HTTP/3, on the same port over UDP.
    pub http3: bool,
    /// What clients of HTTP/2 may do.
    pub http2_limits: Http2Limits,
}

/// Protocol of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Protocol {
    /// HTTP/1.
    #[default]
    Http,
    /// FastCGI 1.0, from a web server in front.
    FastCgi(FastCgi),
    /// HAProxy's agent-check: one line with the state of a pool.
    AgentCheck(AgentCheck),
}

/// A listener with `protocol = "agent-check"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCheck {
    /// The pool whose state is reported.
    pub pool: PoolId,
    /// Addresses that may connect over TCP. Empty: any.
    pub allowed_clients: Vec<IpAddr>,
}

/// A listener with `protocol = "fastcgi"`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FastCgi {
    /// The pool that handles the requests.
    pub pool: PoolId,
    /// Only the status page and the ping page are served.
    pub status_only: bool,
    /// If a worker fails, weir responds with 502 or 504. Otherwise it closes the connection, as PHP-FPM does.
    pub answers_failures: bool,
    /// Error responses contain the reason in `Proxy-Status`.
    pub proxy_status: bool,
    /// Addresses that may connect over TCP. Empty: any.
    pub allowed_clients: Vec<IpAddr>,
    /// Timeout, priority and order of the requests.
    pub policy: Policy,
}

/// `[site.NAME]`
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// The NAME.
    pub name: String,
    /// Its host names. Empty: it is the default site of its listeners.
    pub hosts: Vec<HostPattern>,
    /// Index into [`Config::certificates`]. `None`: any certificate that has the name the client asks for.
    pub certificate: Option<usize>,
    /// weir makes certificates for its hosts.
    pub is_auto: bool,
    /// Where requests without TLS are redirected to. `None`: they are answered.
    pub https_redirect: Option<Action>,
    /// Clients are asked for a certificate.
    pub client_auth: Option<ClientAuth>,
    /// Indices of its listeners. Never empty (all HTTP listeners if the file names none).
    pub listen: Vec<usize>,
    /// Settings for requests without a route that overrides them.
    pub settings: Settings,
    /// `[[site.NAME.route]]`; the first match wins.
    pub routes: Vec<Route>,
}

impl Site {
    /// Whether names that lead to it get certificates on demand, if `ask` allows them.
    pub fn is_on_demand(&self) -> bool {
        self.is_auto && self.hosts.is_empty()
    }
}

/// `[[site.NAME.route]]`
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The paths that match.
    pub path: PathPattern,
    /// The methods that match. Empty: any.
    pub methods: Vec<String>,
    /// A response without file or script. `None`: continue with files and scripts, with `settings`.
    pub action: Option<Action>,
    /// Path and query that replace the request's. `$1` to `$9` and `${name}` are groups of `path`'s expression.
    pub rewrite: Option<String>,
    /// The site's settings, overridden by the route's.
    pub settings: Settings,
}

/// Pattern of a route's `path`. It is matched against the decoded, normalised path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    /// A glob over the whole path. `*` matches any sequence of characters, slashes included; `?` matches one
    /// character.
    Glob(String),
    /// `~REGEX`
    Regex(String),
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glob(text) => f.write_str(text),
            Self::Regex(text) => write!(f, "~{text}"),
        }
    }
}

/// A response that a route gives itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// `redirect = "…"` with `status` (301, 302, 303, 307, 308; default 308).
    Redirect {
        /// The Location header.
        to: Template,
        /// The status.
        status: u16,
    },
    /// `deny = true`: 403.
    Deny,
    /// `reply = { status, body, content_type }`
    Reply {
        /// 200 to 599.
        status: u16,
        /// The body.
        body: Template,
        /// The content type. Default: `text/plain; charset=utf-8`.
        content_type: String,
    },
}

/// Index into [`Config::pools`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PoolId(pub usize);

/// Settings of a site that a route may override.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// The document root. `None`: no files and no scripts (only replies).
    pub root: Option<PathBuf>,
    /// For a route: the folder that replaces its URL prefix, instead of `root`.
    pub alias: Option<Alias>,
    /// What is no file goes to servers that speak HTTP: those of `pool`.
    pub is_proxied: bool,
    /// For a route: the prefix, with a slash at its end, that a server which speaks HTTP does not get.
    pub strip_prefix: Option<String>,
    /// Path of `root` as the worker sees it. `None`: the same path.
    pub script_root: Option<PathBuf>,
    /// Files to try, in order, for a URL that ends with a slash.
    pub index: Vec<String>,
    /// Regular expression for script URLs. Group 1: script name; group 2: path-info.
    pub script: String,
    /// Target for a URL that is not a file: a path, with query and groups as in [`Route::rewrite`]. `None`: 404.
    pub fallback: Option<String>,
    /// A script must be a file on this machine. `None`: only PHP scripts must.
    pub check_files: Option<bool>,
    /// How to handle a path with an encoded slash.
    pub encoded_slash: EncodedSlash,
    /// The pool that runs scripts. `None`: scripts are refused with 403, never sent as text.
    pub pool: Option<PoolId>,
    /// FastCGI parameters added to the request, in order.
    pub params: Vec<(String, Template)>,
    /// Names of the headers that are passed on. `None`: all, except Proxy and connection headers.
    pub pass_headers: Option<Vec<String>>,
    /// Headers with underscores in their names are passed on too (default false).
    pub underscores_in_headers: bool,
    /// Regular expressions over the path and the script name. Matches are never served and never run. Those of
    /// [`crate::default_hide_files`] apply to files only.
    pub hide_files: Vec<String>,
    /// Path prefixes below which scripts are served as plain files and never run.
    pub deny_scripts: Vec<String>,
    /// Status → file (absolute, or relative to `root`).
    pub error_pages: BTreeMap<u16, PathBuf>,
    /// Cache-Control of static files.
    pub cache_control: Option<String>,
    /// Response headers to set.
    pub set_headers: Vec<(String, Template)>,
    /// Response headers to remove.
    pub remove_headers: Vec<String>,
    /// Request headers to set before the worker gets the request.
    pub set_request_headers: Vec<(String, Template)>,
    /// charset that is added to text types. Empty: none.
    pub charset: String,
    /// Content types by extension. They take precedence over the built-in list.
    pub types: BTreeMap<String, String>,
    /// Serve `file.br`, `file.zst`, `file.gz` if they exist beside the file.
    pub precompressed: bool,
    /// Compress answers for clients that accept it (default false).
    pub compress: bool,
    /// Media types that are compressed: exact, `text/*`, `*+json`, or `*`.
    pub compress_types: Vec<String>,
    /// Shorter answers are not compressed, bytes.
    pub compress_min_size: u64,
    /// Compress answers to requests of other sites that have cookies too (default false).
    pub compress_cross_site: bool,
    /// Follow symlinks that lead out of the root (default false).
    pub follow_symlinks: bool,
    /// Maximum size of a request body, bytes. Above: 413.
    pub max_body: u64,
    /// Maximum size of a request body in memory, bytes. The rest goes to a temporary file.
    pub body_memory: usize,
    /// Maximum size of a response in memory for a slow client, bytes. The rest goes to a temporary file.
    pub response_memory: usize,
    /// Maximum size of a response in a temporary file for a slow client, bytes. Above it, the worker has to wait.
    pub max_response_file: u64,
    /// Responses are buffered. If false, they are streamed as they arrive.
    pub buffering: bool,
    /// X-Accel-Redirect: URL prefix → folder.
    pub accel_redirect: Vec<(String, PathBuf)>,
    /// X-Sendfile: folders whose files may be sent.
    pub sendfile_dirs: Vec<PathBuf>,
    /// Requests are written to the access log.
    pub access_log: bool,
    /// Clients that may use it. Empty: all.
    pub allow: Vec<Peer>,
    /// Clients that may not use it, even if `allow` includes them.
    pub deny: Vec<Peer>,
    /// How many requests each client may send.
    pub rate: Option<Rate>,
    /// Browsers use only HTTPS; of the site.
    pub hsts: Option<Hsts>,
    /// Clients need a user and a password.
    pub basic_auth: Option<BasicAuth>,
    /// Maximum speed of each answer, bytes a second.
    pub bandwidth: Option<NonZeroU64>,
    /// Which answers of scripts are stored. `None`: none. Sites and routes with the same rules share them.
    pub cache: Option<Arc<CacheRules>>,
    /// Timeout, priority and order of requests for scripts.
    pub policy: Policy,
}

/// A folder that replaces a URL prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// The prefix. It begins and ends with a slash.
    pub prefix: String,
    /// The folder.
    pub folder: PathBuf,
}

/// How to handle a path with an encoded slash (`%2F`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EncodedSlash {
    /// The path is not a file. It may be path-info of a script, or go to the fallback.
    #[default]
    Pass,
    /// Not found.
    Refuse,
}

/// Timeout, priority and order of requests for scripts, set by a site, a route or a FastCGI listener.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// Timeout from the request's first byte to the response head. Zero: no limit.
    pub timeout: Duration,
    /// The request header with which a client may lower `timeout`.
    pub timeout_header: Option<String>,
    /// Priority in the queue, lower first; -1000 to 1000.
    pub priority: i16,
    /// Rules that change the priority. The first match wins.
    pub priority_by: Vec<PriorityRule>,
    /// How to identify clients for fair queueing.
    pub fair_by: FairBy,
    /// The key by which requests are serialized.
    pub serialize_by: SerializeBy,
    /// What to do with a running script if its client disconnects.
    pub on_client_left: OnClientLeft,
}

/// One rule of `priority_by`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriorityRule {
    /// The part of the request that is compared.
    pub part: RequestPart,
    /// The pattern for its value.
    pub value: ValuePattern,
    /// The priority if it matches.
    pub priority: i16,
}

/// A part of a request that the client or a proxy in front sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestPart {
    /// A header. The name is in lower case.
    Header(String),
    /// A cookie.
    Cookie(String),
}

/// Pattern of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValuePattern {
    /// A glob over the whole value. `*` matches any sequence of characters, `?` one character.
    Glob(String),
    /// `~REGEX`
    Regex(String),
}

/// The key by which requests are serialized (run one after the other).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SerializeBy {
    /// As configured in the pool's queue.
    #[default]
    Pool,
    /// Not serialized.
    Off,
    /// Requests with the same value are serialized. Requests without the value are not.
    Part(RequestPart),
    /// Requests of one session are serialized, for scripts that hold the lock of their session. Only weir's own PHP
    /// reports these.
    Auto,
}

/// What to do with a running script if its client disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnClientLeft {
    /// Let it finish.
    #[default]
    Finish,
    /// Stop its worker.
    Cancel,
    /// Stop its worker unless the script has begun to respond.
    FinishIfAnswering,
}

/// `[pool.NAME]`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pool {
    /// The NAME.
    pub name: String,
    /// What runs the workers.
    pub runtime: Runtime,
    /// Connections to workers are kept open for further requests.
    pub keep_conn: bool,
    /// Maximum number of requests per connection. 0: no limit.
    pub max_reqs: u64,
    /// Timeout for opening a connection.
    pub connect_timeout: Duration,
    /// Timeout between two reads or writes of a worker. After it: 504; the connection to a server is closed.
    pub read_timeout: Duration,
    /// Maximum run time of a script. Zero: no limit. After it: 504, and the worker is discarded.
    pub request_terminate_timeout: Duration,
    /// The limit also applies after `fastcgi_finish_request()`.
    pub request_terminate_timeout_track_finished: bool,
    /// Maximum number of retries with other workers if the connection was closed. 0: no retry.
    pub retries: u32,
    /// Maximum size of a response head, bytes. Above: 502.
    pub max_response_head: usize,
    /// Extensions (with the dot) of scripts that may run. Empty: any.
    pub limit_extensions: Vec<String>,
    /// Path of PHP-FPM's status page.
    pub status_path: Option<String>,
    /// Path of PHP-FPM's ping page.
    pub ping_path: Option<String>,
    /// Content of the ping page.
    pub ping_response: String,
    /// PHP-FPM's access log of the pool.
    pub access_log: Option<PathBuf>,
    /// Format of its lines (`%` codes of PHP-FPM's `access.format`).
    pub access_format: AccessFormat,
    /// Successful GET and HEAD requests for these paths are not logged there.
    pub access_suppress_path: Vec<String>,
    /// `[pool.NAME.queue]`
    pub queue: Queue,
}

impl Pool {
    /// Settings of the workers that weir starts. `None` if another program runs them.
    pub fn workers(&self) -> Option<&Workers> {
        match &self.runtime {
            Runtime::Php(php) => Some(&php.workers),
            Runtime::Command(command) => Some(&command.workers),
            Runtime::Servers(_) => None,
        }
    }

    /// weir's own PHP. `None` for any other runtime.
    pub fn php(&self) -> Option<&Php> {
        match &self.runtime {
            Runtime::Php(php) => Some(php),
            Runtime::Command(_) | Runtime::Servers(_) => None,
        }
    }
}

/// What runs the workers of a pool.
#[derive(Debug, Clone, PartialEq)]
pub enum Runtime {
    /// weir's own PHP: a master process loads it once and forks the workers.
    Php(Box<Php>),
    /// Any FastCGI program: one process per worker, with a private listening socket as its fd 0.
    Command(Command),
    /// Workers that another program runs.
    Servers(Servers),
}

impl Default for Runtime {
    fn default() -> Self {
        Self::Command(Command::default())
    }
}

/// `runtime = "command"`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Command {
    /// Program and arguments. The program is an absolute path, or is looked up in PATH at the start.
    pub argv: Vec<String>,
    /// Number, user and environment of the workers.
    pub workers: Workers,
}

/// How the number of workers is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pm {
    /// Always `max_children`.
    #[default]
    Static,
    /// A number of workers between two limits is kept idle.
    Dynamic {
        /// Workers at the start.
        start: usize,
        /// With fewer idle workers, others are started.
        min_spare: usize,
        /// With more idle workers, some are stopped.
        max_spare: usize,
    },
    /// No workers without requests.
    OnDemand,
    /// Computed from waiting time, cores and memory.
    Auto {
        /// Workers at the start, and the minimum.
        start: usize,
        /// No workers without requests: `start` is the minimum in between.
        rests: bool,
    },
}

impl Pm {
    /// Whether a pool may have no workers, and then no PHP either.
    pub fn may_be_cold(self) -> bool {
        matches!(self, Self::OnDemand | Self::Auto { rests: true, .. })
    }
}

/// Workers that weir runs itself: number, user and environment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Workers {
    /// How the number is chosen.
    pub pm: Pm,
    /// Maximum number of workers.
    pub max_children: usize,
    /// Additional workers beyond `max_children`, for calls of scripts to their own site.
    pub self_call_workers: usize,
    /// Assumed memory of a worker until it has been measured (auto), bytes.
    pub worker_memory: u64,
    /// Maximum number of workers started per second.
    pub max_spawn_rate: usize,
    /// If scripts at a path crash this many workers within `crash_window`, the path is refused for `crash_pause`. 0:
    /// never.
    pub crash_limit: u32,
    /// See `crash_limit`; not zero.
    pub crash_window: Duration,
    /// See `crash_limit`; not zero.
    pub crash_pause: Duration,
    /// A worker that is idle for this long is stopped (on demand, auto).
    pub idle_timeout: Duration,
    /// A worker is replaced after this many requests. 0: never.
    pub max_requests: u64,
    /// A worker whose resident memory exceeds this is replaced after its request, bytes. 0: never.
    pub max_memory: u64,
    /// User, only if weir runs as root. `None`: the gateway's.
    pub user: Option<String>,
    /// Group, only if weir runs as root.
    pub group: Option<String>,
    /// Root folder of the workers (chroot), only if weir runs as root.
    pub chroot: Option<PathBuf>,
    /// Working folder, as seen inside of `chroot`.
    pub chdir: Option<PathBuf>,
    /// True: the environment contains only `env` (default). False: weir's environment with `env` added.
    pub clear_env: bool,
    /// Environment of the workers.
    pub env: Vec<(String, String)>,
    /// RLIMIT_NOFILE of the workers; none: weir's.
    pub rlimit_files: Option<u64>,
    /// RLIMIT_CORE of the workers, bytes; none: weir's.
    pub rlimit_core: Option<u64>,
    /// RLIMIT_NPROC of the workers; none: weir's.
    pub rlimit_processes: Option<u64>,
    /// Nice value of the workers; none: weir's.
    pub priority: Option<i32>,
    /// Where the lines go that workers print to standard output and error. `None`: the error log.
    pub output_log: Option<LogTarget>,
    /// These lines get a prefix of time, pool and process.
    pub decorate_output: bool,
}

/// `[pool.NAME.queue]`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Queue {
    /// Maximum number of requests running at once. If weir detects the limits of the servers, their maximum together.
    pub maxconn: usize,
    /// With fullconn: minimum of the limit. 0: there is no fullconn.
    pub minconn: usize,
    /// The load (running and waiting requests) at which the limit reaches maxconn. Below it, the limit grows with the
    /// load. 0: always maxconn.
    pub fullconn: usize,
    /// Maximum number of waiting requests. More are shed at once.
    pub max_queue: usize,
    /// Further requests are not shed: FastCGI listeners accept no connections while `max_queue` requests wait.
    pub waits_when_full: bool,
    /// Maximum waiting time. After it: 503.
    pub timeout: Duration,
    /// Workers reserved for requests of a priority. The priorities differ, and all reserved workers together are
    /// fewer than maxconn.
    pub reserve: Vec<Reserve>,
    /// Default key for serializing requests; [`SerializeBy::Pool`]: none.
    pub serialize_by: SerializeBy,
    /// Maximum number of waiting requests with the same key.
    pub serialize_queue: usize,
    /// Percent of the workers that one client may hold while others wait, 1 to 100; 100: any number.
    pub client_share: u8,
    /// Order of the queue under lasting overload.
    pub order: QueueOrder,
}

/// Workers that only take requests of this priority number or a lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// The highest priority number that may use them, -1000 to 1000.
    pub priority: i16,
    /// Number of workers, at least 1.
    pub workers: usize,
}

/// Order of the queue under lasting overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueOrder {
    /// The queue is kept short, and requests that have waited too long go last.
    #[default]
    Adaptive,
    /// First in, first out.
    Fifo,
}
